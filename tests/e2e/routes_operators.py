"""What an operator sees of events that routes deliver, and may do with them: every verb that knows cards.

Story: at three in the morning a customer asks whether they were charged. The operator must see what was sent, what is
known, what the event waits for and who else waits behind it; may never be told of a card; and must not be able to write
"not executed" over a charge that may have been made without saying so.
"""
from console import Console
from harness import assert_equal, assert_true, test, wait_until
from operators import lines
from receiver import event_ids, insert, receiver, resets, route, says, wait_ends

DONE = ("COMPLETED", None)


def explained(world, event):
    """The story of one event, as JSON and as text; neither may speak of cards."""
    text = world.ctl("explain", event).stdout
    story = lines(world.ctl("explain", event, "--json"))[0]
    for word in ("card", "issuer", "core-api"):
        assert_true(word not in text, "explain speaks of %s: %s" % (word, text))
    return story, text


def types(world):
    return {row["type"]: row for row in lines(world.ctl("status", "--json"))[0]["types"]}


@test
def a_type_that_nobody_delivers_waits_and_is_named(world):
    with receiver(world) as service:
        lost = insert(world, ["alice"] * 3, event_type="SHIPMENT_NOTE")
        route(world, service)
        world.start_worker()
        assert_equal(set(wait_ends(world, insert(world, "alice")).values()), {DONE}, "another type")
        story, text = explained(world, lost[0])
        assert_equal((story["next"]["action"], story["waits_for"]["what"], story["route"]), ("none", "route", None),
                     "explain")
        assert_true("nobody delivers events of this type" in text, text)
        row = types(world)["SHIPMENT_NOTE"]
        assert_equal((row["delivered"], row["pending"]), (False, 3), "status --json")
        shown = world.ctl("status").stdout
        assert_true("SHIPMENT_NOTE" in shown and "by nobody" in shown, "status: " + shown)
        advice = world.ctl("doctor").stdout
        assert_true("nobody delivers SHIPMENT_NOTE: 3 events wait" in advice, "doctor: " + advice)
        listed = world.ctl("list", "--type", "SHIPMENT_NOTE").stdout
        assert_equal(listed.count("SHIPMENT_NOTE"), 3, "list names the type")
        done = lines(world.ctl("cancel", "--type", "SHIPMENT_NOTE", "--reason", "a mistake", "--json"))
        assert_equal([(row["status"], row["reason"]["code"]) for row in done],
                     [("REJECTED", "cancelled")] * 3, "cancel")


@test
def thousands_of_types_that_nobody_delivers_are_a_few_lines(world):
    """A service that writes an id into the type makes a type of each event."""
    world.start_worker()
    insert(world, ["alice"] * 3, event_type="MOST")
    world.sql("INSERT INTO outbox_events (event_type, user_id, payload)"
              " SELECT 'ORDER_' || n, 'alice', '{}' FROM generate_series(1, 30000) n")
    rows = [row for row in types(world).values() if not row["delivered"]]
    assert_equal((len(rows), sum(row["pending"] for row in rows), types(world)["29991 other types"]["pending"]),
                 (11, 30003, 29991), "status --json")
    shown, advice = world.ctl("status").stdout, world.ctl("doctor").stdout
    assert_true("29991 other types  29,991 " in shown and shown.count("by nobody") == 11, "status: " + shown)
    assert_true("nobody delivers MOST: 3 events wait" in advice and
                "nobody delivers 29991 other types: 29991 events wait" in advice, "doctor: " + advice)
    assert_equal(advice.count("nobody delivers"), 11, "doctor: " + advice)


