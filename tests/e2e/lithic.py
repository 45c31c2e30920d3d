"""The stand-in issuer as Lithic, by itself: what a program that calls it sees. No api and no worker runs here.

Story: the worker is right against a stand-in that finds exactly the memo and marks each repeated answer, and takes
another user's card for its own at the real Lithic.
"""
import datetime
import uuid

import client
from harness import assert_equal, assert_true, slow, test

HOUR_MS = 3600000
KEY = "a-key-of-the-api"
JSON = {"Authorization": KEY, "Content-Type": "application/json"}


def start(world, *options):
    return world.start_stand_in("lithic", KEY, *options)


def event(number):
    return str(uuid.UUID(int=number + 16**12))


def account(world, user="alice"):
    answer = client.call(world.sandbox.core, "GET", "/v1/users/%s/card-eligibility?kind=new" % user)
    return answer.json()["issuer"]["account_token"]


def call(world, method, path, body=None, key=None, headers=JSON):
    try:
        return client.call(world.sandbox.issuer, method, path, {**headers, **({"Idempotency-Key": key} if key else {})},
                           body)
    except (client.Closed, OSError):
        return None


def order(world, memo, user="alice", **more):
    return {"type": "VIRTUAL", "state": "OPEN", "account_token": account(world, user), "memo": memo, **more}


def create(world, number=1, **more):
    return call(world, "POST", "/v1/cards", order(world, event(number), **more), event(number))


def page(world, query):
    found = call(world, "GET", "/v1/cards?" + query)
    assert_equal(found.status, 200, query)
    return found.json()


def memos(found):
    return [card.get("memo") for card in found["data"]]


def cards_made(world):
    return world.sandbox.summary()["counts"]["issuer.executed"]


@test
def lithic_makes_a_card_and_shows_its_number_at_once(world):
    start(world)
    made = create(world)
    card = made.json()
    assert_equal(made.status, 200, "status")
    assert_equal((card["memo"], card["state"], card["type"]), (event(1), "OPEN", "VIRTUAL"), "what was asked for")
    assert_true(len(card["exp_month"]) == 2 and len(card["exp_year"]) == 4, "expiry as texts")
    assert_equal([card["pan"]], world.sandbox.numbers(), "the number")
    assert_equal(card["pan"][-4:], card["last_four"], "last_four")
    assert_equal(str(uuid.UUID(card["token"])), card["token"], "the card's token is a UUID")
    assert_true(made.header("x-requests-remaining"), "the limit's header")
    assert_equal(call(world, "GET", "/v1/cards/" + card["token"]).json()["pan"], card["pan"], "retrieved")
    assert_true("pan" not in page(world, "memo=" + event(1))["data"][0], "no number in a list")


@slow
@test
def lithic_shows_no_number_to_a_program_that_may_not_see_it(world):
    start(world, "--hide-numbers")
    card = create(world).json()
    assert_true("pan" not in card and "cvv" not in card, "created")
    assert_true("pan" not in call(world, "GET", "/v1/cards/" + card["token"]).json(), "retrieved")


@test
def lithic_finds_cards_whose_memo_only_contains_the_text(world):
    start(world)
    for number in range(1, 4):
        create(world, number)
    call(world, "POST", "/v1/cards", order(world, "lunch %s again" % event(2).upper(), "bob"))
    call(world, "POST", "/v1/cards", {key: value for key, value in order(world, "").items() if key != "memo"})
    assert_equal(memos(page(world, "memo=" + event(2))), ["lunch %s again" % event(2).upper(), event(2)], "newest first")
    first = page(world, "memo=%s&page_size=1" % event(2))
    assert_true(first["has_more"], "another page")
    second = page(world, "memo=%s&page_size=1&starting_after=%s" % (event(2), first["data"][0]["token"]))
    assert_equal((memos(second), second["has_more"]), ([event(2)], False), "the last page")
    assert_equal(len(page(world, "page_size=100")["data"]), 5, "all")


