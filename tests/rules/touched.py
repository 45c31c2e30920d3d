#!/usr/bin/env python3
"""touched.py suites | groups BASE: what a change since the commit BASE asks for, a line each.

suites  the suites of unit and db whose module changed, as =unit/breaker; db/accept and db/statements always
groups  the groups that the continuous integration leaves out and that look at a changed file, with that file, unless
        docs/test-runs.md has a run of the group since
"""
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
RUNS = TOP / "docs/test-runs.md"
ALWAYS = ("db/accept", "db/statements")
# What looks at a path, beyond the continuous integration. The first words of a path decide.
GROUPS = {
    "common/core/issuer": ("e2e/faults", "e2e/vendors", "issuers"),
    "common/core/decide": ("model", "e2e/promise"),
    "common/lib/http_client": ("e2e/proxies", "e2e/tls"),
    "common/lib/pg": ("e2e/pgbouncer", "e2e/standbys", "failover"),
    "ctl/console": ("console",),
    "worker": ("chaos", "e2e/promise", "e2e/crashes"),
    "worker/route": ("e2e/routes",),
    "migrations": ("schedules", "limiters", "e2e/migrating"),
    "sandbox": ("issuers",),
    "monitoring": ("monitoring",),
    "debian": ("deb", "systemd", "hosts"),
    "systemd": ("systemd", "hosts"),
    "install": ("deb",),
    "docs/install.md": ("systemd", "hosts"),
    "docs/limiters.md": ("limiters",),
    "Containerfile": ("image",),
    "meson.build": ("debian13", "deb"),
    "tests/model": ("model",), "tests/issuers": ("issuers",), "tests/console": ("console",), "tests/chaos": ("chaos",),
    "tests/monitoring": ("monitoring",), "tests/limiters": ("limiters",), "tests/schedules": ("schedules",),
    "tests/deb": ("deb",), "tests/systemd": ("systemd", "hosts"), "tests/hosts": ("hosts",),
    "tests/image": ("image",), "tests/debian13": ("debian13",),
}


def git(*words):
    return subprocess.run(["git", "-c", "core.quotePath=false", *words], cwd=TOP, capture_output=True, text=True,
                          check=True).stdout.splitlines()


def changed(base):
    return git("diff", "--name-only", base, "HEAD")


def is_of(module, suite):
    """Has the suite the module's name, or one of the two a part of the other's?"""
    return suite == module or suite.startswith(module + "_") or module.startswith(suite + "_")


def suites(base):
    known = [("unit/", path) for path in TOP.glob("tests/unit/**/test_*.c")]
    known += [("db/", path) for path in TOP.glob("tests/db/test_*.c")]
    found = set(ALWAYS)
    for name in changed(base):
        path = pathlib.Path(name)
        if path.suffix not in (".c", ".h", ".sql"):
            continue
        module = re.sub(r"^(test_|\d+_)", "", path.stem)
        found |= {kind + test.stem[len("test_"):] for kind, test in known if is_of(module, test.stem[len("test_"):])}
    return ["=" + label for label in sorted(found)]


def recorded():
    """{group: the commits on which it ran}."""
    runs = {}
    for line in RUNS.read_text(encoding="utf-8").splitlines() if RUNS.is_file() else ():
        row = re.match(r"\| ([0-9a-f]{7,40}) \| ([^|]+) \|", line)
        for group in row[2].split() if row else ():
            runs.setdefault(group, []).append(row[1])
    return runs


def ran_since(commits, name):
    """Is the file of HEAD the one that one of these commits had?"""
    for commit in commits:
        same = subprocess.run(["git", "diff", "--quiet", commit, "HEAD", "--", name], cwd=TOP, check=False,
                              stderr=subprocess.DEVNULL)
        if same.returncode == 0:
            return True
    return False


def groups(base):
    asked, runs = {}, recorded()
    for name in changed(base):
        for path, wanted in GROUPS.items():
            if name == path or name.startswith(path + "/"):
                for group in wanted:
                    if not ran_since(runs.get(group, []) + runs.get("all", []), name):
                        asked.setdefault(group, name)
    return ["%s (%s)" % pair for pair in asked.items()]


def main():
    print("\n".join({"suites": suites, "groups": groups}[sys.argv[1]](sys.argv[2])))


if __name__ == "__main__":
    main()
