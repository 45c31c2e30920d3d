"""memory: of api and worker when idle, under load, with many waiting clients, and with many events in flight."""
import threading
import time

from issue import add_pending
from loads import API_OPTIONS, Load, completed, start_workers, tokens, wrk_accept
from stack import RUN, memory_mb, metric, token
from statements import WAITABLE

WAITED_S = 30
SPARE_DESCRIPTORS = 200


class Peak:
    """The most memory that processes had while it was open."""

    def __init__(self, stack, *names):
        self.stack, self.names, self.most = stack, names, {}
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while not self.is_over.wait(0.1):
            for name in self.names:
                self.look(name)

    def look(self, name):
        now = memory_mb(self.stack.pid(name))
        if now["rss"] > self.most.get(name, {"rss": 0})["rss"]:
            self.most[name] = now

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


def add(table, key, what, memory, note=""):
    table.add(key, what, memory["rss"], "MB", note=f"PSS {memory['pss']:.1f}, USS {memory['uss']:.1f}" +
              (f"; {note}" if note else ""), more=memory)


def under_load(stack, table, options):
    stack.fresh_database()
    port, _ = stack.start_api(*API_OPTIONS)
    _, admins = start_workers(stack, 1)
    idle = {name: memory_mb(stack.pid(name)) for name in ("api", "worker0")}
    with Peak(stack, "api", "worker0") as peak:
        rate = wrk_accept(port, 64, max(options.seconds, 2))["rate"]
        done = completed(admins)
    stack.stop("worker0")
    stack.stop("api")
    add(table, "memory.api.idle", "issuing-api, just started", idle["api"])
    add(table, "memory.worker.idle", "issuing-worker, just started", idle["worker0"])
    add(table, "memory.api.load", "issuing-api, most under full load, 64 connections", peak.most["api"],
        f"{rate:,.0f} accepts/s")
    add(table, "memory.worker.load", "issuing-worker, most beside it", peak.most["worker0"], f"{done:,.0f} events done")


def waiting(stack, table, count):
    """Each on a connection of its own, all at once, on requests that no worker processes."""
    stack.fresh_database()
    targets = RUN / "waiting"
    users = [f"waiting-{number}" for number in range(1, count + 1)]
    ids = stack.sql(WAITABLE.format(count=count)).splitlines()
    targets.write_text("".join(f"{token(user)} /v1/card-requests/{event}\n" for user, event in zip(users, ids)))
    port, admin = stack.start_api(*API_OPTIONS, f"--api.max_connections={count + 100}")
    idle = memory_mb(stack.pid("api"))
    load = Load("wait", port, targets, count / 5, 5, "--arrivals", "constant", "--connections", count, "--wait",
                WAITED_S, "--grace", WAITED_S + 30)
    with Peak(stack, "api") as peak:
        result, _ = load.result()
    stack.stop("api")
    if result["errors"] or result["in_flight"] or result["p50_ms"] < WAITED_S * 1000 - 500:
        raise RuntimeError(f"they did not all wait: {result}")
    add(table, "memory.api.waiting", f"issuing-api, most with {count:,} clients that wait", peak.most["api"])
    table.add("memory.api.waiting.each", "  for each of them", (peak.most["api"]["rss"] - idle["rss"]) * 1024 / count,
              "kB")
    table.add("memory.api.waiting.late", "  answered after the wait was over, p99", result["p99_ms"] - WAITED_S * 1000,
              "ms")


def steady(stack, value):
    """What a number that rises comes to."""
    last, same = 0, 0
    while same < 10:
        time.sleep(0.1)
        now = value()
        same = same + 1 if now == last and now > 0 else 0
        last = now
    return last


def in_flight(stack, table, count):
    """core-api takes its time, so the worker holds as many as it may."""
    stack.fresh_database()
    add_pending(stack, count)
    stack.fault({"fault": "delay", "target": "core", "call": "check", "delay_ms": 15000})
    _, (admin,) = start_workers(stack, 1, f"--worker.max_in_flight={count}", f"--issuer.max_concurrency={count}",
                                f"--core.max_concurrency={count}",
                                "--core.timeout=60s", "--issuer.timeout=60s", "--worker.lease=10m")
    idle = memory_mb(stack.pid("worker0"))
    with Peak(stack, "worker0") as peak:
        held = steady(stack, lambda: metric(admin, "issuing_in_flight"))
        now = memory_mb(stack.pid("worker0"))
        stack.clear_faults()
        stack.until(lambda: completed([admin]) >= count, 120, every=0.2)
    stack.stop("worker0")
    stack.reset_sandbox()
    add(table, "memory.worker.in_flight", f"issuing-worker, {held:,.0f} events in flight, waiting for core-api", now,
        f"worker.max_in_flight={count}")
    table.add("memory.worker.in_flight.each", "  for each of them", (now["rss"] - idle["rss"]) * 1024 / held, "kB")
    add(table, "memory.worker.peak", f"  the most until all {count:,} were COMPLETED", peak.most["worker0"])


def run(stack, table, options):
    table.section("memory", "resident (RSS), proportional (PSS) and unique (USS) memory of one process")
    tokens()
    under_load(stack, table, options)
    # A worker may keep a connection to each peer for every event.
    waiting(stack, table, min(options.waiting, stack.descriptors - SPARE_DESCRIPTORS))
    in_flight(stack, table, min(options.waiting, (stack.descriptors - SPARE_DESCRIPTORS) // 2))
