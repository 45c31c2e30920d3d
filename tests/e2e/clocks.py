"""The clock of the database, of a worker or of an api steps by hours, in either direction, or a machine is suspended.

Story: NTP sets the clock of a database, or a failover goes to a host whose clock is wrong by hours. What was accepted
must still end, and no key may be forgotten. The clocks of this file step while no call is under way.
"""
import sys
import time

import client
from harness import assert_equal, assert_true, Failed, run, slow, test

HOURS = 2 * 3600
NEAR = 600  # seconds: far more than any machine dawdles, far less than a step


def is_near(got, wanted):
    return abs(got - wanted) < NEAR


def database_offset(world):
    return float(world.sql("SELECT extract(epoch FROM clock_timestamp())")) - time.time()


def requests_go_through(world, label):
    for number in range(3):
        world.issue("%s-%d" % (label, number))


@slow
@test
def requests_go_through_after_the_databases_clock_has_stepped(world):
    clock = world.clocked_database()
    world.up(apis=1, workers=2)
    requests_go_through(world, "before")
    for turn, step in enumerate((HOURS, -HOURS, -HOURS, HOURS)):
        clock.step(step)
        assert_true(is_near(database_offset(world), clock.real), "the database's clock has stepped")
        requests_go_through(world, "step%d" % turn)
    assert_equal(world.sql("SELECT DISTINCT status FROM outbox_events"), "COMPLETED", "all ends")


@test
def the_databases_time_limits_hold_while_its_clock_is_wrong(world):
    """The pool relies on this: a statement that takes too long is cancelled, also if the clock is hours ahead or
    behind."""
    clock = world.clocked_database()
    for step in (HOURS, -2 * HOURS):
        clock.step(step)
        try:
            world.sql("SET statement_timeout = '100ms'; SELECT pg_sleep(100)")
        except Failed as error:
            assert_true("statement timeout" in str(error), "cancelled by its limit: %s" % error)
        else:
            raise Failed("a statement of 100 s was not cancelled")


@test
def a_clock_steps_for_its_own_programs_only(world):
    program = ("import time; print(*(time.clock_gettime(c) for c in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC,"
               " time.CLOCK_BOOTTIME)))")
    clocks = [world.clock(name) for name in ("stepped", "slept", "untouched")]
    clocks[0].step(-HOURS)
    clocks[1].sleep(HOURS)
    for clock, wanted in zip(clocks, ((-HOURS, 0, 0), (HOURS, 0, HOURS), (0, 0, 0))):
        here = [time.clock_gettime(which) for which in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)]
        there = [float(word) for word in run([sys.executable, "-c", program], clock=clock).stdout.split()]
        assert_true(all(is_near(there[i] - here[i], wanted[i]) for i in range(3)), "%r, wanted %r" % (there, wanted))


@test
def requests_go_through_while_api_and_worker_are_hours_wrong(world):
    world.start_sandbox()
    clocks = world.clock("api"), world.clock("worker")
    world.start_api(clock=clocks[0])
    world.start_worker(clock=clocks[1])
    for turn, (of_api, of_worker) in enumerate(((-HOURS, HOURS), (0, -HOURS), (HOURS, HOURS))):
        clocks[0].step(of_api - clocks[0].real)
        clocks[1].step(of_worker - clocks[1].real)
        for number in range(3):
            user = "turn%d-%d" % (turn, number)
            world.tokens[user] = client.user_token(world.secret, user, 24 * 3600)
            made = int(world.issue(user)["id"].replace("-", "")[:12], 16) / 1000  # a UUID v7: the api's milliseconds
            assert_true(is_near(made, time.time() + of_api), "the api's clock has stepped")


@test
def requests_go_through_on_a_machine_that_slept(world):
    """The worker's machine was suspended: its wall clock has gone on, its monotonic clock has not."""
    world.start_sandbox()
    world.start_api()
    clock = world.clock("worker")
    world.start_worker(clock=clock)
    requests_go_through(world, "before")
    clock.sleep(HOURS)
    requests_go_through(world, "after")
