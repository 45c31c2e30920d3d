"""The stand-in issuer as Adyen, by itself: what a program that calls Adyen sees. No api and no worker runs here.

Story: the worker is right against a stand-in that takes every body, keeps every key and lists every row, and issues two
cards at the real Adyen.
"""
import json

import client
from harness import assert_equal, assert_true, test

HOUR_MS = 3600000
KEY = "AQE-a-key-of-the-api"
JSON = {"X-API-Key": KEY, "Content-Type": "application/json"}
IN_PROGRESS = (422, "704")


def start(world, *options):
    return world.start_stand_in("adyen", KEY, *options)


def call(world, method, path, body=None, headers=JSON, key=None):
    more = {"Idempotency-Key": key} if key else {}
    return client.call(world.sandbox.issuer, method, "/bcl/v2" + path, {**headers, **more}, body)


def holder(world, user="alice"):
    return client.call(world.sandbox.core, "GET", "/v1/users/%s/card-eligibility?kind=new" % user).json()["issuer"]


def order(world, reference="event-1", user="alice"):
    told = holder(world, user)
    return {"type": "card", "balanceAccountId": told["balanceAccountId"], "issuingCountryCode": "NL",
            "reference": reference, "description": "a memo", "status": "active",
            "card": {"cardholderName": told["cardholderName"], "brand": "mc", "brandVariant": "mcdebit",
                     "formFactor": "virtual",
                     "authentication": {"password": "secret", "phone": {"type": "mobile", "number": "+31612345678"}}}}


def create(world, reference="event-1", user="alice", key=None):
    return call(world, "POST", "/paymentInstruments", order(world, reference, user), key=key)


def page(world, query="", user="alice"):
    answer = call(world, "GET", "/balanceAccounts/%s/paymentInstruments%s" % (holder(world, user)["balanceAccountId"],
                                                                             query))
    assert_equal(answer.status, 200, "a list")
    return answer.json()


def references(found):
    return [row["reference"] for row in found["paymentInstruments"]]


def verdict(answer):
    return answer.status, answer.json()["errorCode"]


def invalid_fields(answer):
    assert_equal(answer.status, 422, "status")
    return {field["name"]: field["message"] for field in answer.json()["invalidFields"]}


def spoiled(body):
    """Every body in which one member, at any depth, has a value that no member may have."""
    for name, value in body.items():
        for other in (None, 7, True, [], {"x": 1}, "x" * 3000):
            yield {**body, name: other}
        if isinstance(value, dict):
            for inner in spoiled(value):
                yield {**body, name: inner}


# Bodies that are not a JSON object of any vendor. The last one is larger than the stand-in reads.
GARBAGE = (b"", b"x", b"{", b"[]", b"null", b"7", b'"text"', b"{}", b'{"a":1,"a":2}', b'{"a":"\xff"}',
           b'{"a":"\\u0000"}', b'{"a":1e999}', b"[" * 5000, b'{"a":' * 100 + b"1" + b"}" * 100,
           b'{"' + b"n" * 60000 + b'":1}',
           b'{"a":"' + b"x" * 70000 + b'"}')


