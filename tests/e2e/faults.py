"""Each fault of a peer, at each kind of call, with each issuer, still leads to one card, one refusal or one question.

Story: a lost answer was tested only with the issuer `generic`, which honours keys and has an exact look-up. Real
issuers have more calls in which an answer can be lost, and other ways to refuse.

A case is a user of its own with faults of its own, so that all cases of an issuer run side by side in one world.
"""
from harness import assert_equal, assert_true, core_at, EVERY, slow, test, those
from outcomes import Case, fault, run_cases

# An answer that tells nothing: the call may have been executed, or may still be.
UNKNOWN = {
    "executed-dropped": ("create_then_drop", {}), "executed-silent": ("create_then_hang", {}), "dropped": ("drop", {}),
    "silent": ("hang", {}), "garbage": ("garbage", {}), "truncated": ("truncated", {}), "huge": ("huge", {}),
    "slow-body": ("slow_body", {"delay_ms": 1800}), "late-answer": ("delay", {"delay_ms": 1800}),
    "html": ("answer", {"body": "<html>"}), "array": ("answer", {"body": "[]"}), "empty": ("answer", {"body": ""}),
    "text": ("answer", {"body": '"card"'}), "member-twice": ("answer", {"body": '{"id":"a","id":"b"}'}),
    **{"%d" % status: ("status", {"status": status}) for status in (500, 502, 503)},
    **{"executed-%d" % status: ("execute_then_status", {"status": status}) for status in (500, 502, 503)},
}
# An answer that says: not now.
NOT_NOW = {
    "429": ("status", {"status": 429}), "429-retry-after": ("status", {"status": 429, "retry_after": "1"}),
    "408": ("status", {"status": 408}), "425": ("status", {"status": 425}),
    **{"%d" % status: ("status", {"status": status}) for status in (401, 403, 404)}, "redirect": ("redirect", {}),
}
LATE = {
    "late-dropped": ("drop_then_execute", {"late_ms": 300}),
    "late-silent": ("hang_then_execute", {"late_ms": 100, "late_from": "gone"}),
    "late-504": ("status_then_execute", {"late_ms": 300}),
}
ANYTHING = {**UNKNOWN, **NOT_NOW}
REFUSED_LINK = fault("link", "link_refused", None)
MADE, NOT_MADE = fault("create", "execute_then_status", status=503), fault("create", "status", status=503)


def refusal(issuer, status=422):
    """After an unknown outcome only the look-up can decide then, whether or not the key is honoured."""
    return fault("create", "status", status=status, code=issuer.code)


def check_fired(world):
    """Every rule that was set has met a call, so no case was without its fault."""
    rules = world.sandbox.control_call("GET", "/faults")["rules"]
    idle = ["%s of %s" % (rule["fault"], rule.get("user")) for rule in rules if not rule["fired"]]
    assert_equal(idle, [], "faults that met no call")


def named(prefix, kinds, call, before=(), after=(), **ends):
    """A case for each fault of that call."""
    return {"%s-%s" % (prefix, name): Case([*before, fault(call, kind, **members), *after], **ends)
            for name, (kind, members) in kinds.items()}


@core_at("generic")
@slow
@test(issuers=EVERY, retry__max_attempts="20")
def a_create_with_any_fault_ends_as_one_card(world):
    world.up()
    completed = {"status": "COMPLETED", "code": None}
    cases = named("create", {**ANYTHING, **LATE}, "create", **completed)
    cases.update(named("odd", {name: ("answer", {"card": card}) for name, card in world.issuer.odd_cards.items()},
                       "create", **completed))
    cases.update(named("told", {"wrong-reference": ("wrong_reference", {}), "contradictory": ("contradictory", {}),
                                "in-progress": ("status", {"status": 409})}, "create", **completed))
    if world.issuer.inactive:
        cases["inactive"] = Case([fault("create", "answer", card=world.issuer.inactive)], **completed)
    # Again and again, until the look-up or the key ends it.
    cases["always-dropped"] = Case([fault("create", "create_then_drop", None)], **completed)
    cases["often-silent"] = Case([fault("create", "hang", 3)], **completed)
    requests = run_cases(world, cases)
    check_fired(world)
    by_user = {}
    for call in world.sandbox.calls("create"):
        by_user.setdefault(call["user"], set()).add(call["key"] or call["reference"])
    assert_equal({user: keys for user, keys in by_user.items() if keys != {requests[user]}}, {},
                 "creates under another key than the event's id")


