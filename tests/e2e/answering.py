"""Questions that real issuers lead to, and operators' answers to them: replay, reconcile, reissue, resolve.

Story: an operator's look-up needs the holder as a worker's does, and what it finds decides in the same way.
"""
from harness import assert_equal, assert_true, slow, slow_but_at, test, those, VENDORS
from operators import lines
from outcomes import Case, fault, run_cases

REVEALS = those(lambda issuer: "reveal" in issuer.calls)
# Where neither the key nor the look-up tells of a card, nothing can.
HONEST = those(lambda issuer: not issuer.sandbox)
NEVER_MADE = fault("create", "status", None, status=503)


def results(done, code=0):
    return {row["id"]: row["result"] for row in lines(done, code)}


def states(world, event):
    return [card["status"] for card in world.sandbox.cards(reference=event)]


def end(world, event):
    row = world.wait_status(event, "COMPLETED", "REJECTED", "FAILED")
    return row["status"], row["reason_code"]


@slow
@test(issuers=HONEST, retry__max_attempts="2")
def operators_answer_questions_with_the_four_verbs(world):
    world.up()
    questions = ("replayed", "reissued", "resolved", "hidden")
    cases = {user: Case([NEVER_MADE], "FAILED", "attempts_exhausted", ()) for user in questions[:3]}
    # Its card is there, and no look-up shows it yet.
    cases["hidden"] = Case([fault("create", "execute_then_status", None, status=503),
                            fault("lookup", "stale", None, stale_ms=3600000)], "FAILED", "attempts_exhausted")
    if world.issuer.profile == "marqeta":
        cases["hidden"] = Case([fault("create", "execute_then_status", None, status=503),
                                fault("lookup", "status", None, status=404, code="404001")], "FAILED",
                               "attempts_exhausted", ("inactive",))
    elif world.issuer.name == "stripe":
        cases["hidden"] = cases["hidden"]._replace(code="issuer_key_spent")
    events = run_cases(world, cases, among_others=True)
    shown = world.ctl("explain", events["hidden"])
    assert_equal(shown.returncode, 0, shown.stderr)
    world.sandbox.clear()
    found = results(world.ctl("reconcile", "--all", "--status", "FAILED", "--json"))
    assert_equal(found, {events["hidden"]: "found", **{events[user]: "not_found" for user in questions[:3]}},
                 "reconcile")
    assert_equal(end(world, events["hidden"]), ("COMPLETED", None), "what was found")
    done = world.ctl("replay", events["replayed"], "--reason", "the issuer is well again")
    assert_equal((done.returncode, end(world, events["replayed"])), (0, ("COMPLETED", None)), "replay")
    done = world.ctl("resolve", events["resolved"], "--confirm-no-card", "--reason", "the user has gone")
    assert_equal((done.returncode, end(world, events["resolved"])), (0, ("REJECTED", "resolved")), "resolve")
    done = world.ctl("reissue", events["reissued"], "--confirm", "--timeout", "20s", "--json", "--reason", "a new key")
    assert_equal(done.returncode, 0, done.stdout + done.stderr)
    new = lines(done, 0)[0]["new_id"]
    assert_equal((end(world, new), states(world, new), states(world, events["reissued"])),
                 (("COMPLETED", None), ["active"], []), "reissue")
    # A card that turns up for what was resolved is closed, and what is complete is left alone.
    world.issuer.make(world, "resolved", events["resolved"])
    assert_equal(results(world.ctl("reconcile", events["resolved"], events["replayed"], "--json"), 1),
                 {events["resolved"]: "orphan_cancelled", events["replayed"]: "ok"}, "reconcile of what has ended")
    assert_equal((states(world, events["resolved"]), states(world, events["replayed"])), (["cancelled"], ["active"]),
                 "cards at the issuer")


def a_number_that_the_issuer_will_not_show_is_a_question_and_a_replay_asks_again(world):
    events = run_cases(world, {
        "refused": Case([fault("reveal", "status", status=422, code=world.issuer.code)], "FAILED", "reveal_refused"),
        "lost": Case([fault("reveal", "create_then_hang")], "COMPLETED"),
    })
    assert_equal(world.sandbox.calls("link", user="refused"), [], "links before the number is there")
    done = world.ctl("replay", events["refused"], "--reason", "our role may see numbers now")
    assert_equal((done.returncode, end(world, events["refused"])), (0, ("COMPLETED", None)), "replay")
    assert_equal(states(world, events["refused"]), ["active"], "cards: still the first")
    card = world.get("refused", "/v1/card-requests/" + events["refused"]).json()["card"]["id"]
    number = world.get("refused", "/v1/cards/%s/number" % card).json()["number"]
    assert_true(number in world.sandbox.numbers(), "the number is the issuer's")


