"""A standby takes over. The old primary is frozen meanwhile, with sessions on it, and the first host of the list does
not answer. Requests are accepted again as soon as there is a new primary, nothing is written to the old one when it
continues, and until then the programs say in which state each host is."""
import contextlib
import os
import pathlib
import re
import secrets
import signal
import socket
import threading
import time

from harness import assert_equal, assert_true, CLUSTER, core, Failed, psql, run, slow, STUCK_AFTER_S, test, wait_until

API_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'issuing-api'"


class Standby:
    """Of the world's own database. `old` and `new`: the hosts, which are sockets; `dead`: one that says nothing."""

    def __init__(self, world):
        self.world = world
        world.own_database()
        self.folder = world.dir / "standby"
        made = run([CLUSTER, "standby", self.folder, world.dir / "pg"], 900)
        if made.returncode != 0:
            raise Failed("no standby: " + made.stderr)
        self.old, self.new = (re.search(r"host=(\S+)", text).group(1) for text in (world.base, made.stdout))
        self.dead = "@issuing-dead-%s" % secrets.token_hex(8)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0%s/.s.PGSQL.5432" % self.dead[1:])
        self.listener.listen(64)
        self.frozen = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thaw()
        self.listener.close()
        self.world.kill_all()
        run([CLUSTER, "stop", self.folder])

    def url(self, role):
        return "host=%s,%s,%s port=5432 dbname=issuing user=%s target_session_attrs=read-write" % (
            self.dead, self.old, self.new, role)

    def sql(self, text):
        """On the standby, which may be the primary by now."""
        return psql(text, "host=%s port=5432 dbname=issuing user=postgres" % self.new)

    def freeze(self):
        """The old primary: the server and each of its processes."""
        data = str(self.world.dir / "pg" / "data")
        for link in pathlib.Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                if os.readlink(link) == data:
                    os.kill(int(link.parent.name), signal.SIGSTOP)
                    self.frozen.append(int(link.parent.name))
        assert_true(self.frozen, "the server is found")

    def thaw(self):
        for pid in self.frozen:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        self.frozen = []

    def catch_up(self):
        """Replication is asynchronous here: what is accepted before the failover is to be there."""
        lsn = self.world.sql("SELECT pg_current_wal_lsn()")
        wait_until(lambda: self.sql("SELECT pg_last_wal_replay_lsn() >= '%s'" % lsn) == "t", "the standby has it")

    def promote(self):
        """No session waits for it: a standby ends those that are in the way of what it still replays."""
        assert_equal(self.sql("SELECT pg_promote(false)"), "t", "asked")
        wait_until(lambda: self.sql("SELECT pg_is_in_recovery()") == "f", "promoted", 60)


@slow
@test(database__connections="4")
def a_primary_that_stands_still_is_left_when_a_standby_is_promoted(world):
    with Standby(world) as standby:
        world.start_sandbox()
        api = world.start_api(database__url=standby.url("issuing_api"))
        first = world.post("alice", "k", api=api)
        assert_equal(first.status, 202, "before")
        wait_until(lambda: world.sql(API_SESSIONS) == "4", "all sessions are on the primary")
        standby.catch_up()
        standby.freeze()
        answers = []
        hanging = threading.Thread(target=lambda: answers.append(world.post("bob", "k", api=api)))
        hanging.start()
        standby.promote()
        promoted = time.monotonic()
        wait_until(lambda: world.post("carol", "k", api=api, timeout=40).status == 202, "accepted again", 60)
        print("       accepted %.2f s after the promotion" % (time.monotonic() - promoted))
        # No query is under way: the sessions that are idle on the old primary are not asked for.
        wait_until(lambda: standby.sql(API_SESSIONS) == "4", "all sessions are on the new primary")
        hanging.join(STUCK_AFTER_S)
        assert_true(answers and answers[0].status in (202, 503), "the one in flight: %r" % answers)
        standby.thaw()
        wait_until(lambda: world.sql(API_SESSIONS) == "0", "no session goes back")
        again, repeat = world.post("alice", "k", api=api), world.post("bob", "k", api=api)
        assert_equal((again.status, again.body, repeat.status), (202, first.body, 202), "repeats")
        assert_equal(world.post("dave", "k", api=api).status, 202, "a new one")
        # What was sent to it before it stood still may be done there, unless a fence stops it.
        assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE user_id = 'dave'"), "0", "on the old primary")
        assert_equal(standby.sql("SELECT string_agg(user_id, ' ' ORDER BY user_id) FROM issuing.outbox_events"),
                     "alice bob carol dave", "on the new primary")


