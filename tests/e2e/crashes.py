"""A worker dies between any two lines, or is stopped for longer than its lease: still one card is made, and no worker
overwrites what another one has written.

A fault holds the worker at a step (the peer does not answer, or a lock keeps its write waiting); then it is killed
there. SHORT keeps leases short.
"""
import concurrent.futures
import contextlib
import select
import signal
import subprocess
import time

from client import Closed, Wire, request_bytes
from harness import (alone, assert_equal, assert_true, core, ENVIRONMENT, psql_program, slow, STUCK_AFTER_S,
                     test, wait_until)

SHORT = {"issuer__timeout": "500ms", "core__timeout": "500ms", "worker__lease": "2s"}
# Longer than a busy machine takes to come to the next line.
LONG = {"issuer__timeout": "20s", "issuer__settle_time": "40s", "core__timeout": "20s", "worker__lease": "90s"}
# Of a worker that is stopped in the middle of a call: it is not over by itself before.
PATIENT = {"issuer__timeout": "5s", "issuer__settle_time": "10s", "worker__lease": "30s"}


def creates(world, request):
    return len(world.sandbox.calls("create", reference=request))


def killed_at(world, call, fault, prepare=None, **members):
    """The worker dies while that call of it is unanswered; another takes over. Returns the event."""
    world.sandbox.fault(call, fault, user="alice", **members)
    worker = world.start_worker()
    request = world.accept("alice")
    wait_until(lambda: world.sandbox.calls(call, user="alice"), "the %s call" % call)
    worker.kill()
    world.sandbox.clear()
    wait_until(lambda: world.status(request) == "PROCESSING",
               "what it held")  # a check leaves before the claim is committed
    world.start_worker()
    event = world.wait_status(request, "COMPLETED", "FAILED", "REJECTED")
    assert_equal(event["status"], "COMPLETED", "the end")
    assert_equal([(row["outcome"], row["attempt"]) for row in world.attempts(request)], [("lost", 1), ("completed", 1)],
                 "attempts on record")
    return event


@test(**SHORT)
def killed_while_it_calls_core_api(world):
    world.up(workers=0)
    event = killed_at(world, "check", "hang")
    assert_equal(creates(world, event["id"]), 1, "creates")


@test(**SHORT)
def killed_between_the_issuers_answer_and_the_save(world):
    """The card is known to that process alone: a lock on the table keeps the save waiting until the process is dead,
    and its statement is undone."""
    world.up(workers=0)
    worker = world.start_worker()
    with world.holding("LOCK TABLE cards IN SHARE MODE"):
        request = world.accept("alice")
        wait_until(lambda: world.blocked() == 1, "the save waits")
        worker.kill()
        world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"
                  " wait_event_type = 'Lock'")
        wait_until(lambda: world.blocked() == 0, "its session is gone")
    assert_equal(world.sql("SELECT count(*) FROM cards"), "0", "cards")
    world.start_worker()
    assert_equal(world.wait_status(request, "COMPLETED", "FAILED")["status"], "COMPLETED", "the end")
    assert_equal((creates(world, request), len(world.sandbox.cards())), (2, 1), "creates and cards")


@test(**SHORT)
def killed_between_the_save_and_the_link(world):
    world.up(workers=0)
    event = killed_at(world, "link", "hang")
    assert_equal(creates(world, event["id"]), 1, "creates: the card was stored")
    assert_equal(len(world.sandbox.calls("check", user="alice")), 1, "checks")


@slow
@test(**SHORT)
def killed_when_core_api_has_linked_and_not_answered(world):
    world.up(workers=0)
    event = killed_at(world, "link", "create_then_hang")
    assert_equal(creates(world, event["id"]), 1, "creates")
    assert_equal([link["count"] for link in world.sandbox.ledger()["links"]], [2], "the same link twice")


@test(**LONG)
def killed_between_the_link_and_the_end(world):
    world.up(workers=0)
    worker = world.start_worker()
    world.sandbox.fault("link", "delay", delay_ms=2500)
    request = world.accept("alice")
    wait_until(lambda: world.sandbox.calls("link"), "the link call")
    with world.holding("SELECT FROM outbox_events FOR UPDATE"):
        wait_until(lambda: world.blocked() == 1, "the end waits")
        worker.kill()
        world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"
                  " wait_event_type = 'Lock'")
        wait_until(lambda: world.blocked() == 0, "its session is gone")
    world.sandbox.clear()
    assert_equal(world.status(request), "PROCESSING", "status")
    world.sql("UPDATE outbox_events SET lease_until = clock_timestamp()")
    world.start_worker()
    assert_equal(world.wait_status(request, "COMPLETED", "FAILED")["status"], "COMPLETED", "the end")
    assert_equal((creates(world, request), [link["count"] for link in world.sandbox.ledger()["links"]]), (1, [2]),
                 "creates and links")


