"""The end of a campaign: everything gets time to settle, operators answer the open questions, and the
answers to clients are compared with the database and with what the issuer and core-api have. For each event that a
complaint names, its story is printed."""
import collections
import json
import random
import re
import shutil
import time

import client
import harness
import invariants
import services

# Questions that a campaign may lead to. Every other reason of FAILED is a failure of the campaign: issuer_duplicate
# (two cards), payload_invalid (clients send none such).
QUESTIONS = re.compile(r"worker_lost|outcome_unknown|attempts_exhausted|issuer_key_expired|issuer_key_spent|cancel_failed|"
                       r"reveal_refused|(issuer|core)_http_\d+|route_(http_\d+|key_expired|refused)|" +
                       "|".join(services.REFUSALS))
# Of an ordered route, what waits behind a question waits for an operator.
OPEN = "status IN ('PENDING', 'PROCESSING')"
OPEN_AND_FREE = OPEN + " AND held_behind IS NULL"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STORIES = 4  # on standard output; all are in stories.txt
ROUNDS = 5
SETTLE_SECONDS = 2 * harness.STUCK_AFTER_S  # after all that trouble


class Checks:
    """Each is one line, passed or failed."""

    def __init__(self):
        self.passed = self.failed = 0
        self.complaints = []

    def one(self, what, wrong):
        self.passed += not wrong
        self.failed += bool(wrong)
        print("%-6s %s" % ("FAILED" if wrong else "ok", what), flush=True)
        for line in list(wrong)[:10]:
            print("       %s" % line)
        self.complaints += wrong


def figures(pairs):
    return ", ".join("%s %s" % pair for pair in sorted(pairs.items(),
                                                       key=lambda pair: (-pair[1], str(pair[0])))) or "none"


# ---- the answers to clients ------------------------------------------------------------------------------------------


def check_history(checks, world, history):
    """The answers to clients, compared with the tables."""
    answers, statuses, answered_events, wrong_statuses = collections.defaultdict(set), collections.Counter(), {}, []
    for row in history.rows():
        if row["what"] == "answer":
            statuses[row["status"]] += 1
            if row["status"] == 202:
                answers[(row["user"], row["key"])].add(row["body"])
            elif row["status"] not in (409, 503) and not (row["status"] == 422 and row["kind"] == "reissue"):
                wrong_statuses.append("%s: %s" % (row["status"], row["body"][:200]))
    reissues = world.sql("SELECT count(*) FROM outbox_events WHERE payload ->> 'kind' = 'reissue'")
    print("       answers: %s; accepted requests: %d, of a card's reissue: %s" %
          (figures(statuses), len(answers), reissues))
    checks.one("something was accepted", [] if answers else ["nothing"])
    checks.one("clients were answered 202, 409 or 503, or 422 for a reissue, and nothing else", wrong_statuses)
    checks.one("every answer to a key was the same, byte for byte",
               ["%s: %d answers" % (key, len(bodies)) for key, bodies in answers.items() if len(bodies) > 1])
    events = {(row["user_id"], row["idempotency_key"]): row["id"] for row in world.rows(
        "SELECT id, user_id, idempotency_key FROM outbox_events WHERE event_type = 'CARD_ISSUE' AND id NOT IN (SELECT"
        " new_id FROM issuing.event_reissues)")}
    for key, bodies in answers.items():
        answered_events[key] = json.loads(next(iter(bodies)))["id"]
    checks.one("no accepted request was lost",
               ["%s %s: event %s" % (*key, event) for key, event in answered_events.items() if key not in events])
    checks.one("the request is the one of the answer",
               ["%s %s: event %s" % (*key, event) for key, event in answered_events.items()
                if events.get(key, event) != event])
    return answers


def check_repeats(checks, world, answers, accepted, seed):
    """Long after: a key still gives the answer that it gave first."""
    chance, wrong = random.Random("%s-repeats" % seed), []
    for user, key, body in chance.sample(accepted, min(40, len(accepted))):
        try:
            answer = world.post(user, key, body)
            if answer.status != 202 or answer.body.decode() not in answers[(user, key)]:
                wrong.append("%s %s: %r" % (user, key, answer))
        except (OSError, client.Closed) as error:
            wrong.append("%s %s: %r" % (user, key, error))
    checks.one("keys still give their first answers", wrong)


# ---- settling --------------------------------------------------------------------------------------------------------


