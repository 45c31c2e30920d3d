"""What operators do with a FAILED event of a route: look it up, replay it, or end it; and what no verb may do.

Story: at three in the morning a charge is FAILED. Only the payment service knows whether the customer was charged, so
the command must ask there before anybody decides without knowing."""
from harness import assert_equal, assert_true, test
from operators import lines
from receiver import insert, event_ids, others, receiver, resets, route, says, wait_ends

DONE = ("COMPLETED", None)


def verb(world, *words, code=0):
    return lines(world.ctl(*words, "--json"), code)


@test(retry__max_attempts="3")
def a_question_is_answered_by_the_receiver_when_it_has_a_lookup(world):
    with receiver(world) as service:
        route(world, service, lookup=True, key_lifetime="8s")
        world.start_worker()
        made, not_made = event_ids(world, 2)
        service.plan(made, says(418, executes=True))  # one that lies
        service.plan(not_made, says(418))
        insert(world, ["alice", "bob"], ids=[made, not_made])
        assert_equal(set(wait_ends(world, [made, not_made]).values()), {("FAILED", "route_http_418")}, "questions")
        assert_equal([verb(world, "reconcile", event)[0]["result"] for event in (made, not_made)],
                     ["executed", "not_executed"], "reconcile")
        assert_equal([world.status(event) for event in (made, not_made)], ["COMPLETED", "FAILED"], "statuses")
        verb(world, "replay", not_made, "--reason", "it is not there")
        assert_equal(wait_ends(world, [not_made])[not_made], DONE, "a replay")
        assert_equal(world.sql("SELECT action FROM operator_actions WHERE event_id = '%s' AND action = 'replay'" %
                               not_made), "replay", "on record")


@test(retry__max_attempts="3")
def where_nobody_can_look_reconcile_and_reissue_are_refused_in_plain_words(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        event = event_ids(world, 1)[0]
        service.plan(event, resets(True), says(422))
        insert(world, "alice", ids=[event])
        assert_equal(wait_ends(world, [event])[event], ("FAILED", "route_refused"), "a question")
        refused = world.ctl("reconcile", event)
        assert_true(refused.returncode == 1 and "lookup_url" in refused.stdout + refused.stderr, refused)
        refused = world.ctl("reissue", event, "--confirm", "--reason", "x")
        assert_true(refused.returncode == 1 and "card" in refused.stdout + refused.stderr, refused)
        # It may have been executed: to give it up needs a word that somebody has looked.
        assert_equal(world.ctl("resolve", event, "--reason", "x").returncode, 1, "resolve without a confirmation")
        assert_equal(world.status(event), "FAILED", "the status")
        story = verb(world, "explain", event)[0]
        assert_true("no card" not in str(story["next"]) and "issuer" not in str(story["next"]), "explain: %r" %
                    story["next"])
        verb(world, "replay", event, "--reason", "the same key once more")
        assert_equal(wait_ends(world, [event])[event], DONE, "a replay")
        assert_equal(len(service.executed), 1, "executions")


@test(retry__max_attempts="3")
def what_was_never_sent_can_be_cancelled_and_what_was_sent_cannot(world):
    with receiver(world) as service:
        route(world, service, key_lifetime="1h")
        waiting = insert(world, "alice")[0]
        verb(world, "cancel", waiting, "--reason", "a mistake")
        world.start_worker()
        event = event_ids(world, 1)[0]
        service.plan(event, then=says(503))
        insert(world, "bob", ids=[event])
        service.wait_delivery(event, 2)
        assert_equal(world.ctl("cancel", event, "--reason", "a mistake").returncode, 1, "cancel of what was sent")
        service.clear()
        assert_equal(wait_ends(world, [event, waiting]), {event: DONE, waiting: ("REJECTED", "cancelled")}, "ends")
        assert_equal(service.deliveries(waiting), [], "deliveries of what was cancelled")


@test(retry__max_attempts="2")
def a_bulk_replay_is_of_one_type_where_one_is_named(world):
    with receiver(world) as charges, receiver(world, "/notes") as notes:
        route(world, charges)
        route(world, notes, "ORDER_NOTE")
        world.start_worker()
        both = []
        for service, event_type in ((charges, "PAYMENT_CHARGE"), (notes, "ORDER_NOTE")):
            service.always(says(418))
            both.append(insert(world, ["user-%d" % i for i in range(20)], event_type))
        wait_ends(world, both[0] + both[1])
        charges.clear()
        notes.clear()
        world.ctl("replay", "--type", "PAYMENT_CHARGE", "--status", "FAILED", "--reason", "they are ready")
        with others(world):
            assert_equal(set(wait_ends(world, both[0]).values()), {DONE}, "charges")
        assert_equal(set(wait_ends(world, both[1]).values()), {("FAILED", "route_http_418")}, "notes")
        listed = lines(world.ctl("list", "--type", "ORDER_NOTE", "--status", "FAILED", "--json"))
        assert_equal(sorted(row["id"] for row in listed), sorted(both[1]), "list")
