"""The daemons as processes: configuration, metrics, logs, credentials, ports."""
import concurrent.futures
import json
import os
import re
import select
import signal
import subprocess
import time

import client
import harness
import processes
from harness import assert_equal, assert_true, slow, STUCK_AFTER_S, test, wait_until

API = ("issuing_http_requests_total", "issuing_http_request_seconds", "issuing_accept_batch_size",
       "issuing_idempotency_replays_total", "issuing_ratelimited_total", "issuing_accept_queue",
       "issuing_auth_failures_total")
WORKER = ("issuing_step_seconds", "issuing_step_total", "issuing_attempts_total", "issuing_deferrals_total",
          "issuing_lease_lost_total", "issuing_in_flight", "issuing_request_seconds", "issuing_events_ended_total",
          "issuing_retries_total", "issuing_breaker_transitions_total", "issuing_call_seconds",
          "issuing_claim_seconds", "issuing_claim_batch_size")
BOTH = ("issuing_db_errors_total", "issuing_loop_lag_seconds", "issuing_build_info", "issuing_outbox_events",
        "issuing_outbox_oldest_pending_seconds", "issuing_outcome_unknown", "issuing_outcome_unknown_oldest_seconds",
        "issuing_breaker_state", "issuing_target_paused", "issuing_workers_alive", "issuing_db_pool_waiting",
        "issuing_outbox_gauges_age_seconds", "issuing_statistics_lag_seconds", "issuing_ready",
        "process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds",
        "process_max_fds", "issuing_log_dropped_total")


