"""Cells: one world with several databases in one cluster, an api and a worker for each, one sandbox for all, clients
that find their cell through a router, and the commands that move buckets.

A Cell is a World whose database is its own and whose other parts are the shared ones. Which cell has a bucket is what
its own table says; the router of a story may be right, ignorant or wrong.
"""
import collections
import functools
import hashlib
import json
import random
import subprocess
import threading
import time

import client
from assertions import assert_equal, assert_true, Failed, STUCK_AFTER_S, wait_until
from processes import BUILD, ENVIRONMENT
from world import World

BUCKETS = 1024
ALL = "0-1023"
OWNED = ("here", "listing", "draining", "closed")
WRONG_CELL, MOVING = "/problems/wrong-cell", "/problems/user-moving"
STEPS = ("list", "expect", "drain", "close", "copy", "leave", "arrive", "router", "empty")  # of a move, in order


# ---- buckets ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def bucket_of(user):
    """Computed by itself, on purpose: not by the code that is tested."""
    return int.from_bytes(hashlib.sha256(user.encode()).digest()[:2], "big") % BUCKETS


@functools.lru_cache(maxsize=None)
def _users_by_bucket():
    found = collections.defaultdict(list)
    for number in range(BUCKETS * 16):
        found[bucket_of("user-%d" % number)].append("user-%d" % number)
    return found


def users_of(bucket, count=1):
    found = _users_by_bucket()[bucket]
    assert_true(len(found) >= count, "so many users in bucket %d" % bucket)
    return found[:count]


# ---- a cell ----------------------------------------------------------------------------------------------------------


class Cell(World):
    """One database and the programs that use it."""

    def __init__(self, world, name, database):  # noqa: super().__init__ would make another world
        self.world, self.name, self.database, self.base = world, name, database, None
        self.cluster, self.cells = "pg-" + name, []

    def __getattr__(self, name):
        if name == "world":
            raise AttributeError(name)
        return getattr(self.world, name)

    def flags(self, role, own):
        return super().flags(role, {"database__cell": self.name, **own})

    def _start(self, daemon, wait_ready):
        daemon.cell = self.name
        return super()._start(daemon, wait_ready)

    def apis(self):
        return [program for program in super().apis() if program.cell == self.name]

    def workers(self):
        return [program for program in super().workers() if program.cell == self.name]

    def states(self):
        """{bucket: state}"""
        return {int(line.split("|")[0]): line.split("|")[1]
                for line in self.sql("SELECT bucket, state FROM issuing.cell_buckets").splitlines()}

    def state(self, bucket):
        return self.sql("SELECT state FROM issuing.cell_buckets WHERE bucket = %d" % bucket) or None

    def count(self, table, users):
        return int(self.sql("SELECT count(*) FROM %s WHERE user_id IN ('%s')" % (table, "', '".join(users))))


# ---- the router ------------------------------------------------------------------------------------------------------


def is_problem(answer, kind):
    return answer.status == 503 and answer.json()["type"] == kind


class Router:
    """Finds the cell of a user. By default it is ignorant: it asks the cell that answered last, then the others, and
    takes the answer that is not "wrong cell". With a map it asks the cell that the file names, and only that; with a
    port it is a real router that listens there."""

    def __init__(self, cells, map_file=None, port=None):
        self.cells, self.map_file, self.port = cells, map_file, port
        self.last = {}

    def named(self, user):
        with open(self.map_file) as file:
            for line in file:
                words = line.split()
                if words and words[0] == str(bucket_of(user)):
                    return self.cells[words[1].removeprefix("cell_")]
        raise Failed("bucket %d is not in the map" % bucket_of(user))

    def order(self, user):
        first = self.last.get(bucket_of(user), self.cells.all[0])
        return [first, *(cell for cell in self.cells.all if cell is not first)]

    def send(self, user, data, timeout=20):
        """One call, as bytes. Raises as client.Wire does."""
        if self.port:
            return self._call(self.port, data, timeout)
        if self.map_file:
            return self._call(random.choice(self.named(user).apis()).port, data, timeout)
        answer = None
        for cell in self.order(user):
            answer = self._call(random.choice(cell.apis()).port, data, timeout)
            if not is_problem(answer, WRONG_CELL):
                self.last[bucket_of(user)] = cell
                break
        return answer

    @staticmethod
    def _call(port, data, timeout):
        with client.Wire(port, timeout) as wire:
            return wire.send(data).answer()


# ---- the world -------------------------------------------------------------------------------------------------------