@test
def a_payment_instrument_is_masked_until_it_is_revealed(world):
    box = start(world)
    answer = create(world)
    made = answer.json()
    assert_equal(answer.status, 200)
    number, = box.numbers()
    assert_equal((made["card"]["number"], made["card"]["lastFour"]), ("*" * 12 + number[-4:], number[-4:]), "masked")
    assert_true("cvc" not in made["card"], "no cvc")
    assert_equal((made["status"], made["reference"], made["description"]), ("active", "event-1", "a memo"))
    month, year = made["card"]["expiration"]["month"], made["card"]["expiration"]["year"]
    assert_true(len(month) == 2 and 1 <= int(month) <= 12 and len(year) == 4, "texts of two and four digits")
    assert_equal(made["card"]["authentication"]["password"], "******")
    assert_equal(call(world, "GET", "/paymentInstruments/" + made["id"]).json(), made, "read again")
    assert_equal(page(world), {"paymentInstruments": [made], "hasNext": False, "hasPrevious": False})
    shown = call(world, "GET", "/paymentInstruments/%s/reveal" % made["id"]).json()
    assert_equal((shown["pan"], shown["expiration"], len(shown["cvc"])), (number, made["card"]["expiration"], 3))
    single = order(world, "event-2")
    single["card"]["usage"] = "singleUse"
    card = call(world, "POST", "/paymentInstruments", single).json()["card"]
    assert_equal(([card["number"]], len(card["cvc"])), (box.numbers()[1:], 3), "a single-use card is shown")
    assert_equal([row["card"]["number"][:12] for row in page(world)["paymentInstruments"]], ["*" * 12] * 2, "in a list")
    unset = order(world, "event-3")
    del unset["status"], unset["reference"], unset["description"], unset["card"]["authentication"]
    assert_equal(call(world, "POST", "/paymentInstruments", unset).json()["status"], "active", "without a status")
    assert_equal(client.call(box.issuer, "GET", "/paymentInstruments/" + made["id"], JSON).status, 200, "no base path")


@test
def a_create_names_each_member_that_is_invalid(world):
    box = start(world)
    body = order(world)
    body.update({"memo": "x", "issuingCountryCode": "NLD", "reference": "r" * 151, "status": "cancelled"})
    body["card"].update({"cardholderName": "n" * 27, "brand": "amex", "pan": "4000"})
    body["card"]["authentication"]["phone"] = {"number": 7}
    del body["type"], body["card"]["brandVariant"]
    answer = call(world, "POST", "/paymentInstruments", body)
    assert_equal(invalid_fields(answer), {
        "memo": "is not a known member", "issuingCountryCode": "is too long", "reference": "is too long",
        "status": "is none of the allowed values", "card.cardholderName": "is too long",
        "card.brand": "is none of the allowed values", "card.pan": "is not a known member",
        "card.authentication.phone.number": "is of another type", "card.authentication.phone.type": "is required",
        "type": "is required", "card.brandVariant": "is required"})
    problem = answer.json()
    assert_equal((problem["status"], problem["errorCode"]), (422, "30_031"))
    assert_true(problem["type"].startswith("https://docs.adyen.com/errors/") and problem["title"] and problem["detail"],
                "a problem document")
    wide = order(world)
    wide["card"]["cardholderName"], wide["reference"] = "ü" * 26, "€" * 150
    assert_equal(call(world, "POST", "/paymentInstruments", wide).json()["reference"], "€" * 150, "in characters")
    for name, value in (("balanceAccountId", "BAunknown"), ("card", None), ("type", "bankAccount"),
                        ("statusReason", "other"), ("status", "closed")):
        bad = {**order(world), name: value}
        if value is None:
            del bad[name]
        expected = "statusComment" if name == "statusReason" else name
        assert_equal(list(invalid_fields(call(world, "POST", "/paymentInstruments", bad))), [expected], name)
    assert_equal(len(box.cards()), 1, "only the good one was made")


@test
def a_key_is_honoured_for_its_lifetime(world):
    box = start(world, "--key-lifetime=60s")
    first = create(world, key="key-1")
    assert_equal((create(world, key="key-1").body, len(box.cards())), (first.body, 1), "the same answer")
    assert_equal(verdict(create(world, "event-2", key="key-1")), IN_PROGRESS, "another body")
    assert_equal(call(world, "PATCH", "/paymentInstruments/" + first.json()["id"], {"status": "closed"}).status, 200)
    assert_equal(create(world, key="key-1").body, first.body, "the first answer, also when the card is closed")
    bad = {**order(world), "memo": 1}
    assert_equal(call(world, "POST", "/paymentInstruments", bad, key="key-2").status, 422)
    assert_equal(create(world, key="key-2").status, 200, "a malformed body takes no key")
    assert_equal(list(invalid_fields(create(world, key="k" * 65))), ["Idempotency-Key"])
    assert_equal([create(world).status for _ in range(2)], [200, 200], "without a key each is a new one")
    assert_equal(len(box.cards()), 4)
    box.advance(60000)
    assert_true(create(world, key="key-1").json()["id"] != first.json()["id"], "a forgotten key is a new one")


