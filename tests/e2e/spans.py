"""With a receiver of traces, a request is one tree there: the client's span, ours of its acceptance, one for each attempt
and each call. And whatever that receiver does, cards are issued as if it were not there."""
import json

import client
from assertions import assert_equal, assert_true, wait_until
from harness import BUILD, run, test
from otlp import collector
from receiver import closes, event_ids, insert, is_silent, receiver, route, says, sends, waits, wait_ends
from traces import given, PARENT, SPAN, STATE, TRACE

UNSAMPLED = PARENT[:-1] + "0"
DROPPED = 'issuing_spans_dropped_total{reason="%s"}'


def shape(spans):
    return sorted((span.kind, span.name) for span in spans)


@test
def a_request_is_one_tree_from_its_client_to_its_peers(world):
    with collector(world) as traces:
        world.up()
        world.sandbox.fault("create", "status", status=500, count=1)
        request = world.accept("alice", headers=given(PARENT, STATE))
        world.wait_status(request, "COMPLETED")
        spans = traces.wait(8, trace=TRACE)
        server, = traces.spans("SERVER")
        first, second = sorted(traces.spans("CONSUMER"), key=lambda span: span.start)
        assert_equal((server.name, server.parent), ("POST /v1/card-requests", SPAN), "the server's span")
        assert_equal((server["http.route"], server["http.response.status_code"], server["issuing.request_id"],
                      server["issuing.replayed"]), ("/v1/card-requests", 202, request, False), "its attributes")
        assert_equal({span.parent for span in (first, second)}, {server.id}, "attempts are below it")
        assert_equal([(span.name, span["issuing.attempt"], span["issuing.outcome"], span["issuing.reason_code"],
                       span["issuing.unknown"], span["messaging.message.id"], span.is_error)
                      for span in (first, second)],
                     [("process CARD_ISSUE", 1, "retry", "issuer_http_500", True, request, True),
                      ("process CARD_ISSUE", 2, "completed", None, False, request, False)], "the attempts")
        calls = [span for span in spans if span.kind == "CLIENT"]
        assert_equal([(span.parent, span.name, span["issuing.outcome"], span.is_error, span["error.type"])
                      for span in calls],
                     [(first.id, "GET /v1/users/{user}/card-eligibility", "executed", False, None),
                      (first.id, "POST /v1/cards", "unknown", True, "500"),
                      (second.id, "GET /v1/users/{user}/card-eligibility", "executed", False, None),
                      (second.id, "POST /v1/cards", "executed", False, None),
                      (second.id, "POST /v1/users/{user}/cards", "executed", False, None)], "the calls")
        assert_equal({span["server.address"] for span in calls}, {"127.0.0.1"}, "their servers")
        assert_equal([(call["traceparent"], call["tracestate"]) for call in world.sandbox.calls(user="alice")],
                     [("00-%s-%s-01" % (TRACE, span.id), STATE) for span in calls], "what the peers see")
        assert_equal({span.resource["service.name"] for span in spans}, {"issuing-api", "issuing-worker"}, "services")


@test
def what_a_client_does_not_sample_is_as_if_nobody_recorded_spans(world):
    with collector(world) as traces:
        world.up(trace__sample="1")
        request = world.accept("alice", headers=given(UNSAMPLED, STATE))
        world.wait_status(request, "COMPLETED")
        assert_equal({(call["traceparent"], call["tracestate"]) for call in world.sandbox.calls(user="alice")},
                     {(UNSAMPLED, STATE)}, "what the peers see")
        traces.wait_idle(world)
        assert_equal(traces.spans(), [], "spans")