def settle(checks, world, when, which=OPEN_AND_FREE):
    """No fault is left: what is open ends, what is late arrives, what is marked is looked up."""
    begun, wrong = time.monotonic(), []
    for condition, what in (
            ("SELECT count(*) FROM issuing.end_notifications", "every end is an event"),
            ("SELECT count(*) FROM outbox_events WHERE " + which, "every event is final"),
            ("SELECT count(*) FROM issuing.marks WHERE finished_at IS NULL", "no mark is unfinished")):
        try:
            world.sandbox.wait_late(SETTLE_SECONDS)
            harness.wait_until(lambda: world.sql(condition) == "0", what, SETTLE_SECONDS, 0.1)
        except harness.Failed as error:
            wrong.append(str(error))
    wrong += ["event %s is %s, due %s, now is %s: %s" % (row["id"], row["status"],
                                                         row["next_attempt_at"] or row["lease_until"],
                                                         row["now"], row["last_error"])
              for row in world.rows("SELECT *, clock_timestamp() AS now FROM outbox_events WHERE " + which)]
    wrong += ["mark of event %s: %s, due %s" % (row["event_id"], row["detail"], row["due_at"])
              for row in world.rows("SELECT * FROM issuing.marks WHERE finished_at IS NULL")]
    checks.one("%s: nothing is stuck (settled in %.1f s)" % (when, time.monotonic() - begun), wrong)


def ends(world, event_type=None):
    return collections.Counter({"%s %s" % (row["status"], row["reason_code"]) if row["reason_code"]
                                else row["status"]: row["n"]
                                for row in world.rows("SELECT status, reason_code, count(*) AS n FROM outbox_events"
                                                      " WHERE event_type = coalesce(%s, event_type) GROUP BY 1, 2" %
                                                      ("'%s'" % event_type if event_type else "NULL"))})


def check_ends(checks, world, when):
    print("       %s: %s" % (when, figures(ends(world))))
    checks.one("%s: every FAILED event is one of the questions that a campaign may lead to" % when,
               ["event %s: FAILED %s: %s" % (row["id"], row["reason_code"], row["last_error"])
                for row in world.rows("SELECT id, reason_code, last_error FROM outbox_events WHERE status = 'FAILED'")
                if not QUESTIONS.fullmatch(row["reason_code"] or "")])
    summary = world.sandbox.summary()
    checks.one("%s: no reference has two cards at the issuer" % when,
               ["%d" % summary["references_with_two_cards"]] if summary["references_with_two_cards"] else [])
    checks.one("%s: no card is linked twice" % when, ["%d" % summary["cards_linked_twice"]]
               if summary["cards_linked_twice"] else [])
    checks.one("%s: each request has one card, one refusal or one question; tables and ledgers agree" % when,
               invariants.check_ledgers(world) + check_live_cards(world))


def check_live_cards(world):
    """What FAILED leaves open: whatever the issuer has, it is one live card at most, and its owner's."""
    ledger = world.sandbox.ledger()
    wrong = ["the ledger is not complete"] if ledger["truncated"] else []
    owners = {row["id"]: row["user_id"] for row in world.rows("SELECT id, user_id FROM outbox_events")}
    live = collections.Counter(card["reference"] for card in ledger["cards"] if card["status"] == "active")
    wrong += ["event %s has %d live cards" % pair for pair in live.items() if pair[1] > 1]
    wrong += ["the card of event %s is of %s" % (card["reference"], card["user_id"]) for card in ledger["cards"]
              if owners.get(card["reference"]) != card["user_id"]]
    return wrong


