"""What there is, read from the C sources: the other side of the comparison with pages and completions, which are made
from what the programs print."""
import pathlib
import re

from checks import check

TOP = pathlib.Path(__file__).resolve().parents[2]


def found(rows, where):
    check(rows, "%s: nothing was found: the test is broken" % where)
    return rows


def names(text, macros):
    """The names in rows of option_spec, with those of the macros that the text uses."""
    listed = re.findall(r'\.name = "([a-z-]+)"', text)
    for macro, members in macros.items():
        if macro + "(" in text:
            listed += members
    return ["--" + name.removeprefix("--") for name in listed]


def commands():
    """{word: its options} of issuing-ctl."""
    macros = {}
    lists = (("filter.h", "FILTER_ORDER_OPTION"), ("filter.h", "FILTER_OPTIONS"), ("bulk.h", "BULK_OPTIONS"))
    for file, macro in lists:
        body = re.search(r"#define %s\(.*?\n\n" % macro, (TOP / "ctl" / file).read_text(), re.S).group()
        macros[macro] = names(body.split("\n", 1)[1], macros)
    words = {}
    for path in sorted((TOP / "ctl").glob("*.c")):
        text = path.read_text()
        listed = set(re.findall(r'\.word = "([a-z-]+)"', text))
        options = names(text, macros)
        for word in listed:
            words[word] = options if len(listed) == 1 else []
    return found(words, "ctl/*.c")


def configuration():
    """[(section, key)] of the option table."""
    table = "common/core/config/config_table.c"
    return found(re.findall(r'^    \{"(\w+)", "(\w+)", OPTION_', (TOP / table).read_text(), re.M), table)


def route_options():
    """The keys of a route's options."""
    table = "common/core/config/config_routes.c"
    return found(re.findall(r'^    \{"route", "(\w+)", OPTION_', (TOP / table).read_text(), re.M), table)


def sandbox_options():
    return found(re.findall(r'^    \{"(--[a-z-]+)", AT', (TOP / "sandbox/options.c").read_text(), re.M),
                 "sandbox/options.c")
