"""What every end-to-end story needs: a private PostgreSQL, the programs on ports of their own, faults, and waiting that
ends.

Suite  one run: its folder below <build>/run, the cluster, a migrated database to copy. All is ended by process id.
World  one test: a fresh database, a sandbox, and whatever apis and workers the test starts.

Invariants: traffic stays on 127.0.0.1 and an abstract Unix socket; nothing is written outside the run folder; nothing
waits without a deadline. Programs get no variable of the caller's environment but PATH, so that a stray ISSUING_* or
PG* changes nothing. Leaves out: what must hold after a test (invariants.py).
"""
import contextlib
import datetime
import email.utils
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import client

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("ISSUING_BUILD") or ROOT / "build").resolve()
CLUSTER = ROOT / "tests" / "support" / "cluster"
ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
    if name in os.environ:
        ENVIRONMENT[name] = os.environ[name]

CLOCKS = BUILD / "tests" / "clocks.so"
PATIENCE = 30  # seconds that anything may take on a slow machine before it counts as stuck


class Failed(AssertionError):
    pass


def same(got, wanted, what=""):
    if got != wanted:
        raise Failed("%s: got %r, wanted %r" % (what or "different", got, wanted))


def true(value, what):
    if not value:
        raise Failed(what)
    return value


def wait(condition, what, seconds=PATIENCE, every=0.02):
    """Polls until the condition gives something true, and returns it. A refused connection counts as not yet."""
    deadline = time.monotonic() + seconds
    last = None
    while True:
        try:
            last = condition()
            if last:
                return last
        except (OSError, client.Closed) as error:
            last = error
        if time.monotonic() > deadline:
            raise Failed("not within %s s: %s (at last: %r)" % (seconds, what, last))
        time.sleep(every)


def ms(text):
    """A duration as the configuration writes it, in milliseconds."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text).groups()
    return int(number) * {"ms": 1, "s": 1000, "m": 60000, "h": 3600000, "d": 86400000}[unit]


_ports = set()


def free_port():
    """Below the range from which outgoing connections get theirs, so that none of ours is taken while its program
    restarts."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(20000, 32000)
        if port in _ports:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _ports.add(port)
        return port
    raise Failed("no free port")


class Clock:
    """The clocks of one machine, as the programs see them that were started with it (tests/support/clocks.c): the
    database (World.own_database), an api, a worker. Steps add up, take effect at once, and reach nobody else."""

    def __init__(self, path):
        self.path, self.real, self.monotonic, self.boottime = pathlib.Path(path), 0, 0, 0
        self.path.write_bytes(bytes(24))
        self.path.chmod(0o644)

    def _write(self):
        numbers = struct.pack("=qqq", *(int(seconds * 1e9) for seconds in (self.real, self.monotonic, self.boottime)))
        with open(self.path, "r+b", buffering=0) as file:
            file.write(numbers)

    def step(self, seconds):
        """The wall clock is set by so much, back where negative."""
        self.real += seconds
        self._write()

    def sleep(self, seconds):
        """The machine was suspended for so long and is awake again: the wall clock and CLOCK_BOOTTIME have gone on,
        CLOCK_MONOTONIC and every timer have stood still. (SIGSTOP is something else: all clocks go on.)"""
        self.real += seconds
        self.boottime += seconds
        self._write()

    def environment(self):
        # AddressSanitizer wants to be the first library of a program unless told otherwise.
        options = ":".join(word for word in (ENVIRONMENT.get("ASAN_OPTIONS"), "verify_asan_link_order=0") if word)
        # By its name: in LD_PRELOAD a blank of a path would end it.
        return {"LD_PRELOAD": CLOCKS.name, "LD_LIBRARY_PATH": str(CLOCKS.parent), "TEST_CLOCK_FILE": str(self.path), "ASAN_OPTIONS": options}


def environment(clock=None):
    return {**ENVIRONMENT, **(clock.environment() if clock else {})}


def run(argv, seconds=60, stdin=None, clock=None):
    return subprocess.run([str(word) for word in argv], input=stdin,
                          stdin=None if stdin is not None else subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=seconds, env=environment(clock))


