"""Operators of several cells: one command for all of them, and programs that notice where they are.

Story: on a bad night one of two databases is away, a user complains, and the operator knows neither the cell nor the
time to find out. Every command must say which cell it speaks of, go on where one is away, and act in no cell that does
not own the user. Two databases in one cluster are two cells here.
"""
import contextlib
import hashlib
import json
import os
import pty
import signal
import threading
import time

from harness import assert_equal, assert_true, Failed, slow, test, wait_until
from processes import BUILD, ENVIRONMENT, psql

UNKNOWN_ID = "00000000-0000-7000-8000-000000000001"
MOVE = "0190b5a8-7c1e-7cc3-98c4-dc0c0c07398f"


def bucket_of(user):
    return int.from_bytes(hashlib.sha256(user.encode()).digest()[:2], "big") % 1024


def user_of(cell, number=0):
    """A user of the cell: one has the lower half of the buckets, two the upper one."""
    found = (name for name in ("user-%d" % n for n in range(100000)) if (bucket_of(name) >= 512) == (cell == "two"))
    for _ in range(number):
        next(found)
    return next(found)


class Cells:
    """The world's database is the cell one; two has none of the programs."""

    def __init__(self, world):
        self.world, self.database = world, world.database + "_two"
        world.suite.sql("CREATE DATABASE %s TEMPLATE %s" % (self.database, world.suite.template))
        self.init(world.sql, "one", 0, 511)
        self.init(self.two, "two", 512, 1023)
        self.urls = {"one": self.conninfo(world.database), "two": self.conninfo(self.database)}

    @staticmethod
    def init(sql, name, least, most):
        sql("SELECT issuing.cell_init('%s', ARRAY(SELECT generate_series(%d, %d)))" % (name, least, most))

    def conninfo(self, database, role="issuing_operator"):
        return self.world.suite.conninfo(database, role)

    def two(self, text):
        return psql(text, self.conninfo(self.database, "postgres"))

    def sql(self, cell):
        return self.world.sql if cell == "one" else self.two

    def flags(self):
        return ["--cell.%s.url=%s" % pair for pair in self.urls.items()]

    def ctl(self, *words):
        return self.world.ctl(*self.flags(), *words)

    def lines(self, *words, code=0):
        done = self.ctl(*words, "--json")
        if done.returncode != code:
            raise Failed("%r: exit status %d, wanted %d: %s%s" % (words, done.returncode, code, done.stdout,
                                                                  done.stderr))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def failed(self, cell, number=0, code="issuer_http_418"):
        """The id of an event that is FAILED there."""
        return self.sql(cell)("INSERT INTO issuing.outbox_events (user_id, payload, status, reason_code, completed_at)"
                              " VALUES ('%s', '{\"kind\": \"new\"}', 'FAILED', '%s', now()) RETURNING id"
                              % (user_of(cell, number), code))

    def status(self, cell, event):
        return self.sql(cell)("SELECT status FROM issuing.outbox_events WHERE id = '%s'" % event)

    def put(self, cell, user, state):
        """The user's bucket in this state, as a move leaves it."""
        self.sql(cell)("UPDATE issuing.cell_buckets SET state = '%s', other = 'other', move_id = '%s', since ="
                       " clock_timestamp() WHERE bucket = %d" % (state, MOVE, bucket_of(user)))

    def at_a_terminal(self, answer, *words, meanwhile=lambda: None):
        """What a person sees who answers the question, and the exit code. meanwhile: happens before the answer."""
        argv = [str(BUILD / "issuing-ctl"), "--config=%s" % self.world.suite.empty_file, *self.flags(), *words]
        pid, screen = pty.fork()
        if pid == 0:
            os.execve(argv[0], argv, ENVIRONMENT)
        seen, until = b"", time.monotonic() + 60
        try:
            while time.monotonic() < until:
                with contextlib.suppress(OSError):
                    piece = os.read(screen, 65536)
                    if piece:
                        seen += piece
                        if b"[y/N] " in seen and answer:
                            meanwhile()
                            os.write(screen, answer)
                            answer = b""
                        continue
                return seen.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.kill(pid, signal.SIGKILL)
            raise Failed("issuing-ctl does not end: %r" % seen)
        finally:
            os.close(screen)