@test(retry__max_attempts="2", retry__base="10ms")
def an_unknown_outcome_is_ended_only_by_who_says_that_it_was_not_executed(world):
    with receiver(world) as service:
        route(world, service, timeout="500ms", key_lifetime="2s")
        world.start_worker()
        event, = event_ids(world, 1)
        service.plan(event, *[resets()] * 50)
        insert(world, "alice", ids=[event])
        world.wait_status(event, "FAILED")
        story, text = explained(world, event)
        assert_equal((story["outcome_unknown"], story["route"]["lookup"]), (True, False), "explain")
        assert_true("the receiver may have executed it" in text and "--confirm-not-executed" in text, text)
        assert_true("reconcile" not in text, "a route without a look-up cannot be asked: " + text)
        asked = lines(world.ctl("reconcile", event, "--json"), 1)
        assert_equal(asked[0]["result"], "refused", "reconcile")
        assert_true("lookup_url" in asked[0]["why"], "reconcile says why: %r" % asked[0])
        again = world.ctl("reissue", event, "--reason", "r", "--confirm")
        assert_equal(again.returncode, 1, "reissue")
        assert_true("only card requests can be reissued" in again.stdout, again.stdout)
        for words in ((), ("--confirm-no-card",)):
            done = lines(world.ctl("resolve", event, "--reason", "r", "--json", *words), 1)
            assert_true("may have executed it" in done[0]["why"], "resolve %s: %r" % (words, done[0]))
        words = ("resolve", event, "--confirm-not-executed", "--reason", "asked them")
        assert_true("may still arrive" in world.ctl(*words).stdout, "a route that ctl does not know settles in 20 m")
        known = ["--route.PAYMENT_CHARGE.%s=%s" % option for option in (
            ("url", service.url), ("timeout", "500ms"), ("key_lifetime", "2s"))]
        wait_until(lambda: world.ctl(*words, *known).returncode == 0, "it is resolved when the last send has settled")
        row = world.event(event)
        assert_equal((row["status"], row["reason_code"]), ("REJECTED", "resolved"), "the end")
        assert_true("card" not in row["reason_detail"], row["reason_detail"])
        explained(world, event)
        shown = lines(world.ctl("audit", "--event", event, "--json"))
        assert_equal([each["action"] for each in shown], ["resolve"], "audit")


@test(retry__max_attempts="2", retry__base="10ms")
def a_route_with_a_look_up_is_reconciled_at_its_receiver(world):
    with receiver(world) as service:
        route(world, service, timeout="500ms", key_lifetime="2s", lookup=True)
        world.start_worker()
        made, lost = event_ids(world, 2)
        service.plan(made, *[says(418)] * 9)
        service.plan(lost, *[says(418)] * 9)
        insert(world, ["alice", "bob"], ids=[made, lost])
        wait_ends(world, [made, lost])
        service.executed[made] = b"{}"
        story, text = explained(world, made)
        assert_true(story["route"]["lookup"] and "reconciles or resolves" in text, text)
        found = lines(world.ctl("reconcile", made, lost, "--json"))
        assert_equal({row["id"]: (row["result"], row["status"]) for row in found},
                     {made: ("executed", "COMPLETED"), lost: ("not_executed", "FAILED")}, "reconcile")
        for row in found:
            assert_true("card" not in row["why"] and "issuer" not in row["why"], row["why"])
        assert_equal([each["action"] for each in lines(world.ctl("audit", "--event", made, "--json"))], ["reconcile"],
                     "audit")
        text = explained(world, made)[1]
        assert_true("the receiver has executed it" in text, text)


