"""Peers and the database go away and come back: no accepted request is lost, none ends because it waited, and all
programs recover by themselves."""
import itertools
import re
import threading
import time

import client
from harness import assert_equal, assert_true, core, free_port, slow, STUCK_AFTER_S, test, wait_until

UUID = "00000000-0000-7000-8000-000000000001"


class Clients:
    """Clients that repeat the same key until they get a 202, as clients must. Every answer is recorded."""

    def __init__(self, world, count, keys):
        self.world, self.keys = world, keys
        self.accepted, self.wrong, self.refused = {}, [], 0
        self.stop_at = None
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        for i in range(self.keys):
            user, key = "user-%d-%d" % (number, i), "key-%d" % i
            for turn in range(3):  # the last ones are repeats of an accepted one
                self.until_accepted(user, key, number + i + turn)

    def until_accepted(self, user, key, turn):
        deadline = time.monotonic() + STUCK_AFTER_S
        while time.monotonic() < deadline:
            apis = self.world.apis()
            try:
                answer = self.world.post(user, key, api=apis[turn % len(apis)], timeout=20)
            except (OSError, client.Closed):
                turn += 1
                time.sleep(0.05)
                continue
            if answer.status == 202:
                if self.accepted.setdefault((user, key), answer.body) != answer.body:
                    self.wrong.append("two answers for %s" % user)
                return
            self.refused += 1
            if answer.status not in (409, 503) or not answer.header("Retry-After"):
                self.wrong.append(answer)
                return
            time.sleep(0.05)
        self.wrong.append("%s was never accepted" % user)

    def join(self):
        for thread in self.threads:
            thread.join(2 * STUCK_AFTER_S)
        assert_equal(self.wrong, [], "wrong answers to clients")
        return self.accepted


@core
@slow
@test
def without_the_database_there_is_503_and_it_comes_back_by_itself(world):
    world.up()
    first = world.post("alice", "k")
    world.settle()
    daemons = [*world.apis(), *world.workers()]
    try:
        world.suite.stop_database()
        paths = ("/v1/card-requests", "/v1/card-requests/" + UUID, "/v1/cards", "/v1/cards/" + UUID,
                 "/v1/cards/%s/number" % UUID)
        port = world.apis()[0].port
        answers = client.burst([(port, world.post_bytes("alice", "k")), (port, world.post_bytes("alice", "k2"))] +
                               [(port, client.request_bytes("GET", path, [world.bearer("alice")])) for path in paths])
        for answer in answers:
            assert_equal((answer.status, answer.json()["type"], answer.header("Idempotent-Replayed")),
                         (503, "/problems/unavailable", None), "without a database")
            assert_true(int(answer.header("Retry-After")) >= 1, "Retry-After")
        assert_equal(world.get("alice", "/v1/nowhere").status, 404, "what needs no database")
        for daemon in daemons:
            wait_until(lambda daemon=daemon: daemon.get("/readyz").status == 503, daemon.name + " is not ready")
            assert_equal(daemon.get("/livez").status, 200, daemon.name + " lives")
        for words in (("status",), ("list",), ("explain", UUID), ("replay", UUID, "--reason", "x"), ("doctor",)):
            assert_equal(world.ctl(*words).returncode, 75, "ctl " + words[0])
    finally:
        world.suite.start_database()
    for daemon in daemons:
        daemon.wait_ready()
    answer = world.post("alice", "k")
    assert_equal((answer.status, answer.body, answer.header("Idempotent-Replayed")), (202, first.body, "true"),
                 "the repeat")
    world.issue("bob")


def restart_under_load(world, how):
    world.up(apis=2, workers=2)
    clients = Clients(world, 6, 12)
    wait_until(lambda: len(clients.accepted) > 5, "load")
    world.suite.restart_database(how)
    before = len(clients.accepted)
    wait_until(lambda: len(clients.accepted) > before + 5 or not any(thread.is_alive() for thread in clients.threads),
               "load goes on")
    world.suite.restart_database(how)
    accepted = clients.join()
    for api in world.apis():
        # Sessions that are idle then are replaced. The database is away only if that fails.
        assert_true(re.search('"msg":"(database away|an idle database session was ended)', api.text()),
                    "%s saw the database go" % api.name)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events"), str(len(accepted)), "events")
    assert_equal(len(accepted), 72, "accepted requests")
    world.settle(60)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), "72", "completed")
    assert_equal(len(world.sandbox.cards()), 72, "cards")


@test
def a_restart_of_the_database_under_load_loses_and_doubles_nothing(world):
    restart_under_load(world, "fast")


@slow
@test
def a_crash_of_the_database_under_load_loses_and_doubles_nothing(world):
    restart_under_load(world, "immediate")


