"""A receiver refuses one event because of the event, or all events because of something else that is wrong.

Story: a wrong secret was loaded, and the receiver answered 400 to every signature. Twenty events were gone for ever,
and nothing said so. What a receiver answers must lose nothing, whatever is wrong: our secret, a clock, its release."""
import json

from controls import explained, targets
from harness import assert_equal, assert_true, test, wait_until
from operators import lines
from receiver import event_ids, insert, others, receiver, route, says, wait_ends
from webhooks import Secret, secret_file

DONE, TYPE, FAILURES = ("COMPLETED", None), "PAYMENT_CHARGE", 5
QUICK = {"breaker__failures": str(FAILURES), "breaker__probe_interval": "50ms", "retry__max_attempts": "3"}
BAD = says(400, json.dumps({"code": "bad_signature", "detail": "the signature does not verify"}))


def counts(world):
    return {row["status"]: row["n"] for row in world.rows(
        "SELECT status, count(*) AS n FROM outbox_events GROUP BY status")}


@test(**QUICK)
def a_wrong_secret_opens_the_breaker_and_when_it_is_right_everything_is_told_once(world):
    with receiver(world) as service:
        route(world, service, sign_secret_file=secret_file(world, Secret()))
        service.always(BAD)
        events = insert(world, ["user-%d" % i for i in range(60)])
        world.start_worker()
        wait_until(lambda: targets(world).get(TYPE, {}).get("state") in ("open", "half_open"), "the breaker is open")
        wait_until(lambda: len(service.deliveries()) >= 3 * FAILURES, "probes")
        seen = counts(world)
        assert_true(seen.get("FAILED", 0) < FAILURES and "REJECTED" not in seen, "what ended meanwhile: %r" % seen)
        assert_equal(targets(world)[TYPE]["cause"], "route_refuses", "the cause")
        advice = world.ctl("doctor").stdout
        assert_true("the breaker of PAYMENT_CHARGE is open" in advice and "clock" in advice, "doctor: " + advice)
        waiting = world.sql("SELECT id FROM outbox_events WHERE deferral_code = 'route_refuses' LIMIT 1")
        assert_true("refuses different events" in world.ctl("explain", waiting).stdout, "explain")
        service.clear()
        wait_until(lambda: set(counts(world)) <= {"COMPLETED", "FAILED"} and counts(world).get("FAILED", 0) < FAILURES,
                   "the rest is told")
        done = world.ctl("replay", "--type", TYPE, "--code", "bad_signature", "--reason", "the secret is right")
        assert_equal(done.returncode, 0, "replay: " + done.stderr)
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends")
        assert_equal(len(service.executed), 60, "executed")
        taken = sum(1 for call in service.deliveries() if call.event in service.executed)
        assert_equal(len({call.event for call in service.deliveries()}), 60, "events, in %d deliveries" % taken)


@test(**QUICK)
def one_event_that_is_refused_is_a_question_where_it_is_signed_and_opens_nothing(world):
    with receiver(world) as service:
        route(world, service, sign_secret_file=secret_file(world, Secret()))
        world.start_worker()
        event, = event_ids(world, 1)
        service.plan(event, BAD)
        with others(world):
            insert(world, "alice", ids=[event])
            assert_equal(wait_ends(world, [event])[event], ("FAILED", "bad_signature"), "the end")
        assert_equal(len(service.deliveries(event)), 1, "deliveries")
        assert_equal(targets(world)[TYPE]["state"], "closed", "the breaker")
        lines(world.ctl("replay", event, "--reason", "it was their mistake", "--json"))
        assert_equal(wait_ends(world, [event])[event], DONE, "the end of the replay")


@test(**QUICK)
def where_a_refusal_is_final_an_event_ends_also_while_all_are_refused(world):
    """A shop whose customers are all out of money is not an outage, and waits for no good answer."""
    with receiver(world) as service:
        route(world, service)
        service.always(says(422, '{"code":"no_funds"}'))
        events = insert(world, ["user-%d" % i for i in range(8)])
        world.start_worker()
        assert_equal(set(wait_ends(world, events, 60).values()), {("REJECTED", "no_funds")}, "ends")


