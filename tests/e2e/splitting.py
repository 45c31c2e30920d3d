"""Places go to a second server: a standby of the first that is promoted, and is the home of some of them from then on.

Story: a request that comes while a place moves must not be lost or executed twice, also when the operator's command is
killed, when a standby is promoted too early, and when the old primary comes back."""
import random
import re
import signal
import subprocess
import threading
import time

from crashes import SHORT
from divided import place_of
from harness import assert_equal, assert_true, CLUSTER, Failed, psql, run, slow, test, Threads, wait_until
from operators import lines
from processes import BUILD, ENVIRONMENT

PLACES = 4
MOVED = (2, 3)
FOUR = {"places": PLACES, "database.connections": "4"}
USERS = ["user-%d" % number for number in range(400)]
KILLS = 6
WEST = "issuing-private"  # cluster_name of every cluster of the tests
# Whatever an api or a worker writes changes one of these.
ROWS = ("SELECT (SELECT count(*) || ' ' || md5(string_agg(e::text, ' ' ORDER BY e.id)) FROM outbox_events e), (SELECT"
        " count(*) FROM idempotency_keys), (SELECT md5(string_agg(c::text, ' ' ORDER BY c.id)) FROM cards c), (SELECT"
        " count(*) FROM operator_actions), (SELECT count(*) FROM partitions)")
PROMOTE = "SELECT CASE WHEN pg_is_in_recovery() THEN pg_promote(false) END"
OPEN = "SELECT id FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING')"


