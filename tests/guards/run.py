#!/usr/bin/python3
"""Proves the guards: takes each one out, builds, runs the test that is said to protect it, and wants that test to fail.

    run.py [--jobs N] [PART...]    only the guards whose name, or whose test's (db/accept), holds one of the parts
    run.py --short                 those of the tests in SHORT: the part of the test run
    run.py --changed REF           those of files that changed since the commit REF
    run.py --deleted [PART...]     where a mutant assigns something else: without the whole assignment, which the test
                                   must notice as well, or the line is not needed
    run.py --page                  runs none: writes build/guards.md, the guards by what they guard

Each job has a copy of the tree, a build folder and a database cluster of its own below the build folder, so the sources
are never touched. A guard whose line is not found any more, whose mutant does not compile, or whose test still passes
is a failure of this run. Before the mutants of a test, the test runs on the untouched copy and must pass. Guards of a
test that cannot run on this machine (failover/ without root) are left out, with a line that says so.

A mutant may hang, and libcheck puts its tests into process groups of their own: a job is the reaper of all that its
tests start, and ends what they leave.
"""
import argparse
import collections
import contextlib
import ctypes
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import guards as tables  # noqa: E402

# Late calls, clocks, lost workers, evidence: what a card depends on, in tests that take a moment.
SHORT = ("db/clocks", "unit/breaker", "unit/flow", "unit/flow_run", "unit/decide_settled", "unit/target")
TOP = pathlib.Path(__file__).resolve().parents[2]
# Popped: our programs refuse a variable that they do not know.
BUILD = pathlib.Path(os.environ.pop("ISSUING_BUILD", None) or TOP / "build").resolve()
RUN = BUILD / "run" / "guards"
CLUSTER = TOP / "tests" / "support" / "cluster"
PROGRAMS = ("issuing-api", "issuing-worker", "issuing-ctl", "issuing-sandbox", "tests/clocks.so", "tests/hung_files.so",
            "tests/slow_end.so")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# So long may a test take: at the first, and with a mutant in place so much longer than it took on the untouched copy.
FIRST_SECONDS, MORE_SECONDS, TIMES = 600, 60, 3
STUCK_AFTER_S = 30  # without the guard: most mutants are stuck
GRACE_SECONDS = 20  # for a test that is asked to end: it may have a cluster to stop


def say(text):
    """In one write: jobs share the output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parents():
    """The parent of each process."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    return found


def left_over(kept):
    """What comes from this process and still runs, whatever its group or session; not what is below kept."""
    of, found = collections.defaultdict(list), []
    for pid, parent in parents().items():
        of[parent].append(pid)
    ask = [pid for pid in of[os.getpid()] if pid not in kept]
    while ask:
        pid = ask.pop()
        found.append(pid)
        ask += of[pid]
    return found


