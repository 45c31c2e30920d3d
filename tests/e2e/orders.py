"""examples/orders: a service that inserts each order and its PAYMENT_CHARGE in one transaction; the worker delivers the
charge to the payment service of the sandbox.

Story: a service that calls the payment service by itself loses a charge when it dies between its commit and the call,
and charges without an order when it dies between the call and the commit. Orders are compared with what the payment
service has charged.
"""
import configparser
import contextlib
import os
import random
import re
import signal
import subprocess
import threading
import time

import client
from harness import (assert_equal, assert_true, ENVIRONMENT, Failed, free_port, Program, psql, psql_program,
                     ROOT, run, Skipped, slow, STUCK_AFTER_S, test, wait_until)

EXAMPLE = ROOT / "examples" / "orders"
PATIENCE_S = STUCK_AFTER_S  # of a client that repeats an order until it is answered


class Shop(Program):
    """The order service, and a client's calls to it."""

    def __init__(self, world):
        self.port = free_port()
        super().__init__("orders", ["/usr/bin/python3", "-B", EXAMPLE / "orders.py", "--listen",
                                    "127.0.0.1:%d" % self.port, "--database", world.conninfo("orders")],
                         world.dir / "orders.log")

    def wait_ready(self):
        wait_until(lambda: client.call(self.port, "GET", "/").status == 404, "the order service listens")
        return self

    def post(self, number, customer="alice", amount=1999, **more):
        return client.call(self.port, "POST", "/orders", {}, {"number": number, "customer": customer, "amount": amount,
                                                             "currency": "EUR", **more})

    def get(self, number):
        return client.call(self.port, "GET", "/orders/" + number).json()

    def place(self, *words):
        """Repeats the order until it is answered, as every client does. Returns the event that charges it."""
        def answered():
            answer = self.post(*words)
            if answer.status == 503:
                return None
            if answer.status not in (200, 201):
                raise Failed("an order was answered with %r" % answer)
            return answer.json()["charge_id"]
        return wait_until(answered, "an order is answered", PATIENCE_S)

    def wait_state(self, number, *states):
        return wait_until(lambda: self.get(number)["state"] in states and self.get(number),
                          "%s is %s" % (number, "/".join(states)))


def shipped_route(port):
    """The section that the example ships, with the sandbox's port, and the short time limit of stories."""
    file = configparser.ConfigParser(interpolation=None)
    file.read_string((EXAMPLE / "issuing.conf").read_text())
    section, = file.sections()
    found = {"%s.%s" % (section, name): value.replace("127.0.0.1:8073", "127.0.0.1:%d" % port)
             for name, value in file[section].items()}
    return {**found, section + ".timeout": "1s"}


def open_shop(world, workers=1, has_route=True, sandbox=(), **route):
    """Sandbox, workers and the service. route: options of the route, None leaves one out."""
    if not has_psycopg2():
        raise Skipped("the package python3-psycopg2 is not there")
    world.sql((EXAMPLE / "orders.sql").read_text())
    world.may_send("orders", "PAYMENT_CHARGE")
    world.start_sandbox(*sandbox)
    if has_route:
        options = {**shipped_route(world.sandbox.route),
                   **{"route.PAYMENT_CHARGE." + name: value for name, value in route.items()}}
        world.settings.update({name: value for name, value in options.items() if value is not None})
    for _ in range(workers):
        world.start_worker()
    shop = Shop(world)
    world.programs.append(shop)
    return shop.wait_ready()


def has_psycopg2():
    return run(["/usr/bin/python3", "-c", "import psycopg2"]).returncode == 0


def wait_charged(world, seconds=PATIENCE_S):
    wait_until(lambda: world.sql("SELECT count(*) FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING')") == "0",
               "no charge is open", seconds, 0.05)


