"""What must hold after every test: each accepted request has one card, one refusal or one open question, and the
ledgers agree.

The tables are compared with the ledger of the sandbox, which is the issuer's and core-api's own record. First, the
calls that the peers execute late (the faults drop_then_execute and the like) are waited for, because an end must stay
right when the last call has arrived. Then the snapshot of the database is taken: a final status cannot change any more,
so a worker that is still busy makes no difference. World.allowed names what a test provokes on purpose: "two_cards" (it
made a second card at the issuer by itself), "other_issuer" (the cards are not in the sandbox's ledger), "orphan" (it
removed or invented rows), "rejected_card" or "rejected_link" (it made a card or a link for a rejected request by
itself), "closed_card" (the issuer closed the card of a completed request, and it is known), "late" (late executions are
outstanding and are not waited for)."""
import collections
import re

import harness


def _snapshot(world):
    events = world.rows("SELECT id, status, user_id, event_type, retry_count, next_attempt_at, lease_until,"
                        " lease_token, reason_code, completed_at,"
                        " first_sent_at IS NOT NULL AND last_error IS NULL AND deferral_code IS NULL AS is_untried,"
                        " idempotency_key, payload ->> 'replaces' AS replaces, EXISTS (SELECT FROM"
                        " issuing.event_reissues r"
                        " WHERE r.new_id = outbox_events.id) AS is_reissued FROM outbox_events")
    cards = world.rows("SELECT id, request_id, user_id, status, issuer_card_id, last4, replaces FROM cards")
    keys = world.rows("SELECT event_id, user_id, key FROM idempotency_keys")
    return events, cards, keys


def _check_event(event, cards, issued, links, complain, allowed):
    status, live = event["status"], [card for card in cards if card["status"] in ("active", "replaced")]
    if len(cards) > 1:
        complain("%d rows in cards" % len(cards))
    if len(issued) > 1 and "two_cards" not in allowed:
        complain("%d cards at the issuer" % len(issued))
    alive = [card for card in issued if card["status"] not in ("cancelled", "replaced")]
    if len(alive) > 1 and "two_cards" not in allowed:
        complain("%d live cards at the issuer" % len(alive))
    if status == "COMPLETED" and "closed_card" in allowed and [card["status"] for card in cards] == ["cancelled"]:
        if alive or len(issued) != 1:
            complain("a card is shown as cancelled, and the issuer's is not")
        if links:
            complain("a card is shown as cancelled, and core-api has a link")
    elif status == "COMPLETED":
        if len(live) != 1:
            complain("COMPLETED with %d usable cards" % len(live))
        if "two_cards" in allowed:
            issued = [card for card in issued if card["status"] != "cancelled"]
        if "other_issuer" in allowed:
            pass
        elif len(issued) != 1:
            complain("COMPLETED with %d cards at the issuer" % len(issued))
        elif issued[0]["status"] == "cancelled" and not any(card["status"] == "replaced" for card in live):
            complain("COMPLETED, and the issuer's card is cancelled")
        if len(links) != 1:
            complain("COMPLETED with %d links" % len(links))
        elif live and links[0]["card_id"] != live[0]["id"]:
            complain("another card is linked")
        if any(row["user_id"] != event["user_id"] for row in [*cards, *issued, *links]):
            complain("a card or a link belongs to another user")
    elif status == "REJECTED":
        if alive and not allowed & {"two_cards", "rejected_card"}:
            complain("REJECTED, and the issuer has an active card")
        if links and "rejected_link" not in allowed:
            complain("REJECTED, and core-api has a link")
        if live:
            complain("REJECTED with a usable card")
    elif status == "FAILED":
        if not event["reason_code"] or not event["completed_at"]:
            complain("FAILED without a reason or an end")
    else:
        if status == "PENDING" and not event["next_attempt_at"]:
            complain("PENDING and not scheduled")
        if status == "PENDING" and event["is_untried"]:
            complain("PENDING, perhaps sent, and not among those that were tried")
        if status == "PROCESSING" and not event["lease_until"]:
            complain("PROCESSING without a lease")


