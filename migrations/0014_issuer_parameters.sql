-- Why: what an issuer must be told of the user of an event (holder, product) is kept from the first attempt that leaves
-- an outcome unknown. A repeat under the same key must be the same request, and a look-up may need the holder after
-- core-api has forgotten the user. Locks: ACCESS EXCLUSIVE on outbox_events for the new column, for a moment. Older
-- programs go on: they call the functions below by the columns and with the parameters that they know. A claim, or a
-- take of marks, that runs at this moment may fail once; it is repeated.

ALTER TABLE issuing.outbox_events
    ADD COLUMN issuer_parameters jsonb
        CHECK (jsonb_typeof(issuer_parameters) = 'object' AND pg_column_size(issuer_parameters) <= 4096);

-- issuing.claim of 0007_attempts.sql, where its locks, order, fence and bookmark are explained, with two more columns.
DROP FUNCTION issuing.claim(uuid, int8, int8, text, int8, int8, bool);
CREATE FUNCTION issuing.claim(
    new_token uuid, most int8, lease_ms int8, worker text,
    since_us int8, -- the bookmark: microseconds since 1970; null = from the beginning
    slack_ms int8, -- so long a commit may take to become visible without being left to the sweep
    alone bool)
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
    made_ms int8)                 -- when the row was made: milliseconds since 1970, at least 0
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
BEGIN
    IF alone THEN
        DELETE FROM lost_events l
        WHERE l.since < now() - interval '1 minute'
          AND NOT EXISTS (SELECT FROM outbox_events e
                          WHERE e.id = l.event_id AND e.due_at IS NOT NULL AND e.lost_count >= 2);
        SELECT e.id INTO alone_id
        FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
        WHERE e.event_type = 'CARD_ISSUE' AND e.status = 'PENDING' AND e.due_at <= now() AND e.lost_count >= 2
        ORDER BY e.due_at
        LIMIT 1
        FOR UPDATE OF e SKIP LOCKED;
    END IF;
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT e.id, e.first_sent_at, e.updated_at,
               CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now()
                    ELSE interval '0' END AS ahead
        FROM outbox_events e
        WHERE NOT alone AND e.event_type = 'CARD_ISSUE' AND e.due_at >= since AND e.due_at <= now()
          AND e.status = 'PENDING' AND e.lost_count < 2
        ORDER BY e.due_at
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ), one AS MATERIALIZED (
        SELECT e.id, e.first_sent_at, e.updated_at,
               CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now()
                    ELSE interval '0' END AS ahead
        FROM outbox_events e
        WHERE alone AND e.id = alone_id
    ), held AS (
        UPDATE outbox_events e
        SET status = 'PROCESSING', retry_count = least(e.retry_count + 1, 1000000), lease_token = new_token,
            lease_owner = worker,
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
           (extract(epoch FROM least(greatest(h.created_at, 'epoch'), now())) * 1000)::int8
    FROM held h
    -- Looked for only where there can be one.
    CROSS JOIN LATERAL (SELECT CASE WHEN h.sent_before IS NOT NULL THEN issuing.card_of(h.id) END AS found OFFSET 0) c
    CROSS JOIN LATERAL (SELECT CASE WHEN h.payload ->> 'replaces' IS NOT NULL
                                    THEN issuing.issuer_card_id_of(h.user_id, h.payload ->> 'replaces')
                               END AS issuer_card_id OFFSET 0) r
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           CASE WHEN NOT alone
                THEN (extract(epoch FROM CASE WHEN count(*) < most THEN now() - slack_ms * interval '1 millisecond'
                                              ELSE max(greatest(h.due_at,
                                                                timestamptz 'epoch' - interval '1 microsecond')) END)
                      * 1000000)::int8 END,
           NULL, CASE WHEN EXISTS (SELECT FROM lost_events) AND issuing.lost_is_due(alone_id) THEN 1 ELSE 0 END,
           (extract(epoch FROM now()) * 1000000)::int8,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM held h;
END
$$;

-- issuing.end_attempts of 0007_attempts.sql, where it is explained, with one more parameter.
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
    parameters text[])     -- JSON objects: kept where the event keeps none yet; null = none
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
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT *, a.code !~ '^(issuer|core)_' AS is_ours
        FROM unnest(ids, tokens, statuses, delays_ms, give_backs, clear_sents, deferreds, reason_codes, reason_details,
                    last_errors, steps, outcomes, codes, details, unknowns, tooks_ms, card_statuses, replaced_ids,
                    may_arrives, held_ends, held_end_codes, parameters)
            AS a (id, token, status, delay_ms, give_back, clear_sent, deferred, reason_code, reason_detail, last_error,
                  step, outcome, code, detail, unknown, took_ms, card_status, replaced, may_arrive, held_end,
                  held_end_code, parameters)
    ), ended AS (
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
                                  WHEN a.is_ours AND e.deferral_code ~ '^(issuer|core)_' THEN e.deferral_count
                                  ELSE 1 END,
            deferral_code = CASE WHEN NOT a.give_back THEN NULL
                                 WHEN a.is_ours AND e.deferral_code ~ '^(issuer|core)_' THEN e.deferral_code
                                 ELSE a.code END,
            reason_code = a.reason_code,
            reason_detail = a.reason_detail,
            last_error = a.last_error,
            -- Before another attempt core-api is asked anew, where certainly nothing was sent with these.
            issuer_parameters = CASE WHEN a.clear_sent AND a.status <> 'REJECTED' AND e.last_sent_at IS NULL
                                         AND e.first_sent_at = e.updated_at
                                     THEN NULL ELSE coalesce(e.issuer_parameters, a.parameters::jsonb) END,
            completed_at = CASE WHEN a.status <> 'PENDING' THEN now() END,
            updated_at = now()
        FROM asked a
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, e.deferral_count, e.deferral_code
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                     step, outcome, code, detail)
        SELECT d.id, a.token, now() - a.took_ms * interval '1 millisecond', now(),
               d.retry_count + CASE WHEN a.give_back THEN 1 ELSE 0 END, a.unknown, d.user_id, worker, a.step, a.outcome,
               a.code, a.detail
        FROM ended d JOIN asked a ON a.id = d.id
        WHERE NOT (a.give_back AND (d.deferral_count > 1 OR d.deferral_code IS DISTINCT FROM a.code))
        ON CONFLICT DO NOTHING
    ), card_changed AS (
        UPDATE cards c SET status = a.card_status, updated_at = now()
        FROM ended d JOIN asked a ON a.id = d.id
        WHERE a.card_status IS NOT NULL AND c.request_id = d.id
    ), card_replaced AS (
        UPDATE cards c SET status = 'replaced', updated_at = now()
        FROM ended d JOIN asked a ON a.id = d.id
        WHERE a.replaced IS NOT NULL AND c.id = a.replaced AND c.user_id = d.user_id AND c.status = 'active'
    )
    SELECT d.id FROM ended d;
