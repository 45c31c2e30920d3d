"""What is run on each layout: every named statement of common/pg/sql, and calls that reach what functions do further
inside. A statement's parameters are those of CASES where a name is there, else a value of each type.

A call is one transaction that is rolled back, on the rows of FIXTURE, so no call depends on another."""
import re
import sys

from processes import ROOT

sys.path.insert(0, str(ROOT / "common" / "pg" / "sql"))

import embed  # noqa: E402


def event(number):
    return "'01930000-0000-7000-8000-0000000000%02d'::uuid" % number


TOKEN = "'01930000-0000-7000-8000-0000000000aa'::uuid"
CHECK_TOKEN = "'01930000-0000-7000-8000-0000000000bb'::uuid"
CARD = "'01930000-0000-7000-8000-0000000000c1'::uuid"
SEEN = "1767225600000000"
WHO = "'anna', 'anna', NULL, 'a reason'"
PENDING, RUNNING, FAILED, COMPLETED, LOST, ORDERED_FIRST, ORDERED, REJECTED, NEW = (event(n) for n in range(1, 10))
FREE = event(11)  # PENDING, and never sent


def check(number):
    return "'01930000-0000-7000-8000-0000000001%02d'::uuid" % number


FIXTURE = """
SET search_path = pg_catalog, issuing, pg_temp;
INSERT INTO routes VALUES ('ORDER_PAID', true, true, 86400000, 10, false, 'w', now());
INSERT INTO outbox_events (id, created_at, updated_at, next_attempt_at, completed_at, first_sent_at, lease_until,
                           lease_token, retry_count, lost_count, event_type, status, user_id, idempotency_key, payload,
                           reason_code)
SELECT v.id::uuid, t, t, t, CASE WHEN v.status NOT IN ('PENDING', 'PROCESSING') THEN t END,
       CASE WHEN v.sent THEN t END, CASE WHEN v.status = 'PROCESSING' THEN t + v.lease END,
       CASE WHEN v.status = 'PROCESSING' THEN {token} END, 1, v.lost, v.type, v.status, v.who, 'k' || v.n,
       CASE v.type WHEN 'CARD_ISSUE' THEN jsonb '{{"kind": "new"}}' ELSE jsonb '{{}}' END, v.reason
FROM (VALUES
    (1, {pending}, 'PENDING', true, interval '0', 0, 'CARD_ISSUE', 'user-1', NULL),
    (2, {running}, 'PROCESSING', true, interval '1000 years', 0, 'CARD_ISSUE', 'user-2', NULL),
    (3, {failed}, 'FAILED', true, interval '0', 0, 'CARD_ISSUE', 'user-3', 'outcome_unknown'),
    (4, {completed}, 'COMPLETED', true, interval '0', 0, 'CARD_ISSUE', 'user-4', NULL),
    (5, {lost}, 'PENDING', true, interval '0', 2, 'CARD_ISSUE', 'user-5', NULL),
    (6, {ordered_first}, 'FAILED', true, interval '0', 0, 'ORDER_PAID', 'user-6', 'receiver_refused'),
    (7, {ordered}, 'PENDING', false, interval '0', 0, 'ORDER_PAID', 'user-6', NULL),
    (8, {rejected}, 'REJECTED', true, interval '0', 0, 'CARD_ISSUE', 'user-8', 'issuer_refused'),
    (11, {free}, 'PENDING', false, interval '0', 0, 'CARD_ISSUE', 'user-11', NULL)
) AS v (n, id, status, sent, lease, lost, type, who, reason), (SELECT timestamptz '2026-01-01 00:00:00+00' AS t) AS c;
INSERT INTO lost_events (event_id) VALUES ({lost});
INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4, number_record)
VALUES ({card}, {completed}, 12, 2030, 'user-4', 'ic_1', '4242', '\\x0100000000000000010203');
INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
VALUES ({completed}, now(), 'user-4', 'k4', '\\x04');
INSERT INTO rate_limit_log (at, request_id, accepted, user_id)
VALUES (now() - interval '1 minute', {completed}, true, 'user-4'),
       (now() + interval '1 hour', {completed}, true, 'user-7');
INSERT INTO peer_checks (id, event_id, deadline_at, action, actor, reason, lease_token, due_at)
SELECT v.id, v.event, now() + interval '1 day', v.action, 'anna', 'a reason',
       CASE WHEN v.leased THEN {check_token} END, now() - interval '1 minute'
FROM (VALUES (uuid {check1}, uuid {failed}, 'reconcile', true), ({check2}, {completed}, 'reconcile', false),
             ({check3}, {ordered_first}, 'reconcile', true), ({check4}, {rejected}, 'reconcile', true)
) AS v (id, event, action, leased);
INSERT INTO issuer_checks (id, deadline_at, actor) VALUES ({check1}, now() + interval '1 day', 'anna');
INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)
VALUES (now(), 'CARD_ISSUE', 'COMPLETED', '', ARRAY[now()], 1);
""".format(token=TOKEN, check_token=CHECK_TOKEN, card=CARD, pending=PENDING, running=RUNNING, failed=FAILED,
           completed=COMPLETED, lost=LOST, ordered_first=ORDERED_FIRST, ordered=ORDERED, rejected=REJECTED, free=FREE,
           check1=check(1), check2=check(2), check3=check(3), check4=check(4)).replace("uuid '", "'")

