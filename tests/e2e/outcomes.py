"""What a peer may answer, and how the request ends: the tables of docs/peers.md, row by row.

A case is a user of its own with faults of its own, so that all cases of a table run side by side in one world.
"""
import collections
import contextlib
import json
import socket
import threading

from harness import assert_equal, assert_true, core, http_date, slow, test, wait_until

Case = collections.namedtuple("Case", "faults status code issued attempts", defaults=(None, ("active",), None))


def fault(call, kind, count=1, **members):
    return call, kind, {"count": count, **members} if count is not None else members


def run_cases(world, cases, among_others=False):
    """among_others: while other users' requests are answered well, so that a failure is the event's own."""
    rules = []
    for user, case in cases.items():
        for call, kind, members in case.faults:
            rules.append({"target": "core" if call in ("check", "link") else "issuer", "call": call, "fault": kind,
                          "user": user, **members})
    world.sandbox.faults(rules)
    requests = {user: world.accept(user) for user in cases}
    with world.others() if among_others else contextlib.nullcontext():
        world.wait_final(requests.values(), 60)
    world.settle(60)
    events = {row["user_id"]: row for row in world.rows("SELECT * FROM outbox_events")}
    ledger = collections.defaultdict(list)
    for card in world.sandbox.cards():
        ledger[card["user_id"]].append(card)
    wrong = []
    for user, case in cases.items():
        event = events[user]
        found = (event["status"], event["reason_code"], tuple(card["status"] for card in ledger[user]))
        if found != (case.status, case.code, case.issued):
            wrong.append("%s: %r, wanted %r (%s)" % (user, found, (case.status, case.code, case.issued),
                                                     event["last_error"]))
        if case.attempts is not None and event["retry_count"] != case.attempts:
            wrong.append("%s: %d attempts, wanted %d (%s)" % (user, event["retry_count"], case.attempts,
                                                              event["last_error"]))
        shown = world.get(user, "/v1/card-requests/" + requests[user]).json()
        if (shown["status"], shown["reason"] and shown["reason"]["code"]) != (case.status, case.code):
            wrong.append("%s: the api shows %r" % (user, shown))
        if (shown["card"] is not None) != (case.status == "COMPLETED"):
            wrong.append("%s: the api shows the card %r" % (user, shown["card"]))
    assert_true(not wrong, "\n".join(wrong))
    return requests


def creates(world, user):
    return len(world.sandbox.calls("create", user=user))


@slow
@test
def an_answer_in_time_is_one_call_of_each_kind(world):
    world.up()
    world.sandbox.faults([{"target": "issuer", "call": "create", "user": "slow", "fault": "delay", "delay_ms": 300},
                          {"target": "issuer", "call": "create", "user": "halves", "fault": "slow_body",
                           "delay_ms": 300}])
    for user in ("plain", "slow", "halves"):
        request = world.issue(user)["id"]
        assert_equal(world.event(request)["retry_count"], 1, "attempts")
        assert_equal([call["call"] for call in world.sandbox.calls(user=user)], ["check", "create", "link"],
                     "calls for " + user)
        assert_equal([(row["step"], row["outcome"], row["unknown"]) for row in world.attempts(request)],
                     [("link", "completed", False)], "outbox_attempts")


@slow
@test(retry__max_attempts="3")
def a_refusal_after_an_unknown_outcome_is_looked_up_first(world):
    """The first answer was lost, the second says no. "Rejected" would be a lie if the first made a card."""
    world.up()
    run_cases(world, {
        "made-then-422": Case([fault("create", "create_then_hang"),
                               fault("create", "status", status=422, code="bin_closed")], "COMPLETED"),
        "made-then-418": Case([fault("create", "create_then_hang"), fault("create", "status", status=418)],
                              "COMPLETED"),
        "nothing-then-422": Case([fault("create", "hang"), fault("create", "status", status=422, code="bin_closed")],
                                 "REJECTED", "bin_closed", ()),
        "nothing-then-418": Case([fault("create", "hang"), fault("create", "status", status=418)], "FAILED",
                                 "issuer_http_418", ()),
        "made-then-500-then-410": Case([fault("create", "execute_then_status", status=500),
                                        fault("create", "status", status=410)], "COMPLETED"),
    })
    assert_equal(len({call["reference"] for call in world.sandbox.calls("lookup")}), 5, "requests that were looked up")