@test
def keys_may_be_ignored(world):
    box = start(world, "--ignore-keys")
    ids = {create(world, key="key-1").json()["id"] for _ in range(3)}
    assert_equal((len(ids), len(box.cards())), (3, 3), "each create makes a card")
    box.fault("create", "execute_twice", count=1, late_ms=HOUR_MS)
    create(world, "event-2", key="key-2")
    assert_equal((box.run_late(), len(box.cards(reference="event-2"))), (1, 2), "so does a delivery twice")


@test
def a_key_at_work_is_answered_704_until_the_create_was_executed(world):
    box = start(world)
    box.fault("create", "status_then_execute", count=1, status=500, late_ms=HOUR_MS, at_work=True)
    assert_equal(create(world, key="key-1").status, 500)
    assert_equal((verdict(create(world, key="key-1")), len(box.cards())), (IN_PROGRESS, 0), "under way")
    assert_equal(box.run_late(), 1)
    assert_equal((create(world, key="key-1").status, len(box.cards())), (200, 1), "its answer")
    for status in (409, 422):
        box.fault("create", "status", status=status, code="704", headers={"transient-error": "true"}, count=1)
        answer = create(world, "event-2", key="key-2")
        assert_equal((verdict(answer), answer.header("transient-error")), ((status, "704"), "true"), "scripted")
    assert_equal((create(world, "event-2", key="key-2").status, len(box.cards())), (200, 2), "nothing was kept")


@test
def a_walk_by_offsets_sees_rows_twice_and_may_miss_one(world):
    box = start(world)
    for number in range(1, 5):
        create(world, "event-%d" % number)
    create(world, "event-b", "bob")
    first = page(world, "?limit=2")
    assert_equal((references(first), first["hasNext"], first["hasPrevious"]), (["event-4", "event-3"], True, False))
    create(world, "event-5")
    second = page(world, "?limit=2&offset=2")
    assert_equal((references(second), second["hasNext"], second["hasPrevious"]), (["event-3", "event-2"], True, True),
                 "rows have moved: one is seen twice")
    last = page(world, "?limit=2&offset=4")
    assert_equal((references(last), last["hasNext"]), (["event-1"], False))
    assert_equal([page(world, "?limit=%d" % limit)["hasNext"] for limit in (4, 5)], [True, False], "it just fits")
    assert_equal(references(page(world, "?limit=100")), ["event-%d" % number for number in (5, 4, 3, 2, 1)])
    assert_equal((references(page(world, "?offset=5")), references(page(world, user="bob"))), ([], ["event-b"]))
    box.fault("lookup", "skip_row", count=1, skip=1)
    walk = [references(page(world, "?limit=2&offset=%d" % offset)) for offset in (0, 2, 4)]
    assert_equal(walk, [["event-5", "event-4"], ["event-2", "event-1"], ["event-1"]], "event-3 was missed")
    assert_equal(references(page(world, "?limit=2&offset=2")), ["event-3", "event-2"], "once")
    for number in range(6, 26):
        create(world, "event-%d" % number)
    assert_equal(len(page(world)["paymentInstruments"]), 20, "the default of limit")
    closed = page(world, "?limit=1")["paymentInstruments"][0]["id"]
    call(world, "PATCH", "/paymentInstruments/" + closed, {"status": "closed"})
    assert_equal(references(page(world, "?status=closed")), ["event-25"])
    assert_equal(len(page(world, "?status=active&limit=50")["paymentInstruments"]), 24)
    account = holder(world)["balanceAccountId"]
    for query, field in (("limit=0", "limit"), ("limit=101", "limit"), ("limit=99999999999999999999", "limit"),
                         ("limit=x", "limit"), ("limit=", "limit"),
                        
                         ("offset=2147483648", "offset"), ("status=gone", "status")):
        answer = call(world, "GET", "/balanceAccounts/%s/paymentInstruments?%s" % (account, query))
        assert_equal(list(invalid_fields(answer)), [field], query)
    assert_equal(list(invalid_fields(call(world, "GET", "/balanceAccounts/BAunknown/paymentInstruments"))), ["id"])


