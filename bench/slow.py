"""slow: issuer and core-api take 100 ms for each call. Then a worker that holds n events in flight
can do n / 0.3 s."""
import statistics

from issue import preload
from loads import completed, start_workers
from stack import memory_mb
from statements import STEADY

CALL_S = 0.1
IN_FLIGHT = (500, 5000)
ROUNDS = 8 # of each place; the first two and the last two are not counted


def drain(stack, ports, in_flight):
    count = in_flight * ROUNDS
    preload(stack, count)
    names, admins = start_workers(stack, 1, f"--worker.max_in_flight={in_flight}",
                                  f"--issuer.max_concurrency={in_flight}",
                                  f"--core.max_concurrency={in_flight}", issuer=ports["issuer"], core=ports["core"])
    stack.until(lambda: completed(admins) >= count, 300, every=0.1)
    cpu, memory = stack.cpu(names[0]) / count * 1000, memory_mb(stack.pid(names[0]))["rss"]
    stack.stop(names[0])
    rate, took = map(float, stack.sql(STEADY).split("|"))
    return {"rate": rate, "limit": in_flight / took, "took": took, "cpu": cpu, "memory": memory}


def run(stack, table, options):
    table.section("slow", f"issuer and core-api take {CALL_S * 1000:.0f} ms for each call; one worker")
    ports = stack.start_sandbox("--latency-ms", int(CALL_S * 1000), name="sandbox-slow")
    for in_flight in IN_FLIGHT:
        runs = [drain(stack, ports, in_flight) for _ in range(options.runs)]
        memory = max(found["memory"] for found in runs)
        rate = table.add(f"slow.{in_flight}", f"issuing-worker, {in_flight:,} in flight",
                         [found["rate"] for found in runs], "events/s",
                         in_flight / (3 * CALL_S),
                         f"of in flight / {3 * CALL_S:.1f} s, three calls; memory {memory:.0f} MB")
        table.add(f"slow.{in_flight}.slots", "  the same", rate, "events/s",
                  statistics.median(found["limit"] for found in runs),
                  "of in flight / the time from an event's claim to its end")
        table.add(f"slow.{in_flight}.took", "  that time", [found["took"] * 1000 for found in runs], "ms")
        table.add(f"slow.{in_flight}.cpu", "  CPU of the worker per 1000", [found["cpu"] for found in runs], "s")
    stack.stop("sandbox-slow")
