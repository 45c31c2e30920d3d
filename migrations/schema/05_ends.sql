-- The ends of attempts, and what belongs to an end in the same transaction.

-- A receiver's answer as jsonb, or null where the event cannot keep it: no JSON, too long, beyond what jsonb takes, or
-- with a number whose digits would fill the memory when it is written out.
CREATE OR REPLACE FUNCTION issuing.kept_result(answer text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp SET standard_conforming_strings = on
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
-- guard: an answer that is not JSON fails no end
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;

-- The change that one event makes: sign 1 = it has reached the final status that it has, -1 = it leaves it.
CREATE OR REPLACE FUNCTION issuing.count_end(e issuing.outbox_events, sign int) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
    INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)
    SELECT coalesce(e.completed_at, e.updated_at), e.event_type, e.status, coalesce(e.reason_code, ''),
           ARRAY[e.created_at], sign
    WHERE e.status IN ('COMPLETED', 'REJECTED', 'FAILED')
$$;

-- Stores the cards of attempts that still hold their lease. The lock on the event row keeps a re-claim out until this
-- commits, and the token in the condition turns a stale worker's save into nothing. cards_one_per_request makes a
-- second save of the same event harmless. A card belongs to the issuer of its event. Returns the events whose card is
-- stored now, by this call or an earlier run of it, and that card's id.
CREATE OR REPLACE FUNCTION issuing.save(ids uuid[], tokens uuid[], card_ids uuid[], issuer_card_ids text[],
                                        last4s text[], exp_months int8[], exp_years int8[], number_records bytea[],
                                        replaced_ids uuid[])
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
    WITH held AS MATERIALIZED (
        SELECT e.user_id, e.sent_to, a.*
        FROM unnest(ids, tokens, card_ids, issuer_card_ids, last4s, exp_months, exp_years, number_records, replaced_ids)
            AS a (event_id, token, card_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
        JOIN outbox_events e ON e.id = a.event_id
        -- guard: a save names its token
        WHERE e.lease_token = a.token
        FOR NO KEY UPDATE OF e
    ), saved AS (
        INSERT INTO cards (id, request_id, user_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces,
                           issuer)
        SELECT h.card_id, h.event_id, h.user_id, h.issuer_card_id, h.last4, h.exp_month, h.exp_year, h.number_record,
               -- guard: a card belongs to the issuer of its event
               h.replaces, h.sent_to
        FROM held h
        ON CONFLICT (request_id) DO NOTHING
    )
    SELECT h.event_id, coalesce((SELECT c.id FROM cards c WHERE c.request_id = h.event_id), h.card_id)
    FROM held h;
END
$$;

-- The end that nearly every attempt has: linked or delivered, done, nothing else to write. What end_attempts would
-- write, without what such an end never has. The token is the fence: no row for an event = the lease was lost and
-- nothing changes. Card requests, whose last step is the link, are in no order.
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
BEGIN
    -- guard: a delivery takes the lock of its order
    IF step <> 'link' THEN
        PERFORM lock_order(ids, cardinality(ids) > 1);
    END IF;
    RETURN QUERY
    WITH completed AS (
        UPDATE outbox_events e
        SET status = 'COMPLETED', lease_token = NULL, lease_until = NULL, deferred_since = NULL, deferral_count = 0,
            deferral_code = NULL, last_error = NULL, reason_code = NULL, reason_detail = NULL, completed_at = now(),
            updated_at = now(),
            result = CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) ELSE e.result END
        FROM unnest(ids, tokens, tooks_ms, results) AS a (id, token, took_ms, result)
        -- guard: the usual end names its token
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, a.token, a.took_ms, e.event_type, e.created_at, e.ends
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
               -- guard: the usual end is counted
               'COMPLETED', '', array_agg(d.created_at), 1
        FROM completed d
        HAVING count(*) > 0
    ), notified AS (
        INSERT INTO end_notifications (ended_at, ids, is_again)
        SELECT now(), array_agg(d.id), bool_or(d.ends IS NOT NULL)
        FROM completed d
        -- guard: the usual end of a card request has its notification
        WHERE step = 'link' AND EXISTS (SELECT FROM routes r WHERE r.event_type = 'CARD_REQUEST_ENDED')
        HAVING count(*) > 0
    )
    SELECT d.id FROM completed d;
    IF step <> 'link' THEN
        -- guard: a delivery wakes what waits for its event
        PERFORM wake_held(ids);
    END IF;
