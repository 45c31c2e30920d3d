"""Places on Citus: they move between nodes while all programs run.

Story: an operator adds a node and lets Citus fill it. Whoever asks for a card meanwhile, also on two devices at once and
at any node, gets it once, and is never told to come back."""
import threading

from harness import assert_equal, assert_true, test, wait_until
from operators import lines

from citus_suite import PLACES

USERS = ["user-%d" % number for number in range(48)]
SHORT = {"database.connections": "4"}
DEVICES = 2
PAUSE_S = 0.4  # of each of four clients: what a busy machine keeps up with


class Clients:
    """Users who ask for a card on two devices at once, one at each api, until they are told to stop."""

    def __init__(self, world):
        self.world = world
        self.answers, self.wrong = {}, []  # by user and key: the answers' status and id
        self.stopping, self.lock, self.round = threading.Event(), threading.Lock(), 0
        self.threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(4)]

    def _run(self, number):
        turn = 0
        while not self.stopping.is_set():
            for user in USERS[number::len(self.threads)]:
                self._ask(user, turn)
                self.stopping.wait(PAUSE_S)
            turn += 1
            self.round = max(self.round, turn)

    def _ask(self, user, turn):
        said = [None] * DEVICES

        def one(device):
            api = self.world.apis()[device % len(self.world.apis())]
            answer = self.world.post(user, "turn-%d" % turn, api=api)
            said[device] = (answer.status, answer.json().get("id"))
        others = [threading.Thread(target=one, args=(device,)) for device in range(1, DEVICES)]
        try:
            for thread in others:
                thread.start()
            one(0)
        except Exception as error:  # noqa: BLE001 - told by `end`
            self.wrong.append((user, repr(error)))
        for thread in others:
            thread.join()
        with self.lock:
            self.answers[user, turn] = said

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def nodes(world):
    return [row["node"] for row in lines(world.ctl("citus", "status", "--json"))]


def grow(world):
    """A node more, and Citus moves places to it. Returns when it is done."""
    world.add_node(2)
    assert_equal(world.ctl("citus", "check", role="postgres").returncode, 0, "citus check")
    before = nodes(world)
    world.on(0, "SELECT citus_rebalance_start(shard_transfer_mode => 'force_logical')")
    wait_until(lambda: world.on(0, "SELECT state FROM pg_dist_background_job ORDER BY job_id DESC LIMIT 1")
               not in ("scheduled", "running", "cancelling", "failing"), "the rebalance has ended", 600, 0.5)
    assert_equal(world.on(0, "SELECT state FROM pg_dist_background_job ORDER BY job_id DESC LIMIT 1"), "finished",
                 "rebalance")
    moved = sum(was != is_now for was, is_now in zip(before, nodes(world)))
    assert_equal((len(before), moved), (PLACES, PLACES // 2), "places that moved")


@test(**SHORT)
def users_on_two_devices_get_one_card_each_while_places_move_and_a_worker_is_killed(world):
    world.start_sandbox()
    world.start_api()
    world.start_api(database__url=world.node(1, "issuing_api"))
    world.start_worker()
    world.start_worker()
    with Clients(world) as clients:
        wait_until(lambda: clients.round > 0, "requests are answered", 120)
        mover = threading.Thread(target=grow, args=(world,), daemon=True)
        failures = []
        threading.excepthook = lambda hooked: failures.append(hooked.exc_value)
        mover.start()
        world.workers()[0].kill()
        before = clients.round
        wait_until(lambda: clients.round > before or not mover.is_alive(), "more requests", 120)
        world.restart(world.workers()[0])
        mover.join()
        threading.excepthook = threading.__excepthook__
        assert_equal(failures, [], "the move")
        before = clients.round
        wait_until(lambda: clients.round > before, "requests behind the move", 120)
    assert_equal(clients.wrong, [], "calls that broke")
    bad = {key: said for key, said in clients.answers.items() if [status for status, _ in said] != [202] * DEVICES}
    assert_equal(bad, {}, "answers that are not 202")
    twice = {key: said for key, said in clients.answers.items() if len({name for _, name in said}) != 1}
    assert_equal(twice, {}, "double taps with two requests")
    world.settle(300)
    assert_equal(world.sql("SELECT count(*), count(*) FILTER (WHERE status = 'COMPLETED') FROM outbox_events"),
                 "%d|%d" % (len(clients.answers), len(clients.answers)), "events")
    for user in USERS:
        for api in world.apis():
            assert_equal(world.get(user, "/v1/cards", api=api).status, 200, "cards of " + user)
    print("       %d requests, each on %d devices" % (len(clients.answers), DEVICES))


@test(**SHORT)
def migrate_runs_on_places_that_are_distributed(world):
    world.up(apis=1, workers=1)
    first = {user: world.accept(user, "before") for user in USERS}
    for words in (("migrate",), ("citus", "apply")):
        done = world.ctl(*words, role="postgres", seconds=900)
        assert_equal(done.returncode, 0, "%s: %s%s" % (words, done.stdout, done.stderr))
        assert_equal(world.ctl("citus", "check", role="postgres").stdout, "", "citus check")
    for user in USERS:
        assert_equal(world.post(user, "before").json()["id"], first[user], "a repeat of " + user)
        world.accept(user, "after")
    world.settle(90)
    assert_true(set(nodes(world)) == {"%s:5432" % world.suite.host_of(1)}, "the places stay where they are")
    assert_equal(world.sql("SELECT count(*) FROM cards"), str(2 * len(USERS)), "cards")
