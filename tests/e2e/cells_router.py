"""Clients of cells behind the shipped HAProxy (examples/cells/haproxy.cfg). The story that it guards: a router may be
wrong, stale, new or half dead, and a call may say anything of itself; each call is then answered by the cell in which
its user lives, or refused with 503 and recorded nowhere.
"""
import signal
import socket
import sys
import threading
import time

import client
import harness
from cells import bucket_of, Cells, users_of, WRONG_CELL
from harness import assert_equal, assert_true, slow, test, wait_until
from proxies import Proxy

sys.path.insert(0, str(harness.ROOT / "tests" / "support"))
import router_config  # noqa: E402

UNAVAILABLE = "/problems/unavailable"
SPLIT = {"one": "0-511", "two": "512-1023"}
ALICE, BOB = users_of(17)[0], users_of(700)[0]  # of cell one, of cell two
LIVES = {"one": ALICE, "two": BOB}


class HaProxy(Proxy):
    """One HAProxy with a map of its own, below a folder of its own."""

    def __init__(self, world, cells, name="haproxy", **changes):
        self.cells, self.admin, self.folder = cells, harness.free_port(), world.dir / name
        self.folder.mkdir()
        self.map_file, port = self.folder / "cells.map", harness.free_port()
        text = router_config.render({cell.name: [(api.port, api.admin) for api in cell.apis()] for cell in cells.all},
                                    port, "cells.map", self.admin)
        for old, new in changes.items():
            text = router_config.replaced(text, (old, new))
        (self.folder / "haproxy.cfg").write_text(text)
        cells.routers.append(self)
        cells.write_maps()
        super().__init__(world, name, ["haproxy", "-db", "-C", self.folder, "-f", "haproxy.cfg"], port)
        self.wait_both()

    def wait_both(self):
        for cell in self.cells.all:
            for number, api in enumerate(cell.apis(), 1):
                if api.alive():
                    wait_until(lambda cell=cell, number=number: self.is_up(cell.name, number),
                               "HAProxy sees server %d of cell %s" % (number, cell.name))
        return self

    def is_up(self, cell, number=1):
        return "%s%d 127.0.0.1 2 " % (cell, number) in self.ask("show servers state cell_" + cell)

    def ask(self, command):
        """The answer of the admin socket."""
        try:
            with socket.create_connection(("127.0.0.1", self.admin), 10) as wire:
                wire.sendall(command.encode() + b"\n")
                wire.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: wire.recv(65536), b"")).decode()
        except ConnectionRefusedError:
            return ""  # it has just been started

    def at_work(self, cell, number):
        """Requests that the server has."""
        for line in self.ask("show stat").splitlines():
            words = line.split(",")
            if words[:2] == ["cell_" + cell, "%s%d" % (cell, number)]:
                return int(words[4])
        return 0

    def signal(self, number):
        super(Proxy, self).signal(signal.SIGUSR1 if number == signal.SIGTERM else number)

    def get(self, user, path, headers=()):
        return self.send(client.request_bytes("GET", path, [self.world.bearer(user), *headers]))

    def serves(self, user):
        return wait_until(lambda: self.get(user, "/v1/cards").status == 200, "%s is served" % user)


class RoutedCells(Cells):
    """Two cells with half of the buckets each, and routers that `issuing-ctl cell` knows."""

    def __init__(self, world, **more):
        self.routers, self.known = [], None
        super().__init__(world, **more)

    def flags(self, role="issuing_owner"):
        known = self.routers if self.known is None else self.known
        found = super().flags(role)
        alive = [router for router in known if getattr(router, "popen", None) and router.alive()]
        return [*found, *(["--router.sockets=" + " ".join("127.0.0.1:%d" % each.admin for each in alive)] if alive
                          else [])]

    def init(self):
        for cell in self.all:
            done = self.ctl("cell", "init", cell.name, SPLIT[cell.name])
            assert_equal(done.returncode, 0, "cell init: " + done.stderr)
        return self

    def write_maps(self):
        """From the databases, for each router that is known."""
        for router in self.routers if self.known is None else self.known:
            self.map_file = router.map_file
            done = self.ctl("cell", "map", "--write")
            assert_equal(done.returncode, 0, "cell map: " + done.stderr)


