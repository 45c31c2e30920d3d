"""A bucket moves to another cell while its users go on.

Story: a database has become too small, so half of its users get another one, while they order cards. A key that is
repeated in the new cell must be a repeat there, a limit must not begin anew, and a call that is refused in between must
leave nothing behind: the client repeats it, and whichever cell answers decides.
"""
import json
import threading

import client
from cells import (ALL, bucket_of, Cells, check_repeats, count_rows, is_problem, Load, MOVING, Router, STEPS, users_of,
                   WRONG_CELL)
from harness import assert_equal, assert_true, Failed, psql, slow, test, wait_until
from orders import EXAMPLE
from receiver import insert, receiver, route

BUCKET = 17


# ---- the answers -----------------------------------------------------------------------------------------------------


ACCEPTS, IS_MOVING, IS_ELSEWHERE, READS = 202, MOVING, WRONG_CELL, 200
# After each step of a move: what a POST and a GET get in the source and in the destination.
ANSWERS = {
    "list": ((ACCEPTS, READS), (IS_ELSEWHERE, IS_ELSEWHERE)),
    "expect": ((ACCEPTS, READS), (IS_MOVING, IS_MOVING)),
    "drain": ((ACCEPTS, READS), (IS_MOVING, IS_MOVING)),
    "close": ((IS_MOVING, READS), (IS_MOVING, IS_MOVING)),
    "copy": ((IS_MOVING, READS), (IS_MOVING, IS_MOVING)),
    "leave": ((IS_ELSEWHERE, IS_ELSEWHERE), (IS_MOVING, IS_MOVING)),
    "arrive": ((IS_ELSEWHERE, IS_ELSEWHERE), (ACCEPTS, READS)),
    "router": ((IS_ELSEWHERE, IS_ELSEWHERE), (ACCEPTS, READS)),
    "empty": ((IS_ELSEWHERE, IS_ELSEWHERE), (ACCEPTS, READS)),
}


def told(answer):
    return answer.status if answer.status != 503 else answer.json()["type"]


@test
def each_step_of_a_move_answers_as_the_page_says_and_a_repeat_is_a_replay(world):
    """docs/scaling.md has the table of states. Nothing that is refused is recorded."""
    cells = Cells(world).up()
    one, two = cells.all
    early, user = users_of(BUCKET, 2)
    first = cells.accept(early)
    request = first.json()["id"]
    cells.wait_end(early, request, "COMPLETED")
    assert_equal(list(ANSWERS), list(STEPS), "steps")
    keys = {"k": first.body}
    for number, (step, wanted) in enumerate(ANSWERS.items()):
        cells.move(BUCKET, "two", "--stop-after", step)
        for cell, (post, get) in zip((one, two), wanted):
            rows = count_rows(cell, [early, user])
            new = cell.post(user, "k%d" % number)
            assert_equal((step, cell.name, told(new)), (step, cell.name, post), "a POST: %r" % new)
            again = cell.post(early, "k")
            assert_equal((step, cell.name, told(again)), (step, cell.name, post), "a repeat: %r" % again)
            shown = cell.get(early, "/v1/card-requests/" + request)
            assert_equal((step, cell.name, told(shown)), (step, cell.name, get), "a GET: %r" % shown)
            for refused in (answer for answer in (new, again, shown) if answer.status == 503):
                assert_equal(refused.header("Retry-After"), "1", "Retry-After")
            if post == ACCEPTS:
                keys["k%d" % number] = new.body
                assert_equal((again.body, again.header("Idempotent-Replayed")), (first.body, "true"), "a repeat")
            else:
                assert_equal(count_rows(cell, [early, user]), rows, "rows after refusals in %s" % cell.name)
    for key, body in keys.items():
        again = two.post(early if key == "k" else user, key)
        assert_equal((again.status, again.body, again.header("Idempotent-Replayed")), (202, body, "true"), key)
    assert_equal(len(keys), 7, "requests that were accepted")
    assert_equal(set(count_rows(one, [early, user]).values()), {0}, "rows that are left in the source")
    two.settle()
    cells.move(BUCKET, "one")