class ClosingIssuer(threading.Thread):
    """An issuer that makes a card and closes an idle connection before it answers, in good order, as proxies do at
    their idle limit. To the same key on a new connection it gives the answer that the test wants. libcurl sends by
    itself once more in such a case."""

    def __init__(self, second_answer, makes_card):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.second_answer, self.makes_card = second_answer, makes_card
        self.cards, self.creates, self.connections = {}, [], 0
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        served = 0
        self.connections += 1
        with contextlib.suppress(OSError, ValueError), peer, peer.makefile("rb") as lines:
            while True:
                line = lines.readline().decode()
                headers = dict(row.decode().strip().lower().split(": ", 1) for row in iter(lines.readline, b"\r\n"))
                body = lines.read(int(headers.get("content-length", 0)))
                if line.startswith("POST /v1/cards "):
                    order = json.loads(body)
                    reference = order["reference"]
                    first = reference not in self.creates
                    self.creates.append(reference)
                    if first and served:
                        if self.makes_card:
                            self.cards[reference] = self.card(reference)
                        return
                    if not first:
                        self.answer(peer, self.second_answer, {"code": "bin_closed"})
                    else:
                        self.cards[reference] = self.card(reference)
                        self.answer(peer, 201, self.cards[reference])
                else:
                    found = self.cards.get(line.split("reference=")[-1].split(" ")[0])
                    self.answer(peer, 200, {"cards": [found] if found else []})
                served += 1

    def card(self, reference):
        return {"id": "card-%d" % len(self.cards), "reference": reference, "last4": "1234", "exp_month": 1,
                "exp_year": 2031, "status": "active"}

    @staticmethod
    def answer(peer, status, body):
        text = json.dumps(body).encode()
        peer.sendall(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status,
                                                                                                         len(text)) +
                     text)


@slow
@test(retry__max_attempts="3", issuer__max_concurrency="1")
def a_refusal_to_what_the_http_library_sent_twice_is_looked_up_first(world):
    """On a pooled connection that ends, the library sends once more within one call. The first of the two may have
    made a card."""
    world.allowed.add("other_issuer")
    world.up(workers=0)
    for makes_card, wanted in ((True, ("COMPLETED", None)), (False, ("REJECTED", "bin_closed"))):
        issuer = ClosingIssuer(422, makes_card)
        worker = world.start_worker(issuer__url="http://127.0.0.1:%d" % issuer.port)
        world.issue("warm-%s" % makes_card)  # leaves a pooled connection
        request = world.accept("alice-%s" % makes_card)
        world.settle()
        event = world.event(request)
        assert_equal(issuer.creates.count(request), 2, "creates")
        assert_equal(event["retry_count"], 1, "attempts: it was one call")
        assert_equal((event["status"], event["reason_code"]), wanted, "the end, with a card made: %s" % makes_card)
        assert_equal(worker.stop(), 0, "exit status")
        issuer.listener.close()


@slow
@test(retry__max_attempts="3")
def an_issuer_that_cannot_be_reached_uses_attempts_but_not_the_last_one(world):
    """Also while the breaker is closed. And as nothing was ever sent, there is nothing to look up."""
    world.up()
    world.sandbox.down()
    request = world.accept("alice")
    event = wait_until(lambda: world.event(request)["deferral_count"] >= 3 and world.event(request), "three deferrals")
    assert_equal((event["status"] in ("PENDING", "PROCESSING"), event["retry_count"] in (2, 3), event["deferral_code"]),
                 (True, True, "issuer_unreachable"), "%r" % event)
    assert_true(len(world.attempts(request)) == 3, "one row for all deferrals")
    world.sandbox.down(down=False)
    world.wait_status(request, "COMPLETED")
    assert_equal([call["call"] for call in world.sandbox.calls(reference=request)], ["create", "link"],
                 "calls: no look-up")