@core_at("generic")
@slow
@test(issuers=EVERY, retry__max_attempts="20")
def a_lookup_with_any_fault_decides_nothing(world):
    world.up()
    lost = [MADE, refusal(world.issuer)]
    cases = named("lookup", ANYTHING, "lookup", lost, status="COMPLETED", code=None)
    cases["stale"] = Case([*lost, fault("lookup", "stale", stale_ms=60000)], "COMPLETED", None)
    # What was never made must not be found.
    cases["not-made"] = Case([NOT_MADE, refusal(world.issuer)], "REJECTED", world.issuer.reason, ())
    run_cases(world, cases)
    if not world.issuer.looks_first:  # else the first look-up finds the card, and there is no second create
        check_fired(world)


@core_at("generic")
@slow
@test(issuers=those(lambda issuer: {"activate", "reveal"} & set(issuer.calls)), retry__max_attempts="20")
def a_step_between_create_and_link_with_any_fault_is_repeated(world):
    world.up()
    cases = {}
    for call in ("activate", "reveal"):
        if call in world.issuer.calls:
            cases.update(named(call, ANYTHING, call, status="COMPLETED", code=None))
    # A repeat does not let in someone who may see the card and not its number.
    refused = {"reveal-%d" % status for status in (401, 403)} & set(cases)
    cases.update({user: cases[user]._replace(status="FAILED", code="reveal_refused") for user in refused})
    requests = run_cases(world, cases)
    for user, request in requests.items():
        if user in refused:
            continue
        card = world.get(user, "/v1/card-requests/" + request).json()["card"]
        assert_equal(world.get(user, "/v1/cards/%s/number" % card["id"]).status, 200, "the number of " + user)
    check_fired(world)


@core_at("generic")
@slow
@test(issuers=EVERY, retry__max_attempts="20")
def a_cancel_with_any_fault_is_repeated_until_the_card_is_gone(world):
    world.up()
    without_404 = {name: rule for name, rule in ANYTHING.items() if name != "404"}
    ends = {"status": "REJECTED", "code": "card_limit_reached", "issued": ("cancelled",)}
    # 404 may say that the card is not there, and is a question then.
    cases = named("cancel", {**without_404, **LATE}, "cancel", [REFUSED_LINK], **ends)
    if world.issuer.retrieve:
        refused = fault("cancel", "execute_then_status", status=422, code=world.issuer.code)
        cases["gone-already"] = Case([REFUSED_LINK, refused], **ends)
        cases.update(named("retrieve", without_404, world.issuer.retrieve, [REFUSED_LINK, refused], **ends))
        cases["not-gone"] = Case([REFUSED_LINK, fault("cancel", "status", status=422, code=world.issuer.code)],
                                 "FAILED", "cancel_failed")
    if world.issuer.name == "generic":
        cases["undisturbed"] = Case([REFUSED_LINK], **ends)
        cases["closed-already"] = Case([REFUSED_LINK, fault("cancel", "execute_then_status", status=409)], **ends)
        for status in (404, 418, 422):
            cases["question-%d" % status] = Case([REFUSED_LINK, fault("cancel", "status", status=status, code="no")],
                                                 "FAILED", "cancel_failed")
    requests = run_cases(world, cases)
    check_fired(world)
    if world.issuer.name == "generic":
        assert_equal(world.sandbox.summary()["counts"]["issuer.create"], len(cases), "creates")
        assert_true(world.event(requests["question-404"])["last_error"], "something for the operator")


