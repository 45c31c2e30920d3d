"""POST /v1/issuer-events: the issuer reports that a card has changed; the card changes here only as a look-up shows it.

Story: a user froze a card in the issuer's own app, and the api showed it as active for ever. Each vendor signs its
events in a way of its own; forged, late, doubled and replayed ones do no harm."""
import base64
import concurrent.futures
import hashlib
import hmac
import json
import os
import pathlib
import time
import uuid

import client
from daemons import errors, hang_up
from harness import assert_equal, assert_true, EVERY, slow, test, wait_until
from pages import form, form_of_webhook
from processes import free_port
from receiver import receiver, route

STATUS_CHANGED = "CARD_STATUS_CHANGED"


class Standard:
    """Standard Webhooks: the generic issuer, and Lithic."""
    def __init__(self):
        self.key = os.urandom(32)
        self.secret = "whsec_" + base64.b64encode(self.key).decode()

    def sign(self, body, now):
        name = "msg_" + uuid.uuid4().hex
        signed = base64.b64encode(hmac.new(self.key, b"%s.%d.%s" % (name.encode(), now, body), hashlib.sha256).digest())
        return {"webhook-id": name, "webhook-timestamp": str(now), "webhook-signature": "v1," + signed.decode()}

    def event(self, kind, card, reference):
        return {"type": "card." + kind, "data": {"id": card, "reference": reference}}


class Lithic(Standard):
    def event(self, kind, card, reference):
        return {"event_type": "card." + kind, "card_token": card}


class Increase(Standard):
    """Its SDK writes a secret that is any text as whsec_ and the text's base64."""
    def event(self, kind, card, reference):
        return {"id": "event_1", "type": "event", "category": "card." + kind, "associated_object_type": "card",
                "associated_object_id": card}


class Stripe(Standard):
    def sign(self, body, now):
        signed = hmac.new(self.secret.encode(), b"%d.%s" % (now, body), hashlib.sha256).hexdigest()
        return {"Stripe-Signature": "t=%d,v1=%s,v0=%s" % (now, signed, "0" * 64)}

    def event(self, kind, card, reference):
        return {"id": "evt_1", "object": "event", "type": "issuing_card." + kind, "created": int(time.time()), "data": {
            "object": {"id": card, "object": "issuing.card", "metadata": {"issuing_reference": reference}}}}


class Adyen:
    def __init__(self):
        self.key = os.urandom(32)
        self.secret = self.key.hex().upper()

    def sign(self, body, now):
        return {"HmacSignature": base64.b64encode(hmac.new(self.key, body, hashlib.sha256).digest()).decode()}

    def event(self, kind, card, reference):
        return {"type": "balancePlatform.paymentInstrument." + kind, "environment": "test", "data": {
            "balancePlatform": "Platform", "paymentInstrument": {"id": card, "reference": reference}}}


class Marqeta:
    secret = "issuing:a password of twenty to fifty"

    def sign(self, body, now):
        return {"Authorization": "Basic " + base64.b64encode(self.secret.encode()).decode()}

    def event(self, kind, card, reference):
        return {"cardtransitions": [{"token": str(uuid.uuid4()), "type": "state." + kind, "card_token": card}]}


SIGNERS = {"generic": Standard, "stripe": Stripe, "lithic": Lithic, "marqeta": Marqeta, "increase": Increase,
           "adyen": Adyen}


class Sender:
    """The issuer as it sends events to our api."""

    def __init__(self, world):
        self.world = world
        self.signer = SIGNERS[world.issuer.profile]()
        self.port = free_port()
        self.file = pathlib.Path(world.dir / "issuer_events.secret")
        self.write(self.signer.secret)
        world.settings.update({"api.issuer_events_listen": "127.0.0.1:%d" % self.port,
                               "api.issuer_events_secret_file": str(self.file)})

    def write(self, *lines):
        self.file.write_text("".join(line + "\n" for line in lines))
        self.file.chmod(0o600)

    def post(self, body, headers, path="/v1/issuer-events"):
        return client.call(self.port, "POST", path, {"Content-Type": "application/json", **headers}, body)

    def send(self, request, kind="updated", wanted=204, now=None):
        """An event about the card of this request."""
        card = self.world.rows("SELECT issuer_card_id FROM cards WHERE request_id = '%s'" % request)
        event = self.signer.event(kind, card[0]["issuer_card_id"] if card else request, request)
        # Of Standard Webhooks the header has the id: two changes of a card may have the same body.
        nonce = {} if type(self.signer).sign is Standard.sign else {"nonce": uuid.uuid4().hex}
        body = json.dumps({**event, **nonce}).encode()
        headers = self.signer.sign(body, int(now or time.time()))
        assert_equal(self.post(body, headers).status, wanted, "the answer to an event")
        return body, headers


def card_status(world, user):
    return [card["status"] for card in world.get(user, "/v1/cards").json()["items"]]


