"""Clients without a token try to use up what all clients share: connections, memory, descriptors, and the time in which
an answer is read. Other clients are served meanwhile."""
import contextlib
import os
import pathlib
import resource
import select
import socket
import struct
import time

from client import Wire, request_bytes
from harness import assert_equal, assert_true, BUILD, Daemon, free_port, slow, STUCK_AFTER_S, test, wait_until

IS_SANITIZED = "ASAN_OPTIONS" in os.environ  # its memory says nothing about ours
MIB = 1 << 20


@contextlib.contextmanager
def connections(port, count):
    """So many, open and silent."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1024)), hard))
    opened = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=STUCK_AFTER_S))
        yield opened
    finally:
        for one in opened:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident(daemon):
    return int(pathlib.Path("/proc/%d/statm" % daemon.pid).read_text().split()[1]) * resource.getpagesize()


def send_all(sockets, data):
    """On each as much of it as the other side takes within reason. Returns on how many it was not all taken."""
    left = {one.fileno(): (one, memoryview(data)) for one in sockets}
    deadline, failed = time.monotonic() + STUCK_AFTER_S, 0
    for one in sockets:
        one.setblocking(False)
    poll = select.poll()
    for number in left:
        poll.register(number, select.POLLOUT)
    while left and time.monotonic() < deadline:
        for number, _ in poll.poll(1000):
            one, rest = left[number]
            try:
                rest = rest[one.send(rest):]
            except BlockingIOError:
                continue
            except OSError:
                rest = rest[:0]
                failed += 1
            left[number] = (one, rest)
            if not rest:
                poll.unregister(number)
                del left[number]
    for one in sockets:
        one.setblocking(True)
        one.settimeout(STUCK_AFTER_S)
    return len(left) + failed


def head(length, *lines, target="/v1/card-requests", method="POST"):
    lines = ["%s %s HTTP/1.1" % (method, target), "Host: a", "Content-Length: %d" % length, *lines]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


# ---- bodies ---------------------------------------------------------------------------------------------------------

@test
def a_client_that_sends_a_megabyte_before_it_reads_is_answered(world):
    """A proxy does so: it read a reset instead of the answer and took the api out of its rotation, for everybody."""
    world.up(workers=0)
    port = world.apis()[0].port
    body = b"x" * 1000000
    cases = [(head(1000000) + body, 413),
             (head(1000000, "Content-Length: 7") + body, 400),
             (head(1000000, "Expect: wonders") + body, 417),
             (b"GET /" + body, 414),
             (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + body, 431)]
    wires = []
    for data, status in cases * 4:
        wire = Wire(port)
        # A proxy that cannot write to its end does not read the answer; and the kernel keeps little for it.
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
        assert_equal(send_all([wire.socket], data), 0, "everything is taken, %d" % status)
        wires.append((wire, status))
    for wire, status in wires:
        answer = wire.answer()
        assert_equal((answer.status, answer.header("Connection")), (status, "close"), "the answer")
        assert_true(wire.is_closed(), "and then the end")
        wire.close()
    assert_equal(world.post("alice", "k").status, 202, "another user")


@test
def a_body_that_will_be_refused_is_not_requested(world):
    """Path and method, token, media type: judged by the head, in this order, before 100 Continue and before a byte of
    the body. The connection of a client that sends its body unasked goes on."""
    world.up(workers=0)
    port = world.apis()[0].port
    token, json = "%s: %s" % world.bearer("alice"), "Content-Type: application/json"
    cases = {
        "no path": (head(14, target="/v1/nowhere"), 404), "no method": (head(14, target="/v1/cards"), 405),
        "no token": (head(14, json), 401), "no token, no type": (head(14), 401),
        "a bad token": (head(14, json, "Authorization: Bearer x.y.z"), 401),
        "two tokens": (head(14, json, token, token), 401),
        "no type": (head(14, token), 415), "another type": (head(14, token, "Content-Type: text/plain"), 415),
        "an encoding": (head(14, token, json, "Content-Encoding: gzip"), 415),
    }
    for name, (data, status) in cases.items():
        with Wire(port) as wire:
            answer = wire.send(data).answer()
            assert_equal(answer.status, status, name)
            assert_equal(answer.header("Connection"), "keep-alive", name + ": it may go on")
            wire.send(b'{"kind":"new"}' + world.post_bytes("alice", "k"))
            assert_equal(wire.answer().status, 202, name + ": the next request")
        with Wire(port) as wire:
            answer = wire.send(data[:-2] + b"Expect: 100-continue\r\n\r\n").answer()
            assert_equal((answer.status, answer.header("Connection")), (status, "close"), name + ", with Expect")
            assert_true(wire.is_closed(), name + ": closed")
    with Wire(port) as wire:
        wire.send(head(14, token, json, 'Idempotency-Key: "k"', "Expect: 100-continue"))
        assert_equal(wire.answer().status, 100, "a good one is invited")
        assert_equal(wire.send(b'{"kind":"new"}').answer().status, 202, "and accepted")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events"), "1", "events")


@test
def connections_without_a_token_cannot_hold_memory(world):
    """15 KB of headers and 65,535 of 65,536 bytes of a body on each: all of it was held in memory and never freed."""
    world.up(workers=0)
    api = world.apis()[0]
    world.accept("alice", "before")
    before = resident(api)
    with connections(api.port, 2000) as held:
        assert_equal(send_all(held[:1000], head(65536, "X: " + "y" * 15000) + b"z" * 65535), 0, "bodies")
        assert_equal(send_all(held[1000:], (b"POST / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 15000)), 0, "heads")
        assert_equal(world.post("alice", "k").status, 202, "another user")
        grown = resident(api) - before
        assert_true(IS_SANITIZED or grown < 48 * MIB, "%d MiB more than before" % (grown // MIB))
    wait_until(lambda: api.metric("issuing_http_connections") == 0, "no connection is left")
    wait_until(lambda: IS_SANITIZED or resident(api) - before < 12 * MIB, "the memory goes back to the system")


# ---- readers --------------------------------------------------------------------------------------------------------

@slow
@test
def readers_that_do_not_read_are_cut_off_and_hold_little(world):
    """They were held for a minute, each with copies of what it did not read."""
    world.up(workers=0)
    api = world.apis()[0]
    assert_equal(api.get("/livez").status, 200, "livez")
    before = resident(api)
    with connections(api.port, 500) as held:
        assert_equal(send_all(held, request_bytes("GET", "/openapi.json") * 20), 0, "requests")
        assert_equal(world.post("alice", "k").status, 202, "another user")
        grown = resident(api) - before
        assert_true(IS_SANITIZED or grown < 16 * MIB, "%d MiB more than before" % (grown // MIB))
        wait_until(lambda: api.metric('issuing_http_cut_total{reason="unread"}') == 500, "they are cut off", 45, 0.5)
    with Wire(api.port) as wire:  # one that reads gets all
        wire.send(request_bytes("GET", "/openapi.json") * 20)
        assert_equal({wire.answer().status for _ in range(20)}, {200}, "a reader")


# ---- places ---------------------------------------------------------------------------------------------------------

@test(api__max_connections="50")
def idle_connections_keep_no_client_out(world):
    world.up(workers=0)
    api = world.apis()[0]
    with connections(api.port, 200):
        assert_equal([world.post("user-%d" % i, "k").status for i in range(20)], [202] * 20, "others")
    with connections(api.port, 60) as held:
        send_all(held, b"G")  # begun, and never ended
        wait_until(lambda: world.post("alice", "k").status == 202, "others, a second later", 4)
    assert_true(api.metric('issuing_http_cut_total{reason="full"}') >= 150, "they are counted")


@test
def connections_to_the_admin_listener_do_not_make_it_deaf(world):
    world.up(workers=0)
    api = world.apis()[0]
    for data in (b"", b"G", request_bytes("GET", "/metrics") * 50, head(10, target="/livez")):
        with connections(api.admin, 150) as held:
            if data:
                send_all(held, data)
            wait_until(lambda: api.get("/livez").status == 200, "livez beside %r" % data[:20], 5)


def api_with_files(world, count, **own):
    port, admin = free_port(), free_port()
    own = {"api__listen": "127.0.0.1:%d" % port, "api__admin_listen": "127.0.0.1:%d" % admin, **own}
    argv = ["prlimit", "--nofile=%d:%d" % (count, count), BUILD / "issuing-api", *world.flags("issuing_api", own)]
    return world._start(Daemon("api-few", argv, world._log("api-few"), admin, port), True)


@test
def clients_cannot_use_up_the_files_of_the_admin_listener_and_the_database(world):
    """With LimitNOFILE below api.max_connections they could, and no error named it."""
    world.start_sandbox()
    api = api_with_files(world, 300)
    assert_true("is too low for api.max_connections" in api.text(), "a warning at the start")
    with connections(api.port, 400) as held:
        assert_equal(api.get("/livez").status, 200, "livez")
        assert_equal(world.post("alice", "k", api=api).status, 202, "another user")
        wait_until(lambda: api.metric("issuing_http_connections") <= 200, "files are left", 5)
        send_all(held[:100], b"G")
        assert_equal((api.get("/livez").status, api.get("/readyz").status), (200, 200), "livez and readyz")


@slow
@test
def a_lack_of_files_is_reported_and_ends_by_itself(world):
    world.up(workers=0)
    api = world.apis()[0]
    with connections(api.port, 20) as held:
        for i, one in enumerate(held):  # running requests: none of these gives way
            one.sendall(world.post_bytes("user-%d" % i, "k", headers=[("Prefer", "wait=30")]))
        wait_until(lambda: api.metric("issuing_waiting_clients") == 20, "all wait")
        files = len(os.listdir("/proc/%d/fd" % api.pid))
        before = resource.prlimit(api.pid, resource.RLIMIT_NOFILE, (files, 20000))
        try:
            with Wire(api.port) as wire:
                wire.send(world.post_bytes("alice", "k"))
                wait_until(lambda: "accepting connections is paused" in api.text(), "it is in the log")
                time.sleep(0.5)
                assert_equal(api.text().count("accepting connections is paused"), 1, "lines")
                resource.prlimit(api.pid, resource.RLIMIT_NOFILE, before)
                assert_equal(wire.answer().status, 202, "served when there are files again")
        finally:
            resource.prlimit(api.pid, resource.RLIMIT_NOFILE, before)
        assert_true(api.metric("issuing_http_accept_pauses_total") >= 1, "counted")
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with connections(api.port, 5):  # idle ones do give way
        wait_until(lambda: api.metric("issuing_http_connections") == 5, "those before are gone")
        files = len(os.listdir("/proc/%d/fd" % api.pid))
        resource.prlimit(api.pid, resource.RLIMIT_NOFILE, (files, 20000))
        wires = [Wire(api.port) for _ in range(4)]  # more than the files that may have been free
        assert_equal([wire.send(world.post_bytes("alice", "k")).answer().status for wire in wires], [202] * 4,
                     "idle ones gave way")
        for wire in wires:
            wire.close()
        resource.prlimit(api.pid, resource.RLIMIT_NOFILE, before)
