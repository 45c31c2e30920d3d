"""With each issuer a card is made, read and replaced, a request is refused, and our cards are distinguished from
others'.

Story: the worker was tested with the issuer `generic` only. Each real issuer has other requests, credentials, steps and
answers, and the promise must hold with all of them.
"""
import json

import client
import harness
from harness import assert_equal, assert_true, EVERY, slow_but_at, test, wait_until

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


def a_card_is_made_read_and_replaced(world):
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


def cards_that_are_not_ours_do_not_hide_the_one_that_is(world):
    """A holder's list, or a search by a part of a text, shows cards of other programs, on several pages."""
    request = world.accept("hidden")
    foreign = 2 * world.issuer.page + 3
    world.make_foreign("hidden", request, foreign)
    lose_the_create(world, "hidden")
    world.start_worker()
    assert_equal(ended(world, request), ("COMPLETED", None), "the end")
    assert_equal(cards(world, request), ["active"], "cards of ours")
    assert_equal(len(world.sandbox.cards(user="hidden")), foreign + 1, "cards of the holder")
    world.workers()[-1].stop()


def status_of(world, user, card):
    return world.get(user, "/v1/cards/" + card).json()["status"]


def a_reissue_has_a_number_of_its_own_and_closes_the_old_card_last(world):
    """A leaked number came back with its replacement, and the create of a replacement closed the old card, so that a
    refused link left the user without any."""
    for reason in ("lost", "stolen", "damaged", "expired", None):
        user = "user-%s" % reason
        old = world.issue(user)["card"]["id"]
        body = {"kind": "reissue", "replaces": old, **({"reason": reason} if reason else {})}
        world.sandbox.fault("link", "link_refused", user=user, count=1)
        refused = world.accept(user, "refused", body)
        assert_equal(ended(world, refused), ("REJECTED", "card_limit_reached"), "a refused link, %s" % reason)
        assert_equal(cards(world, refused), ["cancelled"], "the new card")
        assert_equal((world.sandbox.cards(user=user)[0]["status"], status_of(world, user, old)), ("active", "active"),
                     "the old card after a refused link, %s" % reason)
        new = world.issue(user, "again", body)["card"]["id"]
        assert_equal([card["status"] for card in world.sandbox.cards(user=user)], ["cancelled", "cancelled", "active"],
                     "cards of %s" % user)
        numbers = [world.get(user, "/v1/cards/%s/number" % card).json().get("number") for card in (old, new)]
        assert_true(numbers[1] and numbers[0] != numbers[1], "a number of its own, %s" % reason)


def a_card_that_the_issuer_has_closed_is_not_shown_as_active(world):
    """The reissue ends without a card, and the old one was closed by somebody else meanwhile."""
    for user in ("closed", "open"):
        old = world.issue(user)["card"]["id"]
        issuers_id = world.sandbox.cards(user=user)[0]["id"]
        if user == "closed":
            world.allowed.add("closed_card")
            world.issuer.close(world, issuers_id)
            # Not "drop": on a connection that was used before, the HTTP library would send it again by itself.
            world.sandbox.fault(world.issuer.retrieve, "status", status=503, user=user, count=1)
            world.sandbox.fault("unlink", "drop", user=user, count=1)
        world.sandbox.fault("create", "status", user=user, count=1, status=422, code=world.issuer.code)
        refused = world.accept(user, "2", {"kind": "reissue", "replaces": old})
        assert_equal(ended(world, refused), ("REJECTED", world.issuer.reason), "the reissue")
        expected = ("cancelled", "cancelled") if user == "closed" else ("active", "active")
        assert_equal((world.sandbox.cards(user=user)[0]["status"], status_of(world, user, old)), expected, user)
        unlinked = world.sandbox.ledger(user=user)["unlinks"]
        assert_equal([row["card_id"] for row in unlinked], [old] if user == "closed" else [], "unlinks of " + user)


def a_card_that_was_frozen_is_not_activated(world):
    """Its create was lost, and somebody froze the card before the look-up found it inactive."""
    event = world.accept("frozen")
    card = world.issuer.make(world, "frozen", event)
    assert_equal(world.issuer.freeze(world, card).status, 200, "the freeze")
    world.sandbox.fault("create", "status", user="frozen", count=1, status=503)
    world.sandbox.fault("create", "status", user="frozen", count=1, status=422, code=world.issuer.code)
    world.start_worker()
    assert_equal(ended(world, event), ("COMPLETED", None), "the end")
    assert_equal(cards(world, event), ["inactive"], "the card at the issuer")
    assert_equal(len(world.sandbox.calls("activate", reference=event)), 1, "changes to a status: the freeze")
    assert_true("card_inactive" in world.event(event)["last_error"], "the note")