def psql_program():
    path = pathlib.Path("/usr/lib/postgresql/15/bin/psql")
    return str(path if path.exists() else shutil.which("psql") or "psql")


def psql(text, conninfo):
    done = run([psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", conninfo, "-c", text], 120)
    if done.returncode != 0:
        raise Failed("psql: %s: %s" % (text[:200], done.stderr.strip()))
    return done.stdout.strip()


class Program:
    """One process. Its output goes to a log; should the runner die, the kernel kills it."""

    is_peer = False  # one that the daemons call; ends after them

    def __init__(self, name, argv, log, clock=None):
        self.name, self.argv, self.log, self.clock = name, [str(word) for word in argv], log, clock
        self.expected_dead = False
        self.popen = None
        self.start()

    def start(self):
        self.expected_dead = False
        with open(self.log, "ab") as log:
            self.popen = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *self.argv], stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log,
                                          env=environment(self.clock), start_new_session=True)
        return self

    @property
    def pid(self):
        return self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def kill(self):
        """As the kernel does it when memory is out."""
        self.expected_dead = True
        self.popen.kill()
        self.popen.wait(PATIENCE)

    def signal(self, number):
        self.popen.send_signal(number)

    def ended(self, seconds):
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed("%s (process %d) did not end within %s s" % (self.name, self.pid, seconds)) from None

    def stop(self, seconds=PATIENCE):
        """SIGTERM; returns the exit status."""
        self.expected_dead = True
        self.popen.terminate()
        return self.ended(seconds)

    def text(self):
        return pathlib.Path(self.log).read_text(errors="replace")


class Daemon(Program):
    """An api or a worker: it has an admin listener."""

    def __init__(self, name, argv, log, admin, port=None, clock=None):
        self.admin, self.port = admin, port
        super().__init__(name, argv, log, clock)

    def get(self, path):
        return client.call(self.admin, "GET", path)

    def ready(self):
        if not self.alive():
            raise Failed("%s ended with status %s: %s" % (self.name, self.popen.returncode, self.text()[-500:]))
        return self.get("/readyz").status == 200

    def wait_ready(self, seconds=PATIENCE):
        wait(self.ready, self.name + " is ready", seconds)
        return self

    def metrics(self):
        """{name{labels}: value} of the Prometheus text."""
        found = {}
        for line in self.get("/metrics").body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def metric(self, name):
        return self.metrics().get(name, 0.0)

    def metric_sum(self, prefix):
        return sum(value for name, value in self.metrics().items() if name == prefix or name.startswith(prefix + "{"))


class Sandbox(Program):
    is_peer = True

    def __init__(self, name, argv, log, issuer, core, control):
        self.issuer, self.core, self.control = issuer, core, control
        super().__init__(name, argv, log)

    def ask(self, method, path, body=None):
        answer = client.call(self.control, method, path, {"Content-Type": "application/json"}
                             if body is not None else {}, body, timeout=PATIENCE)
        if answer.status != 200:
            raise Failed("sandbox: %s %s: %r" % (method, path, answer))
        return answer.json()

    def wait_ready(self):
        wait(lambda: client.call(self.control, "GET", "/livez").status == 200, "the sandbox lives")
        return self

    def fault(self, call, fault, **members):
        """call: create, lookup, cancel (issuer), check, link, unlink (core); or "issuer" or "core" for any call of
        it."""
        rule = {"target": "core" if call in ("check", "link", "unlink", "core") else "issuer", "fault": fault}
        if call not in ("issuer", "core"):
            rule["call"] = call
        rule.update(members)
        self.ask("POST", "/faults", rule)

    def faults(self, rules):
        self.ask("POST", "/faults", rules)

    def clear(self):
        self.ask("POST", "/faults/clear", "")

    def down(self, target="issuer", down=True):
        self.ask("POST", "/down", {"target": target, "down": down})

    def ledger(self, **query):
        text = "&".join("%s=%s" % pair for pair in query.items())
        return self.ask("GET", "/ledger" + ("?" + text if text else ""))

    def summary(self):
        return self.ask("GET", "/ledger/summary")

    def cards(self, **query):
        return self.ledger(**query)["cards"]

    def calls(self, call=None, user=None, reference=None, limit=10000):
        """Oldest first. A look-up for a card that does not exist names no user: ask for those by reference."""
        found = reversed(self.ask("GET", "/calls?limit=%d" % limit)["calls"])
        return [row for row in found
                if (call is None or row["call"] == call) and (user is None or row["user"] == user) and
                (reference is None or row["reference"] == reference)]

    def late_outstanding(self):
        """How many calls wait for their late execution (faults drop_then_execute and the like)."""
        return self.summary()["late_outstanding"]

    def run_late(self):
        """Executes now what waits for its late execution; returns how many calls those were. With a late_ms of an hour
        a story so chooses the moment by itself."""
        return self.ask("POST", "/late/run", "")["executed"]

    def wait_late(self, seconds=PATIENCE):
        wait(lambda: self.late_outstanding() == 0, "no late execution is outstanding", seconds)

    def late(self, **query):
        """What was executed late, in order: call, reference, user_id, result."""
        return self.ledger(**query)["late"]

    def numbers(self):
        return self.ask("GET", "/numbers")["numbers"]

    def advance(self, advance_ms):
        self.ask("POST", "/clock", {"advance_ms": advance_ms})


