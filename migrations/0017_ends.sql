-- Why: what belongs to the end of an event happens in the transaction that ends it: the count for outbox_statistics,
-- the event CARD_REQUEST_ENDED where a route delivers it, the answer that a route keeps, and the wake-up of the event
-- that is held behind this one. Locks: SHARE ROW EXCLUSIVE on outbox_events and outbox_attempts for their triggers, for
-- a moment. Older programs go on, and all this holds for their ends too: the functions that they call by name are
-- replaced, and the trigger sees the one end that a statement of a program makes.

-- ---- statistics ----
--
-- outbox_statistics says how many events ended in each hour, how, and how long that took, without a count of all
-- events. It follows the events by seconds, and nothing decides by it. Each function that gives an event its final
-- status, or takes it back, writes what changes into statistics_changes, in the same transaction; a status that is
-- taken back is a change of -1. One worker at a time moves the changes into outbox_statistics
-- (issuing.fold_statistics). A row of outbox_statistics would be a lock that all ends of an hour wait for; changes are
-- only inserted, so no end waits for another.

-- What is counted: events with a final status, by these five columns.
CREATE TABLE issuing.outbox_statistics (
    hour        timestamptz NOT NULL, -- in which the events reached the final status
    event_type  text NOT NULL,
    status      text NOT NULL,
    reason_code text NOT NULL,        -- '' = none
    below_ms    int8 NOT NULL,        -- the time from created_at to the final status was less; one of statistics_bounds
    count       int8 NOT NULL,
    sum_ms      int8 NOT NULL,        -- of these times
    PRIMARY KEY (hour, event_type, status, reason_code, below_ms)
);

-- A change is of events, or of one row of outbox_statistics. To write it must cost nearly nothing, so whoever ends
-- events writes one row for all that ended alike in one call. All computation is left to the fold, which does it for
-- thousands of events at once. No index: rows are inserted at every end and read only all together. Vacuum keeps the
-- table as small as it is empty.
CREATE TABLE issuing.statistics_changes (
    at          timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz NOT NULL, -- when they reached the status; of a row: its hour
    event_type  text NOT NULL,
    event_types text[],               -- one for each event, where they differ
    status      text NOT NULL,
    reason_code text NOT NULL,
    created_ats timestamptz[],        -- of the events
    count       int8 NOT NULL,        -- for each event, or in all; below 0: a final status was taken back
    below_ms    int8,                 -- of a row
    sum_ms      int8,                 -- of a row
    refused     text                  -- why the change cannot be added, as a number that is too large; it is left out
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, toast_tuple_target = 8000);
-- Compression is not worth its time in rows that live for a second.
ALTER TABLE issuing.statistics_changes ALTER created_ats SET STORAGE EXTERNAL, ALTER event_types SET STORAGE EXTERNAL;

-- The bounds of the times, in ms; a time that is longer than the last bound counts as a little less than it.
CREATE FUNCTION issuing.statistics_bounds() RETURNS float8[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT '{10, 25, 50, 100, 250, 500, 1000, 2000, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000,
                 3600000, 7200000, 21600000, 43200000, 86400000, 259200000, 604800000, 1000000000000}'::float8[]
    $$;

-- The count from the rows that are there. Reads the whole outbox. STABLE: a statement that calls it and reads
-- outbox_statistics sees both at the same moment.
CREATE FUNCTION issuing.count_events(since timestamptz) -- hours that begin before are left out
RETURNS TABLE (hour timestamptz, event_type text, status text, reason_code text, below_ms int8, count int8, sum_ms int8)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    #variable_conflict use_column
    DECLARE
        bounds float8[] := statistics_bounds();
    BEGIN
        RETURN QUERY
        SELECT g.hour, g.event_type, g.status, g.reason_code, bounds[width_bucket(g.age_ms::float8, bounds) + 1]::int8,
               count(*), sum(g.age_ms)::int8
        FROM (SELECT date_bin('1 hour', least(greatest(t.ended_at, 'epoch'), '2500-01-01 00:00:00+00'), 'epoch')
                         AS hour,
                     left(e.event_type, 64) AS event_type, e.status, coalesce(e.reason_code, '') AS reason_code,
                     (least(greatest(date_part('epoch', t.ended_at) - date_part('epoch', e.created_at), 0), 999999999)
                      * 1000)::int8 AS age_ms
              FROM outbox_events e CROSS JOIN LATERAL (SELECT coalesce(e.completed_at, e.updated_at) AS ended_at) t
              WHERE e.status IN ('COMPLETED', 'REJECTED', 'FAILED')) g
        WHERE g.hour >= since
        GROUP BY 1, 2, 3, 4, 5;
    END
    $$;

