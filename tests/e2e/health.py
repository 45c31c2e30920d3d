"""A target that is away ends no event. An event that alone is answered badly neither stops the others nor is tried for
ever. The answers of the target to other events decide which of the two it is."""
import time

from harness import assert_equal, assert_true, slow, test, wait_until
from outages import SOON

OPEN = ("PENDING", "PROCESSING")
# The shipped relation of failures, attempts and workers, in a fraction of the time.
LIKE_SHIPPED = {"breaker__failures": "5", "retry__max_attempts": "10", "retry__base": "10ms", "retry__cap": "100ms",
                "breaker__probe_interval": "10ms", "worker__poll_interval": "50ms"}


def breaker(worker, target="issuer"):
    return worker.metric('issuing_breaker_state{target="%s"}' % target)


def deferred(world):
    return sum(worker.metric_sum("issuing_deferrals_total") for worker in world.workers() if worker.alive())


def ended(world, request):
    event = world.event(request)
    return event["status"], event["reason_code"]


def outlives(world, request, what):
    """The event outlives so many failures that it would have ended if any of them could end it."""
    wait_until(lambda: world.status(request) not in OPEN or world.event(request)["deferral_count"] >= 12,
               "%s: twelve deferrals of %s" % (what, request), 60, 0.1)
    assert_true(world.status(request) in OPEN, "%s: %r" % (what, ended(world, request)))


# ---- a target that is away ------------------------------------------------------------------------------------------

FAILURES = (("create", "status", {"status": 503}), ("create", "hang", {}), ("check", "status", {"status": 500}),
            ("link", "status", {"status": 502}))


@slow
@test(issuer__timeout="100ms", core__timeout="500ms", worker__lease="2s", **LIKE_SHIPPED)
def two_workers_and_one_event_outlive_any_outage(world):
    """Each worker counted failures until its own breaker opened: two of them used up all attempts of one event."""
    world.up(workers=0)
    for i, (call, fault, members) in enumerate((("issuer", "down", {}), ("core", "down", {}), FAILURES[0])):
        if fault == "down":
            world.sandbox.down(call)
        else:
            world.sandbox.fault(call, fault, **members)
        what = "%s %s" % (call, fault)
        first, second = world.start_worker(), world.start_worker()
        request = world.accept("user-%d" % i)
        before = deferred(world)
        wait_until(lambda: world.status(request) not in OPEN or deferred(world) >= before + 8, what + ": deferrals", 60)
        assert_true(world.status(request) in OPEN, "%s: %r" % (what, ended(world, request)))
        first.stop()  # what it knew is forgotten
        third = world.start_worker()
        before = deferred(world)
        wait_until(lambda: world.status(request) not in OPEN or deferred(world) >= before + 4,
                   what + ": more deferrals", 60)
        assert_true(world.status(request) in OPEN, "%s, a worker later: %r" % (what, ended(world, request)))
        if fault == "down":
            world.sandbox.down(call, False)
        world.sandbox.clear()
        world.wait_status(request, "COMPLETED", seconds=60)
        assert_equal([worker.stop() for worker in (second, third)], [0, 0], "exit status")


@slow
@test(issuer__timeout="100ms", core__timeout="500ms", worker__lease="2s", retry__max_attempts="2", **SOON)
def an_outage_that_opens_no_breaker_ends_no_event_either(world):
    """breaker.failures is 1000 here: nothing but the missing evidence keeps the event."""
    world.up()
    for i, (call, fault, members) in enumerate(FAILURES):
        world.issue("before-%d" % i)  # answered well, but before the outage
        world.sandbox.fault(call, fault, **members)
        request = world.accept("user-%d" % i)
        outlives(world, request, "%s %s" % (call, fault))
        assert_equal(len(world.attempts(request)) <= 2, True, "rows of attempts")
        world.sandbox.clear()
        world.wait_status(request, "COMPLETED")


@slow
@test(issuer__timeout="100ms", core__timeout="500ms", worker__lease="2s", retry__max_attempts="2")
def calls_of_another_kind_that_are_answered_are_no_evidence(world):
    """Links fail for everybody, while checks and creates of ever more events are answered well."""
    world.up()
    world.sandbox.fault("link", "status", status=503)
    request = world.accept("alice")
    with world.others():
        outlives(world, request, "link 503")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'FAILED'"), "0", "dead rows")
    world.sandbox.clear()
    world.settle(60)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status <> 'COMPLETED'"), "0",
                 "what did not complete")


