"""What an issuer must be told of a user: from core-api, for this user; from the configuration, for all; and from the
event, once something was sent that may have made a card.

Story: a look-up needs the holder, and core-api is asked again at each attempt. By then it may have forgotten the user,
may be wrong, or may name another holder; the card that was made is still the first holder's.
"""
import json

from harness import assert_equal, assert_true, core_at, EVERY, slow, slow_but_at, test, those, VENDORS, wait_until
from outcomes import Case, fault, run_cases

# Those that cannot do without core-api's word.
TOLD = those(lambda issuer: issuer.profile in ("stripe", "lithic", "adyen", "increase"))
# A sending that gets no answer is repeated by the HTTP library at times; this one is not.
LOST, NOT_MADE = fault("create", "execute_then_status", status=503), fault("create", "status", status=503)


def told(holder):
    """core-api's answer about a user."""
    return json.dumps({"eligible": True, "issuer": holder})


def parameters(world, event):
    return world.event(event)["issuer_parameters"]


@core_at("lithic")
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
        # A gateway gave up, and had forwarded the create.
        "made-408": Case([fault("create", "execute_then_status", status=408), blocked], "REJECTED", "user_blocked",
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
             "number": '{"eligible":true,"issuer":{"cardholder":1,"account_token":1,"account_id":1,"balanceAccountId":1}}',
             "blank": '{"eligible":true,"issuer":{"cardholder":"","account_token":"","account_id":"","balanceAccountId":""}}',
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
    rule = fault("check", "answer", None, skip=1, body=told(world.issuer.holder(world, "somebody-else")))
    requests = run_cases(world, {
        "made": Case([LOST, rule], "COMPLETED"),
        "not-made": Case([NOT_MADE, rule], "COMPLETED"),
        "refused": Case([LOST, fault("create", "status", status=422, code=world.issuer.code), rule], "COMPLETED"),
    })
    owners = {card["user_id"] for card in world.sandbox.cards()}
    assert_equal(owners, set(requests), "whose cards they are")


@slow_but_at("stripe")
@test(issuers=VENDORS, issuer__timeout="1s", core__timeout="500ms", worker__lease="3s", retry__max_attempts="20",
      issuer__key_lifetime="30s")
def a_worker_that_dies_over_its_create_leaves_no_card_behind_another_holder(world):
    """The create has reached the issuer, which holds its answer, or the create itself; then the worker is killed. From
    then on core-api names another holder, beside yes or no, or nobody. The card is the first holder's, and is found
    there: by what the event keeps since before the send, or by our reference."""
    world.up(workers=0)
    other = world.issuer.holder(world, "somebody-else")
    words = {"same": None, "without": ("answer", {"body": '{"eligible":true}'}),
             "other": ("answer", {"body": told(other)}), "blocked": ("ineligible", {}),
             "blocked-other": ("answer", {"body": json.dumps({"eligible": False, "reason": "blocked",
                                                              "issuer": other})}),
             "forgotten": ("user_not_found", {})}
    holds = {"made": ("create_then_hang", {}), "late": ("hang_then_execute", {"late_ms": 2500})}
    users = {"%s-%s" % (hold, word): (hold, word) for hold in holds for word in words}
    for user, (hold, _) in users.items():
        world.sandbox.fault("create", holds[hold][0], user=user, count=1, **holds[hold][1])
    # It waits for all answers until it is killed.
    worker = world.start_worker(issuer__timeout="10s", issuer__settle_time="20s", worker__lease="1m")
    events = {user: world.accept(user) for user in users}
    wait_until(lambda: all(world.sandbox.calls("create", user=user) for user in users), "the creates")
    worker.kill()
    world.sql("UPDATE outbox_events SET lease_until = clock_timestamp() + interval '3 s' WHERE status = 'PROCESSING'")
    kept = [user for user, event in events.items() if parameters(world, event)]
    needs_holder = world.issuer.profile in ("stripe", "adyen")
    assert_equal(sorted(kept), sorted(users) if needs_holder else [], "what events keep of a send without an answer")
    for user, (_, word) in users.items():
        if words[word]:
            world.sandbox.fault("check", words[word][0], user=user, **words[word][1])
    world.start_worker()
    world.wait_final(events.values(), 90)
    world.settle(60)
    found = {user: (world.status(event), [card["status"] for card in world.sandbox.cards(reference=event)])
             for user, event in events.items()}
    no = ("blocked", "blocked-other", "forgotten")
    assert_equal(found, {user: ("REJECTED", ["cancelled"]) if word in no else ("COMPLETED", ["active"])
                         for user, (_, word) in users.items()}, "ends")
    assert_equal({card["user_id"] for card in world.sandbox.cards()}, set(users), "whose cards they are")


@slow
@test(issuers=TOLD, retry__max_attempts="6")
def a_create_that_was_not_sent_binds_nobody(world):
    """Another attempt asks core-api anew, which was wrong about the holder and has been corrected meanwhile."""
    world.up(workers=0)
    world.sandbox.fault("check", "answer", user="corrected", count=1,
                        body=told(world.issuer.holder(world, "somebody-else")))
    world.sandbox.down()
    event = world.accept("corrected")
    world.start_worker()
    world.wait_attempt(event)
    world.sandbox.down(down=False)
    world.wait_final([event], 60)
    assert_equal([call["user"] for call in world.sandbox.calls("create")], ["corrected"], "creates")
    assert_equal([card["user_id"] for card in world.sandbox.cards()], ["corrected"], "whose card it is")
