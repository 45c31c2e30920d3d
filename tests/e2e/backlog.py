"""What shows a large backlog reads each of its rows once.

Story: after an outage there were 100,000 FAILED and 100,000 PENDING events. The first page and `status` read the same
rows five times and more, at each refresh; a list of PENDING or unknown ones read all of them for each page."""
import signal
import time

from console import Console
from harness import assert_equal, assert_true, slow, test, wait_until

EACH = 55_000  # FAILED, and as many PENDING: together more than `status` counts without an estimate
PAGE = 1000 + 2000 + 100  # two steps through the ids, the second one twice as long, and the events that are shown
AROUND = 6_000  # what a view reads beside the backlog: the newest events for a pattern among users, workers, targets


def make_backlog(world, each, finished=0):
    """None of it of the last six hours, whose events the first page draws, and none overdue; one in ten of the FAILED
    ones has an unknown outcome. finished: so many COMPLETED ones beside them; where half of a table is looked for,
    PostgreSQL reads it whole."""
    made = ("INSERT INTO issuing.outbox_events (id, created_at, user_id, payload, status, next_attempt_at, reason_code,"
            " completed_at, first_sent_at, deferral_code) SELECT overlay(issuing.uuid7_least(t.at)::text PLACING"
            " lpad(to_hex(n % 4096), 3, '0') FROM 16 FOR 3)::uuid, t.at, 'u-' || n, '{\"kind\": \"new\"}'")
    rows = (" FROM generate_series(1, %d) n CROSS JOIN LATERAL"
            " (SELECT now() - interval '7 h' - (%d - n) * interval '0.2 s' AS at) t")
    world.sql("SET session_replication_role = replica; " + "; ".join((
        made + ", 'FAILED', t.at, 'link_refused', t.at, CASE WHEN n % 10 = 0 THEN t.at END, NULL" + rows % (each, each),
        made.replace("n % 4096", "(n + 2048) % 4096")
        + ", 'PENDING', now() + interval '1 h' - n * interval '30 ms', NULL, NULL, NULL,"
        " CASE WHEN n % 2 = 0 THEN 'issuer_http_503' END" + rows % (each, each),
        made.replace("n % 4096", "(n + 1024) % 4096")
        + ", 'COMPLETED', t.at, NULL, t.at, NULL, NULL" + rows % (finished, finished))))
    world.sql("VACUUM ANALYZE issuing.outbox_events")


def forget(world):
    """The server forgets what was read so far; what a session has read is counted when it has ended."""
    wait_until(lambda: world.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename"
                                 " = 'issuing_operator'") == "0", "no operator is connected")
    read = int(world.sql("SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables WHERE"
                         " schemaname LIKE 'issuing%'"))
    world.sql("SELECT pg_stat_reset()")
    return read


def rows_of_page(world, path):
    forget(world)
    console = Console(world).enter()
    console.page(path)
    console.signal(signal.SIGTERM)
    wait_until(lambda: not console.alive(), "the console ends")
    console.expected_dead = True
    return forget(world)


def rows_of_command(world, *words):
    forget(world)
    done = world.ctl(*words)
    assert_true(done.returncode in (0, 1), done.stdout + done.stderr)
    return forget(world)


@slow
@test
def what_shows_a_backlog_reads_each_of_its_rows_once(world):
    """The open ones and the FAILED ones, once each; nothing that needs neither reads any."""
    make_backlog(world, EACH, 3 * EACH)
    event = world.sql("SELECT id FROM outbox_events WHERE event_type = 'CARD_ISSUE' AND due_at IS NOT NULL"
                      " ORDER BY due_at LIMIT 1")  # by its index: a row or two
    read = {"console " + path: rows_of_page(world, path) for path in ("/", "/targets", "/events")}
    read.update((words[0], rows_of_command(world, *words))
                for words in (("status",), ("targets",), ("doctor",), ("workers",), ("explain", event)))
    world.sql("TRUNCATE issuing.outbox_events")  # what every story ends with would look at each of them
    most = {"console /": 2 * EACH, "console /events": 2 * EACH, "status": 2 * EACH, "console /targets": EACH,
            "targets": EACH, "doctor": EACH}
    assert_equal({name: rows for name, rows in read.items() if rows > most.get(name, 0) + AROUND}, {}, "rows of these")