def full_pipe():
    """The two ends of a pipe that nobody reads; what is written to it waits."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"\n" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


@test
def a_log_that_nobody_reads_stops_nothing(world):
    """A log collector stands still: requests are recorded, cards made, and what is lost of the log is counted."""
    reader, writer = full_pipe()
    world.start_sandbox()
    api, worker = world.start_api(errors=writer), world.start_worker(errors=writer)
    world.issue("alice")
    for number in range(1000):
        if worker.metric("issuing_log_dropped_total") > 0:
            break
        world.issue("user-%d" % number)
    assert_equal([daemon.get("/livez").status for daemon in (api, worker)], [200, 200], "livez")
    lost = int(worker.metric("issuing_log_dropped_total"))
    text = b""
    while not re.search(rb"were lost.*\n", text):
        assert_true(select.select([reader], [], [], STUCK_AFTER_S)[0], "the log goes on when it is read")
        text += os.read(reader, 65536)
    line = json.loads(next(line for line in text.splitlines() if b"were lost" in line))
    assert_true(lost > 0 and line["lines"] >= lost, "%d lines were lost: %r" % (lost, line))
    os.close(reader)
    os.close(writer)


@slow
@test(limit__count="1", breaker__failures="2")
def every_documented_metric_exists(world):
    world.up()
    world.issue("alice")
    assert_equal(world.post("alice", "other").status, 429)
    assert_equal(world.post("alice", "k").status, 202)
    world.sandbox.fault("create", "status", status=429, user="bob", count=1)
    world.sandbox.fault("create", "status", status=418, user="carol")
    world.issue("bob")
    world.wait_status(world.accept("carol"), "FAILED")
    # A statement is refused, so that the series exists: a role loses its rights for a moment.
    world.sql("REVOKE SELECT ON cards FROM issuing_api, issuing_worker")
    assert_equal(world.get("alice", "/v1/cards").status, 503, "without rights")
    wait_until(lambda: world.workers()[0].metric_sum("issuing_db_errors_total") > 0, "the worker's claim was refused")
    world.sql("GRANT SELECT ON cards TO issuing_api, issuing_worker")
    world.settle()
    for daemon, names in ((world.apis()[0], API + BOTH), (world.workers()[0], WORKER + BOTH)):
        wait_until(lambda daemon=daemon: daemon.metrics().get('issuing_outbox_events{status="FAILED"}') == 1 and
                   'issuing_breaker_state{target="issuer"}' in daemon.metrics(), "gauges", 20)
        text = daemon.get("/metrics").body.decode()
        for name in names:
            assert_true("# TYPE %s " % name in text, "%s of %s has a type" % (name, daemon.name))
            assert_true(any(line.startswith((name + "{", name + " ", name + "_bucket", name + "_count"))
                            for line in text.splitlines()), "%s of %s has a series" % (name, daemon.name))
        assert_equal(daemon.get("/metrics").header("Content-Type").split(";")[0], "text/plain", "Content-Type")
    api, worker = world.apis()[0].metrics(), world.workers()[0].metrics()
    assert_true(api['issuing_http_requests_total{route="/v1/card-requests",method="POST",code="429"}'] == 1,
                "429 counted")
    assert_true(api["issuing_ratelimited_total"] == 1 and api["issuing_idempotency_replays_total"] == 1,
                "limited and replayed")
    assert_true(api["issuing_accept_batch_size_count"] >= 4, "batches")
    assert_true(worker['issuing_attempts_total{outcome="completed"}'] >= 2 and
                worker['issuing_attempts_total{outcome="failed"}'] == 1, "attempts")
    assert_true(worker['issuing_step_total{step="issue",outcome="executed"}'] >= 2 and
                worker['issuing_step_total{step="issue",outcome="refused"}'] == 1, "steps")
    assert_equal((worker['issuing_breaker_state{target="issuer"}'], worker['issuing_breaker_state{target="core"}'],
                  worker["issuing_in_flight"]), (0, 0, 0), "gauges")


@slow
@test(retry__max_attempts="1000", retry__base="1s")
def the_gauges_of_the_outbox_show_what_is_open(world):
    world.settings["retry.cap"] = "2s"
    world.up(workers=0)
    world.sandbox.fault("create", "execute_then_status", status=500)
    for i in range(5):
        world.accept("user-%d" % i)
    worker = world.start_worker()
    wait_until(lambda: worker.metric("issuing_outcome_unknown") >= 1 and
               worker.metric('issuing_outbox_events{status="PENDING"}') >= 1 and
               worker.metric("issuing_outbox_oldest_pending_seconds") > 0, "gauges")
    world.sandbox.clear()
    world.settle()
    wait_until(lambda: worker.metric("issuing_outcome_unknown") == 0 and
               worker.metric('issuing_outbox_events{status="PENDING"}') == 0, "gauges after it")


@test
def requests_are_served_while_the_gauges_cannot_be_read(world):
    """Somebody holds a lock for hours on what the gauges read. With one connection the gauges wait on that one."""
    world.up()
    alone = world.start_api(database__connections="1")
    daemons = [*world.apis(), *world.workers()]
    with world.holding("LOCK issuing.workers, issuing.worker_targets, issuing.target_controls"):
        wait_until(lambda: all(daemon.metric("issuing_outbox_gauges_age_seconds") > 11 for daemon in daemons),
                   "the gauges grow old", 60)
        for api in world.apis():
            request = world.accept("user of " + api.name, api=api)
            world.wait_status(request, "COMPLETED")
            assert_equal(world.get("user of " + api.name, "/v1/card-requests/" + request, api=api).status, 200, "read")
    assert_true(alone.alive(), "the api with one connection")


@test
def no_scrape_takes_the_peak_of_a_stall_from_another(world):
    world.up(workers=0)
    api, = world.apis()
    api.signal(signal.SIGSTOP)
    time.sleep(1.5)
    api.signal(signal.SIGCONT)
    wait_until(lambda: api.metric("issuing_loop_lag_seconds") > 1, "the stall shows")
    assert_true(min(api.metric("issuing_loop_lag_seconds") for _ in range(3)) > 1, "it shows to the next scrapers too")


@test
def the_admin_listeners_serve_three_paths_and_nothing_else(world):
    world.up()
    for daemon in [*world.apis(), *world.workers()]:
        for path, status in (("/livez", 200), ("/readyz", 200), ("/metrics", 200), ("/", 404),
                             ("/v1/card-requests", 404), ("/livez/x", 404)):
            assert_equal(daemon.get(path).status, status, "%s of %s" % (path, daemon.name))
        assert_equal(client.call(daemon.admin, "POST", "/livez").status, 405, "POST /livez")
        assert_equal(client.call(daemon.admin, "HEAD", "/livez").status, 200, "HEAD /livez")


@test
def logs_are_json_lines_and_hold_no_secret(world):
    world.up()
    world.issue("alice")
    world.get("alice", "/v1/cards/%s/number" % world.get("alice", "/v1/cards").json()["items"][0]["id"])
    # An issuer that talks too much: the detail is logged, and digits that look like a number are not.
    world.sandbox.fault("create", "status", status=422, code="no", user="bob",
                        detail="card 4000001234567899 of bob, or 4000 0012 3456 7899")
    world.wait_status(world.accept("bob"), "REJECTED")
    for daemon in [*world.apis(), *world.workers()]:
        assert_equal(daemon.stop(), 0, "exit status")
        for line in daemon.text().splitlines():
            row = json.loads(line)
            assert_true({"ts", "level", "program", "msg"} <= set(row), line)
        for secret in (world.token("alice"), world.secret.decode(), "4000001234567899", "4000 0012", "Bearer"):
            assert_true(secret not in daemon.text(), "%s in the log of %s" % (secret[:12], daemon.name))
    assert_equal(world.sql("SELECT count(*), count(*) FILTER (WHERE detail LIKE '%4000%') FROM outbox_attempts"
                           " WHERE detail LIKE '%card %'"), "1|0", "redacted in the table as well")


@test
def a_number_that_an_issuer_puts_elsewhere_goes_nowhere(world):
    """In an id, a code, a detail, a status: whatever the issuer says, what looks like a card number stays out of
    logs and tables."""
    world.up()
    number = "4000009999999991"
    world.sandbox.fault("create", "status", status=422, code=number, detail=number, user="code")
    world.sandbox.fault("check", "ineligible", code=number, user="reason")
    world.sandbox.fault("link", "link_refused", code="card_limit_reached", detail=number, user="link")
    for user in ("code", "reason", "link"):
        world.wait_status(world.accept(user), "REJECTED")
    for daemon in world.workers():
        assert_true(number not in daemon.text(), "in the log")
    assert_equal(world.sql("SELECT count(*) FROM outbox_attempts a, outbox_events e"
                           " WHERE concat(a.*, e.*) LIKE '%%%s%%'" % number),
                 "0", "in the tables")


@test
def a_vendor_without_a_credential_is_warned_of(world):
    """Story: the file was configured under another name, the check said that all is well, and the first sign of it was
    an open breaker. It is not a refusal: a proxy may add the credential."""
    key = world.dir / "key"
    key.write_text("sk_test_1\n")
    key.chmod(0o600)
    world.reserve_peers(1, 2)

    def warned(text):
        return [line for line in text.splitlines() if "warning" in line and "issuer.credential_file" in line]
    for flags, wanted in ((("--issuer.profile=stripe",), 1), (("--issuer.profile=generic",), 0),
                          (("--issuer.profile=stripe", "--issuer.credential_file=%s" % key), 0)):
        checked = harness.run([harness.BUILD / "issuing-worker", *world.flags("issuing_worker", {}), "--check-config",
                               *flags])
        assert_equal((checked.returncode, len(warned(checked.stderr))), (0, wanted), "%s: %s" % (flags, checked.stderr))
    for own, wanted in (({"issuer__profile": "stripe"}, 1), ({}, 0)):
        worker = world.start_worker(worker__lease="90s", **own)
        assert_equal(len(warned(worker.text())), wanted, "lines of the log with %r" % own)


@test
def a_wrong_configuration_is_reported_before_anything_starts(world):
    def run_program(program, *flags, environment=None, base=True):
        role = "issuing_api" if program == "issuing-api" else "issuing_worker"
        world.reserve_peers(1, 2)
        words = [harness.BUILD / program, *(world.flags(role, {})
                                            if base else ["--config=%s" % world.suite.empty_file]), *flags]
        variables = {**harness.ENVIRONMENT, **(environment or {})}
        return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              timeout=harness.STUCK_AFTER_S, env=variables, stdin=subprocess.DEVNULL)
    for program in ("issuing-api", "issuing-worker"):
        assert_equal(run_program(program, "--check-config").returncode, 0, program)
        assert_equal(run_program(program, "--check-config", "--limit.cuont=1").returncode, 2, "a flag that is none")
        for flags in (("--limit.window=10",), ("--limit.count=0",), ("--log.level=loud",), ("--config=/no/such/file",),
                      ("--retry.base=10m",), ("--database.url=host=/run sslmode=requires",),
                      ("--idempotency.retention=1s", "--retry.cap=1m", "--retry.base=1s")):
            assert_equal(run_program(program, "--check-config", *flags).returncode, 78, "%s %s" % (program, flags))
        assert_true("limit.count" in run_program(program, "--limit.cuont=1").stderr, "the nearest name is shown")
        wrong = run_program(program, "--check-config", environment={"ISSUING_LIMIT_CUONT": "1"})
        assert_equal((wrong.returncode, "ISSUING_LIMIT_COUNT" in wrong.stderr), (78, True), "a variable that is none")
        assert_equal(run_program(program, "surplus").returncode, 2, "a surplus word")
    assert_equal(run_program("issuing-api", "--check-config", base=False).returncode, 78,
                 "the api without a key source")
    for flags in ((), ("--issuer.url=http://127.0.0.1:1",), ("--issuer.url=http://127.0.0.1:1",
                                                             "--core.url=http://127.0.0.1:2")):
        assert_equal(run_program("issuing-worker", "--check-config", *flags, base=False).returncode, 78,
                     "the worker with %r" % (flags,))
    for flags in (("--issuer.url=http://example.test",), ("--core.url=http://10.0.0.1",), ("--worker.lease=3s",),
                  ("--issuer.key_lifetime=500ms",), ("--issuer.profile=other",),
                  ("--issuer.profile=stripe", "--issuer.parameters=currenzy=eur")):
        assert_equal(run_program("issuing-worker", "--check-config", *flags).returncode, 78, repr(flags))
    assert_equal(run_program("issuing-worker", "--check-config", "--issuer.url=http://example.test",
                             "--issuer.allow_http=true").returncode, 0, "allow_http")
    short = world.dir / "short"
    short.write_text("0123456789abcdefghijklmnopqrstu")
    short.chmod(0o600)
    for flags in ((), ("--check-config",)):
        refused = run_program("issuing-api", "--auth.hs256_secret_file=%s" % short, *flags)
        assert_equal((refused.returncode, "32 bytes" in refused.stderr), (78, True),
                     "a secret of 31 bytes, %r" % (flags,))
    for option in ("auth.hs256_secret_file", "card.keys_file"):
        assert_equal(run_program("issuing-api", "--check-config", "--%s=/no/such/file" % option).returncode, 78, option)


@test
def the_worker_checks_what_it_would_stumble_over_at_the_start(world):
    """Story: the check said that the configuration is fine; then the start, or the first call, said otherwise."""
    world.reserve_peers(1, 2)
    open_to_all = world.dir / "open"
    open_to_all.write_text("sk_test_1\n")
    open_to_all.chmod(0o644)
    key = world.dir / "key"
    key.write_text("sk_test_1\n")
    key.chmod(0o600)

    def check(*flags):
        return harness.run([harness.BUILD / "issuing-worker", *world.flags("issuing_worker", {}), "--check-config",
                            *flags])
    route = ("--route.NOTE.url=http://127.0.0.1:9/", "--route.NOTE.timeout=1s")
    for file in ("/no/such/file", open_to_all):
        for option in ("issuer.credential_file", "core.credential_file", "card.keys_file",
                       *(("tls.ca_file",) if file != open_to_all else ()),
                       "route.NOTE.credential_file", "route.NOTE.sign_secret_file", "route.NOTE.headers_file"):
            done = check(*route, "--%s=%s" % (option, file))
            assert_equal((done.returncode, option in done.stderr), (78, True), "%s %s: %s" % (option, file, done.stderr))
    done = check("--core.client_cert_file=/no/such/file", "--core.client_key_file=%s" % key)
    assert_equal((done.returncode, "core.client_cert_file" in done.stderr), (78, True), done.stderr)
    for profile, url, wanted in (("stripe", "https://api.stripe.com/v1", 78), ("stripe", "https://api.stripe.com", 0),
                                 ("stripe", "https://gate.example/stripe", 0),
                                 ("stripe", "https://api.stripe.com/v1/issuing/cards", 78),
                                 ("marqeta", "https://sandbox-api.marqeta.com", 78),
                                 ("marqeta", "https://sandbox-api.marqeta.com/v3/v3", 78),
                                 ("marqeta", "https://sandbox-api.marqeta.com/v3/", 0),
                                 ("adyen", "https://balanceplatform-api-test.adyen.com/bcl", 78),
                                 ("generic", "https://cards.example.com/v1", 0)):
        done = check("--issuer.profile=%s" % profile, "--issuer.url=%s" % url, "--issuer.credential_file=%s" % (
            "/no/such/file" if wanted else write_pair(world)))
        assert_equal((done.returncode, "issuer.url" in done.stderr), (wanted, wanted == 78), "%s: %s" % (url, done))


def write_pair(world):
    """A credential that each profile can read."""
    file = world.dir / "pair"
    file.write_text("name:secret\n")
    file.chmod(0o600)
    return file


@test
def flags_win_over_variables_over_the_file_over_defaults(world):
    path = world.dir / "issuing.conf"
    path.write_text("[limit]\ncount = 2\nwindow = 20s\ncounts = attempts\n")
    shown = subprocess.run([harness.BUILD / "issuing-api", "--config=%s" % path, "--limit.count=4",
                                    "--show-config", "--auth.hs256_secret_file=%s" % world.suite.secret_file],
                                   capture_output=True, text=True, timeout=harness.STUCK_AFTER_S,
                                   env={**harness.ENVIRONMENT, "ISSUING_LIMIT_COUNT": "3",
                                        "ISSUING_LIMIT_WINDOW": "30s"})
    assert_equal(shown.returncode, 0, shown.stderr)
    rows = dict(line.split("  #")[0].split(" = ", 1) for line in shown.stdout.splitlines() if " = " in line)
    assert_equal([rows[name].strip() for name in ("limit.count", "limit.window", "limit.counts", "retry.base")],
                 ["4", "30s", "attempts", "1s"], "values")
    assert_true(world.secret.decode() not in shown.stdout, "the secret is not shown")


@test
def a_port_that_is_taken_ends_the_start(world):
    world.up()
    api = world.apis()[0]
    second = world.start_api(wait_ready=False, api__listen="127.0.0.1:%d" % api.port)
    second.expected_dead = True
    assert_true(second.ended(harness.STUCK_AFTER_S) != 0, "the second one ends")
    assert_equal(world.post("alice", "k").status, 202, "the first goes on")


@test
def the_credentials_for_the_peers_are_sent(world):
    credential = world.dir / "credential"
    credential.write_text("sesame-9\n")
    credential.chmod(0o600)
    world.start_sandbox("--credential-file", str(credential), "--core-credential-file", str(credential))
    world.start_api()
    without = world.start_worker(breaker__failures="5")
    request = world.accept("alice")
    wait_until(lambda: without.metric('issuing_deferrals_total{reason="core_http_401"}') >= 1,
               "core-api refuses the worker without credentials")
    assert_equal(without.stop(), 0, "exit status")
    worker = world.start_worker(issuer__credential_file=credential, core__credential_file=credential)
    world.wait_status(request, "COMPLETED")
    assert_equal(world.event(request)["retry_count"], 1, "attempts")
    assert_true("sesame-9" not in worker.text() + without.text(), "the credential is not in the logs")


# ---- SIGHUP ----------------------------------------------------------------------------------------------------------

READ_AGAIN = "configuration and files were read again"


def hang_up(daemon):
    """Sends SIGHUP; returns what the log says from there until all was read again."""
    before = len(daemon.text())
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: READ_AGAIN in daemon.text()[before:], "the files were read again")
    return [json.loads(line) for line in daemon.text()[before:].splitlines()]


def errors(lines):
    return [row.get("why", "") for row in lines if row["level"] == "error"]


def write_secret(path, text):
    """As one should: beside it, and then renamed."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o600)
    os.replace(fresh, path)
    return path


