"""limiters: the ways to stop a double submit, side by side on one machine with the same streams of requests:
double taps, bursts of one user, many users, clients and servers that are killed between two steps. docs/limiters.md
explains each way."""
import subprocess

from limiter_ground import Ground, Held, Limiter, NAMES, Pooler
from stack import BUILD, CLUSTER, RUN

WINDOW_MS = 60000
PAIRS, TAPS, SPREAD_US = 8, 60, 5000
BURST, BURSTS, BURST_LIMIT = 50, 10, 5
CLIENTS = 16
LIMIT_S = 30
FORMAT = "  {:<22} {:>13} {:>15} {:>6} {:>9} {:>7}  {:<26} {:<26} {}"


def pair(found):
    """wrongly accepted / wrongly refused"""
    return f"{found['over']} / {found['under']}" if found else f"> {LIMIT_S} s"


def after_death(ground, limiter):
    """The client is killed before each of its steps. Where is the next request of this user not accepted, though the
    first one has left nothing that is acted on?"""
    left = []
    for steps, name in enumerate(limiter.steps):
        user = f"dead-{steps}"
        held = Held(ground, limiter, user, steps)
        held.kill()
        result = ground.one(limiter, user, f"next-{user}")
        is_recorded = limiter.name != "count_after_commit" and ground.sql(
            f"SELECT count(*) FROM log WHERE request = 'held-{user}'", ground.database(limiter)) != "0"
        if result != "accepted" and not is_recorded:
            left.append(f"{result} before {name}")
    return ", ".join(left) or "nothing"


def restart(ground, limiter):
    if limiter.has_redis:
        ground.redis.kill()
        ground.redis.start()
    else:
        subprocess.run([ground.cluster, "restart", str(ground.folder), "immediate"], check=True, capture_output=True)


def after_crash(ground, limiter):
    """The server is killed behind a request that was accepted, and before the last step of another one."""
    found = []
    ground.one(limiter, "crash", "first")
    held = Held(ground, limiter, "half", len(limiter.steps) - 1)
    restart(ground, limiter)
    held.go_on()
    second = ground.one(limiter, "crash", "second")
    if second != "refused":
        found.append(f"a second one {second}")
    recorded = ground.sql("SELECT count(*) FROM log WHERE user_id = 'half'", ground.database(limiter)) != "0"
    third = ground.one(limiter, "half", "next-half")
    if third != ("refused" if recorded else "accepted"):
        found.append(f"next one {third}")
    return ", ".join(found) or "nothing"


def after_failover(ground, limiter):
    """Redis answers before its replica has the write; the replica is promoted then."""
    replica = ground.redis.replica(ground.folder / "replica")
    try:
        replica.command("REPLICAOF", "NO", "ONE")
        ground.one(limiter, "failover", "failover-1")
        result = ground.one(limiter, "failover", "failover-2", redis=replica.address)
    finally:
        replica.stop()
    return "" if result == "refused" else f"failover: a second one {result}"


def through_pooler(ground, limiter, pooler):
    """What a pooler by transactions does to it; two requests of one user, one after the other, then of another one."""
    conninfo = pooler.conninfo(ground, limiter)
    ground.groups(limiter, WINDOW_MS, 4, 1, 20, 1, 0, conninfo=conninfo) # opens all sessions of the pool
    results = [ground.one(limiter, "pooled", f"p{i}", conninfo=conninfo) for i in range(3)]
    return "" if results == ["accepted", "refused", "refused"] else "pooler: " + ", ".join(results)


def measure(ground, limiter, seconds):
    ground.prepare(limiter)
    limit = 1 if limiter.is_one_only else BURST_LIMIT
    taps = ground.groups(limiter, WINDOW_MS, PAIRS, 2, TAPS, 1, SPREAD_US, limit_s=LIMIT_S)
    burst = ground.groups(limiter, WINDOW_MS, 1, BURST, BURSTS, limit, 0, limit_s=LIMIT_S)
    load = ground.load(limiter, CLIENTS, seconds)
    found = {"limiter": limiter.name, "what": limiter.what, "needs": limiter.needs, "taps": taps, "burst": burst,
             "load": load, "after_death": after_death(ground, limiter), "after_crash": after_crash(ground, limiter)}
    if limiter.has_redis:
        found["more"] = after_failover(ground, limiter)
        return found
    pooler = Pooler(ground)
    try:
        found["more"] = through_pooler(ground, limiter, pooler)
    finally:
        pooler.stop()
    return found


def show(found):
    twice = sum(part["effects_more"] for part in (found["taps"], found["burst"]) if part)
    print(FORMAT.format(found["limiter"], pair(found["taps"]), pair(found["burst"]), twice or "",
                        f"{found['load']['rate']:,.0f}", f"{found['load']['p99_us'] / 1000:.1f}",
                        found["after_death"], found["after_crash"], found["more"]).rstrip(), flush=True)


def run(_stack, table, options):
    table.section("limiters", f"{PAIRS * TAPS} double taps up to {SPREAD_US / 1000:.0f} ms apart, one may pass; {BURSTS}"
                  f" bursts of {BURST} requests, {BURST_LIMIT} may pass; {CLIENTS} clients with many users")
    print(FORMAT.format("wrongly accepted / refused:", "taps", "bursts", "twice", "requests/s", "p99 ms",
                        "left by a killed client", "left by a killed server", "").rstrip(), flush=True)
    ground = Ground(BUILD / "bench" / "bench_limiters", CLUSTER, RUN / "limiters")
    try:
        for limiter in map(Limiter, NAMES):
            if limiter.has_redis and not ground.redis:
                table.remark(f"{limiter.name}: Redis is not installed")
                continue
            found = measure(ground, limiter, options.seconds)
            table.write({"part": "limiters", **found})
            show(found)
    finally:
        ground.close()
    table.remark("twice: how often a call to another service was made more than once for one request")
