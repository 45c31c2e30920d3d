"""The keys of stored card numbers: a leaked one is replaced while everything runs."""
import json
import os
import shutil
import subprocess

import harness
from harness import assert_equal, assert_true, test, wait_until


def number_of(world, user, card, api=None):
    answer = world.get(user, "/v1/cards/%s/number" % card, api=api)
    return answer.status == 200 and answer.json()["number"]


def records(world):
    return world.sql("SELECT string_agg(coalesce(key_id::text, '-') || '=' || records, ' ' ORDER BY key_id)"
                     " FROM issuing.number_keys()")


def keys_of(world, path):
    done = world.ctl("keys", "status", path, "--json")
    assert_equal(done.returncode, 0, done.stderr)
    return {row.get("key_id"): (row["state"], row.get("records")) for row in
            (json.loads(line) for line in done.stdout.splitlines())}


def put(source, *targets):
    """As a roll-out does it: a new file that takes the old one's name."""
    for target in targets:
        shutil.copy2(source, str(target) + ".copy")
        os.replace(str(target) + ".copy", target)


@test
def a_leaked_key_is_replaced_without_an_outage(world):
    mine, of_api, of_late, of_worker = (world.dir / name for name in ("mine.keys", "api.keys", "late.keys",
                                                                      "worker.keys"))
    assert_equal(world.ctl("keys", "generate", mine).returncode, 0, "generate")
    put(mine, of_api, of_late, of_worker)
    world.settings["card.keys_file"] = mine
    world.start_sandbox()
    api, worker = world.start_api(card__keys_file=of_api), world.start_worker(card__keys_file=of_worker)
    late = world.start_api(card__keys_file=of_late)
    users = ["user-%d" % i for i in range(12)]
    cards = {user: world.issue(user)["card"]["id"] for user in users}
    numbers = {user: number_of(world, user, card) for user, card in cards.items()}
    assert_true(all(numbers.values()) and set(numbers.values()) == set(world.sandbox.numbers()), "numbers")

    def all_are_shown(what):
        assert_equal({user: number_of(world, user, card) for user, card in cards.items()}, numbers, what)

    # The first file, the one on the operator's machine.
    done = world.ctl("keys", "rotate", mine, "--json")
    assert_equal((done.returncode, json.loads(done.stdout)["key_id"]), (0, 2), "rotate")
    assert_equal(world.ctl("keys", "retire", "1", mine).returncode, 1, "a key that holds numbers")
    # The api has the file, and needs no signal: it reads the file again when it meets an unknown key.
    put(mine, of_api)
    all_are_shown("after the api has the file")
    put(mine, of_worker)
    assert_equal(worker.stop(), 0, "the worker ends")
    world.restart(worker)
    cards["new"] = world.issue("new")["card"]["id"]
    assert_equal(records(world), "1=12 2=1", "the new card has the new key")
    numbers["new"] = number_of(world, "new", cards["new"])
    assert_true(numbers["new"] in world.sandbox.numbers() and "the card keys were read again" in api.text(),
                "the new number")
    all_are_shown("old and new ones")
    # Not for everybody.
    done = world.ctl("keys", "rewrap")
    assert_equal(done.returncode, 78, "rewrap as issuing_operator")
    assert_true("issuing_owner" in done.stderr, done.stderr)
    assert_equal(records(world), "1=12 2=1", "nothing was changed")
    done = world.ctl("keys", "rewrap", "--json", role="issuing_owner")
    assert_equal((done.returncode, done.stdout.strip()),
                 (0, '{"key_id":2,"rewrapped":12,"unreadable":0,"left":0}'), done.stderr)
    assert_equal(records(world), "2=13", "all have the new key")
    assert_equal(world.sql("SELECT action || ' ' || before::text || ' ' || after::text FROM operator_actions"
                           " WHERE action <> 'number_revealed'"),
                 'number_rewrapped {"key_id": 1} {"key_id": 2, "records": 12}', "on record")
    all_are_shown("after it")
    assert_equal(world.ctl("keys", "rewrap", role="issuing_owner").returncode, 0, "again")
    assert_equal(keys_of(world, mine), {1: ("decrypt", 0), 2: ("active", 13)}, "status")
    # The old key goes.
    assert_equal(world.ctl("keys", "retire", "2", mine).returncode, 1, "the active key")
    assert_equal(world.ctl("keys", "retire", "1", mine).returncode, 0, "the leaked key")
    mine.write_text("".join(line for line in mine.read_text().splitlines(True) if not line.startswith("1 ")))
    put(mine, of_api, of_worker)
    for daemon in (api, worker):
        assert_equal(daemon.stop(), 0, daemon.name + " ends")
        world.restart(daemon)
    all_are_shown("without the old key")
    assert_equal(api.metric("issuing_numbers_unreadable_total"), 0, "calls that found no number")
    # An api without any signal in between: it gets the last file only, in which the key that it began with is
    # not there any more.
    put(mine, of_late)
    assert_equal({user: number_of(world, user, card, late) for user, card in cards.items()}, numbers, "at the late one")
    assert_equal(late.metric("issuing_numbers_unreadable_total"), 0, "calls that found no number")