@test
def keys_keep_their_answers_while_their_bucket_moves_there_and_back(world):
    cells = Cells(world).up()
    load = Load(cells, users_of(BUCKET, 4) + users_of(BUCKET + 1, 2))
    for to in ("two", "one", "two"):
        load.wait(12)
        cells.move(BUCKET, to)
    load.wait(12)
    found = load.stop()
    cells.settle()
    assert_equal((cells.owners(BUCKET), cells.owners(BUCKET + 1)), (["two"], ["one"]), "where the buckets live")
    check_repeats(cells, found)


@test
def two_devices_during_a_move_get_one_card(world):
    """The same key from two devices, at the same moment, to both cells, again and again until it is accepted."""
    cells = Cells(world).up(apis=2)
    users = users_of(BUCKET, 3)
    keys = [(user, "k%d" % number) for user in users for number in range(8)]
    bodies, wrong, stop = {key: set() for key in keys}, [], threading.Event()

    def device(number):
        while not stop.is_set():
            for user, key in keys[::1 if number % 2 else -1]:
                for cell in cells.all:
                    try:
                        answer = cell.post(user, key, api=cell.apis()[number % 2])
                    except (OSError, client.Closed) as error:
                        wrong.append(repr(error))
                        continue
                    if answer.status == 202:
                        bodies[user, key].add(answer.body)
                    elif answer.status != 503:
                        wrong.append("%r" % answer)
    devices = [threading.Thread(target=device, args=(number,), daemon=True) for number in range(4)]
    for each in devices:
        each.start()
    for to in ("two", "one", "two", "one"):
        cells.move(BUCKET, to)
    wait_until(lambda: all(bodies.values()) or wrong, "all are accepted")
    stop.set()
    for each in devices:
        each.join(30)
    assert_equal(wrong, [], "answers")
    assert_equal([key for key, found in bodies.items() if len(found) != 1], [], "keys with several answers")
    cells.settle()
    assert_equal(len(world.sandbox.cards()), len(keys), "cards at the issuer")


@test(limit__count="4", limit__window="1h")
def the_limit_counts_what_was_accepted_in_the_other_cell(world):
    cells = Cells(world).up()
    one, two = cells.all
    user, greedy = users_of(BUCKET, 2)
    statuses = [one.post(user, "a%d" % number).status for number in range(2)]
    statuses += [one.post(greedy, "a%d" % number).status for number in range(5)]
    cells.move(BUCKET, "two")
    statuses += [two.post(user, "b%d" % number).status for number in range(3)]
    statuses += [two.post(greedy, "b").status, two.post(greedy, "a0").status]
    cells.move(BUCKET, "one")
    statuses += [one.post(user, "c").status, one.post(user, "b0").status, one.post(greedy, "c").status]
    assert_equal(statuses, [202] * 2 + [202] * 4 + [429] + [202] * 2 + [429] + [429, 202] + [429, 202, 429], "statuses")
    cells.settle()


@test(limit__count="5", limit__window="1h")
def no_user_gets_past_the_limit_while_the_bucket_moves_under_load(world):
    cells = Cells(world).up()
    users = users_of(BUCKET, 4)
    accepted, wrong, stop = {user: set() for user in users}, [], threading.Event()

    def run(user, number):
        count = 0
        while not stop.is_set():
            try:
                answer = cells.post(user, "k%d-%d" % (number, count))
            except (OSError, client.Closed):
                continue
            if answer.status == 202:
                accepted[user].add(answer.json()["id"])
            elif answer.status not in (429, 503):
                wrong.append("%r" % answer)
            count += 1
    threads = [threading.Thread(target=run, args=(user, number), daemon=True) for user in users for number in range(2)]
    for each in threads:
        each.start()
    for to in ("two", "one", "two"):
        cells.move(BUCKET, to)
    wait_until(lambda: all(len(found) >= 5 for found in accepted.values()) or wrong, "all have got what they may have")
    cells.move(BUCKET, "one")
    stop.set()
    for each in threads:
        each.join(30)
    assert_equal((wrong, {user: len(found) for user, found in accepted.items()}), ([], dict.fromkeys(users, 5)),
                 "accepted")
    cells.settle()