OLD, NEW = "the old secret of the token service, for no client", "the new secret of the token service, for no client"


@test
def sighup_changes_who_may_call(world):
    path = write_secret(world.dir / "secret", OLD)
    world.settings["auth.hs256_secret_file"] = path
    world.up(workers=0)
    api = world.apis()[0]

    def status_with(secret):
        bearer = [("Authorization", "Bearer " + client.token(secret, {"sub": "alice", "exp": 4102444800}))]
        return client.call(api.port, "GET", "/v1/card-requests", bearer).status
    assert_equal((status_with(OLD.encode()), status_with(NEW.encode())), (200, 401), "before")
    write_secret(path, NEW)
    assert_equal((status_with(OLD.encode()), status_with(NEW.encode())), (200, 401), "nothing changes by itself")
    assert_equal(errors(hang_up(api)), [], "errors")
    assert_equal((status_with(OLD.encode()), status_with(NEW.encode())), (401, 200), "after")
    for text in ("short", ""):
        write_secret(path, text)
        reported = errors(hang_up(api))
        assert_true(len(reported) == 1 and reported[0].startswith("auth.hs256_secret_file: "), "errors: %r" % reported)
        assert_equal((status_with(OLD.encode()), status_with(NEW.encode())), (401, 200), "with %r" % text)
    path.unlink()
    assert_true("auth.hs256_secret_file" in errors(hang_up(api))[0], "a file that is gone")
    assert_equal(status_with(NEW.encode()), 200, "without the file")
    assert_true(NEW not in api.text() and OLD not in api.text(), "no secret in the log")


