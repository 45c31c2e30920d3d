"""Places go to a second database: a replica of the first that becomes a database of its own.

Story: whoever is asked while a place moves must not be lost, and must not be served twice: not when the operator's command
is killed, not when a replica that nobody has given the place is promoted, and not when the old primary comes back."""
import hashlib
import random
import subprocess
import threading
import time

from crashes import SHORT
from harness import assert_equal, assert_true, CLUSTER, Failed, psql, run, slow, STUCK_AFTER_S, test, wait_until
from operators import lines
from processes import BUILD, ENVIRONMENT

PLACES = 4
MOVED = (2, 3)
FOUR = {"places": PLACES, "database.connections": "4"}
USERS = ["user-%d" % number for number in range(400)]
KILLS = 6


def place_of(user):
    digest = hashlib.sha256(user.encode()).digest()
    return (digest[0] * 256 + digest[1]) % 1024 * PLACES // 1024


class Split:
    """The world's own database, whose cluster_name is `issuing-private`, and a replica of it, `second`."""

    def __init__(self, world):
        self.world = world
        world.own_database()
        self.folder = world.dir / "second"
        made = run([CLUSTER, "standby", self.folder, world.dir / "pg", "cluster_name=second"], 900)
        if made.returncode != 0:
            raise Failed("no replica: " + made.stderr)
        self.first, self.second = world.base, made.stdout.strip()
        world.rows, world.kill_all = self.rows, self.kill_all  # the checks at the end look at both

    def kill_all(self):
        type(self.world).kill_all(self.world)
        run([CLUSTER, "stop", self.folder])

    def rows(self, query):
        """Of both databases: what each serves. The checks at the end of a story compare them with the ledgers."""
        del self.world.rows
        base = self.world.base
        found = []
        for self.world.base in (self.first, self.second):
            if self.world.sql("SELECT pg_is_in_recovery()") == "f":
                found += self.world.rows(query)
        self.world.base, self.world.rows = base, self.rows
        return found

    def settings(self, role):
        return {"database.url": None, "place.0-1.url": "%s user=%s" % (self.first, role),
                "place.2-3.url": "%s user=%s" % (self.second, role)}

    def own(self, role):
        return {name.replace(".", "__"): value for name, value in self.settings(role).items()}

    def sql_second(self, text):
        return psql(text, self.second + " user=postgres")

    def flags(self, *words):
        return [BUILD / "issuing-ctl", "--config=%s" % self.world.suite.empty_file,
                *("--%s=%s" % pair for pair in self.settings("postgres").items() if pair[1]), *words]

    def ctl(self, *words):
        done = run(self.flags(*words), 120)
        with open(self.world._log("ctl"), "a") as log:
            log.write("$ %s -> %d\n%s%s" % (" ".join(words), done.returncode, done.stdout, done.stderr))
        return done

    def place(self, verb, *words):
        done = self.ctl("place", verb, "2-3", *words, "--reason", "a split")
        assert_equal(done.returncode, 0, "place %s: %s%s" % (verb, done.stdout, done.stderr))

    def refused(self, told, verb, *words):
        done = self.ctl("place", verb, *words, "--reason", "a split")
        assert_true(done.returncode == 1 and told in done.stderr, "%s: %d %s" % (verb, done.returncode, done.stderr))

    def kill(self, verb, after):
        """kill -9 of the command so many seconds after its start, or when it has printed something."""
        started = subprocess.Popen(self.flags("place", verb, "2-3", "--reason", "a split"), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, env=ENVIRONMENT)
        try:
            if after is None:
                started.stderr.readline()
            else:
                time.sleep(after)
        finally:
            started.kill()
            started.communicate()

    def states(self):
        return self.world.sql("SELECT string_agg(state, ' ' ORDER BY place) FROM issuing.place_states")

    def write(self, base, place):
        """Writes of somebody who is told nothing: "" = it was taken."""
        user = next(user for user in USERS if place_of(user) == place)
        try:
            psql("INSERT INTO issuing_p%d.rate_limit_log VALUES (now(), gen_random_uuid(), false, '%s');"
                 "UPDATE issuing_p%d.outbox_events SET updated_at = updated_at WHERE false" % (place, user, place),
                 base + " user=postgres")
        except Failed as refused:
            return str(refused)
        return ""