# ---- an event that alone is answered badly --------------------------------------------------------------------------

@test(breaker__failures="5", retry__max_attempts="3")
def one_request_that_is_answered_404_ends_and_stops_no_other(world):
    world.up(workers=2)
    world.sandbox.fault("create", "status", status=404, user="odd")
    world.sandbox.fault("check", "status", status=403, user="odd-check")
    world.sandbox.fault("link", "status", status=401, user="odd-link")
    world.sandbox.fault("create", "create_then_drop", user="odd-made", count=1)
    world.sandbox.fault("create", "status", status=405, user="odd-made")
    requests = {user: world.accept(user) for user in ("odd", "odd-check", "odd-link", "odd-made")}
    with world.others():
        world.wait_final(requests.values(), 60)
    world.settle(60)
    assert_equal({user: ended(world, request) for user, request in requests.items()},
                 {"odd": ("FAILED", "issuer_http_404"), "odd-check": ("FAILED", "core_http_403"),
                  "odd-link": ("FAILED", "core_http_401"), "odd-made": ("COMPLETED", None)}, "ends")
    assert_equal(world.event(requests["odd"])["retry_count"], 1, "attempts: two of the three were deferrals")
    assert_equal(len(world.sandbox.calls("create", user="odd")) >= 3, True, "three answers")
    assert_equal(len(world.attempts(requests["odd"])), 2, "rows of attempts")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status <> 'COMPLETED'"), "3",
                 "all others completed")
    for worker in world.workers():
        assert_true('"msg":"breaker"' not in worker.text(), "no breaker moved")


@slow
@test(breaker__failures="5", breaker__probe_interval="2s")
def ten_requests_that_are_answered_404_do_not_stop_two_hundred_others(world):
    """With the shipped breaker: each of the ten used to shut it for all others, again and again."""
    world.up(workers=0)
    for i in range(10):
        world.sandbox.fault("create", "status", status=404, user="odd-%d" % i)
    odd = [world.accept("odd-%d" % i) for i in range(10)]
    others = [world.accept("user-%d" % i) for i in range(200)]
    world.start_worker()
    world.wait_final(others, 60)
    assert_equal({ended(world, request) for request in others}, {("COMPLETED", None)}, "the others")
    with world.others():
        world.wait_final(odd, 60)
    world.settle()
    assert_equal({ended(world, request) for request in odd}, {("FAILED", "issuer_http_404")}, "the ten")
    assert_equal({ended(world, request) for request in others}, {("COMPLETED", None)}, "the others")


@slow
@test(breaker__failures="5", issuer__key_lifetime="3s", issuer__timeout="200ms", retry__max_attempts="100")
def a_look_up_that_is_answered_404_stops_no_other_and_ends_past_the_keys_lifetime(world):
    world.up()
    world.sandbox.fault("create", "hang", user="odd")
    world.sandbox.fault("lookup", "status", status=404)
    request = world.accept("odd")
    with world.others():
        world.wait_final([request], 60)
    world.settle(60)
    assert_equal(ended(world, request), ("FAILED", "outcome_unknown"), "the end")
    assert_true(world.event(request)["first_sent_at"], "it stays unknown")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status <> 'COMPLETED'"), "1",
                 "all others completed")
    assert_true('"msg":"breaker"' not in world.workers()[0].text(), "no breaker moved")


REFUSALS = (("create", "status", {"status": 401}), ("create", "status", {"status": 403}),
            ("create", "status", {"status": 404}), ("create", "status", {"status": 405}),
            ("create", "status", {"status": 301}), ("create", "redirect", {}),
            ("check", "status", {"status": 401}), ("check", "redirect", {}), ("link", "status", {"status": 403}))


@slow
@test(breaker__failures="5", breaker__probe_interval="20ms", **SOON)
def one_event_alone_that_is_refused_waits_and_trips_nothing(world):
    """No other event is answered: the cause may as well be our credentials."""
    world.up(workers=0)
    for i, (call, fault, members) in enumerate(REFUSALS):
        user = "user-%d" % i
        world.sandbox.fault(call, fault, user=user, **members)
        worker = world.start_worker()
        request = world.accept(user)
        outlives(world, request, "%s %s" % (call, members))
        assert_equal(breaker(worker, "core" if call in ("check", "link") else "issuer"), 0, "the breaker")
        assert_equal((len(world.attempts(request)), world.event(request)["retry_count"] <= 1), (1, True), "attempts")
        world.sandbox.clear()
        world.wait_status(request, "COMPLETED")
        assert_equal(worker.stop(), 0, "exit status")
    assert_equal(len(world.sandbox.calls("stray")), 0, "no redirect was followed")


