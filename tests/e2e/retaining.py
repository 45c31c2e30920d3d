"""The number of a card that was closed long ago is erased, once, by the worker, and not before the owner of the
database and the options of all workers allow it.

Story: an assessor asked why the numbers of cards that were closed years ago are still there (PCI DSS, 3.2.1).
"""
import json

from answers import problem
from harness import assert_equal, assert_true, slow, test, wait_until
from operators import doctor
from restoring import History
from rotation import number_of, put

ERASED = "issuing_numbers_erased_total"
PASSES = "issuing_housekeeping_seconds_count"


def a_closed_and_a_new_card(world):
    """The first one was replaced 31 days ago."""
    old = world.issue("alice")["card"]["id"]
    new = world.issue("alice", "again", {"kind": "reissue", "replaces": old})["card"]["id"]
    world.sql("UPDATE cards SET closed_at = closed_at - interval '31 days' WHERE id = '%s'" % old)
    return old, new


def shorten(world, days):
    """As the owner."""
    world.sql("SELECT issuing.set_retention('numbers', '%d d')" % days)


def said_of_numbers(world):
    return [row for row in doctor(world, card__number_retention="30d") if row["check"] in ("kept numbers", "agreement")]


def is_erased(world, card):
    return world.sql("SELECT number_record IS NULL AND number_erased_at IS NOT NULL FROM cards WHERE id = '%s'"
                     % card) == "t"


def number(world, card):
    return world.get("alice", "/v1/cards/%s/number" % card)


@test
def a_number_is_erased_once_its_retention_is_over_and_everybody_is_told(world):
    mine = world.dir / "mine.keys"
    put(world.suite.keys_file, mine)
    world.settings["card.keys_file"] = mine
    world.up(workers=0)
    world.start_worker(card__number_retention="30d")
    assert_true([row for row in doctor(world) if row["check"] == "kept numbers" and "for ever" in row["found"]],
                "the hint")
    old, new = a_closed_and_a_new_card(world)
    assert_equal(number(world, old).status, 200, "the database keeps it for ever until its owner says less")
    said, = said_of_numbers(world)
    assert_equal(said["ok"], False, "doctor: %s" % said)
    world.sql(said["fix"].split("owner: ")[1])
    for _ in range(2):  # both at their first pass at once
        world.start_worker(wait_ready=False, card__number_retention="30d")
    wait_until(lambda: is_erased(world, old), "it is erased")
    problem(number(world, old), 404, "number-erased")
    assert_true(number_of(world, "alice", new), "the card in use has its number")
    problem(world.get("bob", "/v1/cards/%s/number" % old), 404, "not-found")
    assert_equal(world.get("alice", "/v1/cards/%s" % old).json()["status"], "replaced", "the card stays")
    assert_true(world.apis()[0].metric('issuing_number_reveals_total{result="erased"}') == 1, "the api counts it")
    wait_until(lambda: all(worker.metric(PASSES) >= 1 for worker in world.workers()), "all made a pass")
    assert_equal(sum(worker.metric(ERASED) for worker in world.workers()), 1.0, "counted once")
    assert_equal(world.sql("SELECT db_role, after ->> 'numbers', after ->> 'kept' FROM operator_actions"
                           " WHERE action = 'numbers_erased'"), "issuing_worker|1|30 days", "on record")
    assert_equal([row["ok"] for row in said_of_numbers(world)][0], True, "doctor")
    request = world.sql("SELECT request_id FROM cards WHERE id = '%s'" % old)
    assert_true("replaced; its number was erased at 20" in world.ctl("explain", request).stdout, "explain")
    assert_true("number erased    20" in world.ctl("show", request).stdout, "show")
    shown = json.loads(world.ctl("show", request, "--json").stdout)
    assert_true(shown["card"]["number_erased_at"].startswith("20"), "show --json: %s" % shown)
    assert_equal(world.ctl("keys", "rotate", mine).returncode, 0, "rotate")
    done = world.ctl("keys", "rewrap", "--json", role="issuing_owner")
    assert_equal(json.loads(done.stdout), {"key_id": 2, "rewrapped": 1, "unreadable": 0, "left": 0}, done.stderr)


@test
def a_host_with_yesterdays_configuration_erases_nothing_and_keeps_others_from_it(world):
    """It had no option: its numbers stay for ever, and so do those of all."""
    world.up(workers=0)
    worker = world.start_worker(card__number_retention="30d")
    old, _ = a_closed_and_a_new_card(world)
    assert_equal(worker.stop(), 0, "exit status")
    shorten(world, 30)
    yesterdays = world.start_worker()
    wait_until(lambda: world.sql("SELECT kept > '31 d' FROM retentions WHERE name = 'numbers'") == "t", "it is longer")
    world.restart(worker)
    wait_until(lambda: worker.metric(PASSES) >= 1, "a pass of the other one")
    assert_equal(number(world, old).status, 200, "it is kept")
    wait_until(lambda: any(row["check"] == "agreement" and "card.number_retention" in row["found"]
                           for row in said_of_numbers(world)), "doctor names the option")
    assert_true(any(row["check"] == "kept numbers" and not row["ok"] for row in said_of_numbers(world)),
                "and what follows")
    for daemon in (yesterdays, worker):
        assert_equal(daemon.stop(), 0, "exit status")
    shorten(world, 30)
    world.restart(worker)
    wait_until(lambda: is_erased(world, old), "it is erased")


@slow
@test
def a_number_that_a_backup_brings_back_is_erased_again(world):
    history = History(world)
    world.up(workers=0)
    api, worker = world.apis()[0], world.start_worker(card__number_retention="30d")
    old, new = a_closed_and_a_new_card(world)
    shorten(world, 30)
    for daemon in (api, worker):
        assert_equal(daemon.stop(), 0, "exit status")
    history.keep()
    for restored in (False, True):
        if restored:
            for daemon in (api, worker):
                assert_equal(daemon.stop(), 0, "exit status")
            history.back()
        assert_equal(world.sql("SELECT count(number_record) FROM cards"), "2", "both are there")
        for daemon in (api, worker):
            world.restart(daemon)
        wait_until(lambda: is_erased(world, old), "it is erased")
        problem(number(world, old), 404, "number-erased")
        assert_true(number_of(world, "alice", new), "the card in use has its number")
