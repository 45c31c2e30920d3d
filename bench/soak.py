"""soak: a steady load for long; what grows with time and not with work shows only here. Memory of api and worker,
latency, CPU for an event."""
import time

from loads import API_OPTIONS, Load, start_workers, tokens
from snapshot import Watch
from stack import memory_mb
from statements import UNFINISHED

CONNECTIONS = 256
RATE = 3000
JUDGED_S = 1800 # in less, everything is still warming up


def observe(stack, rate, seconds, bucket_s):
    stack.fresh_database()
    port, _ = stack.start_api(*API_OPTIONS)
    _, admins = start_workers(stack, 1)
    since, start = stack.sql("SELECT clock_timestamp()"), time.monotonic()
    load = Load("accept", port, tokens(), rate, seconds, "--connections", CONNECTIONS, "--bucket", bucket_s)
    watch = Watch(stack, admins)
    for number in range(1, seconds // bucket_s + 1):
        time.sleep(max(0, start + number * bucket_s - time.monotonic()))
        watch.take(number * bucket_s)
        watch.points[-1].update({"api_mb": memory_mb(stack.pid("api"))["rss"],
                                 "worker_mb": memory_mb(stack.pid("worker0"))["rss"]})
    result, buckets = load.result()
    stack.until(lambda: stack.sql(UNFINISHED) == "0", 300, every=0.2)
    watch.add_completions(since, bucket_s)
    for point, bucket in zip(watch.points, buckets):
        point.update({"accept_p50_ms": bucket["p50_ms"], "accept_p99_ms": bucket["p99_ms"]})
    stack.stop("worker0")
    stack.stop("api")
    if result["errors"] or result["in_flight"] or result["waiting"]:
        raise RuntimeError(f"not every request was answered by 2xx: {result}")
    return watch.points, result["done"]


def run(stack, table, options):
    seconds, rate = options.soak, options.rate or RATE
    bucket_s = max(1, min(60, seconds // 12))
    table.section("soak", f"{rate:,.0f} events a second, accepted and issued, for {seconds:,} s")
    points, done = observe(stack, rate, seconds // bucket_s * bucket_s, bucket_s)
    for point in points:
        table.series("soak", {"rate": rate, **point})
    # Tables and caches of the first sixth are still warming up.
    sixth = max(len(points) // 6, 1)
    early, late = points[sixth:2 * sixth] or points, points[-sixth:]
    for field, key, text, unit in (("api_mb", "api", "memory of issuing-api", "MB"),
                                   ("worker_mb", "worker", "memory of issuing-worker", "MB"),
                                   ("accept_p50_ms", "accept.p50", "accept, p50", "ms"),
                                   ("accept_p99_ms", "accept.p99", "accept, p99", "ms"),
                                   ("completed_p50_ms", "completed.p50", "accept to COMPLETED, p50", "ms"),
                                   ("completed_p99_ms", "completed.p99", "accept to COMPLETED, p99", "ms"),
                                   ("pg_cpu", "pg_cpu", "CPU of PostgreSQL per 1000", "s"),
                                   ("worker_cpu", "worker_cpu", "CPU of the worker per 1000", "s")):
        before = table.add(f"soak.early.{key}", f"{text}, second sixth of the time",
                           [point.get(field, 0) for point in early], unit)
        table.add(f"soak.{'late' if seconds >= JUDGED_S else 'last'}.{key}", "  last sixth",
                  [point.get(field, 0) for point in late], unit, before, "of the second")
    table.add("soak.done", "accepted and COMPLETED, nothing left over", done, "events",
              note=f"at the end {points[-1]['size_mb']:,.0f} MB of events")
