"""Suite: one run of tests, with its folder below <build>/run, its cluster and a migrated database to copy. Everything
that it starts is ended by process id. @test registers a test; @slow above it keeps it out of the short run, @alone
makes it run when no other test does."""
import functools
import os
import pathlib
import re
import shutil
import signal
import sys

from assertions import Failed
from processes import BUILD, CLUSTER, psql, run
from divided import Divided
from world import World

TESTS = []


def test(function=None, issuers=None, **settings):
    """Marks a test; its name is its sentence. settings as section__key="value" hold for all programs of its world.
    issuers: names of profiles.py; it is a test with each of them then, and its name ends with "at" and the issuer's."""
    def mark(function):
        function.variants = [_variant(function, issuer) for issuer in issuers] if issuers else [function]
        for each in function.variants:
            each.settings = {key.replace("__", "."): value for key, value in settings.items()}
            each.settings.update({"issuer": each.issuer} if issuers else {})
            each.is_slow = each.is_alone = each.is_core = False
            TESTS.append(each)
        return function
    return mark(function) if function else mark


def _variant(function, issuer):
    @functools.wraps(function)
    def story(world):
        return function(world)
    story.__name__ = "%s_at_%s" % (function.__name__, issuer.replace("-", "_"))
    story.issuer = issuer
    return story


def slow(function):
    """Marks a test, above @test, that ./dev test leaves to ./dev test e2e: it takes more than some seconds."""
    return slow_but_at()(function)


def core(function):
    """Marks a @slow story, above @slow, that the continuous integration runs: each kind of trouble has one."""
    return core_at()(function)


def core_at(*issuers):
    """The same, with these issuers only; none named: with all."""
    def mark(function):
        for each in function.variants:
            each.is_core = not issuers or each.issuer in issuers
        return function
    return mark


def alone(function):
    """Marks a story, above @test, that measures a time: it runs when no other does."""
    for each in function.variants:
        each.is_alone = True
    return function


def slow_but_at(*issuers):
    """The same, but not with these issuers."""
    def mark(function):
        for each in function.variants:
            each.is_slow = getattr(each, "issuer", None) not in issuers
        return function
    return mark


