"""An ordered route: the events of one user and type one after the other, in the order of their ids.

Story: "order placed" and "order cancelled" of one customer must not change places because the first one met a 503. What
fails holds back what stands behind it, visibly, until an operator has decided; other customers do not wait for it.
"""
import itertools
import signal
import threading
import time

from harness import assert_equal, assert_true, slow, test, wait_until
from operators import lines
from receiver import (answers_after, closes, event_ids, insert, is_silent, receiver, resets, route, says, wait_ends)

DONE = ("COMPLETED", None)
ORDERED = {"ordered": "true"}
FAULTS = (says(503), resets(), resets(True), says(429), says(408), says(500, executes=True), says(409), closes(True),
          says(401))


def in_order(service, users):
    """By the receiver's record: no delivery of a user's event after one of a later event. users: {event: user}."""
    latest, wrong = {}, []
    for call in service.deliveries():
        user = users[call.event]
        if call.event < latest.get(user, ""):
            wrong.append("%s: %s was sent after %s" % (user, call.event, latest[user]))
        latest[user] = max(call.event, latest.get(user, ""))
    assert_equal(wrong, [], "deliveries out of order")


def prepare(world, service, user_count, each, with_faults=True):
    """Events of so many users, interleaved, inserted in another order than that of their ids. Returns {event: user}."""
    ids = event_ids(world, user_count * each)
    users = {event: "user-%d" % (number % user_count) for number, event in enumerate(ids)}
    faults = itertools.cycle(FAULTS)
    for number, event in enumerate(ids):
        if with_faults and number % 2:
            service.plan(event, next(faults), *([next(faults)] if number % 3 else []))
    backwards = list(reversed(ids))
    insert(world, [users[event] for event in backwards], ids=backwards)
    return users


def asking(world, service, user, events=1):
    """So many events of that user, of which the first is a question: FAILED. Returns their ids."""
    ids = event_ids(world, events)
    service.plan(ids[0], says(418))
    insert(world, [user] * events, ids=ids)
    world.wait_status(ids[0], "FAILED")
    return ids


def held(world, ids):
    """How many of them are held behind another."""
    return int(world.sql("SELECT count(*) FROM outbox_events WHERE held_behind IS NOT NULL AND status = 'PENDING' AND"
                         " id IN ('%s')" % "', '".join(ids)))


@test(retry__max_attempts="20")
def events_of_a_user_arrive_in_the_order_of_their_ids_whatever_is_answered(world):
    with receiver(world) as service:
        route(world, service, **ORDERED)
        users = prepare(world, service, 5, 8)
        world.start_worker()
        world.start_worker()
        assert_equal(set(wait_ends(world, list(users), 60).values()), {DONE}, "ends")
        in_order(service, users)
        assert_equal(len(service.executed), len(users), "executed")


@test
def a_question_holds_back_what_is_behind_it_and_nobody_else(world):
    with receiver(world) as service:
        route(world, service, **ORDERED)
        world.start_worker()
        ids = event_ids(world, 4)
        service.plan(ids[1], says(418))
        insert(world, ["alice"] * 4, ids=ids)
        world.wait_status(ids[1], "FAILED")
        bob = insert(world, ["bob"] * 3)
        assert_equal(set(wait_ends(world, bob).values()), {DONE}, "another user's")
        wait_until(lambda: held(world, ids[2:]) == 2, "both are held")
        assert_equal([len(service.deliveries(event)) for event in ids], [1, 1, 0, 0], "deliveries")
        assert_equal([world.event(event)["retry_count"] for event in ids[2:]], [0, 0], "attempts of those held back")
        for event in ids[2:]:
            story = lines(world.ctl("explain", event, "--json"))[0]
            assert_true(ids[1] in str(story["next"]) or ids[2] in str(story["next"]), "explain: %r" % story["next"])
        done = world.ctl("resolve", ids[1], "--confirm-no-card", "--reason", "refunded by hand")
        assert_equal(done.returncode, 0, "resolve: " + done.stderr)
        assert_equal(set(wait_ends(world, ids[2:]).values()), {DONE}, "what was behind it")
        in_order(service, dict.fromkeys(ids, "alice") | dict.fromkeys(bob, "bob"))