-- What the changes say that wait, in rows like those of outbox_statistics: the same expressions as in count_events.
CREATE VIEW issuing.statistics_waiting AS
SELECT g.place, g.hour, g.event_type, g.status, g.reason_code,
       (issuing.statistics_bounds())[width_bucket(g.age_ms::float8, issuing.statistics_bounds()) + 1]::int8 AS below_ms,
       g.count, g.count * g.age_ms AS sum_ms
FROM (SELECT c.ctid AS place,
             date_bin('1 hour', least(greatest(c.ended_at, 'epoch'), '2500-01-01 00:00:00+00'), 'epoch') AS hour,
             left(coalesce(u.event_type, c.event_type), 64) AS event_type, c.status, c.reason_code, c.count,
             (least(greatest(date_part('epoch', c.ended_at) - date_part('epoch', u.created_at), 0), 999999999)
              * 1000)::int8 AS age_ms
      FROM issuing.statistics_changes c
      CROSS JOIN LATERAL unnest(c.created_ats, c.event_types) AS u (created_at, event_type)
      WHERE c.refused IS NULL) g
UNION ALL
SELECT c.ctid, c.ended_at, c.event_type, c.status, c.reason_code, c.below_ms, c.count, c.sum_ms
FROM issuing.statistics_changes c
WHERE c.refused IS NULL AND c.created_ats IS NULL;

-- The change that one event makes: sign 1 = it has reached the final status that it has, -1 = it leaves it.
CREATE FUNCTION issuing.count_end(e issuing.outbox_events, sign int) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)
        SELECT coalesce(e.completed_at, e.updated_at), e.event_type, e.status, coalesce(e.reason_code, ''),
               ARRAY[e.created_at], sign
        WHERE e.status IN ('COMPLETED', 'REJECTED', 'FAILED')
    $$;
REVOKE ALL ON FUNCTION issuing.count_end(issuing.outbox_events, int) FROM PUBLIC;

-- ---- CARD_REQUEST_ENDED ----

-- issuing.uuid7 of 0005_schema.sql. The 12 bits behind the milliseconds are the fraction of the millisecond (RFC 9562,
-- 6.2, method 3): where events of one user are delivered in the order of their ids, those of one transaction have to
-- be in order too, and a millisecond is long.
CREATE OR REPLACE FUNCTION issuing.uuid7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT encode(overlay(uuid_send(gen_random_uuid())
                              PLACING int8send((t.us / 1000) << 16 | 28672 | (t.us % 1000) * 4096 / 1000)
                              FROM 1 FOR 8), 'hex')::uuid
        FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::int8 AS us OFFSET 0) t
    $$;

-- Follows, as a statement of its own, the end of these events: where CARD_REQUEST_ENDED is delivered, it inserts such
-- an event for each card request among them, with what `GET /v1/card-requests/{id}` says from now on
-- (api/card_requests.c). Odd values in a row of another service must not make the ends fail: texts longer than the api
-- accepts are cut, times are limited to those that the api can write, and a request whose user id no event may have
-- gets no event. The id is made as in uuid7(), without the call, which is a fifth of the cost.
CREATE FUNCTION issuing.tell_ends(
    events uuid[],
    at timestamptz) -- only those that ended at this time; null = all
    RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan SET jit = off
    AS $$
    BEGIN
        IF NOT EXISTS (SELECT FROM routes r WHERE r.event_type = 'CARD_REQUEST_ENDED') THEN
            RETURN;
        END IF;
        INSERT INTO outbox_events (id, event_type, user_id, traceparent, payload)
        SELECT encode(overlay(uuid_send(gen_random_uuid())
                              PLACING int8send((u.us / 1000) << 16 | 28672 | (u.us % 1000) * 4096 / 1000)
                              FROM 1 FOR 8), 'hex')::uuid,
               'CARD_REQUEST_ENDED', e.user_id, e.traceparent,
               jsonb_build_object(
                   'id', e.id,
                   'kind', CASE WHEN pg_column_size(e.payload) <= 262144 THEN left(e.payload ->> 'kind', 64) END,
                   'status', e.status,
                   'created_at', to_char(least(greatest(e.created_at, '0001-01-01 00:00:00+00'),
                                               '9999-12-31 23:59:59.999999+00') AT TIME ZONE 'UTC',
                                         'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                   'updated_at', to_char(least(greatest(e.updated_at, '0001-01-01 00:00:00+00'),
                                               '9999-12-31 23:59:59.999999+00') AT TIME ZONE 'UTC',
                                         'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                   'card', CASE WHEN e.status = 'COMPLETED' AND c.id IS NOT NULL
                                THEN jsonb_build_object('id', c.id, 'last4', c.last4, 'exp_month', c.exp_month,
                                                        'exp_year', c.exp_year, 'status', c.status) END,
                   'reason', CASE WHEN e.status <> 'COMPLETED'
                                  THEN jsonb_build_object('code', e.reason_code,
                                                          'detail', left(e.reason_detail, 1000)) END)
        FROM unnest(events) AS a (id)
        JOIN outbox_events e ON e.id = a.id
        LEFT JOIN cards c ON c.request_id = e.id
        CROSS JOIN LATERAL (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::int8 AS us OFFSET 0) u
        WHERE e.event_type = 'CARD_ISSUE' AND e.status IN ('COMPLETED', 'REJECTED', 'FAILED')
          AND octet_length(e.user_id) BETWEEN 1 AND 128 AND (at IS NULL OR e.completed_at = at);
    END
    $$;
