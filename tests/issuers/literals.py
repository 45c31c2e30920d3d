"""The worker's requests and pointers as TypeScript: the vendors' SDKs have types for what is sent and for what is
answered. One file holds what must compile, another what must not; each line is judged by itself.

Stripe's types take any text where its document has a list of words, and Adyen's have no type for a query: the
comparison with the SDKs' requests covers both. Marqeta has no SDK at npm.
"""
import json
import re
import urllib.parse

import compare

ADYEN = "Types.balancePlatform."
PARAMETERS = {
    ("stripe", "create"): "Stripe.Issuing.CardCreateParams",
    ("stripe", "lookup"): "Stripe.Issuing.CardListParams",
    ("stripe", "activate"): "Stripe.Issuing.CardUpdateParams",
    ("stripe", "reveal"): "Stripe.Issuing.CardRetrieveParams",
    ("stripe", "cancel"): "Stripe.Issuing.CardUpdateParams",
    ("stripe", "freeze"): "Stripe.Issuing.CardUpdateParams",
    ("stripe", "retire"): "Stripe.Issuing.CardUpdateParams",
    ("lithic", "create"): "Lithic.CardCreateParams",
    ("lithic", "lookup"): "Lithic.CardListParams",
    ("lithic", "cancel"): "Lithic.CardUpdateParams",
    ("lithic", "freeze"): "Lithic.CardUpdateParams",
    ("lithic", "retire"): "Lithic.CardUpdateParams",
    ("increase", "create"): "Known<Increase.CardCreateParams>",
    ("increase", "lookup"): "Increase.CardListParams",
    ("increase", "cancel"): "Increase.CardUpdateParams",
    ("increase", "freeze"): "Increase.CardUpdateParams",
    ("increase", "retire"): "Increase.CardUpdateParams",
    ("adyen", "create"): "Worded<%sPaymentInstrumentInfo>" % ADYEN,
    ("adyen", "activate"): "Worded<%sPaymentInstrumentUpdateRequest>" % ADYEN,
    ("adyen", "cancel"): "Worded<%sPaymentInstrumentUpdateRequest>" % ADYEN,
    ("adyen", "freeze"): "Worded<%sPaymentInstrumentUpdateRequest>" % ADYEN,
    ("adyen", "retire"): "Worded<%sPaymentInstrumentUpdateRequest>" % ADYEN,
}
# By profile: what the pointers of answers point into. A card of a list has the same members, the number aside.
ANSWERS = {
    "stripe": {"card": "Stripe.Issuing.Card", "revealed": "Stripe.Issuing.Card", "row": "Stripe.Issuing.Card",
               "list": "Stripe.ApiList<Stripe.Issuing.Card>",
               "error": "{ error: NonNullable<ConstructorParameters<typeof Stripe.errors.StripeError>[0]> }"},
    "lithic": {"card": "Lithic.Card", "revealed": "Lithic.Card", "row": "Lithic.NonPCICard",
               "list": "Lithic.NonPCICardsCursorPage", "error": None},  # its types have no error
    "increase": {"card": "Increase.Card", "revealed": "Increase.CardDetails", "row": "Increase.Card",
                 "list": "Increase.CardsPage",
                 "error": "InstanceType<typeof Increase.InvalidParametersError>"},
    "adyen": {"card": ADYEN + "PaymentInstrument", "revealed": ADYEN + "PaymentInstrumentRevealInfo",
              "row": ADYEN + "PaymentInstrument", "list": ADYEN + "PaginatedPaymentInstrumentsResponse",
              "error": ADYEN + "RestServiceError"},
}
NUMBERS = ("limit", "page_size", "created/gte")  # which a query has as text

# What the vendor's document requires, and where the SDK's types have a closed list of words.
REQUIRED = {("stripe", "create"): ("currency", "type"), ("lithic", "create"): ("type",),
            ("increase", "create"): ("account_id",),
            ("adyen", "create"): ("balanceAccountId", "issuingCountryCode", "type", "card/brand", "card/brandVariant",
                                  "card/cardholderName", "card/formFactor", "card/authentication/phone/number",
                                  "card/authentication/phone/type")}
WORDED = {"lithic": ("type", "state", "substatus"), "increase": ("status",),
          "adyen": ("type", "status", "statusReason", "card/formFactor", "card/authentication/phone/type")}

HEAD = """import Stripe from 'stripe';
import Lithic from 'lithic';
import Increase from 'increase';
import { Types } from '@adyen/api-library';
type Worded<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Worded<T[K]> } : T;
type At<T, P> = P extends [infer K, ...infer R] ? K extends keyof NonNullable<T> ? At<NonNullable<T>[K], R> : never
  : NonNullable<T>;
type Known<T> = { [K in keyof T as string extends K ? never : K]: T[K] };
type Words<T> = T extends string ? {} extends Record<T, 1> ? never : `${T}` : never;
type IsText<T> = [T] extends [never] ? false : [T] extends [string] ? true : false;
type Same<A, B> = [A] extends [B] ? [B] extends [A] ? true : false : false;
"""


def value_of(request):
    """The body or the query as the SDK takes it: nested, with numbers."""
    if request["body"] and not compare.is_form(request):
        return json.loads(request["body"])
    root = {}
    for name, value in urllib.parse.parse_qsl(request["body"] or request["target"].partition("?")[2]):
        *steps, last = re.findall(r"[^][]+", name)
        into = root
        for step in steps:
            into = into.setdefault(step, {})
        into[last] = int(value) if "/".join([*steps, last]) in NUMBERS else value
    return {name: list(value.values()) if isinstance(value, dict) and "0" in value else value
            for name, value in root.items()}


