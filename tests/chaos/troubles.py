"""What goes wrong. A campaign is a row of phases; phase N of a seed is the same in each run: its faults, its incident,
and how long each lasts. (What the programs have in hands at that moment is the machine's.)

A phase sets the peers' faults, or leaves those of the phase before, and causes one incident. Everything is printed as
it happens (History.trouble).
"""
import collections
import contextlib
import random
import signal
import time

import client
import harness
import services

HOUR = 3600
FAR = 6 * HOUR  # no clock is further off than that
LATE_MOST_MS = 1200  # of a create: shorter than issuer.settle_time by more than a slow machine dawdles
STUCK_AFTER_S = harness.STUCK_AFTER_S

# ---- what the peers do: call, fault, members of the rule -------------------------------------------------------------

ANSWERS = (
    ("create_then_drop", {}), ("create_then_hang", {}), ("drop", {}), ("hang", {}), ("garbage", {}), ("truncated", {}),
    ("execute_then_status", {"status": 500}), ("status", {"status": 503}), ("slow_body", {"delay_ms": 700}),
    ("status", {"status": 429, "retry_after": "1"}), ("status", {"status": 408}), ("delay", {"delay_ms": 300}))
ANYTIME = [(call, fault, more) for call in ("create", "create", "lookup", "cancel", "link", "unlink", "check",
                                            "activate", "reveal", "retrieve")
           for fault, more in ANSWERS]
ANYTIME += [("create", fault, more) for fault, more in (
    ("huge", {}), ("wrong_reference", {}), ("contradictory", {}), ("status", {"status": 409}),
    ("status", {"status": 401}), ("status", {"status": 422, "code": "bin_closed"}))]
ANYTIME += 3 * [("check", "ineligible", {"code": "user_blocked"}), ("link", "link_refused", {})]
ANYTIME += [("link", "status", {"status": 409, "code": "in_progress"}), ("check", "user_not_found", {}),
            ("lookup", "stale", {"stale_ms": 500})]
LATE = ("drop_then_execute", "hang_then_execute", "status_then_execute", "execute_twice")
# What a peer says about some users only, for as long as the phase's faults last.
OF_USERS = [(call, "status", {"status": status}) for call in ("create", "check", "link", "lookup", "cancel")
            for status in (401, 403, 404)] + [("create", "redirect", {}),
                                              ("check", "ineligible", {"code": "user_blocked"})]
STORMS = ("create", "check", "link", "lookup", "issuer", "core")


def rules_of(chance, users, issuer):
    """The faults of a phase: none, or up to six rules. An issuer that ignores keys makes a second card of whatever
    arrives twice, and no caller can help it."""
    rules = []
    for _ in range(chance.randrange(1, 4)):
        call, fault, more = chance.choice(ANYTIME)
        rules.append((call, fault, {**more, "rate": chance.choice((0.1, 0.3, 0.6))}))
    if chance.random() < 0.5:
        call = chance.choice(("create", "create", "create", "link", "cancel", "unlink"))
        late = LATE if issuer.trusts_key else LATE[:-1]
        rules.append((call, chance.choice(late), {"rate": chance.choice((0.1, 0.3, 0.6)),
                                                  "late_ms": chance.randrange(100, LATE_MOST_MS if call == "create"
                                                                              else 3000)}))
    if chance.random() < 0.4:
        call, fault, more = chance.choice(OF_USERS)
        rules += [(call, fault, {**more, "user": "user-%d" % user}) for user in chance.sample(range(users), 25)]
    if chance.random() < 0.25:
        rules.append((chance.choice(STORMS), "limited", {"per_second": chance.choice((2, 10, 30)),
                                                         **chance.choice(({}, {"retry_after": "1"}))}))
    chance.shuffle(rules)
    return rules


def summary(rules):
    """Rules that differ only in their users are printed once."""
    texts = collections.Counter()
    for call, fault, more in rules:
        words = ["%s=%s" % pair for pair in more.items() if pair[0] != "user"]
        texts[" ".join([call, fault, *words, *(["for some users:"] if "user" in more else [])])] += 1
    return "; ".join("%s %d" % pair if pair[0].endswith(":") else pair[0] for pair in texts.items()) or "none"


# ---- incidents -------------------------------------------------------------------------------------------------------