@slow
@test(issuers=those(lambda issuer: issuer.closes_replaced), retry__max_attempts="20")
def the_replaced_card_is_closed_whatever_the_first_answer_was(world):
    """The new card is linked then; so nothing about the old one may end the request otherwise than COMPLETED."""
    world.up()
    refused = ("execute_then_status", {"status": 422, "code": world.issuer.code})
    kinds = {**{name: rule for name, rule in ANYTHING.items() if name != "404"}, **LATE, "gone-already": refused}
    olds = {"retire-" + name: world.accept("retire-" + name) for name in [*kinds, "not-gone", "never"]}
    world.wait_final(olds.values())
    users = {}
    for user in olds:
        users[user] = world.get(user, "/v1/card-requests/" + olds[user]).json()["card"]["id"]
    rules = [{"target": "issuer", "call": "cancel", "user": "retire-" + name, "count": 1, "fault": kind, **members}
             for name, (kind, members) in kinds.items()]
    rules.append({"target": "issuer", "call": "cancel", "user": "retire-not-gone", "fault": "status", "status": 422})
    rules.append({"target": "issuer", "call": "cancel", "user": "retire-never", "fault": "status", "status": 403})
    world.sandbox.faults(rules)
    news = {user: world.accept(user, "again", {"kind": "reissue", "replaces": card}) for user, card in users.items()}
    with world.others():
        world.wait_final(news.values(), 60)
    world.settle(60)
    wrong = []
    for user, event in news.items():
        row, kept = world.event(event), user in ("retire-not-gone", "retire-never")
        states = sorted(card["status"] for card in world.sandbox.cards(user=user))
        if (row["status"], states) != ("COMPLETED", ["active", "active"] if kept else ["active", "cancelled"]):
            wrong.append("%s: %s %s, cards %r (%s)" % (user, row["status"], row["reason_code"], states,
                                                       row["last_error"]))
        if kept and "retire" not in json_of(world, event):
            wrong.append("%s: nothing tells of the old card (%s)" % (user, row["last_error"]))
    assert_true(not wrong, "\n".join(wrong))


def json_of(world, event):
    """What an operator sees of an event: its row and its attempts."""
    return "%r %r" % (world.event(event), world.attempts(event))


@slow
@test(issuers=EVERY, retry__max_attempts="3")
def what_the_issuer_refuses_is_rejected_or_asked_about(world):
    world.up()
    cases = {}
    for status in world.issuer.refused:
        cases["refused-%d" % status] = Case([refusal(world.issuer, status)], "REJECTED", world.issuer.reason, ())
        bare = fault("create", "status", status=status, body="")
        # Without a code it may come from a gateway, which decides nothing where the key does not either.
        cases["no-body-%d" % status] = Case([bare], "REJECTED", "issuer_refused", ()) \
            if world.issuer.trusts_key else Case([bare], "COMPLETED")
    for status in world.issuer.unforeseen:
        cases["odd-%d" % status] = Case([fault("create", "status", status=status)], "FAILED",
                                        "issuer_http_%d" % status, ())
    run_cases(world, cases)
    if world.issuer.trusts_key:
        assert_equal(world.sandbox.calls("lookup"), [], "look-ups where nothing is unknown")
    # The same answers once something is unknown: nothing is said before the look-up has.
    cases = {}
    for status in (*world.issuer.refused, *world.issuer.unforeseen):
        cases["made-%d" % status] = Case([MADE, refusal(world.issuer, status)], "COMPLETED")
    run_cases(world, cases)


@core_at("generic")
@slow
@test(issuers=EVERY, retry__max_attempts="3")
def when_the_attempts_are_used_up_the_lookup_decides(world):
    world.up()
    requests = run_cases(world, {
        "made": Case([fault("create", "create_then_hang", None)], "COMPLETED"),
        "not-made": Case([fault("create", "hang", None)], "FAILED", "attempts_exhausted", ()),
        "made-503": Case([fault("create", "execute_then_status", None, status=503)], "COMPLETED"),
        "not-made-503": Case([fault("create", "status", None, status=503)], "FAILED", "attempts_exhausted", ()),
        "core-500": Case([fault("check", "status", None, status=500)], "FAILED", "attempts_exhausted", ()),
        "link-500": Case([fault("link", "status", None, status=500)], "FAILED", "attempts_exhausted"),
    }, among_others=True)
    unknown = {requests[user] for user in requests if "made" in user}
    looked_up = {call["reference"] for call in world.sandbox.calls("lookup")}
    assert_true(world.issuer.name != "generic" or looked_up == unknown, "look-ups: of the unknown ones only")
