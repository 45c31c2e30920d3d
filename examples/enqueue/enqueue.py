"""Debian: python3-psycopg. Where the database is: PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSWORD. psycopg2 does it
too."""
import json

import psycopg


def take(number, customer, amount, currency):
    with psycopg.connect("") as db, db.cursor() as cursor:  # commits at the end, or rolls back
        cursor.execute("SELECT issuing.enqueue('PAYMENT_CHARGE', %s, %s)",
                       (customer, json.dumps({"order": number, "amount": amount, "currency": currency})))
        event, = cursor.fetchone()
        cursor.execute("INSERT INTO orders.orders (number, customer, amount, currency, charge_id)"
                       " VALUES (%s, %s, %s, %s, %s)", (number, customer, amount, currency, event))


take("A-1003", "alice", 1999, "EUR")
