-- Made by tests/citus/derive.py from the migrations. Do not edit.
--
-- The functions of the schema that Citus 12.1 cannot plan as they are, in a form that it can: a time is a variable, and
-- not now() or clock_timestamp() inside CASE, COALESCE or SET of a write; SET calls no function on columns that is not
-- IMMUTABLE; row locks are taken in a CTE of their own; a function with parameters that touches a table is in PL/pgSQL.
-- What they do is the same. distribute.sql runs this file.

DO $$
BEGIN
    IF (SELECT max(version) FROM issuing.schema_migration) <> 18 THEN
        RAISE EXCEPTION 'this file belongs to version 18 of the schema, and this database has version %',
            (SELECT max(version) FROM issuing.schema_migration);
    END IF;
END
$$;

-- issuing.note_routes of 0016_routes.sql.
CREATE OR REPLACE FUNCTION issuing.note_routes(
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
           OR r.seen_at - excluded.seen_at NOT BETWEEN interval '-1 minute' AND interval '1 minute';
        DELETE FROM routes r
        WHERE r.event_type IN (SELECT o.event_type FROM routes o
                               WHERE o.event_type <> ALL (coalesce(types, '{}'))
                                 AND o.seen_at NOT BETWEEN at - interval '1 minute' AND at + interval '1 minute'
                               FOR UPDATE SKIP LOCKED);
    END
    $$;

-- issuing.wake_held of 0016_routes.sql.
CREATE OR REPLACE FUNCTION issuing.wake_held(events uuid[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    DECLARE
        t timestamptz := clock_timestamp();
    BEGIN
        UPDATE outbox_events e
        SET next_attempt_at = t, held_behind = NULL,
            updated_at = greatest(e.updated_at, t)
        WHERE e.held_behind = ANY (events) AND e.status = 'PENDING';
    END
    $$;

-- issuing.claim of 0018_cells.sql.
CREATE OR REPLACE FUNCTION issuing.claim(
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
    t timestamptz := now();
    leased_until timestamptz := t + lease_ms * interval '1 millisecond';
    since timestamptz := coalesce(timestamptz 'epoch' + since_us * interval '1 microsecond', '-infinity');
    alone_id uuid;
    slack interval := slack_ms * interval '1 millisecond';
    named uuid[]; -- the events that are handed out, where they are not simply the oldest
    ordered_since timestamptz;
    ordered_is_filled bool;
    is_cell bool := EXISTS (SELECT FROM cell_buckets);
    parked int4[]; -- buckets whose events stay where they are; null = none
BEGIN
    -- With an old snapshot the database may be a cell that does not look like one.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.claim needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;
    IF is_cell THEN
        -- Every claim shares this lock; whoever parks a bucket has it alone. So the mover waits for the claims that do
        -- not know of it, and what is read in later statements holds until this claim is over.
        PERFORM pg_advisory_xact_lock_shared(4713, -1);
        parked := issuing.cell_parked();
    END IF;
    IF alone THEN
        DELETE FROM lost_events l
        WHERE l.since < t - interval '1 minute'
          AND NOT EXISTS (SELECT FROM outbox_events e
                          WHERE e.id = l.event_id AND e.due_at IS NOT NULL AND e.lost_count >= 2);
        SELECT e.id INTO alone_id
        FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
        WHERE e.event_type = of_type AND e.status = 'PENDING' AND e.due_at <= t AND e.lost_count >= 2
          AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
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
        SELECT e.id, e.due_at, e.first_sent_at, e.updated_at, e.last_sent_at,
               e.deferred_since,
               CASE WHEN e.updated_at > t THEN least(e.updated_at, t + interval '1000 years') - t
                    ELSE interval '0' END AS ahead
        FROM outbox_events e
        WHERE NOT alone AND NOT is_ordered AND e.event_type = of_type AND e.due_at >= since AND e.due_at <= t
          AND e.status = 'PENDING' AND e.lost_count < 2
          AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
        ORDER BY e.due_at
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ), one AS MATERIALIZED (
        SELECT e.id, e.first_sent_at, e.updated_at, e.last_sent_at,
               e.deferred_since,
               CASE WHEN e.updated_at > t THEN least(e.updated_at, t + interval '1000 years') - t
                    ELSE interval '0' END AS ahead
        FROM unnest(named) AS n (id) JOIN outbox_events e ON e.id = n.id
        WHERE alone OR is_ordered
    ), held AS (
        UPDATE outbox_events e
        SET status = 'PROCESSING', held_behind = NULL, retry_count = least(e.retry_count + 1, 1000000),
            lease_token = new_token, lease_owner = worker,
            lease_until = leased_until,
            first_sent_at = due.new_first,
            last_sent_at = due.new_last,
            deferred_since = due.new_deferred,
            updated_at = t
        FROM (SELECT d.id, d.first_sent_at, d.updated_at,
                     least(coalesce(d.first_sent_at - d.ahead, t), t) AS new_first,
                     CASE WHEN d.last_sent_at IS NOT NULL THEN least(d.last_sent_at - d.ahead, t) END AS new_last,
                     CASE WHEN d.deferred_since IS NOT NULL THEN least(d.deferred_since - d.ahead, t) END
                         AS new_deferred
              FROM (SELECT x.id, x.first_sent_at, x.updated_at, x.last_sent_at, x.deferred_since, x.ahead FROM due x
                    UNION ALL SELECT * FROM one) d) due
        WHERE e.id = due.id
          -- Also not an event that is left behind in a cell where its bucket is `away`.
          AND (NOT is_cell OR (SELECT b.state FROM cell_buckets b WHERE b.bucket = issuing.bucket_of(e.user_id)::int2)
                              IN ('here', 'listing'))
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
                THEN (extract(epoch FROM t - greatest(h.first_sent_at, 'epoch')) * 1000)::int8 END,
           (extract(epoch FROM t - greatest(h.deferred_since, CASE WHEN h.deferred_since IS NOT NULL
                                                                       THEN timestamptz 'epoch' END)) * 1000)::int8,
           (c.found).id, (c.found).issuer_card_id, (c.found).last4, (c.found).exp_month, (c.found).exp_year,
           (c.found).status,
           r.issuer_card_id, h.cancel_code, NULL::int8,
           CASE WHEN h.sent_before IS NOT NULL
                THEN (extract(epoch FROM t - greatest(coalesce(h.last_sent_at, h.first_sent_at), 'epoch'))
                      * 1000)::int8 END,
           h.lost_count, NULL::int8,
           h.deferral_count, h.deferral_code,
           (extract(epoch FROM t - least(greatest(h.changed_before, 'epoch'), t)) * 1000)::int8,
           h.held_end, h.held_end_code, h.issuer_parameters::text,
           (extract(epoch FROM least(greatest(h.created_at, 'epoch'), t)) * 1000)::int8, NULL::bool
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
                THEN (extract(epoch FROM CASE WHEN is_ordered THEN greatest(least(ordered_since, t - slack),
                                                                       timestamptz 'epoch' - interval '1 microsecond')
                                              WHEN count(*) < most THEN t - slack
                                              ELSE max(greatest(h.due_at,
                                                                timestamptz 'epoch' - interval '1 microsecond')) END)
                      * 1000000)::int8 END,
           NULL,
           CASE WHEN EXISTS (SELECT FROM lost_events) AND issuing.lost_is_due(alone_id, of_type) THEN 1 ELSE 0 END,
           (extract(epoch FROM t) * 1000000)::int8,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           CASE WHEN is_ordered THEN coalesce(ordered_is_filled, false) ELSE count(*) >= most END AND NOT alone
    -- What was looked at, not what was handed out: the bookmark passes an event that was left behind.
    FROM due h;
END
$$;

-- issuing.save of 0007_attempts.sql.
CREATE OR REPLACE FUNCTION issuing.save(ids uuid[], tokens uuid[], card_ids uuid[], issuer_card_ids text[],
        last4s text[], exp_months int8[], exp_years int8[],
                             number_records bytea[], replaced_ids uuid[])
RETURNS TABLE (id uuid, card_id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH locked AS MATERIALIZED (
        SELECT e.id, e.user_id
        FROM outbox_events e
        WHERE e.id = ANY (ids) AND e.lease_token = tokens[array_position(ids, e.id)]
        FOR NO KEY UPDATE
    ), held AS MATERIALIZED (
        SELECT e.user_id, a.event_id, a.card_id, a.issuer_card_id, a.last4, a.exp_month, a.exp_year, a.number_record,
               a.replaces
        FROM unnest(ids, tokens, card_ids, issuer_card_ids, last4s, exp_months, exp_years, number_records, replaced_ids)
            AS a (event_id, token, card_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
        JOIN locked e ON e.id = a.event_id
    ), saved AS (
        INSERT INTO cards (id, request_id, user_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
        SELECT h.card_id, h.event_id, h.user_id, h.issuer_card_id, h.last4, h.exp_month, h.exp_year, h.number_record,
        h.replaces
        FROM held h
        ON CONFLICT (request_id) DO NOTHING
    )
    SELECT h.event_id, coalesce((SELECT c.id FROM cards c WHERE c.request_id = h.event_id), h.card_id)
    FROM held h;
END
$$;

-- issuing.complete of 0017_ends.sql.
CREATE OR REPLACE FUNCTION issuing.complete(
    ids uuid[], tokens uuid[], worker text, tooks_ms int8[],
    step text,      -- of all of them
    results text[]) -- answers to keep; null = none
RETURNS TABLE (id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := now();
BEGIN
    IF step <> 'link' THEN
        PERFORM lock_order(ids);
    END IF;
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT a.id, a.token, a.took_ms, a.result IS NOT NULL AS has_result,
               CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) END AS result
        FROM unnest(ids, tokens, tooks_ms, results) AS a (id, token, took_ms, result)
    ), completed AS (
        UPDATE outbox_events e
        SET status = 'COMPLETED', lease_token = NULL, lease_until = NULL, deferred_since = NULL, deferral_count = 0,
            deferral_code = NULL, last_error = NULL, reason_code = NULL, reason_detail = NULL, completed_at = t,
            updated_at = t,
            result = CASE WHEN a.has_result THEN a.result ELSE e.result END
        FROM asked a
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, a.token, a.took_ms, e.event_type, e.created_at
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                     step, outcome)
        SELECT d.id, d.token, t - d.took_ms * interval '1 millisecond', t, d.retry_count, false, d.user_id,
               worker, step, 'completed'
        FROM completed d
    ), counted AS (
        -- One row, because a group for each type costs more than all else here.
        INSERT INTO statistics_changes (ended_at, event_type, event_types, status, reason_code, created_ats, count)
        SELECT t, min(d.event_type),
               CASE WHEN min(d.event_type) <> max(d.event_type) THEN array_agg(d.event_type) END,
               'COMPLETED', '', array_agg(d.created_at), 1
        FROM completed d
        HAVING count(*) > 0
    )
    SELECT d.id FROM completed d;
    IF step <> 'link' THEN
        PERFORM wake_held(ids);
    ELSIF EXISTS (SELECT FROM routes r WHERE r.event_type = 'CARD_REQUEST_ENDED') THEN
        PERFORM tell_ends(ids, t);
    END IF;
END
$$;

-- issuing.end_attempts of 0017_ends.sql.
CREATE OR REPLACE FUNCTION issuing.end_attempts(
    ids uuid[], tokens uuid[], statuses text[],
    delays_ms int8[],      -- PENDING: before the next attempt
    give_backs bool[],     -- a deferral: the attempt is not counted
    clear_sents bool[],    -- nothing was ever sent that may have arrived
    deferreds bool[],      -- true: starts or continues a row of 409/425 answers
    reason_codes text[], reason_details text[], last_errors text[],
    steps text[], outcomes text[], codes text[], details text[], unknowns bool[], -- of the attempt's row
    worker text, tooks_ms int8[],
    card_statuses text[],  -- what the request's card becomes; null = leave
    replaced_ids uuid[],   -- the card that a completed reissue replaces; null = none
    may_arrives bool[],    -- a create of this attempt may still be on its way to the issuer
    -- PENDING: the end that waits until no create can arrive any more; null = none does
    held_ends text[], held_end_codes text[],
    parameters text[],     -- JSON objects: kept where the event keeps none yet; null = none
    results text[])        -- answers to keep; null = none
RETURNS TABLE (id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := now();
BEGIN
    PERFORM lock_order(ids);
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT a.*, a.code !~ '^(issuer|core|route)_' AS is_ours,
               CASE WHEN a.status = 'PENDING' THEN t + a.delay_ms * interval '1 millisecond' END AS next_at,
               CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) END AS new_result
        FROM unnest(ids, tokens, statuses, delays_ms, give_backs, clear_sents, deferreds, reason_codes, reason_details,
                    last_errors, steps, outcomes, codes, details, unknowns, tooks_ms, card_statuses, replaced_ids,
                    may_arrives, held_ends, held_end_codes, parameters, results)
            AS a (id, token, status, delay_ms, give_back, clear_sent, deferred, reason_code, reason_detail, last_error,
                  step, outcome, code, detail, unknown, took_ms, card_status, replaced, may_arrive, held_end,
                  held_end_code, parameters, result)
    ), changed AS (
        UPDATE outbox_events e
        SET status = a.status,
            lease_token = NULL,
            lease_until = NULL,
            retry_count = e.retry_count - CASE WHEN a.give_back THEN 1 ELSE 0 END,
            next_attempt_at = CASE WHEN a.status = 'PENDING' THEN a.next_at ELSE e.next_attempt_at END,
            -- Only what the claim of this attempt has set: an earlier attempt's send is not this one's to forget.
            first_sent_at = CASE WHEN a.clear_sent AND e.first_sent_at = e.updated_at AND e.last_sent_at IS NULL
                                 THEN NULL ELSE e.first_sent_at END,
            last_sent_at = CASE WHEN a.may_arrive THEN t ELSE e.last_sent_at END,
            held_end = a.held_end, held_end_code = a.held_end_code,
            lost_count = 0,
            deferred_since = CASE WHEN a.deferred THEN coalesce(e.deferred_since, t) END,
            deferral_count = CASE WHEN NOT a.give_back THEN 0
                                  WHEN a.code = e.deferral_code THEN least(e.deferral_count, 999999) + 1
                                  WHEN a.is_ours AND e.deferral_code ~ '^(issuer|core|route)_' THEN e.deferral_count
                                  ELSE 1 END,
            deferral_code = CASE WHEN NOT a.give_back THEN NULL
                                 WHEN a.is_ours AND e.deferral_code ~ '^(issuer|core|route)_' THEN e.deferral_code
                                 ELSE a.code END,
            reason_code = a.reason_code,
            reason_detail = a.reason_detail,
            last_error = a.last_error,
            -- Before another attempt core-api is asked anew, where certainly nothing was sent with these.
            issuer_parameters = CASE WHEN a.clear_sent AND a.status <> 'REJECTED' AND e.last_sent_at IS NULL
                                         AND e.first_sent_at = e.updated_at
                                     THEN NULL ELSE coalesce(e.issuer_parameters, a.parameters::jsonb) END,
            result = CASE WHEN a.result IS NOT NULL THEN a.new_result ELSE e.result END,
            completed_at = CASE WHEN a.status <> 'PENDING' THEN t END,
            updated_at = t
        FROM asked a
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, e.deferral_count, e.deferral_code, e.status, e.reason_code,
                  e.event_type, e.created_at
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                     step, outcome, code, detail)
        SELECT d.id, a.token, t - a.took_ms * interval '1 millisecond', t,
               d.retry_count + CASE WHEN a.give_back THEN 1 ELSE 0 END, a.unknown, d.user_id, worker, a.step, a.outcome,
               a.code, a.detail
        FROM changed d JOIN asked a ON a.id = d.id
        WHERE NOT (a.give_back AND (d.deferral_count > 1 OR d.deferral_code IS DISTINCT FROM a.code))
        ON CONFLICT DO NOTHING
    ), counted AS (
        INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)
        SELECT t, d.event_type, d.status, coalesce(d.reason_code, ''), array_agg(d.created_at), 1
        FROM changed d
        WHERE d.status <> 'PENDING'
        GROUP BY d.event_type, d.status, d.reason_code
    ), card_changed AS (
        UPDATE cards c SET status = a.card_status, updated_at = t
        FROM changed d JOIN asked a ON a.id = d.id
        WHERE a.card_status IS NOT NULL AND c.request_id = d.id
    ), card_replaced AS (
        UPDATE cards c SET status = 'replaced', updated_at = t
        FROM changed d JOIN asked a ON a.id = d.id
        WHERE a.replaced IS NOT NULL AND c.id = a.replaced AND c.user_id = d.user_id AND c.status = 'active'
    )
    SELECT d.id FROM changed d;
    IF EXISTS (SELECT FROM routes) THEN
        PERFORM wake_held(ARRAY(SELECT u.id FROM unnest(ids, statuses) AS u (id, status)
                                WHERE u.status IN ('COMPLETED', 'REJECTED')));
        IF EXISTS (SELECT FROM routes r WHERE r.event_type = 'CARD_REQUEST_ENDED') THEN
            PERFORM tell_ends(ids, t);
        END IF;
    END IF;
END
$$;

-- issuing.keep_clock of 0008_housekeeping.sql.
CREATE OR REPLACE FUNCTION issuing.keep_clock() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
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
    $$;

-- issuing.fold_changes of 0017_ends.sql.
CREATE OR REPLACE FUNCTION issuing.fold_changes(places tid[]) RETURNS int8
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
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
    $$;

-- issuing.count_end of 0017_ends.sql.
CREATE OR REPLACE FUNCTION issuing.count_end(e issuing.outbox_events, sign int) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)
        SELECT coalesce(e.completed_at, e.updated_at), e.event_type, e.status, coalesce(e.reason_code, ''),
               ARRAY[e.created_at], sign
        WHERE e.status IN ('COMPLETED', 'REJECTED', 'FAILED');
    END
    $$;

-- issuing.note_check of 0009_operators.sql.
CREATE OR REPLACE FUNCTION issuing.note_check(what text, before issuing.outbox_events, after issuing.outbox_events,
        c issuing.peer_checks, more jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        INSERT INTO operator_actions (event_id, actor, db_role, os_user, sudo_user, action, reason, before, after)
        VALUES (before.id, c.actor, c.db_role, c.os_user, c.sudo_user, what, c.reason, state_of(before),
                state_of(after) || jsonb_build_object('worker', c.worker) || coalesce(more, '{}'));
    END
    $$;

-- issuing.reopen of 0017_ends.sql.
CREATE OR REPLACE FUNCTION issuing.reopen(e issuing.outbox_events, was_found bool) RETURNS issuing.outbox_events
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        after outbox_events;
        t timestamptz := clock_timestamp();
    BEGIN
        UPDATE outbox_events o
        SET status = 'PENDING', retry_count = 0, lost_count = 0, deferral_count = 0, deferral_code = NULL,
            deferred_since = NULL, held_end = NULL, held_end_code = NULL,
            next_attempt_at = now(), updated_at = t, completed_at = NULL, reason_code = NULL,
            reason_detail = NULL, last_error = NULL,
            first_sent_at = CASE WHEN was_found THEN coalesce(o.first_sent_at, o.created_at)
                                 ELSE o.first_sent_at END
        WHERE o.id = e.id AND o.status = 'FAILED'
        RETURNING o.* INTO STRICT after;
        PERFORM count_end(e, -1);
        RETURN after;
    END
    $$;

-- issuing.reject of 0017_ends.sql.
CREATE OR REPLACE FUNCTION issuing.reject(e issuing.outbox_events, code text, detail text) RETURNS issuing.outbox_events
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        after outbox_events;
        t timestamptz := clock_timestamp();
    BEGIN
        UPDATE outbox_events o
        SET status = 'REJECTED', reason_code = code, reason_detail = detail, held_behind = NULL,
            completed_at = t, updated_at = t
        WHERE o.id = e.id AND o.status = e.status
        RETURNING o.* INTO STRICT after;
        PERFORM follow_end(e, after);
        RETURN after;
    END
    $$;

-- issuing.ask_reconcile of 0017_ends.sql.
CREATE OR REPLACE FUNCTION issuing.ask_reconcile(
    event uuid, within_ms int8, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, check_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    t timestamptz := now();
    deadline timestamptz := t + least(greatest(within_ms, 0), 86400000) * interval '1 millisecond';
    kind text;
    can_be_asked bool;
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    SELECT e.event_type, e.event_type = 'CARD_ISSUE' OR r.has_lookup INTO kind, can_be_asked
    FROM outbox_events e LEFT JOIN routes r ON r.event_type = e.event_type
    WHERE e.id = event;
    IF kind IS NULL THEN
        refused := 'not_found';
    ELSIF can_be_asked IS NOT TRUE THEN
        refused := 'other_type';
    ELSE
        INSERT INTO peer_checks AS p (event_id, deadline_at, action, actor, os_user, sudo_user, reason)
        VALUES (event, deadline, 'reconcile', actor, os_user, sudo_user, why)
        ON CONFLICT (event_id) WHERE finished_at IS NULL
        DO UPDATE SET deadline_at = greatest(p.deadline_at, excluded.deadline_at),
                      due_at = CASE WHEN p.lease_token IS NULL THEN least(p.due_at, t) ELSE p.due_at END,
                      due_set_at = CASE WHEN p.lease_token IS NULL THEN t ELSE p.due_set_at END
        RETURNING p.id INTO check_id;
    END IF;
    RETURN NEXT;
END
$$;

-- issuing.withdraw_check of 0009_operators.sql.
CREATE OR REPLACE FUNCTION issuing.withdraw_check(check_id uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    found_result text;
    t timestamptz := clock_timestamp();
BEGIN
    UPDATE peer_checks p SET finished_at = t, result = 'withdrawn', lease_token = NULL
    WHERE p.id = check_id AND p.finished_at IS NULL;
    SELECT p.result INTO found_result FROM peer_checks p WHERE p.id = check_id;
    RETURN found_result;
END
$$;

-- issuing.ask_check of 0018_cells.sql.
CREATE OR REPLACE FUNCTION issuing.ask_check(event uuid, why text) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    t timestamptz := now();
BEGIN
    -- No error: a worker reports many events in one statement. While a bucket is being moved the trigger refuses the
    -- mark, and the worker reports the event again. The other cell looks the event up before it decides anything.
    IF EXISTS (SELECT FROM cell_buckets c
               WHERE c.bucket = (SELECT issuing.bucket_of(e.user_id) FROM outbox_events e WHERE e.id = event)
                 AND c.state IN ('gone', 'away')) THEN
        RAISE LOG 'issuing: the event % is in another cell, where nobody learns of a late answer: %', event,
            left(why, 200);
        RETURN false;
    END IF;
    INSERT INTO peer_checks AS p (event_id, deadline_at, action, actor, reason)
    SELECT e.id, t + interval '365 days', 'reconcile', 'worker', left(why, 1000)
    FROM outbox_events e WHERE e.id = event AND e.event_type = 'CARD_ISSUE'
    ON CONFLICT (event_id) WHERE finished_at IS NULL
    DO UPDATE SET deadline_at = greatest(p.deadline_at, excluded.deadline_at), due_at = t, lease_token = NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- After the mark, as end_check locks the two.
    UPDATE outbox_events e SET last_sent_at = t, first_sent_at = coalesce(e.first_sent_at, t)
    WHERE e.id = event AND e.event_type = 'CARD_ISSUE' AND e.status <> 'COMPLETED';
    RETURN true;
END
$$;

-- issuing.take_checks of 0018_cells.sql.
CREATE OR REPLACE FUNCTION issuing.take_checks(new_token uuid, most int8, lease_ms int8, worker_name text, types text[])
RETURNS TABLE (
    id uuid, event_id uuid, action text, attempts int4, has_orphan bool,
    status text, user_id text,  -- null = the event is gone
    seen_us int8,               -- updated_at of the state that is judged
    sent_age_ms int8,           -- of the last send that may still arrive; null = certainly nothing was sent
    card_id uuid, issuer_card_id text, card_status text, -- the stored card
    issuer_parameters text,     -- null = none are kept
    made_ms int8,               -- when the event was made: milliseconds since 1970, at least 0
    event_type text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := now();
    leased_until timestamptz := t + lease_ms * interval '1 millisecond';
    due uuid[];
    parked int4[] := issuing.cell_parked();
BEGIN
    WITH old AS MATERIALIZED (
        SELECT o.id FROM peer_checks o WHERE o.finished_at < t - interval '7 days' LIMIT 100 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM peer_checks p USING old o WHERE p.id = o.id;
    -- A mark that a clock set which was ahead: due as much earlier, or nobody would look at it until that time has
    -- come.
    WITH ahead AS MATERIALIZED (
        SELECT o.id, o.due_at - (o.due_set_at - t) AS due_at FROM peer_checks o
        WHERE o.finished_at IS NULL AND o.due_at > t AND o.due_set_at > t + interval '1 second'
        FOR UPDATE SKIP LOCKED
    )
    UPDATE peer_checks p SET due_at = o.due_at, due_set_at = t
    FROM ahead o
    WHERE p.id = o.id;
    due := ARRAY(SELECT p.id FROM peer_checks p
                 WHERE p.finished_at IS NULL AND p.due_at <= t
                   -- A value and not EXISTS: this is asked once for each mark that is taken, not joined with all
                   -- events.
                   AND (SELECT (e.status = 'PROCESSING' AND e.last_sent_at > e.updated_at)
                               OR (e.event_type <> ALL (types) AND p.deadline_at > t)
                               OR issuing.bucket_of(e.user_id) = ANY (parked)
                        FROM outbox_events e WHERE e.id = p.event_id) IS NOT TRUE
                 ORDER BY p.due_at
                 LIMIT most
                 FOR UPDATE SKIP LOCKED);
    -- A send that bears a time still to come was noted by a clock that was ahead: it counts as sent now, so that it
    -- settles.
    UPDATE outbox_events e
    SET last_sent_at = least(e.last_sent_at, t), first_sent_at = least(e.first_sent_at, t)
    WHERE e.id = ANY (ARRAY(SELECT p.event_id FROM peer_checks p WHERE p.id = ANY (due))) AND e.due_at IS NULL
      AND (e.last_sent_at > t + interval '1 second' OR e.first_sent_at > t + interval '1 second');
    RETURN QUERY
    WITH ended AS (
        UPDATE peer_checks p SET finished_at = t, result = 'undecided', lease_token = NULL
        WHERE p.id = ANY (due) AND p.deadline_at <= t
    ), held AS (
        UPDATE peer_checks p
        SET lease_token = new_token, due_at = leased_until, due_set_at = t,
            attempts = p.attempts + 1, worker = worker_name
        WHERE p.id = ANY (due) AND p.deadline_at > t
        RETURNING p.*
    )
    SELECT h.id, h.event_id, h.action, h.attempts, h.orphan_at IS NOT NULL, e.status, e.user_id,
           (extract(epoch FROM e.updated_at) * 1000000)::int8,
           CASE WHEN e.first_sent_at IS NOT NULL
                THEN (extract(epoch FROM t - coalesce(e.last_sent_at, e.first_sent_at)) * 1000)::int8 END, (c.card).id,
        (c.card).issuer_card_id, (c.card).status, e.issuer_parameters::text,
           (extract(epoch FROM least(greatest(e.created_at, 'epoch'), t)) * 1000)::int8, e.event_type
    FROM held h
    LEFT JOIN outbox_events e ON e.id = h.event_id
    CROSS JOIN LATERAL (SELECT issuing.card_of(h.event_id) AS card OFFSET 0) c;
END
$$;

-- issuing.put_check_back of 0009_operators.sql.
CREATE OR REPLACE FUNCTION issuing.put_check_back(check_id uuid, token uuid, delay_ms int8, why text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    t timestamptz := now();
    next_at timestamptz := t + delay_ms * interval '1 millisecond';
BEGIN
    UPDATE peer_checks p
    SET lease_token = NULL,
        due_at = next_at,
        due_set_at = t,
        detail = left(why, 1000),
        finished_at = CASE WHEN next_at >= p.deadline_at THEN t END,
        result = CASE WHEN next_at >= p.deadline_at THEN 'undecided' END
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL;
END
$$;

-- issuing.note_orphan of 0009_operators.sql.
CREATE OR REPLACE FUNCTION issuing.note_orphan(check_id uuid, token uuid) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    t timestamptz := clock_timestamp();
BEGIN
    UPDATE peer_checks p SET orphan_at = coalesce(p.orphan_at, t)
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL;
    RETURN FOUND;
END
$$;

-- issuing.end_check of 0017_ends.sql.
CREATE OR REPLACE FUNCTION issuing.end_check(
    check_id uuid, token uuid, seen_us int8, found_result text, found_detail text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    c peer_checks;
    before outbox_events;
    after outbox_events;
    said text := found_detail;
    ended text := found_result;
    made uuid;
    t timestamptz;
BEGIN
    SELECT p.* INTO c FROM peer_checks p
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    PERFORM lock_order(ARRAY[c.event_id]);
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;
    t := clock_timestamp();
    IF before.id IS NOT NULL AND (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        UPDATE peer_checks p
        SET lease_token = NULL, due_at = now(), due_set_at = now(), detail = 'the event changed meanwhile'
        WHERE p.id = check_id;
        RETURN 'changed';
    END IF;
    IF (c.action = 'reissue') <> (found_result IN ('reissued', 'refused')) AND found_result NOT IN ('gone') THEN
        RAISE EXCEPTION 'a mark of % cannot end %', c.action, found_result USING ERRCODE = '22023';
    END IF;
    IF found_result = 'orphan_cancelled' AND before.status = 'REJECTED' THEN
        UPDATE cards k SET status = 'cancelled', updated_at = now()
        WHERE k.request_id = before.id AND k.status <> 'cancelled';
        PERFORM note_check('reconcile', before, before, c,
                           jsonb_build_object('result', found_result, 'detail', found_detail));
    ELSIF before.status = 'FAILED' AND found_result IN ('found', 'cancelled_at_issuer', 'duplicate') THEN
        after := before;
        IF found_result = 'found' AND NOT can_be_open(before) THEN
            ended := 'refused';
            said := 'out_of_range';
        ELSIF found_result = 'found' AND keeps_place(before) THEN
            after := reopen(before, true);
        ELSIF found_result = 'found' THEN -- two live reissues of one card: a question
            ended := 'refused';
            said := 'place_taken';
        ELSIF found_result = 'cancelled_at_issuer' THEN
            UPDATE cards k SET status = 'cancelled', updated_at = now()
            WHERE k.request_id = before.id AND k.status <> 'cancelled';
            after := reject(before, 'card_cancelled', found_detail);
        ELSIF before.reason_code IS DISTINCT FROM 'issuer_duplicate' THEN
            UPDATE outbox_events e
            SET reason_code = 'issuer_duplicate', reason_detail = found_detail, updated_at = t
            WHERE e.id = before.id
            RETURNING e.* INTO after;
            PERFORM count_end(before, -1), count_end(after, 1);
        END IF;
        IF after IS DISTINCT FROM before THEN
            PERFORM note_check('reconcile', before, after, c, jsonb_build_object('result', found_result));
        END IF;
    ELSIF found_result = 'reissued' THEN
        IF before.status IS DISTINCT FROM 'FAILED' OR EXISTS (SELECT FROM cards k WHERE k.request_id = before.id)
           OR NOT keeps_place(before) THEN
            ended := 'refused';
            said := CASE WHEN before.status IS DISTINCT FROM 'FAILED' THEN 'not_failed'
                         WHEN EXISTS (SELECT FROM cards k WHERE k.request_id = before.id) THEN 'card'
                         ELSE 'place_taken' END;
        ELSE
            made := uuid7();
            INSERT INTO event_reissues (old_id, new_id) VALUES (before.id, made);
            after := reject(before, 'reissued', found_detail || ' ' || made);
            -- Only now, when the old event is REJECTED, does the trigger give the place of its card to the new one.
            INSERT INTO outbox_events (id, event_type, user_id, idempotency_key, payload, traceparent)
            VALUES (made, before.event_type, before.user_id, before.idempotency_key, before.payload,
                    before.traceparent);
            PERFORM note_check('reissue', before, after, c, jsonb_build_object('new_id', made));
            said := NULL;
        END IF;
    END IF;
    UPDATE peer_checks p
    SET finished_at = t, result = ended, detail = said, new_id = made, lease_token = NULL
    WHERE p.id = check_id;
    RETURN 'done';
END
$$;

-- issuing.end_executed_check of 0017_ends.sql.
CREATE OR REPLACE FUNCTION issuing.end_executed_check(check_id uuid, token uuid, seen_us int8, answer text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    c peer_checks;
    before outbox_events;
    after outbox_events;
    t timestamptz;
    kept jsonb;
BEGIN
    SELECT p.* INTO c FROM peer_checks p
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL AND p.action = 'reconcile'
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    PERFORM lock_order(ARRAY[c.event_id]);
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;
    t := clock_timestamp();
    kept := kept_result(answer);
    IF before.id IS NULL OR before.event_type = 'CARD_ISSUE'
       OR (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        UPDATE peer_checks p
        SET lease_token = NULL, due_at = now(), due_set_at = now(), detail = 'the event changed meanwhile'
        WHERE p.id = check_id;
        RETURN 'changed';
    END IF;
    IF before.status = 'FAILED' THEN
        UPDATE outbox_events e
        SET status = 'COMPLETED', reason_code = NULL, reason_detail = NULL, held_behind = NULL,
            result = coalesce(kept, e.result),
            completed_at = t, updated_at = t
        WHERE e.id = before.id
        RETURNING e.* INTO after;
        PERFORM follow_end(before, after);
        PERFORM note_check('reconcile', before, after, c, jsonb_build_object('result', 'executed'));
    END IF;
    UPDATE peer_checks p
    SET finished_at = t, result = 'executed', lease_token = NULL, detail = NULL
    WHERE p.id = check_id;
    RETURN 'done';
END
$$;

-- issuing.control_target of 0016_routes.sql.
CREATE OR REPLACE FUNCTION issuing.control_target(
    action text, target_name text, actor text, os_user text, sudo_user text, why text)
    RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        before target_controls;
        after target_controls;
        t timestamptz := clock_timestamp();
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
                UPDATE target_controls c SET paused_at = t, paused_by = actor, paused_why = why
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
                WITH next AS MATERIALIZED (
                              SELECT n.id FROM outbox_events n
                              WHERE n.event_type = CASE WHEN target_name IN ('issuer', 'core') THEN 'CARD_ISSUE'
                                                        ELSE target_name END
                                AND n.due_at > clock_timestamp() AND n.status = 'PENDING' AND n.held_behind IS NULL
                              ORDER BY n.due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
                UPDATE outbox_events e SET next_attempt_at = t FROM next n WHERE e.id = n.id;
            ELSE
                RAISE EXCEPTION 'no such action: %', action USING ERRCODE = '22023';
        END CASE;
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, before, after)
        VALUES (actor, os_user, sudo_user, action, why, to_jsonb(before), to_jsonb(after));
        RETURN NULL;
    END
    $$;

-- issuing.take_issuer_check of 0015_issuer_checks.sql.
CREATE OR REPLACE FUNCTION issuing.take_issuer_check(new_token uuid, lease_ms int8, worker_name text)
    RETURNS TABLE (id uuid, user_id text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    #variable_conflict use_column
    DECLARE
    t timestamptz := now();
    leased_until timestamptz := t + least(greatest(lease_ms, 0), 60000) * interval '1 millisecond';
BEGIN
        DELETE FROM issuer_checks c
        WHERE c.id IN (SELECT o.id FROM issuer_checks o WHERE o.ended_at < t - interval '7 days'
                       LIMIT 100 FOR UPDATE SKIP LOCKED);
        UPDATE issuer_checks c
        SET ended_at = t, result = 'unanswered', lease_until = NULL, lease_token = NULL
        WHERE c.id IN (SELECT o.id FROM issuer_checks o WHERE o.ended_at IS NULL AND o.deadline_at <= t
                       LIMIT 100 FOR UPDATE SKIP LOCKED);
        RETURN QUERY
        UPDATE issuer_checks c
        SET lease_token = new_token, worker = worker_name,
            lease_until = leased_until
        WHERE c.id = (SELECT o.id FROM issuer_checks o
                      WHERE o.ended_at IS NULL AND o.deadline_at > t
                        AND (o.lease_until IS NULL OR o.lease_until <= t
                             OR o.lease_until > t + interval '1 minute')
                      ORDER BY o.asked_at LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING c.id, c.user_id;
    END
    $$;

-- issuing.end_issuer_check of 0015_issuer_checks.sql.
CREATE OR REPLACE FUNCTION issuing.end_issuer_check(check_id uuid, token uuid, found_result text,
        findings jsonb) RETURNS bool
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
    t timestamptz := clock_timestamp();
BEGIN
        UPDATE issuer_checks c
        SET ended_at = t, result = found_result, detail = findings, lease_until = NULL,
            lease_token = NULL
        WHERE c.id = check_id AND c.lease_token = token AND c.ended_at IS NULL;
        RETURN FOUND;
    END
    $$;
