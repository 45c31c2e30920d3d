"""routes: events of a route per second, on one worker, beside the card flow and beside the calls alone; and what a dead
or a slow route takes from cards and from another route that run at the same time.

The shares are ratios of rounds. In each round the same backlog of cards and notes is worked off three times, directly
after one another: alone, beside rows of a type that nobody delivers, and beside the same rows with a bad route. The
second over the first is what rows cost that only lie in the table, the third over the second what the bad route costs.
What counts is the median of the ratios.
"""
import os
import statistics
import time

from issue import IN_FLIGHT, add_pending, drain, settle
from loads import completed, start_workers, wrk
from stack import BUILD, free_port
from statements import PAST, RATE_OF, routed, STEADY_OF

CHUNK = 250000
NOTE, CHARGE = "BENCH_NOTE", "BENCH_CHARGE"
# Places enough for each type's concurrency, so that the bad route's share is what is measured, not a lack of places.
OPTIONS = ("--worker.max_in_flight=1000", "--issuer.max_concurrency=300", "--core.max_concurrency=300")
PATH = "/v1/charges"


def url(port):
    return f"http://127.0.0.1:{port}{PATH}"


def route(event_type, port, *options):
    return [f"--route.{event_type}.url={url(port)}", f"--route.{event_type}.max_concurrency=300",
            *(f"--route.{event_type}.{option}" for option in options)]


def add_routed(stack, event_type, count):
    for first in range(1, count + 1, CHUNK):
        stack.sql(routed(event_type, first, min(first + CHUNK - 1, count), count))


def calls_alone(stack, seconds, port):
    out = stack.run([BUILD / "bench" / "bench_calls", "deliver", url(port), IN_FLIGHT, seconds])
    events, took, cpu_us, _ = out.split("RESULT", 1)[1].split()[:4]
    return {"rate": int(events) / float(took), "cpu": float(cpu_us) / 1000}


def stop(stack, names):
    for name in names:
        stack.stop(name)


def drain_notes(stack, count):
    """One route, one worker."""
    stack.fresh_database()
    stack.sql(PAST)
    add_routed(stack, NOTE, count)
    settle(stack)
    before = stack.postgres_cpu()
    names, admins = start_workers(stack, 1, *OPTIONS, *route(NOTE, stack.ports["route"]))
    stack.until(lambda: completed(admins) >= count, 600, every=0.2)
    found = {"rate": float(stack.sql(RATE_OF.format(type=NOTE))),
             "steady": float(stack.sql(STEADY_OF.format(type=NOTE))),
             "cpu": stack.cpu(names[0]) / count * 1000, "pg_cpu": (stack.postgres_cpu() - before) / count * 1000}
    stop(stack, names)
    return found


def beside(stack, count, bad=0, port=None, *options):
    """Rates of cards and of notes that are worked off at the same time, beside so many bad charges; port: where their
    route leads, None = they have no route."""
    stack.fresh_database()
    add_pending(stack, count)
    add_routed(stack, NOTE, count)
    if bad:
        add_routed(stack, CHARGE, bad)
    settle(stack)
    words = route(CHARGE, port, *options) if port else ()
    names, admins = start_workers(stack, 1, *OPTIONS, *route(NOTE, stack.ports["route"]), *words)

    def is_done():
        return stack.sql(f"SELECT count(*) FROM (SELECT FROM outbox_events WHERE event_type IN ('CARD_ISSUE', '{NOTE}')"
                         " AND due_at IS NOT NULL LIMIT 1) x") == "0"
    stack.until(is_done, 600, every=0.3)
    found = {name: float(stack.sql(RATE_OF.format(type=event_type))) for name, event_type in
             (("cards", "CARD_ISSUE"), ("notes", NOTE))}
    left = int(stack.sql(f"SELECT count(*) FROM outbox_events WHERE event_type = '{CHARGE}' AND status IN ('PENDING',"
                         " 'PROCESSING')"))
    stop(stack, names)
    stack.reset_sandbox()
    return {**found, "left": left}