@slow
@test(retry__max_attempts="3", **SHORT)
def killed_while_it_looks_up_or_cancels(world):
    world.up(workers=0)
    for user, call, second in (("looks-up", "lookup", "status"), ("cancels", "cancel", "ineligible")):
        world.sandbox.fault("create", "create_then_hang", user=user, count=1)
        if second == "status":
            world.sandbox.fault("create", "status", user=user, status=422)
            world.sandbox.fault("lookup", "hang", count=1)
        else:
            world.sandbox.fault("check", "ineligible", user=user, skip=1)
            world.sandbox.fault("cancel", "create_then_hang", user=user, count=1)
        worker = world.start_worker()
        request = world.accept(user)
        wait_until(lambda call=call, request=request: world.sandbox.calls(call, reference=request),
                   "the %s call" % call)
        worker.kill()
        world.start_worker()
        world.wait_status(request, "COMPLETED", "REJECTED")
        world.workers()[-1].stop()
        world.sandbox.clear()
    assert_equal(world.rows("SELECT user_id, status FROM outbox_events ORDER BY created_at"),
                 [{"user_id": "looks-up", "status": "COMPLETED"}, {"user_id": "cancels", "status": "REJECTED"}], "ends")


@slow
@test(retry__max_attempts="3", **SHORT)
def an_event_that_kills_its_worker_every_time_is_looked_up_and_then_a_question(world):
    """Attempts that are lost with their worker are counted: a poisonous event does not go round for ever."""
    world.up(workers=0)
    world.sandbox.fault("create", "hang", user="poison")
    world.sandbox.fault("create", "create_then_hang", user="made")
    events = poison, made = world.accept("poison"), world.accept("made")

    def sent():
        return sum(creates(world, request) for request in events)

    def are_over():
        return all(world.status(request) in ("FAILED", "COMPLETED") for request in events)
    while not are_over():
        before, worker = sent(), world.start_worker()
        wait_until(lambda before=before: sent() > before or are_over(), "another create call, or the ends", 60)
        worker.kill()
    assert_equal([(world.status(request), world.event(request)["reason_code"]) for request in events],
                 [("FAILED", "worker_lost"), ("COMPLETED", None)], "ends")
    assert_true(max(creates(world, request) for request in events) <= 4, "the last attempt only looks up")


@slow
@test(**SHORT)
def a_worker_that_slept_through_its_lease_writes_nothing(world):
    """SIGSTOP while the issuer answers; another worker finishes; then SIGCONT."""
    world.up(workers=0)
    stale = world.start_worker(**PATIENT)
    world.sandbox.fault("create", "delay", delay_ms=2500, count=1)
    request = world.accept("alice")
    wait_until(lambda: creates(world, request) == 1, "the create call")
    stale.signal(signal.SIGSTOP)
    world.sql(RUN_OUT)
    fresh = world.start_worker()
    event = world.wait_status(request, "COMPLETED")
    cards = world.rows("SELECT * FROM cards")
    stale.signal(signal.SIGCONT)
    wait_until(lambda: stale.metric("issuing_in_flight") == 0, "the stale one has let go")
    assert_equal(stale.metric("issuing_lease_lost_total"), 1.0, "issuing_lease_lost_total")
    assert_equal(fresh.metric("issuing_lease_lost_total"), 0.0, "of the other")
    assert_equal((world.event(request), world.rows("SELECT * FROM cards")), (event, cards),
                 "rows after the stale one woke up")
    assert_equal([(row["outcome"]) for row in world.attempts(request)], ["lost", "completed"], "attempts")
    assert_equal(len(world.sandbox.cards()), 1, "cards")


