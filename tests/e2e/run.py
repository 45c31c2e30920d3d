#!/usr/bin/python3
"""run.py [--short | --ci] [--jobs N] [--durations] [--missed FILE] [NAME-FILTER...]: the end-to-end tests.

A filter is part of "file: sentence" (spaces or underscores); several are any of them; "=SENTENCE" is exactly that test.
--list names them all; --short takes the files in SHORT, without the tests that are marked @slow; --ci all files,
without those that are @slow and not @core; --durations ends with the slowest ones and the sum of each file. Prints each
test with ok or FAILED and its time; the last line is "e2e: N passed, N failed". The programs come from $ISSUING_BUILD
(./build otherwise). --jobs run side by side (two for each core by default), each with a cluster, ports and a folder of
its own: most of a test is waiting. Those that are marked @slow begin first, so that none of them is still running when
all others have ended; those that are marked @alone run after the others, one after the other. At $BEGIN_UNTIL (seconds
since 1970), no test begins any more, and what has not begun has failed.

A test may miss its moment on a busy machine. It is printed as "again" and runs a second time when no other does; that
result counts. What the ledgers or the logs say, and a program that crashed, is never asked twice, and where more than
AGAIN_MAX have failed, none is. --missed FILE: none is here; "FILE: SENTENCE<tab>MESSAGE" of each goes to FILE.
"""
import argparse
import collections
import contextlib
import ctypes
import importlib
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import harness  # noqa: E402
import invariants  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
NO_TESTS = ("run", "assertions", "client", "divided", "harness", "hostile", "invariants", "processes", "profiles",
            "otlp", "receiver", "suite", "terminator", "world")
# The promise of README, with one issuer and with routes. What an outage, a vendor or an operator adds is in the others.
SHORT = ("accepting", "crashes", "edges", "ended", "enqueuing", "fairness", "first_event", "health", "idle",
         "lifetimes", "limits", "outcomes", "places", "promise", "routes", "routes_lost", "searching", "sweeping", "tokens",
         "wire")
PR_SET_PDEATHSIG = 1
BEGIN_UNTIL = float(os.environ.get("BEGIN_UNTIL") or "inf")
AGAIN_MAX = 10
CRASH = "status -"  # of World.stop_all: a program was ended by a signal that no story sent
TAIL = 25  # lines of each log that a failure shows
SLOWEST = 60  # tests that --durations names


def sentence(test):
    return test.__name__.replace("_", " ")


def full_name(test):
    return "%s: %s" % (test.__module__.replace("_", " "), sentence(test))


def chosen(test, filters):
    for wanted in filters:
        wanted = wanted.replace("_", " ")
        if wanted in ("=" + sentence(test), "=" + full_name(test)) or (not wanted.startswith("=") and wanted in full_name(test).replace("_", " ")):
            return True
    return not filters