END
$$;

-- For programs of the release before, which keep no parameters.
CREATE OR REPLACE FUNCTION issuing.end_attempts(
    ids uuid[], tokens uuid[], statuses text[], delays_ms int8[], give_backs bool[], clear_sents bool[],
    deferreds bool[], reason_codes text[], reason_details text[], last_errors text[], steps text[], outcomes text[],
    codes text[], details text[], unknowns bool[], worker text, tooks_ms int8[], card_statuses text[],
    replaced_ids uuid[], may_arrives bool[], held_ends text[], held_end_codes text[])
RETURNS TABLE (id uuid)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT d.id
    FROM issuing.end_attempts(ids, tokens, statuses, delays_ms, give_backs, clear_sents, deferreds, reason_codes,
                              reason_details, last_errors, steps, outcomes, codes, details, unknowns, worker, tooks_ms,
                              card_statuses, replaced_ids, may_arrives, held_ends, held_end_codes, NULL) d
$$;

-- issuing.take_checks of 0009_operators.sql, where it is explained, with two more columns.
DROP FUNCTION issuing.take_checks(uuid, int8, int8, text);
CREATE FUNCTION issuing.take_checks(new_token uuid, most int8, lease_ms int8, worker_name text)
RETURNS TABLE (
    id uuid, event_id uuid, action text, attempts int4, has_orphan bool,
    status text, user_id text,  -- null = the event is gone
    seen_us int8,               -- updated_at of the state that is judged
    sent_age_ms int8,           -- of the last send that may still arrive; null = certainly nothing was sent
    card_id uuid, issuer_card_id text, card_status text, -- the stored card
    issuer_parameters text,     -- null = none are kept
    made_ms int8)               -- when the event was made: milliseconds since 1970, at least 0
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
                   AND (SELECT e.status = 'PROCESSING' AND e.last_sent_at > e.updated_at
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
           (extract(epoch FROM least(greatest(e.created_at, 'epoch'), now())) * 1000)::int8
    FROM held h
    LEFT JOIN outbox_events e ON e.id = h.event_id
    CROSS JOIN LATERAL (SELECT issuing.card_of(h.event_id) AS card OFFSET 0) c;
END
$$;
REVOKE ALL ON FUNCTION issuing.take_checks(uuid, int8, int8, text) FROM PUBLIC;
