#!/usr/bin/python3
"""First figures: accepted requests and issued cards per second beside the limits measured in the same run, as ratios.

    run.py [--seconds N] [--runs N] [accept] [issue] [latency]

Limits: pgbench doing the same acceptance (four statements; one call of the same function; the same function for 32 requests), and wrk on the same
sandbox. Everything durable, everything on one machine and sharing its cores, so only the ratios mean something. Medians of the runs.
"""
import argparse
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

from stack import BUILD, RUN, Stack, cpu_seconds, get, rss_mb, token

HERE = pathlib.Path(__file__).resolve().parent
USERS = 20000

ONE_CALL = """
\\set u random(1, 1000000)
SELECT verdict FROM issuing_accept(ARRAY[gen_random_uuid()], ARRAY['u' || :u], ARRAY[gen_random_uuid()::text],
    ARRAY['\\x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'::bytea],
    ARRAY['{"kind":"new","program":"standard"}'], ARRAY[NULL::text], 1000000, interval '10 seconds', false);
"""

MANY_CALLS = """
\\set u random(1, 1000000)
SELECT count(verdict) FROM issuing_accept(
    (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 32)),
    (SELECT array_agg('u' || :u || '-' || g) FROM generate_series(1, 32) g),
    (SELECT array_agg(gen_random_uuid()::text) FROM generate_series(1, 32)),
    (SELECT array_agg('\\x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'::bytea) FROM generate_series(1, 32)),
    (SELECT array_agg('{"kind":"new","program":"standard"}'::text) FROM generate_series(1, 32)),
    (SELECT array_agg(NULL::text) FROM generate_series(1, 32)), 1000000, interval '10 seconds', false);
"""

FOUR_STATEMENTS = """
\\set u random(1, 1000000)
BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended('u' || :u, 4711));
INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
VALUES (issuing_uuid7(), clock_timestamp(), 'u' || :u, gen_random_uuid()::text, '\\x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff')
ON CONFLICT DO NOTHING;
INSERT INTO rate_limit_log (at, request_id, accepted, user_id)
SELECT clock_timestamp(), gen_random_uuid(), true, 'u' || :u
WHERE (SELECT count(*) FROM rate_limit_log WHERE user_id = 'u' || :u AND at > clock_timestamp() - interval '10 seconds') < 1000000;
INSERT INTO outbox_events (user_id, idempotency_key, payload) VALUES ('u' || :u, 'k', '{"kind":"new","program":"standard"}');
COMMIT;
"""


class Table:
    def __init__(self):
        self.rows = []

    def add(self, what, value, unit, note=""):
        self.rows.append((what, value, unit, note))
        print(f"  {what:<58} {value:>12} {unit:<12} {note}", flush=True)