@test
def sighup_reports_what_needs_a_restart_and_changes_the_log_level(world):
    path = world.dir / "issuing.conf"

    def write(level, count, rest=""):
        path.write_text("[log]\nlevel = %s\n[limit]\ncount = %d\n%s" % (level, count, rest))
    write("info", 5)
    world.start_sandbox()
    for start in (world.start_api, world.start_worker):
        write("info", 5)
        daemon = start(config=path, log__level=None, limit__count=None, database__connections=None)
        is_api = daemon in world.apis()
        assert_equal([row for row in hang_up(daemon) if "option" in row], [], "nothing has changed")
        write("debug", 6, "[database]\nconnections = 7\n")
        lines = hang_up(daemon)
        assert_equal({row["option"] for row in lines if "option" in row},
                     {"database.connections", "limit.count"} if is_api else {"database.connections"},
                     "options that changed")
        assert_equal([row["log_level"] for row in lines if "log_level" in row], ["debug"], "the level")
        write("info", 5, "[limits]\n")
        lines = hang_up(daemon)
        assert_true(any("limits" in why for why in errors(lines)), "an unknown section is reported")
        write("error", 5)
        before = len(daemon.text())
        daemon.signal(signal.SIGHUP)
        wait_until(lambda daemon=daemon, before=before: '"log_level":"error"' in daemon.text()[before:],
                   "the level is reported")
        assert_equal(daemon.stop(), 0, "exit status")
        assert_true('"draining"' not in daemon.text(), "what is only information is not logged any more")