class Cells:
    """The cells of a world. The first one's database is the world's."""

    def __init__(self, world, names=("one", "two"), own_clusters=None):
        """own_clusters: {name: the clock of the cell's own cluster}, in place of databases of the run's."""
        self.all = []
        self.world = world
        for name in names:
            self.all.append(Cell(world, name, world.database if not self.all else "%s_%s" % (world.database, name)))
        for cell in self.all:
            if own_clusters is not None:
                own_clusters[cell.name] = cell.own_database(cell.clock("database-" + cell.name))
            elif cell is not self.all[0]:
                cell.create_database()
        world.cells = self.all
        self.router = Router(self)
        self.map_file = world.dir / "cells.map"

    def __getitem__(self, name):
        return next(cell for cell in self.all if cell.name == name)

    def flags(self, role="issuing_owner"):
        """Of issuing-ctl."""
        found = {"cell.%s.url" % cell.name: cell.conninfo(role) for cell in self.all}
        found["router.map_file"] = self.map_file
        return ["--config=%s" % self.world.suite.empty_file, *("--%s=%s" % pair for pair in found.items())]

    def ctl(self, *words, seconds=120):
        """The result of one issuing-ctl command."""
        from processes import run
        done = run([BUILD / "issuing-ctl", *self.flags(), *words], seconds)
        self.note(words, done.returncode, done.stdout + done.stderr)
        return done

    def note(self, words, status, text):
        with open(self.world._log("ctl"), "a") as log:
            log.write("$ issuing-ctl %s -> %d\n%s" % (" ".join(str(word) for word in words), status, text))

    def init(self):
        """The first cell has all buckets."""
        for cell in self.all:
            done = self.ctl("cell", "init", cell.name)
            assert_equal(done.returncode, 0, "cell init: %s%s" % (done.stdout, done.stderr))
        return self

    def up(self, apis=1, workers=1, sandbox=(), **own):
        self.init()
        self.world.start_sandbox(*sandbox)
        for cell in self.all:
            for _ in range(apis):
                cell.start_api(wait_ready=False, **own)
            for _ in range(workers):
                cell.start_worker(wait_ready=False, **own)
        for daemon in [*self.world.apis(), *self.world.workers()]:
            daemon.wait_ready()
        return self

    # ---- moves ----

    def move_words(self, buckets, to, *words):
        """An undo leads back to where the buckets were, so it has no destination. A pause may be as long as a slow
        machine makes it, unless the story is about that."""
        if "--undo" not in words:
            words = ["--to", to, *(words if "--max-pause" in words else ["--max-pause", "20s", *words])]
        return ["cell", "move", *([str(buckets)] if not isinstance(buckets, (list, tuple)) else map(str, buckets)),
                *words]

    def move(self, buckets, to, *words, seconds=120, status=0):
        """status: the wanted one; None = any."""
        done = self.ctl(*self.move_words(buckets, to, *words), seconds=seconds)
        if status is not None:
            assert_equal(done.returncode, status, "cell move %s --to %s %s: %s%s" %
                         (buckets, to, " ".join(words), done.stdout, done.stderr))
        return done

    def start_move(self, buckets, to, *words):
        """The same, in the background: a Popen."""
        return subprocess.Popen([str(word) for word in [BUILD / "issuing-ctl", *self.flags(),
                                                        *self.move_words(buckets, to, *words)]],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=ENVIRONMENT)

    def owners(self, bucket):
        """Names of the cells in which the bucket lives."""
        return [cell.name for cell in self.all if cell.state(bucket) in OWNED]

    def owner(self, bucket):
        found = self.owners(bucket)
        assert_equal(len(found), 1, "cells that have bucket %d" % bucket)
        return self[found[0]]

    def wait_state(self, cell, bucket, *states):
        return wait_until(lambda: cell.state(bucket) in states, "bucket %d is %s in %s" % (bucket, "/".join(states),
                                                                                         cell.name))

    # ---- clients ----

    def post(self, user, key, body=None, router=None):
        return (router or self.router).send(user, self.world.post_bytes(user, key, body))

    def get(self, user, path, router=None, headers=()):
        return (router or self.router).send(user, client.request_bytes("GET", path,
                                                                       [self.world.bearer(user), *headers]))

    def accept(self, user, key="k", body=None, router=None, seconds=STUCK_AFTER_S):
        """Repeats the call until it is accepted, as every client does; the whole answer."""
        def accepted():
            answer = self.post(user, key, body, router)
            if answer.status == 503:
                return None
            if answer.status != 202:
                raise Failed("%s %s: %r" % (user, key, answer))
            return answer
        return wait_until(accepted, "a request of %s is accepted" % user, seconds, 0.05)

    def settle(self, seconds=STUCK_AFTER_S):
        for cell in self.all:
            cell.settle(seconds)

    def wait_end(self, user, event, *wanted, seconds=STUCK_AFTER_S):
        """Until the event, wherever it is, has one of these statuses; its row in the cell that has the bucket."""
        def ended():
            for cell in self.all:
                if cell.state(bucket_of(user)) in OWNED and cell.status(event) in wanted:
                    return cell.event(event)
            return None
        return wait_until(ended, "%s of %s" % ("/".join(wanted), event), seconds, 0.05)


# ---- load ------------------------------------------------------------------------------------------------------------