@test
def a_wrong_router_is_refused_and_nothing_is_recorded(world):
    """It has the map of yesterday. The cell that it asks says so, whatever the call; the right one serves."""
    cells = Cells(world).up()
    one, two = cells.all
    user, = users_of(BUCKET)
    card = one.issue(user)["card"]["id"]
    cells.move(BUCKET, "two")
    yesterday = world.dir / "yesterday.map"
    yesterday.write_text("".join("%d cell_one\n" % bucket for bucket in range(1024)))
    stale = Router(cells, map_file=yesterday)
    rows = {cell.name: count_rows(cell, [user]) for cell in cells.all}
    for number in range(3):
        answers = [cells.post(user, "k", router=stale), cells.post(user, "new-%d" % number, router=stale)]
        answers += [cells.get(user, path, router=stale) for path in (
            "/v1/card-requests", "/v1/cards", "/v1/cards/" + card, "/v1/cards/%s/number" % card)]
        assert_equal([told(answer) for answer in answers], [WRONG_CELL] * len(answers), "answers: %r" % answers)
    assert_equal({cell.name: count_rows(cell, [user]) for cell in cells.all}, rows, "rows")
    assert_equal(one.sql("SELECT count(*) FROM operator_actions WHERE action LIKE 'number_%'"), "0", "reveals")
    fresh = Router(cells, map_file=cells.map_file)
    assert_equal(cells.get(user, "/v1/cards/%s/number" % card, router=fresh).status, 200, "by the new map")
    assert_equal(cells.post(user, "k", router=fresh).header("Idempotent-Replayed"), "true", "a repeat")
    assert_true(one.apis()[0].get("/readyz").status == 200, "the api is ready all the same")


@test
def a_user_who_first_comes_during_the_move_goes_along(world):
    cells = Cells(world).up()
    two = cells["two"]
    users = users_of(BUCKET, 7)
    cells.accept(users[0])
    bodies, inserted = {}, []
    for step, user, other in zip(("list", "expect", "drain"), users[1:4], users[4:]):
        cells.move(BUCKET, "two", "--stop-after", step)
        bodies[user] = cells.accept(user).body
        inserted += insert(cells["one"], other, "SOMETHING_ELSE")
    cells.move(BUCKET, "two")
    for user, body in bodies.items():
        again = two.post(user, "k")
        assert_equal((again.status, again.body), (202, body), "the repeat of " + user)
    assert_equal(sorted(two.sql("SELECT id FROM outbox_events WHERE event_type = 'SOMETHING_ELSE'").split()),
                 sorted(inserted), "events of another service")
    cells.settle()


@slow
@test
def odd_names_of_users_move_as_they_are(world):
    cells = Cells(world).up()
    one, two = cells.all
    users = ["o'brien \"x\" 100%", "\\N", "a\\tb\\", "{1,2}", "--", "$1", " blank ", "x" * 128]
    users = [user for user in users if one.post(user, "probe").status == 202]
    assert_true(len(users) >= 7, "users that are accepted: %r" % users)
    bodies = {user: one.post(user, "k'{N}$1", body={"kind": "new", "memo": "\\N '\u00e4\\"}).body for user in users}
    cells.settle()
    buckets = sorted({bucket_of(user) for user in users})
    cells.move(buckets, "two")
    for user, body in bodies.items():
        again = two.post(user, "k'{N}$1", body={"kind": "new", "memo": "\\N '\u00e4\\"})
        assert_equal((again.status, again.body), (202, body), "the repeat of %r" % user)
        assert_equal([card["status"] for card in two.get(user, "/v1/cards").json()["items"]], ["active"] * 2, user)
    cells.move(buckets, "one")


# ---- cards -----------------------------------------------------------------------------------------------------------


