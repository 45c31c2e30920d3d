#!/usr/bin/python3
"""hostile.py --listen PORT --to PORT [--certificate FILE --key FILE] [--requests N]: an issuer that misbehaves for
chosen requests and is a good proxy for all others; behind TLS if it has a certificate, in clear text without.

A create whose traceparent has the trace id of a behaviour (trace_of) gets that behaviour, twice; from the third time on
the request is passed to the service. The first time the service has made the card before the peer misbehaves, the
second time it has not heard of it. Behaviours are bytes. What is sent without end is bounded here by LONGEST_S and
MOST. Each connection and each behaviour is a line of JSON on standard output. With --requests a connection gets N
answers; the next request is passed to the service, and then the connection is closed without a word. SIGTERM ends it.

Leaves out: bodies over 64 KiB.
"""
import argparse
import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import ssl
import threading
import time

LONGEST_S = 15
MOST = 128 << 20
TIMES = 2
TRACE = 0xbad0 << 64
ANSWER = (b'{"id":"nobody","reference":"nobody","pan":"4111111111111111","exp_month":1,"exp_year":2030,'
          b'"status":"active"}')

CREATED = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
CHUNKED = CREATED + b"Transfer-Encoding: chunked\r\n\r\n"

SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # a frame of HTTP/2

MISTAKES = {
    "two lengths": CREATED + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length and chunks": CREATED + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "a negative length": CREATED + b"Content-Length: -1\r\n\r\n{}",
    "a length of 20 digits": CREATED + b"Content-Length: 99999999999999999999\r\n\r\n{}",
    "a length that is not there": CREATED + b"Content-Length: 200\r\n\r\n" + ANSWER[:20],
    "an encoding": CREATED + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08",
    "another transfer encoding": CREATED + b"Transfer-Encoding: gzip\r\n\r\n\x1f\x8b\x08",
    "a chunk of letters": CHUNKED + b"xyz\r\n{}\r\n0\r\n\r\n",
    "a chunk of 20 digits": CHUNKED + b"fffffffffffffffffff1\r\n{}\r\n0\r\n\r\n",
    "chunks without an end": CHUNKED + b"2\r\n{}\r\n",
    "a folded line": b"HTTP/1.1 201 Created\r\n folded: x\r\nContent-Length: 2\r\n\r\n{}",
    "LF alone": b"HTTP/1.1 201 Created\nContent-Length: 2\n\n{}",
    "a NUL": CREATED + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "version 2": b"HTTP/2 201\r\nContent-Length: 2\r\n\r\n{}",
    "version 0.9": ANSWER,
    "a switch of protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n" +
      SETTINGS,
    "status 99": b"HTTP/1.1 99 What\r\nContent-Length: 0\r\n\r\n",
    "status 1000": b"HTTP/1.1 1000 What\r\nContent-Length: 0\r\n\r\n",
    "status 0": b"HTTP/1.1 000 What\r\nContent-Length: 0\r\n\r\n",
    "an interim answer as all": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "half a header": CREATED[:30],
    "nothing": b"",
    "HTTP/2": SETTINGS,
    "babble": os.urandom(4096),
    "zeros": bytes(65536),
    "two answers": b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n" + CREATED + b"Content-Length: 2\r\n\r\n{}",
    "a redirect": b"HTTP/1.1 307 There\r\nLocation: /v1/cards\r\nContent-Length: 0\r\n\r\n",
    "204 with a body": b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n{}",
    "65 KiB": CREATED + b"Content-Length: 66560\r\n\r\n" + b" " * 66560,
    "what is not JSON": CREATED + b"Content-Length: 2\r\n\r\n{]",
    "a stranger's card": CREATED + b"Content-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER,
}

FLOODS = {
    "headers": (CREATED, b"X-Flood: abcdefghijklmnopqrstuvwxyz\r\n"),
    "a header": (CREATED + b"X-Flood: ", b"abcdefghijklmnopqrstuvwxyz"),
    "a name": (CREATED, b"abcdefghijklmnopqrstuvwxyz"),
    "blanks in a header": (CREATED + b"X-Flood:", b" "),
    "a status line": (b"HTTP/1.1 201 ", b"abcdefghijklmnopqrstuvwxyz"),
    "empty lines": (b"", b"\r\n"),
    "interim answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "chunks of a byte": (CHUNKED, b"1\r\n \r\n"),
    "chunks of a byte with extensions": (CHUNKED, b"1;a=b\r\n \r\n"),
    "an extension": (CHUNKED + b"1;a=", b"abcdefghijklmnopqrstuvwxyz"),
    "a quoted extension": (CHUNKED + b'1;a="', b"abcdefghijklmnopqrstuvwxyz"),
    "extensions": (CHUNKED + b"1", b";a=b"),
    "zeros of a size": (CHUNKED, b"0" * 32),
    "trailers": (CHUNKED + b"0\r\n", b"X-Flood: abcdefghijklmnopqrstuvwxyz\r\n"),
    "a body": (CREATED + b"\r\n", b" " * 100),
    "zeros": (b"", bytes(100)),
}


