"""What a story imports: the parts of the harness in one place.

assertions  assertions, and waiting that ends
processes   programs, psql, clocks, ports
world       World: one test's database, programs and clients
suite       Suite: one run; @test registers a test, @slow marks it

Invariants: traffic stays on 127.0.0.1 and an abstract Unix socket; nothing is written outside the run folder; nothing
waits without a deadline. What must hold after a test is in invariants.py.
"""
import datetime
import email.utils

from assertions import assert_equal, assert_true, Failed, Skipped, STUCK_AFTER_S, wait_until
from processes import (BUILD, Clock, CLOCKS, CLUSTER, Daemon, ENVIRONMENT, environment, free_port, Program, psql,
                       psql_program, release_ports, ROOT, run, Sandbox)
from suite import slow, Suite, test, TESTS
from world import ms, World

__all__ = ["assert_equal", "assert_true", "BUILD", "Clock", "CLOCKS", "CLUSTER", "Daemon", "ENVIRONMENT", "environment",
           "Failed", "free_port", "http_date", "ms", "Program", "psql", "psql_program", "release_ports", "ROOT",
           "run", "Sandbox", "Skipped", "slow", "STUCK_AFTER_S", "Suite", "test", "TESTS", "wait_until", "World"]


def http_date(seconds_from_now):
    return email.utils.format_datetime(datetime.datetime.now(datetime.timezone.utc) +
                                       datetime.timedelta(seconds=seconds_from_now), usegmt=True)
