"""cells: what 1, 2 and 4 cells carry together, each held to the same share of a core; what the router costs by itself;
and what an outage of one cell does to the other.

Each cell is a PostgreSQL cluster, an api and a worker in one cgroup. Load, sandbox and HAProxy are outside of it and use
what is left of the machine. Every cell has its own closed loop of clients (HAProxy in front of all), so each is as busy
as it can be; that the share is what limits it shows by the CPU that it used of its share.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import signal
import statistics
import sys
import time

import cgroup
from issue import settle, SPAN_S
from loads import API_OPTIONS, completed, Load, open_loop, tokens, WORKER_OPTIONS, wrk_accept
from stack import accepts, BUILD, CLUSTER, cpu_seconds, free_port, RUN, Stack, TOP
from statements import DRAIN_TOOK, PAST, pending

sys.path.insert(0, str(TOP / "tests" / "support"))
import router_config  # noqa: E402

NAMES = ("a", "b", "c", "d")
COUNTS = (1, 2, 4)
SHARE = 0.1           # of a core, for each cell
BUCKETS = 1024
CONNECTIONS = 64      # clients of each cell
BACKLOG = 250         # events for each second of a drain
EVENTS = "SELECT count(*) FROM outbox_events"
ROUTED_RATE = 500     # requests a second: what the router costs
OUTAGE_SHARE = 0.2    # of what a cell accepts at most: the load on each cell of an outage


class Cell(Stack):
    """One cell: its cluster, api and worker, in their group."""

    def __init__(self, stack, number):  # noqa: super().__init__ would start another stack
        self.name, self.folder = NAMES[number], RUN / f"cell_{NAMES[number]}"
        self.buckets = (BUCKETS // len(NAMES) * number, BUCKETS // len(NAMES) * (number + 1) - 1)
        self.processes, self.sessions, self.ports = {}, [], stack.ports
        self.secret, self.keys = stack.secret, stack.keys
        self.group = cgroup.Group(self.name)
        self.folder.mkdir(exist_ok=True)
        self.targets = self.folder.with_suffix(".tokens")
        self.api_port = self.api_admin = None

    def begin(self):
        """Its cluster runs, as a member of the group."""
        started = self.cluster("start", "shared_buffers=256MB", "max_wal_size=2GB", "max_connections=100")
        self.conninfo = started.strip().splitlines()[-1]
        self.settings = dict(word.split("=", 1) for word in self.conninfo.split())
        others = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "ISSUING_"))}
        self.environment = dict(others, PGHOST=self.settings["host"], PGDATABASE=self.settings["dbname"],
                                PGUSER="postgres")
        self.group.add(self.postmaster(), *self.children())

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
        self.group.add(process.pid)
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

    def stop(self):
        self.stack.stop("router")


def busy(cells, work):
    """Runs work(cell) for all cells at the same time. Returns the results, and the least share of the CPU that a cell
    might have used and did use."""
    before, start = [cell.used() for cell in cells], time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(cells)) as pool:
        results = list(pool.map(work, cells))
    took = time.monotonic() - start
    return results, min((cell.used() - used) / (SHARE * took) for cell, used in zip(cells, before))


def accept_together(stack, cells, seconds):
    for cell in cells:
        cell.fresh()
        cell.own()
        cell.serve()
    router = Router(stack, cells)
    busy(cells, lambda cell: wrk_accept(router.port, CONNECTIONS, 1, cell.targets))
    for cell in cells:
        cell.group.limit(SHARE)
    before, start = router.cpu(), time.monotonic()
    results, full = busy(cells, lambda cell: wrk_accept(router.port, CONNECTIONS, seconds, cell.targets))
    took = time.monotonic() - start
    found = {"rate": sum(result["rate"] for result in results), "full": full,
             "router": (router.cpu() - before) / took, "p50": statistics.median(result["p50_ms"] for result in results)}
    router.stop()
    for cell in cells:
        cell.stop("api_" + cell.name)
    return found


def issue_together(stack, cells, seconds):
    """The rate of each cell is that of its own backlog, from its first send to its last end."""
    stack.reset_sandbox()
    for cell in cells:
        cell.fresh()
        cell.sql("SET ROLE issuing_owner;" + PAST)
        wanted = BACKLOG * seconds * len(NAMES)
        cell.sql(pending(1, wanted, wanted, SPAN_S, cell.buckets))
        settle(cell)
        cell.own()
        cell.group.limit(SHARE)
    sandbox, start = stack.cpu("sandbox"), time.monotonic()

    def drained(cell):
        count, before, begun = int(cell.sql(EVENTS)), cell.used(), time.monotonic()
        admin = cell.work()
        cell.until(lambda: completed([admin]) >= count, 600, every=0.2)
        return count / float(cell.sql(DRAIN_TOOK)), (cell.used() - before) / (SHARE * (time.monotonic() - begun))
    with concurrent.futures.ThreadPoolExecutor(len(cells)) as pool:
        results = list(pool.map(drained, cells))
    found = {"rate": sum(rate for rate, _ in results), "full": min(full for _, full in results),
             "sandbox": (stack.cpu("sandbox") - sandbox) / (time.monotonic() - start)}
    for cell in cells:
        cell.stop("worker_" + cell.name)
    return found


# ---- the router by itself --------------------------------------------------------------------------------------------

def router_cost(stack, cell, seconds):
    """The same load at the api and through HAProxy, as it is shipped and without the lines about the token; no share."""
    cell.fresh()
    cell.own()
    cell.serve()
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
    for cell in cells:
        cell.fresh()
        cell.own()
        cell.serve()
        cell.work()
        cell.group.limit(SHARE)
    router, found = Router(stack, cells), {}
    for phase in ("warm", "before", "during"):
        if phase == "during":
            break_it(cells[0])
        others = Load("accept", router.port, cells[0].targets, rate, seconds, "--grace", 0)
        result, _ = Load("accept", router.port, cells[1].targets, rate, seconds).result()
        answers, _ = others.result()
        silent = answers["offered"] - answers["done"]
        found[phase] = {"p50": result["p50_ms"], "p99": result["p99_ms"], "errors": result["errors"],
                        "others": {**answers["statuses"], **({"no answer so far": silent} if silent else {})}}
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
    found = {"cost": router_cost(stack, cells[0], seconds)}
    for count in COUNTS:
        found[f"accept{count}"] = accept_together(stack, cells[:count], seconds)
        found[f"issue{count}"] = issue_together(stack, cells[:count], seconds)
    rate = found["accept1"]["rate"] * OUTAGE_SHARE
    found["killed"] = outage(stack, cells[:2], rate, seconds, kill)
    found["frozen"] = outage(stack, cells[:2], rate, seconds, freeze)
    return found


def add_throughput(table, runs, kind, what):
    single = None
    for count in COUNTS:
        results = [found[f"{kind}{count}"] for found in runs]
        plural = "s" if count > 1 else ""
        rate = table.add(f"cells.{kind}.{count}", f"{what}, {count} cell{plural}, {SHARE:g} core each",
                         [result["rate"] for result in results], "events/s" if kind == "issue" else "requests/s",
                         single, "of one cell" if single else "")
        single = single or rate
        table.add(f"cells.{kind}.{count}.full", "  CPU that the least busy cell used, of its share",
                  [result["full"] for result in results], "")
        other = "sandbox" if kind == "issue" else "router"
        table.add(f"cells.{kind}.{count}.{other}", f"  CPU of {'the sandbox' if kind == 'issue' else 'HAProxy'}, cores",
                  [result[other] for result in results], "")


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
    cells = []
    try:
        for number in range(max(COUNTS)):
            cells.append(Cell(stack, number))
            cells[-1].begin()
            cells[-1].write_tokens(all_tokens)
        runs = [one_run(stack, cells, options.seconds) for _ in range(options.runs)]
    finally:
        stack.stop("router")
        for cell in cells:
            cell.end()
    add_throughput(table, runs, "accept", f"accepts, {CONNECTIONS} connections a cell")
    add_throughput(table, runs, "issue", "events issued from a backlog")
    add_cost(table, runs)
    add_outage(table, runs, "killed", "killed")
    add_outage(table, runs, "frozen", "frozen")
