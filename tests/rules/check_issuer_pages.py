#!/usr/bin/env python3
"""Do the pages of docs/issuers/ say what the profiles do? Compared are the rules (what an answer means, in their
order), the parameters, what is to be asked, the vendor's documents, and the defaults of options by profile. One line
for each difference."""
import pathlib
import re
import sys

MARKS = {"CALLS_OF_A_CARD": "CALL(CANCEL) | CALL(RETIRE) | CALL(RETRIEVE)"}
faults = []


def source(name):
    return pathlib.Path("common/core/issuer/profile_%s.c" % name).read_text(encoding="utf-8")


def rules_of(text):
    """[(calls, status, with, meaning)] as the page writes them."""
    found = []
    pattern = r'\bRULE\(([^,]+), (\d+), (\d+), MEANS_(\w+)(?:,\s*\.(?:code|header) = "([^"]*)")?\)'
    for calls, first, last, meaning, word in re.findall(pattern, text):
        for mark, calls_of_mark in MARKS.items():
            calls = calls.replace(mark, calls_of_mark)
        names = [name.lower() for name in re.findall(r"CALL\((\w+)\)", calls)]
        found.append((", ".join(names) or "any", first if first == last else first + "-" + last, word, meaning))
    return found


def tabled(page, name, heading, columns):
    """The rows of the table under a heading, backquotes removed."""
    section = page.split("\n## %s\n" % heading, 1)
    if len(section) < 2:
        faults.append("docs/issuers/%s.md: no heading %s" % (name, heading))
        return []
    rows = re.findall(r"^\| (.*) \|$", section[1].split("\n## ", 1)[0], re.M)[1:]
    return [tuple(cell.strip().replace("`", "") for cell in row.split("|"))[:columns] for row in rows]


def check_rules(name, page):
    rules = rules_of(source(name))
    shown = tabled(page, name, "What its answers mean", 4)
    if len(rules) != source(name).count("MEANS_") or not rules:
        faults.append("common/core/issuer/profile_%s.c: rules of another form: the check is broken" % name)
    for number in range(max(len(rules), len(shown))):
        there = shown[number] if number < len(shown) else "nothing"
        here = rules[number] if number < len(rules) else "nothing"
        if there != here:
            faults.append("docs/issuers/%s.md: row %d is %s, in the profile %s" % (name, number + 1, there, here))


def check_parameters(name, page):
    listed = re.search(r"\.parameters =\s*\(const char \*const\[\]\)\{(.*?)NULL", source(name), re.S)
    parameters = re.findall(r'"(\??\w+)"', listed.group(1)) if listed else []
    if not parameters:
        faults.append("common/core/issuer/profile_%s.c: no parameters found: the check is broken" % name)
    shown = {}
    for cells in tabled(page, name, "What core-api answers", 2):
        shown.update({word: cells[1] for word in cells[0].split(", ")})
    for parameter in parameters:
        word, is_required = parameter.lstrip("?"), parameter[0] != "?"
        says = shown.pop(word, None)
        if says is None or (says.startswith("no") and "where" not in says) == is_required:
            faults.append("docs/issuers/%s.md: the parameter %s is %s there" % (name, parameter, says))
    faults.extend("docs/issuers/%s.md: the profile has no parameter %s" % (name, word) for word in shown)


def check_questions(name, page):
    text = source(name)
    asked = [(about, name.capitalize() if by == "VENDOR" else "doctor")
             for about, by in re.findall(r'\{"([^"]*)",\s*ASK_(\w+)\}', text)]
    if len(asked) != text.count("ASK_") or not asked:
        faults.append("common/core/issuer/profile_%s.c: questions of another form: the check is broken" % name)
    shown = tabled(page, name, "To be asked", 2)
    if shown != asked:
        faults.append("docs/issuers/%s.md: to be asked are %s, in the profile %s" % (name, shown, asked))


def check_documents(name, page):
    documents = " ".join(re.findall(r'"([^"]*)"', re.search(r"\.documents =(.*?),\n", source(name), re.S).group(1)))
    for word in re.findall(r"\b[0-9a-f]{8,12}\b|\b\d{4}-\d\d-\d\d\.\w+", documents) or ["?"]:
        if word not in page:
            faults.append("docs/issuers/%s.md: the profile was written from %s" % (name, word))


def check_defaults(names, readme):
    header = pathlib.Path("common/core/issuer_profiles.h").read_text(encoding="utf-8")
    rows = {row[0]: row[1:] for row in re.findall(r'X\((\w+), "(\w+)", "(\w+)", "(\w+)", "(\w+)"\)', header)}
    section = readme.split("\n## Options by profile\n", 1)[1].split("\n## ", 1)[0]
    lines = [[cell.strip().strip("`") for cell in line.strip("| ").split("|")]
             for line in section.splitlines() if line.startswith("|")]
    options = ["issuer.timeout", "worker.lease", "issuer.settle_time", "issuer.key_lifetime"]
    shown = {(line[0], name): cell for line in lines[2:] for heads, cell in zip(lines[0][1:], line[1:])
             for name in heads.split(", ")}
    for name in ["generic", *names]:
        for option, default in zip(options, rows.get(name, ("?",) * 4)):
            if shown.get((option, name)) != default:
                faults.append("docs/issuers/README.md: %s of %s is %s, by default %s" %
                              (option, name, shown.get((option, name)), default))


def main():
    listed = pathlib.Path("common/core/issuer_profiles.h").read_text(encoding="utf-8")
    names = [name for name in re.findall(r"^    X\((\w+),", listed, re.M) if name != "generic"]
    if len(names) < 4:
        faults.append("common/core/issuer_profiles.h: no profiles found: the check is broken")
    readme = pathlib.Path("docs/issuers/README.md").read_text(encoding="utf-8")
    for name in names:
        path = pathlib.Path("docs/issuers/%s.md" % name)
        if not path.exists() or "(%s.md)" % name not in readme:
            faults.append("docs/issuers/%s.md is missing, or README.md does not link to it" % name)
            continue
        page = path.read_text(encoding="utf-8")
        for check in (check_rules, check_parameters, check_questions, check_documents):
            check(name, page)
    check_defaults(names, readme)
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
