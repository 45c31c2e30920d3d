#!/usr/bin/env python3
"""Is each file of bench/limiters/ a limiter of the race or of the page, and has each its schedule in docs/limiters.md?
The names are those of bench/limiter_ground.py. One line for each difference."""
import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / "bench"), str(TOP / "tests/limiters")]

from limiter_ground import HERE, NAMES, SCHEDULED  # noqa: E402
from schedules import page  # noqa: E402


def differences(what, found, known):
    return ["%s: %s is missing" % (what, name) for name in sorted(set(known) - set(found))] + [
        "%s: %s is not in bench/limiter_ground.py" % (what, name) for name in sorted(set(found) - set(known))] + [
        "%s: %s is there twice" % (what, name) for name in sorted(set(found)) if found.count(name) > 1]


def main():
    known = NAMES + SCHEDULED
    faults = differences("bench/limiters", [path.stem for path in HERE.glob("*.sql")], known)
    faults += differences("docs/limiters.md", [row[0] for row in page()], known)
    faults += ["bench/limiter_ground.py: %s is there twice" % name for name in set(known) if known.count(name) > 1]
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
