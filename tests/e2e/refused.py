"""Events that are refused for a reason of their own do not delay the others. The requests of the user "odd" are refused
(401, 404 and so on) before, among or during those of other users, which must take hardly longer. When the requests of
all users are refused, no event ends, few calls are sent, and no card is made that cannot be linked.

Story: ten requests that the issuer answered 404 came first, two hundred good ones a second later. The breaker opened
because of the ten, each probe took another of the ten, and the interval doubled: none of the others was issued for half
a minute."""
import contextlib
import threading
import time

from controls import control, targets
from harness import assert_equal, assert_true, core, slow, test, wait_until
from receiver import insert, receiver, route, says

SHIPPED = {"breaker__failures": "5", "breaker__probe_interval": "2s", "retry__base": "1s", "retry__cap": "5m",
           "issuer__timeout": "3s", "issuer__settle_time": "6s", "core__timeout": "3s", "worker__lease": "12s",
           "worker__poll_interval": "1s", "log__level": "info", "database__connections": "4"}


def add(world, user, count, event_type="CARD_ISSUE"):
    """So many events at once, of that user or, with a %d in it, of as many users."""
    world.sql("INSERT INTO outbox_events (event_type, user_id, payload) SELECT '%s', format('%s', i), '{\"kind\":"
              " \"new\"}' FROM generate_series(1, %d) i; NOTIFY issuing_wake, '%s'"
              % (event_type, user.replace("%d", "%s"), count, "" if event_type == "CARD_ISSUE" else event_type))


def left(world, users):
    return int(world.sql("SELECT count(*) FROM outbox_events WHERE status <> 'COMPLETED' AND user_id LIKE '%s'"
                         % users))


def seconds(world, users, limit=60):
    """How long they take from now on."""
    begun = time.monotonic()
    wait_until(lambda: left(world, users) == 0, "all of %s are completed" % users, limit, 0.02)
    return time.monotonic() - begun


def state(world, target):
    return world.workers()[0].metric('issuing_breaker_state{target="%s"}' % target)


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
    # An open breaker lets the first good one in at its next probe, or at the one after it, each within
    # breaker.probe_interval. What was mended took half a minute.
    assert_true(took <= factor * alone + 5, "alone %.2f s, beside the bad ones %.2f s" % (alone, took))


def end_odd(world):
    """Removes the faults, and waits until the odd events have ended too."""
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


@core
@slow
@test(**SHIPPED)
def a_hundred_bad_ones_first_cost_a_thousand_good_ones_little(world):
    first_bad(world, 100, 1000)


@slow
@test(**SHIPPED)
def users_that_core_api_refuses_cost_the_others_little(world):
    first_bad(world, 10, 200, "check", "core", 401)


@slow
@test(**SHIPPED)
def users_whose_links_are_refused_cost_the_others_little(world):
    first_bad(world, 10, 200, "link", "core", 403)


