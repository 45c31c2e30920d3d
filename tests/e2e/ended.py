"""Each end of a card request, by a worker or by an operator, is one event CARD_REQUEST_ENDED, and its payload is what
GET answers from then on. These stories look at the tables only; webhooks.py is about the delivery of the events."""
import json

from harness import assert_equal, test, wait_until


def noted(world):
    """The database knows a route that nobody delivers."""
    world.sql("SELECT issuing.note_routes('nobody', ARRAY['CARD_REQUEST_ENDED'], ARRAY[false], ARRAY[false],"
              " ARRAY[1000::int8], ARRAY[10::int8], ARRAY[false])")


def notifications(world, request):
    """The payloads of this request's events, in their order, as a claim makes them."""
    world.sql("SELECT count(*) FROM issuing.claim(gen_random_uuid(), 256, 3600000, 'nobody', NULL, 100, false,"
              " 'CARD_REQUEST_ENDED', false)")
    return [json.loads(row) for row in
            world.sql("SELECT payload FROM issuing.outbox_events WHERE event_type = 'CARD_REQUEST_ENDED' AND"
                      " payload #>> '{data,id}' = '%s' ORDER BY id" % request).splitlines()]


def answer(world, user, request):
    return world.get(user, "/v1/card-requests/" + request).json()


def expect_notifications(world, user, request, status, reason, count=1):
    """The newest event says what GET says."""
    wait_until(lambda: answer(world, user, request)["status"] == status, "%s of %s" % (status, user))
    payloads, body = notifications(world, request), answer(world, user, request)
    assert_equal(len(payloads), count, "events of " + user)
    assert_equal((payloads[-1]["type"], payloads[-1]["data"]),
                 ("card_request.ended", {**body, "user_id": user, "end": count}), "payload and answer of " + user)
    assert_equal((body["reason"] or {}).get("code"), reason, "reason of " + user)
    assert_equal(body["card"] is not None, status == "COMPLETED", "card of " + user)
    return body


@test
def the_event_of_an_end_says_what_get_says(world):
    noted(world)
    world.up(workers=1)
    world.sandbox.fault("check", "ineligible", user="r1")
    world.sandbox.fault("create", "status", user="f1", status=418)
    world.sandbox.fault("create", "status", user="f2", status=418)
    world.sandbox.fault("link", "link_refused", user="c1")
    ids = {user: world.accept(user) for user in ("u1", "r1", "f1", "f2", "c1")}
    body = expect_notifications(world, "u1", ids["u1"], "COMPLETED", None)
    wait_until(lambda: answer(world, "r1", ids["r1"])["status"] == "REJECTED", "the refusal")
    expect_notifications(world, "r1", ids["r1"], "REJECTED", answer(world, "r1", ids["r1"])["reason"]["code"])
    expect_notifications(world, "f1", ids["f1"], "FAILED", "issuer_http_418")
    expect_notifications(world, "f2", ids["f2"], "FAILED", "issuer_http_418")
    wait_until(lambda: answer(world, "c1", ids["c1"])["status"] == "REJECTED", "the cancelled card")
    expect_notifications(world, "c1", ids["c1"], "REJECTED", answer(world, "c1", ids["c1"])["reason"]["code"])
    world.sandbox.clear()
    assert_equal(world.ctl("replay", ids["f1"], "--reason", "x").returncode, 0, "replay")
    expect_notifications(world, "f1", ids["f1"], "COMPLETED", None, 2)
    assert_equal(world.ctl("resolve", ids["f2"], "--confirm-no-card", "--reason", "x").returncode, 0, "resolve")
    expect_notifications(world, "f2", ids["f2"], "REJECTED", "resolved", 2)
    again = world.accept("u1", key="k2", body={"kind": "reissue", "replaces": body["card"]["id"]})
    assert_equal(expect_notifications(world, "u1", again, "COMPLETED", None)["kind"], "reissue", "kind")
    # The list has card requests only, and the id of such an event finds nothing.
    listed = world.get("u1", "/v1/card-requests").json()["items"]
    assert_equal([item["id"] for item in listed], [again, ids["u1"]], "the list")
    event = world.sql("SELECT id FROM issuing.outbox_events WHERE event_type = 'CARD_REQUEST_ENDED' LIMIT 1")
    assert_equal(world.get("u1", "/v1/card-requests/" + event).status, 404, "no card request")
