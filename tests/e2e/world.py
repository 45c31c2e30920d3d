"""World: one test's own database, sandbox, apis and workers, and a client's calls to them."""
import contextlib
import json
import re
import shutil
import signal
import subprocess
import threading
import time

import client
from assertions import assert_equal, Failed, STUCK_AFTER_S, wait_until
from profiles import PROFILES
from processes import BUILD, Clock, CLUSTER, Daemon, ENVIRONMENT, free_port, Looker, psql, psql_program, run, Sandbox


ROWS = "SELECT coalesce(json_agg(q), '[]') FROM (%s) AS q"


def ms(text):
    """A duration as the configuration writes it, in milliseconds."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text).groups()
    return int(number) * {"ms": 1, "s": 1000, "m": 60000, "h": 3600000, "d": 86400000}[unit]


class World:
    """One test's own database, ports and programs. Settings given here hold for all its programs; those given to a
    program are its own."""

    DEFAULTS = {
        "limit.count": "1000",
        "database.connections": "2",
        "worker.poll_interval": "200ms",
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
        self.programs, self.sessions, self.lookers = [], [], {}  # lookers: by conninfo
        settings = dict(settings or {})
        self.issuer = PROFILES[settings.pop("issuer", "generic")]
        self.settings = {**self.DEFAULTS, "auth.hs256_secret_file": suite.secret_file,
                         "card.keys_file": suite.keys_file, **self.issuer_settings(), **settings}
        self.foreign = set()  # references of cards at the issuer that are not ours
        self.allowed = set()  # deviations a test provokes on purpose: see invariants.py
        self.secret = suite.secret
        self.tokens = {}
        self.sandbox = None
        self.receivers = []  # of receiver.py
        self.base = None  # the conninfo of a cluster of its own
        self.checks_end = True

    def issuer_settings(self):
        """Options of the programs, for the issuer of this world."""
        found = {"issuer.profile": self.issuer.profile, "issuer.parameters": self.issuer.parameters,
                 **self.issuer.settings}
        if self.issuer.credential:
            file = self.dir / "issuer.credential"
            file.write_text(self.issuer.credential + "\n")
            file.chmod(0o600)
            found["issuer.credential_file"] = file
        return {name: value for name, value in found.items() if value not in (None, "generic")}

    # ---- the database ------------------------------------------------------------------------------------------------

    def create_database(self):
        self.suite.sql("CREATE DATABASE %s TEMPLATE issuing STRATEGY file_copy" % self.database)
        return self

    def drop_database(self):
        self.suite.sql("DROP DATABASE IF EXISTS %s WITH (FORCE)" % self.database)

    def clock(self, name):
        """A new clock, for clocked_database(), start_api() and start_worker()."""
        return Clock(self.dir / (name + ".clock"))

    def own_database(self, clock=None, settings=()):
        """From here on this world's database is a migrated one in a cluster of its own, under that clock or a new one,
        which is returned. To be called before programs are started."""
        clock = clock or self.clock("database")
        started = run([CLUSTER, "start", self.dir / "pg", "fsync=off", *settings], 900, clock=clock)
        if started.returncode != 0:
            raise Failed("no cluster: " + started.stderr)
        self.base = started.stdout.strip()
        done = run([BUILD / "issuing-ctl", "--config=%s" % self.suite.empty_file,
                    "--database.url=" + self.conninfo("postgres"), "migrate"])
        if done.returncode != 0:
            raise Failed("issuing-ctl migrate: %s%s" % (done.stdout, done.stderr))
        return clock

    def clocked_database(self):
        """The same, under a new clock, which is returned; but the cluster is one that stories of this run use one after
        the other. So a story changes nothing of the server or of a role."""
        clock = self.clock("database")
        self.stop_own = self.suite.stop_clocked
        self.base = self.suite.start_clocked(clock)
        self.base = self.suite.clocked_copy(self.base, self.database)
        return clock

    def conninfo(self, role):
        return "%s user=%s" % (self.base, role) if self.base else self.suite.conninfo(self.database, role)

    def sql(self, text, role="postgres"):
        """What psql prints, columns separated by |."""
        return self.ask(self.conninfo(role), text)

    def ask(self, conninfo, text):
        if not Looker.LOOK.fullmatch(text):
            return psql(text, conninfo)
        looker = self.lookers.pop(conninfo, None) or Looker(conninfo)
        said = looker.look(text)
        if said is None:
            looker.close()
            return psql(text, conninfo)
        if self.lookers.setdefault(conninfo, looker) is not looker:
            looker.close()
        return said

    def close_lookers(self):
        for looker in self.lookers.values():
            looker.close()
        self.lookers = {}

    def rows(self, query):
        return json.loads(self.sql(ROWS % query) or "[]")

    def row(self, query):
        found = self.rows(query)
        assert_equal(len(found), 1, "rows of " + query)
        return found[0]

    @contextlib.contextmanager
    def holding(self, statement, end="ROLLBACK", **at):
        """Another session that did this and does not end its transaction until the block ends."""
        session = subprocess.Popen([psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d",
                                    self.conninfo("postgres", **at)],
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

    def blocked(self, part=""):
        """How many sessions of this database wait for a lock, in a statement with that part."""
        return int(self.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
                            " wait_event_type = 'Lock' AND strpos(query, '%s') > 0" % part))

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
                except Exception as error:  # noqa: BLE001 - reported by the thread that waits for this one
                    wrong.append(error)
                    return
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(STUCK_AFTER_S)
        assert_equal(wrong, [], "requests of others")

    def wait_final(self, event_ids, seconds=STUCK_AFTER_S):
        wait_until(lambda: self.sql("SELECT count(*) FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING') AND"
                                    " id IN"
                                    " ('%s')" % "', '".join(event_ids)) == "0", "these events are final", seconds, 0.05)

    def wait_status(self, event_id, *wanted, seconds=STUCK_AFTER_S):
        return wait_until(lambda: self.status(event_id) in wanted and self.event(event_id),
                          "%s of %s" % ("/".join(wanted), event_id), seconds, 0.05)

    def wait_attempt(self, event_id):
        """Until an attempt for that event has ended."""
        return wait_until(lambda: self.attempts(event_id), "an attempt for " + event_id)

    def settle(self, seconds=STUCK_AFTER_S):
        """Until no event is open any more."""
        wait_until(lambda: self.sql("SELECT count(*) FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING') AND"
                                    " event_type = 'CARD_ISSUE'") == "0",
                   "every event is final", seconds, 0.05)

    # ---- programs ----------------------------------------------------------------------------------------------------

    def _log(self, name):
        return self.dir / (name + ".log")

    def start_sandbox(self, *options, issuer=None, core=None, route=None):
        ports = [issuer or free_port(), core or free_port(), free_port(), route or free_port()]
        self.reserve_peers(*ports[:2])
        if self.issuer.profile != "generic":
            options = ("--issuer=" + self.issuer.profile,
                       "--credential-file=%s" % self.settings["issuer.credential_file"], *options)
        self.sandbox = Sandbox("sandbox", [BUILD / "issuing-sandbox", "--seed", "7", "--issuer-listen",
                                           "127.0.0.1:%d" % ports[0],
                                           "--core-listen", "127.0.0.1:%d" % ports[1], "--control-listen",
                                           "127.0.0.1:%d" % ports[2], "--route-listen",
                                           "127.0.0.1:%d" % ports[3], *self.issuer.sandbox, *options],
                               self._log("sandbox"), *ports)
        self.programs.append(self.sandbox)
        return self.sandbox.wait_ready()

    def start_stand_in(self, issuer, credential, *options):
        """The sandbox as that issuer, for a story that makes the issuer's calls by itself, without api and worker."""
        file = self.dir / "issuer-credential"
        file.write_text(credential)
        file.chmod(0o600)
        self.allowed |= {"orphan", "two_cards"}
        return self.start_sandbox("--issuer=" + issuer, "--credential-file", file, *options)

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

    def start_api(self, wait_ready=True, clock=None, passed=None, errors=None, **own):
        """Settings as section__key="value". passed: the listening socket for clients, instead of one of its own.
        errors: the descriptor of its standard error."""
        name = "api-%d" % (1 + sum(program.name.startswith("api") for program in self.programs))
        port, admin = passed.getsockname()[1] if passed else free_port(), free_port()
        own = {"api__listen": "127.0.0.1:%d" % port, "api__admin_listen": "127.0.0.1:%d" % admin, **own}
        return self._start(Daemon(name, [BUILD / "issuing-api", *self.flags("issuing_api", own)], self._log(name),
                                  admin, port, clock, passed, errors), wait_ready)

    def start_worker(self, wait_ready=True, clock=None, errors=None, **own):
        name = "worker-%d" % (1 + sum(program.name.startswith("worker") for program in self.programs))
        admin = free_port()
        # Without a sandbox nobody is there; a worker of routes alone does not mind.
        nobody = {peer + "__url": "http://127.0.0.1:9" for peer in ("issuer", "core")
                  if peer + ".url" not in self.settings}
        own = {"worker__admin_listen": "127.0.0.1:%d" % admin, **nobody, **own}
        return self._start(Daemon(name, [BUILD / "issuing-worker", *self.flags("issuing_worker", own)], self._log(name),
                                  admin, clock=clock, errors=errors), wait_ready)

    def restart(self, daemon, wait_ready=True):
        daemon.start()
        return daemon.wait_ready() if wait_ready else daemon

    def may_send(self, role, kind):
        done = self.ctl("sender", "add", role, kind, "--reason", "a story")
        assert_equal(done.returncode, 0, "sender add: " + done.stdout + done.stderr)

    def ctl(self, *arguments, role="issuing_operator", seconds=STUCK_AFTER_S, program=BUILD / "issuing-ctl", **own):
        """The result of one issuing-ctl command: returncode, stdout, stderr. Its output goes to a log, to be searched
        for card numbers."""
        keys = ("database.allow_insecure", "database.places", "retry.max_attempts", "retry.base", "retry.cap", "issuer.timeout",
                "issuer.key_lifetime", "issuer.settle_time", "issuer.profile", "issuer.keys", "card.keys_file")
        settings = {"database.url": self.conninfo(role), **{key: self.settings[key] for key in keys
                                                            if key in self.settings},
                    **{key.replace("__", "."): value for key, value in own.items()}}
        flags = ["--config=%s" % self.suite.empty_file, *("--%s=%s" % pair for pair in settings.items()
                                                          if pair[1] is not None)]
        done = run([program, *flags, *arguments], seconds)
        with open(self._log("ctl"), "a") as log:
            log.write("$ issuing-ctl %s -> %d\n%s%s" % (" ".join(str(word) for word in arguments), done.returncode,
                                                        done.stdout, done.stderr))
        return done

    def make_foreign(self, user, event, count):
        """So many cards at the issuer that a look-up of that event shows, and that are not ours."""
        for number in range(count):
            reference = self.issuer.foreign_reference(event, number)
            self.issuer.make(self, user, reference)
            self.foreign.add(reference)

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

    # ---- a client ----------------------------------------------------------------------------------------------------

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

    def post(self, user, key, body=None, headers=(), api=None, timeout=STUCK_AFTER_S):
        with client.Wire((api or self.apis()[0]).port, timeout) as wire:
            return wire.send(self.post_bytes(user, key, body, headers)).answer()

    def get(self, user, path, headers=(), api=None, method="GET", timeout=STUCK_AFTER_S):
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

    def call_limit(self):
        return max(ms(self.settings["issuer.timeout"]), ms(self.settings["core.timeout"])) / 1000 + 5

    def stop_all(self):
        """Lets all daemons drain and checks that each ends in time with status 0. Returns complaints."""
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
            deadline = time.monotonic() + self.call_limit() + STUCK_AFTER_S
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
        self.close_lookers()
        if self.base:
            self.stop_own()
            self.base = None

    def stop_own(self):
        run([CLUSTER, "stop", self.dir / "pg"])
        shutil.rmtree(self.dir / "pg", ignore_errors=True)