def wait_card(world, user, *wanted):
    wait_until(lambda: card_status(world, user) == list(wanted), "the cards of %s are %s" % (user, wanted))


def issuer_id(world, request):
    return world.row("SELECT issuer_card_id FROM cards WHERE request_id = '%s'" % request)["issuer_card_id"]


@slow
@test(issuers=EVERY)
def a_card_is_shown_as_the_issuer_has_it(world):
    sender = Sender(world)
    world.allowed.add("closed_card")
    with receiver(world, "/statuses") as service:
        route(world, service, STATUS_CHANGED)
        world.up()
        request = world.issue("alice")["id"]
        card = issuer_id(world, request)
        statuses = ["active"]
        if hasattr(world.issuer, "freeze"):
            for change, status in ((world.issuer.freeze, "frozen"), (world.issuer.thaw, "active")):
                change(world, card)
                sender.send(request)
                wait_card(world, "alice", status)
                statuses.append(status)
        world.issuer.close(world, card)
        sender.send(request, "closed")
        wait_card(world, "alice", "cancelled")
        statuses.append("cancelled")
        wait_until(lambda: len(service.deliveries()) == len(statuses) - 1, "each change is told")
        told = [json.loads(call.body) for call in service.deliveries()]
        assert_equal([(body["type"], body["data"]["previous_status"], body["data"]["status"]) for body in told],
                     [("card.status_changed", before, after) for before, after in zip(statuses, statuses[1:])], "told")
        assert_true(all(body["data"]["user_id"] == "alice" and body["data"]["request_id"] == request for body in told),
                    "whose card it is")
        assert_equal(form(told[0]), form_of_webhook(world, STATUS_CHANGED), "as the description has it")
        assert_equal(world.get("alice", "/v1/card-requests/" + request).json()["status"], "COMPLETED", "the request")
        assert_equal(len(world.sandbox.ledger(user="alice")["unlinks"]), 1, "core-api is told that the card is closed")
    assert_equal(world.ctl("prove").returncode, 0, "prove")


@slow
@test(issuers=EVERY)
def an_event_that_nobody_signed_or_that_says_nothing_changes_nothing(world):
    world.allowed.add("closed_card")
    sender = Sender(world)
    world.up()
    request = world.issue("alice")["id"]
    world.issuer.close(world, issuer_id(world, request))
    body = json.dumps(sender.signer.event("closed", issuer_id(world, request), request)).encode()
    headers = sender.signer.sign(body, int(time.time()))
    assert_equal(sender.post(body, {}).status, 401, "without a signature")
    for name, value in headers.items():
        forged = value.replace("v1=", "v1=0") if "v1=" in value else value[:-3] + "AAA"
        assert_equal(sender.post(body, {**headers, name: forged}).status, 401, "another " + name)
        assert_equal(sender.post(body, {other: text for other, text in headers.items() if other != name}).status, 401,
                     "without " + name)
    if world.issuer.profile != "marqeta":
        assert_equal(sender.post(body + b" ", headers).status, 401, "another body")
    if world.issuer.profile not in ("marqeta", "adyen"):
        for shift in (-400, 400):
            late = sender.signer.sign(body, int(time.time()) + shift)
            assert_equal(sender.post(body, late).status, 401, "of another time")
    assert_equal(sender.post(body, headers, "/v1/card-requests").status, 404, "another path")
    assert_equal(client.call(sender.port, "GET", "/v1/issuer-events", {}).status, 405, "another method")
    for odd in (b"", b"no JSON", b"\xff", b"[" * 100):
        assert_equal(sender.post(odd, sender.signer.sign(odd, int(time.time()))).status, 400, "%r" % odd[:9])
    for odd in (b"{}", b"[]", b'{"type": 7, "data": []}', b'{"cardtransitions": {}}',
                json.dumps(sender.signer.event("closed", "no-such-card", str(uuid.uuid4()))).encode()):
        assert_equal(sender.post(odd, sender.signer.sign(odd, int(time.time()))).status, 204, "%r" % odd)
    assert_equal(world.sql("SELECT count(*) FROM marks"), "0", "marks")
    assert_equal(card_status(world, "alice"), ["active"], "nobody has looked")
    sender.send(request, "closed")
    wait_card(world, "alice", "cancelled")
    assert_true(sender.signer.secret not in (world.dir / "api-1.log").read_text(), "no secret in the log")


