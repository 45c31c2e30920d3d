"""cells: what 1, 2 and 4 cells carry together, each held to the same share of a core; what the router costs by itself;
and what an outage of one cell does to the other.

Each cell is a PostgreSQL cluster, an api and a worker in one cgroup. Load, sandbox and HAProxy are outside of it and use
what is left of the machine. Every cell has its own closed loop of clients (HAProxy in front of all), so each is as busy
as it can be; that the share is what limits it shows by the CPU that it used of its share. One cell is measured before and
after the others of each run: where the two differ, something else was at work on the machine.
"""
import collections
import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import re
import signal
import statistics
import sys
import time

import cgroup
from issue import settle, SPAN_S
from loads import API_OPTIONS, completed, Load, open_loop, tokens, wrk_accept
from stack import accepts, BUILD, CLUSTER, cpu_seconds, free_port, RUN, Stack, TOP
from statements import PAST, pending

sys.path.insert(0, str(TOP / "tests" / "support"))
import router_config  # noqa: E402

NAMES = ("a", "b", "c", "d")
COUNTS = (1, 2, 4)
ORDER = (1, 2, 4, 1)  # of a run
DISTURBED = 0.15      # two measurements of one cell in a run differ by more
SHARE = 0.1           # of a core, for each cell: four of them, load, sandbox and HAProxy fit into two cores
FULL = 0.9            # of its share a cell uses when nothing else is the limit
BUCKETS = 1024
CONNECTIONS = 64      # clients of each cell
BACKLOG = 1500        # events of a cell for each second of a measurement: more than it issues
EVENTS = "SELECT count(*) FROM outbox_events"
WARM = 200            # events of each cell before one is measured
# Few in flight: they end evenly over a measurement of some seconds.
WORKER_OPTIONS = ("--worker.max_in_flight=128", "--issuer.max_concurrency=64", "--core.max_concurrency=64")
ROUTED_RATE = 500     # requests a second: what the router costs
# Far from what a cell can do, so that latency says something about the outage and not about a queue.
OUTAGE_SHARE = 0.3    # of a core, for each of the two cells
OUTAGE_RATE = 0.2     # of what a cell with SHARE accepts at most, which is a third of OUTAGE_SHARE


