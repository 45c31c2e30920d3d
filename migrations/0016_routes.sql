-- Why: events of other types than CARD_ISSUE are delivered too, each type by claims of its own (docs/routes.md), and
-- where a type is ordered, one event of a user after the other. Locks: ACCESS EXCLUSIVE on outbox_events for two
-- columns and two indexes. Both indexes are empty, but to build each all rows are read once (0.4 s per million).
-- Older programs go on: they call the functions that they know, whose parameters and columns stay.

-- No housekeeping meanwhile: it takes these locks in another order.
SELECT pg_advisory_xact_lock(4711, 1);

ALTER TABLE issuing.outbox_events
    -- The receiver's answer, where the route keeps it. The bound is of the text as PostgreSQL writes it, which may be
    -- longer than the answer was.
    ADD COLUMN result jsonb,
    -- PENDING: the earlier event of its user and type that it waits for; NULL = it waits for none.
    ADD COLUMN held_behind uuid,
    -- NOT VALID only spares the reading of rows that cannot have a result yet.
    ADD CONSTRAINT outbox_events_result CHECK (result IS NULL OR octet_length(result::text) <= 16384) NOT VALID;

-- What waits for an event that ends: wake_held.
CREATE INDEX outbox_events_held ON issuing.outbox_events (held_behind) WHERE held_behind IS NOT NULL;
-- The events of a user and type that are open or FAILED: the claim of an ordered type. Card requests are in no order,
-- so none of them is in this index.
CREATE INDEX outbox_events_order ON issuing.outbox_events (event_type, user_id, id)
    WHERE event_type <> 'CARD_ISSUE' AND (due_at IS NOT NULL OR failed_at IS NOT NULL);

-- ---- routes ----

-- The types that workers deliver, as they are configured there. issuing-ctl, the console and functions of the database
-- read it. It outlives a stop of all workers: only a worker that does not deliver a type removes its row.
CREATE TABLE issuing.routes (
    event_type      text PRIMARY KEY CHECK (event_type ~ '^[A-Z][A-Z0-9_]{0,63}$' AND event_type <> 'CARD_ISSUE'),
    is_ordered      bool NOT NULL,
    has_lookup      bool NOT NULL,
    key_lifetime_ms int8 NOT NULL,
    max_attempts    int8 NOT NULL,
    is_signed       bool NOT NULL,
    worker          text NOT NULL,        -- that noted it last
    seen_at         timestamptz NOT NULL  -- when
) WITH (fillfactor = 50);

-- Called by each worker before its first claim and with every heartbeat. It removes rows whose type the worker does not
-- name, if no other worker has named it for a minute. While workers disagree whether a type is ordered, the type counts
-- as ordered: a worker that says so keeps the row until it has been silent for a minute. The order of the rows, and
-- SKIP LOCKED, keep two workers from a deadlock. A lost write is followed by the next, so the commit does not wait for
-- the disk.
CREATE FUNCTION issuing.note_routes(
    worker text, types text[], ordereds bool[], lookups bool[], lifetimes_ms int8[], attempts int8[], signeds bool[])
    RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp SET lock_timeout = '200ms'
    AS $$
    #variable_conflict use_column
    DECLARE
        at timestamptz := clock_timestamp();
    BEGIN
        PERFORM set_config('synchronous_commit', 'off', true);
        INSERT INTO routes AS r (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts, is_signed, worker,
                                 seen_at)
        SELECT t.type, t.is_ordered, t.has_lookup, t.lifetime_ms, t.attempts, t.is_signed, note_routes.worker, at
        FROM unnest(types, ordereds, lookups, lifetimes_ms, note_routes.attempts, signeds)
            AS t (type, is_ordered, has_lookup, lifetime_ms, attempts, is_signed)
        ORDER BY t.type
        ON CONFLICT (event_type) DO UPDATE
        SET is_ordered = excluded.is_ordered, has_lookup = excluded.has_lookup,
            key_lifetime_ms = excluded.key_lifetime_ms, max_attempts = excluded.max_attempts,
            is_signed = excluded.is_signed, worker = excluded.worker, seen_at = excluded.seen_at
        WHERE excluded.is_ordered OR NOT r.is_ordered OR r.worker = excluded.worker
           OR r.seen_at NOT BETWEEN at - interval '1 minute' AND at + interval '1 minute';
        DELETE FROM routes r
        WHERE r.event_type IN (SELECT o.event_type FROM routes o
                               WHERE o.event_type <> ALL (coalesce(types, '{}'))
                                 AND o.seen_at NOT BETWEEN at - interval '1 minute' AND at + interval '1 minute'
                               FOR UPDATE SKIP LOCKED);
    END
    $$;

