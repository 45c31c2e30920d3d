"""Events of other types: another service inserts an event in its own transaction, and a worker delivers it over HTTP.

Story: an order service writes its order and a PAYMENT_CHARGE event together. What arrives must be what was written,
under a key that is the same on every attempt, with the headers that CloudEvents and a trace need; and what no route is
configured for must lie where it is.
"""
import json
import pathlib
import re
import signal
import urllib.parse

from harness import assert_equal, assert_true, BUILD, run, test, wait_until
from operators import lines
from receiver import event_ids, insert, others, receiver, resets, route, says, wait_ends

DONE = ("COMPLETED", None)


def header(call, name):
    return call.headers.get(name)


@test
def an_event_arrives_as_it_was_written_with_its_id_as_the_key(world):
    with receiver(world, "/v2/charges/~outbox%2F1") as service:
        route(world, service)
        world.start_worker()
        payload = ('{"z": 1, "a": {"b": [1, 2.50, null, "\\u00e9\\n\\"\\ud83d\\ude00"]},'
                   ' "amount": 12345678901234567890.10}')
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        event = insert(world, "alice", payload=payload, traceparent=trace)[0]
        assert_equal(wait_ends(world, [event])[event], DONE, "the end")
        call, = service.deliveries()
        row = world.event(event)
        assert_equal((call.method, call.path), ("POST", "/v2/charges/~outbox%2F1"), "the request")
        assert_equal(call.body.decode(), world.sql("SELECT payload::text FROM outbox_events"), "the body")
        assert_equal(json.loads(call.body), json.loads(payload), "the body, as JSON")
        assert_equal({name: header(call, name) for name in (
            "idempotency-key", "content-type", "ce-specversion", "ce-id", "ce-type", "ce-source", "ce-subject")}, {
            "idempotency-key": event, "content-type": "application/json", "ce-specversion": "1.0", "ce-id": event,
            "ce-type": "PAYMENT_CHARGE", "ce-source": "issuing", "ce-subject": "alice"}, "headers")
        assert_true(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", header(call, "ce-time")),
                    "ce-time: %r" % header(call, "ce-time"))
        off = world.sql("SELECT abs(extract(epoch FROM created_at - '%s'::timestamptz)) < 0.002 FROM outbox_events" %
                        header(call, "ce-time"))
        assert_equal(off, "t", "ce-time is when it was created")
        assert_equal(header(call, "traceparent"), trace, "the trace")
        assert_true(header(call, "authorization") is None and header(call, "webhook-id") is None,
                    "no credential, no signature")
        assert_equal((row["retry_count"], row["reason_code"], row["result"]), (1, None, None), "the row")
        assert_equal([(each["step"], each["outcome"], each["unknown"]) for each in world.attempts(event)],
                     [("deliver", "completed", False)], "attempts")


@test(retry__max_attempts="20")
def every_attempt_carries_the_same_key_body_and_trace(world):
    with receiver(world) as service:
        route(world, service, method="PUT")
        event = event_ids(world, 1)[0]
        # The reset first: on a kept connection it would count as stale, and the send is repeated within its attempt.
        service.plan(event, resets(executes=True), says(503), says(500, executes=True), says(408))
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        insert(world, "alice", ids=[event], traceparent=trace)
        world.start_worker()
        assert_equal(wait_ends(world, [event])[event], DONE, "the end")
        calls = service.deliveries()
        assert_equal(len(calls), 5, "deliveries")
        for name in ("idempotency-key", "ce-id", "ce-time", "ce-subject", "ce-type"):
            assert_equal(len({header(call, name) for call in calls}), 1, name)
        assert_equal({(call.method, call.body) for call in calls}, {("PUT", calls[0].body)}, "requests")
        assert_equal({header(call, "traceparent") for call in calls}, {trace}, "the trace")


