"""issue: events driven to COMPLETED per second, beside the calls alone (wrk; the worker's own client without a
database) and the database alone.

The peers are called in clear text; then a part of it is measured over https, with nginx in front of the sandbox. Each
row names its transport. Where Node and npm are there, graphile-worker does the same work over both (peer/graphile.mjs).
"""
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from loads import WORKER_OPTIONS, completed, start_workers, wrk
from stack import BUILD, memory_mb
from statements import DRAIN, DRAIN_TOOK, FILLED, PAST, RUN_DRAIN, UNFINISHED, pending

CHUNK = 250000
SPAN_S = 600 # the age of the oldest event of a backlog
IN_FLIGHT = 128
PEER = "graphile-worker@0.18.0"
PEER_JOBS = 10000
PEER_AT_ONCE = 50 # more makes it no faster


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


def drain(stack, count, workers, *options, **peers):
    preload(stack, count)
    before = stack.postgres_cpu()
    names, admins = start_workers(stack, workers, *options, **peers)
    # The workers' own counters, and not often: looking must cost nothing.
    stack.until(lambda: completed(admins) >= count, 600, every=0.2)
    pg_cpu = stack.postgres_cpu() - before
    result = {"rate": count / float(stack.sql(DRAIN_TOOK)), "pg_cpu": pg_cpu / count * 1000,
              "cpu": sum(stack.cpu(name) for name in names) / count * 1000,
              "rss": max(memory_mb(stack.pid(name))["rss"] for name in names)}
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
    sessions = [subprocess.Popen(["psql", "-Xqc", RUN_DRAIN], env=stack.environment, stdout=subprocess.DEVNULL)
                for _ in range(clients)]
    if any([session.wait() for session in sessions]):
        raise RuntimeError("the drain by the database failed")
    took = time.monotonic() - start
    if stack.sql(UNFINISHED) != "0":
        raise RuntimeError("events are left over")
    return {"rate": count / took, "pg_cpu": (stack.postgres_cpu() - before) / count * 1000}


def calls_alone(stack, seconds, scheme="http", ports=None, *more):
    """CPU per 1000 events of the client, and of the sandbox that answers it."""
    before = stack.cpu("sandbox")
    urls = [f"{scheme}://127.0.0.1:{(ports or stack.ports)[name]}" for name in ("core", "issuer")]
    out = stack.run([BUILD / "bench" / "bench_calls", *urls, IN_FLIGHT, seconds, *more])
    events, took, cpu_us, rss_kb = out.split("RESULT", 1)[1].split()[:4]
    # The sandbox also answered while it was warming up, a second.
    share = float(took) / (float(took) + 1)
    return {"rate": int(events) / float(took), "cpu": float(cpu_us) / 1000, "rss": int(rss_kb) / 1024,
            "sandbox_cpu": (stack.cpu("sandbox") - before) * share / int(events) * 1000}


def install_peer():
    """Returns its folder below build/, or why there is none."""
    folder = BUILD / "bench" / "peer"
    if not shutil.which("node") or not shutil.which("npm"):
        return None, "there is no Node or no npm"
    if not (folder / "node_modules" / "graphile-worker").exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["npm", "install", "--prefix", folder, "--no-save", "--no-audit", "--no-fund",
                               "--loglevel=error", "--cache", BUILD / "bench" / "npm", PEER], capture_output=True,
                              text=True, timeout=900)
        if done.returncode != 0:
            return None, "npm cannot install it"
    shutil.copy(pathlib.Path(__file__).with_name("peer") / "graphile.mjs", folder)
    return folder, None


def drain_by_peer(stack, folder, scheme, ports, *more):
    stack.fresh_database()
    out = stack.run(["node", folder / "graphile.mjs", stack.sockets, stack.settings["dbname"],
                     f"{scheme}://127.0.0.1:{ports['core']}", f"{scheme}://127.0.0.1:{ports['issuer']}", PEER_JOBS,
                     PEER_AT_ONCE, *more])
    jobs, took, cpu_us, rss_kb = out.split("RESULT", 1)[1].split()[:4]
    return {"rate": int(jobs) / float(took), "cpu": float(cpu_us) / int(jobs) / 1000, "rss": int(rss_kb) / 1024}


def one_run(stack, number, options):
    sandbox = {name: f"http://127.0.0.1:{stack.ports[name]}" for name in ("core", "issuer")}
    get = wrk("calls.lua", sandbox["core"], 64, options.seconds, "get", 0)["rate"]
    post = wrk("calls.lua", sandbox["issuer"], 64, options.seconds, "post",
               int(time.time()) % 100000000 + number)["rate"]
    found = {"get": get, "post": post, "http": 1 / (1 / get + 2 / post), "calls": calls_alone(stack, options.seconds)}
    for count in (1, 2):
        found[f"database{count}"] = drain_by_database(stack, options.events, count)
        found[f"worker{count}"] = drain(stack, options.events, count)
        # What the machine can do: all its cores busy with the three calls (both ends) and the database's part alone.
        together = found["calls"]["cpu"] + found["calls"]["sandbox_cpu"] + found[f"database{count}"]["pg_cpu"]
        found[f"both{count}"] = os.cpu_count() * 1000 / together
    stack.reset_sandbox()
    found.update(over_https(stack, options))
    stack.reset_sandbox()
    if options.peer:
        found["peer"] = drain_by_peer(stack, options.peer, "http", stack.ports)
        stack.reset_sandbox()
    return found