END
$$;

-- Writes these ends. The token is the fence: no row for an event = the lease was lost and nothing changes. Events of
-- one call are disjoint (one attempt an event).
--
-- Deferrals in a row for the same cause are counted, and only the first of them is a row in outbox_attempts. A cause
-- of our own (breaker_open, drain ...) says nothing about the event: it neither counts nor ends a row of answers of a
-- peer, whose causes begin with the peer's name.
CREATE OR REPLACE FUNCTION issuing.write_ends(
    ends issuing.attempt_end[], worker text,
    OUT ids uuid[],         -- of the events that have ended; null = none
    OUT changes_cards bool) -- one of these ends says what becomes of a card
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what end_attempts sets
AS $$
#variable_conflict use_column
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT a.*, a.code !~ '^(issuer|core|route)_' AS is_ours FROM unnest(ends) a
    ), changed AS (
        UPDATE outbox_events e
        SET status = a.status, lease_token = NULL, lease_until = NULL,
            -- guard: a deferral gives the attempt back
            retry_count = e.retry_count - CASE WHEN a.give_back THEN 1 ELSE 0 END,
            next_attempt_at = CASE WHEN a.status = 'PENDING' THEN now() + a.delay_ms * interval '1 millisecond'
                                   ELSE e.next_attempt_at END,
            -- Only what the claim of this attempt has set: an earlier attempt's send is not this one's to forget.
            -- guard: an attempt forgets no send of an earlier one
            -- guard: an attempt forgets no send that was reported during it
            first_sent_at = CASE WHEN a.clear_sent AND e.first_sent_at = e.updated_at AND e.last_sent_at IS NULL
                                 THEN NULL ELSE e.first_sent_at END,
            -- guard: an attempt that sent nothing binds to no issuer
            sent_to = CASE WHEN NOT a.clear_sent OR e.last_sent_at IS NOT NULL OR e.first_sent_at <> e.updated_at
                           THEN e.sent_to END,
            -- guard: the last send that may arrive is written down
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
            reason_code = a.reason_code, reason_detail = a.reason_detail, last_error = a.last_error,
            -- Before another attempt core-api is asked again, if certainly nothing was sent with these.
            -- guard: what was kept for a create that may have left is never forgotten
            issuer_parameters = CASE WHEN a.clear_sent AND a.status <> 'REJECTED' AND e.last_sent_at IS NULL
                                         AND e.first_sent_at = e.updated_at
                                     -- guard: the parameters that are kept first stay
                                     THEN NULL ELSE coalesce(e.issuer_parameters, a.parameters::jsonb) END,
            result = CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) ELSE e.result END,
            completed_at = CASE WHEN a.status <> 'PENDING' THEN now() END,
            updated_at = now()
        FROM asked a
        -- guard: the end of an attempt names its token
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, e.deferral_count, e.deferral_code, e.status, e.reason_code,
                  e.event_type, e.created_at, a.card_status IS NOT NULL OR a.replaced IS NOT NULL AS has_card
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                     step, outcome, code, detail)
        SELECT d.id, a.token, now() - a.took_ms * interval '1 millisecond', now(),
               d.retry_count + CASE WHEN a.give_back THEN 1 ELSE 0 END, a.unknown, d.user_id, worker, a.step, a.outcome,
               a.code, a.detail
        FROM changed d JOIN asked a ON a.id = d.id
        -- guard: a repeated deferral is not a further row of attempts
        WHERE NOT (a.give_back AND (d.deferral_count > 1 OR d.deferral_code IS DISTINCT FROM a.code))
        ON CONFLICT DO NOTHING
    ), counted AS (
        INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)
        SELECT now(), d.event_type, d.status, coalesce(d.reason_code, ''), array_agg(d.created_at), 1
        FROM changed d
        WHERE d.status <> 'PENDING'
        GROUP BY d.event_type, d.status, d.reason_code
    )
    SELECT array_agg(d.id), bool_or(d.has_card) INTO ids, changes_cards FROM changed d;
