"""issue: events driven to COMPLETED per second, beside the calls alone (wrk; the worker's own client without a database) and the database alone."""
import os
import statistics
import subprocess
import time

from loads import completed, start_workers, wrk
from stack import BUILD, memory_mb
from statements import DRAIN, DRAIN_TOOK, FILLED, PAST, RUN_DRAIN, UNFINISHED, pending

CHUNK = 250000
SPAN_S = 600 # the age of the oldest event of a backlog
IN_FLIGHT = 128


def preload(stack, count):
    stack.fresh_database()
    add_pending(stack, count)


def add_pending(stack, count):
    stack.sql(PAST)
    for first in range(1, count + 1, CHUNK):
        stack.sql(pending(first, min(first + CHUNK - 1, count), count, SPAN_S))
    settle(stack)


def settle(stack):
    """Statistics of what was filled in; what is still empty is as a new installation leaves it."""
    stack.sql("VACUUM ANALYZE " + stack.sql(FILLED))


def drain(stack, count, workers):
    preload(stack, count)
    before = stack.postgres_cpu()
    names, admins = start_workers(stack, workers)
    # The workers' own counters, and not often: looking must cost nothing.
    stack.until(lambda: completed(admins) >= count, 600, every=0.2)
    pg_cpu = stack.postgres_cpu() - before
    result = {"rate": count / float(stack.sql(DRAIN_TOOK)), "pg_cpu": pg_cpu / count * 1000,
              "cpu": sum(stack.cpu(name) for name in names) / count * 1000, "rss": max(memory_mb(stack.pid(name))["rss"] for name in names)}
    for name in names:
        stack.stop(name)
    if stack.sql(UNFINISHED) != "0":
        raise RuntimeError("events are left over")
    return result


def drain_by_database(stack, count, clients):
    """What claim, save and end cost PostgreSQL: the same functions, in batches, called inside the server."""
    preload(stack, count)
    stack.sql(DRAIN)
    before, start = stack.postgres_cpu(), time.monotonic()
    sessions = [subprocess.Popen(["psql", "-Xqc", RUN_DRAIN], env=stack.environment, stdout=subprocess.DEVNULL) for _ in range(clients)]
    if any([session.wait() for session in sessions]):
        raise RuntimeError("the drain by the database failed")
    took = time.monotonic() - start
    if stack.sql(UNFINISHED) != "0":
        raise RuntimeError("events are left over")
    return {"rate": count / took, "pg_cpu": (stack.postgres_cpu() - before) / count * 1000}


def calls_alone(stack, seconds):
    """CPU per 1000 events of the client, and of the sandbox that answers it."""
    before = stack.cpu("sandbox")
    words = [BUILD / "bench" / "bench_calls", *(f"http://127.0.0.1:{stack.ports[name]}" for name in ("core", "issuer")), IN_FLIGHT, seconds]
    events, took, cpu_us, _ = stack.run(words).split("RESULT", 1)[1].split()[:4]
    # The sandbox also answered while it was warming up, a second.
    share = float(took) / (float(took) + 1)
    return {"rate": int(events) / float(took), "cpu": float(cpu_us) / 1000,
            "sandbox_cpu": (stack.cpu("sandbox") - before) * share / int(events) * 1000}


def one_run(stack, number, options):
    sandbox = {name: f"http://127.0.0.1:{stack.ports[name]}" for name in ("core", "issuer")}
    get = wrk("calls.lua", sandbox["core"], 64, options.seconds, "get", 0)["rate"]
    post = wrk("calls.lua", sandbox["issuer"], 64, options.seconds, "post", int(time.time()) % 100000000 + number)["rate"]
    found = {"get": get, "post": post, "http": 1 / (1 / get + 2 / post), "calls": calls_alone(stack, options.seconds)}
    for count in (1, 2):
        found[f"database{count}"] = drain_by_database(stack, options.events, count)
        found[f"worker{count}"] = drain(stack, options.events, count)
        # What the machine has room for: all its cores busy with the three calls (both ends) and the database's part, and nothing else.
        together = found["calls"]["cpu"] + found["calls"]["sandbox_cpu"] + found[f"database{count}"]["pg_cpu"]
        found[f"both{count}"] = os.cpu_count() * 1000 / together
    stack.reset_sandbox()
    return found


def run(stack, table, options):
    table.section("issue", "GET check, POST issue, card row, POST link, done; a backlog of due events")
    runs = [one_run(stack, number, options) for number in range(options.runs)]

    def of(name, field=None):
        return [found[name] if field is None else found[name][field] for found in runs]

    table.add("issue.limit.get", "wrk on the sandbox, GET eligibility, 64 connections", of("get"), "requests/s")
    table.add("issue.limit.post", "wrk on the sandbox, POST card, 64 connections", of("post"), "requests/s")
    http = table.add("issue.limit.http", "  so one GET and two POSTs", of("http"), "events/s")
    calls = table.add("issue.limit.calls", f"the worker's three calls, no database, {IN_FLIGHT} in flight", of("calls", "rate"), "events/s",
                      note="CPU per 1000: {:.3f} s, sandbox {:.3f} s".format(*(statistics.median(of("calls", name)) for name in ("cpu", "sandbox_cpu"))))
    single = None
    for count in (1, 2):
        plural = "es" if count > 1 else ""
        database = table.add(f"issue.limit.database{count}", f"claim, save, end in PostgreSQL alone, by 100, {count} client{plural[1:]}",
                             of(f"database{count}", "rate"), "events/s")
        name = f"worker{count}"
        rate = table.add(f"issue.{count}.http", f"issuing-worker, {count} process{plural}, {options.events:,} events", of(name, "rate"),
                         "events/s", http, "of one GET and two POSTs by wrk")
        if single:
            table.add(f"issue.{count}.gain", "  the same", rate, "events/s", single, "of one process")
        single = single or rate
        table.add(f"issue.{count}.calls", "  the same", rate, "events/s", calls, "of the calls without a database")
        table.add(f"issue.{count}.database", "  the same", rate, "events/s", database, "of the database alone")
        table.add(f"issue.{count}.both", "  the same", rate, "events/s", statistics.median(of(f"both{count}")),
                  f"of {os.cpu_count()} cores filled with the CPU of calls, sandbox and database")
        table.add(f"issue.{count}.cpu", "  CPU of the worker per 1000", of(name, "cpu"), "s")
        table.add(f"issue.{count}.pg_cpu", "  CPU of PostgreSQL per 1000", of(name, "pg_cpu"), "s")
        table.add(f"issue.{count}.all_cpu", "  both", [one + other for one, other in zip(of(name, "cpu"), of(name, "pg_cpu"))], "s")
        table.add(f"issue.{count}.rss", "  memory of a worker after it", of(name, "rss"), "MB")
