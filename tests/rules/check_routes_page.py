#!/usr/bin/env python3
"""Does docs/routes.md list the options of a route as the programs have them? Names and defaults are compared with the
table of common/core/config/config_routes.c, both ways. One line for each difference."""
import pathlib
import re
import sys


def coded():
    """{option: default}; "required" and "-" as the page writes them."""
    source = pathlib.Path("common/core/config/config_routes.c").read_text(encoding="utf-8")
    table = re.search(r"config_route_options\[\] = \{\n(.*?)\n\};", source, re.S).group(1)
    options = {}
    for name, row in re.findall(r'\{"route", "(\w+)",(.*?)\},(?=\n|$)', table, re.S):
        default = re.search(r'\.(?:default_text|note) = "([^"]*)"', row)
        options[name] = default.group(1) if default else "required" if "Required." in row else "-"
    return options


def shown():
    page = pathlib.Path("docs/routes.md").read_text(encoding="utf-8")
    section = page.split("\n## Options\n", 1)[1].split("\n## ", 1)[0]
    return {name: default.strip("`") for name, default in re.findall(r"^\|`(\w+)`\|([^|]+?)\|", section, re.M)}


def main():
    here, there = coded(), shown()
    faults = ["common/core/config/config_routes.c: few options found: the check is broken"] if len(here) < 8 else []
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            faults.append("docs/routes.md: %s is %s there, and %s in common/core/config/config_routes.c" %
                          (name, there.get(name), here.get(name)))
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