def over_https(stack, options):
    """The CPU of nginx is not in the figures, but takes its share of the cores. So rates are compared with those in
    clear text through the same nginx."""
    ports, clear, authority = stack.start_terminator()
    found = {"calls.https": calls_alone(stack, options.seconds, "https", ports, authority),
             "worker.https": drain(stack, options.events, 1, *WORKER_OPTIONS, f"--tls.ca_file={authority}",
                                   scheme="https", **ports)}
    stack.reset_sandbox()
    found["calls.proxied"] = calls_alone(stack, options.seconds, "http", clear)
    found["worker.proxied"] = drain(stack, options.events, 1, *WORKER_OPTIONS, **clear)
    if options.peer:
        stack.reset_sandbox()
        found["peer.https"] = drain_by_peer(stack, options.peer, "https", ports, authority)
    stack.stop("nginx")
    return found


def add_https(table, runs):
    clear, proxied, own = ([found[key] for found in runs] for key in ("calls", "calls.proxied", "calls.https"))
    workers, proxied_workers, own_workers = ([found[key] for found in runs]
                                             for key in ("worker1", "worker.proxied", "worker.https"))

    def of(results, field):
        return [result[field] for result in results]

    for what, key, ours, hops, theirs in (("the worker's three calls, no database", "calls", own, proxied, clear),
                                          ("issuing-worker, 1 process", "worker", own_workers, proxied_workers, workers)):
        table.add(f"issue.https.{key}.direct", f"https: {what}", of(ours, "rate"), "events/s",
                  statistics.median(of(theirs, "rate")), "of the same in clear text, without nginx")
        table.add(f"issue.https.{key}.rate", "  the same", of(ours, "rate"), "events/s",
                  statistics.median(of(hops, "rate")), "of the same in clear text through the same nginx")
        table.add(f"issue.https.{key}.cpu", "  its CPU per 1000", of(ours, "cpu"), "s",
                  statistics.median(of(theirs, "cpu")), "of the same in clear text")
        table.add(f"issue.https.{key}.rss", "  its memory", of(ours, "rss"), "MB",
                  statistics.median(of(theirs, "rss")), "of the same in clear text")


def add_peer(table, runs):
    for scheme, peer, own in (("clear text", "peer", "worker1"), ("https", "peer.https", "worker.https")):
        theirs, ours = ([found[key] for found in runs] for key in (peer, own))
        key = f"issue.{peer}"
        table.add(f"{key}.rate", f"{scheme}: graphile-worker, {PEER_JOBS:,} jobs, {PEER_AT_ONCE} at once",
                  [result["rate"] for result in theirs], "events/s")
        table.add(f"{key}.gain", "  issuing-worker", [result["rate"] for result in ours], "events/s",
                  statistics.median(result["rate"] for result in theirs), "of graphile-worker")
        table.add(f"{key}.cpu", "  CPU of graphile-worker per 1000", [result["cpu"] for result in theirs], "s")
        table.add(f"{key}.rss", "  its memory", [result["rss"] for result in theirs], "MB")


def run(stack, table, options):
    table.section("issue", "GET check, POST issue, card row, POST link, done; a backlog of due events; "
                           "clear text where a row does not say https")
    options.peer, why = install_peer()
    if why:
        table.remark(f"graphile-worker: not measured: {why}")
    else:
        sockets = tempfile.TemporaryDirectory(prefix="issuing-") # a path below build/ may be too long for a socket
        os.chmod(sockets.name, 0o777)
        stack.listen_at(sockets.name)
    runs = [one_run(stack, number, options) for number in range(options.runs)]

    def of(name, field=None):
        return [found[name] if field is None else found[name][field] for found in runs]

    table.add("issue.limit.get", "clear text: wrk on the sandbox, GET, 64 connections", of("get"), "requests/s")
    table.add("issue.limit.post", "clear text: wrk on the sandbox, POST, 64 connections", of("post"), "requests/s")
    http = table.add("issue.limit.http", "  so one GET and two POSTs", of("http"), "events/s")
    cpu, sandbox_cpu = (statistics.median(of("calls", name)) for name in ("cpu", "sandbox_cpu"))
    calls = table.add("issue.limit.calls", f"clear text: the worker's three calls, {IN_FLIGHT} in flight",
                      of("calls", "rate"), "events/s",
                      note=f"CPU per 1000: {cpu:.3f} s, sandbox {sandbox_cpu:.3f} s")
    single = None
    for count in (1, 2):
        plural = "es" if count > 1 else ""
        database = table.add(f"issue.limit.database{count}",
                             f"claim, save, end in PostgreSQL alone, by 100, {count} client{plural[1:]}",
                             of(f"database{count}", "rate"), "events/s")
        name = f"worker{count}"
        rate = table.add(f"issue.{count}.http",
                         f"clear text: issuing-worker, {count} process{plural}, {options.events:,} events",
                         of(name, "rate"), "events/s", http, "of one GET and two POSTs by wrk")
        if single:
            table.add(f"issue.{count}.gain", "  the same", rate, "events/s", single, "of one process")
        single = single or rate
        table.add(f"issue.{count}.calls", "  the same", rate, "events/s", calls, "of the calls without a database")
        table.add(f"issue.{count}.database", "  the same", rate, "events/s", database, "of the database alone")
        table.add(f"issue.{count}.both", "  the same", rate, "events/s", statistics.median(of(f"both{count}")),
                  f"of {os.cpu_count()} cores filled with the CPU of calls, sandbox and database")
        table.add(f"issue.{count}.cpu", "  CPU of the worker per 1000", of(name, "cpu"), "s")
        table.add(f"issue.{count}.pg_cpu", "  CPU of PostgreSQL per 1000", of(name, "pg_cpu"), "s")
        table.add(f"issue.{count}.all_cpu", "  both",
                  [one + other for one, other in zip(of(name, "cpu"), of(name, "pg_cpu"))], "s")
        table.add(f"issue.{count}.rss", "  memory of a worker after it", of(name, "rss"), "MB")
    add_https(table, runs)
    if options.peer:
        add_peer(table, runs)