def check_books(world, wanted):
    """wanted: {number: the event that a client was told}. Orders, events and charges are the same ones."""
    rows = world.rows("SELECT o.number, o.charge_id, e.status, e.reason_code, e.payload ->> 'order' AS of_order"
                      " FROM orders.orders o LEFT JOIN outbox_events e ON e.id = o.charge_id")
    assert_equal({row["number"]: row["charge_id"] for row in rows}, wanted, "orders, and what their clients were told")
    assert_equal([row for row in rows if (row["status"], row["of_order"]) != ("COMPLETED", row["number"])], [],
                 "orders whose charge is not COMPLETED")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE event_type = 'PAYMENT_CHARGE'"), str(len(wanted)),
                 "events: one for each order")
    charges = world.sandbox.charges()
    assert_equal(charges["executed_twice"], 0, "orders that were charged twice")
    assert_equal({row["key"] for row in charges["charges"] if row["executions"] == 1}, set(wanted.values()), "charges")
    assert_equal(charges["executions"], len(wanted), "charges, counted")


def wait_counted(world):
    """What follows the orders late, and says the same as the orders in the end: each counted once, whatever was
    killed."""
    wait_until(lambda: world.sql("SELECT count(*) FROM orders.orders WHERE state = 'charged' AND NOT is_counted") == "0",
               "all are counted", PATIENCE_S)
    sums = "SELECT customer, currency, %s FROM orders.%s ORDER BY 1, 2"
    assert_equal(world.sql(sums % ("orders, amount", "analytics")),
                 world.sql(sums.replace("ORDER", "WHERE state = 'charged' GROUP BY 1, 2 ORDER") %
                           ("count(*), sum(amount)", "orders")), "what customers have paid")


@test
def an_order_is_charged_once_and_shown_with_the_answer_of_the_payment_service(world):
    shop = open_shop(world)
    first = shop.post("A-1", "o'brien \"x\" 100%", 1999)
    assert_equal(first.status, 201, "the answer")
    shown = shop.wait_state("A-1", "charged")
    charge, = world.sandbox.charges()["charges"]
    assert_equal((charge["key"], charge["user_id"], charge["executions"]),
                 (first.json()["charge_id"], "o'brien \"x\" 100%", 1), "the charge")
    assert_equal(shown["result"], {"charge_id": shown["result"]["charge_id"], "status": "succeeded", "amount": 1999,
                                   "currency": "EUR"}, "the kept answer")
    assert_true(shown["result"]["charge_id"] in charge["answer"], "it is the payment service's own")
    repeat = shop.post("A-1", "o'brien \"x\" 100%", 1999)
    assert_equal((repeat.status, repeat.json()), (200, shown), "the same order again")
    assert_equal(shop.post("A-1", "o'brien \"x\" 100%", 2000).status, 409, "the number of another order")
    check_books(world, {"A-1": charge["key"]})


@test
def how_a_charge_ended_outlives_its_event(world):
    """outbox_events is cleaned; an order is kept for years."""
    shop = open_shop(world)
    world.sandbox.fault("charge", "status", status=422, code="card_declined", count=1)
    shop.place("A-1")
    assert_equal(shop.wait_state("A-1", "refused")["reason"], "card_declined", "why")
    shop.place("A-2")
    shown = shop.wait_state("A-2", "charged")
    wait_until(lambda: world.sql("SELECT count(*) FROM orders.orders WHERE state = 'pending'") == "0",
               "both are copied")
    world.sql("DELETE FROM outbox_attempts; DELETE FROM outbox_events")
    assert_equal(shop.get("A-2"), shown, "the charged order")
    assert_equal((shop.get("A-1")["state"], shop.get("A-1")["reason"]), ("refused", "card_declined"), "the refused one")


