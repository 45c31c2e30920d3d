"""growth: whether accepting and issuing get slower with what has piled up: due events that no worker has taken yet, and
events that are over."""
import json
import statistics
import time

from issue import CHUNK, SPAN_S, settle
from latency import to_completed
from loads import API_OPTIONS, Cpu, completed, start_workers, tokens, wrk_accept
from statements import CLAIM_COST, CLAIM_TIMES, PAST, finished, pending

SECONDS_MOST = 3  # of one measurement: there are many


def size_text(count):
    if count and count % 1000000 == 0:
        return f"{count // 1000000} M"
    return f"{count // 1000} k" if count % 1000 == 0 else f"{count:,}"


def fill(stack, pending_count, finished_count):
    stack.fresh_database()
    stack.sql(PAST)
    for make, count in ((finished, finished_count), (pending, pending_count)):
        for first in range(1, count + 1, CHUNK):
            stack.sql(make(first, min(first + CHUNK - 1, count), count, SPAN_S))
    if pending_count or finished_count:
        settle(stack)
        # What was filled in must not be written out during a measurement. The price: pages filled before go into the
        # WAL whole when they change.
        stack.sql("CHECKPOINT")


def claim_cost(stack):
    """Milliseconds and pages of one claim of 100 events, rolled back; the first one also makes the plans."""
    text, plans = stack.sql(CLAIM_COST * (CLAIM_TIMES + 1)), []
    decoder = json.JSONDecoder()
    while text:
        (plan,), end = decoder.raw_decode(text)
        plans.append(plan)
        text = text[end:].lstrip()
    pages = [plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] for plan in plans[1:]]
    return [plan["Execution Time"] for plan in plans[1:]], statistics.median(pages)


def drain_rates(stack, seconds, runs):
    names, admins = start_workers(stack, 1)
    time.sleep(1)
    rates, cpus = [], []
    for _ in range(runs):
        before, start, cpu = completed(admins), time.monotonic(), Cpu(stack)
        time.sleep(seconds)
        done = completed(admins) - before
        rates.append(done / (time.monotonic() - start))
        cpus.append(cpu.used()[0] / max(done, 1) * 1000)
    stack.stop(names[0])
    return rates, cpus


def measure(stack, options, has_latency):
    """With what lies there already."""
    seconds = min(options.seconds, SECONDS_MOST)
    port, _ = stack.start_api(*API_OPTIONS)
    found = {}
    if has_latency:
        names, _ = start_workers(stack, 1)
        to_completed(stack, port, 1)
        found["latency"] = to_completed(stack, port, 5)
        stack.stop(names[0])
    wrk_accept(port, 64, 1)
    found["accept"], found["accept_cpu"] = [], []
    for _ in range(options.runs):
        cpu = Cpu(stack)
        found["accept"].append(wrk_accept(port, 64, seconds))
        found["accept_cpu"].append(cpu.used()[0] / found["accept"][-1]["count"] * 1000)
    stack.stop("api")
    found["claim_ms"], found["pages"] = claim_cost(stack)
    found["drain"], found["drain_cpu"] = drain_rates(stack, seconds, options.runs)
    return found


def report(table, kind, size, text, found, base):
    """base: the medians of the empty tables, None for those themselves."""
    def add(name, key, what, values, unit, note=""):
        medians[name] = table.add(f"growth.{kind}.{key}{size}", what, values, unit, base[name] if base else None,
                                  ("of empty " if base else "") + note)

    medians = {}
    add("rate", "rate", f"{text}: accept, 64 connections", [one["rate"] for one in found["accept"]], "requests/s")
    add("p99", "accept.p99", "  p99", [one["p99_ms"] for one in found["accept"]], "ms")
    add("accept_cpu", "accept.cpu", "  CPU of PostgreSQL per 1000", found["accept_cpu"], "s")
    add("claim", "claim", "  one claim of 100, without a bookmark", found["claim_ms"], "ms",
        f"{found['pages']:,.0f} pages")
    add("drain", "drain", "  issued by one worker", found["drain"], "events/s")
    add("drain_cpu", "drain.cpu", "  CPU of PostgreSQL per 1000", found["drain_cpu"], "s")
    if "latency" in found:
        add("p50", "p50", "  accept to COMPLETED at 20/s, p50", found["latency"]["p50"], "ms")
        add("late", "p99", "  accept to COMPLETED at 20/s, p99", found["latency"]["p99"], "ms")
    return medians


def run(stack, table, options):
    table.section("growth", "what has piled up before; latency only where no backlog stands in front of an event")
    tokens()
    fill(stack, 0, 0)
    base = report(table, "empty", "", "empty", measure(stack, options, True), None)
    table.series("growth", {"kind": "empty", "count": 0, **base})
    # An operator's VACUUM on the day of the installation: the planner now believes that the tables are empty.
    fill(stack, 0, 0)
    stack.sql("VACUUM ANALYZE")
    report(table, "stale", "", "empty, and analyzed as such", measure(stack, options, False), base)
    for kind, counts in (("pending", options.pending), ("finished", options.finished)):
        for count in counts:
            fill(stack, count if kind == "pending" else 0, count if kind == "finished" else 0)
            found = measure(stack, options, kind == "finished")
            medians = report(table, kind, "@" + size_text(count).replace(" ", ""), f"{size_text(count)} {kind}", found,
                             base)
            table.series("growth", {"kind": kind, "count": count, **medians})
