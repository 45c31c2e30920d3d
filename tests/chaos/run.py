#!/usr/bin/python3
"""run.py [SECONDS] [--seed N]: the long campaign. Load from clients that repeat themselves, while apis and workers are
killed with -9, sent to sleep, told to stop, the database is restarted or crashed, its sessions are ended, and issuer
and core-api misbehave.

The choices follow the seed: same seed, same sequence of troubles, faults and requests (how long each takes is the
machine's). Everything that clients were told and everything that was done goes to history.jsonl as it happens. When the
time is over all trouble ends, the system gets time to settle, and the history is checked against the database and the
ledgers: every accepted request has one card, one refusal or one open question; every answer to a key is the same;
nothing was lost and nothing is twice. The first part is "the big one": the issuer makes the card and drops the
connection on three of ten calls while the worker is killed every second.

The last line is "chaos: N passed, N failed", counting checks. The files stay in <build>/run/chaos-<pid>.
"""
import argparse
import collections
import json
import pathlib
import random
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import client  # noqa: E402
import harness  # noqa: E402
import invariants  # noqa: E402

USERS = 400
CLIENTS = 8
SETTINGS = {
    "issuer.timeout": "500ms", "issuer.settle_time": "1s", "core.timeout": "500ms", "worker.lease": "2s", "retry.max_attempts": "1000",
    "retry.base": "50ms", "retry.cap": "500ms",
    "breaker.failures": "5", "breaker.probe_interval": "100ms", "limit.count": "1000000", "issuer.key_lifetime": "1h",
    "worker.max_in_flight": "32",
    "idempotency.retention": "24h", "log.level": "info",
}


# What the peers do now and then: call, fault, members of the rule.
FAULTS = [(call, fault, more) for call in ("create", "create", "lookup", "cancel", "link", "check") for fault, more in (
    ("create_then_drop", {}), ("create_then_hang", {}), ("drop", {}), ("hang", {}), ("garbage", {}), ("truncated", {}),
    ("execute_then_status", {"status": 500}), ("status", {"status": 503}), ("slow_body", {"delay_ms": 700}),
    ("status", {"status": 429, "retry_after": "1"}), ("status", {"status": 408}), ("delay", {"delay_ms": 300}))]
FAULTS += [("create", fault, more) for fault, more in (
    ("huge", {}), ("wrong_reference", {}), ("contradictory", {}), ("status", {"status": 409}),
    ("status", {"status": 401}), ("status", {"status": 422, "code": "bin_closed"}))]
FAULTS += 3 * [("check", "ineligible", {"code": "user_blocked"}), ("link", "link_refused", {})]
FAULTS += [("link", "status", {"status": 409, "code": "in_progress"}), ("check", "user_not_found", {})]


class History:
    """One JSON object a line, written at once: what happened before a crash of this program is on disk."""

    def __init__(self, path):
        self.path, self.lock, self.begun = path, threading.Lock(), time.monotonic()
        self.file = open(path, "w", buffering=1)

    def put(self, what, **members):
        with self.lock:
            self.file.write(json.dumps({"t": round(time.monotonic() - self.begun, 3), "what": what, **members}) + "\n")

    def rows(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()]


class Client(threading.Thread):
    """Asks for cards, each with a key of its own, and repeats itself until it is told 202; now and then also long after
    that. Of one key it
    sends one body. Gives up a key only when the campaign is over: then its outcome is open, and the check finds out."""

    def __init__(self, number, seed, world, history, pace):
        super().__init__(daemon=True)
        self.number, self.world, self.history, self.pace = number, world, history, pace
        self.random = random.Random("%s-client-%d" % (seed, number))
        self.is_over = threading.Event()
        self.told = []

    def run(self):
        request = 0
        while not self.is_over.is_set():
            if self.told and self.random.random() < 0.15:
                self.ask(*self.random.choice(self.told))
            else:
                user, key = "user-%d" % self.random.randrange(USERS), "c%d-%d" % (self.number, request)
                body = {"kind": "new", "memo": "m%d" % self.random.randrange(1000)}
                request += 1
                if self.until_told(user, key, body):
                    self.told.append((user, key, body))
            self.is_over.wait(self.pace * self.random.random() * 2)

    def until_told(self, user, key, body):
        while not self.is_over.is_set():
            if self.ask(user, key, body) == 202:
                return True
            self.is_over.wait(0.05 + 0.1 * self.random.random())
        return False

    def ask(self, user, key, body):
        """One call to one of the apis; None when it got no answer."""
        apis = self.world.apis()
        # Many calls go out twice at the same moment, to two apis: two devices, or an impatient library.
        chosen = self.random.sample(apis, 2 if self.random.random() < 0.3 else 1)
        status = None
        for answer in self.send([api.port for api in chosen], self.world.post_bytes(user, key, body)):
            if answer is not None:
                status = answer.status if status != 202 else 202
                self.history.put("answer", user=user, key=key, status=answer.status, body=answer.body.decode(),
                                 replayed=answer.header("Idempotent-Replayed"))
        if status is None:
            self.history.put("silence", user=user, key=key)
        return status

    @staticmethod
    def send(ports, data):
        wires = []
        for port in ports:
            try:
                wires.append(client.Wire(port, 20).send(data))
            except OSError:
                pass
        for wire in wires:
            try:
                yield wire.answer()
            except (OSError, client.Closed):
                yield None
            wire.close()