VALUES = {"int8": "77", "bool": "true", "uuid": "'01930000-0000-7000-8000-000000000077'", "text": "'77'",
          "bytea": "'\\x77'", "int8[]": "'{77}'", "bool[]": "'{true}'", "text[]": "'{77}'",
          "bytea[]": "ARRAY['\\x77'::bytea]", "uuid[]": "'{01930000-0000-7000-8000-000000000077}'"}


def accept(user, key="'k'", number=NEW, body='{"kind":"new"}', count="10", attempts="false"):
    return ["ARRAY[%s]" % number, "ARRAY['%s']" % user, "ARRAY[%s]" % key, "ARRAY['\\x01'::bytea]",
            "ARRAY['%s']" % body, "ARRAY[NULL::text]", count, "3600000", attempts, "86400000"]


def end(status, **own):
    """Parameters of outbox_end for the running event."""
    values = {"delay": "1000", "give_back": "false", "reason": "NULL", "outcome": "retry", "code": "issuer_http_503",
              "result": "NULL", **own}
    return ["ARRAY[%s]" % RUNNING, "ARRAY[%s]" % TOKEN, "ARRAY['%s']" % status, "ARRAY[%s]" % values["delay"],
            "ARRAY[%s]" % values["give_back"], "'{false}'", "ARRAY[%s]" % values["give_back"],
            "ARRAY[%s::text]" % values["reason"], "ARRAY[NULL::text]", "'{wrong}'", "'{issue}'",
            "ARRAY['%s']" % values["outcome"], "ARRAY['%s']" % values["code"], "ARRAY[NULL::text]", "'{true}'", "'w'",
            "'{5}'", "ARRAY[NULL::text]", "ARRAY[NULL::uuid]", "'{true}'", "ARRAY[NULL::text]", "ARRAY[NULL::text]",
            "ARRAY[NULL::text]", "ARRAY[%s::text]" % values["result"]]


def claim(alone="false", kind="CARD_ISSUE", ordered="false"):
    return ["'01930000-0000-7000-8000-0000000000ab'", "10", "10000", "'w'", "NULL", "1000", alone, "'%s'" % kind,
            ordered]


