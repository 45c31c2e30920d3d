"""What only some issuers do: keys that replay a failure for ever, keys that are at work, references that are cards,
codes that turn a refusal into "in progress", lists that shift while they are read.
"""
import base64
import json

from harness import assert_equal, assert_true, EVERY, slow, slow_but_at, test, those, wait_until
from outcomes import Case, fault, run_cases

LOST, NOT_MADE = fault("create", "execute_then_status", status=503), fault("create", "status", status=503)
KEYED = those(lambda issuer: issuer.profile != "marqeta" and issuer.trusts_key)
DUPLICABLE = those(lambda issuer: not issuer.reference_is_key)
PAGED = those(lambda issuer: issuer.page)
WITHOUT_KEYS = ("adyen-without-keys", "generic-without-keys")
LOOKS_FIRST = those(lambda issuer: issuer.looks_first)


def creates(world, user):
    return len(world.sandbox.calls("create", user=user))


def live(world, event):
    return [card["status"] for card in world.sandbox.cards(reference=event)]


# ---- Stripe ----------------------------------------------------------------------------------------------------------


@slow
@test(issuers=("stripe", "lithic"), retry__max_attempts="4")
def a_failure_that_the_key_keeps_leads_to_the_lookup(world):
    """The same key would be answered the same for as long as it lives, whether the first call made a card or not."""
    world.up()
    requests = run_cases(world, {
        "made": Case([fault("create", "execute_then_status", status=500, stored=True)], "COMPLETED"),
        "not-made": Case([fault("create", "status", status=500, stored=True)], "FAILED",
                         "issuer_key_spent" if world.issuer.name == "stripe" else "attempts_exhausted", ()),
    }, among_others=True)
    if world.issuer.name == "stripe":
        assert_equal(creates(world, "made"), 2, "creates of the one that was made: the second answer is a stored one")
        assert_equal(creates(world, "not-made"), 2, "creates of the other one: no repeat could be answered otherwise")
        assert_true("reissue" in world.ctl("explain", requests["not-made"]).stdout, "explain names the way out")
    # A question; its answer is a new event with a key of its own.
    done = world.ctl("reissue", requests["not-made"], "--confirm", "--timeout", "20s", "--reason", "it keeps a 500")
    assert_equal(done.returncode, 0, done.stdout + done.stderr)
    world.settle()
    assert_equal(len([card for card in world.sandbox.cards(user="not-made") if card["status"] == "active"]), 1,
                 "live cards after the reissue")


@slow
@test(issuers=("stripe",), retry__max_attempts="20")
def stripes_own_codes_are_told_apart(world):
    world.up()
    once = {
        "idempotency-error": fault("create", "status", status=400, code="idempotency_error"),
        "key-in-use": fault("create", "status", 3, status=409, code="idempotency_key_in_use"),
        "lock-timeout": fault("create", "status", 3, status=429, code="lock_timeout"),
        "rate-limit-400": fault("create", "status", 2, status=400, code="rate_limit"),
        "dependency": fault("create", "status", status=424, code="external"),
        "should-not-retry": fault("create", "status", status=503, headers={"Stripe-Should-Retry": "false"}),
    }
    cases = {user: Case([LOST, rule], "COMPLETED") for user, rule in once.items()}
    cases.update({"first-" + user: Case([rule], "COMPLETED") for user, rule in once.items()})
    cases["402"] = Case([fault("create", "status", status=402, code="card_declined")], "REJECTED", "card_declined", ())
    cases["at-work"] = Case([fault("create", "hang_then_execute", late_ms=1500, at_work=True)], "COMPLETED")
    requests = run_cases(world, cases)
    for user in ("idempotency-error", "should-not-retry"):
        assert_equal(creates(world, user), 2, "creates of %s: then the look-up decides" % user)
    attempts = {user: world.event(requests[user])["retry_count"] for user in
                ("first-key-in-use", "first-lock-timeout", "first-rate-limit-400")}
    assert_equal(set(attempts.values()), {1}, "deferrals use no attempt: %r" % attempts)


@test(issuers=("stripe", "increase"), breaker__failures="2", retry__max_attempts="3")
def a_holder_that_the_issuer_does_not_know_is_that_users_refusal(world):
    """404 is our address or credential elsewhere, and opens the breaker; the code of a missing object is not."""
    world.up()
    code = {"stripe": "resource_missing", "increase": "object_not_found_error"}[world.issuer.name]
    cases = {"missing-%d" % number: Case([fault("create", "status", status=404, code=code)], "REJECTED", code, ())
             for number in range(6)}
    cases.update({"well-%d" % number: Case([], "COMPLETED") for number in range(3)})
    run_cases(world, cases)
    assert_equal(world.workers()[0].metric('issuing_breaker_transitions_total{target="issuer",state="open"}'), 0.0,
                 "times that the breaker opened")


