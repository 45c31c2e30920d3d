"""What a client reads: waiting, lists, cards, numbers, problems, and which of several faults is reported."""
import client
from harness import assert_equal, assert_true, test, wait_until

UNKNOWN_ID = "00000000-0000-7000-8000-000000000001"


def problem(answer, status, slug):
    assert_equal(answer.status, status, "status")
    assert_equal(answer.header("Content-Type"), "application/problem+json", "Content-Type")
    body = answer.json()
    assert_equal((body["type"], body["status"]), ("/problems/" + slug, status), "type and status")
    assert_true(isinstance(body["title"], str) and isinstance(body["detail"], str), "title and detail")
    assert_equal(answer.header("Idempotent-Replayed"), None, "Idempotent-Replayed")
    return body


@test
def prefer_wait_gives_201_with_the_card(world):
    world.up()
    answer = world.post("alice", "k", headers=[("Prefer", "wait=20")])
    assert_equal(answer.status, 201, "status")
    assert_equal((answer.header("Preference-Applied"), answer.header("Vary"), answer.header("Idempotent-Replayed")),
                 ("wait=20", "Prefer", "false"), "headers")
    request = answer.json()
    assert_equal(request["status"], "COMPLETED")
    assert_true(request["card"]["last4"].isdigit() and request["card"]["status"] == "active", "card")
    assert_equal(answer.header("Location"), "/v1/card-requests/" + request["id"], "Location")
    plain = world.post("alice", "k")
    assert_equal((plain.status, plain.header("Idempotent-Replayed"), plain.header("Preference-Applied")),
                 (202, "true", None),
                 "the repeat without Prefer")
    assert_equal((plain.json()["status"], plain.json()["card"]), ("PENDING", None), "it is the stored answer")
    assert_equal(plain.body, world.post("alice", "k").body, "and always the same")
    waited = world.post("alice", "k", headers=[("Prefer", "wait=20")])
    assert_equal((waited.status, waited.header("Idempotent-Replayed"), waited.json()), (201, "true", request),
                 "the repeat with Prefer")


@test
def prefer_is_read_as_documented(world):
    world.up()
    request = world.issue("alice")["id"]
    # The request is final, so even the longest wait is over at once.
    for text, applied in (("wait=99", "wait=30"), ("wait=30", "wait=30"), ("wait=7", "wait=7"),
                          ("respond-async, wait=7", "wait=7"), ("Wait=7", "wait=7"),
                          ("wait=0", None), ("wait=abc", None), ("wait=-1", None), ("wait=", None), ("wait", None),
                          ("handling=lenient", None)):
        answer = world.post("alice", "k", headers=[("Prefer", text)])
        assert_equal((answer.status, answer.header("Preference-Applied")), (201 if applied else 202, applied), text)
        assert_equal(answer.header("Vary"), "Prefer", "Vary with " + text)
    assert_equal(world.get("alice", "/v1/card-requests/" + request, [("Prefer", "wait=3")]).status, 200, "GET")


@test
def a_wait_that_ends_without_a_card_gives_202(world):
    world.up(workers=0)
    answer = world.post("alice", "k", headers=[("Prefer", "wait=1")])
    assert_equal((answer.status, answer.header("Preference-Applied"), answer.json()["status"]),
                 (202, "wait=1", "PENDING"),
                 "no worker runs")
    world.start_worker()
    world.settle()
    world.sandbox.fault("check", "ineligible", user="blocked")
    world.sandbox.fault("create", "status", status=418, user="odd")
    for user, status, code in (("blocked", "REJECTED", "user_blocked"), ("odd", "FAILED", "issuer_http_418")):
        answer = world.post(user, "k", headers=[("Prefer", "wait=20")])
        assert_equal((answer.status, answer.json()["status"], answer.json()["reason"]["code"]), (202, status, code),
                     user)
        assert_true(answer.json()["reason"]["detail"], "a detail for the user")
        assert_equal(answer.json()["card"], None, "card")