def tails(world):
    found = []
    for log in sorted(world.dir.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        if lines:
            found += ["--- %s" % log, *(line[:400] for line in lines[-TAIL:])]
    return found


def run_one(suite, test):
    """Returns what went wrong, as lines, none = nothing; why it was skipped, or None; whether it may run again."""
    world, wrong, skipped, is_final = None, [], None, False
    try:
        world = suite.world(test.settings)
        try:
            test(world)
        except harness.Skipped:
            raise
        except Exception:  # noqa: BLE001 - a test may fail in any way
            wrong.append(traceback.format_exc(limit=-4))
        found = invariants.check_ledgers(world)
        found += invariants.check_metrics_and_rows(world) if not wrong else []
        is_final = bool(found)
        wrong += found
    except harness.Skipped as reason:
        skipped = str(reason)
    except Exception:  # noqa: BLE001
        wrong.append(traceback.format_exc(limit=-4))
    if world:
        try:
            ended, found = world.stop_all(), invariants.check_logs(world)
            is_final = is_final or bool(found) or any(CRASH in line for line in ended)
            wrong += ended + found
        finally:
            world.kill_all()
        if wrong:
            suite.keep = True
            wrong = wrong[:20] + tails(world)
        suite.worlds.remove(world)
        with contextlib.suppress(harness.Failed, subprocess.TimeoutExpired):
            world.drop_database()
        harness.release_ports()
    return [line for text in wrong for line in text.rstrip().splitlines()], skipped, not is_final


def work(tests, tasks, results):
    """A job: takes tests until there are none. What it started ends with it, also when the runner is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with harness.Suite() as suite:
        for index in iter(tasks.get, None):
            begun = time.monotonic()
            if time.time() < BEGIN_UNTIL:
                wrong, skipped, may_repeat = run_one(suite, tests[index])
            else:
                wrong, skipped, may_repeat = ["not begun: the time of the run is nearly over"], None, False
            results.put((index, time.monotonic() - begun, wrong, skipped, may_repeat))
    results.put(None)


def first_message(wrong):
    """The last line of the first traceback, or the first line."""
    return next((line for line in wrong if line and not line.startswith((" ", "Traceback"))), wrong[0])


def watch(tests, jobs, tasks, results, durations, missed):
    """Prints what comes in; returns the numbers of passed, failed and skipped tests. A job that dies takes its test
    along as failed. missed: gets the tests that may run again, with their messages; None = none does."""
    missing, running, failed, left_out, again = set(range(len(tests))), len(jobs), 0, 0, 0
    while missing and (running or not results.empty()):
        if results.empty():
            time.sleep(0.05)
            running = sum(job.is_alive() for job in jobs)
            continue
        result = results.get()
        if result is None:
            continue
        index, seconds, wrong, skipped, may_repeat = result
        missing.discard(index)
        durations[tests[index]] = seconds
        is_missed = bool(wrong) and may_repeat and missed is not None
        if is_missed:
            missed[tests[index]] = first_message(wrong)
        again += is_missed
        failed += bool(wrong) and not is_missed
        left_out += skipped is not None and not wrong
        print("%-6s %s (%.1f s)%s" % ("again" if is_missed else "FAILED" if wrong else "ok" if skipped is None else "skip",
                                      full_name(tests[index]), seconds,
                                      ": " + skipped if skipped else ""))
        for line in wrong:
            print("    " + line)
        sys.stdout.flush()
    for index in sorted(missing):
        print("FAILED %s (its job ended before it did)" % full_name(tests[index]))
    return len(tests) - failed - left_out - again - len(missing), failed + len(missing), left_out


def print_durations(durations):
    files = collections.Counter()
    for test, seconds in durations.items():
        files[test.__module__] += seconds
    print("".join("%8.1f s  %s\n" % (seconds, name) for name, seconds in files.most_common()))
    slowest = sorted(durations, key=durations.get, reverse=True)[:SLOWEST]
    print("".join("%8.1f s  %s%s\n" % (durations[test], "@slow " if test.is_slow else "", full_name(test))
                  for test in slowest))


def run_beside(tests, job_count, durations, missed=None):
    context = multiprocessing.get_context("fork")
    tasks, results = context.SimpleQueue(), context.SimpleQueue()
    jobs = [context.Process(target=work, args=(tests, tasks, results)) for _ in range(job_count)]
    for job in jobs:
        job.start()

    def on_signal(number, _):
        raise SystemExit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    try:
        for index in [*sorted(range(len(tests)), key=lambda index: not tests[index].is_slow), *[None] * job_count]:
            tasks.put(index)
        return watch(tests, jobs, tasks, results, durations, missed)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if sys.exc_info()[0] is not None:
            for job in jobs:
                job.terminate()
        for job in jobs:
            job.join()


def run_again(missed, failed, durations):
    """The second tries. More than a few first failures are not chance."""
    if len(missed) + failed > AGAIN_MAX:
        for test in missed:
            print("FAILED %s (%.1f s)\n    %s" % (full_name(test), durations[test], missed[test]))
        return 0, len(missed), 0
    found = run_beside(list(missed), 1, durations)
    for test, message in missed.items():
        print("was again: %s: %s" % (full_name(test), message))
    return found


def run_all(tests, job_count, durations, missed_file):
    beside, alone = ([test for test in tests if test.is_alone == is_alone] for is_alone in (False, True))
    job_count, missed, found = max(1, min(job_count, len(beside))), {}, [(0, 0, 0)]
    if beside:
        found.append(run_beside(beside, job_count, durations, missed if missed_file or job_count > 1 else None))
    if alone:
        found.append(run_beside(alone, 1, durations, missed if missed_file else None))
    if missed and missed_file:
        missed_file.write_text("".join("%s\t%s\n" % (full_name(test), missed[test].replace("\t", " ")) for test in missed))
    elif missed:
        found.append(run_again(missed, sum(each[1] for each in found), durations))
    return tuple(map(sum, zip(*found)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2 * os.cpu_count())
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--durations", action="store_true")
    parser.add_argument("--missed", type=pathlib.Path)
    parser.add_argument("filters", nargs="*", metavar="NAME-FILTER")
    options = parser.parse_args()
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in NO_TESTS:
            importlib.import_module(path.stem)
    tests = [test for test in harness.TESTS if chosen(test, options.filters)
             and (not options.short or (test.__module__ in SHORT and not test.is_slow))
             and (not options.ci or test.is_core or not (test.is_slow or test.is_alone))]
    if options.list:
        print("\n".join(full_name(test) for test in tests))
        return 0
    if not tests:
        print("no test is called that\ne2e: 0 passed, 1 failed")
        return 2
    begun, durations = time.monotonic(), {}
    passed, failed, skipped = run_all(tests, options.jobs, durations, options.missed)
    if options.durations:
        print_durations(durations)
    print("%d tests in %.0f s%s%s" % (len(tests), time.monotonic() - begun, ", %d skipped" % skipped if skipped else "",
                                      "; logs of the failed ones below %s" % (harness.BUILD / "run") if failed else ""))
    if skipped:
        print("e2e: %d skipped" % skipped)
    print("e2e: %d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
