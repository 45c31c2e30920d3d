#!/bin/sh
# Do the documents list everything that the programs have? Each name is read from where it is defined, and must be in the
# documents that promise to list it. One line for each that is missing. Needs the built programs: $ISSUING_BUILD, or
# build/.
set -u
cd "$(dirname "$0")/../.." || exit 1
missing=0

# want DOCUMENT WHAT NAMES: each name of the list must be in the document as a word of its own. An empty list means that
# this check is broken.
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

slugs=$(sed -n 's/^ *X([A-Z_]*, [0-9]*, "\([a-z-]*\)",.*/\1/p' api/problems.h)
want api/openapi.json 'the problem' "$slugs"
# Our own reason codes: clients show them.
reasons=$(sed -n '/^#define OUTBOX_REASONS/,/^$/s/^ *X(\([a-z_]*\), ".*/\1/p' common/core/outbox.h)
want api/openapi.json 'the reason' "$reasons"

# Pages that are written from the tables of the programs.
python3 -B install/reference.py --check || missing=$((missing + 1))

# What an operator does about a reason: each of common/core/outbox.h is in docs/troubleshoot.md, and no other is. The
# end of a lost attempt, which a statement writes, is in the lists of common/core/outbox.h too.
python3 - <<'PYTHON' || missing=$((missing + 1))
import re
import sys

header = open("common/core/outbox.h", encoding="utf-8").read()
faults = []


def listed(macro, pattern):
    """The words of an X-list: the member of each row that the pattern captures."""
    body = re.search(rf"#define {macro}\(X\)(.*?)\n\n", header, re.S).group(1)
    words = re.findall(pattern, body)
    if not words:
        faults.append(f"common/core/outbox.h: no rows found in {macro}: the check is broken")
    return set(words)


page = open("docs/troubleshoot.md", encoding="utf-8").read()
section = page.split("\n## Reasons of REJECTED and FAILED\n", 1)[1].split("\n#", 1)[0]
cells = re.findall(r"^\| (`.*?) \|", section, re.M)
shown = {word for cell in cells for word in re.findall(r"`([a-z_]+)`", cell)}
reasons = listed("OUTBOX_REASONS", r"X\(([a-z_]+),")
faults += [f"docs/troubleshoot.md: the reason {word} is missing" for word in sorted(reasons - shown)]
faults += [f"docs/troubleshoot.md: {word} is not a reason of common/core/outbox.h" for word in sorted(shown - reasons)]
sweep = open("migrations/schema/04_sweep.sql", encoding="utf-8").read()
written = re.search(r"l\.lease_owner,\s*'unknown',\s*'(\w+)', '(\w+)', NULL", sweep)
if (not written or written.group(1) not in listed("OUTBOX_ATTEMPTS", r"X\([A-Z_]+, ([a-z_]+)\)")
        or written.group(2) not in listed("OUTBOX_CAUSES", r"X\([A-Z_]+, ([a-z_]+),")):
    faults.append("migrations/schema/04_sweep.sql: the outcome or the cause of a lost attempt is not in outbox.h")
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
PYTHON

# What a status means: the rows of common/core/decide/outcome.c (the first that fits counts) against the table of
# docs/peers.md.
python3 - <<'PYTHON' || missing=$((missing + 1))
import re
import sys

source = open("common/core/decide/outcome.c", encoding="utf-8").read()
rows = re.findall(r"\{(\d+), (\d+|INT_MAX), OUTCOME_([A-Z_]+), ADVICE_", source)
page = open("docs/peers.md", encoding="utf-8").read()
table = page.split("| what comes back to a create |", 1)[1].split("\n\n", 1)[0]
shown, rest = {200: "", 201: ""}, {}
for cell, meaning in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", table, re.M)[1:]:
    kind = re.match(r"EXECUTED|NOT_EXECUTED|REFUSED|UNKNOWN|$", meaning).group()
    for status in re.findall(r"\b([1-5]\d\d)\b", cell):
        shown.setdefault(int(status), kind)
    for hundred in re.findall(r"\b([1-5])xx\b", cell):
        rest.update({status: kind for status in range(int(hundred) * 100, int(hundred) * 100 + 100)})
