"""accept: requests recorded per second, beside what PostgreSQL does with the same transaction and no api in front of
it."""
import statistics

from loads import API_OPTIONS, Cpu, pgbench, tokens, wrk, wrk_accept
from stack import metric
from statements import ACCEPT_FOUR, ACCEPT_MANY, ACCEPT_ONE, MANY

CONNECTIONS = (1, 64)


def limits(stack, seconds):
    stack.fresh_database()
    return {"four": pgbench(stack, ACCEPT_FOUR, 16, seconds), "one": pgbench(stack, ACCEPT_ONE, 16, seconds),
            "alone": pgbench(stack, ACCEPT_ONE, 1, seconds), "many": pgbench(stack, ACCEPT_MANY, 8, seconds) * MANY}


def batches(admin):
    return metric(admin, "issuing_accept_batch_size_sum"), metric(admin, "issuing_accept_batch_size_count")


def measure(stack, port, admin, connections, seconds):
    cpu, before = Cpu(stack, "api"), batches(admin)
    result = wrk_accept(port, connections, seconds)
    result["api_cpu"], result["pg_cpu"] = (used / result["count"] * 1000 for used in cpu.used())
    after = batches(admin)
    result["batch"] = (after[0] - before[0]) / max(after[1] - before[1], 1)
    return result


def warm_api(stack):
    port, admin = stack.start_api(*API_OPTIONS)
    wrk_accept(port, 64, 1)
    return port, admin


def one_run(stack, seconds):
    found = limits(stack, seconds)
    stack.fresh_database()
    port, admin = warm_api(stack)
    found["hop"] = wrk("calls.lua", f"http://127.0.0.1:{admin}", 1, seconds, "livez", 0)
    for connections in CONNECTIONS:
        found[connections] = measure(stack, port, admin, connections, seconds)
    stack.stop("api")
    # Each of what is compared with the 64 above begins as they did: tables that have grown cost more.
    found["listened"] = listened(stack, seconds)
    stack.fresh_database()
    stack.wake_up(False)
    port, admin = warm_api(stack)
    measure(stack, port, admin, 1, seconds)
    found["unwoken"] = measure(stack, port, admin, 64, seconds)
    stack.stop("api")
    return found


def listened(stack, seconds):
    """A worker that listens and has no capacity: every wakeup reaches it, and it has nothing to do."""
    stack.fresh_database()
    port, admin = warm_api(stack)
    measure(stack, port, admin, 1, seconds)
    stack.fault({"fault": "hang", "target": "core", "call": "any"})
    stack.start_worker("--worker.max_in_flight=1", "--core.timeout=10m", "--worker.lease=1h")
    found = measure(stack, port, admin, 64, seconds)
    stack.stop("worker", at_once=True)
    stack.clear_faults()
    stack.stop("api")
    return found


def of(runs, name, field=None):
    return [run[name] if field is None else run[name][field] for run in runs]


def add_api(table, runs, name, key, what, limit=None, note=""):
    middle = {field: statistics.median(of(runs, name, field))
              for field in ("p50_ms", "p99_ms", "api_cpu", "pg_cpu", "batch")}
    table.add(key, what, of(runs, name, "rate"), "requests/s", limit, note, more=middle)
    return middle


def run(stack, table, options):
    table.section("accept",
                  "key, limit row and event in one durable transaction; token verified; a new key in every request")
    tokens()
    runs = [one_run(stack, options.seconds) for _ in range(options.runs)]
    table.add("accept.limit.four", "pgbench, BEGIN, four statements, COMMIT, 16 clients", of(runs, "four"),
              "requests/s")
    alone = table.add("accept.limit.alone", "pgbench, one call of the function, 1 client", of(runs, "alone"),
                      "requests/s")
    one = table.add("accept.limit.one", "pgbench, one call of the function, 16 clients", of(runs, "one"), "requests/s")
    many = table.add("accept.limit.many", f"pgbench, one call for {MANY} requests, 8 clients", of(runs, "many"),
                     "requests/s")
    hop = table.add("accept.limit.hop", "wrk, GET /livez of the api, 1 connection: one HTTP hop",
                    [1000 / rate for rate in of(runs, "hop", "rate")], "ms")

    single = add_api(table, runs, 1, "accept.1.rate", "issuing-api, 1 connection", alone,
                     "of pgbench, one call, 1 client")
    table.add("accept.1.time", "  time of a request", [1000 / rate for rate in of(runs, 1, "rate")], "ms",
              1000 / alone + hop,
              f"of one call by 1 client and one hop; p50 {single['p50_ms']:.2f}, p99 {single['p99_ms']:.2f} ms")
    add_api(table, runs, 64, "accept.64.rate", "issuing-api, 64 connections", one, "of pgbench, one call, 16 clients")
    rate = table.rows[-1]["median"]
    four = table.rows[0]["median"]
    table.add("accept.64.four", "  the same", rate, "requests/s", four, "of pgbench, four statements")
    table.add("accept.64.many", "  the same", rate, "requests/s", many, f"of pgbench, {MANY} per call")
    table.add("accept.64.p50", "  p50", of(runs, 64, "p50_ms"), "ms")
    table.add("accept.64.p99", "  p99", of(runs, 64, "p99_ms"), "ms", note="0 errors")
    table.add("accept.64.api_cpu", "  CPU of the api per 1000", of(runs, 64, "api_cpu"), "s",
              note=f"1 connection: {single['api_cpu']:.3f}")
    table.add("accept.64.pg_cpu", "  CPU of PostgreSQL per 1000", of(runs, 64, "pg_cpu"), "s",
              note=f"1 connection: {single['pg_cpu']:.3f}")
    table.add("accept.64.batch", "  mean batch", of(runs, 64, "batch"), "requests",
              note=f"1 connection: {single['batch']:.1f}")
    add_api(table, runs, "listened", "accept.64.listened", "  with a worker that listens and has no free slot", rate,
            "of the same without")
    table.add("accept.64.unwoken", "  with the wake-up cut off", of(runs, "unwoken", "rate"), "requests/s", rate,
              "of the same with")