@slow
@test(issuers=("generic",), retry__base="1h", retry__cap="1h", idempotency__retention="20d", limit__window="20d")
def an_event_of_the_issuer_ends_an_unknown_outcome_at_once(world):
    """The create was executed and its answer lost; the next attempt would be an hour later."""
    sender = Sender(world)
    world.up()
    world.sandbox.fault("create", "create_then_drop", user="alice", count=1)
    request = world.accept("alice")
    wait_until(lambda: world.attempts(request) and world.status(request) == "PENDING", "the answer is lost")
    body, headers = sender.send(request, "created")
    world.wait_status(request, "COMPLETED")
    # A create that was not sent is not brought forward, and what is sent again costs no attempt.
    world.sandbox.fault("check", "status", user="bob", count=1, status=503)
    other = world.accept("bob")
    wait_until(lambda: world.attempts(other) and world.status(other) == "PENDING", "bob's attempt has ended")
    before = world.event(other)["next_attempt_at"]
    sender.send(other)
    assert_equal(world.event(other)["next_attempt_at"], before, "bob's next attempt")
    for _ in range(50):
        assert_equal(sender.post(body, headers).status, 204, "a repeat")
    assert_equal(world.sql("SELECT count(*) FROM marks"), "0", "marks of repeats")
    metrics = world.apis()[0].metrics()
    assert_equal(metrics.get('issuing_issuer_events_total{result="repeated"}'), 50.0, "counted")


@slow
@test(issuers=("generic",))
def a_closed_card_is_shown_so_while_core_api_is_away(world):
    world.allowed.add("closed_card")
    sender = Sender(world)
    world.up()
    request = world.issue("alice")["id"]
    world.issuer.close(world, issuer_id(world, request))
    world.sandbox.down("core")
    sender.send(request, "closed")
    wait_card(world, "alice", "cancelled")
    assert_equal(world.sandbox.ledger(user="alice")["unlinks"], [], "core-api knows nothing yet")
    world.workers()[0].kill()
    world.restart(world.workers()[0])
    world.sandbox.down("core", False)
    wait_until(lambda: len(world.sandbox.ledger(user="alice")["unlinks"]) == 1, "core-api is told", 60)


@test
def a_secret_of_the_events_that_cannot_be_used_costs_the_events_alone(world):
    """Story: its file was root's. The events are hints, and the api that takes them too did not start: no card was
    requested for want of it."""
    sender = Sender(world)
    sender.write("no secret")
    world.up()
    api, request = world.apis()[0], world.issue("alice")["id"]
    sender.send(request, wanted=503)
    assert_equal([why.split(": ")[0] for why in errors(map(json.loads, api.text().splitlines()))],
                 ["api.issuer_events_secret_file"], "errors")
    sender.write(sender.signer.secret)
    hang_up(api)
    sender.send(request)


@slow
@test(issuers=("lithic",))
def a_card_whose_event_is_long_gone_still_follows_the_issuer(world):
    world.allowed.add("orphan")
    sender = Sender(world)
    world.up()
    request = world.issue("alice")["id"]
    world.sql("DELETE FROM outbox_attempts; DELETE FROM outbox_events; DELETE FROM idempotency_keys; DELETE FROM rate_limit_log")
    world.issuer.freeze(world, issuer_id(world, request))
    sender.send(request)
    wait_card(world, "alice", "frozen")
    news = world.accept("alice", "again", {"kind": "reissue", "replaces": world.get("alice", "/v1/cards").json()[
        "items"][0]["id"]})
    world.wait_status(news, "COMPLETED")
    assert_equal(sorted(card_status(world, "alice")), ["active", "replaced"], "a frozen card can be replaced")


@slow
@test(issuers=("stripe",))
def the_secret_is_changed_without_a_gap(world):
    sender = Sender(world)
    world.up()
    request = world.issue("alice")["id"]
    old, new = sender.signer, Stripe()
    sender.write(old.secret, new.secret)
    hang_up(world.apis()[0])
    for signer in (old, new):
        sender.signer = signer
        sender.send(request)
    sender.write("not a secret")
    hang_up(world.apis()[0])
    sender.send(request)
    sender.write(new.secret)
    hang_up(world.apis()[0])
    sender.signer = old
    wait_until(lambda: sender.post(b"{}", old.sign(b"{}", int(time.time()))).status == 401, "the old one is out of use")


@slow
@test(issuers=("generic",))
def a_database_that_is_away_is_answered_503(world):
    sender = Sender(world)
    world.up()
    request = world.issue("alice")["id"]
    with world.holding("LOCK TABLE issuer_events IN ACCESS EXCLUSIVE MODE"):
        sender.send(request, wanted=503)
    sender.send(request)


@slow
@test(issuers=("generic",), database__connections="2")
def events_that_wait_in_the_database_keep_no_acceptance_waiting(world):
    sender = Sender(world)
    world.up()
    request = world.issue("alice")["id"]
    with world.holding("LOCK TABLE issuer_events IN ACCESS EXCLUSIVE MODE"):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            sent = [pool.submit(sender.send, request, wanted=503) for _ in range(16)]
            wait_until(lambda: world.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") != "0", "events wait")
            for number in range(8):
                world.accept("alice", "while-%d" % number)
            assert_true(not any(future.done() for future in sent), "the events still wait")
            for future in sent:
                future.result()
