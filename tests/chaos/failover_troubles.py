"""What goes wrong with the hosts, and how it ends. Each trouble is one method; it returns when it is over and healed by
hand, not when the cluster is well again."""
import os
import signal
import time

import harness

PROMOTION_SECONDS = 90


class Troubles:
    """history: of load.py. mark(): called at the moment of the fault."""

    def __init__(self, cluster, world, history, times, chance):
        self.cluster, self.world, self.history, self.times, self.random = cluster, world, history, times, chance

    def mark(self, kind, primary, **members):
        self.times.mark(primary.name)
        self.history.trouble(kind, primary=primary.name, **members)

    def wait_promotion(self, seconds=PROMOTION_SECONDS):
        """Until another host is the primary; what the trouble is about."""
        before = self.times.before
        return harness.wait_until(lambda: self.cluster.leader() not in (None, before), "another primary", seconds, 0.1)

    def wait_accept(self, seconds=60):
        """Until a request is accepted that is answered after the promotion."""
        _, taken, _ = self.times.lock_moved(self.times.fault)
        since = max(taken or self.times.fault, self.times.fault)
        harness.wait_until(lambda: self.times.accepts.look().first_after(since), "a request is accepted", seconds, 0.1)

    def sync_standby(self):
        return next(self.cluster.by_name[member["name"]] for member in self.cluster.state()
                    if member["role"] == "sync_standby")

    # ---- with a promotion ----

    def switchover(self, primary):
        candidate = self.sync_standby()
        self.mark("switchover", primary, to=candidate.name)
        answer = self.cluster.switchover(primary.name, candidate.name)
        if not answer or answer[0] != 200:
            raise harness.Failed("switchover: %r" % (answer,))
        self.wait_promotion()
        self.wait_accept()

    def postmaster_killed(self, primary):
        pid = primary.postmaster()
        self.mark("postmaster_killed", primary)
        os.kill(pid, signal.SIGKILL)
        self.wait_promotion()
        self.wait_accept()

    def host_killed(self, primary):
        self.mark("host_killed", primary)
        primary.power_off()
        self.wait_promotion()
        self.wait_accept()
        primary.power_on()
        primary.start_all()

    def host_frozen(self, primary):
        """It comes back in the belief that it is the primary."""
        self.mark("host_frozen", primary)
        primary.freeze()
        try:
            self.wait_promotion()
            self.wait_accept()
        finally:
            primary.thaw()

    def host_cut(self, primary, direction="both"):
        self.mark("host_cut_" + direction, primary)
        primary.cut(direction, self.cluster.others(primary))
        try:
            self.wait_promotion()
            self.wait_accept()
        finally:
            primary.mend(self.cluster.others(primary))
