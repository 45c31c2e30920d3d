"""One user cannot make all others wait.

Story: all reads and all requests waited in one queue, in the order of their arrival. When one of them waited too long,
its connection to the database was closed, with the statements of others on it. So one token on many connections was an
outage for all users, and the api reported that the database was away.

A policy makes the database slow for the rows of one user, so that no story depends on the speed of the machine."""
import itertools
import re
import select
import threading

import client
from harness import assert_equal, assert_true, core, psql_program, run, slow, test, wait_until

SLOW = "hog"


def slow_down(world, ms):
    """Each row of that user that the api reads takes so long."""
    world.sql("ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY;"
              " CREATE POLICY everything ON outbox_events USING (true) WITH CHECK (true);"
              " CREATE POLICY slow ON outbox_events AS RESTRICTIVE FOR SELECT TO issuing_api"
              " USING (user_id <> '%s' OR pg_sleep(%f)::text = '')" % (SLOW, ms / 1000))


def sessions(world):
    return world.sql("SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity"
                     " WHERE application_name = 'issuing-api' AND datname = current_database()")


def start_api(world, connections=4):
    """With all its connections, and its gauges read once: /readyz is 200 with the first connection, and what a story
    does to the table must not meet the first reading of the gauges, which takes a connection."""
    world.start_api(database__connections=str(connections))
    wait_until(lambda: len((sessions(world) or "").split()) == connections, "all connections are up")
    wait_until(lambda: any(name.startswith("issuing_outbox_events{") for name in world.apis()[0].metrics()),
               "the gauges were read")


def start_reading(world, connections):
    """That user's list, on so many connections at once."""
    data = client.request_bytes("GET", "/v1/card-requests?limit=100", [world.bearer(SLOW)])
    wires = [client.Wire(world.apis()[0].port) for _ in range(connections)]
    for wire in wires:
        wire.send(data)
    return wires


def end_reading(wires):
    """How many were read, and how many refused."""
    statuses = []
    for wire in wires:
        answer = wire.answer()
        wire.close()
        statuses.append(answer.status)
        if answer.status == 503:
            assert_equal((answer.header("Retry-After"), answer.json()["type"]), ("1", "/problems/unavailable"),
                         "a refusal")
    assert_equal(set(statuses) - {200, 503}, set(), "answers of one who reads much")
    return statuses.count(200), statuses.count(503)


def no_session_was_lost(world, before):
    assert_equal(sessions(world), before, "the api's connections")
    assert_true("database away" not in world.apis()[0].text(), "the database was never away")


def call_beside(world, users):
    """Each a request and two reads, one after the other."""
    for number in range(users):
        user = "user-%d" % number
        request = world.accept(user)
        assert_equal(world.get(user, "/v1/card-requests/" + request).status, 200, "a read of " + user)
        assert_equal(world.get(user, "/v1/card-requests").status, 200, "a list of " + user)


@slow
@test
def one_user_on_many_connections_stops_no_other_user(world):
    """Six hundred reads of 50 ms each are more than four connections read in the five seconds that a client waits."""
    start_api(world)
    world.accept(SLOW)
    slow_down(world, 50)
    before = sessions(world)
    wires = start_reading(world, 600)
    call_beside(world, 20)
    done, refused = end_reading(wires)
    assert_true(done > 0, "some were read")
    no_session_was_lost(world, before)
    assert_equal(world.apis()[0].metric("issuing_reads_refused_total"), refused, "the metric")
    assert_equal(world.apis()[0].metric("issuing_reads_waiting"), 0, "no read waits")


@slow
@test
def on_one_connection_requests_and_reads_take_turns(world):
    start_api(world, 1)
    world.accept(SLOW)
    slow_down(world, 50)
    before = sessions(world)
    wires = start_reading(world, 300)
    call_beside(world, 4)
    done, _ = end_reading(wires)
    assert_true(done > 0, "some were read")
    no_session_was_lost(world, before)


@test
def reads_that_hang_leave_connections_to_requests_and_to_reads_of_others(world):
    start_api(world)
    world.accept(SLOW)
    world.sql("ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY;"
              " CREATE POLICY everything ON outbox_events USING (true) WITH CHECK (true);"
              " CREATE POLICY hangs ON outbox_events AS RESTRICTIVE FOR SELECT TO issuing_api"
              " USING (user_id <> '%s' OR pg_advisory_xact_lock_shared(4713)::text = '')" % SLOW)
    with world.holding("SELECT pg_advisory_xact_lock(4713)"):
        wires = start_reading(world, 100)
        wait_until(lambda: world.blocked() == 2, "two of four connections hang")
        call_beside(world, 20)
        assert_equal(world.blocked(), 2, "they still hang")
    done, _ = end_reading(wires)
    assert_true(done >= 2, "those that hung were read")


