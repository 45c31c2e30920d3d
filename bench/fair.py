"""fair: what others notice of one user who reads the longest list on very many connections, as fast as it is answered.
Beside it requests and reads arrive at a low rate, each of another user; their times count from the moment they were
meant to leave."""
import re
import subprocess

from loads import API_OPTIONS, HERE, Load, tokens
from stack import RUN, token
from statements import PAYLOAD

CONNECTIONS = (100, 2000, 9000)
OWNED = 1700      # requests of the one user
READERS = 1000    # others, with a request each
RATE = 50         # of requests, and of reads
SPARE_DESCRIPTORS = 200
FILL = f"""
INSERT INTO issuing.outbox_events (user_id, payload, next_attempt_at) SELECT 'bench-hog', {PAYLOAD}::jsonb,
now() + interval '1 day' FROM generate_series(1, {OWNED});
WITH e AS (
    INSERT INTO issuing.outbox_events (user_id, payload, next_attempt_at)
    SELECT 'bench-user-' || g, {PAYLOAD}::jsonb, now() + interval '1 day'
    FROM generate_series(0, {READERS} - 1) AS g RETURNING id, user_id
)
SELECT id FROM e ORDER BY substring(user_id FROM 12)::int
"""


class Hog:
    def __init__(self, port, connections, seconds):
        self.process = subprocess.Popen(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s",
                                         str(HERE / "fair.lua"),
                                         f"http://127.0.0.1:{port}", "--", token("bench-hog")],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def result(self):
        out, _ = self.process.communicate()
        count, duration_us, refused, lost = (int(word) for word in re.search(r"RESULT (\d+) (\d+) (\d+) (\d+)",
                                                                             out).groups())
        seconds = duration_us / 1e6
        return {"rate": (count - refused) / seconds, "refused": refused / seconds, "lost": lost}


def away(log):
    return log.read_text(errors="replace").count("database away")


def measure(port, connections, reads, seconds):
    log = RUN / "api.log"
    before = away(log)
    hog = Hog(port, connections, seconds + 4) if connections else None
    words = ("--warmup", 2, "--connections", 64, "--grace", 30)
    loads = {"post": Load("accept", port, tokens(), RATE, seconds + 2, *words),
             "get": Load("wait", port, reads, RATE, seconds + 2, "--wait", 0, *words)}
    found = {name: load.result()[0] for name, load in loads.items()}
    found["hog"] = hog.result() if hog else None
    found["away"] = away(log) - before
    return found


def one_run(stack, options):
    stack.fresh_database()
    ids = stack.sql(FILL).split()
    stack.sql("VACUUM ANALYZE issuing.outbox_events")
    reads = RUN / "reads"
    reads.write_text("".join(f"{token(f'bench-user-{number}')} /v1/card-requests/{request}\n" for number,
                             request in enumerate(ids)))
    port, _ = stack.start_api(*API_OPTIONS)
    found = {count: measure(port, min(count, stack.descriptors - SPARE_DESCRIPTORS), reads, options.seconds)
             for count in (0, *CONNECTIONS)}
    stack.stop("api")
    return found


def run(stack, table, options):
    table.section("fair",
                  f"one user reads a list of 100 as fast as it is answered; beside it {RATE} requests and {RATE} reads "
                  "a second of others")
    tokens()
    runs = [one_run(stack, options) for _ in range(options.runs)]
    quiet = {}
    for count in (0, *CONNECTIONS):
        found = [run[count] for run in runs]
        point = {"connections": count}
        what = f"one user on {count:,} connections" if count else "no other user"
        if count:
            refused = sum(result["hog"]["refused"] for result in found) / len(found)
            table.add(f"fair.{count}.hog", f"{what}: its reads answered", [result["hog"]["rate"] for result in found],
                      "reads/s",
                      note=f"refused: {refused:,.0f}/s")
        for kind, text in (("post", "requests of others"), ("get", "reads of others")):
            errors = sum(result[kind]["errors"] for result in found)
            for name in ("p50", "p99"):
                value = table.add(f"fair.{count}.{kind}.{name}",
                                  f"  {text}, {name}" if count else f"{what}: {text}, {name}",
                                  [result[kind][f"{name}_ms"] for result in found], "ms", quiet.get((kind, name)),
                                  f"not 2xx: {errors} of {sum(result[kind]['offered'] for result in found)}"
                                  if name == "p50" else "")
                quiet.setdefault((kind, name), value)
                point[f"{kind}_{name}_ms"] = value
        if count:
            table.add(f"fair.{count}.away", "  \"database away\" in the log", [result["away"] for result in found],
                      "times")
        table.series("fair", point)
