"""What workers write about themselves, and what operators ask of the targets: pause, resume, probe.

Story: at night the issuer's team asks for a pause, and an operator needs to know which workers run, what they see, and
why a request waits. A pause stops calls and loses nothing. If the tables of heartbeats cannot be used, cards are issued
all the same.
"""
import json
import signal

from harness import assert_equal, assert_true, slow, test, wait_until
from operators import lines


def control(world, word, target, *more, code=0):
    """One control, obeyed by every living worker when it returns."""
    row = lines(world.ctl(word, target, "--reason", "they asked", "--json", *more), code)[0]
    if code == 0:
        assert_equal((row["target"], row["obeyed"]), (target, row["workers"]), word)
    return row


def targets(world):
    return {row["target"]: row for row in lines(world.ctl("targets", "--json"))}


def workers(world, state="working"):
    return [row for row in lines(world.ctl("workers", "--json")) if row["state"] == state]


def explained(world, request):
    return lines(world.ctl("explain", request, "--json"))[0]


def wait_beats(world):
    """Until every worker has polled for events many times: heartbeats are a second apart, polls 50 ms."""
    before = world.sql("SELECT clock_timestamp()")
    wait_until(lambda: world.sql("SELECT NOT EXISTS (SELECT FROM workers WHERE seen_at < '%s'::timestamptz + interval"
                                 " '1 s')" % before) == "t" or world.sql("NOTIFY issuing_wake"), "more heartbeats")


def nothing_is_sent(world, calls, requests):
    """For a while: these calls stay as they are, and no attempt is used up."""
    wait_beats(world)
    assert_equal({call: len(world.sandbox.calls(call)) for call in calls}, calls, "calls to the peers")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE id IN ('%s') AND retry_count = 0 AND status ="
                           " 'PENDING'" % "', '".join(requests)), str(len(requests)), "requests that wait")