@test(**QUICK)
def after_a_410_nothing_is_sent_until_an_operator_resumes_the_route(world):
    with receiver(world) as service:
        route(world, service)
        first = world.start_worker()
        wait_ends(world, insert(world, "first"))
        event, = event_ids(world, 1)
        service.plan(event, says(410))
        insert(world, "alice", ids=[event])
        wait_until(lambda: targets(world)[TYPE]["state"] == "paused", "it is paused")
        late = insert(world, ["user-%d" % i for i in range(20)])
        row = targets(world)[TYPE]
        assert_true("410" in row["paused_why"], "why: %r" % row)
        assert_true("410" in world.ctl("doctor").stdout, "doctor")
        assert_true("answered 410" in explained(world, late[0])["next"]["why"], "explain")
        before = len(service.deliveries())
        first.stop()
        world.start_worker()  # nor does a new one
        wait_until(lambda: targets(world).get(TYPE, {}).get("paused_workers") == 1, "the new one knows")
        assert_equal(len(service.deliveries()), before, "deliveries meanwhile")
        assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'PENDING' AND retry_count = 0"), "21",
                     "events that wait")
        lines(world.ctl("resume", TYPE, "--reason", "it is back", "--json"))
        assert_equal(set(wait_ends(world, [event, *late]).values()), {DONE}, "ends")


@test(**QUICK)
def what_was_rejected_is_replayed_and_a_card_request_is_not(world):
    with receiver(world) as service:
        route(world, service)
        world.up()
        world.sandbox.fault("check", "ineligible", user="blocked", code="user_blocked")
        card = world.accept("blocked")
        events = event_ids(world, 3)
        for event in events:
            service.plan(event, says(422))
        with others(world, every=0.02):
            insert(world, ["a", "b", "c"], ids=events)
            assert_equal(set(wait_ends(world, [card, *events]).values()),
                         {("REJECTED", "user_blocked"), ("REJECTED", "route_refused")}, "ends")
        refused = world.ctl("replay", card, "--reason", "x")
        assert_true(refused.returncode == 1 and "only FAILED events" in refused.stdout, refused)
        refused = world.ctl("replay", "--status", "REJECTED", "--reason", "x")
        assert_true(refused.returncode == 2 and "--type" in refused.stderr, refused)
        wanted = world.ctl("replay", "--status", "REJECTED", "--type", TYPE, "--dry-run").stdout
        assert_equal(wanted.count("would be replayed"), 3, "a dry run: " + wanted)
        lines(world.ctl("replay", events[0], "--reason", "their release", "--json"))
        done = lines(world.ctl("replay", "--status", "REJECTED", "--type", TYPE, "--reason", "their release", "--json"))
        assert_equal({row["id"] for row in done}, set(events[1:]), "replayed by the filter")
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends of the replays")
        assert_equal(len({event for event in service.executed} & set(events)), 3, "executed")
        assert_equal(world.status(card), "REJECTED", "the card request")


@test(**QUICK)
def what_was_delivered_is_sent_again_as_such_and_stays_completed_whatever_comes_of_it(world):
    with receiver(world) as service:
        route(world, service, sign_secret_file=secret_file(world, Secret()), key_lifetime="4s")
        world.up()
        card = world.issue("alice")["id"]
        events = event_ids(world, 3)
        good, bad, withdrawn = events
        insert(world, ["a", "b", "c"], ids=events)
        assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends")
        refused = world.ctl("resend", card, "--reason", "x")
        assert_true(refused.returncode == 1 and "only events of routes" in refused.stdout, refused)
        # Long past the lifetime of its key: who asks for it again is told so by the header.
        world.sql("UPDATE outbox_events SET first_sent_at = now() - interval '9 days' WHERE event_type = '%s'" % TYPE)
        service.plan(bad, says(422))
        with others(world):
            lines(world.ctl("resend", good, bad, "--reason", "their team asks", "--json"))
            wait_until(lambda: len(service.deliveries(good)) == 2 and len(service.deliveries(bad)) == 2, "deliveries")
            assert_equal(set(wait_ends(world, events).values()), {DONE}, "ends")
        first, again = service.deliveries(good)
        assert_equal([(call.headers["webhook-id"], call.headers.get("webhook-resend"), call.body)
                      for call in (first, again)], [(good, None, first.body), (good, "1", first.body)], "deliveries")
        assert_true("resend_failed" in world.event(bad)["last_error"], "its note: %s" % world.event(bad)["last_error"])
        refused = world.ctl("replay", bad, "--reason", "x")
        assert_true("it is COMPLETED" in refused.stdout, refused)
        lines(world.ctl("pause", TYPE, "--reason", "x", "--json"))
        done = lines(world.ctl("resend", "--user", "c", "--type", TYPE, "--reason", "a mistake", "--json"))
        assert_equal([row["id"] for row in done], [withdrawn], "by a filter")
        lines(world.ctl("cancel", withdrawn, "--reason", "a mistake", "--json"))
        assert_equal(wait_ends(world, [withdrawn])[withdrawn], DONE, "the end of what was withdrawn")
        assert_equal(world.sql("SELECT count(*) FROM operator_actions WHERE action = 'resend'"), "3", "on record")
        wait_until(lambda: world.ctl("stats", "--json").stdout == world.ctl("stats", "--exact", "--json").stdout,
                   "the statistics have followed")
