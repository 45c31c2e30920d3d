"""A machine with a real systemd as its PID 1: an overlay of this one, or of another root, booted by systemd-nspawn.

Nothing is downloaded and nothing is written here: what the machine writes goes to a tmpfs, which exists only in a mount
namespace of its own. A process holds that namespace; when it and the machine have ended, everything is gone. Both end
with us, also when we are killed. The network is the machine's own, with nothing but lo. The cgroups are below one of
ours, which is removed at the end, or after SIGKILL by the next run.

What this machine has of PostgreSQL's clusters, of an installed issuing, of services to be started and of mounts is
removed in the overlay before the boot: it is a Debian with packages, and nothing else.
"""
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from stuck import STUCK_AFTER_S  # noqa: E402

OVERLAY = "/run/systemd/issuing-test"  # in the namespace only: /run/systemd is a tmpfs there
SOURCE = "/src"  # the clone, in the machine
CGROUP = "issuing-systemd-"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_WITHIN_S = STOP_WITHIN_S = STUCK_AFTER_S

# $1: what it is an overlay of.
MOUNT = """
mount --make-rprivate /
mkdir -p /run/systemd
mount -t tmpfs -o mode=755 tmpfs /run/systemd
mkdir {overlay}
cd {overlay}
mkdir lower upper work root
mount --bind "$1" lower
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root
"""
# $2: its name.
NAME = """
cd root
: >etc/machine-id
: >etc/fstab
echo "$2" >etc/hostname
printf '127.0.0.1 localhost %s\\n' "$2" >etc/hosts
"""
# Of this machine, whose packages a fresh one would have, and nothing else.
CLEAN = """
rm -rf var/lib/apt/lists/* usr/sbin/policy-rc.d etc/systemd/system/*.wants etc/systemd/system/*.requires
rm -rf etc/postgresql/*/* var/lib/postgresql/*/* var/log/postgresql/* var/log/journal
rm -rf etc/issuing etc/credstore etc/sysusers.d/issuing* usr/lib/sysusers.d/issuing* usr/lib/tmpfiles.d/issuing*
rm -rf etc/systemd/system/issuing* usr/lib/systemd/system/issuing* usr/bin/issuing-* usr/share/issuing
for file in passwd shadow group gshadow; do sed -i '/^issuing-/d' etc/$file; done
"""
HOLD = """
echo mounted
exec cat >/dev/null
"""


class Failed(Exception):
    """What a step found wrong."""


class Unavailable(Exception):
    """This machine does not allow it."""


def _cgroup_folders(name):
    """The cgroups in which systemd-nspawn makes its own: one in the hierarchy of systemd, one in that of version 2."""
    own = {}
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or controllers == "name=systemd":
            own[controllers] = path
    found = []
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, mounted, kind, options = line.split(" ")[:4]
        if kind == "cgroup2" and "" in own:
            found.append(pathlib.Path(mounted + own[""]) / name)
        elif kind == "cgroup" and "name=systemd" in options.split(",") and "name=systemd" in own:
            found.append(pathlib.Path(mounted + own["name=systemd"]) / name)
    return found


