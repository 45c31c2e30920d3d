"""Peers that break HTTP: the worker takes none of their answers as definite, loses no good answer, and does its other
work meanwhile.

Story: the issuer is behind a gateway that sends without end. A client that reads as long as something comes does
nothing else meanwhile, so the worker misses its deadlines and loses its leases, and writes to events that another
worker has by then. Each behaviour of hostile.py meets the same create twice: once after the card was made, once before.
Then the peer answers well, and there is one card."""
import json
import pathlib
import sys
import threading

import client
import harness
import hostile
from connecting_proxy import ConnectingProxy
from harness import assert_equal, assert_true, Program, slow, test, wait_until
from receiver import answer_bytes
from relay import relay
from tls import make_authority, make_certificate, Terminator

HERE = pathlib.Path(__file__).resolve().parent
AT_ONCE = 8
SETTINGS = {"retry__max_attempts": "1000", "issuer__timeout": "2s", "issuer__settle_time": "4s", "worker__lease": "8s"}


class Hostile(Program):
    is_peer = True

    def __init__(self, world, *options, clear=False):
        authority = make_authority(world)
        certificate = make_certificate(world, authority)
        behind = [] if clear else ["--certificate", certificate, "--key", certificate.with_suffix(".key")]
        self.port = harness.free_port()
        super().__init__("hostile", [sys.executable, HERE / "hostile.py", "--listen", self.port, "--to", world.sandbox.issuer,
                                     *behind, *options],
                         world.dir / "hostile.log")
        world.programs.append(self)
        world.settings.update({"issuer.url": "%s://127.0.0.1:%d" % ("http" if clear else "https", self.port),
                               "tls.ca_file": authority})
        wait_until(lambda: self.lines("listening"), "the peer listens")

    def lines(self, member):
        return [line for line in map(json.loads, self.text().splitlines()) if member in line]


class Watch:
    """Calls /livez all the time: each call must be answered, whatever the peer does."""

    def __init__(self, daemon):
        self.daemon, self.stop, self.wrong, self.answered = daemon, threading.Event(), [], 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.stop.wait(0.05):
            try:
                assert_equal(client.call(self.daemon.admin, "GET", "/livez", timeout=10).status, 200, "/livez")
                self.answered += 1
            except Exception as error:  # noqa: BLE001 - reported by the thread that waits for this one
                self.wrong.append(error)
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(harness.STUCK_AFTER_S)
        assert_equal(self.wrong, [], "the loop did not turn")


def meet(world, peer, names):
    """An event for each behaviour, some at a time, and others' besides. Each ends with one card."""
    worker = world.workers()[0]
    with Watch(worker) as watch:
        for at in range(0, len(names), AT_ONCE):
            some = names[at:at + AT_ONCE]
            requests = [world.accept("hostile-%s-%d" % (names[0][0], at + i), headers=[
                ("traceparent", "00-%s-%016x-01" % (hostile.trace_of(name), 1))]) for i, name in enumerate(some)]
            others = [world.accept("other-%s-%d" % (names[0][0], at + i)) for i in range(AT_ONCE)]
            world.wait_final(requests + others, 90)
    assert_true(watch.answered > 0, "the loop was looked at")
    seen = {}
    for line in peer.lines("behaviour"):
        seen[line["behaviour"]] = max(seen.get(line["behaviour"], 0), line["times"])
    assert_equal({name: seen.get(name) for name in names}, {name: hostile.TIMES for name in names}, "behaviours")
    assert_equal(world.rows("SELECT user_id, status, last_error FROM outbox_events WHERE status <> 'COMPLETED'"), [],
                 "events")
    made = [card["user_id"] for card in world.sandbox.cards()]
    assert_equal(len(made), len(set(made)), "one card each")
    assert_true(worker.alive() and len(world.workers()) == 1, "the worker lives")
    assert_equal(worker.metric_sum("issuing_lease_lost_total"), 0, "leases lost")


def up(world, clear):
    world.start_sandbox()
    peer = Hostile(world, clear=clear)
    world.start_api()
    world.start_worker()
    return peer


def mistakes():
    return list(hostile.MISTAKES)


def floods():
    return [name for name in hostile.table() if name not in hostile.MISTAKES]


@slow
@test(**SETTINGS)
def a_peer_that_answers_badly_over_tls_is_not_believed(world):
    meet(world, up(world, clear=False), mistakes())


@slow
@test(**SETTINGS)
def a_peer_that_sends_without_end_over_tls_delays_no_other_call(world):
    meet(world, up(world, clear=False), floods())


