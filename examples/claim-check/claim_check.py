#!/usr/bin/python3
"""A claim check: a document of more than 64 KiB that an event delivers. The event has its id, size and SHA-256 only.

    claim_check.py send USER FILE             records document and event in one transaction; prints the event's id
    claim_check.py serve --listen HOST:PORT   the service: GET /documents/{id}
    claim_check.py receive --listen HOST:PORT --documents URL --folder FOLDER   the receiver: POST /invoices

The receiver knows the service's address, and takes none from an event. While it cannot get the document, it answers
503, and the event is delivered again. A document is kept under the event's key, so a repeat changes nothing. `serve`
removes a document a week after its event was executed or refused: until then it may be replayed or sent again.
"""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import re
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg2

UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
BODY_MAX, DOCUMENT_MAX, CLEAN_EVERY_S = 65536, 64 << 20, 3600
SEND = """WITH sent AS (SELECT issuing.enqueue('INVOICE_DOCUMENT', %(user)s, jsonb_build_object(
                            'document', %(id)s, 'bytes', %(bytes)s, 'sha256', %(sha256)s)) AS event_id)
          INSERT INTO orders.documents (id, event_id, content) SELECT %(id)s, event_id, %(content)s FROM sent
          RETURNING event_id"""
# A FAILED event is a question, and keeps its document.
CLEAN = """DELETE FROM orders.documents d USING (SELECT p.id, e.* FROM orders.documents p
                                                 CROSS JOIN LATERAL issuing.end_of(p.event_id) e) ended
           WHERE d.id = ended.id AND ended.status IN ('COMPLETED', 'REJECTED')
             AND ended.completed_at < now() - interval '7 days'"""


@contextlib.contextmanager
def transaction(conninfo):
    connection = psycopg2.connect(conninfo, connect_timeout=3)
    try:
        with connection, connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


def send(conninfo, user, content):
    with transaction(conninfo) as cursor:
        cursor.execute(SEND, {"user": user, "id": str(uuid.uuid4()), "bytes": len(content), "content": content,
                              "sha256": hashlib.sha256(content).hexdigest()})
        return cursor.fetchone()[0]


def clean(conninfo):
    while True:
        with contextlib.suppress(psycopg2.Error), transaction(conninfo) as cursor:
            cursor.execute(CLEAN)
        time.sleep(CLEAN_EVERY_S)


class Handler(BaseHTTPRequestHandler):
    timeout = 10

    def answer(self, status, content=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Service(Handler):
    def do_GET(self):
        found = re.fullmatch("/documents/(%s)" % UUID, self.path)
        try:
            with transaction(self.server.options.database) as cursor:
                cursor.execute("SELECT content FROM orders.documents WHERE id = %s", (found[1] if found else None,))
                row = cursor.fetchone()
        except psycopg2.Error:
            return self.answer(503)
        return self.answer(200, bytes(row[0]), "application/octet-stream") if row else self.answer(404)


def refused(code):
    return 422, json.dumps({"code": code}).encode()


class Receiver(Handler):
    """What a receiver of webhooks does first, verify the signature of the raw body, is in docs/routes.md."""

    def do_POST(self):
        length, key = self.headers.get("Content-Length", ""), self.headers.get("Idempotency-Key", "")
        if self.path != "/invoices" or not re.fullmatch("[0-9]{1,6}", length) or int(length) > BODY_MAX \
                or not re.fullmatch(UUID, key):
            return self.answer(404)
        return self.answer(*self.take(key, self.rfile.read(int(length))))

    def take(self, key, body):
        file = pathlib.Path(self.server.options.folder, key)
        if file.exists():
            return 204, b""
        try:
            event = json.loads(body)
            size, wanted, document = event["bytes"], event["sha256"], str(uuid.UUID(event["document"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            return refused("not_a_document")
        try:
            address = "%s/documents/%s" % (self.server.options.documents, document)
            with urllib.request.urlopen(address, timeout=5) as answer:
                content = answer.read(DOCUMENT_MAX + 1)
        except urllib.error.HTTPError as error:
            return refused("document_gone") if error.code == 404 else (503, b"")
        except OSError:
            return 503, b""
        if len(content) != size or hashlib.sha256(content).hexdigest() != wanted:
            return 503, b""  # cut off on its way
        half = file.with_name("%s.%s" % (key, uuid.uuid4()))
        with open(half, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        half.rename(file)  # whole, or not there
        folder = os.open(file.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return 204, b""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", default="dbname=issuing user=orders", metavar="CONNINFO")
    verbs = parser.add_subparsers(dest="verb", required=True)
    sending = verbs.add_parser("send")
    sending.add_argument("user")
    sending.add_argument("file", type=pathlib.Path)
    verbs.add_parser("serve").add_argument("--listen", default="127.0.0.1:8076", metavar="HOST:PORT")
    receiving = verbs.add_parser("receive")
    receiving.add_argument("--listen", default="127.0.0.1:8077", metavar="HOST:PORT")
    receiving.add_argument("--documents", default="http://127.0.0.1:8076", metavar="URL")
    receiving.add_argument("--folder", required=True)
    options = parser.parse_args()
    if options.verb == "send":
        return print(send(options.database, options.user, options.file.read_bytes()))
    host, port = options.listen.rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Service if options.verb == "serve" else Receiver)
    server.options = options
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if options.verb == "serve":
        threading.Thread(target=clean, args=(options.database,), daemon=True).start()
    return server.serve_forever()


if __name__ == "__main__":
    main()