@test
def many_users_whose_reads_hang_leave_a_connection_to_acceptance(world):
    start_api(world)
    users = ["slow-%d" % number for number in range(30)]
    for user in users:
        world.accept(user)
    world.sql("ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY;"
              " CREATE POLICY everything ON outbox_events USING (true) WITH CHECK (true);"
              " CREATE POLICY hangs ON outbox_events AS RESTRICTIVE FOR SELECT TO issuing_api"
              " USING (user_id NOT LIKE 'slow-%' OR pg_advisory_xact_lock_shared(4713)::text = '')")
    with world.holding("SELECT pg_advisory_xact_lock(4713)"):
        wires = [client.Wire(world.apis()[0].port).send(
            client.request_bytes("GET", "/v1/card-requests", [world.bearer(user)])) for user in users]
        wait_until(lambda: world.blocked() == 3, "three of four connections hang")
        for number in range(20):
            world.accept("user-%d" % number)
        assert_equal(world.blocked(), 3, "they still hang")
    done, _ = end_reading(wires)
    assert_true(done >= 3, "those that hung were read")


@slow
@test
def requests_behind_a_lock_that_another_session_holds_get_503_and_are_not_recorded(world):
    """A request of a user whom another session has locked is tried for two seconds, and a user's requests follow one
    another: one that is not tried within eight gets 503 then."""
    world.start_api()
    with world.holding("SELECT pg_advisory_xact_lock(hashtextextended('hog', salt)) FROM issuing.lock_salt"):
        wires = [client.Wire(world.apis()[0].port).send(world.post_bytes("hog", "k%d" % i)) for i in range(10)]
        world.accept("anna")
        statuses = [wire.answer().status for wire in wires]
        world.accept("bob")
    for wire in wires:
        wire.close()
    assert_equal(set(statuses), {503}, "answers %s" % statuses)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE user_id = 'hog'"), "0", "recorded")
    world.accept("hog")


@test
def a_user_with_too_many_waits_is_answered_at_once(world):
    """Nine thousand waits of one user made everybody's longer."""
    most, more = 100, 30
    world.up(workers=0)
    request = world.accept("hog")
    data = client.request_bytes("GET", "/v1/card-requests/" + request, [world.bearer("hog"), ("Prefer", "wait=30")])
    wires = [client.Wire(world.apis()[0].port).send(data) for _ in range(most + more)]
    left = list(wires)

    def answered():
        ready, _, _ = select.select([wire.socket for wire in left], [], [], 1)
        for wire in [wire for wire in left if wire.socket in ready]:
            answer = wire.answer()
            assert_equal((answer.status, answer.json()["status"], answer.header("Preference-Applied")),
                         (200, "PENDING", None),
                         "one too many")
            left.remove(wire)
        return len(left) == most
    wait_until(answered, "those beyond %d are answered" % most)
    wait_until(lambda: world.apis()[0].metric("issuing_waiting_clients") == most, "the others wait")
    answer = world.post("hog", "second", headers=[("Prefer", "wait=30")])
    assert_equal((answer.status, answer.header("Preference-Applied")), (202, None), "a POST beside them")
    world.start_worker()
    answer = world.post("anna", "k", headers=[("Prefer", "wait=30")])
    assert_equal((answer.status, answer.header("Preference-Applied")), (201, "wait=30"), "another user waits")
    for wire in left:
        answer = wire.answer()
        assert_equal((answer.status, answer.json()["status"], answer.header("Preference-Applied")),
                     (200, "COMPLETED", "wait=30"),
                     "a wait")
    for wire in wires:
        wire.close()
    world.settle()


HELD = ["held-%d" % number for number in range(24)]


@test
def a_wait_whose_end_cannot_be_read_in_time_is_answered_with_what_it_knows(world):
    world.start_sandbox()
    start_api(world)
    request = world.post(SLOW, "k").json()["id"]
    data = client.request_bytes("GET", "/v1/card-requests/" + request, [world.bearer(SLOW), ("Prefer", "wait=30")])
    wires = [client.Wire(world.apis()[0].port).send(data) for _ in range(100)]
    wait_until(lambda: world.apis()[0].metric("issuing_waiting_clients") == 100, "100 clients wait")
    slow_down(world, 500)
    world.start_worker()
    statuses = []
    for wire in wires:
        answer = wire.answer()
        wire.close()
        assert_equal((answer.status, answer.header("Preference-Applied")), (200, "wait=30"), "answer")
        statuses.append(answer.json()["status"])
    assert_equal(set(statuses), {"PENDING", "COMPLETED"}, "some were read, and some not")
    assert_true(world.apis()[0].metric("issuing_reads_refused_total") > 0, "refused reads")