def why_not():
    """Why no machine can be booted here; None = one can."""
    if os.geteuid() != 0:
        return "only root may boot a machine"
    for program in ("systemd-nspawn", "unshare", "nsenter", "setpriv"):
        if not shutil.which(program):
            return "%s is missing (apt install systemd-container)" % program
    tried = subprocess.run(["unshare", "-m", "sh", "-ec", MOUNT.format(overlay=OVERLAY), "mount", "/"],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if tried.returncode != 0:
        return "no overlay in a namespace of its own: " + (tried.stderr.strip().splitlines() or ["refused"])[0]
    return None


class Machine:
    """Use as a context manager: boots, and leaves nothing behind."""

    def __init__(self, clone, log, root="/", name="debian"):
        """root: what it is an overlay of; another than / is left as it is."""
        self.clone, self.log = pathlib.Path(clone), pathlib.Path(log)
        self.root, self.name = str(root), name
        self.cgroups = _cgroup_folders("%s%d-%s" % (CGROUP, os.getpid(), name))
        for folder in self.cgroups:
            self._sweep(folder.parent)
        self.holder = self.nspawn = self.pid = None
        self.binds = []

    def __enter__(self):
        try:
            self._hold()
            self.boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    # ---- boot and end ------------------------------------------------------------------------------------------------

    def _hold(self):
        script = MOUNT.format(overlay=OVERLAY) + NAME + (CLEAN if self.root == "/" else "") + HOLD
        self.holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "-m", "sh", "-ec", script, "mount",
                                        self.root, self.name],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True, start_new_session=True)
        said = self.holder.stdout.readline().strip()
        if said != "mounted":
            raise Unavailable("no overlay: " + said)

    def path(self, inside):
        """A file of the machine, as this process may open it."""
        return pathlib.Path("/proc/%d/root%s/root%s" % (self.holder.pid, OVERLAY, inside))

    def _enter_cgroups(self):
        for folder in self.cgroups:
            folder.mkdir(exist_ok=True)
            (folder / "cgroup.procs").write_text("0")

    def boot(self):
        # In a bind the colon separates.
        escaped = str(self.clone).replace("\\", "\\\\").replace(":", "\\:")
        # SIGTERM to systemd-nspawn, also when we are killed, ends the machine at once; SIGKILL would leave it running.
        words = ["setpriv", "--pdeathsig", "TERM", "nsenter", "-t", str(self.holder.pid), "-m",
                 "systemd-nspawn", "-q", "-D", OVERLAY + "/root", "-M", self.name, "--private-network", "--register=no",
                 "--keep-unit", "--kill-signal=SIGKILL", "--console=pipe", "--bind-ro=%s:%s" % (escaped, SOURCE),
                 *("--bind=%s" % bind for bind in self.binds), "--boot", "systemd.unit=multi-user.target"]
        with open(self.log, "ab") as log:
            self.nspawn = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                                           start_new_session=True, preexec_fn=self._enter_cgroups,
                                           env={"PATH": PATH, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
        deadline = time.monotonic() + BOOT_WITHIN_S
        state = "it has no PID 1"
        while time.monotonic() < deadline and self.nspawn.poll() is None:
            self.pid = self._find_init()
            if self.pid:
                state = self.run("systemctl is-system-running", check=False).stdout.strip()
                if state in ("running", "degraded"):
                    return
            time.sleep(0.1)
        raise Unavailable("it did not boot: %s; %s" % (state, self.log.read_text(errors="replace")[-300:].strip()))

    def _find_init(self):
        """The one of systemd-nspawn's children that is PID 1 in its namespace."""
        for child in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, StopIteration):
                if not child.name.isdigit():
                    continue
                status = dict(line.split(":", 1) for line in (child / "status").read_text().splitlines() if ":" in line)
                if int(status["PPid"]) == self.nspawn.pid and status["NSpid"].split()[-1] == "1" \
                        and status["Name"].strip() == "systemd":
                    return int(child.name)
        return None

    def connect(self, other, own_address, its_address):
        """A network of the two, with one card each."""
        end = ["name", "host0", "netns"]
        words = [["ip", "link", "add", *end, str(self.pid), "type", "veth", "peer", *end, str(other.pid)]]
        for machine, address in ((self, own_address), (other, its_address)):
            inside = ["nsenter", "-t", str(machine.pid), "-n", "ip"]
            words += [inside + ["address", "add", address + "/24", "dev", "host0"],
                      inside + ["link", "set", "host0", "up"]]
        for command in words:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Unavailable("no network between two machines: " + done.stderr.strip())

    def wait_off(self):
        try:
            self.nspawn.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise Failed("it did not power off within %d s" % STOP_WITHIN_S) from None
        self.pid = None

    def reboot(self):
        """systemd-nspawn ends when its machine reboots; the overlay stays."""
        self.run("systemctl reboot", check=False)
        self.wait_off()
        self.boot()

    def close(self):
        if self.nspawn and self.nspawn.poll() is None:
            self.nspawn.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.nspawn.wait(STOP_WITHIN_S)
            if self.nspawn.poll() is None:
                for pid in filter(None, (self._find_init(), self.nspawn.pid)):
                    os.kill(pid, signal.SIGKILL)
                self.nspawn.wait()
        if self.holder and self.holder.poll() is None:
            self.holder.kill()
            self.holder.wait()
        for folder in self.cgroups:
            self._remove_cgroup(folder)

    def _sweep(self, parent):
        """The cgroups of runs that were killed."""
        for folder in parent.glob(CGROUP + "*"):
            if not pathlib.Path("/proc", folder.name[len(CGROUP):].split("-")[0]).exists():
                self._remove_cgroup(folder)

    def _remove_cgroup(self, folder):
        """Its processes are dead, and the kernel takes a moment to notice."""
        for _ in range(100):
            folders = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True) + [folder]
            for path in folders:
                with contextlib.suppress(OSError):
                    path.rmdir()
            if not folder.exists():
                return
            time.sleep(0.1)

    # ---- commands ----------------------------------------------------------------------------------------------------

    def words(self, *command, cwd="/root"):
        return ["nsenter", "-t", str(self.pid), "-a", "env", "-i", "-C", cwd, "PATH=" + PATH, "HOME=/root",
                "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "STUCK_AFTER_S=%d" % STUCK_AFTER_S, *command]

    def run(self, text, check=True, seconds=STUCK_AFTER_S, stdin="", cwd="/root"):
        """A line of shell as root in the machine. seconds: for what may take longer than STUCK_AFTER_S; never less."""
        seconds = max(seconds, STUCK_AFTER_S)
        try:
            done = subprocess.run(self.words("bash", "-c", text, cwd=cwd), input=stdin, capture_output=True, text=True,
                                  timeout=seconds, errors="replace")
        except subprocess.TimeoutExpired:
            raise Failed("%s: not done within %d s" % (text, seconds)) from None
        if check and done.returncode != 0:
            raise Failed("%s: status %d: %s" % (text, done.returncode, (done.stdout + done.stderr).strip()[-800:]))
        return done

    def out(self, text, **how):
        return self.run(text, **how).stdout.strip()

    def start(self, *words):
        """A process in the machine, with pipes."""
        return subprocess.Popen(self.words(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, start_new_session=True)

    def write(self, path, text):
        self.run("mkdir -p %s && cat >%s" % (shlex.quote(os.path.dirname(path)), shlex.quote(path)), stdin=text)

    def show(self, unit, *names):
        """Properties of a unit: one value, or a list of values in the order of the names."""
        text = self.out("systemctl show %s -p %s" % (shlex.quote(unit), ",".join(names)))
        found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        values = [found.get(name, "") for name in names]
        return values[0] if len(values) == 1 else values

    def journal(self, *options):
        """The messages of the journal, each as a dict."""
        text = self.out("journalctl -o json --no-pager " + " ".join(shlex.quote(word) for word in options), check=False)
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [row for row in rows if isinstance(row.get("MESSAGE"), str)]

    def wait(self, condition, what, every=0.1):
        """Until condition() is true; returns what it returned. The limit is for what hangs, not for slow machines."""
        deadline = time.monotonic() + STUCK_AFTER_S
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > deadline:
                raise Failed("not within %d s: %s" % (STUCK_AFTER_S, what))
            time.sleep(every)