def routed(world, apis=1, **changes):
    cells = RoutedCells(world).up(apis=apis)
    return cells, HaProxy(world, cells, **changes)


def rows(cells, user):
    """{cell: rows of the user}, in every table that acceptance writes."""
    return {cell.name: sum(cell.count(table, [user]) for table in ("outbox_events", "idempotency_keys",
                                                                   "rate_limit_log")) for cell in cells.all}


def is_refused(answer, kind, what):
    assert_equal((answer.status, answer.json()["type"], answer.header("Retry-After") is not None), (503, kind, True), what)


# ---- a right map -----------------------------------------------------------------------------------------------------

@test(limit__count="1", limit__window="10s")
def clients_of_both_cells_are_served_at_one_address(world):
    cells, proxy = routed(world)
    for name, user in LIVES.items():
        answer = proxy.post(user, "tap", headers=[("Prefer", "wait=20")])
        assert_equal((answer.status, answer.json()["status"]), (201, "COMPLETED"), "a card for " + user)
        request, card = answer.json()["id"], answer.json()["card"]["id"]
        again = [proxy.post(user, "tap") for _ in range(3)]
        assert_equal({(each.status, each.header("Idempotent-Replayed"), each.json()["id"]) for each in again},
                     {(202, "true", request)}, "repeats")
        limited = proxy.post(user, "tap-2")
        assert_equal((limited.status, limited.header("Retry-After") is not None), (429, True), "a second tap")
        got = proxy.get(user, "/v1/card-requests/" + request)
        assert_equal((got.status, got.json()["card"]["id"]), (200, card), "GET of the request")
        assert_equal([each["id"] for each in proxy.get(user, "/v1/card-requests").json()["items"]], [request], "the list")
        assert_equal([each["id"] for each in proxy.get(user, "/v1/cards").json()["items"]], [card], "the cards")
        other = next(each for each in LIVES if each != name)
        assert_equal((rows(cells, user)[other], rows(cells, user)[name] >= 3), (0, True), "rows of " + user)
    seen = {line.split(" bucket=")[1].split()[0] for line in proxy.text().splitlines() if " bucket=" in line}
    assert_true({"17", "700"} <= seen, "the log has the buckets: %r" % seen)
    for user in LIVES.values():
        assert_true(user not in proxy.text() and world.token(user) not in proxy.text(), "the log has no user and no token")


@test
def a_wait_lasts_as_long_as_the_client_asks(world):
    cells, proxy = routed(world)
    for worker in world.workers():
        assert_equal(worker.stop(), 0, "exit status")
    for user in LIVES.values():
        answer = proxy.post(user, headers=[("Prefer", "wait=2")])
        assert_equal((answer.status, answer.header("Preference-Applied")), (202, "wait=2"), "after 2 s")
        waiting = proxy.wire()
        waiting.send(client.request_bytes("GET", "/v1/card-requests/" + answer.json()["id"],
                                          [world.bearer(user), ("Prefer", "wait=25")]))
        api = cells[next(name for name in LIVES if LIVES[name] == user)].apis()[0]
        wait_until(lambda api=api: api.metric("issuing_waiting_clients") == 1, "it waits in its cell")
        world.restart(next(worker for worker in world.workers() if worker.cell == api.cell))
        assert_equal(waiting.answer().json()["status"], "COMPLETED", "woken when the card is there")
        waiting.close()


@slow
@test
def a_whole_wait_is_answered_by_the_cell(world):
    """30 s, the longest, and more than an answer without a wait may take."""
    _, proxy = routed(world)
    for worker in world.workers():
        assert_equal(worker.stop(), 0, "exit status")
    answer = proxy.post(BOB, headers=[("Prefer", "wait=30")])
    assert_equal((answer.status, answer.header("Preference-Applied")), (202, "wait=30"), "after 30 s")


# ---- no token --------------------------------------------------------------------------------------------------------

