"""Marks at real issuers: a look-up over pages, with a holder that only core-api knows, and a card that is closed
already.

Story: a mark built its look-up from the event alone. A real issuer wants the holder, shows cards of others, and refuses
to close a card twice.
"""
from harness import assert_equal, core_at, slow, test, VENDORS
from reconciling import failed, results, SETTLE


@core_at("stripe")
@slow
@test(issuers=VENDORS, issuer__settle_time=SETTLE)
def what_the_issuer_has_made_is_completed_and_an_orphan_among_others_is_closed(world):
    world.up()
    # A failed request whose card is there.
    event = failed(world, "alice", reason="attempts_exhausted")
    world.issuer.make(world, "alice", event, key=event)
    assert_equal(results(world.ctl("reconcile", event, "--json"), 0), {event: "found"}, "result")
    world.wait_status(event, "COMPLETED")
    assert_equal([card["status"] for card in world.sandbox.cards(reference=event)], ["active"], "at the issuer")
    # A card of a rejected request, among cards that are not ours.
    orphan = failed(world, "orphan", status="REJECTED", reason="user_blocked")
    clean = failed(world, "clean", status="REJECTED", reason="user_blocked")
    world.issuer.make(world, "orphan", orphan)
    if world.issuer.page:
        world.make_foreign("orphan", orphan, world.issuer.page + 2)
    # core-api knows the holder, and says it also where the user may have no card.
    world.sandbox.fault("check", "ineligible", user="orphan")
    # The first close is executed, and its answer is lost: the second one is refused, and the card is read.
    world.sandbox.fault("cancel", "execute_then_status", status=503, count=1)
    done = world.ctl("reconcile", "--all", "--status", "REJECTED", "--json")
    assert_equal(results(done, 1), {orphan: "orphan_cancelled", clean: "ok"}, "results")
    assert_equal([card["status"] for card in world.sandbox.cards(reference=orphan)], ["cancelled"], "at the issuer")
    assert_equal({world.status(event) for event in (orphan, clean)}, {"REJECTED"}, "statuses")
