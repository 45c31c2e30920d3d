"""The issuers that the worker can speak to, as stories need them: how the sandbox and the worker are started, and each
vendor's calls that a story makes by itself, such as a card that somebody else made, or one that is closed.

Written from the vendors' documents, not from the worker's tables. A new issuer is a class here and a row of PROFILES;
each story of issuers.py and its neighbours then runs for it.
"""
import base64
import json
import urllib.parse
import uuid

import client
from assertions import Failed


def generic_create(reference, user="alice"):
    """The body of a create at the issuer of docs/peers.md."""
    return {"reference": reference, "user_id": user, "kind": "new", "replaces": None, "program": None, "memo": None}


class Generic:
    """The issuer of docs/peers.md."""
    name = profile = "generic"
    sandbox = ()          # options of issuing-sandbox
    credential = None     # what the credential's file holds
    parameters = None     # issuer.parameters
    settings = {}         # more options of the worker
    calls = ("create", "lookup", "cancel")  # that the worker makes, by the sandbox's names
    closes_replaced = False  # the worker closes the card that a reissue replaces
    trusts_key = True     # a create that is repeated under its key makes no second card
    looks_first = False   # an unknown outcome is looked up before each repeat
    page = None           # rows of a look-up's page; None = there are no pages
    refused = (400, 410, 422)  # what a create is refused with, for good
    unforeseen = (402, 406, 418, 451)  # what an operator must look at
    code, reason = "bin_closed", "bin_closed"  # of a refusal, and what the request's owner reads of it
    retrieve = None  # the call that reads one card, by the sandbox's names
    reference_is_key = False  # which stands for one card, for ever

    def authorization(self):
        return {}

    def call(self, world, method, path, body=None, headers=None):
        """One call as this vendor's customers make it. Returns the answer."""
        words = {"Content-Type": "application/json", **self.authorization(), **(headers or {})}
        text = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return client.call(world.sandbox.issuer, method, path, words, text)

    def holder(self, world, user):
        """What core-api tells the worker of a user."""
        answer = client.call(world.sandbox.core, "GET", "/v1/users/%s/card-eligibility?kind=new" % user)
        return answer.json().get("issuer", {})

    def make(self, world, user, reference, key=None):
        """A card with that reference, under a key of its own. Returns the issuer's id of it."""
        return self.made(self.create(world, user, reference, key or str(uuid.uuid4())))

    def made(self, answer):
        if answer.status not in (200, 201):
            raise Failed("the story's own create: %r" % answer)
        return answer.json()[self.id]

    def foreign_reference(self, event, number):
        """Of a card that a look-up of that event shows among others."""
        return "another program's %d" % number

    id = "id"  # the member that names the card

    def create(self, world, user, reference, key):
        return self.call(world, "POST", "/v1/cards", generic_create(reference, user), {"Idempotency-Key": key})

    def close(self, world, card):
        """Whatever the answer says: the ledger tells."""
        return self.call(world, "POST", "/v1/cards/%s/cancel" % card, {}, {"Idempotency-Key": str(uuid.uuid4())})

    # Answers to a create that cannot be used: what the rule `answer` puts over the true members.
    odd_cards = {"no-id": {"id": None}, "month-13": {"exp_month": 13}, "odd-state": {"status": "frozen"},
                 "list-as-id": {"id": []}}
    inactive = None  # the same, for a card that must be activated first


class Stripe(Generic):
    name = profile = "stripe"
    credential = "sk_test_0123456789abcdef"
    parameters = "currency=eur"
    calls = ("create", "lookup", "reveal", "cancel")
    closes_replaced = True
    page = 10
    refused = (400, 402, 410, 422)
    unforeseen = (406, 418, 451)
    code = reason = "card_declined"
    retrieve = "retrieve"
    odd_cards = {"no-id": {"id": None}, "month-13": {"exp_month": 13}, "odd-state": {"status": "frozen"},
                 "year-text": {"exp_year": {}}}
    inactive = {"status": "inactive"}

    def authorization(self):
        return {"Authorization": "Bearer " + self.credential, "Content-Type": "application/x-www-form-urlencoded",
                "Stripe-Version": "2026-10-28.endive"}

    def form(self, **members):
        return urllib.parse.urlencode(members).encode()

    def create(self, world, user, reference, key):
        return self.call(world, "POST", "/v1/issuing/cards", self.form(
            cardholder=self.holder(world, user)["cardholder"], currency="eur", type="virtual", status="active",
            **({"metadata[issuing_reference]": reference} if reference else {})), {"Idempotency-Key": key})

    def close(self, world, card):
        return self.call(world, "POST", "/v1/issuing/cards/" + card, self.form(status="canceled"))

    def freeze(self, world, card):
        return self.call(world, "POST", "/v1/issuing/cards/" + card, self.form(status="inactive"))

    def thaw(self, world, card):
        return self.call(world, "POST", "/v1/issuing/cards/" + card, self.form(status="active"))


class Lithic(Generic):
    name = profile = "lithic"
    credential = "0123456789abcdef-lithic"
    calls = ("create", "lookup", "cancel")
    closes_replaced = looks_first = True
    page = 20
    refused = (400, 422)
    code, reason = "none", "issuer_refused"  # its errors have no code
    retrieve = "retrieve"
    id = "token"
    odd_cards = {"no-id": {"token": None}, "month-13": {"exp_month": "13"}, "odd-state": {"state": "FROZEN"},
                 "year-list": {"exp_year": []}}

    def authorization(self):
        return {"Authorization": self.credential}

    def foreign_reference(self, event, number):
        return "%s, copy %d" % (event, number)  # memos are found by a part of them

    def create(self, world, user, reference, key):
        return self.call(world, "POST", "/v1/cards", {
            "type": "VIRTUAL", "state": "OPEN", "account_token": self.holder(world, user)["account_token"],
            **({"memo": reference} if reference else {})}, {"Idempotency-Key": key})

    def close(self, world, card):
        return self.call(world, "PATCH", "/v1/cards/" + card, {"state": "CLOSED"})

    def freeze(self, world, card):
        return self.call(world, "PATCH", "/v1/cards/" + card, {"state": "PAUSED"})

    def thaw(self, world, card):
        return self.call(world, "PATCH", "/v1/cards/" + card, {"state": "OPEN"})


