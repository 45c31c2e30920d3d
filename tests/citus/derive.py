#!/usr/bin/env python3
"""derive.py [--check]: writes examples/citus/functions.sql, functions of the schema in a form that Citus can plan.

Each is the newest definition of the migrations with the rules of FORMS applied. A rule whose text is not there any more
is an error: then the definition has changed, and its rules have to be looked at. --check writes nothing and says
whether the file is up to date; ./dev lint sql does so, too."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "examples" / "citus" / "functions.sql"

HEADER = """-- Made by tests/citus/derive.py from the migrations. Do not edit.
--
-- The functions of the schema that Citus 12.1 cannot plan as they are, in a form that it can: a time is a variable, and
-- not now() or clock_timestamp() inside CASE, COALESCE or SET of a write; SET calls no function on columns that is not
-- IMMUTABLE; row locks are taken in a CTE of their own; a function with parameters that touches a table is in PL/pgSQL.
-- What they do is the same. distribute.sql runs this file.

DO $$
BEGIN
    IF (SELECT max(version) FROM issuing.schema_migration) <> %d THEN
        RAISE EXCEPTION 'this file belongs to version %d of the schema, and this database has version %%',
            (SELECT max(version) FROM issuing.schema_migration);
    END IF;
END
$$;
"""

NOW = ("now()", "t")
BESIDE = "h.passed_at - interval '5 minutes' AND h.passed_at + interval '5 minutes'"


def variables(*lines, before="BEGIN\n", indent="    "):
    """The rule that declares these variables in a function that has none."""
    return before, "DECLARE\n%s%s" % ("".join("%s    %s\n" % (indent[4:], line) for line in lines), indent[4:] + before)


# (how the definition begins, [(text, its replacement), ...]). A text that occurs more than once is replaced everywhere.
FORMS = [
    ("note_routes(", [
        ("           OR r.seen_at NOT BETWEEN at - interval '1 minute' AND at + interval '1 minute';",
         "           OR r.seen_at - excluded.seen_at NOT BETWEEN interval '-1 minute' AND interval '1 minute';"),
    ]),
    ("wake_held(", [
        ("LANGUAGE sql", "LANGUAGE plpgsql"),
        ("        UPDATE outbox_events e\n",
         "    DECLARE\n        t timestamptz := clock_timestamp();\n    BEGIN\n        UPDATE outbox_events e\n"),
        ("SET next_attempt_at = clock_timestamp()", "SET next_attempt_at = t"),
        ("greatest(e.updated_at, clock_timestamp())", "greatest(e.updated_at, t)"),
        ("AND e.status = 'PENDING'\n", "AND e.status = 'PENDING';\n    END\n"),
    ]),
    ("claim(\n    new_token", [
        NOW,
        ("DECLARE\n", "DECLARE\n    t timestamptz := now();\n"
                      "    leased_until timestamptz := t + lease_ms * interval '1 millisecond';\n"),
        ("e.first_sent_at, e.updated_at,\n               CASE WHEN e.updated_at > t",
         "e.first_sent_at, e.updated_at, e.last_sent_at,\n               e.deferred_since,\n"
         "               CASE WHEN e.updated_at > t"),
        ("        FROM (SELECT d.id, d.first_sent_at, d.updated_at, d.ahead FROM due d UNION ALL SELECT * FROM one)"
         " due\n",
         """        FROM (SELECT d.id, d.first_sent_at, d.updated_at,
                     least(coalesce(d.first_sent_at - d.ahead, t), t) AS new_first,
                     CASE WHEN d.last_sent_at IS NOT NULL THEN least(d.last_sent_at - d.ahead, t) END AS new_last,
                     CASE WHEN d.deferred_since IS NOT NULL THEN least(d.deferred_since - d.ahead, t) END
                         AS new_deferred
              FROM (SELECT x.id, x.first_sent_at, x.updated_at, x.last_sent_at, x.deferred_since, x.ahead FROM due x
                    UNION ALL SELECT * FROM one) d) due
