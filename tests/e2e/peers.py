"""The stand-ins by themselves: what they execute late, undo, forget and limit. Other stories prove the promise with
them, so they must do what their faults say. No api and no worker runs here.

Story: a test scripts "the create arrives after the worker has given up", the sandbox executes it at once, and the test
passes although nothing was late.
"""
import json
import uuid

import client
from harness import assert_equal, assert_true, slow, STUCK_AFTER_S, test, wait_until
from profiles import generic_create

HOUR_MS = 3600000


def key_of(number):
    return str(uuid.UUID(int=number))


def create(world, number, user="alice", timeout=STUCK_AFTER_S):
    """A create; None: no answer."""
    body = generic_create(key_of(number), user)
    return send(world.sandbox.issuer, "POST", "/v1/cards", key_of(number), body, timeout)


def send(port, method, path, key, body=None, timeout=STUCK_AFTER_S):
    headers = {"Idempotency-Key": key}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        return client.call(port, method, path, headers, body, timeout)
    except (client.Closed, OSError):
        return None


def look_up(world, number):
    answer = client.call(world.sandbox.issuer, "GET", "/v1/cards?reference=" + key_of(number))
    return [card["status"] for card in answer.json()["cards"]]


def link(world, request, card, user="alice"):
    body = {"request_id": key_of(request), "card_id": key_of(card), "last4": "1234", "exp_month": 1, "exp_year": 2030,
            "kind": "new", "replaces": None}
    return send(world.sandbox.core, "POST", "/v1/users/%s/cards" % user, key_of(request), body)


def unlink(world, request, card, user="alice"):
    return send(world.sandbox.core, "DELETE", "/v1/users/%s/cards/%s" % (user, key_of(card)),
                key_of(request) + ":unlink")


def results(world):
    return [(row["call"], row["result"]) for row in world.sandbox.late()]


@test
def a_create_executed_late_needs_neither_its_connection_nor_its_caller(world):
    world.start_sandbox()
    world.allowed.add("orphan")
    box = world.sandbox
    for number, fault in enumerate(("drop_then_execute", "status_then_execute", "hang_then_execute"), 1):
        box.fault("create", fault, count=1, late_ms=HOUR_MS)
        answer = create(world, number, timeout=0.3)
        assert_equal(answer and answer.status, 504 if fault == "status_then_execute" else None, fault)
        assert_equal((look_up(world, number), box.late_outstanding()), ([], 1), "before the execution")
        assert_equal(box.run_late(), 1, "executed")
        assert_equal((look_up(world, number), box.late_outstanding()), (["active"], 0), "after the execution")
        assert_equal([card["late"] for card in box.cards(reference=key_of(number))], [True],
                     "the ledger says that it was late")
    assert_equal(results(world), [("create", "made")] * 3)
    box.fault("create", "drop_then_execute", count=1, late_ms=1)
    assert_equal(create(world, 9), None)
    box.wait_late()
    assert_equal(look_up(world, 9), ["active"], "by time, and not by command")


@slow
@test
def a_late_create_and_a_repeat_with_its_key_are_one_card_while_the_key_lives(world):
    world.start_sandbox("--key-lifetime", "60s")
    world.allowed |= {"orphan", "two_cards"}
    box = world.sandbox
    box.fault("create", "drop_then_execute", count=2, late_ms=HOUR_MS)
    create(world, 1)
    create(world, 2)
    assert_equal([create(world, number).status for number in (1, 2)], [201, 201], "the repeats overtake")
    box.advance(59000)
    box.fault("create", "execute_twice", count=1, late_ms=HOUR_MS)
    assert_equal(create(world, 1).status, 200)
    box.advance(500)
    assert_equal(box.run_late(), 3)
    assert_equal(sorted(results(world)), [("create", "same")] * 3)
    assert_equal(box.summary()["references_with_two_cards"], 0, "within the lifetime")
    box.fault("create", "execute_twice", user="bob", count=1, late_ms=HOUR_MS)
    assert_equal(create(world, 3, "bob").status, 201)
    box.advance(60000)
    assert_equal(box.run_late(), 1)
    assert_equal(look_up(world, 3), ["active", "active"], "the key was forgotten when the second delivery arrived")