@test
def a_call_without_a_readable_token_is_refused_by_any_live_cell(world):
    cells, proxy = routed(world)
    headers = {"none": [], "another scheme": [("Authorization", "Basic YWxpY2U6eA==")],
               "no token": [("Authorization", "Bearer x.y.z")], "no JSON": [("Authorization", "Bearer e30.e3.e30")],
               "two": [world.bearer(ALICE), world.bearer(BOB)], "forged": [("Authorization", world.bearer(BOB)[1] + "x")]}

    def refuses():
        for what, pairs in headers.items():
            answer = proxy.send(client.request_bytes("POST", "/v1/card-requests", [
                *pairs, ("Idempotency-Key", "k"), ("Content-Type", "application/json")], {"kind": "new"}))
            assert_equal(answer.status, 401, what)
            assert_true(answer.header("WWW-Authenticate"), "the api's own answer")
    for _ in range(4):
        refuses()
    assert_true(all(api.metric_sum("issuing_http_requests_total") > 0 for api in world.apis()), "both cells were asked")
    cells["one"].apis()[0].kill()
    wait_until(lambda: "one1 127.0.0.1 0 " in proxy.ask("show servers state cell_one"), "HAProxy knows")
    headers.pop("two")  # of a user of the dead cell
    for _ in range(4):
        refuses()
    assert_equal({name: cell.sql("SELECT count(*) FROM outbox_events") for name, cell in
                  (("one", cells["one"]), ("two", cells["two"]))}, {"one": "0", "two": "0"}, "recorded")
    world.restart(cells["one"].apis()[0])


# ---- a wrong map -----------------------------------------------------------------------------------------------------

@test
def a_wrong_map_is_refused_and_records_nothing(world):
    cells, proxy = routed(world)
    assert_equal(proxy.post(BOB, "first").status, 202, "before")
    before = rows(cells, BOB)
    for user, wrong in ((ALICE, "two"), (BOB, "one")):
        proxy.ask("set map cells.map %d cell_%s" % (bucket_of(user), wrong))
        for _ in range(5):
            is_refused(proxy.post(user, "wrong"), WRONG_CELL, "POST of %s to cell %s" % (user, wrong))
        is_refused(proxy.post(BOB, "first") if user == BOB else proxy.get(user, "/v1/card-requests"), WRONG_CELL,
                   "a repeat, a read")
        is_refused(proxy.get(user, "/v1/cards"), WRONG_CELL, "the cards")
    assert_equal((rows(cells, ALICE), rows(cells, BOB)), ({"one": 0, "two": 0}, before), "recorded")
    cells.write_maps()
    for user in LIVES.values():
        assert_equal(proxy.post(user, "right").status, 202, "the map made from the databases is right")
    cells.settle()


@test
def a_map_with_holes_serves_nobody_in_a_wrong_cell(world):
    cells, proxy = routed(world)
    proxy.ask("del map cells.map 17")
    proxy.ask("set map cells.map 700 cell_nine")
    answers = {user: [proxy.post(user, "k%d" % number).status for number in range(12)] for user in LIVES.values()}
    for name, user in LIVES.items():
        assert_equal(set(answers[user]), {202, 503}, "any cell was asked: " + user)
        found = rows(cells, user)
        assert_equal(found.pop(name), 3 * answers[user].count(202), "in the cell of " + user)
        assert_equal(list(found.values()), [0], "in the other")
    cells.settle()


@test
def a_stale_router_is_refused_after_a_move(world):
    cells, told = routed(world)
    stale = HaProxy(world, cells, "haproxy-stale")
    request = told.post(ALICE, "k").json()["id"]
    cells.settle()
    cells.known, cells.map_file = [told], told.map_file
    cells.move(17, "two")
    for _ in range(3):
        again = told.post(ALICE, "k")
        assert_equal((again.status, again.header("Idempotent-Replayed"), again.json()["id"]), (202, "true", request),
                     "the router that was told")
        is_refused(stale.post(ALICE, "k"), WRONG_CELL, "a repeat at the stale one")
        is_refused(stale.post(ALICE, "new"), WRONG_CELL, "a new request at the stale one")
        is_refused(stale.get(ALICE, "/v1/card-requests/" + request), WRONG_CELL, "a read at the stale one")
    assert_equal(rows(cells, ALICE), {"one": 0, "two": 3}, "rows")
    cells.known = None
    cells.write_maps()
    assert_equal([proxy.post(ALICE, "k").json()["id"] for proxy in (told, stale)], [request] * 2, "both are told")
    assert_equal(cells.world.sandbox.cards() and len(cells.world.sandbox.cards()), 1, "cards")