@test(database__connections="2")
def killed_database_sessions_under_load_lose_and_double_nothing(world):
    world.up(apis=2, workers=2)
    clients = Clients(world, 6, 10)
    kills = 0
    while any(thread.is_alive() for thread in clients.threads) and kills < 60:
        world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"
                  " application_name LIKE 'issuing-%'"
                  " ORDER BY random() LIMIT 3")
        kills += 1
        time.sleep(0.05)
    accepted = clients.join()
    world.settle(60)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), str(len(accepted)),
                 "completed")
    assert_equal(len(world.sandbox.cards()), len(accepted), "cards")


# What is due is seen at once: these stories wait for a number of tries.
SOON = {"worker__poll_interval": "50ms", "retry__base": "10ms", "retry__cap": "20ms"}
PROBING = {"breaker__failures": "3", "breaker__probe_interval": "10ms", "retry__max_attempts": "4", **SOON}


def failed_probes(world):
    return sum(worker.metric('issuing_deferrals_total{reason="issuer_unreachable"}') for worker in world.workers())


@slow
@test(**PROBING)
def an_issuer_outage_uses_no_attempts_and_ends_with_no_dead_row(world):
    world.up(workers=2)
    world.sandbox.down()
    requests = [world.accept("user-%d" % i) for i in range(40)]
    for worker in world.workers():
        wait_until(lambda worker=worker: worker.metric('issuing_breaker_state{target="issuer"}') == 2,
                   "the breaker of %s is open" % worker.name)
    probes_before, questions_before = failed_probes(world), len(world.sandbox.calls("check"))
    wait_until(lambda: failed_probes(world) >= probes_before + 12, "twelve failed probes", 60)
    questions = len(world.sandbox.calls("check")) - questions_before
    under_way = len(world.workers())
    assert_true(questions <= failed_probes(world) - probes_before + under_way,
                "core-api is called for a probe and for nothing else")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status IN ('FAILED', 'REJECTED')"), "0",
                 "dead rows")
    assert_equal(int(world.sql("SELECT sum(retry_count) FROM outbox_events WHERE status = 'PENDING'")) <= 6, True,
                 "attempts: those that opened the breakers")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE first_sent_at IS NOT NULL AND status = 'PENDING'"),
                 "0",
                 "surely nothing was sent")
    for worker in world.workers():
        assert_equal(worker.get("/readyz").status, 200, "an open breaker does not matter to readyz")
    world.sandbox.down(down=False)
    world.settle(60)
    assert_equal([world.status(request) for request in requests], ["COMPLETED"] * 40, "statuses")
    assert_equal([card["sends"] for card in world.sandbox.cards()], [1] * 40, "sends")
    # A breaker closes when something is there to probe with.
    numbers = itertools.count()
    wait_until(lambda: world.accept("later-%d" % next(numbers)) and
               all(worker.metric('issuing_breaker_state{target="issuer"}') == 0 for worker in world.workers()),
               "both breakers are closed")
    world.settle()


@slow
@test(**PROBING)
def a_failed_probe_is_no_attempt_whatever_the_failure_is(world):
    """One event alone meets every probe of an outage: it must outlive them all."""
    world.up(workers=0)
    for i, (call, fault, members) in enumerate((("create", "status", {"status": 503}), ("create", "drop", {}),
                                                ("create", "create_then_drop", {}),
                                                ("check", "status", {"status": 500}), ("check", "drop", {}),
                                                ("link", "status", {"status": 502}))):
        world.sandbox.fault(call, fault, **members)
        worker = world.start_worker()
        request = world.accept("user-%d" % i)
        target = "issuer" if call == "create" else "core"
        wait_until(lambda: worker.metric_sum("issuing_deferrals_total") >= 6 and
                   worker.metric('issuing_breaker_state{target="%s"}' % target) == 2, "six probes")
        event = world.event(request)
        assert_true(event["status"] in ("PENDING", "PROCESSING") and event["retry_count"] <= 4,
                    "%s %s: %s" % (call, fault, event))
        world.sandbox.clear()
        world.wait_status(request, "COMPLETED")
        assert_equal(worker.stop(), 0, "exit status")
    assert_equal([len(world.sandbox.cards(user="user-%d" % i)) for i in range(6)], [1] * 6, "cards")


@slow
@test(**PROBING)
def an_outage_of_core_api_uses_no_attempts_either(world):
    world.up()
    world.sandbox.down("core")
    requests = [world.accept("user-%d" % i) for i in range(20)]
    worker = world.workers()[0]
    wait_until(lambda: worker.metric('issuing_breaker_state{target="core"}') == 2, "the breaker is open")
    wait_until(lambda: worker.metric('issuing_deferrals_total{reason="core_unreachable"}') >= 7, "seven failed probes",
               60)
    assert_equal(world.sandbox.calls("create"), [], "creates: no eligibility was checked")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status IN ('FAILED', 'REJECTED')"), "0",
                 "dead rows")
    world.sandbox.down("core", False)
    world.settle(60)
    assert_equal([world.status(request) for request in requests], ["COMPLETED"] * 20, "statuses")
    assert_true(int(world.sql("SELECT sum(retry_count) FROM outbox_events")) <= 20 + 3, "attempts")


