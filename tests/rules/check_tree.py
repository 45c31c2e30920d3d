#!/usr/bin/env python3
"""check_tree.py [--committed]: what is wrong with a tree before a compiler or a package is asked. A line for each
fault; status 1 if there is one.

- with --committed, a file that is not committed, where this is a clone: what lies beside a commit is not in it
- a file that a meson.build names and that is not there
- a script (#!) without its executable bit; debian/ has its own rules, and what is in examples/ is installed as a
  document
- Python that does not parse, warnings included
- a line of more than 120 columns in C, in SQL below migrations/, and in the comments and docstrings of Python
- a file of stories that does not import; a part of a story's name in TRACE_STORIES that none or several have
"""
import ast
import pathlib
import re
import subprocess
import sys
import warnings

TOP = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = 120


def git(*words):
    """Lines; None where git refuses or is not there: a source archive is not a clone. An owner other than the caller is
    not a reason to refuse."""
    try:
        told = subprocess.run(["git", "-c", "safe.directory=*", "-c", "core.quotePath=false", *words], cwd=TOP,
                              capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return told.stdout.splitlines() if told.returncode == 0 else None


def every_file():
    """Paths below the top: what git knows, else all but hidden folders and those that builds make."""
    listed = git("ls-files")
    if listed is not None:
        return [name for name in listed if (TOP / name).is_file()]
    found = (path.relative_to(TOP) for path in TOP.rglob("*") if path.is_file())
    return [str(path) for path in found if not path.parts[0].startswith((".git", "build")) and "__pycache__" not in path.parts]


def uncommitted():
    return ["%s is not committed" % line[3:] for line in git("status", "--porcelain") or []]


def named(folder, text):
    """What a meson.build names, as paths below the top."""
    text = re.sub(r"#.*|output: *(\[[^]]*\]|'[^']*')", "", text)
    for name in re.findall(r"(?<!/ )'([\w./-]+\.(?:c|sql|py|sh|in|scd))'", text):
        yield folder / name
    for table in re.findall(r"^unit_tests \+= \{(.*?)^\}", text, re.M | re.S):
        for name in re.findall(r"^  '([\w/]+)':", table, re.M):
            yield pathlib.Path("tests/unit", name).with_name("test_%s.c" % pathlib.Path(name).name)
    for table in re.findall(r"^db_programs = \{(.*?)^\}", text, re.M | re.S):
        for name in re.findall(r"^    '(\w+)',", table, re.M):
            yield pathlib.Path("tests/db/test_%s.c" % name)


def unnamed(files):
    known = set(files)
    for name in files:
        if name.endswith("meson.build"):
            folder = pathlib.Path(name).parent
            for wanted in named(folder, (TOP / name).read_text(encoding="utf-8")):
                path = str((TOP / wanted).resolve().relative_to(TOP))
                if path not in known:
                    yield "%s names %s, which is not there" % (name, path)


def without_bit(files):
    for name in files:
        path = TOP / name
        with open(path, "rb") as file:
            is_script = file.read(2) == b"#!"
        if is_script and not name.startswith(("debian/", "examples/")) and not path.stat().st_mode & 0o100:
            yield "%s has no executable bit" % name


def unparsed(files):
    for name in files:
        if name.endswith(".py"):
            try:
                ast.parse((TOP / name).read_text(encoding="utf-8"), name)
            except (SyntaxError, ValueError, Warning) as error:
                yield "%s: %s" % (name, error)


def limited(name, text):
    """The lines of this file that may not be wide, by their numbers. clang-format decides how wide a macro is: its
    backslashes do not count."""
    lines = dict(enumerate(text.splitlines(), 1))
    if name.endswith((".c", ".h")):
        return {number: line.rstrip("\\").rstrip() for number, line in lines.items()}
    if name.endswith(".py"):
        strings = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)
                   and isinstance(node.value, ast.Constant)]
        words = {number for node in strings for number in range(node.lineno, node.end_lineno + 1)}
        return {number: line for number, line in lines.items() if number in words or line.lstrip().startswith("#")}
    return lines if name.startswith("migrations/") and name.endswith(".sql") else {}


def too_wide(files):
    """Of files that can be parsed."""
    for name in files:
        if name.endswith((".c", ".h", ".py", ".sql")):
            for number, line in limited(name, (TOP / name).read_text(encoding="utf-8")).items():
                if len(line) > COLUMNS:
                    yield "%s:%d has %d columns, more than %d" % (name, number, len(line), COLUMNS)


def unimported():
    listed = subprocess.run([sys.executable, "-B", "tests/e2e/run.py", "--list"], cwd=TOP, capture_output=True,
                            text=True, check=False)
    if listed.returncode != 0 or len(listed.stdout.splitlines()) < 100:
        last = (listed.stderr.strip() or "too few").splitlines()[-1]
        yield "tests/e2e/run.py --list: %s" % last
    text = (TOP / "tests/issuers/run.py").read_text(encoding="utf-8")
    wanted = re.search(r"^TRACE_STORIES = \((.*?)\)", text, re.M | re.S)
    for part in re.findall(r'"([^"]+)"', wanted[1]):
        if listed.stdout.count(part) != 1:
            yield "tests/issuers/run.py: %d stories are called \"... %s ...\"" % (listed.stdout.count(part), part)


def main():
    warnings.simplefilter("error")
    files = every_file()
    faults = [*(uncommitted() if "--committed" in sys.argv else ()), *unnamed(files), *without_bit(files),
              *unparsed(files)]
    faults += too_wide(files) if not faults else []
    faults += unimported() if not faults else []
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