@test
def each_bucket_is_told_to_the_router_before_the_next_one_moves(world):
    """Not at the end of the command, which may be minutes later: the second bucket's move waits for a writer."""
    cells, proxy = routed(world)
    one = cells["one"]
    request = proxy.post(ALICE, "k").json()["id"]
    cells.settle()
    cells.move(18, "two", "--stop-after", "drain")
    with one.holding("SELECT pg_advisory_xact_lock_shared(4713, 18)"):
        mover = cells.start_move([17, 18], "two")
        again = wait_until(lambda: (lambda answer: answer.status == 202 and answer)(proxy.post(ALICE, "k")) if
                           cells["two"].state(17) == "here" else None, "the router knows where the bucket is", 10)
        assert_equal((again.json()["id"], mover.poll(), one.state(18)), (request, None, "draining"), "meanwhile")
        with open(proxy.map_file) as file:
            assert_true("17 cell_two" in file.read().splitlines(), "the map's file")
    assert_equal((mover.communicate(timeout=60)[0] and mover.returncode), 0, "the move")
    cells.settle()


@test
def a_restarted_router_reads_the_map_that_the_last_move_wrote(world):
    cells, proxy = routed(world)
    request = proxy.post(ALICE, "k").json()["id"]
    cells.settle()
    cells.move(17, "two")
    for end in (proxy.stop, proxy.kill):
        end()
        proxy.start()
        proxy.wait_both()
        again = proxy.post(ALICE, "k")
        assert_equal((again.status, again.json()["id"]), (202, request), "after a restart")
        assert_equal(proxy.post(BOB, "k").status, 202, "the others")
    cells.settle()


# ---- one cell down ---------------------------------------------------------------------------------------------------

class Others:
    """Users of a cell who go on, and note every answer that is not 202."""

    def __init__(self, proxy, buckets, threads=3):
        self.proxy, self.stopped, self.count, self.wrong = proxy, threading.Event(), 0, []
        self.users = [users_of(bucket)[0] for bucket in buckets]
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(threads)]

    def run(self, number):
        count = 0
        try:
            with self.proxy.wire() as wire:
                while not self.stopped.is_set():
                    user = self.users[count % len(self.users)]
                    answer = wire.send(self.proxy.world.post_bytes(user, "o%d-%d" % (number, count))).answer()
                    if answer.status != 202:
                        self.wrong.append(repr(answer))
                    count, self.count = count + 1, self.count + 1
        except Exception as error:  # noqa: BLE001 - reported by the thread that waits for this one
            self.wrong.append(repr(error))

    def goes_on(self, by=60):
        before = self.count
        wait_until(lambda: self.wrong or self.count >= before + by, "the others go on")
        assert_equal(self.wrong[:3], [], "answers of the others")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)


@test
def one_dead_cell_costs_its_own_users_a_503_and_nobody_else_anything(world):
    cells, proxy = routed(world)
    request = proxy.post(ALICE, "k").json()["id"]
    cells.settle()
    with Others(proxy, range(600, 640)) as others:
        for daemon in (cells["one"].apis()[0], cells["one"].workers()[0]):
            daemon.kill()
        for number in range(20):
            is_refused(proxy.post(ALICE, "k%d" % number), UNAVAILABLE, "a user of the dead cell")
        others.goes_on()
        for daemon in (cells["one"].apis()[0], cells["one"].workers()[0]):
            world.restart(daemon)
        proxy.serves(ALICE)
        others.goes_on()
    again = proxy.post(ALICE, "k")
    assert_equal((again.status, again.header("Idempotent-Replayed"), again.json()["id"]), (202, "true", request), "a repeat")
    assert_equal(rows(cells, ALICE), {"one": 3, "two": 0}, "what the dead cell refused")
    cells.settle()


