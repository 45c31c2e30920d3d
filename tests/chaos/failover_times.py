"""When what happened in a failover: from etcd (the lock), from the log of the new primary's PostgreSQL (promoted, a
standby attached), from the clients' history (accepted) and from the tables (issued). Clocks of all hosts are one, the
machine's. Times are seconds since 1970.

The seconds until the lock is free and the new primary is promoted and has a synchronous standby are Patroni's and
PostgreSQL's. Those from there to the first acceptance are ours.
"""
import base64
import datetime
import json
import re
import socket
import statistics
import threading
import time
import urllib.error
import urllib.request

LOCK = b"/service/issuing/leader"
STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3})(?: UTC)? (.*)$")
STEPS = ("noticed", "lock_free", "lock_taken", "promoted", "attached", "accepted", "issued")


def seconds_of(stamp):
    return datetime.datetime.strptime(stamp.replace(",", "."), "%Y-%m-%d %H:%M:%S.%f").replace(
        tzinfo=datetime.timezone.utc).timestamp()


class Lock(threading.Thread):
    """Watches the leader's key at one etcd, and again after a loss."""

    def __init__(self, host, found):
        super().__init__(daemon=True)
        self.host, self.found, self.is_over = host, found, threading.Event()

    def run(self):
        body = json.dumps({"create_request": {"key": base64.b64encode(LOCK).decode()}}).encode()
        while not self.is_over.is_set():
            try:
                request = urllib.request.Request("http://%s:2379/v3/watch" % self.host.address, body)
                with urllib.request.urlopen(request, timeout=30) as stream:
                    for line in stream:
                        self.take(line)
            except (OSError, urllib.error.URLError, socket.timeout, ValueError):
                self.is_over.wait(0.3)

    def take(self, line):
        for event in json.loads(line).get("result", {}).get("events", []):
            value = base64.b64decode(event.get("kv", {}).get("value", "")).decode()
            # A host that was away is told late: of each revision the first report counts.
            revision = event.get("kv", {}).get("mod_revision")
            self.found.setdefault(revision, (time.time(), value if event.get("type") != "DELETE" else None))


class Times:
    """mark() before a trouble, line() after it."""

    def __init__(self, cluster, world, accepts):
        self.cluster, self.world, self.accepts = cluster, world, accepts
        self.locks = {}
        self.watchers = [Lock(host, self.locks) for host in cluster.hosts]
        for watcher in self.watchers:
            watcher.start()

    def lock_events(self, since):
        return sorted(event for event in list(self.locks.values()) if event[0] >= since)

    def lock_moved(self, since):
        """(free since, taken at, by whom), as far as it happened."""
        free = taken = owner = None
        for when, value in self.lock_events(since):
            if value is None:
                free = free or when
            elif free is not None or value != self.before:
                taken, owner = when, value
                break
        return free, taken, owner

    def mark(self, leader):
        self.before = leader
        self.fault = time.time()
        return self.fault

    def in_log(self, path, words, since):
        """When one of these words was first logged after that moment."""
        try:
            with open(path, errors="replace") as file:
                file.seek(max(0, path.stat().st_size - (4 << 20)))
                for line in file:
                    found = STAMP.match(line)
                    if found and any(word in found.group(2) for word in words):
                        when = seconds_of(found.group(1))
                        if when >= since:
                            return when
        except OSError:
            pass
        return None

    def line(self, kind, number):
        """One time line: what happened how many seconds after the fault."""
        since, accepts = self.fault, self.accepts.look()
        free, taken, owner = self.lock_moved(since)
        row = {"number": number, "kind": kind, "at": since, "from": self.before, "to": owner, "lock_free": free,
               "lock_taken": taken}
        served = since
        if owner:
            log = self.cluster.by_name[owner].folder / "postgresql" / "issuing.log"
            row["promoted"] = self.in_log(log, ["database system is ready to accept connections",
                                                "archive recovery complete"], free or since)
            row["attached"] = self.in_log(log, ["is now a synchronous standby"], row["promoted"] or taken)
            served = row["attached"] or row["promoted"] or taken
            row["accepted"] = accepts.first_after(row["promoted"] or taken)
        else:
            row["accepted"] = accepts.first_after(served)
        if row["accepted"]:
            row["noticed"] = accepts.last_before(row["accepted"])
            row["without"] = round(row["accepted"] - row["noticed"], 3) if row["noticed"] else None
        issued = self.world.sql("SELECT extract(epoch FROM min(completed_at)) FROM outbox_events WHERE status ="
                                " 'COMPLETED' AND completed_at > to_timestamp(%f)" %
                                (row.get("promoted") or row["accepted"] or since))
        row["issued"] = float(issued) if issued else None
        for step in STEPS:
            if row.get(step):
                row[step] = round(row[step] - since, 3)
        if row.get("accepted") and row.get("attached"):
            row["ours"] = round(row["accepted"] - row["attached"], 3)
        return row

    def stop(self):
        for watcher in self.watchers:
            watcher.is_over.set()


def shown(value):
    return "%6.1f" % value if value is not None else "     -"


def summary(rows):
    """Lines: for each kind of trouble the medians, and the longest time without acceptance."""
    found = ["%-24s %4s  %s  %s  %s" % ("trouble", "n", " ".join("%10s" % step for step in STEPS), "ours (max)",
                                        "without (max)")]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind]

        def middle(name):
            values = [row[name] for row in mine if row.get(name) is not None]
            return statistics.median(values) if values else None

        def most(name):
            return max((row[name] for row in mine if row.get(name) is not None), default=None)
        found.append("%-24s %4d  %s  %s %s  %s %s" % (kind, len(mine), " ".join("    " + shown(middle(step))
                                                                            for step in STEPS),
                                                     shown(middle("ours")), shown(most("ours")),
                                                     shown(middle("without")), shown(most("without"))))
    return found