@test
def a_card_is_shown_replaced_and_revealed_in_its_new_cell(world):
    cells = Cells(world).up()
    one, two = cells.all
    user, = users_of(BUCKET)
    card = one.issue(user)["card"]["id"]
    shown, number = one.get(user, "/v1/cards/" + card), one.get(user, "/v1/cards/%s/number" % card)
    cells.move(BUCKET, "two")
    assert_equal(two.get(user, "/v1/cards/" + card).body, shown.body, "the card")
    assert_equal(two.get(user, "/v1/cards/%s/number" % card).body, number.body, "its number")
    request = two.accept(user, "again", {"kind": "reissue", "replaces": card})
    cells.wait_end(user, request, "COMPLETED")
    cells.move(BUCKET, "one")
    states = {each["id"]: each["status"] for each in one.get(user, "/v1/cards").json()["items"]}
    assert_equal((states.pop(card), list(states.values())), ("replaced", ["active"]), "cards")
    assert_equal(one.sql("SELECT count(*) FROM operator_actions WHERE action = 'number_revealed'"), "2",
                 "reveals, on record")


@test
def a_card_is_replaced_once_though_its_user_asks_in_both_cells(world):
    cells = Cells(world).up()
    one, two = cells.all
    user, = users_of(BUCKET)
    card = one.issue(user)["card"]["id"]
    for worker in world.workers():
        worker.stop()
    body = {"kind": "reissue", "replaces": card}
    first = one.accept(user, "a", body)
    cells.move(BUCKET, "two")
    second = two.post(user, "b", body)
    assert_true(second.status in (409, 422), "another reissue of the card: %r" % second)
    assert_equal(two.post(user, "a", body).json()["id"], first, "the repeat of the first")
    for worker in world.workers():
        world.restart(worker)
    cells.wait_end(user, first, "COMPLETED")
    assert_equal([each["status"] for each in world.sandbox.cards(user_id=user)], ["replaced", "active"],
                 "cards at the issuer")


@test
def the_bound_of_reveals_holds_over_both_cells(world):
    cells = Cells(world).up()
    one, two = cells.all
    user, = users_of(BUCKET)
    path = "/v1/cards/%s/number" % one.issue(user)["card"]["id"]
    statuses = [one.get(user, path).status for _ in range(6)]
    cells.move(BUCKET, "two")
    statuses += [two.get(user, path).status for _ in range(6)]
    assert_equal(statuses, [200] * 10 + [429] * 2, "statuses")


# ---- other services --------------------------------------------------------------------------------------------------


INSERT = "SELECT issuing.enqueue('PAYMENT_CHARGE', '%s', '{}')"


def refusal(cell, *users):
    """What an INSERT of another service, under a role of its own, is refused with; "" = it is not."""
    try:
        psql("BEGIN; %s; COMMIT" % "; ".join(INSERT % user for user in users), cell.conninfo("orders"))
    except Failed as error:
        return str(error)
    return ""


@test
def an_insert_of_another_service_is_refused_during_the_move_and_works_in_the_new_cell(world):
    with receiver(world) as service:
        route(world, service)
        cells = Cells(world).up()
        one, two = cells.all
        for cell in cells.all:
            cell.sql((EXAMPLE / "orders.sql").read_text())
            cells.ctl("--cell", cell.name, "sender", "add", "orders", "PAYMENT_CHARGE", "--reason", "a story")
        user, = users_of(BUCKET)
        wanted = {"list": (True, False), "drain": (True, False), "close": (False, False), "leave": (False, False),
                  "arrive": (False, True), "empty": (False, True)}
        for step, allowed in wanted.items():
            cells.move(BUCKET, "two", "--stop-after", step)
            found = tuple(refusal(cell, user) for cell in cells.all)
            assert_equal((step, tuple(not each for each in found)), (step, allowed), "inserts: %r" % (found,))
        assert_true("bucket" in refusal(one, user), "the message names the bucket: " + refusal(one, user))
        wait_until(lambda: two.sql("SELECT count(*) FROM outbox_events WHERE event_type = 'PAYMENT_CHARGE' AND status ="
                                   " 'COMPLETED'") == "4", "all four are delivered")
        assert_equal(len(service.executed), 4, "executed")
        # Of several rows one is wrong: none is written.
        other, = users_of(BUCKET + 1)
        assert_true(refusal(one, other, user), "a transaction with a user of another cell")
        assert_equal(one.count("outbox_events", [other, user]), 0, "rows")


