"""One bad group must not stop everybody. The requests of the user "odd" are refused 401, 404 or the like for their own
sake, first, mixed in or without end; those of others must hardly notice. And where everybody is refused, nothing ends,
little is sent, and no card is made that cannot be linked.

Story: ten requests that the issuer answered 404 came first, two hundred good ones a second later. The breaker opened
because of the ten, and each probe took another of the ten while its interval doubled: none of the others was issued for
half a minute."""
import contextlib
import threading
import time

from controls import control, explained, targets
from harness import assert_equal, assert_true, slow, test, wait_until
from receiver import insert, receiver, route, says

SHIPPED = {"breaker__failures": "5", "breaker__probe_interval": "2s", "retry__base": "1s", "retry__cap": "5m",
           "issuer__timeout": "3s", "issuer__settle_time": "6s", "core__timeout": "3s", "worker__lease": "12s",
           "worker__poll_interval": "1s", "log__level": "info"}
DONE = "COMPLETED"


def add(world, user, count, event_type="CARD_ISSUE"):
    """So many events at once, of that user or, with a %d in it, of as many users."""
    world.sql("INSERT INTO outbox_events (event_type, user_id, payload) SELECT '%s', format('%s', i), '{\"kind\":"
              " \"new\"}' FROM generate_series(1, %d) i; NOTIFY issuing_wake, '%s'"
              % (event_type, user.replace("%d", "%s"), count, "" if event_type == "CARD_ISSUE" else event_type))


def left(world, users):
    return int(world.sql("SELECT count(*) FROM outbox_events WHERE user_id LIKE '%s' AND status <> 'COMPLETED'" % users))


def seconds(world, users, limit=60):
    """How long they take from now on."""
    begun = time.monotonic()
    wait_until(lambda: left(world, users) == 0, "all of %s are completed" % users, limit, 0.02)
    return time.monotonic() - begun


def state(world, target):
    return world.workers()[0].metric('issuing_breaker_state{target="%s"}' % target)


def opened(world, target):
    return world.workers()[0].metric('issuing_breaker_transitions_total{target="%s",state="open"}' % target)


def is_open(world, target):
    wait_until(lambda: state(world, target) == 2, "the breaker of %s is open" % target)


@contextlib.contextmanager
def arriving(world, user, every=0.05, event_type="CARD_ISSUE"):
    """Meanwhile more of them come."""
    stop = threading.Event()

    def run():
        while not stop.wait(every):
            add(world, user, 1, event_type)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def compare(world, good, took, event_type="CARD_ISSUE", factor=3):
    """With what so many take alone."""
    add(world, "alone-%d", good, event_type)
    alone = seconds(world, "alone-%")
    print("      %d good ones: alone %.2f s, beside the bad %.2f s" % (good, alone, took))
    assert_true(took <= factor * alone + 0.5, "alone %.2f s, beside the bad ones %.2f s" % (alone, took))


def end_odd(world):
    """Those that are still open are nobody's business here."""
    world.sandbox.clear()
    world.settle(60)


def first_bad(world, bad, good, call="create", target="issuer", status=404):
    world.up()
    world.sandbox.fault(call, "status", status=status, user="odd")
    add(world, "odd", bad)
    is_open(world, target)
    time.sleep(1)
    add(world, "user-%d", good)
    took = seconds(world, "user-%")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE user_id = 'odd' AND status = 'COMPLETED'"), "0",
                 "the odd ones")
    compare(world, good, took)
    end_odd(world)


@test(**SHIPPED)
def ten_bad_ones_first_cost_two_hundred_good_ones_little(world):
    first_bad(world, 10, 200)
