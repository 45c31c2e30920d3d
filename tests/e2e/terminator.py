#!/usr/bin/python3
"""terminator.py --listen PORT --to PORT --certificate FILE --key FILE [--client-authority FILE] [--tls-1-2]: ends TLS
in front of a service, as a load balancer does. With --client-authority a client without a certificate of that authority
is refused. Each connection is a line of JSON on standard output. SIGTERM ends it.

Leaves out: keeping connections to the service, limits: it is for tests.
"""
import argparse
import asyncio
import contextlib
import itertools
import json
import signal
import ssl

MOST = 65536


def note(**members):
    print(json.dumps(members), flush=True)


async def pump(reader, writer):
    """Until one side ends, in good order or not."""
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await reader.read(MOST):
            writer.write(data)
            await writer.drain()


class Terminator:
    def __init__(self, options):
        self.to = options.to
        self.numbers = itertools.count(1)
        self.options = options

    async def pass_on(self, reader, writer):
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
            await self.pass_on(reader, writer)
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
        context.set_alpn_protocols(["http/1.1"])
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.options.listen, ssl=context, backlog=1000)
        leaving = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
        note(listening=self.options.listen)
        await leaving.wait()
        server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--to", type=int, required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--client-authority")
    parser.add_argument("--tls-1-2", action="store_true")
    asyncio.run(Terminator(parser.parse_args()).run())


if __name__ == "__main__":
    main()