REVOKE ALL ON FUNCTION issuing.tell_ends(uuid[], timestamptz) FROM PUBLIC;

-- The trigger of 0011_limits.sql. The call is another fifth of the cost of the rows of tell_ends, so it is left out for
-- rows that are well in range, as those are. Other services may insert this type too, with anything in it.
CREATE OR REPLACE TRIGGER outbox_events_range BEFORE INSERT ON issuing.outbox_events
    FOR EACH ROW WHEN (NEW.idempotency_key IS NULL
                       AND (NEW.event_type <> 'CARD_REQUEST_ENDED' OR octet_length(NEW.payload::text) > 8192
                            OR octet_length(NEW.user_id) NOT BETWEEN 1 AND 128 OR NEW.retry_count > 0
                            OR greatest(NEW.created_at, NEW.updated_at, NEW.next_attempt_at) > now() + interval '24 h'
                            OR least(NEW.created_at, NEW.updated_at) < now() - interval '24 h'
                            OR NEW.first_sent_at IS NOT NULL OR NEW.deferred_since IS NOT NULL)
                       OR pg_column_size(NEW.payload) > 8192)
    EXECUTE FUNCTION issuing.refuse_row();

-- ---- the ends of attempts ----

-- A receiver's answer as jsonb, or null where the event cannot keep it: no JSON, too long, beyond what jsonb takes, or
-- with a number whose digits would fill the memory when it is written out.
CREATE FUNCTION issuing.kept_result(answer text) RETURNS jsonb
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        kept jsonb;
        long_number CONSTANT text := '[0-9][eE][+-]?0*[1-9][0-9]{2}';
    BEGIN
        -- Ids in hexadecimal digits look like such numbers, so texts do not count.
        IF octet_length(answer) > 8192 OR
           (answer ~ long_number AND regexp_replace(answer, '"(?:[^"\\]|\\.)*"', '""', 'g') ~ long_number) THEN
            RETURN NULL;
        END IF;
        kept := answer::jsonb;
        RETURN CASE WHEN octet_length(kept::text) <= 16384 THEN kept END;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        RETURN NULL;
    END
    $$;

-- The end FAILED `worker_lost` is made by the statement outbox_sweep of the worker, which also writes a row of the lost
-- attempt. An event that ended in an earlier statement was dealt with then: the housekeeping moves such rows.
CREATE FUNCTION issuing.follow_lost() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        e outbox_events;
    BEGIN
        SELECT o.* INTO e FROM outbox_events o
        WHERE o.id = NEW.event_id AND o.status = 'FAILED' AND o.reason_code = 'worker_lost'
          AND o.completed_at >= statement_timestamp();
        IF FOUND THEN
            PERFORM count_end(e, 1), tell_ends(ARRAY[e.id], NULL);
        END IF;
        RETURN NULL;
    END
    $$;
REVOKE ALL ON FUNCTION issuing.follow_lost() FROM PUBLIC;
CREATE TRIGGER outbox_attempts_lost AFTER INSERT ON issuing.outbox_attempts
    FOR EACH ROW WHEN (NEW.outcome = 'lost') EXECUTE FUNCTION issuing.follow_lost();

