"""Relay: stands between the worker and a peer of the sandbox, in this process, and lets a story say what the worker
gets of each answer.

The story's function gets the call (receiver.Call) and the peer's answer (client.Answer); it returns the body that is
sent at once, and what the peer says besides: bytes that come behind the next request of that connection, before its
answer.
"""
import contextlib
import socket
import threading

import client
import processes
from receiver import Receiver, answer_bytes


class Listener:
    """A server in this process. `serve` has a thread for each connection, which ends quietly when that is cut."""

    def __init__(self):
        self.port = processes.free_port()
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError, client.Closed), connection:
            self.serve(connection)


class Relay(Listener):
    def __init__(self, port, change):
        self.to, self.change = port, change
        super().__init__()

    def serve(self, connection):
        buffered = stray = b""
        while True:
            call, buffered = Receiver.read_call(connection, buffered)
            if call is None:
                return
            connection.sendall(stray)
            answer = client.call(self.to, call.method, call.path, call.headers, call.body or None)
            body, stray = self.change(call, answer)
            connection.sendall(answer_bytes(answer.status, body, [("Content-Type", "application/json")]))


@contextlib.contextmanager
def relay(world, option, port, change):
    """Between the worker and the peer at that port of ours, as long as the block runs. Start the worker inside."""
    found = Relay(port, change)
    world.settings[option] = "http://127.0.0.1:%d" % found.port
    try:
        yield found
    finally:
        found.listener.close()
