"""An HTTP proxy in this process: it connects (CONNECT), or answers what a story says."""
import contextlib
import socket
import threading

from relay import Listener


class ConnectingProxy(Listener):
    """flood: the head and the piece that it sends without end to whoever asks; None = it connects. to: the port on this
    machine to which it connects, whatever it is asked for."""

    def __init__(self, flood=None, to=None):
        self.flood, self.to, self.asked = flood, to, []
        super().__init__()

    def serve(self, connection):
        head = b""
        while b"\r\n\r\n" not in head:
            piece = connection.recv(4096)
            if not piece:
                return
            head += piece
        target = head.split(b" ")[1].decode()
        self.asked.append(target)
        if self.flood:
            connection.sendall(self.flood[0])
            while True:
                connection.sendall(self.flood[1] * 1000)
        host, port = target.rsplit(":", 1)
        with socket.create_connection(("127.0.0.1", self.to) if self.to else (host, int(port))) as peer:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=self._pass, args=(peer, connection), daemon=True).start()
            self._pass(connection, peer)

    @staticmethod
    def _pass(source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