-- issuing.complete of 0007_attempts.sql, where it is explained, with the step and with the answers that events keep.
-- Card requests, whose last step is the link, are in no order; the ends of other events insert no CARD_REQUEST_ENDED.
CREATE FUNCTION issuing.complete(
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
BEGIN
    IF step <> 'link' THEN
        PERFORM lock_order(ids);
    END IF;
    RETURN QUERY
    WITH completed AS (
        UPDATE outbox_events e
        SET status = 'COMPLETED', lease_token = NULL, lease_until = NULL, deferred_since = NULL, deferral_count = 0,
            deferral_code = NULL, last_error = NULL, reason_code = NULL, reason_detail = NULL, completed_at = now(),
            updated_at = now(),
            result = CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) ELSE e.result END
        FROM unnest(ids, tokens, tooks_ms, results) AS a (id, token, took_ms, result)
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, a.token, a.took_ms, e.event_type, e.created_at
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                     step, outcome)
        SELECT d.id, d.token, now() - d.took_ms * interval '1 millisecond', now(), d.retry_count, false, d.user_id,
               worker, step, 'completed'
        FROM completed d
    ), counted AS (
        -- One row, because a group for each type costs more than all else here.
        INSERT INTO statistics_changes (ended_at, event_type, event_types, status, reason_code, created_ats, count)
        SELECT now(), min(d.event_type),
               CASE WHEN min(d.event_type) <> max(d.event_type) THEN array_agg(d.event_type) END,
               'COMPLETED', '', array_agg(d.created_at), 1
        FROM completed d
        HAVING count(*) > 0
    )
    SELECT d.id FROM completed d;
    IF step <> 'link' THEN
        PERFORM wake_held(ids);
    ELSIF EXISTS (SELECT FROM routes r WHERE r.event_type = 'CARD_REQUEST_ENDED') THEN
        PERFORM tell_ends(ids, now());
    END IF;
END
$$;

-- For programs of the release before: cards only, whose last step is the link.
CREATE OR REPLACE FUNCTION issuing.complete(ids uuid[], tokens uuid[], worker text, tooks_ms int8[])
RETURNS TABLE (id uuid)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT d.id FROM issuing.complete(ids, tokens, worker, tooks_ms, 'link', NULL) d
$$;

-- issuing.end_attempts of 0007_attempts.sql, where it is explained, as 0014 has it, with the answers that events keep.
CREATE FUNCTION issuing.end_attempts(
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
BEGIN
    PERFORM lock_order(ids);
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT *, a.code !~ '^(issuer|core|route)_' AS is_ours
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
            next_attempt_at = CASE WHEN a.status = 'PENDING' THEN now() + a.delay_ms * interval '1 millisecond'
                                   ELSE e.next_attempt_at END,
            -- Only what the claim of this attempt has set: an earlier attempt's send is not this one's to forget.
            first_sent_at = CASE WHEN a.clear_sent AND e.first_sent_at = e.updated_at AND e.last_sent_at IS NULL
                                 THEN NULL ELSE e.first_sent_at END,
            last_sent_at = CASE WHEN a.may_arrive THEN now() ELSE e.last_sent_at END,
            held_end = a.held_end, held_end_code = a.held_end_code,
            lost_count = 0,
            deferred_since = CASE WHEN a.deferred THEN coalesce(e.deferred_since, now()) END,
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
            result = CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) ELSE e.result END,
            completed_at = CASE WHEN a.status <> 'PENDING' THEN now() END,
            updated_at = now()
        FROM asked a
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, e.deferral_count, e.deferral_code, e.status, e.reason_code,
                  e.event_type, e.created_at
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                     step, outcome, code, detail)
        SELECT d.id, a.token, now() - a.took_ms * interval '1 millisecond', now(),
               d.retry_count + CASE WHEN a.give_back THEN 1 ELSE 0 END, a.unknown, d.user_id, worker, a.step, a.outcome,
               a.code, a.detail
        FROM changed d JOIN asked a ON a.id = d.id
        WHERE NOT (a.give_back AND (d.deferral_count > 1 OR d.deferral_code IS DISTINCT FROM a.code))
        ON CONFLICT DO NOTHING
    ), counted AS (
        INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)
        SELECT now(), d.event_type, d.status, coalesce(d.reason_code, ''), array_agg(d.created_at), 1
        FROM changed d
        WHERE d.status <> 'PENDING'
        GROUP BY d.event_type, d.status, d.reason_code
    ), card_changed AS (
        UPDATE cards c SET status = a.card_status, updated_at = now()
        FROM changed d JOIN asked a ON a.id = d.id
        WHERE a.card_status IS NOT NULL AND c.request_id = d.id
    ), card_replaced AS (
        UPDATE cards c SET status = 'replaced', updated_at = now()
        FROM changed d JOIN asked a ON a.id = d.id
        WHERE a.replaced IS NOT NULL AND c.id = a.replaced AND c.user_id = d.user_id AND c.status = 'active'
    )
    SELECT d.id FROM changed d;
    IF EXISTS (SELECT FROM routes) THEN
        PERFORM wake_held(ARRAY(SELECT u.id FROM unnest(ids, statuses) AS u (id, status)
                                WHERE u.status IN ('COMPLETED', 'REJECTED')));
        PERFORM tell_ends(ids, now());
    END IF;