@slow
@test(**SHORT)
def a_stale_worker_cannot_end_what_another_one_holds(world):
    """Both are alive and the second is in the middle of it when the first wakes up: neither its failure nor its card
    may be written."""
    world.up(workers=0)
    stale = world.start_worker(**PATIENT)
    world.sandbox.fault("create", "hang", user="alice", count=1)
    world.sandbox.fault("create", "delay", user="bob", delay_ms=2500, count=1)
    requests = [world.accept(user) for user in ("alice", "bob")]
    for request in requests:
        wait_until(lambda request=request: creates(world, request) == 1, "the create call")
    stale.signal(signal.SIGSTOP)
    world.sandbox.fault("check", "delay", user="alice", delay_ms=10000, count=1)
    world.sandbox.fault("link", "delay", user="bob", delay_ms=10000, count=1)
    world.sql(RUN_OUT)
    fresh = world.start_worker(core__timeout="20s", worker__lease="2m")
    wait_until(lambda: all((world.event(request)["lease_owner"] or "").endswith(":%d" % fresh.pid)
                           for request in requests), "the other one holds both")
    tokens = [world.event(request)["lease_token"] for request in requests]
    stale.signal(signal.SIGCONT)
    wait_until(lambda: stale.metric("issuing_in_flight") == 0, "the stale one has let go")
    assert_equal([world.event(request)["lease_token"] for request in requests], tokens, "still the other one's")
    assert_equal(stale.metric("issuing_lease_lost_total"), 2.0, "issuing_lease_lost_total")
    for request in requests:
        event = world.wait_status(request, "COMPLETED", "FAILED")
        assert_equal((event["status"], event["retry_count"]), ("COMPLETED", 1), "the end")
    assert_equal(fresh.metric("issuing_lease_lost_total"), 0.0, "of the other")


STEAL = ("UPDATE outbox_events SET lease_token = gen_random_uuid(), lease_owner = 'another',"
         " lease_until = clock_timestamp() + interval '1 h'")
# Once what the story looks at was seen: the other's lease has run out.
RUN_OUT = "UPDATE outbox_events SET lease_until = clock_timestamp()"


@core
@slow
@test(**LONG)
def a_save_whose_lease_was_lost_while_it_waited_stores_nothing(world):
    """The issuer's answer is in hand and the save on its way; the row is taken over under its eyes. The statement
    itself must see to it."""
    world.up()
    world.sandbox.fault("create", "delay", delay_ms=2500)
    request = world.accept("alice")
    wait_until(lambda: creates(world, request) == 1, "the create call")
    worker = world.workers()[0]
    with world.holding(STEAL, end="COMMIT"):
        wait_until(lambda: world.blocked() == 1, "the save waits")
    wait_until(lambda: worker.metric("issuing_lease_lost_total") == 1, "issuing_lease_lost_total")
    assert_equal(world.sql("SELECT count(*) FROM cards"), "0", "cards")
    assert_equal(world.event(request)["lease_owner"], "another", "whose it is")
    world.sandbox.clear()
    world.sql(RUN_OUT)
    assert_equal(world.wait_status(request, "COMPLETED", "FAILED")["status"], "COMPLETED",
                 "when the other's lease has run out")


@slow
@test(**LONG)
def an_end_whose_lease_was_lost_while_it_waited_changes_nothing(world):
    world.up()
    world.sandbox.fault("link", "delay", delay_ms=2500)
    request = world.accept("alice")
    wait_until(lambda: world.sandbox.calls("link"), "the link call")
    worker = world.workers()[0]
    with world.holding(STEAL, end="COMMIT"):
        wait_until(lambda: world.blocked() == 1, "the end waits")
    wait_until(lambda: worker.metric("issuing_lease_lost_total") == 1, "issuing_lease_lost_total")
    event = world.event(request)
    assert_equal((event["status"], event["lease_owner"], event["completed_at"]), ("PROCESSING", "another", None),
                 "the row")
    assert_equal(world.attempts(request), [], "attempts on record")
    world.sandbox.clear()
    world.sql(RUN_OUT)
    world.wait_status(request, "COMPLETED")


# Looks from before the claim on: a look that begins with the second link call comes late on a busy machine.
SEE_EXTENDED = """DO $$
BEGIN
    WHILE (SELECT status IN ('PENDING', 'PROCESSING') FROM outbox_events WHERE id = '%(id)s') LOOP
        IF (SELECT lease_until > updated_at + interval '2100 ms' FROM outbox_events WHERE id = '%(id)s') THEN
            RETURN;
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RAISE 'the lease was not extended';
END
$$"""


@slow
@test(issuer__max_concurrency="1", **SHORT)
def a_lease_is_extended_while_an_event_waits_for_its_turn(world):
    """A call begins only when the lease outlasts it. The second event waits 450 ms for core-api, 450 ms for the first
    one's create
    call, 450 ms for its own: for the link the 2 s no longer suffice."""
    world.up(workers=0)
    world.sandbox.fault("check", "delay", delay_ms=450, count=2)
    world.sandbox.fault("create", "delay", delay_ms=450)
    requests = [world.accept("user-%d" % i) for i in range(2)]
    world.sandbox.fault("link", "delay", delay_ms=400)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        extended = {request: pool.submit(world.sql, SEE_EXTENDED % {"id": request}) for request in requests}
        worker = world.start_worker()
        wait_until(lambda: len(world.sandbox.calls("link")) == 2, "the second link call")
        extended[world.sandbox.calls("link")[1]["reference"]].result()
    world.settle()
    assert_equal({(world.event(request)["status"], world.event(request)["retry_count"]) for request in requests},
                 {("COMPLETED", 1)}, "both at the first attempt")
    assert_equal(worker.metric("issuing_lease_lost_total"), 0.0, "leases lost")


