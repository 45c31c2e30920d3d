#!/usr/bin/env python3
"""Has each alert of monitoring/issuing-alerts.yml its tests and its runbook, and the other way round? The tests are the
names in tests/monitoring/fires.yml, which begin with the alert's; the runbook is a heading of docs/troubleshoot.md, to
which the alert has a link. One line for each difference."""
import pathlib
import re
import sys


def text(name):
    return pathlib.Path(name).read_text(encoding="utf-8")


def main():
    rules, tests, page = (text(name) for name in ("monitoring/issuing-alerts.yml", "tests/monitoring/fires.yml",
                                                  "docs/troubleshoot.md"))
    alerts = re.findall(r"^ *- alert: (\w+)$", rules, re.M)
    runbooks = set(re.findall(r"^### (\w+)$", page.split("\n## Alerts\n", 1)[1].split("\n## ", 1)[0], re.M))
    headings = re.findall(r"^### (Issuing\w+)$", page, re.M)
    tested = re.findall(r"^  - name: '(\w+): ", tests, re.M)
    asked = re.findall(r'ALERTS\{alertname="(\w+)"', tests)
    faults = [] if len(alerts) > 15 else ["monitoring/issuing-alerts.yml: few alerts found: the check is broken"]
    faults += ["docs/troubleshoot.md: the runbook of %s is missing" % name for name in alerts if name not in runbooks]
    faults += ["docs/troubleshoot.md: %s is not an alert" % name
               for name in sorted({*runbooks, *headings} - set(alerts))]
    faults += ["docs/troubleshoot.md: two runbooks of %s" % name for name in alerts if headings.count(name) > 1]
    faults += ["tests/monitoring/fires.yml: %s has no test" % name for name in alerts if name not in tested]
    faults += ["tests/monitoring/fires.yml: %s is not an alert" % name for name in sorted(set(tested) - set(alerts))]
    if len(re.findall(r"^  - name: ", tests, re.M)) != len(tested):
        faults.append("tests/monitoring/fires.yml: a test whose name does not begin with that of its alert")
    if tested != asked:
        faults.append("tests/monitoring/fires.yml: a test asks for another alert than its name says")
    links = re.findall(r"^ +runbook_url: '\{\{ \$externalLabels\.docs_url \}\}docs/troubleshoot\.md#(\w+)'$", rules,
                       re.M)
    if links != [name.lower() for name in alerts]:
        faults.append("monitoring/issuing-alerts.yml: the links are not one to the runbook of each alert, in order")
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
