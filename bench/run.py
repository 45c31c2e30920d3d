#!/usr/bin/python3
"""Measures everything beside its limit, in one run on one machine, and prints one table. Every figure comes from what
ran here.

Programs, database, sandbox and the load itself share the machine's cores: only ratios of one run mean something.
Everything is durable (fsync, synchronous_commit, full_page_writes), every request carries another token than the api
remembers, card numbers are encrypted. Values are medians of the runs (least-most). The raw figures are lines of JSON in
build/run/bench/results.json.
"""
import argparse
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

import accept
import costs
import fair
import growth
import issue
import latency
import limiters
import memory
import plots
import routes
import slow
import snapshot
import soak
import traces
import views
import wal
from stack import RUN, Stack
from statements import SETTINGS
from table import Table

PARTS = {"accept": accept, "issue": issue, "costs": costs, "latency": latency, "fair": fair, "memory": memory,
         "slow": slow, "routes": routes, "traces": traces, "growth": growth, "views": views, "snapshot": snapshot,
         "wal": wal, "soak": soak, "limiters": limiters}


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory_gb = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) / 1024 / 1024
    return (f"{os.cpu_count()} cores ({model[1] if model else platform.machine()}), {memory_gb:.0f} GB, "
            f"{platform.system()} {platform.release()}")


def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        return f"no {command[0]} here"


def facts(stack, options):
    load = os.getloadavg()[0]
    return {"machine": machine(), "load_before": load, "postgresql": stack.sql("SHOW server_version"),
            "settings": stack.sql(SETTINGS),
            "libcurl": first_line("curl-config", "--version"), "runs": options.runs, "seconds": options.seconds,
            "full": options.full}


def sizes(text):
    """100k,1M -> [100000, 1000000]"""
    units = {"": 1, "k": 1000, "M": 1000000}
    found = [re.fullmatch(r"(\d+)([kM]?)", word) for word in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"no sizes: {text}")
    return [int(word[1]) * units[word[2]] for word in found]


def read_options():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PART", help="all of them, or some of: " + " ".join(PARTS))
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement (5)")
    parser.add_argument("--runs", type=int, default=3, help="of each measurement (3)")
    parser.add_argument("--events", type=int, default=120000,
                        help="of one drain in issue; routes takes half of it (120000)")
    parser.add_argument("--waiting", type=int, default=10000,
                        help="clients that wait, and events in flight, in memory (10000)")
    parser.add_argument("--pending", type=sizes, help="growth: backlogs of due events (100k; with --full 100k,1M)")
    parser.add_argument("--finished", type=sizes, help="growth: events that are over (200k; with --full 1M,10M)")
    parser.add_argument("--hold", type=int, help="snapshot: seconds that it is held (40; with --full 600)")
    parser.add_argument("--soak", type=int, help="soak: seconds (60; with --full 3600)")
    parser.add_argument("--rate", type=float,
                        help="snapshot and soak: events a second (two fifths of what the whole can carry; 3000)")
    parser.add_argument("--full", action="store_true", help="the sizes that take an hour")
    parser.add_argument("--plots", action="store_true", help="also draws docs/plots/*.svg from the curves of this run")
    parser.add_argument("--append", action="store_true", help="adds to results.json instead of starting a new one")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    options.pending = options.pending or ([100000, 1000000] if options.full else [100000])
    options.finished = options.finished or ([1000000, 10000000] if options.full else [200000])
    options.hold = options.hold or (600 if options.full else 40)
    options.soak = options.soak or (3600 if options.full else 60)
    if min(options.seconds, options.runs, options.events, options.waiting, options.hold, options.soak, *options.pending,
           *options.finished) < 1:
        parser.error("sizes and times are 1 or more")
    return options


def main():
    options, begin = read_options(), time.monotonic()
    stack = Stack()
    results = RUN / "results.json"
    table = Table(results, options.append)
    about = facts(stack, options)
    table.note(about, f"{about['machine']}; load before: {about['load_before']:.2f}")
    table.note({}, f"PostgreSQL {about['postgresql']} ({about['settings']}), {about['libcurl']}")
    table.note({}, f"medians of {options.runs} runs of {options.seconds} s (least-most)")
    table.header()
    for name, part in PARTS.items():
        if not options.names or name in options.names:
            start = time.monotonic()
            part.run(stack, table, options)
            table.write({"part": name, "took_s": round(time.monotonic() - start, 1)})
    table.finish()
    print(f"{(time.monotonic() - begin) / 60:.1f} minutes; raw figures: {results}")
    stack.close()
    if options.plots:
        plots.draw(results)


if __name__ == "__main__":
    sys.exit(main())
