"""The sandbox as a receiver of OpenTelemetry's traces: it answers as the specification of OTLP/HTTP says, and draws a
trace for a terminal and for a browser."""
import json
import pathlib
import sys

import client
from assertions import assert_equal, assert_true
from harness import test
from profiles import generic_create

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "issuers"))

import trace_cases  # noqa: E402

JSON = {"Content-Type": "application/json"}


def post(world, body, headers=JSON):
    return client.call(world.sandbox.control, "POST", "/v1/traces", headers, body)


def drawn(world, accept=None, path="/traces/" + trace_cases.TRACE):
    answer = client.call(world.sandbox.control, "GET", path, {"Accept": accept} if accept else {})
    assert_equal(answer.status, 200, path)
    return answer.header("Content-Type"), answer.body.decode()


@test
def the_sandbox_takes_traces_as_the_specification_says(world):
    world.start_sandbox()
    whole = trace_cases.good()[1]
    assert_equal([(answer.status, answer.header("Content-Type"), answer.json()) for answer in (
        post(world, whole), post(world, {}), post(world, {"resourceSpans": [], "unknown": {"a": [None]}}))],
                 [(200, "application/json", {})] * 3, "nothing is rejected")
    spans = whole["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[0]["spanId"] = spans[1]["spanId"] = "x"
    rejected = post(world, whole)
    assert_equal((rejected.status, rejected.json()["partialSuccess"]["rejectedSpans"]), (200, "2"), "two are rejected")
    assert_true(rejected.json()["partialSuccess"]["errorMessage"], "and told why")
    for body, headers, status in (("{", JSON, 400), ({"resourceSpans": 5}, JSON, 400), ("", JSON, 400),
                                  ("x", {"Content-Type": "application/x-protobuf"}, 415),
                                  ("{}", {**JSON, "Content-Encoding": "gzip"}, 415)):
        answer = post(world, body, headers)
        assert_equal((answer.status, answer.json()["code"]), (status, 3), "a Status for %r" % (body,))
        assert_true(answer.json()["message"], "with a message for %r" % (body,))
    assert_equal(client.call(world.sandbox.control, "GET", "/v1/traces", {}).status, 405, "it cannot be read")


@test
def a_trace_is_drawn_as_text_and_as_a_page(world):
    world.start_sandbox()
    for body in reversed(trace_cases.good()):
        assert_equal(post(world, body).status, 200, "the export")
    kind, text = drawn(world)
    assert_equal((kind, len(text.splitlines())), ("text/plain; charset=utf-8", 3 + 5), text)
    assert_true("\n  issuing-worker: process CARD_ISSUE " in text and "\n    POST /v1/cards " in text, text)
    assert_true("waited 1.96 s, event: replay after 2.99 s" in text and "error, UNKNOWN, waited 8.0 ms" in text, text)
    assert_equal(drawn(world, "*/*")[1], text, "what curl gets")
    kind, page = drawn(world, "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
    assert_equal(kind, "text/html; charset=utf-8", "what a browser gets")
    assert_true(page.startswith("<!DOCTYPE html>") and page.count("<tr>") == 6 and "://" not in page, page)
    assert_true(trace_cases.TRACE in drawn(world, path="/traces")[1], "the list as text")
    assert_true("/traces/" + trace_cases.TRACE in drawn(world, "text/html", "/traces")[1], "the list as a page")
    world.sandbox.control_call("POST", "/reset", "")
    assert_equal(client.call(world.sandbox.control, "GET", "/traces/" + trace_cases.TRACE, {}).status, 404, "after a reset")


@test
def a_card_number_in_a_span_is_a_leak_in_the_ledger(world):
    sandbox = world.start_sandbox()
    made = client.call(sandbox.issuer, "POST", "/v1/cards", {**JSON, "Idempotency-Key": "k"},
                       generic_create("r"))
    assert_equal((made.status, sandbox.ledger()["leaks"]), (201, 0), "a card, and no leak")
    body = json.dumps(trace_cases.good()[0]).replace("/v1/card-requests", "/v1/cards/%s" % sandbox.numbers()[0])
    assert_equal((post(world, body).status, sandbox.ledger()["leaks"] > 0), (200, True), "the leak is noted")
    sandbox.control_call("POST", "/reset", "")
