"""A minimal HTTP/1.1 client on bare sockets: tests must be able to send what a well-behaved library would not, and to
see every byte that comes back.

Leaves out: redirects, pools, TLS.
"""
import base64
import hashlib
import hmac
import json
import random
import socket
import time

from stuck import STUCK_AFTER_S


class Answer:
    """One response: status, headers as they came, body as bytes."""

    def __init__(self, status, headers, body, version="HTTP/1.1"):
        self.status, self.headers, self.body, self.version = status, headers, body, version

    def header(self, name):
        values = self.headers_of(name)
        return values[0] if values else None

    def headers_of(self, name):
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return "%s %r" % (self.status, self.body[:300])


class Closed(Exception):
    """The peer closed the connection before a whole answer came."""


class Wire:
    """One connection. Reads answers one by one, so pipelined ones too."""

    def __init__(self, port, timeout=STUCK_AFTER_S):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffered = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)
        return self

    def more(self):
        """Another piece from the peer; b"" at the end. A reset is an end."""
        try:
            piece = self.socket.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            piece = b""
        self.buffered += piece
        return piece

    def until(self, mark):
        while mark not in self.buffered:
            if not self.more():
                raise Closed("closed after %r" % self.buffered[:200])
        before, self.buffered = self.buffered.split(mark, 1)
        return before

    def exactly(self, count):
        while len(self.buffered) < count:
            if not self.more():
                raise Closed("closed in a body after %d of %d bytes" % (len(self.buffered), count))
        taken, self.buffered = self.buffered[:count], self.buffered[count:]
        return taken

    def answer(self, head=False):
        """head: the request was a HEAD, so no body follows whatever Content-Length says. 1xx answers are returned as
        they are."""
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, *_ = lines[0].split(" ", 2)
        headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
        found = Answer(int(status), headers, b"", version)
        if head or found.status < 200 or found.status in (204, 304):
            return found
        length = found.header("Content-Length")
        if length is not None:
            found.body = self.exactly(int(length))
        elif found.header("Transfer-Encoding"):
            raise AssertionError("no chunked answer was requested")
        else:
            found.body = self.rest()
        return found

    def rest(self):
        while self.more():
            pass
        taken, self.buffered = self.buffered, b""
        return taken

    def is_closed(self, seconds=30):
        """Whether the peer ends the connection, without another byte, within that time: less than the api leaves to one
        that is idle."""
        self.socket.settimeout(seconds)
        try:
            return not self.buffered and self.more() == b""
        except TimeoutError:
            return False


def request_bytes(method, path, headers=(), body=None, host="issuing.test"):
    """headers: pairs, or a mapping. Content-Length is added where there is a body and none is given."""
    pairs = list(headers.items() if isinstance(headers, dict) else headers)
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    names = [name.lower() for name, _ in pairs]
    lines = ["%s %s HTTP/1.1" % (method, path)]
    if "host" not in names:
        lines.append("Host: " + host)
    lines += ["%s: %s" % (name, value) for name, value in pairs]
    if body is not None and "content-length" not in names and "transfer-encoding" not in names:
        lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def call(port, method, path, headers=(), body=None, timeout=STUCK_AFTER_S):
    with Wire(port, timeout) as wire:
        return wire.send(request_bytes(method, path, headers, body)).answer(head=method == "HEAD")


def burst(requests, timeout=STUCK_AFTER_S, seed=0):
    """All at once: every connection is open before the first byte is sent. requests: (port, bytes) each; answers in the
    same order, None
    where the connection ended without one."""
    wires = [Wire(port, timeout) for port, _ in requests]
    order = list(range(len(requests)))
    random.Random(seed).shuffle(order)
    for i in order:
        wires[i].send(requests[i][1])
    answers = []
    for wire in wires:
        try:
            answers.append(wire.answer())
        except Closed:
            answers.append(None)
        wire.close()
    return answers


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(secret, claims, header=None, signature=None):
    """Signs the claims by itself, on purpose: not with the code that is being tested."""
    head = header if header is not None else {"alg": "HS256", "typ": "JWT"}
    pieces = [piece if isinstance(piece, str) else json.dumps(piece, separators=(",", ":")) for piece in (head, claims)]
    text = ".".join(base64url(piece.encode()) for piece in pieces)
    mac = hmac.new(secret, text.encode(), hashlib.sha256).digest() if signature is None else signature
    return text + "." + base64url(mac)


def user_token(secret, user, seconds=3600):
    return token(secret, {"sub": user, "exp": int(time.time()) + seconds})
