"""Collector: a receiver of OpenTelemetry's traces, in this process. It keeps every body as it came, in the world's
folder too, where what a story ends with looks for secrets (spans.log); and it answers as a story says (receiver.py).

What it took must hold together: see Collector.complaints(). SPANS_KEPT names a folder that gets each body that was
taken, for `./dev test issuers`, where OpenTelemetry's own code reads them.
"""
import contextlib
import json
import os
import pathlib
import re
import ssl
import tempfile

from assertions import STUCK_AFTER_S, wait_until
from receiver import Receiver

KINDS = {2: "SERVER", 3: "CLIENT", 5: "CONSUMER"}


class Span:
    def __init__(self, row, resource):
        self.trace, self.id, self.parent = row["traceId"], row["spanId"], row.get("parentSpanId", "")
        self.name, self.kind = row["name"], KINDS[row["kind"]]
        self.start, self.end = int(row["startTimeUnixNano"]), int(row["endTimeUnixNano"])
        self.attributes = attributes_of(row["attributes"])
        self.is_error = row.get("status", {}) == {"code": 2}
        self.events = [event["name"] for event in row.get("events", [])]
        self.resource = resource

    def __getitem__(self, name):
        return self.attributes.get(name)

    def __repr__(self):
        return "%s %s %r" % (self.kind, self.name, self.attributes)


def attributes_of(rows):
    names = [row["key"] for row in rows]
    if len(set(names)) != len(names):
        raise ValueError("an attribute is there twice: %r" % names)
    found = {}
    for row in rows:
        (kind, value), = row["value"].items()
        found[row["key"]] = int(value) if kind == "intValue" else value
    return found


def spans_of(body):
    spans = []
    for part in json.loads(body)["resourceSpans"]:
        resource = attributes_of(part["resource"]["attributes"])
        for scope in part["scopeSpans"]:
            spans += [Span(row, resource) for row in scope["spans"]]
    return spans


class Collector(Receiver):
    """Use collector(world)."""

    def __init__(self, world, certificate):
        self.log = open(world.dir / "spans.log", "ab")  # before the first call
        self.tls = None
        if certificate:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
        super().__init__("/v1/traces")
        self.taken, self.bodies = [], []

    @property
    def endpoint(self):
        return "http%s://127.0.0.1:%d" % ("s" if self.tls else "", self.port)

    def _serve(self, connection):
        with contextlib.suppress(OSError):  # who does not trust the certificate ends it
            super()._serve(self.tls.wrap_socket(connection, server_side=True) if self.tls else connection)

    def _behaviour(self, call):
        with self.lock:
            self.calls.append(call)
            self.log.write(call.body + b"\n")
            self.log.flush()
            behaviour = self.default["deliver"]
            if behaviour.executes:
                self.taken += spans_of(call.body)
                self.bodies.append(call.body)
            return behaviour

    def spans(self, kind=None, trace=None):
        with self.lock:
            return [span for span in self.taken if kind in (None, span.kind) and trace in (None, span.trace)]

    def wait(self, count, kind=None, trace=None, seconds=STUCK_AFTER_S):
        return wait_until(lambda: len(self.spans(kind, trace)) >= count and
                          sorted(self.spans(kind, trace), key=lambda span: span.start),
                          "%d spans of kind %s" % (count, kind), seconds)

    def wait_idle(self, world):
        """Until the daemons have sent all spans: those of what has ended are there. Stops them."""
        for daemon in [*world.workers(), *world.apis()]:
            if daemon.alive():
                daemon.stop()

    def complaints(self, world):
        """Each span has an id of its own, and lies within the span that it is below, if that one came too; nothing
        tells who the user is, or what a token or a key is."""
        wrong, by_id = [], {}
        for span in self.spans():
            if by_id.setdefault(span.id, span) is not span:
                wrong.append("two spans have the id %s" % span.id)
            if not re.fullmatch("[0-9a-f]{32}", span.trace) or not re.fullmatch("[0-9a-f]{16}", span.id):
                wrong.append("%r is not a span of trace %r" % (span.id, span.trace))
            if span.end < span.start:
                wrong.append("%r ends before it begins" % span)
        for span in by_id.values():
            above = by_id.get(span.parent)
            if above and (span.trace != above.trace or span.start < above.start):
                wrong.append("%r is not within %r" % (span, above))
            if above and above.kind == "CONSUMER" and span.end > above.end:
                wrong.append("%r ends after %r" % (span, above))
        text = b"".join(call.body for call in self.calls).decode()
        words = [*world.tokens, *world.tokens.values(), *self.secrets]
        return wrong + ["a span has %.20s in it" % word for word in words if word in text]

    def keep(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ["SPANS_KEPT"]))
        for number, body in enumerate(self.bodies):
            (folder / ("%d.json" % number)).write_bytes(body)

    secrets = ("?kind=", "?reference=", "Bearer")


@contextlib.contextmanager
def collector(world, certificate=None):
    """A collector as long as the block runs, to which the programs that start from now on send their spans; with a
    certificate over https."""
    found = Collector(world, certificate)
    world.receivers.append(found)
    world.settings["trace.endpoint"] = found.endpoint
    try:
        yield found
    finally:
        if found.listener:
            found.down()
        if os.environ.get("SPANS_KEPT"):
            found.keep()
