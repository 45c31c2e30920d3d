"""Users are divided over places, each of which is a database: clients see no difference, and everything that runs in
one place runs in all.

Story: a second database needs its own claims, sweeps, limits and audit trail. If one of them is missing in one place,
only a part of the users has trouble, and nobody sees why; and a user whose rows are in two places gets two cards."""
import re

import client
from accepting import UNKNOWN_ID
from console import Console
from divided import place_of
from harness import assert_equal, assert_true, Failed, test, wait_until
from operators import doctor, lines

PLACES = 4
USERS = ["user-%d" % number for number in range(32)]
FOUR = {"places": PLACES}

def of(place, users=USERS):
    return [user for user in users if place_of(user, PLACES) == place]


def refusal(world, place, text):
    try:
        return "done: " + world.in_place(place, text)
    except Failed as refused:
        return str(refused)


def strangers(world):
    """The number of rows whose users belong to another place."""
    return sum(int(world.in_place(place, "SELECT count(*) FROM %s WHERE issuing.place_of(user_id, %d) <> %d"
                                  % (table, PLACES, place)))
               for place in range(PLACES) for table in ("outbox_events", "idempotency_keys", "rate_limit_log", "cards"))


def close(world, place):
    world.suite.sql("ALTER DATABASE %s ALLOW_CONNECTIONS false" % world.name_of(place))
    world.suite.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '%s'"
                    % world.name_of(place))


# The kill comes sooner than the end of a call, on a busy machine too.
@test(issuer__timeout="3s", issuer__settle_time="6s", core__timeout="3s", worker__lease="13s", **FOUR)
def users_of_all_places_get_their_cards_though_a_worker_is_killed(world):
    world.up()
    world.sandbox.fault("create", "create_then_hang")
    requests = {user: world.accept(user) for user in USERS}
    wait_until(lambda: all(count != "0" for count in world.in_each(
        "SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'")), "events at work everywhere")
    world.workers()[0].kill()
    world.sandbox.clear()
    world.start_worker(place=0)
    for user in USERS:
        again = world.post(user, "k")
        assert_equal((again.status, again.json()["id"]), (202, requests[user]), "a double tap of " + user)
    world.settle()
    assert_true(world.in_place(0, "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lost'") != "0", "a lost attempt")
    for user in USERS:
        shown = world.get(user, "/v1/card-requests/" + requests[user]).json()
        card = world.get(user, "/v1/cards/" + shown["card"]["id"]).json()
        listed = world.get(user, "/v1/card-requests").json()
        assert_equal((shown["status"], card["status"], len(listed["items"])), ("COMPLETED", "active", 1), user)
        assert_equal(world.get("nobody", "/v1/card-requests/" + requests[user]).status, 404, "somebody else's")
    assert_equal([int(count) for count in world.in_each("SELECT count(*) FROM cards")],
                 [len(of(place)) for place in range(PLACES)], "cards in each place")
    assert_equal(strangers(world), 0, "rows of users of other places")


@test(**FOUR)
def a_program_that_counts_its_places_wrongly_records_nobody(world):
    world.start_sandbox()
    world.suite.sql("CREATE DATABASE %s TEMPLATE %s" % (world.name_of("of_another_2"), world.suite.template(PLACES, 1)))
    api = world.start_api(wait_ready=False, database__places=2)
    wait_until(lambda: "the database is place 0 of 4, and not place 0 of 2" in api.get("/readyz").body.decode(), "the reason")
    worker = world.start_worker(wait_ready=False, place=2,
                                database__url=world.conninfo("issuing_worker", "of_another_{place}"))
    for user in USERS[:8]:
        assert_equal(world.post(user, "k", api=api).status, 503, user)
    wait_until(lambda: "the database is place 1 of 4, and not place 2 of 4" in worker.get("/readyz").body.decode(),
               "the reason")
    assert_equal(world.sql("SELECT count(*) FROM idempotency_keys"), "0", "recorded")
    good = world.start_api()
    for user in USERS[:8]:
        world.accept(user, api=good)
    for place in range(PLACES):
        said = refusal(world, place, "SELECT count(*) FROM issuing.accept(ARRAY[gen_random_uuid()], ARRAY['%s'],"
                              " ARRAY['x'], ARRAY[sha256('')], ARRAY['{\"kind\": \"new\"}'], ARRAY[NULL], ARRAY[NULL], 9,"
                              " '1 s', false, '1 h')" % of((place + 1) % PLACES)[0])
        assert_true("and the user is one of place %d" % ((place + 1) % PLACES) in said, "place %d: %s" % (place, said))
    assert_equal(strangers(world), 0, "rows of users of other places")
    world.suite.sql("DROP DATABASE %s WITH (FORCE)" % world.name_of("of_another_2"))


