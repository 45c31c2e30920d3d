"""The guards: lines that the promise needs, each with a mutant and the test that fails without it.

In the source stands a mark, above the line: a comment of its own with `guard:` and a sentence, which is the name. The
table of a folder (worker.txt) has a row for each mark, in the order of files and lines:

    unknown unit/flow_end: UNKNOWN is sticky
    - .clear_sent = !flow->unknown && !flow->is_saved,
    + .clear_sent = !flow->is_saved,

First what it guards (a key of PROMISE) and the test, blanks of its name written `_`. Behind `-` is what the mutant
replaces: the first such text below the mark, which begins within NEAR lines; however much white space is between its
words. Behind `+` is what it puts there; nothing = it leaves the text out.
"""
import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parents[2]
TABLES = pathlib.Path(__file__).resolve().parent
FOLDERS = ("api", "common", "ctl", "examples", "migrations", "sandbox", "worker")
SUFFIXES = (".c", ".cfg", ".conf", ".h", ".py", ".sql", ".yml")
NEAR = 12
ASSIGNMENT = re.compile(r"[\w.>\[\]*-]+ :?= ")
MARK = re.compile(r"^[ \t]*(?:/\*|--|#) guard: (.*?)(?: \*/)?$", re.M)
ROW = re.compile(r"(\w+) ((?:unit|db|e2e|failover)/[^: ]+): (.+)")

# What the promise rests on: each accepted request ends as exactly one card, one definite refusal, or one visible
# question; never as two cards and never as silence. The same for other types, with "executed once".
PROMISE = {
    "accept": "Key, limit and event are one transaction, behind the lock of the user.",
    "lease": "Each attempt has a lease and a token, and every write names them.",
    "key": "Every attempt sends the same key and the same content.",
    "unknown": "An unknown outcome stays unknown until somebody definite answers.",
    "lifetime": "Nothing is sent past the lifetime of its key, also when a clock steps.",
    "late": "No end is written while a send may still be under way.",
    "answers": "Only a definite answer is taken for one: what may have been executed is unknown.",
    "silence": "Whatever is accepted goes on until it ends, or becomes a question that people see.",
    "types": "Events of other types are executed once as well, in their order, and ends are told.",
    "others": "No user, type, target, peer or row stops the others.",
    "failure": "A database or a program that fails is noticed, and never taken for an answer.",
    "operators": "Operators' actions obey the same rules, and are recorded.",
    "kept": "What a key, a limit, an open event or a card in use needs is not deleted.",
    "trust": "Nobody reads or acts in the name of somebody else.",
    "secrets": "Card numbers and credentials are seen by nobody who need not see them.",
}


class Guard:
    """file, line: where the mark is, None and 0 = nowhere. table, row: where the row is."""

    def __init__(self, table, row, promise, test, name):
        self.table, self.row = table, row
        self.promise, self.test, self.name = promise, test, name
        self.was, self.becomes = [], []
        self.file, self.line = None, 0

    def place(self, text):
        """Where the guarded text is, (start, end), or None. Of the text of its file."""
        marks = list(MARK.finditer(text))
        mark = next((mark for mark in marks if mark[1] == self.name), None)
        if not mark or not self.was:
            return None
        code = MARK.sub(lambda found: " " * len(found[0]), text)
        words = " ".join(self.was).split()
        found = re.compile(r"\s+".join(map(re.escape, words))).search(code, mark.end())
        if not found:
            return None
        between = code[mark.end():found.start()].splitlines()[1:]
        return found.span() if sum(bool(line.strip()) for line in between[:-1]) < NEAR else None

    def mutant(self, text):
        """The text of the file without the guard, or None."""
        place = self.place(text)
        if not place:
            return None
        start, end = place
        line = text[text.rfind("\n", 0, start) + 1:]
        indentation = line[:len(line) - len(line.lstrip(" \t"))]
        return text[:start] + ("\n" + indentation).join(self.becomes) + text[end:]


    def without_assignment(self, text):
        """The text of the file without the whole assignment in whose first line the mutant begins; None = in none."""
        place, is_sql = self.place(text), self.file.endswith(".sql")
        if not place or not self.becomes or not self.file.endswith((".c", ".sql")):
            return None
        start = text.rfind("\n", 0, place[0]) + 1
        start += re.compile(r"[ \t]*").match(text, start).end() - start
        match, depth = ASSIGNMENT.match(text, start), 0
        for end in range(match.end(), len(text)) if match else ():
            depth += (text[end] in "([{") - (text[end] in ")]}")
            if depth < 0:
                return None
            if depth == 0 and text[end] in ",;":
                if is_sql and (text[end] == ";") != (":=" in match[0]): # the last one of a list
                    return None
                nothing = "" if text[end] == "," else "NULL;" if is_sql else ";"
                return text[:start] + nothing + text[end + 1:]
        return None


def rows(table):
    """The guards of a table; ValueError for a line that does not belong to a row."""
    found = []
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), 1):
        if match := ROW.fullmatch(line):
            found.append(Guard(table.stem, number, *match.groups()))
        elif found and line[:2] in ("- ", "+ "):
            (found[-1].was if line[0] == "-" else found[-1].becomes).append(line[2:])
        else:
            raise ValueError(f"{table.name}:{number}: no part of a row")
    return found


def sources(folder):
    """The files of a folder of the tree that may have marks."""
    return (path for path in sorted((TOP / folder).rglob("*")) if path.suffix in SUFFIXES and path.is_file())


def marks():
    """(name, file, line) of each mark, in the order of the tree."""
    for folder in FOLDERS:
        for path in sources(folder):
            text = path.read_text(encoding="utf-8")
            for mark in MARK.finditer(text):
                yield mark[1], str(path.relative_to(TOP)), text.count("\n", 0, mark.start(1)) + 1


def load():
    """The guards of all tables, each with the place of its mark."""
    found = [guard for table in sorted(TABLES.glob("*.txt")) for guard in rows(table)]
    places = {name: (file, line) for name, file, line in marks()}
    for guard in found:
        guard.file, guard.line = places.get(guard.name, (None, 0))
    return found