@slow
@test(issuer__max_concurrency="1", issuer__timeout="1s", core__timeout="100ms", worker__lease="2200ms")
def events_that_were_taken_away_while_they_waited_for_their_turn_are_not_sent(world):
    """One whose turn comes when the lease no longer suffices requests a longer one, and the answer is that the
    lease is not its own."""
    world.up(workers=0)
    for turn in range(5):
        world.sandbox.fault("create", "hang", count=1)
        for name in ("a", "b"):
            world.accept("%s-%d" % (name, turn))
        worker = world.start_worker()
        wait_until(lambda: worker.metric("issuing_in_flight") and world.sandbox.calls("create"), "one is being sent")
        sent = [call["reference"] for call in world.sandbox.calls("create")]
        waiting = world.rows("SELECT id FROM outbox_events WHERE id <> '%s' AND status = 'PROCESSING' AND retry_count"
                             " = 1"
                             " AND updated_at = (SELECT updated_at FROM outbox_events WHERE id = '%s')" % (sent[-1],
                                                                                                           sent[-1]))
        if len(waiting) == 1 and len(sent) == 1:
            stolen = world.sql(STEAL + " WHERE id = '%s' AND status = 'PROCESSING' RETURNING id" % waiting[0]["id"])
            if stolen:
                wait_until(lambda: worker.metric("issuing_lease_lost_total") == 1, "issuing_lease_lost_total")
            if stolen and creates(world, waiting[0]["id"]) == 0:
                break
        # A slow machine: they were not claimed together, or core-api took too long, or the turn came before this look.
        worker.kill()
        world.sql("UPDATE outbox_events SET lease_until = clock_timestamp() WHERE status = 'PROCESSING'")
        world.start_worker()
        world.settle()
        world.workers()[-1].stop()
        world.sandbox.control_call("POST", "/reset", "")
        world.sql("TRUNCATE outbox_events, outbox_attempts, cards, idempotency_keys")
    assert_equal(creates(world, waiting[0]["id"]), 0, "creates for it")
    assert_equal(world.event(waiting[0]["id"])["lease_owner"], "another", "whose it is")
    world.sql("UPDATE outbox_events SET lease_until = clock_timestamp() WHERE status = 'PROCESSING'")
    world.settle()
    assert_equal(len(world.sandbox.cards()), 2, "cards at the issuer")


@slow
@test(worker__max_in_flight="16", **SHORT)
def two_workers_killed_at_random_moments_under_load(world):
    """Claim, save and end have no peer to hold them: so many kills at any moment."""
    world.up(workers=2, limit__count="1000")
    requests = [world.accept("user-%d" % (i % 50), "k%d" % i) for i in range(150)]
    world.sandbox.fault("create", "delay", delay_ms=30)
    for i in range(14):
        victim = world.workers()[i % 2]
        time.sleep(0.02 + 0.013 * (i * 7 % 11))
        victim.kill()
        world.restart(victim, wait_ready=False)
    world.settle(90)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), str(len(requests)),
                 "completed")
    assert_equal(sorted(card["reference"] for card in world.sandbox.cards()), sorted(requests), "cards: one for each")


@slow
@test
def two_workers_share_the_load_and_never_an_event(world):
    world.up(workers=2)
    world.sandbox.fault("create", "delay", delay_ms=20)
    for i in range(200):
        world.accept("user-%d" % i)
    world.settle(60)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED' AND retry_count = 1"), "200",
                 "completed at the first attempt")
    assert_equal(world.sql("SELECT count(DISTINCT lease_owner) FROM outbox_events"), "2", "workers that had some")
    assert_equal({card["sends"] for card in world.sandbox.cards()}, {1}, "sends")
    assert_equal([worker.metric("issuing_lease_lost_total") for worker in world.workers()], [0.0, 0.0], "leases lost")


CLAIM_LOCK = "SELECT pg_advisory_xact_lock(4712)"


def at_commit_of_a_claim(world, doing):
    """The rows of a claim are there; this comes between them and its commit."""
    world.sql("CREATE OR REPLACE FUNCTION at_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %s; RETURN NULL; END"
              " $$" % doing)


