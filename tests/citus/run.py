#!/usr/bin/python3
"""run.py [NAME-FILTER...]: places on a Citus cluster, with real programs. CITUS_BIN names the folder of a PostgreSQL that
has Citus; without one the stories are skipped, and counted. The last line is "citus: N passed, N failed".
"""
import importlib.util
import pathlib
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
E2E = HERE.parent / "e2e"
sys.path[:0] = [str(HERE), str(E2E)]

import citus_suite  # noqa: E402
import harness  # noqa: E402

spec = importlib.util.spec_from_file_location("e2e_run", E2E / "run.py")
e2e_run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(e2e_run)


def main():
    import stories  # noqa: F401,PLC0415 - it registers them; what it imports from e2e registers others before
    tests = [test for test in harness.TESTS
             if test.__module__ == "stories" and e2e_run.chosen(test, sys.argv[1:])]
    why_not = citus_suite.find_citus()
    if why_not:
        print("citus: not run: %s\ncitus: %d skipped\ncitus: 0 passed, 0 failed" % (why_not, len(tests)))
        return 0
    failed = 0
    with citus_suite.CitusSuite() as suite:
        for test in tests:
            begun = time.monotonic()
            wrong, _, _ = e2e_run.run_one(suite, test)
            failed += bool(wrong)
            print("%-6s %s (%.1f s)" % ("FAILED" if wrong else "ok", e2e_run.sentence(test), time.monotonic() - begun))
            for line in wrong:
                print("    " + line)
            sys.stdout.flush()
    print("citus: %d passed, %d failed" % (len(tests) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