@slow
@test(retry__max_attempts="1", issuer__timeout="3s", issuer__settle_time="6s", worker__lease="9s")
def two_cards_or_cancelled_ones_behind_a_reference_are_distinguished(world):
    world.up()
    world.allowed.add("two_cards")
    world.sandbox.faults([{"target": "issuer", "call": "create", "fault": "create_then_hang", "user": user}
                          for user in ("two", "cancelled", "two-and-one-cancelled")])
    requests = {user: world.accept(user) for user in ("two", "cancelled", "two-and-one-cancelled")}
    # The faults may only be cleared when no create can meet their absence.
    wait_until(lambda: all(creates(world, user) == 1 for user in requests), "the create call of each")
    world.sandbox.clear()
    for user, request in requests.items():
        if user != "cancelled":
            world.issuer.make(world, user, request)
        if user != "two":
            card = world.sandbox.cards(user=user)[0]["id"]
            assert_equal(world.issuer.close(world, card).status, 200, "cancel")
    world.settle()
    assert_equal({user: (world.event(request)["status"], world.event(request)["reason_code"])
                  for user, request in requests.items()},
                 {"two": ("FAILED", "issuer_duplicate"), "cancelled": ("REJECTED", "card_cancelled"),
                  "two-and-one-cancelled": ("COMPLETED", None)}, "ends")


@slow
@test
def waiting_answers_of_the_issuer_cost_no_attempt(world):
    """409, 425 and 429 are deferrals: the attempt is given back. 408 is an attempt."""
    world.up()
    run_cases(world, {
        "in-progress": Case([fault("create", "status", 7, status=409)], "COMPLETED", None, ("active",), 1),
        "too-early": Case([fault("create", "status", 7, status=425)], "COMPLETED", None, ("active",), 1),
        "too-many": Case([fault("create", "status", 7, status=429)], "COMPLETED", None, ("active",), 1),
        "timeout": Case([fault("create", "status", 3, status=408)], "COMPLETED", None, ("active",), 4),
        "core-in-progress": Case([fault("check", "status", 7, status=409)], "COMPLETED", None, ("active",), 1),
        "core-too-many": Case([fault("check", "status", 7, status=429)], "COMPLETED", None, ("active",), 1),
        "link-in-progress": Case([fault("link", "status", 7, status=409, code="in_progress")], "COMPLETED", None,
                                 ("active",), 1),
        "link-too-many": Case([fault("link", "status", 7, status=429)], "COMPLETED", None, ("active",), 1),
    })
    rows = world.sql("SELECT count(DISTINCT event_id) FILTER (WHERE code <> 'target_resting'), count(*) FILTER (WHERE"
                     " code = before) FROM"
                     " (SELECT event_id, code, lag(code) OVER (PARTITION BY event_id ORDER BY started_at) AS before"
                     " FROM outbox_attempts"
                     " WHERE outcome = 'deferred') AS d")
    assert_equal(rows, "7|0", "events with deferrals on record, and rows that repeat the cause of the one before")
    worker = world.workers()[0]
    assert_equal(worker.metric_sum("issuing_deferrals_total") -
                 worker.metric('issuing_deferrals_total{reason="target_resting"}'), 49.0, "deferrals counted")


@slow
@test(issuer__key_lifetime="4s", issuer__settle_time="2s", retry__max_attempts="3")
def in_progress_for_as_long_as_the_key_lives_is_attempts_exhausted(world):
    world.up()
    world.sandbox.fault("create", "status", status=409, user="for-ever")
    world.sandbox.fault("create", "hang", user="unknown", count=1)
    world.sandbox.fault("create", "status", status=409, user="unknown")
    requests = [world.accept("for-ever"), world.accept("unknown")]
    world.settle()
    event = world.event(requests[0])
    assert_equal((event["status"], event["reason_code"]), ("FAILED", "attempts_exhausted"), "for-ever")
    # Less its margin, the issuer's timeout: past that a key is not sent any more, and a worker has been at work under
    # it.
    assert_true(world.sql("SELECT completed_at - created_at >= '1s' FROM outbox_events WHERE id = '%s'" %
                          requests[0]) == "t",
                "not before the key's lifetime is over")
    assert_equal(world.event(requests[1])["status"], "FAILED", "unknown")
    assert_true(world.sandbox.calls("lookup", reference=requests[1]), "the unknown one was looked up before")


