"""When what happened in a failover: from etcd (the lock), from the log of the new primary's PostgreSQL (promoted, a
standby attached), from the logs of the apis (noticed), from the clients' history (accepted) and from the tables
(issued). The clocks of all hosts are the machine's. Times are seconds since 1970, in a time line since the fault.

Until the lock is free, the new primary is promoted and a standby is attached to it, the seconds are Patroni's and
PostgreSQL's; those from there to the first acceptance are ours.
"""
import datetime
import http.client
import json
import re
import threading
import time
import urllib.request

LOCK = "/service/issuing/leader"
STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) UTC (.*)$")
AWAY = re.compile(r'^\{"ts":"([^"Z]+)Z".*"msg":"database away"')
STEPS = ("noticed", "lock_free", "lock_taken", "promoted", "attached", "accepted", "issued")
TAIL_BYTES = 8 << 20


def seconds_of(stamp):
    return datetime.datetime.fromisoformat(stamp).replace(tzinfo=datetime.timezone.utc).timestamp()


def tail(path):
    try:
        with open(path, errors="replace") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            yield from file
    except OSError:
        return


def logged(path, pattern, is_wanted, since):
    """The moments after that one at which such a line was logged."""
    found = (pattern.match(line) for line in tail(path) if is_wanted(line))
    return [when for when in (seconds_of(each.group(1)) for each in found if each) if when >= since]


class Lock(threading.Thread):
    """Watches the leader's key at one etcd, and again after a loss."""

    def __init__(self, host, found):
        super().__init__(daemon=True)
        self.host, self.found, self.index = host, found, None

    def run(self):
        while True:
            try:
                self.wait_one()
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                self.index = None
                time.sleep(0.3)

    def wait_one(self):
        url = "http://%s:2379/v2/keys%s?wait=true" % (self.host.address, LOCK)
        if self.index:
            url += "&waitIndex=%d" % (self.index + 1)
        with urllib.request.urlopen(url, timeout=10) as answer:
            event = json.load(answer)
        self.index = event["node"]["modifiedIndex"]
        # A host that was away is told late: of each change the first report counts.
        self.found.setdefault(self.index, (time.time(), event["node"].get("value")))


class Times:
    """mark() before a trouble, line() after it."""

    def __init__(self, cluster, world, accepts):
        self.cluster, self.world, self.accepts = cluster, world, accepts
        self.before, self.fault, self.locks = None, None, {}
        for host in cluster.hosts:
            Lock(host, self.locks).start()

    def mark(self, leader):
        self.before, self.fault = leader, time.time()

    def lock_moved(self, since):
        """Free since, taken at, by whom, as far as it happened."""
        free = None
        for when, value in sorted((each for each in list(self.locks.values()) if each[0] >= since),
                                  key=lambda each: each[0]):
            if value is None:
                free = free or when
            elif free or value != self.before:
                return free, when, value
        return free, None, None

    def line(self, kind, number):
        """One time line."""
        since, accepts = self.fault, self.accepts.look()
        free, taken, owner = self.lock_moved(since)
        found = {"lock_free": free if owner else None, "lock_taken": taken}
        quiet = accepts.longest_silence(since - 1)
        if owner:
            log = self.cluster.by_name[owner].folder / "postgresql" / "issuing.log"
            found["promoted"] = min(logged(log, STAMP, lambda line: "archive recovery complete" in line, taken),
                                    default=None)
            found["accepted"] = accepts.first_after(found["promoted"] or taken)
            # The last one before the acceptance: a standby that had more than the new primary attaches, must be
            # rewound, and attaches again. (The log is written a moment after.)
            found["attached"] = max((when for when in logged(log, STAMP, lambda line: "is now a synchronous standby" in
                                                             line, found["promoted"] or taken)
                                     if when <= (found["accepted"] or since) + 0.05), default=None)
        else:
            found["accepted"] = quiet[1]
        served = found["accepted"] or since
        # An end has the time of its statement: one before a standby was attached was committed only then.
        found["issued"] = self.first_issue(found.get("attached") or found.get("promoted") or served)
        noticed = [when for api in self.world.apis() for when in logged(api.log, AWAY, lambda _: True, since)]
        found["noticed"] = min((when for when in noticed if when < served), default=None)
        row = {"number": number, "kind": kind, "at": round(since, 3), "from": self.before, "to": owner,
               "without": round(quiet[1] - quiet[0], 3)}
        row.update({step: round(found[step] - since, 3) for step in STEPS if found.get(step)})
        if row.get("accepted") and row.get("attached"):
            row["ours"] = round(max(0, row["accepted"] - row["attached"]), 3)
        return row

    def first_issue(self, since):
        found = self.world.sql("SELECT extract(epoch FROM min(completed_at)) FROM outbox_events WHERE status ="
                               " 'COMPLETED' AND completed_at > to_timestamp(%f)" % since)
        return float(found) if found else None


# ---- what it comes to ------------------------------------------------------------------------------------------------


def median(values):
    """None of none. (The name statistics is that of a story of tests/e2e.)"""
    ordered, half = sorted(values), len(values) // 2
    if len(ordered) % 2 == 0:
        return (ordered[half - 1] + ordered[half]) / 2 if ordered else None
    return ordered[half]


def shown(value):
    return "%9.1f" % value if value is not None else "        -"


def summary(rows):
    """Lines: for each kind of trouble the medians in seconds since the fault; "ours" and the time without acceptance
    also at their worst."""
    found = ["%-28s %4s %s %20s %20s" % ("trouble", "n", " ".join("%10s" % step for step in STEPS), "ours, worst",
                                        "without, worst")]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind]
        values = {name: [row[name] for row in mine if row.get(name) is not None]
                  for name in (*STEPS, "ours", "without")}
        pairs = ["%s %s" % (shown(median(values[name])), shown(max(values[name], default=None)))
                 for name in ("ours", "without")]
        found.append("%-28s %4d  %s  %s  %s" % (kind, len(mine), "  ".join(shown(median(values[step]))
                                                                         for step in STEPS), *pairs))
    return found
