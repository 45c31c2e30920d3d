"""With a receiver of traces, a request is one tree there: the client's span, ours of its acceptance, one for each
attempt and each call. And whatever that receiver does, cards are issued as if it were not there."""
import json

import client
from assertions import assert_equal, assert_true, wait_until
from daemons import errors, hang_up, write_secret
from harness import BUILD, run, slow, test
from otlp import collector
from reconciling import failed, made
from receiver import closes, event_ids, insert, is_silent, receiver, route, says, sends, waits, wait_ends
from tls import make_authority, make_certificate
from traces import given, PARENT, SPAN, STATE, TRACE

UNSAMPLED = PARENT[:-1] + "0"
WHOLE = [("CLIENT", "GET /v1/users/{user}/card-eligibility"), ("CLIENT", "POST /v1/cards"),
         ("CLIENT", "POST /v1/users/{user}/cards"), ("CONSUMER", "process CARD_ISSUE"),
         ("SERVER", "POST /v1/card-requests")]
PATIENT = {"issuer__timeout": "10s", "issuer__settle_time": "20s", "worker__lease": "30s"}
DROPPED = 'issuing_spans_dropped_total{reason="%s"}'


def assert_whole(traces, what):
    """Each span is below another one, or the client's, or nothing."""
    ids = {(span.trace, span.id) for span in traces.spans()} | {(TRACE, SPAN)}
    assert_equal([span for span in traces.spans() if span.parent and (span.trace, span.parent) not in ids], [], what)


def lose_worker(world):
    """In the middle of a call; another one follows, and need not wait for the lease."""
    world.workers()[0].kill()
    world.sql("UPDATE outbox_events SET lease_until = now() WHERE lease_until IS NOT NULL")
    world.start_worker()


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
            assert_equal(shape(traces.spans(trace=id)), WHOLE, "the whole tree")
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


@slow
@test(**PATIENT)
def a_worker_that_dies_leaves_no_span_and_its_successor_says_so(world):
    with collector(world) as traces:
        world.up()
        world.sandbox.fault("create", "hang", user="alice", count=1)
        request = world.accept("alice", headers=given())
        wait_until(lambda: world.sandbox.calls("create", user="alice"), "the create")
        world.wait_status(world.accept("bob"), "COMPLETED")
        traces.wait(4, trace=traces.wait(2, "SERVER")[1].trace)  # what was there of alice's has been sent
        lose_worker(world)
        world.wait_status(request, "COMPLETED")
        attempt, = traces.wait(1, "CONSUMER", TRACE)
        assert_equal((attempt.events, attempt["issuing.attempt"], attempt["issuing.outcome"]),
                     (["worker.lost"], 1, "completed"), "the attempt of the successor")
        traces.wait_idle(world)
        assert_whole(traces, "of the attempt that was lost nothing is left")


@slow
@test(**PATIENT)
def a_request_that_was_deferred_lost_and_retried_is_one_tree_with_its_end(world):
    with collector(world) as traces, receiver(world, "/ends") as ends:
        route(world, ends, "CARD_REQUEST_ENDED")
        world.up()
        world.sandbox.fault("create", "status", user="alice", status=429, retry_after="1", count=1)
        world.sandbox.fault("create", "hang", user="alice", count=1)
        world.sandbox.fault("create", "status", user="alice", status=500, count=1)
        request = world.accept("alice", headers=given(PARENT, STATE))
        wait_until(lambda: len(world.sandbox.calls("create", user="alice")) == 2, "the create that hangs")
        traces.wait(3, trace=TRACE)
        lose_worker(world)
        world.wait_status(request, "COMPLETED")
        told = ends.wait_delivery(None)[0]
        traces.wait_idle(world)
        assert_whole(traces, "the tree")
        assert_equal([(span.name, span["issuing.attempt"], span["issuing.outcome"], span["issuing.unknown"],
                       span.events) for span in traces.wait(4, "CONSUMER")],
                     [("process CARD_ISSUE", 1, "deferred", False, []),
                      ("process CARD_ISSUE", 1, "retry", True, ["worker.lost"]),
                      ("process CARD_ISSUE", 2, "completed", False, []),
                      ("process CARD_REQUEST_ENDED", 1, "completed", False, [])], "attempts")
        assert_equal({(span.trace, span.parent) for span in traces.spans("SERVER")}, {(TRACE, SPAN)}, "its root")
        assert_true(told.headers["traceparent"].split("-")[2] in [span.id for span in traces.spans("CLIENT")],
                    "the parent that the receiver of its end saw")