@test
def get_waits_for_a_final_status_and_many_may_wait(world):
    world.up(workers=0)
    requests = {"user-%d" % i: world.accept("user-%d" % i) for i in range(20)}
    wires = []
    for user, request in requests.items():
        wire = client.Wire(world.apis()[0].port)
        wires.append(wire.send(client.request_bytes("GET", "/v1/card-requests/" + request,
                                                    [world.bearer(user), ("Prefer", "wait=25")])))
    gone = client.Wire(world.apis()[0].port)
    gone.send(client.request_bytes("GET", "/v1/card-requests/" + request, [world.bearer(user), ("Prefer", "wait=25")]))
    wait_until(lambda: world.apis()[0].metric("issuing_waiting_clients") == 21, "21 clients wait")
    gone.socket.setsockopt(client.socket.SOL_SOCKET, client.socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    gone.close()
    wait_until(lambda: world.apis()[0].metric("issuing_waiting_clients") == 20, "one has left")
    world.start_worker()
    for wire in wires:
        answer = wire.answer()
        assert_equal((answer.status, answer.json()["status"], answer.header("Preference-Applied")),
                     (200, "COMPLETED", "wait=25"), "answer")
        wire.close()
    wait_until(lambda: world.apis()[0].metric("issuing_waiting_clients") == 0, "no client waits")


@test
def a_request_between_attempts_says_when_the_next_one_is(world):
    world.settings.update({"retry.base": "30s", "retry.cap": "60s"})
    world.up()
    world.sandbox.fault("check", "status", status=500)
    request = world.accept("alice")
    wait_until(lambda: world.event(request)["last_error"], "a first attempt")
    body = world.get("alice", "/v1/card-requests/" + request).json()
    assert_equal((body["status"], body["reason"], body["card"]), ("PENDING", None, None), "body")
    assert_true(body["next_attempt_at"] >= body["updated_at"], "next_attempt_at")


@test
def requests_and_cards_are_listed_newest_first_page_by_page(world):
    world.up()
    for i in range(7):
        world.issue("alice", "k%d" % i)
    world.issue("bob")
    for path in ("/v1/card-requests", "/v1/cards"):
        whole = world.get("alice", path).json()
        assert_equal((len(whole["items"]), whole["next_cursor"]), (7, None), path)
        ids = [item["id"] for item in whole["items"]]
        assert_equal(ids, sorted(ids, reverse=True), "newest first")
        found, cursor, pages = [], "", 0
        while cursor is not None:
            page = world.get("alice", "%s?limit=3%s" % (path, cursor and "&cursor=" + cursor)).json()
            found += page["items"]
            cursor = page["next_cursor"]
            pages += 1
        assert_equal((found, pages), (whole["items"], 3), "three pages")
        assert_equal(world.get("alice", path + "?limit=7").json()["next_cursor"], None, "an exact page is the last")
        assert_equal(world.get("nobody", path).json(), {"items": [], "next_cursor": None}, "a user without any")
        for query in ("limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "limit=1&limit=2", "cursor=x", "cursor=",
                      "limit=3&cursor=%00", "limit=1e1"):
            problem(world.get("alice", "%s?%s" % (path, query)), 400, "invalid-parameter")
    item = world.get("alice", "/v1/card-requests").json()["items"][0]
    assert_equal(world.get("alice", "/v1/card-requests/" + item["id"]).json(), item, "an item is what GET shows")
    card = world.get("alice", "/v1/cards").json()["items"][0]
    assert_equal(world.get("alice", "/v1/cards/" + card["id"]).json(), card, "a card likewise")
    assert_equal(sorted(card), ["exp_month", "exp_year", "id", "last4", "status"], "members of a card")


@test
def another_users_request_and_card_do_not_exist(world):
    world.up()
    request = world.issue("alice")
    for path in ("/v1/card-requests/" + request["id"], "/v1/cards/" + request["card"]["id"],
                 "/v1/cards/%s/number" % request["card"]["id"]):
        assert_equal(world.get("alice", path).status, 200, path)
        mine, missing = world.get("bob", path), world.get("bob",
                                                          path.replace(request["id"],
                                                                       UNKNOWN_ID).replace(request["card"]["id"],
                                                                                           UNKNOWN_ID))
        problem(mine, 404, "not-found")
        assert_equal(mine.body, missing.body, "bob cannot distinguish it from one that does not exist")
    for bad in ("x", UNKNOWN_ID + "0", UNKNOWN_ID[:-1], "%2e%2e", "'", "null", UNKNOWN_ID.replace("-", "")):
        problem(world.get("alice", "/v1/card-requests/" + bad), 404, "not-found")
        problem(world.get("alice", "/v1/cards/" + bad), 404, "not-found")
    assert_equal(world.sql("SELECT count(*) FROM operator_actions WHERE actor = 'bob'"), "0", "bob revealed nothing")


@test
def showing_a_number_leaves_a_row_and_is_never_stored(world):
    world.up()
    card = world.issue("alice")["card"]
    for i in range(2):
        answer = world.get("alice", "/v1/cards/%s/number" % card["id"])
        assert_equal((answer.status, answer.header("Cache-Control")), (200, "no-store"), "answer")
        assert_equal(answer.json(), {"id": card["id"], "number": world.sandbox.numbers()[0],
                                     "exp_month": card["exp_month"],
                                     "exp_year": card["exp_year"]}, "body")
        assert_equal(world.sql("SELECT actor || ' ' || action || ' ' || (after ->> 'card_id') FROM operator_actions"),
                     "\n".join(["alice number_revealed " + card["id"]] * (i + 1)), "operator_actions")
    world.sql("INSERT INTO outbox_events (user_id, payload) VALUES ('alice', '{\"kind\": \"new\"}')")
    world.settle()
    # A number that cannot be opened is not shown: a record moved to another row does not open.
    world.sql("UPDATE cards SET number_record = c.number_record FROM cards c WHERE c.id = '%s' AND cards.id <> c.id" %
              card["id"])
    other = [row["id"] for row in world.get("alice", "/v1/cards").json()["items"] if row["id"] != card["id"]][0]
    problem(world.get("alice", "/v1/cards/%s/number" % other), 404, "not-found")
    assert_true("another card's or user's" in world.apis()[0].text(), "the log says why")
    assert_equal(world.apis()[0].metric("issuing_numbers_unreadable_total"), 1, "counted")


@test(card__store="never")
def with_card_store_never_no_number_is_stored(world):
    world.settings["card.keys_file"] = None
    world.up()
    card = world.issue("alice")["card"]
    assert_equal(world.sql("SELECT count(number_record) FROM cards"), "0", "records")
    problem(world.get("alice", "/v1/cards/%s/number" % card["id"]), 404, "not-found")
    assert_equal(world.sql("SELECT count(*) FROM operator_actions"), "0", "nothing was revealed")


@test
def a_reissue_replaces_the_card_and_only_once(world):
    world.up()
    old = world.issue("alice")["card"]
    body = {"kind": "reissue", "replaces": old["id"]}
    new = world.issue("alice", "again", body)["card"]
    assert_true(new["id"] != old["id"], "another card")
    assert_equal({card["id"]: card["status"] for card in world.get("alice", "/v1/cards").json()["items"]},
                 {old["id"]: "replaced", new["id"]: "active"}, "cards")
    assert_equal(sorted((card["kind"], card["status"]) for card in world.sandbox.cards(user="alice")),
                 [("new", "replaced"), ("reissue", "active")], "issuer's cards")
    assert_equal(world.row("SELECT replaces FROM cards WHERE id = '%s'" % new["id"])["replaces"], old["id"], "replaces")
    problem(world.post("alice", "third", body), 422, "not-replaceable")
    problem(world.post("alice", "fifth", {"kind": "reissue", "replaces": old["id"].upper()}), 422, "not-replaceable")
    assert_equal(world.issue("alice", "fourth", {"kind": "reissue", "replaces": new["id"]})["status"], "COMPLETED",
                 "the new one may be replaced")


@test(limit__count="2", limit__window="1h")
def what_cannot_be_replaced_is_422_and_uses_neither_key_nor_limit(world):
    world.up()
    mine, bobs = world.issue("alice")["card"]["id"], world.issue("bob")["card"]["id"]
    for other in (bobs, UNKNOWN_ID):
        problem(world.post("alice", "k2", {"kind": "reissue", "replaces": other}), 422, "not-replaceable")
    assert_equal(world.sql("SELECT count(*) FROM idempotency_keys WHERE user_id = 'alice'"), "1", "keys")
    assert_equal(world.sql("SELECT count(*) FROM rate_limit_log WHERE user_id = 'alice'"), "1", "slots")
    world.workers()[0].stop()
    world.accept("alice", "k2", {"kind": "reissue", "replaces": mine})
    # No slot is left, and that is not what is reported: `replaces` comes before the limit.
    problem(world.post("alice", "k3", {"kind": "reissue", "replaces": mine}), 422, "not-replaceable")
    problem(world.post("alice", "k3", {"kind": "new"}), 429, "rate-limited")


@test
def a_rejected_reissue_leaves_the_card_and_lets_another_try(world):
    world.up()
    card = world.issue("alice")["card"]["id"]
    world.sandbox.fault("check", "ineligible", user="alice", count=1)
    request = world.accept("alice", "r1", {"kind": "reissue", "replaces": card})
    assert_equal(world.wait_status(request, "REJECTED")["reason_code"], "user_blocked", "code")
    assert_equal(world.get("alice", "/v1/cards/" + card).json()["status"], "active", "the card")
    assert_equal(world.issue("alice", "r2", {"kind": "reissue", "replaces": card})["status"], "COMPLETED",
                 "another try")


@test
def two_reissues_of_one_card_at_once_over_two_apis_give_one(world):
    world.up(apis=2)
    card = world.issue("alice")["card"]["id"]
    answers = client.burst([(world.apis()[i % 2].port, world.post_bytes("alice", "r%d" % i,
                                                                        {"kind": "reissue", "replaces": card}))
                            for i in range(40)])
    assert_equal(sorted(answer.status for answer in answers), [202] + [422] * 39, "statuses")
    world.settle()
    assert_equal(len(world.sandbox.cards()), 2, "cards at the issuer")


@test
def every_bad_body_is_400_and_names_each_bad_member(world):
    world.up(workers=0)
    pointers = {
        "{}": ["#/kind"], '{"kind":"old"}': ["#/kind"], '{"kind":1}': ["#/kind"], '{"kind":null}': ["#/kind"],
        '{"kind":"new","kind":"new"}': None,
        '{"kind":"new","color":"red"}': ["#/color"], '{"kind":"new","replaces":"%s"}' % UNKNOWN_ID: ["#/replaces"],
        '{"kind":"reissue"}': ["#/replaces"],
        '{"kind":"reissue","replaces":"x"}': ["#/replaces"], '{"kind":"new","program":""}': ["#/program"],
        '{"kind":"new","program":"%s"}' % ("p" * 65): ["#/program"],
        '{"kind":"new","program":null}': ["#/program"], '{"kind":"new","memo":"%s"}' % ("m" * 256): ["#/memo"],
        '{"kind":"new","memo":"a\\nb"}': ["#/memo"],
        '{"kind":"new","memo":"\\u0000"}': None, '{"kind":"new","memo":"\\ud800"}': None,
        '{"kind":"new","memo":7}': ["#/memo"],
        '{"kind":"old","program":7,"x":1}': ["#/kind", "#/program", "#/x"],
        "": None, " ": None, "null": None, "[]": None, '"new"': None, "7": None, "{'kind':'new'}": None,
        '{"kind":"new",}': None, '{"kind":"new"} x': None,
        '{"kind":"new"}{"kind":"new"}': None, '{"kind":"new"': None, '{"kind":"new","memo":NaN}': None,
        '{"kind":"new","memo":1e400}': None,
        '{"kind":"new","memo":"\n"}': None, '// c\n{"kind":"new"}': None, "\ufeff" + '{"kind":"new"}': None,
        '{"kind":"new","memo":012}': None,
        '{"kind":"new"}\0': None, '{"kind":"new","memo":%s}' % ("[" * 500 + "]" * 500): None,
    }
    bodies = [(text.encode(), wanted) for text, wanted in pointers.items()]
    bodies += [(b'{"kind":"new","memo":"' + bad + b'"}', None)
               for bad in (b"\xc0\xaf", b"\xed\xa0\x80", b"\xff\xfe", b"\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")]
    for body, wanted in bodies:
        found = problem(world.post("alice", "k", body), 400, "invalid-body")
        if wanted:
            assert_equal(sorted(error["pointer"] for error in found["errors"]), wanted, repr(body))
        assert_true(all(error["detail"] for error in found["errors"]), "details")
    assert_equal(world.sql("SELECT (SELECT count(*) FROM outbox_events) + (SELECT count(*) FROM rate_limit_log)"), "0",
                 "rows")
    assert_equal(world.post("alice", "k", {"kind": "new", "program": "p" * 64, "memo": "\u00e9" * 127}).status, 202,
                 "the longest that fits")


@test(limit__count="1", limit__window="1h")
def of_several_faults_the_first_in_the_order_of_checks_is_reported(world):
    world.up()
    port = world.apis()[0].port
    bearer, json_type, key = world.bearer("alice"), ("Content-Type", "application/json"), ("Idempotency-Key", "k")

    def call(method, path, headers=(), body=None):
        return client.call(port, method, path, headers, body)
    big, far = "x" * 70000, "/v1/nowhere"
    problem(call("POST", far, [], big), 413, "body-too-large")
    problem(call("POST", far + "?" + "x" * 5000, []), 414, "uri-too-long")
    problem(call("POST", far, [("X-" + "y" * 30, "z" * 17000)]), 431, "header-too-large")
    problem(call("POST", far, [], "x"), 404, "not-found")
    problem(call("DELETE", "/v1/card-requests", [], "x"), 405, "method-not-allowed")
    problem(call("POST", "/v1/card-requests", [("Content-Type", "text/plain")], "x"), 401, "unauthorized")
    problem(call("POST", "/v1/card-requests", [bearer, ("Content-Type", "text/plain")], "x"), 415,
            "unsupported-media-type")
    both = problem(call("POST", "/v1/card-requests", [bearer, json_type], '{"kind":"old"}'), 400, "invalid-header")
    assert_equal(sorted(map(sorted, both["errors"])), [["detail", "header"], ["detail", "pointer"]],
                 "key and body are reported together")
    card = world.issue("alice")["card"]["id"]
    problem(call("POST", "/v1/card-requests", [bearer, json_type, key], {"kind": "reissue", "replaces": UNKNOWN_ID}),
            422,
            "idempotency-key-reused")
    problem(call("POST", "/v1/card-requests", [bearer, json_type, ("Idempotency-Key", "z")],
                 {"kind": "reissue", "replaces": UNKNOWN_ID}), 422, "not-replaceable")
    problem(call("POST", "/v1/card-requests", [bearer, json_type, ("Idempotency-Key", "z")],
                 {"kind": "reissue", "replaces": card}), 429, "rate-limited")


@test
def known_paths_with_other_methods_are_405_with_allow(world):
    world.up(workers=0)
    for path, allow in (("/v1/card-requests", "GET, HEAD, POST"), ("/v1/card-requests/" + UNKNOWN_ID, "GET, HEAD"),
                        ("/v1/cards", "GET, HEAD"),
                        ("/v1/cards/" + UNKNOWN_ID, "GET, HEAD"), ("/v1/cards/%s/number" % UNKNOWN_ID, "GET, HEAD"),
                        ("/openapi.json", "GET, HEAD"),
                        ("/problems/rate-limited", "GET, HEAD")):
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW") + (() if "POST" in allow else ("POST",)):
            answer = world.get("alice", path, method=method)
            problem(answer, 405, "method-not-allowed")
            assert_equal(sorted(answer.header("Allow").replace(" ", "").split(",")), allow.replace(" ", "").split(","),
                         "Allow of " + path)
    for path in ("/", "/v1", "/v1/", "/v1/card-requests/", "/v1/card-requests/%s/x" % UNKNOWN_ID,
                 "/v1/cards/%s/" % UNKNOWN_ID,
                 "/v1//cards", "/V1/cards", "/metrics",
                 "/v1/cards/../card-requests", "/problems/", "/problems/no-such", "/livez"):
        problem(world.get("alice", path), 404, "not-found")


@test
def head_is_answered_as_get_without_a_body(world):
    world.up()
    request = world.issue("alice")
    for path in ("/v1/card-requests", "/v1/card-requests/" + request["id"], "/v1/cards",
                 "/v1/cards/" + request["card"]["id"], "/openapi.json",
                 "/v1/card-requests/" + UNKNOWN_ID, "/v1/nowhere"):
        with client.Wire(world.apis()[0].port) as wire:
            full = wire.send(client.request_bytes("GET", path, [world.bearer("alice")])).answer()
            head = wire.send(client.request_bytes("HEAD", path, [world.bearer("alice")])).answer(head=True)
            assert_equal((head.status, head.header("Content-Length"), head.header("Content-Type")),
                         (full.status, str(len(full.body)), full.header("Content-Type")), path)
            assert_equal(wire.send(client.request_bytes("GET", path, [world.bearer("alice")])).answer().body, full.body,
                         "nothing stood in between")


@test
def the_description_and_the_pages_of_problems_need_no_token(world):
    world.up(workers=0)
    port = world.apis()[0].port
    described = client.call(port, "GET", "/openapi.json")
    assert_equal((described.status, described.header("Content-Type").split(";")[0]), (200, "application/json"))
    document = described.json()
    assert_true(document["openapi"].startswith("3.1"), "OpenAPI 3.1")
    assert_equal(sorted(document["paths"]), sorted(["/v1/card-requests", "/v1/card-requests/{id}", "/v1/cards",
                                                    "/v1/cards/{id}", "/v1/cards/{id}/number",
                                                    "/openapi.json", "/problems", "/problems/{slug}"]), "paths")
    assert_true({"201", "202", "400", "401", "409", "413", "414", "415", "422", "429", "431",
                 "503"} <= set(document["paths"]["/v1/card-requests"]["post"]["responses"]),
                "every answer of POST is described")
    for slug in ("idempotency-key-reused", "not-replaceable", "rate-limited", "invalid-header", "invalid-body",
                 "unauthorized", "request-in-progress",
                 "unavailable", "not-found", "method-not-allowed", "body-too-large", "uri-too-long",
                 "unsupported-media-type", "header-too-large"):
        page = client.call(port, "GET", "/problems/" + slug)
        assert_equal((page.status, page.header("Content-Type").split(";")[0]), (200, "text/html"), slug)


@test
def only_json_in_utf8_without_encoding_is_read(world):
    world.up(workers=0)

    def call(*headers):
        return client.call(world.apis()[0].port, "POST", "/v1/card-requests",
                           [world.bearer("alice"), ("Idempotency-Key", "k"), *headers],
                           '{"kind":"new"}')
    for good in ("application/json", "Application/JSON", "application/json; charset=utf-8",
                 'application/json;charset="UTF-8"', "application/json ; x=y"):
        assert_equal(call(("Content-Type", good)).status, 202, good)
    for bad in ("text/plain", "application/jsonx", "application/json; charset=utf-16",
                "application/x-www-form-urlencoded", "application/problem+json", "*/*",
                "application/json, text/plain", "json"):
        problem(call(("Content-Type", bad)), 415, "unsupported-media-type")
    problem(call(), 415, "unsupported-media-type")
    problem(call(("Content-Type", "application/json"), ("Content-Type", "application/json")), 415,
            "unsupported-media-type")
    for encoding in ("gzip", "identity", "br", ""):
        problem(call(("Content-Type", "application/json"), ("Content-Encoding", encoding)), 415,
                "unsupported-media-type")