def commits_of_claims_may_wait(world, doing=CLAIM_LOCK.replace("SELECT", "PERFORM")):
    """While another session holds the lock. No worker runs yet: its claims and the trigger could wait for each
    other."""
    at_commit_of_a_claim(world, doing)
    world.sql("CREATE CONSTRAINT TRIGGER at_claim AFTER UPDATE ON outbox_events DEFERRABLE INITIALLY DEFERRED FOR EACH"
              " ROW WHEN (OLD.status = 'PENDING' AND NEW.status = 'PROCESSING') EXECUTE FUNCTION at_claim()")


def checks_executed(worker):
    return worker.metric('issuing_step_total{step="check",outcome="executed"}')


def stored_and_not_linked(world, user):
    """An event whose next attempt begins at link; no worker runs."""
    world.sandbox.fault("link", "status", user=user, status=503)
    worker = world.start_worker()
    request = world.accept(user)
    wait_until(lambda: world.attempts(request), "an attempt that could not link")
    assert_equal(worker.stop(), 0, "exit status")
    assert_equal((world.status(request), world.sql("SELECT count(*) FROM cards")), ("PENDING", "1"),
                 "stored, not linked")
    world.sandbox.clear()
    return request


@slow
@test
def before_a_claim_is_committed_nothing_leaves(world):
    """The commit waits, as on a slow disk or for a replica. A call or a write would stand on a claim that may still be
    undone."""
    world.up(workers=0)
    stored = stored_and_not_linked(world, "bob")
    links, before = len(world.sandbox.calls("link")), world.event(stored)["retry_count"]
    commits_of_claims_may_wait(world)
    with world.holding(CLAIM_LOCK):
        fresh = world.accept("alice")
        worker = world.start_worker()
        wait_until(lambda: world.blocked() == 1, "the claim waits for its commit")
        assert_equal(checks_executed(worker), 0.0, "questions")
        assert_equal((creates(world, fresh), len(world.sandbox.calls("link"))), (0, links), "creates and links")
        assert_equal([world.status(request) for request in (fresh, stored)], ["PENDING"] * 2, "nothing is committed")
        assert_equal(worker.metric("issuing_in_flight"), 0.0, "events held")
    world.settle()
    assert_equal([world.event(request)["retry_count"] for request in (fresh, stored)], [1, before + 1],
                 "one attempt each")
    assert_equal([row["outcome"] for row in world.attempts(fresh)], ["completed"], "attempts of the one")
    assert_equal((creates(world, fresh), creates(world, stored)), (1, 1), "creates")
    assert_equal((len(world.sandbox.calls("check", user="alice")), worker.metric("issuing_lease_lost_total")), (1, 0.0),
                 "questions and lost leases")


@test
def a_claim_whose_commit_fails_leaves_nothing(world):
    """And a database that commits nothing does not make every poll a question to core-api."""
    world.up(workers=0)
    stored = stored_and_not_linked(world, "bob")
    links, before = len(world.sandbox.calls("link")), world.event(stored)
    commits_of_claims_may_wait(world, "RAISE EXCEPTION 'no'")
    fresh = world.accept("alice")
    worker = world.start_worker()
    wait_until(lambda: worker.metric('issuing_db_errors_total{sqlstate_class="P0"}') >= 4, "claims fail")
    assert_equal((worker.metric("issuing_in_flight"), checks_executed(worker)), (0.0, 0.0), "events held, questions")
    assert_equal((creates(world, fresh), len(world.sandbox.calls("link"))), (0, links), "creates and links")
    event = world.event(fresh)
    assert_equal((event["status"], event["retry_count"], event["first_sent_at"], world.attempts(fresh)),
                 ("PENDING", 0, None, []), "nothing is written")
    assert_equal(world.event(stored), before, "nor of the other one")
    at_commit_of_a_claim(world, "NULL")
    world.settle()
    assert_equal([row["outcome"] for row in world.attempts(fresh)], ["completed"], "attempts")
    assert_equal((creates(world, fresh), worker.metric("issuing_lease_lost_total")), (1, 0.0),
                 "creates and lost leases")


@core
@slow
@test
def a_claim_whose_session_dies_at_its_commit_leaves_nothing(world):
    world.up(workers=0)
    commits_of_claims_may_wait(world)
    worker = world.start_worker()
    with world.holding(CLAIM_LOCK):
        request = world.accept("alice")
        for _ in range(3):
            wait_until(lambda: world.blocked() == 1, "the claim waits")
            world.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND"
                      " datname = current_database()")
        assert_equal((checks_executed(worker), creates(world, request)), (0.0, 0), "questions and creates")
        assert_equal(world.status(request), "PENDING", "status")
    world.settle()
    assert_equal([row["outcome"] for row in world.attempts(request)], ["completed"], "attempts")
    assert_equal((creates(world, request), worker.metric("issuing_lease_lost_total")), (1, 0.0),
                 "creates and lost leases")


