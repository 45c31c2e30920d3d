"""Receiver: a service that events are delivered to, in this process. It executes each Idempotency-Key once, keeps every
call as it arrived, and answers one event's calls as a story says.

A delivery is a POST or a PUT of any path; the event is the one that its Idempotency-Key names. A look-up is a GET, and
the event is the last part of its path: 200 when the key was executed, 404 when not. What a story gives a call is a
behaviour: says(), resets(), closes(), is_silent(), sends(), waits(). With executes=True the call takes effect before it
misbehaves; is_held() takes effect only when the story calls run_late().

Unlike the sandbox it has no rule, no ledger and no word of ours in it: it is written from the contract of routes alone.
"""
import collections
import contextlib
import re
import socket
import struct
import threading
import time

import processes
from assertions import Failed, STUCK_AFTER_S, wait_until

Call = collections.namedtuple("Call", "kind event method path headers body at")
Behaviour = collections.namedtuple("Behaviour", "executes act")
SILENT_S = 10 * STUCK_AFTER_S  # no test waits for so long
ROWS = 300  # more do not fit into an argument of psql


def answer_bytes(status, body=b"", headers=()):
    lines = ["HTTP/1.1 %d Told" % status, *("%s: %s" % pair for pair in headers)]
    if status != 204 and status >= 200:
        lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body if status != 204 else b"")


def says(status, body=b"{}", headers=(), executes=None):
    """executes: by default what the status says."""
    body = body.encode() if isinstance(body, str) else body
    data = answer_bytes(status, body, headers)

    def act(connection):
        connection.sendall(data)
        return True
    return Behaviour(200 <= status < 300 if executes is None else executes, act)


def sends(data, executes=False):
    """These bytes, whatever they are, and the end of the connection."""
    def act(connection):
        connection.sendall(data)
        return False
    return Behaviour(executes, act)