class Trouble:
    """One kind of trouble after the other, by the seed."""

    def __init__(self, seed, suite, world, history):
        self.random, self.suite, self.world, self.history = random.Random("%s-trouble" % seed), suite, world, history
        self.kinds = [(self.kill_worker, 6), (self.kill_api, 3), (self.stop_program, 2), (self.sleep_worker, 3),
                      (self.misbehave, 10), (self.calm, 4), (self.issuer_down, 2), (self.core_down, 1),
                      (self.restart_database, 1), (self.crash_database, 1), (self.end_sessions, 2)]

    def one(self):
        kind = self.random.choices([kind for kind, _ in self.kinds], [weight for _, weight in self.kinds])[0]
        kind()

    def say(self, what, **members):
        self.history.put("trouble", kind=what, **members)

    def pause(self, least, most):
        time.sleep(self.random.uniform(least, most))

    def again(self, program):
        self.world.restart(program, wait_ready=False)

    def kill_worker(self):
        worker = self.random.choice(self.world.workers())
        self.say("kill -9", program=worker.name)
        worker.kill()
        self.pause(0, 0.5)
        self.again(worker)

    def kill_api(self):
        api = self.random.choice(self.world.apis())
        self.say("kill -9", program=api.name)
        api.kill()
        self.pause(0, 0.3)
        self.again(api)

    def stop_program(self):
        program = self.random.choice([*self.world.apis(), *self.world.workers()])
        status = program.stop(15)
        self.say("SIGTERM", program=program.name, status=status)
        if status != 0:
            raise harness.Failed("%s ended with status %d after SIGTERM" % (program.name, status))
        self.again(program)

    def sleep_worker(self):
        worker = self.random.choice(self.world.workers())
        seconds = self.random.uniform(0.2, 4)  # the lease is 2 s
        self.say("SIGSTOP", program=worker.name, seconds=seconds)
        worker.signal(harness.signal.SIGSTOP)
        time.sleep(seconds)
        worker.signal(harness.signal.SIGCONT)

    def misbehave(self):
        """Up to four rules at once; they stay until it is calm, so that kills and restarts fall among them."""
        self.world.sandbox.clear()
        for _ in range(self.random.randrange(1, 5)):
            call, fault, more = self.random.choice(FAULTS)
            rate = self.random.choice((0.1, 0.3, 0.6))
            self.say("fault", call=call, fault=fault, rate=rate, **more)
            self.world.sandbox.fault(call, fault, rate=rate, **more)
        self.pause(0.3, 2)

    def away(self, target):
        seconds = self.random.uniform(0.3, 3)
        self.say("down", target=target, seconds=seconds)
        self.world.sandbox.down(target)
        time.sleep(seconds)
        self.world.sandbox.down(target, False)

    def issuer_down(self):
        self.away("issuer")

    def core_down(self):
        self.away("core")

    def restart_database(self):
        self.say("restart of the database")
        self.suite.restart_database("fast")

    def crash_database(self):
        self.say("crash of the database")
        self.suite.restart_database("immediate")

    def end_sessions(self):
        self.say("end of database sessions")
        self.world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"
                       " application_name LIKE 'issuing-%'")

    def calm(self):
        self.say("calm")
        self.world.sandbox.clear()
        self.pause(0.2, 1)


class Checks:
    """The offline check. Each is one line, passed or failed."""

    def __init__(self):
        self.passed = self.failed = 0

    def one(self, what, wrong):
        self.passed += not wrong
        self.failed += bool(wrong)
        print("%-6s %s" % ("FAILED" if wrong else "ok", what), flush=True)
        for line in list(wrong)[:10]:
            print("       %s" % line)


def check_history(checks, world, history):
    """What clients were told, against what there is."""
    told, statuses = collections.defaultdict(set), collections.Counter()
    for row in history.rows():
        if row["what"] == "answer":
            statuses[row["status"]] += 1
            if row["status"] == 202:
                told[(row["user"], row["key"])].add(row["body"])
    print("       %s; %d accepted requests" % (", ".join("%d x %d" % (number, status)
                                                         for status, number in sorted(statuses.items())), len(told)))
    checks.one("something was accepted", [] if told else ["nothing"])
    checks.one("clients were told 202, 409 or 503 and nothing else",
               [str(status) for status in statuses if status not in (202, 409, 503)])
    checks.one("every answer to a key was the same, byte for byte",
               ["%s: %d answers" % (key, len(bodies)) for key, bodies in told.items() if len(bodies) > 1])
    events = {(row["user_id"], row["idempotency_key"]): row
              for row in world.rows("SELECT id, user_id, idempotency_key, status FROM outbox_events")}
    checks.one("no accepted request was lost", ["%s %s" % key for key in told if key not in events])
    checks.one("the request is the one that was told", ["%s %s" % key for key, bodies in told.items() for body in bodies
                                                       if key in events and
                                                        json.loads(body)["id"] != events[key]["id"]])
    checks.one("keys and events are one to one",
               [] if len(events) == int(world.sql("SELECT count(*) FROM outbox_events")) else ["an event too many"])
    return told