@test
def what_a_customer_has_paid_follows_the_charges_and_counts_no_refused_one(world):
    shop = open_shop(world)
    world.sandbox.fault("charge", "status", status=422, code="card_declined", count=1)
    shop.place("A-1", "o'brien 100%", 700)
    shop.wait_state("A-1", "refused")
    for number, amount in (("A-2", 1999), ("A-3", 1)):
        shop.place(number, "o'brien 100%", amount)
        shop.wait_state(number, "charged")
    shown = wait_until(lambda: client.call(shop.port, "GET", "/customers/o'brien%20100%25").json(), "it is counted")
    wait_until(lambda: world.sql("SELECT sum(orders) FROM orders.analytics") == "2", "both are counted")
    wait_counted(world)
    shown = client.call(shop.port, "GET", "/customers/o'brien%20100%25").json()
    assert_equal(shown, [{"currency": "EUR", "orders": 2, "amount": "2000"}], "what is shown")


@test
def a_charge_that_no_program_can_settle_is_shown_as_a_question_until_a_person_decides(world):
    shop = open_shop(world)
    world.sandbox.fault("charge", "status", status=418, count=1)
    event = shop.place("A-1")
    assert_equal(shop.wait_state("A-1", "in question")["reason"], "route_http_418", "why")
    done = world.ctl("replay", event, "--reason", "the payment service is well again")
    assert_equal(done.returncode, 0, "replay: " + done.stderr)
    shop.wait_state("A-1", "charged")
    check_books(world, {"A-1": event})


@test
def a_service_that_dies_in_its_transaction_leaves_neither_order_nor_charge(world):
    shop = open_shop(world)
    with world.holding("LOCK TABLE orders.orders IN SHARE MODE"):
        asked = threading.Thread(target=post_quietly, args=(shop,), daemon=True)
        asked.start()
        wait_until(lambda: world.blocked() == 1, "the event is inserted, the order waits")
        shop.kill()
        asked.join(PATIENCE_S)
    wait_until(lambda: world.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'orders'") == "0",
               "its session is gone")
    assert_equal(world.sql("SELECT (SELECT count(*) FROM orders.orders), (SELECT count(*) FROM outbox_events)"), "0|0",
                 "rows")
    shop.start().wait_ready()
    event = shop.place("A-1")
    wait_charged(world)
    check_books(world, {"A-1": event})


def post_quietly(shop):
    with contextlib.suppress(OSError, client.Closed):
        shop.post("A-1")


@test
def the_same_order_at_the_same_moment_is_one_order_and_one_charge(world):
    shop = open_shop(world)
    body = {"number": "A-1", "customer": "alice", "amount": 1999, "currency": "EUR"}
    request = client.request_bytes("POST", "/orders", {}, body)
    answers = client.burst([(shop.port, request)] * 12)
    assert_equal(sorted(answer.status for answer in answers), [200] * 11 + [201], "answers")
    events = {answer.json()["charge_id"] for answer in answers}
    assert_equal(len(events), 1, "events that the answers name")
    wait_charged(world)
    check_books(world, {"A-1": events.pop()})


@test
def without_its_database_the_service_says_that_it_does_not_know(world):
    shop = open_shop(world)
    world.suite.stop_database()
    try:
        answer = shop.post("A-1")
        assert_equal((answer.status, answer.header("Retry-After")), (503, "1"), "the answer")
    finally:
        world.suite.start_database()
    event = shop.place("A-1")
    wait_charged(world)
    check_books(world, {"A-1": event})


@test
def what_a_service_inserts_wrongly_stops_no_order(world):
    shop = open_shop(world)
    world.may_send("orders", "CARD_ISSUE")
    psql("SELECT issuing.enqueue('PAYMENT_CHARGE', 'none', '[1]'),"
         " issuing.enqueue('CARD_ISSUE', 'none', '{\"kind\": \"no such\"}')", world.conninfo("orders"))
    # Past the table's own checks, as a restored backup of another release might be.
    world.sql("SET session_replication_role = replica; INSERT INTO outbox_events (event_type, user_id, payload)"
              " VALUES ('PAYMENT_CHARGE', 'huge', to_jsonb(repeat('x', 70000)))")
    event = shop.place("A-1")
    wait_charged(world)
    assert_equal(world.rows("SELECT event_type, user_id, status, reason_code FROM outbox_events"
                            " WHERE id <> '%s' ORDER BY event_type, user_id" % event),
                 [{"event_type": "CARD_ISSUE", "user_id": "none", "status": "FAILED", "reason_code": "payload_invalid"},
                  {"event_type": "PAYMENT_CHARGE", "user_id": "huge", "status": "FAILED",
                   "reason_code": "payload_invalid"},
                  {"event_type": "PAYMENT_CHARGE", "user_id": "none", "status": "REJECTED",
                   "reason_code": "bad_request"}],
                 "what was wrong")
    assert_equal(shop.get("A-1")["state"], "charged", "the order")
    assert_equal(world.sandbox.charges()["executions"], 1, "charges")


