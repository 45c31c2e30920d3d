"""The stand-in issuer as Stripe Issuing, by itself: what a program that calls it sees. No api and no worker runs here.

Story: the worker is right against a stand-in that forgets its errors, finds cards by our reference and shows each
number, and issues two cards at the real Stripe."""
import json
import urllib.parse

import client
from harness import assert_equal, assert_true, slow, STUCK_AFTER_S, test, wait_until

HOUR_MS = 3600000
KEY = "sk_test_of_the_sandbox"
VERSION = "2026-10-28.endive"
HEADERS = {"Authorization": "Bearer " + KEY, "Stripe-Version": VERSION}
FORM = {**HEADERS, "Content-Type": "application/x-www-form-urlencoded"}
CARDS = "/v1/issuing/cards"


def start(world, *options):
    return world.start_stand_in("stripe", KEY, *options)


def holder(world, user="alice"):
    answer = client.call(world.sandbox.core, "GET", "/v1/users/%s/card-eligibility?kind=new" % user)
    return answer.json()["issuer"]["cardholder"]


def form(world, reference="event-1", user="alice", **more):
    return {"cardholder": holder(world, user), "currency": "eur", "type": "virtual", "status": "active",
            "metadata[issuing_reference]": reference, **more}


def post(world, path, fields, key=None, headers=FORM, timeout=STUCK_AFTER_S):
    body = fields if isinstance(fields, bytes) else urllib.parse.urlencode(fields).encode()
    try:
        return client.call(world.sandbox.issuer, "POST", path, {**headers, **({"Idempotency-Key": key} if key else {})},
                           body, timeout)
    except (client.Closed, OSError):
        return None


def create(world, reference="event-1", key=None, **more):
    return post(world, CARDS, form(world, reference, **more), key or reference)


def get(world, path, headers=HEADERS):
    return client.call(world.sandbox.issuer, "GET", path, headers)


def update(world, card, status, key=None):
    return post(world, "%s/%s" % (CARDS, card), {"status": status}, key)


def error(answer):
    found = answer.json()["error"]
    return answer.status, found["type"], found.get("code"), found.get("param")


def references(page):
    return [card["metadata"].get("issuing_reference") for card in page["data"]]


def cards_made(world):
    return world.sandbox.summary()["counts"]["issuer.executed"]


@test
def stripe_makes_a_card_from_a_form_and_shows_its_number_only_when_asked(world):
    start(world)
    fields = form(world, **{"metadata[memo]": "a + b & c [d] \u00e9", "status": "active"})
    made = post(world, CARDS, fields, "k1")
    card = made.json()
    assert_equal(made.status, 200, "status")
    assert_equal(made.header("Stripe-Version"), VERSION, "the version is echoed")
    assert_equal(card["metadata"], {"issuing_reference": "event-1", "memo": "a + b & c [d] \u00e9"}, "metadata")
    assert_equal((card["status"], card["type"], card["currency"]), ("active", "virtual", "eur"), "what was asked for")
    assert_true(isinstance(card["exp_month"], int) and isinstance(card["exp_year"], int), "expiry as integers")
    assert_true("number" not in card and "cvc" not in card, "no number in the answer to a create")
    assert_true("Kastenweg" in made.body.decode() and len(made.body) > 2500, "the whole cardholder")
    shown = get(world, "%s/%s?expand[]=number" % (CARDS, card["id"])).json()
    assert_equal([shown["number"]], world.sandbox.numbers(), "the number")
    assert_true("cvc" not in shown, "the cvc was not asked for")
    assert_equal(shown["number"][-4:], card["last4"], "last4")
    assert_true("number" not in get(world, "%s/%s" % (CARDS, card["id"])).json(), "not asked for")
    calls = [row["call"] for row in world.sandbox.calls() if row["target"] == "issuer"]
    assert_equal(calls, ["create", "reveal", "retrieve"], "calls by kind")


@test
def stripe_cards_begin_inactive_and_are_activated_and_cancelled_for_ever(world):
    start(world)
    fields = form(world)
    del fields["status"]
    card = post(world, CARDS, fields, "k1").json()
    assert_equal(card["status"], "inactive", "without a status")
    assert_equal(update(world, card["id"], "active", "k1:activate").json()["status"], "active", "activated")
    assert_equal(update(world, card["id"], "canceled", "k1:cancel").json()["status"], "canceled", "cancelled")
    again = update(world, card["id"], "canceled", "k1:cancel")
    assert_equal((again.status, again.header("Idempotent-Replayed")), (200, "true"), "the key's answer")
    assert_equal(error(update(world, card["id"], "canceled")), (400, "invalid_request_error", None, None), "no key")
    assert_equal(error(update(world, card["id"], "active")), (400, "invalid_request_error", None, None), "too late")
    assert_equal(error(update(world, "ic_bbbbbbbbbbbbbbbb", "active")),
                 (404, "invalid_request_error", "resource_missing", None), "a strange card")