@test
def while_the_issuer_is_paused_nothing_is_sent_there_and_no_attempt_counts(world):
    world.up(workers=2)
    wait_until(lambda: len(workers(world)) == 2, "two workers")
    world.sandbox.fault("create", "delay", delay_ms=30)
    early = [world.accept("early-%d" % i) for i in range(40)]
    assert_equal(control(world, "pause", "issuer")["workers"], 2, "who obeys")
    wait_until(lambda: world.sql("SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'") == "0",
               "what was in flight has ended")
    calls = {call: len(world.sandbox.calls(call)) for call in ("create", "check")}
    late = [world.accept("late-%d" % i) for i in range(20)]
    nothing_is_sent(world, calls, late)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status IN ('FAILED', 'REJECTED')"), "0", "ends")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'PENDING' AND retry_count > 0"), "0",
                 "attempts")
    assert_true(set(row["code"] for row in world.rows("SELECT code FROM outbox_attempts WHERE outcome = 'deferred'")) <=
                {"target_paused"}, "why attempts were given back")
    seen = targets(world)["issuer"]
    waiting = int(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'PENDING'"))
    assert_equal((seen["state"], seen["paused_why"], seen["paused_workers"], seen["backlog"]),
                 ("paused", "they asked", 2, waiting), "targets")
    story = explained(world, late[0])
    assert_true("issuer is paused by " in story["next"]["why"] and "because: they asked" in story["next"]["why"], story)
    assert_equal((story["waits_for"]["what"], story["waits_for"]["target"], story["next"]["at"]),
                 ("pause", "issuer", None), "explain")
    control(world, "resume", "issuer")
    world.settle()
    assert_equal([world.status(request) for request in early + late], ["COMPLETED"] * 60, "statuses")
    assert_equal([card["sends"] for card in world.sandbox.cards()], [1] * 60, "sends")
    assert_equal([row["action"] for row in world.rows("SELECT action, after FROM operator_actions ORDER BY id")],
                 ["pause_target", "resume_target"], "on record")


@test(issuer__timeout="10s", issuer__settle_time="20s", worker__lease="30s")
def a_call_that_is_in_flight_when_the_pause_comes_ends_as_usual(world):
    world.up()
    world.sandbox.fault("create", "delay", delay_ms=1000, count=1)
    request = world.accept("alice")
    wait_until(lambda: world.sandbox.calls("create"), "the create has left")
    control(world, "pause", "issuer")
    event = world.wait_status(request, "COMPLETED")
    assert_equal(event["retry_count"], 1, "attempts")
    control(world, "resume", "issuer")


@test
def while_core_api_is_paused_no_event_is_begun(world):
    world.up()
    wait_until(lambda: workers(world), "the worker")
    control(world, "pause", "core")
    requests = [world.accept("user-%d" % i) for i in range(5)]
    nothing_is_sent(world, {"check": 0, "link": 0, "create": 0}, requests)
    control(world, "resume", "core")
    world.settle()
    assert_equal(len(world.sandbox.cards()), 5, "cards")


@slow
@test
def a_pause_for_a_time_ends_by_itself(world):
    """Story: it was forgotten, and half an hour later an alert said so."""
    world.up(workers=2)
    wait_until(lambda: len(workers(world)) == 2, "two workers")
    control(world, "pause", "issuer", "--for", "4s")
    request = world.accept("alice")
    seen = targets(world)["issuer"]
    assert_true(seen["state"] == "paused" and seen["paused_until"] > seen["paused_at"], "until when: %r" % seen)
    world.wait_status(request, "COMPLETED")
    rows = world.rows("SELECT * FROM operator_actions ORDER BY id")
    assert_equal([(row["action"], row["actor"]) for row in rows],
                 [("pause_target", rows[0]["actor"]), ("resume_target", rows[0]["actor"])], "on record, once")
    assert_equal(rows[1]["reason"], "the time of the pause is over", "why")
    assert_equal(world.ctl("pause", "issuer", "--for", "x", "--reason", "x").returncode, 2, "no duration")
    control(world, "pause", "issuer", "--for", "1h")
    control(world, "resume", "issuer")
    control(world, "pause", "issuer")
    assert_equal(targets(world)["issuer"]["paused_until"], None, "the next one is without end")
    control(world, "resume", "issuer")


@test
def a_worker_that_starts_during_a_pause_does_not_call(world):
    world.up(workers=0)
    assert_true("no worker runs now" in control(world, "pause", "issuer")["why"], "nobody is there to obey")
    requests = [world.accept("user-%d" % i) for i in range(5)]
    worker = world.start_worker()
    wait_until(lambda: targets(world)["issuer"]["paused_workers"] == 1, "the pause is obeyed")
    nothing_is_sent(world, {"check": 0, "create": 0}, requests)
    assert_true('"msg":"a target is paused","target":"issuer"' in worker.text(), "the log")
    control(world, "resume", "issuer")
    world.settle()
    assert_equal([world.status(request) for request in requests], ["COMPLETED"] * 5, "statuses")


@test
def no_mark_is_looked_up_while_the_issuer_is_paused(world):
    world.up()
    request = world.issue("alice")["id"]
    control(world, "pause", "issuer")
    assert_equal(world.ctl("reconcile", request, "--timeout", "1s").returncode, 75, "reconcile")
    assert_equal(world.sandbox.calls("lookup"), [], "look-ups")
    control(world, "resume", "issuer")
    assert_equal(lines(world.ctl("reconcile", request, "--json"))[0]["result"], "ok", "reconcile")


@test(breaker__failures="1", breaker__probe_interval="30s")
def a_probe_closes_an_open_breaker_before_its_time(world):
    """Story: the issuer was back, and an operator had to wait half a minute, or to restart the worker."""
    world.up()
    world.sandbox.down()
    requests = [world.accept("alice")]
    wait_until(lambda: targets(world)["issuer"]["state"] == "open", "the breaker is open")
    requests += [world.accept("user-%d" % i) for i in range(3)]
    seen = targets(world)["issuer"]
    assert_equal((seen["cause"], seen["blocked_at"], seen["workers"], seen["backlog"]), ("issuer_unreachable", 1, 1, 4),
                 "targets")
    why = explained(world, requests[0])["next"]["why"]
    assert_true("it waits behind the open breaker of issuer since " in why and "cause issuer_unreachable" in why and
                "4 events behind it" in why, why)
    warning = [json.loads(line) for line in world.workers()[0].text().splitlines() if '"msg":"breaker"' in line]
    assert_equal([(row["level"], row["target"], row["state"], row["cause"]) for row in warning],
                 [("warning", "issuer", "open", "issuer_unreachable")], "the log")
    assert_true("the breaker of issuer is open at 1 of 1 workers" in world.ctl("doctor").stdout, "doctor")
    world.sandbox.down(down=False)
    control(world, "probe", "issuer")
    world.settle()
    assert_equal(world.sql("SELECT bool_and(completed_at < '%s') FROM outbox_events" % seen["next_at"]), "t",
                 "all are completed before the next probe would have been due")
    wait_until(lambda: targets(world)["issuer"]["state"] == "closed", "closed")


@slow
@test
def a_lock_that_another_session_holds_is_named(world):
    """Story: somebody ran VACUUM FULL, and doctor, which was to find out, said nothing for an hour."""
    with world.holding("LOCK TABLE workers"):
        for words, said in ((("doctor",), "of role postgres has locked workers"),
                            (("pause", "issuer", "--reason", "x"), "another session holds a lock")):
            done = world.ctl(*words)
            assert_equal((done.returncode, said in done.stdout + done.stderr), (1, True), done.stdout + done.stderr)
    assert_equal(world.sql("SELECT count(*) FROM target_controls"), "0", "nothing is done that was not said")


@test
def a_target_that_is_not_there_or_not_so_is_refused(world):
    world.up(workers=0)
    refused = world.ctl("pause", "isuer", "--reason", "x")
    assert_equal((refused.returncode, "there are: issuer, core" in refused.stderr), (1, True), refused.stderr)
    assert_equal(world.ctl("pause", "issuer").returncode, 2, "without a reason")
    assert_equal(control(world, "resume", "issuer", code=1)["why"], "it is not paused", "resume")
    control(world, "pause", "issuer")
    assert_true("it is paused already, by " in control(world, "pause", "issuer", code=1)["why"], "a second pause")
    assert_equal(control(world, "probe", "issuer", code=1)["result"], "refused", "a probe of what is paused")
    assert_equal(world.sql("SELECT count(*) FROM operator_actions"), "1", "what was done is on record")


@test
def credentials_that_are_refused_are_a_warning_from_the_first_event_on(world):
    """Story: the credential file was missing, one request came, and journalctl -p warning was empty."""
    world.up()
    world.sandbox.fault("create", "status", status=401)
    world.accept("alice")
    wait_until(lambda: any(row["level"] == "warning" and row.get("code") == "issuer_http_401" and
                           row["target"] == "issuer" for row in
                           (json.loads(line) for line in world.workers()[0].text().splitlines() if "401" in line)),
               "a warning that names the issuer")
    world.sandbox.clear()
    world.settle()


@test
def when_no_worker_runs_every_command_says_so(world):
    """Story: all workers were stopped, doctor was content, and explain promised the next worker."""
    world.up()
    world.issue("alice")
    wait_until(lambda: workers(world), "the worker")
    row = workers(world)[0]
    worker = world.workers()[0]
    assert_equal((row["name"].endswith(":%d" % worker.pid), row["pid"], row["slots"]), (True, worker.pid, 128),
                 "workers")
    assert_equal(worker.stop(), 0, "exit status")
    assert_equal(lines(world.ctl("workers", "--json")), [], "a worker that has ended is gone at once")
    assert_true("No worker runs: the last one was seen at 2" in world.ctl("workers").stderr, "workers")
    assert_equal(targets(world)["issuer"]["state"], "no_worker", "targets")
    found = [json.loads(line) for line in world.ctl("doctor", "--json").stdout.splitlines()]
    assert_equal([row["warning"] for row in found if row["check"] == "workers"], [True],
                 "without an event it is a warning")
    request = world.accept("bob")
    story = explained(world, request)
    assert_true("no worker runs: the last one was seen at 2" in story["next"]["why"], story["next"]["why"])
    assert_equal(story["waits_for"], {"what": "worker"}, "explain")
    done = world.ctl("doctor")
    assert_true(done.returncode == 1 and "no worker runs, and 1 events are due" in done.stdout, done.stdout)
    world.start_worker()
    world.wait_status(request, "COMPLETED")


@slow
@test(issuer__timeout="20s", issuer__settle_time="40s", worker__lease="50s")
def a_killed_worker_counts_as_dead_after_a_minute_and_its_event_names_it(world):
    clock = world.clocked_database()
    world.up()
    wait_until(lambda: workers(world), "the worker")
    worker = world.workers()[0]
    world.sandbox.fault("create", "hang")
    request = world.accept("alice")
    wait_until(lambda: world.sandbox.calls("create"), "the create has left")
    story = explained(world, request)
    assert_equal((story["held_by"]["name"].endswith(":%d" % worker.pid), story["held_by"]["alive"]), (True, True),
                 "who holds it")
    worker.kill()
    worker.expected_dead = True
    assert_equal(len(workers(world)), 1, "for a minute nobody can know")
    clock.step(61)
    dead = workers(world, "dead")
    assert_equal([row["pid"] for row in dead], [worker.pid], "dead")
    story = explained(world, request)
    assert_equal(story["held_by"]["alive"], False, "who held it")
    assert_true("which counts as dead, last seen 1 min" in story["next"]["why"], story["next"]["why"])
    world.sandbox.clear()
    world.start_worker()
    world.wait_status(request, "COMPLETED")


@test
def many_dead_workers_and_one_from_the_future_hide_no_living_one(world):
    world.up()
    wait_until(lambda: workers(world), "the worker")
    world.sql("INSERT INTO workers (name, host, pid, version, started_at, seen_at, in_flight, slots)"
              " SELECT 'gone:' || n, 'gone', n, '0', now() - interval '2 h', now() - interval '1 h', 0, 1"
              " FROM generate_series(1, 1100) n"
              " UNION ALL SELECT 'ahead:1', 'ahead', 1, '0', now(), now() + interval '2 h', 0, 1")
    shown = world.ctl("workers")
    rows = shown.stdout.splitlines()[1:]
    assert_equal((len(rows), rows[0].split()[1]), (1000, "working"), "the living one is first")
    assert_true("in 1 h 59 min" in rows[1] and "dead" in rows[1], rows[1])
    assert_true("only 1000 are shown" in shown.stderr, shown.stderr)


@test
def workers_that_disagree_are_named(world):
    """Yesterday's file is on one host: another issuer, and keys that it honours for another time."""
    world.up()
    metric = world.workers()[0].metric
    wait_until(lambda: workers(world) and metric("issuing_workers_disagree") == 0, "one worker agrees with itself")
    world.start_worker(issuer__key_lifetime="23h", core__on_link_refused="keep")
    wait_until(lambda: metric("issuing_workers_disagree") == 2, "two options differ")
    told = world.ctl("doctor").stdout
    for line in ("workers disagree on core.on_link_refused: cancel (", "workers disagree on issuer.key_lifetime: "):
        assert_true(line in told, told)
    assert_true("23h (" in told, told)
    world.workers()[1].stop()
    wait_until(lambda: metric("issuing_workers_disagree") == 0, "they agree again")
    assert_true("disagree" not in world.ctl("doctor").stdout, "doctor")


@slow
@test
def locked_tables_of_heartbeats_do_not_stop_cards(world):
    """Story: somebody ran LOCK TABLE by hand and went to lunch."""
    world.up()
    with world.holding("LOCK TABLE workers, worker_targets, target_controls, last_worker"):
        for number in range(3):
            world.issue("user-%d" % number)
        world.start_worker()
        second = world.workers()[1]
        assert_equal(world.workers()[0].stop(), 0, "a worker ends")
        world.issue("later")
        assert_true("what operators have paused cannot be read" in second.text(), "the log of the second worker")
    wait_until(lambda: world.sql("NOTIFY issuing_wake") or
               [row["pid"] for row in workers(world)] == [second.pid], "the picture is right again")


@test
def a_lost_row_and_a_clock_that_steps_heal_with_the_next_heartbeat(world):
    world.up()
    wait_until(lambda: workers(world), "the worker")
    for change in ("DELETE FROM workers", "UPDATE workers SET seen_at = now() + interval '1 day'",
                   "UPDATE workers SET seen_at = now() - interval '1 hour'"):
        world.sql(change)
        world.sql("NOTIFY issuing_wake")
        wait_until(lambda: world.sql("SELECT count(*) FROM workers WHERE abs(extract(epoch FROM now() - seen_at)) < 30")
                   == "1", "the worker is seen again after: " + change)
        assert_equal(len(workers(world)), 1, "workers")


@slow
@test
def a_hanging_worker_is_named_as_one_that_does_not_obey(world):
    world.up(workers=2)
    wait_until(lambda: len(workers(world)) == 2, "two workers")
    stopped = world.workers()[0]
    stopped.signal(signal.SIGSTOP)
    done = lines(world.ctl("pause", "issuer", "--reason", "x", "--json"))[0]
    assert_equal((done["result"], done["obeyed"], done["workers"]), ("paused", 1, 2), "pause")
    assert_true("1 of 2 living workers have not obeyed within 6 s" in done["why"], done["why"])
    stopped.signal(signal.SIGCONT)
    wait_until(lambda: targets(world)["issuer"]["paused_workers"] == 2, "it obeys as soon as it can")
    control(world, "resume", "issuer")