@slow
@test(breaker__failures="2")
def sighup_changes_what_the_worker_shows_to_its_peers(world):
    right = write_secret(world.dir / "right", "sesame-9\n")
    shown, keys = write_secret(world.dir / "shown", "sesame-0\n"), world.dir / "card.keys"
    write_secret(keys, world.suite.keys_file.read_text())
    world.settings["card.keys_file"] = keys
    world.start_sandbox("--credential-file", str(right))
    world.start_api()
    worker = world.start_worker(issuer__credential_file=shown)
    request = world.accept("alice")
    wait_until(lambda: "issuer_http_401" in (world.event(request)["last_error"] or ""), "the issuer refuses the worker")
    write_secret(shown, "sesame-9\n")
    assert_equal(errors(hang_up(worker)), [], "errors")
    world.wait_status(request, "COMPLETED")
    # A call that is on its way keeps what it left with; the file is broken meanwhile.
    world.sandbox.fault("create", "delay", delay_ms=500, count=1)
    request = world.accept("bob")
    wait_until(lambda: world.sandbox.calls("create", user="bob"), "it is on its way")
    write_secret(shown, "two\nlines\n")
    write_secret(keys, "1 active 00\n")
    reported = errors(hang_up(worker))
    assert_equal([why.split(":")[0] for why in reported], ["card.keys_file", "issuer.credential_file"], "reported")
    for _ in range(20):
        write_secret(shown, "sesame-9")
        hang_up(worker)
    world.wait_status(request, "COMPLETED")
    world.issue("carol")
    assert_equal(worker.stop(), 0, "exit status")
    assert_true("sesame-" not in worker.text(), "no credential in the log")