@test
def of_requests_without_a_trace_a_share_is_sampled_as_a_whole(world):
    with collector(world) as traces:
        world.up(trace__sample="0.5")
        requests = [world.accept("user-%d" % i) for i in range(40)]
        for request in requests:
            world.wait_status(request, "COMPLETED")
        traces.wait_idle(world)
        roots = traces.spans("SERVER")
        assert_true(0 < len(roots) < 40, "%d of 40 with a share of a half" % len(roots))
        for root in roots:
            id = root["issuing.request_id"].replace("-", "")
            assert_equal((root.parent, root.trace), ("", id), "a root, whose trace the event's id names")
            assert_equal(shape(traces.spans(trace=id)), [
                ("CLIENT", "GET /v1/users/{user}/card-eligibility"), ("CLIENT", "POST /v1/cards"),
                ("CLIENT", "POST /v1/users/{user}/cards"), ("CONSUMER", "process CARD_ISSUE"),
                ("SERVER", "POST /v1/card-requests")], "the whole tree")
        assert_equal({span.trace for span in traces.spans()}, {root.trace for root in roots}, "no other trace")


@test
def repeats_and_refusals_have_a_span_and_only_a_fault_of_ours_is_an_error(world):
    with collector(world) as traces:
        world.settings["limit.count"] = "1"
        world.start_sandbox()
        world.start_api()
        request = world.accept("alice", headers=given())
        assert_equal(world.accept("alice"), request, "the repeat")
        assert_equal([world.post("alice", key, body).status for key, body in (("k2", None), ("k", {"kind": "x"}))],
                     [429, 400], "refusals")
        spans = traces.wait(4)
        assert_equal([(span["http.response.status_code"], span["issuing.replayed"], span["issuing.request_id"],
                       span.is_error) for span in spans],
                     [(202, False, request, False), (202, True, request, False), (429, None, None, False),
                      (400, None, None, False)], "spans")
        world.start_worker()
        world.wait_status(request, "COMPLETED")


@test
def a_call_that_is_refused_before_its_user_is_known_has_a_span_too(world):
    with collector(world) as traces:
        api = world.start_api(api__max_connections_per_address="1", api__trusted_proxies="127.0.0.1",
                              api__client_address_header="X-Client")
        good, large = world.bearer("alice"), b" " * (64 * 1024 + 1)

        def status(parent, *headers, body=b"{}", method="POST", path="/v1/card-requests"):
            pairs = {"traceparent": parent, "Content-Type": "application/json", "Idempotency-Key": "k", **dict(headers)}
            return client.call(api.port, method, path, pairs, body).status
        assert_equal([status(PARENT), status(PARENT, ("Authorization", "Bearer x")),
                      status(PARENT, good, ("Content-Type", "text/plain")), status(PARENT, good, body=large),
                      status(UNSAMPLED),
                      status(UNSAMPLED, body=large), status(PARENT, method="DELETE"), status(PARENT, path="/v1/cards")],
                     [401, 401, 415, 413, 401, 413, 405, 405], "refusals")
        held = [("X-Client", "10.1.1.1"), good, ("Content-Type", "application/json"), ("Content-Length", "9"),
                ("Expect", "100-continue")]
        with client.Wire(api.port) as wire:
            wire.send(client.request_bytes("POST", "/v1/card-requests", held)).until(b"100 Continue\r\n\r\n")
            assert_equal(status(PARENT, ("X-Client", "10.1.1.1")), 429, "above the limit of its address")
        world.start_sandbox()
        world.start_worker()
        traces.wait_idle(world)
        spans = traces.spans()
        assert_equal(sorted(span["http.response.status_code"] for span in spans), [401, 401, 413, 415, 429], "spans")
        assert_equal({(span.kind, span.name, span.trace, span.parent, span["http.route"], span["issuing.request_id"],
                       span.is_error) for span in spans},
                     {("SERVER", "POST /v1/card-requests", TRACE, SPAN, "/v1/card-requests", None, False)}, "each")


@test
def of_refused_calls_without_a_trace_a_share_is_sampled(world):
    with collector(world) as traces:
        api = world.start_api(trace__sample="0.5")
        for i in range(40):
            client.call(api.port, "POST", "/v1/card-requests", {}, b"{}")
        traces.wait_idle(world)
        assert_true(0 < len(traces.spans("SERVER")) < 40, "%d of 40" % len(traces.spans()))