@test
def what_holds_others_back_is_named_until_it_is_ended(world):
    with receiver(world) as service:
        route(world, service, ordered="true")
        world.start_worker()
        ids = event_ids(world, 4)
        service.plan(ids[1], says(418))
        insert(world, ["alice"] * 4, ids=ids)
        world.wait_status(ids[1], "FAILED")
        wait_until(lambda: types(world)["PAYMENT_CHARGE"]["held_back"] == 2, "the later ones are held back")
        failed, text = explained(world, ids[1])
        assert_true("2 later events of this user wait for that" in text, text)
        held, text = explained(world, ids[2])
        assert_true("held behind %s, which is FAILED: replay or resolve it" % ids[1] in text, text)
        assert_equal((held["waits_for"]["what"], held["waits_for"]["event"], held["held_behind"]),
                     ("event", ids[1], ids[1]), "explain --json")
        last, text = explained(world, ids[3])
        assert_true("first one that must end is %s, which is FAILED" % ids[1] in text or
                    "held behind %s, which is FAILED" % ids[1] in text, text)
        assert_true("held behind" in world.ctl("list", "--user", "alice").stdout, "list")
        # Story: a held event showed an attempt in five minutes, and was delivered at once when the other one ended.
        listed = lines(world.ctl("list", "--user", "alice", "--status", "PENDING", "--json"))
        assert_equal([row["next_attempt_at"] for row in listed], [None, None], "they come when another one ends")
        assert_true("next attempt" not in world.ctl("show", ids[2]).stdout, "show")
        listed = Console(world).enter().page("/events?user=alice&status=PENDING")
        assert_true('after <a href="/events/%s">' % ids[1] in listed, "the console says after which one")
        advice = world.ctl("doctor").stdout
        assert_true("%s (PAYMENT_CHARGE) is FAILED and holds back 2 later events" % ids[1] in advice, advice)
        preview = world.ctl("replay", ids[1], "--dry-run").stdout
        assert_true("card" not in preview and "delivered" in preview, preview)
        done = world.ctl("resolve", "--type", "PAYMENT_CHARGE", "--code", "route_http_418", "--reason", "by hand")
        assert_equal(done.returncode, 0, "resolve: " + done.stderr)
        assert_equal(set(wait_ends(world, ids[2:]).values()), {DONE}, "what was behind it")
        assert_true("holds back" not in world.ctl("doctor").stdout, "doctor afterwards")


@test(breaker__failures="3")
def a_route_is_a_target_that_is_paused_and_probed_by_its_type(world):
    with receiver(world) as service:
        route(world, service)
        world.start_worker()
        first = insert(world, "alice")
        assert_equal(set(wait_ends(world, first).values()), {DONE}, "before")
        paused = lines(world.ctl("pause", "PAYMENT_CHARGE", "--reason", "they move", "--json"))
        assert_equal((paused[0]["result"], paused[0]["obeyed"]), ("paused", 1), "pause")
        waiting = insert(world, ["bob"] * 3)
        found, text = explained(world, waiting[0])
        assert_equal(found["waits_for"]["what"], "pause", "explain")
        assert_true("PAYMENT_CHARGE is paused by" in text and "they move" in text, text)
        wait_until(lambda: [row["backlog"] for row in lines(world.ctl("targets", "--json"))
                            if row["target"] == "PAYMENT_CHARGE"] == [3], "the events behind it")
        assert_equal(len(service.deliveries()), 1, "deliveries during the pause")
        lines(world.ctl("resume", "PAYMENT_CHARGE", "--reason", "they are back", "--json"))
        assert_equal(set(wait_ends(world, waiting).values()), {DONE}, "after it")


@test
def a_route_without_a_living_worker_is_told(world):
    with receiver(world) as service:
        route(world, service)
        worker = world.start_worker()
        wait_until(lambda: "PAYMENT_CHARGE" in types(world), "the worker has named its route")
        worker.stop()
        world.sql("UPDATE routes SET seen_at = now() - interval '2 minutes'")
        event, = insert(world, "alice")
        found, text = explained(world, event)
        assert_equal(found["waits_for"]["what"], "worker", "explain")
        assert_true("no worker runs" in text or "no living worker has a route" in text, text)
        row = types(world)["PAYMENT_CHARGE"]
        assert_equal((row["delivered"], row["alive"], row["pending"]), (True, False, 1), "status")
        advice = world.ctl("doctor").stdout
        assert_true("no living worker has the route PAYMENT_CHARGE" in advice, advice)
