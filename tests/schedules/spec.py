"""A schedule's file, and the mutants that it names.

    # The story: the comment of the SQL that the schedule examines.
    without NAME                    a guard of tests/guards/migrations.txt: without it an order must fail
    without FUNCTION: WHAT          the same of a line that is not a guard: what is taken out of FUNCTION stands below
        - the text
        + what stands there instead
    setup                           before each order, as the superuser
        SQL
    session NAME ROLE
    step NAME                       of the session above, in their order
        SQL
    waits STEP STEP                 exactly these wait for another session in some order; no such line = none
    fails STEP SQLSTATE             in some orders STEP may fail so
    check SENTENCE                  after each order, as the superuser: a query that returns no row
        SQL

Bodies are indented. In SQL, `@NAME(arguments)` is the statement NAME of migrations/statements/. A check reads the table
`said`: a row (step, value, error, at) for each row that a step returned, and one for a step that failed; at: when the
step ended.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "guards"))

import guards  # noqa: E402

SCHEMA = ROOT / "migrations" / "schema"
STATEMENTS = ROOT / "migrations" / "statements"
ONCE = ("roles.sql", "02_tables.sql", "18_triggers.sql")
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(SCHEMA.glob("*.sql"))}
GUARDS = {guard.name: guard for guard in guards.load() if guard.file and guard.file.startswith("migrations/")}


class Bad(Exception):
    """What is wrong with a file."""


class Mutant:
    """path, text: the file without its line."""

    def __init__(self, name, path, text):
        self.name, self.path, self.text = name, path, text


class Session:
    def __init__(self, name, role):
        self.name, self.role, self.steps = name, role, []


class Spec:
    def __init__(self, path):
        self.name, self.path = path.stem, path
        self.setup = ""
        self.sessions, self.sql, self.checks, self.mutants = [], {}, [], []
        self.waits, self.fails = set(), {}
        words, body = None, []
        for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), "end"], 1):
            if line.startswith("    ") or not line.strip():
                body.append(line[4:])
            elif not line.startswith("#"):
                if words:
                    self.take(words, "\n".join(body).strip("\n"))
                words, body = line, []
                self.where = f"{path.name}:{number}"
        if len(self.sessions) < 2 or not self.checks or not self.mutants:
            raise Bad(f"{path.name}: a schedule has two sessions, a check and a mutant")

    def take(self, line, body):
        word, _, rest = line.partition(" ")
        if word == "without":
            self.mutants.append(mutant(rest, body))
        elif word == "setup":
            self.setup = body
        elif word == "session":
            self.sessions.append(Session(*rest.split()))
        elif word == "step":
            self.sessions[-1].steps.append(rest)
            self.sql[rest] = body
        elif word == "waits":
            self.waits |= set(rest.split())
        elif word == "fails":
            step, state = rest.split()
            self.fails.setdefault(step, set()).add(state)
        elif word == "check":
            self.checks.append((rest, body))
        else:
            raise Bad(f"{self.where}: no such line: {line}")

    def orders(self):
        """All interleavings of the steps, each a tuple of (session's number, step)."""
        def grow(taken, order):
            if all(count == len(session.steps) for count, session in zip(taken, self.sessions)):
                yield tuple(order)
            for at, session in enumerate(self.sessions):
                if taken[at] < len(session.steps):
                    yield from grow([count + (other == at) for other, count in enumerate(taken)],
                                    [*order, (at, session.steps[taken[at]])])
        return grow([0] * len(self.sessions), [])


def mutant(name, body):
    """Of a guard by its name, or of a function's text."""
    if guard := GUARDS.get(name):
        path = ROOT / guard.file
        text = guard.mutant(path.read_text(encoding="utf-8"))
    else:
        of, _, _ = name.partition(":")
        path = next((SCHEMA / file for file, text in TEXTS.items() if f"FUNCTION issuing.{of}(" in text), None)
        lines = {sign: "\n".join(line[2:] for line in body.splitlines() if line[:1] == sign) for sign in "-+"}
        text = path and taken_out(TEXTS[path.name], f"FUNCTION issuing.{of}(", lines["-"], lines["+"])
    if not text or path.name in ONCE:
        raise Bad(f"there is no such line to take out: {name}")
    return Mutant(name, path, text)


def taken_out(text, begin, was, becomes):
    at = text.index(begin)
    end = text.find("\nCREATE OR REPLACE FUNCTION", at)
    found = re.compile(r"\s+".join(map(re.escape, was.split()))).search(text, at, len(text) if end < 0 else end)
    return found and text[:found.start()] + becomes + text[found.end():]


def statements(instead=None):
    """The statements by name. instead: a mutant of one of their files."""
    found = {}
    for path in STATEMENTS.glob("*.sql"):
        text = instead.text if instead and instead.path == path else path.read_text(encoding="utf-8")
        for part in re.split(r"^-- name: ", text, flags=re.M)[1:]:
            name, _, rest = part.partition(" ")
            found[name] = "\n".join(line for line in rest.splitlines()[1:] if not line.lstrip().startswith("--"))
    return found


def arguments(text, at):
    """Those between the parentheses that open at `at`, and where they end."""
    depth, found, begin = 0, [], at + 1
    for end in range(at, len(text)):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[end], 0)
        if text[end] == "," and depth == 1 or depth == 0:
            found.append(text[begin:end].strip())
            begin = end + 1
        if depth == 0:
            return found, end + 1
    raise Bad(f"no end of the arguments: {text[at:at + 60]}")


def expand(sql, named):
    """The SQL with the text of each @NAME(arguments)."""
    while match := re.search(r"@(\w+)\(", sql):
        values, end = arguments(sql, match.end() - 1)
        text = re.sub(r"\$(\d+)", lambda number: f"({values[int(number[1]) - 1]})",  # noqa: B023 - called at once
                      named[match[1]]).rstrip().rstrip(";")
        sql = sql[:match.start()] + text + sql[end:]
    return sql