def make_old(world, count):
    """COMPLETED events of the day before."""
    world.sql("SET session_replication_role = replica; INSERT INTO issuing.outbox_events (id, created_at, user_id, payload,"
              " status, completed_at, first_sent_at) SELECT issuing.uuid7_least(t.at), t.at, 'u-' || n,"
              " '{\"kind\": \"new\"}', 'COMPLETED', t.at, t.at FROM generate_series(1, %d) n CROSS JOIN LATERAL"
              " (SELECT now() - interval '30 h' - n * interval '0.2 s' AS at) t" % count)
    world.sql("VACUUM ANALYZE issuing.outbox_events")


@slow
@test
def a_list_of_unknown_ones_reads_what_can_be_unknown(world):
    """The oldest events are finished, the newest PENDING and FAILED; of these one in ten is unknown."""
    make_old(world, EACH)
    make_backlog(world, EACH)
    world.sql("UPDATE issuing.outbox_events SET first_sent_at = created_at, last_error = 'create: timeout' WHERE status ="
              " 'PENDING' AND substr(user_id, 3)::int % 10 = 0")
    world.sql("VACUUM ANALYZE issuing.outbox_events")
    read = {(words, order): rows_of_command(world, "list", "--unknown", *words, *order)
            for words in ((), ("--status", "PENDING"), ("--status", "FAILED")) for order in ((), ("--oldest-first",))}
    world.sql("TRUNCATE issuing.outbox_events")
    assert_equal({name: rows for name, rows in read.items() if rows > 2 * PAGE}, {}, "rows of a page")


POLLS_S = 15
LOOKS = 3 * 2000 + 10_000  # of a sweep a second: the young, the others, which of them is late; and a rebase (sweep.c)


@slow
@test(worker__poll_interval="1s")
def a_paused_worker_reads_a_bounded_number_of_rows_a_poll(world):
    """Both sources of card requests have a sweep; the gauges count all once a minute."""
    make_backlog(world, EACH)
    world.sql("UPDATE issuing.outbox_events SET next_attempt_at = created_at WHERE status = 'PENDING'")
    world.sql("VACUUM ANALYZE issuing.outbox_events")
    world.start_sandbox()
    for target in ("issuer", "core"):
        assert_equal(world.ctl("pause", target, "--reason", "they asked").returncode, 0, "pause")
    forget(world)
    worker = world.start_worker()
    wait_until(lambda: world.sql("SELECT count(*) FROM worker_targets WHERE is_paused") == "2", "they are paused")
    time.sleep(POLLS_S)
    worker.kill()
    worker.expected_dead = True
    wait_until(lambda: world.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename"
                                 " = 'issuing_worker'") == "0", "the worker is gone")
    read = forget(world)
    world.sql("TRUNCATE issuing.outbox_events")
    assert_true(read < 2 * EACH + (POLLS_S + 5) * 2 * LOOKS, "rows in %d s: %d" % (POLLS_S, read))


@slow
@test
def a_list_reads_a_backlog_no_further_than_to_its_page(world):
    make_backlog(world, EACH)
    pages = {"PENDING": ("--status", "PENDING"), "oldest": ("--status", "PENDING", "--oldest-first"),
             "unknown": ("--unknown",), "FAILED": ("--status", "FAILED"), "overdue": ("--overdue",), "all": ()}
    read = {name: rows_of_command(world, "list", *words) for name, words in pages.items()}
    world.sql("TRUNCATE issuing.outbox_events")
    assert_equal({name: rows for name, rows in read.items() if rows > PAGE + 100}, {}, "rows of a page")
