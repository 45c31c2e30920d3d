"""A card whose cancel has begun is cancelled, whatever core-api answers a moment later and whatever program dies in
between, because the row says that it must be cancelled.

Story: the link was refused once, the cancel was executed and answered 503, and the next attempt's link went through:
COMPLETED, active in our tables, linked, and dead at the issuer.
"""
from harness import assert_equal, slow, test


@test(retry__max_attempts="6")
def a_card_whose_cancel_has_begun_is_never_linked(world):
    world.up()
    world.sandbox.fault("link", "link_refused", count=1)
    world.sandbox.fault("cancel", "execute_then_status", status=503, count=1)
    request = world.accept("alice")
    world.settle()
    event = world.event(request)
    assert_equal((event["status"], event["reason_code"], event["cancel_code"]),
                 ("REJECTED", "card_limit_reached", "card_limit_reached"), "the event")
    assert_equal([card["status"] for card in world.sandbox.cards()], ["cancelled"], "at the issuer")
    assert_equal([card["status"] for card in world.get("alice", "/v1/cards").json()["items"]], ["cancelled"],
                 "in the api")
    assert_equal(len(world.sandbox.calls("link")), 1, "links tried")


@slow
@test(retry__max_attempts="6")
def a_card_found_for_a_blocked_user_goes_even_if_the_user_is_unblocked_meanwhile(world):
    world.up()
    world.sandbox.fault("create", "execute_then_status", status=500, count=1)
    world.sandbox.fault("check", "ineligible", count=1, skip=1)
    world.sandbox.fault("cancel", "execute_then_status", status=503, count=1)
    request = world.accept("bob")
    world.settle()
    event = world.event(request)
    assert_equal((event["status"], event["reason_code"]), ("REJECTED", "user_blocked"),
                 "the event: the reason that was noted")
    assert_equal([card["status"] for card in world.sandbox.cards()], ["cancelled"], "at the issuer")
    assert_equal(world.sql("SELECT count(*) FROM cards"), "0", "cards of ours")


@test
def another_call_with_our_key_makes_the_outcome_unknown(world):
    """409 says that a call with our key runs: no cancel by an operator, no refusal without a look-up."""
    world.up()
    world.sandbox.fault("create", "execute_then_status", status=409, count=1)
    world.sandbox.fault("check", "ineligible", skip=1)
    request = world.accept("carol")
    world.settle()
    event = world.event(request)
    assert_equal((event["status"], event["reason_code"]), ("REJECTED", "user_blocked"), "the event")
    assert_equal([card["status"] for card in world.sandbox.cards()], ["cancelled"], "at the issuer")


@slow
@test(core__max_concurrency="1", retry__max_attempts="4", worker__lease="4s")
def a_slow_peer_with_little_capacity_loses_no_lease_and_no_event(world):
    world.up(workers=0)
    world.sandbox.fault("check", "delay", delay_ms=100)
    requests = [world.accept("user-%d" % number) for number in range(40)]
    worker = world.start_worker()
    world.settle(60)
    assert_equal({world.event(request)["status"] for request in requests}, {"COMPLETED"}, "all ends")
    assert_equal(worker.metric("issuing_lease_lost_total"), 0.0, "leases lost")


@test
def a_code_that_could_be_a_card_number_is_not_stored(world):
    world.up()
    world.sandbox.fault("create", "status", status=422, code="4111111111111111", count=1)
    request = world.accept("dora")
    world.settle()
    event = world.event(request)
    assert_equal((event["status"], event["reason_code"]), ("REJECTED", "issuer_refused"), "the event")
    assert_equal("4111111111111111" in str(event), False, "the number in the row")