@test
def stripe_keeps_the_first_answer_of_a_key_for_a_day(world):
    start(world)
    first, again = create(world), create(world)
    assert_equal(again.body, first.body, "the same answer")
    assert_equal((first.header("Idempotent-Replayed"), again.header("Idempotent-Replayed")), (None, "true"), "mark")
    assert_equal(error(create(world, **{"metadata[memo]": "other"})), (400, "idempotency_error", None, None),
                 "other parameters")
    update(world, first.json()["id"], "canceled")
    assert_equal(create(world).json()["status"], "active", "the first answer, not the card as it is now")
    world.sandbox.advance(24 * HOUR_MS - 60000)
    create(world)
    assert_equal(cards_made(world), 1, "cards before the key is forgotten")
    world.sandbox.advance(60000)
    assert_equal(create(world).header("Idempotent-Replayed"), None, "a key that was forgotten")
    assert_equal(cards_made(world), 2, "cards after that")


@test
def stripe_keeps_no_refusal_of_a_malformed_call(world):
    start(world)
    bad = {"foo": "bar"}
    assert_equal(error(create(world, **bad)), (400, "invalid_request_error", "parameter_unknown", "foo"), "unknown")
    world.sandbox.fault("create", "limited", per_second=0.001, skip=0, code="rate_limit")
    create(world)  # the one that the limit lets pass
    assert_equal(error(create(world, "event-2")), (429, "invalid_request_error", "rate_limit", None), "limited")
    world.sandbox.clear()
    assert_equal([create(world).status, create(world, "event-2").status], [200, 200], "both keys are good")
    assert_equal(cards_made(world), 2, "cards")


@test
def stripe_keeps_a_scripted_500_with_and_without_a_card(world):
    start(world)
    for reference, fault, cards in (("event-1", "status", 0), ("event-2", "execute_then_status", 1)):
        world.sandbox.fault("create", fault, status=500, stored=True, count=1,
                            headers={"Stripe-Should-Retry": "false"})
        before = cards_made(world)
        first = create(world, reference)
        assert_equal((first.status, first.header("Stripe-Should-Retry")), (500, "false"), "the first")
        for _ in range(3):
            again = create(world, reference)
            assert_equal((again.status, again.header("Idempotent-Replayed")), (500, "true"), "for ever")
        assert_equal(cards_made(world) - before, cards, "cards behind " + fault)
    listed = get(world, "%s?cardholder=%s" % (CARDS, holder(world))).json()
    assert_equal(references(listed), ["event-2"], "what a look-up sees")
    world.sandbox.fault("create", "status", status=500, count=1)
    assert_equal([create(world, "event-3").status, create(world, "event-3").status], [500, 200], "not stored")


@test
def stripe_says_that_a_key_is_in_use_until_its_late_execution(world):
    start(world)
    world.sandbox.fault("create", "drop_then_execute", late_ms=HOUR_MS, at_work=True, count=1)
    assert_equal(create(world), None, "the first")
    assert_equal(error(create(world)), (409, "invalid_request_error", "idempotency_key_in_use", None), "a repeat")
    assert_equal(error(create(world, currency="usd"))[:2], (400, "idempotency_error"), "another request")
    assert_equal(world.sandbox.run_late(), 1, "late executions")
    found = create(world)
    assert_equal((found.status, found.header("Idempotent-Replayed")), (200, "true"), "a repeat after that")
    world.sandbox.fault("create", "drop_then_execute", late_ms=HOUR_MS, count=1)
    create(world, "event-2")
    assert_equal(create(world, "event-2").status, 200, "a repeat overtakes what only waits in a queue")
    world.sandbox.run_late()
    assert_equal([row["result"] for row in world.sandbox.late()], ["made", "same"], "late executions")
    assert_equal(cards_made(world), 2, "cards")


@slow
@test
def stripe_keeps_a_late_refusal(world):
    start(world)
    world.sandbox.fault("create", "hang_then_execute", late_ms=0, late_code="card_declined", count=1)
    post(world, CARDS, form(world), "event-1", timeout=0.5)
    world.sandbox.wait_late()
    assert_equal(error(create(world))[::2], (400, "card_declined"), "a repeat")
    assert_equal(cards_made(world), 0, "cards")