@test
def a_late_refusal_is_stored_under_its_key(world):
    world.start_sandbox("--key-lifetime", "60s")
    world.allowed.add("orphan")
    box = world.sandbox
    box.fault("create", "hang_then_execute", count=1, late_ms=HOUR_MS, late_code="bin_closed")
    assert_equal(create(world, 1, timeout=0.3), None)
    assert_equal(box.run_late(), 1)
    answer = create(world, 1)
    assert_equal((answer.status, answer.json()["code"], look_up(world, 1)), (422, "bin_closed", []), "the repeat")
    box.advance(60000)
    assert_equal(create(world, 1).status, 201, "a forgotten key")
    assert_equal(results(world), [("create", "refused")])


@test
def the_time_of_a_late_execution_can_run_from_when_the_caller_left(world):
    world.start_sandbox()
    world.allowed.add("orphan")
    box = world.sandbox
    box.fault("create", "hang_then_execute", count=1, late_ms=0, late_from="gone")
    body = json.dumps(generic_create(key_of(1)))
    with client.Wire(box.issuer) as wire:
        wire.send(client.request_bytes("POST", "/v1/cards", {"Idempotency-Key": key_of(1),
                                                             "Content-Type": "application/json"}, body))
        wait_until(lambda: box.late_outstanding() == 1, "the call has arrived")
        assert_equal((look_up(world, 1), box.late_outstanding()), ([], 1), "while the caller waits")
    box.wait_late()
    assert_equal(look_up(world, 1), ["active"], "after it left")


@test
def an_unlink_takes_a_link_back_for_good(world):
    world.start_sandbox()
    world.allowed.add("orphan")
    box = world.sandbox
    assert_equal(link(world, 1, 101).status, 201)
    assert_equal(unlink(world, 1, 101, "bob").status, 422, "another user")
    assert_equal([unlink(world, 1, 101).status for _ in range(2)], [204, 204])
    answer = link(world, 1, 101)
    assert_equal((answer.status, answer.json()["code"]), (409, "unlinked"))
    assert_equal(box.ledger()["links"], [])
    assert_equal(unlink(world, 2, 102).status, 404, "never linked")
    assert_equal(link(world, 2, 102).status, 409, "a link that its unlink has overtaken")
    assert_equal([(row["request_id"], row["took_link"]) for row in box.ledger()["unlinks"]],
                 [(key_of(1), True), (key_of(2), False)], "the ledger")
    assert_equal(send(box.core, "DELETE", "/v1/users/alice/cards/" + key_of(101), key_of(1)).status, 400,
                 "a key of no unlink")
    assert_equal(send(box.core, "DELETE", "/v1/users/alice/cards/x", key_of(1) + ":unlink").status, 400,
                 "a card of no request")
    box.fault("unlink", "status", status=503, count=1)
    box.fault("core", "drop", count=1, user="carol")
    assert_equal((unlink(world, 1, 101).status, unlink(world, 3, 103, "carol")), (503, None), "faults")


@test
def a_late_link_after_its_unlink_is_not_executed(world):
    world.start_sandbox()
    world.allowed.add("orphan")
    box = world.sandbox
    box.fault("link", "drop_then_execute", user="alice", count=1, late_ms=HOUR_MS)
    box.fault("link", "execute_twice", user="bob", count=1, late_ms=HOUR_MS)
    assert_equal((link(world, 1, 101), link(world, 2, 102, "bob").status), (None, 201))
    assert_equal((unlink(world, 1, 101).status, unlink(world, 2, 102, "bob").status), (404, 204))
    assert_equal(box.run_late(), 2)
    assert_equal((results(world), box.ledger()["links"]), ([("link", "unlinked")] * 2, []))
    assert_equal(link(world, 3, 103).status, 201)
    box.fault("unlink", "status_then_execute", count=1, late_ms=HOUR_MS)
    assert_equal(unlink(world, 3, 103).status, 504)
    assert_equal([row["request_id"] for row in box.ledger()["links"]], [key_of(3)], "not yet")
    assert_equal(box.run_late(), 1)
    assert_equal((box.ledger()["links"], box.ledger()["unlinks"][-1]["late"]), ([], True))


