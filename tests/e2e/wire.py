"""Bytes on the wire: what is refused before it is read as a request, and what a correct but unusual client may do.

Every attack carries a request that would be accepted if it were read as one; at the end nothing may have been recorded.
"""
import time

import client
from client import Wire, request_bytes
from harness import assert_equal, assert_true, slow, test, wait_until

BODY = b'{"kind":"new"}'


def head(world, *lines, target="/v1/card-requests", version="HTTP/1.1", method="POST", host=True):
    """A request's head with a good token, key and media type, and these lines besides."""
    fixed = ["%s %s %s" % (method, target, version)] + (["Host: issuing.test"] if host else [])
    fixed += ["%s: %s" % world.bearer("mallory"), "Content-Type: application/json", "Idempotency-Key: smuggled"]
    return "\r\n".join([*fixed, *lines]).encode("latin-1") + b"\r\n\r\n"


def refused(world, name, data, status=400, closes=True):
    with Wire(world.apis()[0].port) as wire:
        try:
            wire.send(data)
        except OSError:
            pass  # refused before it was all sent
        answer = wire.answer()
        assert_true(answer.status in (status if isinstance(status, tuple) else (status,)), "%s: %r" % (name, answer))
        assert_equal(answer.header("Content-Type"), "application/problem+json", "Content-Type for " + name)
        assert_equal(answer.json()["status"], answer.status, "status in the body for " + name)
        if closes:
            assert_equal(answer.header("Connection"), "close", "Connection for " + name)
            assert_true(wire.is_closed(), "%s: the connection stays open" % name)


def nothing_recorded(world):
    assert_equal(world.sql("SELECT count(*) FROM outbox_events"), "0", "events")
    assert_equal(world.apis()[0].get("/livez").status, 200, "livez")