@test
def stripe_lists_a_holders_cards_newest_first_in_pages(world):
    start(world)
    made = [create(world, "event-%d" % number).json()["id"] for number in range(1, 6)]
    create(world, "other", user="bob")
    post(world, CARDS, {key: value for key, value in form(world).items() if not key.startswith("metadata")})
    query = "%s?cardholder=%s&type=virtual&created[gte]=1&limit=4" % (CARDS, holder(world))
    first = get(world, query).json()
    assert_equal((references(first), first["has_more"]), ([None, "event-5", "event-4", "event-3"], True), "page 1")
    second = get(world, "%s&starting_after=%s" % (query, first["data"][-1]["id"])).json()
    assert_equal((references(second), second["has_more"]), (["event-2", "event-1"], False), "page 2")
    update(world, made[0], "canceled")
    gone = get(world, "%s&status=canceled" % query).json()
    assert_equal(references(gone), ["event-1"], "by status")
    assert_equal(get(world, query.replace("created[gte]=1", "created%5Bgte%5D=99999999999")).json()["data"], [],
                 "by time")
    assert_equal(len(get(world, CARDS).json()["data"]), 7, "of every holder")
    assert_true(not any("number" in card for card in first["data"]), "no numbers in a list")
    for text, param in (("limit=0", "limit"), ("limit=101", "limit"), ("starting_after=ic_x", "starting_after"),
                        ("metadata[issuing_reference]=event-1", "metadata[issuing_reference]"),
                        ("created[before]=1", "created[before]"), ("cardholder=ich_strange", "cardholder")):
        answer = get(world, CARDS + "?" + text)
        assert_equal((answer.status, error(answer)[3]), (400, param), text)


@slow
@test
def stripe_refuses_what_it_does_not_know(world):
    start(world)
    whole = form(world)
    for missing in ("currency", "type", "cardholder"):
        fields = {key: value for key, value in whole.items() if key != missing}
        assert_equal(error(post(world, CARDS, fields)), (400, "invalid_request_error", "parameter_missing", missing),
                     missing)
    wrong = {
        "cardholder": "ich_strange", "currency": "xxx", "type": "metal", "status": "canceled", "replacement_for": "ic_x",
        "metadata[" + "n" * 41 + "]": "x", "metadata[x]": "v" * 501, "metadata[]": "x", "metadata": "x", "nested[a][b]": "x",
    }
    for name, value in wrong.items():
        answer = post(world, CARDS, {**whole, name: value})
        assert_equal((answer.status, error(answer)[3]), (400, name), name)
    many = {"metadata[m%d]" % number: "x" for number in range(50)}
    assert_equal(error(post(world, CARDS, {**whole, **many}))[3], "metadata", "51 keys")
    assert_equal(error(post(world, CARDS, {**whole, "replacement_reason": "lost"}))[3], "replacement_reason", "alone")
    for body in (b"%", b"a=%zz", b"=x", b"&&&", b"a" * 5000, b"currency=" + b"e" * 60000, b"\xff=\xfe", b"%00=x"):
        assert_equal(post(world, CARDS, body).status, 400, repr(body[:20]))
    json_body = {**FORM, "Content-Type": "application/json"}
    assert_equal(post(world, CARDS, json.dumps(whole).encode(), headers=json_body).status, 400, "JSON")
    assert_equal(post(world, CARDS, whole, key="k" * 256).status, 400, "a key of 256 characters")
    assert_equal(cards_made(world), 0, "cards")
    assert_equal(error(get(world, "/v1/issuing/strange"))[0], 404, "a strange path")


@slow
@test
def stripe_wants_its_credential_and_a_version(world):
    start(world)
    basic = {**HEADERS, "Authorization": "Basic " + client.base64.b64encode((KEY + ":").encode()).decode()}
    assert_equal(get(world, CARDS, basic).status, 200, "Basic with the key as name")
    for value in (None, KEY, "Bearer x", "Bearer " + KEY + "x", "Basic " + client.base64.b64encode(KEY.encode()).decode(),
                  "Basic", "Basic =", "Basic " + "=" * 36):
        headers = {**HEADERS, "Authorization": value}
        found = get(world, CARDS, {name: text for name, text in headers.items() if text})
        assert_equal((found.status, error(found)[1]), (401, "invalid_request_error"), repr(value))
    assert_equal(get(world, CARDS, {"Authorization": HEADERS["Authorization"]}).status, 400, "no version")


