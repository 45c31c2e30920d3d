"""What the receiver of a route may answer, and how the event ends: the table of outcomes, row by row, with a look-up
and without one.

Story: "the answer was lost" means that the customer may have been charged. Then the same key is sent again; past its
lifetime the look-up decides, and where there is none a person does. Nothing may call it "not charged" that may have
been.

A case is an event of its own with answers of its own, so that all cases of a table run side by side in one world.
"""
import collections
import contextlib
import time

from harness import assert_equal, assert_true, core, http_date, slow, test, wait_until
from receiver import (closes, event_ids, insert, is_held, is_silent, others, receiver, resets, route, says, sends,
                      wait_ends, waits)

Case = collections.namedtuple("Case", "answers status code executed attempts then lookups",
                              defaults=("COMPLETED", None, True, None, None, ()))
OK = says(200)
# An answer that tells nothing: the delivery may have been executed, or may still be.
UNKNOWN = {
    "reset": resets(), "executed-reset": resets(True), "closed": closes(), "executed-closed": closes(True),
    "silent": is_silent(), "executed-silent": is_silent(True), "late-answer": waits(1.2),
    "garbage": sends(b"\x16\x03\x01nonsense\r\n\r\n"), "executed-garbage": sends(b"HTTP/9.9 OK\r\n\r\n", True),
    "half-a-header": sends(b"HTTP/1.1 200 OK\r\nContent-Le", True),
    "half-a-body": sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", True),
    "two-lengths": sends(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", True),
    **{"%d" % status: says(status) for status in (500, 501, 502, 503, 504, 507, 599)},
    # A gateway may answer 408 after it has forwarded the request.
    "408": says(408), **{"executed-%d" % status: says(status, executes=True) for status in (408, 500, 503)},
}
# An answer that says: not now. It uses up no attempt.
NOT_NOW = {
    "409": says(409), "425": says(425), "429": says(429), "429-seconds": says(429, headers=[("Retry-After", "1")]),
    "429-date": says(429, headers=[("Retry-After", http_date(1))]),
    "429-garbage": says(429, headers=[("Retry-After", "soon")]),
    **{"%d" % status: says(status) for status in (401, 403, 404, 405)},
    **{"%d" % status: says(status, headers=[("Location", "http://127.0.0.1:9/other")])
       for status in (300, 301, 302, 303, 304, 307, 308)},
}
REFUSED, UNFORESEEN = (400, 422), (402, 406, 411, 413, 418, 423, 451, 499)
CODE = '{"code":"card_declined","detail":"no funds"}'
# The settling time of a route is a quarter of this, the last send three quarters after the first.
LIFETIME = {"key_lifetime": "8s", "timeout": "500ms"}


def run_cases(world, service, cases, among_others=False, seconds=60):
    """among_others: while other users' events are answered well, so that a failure is the event's own."""
    events = dict(zip(cases, event_ids(world, len(cases))))
    for name, case in cases.items():
        service.plan(events[name], *case.answers, then=case.then)
        service.plan_lookup(events[name], *case.lookups)
    insert(world, list(cases), ids=list(events.values()))
    with others(world) if among_others else contextlib.nullcontext():
        wait_ends(world, list(events.values()), seconds)
    wrong = []
    for name, case in cases.items():
        row = world.event(events[name])
        found = (row["status"], row["reason_code"], events[name] in service.executed)
        if found != (case.status, case.code, case.executed):
            wrong.append("%s: %r, wanted %r (%s)" % (name, found, (case.status, case.code, case.executed),
                                                     row["last_error"]))
        if case.attempts is not None and row["retry_count"] != case.attempts:
            wrong.append("%s: %d attempts, wanted %d (%s)" % (name, row["retry_count"], case.attempts,
                                                              row["last_error"]))
    assert_true(not wrong, "\n".join(wrong))
    return events


@test(retry__max_attempts="20")
def whatever_leaves_a_delivery_unknown_it_is_sent_again_with_the_same_key(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        cases = {name: Case([answer], attempts=2) for name, answer in UNKNOWN.items()}
        events = run_cases(world, service, cases)
        for name, event in events.items():
            assert_equal(len(service.deliveries(event)), 2, "deliveries of " + name)
        unknown = {row["event_id"]: row["unknown"] for row in world.rows(
            "SELECT DISTINCT ON (event_id) event_id, unknown FROM outbox_attempts ORDER BY event_id, ended_at")}
        assert_equal({name for name in UNKNOWN if not unknown[events[name]]}, set(), "first attempts that were known")


@test(retry__max_attempts="3")
def an_answer_that_says_not_now_uses_up_no_attempt(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        cases = {name: Case([answer], attempts=1) for name, answer in NOT_NOW.items()}
        cases["five-times-in-progress"] = Case([says(409)] * 5, attempts=1)
        events = run_cases(world, service, cases)
        assert_equal(len(service.deliveries(events["five-times-in-progress"])), 6, "deliveries")


@test(retry__max_attempts="3")
def what_the_receiver_refuses_is_rejected_with_its_code_or_asked_about(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        cases = {}
        for status in REFUSED:
            ends = {"status": "REJECTED", "executed": False, "attempts": 1}
            cases["code-%d" % status] = Case([says(status, CODE)], code="card_declined", **ends)
            for name, body in (("none", ""), ("html", "<html>"), ("bad", '{"code":"Not A Code"}'),
                               ("number", '{"code":4111111111111111}'), ("long", '{"code":"%s"}' % ("x" * 65)),
                               ("twice", '{"code":"a","code":"b"}')):
                cases["%s-%d" % (name, status)] = Case([says(status, body)], code="route_refused", **ends)
        for status in UNFORESEEN:
            cases["odd-%d" % status] = Case([says(status, CODE)], "FAILED", "route_http_%d" % status, False, 1)
        run_cases(world, service, cases, among_others=True)


@test(retry__max_attempts="5")
def behind_an_unknown_outcome_a_refusal_is_a_question_where_nobody_can_look(world):
    """The first answer was lost, the second says no. "Rejected" would be a lie if the first was executed."""
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        cases = {}
        for status in (*REFUSED, 418):
            code = "card_declined" if status in REFUSED else "route_http_418"
            for name, first in (("made", resets(True)), ("not-made", resets()), ("made-503", says(503, executes=True))):
                cases["%s-%d" % (name, status)] = Case([first, says(status, CODE)], "FAILED", code, "not" not in name)
        events = run_cases(world, service, cases)
        assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE first_sent_at IS NULL AND id IN ('%s')" %
                               "', '".join(events.values())), "0", "rows that no longer say that it is unknown")


@slow
@test(retry__max_attempts="5")
def behind_an_unknown_outcome_the_lookup_is_asked_before_a_refusal_is_believed(world):
    with receiver(world) as service:
        route(world, service, lookup=True, **LIFETIME)
        world.start_worker()
        cases = {}
        for status in (*REFUSED, 418):
            cases["made-%d" % status] = Case([resets(True), says(status, CODE)])
            ends = ("REJECTED", "card_declined", False) if status in REFUSED else ("FAILED", "route_http_418", False)
            cases["not-made-%d" % status] = Case([resets(), says(status, CODE)], *ends)
        # What the look-up itself may say; nothing but 200 and 404 decides.
        for name, answer in (("500", says(500)), ("429", says(429)), ("reset", resets()), ("silent", is_silent()),
                             ("403", says(403)), ("204", says(204)), ("302", says(302))):
            cases["look-" + name] = Case([resets(True), says(422, CODE)], lookups=[answer])
        events = run_cases(world, service, cases)
        for name, event in events.items():
            assert_true(service.lookups(event), "look-ups of " + name)
        assert_equal({call.path for call in service.lookups(events["made-422"])},
                     {"/charges/" + events["made-422"]}, "the address of a look-up")


@slow
@test(retry__max_attempts="3", worker__lease="2s", issuer__timeout="500ms", core__timeout="500ms")
def not_found_is_believed_only_when_the_last_send_can_no_longer_arrive(world):
    """The first delivery is still under way when the second is refused. The look-up finds nothing yet; then it
    arrives."""
    with receiver(world) as service:
        route(world, service, lookup=True, **LIFETIME)
        world.start_worker()
        time.sleep(2.5)  # longer than the lease: the database's clock is known to run evenly
        event = event_ids(world, 1)[0]
        service.plan(event, is_held(), says(422, CODE), then=says(422, CODE))
        insert(world, "alice", ids=[event])
        wait_until(lambda: service.lookups(event), "a look-up, which finds nothing")
        assert_true(world.status(event) in ("PENDING", "PROCESSING"), "the end is held: " + world.status(event))
        assert_equal(service.run_late(), 1, "the delivery arrives")
        assert_equal(wait_ends(world, [event])[event], ("COMPLETED", None), "the end")
        assert_true(len(service.lookups(event)) >= 2, "look-ups")


@test(retry__max_attempts="3")
def attempts_are_used_up_only_while_others_are_answered_well(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        run_cases(world, service, {
            "always-500": Case([], "FAILED", "attempts_exhausted", False, 3, says(500)),
            "always-executed": Case([], "FAILED", "attempts_exhausted", True, 3, says(503, executes=True)),
            "always-reset": Case([], "FAILED", "attempts_exhausted", False, 3, resets()),
            "always-408": Case([], "FAILED", "attempts_exhausted", False, 3, says(408)),
            **{"always-%d" % status: Case([], "FAILED", "route_http_%d" % status, False, None, says(status))
               for status in (401, 403, 404, 405, 302)},
        }, among_others=True)


@test(route__PAYMENT_CHARGE__max_attempts="2", retry__max_attempts="9")
def a_route_counts_attempts_of_its_own(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        run_cases(world, service, {"always-500": Case([], "FAILED", "attempts_exhausted", False, 2, says(500))},
                  among_others=True)


@core
@slow
@test(retry__max_attempts="3")
def when_the_attempts_are_used_up_the_lookup_decides(world):
    with receiver(world) as service:
        route(world, service, lookup=True, **LIFETIME)
        world.start_worker()
        run_cases(world, service, {
            "made": Case([], then=is_silent(True)),
            "made-503": Case([], then=says(503, executes=True)),
            "not-made": Case([], "FAILED", "attempts_exhausted", False, then=says(503)),
            "not-made-reset": Case([], "FAILED", "attempts_exhausted", False, then=resets()),
        }, among_others=True)


def check_sends(service, event, seconds, what):
    """No send later than that after the first."""
    calls = service.deliveries(event)
    late = [call.at - calls[0].at for call in calls if call.at - calls[0].at > seconds]
    assert_equal(late, [], "sends of %s past the key's lifetime" % what)


@core
@slow
@test(retry__max_attempts="1000")
def past_the_keys_lifetime_nothing_is_sent_and_without_a_lookup_it_is_a_question(world):
    with receiver(world) as service:
        route(world, service, **LIFETIME)
        world.start_worker()
        events = run_cases(world, service, {
            "made": Case([], "FAILED", "route_key_expired", True, then=says(503, executes=True)),
            "not-made": Case([], "FAILED", "route_key_expired", False, then=says(503)),
            "silent": Case([], "FAILED", "route_key_expired", False, then=is_silent()),
        }, among_others=True)
        for name, event in events.items():
            check_sends(service, event, 8, name)
            assert_true(world.event(event)["first_sent_at"], "the row of %s says that it is unknown" % name)
        # A replay is not a new key: what may have been executed is not sent again.
        before = len(service.deliveries(events["not-made"]))
        service.clear()
        done = world.ctl("replay", events["not-made"], "--reason", "once more")
        assert_equal(done.returncode, 0, "replay: " + done.stderr)
        assert_equal(wait_ends(world, [events["not-made"]])[events["not-made"]], ("FAILED", "route_key_expired"),
                     "the end of a replay")
        assert_equal(len(service.deliveries(events["not-made"])), before, "deliveries after the lifetime")


@slow
@test(retry__max_attempts="1000")
def past_the_keys_lifetime_the_lookup_decides(world):
    with receiver(world) as service:
        route(world, service, lookup=True, **LIFETIME)
        world.start_worker()
        events = run_cases(world, service, {
            "made": Case([], then=says(503, executes=True)),
            "made-silent": Case([], then=is_silent(True)),
            "not-made": Case([], "FAILED", "route_key_expired", False, then=says(503)),
        }, among_others=True)
        for name, event in events.items():
            check_sends(service, event, 8, name)
            assert_true(service.lookups(event), "look-ups of " + name)


@slow
@test(retry__max_attempts="3")
def a_lookup_that_nobody_can_read_ends_as_a_question_and_a_replay_looks_again(world):
    with receiver(world) as service:
        route(world, service, lookup=True, **LIFETIME)
        world.start_worker()
        events = run_cases(world, service, {
            "204": Case([], "FAILED", "outcome_unknown", True, then=resets(True), lookups=[says(204)] * 1000),
            "418": Case([], "FAILED", "outcome_unknown", False, then=resets(), lookups=[says(418)] * 1000),
        }, among_others=True)
        check_sends(service, events["204"], 8, "204")
        sends = {event: len(service.deliveries(event)) for event in events.values()}
        service.clear()
        for event in events.values():
            assert_equal(world.ctl("replay", event, "--reason", "it can be read now").returncode, 0, "replay")
        assert_equal(list(wait_ends(world, list(events.values())).values()),
                     [("COMPLETED", None), ("FAILED", "route_key_expired")], "replays")
        assert_equal({event: len(service.deliveries(event)) for event in sends}, sends, "deliveries, replays included")


def ended(world):
    return int(world.sql("SELECT count(*) FROM outbox_events WHERE status IN ('FAILED', 'REJECTED')"))


@test(retry__max_attempts="3", breaker__failures="3", breaker__probe_interval="10ms")
def a_receiver_that_is_down_for_a_day_loses_nothing(world):
    """Many probes later, which is a day without a clock. One event or many: no outage ends any."""
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        wait_ends(world, insert(world, "first"))
        service.down()
        events = insert(world, ["user-%d" % i for i in range(50)])
        probes = 'issuing_breaker_transitions_total{target="PAYMENT_CHARGE",state="half_open"}'
        worker = world.workers()[0]
        wait_until(lambda: worker.metric(probes) >= 8, "eight probes", 60)
        assert_equal(ended(world), 0, "ends during the outage")
        service.up()
        assert_equal(set(wait_ends(world, events).values()), {("COMPLETED", None)}, "ends")
        assert_equal(len(service.delivered()), 51, "what was delivered")


@slow
@test(retry__max_attempts="3", breaker__failures="3", breaker__probe_interval="10ms")
def a_receiver_that_answers_500_or_nothing_for_a_day_loses_nothing(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        events = event_ids(world, 20)
        probes = 'issuing_breaker_transitions_total{target="PAYMENT_CHARGE",state="half_open"}'
        worker = world.workers()[0]
        for turn, wrong in enumerate((says(500), is_silent(True), says(401), resets())):
            service.always(wrong)
            before = worker.metric(probes)
            insert(world, ["user-%d-%d" % (turn, i) for i in range(5)], ids=events[5 * turn:5 * turn + 5])
            wait_until(lambda: worker.metric(probes) >= before + 2, "two probes", 60)
        assert_equal(ended(world), 0, "ends during the outage")
        service.clear()
        assert_equal(set(wait_ends(world, events, 60).values()), {("COMPLETED", None)}, "ends")
        assert_equal(len(service.executed), 20, "executed")