@test
def a_look_up_can_be_stale_or_unreadable_for_some_users(world):
    world.start_sandbox()
    world.allowed.add("orphan")
    box = world.sandbox
    assert_equal(create(world, 1).status, 201)
    box.advance(10000)
    box.fault("lookup", "stale", stale_ms=5000)
    assert_equal(look_up(world, 1), ["active"], "a card made before that")
    card = box.cards()[0]["id"]
    assert_equal(send(box.issuer, "POST", "/v1/cards/%s/cancel" % card, "c").status, 200)
    assert_equal(create(world, 2).status, 201)
    assert_equal((look_up(world, 1), look_up(world, 2)), (["active"], []), "what has changed since is not shown")
    box.advance(5000)
    assert_equal((look_up(world, 1), look_up(world, 2)), (["cancelled"], ["active"]), "later")
    box.clear()
    box.fault("lookup", "answer", user="bob", card={"status": "pending_activation"})
    assert_equal(create(world, 3, "bob").status, 201)
    assert_equal((look_up(world, 3), look_up(world, 2)), (["pending_activation"], ["active"]), "one user only")
    # Also where there is no card that could name the user: the create did.
    box.fault("create", "drop", user="carol", count=1)
    box.fault("lookup", "status", status=403, user="carol")
    assert_equal(create(world, 4, "carol"), None)
    assert_equal(client.call(box.issuer, "GET", "/v1/cards?reference=" + key_of(4)).status, 403)


@test
def a_peer_can_grant_a_rate_and_refuse_what_exceeds_it(world):
    world.start_sandbox()
    world.allowed.add("orphan")
    box = world.sandbox
    box.fault("create", "limited", per_second=0.001, retry_after="7")
    answers = [create(world, number) for number in (1, 2, 3)]
    assert_equal([answer.status for answer in answers], [201, 429, 429])
    assert_equal([answer.header("Retry-After") for answer in answers], [None, "7", "7"])
    box.clear()
    box.fault("create", "limited", per_second=0.001)
    assert_true(create(world, 4).header("Retry-After") is None, "granted")
    assert_equal((create(world, 5).status, create(world, 5).header("Retry-After")), (429, None), "without a time")


@test
def late_executions_are_given_up_by_a_reset_and_at_the_end(world):
    world.start_sandbox()
    world.allowed |= {"orphan", "late"}
    box = world.sandbox
    box.fault("create", "drop_then_execute", late_ms=HOUR_MS)
    create(world, 1)
    assert_equal(box.late_outstanding(), 1)
    box.control_call("POST", "/reset", "")
    assert_equal((box.late_outstanding(), box.run_late(), box.cards()), (0, 0, []))
    box.fault("create", "drop_then_execute", late_ms=HOUR_MS)
    create(world, 2)
    assert_equal(box.late_outstanding(), 1, "left for the end")


# ---- what routes call ----

def charge(world, key, amount=1999, method="POST", timeout=STUCK_AFTER_S):
    """A charge; None: no answer."""
    return send(world.sandbox.route, method, "/v1/charges", key, {"amount": amount}, timeout)


def was_charged(world, key):
    return client.call(world.sandbox.route, "GET", "/v1/charges/" + key).status


def counts(world, *names):
    found = world.sandbox.charges()
    return tuple(found[name] for name in names)


