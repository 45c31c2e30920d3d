"""The audit trail for a second system is lines with a chain of hashes. No row is missing or there twice, also if it
commits late; and a line or a row that somebody alters later is found.

Story: the trail was only in the database, whose superuser may edit it. A copy made by `audit --json` every night missed
what committed late with a lower number, and nobody could say whether a row of March was still as in March."""
import hashlib
import json
import re
import shlex
import subprocess
import sys

import harness
from harness import assert_equal, assert_true, slow, test
from restoring import History

PAN = "4111 1111 1111 1111"


def act(world, *reasons, columns="", values=""):
    for reason in reasons:
        world.sql("INSERT INTO issuing.operator_actions (actor, action, reason, before%s) VALUES ('olga', 'replay', '%s',"
                  " '{\"status\": \"FAILED\", \"a\": [1, 2.50, null], \"text\": \"\\u00e4\\\"\\n\"}'%s)"
                  % (columns, reason, values))


class Trail:
    """An export in a file of the world."""

    def __init__(self, world, name="trail.jsonl"):
        self.world, self.path = world, world.dir / name

    def append(self, *words, code=0):
        done = self.world.ctl("audit", "--append", self.path, *words)
        assert_equal(done.returncode, code, "exit status: " + done.stderr)
        return done

    def lines(self):
        return self.path.read_bytes().splitlines(keepends=True)

    def records(self):
        return [json.loads(line) for line in self.lines()]

    def reasons(self):
        return [record["reason"] for record in self.records()]

    def verify(self, *words):
        """Exit status, and [(line, row, finding)]."""
        done = self.world.ctl("audit", "--verify", self.path, "--json", *words)
        assert_true(done.returncode in (0, 1), done.stderr)
        assert_equal(done.returncode == 0, "agree" in done.stderr and "not agree" not in done.stderr, done.stderr)
        return done, [(found["line"], found["row"], found["finding"]) for found in map(json.loads,
                                                                                        done.stdout.splitlines())]

    def is_whole(self):
        done, found = self.verify()
        assert_equal((done.returncode, found), (0, []), "verified: " + done.stderr)
        last = self.records()[-1]
        assert_equal(by_hand(self.path), (0, "%d %s" % (last["sequence"], last["hash"])), "by the document's lines")
        return done

    def write(self, lines):
        self.path.write_bytes(b"".join(lines))


def by_hand(path):
    """By the program in docs/security.md that needs none of our programs."""
    page = (harness.ROOT / "docs" / "security.md").read_text()
    program = re.search(r"^```python\n(import hashlib.*?)^```", page, re.S | re.M)[1]
    assert_true(len(program.splitlines()) <= 12, "it is short")
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True,
                          timeout=harness.STUCK_AFTER_S)
    return done.returncode, done.stdout.strip()


@test
def the_audit_trail_is_exported_once_in_an_order_that_stays_and_without_a_number(world):
    world.up()
    card = world.issue("alice")["card"]["id"]
    assert_equal(world.get("alice", "/v1/cards/%s/number" % card).status, 200, "a reveal")
    assert_equal(world.ctl("pause", "core", "--reason", "INC-1").returncode, 0, "pause")
    act(world, "typed " + PAN, columns=", after, batch_scope", values=", NULL, 'all of %s'" % PAN)
    trail, other = Trail(world), Trail(world, "other.jsonl")
    trail.append()
    assert_equal([(record["sequence"], record["action"], record["reason"]) for record in trail.records()],
                 [(1, "number_revealed", None), (2, "pause_target", "INC-1"),
                  (3, "replay", "typed " + re.sub("[0-9]", "*", PAN))], "records")
    text = trail.path.read_text()
    for secret in (PAN, world.sandbox.numbers()[0]):
        assert_true(secret not in text, "no number")
    assert_equal(trail.path.stat().st_mode & 0o777, 0o600, "for the operator only")
    trail.is_whole()
    # Again from the same place: the same bytes.
    world.ctl("resume", "core", "--reason", "INC-1 is over")
    act(world, "two", "three")
    head = trail.path.read_text()
    trail.append()
    trail.append()
    other.write([head.encode()])
    for words in (("--export",), ("--export", "--after", other.path)):
        done = world.ctl("audit", *words)
        wanted = trail.path.read_text()[len(head) if "--after" in words else 0:]
        assert_equal((done.returncode, done.stdout), (0, wanted), "%r %s" % (words, done.stderr))
    trail.is_whole()
    # A new file of the same chain, and a part of it by itself.
    other.path.unlink()
    act(world, "four")
    other.append("--after", trail.path)
    assert_equal((other.reasons(), other.records()[0]["sequence"]), (["four"], 7), "the next file")
    other.is_whole()
    other.write([head.encode(), *trail.lines()[3:], *other.lines()])
    other.is_whole()
    assert_equal(json.loads(world.ctl("audit", "--export", "--since", "1h").stdout.splitlines()[0])["id"], 1, "since")
    assert_equal(world.ctl("audit", "--export", "--since", "2099-01-01").stdout, "", "since then nothing")
    for words in (("--after", trail.path), ("--export", "--actor", "x"), ("--verify", trail.path, "--since", "1h")):
        assert_equal(world.ctl("audit", *words).returncode, 2, "%r" % (words,))
    assert_equal(world.ctl("audit", "--export", role="issuing_viewer").returncode, 0, "a viewer may export")


