"""views: what an operator's look at a large backlog costs: the rows that the database reads for each command, page and
round of gauges, its CPU and the time. The settings of the planner are PostgreSQL's own, JIT included."""
import http.client
import re
import signal
import subprocess
import time

from issue import settle
from stack import BUILD, RUN, free_port, metric
from statements import MANY_OPEN, READ, SESSIONS, SOME_EVENT, STAY_ALIVE

COUNT = 100000
GAUGES_S = 20
COMMANDS = ("status", "status --json", "targets", "workers", "doctor", "route list", "stats", "audit", "explain EVENT",
            "show EVENT", "limits past-7", "list --status PENDING", "list --status PENDING --oldest-first",
            "list --status FAILED", "list --unknown --oldest-first", "list --overdue", "list --user past-7",
            "list --status FAILED --code issuer_http_418", "list",
            "replay --code issuer_http_418 --dry-run --limit 10")
PAGES = ("/", "/targets", "/events", "/events?status=PENDING&order=oldest", "/events?status=FAILED&order=oldest",
         "/events?unknown=1&order=oldest", "/events?overdue=1&order=oldest", "/events/EVENT", "/statistics", "/audit")


def read(stack, look):
    """Rows, CPU of the database in ms and milliseconds of a look; what a session has read is told when it has ended."""
    stack.sql(STAY_ALIVE)
    stack.sql(READ)
    cpu, start = stack.postgres_cpu(), time.monotonic()
    look()
    took = time.monotonic() - start
    stack.until(lambda: stack.sql(SESSIONS) == "0")
    used = stack.postgres_cpu() - cpu
    return int(stack.sql(READ).splitlines()[0]), used * 1000, took * 1000


class Console:
    def __init__(self, stack):
        self.stack, self.port = stack, free_port()
        self.program = stack.start("console", [BUILD / "issuing-ctl",
                                               f"--database.url={stack.conninfo} user=issuing_operator", "console",
                                               "--listen", f"127.0.0.1:{self.port}"])
        stack.until(lambda: "token=" in (RUN / "console.log").read_text())
        _, _, self.host, path = re.findall(r"http://\S+", (RUN / "console.log").read_text())[-1].split("/", 3)
        self.cookie = self.get("/" + path, {}, 303).headers["Set-Cookie"].split(";")[0]

    def get(self, path, headers=None, wanted=200):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Host": self.host, **({"Cookie": self.cookie} if headers is None else {})})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status != wanted:
            raise RuntimeError(f"{path}: {answer.status} {text[:500]}")
        return answer

    def close(self):
        self.program.send_signal(signal.SIGTERM)
        self.program.wait(15)
        self.stack.processes.pop("console")


def look_of_command(stack, words):
    def look():
        done = subprocess.run([BUILD / "issuing-ctl", f"--database.url={stack.conninfo} user=issuing_operator", *words],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, env=stack.environment)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{words}: {done.stderr}")
    return look


def look_at_page(stack, path):
    """Of a console that has kept nothing; its start is in the figures."""
    def look():
        console = Console(stack)
        console.get(path)
        console.close()
    return look


def gauges(stack, table, name, start):
    admin = []

    def look():
        admin.append(start())
        time.sleep(GAUGES_S)
        ages.append(metric(admin[0], "issuing_outbox_gauges_age_seconds"))
        stack.stop(name)

    ages = []
    rows, cpu, _ = read(stack, look)
    table.add(f"views.gauges.{name}", f"gauges of {name}, {GAUGES_S} s", rows, "rows", note=f"{cpu:,.0f} ms of CPU, "
              f"{ages[0]:.0f} s old at the end")


def run(stack, table, options):
    table.section("views", f"{COUNT:,} PENDING and as many FAILED events, twice as many COMPLETED")
    stack.fresh_database()
    stack.start_worker("--log.level=error")
    stack.until(lambda: stack.sql("SELECT count(*) FROM workers") == "1")
    stack.stop("worker", at_once=True)
    for statement in MANY_OPEN:
        stack.sql(statement.format(count=COUNT))
    settle(stack)
    event = stack.sql(SOME_EVENT)
    looks = {"ctl " + words: look_of_command(stack, words.replace("EVENT", event).split()) for words in COMMANDS}
    looks.update(("console " + path, look_at_page(stack, path.replace("EVENT", event))) for path in PAGES)
    for name, look in looks.items():
        found = [read(stack, look) for _ in range(options.runs)]
        table.add(f"views.{name}", name, [one[0] for one in found], "rows",
                  note=f"{min(one[1] for one in found):,.0f} ms of CPU, {min(one[2] for one in found):,.0f} ms")
    gauges(stack, table, "api", lambda: stack.start_api()[1])
    gauges(stack, table, "worker", stack.start_worker)