def end_left_over(kept):
    """Kills until there is nothing, and reaps: orphans come to this process."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        found = left_over(kept)
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


class Job:
    """A copy of the tree with what is built from it. Runs a test by its name: unit/NAME, db/NAME (a suite of a check
    program), e2e/PART (of the test's name) or failover/KIND (of trouble)."""

    def __init__(self, number, threads, deletes):
        self.deletes = deletes
        self.run = RUN / f"job-{number}"
        self.copy = self.run / "tree"
        self.out = self.run / "build"
        self.threads = threads
        self.settings = None  # of the cluster
        self.kept = set()     # processes that stay: the cluster's
        self.number = 0

    def open(self):
        """The copy has times of its own: an object that an earlier run's last mutant left must look old."""
        shutil.rmtree(self.copy, ignore_errors=True)
        self.copy.mkdir(parents=True)
        for entry in TOP.iterdir():
            if entry.name.startswith(("build", ".")):
                continue
            if entry.is_dir():
                shutil.copytree(entry, self.copy / entry.name, symlinks=True,
                                ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copy)
            else:
                shutil.copy(entry, self.copy / entry.name)
        has_build = (self.out / "build.ninja").exists()
        status, out = self.call(["ninja", "-C", self.out, "build.ninja"] if has_build
                                else ["meson", "setup", self.out, self.copy, "-Doptimization=1"])
        if status:
            raise RuntimeError(out)

    def call(self, command, timeout=300, **more):
        """Runs to the end; nothing that it started remains. Past its time it is first asked to end."""
        with subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                              **more) as child:
            try:
                out, _ = child.communicate(timeout=timeout)
                status = child.returncode
            except BaseException as reason:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(GRACE_SECONDS)
                end_left_over(self.kept)
                if not isinstance(reason, subprocess.TimeoutExpired):
                    raise
                out, _ = child.communicate()
                status = 124
        end_left_over(self.kept)
        return status, out

    def build(self, test):
        """Builds what this test runs, and nothing else."""
        program = self.program_of(test)
        targets = PROGRAMS if not program else (program, "issuing-ctl") if test.startswith("db/") else (program,)
        return self.call(["ninja", "-j", self.threads, "-C", self.out, *targets], timeout=1800)

    def program_of(self, test):
        """The program that holds the suite of unit/NAME or db/NAME, None for other tests and where there is none."""
        kind, name = test.split("/", 1)
        targets = subprocess.run(["ninja", "-C", self.out, "-t", "targets", "all"], check=True, capture_output=True,
                                 text=True)
        found = re.search(rf"^(tests/{kind}/\w+)\.p/\w*test_{name}\.c\.o: ", targets.stdout, re.MULTILINE)
        return found and found[1]

    def sql(self, *statements):
        """Whatever a mutant's test has left set for the role."""
        command = ["psql", "-Xqd", "postgres", *[word for text in statements for word in ("-c", text)]]
        subprocess.run(command, check=True, capture_output=True,
                       env=dict(os.environ, PGHOST=self.settings["host"], PGUSER="postgres",
                                PGOPTIONS="-c default_transaction_read_only=off"))

    @contextlib.contextmanager
    def database(self):
        """A fresh database with the schema of the copy as it is built now. With it ends what still runs in it."""
        if not self.settings:
            conninfo = subprocess.run([CLUSTER, "start", str(self.run)], check=True, capture_output=True,
                                      text=True).stdout.strip().splitlines()[-1]
            self.settings = dict(word.split("=", 1) for word in conninfo.split())
            self.kept = set(left_over(()))
        self.number += 1
        name = f"guard_{self.number}"
        self.sql("ALTER ROLE postgres RESET ALL", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)",
                 f"CREATE DATABASE {name}")
        try:
            conninfo = f"host={self.settings['host']} dbname={name} user=postgres"
            status, out = self.call([self.out / "issuing-ctl", "migrate", f"--database.url={conninfo}"])
            yield conninfo, (status, out) if status else None
        finally:
            self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def test(self, test, timeout, **variables):
        kind, name = test.split("/", 1)
        built = dict(os.environ, ISSUING_BUILD=str(self.out), **variables)
        if kind == "failover":
            return self.call([sys.executable, self.copy / "tests" / "chaos" / "failover.py", "1", "--only", name],
                             timeout=timeout, env=built)
        if kind == "e2e":
            return self.call([sys.executable, self.copy / "tests" / "e2e" / "run.py", name], timeout=timeout, env=built)
        program = self.program_of(test)
        if not program:
            return 2, f"there is no suite {test}"
        command, environment = [self.out / program, name], dict(built, CK_DEFAULT_TIMEOUT=str(int(timeout)))
        if kind == "unit":
            return self.call(command, timeout=timeout, cwd=self.run, env=environment)
        with self.database() as (conninfo, refused):
            environment["ISSUING_TEST_DATABASE"] = conninfo
            return refused or self.call(command, timeout=timeout, cwd=self.run, env=environment)

    def without(self, guard, timeout):
        """What is wrong, or None. The mutant is taken back."""
        if not guard.file:
            return "it has no mark"
        path = self.copy / guard.file
        text = path.read_text(encoding="utf-8")
        mutant = guard.without_assignment(text) if self.deletes else guard.mutant(text)
        if not mutant:
            return f"what its mutant replaces is not below its mark in {guard.file}"
        path.write_text(mutant, encoding="utf-8")
        try:
            status, out = self.build(guard.test)
            if status:
                return None if self.deletes else "the mutant does not build:\n" + out[-2000:]
            status, out = self.test(guard.test, timeout, STUCK_AFTER_S=str(STUCK_AFTER_S))
            return None if status not in (0, 2) else f"{guard.test} does not notice:\n" + out[-1500:]
        finally:
            path.write_text(text, encoding="utf-8")

    def prove(self, test, guards):
        """The test on the untouched copy, then without each of its guards. Returns how many passed and failed."""
        status, out = self.build(test)
        if status:
            say(f"FAILED {test}: the untouched copy does not build\n{out[-2000:]}")
            return 0, len(guards)
        start = time.monotonic()
        status, out = self.test(test, FIRST_SECONDS)
        timeout = MORE_SECONDS + TIMES * (time.monotonic() - start)
        if status:
            say(f"FAILED {test} on the untouched copy\n{out[-2000:]}")
            return 0, len(guards)
        if test.startswith("failover/") and "failover: 1 skipped" in out:
            say(f"skipped {test}: {out.splitlines()[0]}")
            return 0, 0
        failed = 0
        for guard in guards:
            start = time.monotonic()
            wrong = self.without(guard, timeout)
            say(f"{'FAILED' if wrong else 'ok    '} without: {guard.name} ({test} fails)"
                f" {time.monotonic() - start:.1f} s" + (f"\n{wrong}" if wrong else ""))
            failed += bool(wrong)
        return len(guards) - failed, failed

    def close(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        end_left_over(self.kept)
        subprocess.run([CLUSTER, "stop", str(self.run)], check=False, capture_output=True)
        end_left_over(())


def work(number, threads, deletes, tasks, results, failover):
    """A job: takes tests until there are none. It ends with the runner."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    job = Job(number, threads, deletes)
    try:
        job.open()
        for test, guards in iter(tasks.get, None):
            try:
                # Hosts of its own for one at a time.
                with failover if test.startswith("failover/") else contextlib.nullcontext():
                    results.put(job.prove(test, guards))
            except Exception:  # noqa: BLE001 - the other tests go on
                say(f"FAILED {test}\n{traceback.format_exc(limit=-4)}")
                results.put((0, len(guards)))
    finally:
        job.close()


def run_all(wanted, job_count, deletes):
    """Returns how many guards passed and failed. Tests with many guards first, so that the jobs end together."""
    tests = collections.defaultdict(list)
    for guard in wanted:
        tests[guard.test].append(guard)
    context = multiprocessing.get_context("fork")
    tasks, results, failover = context.SimpleQueue(), context.SimpleQueue(), context.Lock()
    job_count = min(job_count, len(tests))
    threads = max(1, (os.cpu_count() or 1) // job_count)
    jobs = [context.Process(target=work, args=(number, threads, deletes, tasks, results, failover))
            for number in range(job_count)]
    for job in jobs:
        job.start()

    def put():
        for task in [*sorted(tests.items(), key=lambda item: -len(item[1])), *[None] * job_count]:
            tasks.put(task)
    feeder = context.Process(target=put)
    feeder.start()
    passed = failed = ended = 0
    try:
        while ended < len(tests):
            if results.empty():
                if not any(job.is_alive() for job in jobs) and results.empty():
                    say("FAILED: the jobs ended before the tests did")
                    return passed, failed + 1
                time.sleep(0.1)
                continue
            more_passed, more_failed = results.get()
            passed, failed, ended = passed + more_passed, failed + more_failed, ended + 1
        return passed, failed
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        feeder.terminate()
        if sys.exc_info()[0] is not None:
            for job in jobs:
                job.terminate()
        for job in jobs:
            job.join()


def write_page(path):
    """Each sentence of what the promise rests on, with the lines that hold it: place, mutant, test."""
    guards, lines = tables.load(), ["# What holds the promise"]
    for key, sentence in tables.PROMISE.items():
        held = [guard for guard in guards if guard.promise == key]
        lines += ["", f"## {sentence}", "", f"{len(held)} guards."]
        for guard in held:
            lines += ["", f"**{guard.name}**: `{guard.file}:{guard.line}`; without it `{guard.test}` fails:", "", "```diff",
                      *(f"- {line}" for line in guard.was), *(f"+ {line}" for line in guard.becomes), "```"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    say(f"{len(guards)} guards in {path}")


def changed_since(ref):
    return set(subprocess.run(["git", "-C", TOP, "diff", "--name-only", ref], check=True, capture_output=True,
                              text=True).stdout.splitlines())


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--changed", metavar="REF")
    parser.add_argument("--deleted", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args()
    if options.page:
        write_page(BUILD / "guards.md")
        return 0
    wanted = [guard for guard in tables.load()
              if (not options.short or guard.test in SHORT)
              and (not options.parts or any(part in guard.name or part in guard.test for part in options.parts))]
    if options.changed:
        changed = changed_since(options.changed)
        wanted = [guard for guard in wanted if guard.file in changed]
        if not wanted:
            say("no guard is in a file that changed\nguards: 0 passed, 0 failed")
            return 0
    if options.deleted:
        wanted = [guard for guard in wanted if guard.file and guard.without_assignment(
            (tables.TOP / guard.file).read_text(encoding="utf-8"))]
    if not wanted:
        say("no guard and no guard's test has such a name")
        return 2
    passed, failed = run_all(wanted, max(1, options.jobs), options.deleted)
    say(f"guards: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