@slow
@test
def sigterm_while_a_claim_is_being_committed_hands_its_events_back(world):
    """Committed in time: handed back, no attempt used. Not committed: there is nothing to hand back."""
    world.up(workers=0)
    commits_of_claims_may_wait(world)
    for user in ("committed", "not-committed"):
        with world.holding(CLAIM_LOCK):
            request = world.accept(user)
            worker = world.start_worker()
            wait_until(lambda: world.blocked() == 1, "the claim waits for its commit")
            worker.signal(signal.SIGTERM)
            wait_until(lambda worker=worker: worker.get("/readyz").status == 503, "it is draining")
            if user == "not-committed":
                world.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname ="
                          " current_database() AND wait_event_type = 'Lock'")
        assert_equal(worker.stop(), 0, "exit status")
        event = world.event(request)
        assert_equal((event["status"], event["retry_count"], event["first_sent_at"], creates(world, request)),
                     ("PENDING", 0, None, 0), user)
        assert_equal([row["outcome"] for row in world.attempts(request)], ["deferred"] if user == "committed" else [],
                     user)
        world.start_worker()
        world.wait_status(request, "COMPLETED")
        assert_equal(world.workers()[-1].stop(), 0, "exit status")


def waiting_for_standby(world, role):
    """The server's processes whose commit waits."""
    return set(world.sql("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = '%s' AND"
                         " wait_event = 'SyncRep'" % role).split())


@contextlib.contextmanager
def nothing_gets_to_the_standby(world):
    """A commit that waits for the standby waits for one that there is not."""
    begun = []

    def waits():
        """When the server has taken up the setting is known from a commit that hangs."""
        if not begun or begun[-1].poll() is not None:
            begun.append(subprocess.Popen([psql_program(), "-Xq", "-d", world.conninfo("postgres"), "-c",
                                           "SET synchronous_commit = on", "-c",
                                           "SELECT pg_logical_emit_message(true, 'test', '')"], env=ENVIRONMENT,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL, start_new_session=True))
        return waiting_for_standby(world, "postgres")

    try:
        world.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        world.sql("SELECT pg_reload_conf()")
        wait_until(waits, "commits hang")
        yield
    finally:
        world.sql("ALTER SYSTEM RESET synchronous_standby_names")
        world.sql("SELECT pg_reload_conf()")
        for process in begun:
            process.wait(STUCK_AFTER_S)


def answer_so_far(wire):
    """The status of the answer that has arrived by now; None = no answer."""
    return wire.answer().status if select.select([wire.socket], [], [], 0)[0] else None


@test
def a_request_that_the_standby_may_not_have_is_not_confirmed(world):
    """The session is ended while its commit waits for the standby: then the request is seen here, and perhaps not
    there. A failover would take it away. The api's second try only finds it, and may not answer before the standby has
    it."""
    world.up()
    with Wire(world.apis()[0].port, 40) as wire:
        with nothing_gets_to_the_standby(world):
            wire.send(world.post_bytes("alice", "k"))
            lost = wait_until(lambda: waiting_for_standby(world, "issuing_api"), "the request waits for the standby")
            world.sql("SELECT pg_terminate_backend(%s, 10000)" % lost.pop())
            wait_until(lambda: waiting_for_standby(world, "issuing_api"), "it is tried again, and waits as well")
            request = world.sql("SELECT id FROM outbox_events")
            assert_true(request, "it is seen")
            time.sleep(0.3)
            assert_equal(answer_so_far(wire), None, "answer")
        answer = wire.answer()
    assert_equal((answer.status, answer.json()["id"], answer.header("Idempotent-Replayed")), (202, request, "false"),
                 "answer")
    world.settle()
    assert_equal((world.sql("SELECT count(*) FROM outbox_events"), len(world.sandbox.cards())), ("1", 1),
                 "events and cards")


