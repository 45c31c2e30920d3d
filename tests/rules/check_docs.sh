#!/bin/sh
# Do the documents know everything that the programs have? Options, problems, routes and metrics are read from where they are made; each must be
# in the documents that promise to list it. One line for each that is missing. Needs the built programs: $ISSUING_BUILD, or build/.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${ISSUING_BUILD:-build}
missing=0

# want DOCUMENT WHAT NAMES: each name of the list must be in the document as a word of its own. An empty list means that this check is broken.
want() {
    if [ -z "$3" ]; then
        printf '%s: nothing found: the check is broken\n' "$2"
        missing=$((missing + 1))
        return
    fi
    for name in $3; do
        # What may stand around a name: nothing that would make it a part of a longer one.
        pattern=$(printf '%s' "$name" | sed 's/[.[\*^$+?(){}|/]/\\&/g')
        grep -Eq "(^|[^A-Za-z0-9_.-])$pattern(\$|[^A-Za-z0-9_-])" "$1" && continue
        printf '%s: %s %s is missing\n' "$1" "$2" "$name"
        missing=$((missing + 1))
    done
}

# options PROGRAM: as `--help` lists them.
options() {
    "$build/$1" --help | sed -n 's/^ *--\([a-z0-9]*\.[a-z0-9_]*\)=.*/\1/p'
}

# metrics FILE: the names in its table.
metrics() {
    sed -n 's/^ *X([A-Z_]*, "\(issuing_[a-z_]*\)", METRIC_.*/\1/p' "$1"
}

for program in issuing-api issuing-worker issuing-ctl; do
    if [ -x "$build/$program" ]; then
        want docs/operators.md "the option (of $program)" "$(options "$program")"
    else
        printf '%s is missing: build first, or set ISSUING_BUILD\n' "$build/$program"
        missing=$((missing + 1))
    fi
done

slugs=$(sed -n 's/^ *X([A-Z_]*, [0-9]*, "\([a-z-]*\)",.*/\1/p' api/problems.h)
want api/openapi.json 'the problem' "$slugs"
want docs/clients.md 'the problem' "$slugs"

want docs/operators.md 'the metric (of api/api.h)' "$(metrics api/api.h)"
want docs/operators.md 'the metric (of worker/worker.h)' "$(metrics worker/worker.h)"

# Reason codes of our own: clients show them, operators act on them.
reasons=$(sed -n '/^#define OUTBOX_REASONS/,/^$/s/^ *X(\([a-z_]*\), ".*/\1/p' common/outbox.h)
want docs/clients.md 'the reason' "$reasons"
want docs/operators.md 'the reason' "$reasons"
want api/openapi.json 'the reason' "$reasons"

# Defaults: what `--help` says is what the table of docs/operators.md says.
# shellcheck disable=SC2016 # the backquotes are for Python
for program in issuing-api issuing-worker issuing-ctl; do
    "$build/$program" --help 2>/dev/null
done | python3 -c '
import re
import sys

with open("docs/operators.md", encoding="utf-8") as file:
    rows = dict(re.findall(r"^\| `([a-z0-9]+\.[a-z0-9_]+)` \| ([^|]*) \|", file.read(), re.M))
given = dict(re.findall(r"^ *--([a-z0-9]+\.[a-z0-9_]+)=.*\n(?:.* Default: (.*)\.\n)?", sys.stdin.read(), re.M))
faults = [
    f"docs/operators.md: the default of {option} is {default or chr(45)}, not {rows[option].strip()}"
    for option, default in given.items()
    if option in rows and rows[option].strip().strip("`") != (default or "-")
]
faults += [f"docs/operators.md: {option} is no option of any program" for option in sorted(rows.keys() - given.keys())]
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
' || missing=$((missing + 1))

# Routes: the table of api/exchange.c against the paths and methods of the description, both ways. Likewise the statuses of the problems.
python3 - <<'PYTHON' || missing=$((missing + 1))
import json
import re
import sys

source = open("api/exchange.c", encoding="utf-8").read()
table = re.search(r"\broutes\[\] = \{(.*?)\n\};", source, re.S)
rows = re.findall(r'\{"(/[^"]*)", *HTTP_([A-Z]+), *(true|false),', table.group(1)) if table else []
with open("api/openapi.json", encoding="utf-8") as file:
    description = json.load(file)
