"""Podman with a storage of its own below build/image/, so that nothing else on this machine sees its images.

Debian 12's crun refuses a machine with both kinds of cgroups, so runc runs the containers; builds need none: they are
chroots. Nothing asks a registry: the base is a root that mmdebstrap makes."""
import os
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
HERE = TOP / "tests/image"
FOLDER = TOP / "build/image"
sys.path.insert(0, str(TOP / "tests/deb"))
sys.path.insert(0, str(TOP / "tests/debian13"))

from checks import check, Failed, run  # noqa: E402
import root as debian  # noqa: E402

BASE, IMAGE, DATABASE = "localhost/debian:13-slim", "localhost/issuing:test", "localhost/postgres:test"
BUILD_WITHIN_S, RUN_WITHIN_S = 7200, 300
NO_MIRROR = re.compile(r"Failed to fetch|Temporary failure resolving|Could not (?:connect|resolve)")  # apt's words
WRAPPER = FOLDER / "podman"
# Podman's own are higher than what root may set where it has no CAP_SYS_RESOURCE.
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
HARDENED = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", *LIMITS]


def write_wrapper():
    """The program that podman-compose calls, too."""
    storage, state, networks = (FOLDER / name for name in ("storage", "run", "networks"))
    networks.mkdir(parents=True, exist_ok=True)
    WRAPPER.write_text("#!/bin/sh\nexec podman --runtime runc --cgroup-manager cgroupfs --root '%s' --runroot '%s'"
                       " --network-config-dir '%s' \"$@\"\n" % (storage, state, networks))
    WRAPPER.chmod(0o755)


def podman(*words, seconds=RUN_WITHIN_S, **settings):
    """What it says, stderr included."""
    return run(WRAPPER, *words, timeout=seconds, **settings).stdout.strip()


def has_image(name):
    return subprocess.run([WRAPPER, "image", "exists", name], check=False).returncode == 0


def make_base():
    """Debian 13 as its slim image has it: what is essential, and apt."""
    if has_image(BASE):
        return
    made = debian.Root(FOLDER / "base")
    made.make("minbase", "ca-certificates")
    packed = subprocess.Popen(["tar", "-C", made.path, "-c", "--one-file-system", "."], stdout=subprocess.PIPE)
    podman("import", "-", BASE, stdin=packed.stdout, seconds=BUILD_WITHIN_S)
    packed.stdout.close()
    check(packed.wait() == 0, "tar")


def build(name, folder):
    """Layers are kept: the next run compiles what has changed, and installs nothing."""
    try:
        return podman("build", "--isolation", "chroot", "--network", "host", "--layers",
                      "--build-arg", "BASE=" + BASE, "--tag", name, folder, seconds=BUILD_WITHIN_S)
    except Failed as error:
        if NO_MIRROR.search(str(error)):
            raise debian.Unavailable("the packages could not be downloaded: " + str(error)[-300:]) from None
        raise


def run_in_image(*words, options=(), status=0):
    """A program of the image, with nothing that it does not need."""
    return podman("run", "--rm", "--pull", "never", "--network", "none", *HARDENED, *options, IMAGE, *words,
                  status=status)


def why_not():
    why = debian.why_not()
    if why:
        return why
    for program in ("podman", "runc", "podman-compose"):
        if subprocess.run(["sh", "-c", 'command -v "$0"', program], stdout=subprocess.DEVNULL, check=False).returncode:
            return "%s is missing" % program
    return None


def environment():
    return {**os.environ, "ISSUING_IMAGE": IMAGE, "POSTGRES_IMAGE": DATABASE}
