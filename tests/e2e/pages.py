"""What a developer of a client finds in the API. A query parameter that does not exist is refused and named, since a
list without the requested filter would be a wrong answer. The description is not sent again to a client that has it.
One page leads to every problem."""
import re

import client
from harness import assert_equal, assert_true, test

NO_SUCH = "There is no such parameter here: there are limit and cursor."
LIMIT = "limit is a number from 1 to 100."


@test
def an_unknown_query_parameter_of_a_list_is_refused_and_named(world):
    world.up(workers=0)
    cursor = world.accept("alice")

    def faults_of(path, query):
        answer = world.get("alice", "%s?%s" % (path, query))
        assert_equal((answer.status, answer.json()["type"]), (400, "/problems/invalid-parameter"), query)
        errors = answer.json()["errors"]
        assert_equal(answer.json()["detail"], errors[0]["detail"], "the first is the detail")
        assert_true(all(sorted(error) == ["detail", "parameter"] for error in errors), "members: %r" % errors)
        return [(error["parameter"], error["detail"]) for error in errors]
    for path in ("/v1/card-requests", "/v1/cards"):
        for good in ("", "limit=1", "cursor=" + cursor, "&", "limit=1&&cursor=%s&" % cursor):
            assert_equal(world.get("alice", "%s?%s" % (path, good)).status, 200, good)
        assert_equal(faults_of(path, "status=FAILED"), [("status", NO_SUCH)])
        assert_equal(faults_of(path, "limit=5&Limit=5"), [("Limit", NO_SUCH)], "names are exact")
        assert_equal(faults_of(path, "status=FAILED&limit=0&x"),
                     [("status", NO_SUCH), ("limit", LIMIT), ("x", NO_SUCH)],
                     "every one")
        assert_equal(faults_of(path, "limit=1&limit=2"), [("limit", LIMIT)], "twice")
        assert_equal(faults_of(path, "=1"), [("", NO_SUCH)], "without a name")
        assert_equal(faults_of(path, "a%22%3C%00b=1"), [("a%22%3C%00b", NO_SUCH)], "as it stands in the target")
        assert_equal(faults_of(path, "n" * 100), [("n" * 64, NO_SUCH)], "a long name is cut")
        assert_equal(len(faults_of(path, "&".join("p%d=1" % i for i in range(500)))), 8, "at most 8")
    assert_equal(world.get("alice", "/v1/card-requests/%s?status=FAILED" % cursor).status, 200,
                 "what is not a list takes no parameter, and none can change its answer")


def describe(world, *headers, method="GET"):
    return client.call(world.apis()[0].port, method, "/openapi.json", headers)


@test
def the_description_is_sent_once_to_a_client_that_keeps_it(world):
    world.up(workers=0)
    first = describe(world)
    tag = first.header("ETag")
    assert_equal((first.status, first.header("Cache-Control")), (200, "public, max-age=300"), "the first")
    assert_true(re.fullmatch('"[0-9a-f]{24}"', tag), "a strong tag: %r" % tag)
    for match in (tag, "W/" + tag, '"other", ' + tag, "*"):
        for method in ("GET", "HEAD"):
            again = describe(world, ("If-None-Match", match), method=method)
            assert_equal((again.status, again.body, again.header("ETag"), again.header("Cache-Control"),
                          again.header("Content-Type")), (304, b"", tag, "public, max-age=300", None), match)
    for match in ('"other"', tag[1:-1], tag[:-1], '"x" ' + tag, ""):
        again = describe(world, ("If-None-Match", match))
        assert_equal((again.status, again.body), (200, first.body), match)
    with client.Wire(world.apis()[0].port) as wire:  # 304 has no body, so the next answer follows at once
        request = client.request_bytes("GET", "/openapi.json", [("If-None-Match", tag)])
        wire.send(request + request)
        assert_equal([wire.answer().status, wire.answer().status], [304, 304], "on one connection")


@test
def every_problem_is_found_from_one_page(world):
    world.up(workers=0)
    port = world.apis()[0].port
    index = client.call(port, "GET", "/problems")
    assert_equal((index.status, index.header("Content-Type"), index.header("Cache-Control")),
                 (200, "text/html; charset=utf-8", "public, max-age=300"), "the index")
    links = re.findall('href="(/problems/[a-z-]+)"', index.body.decode())
    described = describe(world).json()["components"]["schemas"]["Problem"]["properties"]["type"]["examples"]
    assert_equal(sorted(links), sorted(described), "each problem once, as the description has them")
    for link in links:
        page = client.call(port, "GET", link)
        assert_true(page.status == 200 and b'<a href="/problems">' in page.body, link)
    assert_equal(client.call(port, "POST", "/problems").header("Allow"), "GET, HEAD", "other methods")
    assert_equal(client.call(port, "GET", "/problems/").status, 404, "no slug")
    refused = client.call(port, "GET", "/v1/cards")
    assert_true(refused.json()["type"] in links, "the type of an error is one of them")


def form(value):
    """What a value is made of: members and types. null and numbers with another value are the same form."""
    if isinstance(value, dict):
        return {name: form(member) for name, member in value.items()}
    return [form(value[0])] if isinstance(value, list) else type(value).__name__


def form_of_webhook(world, event_type):
    """That of its example in the description."""
    content = describe(world).json()["webhooks"][event_type]["post"]["requestBody"]["content"]["application/json"]
    return form(content["examples"]["example"]["value"])


@test(**{"limit.count": "5"})
def the_examples_of_the_description_have_the_form_of_the_answers(world):
    """Story: who writes a client by the description reads its examples first, and no program had ever checked them."""
    world.up()
    paths = describe(world).json()["paths"]
    new, wait = {"kind": "new"}, [("Prefer", "wait=20")]
    pending = world.post("alice", "k0", new)
    card = world.issue("alice", "k1")["card"]["id"]
    world.issue("alice", "k2")
    world.issue("bob")
    world.sandbox.fault("check", "user_not_found", user="nobody")
    rejected = world.post("nobody", "k", new, wait)
    answers = [
        ("/v1/card-requests", "post", "202", "recorded", pending),
        ("/v1/card-requests", "post", "201", "completed", world.post("alice", "k3", new, wait)),
        ("/v1/card-requests", "post", "202", "rejected", rejected),
        ("/v1/card-requests", "get", "200", "page", world.get("bob", "/v1/card-requests")),
        ("/v1/card-requests/{id}", "get", "200", "rejected",
         world.get("nobody", "/v1/card-requests/" + rejected.json()["id"])),
        ("/v1/cards", "get", "200", "page", world.get("alice", "/v1/cards?limit=1")),
        ("/v1/cards/{id}", "get", "200", "card", world.get("alice", "/v1/cards/" + card)),
        ("/v1/cards/{id}/number", "get", "200", "number", world.get("alice", "/v1/cards/%s/number" % card))]
    for path, method, status, name, answer in answers:
        example, = [content["examples"][name]["value"]
                    for content in paths[path][method]["responses"][status]["content"].values()]
        assert_equal((str(answer.status), form(answer.json())), (status, form(example)), "%s %s" % (path, name))
        if isinstance(example.get("reason"), dict):
            assert_equal(answer.json()["reason"], example["reason"], "the reason")
