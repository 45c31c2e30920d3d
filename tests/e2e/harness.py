"""What a story imports: the parts of the harness in one place.

assertions  assertions, and waiting that ends
processes   programs, psql, clocks, ports
world       World: one test's database, programs and clients
profiles    the issuers, as stories need them
suite       Suite: one run; @test registers a test, @slow and @alone mark it

Invariants: traffic stays on 127.0.0.1 and an abstract Unix socket; nothing is written outside the run folder; nothing
waits without a deadline. What must hold after a test is in invariants.py.
"""
import datetime
import email.utils

from assertions import assert_equal, assert_true, Failed, Skipped, STUCK_AFTER_S, Threads, wait_until
from processes import (BUILD, Clock, CLOCKS, CLUSTER, Daemon, ENVIRONMENT, environment, free_port, Program, psql,
                       psql_program, release_ports, ROOT, run, Sandbox)
from profiles import EVERY, PROFILES, those, VENDORS
from suite import alone, core, core_at, slow, slow_but_at, Suite, test, TESTS
from world import ms, World

__all__ = ["alone", "assert_equal", "assert_true", "BUILD", "Clock", "CLOCKS", "CLUSTER", "core", "core_at",
           "Daemon", "ENVIRONMENT", "environment", "EVERY", "Failed", "free_port", "http_date", "ms", "PROFILES", "Program", "psql", "psql_program",
           "release_ports", "ROOT", "run", "Sandbox", "Skipped", "slow", "slow_but_at", "STUCK_AFTER_S", "Suite",
           "test", "TESTS", "those", "VENDORS", "wait_until", "World"]


def http_date(seconds_from_now):
    return email.utils.format_datetime(datetime.datetime.now(datetime.timezone.utc) +
                                       datetime.timedelta(seconds=seconds_from_now), usegmt=True)
