"""latency: from acceptance to COMPLETED at a low rate, by the database's clock; and of an accept at shares of what the
api can carry, by the client's, counted from the moment the request was meant to leave."""
from accept import warm_api
from loads import API_OPTIONS, open_loop, start_workers, tokens, wrk_accept
from statements import LATENCY, UNFINISHED

RATE = 20
SECONDS = 10      # of one run at the low rate: 200 events
SHARES = (10, 25, 50, 75, 90)
CONNECTIONS = 256 # a request rarely waits for one


def since(stack):
    return stack.sql("SELECT clock_timestamp()")


def to_completed(stack, port, seconds):
    """Of the events that come in now."""
    start = since(stack)
    result = open_loop("accept", port, tokens(), RATE, seconds, "--arrivals", "constant", "--connections", 8)
    stack.until(lambda: stack.sql(UNFINISHED) == "0")
    p50, p99, most, count = (float(word) for word in stack.sql(LATENCY.format(since=start)).split("|"))
    if count != result["done"]:
        raise RuntimeError(f"{count} events completed of {result['done']}")
    return {"p50": p50, "p99": p99, "max": most, "accept_p50": result["p50_ms"], "accept_p99": result["p99_ms"]}


def low_rate(stack, table, options):
    stack.fresh_database()
    port, _ = stack.start_api(*API_OPTIONS)
    start_workers(stack, 1)
    to_completed(stack, port, 2)
    runs = [to_completed(stack, port, SECONDS) for _ in range(options.runs)]
    stack.stop("api")
    stack.wake_up(False)
    port, _ = stack.start_api(*API_OPTIONS)
    unwoken = to_completed(stack, port, SECONDS)
    stack.stop("worker0")
    stack.stop("api")
    for name, text in (("p50", "p50"), ("p99", "p99"), ("max", "longest")):
        table.add(f"latency.{name}", f"accept to COMPLETED at {RATE}/s, {text}", [found[name] for found in runs], "ms",
                  note=f"{RATE * SECONDS} events a run" if name == "p50" else "")
    for name in ("p50", "p99"):
        table.add(f"latency.accept.{name}", f"  the accept itself, by the client's clock, {name}",
                  [found[f"accept_{name}"] for found in runs], "ms")
    table.add("latency.unwoken.p50", "  with the wake-up cut off (polling every 1 s), p50", unwoken["p50"], "ms")
    table.add("latency.unwoken.p99", "  with the wake-up cut off, p99", unwoken["p99"], "ms", note="one run")


def over_load(stack, table, options):
    runs = []
    for _ in range(options.runs):
        stack.fresh_database()
        port, _ = warm_api(stack)
        peak = wrk_accept(port, 64, options.seconds)["rate"]
        more = ("--warmup", 1, "--connections", CONNECTIONS)
        runs.append((peak, {share: open_loop("accept", port, tokens(), peak * share / 100, options.seconds + 1, *more)
                            for share in SHARES}))
        stack.stop("api")
    peak = table.add("latency.load.peak", "accepts at saturation, wrk, 64 connections", [found[0] for found in runs],
                     "requests/s")
    for share in SHARES:
        results = [found[1][share] for found in runs]
        p50, p99 = ([result[name] for result in results] for name in ("p50_ms", "p99_ms"))
        table.add(f"latency.load.{share}.p50", f"  accept at {share} % of it, arrivals at random, p50", p50, "ms")
        median = table.add(f"latency.load.{share}.p99", f"  accept at {share} % of it, p99", p99, "ms")
        table.series("latency", {"share": share, "rate": peak * share / 100, "p50_ms": sorted(p50)[len(p50) // 2],
                                 "p99_ms": median})


def run(stack, table, options):
    table.section("latency", "an open loop: a request counts from the moment it was meant to leave")
    low_rate(stack, table, options)
    over_load(stack, table, options)
