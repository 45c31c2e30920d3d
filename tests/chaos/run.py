#!/usr/bin/python3
"""run.py [SECONDS] [--seed N] [--issuer NAME] [--routes]: the long campaign. Load from clients that repeat themselves,
while programs are killed with -9, stopped, suspended and sent SIGTERM, clocks of the database, of workers and apis are
set by hours, the database is restarted or crashed, its synchronous standby goes away, its sessions are ended, and the
issuer, core-api and with --routes the receiver misbehave, also late.

The choices follow the seed: same seed, same phases, each with the same faults and the same incident (how long a machine
takes for them is the machine's). They are printed as they happen, and are in history.jsonl with every answer to
a client. --phase N repeats that phase of the seed until the time is over.

When the time is over all trouble ends and the system settles, until every event is final, every late call has arrived
and every mark is looked up. Then operators answer the open questions. Before and after that every accepted request has
one card, one refusal or one question; every answer to a key is the same; nothing was lost and nothing is twice. A
complaint about an event is followed by its story.

Two parts: "drops" (the issuer makes the card and drops the connection on three of ten calls, while the worker is killed
every second) and "everything". With --routes another service inserts charges, which can be looked up, and notes, whose
order matters, and the ends of card requests are told to it; the receiver misbehaves, too, and its ledger is compared
with the tables: each charge once, notes in order, no type starved (services.py).

The issuer is the one that --issuer names, or one that the seed chooses. --short is for ./dev test: each incident once
with the issuer of the project's own, in an order that the seed chooses, some phases with each of the others, and some
with routes.

The last line is "chaos: N passed, N failed", counting checks. The files stay in <build>/run/chaos-<pid>
until the next run.
"""
import argparse
import collections
import pathlib
import random
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import checks as ends  # noqa: E402
import harness  # noqa: E402
import invariants  # noqa: E402
import load  # noqa: E402
import services  # noqa: E402
import troubles  # noqa: E402

CLIENTS = 8
SHORT_SEED = 1
SHORT_SECONDS = 5  # of each issuer's phases
SETTINGS = {
    "issuer.timeout": "500ms", "issuer.settle_time": "3s", "core.timeout": "500ms", "worker.lease": "2s",
            "retry.max_attempts": "8",
    "retry.base": "50ms", "retry.cap": "500ms",
    "breaker.failures": "5", "breaker.probe_interval": "100ms", "limit.count": "1000000", "issuer.key_lifetime": "1h",
    "worker.max_in_flight": "32",
    "idempotency.retention": "24h", "log.level": "info",
}


class Campaign:
    """One world, from its start to the last check."""

    def __init__(self, suite, seed, checks, name, workers, pace, issuer="generic", has_routes=False):
        self.suite, self.seed, self.checks, self.name = suite, seed, checks, name
        self.world = suite.world({**SETTINGS, "issuer": issuer},
                                 label="%s_%s" % (name, issuer.replace("-", "_")))
        self.world.tokens = load.Tokens(self.world.secret)
        self.history = load.History(self.world.dir / "history.jsonl")
        self.clocks = {"database": self.world.own_database()}
        self.world.start_sandbox()
        if has_routes:
            self.world.settings.update(services.settings(self.world.sandbox.route))
        for number in range(2):
            self.world.start_api(wait_ready=False, clock=self.world.clock("api-%d" % (number + 1)))
        for number in range(workers):
            self.world.start_worker(wait_ready=False, clock=self.world.clock("worker-%d" % (number + 1)))
        for daemon in self.daemons():
            daemon.wait_ready()
        self.recorder = load.Recorder(self.world.sandbox)
        self.clients = [load.Client(number, seed, self.world, self.history, pace) for number in range(CLIENTS)]
        self.service = services.Service(seed, self.world, self.history, 2 * pace, load.USERS) if has_routes else None
        if has_routes:
            self.clients.append(self.service)
            harness.wait_until(lambda: self.world.sql("SELECT count(*) FROM issuing.routes") ==
                               str(len(services.TYPES)), "the workers have told of their routes")
        self.troubles = troubles.Troubles(seed, self.world, self.history, self.clients, self.clocks, load.USERS,
                                          has_routes)

    def daemons(self):
        return [*self.world.apis(), *self.world.workers()]

    def run(self, seconds, cause):
        """cause(campaign, until): trouble, until that moment."""
        print("%s at %s: %d s" % (self.name, self.world.issuer.name, seconds), flush=True)
        self.history.put("start", seed=self.seed, seconds=seconds, issuer=self.world.issuer.name)
        for each in [self.recorder, *self.clients]:
            each.start()
        wrong = []
        try:
            cause(self, time.monotonic() + seconds)
        except harness.Failed as error:
            wrong.append(str(error))
        for each in self.clients:
            each.is_over.set()
            each.may_send.set()
        for each in self.clients:
            each.join(harness.STUCK_AFTER_S)
        ended = services.ended_by_type(self.world) if self.service else None
        self.calm()
        if self.service:
            services.check_no_type_starved(self.checks, ended)
        self.check(wrong + self.troubles.wrong)

    def calm(self):
        """Trouble is over: everything runs. The clocks stay as wrong as they are."""
        self.history.trouble("trouble is over")
        self.world.sandbox.clear()
        for target in ("issuer", "core", "route"):
            self.world.sandbox.down(target, False)
        self.troubles.standby(None)
        for daemon in self.daemons():
            if not daemon.alive():
                self.world.restart(daemon, wait_ready=False)
        for daemon in self.daemons():
            daemon.wait_ready(60)

    def check(self, wrong):
        world, checks = self.world, self.checks
        checks.complaints = []
        checks.one("%s: the troubles were made, and single events outlived them" % self.name, wrong)
        try:
            ends.settle(checks, world, "after the trouble")
            answers = ends.check_history(checks, world, self.history)
            ends.check_ends(checks, world, "after the trouble")
            ends.check_operators(checks, world, self.history, self.seed)
            if self.service:
                services.check(checks, world, self.service, "after the operators")
            ends.check_repeats(checks, world, answers, [each for client in self.clients for each in client.accepted],
                               self.seed)
            if self.name == "drops":
                completed, summary = ends.ends(world, "CARD_ISSUE")["COMPLETED"], world.sandbox.summary()
                checks.one("%d completed, %d cards, %d links" % (completed, summary["cards"], summary["links"]),
                           [] if completed == summary["cards"] == summary["links"] else ["they differ"])
            checks.one("no card number in metrics or database", invariants.check_metrics_and_rows(world))
            ends.check_doctor(checks, world, self.clocks["database"])
        except harness.Failed as error:
            checks.one("%s: the checks could be made" % self.name, [str(error)])
        self.recorder.stop()
        self.figures()
        ends.print_stories(checks, world, self.recorder, self.history)
        checks.one("the programs drain as promised", world.stop_all())
        checks.one("no card number in a log", ends.check_all_logs(world))
        print("       history: %s" % self.history.path)
        world.kill_all()
        self.suite.worlds.remove(world)
        world.drop_database()

    def figures(self):
        faults = collections.Counter(row["fault"] for row in self.recorder.rows() if row["fault"])
        calls = collections.Counter(row["call"] for row in self.recorder.rows())
        print("       troubles: %s" % ends.figures({kind: count for kind, count in self.history.counts.items()
                                                   if not kind.startswith("issuing-ctl")}))
        print("       marks: %s" % ends.figures({row["result"]: row["n"] for row in self.world.rows(
            "SELECT action || ' ' || result AS result, count(*) AS n FROM issuing.marks WHERE result IS NOT"
            " NULL GROUP BY 1")}))
        print("       calls: %s" % ends.figures(calls))
        print("       calls that met a fault: %s" % ends.figures(faults))


