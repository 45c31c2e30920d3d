"""CARD_REQUEST_ENDED: the end of each card request is delivered to the receiver of that route, signed. The transaction
of the end lists it, a claim makes the event, and a worker delivers it as a webhook.

Story: a client polled every second to learn of its card. A notification must say what is so, must not be lost while the
receiver is away, and cannot be forged by somebody who knows the address and not the secret.
"""
import base64
import hashlib
import hmac
import json
import os
import pathlib
import signal
import time

from harness import assert_equal, assert_true, slow, STUCK_AFTER_S, test, wait_until
from pages import form, form_of_webhook
from receiver import receiver, resets, route, says

TYPE = "CARD_REQUEST_ENDED"


class Secret:
    def __init__(self):
        self.bytes = os.urandom(32)
        self.text = "whsec_" + base64.b64encode(self.bytes).decode()

    def signs(self, call):
        """By the words of the Standard Webhooks specification, and the clock."""
        signed = b"%s.%s." % (call.headers["webhook-id"].encode(), call.headers["webhook-timestamp"].encode())
        wanted = "v1," + base64.b64encode(hmac.new(self.bytes, signed + call.body, hashlib.sha256).digest()).decode()
        assert_true(abs(int(call.headers["webhook-timestamp"]) - time.time()) < 300, "the time of a signature")
        return wanted in call.headers["webhook-signature"].split(" ")


def secret_file(world, *secrets):
    path = pathlib.Path(world.dir / "webhook.secret")
    path.write_text("".join(secret.text + "\n" for secret in secrets))
    path.chmod(0o600)
    return path


def ended(world):
    """{request: the number of its events}"""
    return {row["request"]: row["n"] for row in world.rows(
        "SELECT payload #>> '{data,id}' AS request, count(*) AS n FROM outbox_events WHERE event_type = '%s' GROUP BY 1" %
        TYPE)}


def wait_notified(world, count):
    return wait_until(lambda: int(world.sql("SELECT count(*) FROM outbox_events WHERE event_type = '%s' AND status ="
                                            " 'COMPLETED'" % TYPE)) >= count, "%d notifications are made" % count)


def notified(service):
    """{request: what its last delivery says}"""
    bodies = [json.loads(call.body) for call in service.deliveries()]
    assert_true(all(body["type"] == "card_request.ended" for body in bodies), "the type in the body")
    return {body["data"]["id"]: body["data"] for body in bodies}


def said(world, user, request, end=1):
    """What the notification of the end that GET shows now says."""
    return {**world.get(user, "/v1/card-requests/" + request).json(), "user_id": user, "end": end}


def wait_known(world):
    """Until the database knows what is delivered."""
    wait_until(lambda: world.sql("SELECT count(*) FROM issuing.routes WHERE event_type = '%s'" % TYPE) == "1",
               "the worker has told of its route")


@test(retry__max_attempts="3")
def each_end_of_a_request_is_told_with_the_words_of_the_api(world):
    secret = Secret()
    with receiver(world, "/hook") as service:
        route(world, service, TYPE, sign_secret_file=secret_file(world, secret))
        world.up()
        wait_known(world)
        world.sandbox.fault("check", "ineligible", user="blocked", code="user_blocked")
        world.sandbox.fault("create", "status", user="odd", status=418)
        world.sandbox.fault("link", "link_refused", user="unlinked")
        world.sandbox.fault("create", "create_then_drop", user="lost", count=1)
        users = ("alice", "blocked", "odd", "unlinked", "lost", 'o\'b "r"')
        requests = {user: world.accept(user) for user in users}
        world.wait_final(list(requests.values()))
        wait_notified(world, len(users))
        assert_equal(ended(world), {request: 1 for request in requests.values()}, "events")
        bodies = notified(service)
        for user, request in requests.items():
            assert_equal(bodies[request], said(world, user, request), "the body for " + user)
        assert_equal(bodies[requests["odd"]]["status"], "FAILED", "a question is an end, too")
        assert_true(form_of_webhook(world, TYPE) in [form(json.loads(call.body)) for call in service.deliveries()],
                    "the description has the form of a card's end")
        for call in service.deliveries():
            row = world.event(call.event)
            assert_equal((call.headers["webhook-id"], call.headers["ce-type"], row["user_id"] in users),
                         (call.event, TYPE, True), "headers")
            assert_true(secret.signs(call), "a signature")
        assert_true(secret.text not in world.workers()[0].text() and secret.text[6:] not in world.workers()[0].text(),
                    "no secret in the log")