@test(limit__count="2", limit__window="1h", **FOUR)
def an_api_that_counts_its_places_wrongly_lets_no_user_beyond_the_limit(world):
    """Story: the same users and keys come through both apis at once, from two devices each."""
    world.start_sandbox()
    good = world.start_api()
    wrong = [world.start_api(wait_ready=False, database__places=2), world.start_api(wait_ready=False, database__places=8),
             world.start_api(wait_ready=False, database__places=1, database__url=world.conninfo("issuing_api", 2))]
    for api in wrong:
        wait_until(lambda api=api: "not place" in (said := api.get("/readyz").body.decode()) or "the only" in said, "the reason")
    keys, accepted = ("a1", "a2", "b1"), {}
    for _ in range(2):
        for first in range(0, len(USERS), 8):
            asked = [(user, key, api) for user in USERS[first:first + 8] for key in keys for api in (good, *wrong)]
            answers = client.burst([(api.port, world.post_bytes(user, key)) for user, key, api in asked])
            for (user, key, api), answer in zip(asked, answers):
                assert_true(answer.status in ((202, 429) if api is good else (503,)), "%s %s %s: %r" % (user, key, api.name, answer))
                if answer.status == 202:
                    request = answer.json()["id"]
                    assert_equal(accepted.setdefault((user, key), request), request, "one event of %s %s" % (user, key))
    assert_equal([sum(each == user for each, _ in accepted) for user in USERS], [2] * len(USERS), "accepted of each user")
    rows = world.rows("SELECT id, user_id, key FROM outbox_events JOIN idempotency_keys USING (user_id) WHERE event_id = id")
    assert_equal({(row["user_id"], row["key"]): row["id"] for row in rows}, accepted, "recorded")
    assert_equal((len(rows), world.sql("SELECT count(*) FROM outbox_events")), (len(accepted), str(len(accepted))), "events")
    assert_equal(strangers(world), 0, "rows of users of other places")


@test(**FOUR)
def a_place_that_is_away_stops_its_own_users_only(world):
    world.up()
    close(world, 2)
    for user in USERS:
        assert_equal(world.post(user, "k").status, 503 if user in of(2) else 202, user)
    ready = world.apis()[0].get("/readyz")
    assert_true(ready.status == 200 and "place.2: " in ready.body.decode(), ready.body)
    shown = [world.apis()[0].metric('issuing_db_ready{database="place.%d"}' % place) for place in range(PLACES)]
    assert_equal(shown, [1, 1, 0, 1], "which database is ready")
    found = world.ctl("show", world.accept(of(0)[0], "k"))
    assert_equal((found.returncode, "place 2" in found.stderr), (0, False), "an event of place 0: " + found.stderr)
    found = world.ctl("show", UNKNOWN_ID)
    assert_equal((found.returncode, world.name_of(2) in found.stderr), (78, True), "no event of the others: " + found.stderr)
    found = world.ctl("replay", UNKNOWN_ID, "--reason", "x")
    assert_equal((found.returncode, re.findall("there is no event %s in place ([0-9])$" % UNKNOWN_ID, found.stdout, re.M)),
                 (78, ["0", "1", "3"]), "each place that answers says it of itself only: " + found.stdout)
    world.suite.sql("ALTER DATABASE %s ALLOW_CONNECTIONS true" % world.name_of(2))
    wait_until(lambda: world.post(of(2)[0], "k").status == 202, "place 2 is back")
    for user in USERS:
        wait_until(lambda user=user: world.post(user, "k").status == 202, user)
    world.settle()


