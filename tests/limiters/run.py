#!/usr/bin/python3
"""run.py: each schedule of docs/limiters.md gives the lines that the page shows, and each limiter that is said to hold
holds in a short race. The last line is "limiters: N passed, N failed"; what needs Redis is skipped without it.
"""
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "bench")]

import harness  # noqa: E402
from limiter_ground import Ground, HERE, Limiter  # noqa: E402
from schedules import page  # noqa: E402

HOLDS = ("row_lock", "session_lock", "transaction_lock", "serializable", "redis_sliding_window", "lock_document_first",
         "lock_document_late")


def schedule_test(ground, name, window_ms, schedule, expected):
    limiter = Limiter(name)
    ground.prepare(limiter)
    return ground.interleave(limiter, window_ms, 1, schedule), expected


def without_its_lock(ground):
    """The lock is what makes it hold: without that step both are accepted."""
    text = (HERE / "transaction_lock.sql").read_text(encoding="utf-8")
    limiter = Limiter("transaction_lock")
    with tempfile.TemporaryDirectory() as folder:
        limiter.path = pathlib.Path(folder) / "without_lock.sql"
        limiter.path.write_text(re.sub(r"-- step: lock\n.*\n", "", text), encoding="utf-8")
        ground.prepare(limiter)
        found = ground.interleave(limiter, 10000, 1, "a a b b")
    return [line for line in found.splitlines() if ": " in line], ["a commit: accepted", "b commit: accepted"]


def race_test(ground, name):
    limiter = Limiter(name)
    ground.prepare(limiter)
    found = ground.groups(limiter, 60000, 2, 10, 5, 3, 2000)
    return (found["over"], found["under"], found["failed"]), (0, 0, 0)


def tests():
    for name, window_ms, schedule, expected in page():
        yield f"schedule of {name}", name, lambda ground, name=name, words=(int(window_ms or 10000), schedule,
                                                                          expected): \
            schedule_test(ground, name, *words)
    yield "without its lock transaction_lock does not hold", None, without_its_lock
    for name in HOLDS:
        yield f"bursts under {name}", name, lambda ground, name=name: race_test(ground, name)


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    folder = harness.BUILD / "run" / "limiters"
    ground = Ground(harness.BUILD / "bench" / "bench_limiters", ROOT / "tests" / "support" / "cluster", folder)
    try:
        for sentence, name, test in tests():
            if name and Limiter(name).has_redis and not ground.redis:
                print(f"skipped {sentence}: Redis is not installed")
                counts["skipped"] += 1
                continue
            found, expected = test(ground)
            result = "ok" if found == expected else "FAILED"
            counts["passed" if found == expected else "failed"] += 1
            print(f"{result} {sentence}")
            if found != expected:
                print(f"expected: {expected}\nfound: {found}")
    finally:
        ground.close()
    if counts["skipped"]:
        print(f"limiters: {counts['skipped']} skipped")
    print(f"limiters: {counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
