"""Peers that break HTTP: the worker believes none of their answers, loses none that is good, and goes on with
everything else meanwhile.

Story: the issuer is behind a gateway that sends frames of HTTP/2 without end. libcurl reads them in a loop of its own,
the worker's deadlines and leases stand still for as long as the gateway likes, and a worker that comes back from there
writes what is no longer its to write. Each behaviour of hostile.py meets the same create twice: once when the card was
made before, once when it was not. Then the peer is well, and there is one card.
"""
import json
import pathlib
import threading

import client
import harness
import hostile
from harness import assert_equal, assert_true, Program, slow, test, wait_until
from tls import PYTHON, make_authority, make_certificate, need_http2

HERE = pathlib.Path(__file__).resolve().parent
AT_ONCE = 8
SETTINGS = {"retry__max_attempts": "1000", "issuer__timeout": "2s", "issuer__settle_time": "4s", "worker__lease": "8s"}


class Hostile(Program):
    is_peer = True

    def __init__(self, world, offer_h2, *options, clear=False):
        authority = make_authority(world)
        certificate = make_certificate(world, authority)
        behind = [] if clear else ["--certificate", certificate, "--key", certificate.with_suffix(".key")]
        self.port = harness.free_port()
        super().__init__("hostile", [PYTHON, HERE / "hostile.py", "--listen", self.port, "--to", world.sandbox.issuer,
                                     *behind, *(["--offer-h2"] if offer_h2 else []), *options],
                         world.dir / "hostile.log")
        world.programs.append(self)
        world.settings.update({"issuer.url": "%s://127.0.0.1:%d" % ("http" if clear else "https", self.port),
                               "tls.ca_file": authority})
        wait_until(lambda: self.lines("listening"), "the peer listens")

    def lines(self, member):
        return [line for line in map(json.loads, self.text().splitlines()) if member in line]

    def protocols(self):
        return {line["protocol"] for line in self.lines("connection")}


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


def up(world, offer_h2, http2=False, clear=False):
    world.start_sandbox()
    peer = Hostile(world, offer_h2, clear=clear)
    world.start_api()
    worker = world.start_worker(**({"issuer__http2": "true"} if http2 else {}))
    if http2:
        need_http2(worker)
    return peer


def those(kind, floods):
    return [name for name in hostile.table() if name.startswith(kind) and
            ("without end" in name or "byte by byte" in name) == floods]


@slow
@test(**SETTINGS)
def a_peer_that_answers_badly_over_http1_is_not_believed(world):
    meet(world, up(world, offer_h2=False), those("1: ", False))


@slow
@test(**SETTINGS)
def a_peer_that_sends_without_end_over_http1_delays_no_other_call(world):
    meet(world, up(world, offer_h2=False), those("1: ", True))


@slow
@test(**SETTINGS)
def a_peer_that_answers_badly_in_clear_text_is_not_believed(world):
    meet(world, up(world, offer_h2=False, clear=True), those("1: ", False))


@slow
@test(**SETTINGS)
def a_peer_that_sends_without_end_in_clear_text_delays_no_other_call(world):
    peer = up(world, offer_h2=False, clear=True)
    meet(world, peer, those("1: ", True))
    meet(world, peer, those("2: ", True))


@slow
@test(**SETTINGS)
def a_peer_that_offers_http2_is_not_taken_at_its_word(world):
    """Frames of HTTP/2 are garbage then. An issuer that offers both is the usual one."""
    peer = up(world, offer_h2=True)
    meet(world, peer, those("2: ", False))
    assert_equal(peer.protocols(), {"http/1.1"}, "protocols")


@test(**SETTINGS)
def a_peer_that_sends_frames_without_end_delays_no_other_call(world):
    peer = up(world, offer_h2=True)
    meet(world, peer, those("2: ", True))
    assert_equal(peer.protocols(), {"http/1.1"}, "protocols")


@slow
@test(**SETTINGS)
def over_http2_a_peer_that_answers_badly_is_not_believed(world):
    peer = up(world, offer_h2=True, http2=True)
    meet(world, peer, those("2: ", False))
    assert_true("h2" in peer.protocols(), "protocols")


@test(**SETTINGS)
def over_http2_a_peer_that_sends_frames_without_end_delays_no_other_call(world):
    peer = up(world, offer_h2=True, http2=True)
    meet(world, peer, those("2: ", True))
    assert_true("h2" in peer.protocols(), "protocols")


@test
def where_libcurl_is_too_old_for_http2_the_worker_says_so_and_does_without(world):
    world.start_sandbox()
    peer = Hostile(world, offer_h2=True)
    world.start_api()
    worker = world.start_worker(issuer__http2="true", core__http2="true")
    world.issue("alice")
    is_old = "does not speak HTTP/2 well enough" in worker.text()
    assert_equal(peer.protocols(), {"http/1.1" if is_old else "h2"}, "protocols")
    assert_equal([card["sends"] for card in world.sandbox.cards()], [1], "sends")


@test(issuer__max_concurrency="4", retry__max_attempts="1000")
def a_create_that_was_sent_again_on_a_new_connection_is_not_refused_for_good(world):
    """The issuer closes idle connections after a few requests, and has read one more by then. libcurl sends that again
    by itself. When the answer is a refusal, the first sending may have made the card: it is looked up."""
    world.start_sandbox()
    peer = Hostile(world, False, "--requests", "3")
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
    assert_true(again, "libcurl sent one again within an attempt: %r %r" % (creates, attempts))
