"""The stand-in issuer as Marqeta, by itself: what a program that calls the Core API sees. No api and no worker runs
here.

Story: the worker is right against a stand-in whose cards are active at once and whose tokens are free again, and leaves
cards UNACTIVATED at the real Marqeta.
"""
import base64
import json
import re

import client
from adyen import GARBAGE, HOUR_MS, spoiled
from harness import assert_equal, assert_true, test

CREDENTIAL = "application:access-token"


def basic(credential):
    return {"Authorization": "Basic " + base64.b64encode(credential.encode()).decode()}


JSON = {**basic(CREDENTIAL), "Content-Type": "application/json"}


def start(world, *options):
    box = world.start_stand_in("marqeta", CREDENTIAL, *options)
    parameters(world, "alice")
    return box


def parameters(world, user):
    """Asks core-api about the user, which tells the issuer of the user as well."""
    return client.call(world.sandbox.core, "GET", "/v1/users/%s/card-eligibility?kind=new" % user).json()["issuer"]


def call(world, method, path, body=None, headers=JSON):
    return client.call(world.sandbox.issuer, method, "/v3" + path, headers, body)


def order(token="card-1", product="virtual", **members):
    return {"token": token, "user_token": "alice", "card_product_token": product, "metadata": {"memo": "a memo"},
            **members}


def create(world, token="card-1", **members):
    return call(world, "POST", "/cards", order(token, **members))


def transition(world, token, state, card="card-1", **members):
    return call(world, "POST", "/cardtransitions", {"token": token, "card_token": card, "channel": "API",
                                                    "state": state, "reason_code": "01", **members})


def state(world, card="card-1"):
    return call(world, "GET", "/cards/" + card).json()["state"]


def verdict(answer):
    """Only the first three digits of a code are certain, and are the status where the code is not of another one."""
    assert_true(re.fullmatch("[0-9]{3,6}", answer.json()["error_code"]) and answer.json()["error_message"],
                "the form of an error: %r" % answer)
    return answer.status


