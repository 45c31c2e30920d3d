"""What goes wrong with the hosts, and how it ends. Each trouble is one method of Troubles; it returns when it is healed
by hand, not when the cluster is well again.

A host is killed as by a pulled plug, frozen as a machine that stands still and wakes up in the belief that it is the
primary, or cut off so that nobody is told.
"""
import contextlib
import os
import signal
import time

import harness

PROMOTION_SECONDS = 90
TTL_SECONDS = 20
FAILSAFE_SECONDS = TTL_SECONDS + 5  # without failsafe_mode the primary would have given up
AWAY_SECONDS = 10
STANDBYS_SECONDS = 30  # long enough for Patroni to give up waiting for them, were it allowed to
DISK_SECONDS = 15
LAG_SECONDS = 2

# kind -> how often it is drawn. PROMOTES: another host must be the primary afterwards.
PROMOTES = {"switchover": 42, "postmaster_killed": 38, "host_killed": 3, "host_frozen": 3, "host_cut": 2,
            "host_cut_out": 1, "host_cut_in": 1, "killed_with_programs": 5, "killed_behind_standbys_that_lag": 2,
            "switchover_without_an_etcd": 3, "primary_and_standby_killed": 1}
STAYS = {"standby_away": 1, "standbys_away": 1, "standby_hosts_away": 1, "etcd_away": 1, "all_etcd_away": 1,
         "disk_full": 1}
KINDS = {**PROMOTES, **STAYS}
SHORT = ("switchover", "postmaster_killed")