ONE, TOKENS = "ARRAY[%s]" % RUNNING, "ARRAY[%s]" % TOKEN
# name: [(what it reaches, parameters, what its output must contain), ...]
CASES = {
    "accept_batch": [
        ("one user", accept("user-9"), "accepted"),
        ("two users", ["ARRAY[%s, %s]" % (NEW, event(10)), "'{user-9,user-10}'", "'{k,k}'",
                       "ARRAY['\\x01'::bytea, '\\x02']", "ARRAY['{\"kind\":\"new\"}', '{\"kind\":\"new\"}']",
                       "ARRAY[NULL, NULL::text]", "10", "3600000", "false", "86400000"], "accepted"),
        ("another body under a key", accept("user-4", "'k4'"), "reused"),
        ("beyond the limit", accept("user-4", count="1"), "limited"),
        ("beyond a limit that counts refused tries", accept("user-4", count="1", attempts="true"), "limited"),
        ("a try from a time to come", accept("user-7", count="1"), "limited"),
        ("a card that is replaced", accept("user-4", body='{"kind":"reissue","replaces":%s}'
                                           % CARD.split("::")[0].replace("'", '"')), "accepted")],
    "outbox_claim": [
        ("due events", claim(), "user-1"),
        ("one that is tried alone", claim("true"), "user-5"),
        ("an ordered type", claim(kind="ORDER_PAID", ordered="true"), "|")],
    "outbox_save": [("a card", [ONE, TOKENS, "ARRAY[%s]" % event(77), "'{ic_2}'", "'{4242}'", "'{12}'", "'{2030}'",
                                "ARRAY[NULL::bytea]", "ARRAY[NULL::uuid]"], "77")],
    "outbox_complete": [
        ("a card request", [ONE, TOKENS, "'w'", "'{5}'", "'link'", "ARRAY[NULL::text]"], "02"),
        ("a delivery with an answer", [ONE, TOKENS, "'w'", "'{5}'", "'deliver'", "ARRAY['{\"a\": 1}']"], "02")],
    "outbox_end": [("a retry", end("PENDING"), "02"),
                   ("a deferral", end("PENDING", give_back="true", outcome="deferred"), "02"),
                   ("a refusal", end("REJECTED", reason="'issuer_refused'", outcome="rejected"), "02"),
                   ("an answer that is kept", end("COMPLETED", result="'{}'", outcome="completed"), "02")],
    "outbox_extend": [("a lease", [ONE, TOKENS, "5000"], "02")],
    "outbox_keep": [("parameters", [ONE, TOKENS, "ARRAY['{}']"], "02")],
    "outbox_mark": [("a mark", [ONE, TOKENS, "'{x}'", "ARRAY[NULL::text]"], "02")],
    "outbox_sweep": [("expired leases", ["NULL", "0", "NULL", "10", "5", "'CARD_ISSUE'"], "|")],
    "outbox_rebase": [("rows of a clock ahead", ["10", "'CARD_ISSUE'"], "")],
    "heartbeat": [("a worker", ["'w'", "'h'", "1", "'v'", "1", "0", "1", "false", "'{issuer}'", "'{closed}'", "'{1}'",
                                "ARRAY[NULL::text]", "'{false}'", "'{false}'", "ARRAY[NULL::int8]", "'{0}'", "'{0}'",
                                "'{1}'", "'{0}'"], "|t")],
    "heartbeat_routes": [("a route", ["'w'", "'{ORDER_PAID}'", "'{true}'", "'{true}'", "'{1000}'", "'{5}'",
                                      "'{false}'"], "")],
    "heartbeat_leave": [("a worker that ends", ["'w'"], "")],
    "reconcile_ask": [("a look-up", ["ARRAY[%s]" % PENDING, "'why'"], "t")],
    "reconcile_take": [("a mark", ["'01930000-0000-7000-8000-0000000000ac'", "10", "1000", "'w'", "'{CARD_ISSUE}'"],
                        "reconcile")],
    "reconcile_put_back": [("a mark", [check(1), CHECK_TOKEN, "1000", "'why'"], "")],
    "reconcile_note_orphan": [("a mark", [check(4), CHECK_TOKEN], "t")],
    "reconcile_end": [
        ("found", [check(1), CHECK_TOKEN, SEEN, "'found'", "NULL"], "done"),
        ("cancelled at the issuer", [check(1), CHECK_TOKEN, SEEN, "'cancelled_at_issuer'", "'x'"], "done"),
        ("a duplicate", [check(1), CHECK_TOKEN, SEEN, "'duplicate'", "'x'"], "done"),
        ("an orphan", [check(4), CHECK_TOKEN, SEEN, "'orphan_cancelled'", "'x'"], "done")],
    "reconcile_end_executed": [("executed", [check(3), CHECK_TOKEN, SEEN, "'{}'"], "done")],
    "operator_replay": [("a FAILED event", [FAILED, SEEN, WHO], "PENDING")],
    "operator_cancel": [("an event that was not sent", [FREE, SEEN, "'x'", WHO], "REJECTED")],
    "operator_resolve": [("a FAILED event", [FAILED, SEEN, "true", "1000", "'x'", WHO, "false", "'{}'", "'{}'", "1000",
                                             "'x'"], "REJECTED")],
    "operator_ask_reconcile": [("a look-up", ["ARRAY[%s]" % FAILED, "1000", WHO], "|")],
    "operator_ask_reissue": [("a second mark", [FAILED, "1000", WHO], "busy")],
    "operator_withdraw_check": [("a mark", [check(1)], "withdrawn")],
    "operator_ask_issuer_check": [("a check", ["NULL", "1000", WHO], "|")],
    "operator_control": [("pause", ["'pause_target'", "'issuer'", WHO], ""),
                         ("probe", ["'probe_target'", "'issuer'", WHO], "")],
    "operator_stats_rebuild": [("a rebuild", ["NULL", WHO], "|")],
    "issuer_check_take": [("a check", ["'01930000-0000-7000-8000-0000000000ad'", "1000", "'w'"], "0101")],
    "issuer_check_end": [("a check", [check(1), TOKEN, "'ok'", "'[]'"], "f")],
    "card_number": [("a number", [CARD, "'user-4'", "'{1}'", "5"], "|")],
    "statistics_fold": [("a change", ["10"], "1|0|f")],
    "keep_rows": [("a pass", ["3600000", "3600000", "86400000"], "")],
    "keep_house": [("a pass", ["3600000", "3600000", "86400000", "3600000"], "created")],
    "operator_data_timeout": [("a timeout", ["'1s'"], "")],
    "console_limit": [("a session", ["5", "false"], "")],
    "operator_migrate_lock_timeout": [("a timeout", ["'1s'"], "")],
    "operator_migrate_path": [("a path", ["'issuing'"], "")],
    "operator_rights": [("the list", ["'[]'"], "")],
    "operator_migrate_as": [("the owner", ["'issuing_owner'"], "")],
}
# What no statement reaches: other services, and what only the owner does.
CALLS = [
    ("another service inserts", "INSERT INTO issuing.outbox_events (event_type, user_id, payload) VALUES"
     " ('ORDER_PAID', 'user-6', '{}') RETURNING 'made'", "made"),
    ("another service inserts beyond the bounds", "INSERT INTO issuing.outbox_events (event_type, user_id, payload)"
     " VALUES ('ORDER_PAID', repeat('x', 200), '{}')", "beyond its range"),
    ("a reissue takes its place", "INSERT INTO issuing.outbox_events (event_type, user_id, payload) VALUES"
     " ('CARD_ISSUE', 'user-4', jsonb_build_object('kind', 'reissue', 'replaces', %s)) RETURNING 'made'"
     % CARD.replace("::uuid", "::text"), "made"),
    ("set_retention", "SELECT issuing.set_retention('keys', '2 h')", ""),
    ("set_ceiling", "SELECT issuing.set_ceiling('reveals', 5)", ""),
    ("no change to fold", "SELECT issuing.fold_changes('{}')", "0"),
    ("mend_tries", "SELECT issuing.mend_tries('user-7')", ""),
    ("a partition is dropped", "DO $$ DECLARE n text := (SELECT p.name FROM issuing.partitions p WHERE p.parent ="
     " 'idempotency_keys'); BEGIN PERFORM issuing.partition_drop(n, now()); END $$", ""),
]
# The role that runs a statement, by how its name begins; the first match counts. Calls are the owner's.
ROLES = [("accept_", "issuing_api"), ("request", "issuing_api"), ("card_", "issuing_api"),
         ("notify_wake", "issuing_api"), ("owner_", "issuing_owner"), ("operator_migrate_", "issuing_owner"),
         ("operator_", "issuing_operator"), ("console_", "issuing_viewer"), ("", "issuing_worker")]
