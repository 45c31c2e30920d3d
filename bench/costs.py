"""costs: CPU, WAL and disk of one card request, from which docs/scaling.md computes: its acceptance and its issue
apart, each at saturation, and both together at a steady rate."""
from loads import API_OPTIONS, Cpu, open_loop, start_workers, tokens, wrk_accept
from statements import SIZE_AND_DEAD, UNFINISHED

RATE = 200
TABLES = {"outbox_events": "outbox.retention", "outbox_attempts": "the same", "cards": "for ever",
          "idempotency_keys": "idempotency.retention", "rate_limit_log": "limit.window"}


def lsn(stack):
    return int(stack.sql("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))


def spent(stack, names, work):
    """Per event: microseconds of CPU of each process and of PostgreSQL, bytes of WAL. The last checkpoint is just
    before, so the images of pages are in it."""
    stack.sql("CHECKPOINT")
    start, cpu = lsn(stack), Cpu(stack, *names)
    count = work()
    used = cpu.used()
    found = {name: seconds / count * 1e6 for name, seconds in zip((*names, "postgresql"), used)}
    return {**found, "wal": (lsn(stack) - start) / count, "count": count}


def drained(stack):
    stack.until(lambda: stack.sql(UNFINISHED) == "0", 600, every=0.5)


def bytes_of(stack, table):
    return int(stack.sql(SIZE_AND_DEAD.format(table=table)).split("|")[0])


def one_run(stack, options):
    stack.fresh_database()
    empty = {name: bytes_of(stack, name) for name in TABLES}
    whole = int(stack.sql("SELECT pg_database_size(current_database())"))
    port, _ = stack.start_api(*API_OPTIONS)
    found = {"accept": spent(stack, ["api"], lambda: wrk_accept(port, 64, options.seconds)["count"])}
    stack.stop("api")
    count = found["accept"]["count"]

    def issue():
        start_workers(stack, 1)
        drained(stack)
        return count

    found["issue"] = spent(stack, [], issue)
    found["issue"]["worker0"] = stack.cpu("worker0") / count * 1e6
    stack.stop("worker0")
    found["bytes"] = {name: (bytes_of(stack, name) - empty[name]) / count for name in TABLES}
    found["bytes"]["all"] = (int(stack.sql("SELECT pg_database_size(current_database())")) - whole) / count
    stack.reset_sandbox()

    stack.fresh_database()
    port, _ = stack.start_api(*API_OPTIONS)
    start_workers(stack, 1)

    def paced():
        done = open_loop("accept", port, tokens(), RATE, 3 * options.seconds, "--connections", 8)["done"]
        drained(stack)
        return done

    found["paced"] = spent(stack, ["api", "worker0"], paced)
    stack.stop("worker0")
    stack.stop("api")
    stack.reset_sandbox()
    return found


def run(stack, table, options):
    table.section("costs", "what one card request costs; the checkpoint is just before each stretch")
    runs = [one_run(stack, options) for _ in range(options.runs)]
    for stretch, text in (("accept", "accept, 64 connections"), ("issue", "issue, 1 worker, a backlog"),
                          ("paced", f"accept and issue at {RATE}/s")):
        for key in [key for key in runs[0][stretch] if key not in ("count", "wal")]:
            table.add(f"costs.{stretch}.{key}", f"{text}: CPU of {key.rstrip('0')}",
                      [found[stretch][key] for found in runs], "us/event",
                      note=f"{runs[0][stretch]['count']:,} events a run" if key == "api" else "")
        table.add(f"costs.{stretch}.wal", f"{text}: WAL", [found[stretch]["wal"] for found in runs], "B/event")
    for name in runs[0]["bytes"]:
        table.add(f"costs.bytes.{name}", f"left on disk, with indexes: {name}", [found["bytes"][name] for found in runs],
                  "B/event", note=TABLES.get(name, ""))