def drops_and_kills(campaign, until):
    """The issuer makes the card and drops the connection on 30 % of calls; the worker dies every second."""
    campaign.world.sandbox.fault("create", "create_then_drop", rate=0.3)
    worker = campaign.world.workers()[0]
    while time.monotonic() < until:
        time.sleep(1)
        campaign.troubles.kill(worker)
        campaign.world.restart(worker, wait_ready=False)


def everything(phase):
    def cause(campaign, until):
        number = 0
        while time.monotonic() < until:
            number += 1
            campaign.troubles.one(number if phase is None else phase)
    return cause


def tour(campaign, _):
    """Each kind of incident once; and answers that end in questions, so that operators have something to do."""
    kinds = [kind for kind, _ in campaign.troubles.kinds]
    random.Random("%s-tour" % campaign.seed).shuffle(kinds)
    for number, kind in enumerate(kinds, 1):
        campaign.troubles.one(number, kind)
    campaign.troubles.refusals()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int, nargs="?", default=180,
                        help="of trouble, a sixth of it the drops (60 s at most); 180 by default")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--phase", type=int, default=None, help="only this phase of the seed, again and again")
    parser.add_argument("--issuer", choices=(*harness.EVERY, "random"), default="random",
                        help="random (the default): the seed chooses")
    parser.add_argument("--routes", action="store_true", help="three other event types beside the cards")
    parser.add_argument("--short", action="store_true", help="each incident once (some 40 s), then each issuer")
    options = parser.parse_args()
    seed = options.seed
    if seed is None:
        seed = SHORT_SEED if options.short else random.SystemRandom().randrange(1 << 31)
    issuer = options.issuer
    if issuer == "random":
        issuer = random.Random("%s-issuer" % seed).choice(harness.EVERY)
    print("chaos: seed %d (the same choices again: --seed %d --issuer %s)" % (seed, seed, issuer), flush=True)
    checks = ends.Checks()
    with harness.Suite("chaos") as suite:
        suite.keep = True
        if options.short:
            for name in harness.EVERY if options.issuer == "random" else [issuer]:
                if name == "generic" or options.issuer == name:
                    Campaign(suite, seed, checks, "tour", 3, 0.15, name).run(40, tour)
                else:
                    Campaign(suite, seed, checks, "phases", 2, 0.15, name).run(SHORT_SECONDS, everything(None))
            Campaign(suite, seed, checks, "routes", 3, 0.15, has_routes=True).run(4 * SHORT_SECONDS, everything(None))
        else:
            drops = 0 if options.phase is not None else max(1, min(60, options.seconds // 6))
            if drops:
                Campaign(suite, seed, checks, "drops", 1, 0.1, issuer, options.routes).run(drops, drops_and_kills)
            Campaign(suite, seed, checks, "everything", 3, 0.15, issuer, options.routes).run(
                max(1, options.seconds - drops), everything(options.phase))
    print("chaos: %d passed, %d failed" % (checks.passed, checks.failed))
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
