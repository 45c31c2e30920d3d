"""Administrators of PostgreSQL change a host, a database or a role, and tell nobody: the promise holds, and doctor
names the change.

Stories: A host was upgraded, and its library sorted texts in another order. An index that had the old order did not
find a client's key, so the same request was recorded twice and got a second card. Somebody published all tables to
replicate the data, and no end was notified any more. A slot that nobody read kept the rows and the WAL of a week. A
time limit for idle sessions made the api not ready every few minutes of a quiet night."""
import threading
import time

from harness import assert_equal, assert_true, psql, psql_program, run, slow, test, wait_until
from operators import doctor
from receiver import receiver, route
from webhooks import TYPE, wait_known, wait_notified


def sorted_by(world, language):
    """This world's database in that language of ICU, migrated."""
    world.drop_database()
    world.suite.sql("CREATE DATABASE %s TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE '%s' LOCALE 'C.UTF-8'"
                    % (world.database, language))
    done = world.ctl("migrate", role="postgres")
    assert_equal(done.returncode, 0, done.stdout + done.stderr)


def sort_otherwise(world, language):
    """The library sorts otherwise from now on, as that language does: what each new session sees."""
    column = world.sql("SELECT attname FROM pg_attribute WHERE attrelid = 'pg_database'::regclass AND"
                       " attname IN ('daticulocale', 'datlocale')")
    world.close_lookers()
    world.suite.sql("UPDATE pg_database SET %s = '%s' WHERE datname = '%s'" % (column, language, world.database))


def said(world, check, **own):
    return " ".join(row["found"] for row in doctor(world, **own) if row["check"] == check)


@test
def a_key_is_found_when_the_host_sorts_otherwise(world):
    users = ("aaron", "bob", "carl", "zoe", "aase", "mia", "lea")
    sorted_by(world, "en-US")
    sandbox = world.start_sandbox()
    api, worker = world.start_api(), world.start_worker()
    ids = {user: world.accept(user, "tap-1") for user in users}
    world.wait_final(list(ids.values()))
    api.stop(), worker.stop()
    sort_otherwise(world, "da")  # `aa` sorts behind `z`
    assert_equal(world.sql("SELECT 'aaron' > 'zoe'"), "t", "the order of a new session")
    world.restart(api), world.restart(worker)
    for user in users:
        answer = world.post(user, "tap-1")
        assert_equal((answer.status, answer.json()["id"]), (202, ids[user]), "the repeat of " + user)
    world.settle()
    assert_equal(len(sandbox.cards()), len(users), "cards")
    world.suite.sql("UPDATE pg_database SET datcollversion = '1.2' WHERE datname = '%s'" % world.database)
    assert_equal(world.ctl("status").stderr, "", "the warning of each new session")
    assert_true("version 1.2 of its collation" in said(world, "collation"), "doctor")


@test
def ends_are_notified_while_all_tables_are_published(world):
    with receiver(world, "/hook") as service:
        route(world, service, TYPE)
        world.up()
        wait_known(world)
        world.sql("CREATE PUBLICATION everything FOR ALL TABLES")
        for user in ("alice", "bob"):
            world.issue(user)
        wait_notified(world, 2)
        wait_until(lambda: world.sql("SELECT count(*) FROM statistics_changes") == "0", "the statistics follow")
        assert_true("none stops a change" in said(world, "publications"), "doctor")
        world.sql("ALTER TABLE end_notifications REPLICA IDENTITY DEFAULT")
        assert_true("cannot be changed, and work on them waits: end_notifications" in said(world, "publications"), "doctor")
        world.sql("ALTER TABLE end_notifications REPLICA IDENTITY FULL")