class Cell(Stack):
    """One cell: its cluster, api and worker, in their group."""

    def __init__(self, stack, number):  # noqa: super().__init__ would start another stack
        self.name, self.folder = NAMES[number], RUN / f"cell_{NAMES[number]}"
        self.buckets = (BUCKETS // len(NAMES) * number, BUCKETS // len(NAMES) * (number + 1) - 1)
        self.processes, self.sessions, self.ports = {}, [], stack.ports
        self.secret, self.keys = stack.secret, stack.keys
        self.group = cgroup.Group(self.name)
        cores = sorted(os.sched_getaffinity(0))
        self.core = cores[number % len(cores)]
        self.folder.mkdir(exist_ok=True)
        self.targets = self.folder.with_suffix(".tokens")
        self.api_port = self.api_admin = None

    def begin(self):
        """Its cluster runs, as a member of the group."""
        started = self.cluster("start", "shared_buffers=256MB", "max_wal_size=2GB", "min_wal_size=1GB", "max_connections=100")
        self.conninfo = started.strip().splitlines()[-1]
        self.settings = dict(word.split("=", 1) for word in self.conninfo.split())
        others = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "ISSUING_"))}
        self.environment = dict(others, PGHOST=self.settings["host"], PGDATABASE=self.settings["dbname"],
                                PGUSER="postgres")
        self.take(self.postmaster(), *self.children())

    def take(self, *pids):
        """Into the group, and to one core: what a batch holds, and so what an event costs, depends on whether the api
        or worker and PostgreSQL run at the same time. Alone a cell would have two cores for that, beside others not."""
        self.group.add(*pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(pid, {self.core})

    def cluster(self, *words):
        self.environment = dict(os.environ)
        return self.run([CLUSTER, words[0], self.folder, *words[1:]])

    def postmaster(self):
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def children(self):
        pid = self.postmaster()
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def postgres_cpu(self):
        fields = pathlib.Path(f"/proc/{self.postmaster()}/stat").read_text().rsplit(")", 1)[1].split()
        total = sum(int(fields[i]) for i in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")
        for child in self.children():
            try:
                total += cpu_seconds(child)
            except OSError:
                pass
        return total

    def used(self):
        """CPU seconds of the whole cell."""
        return self.postgres_cpu() + sum(self.cpu(name) for name in self.processes)

    def fresh(self):
        """An empty database, without cells so far; not held to the share."""
        for name in list(self.processes):
            self.stop(name)
        self.group.limit(None)
        self.fresh_database()

    def own(self):
        """The database owns its buckets."""
        self.run([BUILD / "issuing-ctl", f"--cell.{self.name}.url={self.conninfo} user=issuing_owner", "cell", "init",
                  self.name, "%d-%d" % self.buckets])

    def start(self, name, command):
        process = super().start(name, command)
        self.take(process.pid)
        return process

    def serve(self):
        self.api_port, self.api_admin = self.start_api(
            *API_OPTIONS, f"--database.cell={self.name}", "--api.trusted_proxies=127.0.0.1",
            "--api.client_address_header=X-Forwarded-For", name="api_" + self.name)

    def work(self):
        """Returns the worker's admin port."""
        return self.start_worker(*WORKER_OPTIONS, f"--database.cell={self.name}", name="worker_" + self.name)

    def write_tokens(self, all_tokens):
        """Those of its users."""
        own = [token for number, token in enumerate(all_tokens)
               if self.buckets[0] <= bucket_of(f"bench-user-{number}") <= self.buckets[1]]
        self.targets.write_text("\n".join(own) + "\n")

    def end(self):
        self.group.limit(None)
        self.group.signal(signal.SIGCONT)
        for name in list(self.processes):
            self.stop(name)
        self.cluster("stop")
        self.group.remove()


def bucket_of(user):
    return int.from_bytes(hashlib.sha256(user.encode()).digest()[:2], "big") % BUCKETS


class Router:
    """HAProxy as examples/cells has it, in clear text, and with no limit for one address: all clients have the same."""

    def __init__(self, stack, cells, by_token=True):
        self.stack, self.port = stack, free_port()
        (RUN / "cells.map").write_text("".join(f"{bucket} cell_{cell.name}\n" for cell in cells
                                               for bucket in range(cell.buckets[0], cell.buckets[1] + 1)))
        text = router_config.render({cell.name: [(cell.api_port, cell.api_admin)] for cell in cells}, self.port,
                                    "cells.map", free_port())
        text = router_config.replaced(text, ("{ sc_conn_cur(0) gt 100 }", "{ sc_conn_cur(0) gt 100000 }"))
        if not by_token:
            text = "".join(line for line in text.splitlines(True) if "var(txn." not in line or "log-format" in line)
        (RUN / "haproxy.cfg").write_text(text)
        stack.start("router", ["/usr/sbin/haproxy", "-db", "-C", RUN, "-f", "haproxy.cfg"])
        stack.until(lambda: accepts(self.port))
        for cell in cells:
            self.until_served(cell)

    def until_served(self, cell):
        self.stack.until(lambda: self.first_status(cell) == 202)

    def first_status(self, cell):
        with open(cell.targets) as file:
            token = file.readline().strip()
        one = RUN / "one.tokens"
        one.write_text(token + "\n")
        result, _ = Load("accept", self.port, one, 20, 0.1, "--connections", 1, "--arrivals", "constant").result()
        return 202 if result["done"] and not result["errors"] else 0

    def cpu(self):
        return cpu_seconds(self.stack.pid("router"))

    def refusals(self, cell):
        """{why: number of answers} of the cell's clients that were not 2xx. Of HAProxy's own ones the log has the state
        in which the request ended and the server; "down" is a server that the check took out."""
        lines = (RUN / "router.log").read_text().splitlines()
        found = collections.Counter(
            f"{match[3]} {match[2]} at {match[1]}" for match in map(re.compile(
                rf" cell_{cell.name}/(\S+) bucket=.* ([345]\d\d) \d+ (\S{{4}}) ").search, lines) if match)
        found["down"] = len({line for line in lines if f"Server cell_{cell.name}/" in line and " is DOWN" in line})
        return +found

    def stop(self):
        self.stack.stop("router")


def together(cells, work):
    """work(cell) for all cells at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(cells)) as pool:
        return list(pool.map(work, cells))


class Progress:
    """What a cell has done and used since then."""

    def __init__(self, cell, events=lambda: 0):
        self.cell, self.events = cell, events
        self.before = self.now()

    def now(self):
        periods, throttled = self.cell.group.throttled()
        return {"events": self.events(), "used": self.cell.used(), "periods": periods, "throttled": throttled,
                "seconds": time.monotonic()}

    def until_now(self):
        return {name: value - self.before[name] for name, value in self.now().items()}


def limits(spans):
    """Of the least busy cell: the part of its share that it used, and of the periods in which it wanted more."""
    return {"full": min(span["used"] / (SHARE * span["seconds"]) for span in spans),
            "throttled": min(span["throttled"] / max(span["periods"], 1) for span in spans)}


def serving(cell):
    cell.fresh()
    cell.own()
    cell.serve()


def accept_together(cells, stack, seconds):
    together(cells, serving)
    router = Router(stack, cells)
    together(cells, lambda cell: wrk_accept(router.port, CONNECTIONS, 1, cell.targets))
    for cell in cells:
        cell.group.limit(SHARE, cgroup.LONG_PERIOD_US)
    before, progress, start = router.cpu(), [Progress(cell) for cell in cells], time.monotonic()
    results = together(cells, lambda cell: wrk_accept(router.port, CONNECTIONS, seconds, cell.targets))
    took = time.monotonic() - start
    found = {"rate": sum(result["rate"] for result in results), "beside": (router.cpu() - before) / took,
             **limits([old.until_now() for old in progress])}
    router.stop()
    for cell in cells:
        cell.group.limit(None)
        cell.stop("api_" + cell.name)
    return found


def backlog(cell, count):
    """count due events of users of the cell."""
    cell.fresh()
    cell.sql("SET ROLE issuing_owner;" + PAST)
    cell.sql(pending(1, count * len(NAMES), count * len(NAMES), SPAN_S, cell.buckets))
    settle(cell)
    cell.own()
    cell.group.limit(SHARE, cgroup.LONG_PERIOD_US)


def issue_together(cells, stack, seconds):
    """Each cell issues from a backlog that lasts; the same seconds are measured in all of them."""
    stack.reset_sandbox()
    together(cells, lambda cell: backlog(cell, BACKLOG * (seconds + 1)))
    admins = dict(zip(cells, together(cells, Cell.work)))


    def begun(cell):
        return Progress(cell, lambda: completed([admins[cell]]))
    together(cells, lambda cell: cell.until(lambda: completed([admins[cell]]) >= WARM, 60, every=0.1))
    sandbox, before, start = stack.cpu("sandbox"), together(cells, begun), time.monotonic()
    time.sleep(seconds)
    spans, took = together(before, Progress.until_now), time.monotonic() - start
    found = {"rate": sum(span["events"] / span["seconds"] for span in spans),
             "beside": (stack.cpu("sandbox") - sandbox) / took, **limits(spans)}
    if any(completed([admins[cell]]) >= 0.95 * int(cell.sql(EVENTS)) for cell in cells):
        raise RuntimeError("the backlog was too small")
    for cell in cells:
        cell.group.limit(None)
        cell.stop("worker_" + cell.name)
    return found


# ---- the router by itself --------------------------------------------------------------------------------------------

def router_cost(stack, cell, seconds):
    """The same load at the api and through HAProxy, as it is shipped and without the lines about the token; no share."""
    serving(cell)
    found = {}
    for name in ("direct", "plain", "routed"):
        router = Router(stack, [cell], by_token=name == "routed") if name != "direct" else None
        port = router.port if router else cell.api_port
        options = (port, cell.targets, ROUTED_RATE, seconds + 1, "--warmup", 1, "--arrivals", "constant")
        before = router.cpu() if router else 0
        result = open_loop("accept", *options)
        found[name] = {"p50": result["p50_ms"], "p99": result["p99_ms"],
                       "cpu": (router.cpu() - before) / (ROUTED_RATE * (seconds + 1)) * 1000 if router else 0}
        if router:
            router.stop()
    cell.stop("api_" + cell.name)
    return found


# ---- one cell's outage -----------------------------------------------------------------------------------------------

def kill(cell):
    """As the loss of its host: every process at once."""
    cell.group.signal(signal.SIGKILL)
    for name in list(cell.processes):
        cell.stop(name, at_once=True)


def freeze(cell):
    """As a host that hangs: connections are accepted, and nothing answers."""
    cell.group.signal(signal.SIGSTOP)


def outage(stack, cells, rate, seconds, break_it):
    """Latency in the second cell before and while the first is away. Clients of the first go on all the time."""
    together(cells, serving)
    for cell in cells:
        cell.work()
        cell.group.limit(OUTAGE_SHARE)
    router, found = Router(stack, cells), {}
    for phase, length in (("warm", 1), ("before", seconds), ("during", seconds)):
        if phase == "during":
            break_it(cells[0])
        others = Load("accept", router.port, cells[0].targets, rate, length, "--grace", 0)
        result, _ = Load("accept", router.port, cells[1].targets, rate, length).result()
        answers, _ = others.result()
        silent = answers["offered"] - answers["done"]
        found[phase] = {"p50": result["p50_ms"], "p99": result["p99_ms"], "errors": result["errors"],
                        "others": {**answers["statuses"], **({"no answer so far": silent} if silent else {})}}
    found["refusals"] = router.refusals(cells[1])
    router.stop()
    cells[0].group.signal(signal.SIGCONT)
    for cell in cells:
        for name in list(cell.processes):
            cell.stop(name, at_once=cell is cells[0])
    cells[0].group.limit(None)
    cells[0].begin()
    return found


# ---- all of it -------------------------------------------------------------------------------------------------------

def one_run(stack, cells, seconds):
    found = {"cost": router_cost(stack, cells[0], seconds), "accept": {count: [] for count in COUNTS},
             "issue": {count: [] for count in COUNTS}}
    for count in ORDER:
        found["accept"][count].append(accept_together(cells[:count], stack, seconds))
        found["issue"][count].append(issue_together(cells[:count], stack, seconds))
    rate = statistics.median(one["rate"] for one in found["accept"][1]) * OUTAGE_RATE
    found["killed"] = outage(stack, cells[:2], rate, seconds, kill)
    found["frozen"] = outage(stack, cells[:2], rate, seconds, freeze)
    return found


def add_throughput(table, runs, kind, what):
    single = None
    for count in COUNTS:
        results = [one for found in runs for one in found[kind][count]]
        plural, full = "s" if count > 1 else "", statistics.median(one["full"] for one in results)
        rate = table.add(f"cells.{kind}.{count}", f"{what}, {count} cell{plural}, {SHARE:g} core each",
                         [one["rate"] for one in results], "events/s" if kind == "issue" else "requests/s",
                         single, "" if full >= FULL else "the cells were not the limit")
        single = single or rate
        table.add(f"cells.{kind}.{count}.full", "  CPU that the least busy cell used, of its share",
                  [one["full"] for one in results], "")
        table.add(f"cells.{kind}.{count}.throttled", "  periods in which every cell wanted more, of all",
                  [one["throttled"] for one in results], "")
        table.add(f"cells.{kind}.{count}.beside", f"  CPU of {'the sandbox' if kind == 'issue' else 'HAProxy'}, cores",
                  [one["beside"] for one in results], "")
    for number, found in enumerate(runs, 1):
        first, last = (one["rate"] for one in found[kind][1])
        if abs(last - first) > DISTURBED * min(first, last):
            table.remark(f"run {number} was disturbed: one cell made {first:,.0f}/s at first and {last:,.0f}/s at last")


def add_cost(table, runs):
    costs = [found["cost"] for found in runs]
    names = {"direct": "at the api", "plain": "through HAProxy that does not look at tokens",
             "routed": "through HAProxy as shipped"}
    for field in ("p50", "p99"):
        direct = None
        for name, what in names.items():
            value = table.add(f"cells.router.{name}.{field}", f"accept at {ROUTED_RATE}/s {what}, {field}",
                              [cost[name][field] for cost in costs], "ms", direct, "of the same at the api" if direct else "")
            direct = direct or value
    for name in ("plain", "routed"):
        table.add(f"cells.router.{name}.cpu", f"  CPU per 1000 requests {names[name]}",
                  [cost[name]["cpu"] for cost in costs], "s")


def add_outage(table, runs, name, what):
    for field in ("p50", "p99"):
        table.add(f"cells.{name}.{field}", f"the other cell while one is {what}, accept, {field}",
                  [found[name]["during"][field] / found[name]["before"][field] for found in runs], "",
                  note="of before: " + ", ".join("%.2f/%.2f ms" % (found[name]["during"][field],
                                                                  found[name]["before"][field]) for found in runs))
    table.add(f"cells.{name}.errors", "  answers to its clients that were not 2xx",
              [found[name]["during"]["errors"] for found in runs], "")
    refusals = sum((found[name]["refusals"] for found in runs), collections.Counter())
    if refusals:
        table.remark("why (state of the request and server in HAProxy's log): " +
                     ", ".join(f"{count:,} x {why}" for why, count in refusals.most_common()))
    statuses = {}
    for found in runs:
        for status, count in found[name]["during"]["others"].items():
            statuses[status] = statuses.get(status, 0) + count
    table.remark(f"what clients of the cell got that was {what}: " +
                 ", ".join(f"{count:,} x {status}" for status, count in sorted(statuses.items())))


def run(stack, table, options):
    table.section("cells", "each cell has a cluster, an api and a worker, in one cgroup; HAProxy in front, clear text")
    reason = cgroup.why_not()
    if reason:
        table.remark(f"not run: no share of a core can be given to a cell here: {reason}")
        return
    all_tokens = tokens().read_text().splitlines()
    cells, runs = [], []
    try:
        for number in range(max(COUNTS)):
            cells.append(Cell(stack, number))
            cells[-1].begin()
            cells[-1].write_tokens(all_tokens)
        for number in range(1, options.runs + 1):
            try:
                runs.append(one_run(stack, cells, options.seconds))
            except RuntimeError as error:
                table.remark(f"run {number} of {options.runs} was broken off: {error}")
                break
    finally:
        stack.stop("router")
        for cell in cells:
            cell.end()
    if not runs:
        return
    add_throughput(table, runs, "accept", f"accepts, {CONNECTIONS} connections a cell")
    add_throughput(table, runs, "issue", "events issued from a backlog")
    add_cost(table, runs)
    add_outage(table, runs, "killed", "killed")
    add_outage(table, runs, "frozen", "frozen")
