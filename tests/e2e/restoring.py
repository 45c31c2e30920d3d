"""An older state of the database is restored. Requests that are open in it had ended meanwhile. They are worked on
again, and must get the cards and links that the issuer and core-api already have.

Story: a restored request was sent again within its key's lifetime and got its own card, under another id of ours.
core-api refused the link, and the card that the user had been using was cancelled. Another one was sent again when its
key was over: a second card was made, cancelled again because of the link, and the request was REJECTED.

Story: api and worker ran on while the database was replaced by its backup. A request that had been accepted meanwhile
was not there any more, its repeat was a new request, and nothing said so.
"""
import os
import pathlib
import re

import harness
from harness import assert_equal, assert_true, CLUSTER, core, Failed, run, slow, test, wait_until
from lifetimes import ONE_DAY_MS

SUDO = """#!/bin/sh
export PGUSER="$(printf %s "$2" | tr - _)"
shift 2
exec "$@"
"""


class History:
    """Of the world's own database: what `keep` has kept is all there is after `back`."""

    def __init__(self, world):
        world.own_database()
        self.world, self.data, self.kept = world, world.dir / "pg" / "data", world.dir / "pg" / "kept"

    def _while_stopped(self, command):
        self.world.close_lookers()
        for words in ([CLUSTER, "stop", self.world.dir / "pg"], ["sh", "-c", command, "sh", self.data, self.kept],
                      [CLUSTER, "start", self.world.dir / "pg", "fsync=off"]):
            done = run(words, 900)
            if done.returncode != 0:
                raise Failed("%s: %s" % (words, done.stderr))

    def keep(self):
        self._while_stopped('rm -rf "$2" && cp -a "$1" "$2"')

    def back(self):
        self._while_stopped('rm -rf "$1" && cp -a "$2" "$1"')


def cards(world):
    return (world.rows("SELECT user_id, request_id, id, issuer_card_id, replaces, status FROM cards ORDER BY id"),
            [(card["id"], card["reference"], card["status"]) for card in world.sandbox.cards()])


def ended_and_restored(world, history, daemons, requests):
    """They end, and then the database has them as open again, while nothing runs. Returns the cards that were made."""
    history.keep()
    for daemon in daemons:
        world.restart(daemon)
    world.wait_final(requests)
    made = cards(world)
    for daemon in daemons:
        assert_equal(daemon.stop(), 0, "exit status")
    history.back()
    return made


def nothing_was_taken_away(world, requests, made):
    world.wait_final(requests)
    assert_equal([world.status(request) for request in requests], ["COMPLETED"] * len(requests), "statuses")
    assert_equal(cards(world), made, "cards, here and at the issuer")
    assert_equal([[call["status"] for call in world.sandbox.calls("link", reference=request)] for request in requests],
                 [[201, 200]] * len(requests), "links")
    assert_equal([world.sandbox.calls(call) for call in ("cancel", "unlink")], [[], []], "what was taken away")


@slow
@test
def a_restored_database_gets_the_same_cards_again(world):
    history = History(world)
    world.up(workers=0)
    api, worker = world.apis()[0], world.start_worker()
    old = world.issue("bob")["card"]["id"]
    assert_equal(worker.stop(), 0, "exit status")
    requests = [world.accept("alice"), world.accept("bob", "k2", {"kind": "reissue", "replaces": old})]
    assert_equal(api.stop(), 0, "exit status")
    made = ended_and_restored(world, history, (api, worker), requests)
    assert_equal([card["status"] for card in made[0]], ["replaced", "active", "active"], "cards")
    for daemon in (api, worker):
        world.restart(daemon)
    wait_until(lambda: all(len(world.sandbox.calls("create", reference=request)) == 2 for request in requests),
               "both are made again")
    nothing_was_taken_away(world, requests, made)


@slow
@test
def a_restored_database_gets_no_second_card_when_its_keys_are_over(world):
    """The issuer has forgotten the key. A create would make a second card, whose link core-api refuses."""
    history = History(world)
    world.up()
    api, worker = world.apis()[0], world.workers()[0]
    assert_equal(worker.stop(), 0, "exit status")
    request = world.accept("alice")
    assert_equal(api.stop(), 0, "exit status")
    made = ended_and_restored(world, history, (api, worker), [request])
    world.sql("UPDATE outbox_events SET created_at = created_at - interval '24 h'")
    world.sandbox.advance(ONE_DAY_MS)
    for daemon in (api, worker):
        world.restart(daemon)
    nothing_was_taken_away(world, [request], made)
    assert_equal([len(world.sandbox.calls(call, reference=request)) for call in ("create", "lookup")], [1, 1], "calls")


LACKS = "the database lacks acknowledged commits: %s"
LOST = 'issuing_db_away{cause="lost"}'


def said(daemon):
    """Status and text of its /readyz."""
    answer = daemon.get("/readyz")
    return answer.status, answer.body.decode()


def wait_refused(daemon, why):
    wait_until(lambda: said(daemon)[0] == 503 and LACKS % why in said(daemon)[1], "%s refuses" % daemon.name)