@test
def one_cell_that_hangs_holds_no_more_than_its_bound(world):
    """Its api is stopped as by a debugger: the kernel still takes connections for it."""
    cells, proxy = routed(world, **{"maxconn 500": "maxconn 3", "{ queue gt 100 }": "{ queue gt 3 }"})
    api = cells["one"].apis()[0]
    with Others(proxy, range(600, 640)) as others:
        api.signal(signal.SIGSTOP)
        wires = [proxy.wire() for _ in range(40)]
        for number, wire in enumerate(wires):
            wire.send(world.post_bytes(users_of(number)[0], "k"))
        answers = [wire.answer() for wire in wires[10:]]
        assert_equal({(answer.status, answer.json()["type"]) for answer in answers}, {(503, UNAVAILABLE)},
                     "users of the cell that hangs, beyond its bound")
        others.goes_on()
        api.signal(signal.SIGCONT)
        first = [wire.answer().status for wire in wires[:10]]
        assert_true(set(first) <= {202, 503}, "those within it: %r" % first)
        others.goes_on()
        proxy.serves(ALICE)
    for wire in wires:
        wire.close()
    cells.settle()


@test
def a_cell_that_is_slow_keeps_its_only_server(world):
    """It answers nothing for 4 s, its checks neither. Without a server its users would get 503 at once."""
    cells, proxy = routed(world)
    proxy.serves(ALICE)
    api = cells["one"].apis()[0]
    api.signal(signal.SIGSTOP)
    stopped = time.monotonic()
    wires = [proxy.wire() for _ in range(20)]
    for number, wire in enumerate(wires):
        wait_until(lambda number=number: time.monotonic() > stopped + 4 * number / len(wires), "it is slow")
        wire.send(world.post_bytes(users_of(number)[0], "k"))
    assert_true(proxy.is_up("one"), "HAProxy still has the server")
    api.signal(signal.SIGCONT)
    assert_equal([wire.answer().status for wire in wires], [202] * len(wires), "each of its users is answered")
    for wire in wires:
        wire.close()
    assert_true("is DOWN" not in proxy.text(), "no server was taken out")
    cells.settle()


@test
def a_cell_that_hangs_uses_up_no_limit_of_an_address_elsewhere(world):
    """Everybody here has the same address, as behind one NAT."""
    cells, proxy = routed(world, **{"{ sc_conn_cur(0) gt 100 }": "{ sc_conn_cur(0) gt 4 }"})
    api = cells["one"].apis()[0]
    api.signal(signal.SIGSTOP)
    wires = [proxy.wire() for _ in range(4)]
    for wire in wires:
        wire.send(world.post_bytes(ALICE, "k"))
    wait_until(lambda: proxy.at_work("one", 1) == 4, "the cell has all that one address may have")
    answer = proxy.post(ALICE, "k")
    assert_equal((answer.status, answer.json()["type"]), (429, "/problems/too-many-connections"), "in the cell")
    assert_equal(proxy.post(BOB, "k").status, 202, "in the other")
    api.signal(signal.SIGCONT)
    for wire in wires:
        wire.close()
    proxy.serves(ALICE)
    cells.settle()


@test
def only_a_read_is_sent_again_when_a_server_dies_with_it(world):
    """A POST may have been recorded by the server that died: its client hears 503, and repeats."""
    cells, proxy = routed(world, apis=2)
    api = cells["one"].apis()[0]
    api.signal(signal.SIGSTOP)
    posts, reads = [proxy.wire() for _ in range(6)], [proxy.wire() for _ in range(6)]
    for number, post in enumerate(posts):
        post.send(world.post_bytes(users_of(number)[0], "k"))
    for number, read in enumerate(reads):
        read.send(client.request_bytes("GET", "/v1/cards", [world.bearer(users_of(number)[0])]))
    wait_until(lambda: proxy.at_work("one", 1) >= 2 and proxy.at_work("one", 2) == 0, "the first one has some")
    api.kill()
    answers = [wire.answer() for wire in posts]
    # How many the proxy gave to the server that died is its own choice.
    assert_true(503 in {answer.status for answer in answers} <= {202, 503}, "POSTs: %r" % answers)
    assert_equal({wire.answer().status for wire in reads}, {200}, "reads")
    for number, answer in enumerate(answers):
        recorded = cells["one"].count("outbox_events", users_of(number))
        assert_equal(recorded, 1 if answer.status == 202 else 0, "recorded of %r" % answer)
        assert_equal(proxy.post(users_of(number)[0], "k").status, 202, "a repeat, at the server that is left")
    for wire in posts + reads:
        wire.close()
    cells.settle()
