#!/usr/bin/env python3
"""Writes the pages of reference from the tables that the programs use:

    reference.py [--check]

docs/options.md from what the built programs ($ISSUING_BUILD, or build/) say in --help, docs/metrics.md from the tables
of metrics, docs/codes.md from those of problems, reasons and causes. With --check it writes nothing, and names each
page that is out of date. A table that is not found ends it."""
import os
import pathlib
import re
import sys
import textwrap

import programs

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("ISSUING_BUILD") or ROOT / "build")
NOTE = "<!-- Written by install/reference.py; not to be edited. -->"


def source(name):
    return (ROOT / name).read_text(encoding="utf-8").replace("\\\n", "\n")


def rows_of(name, macro):
    """The rows of an X-list: each a list of its members; strings that C joins are one."""
    body = re.search(r"^#define %s\(X\)(.*?)\n\n" % macro, source(name), re.S | re.M)
    body = re.sub(r"/\*.*?\*/", "", body.group(1) if body else "", flags=re.S)
    rows = []
    for row in re.findall(r'\bX\(((?:"(?:[^"\\]|\\.)*"|[^")])*)\)', body):
        members = re.findall(r'(?:"(?:[^"\\]|\\.)*"\s*)+|[^,\s"][^,"]*', row)
        texts = [re.findall(r'"((?:[^"\\]|\\.)*)"', member) for member in members]
        rows.append(["".join(text).replace('\\"', '"') if text else member.strip()
                     for text, member in zip(texts, members)])
    if not rows:
        sys.exit("%s: no rows of %s found" % (name, macro))
    return rows


def filled(text, indent=""):
    return textwrap.fill(text, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def terms(rows):
    """A list: each row a term and its meaning."""
    return "\n".join(filled("- %s: %s" % row, "  ") for row in rows)


def page(title, *parts):
    """Paragraphs that are one line are filled."""
    return "\n\n".join(["# " + title, NOTE, *(part if "\n" in part else filled(part) for part in parts)]) + "\n"


# ---- options ----


def options():
    """{option: (default, meaning)} of all programs, in the order of the table in C."""
    found = {}
    for name in ("issuing-api", "issuing-worker", "issuing-ctl"):
        arguments = ["--config=/dev/null", "help"] if name == "issuing-ctl" else ["--help"]
        for flag in programs.read_flags(programs.run(BUILD / name, *arguments)):
            option = flag["name"][len("--"):]
            if "." not in option or option.startswith("route."):
                continue
            meaning, _, default = flag["help"].removesuffix(".").partition(" Default: ")
            found[option] = (default, meaning.rstrip(".") + ".", flag["value"])
    return found


def options_page():
    rows = []
    for option, (default, meaning, value) in sorted(options().items(), key=lambda one: one[0].split(".")[0]):
        if value != value.upper() and value != "true|false":
            meaning += " One of %s." % ", ".join("`%s`" % word for word in value.split("|"))
        # Ranges are in --help, credentials of systemd in run.md.
        meaning = re.sub(r" (From \S+ to \S+|Credential of systemd: \w+)\.", "", meaning)
        default = "`%s`" % default if re.fullmatch(r"[\w.:-]+", default) else default
        rows.append(("`%s`%s" % (option, default and " = " + default), meaning))
    return page(
        "Options", "The options of all programs with their defaults; `--help` has their ranges. [run.md](run.md#configuration) "
        "says how options are given, and which depend on each other. Options of `[route.TYPE]`: [routes.md](routes.md).",
        terms(rows))


# ---- metrics ----


def words_of(metric):
    """The values of its label, where they have a table of their own."""
    if metric == "issuing_step_seconds":
        return [row[1] for row in rows_of("common/core/decide/steps.h", "FLOW_STEPS")]
    if metric == "issuing_attempts_total":
        return [row[1] for row in rows_of("common/core/outbox.h", "OUTBOX_ATTEMPTS") if row[1] != "lost"]
    if metric == "issuing_auth_failures_total":
        return [row[1] for row in rows_of("api/auth.h", "AUTH_REFUSALS")]
    return []


def metrics_list(rows):
    lines = []
    for row in rows:
        name, text, labels = row[1], row[3], [label for label in row[5:] if label != "NULL"]
        words = ", ".join("`%s`" % word for word in words_of(name))
        series = "`%s%s`" % (name, "{%s}" % ",".join(labels) if labels else "")
        lines.append((series, text + (" %s." % words if words else "")))
    return terms(lines)


def metrics_page():
    both = rows_of("common/core/daemon_metrics.h", "DAEMON_METRICS")
    of_process = [row for row in both if row[1].startswith("process_")]
    return page(
        "Metrics", "At `/metrics` of the admin listeners, in Prometheus' text format. Every counter exists as zero from "
        "the start, for each known value of its labels. Reasons and causes are those of [codes.md](codes.md); an unusual "
        "status of a peer is its class, such as `issuer_http_4xx`, and a peer's own code is `other`.",
        "## Of both daemons", "The gauges of the outbox, the workers and the targets are read from the database: every "
        "api and every worker shows the same values. Take the maximum, not the sum.",
        metrics_list([row for row in both if row not in of_process]),
        "Of the process, as Prometheus' clients name them: %s." % ", ".join("`%s`" % row[1] for row in of_process),
        "## Of the api", metrics_list(rows_of("api/api_metrics.h", "API_METRICS")),
        "## Of the worker", metrics_list(rows_of("worker/base/worker_metrics.h", "WORKER_METRICS")))


# ---- problems, reasons, causes ----


def codes_page():
    problems = [("%s `%s`" % (status, slug), title)
                for _, status, slug, title, _ in rows_of("api/problems.h", "PROBLEMS")]
    reasons = [("`%s`" % row[0], row[2]) for row in rows_of("common/core/outbox.h", "OUTBOX_REASONS")]
    causes = [("`%s`" % row[1], row[2]) for row in rows_of("common/core/outbox.h", "OUTBOX_CAUSES")]
    return page(
        "Codes", "Problems that the api answers with, reasons of requests that ended, and causes of attempts that did "
        "not.",
        "## Problems", "The member `type` of an error is `/problems/` and one of these; `GET /problems/TYPE` of the api "
        "explains it.", terms(problems),
        "## Reasons", "A REJECTED or FAILED request has one of these, or a peer's own code, or, after an unexpected "
        "status, `issuer_http_<n>`, `core_http_<n>` or `route_http_<n>`. [What to "
        "do](troubleshoot.md#reasons-of-rejected-and-failed).", terms(reasons),
        "## Causes", "An attempt that is repeated or deferred has one of these, or `issuer_http_<n>`, `core_http_<n>` "
        "or `route_http_<n>`. [What to do](troubleshoot.md#causes-of-retries-and-deferrals).",
        terms(causes))


def main():
    stale = 0
    for name, text in (("options", options_page()), ("metrics", metrics_page()), ("codes", codes_page())):
        path = ROOT / "docs" / (name + ".md")
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if sys.argv[1:] == ["--check"]:
            print("docs/%s.md is not what install/reference.py writes: build, and run it" % name)
            stale = 1
        else:
            path.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
