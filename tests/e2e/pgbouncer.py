"""A real PgBouncer between the programs and PostgreSQL. In transaction mode each transaction may run in another session
of the server, which has run transactions of other programs before. Settings, prepared statements, LISTEN and locks of a
session may be missing, or may be those of another program, so nothing may depend on them. What needs one session
(migrate) is refused with the reason, and changes nothing. A restart of PgBouncer ends every connection in the middle of
its work; no request is lost by that or done twice."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import client
import crashes
import outages
import proxies
from harness import (assert_equal, assert_true, ENVIRONMENT, free_port, Program, psql, ROOT, Skipped, slow, test,
                     wait_until)

ROLES = ("postgres", "issuing_owner", "issuing_api", "issuing_worker", "issuing_operator")


class PgBouncer(Program):
    """examples/pgbouncer.ini, as it is shipped but for addresses, passwords and sizes. Every role has `sessions`
    sessions of the server, which take turns (server_round_robin), so that two transactions of one connection rarely
    share one. is_peer: it ends after the daemons, as a database does."""

    is_peer = True

    def __init__(self, world, mode="transaction", sessions=3, connect_query=True):
        path = shutil.which("pgbouncer", path=ENVIRONMENT["PATH"] + ":/usr/sbin:/sbin")
        if not path:
            raise Skipped("pgbouncer is not installed")
        self.world, self.port = world, free_port()
        folder = world.dir / "pgbouncer"
        folder.mkdir()
        users = folder / "users"
        users.write_text("".join('"%s" ""\n' % role for role in (*ROLES, "pgbouncer")))
        host = re.search(r"host=(\S+)", world.conninfo("postgres")).group(1)
        shipped = (ROOT / "examples" / "pgbouncer.ini").read_text()
        if not connect_query:
            shipped = re.sub(r" connect_query='.*", "", shipped)
        (folder / "pgbouncer.ini").write_text(proxies.replaced(
            shipped, ("issuing = host=127.0.0.1 port=5432", "* = host=%s port=5432" % host),
            ("listen_port = 6432", "listen_port = %d" % self.port), ("scram-sha-256", "trust"),
            ("/etc/pgbouncer/userlist.txt", str(users)), ("pool_mode = transaction", "pool_mode = " + mode),
            ("default_pool_size = 20", "default_pool_size = %d\nserver_round_robin = 1" % sessions)) +
            "admin_users = pgbouncer\n" + ("user = postgres\n" if os.getuid() == 0 else ""))
        super().__init__("pgbouncer", [path, folder / "pgbouncer.ini"], world.dir / "pgbouncer.log")
        world.programs.append(self)
        self.wait_serving()

    def conninfo(self, role, database=None):
        return "host=127.0.0.1 port=%d dbname=%s user=%s" % (self.port, database or self.world.database, role)

    def wait_serving(self):
        def serves():
            assert_true(self.alive(), "pgbouncer ended: " + self.text()[-2000:])
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
                return True
            return False
        wait_until(serves, "pgbouncer serves")
        return self

    def _sum(self, column):
        pools = [row.split("|") for row in psql("SHOW pools", self.conninfo("pgbouncer", "pgbouncer")).splitlines()]
        return sum(int(row[column]) for row in pools if row[0] == self.world.database)

    def waiting(self):
        """How many connections of our programs wait for a session."""
        return self._sum(3)

    def sessions(self):
        """How many are in use."""
        return self._sum(6)

    def signal(self, number):
        """PgBouncer's word for an orderly end; SIGTERM ends it on the spot."""
        super().signal(signal.SIGINT if number == signal.SIGTERM else number)

    def stop(self, *_):
        """From 1.23 on the first SIGTERM waits for the clients, and the second one ends it on the spot."""
        self.popen.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(1)
        return super().stop()


def up(world, pooler, apis=1, workers=1, **own):
    world.start_sandbox()
    daemons = [world.start_api(wait_ready=False, database__url=pooler.conninfo("issuing_api"), **own)
               for _ in range(apis)]
    daemons += [world.start_worker(wait_ready=False, database__url=pooler.conninfo("issuing_worker"), **own)
                for _ in range(workers)]
    for daemon in daemons:
        daemon.wait_ready()


