"""The issuer forgets a key some day. An outcome that is unknown then is a question for a look-up, never for another
POST: the sandbox, which forgets keys as well, would make a second card.
"""
import signal

from harness import alone, assert_equal, assert_true, core, slow, test, wait_until

LIFE = {"issuer__key_lifetime": "3s", "issuer__timeout": "500ms", "issuer__settle_time": "1s", "core__timeout": "500ms",
        "worker__lease": "2s"}
ONE_DAY_MS = 24 * 60 * 60 * 1000


def creates(world, request):
    return len(world.sandbox.calls("create", reference=request))


def lost_while_sending(world, *users, fault):
    """One request for each user whose worker died while its create call was on its way. Returns their ids."""
    for user in users:
        world.sandbox.fault("create", fault, user=user)
    worker = world.start_worker()
    requests = [world.accept(user) for user in users]
    for request in requests:
        wait_until(lambda request=request: creates(world, request) == 1, "the create call")
    worker.kill()
    world.sandbox.clear()
    return requests


def key_is_over(world, request):
    """The lifetime less its margin has passed since the first send."""
    wait_until(lambda: world.sql("SELECT clock_timestamp() > first_sent_at + interval '3 s' FROM outbox_events WHERE"
                                 " id ="
                                 " '%s'" % request) == "t",
               "the key's lifetime is over")


@core
@slow
@test(**LIFE)
def an_unknown_outcome_past_the_keys_lifetime_is_looked_up_and_never_sent(world):
    world.up(workers=0, sandbox=("--key-lifetime", "3s"))
    made, = lost_while_sending(world, "made", fault="create_then_hang")
    nothing, = lost_while_sending(world, "nothing", fault="hang")
    key_is_over(world, nothing)
    world.start_worker()
    assert_equal(world.wait_status(made, "COMPLETED", "FAILED", "REJECTED")["status"], "COMPLETED",
                 "the one that was made")
    event = world.wait_status(nothing, "COMPLETED", "FAILED", "REJECTED")
    assert_equal((event["status"], event["reason_code"]), ("FAILED", "issuer_key_expired"), "the one that was not")
    assert_equal([creates(world, request) for request in (made, nothing)], [1, 1], "create calls")
    assert_true(all(world.sandbox.calls("lookup", reference=request) for request in (made, nothing)),
                "both were looked up")
    # Not on an operator's word either.
    assert_equal(world.ctl("replay", nothing, "--reason", "try again", "--json").returncode, 0, "replay")
    wait_until(lambda: len(world.sandbox.calls("lookup", reference=nothing)) >= 2 and world.status(nothing) == "FAILED",
               "looked up once more")
    assert_equal((world.event(nothing)["reason_code"], creates(world, nothing)), ("issuer_key_expired", 1), "the end")
    assert_equal(world.sandbox.summary()["references_with_two_cards"], 0, "second cards")


@slow
@test
def an_unknown_outcome_past_the_default_lifetime_is_looked_up_and_never_sent(world):
    """The same with the default lifetime: the clocks are turned instead of waiting."""
    world.up(workers=0)
    made, = lost_while_sending(world, "made", fault="create_then_hang")
    nothing, = lost_while_sending(world, "nothing", fault="hang")
    world.sql("UPDATE outbox_events SET first_sent_at = first_sent_at - interval '24 h'")
    world.sandbox.advance(ONE_DAY_MS)
    world.start_worker()
    world.settle()
    assert_equal([(world.event(request)["status"], world.event(request)["reason_code"], creates(world, request))
                  for request in (made, nothing)],
                 [("COMPLETED", None, 1), ("FAILED", "issuer_key_expired", 1)], "ends")


@slow
@test
def the_margin_before_the_end_of_the_lifetime_counts_as_past_it(world):
    """24 h less 5 min: what is sent later might arrive too late."""
    world.up(workers=0)
    early, late = lost_while_sending(world, "early", "late", fault="hang")
    for request, age in ((early, "23 h 54 min"), (late, "23 h 55 min")):
        world.sql("UPDATE outbox_events SET first_sent_at = clock_timestamp() - interval '%s' WHERE id = '%s'" %
                  (age, request))
    world.start_worker()
    world.settle()
    assert_equal([(world.event(request)["status"], creates(world, request)) for request in (early, late)],
                 [("COMPLETED", 2), ("FAILED", 1)], "ends")


@slow
@test(**LIFE)
def what_was_never_sent_may_wait_for_longer_than_a_key_lives(world):
    world.up(workers=0, sandbox=("--key-lifetime", "3s"))
    world.sandbox.down()
    worker = world.start_worker(breaker__failures="1")
    request = world.accept("alice")
    wait_until(lambda: world.sql("SELECT clock_timestamp() > created_at + interval '3500 ms' FROM"
                                 " outbox_events") == "t",
               "longer than a key lives")
    assert_equal((world.status(request) in ("PENDING", "PROCESSING"), creates(world, request)), (True, 0),
                 "still waiting")
    world.sandbox.down(down=False)
    event = world.wait_status(request, "COMPLETED", "FAILED")
    assert_equal((event["status"], creates(world, request)), ("COMPLETED", 1), "the end")
    assert_true(worker.alive(), "the worker lives")