@test
def a_key_is_charged_once_whatever_became_of_the_answer(world):
    world.start_sandbox()
    first = charge(world, "k")
    assert_equal((first.status, first.json()["amount"], was_charged(world, "k")), (201, 1999, 200), "a charge")
    repeat = charge(world, "k", method="PUT")
    assert_equal((repeat.status, repeat.body, repeat.header("Idempotent-Replayed")), (201, first.body, "true"),
                 "the same again")
    assert_equal(charge(world, "k", 2000).json()["code"], "idempotency_mismatch", "the key with another body")
    for fault, is_charged in (("create_then_drop", True), ("drop", False)):
        world.sandbox.fault("charge", fault, count=1)
        assert_equal((charge(world, fault), was_charged(world, fault)), (None, 200 if is_charged else 404), fault)
        assert_equal((charge(world, fault).status, was_charged(world, fault)), (201, 200), fault + ", repeated")
    world.sandbox.fault("charge", "execute_then_status", status=500, stored=True, count=1)
    assert_equal([charge(world, "kept").status for _ in range(2)], [500, 500], "a kept answer")
    assert_equal(was_charged(world, "kept"), 200, "it was charged all the same")
    assert_equal(counts(world, "keys", "executions", "executed_twice", "calls"), (4, 4, 0, 9), "the report")


@test
def a_charge_at_work_is_neither_charged_nor_not_charged(world):
    world.start_sandbox()
    world.sandbox.fault("charge", "hang_then_execute", count=1, at_work=True, late_ms=HOUR_MS)
    assert_equal(charge(world, "k", timeout=0.3), None, "the first call")
    for answer in (charge(world, "k"), client.call(world.sandbox.route, "GET", "/v1/charges/k")):
        assert_equal((answer.status, answer.header("Retry-After")), (409, "1"), "while it is at work")
    assert_equal((world.sandbox.run_late(), was_charged(world, "k")), (1, 200), "the late execution")
    assert_equal(charge(world, "k").header("Idempotent-Replayed"), "true", "a repeat after it")
    world.sandbox.fault("charge", "drop_then_execute", count=1, late_ms=HOUR_MS)
    assert_equal((charge(world, "queued"), was_charged(world, "queued")), (None, 404), "a call that only waits")
    assert_equal(charge(world, "queued").status, 201, "is overtaken by a repeat")
    world.sandbox.run_late()
    assert_equal(counts(world, "executions", "executed_twice"), (2, 0), "charges")


@test
def a_key_that_is_used_after_its_lifetime_charges_again_and_that_is_reported(world):
    world.start_sandbox("--route-key-lifetime", "1h")
    charge(world, "k")
    world.sandbox.advance(HOUR_MS)
    assert_equal((charge(world, "k").header("Idempotent-Replayed"), was_charged(world, "k")), (None, 200), "too late")
    assert_equal(counts(world, "executions", "executed_twice"), (2, 1), "charges")


@test
def charges_are_known_after_the_death_of_the_payment_service(world):
    world.start_sandbox("--charges-file", str(world.dir / "charges"))
    first = charge(world, "k")
    world.sandbox.kill()
    world.sandbox.start().wait_ready()
    assert_equal((was_charged(world, "k"), charge(world, "k").body), (200, first.body), "the charge")
    assert_equal(counts(world, "executions", "executed_twice"), (1, 0), "charges")


@test
def a_webhook_is_kept_as_it_came_and_counted_by_its_id(world):
    world.start_sandbox()
    body = json.dumps({"text": "x" * 65000})
    headers = {"webhook-id": "1", "ce-subject": "al%20ice", "ce-type": "T", "X-Two": "a"}
    world.sandbox.fault("hook", "drop", count=1, path="/hooks/audit")
    for name, more in (("audit", ""), ("other", ""), ("audit", body), ("audit", body)):
        try:
            client.call(world.sandbox.route, "PUT", "/hooks/" + name, [*headers.items(), ("x-two", "b")], more or body)
        except client.Closed:
            assert_equal((name, more), ("audit", ""), "the call that is dropped")
    found = world.sandbox.hooks(name="audit")
    assert_equal([(row["id"], row["user_id"], row["type"], row["deliveries"], row["order"]) for row in found],
                 [("1", "al ice", "T", 2, 1)], "the deliveries to one hook")
    assert_equal((found[0]["body"], found[0]["headers"]["x-two"], found[0]["body_changed"]), (body, "a, b", False),
                 "what came")
    assert_equal(client.call(world.sandbox.route, "POST", "/hooks/audit", {}, "{}").status, 400, "without an id")
    assert_equal(client.call(world.sandbox.route, "POST", "/hooks/audit", headers, "x" * 65537).status, 413, "too long")