# ---- operators -------------------------------------------------------------------------------------------------------


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Operators:
    """They answer the questions, with the verbs and in the order that docs/run.md describes."""

    def __init__(self, world, history, seed):
        self.world, self.history, self.random, self.wrong = world, history, random.Random("%s-operators" % seed), []

    def verb(self, *words, allowed=(0, 1, 75)):
        routes = {key.replace(".", "__"): value for key, value in self.world.settings.items()
                  if key.startswith("route.")}  # as on a host, where one file serves all programs
        done = self.world.ctl(*words, "--json", seconds=300, **routes)
        results = collections.Counter(row.get("result") or ("reissued" if "new_id" in row else "?")
                                      for row in lines(done))
        shown = [word if not UUID.fullmatch(str(word)) else "ID" for word in words]
        shown = " ".join(word for at, word in enumerate(shown) if word != "ID" or "ID" not in shown[:at])
        self.history.trouble("issuing-ctl %s" % shown, exit=done.returncode, results=figures(results))
        if done.returncode not in allowed:
            self.wrong.append("issuing-ctl %s: exit %d: %s" % (shown, done.returncode, done.stderr[-300:]))
        return lines(done)

    def failed(self):
        rows = self.world.rows("SELECT id, reason_code, event_type FROM outbox_events WHERE status = 'FAILED'"
                               " ORDER BY id")
        self.random.shuffle(rows)
        return rows

    def answer_all(self):
        for turn in range(ROUNDS):
            if not self.failed() or not self.turn(turn) or not self.wait_for_ends():
                break
        self.wrong += ["event %s is FAILED %s still" % (row["id"], row["reason_code"]) for row in self.failed()]
        # Refused requests have no card, neither here nor at the issuer.
        if self.world.sql("SELECT count(*) < 800 FROM outbox_events WHERE status = 'REJECTED'") == "t":
            self.wrong += ["event %s: reconcile of what is REJECTED: %s" % (row["id"], row["result"])
                           for row in self.verb("reconcile", "--all", "--type", "CARD_ISSUE", "--status", "REJECTED",
                                                "--timeout", "5m") if row["result"] != "ok"]

    def turn(self, turn):
        """Looks up at the issuer, which completes the requests that have a card there. The rest is tried again,
        replaced or given up."""
        failed = {row["event_type"] for row in self.failed()}
        for event_type in [each for each in ("CARD_ISSUE", services.CHARGE) if each in failed]:
            for row in self.verb("reconcile", "--all", "--type", event_type, "--status", "FAILED", "--timeout", "3m"):
                if row["result"] not in ("found", "not_found", "cancelled_at_issuer", "open", "ok", "executed",
                                         "not_executed"):
                    self.wrong.append("event %s: reconcile of what is FAILED: %s %s" %
                                      (row["id"], row["result"], row.get("why")))
        if not self.wait_for_ends():
            return False
        groups = {"replay": [], "resolve": [], "reissue": []}
        for row in self.failed():
            verb = self.random.choice(("replay", "replay", "resolve", "reissue"))
            if verb == "reissue" and (len(groups["reissue"]) >= 8 or row["event_type"] != "CARD_ISSUE"):
                verb = "replay"
            if turn == 1:
                verb = "replay"
            if row["reason_code"] in ("issuer_key_expired", "issuer_key_spent", "route_key_expired") and verb == "replay":
                verb = "resolve"  # a replay would only look it up again, or not even that
            groups[verb].append(row["id"])
        for at in range(0, len(groups["replay"]), 100):
            self.verb("replay", *groups["replay"][at:at + 100], "--reason", "the peers are well again")
        for at in range(0, len(groups["resolve"]), 100):
            self.verb("resolve", *groups["resolve"][at:at + 100], "--confirm-no-card", "--confirm-not-executed",
                      "--reason", "the issuer has no card, the receiver has executed nothing")
        for event in groups["reissue"]:
            self.verb("reissue", event, "--confirm", "--timeout", "60s", "--reason", "the issuer has no card")
        return True

    def wait_for_ends(self):
        """False: something does not end and is reported; nothing more is started."""
        try:
            harness.wait_until(lambda: self.world.sql("SELECT (SELECT count(*) FROM outbox_events WHERE " +
                                                      OPEN_AND_FREE + ") +"
                                                      " (SELECT count(*) FROM issuing.marks WHERE finished_at"
                                                      " IS NULL)") == "0",
                               "what operators began is done", SETTLE_SECONDS, 0.1)
            return True
        except harness.Failed as error:
            self.wrong.append(str(error))
            return False


def check_operators(checks, world, history, seed):
    operators = Operators(world, history, seed)
    operators.answer_all()
    checks.one("operators answer every question with replay, reconcile, reissue and resolve", operators.wrong)
    settle(checks, world, "after the operators", OPEN)
    check_ends(checks, world, "after the operators")
    chains = world.rows("SELECT old_id, o.status AS old_status, o.reason_code, n.status FROM issuing.event_reissues r"
                        " LEFT JOIN outbox_events o ON o.id = r.old_id LEFT JOIN outbox_events n ON n.id = r.new_id")
    checks.one("what was reissued ended once, in its place (%d)" % len(chains),
               ["event %s: %s %s, its successor %s" % (row["old_id"], row["old_status"], row["reason_code"],
                                                       row["status"])
                for row in chains if (row["old_status"], row["reason_code"]) != ("REJECTED", "reissued") or
                row["status"] not in ("COMPLETED", "REJECTED")])