rest.update(shown)
faults = []
if len(rows) <= 5 or len(rest) < 400:
    faults.append("docs/peers.md, common/core/decide/outcome.c: no table found: the check is broken")
for status in sorted(rest.keys() - {200, 201}):
    coded = [kind for least, most, kind in rows if int(least) <= status and (most == "INT_MAX" or status <= int(most))]
    if coded[:1] != [rest[status]]:
        faults.append(f"docs/peers.md: {status} is {rest[status] or 'nothing'}, in decide/outcome.c {coded[:1]}")
print(*faults[:10], sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
PYTHON

# Routes: the table of api/routes.h against the paths and methods of the description, both ways. Likewise the statuses
# of the problems.
python3 - <<'PYTHON' || missing=$((missing + 1))
import json
import re
import sys

source = open("api/routes.h", encoding="utf-8").read()
routes = re.findall(r'\bX\(\w+, HTTP_([A-Z]+), "(/[^"]*)", (true|false), \w+\)', source)
rows = [(path, method, token) for method, path, token in routes]
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
faults = [] if coded else ["no routes found in api/routes.h: the check is broken"]
for path, method in sorted(coded.keys() - described.keys()):
    faults.append(f"api/openapi.json: the route {method} {path} is missing")
for path, method in sorted(described.keys() - coded.keys()):
    faults.append(f"api/openapi.json: {method} {path} is not a route of api/routes.h")
for route in sorted(coded.keys() & described.keys()):
    if coded[route] != described[route]:
        faults.append("api/openapi.json: %s %s and api/routes.h differ in whether a token is needed" % route[::-1])

# Each problem is shown with its own status and title.
source = open("api/problems.h", encoding="utf-8").read()
problems = {
    slug: (int(status), title)
    for status, slug, title in re.findall(r'X\([A-Z_]+, *(\d+), *"([a-z-]+)", *"([^"]*)"', source)
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
listed = set(description["components"]["schemas"]["Problem"]["properties"]["type"]["examples"])
for slug in sorted({slug[len("/problems/"):] for slug in listed} ^ problems.keys()):
    faults.append(f"api/openapi.json: the examples of Problem.type and api/problems.h differ in {slug}")
for slug, (status, title) in problems.items():
    if shown.get(slug) != {(status, title)}:
        faults.append(f"api/openapi.json: the problem {slug} has no example with status {status} and title {title!r}")
for slug in sorted(shown.keys() - problems.keys()):
    faults.append(f"api/openapi.json: the problem {slug} is not one of api/problems.h")
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
PYTHON

# Members of the body of a request: those that common/core/outbox.c reads are described, and no other is.
python3 - <<'PYTHON' || missing=$((missing + 1))
import json
import pathlib
import re
import sys

source = pathlib.Path("common/core/outbox.c").read_text(encoding="utf-8")
texts = set(re.findall(r"^    TEXT_MEMBER\((\w+),", source, re.M))
named = set(re.findall(r'strcmp\(name, "(\w+)"\) == 0', source))
faults = [] if texts and named else ["common/core/outbox.c: no members found: the check is broken"]
schemas = json.loads(pathlib.Path("api/openapi.json").read_text(encoding="utf-8"))["components"]["schemas"]
described = {name for part in schemas["CardRequestBody"]["oneOf"] for name in
             schemas[part["$ref"].rsplit("/", 1)[1]]["properties"]}
faults += [f"api/openapi.json: CardRequestBody and common/core/outbox.c differ in {name}"
           for name in sorted(described ^ (texts | named))]
for page, names, form in (("docs/clients.md", texts | named, "`%s`"), ("docs/limits.md", texts, "`%s`"),
                          ("docs/peers.md", texts, '"%s"')):
    text = pathlib.Path(page).read_text(encoding="utf-8")
    faults += [f"{page}: the member {name} is missing" for name in sorted(names) if form % name not in text]
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
PYTHON

# Files and database functions that docs/reliability.md and docs/security.md name: each must exist.
python3 - <<'PYTHON' || missing=$((missing + 1))
import pathlib
import re
import sys

made = "".join(file.read_text(encoding="utf-8") for file in pathlib.Path("migrations").rglob("*.sql"))
faults = []
for page in ("docs/reliability.md", "docs/security.md"):
    text = pathlib.Path(page).read_text(encoding="utf-8")
    functions = sorted(set(re.findall(r"`issuing\.(\w+)`", text)))
    faults += [] if functions else [f"{page}: names no function: the check is broken"]
    faults += [f"{page}: no migration makes issuing.{name}" for name in functions
               if not re.search(rf"CREATE (?:OR REPLACE )?(?:FUNCTION|TABLE) issuing\.{name}\b", made)]
    files = re.findall(r"`([a-z0-9_]+(?:/[a-zA-Z0-9_.]+)+\.(?:c|h|sql|py|sh|md|pml))`", text)
    faults += [f"{page}: there is no file {file}" for file in files if not pathlib.Path(file).is_file()]
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
PYTHON

# Alerts, their tests and their runbooks.
python3 -B tests/rules/check_alerts.py || missing=$((missing + 1))

# Files of the schema that comments and documents name, with what is in them.
python3 -B tests/rules/check_pointers.py || missing=$((missing + 1))

# Limiters, and their schedules on the page.
python3 -B tests/rules/check_limiters.py || missing=$((missing + 1))

# Tables: each row has as many cells as its header. Where a bar stands in a cell without a backslash, also inside of
# code, a page shows the cell cut off and loses the last one.
python3 - <<'PYTHON' || missing=$((missing + 1))
import pathlib
import re
import sys

faults, tables = [], 0
# Not what is built and run below build/: other programs make and remove folders there.
folders = [top for top in sorted(pathlib.Path(".").iterdir()) if not top.name.startswith(("build", "."))]
for page in [page for top in folders for page in ([top] if top.suffix == ".md" else sorted(top.rglob("*.md")))]:
    cells, fence, before = 0, False, ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence ^= line.lstrip().startswith("```")
        count = len(re.findall(r"(?<!\\)\|", line)) - 1 if line.startswith("|") and not fence else 0
        if not cells and re.fullmatch(r"\|(?: *:?-+:? *\|)+", line) and not fence:
            cells, tables = count, tables + 1
            if len(re.findall(r"(?<!\\)\|", before)) - 1 != cells:
                faults.append(f"{page}:{number - 1}: the header has another number of cells than the line below it")
        elif cells and count and count != cells:
            faults.append(f"{page}:{number}: {count} cells in a table of {cells}")
        elif not count:
            cells = 0
        before = line
faults += [] if tables > 20 else ["few tables found in the documents: the check is broken"]
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
PYTHON

# Links between the documents: the file is there, and so is the heading.
python3 - <<'PYTHON' || missing=$((missing + 1))
import pathlib
import re
import sys


def text_of(page):
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def anchors_of(page):
    """As GitHub makes them: lower case, blanks as hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


folders = [top for top in sorted(pathlib.Path(".").iterdir()) if not top.name.startswith(("build", "."))]
pages = [page for top in folders for page in ([top] if top.suffix == ".md" else sorted(top.rglob("*.md")))]
faults, links = [], 0
for page in pages:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        links += 1
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists():
            faults.append(f"{page}: there is no {target}")
        elif anchor and anchor not in anchors_of(file):
            faults.append(f"{page}: there is no heading {target}")
faults += [] if links > 100 else ["few links found in the documents: the check is broken"]
print(*faults, sep="\n", end="\n" if faults else "")
sys.exit(1 if faults else 0)
PYTHON

# What the pages of issuers say against the profiles.
python3 -B tests/rules/check_issuer_pages.py || missing=$((missing + 1))

# What the page of routes says against the options of a route.
python3 -B tests/rules/check_routes_page.py || missing=$((missing + 1))

[ "$missing" -eq 0 ]
