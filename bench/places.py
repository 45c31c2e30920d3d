"""places: what it costs, and gives, that users are divided over several schemas of one database: accepting and issuing
with one place beside the same with four, in one run."""
import accept
from issue import SPAN_S
from loads import completed, start_workers, wrk_accept
from statements import DRAIN_TOOK, PAST, UNFINISHED, pending

PLACES = 4
CONNECTIONS = (1, 64)
WORKERS = (1, 2)


def fill(stack, count, places):
    """Due events, in the places of their users."""
    stack.fresh_database(places)
    for place in range(places):
        schema = f"issuing_p{place}" if places > 1 else "issuing"
        mine = f"issuing.bucket_of('past-' || g) * {places} / 1024 = {place}"
        stack.sql(f"SET search_path = pg_catalog, {schema}, issuing; {PAST.replace('issuing.', schema + '.')};"
                  f"{pending(1, count, count, SPAN_S, mine)}")
    stack.sql("VACUUM ANALYZE")


def accepting(stack, seconds, places):
    stack.fresh_database(places)
    port, admin = accept.warm_api(stack)
    found = {connections: accept.measure(stack, port, admin, connections, seconds) for connections in CONNECTIONS}
    stack.stop("api")
    return found


def issuing(stack, count, places, workers):
    fill(stack, count, places)
    before = stack.postgres_cpu()
    names, admins = start_workers(stack, workers)
    stack.until(lambda: completed(admins) >= count, 600, every=0.2)
    pg_cpu = (stack.postgres_cpu() - before) / count * 1000
    rate = count / float(stack.sql(DRAIN_TOOK))
    cpu = sum(stack.cpu(name) for name in names) / count * 1000
    for name in names:
        stack.stop(name)
    if stack.sql(UNFINISHED) != "0":
        raise RuntimeError("events are left over")
    return {"rate": rate, "pg_cpu": pg_cpu, "cpu": cpu}


def one_run(stack, options):
    found = {}
    for places in (1, PLACES):
        found[places] = accepting(stack, options.seconds, places)
        for workers in WORKERS:
            found[places, workers] = issuing(stack, options.events, places, workers)
    return found


def run(stack, table, options):
    table.section("places", f"users divided over {PLACES} schemas of one database, beside one schema")
    accept.tokens()
    runs = [one_run(stack, options) for _ in range(options.runs)]
    medians = {}
    for places in (1, PLACES):
        name = "1 place" if places == 1 else f"{places} places"
        for connections in CONNECTIONS:
            for field, unit, what in (("rate", "requests/s", "issuing-api"), ("pg_cpu", "s", "  CPU of PostgreSQL per 1000"),
                                      ("api_cpu", "s", "  CPU of the api per 1000"), ("batch", "requests", "  mean batch")):
                key = (connections, field)
                median = table.add(f"places.{places}.accept.{connections}.{field}",
                                   f"{what}, {connections} connection{'s' if connections > 1 else ''}, {name}",
                                   [run[places][connections][field] for run in runs], unit, medians.get(key),
                                   "of one place" if key in medians else "")
                medians.setdefault(key, median)
        for workers in WORKERS:
            for field, unit, what in (("rate", "events/s", "issuing-worker"), ("pg_cpu", "s", "  CPU of PostgreSQL per 1000"),
                                      ("cpu", "s", "  CPU of the workers per 1000")):
                key = ("issue", workers, field)
                median = table.add(f"places.{places}.issue.{workers}.{field}", f"{what}, {workers} of them, {name}",
                                   [run[places, workers][field] for run in runs], unit, medians.get(key),
                                   "of one place" if key in medians else "")
                medians.setdefault(key, median)
        one, two = (sorted(run[places, workers]["rate"] for run in runs)[len(runs) // 2] for workers in WORKERS)
        table.add(f"places.{places}.gain", f"  the second worker, {name}", two, "events/s", one, "of one worker")