@slow
@test
def a_service_that_reads_on_an_old_snapshot_gets_nothing_past_the_gate(world):
    """REPEATABLE READ began before the bucket left: what it sees still says that the bucket is here."""
    cells = Cells(world).up()
    one, user = cells["one"], users_of(BUCKET)[0]
    statement = ("BEGIN ISOLATION LEVEL %s; SELECT count(*) FROM issuing.cell_buckets;"
                 " SELECT pg_sleep(2.5);"
                 " INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('PAYMENT_CHARGE', '" + user +
                 "', '{}'); COMMIT")
    found = []

    def late(level):
        try:
            psql(statement % level, one.conninfo("postgres"))
            found.append("%s: it was written" % level)
        except Failed as error:
            assert_true("psql" in str(error), "refused")
    threads = [threading.Thread(target=late, args=(level,), daemon=True) for level in ("REPEATABLE READ",
                                                                                       "SERIALIZABLE")]
    for each in threads:
        each.start()
    wait_until(lambda: one.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "2",
               "both have their snapshots")
    cells.move(BUCKET, "two")
    for each in threads:
        each.join(30)
    assert_equal(found, [], "inserts of those with an old snapshot")
    assert_equal(one.count("outbox_events", [user]), 0, "rows in the source")


# ---- what the whole installation does --------------------------------------------------------------------------------


def move_in_pieces(cells, pieces, to):
    for piece in pieces:
        cells.move(piece, to, seconds=400)


@slow
@test
def many_buckets_move_in_pieces_under_load(world):
    cells = Cells(world).up()
    load = Load(cells, [users_of(bucket)[0] for bucket in range(0, 24)])
    move_in_pieces(cells, ("0-7", "8,10,12-15", "9", "11"), "two")
    load.wait(10)
    move_in_pieces(cells, ("4-11",), "one")
    load.wait(10)
    found = load.stop()
    cells.settle()
    check_repeats(cells, found)
    assert_equal([cells.owners(bucket)[0] for bucket in range(0, 24)],
                 ["two"] * 4 + ["one"] * 8 + ["two"] * 4 + ["one"] * 8, "where the buckets live")


@slow
@test
def all_buckets_move_in_pieces_under_load(world):
    cells = Cells(world).up()
    load = Load(cells, [users_of(bucket)[0] for bucket in range(0, 1024, 3)])
    move_in_pieces(cells, ("0-255", "256-511", "512-1023"), "two")
    load.wait(10)
    assert_equal(set(cells["one"].states().values()), {"away"}, "states in the first cell")
    move_in_pieces(cells, (ALL,), "one")
    load.wait(10)
    found = load.stop()
    cells.settle()
    check_repeats(cells, found, 200)


@slow
@test
def ended_events_are_counted_once_over_all_cells(world):
    cells = Cells(world).up()
    users = users_of(BUCKET, 3) + users_of(BUCKET + 1, 2)
    for user in users:
        cells.accept(user)
    cells.settle()

    def counted():
        return sum(int(cell.sql("SELECT coalesce(sum(count), 0) FROM issuing.outbox_statistics WHERE event_type ="
                                " 'CARD_ISSUE'")) for cell in cells.all)
    wait_until(lambda: counted() == 5, "the ends are counted")
    cells.move(BUCKET, "two")
    wait_until(lambda: all(cell.sql("SELECT count(*) FROM issuing.statistics_changes") == "0" for cell in cells.all),
               "the changes are added")
    assert_equal(counted(), 5, "ends")
    assert_equal(cells["two"].sql("SELECT sum(count) FROM issuing.outbox_statistics"), "3", "ends in the new cell")


