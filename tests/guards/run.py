#!/usr/bin/python3
"""Proves the guards: takes each one out, builds, runs the test that is said to protect it, and wants that test to fail.

    run.py [PART...]    only the guards whose name, or whose test's (db/accept), holds one of the parts
    run.py --short      those of the tests in SHORT: the part of the test run

The tree is copied below the build folder, so the sources are never touched. A guard whose line is not found any more,
whose mutant does not compile, or whose test still passes is a failure of this run. Before the mutants the same tests
run on the untouched copy and must pass. Guards of a test that cannot run on this machine (failover/ without root) are
left out, with a line that says so.
"""
import argparse
import atexit
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from guards import GUARDS  # noqa: E402

# Late calls, clocks, lost workers, evidence, operators' functions: what a card depends on, in tests that take a moment.
SHORT = ("db/clocks", "db/operator", "unit/breaker", "unit/flow", "unit/flow_run", "unit/flow_verdict",
         "unit/target")
TOP = pathlib.Path(__file__).resolve().parents[2]
# Popped: our programs refuse a variable that they do not know.
BUILD = pathlib.Path(os.environ.pop("ISSUING_BUILD", None) or TOP / "build").resolve()
RUN = BUILD / "run" / "guards"
COPY = RUN / "tree"
OUT = RUN / "build"
CLUSTER = TOP / "tests" / "support" / "cluster"
running = None


def say(text):
    print(text, flush=True)


def call(command, timeout=300, **more):
    """Runs to the end in a group of its own, which is ended when this program is."""
    global running
    running = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT,
                               text=True, errors="replace", start_new_session=True, **more)
    try:
        out, _ = running.communicate(timeout=timeout)
        return running.returncode, out
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        out, _ = running.communicate()
        return 124, out
    finally:
        running = None


def clean_up():
    if running:
        try:
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
    subprocess.run([CLUSTER, "stop", str(RUN)], check=False, capture_output=True)


def copy_tree():
    """With times of its own: an object that an earlier run's last mutant left must look old."""
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    for entry in TOP.iterdir():
        if entry.name.startswith(("build", ".")) or entry.name == "docs":
            continue
        if entry.is_dir():
            shutil.copytree(entry, COPY / entry.name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"),
                            copy_function=shutil.copy)
        else:
            shutil.copy(entry, COPY / entry.name)


PROGRAMS = ("issuing-api", "issuing-worker", "issuing-ctl", "issuing-sandbox", "tests/clocks.so", "tests/slow_end.so")


def program_of(test):
    """The test program that holds the suite of unit/NAME or db/NAME, None for other tests and where there is none."""
    kind, name = test.split("/", 1)
    targets = subprocess.run(["ninja", "-C", OUT, "-t", "targets", "all"], check=True, capture_output=True, text=True)
    found = re.search(rf"^(tests/{kind}/\w+)\.p/\w*test_{name}\.c\.o: ", targets.stdout, re.MULTILINE)
    return found and found[1]


def targets_of(test):
    """What ninja has to build for this test."""
    program = program_of(test)
    return ((program, "issuing-ctl") if test.startswith("db/") else (program,)) if program else PROGRAMS


def build(tests):
    """Builds what these tests run, and nothing else."""
    if not (OUT / "build.ninja").exists():
        status, out = call(["meson", "setup", OUT, COPY, "-Doptimization=1"])
        if status:
            return status, out
    targets = sorted({target for test in tests for target in targets_of(test)})
    return call(["ninja", "-C", OUT, *targets], timeout=900)


