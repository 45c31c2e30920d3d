#!/usr/bin/python3
"""hostile.py --listen PORT --to PORT [--certificate FILE --key FILE] [--offer-h2] [--requests N]: an issuer that
misbehaves for chosen requests and is a good proxy for all others; behind TLS if it has a certificate, in clear text
without.

A create whose traceparent has the trace id of a behaviour (trace_of) gets that behaviour, twice; from the third time on
the request is passed to the service. The first time the service has made the card before the peer misbehaves, the
second time it has not heard of it. Behaviours are bytes: of HTTP/1.1, or frames of HTTP/2, which are sent as they are
over HTTP/1.1 too. What is sent without end is bounded here by LONGEST_S and MOST, silence by SILENT_S. Each connection
and each behaviour is a line of JSON on standard output. With --requests a connection of HTTP/1.1 gets N answers; the
next request is passed to the service, and then the connection is closed without a word. SIGTERM ends it. Needs Debian's
python3-h2, for its reader of headers.

Leaves out: flow control, bodies over 64 KiB.
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
import struct
import threading
import time

LONGEST_S = 15
SILENT_S = 3
MOST = 128 << 20
TIMES = 2
TRACE = 0xbad0 << 64
ANSWER = (b'{"id":"nobody","reference":"nobody","pan":"4111111111111111","exp_month":1,"exp_year":2030,'
          b'"status":"active"}')

# ---- HTTP/2, by hand -------------------------------------------------------------------------------------------------

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED, CANCEL, CALM, HTTP_1_1_REQUIRED = 0, 1, 2, 7, 8, 11, 13


def frame(kind, flags=0, stream=0, payload=b"", length=None):
    return struct.pack(">I", len(payload) if length is None else length)[1:] + bytes((kind, flags)) + \
        struct.pack(">I", stream) + payload


def number(value):
    return struct.pack(">I", value)


def text(value):
    return bytes((len(value),)) + value


def field(name, value):
    return b"\0" + text(name) + text(value)


def status(code):
    return b"\x08" + text(b"%d" % code)


def answer(stream, code=201, *fields, body=ANSWER):
    """A whole one."""
    return frame(HEADERS, END_HEADERS, stream, status(code) + b"".join(fields)) + frame(DATA, END_STREAM, stream, body)


def rst(stream, code):
    return frame(RST, 0, stream, number(code))


def goaway(last, code=NO_ERROR):
    return frame(GOAWAY, 0, 0, number(last) + number(code))


def setting(key, value):
    return frame(SETTINGS, 0, 0, struct.pack(">HI", key, value))


def header(stream, block, flags=END_HEADERS | END_STREAM):
    return frame(HEADERS, flags, stream, block)


JSON = field(b"content-type", b"application/json")

# Bytes to send for a stream; the connection is closed after them, unless the name is in STAYS.
H2 = {
    # an answer that is whole, and a stop; the first four do not wait for the body
    "429 at the header": lambda s: answer(s, 429, field(b"retry-after", b"1"), body=b"{}") + rst(s, NO_ERROR),
    "503 at the header": lambda s: answer(s, 503, field(b"retry-after", b"1"), body=b"{}") + rst(s, NO_ERROR),
    "401 at the header": lambda s: header(s, status(401)) + rst(s, NO_ERROR),
    "201 at the header": lambda s: answer(s) + rst(s, NO_ERROR),
    "503 and a stop": lambda s: answer(s, 503, body=b"{}") + rst(s, NO_ERROR),
    "503 and an error": lambda s: answer(s, 503, body=b"{}") + rst(s, INTERNAL_ERROR),
    # streams that are reset
    "a stop alone": lambda s: rst(s, NO_ERROR),
    "refused": lambda s: rst(s, REFUSED),
    "an internal error": lambda s: rst(s, INTERNAL_ERROR),
    "a protocol error": lambda s: rst(s, PROTOCOL_ERROR),
    "cancelled": lambda s: rst(s, CANCEL),
    "calm down": lambda s: rst(s, CALM),
    "an older version wanted": lambda s: rst(s, HTTP_1_1_REQUIRED),
    "a header, then reset": lambda s: header(s, status(201) + JSON, END_HEADERS) + rst(s, INTERNAL_ERROR),
    "half a body, then a stop": lambda s: header(s, status(201) + JSON, END_HEADERS) + frame(DATA, 0, s, ANSWER[:20]) +
    rst(s, NO_ERROR),
    "half a body, then closed": lambda s: header(s, status(201), END_HEADERS) + frame(DATA, 0, s, ANSWER[:20]),
    "half a body as all": lambda s: header(s, status(201) + field(b"content-length", b"200"), END_HEADERS) +
    frame(DATA, END_STREAM, s, ANSWER[:20]),
    "a reset of version 3 bytes": lambda s: frame(RST, 0, s, b"\0\0\0"),
    "a reset of stream 0": lambda s: frame(RST, 0, 0, number(0)),
    "a reset of an idle stream": lambda s: rst(s + 100, CANCEL),
    # goodbyes
    "goodbye to what came": lambda s: goaway(s - 2 if s > 2 else 0),
    "goodbye, and an answer": lambda s: goaway(s) + answer(s, 503, body=b"{}"),
    "an answer, and goodbye": lambda s: answer(s, 503, body=b"{}") + goaway(s),
    "goodbye in the middle": lambda s: header(s, status(201), END_HEADERS) + goaway(s) + frame(DATA, 0, s, b"{"),
    "goodbye for noise": lambda s: goaway(s, CALM),
    "goodbye for a later one": lambda s: goaway(0x7fffffff),
    "goodbye twice, larger": lambda s: goaway(0) + goaway(0x7fffffff),
    "goodbye on a stream": lambda s: frame(GOAWAY, 0, s, number(s) + number(0)),
    "goodbye of 3 bytes": lambda s: frame(GOAWAY, 0, 0, b"\0\0\0"),
    # windows
    "a window of 0": lambda s: setting(4, 0),
    "a window that is too large": lambda s: setting(4, 0xffffffff),
    "a window that overflows": lambda s: frame(WINDOW, 0, s, number(0x7fffffff)) * 2,
    "the connection's window overflows": lambda s: frame(WINDOW, 0, 0, number(0x7fffffff)) * 2,
    "a window grows by 0": lambda s: frame(WINDOW, 0, s, number(0)),
    "a window of 3 bytes": lambda s: frame(WINDOW, 0, s, b"\0\0\0"),
    # settings and pings
    "settings of 5 bytes": lambda s: frame(SETTINGS, 0, 0, b"12345"),
    "settings on a stream": lambda s: frame(SETTINGS, 0, s),
    "an acknowledgement with bytes": lambda s: frame(SETTINGS, ACK, 0, b"123456"),
    "an acknowledgement of nothing": lambda s: frame(SETTINGS, ACK) * 5,
    "frames of 1 byte": lambda s: setting(5, 1),
    "no streams at all": lambda s: setting(3, 0),
    "a table of 4 GB": lambda s: setting(1, 0xffffffff),
    "push enabled by a server": lambda s: setting(2, 1),
    "a ping of 7 bytes": lambda s: frame(PING, 0, 0, b"1234567"),
    "a ping on a stream": lambda s: frame(PING, 0, s, b"12345678"),
    # frames that should not be
    "data on stream 0": lambda s: frame(DATA, 0, 0, b"x"),
    "data before a header": lambda s: frame(DATA, END_STREAM, s, ANSWER),
    "data on an idle stream": lambda s: frame(DATA, 0, s + 100, b"x"),
    "data after the end": lambda s: answer(s, 503, body=b"{}") + frame(DATA, END_STREAM, s, b"x"),
    "padding longer than the frame": lambda s: header(s, status(201), END_HEADERS) +
      frame(DATA, PADDED, s, b"\xff" + b"x"),
    "a header on stream 0": lambda s: header(0, status(201)),
    "a header on the server's stream": lambda s: header(2, status(201)),
    "a promise": lambda s: frame(PUSH, END_HEADERS, s, number(2) + b"\x82\x86\x84"),
    "a continuation of nothing": lambda s: frame(CONTINUATION, END_HEADERS, s, status(201)),
    "a header that is interrupted": lambda s: header(s, status(201), 0) + frame(PING, 0, 0, b"12345678"),
    "a priority on itself": lambda s: frame(PRIORITY, 0, s, number(s) + b"\1"),
    "a frame of an unknown kind": lambda s: frame(0xee, 0xff, s, b"x" * 100),
    "a frame that is too long": lambda s: frame(DATA, 0, s, b"x" * 100, length=0xffffff),
    "half a frame": lambda s: frame(HEADERS, END_HEADERS, s, b"\x88" * 20)[:15],
    # headers that should not be
    "a header that cannot be read": lambda s: header(s, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
    "a table that grows": lambda s: header(s, b"\x3f\xff\xff\xff\xff\x07\x88"),
    "a text of 1 MB that is not there": lambda s: header(s, b"\0\x7f\xff\xff\x3f"),
    "no status": lambda s: header(s, field(b"a", b"b")),
    "two statuses": lambda s: header(s, status(201) + status(503)),
    "a status in letters": lambda s: header(s, b"\x08" + text(b"2x1")),
    "a status of 99999": lambda s: header(s, b"\x08" + text(b"99999")),
    "a name in capitals": lambda s: header(s, status(201) + field(b"Content-Type", b"x")),
    "a line break in a value": lambda s: header(s, status(201) + field(b"a", b"b\r\nc: d")),
    "a NUL in a value": lambda s: header(s, status(201) + field(b"a", b"b\0c")),
    "a header of a connection": lambda s: header(s, status(201) + field(b"transfer-encoding", b"chunked")),
    "a status behind a header": lambda s: header(s, field(b"a", b"b") + status(201)),
    "a switch of protocols": lambda s: header(s, status(101)),
    "an interim answer as all": lambda s: header(s, status(103)),
    "a trailer with a status": lambda s: header(s, status(201), END_HEADERS) + header(s, status(503)),
    "a trailer without an end": lambda s: header(s, status(201), END_HEADERS) +
      header(s, field(b"a", b"b"), END_HEADERS),
    "two lengths": lambda s: header(s, status(201) + field(b"content-length", b"1") + field(b"content-length", b"2")),
    # not HTTP/2
    "HTTP/1.1 in HTTP/2": lambda s: b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}",
    "babble": lambda s: os.urandom(4096),
    "zeros": lambda s: bytes(65536),
}
AT_THE_HEADER = [name for name in H2 if name.endswith("at the header")]
# The connection stays open, and silent.
STAYS = {"a window of 0", "no streams at all", "an acknowledgement of nothing", "a frame that is too long",
         "an interim answer as all", "frames of 1 byte", "a priority on itself", "a frame of an unknown kind"}

# What begins, and what follows again and again.
H2_FLOODS = {
    "empty data": lambda s: (header(s, status(201), END_HEADERS), frame(DATA, 0, s)),
    "padding": lambda s: (header(s, status(201), END_HEADERS), frame(DATA, PADDED, s, b"\xff" + bytes(255))),
    "windows": lambda s: (b"", frame(WINDOW, 0, s, number(1))),
    "the connection's windows": lambda s: (b"", frame(WINDOW, 0, 0, number(1))),
    "pings": lambda s: (b"", frame(PING, 0, 0, b"12345678")),
    "settings": lambda s: (b"", frame(SETTINGS)),
    "tables": lambda s: (b"", setting(1, 0) + setting(1, 4096)),
    "priorities": lambda s: (b"", frame(PRIORITY, 0, s, number(0) + b"\1")),
    "empty continuations": lambda s: (header(s, status(201), 0), frame(CONTINUATION, 0, s)),
    "full continuations": lambda s: (header(s, status(201), 0), frame(CONTINUATION, 0, s, field(b"a", b"b" * 100))),
    "indexed continuations": lambda s: (header(s, status(201), 0), frame(CONTINUATION, 0, s, b"\x90" * 10000)),
    "interim answers": lambda s: (b"", header(s, status(103), END_HEADERS)),
    "unknown frames": lambda s: (b"", frame(0xee, 0, s)),
    "other services": lambda s: (b"", frame(0xa, 0, 0, b"\0\1ah2=\":1\"")),
    "promises": lambda s: (b"", frame(PUSH, END_HEADERS, s, number(2) + b"\x82\x86\x84")),
    "goodbyes": lambda s: (b"", goaway(0x7fffffff)),
    "resets of closed streams": lambda s: (answer(s, 503, body=b"{}"), rst(s, CANCEL)),
    "acknowledgements": lambda s: (b"", frame(SETTINGS, ACK)),
}

# ---- HTTP/1.1 --------------------------------------------------------------------------------------------------------

CREATED = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
CHUNKED = CREATED + b"Transfer-Encoding: chunked\r\n\r\n"

H1 = {
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
      frame(SETTINGS),
    "status 99": b"HTTP/1.1 99 What\r\nContent-Length: 0\r\n\r\n",
    "status 1000": b"HTTP/1.1 1000 What\r\nContent-Length: 0\r\n\r\n",
    "status 0": b"HTTP/1.1 000 What\r\nContent-Length: 0\r\n\r\n",
    "an interim answer as all": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "half a header": CREATED[:30],
    "nothing": b"",
    "two answers": b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n" + CREATED + b"Content-Length: 2\r\n\r\n{}",
    "a redirect": b"HTTP/1.1 307 There\r\nLocation: /v1/cards\r\nContent-Length: 0\r\n\r\n",
    "204 with a body": b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n{}",
    "65 KiB": CREATED + b"Content-Length: 66560\r\n\r\n" + b" " * 66560,
    "what is no JSON": CREATED + b"Content-Length: 2\r\n\r\n{]",
    "a stranger's card": CREATED + b"Content-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER,
}

H1_FLOODS = {
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
    """Name of each behaviour, in the order of their trace ids: "1: " HTTP/1.1, "2: " HTTP/2."""
    return ["1: " + name for name in H1] + ["1: without end: " + name for name in H1_FLOODS] + \
        ["1: byte by byte: " + name for name in ("headers", "an extension", "a body")] + \
        ["2: " + name for name in H2] + ["2: without end: " + name for name in H2_FLOODS]


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
        wire = http.client.HTTPConnection("127.0.0.1", self.options.to, timeout=30)
        try:
            wire.request(method, path, body, {name: value for name, value in headers.items()
                                              if name in ("idempotency-key", "content-type", "authorization")})
            got = wire.getresponse()
            return got.status, got.getheaders(), got.read()
        finally:
            wire.close()

    def misbehave(self, wire, name, times, stream):
        note(behaviour=name, times=times)
        kind, _, rest = name.partition(": ")
        first, colon, flood = rest.partition(": ")
        if first == "without end" and colon:
            begin, piece = H1_FLOODS[flood] if kind == "1" else H2_FLOODS[flood](stream)
            self.flood(wire, begin, piece * (65536 // len(piece)))
        elif first == "byte by byte" and colon:
            self.flood(wire, *H1_FLOODS[flood], one=True)
        else:
            wire.sendall(H1[rest] if kind == "1" else H2[rest](stream))
            if kind == "2" and rest in STAYS:
                time.sleep(SILENT_S)  # also for further requests on this connection

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

    def serve_http1(self, wire):
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
                self.misbehave(wire, name, times, 1)
                return
            code, pairs, content = self.pass_on(method, path, headers, body)
            if count > self.options.requests:
                note(closed=method)
                return
            lines = ["HTTP/1.1 %d X" % code, "Content-Length: %d" % len(content)]
            lines += ["%s: %s" % pair for pair in pairs if pair[0].lower() in ("content-type", "retry-after")]
            wire.sendall("\r\n".join([*lines, "", ""]).encode() + content)

    def serve_http2(self, wire):
        import hpack
        decoder, open_streams, buffered, greeted = hpack.Decoder(), {}, b"", False
        wire.sendall(frame(SETTINGS))
        while True:
            data = wire.recv(65536)
            if not data:
                return
            buffered += data
            if not greeted and len(buffered) >= 24:
                buffered, greeted = buffered[24:], True
            while greeted and len(buffered) >= 9 and len(buffered) >= 9 + int.from_bytes(buffered[:3], "big"):
                length, kind, flags = int.from_bytes(buffered[:3], "big"), buffered[3], buffered[4]
                stream, payload = int.from_bytes(buffered[5:9], "big"), buffered[9:9 + length]
                buffered = buffered[9 + length:]
                if self.take(wire, decoder, open_streams, kind, flags, stream, payload) == "over":
                    return

    def take(self, wire, decoder, open_streams, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            wire.sendall(frame(SETTINGS, ACK))
        elif kind == PING and not flags & ACK:
            wire.sendall(frame(PING, ACK, 0, payload))
        elif kind == HEADERS:
            payload = payload[5:] if flags & 0x20 else payload
            headers = dict(decoder.decode(payload))
            name, times = self.behaviour_of(headers[":method"], headers[":path"], headers)
            if name and name[3:] in AT_THE_HEADER:
                self.misbehave(wire, name, times, stream)
                return "on"  # the connection is fine
            open_streams[stream] = (headers, name, times, bytearray())
        elif kind == DATA and stream in open_streams:
            open_streams[stream][3].extend(payload)
        elif kind == RST:
            open_streams.pop(stream, None)
        if kind not in (HEADERS, DATA) or not flags & END_STREAM or stream not in open_streams:
            return "on"
        headers, name, times, body = open_streams.pop(stream)
        if name:
            if times == 1:
                self.pass_on("POST", "/v1/cards", headers, bytes(body))
            self.misbehave(wire, name, times, stream)
            return "over"
        code, pairs, content = self.pass_on(headers[":method"], headers[":path"], headers, bytes(body))
        fields = [field(key.lower().encode(), value.encode()) for key, value in pairs
                  if key.lower() in ("content-type", "retry-after")]
        wire.sendall(answer(stream, code, *fields, body=content))
        return "on"

    def serve(self, plain, context):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException), plain:
            if not context:
                note(connection=next(self.numbers), protocol="clear text")
                self.serve_http1(plain)
                return
            with context.wrap_socket(plain, server_side=True) as wire:
                protocol = wire.selected_alpn_protocol()
                note(connection=next(self.numbers), protocol=protocol)
                self.serve_http2(wire) if protocol == "h2" else self.serve_http1(wire)

    def run(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if self.options.certificate else None
        if context:
            context.load_cert_chain(self.options.certificate, self.options.key)
            context.set_alpn_protocols(["h2", "http/1.1"] if self.options.offer_h2 else ["http/1.1"])
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
    parser.add_argument("--offer-h2", action="store_true")
    parser.add_argument("--requests", type=int, default=1 << 30)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Peer(parser.parse_args()).run()


if __name__ == "__main__":
    main()