@test
def a_worker_with_a_new_key_before_the_api_makes_no_outage(world):
    """The order of the roll-out was wrong: until the api has the file, these numbers are 404, and nothing else is."""
    world.start_sandbox()
    of_api, of_worker = world.dir / "api.keys", world.dir / "worker.keys"
    put(world.suite.keys_file, of_api, of_worker)
    assert_equal(world.ctl("keys", "rotate", of_worker).returncode, 0, "rotate")
    api = world.start_api(card__keys_file=of_api)
    world.start_worker(card__keys_file=of_worker)
    card = world.issue("alice")["card"]["id"]
    assert_equal(world.get("alice", "/v1/cards/%s/number" % card).status, 404, "before the api has the key")
    assert_equal(world.sql("SELECT count(*) FROM operator_actions"), "0", "audit rows")
    assert_true("key 2 is retired or not in the key ring" in api.text(), "the log")
    put(of_worker, of_api)
    wait_until(lambda: number_of(world, "alice", card), "the number", every=0.3)


@test
def sealing_again_can_be_stopped_and_goes_on_where_it_was(world):
    world.start_sandbox()
    mine = world.dir / "mine.keys"
    put(world.suite.keys_file, mine)
    world.settings["card.keys_file"] = mine
    world.start_api()
    worker = world.start_worker()
    cards = {user: world.accept(user) for user in ("user-%d" % i for i in range(30))}
    world.settle()
    worker.stop()
    # Two that no key opens: a record that was moved, and one of a key that is gone.
    world.sql("UPDATE cards SET number_record = (SELECT number_record FROM cards WHERE user_id = 'user-1')"
              " WHERE user_id = 'user-2'")
    world.sql("UPDATE cards SET number_record = set_byte(number_record, 4, 77) WHERE user_id = 'user-3'")
    assert_equal(world.ctl("keys", "rotate", mine).returncode, 0, "rotate")
    assert_equal(keys_of(world, mine), {1: ("decrypt", 29), 2: ("active", 0), 77: ("missing", 1)}, "status")
    flags = ["--config=%s" % world.suite.empty_file, "--database.url=" + world.conninfo("issuing_owner"),
             "--card.keys_file=%s" % mine]
    slow = subprocess.Popen([harness.BUILD / "issuing-ctl", *flags, "keys", "rewrap", "--rate", "1"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=harness.ENVIRONMENT)
    wait_until(lambda: "2=" in records(world), "the first ones are done")
    slow.terminate()
    _, text = slow.communicate(timeout=harness.STUCK_AFTER_S)
    assert_equal(slow.returncode, 1, text)
    assert_true("stopped" in text, text)
    first = int(world.sql("SELECT count(*) FROM cards WHERE issuing.key_id_of(number_record) = 2"))
    assert_true(0 < first < 28, "some: %d" % first)
    done = world.ctl("keys", "rewrap", "--json", role="issuing_owner")
    assert_equal((done.returncode, json.loads(done.stdout)),
                 (1, {"key_id": 2, "rewrapped": 28 - first, "unreadable": 2, "left": 2}), done.stderr)
    ids = world.sql("SELECT id FROM cards WHERE user_id IN ('user-2', 'user-3')").splitlines()
    assert_true(all(card in done.stderr for card in ids), "the two are named: " + done.stderr)
    assert_equal(records(world), "1=1 2=28 77=1", "records")
    assert_equal(world.sql("SELECT sum((after ->> 'records')::int) FROM operator_actions WHERE action ="
                           " 'number_rewrapped'"),
                 "28", "on record")
    shown = {user for user in cards if number_of(world, user, world.get(user, "/v1/cards").json()["items"][0]["id"])}
    assert_equal(set(cards) - shown, {"user-2", "user-3"}, "cards without a number")