def who_may_make_cards_and_not_see_their_numbers_is_told_at_once(world):
    """Story: the right to see numbers was missing. Every request stayed PENDING over a live card, and explain sent its
    reader to the credential file."""
    world.sandbox.fault("reveal", "status", status=403)
    event = world.accept("alice")
    assert_equal(end(world, event), ("FAILED", "reveal_refused"), "the first request")
    assert_true("get that right" in world.ctl("explain", event).stdout, "explain names the right")
    world.workers()[-1].stop()
    world.start_worker(card__number_refused="keep")
    kept = [world.accept(user) for user in ("bob", "carol", "dave", "erin")]
    assert_equal([end(world, each) for each in kept], [("COMPLETED", None)] * 4, "where the number may be missing")
    assert_equal({world.event(each)["last_error"] for each in kept}, {"link: number_hidden"}, "the note")
    assert_true("without its number" in world.ctl("explain", kept[0]).stdout, "explain tells of it")
    world.sandbox.clear()
    assert_equal(world.ctl("replay", event, "--reason", "the right is there").returncode, 0, "replay")
    assert_equal(end(world, event), ("COMPLETED", None), "the end of the first request")
    for each, user, status in ((kept[0], "bob", 404), (event, "alice", 200)):
        card = world.get(user, "/v1/card-requests/" + each).json()["card"]["id"]
        assert_equal(world.get(user, "/v1/cards/%s/number" % card).status, status, "the number of " + user)


def a_card_that_is_shown_without_its_number_is_stored_without_it(world):
    """Story: a program without the right to numbers is answered 200 without one. Every request ended FAILED
    attempts_exhausted over a live card."""
    hidden = {"stripe": {"number": None}, "marqeta": {"pan": None}, "adyen": {"pan": "411111******1111"},
              "increase": {"primary_account_number": "411111******1111"}}
    if world.issuer.profile in hidden:
        world.sandbox.fault("reveal", "answer", card=hidden[world.issuer.profile])
    event = world.accept("frank")
    assert_equal(end(world, event), ("COMPLETED", None), "the request")
    row = world.event(event)
    assert_equal((row["retry_count"], row["last_error"]), (1, "link: number_hidden"), "attempts, and the note")
    assert_true("without its number" in world.ctl("explain", event).stdout, "explain tells of it")
    assert_equal(states(world, event), ["active"], "the card")
    world.sandbox.clear()


def a_number_that_is_not_stored_is_not_asked_for(world):
    for daemon in (world.apis()[-1], world.workers()[-1]):
        daemon.stop()
    before = len(world.sandbox.calls("reveal"))
    never = {"card__store": "never", "card__keys_file": None}
    api = world.start_api(**never)
    world.start_worker(**never)
    event = world.accept("grace", api=api)
    assert_equal(end(world, event), ("COMPLETED", None), "the request")
    card = world.get("grace", "/v1/card-requests/" + event, api=api).json()["card"]
    assert_equal(world.get("grace", "/v1/cards/%s/number" % card["id"], api=api).status, 404, "the number")
    assert_equal(world.sandbox.calls("reveal")[before:], [], "reveals")


@slow_but_at("stripe", "lithic")
@test(issuers=VENDORS, retry__max_attempts="4")
def numbers_that_are_refused_not_shown_or_not_stored_hold_no_card_up(world):
    world.up(sandbox=("--hide-numbers",) if world.issuer.profile == "lithic" else ())
    if world.issuer.name in REVEALS:
        a_number_that_the_issuer_will_not_show_is_a_question_and_a_replay_asks_again(world)
        who_may_make_cards_and_not_see_their_numbers_is_told_at_once(world)
    a_card_that_is_shown_without_its_number_is_stored_without_it(world)
    a_number_that_is_not_stored_is_not_asked_for(world)
