"""snapshot: what a reader that keeps its snapshot open (a report, a forgotten psql, a replica's query) does to a queue under a steady load. Behind
such a snapshot no dead row can go; a queue that walks over its dead rows gets slower with every event."""
import statistics
import time

from accept import warm_api
from loads import Cpu, Load, completed, start_workers, tokens, wrk_accept
from statements import BY_BUCKET, SIZE_AND_DEAD, UNFINISHED

SHARE = 0.4       # of what the whole can carry
CONNECTIONS = 256
BEFORE_S, AFTER_S = 15, 15
FULL_S = 60       # before and after, with --full


def find_rate(stack, seconds):
    """Two fifths of what api and worker carry together: accept as fast as it goes, and wait until all of it is COMPLETED."""
    stack.fresh_database()
    port, _ = warm_api(stack)
    _, admins = start_workers(stack, 1)
    stack.until(lambda: stack.sql(UNFINISHED) == "0", 300, every=0.1)
    before, start = completed(admins), time.monotonic()
    count = before + wrk_accept(port, 64, seconds)["count"]
    stack.until(lambda: completed(admins) >= count, 300, every=0.05)
    rate = (count - before) / (time.monotonic() - start)
    stack.stop("worker0")
    stack.stop("api")
    return SHARE * rate


class Watch:
    """A point per bucket: CPU, size and dead rows."""

    def __init__(self, stack, admins):
        self.stack, self.admins, self.points, self.last_s = stack, admins, [], 0
        self.cpu, self.done = Cpu(stack, "api", "worker0"), completed(admins)

    def take(self, at_s):
        api, worker, postgres = self.cpu.used()
        done = completed(self.admins)
        events = max(done - self.done, 1)
        size, dead, _ = (int(value) for value in self.stack.sql(SIZE_AND_DEAD.format(table="outbox_events")).split("|"))
        self.points.append({"at_s": at_s, "middle_s": (at_s + self.last_s) / 2, "api_cpu": api / events * 1000,
                            "worker_cpu": worker / events * 1000, "pg_cpu": postgres / events * 1000, "size_mb": size / 1e6, "dead": dead})
        self.cpu, self.done, self.last_s = Cpu(self.stack, "api", "worker0"), done, at_s


def observe(stack, rate, before_s, hold_s, after_s, bucket_s):
    stack.fresh_database()
    port, _ = warm_api(stack)
    _, admins = start_workers(stack, 1)
    stack.until(lambda: stack.sql(UNFINISHED) == "0", 300, every=0.1)
    total = before_s + hold_s + after_s
    since = stack.sql("SELECT clock_timestamp()")
    start = time.monotonic()
    load = Load("accept", port, tokens(), rate, total, "--connections", CONNECTIONS, "--bucket", bucket_s)
    watch, session = Watch(stack, admins), None
    for number in range(1, total // bucket_s + 1):
        while (now := time.monotonic() - start) < number * bucket_s:
            time.sleep(min(0.05, number * bucket_s - now + 0.001))
            if session is None and before_s <= now < before_s + hold_s:
                session = stack.hold_snapshot()
            if session and now >= before_s + hold_s:
                stack.release(session)
                session = None
        watch.take(number * bucket_s)
    result, buckets = load.result()
    stack.until(lambda: stack.sql(UNFINISHED) == "0", 300, every=0.2)
    for line in stack.sql(BY_BUCKET.format(since=since, bucket=bucket_s)).splitlines():
        bucket, count, p50, p99 = (float(value) for value in line.split("|"))
        if int(bucket) < len(watch.points):
            watch.points[int(bucket)].update({"completed": count / bucket_s, "completed_p50_ms": p50, "completed_p99_ms": p99})
    for point, bucket in zip(watch.points, buckets):
        point.update({"accepted": bucket["rate"], "accept_p50_ms": bucket["p50_ms"], "accept_p99_ms": bucket["p99_ms"]})
    stack.stop("worker0")
    stack.stop("api")
    if result["errors"]:
        raise RuntimeError(f"not every request was answered by 2xx: {result}")
    return watch.points


def run(stack, table, options):
    bucket_s = 10 if options.full else 5
    before_s, after_s = (FULL_S, FULL_S) if options.full else (BEFORE_S, AFTER_S)
    hold_s = max(bucket_s, options.hold // bucket_s * bucket_s)
    tokens()
    rate = options.rate or find_rate(stack, options.seconds)
    table.section("snapshot", f"{rate:,.0f} events a second, accepted and issued; after {before_s} s a transaction that has read the outbox "
                              f"is held for {hold_s} s")
    points = observe(stack, rate, before_s, hold_s, after_s, bucket_s)
    for point in points:
        point["phase"] = "before" if point["at_s"] <= before_s else "held" if point["at_s"] <= before_s + hold_s else "released"
        table.series("snapshot", {"rate": rate, "hold_from_s": before_s, "hold_to_s": before_s + hold_s, **point})

    # The first bucket warms up; of the held ones the last third, when most has piled up.
    phases = {name: [point for point in points if point["phase"] == name] for name in ("before", "held", "released")}
    before, held, released = phases["before"][1:] or phases["before"], phases["held"][-max(len(phases["held"]) // 3, 1):], phases["released"][-1:]

    def middle(some, field):
        return statistics.median(point.get(field, 0) for point in some)

    for field, key, text, unit in (("completed", "rate", "COMPLETED", "events/s"), ("accept_p50_ms", "accept.p50", "accept, p50", "ms"),
                                   ("accept_p99_ms", "accept.p99", "accept, p99", "ms"),
                                   ("completed_p50_ms", "completed.p50", "accept to COMPLETED, p50", "ms"),
                                   ("completed_p99_ms", "completed.p99", "accept to COMPLETED, p99", "ms"),
                                   ("pg_cpu", "cpu", "CPU of PostgreSQL per 1000", "s")):
        normal = table.add(f"snapshot.before.{key}", f"{text}, before", [point.get(field, 0) for point in before], unit)
        table.add(f"snapshot.held.{key}", "  the last third of the time it is held", [point.get(field, 0) for point in held], unit, normal,
                  "of before")
        table.add(f"snapshot.released.{key}", "  the last bucket after its release", middle(released, field), unit, normal, "of before")
    for name, some in (("before", before), ("held", phases["held"]), ("released", released)):
        table.add(f"snapshot.{name}.size", f"outbox_events with its indexes, end of: {name}", some[-1]["size_mb"], "MB",
                  note=f"dead rows {some[-1]['dead']:,}")