@test
def a_reload_waits_for_no_file(world):
    """A secret lies on a mount whose server is away: everything else goes on, also an end by SIGTERM."""
    folder = world.dir / "hung"
    folder.mkdir()
    write_secret(folder / "credential", "sesame-1")
    world.up(workers=0)
    worker = world.start_worker(clock=processes.Preloaded("hung_files"), issuer__credential_file=folder / "credential")
    read_again = "configuration and files were read again"
    for number in range(2):
        (folder / "hangs").touch()
        worker.signal(signal.SIGHUP)
        wait_until((folder / "waits").exists, "the file is waited for")
        assert_equal(worker.get("/livez").status, 200, "livez")
        world.issue("user-%d" % number)
        assert_equal(worker.text().count(read_again), number, "reloads")
        if number == 0:
            (folder / "hangs").unlink()
            wait_until(lambda: worker.text().count(read_again) == 1, "the reload")
            (folder / "waits").unlink()
    assert_equal(worker.stop(), 0, "exit status")


@test
def a_number_under_a_new_key_waits_for_no_file(world):
    """Story: a number was asked for whose key the api did not have. The file of keys lay on a mount whose server was
    away, and nobody was served until it came back."""
    folder = world.dir / "hung"
    folder.mkdir()
    keys, first = folder / "card.keys", world.suite.keys_file.read_text()
    write_secret(keys, "9 active %s\n" % ("ab" * 32))
    world.up(apis=0)
    api = world.start_api(clock=processes.Preloaded("hung_files"), card__keys_file=keys)
    number = "/v1/cards/%s/number" % world.issue("alice")["card"]["id"]
    (folder / "hangs").touch()
    write_secret(keys, first.replace(" active ", " decrypt ") + keys.read_text())
    with concurrent.futures.ThreadPoolExecutor() as threads:
        shown = threads.submit(world.get, "alice", number)
        wait_until((folder / "waits").exists, "the file is waited for")
        assert_equal(api.get("/livez").status, 200, "livez")
        world.issue("bob")
        assert_equal((shown.result().status, shown.result().header("Retry-After")), (503, "1"), "the number")
    assert_equal(world.get("alice", number).status, 503, "another look does not wait for long either")
    (folder / "hangs").unlink()
    wait_until(lambda: world.get("alice", number).status == 200, "the keys were read again")
    assert_equal(api.text().count("the file of the card keys does not answer"), 1, "reports")