@slow
@test(retry__max_attempts="2", retry__base="50ms", retry__cap="200ms", breaker__probe_interval="200ms")
def what_was_never_sent_outlasts_look_ups_that_fail(world):
    """Older than a key lives, it is looked up before its first create. Nothing shows that this is its own fault."""
    world.up(workers=0)
    worker = world.start_worker()
    for status in (503, 429, 403):
        assert_equal(worker.stop(), 0, "exit status")
        world.sandbox.fault("lookup", "status", status=status)
        request = world.accept("user-%d" % status)
        world.sql("UPDATE outbox_events SET created_at = created_at - interval '24 h' WHERE id = '%s'" % request)
        world.restart(worker)
        wait_until(lambda request=request: len(world.sandbox.calls("lookup", reference=request)) > 2,
                   "it is looked up again and again")
        assert_equal((world.status(request) in ("PENDING", "PROCESSING"), creates(world, request)), (True, 0), "it waits")
        assert_equal(worker.stop(), 0, "exit status")
        told = world.ctl("explain", request).stdout
        assert_true("the event is older than the issuer key lives" in " ".join(told.split()), told)
        world.sandbox.clear()
        world.restart(worker)
        event = world.wait_status(request, "COMPLETED", "FAILED")
        assert_equal((event["status"], creates(world, request)), ("COMPLETED", 1), "the end")


@slow
@test(**LIFE)
def an_unknown_outcome_stays_unknown_through_an_outage(world):
    """A later "connection refused" says nothing about the first send: past the lifetime it is looked up, not sent."""
    world.up(workers=0, sandbox=("--key-lifetime", "3s"))
    request, = lost_while_sending(world, "alice", fault="create_then_hang")
    world.sandbox.down()
    world.start_worker()
    wait_until(lambda: world.sql("SELECT count(*) FROM outbox_attempts WHERE outcome = 'retry' AND code ="
                                 " 'issuer_unreachable'") > "0", "an attempt that found no issuer")
    assert_equal(world.event(request)["first_sent_at"] is not None, True, "first_sent_at")
    key_is_over(world, request)
    world.sandbox.down(down=False)
    event = world.wait_status(request, "COMPLETED", "FAILED")
    assert_equal((event["status"], creates(world, request)), ("COMPLETED", 1), "the end")


@test(idempotency__retention="2s", retry__max_attempts="3", retry__base="20ms", retry__cap="100ms")
def keys_are_kept_for_the_retention_after_the_end_and_those_of_open_events_always(world):
    world.settings["idempotency.retention"] = "2s"
    world.up()
    world.sandbox.fault("create", "status", status=418, user="failed")
    done, failed = world.issue("done", "k1")["id"], world.accept("failed", "k2")
    world.wait_status(failed, "FAILED")
    world.sandbox.fault("check", "status", status=429, user="open", retry_after="300")
    still_open = world.accept("open", "k3")
    wait_until(lambda: world.sql("SELECT last_error IS NOT NULL FROM outbox_events WHERE user_id = 'open'") == "t",
               "the open one waits")
    assert_equal(world.accept("done", "k1"), done, "within the retention")
    # The database keeps keys for an hour at the least, whatever is configured. Old enough by far, all of them.
    world.allowed.add("old_keys")
    world.sql("UPDATE idempotency_keys SET created_at = created_at - interval '3 h'; UPDATE outbox_events SET"
              " created_at = created_at - interval '3 h',"
              " completed_at = completed_at - interval '3 h'; UPDATE rate_limit_log SET at = at - interval '3 h'")
    again = world.accept("done", "k1")
    assert_true(again != done, "the key may be used anew")
    assert_equal(world.accept("done", "k1"), again, "and then leads to the new request")
    assert_equal([world.accept("failed", "k2"), world.accept("open", "k3")], [failed, still_open],
                 "of a failed and of an open event")


@alone
@slow
@test(issuer__key_lifetime="2s", issuer__timeout="300ms", issuer__settle_time="600ms", core__timeout="300ms",
      worker__lease="1200ms",
      retry__max_attempts="1000")
def unknown_again_and_again_is_sent_within_the_lifetime_only(world):
    """The sandbox drops every answer after making the card. No send may come later than the lifetime less its
    margin."""
    world.up(sandbox=("--key-lifetime", "2s"))
    world.sandbox.fault("create", "execute_then_status", status=502, user="made")
    world.sandbox.fault("create", "status", status=502, user="nothing")
    requests = [world.accept(user) for user in ("made", "nothing")]
    world.settle()
    assert_equal([(world.event(request)["status"], world.event(request)["reason_code"]) for request in requests],
                 [("COMPLETED", None), ("FAILED", "issuer_key_expired")], "ends")
    for request in requests:
        sent = [row["at"] for row in world.sandbox.calls("create", reference=request)]
        assert_true(len(sent) > 2, "several sends")
        last = world.sql("SELECT extract(epoch FROM '%s'::timestamptz - first_sent_at) FROM outbox_events WHERE id ="
                         " '%s'" % (sent[-1], request))
        assert_true(float(last) < 2, "the last send came %s s after the first" % last)


@slow
@test(**LIFE)
def a_worker_that_was_stopped_in_front_of_the_send_does_not_send_when_it_wakes_too_late(world):
    """SIGSTOP between the claim and the send, longer than the key lives: it must not act on what it knew before."""
    world.up(workers=0, sandbox=("--key-lifetime", "3s"))
    request, = lost_while_sending(world, "alice", fault="create_then_hang")
    world.sandbox.fault("check", "delay", delay_ms=2500)
    sleeper = world.start_worker(core__timeout="5s", worker__lease="12s")
    wait_until(lambda: len(world.sandbox.calls("check", user="alice")) == 2, "it calls core-api")
    sleeper.signal(signal.SIGSTOP)
    key_is_over(world, request)
    sleeper.signal(signal.SIGCONT)
    event = world.wait_status(request, "COMPLETED", "FAILED", seconds=40)
    assert_equal((event["status"], creates(world, request)), ("COMPLETED", 1), "the end")
