"""A private world for three hosts: process ids, mounts and a network of their own, in which the test runs as well. All
of it ends with its first process, however that one ends: no process, namespace or mount outlives the test.

Each host has a machine (a network card on the common bridge, and disks, which outlive a power cut) and a system (its
processes, which do not). etcd, Patroni and PostgreSQL run with the files of examples/patroni, as the users etcd and
postgres, in the folders that those files name: every host has /var/lib/postgresql, /var/lib/etcd, /run and /etc/patroni
of its own. The network is the one of the examples, 192.0.2.0/24; nothing leaves it.
"""
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import harness

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PR_SET_PDEATHSIG = 1
EXAMPLES = harness.ROOT / "examples" / "patroni"
FRONT = "192.0.2.1"
NOWHERE = "02:00:00:00:00:fe"  # the address of no network card
DISK_BYTES = 2 << 30
OFF_SECONDS = harness.STUCK_AFTER_S  # for a busy kernel to end many processes
PROGRAMS = ("/usr/bin/etcd", "/usr/bin/patroni", harness.psql_program(), "/usr/bin/nsenter")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
# The first process of a system: it inherits the orphans and waits for them.
FIRST = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
while True:
    signal.sigtimedwait({signal.SIGCHLD}, 1)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""
libc = ctypes.CDLL(None, use_errno=True)