@slow
@test(issuers=("stripe",), retry__max_attempts="5")
def a_failure_that_stripe_would_keep_holds_no_card_back(world):
    """An error 500 to a close or an activation would be the answer under its key for a day: the card that must go
    stayed, and a reissue that is done was never said to be."""
    world.up()
    old = world.issue("again")["card"]["id"]
    once = {"count": 1, "status": 500, "stored": True}
    world.sandbox.fault("cancel", "status", user="again", **once)
    new = world.accept("again", "2", {"kind": "reissue", "replaces": old})
    requests = run_cases(world, {
        "refused": Case([fault("link", "link_refused", None), fault("cancel", "status", **once)], "REJECTED",
                        "card_limit_reached", ("cancelled",)),
        "inactive": Case([fault("create", "answer", None, card={"status": "inactive"}),
                          fault("activate", "status", **once)], "COMPLETED"),
    })
    assert_equal(world.wait_status(new, "COMPLETED")["last_error"], None, "no note of a card that stayed")
    assert_equal([card["status"] for card in world.sandbox.cards(user="again")], ["cancelled", "active"], "cards")
    assert_equal(len(world.sandbox.calls("activate", reference=requests["inactive"])), 2, "activations")


# ---- Lithic ----------------------------------------------------------------------------------------------------------


@slow
@test(issuers=("lithic",), retry__max_attempts="2")
def a_limit_of_two_cards_a_second_costs_no_attempt(world):
    world.up()
    world.sandbox.fault("create", "limited", per_second=2, retry_after="1")
    events = [world.accept("user-%d" % number) for number in range(30)]
    world.wait_final(events, 120)
    rows = world.rows("SELECT status, retry_count FROM outbox_events")
    assert_equal({(row["status"], row["retry_count"]) for row in rows}, {("COMPLETED", 1)}, "ends and attempts")
    assert_equal(world.sandbox.summary()["cards"], 30, "cards")


# ---- Marqeta ---------------------------------------------------------------------------------------------------------


@test(issuers=those(lambda issuer: issuer.reference_is_key), retry__max_attempts="4")
def a_token_that_stands_for_other_content_is_looked_up(world):
    """The event is the card's token or its key. A conflict is not a call at work: it would be answered so for ever."""
    world.up(workers=0)
    event = world.accept("bound", "k", {"kind": "new", "memo": "another memo than the card's"})
    world.issuer.make(world, "bound", event)
    world.sandbox.fault("create", "status", user="odd", status=409, count=1)
    odd = world.accept("odd")
    world.start_worker()
    world.wait_final([event, odd])
    assert_equal([(world.status(each), live(world, each)) for each in (event, odd)], [("COMPLETED", ["active"])] * 2,
                 "ends")
    assert_equal((creates(world, "bound"), world.event(event)["retry_count"]), (2, 1),
                 "creates, the story's own among them, and attempts")


@test(issuers=("marqeta",), retry__max_attempts="6")
def a_card_is_active_before_it_is_linked_or_it_must_go(world):
    world.up()
    requests = run_cases(world, {
        "plain": Case([], "COMPLETED"),
        "lost": Case([fault("activate", "create_then_drop")], "COMPLETED"),
        "not-sent": Case([fault("activate", "drop")], "COMPLETED"),
        "masked": Case([fault("reveal", "answer", card={"pan": "************1111"})], "COMPLETED"),
        "refused": Case([fault("activate", "status", status=422, code="422002")], "REJECTED",
                        "422002", ("cancelled",)),
    })
    for user in ("plain", "lost", "not-sent", "masked"):
        calls = [call["call"] for call in world.sandbox.calls(reference=requests[user])]
        assert_true(calls.index("activate") < calls.index("link"), "%s: %r" % (user, calls))
    assert_equal(world.sandbox.calls("link", user="refused"), [], "links of a card that cannot be activated")


