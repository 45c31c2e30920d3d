"""Cells in a campaign: a cluster for each of two cells, clients that ask any api, and movers that carry buckets back
and forth all the time, and are killed, put to sleep, started twice, told to undo.

When the trouble is over every open move is finished, each bucket lives in one cell, and everything is moved into the
first one. What holds for a single database must hold there: the other checks of a campaign then run on it as they are.
"""
import collections
import random
import signal
import threading
import time

import cells as world_of_cells
import harness
import services
import troubles

MOVERS = 2
PIECE = 24  # buckets of one move, at most
FINISH_SECONDS = 180


class Mover(threading.Thread):
    """One operator who moves buckets until it is over."""

    def __init__(self, number, seed, cells, history, users):
        super().__init__(daemon=True)
        self.random = random.Random("%s-mover-%d" % (seed, number))
        self.cells, self.history, self.is_over = cells, history, threading.Event()
        self.buckets = sorted({world_of_cells.bucket_of("user-%d" % user) for user in range(users)})
        self.results, self.wrong = collections.Counter(), []

    def run(self):
        while not self.is_over.is_set():
            chosen = self.random.sample(self.buckets, self.random.randrange(1, PIECE))
            self.one(chosen, self.random.choice(self.cells.all).name)
            self.is_over.wait(self.random.uniform(0, 0.4))

    def one(self, buckets, to):
        fate = self.random.choices(("finish", "kill", "sleep", "twice", "stop", "undo"), (5, 4, 2, 1, 3, 2))[0]
        words = []
        if fate == "stop":
            words = ["--stop-after", self.random.choice(world_of_cells.STEPS)]
        elif fate == "undo":
            words = ["--undo"]
        movers = [self.cells.start_move(buckets, to, *words) for _ in range(2 if fate == "twice" else 1)]
        if fate in ("kill", "sleep"):
            self.is_over.wait(self.random.uniform(0, 1.5))
            for mover in movers:
                mover.send_signal(signal.SIGKILL if fate == "kill" else signal.SIGSTOP)
        if fate == "sleep":
            self.is_over.wait(self.random.uniform(0.2, 4))
            movers[0].send_signal(signal.SIGCONT)
        for mover in movers:
            try:
                output = mover.communicate(timeout=120)[0]
            except Exception as error:  # noqa: BLE001 - it hangs
                self.wrong.append("a mover hangs: %r" % error)
                mover.kill()
                continue
            self.results["%s %d" % (fate, mover.returncode)] += 1
            self.cells.note([fate, *self.cells.move_words(buckets, to, *words)], mover.returncode, output)
            if mover.returncode not in (0, 1, 75, -signal.SIGKILL):
                self.wrong.append("cell move (%s): exit %d: %s" % (fate, mover.returncode, output[-300:]))
        self.history.trouble("move", fate=fate, buckets=len(buckets), to=to,
                             exit="/".join(str(mover.returncode) for mover in movers))


class Service(services.Service):
    """Another service does not know where a user lives: it tries the cells. What belongs together is of one user."""

    def insert(self):
        for event_type, count in ((services.CHARGE, 2), (services.NOTE, 3)):
            user = "user-%d" % self.random.randrange(self.users)
            rows = ["('%s', '%s', '{\"amount\": %d, \"currency\": \"EUR\"}')" % (event_type, user, 10 + number)
                    for number in range(count)]
            for cell in self.random.sample(self.world.cells, len(self.world.cells)):
                try:
                    ids = cell.sql("INSERT INTO outbox_events (event_type, user_id, payload) VALUES %s RETURNING id" %
                                   ", ".join(rows)).split()
                except (harness.Failed, OSError):
                    continue  # it is moving, it lives elsewhere, or the database is away
                self.inserted += ids
                if event_type == services.NOTE:
                    self.together.append(ids)
                break


class Troubles(troubles.Troubles):
    """Of one cell. Without those that watch one event of a user of their own."""

    def __init__(self, *words):
        super().__init__(*words)
        self.kinds = [(self.kill_worker, 5), (self.kill_api, 3), (self.stop_program, 2), (self.pause_worker, 3),
                      (self.nothing, 5), (self.peer_away, 3), (self.restart_database, 1), (self.crash_database, 2),
                      (self.end_sessions, 2), (self.step_database, 1), (self.step_program, 3), (self.suspend, 3),
                      (self.standby_away, 2)]

    def step(self, name, clock, chance):
        """While the clocks of the two databases differ nothing moves, so one is set right again after a while."""
        super().step(name, clock, chance)
        if name == "database" and clock.real:
            self.say("clock step", of=name, seconds=-clock.real, now_off_by=0)
            clock.step(-clock.real)


class Moves:
    """The cells of a campaign, their troubles and their movers."""

    def __init__(self, seed, world, history, users):
        self.clocks = {}
        self.cells = world_of_cells.Cells(world, own_clusters=self.clocks)
        self.movers = [Mover(number, seed, self.cells, history, users) for number in range(MOVERS)]

    def finish(self):
        """Every open move comes to its end, then all buckets are brought into the first cell. Nothing moves between
        clocks that differ, so the other cell's is set by that of the first one. Returns complaints."""
        clocks = [self.clocks[cell.name] for cell in self.cells.all]
        for clock in clocks[1:]:
            clock.step(clocks[0].real - clock.real)
        wrong = [text for mover in self.movers for text in mover.wrong]
        print("       moves: %s" % ", ".join("%s: %d" % pair for pair in sorted(
            sum((mover.results for mover in self.movers), collections.Counter()).items())))
        one, two = self.cells.all
        deadline = time.monotonic() + FINISH_SECONDS
        while True:
            states = {cell.name: cell.states() for cell in self.cells.all}
            open_ones = [bucket for bucket in range(world_of_cells.BUCKETS)
                         if {states[cell.name][bucket] for cell in self.cells.all} != {"here", "away"}]
            if not open_ones:
                break
            twice = [bucket for bucket in open_ones
                     if all(states[cell.name][bucket] in world_of_cells.OWNED for cell in self.cells.all)]
            if twice or time.monotonic() > deadline:
                return [*wrong, *("bucket %d is %s and %s" % (bucket, states[one.name][bucket],
                                                              states[two.name][bucket])
                                  for bucket in twice or open_ones)]
            for target in (one, two):
                other = two if target is one else one
                towards = [bucket for bucket in open_ones if states[target.name][bucket] == "arriving" or
                           states[other.name][bucket] in ("listing", "draining", "closed", "gone")]
                if towards:
                    self.cells.move(towards, target.name, status=None)
        away = [bucket for bucket, state in two.states().items() if state == "here"]
        while away and time.monotonic() < deadline:
            self.cells.move(away, one.name, status=None, seconds=300)
            away = [bucket for bucket, state in two.states().items() if state != "away"]
        left = {table: two.sql("SELECT count(*) FROM " + table) for table in (
            "outbox_events", "outbox_attempts", "idempotency_keys", "rate_limit_log", "cards", "card_reissues")}
        wrong += ["%s rows of %s are left in %s" % (count, table, two.name) for table, count in left.items()
                  if count != "0"]
        return wrong + ["bucket %d did not come back" % bucket for bucket in away]
