"""The processes of a story: one that runs to its end, psql, a program that is started and stopped, a daemon with its
admin listener, the sandbox, and the clocks that a program sees.

Programs get no variable of the caller's environment but PATH, so that a stray ISSUING_* or PG* changes nothing.
"""
import functools
import os
import pathlib
import random
import re
import select
import socket
import struct
import subprocess
import urllib.parse

import client
from assertions import Failed, STUCK_AFTER_S, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("ISSUING_BUILD") or ROOT / "build").resolve()
CLUSTER = ROOT / "tests" / "support" / "cluster"
ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
    if name in os.environ:
        ENVIRONMENT[name] = os.environ[name]

CLOCKS = BUILD / "tests" / "clocks.so"


_reserved_ports = {}  # port -> the socket that reserves it


def free_port():
    """Below the range from which outgoing connections get theirs, so that none of ours is taken while its program
    restarts. A port is not bound at once: until release_ports() an abstract socket of its name keeps it from the other
    processes that run stories side by side."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(20000, 32000)
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind("\0issuing-test-port-%d" % port)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        _reserved_ports[port] = reservation
        return port
    raise Failed("no free port")


def release_ports():
    """The programs that used the ports of free_port() have ended."""
    while _reserved_ports:
        _reserved_ports.popitem()[1].close()


class Clock:
    """The clocks of one machine, as the programs see them that were started with it (tests/support/clocks.c): the
    database (World.clocked_database), an api, a worker. Steps add up, take effect at once, and reach no other
    program."""

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
        # By default AddressSanitizer must be the first library of a program.
        options = ":".join(word for word in (ENVIRONMENT.get("ASAN_OPTIONS"), "verify_asan_link_order=0") if word)
        # By its name: in LD_PRELOAD a blank of a path would end it.
        return {"LD_PRELOAD": CLOCKS.name, "LD_LIBRARY_PATH": str(CLOCKS.parent), "TEST_CLOCK_FILE": str(self.path),
                "ASAN_OPTIONS": options}


class Preloaded:
    """Where a clock may be given: a library of tests/support that is preloaded into the program. slow_end: half a
    second passes between the end of its loop and its exit. hung_files: no file in a folder "hung" can be opened while
    "hangs" is in it."""

    def __init__(self, library):
        self.library = library + ".so"

    def environment(self):
        return {"LD_PRELOAD": self.library, "LD_LIBRARY_PATH": str(CLOCKS.parent)}


def environment(clock=None):
    return {**ENVIRONMENT, **(clock.environment() if clock else {})}


def run(argv, seconds=STUCK_AFTER_S, stdin=None, clock=None):
    """seconds: for what may take longer than STUCK_AFTER_S; never less."""
    return subprocess.run([str(word) for word in argv], input=stdin,
                          stdin=None if stdin is not None else subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=max(seconds, STUCK_AFTER_S), env=environment(clock))


@functools.cache
def psql_program():
    return run([ROOT / "tests" / "support" / "postgres_bin"]).stdout.strip() + "/psql"


def psql(text, conninfo):
    done = run([psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", conninfo, "-c", text])
    if done.returncode != 0:
        raise Failed("psql: %s: %s" % (text[:200], done.stderr.strip()))
    return done.stdout.strip()


class Looker:
    """One psql that stays, for the many looks of a wait: to start one, and a session of the server, costs more than the
    look. Only for a single SELECT without a colon that psql might take for a variable; None: ask by psql()."""

    LOOK = re.compile(r"SELECT\b(?:[^;\\:]|::)*", re.S)
    END = re.compile(rb"-- looked, failed: (true|false)\n$")

    def __init__(self, conninfo):
        self.psql = subprocess.Popen([psql_program(), "-XAtq", "-d", conninfo], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT,
                                     start_new_session=True)

    def look(self, text):
        """What psql prints; None: the session has ended, or the statement has failed."""
        try:
            self.psql.stdin.write(("%s;\n\\echo -- looked, failed: :ERROR\n" % text).encode())
            self.psql.stdin.flush()
            said = b""
            while not (end := self.END.search(said)):
                if not select.select([self.psql.stdout], [], [], STUCK_AFTER_S)[0]:
                    raise Failed("psql: no answer: " + text[:200])
                more = os.read(self.psql.stdout.fileno(), 65536)
                if not more:
                    return None
                said += more
        except OSError:
            return None
        return None if end[1] == b"true" else said[:end.start()].decode().strip()

    def close(self):
        self.psql.kill()
        self.psql.wait()
        self.psql.stdin.close()
        self.psql.stdout.close()


# The descriptor in $1 becomes 3, and only 3, as sd_listen_fds(3) says; the process stays the same.
PASS_SOCKET = """fd=$1; shift; [ "$fd" = 3 ] || { exec 3<&"$fd"; eval "exec $fd<&-"; }
export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http; exec "$@" """


class Program:
    """One process. Its output goes to a log; should the runner die, the kernel kills it."""

    is_peer = False  # one that the daemons call; ends after them

    def __init__(self, name, argv, log, clock=None, passed=None, errors=None):
        """passed: a listening socket that the program gets as systemd would pass it. errors: the descriptor of its
        standard error, instead of the log."""
        self.name, self.argv, self.log, self.clock = name, [str(word) for word in argv], log, clock
        self.passed, self.errors = passed, errors
        self.expected_dead = False
        self.popen = None
        self.start()

    def start(self):
        self.expected_dead = False
        with open(self.log, "ab") as log:
            fds = [self.passed.fileno()] if self.passed else []
            words = [*(["bash", "-c", PASS_SOCKET, "bash", str(fds[0])] if fds else []), *self.argv]
            self.popen = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=self.errors or log, pass_fds=fds,
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
        self.popen.wait(STUCK_AFTER_S)

    def signal(self, number):
        self.popen.send_signal(number)

    def ended(self, seconds):
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed("%s (process %d) did not end within %s s" % (self.name, self.pid, seconds)) from None

    def stop(self, seconds=STUCK_AFTER_S):
        """SIGTERM; returns the exit status."""
        self.expected_dead = True
        self.popen.terminate()
        return self.ended(seconds)

    def text(self):
        return pathlib.Path(self.log).read_text(errors="replace")


class Daemon(Program):
    """An api or a worker: it has an admin listener."""

    def __init__(self, name, argv, log, admin, port=None, clock=None, passed=None, errors=None):
        self.admin, self.port = admin, port
        super().__init__(name, argv, log, clock, passed, errors)

    def get(self, path):
        return client.call(self.admin, "GET", path)

    def ready(self):
        if not self.alive():
            raise Failed("%s ended with status %s: %s" % (self.name, self.popen.returncode, self.text()[-500:]))
        return self.get("/readyz").status == 200

    def wait_ready(self, seconds=STUCK_AFTER_S):
        wait_until(self.ready, self.name + " is ready", seconds)
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


TARGETS = {"core": ("check", "link", "unlink"), "route": ("charge", "charge_lookup", "hook", "hook_lookup")}


class Sandbox(Program):
    is_peer = True

    def __init__(self, name, argv, log, issuer, core, control, route):
        self.issuer, self.core, self.control, self.route = issuer, core, control, route
        super().__init__(name, argv, log)

    def control_call(self, method, path, body=None):
        answer = client.call(self.control, method, path, {"Content-Type": "application/json"}
                             if body is not None else {}, body, timeout=STUCK_AFTER_S)
        if answer.status != 200:
            raise Failed("sandbox: %s %s: %r" % (method, path, answer))
        return answer.json()

    def wait_ready(self):
        wait_until(lambda: client.call(self.control, "GET", "/livez").status == 200, "the sandbox lives")
        return self

    def fault(self, call, fault, **members):
        """call: create, lookup, cancel (issuer), check, link, unlink (core), charge, charge_lookup, hook (route); or
        "issuer", "core" or "route" for any call of it."""
        target = next((name for name, calls in TARGETS.items() if call == name or call in calls), "issuer")
        rule = {"target": target, "fault": fault}
        if call != target:
            rule["call"] = call
        rule.update(members)
        self.control_call("POST", "/faults", rule)

    def faults(self, rules):
        self.control_call("POST", "/faults", rules)

    def clear(self):
        self.control_call("POST", "/faults/clear", "")

    def down(self, target="issuer", down=True):
        self.control_call("POST", "/down", {"target": target, "down": down})

    def ledger(self, **query):
        text = "&".join("%s=%s" % pair for pair in query.items())
        return self.control_call("GET", "/ledger" + ("?" + text if text else ""))

    def summary(self):
        return self.control_call("GET", "/ledger/summary")

    def cards(self, **query):
        return self.ledger(**query)["cards"]

    def calls(self, call=None, user=None, reference=None, limit=10000):
        """Oldest first. A look-up for a card that does not exist names no user: select those by reference."""
        found = reversed(self.control_call("GET", "/calls?limit=%d" % limit)["calls"])
        return [row for row in found
                if (call is None or row["call"] == call) and (user is None or row["user"] == user) and
                (reference is None or row["reference"] == reference)]

    def charges(self, **query):
        """Of the payment stand-in: keys, executions, executed_twice, calls, and a row for each key under "charges"."""
        return self._report("/charges", query)

    def hooks(self, **query):
        """Deliveries of webhooks, a row for each hook and id, in the order of first arrivals."""
        return self._report("/hooks", query)["hooks"]

    def _report(self, path, query):
        text = urllib.parse.urlencode(query)
        return self.control_call("GET", path + ("?" + text if text else ""))

    def late_outstanding(self):
        """How many calls wait for their late execution (faults drop_then_execute and the like)."""
        return self.summary()["late_outstanding"]

    def run_late(self):
        """Executes now what waits for its late execution; returns how many calls those were. With a late_ms of an hour
        a story so chooses the moment by itself."""
        return self.control_call("POST", "/late/run", "")["executed"]

    def wait_late(self, seconds=STUCK_AFTER_S):
        wait_until(lambda: self.late_outstanding() == 0, "no late execution is outstanding", seconds)

    def late(self, **query):
        """What was executed late, in order: call, reference, user_id, result."""
        return self.ledger(**query)["late"]

    def numbers(self):
        return self.control_call("GET", "/numbers")["numbers"]

    def advance(self, advance_ms):
        self.control_call("POST", "/clock", {"advance_ms": advance_ms})