@test
def one_page_shows_all_cells_and_a_cell_that_is_away_stops_nobody(world):
    cells = Cells(world)
    cells.failed("one")
    for number in range(3):
        cells.failed("two", number, "attempts_exhausted" if number else "issuer_http_418")
    rows = {row["cell"]: row for row in cells.lines("status", "--cell", "all")}
    assert_equal({name: (row["events"]["FAILED"], row["buckets"]) for name, row in rows.items()},
                 {"one": (1, 512), "two": (3, 512), "all": (4, 1024)}, "status")
    assert_equal([row["cell"] for row in cells.lines("list", "--cell=all")], ["one", "two", "two", "two"], "list")
    page = cells.ctl("status", "--cell", "all").stdout
    table = {line.split()[0]: line.split() for line in page.splitlines()[:4]}
    assert_equal((list(table), table["all"][4]), (["CELL", "one", "two", "all"], "4"), page)
    assert_true("one 1, two 1" in page and "no worker runs" in page, page)
    rows = cells.ctl("list", "--cell", "all").stdout.splitlines()
    assert_equal([row.split()[0] for row in rows], ["CELL", "one", "two", "two", "two"], "the heads stand once")
    cells.urls["two"] += " port=1"
    page = cells.ctl("status", "--cell", "all")
    assert_true(page.returncode == 75 and "AWAY" in page.stdout and "without 1 cell" in page.stdout, page.stdout)
    for words in (("list",), ("workers",), ("targets",), ("stats",), ("audit",), ("doctor",), ("status", "--exact"),
                  ("pause", "issuer", "--reason", "x"), ("resume", "issuer", "--reason", "x")):
        done = cells.ctl("--cell", "all", *words)
        assert_equal(done.returncode, 75, " ".join(words) + done.stdout + done.stderr)
        assert_true("one" in done.stdout + done.stderr and "two" in done.stdout + done.stderr, words)
    assert_equal([row["cell"] for row in cells.lines("list", "--cell", "one")], ["one"], "one of them")
    assert_equal(world.ctl("list", "--json").stdout.count('"cell"'), 0, "without --cell nothing changes")


@test
def an_event_is_shown_and_changed_only_in_the_cell_that_owns_its_user(world):
    cells = Cells(world)
    first, second = cells.failed("one"), cells.failed("two")
    for word in ("show", "explain"):
        assert_equal([row["cell"] for row in cells.lines(word, first, "--cell", "all")], ["one"], word)
        assert_equal([row["cell"] for row in cells.lines(word, second, "--cell", "all")], ["two"], word)
    assert_equal(cells.lines("limits", user_of("two"), "--cell", "all")[0]["cell"], "two", "a user")
    assert_true(cells.ctl("show", UNKNOWN_ID, "--cell", "all").returncode == 1, "no cell has it")
    # A copy in a cell that does not own the bucket any more.
    cells.two("INSERT INTO issuing.cell_users (bucket, user_id) VALUES (%d, 'x')" % bucket_of(user_of("one")))
    cells.two("SET session_replication_role = replica; INSERT INTO issuing.outbox_events (id, user_id, payload, status,"
              " reason_code) VALUES ('%s', '%s', '{\"kind\": \"new\"}', 'FAILED', 'issuer_http_418')"
              % (first, user_of("one")))
    cells.put("two", user_of("one"), "gone")
    rows = cells.lines("replay", first, second, UNKNOWN_ID, "--cell", "all", "--reason", "x", code=1)
    assert_equal([(row["id"], row["result"], row.get("cell")) for row in rows],
                 [(UNKNOWN_ID, "refused", None), (first, "replayed", "one"), (second, "replayed", "two")], "replay")
    assert_equal([cells.status("one", first), cells.status("two", first), cells.status("two", second)],
                 ["PENDING", "FAILED", "PENDING"], "the copy is left alone")
    assert_equal({row["cell"] for row in cells.lines("audit", "--event", first, "--cell", "all")}, {"one"}, "audit")
    # Two owners: a restored backup. Nobody knows which one counts.
    cells.put("two", user_of("one"), "closed")
    done = cells.ctl("cancel", first, "--cell", "all", "--reason", "x")
    assert_true(done.returncode == 1 and "both one and two own" in done.stderr, done.stderr)
    assert_equal([cells.status("one", first), cells.status("two", first)], ["PENDING", "FAILED"], "nothing was done")
    done = cells.ctl("doctor", "--cell", "all")
    assert_true("1 bucket lives in two cells: %d in one and two" % bucket_of(user_of("one")) in done.stdout,
                done.stdout)
    # Neither: between two steps of a move.
    cells.put("one", user_of("one"), "gone")
    cells.put("two", user_of("one"), "arriving")
    done = cells.ctl("show", first, "--cell", "all")
    assert_true(done.returncode == 1 and "on the move" in done.stderr, done.stderr)
    cells.urls["two"] += " port=1"
    assert_equal(cells.ctl("show", second, "--cell", "all").returncode, 75, "the cell that has it is away")


