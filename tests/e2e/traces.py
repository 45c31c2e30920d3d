"""W3C Trace Context: the trace of a client is sent on unchanged to every peer that may have it, and each line of a log
and each view of its event names it."""
import json

from assertions import assert_equal, assert_true, wait_until
from console import Console
from harness import test
from receiver import insert, receiver, route, wait_ends

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = "00-%s-%s-01" % (TRACE, SPAN)
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"


def given(parent=PARENT, *states):
    return [("traceparent", parent), *(("tracestate", state) for state in states)]


def sent(world, user):
    return [(call["traceparent"], call["tracestate"]) for call in world.sandbox.calls(user=user)]


@test
def the_clients_trace_goes_to_every_peer_as_it_came(world):
    world.up()
    world.sandbox.fault("create", "status", status=500, count=1)
    world.wait_status(world.accept("alice", headers=given(PARENT, "rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE")),
                      "COMPLETED")
    assert_equal(sent(world, "alice"), [(PARENT, STATE)] * 5, "check, create, check, create, link")


@test
def what_is_malformed_is_dropped_whole_and_is_no_fault_of_the_request(world):
    world.up()
    for i, (parent, state) in enumerate(((PARENT, "a=1,b"), (PARENT, "a=" + "x" * 511), (PARENT, "A=1"))):
        world.wait_status(world.accept("alice-%d" % i, headers=given(parent, state)), "COMPLETED")
        assert_equal(set(sent(world, "alice-%d" % i)), {(PARENT, None)}, "beside the tracestate %.20s" % state)
    for i, parent in enumerate((PARENT[:-3], PARENT.replace(TRACE, "0" * 32), "x", PARENT.upper())):
        request = world.accept("bob-%d" % i, headers=given(parent, STATE))
        world.wait_status(request, "COMPLETED")
        id = request.replace("-", "")
        assert_equal(set(sent(world, "bob-%d" % i)), {("00-%s-%s-00" % (id, id[16:]), None)},
                     "a trace of its own, that is not sampled, instead of %s" % parent)


@test
def deliveries_look_ups_and_notifications_are_of_the_trace(world):
    with receiver(world) as service, receiver(world, "/ends") as ends:
        route(world, service, lookup=True)
        route(world, ends, "CARD_REQUEST_ENDED")
        world.up()
        world.wait_status(world.accept("alice", headers=given(PARENT, STATE)), "COMPLETED")
        event = insert(world, "alice", traceparent=PARENT)[0]
        assert_equal(wait_ends(world, [event])[event], ("COMPLETED", None), "the end")
        other = insert(world, "bob")[0]
        assert_equal(wait_ends(world, [other])[other], ("COMPLETED", None), "the end")
        told = ends.wait_delivery(None)[0]
        assert_equal([told.headers.get(name) for name in ("traceparent", "tracestate")], [PARENT, STATE], "the told end")
        id = other.replace("-", "")
        assert_equal([call.headers.get("traceparent") for call in service.deliveries()],
                     [PARENT, "00-%s-%s-00" % (id, id[16:])], "deliveries")


@test
def a_reissued_request_and_an_operators_question_stay_in_the_trace(world):
    world.up()
    world.sandbox.fault("create", "status", user="alice", status=418, count=1)
    request = world.accept("alice", headers=given(PARENT, STATE))
    world.wait_status(request, "FAILED")
    assert_equal(world.ctl("reconcile", request).returncode, 0, "reconcile")
    assert_equal(world.ctl("reissue", request, "--reason", "test", "--confirm").returncode, 0, "reissue")
    world.settle()
    calls = world.sandbox.calls()
    assert_true({"lookup", "link"} <= {call["call"] for call in calls}, "calls")
    assert_equal({(call["traceparent"], call["tracestate"]) for call in calls}, {(PARENT, STATE)}, "all calls")


@test
def what_follows_from_a_request_without_a_trace_is_of_its_trace(world):
    with receiver(world, "/ends") as ends:
        route(world, ends, "CARD_REQUEST_ENDED")
        world.up()
        world.sandbox.fault("create", "status", user="alice", status=418, count=1)
        request = world.accept("alice")
        world.wait_status(request, "FAILED")
        assert_equal(world.ctl("reissue", request, "--reason", "test", "--confirm").returncode, 0, "reissue")
        wait_until(lambda: len(ends.delivered()) == 3, "the ends: FAILED, REJECTED, and of the new request")
        world.settle()
        id = request.replace("-", "")
        trace = "00-%s-%s-00" % (id, id[16:])
        assert_equal({call["traceparent"] for call in world.sandbox.calls()}, {trace}, "calls for both requests")
        assert_equal({call.headers.get("traceparent") for call in ends.deliveries()}, {trace}, "ends of both")
        assert_equal(json.loads(world.ctl("list", "--trace", id, "--json").stdout.splitlines()[0])["id"][:8],
                     world.sql("SELECT new_id FROM event_reissues")[:8], "found by the trace")


@test
def every_line_about_an_attempt_names_the_trace(world):
    world.up(log__level="debug")
    world.sandbox.fault("create", "status", status=500, count=1)
    request = world.accept("alice", headers=given())
    world.wait_status(request, "COMPLETED")
    assert_equal(world.workers()[0].stop(), 0, "exit status")
    rows = [json.loads(line) for line in world.workers()[0].text().splitlines()]
    lines = [row for row in rows if row.get("event_id") == request]
    assert_true({"wait", "step", "attempt ended"} <= {row["msg"] for row in lines}, "lines of an attempt")
    assert_equal({row.get("trace_id") for row in lines}, {TRACE}, "their traces")


@test
def an_event_shows_its_trace_and_the_page_of_it(world):
    link = "https://tempo.example/explore?id={trace_id}&org=1"
    page = "https://tempo.example/explore?id=%s&org=1" % TRACE
    world.up()
    traced = world.accept("alice", headers=given())
    plain = world.accept("bob")
    for request in (traced, plain):
        world.wait_status(request, "COMPLETED")
    shown = [json.loads(world.ctl("--json", "show", request, trace__link=link).stdout) for request in (traced, plain)]
    assert_equal([(row["trace_id"], row["trace_url"]) for row in shown],
                 [(TRACE, page), (plain.replace("-", ""), None)], "as JSON")
    assert_true(page in world.ctl("explain", traced, trace__link=link).stdout, "explain has the page")
    assert_true("Its trace" not in world.ctl("explain", traced).stdout, "no page without the option")
    for trace, request in ((TRACE, traced), (plain.replace("-", ""), plain)):
        found = world.ctl("--json", "list", "--trace", trace).stdout
        assert_equal([json.loads(line)["id"] for line in found.splitlines()], [request], "list --trace")
    console = Console(world, "--trace.link=" + link).enter()
    assert_true('href="%s"' % page.replace("&", "&amp;") in console.page("/events/" + traced), "the page links to it")
    assert_true(TRACE in console.page("/events/" + traced) and "tempo" not in console.page("/events/" + plain),
                "no link to a trace that nobody records")


@test
def a_link_that_is_none_is_refused(world):
    for link in ("tempo.example/{trace_id}", "javascript:{trace_id}", "https://a/{trace_id}{trace_id}", "https://a/",
                 "https://a/{trace_id}\"x", "https://a/{trace_id} b"):
        done = world.ctl("status", trace__link=link)
        assert_equal(done.returncode, 78, link)
        assert_true("trace.link is not an http:// or https:// address with {trace_id} once" in done.stderr, done.stderr)
