"""Another service beside the cards: it inserts charges, and notes whose order matters, in transactions of its own, and
the ends of card requests are told to it. And what must hold for each of these types when the trouble is over.

By the ledger of the receiver: every event has ended; each charge that is COMPLETED was executed once, each one that is
REJECTED never; notes that were committed together arrived in the order of their ids; the end of each card request was
told as it stands; no type waited for the others.
"""
import collections
import random
import threading

import client
import harness

CHARGE, NOTE, ENDED = "PAYMENT_CHARGE", "ORDER_NOTE", "CARD_REQUEST_ENDED"
TYPES = (CHARGE, NOTE, ENDED)
# None of these codes is of the worker: the receiver's own refusals.
REFUSALS = ("card_declined", "note_refused")
ANSWERS = (("create_then_drop", {}), ("create_then_hang", {}), ("drop", {}), ("hang", {}), ("garbage", {}),
           ("truncated", {}), ("execute_then_status", {"status": 500}), ("status", {"status": 503}),
           ("status", {"status": 429, "retry_after": "1"}), ("status", {"status": 408}), ("status", {"status": 409}),
           ("status", {"status": 401}), ("redirect", {}), ("delay", {"delay_ms": 300}),
           ("slow_body", {"delay_ms": 700}))
LATE = ("drop_then_execute", "hang_then_execute", "status_then_execute", "execute_twice")


# Three charges of three users and three notes of one, in one transaction.
SEND = ("SELECT unnest(issuing.enqueue_many('%s', '{%s}', ARRAY[%s]::jsonb[])), '%s'"
        " UNION ALL SELECT unnest(issuing.enqueue_many('%s', '{%s}', ARRAY[%s]::jsonb[])), '%s'")


def settings(sandbox_port):
    """Of the workers: three routes to the stand-in."""
    base = "http://127.0.0.1:%d" % sandbox_port
    routes = {CHARGE: {"url": base + "/v1/charges", "lookup_url": base + "/v1/charges/{id}", "keep_result": "true"},
              NOTE: {"url": base + "/hooks/notes", "ordered": "true"}, ENDED: {"url": base + "/hooks/ended"}}
    # A send settles after a quarter of the key's lifetime: an hour's would be too long for a campaign.
    common = {"timeout": "500ms", "key_lifetime": "12s", "max_concurrency": "16"}
    return {"route.%s.%s" % (event_type, name): value for event_type, options in routes.items()
            for name, value in {**common, **options}.items()}


def rules_of(chance):
    """The faults of a phase, for the receiver."""
    rules = []
    for _ in range(chance.randrange(0, 3)):
        call = chance.choice(("charge", "charge", "hook", "hook", "charge_lookup"))
        fault, more = chance.choice(ANSWERS)
        rules.append((call, fault, {**more, "rate": chance.choice((0.1, 0.3, 0.6))}))
    if chance.random() < 0.5:
        rules.append(("charge", chance.choice(LATE), {"rate": chance.choice((0.1, 0.3, 0.6)),
                                                      "late_ms": chance.randrange(100, 1200)}))
    if chance.random() < 0.4:
        call, code = chance.choice((("charge", REFUSALS[0]), ("hook", REFUSALS[1])))
        rules.append((call, "status", {"status": 422, "code": code, "rate": 0.1}))
    if chance.random() < 0.2:
        rules.append((chance.choice(("charge", "hook", "route")), "limited", {"per_second": chance.choice((5, 30))}))
    return rules


class Service(threading.Thread):
    """Inserts until it is over. together: the notes of each transaction."""

    def __init__(self, seed, world, history, pace, users):
        super().__init__(daemon=True)
        self.random = random.Random("%s-service" % seed)
        self.world, self.history, self.pace, self.users = world, history, pace, users
        world.sql("INSERT INTO senders (event_type, role, role_oid) SELECT t, 'postgres', 'postgres'::regrole"
                  " FROM unnest(ARRAY['%s', '%s']) t" % (CHARGE, NOTE))
        self.is_over, self.may_send = threading.Event(), threading.Event()
        self.may_send.set()
        self.inserted, self.together = [], []
        self.accepted = []  # as a Client has it: no key of a client

    def run(self):
        while not self.is_over.is_set():
            self.may_send.wait()
            self.insert()
            self.is_over.wait(self.pace * self.random.random() * 2)

    def insert(self):
        users = ["user-%d" % self.random.randrange(self.users) for _ in range(4)]
        charges = ["'{\"amount\": %d, \"currency\": \"EUR\"}'" % self.random.randrange(1, 9999) for _ in users[:3]]
        notes = ["'{\"note\": %d}'" % number for number in range(3)]
        try:
            found = self.world.sql(SEND % (CHARGE, ",".join(users[:3]), ", ".join(charges), CHARGE, NOTE,
                                           ",".join(3 * users[3:]), ", ".join(notes), NOTE)).splitlines()
        except (harness.Failed, OSError, client.Closed):
            return  # the database is away; what became of it, the check finds out
        ids = [line.split("|") for line in found]
        self.inserted += [event for event, _ in ids]
        self.together.append([event for event, event_type in ids if event_type == NOTE])


