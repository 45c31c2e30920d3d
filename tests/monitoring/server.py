"""A Prometheus server that scrapes one test's programs every second, an Alertmanager, and their answers."""
import json
import re
import shutil
import urllib.parse
import urllib.request

import client
import harness
from processes import Program

SCRAPE_S = 1
DOCS = "https://docs.example/issuing/"
RULES = harness.ROOT / "monitoring" / "issuing-alerts.yml"
ALERTMANAGER = harness.ROOT / "examples" / "alertmanager.yml"
CONFIG = """
global: {scrape_interval: %(scrape)ds, scrape_timeout: %(scrape)ds, evaluation_interval: 1s,
         external_labels: {docs_url: "%(docs)s"}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: issuing-api
    file_sd_configs: [{files: [issuing-api.json], refresh_interval: 1s}]
  - job_name: issuing-worker
    file_sd_configs: [{files: [issuing-worker.json], refresh_interval: 1s}]
"""


def seconds_for_minutes(rules):
    """The rules with `for` in seconds where they say minutes: a test does not wait for half an hour."""
    return re.sub(r"^( +for: \d+)m$", r"\1s", rules, flags=re.M)


class Prometheus(Program):
    is_peer = True

    def __init__(self, world):
        self.port, self.world = harness.free_port(), world
        folder = world.dir / "prometheus"
        folder.mkdir()
        (folder / "prometheus.yml").write_text(CONFIG % {"scrape": SCRAPE_S, "docs": DOCS})
        (folder / "rules.yml").write_text(seconds_for_minutes(RULES.read_text()))
        self.folder = folder
        self.scrape()
        super().__init__("prometheus", [shutil.which("prometheus"), "--config.file=%s" % (folder / "prometheus.yml"),
                                        "--storage.tsdb.path=%s" % (folder / "data"),
                                        "--web.listen-address=127.0.0.1:%d" % self.port], world.dir / "prometheus.log")
        world.programs.append(self)
        harness.wait_until(self.is_ready, "Prometheus is ready", 60)

    def is_ready(self):
        try:
            return client.call(self.port, "GET", "/-/ready").status == 200
        except OSError:
            return False

    def scrape(self, gone=()):
        """The targets are the programs of the world as they are now; also those that ended, unless they are gone."""
        for job, programs in (("issuing-api", self.world.apis()), ("issuing-worker", self.world.workers())):
            groups = [{"targets": ["127.0.0.1:%d" % program.admin], "labels": {"instance": program.name}}
                      for program in programs if program not in gone]
            fresh = self.folder / (job + ".new")
            fresh.write_text(json.dumps(groups))
            fresh.rename(self.folder / (job + ".json"))

    def fetch(self, path):
        """The answer may be chunked, which our own client does not read."""
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.port, path), timeout=harness.STUCK_AFTER_S) as answer:
            return answer.read().decode()

    def ask(self, path, **parameters):
        return json.loads(self.fetch("/api/v1/%s?%s" % (path, urllib.parse.urlencode(parameters))))["data"]

    def evaluations(self):
        """How often the rules were evaluated."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.fetch("/metrics").splitlines()
                   if line.startswith("prometheus_rule_group_iterations_total{"))

    def query(self, expression):
        """[(labels, value)] of this moment."""
        return [(row["metric"], float(row["value"][1])) for row in self.ask("query", query=expression)["result"]]

    def firing(self):
        return {labels["alertname"] for labels, _ in self.query('ALERTS{alertstate="firing"}')}

    def runbooks(self):
        return {row["annotations"]["runbook_url"] for row in self.ask("alerts")["alerts"]}

    def range(self, expression, start, end, step):
        """[(labels, [(time, value)])]"""
        found = self.ask("query_range", query=expression, start=start, end=end, step=step)["result"]
        return [(row["metric"], [(at, float(value)) for at, value in row["values"]]) for row in found]


class Alertmanager(Program):
    """That of examples/, with the alerts that a test gives it."""
    is_peer = True

    def __init__(self, world):
        self.port = harness.free_port()
        super().__init__("alertmanager", [shutil.which("prometheus-alertmanager"), "--config.file=%s" % ALERTMANAGER,
                                          "--storage.path=%s" % (world.dir / "alertmanager"),
                                          "--web.listen-address=127.0.0.1:%d" % self.port,
                                          "--cluster.listen-address="], world.dir / "alertmanager.log")
        world.programs.append(self)
        harness.wait_until(self.is_ready, "Alertmanager is ready", 60)

    is_ready = Prometheus.is_ready

    def heard(self, *alerts):
        """{(alertname, instance): (receivers, whether it is silent)} of these alone, each (alertname, severity,
        instance)."""
        at = "http://127.0.0.1:%d/api/v2/alerts" % self.port
        body = [{"labels": {"alertname": name, "severity": severity, "instance": instance}}
                for name, severity, instance in alerts]
        request = urllib.request.Request(at, json.dumps(body).encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=harness.STUCK_AFTER_S).close()

        def taken():
            with urllib.request.urlopen(at, timeout=harness.STUCK_AFTER_S) as answer:
                found = json.loads(answer.read())
            return len(found) >= len(alerts) and found
        return {(row["labels"]["alertname"], row["labels"]["instance"]):
                ([receiver["name"] for receiver in row["receivers"]], bool(row["status"]["inhibitedBy"]))
                for row in harness.wait_until(taken, "the alerts are there")}