def post_for_ever(world, user, statuses, stop):
    for number in itertools.count():
        if stop.is_set():
            return
        statuses.append(world.post(user, "k%d" % number).status)


@core
@slow
@test(limit__count="100000")
def locks_of_users_that_another_role_holds_cost_those_users_only(world):
    """A role that may read pg_locks, where the server leaves it open, finds the keys there."""
    world.start_api()
    api = world.apis()[0]
    others, held, stop = [], [], threading.Event()
    with world.holding("SELECT pg_advisory_xact_lock(issuing.user_lock('held-' || n, salt)) FROM issuing.lock_salt,"
                       " generate_series(0, 23) n"):
        threads = [threading.Thread(target=post_for_ever, args=(world, user, held, stop)) for user in HELD]
        for thread in threads:
            thread.start()
        wait_until(lambda: api.metric("issuing_accept_queue") >= len(HELD), "all of them wait")
        for number in range(60):
            others.append(world.post("other-%d" % (number % 8), "k%d" % number).status)
        assert_equal(world.blocked(), 0, "sessions that wait for a lock")
        wait_until(lambda: len(held) >= len(HELD), "the first answers")
        ready = api.get("/readyz")
        stop.set()
        for thread in threads:
            thread.join()
    assert_equal((set(others), set(held)), ({202}, {503}), "the others', the held ones' answers")
    assert_equal((ready.status, "users' locks" in ready.body.decode()), (200, True), "readyz %s" % ready.body)
    assert_true(api.metric('issuing_accept_failures_total{reason="user_lock"}') >= len(HELD), "failures")
    for user in HELD:
        assert_equal(world.post(user, "afterwards").status, 202, user)


@test
def numbers_of_a_user_whose_lock_another_role_holds_are_refused_and_those_of_others_shown(world):
    world.up()
    paths = {user: "/v1/cards/%s/number" % world.issue(user)["card"]["id"] for user in (SLOW, "bob")}
    with world.holding("SELECT pg_advisory_xact_lock(issuing.reveal_lock('%s', salt)) FROM issuing.lock_salt" % SLOW):
        wires = [client.Wire(world.apis()[0].port).send(
            client.request_bytes("GET", paths[SLOW], [world.bearer(SLOW)])) for _ in range(10)]
        for _ in range(3):
            assert_equal(world.get("bob", paths["bob"]).status, 200, "bob's number")
        assert_equal(world.blocked(), 0, "sessions that wait for a lock")
        answers = [wire.answer() for wire in wires]
    for wire in wires:
        wire.close()
    assert_equal({(answer.status, "lock" in answer.json()["detail"], answer.header("Retry-After")) for answer in answers},
                 {(503, True, "1")}, "answers")
    assert_equal(world.get(SLOW, paths[SLOW]).status, 200, "the number afterwards")


@test
def a_role_that_may_only_connect_sees_no_key_and_doctor_says_where_it_does(world):
    def doctor():
        return world.ctl("doctor").stdout
    world.sql("CREATE ROLE passerby")
    try:
        seen = run([psql_program(), "-XAtd", world.conninfo("postgres"), "-c", "SET ROLE passerby",
                    "-c", "SELECT count(*) FROM pg_locks"])
        assert_true("permission denied" in seen.stderr, "pg_locks: " + seen.stdout + seen.stderr)
        with world.holding("SELECT pg_advisory_xact_lock(4711, 98)"):
            seen = run([psql_program(), "-XAtqd", re.sub(r"dbname=\S+", "dbname=postgres", world.conninfo("postgres")),
                        "-c", "SET ROLE passerby", "-c", "SELECT objid FROM pg_locks WHERE objid = 98"])
        assert_equal((seen.stdout, seen.stderr), ("98\n", ""), "from another database, where all is as PostgreSQL has it")
        others = re.search(r"^note +locks seen +in this database by our roles only; .*: (.*)$", doctor(), re.M).group(1)
        assert_true("postgres" in others.split(", "), "doctor names it: " + others)
        world.sql("REVOKE CONNECT ON DATABASE %s FROM PUBLIC" % others)
        assert_true(re.search("^ok +locks seen +by our roles only$", doctor(), re.M), "closed")
        world.sql("GRANT CONNECT ON DATABASE %s TO PUBLIC" % others)
        world.sql("GRANT EXECUTE ON FUNCTION pg_lock_status() TO PUBLIC; GRANT SELECT ON pg_locks TO PUBLIC")
        assert_true("reads the keys of users' locks" in doctor(), "open")
        world.sql("REVOKE ALL ON FUNCTION pg_lock_status() FROM PUBLIC, issuing_operator")
        assert_true("may not read pg_locks" in doctor(), "closed for our role too")
    finally:
        world.sql("DROP ROLE passerby")