@slow
@test
def what_holds_vacuum_back_is_named(world):
    """A slot holds WAL from its first moment; a session and a prepared transaction count from 15 minutes on."""
    clock = world.own_database()
    assert_true("holds it back" in said(world, "vacuum"), "nothing does")
    api = world.start_api()
    wait_until(lambda: 0 < api.metric("issuing_db_oldest_row_transactions") < 1e6, "the oldest row")
    assert_equal(api.metric("issuing_db_slot_wal_bytes"), 0, "no slot")
    world.sql("SELECT pg_create_physical_replication_slot('forgotten', true)")
    world.sql("SELECT count(pg_logical_emit_message(false, 'x', repeat('x', 1000))) FROM generate_series(1, 3000)")
    wait_until(lambda: api.metric("issuing_db_slot_wal_bytes") > 3e6, "the slot's WAL")
    assert_true("slot forgotten, which nobody reads" in said(world, "vacuum"), "the slot")
    with world.holding("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1"):
        assert_true("snapshot" not in said(world, "vacuum", role="postgres"), "a young one")
        world.sql("DO $$ BEGIN FOR i IN 1..300 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
        wait_until(lambda: api.metric("issuing_db_oldest_snapshot_transactions") >= 300, "the snapshot's age")
        clock.step(20 * 60)
        assert_true("role postgres, state idle in transaction: for 20 min" in said(world, "vacuum", role="postgres"),
                    said(world, "vacuum", role="postgres"))


@test
def a_session_that_listens_and_does_not_read_fails_no_sender(world):
    """Any role that may connect can fill the queue of notifications of the whole cluster. Once it is full, each
    transaction that notifies fails, at its COMMIT: also a sender's own."""
    world.sql("CREATE ROLE passerby")
    try:
        world.may_send("passerby", "CHARGE")
        send = (psql_program(), "-XAtd", world.conninfo("postgres"), "-c", "LISTEN issuing_wake", "-c",
                "SET ROLE passerby", "-c", "SELECT issuing.enqueue('CHARGE', 'alice', '{}')", "-c",
                "SELECT issuing.hint('issuing_wake')", "-c", "SELECT 1")
        notified = 'Asynchronous notification "issuing_wake" '
        assert_equal(run(send).stdout.count(notified), 2, "notifications")
        with world.holding("COMMIT; SET ROLE passerby; LISTEN x; BEGIN; SELECT 1"):
            world.sql("SELECT count(pg_notify('x', repeat('x', 7900) || n)) FROM generate_series(1, 12000) AS g (n)")
            done = run(send)
            assert_equal((done.returncode, notified in done.stdout), (0, False), done.stderr)
            assert_true("% of their queue are full" in said(world, "wake-ups"), "doctor")
            world.up()
            world.issue("alice")
        wait_until(lambda: "they are read" in said(world, "wake-ups"), "doctor, afterwards")
        assert_equal(run(send).stdout.count(notified), 2, "notifications, afterwards")
    finally:
        world.sql("DROP OWNED BY passerby; DROP ROLE passerby")


@test(database__connections="3")
def sessions_that_are_ended_while_they_are_idle_are_replaced_unnoticed(world):
    """A night's limit of idle sessions (ours have none), and an administrator who ends what does nothing."""
    world.sql("ALTER DATABASE %s SET idle_session_timeout = '1s'" % world.database)
    world.up(worker__poll_interval="1h")
    api = world.apis()[0]
    idle = "datname = current_database() AND application_name = 'issuing-api' AND state = 'idle'"
    wait_until(lambda: world.sql("SELECT count(*) FROM pg_stat_activity WHERE " + idle) == "3", "all sessions are up")
    time.sleep(2)
    assert_true("was ended" not in api.text(), "the limit ended none: " + api.text())
    world.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE " + idle)
    statuses = []

    def is_replaced():
        statuses.append(api.get("/readyz").status)
        return world.sql("SELECT count(*) FROM pg_stat_activity WHERE " + idle) == "3"

    wait_until(is_replaced, "each has another in its place")
    assert_equal(set(statuses), {200}, "readyz")
    text = api.text()
    assert_true("terminating connection due to administrator command (SQLSTATE 57P01)" in text, text)
    assert_true("database away" not in text, text)
    world.issue("alice")


@test
def a_role_that_holds_our_sessions_back_is_named(world):
    lock = "SELECT pg_advisory_xact_lock(4711, 99)"
    with world.holding(lock):
        process = world.sql("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 99")
        wait_until(lambda: "process %s of role postgres holds 1 advisory locks, since " % process in said(world, "locks"),
                   "a lock that nobody waits for")
        waiting = threading.Thread(target=psql, args=(lock, world.conninfo("issuing_operator")))
        waiting.start()
        wait_until(lambda: "our sessions wait for process %s of role postgres" % process in said(world, "locks"),
                   "doctor names it")
    waiting.join()


@test
def a_housekeeping_that_does_not_pass_is_named_with_who_keeps_it(world):
    world.sql("UPDATE housekeeping_clock SET passed_at = now() - interval '2 h', steady_from = now(), clock_at = now()")
    assert_true("the last pass was 2 h ago" in said(world, "housekeeping"), "no worker: " + said(world, "housekeeping"))
    with world.holding("SELECT issuing.take_job_lock('housekeeping')"):
        text = said(world, "housekeeping")
        assert_true("ago, and its lock is held by process " in text and "role postgres" in text, text)
    world.sql("UPDATE housekeeping_clock SET passed_at = now() + interval '2 h'")
    assert_true("in the future" in said(world, "housekeeping"), "a clock that was ahead")
    world.sql("INSERT INTO partition_plans VALUES ('outbox_events', now(), now() + interval '1 d', now() - interval '1 h')")
    assert_true("a plan is outstanding: outbox_events from " in said(world, "housekeeping"), "a plan")


@test
def workers_of_two_versions_are_named(world):
    world.sql("INSERT INTO workers (name, host, pid, version, started_at, seen_at, in_flight, slots) SELECT 'h:' || n, 'h',"
              " n, '1.0.' || n, now(), clock_timestamp(), 0, 1 FROM generate_series(1, 2) AS g (n)")
    text = said(world, "workers")
    assert_true(all(part in text for part in ("2 run, of different versions: ", "h:1 has 1.0.1", "h:2 has 1.0.2")), text)