@test(worker__lease="60s")
def a_lock_that_another_role_holds_delays_the_ends_of_one_user_only(world):
    """Keys of locks are seen in pg_locks where that is open; any session may take them."""
    with receiver(world) as service:
        route(world, service, **ORDERED)
        world.start_worker()
        first, go = event_ids(world, 1)[0], threading.Event()
        service.plan(first, answers_after(go, 200, "{}"))
        insert(world, ["alice"], ids=[first])
        service.wait_delivery(first)
        with world.holding("SELECT pg_advisory_xact_lock(issuing.order_lock('PAYMENT_CHARGE', 'alice', salt))"
                           " FROM issuing.lock_salt"):
            go.set()
            for _ in range(3):
                assert_equal(set(wait_ends(world, insert(world, ["bob", "carol", "dave"])).values()), {DONE}, "others")
                assert_equal(world.blocked(), 0, "sessions that wait for a lock")
            assert_equal(world.status(first), "PROCESSING", "alice's")
        assert_equal(wait_ends(world, [first])[first], DONE, "alice's afterwards")
        assert_equal(len(service.deliveries(first)), 1, "deliveries")


@test
def a_replay_goes_first_and_then_those_behind_it(world):
    with receiver(world) as service:
        route(world, service, **ORDERED)
        world.start_worker()
        ids = event_ids(world, 4)
        service.plan(ids[0], says(418), says(503), resets(True))
        insert(world, ["alice"] * 4, ids=ids)
        world.wait_status(ids[0], "FAILED")
        wait_until(lambda: held(world, ids[1:]) == 3, "the others are held")
        done = world.ctl("replay", ids[0], "--reason", "they are ready")
        assert_equal(done.returncode, 0, "replay: " + done.stderr)
        assert_equal(set(wait_ends(world, ids).values()), {DONE}, "ends")
        assert_equal([call.event for call in service.deliveries()], [ids[0]] * 4 + ids[1:], "deliveries")


@test
def what_was_held_back_moves_at_once_when_the_order_is_given_up(world):
    """Story: a route became unordered behind a question, and what it had held waited on for up to an hour, "ordered by
    user"."""
    with receiver(world) as service:
        route(world, service, **ORDERED)
        worker = world.start_worker()
        ids = asking(world, service, "alice", 4)
        wait_until(lambda: held(world, ids[1:]) == 3, "the others are held")
        assert_equal(worker.stop(), 0, "exit status")
        route(world, service, ordered="false")
        story = lines(world.ctl("explain", ids[1], "--json"))[0]
        assert_equal(story["held_behind"], ids[0], "nobody has given up the order yet")
        world.start_worker()
        assert_equal(set(wait_ends(world, ids[1:]).values()), {DONE}, "what was held back")
        assert_equal((world.status(ids[0]), len(service.deliveries(ids[0]))), ("FAILED", 1), "the question")
        for event in (ids[0], ids[1]):
            story, text = lines(world.ctl("explain", event, "--json"))[0], world.ctl("explain", event).stdout
            assert_true(story["held_behind"] is None and "held behind" not in text and "wait for that" not in text, text)


@test
def a_refusal_lets_those_behind_it_go(world):
    with receiver(world) as service:
        route(world, service, **ORDERED)
        ids = event_ids(world, 3)
        service.plan(ids[0], says(503), says(429))
        service.plan(ids[1], says(422))
        insert(world, ["alice"] * 3, ids=ids)
        world.start_worker()
        assert_equal(list(wait_ends(world, ids).values()), [DONE, ("REJECTED", "route_refused"), DONE], "ends")
        in_order(service, dict.fromkeys(ids, "alice"))


@test
def an_event_that_is_cancelled_while_it_waits_lets_the_next_one_go(world):
    with receiver(world) as service:
        route(world, service, **ORDERED)
        world.start_worker()
        ids = asking(world, service, "alice", 3)
        wait_until(lambda: held(world, ids[1:]) == 2, "both are held")
        done = world.ctl("cancel", ids[1], "--reason", "not wanted any more")
        assert_equal(done.returncode, 0, "cancel: " + done.stderr)
        assert_equal(world.ctl("resolve", ids[0], "--confirm-no-card", "--reason", "done by hand").returncode, 0,
                     "resolve")
        assert_equal(wait_ends(world, ids[2:])[ids[2]], DONE, "the last one")
        assert_equal(service.deliveries(ids[1]), [], "deliveries of what was cancelled")


@test
def users_whose_names_differ_by_a_quote_or_a_blank_are_two_users(world):
    names = ["o'brien", "o''brien", "a b", "a  b", "A b", "%", "\\"]
    with receiver(world) as service:
        route(world, service, **ORDERED)
        world.start_worker()
        asking(world, service, names[0])
        assert_equal(set(wait_ends(world, insert(world, names[1:])).values()), {DONE}, "others")