class Tests:
    """Runs a test by its name: unit/NAME, db/NAME (a check binary), e2e/PART (of the test's name) or failover/KIND (of
    trouble)."""

    def __init__(self):
        self.conninfo = None
        self.number = 0

    def database(self):
        """A fresh database with the schema of the copy as it is built now."""
        if not self.conninfo:
            self.conninfo = subprocess.run([CLUSTER, "start", str(RUN)], check=True, capture_output=True,
                                           text=True).stdout.strip().splitlines()[-1]
        settings = dict(word.split("=", 1) for word in self.conninfo.split())
        self.number += 1
        name = f"guard_{self.number}"
        environment = dict(os.environ, PGHOST=settings["host"], PGUSER="postgres")
        subprocess.run(["psql", "-Xqd", "postgres", "-c", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", "-c",
                        f"CREATE DATABASE {name}"],
                       check=True, env=environment, capture_output=True)
        conninfo = f"host={settings['host']} dbname={name} user=postgres"
        status, out = call([OUT / "issuing-ctl", "migrate", f"--database.url={conninfo}"])
        if status:
            raise RuntimeError(out)
        return conninfo

    def run(self, test, **environment):
        kind, name = test.split("/", 1)
        environment = {**os.environ, "CK_DEFAULT_TIMEOUT": "30", **environment}  # a mutant that hangs is noticed soon
        if kind == "failover":
            return call([sys.executable, COPY / "tests" / "chaos" / "failover.py", "1", "--only", name], timeout=500,
                        env=dict(environment, ISSUING_BUILD=str(OUT)))
        program = kind in ("unit", "db") and program_of(test)
        if program is None:
            return 2, f"there is no suite {test}"
        if kind == "unit":
            return call([OUT / program, name], timeout=600, cwd=RUN, env=environment)
        if kind == "db":
            return call([OUT / program, name], timeout=600, cwd=RUN,
                        env=dict(environment, ISSUING_TEST_DATABASE=self.database()))
        return call([sys.executable, COPY / "tests" / "e2e" / "run.py", name], timeout=300,
                    env={"STUCK_AFTER_S": "30", **environment, "ISSUING_BUILD": str(OUT)})


def apply(guard):
    """Puts the mutant in place; returns what undoes it, or None when the line is not there exactly once."""
    path = COPY / guard["file"]
    text = path.read_text()
    if text.count(guard["line"]) != 1:
        return None
    path.write_text(text.replace(guard["line"], guard["becomes"]))
    return lambda: path.write_text(text)


def try_guard(guard, tests):
    undo = apply(guard)
    if undo is None:
        return f"its line is not in {guard['file']} exactly once"
    try:
        status, out = build([guard["test"]])
        if status:
            return "the mutant does not build:\n" + out[-2000:]
        status, out = tests.run(guard["test"])
        return None if status not in (0, 2) else f"{guard['test']} does not notice:\n" + out[-1500:]
    finally:
        undo()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    atexit.register(clean_up)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args()
    parts = options.parts
    if options.short:
        GUARDS[:] = [guard for guard in GUARDS if guard["test"] in SHORT]
    wanted = [guard for guard in GUARDS
              if not parts or any(part in guard["name"] or part in guard["test"] for part in parts)]
    if not wanted:
        say("no guard and no guard's test has such a name")
        return 2
    copy_tree()
    tests = Tests()
    passed = failed = 0
    status, out = build({guard["test"] for guard in wanted})
    if status:
        say("the untouched copy does not build:\n" + out[-2000:])
        return 1
    for test in sorted({guard["test"] for guard in wanted}):
        status, out = tests.run(test,
                                CK_DEFAULT_TIMEOUT="300")  # a machine may be busy
        if status:
            say(f"FAILED {test} on the untouched copy\n{out[-2000:]}")
            failed += 1
        elif test.startswith("failover/") and "failover: 1 skipped" in out:
            say(f"skipped {test}: {out.splitlines()[0]}")
            wanted = [guard for guard in wanted if guard["test"] != test]
    for guard in wanted if not failed else []:
        start = time.monotonic()
        wrong = try_guard(guard, tests)
        say(f"{'FAILED' if wrong else 'ok    '} without: {guard['name']} ({guard['test']} fails)"
            f" {time.monotonic() - start:.1f} s"
            + (f"\n{wrong}" if wrong else ""))
        failed += bool(wrong)
        passed += not wrong
    say(f"guards: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