def a_cancelled_commit_is_not_confirmed(world):
    """While it waits for the standby. PostgreSQL answers with a success and a warning. A failover would take the
    request away."""
    with Wire(world.apis()[0].port, 40) as wire:
        with nothing_gets_to_the_standby(world):
            wire.send(world.post_bytes("alice", "k"))
            cancelled = wait_until(lambda: waiting_for_standby(world, "issuing_api"),
                                   "the request waits for the standby")
            world.sql("SELECT pg_cancel_backend(%s)" % cancelled.pop())
            request = wait_until(lambda: world.sql("SELECT id FROM outbox_events"), "it is seen")
            wait_until(lambda: waiting_for_standby(world, "issuing_api"), "it is tried again, and waits as well")
            assert_equal(answer_so_far(wire), None, "answer")
        answer = wire.answer()
    assert_true(answer.status in (202, 503), "answer: %r" % answer)
    again = world.post("alice", "k")
    assert_equal((again.status, again.json()["id"]), (202, request), "a repeat is answered truthfully")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events"), "1", "events")


@test
def a_commit_that_was_cancelled_while_it_waited_for_the_standby_is_not_confirmed(world):
    world.up(workers=0)
    a_cancelled_commit_is_not_confirmed(world)


@test
def a_cancelled_commit_is_not_confirmed_where_settings_hide_warnings(world):
    """Story: with client_min_messages = error it was confirmed, 202 for what no standby had. Nor where commits are told
    to wait for nothing."""
    for setting in ("client_min_messages = error", "synchronous_commit = off"):
        world.sql("ALTER ROLE issuing_api IN DATABASE %s SET %s" % (world.database, setting))
    world.up(workers=0)
    a_cancelled_commit_is_not_confirmed(world)


@slow
@test(api__max_connections="200", database__connections="3")
def a_standby_that_is_away_does_not_fill_the_server_with_sessions(world):
    """Commits wait for it without end, and neither a time limit nor a closed socket ends them. Clients keep asking."""
    world.up(workers=0)
    api = world.apis()[0]
    spare, listening, rounds_most = 2, 1, 20
    answers, most, seen, rounds = [], 0, set(), 0
    cause = "commits wait for a synchronous standby"

    def sessions():
        return int(world.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
                             " usename = 'issuing_api'"))

    def why_not_ready():
        answer = api.get("/readyz")
        return answer.status == 503 and answer.body.decode().strip()

    with nothing_gets_to_the_standby(world):
        # It is asked while requests are on their way: when the last client has gone, nothing hangs any more. One batch
        # of a busy api may hold a whole round: then it hangs one session only.
        while cause not in seen:
            assert_true(rounds < rounds_most, "the cause is reported: %r" % seen)
            with contextlib.ExitStack() as stack:
                wires = [stack.enter_context(Wire(api.port, 40)) for _ in range(8)]
                for i, wire in enumerate(wires):
                    wire.send(world.post_bytes("user-%d-%d" % (rounds, i), "k"))
                for wire in wires:
                    while not select.select([wire.socket], [], [], 0.2)[0]:
                        most = max(most, sessions())
                        seen.add(why_not_ready())
                    answers.append(wire.answer())
                    seen.add(why_not_ready())
            rounds += 1
        most = max(most, sessions())
        assert_true({answer.status for answer in answers} <= {409, 503},
                    "answers")  # 409: its first try is still at work
        assert_true(all(answer.header("Retry-After") for answer in answers), "Retry-After")
        # With nothing left to look up no client waits: this one would wait for ever otherwise.
        assert_equal(world.post("late", "k").status, 503, "one more")
        assert_true(most <= 3 + spare + listening, "%d sessions" % most)
        assert_true(cause in api.text(), "the log names the cause")
    api.wait_ready()
    wait_until(lambda: sessions() == 3 + listening, "the sessions are as many as before")
    for number in range(rounds):
        for i in range(8):
            assert_equal(world.post("user-%d-%d" % (number, i), "k").status, 202, "a repeat")
    assert_equal(world.sql("SELECT count(*), count(DISTINCT user_id) FROM outbox_events WHERE user_id LIKE 'user-%'"),
                 "%d|%d" % (8 * rounds, 8 * rounds),
                 "events")


@alone
@slow
@test(worker__max_in_flight="8", issuer__max_concurrency="2", issuer__timeout="2s", issuer__settle_time="4s",
      core__timeout="1s",
      worker__lease="6s")
