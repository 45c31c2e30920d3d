"""Bodies of POST /v1/traces, written by hand: one that is right in all, and what breaks it, each with a part of the
complaint that must come. A request that a client traced: its answer, an attempt whose create had no answer, one that
completes it."""
import copy

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENTS = "00-%s-b7ad6b7169203331-01" % TRACE
USER = "user-of-the-canary"
BEGIN = 1796000000_000000000


def attributes(**values):
    return [{"key": name.replace("__", "."),
             "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
            for name, value in values.items()]


def span(number, parent, kind, name, from_ms, to_ms, given, error=None):
    found = {"traceId": TRACE, "spanId": "%016x" % number, "parentSpanId": parent, "flags": 257, "name": name,
             "kind": kind, "startTimeUnixNano": str(BEGIN + from_ms * 1000000),
             "endTimeUnixNano": str(BEGIN + to_ms * 1000000),
             "attributes": given + (attributes(error__type=error) if error else [])}
    return {**found, "status": {"code": 2}} if error else found


def call(number, parent, name, from_ms, to_ms, status=None, error=None):
    method, template = name.split(" ")
    return span(number, "%016x" % parent, 3, name, from_ms, to_ms, attributes(
        http__request__method=method, url__template=template, server__address="127.0.0.1", server__port=8070,
        **({"http__response__status_code": status} if status else {})), error)


def attempt(number, from_ms, to_ms, error=None):
    return span(number, "%016x" % 1, 5, "process CARD_ISSUE", from_ms, to_ms, attributes(
        messaging__system="issuing", messaging__operation__name="process", messaging__operation__type="process",
        messaging__destination__name="CARD_ISSUE"), error)


def body(service, spans):
    return {"resourceSpans": [{"resource": {"attributes": attributes(service__name=service)},
                               "scopeSpans": [{"scope": {"name": "issuing", "version": "1"}, "spans": spans}]}]}


def good():
    """The bodies of the api and of a worker."""
    accepted = span(1, "b7ad6b7169203331", 2, "POST /v1/card-requests", 0, 12, attributes(
        http__request__method="POST", http__route="/v1/card-requests", url__scheme="http",
        http__response__status_code=202))
    second = attempt(4, 3000, 3100)
    second["events"] = [{"timeUnixNano": str(BEGIN + 2990 * 1000000), "name": "replay",
                         "attributes": attributes(issuing__reason="the issuer is back")}]
    return [body("issuing-api", [accepted]), body("issuing-worker", [
        call(3, 2, "POST /v1/cards", 30, 1030, error="timeout"), attempt(2, 20, 1040, error="UNKNOWN"),
        call(5, 4, "POST /v1/cards", 3010, 3050, 201), second])]


def broken():
    """what, bodies, a part of the complaint."""
    def change(what, complaint, act, where=0):
        bodies = copy.deepcopy(good())
        spans = [found for made in bodies for found in made["resourceSpans"][0]["scopeSpans"][0]["spans"]]
        act(spans[where], bodies)
        return what, bodies, complaint

    def give(name, value, form="stringValue"):
        return lambda found, _: found.__setitem__("attributes", [
            row for row in found["attributes"] if row["key"] != name] + [{"key": name, "value": {form: value}}])

    def take(name):
        return lambda found, _: found.__setitem__("attributes", [
            row for row in found["attributes"] if row["key"] != name])

    server, lost, first, second_call = 0, 1, 2, 3
    yield change("an unknown member of a span", "colour is", lambda found, _: found.update(colour="red"))
    yield change("an unknown member of a resource", "x is", lambda _, bodies: bodies[0]["resourceSpans"][0].update(x=1))
    yield change("an unknown member of the body", "extra is", lambda _, bodies: bodies[0].update(extra=[{}]))
    yield change("a member in the form of proto files", "trace_state is", lambda found, _: found.update(trace_state="a=1"))
    yield change("an unknown member of a value", "uintValue is", give("x", "1", "uintValue"))
    yield change("a time that is a number", "startTimeUnixNano is", lambda found, _: found.update(startTimeUnixNano=BEGIN))
    yield change("a kind that is a word", "kind is", lambda found, _: found.update(kind="SPAN_KIND_SERVER"))
    yield change("a number of 64 bits that is not a text", "intValue is", give("x", 5, "intValue"))
    yield change("a value of another type", "stringValue is", give("x", 5))
    yield change("spans that are not an array", "array expected",
                 lambda _, bodies: bodies[0]["resourceSpans"][0]["scopeSpans"][0].update(spans={"a": {}}))
    yield change("an id that is not hex", "not hex", lambda found, _: found.update(spanId="x" * 16))
    yield change("an id in base64", "is not hex", lambda found, _: found.update(traceId="CvdlGRbNQ92ESOshHIAxnA=="))
    yield change("a short trace id", "trace id is not valid", lambda found, _: found.update(traceId=TRACE[:30]))
    yield change("a span id of zeros", "span id is not valid", lambda found, _: found.update(spanId="0" * 16))
    yield change("a short parent id", "parent id is not valid", lambda found, _: found.update(parentSpanId="b7ad"))
    yield change("an id twice", "id that another one has", lambda found, _: found.update(spanId="%016x" % 2), second_call)
    yield change("a parent that is nowhere", "neither here nor the client's",
                 lambda found, _: found.update(parentSpanId="1" * 16), lost)
    yield change("a parent of another trace", "neither here nor the client's",
                 lambda found, _: found.update(traceId=TRACE[::-1]), lost)
    yield change("another client's parent", "neither here nor the client's",
                 lambda found, _: found.update(parentSpanId="b7ad6b7169203332"))
    yield change("a trace that is not sampled", "not sampled", lambda found, _: found.update(flags=256))
    yield change("no start", "no start", lambda found, _: found.pop("startTimeUnixNano"))
    yield change("an end before the start", "ends before it",
                 lambda found, _: found.update(endTimeUnixNano=str(BEGIN - 1)))
    yield change("a call that begins before its attempt", "starts before its parent",
                 lambda found, _: found.update(startTimeUnixNano=str(BEGIN + 19000000)), lost)
    yield change("a call that ends after its attempt", "ends after its parent",
                 lambda found, _: found.update(endTimeUnixNano=str(BEGIN + 1041000000)), lost)
    yield change("an attempt before its request", "starts before its parent",
                 lambda found, _: found.update(startTimeUnixNano=str(BEGIN - 1)), first)
    yield change("an event after the end", "later than the end",
                 lambda found, _: found["events"][0].update(timeUnixNano=str(BEGIN + 3101000000)), 4)
    yield change("an event without a name", "no name", lambda found, _: found["events"][0].pop("name"), 4)
    yield change("no service", "no service.name", lambda _, bodies: bodies[1]["resourceSpans"][0].pop("resource"))
    yield change("a kind of its own", "its kind is 1", lambda found, _: found.update(kind=1))
    yield change("an attribute twice", "there twice", lambda found, _: found["attributes"].append(found["attributes"][0]))
    for where, names in ((server, ("http.request.method", "url.scheme", "http.response.status_code")),
                         (lost, ("http.request.method", "server.address", "server.port")),
                         (first, ("messaging.system", "messaging.operation.name", "messaging.operation.type",
                                  "messaging.destination.name"))):
        for name in names:
            yield change("no " + name, "no " + name, take(name), where)
    yield change("no template", "it is named 'POST /v1/cards', not 'POST'", take("url.template"), lost)
    yield change("a status that is a text", "no http.response.status_code", give("http.response.status_code", "202"))
    yield change("a name with an id", "it is named", lambda found, _: found.update(name="POST /v1/cards/ca_81"), lost)
    yield change("an error without its type", "without error.type", take("error.type"), lost)
    yield change("a type without an error", "or the reverse", give("error.type", "timeout"), second_call)
    yield change("a message without an error", "a message without", lambda found, _: found.update(
        status={"message": "fine"}), second_call)
    yield change("a call without an end", "neither a status nor an error", take("http.response.status_code"), second_call)
    yield change("a 500 that is not an error", "is not an error", give("http.response.status_code", "500", "intValue"))
    yield change("a card number", "has a secret", give("issuing.note", "of 4000001234567899"))
    yield change("a card number in an event", "has a secret", lambda found, _: found["events"][0].update(
        attributes=attributes(x="4000001234567899")), 4)
    yield change("a token", "has a secret", give("issuing.note", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.x"))
    yield change("a credential", "has a secret", lambda found, _: found.update(
        status={"code": 2, "message": "Bearer abc"}), lost)
    yield change("a secret of webhooks", "has a secret", give("issuing.note", "whsec_abc"))
    yield change("a header", "it has http.request.header", give("http.request.header.authorization", "x"))
    yield change("a query", "url.template has a query", give("url.template", "/v1/cards?reference={id}"), lost)
    yield change("a query of its own", "it has url.query", give("url.query", "a=1"))
    yield change("a user", "forbidden word", give("issuing.note", "/v1/users/%s" % USER))
