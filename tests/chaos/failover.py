#!/usr/bin/python3
"""failover.py [SECONDS | --promotions N] [--seed N] [--short]: three hosts with etcd, Patroni and PostgreSQL as
examples/patroni configures them, two apis, two workers and the sandbox in front; load from clients that repeat
themselves; and hosts that are killed, frozen and cut off.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import checks as ends  # noqa: E402
import failover_cluster  # noqa: E402
import failover_lab as lab  # noqa: E402
import failover_times  # noqa: E402
import failover_troubles  # noqa: E402
import failover_world  # noqa: E402
import harness  # noqa: E402
import load  # noqa: E402

WELL_SECONDS = 120


class Campaign:
    def __init__(self, folder, seed, checks):
        self.folder, self.seed, self.checks = folder, seed, checks
        self.random = random.Random("%s-failover" % seed)
        self.cluster = failover_cluster.Cluster(folder)
        self.world = self.times = None
        self.rows = []

    def start(self):
        begun = time.monotonic()
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
        self.clients = [failover_world.Client(number, self.seed, self.world, self.history, 0.2)
                        for number in range(failover_world.CLIENTS)]
        for each in self.clients:
            each.start()
        print("       up in %.0f s: %s" % (time.monotonic() - begun, self.folder), flush=True)

    def one(self, kind):
        primary = self.cluster.primary()
        trouble = getattr(self.troubles, kind)
        trouble(primary)
        self.cluster.wait_well(WELL_SECONDS)
        row = self.times.line(kind, len(self.rows) + 1)
        self.rows.append(row)
        with open(self.folder / "times.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")
        print("          %s" % " ".join("%s=%s" % pair for pair in row.items() if pair[0] not in ("at", "number")),
              flush=True)
        self.check_soon()

    def check_soon(self):
        """Nothing that was accepted until now is lost, and nothing is twice."""
        accepted, self.accepts.ids = self.accepts.look().ids, []
        wrong = []
        for at in range(0, len(accepted), 5000):
            wanted = ", ".join("('%s'::uuid, '%s', '%s')" % each for each in accepted[at:at + 5000])
            wrong += self.world.sql("SELECT 'lost: ' || w.id || ' ' || w.user_id || ' ' || w.key FROM (VALUES %s) AS w"
                                    " (id, user_id, key) LEFT JOIN outbox_events AS e ON e.id = w.id AND e.user_id ="
                                    " w.user_id AND e.idempotency_key = w.key WHERE e.id IS NULL" % wanted
                                    ).splitlines() if wanted else []
        summary = self.world.sandbox.summary()
        for name in ("references_with_two_cards", "cards_linked_twice"):
            if summary[name]:
                wrong.append("%s: %d" % (name, summary[name]))
        wrong += ["503 without Retry-After: %s" % body for body in self.accepts.without_retry_after]
        self.accepts.without_retry_after = []
        if wrong:
            self.checks.one("after trouble %d nothing is lost or twice" % len(self.rows), wrong)

    def end(self):
        for each in self.clients:
            each.is_over.set()
        for each in self.clients:
            each.join(60)
        ends.settle(self.checks, self.world, "after the trouble")
        ends.check_history(self.checks, self.world, self.history)
        ends.check_ends(self.checks, self.world, "after the trouble")
        for line in failover_times.summary(self.rows):
            print("       " + line)
        self.checks.one("the programs drain as promised", self.world.stop_all())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int, nargs="?", default=300)
    parser.add_argument("--promotions", type=int)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    why = lab.why_not()
    if why:
        print("failover: not run: %s\nfailover: 1 skipped\nfailover: 0 passed, 0 failed" % why)
        return 0
    folder = harness.BUILD / "run" / ("failover-%d" % os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lab.enter()
    checks = ends.Checks()
    campaign = Campaign(folder, options.seed or 1, checks)
    campaign.start()
    for kind in ("switchover", "postmaster_killed") if options.short else ("switchover", "postmaster_killed", "host_killed", "host_frozen", "host_cut"):
        campaign.one(kind)
    campaign.end()
    print("failover: %d passed, %d failed" % (checks.passed, checks.failed))
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