"""),
        ("lease_until = t + lease_ms * interval '1 millisecond',\n", "lease_until = leased_until,\n"),
        ("first_sent_at = least(coalesce(e.first_sent_at - due.ahead, t), t),", "first_sent_at = due.new_first,"),
        ("last_sent_at = CASE WHEN e.last_sent_at IS NOT NULL THEN least(e.last_sent_at - due.ahead, t) END,",
         "last_sent_at = due.new_last,"),
        ("deferred_since = CASE WHEN e.deferred_since IS NOT NULL THEN least(e.deferred_since - due.ahead, t) END,",
         "deferred_since = due.new_deferred,"),
    ]),
    ("save(", [
        ("""    WITH held AS MATERIALIZED (
        SELECT e.user_id, a.*
        FROM unnest""", """    WITH locked AS MATERIALIZED (
        SELECT e.id, e.user_id
        FROM outbox_events e
        WHERE e.id = ANY (ids) AND e.lease_token = tokens[array_position(ids, e.id)]
        FOR NO KEY UPDATE
    ), held AS MATERIALIZED (
        SELECT e.user_id, a.event_id, a.card_id, a.issuer_card_id, a.last4, a.exp_month, a.exp_year, a.number_record,
               a.replaces
        FROM unnest"""),
        ("""        JOIN outbox_events e ON e.id = a.event_id
        WHERE e.lease_token = a.token
        FOR NO KEY UPDATE OF e
""", "        JOIN locked e ON e.id = a.event_id\n"),
    ]),
    ("complete(\n    ids uuid[], tokens uuid[], worker text, tooks_ms int8[],\n    step text", [
        NOW,
        variables("t timestamptz := now();"),
        ("    WITH completed AS (\n", """    WITH asked AS MATERIALIZED (
        SELECT a.id, a.token, a.took_ms, a.result IS NOT NULL AS has_result,
               CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) END AS result
        FROM unnest(ids, tokens, tooks_ms, results) AS a (id, token, took_ms, result)
    ), completed AS (
"""),
        ("result = CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) ELSE e.result END\n"
         "        FROM unnest(ids, tokens, tooks_ms, results) AS a (id, token, took_ms, result)\n",
         "result = CASE WHEN a.has_result THEN a.result ELSE e.result END\n        FROM asked a\n"),
    ]),
    ("end_attempts(\n    ids uuid[], tokens uuid[], statuses text[],\n    delays_ms", [
        NOW,
        variables("t timestamptz := now();"),
        ("        SELECT *, a.code !~ '^(issuer|core|route)_' AS is_ours\n",
         """        SELECT a.*, a.code !~ '^(issuer|core|route)_' AS is_ours,
               CASE WHEN a.status = 'PENDING' THEN t + a.delay_ms * interval '1 millisecond' END AS next_at,
               CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) END AS new_result
"""),
        ("CASE WHEN a.status = 'PENDING' THEN t + a.delay_ms * interval '1 millisecond'\n"
         "                                   ELSE e.next_attempt_at END",
         "CASE WHEN a.status = 'PENDING' THEN a.next_at ELSE e.next_attempt_at END"),
        ("CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) ELSE e.result END",
         "CASE WHEN a.result IS NOT NULL THEN a.new_result ELSE e.result END"),
        ("        PERFORM tell_ends(ids, t);\n",
         "        IF EXISTS (SELECT FROM routes r WHERE r.event_type = 'CARD_REQUEST_ENDED') THEN\n"
         "            PERFORM tell_ends(ids, t);\n        END IF;\n"),
    ]),
    ("keep_clock(", [
        ("LANGUAGE sql", "LANGUAGE plpgsql"),
        ("        UPDATE house_clock h\n        SET passed_at = now(),\n"
         "            steady_from = CASE WHEN now() BETWEEN %s THEN h.steady_from ELSE now() END,\n"
         "            believed_at = CASE WHEN h.passed_at IS NULL OR h.steady_from < now() - interval '1 day'\n"
         "                                    AND now() BETWEEN %s THEN now()\n"
         "                               WHEN now() NOT BETWEEN %s THEN h.believed_at\n"
         "                               ELSE h.believed_at + greatest(now() - h.passed_at, interval '0') END\n"
         % (BESIDE, BESIDE, BESIDE), """    DECLARE
        t timestamptz := now();
        h house_clock;
        is_step bool; -- or a pause; NULL = the first pass
    BEGIN
        SELECT c.* INTO h FROM house_clock c FOR UPDATE;
        is_step := t NOT BETWEEN h.passed_at - interval '5 minutes' AND h.passed_at + interval '5 minutes';
        IF is_step IS NULL OR h.steady_from < t - interval '1 day' AND NOT is_step THEN
            h.believed_at := t;
        ELSIF NOT is_step THEN
            h.believed_at := h.believed_at + greatest(t - h.passed_at, interval '0');
        END IF;
        IF is_step IS NOT FALSE THEN
            h.steady_from := t;
        END IF;
        UPDATE house_clock c SET passed_at = t, steady_from = h.steady_from, believed_at = h.believed_at;
    END
"""),
    ]),
    ("fold_changes(", [
        ("LANGUAGE sql", "LANGUAGE plpgsql"),
        ("""        WITH added AS (
            INSERT INTO outbox_statistics AS s (hour, event_type, status, reason_code, below_ms, count, sum_ms)
            SELECT w.hour, w.event_type, w.status, w.reason_code, w.below_ms, sum(w.count)::int8, sum(w.sum_ms)::int8
            FROM statistics_waiting w
            WHERE w.place = ANY (places)
            GROUP BY 1, 2, 3, 4, 5
            ON CONFLICT (hour, event_type, status, reason_code, below_ms)
            DO UPDATE SET count = s.count + excluded.count, sum_ms = s.sum_ms + excluded.sum_ms
        ), taken AS (
            DELETE FROM statistics_changes c WHERE c.ctid = ANY (places)
            RETURNING 1
        )
        SELECT count(*) FROM taken
""", """    DECLARE
        hours timestamptz[];
        types text[];
        statuses text[];
        codes text[];
        bounds int8[];
        counts int8[];
        sums int8[];
        taken int8;
    BEGIN
        IF coalesce(cardinality(places), 0) = 0 THEN
            RETURN 0;
        END IF;
        SELECT array_agg(g.hour), array_agg(g.event_type), array_agg(g.status), array_agg(g.reason_code),
               array_agg(g.below_ms), array_agg(g.count), array_agg(g.sum_ms)
        INTO hours, types, statuses, codes, bounds, counts, sums
        FROM (SELECT w.hour, w.event_type, w.status, w.reason_code, w.below_ms, sum(w.count)::int8 AS count,
                     sum(w.sum_ms)::int8 AS sum_ms
              FROM statistics_waiting w
              WHERE w.place = ANY (places)
              GROUP BY 1, 2, 3, 4, 5) g;
        INSERT INTO outbox_statistics AS s (hour, event_type, status, reason_code, below_ms, count, sum_ms)
        SELECT u.hour, u.event_type, u.status, u.reason_code, u.below_ms, u.count, u.sum_ms
        FROM unnest(hours, types, statuses, codes, bounds, counts, sums)
            AS u (hour, event_type, status, reason_code, below_ms, count, sum_ms)
        ON CONFLICT (hour, event_type, status, reason_code, below_ms)
        DO UPDATE SET count = s.count + excluded.count, sum_ms = s.sum_ms + excluded.sum_ms;
        -- The same changes: only the fold deletes those that are not refused, and one fold runs at a time.
        DELETE FROM statistics_changes c WHERE c.ctid = ANY (places);
        GET DIAGNOSTICS taken = ROW_COUNT;
        RETURN taken;
    END
"""),
    ]),
    ("count_end(", [
        ("LANGUAGE sql", "LANGUAGE plpgsql"),
        ("        INSERT INTO", "    BEGIN\n        INSERT INTO"),
        ("'FAILED')\n", "'FAILED');\n    END\n"),
    ]),
    ("note_check(", [
        ("LANGUAGE sql", "LANGUAGE plpgsql"),
        ("        INSERT INTO", "    BEGIN\n        INSERT INTO"),
        ("coalesce(more, '{}'))\n", "coalesce(more, '{}'));\n    END\n"),
    ]),
    ("reopen(", [
        ("        after outbox_events;\n",
         "        after outbox_events;\n        t timestamptz := clock_timestamp();\n"),
        ("next_attempt_at = now(), updated_at = clock_timestamp()", "next_attempt_at = now(), updated_at = t"),
    ]),
    ("reject(", [
        ("        after outbox_events;\n",
         "        after outbox_events;\n        t timestamptz := clock_timestamp();\n"),
        ("completed_at = clock_timestamp(), updated_at = clock_timestamp()", "completed_at = t, updated_at = t"),
    ]),
    ("ask_reconcile(", [
        NOW,
        ("    deadline timestamptz := t +", "    t timestamptz := now();\n    deadline timestamptz := t +"),
    ]),
    ("withdraw_check(", [
        ("    found_result text;\n", "    found_result text;\n    t timestamptz := clock_timestamp();\n"),
        ("finished_at = clock_timestamp()", "finished_at = t"),
    ]),
    ("ask_check(", [NOW, variables("t timestamptz := now();")]),
    ("take_checks(new_token uuid, most int8, lease_ms int8, worker_name text, types", [
        NOW,
        ("DECLARE\n", "DECLARE\n    t timestamptz := now();\n"
                      "    leased_until timestamptz := t + lease_ms * interval '1 millisecond';\n"),
        ("""    DELETE FROM peer_checks p
    WHERE p.id IN (SELECT o.id FROM peer_checks o
                   WHERE o.finished_at < t - interval '7 days' LIMIT 100 FOR UPDATE SKIP LOCKED);
""", """    WITH old AS MATERIALIZED (
        SELECT o.id FROM peer_checks o WHERE o.finished_at < t - interval '7 days' LIMIT 100 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM peer_checks p USING old o WHERE p.id = o.id;
"""),
        ("""    UPDATE peer_checks p SET due_at = p.due_at - (p.due_set_at - t), due_set_at = t
    WHERE p.id IN (SELECT o.id FROM peer_checks o
                   WHERE o.finished_at IS NULL AND o.due_at > t AND o.due_set_at > t + interval '1 second'
                   FOR UPDATE SKIP LOCKED);
""", """    WITH ahead AS MATERIALIZED (
        SELECT o.id, o.due_at - (o.due_set_at - t) AS due_at FROM peer_checks o
        WHERE o.finished_at IS NULL AND o.due_at > t AND o.due_set_at > t + interval '1 second'
        FOR UPDATE SKIP LOCKED
    )
    UPDATE peer_checks p SET due_at = o.due_at, due_set_at = t
    FROM ahead o
    WHERE p.id = o.id;
"""),
        ("finished_at = clock_timestamp()", "finished_at = t"),
        ("SET lease_token = new_token, due_at = t + lease_ms * interval '1 millisecond'",
         "SET lease_token = new_token, due_at = leased_until"),
        ("issuing.sent_age_ms(e)",
         "CASE WHEN e.first_sent_at IS NOT NULL\n"
         "                THEN (extract(epoch FROM t - coalesce(e.last_sent_at, e.first_sent_at)) * 1000)::int8 END"),
    ]),
    ("put_check_back(", [
        ("LANGUAGE sql", "LANGUAGE plpgsql"),
        ("AS $$\n    UPDATE peer_checks p\n", "AS $$\nDECLARE\n    t timestamptz := now();\n"
         "    next_at timestamptz := t + delay_ms * interval '1 millisecond';\nBEGIN\n    UPDATE peer_checks p\n"),
        ("due_at = now() + delay_ms * interval '1 millisecond'", "due_at = next_at"),
        ("due_set_at = now()", "due_set_at = t"),
        ("CASE WHEN now() + delay_ms * interval '1 millisecond' >=", "CASE WHEN next_at >="),
        ("THEN clock_timestamp() END", "THEN t END"),
        ("p.finished_at IS NULL\n", "p.finished_at IS NULL;\nEND\n"),
    ]),
    ("note_orphan(", [
        variables("t timestamptz := clock_timestamp();"),
        ("coalesce(p.orphan_at, clock_timestamp())", "coalesce(p.orphan_at, t)"),
    ]),
    ("end_check(", [
        ("    made uuid;\n", "    made uuid;\n    t timestamptz;\n"),
        ("FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;\n    IF FOUND AND",
         "FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;\n    t := clock_timestamp();\n"
         "    IF before.id IS NOT NULL AND"),
        ("updated_at = clock_timestamp()", "updated_at = t"),
        ("finished_at = clock_timestamp()", "finished_at = t"),
    ]),
    ("end_executed_check(", [
        ("    after outbox_events;\n", "    after outbox_events;\n    t timestamptz;\n    kept jsonb;\n"),
        ("FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;\n    IF NOT FOUND OR",
         "FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;\n    t := clock_timestamp();\n"
         "    kept := kept_result(answer);\n    IF before.id IS NULL OR"),
        ("result = coalesce(kept_result(answer), e.result)", "result = coalesce(kept, e.result)"),
        ("completed_at = clock_timestamp(), updated_at = clock_timestamp()", "completed_at = t, updated_at = t"),
        ("finished_at = clock_timestamp()", "finished_at = t"),
    ]),
    ("control_target(", [
        ("        after target_controls;\n",
         "        after target_controls;\n        t timestamptz := clock_timestamp();\n"),
        ("SET paused_at = clock_timestamp()", "SET paused_at = t"),
        ("""                UPDATE outbox_events e SET next_attempt_at = clock_timestamp()
                WHERE e.id = (SELECT n.id FROM outbox_events n
                              WHERE""", """                WITH next AS MATERIALIZED (
                              SELECT n.id FROM outbox_events n
                              WHERE"""),
        ("ORDER BY n.due_at LIMIT 1 FOR UPDATE SKIP LOCKED);", "ORDER BY n.due_at LIMIT 1 FOR UPDATE SKIP LOCKED)\n"
         "                UPDATE outbox_events e SET next_attempt_at = t FROM next n WHERE e.id = n.id;"),
    ]),
    ("take_issuer_check(", [
        NOW,
        variables("t timestamptz := now();",
                  "leased_until timestamptz := t + least(greatest(lease_ms, 0), 60000) * interval '1 millisecond';"),
        ("SET ended_at = clock_timestamp()", "SET ended_at = t"),
        ("lease_until = t + least(greatest(lease_ms, 0), 60000) * interval '1 millisecond'\n",
         "lease_until = leased_until\n"),
    ]),
    ("end_issuer_check(", [
        variables("t timestamptz := clock_timestamp();"),
        ("SET ended_at = clock_timestamp()", "SET ended_at = t"),
    ]),
]


class Changed(Exception):
    pass


def newest(start):
    """The last definition in the migrations, and its file."""
    for path in sorted((ROOT / "migrations").glob("0*.sql"), reverse=True):
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"^CREATE (?:OR REPLACE )?(FUNCTION issuing\.%s.*?\$\$\n.*?\n *\$\$;\n)" % re.escape(start),
                           text, re.M | re.S)
        if found:
            return path.name, found[-1]
    raise Changed("no migration defines issuing." + start)


def adapt(start, rules):
    name = "issuing." + start.split("(")[0]
    path, body = newest(start)
    # The first BEGIN is the function's own; a rule that says so replaces no other.
    for old, new in sorted(rules, key=lambda rule: rule != NOW):
        if old not in body:
            raise Changed("%s in %s has changed: look at its rules in tests/citus/derive.py; this is not there: %s" %
                          (name, path, old.strip().splitlines()[0] if old.strip() else old))
        body = body.replace(old, new, 1 if old == "BEGIN\n" else -1)
    return "-- %s of %s.\nCREATE OR REPLACE %s" % (name, path, wrapped(body))


def wrapped(body):
    """Older migrations have longer lines: those are cut after a comma."""
    lines = []
    for line in body.splitlines():
        while len("CREATE OR REPLACE " + line if not lines else line) > 120:
            cut = line.rfind(", ", 0, 120 - len("CREATE OR REPLACE ") if not lines else 120) + 1
            lines.append(line[:cut])
            line = " " * 8 + line[cut:].strip()
        lines.append(line)
    return "\n".join(lines) + "\n"


def derived():
    version = max(int(path.name[:4]) for path in (ROOT / "migrations").glob("0*.sql"))
    return HEADER % (version, version) + "".join("\n" + adapt(*form) for form in FORMS)


def is_current():
    return TARGET.exists() and TARGET.read_text(encoding="utf-8") == derived()


def main():
    try:
        text = derived()
    except Changed as error:
        print("examples/citus/functions.sql: %s" % error)
        return 1
    if sys.argv[1:] == ["--check"]:
        if not is_current():
            print("examples/citus/functions.sql is not what tests/citus/derive.py makes: run it")
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