class Troubles:
    """history: of load.py. times: of failover_times.py."""

    def __init__(self, cluster, world, history, times, chance):
        self.cluster, self.world, self.history, self.times, self.random = cluster, world, history, times, chance

    def one(self, kind):
        self.kind = kind
        getattr(self, kind)(harness.wait_until(self.cluster.primary, "a primary"))

    def mark(self, primary, **members):
        """The moment of the fault."""
        self.times.mark(primary.name)
        self.history.trouble(self.kind, primary=primary.name, **members)

    def promoted_and_accepted(self):
        def is_promoted():
            owner = self.times.lock_moved(self.times.fault)[2]
            return owner and self.cluster.leader() == owner
        harness.wait_until(is_promoted, "a new primary", PROMOTION_SECONDS, 0.1)
        since = self.times.lock_moved(self.times.fault)[1]
        harness.wait_until(lambda: self.times.accepts.look().first_after(since), "a request is accepted",
                           PROMOTION_SECONDS, 0.1)

    def accepted_again(self):
        since = time.time()
        harness.wait_until(lambda: self.times.accepts.look().first_after(since), "a request is accepted",
                           PROMOTION_SECONDS, 0.1)

    def standby(self, role):
        """role: sync_standby, or replica for the one that commits do not wait for."""
        return harness.wait_until(
            lambda: next((self.cluster.by_name[member["name"]] for member in self.cluster.state()
                          if member["role"] == role), None), "a host that is " + role)

    def heal(self):
        """After a trouble that did not go as it should: by hand, whatever is still wrong."""
        for host in self.cluster.hosts:
            host.mend(self.cluster.others(host))
            if not host.is_on():
                host.power_on()
                host.start_all()
            host.thaw()
            host.free_disk()
            if not host.pids("/usr/bin/etcd"):
                host.start_etcd()

    # ---- another primary ----

    def switchover(self, primary):
        candidate = self.standby("sync_standby")
        self.mark(primary, to=candidate.name)
        answer = self.cluster.switchover(primary.name, candidate.name)
        if answer and answer[0] == 503:  # it could not write to an etcd that has just died: asked once more
            answer = self.cluster.switchover(primary.name, candidate.name)
        if not answer or answer[0] != 200:
            raise harness.Failed("switchover: %r" % (answer,))
        self.promoted_and_accepted()

    def switchover_without_an_etcd(self, primary):
        without = self.random.choice(self.cluster.hosts)
        without.signal(signal.SIGKILL, "/usr/bin/etcd")
        try:
            self.switchover(primary)
        finally:
            without.start_etcd()

    def postmaster_killed(self, primary):
        self.kill_postmaster(primary, [])
        self.promoted_and_accepted()

    def killed_with_programs(self, primary):
        """The postmaster, and an api and a worker in the same moment."""
        programs = [self.random.choice(each) for each in (self.world.apis(), self.world.workers())]
        self.kill_postmaster(primary, programs)
        time.sleep(self.random.uniform(0, 2))
        for program in programs:
            self.world.restart(program, wait_ready=False)
        self.promoted_and_accepted()

    def kill_postmaster(self, primary, programs):
        pid = harness.wait_until(primary.postmaster, "a postmaster")
        self.mark(primary, **({"programs": " ".join(program.name for program in programs)} if programs else {}))
        os.kill(pid, signal.SIGKILL)
        for program in programs:
            program.kill()

    def host_killed(self, primary):
        self.mark(primary)
        primary.power_off()
        self.promoted_and_accepted()
        primary.power_on()
        primary.start_all()

    def killed_behind_standbys_that_lag(self, primary):
        """For some seconds no standby receives anything; then the primary's host dies. What was accepted meanwhile,
        were anything accepted, would be lost."""
        others = self.cluster.others(primary)
        self.mark(primary)
        primary.cut_from(others)
        time.sleep(LAG_SECONDS)
        primary.power_off()
        self.promoted_and_accepted()
        primary.power_on()
        primary.mend(others)
        primary.start_all()

    def primary_and_standby_killed(self, primary):
        """The host that is left has not confirmed every commit: it must not be promoted. The standby comes back."""
        standby = self.standby("sync_standby")
        self.mark(primary, standby=standby.name)
        primary.power_off()
        standby.power_off()
        time.sleep(AWAY_SECONDS)
        standby.power_on()
        standby.start_all()
        self.promoted_and_accepted()
        primary.power_on()
        primary.start_all()

    def host_frozen(self, primary):
        """It comes back in the belief that it is the primary."""
        self.mark(primary)
        primary.freeze()
        try:
            self.promoted_and_accepted()
        finally:
            primary.thaw()

    def host_cut(self, primary, direction="both"):
        self.mark(primary)
        primary.cut(direction, self.cluster.others(primary))
        try:
            self.promoted_and_accepted()
        finally:
            primary.mend(self.cluster.others(primary))

    def host_cut_out(self, primary):
        """What it sends is lost."""
        self.host_cut(primary, "out")

    def host_cut_in(self, primary):
        """What is sent to it is lost."""
        self.host_cut(primary, "in")

    # ---- the same primary ----

    def standby_away(self, primary):
        """The synchronous one: the other one becomes it."""
        standby = self.standby("sync_standby")
        self.mark(primary, standby=standby.name)
        standby.power_off()
        time.sleep(1)
        self.accepted_again()
        standby.power_on()
        standby.start_all()

    def standbys_away(self, primary):
        """The programs of both, while etcd goes on: nothing may be accepted meanwhile."""
        standbys = self.cluster.others(primary)
        self.mark(primary)
        for standby in standbys:
            standby.signal(signal.SIGKILL, "/usr/bin/patroni")
            standby.signal(signal.SIGKILL, "postgres")
        since = time.time() + 0.5  # what was committed before is still being answered
        time.sleep(STANDBYS_SECONDS)
        self.accepted_never(since)
        for standby in standbys:
            standby.start_patroni()
        self.accepted_again()

    def standby_hosts_away(self, primary):
        """Of etcd, too, two of three are away: the primary steps down."""
        standbys = self.cluster.others(primary)
        self.mark(primary)
        for standby in standbys:
            standby.power_off()
        since = time.time() + 0.5
        time.sleep(AWAY_SECONDS)
        self.accepted_never(since)
        for standby in standbys:
            standby.power_on()
            standby.start_all()
        self.accepted_again()

    def accepted_never(self, since):
        if self.times.accepts.look().first_after(since):
            raise harness.Failed("a request was accepted without a standby")

    def etcd_away(self, primary):
        """The primary's own."""
        self.mark(primary)
        primary.signal(signal.SIGKILL, "/usr/bin/etcd")
        time.sleep(AWAY_SECONDS)
        primary.start_etcd()
        self.accepted_again()

    def all_etcd_away(self, primary):
        """The primary goes on: it sees that no other host can have become one."""
        self.mark(primary)
        for host in self.cluster.hosts:
            host.signal(signal.SIGKILL, "/usr/bin/etcd")
        try:
            time.sleep(FAILSAFE_SECONDS)
            self.accepted_again()
        finally:
            for host in self.cluster.hosts:
                host.start_etcd()
        if self.cluster.leader() != primary.name:
            raise harness.Failed("the primary gave up while etcd was away")
        # For another ttl the standbys believe what the primary told them while etcd was away.
        time.sleep(TTL_SECONDS)

    def disk_full(self, primary):
        """Whether the primary dies of it depends on whether it needs a new segment of WAL meanwhile."""
        self.mark(primary)
        primary.fill_disk()
        try:
            with contextlib.suppress(harness.Failed):
                harness.wait_until(lambda: self.cluster.leader() not in (None, primary.name), "another primary",
                                   DISK_SECONDS, 0.2)
        finally:
            primary.free_disk()
        self.accepted_again()
