#!/usr/bin/python3
"""Checks the guards of tests/guards, and builds nothing. Each mark in the sources has one row, in the table of its
folder and in the order of the tree, and each row a mark. The text that a mutant replaces is below its mark, in a
file that is loaded: named in a meson.build, where it is C or SQL, and each function and view of the schema is
defined in one place. Each test exists. The schedules of tests/schedules can be read, and what they take out is
there."""
import collections
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[:0] = ["tests/guards", "tests/schedules"]
import guards  # noqa: E402
import spec  # noqa: E402

MADE = re.compile(r"^CREATE OR REPLACE (?:FUNCTION|VIEW) issuing\.(\w+)", re.M)


def twice(words):
    return sorted(word for word, count in collections.Counter(words).items() if count > 1)


def is_loaded(path):
    """Is it named in a meson.build of its folder, or above?"""
    builds = [(folder / "meson.build", path.relative_to(folder)) for folder in path.parents]
    return path.suffix not in (".c", ".sql") or any(
        f"'{name}'" in meson.read_text(encoding="utf-8") for meson, name in builds if meson.is_file())


def fault_of(guard):
    """What is wrong with the row of a guard that has a mark, or None."""
    path = pathlib.Path(guard.file)
    text = path.read_text(encoding="utf-8")
    kind, test = guard.test.split("/", 1)
    mutant = guard.mutant(text)
    if guard.promise not in guards.PROMISE:
        return f"{guard.promise} is not a part of the promise"
    if guard.file.split("/")[0] != guard.table:
        return f"its row is in {guard.table}.txt, its mark in {guard.file}"
    if not mutant:
        return f"what its mutant replaces is not below its mark in {guard.file}"
    if mutant.split() == text.split():
        return "its mutant changes nothing"
    if not is_loaded(path):
        return f"{guard.file} is in no meson.build"
    if not (f"{kind}/{test}" in checks if kind in ("unit", "db") else f'"{test}"' in troubles if kind == "failover"
            else any(test.lstrip("=").replace("_", " ") in story for story in stories)):
        return f"there is no test {guard.test}"
    return None


def fault_of_schedule(path):
    try:
        spec.Spec(path)
    except spec.Bad as error:
        return f"{path}: {error}"
    return None


stories = [line.strip().replace("_", " ") for line in subprocess.run(
    [sys.executable, "-B", "tests/e2e/run.py", "--list"], check=True, capture_output=True, text=True).stdout.splitlines()]
checks = {f"{kind}/{file.stem[len('test_'):]}" for kind in ("unit", "db")
          for file in pathlib.Path("tests", kind).rglob("test_*.c")}
troubles = pathlib.Path("tests/chaos/failover_troubles.py").read_text(encoding="utf-8")
made = [name for path in pathlib.Path("migrations/schema").glob("*.sql")
        for name in MADE.findall(path.read_text(encoding="utf-8"))]
marked = [name for name, _, _ in guards.marks()]
table = guards.load()
names = [guard.name for guard in table]
faults = [] if min(len(made), len(stories), len(checks), len(marked)) > 100 else ["nothing found: the check is broken"]
faults += [f"migrations/schema defines {name} more than once" for name in twice(made)]
faults += [f"{name}: two marks" for name in twice(marked)] + [f"{name}: two rows" for name in twice(names)]
faults += [f"{name}: a mark without a row" for name in sorted(set(marked) - set(names))]
faults += [f"{name}: a row without a mark" for name in sorted(set(names) - set(marked))]
places = [(guard.table, guard.file, guard.line) for guard in table if guard.file]
faults += [f"{right[1]}:{right[2]}: its row is not behind that of {left[1]}:{left[2]}"
           for left, right in zip(places, places[1:]) if left > right]
faults += [f"{guard.name}: {fault}" for guard in table if guard.file and (fault := fault_of(guard))]
schedules = sorted(pathlib.Path("tests/schedules/specs").glob("*.spec"))
faults += [fault for path in schedules if (fault := fault_of_schedule(path))] or ["no schedule"] * (not schedules)
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
