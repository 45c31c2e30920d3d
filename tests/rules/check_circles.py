#!/usr/bin/python3
"""Finds circles of includes among modules (a module is the .c and the .h file of one name): none of them can be read,
or tested, without the others. A child may include its parent, of which it is a part; such pairs are listed here with
what the child is, and a row that is in no circle must go."""
import pathlib
import re
import sys

FOLDERS = ("api", "bench", "common", "ctl", "sandbox", "worker", "tests/support")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)

# Child, parent, what the child is.
CHILDREN = (
    ("api/accept_queue", "api/acceptor", "the order of one user's acceptances, which the acceptor defines"),
    ("api/auth_token", "api/auth", "the rules of one token; their reasons are the parent's table"),
    ("common/core/config/config_table", "common/core/config/config", "the inside of config.h's struct"),
    ("common/core/daemon_reload", "common/core/daemon", "what SIGHUP does to it"),
    ("common/lib/http_client/http_growth", "common/lib/http_client/http_pool", "makes its connections"),
    ("common/lib/http_client/http_pooled_conn", "common/lib/http_client/http_pool", "one of its connections"),
    ("common/lib/http_server/http_origin", "common/lib/http_server/http_server", "whose connection it is"),
    ("common/lib/http_server/http_server_internal", "common/lib/http_server/http_server", "the inside"),
    ("common/lib/pg/pg_pool_internal", "common/lib/pg/pg_pool", "the inside"),
    ("ctl/console/status", "ctl/console/console", "the first page"),
    ("sandbox/fault_answer", "sandbox/sandbox_call", "what a fault makes of the answer of a call"),
    ("sandbox/fault_rule", "sandbox/faults", "one rule of the list"),
    ("sandbox/ledger_internal", "sandbox/ledger", "the inside"),
)


def read_modules():
    """{module: the modules that it includes}"""
    files = [path for folder in FOLDERS for path in sorted(pathlib.Path(folder).rglob("*.[ch]"))]
    modules = {str(path.with_suffix("")): set() for path in files}
    for path in files:
        module = str(path.with_suffix(""))
        named = {header.removesuffix(".h") for header in INCLUDE.findall(path.read_text(encoding="utf-8"))}
        modules[module] |= {header for header in named if header in modules and header != module}
    return modules


def circles(modules):
    """The sets of modules that reach each other (Tarjan)."""
    order, low, stack, found = {}, {}, [], []

    def visit(module):
        order[module] = low[module] = len(order)
        stack.append(module)
        for header in modules[module]:
            if header not in order:
                visit(header)
                low[module] = min(low[module], low[header])
            elif header in stack:
                low[module] = min(low[module], order[header])
        if low[module] == order[module]:
            members = stack[stack.index(module):]
            del stack[stack.index(module):]
            if len(members) > 1:
                found.append(sorted(members))

    for module in modules:
        if module not in order:
            visit(module)
    return found


def main():
    modules = read_modules()
    faults = [] if any(modules.values()) else ["no #include found: the check is broken"]
    whole = circles(modules)
    for child, parent, _ in CHILDREN:
        if not any(child in circle and parent in circle for circle in whole):
            faults.append("%s and %s are in no circle: their row in check_circles.py must go" % (child, parent))
        modules.get(child, set()).discard(parent)
    faults += ["a circle of includes: " + " ".join(circle) for circle in circles(modules)]
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


sys.exit(main())