@test(issuers=("marqeta",), retry__max_attempts="6")
def a_404_is_no_card_only_if_a_wrong_path_is_answered_otherwise(world):
    """Any 404 with a code meant "no card": while some path was not routed, a request was REJECTED over a live card."""
    world.up()
    blocked = fault("check", "ineligible", None, skip=1)
    run_cases(world, {
        "path": Case([LOST, blocked, fault("lookup", "status", 2, status=404, code="404000")], "REJECTED", "user_blocked",
                     ("cancelled",)),
        "none": Case([NOT_MADE, blocked], "REJECTED", "user_blocked", ()),
    })
    assert_equal(len(world.sandbox.calls("lookup", user="path")), 3, "look-ups, of which two decide nothing")


# ---- Adyen -----------------------------------------------------------------------------------------------------------


@test(issuers=("adyen",), retry__max_attempts="6")
def an_answer_with_our_key_is_repeated_and_one_without_is_looked_up_first(world):
    """Adyen's answer has the header `idempotency-key` where it was processed by its key. A 429 without it may have come
    from a gateway, over a create that was executed."""
    world.up(workers=0)
    events = {user: world.accept(user) for user in ("ours", "none", "another")}
    named = {"ours": {"idempotency-key": events["ours"]}, "none": {}, "another": {"idempotency-key": events["ours"]}}
    for user, headers in named.items():
        world.sandbox.fault("create", "status", user=user, status=429, headers=headers, count=1)
    world.start_worker()
    world.wait_final(events.values())
    for user, event in events.items():
        calls = [call["call"] for call in world.sandbox.calls(user=user) if call["call"] in ("create", "lookup")]
        assert_equal((calls[1], calls.count("create")), ("create" if user == "ours" else "lookup", 2), "%s: %r" % (user, calls))
        assert_equal((world.status(event), live(world, event)), ("COMPLETED", ["active"]), user)
    assert_equal(world.sandbox.calls("lookup", user="ours"), [], "look-ups, also after the repeat")


@slow
@test(issuers=("adyen", "adyen-without-keys"), retry__max_attempts="6")
def adyens_own_codes_are_told_apart(world):
    world.up()
    transient = {"transient-error": "true"}
    once = {
        "704-422": fault("create", "status", 3, status=422, code="704"),
        "704-409": fault("create", "status", 3, status=409, code="704"),
        "transient-422": fault("create", "status", 3, status=422, code="30_031", headers=transient),
        "transient-409": fault("create", "status", 3, status=409, code="30_031", headers=transient),
    }
    cases = {user: Case([rule], "COMPLETED", attempts=1) for user, rule in once.items()}
    cases["703"] = Case([fault("create", "status", status=503, code="703")], "COMPLETED")
    cases["final-422"] = Case([fault("create", "status", status=422, code="30_031",
                                     headers={"transient-error": "false"})], "REJECTED", "30_031", ())
    cases["made-704"] = Case([LOST, fault("create", "status", 3, status=422, code="704")], "COMPLETED")
    run_cases(world, cases)


@slow
@test(issuers=WITHOUT_KEYS, retry__max_attempts="6", issuer__settle_time="3s")
def without_keys_a_create_is_repeated_only_when_the_last_one_has_settled(world):
    """The first create is still on its way when the look-up says that there is nothing."""
    world.up()
    cases = {"late-%d" % late: Case([fault("create", "status_then_execute", late_ms=late)], "COMPLETED")
             for late in (100, 600, 1200, 1800)}
    cases["never"] = Case([NOT_MADE], "COMPLETED")
    run_cases(world, cases)
    assert_equal({user: creates(world, user) for user in cases}, {**{user: 1 for user in cases}, "never": 2}, "creates")
    sent = [row["at"] for row in world.sandbox.calls("create", user="never")]
    gap = world.sql("SELECT extract(epoch FROM '%s'::timestamptz - '%s'::timestamptz)" % (sent[1], sent[0]))
    assert_true(float(gap) >= 2.9, "sent again after %s s" % gap)


@slow
@test(issuers=WITHOUT_KEYS, retry__max_attempts="6")
def without_keys_no_answer_of_a_gateway_lets_a_create_be_repeated_unseen(world):
    """Each of these may come from something that stands before Adyen, over a create that was executed."""
    world.up()
    blocked = fault("check", "ineligible", None, skip=1)
    answers = {str(status): fault("create", "execute_then_status", status=status)
               for status in (301, 401, 403, 404, 405, 408, 409, 425, 429)}
    answers.update({"bare-%d" % status: fault("create", "execute_then_status", status=status, body="")
                    for status in (400, 422, 451)})
    run_cases(world, {**{name: Case([answer], "COMPLETED") for name, answer in answers.items()},
                      **{"blocked-" + name: Case([answer, blocked], "REJECTED", "user_blocked", ("cancelled",))
                         for name, answer in answers.items()}})