def ctl(world, pooler, *arguments, role="issuing_operator"):
    return world.ctl(*arguments, role=role, database__url=pooler.conninfo(role))


def says(world, pooler, verb):
    """{check: line}"""
    done = ctl(world, pooler, verb)
    return {line.split()[1]: line for line in done.stdout.splitlines() if line[:2] in ("ok", "wa", "FA")}


def sessions(world, role):
    return int(world.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = '%s' AND"
                         " datname = current_database()" % role))


def nothing_was_lost_or_doubled(world, pooler, accepted):
    """accepted: what outages.Clients were told."""
    world.settle(60)
    assert_equal(int(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'")), len(accepted),
                 "completed")
    assert_equal(int(world.sql("SELECT count(*) FROM outbox_events")), len(accepted), "events")
    assert_equal(len(world.sandbox.cards()), len(accepted), "cards")
    found = says(world, pooler, "prove")
    for check in ("accepted", "limits", "completed", "cards", "ends", "reissues"):
        assert_true(found[check].startswith("ok "), "prove: " + found[check])


def every_call_works(world, pooler):
    waited = world.post("waiting", "k", headers=[("Prefer", "wait=30")])
    assert_equal((waited.status, waited.json()["status"]), (201, "COMPLETED"), "a card that was waited for")
    again = world.post("waiting", "k", api=world.apis()[-1])
    assert_equal((again.status, again.header("Idempotent-Replayed")), (202, "true"), "a repeat")
    card = world.get("waiting", "/v1/cards").json()["items"][0]
    number = world.get("waiting", "/v1/cards/%s/number" % card["id"]).json()["number"]
    assert_equal(number[-4:], card["last4"], "the number")
    reissued = world.issue("waiting", "k2", {"kind": "reissue", "replaces": card["id"]})
    assert_equal(reissued["status"], "COMPLETED", "a reissue")
    world.sandbox.fault("create", "status", status=418, user="teapot")
    failed = world.accept("teapot")
    world.wait_status(failed, "FAILED")
    world.sandbox.clear()
    explained = ctl(world, pooler, "explain", failed)
    assert_true(explained.returncode == 0 and "issuer_http_418" in explained.stdout, "explain: " + explained.stdout)
    for words in (("status",), ("list", "--status", "FAILED"), ("reconcile", failed),
                  ("replay", failed, "--reason", "it is tea time")):
        done = ctl(world, pooler, *words)
        assert_equal(done.returncode, 0, "%s: %s%s" % (words[0], done.stdout, done.stderr))
    world.wait_status(failed, "COMPLETED")


@test
def behind_transaction_pooling_every_call_works_and_the_programs_say_so(world):
    """Two apis and two workers keep 20 connections; each role has three sessions of the server, taken in turn."""
    pooler = PgBouncer(world)
    up(world, pooler, apis=2, workers=2)
    clients = outages.Clients(world, 6, 8)
    every_call_works(world, pooler)
    accepted = clients.join()
    for role in ("issuing_api", "issuing_worker"):
        assert_true(0 < sessions(world, role) <= 3, "%d sessions of %s" % (sessions(world, role), role))
    for daemon in (*world.apis(), *world.workers()):
        assert_true('"pooler":"a pooler is in between' in daemon.text(),
                    "%s says that there is a pooler" % daemon.name)
        errors = {name: value for name, value in daemon.metrics().items()
                  if name.startswith("issuing_db_errors_total") and value}
        assert_equal(errors, {}, "errors of the database that %s has seen" % daemon.name)
    assert_true("a pooler is in between" in says(world, pooler, "doctor")["connection"], "doctor sees the pooler")
    assert_true("direct" in world.ctl("doctor").stdout, "and sees that there is none")
    nothing_was_lost_or_doubled(world, pooler, [*accepted, "waiting", "waiting", "teapot"])


@test
def migrate_behind_a_pooler_is_refused_and_leaves_nothing_in_its_sessions(world):
    """The lock and the role would stay in a session that somebody else gets next."""
    pooler = PgBouncer(world, sessions=2)
    for words in (("migrate",), ("migrate", "--status"), ("migrate", "--plan")):
        done = ctl(world, pooler, *words, role="postgres")
        assert_equal((done.returncode, done.stdout), (78, ""), " ".join(words))
        assert_true("a pooler is between this program and PostgreSQL" in done.stderr and "database.url" in done.stderr,
                    "what to do: " + done.stderr)
    assert_equal(world.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 4711"), "0",
                 "locks that were left")
    assert_equal([psql("SELECT current_user", pooler.conninfo("postgres")) for _ in range(4)], ["postgres"] * 4,
                 "the role of the next transactions")
    assert_equal(world.ctl("migrate", role="postgres").returncode, 0, "a direct one")


@test
def behind_session_pooling_every_call_works_and_wakeups_arrive(world):
    pooler = PgBouncer(world, "session", sessions=20)
    up(world, pooler, apis=2)
    every_call_works(world, pooler)
    assert_equal(world.workers()[0].stop(), 0, "exit status")
    # A worker that looks once in an hour has nothing but its wake-ups. One may be lost, so the next one counts as well.
    worker = world.start_worker(database__url=pooler.conninfo("issuing_worker"), worker__poll_interval="1h")
    accepted = [*outages.Clients(world, 3, 4).join()]

    def woken():
        accepted.append("woken-%d" % len(accepted))
        request = world.accept(accepted[-1])
        deadline = time.monotonic() + 10
        while world.status(request) != "COMPLETED" and time.monotonic() < deadline:
            time.sleep(0.1)
        return world.status(request) == "COMPLETED"
    wait_until(woken, "a wake-up arrives")
    assert_equal(worker.stop(), 0, "exit status")
    world.start_worker(database__url=pooler.conninfo("issuing_worker"))
    nothing_was_lost_or_doubled(world, pooler, [*accepted, "waiting", "waiting", "teapot"])


@slow
@test
def a_session_pool_that_is_too_small_is_named_as_the_cause(world):
    pooler = PgBouncer(world, "session", sessions=2)
    world.start_sandbox()
    first = world.start_api(database__url=pooler.conninfo("issuing_api"), database__connections="2")
    wait_until(lambda: pooler.sessions() == 2, "it has both sessions")
    second = world.start_api(wait_ready=False, database__url=pooler.conninfo("issuing_api"))
    wait_until(lambda: b"a pooler has no session left" in second.get("/readyz").body, "readyz names the cause")
    assert_true(pooler.waiting() > 0, "connections that wait for a session")
    assert_equal(world.post("alice", "k", api=second).status, 503, "a request to the one without a session")
    assert_equal(world.post("alice", "k", api=first).status, 202, "the other one serves")
    assert_equal(first.stop(), 0, "exit status")
    second.wait_ready()
    assert_equal(world.post("alice", "k", api=second).header("Idempotent-Replayed"), "true", "a repeat")
    world.start_worker()
    world.settle()


def is_busy(clients):
    return any(thread.is_alive() for thread in clients.threads)


def restarts_under_load(world, mode, count):
    pooler = PgBouncer(world, mode, sessions=3 if mode == "transaction" else 30)
    up(world, pooler, apis=2, workers=2)
    clients = outages.Clients(world, 6, 25)
    restarts = 0
    while restarts < count and is_busy(clients):
        before = len(clients.accepted)
        wait_until(lambda before=before: len(clients.accepted) > before + 4 or not is_busy(clients), "load", 60)
        if restarts % 2:
            pooler.stop()
        else:
            pooler.kill()
        pooler.start()
        pooler.wait_serving()
        restarts += 1
    assert_true(restarts > 1, "restarts under load")
    nothing_was_lost_or_doubled(world, pooler, clients.join())
    for daemon in (*world.apis(), *world.workers()):
        daemon.wait_ready()


@test
def a_restart_of_pgbouncer_under_load_loses_and_doubles_nothing(world):
    restarts_under_load(world, "transaction", 4)


@slow
@test
def a_restart_of_pgbouncer_in_session_mode_loses_and_doubles_nothing(world):
    restarts_under_load(world, "session", 4)


@test
def sessions_that_end_behind_pgbouncer_lose_and_double_nothing(world):
    """The server ends them in the middle of transactions, and PgBouncer the connections that they served."""
    pooler = PgBouncer(world)
    up(world, pooler, apis=2, workers=2)
    clients = outages.Clients(world, 6, 10)
    kills = 0
    while is_busy(clients) and kills < 60:
        world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"
                  " usename IN ('issuing_api', 'issuing_worker') ORDER BY random() LIMIT 2")
        kills += 1
        time.sleep(0.05)
    assert_true(kills > 1, "kills under load")
    nothing_was_lost_or_doubled(world, pooler, clients.join())