@test
def card_keys_change_without_a_restart(world):
    keys = world.dir / "card.keys"
    first = world.suite.keys_file.read_text()
    write_secret(keys, first)
    world.settings["card.keys_file"] = keys
    world.up()
    shown = {user: world.issue(user)["card"]["id"] for user in ("alice",)}
    write_secret(keys, first.replace(" active ", " decrypt ") + "2 active %s\n" % ("ab" * 32))
    for daemon in (*world.apis(), *world.workers()):  # who reads first, then who writes
        assert_equal(errors(hang_up(daemon)), [], "errors")
    shown["bob"] = world.issue("bob")["card"]["id"]
    for user, card in shown.items():
        assert_equal(world.get(user, "/v1/cards/%s/number" % card).status, 200, "the number of " + user)
    assert_equal(world.sql("SELECT string_agg(DISTINCT encode(substr(number_record, 2, 4), 'hex'), ' ') FROM cards"),
                 "00000001 00000002", "the keys that were used")
    write_secret(keys, "3 active %s\n" % ("cd" * 32))
    for daemon in (*world.apis(), *world.workers()):
        reported = errors(hang_up(daemon))
        assert_true(len(reported) == 1 and reported[0].startswith("card.keys_file: "),
                    "the key in use is missing: %r" % reported)
    for user, card in shown.items():
        assert_equal(world.get(user, "/v1/cards/%s/number" % card).status, 200, "the number of %s, still" % user)


