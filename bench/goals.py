"""What counts as good, in one place: by the key of a row, (comparison, number). Of the ratio where the row has a limit,
else of the value.

The goals were set before the programs were fast, from what the best systems of this kind did on such a machine. A limit
is what the same machine does in the same run without the program between.
"""

AT_LEAST, AT_MOST = ">=", "<="

GOALS = {
    "accept.1.time": (AT_MOST, 1.05),          # of one durable transaction and one HTTP hop; a twentieth is noise
    "accept.64.rate": (AT_LEAST, 2.0),         # of one transaction per request, 16 at a time
    "accept.64.p99": (AT_MOST, 10.0),
    "accept.64.listened": (AT_LEAST, 0.9),     # of the same without anybody to wake; a tenth is noise
    "accept.64.unwoken": (AT_MOST, 1.1),       # a wake-up costs less than the noise
    "issue.1.http": (AT_LEAST, 0.4),           # of wrk, which verifies and stores nothing
    "issue.1.all_cpu": (AT_MOST, 0.1),         # worker and database
    "issue.https.worker.rate": (AT_LEAST, 0.75), # of the same in clear text
    "issue.https.worker.cpu": (AT_MOST, 1.6),
    "issue.peer.https.gain": (AT_LEAST, 3.5),
    "issue.2.gain": (AT_LEAST, 0.95),          # of one worker: a second one never takes away
    "latency.p50": (AT_MOST, 1.5),
    "latency.p99": (AT_MOST, 5.0),
    "fair.100.post.p50": (AT_MOST, 3.0),      # of the same without other users
    "fair.100.get.p50": (AT_MOST, 3.0),
    "fair.2000.post.p50": (AT_MOST, 3.0),
    "fair.2000.get.p50": (AT_MOST, 3.0),
    "fair.9000.post.p50": (AT_MOST, 3.0),
    "fair.9000.get.p50": (AT_MOST, 3.0),
    "memory.api.load": (AT_MOST, 20.0),
    "memory.worker.load": (AT_MOST, 20.0),
    "memory.api.waiting": (AT_MOST, 100.0),
    "memory.worker.in_flight": (AT_MOST, 100.0),
    "slow.500": (AT_LEAST, 0.9),             # of what the peers' 100 ms alone would allow
    "slow.500.slots": (AT_LEAST, 0.9),       # of what the time of an event allows: slots are not left empty
    "slow.5000": (AT_LEAST, 0.9),
    "slow.5000.slots": (AT_LEAST, 0.9),
    "routes.1.http": (AT_LEAST, 0.25),       # of wrk, which stores nothing
    "routes.1.cards": (AT_LEAST, 1.0),       # one call instead of three
    "routes.dead.cards": (AT_LEAST, 0.95),   # of the same rows without a route
    "routes.dead.notes": (AT_LEAST, 0.95),
    "routes.slow.cards": (AT_LEAST, 0.95),
    "routes.slow.notes": (AT_LEAST, 0.95),
    "routes.back": (AT_LEAST, 0.9),          # of a backlog that never had to wait
    "traces.accept.hundredth": (AT_LEAST, 0.98), # of the same without an exporter
    "traces.issue.hundredth": (AT_LEAST, 0.98),
    "traces.accept.all": (AT_LEAST, 0.9),
    "traces.issue.all": (AT_LEAST, 0.9),
    "growth.stale.drain": (AT_LEAST, 0.8),
    "growth.stale.drain.cpu": (AT_MOST, 1.25),
    "growth.pending.drain.cpu": (AT_MOST, 1.25),
    "growth.finished.accept.cpu": (AT_MOST, 1.25),
    "growth.pending.rate": (AT_LEAST, 0.9),
    "growth.pending.drain": (AT_LEAST, 0.9),
    "growth.finished.rate": (AT_LEAST, 0.9),
    "growth.finished.drain": (AT_LEAST, 0.9),
    "growth.finished.p50": (AT_MOST, 1.25),
    "snapshot.held.rate": (AT_LEAST, 0.95),  # of the same minutes without a snapshot
    "snapshot.held.accept.p99": (AT_MOST, 1.5),
    "snapshot.held.completed.p99": (AT_MOST, 1.5),
    "soak.late.api": (AT_MOST, 1.05),        # of the memory early on; flat
    "soak.late.worker": (AT_MOST, 1.05),
}


def judge(key, number):
    """(goal as text, whether reached) or (None, None) where no goal is set."""
    key = key.split("@")[0] # what follows is a size
    if key not in GOALS:
        return None, None
    comparison, goal = GOALS[key]
    return f"{comparison} {goal:g}", number >= goal if comparison == AT_LEAST else number <= goal
