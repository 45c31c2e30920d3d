"""snapshot: what a reader that keeps its snapshot open (a report, a forgotten psql, a replica's query) does to a queue
under a steady load. Behind such a snapshot no dead row can go; a queue that walks over its dead rows gets slower with
every event.

Tables that fill up, checkpoints and a cache that is warm by then change the figures of a long run without any snapshot.
So the same load runs twice, without one and with one, and the same minutes are compared."""
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
    """Two fifths of what api and worker carry together: accept as fast as it goes, and wait until all of it is
    COMPLETED."""
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
                            "worker_cpu": worker / events * 1000, "pg_cpu": postgres / events * 1000,
                            "size_mb": size / 1e6, "dead": dead})
        self.cpu, self.done, self.last_s = Cpu(self.stack, "api", "worker0"), done, at_s

    def add_completions(self, since, bucket_s):
        """By the database's clock, when all is over; the points were taken every bucket_s."""
        for line in self.stack.sql(BY_BUCKET.format(since=since, bucket=bucket_s)).splitlines():
            bucket, count, p50, p99 = (float(value) for value in line.split("|"))
            if int(bucket) < len(self.points):
                self.points[int(bucket)].update({"completed": count / bucket_s, "completed_p50_ms": p50,
                                                 "completed_p99_ms": p99})


def observe(stack, rate, before_s, hold_s, after_s, bucket_s, is_held):
    """The points of a run; without a snapshot the same, and nothing is held."""
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
            if is_held and session is None and before_s <= now < before_s + hold_s:
                session = stack.hold_snapshot()
            if session and now >= before_s + hold_s:
                stack.release(session)
                session = None
        watch.take(number * bucket_s)
    result, buckets = load.result()
    stack.until(lambda: stack.sql(UNFINISHED) == "0", 300, every=0.2)
    watch.add_completions(since, bucket_s)
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
    table.section("snapshot",
                  f"{rate:,.0f} events a second, accepted and issued; after {before_s} s a transaction that has read "
                  f"the outbox is held for {hold_s} s")
    runs = {}
    for name, is_held in (("without", False), ("held", True)):
        runs[name] = observe(stack, rate, before_s, hold_s, after_s, bucket_s, is_held)
        for point in runs[name]:
            held_until = before_s + hold_s
            point["phase"] = ("before" if point["at_s"] <= before_s else "held" if point["at_s"] <= held_until
                              else "released")
            table.series("snapshot", {"run": name, "rate": rate, "hold_from_s": before_s,
                                      "hold_to_s": before_s + hold_s, **point})

    def phase(run, name):
        """The first bucket warms up; of the held ones the last third, when most has piled up."""
        points = [point for point in runs[run] if point["phase"] == name]
        return {"before": points[1:] or points, "held": points[-max(len(points) // 3, 1):],
                "released": points[-1:]}[name]

    def values(run, name, field):
        return [point.get(field, 0) for point in phase(run, name)]

    for field, key, text, unit in (("completed", "rate", "COMPLETED", "events/s"),
                                   ("accept_p50_ms", "accept.p50", "accept, p50", "ms"),
                                   ("accept_p99_ms", "accept.p99", "accept, p99", "ms"),
                                   ("completed_p50_ms", "completed.p50", "accept to COMPLETED, p50", "ms"),
                                   ("completed_p99_ms", "completed.p99", "accept to COMPLETED, p99", "ms"),
                                   ("pg_cpu", "cpu", "CPU of PostgreSQL per 1000", "s")):
        normal = table.add(f"snapshot.before.{key}", f"{text}, before", values("held", "before", field), unit)
        alone = table.add(f"snapshot.without.{key}", "  a run without a snapshot, in the minutes of the next",
                          values("without", "held", field), unit,
                          normal, "of before")
        table.add(f"snapshot.held.{key}", "  the last third of the time it is held", values("held", "held", field),
                  unit, alone,
                  f"of that without; {statistics.median(values('held', 'held', field)) / normal:.2f} of before")
        table.add(f"snapshot.released.{key}", "  the last bucket after its release", values("held", "released", field),
                  unit, normal, "of before")
    for run, name in (("without", "held"), ("held", "before"), ("held", "held"), ("held", "released")):
        last = phase(run, name)[-1]
        what = "without a snapshot" if run == "without" else f"end of: {name}"
        table.add(f"snapshot.{'without' if run == 'without' else name}.size", f"outbox_events with its indexes, {what}",
                  last["size_mb"], "MB",
                  note=f"dead rows {last['dead']:,}")