@slow
@test
def retry_after_is_honoured_in_seconds_and_as_a_date(world):
    world.up()
    world.sandbox.fault("create", "status", status=429, user="seconds", retry_after="2", count=1)
    world.sandbox.fault("create", "status", status=429, user="date", retry_after=http_date(3), count=1)
    world.sandbox.fault("create", "status", status=503, user="busy", retry_after="2", count=1)
    world.sandbox.fault("create", "status", status=429, user="endless", retry_after="999999", count=1)
    world.sandbox.fault("create", "status", status=429, user="silly", retry_after="soon", count=1)
    requests = {user: world.accept(user) for user in ("seconds", "date", "busy", "silly")}
    for user in ("seconds", "busy", "silly", "date"):
        world.wait_status(requests[user], "COMPLETED")
    requests["endless"] = world.accept("endless")  # last: where it is the second 429 in a row, the issuer rests so long
    wait_until(lambda: world.attempts(requests["endless"]), "an attempt for endless")
    sent = {user: [row["at"] for row in world.sandbox.calls("create", user=user)] for user in requests}
    for user, least in (("seconds", 1.9), ("busy", 1.9), ("date", 1.0)):
        gap = world.sql("SELECT extract(epoch FROM '%s'::timestamptz - '%s'::timestamptz)" %
                        (sent[user][1], sent[user][0]))
        assert_true(float(gap) >= least, "%s was sent again after %s s" % (user, gap))
    assert_equal(len(sent["endless"]), 1, "sends of endless")
    left = world.sql("SELECT extract(epoch FROM next_attempt_at - clock_timestamp()) FROM outbox_events"
                     " WHERE id = '%s'" % requests["endless"])
    assert_true(250 < float(left) <= 300, "capped at 5 min: %s s" % left)


@test(retry__max_attempts="4")
def core_apis_answer_about_the_user_decides(world):
    world.up()
    cases = {
        "blocked": Case([fault("check", "ineligible")], "REJECTED", "user_blocked", (), 1),
        "kyc": Case([fault("check", "ineligible", code="kyc_missing")], "REJECTED", "kyc_missing", (), 1),
        "unusable-reason": Case([fault("check", "ineligible", code="Not a code!")], "REJECTED", "core_refused", (), 1),
        "no-reason": Case([fault("check", "answer", body='{"eligible":false}')], "REJECTED", "core_refused", (), 1),
        "unknown": Case([fault("check", "user_not_found")], "REJECTED", "user_not_found", (), 1),
        "400": Case([fault("check", "status", status=400, code="bad_user")], "REJECTED", "bad_user", (), 1),
        "410": Case([fault("check", "status", status=410, body="")], "REJECTED", "core_refused", (), 1),
        "422": Case([fault("check", "status", status=422, code="closed")], "REJECTED", "closed", (), 1),
        "418": Case([fault("check", "status", status=418)], "FAILED", "core_http_418", (), 1),
    }
    again = {"500": fault("check", "status", status=500), "503": fault("check", "status", status=503),
             "408": fault("check", "status", status=408),
             "hang": fault("check", "hang"), "garbage": fault("check", "garbage"),
             "truncated": fault("check", "truncated"), "huge": fault("check", "huge"),
             "text": fault("check", "answer", body='{"eligible":"yes"}'),
             "nothing": fault("check", "answer", body="{}"), "201": fault("check", "answer", status=201)}
    cases.update({"again-" + user: Case([rule], "COMPLETED", None, ("active",), 2) for user, rule in again.items()})
    cases["again-drop"] = Case([fault("check", "drop")], "COMPLETED")
    run_cases(world, cases)
    for user, case in cases.items():
        assert_equal(creates(world, user), len(case.issued), "create calls for " + user)


LINK_REFUSED = {
    "limit": fault("link", "link_refused"), "own-code": fault("link", "link_refused", code="no_more"),
    "no-code": fault("link", "status", status=409, body=""), "400": fault("link", "status", status=400, code="bad"),
    "404": fault("link", "status", status=404, code="gone"), "410": fault("link", "status", status=410, body=""),
    "422": fault("link", "status", status=422, code="Odd!"),
}
LINK_CODES = {"limit": "card_limit_reached", "own-code": "no_more", "no-code": "link_refused", "400": "bad",
              "404": "gone", "410": "link_refused", "422": "link_refused"}


@test(retry__max_attempts="4")
def a_refused_link_cancels_the_card_and_rejects_the_request(world):
    world.up()
    requests = run_cases(world, {user: Case([rule], "REJECTED", LINK_CODES[user], ("cancelled",), 1)
                                 for user, rule in LINK_REFUSED.items()})
    for user, request in requests.items():
        assert_equal([card["status"] for card in world.get(user, "/v1/cards").json()["items"]], ["cancelled"],
                     "card of " + user)
        assert_equal([call["key"] for call in world.sandbox.calls("cancel", user=user)], [request + ":cancel"],
                     "the cancel call's key")


