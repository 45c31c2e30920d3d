"""What counts as good, in one place: by the key of a row, (comparison, number). Of the ratio where the row has a limit, else of the value.

Where they come from: a limit is what the same machine does in the same run without the program between; the rest are the best figures that
other systems of this kind reached on two cores (1.3/6.2 ms from commit to completed, 130 MB, a third of the speed left behind an old
snapshot, 2.0 kB of WAL an event).
"""

AT_LEAST, AT_MOST = ">=", "<="

GOALS = {
    "accept.1.time": (AT_MOST, 1.25),          # of one durable transaction and one HTTP hop
    "accept.64.rate": (AT_LEAST, 1.0),         # of one transaction per request, 16 at a time
    "accept.64.four": (AT_LEAST, 2.0),         # of BEGIN, four statements, COMMIT
    "accept.64.listened": (AT_LEAST, 0.95),    # of the same without anybody to wake
    "accept.64.unwoken": (AT_MOST, 1.1),       # a wake-up costs less than a tenth
    "issue.1.http": (AT_LEAST, 0.4),           # of wrk, which verifies and stores nothing
    "issue.1.calls": (AT_LEAST, 0.6),          # of the same three calls without a database
    "issue.1.both": (AT_LEAST, 0.6),           # of cores filled with the same calls and statements and nothing else
    "issue.2.both": (AT_LEAST, 0.7),
    "latency.p50": (AT_MOST, 2.0),
    "latency.p99": (AT_MOST, 6.2),
    "latency.load.10.p99": (AT_MOST, 10.0),
    "latency.load.50.p99": (AT_MOST, 20.0),
    "memory.api.idle": (AT_MOST, 20.0),
    "memory.worker.idle": (AT_MOST, 20.0),
    "memory.api.load": (AT_MOST, 64.0),
    "memory.worker.load": (AT_MOST, 64.0),
    "memory.api.waiting.each": (AT_MOST, 20.0),
    "memory.worker.in_flight.each": (AT_MOST, 40.0),
    "slow.500": (AT_LEAST, 0.9),
    "slow.5000": (AT_LEAST, 0.5),
    "growth.stale.drain": (AT_LEAST, 0.8),
    "growth.stale.drain.cpu": (AT_MOST, 1.25),
    "growth.pending.drain.cpu": (AT_MOST, 1.25),
    "growth.finished.accept.cpu": (AT_MOST, 1.25),
    "growth.pending.rate": (AT_LEAST, 0.8),
    "growth.pending.drain": (AT_LEAST, 0.8),
    "growth.finished.rate": (AT_LEAST, 0.8),
    "growth.finished.drain": (AT_LEAST, 0.8),
    "growth.finished.p50": (AT_MOST, 1.5),
    "snapshot.held.rate": (AT_LEAST, 0.95),
    "snapshot.held.accept.p99": (AT_MOST, 2.0),
    "snapshot.held.completed.p99": (AT_MOST, 2.0),
    "snapshot.held.cpu": (AT_MOST, 1.3),
    "wal.load.bytes": (AT_MOST, 2900.0),       # 0.86 kB of acceptance and 2.0 kB of the rest
    "wal.slow.bytes": (AT_MOST, 5000.0),
}


def judge(key, number):
    """(goal as text, whether reached) or (None, None) where no goal is set."""
    key = key.split("@")[0] # what follows is a size
    if key not in GOALS:
        return None, None
    comparison, goal = GOALS[key]
    return f"{comparison} {goal:g}", number >= goal if comparison == AT_LEAST else number <= goal