def why_not():
    """Why hosts cannot be made on this machine, or None."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    missing = [program for program in PROGRAMS if not os.path.exists(program)]
    if missing or not shutil.which("ip", path=ENVIRONMENT["PATH"]):
        return "%s is missing" % (missing or ["ip (package iproute2)"])[0]
    made = subprocess.run(["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--mount-proc", "sh", "-c",
                           "ip link add br0 type bridge && ip link add va type veth peer name vb &&"
                           " mount -t tmpfs none /mnt"], capture_output=True, text=True,
                          timeout=harness.STUCK_AFTER_S, check=False)
    return None if made.returncode == 0 else "no namespaces: " + made.stderr.strip()


# ---- the world -------------------------------------------------------------------------------------------------------


def enter():
    """Returns in a new world. Of the calling process only a guard stays outside: it passes signals on and ends with the
    status of the one inside."""
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC) != 0:
        raise harness.Failed("unshare: " + os.strerror(ctypes.get_errno()))
    sys.stdout.flush()
    first = os.fork()
    if first != 0:
        _guard(first, signal.SIGKILL)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0 or libc.mount(
            b"proc", b"/proc", b"proc", 0, None) != 0:
        raise harness.Failed("mount: " + os.strerror(ctypes.get_errno()))
    # The first process of a world inherits the orphans and must wait for them; so the test is the second one.
    second = os.fork()
    if second != 0:
        _guard(second, signal.SIGKILL)


def _guard(child, last):
    """Until the child ends. Asked to end, it passes that on; the last word, after a minute, is KILL."""
    def pass_on(number, _):
        try:
            os.kill(child, number)
        except ProcessLookupError:
            pass
        signal.alarm(60)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, last))
    while True:
        ended, status = os.wait()
        if ended == child:
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def command(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=ENVIRONMENT,
                          timeout=harness.STUCK_AFTER_S, check=False, **more)
    if done.returncode != 0:
        raise harness.Failed("%s: %s" % (" ".join(str(word) for word in words)[:200], done.stderr.strip()))
    return done.stdout


def make_network():
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "add", "br0", "type", "bridge")
    command("ip", "address", "add", FRONT + "/24", "dev", "br0")
    command("ip", "link", "set", "br0", "up")


def namespace(pid, kind):
    try:
        return os.stat("/proc/%s/ns/%s" % (pid, kind)).st_ino
    except OSError:
        return None


# ---- a host ----------------------------------------------------------------------------------------------------------


class Host:
    """name: db1 and so on. folder: its logs, which stay. scope: whose member it is; each but `issuing` is a standby
    cluster at first. places: how many databases there are."""

    def __init__(self, number, folder, passwords, names, scope="issuing", places=1):
        self.number, self.name, self.address = number, "db%d" % number, "192.0.2.%d" % (10 + number)
        self.folder, self.passwords, self.names = folder, passwords, names
        self.scope, self.places = scope, places
        self.card = "to-" + self.name
        self.machine = self.system = None
        self.first = self.off = None  # the process ids of the first process of the system, and of the system before
        self.boots = 0
        self.doors = []  # processes outside that wait for a service inside

    # ---- the machine ----

    def build(self):
        for each in (self.folder / "postgresql",):
            each.mkdir(parents=True)
            shutil.chown(each, "postgres", "postgres")
        self.machine = subprocess.Popen(["unshare", "--net", "--mount", "--propagation", "private", "sleep",
                                         "infinity"], stdin=subprocess.DEVNULL, env=ENVIRONMENT,
                                        start_new_session=True)
        here = namespace("self", "net"), namespace("self", "mnt")
        harness.wait_until(lambda: not set(here) & {namespace(self.machine.pid, "net"),
                                                    namespace(self.machine.pid, "mnt")} and
                           b"sleep" in pathlib.Path("/proc/%d/cmdline" % self.machine.pid).read_bytes(),
                           "the machine of " + self.name)
        command("ip", "link", "add", self.card, "type", "veth", "peer", "name", "eth0", "netns", self.machine.pid)
        command("ip", "link", "set", self.card, "master", "br0", "up")
        self.on_machine("ip", "link", "set", "lo", "up")
        self.on_machine("ip", "address", "add", self.address + "/24", "dev", "eth0")
        self.on_machine("ip", "link", "set", "eth0", "up")
        for place, owner, size in (("/var/lib/postgresql", "postgres", DISK_BYTES), ("/var/lib/etcd", "etcd", 1 << 28),
                                   ("/etc/patroni", "postgres", 1 << 20), ("/run", "root", 1 << 26)):
            self.on_machine("mount", "-t", "tmpfs", "-o", "mode=755,size=%d" % size, "none", place)
            self.on_machine("chown", owner, place)
        self.on_machine("install", "-d", "-o", "postgres", "/run/postgresql")
        self.on_machine("mount", "--bind", self.folder / "postgresql", "/var/log/postgresql")
        self.on_machine("mount", "--bind", self.names, "/etc/hosts")
        self.write("/etc/patroni/config.yml", self.configuration("patroni.yml"), "postgres")
        self.power_on()

    def on_machine(self, *words, **more):
        return command("nsenter", "--target", self.machine.pid, "--net", "--mount", "--", *words, **more)

    def write(self, path, text, owner="root"):
        self.on_machine("sh", "-c", 'umask 077 && cat >"$1" && chown "$2" "$1"', "sh", path, owner, input=text)

    def configuration(self, name):
        """A file of examples/patroni as it is on this host."""
        text = (EXAMPLES / name).read_text()
        lines = text.splitlines()
        is_mine = False
        for at, line in enumerate(lines):
            is_mine = "this host" in line or (is_mine and name.startswith("etcd") and not line.startswith("#"))
            if is_mine:
                lines[at] = line.replace("db1", self.name).replace("192.0.2.11", self.address)
        text = "\n".join(lines) + "\n"
        for word, password in self.passwords.items():
            text = text.replace("CHANGE-ME-" + word, password)
        if self.scope != "issuing":
            text = text.replace("\nscope: issuing\n", "\nscope: %s\n" % self.scope)
            text = text.replace("\n  dcs:\n", "\n  dcs:\n" + (EXAMPLES / "standby_cluster.yml").read_text())
        if self.places > 1:
            text = re.sub(r"(- local|- host) +issuing +", r"\1 %s " % ",".join(
                "issuing_%d" % place for place in range(self.places)), text)
            text = text.replace(" issuing_api,", " issuing_owner,issuing_api,")
        text = text.replace("/usr/lib/postgresql/CHANGE-ME-version/bin", os.path.dirname(harness.psql_program()))
        # What a killed server leaves behind is in its own folder then, and not in this machine's /dev/shm.
        return text.replace("\n        max_connections:", "\n        dynamic_shared_memory_type: mmap\n        max_connections:")

    def power_on(self):
        """Boots: nothing runs yet but the first process."""
        harness.wait_until(lambda: self.off is None or namespace(self.off, "pid") is None, "%s is off" % self.name,
                           OFF_SECONDS)
        self.boots += 1
        self.plug(True)
        self.system = subprocess.Popen(["nsenter", "--target", str(self.machine.pid), "--net", "--mount", "--",
                                        "unshare", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc",
                                        "/usr/bin/python3", "-S", "-c", FIRST], stdin=subprocess.DEVNULL,
                                       env=ENVIRONMENT, start_new_session=True)
        self.first = harness.wait_until(self._find_first, "the system of " + self.name)
        # Process ids go on where the last boot ended, as they would on a machine with many processes: a file of
        # PostgreSQL that was left behind names no process of today.
        self.run("sh", "-c", "echo %d >/proc/sys/kernel/ns_last_pid" % (1000 * self.boots))

    def _find_first(self):
        if self.system.poll() is not None:
            raise harness.Failed("%s did not boot" % self.name)
        for pid in processes():
            if parent(pid) == self.system.pid and namespace(pid, "pid") != namespace("self", "pid"):
                if b"python3" in pathlib.Path("/proc/%d/cmdline" % pid).read_bytes():
                    return pid
        return None

    def power_off(self):
        """As when the plug is pulled: no packet says good-bye."""
        self.plug(False)
        for process in [self.system, *self.doors]:
            process.kill()
            process.wait(harness.STUCK_AFTER_S)
        self.doors = []
        self.off, self.first = self.first, None

    def is_on(self):
        return self.first is not None

    # ---- the network ----

    def plug(self, in_it):
        command("ip", "link", "set", self.card, "master" if in_it else "nomaster", *(["br0"] if in_it else []))

    def cut(self, direction, others):
        """direction: both, out (what it sends is lost), in (what is sent to it is lost). Nobody is told."""
        if direction == "both":
            self.plug(False)
        if direction == "out":
            self.cut_from(others)
            self.on_machine(*lose_what_is_sent_to(FRONT, "eth0"))
        if direction == "in":
            for other in others:
                other.on_machine(*lose_what_is_sent_to(self.address, "eth0"))
            command(*lose_what_is_sent_to(self.address, "br0"))

    def cut_from(self, others):
        """What it sends to these hosts is lost."""
        for other in others:
            self.on_machine(*lose_what_is_sent_to(other.address, "eth0"))

    def keep_records_from(self, others):
        """What its PostgreSQL sends to these hosts is lost; all else arrives."""
        for other in others:
            self.on_machine("ip", "rule", "add", *records_to(other))

    def send_records_to(self, others):
        for other in others:
            self.on_machine("ip", "rule", "del", *records_to(other))

    def mend(self, others):
        """The network is as it was."""
        self.plug(True)
        for other in others:
            self.on_machine("sh", "-c", "ip neighbour del %s dev eth0 2>/dev/null; true" % other.address)
            other.on_machine("sh", "-c", "ip neighbour del %s dev eth0 2>/dev/null; true" % self.address)
        self.on_machine("sh", "-c", "ip neighbour del %s dev eth0 2>/dev/null; true" % FRONT)
        command("sh", "-c", "ip neighbour del %s dev br0 2>/dev/null; true" % self.address)

    # ---- its processes ----

    def inside(self, *words):
        return ["nsenter", "--target", str(self.first), "--net", "--mount", "--pid", "--ipc", "--",
                *(str(word) for word in words)]

    def run(self, *words, **more):
        return command(*self.inside(*words), **more)

    def as_postgres(self, *words, **more):
        return self.run("setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", "--", *words, **more)

    def start(self, name, user, argv, environment):
        with open(self.folder / (name + ".log"), "ab") as log:
            self.doors.append(subprocess.Popen(
                self.inside("setpriv", "--reuid", user, "--regid", user, "--init-groups", "--", *argv),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**ENVIRONMENT, **environment}))

    def start_etcd(self):
        pairs = [line.split("=", 1) for line in self.configuration("etcd.default").splitlines()
                 if line and not line.startswith("#")]
        self.start("etcd", "etcd", ["/usr/bin/etcd"], dict(pairs))

    def start_patroni(self):
        self.start("patroni", "postgres", ["/usr/bin/patroni", "/etc/patroni/config.yml"],
                   {"HOME": "/var/lib/postgresql"})

    def start_all(self):
        if self.scope == "issuing":
            self.start_etcd()
        self.start_patroni()

    def pids(self, word=None):
        """The host's processes, or those with this word in their command line; not the first one."""
        if self.first is None:
            return []
        mine, found = namespace(self.first, "pid"), []
        for pid in processes():
            if pid != self.first and namespace(pid, "pid") == mine:
                try:
                    line = pathlib.Path("/proc/%d/cmdline" % pid).read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if line and (word is None or word in line):
                    found.append(pid)
        return found

    def postmaster(self):
        """The process id, or None."""
        found = self.pids("/postgres -D ")  # a child that is just being made looks like it
        return next((pid for pid in found if parent(pid) not in found), None)

    def signal(self, number, word=None):
        for pid in self.pids(word):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def freeze(self):
        """Every process stands still. Those that were just being made are caught by the second look."""
        seen = set()
        while True:
            found = set(self.pids())
            self.signal(signal.SIGSTOP)
            if found <= seen:
                return
            seen |= found

    def thaw(self):
        self.signal(signal.SIGCONT)
        for process in self.doors:  # nsenter stops with the process that it waits for
            process.send_signal(signal.SIGCONT)

    # ---- its disk ----

    def fill_disk(self):
        """To its last byte."""
        self.run("sh", "-c", "dd if=/dev/zero of=/var/lib/postgresql/fill bs=1M 2>/dev/null; true")

    def free_disk(self):
        self.run("rm", "-f", "/var/lib/postgresql/fill")


def records_to(host):
    return "to", host.address, "ipproto", "tcp", "sport", "5432", "pref", "1", "blackhole"


def lose_what_is_sent_to(address, card):
    """The command for it."""
    return ("ip", "neighbour", "replace", address, "lladdr", NOWHERE, "dev", card, "nud", "permanent")


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent(pid):
    try:
        return int(pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return None


def sleep_until(moment):
    time.sleep(max(0, moment - time.monotonic()))
