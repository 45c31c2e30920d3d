"""The cluster of the three hosts, as Patroni's interface and etcd tell of it."""
import base64
import http.client
import json
import secrets
import socket
import time

import failover_lab as lab
import harness

QUERY = (harness.psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "/run/postgresql")


class Cluster:
    """Made by build(); hosts[0] is the first primary."""

    def __init__(self, folder, places=1):
        self.folder = folder
        self.passwords = {word: secrets.token_hex(12) for word in ("rest", "replication", "rewind")}
        self.names = folder / "hosts"
        self.names.write_text("127.0.0.1 localhost\n%s" %
                              "".join("192.0.2.%d db%d\n" % (10 + number, number) for number in range(1, 6)))
        self.add_hosts((1, 2, 3), "issuing", places)

    def add_hosts(self, numbers, scope, places):
        self.hosts = [lab.Host(number, self.folder / ("db%d" % number), self.passwords, self.names, scope, places)
                      for number in numbers]
        self.is_synchronous = "synchronous_mode: true" in (lab.EXAMPLES / "patroni.yml").read_text()
        self.by_name = {host.name: host for host in self.hosts}

    def build(self):
        lab.command("mount", "--bind", self.names, "/etc/hosts")
        for host in self.hosts:
            host.build()
        for host in self.hosts:
            host.start_etcd()
        harness.wait_until(lambda: self.etcd_is_well(), "etcd is well", 60, 0.2)
        self.hosts[0].start_patroni()
        harness.wait_until(lambda: self.leader() == "db1", "db1 is the primary", 90, 0.2)
        for host in self.hosts[1:]:
            host.start_patroni()
        self.wait_well(harness.STUCK_AFTER_S)

    def others(self, host):
        return [other for other in self.hosts if other is not host]

    # ---- what they say ----

    @staticmethod
    def ask(address, port, path, method="GET", body=None, headers=None, seconds=5.0):
        """Status and body, or None when nobody answers."""
        connection = http.client.HTTPConnection(address, port, timeout=seconds)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def etcd_is_well(self):
        return all(self.ask(host.address, 2379, "/health") == (200, '{"health":"true"}') for host in self.hosts)

    def state(self, ask=None):
        """Patroni's list of members, as one of the hosts shows it that answers; [] when none does."""
        for host in ask or self.hosts:
            answer = self.ask(host.address, 8008, "/cluster")
            if answer and answer[0] == 200:
                return json.loads(answer[1]).get("members", [])
        return []

    def leader(self):
        """The name of the primary that really is one, or None."""
        for host in self.hosts:
            answer = self.ask(host.address, 8008, "/primary")
            if answer and answer[0] == 200:
                return host.name
        return None

    def top(self):
        """The host that is the primary, or leads a standby cluster; None."""
        return next((self.by_name[member["name"]] for member in self.state()
                     if "leader" in member["role"] and member["state"] in ("running", "streaming")), None)

    def primary(self):
        name = self.leader()
        return self.by_name[name] if name else None

    def roles(self):
        standbys = ["replica"] * (len(self.hosts) - 1)
        if self.is_synchronous:
            standbys[-1] = "sync_standby"
        return ["leader", *standbys]

    def why_unwell(self):
        """None: a primary and its standbys that stream from it, one of them synchronous, and etcd is whole."""
        if not self.etcd_is_well():
            return "etcd is not whole"
        members = self.state()
        roles = sorted(member["role"] for member in members)
        if roles != self.roles():
            return "roles: %s" % ", ".join("%s %s %s" % (member["name"], member["role"], member["state"])
                                           for member in members)
        if len({member.get("timeline") for member in members}) != 1:
            return "timelines: %s" % ", ".join("%s %s" % (member["name"], member.get("timeline"))
                                               for member in members)
        if any(member["state"] not in ("running", "streaming") for member in members):
            return "states: %s" % ", ".join("%s %s" % (member["name"], member["state"]) for member in members)
        first = next(member["name"] for member in members if "leader" in member["role"])
        streaming = self.sql_on(self.by_name[first], "SELECT count(*) FROM pg_stat_replication WHERE state ="
                                " 'streaming' AND application_name IN ('%s')" % "', '".join(self.by_name))
        return None if streaming == str(len(self.hosts) - 1) else "standbys that stream: %s" % streaming

    def wait_well(self, seconds):
        deadline = time.monotonic() + seconds
        while True:
            try:
                why = self.why_unwell()
            except (harness.Failed, socket.error, ValueError, KeyError) as error:
                why = str(error)
            if why is None:
                return
            if time.monotonic() > deadline:
                raise harness.Failed("the cluster is not well within %d s: %s" % (seconds, why))
            time.sleep(0.3)

    # ---- what they are told ----

    def patronictl(self, *words, **more):
        """As the README types it, on the first host that runs."""
        host = next(host for host in self.hosts if host.is_on())
        return host.as_postgres("patronictl", "-c", "/etc/patroni/config.yml", *words, **more)

    def switchover(self, leader, candidate):
        basic = base64.b64encode(("patroni:" + self.passwords["rest"]).encode()).decode()
        answer = self.ask(self.by_name[leader].address, 8008, "/switchover", "POST",
                          json.dumps({"leader": leader, "candidate": candidate}),
                          {"Authorization": "Basic " + basic, "Content-Type": "application/json"},
                          harness.STUCK_AFTER_S)
        return answer

    @staticmethod
    def sql_on(host, text, database="postgres", role="postgres"):
        return host.as_postgres("env", "PGOPTIONS=-c search_path=issuing,public", *QUERY, "-U", role, "-d",
                                database, "-f", "-", input=text).strip()
