"""issuing-ctl explain: what it says of an event's past is what happened, also after an operator has acted; and what it
says of an event's future is what the worker then does, with each issuer."""
import re

from harness import assert_equal, assert_true, slow_but_at, test
from operators import lines

# One attempt, and none after it before the story says so.
RARELY = {"retry__base": "1d", "retry__cap": "1d", "idempotency__retention": "30d"}


def stop_after_one_attempt(world, user, body=None):
    """An event of that user, PENDING after its first attempt, and no worker."""
    worker = world.start_worker(**RARELY)
    event = world.accept(user, "key-%d" % len(world.workers()), body)
    world.wait_attempt(event)
    worker.stop()
    world.sandbox.clear()
    return event


def explained(world, event):
    """What explain says for people, and of what comes next for programs."""
    found = lines(world.ctl("explain", event, "--json"))[0]["next"]
    text = world.ctl("explain", event).stdout
    assert_true(found["why"] in text, "both say the same: %s" % text)
    return text, found


def go_on(world, event):
    world.sql("UPDATE outbox_events SET next_attempt_at = now() WHERE id = '%s'" % event)
    world.start_worker()
    row = world.wait_status(event, "COMPLETED", "REJECTED", "FAILED")
    return row["status"], row["reason_code"]


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


@slow_but_at("marqeta", "adyen")
@test(issuers=("stripe", "lithic", "marqeta", "adyen", "increase"))
def what_explain_says_of_a_repeat_is_what_the_worker_does(world):
    """Story: explain told of every issuer that the create is sent again with its key, which gives the same card. Two
    issuers are asked first, one of these has no key to rely on, and one has keys that live for ever."""
    world.up(workers=0)
    world.sandbox.fault("create", "status", user="alice", status=503)
    event = stop_after_one_attempt(world, "alice")
    text, found = explained(world, event)
    assert_equal(found["action"], "attempt", text)
    issuer = world.issuer
    assert_equal("asked whether there is a card" in found["why"], issuer.looks_first, text)
    assert_equal("which gives the same card" in found["why"], issuer.trusts_key, text)
    assert_equal("without a time limit" in found["why"], issuer.reference_is_key, text)
    before = len(world.sandbox.calls())
    assert_equal(go_on(world, event), ("COMPLETED", None), "the end")
    calls = [call["call"] for call in world.sandbox.calls()[before:] if call["call"] in ("create", "lookup")]
    assert_equal(calls[0], "lookup" if issuer.looks_first else "create", "the first call to the issuer: %r" % calls)
    assert_equal(calls.count("create"), 1, "creates of the second attempt: %r" % calls)
    settled = re.search(r"not before (\S+Z), when the last send has settled", found["why"])
    assert_equal(settled is None, issuer.trusts_key, text)
    if settled:
        sent = world.sandbox.calls("create", user="alice")[-1]["at"]
        assert_equal(world.sql("SELECT '%s'::timestamptz >= '%s'::timestamptz" % (sent, settled.group(1))), "t",
                     "sent again at %s: %s" % (sent, text))


@test(issuers=("marqeta",))
def explain_tells_of_a_card_that_could_not_be_activated_or_shown(world):
    world.up(workers=0)
    for call, words in (("activate", "could not activate it"), ("reveal", "could not read its number")):
        world.sandbox.fault(call, "status", status=503)
        event = stop_after_one_attempt(world, call)
        text, found = explained(world, event)
        assert_true("stopped at %s after" % call in text, text)
        assert_true("the last attempt was shown the card and %s, which is tried again" % words in found["why"], text)
        assert_equal(go_on(world, event), ("COMPLETED", None), "the end")
        assert_equal([card["status"] for card in world.sandbox.cards(reference=event)], ["active"], "the card")
        world.workers()[-1].stop()


@test(issuers=("stripe",))
def explain_tells_of_a_number_and_of_a_close_that_are_refused(world):
    """Story: of a card whose number was refused explain said that it is unknown whether there is one; that a replaced
    card stayed open was in no word of what comes next; and it denied that the issuer is called behind the link."""
    world.up(workers=0)
    world.sandbox.fault("reveal", "status", status=422, user="alice", code=world.issuer.code)
    event = stop_after_one_attempt(world, "alice")
    text, found = explained(world, event)
    assert_equal(found["action"], "operator", text)
    assert_true("The issuer has made a card for it, which is not stored here." in text, text)
    assert_true("refuses to show its number" in found["why"] and "after a replay it is sent again" in found["why"], text)
    assert_equal(world.ctl("replay", event, "--reason", "the key may see numbers now").returncode, 0, "replay")
    assert_equal(go_on(world, event), ("COMPLETED", None), "the end")
    assert_equal(explained(world, event)[1]["why"], "it is completed: the card is stored and linked", "the end")
    # Its replacement: first the link fails, then the old card cannot be closed.
    old = world.get("alice", "/v1/card-requests/" + event).json()["card"]["id"]
    world.workers()[-1].stop()
    world.sandbox.fault("link", "status", status=503, user="alice")
    event = stop_after_one_attempt(world, "alice", {"kind": "reissue", "replaces": old})
    text, found = explained(world, event)
    assert_equal(found["action"], "link", text)
    assert_true("the card that it replaces is closed at the issuer; no card is asked for" in found["why"], text)
    world.sandbox.fault("cancel", "status", status=422, code=world.issuer.code)
    before = len(world.sandbox.calls())
    assert_equal(go_on(world, event), ("COMPLETED", None), "the end of the replacement")
    calls = [call["call"] for call in world.sandbox.calls()[before:]]
    assert_true("create" not in calls and calls.index("link") < calls.index("cancel"), "calls: %r" % calls)
    text, found = explained(world, event)
    assert_true("the card that was replaced could not be closed at the issuer: close it there" in found["why"], text)
    assert_true("retire_refused" in text, text)


@test
def what_explain_says_of_an_answer_is_what_the_worker_does_with_it(world):
    """Story: an operator asks before the issuer is back what its answer will do."""
    answers = {"alice": (418, "FAILED"), "bob": (422, "REJECTED"), "carol": (503, "retry"), "dave": (404, "defer")}
    world.start_sandbox()
    world.start_api()
    events = {user: world.accept(user) for user in answers}
    said = {}
    for user, (status, then) in answers.items():
        world.sandbox.fault("create", "status", user=user, status=status)
        answer = "%d:fault" % status  # the sandbox's code of a scripted answer
        what = lines(world.ctl("explain", events[user], "--what-if", answer, "--json"))[0]["what_if"]
        assert_equal((what["call"], len(what["cases"])), ("issue", 1), user)
        said[user] = what["cases"][0]
        assert_equal(said[user]["then"], then.lower(), user)
        assert_true(said[user]["text"] in world.ctl("explain", events[user], "--what-if", answer).stdout, user)
    world.start_worker(**RARELY)
    for user, (_, then) in answers.items():
        attempt = world.wait_attempt(events[user])[0]
        row = world.event(events[user])
        if then in ("FAILED", "REJECTED"):
            world.wait_status(events[user], then)
            assert_equal(world.event(events[user])["reason_code"], said[user]["code"], user)
        else:
            assert_equal((attempt["code"], row["status"]), (said[user]["code"], "PENDING"), user)
    assert_equal(world.ctl("explain", events["alice"], "--what-if", "maybe").returncode, 2, "no such answer")
    assert_equal(world.ctl("explain", events["bob"], "--what-if", "404").returncode, 1, "it has ended")
