"""Assertions, and waiting that ends."""
import itertools
import subprocess
import threading
import time

import client
from stuck import STUCK_AFTER_S


class Failed(AssertionError):
    pass


class Skipped(Exception):
    """Says why a test cannot be run on this machine."""


def assert_equal(got, wanted, what=""):
    if got != wanted:
        raise Failed("%s: got %r, wanted %r" % (what or "different", got, wanted))


def assert_true(value, what):
    if not value:
        raise Failed(what)
    return value


def wait_until(condition, what, seconds=STUCK_AFTER_S, every=0.02):
    """Polls until the condition gives something true, and returns it. A connection that is refused or reset counts as not
    yet, and so does a program of a look that did not end in time: there are at least two looks. The limit is for what
    hangs: seconds lengthen it, and never make it shorter than STUCK_AFTER_S. A look may start a program, so the pauses
    grow: else those who wait take the cores from what they wait for."""
    seconds = max(seconds, STUCK_AFTER_S)
    deadline = time.monotonic() + seconds
    last = None
    for looks in itertools.count(1):
        try:
            last = condition()
            if last:
                return last
        except (OSError, client.Closed, subprocess.TimeoutExpired) as error:
            last = error
        if looks > 1 and time.monotonic() > deadline:
            raise Failed("not within %s s: %s (at last: %r)" % (seconds, what, last))
        time.sleep(every)
        every = max(every, min(every * 1.3, 0.25))


class Threads:
    """They run in a block, until `stopped` is set at its end. run: what each does, with its arguments."""

    def __init__(self, run, arguments):
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=run, args=each, daemon=True) for each in arguments]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join(STUCK_AFTER_S)
