#!/usr/bin/python3
"""run.py [NAME-FILTER...]: the installed programs under a real systemd.

Boots a machine (machine.py), installs by docs/install.md, literally, and goes through stories.py; then the packages of
build/deb, where `./dev deb` has made them, in a second machine. A filter is part of a sentence; the install is always
run. The last line is "systemd: N passed, N failed".

Needs root, namespaces, overlay and systemd-nspawn; where they are not allowed it is skipped, and says why.
"""
import argparse
import contextlib
import os
import pathlib
import pwd
import signal
import sys
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import installing  # noqa: E402
import machine as machines  # noqa: E402
import packages  # noqa: E402
import stories  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def sentence(function):
    return function.__name__.replace("_", " ")


class Report:
    def __init__(self, name="systemd"):
        self.name = name
        self.passed = self.failed = self.skipped = 0

    def run(self, what, function, *arguments):
        """Runs one step; returns whether it went well."""
        begun, why = time.monotonic(), None
        try:
            function(*arguments)
        except (machines.Failed, LookupError) as error:
            why = str(error)
        except Exception:  # noqa: BLE001 - a step may fail in any way, and the next ones are to run
            why = traceback.format_exc(limit=-4)
        self.failed += why is not None
        self.passed += why is None
        print("%-6s %-72s %6.1f s" % ("FAILED" if why else "ok", what, time.monotonic() - begun), flush=True)
        if why:
            print("       " + why.strip().replace("\n", "\n       "), flush=True)
        return why is None

    def skip(self, what, why):
        self.skipped += 1
        print("skip   %s: %s" % (what, why), flush=True)

    def end(self):
        if self.skipped:
            print("%s: %d skipped" % (self.name, self.skipped))
        print("%s: %d passed, %d failed" % (self.name, self.passed, self.failed))
        return 1 if self.failed else 0


def traces():
    """What a machine could leave behind on this one."""
    mounts = [line for line in pathlib.Path("/proc/self/mounts").read_text().splitlines() if "issuing-test" in line]
    users = [user.pw_name for user in pwd.getpwall() if user.pw_name.startswith("issuing")]
    paths = ("/etc/issuing", "/etc/credstore/issuing.card_keys", "/usr/bin/issuing-api", machines.OVERLAY)
    files = [path for path in paths if pathlib.Path(path).exists()]
    own = "%s%d-*" % (machines.CGROUP, os.getpid())  # another run may have its own
    cgroups = [str(path) for path in pathlib.Path("/sys/fs/cgroup").rglob(own)]
    return mounts + users + files + cgroups


def nothing_is_left(before):
    left = sorted(set(traces()) - set(before))
    if left:
        raise machines.Failed("left behind: %s" % left)


def install_and_tell(report, folder, filters):
    release = folder / "release"  # so that the next run compiles only what has changed
    release.mkdir(parents=True, exist_ok=True)
    machine = machines.Machine(ROOT, folder / "machine.log")
    machine.binds.append("%s:%s/build-release" % (str(release).replace(":", "\\:"), installing.HOME))
    with machine:
        report.run("a machine boots", installing.prepare, machine)
        if not report.run("docs/install.md works to the letter", installing.Installation(machine).run):
            return
        for story in stories.STORIES:
            if not filters or any(word.replace("_", " ") in sentence(story) for word in filters):
                if not report.run(sentence(story), story, machine):
                    with contextlib.suppress(machines.Failed):
                        stories.tidy_up(machine)
        machine.run("systemctl poweroff", check=False)
        machine.wait_off()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filters", nargs="*", metavar="NAME-FILTER")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    report = Report()
    why = machines.why_not()
    if why:
        report.skip("everything", why)
        return report.end()
    before = traces()
    folder = ROOT / "build" / "systemd"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        install_and_tell(report, folder, options.filters)
        packages.run(report, ROOT, folder, options.filters)
    except machines.Unavailable as error:
        report.skip("the rest", str(error))
    except machines.Failed as error:
        report.failed += 1
        print("FAILED %s" % error)
    report.run("nothing is left on this machine", nothing_is_left, before)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
