#!/usr/bin/python3
"""Checks what the guards of tests/guards name, and builds nothing: each line is in its file exactly once, a line of a
migration is in the newest definition of its function, view or trigger (a mutant of another one proves nothing), and
each test exists. Left out: objects that a DO block makes."""
import bisect
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/guards")
from guards import GUARDS  # noqa: E402

TOKEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|;", re.S)
MADE = re.compile(r"\s*(CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(FUNCTION|VIEW|TRIGGER)\s+(?:IF\s+EXISTS\s+)?([\w.]+)", re.I)


def blank(comment):
    return " " * len(comment[0]) if comment[0].startswith("--") else comment[0]


def statements(sql):
    """(start, text) of each; comments are blanks, so that places stay."""
    start, sql = 0, TOKEN.sub(blank, sql)
    for token in TOKEN.finditer(sql):
        if token[0] == ";":
            yield start, sql[start:token.end()]
            start = token.end()


def types(text, named):
    """Of an argument list, whose parenthesis comes first. named: each type has the argument's name before it."""
    depth, found, part = 0, [], ""
    for letter in text[text.index("("):]:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0 or depth == 1 and letter == ",":
            words = re.split(r"\s+DEFAULT\s+|\s*=\s*", part.strip(" \n("), maxsplit=1, flags=re.I)[0].split()
            found += [" ".join(words[1:] if named else words).removeprefix("issuing.")] if words else []
            part = ""
        else:
            part += letter
        if depth == 0:
            return tuple(found)
    raise ValueError(text)


def objects(sql):
    """(start, end, key) of each object that is made or dropped."""
    for start, text in statements(sql):
        if match := MADE.match(text):
            verb, kind, name = match[1].upper(), match[2].upper(), match[3].removeprefix("issuing.")
            rest = text[match.end():]
            if kind == "TRIGGER":
                rest = re.search(r"\sON\s+([\w.]+)", rest, re.I)[1].removeprefix("issuing.")
            elif kind == "FUNCTION":
                rest = types(rest, verb == "CREATE")
            yield start, start + len(text), (kind, name, rest if kind != "VIEW" else None)


names = [line.strip().replace("_", " ") for line in subprocess.run(
    [sys.executable, "-B", "tests/e2e/run.py", "--list"], check=True, capture_output=True, text=True).stdout.splitlines()]
checks = {f"{kind}/{file.stem[len('test_'):]}" for kind in ("unit", "db")
          for file in pathlib.Path("tests", kind).rglob("test_*.c")}
kinds = pathlib.Path("tests/chaos/failover_troubles.py").read_text(encoding="utf-8")
made, last = {}, {}
for path in sorted(pathlib.Path("migrations").glob("0*.sql")):
    made[str(path)] = list(objects(path.read_text(encoding="utf-8")))
    last.update({key: (str(path), start) for start, _, key in made[str(path)]})
faults = [] if len(last) > 100 and len(names) > 100 and checks else ["nothing found: the check is broken"]
for guard in GUARDS:
    name, file, (kind, test) = guard["name"], guard["file"], guard["test"].split("/", 1)
    text = pathlib.Path(file).read_text(encoding="utf-8")
    if (count := text.count(guard["line"])) != 1:
        faults.append(f"{name}: its line is {count} times in {file}")
    elif file in made:
        at = text.index(guard["line"])
        place = bisect.bisect_right([end for _, end, _ in made[file]], at)  # the first that ends behind it
        for start, _, key in made[file][place:place + 1]:
            if start < at + len(guard["line"]) and last[key] != (file, start):
                faults.append(f"{name}: {file} is not the last that defines {key[1]}, {last[key][0]} is")
    if not (f"{kind}/{test}" in checks if kind in ("unit", "db") else f'"{test}"' in kinds if kind == "failover"
            else any(test.replace("_", " ") in listed for listed in names)):
        faults.append(f"{name}: there is no test {kind}/{test}")
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