-- ---- order ----
-- If an event of an ordered type is due while an earlier one of its user and type is open or FAILED, the claim holds it
-- behind that one: held_behind names the nearest earlier event, and next_attempt_at lies far ahead. When the earlier
-- event ends COMPLETED or REJECTED, the held one is due again. Claim and end exclude each other by an advisory lock on
-- user and type, and each looks only after it has the lock, in a statement of its own: so either the claim sees the
-- end, or the end sees the held event. The claim only tries the lock, and leaves the event if it does not get it.
-- Whatever ends events takes all locks in their order, before it locks any row.

-- Precedes, as a statement of its own, everything that may end one of these events COMPLETED or REJECTED, in the same
-- transaction and before any of their rows is locked.
CREATE FUNCTION issuing.lock_order(events uuid[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    BEGIN
        IF EXISTS (SELECT FROM routes r WHERE r.is_ordered) THEN
            PERFORM pg_advisory_xact_lock(4712, k.key)
            FROM (SELECT DISTINCT hashtext(e.event_type || e.user_id) AS key
                  FROM unnest(events) AS a (id)
                  JOIN outbox_events e ON e.id = a.id
                  JOIN routes r ON r.event_type = e.event_type AND r.is_ordered
                  ORDER BY key) k;
        END IF;
    END
    $$;

-- Follows, as a statement of its own, the end of these events as COMPLETED or REJECTED: what waits for one of them is
-- due now. A row that was written by a clock that was ahead stays ahead, so that its other times are still recognised
-- (outbox_rebase).
CREATE FUNCTION issuing.wake_held(events uuid[]) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
        UPDATE outbox_events e
        SET next_attempt_at = clock_timestamp(), held_behind = NULL,
            updated_at = greatest(e.updated_at, clock_timestamp())
        WHERE e.held_behind = ANY (events) AND e.status = 'PENDING'
    $$;

-- ---- claim ----

-- Whether an event of this type, other than this one, waits to be tried alone and is due.
CREATE FUNCTION issuing.lost_is_due(but uuid, of_type text) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
    BEGIN
        RETURN EXISTS (SELECT FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
                       WHERE e.event_type = of_type AND e.status = 'PENDING' AND e.due_at <= now()
                         AND e.lost_count >= 2 AND e.id IS DISTINCT FROM but);
    END
    $$;

-- The events of an ordered type that a claim may hand out, at most `most`. The others that it looked at are held behind
-- earlier ones, or left as they are if an end has the lock. Claims look at a held event again without a wake-up: after
-- five minutes, then after as long again as it has existed, at most an hour. So a wake-up that was lost (an older
-- program ended the earlier event, or the type was not ordered for a while) costs time only, and a million held events
-- cost little.
CREATE FUNCTION issuing.hold_behind(of_type text, most int8, since timestamptz)
    RETURNS TABLE (
        ready uuid[],
        next_since timestamptz, -- null = everything due was looked at
        is_filled bool)         -- there may be more that is due
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        looks constant int8 := least(greatest(2 * most, 32), 128); -- each with a lock of its own
        ids uuid[];
        users text[];
        dues timestamptz[];
        changes timestamptz[];
        waits bool[];
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.claim of an ordered type needs READ COMMITTED, not %',
                current_setting('transaction_isolation') USING ERRCODE = '25001';
        END IF;
        SELECT array_agg(d.id), array_agg(d.user_id), array_agg(d.due_at), array_agg(d.updated_at)
        INTO ids, users, dues, changes
        FROM (SELECT e.id, e.user_id, e.due_at, e.updated_at
              FROM outbox_events e
              WHERE e.event_type = of_type AND e.due_at >= since AND e.due_at <= now()
                AND e.status = 'PENDING' AND e.lost_count < 2
              ORDER BY e.due_at
              LIMIT looks
              FOR UPDATE SKIP LOCKED) d;
        -- In statements of their own: what comes next must see every end that gave its lock back before.
        SELECT array_agg(NOT pg_try_advisory_xact_lock(4712, hashtext(of_type || a.user_id)) ORDER BY a.n)
        INTO waits
        FROM unnest(users) WITH ORDINALITY AS a (user_id, n);
        RETURN QUERY
        WITH asked AS MATERIALIZED (
            SELECT a.id, a.due_at, a.updated_at, a.waits, a.n, b.id AS behind
            FROM unnest(ids, users, dues, changes, waits)
                WITH ORDINALITY AS a (id, user_id, due_at, updated_at, waits, n)
            LEFT JOIN LATERAL (
                SELECT o.id FROM outbox_events o
                WHERE NOT a.waits AND o.event_type = of_type AND o.event_type <> 'CARD_ISSUE'
                  AND o.user_id = a.user_id AND o.id < a.id AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL)
                ORDER BY o.id DESC LIMIT 1) b ON true
        ), held AS (
            UPDATE outbox_events e
            SET held_behind = a.behind,
                next_attempt_at = now() + least(greatest(now() - greatest(least(e.created_at, now()), 'epoch'),
                                                         interval '5 minutes'), interval '1 hour'),
                first_sent_at = e.first_sent_at - a.ahead, last_sent_at = e.last_sent_at - a.ahead,
                deferred_since = e.deferred_since - a.ahead, updated_at = now()
            FROM (SELECT x.id, x.behind, CASE WHEN x.updated_at > now()
                                              THEN least(x.updated_at, now() + interval '1000 years') - now()
                                              ELSE interval '0' END AS ahead
                  FROM asked x WHERE x.behind IS NOT NULL) a
            WHERE e.id = a.id
        ), free AS (
            SELECT a.id, a.due_at, row_number() OVER (ORDER BY a.n) AS n
            FROM asked a WHERE NOT a.waits AND a.behind IS NULL
        )
        SELECT (SELECT array_agg(f.id ORDER BY f.n) FROM free f WHERE f.n <= most),
               least((SELECT min(a.due_at) FROM asked a WHERE a.waits),
                     (SELECT min(f.due_at) FROM free f WHERE f.n > most),
                     (SELECT max(a.due_at) FROM asked a HAVING count(*) >= looks)),
               (SELECT count(*) >= looks FROM asked) OR EXISTS (SELECT FROM free f WHERE f.n > most);
    END
    $$;

-- issuing.claim of 0007_attempts.sql, where its locks, fence and bookmark are explained, for one type of events.
-- Programs of the release before call the other one, which claims CARD_ISSUE.
CREATE FUNCTION issuing.claim(
    new_token uuid, most int8, lease_ms int8, worker text,
    since_us int8, -- the bookmark: microseconds since 1970; null = from the beginning
    slack_ms int8, -- so long a commit may take to become visible without being left to the sweep
    alone bool,
    of_type text,      -- event_type
    is_ordered bool)   -- as in issuing.routes: an event that has to wait is held behind an earlier one
RETURNS TABLE (
    id uuid, user_id text, payload text, traceparent text, retry_count int4,
    sent_age_ms int8,     -- age of the first send that may have arrived; null = certainly none
    deferred_age_ms int8, -- of the unbroken row of 409/425 answers; null = none
    -- the card, where it is stored already
    card_id uuid, issuer_card_id text, last4 text, exp_month int2, exp_year int2, card_status text,
    replaces_issuer_card_id text, -- reissue: the issuer's id of the card to replace
    cancel_code text,             -- an earlier attempt had begun to cancel the card
    next_since_us int8,           -- of the last row: the next bookmark; null = unchanged
    settle_age_ms int8,           -- age of the last send that may still be on its way; null = there is none
    lost_count int4,              -- of the last row: 1 = there are events to be tried alone that are due, else 0
    now_us int8,                  -- of the last row: the database's clock
    deferral_count int4, deferral_code text, -- deferrals in a row for the same cause, and that cause
    changed_age_ms int8,          -- since the row last changed: for an event that was deferred or failed, since then
    held_end text, held_end_code text, -- the end that waits until no create can arrive any more
    issuer_parameters text,       -- null = none are kept
    made_ms int8,                 -- when the row was made: milliseconds since 1970, at least 0
    is_filled bool)               -- of the last row: there may be more that is due
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    since timestamptz := coalesce(timestamptz 'epoch' + since_us * interval '1 microsecond', '-infinity');
    alone_id uuid;
    slack interval := slack_ms * interval '1 millisecond';
    named uuid[]; -- the events that are handed out, where they are not simply the oldest
    ordered_since timestamptz;
    ordered_is_filled bool;
BEGIN
    IF alone THEN
        DELETE FROM lost_events l
        WHERE l.since < now() - interval '1 minute'
          AND NOT EXISTS (SELECT FROM outbox_events e
                          WHERE e.id = l.event_id AND e.due_at IS NOT NULL AND e.lost_count >= 2);
        SELECT e.id INTO alone_id
        FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
        WHERE e.event_type = of_type AND e.status = 'PENDING' AND e.due_at <= now() AND e.lost_count >= 2
        ORDER BY e.due_at
        LIMIT 1
        FOR UPDATE OF e SKIP LOCKED;
        named := ARRAY[alone_id];
    ELSIF is_ordered THEN
        SELECT p.ready, p.next_since, p.is_filled INTO named, ordered_since, ordered_is_filled
        FROM issuing.hold_behind(of_type, most, since) p;
    END IF;
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT e.id, e.first_sent_at, e.updated_at,
               CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now()
                    ELSE interval '0' END AS ahead
        FROM outbox_events e
        WHERE NOT alone AND NOT is_ordered AND e.event_type = of_type AND e.due_at >= since AND e.due_at <= now()
          AND e.status = 'PENDING' AND e.lost_count < 2
        ORDER BY e.due_at
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ), one AS MATERIALIZED (
        SELECT e.id, e.first_sent_at, e.updated_at,
               CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now()
                    ELSE interval '0' END AS ahead
        FROM unnest(named) AS n (id) JOIN outbox_events e ON e.id = n.id
        WHERE alone OR is_ordered
    ), held AS (
        UPDATE outbox_events e
        SET status = 'PROCESSING', held_behind = NULL, retry_count = least(e.retry_count + 1, 1000000),
            lease_token = new_token, lease_owner = worker,
            lease_until = now() + lease_ms * interval '1 millisecond',
            first_sent_at = least(coalesce(e.first_sent_at - due.ahead, now()), now()),
            last_sent_at = CASE WHEN e.last_sent_at IS NOT NULL THEN least(e.last_sent_at - due.ahead, now()) END,
            deferred_since = CASE WHEN e.deferred_since IS NOT NULL THEN least(e.deferred_since - due.ahead, now()) END,
            updated_at = now()
        FROM (SELECT * FROM due UNION ALL SELECT * FROM one) due
        WHERE e.id = due.id
        RETURNING e.id, e.due_at, e.user_id, e.payload, e.traceparent, e.retry_count, e.deferred_since, e.cancel_code,
                  e.lost_count, e.first_sent_at, e.last_sent_at, due.first_sent_at AS sent_before,
                  e.deferral_count, e.deferral_code, due.updated_at AS changed_before, e.held_end, e.held_end_code,
                  e.issuer_parameters, e.created_at
    )
    SELECT h.id, h.user_id,
           -- What cannot be a request is not unpacked: one such row must not take a worker's memory.
           CASE WHEN pg_column_size(h.payload) <= 262144 THEN h.payload::text END,
           h.traceparent, h.retry_count,
           CASE WHEN h.sent_before IS NOT NULL
                THEN (extract(epoch FROM now() - greatest(h.first_sent_at, 'epoch')) * 1000)::int8 END,
           (extract(epoch FROM now() - greatest(h.deferred_since, CASE WHEN h.deferred_since IS NOT NULL
                                                                       THEN timestamptz 'epoch' END)) * 1000)::int8,
           (c.found).id, (c.found).issuer_card_id, (c.found).last4, (c.found).exp_month, (c.found).exp_year,
           (c.found).status,
           r.issuer_card_id, h.cancel_code, NULL::int8,
           CASE WHEN h.sent_before IS NOT NULL
                THEN (extract(epoch FROM now() - greatest(coalesce(h.last_sent_at, h.first_sent_at), 'epoch'))
                      * 1000)::int8 END,
           h.lost_count, NULL::int8,
           h.deferral_count, h.deferral_code,
           (extract(epoch FROM now() - least(greatest(h.changed_before, 'epoch'), now())) * 1000)::int8,
           h.held_end, h.held_end_code, h.issuer_parameters::text,
           (extract(epoch FROM least(greatest(h.created_at, 'epoch'), now())) * 1000)::int8, NULL::bool
    FROM held h
    -- Looked for only where there can be one.
    CROSS JOIN LATERAL (SELECT CASE WHEN h.sent_before IS NOT NULL AND of_type = 'CARD_ISSUE'
                                    THEN issuing.card_of(h.id) END AS found OFFSET 0) c
    CROSS JOIN LATERAL (SELECT CASE WHEN of_type = 'CARD_ISSUE' AND h.payload ->> 'replaces' IS NOT NULL
                                    THEN issuing.issuer_card_id_of(h.user_id, h.payload ->> 'replaces')
                               END AS issuer_card_id OFFSET 0) r
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           CASE WHEN NOT alone
                THEN (extract(epoch FROM CASE WHEN is_ordered THEN greatest(least(ordered_since, now() - slack),
                                                                       timestamptz 'epoch' - interval '1 microsecond')
                                              WHEN count(*) < most THEN now() - slack
                                              ELSE max(greatest(h.due_at,
                                                                timestamptz 'epoch' - interval '1 microsecond')) END)
                      * 1000000)::int8 END,
           NULL,
           CASE WHEN EXISTS (SELECT FROM lost_events) AND issuing.lost_is_due(alone_id, of_type) THEN 1 ELSE 0 END,
           (extract(epoch FROM now()) * 1000000)::int8,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           CASE WHEN is_ordered THEN coalesce(ordered_is_filled, false) ELSE count(*) >= most END AND NOT alone
    FROM held h;