def resets(executes=False):
    def act(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
    return Behaviour(executes, act)


def closes(executes=False):
    return Behaviour(executes, lambda connection: False)


def is_silent(executes=False):
    """Until the caller gives up."""
    def act(connection):
        connection.settimeout(SILENT_S)
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                pass
        return False
    return Behaviour(executes, act)


def is_held():
    """Silent, and executed only by run_late()."""
    return is_silent("late")


def waits(seconds, executes=True):
    """Answers well, but so much later."""
    def act(connection):
        time.sleep(seconds)
        connection.sendall(answer_bytes(200, b"{}"))
        return True
    return Behaviour(executes, act)


def answers_after(signal, status, body):
    """Answers once that threading.Event is set."""
    data = answer_bytes(status, body.encode())

    def act(connection):
        signal.wait(SILENT_S)
        connection.sendall(data)
        return True
    return Behaviour(True, act)


class Receiver:
    """Use receiver(world), which ends it with the block."""

    def __init__(self, path="/charges"):
        self.path = path
        self.port = processes.free_port()
        self.lock = threading.Lock()
        self.calls, self.executed, self.outstanding = [], {}, []  # executed: {key: body of the first}
        self.plans = {"deliver": {}, "lookup": {}}
        self.default = {"deliver": says(200), "lookup": None}
        self.listener, self.connections = None, set()
        self.up()

    @property
    def url(self):
        return "http://127.0.0.1:%d%s" % (self.port, self.path)

    # ---- what it does ----

    def plan(self, event, *behaviours, then=None):
        """The answers to that event's next deliveries; afterwards `then`, or as to everybody."""
        self.plans["deliver"][event] = [list(behaviours), then]

    def plan_lookup(self, event, *behaviours, then=None):
        self.plans["lookup"][event] = [list(behaviours), then]

    def always(self, behaviour, lookup=None):
        """To everybody whose plan is over."""
        self.default = {"deliver": behaviour, "lookup": lookup}

    def clear(self):
        """From now on all is well."""
        with self.lock:
            self.plans = {"deliver": {}, "lookup": {}}
            self.default = {"deliver": says(200), "lookup": None}

    def run_late(self):
        """Executes what is held; returns how many calls those were."""
        with self.lock:
            outstanding, self.outstanding = self.outstanding, []
            for key, body in outstanding:
                self.executed.setdefault(key, body)
        return len(outstanding)

    def down(self):
        """Connections are refused; those that are open are reset."""
        listener, self.listener = self.listener, None
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        with self.lock:
            open_ones, self.connections = self.connections, set()
        for connection in open_ones:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def up(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(512)
        self.listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    # ---- what a story asks ----

    def deliveries(self, event=None):
        with self.lock:
            return [call for call in self.calls if call.kind == "deliver" and event in (None, call.event)]

    def delivered(self):
        """The events that came, however often: an answer that is late on a busy machine has a repeat, as it should."""
        return {call.event for call in self.deliveries()}

    def lookups(self, event=None):
        with self.lock:
            return [call for call in self.calls if call.kind == "lookup" and event in (None, call.event)]

    def wait_delivery(self, event, count=1, seconds=STUCK_AFTER_S):
        return wait_until(lambda: len(self.deliveries(event)) >= count and self.deliveries(event),
                          "%d deliveries of %s" % (count, event), seconds)

    def complaints(self, world):
        """What must hold whatever the answers were, by the receiver's own record; see invariants.py."""
        with self.lock:
            calls, executed, held = list(self.calls), dict(self.executed), {key for key, _ in self.outstanding}
        events = {row["id"]: row for row in world.rows("SELECT id, status, event_type, reason_code,"
                                                       " payload::text AS payload, first_sent_at FROM outbox_events")}
        wrong, first = [], {}
        for call in calls:
            if call.event not in events:
                wrong.append("the receiver was called for %r, which is not an event" % call.event)
                continue
            if call.kind != "deliver":
                continue
            same = (call.method, call.path, call.body, call.headers.get("ce-type"))
            if first.setdefault(call.event, same) != same:
                wrong.append("event %s: two deliveries under one key differ: %r, %r" % (call.event, first[call.event],
                                                                                        same))
            if call.body.decode() != events[call.event]["payload"]:
                wrong.append("event %s: delivered was %r" % (call.event, call.body[:200]))
        called = {call.event for call in calls if call.kind == "deliver"}
        for event, row in events.items():
            if event not in called:
                continue
            if row["status"] == "COMPLETED" and event not in executed and "resolved" not in world.allowed:
                wrong.append("event %s: COMPLETED, and was never executed" % event)
            if row["status"] == "REJECTED" and event in executed and "rejected_executed" not in world.allowed:
                wrong.append("event %s: REJECTED, and was executed" % event)
            if row["status"] == "REJECTED" and event in held:
                wrong.append("event %s: REJECTED, and may still be executed" % event)
        return wrong

    # ---- the server ----

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                if self.listener is not listener:
                    connection.close()
                    return
                self.connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        buffered = b""
        with contextlib.suppress(OSError), connection:
            while True:
                call, buffered = self.read_call(connection, buffered)
                if call is None or not self._behaviour(call).act(connection):
                    break
        with self.lock:
            self.connections.discard(connection)

    @staticmethod
    def read_call(connection, buffered):
        while b"\r\n\r\n" not in buffered:
            piece = connection.recv(65536)
            if not piece:
                return None, b""
            buffered += piece
        head, buffered = buffered.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {}
        for line in lines:
            name, value = line.split(":", 1)
            if name.lower() in headers:
                raise Failed("two headers %s in %r" % (name, head))
            headers[name.lower()] = value.strip()
        size = int(headers.get("content-length", 0))
        while len(buffered) < size:
            piece = connection.recv(65536)
            if not piece:
                return None, b""
            buffered += piece
        kind = "lookup" if method == "GET" else "deliver"
        event = re.split("[/?=]", path)[-1] if kind == "lookup" else headers.get("idempotency-key")
        return Call(kind, event, method, path, headers, buffered[:size], time.monotonic()), buffered[size:]

    def _behaviour(self, call):
        """Notes the call, and what it does."""
        with self.lock:
            self.calls.append(call)
            left, then = self.plans[call.kind].get(call.event, ([], None))
            chosen = left.pop(0) if left else then or self.default[call.kind]
            if call.kind == "lookup":
                return chosen or says(200 if call.event in self.executed else 404)
            if chosen.executes == "late":
                self.outstanding.append((call.event, call.body))
            elif chosen.executes:
                self.executed.setdefault(call.event, call.body)
            return chosen


@contextlib.contextmanager
def receiver(world, path="/charges"):
    """A receiver as long as the block runs; its record is compared with the tables after the story."""
    found = Receiver(path)
    world.receivers.append(found)
    try:
        yield found
    finally:
        if found.listener:
            found.down()


def route(world, to, event_type="PAYMENT_CHARGE", lookup=False, **options):
    """Configures it for the programs that start from now on. options: as in the file; a value None leaves one out."""
    options = {"url": to.url, "timeout": "1s", **options}
    if lookup:
        options["lookup_url"] = to.url + "/{id}"
    for name, value in options.items():
        if value is not None:
            world.settings["route.%s.%s" % (event_type, name)] = value


def event_ids(world, count):
    """In rising order."""
    return sorted(world.sql("SELECT issuing.uuid7() FROM generate_series(1, %d)" % count).split())


def quoted(text):
    return "'%s'" % text.replace("'", "''")


def insert(world, users, event_type="PAYMENT_CHARGE", ids=None, payload=None, traceparent=None):
    """One event for each user, as another service does it, up to ROWS of them in one transaction. Returns their ids, in
    the order of users."""
    users = [users] if isinstance(users, str) else users
    ids = ids or event_ids(world, len(users))
    rows = ["('%s', '%s', %s, %s, %s)" % (
        event, event_type, quoted(user), quoted(payload or '{"order": "%s", "amount": 12.50}' % event),
        quoted(traceparent) if traceparent else "NULL") for event, user in zip(ids, users)]
    for first in range(0, len(rows), ROWS):
        world.sql("INSERT INTO outbox_events (id, event_type, user_id, payload, traceparent) VALUES " +
                  ", ".join(rows[first:first + ROWS]))
    return ids


def wait_ends(world, ids, seconds=STUCK_AFTER_S):
    """{id: (status, reason code)} once all of them are final, in the order of ids."""
    world.wait_final(ids, seconds)
    found = {row["id"]: (row["status"], row["reason_code"]) for row in world.rows(
        "SELECT id, status, reason_code FROM outbox_events WHERE id IN ('%s')" % "', '".join(ids))}
    return {event: found[event] for event in ids}


@contextlib.contextmanager
def others(world, event_type="PAYMENT_CHARGE", every=0.05):
    """While the block runs, events of other users are delivered and answered well: what fails meanwhile fails alone."""
    stop, wrong = threading.Event(), []

    def run():
        number = 0
        while not stop.wait(every):
            try:
                insert(world, "other-%d" % number, event_type)
                number += 1
            except Exception as error:  # noqa: BLE001 - reported by the thread that waits for this one
                wrong.append(error)
                return
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(STUCK_AFTER_S)
    if wrong:
        raise Failed("events of others: %r" % wrong)