@slow
@test(database__connections="4")
def without_a_primary_readiness_says_which_host_is_what(world):
    with Standby(world) as standby:
        world.start_sandbox()
        api = world.start_api(database__url=standby.url("issuing_api"))
        assert_equal(api.metric('issuing_db_away{cause="no_primary"}'), 0, "the cause")
        run([CLUSTER, "stop", world.dir / "pg"])
        why = "no primary among 3 hosts: %s does not answer, %s refuses connections, %s is a standby\n" % (
            standby.dead, standby.old, standby.new)
        wait_until(lambda: api.get("/readyz").body.decode() == why, "the reason: %r" % why, 30)
        assert_equal(api.get("/readyz").status, 503, "not ready")
        assert_equal(api.metric('issuing_db_away{cause="no_primary"}'), 1, "the cause")
        assert_true("is a standby" in api.text(), "the log")
        refused = world.post("alice", "k", api=api)
        assert_equal((refused.status, bool(refused.header("Retry-After"))), (503, True), "no primary")
        standby.promote()
        api.wait_ready()
        assert_equal(world.post("alice", "k", api=api).status, 202, "accepted")


@slow
@test
def ctl_does_not_wait_for_a_host_that_says_nothing(world):
    with Standby(world) as standby:
        status = world.ctl("status", database__url=standby.url("issuing_operator") + " connect_timeout=60")
        assert_equal(status.returncode, 0, "status: " + status.stderr)
        run([CLUSTER, "stop", world.dir / "pg"])
        away = world.ctl("status", database__url=standby.url("issuing_operator") + " connect_timeout=2")
        assert_equal(away.returncode, 75, "no primary")
        why = "no primary among 3 hosts: %s does not answer, %s refuses connections, %s is a standby" % (
            standby.dead, standby.old, standby.new)
        assert_true(why in away.stderr, "%r in %r" % (why, away.stderr))


def start_both(world, standby):
    world.start_sandbox()
    return (world.start_api(database__url=standby.url("issuing_api")),
            world.start_worker(database__url=standby.url("issuing_worker")))


@core
@slow
@test
def a_crash_and_a_promotion_that_lose_nothing_need_no_operator(world):
    with Standby(world) as standby:
        api, worker = start_both(world, standby)
        world.issue("alice")
        world.close_lookers()
        assert_equal(run([CLUSTER, "restart", world.dir / "pg", "immediate"], 900).returncode, 0, "a crash")
        wait_until(lambda: world.post("bob", "k").status == 202, "accepted after the crash")
        worker.wait_ready()
        world.wait_final([world.post("bob", "k").json()["id"]])
        standby.catch_up()
        world.close_lookers()
        run([CLUSTER, "stop", world.dir / "pg"])
        standby.promote()
        for daemon in (api, worker):
            daemon.wait_ready()
            assert_true("acknowledged" not in daemon.text(), daemon.text())
        world.base = "host=%s port=5432 dbname=issuing" % standby.new
        world.issue("carol")
        assert_equal(world.sql("SELECT count(*) FROM histories WHERE lost IS NULL"), "1", "histories")


@slow
@test
def a_standby_that_was_behind_is_not_used_until_an_operator_accepts_it(world):
    with Standby(world) as standby:
        api, _ = start_both(world, standby)
        world.issue("alice")
        standby.catch_up()
        assert_equal(run([CLUSTER, "stop", standby.folder]).returncode, 0, "the standby ends")
        for number in range(20):
            world.accept("bob-%d" % number)
        world.close_lookers()
        run([CLUSTER, "stop", world.dir / "pg"])
        run([CLUSTER, "start", standby.folder], 900)
        standby.promote()
        world.base = "host=%s port=5432 dbname=issuing" % standby.new
        world.allowed.add("orphan")
        why = "%s lacks acknowledged commits" % standby.new
        wait_until(lambda: why in api.get("/readyz").body.decode(), "the reason: %r" % why)
        assert_equal(world.post("bob-0", "k").status, 503, "a repeat")
        assert_equal(api.metric('issuing_db_away{cause="lost"}'), 1, "the cause")
        assert_equal(world.ctl("accept-history", "--reason", "they are lost").returncode, 0, "accept-history")
        for daemon in (*world.apis(), *world.workers()):
            daemon.wait_ready()
        world.issue("carol")