# Each is a way by which something of a place is written.
DOORS = ("UPDATE outbox_events SET lease_token = NULL WHERE false", "DELETE FROM cards",
         "SELECT issuing.enqueue('PAYMENT_PLACE', 'judy', '{}')",
         "SELECT issuing.claim(gen_random_uuid(), 5, 30000, 'w', NULL, 100, false, 'CARD_ISSUE', false, 'generic',"
         " 'https://i', 'oldest', NULL, NULL)",
         "SELECT issuing.fold_statistics(10)", "SELECT issuing.keep_rows('1 h', '1 h', '1 d')",
         "SELECT issuing.complete(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], 'w', ARRAY[1], 'link', ARRAY[NULL])",
         "INSERT INTO operator_actions (actor, action) VALUES ('a', 'b')", "TRUNCATE marks")


@test(**FOUR)
def a_server_that_is_not_the_home_of_a_place_writes_nothing(world):
    world.up()
    world.may_send("postgres", "PAYMENT_PLACE")
    world.accept(of(1)[0])
    world.settle()
    world.in_place(1, "UPDATE place SET home = 'east'")
    for door in DOORS:
        said = refusal(world, 1, door)
        assert_true('place 1 is served by "east"' in said, "%s: %s" % (door, said))
    assert_equal(world.post(of(1)[0], "other").status, 503, "a user of the place")
    assert_equal(world.post(of(0)[0], "k").status, 202, "a user of another place")
    refused = world.ctl("list", "--place", "1")
    assert_true(refused.returncode == 75 and 'place 1 is served by "east"' in refused.stderr, refused.stderr)
    world.in_place(1, "UPDATE place SET home = current_setting('cluster_name')")
    wait_until(lambda: world.post(of(1)[0], "other").status == 202, "the place is back")
    world.settle()


@test(**FOUR)
def a_table_of_a_place_that_is_new_is_fenced_by_the_next_migrate(world):
    for done in (world.ctl("migrate", role="postgres"), world.ctl("migrate", "--place", "2", role="postgres")):
        assert_equal(done.returncode, 0, done.stderr)
    for open_tables in world.in_each(
            "SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_class c"
            " WHERE c.relnamespace = 'issuing'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
            " AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = 'at_home')"):
        assert_equal(open_tables, "place schema_migration", "tables without the trigger")


@test(**FOUR)
def a_database_stays_the_place_that_it_is(world):
    for settings, told in (({"database__places": 3}, "this database is place 0 of 4 for ever"),
                           ({"database__places": 1, "database__url": world.conninfo("postgres", 3)},
                            "this database is place 3 of 4 for ever"),
                           ({"database__places": 65}, "65 is outside 1 to 64"),
                           ({"database__url": world.conninfo("postgres", 3)}, "has no {place}")):
        done = world.ctl("migrate", role="postgres", **settings)
        assert_true(done.returncode == 78 and told in done.stderr, "%r: %s" % (settings, done.stderr))
    found = doctor(world, "--place", "1", code=world.ctl("doctor", "--place", "1").returncode)
    for name in ("schema", "rights", "access"):
        rows = [row for row in found if row["check"] == name]
        assert_true(rows and all(row["ok"] or row["warning"] for row in rows), "%s: %r" % (name, rows))