@test
def two_types_of_a_user_do_not_wait_for_each_other(world):
    with receiver(world) as service:
        route(world, service, **ORDERED)
        route(world, service, "ORDER_NOTE", **ORDERED)
        world.start_worker()
        asking(world, service, "alice")
        assert_equal(set(wait_ends(world, insert(world, "alice", "ORDER_NOTE")).values()), {DONE}, "the other type")


@slow
@test(worker__lease="2s", issuer__timeout="500ms", core__timeout="500ms", retry__max_attempts="20")
def the_order_outlives_workers_that_die_or_stand_still(world):
    """Each worker is killed or stopped while deliveries are unanswered, for longer than its lease."""
    with receiver(world) as service:
        route(world, service, **ORDERED)
        users = prepare(world, service, 6, 10)
        for event in list(users)[::7]:
            service.plan(event, is_silent(True), resets())
        first, second = world.start_worker(), world.start_worker()
        for turn in range(4):
            time.sleep(0.4)  # some moment of the load
            first.kill()
            second.signal(signal.SIGSTOP)
            first.start().wait_ready()
            time.sleep(2.5 if turn % 2 else 0.3)  # longer than the lease, or shorter
            second.signal(signal.SIGCONT)
        assert_equal(set(wait_ends(world, list(users), 90).values()), {DONE}, "ends")
        in_order_but_for_repeats(service, users)
        assert_equal(len(service.executed), len(users), "executed")


def in_order_but_for_repeats(service, users):
    """A worker that stood still may repeat a send of before under its key: then only first executions must be in
    order."""
    latest, wrong = {}, []
    for event in service.executed:  # in the order of their execution
        user = users[event]
        if event < latest.get(user, ""):
            wrong.append("%s: %s after %s" % (user, event, latest[user]))
        latest[user] = event
    assert_equal(wrong, [], "executions out of order")


def versions(world):
    """Where each held row is: an update would have moved it."""
    return world.sql("SELECT md5(string_agg(ctid::text, ',' ORDER BY id)) FROM outbox_events WHERE user_id = 'hog' AND"
                     " status = 'PENDING'")


def updates(world):
    return int(world.sql("SELECT pg_stat_force_next_flush(); SELECT pg_stat_clear_snapshot(); SELECT sum(n_tup_upd)"
                         " FROM pg_stat_user_tables WHERE relname LIKE 'outbox_events%'").split()[-1])


@test
def a_thousand_events_behind_a_question_cost_one_look_each(world):
    """Not one a claim: else one user's question would slow down all others."""
    with receiver(world) as service:
        route(world, service, **ORDERED)
        world.start_worker()
        first = asking(world, service, "hog")[0]
        behind = insert(world, ["hog"] * 1000)
        wait_until(lambda: held(world, behind) == 1000, "all are held")
        before = versions(world)
        for number in range(5):  # many claims more
            assert_equal(set(wait_ends(world, insert(world, ["user-%d-%d" % (number, i) for i in range(20)])).values()),
                         {DONE}, "other users")
        assert_equal(versions(world), before, "rows of those behind it")
        assert_equal(world.sql("SELECT count(*) FROM outbox_attempts a JOIN outbox_events e ON e.id = a.event_id WHERE"
                               " e.user_id = 'hog'"), "1", "attempts on record")
        assert_equal(world.sql("SELECT sum(retry_count) FROM outbox_events WHERE user_id = 'hog'"), "1", "attempts")
        assert_equal(len([call for call in service.deliveries() if call.event in behind]), 0, "deliveries")


@slow
@test
def what_was_held_back_goes_on_in_order_at_a_cost_that_grows_with_its_number(world):
    """Each end wakes the next one, not all of them again."""
    with receiver(world) as service:
        route(world, service, **ORDERED)
        world.start_worker()
        first = asking(world, service, "hog")[0]
        behind = insert(world, ["hog"] * 300)
        wait_until(lambda: held(world, behind) == 300, "all are held")
        before = updates(world)
        world.ctl("resolve", first, "--confirm-no-card", "--reason", "done by hand")
        assert_equal(set(wait_ends(world, behind, 120).values()), {DONE}, "ends")
        in_order(service, dict.fromkeys([first, *behind], "hog"))
        assert_equal(len(service.delivered()), 301, "what was delivered")
        spent = updates(world) - before
        assert_true(spent <= 300 * 8, "updates of rows: %d for 300 events" % spent)
