#!/usr/bin/python3
"""terminator.py --listen PORT --to PORT --certificate FILE --key FILE [--http2] [--client-authority FILE] [--tls-1-2]:
ends TLS in front of a service, as a load balancer does. With --client-authority a client without a certificate of
that authority is refused.

In HTTP/1.1 bytes pass as they are. With --http2 each request of a client that speaks it goes to the service on a
connection of its own; an answer that does not come is a 502. Each connection, and over HTTP/2 each request with the
number of those on the same connection at that moment, is a line of JSON on standard output. SIGTERM: no new connection,
REFUSED_STREAM to new requests, GOAWAY when the others are answered, status 0. Needs Debian's python3-h2.

Leaves out: keeping connections to the service, bodies over 64 KiB, limits: it is for tests.
"""
import argparse
import asyncio
import contextlib
import itertools
import json
import signal
import ssl

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

MOST = 65536
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding")


def note(**members):
    print(json.dumps(members), flush=True)


async def pump(reader, writer):
    """Until one side ends, in good order or not."""
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await reader.read(MOST):
            writer.write(data)
            await writer.drain()


async def forward(port, headers, body):
    """One request of HTTP/2 to the service; returns status, headers and body."""
    named = dict(headers)
    lines = ["%s %s HTTP/1.1" % (named[":method"], named[":path"]), "host: " + named[":authority"], "connection: close",
             "content-length: %d" % len(body)]
    lines += ["%s: %s" % pair for pair in headers if not pair[0].startswith(":") and pair[0] != "content-length"]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in rest if line)]
        length = dict(pairs).get("content-length")
        body = await reader.read() if length is None else await reader.readexactly(int(length))
        return first.split(" ")[1], [pair for pair in pairs if pair[0] not in HOP_BY_HOP], body
    finally:
        writer.close()


class Http2:
    """One connection."""

    def __init__(self, terminator, number, reader, writer):
        self.terminator, self.number, self.reader, self.writer = terminator, number, reader, writer
        self.state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.requests, self.tasks = {}, {}

    def flush(self):
        data = self.state.data_to_send()
        if data and not self.writer.is_closing():
            self.writer.write(data)

    async def answer(self, stream, headers, body):
        try:
            status, pairs, content = await forward(self.terminator.to, headers, body)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            status, pairs, content = "502", [], b""
        del self.tasks[stream]
        with contextlib.suppress(h2.exceptions.ProtocolError):  # the client has given it up
            self.state.send_headers(stream, [(":status", status), *pairs])
            for at in range(0, len(content), self.state.max_outbound_frame_size):
                self.state.send_data(stream, content[at:at + self.state.max_outbound_frame_size])
            self.state.end_stream(stream)
        self.flush()
        self.leave_if_done()

    def leave_if_done(self):
        if self.terminator.is_leaving and not self.tasks:
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self.state.close_connection()
            self.flush()
            self.writer.close()

    def take(self, event):
        stream = getattr(event, "stream_id", None)
        if isinstance(event, h2.events.RequestReceived):
            self.requests[stream] = (event.headers, bytearray())
        elif isinstance(event, h2.events.DataReceived):
            self.requests[stream][1].extend(event.data)
            self.state.acknowledge_received_data(event.flow_controlled_length, stream)
        elif isinstance(event, h2.events.StreamReset):
            self.requests.pop(stream, None)
        elif isinstance(event, h2.events.StreamEnded) and stream in self.requests:
            headers, body = self.requests.pop(stream)
            if self.terminator.is_leaving:
                note(refused=self.number)
                self.state.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
                return
            self.tasks[stream] = asyncio.get_running_loop().create_task(self.answer(stream, headers, bytes(body)))
            note(request=self.number, at_once=len(self.tasks))

    async def serve(self):
        self.state.initiate_connection()
        self.flush()
        with contextlib.suppress(OSError, ssl.SSLError, h2.exceptions.ProtocolError):
            while data := await self.reader.read(MOST):
                for event in self.state.receive_data(data):
                    self.take(event)
                self.flush()


class Terminator:
    def __init__(self, options):
        self.to, self.is_leaving = options.to, False
        self.numbers = itertools.count(1)
        self.connections = set()
        self.options = options

    async def serve_http1(self, reader, writer):
        try:
            service = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            return
        pumps = [asyncio.ensure_future(pump(reader, service[1])), asyncio.ensure_future(pump(service[0], writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            service[1].close()

    async def serve(self, reader, writer):
        number, tls = next(self.numbers), writer.get_extra_info("ssl_object")
        protocol = tls.selected_alpn_protocol() or "none"
        subject = dict(pair for names in (tls.getpeercert() or {}).get("subject", ()) for pair in names)
        note(connection=number, protocol=protocol, version=tls.version(), client=subject.get("commonName"))
        try:
            if protocol == "h2":
                connection = Http2(self, number, reader, writer)
                self.connections.add(connection)
                try:
                    await connection.serve()
                finally:
                    self.connections.discard(connection)
            else:
                await self.serve_http1(reader, writer)
        finally:
            writer.close()

    async def run(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.options.certificate, self.options.key)
        if self.options.client_authority:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.options.client_authority)
        if self.options.tls_1_2:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2", "http/1.1"] if self.options.http2 else ["http/1.1"])
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.options.listen, ssl=context, backlog=1000)
        leaving = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
        note(listening=self.options.listen)
        await leaving.wait()
        self.is_leaving = True
        server.close()
        while self.connections:
            for connection in list(self.connections):
                connection.leave_if_done()
            await asyncio.sleep(0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--to", type=int, required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--http2", action="store_true")
    parser.add_argument("--client-authority")
    parser.add_argument("--tls-1-2", action="store_true")
    asyncio.run(Terminator(parser.parse_args()).run())


if __name__ == "__main__":
    main()
