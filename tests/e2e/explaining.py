"""issuing-ctl explain: what it says of an event's past is what happened, also after an operator has acted."""
from harness import assert_equal, assert_true, test
from operators import lines


@test
def explain_does_not_deny_calls_that_the_issuer_has_answered(world):
    """Story: the issuer answered a create with 418. explain and replay --dry-run printed "nothing was sent so far", and
    the operator passed that on to the issuer's team."""
    world.up()
    world.sandbox.fault("create", "status", user="alice", status=418)
    request = world.accept("alice")
    world.wait_status(request, "FAILED")
    world.workers()[0].stop()
    fresh = world.accept("bob")

    def explained():
        return [world.ctl("explain", request).stdout, lines(world.ctl("explain", request, "--json"))[0]["next"]["why"]]

    texts = explained() + [world.ctl("replay", request, "--dry-run").stdout,
                           lines(world.ctl("replay", request, "--dry-run", "--json"))[0]["why"]]
    assert_equal(world.ctl("replay", request, "--reason", "x").returncode, 0, "replay")
    texts += explained()
    for text in texts:
        assert_true("nothing was sent" not in text and "first time" not in text, text)
        assert_true("no earlier request can have made one" in text, text)
    assert_true("for the first time" in world.ctl("explain", fresh).stdout, "of an event without an attempt it is true")


@test
def the_cause_of_a_failure_stays_in_the_story_after_a_replay(world):
    """Story: after a replay only the audit record still held why the event had failed."""
    world.up()
    world.sandbox.fault("create", "status", user="alice", status=418)
    world.sandbox.fault("check", "ineligible", user="bob")
    request, refused = world.accept("alice"), world.accept("bob")
    world.wait_status(request, "FAILED")
    world.wait_status(refused, "REJECTED")
    world.workers()[0].stop()
    assert_equal(world.ctl("replay", request, "--reason", "x").returncode, 0, "replay")
    attempts = lines(world.ctl("explain", request, "--json"))[0]["attempts"]
    assert_equal([row["code"] for row in attempts], ["issuer_http_418"], "code")
    text = world.ctl("explain", request).stdout
    assert_true("issuer_http_418: the issuer answered 418" in text, text)
    reason = world.event(refused)["reason_code"]
    attempts = lines(world.ctl("explain", refused, "--json"))[0]["attempts"]
    assert_equal([row["code"] for row in attempts], [reason], "of a refusal")
