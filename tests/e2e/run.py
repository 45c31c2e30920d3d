#!/usr/bin/python3
"""run.py [NAME-FILTER...]: the end-to-end tests.

A filter is part of a file's name or of a test's sentence (with spaces or underscores); several are any of them; "=SENTENCE" is exactly that test.
Prints each test with ok or FAILED and its time; the last line is "e2e: N passed, N failed". The programs come from $ISSUING_BUILD (./build otherwise).
"""
import importlib
import pathlib
import sys
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import harness  # noqa: E402
import invariants  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
NO_TESTS = ("run", "harness", "client", "invariants")
TAIL = 25  # lines of each log that a failure shows


def sentence(test):
    return test.__name__.replace("_", " ")


def chosen(test, filters):
    words = "%s: %s" % (test.__module__, sentence(test))
    for wanted in filters:
        wanted = wanted.replace("_", " ")
        if wanted.startswith("=") and wanted[1:] == sentence(test):
            return True
        if not wanted.startswith("=") and wanted in words:
            return True
    return not filters


def tails(world):
    for log in sorted(world.dir.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        if lines:
            print("    --- %s" % log)
            for line in lines[-TAIL:]:
                print("    " + line[:400])


def run_one(suite, test):
    """Returns what went wrong, as text; empty = nothing."""
    world, wrong = None, []
    try:
        world = suite.world(test.settings)
        test(world)
        wrong += invariants.check_ledgers(world)
        wrong += invariants.check_metrics_and_dump(world)
    except Exception:  # noqa: BLE001 - a test may fail in any way
        wrong.append(traceback.format_exc(limit=-4))
    if world:
        try:
            wrong += world.stop_all()
            wrong += invariants.check_logs(world)
        finally:
            world.kill_all()
    return world, wrong


def main(filters):
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in NO_TESTS:
            importlib.import_module(path.stem)
    tests = [test for test in harness.TESTS if chosen(test, filters)]
    if not tests:
        print("no test is called that")
        print("e2e: 0 passed, 1 failed")
        return 2
    passed = failed = 0
    started = time.monotonic()
    with harness.Suite() as suite:
        for test in tests:
            begun = time.monotonic()
            world, wrong = run_one(suite, test)
            print("%-6s %s: %s (%.1f s)" % ("FAILED" if wrong else "ok", test.__module__, sentence(test), time.monotonic() - begun), flush=True)
            if wrong:
                failed += 1
                suite.keep = True
                print("\n".join("    " + line for text in wrong[:20] for line in text.rstrip().splitlines()))
                if world:
                    tails(world)
                sys.stdout.flush()
            else:
                passed += 1
            if world:
                suite.worlds.remove(world)
                world.drop_database()
        print("%d tests in %.0f s%s" % (len(tests), time.monotonic() - started, "; logs in %s" % suite.dir if suite.keep else ""))
    print("e2e: %d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
