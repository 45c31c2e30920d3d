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
    """Calls the condition until it returns something true, and returns that. If a connection is refused or reset in it,
    or a program that it runs does not end in time, it is called again. It is called twice at least. The time limit is
    for hung tests: it is `seconds`, and never less than STUCK_AFTER_S. The pauses grow, because a condition may start a
    program, and many of them would take the cores from what is waited for."""
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
    """Threads that run in a block; at its end `stopped` is set, and they are joined. run: what each calls, with its
    element of `arguments`."""

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