@test
def without_that_route_no_end_is_notified(world):
    with receiver(world) as service:
        route(world, service)
        world.up()
        world.issue("alice")
        assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE event_type <> 'CARD_ISSUE'"), "0", "events")


@test(retry__max_attempts="3")
def what_operators_end_is_told_too(world):
    with receiver(world, "/hook") as service:
        route(world, service, TYPE)
        world.up()
        wait_known(world)
        world.sandbox.fault("create", "status", user="odd", status=418)
        world.sandbox.fault("create", "status", user="odd-2", status=418)
        odd, again = world.accept("odd"), world.accept("odd-2")
        world.wait_final([odd, again])
        wait_notified(world, 2)
        assert_equal(world.ctl("resolve", odd, "--reason", "no card is wanted").returncode, 0, "resolve")
        world.sandbox.clear()
        assert_equal(world.ctl("replay", again, "--reason", "it is foreseen now").returncode, 0, "replay")
        world.wait_final([odd, again])
        wait_notified(world, 4)
        assert_equal(ended(world), {odd: 2, again: 2}, "events: one an end")
        bodies = notified(service)
        for user, request, status in (("odd", odd, "REJECTED"), ("odd-2", again, "COMPLETED")):
            last = said(world, user, request, 2)
            assert_equal((last["status"], bodies[request]), (status, last), "the last word on " + user)
        control = world.ctl("pause", "issuer", "--reason", "to cancel one")
        assert_equal(control.returncode, 0, "pause: " + control.stderr)
        waiting = world.accept("carol")
        assert_equal(world.ctl("cancel", waiting, "--reason", "a mistake").returncode, 0, "cancel")
        wait_notified(world, 5)
        assert_equal(notified(service)[waiting], said(world, "carol", waiting), "cancelled")


@test(retry__max_attempts="20", breaker__failures="3", breaker__probe_interval="10ms")
def a_receiver_that_is_down_for_a_day_loses_no_end_and_stops_no_card(world):
    secret = Secret()
    with receiver(world, "/hook") as service:
        route(world, service, TYPE, sign_secret_file=secret_file(world, secret))
        world.up()
        wait_known(world)
        service.down()
        requests = [world.issue("user-%d" % i)["id"] for i in range(20)]
        probes = 'issuing_breaker_transitions_total{target="%s",state="half_open"}' % TYPE
        wait_until(lambda: world.workers()[0].metric(probes) >= 7, "seven probes", 60)
        service.up()
        wait_notified(world, 20)
        assert_equal(ended(world), {request: 1 for request in requests}, "events")
        assert_equal(set(notified(service)), set(requests), "told")
        assert_true(all(secret.signs(call) for call in service.deliveries()), "signatures are of the time of the send")


@test
def an_end_is_told_though_no_worker_of_its_route_lived_when_it_came(world):
    """The workers of hooks ran elsewhere and were down; after a minute the ends of others were lost for good."""
    with receiver(world, "/hook") as service:
        world.sql("SELECT issuing.note_routes('hooks:1', ARRAY['%s'], ARRAY[false], ARRAY[false], ARRAY[86400000::int8],"
                  " ARRAY[10::int8], ARRAY[false]); UPDATE issuing.routes SET seen_at = now() - interval '2 days';"
                  " DELETE FROM issuing.route_workers" % TYPE)
        world.up()
        requests = [world.issue("user-%d" % i)["id"] for i in range(5)]
        listed = json.loads(world.ctl("route", "list", "--json").stdout)
        assert_equal((listed["type"], listed["workers"], listed["ends_waiting"]), (TYPE, 0, 5), "the route")
        assert_true("no living worker has the route" in world.ctl("doctor").stdout, "doctor says so")
        refused = world.ctl("route", "remove", TYPE, "--reason", "a mistake")
        assert_equal((refused.returncode, "notifications wait" in refused.stdout), (1, True), "remove: " + refused.stdout)
        world.workers()[0].stop()
        route(world, service, TYPE)
        world.start_worker()
        wait_notified(world, 5)
        assert_equal(set(notified(service)), set(requests), "told")


