#!/usr/bin/python3
"""Checks what the guards of tests/guards name, and builds nothing: each line is in its file exactly once, each function
and view of the schema is defined in one place (a mutant of another definition proves nothing), and each test exists."""
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/guards")
from guards import GUARDS  # noqa: E402

MADE = re.compile(r"^CREATE OR REPLACE (?:FUNCTION|VIEW) issuing\.(\w+)", re.M)

names = [line.strip().replace("_", " ") for line in subprocess.run(
    [sys.executable, "-B", "tests/e2e/run.py", "--list"], check=True, capture_output=True, text=True).stdout.splitlines()]
checks = {f"{kind}/{file.stem[len('test_'):]}" for kind in ("unit", "db")
          for file in pathlib.Path("tests", kind).rglob("test_*.c")}
kinds = pathlib.Path("tests/chaos/failover_troubles.py").read_text(encoding="utf-8")
made = [name for path in pathlib.Path("migrations/schema").glob("*.sql")
        for name in MADE.findall(path.read_text(encoding="utf-8"))]
faults = [] if len(made) > 100 and len(names) > 100 and checks else ["nothing found: the check is broken"]
faults += [f"migrations/schema defines {name} more than once" for name in sorted({n for n in made if made.count(n) > 1})]
for guard in GUARDS:
    name, file, (kind, test) = guard["name"], guard["file"], guard["test"].split("/", 1)
    text = pathlib.Path(file).read_text(encoding="utf-8")
    if (count := text.count(guard["line"])) != 1:
        faults.append(f"{name}: its line is {count} times in {file}")
    if not (f"{kind}/{test}" in checks if kind in ("unit", "db") else f'"{test}"' in kinds if kind == "failover"
            else any(test.replace("_", " ") in listed for listed in names)):
        faults.append(f"{name}: there is no test {kind}/{test}")
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