class Marqeta(Generic):
    name = profile = "marqeta"
    credential = "application:access"
    parameters = "card_product_token=virtual"
    calls = ("create", "lookup", "activate", "reveal", "cancel")
    closes_replaced = True
    refused = (400, 412, 422)
    code = reason = "422001"
    retrieve = "lookup"  # the card's id is our reference, so both are the same request
    reference_is_key = True
    id = "token"
    odd_cards = {"no-id": {"token": None}, "month-13": {"expiration": "1331"}, "odd-state": {"state": "FROZEN"},
                 "expiration-number": {"expiration": 631}}

    def authorization(self):
        return {"Authorization": "Basic " + base64.b64encode(self.credential.encode()).decode()}

    def create(self, world, user, reference, key):
        return self.call(world, "POST", "/cards", {"token": reference or key, "card_product_token": "virtual",
                                                   "user_token": self.holder(world, user).get("user_token", user)})

    def change(self, world, card, state):
        return self.call(world, "POST", "/cardtransitions", {"token": str(uuid.uuid4()), "card_token": card,
                                                             "channel": "API", "state": state, "reason_code": "01"})

    def close(self, world, card):
        return self.change(world, card, "TERMINATED")

    def freeze(self, world, card):
        return self.change(world, card, "SUSPENDED")

    def thaw(self, world, card):
        return self.change(world, card, "ACTIVE")


class Adyen(Generic):
    name = profile = "adyen"
    credential = "AQE0123456789abcdef"
    parameters = "issuingCountryCode=NL brand=mc brandVariant=mcdebit"
    calls = ("create", "lookup", "reveal", "cancel")
    closes_replaced = looks_first = True
    trusts_key = False
    page = 50
    refused = (400, 410, 422)
    code = reason = "30_031"
    retrieve = "retrieve"
    odd_cards = {"no-id": {"id": None}, "no-card": {"card": None}, "odd-state": {"status": "frozen"},
                 "card-text": {"card": "visa"}}
    inactive = {"status": "inactive"}

    def authorization(self):
        return {"X-API-Key": self.credential}

    def create(self, world, user, reference, key):
        holder = self.holder(world, user)
        return self.call(world, "POST", "/paymentInstruments", {
            "type": "card", "balanceAccountId": holder["balanceAccountId"], "issuingCountryCode": "NL",
            "status": "active", **({"reference": reference} if reference else {}),
            "card": {"brand": "mc", "brandVariant": "mcdebit", "cardholderName": holder["cardholderName"],
                     "formFactor": "virtual"}}, {"Idempotency-Key": key})

    def close(self, world, card):
        return self.call(world, "PATCH", "/paymentInstruments/" + card,
                         {"status": "closed", "statusReason": "other", "statusComment": "by a story"})

    def freeze(self, world, card):
        return self.call(world, "PATCH", "/paymentInstruments/" + card, {"status": "inactive"})

    def thaw(self, world, card):
        return self.call(world, "PATCH", "/paymentInstruments/" + card, {"status": "active"})


class AdyenWithoutKeys(Adyen):
    """Each create makes a card, whatever its key."""
    name = "adyen-without-keys"
    sandbox = ("--ignore-keys",)


class GenericWithoutKeys(Generic):
    """The same of an issuer of your own."""
    name = "generic-without-keys"
    sandbox = ("--ignore-keys",)
    settings = {"issuer.keys": "ignored"}
    trusts_key = False
    looks_first = True


class Increase(Generic):
    name = profile = "increase"
    credential = "sandbox_key_0123456789"
    calls = ("create", "lookup", "reveal", "cancel")
    closes_replaced = looks_first = reference_is_key = True
    code = reason = "invalid_parameters_error"
    retrieve = "retrieve"
    odd_cards = {"no-id": {"id": None}, "month-13": {"expiration_month": 13}, "odd-state": {"status": "frozen"},
                 "year-object": {"expiration_year": {}}}

    def authorization(self):
        return {"Authorization": "Bearer " + self.credential}

    def create(self, world, user, reference, key):
        return self.call(world, "POST", "/cards", {"account_id": self.holder(world, user)["account_id"]},
                         {"Idempotency-Key": reference or key})

    def close(self, world, card):
        return self.call(world, "PATCH", "/cards/" + card, {"status": "canceled"})

    def freeze(self, world, card):
        return self.call(world, "PATCH", "/cards/" + card, {"status": "disabled"})

    def thaw(self, world, card):
        return self.call(world, "PATCH", "/cards/" + card, {"status": "active"})


PROFILES = {issuer.name: issuer for issuer in (Generic(), GenericWithoutKeys(), Stripe(), Lithic(), Marqeta(), Adyen(),
                                               AdyenWithoutKeys(), Increase())}
EVERY = tuple(PROFILES)
VENDORS = tuple(name for name, issuer in PROFILES.items() if issuer.profile != "generic")


def those(condition):
    """The names of the issuers for which the condition holds, for stories that only some issuers have."""
    return tuple(name for name, issuer in PROFILES.items() if condition(issuer))