class Load:
    """Clients, each with users of one half of the places, that repeat with the same key until the request is accepted."""

    def __init__(self, world):
        self.world = world
        self.accepted, self.answers, self.complaints = {}, {}, []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(moves, number)) for moves in (False, True)
                        for number in range(2)]

    def run(self, moves, number):
        turn = 0
        while not self.stopped.is_set():
            for user in [user for user in USERS if (place_of(user) in MOVED) == moves][number::2]:
                if not self.ask(user, "k%d" % turn):
                    return
            turn += 1

    def ask(self, user, key):
        """False: the load has ended."""
        while True:
            answer = self.world.post(user, key)
            problem = answer.json().get("type") if answer.status != 202 else None
            self.answers[(answer.status, problem)] = self.answers.get((answer.status, problem), 0) + 1
            if answer.status == 202:
                request = answer.json()["id"]
                if self.accepted.setdefault((user, key), request) != request:
                    self.complaints.append("two ids for %s %s" % (user, key))
                return not self.stopped.is_set()
            if (answer.status, problem) != (503, "/problems/user-moving") or not answer.header("Retry-After"):
                self.complaints.append("%r" % answer)
            if self.stopped.is_set():
                return False
            time.sleep(0.05)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join(STUCK_AFTER_S)

    def count(self, moves):
        return sum((place_of(user) in MOVED) == moves for user, _ in list(self.accepted))

    def more(self, count, halves=(False, True)):
        """So many more are accepted in each of these halves of the places."""
        before = {moves: self.count(moves) for moves in halves}
        wait_until(lambda: all(self.count(moves) >= before[moves] + count for moves in halves), "%d more" % count, 60)


def end(split, load):
    world = split.world
    assert_equal(load.complaints[:5], [], "answers other than 202 and 503 user-moving")
    wait_until(lambda: not split.rows("SELECT id FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING')"),
               "all requests have ended", 120)
    events = split.rows("SELECT id, status, user_id FROM outbox_events")
    ids = [event["id"] for event in events]
    assert_equal(len(ids), len(set(ids)), "events in both databases")
    assert_equal(set(load.accepted.values()) - set(ids), set(), "accepted and lost")
    assert_equal(set(ids) - set(load.accepted.values()), set(), "made twice")
    assert_equal({event["status"] for event in events}, {"COMPLETED"}, "ends")
    print("       %d accepted, answers %r" % (len(ids), load.answers))
    return world


@slow
@test(**FOUR, **SHORT)
def a_split_under_load_loses_nothing_and_doubles_nothing(world):
    random.seed(world.label)
    split = Split(world)
    world.start_sandbox()
    world.start_api(**split.own("issuing_api"))
    for _ in range(2):
        world.start_worker(**split.own("issuing_worker"))
    with Load(world) as load:
        load.more(100)
        split.refused("is a replica: promote it first", "take", "2-3")
        # One that may have looked at the fence before it fell is waited for, and the way back is open as long.
        with world.holding("SELECT FROM issuing.place_states"):
            for _ in range(2):
                split.kill("release", None)
                assert_equal(split.states(), "served served leaving leaving", "killed while it waits")
            assert_equal(split.ctl("place", "release", "2-3", "--undo", "--reason", "x").returncode, 0, "undo")
            load.more(50)
            split.kill("release", None)
        for _ in range(KILLS):
            split.kill("release", random.random() * 0.4)
        split.place("release")
        assert_equal(split.states(), "served served released released", "released")
        split.refused("may have been taken", "release", "2-3", "--undo")
        world.workers()[0].kill()
        load.more(50, [False])
        lsn = world.sql("SELECT pg_current_wal_lsn()")
        wait_until(lambda: split.sql_second("SELECT pg_last_wal_replay_lsn() >= '%s'" % lsn) == "t", "replayed")
        split.sql_second("SELECT pg_promote(true, 60)")
        for place in range(PLACES):
            assert_true("does not serve" in split.write(split.second, place), "before it took anything")
        for _ in range(KILLS):
            split.kill("take", random.random() * 0.4)
        split.place("take")
        split.place("take")
        load.more(200)
        world.restart(world.workers()[0])
        load.more(100)
    end(split, load)
    moved = [key for key in load.accepted if place_of(key[0]) in MOVED]
    user, key = moved[-1]
    shown = world.get(user, "/v1/card-requests/" + load.accepted[(user, key)])
    assert_equal((shown.status, shown.json()["status"]), (200, "COMPLETED"), "read from the second database")
    found = split.ctl("show", load.accepted[(user, key)])
    assert_true(found.returncode == 0 and user in found.stdout, "ctl finds it: %s%s" % (found.stdout, found.stderr))
    # The old primary comes back after a crash.
    run([CLUSTER, "restart", world.dir / "pg", "immediate"])
    for place in range(PLACES):
        for base, mine in ((split.first, place not in MOVED), (split.second, place in MOVED)):
            assert_equal("does not serve" not in split.write(base, place), mine, "place %d in %s" % (place, base))
    for places in ("2-3", "0-1"):
        done = split.ctl("place", "drop", places, "--reason", "a split")
        assert_true(done.returncode == 0 and "dropped: 2" in done.stdout, done.stdout + done.stderr)
    assert_equal(split.ctl("migrate").returncode, 0, "migrate of what is left")
    assert_equal(split.ctl("place", "list").returncode, 0, "list")
    world.apis()[0].wait_ready()
    for user in USERS[:20]:
        wait_until(lambda: world.post(user, "after").status == 202, "accepted in the end")
    wait_until(lambda: not split.rows("SELECT id FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING')"),
               "all requests have ended", 60)


