#!/usr/bin/python3
"""exported.py FOLDER [--clients FILE] [--forbidden FILE]: are the bodies that a run exported, *.json, traces as
OpenTelemetry and the contract want them? FILE has one word a line: of --clients the traceparent of each request that
had one, of --forbidden what no body may contain (users, keys, tokens, card numbers). Prints each complaint; exit status
1 with any, and where there is no span.

OpenTelemetry's own code reads the bodies (traces.js). Then, of all spans together: ids are valid and unique; the parent
of each is here or is the client's; a call lies within its attempt, an attempt begins after its request; names and
attributes are those of the semantic conventions for HTTP and messaging. url.full and url.path, which
they require, are not required here: they have ids of users, and the contract wants templates.
"""
import json
import pathlib
import re
import sys

SERVER, CLIENT, CONSUMER = 2, 3, 5
ERROR = 2
TEXT, NUMBER = "stringValue", "intValue"
REQUIRED = {
    SERVER: {"http.request.method": TEXT, "url.scheme": TEXT, "http.response.status_code": NUMBER},
    CLIENT: {"http.request.method": TEXT, "server.address": TEXT, "server.port": NUMBER},
    CONSUMER: {"messaging.system": TEXT, "messaging.operation.name": TEXT, "messaging.operation.type": TEXT,
               "messaging.destination.name": TEXT},
}
NAMED_BY = {SERVER: ("http.request.method", "http.route"), CLIENT: ("http.request.method", "url.template"),
            CONSUMER: ("messaging.operation.name", "messaging.destination.name")}
TRACE_ID, SPAN_ID = re.compile("(?!0+$)[0-9a-f]{32}"), re.compile("(?!0+$)[0-9a-f]{16}")
# The sandbox's numbers are of the BIN 400000. A JSON web token and a webhook's secret begin so.
SECRETS = re.compile(r"(?<![0-9a-f])400000[0-9]{10}(?![0-9a-f])|\beyJ[\w-]{10,}\.|whsec_|\b(Bearer|Basic) ")
DELIVERY = re.compile("(POST|PUT|GET) [A-Z][A-Z0-9_]*")
QUERY = re.compile(r"\?")


def once(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a member twice")
    return found


def read(node, files):
    """complaints, spans; node as in run.py: runs traces.js."""
    complaints, spans = [], []
    for path in files:
        try:
            json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once)
        except ValueError as error:
            complaints.append("%s: %s" % (path.name, error))
    done = node.run(pathlib.Path(__file__).resolve().parent / "traces.js", *map(str, files))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or len(rows) != len(files):
        complaints.append("traces.js: status %d, %d of %d bodies: %s" % (done.returncode, len(rows), len(files),
                                                                         done.stderr))
    for row in rows:
        name = pathlib.Path(row["file"]).name
        if row["wrong"]:
            complaints.append("%s: %s" % (name, row["wrong"]))
        for resource in row.get("request", {}).get("resourceSpans", []):
            service = attributes_of(resource.get("resource", {})).get("service.name", (None, ""))[1]
            spans.extend({**span, "file": name, "service": service} for scope in resource.get("scopeSpans", [])
                         for span in scope.get("spans", []))
    return complaints, spans


def attributes_of(holder):
    """name: (type, value)."""
    return {row.get("key", ""): next(iter(row.get("value", {}).items()), (None, None))
            for row in holder.get("attributes", [])}


