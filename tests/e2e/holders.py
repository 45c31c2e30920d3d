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
NOBODY = '{"eligible":true}'
LOST, NOT_MADE = fault("create", "execute_then_status", status=503), fault("create", "status", status=503)


def told(holder):
    """core-api's answer about a user."""
    return json.dumps({"eligible": True, "issuer": holder})


def parameters(world, event):
    return world.event(event)["issuer_parameters"]


def blocked_while_unknown():
    """Users who are blocked, or forgotten, while the outcome is unknown: they keep no card."""
    blocked = fault("check", "ineligible", None, skip=1)
    gone = fault("check", "user_not_found", None, skip=1)
    return {
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
    }


def told_nothing():
    """Users whose holder core-api does not name in the first answer: nothing is sent by it."""
    texts = {"none": NOBODY, "null": '{"eligible":true,"issuer":null}',
             "list": '{"eligible":true,"issuer":[]}', "empty": '{"eligible":true,"issuer":{}}',
             "number": '{"eligible":true,"issuer":{"cardholder":1,"account_token":1,"account_id":1,"balanceAccountId":1}}',
             "blank": '{"eligible":true,"issuer":{"cardholder":"","account_token":"","account_id":"","balanceAccountId":""}}',
             "long": '{"eligible":true,"issuer":{"cardholder":"%s"}}' % ("x" * 129),
             "control": '{"eligible":true,"issuer":{"cardholder":"a\\u0000b"}}',
             "name": '{"eligible":true,"issuer":{"card-holder":"x"}}',
             "many": '{"eligible":true,"issuer":{%s}}' % ",".join('"n%s":"v"' % ("x" * i) for i in range(17))}
    return {"once-" + name: Case([fault("check", "answer", body=text)], "COMPLETED") for name, text in texts.items()}


def told_another(world):
    """Users of whom core-api names another holder on the second attempt. The repeat is the same request, and the
    look-up is the first holder's: what was sent is kept."""
    rule = fault("check", "answer", None, skip=1, body=told(world.issuer.holder(world, "somebody-else")))
    return {
        "other-made": Case([LOST, rule], "COMPLETED"),
        "other-not-made": Case([NOT_MADE, rule], "COMPLETED"),
        "other-refused": Case([LOST, fault("create", "status", status=422, code=world.issuer.code), rule],
                              "COMPLETED"),
    }


def a_create_that_was_not_sent_binds_nobody(world):
    """Another attempt asks core-api anew, which was wrong about the holder and has been corrected meanwhile."""
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


@core_at("lithic")
@slow
@test(issuers=EVERY, retry__max_attempts="20")
def what_core_api_says_later_changes_no_holder_and_a_user_who_is_blocked_keeps_no_card(world):
    """A table of users: blocked or forgotten after the first send; and where core-api names the holder, without one at
    first, and with another one later."""
    world.up(workers=0)
    is_told = world.issuer.name in TOLD
    if is_told:
        a_create_that_was_not_sent_binds_nobody(world)
    else:
        world.start_worker()
    blocked, nothing = blocked_while_unknown(), told_nothing() if is_told else {}
    unnamed = {"always-none": Case([fault("check", "answer", None, body=NOBODY)], "FAILED", "attempts_exhausted",
                                   ())} if is_told else {}
    another = told_another(world) if is_told else {}
    requests = run_cases(world, {**blocked, **nothing, **unnamed, **another}, among_others=True)
    sent = {user: len(world.sandbox.calls("create", user=user)) for user in (*blocked, *nothing, *unnamed)}
    assert_equal(sent, {**dict.fromkeys((*blocked, *nothing), 1), **dict.fromkeys(unnamed, 0)}, "creates")
    for user in blocked:
        assert_true(world.sandbox.calls("lookup", reference=requests[user]) or world.sandbox.calls("lookup", user=user),
                    user + " was looked up")
    if world.issuer.profile in ("stripe", "adyen"):
        assert_true(parameters(world, requests["forgotten"]), "the holder of the first send is kept")
    owners = {card["reference"]: card["user_id"] for card in world.sandbox.cards()}
    assert_equal({user: owners[requests[user]] for user in another}, {user: user for user in another},
                 "whose cards they are")
    assert_true("somebody-else" not in owners.values(), "cards of the other holder")
    if is_told:
        row = world.event(requests["always-none"])
        assert_true("no issuer." in "%r" % row, "the operator reads what is missing: %r" % row["last_error"])
        done = world.ctl("replay", requests["always-none"], "--reason", "core-api knows the holder now")
        assert_equal(done.returncode, 0, done.stderr)


@slow_but_at("stripe")
@test(issuers=VENDORS, issuer__timeout="1s", core__timeout="500ms", worker__lease="3s", retry__max_attempts="20",
      issuer__key_lifetime="30s")
def a_worker_that_dies_over_its_create_leaves_no_card_behind_another_holder(world):
    """The create has reached the issuer, which holds its answer, or the create itself; then the worker is killed. From
    then on core-api names another holder, beside yes or no, or nobody. The card is the first holder's, and is found
    there: by what the event keeps since before the send, or by our reference."""
    world.up(workers=0)
    other = world.issuer.holder(world, "somebody-else")
    words = {"same": None, "without": ("answer", {"body": NOBODY}),
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