class Split:
    """The world's databases in a cluster of its own, `west`, and a standby of it, `east`."""

    role = "postgres"  # that issuing-ctl place works as
    flags = ()

    def __init__(self, world):
        self.world = world
        self.west = world.own_cluster()
        self.folder = world.dir / "east"
        made = run([CLUSTER, "standby", self.folder, world.dir / "pg", "cluster_name=east", "wal_retrieve_retry_interval=200ms"],
                   900)
        if made.returncode != 0:
            raise Failed("no standby: " + made.stderr)
        self.east = made.stdout.strip()
        self.moved = ()
        world.base_of = lambda place: self.east if place in self.moved else self.west
        world.both = self.both
        self.kill_world, world.kill_all = world.kill_all, self.kill_all

    def both(self):
        """What names both servers in a conninfo."""
        found = [re.search(r"host=(\S+) port=(\S+)", base).groups() for base in (self.west, self.east)]
        return "host=%s port=%s" % tuple(",".join(each) for each in zip(*found))

    def kill_all(self):
        self.kill_world()
        run([CLUSTER, "stop", self.folder])

    def sql(self, base, place, text):
        return psql(text, "%s user=postgres" % re.sub(r"dbname=\S+", "dbname=" + self.world.name_of(place), base))

    def place(self, verb, *words, code=0, told=""):
        done = self.world.ctl("place", verb, *words, *(() if verb == "list" else ("--reason", "a split")),
                              role=self.role)
        assert_true(done.returncode == code and told in done.stdout + done.stderr,
                    "place %s: %d %s%s" % (verb, done.returncode, done.stdout, done.stderr))
        return done

    def kill(self, verb, *words, after):
        """kill -9 of the command so many seconds after its start, or (None) when it says that it waits."""
        started = subprocess.Popen([BUILD / "issuing-ctl", "--config=%s" % self.world.suite.empty_file,
                                    "--database.url=" + self.world.conninfo(self.role), "--database.places=%d" % PLACES,
                                    *self.flags, "place", verb, "2,3", *words, "--reason", "a split"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
        try:
            if after is None:
                started.stderr.readline()
            else:
                time.sleep(after)
        finally:
            started.kill()
            started.communicate()

    def homes(self):
        return [self.sql(self.west, place, "SELECT home FROM place") for place in range(PLACES)]

    def rows(self, base, places):
        return [self.sql(base, place, ROWS) for place in places]

    def crash(self, folder):
        """kill -9 of everything that this server is, and its start."""
        done = run([CLUSTER, "restart", folder, "immediate"], 600)
        if done.returncode != 0:
            raise Failed("no restart: " + done.stderr)

    def promote(self):
        """No session waits for it: a standby ends those that are in the way of what it still replays."""
        self.sql(self.east, 0, PROMOTE)
        wait_until(lambda: self.sql(self.east, 0, "SELECT pg_is_in_recovery()") == "f", "promoted", 60)

    def write(self, base, place):
        """Of somebody who is told nothing: "" = it was taken."""
        try:
            self.sql(base, place, "UPDATE outbox_events SET updated_at = updated_at WHERE false")
        except Failed as refused:
            return str(refused)
        return ""


class Load(Threads):
    """Clients, each with users of one half of the places, that repeat with the same key until the request is
    accepted."""

    def __init__(self, world, users=USERS, clients=2):
        self.world, self.clients = world, clients
        self.users = {moves: [user for user in users if (place_of(user, PLACES) in MOVED) == moves] for moves in (False, True)}
        self.accepted, self.answers, self.complaints = {}, {}, []
        super().__init__(self.run, [(moves, number) for moves in (False, True) for number in range(clients)])

    def run(self, moves, number):
        turn = 0
        while not self.stopped.is_set():
            for user in self.users[moves][number::self.clients]:
                if not self.ask(user, "k%d" % turn, moves):
                    return
            turn += 1

    def post(self, user, key):
        return self.world.post(user, key)

    def ask(self, user, key, moves):
        """False: the load has ended."""
        while True:
            answer = self.post(user, key)
            problem = answer.json().get("type") if answer.status != 202 else None
            self.answers[(moves, answer.status, problem)] = self.answers.get((moves, answer.status, problem), 0) + 1
            if answer.status == 202:
                request = answer.json()["id"]
                if self.accepted.setdefault((user, key), request) != request:
                    self.complaints.append("two ids for %s %s" % (user, key))
                return not self.stopped.is_set()
            if answer.status != 503 or not answer.header("Retry-After"):
                self.complaints.append("%r" % answer)
            if self.stopped.is_set():
                return False
            time.sleep(0.05)

    def count(self, moves):
        return sum((place_of(user, PLACES) in MOVED) == moves for user, _ in list(self.accepted))

    def more(self, count, halves=(False, True)):
        """So many more are accepted in each of these halves of the places."""
        before = {moves: self.count(moves) for moves in halves}
        wait_until(lambda: all(self.count(moves) >= before[moves] + count for moves in halves), "%d more" % count, 60)


def end(world, load):
    assert_equal(load.complaints[:5], [], "answers other than 202 and 503")
    assert_equal([kind for kind in load.answers if kind[0] is False and kind[1] != 202], [], "of places that stay")
    wait_until(lambda: not world.rows(OPEN), "all requests have ended", 120)
    events = world.rows("SELECT id, status, user_id FROM outbox_events")
    ids = [event["id"] for event in events]
    assert_equal(len(ids), len(set(ids)), "events in two places")
    assert_equal(set(load.accepted.values()) - set(ids), set(), "accepted and lost")
    assert_equal(set(ids) - set(load.accepted.values()), set(), "made twice")
    assert_equal({event["status"] for event in events}, {"COMPLETED"}, "ends")
    print("       %d accepted, answers %r" % (len(ids), load.answers))


@slow
@test(**FOUR, **SHORT)
def a_split_under_load_loses_nothing_and_doubles_nothing(world):
    random.seed(world.label)
    split = Split(world)
    world.up()
    with Load(world) as load:
        load.more(100)
        for places in ("4", "2,", "2-3", ",2", "x"):
            split.place("move", places, "--to", "east", code=2, told="the places are N or N,M, from 0 to 3")
        split.place("move", "2,3", "--to", "nowhere", code=1, told='is called "nowhere"')
        split.place("move", "2,3", "--to", WEST, code=1, told="serves place 2 already")
        split.place("take-back", "2", told="nothing is to be taken back")
        # One that may have asked for the home before it changed is waited for; the way back is open.
        with world.holding("SELECT FROM issuing.place", place=2):
            for _ in range(2):
                split.kill("move", "--to", "east", after=None)
                assert_equal(split.homes(), [WEST, WEST, "east", WEST], "killed while it waits")
        split.place("take-back", "2")
        assert_equal(split.homes(), [WEST] * 4, "taken back")
        load.more(50)
        for _ in range(KILLS):
            split.kill("move", "--to", "east", after=random.random() * 0.4)
        split.place("move", "2,3", "--to", "east", told='"east" has replayed it. Next: promote "east"')
        assert_equal(split.homes(), [WEST, WEST, "east", "east"], "moved")
        split.place("list", code=1, told="place 2: no server that answers serves it")
        for _ in range(KILLS):
            split.kill("take-back", after=random.random() * 0.4)
        split.place("take-back", "2,3")
        load.more(50)
        split.place("move", "2,3", "--to", "east")
        left = split.rows(split.west, MOVED)
        world.workers()[2].kill()
        load.more(50, [False])
        split.promote()
        copied = split.rows(split.east, (0, 1))
        split.moved = MOVED
        load.more(200)
        world.restart(world.workers()[2])
        load.more(100)
        split.place("take-back", "2,3", code=1, told='"east" at')
        split.place("move", "2,3", "--to", "east", code=1, told="serves place 2 already")
    end(world, load)
    user, key = [key for key in load.accepted if place_of(key[0], PLACES) in MOVED][-1]
    shown = world.get(user, "/v1/card-requests/" + load.accepted[(user, key)])
    assert_equal((shown.status, shown.json()["status"]), (200, "COMPLETED"), "read from the second server")
    found = lines(world.ctl("show", "--json", load.accepted[(user, key)]))
    assert_equal([(row["user_id"], row["place"]) for row in found], [(user, place_of(user, PLACES))], "ctl finds it")
    # The old primary comes back after a crash.
    split.crash(world.dir / "pg")
    for place in range(PLACES):
        for base, mine in ((split.west, place not in MOVED), (split.east, place in MOVED)):
            assert_equal("is served by" not in split.write(base, place), mine, "place %d at %s" % (place, base))
    split.place("list")
    assert_equal(split.rows(split.west, MOVED), left, "rows of places that have left")
    assert_equal(split.rows(split.east, (0, 1)), copied, "rows of places that stayed, in east")
    for place in range(PLACES):
        base = split.west if place in MOVED else split.east
        psql("DROP DATABASE %s WITH (FORCE)" % world.name_of(place),
             re.sub(r"dbname=\S+", "dbname=postgres", base) + " user=postgres")
    split.place("list")
    assert_equal(world.ctl("migrate", role="postgres").returncode, 0, "migrate of what is left")
    for user in USERS[:20]:
        wait_until(lambda user=user: world.post(user, "after").status == 202, "accepted in the end")
    wait_until(lambda: not world.rows(OPEN), "all requests have ended", 60)


@slow
@test(**FOUR, **SHORT)
def servers_that_crash_at_each_step_of_a_split_write_no_place_twice(world):
    """Story: a server that comes back from its log must know what it had given away, and what it had been given."""
    random.seed(world.label)
    split, west = Split(world), world.dir / "pg"
    world.up()
    with Load(world) as load:
        load.more(50)
        split.crash(split.folder)
        load.more(50)
        for folder in (split.folder, west) * 2:
            moving = threading.Thread(target=split.kill, args=("move", "--to", "east"), kwargs={"after": 1})
            moving.start()
            time.sleep(random.random() * 0.4)
            split.crash(folder)
            moving.join()
            wait_until(lambda: world.ctl("place", "take-back", "2,3", "--reason", "x", role="postgres").returncode == 0,
                       "taken back")
            load.more(20)
        split.place("move", "2,3", "--to", "east")
        left = split.rows(split.west, MOVED)
        split.crash(west)
        split.crash(split.folder)
        assert_equal([bool(split.write(base, 2)) for base in (split.west, split.east)], [True, True], "who writes now")
        split.sql(split.east, 0, PROMOTE)
        split.crash(split.folder)
        split.promote()
        split.crash(split.folder)
        copied = split.rows(split.east, (0, 1))
        split.moved = MOVED
        load.more(50, [True])
        split.crash(west)
        load.more(50)
        split.crash(split.folder)
        load.more(50)
        split.place("list")
    refused = load.answers.pop((False, 503, "/problems/unavailable"), 0)
    end(world, load)
    print("       503 to users of the other places while their server was away: %d" % refused)
    assert_equal(split.rows(split.west, MOVED), left, "rows of places that have left")
    assert_equal(split.rows(split.east, (0, 1)), copied, "rows of places that stayed, in east")


@slow
@test(**FOUR, **SHORT)
def a_standby_that_is_promoted_too_early_serves_nothing(world):
    split = Split(world)
    world.up()
    with Load(world) as load:
        load.more(50)
        split.sql(split.east, 0, "ALTER SYSTEM SET primary_conninfo = ''")
        split.sql(split.east, 0, "SELECT pg_reload_conf()")
        wait_until(lambda: split.sql(split.west, 0, "SELECT count(*) FROM pg_stat_replication") == "0", "cut off")
        split.place("move", "2,3", "--to", "east", "--timeout", "1s", code=1, told="do not promote it")
        split.promote()
        for place in range(PLACES):
            assert_true('place %d is served by "%s"' % (place, WEST) in split.write(split.east, place), "east")
        split.place("list", code=1, told="place 2: no server that answers serves it")
        said = [(row["place"], row["found"]) for row in lines(world.ctl("doctor", "--json"), code=1) if row["check"] == "place"]
        assert_equal([place for place, found in said if "no server that answers" in found], [2, 3], "not served: %r" % said)
        assert_equal([place for place, found in said if 'has a copy, which it does not serve' in found], [0, 1], "%r" % said)
        load.more(50, [False])
        split.place("take-back", "2,3", told="serves it again")
        load.more(50)
        split.place("move", "2,3", "--to", "east", code=1, told='"east" at')
    end(world, load)


@slow
@test(**FOUR, **SHORT)
def a_worker_that_was_frozen_while_its_place_moved_goes_on_there(world):
    split = Split(world)
    world.up()
    world.sandbox.fault("create", "create_then_hang")
    mine = [user for user in USERS if place_of(user, PLACES) == 2][:6]
    requests = [world.accept(user) for user in mine]
    wait_until(lambda: world.in_place(2, "SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'") != "0", "at work")
    world.sandbox.clear()
    worker = world.workers()[2]
    worker.signal(signal.SIGSTOP)
    split.place("move", "2,3", "--to", "east")
    split.promote()
    split.moved = MOVED
    time.sleep(1)
    worker.signal(signal.SIGCONT)
    wait_until(lambda: not world.rows(OPEN), "all requests have ended", 120)
    shown = {row["id"]: row["status"] for row in world.rows("SELECT id, status FROM outbox_events")}
    assert_equal(shown, dict.fromkeys(requests, "COMPLETED"), "ends")
