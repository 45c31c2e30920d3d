"""Groups of processes that may use a share of a core, by the cpu controller of cgroup v1 or v2, whichever is there."""
import contextlib
import os
import pathlib
import signal
import time

PERIOD_US = 10000
# What one core has left of its part of a share is lost to the others: the less often, the less.
LONG_PERIOD_US = 50000
V1 = pathlib.Path("/sys/fs/cgroup/cpu")
V2 = pathlib.Path("/sys/fs/cgroup")


def own_path(controller):
    """Of this process below the controller's mount; "" = version 2."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(",") or (not controller and not names):
            return path.strip("/")
    return ""


def parent():
    """(folder in which groups can be made, whether it is version 1). OSError where neither can be used."""
    if (V1 / "cpu.cfs_quota_us").exists() or (V1 / own_path("cpu") / "cpu.cfs_quota_us").exists():
        return V1 / own_path("cpu"), True
    folder = V2 / own_path("")
    if "cpu" not in (folder / "cgroup.controllers").read_text().split():
        raise OSError(f"{folder} has no cpu controller")
    # Groups below a group with processes cannot get a controller, so ours is made beside this process's.
    folder = folder if folder == V2 else folder.parent
    (folder / "cgroup.subtree_control").write_text("+cpu")
    return folder, False


class Group:
    """One group. Processes that members start are members."""

    def __init__(self, name):
        folder, self.is_v1 = parent()
        self.folder = folder / f"issuing-bench-{os.getpid()}-{name}"
        self.folder.mkdir()

    def limit(self, cores, period_us=PERIOD_US):
        """None = no limit. A short period is for what measures latency, a long one for throughput."""
        quota = None if cores is None else int(period_us * cores)
        if self.is_v1:
            (self.folder / "cpu.cfs_quota_us").write_text("-1")
            (self.folder / "cpu.cfs_period_us").write_text(str(period_us))
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota or -1))
        else:
            (self.folder / "cpu.max").write_text(f"{quota or 'max'} {period_us}")

    def add(self, *pids):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                (self.folder / "cgroup.procs").write_text(str(pid))

    def pids(self):
        return [int(word) for word in (self.folder / "cgroup.procs").read_text().split()]

    def throttled(self):
        """(periods in which a member wanted to run, those in which the share was used up)"""
        found = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(found["nr_periods"]), int(found["nr_throttled"])

    def signal(self, number):
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def remove(self):
        self.limit(None)
        self.signal(signal.SIGCONT)
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.05)


def why_not():
    """Why no share can be given here; None = it can."""
    try:
        group = Group("probe")
        group.limit(0.5)
        group.remove()
    except (OSError, KeyError, ValueError) as error:
        return str(error)
    return None
