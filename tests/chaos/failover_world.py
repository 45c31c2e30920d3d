"""The programs in front of the cluster: two apis, two workers and the sandbox; and the clients, whose history also says
when each call began, and whether a 503 said when to come again."""
import bisect
import collections
import json
import pathlib
import re
import secrets

import failover_lab as lab
import harness
import load

ROLES = ("issuing_owner", "issuing_api", "issuing_worker", "issuing_operator")
CLIENTS = 6
SETTINGS = {"limit.count": "1000000", "worker.poll_interval": "200ms", "worker.lease": "10s", "issuer.timeout": "2s",
            "issuer.settle_time": "4s", "core.timeout": "2s", "retry.base": "100ms", "retry.cap": "2s",
            "breaker.failures": "1000", "log.level": "info", "worker.max_in_flight": "32",
            "database.allow_insecure": "true"}


class Stage:
    """What a World wants of its suite."""

    def __init__(self, folder):
        self.dir = folder
        self.secret = secrets.token_hex(48).encode()
        self.secret_file, self.empty_file, self.keys_file = (folder / name for name in ("secret", "empty.conf",
                                                                                        "card.keys"))
        self.secret_file.write_bytes(self.secret + b"\n")
        self.secret_file.chmod(0o600)
        self.empty_file.write_text("")
        made = harness.run([harness.BUILD / "issuing-ctl", "--config=%s" % self.empty_file, "keys", "generate",
                            self.keys_file])
        if made.returncode != 0:
            raise harness.Failed("issuing-ctl keys generate: " + made.stderr)

    @staticmethod
    def numbered(_):
        return False


class World(harness.World):
    """Its database is the cluster's; SQL of the test runs on the primary's host, as its superuser."""

    def __init__(self, stage, cluster, settings=None):
        super().__init__(stage, "programs", settings or SETTINGS)
        self.cluster = cluster
        self.passwords = {role: secrets.token_hex(12) for role in ROLES}
        self.pgpass = self.dir / "pgpass"
        self.pgpass.write_text("".join("*:*:*:%s:%s\n" % pair for pair in self.passwords.items()))
        self.pgpass.chmod(0o600)
        self.tokens = load.Tokens(self.secret)

    def conninfo(self, role):
        """That of examples/patroni, with the password file of this run."""
        text = (lab.EXAMPLES / "issuing.conf").read_text()
        url = re.search(r"^url = (.*)$", text, re.MULTILINE).group(1)
        return "%s passfile='%s' user=%s" % (url, self.pgpass, role)

    def create_database(self, names=("issuing",), url="issuing", flags=()):
        primary = self.cluster.primary()
        for name in names:
            self.cluster.sql_on(primary, "CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8'" % name)
        primary.on_machine("install", "-m", "755", harness.BUILD / "issuing-ctl", "/run/issuing-ctl")
        primary.as_postgres("/run/issuing-ctl", "--config=/dev/null", *flags,
                            "--database.url=host=/run/postgresql dbname=%s user=postgres" % url, "migrate")
        for role, password in self.passwords.items():
            self.cluster.sql_on(primary, "ALTER ROLE %s PASSWORD '%s'" % (role, password))

    def drop_database(self):
        pass

    def sql(self, text, role="postgres"):
        primary = self.cluster.primary()
        if primary is None:
            raise OSError("no primary")
        return self.cluster.sql_on(primary, text, "issuing", role)

    def start_all(self):
        self.up(apis=2, workers=2)


class Client(load.Client):
    """Repeats a key until it is decided, and comes again when the answer says so, at the latest after a second."""

    def request(self, user, key, body):
        apis = self.world.apis()
        chosen = self.random.sample(apis, 2 if self.random.random() < load.TWICE else 1)
        begun, found = self.history.seconds(), None
        for answer in self.send([api.port for api in chosen], self.world.post_bytes(user, key, body)):
            if answer is not None:
                found = 202 if 202 in (found, answer.status) else answer.status
                self.history.put("answer", user=user, key=key, kind=body["kind"], status=answer.status, begun=begun,
                                 body=answer.body.decode(), retry_after=answer.header("Retry-After"),
                                 replayed=answer.header("Idempotent-Replayed"))
        if found is None:
            self.history.put("silence", user=user, key=key, begun=begun)
        return found


class Accepts:
    """A look at the history while it grows: when requests were accepted, and which."""

    def __init__(self, history):
        self.file = open(pathlib.Path(history.path))
        self.history = history
        self.times, self.ids = [], []  # of answers 202, in order
        self.statuses = collections.Counter()
        self.without_retry_after = []

    def look(self):
        while True:
            at = self.file.tell()
            line = self.file.readline()
            if not line.endswith("\n"):
                self.file.seek(at)
                return self
            if '"what": "answer"' in line:
                self._take(json.loads(line))

    def _take(self, row):
        status = row["status"]
        self.statuses[status] += 1
        if status == 202:
            self.times.append(self.history.begun_wall + row["t"])
            self.ids.append((json.loads(row["body"])["id"], row["user"], row["key"]))
        elif status == 503 and not re.fullmatch(r"[1-9]\d*", row["retry_after"] or ""):
            self.without_retry_after.append(row["body"])

    def first_after(self, moment):
        at = bisect.bisect_right(self.times, moment)
        return self.times[at] if at < len(self.times) else None

    def longest_silence(self, since):
        """The longest time without an acceptance that ended after that moment: its beginning and its end."""
        longest = (since, since)
        for at in range(len(self.times) - 1, 0, -1):
            if self.times[at] < since:
                break
            if self.times[at] - self.times[at - 1] > longest[1] - longest[0]:
                longest = self.times[at - 1], self.times[at]
        return longest