@test(retry__max_attempts="20")
def a_new_secret_takes_over_without_a_delivery_that_nobody_can_check(world):
    """Both sign for a while; a file that cannot be used leaves the old ones in force."""
    old, new = Secret(), Secret()
    with receiver(world, "/hook") as service:
        route(world, service, TYPE, sign_secret_file=secret_file(world, old))
        world.up()
        wait_known(world)
        worker = world.workers()[0]

        def last(number):
            world.issue("user-%d" % number)
            wait_notified(world, number + 1)
            return service.deliveries()[-1]
        assert_equal([secret.signs(last(0)) for secret in (old,)], [True], "the old one")
        number = 1
        for what, secrets, wanted in (("both", (old, new), (True, True)), ("the new one", (new,), (False, True))):
            secret_file(world, *secrets)
            worker.signal(signal.SIGHUP)
            deadline = time.monotonic() + STUCK_AFTER_S
            while True:
                call = last(number)
                number += 1
                found = (old.signs(call), new.signs(call))
                assert_true(any(found), "a delivery that nobody can check")
                if found == wanted:
                    break
                assert_true(time.monotonic() < deadline, "%s: %r" % (what, call.headers))
        secret_file(world).write_text("whsec_!!!\n")
        worker.signal(signal.SIGHUP)
        wait_until(lambda: "sign_secret_file" in worker.text(), "the log names the file that cannot be used")
        assert_equal((old.signs(last(number)), new.signs(service.deliveries()[-1])), (False, True), "the last good one")


@test(retry__max_attempts="20", limit__count="1000")
def the_ends_of_a_user_are_told_in_their_order_where_asked(world):
    with receiver(world, "/hook") as service:
        route(world, service, TYPE, ordered="true")
        world.up(workers=2)
        wait_known(world)
        service.always(says(503))
        requests = [world.accept("user-%d" % (i % 3), "k%d" % i) for i in range(30)]
        world.wait_final(requests)
        service.always(resets(True))
        wait_until(lambda: len(service.executed) >= 3, "the first ones arrive")
        service.clear()
        wait_notified(world, 30)
        latest = {}
        for event in service.executed:
            user = world.event(event)["user_id"]
            assert_true(latest.get(user, "") < event, "%s: %s after %s" % (user, event, latest.get(user)))
            latest[user] = event
        assert_equal(set(notified(service)), set(requests), "told")


@slow
@test(worker__lease="2s", issuer__timeout="500ms", core__timeout="500ms", retry__max_attempts="20")
def kills_and_lost_answers_change_neither_the_number_of_ends_nor_of_cards(world):
    with receiver(world, "/hook") as service:
        route(world, service, TYPE)
        world.up(workers=2)
        wait_known(world)
        world.sandbox.fault("create", "create_then_drop", rate=0.2)
        service.always(resets(True))
        requests = []
        for turn in range(6):
            requests += [world.accept("user-%d-%d" % (turn, i)) for i in range(15)]
            time.sleep(0.3)  # some moment of the load
            worker = world.workers()[turn % 2]
            worker.kill()
            worker.start()
        service.clear()
        world.wait_final(requests, 90)
        wait_notified(world, len(requests))
        assert_equal(ended(world), {request: 1 for request in requests}, "events: one an end")
        assert_equal(set(notified(service)), set(requests), "told")
