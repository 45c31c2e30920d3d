"""A delivery whose worker dies, is stopped, drains or loses its database is still executed once.

Story: kill -9 between the charge and the answer. The next worker knows only what the row says, and sends the same key
again; the customer pays once.
"""
import signal
import threading
import time

from harness import assert_equal, assert_true, core, slow, test, wait_until
from receiver import (answers_after, event_ids, insert, is_held, is_silent, others, receiver, resets, route, says,
                      waits, wait_ends)

DONE = ("COMPLETED", None)
SHORT = {"worker__lease": "2s", "issuer__timeout": "500ms", "core__timeout": "500ms", "retry__max_attempts": "20"}


def killed_during(world, service, plan, looks=False, then=None):
    """The worker dies while that call is unanswered; another takes over. Returns the event."""
    event = event_ids(world, 1)[0]
    service.plan(event, *plan, then=then)
    worker = world.start_worker()
    insert(world, "alice", ids=[event])
    if looks:
        service.plan_lookup(event, is_silent())
        wait_until(lambda: service.lookups(event), "the look-up")
    else:
        service.wait_delivery(event, len(plan))
    wait_until(lambda: world.status(event) == "PROCESSING", "it is in the worker's hands")
    worker.kill()
    world.start_worker()
    assert_equal(wait_ends(world, [event])[event], DONE, "the end")
    return event


@test(**SHORT)
def killed_while_a_delivery_is_on_its_way(world):
    with receiver(world) as service:
        route(world, service)
        event = killed_during(world, service, [is_silent()])
        assert_equal([(row["outcome"], row["attempt"]) for row in world.attempts(event)],
                     [("lost", 1), ("completed", 1)], "attempts on record")
        assert_equal(len(service.deliveries(event)), 2, "deliveries")


@test(**SHORT)
def killed_when_the_receiver_has_executed_and_not_answered(world):
    with receiver(world) as service:
        route(world, service)
        event = killed_during(world, service, [is_silent(True)])
        assert_equal((len(service.deliveries(event)), len(service.executed)), (2, 1), "deliveries and executions")


@slow
@test(**SHORT)
def killed_while_it_looks_up(world):
    with receiver(world) as service:
        route(world, service, lookup=True, key_lifetime="8s")
        event = killed_during(world, service, [resets(True), says(422)], looks=True, then=says(422))
        assert_true(len(service.lookups(event)) >= 2, "look-ups")


@slow
@test(**{**SHORT, "worker__lease": "12s"})
def killed_between_the_answer_and_the_end(world):
    """The end waits for a lock on its row when the worker dies."""
    with receiver(world) as service:
        route(world, service, keep_result="true", timeout="6s")
        event = event_ids(world, 1)[0]
        row_is_locked = threading.Event()
        service.plan(event, answers_after(row_is_locked, 200, '{"charge":1}'), then=says(200, '{"charge":1}'))
        worker = world.start_worker()
        insert(world, "alice", ids=[event])
        service.wait_delivery(event)
        with world.holding("SELECT FROM outbox_events WHERE id = '%s' FOR UPDATE" % event):
            row_is_locked.set()
            wait_until(lambda: world.blocked("issuing.complete") >= 1, "the end waits")
            worker.kill()
            world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"
                      " wait_event_type = 'Lock'")
            wait_until(lambda: world.blocked() == 0, "its session is gone")
        world.start_worker()
        assert_equal(wait_ends(world, [event])[event], DONE, "the end")
        assert_equal(world.event(event)["result"], {"charge": 1}, "the kept answer")
        assert_equal((len(service.deliveries(event)), len(service.executed)), (2, 1), "deliveries and executions")


@core
@slow
@test(**SHORT)
def a_worker_that_slept_through_its_lease_writes_nothing(world):
    """Another worker delivers and ends it; then the first one hears a refusal, which is no longer news."""
    with receiver(world) as service:
        route(world, service, timeout="900ms")
        event = event_ids(world, 1)[0]
        service.plan(event, waits(0.7))
        stale = world.start_worker()
        insert(world, "alice", ids=[event])
        service.wait_delivery(event)
        stale.signal(signal.SIGSTOP)
        world.start_worker()
        assert_equal(wait_ends(world, [event])[event], DONE, "the end")
        before = world.event(event)
        stale.signal(signal.SIGCONT)
        wait_until(lambda: stale.metric_sum("issuing_lease_lost_total") >= 1, "it learns that it was replaced")
        assert_equal(world.event(event), before, "the row")
        assert_equal(len(service.executed), 1, "executions")


@slow
@test(**SHORT)
def a_delivery_of_a_worker_that_stood_still_finds_its_key_executed(world):
    """It arrives after the other worker's, under the same key: nothing is executed twice."""
    with receiver(world) as service:
        route(world, service)
        event = event_ids(world, 1)[0]
        service.plan(event, is_held())
        stopped = world.start_worker()
        insert(world, "alice", ids=[event])
        service.wait_delivery(event)
        stopped.signal(signal.SIGSTOP)
        world.start_worker()
        assert_equal(wait_ends(world, [event])[event], DONE, "the end")
        assert_equal(service.run_late(), 1, "the first delivery arrives")
        stopped.signal(signal.SIGCONT)
        assert_equal(list(service.executed), [event], "executions")