@test(core__on_link_refused="keep")
def a_refused_link_with_keep_leaves_the_card_and_fails_the_request(world):
    world.up()
    requests = run_cases(world, {user: Case([rule], "FAILED", LINK_CODES[user], ("active",), 1)
                                 for user, rule in LINK_REFUSED.items()})
    assert_equal(world.sandbox.calls("cancel"), [], "cancel calls")
    # The operator has spoken with core-api: the same card is linked.
    done = world.ctl("replay", requests["limit"], "--reason", "the limit was raised")
    assert_equal(done.returncode, 0, "replay")
    world.wait_status(requests["limit"], "COMPLETED")
    assert_equal(creates(world, "limit"), 1, "creates")


@test(retry__max_attempts="4")
def a_link_that_gets_no_answer_is_repeated_alone(world):
    """The card is stored: the issuer is not called again, and core-api has one link."""
    world.up()
    kinds = {"500": fault("link", "status", status=500), "executed-500": fault("link", "execute_then_status",
                                                                               status=500),
             "hang": fault("link", "hang"),
             "linked-hang": fault("link", "create_then_hang"), "drop": fault("link", "drop"),
             "linked-drop": fault("link", "create_then_drop"),
             "408": fault("link", "status", status=408)}
    run_cases(world, {**{user: Case([rule], "COMPLETED") for user, rule in kinds.items()},
                      "418": Case([fault("link", "status", status=418)], "FAILED", "core_http_418")})
    for user in kinds:
        assert_equal((creates(world, user), len(world.sandbox.calls("check", user=user))), (1, 1),
                     "creates and checks for " + user)
        assert_true(len(world.sandbox.calls("link", user=user)) >= 2, user + " was linked again")
        assert_equal([link["user_id"] for link in world.sandbox.ledger(user=user)["links"]], [user], "links of " + user)


@test(retry__max_attempts="3")
def a_cancel_that_fails_for_ever_while_others_are_made_is_a_question(world):
    world.up()
    world.sandbox.fault("link", "link_refused")
    run_cases(world, {"for-ever": Case([fault("cancel", "status", None, status=500)], "FAILED", "attempts_exhausted")},
              among_others=True)


@slow
@test(retry__max_attempts="4")
def a_user_blocked_while_the_outcome_is_unknown_loses_the_card_that_was_made(world):
    world.up()
    blocked = fault("check", "ineligible", None, skip=1)
    requests = run_cases(world, {
        "made": Case([fault("create", "create_then_hang"), blocked], "REJECTED", "user_blocked", ("cancelled",)),
        "not-made": Case([fault("create", "hang"), blocked], "REJECTED", "user_blocked", ()),
        "made-gone": Case([fault("create", "create_then_hang"), fault("check", "user_not_found", None, skip=1)],
                          "REJECTED", "user_not_found", ("cancelled",)),
        # The cancel took effect and its answer was lost: the next look-up finds the card cancelled, by us.
        "made-500": Case([fault("create", "create_then_hang"), blocked, fault("cancel", "create_then_hang")],
                         "REJECTED", "user_blocked", ("cancelled",)),
        "made-418": Case([fault("create", "create_then_hang"), fault("check", "status", status=418, skip=1)],
                         "COMPLETED"),
    })
    for user in ("made", "not-made", "made-gone", "made-500"):
        assert_equal(creates(world, user), 1, "creates for " + user)
        assert_true(world.sandbox.calls("lookup", reference=requests[user]), user + " was looked up")
    assert_equal(len(world.sandbox.calls("link", user="made")), 0, "links")


@test
def a_card_without_a_number_is_a_card_all_the_same(world):
    world.up()
    world.sandbox.fault("create", "answer", card={"pan": None, "last4": "4321"})
    card = world.issue("alice")["card"]
    assert_equal(card["last4"], "4321", "last4")
    assert_equal(world.get("alice", "/v1/cards/%s/number" % card["id"]).status, 404, "the number")


@test
def unusual_users_and_words_arrive_at_the_peers_as_they_are(world):
    world.up()
    users = ["a b", "a/b", "a%2Fb", "...", "a?b#c", "~!@$&'()*+,;=:", '"quoted\\', "x" * 128, "%", "' OR 1=1 --"]
    for i, user in enumerate(users):
        world.accept(user, "k", {"kind": "new", "program": "gold \u2013 \u00fc", "memo": "\"\\/<>&\u00a0\U0001f4b3"})
    world.settle()
    assert_equal(sorted(card["user_id"] for card in world.sandbox.cards()), sorted(users), "users at the issuer")
    assert_equal(sorted(link["user_id"] for link in world.sandbox.ledger()["links"]), sorted(users),
                 "users at core-api")
    assert_equal(sorted({call["user"] for call in world.sandbox.calls("check")}), sorted(users),
                 "users that were checked")


