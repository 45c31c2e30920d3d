"""The stand-in issuer as Increase, by itself: what a program that calls it sees. No api and no worker runs here.

Story: the worker is right against a stand-in whose lists say has_more and whose keys are forgotten, and reads the first
page of Increase's lists only.
"""
import uuid

import client
from harness import assert_equal, assert_true, test

KEY = "sandbox_key_of_the_sandbox"
HEADERS = {"Authorization": "Bearer " + KEY, "Content-Type": "application/json"}


def start(world, *options):
    return world.start_stand_in("increase", KEY, *options)


def call(world, method, path, body=None, key=None, headers=HEADERS):
    return client.call(world.sandbox.issuer, method, path, {**headers, **({"Idempotency-Key": key} if key else {})},
                       body)


def account(world, user="alice"):
    answer = client.call(world.sandbox.core, "GET", "/v1/users/%s/card-eligibility?kind=new" % user)
    return answer.json()["issuer"]["account_id"]


def create(world, key=None, user="alice", **more):
    return call(world, "POST", "/cards", {"account_id": account(world, user), **more}, key)


def refused(answer):
    error = answer.json()
    assert_equal((error["status"], bool(error["title"] and error["detail"])), (answer.status, True), "%r" % error)
    return answer.status, error["type"]


@test
def increase_makes_one_object_for_a_key_and_shows_the_key(world):
    start(world)
    key = str(uuid.uuid4())
    made = create(world, key, description="a trip")
    card = made.json()
    assert_equal((made.status, card["idempotency_key"], card["status"], card["type"], card["description"]),
                 (200, key, "active", "card", "a trip"), "the card")
    assert_equal(made.header("Idempotent-Replayed"), None, "the first answer")
    again = create(world, key, description="a trip")
    assert_equal((again.json(), again.header("Idempotent-Replayed")), (card, "true"), "a repeat")
    other = create(world, key, description="another trip")
    assert_equal((refused(other), other.json()["resource_id"]),
                 ((409, "idempotency_key_already_used_error"), card["id"]), "other parameters")
    # No failure is kept, and a card is shown as it is.
    key = str(uuid.uuid4())
    assert_equal(refused(create(world, key, description=7)), (400, "invalid_parameters_error"), "a failure")
    second = create(world, key).json()
    assert_equal(second["idempotency_key"], key, "its key afterwards")
    assert_equal(call(world, "PATCH", "/cards/" + second["id"], {"status": "canceled"}).status, 200, "its end")
    assert_equal(create(world, key).json()["status"], "canceled", "a repeat after its end")
    assert_equal(create(world).json()["idempotency_key"], None, "a card without a key")
    assert_equal(len(world.sandbox.cards()), 3, "cards")


@test
def a_list_of_increase_ends_with_a_text_or_null(world):
    start(world)
    keys = [str(uuid.uuid4()) for _ in range(5)]
    made = [create(world, key).json() for key in keys]
    create(world, user="bob")
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        path = "/cards?account_id=%s&limit=2" % account(world)
        page = call(world, "GET", path + ("&cursor=" + cursor if cursor else "")).json()
        assert_equal(sorted(page), ["data", "next_cursor"], "members of a page")
        seen += page["data"]
        cursor, pages = page["next_cursor"], pages + 1
        assert_true(cursor is None or cursor not in [card["id"] for card in made], "no id of a card: %r" % cursor)
    assert_equal(([card["id"] for card in seen], pages), ([card["id"] for card in reversed(made)], 3), "all pages")
    found = call(world, "GET", "/cards?idempotency_key=" + keys[2]).json()
    assert_equal(found, {"data": [made[2]], "next_cursor": None}, "by its key")
    assert_equal(call(world, "GET", "/cards?idempotency_key=" + str(uuid.uuid4())).json()["data"], [], "by another key")
    for query in ("limit=101", "limit=0", "cursor=" + made[0]["id"], "memo=x"):
        assert_equal(refused(call(world, "GET", "/cards?" + query)), (400, "invalid_parameters_error"), query)


@test
def only_the_details_of_increase_have_the_number(world):
    start(world)
    card = create(world, str(uuid.uuid4())).json()
    details = call(world, "GET", "/cards/%s/details" % card["id"]).json()
    assert_equal(([details["primary_account_number"]], details["card_id"]), (world.sandbox.numbers(), card["id"]),
                 "details")
    assert_equal((details["primary_account_number"][-4:], details["expiration_year"]),
                 (card["last4"], card["expiration_year"]), "the same card")
    text = "%r%r" % (card, call(world, "GET", "/cards/" + card["id"]).json())
    assert_true(not any(number in text for number in world.sandbox.numbers()), "no number elsewhere")


@test
def increase_says_what_is_wrong(world):
    start(world)
    card = create(world).json()["id"]
    for status in ("disabled", "active", "canceled"):
        assert_equal(call(world, "PATCH", "/cards/" + card, {"status": status}).json()["status"], status, "a change")
    for answer, wanted in (
            (call(world, "PATCH", "/cards/" + card, {"status": "canceled"}), (409, "invalid_operation_error")),
            (call(world, "PATCH", "/cards/" + card, {"status": "gone"}), (400, "invalid_parameters_error")),
            (call(world, "GET", "/cards/card_unknown"), (404, "object_not_found_error")),
            (call(world, "GET", "/cards/card_unknown/details"), (404, "object_not_found_error")),
            (call(world, "POST", "/cards", {"account_id": "account_unknown"}), (404, "object_not_found_error")),
            (call(world, "POST", "/cards", {}), (400, "invalid_parameters_error")),
            (create(world, unknown="x"), (400, "invalid_parameters_error")),
            (create(world, "x" * 201), (400, "invalid_parameters_error")),
            (call(world, "GET", "/card"), (404, "api_method_not_found_error")),
            (call(world, "GET", "/cards", headers={"Authorization": "Bearer wrong"}), (401, "invalid_api_key_error"))):
        assert_equal(refused(answer), wanted, "%r" % answer)