def check_doctor(checks, world, clock):
    """On a machine as it should be: the clock is right again, and the disk is waited for."""
    clock.step(-clock.real)
    world.sql("ALTER SYSTEM SET fsync = on")
    world.sql("SELECT pg_reload_conf()")
    harness.wait_until(lambda: world.sql("SHOW fsync") == "on", "fsync is on")
    for verb in ("doctor", "prove"):
        done = world.ctl(verb, "--json", seconds=600)
        checks.one("issuing-ctl %s is green" % verb,
                   ([] if done.returncode == 0 else ["exit %d: %s" % (done.returncode, done.stderr[-300:])]) +
                   ["%s: %s" % (row["check"], row["found"]) for row in lines(done) if not row["ok"]])


def check_all_logs(world):
    """Those of the programs, of issuing-ctl, of PostgreSQL (kept: its folder goes with the cluster), and what this
    program wrote down itself."""
    shutil.copyfile(world.dir / "pg" / "log", world.dir / "postgresql.log")
    wrong = invariants.check_logs(world)
    for path in world.dir.glob("*.jsonl"):
        wrong += invariants._search(path.read_text(errors="replace"), world.numbers, path.name)
    return wrong if world.numbers else [*wrong, "no card number was made, so none was looked for"]


# ---- stories ---------------------------------------------------------------------------------------------------------


def story(world, recorder, history, event):
    """Everything that is known of one event, in the order of time; its calls at the peers among it."""
    def at(row, *names):
        return next((row[name] for name in names if row.get(name)), "")

    def shown(row):
        return " ".join("%s=%s" % (name, json.dumps(value) if isinstance(value, (dict, list)) else value)
                        for name, value in row.items() if value is not None and
                        name not in ("card_number", "number_encrypted"))
    found = ["==== event %s" % event]
    for table, query in (
            ("event", "SELECT * FROM outbox_events WHERE id = '%s'"),
            ("card",
             "SELECT id, user_id, status, issuer_card_id, created_at, updated_at FROM cards WHERE request_id = '%s'"),
            ("attempt", "SELECT * FROM outbox_attempts WHERE event_id = '%s' ORDER BY ended_at"),
            ("mark", "SELECT * FROM issuing.marks WHERE event_id = '%s' ORDER BY id"),
            ("operator", "SELECT * FROM operator_actions WHERE event_id = '%s' ORDER BY id"),
            ("reissue", "SELECT * FROM issuing.event_reissues WHERE '%s' IN (old_id, new_id)")):
        found += ["%-8s %s" % (table, shown(row)) for row in world.rows(query % event)]
    ledger = world.sandbox.ledger(reference=event)
    for name in ("cards", "links", "unlinks", "late"):
        found += ["%-8s %s" % (name, shown(row)) for row in ledger.get(name, [])]
    events = [("call", row["at"], shown({name: row[name] for name in ("call", "status", "fault", "key")}))
              for row in recorder.rows() if row["reference"] == event or (row["key"] or "").startswith(event)]
    begun = history.begun_wall
    for row in history.rows():
        if row["what"] == "trouble":
            when = begun + row["t"]
            events.append(("trouble", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when)) + ".%03dZ" %
                           (when % 1 * 1000),
                           shown({name: value for name, value in row.items() if name not in ("t", "what")})))
    times = [row[1] for row in events if row[0] == "call"]
    events = sorted(row for row in events if times and times[0][:17] <= row[1][:17] <= times[-1][:17] + "~")
    found += ["%-8s %s %s" % (kind, when, text) for kind, when, text in sorted(events, key=lambda row: row[1])]
    for log in sorted(world.dir.glob("*.log")):
        found += ["%-8s %s" % (log.stem, line[:500]) for line in log.read_text(errors="replace").splitlines()
                  if event in line][:60]
    return found


def print_stories(checks, world, recorder, history):
    """The stories of all events that complaints name; to a file, and the first ones to standard output."""
    wanted = list(dict.fromkeys(found for line in checks.complaints for found in UUID.findall(line)))
    known = {row["id"] for row in world.rows("SELECT id FROM outbox_events")} if wanted else set()
    path = world.dir / "stories.txt"
    with open(path, "w") as file:
        for number, event in enumerate(event for event in wanted if event in known):
            text = "\n".join(story(world, recorder, history, event))
            file.write(text + "\n\n")
            if number < STORIES:
                print(text, flush=True)
            if number == 50:
                break
    if wanted:
        print("       stories: %s" % path, flush=True)