@test
def a_refusal_of_the_issuer_is_no_error_of_a_span(world):
    with collector(world) as traces:
        world.up()
        world.sandbox.fault("create", "status", user="alice", status=422)
        world.sandbox.fault("check", "ineligible", user="bob")
        for user in ("alice", "bob"):
            world.wait_status(world.accept(user), "REJECTED")
        attempts = traces.wait(2, "CONSUMER")
        assert_equal([(span["issuing.outcome"], span.is_error) for span in attempts], [("rejected", False)] * 2,
                     "attempts")
        assert_true(any(span["issuing.outcome"] == "refused" for span in traces.spans("CLIENT")), "refused calls")
        assert_equal([span for span in traces.spans() if span.is_error], [], "errors")


@test
def a_deferral_names_its_cause(world):
    with collector(world) as traces:
        world.up()
        world.sandbox.fault("create", "status", user="alice", status=429, retry_after="1", count=1)
        world.wait_status(world.accept("alice"), "COMPLETED")
        first, second = traces.wait(2, "CONSUMER")
        assert_equal([(span["issuing.attempt"], span["issuing.outcome"], span["issuing.reason_code"], span.is_error)
                      for span in (first, second)],
                     [(1, "deferred", "issuer_http_429", False), (1, "completed", None, False)], "attempts")
        assert_true(second["issuing.waited_ms"] > first["issuing.waited_ms"], "the second one waited longer")
        assert_equal((first.events, second.events), ([], []), "nobody did anything")


@test
def a_worker_that_dies_leaves_no_span_and_its_successor_says_so(world):
    with collector(world) as traces:
        world.up()
        world.sandbox.fault("create", "hang", user="alice", count=1)
        request = world.accept("alice", headers=given())
        wait_until(lambda: world.sandbox.calls("create", user="alice"), "the create")
        world.workers()[0].kill()
        world.start_worker()
        world.wait_status(request, "COMPLETED")
        attempt, = traces.wait(1, "CONSUMER")
        assert_equal((attempt.events, attempt["issuing.attempt"], attempt["issuing.outcome"]),
                     (["worker.lost"], 1, "completed"), "the attempt of the successor")


@test
def deliveries_look_ups_and_told_ends_have_spans(world):
    with collector(world) as traces, receiver(world, "/s3cr3t-path") as service, receiver(world, "/ends") as ends:
        route(world, service, lookup=True)
        route(world, ends, "CARD_REQUEST_ENDED")
        world.up()
        world.wait_status(world.accept("alice", headers=given()), "COMPLETED")
        told = ends.wait_delivery(None)[0]
        event, = event_ids(world, 1)
        service.plan(event, closes())
        insert(world, "bob", ids=[event], traceparent=PARENT)
        assert_equal(wait_ends(world, [event])[event], ("COMPLETED", None), "the end")
        spans = traces.wait(11, trace=TRACE)
        calls = {span.id: span for span in spans if span.kind == "CLIENT"}
        attempts = {span.id: span for span in spans if span.kind == "CONSUMER"}
        seen = calls[told.headers["traceparent"].split("-")[2]]
        assert_equal((seen.name, attempts[seen.parent].name),
                     ("POST CARD_REQUEST_ENDED", "process CARD_REQUEST_ENDED"), "the told end")
        server, = [span for span in spans if span.kind == "SERVER"]
        assert_equal(attempts[seen.parent].parent, server.id, "below the acceptance of its request")
        of_route = [span for span in attempts.values() if span["messaging.message.id"] == event]
        assert_equal({span.parent for span in of_route}, {SPAN}, "below what the service gave")
        assert_equal({call.headers["traceparent"].split("-")[2] for call in service.deliveries() + service.lookups()},
                     {id for id, span in calls.items() if span["issuing.step"] in ("deliver", "ask") and
                      span.name.endswith("PAYMENT_CHARGE")}, "the parents that the receiver saw")
        assert_true("s3cr3t" not in repr(spans), "no path of a receiver")