security = description.get("security", [])
described = {
    (path, method.upper()): bool(operation.get("security", security))
    for path, item in description["paths"].items()
    for method, operation in item.items()
    if method in ("get", "post", "put", "patch", "delete")
}
coded = {(path, method): needs_token == "true" for path, method, needs_token in rows}
faults = [] if coded else ["no routes found in api/exchange.c: the check is broken"]
for path, method in sorted(coded.keys() - described.keys()):
    faults.append(f"api/openapi.json: the route {method} {path} is missing")
for path, method in sorted(described.keys() - coded.keys()):
    faults.append(f"api/openapi.json: {method} {path} is no route of api/exchange.c")
for route in sorted(coded.keys() & described.keys()):
    if coded[route] != described[route]:
        faults.append("api/openapi.json: %s %s and api/exchange.c differ in whether a token is needed" % route[::-1])

# Each problem is shown with its own status and title.
problems = {
    slug: (int(status), title)
    for status, slug, title in re.findall(r'X\([A-Z_]+, *(\d+), *"([a-z-]+)", *"([^"]*)"', open("api/problems.h", encoding="utf-8").read())
}
shown = {}


def look(node):
    if isinstance(node, dict):
        if isinstance(node.get("type"), str) and node["type"].startswith("/problems/"):
            shown.setdefault(node["type"][len("/problems/"):], set()).add((node.get("status"), node.get("title")))
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            look(part)


look(description)
for slug, (status, title) in problems.items():
    if shown.get(slug) != {(status, title)}:
        faults.append(f"api/openapi.json: the problem {slug} has no example with status {status} and title {title!r}")
for slug in sorted(shown.keys() - problems.keys()):
    faults.append(f"api/openapi.json: the problem {slug} is not one of api/problems.h")
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
PYTHON

# Tests, guards, rules of the model, files and functions that docs/reliability.md names: each must exist, and each test must be run.
python3 - <<'PYTHON' || missing=$((missing + 1))
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/guards")
import guards  # noqa: E402

page = "docs/reliability.md"
text = pathlib.Path(page).read_text(encoding="utf-8")
listed = subprocess.run([sys.executable, "-B", "tests/model/run.py", "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
there = {"guard": {guard["name"] for guard in guards.GUARDS + guards.TO_BE_PROVED}, "model": {line.split()[0] for line in listed.splitlines()}}
for kind in ("unit", "db"):
    for file in pathlib.Path("tests", kind).glob("test_*.c"):
        source = file.read_text(encoding="utf-8")
        run = set(re.findall(r"tcase_add_\w+\(\w+, (\w+)", source))
        there[f"{kind}/{file.stem[len('test_'):]}"] = run & set(re.findall(r"^START_TEST\((\w+)\)", source, re.M))
for file in pathlib.Path("tests/e2e").glob("*.py"):
    there[f"e2e/{file.stem}"] = set(re.findall(r"^@test\b[^\n]*(?:\n(?![@d])[^\n]*)*\ndef (\w+)", file.read_text(encoding="utf-8"), re.M))

named = re.findall(r"`((?:unit|db|e2e)/\w+|guard|model): ([^`]+)`", text)
kinds = {where.split("/")[0] for where, _ in named}
faults = [f"{page}: names nothing of {kind}: the check is broken" for kind in ("unit", "db", "e2e", "guard", "model") if kind not in kinds]
faults += [f"{page}: there is no {where}: {name}" for where, name in named if name not in there.get(where, ())]
made = "".join(file.read_text(encoding="utf-8") for file in pathlib.Path("migrations").glob("*.sql"))
faults += [f"{page}: no migration makes issuing.{name}" for name in sorted(set(re.findall(r"`issuing\.(\w+)`", text)))
           if not re.search(rf"CREATE (?:FUNCTION|TABLE) issuing\.{name}\b", made)]
files = re.findall(r"`([a-z0-9_]+(?:/[a-zA-Z0-9_.]+)+\.(?:c|h|sql|py|sh|md|pml))`", text)
faults += [f"{page}: there is no file {file}" for file in files if not pathlib.Path(file).is_file()]
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
PYTHON

[ "$missing" -eq 0 ]