@slow_but_at("generic", "stripe", "lithic", "marqeta", "increase")
@test(issuers=EVERY)
def a_card_is_made_replaced_closed_and_told_apart(world):
    world.up()
    a_card_is_made_read_and_replaced(world)
    if world.issuer.closes_replaced:
        a_reissue_has_a_number_of_its_own_and_closes_the_old_card_last(world)
        a_card_that_the_issuer_has_closed_is_not_shown_as_active(world)
    # These begin before a worker looks.
    world.workers()[0].stop()
    if world.issuer.page:
        cards_that_are_not_ours_do_not_hide_the_one_that_is(world)
    if world.issuer.inactive:
        a_card_that_was_frozen_is_not_activated(world)


@test(issuers=("stripe",))
def a_holder_whose_cards_have_all_the_metadata_they_may_is_looked_up(world):
    """A page of such cards was larger than what the worker reads, so the event never ended."""
    world.up(workers=0)
    event = world.accept("rich")
    holder = world.issuer.holder(world, "rich")["cardholder"]
    words = {"metadata[%040d]" % number: 'x"' * 250 for number in range(50)}
    world.allowed.add("orphan")
    for number in range(10):
        made = world.issuer.call(world, "POST", "/v1/issuing/cards", world.issuer.form(
            cardholder=holder, currency="eur", type="virtual", status="active", **words),
            {"Idempotency-Key": "foreign %d" % number})
        assert_equal(made.status, 200, "a card of another program")
    world.sandbox.fault("create", "execute_then_status", user="rich", count=1, status=503)
    world.sandbox.fault("create", "status", user="rich", status=422, code=world.issuer.code)  # only the look-up tells
    world.start_worker()
    assert_equal(ended(world, event), ("COMPLETED", None), "the end")
    assert_equal(cards(world, event), ["active"], "cards of ours")


@test(issuers=("stripe",), issuer__max_concurrency="1")
def one_wrong_value_of_the_configuration_pauses_the_issuer(world):
    """Story: with a wrong currency every user was REJECTED, one after the other, and nothing rang."""
    world.up(workers=0)
    world.sandbox.fault("create", "status", status=400, code="currency_unsupported")
    events = [world.accept("user-%d" % number) for number in range(32)]
    world.start_worker()
    seen = wait_until(lambda: [row for row in map(json.loads, world.ctl("targets", "--json").stdout.splitlines())
                               if row["target"] == "issuer" and row["state"] == "paused"], "the pause")[0]
    assert_true("currency_unsupported" in seen["paused_why"], "why: %r" % seen)
    assert_equal(len(world.sandbox.calls("create")), 25, "creates until then")
    world.sandbox.clear()
    assert_equal(world.ctl("resume", "issuer", "--reason", "the currency is right now").returncode, 0, "resume")
    world.wait_final(events)
    assert_equal(sorted(world.status(event) for event in events), ["COMPLETED"] * 7 + ["REJECTED"] * 25, "the ends")


@test(issuers=("stripe",), issuer__timeout="400ms", core__timeout="400ms", worker__lease="2s", issuer__settle_time="1s")
def further_members_are_sent_and_a_repeat_says_what_the_first_create_has_said(world):
    """Story: a card was live without its limits. And a limit that was changed between a create and its repeat would be
    another request under the same key."""
    limit = "issuer.create.spending_controls/spending_limits/0/"
    members = {limit + "amount": "10000", limit + "interval": "daily", "issuer.create.metadata/team": "{?team}"}
    world.up(workers=0)
    world.sandbox.fault("create", "create_then_hang")
    event = world.accept("alice")
    worker = world.start_worker(**members)
    wait_until(lambda: cards(world, event), "the card is made")
    worker.kill()
    world.sandbox.clear()
    kept = json.loads(world.sql("SELECT issuer_parameters FROM outbox_events"))
    assert_equal(kept.get("spending_controls/spending_limits/0/amount"), "10000", "what is kept: %r" % kept)
    world.start_worker(**{**members, limit + "amount": "20000"})
    assert_equal(ended(world, event), ("COMPLETED", None), "the request")
    assert_equal((cards(world, event), world.sandbox.ledger()["counts"]["issuer.mismatch"]), (["active"], 0), "cards, mismatches")
    for path, words in (("metadata/issuing_reference", "decides about"), ("replacement_for", "decides about"),
                        ("a//b", "empty"), ("a b", "a path is")):
        done = harness.run([harness.BUILD / "issuing-worker", *world.flags("issuing_worker", {}), "--check-config",
                            "--issuer.create.%s=x" % path])
        assert_equal((done.returncode, words in done.stderr), (78 if " " not in path else 2, " " not in path),
                     "%s: %s" % (path, done.stderr))