@test
def sighup_never_ends_a_daemon(world):
    """At its start, a thousand at once, and while it drains."""
    def catches(daemon):
        with open("/proc/%d/status" % daemon.pid) as status:
            line = next(line for line in status if line.startswith("SigCgt:"))
        with open("/proc/%d/comm" % daemon.pid) as name:
            return name.read().startswith("issuing") and int(line.split()[1], 16) & 1
    world.start_sandbox()
    for start in (world.start_api, world.start_worker):
        daemon = start(wait_ready=False)
        wait_until(lambda daemon=daemon: catches(daemon), "it has come to its first lines", every=0.0005)
        for _ in range(100):
            daemon.signal(signal.SIGHUP)
        daemon.wait_ready()
        wait_until(lambda daemon=daemon: READ_AGAIN in daemon.text(), "what came early is not forgotten")
        for _ in range(1000):
            daemon.signal(signal.SIGHUP)
        hang_up(daemon)
        assert_equal(daemon.get("/readyz").status, 200, "/readyz")
    api, worker = world.apis()[0], world.workers()[0]
    world.sandbox.fault("create", "delay", delay_ms=500)
    request = world.accept("alice")
    wait_until(lambda: world.sandbox.calls("create"), "a create is on its way")
    for daemon in (worker, api):
        daemon.expected_dead = True
        daemon.signal(signal.SIGTERM)
        while daemon.alive():
            daemon.signal(signal.SIGHUP)
        assert_equal(daemon.ended(1), 0, "exit status of " + daemon.name)
    world.sandbox.clear()
    world.start_worker()
    world.wait_status(request, "COMPLETED")
    assert_equal(len(world.sandbox.cards()), 1, "cards")


@test
def further_sigterms_do_not_change_how_a_daemon_ends(world):
    """Story: a supervisor sent SIGTERM twice. The second signal arrived after the handler was closed and before the
    process had ended, so a shutdown in good order ended with status 143 and was reported as a failure."""
    world.start_sandbox()
    for start in (world.start_api, world.start_worker):
        daemon = start(clock=processes.Preloaded("slow_end"))
        daemon.expected_dead = True
        while daemon.alive():
            daemon.signal(signal.SIGTERM)
        assert_equal(daemon.ended(1), 0, "exit status of " + daemon.name)


@test
def half_heads_of_others_do_not_keep_a_probe_from_its_answer(world):
    """A local process opened connections with half a head, the probe was turned away, and a healthy api was
    restarted."""
    world.up(workers=0)
    admin = world.apis()[0].admin
    wires = []
    for path in ("/livez", "/readyz", "/metrics"):
        wires += [client.Wire(admin).send(b"GET /livez HTTP/1.1\r\nX: ") for _ in range(100)]
        assert_equal(client.call(admin, "GET", path).status, 200, path)
    for wire in wires:
        wire.close()