END
$$;

-- For programs of the release before, which keep no answers. They call older ones still, which call this one.
CREATE OR REPLACE FUNCTION issuing.end_attempts(
    ids uuid[], tokens uuid[], statuses text[], delays_ms int8[], give_backs bool[], clear_sents bool[],
    deferreds bool[], reason_codes text[], reason_details text[], last_errors text[], steps text[], outcomes text[],
    codes text[], details text[], unknowns bool[], worker text, tooks_ms int8[], card_statuses text[],
    replaced_ids uuid[], may_arrives bool[], held_ends text[], held_end_codes text[], parameters text[])
RETURNS TABLE (id uuid)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT d.id
    FROM issuing.end_attempts(ids, tokens, statuses, delays_ms, give_backs, clear_sents, deferreds, reason_codes,
                              reason_details, last_errors, steps, outcomes, codes, details, unknowns, worker, tooks_ms,
                              card_statuses, replaced_ids, may_arrives, held_ends, held_end_codes, parameters, NULL) d
$$;

-- ---- what operators end ----

-- The functions of 0009_operators.sql that end an event or take its end back. A function that may end an event calls
-- lock_order before it locks the event's row.
CREATE OR REPLACE FUNCTION issuing.reopen(e issuing.outbox_events, was_found bool) RETURNS issuing.outbox_events
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        after outbox_events;
    BEGIN
        UPDATE outbox_events o
        SET status = 'PENDING', retry_count = 0, lost_count = 0, deferral_count = 0, deferral_code = NULL,
            deferred_since = NULL, held_end = NULL, held_end_code = NULL,
            next_attempt_at = now(), updated_at = clock_timestamp(), completed_at = NULL, reason_code = NULL,
            reason_detail = NULL, last_error = NULL,
            first_sent_at = CASE WHEN was_found THEN coalesce(o.first_sent_at, o.created_at)
                                 ELSE o.first_sent_at END
        WHERE o.id = e.id AND o.status = 'FAILED'
        RETURNING o.* INTO STRICT after;
        PERFORM count_end(e, -1);
        RETURN after;
    END
    $$;

-- What follows from the end that an operator or a mark has given this event. before: the row as it was, also FAILED.
CREATE FUNCTION issuing.follow_end(before issuing.outbox_events, after issuing.outbox_events) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM count_end(before, -1), count_end(after, 1);
        PERFORM wake_held(ARRAY[after.id]);
        PERFORM tell_ends(ARRAY[after.id], NULL);
    END
    $$;

CREATE OR REPLACE FUNCTION issuing.reject(e issuing.outbox_events, code text, detail text) RETURNS issuing.outbox_events
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        after outbox_events;
    BEGIN
        UPDATE outbox_events o
        SET status = 'REJECTED', reason_code = code, reason_detail = detail, held_behind = NULL,
            completed_at = clock_timestamp(), updated_at = clock_timestamp()
        WHERE o.id = e.id AND o.status = e.status
        RETURNING o.* INTO STRICT after;
        PERFORM follow_end(e, after);
        RETURN after;
    END
    $$;

CREATE OR REPLACE FUNCTION issuing.cancel(
    event uuid, seen_us int8, detail text, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, event_row issuing.outbox_events)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before outbox_events;
BEGIN
    PERFORM lock_order(ARRAY[event]);
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = event FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    event_row := before;
    IF before.status = 'PROCESSING' THEN
        refused := 'processing';
    ELSIF before.status <> 'PENDING' THEN
        refused := 'not_pending';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    ELSIF EXISTS (SELECT FROM cards c WHERE c.request_id = event) THEN
        refused := 'card';
    ELSIF before.first_sent_at IS NOT NULL THEN
        refused := 'sent';
    ELSE
        event_row := reject(before, 'cancelled', left(detail, 1000));
        PERFORM note_action('cancel', before, event_row, actor, os_user, sudo_user, why, NULL);
    END IF;
    RETURN NEXT;
END
$$;

CREATE OR REPLACE FUNCTION issuing.resolve(
    event uuid, seen_us int8, no_card_confirmed bool, settle_ms int8, detail text, actor text, os_user text,
    sudo_user text, why text)
