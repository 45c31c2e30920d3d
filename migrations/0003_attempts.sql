-- Why: the three statements that every attempt runs, as functions: their plans are cached with the connection and yet depend on nothing in it,
-- so a transaction pooler may stand between. Locks: none. Older programs: they do not know these functions and go on as before.
-- The planner switches keep the index paths even where statistics were taken on an empty table.

-- PENDING events that are due, oldest due first, by outbox_events_due. SKIP LOCKED: two workers never wait for each other and never get the same
-- row. The token is the fence: whoever took the event before matches no row any more. The attempt is counted here, so a crash cannot run it for
-- free; first_sent_at is set here, so a crash right after counts as "may have been sent" without a write before the send.
CREATE FUNCTION issuing_claim(new_token uuid, most int8, lease_ms int8, worker text)
RETURNS TABLE (
    id uuid, user_id text, payload text, traceparent text, retry_count int4,
    sent_age_ms int8,     -- age of the first send that may have arrived; null = surely none
    deferred_age_ms int8, -- of the unbroken row of 409/425 answers; null = none
    card_id uuid, issuer_card_id text, last4 text, exp_month int2, exp_year int2, card_status text, -- the card, where it is stored already
    replaces_issuer_card_id text, -- reissue: the issuer's id of the card to replace
    cancel_code text)             -- an earlier attempt had begun to cancel the card
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH due AS (
        SELECT e.id, e.first_sent_at
        FROM outbox_events e
        WHERE e.status = 'PENDING' AND e.event_type = 'CARD_ISSUE' AND e.next_attempt_at <= now()
        ORDER BY e.next_attempt_at
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ), held AS (
        UPDATE outbox_events e
        SET status = 'PROCESSING', retry_count = e.retry_count + 1, lease_token = new_token, lease_owner = worker,
            lease_until = now() + lease_ms * interval '1 millisecond', first_sent_at = coalesce(e.first_sent_at, now()), updated_at = now()
        FROM due
        WHERE e.id = due.id
        RETURNING e.id, e.user_id, e.payload, e.traceparent, e.retry_count, e.deferred_since, e.cancel_code, due.first_sent_at AS sent_before
    )
    SELECT h.id, h.user_id, h.payload::text, h.traceparent, h.retry_count,
           (extract(epoch FROM now() - h.sent_before) * 1000)::int8, -- age of the first send that may have arrived; null = surely none
           (extract(epoch FROM now() - h.deferred_since) * 1000)::int8,
           c.id, c.issuer_card_id, c.last4, c.exp_month, c.exp_year, c.status,
           r.issuer_card_id, h.cancel_code
    FROM held h
    LEFT JOIN cards c ON c.request_id = h.id
    LEFT JOIN cards r ON r.user_id = h.user_id AND r.id::text = lower(h.payload ->> 'replaces');
END
$$;

-- Stores the cards of attempts that still hold their lease. The lock on the event row keeps a re-claim out until this commits, and the token in the
-- condition turns a stale worker's save into nothing. cards_one_per_request makes a second save of the same event harmless. Returns the events
-- whose card is stored now, by this call or an earlier run of it, and that card's id.
CREATE FUNCTION issuing_save(ids uuid[], tokens uuid[], card_ids uuid[], issuer_card_ids text[], last4s text[], exp_months int8[], exp_years int8[],
                             number_records bytea[], replaced_ids uuid[])
RETURNS TABLE (id uuid, card_id uuid)
LANGUAGE plpgsql VOLATILE
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
        SELECT * FROM unnest(ids, tokens, card_ids, issuer_card_ids, last4s, exp_months, exp_years, number_records, replaced_ids)
            AS a (event_id, token, card_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
    ), held AS MATERIALIZED (
        SELECT e.id, e.user_id FROM outbox_events e JOIN asked a ON a.event_id = e.id
        WHERE e.lease_token = a.token
        ORDER BY e.id
        FOR NO KEY UPDATE OF e
    ), saved AS (
        INSERT INTO cards (id, request_id, user_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
        SELECT a.card_id, h.id, h.user_id, a.issuer_card_id, a.last4, a.exp_month, a.exp_year, a.number_record, a.replaces
        FROM held h JOIN asked a ON a.event_id = h.id
        ON CONFLICT (request_id) DO NOTHING
        RETURNING request_id
    )
    SELECT h.id, coalesce((SELECT c.id FROM cards c WHERE c.request_id = h.id), (SELECT a.card_id FROM asked a WHERE a.event_id = h.id))
    FROM held h;
END
$$;

-- The end of attempts, whatever it is: completed, refused, failed, to be tried again, deferred. The token is the fence: no row for an event = the
-- lease was lost and nothing changes. Events of one call are disjoint (one attempt an event), so there is no lock order to keep.
CREATE FUNCTION issuing_end(
    ids uuid[], tokens uuid[], statuses text[],
    delays_ms int8[],      -- PENDING: before the next attempt
    give_backs bool[],     -- a deferral: the attempt is not counted
    clear_sents bool[],    -- nothing was ever sent that may have arrived
    deferreds bool[],      -- true: starts or continues a row of 409/425 answers
    reason_codes text[], reason_details text[], last_errors text[],
    steps text[], outcomes text[], codes text[], details text[], unknowns bool[], -- of the attempt's row
    worker text, tooks_ms int8[],
    card_statuses text[],  -- what the request's card becomes; null = leave
    replaced_ids uuid[])   -- the card that a completed reissue replaces; null = none
RETURNS TABLE (id uuid)
LANGUAGE plpgsql VOLATILE
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
        SELECT * FROM unnest(ids, tokens, statuses, delays_ms, give_backs, clear_sents, deferreds, reason_codes, reason_details, last_errors,
                             steps, outcomes, codes, details, unknowns, tooks_ms, card_statuses, replaced_ids)
            AS a (id, token, status, delay_ms, give_back, clear_sent, deferred, reason_code, reason_detail, last_error,
                  step, outcome, code, detail, unknown, took_ms, card_status, replaced)
    ), ended AS (
        UPDATE outbox_events e
        SET status = a.status,
            lease_token = NULL,
            lease_until = NULL,
            retry_count = e.retry_count - CASE WHEN a.give_back THEN 1 ELSE 0 END,
            next_attempt_at = CASE WHEN a.status = 'PENDING' THEN now() + a.delay_ms * interval '1 millisecond' ELSE e.next_attempt_at END,
            first_sent_at = CASE WHEN a.clear_sent THEN NULL ELSE e.first_sent_at END,
            deferred_since = CASE WHEN a.deferred THEN coalesce(e.deferred_since, now()) END,
            reason_code = a.reason_code,
            reason_detail = a.reason_detail,
            last_error = a.last_error,
            completed_at = CASE WHEN a.status <> 'PENDING' THEN now() END,
            updated_at = now()
        FROM asked a
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker, step, outcome, code, detail)
        SELECT d.id, a.token, now() - a.took_ms * interval '1 millisecond', now(),
               d.retry_count + CASE WHEN a.give_back THEN 1 ELSE 0 END, a.unknown, d.user_id, worker, a.step, a.outcome, a.code, a.detail
        FROM ended d JOIN asked a ON a.id = d.id
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