@test
def orders_without_a_route_wait_until_there_is_one(world):
    shop = open_shop(world, has_route=False)
    event = shop.place("A-1")
    world.start_api()
    world.issue("carol")  # the worker is at work, and leaves the charge where it is
    assert_equal((world.status(event), world.event(event)["retry_count"]), ("PENDING", 0), "the charge")
    assert_equal(shop.get("A-1")["state"], "pending", "the order")
    shown = world.ctl("status").stdout
    assert_true("PAYMENT_CHARGE" in shown, "status does not name the type without a route:\n" + shown)
    world.workers()[0].stop()
    world.settings.update(shipped_route(world.sandbox.route))
    world.start_worker()
    shop.wait_state("A-1", "charged")
    assert_equal(world.sandbox.charges()["executions"], 1, "charges")


@test
def a_service_that_listens_hears_that_its_event_has_ended(world):
    """It need not ask every second: the hint is its own role's to hear, and issuing.end_of says how."""
    shop = open_shop(world)
    with subprocess.Popen(["psql", "-XqAt", "-d", world.conninfo("orders")], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE, env=ENVIRONMENT) as session:
        def told(statement):
            """What comes up to the answer, what was notified before included."""
            session.stdin.write("%s;\nSELECT 'done';\n" % statement)
            session.stdin.flush()
            return list(iter(lambda: session.stdout.readline().rstrip("\n"), "done"))
        told("LISTEN issuing_final")
        event = shop.place("A-1")
        wait_until(lambda: any('"issuing_final"' in line for line in told("SELECT 1")), "a hint")
        wait_until(lambda: told("SELECT status FROM issuing.end_of('%s')" % event)[0] == "COMPLETED", "its end")
        session.stdin.close()
        session.wait(STUCK_AFTER_S)


@test
def the_role_of_the_service_may_send_its_events_and_nothing_else(world):
    """A role that may insert any row forged the end of a card request, with our signature, and 25 cards in six
    seconds."""
    shop = open_shop(world)
    event = shop.place("A-1")
    own = world.conninfo("orders")
    card = "'mallory', '{\"kind\": \"new\"}')"
    for statement in ("SELECT payload FROM issuing.outbox_events", "SELECT user_id, status FROM issuing.outbox_events",
                      "UPDATE issuing.outbox_events SET status = 'COMPLETED'", "DELETE FROM issuing.outbox_events",
                      "INSERT INTO issuing.outbox_events (event_type, user_id, payload) VALUES ('CARD_ISSUE', " + card,
                      "SELECT id FROM issuing.cards", "SELECT issuing.replay('%s', 1, 'a', 'b', 'c', 'd')" % event,
                      "SELECT key FROM issuing.event_keys", "SELECT role FROM issuing.senders",
                      "DELETE FROM orders.orders", "UPDATE orders.orders SET amount = 1"):
        refused(statement, own, "permission denied")
    refused("SELECT issuing.enqueue('CARD_ISSUE', " + card, own, "role orders may not send events of type CARD_ISSUE")
    refused("SELECT issuing.enqueue('CARD_REQUEST_ENDED', " + card, own, "may not send events of type")
    done = world.ctl("sender", "add", "orders", "CARD_REQUEST_ENDED", "--reason", "x")
    assert_equal((done.returncode, done.stdout.split("  ")[1][:7]), (1, "refused"), "a type that is ours")
    done = world.ctl("sender", "add", "order", "MAIL", "--reason", "x")
    assert_true("the nearest is orders" in done.stdout, "the nearest role: " + done.stdout)
    world.sql("INSERT INTO outbox_events (id, event_type, user_id, payload) VALUES"
              " ('01890000-0000-7000-8000-000000000001', 'SOMETHING_ELSE', 'bob', '{}')")
    assert_equal(psql("SELECT count(*) FROM orders.charge_of('01890000-0000-7000-8000-000000000001')", own), "0",
                 "an event of another type")
    wait_until(lambda: psql("SELECT state FROM orders.charge_of('%s')" % event, own) == "charged", "its own event")
    assert_true("orders sends PAYMENT_CHARGE" in world.ctl("doctor").stdout, "doctor says who sends what")
    world.sql("GRANT INSERT (event_type, user_id, payload) ON issuing.outbox_events TO orders")
    refused("INSERT INTO issuing.outbox_events (event_type, user_id, payload) VALUES ('CARD_REQUEST_ENDED', " + card, own,
            "event_type CARD_REQUEST_ENDED is only made by the end of a card request")
    assert_true("orders may INSERT into" in world.ctl("doctor").stdout, "doctor says who inserts past the function")
    world.sql("REVOKE INSERT (event_type, user_id, payload) ON issuing.outbox_events FROM orders")