def mixed(world, bad, good):
    world.up()
    world.sandbox.fault("create", "status", status=404, user="odd")
    world.sql("INSERT INTO outbox_events (user_id, payload) SELECT CASE WHEN i %% %d = 0 THEN 'odd' ELSE 'user-' || i"
              " END, '{\"kind\": \"new\"}' FROM generate_series(1, %d) i; NOTIFY issuing_wake, ''"
              % ((bad + good) // bad, bad + good))
    compare(world, good, seconds(world, "user-%"))
    end_odd(world)


@slow
@test(**SHIPPED)
def bad_ones_mixed_in_cost_good_ones_little(world):
    mixed(world, 20, 200)


@slow
@test(**SHIPPED)
def a_hundred_bad_ones_mixed_in_cost_a_thousand_good_ones_little(world):
    mixed(world, 100, 1000)


@slow
@test(**SHIPPED)
def bad_ones_that_keep_arriving_cost_good_ones_little(world):
    world.up()
    world.sandbox.fault("create", "status", status=404, user="odd")
    with arriving(world, "odd"):
        is_open(world, "issuer")
        time.sleep(4)
        add(world, "user-%d", 200)
        took = seconds(world, "user-%")
    compare(world, 200, took)
    end_odd(world)


@slow
@test(**SHIPPED)
def where_everybody_is_refused_little_is_sent_and_nothing_ends(world):
    world.up()
    world.sandbox.fault("create", "status", status=401)
    add(world, "user-%d", 500)
    is_open(world, "issuer")
    time.sleep(1)
    before = world.sandbox.summary()["counts"]
    time.sleep(8)
    after = world.sandbox.summary()["counts"]
    sent, asked = (after[name] - before[name] for name in ("issuer.create", "core.check"))
    print("      in 8 s %d creates, %d questions" % (sent, asked))
    assert_true(sent <= 8 * 2 + 5, "%d refused creates in 8 s" % sent)
    assert_true(asked <= sent + 1, "%d questions beside %d creates" % (asked, sent))
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status IN ('FAILED', 'REJECTED')"), "0", "ends")
    seen = targets(world)["issuer"]
    assert_equal((seen["state"], seen["cause"]), ("open", "issuer_http_401"), "targets")
    world.sandbox.clear()
    control(world, "probe", "issuer")
    world.settle(60)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status <> 'COMPLETED'"), "0", "not completed")


@slow
@test(**SHIPPED)
def no_card_is_made_while_the_links_of_all_are_refused(world):
    """Eligibility was answered well all the while, so the breaker never opened, and ever more cards were made."""
    world.up()
    world.sandbox.fault("link", "status", status=401)
    add(world, "user-%d", 500)
    is_open(world, "core")
    wait_until(lambda: world.sql("SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'") == "0", "all ended")
    before = world.sandbox.summary()["counts"]
    time.sleep(8)
    after = world.sandbox.summary()["counts"]
    made, asked, linked = (after[name] - before[name] for name in ("issuer.create", "core.check", "core.link"))
    print("      %d cards when it opened, then in 8 s %d more, %d questions, %d links"
          % (before["issuer.create"], made, asked, linked))
    assert_true(made <= 3 and asked <= 3, "%d cards were made, %d questions asked" % (made, asked))
    assert_true(linked <= 8, "%d links" % linked)
    seen = targets(world)["core"]
    assert_equal((seen["state"], seen["cause"]), ("open", "core_http_401"), "targets")
    assert_equal(state(world, "issuer"), 0, "the issuer is well")
    world.sandbox.clear()
    world.settle(60)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status <> 'COMPLETED'"), "0", "not completed")


@slow
@test(**SHIPPED)
def events_that_a_receiver_refuses_cost_the_others_little(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        odd = insert(world, ["odd-%d" % i for i in range(5)])
        for event in odd:
            service.plan(event, then=says(403))
        is_open(world, "PAYMENT_CHARGE")
        add(world, "user-%d", 200, "PAYMENT_CHARGE")
        compare(world, 200, seconds(world, "user-%"), "PAYMENT_CHARGE")
        service.clear()
        world.wait_final(odd, 60)


@slow
@test(**SHIPPED)
def a_429_for_everybody_costs_no_more_questions_than_creates(world):
    world.up()
    world.sandbox.fault("create", "status", status=429, retry_after="1")
    add(world, "user-%d", 500)
    time.sleep(2)
    before = world.sandbox.summary()["counts"]
    time.sleep(8)
    after = world.sandbox.summary()["counts"]
    sent, asked = (after[name] - before[name] for name in ("issuer.create", "core.check"))
    print("      in 8 s %d creates, %d questions; from the start %d, %d"
          % (sent, asked, after["issuer.create"], after["core.check"]))
    assert_true(asked <= sent + 1, "%d questions for %d creates" % (asked, sent))
    assert_true(after["core.check"] <= after["issuer.create"] + 128, "those that were asked before the first answer")
    world.sandbox.clear()
    world.settle(90)


@test
def one_wrong_setting_is_not_the_end_of_every_request(world):
    """Story: a currency that the issuer does not take. Every user was REJECTED, and nothing stood still or rang."""
    world.up()
    world.sandbox.fault("create", "status", status=422, code="bad_currency")
    add(world, "wrong-%d", 60)
    row = wait_until(lambda: targets(world)["issuer"]["paused_why"] and targets(world)["issuer"], "the issuer is paused")
    assert_true("bad_currency" in row["paused_why"] and ":" in row["paused_by"], "why and by whom: %r" % row)
    wait_until(lambda: world.sql("SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'") == "0",
               "no attempt is under way")
    ended = int(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'REJECTED'"))
    assert_true(25 <= ended < 60, "%d were refused before it stopped" % ended)
    world.sandbox.clear()
    assert_equal(world.ctl("resume", "issuer", "--reason", "the currency is right").returncode, 0, "resume")
    wait_until(lambda: left(world, "wrong-%") == ended, "the others are completed")
    # From now on it is known that the issuer makes cards.
    world.sandbox.fault("create", "status", status=422, code="bad_currency")
    add(world, "odd-%d", 60)
    wait_until(lambda: world.sql("SELECT count(*) FROM outbox_events WHERE status = 'REJECTED' AND user_id LIKE 'odd%'")
               == "60", "all are refused")
    assert_equal(targets(world)["issuer"]["paused_why"], None, "a pause")