@test
def a_subject_is_percent_encoded_as_cloudevents_says(world):
    """Blanks, quotes, percent signs: a user id may have them, and a header must not change them."""
    users = ["o'brien", 'say "hi" %41', "a b  c", "x" * 128, "semi;colon,comma=\\", "100%", "~!#$&()*+-./:<>?@[]^_`{|}"]
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        events = insert(world, users)
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends")
        found = {call.event: header(call, "ce-subject") for call in service.deliveries()}
        for event, user in zip(events, users):
            assert_equal(urllib.parse.unquote(found[event]), user, "ce-subject")
            assert_true(not re.search(r'[ "]|%(?![0-9A-F]{2})', found[event]), "not encoded: " + found[event])


@test
def a_credential_is_sent_and_a_new_one_needs_no_restart(world):
    file = pathlib.Path(world.dir / "charges.credential")
    file.write_text("first-secret\n")
    file.chmod(0o600)
    with receiver(world) as service:
        route(world, service, credential_file=file)
        worker = world.start_worker()
        wait_ends(world, insert(world, "alice"))
        file.write_text("second-secret\n")
        worker.signal(signal.SIGHUP)
        wait_until(lambda: wait_ends(world, insert(world, "alice")) and
                   header(service.deliveries()[-1], "authorization") == "Bearer second-secret", "the new one is used")
        assert_equal(header(service.deliveries()[0], "authorization"), "Bearer first-secret", "the first one")
        assert_true("-secret" not in worker.text(), "no credential in the log")


@test
def any_2xx_is_an_execution_whatever_the_body_says(world):
    answers = [says(200, "<html>"), says(201, '{"code":"declined"}'), says(202, ""), says(204), says(206, "[1,"),
               says(226, "null"), says(299, "x" * 9000), says(200, '{"a":1,"a":2}')]
    with receiver(world) as service:
        route(world, service)
        events = event_ids(world, len(answers))
        for event, answer in zip(events, answers):
            service.plan(event, answer)
        insert(world, ["user-%d" % i for i in range(len(answers))], ids=events)
        world.start_worker()
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends")
        assert_equal(sorted(call.event for call in service.deliveries()), sorted(events), "deliveries, one each")


@test
def an_answer_is_kept_where_the_route_says_so_and_never_harms_its_neighbours(world):
    kept = {"object": '{"id":"ch_1","amount":12.50}', "array": "[1,2]", "text": '"\\u00e9"', "number": "1e3",
            "null": "null", "long": json.dumps({"text": "x" * 8000})}
    none = {"empty": "", "html": "<html>", "cut": '{"id":', "two": "{} {}", "too-long": json.dumps("x" * 8300),
            "nul": '{"a":"\\u0000"}', "surrogate": '{"a":"\\ud800"}', "not-utf8": b'{"a":"\xff"}',
            "huge-number": '{"a":1e400000}', "deep": "[" * 3000 + "]" * 3000}
    bodies = {**kept, **none}
    with receiver(world) as service:
        route(world, service, keep_result="true")
        events = dict(zip(bodies, event_ids(world, len(bodies))))
        for name, event in events.items():
            service.plan(event, says(200, bodies[name]))
        insert(world, list(events), ids=list(events.values()))
        world.start_worker()
        assert_equal(set(wait_ends(world, list(events.values())).values()), {DONE}, "ends")
        found = {row["user_id"]: row["result"] for row in world.rows("SELECT user_id, result FROM outbox_events")}
        for name, text in kept.items():
            assert_equal(found[name], json.loads(text), "kept of " + name)
        assert_equal({name for name in none if found[name] is not None} - {"huge-number", "deep"}, set(),
                     "kept of what is not JSON that PostgreSQL takes")
        shown = {row["user_id"]: row["kept_result"] for row in lines(world.ctl("list", "--json"))}
        assert_equal(shown, found, "list --json")
        assert_equal(service.delivered(), set(events.values()), "what was delivered")