# Commands that begin or end a transaction, or make the first table: no statement of ours runs beside them.
LEFT_OUT = {"operator_migrate_begin", "operator_migrate_commit", "operator_migrate_rollback", "operator_migrate_table"}


def statements():
    for path in sorted((ROOT / "common" / "pg" / "sql").glob("*.sql")):
        for statement in embed.read(str(path)):
            embed.compact(statement)
            if statement.name not in LEFT_OUT:
                yield statement


def types(statement):
    names = {"bigint": "int8", "boolean": "bool"}
    found = dict(re.findall(r"\$(\d+)::((?:\w+)(?:\[\])?)", statement.text))
    return [re.sub(r"^\w+", lambda word: names.get(word[0], word[0]), found[str(n + 1)])
            for n in range(statement.parameters)]


def script(owner=None):
    """[(name, SQL, what its output contains)], one for each case of each statement, then the calls. owner: the role
    that runs all of them, where rights are not what is asked."""
    found = []
    for statement in statements():
        for what, given, wanted in CASES.get(statement.name, [("", None, "")]):
            name = "%s: %s" % (statement.name, what) if what else statement.name
            role = owner or next(role for start, role in ROLES if statement.name.startswith(start))
            role = "SET ROLE %s;\n" % role
            if statement.parameters == 0:
                found.append((name, role + statement.text + ";", wanted))
                continue
            values = given or [VALUES[each] for each in types(statement)]
            found.append((name, role + "PREPARE tried AS %s;\nEXECUTE tried(%s);\nDEALLOCATE tried;"
                          % (statement.text, ", ".join(values)), wanted))
    return found + [(name, "SET ROLE issuing_owner;\n%s;" % sql, wanted) for name, sql, wanted in CALLS]