def refused(statement, conninfo, words):
    try:
        psql(statement, conninfo)
    except Failed as error:
        assert_true(words in str(error), "%s: %s" % (statement, error))
    else:
        raise Failed("it may: " + statement)


# ---- what docs/outbox.md shows ----

def shown_in_docs(language):
    """The block of that language in the section about examples/orders."""
    section = (ROOT / "docs" / "outbox.md").read_text(encoding="utf-8").split("\n## Another service's events\n", 1)[1]
    blocks = re.findall(r"^```%s\n(.*?)^```$" % language, section, re.S | re.M)
    assert_true(blocks, "docs/outbox.md shows no %s" % language)
    return blocks[0]


def check_shown(world, number):
    shown = world.row("SELECT number, charge_id FROM orders.orders")
    assert_equal(shown["number"], number, "the order of the page")
    wait_charged(world)
    check_books(world, {number: shown["charge_id"]})


@test
def the_statements_of_the_page_take_an_order(world):
    open_shop(world)
    statements = shown_in_docs("sql")
    done = run([psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", world.conninfo("orders")], stdin=statements)
    assert_equal((done.returncode, done.stderr), (0, ""), "the statements")
    check_shown(world, "A-1001")
    again = run([psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", world.conninfo("orders")], stdin=statements)
    assert_true(again.returncode != 0 and "orders_pkey" in again.stderr, "the same order again: " + again.stderr)
    check_shown(world, "A-1001")


# ---- kill -9 of everything ----

class Load:
    """Clients that place orders until they are told to stop, and repeat each one until it is answered."""

    def __init__(self, shop, clients):
        self.shop, self.stopped, self.told, self.wrong = shop, threading.Event(), {}, []
        self.threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def _run(self, number):
        chance, count = random.Random(number), 0
        try:
            while not self.stopped.is_set():
                order = ("C%d-%d" % (number, count), "customer-%d" % chance.randrange(20), chance.randrange(1, 10000))
                event = self.shop.place(*order)
                self.told[order[0]] = event
                if chance.random() < 0.2:
                    assert_equal(self.shop.place(*order), event, "the event of a repeated order")
                count += 1
                time.sleep(chance.uniform(0, 0.04))
        except Exception as error:  # noqa: BLE001 - reported by the thread that waits for this one
            self.wrong.append(repr(error))

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(PATIENCE_S + 5)
        assert_equal((self.wrong, [thread for thread in self.threads if thread.is_alive()]), ([], []), "clients")
        return self.told


def kill_database(world):
    """SIGKILL to the server; what it started sees that and ends."""
    os.kill(int((world.suite.dir / "pg" / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    world.suite.start_database()


def break_payments(world):
    """What happens to the payment service anyway. The rules die with it."""
    world.sandbox.faults([{"target": "route", "call": "charge", "fault": fault, "rate": 0.08}
                          for fault in ("create_then_drop", "drop", "truncated")])


def kill_all_under_load(world, kills, seed):
    """kills: how often each program is killed."""
    shop = open_shop(world, workers=2, sandbox=("--charges-file", world.dir / "charges"), max_attempts="200",
                     timeout="500ms")
    api = world.start_api()
    break_payments(world)
    chance = random.Random(seed)
    targets = [shop, world.workers()[0], world.workers()[1], api, world.sandbox, "database"] * kills
    chance.shuffle(targets)
    load = Load(shop, 5)
    for target in targets:
        before = len(load.told)
        wait_until(lambda: len(load.told) >= before + 12 or load.wrong, "a dozen more orders are taken", PATIENCE_S)
        if target == "database":
            kill_database(world)
            continue
        target.kill()
        time.sleep(chance.uniform(0, 0.2))
        target.start()
        if target is world.sandbox:
            target.wait_ready()
            break_payments(world)
    told = load.stop()
    world.sandbox.clear()
    wait_charged(world)
    check_books(world, told)
    wait_until(lambda: world.sql("SELECT count(*) FROM orders.orders WHERE state <> 'charged'") == "0",
               "the service knows that all are charged", PATIENCE_S)
    wait_counted(world)


KILLED = {"worker__lease": "2s", "issuer__timeout": "400ms", "core__timeout": "400ms", "retry__cap": "300ms"}


@test(**KILLED)
def orders_equal_charges_when_everything_is_killed_once_under_load(world):
    kill_all_under_load(world, 1, 14)


@slow
@test(**KILLED)
def orders_equal_charges_when_everything_is_killed_again_and_again_under_load(world):
    kill_all_under_load(world, 6, 41)


# ---- cards of services beside those of clients ----

SERVED = "(SELECT count(*) FROM outbox_events WHERE idempotency_key IS NULL AND status = 'COMPLETED')"


@slow
@test(worker__max_in_flight="16")
def a_service_that_sends_thousands_of_cards_delays_no_client_and_is_not_starved(world):
    """One statement with 4000 cards of a service, and the next client waited ten seconds behind all of them."""
    world.sql("DO $$ BEGIN CREATE ROLE orders LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    world.may_send("orders", "CARD_ISSUE")
    world.start_sandbox()
    world.start_api()
    own = world.conninfo("orders")
    thousands = ("SELECT count(issuing.enqueue_many('CARD_ISSUE', ARRAY(SELECT 'c' || n FROM generate_series(1, 2000) n),"
                 " ARRAY(SELECT '{\"kind\": \"new\"}'::jsonb FROM generate_series(1, 2000))))")
    psql(thousands, own)
    world.start_worker()
    wait_until(lambda: int(world.sql("SELECT " + SERVED)) >= 50, "the backlog is being worked on")
    for number in range(3):
        world.issue("alice-%d" % number)
    before = int(world.sql("SELECT max((SELECT count(*) FROM outbox_events o WHERE o.idempotency_key IS NULL"
                           " AND o.completed_at BETWEEN e.created_at AND e.completed_at))"
                           " FROM outbox_events e WHERE e.idempotency_key IS NOT NULL"))
    assert_true(before < 200, "%d cards of the service came before one of a client" % before)
    # The other way round, with many clients: the service gets its turns.
    psql(thousands, own)
    served = int(world.sql("SELECT " + SERVED))
    requests = [world.accept("bob-%d" % number) for number in range(40)]
    wait_until(lambda: all(world.status(request) == "COMPLETED" for request in requests), "the clients' cards")
    assert_true(int(world.sql("SELECT " + SERVED)) > served, "no card of the service beside 40 of clients")
    world.sql("DELETE FROM outbox_events WHERE status = 'PENDING'")
