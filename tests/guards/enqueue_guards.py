"""The guards of senders: who may send which events, under which key, beside whom. As guards.py."""

SQL = "migrations/0021_enqueue.sql"

ENQUEUE_GUARDS = [
    dict(
        name="a role sends only the types that it was added for",
        file=SQL,
        line="        IF of_type ~ '^[A-Z][A-Z0-9_]{0,63}$' AND may_send(caller, of_type) THEN",
        becomes="        IF of_type ~ '^[A-Z][A-Z0-9_]{0,63}$' THEN",
        test="db/enqueue",
    ),
    dict(
        name="nobody calls in the name of another role",
        file=SQL,
        line="CREATE DOMAIN issuing.caller AS name CHECK (VALUE = CURRENT_USER);",
        becomes="CREATE DOMAIN issuing.caller AS name;",
        test="db/enqueue",
    ),
    dict(
        name="who calls is the role of the statement and not of the session",
        file=SQL,
        line="        PERFORM check_sender(caller, type), wake_for(type, run_at);\n        RETURN put_event",
        becomes="        PERFORM check_sender(SESSION_USER, type), wake_for(type, run_at);\n        RETURN put_event",
        test="db/enqueue",
    ),
    dict(
        name="a role that is gone stops no other sender",
        file=SQL,
        line="pg_has_role(caller, to_regrole(quote_ident(s.role)), 'USAGE'));",
        becomes="pg_has_role(caller, s.role, 'USAGE'));",
        test="db/enqueue",
    ),
    dict(
        name="only our own functions make the end of a card request",
        file=SQL,
        line="        why := CASE WHEN NEW.event_type = 'CARD_REQUEST_ENDED'\n",
        becomes="        why := CASE WHEN false\n",
        test="db/enqueue",
    ),
    dict(
        name="a key of a client hides no type from the table's checks",
        file=SQL,
        line="WHEN ((NEW.idempotency_key IS NULL OR NEW.event_type <> %L\n",
        becomes="WHEN ((NEW.idempotency_key IS NULL OR NEW.event_type = %L AND false\n",
        test="db/enqueue",
    ),
    dict(
        name="a value beyond its range is refused",
        file=SQL,
        line="        IF why IS NOT NULL THEN\n            RAISE check_violation USING CONSTRAINT",
        becomes="        IF false THEN\n            RAISE check_violation USING CONSTRAINT",
        test="db/clocks",
    ),
    dict(
        name="a key belongs to one user and payload",
        file=SQL,
        line="            ELSIF found_user IS NOT NULL THEN",
        becomes="            ELSIF false THEN",
        test="db/enqueue",
    ),
    dict(
        name="what is due in the past is not put behind the claims",
        file=SQL,
        line="greatest(run_at, clock_timestamp()));",
        becomes="coalesce(run_at, clock_timestamp()));",
        test="db/enqueue",
    ),
    dict(
        name="a sender sees no request of a client",
        file=SQL,
        line="        WHERE e.id = end_of.id AND e.idempotency_key IS NULL AND may_send(",
        becomes="        WHERE e.id = end_of.id AND may_send(",
        test="db/enqueue",
    ),
    dict(
        name="one open transaction of a type notifies",
        file=SQL,
        line="           AND pg_try_advisory_xact_lock(4716, hashtext(event_type)) THEN",
        becomes="           AND pg_advisory_xact_lock_shared(4716, hashtext(event_type)) IS NOT NULL THEN",
        test="db/enqueue",
    ),
    dict(
        name="a key outlives its event no longer than a pass of housekeeping",
        file=SQL,
        line="r.created_at < $1 AND NOT EXISTS (SELECT FROM outbox_events e\n",
        becomes="false AND NOT EXISTS (SELECT FROM outbox_events e\n",
        test="db/enqueue",
    ),
]
