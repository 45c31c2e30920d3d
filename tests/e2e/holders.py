"""What an issuer must be told of a user: from core-api, for this user; from the configuration, for all; and from the
event, once something was sent that may have made a card.

Story: a look-up needs the holder, and core-api is asked again at each attempt. By then it may have forgotten the user,
may be wrong, or may name another holder; the card that was made is still the first holder's.
"""
from harness import assert_equal, assert_true, EVERY, slow, slow_but_at, test, those, VENDORS, wait_until
from outcomes import Case, fault, run_cases

# Those that cannot do without core-api's word.
TOLD = those(lambda issuer: issuer.profile in ("stripe", "lithic", "adyen"))
# A sending that gets no answer is repeated by the HTTP library at times; this one is not.
LOST, NOT_MADE = fault("create", "execute_then_status", status=503), fault("create", "status", status=503)


def parameters(world, event):
    return world.event(event)["issuer_parameters"]


@slow
@test(issuers=EVERY, retry__max_attempts="20")
def a_user_who_is_blocked_while_an_outcome_is_unknown_keeps_no_card(world):
    world.up()
    blocked = fault("check", "ineligible", None, skip=1)
    gone = fault("check", "user_not_found", None, skip=1)
    requests = run_cases(world, {
        "made": Case([LOST, blocked], "REJECTED", "user_blocked", ("cancelled",)),
        "not-made": Case([NOT_MADE, blocked], "REJECTED", "user_blocked", ()),
        "forgotten": Case([LOST, gone], "REJECTED", "user_not_found", ("cancelled",)),
        "forgotten-not-made": Case([NOT_MADE, gone], "REJECTED", "user_not_found", ()),
        "late": Case([fault("create", "status_then_execute", late_ms=600), blocked], "REJECTED", "user_blocked",
                     ("cancelled",)),
        "cancel-lost": Case([LOST, blocked, fault("cancel", "create_then_drop")], "REJECTED", "user_blocked",
                            ("cancelled",)),
    })
    for user, request in requests.items():
        assert_equal(len(world.sandbox.calls("create", user=user)), 1, "creates for " + user)
        assert_true(world.sandbox.calls("lookup", reference=request) or world.sandbox.calls("lookup", user=user),
                    user + " was looked up")
    if world.issuer.profile in ("stripe", "adyen"):
        assert_true(parameters(world, requests["forgotten"]), "the holder of the first send is kept")


@slow
@test(issuers=TOLD, retry__max_attempts="6")
def without_the_holder_nothing_is_sent(world):
    world.up()
    texts = {"none": '{"eligible":true}', "null": '{"eligible":true,"issuer":null}',
             "list": '{"eligible":true,"issuer":[]}', "empty": '{"eligible":true,"issuer":{}}',
             "number": '{"eligible":true,"issuer":{"cardholder":1,"account_token":1,"balanceAccountId":1}}',
             "blank": '{"eligible":true,"issuer":{"cardholder":"","account_token":"","balanceAccountId":""}}',
             "long": '{"eligible":true,"issuer":{"cardholder":"%s"}}' % ("x" * 129),
             "control": '{"eligible":true,"issuer":{"cardholder":"a\\u0000b"}}',
             "name": '{"eligible":true,"issuer":{"card-holder":"x"}}',
             "many": '{"eligible":true,"issuer":{%s}}' % ",".join('"n%s":"v"' % ("x" * i) for i in range(17))}
    cases = {"once-" + name: Case([fault("check", "answer", body=text)], "COMPLETED") for name, text in texts.items()}
    cases["always-none"] = Case([fault("check", "answer", None, body=texts["none"])], "FAILED", "attempts_exhausted",
                                ())
    requests = run_cases(world, cases, among_others=True)
    for user in cases:
        sent = len(world.sandbox.calls("create", user=user))
        assert_equal(sent, 0 if user == "always-none" else 1, "creates for " + user)
    row = world.event(requests["always-none"])
    assert_true("no issuer." in "%r" % row, "the operator reads what is missing: %r" % row["last_error"])
    done = world.ctl("replay", requests["always-none"], "--reason", "core-api knows the holder now")
    assert_equal(done.returncode, 0, done.stderr)


@slow_but_at("stripe")
@test(issuers=TOLD, retry__max_attempts="20")
def another_holder_on_the_second_attempt_changes_nothing(world):
    """The repeat is the same request, and the look-up is the first holder's: what was sent is kept."""
    world.up()
    other = '{"eligible":true,"issuer":%s}'
    holder = world.issuer.holder(world, "somebody-else")
    import json
    rule = fault("check", "answer", None, skip=1, body=other % json.dumps(holder))
    requests = run_cases(world, {
        "made": Case([LOST, rule], "COMPLETED"),
        "not-made": Case([NOT_MADE, rule], "COMPLETED"),
        "refused": Case([LOST, fault("create", "status", status=422, code=world.issuer.code), rule], "COMPLETED"),
    })
    owners = {card["user_id"] for card in world.sandbox.cards()}
    assert_equal(owners, set(requests), "whose cards they are")


@slow
@test(issuers=VENDORS, issuer__timeout="1s", core__timeout="500ms", worker__lease="3s", retry__max_attempts="20",
      issuer__key_lifetime="20s")
def a_worker_that_dies_before_it_keeps_the_holder_makes_no_second_card(world):
    """The send left, the write did not. core-api names the same holder again, or is asked until it does."""
    world.up(workers=0)
    users = ("same", "without", "blocked")
    for user in users:
        world.sandbox.fault("create", "create_then_hang", user=user, count=1)
    worker = world.start_worker()
    events = {user: world.accept(user) for user in users}
    wait_until(lambda: all(world.sandbox.calls("create", user=user) for user in users), "the creates")
    worker.kill()
    world.sandbox.fault("check", "answer", user="without", count=2, body='{"eligible":true}')
    world.sandbox.fault("check", "ineligible", user="blocked")
    world.start_worker()
    world.wait_final(events.values(), 60)
    found = {user: (world.status(event), [card["status"] for card in world.sandbox.cards(reference=event)])
             for user, event in events.items()}
    assert_equal(found, {"same": ("COMPLETED", ["active"]), "without": ("COMPLETED", ["active"]),
                         "blocked": ("REJECTED", ["cancelled"])}, "ends")