END
$$;

-- issuing.control_target of 0013_workers.sql, for targets that are routes: named after their type, whose next event a
-- probe makes due.
CREATE OR REPLACE FUNCTION issuing.control_target(
    action text, target_name text, actor text, os_user text, sudo_user text, why text)
    RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        before target_controls;
        after target_controls;
    BEGIN
        PERFORM check_who(actor, os_user, sudo_user, why);
        IF target_name !~ '^[A-Za-z][A-Za-z0-9_]{0,63}$' THEN
            RETURN 'bad_target';
        END IF;
        INSERT INTO target_controls (target) VALUES (target_name) ON CONFLICT (target) DO NOTHING;
        SELECT c.* INTO STRICT before FROM target_controls c WHERE c.target = target_name FOR UPDATE;
        CASE action
            WHEN 'pause_target' THEN
                IF before.paused_at IS NOT NULL THEN
                    RETURN 'paused';
                END IF;
                UPDATE target_controls c SET paused_at = clock_timestamp(), paused_by = actor, paused_why = why
                WHERE c.target = target_name
                RETURNING c.* INTO STRICT after;
            WHEN 'resume_target' THEN
                IF before.paused_at IS NULL THEN
                    RETURN 'not_paused';
                END IF;
                UPDATE target_controls c SET paused_at = NULL, paused_by = NULL, paused_why = NULL
                WHERE c.target = target_name
                RETURNING c.* INTO STRICT after;
            WHEN 'probe_target' THEN
                IF before.paused_at IS NOT NULL THEN
                    RETURN 'paused';
                END IF;
                UPDATE target_controls c SET probe_number = c.probe_number + 1
                WHERE c.target = target_name
                RETURNING c.* INTO STRICT after;
                -- Something to probe with: where events are rare, the next one may come back much later.
                UPDATE outbox_events e SET next_attempt_at = clock_timestamp()
                WHERE e.id = (SELECT n.id FROM outbox_events n
                              WHERE n.event_type = CASE WHEN target_name IN ('issuer', 'core') THEN 'CARD_ISSUE'
                                                        ELSE target_name END
                                AND n.due_at > clock_timestamp() AND n.status = 'PENDING' AND n.held_behind IS NULL
                              ORDER BY n.due_at LIMIT 1 FOR UPDATE SKIP LOCKED);
            ELSE
                RAISE EXCEPTION 'no such action: %', action USING ERRCODE = '22023';
        END CASE;
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, before, after)
        VALUES (actor, os_user, sudo_user, action, why, to_jsonb(before), to_jsonb(after));
        RETURN NULL;
    END
    $$;