@slow
@test(issuers=WITHOUT_KEYS, retry__max_attempts="6")
def without_keys_a_second_card_is_a_question_at_once(world):
    """The first create arrives after all, later than anything that is waited for, while the second one is executed."""
    world.allowed.add("two_cards")
    world.up()
    world.sandbox.fault("create", "status_then_execute", user="twice", count=1, late_ms=3600000)
    world.sandbox.fault("create", "delay", user="twice", count=1, delay_ms=700)
    event = world.accept("twice")
    wait_until(lambda: creates(world, "twice") == 2, "the second create")
    assert_equal(world.sandbox.run_late(), 1, "late creates")
    row = world.wait_status(event, "COMPLETED", "REJECTED", "FAILED")
    assert_equal((row["status"], row["reason_code"]), ("FAILED", "issuer_duplicate"), "the end")
    assert_equal(world.sandbox.calls("link", user="twice"), [], "links")


SETTLES_SOON = {"retry__max_attempts": "20", "issuer__timeout": "500ms", "core__timeout": "500ms",
                "worker__lease": "2s", "issuer__settle_time": "1s"}


def scripted_lookup(world, user, pages, rest):
    """A create of that user is executed and lost; look-ups fail until the send has settled; then these pages are
    shown, made of the card, and after them what is true. Returns the event."""
    world.up()
    world.sandbox.fault("create", "execute_then_status", user=user, count=1, status=503)
    world.sandbox.fault("lookup", "status", user=user, status=503)
    event = world.accept(user)
    card = wait_until(lambda: world.sandbox.cards(reference=event), "the card")[0]["id"]
    wait_until(lambda: world.sql("SELECT clock_timestamp() - first_sent_at > '4s' FROM outbox_events WHERE id = '%s'" %
                                 event) == "t", "the send has settled, and a lease has passed")
    shown = world.issuer.call(world, "GET", "/paymentInstruments/" + card).json()
    other = {**shown, "id": "PI0000000000000000000001", "reference": "another one"}
    world.sandbox.down()  # no look-up sees the truth before the pages
    world.sandbox.clear()
    world.sandbox.faults([{"target": "issuer", "call": "lookup", "user": user, "fault": "answer", "count": 1,
                           "body": json.dumps({"hasNext": more, "hasPrevious": False, "paymentInstruments": [
                               shown if word == "ours" else other for word in words]})} for words, more in pages])
    world.sandbox.down(down=False)
    row = world.wait_status(event, "COMPLETED", "REJECTED", "FAILED")
    assert_equal((row["status"], row["reason_code"], live(world, event)), ("COMPLETED", None, ["active"]), rest)
    rules = world.sandbox.control_call("GET", "/faults")["rules"]
    assert_equal([rule["fired"] for rule in rules], [1] * len(pages), "each page was shown")
    return event


@slow
@test(issuers=("adyen",), **SETTLES_SOON)
def a_card_that_shifts_to_the_next_page_is_one_card(world):
    """A card that is made while the list is read moves all others by one."""
    scripted_lookup(world, "shifted", [(["other", "ours"], True), (["ours", "other"], False)],
                    "seen twice, counted once")


@slow
@test(issuers=("adyen", "adyen-without-keys"), **SETTLES_SOON)
def a_card_that_was_skipped_between_two_pages_is_found_by_the_second_walk(world):
    scripted_lookup(world, "skipped", [(["other"], True), (["other"], False)], "found by the second walk")
    assert_equal(creates(world, "skipped"), 1, "creates")


# ---- several ---------------------------------------------------------------------------------------------------------


@slow_but_at("lithic")
@test(issuers=PAGED, retry__max_attempts="6")
def a_lookup_of_more_pages_than_the_limit_of_calls_ends(world):
    """A look-up that began anew with each 429 would not: a 429 uses no attempt."""
    world.up(workers=0)
    event = world.accept("alice")
    world.make_foreign("alice", event, 3 * world.issuer.page + 3)
    for status in (503, 422):
        world.sandbox.fault("create", "execute_then_status" if status == 503 else "status", user="alice", count=1,
                            status=status, code=world.issuer.code)
    world.sandbox.fault("lookup", "limited", per_second=2, retry_after="1")
    world.start_worker()
    row = world.wait_status(event, "COMPLETED", "REJECTED", "FAILED")
    assert_equal((row["status"], live(world, event)), ("COMPLETED", ["active"]), "the end")