@test
def an_action_that_commits_late_with_a_lower_number_is_exported_once_and_in_its_place(world):
    world.start_sandbox()
    trail = Trail(world)
    act(world, "first", "second")
    trail.append()
    act(world, "third")
    with world.holding("INSERT INTO operator_actions (actor, action, reason) VALUES ('sue', 'replay', 'late')"):
        act(world, "after")
        done = trail.append(code=75)
        assert_true("row" in done.stderr and "role postgres" in done.stderr, done.stderr)
        assert_equal(trail.reasons(), ["first", "second", "third"], "what nothing can come between")
        assert_equal(world.ctl("audit", "--export").returncode, 75, "a new chain")
    trail.append()
    assert_equal(trail.reasons(), ["first", "second", "third", "after"], "it was rolled back")
    with world.holding("INSERT INTO operator_actions (actor, action, reason) VALUES ('sue', 'replay', 'late')", "COMMIT"):
        act(world, "last")
        trail.append(code=75)
    trail.append()
    assert_equal(trail.reasons(), ["first", "second", "third", "after", "late", "last"], "each once, in its place")
    trail.is_whole()


@test
def rows_that_a_superuser_alters_are_named_and_those_that_left_with_their_time_are_not(world):
    world.start_sandbox()
    trail = Trail(world)
    act(world, "old", columns=", at", values=", now() - interval '500 d'")
    act(world, *("row %d" % number for number in range(2, 8)))
    world.sql("SELECT nextval('operator_actions_number')")
    act(world, "last")
    trail.append()
    trail.is_whole()
    act(world, "since")
    assert_true("1 rows of the database come behind the last line" in trail.is_whole().stderr, "not exported yet")
    world.sql("DELETE FROM operator_actions WHERE id IN (1, 3)")
    world.sql("UPDATE operator_actions SET reason = 'it was all right' WHERE id = 4")
    world.sql("UPDATE operator_actions SET db_role = 'mallory', id = 8 WHERE id = 6")
    done, found = trail.verify()
    assert_equal(found, [(3, 3, "the database has it no more"), (4, 4, "the database says something else"),
                         (6, 6, "the database has it no more"),
                         (8, 8, "it is in the database, and no line says it here")], "findings")
    assert_true("1 rows, older than" in done.stderr, done.stderr)
    assert_true('"reason":"it was all right"' in world.ctl("audit", "--verify", trail.path).stdout, "what it is now")
    # Where the last one is gone, nothing goes on.
    world.sql("DELETE FROM operator_actions WHERE id = 9")
    before = trail.path.read_bytes()
    done = trail.append(code=1)
    assert_true("row 9" in done.stderr and "is no more here" in done.stderr, done.stderr)
    assert_equal(trail.path.read_bytes(), before, "the file")


@test
def a_file_that_was_altered_is_noticed_by_verify_and_by_the_program_of_the_page(world):
    world.start_sandbox()
    trail = Trail(world)
    act(world, *("row %d" % number for number in range(1, 7)))
    trail.append()
    lines = trail.lines()
    hashes = [record["hash"].encode() for record in trail.records()]
    altered = lines[2].replace(b"row 3", b"row 8")
    forged = altered[:altered.rindex(b',"hash"')]
    forged += b',"hash":"%s"}\n' % hashlib.sha256(forged).hexdigest().encode()
    for name, wrong, where in (("altered", [*lines[:2], altered, *lines[3:]], {3}),
                               ("with a hash of its own", [*lines[:2], forged, *lines[3:]], {3, 4}),
                               ("another hash", [*lines[:2], lines[2].replace(*hashes[2:0:-1]), *lines[3:]], {3, 4}),
                               ("removed", [*lines[:2], *lines[3:]], {3}),
                               ("swapped", [*lines[:2], lines[3], lines[2], *lines[4:]], {3, 4, 5}),
                               ("twice", [*lines[:3], *lines[2:]], {4}),
                               ("no line", [*lines[:2], b"{}\n", *lines[2:]], {3}),
                               ("cut", [*lines[:5], lines[5][:-9]], {6}),
                               ("with blanks", [lines[0].replace(b',"actor"', b', "actor"'), *lines[1:]], {1}),
                               ("another sequence", [lines[0].replace(b'"sequence":1', b'"sequence":2')], {1})):
        trail.write(wrong)
        done, found = trail.verify()
        assert_equal((done.returncode, {line for line, _, _ in found}), (1, where), "%s: %r" % (name, found))
        assert_equal(by_hand(trail.path)[0], 1, "%s: by the lines of the document" % name)
    trail.write(lines[2:])
    trail.is_whole()
    for name, last, code in (("altered", altered, 1), ("no line", b"text\n", 1)):
        trail.write([last])
        assert_true("cannot be continued" in trail.append(code=code).stderr, name)