@slow
@test
def lithic_lists_by_time_and_refuses_a_time_that_is_none(world):
    start(world)
    create(world)
    now = datetime.datetime.now(datetime.timezone.utc)
    for seconds, count in ((-3600, 1), (3600, 0)):
        begin = (now + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert_equal(len(page(world, "begin=" + begin)["data"]), count, begin)
        assert_equal(len(page(world, "begin=" + begin.replace("Z", "%2B00:00"))["data"]), count, "with an offset")
        assert_equal(len(page(world, "end=" + begin)["data"]), 1 - count, "end " + begin)
    for query in ("begin=yesterday", "begin=2026-01-01", "begin=2026-01-01T00:00:00", "end=2026-01-01T00:00:00%2B1",
                  "page_size=0", "page_size=101", "starting_after=x"):
        assert_equal(call(world, "GET", "/v1/cards?" + query).status, 400, query)


@test
def lithic_keeps_the_first_answer_of_a_key_without_a_mark(world):
    start(world)
    first, again = create(world), create(world)
    assert_equal(again.body, first.body, "the same answer")
    assert_true(not again.header("Idempotent-Replayed"), "no mark")
    assert_equal(create(world, state="PAUSED").status, 400, "other parameters")
    world.sandbox.fault("create", "execute_then_status", status=502, stored=True, count=1)
    assert_equal([create(world, 2).status for _ in range(3)], [502] * 3, "a 5xx for ever")
    assert_equal(memos(page(world, "memo=" + event(2))), [event(2)], "and a card")
    world.sandbox.advance(24 * HOUR_MS)
    assert_equal(create(world, 2).status, 200, "after a day the key is forgotten")
    assert_equal(world.sandbox.summary()["references_with_two_live_cards"], 1, "and there are two cards")


@slow
@test
def lithic_makes_a_second_card_where_keys_are_ignored(world):
    start(world, "--ignore-keys")
    assert_true(create(world).json()["token"] != create(world).json()["token"], "two cards")
    assert_equal(world.sandbox.summary()["references_with_two_live_cards"], 1, "two live cards")


@test
def lithic_wants_a_key_that_is_a_uuid_and_an_account_that_it_knows(world):
    start(world)
    good = order(world, event(1))
    wrong = [{"type": "METAL"}, {"type": None}, {"state": "CLOSED"}, {"state": 7}, {"memo": None}, {"memo": 7},
             {"memo": "m" * 256}, {"account_token": str(uuid.uuid4())}, {"account_token": "x"},
             {"card_program_token": "x"}, {"replacement_for": str(uuid.uuid4())}]
    for more in wrong:
        answer = call(world, "POST", "/v1/cards", {**good, **more}, event(1))
        assert_equal((answer.status, sorted(answer.json())), (400, ["debugging_request_id", "message"]), repr(more))
    for key in ("x", event(1)[:-1], event(1) + "0"):
        assert_equal(call(world, "POST", "/v1/cards", good, key).status, 400, key)
    for body in (b"", b"x", b"[]", b"null", b"{", b'{"type":"VIRTUAL","type":"VIRTUAL"}', b"[" * 5000):
        assert_equal(call(world, "POST", "/v1/cards", body, event(1)).status, 400, repr(body[:20]))
    assert_equal(cards_made(world), 0, "cards")
    assert_equal(call(world, "POST", "/v1/cards", {**good, "spend_limit": 5}, event(1)).status, 200, "more members")


@slow
@test
def lithic_closes_a_card_for_ever(world):
    start(world)
    token = create(world).json()["token"]
    path = "/v1/cards/" + token
    assert_equal(call(world, "PATCH", path, {"state": "PAUSED"}).json()["state"], "PAUSED", "paused")
    assert_equal(call(world, "PATCH", path, {"state": "OPEN"}).json()["state"], "OPEN", "opened again")
    assert_equal(call(world, "PATCH", path, {"state": "CLOSED"}).json()["state"], "CLOSED", "closed")
    for state in ("CLOSED", "OPEN", "PAUSED"):
        assert_equal(call(world, "PATCH", path, {"state": state}).status, 400, "then " + state)
    assert_equal(call(world, "GET", path).json()["state"], "CLOSED", "retrieved")
    assert_equal(call(world, "PATCH", "/v1/cards/" + event(1), {"state": "CLOSED"}).status, 404, "a strange card")
    assert_equal(call(world, "PATCH", path, b"{").status, 400, "no JSON")
    kinds = [row["call"] for row in world.sandbox.calls() if row["target"] == "issuer"]
    assert_equal(kinds[:4], ["create", "activate", "activate", "cancel"], "calls by kind")


@slow
@test
def lithic_limits_writes_as_its_sandbox_does(world):
    start(world)
    world.sandbox.fault("create", "limited", per_second=0.01, retry_after="1", code="Rate limited")
    assert_equal([create(world, number).status for number in (1, 2)], [200, 429], "a second write")
    assert_equal(create(world, 2).header("Retry-After"), "1", "when to come again")
    world.sandbox.clear()
    assert_equal(create(world, 2).status, 200, "a 429 is not kept")


@slow
@test
def lithic_wants_its_key_bare(world):
    start(world)
    for value in (None, "Bearer " + KEY, KEY + "x", ""):
        headers = {name: text for name, text in {**JSON, "Authorization": value}.items() if text is not None}
        assert_equal(call(world, "GET", "/v1/cards", headers=headers).status, 401, repr(value))
    assert_equal(call(world, "GET", "/v1/cards").status, 200, "bare")


@slow
@test
def lithic_executes_late_and_its_faults_change_its_own_members(world):
    start(world)
    world.sandbox.fault("create", "drop_then_execute", late_ms=HOUR_MS, count=1)
    assert_equal(create(world), None, "dropped")
    assert_equal(page(world, "memo=" + event(1))["data"], [], "not yet")
    world.sandbox.run_late()
    card = page(world, "memo=" + event(1))["data"][0]
    world.sandbox.fault("cancel", "drop_then_execute", late_ms=HOUR_MS, count=1)
    assert_equal(call(world, "PATCH", "/v1/cards/" + card["token"], {"state": "CLOSED"}), None, "dropped")
    world.sandbox.run_late()
    assert_equal(page(world, "memo=" + event(1))["data"][0]["state"], "CLOSED", "closed late")
    world.sandbox.fault("create", "wrong_reference", count=1)
    assert_true(create(world, 2).json()["memo"].startswith("00000000-"), "another memo")
    world.sandbox.fault("create", "contradictory", count=1)
    found = create(world, 3).json()
    assert_true(not found["pan"].endswith(found["last_four"]), "another last_four")
    world.sandbox.fault("create", "status", status=503, code="down", detail="for a while", count=1)
    assert_equal(create(world, 4).json()["message"], "down: for a while", "a scripted status")


@test
def a_replacement_closes_the_original_card_at_once(world):
    """docs.lithic.com/docs/managing-cards"""
    start(world)
    old = create(world).json()
    new = create(world, 2, replacement_for=old["token"], replacement_substatus="DAMAGED").json()
    assert_equal(call(world, "GET", "/v1/cards/" + old["token"]).json()["state"], "CLOSED", "the original card")
    assert_true(new["state"] == "OPEN" and new["pan"] != old["pan"], "the new card has a new number")