@test
def a_look_up_may_be_stale(world):
    box = start(world)
    create(world)
    box.fault("lookup", "stale", stale_ms=5000)
    assert_equal(references(page(world)), [], "not yet")
    box.advance(5000)
    card = page(world)["paymentInstruments"][0]["id"]
    call(world, "PATCH", "/paymentInstruments/" + card, {"status": "closed"})
    assert_equal(page(world)["paymentInstruments"][0]["status"], "active", "as it was")
    box.advance(5000)
    assert_equal(page(world)["paymentInstruments"][0]["status"], "closed")


@test
def closed_is_final(world):
    box = start(world)
    card = create(world).json()["id"]

    def change(**members):
        return call(world, "PATCH", "/paymentInstruments/" + card, members)

    assert_equal([change(status=status).json()["status"] for status in ("suspended", "inactive", "active", "active")],
                 ["suspended", "inactive", "active", "active"])
    assert_equal(list(invalid_fields(change(status="closed", statusReason="other"))), ["statusComment"])
    assert_equal(list(invalid_fields(change(status="cancelled", reference="x"))), ["status", "reference"])
    moved = change(balanceAccountId="BAother")
    assert_equal((verdict(moved), "only be changed when the status is Inactive" in moved.json()["detail"]),
                 ((422, "30_031"), True))
    assert_equal(change(status="suspended", statusReason="lost").json()["statusReason"], "lost")
    assert_equal("statusReason" in change(status="active").json(), False, "the reason of another status")
    closed = change(status="closed", statusReason="other", statusComment="not linked")
    assert_equal((closed.status, [closed.json()[name] for name in ("status", "statusReason", "statusComment")]),
                 (200, ["closed", "other", "not linked"]))
    assert_equal(call(world, "GET", "/paymentInstruments/" + card).json(), closed.json(), "read again")
    assert_equal([verdict(change(status=status)) for status in ("closed", "active")], [(422, "30_031")] * 2, "again")
    assert_equal(call(world, "GET", "/paymentInstruments/%s/reveal" % card).status, 422, "nothing to reveal")
    assert_equal(call(world, "PATCH", "/paymentInstruments/PIunknown", {"status": "closed"}).status, 422)
    assert_equal([row["status"] for row in box.cards()], ["cancelled"], "the ledger")
    inactive = {**order(world, "event-2"), "status": "inactive"}
    assert_equal(call(world, "POST", "/paymentInstruments", inactive).json()["status"], "inactive", "as asked for")


