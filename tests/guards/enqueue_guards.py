"""The guards of senders: who may send which events, under which key, beside whom. As guards.py."""


ENQUEUE_GUARDS = [
    dict(
        name="a role sends only the types that it was added for",
        file="migrations/schema/08_enqueue.sql",
        line="IF of_type ~ '^[A-Z][A-Z0-9_]{0,63}$' AND may_send(caller, of_type) THEN",
        becomes="        IF of_type ~ '^[A-Z][A-Z0-9_]{0,63}$' THEN",
        test="db/enqueue",
    ),
    dict(
        name="nobody calls in the name of another role",
        file="migrations/schema/02_tables.sql",
        line="CREATE DOMAIN issuing.caller AS name CHECK (VALUE = CURRENT_USER);",
        becomes="CREATE DOMAIN issuing.caller AS name;",
        test="db/enqueue",
    ),
    dict(
        name="who calls is the role of the statement and not of the session",
        file="migrations/schema/08_enqueue.sql",
        line="PERFORM check_sender(caller, type), make_room(), wake_for(type, run_at);\n"
             "    RETURN put_event",
        becomes="        PERFORM check_sender(SESSION_USER, type), make_room(), wake_for(type, run_at);\n"
                "        RETURN put_event",
        test="db/enqueue",
    ),
    dict(
        name="a role that is gone stops no other sender",
        file="migrations/schema/08_enqueue.sql",
        line="pg_has_role(caller, to_regrole(quote_ident(s.role)), 'USAGE'));",
        becomes="pg_has_role(caller, s.role, 'USAGE'));",
        test="db/enqueue",
    ),
    dict(
        name="only our own functions make the end of a card request",
        file="migrations/schema/08_enqueue.sql",
        line="why := CASE WHEN NEW.event_type = 'CARD_REQUEST_ENDED'",
        becomes="        why := CASE WHEN false",
        test="db/enqueue",
    ),
    dict(
        name="a key of a client hides no type from the table's checks",
        file="migrations/schema/16_triggers.sql",
        line="WHEN ((NEW.idempotency_key IS NULL OR NEW.event_type <> %L",
        becomes="WHEN ((NEW.idempotency_key IS NULL OR NEW.event_type = %L AND false",
        test="db/enqueue",
    ),
    dict(
        name="a value beyond its range is refused",
        file="migrations/schema/08_enqueue.sql",
        line="IF why IS NOT NULL THEN\n"
             "        RAISE check_violation USING CONSTRAINT",
        becomes="        IF false THEN\n"
                "            RAISE check_violation USING CONSTRAINT",
        test="db/clocks",
    ),
    dict(
        name="a key belongs to one user and payload",
        file="migrations/schema/08_enqueue.sql",
        line="ELSIF found_user IS NOT NULL THEN",
        becomes="            ELSIF false THEN",
        test="db/enqueue",
    ),
    dict(
        name="what is due in the past is not put behind the claims",
        file="migrations/schema/08_enqueue.sql",
        line="greatest(run_at, clock_timestamp()));",
        becomes="coalesce(run_at, clock_timestamp()));",
        test="db/enqueue",
    ),
    dict(
        name="a plan of housekeeping refuses no sender",
        file="migrations/schema/08_enqueue.sql",
        line="n.from_at < clock_timestamp() + interval '1 minute' AND n.to_at > clock_timestamp()) THEN",
        becomes="false) THEN",
        test="db/enqueue",
    ),
    dict(
        name="a sender's commit stays as durable as it was when a plan is withdrawn",
        file="migrations/schema/08_enqueue.sql",
        line="PERFORM set_config('synchronous_commit', durability, true);",
        becomes="",
        test="db/enqueue",
    ),
    dict(
        name="a sender sees no request of a client",
        file="migrations/schema/08_enqueue.sql",
        line="WHERE e.id = end_of.id AND e.idempotency_key IS NULL AND may_send(",
        becomes="        WHERE e.id = end_of.id AND may_send(",
        test="db/enqueue",
    ),
    dict(
        name="one open transaction of a type notifies",
        file="migrations/schema/08_enqueue.sql",
        line="AND pg_try_advisory_xact_lock(4716, hashtext(event_type)) THEN",
        becomes="           AND pg_advisory_xact_lock_shared(4716, hashtext(event_type)) IS NOT NULL THEN",
        test="db/enqueue",
    ),
    dict(
        name="a key outlives its event no longer than a pass of housekeeping",
        file="migrations/schema/08_enqueue.sql",
        line="r.created_at < $1 AND NOT EXISTS (SELECT FROM outbox_events e",
        becomes="false AND NOT EXISTS (SELECT FROM outbox_events e",
        test="db/enqueue",
    ),
    dict(
        name="a claim of one source takes none of the other",
        file="migrations/schema/04_claim.sql",
        line="AND (inserted IS NULL OR (e.idempotency_key IS NULL) = inserted)",
        becomes="",
        test="db/outbox_claim",
    ),
    dict(
        name="a claim looks at a bounded number of the other source",
        file="migrations/schema/04_claim.sql",
        line="AND e.due_at >= since AND e.due_at <= until AND e.status",
        becomes="          AND e.due_at >= since AND e.due_at <= now() AND e.status",
        test="db/outbox_claim",
    ),
    dict(
        name="clients and services take turns in the claims of cards",
        file="worker/claim.c",
        line="    return other->demand != DEMAND_NONE ? other : claim->lane;",
        becomes="    return claim->lane->demand != DEMAND_NONE ? claim->lane : other;",
        test="e2e/a service that sends thousands of cards",
    ),
]