def changed(value, path, change):
    """A copy in which change(object, name) happened to the member at the path; None = there is no such member."""
    copy = json.loads(json.dumps(value))
    *steps, last = path.split("/")
    into = copy
    for step in steps:
        into = into.get(step, {})
    if last not in into:
        return None
    change(into, last)
    return copy


def wrong_values(profile, call, value):
    """An unknown member in each object, each required member missing, a word that is not in its list."""
    found = [{**value, "unknown": "1"}]
    if profile == "adyen":  # the others' only inner objects are metadata and a range
        found += [{**value, name: {**inner, "unknown": "1"}} for name, inner in value.items()
                  if isinstance(inner, dict)]
    found += [changed(value, path, lambda into, name: into.pop(name)) for path in REQUIRED.get((profile, call), ())]
    found += [changed(value, path, lambda into, name: into.update({name: "nonsense"}))
              for path in WORDED.get(profile, ())]
    return [wrong for wrong in found if wrong is not None]


def pointers(table):
    """Type of the whole, pointer, type of what is read there; None = a text, of any words."""
    types, card = ANSWERS[table["profile"]], table["card"]
    expiry = "number" if table["profile"] in ("stripe", "increase") else "string"
    for name, kind in (("id", "string"), ("reference", "string"), ("last4", "string"), ("exp_month", expiry),
                       ("exp_year", expiry)):
        yield types["card"], card[name], kind
        yield types["row"], card[name], kind
    if card.get("number"):
        yield types["card"], card["number"], "string"
    if table.get("revealed_number"):
        yield types["revealed"], table["revealed_number"], "string"
    yield types["list"], table["list"]["cards"], "Array<%s>" % types["row"]
    yield types["list"], table["list"]["more"], "string" if table["profile"] == "increase" else "boolean"
    if types["error"]:
        for pointer in [*table["error_codes"], table["error_detail"]]:
            yield types["error"], pointer, None


def misspelt(pointer):
    """Stripe's metadata may have any member."""
    return pointer.replace("/metadata/", "/metadatax/") if "/metadata/" in pointer else pointer + "x"


def reads(kind, pointer, wanted):
    """The type that is true when there is such a text, or a value of just the wanted type, at the pointer."""
    at = at_pointer(kind, pointer)
    return "Same<%s, %s>" % (at, wanted) if wanted else "IsText<%s>" % at


def at_pointer(kind, pointer):
    return "At<%s, [%s]>" % (kind, ", ".join(json.dumps(step) for step in pointer.split("/")[1:]))


def answer_type(profile, name):
    kind = ANSWERS[profile][name]
    form = {"adyen": "Worded<%s>", "increase": "Known<%s>"}.get(profile, "%s")  # Increase's types allow any member
    return form % kind


def cases(requests, tables, answers):
    """(label, what must compile, what must not), both as (type, value)."""
    for request in requests:
        profile, call = request["profile"], request["call"].split("_")[0]
        kind = PARAMETERS.get((profile, call))
        if kind:
            value = value_of(request)
            yield ("%s: %s" % (profile, request["call"]), [(kind, value)],
                   [(kind, wrong) for wrong in wrong_values(profile, call, value)])
    for table in tables:
        profile = table["profile"]
        if profile in ANSWERS:
            found = list(pointers(table))
            yield ("%s: what is read" % profile, [(reads(*row), True) for row in found],
                   [(reads(kind, misspelt(pointer), wanted), True) for kind, pointer, wanted in found])
            words = [json.dumps(word) for word in table["card"]["states"]]
            known = "Words<%s>" % at_pointer(ANSWERS[profile]["card"], table["card"]["state"])
            yield ("%s: the words of a card's state" % profile, [("Same<%s, %s>" % (known, " | ".join(words)), True)],
                   [("Same<%s, %s>" % (known, " | ".join(other)), True)
                    for other in (words[1:], [*words, '"nonsense"'])])
    for profile in dict.fromkeys(answer["profile"] for answer in answers):
        told = [(answer_type(profile, answer["type"]), answer["value"]) for answer in answers
                if answer["profile"] == profile]
        yield ("%s: what the sandbox answers" % profile, told,
               [(kind, {**value, "unknown": "1"}) for kind, value in told])


def write(folder, found):
    """good.ts and bad.ts; returns {(file, number of the line): index of the case}."""
    lines = {}
    for name, at in (("good.ts", 1), ("bad.ts", 2)):
        text = HEAD
        for index, case in enumerate(found):
            for kind, value in case[at]:
                lines[name, text.count("\n") + 1] = index
                text += "export const _%d: %s = %s;\n" % (len(lines), kind, json.dumps(value))
        (folder / name).write_text(text, encoding="utf-8")
    return lines


def judge(found, lines, output):
    """[(label, complaints)]: what tsc said about each line, against what it should have said."""
    complained = {}
    stray = []
    for row in output.splitlines():
        match = re.match(r"types/(\w+\.ts)\((\d+),\d+\): (error .*)", row)
        where = match and (match[1], int(match[2]))
        if where in lines:
            complained[where] = match[3]
        elif not row.startswith(" "):
            stray.append(row)
    results = [(case[0], []) for case in found]
    for where, index in lines.items():
        if (where in complained) != (where[0] == "bad.ts"):
            results[index][1].append("%s line %d: %s" % (*where, complained.get(where, "compiles, and must not")))
    return [*results, ("tsc says nothing else", stray)]