@test
def a_flood_of_requests_in_one_turn_keeps_each_answer_with_its_request(world):
    """Pipelined transactions of one connection run in several sessions, and others' between them."""
    pooler = PgBouncer(world, sessions=2)
    up(world, pooler, apis=2, workers=1)
    asked = [("user-%d" % (i % 40), "key-%d" % i) for i in range(200)]
    answers = client.burst([(world.apis()[i % 2].port, world.post_bytes(user, key))
                            for i, (user, key) in enumerate(asked)])
    assert_equal({answer.status for answer in answers}, {202}, "statuses")
    rows = {(row["user_id"], row["idempotency_key"]): row["id"]
            for row in world.rows("SELECT id, user_id, idempotency_key FROM outbox_events")}
    assert_equal([answer.json()["id"] for answer in answers], [rows[pair] for pair in asked], "each has its own id")
    reads = client.burst([(world.apis()[i % 2].port,
                           client.request_bytes("GET", "/v1/card-requests/" + rows[pair], [world.bearer(pair[0])]))
                          for i, pair in enumerate(asked)])
    assert_equal([answer.json()["id"] for answer in reads], [rows[pair] for pair in asked], "each reads its own")
    world.settle(60)


HOSTILE = (("client_min_messages", "error"), ("default_transaction_isolation", "serializable"),
           ("synchronous_commit", "off"))