@test
def a_bulk_action_asks_once_with_the_sum_and_leaves_alone_what_came_later(world):
    cells = Cells(world)
    events = [("one", cells.failed("one", 0)), ("one", cells.failed("one", 1)), ("two", cells.failed("two"))]
    words = ("replay", "--cell", "all", "--code", "issuer_http_418", "--reason", "fixed")
    seen, code = cells.at_a_terminal(b"n\n", *words)
    assert_true("Replay 3 FAILED events in all cells (one 2, two 1)? [y/N]" in seen and seen.count("[y/N]") == 1, seen)
    assert_equal((code, {cells.status(*event) for event in events}), (1, {"FAILED"}), "no")
    later = []
    seen, code = cells.at_a_terminal(b"y\n", *words, meanwhile=lambda: later.append(cells.failed("two", 1)))
    assert_equal((code, {cells.status(*event) for event in events}), (0, {"PENDING"}), seen)
    assert_equal(cells.status("two", later[0]), "FAILED", "nobody was asked about this one")
    assert_true("one   2 of 2 replayed." in seen and "two   1 of 1 replayed." in seen, seen)
    for number in range(3):
        cells.failed("one", number, "x"), cells.failed("two", number, "x")
    assert_equal(len(cells.lines("replay", "--cell", "all", "--code", "x", "--limit", "4", "--reason", "y")), 4,
                 "a limit holds for all cells together")
    assert_equal(sum(row["events"]["FAILED"] for row in cells.lines("status", "--cell", "all") if row["cell"] == "all"),
                 3, "left")
    assert_equal(cells.ctl("replay", "--cell", "all", "--reason", "x").returncode, 2, "a wrong command line")


@test
def a_key_is_retired_only_when_no_cell_needs_it(world):
    cells = Cells(world)
    file = world.dir / "card.keys"
    assert_equal(world.ctl("keys", "generate", file).returncode, 0, "generate")
    assert_equal(world.ctl("keys", "rotate", file).returncode, 0, "rotate")
    old = [row for row in cells.lines("keys", "status", file, "--cell", "one") if row["state"] == "decrypt"][0]
    key = str(old.get("id") or old.get("key_id") or old.get("key"))
    retire = ("keys", "retire", key, file)
    assert_equal(cells.ctl(*retire).returncode, 2, "one database is not asked alone")
    assert_equal(cells.ctl(*retire, "--cell", "one").returncode, 2, "nor one cell")
    url, cells.urls["two"] = cells.urls["two"], cells.urls["two"] + " port=1"
    done = cells.ctl(*retire, "--cell", "all")
    assert_true(done.returncode == 75 and "every cell must agree" in done.stderr, done.stderr)
    cells.urls["two"] = url
    assert_equal({row["state"] for row in cells.lines("keys", "status", file, "--cell", "one")},
                 {"active", "decrypt"}, "nothing was retired")
    done = cells.ctl(*retire, "--cell", "all")
    assert_equal((done.returncode, done.stdout.count("is retired")), (0, 1), done.stdout + done.stderr)