@slow
@test(breaker__failures="5", breaker__probe_interval="20ms")
def credentials_that_are_refused_for_all_events_open_the_breaker_and_end_no_event(world):
    world.up(workers=0)
    for i, (call, fault, members) in enumerate(REFUSALS[:1] + REFUSALS[6:7]):
        world.sandbox.fault(call, fault, **members)
        target = "core" if call in ("check", "link") else "issuer"
        workers = [world.start_worker(), world.start_worker()]
        requests = [world.accept("user-%d-%d" % (i, n)) for n in range(20)]
        wait_until(lambda: any(breaker(worker, target) == 2 for worker in workers), "a breaker is open")
        before = deferred(world)
        wait_until(lambda: deferred(world) >= before + 10, "ten probes", 60)
        assert_equal({world.status(request) in OPEN for request in requests}, {True}, "all are open")
        assert_equal(world.sql("SELECT coalesce(max(retry_count), 0) <= 1 FROM outbox_events WHERE status = 'PENDING'"),
                     "t",
                     "attempts")
        world.sandbox.clear()
        world.settle(60)
        assert_equal({ended(world, request) for request in requests}, {("COMPLETED", None)}, "ends")
        for worker in workers:
            assert_equal(worker.stop(), 0, "exit status")


# ---- a rate that is granted -----------------------------------------------------------------------------------------

GRANTED = 50


def watch_rate(world, call, requests, seconds=10):
    """How many calls and questions come in so many seconds, well after the beginning."""
    wait_until(lambda: len(world.sandbox.calls(call)) > 3 * GRANTED, "it has begun")
    counts = world.sandbox.summary()["counts"]
    time.sleep(seconds)
    after = world.sandbox.summary()["counts"]
    target = "core" if call == "check" else "issuer"
    return (after["%s.%s" % (target, call)] - counts["%s.%s" % (target, call)],
            after["core.check"] - counts["core.check"])


@slow
@test(core__timeout="3s", issuer__timeout="3s", issuer__settle_time="6s", worker__lease="12s", retry__base="1s",
      retry__cap="5s",
      breaker__failures="5", breaker__probe_interval="2s")
def a_rate_limit_is_respected_in_calls_checks_and_rows(world):
    """Story: 2000 waiting events led to 2000 creates, 2000 checks and 2000 rows a second."""
    world.up(workers=0)
    world.sandbox.fault("create", "limited", per_second=GRANTED, retry_after="1")
    world.sql("INSERT INTO outbox_events (user_id, payload) SELECT 'user-' || i, '{\"kind\": \"new\"}'"
              " FROM generate_series(1, 2000) i")
    world.start_worker()
    calls, questions = watch_rate(world, "create", 2000)
    assert_true(calls <= 10 * GRANTED * 2, "%d creates in 10 s, %d granted" % (calls, 10 * GRANTED))
    assert_true(questions <= 10 * GRANTED * 2, "%d questions in 10 s" % questions)
    rows, most = world.sql("SELECT count(*), max(n) FROM (SELECT count(*) AS n FROM outbox_attempts GROUP BY event_id)"
                           " AS a").split("|")
    assert_true(int(most) <= 4, "%s rows of attempts for one event, %s in all" % (most, rows))
    assert_equal(breaker(world.workers()[0]), 0, "the breaker: the issuer is there")
    world.sandbox.clear()
    world.settle(90)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), "2000", "completed")


@slow
@test(issuer__timeout="3s", issuer__settle_time="6s", core__timeout="3s", worker__lease="12s")
def one_users_rate_limit_stops_no_other_user(world):
    world.up()
    world.sandbox.fault("create", "status", status=429, user="odd", retry_after="300")
    world.sandbox.fault("check", "status", status=429, user="odd-check", retry_after="300")
    odd = [world.accept("odd"), world.accept("odd-check")]
    others = [world.accept("user-%d" % i) for i in range(100)]
    world.wait_final(others, 60)
    assert_equal({ended(world, request) for request in others}, {("COMPLETED", None)}, "the others")
    for request in odd:
        assert_equal(world.event(request)["status"], "PENDING", "the limited one")
        assert_true(float(world.sql("SELECT extract(epoch FROM next_attempt_at - now()) FROM outbox_events WHERE id ="
                                    " '%s'" %
                                    request)) > 200, "it waits as long as Retry-After says")