# ---- what must hold --------------------------------------------------------------------------------------------------


def all_rows(sandbox, path, name):
    """Of the ledger, page by page."""
    found = []
    while True:
        page = sandbox.control_call("GET", "%s?from=%d&limit=1000" % (path, len(found)))
        found += page[name]
        if not page[name] or not page["truncated"]:
            return page, found


def check_charges(world):
    page, rows = all_rows(world.sandbox, "/charges", "charges")
    wrong = ["%d keys were charged twice" % page["executed_twice"]] if page["executed_twice"] else []
    executions = {row["key"]: row["executions"] for row in rows}
    events = {row["id"]: row for row in world.rows("SELECT id, status, reason_code, user_id FROM outbox_events WHERE"
                                                   " event_type = '%s'" % CHARGE)}
    for event, row in events.items():
        count = executions.get(event, 0)
        if (row["status"] == "COMPLETED" and count != 1) or (row["status"] == "REJECTED" and count != 0) or count > 1:
            wrong.append("event %s: %s %s, executed %d times" % (event, row["status"], row["reason_code"], count))
    wrong += ["%s was charged, and is not an event" % key for key, count in executions.items()
              if count and key not in events]
    return wrong, {"charges": len(events), "executed": sum(executions.values()),
                   "calls": page["calls"]}


def check_notes(world, together):
    """The order of first arrivals, among notes of one transaction."""
    _, rows = all_rows(world.sandbox, "/hooks", "hooks")
    arrived = {row["id"]: row["order"] for row in rows if row["name"] == "notes"}
    wrong = ["note %s: its body changed" % row["id"] for row in rows if row["body_changed"]]
    for ids in together:
        orders = [(event, arrived[event]) for event in sorted(ids) if event in arrived]
        wrong += ["event %s arrived before %s" % (later[0], earlier[0]) for earlier, later in zip(orders, orders[1:])
                  if later[1] < earlier[1]]
    done = world.sql("SELECT id FROM outbox_events WHERE event_type = '%s' AND status = 'COMPLETED'" % NOTE).split()
    wrong += ["event %s: COMPLETED, and did not arrive" % event for event in done if event not in arrived]
    return wrong, len(arrived)


def check_notified(world):
    """Of each request that has ended, the last end was told as it stands."""
    _, rows = all_rows(world.sandbox, "/hooks", "hooks")
    arrived = {row["id"] for row in rows if row["name"] == "ended"}
    told, wrong = collections.defaultdict(dict), []
    for row in world.rows("SELECT id, status, payload FROM outbox_events WHERE event_type = '%s'" % ENDED):
        end = row["payload"]["data"]
        told[end["id"]][end["end"]] = (end["status"], (end["reason"] or {}).get("code"))
        if row["status"] == "COMPLETED" and row["id"] not in arrived:
            wrong.append("event %s: COMPLETED, and did not arrive" % row["id"])
    for row in world.rows("SELECT id, status, reason_code FROM outbox_events WHERE event_type = 'CARD_ISSUE' AND status"
                          " NOT IN ('PENDING', 'PROCESSING')"):
        ends = told[row["id"]]
        if not ends or (row["status"], row["reason_code"]) != ends[max(ends)]:
            wrong.append("event %s: %s %s, and what was told is %r" % (row["id"], row["status"], row["reason_code"], ends))
    return wrong, len(arrived)


def check(checks, world, service, when):
    wrong, counts = check_charges(world)
    checks.one("%s: each charge was executed once, or never where it is refused (%s)" %
               (when, ", ".join("%s %d" % pair for pair in counts.items())), wrong)
    wrong, count = check_notes(world, service.together)
    checks.one("%s: notes that were written together arrived in their order (%d)" % (when, count), wrong)
    wrong, count = check_notified(world)
    checks.one("%s: the end of each request was told as it stands (%d)" % (when, count), wrong)
    known = set(world.sql("SELECT id FROM outbox_events WHERE event_type <> 'CARD_ISSUE'").split())
    checks.one("%s: no event of the service was lost" % when,
               ["event %s" % event for event in service.inserted if event not in known])


def ended_by_type(world):
    """Taken when the trouble ends, before anything settles."""
    return collections.Counter({row["event_type"]: row["n"] for row in world.rows(
        "SELECT event_type, count(*) AS n FROM outbox_events WHERE status NOT IN ('PENDING', 'PROCESSING')"
        " GROUP BY 1")})


def check_no_type_starved(checks, ended):
    counts = ", ".join("%s %d" % pair for pair in sorted(ended.items()))
    checks.one("every type went on during the trouble (%s)" % counts,
               ["nothing of %s has ended" % each for each in ("CARD_ISSUE", *TYPES) if not ended[each]])