@test
def two_opinions_about_where_a_body_ends_are_refused(world):
    world.up(workers=0)
    whole = head(world, "Content-Length: 14") + BODY
    chunked = b"e\r\n" + BODY + b"\r\n0\r\n\r\n"
    length = "Content-Length: 14"
    attacks = {
        "length and chunked": head(world, length, "Transfer-Encoding: chunked") + chunked + whole,
        "chunked and length": head(world, "Transfer-Encoding: chunked", "Content-Length: 4") + chunked + whole,
        "two lengths": head(world, length, "Content-Length: 15") + BODY + b" ",
        "the same length twice": head(world, length, length) + BODY,
        "a list of lengths": head(world, "Content-Length: 14, 14") + BODY,
        "a signed length": head(world, "Content-Length: +14") + BODY,
        "a negative length": head(world, "Content-Length: -1") + BODY,
        "a hexadecimal length": head(world, "Content-Length: 0xe") + BODY,
        "a fraction": head(world, "Content-Length: 14.0") + BODY,
        "an empty length": head(world, "Content-Length:") + BODY,
        "an overflowing length": head(world, "Content-Length: 18446744073709551630") + BODY,
        "xchunked": head(world, "Transfer-Encoding: xchunked") + chunked,
        "chunked, identity": head(world, "Transfer-Encoding: chunked, identity") + chunked,
        "gzip, chunked": head(world, "Transfer-Encoding: gzip, chunked") + chunked,
        "identity": head(world, "Transfer-Encoding: identity", length) + BODY,
        "chunked twice": head(world, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + chunked,
        "Transfer-Encoding on 1.0": head(world, "Transfer-Encoding: chunked", version="HTTP/1.0") + chunked,
        "a space before the colon": head(world, "Content-Length : 14") + BODY,
        "a folded line": head(world, "X-A: b\r\n c", length) + BODY,
        "a folded length": head(world, "Content-Length:\r\n 14") + BODY,
    }
    for name, data in attacks.items():
        refused(world, name, data, (400, 413))
    nothing_recorded(world)


@test
def bytes_that_two_readers_would_split_differently_are_refused(world):
    world.up(workers=0)
    good = head(world, "Content-Length: 14") + BODY
    attacks = {
        "bare LF lines": good.replace(b"\r\n", b"\n"),
        "one bare LF": good.replace(b"\r\n", b"\n", 1),
        "a bare CR in a value": head(world, "X-A: b\rc", "Content-Length: 14") + BODY,
        "a line that ends with CR": head(world, "X-A: b\rContent-Length: 14") + BODY,
        "an empty value and CR": head(world, "X-A:\rContent-Length: 14") + BODY,
        "a NUL in a value": head(world, "X-A: b\0c", "Content-Length: 14") + BODY,
        "a control byte in a value": head(world, "X-A: b\x07c", "Content-Length: 14") + BODY,
        "a space before the first header": good.replace(b"\r\nHost", b"\r\n Host", 1),
        "a header without a name": head(world, ": x", "Content-Length: 14") + BODY,
        "a header without a colon": head(world, "nonsense", "Content-Length: 14") + BODY,
        "a name with a space": head(world, "X A: b", "Content-Length: 14") + BODY,
        "a name in parentheses": head(world, "X(A): b", "Content-Length: 14") + BODY,
        "no Host": head(world, "Content-Length: 14", host=False) + BODY,
        "two Hosts": head(world, "Host: other.test", "Content-Length: 14") + BODY,
        "an empty Host": head(world, "Host:", "Content-Length: 14", host=False) + BODY,
        "a Host with a user": head(world, "Host: a@b", "Content-Length: 14", host=False) + BODY,
        "a Host with a path": head(world, "Host: a/b", "Content-Length: 14", host=False) + BODY,
    }
    for name, data in attacks.items():
        refused(world, name, data)
    nothing_recorded(world)


@test
def request_lines_of_proxies_and_other_protocols_are_refused(world):
    world.up(workers=0)
    rest = "\r\nHost: issuing.test\r\n\r\n"
    for line in ("GET", "GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET /\t HTTP/1.1",
                 "GET http://evil.test/ HTTP/1.1", "GET ftp://issuing.test/ HTTP/1.1",
                 "GET evil.test HTTP/1.1", "CONNECT evil.test:443 HTTP/1.1", "CONNECT / HTTP/1.1", "PRI * HTTP/2.0",
                 "OPTIONS * HTTP/1.1", "GET / http/1.1",
                 "GET / HTTP/1", "GET / HTTP/1.1x", "GET /\x01 HTTP/1.1", "GET /\xe9 HTTP/1.1", "G@T / HTTP/1.1",
                 "GET /#a HTTP/1.1", "GET / HTTP/11",
                 "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        refused(world, line, (line + rest).encode("latin-1"), (400, 505))
    for line in ("GET / HTTP/2.0", "GET / HTTP/9.9"):
        refused(world, line, (line + rest).encode(), (400, 505))
    nothing_recorded(world)


@test
def a_target_in_absolute_form_is_the_path_behind_its_host(world):
    """A client that thinks it talks to a proxy: RFC 9112, 3.2.2."""
    world.up(workers=0)
    port = world.apis()[0].port
    for target, host, status in (("http://api.test/openapi.json", "api.test", 200),
                                 ("HTTPS://API.test:8443/openapi.json?x=1", "api.TEST:8443", 200),
                                 ("http://api.test//openapi.json", "api.test", 404),
                                 ("http://api.test/openapi.json", "other.test", 400),
                                 ("http://api.test", "api.test", 400)):
        answer = client.call(port, "GET", target, {"Host": host})
        assert_equal(answer.status, status, target + " of " + host)
    with Wire(port) as wire:
        sent = head(world, "Content-Length: 14", target="http://issuing.test/v1/card-requests")
        assert_equal(wire.send(sent + BODY).answer().status, 202, "a create")


@test
def paths_are_taken_as_they_are_written(world):
    world.up(workers=0)
    for target in ("//v1/card-requests", "/v1//card-requests", "/v1/./card-requests", "/v1/x/../card-requests",
                   "/v1/%63ard-requests", "/v1/card-requests%00",
                   "/v1%2Fcard-requests", "/%2e%2e/v1/card-requests", "/v1/card-requests;x=1", "/v1/card-requests%20"):
        with Wire(world.apis()[0].port) as wire:
            assert_equal(wire.send(head(world, "Content-Length: 14", target=target) + BODY).answer().status, 404,
                         target)
    nothing_recorded(world)


@test
def sizes_over_the_limits_have_answers_of_their_own(world):
    world.up(workers=0)
    big = 64 * 1024 + 1
    refused(world, "a long body", head(world, "Content-Length: %d" % big) + b"x" * 4096, 413)
    refused(world, "a long body in chunks", head(world, "Transfer-Encoding: chunked") +
            (b"1000\r\n" + b" " * 4096 + b"\r\n") * 17, 413)
    refused(world, "one huge chunk", head(world, "Transfer-Encoding: chunked") + b"fffffff\r\n", 413)
    refused(world, "a long target", head(world, target="/v1/card-requests?" + "x" * 4096), 414)
    refused(world, "an endless target", b"GET /" + b"x" * 40000, 414)
    refused(world, "a long header", head(world, "X-A: " + "b" * 16384), 431)
    refused(world, "many headers", head(world, *["X-%d: y" % i for i in range(500)]), 431)
    refused(world, "a long key of 1 MB", head(world, "X: y")[:-4] + b"\r\nIdempotency-Key: " + b"k" * 1000000, 431)
    refused(world, "an endless header", b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 40000, 431)
    nothing_recorded(world)
    edge = b'{"kind":"new"}' + b" " * (64 * 1024 - 14)
    with Wire(world.apis()[0].port) as wire:
        assert_equal(wire.send(head(world, "Content-Length: %d" % len(edge)) + edge).answer().status, 202,
                     "64 KiB are allowed")


@test
def chunks_that_are_not_what_they_say_are_refused(world):
    world.up(workers=0)
    start = head(world, "Transfer-Encoding: chunked")
    for name, body in {
        "no digit": b"\r\n" + BODY, "0x": b"0xe\r\n" + BODY + b"\r\n0\r\n\r\n",
        "a sign": b"+e\r\n" + BODY + b"\r\n0\r\n\r\n",
        "too short": b"d\r\n" + BODY + b"\r\n0\r\n\r\n", "too long": b"f\r\n" + BODY + b"\r\n0\r\n\r\n",
        "bare LF": b"e\n" + BODY + b"\n0\n\n",
        "a space": b"e \r\n" + BODY + b"\r\n0\r\n\r\n", "an overflow": b"fffffffffffffffff\r\n",
        "endless zeros": b"0" * 1000,
        "a long extension": b"e;" + b"x" * 5000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
        "a CR inside an extension": b"e;a\rb\r\n" + BODY + b"\r\n0\r\n\r\n",
        "a folded trailer": b"e\r\n" + BODY + b"\r\n0\r\nX: y\r\n z\r\n\r\n",
        "a bad trailer": b"e\r\n" + BODY + b"\r\n0\r\nnonsense\r\n\r\n",
    }.items():
        refused(world, name, start + body, (400, 413))
    nothing_recorded(world)


@test
def a_chunked_body_is_read_whole_in_whatever_pieces_it_comes(world):
    world.up(workers=0)
    start = head(world, "Transfer-Encoding: chunked")
    body = b"".join(b"%x;part=%d\r\n%c\r\n" % (1, i, byte)
                    for i, byte in enumerate(BODY)) + b"0\r\nX-Trailer: y\r\n\r\n"
    with Wire(world.apis()[0].port) as wire:
        for byte in start + body:
            wire.send(bytes([byte]))
        answer = wire.answer()
        assert_equal(answer.status, 202, "byte by byte")
        again = wire.send(head(world, "Transfer-Encoding: chunked") + b"E\r\n" + BODY + b"\r\n000\r\n\r\n").answer()
        assert_equal((again.status, again.body, again.header("Idempotent-Replayed")), (202, answer.body, "true"),
                     "the same body in one chunk")
    assert_equal(world.post("mallory", "smuggled").body, answer.body, "and with a length")


@test
def pipelined_requests_are_answered_in_order(world):
    world.up(workers=0)
    with Wire(world.apis()[0].port) as wire:
        wire.send(b"".join(world.post_bytes("user-%d" % (i % 10), "k-%d" % i, {"kind": "new", "memo": "m%d" % i})
                           if i % 2 == 0 else
                           request_bytes("GET", "/v1/nowhere-%d" % i, [world.bearer("alice")]) for i in range(100)))
        answers = [wire.answer() for _ in range(100)]
    assert_equal([answer.status for answer in answers], [202, 404] * 50, "statuses")
    recorded = {row["id"]: row["memo"]
                for row in world.rows("SELECT id, payload ->> 'memo' AS memo FROM outbox_events")}
    assert_equal([recorded[answer.json()["id"]] for answer in answers[::2]], ["m%d" % i for i in range(0, 100, 2)],
                 "each got its own answer")
    # A refused one ends the line: what follows it is not read.
    with Wire(world.apis()[0].port) as wire:
        wire.send(request_bytes("GET", "/v1/nowhere") + b"GET / HTTP/1.1\r\n\r\n" + world.post_bytes("late", "k"))
        assert_equal([wire.answer().status, wire.answer().status], [404, 400], "statuses")
        assert_true(wire.is_closed(), "closed")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE user_id = 'late'"), "0", "late events")


@test
def a_hundred_pipelined_requests_and_an_early_close_do_no_harm(world):
    world.up(workers=0)
    for i in range(5):
        with Wire(world.apis()[0].port) as wire:
            wire.send(b"".join(world.post_bytes("user-%d" % i, "k-%d" % n) for n in range(100)))
            if i % 2:
                wire.socket.setsockopt(client.socket.SOL_SOCKET, client.socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    with Wire(world.apis()[0].port) as wire:
        wire.send(world.post_bytes("half", "k"))
        wire.socket.shutdown(client.socket.SHUT_WR)
        assert_equal(wire.answer().status, 202, "a half-closed client is answered")
    wait_until(lambda: world.apis()[0].metric("issuing_http_connections") == 0, "no connection is left")


@test
def expect_100_continue_is_answered_before_the_body(world):
    world.up(workers=0)
    with Wire(world.apis()[0].port) as wire:
        wire.send(head(world, "Content-Length: 14", "Expect: 100-continue"))
        assert_equal(wire.answer().status, 100, "the interim answer")
        assert_equal(wire.send(BODY).answer().status, 202, "the answer")
        # Nothing to wait for, no interim answer.
        assert_equal(wire.send(head(world, "Content-Length: 14", "Expect: 100-Continue") +
                               BODY).answer().status in (100, 202),
                     True, "with the body")
    refused(world, "413 instead of 100", head(world, "Content-Length: 70000", "Expect: 100-continue"),
            413)
    refused(world, "another expectation", head(world, "Content-Length: 14", "Expect: the best") + BODY, 417)


@test(api__idle_timeout="1500ms")
def an_idle_connection_ends_after_the_time_that_its_client_was_told(world):
    world.up(workers=0)
    with Wire(world.apis()[0].port) as wire:
        answer = wire.send(head(world, "Content-Length: 14") + BODY).answer()
        assert_equal((answer.header("Connection"), answer.header("Keep-Alive")), ("keep-alive", "timeout=1"), "told")
        assert_true(wire.is_closed(), "it ends")
    with Wire(world.apis()[0].port) as wire:
        answer = wire.send(head(world, "Content-Length: 14", "Connection: close") + BODY).answer()
        assert_equal((answer.header("Connection"), answer.header("Keep-Alive")), ("close", None), "not told")


@test
def connections_stay_open_or_close_as_the_version_and_the_client_say(world):
    world.up(workers=0)
    port = world.apis()[0].port
    for version, lines, stays in (("HTTP/1.1", (), True), ("HTTP/1.1", ("Connection: close",), False),
                                 ("HTTP/1.0", (), False),
                                 ("HTTP/1.0", ("Connection: keep-alive",), True),
                                 ("HTTP/1.1", ("Connection: keep-alive, close",), False)):
        with Wire(port) as wire:
            answer = wire.send(head(world, "Content-Length: 14", *lines, version=version) + BODY).answer()
            assert_equal(answer.status, 202, "status")
            if stays:
                assert_equal(wire.send(head(world, "Content-Length: 14", *lines, version=version) +
                                       BODY).answer().status, 202,
                             "%s %s again" % (version, lines))
            else:
                assert_true(wire.is_closed(), "%s %s: still open" % (version, lines))
    with Wire(port) as wire:
        wire.send(b"\r\n" + head(world, "Content-Length: 14", "Upgrade: h2c", "Connection: Upgrade") + BODY)
        assert_equal(wire.answer().status, 202, "an Upgrade is not taken, an empty line before the request is forgiven")
    with Wire(port) as wire:
        assert_equal(wire.send(head(world, version="HTTP/1.0", method="GET", host=False)).answer().status, 200,
                     "1.0 needs no Host")


@slow
@test
def slow_clients_are_closed_at_the_limit_and_delay_no_other_client(world):
    world.up(workers=0)
    port = world.apis()[0].port
    slow_head, slow_body = Wire(port, 20), Wire(port, 20)
    slow_head.send(b"POST /v1/card-requests HTTP/1.1\r\nHost: a\r\n")
    slow_body.send(head(world, "Content-Length: 14") + BODY[:3])
    idle = [Wire(port) for _ in range(200)]
    begun = time.monotonic()
    while time.monotonic() - begun < 4:
        assert_equal(world.post("alice", "k").status, 202, "another user")
        slow_head.send(b"X-Slow: y\r\n")
        time.sleep(0.2)
    answer = slow_head.answer()
    assert_equal(answer.status, 408, "a header may take 5 s")
    assert_true(slow_head.is_closed(), "closed")
    assert_true(slow_body.answer().status == 408 and slow_body.is_closed(), "a body may take 10 s")
    assert_true(time.monotonic() - begun >= 9, "and not less")
    for wire in [*idle, slow_head, slow_body]:
        wire.close()
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE user_id = 'mallory'"), "0", "mallory's events")


@test(api__max_connections="20")
def above_the_limit_of_connections_the_next_gets_503(world):
    world.up(workers=0)
    held = [Wire(world.apis()[0].port) for _ in range(20)]
    for i, wire in enumerate(held):
        wire.send(world.post_bytes("user-%d" % i, "k", headers=[("Prefer", "wait=30")]))
        wire.socket.setsockopt(client.socket.SOL_SOCKET, client.socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    wait_until(lambda: world.apis()[0].metric("issuing_waiting_clients") == 20, "all have a request under way")
    with Wire(world.apis()[0].port) as wire:
        answer = wire.answer()
        assert_equal((answer.status, answer.header("Retry-After"), answer.header("Connection")), (503, "1", "close"),
                     "the surplus one")
    held[0].close()
    wait_until(lambda: world.post("alice", "k").status == 202, "accepted again")
    for wire in held:
        wire.close()