@test(**FOUR)
def an_operator_looks_at_one_place_or_at_all(world):
    world.start_sandbox()
    world.start_api()
    requests = {user: world.accept(user) for user in USERS}
    counts = [len(of(place)) for place in range(PLACES)]
    for words in (("--place", "all"), ()):
        shown = lines(world.ctl("status", "--json", *words))
        assert_equal([(each["place"], each["events"]["PENDING"]) for each in shown], list(enumerate(counts)), "all")
    shown = lines(world.ctl("status", "--json", "--place=2"))
    assert_equal([(each["place"], each["events"]["PENDING"]) for each in shown], [(2, counts[2])], "one")
    for user in (of(0)[0], of(3)[0]):
        shown = lines(world.ctl("show", "--json", requests[user]))
        assert_equal([(each["place"], each["id"]) for each in shown], [(place_of(user, PLACES), requests[user])], user)
    done = world.ctl("cancel", requests[of(3)[0]], requests[of(1)[0]], "--reason", "x")
    assert_equal(done.returncode, 0, done.stderr)
    assert_equal(world.in_each("SELECT count(*) FROM outbox_events WHERE status = 'REJECTED'"), ["0", "1", "0", "1"],
                 "cancelled")
    done = world.ctl("pause", "issuer", "--reason", "x", "--place", "3")
    assert_equal((done.returncode, world.in_each("SELECT count(*) FROM target_controls WHERE target = 'issuer'")),
                 (0, ["0", "0", "0", "1"]), done.stderr)
    api = world.apis()[0]
    wait_until(lambda: api.metric('issuing_target_paused{target="issuer"}') == 1, "the api shows it", 60)
    for words, told in ((("list", "--place", "4"), "there are 4 places, 0 to 3, or all"),
                        (("list", "--place"), "--place needs a number"), (("list", "--place", "x"), "0 to 3, or all"),
                        (("console",), "console works in one of the 4 places: --place N")):
        done = world.ctl(*words)
        assert_true(done.returncode == 2 and told in done.stderr, "%r: %s" % (words, done.stderr))


@test(**FOUR)
def the_status_of_all_places_is_one_and_names_the_places_that_need_an_operator(world):
    """Story: with 64 places the one without a worker was on the fortieth page of 64."""
    world.start_sandbox()
    world.start_api()
    for user in of(1) + of(3):
        world.accept(user)
    for place in (0, 2):
        world.start_worker(place)
    api = world.apis()[0]
    wait_until(lambda: [api.metric('issuing_place_workers_alive{place="%d"}' % place) for place in range(PLACES)]
               == [1, 0, 1, 0], "workers of each place, at the api", 60)
    wait_until(lambda: world.workers()[0].metric('issuing_place_workers_alive{place="0"}') == 1, "and at a worker", 60)
    assert_true("issuing_place_workers_alive{place=\"1" not in world.workers()[0].get("/metrics").body.decode(), "others")
    done = world.ctl("status")
    head, rest = done.stdout.split("\n\n", 1)
    events = len(of(1) + of(3))
    most = max((1, 3), key=lambda place: (len(of(place)), -place))
    assert_equal((done.returncode, done.stderr), (0, ""), "nothing is said of each place")
    for told in ("2 of 4 places need an operator. 2 have no worker. 2 workers are alive.",
                 "Most open events, %d, are in place %d." % (len(of(most)), most),
                 "Do, in place %d: systemctl start issuing-worker@%d;" % (most, most)):
        assert_true(told in head, "%s: %s" % (told, head))
    rows = [line.split() for line in rest.splitlines()]
    assert_true(["PENDING", str(events)] in [row[:2] for row in rows], rest)
    assert_equal([row[:6] for row in rows if row and row[0] in "0123"],
                 [[str(place), "0", str(len(of(place))), "0", "0", "0"] for place in (most, 4 - most)], "the worst first")
    close(world, 1)
    done = world.ctl("status")
    assert_true(done.returncode == 78 and "issuing-ctl: place 1: " in done.stderr, done.stderr)
    assert_true("1 cannot be read, and is in no sum. 1 has no worker." in done.stdout, done.stdout)
    shown = lines(world.ctl("status", "--json"), code=78)
    assert_equal([each["place"] for each in shown], [0, 2, 3], "an object for each place that can be read")
    world.suite.sql("ALTER DATABASE %s ALLOW_CONNECTIONS true" % world.name_of(1))
    for place in (1, 3):
        world.start_worker(place)
    world.settle()
    assert_true(world.ctl("status").stdout.startswith("All is well in 4 places. 4 workers are alive.\n\n"), "all is well")