class World:
    """One test's own database, ports and programs. Settings given here hold for all its programs; those given to a
    program are its own."""

    DEFAULTS = {
        "limit.count": "1000",
        "worker.poll_interval": "50ms",
        "worker.lease": "4s",
        "issuer.timeout": "1s",
        "issuer.settle_time": "2s",
        "core.timeout": "1s",
        "retry.base": "20ms",
        "retry.cap": "100ms",
        "breaker.failures": "1000",
        "breaker.probe_interval": "100ms",
        "log.level": "debug",
    }

    def __init__(self, suite, label, settings=None):
        self.suite, self.label = suite, label
        self.dir = suite.dir / label
        self.dir.mkdir()
        self.database = "e2e_" + re.sub(r"[^0-9]", "", label) if suite.numbered(label) else label
        self.programs, self.sessions = [], []
        self.settings = {**self.DEFAULTS, "auth.hs256_secret_file": suite.secret_file,
                         "card.keys_file": suite.keys_file, **(settings or {})}
        self.allowed = set()  # deviations a test provokes on purpose: see invariants.py
        self.secret = suite.secret
        self.tokens = {}
        self.sandbox = None
        self.base = None  # the conninfo of a cluster of its own
        self.checks_end = True

    # ---- the database
    # -------------------------------------------------------------------------------------------------------------

    def create_database(self):
        self.suite.sql("CREATE DATABASE %s TEMPLATE %s" % (self.database, self.suite.template))
        return self

    def drop_database(self):
        self.suite.sql("DROP DATABASE IF EXISTS %s WITH (FORCE)" % self.database)

    def clock(self, name):
        """A new clock, for own_database(), start_api() and start_worker()."""
        return Clock(self.dir / (name + ".clock"))

    def own_database(self, clock=None):
        """From here on this world's database is a migrated one in a cluster of its own, under that clock or a new one,
        which is returned. To be called before programs are started."""
        clock = clock or self.clock("database")
        started = run([CLUSTER, "start", self.dir / "pg", "fsync=off"], 180, clock=clock)
        if started.returncode != 0:
            raise Failed("no cluster: " + started.stderr)
        self.base = started.stdout.strip()
        done = run([BUILD / "issuing-ctl", "--config=%s" % self.suite.empty_file,
                    "--database.url=" + self.conninfo("postgres"), "migrate"], 120)
        if done.returncode != 0:
            raise Failed("issuing-ctl migrate: %s%s" % (done.stdout, done.stderr))
        return clock

    def conninfo(self, role):
        return "%s user=%s" % (self.base, role) if self.base else self.suite.conninfo(self.database, role)

    def sql(self, text, role="postgres"):
        """What psql prints, columns separated by |."""
        return psql(text, self.conninfo(role))

    def rows(self, query):
        return json.loads(self.sql("SELECT coalesce(json_agg(q), '[]') FROM (%s) AS q" % query) or "[]")

    def row(self, query):
        found = self.rows(query)
        same(len(found), 1, "rows of " + query)
        return found[0]

    @contextlib.contextmanager
    def holding(self, statement, end="ROLLBACK"):
        """Another session that did this and does not end its transaction until the block ends."""
        session = subprocess.Popen([psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.conninfo("postgres")],
                                   stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT,
                                   start_new_session=True)
        self.sessions.append(session)
        try:
            session.stdin.write("BEGIN;\n%s;\n\\echo held\n" % statement)
            session.stdin.flush()
            for line in session.stdout:
                if line.strip() == "held":
                    break
            else:
                raise Failed("could not hold: " + statement)
            yield
        finally:
            with contextlib.suppress(OSError, ValueError):
                session.stdin.write(end + ";\n\\q\n")
                session.stdin.close()
            try:
                session.wait(5)
            except subprocess.TimeoutExpired:
                session.kill()
                session.wait()
            session.stdout.close()
            self.sessions.remove(session)

    def blocked(self):
        """How many sessions of this database wait for a lock."""
        return int(self.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
                            " wait_event_type = 'Lock'"))

    def event(self, event_id):
        return self.row("SELECT * FROM outbox_events WHERE id = '%s'" % event_id)

    def status(self, event_id):
        return self.sql("SELECT status FROM outbox_events WHERE id = '%s'" % event_id)

    def attempts(self, event_id):
        return self.rows("SELECT * FROM outbox_attempts WHERE event_id = '%s' ORDER BY ended_at" % event_id)

    @contextlib.contextmanager
    def others(self, every=0.03):
        """While the block runs, requests of other users come and are answered well: what fails meanwhile fails
        alone."""
        stop, wrong = threading.Event(), []

        def run():
            number = 0
            while not stop.wait(every):
                try:
                    self.accept("other-%d" % number)
                    number += 1
                except Exception as error:  # noqa: BLE001 - told by the thread that waits for this one
                    wrong.append(error)
                    return
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(PATIENCE)
        same(wrong, [], "requests of others")

    def wait_final(self, event_ids, seconds=PATIENCE):
        wait(lambda: self.sql("SELECT count(*) FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING') AND id IN"
                              " ('%s')" % "', '".join(event_ids)) == "0", "these events are final", seconds, 0.05)

    def wait_status(self, event_id, *wanted, seconds=PATIENCE):
        return wait(lambda: self.status(event_id) in wanted and self.event(event_id),
                    "%s of %s" % ("/".join(wanted), event_id), seconds, 0.05)

    def settle(self, seconds=PATIENCE):
        """Until no event is open any more."""
        wait(lambda: self.sql("SELECT count(*) FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING') AND"
                              " event_type = 'CARD_ISSUE'") == "0",
             "every event is final", seconds, 0.05)

    # ---- programs
    # ------------------------------------------------------------------------------------------------------------------
    # -

    def _log(self, name):
        return self.dir / (name + ".log")

    def start_sandbox(self, *options, issuer=None, core=None):
        ports = [issuer or free_port(), core or free_port(), free_port()]
        self.reserve_peers(*ports[:2])
        self.sandbox = Sandbox("sandbox", [BUILD / "issuing-sandbox", "--seed", "7", "--issuer-listen",
                                           "127.0.0.1:%d" % ports[0],
                                           "--core-listen", "127.0.0.1:%d" % ports[1], "--control-listen",
                                           "127.0.0.1:%d" % ports[2], *options],
                               self._log("sandbox"), *ports)
        self.programs.append(self.sandbox)
        return self.sandbox.wait_ready()

    def reserve_peers(self, issuer, core):
        self.settings.setdefault("issuer.url", "http://127.0.0.1:%d" % issuer)
        self.settings.setdefault("core.url", "http://127.0.0.1:%d" % core)

    def flags(self, role, own):
        settings = {"database.url": self.conninfo(role), **self.settings,
                    **{key.replace("__", "."): value for key, value in own.items()}}
        return ["--config=%s" % self.suite.empty_file, *("--%s=%s" % pair for pair in settings.items()
                                                         if pair[1] is not None)]

    def _start(self, daemon, wait_ready):
        self.programs.append(daemon)
        return daemon.wait_ready() if wait_ready else daemon

    def start_api(self, wait_ready=True, clock=None, **own):
        """Settings as section__key="value"."""
        name = "api-%d" % (1 + sum(program.name.startswith("api") for program in self.programs))
        port, admin = free_port(), free_port()
        own = {"api__listen": "127.0.0.1:%d" % port, "api__admin_listen": "127.0.0.1:%d" % admin, **own}
        return self._start(Daemon(name, [BUILD / "issuing-api", *self.flags("issuing_api", own)], self._log(name),
                                  admin, port, clock), wait_ready)

    def start_worker(self, wait_ready=True, clock=None, **own):
        name = "worker-%d" % (1 + sum(program.name.startswith("worker") for program in self.programs))
        admin = free_port()
        own = {"worker__admin_listen": "127.0.0.1:%d" % admin, **own}
        return self._start(Daemon(name, [BUILD / "issuing-worker", *self.flags("issuing_worker", own)], self._log(name),
                                  admin, clock=clock), wait_ready)

    def restart(self, daemon, wait_ready=True):
        daemon.start()
        return daemon.wait_ready() if wait_ready else daemon

    def ctl(self, *arguments, role="issuing_operator", seconds=60, **own):
        """The result of one issuing-ctl command: returncode, stdout, stderr. Its output is kept, to be searched for
        card numbers."""
        keys = ("retry.max_attempts", "retry.base", "retry.cap", "issuer.timeout", "issuer.key_lifetime", "issuer.settle_time",
                "card.keys_file")
        settings = {"database.url": self.conninfo(role), **{key: self.settings[key] for key in keys
                                                            if key in self.settings},
                    **{key.replace("__", "."): value for key, value in own.items()}}
        flags = ["--config=%s" % self.suite.empty_file, *("--%s=%s" % pair for pair in settings.items()
                                                          if pair[1] is not None)]
        done = run([BUILD / "issuing-ctl", *flags, *arguments], seconds)
        with open(self._log("ctl"), "a") as log:
            log.write("$ issuing-ctl %s -> %d\n%s%s" % (" ".join(str(word) for word in arguments), done.returncode,
                                                        done.stdout, done.stderr))
        return done

    def apis(self):
        return [program for program in self.programs if program.name.startswith("api")]

    def workers(self):
        return [program for program in self.programs if program.name.startswith("worker")]

    def up(self, apis=1, workers=1, sandbox=(), **own):
        """The usual set: a sandbox, so many apis and workers, all ready."""
        self.start_sandbox(*sandbox)
        for _ in range(apis):
            self.start_api(wait_ready=False, **own)
        for _ in range(workers):
            self.start_worker(wait_ready=False, **own)
        for daemon in [*self.apis(), *self.workers()]:
            daemon.wait_ready()
        return self

    # ---- a client
    # ------------------------------------------------------------------------------------------------------------------
    # --

    def token(self, user):
        if user not in self.tokens:
            self.tokens[user] = client.user_token(self.secret, user)
        return self.tokens[user]

    def bearer(self, user):
        return ("Authorization", "Bearer " + self.token(user))

    def post_bytes(self, user, key, body=None, headers=()):
        """key None: no Idempotency-Key; otherwise it is sent as it is."""
        pairs = [self.bearer(user), ("Content-Type", "application/json")]
        if key is not None:
            pairs.append(("Idempotency-Key", key))
        return client.request_bytes("POST", "/v1/card-requests", [*pairs, *headers],
                                    {"kind": "new"} if body is None else body)

    def post(self, user, key, body=None, headers=(), api=None, timeout=40):
        with client.Wire((api or self.apis()[0]).port, timeout) as wire:
            return wire.send(self.post_bytes(user, key, body, headers)).answer()

    def get(self, user, path, headers=(), api=None, method="GET", timeout=40):
        return client.call((api or self.apis()[0]).port, method, path, [self.bearer(user), *headers], timeout=timeout)

    def accept(self, user, key="k", body=None, headers=(), api=None):
        """A POST that must be accepted; returns the request's id."""
        answer = self.post(user, key, body, headers, api)
        if answer.status not in (201, 202):
            raise Failed("not accepted: %r" % answer)
        return answer.json()["id"]

    def issue(self, user, key="k", body=None):
        """A card, waited for; the request as GET shows it."""
        request = self.accept(user, key, body)
        self.wait_status(request, "COMPLETED")
        return self.get(user, "/v1/card-requests/" + request).json()

    # ---- the end -----------------------------------------------------------------------------------------------------
    # ----------------

    def call_limit(self):
        return max(ms(self.settings["issuer.timeout"]), ms(self.settings["core.timeout"])) / 1000 + 5

    def stop_all(self):
        """Tells all daemons to drain and sees that each does as promised: in time, status 0. Returns complaints."""
        complaints = []
        daemons = [program for program in self.programs if not program.is_peer]
        peers = [program for program in self.programs if program.is_peer]
        for program in self.programs:
            if not program.alive() and not program.expected_dead:
                complaints.append("%s ended by itself with status %s" % (program.name, program.popen.returncode))
        for group in (daemons, peers):
            running = [program for program in group if program.alive()]
            for program in running:
                program.signal(signal.SIGCONT)
                program.signal(signal.SIGTERM)
            deadline = time.monotonic() + self.call_limit() + 3
            for program in running:
                try:
                    status = program.popen.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    complaints.append("%s did not end in time after SIGTERM" % program.name)
                    program.kill()
                    continue
                if status != 0:
                    complaints.append("%s ended with status %d after SIGTERM" % (program.name, status))
        return complaints

    def kill_all(self):
        for program in self.programs:
            if program.popen and program.alive():
                with contextlib.suppress(OSError):
                    program.kill()
        for session in list(self.sessions):
            session.kill()
            session.wait()
        if self.base:
            run([CLUSTER, "stop", self.dir / "pg"], 120)
            shutil.rmtree(self.dir / "pg", ignore_errors=True)
            self.base = None


