"""The worker's requests against those of the vendors' own SDKs: method, path, query, credential, headers and body, both
byte for byte and decoded. A request is a dict: method, target, headers (names in lower case), body.

Byte for byte means: after the differences in ALLOWED are taken out. Each of them is a choice of an SDK, and its vendor
reads both alike. An entry that no request needs is a failure, so that the list stays true.
"""
import copy
import json
import urllib.parse

# What the vendor reads. Everything else that an SDK sends describes the SDK (user-agent, x-stainless-...), its
# connection, or how it would like the answer.
PROFILES = ("stripe", "lithic", "increase", "adyen")  # that have an SDK at npm

HEADERS = ("authorization", "x-api-key", "idempotency-key", "stripe-version", "stripe-account", "content-type")


def plain_brackets(request):
    if is_form(request):
        request["body"] = request["body"].replace("%5B", "[").replace("%5D", "]")


def sorted_members(request):
    path, mark, query = request["target"].partition("?")
    request["target"] = path + mark + "&".join(sorted(query.split("&")))
    try:
        request["body"] = json.dumps(json.loads(request["body"]), sort_keys=True, separators=(",", ":"),
                                     ensure_ascii=False)
    except ValueError:
        pass  # it stays as it is


def no_type_without_body(request):
    if not request["body"]:
        request["headers"].pop("content-type", None)


def no_key_of_a_change(request):
    if request["method"] == "PATCH":
        request["headers"].pop("idempotency-key", None)


ALLOWED = (
    ("stripe", plain_brackets, "Stripe's SDK leaves [ and ] of a value as they are; both forms decode alike"),
    ("stripe", no_type_without_body, "Stripe's SDK names a content type for a GET, which has no content"),
    ("increase", no_key_of_a_change, "Increase's SDK makes up a key for a PATCH, and Increase uses keys of a POST only"),
    ("adyen", no_type_without_body, "Adyen's SDK names a content type for a GET, which has no content"),
    ("adyen", sorted_members, "Adyen's SDK writes members by the alphabet; their order has no meaning"),
)


def is_form(request):
    return request["headers"].get("content-type", "").startswith("application/x-www-form-urlencoded")


def reduced(request, profile, left_out=None):
    """The request without the headers that no vendor reads, and without what ALLOWED takes out."""
    request = copy.deepcopy(request)
    request["headers"] = {name: value for name, value in request["headers"].items() if name in HEADERS}
    for where, take_out, _ in ALLOWED:
        if where == profile and take_out is not left_out:
            take_out(request)
    return request


def pairs(text):
    return sorted(urllib.parse.parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text)))


def decoded(request):
    """What a server understands."""
    path, _, query = request["target"].partition("?")
    body = request["body"]
    try:
        body = pairs(body) if is_form(request) else json.loads(body or "null")
    except ValueError as error:
        body = "unreadable: %s" % error
    return {"path": urllib.parse.unquote(path), "query": pairs(query), "body": body}


def differences(profile, ours, theirs, left_out=None):
    """What differs, as lines; none = they are the same."""
    found = []
    one, two = reduced(ours, profile, left_out), reduced(theirs, profile, left_out)
    for part in ("method", "target", "body"):
        if one[part] != two[part]:
            found.append("%s: ours %r, the SDK's %r" % (part, one[part], two[part]))
    for name in HEADERS:
        pair = one["headers"].get(name), two["headers"].get(name)
        if pair[0] != pair[1]:
            found.append("header %s: ours %r, the SDK's %r" % (name, *pair))
    one, two = decoded(one), decoded(two)
    found += ["%s, decoded: ours %r, the SDK's %r" % (part, one[part], two[part]) for part in one
              if one[part] != two[part]]
    return found


# ---- proof that it sees what is wrong --------------------------------------------------------------------------------

def broken_forms(text):
    """(what, text) for a query or a form: each member dropped, renamed, with another value."""
    pairs = text.split("&") if text else []
    for at, pair in enumerate(pairs):
        name, _, value = pair.partition("=")
        for what, other in (("dropped", []), ("renamed", [name + "x=" + value]), ("changed", [pair + "x"])):
            yield "%s %s" % (name, what), "&".join(pairs[:at] + other + pairs[at + 1:])


def broken_objects(value):
    """(what, value) for JSON: each member, at any depth, dropped, renamed, with another value; each object opened."""
    for name in value:
        rest = {other: value[other] for other in value if other != name}
        yield name + " dropped", rest
        yield name + " renamed", {**rest, name + "x": value[name]}
        if isinstance(value[name], dict):
            yield name + " flattened", {**rest, **value[name]}
            for what, inner in broken_objects(value[name]):
                yield "%s/%s" % (name, what), {**value, name: inner}
        else:
            yield name + " changed", {**value, name: "%sx" % value[name]}
            yield name + " null", {**value, name: None}


def broken(request):
    """(what, request) for everything that may go wrong with one request."""
    path, mark, query = request["target"].partition("?")
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - {request["method"]}:
        yield "method " + method, {**request, "method": method}
    yield "path", {**request, "target": path + "x" + mark + query}
    yield "unknown query member", {**request, "target": path + "?" + "&".join(filter(None, [query, "unknown=1"]))}
    for what, text in broken_forms(query):
        yield "query " + what, {**request, "target": path + ("?" + text if text else "")}
    read = [name for name in HEADERS if name in request["headers"] and (name != "content-type" or request["body"])]
    for name in read:
        rest = {other: value for other, value in request["headers"].items() if other != name}
        yield "header %s dropped" % name, {**request, "headers": rest}
        yield "header %s changed" % name, {**request, "headers": {**rest, name: request["headers"][name] + "x"}}
    if not request["body"]:
        yield "a body", {**request, "body": "{}"}
    elif is_form(request):
        yield "unknown body member", {**request, "body": request["body"] + "&unknown=1"}
        for what, text in broken_forms(request["body"]):
            yield "body " + what, {**request, "body": text}
    else:
        value = json.loads(request["body"])
        for what, other in [("unknown member", {**value, "unknown": "1"}), *broken_objects(value)]:
            yield "body " + what, {**request, "body": json.dumps(other, separators=(",", ":"), ensure_ascii=False)}