def check_ends(checks, world, finals):
    open_ones = world.rows("SELECT id, status, last_error FROM outbox_events WHERE status NOT IN (%s)" %
                           ", ".join("'%s'" % status for status in finals))
    ends = world.sql("SELECT string_agg(status || ' ' || n, ', ') FROM"
                     " (SELECT status, count(*) AS n FROM outbox_events GROUP BY 1) s")
    checks.one("every request came to its end (%s)" % ends,
               ["%s %s %s" % (row["id"], row["status"], row["last_error"]) for row in open_ones])
    summary = world.sandbox.summary()
    checks.one("no reference has two cards at the issuer", [summary["references_with_two_cards"]]
               if summary["references_with_two_cards"] else [])
    checks.one("no card is linked twice", [summary["cards_linked_twice"]] if summary["cards_linked_twice"] else [])
    checks.one("tables and ledgers agree, each card linked once", invariants.check_ledgers(world))
    checks.one("no card number in metrics or database", invariants.check_metrics_and_dump(world))


def settle(world, seconds):
    """Trouble is over: everything runs, and gets this long."""
    world.sandbox.clear()
    for target in ("issuer", "core"):
        world.sandbox.down(target, False)
    for daemon in [*world.apis(), *world.workers()]:
        if not daemon.alive():
            world.restart(daemon, wait_ready=False)
    for daemon in [*world.apis(), *world.workers()]:
        daemon.wait_ready(60)
    try:
        world.settle(seconds)
    except harness.Failed as error:
        print("       " + str(error))


def campaign(suite, seed, checks, name, seconds, workers, pace, trouble):
    """trouble(history, world, until): causes it until that moment."""
    print("%s: %d s" % (name, seconds), flush=True)
    world = suite.world(dict(SETTINGS), label=name)
    history = History(world.dir / "history.jsonl")
    history.put("start", seed=seed, seconds=seconds)
    world.up(apis=2, workers=workers)
    clients = [Client(number, seed, world, history, pace) for number in range(CLIENTS)]
    for each in clients:
        each.start()
    wrong = []
    try:
        trouble(history, world, time.monotonic() + seconds)
    except harness.Failed as error:
        wrong.append(str(error))
    for each in clients:
        each.is_over.set()
    for each in clients:
        each.join(60)
    history.put("trouble is over")
    settle(world, 120)
    checks.one("%s: the troubles could be made" % name, wrong)
    check_history(checks, world, history)
    check_ends(checks, world, ("COMPLETED",) if name == "drops" else ("COMPLETED", "REJECTED"))
    if name == "drops":
        events = int(world.sql("SELECT count(*) FROM outbox_events"))
        summary = world.sandbox.summary()
        checks.one("%d accepted, %d cards, %d links" % (events, summary["cards"], summary["links"]),
                   [] if events == summary["cards"] == summary["links"] else ["they differ"])
    checks.one("the programs drain as promised", world.stop_all())
    checks.one("no card number in a log", invariants.check_logs(world))
    print("       history: %s" % history.path)
    world.kill_all()
    suite.worlds.remove(world)
    world.drop_database()


def drops_and_kills(history, world, until):
    """The issuer makes the card and drops the connection on 30 % of calls; the worker dies every second."""
    world.sandbox.fault("create", "create_then_drop", rate=0.3)
    worker = world.workers()[0]
    while time.monotonic() < until:
        time.sleep(1)
        history.put("trouble", kind="kill -9", program=worker.name)
        worker.kill()
        world.restart(worker, wait_ready=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int, nargs="?", default=180,
                        help="of trouble, a third of it the big one (60 s at most); 180 unless told")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    print("chaos: seed %d (the same choices again: --seed %d)" % (seed, seed), flush=True)
    checks = Checks()
    with harness.Suite("chaos") as suite:
        suite.keep = True
        big = max(1, min(60, options.seconds // 3))
        campaign(suite, seed, checks, "drops", big, 1, 0.02, drops_and_kills)

        def everything(history, world, until):
            trouble = Trouble(seed, suite, world, history)
            while time.monotonic() < until:
                trouble.one()
        campaign(suite, seed, checks, "everything", max(1, options.seconds - big), 3, 0.03, everything)
    print("chaos: %d passed, %d failed" % (checks.passed, checks.failed))
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