class Load:
    """Clients that issue, repeat, read and come from two devices at once, until they are told to stop. Each call is
    repeated until it is answered. told: {(user, key): bodies of its 202s}."""

    def __init__(self, cells, users, clients=4, pace=0.03, seed=1, router=None):
        self.cells, self.users, self.pace, self.seed, self.router = cells, users, pace, seed, router or cells.router
        self.stopped, self.lock = threading.Event(), threading.Lock()
        self.told, self.statuses, self.wrong = collections.defaultdict(set), collections.Counter(), []
        self.silent = 0.0  # the longest time in seconds that a request was repeated
        self.threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def _run(self, number):
        chance, count, own = random.Random("%s-%d" % (self.seed, number)), 0, []
        try:
            while not self.stopped.is_set():
                if own and chance.random() < 0.3:
                    user, key = chance.choice(own)
                else:
                    user, key = chance.choice(self.users), "c%d-%d" % (number, count)
                    count += 1
                self._request(user, key, devices=2 if chance.random() < 0.3 else 1)
                own.append((user, key))
                if chance.random() < 0.2:
                    self._read(user)
                self.stopped.wait(chance.uniform(0, 2 * self.pace))
        except Exception as error:  # noqa: BLE001 - reported by the thread that waits for this one
            self.wrong.append("%r" % error)

    def _request(self, user, key, devices):
        begun = time.monotonic()
        while True:
            answers = self._send_all(user, key, devices)
            with self.lock:
                for answer in answers:
                    self.statuses[answer.status if answer.status != 503 else answer.json()["type"]] += 1
                    if answer.status == 202:
                        self.told[user, key].add(answer.body)
                    elif answer.status != 503 and answer.status != 409:
                        self.wrong.append("%s %s: %r" % (user, key, answer))
            if any(answer.status == 202 for answer in answers):
                break
            if time.monotonic() > begun + 2 * STUCK_AFTER_S:
                raise Failed("%s %s is not accepted: %r" % (user, key, answers))
            time.sleep(0.03)
        self.silent = max(self.silent, time.monotonic() - begun)

    def _send_all(self, user, key, devices):
        data = self.cells.world.post_bytes(user, key)
        if devices == 1:
            return self._quietly(user, data)
        found = []
        threads = [threading.Thread(target=lambda: found.extend(self._quietly(user, data)), daemon=True)
                   for _ in range(devices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(STUCK_AFTER_S)
        return list(found)

    def _quietly(self, user, data):
        """A connection that is refused or cut is no answer."""
        try:
            return [self.router.send(user, data)]
        except (OSError, client.Closed):
            return []

    def _read(self, user):
        data = client.request_bytes("GET", "/v1/card-requests", [self.cells.world.bearer(user)])
        for answer in self._quietly(user, data):
            with self.lock:
                self.statuses["GET %s" % answer.status] += 1
                if answer.status not in (200, 503):
                    self.wrong.append("GET of %s: %r" % (user, answer))

    def wait(self, more, seconds=2 * STUCK_AFTER_S):
        """Until so many further requests are accepted."""
        before = len(self.told)
        wait_until(lambda: len(self.told) >= before + more or self.wrong, "%d more requests" % more, seconds)

    def stop(self):
        """Checks what clients were told against the cells; returns it."""
        self.stopped.set()
        for thread in self.threads:
            thread.join(3 * STUCK_AFTER_S)
        assert_equal((self.wrong[:5], [thread for thread in self.threads if thread.is_alive()]), ([], []), "clients")
        check_told(self.cells, self.told)
        return self.told


def check_told(cells, told):
    """Each key has one answer, byte for byte; the event that it names is in the cell of its user, and nowhere else is
    there an event of that key."""
    wrong = ["%s %s: %d answers" % (*key, len(bodies)) for key, bodies in told.items() if len(bodies) > 1]
    events = collections.defaultdict(list)
    for cell in cells.all:
        states = cell.states()
        for row in cell.rows("SELECT id, user_id, idempotency_key AS key FROM outbox_events WHERE event_type ="
                             " 'CARD_ISSUE' AND idempotency_key IS NOT NULL"):
            if states.get(bucket_of(row["user_id"])) in OWNED:
                events[row["user_id"], row["key"]].append(row["id"])
    for key, bodies in told.items():
        named = json.loads(next(iter(bodies)))["id"]
        if events[key] != [named]:
            wrong.append("%s %s: told of %s, the cells have %r" % (*key, named, events[key]))
    assert_true(not wrong, "\n".join(wrong[:10]))


def check_repeats(cells, told, count=40):
    """A key still gives the answer that it gave first."""
    for user, key in random.Random(1).sample(sorted(told), min(count, len(told))):
        answer = cells.accept(user, key)
        assert_true(answer.body in told[user, key], "%s %s: %r, and was %r" % (user, key, answer.body, told[user, key]))
        assert_equal(answer.header("Idempotent-Replayed"), "true", "Idempotent-Replayed")


def count_rows(cell, users):
    """What a move takes along, for these users."""
    return {table: cell.count(table, users) for table in ("outbox_events", "outbox_attempts", "idempotency_keys",
                                                          "rate_limit_log", "cards", "card_reissues")}