def hostile(world, setting, value):
    world.sql("ALTER DATABASE %s SET %s = %s" % (world.database, setting, value))


@test
def settings_of_the_database_change_nothing_behind_the_shipped_pooler(world):
    for setting, value in HOSTILE:
        hostile(world, setting, value)
    pooler = PgBouncer(world)
    up(world, pooler)
    assert_equal({psql("SELECT concat_ws(', ', %s)" % ", ".join("current_setting('%s')" % name for name, _ in HOSTILE),
                       pooler.conninfo("issuing_api")) for _ in range(6)}, {"warning, read committed, on"}, "of the sessions")
    world.issue("alice")
    crashes.a_cancelled_commit_is_not_confirmed(world)
    assert_equal(ctl(world, pooler, "status").returncode, 0, "status")


@test
def a_session_of_a_pooler_with_a_setting_that_changes_outcomes_is_not_used(world):
    """No session there is ours to set. What is wrong and what helps is said by all programs."""
    pooler = PgBouncer(world, connect_query=False)
    for setting, value in HOSTILE:
        hostile(world, setting, value)
        psql("RECONNECT", pooler.conninfo("pgbouncer", "pgbouncer"))
        api = world.start_api(wait_ready=False, database__url=pooler.conninfo("issuing_api"))
        said = "sessions have %s = %s" % (setting, value)
        wait_until(lambda said=said, api=api: said in api.get("/readyz").body.decode(), "readyz names it: " + said)
        assert_equal(world.post("alice", "k", api=api).status, 503, "a request")
        done = ctl(world, pooler, "status")
        assert_equal(done.returncode, 78, "status: " + done.stdout + done.stderr)
        assert_true(said in done.stderr and "connect_query" in done.stderr, "what helps: " + done.stderr)
        world.sql("ALTER DATABASE %s RESET %s" % (world.database, setting))
        psql("RECONNECT", pooler.conninfo("pgbouncer", "pgbouncer"))
        assert_equal(world.post("alice", setting, api=api.wait_ready()).status, 202, "afterwards")
        assert_equal(api.stop(), 0, "exit status")