@test(**FOUR)
def the_console_of_a_place_shows_all_places_the_worst_first(world):
    world.start_sandbox()
    world.start_api()
    for user in of(1)[:1] + of(3):
        world.accept(user)
    for place in (0, 2):
        world.start_worker(place)
    close(world, 2)
    console = Console(world, "--place", "1").enter()
    assert_true('<a href="/places">Places</a>' in console.page("/"), "reachable from the first page")
    page = console.page("/places")
    rows = re.findall(r'<tr><th scope="row">(\d)( \(this console\))?</th>(.*)</tr>', page)
    assert_equal([(row[0], bool(row[1])) for row in rows], [("2", False), ("3", False), ("1", True), ("0", False)], page)
    for row, told in zip(rows, ("cannot be read", "No worker is alive: %d events" % len(of(3)), "1 event is", "well")):
        assert_true(told in row[2], "%s: %s" % (told, row))
    assert_true("3 of 4 places need an operator." in page, page)
    world.suite.sql("ALTER DATABASE %s ALLOW_CONNECTIONS true" % world.name_of(2))


@test(**FOUR)
def the_events_of_all_places_are_one_list(world):
    """Story: --limit 5 showed five events of each of four places, and the newest of all was the sixteenth."""
    world.start_sandbox()
    world.start_api()
    requests = [(place_of(user, PLACES), world.accept(user)) for user in USERS]
    for words, wanted in (((), requests[::-1]), (("--oldest-first",), requests), (("--limit", "5"), requests[:-6:-1]),
                          (("--oldest-first", "--limit", "7", "--status", "PENDING"), requests[:7]),
                          (("--place", "2"), [each for each in requests[::-1] if each[0] == 2])):
        done = world.ctl("list", *words, "--json")
        assert_equal([(each["place"], each["id"]) for each in lines(done)], wanted, "%s" % (words,))
        assert_equal("--limit N shows more" in done.stderr, "--limit" in words, done.stderr)
    shown = [line.split()[:2] for line in world.ctl("list", "--limit", "3").stdout.splitlines()]
    assert_equal(shown, [["PLACE", "ID"]] + [[str(place), event] for place, event in requests[:-4:-1]], "for people")
    done = world.ctl("list", "--user", "nobody")
    assert_equal((done.returncode, done.stdout, done.stderr), (0, "", "No event matches.\n"), "none in any place")
    done = world.ctl("list", "--since", "1h", "--until", "2h")
    assert_equal((done.returncode, done.stderr.count("can match")), (2, 1), "said once: " + done.stderr)
    close(world, 2)
    done = world.ctl("list", "--json")
    assert_equal([each["id"] for each in lines(done, code=78)], [event for place, event in requests[::-1] if place != 2],
                 "the others")
    assert_true("issuing-ctl: place 2: " in done.stderr, done.stderr)
    world.suite.sql("ALTER DATABASE %s ALLOW_CONNECTIONS true" % world.name_of(2))


@test(**FOUR)
def doctor_looks_at_each_place_and_at_what_only_several_have(world):
    """Story: doctor did not look at a place that no command may use, and that was the one to look at."""
    world.start_sandbox()
    world.start_api()
    world.start_worker(0)
    wait_until(lambda: world.in_place(0, "SELECT count(*) FROM workers") == "1", "the worker is known")
    world.in_place(1, "UPDATE place SET home = ''")
    world.in_place(2, "INSERT INTO schema_migration (version, name, sha256, ms) SELECT max(version) + 1, 'later', '', 1"
                      " FROM schema_migration")
    world.in_place(3, "UPDATE place SET places = 5")
    wanted = {0: ("place", True, '0 of 4, served by "'), 1: ("place", False, "it has no home"),
                2: ("schema", False, "this program expects"), 3: ("place", False, "place 3 of 5, and not place 3 of 4")}
    found = doctor(world)
    for place, (check, is_ok, told) in wanted.items():
        assert_true([row for row in found if row["place"] == place and row["check"] == check and row["ok"] == is_ok
                     and told in row["found"]], "%s: %r" % (told, [row for row in found if row["place"] == place]))
    workers = [(row["place"], row["warning"]) for row in found if row["check"] == "workers"]
    assert_equal(workers, [(0, False), (1, True)], "workers of those whose rows can be read")
    shown = world.ctl("doctor")
    assert_true(re.search(r": 1 of 4 places; not known or not served: 3 of 4 places\n$", shown.stdout), shown.stdout[-300:])
    world.in_place(1, "UPDATE place SET home = current_setting('cluster_name')")
    world.in_place(2, "DELETE FROM schema_migration WHERE name = 'later'")
    world.in_place(3, "UPDATE place SET places = 4")