@slow
@test
def stripe_faults_change_the_members_of_its_own_answers(world):
    start(world)
    world.sandbox.fault("create", "wrong_reference", count=1)
    found = create(world, **{"metadata[memo]": "m"}).json()
    assert_true(found["metadata"]["issuing_reference"].startswith("00000000-"), "another reference")
    assert_equal(found["metadata"]["memo"], "m", "the rest of the object")
    world.sandbox.fault("create", "contradictory", count=1)
    found = create(world, "event-2").json()
    shown = get(world, "%s/%s?expand[]=number" % (CARDS, found["id"])).json()
    assert_true(found["last4"] != shown["last4"] and shown["number"].endswith(shown["last4"]), "another last4")
    world.sandbox.fault("list", "answer", card={"metadata": {"issuing_reference": "x"}, "status": None}, count=1)
    page = get(world, CARDS).json()
    assert_equal(([*references(page)], page["has_more"], "status" in page["data"][0]), (["x", "x"], False, False),
                 "each card of a list")
    world.sandbox.fault("reveal", "status", status=403, code="permission", count=1)
    assert_equal(get(world, "%s/%s?expand[]=number" % (CARDS, found["id"])).status, 403, "a fault of reveal")
    world.sandbox.fault("lookup", "stale", stale_ms=60000, count=1)
    assert_equal(get(world, CARDS + "?cardholder=" + found["cardholder"]["id"]).json()["data"], [], "what was true a minute ago")


@test
def core_names_the_cardholder_also_of_a_user_that_is_not_eligible(world):
    start(world)
    told = holder(world)
    path = "/v1/users/alice/card-eligibility?kind=new"

    def ask():
        return client.call(world.sandbox.core, "GET", path).json()

    world.sandbox.fault("check", "ineligible", count=1)
    assert_equal(ask(), {"user_id": "alice", "eligible": False, "reason": "user_blocked", "issuer": {"cardholder": told}},
                 "not eligible")
    world.sandbox.fault("check", "answer", card={"issuer": None}, count=1)
    assert_equal(ask(), {"user_id": "alice", "eligible": True}, "removed by a rule")
    world.sandbox.fault("check", "answer", card={"issuer": {"cardholder": 7}}, count=1)
    assert_equal(ask()["issuer"], {"cardholder": 7}, "broken by a rule")


@test
def the_control_listener_tells_the_issuer_of_a_holder(world):
    start(world)
    assert_equal(error(post(world, CARDS, {**form(world), "cardholder": "ich_mine"}))[3], "cardholder", "unknown")
    told = world.sandbox.control_call("POST", "/holders", {"user_id": "carol", "holder": "ich_mine"})
    assert_equal(told, {"user_id": "carol", "issuer": {"cardholder": "ich_mine"}}, "told")
    assert_equal(post(world, CARDS, {**form(world), "cardholder": "ich_mine"}).status, 200, "known")
    assert_equal([card["user_id"] for card in world.sandbox.cards()], ["carol"], "the holder's user")
    for body in (b"", b"{}", b'{"user_id":""}', b'{"user_id":"x","holder":""}', b'{"user_id":"a\\u0000b"}'):
        answer = client.call(world.sandbox.control, "POST", "/holders", {}, body)
        assert_equal(answer.status, 400, repr(body))


@slow
@test
def the_ledger_counts_the_live_cards_of_a_reference(world):
    start(world)
    first = create(world).json()["id"]
    create(world, "event-1", key="another-key")
    summary = world.sandbox.summary()
    assert_equal((summary["references_with_two_cards"], summary["references_with_two_live_cards"]), (1, 1), "two")
    assert_equal([card["live_of_reference"] for card in world.sandbox.cards()], [2, 2], "of each card")
    update(world, first, "canceled")
    summary = world.sandbox.summary()
    assert_equal((summary["references_with_two_cards"], summary["references_with_two_live_cards"]), (1, 0), "one ended")
    wait_until(lambda: [card["live_of_reference"] for card in world.sandbox.cards()] == [1, 1], "one is left")


@test
def a_replacement_keeps_a_damaged_cards_number_and_wants_a_lost_one_cancelled_first(world):
    """docs.stripe.com/issuing/cards/replacements"""
    start(world)
    old = create(world).json()["id"]

    def number_of(card):
        return get(world, "%s/%s?expand[]=number" % (CARDS, card)).json()["number"]

    def status_of(card):
        return get(world, "%s/%s" % (CARDS, card)).json()["status"]

    for number, reason in enumerate(("damaged", "expired")):
        made = create(world, "inactive-%d" % number, replacement_for=old, replacement_reason=reason,
                      status="inactive").json()
        new = made["id"]
        assert_equal((made["replacement_for"], made["replacement_reason"]), (old, reason), "what it replaces")
        assert_equal((status_of(old), number_of(new)), ("active", number_of(old)), reason)
        update(world, new, "active", "activate-%d" % number)
        assert_equal(status_of(old), "canceled", "the old card, once the new one is active")
        old = new
    for reason in ("lost", "stolen"):
        refused = create(world, "early-" + reason, replacement_for=old, replacement_reason=reason)
        assert_equal(refused.status, 400, "before the old card is cancelled")
        update(world, old, "canceled", "cancel-" + reason)
        new = create(world, "late-" + reason, replacement_for=old, replacement_reason=reason).json()["id"]
        assert_equal((status_of(new), number_of(new) != number_of(old)), ("active", True), "a new number")
        old = new