def spread(values, digits=0):
    return f"{statistics.median(values):,.{digits}f}", f"({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def wrk(script, url, connections, seconds, *arguments, threads=1):
    out = subprocess.run(["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "-s", str(HERE / script), url, "--", *map(str, arguments)],
                         check=True, capture_output=True, text=True).stdout
    requests, duration_us, errors, p50_ms, p99_ms = re.search(r"RESULT (\d+) (\d+) (\d+) ([\d.]+) ([\d.]+)", out).groups()
    return int(requests) / (int(duration_us) / 1e6), int(errors), float(p50_ms), float(p99_ms)


def pgbench(stack, text, clients, seconds, per_transaction=1):
    script = RUN / "pgbench.sql"
    script.write_text(text)
    out = stack.run(["pgbench", "-n", "-M", "prepared", "-c", clients, "-j", 2, "-T", seconds, "-f", script])
    return float(re.search(r"tps = ([\d.]+)", out)[1]) * per_transaction


def bench_accept(stack, table, seconds, runs):
    print("\naccept: key, limit row and event in one durable transaction")
    limits = {"four": [], "one": [], "many": []}
    for _ in range(runs):
        limits["four"].append(pgbench(stack, FOUR_STATEMENTS, 16, seconds))
        limits["one"].append(pgbench(stack, ONE_CALL, 16, seconds))
        limits["many"].append(pgbench(stack, MANY_CALLS, 8, seconds, 32))
    one = statistics.median(limits["one"])
    table.add("pgbench, BEGIN, four statements, COMMIT, 16 clients", *spread(limits["four"]))
    table.add("pgbench, one call of the function, 16 clients", *spread(limits["one"]))
    table.add("pgbench, one call for 32 requests, 8 clients", *spread(limits["many"]))

    tokens = RUN / "tokens"
    tokens.write_text("\n".join(token(f"bench-user-{number}") for number in range(USERS)) + "\n")
    stack.fresh_database()
    port, admin = stack.start_api("--limit.count=1000000")
    url = f"http://127.0.0.1:{port}"
    wrk("accept.lua", url, 64, 2, tokens, "warm")
    for connections in (1, 64):
        rates, p50s, p99s, cpus, pg_cpus = [], [], [], [], []
        for number in range(runs):
            cpu, pg_cpu = cpu_seconds(stack.pid("api")), stack.postgres_cpu()
            rate, errors, p50, p99 = wrk("accept.lua", url, connections, seconds, tokens, f"run{connections}-{number}-{time.time_ns()}")
            if errors:
                raise RuntimeError(f"{errors} answers were not 2xx")
            rates.append(rate)
            p50s.append(p50)
            p99s.append(p99)
            cpus.append((cpu_seconds(stack.pid("api")) - cpu) / (rate * seconds) * 1000)
            pg_cpus.append((stack.postgres_cpu() - pg_cpu) / (rate * seconds) * 1000)
        table.add(f"issuing-api, {connections} connections", *spread(rates), f"p50 {statistics.median(p50s):.2f} ms, p99 {statistics.median(p99s):.2f} ms")
        table.add("  as a ratio to the one-function pgbench", f"{statistics.median(rates) / one:.2f}", "x")
        table.add("  CPU per 1000 requests: api, PostgreSQL", f"{statistics.median(cpus):.3f}", f"s, {statistics.median(pg_cpus):.3f} s")
    table.add("  api memory after it", f"{rss_mb(stack.pid('api')):.1f}", "MB")
    batch = re.findall(r"issuing_accept_batch_size_(sum|count) (\S+)", get(f"http://127.0.0.1:{admin}/metrics"))
    batch = {name: float(value) for name, value in batch}
    table.add("  mean batch", f"{batch['sum'] / batch['count']:.1f}", "requests")
    stack.stop("api")


def preload(stack, count):
    stack.fresh_database()
    stack.sql(f"""INSERT INTO outbox_events (user_id, idempotency_key, payload)
                  SELECT 'user-' || g, 'k' || g, '{{"kind":"new","program":"standard"}}' FROM generate_series(1, {count}) g""")
    stack.sql("VACUUM ANALYZE outbox_events")


def completed(admin):
    found = re.search(r'issuing_attempts_total\{outcome="completed"\} (\S+)', get(f"http://127.0.0.1:{admin}/metrics"))
    return float(found[1]) if found else 0


def drain(stack, count, workers):
    preload(stack, count)
    pg_cpu = stack.postgres_cpu()
    start = time.monotonic()
    names = [f"worker{number}" for number in range(workers)]
    admins = [stack.start_worker("--worker.max_in_flight=256", "--issuer.max_concurrency=128", "--core.max_concurrency=128", name=name)
              for name in names]
    # The workers' own counters, and not often: looking must cost nothing.
    stack.until(lambda: sum(completed(admin) for admin in admins) >= count, 600, every=0.2)
    # The database's own clock says how long it took: from the first claim to the last completion.
    took = float(stack.sql("SELECT extract(epoch FROM max(ended_at) - min(started_at)) FROM outbox_attempts"))
    cpu = sum(cpu_seconds(stack.pid(name)) for name in names)
    memory = max(rss_mb(stack.pid(name)) for name in names)
    result = (count / took, cpu / count * 1000, (stack.postgres_cpu() - pg_cpu) / count * 1000, memory, time.monotonic() - start)
    for name in names:
        stack.stop(name)
    return result


def bench_issue(stack, table, seconds, runs):
    print("\nissue: GET check, POST issue, card row, POST link, done")
    gets, posts = [], []
    for number in range(runs):
        gets.append(wrk("calls.lua", f"http://127.0.0.1:{stack.ports['core']}", 64, seconds, "get", 0)[0])
        posts.append(wrk("calls.lua", f"http://127.0.0.1:{stack.ports['issuer']}", 64, seconds, "post", int(time.time()) % 100000000 + number)[0])
    limit = 1 / (1 / statistics.median(gets) + 2 / statistics.median(posts))
    table.add("wrk on the sandbox, GET eligibility, 64 connections", *spread(gets))
    table.add("wrk on the sandbox, POST card, 64 connections", *spread(posts))
    table.add("  so one GET and two POSTs", f"{limit:,.0f}", "events/s")
    for workers in (1, 2):
        results = [drain(stack, 20000, workers) for _ in range(runs)]
        rates = [result[0] for result in results]
        table.add(f"issuing-worker, {workers} process{'es' if workers > 1 else ''}, 20,000 events", *spread(rates))
        table.add("  as a ratio to the HTTP limit", f"{statistics.median(rates) / limit:.2f}", "x")
        table.add("  CPU per 1000 events: worker, PostgreSQL", f"{statistics.median(r[1] for r in results):.3f}",
                  f"s, {statistics.median(r[2] for r in results):.3f} s")
        table.add("  worker memory after it", f"{statistics.median(r[3] for r in results):.1f}", "MB")


def bench_latency(stack, table, seconds, runs):
    print("\nlatency: accepted to COMPLETED at 20 a second, by the database's clock")
    stack.fresh_database()
    port, _ = stack.start_api("--limit.count=1000000")
    stack.start_worker()
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", port)
    total = 20 * seconds * runs
    start = time.monotonic()
    for number in range(total):
        time.sleep(max(0, start + number / 20 - time.monotonic()))
        connection.request("POST", "/v1/card-requests", '{"kind":"new"}',
                           {"Authorization": "Bearer " + token(f"late-{number}"), "Idempotency-Key": f"late-{number}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 202:
            raise RuntimeError(f"status {answer.status}")
    stack.until(lambda: stack.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'") == str(total))
    row = stack.sql("""SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY d), percentile_cont(0.99) WITHIN GROUP (ORDER BY d)
                       FROM (SELECT extract(epoch FROM completed_at - created_at) * 1000 AS d FROM outbox_events
                             ORDER BY created_at OFFSET 20) x""").split("|")
    table.add("accept to COMPLETED, p50", f"{float(row[0]):.2f}", "ms")
    table.add("accept to COMPLETED, p99", f"{float(row[1]):.2f}", "ms", f"{total} events")
    stack.stop("worker")
    stack.stop("api")


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) / 1024 / 1024
    return f"{os.cpu_count()} cores ({model[1] if model else platform.machine()}), {memory:.0f} GB, {platform.system()} {platform.release()}"


def main():
    benches = {"accept": bench_accept, "issue": bench_issue, "latency": bench_latency}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("names", nargs="*", choices=[[], *benches], metavar="NAME", help=", ".join(benches))
    options = parser.parse_args()
    stack = Stack()
    table = Table()
    print(machine())
    print(stack.sql("SELECT 'PostgreSQL ' || current_setting('server_version') || ', fsync ' || current_setting('fsync') || "
                    "', synchronous_commit ' || current_setting('synchronous_commit')"))
    print(f"median of {options.runs} runs of {options.seconds} s (least-most); requests/s or events/s where no unit stands")
    for name in options.names or benches:
        benches[name](stack, table, options.seconds, options.runs)
    stack.close()


if __name__ == "__main__":
    sys.exit(main())
