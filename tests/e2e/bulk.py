"""An action on many events asks once, with their number, at a terminal, and never where nobody can answer. After Ctrl-C
the same command continues it.

Story: `replay --since 365d --reason x` replayed all of them without a question."""
import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import termios
import time

import harness
from harness import assert_equal, assert_true, test, wait_until
from operators import lines


class Terminal:
    """issuing-ctl with a terminal of its own; what it prints, with \\r\\n as \\n."""

    def __init__(self, world, *words):
        self.master, slave = pty.openpty()
        flags = ["--config=%s" % world.suite.empty_file, "--database.url=" + world.conninfo("issuing_operator")]
        self.process = subprocess.Popen([str(harness.BUILD / "issuing-ctl"), *flags, *words], stdin=slave, stdout=slave,
                                        stderr=slave, env=harness.ENVIRONMENT, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.text = ""

    def read_until(self, wanted):
        """wanted None = the end."""
        deadline = time.monotonic() + harness.STUCK_AFTER_S
        while wanted is None or wanted not in self.text:
            if time.monotonic() > deadline:
                self.process.kill()
                raise harness.Failed("no %r in %r" % (wanted, self.text))
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                self.text += os.read(self.master, 4096).decode().replace("\r\n", "\n")
            except OSError:  # EIO: the other side is closed
                if wanted is None:
                    return self
                raise harness.Failed("ended without %r: %r" % (wanted, self.text)) from None
        return self

    def type(self, text):
        os.write(self.master, text.encode())
        return self

    def end(self):
        self.read_until(None)
        os.close(self.master)
        return self.process.wait(harness.STUCK_AFTER_S)


def insert_failed(world, count, code="attempts_exhausted"):
    world.sql("INSERT INTO outbox_events (user_id, payload, status, reason_code, completed_at) SELECT 'u' || i,"
              " '{\"kind\": \"new\"}', 'FAILED', '%s', now() FROM generate_series(1, %d) i" % (code, count))


def count(world, status):
    return int(world.sql("SELECT count(*) FROM outbox_events WHERE status = '%s'" % status))


@test
def a_bulk_action_at_a_terminal_asks_once_with_the_count(world):
    insert_failed(world, 1204)
    words = ("replay", "--status", "FAILED", "--reason", "x")
    for answer in ("n\n", "\n", "yesss\n", "\x04", "\x03"):
        terminal = Terminal(world, *words).read_until("Replay 1,204 FAILED events? [y/N] ").type(answer)
        assert_equal(terminal.end(), 1, "exit status after %r" % answer)
        assert_true("Nothing was changed." in terminal.text, terminal.text)
        assert_equal(count(world, "FAILED"), 1204, "after %r" % answer)
    assert_equal(world.sql("SELECT count(*) FROM operator_actions"), "0", "on record")
    terminal = Terminal(world, *words, "--limit", "4")
    assert_equal((terminal.end(), "[y/N]" in terminal.text), (0, False), "with a limit")
    terminal = Terminal(world, *words, "--dry-run")
    assert_equal((terminal.end(), "[y/N]" in terminal.text), (0, False), "a dry run")
    assert_equal(terminal.text.count("would be replayed:"), 20, "the first of a dry run")
    assert_true("1,200 FAILED events match; only the first 20 were looked at" in terminal.text, terminal.text)
    terminal = Terminal(world, *words).read_until("Replay 1,200 FAILED events? [y/N] ").type("y\n")
    assert_equal((terminal.end(), terminal.text.count("[y/N]")), (0, 1), "yes")
    assert_true("1,200 of 1,200 replayed." in terminal.text, terminal.text[-200:])
    assert_equal((count(world, "FAILED"), count(world, "PENDING")), (0, 1204), "statuses")
    terminal = Terminal(world, *words)
    assert_equal((terminal.end(), "No FAILED event matches." in terminal.text), (0, True), "none are left")


@test
def every_bulk_verb_asks_at_a_terminal_and_none_elsewhere(world):
    insert_failed(world, 3)
    for verb, words, question in (
            ("cancel", ("--status", "PENDING"), "Cancel 2 PENDING events? [y/N] "),
            ("resolve", ("--code", "attempts_exhausted"), "Resolve 3 FAILED events? [y/N] "),
            ("reconcile", ("--status", "FAILED"), "Look up 1 FAILED event at the peer? [y/N] ")):
        if verb == "cancel":
            world.sql("INSERT INTO outbox_events (user_id, payload) VALUES ('a', '{\"kind\": \"new\"}'),"
                      " ('b', '{\"kind\": \"new\"}')")
        if verb == "reconcile":
            world.sql("UPDATE outbox_events SET first_sent_at = now() WHERE user_id = 'u1'")
        terminal = Terminal(world, verb, *words, "--reason", "x").read_until(question).type("n\n")
        assert_equal(terminal.end(), 1, verb)
    assert_equal(world.sql("SELECT count(*) FROM operator_actions"), "0", "on record")
    assert_equal(len(lines(world.ctl("resolve", "--user", "u2", "--reason", "x", "--json"))), 1, "without a terminal")


@test
def a_slow_bulk_action_stops_between_two_events_and_says_how_to_go_on(world):
    insert_failed(world, 30)
    terminal = Terminal(world, "replay", "--status", "FAILED", "--rate", "1/m", "--limit", "10", "--reason", "x")
    terminal.read_until("replayed\n")
    terminal.process.send_signal(signal.SIGINT)
    assert_equal(terminal.end(), 1, "exit status")
    done = count(world, "PENDING")
    assert_equal((done, terminal.text.count("  replayed\n")), (1, 1), "done")
    assert_true("run the same command again with --limit 9" in terminal.text, terminal.text)
    assert_equal(world.sql("SELECT count(*) FROM operator_actions"), "1", "on record")
    again = world.ctl("replay", "--status", "FAILED", "--limit", "9", "--rate", "1000", "--reason", "x", "--json")
    assert_equal((len(lines(again)), count(world, "PENDING")), (9, 10), "the rest")


@test
def a_search_without_an_index_can_be_stopped_and_shows_what_it_found(world):
    insert_failed(world, 5)
    terminal = Terminal(world, "list", "--code", "attempts_exhausted", "--limit", "3")
    assert_equal((terminal.end(), "only the newest 3 are shown" in terminal.text), (0, True), terminal.text)
    oldest = [json.loads(line)["id"] for line in world.ctl("list", "--oldest-first", "--limit", "2",
                                                            "--json").stdout.splitlines()]
    wanted = world.sql("SELECT string_agg(id::text, ' ') FROM (SELECT id FROM outbox_events ORDER BY id LIMIT 2) x")
    assert_equal(" ".join(oldest), wanted, "oldest first")
    with world.holding("LOCK TABLE issuing.outbox_events IN ACCESS EXCLUSIVE MODE"):
        terminal = Terminal(world, "list", "--code", "nonsense")
        wait_until(world.blocked, "it waits for the table")
        terminal.process.send_signal(signal.SIGINT)
    assert_equal((terminal.end(), "stopped; there may be more" in terminal.text), (1, True), terminal.text)


@test
def what_fails_after_the_start_of_a_bulk_action_is_left_alone(world):
    """Story: an event that a worker fails again while the replay goes on would be replayed again and again."""
    insert_failed(world, 1050)  # more than the first page looks at
    first = world.sql("SELECT id FROM outbox_events ORDER BY id LIMIT 1")
    with world.holding("SELECT FROM issuing.outbox_events WHERE id = '%s' FOR UPDATE" % first):
        terminal = Terminal(world, "replay", "--status", "FAILED", "--reason", "x").read_until("[y/N] ").type("y\n")
        wait_until(world.blocked, "it waits for the first event")
        insert_failed(world, 1, "link_refused")
    assert_equal(terminal.end(), 0, "exit status")
    assert_true("1,050 of 1,050 replayed." in terminal.text, terminal.text[-200:])
    assert_equal(world.sql("SELECT reason_code FROM outbox_events WHERE status = 'FAILED'"), "link_refused", "left")
