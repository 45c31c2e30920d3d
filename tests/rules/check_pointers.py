#!/usr/bin/python3
"""Do comments and documents name the right file of migrations/schema? Each file that is named is there. In
`04_claim.sql (claim, hold_behind)` and in `issuing.accept in 03_accept.sql` the file defines what is named. One line
for each fault."""
import pathlib
import re
import sys

SUFFIXES = (".c", ".h", ".md", ".pml", ".py", ".sh", ".spec", ".sql")
DEFINED = re.compile(r"^CREATE (?:OR REPLACE )?(?:\w+ )?(?:FUNCTION|VIEW|TABLE|TYPE|DOMAIN) issuing\.(\w+)", re.M)
LEADER = re.compile(r"\n[ \t]*(?:--|\*|#|//)?[ \t]*")  # a sentence goes on in the next line of the comment
FILE = re.compile(r"(?<![\w/])(?:migrations/|\.\./)?(?:schema/)?(\d\d_\w+\.sql)\b`?"
                  r"(?: \(([a-z0-9_]+(?:, [a-z0-9_]+)*)\))?")
WITH_NAME = re.compile(r"issuing\.(\w+)`? (?:in|of) `?(?:migrations/schema/)?(\d\d_\w+\.sql)\b")

defined = {path.name: set(DEFINED.findall(path.read_text(encoding="utf-8")))
           for path in pathlib.Path("migrations/schema").glob("*.sql")}
faults, files, names = [], 0, 0
tops = [top for top in sorted(pathlib.Path(".").iterdir()) if not top.name.startswith(("build", "."))]
for path in [path for top in tops for path in ([top] if top.is_file() else sorted(top.rglob("*")))]:
    if path.suffix not in SUFFIXES or path.name == pathlib.Path(__file__).name:
        continue
    text = LEADER.sub(" ", path.read_text(encoding="utf-8"))
    named = [(file, name) for file, list_of in FILE.findall(text) for name in list_of.split(", ") if name]
    named += [(file, name) for name, file in WITH_NAME.findall(text)]
    files, names = files + len(FILE.findall(text)), names + len(named)
    faults += [f"{path}: there is no migrations/schema/{file}" for file, _ in FILE.findall(text) if file not in defined]
    for file, name in named:
        if name not in defined.get(file, {name}):
            right = [other for other, others in defined.items() if name in others]
            faults.append(f"{path}: {name} is not in {file}" + (f", but in {right[0]}" if right else ""))
faults += [] if files > 30 and names > 15 else ["few files or functions are named: the check is broken"]
print(*sorted(set(faults)), sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
