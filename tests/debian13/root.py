"""A Debian below build/, 13 if no other is named, made by mmdebstrap and kept: compiler, libraries and PostgreSQL are
not those of this machine.

A command in it has processes, mounts, IPC and, unless it installs something, a network of its own, with nothing but lo.
The first process waits for orphans, as init would. All of it ends with that process, which the kernel kills when we
end, however that is: nothing stays mounted, and nothing runs on.
"""
import os
import shutil
import subprocess

SUITE = "trixie"
CLONE = "/srv/issuing"
# For ./dev as a user with sudo, and to build again what has not changed.
INCLUDED = "sudo,ccache"
MAKE_WITHIN_S, LINES = 1800, 40
NAMESPACES = ["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private"]
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}

# $1: the root; $2: 1 = with a network of its own; then the command. bash, as the first process, reaps what it inherits.
ENTER = r"""
set -e
root=$1 is_alone=$2
shift 2
[ "$is_alone" = 0 ] || python3 -c 'import fcntl, socket, struct
lo = struct.pack("16sH14x", b"lo", 1)  # IFF_UP
fcntl.ioctl(socket.socket(), 0x8914, lo)'
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
    : >dev/$name
    mount --bind /dev/$name dev/$name
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
cp /etc/resolv.conf etc/resolv.conf
mount --move . /
chroot . "$@" || exit $?
exit 0
"""


class Unavailable(Exception):
    """This machine, or its network, does not allow it."""


def why_not():
    """Why no root can be made here; None = one can."""
    if os.geteuid() != 0:
        return "only root can make a Debian"
    for program, package in (("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux"), ("setpriv", "util-linux")):
        if not shutil.which(program):
            return "%s is missing (package %s)" % (program, package)
    tried = subprocess.run(["unshare", *NAMESPACES, "--net", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else "no namespaces: " + tried.stderr.strip()


def last_lines(log):
    return log.read_text(errors="replace").splitlines()[-LINES:]


class Root:
    def __init__(self, folder, suite=SUITE):
        self.folder, self.path, self.suite = folder, folder / "root", suite
        folder.mkdir(parents=True, exist_ok=True)

    def _call(self, words, log, seconds):
        """The status, None after the time."""
        with open(log, "wb") as out:
            try:
                done = subprocess.run(["setpriv", "--pdeathsig", "KILL", *words], stdin=subprocess.DEVNULL, stdout=out,
                                      stderr=subprocess.STDOUT, timeout=seconds, env=ENVIRONMENT, check=False)
                return done.returncode
            except subprocess.TimeoutExpired:
                return None

    def make(self, variant="apt", included=INCLUDED):
        """A half-made root must not be used: it is made aside."""
        if self.path.exists():
            return
        log, new = self.folder / "mmdebstrap.log", self.folder / "new"
        shutil.rmtree(new, ignore_errors=True)
        status = self._call(["unshare", *NAMESPACES, "--mount-proc", "mmdebstrap", "--mode=root", "--variant=" + variant,
                             "--include=" + included, self.suite, str(new)], log, MAKE_WITHIN_S)
        if status != 0:
            errors = [line for line in last_lines(log) if line.startswith(("E:", "Err:"))]
            raise Unavailable("mmdebstrap could not make it: " + (errors or last_lines(log) or ["no time left"])[-1])
        new.rename(self.path)

    def run(self, name, *command, seconds, user=None, is_alone=True):
        """The status and the log, build/debian13/NAME.log."""
        log = self.folder / (name + ".log")
        more = {"CCACHE_DIR": "/var/cache/ccache", "CCACHE_UMASK": "000", "HOME": "/home/" + user if user else "/root"}
        if os.environ.get("CI"):
            more["CI"] = os.environ["CI"]
        inside = ["env", "-i", "-C", CLONE if (self.path / CLONE[1:]).exists() else "/",
                  *("%s=%s" % pair for pair in {**ENVIRONMENT, **more}.items())]
        if user:
            inside = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", *inside]
        words = ["unshare", *NAMESPACES, *(["--net"] if is_alone else []), "bash", "-c", ENTER, "enter", str(self.path),
                 "1" if is_alone else "0", *inside, *command]
        return self._call(words, log, seconds), log

    def lay_clone(self, source):
        """The working tree as a fresh clone, without what was built."""
        clone = self.path / CLONE[1:]
        shutil.rmtree(clone, ignore_errors=True)
        clone.mkdir(parents=True)
        packed = subprocess.Popen(["tar", "-C", source, "-c", "--exclude=./.git", "--exclude=./build*",
                                   "--exclude=./.cache", "--exclude=__pycache__", "."], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-C", clone, "-x", "--no-same-owner"], stdin=packed.stdout, check=True)
        packed.stdout.close()
        if packed.wait() != 0:
            raise OSError("tar: status %d" % packed.returncode)
        os.chmod(clone, 0o755)