def texts_of(value):
    if isinstance(value, dict):
        for name, member in value.items():
            if not name.endswith(("UnixNano", "traceId", "spanId", "SpanId", "file")):
                yield from texts_of(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts_of(member)
    elif isinstance(value, str):
        yield value


def of_ids(span, here, clients):
    parent = span.get("parentSpanId", "")
    if not TRACE_ID.fullmatch(span.get("traceId", "")):
        yield "its trace id is not valid"
    if not SPAN_ID.fullmatch(span.get("spanId", "")):
        yield "its span id is not valid"
    if parent and not SPAN_ID.fullmatch(parent):
        yield "its parent id is not valid"
    elif parent and (span.get("traceId"), parent) not in here | clients:
        yield "its parent %s is neither here nor the client's" % parent
    flags = span.get("flags", 1)
    if not flags & 1 or flags >> 10:
        yield "its flags are %d: not sampled, or with bits that have no meaning" % flags


def of_times(span, parent):
    start, end = (int(span.get(name, "0")) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    if start == 0 or end < start:
        yield "it has no start, or ends before it"
    for event in span.get("events", []):
        if not event.get("name") or not 0 < int(event.get("timeUnixNano", "0")) <= end:
            yield "an event has no name or no time, or is later than the end"
    if not parent:
        return
    above = [int(parent.get(name, "0")) for name in ("startTimeUnixNano", "endTimeUnixNano")]
    if start < above[0]:
        yield "it starts before its parent"
    # A look-up that an operator asked for comes long after the acceptance that it is below.
    if span.get("kind") == CLIENT and parent.get("kind") != SERVER and end > above[1]:
        yield "it ends after its parent"


def of_meaning(span):
    kind, attributes = span.get("kind"), attributes_of(span)
    if len(attributes) != len(span.get("attributes", [])) or "" in attributes:
        yield "an attribute is there twice, or has no name"
    if not span["service"]:
        yield "its resource has no service.name"
    if kind not in REQUIRED:
        yield "its kind is %s" % kind
        return
    for name, form in REQUIRED[kind].items():
        if attributes.get(name, (None,))[0] != form:
            yield "it has no %s, or of another type" % name
    value = {name: pair[1] for name, pair in attributes.items()}
    named = " ".join(value[name] for name in NAMED_BY[kind] if name in value)
    # The path of a receiver may be a secret: its deliveries and look-ups have the type of the event in its place.
    is_delivery = kind == CLIENT and "url.template" not in value and DELIVERY.fullmatch(span.get("name", ""))
    if span.get("name") != named and not is_delivery:
        yield "it is named %r, not %r" % (span.get("name"), named)
    status = span.get("status", {})
    failed = status.get("code", 0) == ERROR
    if failed != ("error.type" in value):
        yield "an error without error.type, or the reverse"
    if status.get("message") and not failed:
        yield "a message without an error"
    if kind == CLIENT and "http.response.status_code" not in value and not failed:
        yield "it has neither a status nor an error"
    if kind == SERVER and int(value.get("http.response.status_code", 0)) >= 500 and not failed:
        yield "the answer %s is not an error" % value["http.response.status_code"]


def of_secrets(span):
    for text in texts_of(span):
        if SECRETS.search(text):
            yield "it has a secret: %.12s..." % text
    for name, (_, value) in attributes_of(span).items():
        if name == "url.query" or ".header." in name:
            yield "it has %s" % name
        if name.startswith(("url.", "http.")) and QUERY.search(str(value)):
            yield "%s has a query" % name
    if QUERY.search(span.get("name", "")):
        yield "its name has a query"


def check(spans, clients=()):
    """clients: the traceparents that were given."""
    given = {tuple(parent.split("-")[1:3]) for parent in clients}
    here = {(span.get("traceId"), span.get("spanId")): span for span in spans}
    complaints = ["%d spans have an id that another one has" % (len(spans) - len(here))] * (len(spans) != len(here))
    for span in spans:
        parent = here.get((span.get("traceId"), span.get("parentSpanId")))
        for what in (*of_ids(span, here.keys(), given), *of_times(span, parent), *of_meaning(span), *of_secrets(span)):
            complaints.append("%s: %s %s: %s" % (span["file"], span.get("name"), span.get("spanId"), what))
    return complaints


def check_folder(node, folder, clients=(), forbidden=()):
    """complaints, spans."""
    files = sorted(pathlib.Path(folder).glob("*.json"))
    complaints, spans = read(node, files)
    for path in files:
        body = path.read_text(encoding="utf-8")
        complaints.extend("%s: contains a forbidden word, number %d" % (path.name, number)
                          for number, word in enumerate(forbidden, 1) if word in body)
    return complaints + check(spans, clients) + ["there is no span"] * (not spans), spans


def words_of(arguments, name):
    if name not in arguments:
        return []
    at = arguments.index(name)
    path = arguments[at + 1]
    del arguments[at:at + 2]
    return pathlib.Path(path).read_text(encoding="utf-8").split()


def main():
    import run  # the packages are where the group has them
    arguments = sys.argv[1:]
    clients, forbidden = words_of(arguments, "--clients"), words_of(arguments, "--forbidden")
    if len(arguments) != 1:
        print(__doc__)
        return 2
    folder, why = run.install()
    if not folder:
        print("skip   " + why)
        return 0
    complaints, spans = check_folder(run.Node(folder), pathlib.Path(arguments[0]).resolve(), clients, forbidden)
    print("\n".join([*complaints, "%d spans, %d complaints" % (len(spans), len(complaints))]))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
