"""Each route has its own breaker, pause and slots, so a receiver that is dead or slow stops no other work.

Story: the payment service was down for an hour, and nobody got a card: all slots of the workers had charges that waited
for their time-out.
"""
from controls import control, explained, targets
from harness import assert_equal, assert_true, test, wait_until
from receiver import insert, is_silent, receiver, route, says, wait_ends

DONE = ("COMPLETED", None)
BREAKING = {"breaker__failures": "3", "breaker__probe_interval": "10ms", "retry__max_attempts": "3"}


def state(worker, target):
    return worker.metric('issuing_breaker_state{target="%s"}' % target)


@test(**BREAKING)
def a_dead_route_stops_neither_cards_nor_another_route(world):
    with receiver(world) as dead, receiver(world, "/notes") as notes:
        route(world, dead)
        route(world, notes, "ORDER_NOTE")
        dead.down()
        world.up()
        stuck = insert(world, ["user-%d" % i for i in range(500)])
        worker = world.workers()[0]
        wait_until(lambda: state(worker, "PAYMENT_CHARGE") == 2, "the breaker is open")
        cards = [world.accept("user-%d" % i) for i in range(20)]
        written = insert(world, ["user-%d" % i for i in range(50)], "ORDER_NOTE")
        assert_equal(set(wait_ends(world, cards + written).values()), {DONE}, "ends of the others")
        assert_equal([state(worker, name) for name in ("issuer", "core", "ORDER_NOTE")], [0, 0, 0], "other breakers")
        assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status IN ('FAILED', 'REJECTED')"), "0",
                     "ends during the outage")
        dead.up()
        assert_equal(set(wait_ends(world, stuck, 60).values()), {DONE}, "ends, when it is back")
        assert_equal(dead.delivered(), set(stuck), "what was delivered")


@test(**{**BREAKING, "worker__lease": "20m", "worker__max_in_flight": "12"})
def a_route_that_does_not_answer_leaves_slots_to_the_others(world):
    """Every place that it may have waits for its answer, for longer than any test waits for the others."""
    with receiver(world) as silent, receiver(world, "/notes") as notes:
        route(world, silent, timeout="9m")
        route(world, notes, "ORDER_NOTE")
        silent.always(is_silent())
        stuck = insert(world, ["user-%d" % i for i in range(100)])
        world.up()
        wait_until(lambda: len(silent.deliveries()) >= 4, "it has what it may have")
        cards = [world.accept("user-%d" % i) for i in range(20)]
        written = insert(world, ["user-%d" % i for i in range(50)], "ORDER_NOTE")
        assert_equal(set(wait_ends(world, cards + written).values()), {DONE}, "ends of the others")
        assert_true(silent.connections, "it is still silent")
        silent.clear()
        silent.down()  # what waits is reset
        silent.up()
        assert_equal(set(wait_ends(world, stuck, 60).values()), {DONE}, "ends")


@test(**BREAKING)
def a_dead_issuer_does_not_stop_routes(world):
    with receiver(world) as service:
        route(world, service)
        world.up()
        world.sandbox.down()
        cards = [world.accept("user-%d" % i) for i in range(100)]
        wait_until(lambda: state(world.workers()[0], "issuer") == 2, "the issuer's breaker is open")
        events = insert(world, ["user-%d" % i for i in range(100)])
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends of the route")
        world.sandbox.down(down=False)
        world.wait_final(cards, 60)


@test(**BREAKING)
def one_event_that_is_refused_for_its_own_sake_does_not_open_the_breaker(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        bad = insert(world, "bad")
        service.plan(bad[0], then=says(404))
        for number in range(10):
            assert_equal(set(wait_ends(world, insert(world, ["user-%d-%d" % (number, i) for i in range(5)])).values()),
                         {DONE}, "others")
        assert_equal(world.workers()[0].metric(
            'issuing_breaker_transitions_total{target="PAYMENT_CHARGE",state="open"}'), 0, "times it opened")


@test
def a_paused_route_is_not_called_and_uses_up_no_attempt(world):
    with receiver(world) as service, receiver(world, "/notes") as notes:
        route(world, service)
        route(world, notes, "ORDER_NOTE")
        world.up()
        wait_ends(world, insert(world, "first"))
        control(world, "pause", "PAYMENT_CHARGE")
        events = insert(world, ["user-%d" % i for i in range(30)])
        written = insert(world, ["user-%d" % i for i in range(30)], "ORDER_NOTE")
        cards = [world.accept("user-%d" % i) for i in range(10)]
        assert_equal(set(wait_ends(world, written + cards).values()), {DONE}, "others go on")
        assert_equal(len(service.deliveries()), 1, "deliveries of what is paused")
        assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE id IN ('%s') AND retry_count = 0 AND status ="
                               " 'PENDING'" % "', '".join(events)), "30", "events that wait")
        seen = targets(world)["PAYMENT_CHARGE"]
        assert_equal((seen["state"], seen["backlog"]), ("paused", 30), "targets")
        story = explained(world, events[0])
        assert_true("PAYMENT_CHARGE is paused by " in story["next"]["why"], "explain: %r" % story["next"])
        control(world, "resume", "PAYMENT_CHARGE")
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends")
        assert_equal(len(service.delivered()), 31, "what was delivered")


@test(breaker__failures="1", breaker__probe_interval="30s", retry__max_attempts="3")
def a_probe_by_an_operator_closes_the_breaker_of_a_route_before_its_time(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        service.down()
        events = insert(world, "first")
        wait_until(lambda: targets(world).get("PAYMENT_CHARGE", {}).get("state") == "open", "the breaker is open")
        events += insert(world, ["user-%d" % i for i in range(3)])
        seen = targets(world)["PAYMENT_CHARGE"]
        assert_equal((seen["cause"], seen["backlog"]), ("route_unreachable", 4), "targets")
        service.up()
        control(world, "probe", "PAYMENT_CHARGE")
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends")
        assert_equal(world.sql("SELECT bool_and(completed_at < '%s') FROM outbox_events" % seen["next_at"]), "t",
                     "all are completed before the next probe would have been due")


@test
def a_429_rests_the_route_and_nobody_else(world):
    with receiver(world) as service, receiver(world, "/notes") as notes:
        route(world, service)
        route(world, notes, "ORDER_NOTE")
        service.always(says(429, headers=[("Retry-After", "20")]))
        world.up()
        limited = insert(world, ["user-%d" % i for i in range(200)])
        wait_until(lambda: len(service.deliveries()) >= 2, "it rests")
        others = insert(world, ["user-%d" % i for i in range(100)], "ORDER_NOTE")
        assert_equal(set(wait_ends(world, [world.accept("alice"), *others]).values()), {DONE}, "others")
        assert_true(len(service.deliveries()) < 150, "calls while it rests: %d" % len(service.deliveries()))
        assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status IN ('FAILED', 'REJECTED') AND id IN"
                               " ('%s')" % "', '".join(limited)), "0", "ends")