class Troubles:
    """One world's. Each incident takes all its choices from `chance` before it looks at anything."""

    def __init__(self, seed, world, history, clients, clocks, users, has_routes=False):
        self.has_routes = has_routes
        self.seed, self.world, self.history, self.clients = seed, world, history, clients
        self.clocks, self.users = clocks, users
        self.phase, self.rules, self.wrong = 0, [], []
        self.kinds = [(self.kill_worker, 5), (self.kill_api, 3), (self.stop_program, 2), (self.pause_worker, 3),
                      (self.nothing, 5),
                      (self.peer_away, 3), (self.restart_database, 1), (self.crash_database, 1), (self.end_sessions, 2),
                      (self.step_database, 4), (self.step_program, 3), (self.suspend, 3),
                      (self.pause_between_lease_and_send, 3),
                      (self.kill_at_create, 3), (self.quiet, 3), (self.standby_away, 2)]

    def one(self, number, kind=None):
        chance = random.Random("%s-phase-%d" % (self.seed, number))
        self.phase = number
        faults = chance.choice(("new", "new", "new", "none", "unchanged"))
        rules = rules_of(chance, self.users, self.world.issuer)
        drawn = chance.choices([kind for kind, _ in self.kinds], [weight for _, weight in self.kinds])[0]
        if self.has_routes:  # with choices of their own, so that the others stay what they are without routes
            rules += services.rules_of(random.Random("%s-routes-%d" % (self.seed, number)))
        if faults != "unchanged":
            self.set_rules(rules if faults == "new" else [])
        self.history.trouble("phase", number=number, faults=summary(self.rules))
        self.history.put("faults", rules=self.rules)
        (kind or drawn)(chance)

    def say(self, what, **members):
        self.history.trouble(what, **members)

    def set_rules(self, rules, first=()):
        """first: rules of an incident, which go before those of the phase."""
        self.rules = list(rules)
        self.world.sandbox.clear()
        for call, fault, more in [*first, *self.rules]:
            self.world.sandbox.fault(call, fault, **more)

    @contextlib.contextmanager
    def incident_rules(self, *rules):
        self.set_rules(self.rules, rules)
        try:
            yield
        finally:
            self.set_rules(self.rules)

    # ---- programs ----

    @staticmethod
    def one_of(chance, programs):
        return programs[chance.randrange(12) % len(programs)]

    def again(self, program):
        self.world.restart(program, wait_ready=False)

    def kill(self, program):
        self.say("kill -9", program=program.name)
        program.kill()

    def kill_worker(self, chance):
        worker, rest, more = self.one_of(chance, self.world.workers()), chance.uniform(0, 0.5), chance.random() < 0.3
        self.kill(worker)
        if more:  # before it is ready again
            self.again(worker)
            time.sleep(rest / 5)
            self.kill(worker)
        time.sleep(rest)
        self.again(worker)

    def kill_api(self, chance):
        api, rest = self.one_of(chance, self.world.apis()), chance.uniform(0, 0.3)
        self.kill(api)
        time.sleep(rest)
        self.again(api)

    def stop_program(self, chance):
        self.stop(self.one_of(chance, [*self.world.apis(), *self.world.workers()]))

    def stop(self, program, start_again=True):
        """One that has only just been started may not yet have a handler for SIGTERM, and dies of it."""
        try:
            lives = program.get("/livez").status == 200
        except (OSError, client.Closed):
            lives = False
        status = program.stop(15)
        self.say("SIGTERM", program=program.name, status=status, lived=lives)
        if status != 0 and (lives or status != -signal.SIGTERM):
            self.wrong.append("%s ended with status %d after SIGTERM" % (program.name, status))
        if start_again:
            self.again(program)

    def pause(self, program, seconds):
        self.say("SIGSTOP", program=program.name, seconds=seconds)
        program.signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            program.signal(signal.SIGCONT)

    def pause_worker(self, chance):
        self.pause(self.one_of(chance, self.world.workers()), chance.uniform(0.2, 4))  # the lease is 2 s

    def suspend(self, chance):
        """The machine slept: the process stood still, and only its monotonic clock did not go on."""
        program = self.one_of(chance, [*self.world.workers(), self.world.apis()[0]])
        stood, slept = chance.uniform(0.1, 1), chance.choice((3, 60, HOUR, 3 * HOUR))
        self.say("suspend", program=program.name, seconds=slept)
        program.signal(signal.SIGSTOP)
        try:
            time.sleep(stood)
            program.clock.sleep(slept)
        finally:
            program.signal(signal.SIGCONT)
        if program.clock.real > FAR:
            self.say("clock step", of=program.name, seconds=-program.clock.real)
            program.clock.step(-program.clock.real)
        time.sleep(stood)

    # ---- clocks ----

    def step(self, name, clock, chance):
        target = chance.choice((0, -90, -5, 3, 90, -HOUR, HOUR, -2 * HOUR, 3 * HOUR, -FAR, FAR))
        rest, back = chance.uniform(0.2, 2), chance.random() < 0.4
        before = clock.real
        for wanted in [target, before] if back else [target]:
            self.say("clock step", of=name, seconds=wanted - clock.real, now_off_by=wanted)
            clock.step(wanted - clock.real)
            time.sleep(rest)

    def step_database(self, chance):
        self.step("database", self.clocks["database"], chance)

    def step_program(self, chance):
        program = self.one_of(chance, [*self.world.workers(), *self.world.apis()])
        self.step(program.name, program.clock, chance)

    # ---- peers ----

    def nothing(self, chance):
        time.sleep(chance.uniform(0.3, 2))

    def refusals(self):
        """404 and 403 for some users while all others are answered well: questions."""
        self.set_rules([(call, "status", {"status": status, "user": "user-%d" % user})
                        for first, call, status in ((0, "create", 404), (1, "check", 403), (2, "link", 404))
                        for user in range(first, self.users, 6)])
        self.say("refusals", faults=summary(self.rules))
        time.sleep(3)

    def peer_away(self, chance):
        target, seconds = chance.choice(("issuer", "issuer", "core")), chance.uniform(0.3, 3)
        self.away("route" if self.has_routes and self.phase % 2 else target, seconds)

    def away(self, target, seconds):
        self.say("down", target=target, seconds=seconds)
        self.world.sandbox.down(target)
        try:
            time.sleep(seconds)
        finally:
            self.world.sandbox.down(target, False)

    # ---- the database ----

    def restart(self, how):
        done = harness.run([harness.CLUSTER, "restart", self.world.dir / "pg", how], 900,
                           clock=self.clocks["database"])
        if done.returncode != 0:
            raise harness.Failed("cluster restart: " + done.stderr)

    def restart_database(self, _):
        self.say("restart of the database")
        self.restart("fast")

    def crash_database(self, _):
        self.say("crash of the database")
        self.restart("immediate")

    def end_sessions(self, _):
        self.say("end of database sessions")
        self.world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"
                       " application_name LIKE 'issuing-%'")

    def standby_away(self, chance):
        """Commits wait for a synchronous standby that is not there; the waiting sessions are not ended."""
        seconds, victim = chance.uniform(0.5, 4), chance.choice(("none", "worker", "api"))
        program = self.one_of(chance, self.world.workers() if victim == "worker" else self.world.apis())
        self.say("synchronous standby away", seconds=seconds)
        self.standby("'no_standby_of_that_name'")
        try:
            time.sleep(seconds / 2)
            if victim != "none":
                self.kill(program)
                self.again(program)
            time.sleep(seconds / 2)
        finally:
            self.standby(None)
        self.say("synchronous standby no longer configured")

    def standby(self, name):
        self.world.sql("ALTER SYSTEM %s" % ("SET synchronous_standby_names = " +
                                            name if name else "RESET synchronous_standby_names"))
        self.world.sql("SELECT pg_reload_conf()")

    # ---- single events ----

    def accept(self, user):
        """One request, repeated until it is accepted: apis may still be starting."""
        def post():
            answer = self.world.post(user, "k")
            return answer.json()["id"] if answer.status == 202 else None
        return harness.wait_until(post, "a request of %s is accepted" % user)

    def calls(self, user, *kinds):
        return [row for row in self.world.sandbox.calls(user=user, limit=1000) if row["call"] in kinds]

    def owner(self, event):
        """The worker that has the event in hands, or None."""
        row = self.world.event(event)
        if row["status"] != "PROCESSING":
            return None
        found = [worker for worker in self.world.workers() if worker.alive() and
                 row["lease_owner"].endswith(":%d" % worker.pid)]
        return found[0] if found else None

    def pause_between_lease_and_send(self, chance):
        """A worker stands still with a lease in hands, before or behind its create, until others have taken over; the
        user may be blocked meanwhile."""
        call, seconds, blocked = chance.choice(("check", "create", "link")), chance.uniform(2.2,
                                                                                            4.5), chance.random() < 0.5
        user = "paused-%d" % self.phase
        slow = (call, "delay", {"user": user, "delay_ms": 400})
        with self.incident_rules(slow):
            event = self.accept(user)
            deadline, worker = time.monotonic() + 5, None
            while worker is None and time.monotonic() < deadline and self.world.status(event) in ("PENDING",
                                                                                                  "PROCESSING"):
                worker = self.owner(event) if self.calls(user, call) else None
            if worker is None:
                self.say("no worker to pause", event=event, status=self.world.status(event))
                return
            self.say("SIGSTOP", program=worker.name, seconds=seconds, event=event, during=call,
                     user_is_blocked_meanwhile=blocked)
            worker.signal(signal.SIGSTOP)
            try:
                if blocked:
                    self.set_rules(self.rules, [("check", "ineligible", {"user": user, "code": "user_blocked"})])
                time.sleep(seconds)
            finally:
                worker.signal(signal.SIGCONT)
            time.sleep(0.3)

    def kill_at_create(self, chance):
        """An event that kills its worker: a worker that sends a create for that user dies within a moment."""
        kills, moment = chance.randrange(1, 8), chance.uniform(0, 0.1)
        fault, more = chance.choice((("create_then_hang", {}), ("hang", {}), ("delay", {"delay_ms": 400}),
                                     ("drop_then_execute", {"late_ms": 800})))
        user = "killing-%d" % self.phase
        with self.incident_rules(("create", fault, {**more, "user": user})):
            event = self.accept(user)
            self.say("event that kills", event=event, create=fault, kills=kills)
            deadline, seen, killed = time.monotonic() + 5 * kills, 0, 0
            while killed < kills and time.monotonic() < deadline and self.world.status(event) in ("PENDING",
                                                                                                  "PROCESSING"):
                creates = len(self.calls(user, "create"))
                worker = self.owner(event) if creates > seen else None
                seen = creates
                if worker is not None:
                    time.sleep(moment)
                    self.kill(worker)
                    self.again(worker)
                    killed += 1
            self.say("event that killed", event=event, killed=killed, status=self.world.status(event))

    OUTAGES = (("issuer is down", "issuer", ()), ("core-api is down", "core", ()),
               ("creates hang", None, [("create", "hang", {})]),
               ("creates are dropped", None, [("create", "drop", {})]),
               ("creates are 503", None, [("create", "status", {"status": 503})]),
               ("creates are executed and dropped", None, [("create", "create_then_drop", {})]),
               ("checks are 503", None, [("check", "status", {"status": 503})]),
               ("links hang", None, [("link", "hang", {})]),
               ("everything of the issuer is 500", None, [("issuer", "status", {"status": 500})]),
               ("the issuer is limited", None, [("issuer", "limited", {"per_second": 0.5})]))

    def quiet(self, chance):
        """Night: exactly one open event, so many workers, and a peer that is away: no outage ends an event."""
        what, target, rules = chance.choice(self.OUTAGES)
        workers, seconds, dies = chance.choice((1, 2, 3)), chance.uniform(2, 6), chance.random() < 0.4
        for each in self.clients:
            each.may_send.clear()
        try:
            self.set_rules([])
            for daemon in [*self.world.apis(), *self.world.workers()]:
                daemon.wait_ready(STUCK_AFTER_S)
            for worker in self.world.workers()[workers:]:
                self.stop(worker, start_again=False)
            open_ones = "SELECT count(*) FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING')"
            with contextlib.suppress(harness.Failed):
                harness.wait_until(lambda: self.world.sql(open_ones) == "0", "nothing is open", 15, 0.1)
            others = self.world.sql(open_ones)
            self.set_rules(rules)
            if target:
                self.world.sandbox.down(target)
            event = self.accept("quiet-%d" % self.phase)
            self.say("single event", event=event, outage=what, workers=workers, seconds=seconds, worker_dies=dies,
                     other_open_events=others)
            time.sleep(seconds / 2)
            if dies:
                self.kill(self.world.workers()[0])
                self.again(self.world.workers()[0])
            time.sleep(seconds / 2)
            self.set_rules([])
            if target:
                self.world.sandbox.down(target, False)
            with contextlib.suppress(harness.Failed):
                self.world.wait_final([event], 60)
            row = self.world.event(event)
            self.say("single event ended", event=event, status=row["status"], retry_count=row["retry_count"])
            if others == "0" and row["status"] != "COMPLETED":
                self.wrong.append("event %s alone in an outage (%s, %d workers) is %s %s: %s" %
                                  (event, what, workers, row["status"], row["reason_code"], row["last_error"]))
        finally:
            for worker in self.world.workers():
                if not worker.alive():
                    self.again(worker)
            for each in self.clients:
                each.may_send.set()