@test
def deliveries_look_ups_and_notifications_have_spans(world):
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
def what_an_operator_did_is_an_event_of_the_next_attempt(world):
    with collector(world) as traces, receiver(world) as service, receiver(world, "/ends") as ends:
        route(world, service)
        route(world, ends, "CARD_REQUEST_ENDED")
        world.up()
        ids = {}
        for verb in ("replay", "reissue", "resolve"):
            world.sandbox.fault("create", "status", user="to-%s-it" % verb, status=418, count=1)
            ids[verb] = world.accept("to-%s-it" % verb)
            world.wait_status(ids[verb], "FAILED")
        ids["resend"], = insert(world, "bob")
        ids["reconcile"] = failed(world, "carol")
        made(world, ids["reconcile"], "carol")
        wait_ends(world, [ids["resend"]])
        for verb, *more in (("replay",), ("resend",), ("reconcile",), ("reissue", "--confirm"),
                            ("resolve", "--confirm-no-card")):
            done = world.ctl(verb, ids[verb], "--reason", "test", *more)
            assert_equal(done.returncode, 0, done.stderr)
        new, = world.sql("SELECT new_id FROM event_reissues").split()
        for event in (ids["replay"], ids["resend"], ids["reconcile"], new):
            world.wait_status(event, "COMPLETED")
        wait_until(lambda: len(ends.delivered()) == 8, "the ends: two of each request, one of two")
        world.settle()
        traces.wait_idle(world)
        found = {}
        for span in sorted(traces.spans("CONSUMER"), key=lambda span: span.start):
            found.setdefault(span["messaging.message.id"], []).append(span.events)
        assert_equal({verb: found[event] for verb, event in ids.items()},
                     {"replay": [[], ["operator.replayed"]], "resend": [[], ["operator.resent"]],
                      "reconcile": [["operator.reconciled"]], "reissue": [[]], "resolve": [[]]}, "events of attempts")
        assert_equal(found[new], [["operator.reissued"]], "the new request")
        told = [(call.event, json.loads(call.body)["data"]) for call in ends.deliveries()]
        assert_equal({(end["status"], (end["reason"] or {}).get("code"), *events) for event, end in told
                      for events in found[event]},
                     {("FAILED", "issuer_http_418"), ("COMPLETED", None), ("REJECTED", "reissued"),
                      ("REJECTED", "resolved", "operator.resolved")}, "ends that were told")


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
        before = len(traces.calls)
        issues_all(world, 2)
        world.accept("user-0", "other")
        for daemon in (*world.apis(), *world.workers()):
            wait_dropped(daemon, "refused")
        refused = [call.body for call in traces.calls[before:]]
        assert_equal(len(set(refused)), len(refused), "each was sent once")


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
        assert_equal([call for call in traces.calls if "traceparent" in call.headers], [], "exports that are traced")


@test
def new_headers_are_sent_after_a_reload_and_a_bad_file_leaves_the_old_ones(world):
    with collector(world) as traces:
        headers = write_secret(world.dir / "headers", "X-Key: first-key\n")
        world.up(trace__headers_file=headers)
        bad = "trace.headers_file: %s: line 2 is not \"Name: value\"" % headers
        for number, (text, sent, why) in enumerate(((None, "first-key", []), ("X-Key: second-key\n", "second-key", []),
                                                    ("X-Key: a\nno header\n", "second-key", [bad]))):
            if text:
                write_secret(headers, text)
                for daemon in (*world.apis(), *world.workers()):
                    assert_equal(errors(hang_up(daemon)), why, "what %s says" % daemon.name)
            before = len(traces.calls)
            world.wait_status(world.accept("alice-%d" % number), "COMPLETED")
            traces.wait(number + 1, "SERVER")
            wait_until(lambda before=before: len(traces.calls) >= before + 2, "both have sent")
            assert_equal({call.headers["x-key"] for call in traces.calls[before:]}, {sent}, "header")


@slow
@test
def over_https_spans_go_only_to_who_proves_to_be_their_receiver(world):
    good, other = make_authority(world), make_authority(world, "other")
    trusted = world.dir / "trusted.pem"
    trusted.write_bytes(other.read_bytes())
    with collector(world, make_certificate(world, good)) as traces:
        world.start_sandbox()
        api = world.start_api(trace__ca_file=trusted)
        world.start_worker(trace__ca_file=good)
        world.wait_status(world.accept("alice"), "COMPLETED")
        traces.wait(4)
        assert_true(wait_dropped(api, "unreachable") > 0, "dropped and counted")
        assert_true("spans cannot be delivered" in api.text(), "a line of the log")
        assert_equal(traces.spans("SERVER"), [], "spans of a program that does not know the authority")
        trusted.write_bytes(good.read_bytes())
        assert_equal(errors(hang_up(api)), [], "the reload")
        world.wait_status(world.accept("bob"), "COMPLETED")
        traces.wait(1, "SERVER")


@test
def settings_of_spans_that_cannot_be_used_cost_the_spans_alone(world):
    """Story: the file with the key of a tracing backend was root's, and neither api nor worker started."""
    missing = world.dir / "missing"
    world.up(trace__endpoint="http://127.0.0.1:9", trace__headers_file=missing)
    world.issue("alice")
    for daemon in (*world.apis(), *world.workers()):
        assert_equal(errors(map(json.loads, daemon.text().splitlines())),
                     ["trace.headers_file: %s: No such file or directory" % missing], "what %s says" % daemon.name)


@test
def what_cannot_be_used_is_named_by_the_check_with_its_place(world):
    headers = world.dir / "headers"
    headers.write_text("X-Key: a\nno header\n")
    headers.chmod(0o600)
    file = world.dir / "bad.conf"
    for key, value, why in (("endpoint", "collector:4318", "a URL must begin with http:// or https://"),
                            ("sample", "1.5", "\"1.5\" is not a share"), ("sample", "50%", "\"50%\" is not a share")):
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