@slow
@test(issuers=LOOKS_FIRST, retry__max_attempts="6")
def an_unknown_outcome_is_looked_up_before_the_create_is_repeated(world):
    world.up()
    requests = run_cases(world, {"made": Case([LOST], "COMPLETED"), "not-made": Case([NOT_MADE], "COMPLETED")})
    for user, wanted in (("made", 1), ("not-made", 2)):
        assert_equal(creates(world, user), wanted, "creates of " + user)
        calls = [call["call"] for call in world.sandbox.calls() if user == call["user"] or
                 (call["reference"] or "") == requests[user]]
        calls = [call for call in calls if call in ("create", "lookup")]
        assert_equal(calls[:2], ["create", "lookup"], "calls of " + user)


@slow
@test(issuers=KEYED, issuer__key_lifetime="6s", retry__max_attempts="1000")
def no_create_leaves_when_the_issuer_may_have_forgotten_the_key(world):
    """A key that was pruned runs as a new one: a second card."""
    world.start_sandbox("--key-lifetime", "6s")
    world.start_api()
    world.start_worker()
    world.sandbox.faults([
        {"target": "issuer", "call": "create", "user": "made", "fault": "create_then_drop"},
        {"target": "issuer", "call": "create", "user": "not-made", "fault": "drop"},
        {"target": "issuer", "call": "lookup", "fault": "status", "status": 503}])
    events = {user: world.accept(user) for user in ("made", "not-made")}
    wait_until(lambda: world.sql("SELECT bool_and(clock_timestamp() - first_sent_at > '7s') FROM outbox_events") == "t",
               "the key is forgotten")
    world.sandbox.clear()
    world.wait_final(events.values(), 60)
    found = {user: (world.status(event), world.event(event)["reason_code"], live(world, event))
             for user, event in events.items()}
    assert_equal(found, {"made": ("COMPLETED", None, ["active"]),
                         "not-made": ("FAILED", "issuer_key_expired", [])}, "ends")


@slow
@test(issuers=DUPLICABLE, retry__max_attempts="3")
def two_live_cards_of_one_event_are_a_question(world):
    world.allowed.add("two_cards")
    world.up(workers=0)
    events = {user: world.accept(user) for user in ("two", "one-closed", "closed")}
    for user, event in events.items():
        cards = [world.issuer.make(world, user, event) for _ in range(1 if user == "closed" else 2)]
        if user != "two":
            world.issuer.close(world, cards[0])
    world.sandbox.faults([{"target": "issuer", "call": "create", "count": 1, "user": user, "fault": "status",
                           "status": status, "code": world.issuer.code} for user in events for status in (503, 422)])
    world.start_worker()
    world.wait_final(events.values())
    found = {user: (world.status(event), world.event(event)["reason_code"]) for user, event in events.items()}
    assert_equal(found, {"two": ("FAILED", "issuer_duplicate"), "one-closed": ("COMPLETED", None),
                         "closed": ("REJECTED", "card_cancelled")}, "ends")


@slow_but_at("generic")
@test(issuers=EVERY, retry__max_attempts="3")
def no_credential_comes_into_logs_by_a_peers_words(world):
    """An issuer, or a proxy before it, says which key it does not know. Operators' logs and the database must not."""
    if not world.issuer.credential:
        file = world.dir / "generic.credential"
        file.write_text("key-of-the-generic-issuer\n")
        file.chmod(0o600)
        world.settings["issuer.credential_file"] = file
    key = world.issuer.credential or "key-of-the-generic-issuer"
    world.up()
    encoded = base64.b64encode(key.encode()).decode()
    for user, words in {"whole": "no such key: %s." % key, "cut": "x" * 186 + key, "basic": "no: " + encoded}.items():
        if user != "basic" or world.issuer.profile == "marqeta":
            world.sandbox.fault("create", "status", user=user, status=401, count=1, detail=words)
            world.accept(user)
    world.settle()
    seen = world.sql("SELECT string_agg(code || ': ' || detail, ' ') FROM outbox_attempts")
    seen += "".join(log.read_text(errors="replace") for log in world.dir.glob("worker*.log"))
    assert_true("*" * 12 in seen, "the words came: " + seen[:500])
    assert_equal([part for part in (key, key[:10], encoded) if part in seen], [], "what was shown of the credential")