@test(worker__lease="30s")
def two_workers_deliver_each_event_once(world):
    with receiver(world) as service:
        route(world, service, timeout="15s")  # on a busy machine, too
        events = insert(world, ["user-%d" % i for i in range(200)])
        world.start_worker(wait_ready=False)
        world.start_worker()
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends")
        assert_equal(sorted(call.event for call in service.deliveries()), events, "deliveries")


@test(worker__lease="16s")
def a_drain_waits_for_what_was_sent_and_hands_back_the_rest(world):
    with receiver(world) as service:
        route(world, service, max_concurrency="1", timeout="8s")
        events = event_ids(world, 3)
        service.plan(events[0], waits(4))  # longer than a busy machine takes to come to the stop
        worker = world.start_worker()
        insert(world, ["a", "b", "c"], ids=events)
        call = service.wait_delivery(events[0])
        assert_equal(worker.stop(), 0, "exit status")
        assert_equal(len(call), 1, "deliveries")
        assert_equal(world.status(events[0]), "COMPLETED", "what was sent")
        for event in events[1:]:
            row = world.event(event)
            assert_equal((row["status"], row["retry_count"], row["first_sent_at"]), ("PENDING", 0, None),
                         "what was not sent")
        world.start_worker()
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends")
        assert_equal(service.delivered(), set(events), "what was delivered")


@slow
@test(retry__max_attempts="20")
def a_database_that_restarts_under_load_changes_nothing(world):
    """Once with a clean end, once as by a crash."""
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        world.start_worker()
        events = []
        for turn, how in enumerate(("fast", "immediate")):
            ids = event_ids(world, 100)
            for event in ids[::5]:
                service.plan(event, waits(0.3))
            events += insert(world, ["user-%d-%d" % (turn, i) for i in range(100)], ids=ids)
            wait_until(lambda turn=turn: len(service.deliveries()) > 100 * turn + 20, "some are delivered")
            world.suite.restart_database(how)
        assert_equal(set(wait_ends(world, events, 60).values()), {DONE}, "ends")
        assert_equal(len(service.executed), 200, "executions")


@core
@slow
@test(**SHORT)
def lost_answers_and_a_kill_every_second_under_load(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        world.start_worker()
        events = []
        for turn in range(8):
            ids = event_ids(world, 60)
            for number, event in enumerate(ids):
                if number % 3 == 0:
                    service.plan(event, resets(True))
                if number % 10 == 1:
                    service.plan(event, is_silent(True), says(503))
            events += insert(world, ["user-%d-%d" % (turn, i) for i in range(60)], ids=ids)
            time.sleep(0.5)  # some moment of the load
            worker = world.workers()[turn % 2]
            worker.kill()
            worker.start()
        assert_equal(set(wait_ends(world, events, 90).values()), {DONE}, "ends")
        assert_equal(sorted(service.executed), sorted(events), "executions: each once")


@slow
@test(**{**SHORT, "worker__lease": "1300ms", "issuer__timeout": "300ms", "core__timeout": "300ms"})
def an_event_that_kills_its_worker_does_not_take_its_neighbours_along(world):
    """The worker dies whenever the receiver sees the poisonous event. It ends as a question; the others arrive."""
    with receiver(world) as service:
        route(world, service, timeout="500ms")
        events = event_ids(world, 7)
        poison = events[0]
        service.plan(poison, then=is_silent(True))
        insert(world, ["poison", *("user-%d" % i for i in range(6))], ids=events)
        seen = 0
        while world.status(poison) != "FAILED":
            worker = world.start_worker()
            wait_until(lambda: world.status(poison) == "FAILED" or len(service.deliveries(poison)) > seen,
                       "the poison is met, or has ended", 60)
            worker.kill()
            seen = len(service.deliveries(poison))
        world.start_worker()
        ends = wait_ends(world, events, 60)
        assert_equal({ends[event] for event in events[1:]}, {DONE}, "neighbours")
        assert_equal(ends[poison][1], "worker_lost", "the poison")
        assert_true(world.event(poison)["first_sent_at"], "the row says that it is unknown")
        assert_true(len(service.deliveries(poison)) <= 5, "deliveries: %d" % len(service.deliveries(poison)))


@slow
@test(**SHORT)
def a_breaker_that_opens_while_workers_die_loses_nothing(world):
    with receiver(world) as service:
        route(world, service)
        world.settings["breaker.failures"] = "3"
        world.settings["breaker.probe_interval"] = "20ms"
        world.start_worker()
        worker = world.start_worker()
        service.down()
        events = insert(world, ["user-%d" % i for i in range(30)])
        for _ in range(3):
            time.sleep(0.4)  # some moment of the outage
            worker.kill()
            worker.start()
        service.up()
        with others(world):
            assert_equal(set(wait_ends(world, events, 60).values()), {DONE}, "ends")