def sigterm_drains_in_time_and_hands_back_what_was_not_sent(world):
    world.up(workers=0)
    world.sandbox.fault("create", "delay", delay_ms=800)
    requests = [world.accept("user-%d" % i) for i in range(20)]
    worker = world.start_worker()
    wait_until(lambda: len(world.sandbox.calls("create")) == 2, "two are being sent, six wait their turn")
    begun = time.monotonic()
    worker.signal(signal.SIGTERM)
    wait_until(lambda: worker.get("/readyz").status == 503 or not worker.alive(), "draining is not ready")
    assert_equal(worker.stop(), 0, "exit status")
    assert_true(time.monotonic() - begun < 2 + 5, "in time: %.1f s" % (time.monotonic() - begun))
    assert_equal(len(world.sandbox.calls("create")), 2, "nothing more was sent")
    rows = world.rows("SELECT status, retry_count, first_sent_at IS NULL AS unsent, EXISTS (SELECT FROM cards c WHERE"
                      " c.request_id = e.id) AS saved"
                      " FROM outbox_events e")
    assert_equal(sorted((row["status"], row["retry_count"], row["unsent"]) for row in rows if not row["saved"]),
                 [("PENDING", 0, True)] * 18,
                 "handed back: no attempt used, surely not sent")
    assert_true({row["status"] for row in rows if row["saved"]} <= {"PENDING", "COMPLETED"},
                "what was sent is saved and held by no worker")
    world.sandbox.clear()
    world.start_worker()
    world.settle()
    assert_equal({world.status(request) for request in requests}, {"COMPLETED"}, "ends")
    assert_equal(len(world.sandbox.calls("create")), 20, "creates: none was sent twice")


@test(issuer__timeout="1s", core__timeout="1s", worker__lease="4s")
def sigterm_waits_for_what_was_sent_and_then_calls_it_unknown(world):
    world.up()
    world.sandbox.fault("create", "create_then_hang", count=1)
    request = world.accept("alice")
    worker = world.workers()[0]
    wait_until(lambda: creates(world, request) == 1, "the create call")
    assert_equal(worker.stop(), 0, "exit status")
    event = world.event(request)
    assert_equal((event["status"], event["first_sent_at"] is not None), ("PENDING", True), "handed back as unknown")
    assert_equal(world.attempts(request)[-1]["unknown"], True, "unknown on record")
    world.restart(worker)
    world.wait_status(request, "COMPLETED")


@test
def sigterm_lets_the_api_answer_what_it_has(world):
    world.up(workers=0)
    api = world.apis()[0]
    with world.holding("SELECT pg_advisory_xact_lock(hashtextextended('alice', salt)) FROM issuing.lock_salt"):
        busy, waiting, idle = Wire(api.port), Wire(api.port), Wire(api.port)
        waiting.send(world.post_bytes("bob", "k", headers=[("Prefer", "wait=30")]))
        wait_until(lambda: api.metric("issuing_waiting_clients") == 1, "bob waits")
        busy.send(world.post_bytes("alice", "k"))
        wait_until(lambda: api.metric("issuing_accept_queue") == 1, "alice's request is being recorded")
        api.signal(signal.SIGTERM)
        answer = waiting.answer()
        assert_equal((answer.status, answer.json()["status"], answer.header("Connection")), (202, "PENDING", "close"),
                     "bob's wait ends early")
        assert_true(idle.is_closed(), "an idle connection is closed")
    answer = busy.answer()
    assert_equal((answer.status, answer.header("Connection")), (202, "close"), "alice's answer")
    assert_equal(api.stop(), 0, "exit status")
    try:
        late = Wire(api.port)
        late.send(request_bytes("GET", "/v1/nowhere")).answer()
        assert_true(False, "it still answers")
    except (OSError, Closed):
        pass
    assert_equal(world.sql("SELECT count(*) FROM outbox_events"), "2", "events")


@core
@slow
@test(worker__lease="2s", issuer__timeout="500ms", core__timeout="500ms", retry__max_attempts="1000",
      limit__count="1000")
def dropped_answers_and_a_kill_every_second_under_load(world):
    """The big one, in short: the issuer makes the card and drops the connection on three of ten calls, and the
    worker is killed every second."""
    world.up(workers=1)
    world.sandbox.fault("create", "create_then_drop", rate=0.3)
    world.sandbox.fault("link", "create_then_drop", rate=0.3)
    worker, requests = world.workers()[0], []
    for second in range(8):
        end = time.monotonic() + 1
        while time.monotonic() < end or len(requests) < 15 * (second + 1):
            requests.append(world.accept("user-%d" % (len(requests) % 100), "k%d" % len(requests)))
            time.sleep(0.005)
        worker.kill()
        world.restart(worker, wait_ready=False)
    world.sandbox.clear()
    world.settle(90)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), str(len(requests)),
                 "completed")
    assert_equal(sorted(card["reference"] for card in world.sandbox.cards()), sorted(requests),
                 "one card at the issuer for each accepted request")
    assert_equal(sorted(link["request_id"] for link in world.sandbox.ledger()["links"]), sorted(requests),
                 "one link for each")