class Suite:
    """One run. Use as a context manager; what it started is ended whatever happens."""

    def __init__(self, kind="e2e"):
        self.kind = kind
        self.dir = BUILD / "run" / ("%s-%d" % (kind, os.getpid()))
        self.template = "issuing"
        self.base = None
        self.worlds = []
        self.keep = False
        self.number = 0

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
        run([CLUSTER, "stop", self.dir / "pg"], 120)
        shutil.rmtree(self.dir / "pg", ignore_errors=True)
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
                    run([CLUSTER, "stop", cluster], 120)
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
        started = run([CLUSTER, "start", self.dir / "pg", "fsync=off", "autovacuum_naptime=5s"], 180)
        if started.returncode != 0:
            raise SystemExit("%s: no PostgreSQL: %s" % (self.kind, started.stderr))
        self.base = started.stdout.strip()
        for words in (["keys", "generate", self.keys_file], ["--database.url=" + self.conninfo("issuing", "postgres"),
                                                             "migrate"]):
            done = run([BUILD / "issuing-ctl", "--config=%s" % self.empty_file, *words], 120)
            if done.returncode != 0:
                raise SystemExit("%s: issuing-ctl %s: %s%s" % (self.kind, words[-1], done.stdout, done.stderr))

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
                    *(["fsync=off", "autovacuum_naptime=5s"] if command == "start" else [])], 180)
        if done.returncode != 0:
            raise Failed("cluster %s: %s" % (command, done.stderr))

    @staticmethod
    def numbered(label):
        return re.search(r"\d", label) is not None

    def world(self, settings=None, label=None):
        self.number += 1
        world = World(self, label or "test%d" % self.number, settings)
        self.worlds.append(world)
        return world.create_database()


def http_date(seconds_from_now):
    return email.utils.format_datetime(datetime.datetime.now(datetime.timezone.utc) +
                                       datetime.timedelta(seconds=seconds_from_now), usegmt=True)


# ---- tests -----------------------------------------------------------------------------------------------------------
# ----------------

TESTS = []


def test(function=None, **settings):
    """Marks a test; its name is its sentence. settings as section__key="value" hold for all programs of its world."""
    def mark(function):
        function.settings = {key.replace("__", "."): value for key, value in settings.items()}
        TESTS.append(function)
        return function
    return mark(function) if function else mark
