"""Users that are divided over places: what an outsider sees is the same, and what goes on in one place goes on in all.

Story: a second schema is a second everything: a claim, a sweep, a limit, an audit trail. What is forgotten in one of
them stops a part of the users only, and nobody sees why."""
import operators
import statistics
from harness import again_in, assert_equal, assert_true, slow, test, wait_until
from operators import doctor, lines

PLACES = 3
USERS = ["user-%d" % number for number in range(24)]
THREE = {"places": PLACES}

# What is told of one place holds in three.
again_in(PLACES, operators.status_list_and_show_report_what_there_is,
         operators.replay_tries_again_with_the_same_key_and_is_on_record,
         statistics.statistics_are_what_the_rows_say_after_kills_replays_and_resolves)


def in_each_place(world, table, condition="true"):
    """Of the rows of each place, how many."""
    return [int(world.sql("SELECT count(*) FROM issuing_p%d.%s WHERE %s" % (place, table, condition)))
            for place in range(PLACES)]


def strangers(world, table):
    return sum(int(world.sql("SELECT count(*) FROM issuing_p%d.%s WHERE issuing.place_of(user_id) <> %d"
                             % (place, table, place))) for place in range(PLACES))


@test(**THREE)
def users_of_all_places_get_their_cards(world):
    world.up()
    requests = {user: world.accept(user) for user in USERS}
    for user in USERS:
        again = world.post(user, "k")
        assert_equal((again.status, again.json()["id"]), (202, requests[user]), "a double tap of " + user)
    world.settle()
    for user in USERS:
        shown = world.get(user, "/v1/card-requests/" + requests[user]).json()
        card = world.get(user, "/v1/cards/" + shown["card"]["id"]).json()
        listed = world.get(user, "/v1/card-requests").json()
        assert_equal((shown["status"], card["status"], len(listed["items"])), ("COMPLETED", "active", 1), user)
        assert_equal(world.get("nobody", "/v1/card-requests/" + requests[user]).status, 404, "somebody else's")
    for table in ("outbox_events", "idempotency_keys", "rate_limit_log", "cards"):
        found = in_each_place(world, table)
        assert_true(all(found) and sum(found) == len(USERS), "%s: %r" % (table, found))
        assert_equal(strangers(world, table), 0, "rows of users of other places in " + table)
    assert_equal(lines(world.ctl("status", "--json"))[0]["events"]["COMPLETED"], len(USERS), "status")
    wait_until(lambda: all(in_each_place(world, "outbox_statistics")), "statistics in each place")


# The kill comes sooner than the end of a call, on a busy machine too.
@test(issuer__timeout="3s", issuer__settle_time="6s", core__timeout="3s", worker__lease="13s", **THREE)
def a_killed_worker_is_followed_in_each_place(world):
    world.up()
    world.sandbox.fault("create", "create_then_hang")
    requests = [world.accept(user) for user in USERS]
    wait_until(lambda: all(in_each_place(world, "outbox_events", "status = 'PROCESSING'")), "events at work everywhere")
    world.workers()[0].kill()
    world.sandbox.clear()
    world.start_worker()
    world.wait_final(requests)
    lost = in_each_place(world, "outbox_attempts", "outcome = 'lost'")
    assert_true(all(lost), "lost attempts: %r" % lost)
    assert_equal(sum(in_each_place(world, "outbox_events", "status = 'COMPLETED'")), len(USERS), "completed")


@slow
@test(database__connections="4", **THREE)  # with two, the statements of the locked place take both
def one_place_that_is_locked_stops_no_other(world):
    world.up()
    with world.holding("LOCK TABLE issuing_p1.cards IN ACCESS EXCLUSIVE MODE"):
        requests = {user: world.accept(user) for user in USERS}
        elsewhere = [request for user, request in requests.items()
                     if world.sql("SELECT issuing.place_of('%s')" % user) != "1"]
        world.wait_final(elsewhere)
    world.settle()
    assert_equal(sum(in_each_place(world, "outbox_events", "status = 'COMPLETED'")), len(USERS), "completed")


@test(**THREE)
def a_database_keeps_its_number_of_places(world):
    for words, status, told in ((("--places", "2"), 1, "the database has 3 places"), (("--places", "65"), 2, "1 to 64"),
                                (("--places", "3"), 0, ""), ((), 0, "")):
        done = world.ctl("migrate", *words, role="postgres")
        assert_true(done.returncode == status and told in done.stderr, "%r: %s" % (words, done.stderr))
    assert_equal(world.sql("SELECT count FROM issuing.places"), "3", "places")
    found = doctor(world, code=world.ctl("doctor").returncode)
    for name in ("schema", "rights", "access"):
        rows = [row for row in found if row["check"] == name]
        assert_true(rows and all(row["ok"] or row["warning"] for row in rows), "%s: %r" % (name, rows))


@test(**THREE)
def an_operator_may_look_at_one_place(world):
    world.start_sandbox()
    world.start_api()
    requests = {user: world.accept(user) for user in USERS}
    found = in_each_place(world, "outbox_events")
    for place in range(PLACES):
        status = lines(world.ctl("status", "--json", "--place", str(place)))[0]
        listed = lines(world.ctl("list", "--json", "--place=%d" % place))
        assert_equal((status["events"]["PENDING"], len(listed)), (found[place], found[place]), "place %d" % place)
    done = world.ctl("cancel", "--status", "PENDING", "--reason", "x", "--place", "1")
    assert_equal((done.returncode, in_each_place(world, "outbox_events", "status = 'REJECTED'")),
                 (0, [0, found[1], 0]), done.stderr)
    assert_equal(len(lines(world.ctl("audit", "--json", "--place", "1"))), found[1], "audit")
    for words, told in ((("list", "--place", "3"), "there is no place 3"), (("list", "--place", "x"), "from 0 to 63"),
                        (("doctor", "--place", "1"), "takes no --place")):
        done = world.ctl(*words)
        assert_true(done.returncode == 2 and told in done.stderr, "%r: %s" % (words, done.stderr))
    assert_equal(len(requests), sum(found), "events")