def split_at_once(world):
    split = Split(world)
    split.place("release")
    split.refused("does not serve it", "drop", "2-3")
    lsn = world.sql("SELECT pg_current_wal_lsn()")
    wait_until(lambda: split.sql_second("SELECT pg_last_wal_replay_lsn() >= '%s'" % lsn) == "t", "replayed")
    split.sql_second("SELECT pg_promote(true, 60)")
    split.place("take")
    return split


def two_users():
    """One of each database."""
    return [next(user for user in USERS if (place_of(user) in MOVED) == moves) for moves in (False, True)]


@slow
@test(**FOUR)
def operators_act_on_what_is_in_two_databases(world):
    split = split_at_once(world)
    world.start_sandbox()
    world.start_api(**split.own("issuing_api"))
    users = two_users()
    requests = [world.accept(user) for user in users]
    listed = split.ctl("list", "--json")
    assert_equal(sorted(row["id"] for row in lines(listed)), sorted(requests), "list")
    for place, request in ((place_of(user), request) for user, request in zip(users, requests)):
        assert_equal([row["id"] for row in lines(split.ctl("list", "--json", "--place", str(place)))], [request], "place")
    alone = world.ctl("list", "--place", str(place_of(users[1])))
    assert_true(alone.returncode == 1 and "does not serve place" in alone.stderr, "the old copy: " + alone.stderr)
    done = split.ctl("cancel", *requests, "--reason", "not needed")
    assert_equal((done.returncode, done.stdout.count("cancelled")), (0, 2), done.stdout + done.stderr)
    states = {row["id"]: row["status"] for row in split.rows("SELECT id, status FROM outbox_events")}
    assert_equal(states, dict.fromkeys(requests, "REJECTED"), "each in its database")
    audited = split.rows("SELECT event_id FROM operator_actions WHERE action = 'cancel'")
    assert_equal(sorted(row["event_id"] for row in audited), sorted(requests), "each once")
    empty = run([BUILD / "issuing-ctl", "--config=%s" % world.suite.empty_file,
                 "--place.0-1.url=%s user=postgres" % split.first,
                 "--place.2-3.url=%s user=postgres" % split.first.replace("dbname=issuing", "dbname=postgres"),
                 "migrate"])
    assert_true(empty.returncode == 1 and "database 1 is new" in empty.stderr, empty.stderr)


@slow
@test(**FOUR, **SHORT)
def one_database_that_is_away_stops_no_other(world):
    split = split_at_once(world)
    world.start_sandbox()
    api = world.start_api(**split.own("issuing_api"))
    world.start_worker(**split.own("issuing_worker"))
    stays, moved = two_users()
    for user in (stays, moved):
        world.accept(user, "before")
    all_done = "SELECT id FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING')"
    wait_until(lambda: not split.rows(all_done), "all have ended")
    run([CLUSTER, "stop", split.folder])
    wait_until(lambda: "database place.2: " in api.get("/readyz").body.decode(), "readyz says which")
    assert_equal(api.get("/readyz").status, 200, "ready for the others")
    assert_equal([api.metric('issuing_db_ready{database="place.%d"}' % place) for place in (0, 2)], [1, 0], "metrics")
    for turn in range(40):
        refused = world.post(moved, "away%d" % turn)
        assert_equal((refused.status, refused.json()["type"]), (503, "/problems/unavailable"), "of the other one")
    requests = [world.accept(user, "alone") for user in USERS if place_of(user) not in MOVED]
    wait_until(lambda: world.sql("SELECT count(*) FROM outbox_events WHERE status <> 'COMPLETED'") == "0", "done", 60)
    assert_true(len(requests) > 100, "many")
    started = run([CLUSTER, "start", split.folder, "cluster_name=second", "fsync=off"])
    assert_equal(started.returncode, 0, started.stderr)
    wait_until(lambda: world.post(moved, "again").status == 202, "accepted again", 60)
    wait_until(lambda: not split.rows(all_done), "all have ended", 60)