def accept_history(world):
    done = world.ctl("accept-history", "--reason", "restored, and compared with the issuer")
    assert_equal((done.returncode, done.stdout.startswith("history  accepted: it was at 0/")), (0, True), done.stdout)


@core
@slow
@test
def a_database_that_lacks_acknowledged_commits_is_not_used_until_an_operator_accepts_it(world):
    history = History(world)
    world.up()
    api, worker = world.apis()[0], world.workers()[0]
    world.issue("alice")
    history.keep()
    for daemon in (api, worker):
        daemon.wait_ready()
    world.issue("bob")
    history.back()
    for daemon in (api, worker):
        wait_refused(daemon, "it was at 0/")
        wait_until(lambda daemon=daemon: daemon.metric(LOST) == 1, "the cause at " + daemon.name)
    world.allowed.add("orphan")
    assert_equal(world.post("bob", "k").status, 503, "its repeat")
    doctor = world.ctl("doctor")
    assert_true(doctor.returncode == 1 and re.search(r"^FAIL +history +.*it was at 0/", doctor.stdout, re.M),
                doctor.stdout)
    # Neither what is written meanwhile nor a start makes it good.
    world.sql("SELECT count(pg_logical_emit_message(false, 'x', repeat('x', 1000))) FROM generate_series(1, 1000)")
    api.stop()
    world.restart(api, wait_ready=False)
    wait_refused(api, "it was at 0/")
    assert_equal(world.ctl("accept-history").returncode, 2, "without a reason")
    accept_history(world)
    for daemon in (api, worker):
        daemon.wait_ready()
        assert_equal(daemon.metric(LOST), 0, "the cause")
    assert_true("FAIL  history" not in world.ctl("doctor").stdout, "doctor")
    assert_equal(world.sql("SELECT action || ' ' || reason FROM operator_actions ORDER BY at DESC LIMIT 1"),
                 "accept_history restored, and compared with the issuer", "the audit row")
    done = world.ctl("accept-history", "--reason", "once more")
    assert_equal((done.returncode, done.stdout), (0, "history  unchanged: no program has refused this database\n"), "")
    # What was accepted then says nothing about a second time.
    world.issue("carol")
    history.back()
    for daemon in (api, worker):
        wait_refused(daemon, "it is another one")
    world.ctl("accept-history", "--reason", "the same again")
    for daemon in (api, worker):
        daemon.wait_ready()
    world.issue("dave")


class Page:
    """The commands of docs/database.md about backups, for a server that is elsewhere."""

    def __init__(self, world):
        self.world, self.folder = world, world.dir / "bin"
        text = (harness.ROOT / "docs" / "database.md").read_text(encoding="utf-8")
        part = text[text.index("## Backups"):text.index("## Standbys")]
        self.blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", part, re.M | re.S)
        self.host = re.search(r"host=(\S+)", world.base).group(1)
        self.folder.mkdir()
        (world.dir / "page.conf").write_text("[database]\nurl = host=%s dbname=issuing\n" % self.host)
        for name, script in (("sudo", SUDO), ("issuing-ctl", '#!/bin/sh\nexec "%s" "--config=%s" "$@"\n' % (
                harness.BUILD / "issuing-ctl", world.dir / "page.conf"))):
            (self.folder / name).write_text(script)
            (self.folder / name).chmod(0o755)

    def run(self, number):
        """Returns what that block prints."""
        self.world.close_lookers()
        path = "%s:%s:%s" % (self.folder, pathlib.Path(harness.psql_program()).parent, os.environ["PATH"])
        script = self.blocks[number].replace("/var/lib/postgresql", str(self.world.dir)).replace(
            "/run/postgresql", self.host)
        done = run(["env", "PATH=" + path, "PGHOST=" + self.host, "sh", "-ec", script], 900)
        assert_equal(done.returncode, 0, "%s%s%s" % (script, done.stdout, done.stderr))
        return done.stdout


@slow
@test
def the_commands_of_the_page_make_and_restore_a_backup(world):
    world.own_database()
    assert_equal(run([CLUSTER, "stop", world.dir / "pg"]).returncode, 0, "stop")
    assert_equal(run([CLUSTER, "start", world.dir / "pg"], 900).returncode, 0, "with fsync, as doctor wants it")
    page = Page(world)
    world.up(workers=0)
    api, worker = world.apis()[0], world.start_worker()
    world.issue("alice")
    assert_equal(worker.stop(), 0, "exit status")
    request = world.accept("bob")
    page.run(0)
    world.restart(worker)
    world.wait_status(request, "COMPLETED")
    card = world.sql("SELECT id FROM cards WHERE user_id = 'bob'")
    for daemon in (api, worker):
        assert_equal(daemon.stop(), 0, "exit status")
    page.run(1)
    for daemon in (api, worker):
        world.restart(daemon)
    world.wait_status(request, "COMPLETED")
    assert_equal(world.sql("SELECT id FROM cards WHERE user_id = 'bob'"), card, "the card")
    assert_equal(world.post("alice", "k").header("Idempotent-Replayed"), "true", "a request from before")
    world.issue("carol")
    doctor = world.ctl("doctor")
    assert_equal(doctor.returncode, 0, doctor.stdout)