class Suite:
    """One run. Use as a context manager; what it started is ended whatever happens."""

    def __init__(self, kind="e2e"):
        self.kind = kind
        self.dir = BUILD / "run" / ("%s-%d" % (kind, os.getpid()))
        self.base = None
        self.worlds = []
        self.keep = False
        self.number = 0
        self.templates = set()  # numbers of places of which there are migrated databases to copy

    def __enter__(self):
        for program in ("issuing-api", "issuing-worker", "issuing-ctl", "issuing-sandbox"):
            if not (BUILD / program).is_file():
                raise SystemExit("%s: %s is missing; build first (./dev build), or set ISSUING_BUILD" %
                                 (self.kind, BUILD / program))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self._sweep()
        self.dir.mkdir(parents=True)
        try:
            self._prepare()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, *_):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for world in self.worlds:
            world.kill_all()
        for cluster in (self.dir / "pg", self.clocked):
            run([CLUSTER, "stop", cluster])
            shutil.rmtree(cluster, ignore_errors=True)
        if not self.keep and kind is None:
            shutil.rmtree(self.dir, ignore_errors=True)
        return False

    @staticmethod
    def _on_signal(number, _):
        raise SystemExit(128 + number)

    def _sweep(self):
        """Removes what a killed run of this kind left."""
        for folder in (BUILD / "run").glob(self.kind + "-*"):
            pid = folder.name.rsplit("-", 1)[1]
            if pid.isdigit() and not self._is_ours(int(pid)):
                for cluster in (folder / "pg", *folder.glob("*/pg")):
                    run([CLUSTER, "stop", cluster])
                shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def _is_ours(pid):
        try:
            return b"run.py" in pathlib.Path("/proc/%d/cmdline" % pid).read_bytes()
        except OSError:
            return False

    def _prepare(self):
        self.secret = os.urandom(48).hex().encode()
        self.secret_file = self.dir / "secret"
        self.secret_file.write_bytes(self.secret + b"\n")
        self.secret_file.chmod(0o600)
        self.empty_file = self.dir / "empty.conf"
        self.empty_file.write_text("")
        self.keys_file = self.dir / "card.keys"
        # A test does not wait for the disk; a crash of the server alone, which is what is tested, loses nothing by
        # that.
        started = run([CLUSTER, "start", self.dir / "pg", "fsync=off", "autovacuum_naptime=5s"], 900)
        if started.returncode != 0:
            raise SystemExit("%s: no PostgreSQL: %s" % (self.kind, started.stderr))
        self.base = started.stdout.strip()
        self._ctl("keys", "generate", self.keys_file)
        self._ctl("migrate", "--database.url=" + self.conninfo("issuing", "postgres"))

    def _ctl(self, *words):
        done = run([BUILD / "issuing-ctl", "--config=%s" % self.empty_file, *words])
        if done.returncode != 0:
            raise SystemExit("%s: issuing-ctl %s: %s%s" % (self.kind, words[0], done.stdout, done.stderr))

    def template(self, places, place):
        """The name of a migrated database to copy."""
        name = "issuing_%d_" % places
        if places not in self.templates:
            for number in range(places):
                self.sql("CREATE DATABASE %s%d" % (name, number))
            self._ctl("migrate", "--database.places=%d" % places,
                      "--database.url=" + self.conninfo(name + "{place}", "postgres"))
            self.templates.add(places)
        return "%s%d" % (name, place)

    @property
    def clocked(self):
        """The folder of the cluster whose clock stories set, one after the other."""
        return self.dir / "clocked" / "pg"

    def start_clocked(self, clock):
        """That cluster, under this clock. Returns its conninfo."""
        self.clocked.parent.mkdir(exist_ok=True)
        started = run([CLUSTER, "start", self.clocked, "fsync=off"], 900, clock=clock)
        if started.returncode != 0:
            raise Failed("no cluster: " + started.stderr)
        return started.stdout.strip()

    def clocked_copy(self, base, database):
        """The conninfo of a new migrated database there."""
        def conninfo(name):
            return re.sub(r"dbname=\S+", "dbname=" + name, base)
        server = conninfo("postgres") + " user=postgres"
        if psql("SELECT to_regclass('issuing.schema_migration') IS NULL", base + " user=postgres") == "t":
            self._ctl("migrate", "--database.url=%s user=postgres" % base)
        psql("CREATE DATABASE %s TEMPLATE issuing STRATEGY file_copy" % database, server)
        return conninfo(database)

    def stop_clocked(self):
        run([CLUSTER, "stop", self.clocked], 120)

    def conninfo(self, database, role):
        return re.sub(r"dbname=\S+", "dbname=" + database, self.base) + " user=" + role

    def sql(self, text, database="postgres", role="postgres"):
        return psql(text, self.conninfo(database, role))

    def stop_database(self):
        self._cluster("stop")

    def start_database(self):
        self._cluster("start")

    def restart_database(self, how="fast"):
        self._cluster("restart", how)

    def _cluster(self, command, *words):
        done = run([CLUSTER, command, self.dir / "pg", *words,
                    *(["fsync=off", "autovacuum_naptime=5s"] if command == "start" else [])], 900)
        if done.returncode != 0:
            raise Failed("cluster %s: %s" % (command, done.stderr))

    @staticmethod
    def numbered(label):
        return re.search(r"\d", label) is not None

    def world(self, settings=None, label=None):
        self.number += 1
        kind = Divided if "places" in (settings or {}) else World
        world = kind(self, label or "test%d" % self.number, settings)
        self.worlds.append(world)
        return world.create_database()