@slow
@test(**SETTINGS)
def a_peer_that_answers_badly_in_clear_text_is_not_believed(world):
    meet(world, up(world, clear=True), mistakes())


@slow
@test(**SETTINGS)
def a_peer_that_sends_without_end_in_clear_text_delays_no_other_call(world):
    meet(world, up(world, clear=True), floods())


@test(**SETTINGS)
def a_proxy_that_sends_without_end_in_place_of_connecting_delays_nothing(world):
    """The worker stood in one read of the body of a 407 as long as the proxy sent, and its watchdog ended it."""
    world.start_sandbox()
    authority = make_authority(world)
    issuer = Terminator(world, "tls-issuer", world.sandbox.issuer, make_certificate(world, authority)).wait_listening()
    proxy = ConnectingProxy((b"HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic realm=\"x\"\r\n"
                             b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n"))
    world.settings.update({"issuer.url": issuer.url, "tls.ca_file": authority,
                           "issuer.proxy": "http://127.0.0.1:%d" % proxy.port})
    world.start_api()
    worker = world.start_worker()
    with Watch(worker) as watch:
        request = world.accept("alice")
        wait_until(lambda: len(proxy.asked) >= 3, "three calls were refused by the proxy")
        event = wait_until(lambda: (row := world.event(request))["last_error"] and row, "an attempt is over")
        assert_true("the proxy: it wants credentials (407)" in event["last_error"], event["last_error"])
        assert_equal((event["status"], event["first_sent_at"]), ("PENDING", None), "nothing was sent to the issuer")
        proxy.flood = None
        world.wait_status(request, "COMPLETED")
    assert_true(watch.answered > 0, "the loop was looked at")
    assert_equal(set(proxy.asked), {"127.0.0.1:%d" % issuer.port}, "whom the proxy was to connect to")
    assert_equal([card["sends"] for card in world.sandbox.cards()], [1], "sends")


@test(issuer__max_concurrency="4", retry__max_attempts="1000")
def a_create_that_was_sent_again_on_a_new_connection_is_not_refused_for_good(world):
    """The issuer closes idle connections after a few requests, and has read one more by then. The client sends that
    again by itself. When the answer is a refusal, the first sending may have made the card: it is looked up."""
    world.start_sandbox()
    peer = Hostile(world, "--requests", "3")
    world.start_api()
    world.start_worker()
    users = ["user-%d" % i for i in range(40)]
    for user in users[::2]:
        world.sandbox.fault("create", "execute_then_status", user=user, status=500, count=1)
        world.sandbox.fault("create", "status", user=user, status=422, code="bin_closed")
    requests = {user: world.accept(user) for user in users}
    world.settle(60)
    assert_equal(world.sql("SELECT status, count(*) FROM outbox_events GROUP BY status"), "COMPLETED|%d" % len(users),
                 "events")
    assert_equal(sorted(card["user_id"] for card in world.sandbox.cards()), sorted(users), "cards")
    assert_true(any(line["closed"] == "POST" for line in peer.lines("closed")), "a create was read and not answered")
    creates = {user: len(world.sandbox.calls("create", user=user)) for user in users}
    attempts = {user: world.event(request)["retry_count"] for user, request in requests.items()}
    again = [user for user in users if creates[user] > attempts[user]]
    assert_true(again, "the client sent one again within an attempt: %r %r" % (creates, attempts))


@test(core__max_concurrency="1")
def an_answer_that_comes_twice_makes_nobody_eligible_who_is_not(world):
    """A gateway answers one question of the worker's twice. From then on each call of that connection gets the answer
    of the call before, and the next user, who may have no card, got one."""
    asked = []

    def twice(call, answer):
        if call.kind != "lookup":
            return answer.body, b""
        asked.append(call.path.split("/")[3])
        body = json.dumps({"user_id": asked[-1], "eligible": asked[-1] == asked[0], "reason": "blocked"}).encode()
        return body, answer_bytes(200, body)

    world.start_sandbox()
    with relay(world, "core.url", world.sandbox.core, twice):
        world.start_api()
        events = {user: world.accept(user) for user in ("alice", "bob", "carol", "dave")}
        world.start_worker()
        world.wait_final(events.values())
    assert_equal({user: world.event(event)["status"] for user, event in events.items()},
                 {user: "COMPLETED" if user == asked[0] else "REJECTED" for user in events}, "ends")
    assert_equal([card["user_id"] for card in world.sandbox.cards()], asked[:1], "cards")