@test
def a_type_without_a_route_is_left_alone(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        stray = insert(world, "alice", "PAYMENT_CHARGE_X")[0]
        with others(world):
            wait_ends(world, insert(world, ["user-%d" % i for i in range(20)]))
        row = world.event(stray)
        assert_equal((row["status"], row["retry_count"], row["last_error"]), ("PENDING", 0, None), "the stray one")
        assert_equal(service.deliveries(stray), [], "its deliveries")


@test
def cards_and_two_routes_are_served_side_by_side(world):
    with receiver(world) as charges, receiver(world, "/notes") as notes:
        route(world, charges)
        route(world, notes, "ORDER_NOTE")
        world.up()
        cards = [world.accept("user-%d" % i) for i in range(10)]
        users = ["user-%d" % i for i in range(30)]
        events = insert(world, users) + insert(world, users, "ORDER_NOTE")
        assert_equal(set(wait_ends(world, events + cards).values()), {DONE}, "ends")
        assert_equal({header(call, "ce-type") for call in charges.deliveries()}, {"PAYMENT_CHARGE"}, "charges")
        assert_equal({header(call, "ce-type") for call in notes.deliveries()}, {"ORDER_NOTE"}, "notes")
        assert_equal((len(charges.delivered()), len(notes.delivered())), (30, 30), "what was delivered")


@test
def a_worker_with_fewer_slots_than_types_serves_all_of_them(world):
    with receiver(world) as service:
        types = ["TYPE_%d" % i for i in range(6)]
        for event_type in types:
            route(world, service, event_type)
        world.settings["worker.max_in_flight"] = "2"
        world.up()
        cards = [world.accept("user-%d" % i) for i in range(3)]
        events = [event for event_type in types for event in insert(world, ["a", "b", "c"], event_type)]
        assert_equal(set(wait_ends(world, events + cards).values()), {DONE}, "ends")


@test
def a_payload_that_cannot_be_sent_ends_as_a_question_and_stops_no_other(world):
    with receiver(world) as service:
        route(world, service)
        events = event_ids(world, 3)
        world.sql("SET session_replication_role = replica; INSERT INTO outbox_events (id, event_type, user_id, payload)"
                  " VALUES ('%s', 'PAYMENT_CHARGE', 'huge', to_jsonb(repeat('x', 70000))),"
                  " ('%s', 'PAYMENT_CHARGE', repeat('u', 5000), '{}')" % tuple(events[:2]))
        world.start_worker()
        insert(world, "alice", ids=events[2:])
        ends = wait_ends(world, events)
        assert_equal(ends[events[2]], DONE, "the good one")
        assert_equal(ends[events[0]], ("FAILED", "payload_invalid"), "70,000 bytes")
        assert_equal(ends[events[1]], ("FAILED", "payload_invalid"), "a user id of 5,000 bytes")
        assert_equal(service.delivered(), {events[2]}, "what was delivered")


@test
def the_largest_payload_that_the_table_takes_is_delivered(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        event = insert(world, "alice", payload=json.dumps({"text": "x" * 65000}))[0]
        assert_equal(wait_ends(world, [event])[event], DONE, "the end")
        assert_equal(len(service.deliveries()[0].body), 65000 + len('{"text": ""}'), "bytes")


# ---- configuration ---------------------------------------------------------------------------------------------------

GOOD = ("[route.PAYMENT_CHARGE]", "url = http://127.0.0.1:9/charges")
# What the file says, the line that is wrong, and a word of the complaint.
BAD_FILES = {
    "a card is not a route": (("[route.CARD_ISSUE]", "url = http://127.0.0.1:9/"), (1, 2), "CARD_ISSUE"),
    "a lower-case type": (("[route.payment]", "url = http://127.0.0.1:9/"), (1, 2), "payment"),
    "a type that begins with a digit": (("[route.1X]", "url = http://127.0.0.1:9/"), (1, 2), "1X"),
    "a type that is too long": (("[route.%s]" % ("X" * 65), "url = http://127.0.0.1:9/"), (1, 2), "XXXX"),
    "an unknown option": ((*GOOD, "metod = PUT"), (3,), "method"),
    "another method": ((*GOOD, "method = PATCH"), (3,), "method"),
    "no time": ((*GOOD, "timeout = soon"), (3,), "timeout"),
    "no truth": ((*GOOD, "ordered = perhaps"), (3,), "ordered"),
    "no number": ((*GOOD, "max_attempts = many"), (3,), "max_attempts"),
    "a look-up without a place for the id": ((*GOOD, "lookup_url = http://127.0.0.1:9/charges"), (3,), "{id}"),
    "a look-up with two": ((*GOOD, "lookup_url = http://127.0.0.1:9/{id}/{id}"), (3,), "{id}"),
    "clear text to another host": ((GOOD[0], "url = http://payments.example/charges"), (2,), "http"),
    "no address": ((GOOD[0], "url = charges"), (2,), "url"),
}


def check(world, *words, program="issuing-worker"):
    return run([BUILD / program, "--database.url=" + world.conninfo("issuing_worker"),
                "--issuer.url=http://127.0.0.1:9", "--core.url=http://127.0.0.1:9",
                "--card.keys_file=%s" % world.suite.keys_file, *words, "--check-config"])


@test
def a_bad_route_in_the_file_is_exit_78_with_its_line(world):
    file = world.dir / "routes.conf"
    file.write_text("\n".join(GOOD) + "\n")
    assert_equal(check(world, "--config=%s" % file).returncode, 0, "a good file")
    wrong = []
    for name, (lines, numbers, word) in BAD_FILES.items():
        file.write_text("\n".join(lines) + "\n")
        done = check(world, "--config=%s" % file)
        if done.returncode != 78 or word not in done.stderr or not any(
                re.search(r"\b(line |:)%d\b" % number, done.stderr) for number in numbers):
            wrong.append("%s: exit %d: %s" % (name, done.returncode, done.stderr.strip()[-300:]))
    file.write_text("[route.PAYMENT_CHARGE]\ntimeout = 3s\n")
    done = check(world, "--config=%s" % file)
    if done.returncode != 78 or "PAYMENT_CHARGE" not in done.stderr or "url" not in done.stderr:
        wrong.append("no url: exit %d: %s" % (done.returncode, done.stderr.strip()[-300:]))
    assert_true(not wrong, "\n".join(wrong))


@test
def a_bad_route_on_the_command_line_is_exit_2_and_names_it(world):
    empty = "--config=%s" % world.suite.empty_file
    for word in ("--route.CARD_ISSUE.url=http://127.0.0.1:9/", "--route.payment.url=http://127.0.0.1:9/",
                 "--route.PAYMENT_CHARGE.metod=PUT"):
        done = check(world, empty, word)
        assert_true(done.returncode == 2 and word.split("=")[0].lstrip("-") in done.stderr,
                    "%s: exit %d: %s" % (word, done.returncode, done.stderr.strip()))
    for option in ("sign_secret_file", "credential_file"):
        done = run([BUILD / "issuing-worker", empty, "--database.url=" + world.conninfo("issuing_worker"),
                    "--issuer.url=http://127.0.0.1:9", "--core.url=http://127.0.0.1:9", "--card.store=never",
                    "--route.PAYMENT_CHARGE.url=http://127.0.0.1:9/",
                    "--route.PAYMENT_CHARGE.%s=/nonexistent" % option, "--check-config"])
        assert_true(done.returncode == 78 and "/nonexistent" in done.stderr,
                    "a file that is not there: exit %d: %s" % (done.returncode, done.stderr))
    routes = ["--route.TYPE_%d.url=http://127.0.0.1:9/" % i for i in range(33)]
    assert_equal(check(world, empty, *routes[:32]).returncode, 0, "32 routes")
    assert_true(check(world, empty, *routes).returncode in (2, 78), "33 routes")