@test
def the_database_of_another_cell_is_not_used(world):
    cells = Cells(world)
    event = cells.failed("one")
    cells.urls["two"] = cells.urls["one"]
    done = cells.ctl("replay", event, "--cell", "two", "--reason", "x")
    assert_true(done.returncode == 78 and "leads to the database of the cell one" in done.stderr, done.stderr)
    assert_equal(cells.status("one", event), "FAILED", "nothing was done")
    assert_equal(cells.ctl("console", "--cell", "all").returncode, 2, "a console is of one cell")
    world.up(database__cell="one")
    right = world.apis()[0]
    wrong = world.start_api(wait_ready=False, database__cell="two")
    wait_until(lambda: b"the database is the cell one, and database.cell is two" in wrong.get("/readyz").body,
               "readyz names the cause")
    wait_until(lambda: wrong.metric("issuing_wrong_cell") == 1, "and so does a metric")
    assert_equal((wrong.get("/readyz").status, right.metric("issuing_wrong_cell"), right.get("/readyz").status),
                 (503, 0, 200), "who is ready")
    answer = world.post(user_of("one"), "k", api=wrong)
    assert_equal((answer.status, answer.json()["type"]), (503, "/problems/unavailable"), "nothing is accepted")
    assert_true("database.cell is two" in wrong.text(), "the log names the cause")
    wait_until(lambda: right.metric('issuing_cell_buckets{state="here"}') == 512, "buckets as a metric")


@test
def users_of_another_cell_get_503_and_the_database_counts_as_well(world):
    Cells(world)
    world.up(database__cell="one")
    api, here, there = world.apis()[0], user_of("one"), user_of("two")
    request = world.accept(here, "first")
    world.wait_final([request])

    def refused(user, kind, reason, count):
        calls = (world.post(user, "k"), world.get(user, "/v1/card-requests/" + request),
                 world.get(user, "/v1/card-requests"), world.get(user, "/v1/cards"))[:count]
        for answer in calls:
            assert_equal((answer.status, answer.json()["type"], answer.header("Retry-After")),
                         (503, "/problems/" + kind, "1"), reason)
        assert_equal(api.metric('issuing_cell_refusals_total{reason="%s"}' % reason), count, "counted apart")
    refused(there, "wrong-cell", "elsewhere", 4)
    world.sql("UPDATE issuing.cell_buckets SET state = 'closed', other = 'two', move_id = '%s' WHERE bucket = %d"
              % (MOVE, bucket_of(here)))
    refused(here, "user-moving", "moving", 1)
    assert_equal(world.get(here, "/v1/card-requests/" + request).status, 200, "reads go on while it is copied")
    assert_equal((api.metric_sum("issuing_db_errors_total"), api.get("/readyz").status), (0, 200), "the database is well")
    assert_true(world.sql("SELECT count(*) FROM outbox_events WHERE event_type = 'CARD_ISSUE'") == "1", "rows")
    assert_true('is the router' in api.text() and str(bucket_of(there)) in api.text(), "a line with the bucket")
    # Whoever waits when the bucket leaves gets the answer that is stored, as without a wait.
    world.sql("UPDATE issuing.cell_buckets SET state = 'here' WHERE bucket = %d" % bucket_of(here))
    world.workers()[0].stop()
    answers = []
    client = threading.Thread(target=lambda: answers.append(world.post(here, "late", headers=(("Prefer", "wait=2"),))))
    client.start()
    wait_until(lambda: api.metric("issuing_waiting_clients") == 1, "the client waits")
    world.sql("UPDATE issuing.cell_buckets SET state = 'gone', other = 'two', move_id = '%s' WHERE bucket = %d"
              % (MOVE, bucket_of(here)))
    client.join()
    late = answers[0]
    assert_equal((late.status, late.json()["status"]), (202, "PENDING"), "it is recorded, wherever it is now")
    answer = world.get(here, "/v1/card-requests/" + late.json()["id"], headers=(("Prefer", "wait=1"),))
    assert_equal((answer.status, answer.json()["type"]), (503, "/problems/wrong-cell"), "GET says where it is not")
    world.sql("UPDATE issuing.cell_buckets SET state = 'here' WHERE bucket = %d" % bucket_of(here))
    world.restart(world.workers()[0])
    world.settle()