@test(breaker__failures="3")
def core_api_may_be_away_when_the_card_is_there(world):
    world.up()
    world.sandbox.fault("link", "status", status=503)
    request = world.accept("alice")
    worker = world.workers()[0]
    wait_until(lambda: world.sql("SELECT count(*) FROM cards") == "1" and
               worker.metric('issuing_breaker_state{target="core"}') == 2, "the card is stored, the breaker open")
    body = world.get("alice", "/v1/card-requests/" + request).json()
    assert_equal((body["status"] in ("PENDING", "PROCESSING"), body["card"]), (True, None),
                 "not shown before it is linked")
    assert_equal(world.get("alice", "/v1/cards").json()["items"], [], "cards")
    world.sandbox.clear()
    world.wait_status(request, "COMPLETED")
    assert_equal(world.sandbox.cards()[0]["sends"], 1, "sends")


@core
@slow
@test(breaker__failures="2")
def while_the_breaker_is_open_nothing_but_probes_is_sent(world):
    world.settings["breaker.probe_interval"] = "400ms"
    world.up()
    world.sandbox.fault("create", "status", status=503)
    for i in range(30):
        world.accept("user-%d" % i)
    worker = world.workers()[0]
    wait_until(lambda: worker.metric('issuing_breaker_state{target="issuer"}') == 2, "open")
    sent = len(world.sandbox.calls("create"))
    begun = time.monotonic()
    wait_until(lambda: len(world.sandbox.calls("create")) >= sent + 2, "two probes")
    assert_true(time.monotonic() - begun > 0.7, "probes double their distance from 400 ms")
    assert_true(len(world.sandbox.calls("create")) <= sent + 3, "sends while it was open")
    world.sandbox.clear()
    world.settle(60)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), "30", "completed")


@slow
@test
def everything_may_start_before_anything_is_there(world):
    """No database of that name, no schema, no issuer, no core-api: the daemons wait, and then it works."""
    database, world.database = world.database, "late_" + world.database
    issuer, core = free_port(), free_port()
    world.reserve_peers(issuer, core)
    api, worker = world.start_api(wait_ready=False), world.start_worker(wait_ready=False)
    try:
        for daemon in (api, worker):
            wait_until(lambda daemon=daemon: daemon.get("/livez").status == 200, daemon.name + " lives")
            assert_equal(daemon.get("/readyz").status, 503, daemon.name)
        assert_equal(world.post("alice", "k").status, 503, "a request")
        world.suite.sql("CREATE DATABASE " + world.database)
        wait_until(lambda: b"schema" in api.get("/readyz").body.lower() or
                   b"version" in api.get("/readyz").body.lower(),
                   "the api says that the schema is missing")
        assert_equal(world.post("alice", "k").status, 503, "a request without a schema")
        assert_equal(world.ctl("status").returncode, 78, "ctl without a schema")
        assert_equal(world.ctl("migrate", role="postgres").returncode, 0, "migrate")
        api.wait_ready()
        worker.wait_ready()
        request = world.accept("alice")
        wait_until(lambda: world.event(request)["last_error"], "an attempt without peers")
        world.start_sandbox(issuer=issuer, core=core)
        world.wait_status(request, "COMPLETED")
    finally:
        world.suite.sql("DROP DATABASE IF EXISTS " + database)


@slow
@test
def a_database_that_is_there_and_refuses_is_named_in_the_log(world):
    """Story: the disk of the database was full. Clients got 503, /readyz was 200, and the api's log had not one
    line."""
    world.up(workers=0)
    api = world.apis()[0]
    world.sql("CREATE FUNCTION public.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION"
              " 'No space left on device' USING ERRCODE = 'disk_full'; END $$;"
              " CREATE TRIGGER is_full BEFORE INSERT ON issuing.outbox_events"
              " FOR EACH ROW EXECUTE FUNCTION public.full()")
    assert_equal(world.post("alice", "k").status, 503, "while the disk is full")
    assert_true("could not be recorded in time" in api.text() and "No space left on device" in api.text(), "the log")
    answer = api.get("/readyz")
    assert_true(answer.status == 503 and b"No space left on device" in answer.body, answer.body)
    world.sql("DROP TRIGGER is_full ON issuing.outbox_events; DROP FUNCTION public.full()")
    assert_equal(world.post("alice", "k").status, 202, "afterwards, with the same key")
    api.wait_ready()