@test
def exports_that_are_cut_or_run_at_once_leave_whole_lines_once(world):
    world.start_sandbox()
    trail = Trail(world)
    act(world, "first", "second", "third")
    trail.append()
    whole = trail.path.read_bytes()
    for left in (len(whole) - 1, len(whole) - 300, 5, 0):
        trail.path.write_bytes(whole[:left])
        trail.append()
        assert_equal(trail.path.read_bytes(), whole, "cut after %d bytes" % left)
    trail.path.write_bytes(whole[:-3])
    done = world.ctl("audit", "--export", "--after", trail.path)
    assert_equal(done.stdout.encode(), whole.splitlines(keepends=True)[-1], "behind the last whole line")
    trail.path.unlink()
    writer = subprocess.Popen(["psql", "-qX", "-d", world.conninfo("postgres")], stdin=subprocess.PIPE, text=True)
    writer.stdin.write("INSERT INTO issuing.operator_actions (actor, action) VALUES ('x', 'replay');\n" * 2500)
    writer.stdin.close()
    flags = [harness.BUILD / "issuing-ctl", "--config=%s" % world.suite.empty_file,
             "--database.url=" + world.conninfo("issuing_operator"), "audit", "--append", trail.path]
    while writer.poll() is None:
        for export in [subprocess.Popen(flags, env=harness.ENVIRONMENT) for _ in range(3)]:
            assert_equal(export.wait(harness.STUCK_AFTER_S), 0, "exit status")
    trail.append()
    assert_equal([record["id"] for record in trail.records()], list(range(1, 2504)), "each once")
    trail.is_whole()


@test
def the_units_of_the_example_export_what_is_new(world):
    """With stand-ins for the journal."""
    world.start_sandbox()
    trail = Trail(world)
    folder = world.dir / "bin"
    folder.mkdir()
    for name, text in (("issuing-ctl", "exec '%s' --config='%s' --database.url='%s' \"$@\"" % (
                            harness.BUILD / "issuing-ctl", world.suite.empty_file, world.conninfo("issuing_operator"))),
                       ("journalctl", "[ ! -e '%s' ] || tail -n 1 '%s'" % (trail.path, trail.path)),
                       ("systemd-cat", "cat >> '%s'" % trail.path)):
        (folder / name).write_text("#!/bin/sh\n%s\n" % text)
        (folder / name).chmod(0o755)
    (world.dir / "issuing-audit").mkdir()
    for unit, path in (("export", world.dir / "issuing-audit" / "trail.jsonl"), ("journal", trail.path)):
        trail.path = path
        text = (harness.ROOT / "examples" / "audit-export" / ("issuing-audit-%s.service" % unit)).read_text()
        text = text.replace("\\\n", " ").replace("/usr/bin/", "")
        words = shlex.split(re.search("^ExecStart=(.*)$", text, re.M)[1])  # first split, as systemd does it
        command = [word.replace("%S", str(world.dir)) for word in words]
        for reasons in (("%s 1" % unit, "%s 2" % unit), (), ("%s 3" % unit,)):
            act(world, *reasons)
            done = subprocess.run(command, env={**harness.ENVIRONMENT, "PATH": "%s:%s" % (
                folder, harness.ENVIRONMENT["PATH"])}, capture_output=True, text=True, timeout=harness.STUCK_AFTER_S)
            assert_equal(done.returncode, 0, done.stderr)
        assert_equal(trail.reasons()[-3:], ["%s %d" % (unit, number) for number in (1, 2, 3)], unit)
        trail.is_whole()


@slow
@test
def an_export_after_a_restore_says_that_the_history_went_back(world):
    history = History(world)
    world.start_sandbox()
    trail = Trail(world)
    act(world, "kept")
    trail.append()
    history.keep()
    act(world, "lost")
    trail.append()
    before = trail.path.read_bytes()
    history.back()
    done = trail.append(code=1)
    assert_true("row 2 of" in done.stderr and "the database has gone back" in done.stderr, done.stderr)
    for _ in range(40):  # the sequence may have been ahead
        act(world, "another")
    done = trail.append(code=1)
    assert_true("the database has gone back" in done.stderr, done.stderr)
    assert_equal(trail.path.read_bytes(), before, "the file")
    assert_true((2, 2) in [(line, row) for line, row, _ in trail.verify()[1]], "what is lost is named")
    trail.path.rename(world.dir / "before.jsonl")
    trail.append()
    assert_equal(trail.reasons()[:2], ["kept", "another"], "a new chain")
    trail.is_whole()