RETURNS TABLE (refused text, event_row issuing.outbox_events)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before outbox_events;
BEGIN
    PERFORM lock_order(ARRAY[event]);
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = event FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    event_row := before;
    IF before.status <> 'FAILED' THEN
        refused := 'not_failed';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    ELSIF has_card(event) THEN
        refused := 'card';
    ELSIF before.first_sent_at IS NOT NULL AND no_card_confirmed IS NOT TRUE THEN
        refused := 'unknown';
    ELSIF sent_age_ms(before) < settle_ms THEN
        refused := 'settling';
    ELSE
        event_row := reject(before, 'resolved', left(detail, 1000));
        PERFORM note_action('resolve', before, event_row, actor, os_user, sudo_user, why,
                            jsonb_build_object('no_card_confirmed', no_card_confirmed IS TRUE));
    END IF;
    RETURN NEXT;
END
$$;

-- Its results are explained in 0009_operators.sql.
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
BEGIN
    SELECT p.* INTO c FROM peer_checks p
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    PERFORM lock_order(ARRAY[c.event_id]);
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;
    IF FOUND AND (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
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
            SET reason_code = 'issuer_duplicate', reason_detail = found_detail, updated_at = clock_timestamp()
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
    SET finished_at = clock_timestamp(), result = ended, detail = said, new_id = made, lease_token = NULL
    WHERE p.id = check_id;
    RETURN 'done';
END
$$;

-- ---- marks of events that routes deliver ----

-- Only marks of events of these types: a worker takes what it can look up. A mark that no worker takes ends at its
-- deadline, and so does a mark whose event is gone. 0009_operators.sql explains the rest.
CREATE FUNCTION issuing.take_checks(new_token uuid, most int8, lease_ms int8, worker_name text, types text[])
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
    due uuid[];
BEGIN
    DELETE FROM peer_checks p
    WHERE p.id IN (SELECT o.id FROM peer_checks o
                   WHERE o.finished_at < now() - interval '7 days' LIMIT 100 FOR UPDATE SKIP LOCKED);
    -- A mark that a clock set which was ahead: due as much earlier, or nobody would look at it until that time has
    -- come.
    UPDATE peer_checks p SET due_at = p.due_at - (p.due_set_at - now()), due_set_at = now()
    WHERE p.id IN (SELECT o.id FROM peer_checks o
                   WHERE o.finished_at IS NULL AND o.due_at > now() AND o.due_set_at > now() + interval '1 second'
                   FOR UPDATE SKIP LOCKED);
    due := ARRAY(SELECT p.id FROM peer_checks p
                 WHERE p.finished_at IS NULL AND p.due_at <= now()
                   -- A value and not EXISTS: this is asked once for each mark that is taken, not joined with all
                   -- events.
                   AND (SELECT (e.status = 'PROCESSING' AND e.last_sent_at > e.updated_at)
                               OR (e.event_type <> ALL (types) AND p.deadline_at > now())
                        FROM outbox_events e WHERE e.id = p.event_id) IS NOT TRUE
                 ORDER BY p.due_at
                 LIMIT most
                 FOR UPDATE SKIP LOCKED);
    -- A send that bears a time still to come was noted by a clock that was ahead: it counts as sent now, so that it
    -- settles.
    UPDATE outbox_events e
    SET last_sent_at = least(e.last_sent_at, now()), first_sent_at = least(e.first_sent_at, now())
    WHERE e.id = ANY (ARRAY(SELECT p.event_id FROM peer_checks p WHERE p.id = ANY (due))) AND e.due_at IS NULL
      AND (e.last_sent_at > now() + interval '1 second' OR e.first_sent_at > now() + interval '1 second');
    RETURN QUERY
    WITH ended AS (
        UPDATE peer_checks p SET finished_at = clock_timestamp(), result = 'undecided', lease_token = NULL
        WHERE p.id = ANY (due) AND p.deadline_at <= now()
    ), held AS (
        UPDATE peer_checks p
        SET lease_token = new_token, due_at = now() + lease_ms * interval '1 millisecond', due_set_at = now(),
            attempts = p.attempts + 1, worker = worker_name
        WHERE p.id = ANY (due) AND p.deadline_at > now()
        RETURNING p.*
    )
    SELECT h.id, h.event_id, h.action, h.attempts, h.orphan_at IS NOT NULL, e.status, e.user_id,
           (extract(epoch FROM e.updated_at) * 1000000)::int8,
           issuing.sent_age_ms(e), (c.card).id, (c.card).issuer_card_id, (c.card).status, e.issuer_parameters::text,
           (extract(epoch FROM least(greatest(e.created_at, 'epoch'), now())) * 1000)::int8, e.event_type
    FROM held h
    LEFT JOIN outbox_events e ON e.id = h.event_id
    CROSS JOIN LATERAL (SELECT issuing.card_of(h.event_id) AS card OFFSET 0) c;
END
$$;

-- For older workers, which know cards only.
CREATE OR REPLACE FUNCTION issuing.take_checks(new_token uuid, most int8, lease_ms int8, worker_name text)
RETURNS TABLE (
    id uuid, event_id uuid, action text, attempts int4, has_orphan bool, status text, user_id text, seen_us int8,
    sent_age_ms int8, card_id uuid, issuer_card_id text, card_status text, issuer_parameters text, made_ms int8)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT t.id, t.event_id, t.action, t.attempts, t.has_orphan, t.status, t.user_id, t.seen_us, t.sent_age_ms,
           t.card_id, t.issuer_card_id, t.card_status, t.issuer_parameters, t.made_ms
    FROM take_checks(new_token, most, lease_ms, worker_name, ARRAY['CARD_ISSUE']) t;
END
$$;

-- issuing.ask_reconcile of 0009_operators.sql, also for the events of routes that have a look-up.
CREATE OR REPLACE FUNCTION issuing.ask_reconcile(
    event uuid, within_ms int8, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, check_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    deadline timestamptz := now() + least(greatest(within_ms, 0), 86400000) * interval '1 millisecond';
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
                      due_at = CASE WHEN p.lease_token IS NULL THEN least(p.due_at, now()) ELSE p.due_at END,
                      due_set_at = CASE WHEN p.lease_token IS NULL THEN now() ELSE p.due_set_at END
        RETURNING p.id INTO check_id;
    END IF;
    RETURN NEXT;
END
$$;

-- The receiver of a route says that it has executed the event: a FAILED one is COMPLETED, with this answer where the
-- route keeps answers. A REJECTED one stays REJECTED, and the mark tells the operator. Guarded as end_check is.
CREATE FUNCTION issuing.end_executed_check(check_id uuid, token uuid, seen_us int8, answer text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    c peer_checks;
    before outbox_events;
    after outbox_events;
BEGIN
    SELECT p.* INTO c FROM peer_checks p
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL AND p.action = 'reconcile'
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    PERFORM lock_order(ARRAY[c.event_id]);
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;
    IF NOT FOUND OR before.event_type = 'CARD_ISSUE'
       OR (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        UPDATE peer_checks p
        SET lease_token = NULL, due_at = now(), due_set_at = now(), detail = 'the event changed meanwhile'
        WHERE p.id = check_id;
        RETURN 'changed';
    END IF;
    IF before.status = 'FAILED' THEN
        UPDATE outbox_events e
        SET status = 'COMPLETED', reason_code = NULL, reason_detail = NULL, held_behind = NULL,
            result = coalesce(kept_result(answer), e.result),
            completed_at = clock_timestamp(), updated_at = clock_timestamp()
        WHERE e.id = before.id
        RETURNING e.* INTO after;
        PERFORM follow_end(before, after);
        PERFORM note_check('reconcile', before, after, c, jsonb_build_object('result', 'executed'));
    END IF;
    UPDATE peer_checks p
    SET finished_at = clock_timestamp(), result = 'executed', lease_token = NULL, detail = NULL
    WHERE p.id = check_id;
    RETURN 'done';
END
$$;
REVOKE ALL ON FUNCTION issuing.take_checks(uuid, int8, int8, text, text[]),
    issuing.end_executed_check(uuid, uuid, int8, text) FROM PUBLIC;

-- ---- changes become statistics ----

-- Moves the changes at these places, as the fold does; returns their number. Only the fold deletes changes, one fold
-- at a time, so both parts of the statement see the same.
CREATE FUNCTION issuing.fold_changes(places tid[]) RETURNS int8
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        WITH added AS (
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
    $$;
REVOKE ALL ON FUNCTION issuing.fold_changes(tid[]) FROM PUBLIC;

-- Moves changes, `most` at most, into outbox_statistics. What is deleted is what is added, in one transaction: a worker
-- that dies changes nothing. One at a time over all workers, by the lock. A change that cannot be added is marked and
-- left out, and the others go on.
CREATE FUNCTION issuing.fold_statistics(most int8)
RETURNS TABLE (
    folded int8,   -- changes that were moved
    refused int8,  -- changes that were marked
    has_more bool) -- another call finds more
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        places tid[];
        place tid;
    BEGIN
        folded := 0;
        refused := 0;
        IF pg_try_advisory_xact_lock(4711, 4) THEN
            places := ARRAY(SELECT c.ctid FROM statistics_changes c WHERE c.refused IS NULL LIMIT most);
        END IF;
        BEGIN
            folded := fold_changes(places);
        EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
            FOREACH place IN ARRAY places LOOP
                BEGIN
                    folded := folded + fold_changes(ARRAY[place]);
                EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
                    UPDATE statistics_changes c SET refused = left(SQLERRM, 200) WHERE c.ctid = place;
                    refused := refused + 1;
                END;
            END LOOP;
        END;
        has_more := folded + refused >= most;
        RETURN NEXT;
    END
    $$;

-- Makes the statistics equal to what count_events says, whatever they were. One statement compares the rows, the
-- statistics and the changes that wait, all at one moment, and writes the difference as further changes; so it may run
-- beside ends and folds, and every end is counted once. What the housekeeping has deleted is not counted any more.
CREATE FUNCTION issuing.rebuild_statistics(
    since_us int8, -- microseconds since 1970: hours that begin before stay as they are; null = all
    actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, corrected int8) -- `busy`; else how many rows of the statistics were wrong
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    #variable_conflict use_column
    DECLARE
        since timestamptz := coalesce(timestamptz 'epoch' + since_us * interval '1 microsecond', '-infinity');
    BEGIN
        PERFORM check_who(actor, os_user, sudo_user, why);
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.rebuild_statistics needs READ COMMITTED, not %',
                current_setting('transaction_isolation') USING ERRCODE = '25001';
        END IF;
        IF NOT pg_try_advisory_xact_lock(4711, 5) THEN
            refused := 'busy';
            RETURN NEXT;
            RETURN;
        END IF;
        WITH forgotten AS (
            DELETE FROM statistics_changes c WHERE c.refused IS NOT NULL AND c.ended_at >= since - interval '1 hour'
        ), missing AS (
            INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, below_ms, count, sum_ms)
            SELECT d.hour, d.event_type, d.status, d.reason_code, d.below_ms, sum(d.count)::int8, sum(d.sum_ms)::int8
            FROM (SELECT n.hour, n.event_type, n.status, n.reason_code, n.below_ms, n.count::numeric, n.sum_ms::numeric
                  FROM count_events(since) n
                  UNION ALL
                  SELECT s.hour, s.event_type, s.status, s.reason_code, s.below_ms,
                         -s.count::numeric, -s.sum_ms::numeric
                  FROM outbox_statistics s WHERE s.hour >= since
                  UNION ALL
                  SELECT w.hour, w.event_type, w.status, w.reason_code, w.below_ms,
                         -w.count::numeric, -w.sum_ms::numeric
                  FROM statistics_waiting w WHERE w.hour >= since) d
            GROUP BY 1, 2, 3, 4, 5
            HAVING sum(d.count) <> 0 OR sum(d.sum_ms) <> 0
            RETURNING 1
        )
        SELECT count(*) INTO corrected FROM missing;
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, after)
        VALUES (actor, os_user, sudo_user, 'rebuild_statistics', why,
                jsonb_build_object('since', CASE WHEN since_us IS NOT NULL THEN since END, 'corrected', corrected));
        -- The caller wants to see the result. A worker folds what is left after these.
        FOR i IN 1..100 LOOP
            EXIT WHEN NOT (SELECT f.has_more FROM fold_statistics(1000) f);
        END LOOP;
        RETURN NEXT;
    END
    $$;
REVOKE ALL ON FUNCTION issuing.fold_statistics(int8), issuing.rebuild_statistics(int8, text, text, text, text)
FROM PUBLIC;

-- A status can be taken back from FAILED only, so the events that are FAILED now are counted now, by
-- outbox_events_failed. What ended otherwise before this release, `issuing-ctl stats --rebuild` counts.
INSERT INTO issuing.statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)
SELECT coalesce(e.completed_at, e.updated_at), e.event_type, e.status, coalesce(e.reason_code, ''),
       ARRAY[e.created_at], 1
FROM issuing.outbox_events e WHERE e.failed_at IS NOT NULL;

-- grants.sql runs only when all files are applied; the older programs go on meanwhile.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_worker') THEN
        GRANT INSERT ON issuing.statistics_changes TO issuing_worker;
        GRANT SELECT ON issuing.routes TO issuing_worker;
        GRANT UPDATE (result, held_behind) ON issuing.outbox_events TO issuing_worker;
        GRANT EXECUTE ON FUNCTION issuing.tell_ends(uuid[], timestamptz) TO issuing_worker;
    END IF;
END
$$;
