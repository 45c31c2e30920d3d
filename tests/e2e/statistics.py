"""The statistics count the ends in a table of their own: however the ends came about, the statistics are what the rows
say as soon as the traffic stops, and a rebuild repairs them under load."""
import json
import threading

from console import Console
from crashes import SHORT
from harness import assert_equal, assert_true, slow, test, wait_until
from operators import lines


def stats(world, *words):
    return lines(world.ctl("stats", *words, "--json"))


def differ(world, *words):
    """What the statistics and the rows say, where that is not the same; None = it is."""
    followed, exact = stats(world, *words), stats(world, "--exact", *words)
    return None if followed == exact else (followed, exact)


def total(rows, status, reason=None):
    return sum(row["count"] for row in rows if row["status"] == status and row["reason"] == reason)


def same(world):
    wait_until(lambda: not differ(world), "statistics that are what the rows say")
    for by in ("hour", "day"):
        assert_equal(differ(world, "--by", by), None, "by " + by)


@test(**SHORT)
def statistics_are_what_the_rows_say_after_kills_replays_and_resolves(world):
    world.up(workers=2)
    for user in ("f1", "f2", "f3"):
        world.sandbox.fault("create", "status", user=user, status=418)
    world.sandbox.fault("check", "ineligible", user="r1")
    requests = {user: world.accept(user) for user in ["f1", "f2", "f3", "r1"] + ["u%d" % n for n in range(20)]}
    first = world.workers()[0]
    first.kill()
    more = [world.accept("v%d" % n) for n in range(20)]
    world.start_worker()
    world.settle()
    same(world)
    rows = stats(world)
    assert_equal(total(rows, "COMPLETED"), len(requests) - 4 + len(more), "completed")
    assert_equal(sum(row["count"] for row in rows if row["status"] == "FAILED"), 3, "failed")
    world.sandbox.clear()
    assert_equal(world.ctl("replay", requests["f1"], requests["f2"], "--reason", "x").returncode, 0, "replay")
    assert_equal(world.ctl("resolve", requests["f3"], "--confirm-no-card", "--reason", "x").returncode, 0, "resolve")
    world.settle()
    same(world)
    rows = stats(world)
    assert_equal((total(rows, "COMPLETED"), total(rows, "REJECTED", "resolved")),
                 (len(requests) - 2 + len(more), 1), "completed and resolved")
    assert_equal([row["count"] for row in rows if row["status"] == "FAILED"], [], "failed")
    wait_until(lambda: world.workers()[-1].metric("issuing_statistics_lag_seconds") == 0, "no lag")
    assert_true("COMPLETED" in world.ctl("stats", "--by", "day").stdout, "for people")
    assert_true("Events by the day in which they ended" in Console(world).enter().page("/statistics"), "the page")


@slow
@test(**SHORT)
def a_rebuild_under_load_repairs_the_statistics(world):
    world.up(workers=2)
    is_over = threading.Event()

    def load():
        n = 0
        while not is_over.is_set():
            world.accept("u%d" % n)
            n += 1
    loads = threading.Thread(target=load)
    loads.start()
    try:
        wait_until(lambda: total(stats(world), "COMPLETED") > 20, "ends")
        world.sql("UPDATE issuing.outbox_statistics SET count = count * 3, sum_ms = 0")
        for _ in range(5):
            done = world.ctl("stats", "--rebuild", "--reason", "wrong", "--json")
            assert_equal((done.returncode, json.loads(done.stdout)["result"]), (0, "rebuilt"), done.stderr)
        world.workers()[0].kill()
    finally:
        is_over.set()
        loads.join()
    world.settle()
    same(world)
    assert_equal(world.sql("SELECT count(*) FROM issuing.operator_actions WHERE action = 'rebuild_statistics' AND"
                           " reason = 'wrong'"), "5", "on record")


@test
def stats_says_what_it_does_not_take(world):
    for words in (("--by", "week"), ("--since", "x"), ("--rebuild",), ("--reason", "x"), ("x",),
                  ("--rebuild", "--exact", "--reason", "x")):
        assert_equal(world.ctl("stats", *words).returncode, 2, repr(words))
    done = world.ctl("stats")
    assert_equal((done.returncode, done.stdout, done.stderr), (0, "", "No event has ended in this time.\n"), "empty")
    world.sql("INSERT INTO issuing.statistics_changes (at, ended_at, event_type, status, reason_code, below_ms, count,"
              " sum_ms) VALUES (now() - interval '1 h', now(), 'T', 'FAILED', '', 10, 1, 1)")
    assert_true("1 h" in world.ctl("stats").stderr, "no worker folds, and stats says so")


@test
def the_lag_of_the_statistics_is_a_metric_also_while_no_worker_runs(world):
    world.up(workers=0)
    api = world.apis()[0]
    world.sql("INSERT INTO issuing.statistics_changes (at, ended_at, event_type, status, reason_code, below_ms, count,"
              " sum_ms) VALUES (now() - interval '1 h', now(), 'T', 'FAILED', '', 10, 1, 1)")
    wait_until(lambda: api.metric("issuing_statistics_lag_seconds") >= 3600, "the lag, as the api shows it")
    world.start_worker()
    wait_until(lambda: api.metric("issuing_statistics_lag_seconds") == 0, "no lag")
    assert_equal(stats(world)[0]["count"], 1, "it is folded")
