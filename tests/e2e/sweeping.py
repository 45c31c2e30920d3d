"""Claims never look back behind their bookmark; what turns up there is found by the sweep, soon, whatever went on
before."""
import time

from harness import assert_equal, slow, test, wait_until

DUE = "INSERT INTO outbox_events (user_id, payload, next_attempt_at) VALUES ('%s', '{\"kind\": \"new\"}', %s)"


@test
def what_turns_up_behind_the_bookmark_is_issued(world):
    world.up()
    world.issue("alice")
    for user, due_at in (("old", "now() - interval '1 hour'"), ("oldest", "'-infinity'"),
                         ("lately", "now() - interval '5 s'")):
        world.sql(DUE % (user, due_at))
    world.settle()
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), "4", "completed")


@slow
@test
def a_look_that_costs_much_whatever_it_finds_delays_nothing(world):
    """JIT compiles every statement of the worker: tens of milliseconds for each look, at nothing too."""
    settings = {"jit": "on", "jit_above_cost": "0", "jit_inline_above_cost": "0", "jit_optimize_above_cost": "0"}
    for name, value in settings.items():
        world.sql("ALTER ROLE issuing_worker IN DATABASE %s SET %s = %s" % (world.database, name, value))
    world.up()
    world.issue("alice")
    time.sleep(15)  # the looks used to become narrower and rarer meanwhile
    world.sql(DUE % ("late", "now() - interval '1 minute'"))
    world.settle()
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), "2", "completed")


@slow
@test
def what_commits_long_after_its_time_is_issued(world):
    world.up()
    with world.holding(DUE % ("slow", "now()"), end="COMMIT"):
        world.issue("alice")
        time.sleep(3)  # more than the widest slack
    world.settle()
    assert_equal(world.status(world.sql("SELECT id FROM outbox_events WHERE user_id = 'slow'")), "COMPLETED",
                 "the slow one")


@slow
@test
def a_lease_is_taken_back_soon_after_a_long_absence_of_the_database(world):
    world.up()
    world.issue("alice")
    try:
        world.suite.stop_database()
        worker, = world.workers()
        wait_until(lambda: worker.metric("issuing_outbox_gauges_age_seconds") > 11, "away for longer than a statement may"
                   " take")
    finally:
        world.suite.start_database()
    for daemon in (*world.apis(), *world.workers()):
        daemon.wait_ready()
    for i, age in enumerate(("1 s", "10 s", "1 min", "10 min", "10 hours")):
        world.sql("INSERT INTO outbox_events (user_id, payload, next_attempt_at, status, retry_count, lease_token,"
                  " lease_until)"
                  " VALUES ('lost-%d', '{\"kind\": \"new\"}', now() - interval '%s', 'PROCESSING', 1,"
                  " gen_random_uuid(), now())"
                  % (i, age))
    world.settle()
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), "6", "completed")