def back_again(stack, count):
    """The rate at which a backlog is worked off whose receiver is back; it was away long enough for the breaker to
    open."""
    port = free_port()
    stack.fresh_database()
    stack.sql(PAST)
    add_routed(stack, CHARGE, count)
    settle(stack)
    names, admins = start_workers(stack, 1, *OPTIONS, *route(CHARGE, port))
    stack.until(lambda: stack.sql(f"SELECT count(*) FROM worker_targets WHERE target = '{CHARGE}' AND state = 'open'")
                == "1", 60, every=0.1)
    time.sleep(2)  # some probes
    stack.start_sandbox("--route-listen", f"127.0.0.1:{port}", name="receiver")
    stack.until(lambda: completed(admins) >= count, 600, every=0.2)
    rate = float(stack.sql(STEADY_OF.format(type=CHARGE)))
    stop(stack, [*names, "receiver"])
    return rate


def one_run(stack, number, options, backlog, each):
    count = options.events // 2
    address, run = f"http://127.0.0.1:{stack.ports['route']}", int(time.time()) % 100000000 + number
    found = {"wrk": wrk("deliver.lua", address, 64, options.seconds, PATH, run)["rate"],
             "calls": calls_alone(stack, options.seconds, stack.ports["route"])}
    stack.reset_sandbox()
    found["notes"] = drain_notes(stack, count)
    stack.reset_sandbox()
    found["cards"] = drain(stack, count, 1, *OPTIONS)
    stack.reset_sandbox()
    slow = stack.start_sandbox(name="slow")
    stack.fault({"target": "route", "fault": "delay", "delay_ms": 1000}, slow)
    for name, port in (("dead", free_port()), ("slow", slow["route"])):
        found[name] = [beside(stack, each), beside(stack, each, backlog), beside(stack, each, backlog, port)]
    stack.stop("slow")
    found["back"] = back_again(stack, count)
    return found


def ratios(runs, name, kind, of=1):
    """A round's rate over the rate of the one before it."""
    return [found[name][of + 1][kind] / found[name][of][kind] for found in runs]


def run(stack, table, options):
    table.section("routes", "one delivery an event; a backlog of due events; clear text")
    backlog = 1000000 if options.full else 100000
    each = max(1000, options.events // 4)
    runs = [one_run(stack, number, options, backlog, each) for number in range(options.runs)]

    def of(name, field=None):
        return [found[name] if field is None else found[name][field] for found in runs]

    http = table.add("routes.limit.http", "wrk on the sandbox, deliveries, 64 connections", of("wrk"), "requests/s")
    calls = table.add("routes.limit.calls", f"the worker's delivery without a database, {IN_FLIGHT} in flight",
                      of("calls", "rate"), "events/s",
                      note=f"CPU per 1000: {statistics.median(of('calls', 'cpu')):.3f} s")
    cards = table.add("routes.cards", f"issuing-worker, 1 process: {options.events // 2:,} cards", of("cards", "rate"),
                      "events/s")
    rate = table.add("routes.1.http", f"issuing-worker, 1 process: {options.events // 2:,} events of a route",
                     of("notes", "rate"), "events/s", http, "of deliveries by wrk")
    table.add("routes.1.calls", "  the same", rate, "events/s", calls, "of deliveries without a database")
    table.add("routes.1.cards", "  the same", rate, "events/s", cards, "of cards, which are three calls each")
    table.add("routes.1.cpu", "  CPU of the worker per 1000", of("notes", "cpu"), "s")
    table.add("routes.1.pg_cpu", "  CPU of PostgreSQL per 1000", of("notes", "pg_cpu"), "s")
    for kind in ("cards", "notes"):
        table.add(f"routes.rows.{kind}", f"{backlog:,} rows that nobody delivers: {kind}",
                  [rate for name in ("dead", "slow") for rate in ratios(runs, name, kind, of=0)], "",
                  note="of the same without them")
    for name, what in (("dead", "a route whose receiver is away"), ("slow", "a route that answers after 1 s")):
        for kind in ("cards", "notes"):
            table.add(f"routes.{name}.{kind}", f"{what}, {backlog:,} waiting: {kind}", ratios(runs, name, kind), "",
                      note="of the same rows without a route; "
                      + ", ".join(f"{rounds[2][kind]:,.0f}/{rounds[1][kind]:,.0f}" for rounds in of(name)))
        least = min(rounds[2]["left"] for rounds in of(name))
        table.remark(f"events of the bad route that still waited when cards and notes were done: {least:,} or more")
    table.add("routes.back", "a backlog whose receiver is back, events in its middle half", of("back"), "events/s",
              statistics.median(of("notes", "steady")), f"of one that was never away; {os.cpu_count()} cores")