@slow
@test
def a_kept_source_is_refused_until_it_is_emptied(world):
    cells = Cells(world).up()
    one, two = cells.all
    user, = users_of(BUCKET)
    cells.accept(user)
    cells.settle()
    cells.move(BUCKET, "two", "--keep-source")
    assert_equal((one.state(BUCKET), two.state(BUCKET)), ("gone", "here"), "states")
    rows = count_rows(one, [user])
    assert_true(rows["outbox_events"] and rows["cards"] and rows["idempotency_keys"], "rows that are kept: %r" % rows)
    assert_true(is_problem(one.post(user, "k"), WRONG_CELL), "a repeat in the source")
    # The way back would bring the old rows' bucket twice.
    done = cells.move(BUCKET, "one", status=None)
    assert_equal((done.returncode != 0, two.post(user, "k").status), (True, 202), "a move back onto the kept rows")
    done = cells.ctl("cell", "empty", str(BUCKET))
    assert_equal(done.returncode, 0, "cell empty: " + done.stderr)
    assert_equal((one.state(BUCKET), set(count_rows(one, [user]).values())), ("away", {0}), "afterwards")
    cells.move(BUCKET, "one")
    assert_equal(one.post(user, "k").header("Idempotent-Replayed"), "true", "a repeat")


@test
def card_numbers_of_a_bucket_that_moves_are_sealed_again_after_it_has_moved(world):
    """A number that was sealed again during the copy would arrive as it was, under a key that is to be removed."""
    keys = world.dir / "cells.keys"
    assert_equal(world.ctl("keys", "generate", keys).returncode, 0, "generate")
    world.settings["card.keys_file"] = keys
    cells = Cells(world).up()
    one, two = cells.all
    mover, other = users_of(17)[0], users_of(18)[0]
    for user in (mover, other):
        cells.wait_end(user, one.accept(user), "COMPLETED")
    assert_equal(world.ctl("keys", "rotate", keys).returncode, 0, "rotate")

    def rewrap(cell):
        done = cell.ctl("keys", "rewrap", "--json", role="issuing_owner")
        return done.returncode, json.loads(done.stdout)["rewrapped"], done.stderr

    cells.move(17, "two", "--stop-after", "close")
    code, count, text = rewrap(one)
    assert_true((code, count) == (1, 1) and "1 are of users whose bucket moves" in text, "%d %d %s" %
                (code, count, text))
    cells.move(17, "two", "--stop-after", "copy")
    assert_equal(rewrap(two)[:2], (1, 0), "the copy in the destination")
    cells.move(17, "two", "--keep-source")
    assert_equal(rewrap(one)[:2], (1, 0), "what has left")
    assert_equal(rewrap(two), (0, 1, ""), "where the bucket is now")
    assert_equal(cells.ctl("cell", "empty", 17).returncode, 0, "cell empty")
    assert_equal(rewrap(one), (0, 0, ""), "nothing is left")


@test
def verify_names_the_table_in_which_an_unfinished_copy_differs(world):
    cells = Cells(world).up(workers=0)
    one, two = cells.all
    one.accept(users_of(17)[0])

    def verify():
        done = cells.ctl("cell", "verify")
        return done.returncode, "".join(line for line in done.stdout.splitlines() if "the same rows" in line)

    cells.move(17, "two", "--stop-after", "close")
    assert_equal(verify(), (0, "ok       bucket 17 has the same rows in one and two: nothing is copied yet"), "closed")
    cells.move(17, "two", "--stop-after", "copy")
    assert_equal(verify(), (0, "ok       bucket 17 has the same rows in one and two"), "copied")
    two.sql("UPDATE issuing.idempotency_keys SET created_at = created_at + interval '1 s'")
    code, line = verify()
    assert_true(code == 1 and "idempotency_keys" in line, "changed: %d %s" % (code, line))
    done = cells.move(17, "two", status=1)
    assert_true("idempotency_keys" in done.stdout and one.state(17) == "here", "the mover: " + done.stdout)
    cells.move(17, "two")
