"""What the limiters of bench/limiters/ run on: a database for each, Redis where one needs it, PgBouncer; and the one
program that runs them. Used by the race (limiters.py) and by tests/limiters."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent / "limiters"
NAMES = ("count_after_commit", "count_before_insert", "count_in_transaction", "row_lock", "session_lock",
         "transaction_lock", "serializable", "unique_window", "exclusion", "redis_set_nx", "redis_sliding_window",
         "lock_document_first", "lock_document_late")
SCHEDULED = ("session_lock_snapshot", "lock_document_at_once")  # not in the race: the schedule says it all
NO_REDIS = "-"
# Debian's redis-tools has the server's program under its other name; the package redis-server would start a service.
REDIS_PROGRAM = shutil.which("redis-server") or shutil.which("redis-check-rdb")


class Limiter:
    """One file of bench/limiters/."""

    def __init__(self, name):
        self.name, self.path = name, HERE / f"{name}.sql"
        text = self.path.read_text(encoding="utf-8")
        labels = dict(line[3:].split(": ", 1) for line in text.splitlines()
                      if line.startswith("-- ") and ": " in line)
        self.what, self.needs = labels["limiter"], labels["needs"]
        self.is_one_only = labels["limit"] == "1"
        self.has_redis = "-- redis" in text
        self.steps = [line.split(": ", 1)[1] for line in text.splitlines()
                      if line.startswith(("-- step: ", "-- effect: ", "-- redis: ", "-- redis-script: "))]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Redis:
    """A server of its own, as its package starts one: snapshots now and then, no log of commands."""

    def __init__(self, folder):
        self.folder, self.port, self.process = folder, free_port(), None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, *options):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
             "--save", "3600 1", "--appendonly", "no", *options], executable=REDIS_PROGRAM,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.02)
        raise RuntimeError("Redis does not start")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def command(self, *words):
        return subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True,
                              check=True).stdout

    def replica(self, folder):
        """A replica that has everything."""
        other = Redis(folder).start("--replicaof", "127.0.0.1", str(self.port))
        while "master_link_status:up" not in other.command("INFO", "replication"):
            time.sleep(0.05)
        return other

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def stop(self):
        if self.process and self.process.poll() is None:
            self.kill()


class Ground:
    def __init__(self, program, cluster, folder):
        """cluster: tests/support/cluster; folder: where the database's files are or will be."""
        self.program, self.cluster, self.folder = str(program), str(cluster), folder
        folder.mkdir(parents=True, exist_ok=True)
        started = subprocess.run([self.cluster, "start", str(folder), "max_connections=200"], check=True,
                                 capture_output=True, text=True)
        words = started.stdout.strip().splitlines()[-1].split()
        self.base = " ".join(word for word in words if not word.startswith("dbname=")) + " user=postgres"
        self.redis = Redis(folder / "redis").start() if REDIS_PROGRAM else None
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self.seed = int(time.time() * 1000) % 10**9

    def close(self):
        if self.redis:
            self.redis.stop()
        subprocess.run([self.cluster, "stop", str(self.folder)], check=False, capture_output=True)

    def sql(self, text, database="postgres"):
        done = subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", f"{self.base} dbname={database}", "-c",
                               text], capture_output=True, text=True, env=self.environment, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def database(self, limiter):
        return f"limiter_{limiter.name}"

    def conninfo(self, limiter):
        return f"{self.base} dbname={self.database(limiter)}"

    def prepare(self, limiter):
        """An empty database, and an empty Redis: keys of another limiter may have the same names."""
        if limiter.has_redis and self.redis:
            self.redis.command("FLUSHALL")
        self.sql(f"DROP DATABASE IF EXISTS {self.database(limiter)} WITH (FORCE)")
        self.sql(f"CREATE DATABASE {self.database(limiter)}")
        subprocess.run([self.program, "setup", limiter.path, self.conninfo(limiter)], check=True)

    def command(self, mode, limiter, *arguments, conninfo=None, redis=None):
        address = redis or (self.redis.address if self.redis else NO_REDIS)
        return [self.program, mode, str(limiter.path), conninfo or self.conninfo(limiter),
                address if limiter.has_redis else NO_REDIS, *map(str, arguments)]

    def run(self, mode, limiter, *arguments, limit_s=60, **more):
        """The output; None: it did not end in time."""
        try:
            done = subprocess.run(self.command(mode, limiter, *arguments, **more), capture_output=True, text=True,
                                  timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:
            raise RuntimeError(f"{limiter.name}: {done.stderr.strip()}")
        return done.stdout

    def groups(self, limiter, window_ms, groups, size, rounds, limit, spread_us, **more):
        self.seed += 1
        found = self.run("groups", limiter, window_ms, self.seed, groups, size, rounds, limit, spread_us, **more)
        return json.loads(found) if found else None

    def load(self, limiter, clients, seconds):
        self.seed += 1
        return json.loads(self.run("load", limiter, 60000, self.seed, clients, seconds, limit_s=seconds + 30))

    def one(self, limiter, user, request, limit_s=3, **more):
        """accepted, refused, failed; `waits` where there was no result in time."""
        found = self.run("one", limiter, 60000, 1, user, request, -1, limit_s=limit_s, **more)
        return found.strip() if found else "waits"

    def interleave(self, limiter, window_ms, limit, schedule):
        return self.run("interleave", limiter, window_ms, limit, schedule)


class Held:
    """A client that has made so many steps of its request and waits."""

    def __init__(self, ground, limiter, user, steps, **more):
        self.process = subprocess.Popen(ground.command("one", limiter, 60000, 1, user, "held-" + user, steps, **more),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        self.at = self.process.stdout.readline().strip()

    def go_on(self):
        """The result."""
        result, _ = self.process.communicate("\n", timeout=30)
        return result.strip()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


class Pooler:
    """PgBouncer by transactions, two sessions of the server that take turns."""

    def __init__(self, ground):
        path = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        folder = ground.folder / "pgbouncer"
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        host = dict(word.split("=", 1) for word in ground.base.split())["host"]
        (folder / "users").write_text('"postgres" ""\n', encoding="utf-8")
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={host} port=5432\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nauth_type = trust\nauth_file = {folder}/users\npool_mode = transaction\n"
            f"default_pool_size = 2\nserver_round_robin = 1\nunix_socket_dir =\n"
            + ("user = postgres\n" if os.getuid() == 0 else ""), encoding="utf-8")
        self.process = subprocess.Popen([path, "-q", str(folder / "pgbouncer.ini")], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError("PgBouncer does not start")

    def conninfo(self, ground, limiter):
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={ground.database(limiter)}"

    def stop(self):
        self.process.kill()
        self.process.wait()
