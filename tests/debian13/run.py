#!/usr/bin/python3
"""run.py [--short]: the fresh clone in a Debian 13: its demo and its tests, with PostgreSQL, compiler and libraries of
that release.

--short is the demo and the unit tests. What mmdebstrap made is kept below build/debian13/ for the next run, with what
was installed and what was compiled; to begin anew, remove the folder. Without root, mmdebstrap or network it counts as
skipped.

The last line is "debian13: N passed, N failed"; each is one ./dev in the Debian 13, whose output is in
build/debian13/NAME.log.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from root import CLONE, last_lines, Root, Unavailable, why_not  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parents[2]
USER = "tester"
REMOVED = "libhiredis-dev"  # for ./dev to install it again
INSTALL_WITHIN_S, DEMO_WITHIN_S, TESTS_WITHIN_S = 1800, 1800, 5400
QUICK_WITHIN_S = 600  # for what hangs
LISTS = ["build", "test", "model"]
LISTS_OF_ALL = ["deb", "pages", "systemd"]


class Failed(Exception):
    pass


def packages(lists):
    """By their names in Debian 13: the first of each alternative."""
    script = '. "$0/tests/support/packages.sh"; printf "%s\\n" ' + " ".join("$packages_" + name for name in lists)
    words = subprocess.run(["sh", "-c", script, TOP], capture_output=True, text=True, check=True).stdout.split()
    return [word.split("|")[0] for word in words]


def fetch(root, lists):
    """What ./dev is going to install is downloaded first, so that a network that fails is seen here."""
    wanted = packages(lists)
    known, _ = root.run("installed", "dpkg-query", "-W", *wanted, seconds=QUICK_WITHIN_S)
    if known == 0:
        return
    status, log = root.run("download", "sh", "-c",
                           "apt-get -q update &&"
                           ' apt-get -q -y --no-install-recommends --download-only install "$@"', "sh", *wanted, seconds=INSTALL_WITHIN_S, is_alone=False)
    if status != 0:
        raise Unavailable("the packages could not be downloaded: %s" % (last_lines(log) or ["no time left"])[-1])


def dev(root, name, *words, ends, seconds, user=None):
    """./dev in the Debian 13; its last line must match `ends`, and is returned."""
    status, log = root.run(name, "./dev", *words, seconds=seconds, user=user)
    lines = last_lines(log)
    last = lines[-1] if lines else ""
    if status != 0 or not re.search(ends, last):
        said = log.read_text(errors="replace").splitlines()
        failed = [line for line in said if line.startswith(("FAILED", "    "))]
        raise Failed("./dev %s: %s\n%s" % (" ".join(words), "not done in time" if status is None else
                                           "status %d" % status, "\n".join(failed[-60:] + ["..."] + lines)))
    return last


def the_demo_of_a_user_with_sudo(root):
    status, log = root.run("user", "sh", "-c",
                           "id %s || useradd -m -s /bin/sh %s; echo '%s ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/%s;"
                           " ! dpkg-query -W %s || dpkg --purge %s; chown -R %s: %s"
                           % (USER, USER, USER, USER, REMOVED, REMOVED, USER, CLONE), seconds=QUICK_WITHIN_S)
    if status != 0:
        raise Failed("\n".join(last_lines(log)))
    try:
        return dev(root, "demo-user", "demo", ends="all as promised", seconds=DEMO_WITHIN_S, user=USER)
    finally:
        root.run("user", "chown", "-R", "root:", CLONE, seconds=QUICK_WITHIN_S)


def the_demo(root):
    return dev(root, "demo", "demo", ends="all as promised", seconds=DEMO_WITHIN_S)


def tests_of(*groups):
    def run(root):
        return dev(root, groups[0], "test", *groups, ends=r"^[1-9]\d* passed, 0 failed$", seconds=TESTS_WITHIN_S)

    run.__name__ = "the_tests_of_" + "_and_".join(groups)
    return run


SHORT = [the_demo, tests_of("unit")]
ALL = [the_demo_of_a_user_with_sudo, the_demo, tests_of("unit", "db"), tests_of("e2e"), tests_of("deb", "systemd")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="demo and unit tests")
    options = parser.parse_args()
    root = Root(TOP / "build" / "debian13")
    try:
        why = why_not()
        if why:
            raise Unavailable(why)
        begun = time.monotonic()
        root.make()
        fetch(root, LISTS + ([] if options.short else LISTS_OF_ALL))
        print("made, or found, in %.1f s" % (time.monotonic() - begun), flush=True)
    except Unavailable as why:
        print("debian13: not run: %s\ndebian13: 1 skipped\ndebian13: 0 passed, 0 failed" % why)
        return 0
    root.lay_clone(TOP)
    failed = 0
    chosen = SHORT if options.short else ALL
    for step in chosen:
        begun, why = time.monotonic(), None
        try:
            said = step(root)
        except Failed as error:
            why, said = str(error), ""
        failed += bool(why)
        print("%-6s %s (%.1f s) %s" % ("FAILED" if why else "ok", step.__name__, time.monotonic() - begun, said))
        for line in (why or "").splitlines():
            print("    " + line)
        sys.stdout.flush()
    print("debian13: %d passed, %d failed" % (len(chosen) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
