"""Many users of all places request cards, by two apis, and by two workers in each place, while programs and a server
die.

$CARDS says how many: 10000 take minutes, and their server is away for 20 s."""
import collections
import os
import random
import time

import client
from crashes import SHORT
from divided import place_of
from harness import assert_equal, CLUSTER, Failed, run, slow, test, wait_until
from places import strangers
from splitting import end, FOUR, Load, MOVED, PLACES, Split

CARDS = int(os.environ.get("CARDS") or 1000)
AWAY_S = CARDS / 500
KILLS = CARDS // 250  # in each of three stretches


class Many(Load):
    """Each user asks for one card, at one api or the other: at none that was killed and is not ready again."""

    def __init__(self, world, users):
        super().__init__(world, users, 4)
        self.kills, self.away = collections.Counter(), set()
        self.allowed = 0  # how many users of each half may ask now: else all had asked before the last kill

    def run(self, moves, number):
        for turn, user in enumerate(self.users[moves][number::self.clients]):
            while turn * self.clients >= self.allowed:
                if self.stopped.wait(0.02):
                    return
            if not self.ask(user, "k", moves):
                return

    def post(self, user, key):
        while True:
            api = random.choice([api for api in self.world.apis() if api not in self.away])
            kills = self.kills[api]
            try:
                answer = self.world.post(user, key, api=api)
                if answer.status == 202 and place_of(user, PLACES) not in MOVED:
                    shown = self.world.get(user, "/v1/card-requests/" + answer.json()["id"], api=api)
                    if shown.status != 200:
                        self.complaints.append("GET: %r" % shown)
                return answer
            except (OSError, client.Closed) as error:
                if self.kills[api] == kills:
                    self.complaints.append("%s, which was not killed: %r" % (api.name, error))

    def more(self, count, halves=(False, True)):
        """So many more, or all that there are."""
        wanted = {moves: min(self.count(moves) + count, len(self.users[moves])) for moves in halves}
        wait_until(lambda: all(self.count(moves) >= wanted[moves] for moves in halves), "%d more" % count, 60)

    def kill(self, program):
        self.kills[program] += 1
        self.away.add(program)
        program.kill()
        self.world.restart(program, wait_ready=program in self.world.apis())
        self.away.discard(program)

    def stretch(self, halves):
        """A third of the users may ask, and kills while they do."""
        for program in random.choices(self.world.apis() + self.world.workers(), k=KILLS):
            self.allowed += CARDS // (6 * KILLS) + 1
            self.more(CARDS // (12 * KILLS), halves)
            self.kill(program)
        self.kill(random.choice(self.world.apis()))


@slow
@test(**FOUR, **SHORT)
def many_users_of_four_places_get_one_card_each_whatever_dies(world):
    random.seed(world.label)
    split = Split(world)
    split.place("move", "2,3", "--to", "east")
    split.promote()
    split.moved = MOVED
    world.up(apis=2, workers=2)
    with Many(world, ["user-%d" % number for number in range(CARDS)]) as load:
        load.stretch((False, True))
        run([CLUSTER, "stop", split.folder])
        began = time.monotonic()
        load.stretch((False,))
        time.sleep(max(0, began + AWAY_S - time.monotonic()))
        away = time.monotonic() - began
        started = run([CLUSTER, "start", split.folder, "fsync=off", "cluster_name=east"], 900)
        if started.returncode != 0:
            raise Failed("east: " + started.stderr)
        load.stretch((False, True))
        load.allowed = CARDS
        wait_until(lambda: len(load.accepted) == CARDS, "all are accepted", 600)
    end(world, load)
    assert_equal(strangers(world), 0, "rows of users of other places")
    summary = world.sandbox.summary()
    assert_equal([summary[name] for name in ("references_with_two_cards", "cards_linked_twice")], [0, 0],
                 "two cards, linked twice")
    print("       the second server was away for %.1f s; %d kills" % (away, sum(load.kills.values())))
