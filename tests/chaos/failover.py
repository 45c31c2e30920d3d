#!/usr/bin/python3
"""failover.py [SECONDS | --promotions N] [--seed N] [--short] [--only KIND | --places]: failover of one database. Three
hosts, each with etcd, Patroni and PostgreSQL as examples/patroni configures them; in front two apis, two workers and
the sandbox; and clients that repeat themselves. Primaries are killed, frozen, cut off or switched over, with their
hosts or without; standbys and etcd go away; the disk is full.

After each trouble the cluster must be well again by itself, and what was accepted until then must be in the database.
A time line is printed for each, in seconds since the fault: noticed by an api, lock free, lock taken, promoted, a
standby attached to the new primary (until here the seconds are Patroni's), the first request accepted, the first card
issued. "ours" are the seconds from attached to accepted. At the end the answers to clients are compared with the tables
and with the issuer's and core-api's ledgers: nothing lost, no card twice, each 503 with Retry-After.

The seed decides on the troubles and their order: first each kind once, then as they are drawn. --short: one switchover
and one primary that is killed. --only takes the kinds that it names. --places: two of four places go to a second scope
instead, while commands and servers are killed.

It needs root, for network namespaces, and the packages patroni and etcd-server; elsewhere it counts as skipped. Hosts,
their disks and the network are in namespaces that end with it. Logs, history.jsonl, times.jsonl and report.txt
(written anew after each trouble) are in <build>/run/failover-<pid> until the next run. A file named stop in it ends the
run after the current trouble.

The last line is "failover: N passed, N failed", counting checks.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import client  # noqa: E402
import checks as ends  # noqa: E402
import failover_cluster  # noqa: E402
import failover_lab as lab  # noqa: E402
import failover_places  # noqa: E402
import failover_times  # noqa: E402
import failover_troubles  # noqa: E402
import failover_world  # noqa: E402
import harness  # noqa: E402
import invariants  # noqa: E402
import load  # noqa: E402

WELL_SECONDS = harness.STUCK_AFTER_S
FAILURES = 3
SECONDS_A_PROMOTION = 90  # with --promotions: longer than that, on average, is a failure
SHORT_SEED = 1


class Campaign:
    """One cluster with its programs, from its start to the last check."""

    def __init__(self, folder, seed, checks):
        self.folder, self.seed, self.checks = folder, seed, checks
        self.random = random.Random("%s-failover" % seed)
        self.cluster = failover_cluster.Cluster(folder)
        self.rows, self.lost, self.begun = [], 0, time.monotonic()
        self.requests = set()

    def start(self, pace):
        lab.make_network()
        self.cluster.build()
        self.world = failover_world.World(failover_world.Stage(self.folder), self.cluster)
        self.world.create_database()
        self.cluster.wait_well(WELL_SECONDS)
        self.world.start_all()
        self.history = load.History(self.folder / "history.jsonl")
        self.accepts = failover_world.Accepts(self.history)
        self.times = failover_times.Times(self.cluster, self.world, self.accepts)
        self.troubles = failover_troubles.Troubles(self.cluster, self.world, self.history, self.times, self.random)
        self.clients = [failover_world.Client(number, self.seed, self.world, self.history, pace)
                        for number in range(failover_world.CLIENTS)]
        self.recorder = load.Recorder(self.world.sandbox)
        for each in [self.recorder, *self.clients]:
            each.start()
        harness.wait_until(lambda: len(self.accepts.look().times) > 20, "requests are accepted")
        print("       up in %.0f s: %s" % (time.monotonic() - self.begun, self.folder), flush=True)

    def run(self, kinds):
        """kinds: an iterable of kinds of trouble. One that fails is healed by hand, and the run goes on; three end
        it."""
        wrong = []
        try:
            for kind in kinds:
                try:
                    self.one(kind)
                except (harness.Failed, OSError, client.Closed) as error:
                    wrong.append("trouble %d, %s: %s" % (len(self.rows) + 1, kind, error))
                    print("FAILED %s" % wrong[-1], flush=True)
                    if len(wrong) == FAILURES:
                        break
                    self.troubles.heal()
                    self.cluster.wait_well(WELL_SECONDS)
                if (self.folder / "stop").exists():
                    print("       stopped by the file stop", flush=True)
                    break
        except harness.Failed as error:
            wrong.append(str(error))
        self.checks.one("%d troubles, %d promotions: each healed by itself" % (len(self.rows), self.promotions()),
                        wrong)

    def promotions(self):
        return sum(1 for row in self.rows if row["to"] not in (None, row["from"]))

    def one(self, kind):
        self.troubles.one(kind)
        self.cluster.wait_well(WELL_SECONDS)
        row = self.times.line(kind, len(self.rows) + 1)
        self.rows.append(row)
        with open(self.folder / "times.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")
        print("           %s" % " ".join("%s=%s" % pair for pair in row.items() if pair[0] not in ("at", "kind")),
              flush=True)
        self.check_soon()
        self.report()

    def check_soon(self):
        """Nothing that was accepted since the last look is lost, and nothing is twice."""
        accepted, self.accepts.ids = self.accepts.look().ids, []
        self.requests.update(each[0] for each in accepted)
        wrong = []
        for at in range(0, len(accepted), 5000):
            wanted = ", ".join("('%s'::uuid, '%s', '%s')" % each for each in accepted[at:at + 5000])
            wrong += self.world.sql("SELECT 'lost: ' || w.id || ' ' || w.user_id || ' ' || w.key FROM (VALUES %s) AS w"
                                    " (id, user_id, key) LEFT JOIN outbox_events AS e ON e.id = w.id AND e.user_id ="
                                    " w.user_id AND e.idempotency_key = w.key WHERE e.id IS NULL" % wanted).splitlines()
        self.lost += len(wrong)
        summary = self.world.sandbox.summary()
        wrong += ["%s: %d" % (name, summary[name]) for name in ("references_with_two_cards", "cards_linked_twice")
                  if summary[name]]
        wrong += ["503 without Retry-After: %s" % body for body in self.accepts.without_retry_after]
        self.accepts.without_retry_after = []
        if wrong:
            self.checks.one("trouble %d: nothing is lost or twice" % len(self.rows), wrong)

    def report(self):
        """The state of things, for a run that is stopped before its end."""
        summary = self.world.sandbox.summary()
        text = ["seed %d, %.0f minutes: %d troubles, %d promotions" % (
            self.seed, (time.monotonic() - self.begun) / 60, len(self.rows), self.promotions()),
                "answers to clients: %s" % ends.figures(self.accepts.statuses),
                "requests accepted: %d, lost: %d" % (len(self.requests), self.lost),
                "cards: %d, links: %d, requests with two cards: %d, cards linked twice: %d" % (
                    summary["cards"], summary["links"], summary["references_with_two_cards"],
                    summary["cards_linked_twice"]),
                "checks that failed: %d" % self.checks.failed, "", *failover_times.summary(self.rows)]
        (self.folder / "report.new").write_text("\n".join(text) + "\n")
        (self.folder / "report.new").rename(self.folder / "report.txt")
        return text

    def end(self):
        world, checks = self.world, self.checks
        for each in self.clients:
            each.is_over.set()
        for each in self.clients:
            each.join(harness.STUCK_AFTER_S)
        ends.settle(checks, world, "after the trouble", ends.OPEN)
        answers = ends.check_history(checks, world, self.history)
        without = [row["body"] for row in self.history.rows()
                   if row.get("status") == 503 and not row.get("retry_after")]
        checks.one("every 503 had Retry-After", without)
        ends.check_ends(checks, world, "after the trouble")
        ends.check_repeats(checks, world, answers, [each for client in self.clients for each in client.accepted],
                           self.seed)
        self.check_soon()
        world.numbers = world.sandbox.numbers()
        self.recorder.stop()
        for line in self.report():
            print("       " + line)
        ends.print_stories(checks, world, self.recorder, self.history)
        checks.one("the programs drain as promised", world.stop_all())
        checks.one("no card number in a log", self.check_logs())

    def check_logs(self):
        wrong = invariants.check_logs(self.world)
        for path in self.folder.glob("db*/**/*.log"):
            wrong += invariants._search(path.read_text(errors="replace"), self.world.numbers, path.name)
        return wrong


def drawn(campaign, options):
    """The kinds of trouble, until it is enough."""
    until = time.monotonic() + (options.promotions * SECONDS_A_PROMOTION if options.promotions else options.seconds)
    kinds = {kind: failover_troubles.KINDS[kind] for kind in options.only or failover_troubles.KINDS}
    tour = list(kinds)
    campaign.random.shuffle(tour)
    while time.monotonic() < until:
        yield tour.pop() if tour else campaign.random.choices(list(kinds), list(kinds.values()))[0]
        if options.promotions and campaign.promotions() >= options.promotions:
            return
    if options.promotions:
        raise harness.Failed("%d promotions were wanted" % options.promotions)


def new_folder():
    """Of this process, seen from outside; those of earlier runs that have ended are removed."""
    base = harness.BUILD / "run"
    for folder in base.glob("failover-*"):
        pid = folder.name.rsplit("-", 1)[1]
        try:
            is_there = b"failover.py" in pathlib.Path("/proc/%s/cmdline" % pid).read_bytes()
        except OSError:
            is_there = False
        if pid.isdigit() and not is_there:
            shutil.rmtree(folder, ignore_errors=True)
    folder = base / ("failover-%d" % os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def on_signal(number, _):
    raise SystemExit(128 + number)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int, nargs="?", default=600, help="of trouble; 600 by default")
    parser.add_argument("--promotions", type=int, default=None, help="until so many, instead of SECONDS")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", action="append", choices=sorted(failover_troubles.KINDS), help="this kind, may be"
                        " given several times")
    parser.add_argument("--short", action="store_true", help="one switchover and one killed primary, about a minute")
    parser.add_argument("--places", action="store_true", help="two of four places go to a second scope, some minutes")
    options = parser.parse_args()
    why = lab.why_not()
    if why:
        print("failover: not run: %s\nfailover: 1 skipped\nfailover: 0 passed, 0 failed" % why)
        return 0
    seed = options.seed
    if seed is None:
        seed = SHORT_SEED if options.short else random.SystemRandom().randrange(1 << 31)
    print("failover: seed %d" % seed, flush=True)
    folder = new_folder()
    lab.enter()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    checks = ends.Checks()
    try:
        if options.places:
            failover_places.Drill(folder, seed, checks).run()
        else:
            campaign = Campaign(folder, seed, checks)
            campaign.start(0.2 if options.short else 0.3)
            campaign.run(failover_troubles.SHORT if options.short else drawn(campaign, options))
            campaign.end()
    except (harness.Failed, OSError, client.Closed) as error:
        checks.one("the campaign went to its end", [str(error)])
    print("failover: %d passed, %d failed" % (checks.passed, checks.failed))
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