-- issuing.keep_rows of 0011_limits.sql, for all types: no partition is settled while an event of a type that is
-- delivered is open in it. An open event of a type that nobody delivers is on the list of rows that stay: the partition
-- is settled and dropped in its time, and the event moves to `_rest`, where it stays as long as it is open. More than
-- 10000 of them keep their partition, and no other.
CREATE OR REPLACE FUNCTION issuing.keep_rows(key_retention interval, limit_window interval, event_retention interval)
RETURNS TABLE (
    action text,     -- expired, postponed, failed; busy: another worker is at it
    table_name text,
    amount int8,     -- rows deleted
    detail text,
    again bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        kind record;
        p partitions;
        t timestamptz;
        keys_kept interval;
        has_open bool;
        open_ids uuid[];
        gone int8;
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.keep_rows needs READ COMMITTED, not %', current_setting('transaction_isolation')
                USING ERRCODE = '25001';
        END IF;
        IF NOT pg_try_advisory_xact_lock(4711, 1) THEN
            RETURN QUERY SELECT 'busy', NULL, 0::int8, NULL, false;
            RETURN;
        END IF;
        PERFORM set_config('synchronous_commit', 'local', true);
        PERFORM set_config('lock_timeout', '1s', true);

        PERFORM issuing.keep_clock();
        t := issuing.believed(now());
        keys_kept := issuing.retention_at_least('keys', key_retention);

        FOR kind IN
            SELECT * FROM (VALUES
                ('idempotency_keys', 'idempotency_keys_rest', keys_kept,
                 'r.created_at < $1
                  AND NOT EXISTS (SELECT FROM outbox_events e
                                  WHERE e.id = r.event_id
                                    AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                                         OR coalesce(e.completed_at, e.updated_at) >= $1))'),
                ('rate_limit_log', 'rate_limit_log_rest', issuing.retention_at_least('limits', limit_window),
                 'r.at < $1'),
                -- created_at as well: a worker may write updated_at, and whoever has broken into one makes no event
                -- older.
                ('outbox_events', 'outbox_events_rest',
                 greatest(issuing.retention_at_least('events', event_retention), keys_kept),
                 'r.due_at IS NULL AND r.failed_at IS NULL AND r.updated_at < $1 AND r.created_at < $1'),
                ('operator_actions', 'operator_actions_rest',
                 (SELECT r.kept FROM retentions r WHERE r.name = 'audit'), 'r.at < $1'),
                ('number_reveals', 'number_reveals', interval '1 hour', 'r.last_at < $1'))
                AS v (parent, rest, kept, condition)
        LOOP
            BEGIN
                gone := issuing.rest_expire(kind.rest, kind.condition, t - kind.kept);
                RETURN QUERY SELECT 'expired', kind.parent, gone, NULL, gone >= 1000 WHERE gone > 0;
            EXCEPTION WHEN OTHERS THEN
                RETURN QUERY SELECT 'failed', kind.parent, 0::int8, SQLERRM, false;
            END;
        END LOOP;

        -- What was settled in a time to come was settled by a clock that was ahead: it is judged anew.
        UPDATE partitions q SET settled_at = NULL, still_open = '{}' WHERE q.settled_at > t;

        -- Nothing of its time is at work: the end of its life is counted from now. Not before all that was begun in its
        -- time has committed or is over (the roles' statement_timeout).
        FOR p IN
            SELECT q.* FROM partitions q
            WHERE q.settled_at IS NULL AND q.to_at < t - interval '1 minute' AND q.parent <> 'outbox_attempts'
            ORDER BY q.to_at
        LOOP
            BEGIN
                CASE p.parent
                WHEN 'outbox_events' THEN
                    EXECUTE format(
                        'SELECT EXISTS (SELECT FROM (SELECT %2$L UNION ALL SELECT r.event_type FROM routes r) t (type)
                                        JOIN %1$I e ON e.event_type = t.type WHERE e.due_at IS NOT NULL),
                                ARRAY (SELECT e.id FROM %1$I e
                                       WHERE e.due_at IS NOT NULL OR e.failed_at IS NOT NULL LIMIT 10001)',
                        p.name, 'CARD_ISSUE') INTO has_open, open_ids;
                WHEN 'idempotency_keys' THEN
                    SELECT EXISTS (SELECT FROM outbox_events e
                                   WHERE e.due_at IS NOT NULL AND e.event_type = 'CARD_ISSUE'
                                     AND e.idempotency_key IS NOT NULL
                                     AND e.created_at >= p.from_at AND e.created_at < p.to_at),
                           ARRAY (SELECT e.id FROM outbox_events e
                                  WHERE e.failed_at IS NOT NULL AND e.idempotency_key IS NOT NULL
                                    AND e.created_at >= p.from_at AND e.created_at < p.to_at
                                  LIMIT 10001)
                    INTO has_open, open_ids;
                ELSE
                    has_open := false;
                    open_ids := '{}';
                END CASE;
                IF cardinality(open_ids) > 10000 THEN
                    RETURN QUERY SELECT 'postponed', p.parent, 0::int8,
                                        format('%s holds more than 10000 rows that must stay', p.name), false;
                ELSIF NOT has_open THEN
                    UPDATE partitions q SET settled_at = t, still_open = open_ids WHERE q.name = p.name;
                END IF;
            EXCEPTION WHEN OTHERS THEN
                RETURN QUERY SELECT 'failed', p.parent, 0::int8, format('%s: %s', p.name, SQLERRM), false;
            END;
        END LOOP;
    END
    $$;