@test
def an_operators_question_has_spans_of_its_calls(world):
    with collector(world) as traces:
        world.up()
        world.sandbox.fault("create", "status", user="alice", status=418, count=1)
        request = world.accept("alice", headers=given(PARENT, STATE))
        world.wait_status(request, "FAILED")
        assert_equal(world.ctl("reconcile", request).returncode, 0, "reconcile")
        server, = traces.wait(1, "SERVER")
        wait_until(lambda: [span for span in traces.spans("CLIENT", TRACE) if span.parent == server.id],
                   "a call below the acceptance")
        assert_equal({call["traceparent"].split("-")[2] for call in world.sandbox.calls()
                      if call["traceparent"]} - {span.id for span in traces.spans("CLIENT")}, set(), "all are known")


@test
def what_an_operator_has_opened_again_is_an_event_of_the_next_attempt(world):
    with collector(world) as traces, receiver(world) as service:
        route(world, service)
        world.up()
        world.sandbox.fault("create", "status", user="alice", status=418, count=1)
        request = world.accept("alice", headers=given())
        world.wait_status(request, "FAILED")
        event = insert(world, "bob", traceparent=PARENT)[0]
        wait_ends(world, [event])
        for action, acted in (("replay", request), ("resend", event)):
            assert_equal(world.ctl(action, acted, "--reason", "test").returncode, 0, action)
        traces.wait(4, "CONSUMER")
        attempts = sorted(traces.spans("CONSUMER"), key=lambda span: span.start)
        assert_equal({id: [span.events for span in attempts if span["messaging.message.id"] == id]
                      for id in (request, event)},
                     {request: [[], ["operator.reopened"]], event: [[], ["operator.resent"]]}, "events of attempts")


# ---- receivers that do not do their work ----


def issues_all(world, users=6):
    """As if nobody recorded spans."""
    for request in [world.accept("user-%d" % i) for i in range(users)]:
        world.wait_status(request, "COMPLETED")


def wait_dropped(daemon, reason):
    return wait_until(lambda: daemon.metric(DROPPED % reason), "spans dropped: " + reason)


@test
def a_receiver_that_is_away_costs_spans_and_nothing_else(world):
    with collector(world) as traces:
        traces.down()
        world.up()
        issues_all(world)
        wait_until(lambda: "spans cannot be delivered" in world.workers()[0].text(), "a line of the log")
        traces.up()
        wait_until(lambda: "spans are delivered again" in world.workers()[0].text(), "another one")
        traces.wait(6, "CONSUMER")
        assert_equal([daemon.metric_sum("issuing_spans_dropped_total") for daemon in (*world.apis(), *world.workers())],
                     [0, 0], "nothing was dropped meanwhile")


@test
def what_may_be_repeated_is_repeated_and_what_may_not_is_dropped(world):
    with collector(world) as traces:
        traces.always(says(503, headers=[("Retry-After", "1")]))
        world.up()
        issues_all(world)
        wait_until(lambda: len(traces.calls) >= 3, "repeats")
        traces.always(says(429))
        wait_until(lambda: len(traces.calls) >= 5, "more of them")
        traces.clear()
        traces.wait(30)
        traces.always(says(400))
        issues_all(world, 2)
        world.accept("user-0", "other")
        for daemon in (*world.apis(), *world.workers()):
            wait_dropped(daemon, "refused")