END
$$;

-- What these ends, of events that have ended, say about cards.
CREATE OR REPLACE FUNCTION issuing.change_cards(ends issuing.attempt_end[], ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what end_attempts sets
AS $$
#variable_conflict use_column
BEGIN
    UPDATE cards c SET status = a.card_status, updated_at = now()
    FROM unnest(ends) a
    WHERE a.card_status IS NOT NULL AND a.id = ANY (ids) AND c.request_id = a.id;
    UPDATE cards c
    -- guard: a card that was not replaced and is closed is cancelled
    SET status = CASE WHEN a.status = 'COMPLETED' THEN 'replaced' ELSE 'cancelled' END, updated_at = now()
    FROM unnest(ends) a JOIN outbox_events e ON e.id = a.id
    WHERE a.replaced IS NOT NULL AND a.id = ANY (ids) AND c.id = a.replaced AND c.user_id = e.user_id
          -- guard: a replaced card that was seen closed before the end is replaced
          AND (c.status IN ('active', 'frozen') OR a.status = 'COMPLETED' AND c.status = 'cancelled');
END
$$;

-- Every other end of attempts: completed with more to write, refused, failed, to be tried again, deferred. Returns the
-- events whose lease was not lost: see write_ends.
CREATE OR REPLACE FUNCTION issuing.end_attempts(ends issuing.attempt_end[], worker text)
RETURNS TABLE (id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    ids constant uuid[] := ARRAY(SELECT a.id FROM unnest(ends) a);
    written record;
BEGIN
    -- guard: every other end takes the lock of its order
    PERFORM lock_order(ids, cardinality(ids) > 1);
    written := issuing.write_ends(ends, worker);
    IF written.changes_cards THEN
        PERFORM issuing.change_cards(ends, written.ids);
    END IF;
    IF EXISTS (SELECT FROM routes) THEN
        PERFORM wake_held(ARRAY(SELECT u.id FROM unnest(ends) u WHERE u.status IN ('COMPLETED', 'REJECTED')));
        PERFORM notify_ends(ids, now());
    END IF;
    RETURN QUERY SELECT unnest(written.ids);
END
$$;

-- What follows from the end that an operator or a mark has given this event. before: the row as it was, also FAILED.
CREATE OR REPLACE FUNCTION issuing.follow_end(before issuing.outbox_events, after issuing.outbox_events) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    PERFORM count_end(before, -1), count_end(after, 1);
    PERFORM wake_held(ARRAY[after.id]);
    -- guard: an end by operators has its notification
    PERFORM notify_ends(ARRAY[after.id], NULL);
END
$$;

-- What belongs to the end FAILED `worker_lost`, which the statement outbox_sweep makes. An event that ended in an
-- earlier statement was dealt with then: the housekeeping moves such rows. If it cannot be written, the sweep
-- continues, and the end is on the list of refused ends, which `issuing-ctl doctor` shows.
CREATE OR REPLACE FUNCTION issuing.follow_lost() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    e outbox_events;
BEGIN
    SELECT o.* INTO e FROM outbox_events o
    WHERE o.id = NEW.event_id AND o.status = 'FAILED' AND o.reason_code = 'worker_lost'
      -- guard: the statistics count an event that a sweep gives up
      AND o.completed_at >= statement_timestamp();
    IF FOUND THEN
        BEGIN
            -- guard: an end by the sweep has its notification
            PERFORM count_end(e, 1), notify_ends(ARRAY[e.id], NULL);
        EXCEPTION WHEN OTHERS THEN
            INSERT INTO end_notifications (ended_at, ids, refused)
            -- guard: what cannot be written about a lost event undoes no sweep
            VALUES (e.completed_at, ARRAY[e.id], format('it was FAILED worker_lost: %s', SQLERRM));
        END;
    END IF;
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION issuing.count_end, issuing.follow_lost FROM PUBLIC;