@test
def a_card_is_masked_and_begins_unactivated(world):
    box = start(world)
    answer = create(world)
    made, (number,) = answer.json(), box.numbers()
    assert_equal((answer.status, made["token"], made["state"], made["metadata"]),
                 (201, "card-1", "UNACTIVATED", {"memo": "a memo"}))
    assert_equal((made["pan"], made["last_four"]), (number[:6] + "______" + number[-4:], number[-4:]), "masked")
    month, year = made["expiration"][:2], made["expiration"][2:]
    assert_true(re.fullmatch("(0[1-9]|1[0-2])3[0-9]", made["expiration"]), "MMyy")
    assert_true(re.fullmatch("20%s-%s-(28|29|30|31)T23:59:59Z" % (year, month), made["expiration_time"]), "its end")
    assert_true(re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z", made["created_time"]), "whole seconds")
    assert_true("cvv_number" not in made, "no cvv")
    assert_equal(call(world, "GET", "/cards/card-1").json(), made, "read again")
    shown = call(world, "GET", "/cards/card-1/showpan?show_cvv_number=true").json()
    assert_equal((shown["pan"], len(shown["cvv_number"])), (number, 3))
    assert_true("cvv_number" not in call(world, "GET", "/cards/card-1/showpan").json(), "unless asked for")
    assert_equal([verdict(call(world, "GET", path)) for path in ("/cards/none", "/cards/none/showpan")], [404, 404])
    active = call(world, "POST", "/cards?show_pan=true", order("card-2", "virtual_activated")).json()
    assert_equal((active["state"], [active["pan"]]), ("ACTIVE", box.numbers()[1:]), "activate_upon_issue")
    unnamed = order()
    del unnamed["token"], unnamed["metadata"]
    tokens = [call(world, "POST", "/cards", unnamed).json()["token"] for _ in range(2)]
    assert_true(tokens[0] != tokens[1] and len(tokens[0]) == 36, "Marqeta chooses where the caller does not")
    assert_equal(client.call(box.issuer, "GET", "/cards/card-1", JSON).status, 200, "without the base path")


@test
def a_token_stands_for_one_content_for_ever(world):
    box = start(world, "--key-lifetime=60s")
    first = create(world)
    assert_equal((create(world).status, create(world).json()), (201, first.json()), "the same content")
    reordered = json.dumps(dict(reversed(order().items())), indent=3)
    assert_equal(call(world, "POST", "/cards", reordered).json(), first.json(), "in another order and with white space")
    for other in (order(metadata={"memo": "other"}), order(product="virtual_activated"), order(metadata={})):
        answer = call(world, "POST", "/cards", other)
        assert_equal((verdict(answer), answer.json()["error_message"]),
                     (409, "Token already associated with a different payload"), str(other))
    box.advance(1000 * 24 * HOUR_MS)
    assert_equal((create(world).status, len(box.cards())), (201, 1), "years later")
    assert_equal(transition(world, "end-1", "TERMINATED").status, 201)
    assert_equal((create(world).status, create(world).json()["state"]), (201, "TERMINATED"), "the card as it is now")
    assert_equal((box.cards()[0]["sends"], box.ledger()["counts"]["issuer.mismatch"]), (10, 3), "the ledger")


@test
def what_a_create_names_must_be_known(world):
    box = start(world)
    bad = (order(user_token="nobody"), order(product="plastic"), order(new_pan_from_card_token="none"),
           order(reissue_pan_from_card_token="none"), order("t" * 37), order(metadata={"memo": 7}), order(memo="x"),
           order(user_token="u" * 37), order("two words"), order(""),
           order(new_pan_from_card_token="a", reissue_pan_from_card_token="b"))
    assert_equal([verdict(call(world, "POST", "/cards", body)) for body in bad], [400] * len(bad))
    for name in ("user_token", "card_product_token"):
        body = order()
        del body[name]
        assert_equal(verdict(call(world, "POST", "/cards", body)), 400, name)
    assert_equal(box.cards(), [])
    assert_equal(parameters(world, "alice"), {}, "the user id is the token")
    long_user = "u" * 50
    told = parameters(world, long_user)["user_token"]
    assert_true(len(told) <= 36, "unless it is too long")
    assert_equal(create(world, user_token=told).status, 201)
    assert_equal([card["user_id"] for card in box.cards()], [long_user])


@test
def a_new_number_ends_the_old_card_at_once_and_the_same_one_when_it_is_activated(world):
    """marqeta.com/docs/developer-guides/managing-lost-stolen-or-damaged-cards"""
    box = start(world)
    create(world, product="virtual_activated")
    made = create(world, "card-2", new_pan_from_card_token="card-1").json()
    assert_equal((made["new_pan_from_card_token"], made["state"], state(world)), ("card-1", "UNACTIVATED", "TERMINATED"))
    assert_equal([(card["kind"], card["status"]) for card in box.cards()], [("new", "cancelled"), ("reissue", "inactive")])
    first, second = box.numbers()
    assert_equal(call(world, "GET", "/cards/card-2/showpan").json()["pan"], second, "its own number")
    assert_true(first != second, "two numbers")
    listed = call(world, "GET", "/cards/user/alice").json()
    assert_equal(([card["token"] for card in listed["data"]], listed["count"], listed["is_more"]),
                 (["card-2", "card-1"], 2, False), "of the user, newest first")
    listed = call(world, "GET", "/cards/user/alice?count=1&start_index=0").json()
    assert_equal(([card["token"] for card in listed["data"]], listed["is_more"]), (["card-2"], True))
    listed = call(world, "GET", "/cards/user/alice?count=1&start_index=1").json()
    assert_equal(([card["token"] for card in listed["data"]], listed["is_more"]), (["card-1"], False))
    transition(world, "act-2", "ACTIVE", "card-2", reason_code="00")
    create(world, "card-3", reissue_pan_from_card_token="card-2")
    assert_equal((state(world, "card-2"), state(world, "card-3")), ("ACTIVE", "UNACTIVATED"), "a damaged card")
    assert_equal(call(world, "GET", "/cards/card-3/showpan").json()["pan"], second, "the same number")
    transition(world, "act-3", "ACTIVE", "card-3", reason_code="00")
    assert_equal((state(world, "card-2"), state(world, "card-3")), ("TERMINATED", "ACTIVE"), "once it is active")
    for path in ("/cards/user/nobody", "/cards/user/alice?count=0", "/cards/user/alice?count=x"):
        assert_equal(verdict(call(world, "GET", path)), 400, path)


@test
def transitions_activate_and_end_a_card_once(world):
    box = start(world)
    create(world)
    made = transition(world, "act-1", "ACTIVE", reason_code="00")
    assert_equal((made.status, made.json()["state"], made.json()["card_token"]), (201, "ACTIVE", "card-1"))
    assert_equal(call(world, "GET", "/cardtransitions/act-1").json(), made.json(), "read again")
    assert_equal(verdict(call(world, "GET", "/cardtransitions/act-2")), 404)
    assert_equal(transition(world, "act-1", "ACTIVE", reason_code="00").json(), made.json(), "the same again")
    assert_equal(verdict(transition(world, "act-1", "TERMINATED")), 409, "its token with other content")
    assert_equal(verdict(transition(world, "act-2", "ACTIVE")), 400, "it is ACTIVE already")
    assert_equal(transition(world, "act-2", "SUSPENDED").status, 201, "a refused transition leaves its token free")
    assert_equal((state(world), transition(world, "act-3", "ACTIVE").status), ("SUSPENDED", 201))
    assert_equal((transition(world, "end-1", "TERMINATED").status, state(world)), (201, "TERMINATED"))
    assert_equal(transition(world, "end-1", "TERMINATED").status, 201, "the same again")
    assert_equal([verdict(transition(world, "more-" + to, to)) for to in ("TERMINATED", "ACTIVE", "SUSPENDED")],
                 [409] * 3, "TERMINATED is for ever")
    assert_equal(transition(world, "act-1", "ACTIVE", reason_code="00").json(), made.json(), "and tells of then")
    assert_equal(state(world), "TERMINATED")
    bad = (transition(world, "t", "ACTIVE", card="none"), transition(world, "t", "UNACTIVATED"),
           transition(world, "t", 1), transition(world, "t", "ACTIVE", channel="FAX"),
           transition(world, "t", "ACTIVE", reason_code="1"), transition(world, "t" * 37, "ACTIVE"),
           transition(world, "t", "ACTIVE", memo="x"))
    assert_equal([verdict(answer) for answer in bad], [400] * len(bad))
    create(world, "card-2")
    unnamed = {"card_token": "card-2", "channel": "API", "state": "TERMINATED"}
    assert_equal(len(call(world, "POST", "/cardtransitions", unnamed).json()["token"]), 36, "without a token")
    assert_equal([card["status"] for card in box.cards()], ["cancelled"] * 2, "the ledger")


@test
def calls_are_executed_late_and_answers_are_lost(world):
    box = start(world)
    box.fault("create", "status_then_execute", count=1, late_ms=HOUR_MS)
    assert_equal((verdict(create(world)), verdict(call(world, "GET", "/cards/card-1"))), (504, 404), "not yet")
    box.fault("create", "execute_twice", count=1, late_ms=HOUR_MS)
    assert_equal((create(world).status, box.run_late(), len(box.cards())), (201, 2, 1), "one card in any order")
    box.fault("create", "status_then_execute", count=1, late_ms=HOUR_MS, at_work=True)
    statuses = [create(world, "card-w").status for _ in range(2)]
    assert_equal((statuses, box.run_late(), create(world, "card-w").status), ([504, 201], 1, 201), "never at work")
    box.fault("activate", "status_then_execute", count=1, late_ms=HOUR_MS)
    box.fault("cancel", "execute_then_status", count=1, status=500)
    assert_equal((verdict(transition(world, "act-1", "ACTIVE")), state(world)), (504, "UNACTIVATED"))
    assert_equal((box.run_late(), state(world)), (1, "ACTIVE"))
    assert_equal(transition(world, "act-1", "ACTIVE").status, 201, "its answer")
    assert_equal((verdict(transition(world, "end-1", "TERMINATED")), state(world)), (500, "TERMINATED"))
    assert_equal(transition(world, "end-1", "TERMINATED").status, 201, "its answer")
    box.fault("create", "status_then_execute", count=1, late_ms=HOUR_MS, late_code="400099")
    create(world, "card-2")
    assert_equal((box.run_late(), create(world, "card-2").json()["error_code"]), (1, "400099"), "a late refusal")
    assert_equal([(row["call"], row["result"]) for row in box.late()],
                 [("create", "same")] * 3 + [("activate", "made"), ("create", "refused")])
    box.fault("lookup", "stale", stale_ms=5000)
    box.fault("create", "wrong_reference", count=1)
    assert_true(create(world, "card-3").json()["token"] != "card-3", "another token")
    assert_equal(verdict(call(world, "GET", "/cards/card-3")), 404, "a stale look-up")
    box.clear()
    box.fault("issuer", "limited", per_second=0.001, retry_after="7")
    answers = [call(world, "GET", "/cards/card-3"), create(world, "card-4"), transition(world, "x", "ACTIVE", "card-3")]
    assert_equal([answer.status for answer in answers], [200, 429, 429], "a limit of the whole program")
    assert_equal((verdict(answers[1]), answers[1].header("Retry-After")), (429, "7"))
    box.clear()
    box.fault("lookup", "contradictory", count=1)
    card = call(world, "GET", "/cards/card-3").json()
    assert_true(card["last_four"] != card["pan"][-4:], "contradictory")


@test
def a_wrong_credential_is_refused_as_marqeta_does(world):
    box = start(world)
    for headers in ({}, basic("application:other"), basic("application"), {"Authorization": "Bearer " + CREDENTIAL},
                    {"Authorization": "Basic " + CREDENTIAL}, {"Authorization": "Basic !"}):
        for method, path in (("POST", "/cards"), ("POST", "/cardtransitions"), ("GET", "/cards/card-1"),
                             ("GET", "/cards/card-1/showpan"), ("GET", "/cards/user/alice"),
                             ("GET", "/cardtransitions/t")):
            answer = call(world, method, path, order() if method == "POST" else None,
                          {**headers, "Content-Type": "application/json"})
            assert_equal((verdict(answer), answer.json()["error_code"]), (401, "401"), "%s %s" % (method, path))
    assert_equal(box.cards(), [])


@test
def hostile_requests_are_refused_and_change_nothing(world):
    box = start(world)
    create(world, "card-0")
    before = box.cards()
    for path in ("/cards", "/cardtransitions"):
        for body in GARBAGE:
            assert_true(400 <= call(world, "POST", path, body).status < 500, "%s %r" % (path, body[:40]))
    for body in spoiled(order()):
        assert_equal(verdict(call(world, "POST", "/cards", json.dumps(body))), 400, str(body)[:300])
    for body in spoiled({"token": "t", "card_token": "card-0", "channel": "API", "state": "ACTIVE", "reason_code": "00",
                         "reason": "because"}):
        assert_equal(verdict(call(world, "POST", "/cardtransitions", json.dumps(body))), 400, str(body)[:300])
    plain = {**JSON, "Content-Type": "text/plain"}
    for path in ("/cards", "/cardtransitions"):
        assert_equal(verdict(call(world, "POST", path, order(), plain)), 415, path)
    for method, path in (("GET", "/"), ("DELETE", "/cards/card-0"), ("PUT", "/cards/card-0"), ("GET", "/cards"),
                         ("GET", "/cards//showpan"), ("GET", "/cards/card-0/cancel"), ("PATCH", "/cards/card-0"),
                         ("GET", "/cards/%00"), ("GET", "/cards/%zz"), ("GET", "/cards/" + "a" * 3000),
                         ("GET", "/cards/.."), ("GET", "/cardtransitions/%zz"),
                         ("GET", "/cardtransitions/" + "a" * 3000)):
        assert_equal(verdict(call(world, method, path)), 404, "%s %s" % (method, path[:60]))
    assert_equal((box.cards(), create(world).status), (before, 201), "nothing was changed, and it lives")