def table():
    """Name of each behaviour, in the order of their trace ids."""
    return [*MISTAKES, *("without end: " + name for name in FLOODS),
            *("byte by byte: " + name for name in ("headers", "an extension", "a body"))]


def trace_of(name):
    return "%032x" % (TRACE + table().index(name) + 1)


# ---- the peer --------------------------------------------------------------------------------------------------------

def note(**members):
    os.write(1, (json.dumps(members) + "\n").encode())


class Peer:
    def __init__(self, options):
        self.options = options
        self.counts = {}
        self.lock = threading.Lock()
        self.numbers = itertools.count(1)

    def behaviour_of(self, method, path, headers):
        """Returns its name and the how-manieth time it is, or None and 0."""
        trace = headers.get("traceparent", "").split("-")
        code = int(trace[1], 16) - TRACE if len(trace) == 4 else 0
        if method != "POST" or path != "/v1/cards" or not 0 < code <= len(table()):
            return None, 0
        name = table()[code - 1]
        with self.lock:
            times = self.counts[name] = self.counts.get(name, 0) + 1
        return (name, times) if times <= TIMES else (None, times)

    def pass_on(self, method, path, headers, body):
        """Forwards the request to the service; returns status, headers and body."""
        wire = http.client.HTTPConnection("127.0.0.1", self.options.to)  # the caller has a limit of its own
        try:
            wire.request(method, path, body, {name: value for name, value in headers.items()
                                              if name in ("idempotency-key", "content-type", "authorization")})
            got = wire.getresponse()
            return got.status, got.getheaders(), got.read()
        finally:
            wire.close()

    def misbehave(self, wire, name, times):
        note(behaviour=name, times=times)
        how, colon, flood = name.partition(": ")
        if not colon:
            wire.sendall(MISTAKES[name])
        elif how == "without end":
            begin, piece = FLOODS[flood]
            self.flood(wire, begin, piece * (65536 // len(piece)))
        else:
            self.flood(wire, *FLOODS[flood], one=True)

    def flood(self, wire, begin, piece, one=False):
        """Until the client has had enough, or we have."""
        sent, until = 0, time.monotonic() + LONGEST_S
        wire.settimeout(LONGEST_S)
        wire.sendall(begin)
        while sent < MOST and time.monotonic() < until:
            if one:
                for at in range(len(piece)):
                    wire.sendall(piece[at:at + 1])  # each a record of TLS
            else:
                wire.sendall(piece)
            sent += len(piece)

    def serve_wire(self, wire):
        buffered = b""
        for count in itertools.count(1):
            while b"\r\n\r\n" not in buffered:
                data = wire.recv(65536)
                if not data:
                    return
                buffered += data
            head, _, buffered = buffered.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            method, path, _ = first.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            length = int(headers.get("content-length", 0))
            while len(buffered) < length:
                data = wire.recv(65536)
                if not data:
                    return
                buffered += data
            body, buffered = buffered[:length], buffered[length:]
            name, times = self.behaviour_of(method, path, headers)
            if name:
                if times == 1:
                    self.pass_on(method, path, headers, body)
                self.misbehave(wire, name, times)
                return
            code, pairs, content = self.pass_on(method, path, headers, body)
            if count > self.options.requests:
                note(closed=method)
                return
            lines = ["HTTP/1.1 %d X" % code, "Content-Length: %d" % len(content)]
            lines += ["%s: %s" % pair for pair in pairs if pair[0].lower() in ("content-type", "retry-after")]
            wire.sendall("\r\n".join([*lines, "", ""]).encode() + content)

    def serve(self, plain, context):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException), plain:
            if not context:
                note(connection=next(self.numbers))
                self.serve_wire(plain)
                return
            with context.wrap_socket(plain, server_side=True) as wire:
                note(connection=next(self.numbers))
                self.serve_wire(wire)

    def run(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if self.options.certificate else None
        if context:
            context.load_cert_chain(self.options.certificate, self.options.key)
            context.set_alpn_protocols(["http/1.1"])
        listener = socket.create_server(("127.0.0.1", self.options.listen), backlog=1000)
        note(listening=self.options.listen)
        while True:
            plain, _ = listener.accept()
            threading.Thread(target=self.serve, args=(plain, context), daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("listen", "to"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    parser.add_argument("--requests", type=int, default=1 << 30)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Peer(parser.parse_args()).run()


if __name__ == "__main__":
    main()