@test
def calls_are_executed_late_and_answers_are_lost(world):
    box = start(world)
    box.fault("create", "drop_then_execute", count=1, late_ms=HOUR_MS)
    try:
        create(world, key="key-1")
        assert_true(False, "an answer came")
    except (client.Closed, OSError):
        pass
    assert_equal((references(page(world)), box.late_outstanding()), ([], 1))
    assert_equal((box.run_late(), references(page(world))), (1, ["event-1"]))
    assert_equal(create(world, key="key-1").status, 200, "its stored answer")
    card = box.cards()[0]["id"]
    box.fault("cancel", "status_then_execute", count=1, late_ms=HOUR_MS)
    answer = call(world, "PATCH", "/paymentInstruments/" + card, {"status": "closed"})
    assert_equal(verdict(answer), (504, "00_504"), "a code that the rule does not give")
    assert_equal((box.run_late(), [row["status"] for row in box.cards()]), (1, ["cancelled"]))
    assert_equal([(row["call"], row["result"]) for row in box.late()], [("create", "made"), ("cancel", "made")])
    box.fault("create", "status_then_execute", count=1, late_ms=HOUR_MS, late_code="29_001")
    create(world, "event-2", key="key-2")
    assert_equal(box.run_late(), 1)
    assert_equal(verdict(create(world, "event-2", key="key-2")), (422, "29_001"), "a late refusal")
    box.fault("create", "execute_then_status", count=1, status=503, code="703")
    assert_equal((verdict(create(world, "event-3", key="key-3")), len(box.cards())), ((503, "703"), 2))
    box.fault("create", "limited", per_second=0.001, retry_after="7")
    assert_equal([create(world, "event-%d" % number).status for number in (4, 5)], [200, 429])
    assert_equal(create(world, "event-6").header("Retry-After"), "7")
    box.clear()
    box.fault("issuer", "wrong_reference", user="alice", count=1)
    assert_true(create(world, "event-7").json()["reference"] != "event-7", "another reference")
    box.fault("lookup", "contradictory", count=1)
    rows = page(world)["paymentInstruments"]
    assert_true(all(row["card"]["lastFour"] != row["card"]["number"][-4:] for row in rows), "contradictory rows")


@test
def a_wrong_credential_is_refused_as_adyen_does(world):
    box = start(world)
    for headers in ({}, {"X-API-Key": "other"}, {"X-API-Key": ""}, {"Authorization": "Bearer " + KEY},
                    {"X-API-Key": KEY + "x"}):
        for method, path in (("POST", "/paymentInstruments"), ("GET", "/paymentInstruments/PIx"),
                             ("PATCH", "/paymentInstruments/PIx"), ("GET", "/paymentInstruments/PIx/reveal"),
                             ("GET", "/balanceAccounts/BAx/paymentInstruments")):
            answer = call(world, method, path, order(world) if method == "POST" else None,
                          {**headers, "Content-Type": "application/json"})
            assert_equal(verdict(answer), (401, "00_401"), "%s %s" % (method, path))
    assert_equal(box.cards(), [])


@test
def hostile_requests_are_refused_and_change_nothing(world):
    box = start(world)
    good, path = order(world), "/paymentInstruments/" + create(world, "event-0").json()["id"]
    before = box.cards()
    for body in GARBAGE:
        assert_true(400 <= call(world, "POST", "/paymentInstruments", body).status < 500, "create %r" % body[:40])
        if body != b"{}":
            assert_true(400 <= call(world, "PATCH", path, body).status < 500, "update %r" % body[:40])
    for body in spoiled(good):
        answer = call(world, "POST", "/paymentInstruments", json.dumps(body))
        assert_equal(verdict(answer), (422, "30_031"), str(body)[:300])
    for body in spoiled({"status": "closed", "statusReason": "other", "statusComment": "x"}):
        if body["statusComment"] != "x" * 3000:
            assert_equal(verdict(call(world, "PATCH", path, body)), (422, "30_031"), str(body)[:300])
    answer = call(world, "POST", "/paymentInstruments", good, {"X-API-Key": KEY, "Content-Type": "text/plain"})
    assert_equal(verdict(answer), (415, "00_415"))
    for method, stray in (("GET", "/"), ("DELETE", path), ("PUT", path), ("GET", "/paymentInstruments"),
                          ("GET", "/paymentInstruments//reveal"), ("POST", "/paymentInstruments/")):
        assert_equal(verdict(call(world, method, stray)), (404, "00_404"), "%s %s" % (method, stray))
    for odd in ("/paymentInstruments/%00", "/paymentInstruments/%zz", "/paymentInstruments/" + "a" * 3000,
                 "/paymentInstruments/..", "/balanceAccounts/%zz/paymentInstruments",
                 "/balanceAccounts/" + "a" * 3000 + "/paymentInstruments"):
        assert_equal(verdict(call(world, "GET", odd)), (422, "30_031"), odd[:60])
    assert_equal((box.cards(), create(world).status), (before, 200), "nothing was changed, and it lives")