def check_ledgers(world):
    """Returns complaints."""
    complaints = []
    if world.sandbox and world.sandbox.alive() and "late" not in world.allowed:
        try:
            world.sandbox.wait_late()
        except harness.Failed as error:
            complaints.append(str(error))
    events, cards, keys = _snapshot(world)
    ledger = world.sandbox.ledger() if world.sandbox and world.sandbox.alive() else {"cards": [], "links": [],
                                                                                     "leaks": 0, "truncated": False}
    by_request, by_reference, by_link = (collections.defaultdict(list) for _ in range(3))
    for rows, key, target in ((cards, "request_id", by_request), (ledger["cards"], "reference", by_reference),
                              (ledger["links"], "request_id", by_link)):
        for row in rows:
            target[row[key]].append(row)
    if world.sandbox and world.sandbox.alive():
        for event in events:
            if event["event_type"] != "CARD_ISSUE":
                if by_request[event["id"]] or by_reference[event["id"]] or by_link[event["id"]]:
                    complaints.append("event %s of type %s has a card" % (event["id"], event["event_type"]))
                continue
            _check_event(event, by_request[event["id"]], by_reference[event["id"]], by_link[event["id"]],
                         lambda text, event=event: complaints.append("event %s of %s (%s): %s" % (event["id"],
                                                                                                  event["user_id"],
                                                                                                  event["status"],
                                                                                                  text)),
                         world.allowed)
        known = {event["id"] for event in events}
        if "orphan" not in world.allowed:
            complaints += ["the issuer has a card for %s, which was never accepted" % reference
                           for reference in by_reference if reference not in known | world.foreign]
            complaints += ["core-api has a link for %s, which was never accepted" % request for request in by_link
                           if request not in known]
    for receiver in world.receivers:
        complaints += receiver.complaints(world)
    if ledger["leaks"]:
        complaints.append("core-api was sent %d card numbers" % ledger["leaks"])
    linked = collections.Counter(link["card_id"] for link in ledger["links"])
    complaints += ["card %s is linked by %d requests" % pair for pair in linked.items() if pair[1] > 1]
    # An event that an operator's reissue made has the client's key too, and so has the event that tells of an end; the
    # row of the key names the first.
    made_by_api = [event for event in events if event["idempotency_key"] is not None and
                   event["event_type"] == "CARD_ISSUE" and not event["is_reissued"]]
    if "old_keys" in world.allowed:  # the housekeeping may have removed some
        made_by_api = [event for event in made_by_api if event["id"] in {key["event_id"] for key in keys}]
    if "orphan" not in world.allowed and len(made_by_api) != len(keys):
        complaints.append("%d events with a key, %d rows in idempotency_keys" % (len(made_by_api), len(keys)))
    if "orphan" not in world.allowed and {event["id"] for event in made_by_api} != {key["event_id"] for key in keys}:
        complaints.append("idempotency_keys and outbox_events name different events")
    return complaints


# What the sandbox's issuers tell of a holder, and nobody needs. No pattern finds a number, a time or a random id,
# whatever their digits and letters are (tests/rules/check_patterns.py): the phone number is text, so it is behind its
# plus or a quote.
HOLDER = re.compile(r"Holder Of |@holder\.example|Kastenweg|(?:\+|%2[Bb]|\\u002[Bb]|[\"'] ?)4962000000(?![\w-]|\.\d)"
                    r"|(?<![\w/+-])dob(?![\w/+-])")
HOLDERS_NAME = re.compile(r"Sam Sandbox")  # Adyen wants it with the order, so an event may keep it
SECURITY_CODE = re.compile(r"(?<![\w/+-])cvc(?![\w/+-])|verification_code", re.IGNORECASE)


def _search(text, numbers, where, personal=(HOLDER,)):
    """Card numbers, also with blanks or dashes between their digits, the name of data that must not be stored, and what
    an issuer's answers tell of a person."""
    complaints = ["\"%s\" in %s" % (found.group(), where) for found in
                  (pattern.search(text) for pattern in personal) if found]
    wanted = set(numbers)
    sizes = {len(number) for number in wanted}
    for run in re.findall(r"\d(?:[ -]?\d){11,}", text) if wanted else ():
        digits = re.sub(r"[ -]", "", run)
        if any(digits[at:at + size] in wanted for size in sizes for at in range(len(digits) - size + 1)):
            complaints.append("a card number in " + where)
    if SECURITY_CODE.search(text):
        complaints.append("a security code's name in " + where)
    return complaints


# Of every table. (pg_dump reads the whole catalogue first, which costs more than many a test.)
EVERY_ROW = ("SELECT query_to_xml(format('SELECT t::text FROM %s t', c.oid::regclass), true, false, '') FROM pg_class c"
             " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname !~ '^pg_'"
             " AND n.nspname <> 'information_schema'")


def check_metrics_and_rows(world):
    """Needs the programs still running."""
    numbers = world.sandbox.numbers() if world.sandbox and world.sandbox.alive() else []
    world.numbers = numbers
    complaints = []
    if not numbers:
        return complaints
    for daemon in [*world.apis(), *world.workers()]:
        if daemon.alive() and not getattr(daemon, "is_stopped", False):
            complaints += _search(daemon.get("/metrics").body.decode(), numbers, "the metrics of " + daemon.name)
    rows = world.sql(EVERY_ROW)
    return complaints + _search(rows, numbers, "the database")


def check_logs(world):
    """When all programs have ended."""
    complaints = []
    for log in sorted(world.dir.glob("*.log")):
        complaints += _search(log.read_text(errors="replace"), getattr(world, "numbers", []), log.name,
                              (HOLDER, HOLDERS_NAME))
    return complaints