@test
def a_receiver_that_hangs_breaks_off_or_talks_without_an_end_stops_nobody(world):
    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 100000000
    garbage = (sends(b"\x00\xff" * 5000), sends(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[{"),
               says(200, b"\xff{]" * 9), closes(), waits(1), sends(huge, executes=True))
    with collector(world) as traces:
        world.up()
        for number, behaviour in enumerate((is_silent(), *garbage)):
            traces.always(behaviour)
            before = len(traces.calls)
            for i in range(3):
                world.wait_status(world.accept("user-%d-%d" % (number, i)), "COMPLETED")
            if number > 0:
                wait_until(lambda before=before: len(traces.calls) > before, "an export for %d" % number)
        for daemon in (*world.apis(), *world.workers()):
            assert_true(daemon.metric("process_resident_memory_bytes") < 80e6, "memory of " + daemon.name)


@test
def spans_that_the_receiver_rejects_are_counted(world):
    with collector(world) as traces:
        traces.always(says(200, json.dumps({"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no"}})))
        world.up()
        issues_all(world, 1)
        assert_true(wait_dropped(world.workers()[0], "rejected") >= 2, "two of each batch")


@test
def a_full_queue_drops_the_newest_spans_and_acceptance_goes_on(world):
    with collector(world) as traces:
        traces.always(is_silent())
        world.start_sandbox()
        world.start_api()
        for i in range(4200):
            world.post("user", "k", {"kind": "x"})
        assert_true(wait_dropped(world.apis()[0], "full") > 0, "dropped")
        world.start_worker()
        issues_all(world, 2)


@test
def a_drain_sends_what_is_there_and_waits_for_no_receiver(world):
    with collector(world) as traces:
        world.up()
        request = world.accept("alice", headers=given())
        world.wait_status(request, "COMPLETED")
        traces.wait_idle(world)
        assert_equal(len(traces.spans()), 5, "all spans of it")
        traces.always(is_silent())
        world.start_api()
        world.start_worker()
        world.wait_status(world.accept("bob", api=world.apis()[-1]), "COMPLETED")
        assert_equal([daemon.stop() for daemon in (world.workers()[-1], world.apis()[-1])], [0, 0], "exit status")
        assert_true("the drain took too long" not in world.workers()[-1].text() + world.apis()[-1].text(), "in time")


@test
def a_receiver_gets_the_headers_that_it_wants(world):
    with collector(world) as traces:
        headers = world.dir / "headers"
        headers.write_text("DD-API-KEY: s3cr3t-key\nX-Scope-OrgID: cards\n")
        headers.chmod(0o600)
        world.up(trace__headers_file=headers)
        world.wait_status(world.accept("alice"), "COMPLETED")
        traces.wait(5)
        assert_equal({(call.headers["dd-api-key"], call.headers["x-scope-orgid"], call.headers["content-type"], call.path)
                      for call in traces.calls}, {("s3cr3t-key", "cards", "application/json", "/v1/traces")}, "headers")


@test
def what_cannot_be_used_stops_the_start_with_its_place(world):
    headers = world.dir / "headers"
    headers.write_text("X-Key: a\nno header\n")
    headers.chmod(0o600)
    file = world.dir / "bad.conf"
    for key, value, why in (("endpoint", "collector:4318", "a URL must begin with http:// or https://"),
                            ("sample", "1.5", "\"1.5\" is no share"), ("sample", "50%", "\"50%\" is no share")):
        file.write_text("[trace]\n%s = %s\n" % (key, value))
        for program in ("api", "worker"):
            done = run([BUILD / ("issuing-" + program), "--config=%s" % file, "--check-config"])
            assert_equal(done.returncode, 78, value)
            assert_true("bad.conf:2" in done.stderr and why in done.stderr, done.stderr)
    for name, value, why in (("headers_file", headers, "line 2 is not \"Name: value\""),
                             ("ca_file", headers, "trace.ca_file")):
        done = run([BUILD / "issuing-api", *world.flags("issuing_api", {}), "--trace.endpoint=https://collector",
                    "--trace.%s=%s" % (name, value), "--check-config"])
        assert_equal(done.returncode, 78, name)
        assert_true(why in done.stderr, done.stderr)
