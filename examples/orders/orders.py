#!/usr/bin/python3
"""An order service that has each order charged exactly once, by a payment service that it never calls.

An order and the event PAYMENT_CHARGE are recorded in one transaction. issuing-worker delivers the event to the payment
service, with the event's id as the Idempotency-Key, until the payment service has answered.

    POST /orders            {"number": "A-1", "customer": "alice", "amount": 1999, "currency": "EUR"}
    GET /orders/{number}    the order, and the state of its charge: pending, charged, refused, in question
    GET /customers/{name}   what this customer has paid, some seconds late

The order's number, chosen by the client, makes a repeat safe: a client that got no answer, or a 503, sends the order
again. It has no authentication: it is an example, and listens on loopback by default.
"""
import argparse
import contextlib
import json
import re
import signal
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg2
import psycopg2.errors
import psycopg2.extras

BODY_MAX = 4096
COPY_EVERY_S = 1

CHARGE = """SELECT issuing.enqueue('PAYMENT_CHARGE', %(customer)s, jsonb_build_object(
                       'order', %(number)s, 'amount', %(amount)s, 'currency', %(currency)s)) AS charge_id"""
ORDER = """INSERT INTO orders.orders (number, customer, amount, currency, charge_id)
           VALUES (%(number)s, %(customer)s, %(amount)s, %(currency)s, %(charge_id)s)"""
# The event is the truth while it is there; it leaves after outbox.retention.
SHOW = """SELECT o.number, o.customer, o.amount, o.currency, o.charge_id, coalesce(c.state, o.state) AS state,
                 coalesce(c.reason, o.reason) AS reason, coalesce(c.result, o.result) AS result
          FROM orders.orders o LEFT JOIN LATERAL orders.charge_of(o.charge_id) c ON true
          WHERE o.number = %(number)s"""
COPY_ENDS = """UPDATE orders.orders o SET state = c.state, reason = c.reason, result = c.result
               FROM orders.orders p CROSS JOIN LATERAL orders.charge_of(p.charge_id) c
               WHERE p.state = 'pending' AND c.state IN ('charged', 'refused') AND o.number = p.number"""
# guard: a charged order is counted once
COUNT = """WITH counted AS (UPDATE orders.orders SET is_counted = true WHERE number IN (
                   SELECT number FROM orders.orders WHERE state = 'charged' AND NOT is_counted ORDER BY number LIMIT 1000
                   FOR UPDATE SKIP LOCKED) RETURNING customer, currency, amount)
           INSERT INTO orders.analytics AS a (customer, currency, orders, amount)
           SELECT customer, currency, count(*), sum(amount) FROM counted GROUP BY 1, 2 ORDER BY 1, 2
           ON CONFLICT (customer, currency) DO UPDATE
           SET orders = a.orders + excluded.orders, amount = a.amount + excluded.amount"""
PAID = "SELECT currency, orders, amount FROM orders.analytics WHERE customer = %(customer)s ORDER BY currency"


@contextlib.contextmanager
def transaction(conninfo):
    """A cursor whose statements are committed together, or not at all. A busy service would use a pool."""
    connection = psycopg2.connect(conninfo, connect_timeout=3, options="-c statement_timeout=5s",
                                  cursor_factory=psycopg2.extras.RealDictCursor)
    try:
        with connection, connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


def show(conninfo, number):
    with transaction(conninfo) as cursor:
        cursor.execute(SHOW, {"number": number})
        return cursor.fetchone()


def take(conninfo, order):
    """The HTTP status and the answer."""
    try:
        with transaction(conninfo) as cursor:
            cursor.execute(CHARGE, order)
            # guard: an order and its charge are one transaction
            cursor.execute(ORDER, {**order, **cursor.fetchone()})
    except psycopg2.errors.UniqueViolation:  # the number exists: the event was rolled back with the order
        known = show(conninfo, order["number"])
        is_same = all(known[name] == order[name] for name in order)
        return (200, known) if is_same else (409, {"error": "this number is another order's"})
    return 201, show(conninfo, order["number"])


def follow_ends(conninfo):
    """Keeps how charges ended, for as long as the orders are kept, and counts those that were charged. Each statement
    is a transaction: a kill between any two leaves a copy that is late, and never one that is wrong."""
    while True:
        time.sleep(COPY_EVERY_S)
        for statement in (COPY_ENDS, COUNT):
            with contextlib.suppress(psycopg2.Error), transaction(conninfo) as cursor:
                cursor.execute(statement)


def read_order(text):
    """The order of a body; ValueError says what is wrong with it."""
    order = json.loads(text)
    rules = {"number": (str, lambda value: re.fullmatch(r"[A-Za-z0-9-]{1,64}", value)),
             "customer": (str, lambda value: re.fullmatch(r"[ -~]{1,128}", value) and value not in (".", "..")),
             "amount": (int, lambda value: 0 < value < 10**12),
             "currency": (str, lambda value: re.fullmatch(r"[A-Z]{3}", value))}
    if not isinstance(order, dict) or set(order) != set(rules):
        raise ValueError("want an object with " + ", ".join(rules))
    for name, (kind, is_good) in rules.items():
        if type(order[name]) is not kind or not is_good(order[name]):
            raise ValueError(name + " has no usable value")
    return order


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10  # seconds, for a client that is silent

    def answer(self, status, body, **headers):
        data = json.dumps(body, default=str).encode() + b"\n"
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def handle_with(self, function, *arguments):
        try:
            self.answer(*function(self.server.conninfo, *arguments))
        except psycopg2.Error as error:
            # Also when the commit was sent and no answer came: nobody knows whether the order was taken.
            self.log_message("database: %s", str(error).strip())
            self.answer(503, {"error": "the database does not answer; send the same again"}, **{"Retry-After": 1})

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > BODY_MAX:
            self.close_connection = True
            return self.answer(413, {"error": "a body of at most %d bytes is wanted" % BODY_MAX}, Connection="close")
        body = self.rfile.read(int(length))
        if self.path != "/orders":
            return self.answer(404, {"error": "there is no such path"})
        try:
            order = read_order(body)
        except (ValueError, RecursionError) as error:
            return self.answer(400, {"error": str(error)})
        return self.handle_with(take, order)

    def do_GET(self):
        customer = re.fullmatch(r"/customers/([^/?]{1,384})", self.path)
        if customer:
            def paid(conninfo):
                with transaction(conninfo) as cursor:
                    cursor.execute(PAID, {"customer": urllib.parse.unquote(customer[1])})
                    return 200, cursor.fetchall()
            return self.handle_with(paid)
        found = re.fullmatch(r"/orders/([A-Za-z0-9-]{1,64})", self.path)
        if not found:
            return self.answer(404, {"error": "there is no such path"})

        def look(conninfo):
            order = show(conninfo, found[1])
            return (200, order) if order else (404, {"error": "there is no such order"})
        return self.handle_with(look)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listen", default="127.0.0.1:8074", metavar="HOST:PORT")
    parser.add_argument("--database", default="dbname=issuing user=orders", metavar="CONNINFO")
    options = parser.parse_args()
    host, port = options.listen.rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Handler)
    server.conninfo = options.database
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=follow_ends, args=(options.database,), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
