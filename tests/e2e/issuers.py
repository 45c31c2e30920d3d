"""A card by each issuer: made, read, replaced, refused, told apart from cards that are not ours.

Story: the worker spoke to an issuer of its own invention only. A real one has requests, credentials, steps and answers
of its own, and each must keep the promise.
"""
import client
from harness import assert_equal, assert_true, EVERY, slow_but_at, test, those

PAGED = those(lambda issuer: issuer.page)


def cards(world, reference):
    """The states at the issuer of the cards of that event."""
    return [card["status"] for card in world.sandbox.cards(reference=reference)]


def ended(world, event):
    """status and code"""
    row = world.wait_status(event, "COMPLETED", "REJECTED", "FAILED")
    return row["status"], row["reason_code"]


def lose_the_create(world, user):
    """The first create of that user makes its card and gets no definite answer; the second one is refused, so that a
    look-up decides also where the issuer's key is trusted."""
    world.sandbox.fault("create", "execute_then_status", user=user, count=1, status=503)
    world.sandbox.fault("create", "status", user=user, count=1, status=422, code=world.issuer.code)


@slow_but_at("generic", "stripe", "marqeta")
@test(issuers=EVERY)
def a_card_is_made_read_and_replaced(world):
    world.up()
    card = world.issue("alice")["card"]
    number = world.get("alice", "/v1/cards/%s/number" % card["id"]).json()["number"]
    assert_true(number in world.sandbox.numbers(), "the number is the issuer's")
    assert_equal((number[-4:], card["status"]), (card["last4"], "active"), "the card as its owner sees it")
    body = {"kind": "reissue", "replaces": card["id"]}
    new = world.issue("alice", "again", body)
    assert_equal(new["card"]["status"], "active", "the new card")
    assert_equal(world.get("alice", "/v1/cards/" + card["id"]).json()["status"], "replaced", "the old card")
    old_one, new_one = world.sandbox.cards(user="alice")
    assert_equal(new_one["status"], "active", "the new card at the issuer")
    assert_true(old_one["status"] in ("replaced", "cancelled"), "the old card at the issuer: " + old_one["status"])
    if world.issuer.closes_replaced:
        assert_equal(old_one["status"], "cancelled", "the old card at the issuer")
    # A double tap, on two devices at once.
    taps = client.burst([(world.apis()[0].port, world.post_bytes("bob", "tap")) for _ in range(8)])
    requests = {answer.json()["id"] for answer in taps if answer.status == 202}
    assert_equal(len(requests), 1, "requests of a double tap")
    world.settle()
    assert_equal(len(world.sandbox.cards(user="bob")), 1, "cards of a double tap")
    assert_equal(world.workers()[0].metric_sum("issuing_retries_total"), 0.0, "retries")


@slow_but_at("stripe")
@test(issuers=PAGED)
def cards_that_are_not_ours_do_not_hide_the_one_that_is(world):
    """A holder's list, or a search by a part of a text, shows cards of other programs, on several pages."""
    world.up(workers=0)
    request = world.accept("alice")
    foreign = 2 * world.issuer.page + 3
    world.make_foreign("alice", request, foreign)
    lose_the_create(world, "alice")
    world.start_worker()
    assert_equal(ended(world, request), ("COMPLETED", None), "the end")
    assert_equal(cards(world, request), ["active"], "cards of ours")
    assert_equal(len(world.sandbox.cards(user="alice")), foreign + 1, "cards of the holder")