@core
@test
def a_request_of_a_newer_api_waits_for_a_newer_worker(world):
    """The payload is changed in the table, as an api of a later release would have written it, and back: the worker
    that knows its members."""
    def rewrite(event, expression):
        world.sql("UPDATE outbox_events SET payload = %s WHERE id = '%s'" % (expression, event))

    world.up(workers=0)
    newer = {"design": world.accept("design"), "kind": world.accept("kind"), "both": world.accept("both")}
    rewrite(newer["design"], """payload || '{"design": "night"}'""")
    rewrite(newer["kind"], """payload || '{"kind": "upgrade"}'""")
    rewrite(newer["both"], """payload || '{"kind": "upgrade", "tier": {"level": 2}}'""")
    broken = world.accept("broken")
    rewrite(broken, """payload || '{"design": "night", "memo": 7}'""")
    world.sql("INSERT INTO outbox_events (event_type, user_id, payload)"
              " VALUES ('CARD_ISSUE', 'sender', '{\"kind\": \"new\", \"design\": \"night\"}')")
    world.start_worker()
    for event in newer.values():
        wait_until(lambda event=event: "newer_request" in (world.event(event)["last_error"] or ""), "it is deferred")
        story = world.ctl("explain", event).stdout
        assert_true("newer release" in story, story)
    for user in ("broken", "sender"):
        wait_until(lambda user=user: world.sql("SELECT reason_code FROM outbox_events WHERE user_id = '%s'" % user) ==
                   "payload_invalid", "%s is a question" % user)
    assert_equal(world.sandbox.cards(), [], "cards")
    for event in newer.values():
        rewrite(event, """'{"kind": "new"}'""")
    world.wait_final(list(newer.values()))
    assert_equal([world.status(event) for event in newer.values()], ["COMPLETED"] * 3, "then")


@slow
@test
def payloads_that_other_services_insert_are_issued_or_end_as_invalid(world):
    def insert(event_type, user, payload):
        world.sql("INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('%s', %s, '%s')" %
                  (event_type, user, payload))
    world.up()
    card = world.issue("alice")["card"]["id"]
    for user, payload in (("good", '{"kind": "new", "memo": "from billing"}'),
                          ("alice", '{"kind": "reissue", "replaces": "%s"}' % card)):
        insert("CARD_ISSUE", "'%s'" % user, payload)
    bad = ['{}', '[]', '"new"', 'null', '7', '{"kind": "old"}', '{"kind": "new", "x": 1}', '{"kind": "reissue"}',
           '{"kind": "new", "memo": 1}',
           '{"kind": "reissue", "replaces": "00000000-0000-7000-8000-000000000009"}', '{"kind": "new", "program": ""}',
           '{"kind": "new", "memo": "%s"}' % ("m" * 300)]
    for i, payload in enumerate(bad):
        insert("CARD_ISSUE", "'bad-%d'" % i, payload)
    dots = ("'.'", "'..'")  # would change the path of a call to core-api
    for user in ("E'a\\nb'", *dots):
        insert("CARD_ISSUE", user, '{"kind": "new"}')
    insert("CARD_FREEZE", "'other'", '{"kind": "new"}')
    world.settle()
    assert_equal(world.rows("SELECT user_id, status, reason_code FROM outbox_events WHERE status NOT IN ('COMPLETED')"
                            " AND NOT"
                            " (status = 'FAILED' AND reason_code ="
                            " 'payload_invalid')"), [{"user_id": "other", "status": "PENDING", "reason_code": None}],
                 "all but the type that is not ours")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'FAILED'"), str(len(bad) + 1 + len(dots)),
                 "invalid ones")
    assert_equal(world.sql("SELECT string_agg(user_id, ' ' ORDER BY user_id) FROM outbox_events WHERE status ="
                           " 'COMPLETED'"),
                 "alice alice good", "issued ones")
    assert_equal(world.row("SELECT retry_count, lease_owner FROM outbox_events WHERE event_type = 'CARD_FREEZE'"),
                 {"retry_count": 0, "lease_owner": None}, "never claimed")
