-- Why: acceptance of a batch of requests, exact under contention. Locks: none. Older programs: none.
--
-- ONE call = ONE transaction = key, limit row and event of each request. What makes it exact:
--  1. The lock per user comes FIRST, in its own statement and in sorted order. Insert-then-count without it is a trap: two concurrent
--     transactions do not see each other's uncommitted row, and both pass. Transaction-scoped, so it cannot outlive a dead connection.
--  2. Under READ COMMITTED the second statement takes a new snapshot, so it sees all that the lock's former holders committed. Under any
--     other isolation level it would not; therefore the function refuses to run there.
--  3. The clock is read after the lock, so the times of one user's rows rise in the order of their commits.
--  4. The key is looked at before the limit: a repeat is never limited; a refused try leaves its key unused.
--     A key counts for key_retention after its event's final status; that of an unfinished event, or of an open question (FAILED), always.
--  5. Run again after a lost connection it finds its own key (event_id = the id it brought) and says `accepted` again: the read-back of an
--     unknown COMMIT is the same call.
--  6. A verdict is told when the call's commit was waited for, those on rows that it only found too. With a synchronous standby a row may be seen
--     and not be there yet: the session that wrote it was ended while it waited. The commit of a transaction that only read waits for nothing,
--     nor does one that has just a transaction id; so such a call writes a message to the log, which nobody reads.
-- A batch holds a user at most once (the caller's promise; checked here). lock_timeout bounds the wait for somebody who still records the same key.
-- The planner switches keep the index paths even where statistics were taken on an empty table.
-- What only few requests need to have asked. Functions of their own and not part of the one statement below: that would make every call pay for
-- getting them ready. STABLE, so each sees what the statement sees.

-- Whether the retention of a key is over: its event ended before `before`, or is gone.
CREATE FUNCTION issuing.key_is_over(event uuid, before timestamptz) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN NOT EXISTS (SELECT FROM outbox_events e
                           WHERE e.id = event
                             AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL OR coalesce(e.completed_at, e.updated_at) >= before));
    END
    $$;

-- Whether it is an active card of this user, of a completed request, without a live reissue.
CREATE FUNCTION issuing.is_replaceable(holder text, card text) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN EXISTS (SELECT FROM cards c
                       WHERE c.id = card::uuid AND c.user_id = holder AND c.status = 'active'
                         AND NOT EXISTS (SELECT FROM outbox_events o WHERE o.id = c.request_id AND o.status <> 'COMPLETED'))
           AND NOT EXISTS (SELECT FROM card_reissues r JOIN outbox_events e ON e.id = r.event_id
                           WHERE r.user_id = holder AND r.card_id = lower(card) AND e.status <> 'REJECTED');
    END
    $$;

-- When the next try of a limited user can pass: as soon as the try that blocks longest leaves the window, the limit_count-th newest. Where refused
-- tries count, the one being refused is the newest of them.
CREATE FUNCTION issuing.frees_at(who text, request uuid, t timestamptz, limit_count int8, limit_window interval, count_attempts bool) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN limit_window + coalesce(
            (SELECT l.at FROM rate_limit_log l
             WHERE l.user_id = who AND l.at > t - limit_window AND (l.accepted OR count_attempts) AND l.request_id <> request
             ORDER BY l.at DESC OFFSET greatest(limit_count - CASE WHEN count_attempts THEN 2 ELSE 1 END, 0) LIMIT
                 CASE WHEN count_attempts AND limit_count = 1 THEN 0 ELSE 1 END), t);
    END
    $$;

CREATE FUNCTION issuing.accept(
    ids uuid[], user_ids text[], keys text[], fingerprints bytea[], payloads text[], traceparents text[],
    limit_count int8, limit_window interval, count_attempts bool, key_retention interval)
RETURNS TABLE (
    verdict    text,        -- accepted, replayed, reused, not_replaceable, limited
    event_id   uuid,        -- of the accepted or replayed event
    created_at timestamptz, -- of that event
    used       int8,        -- counted tries in the window, this one included where it counts
    oldest_at  timestamptz, -- the oldest of them
    frees_at   timestamptz, -- limited: when the next try can pass
    decided_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET lock_timeout = '2s'
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.accept needs READ COMMITTED, not %', current_setting('transaction_isolation') USING ERRCODE = '25001';
    END IF;

    -- Two of one user would be judged by one snapshot, and both pass.
    IF (SELECT count(DISTINCT u.user_id) < count(*) FROM unnest(user_ids) AS u (user_id)) THEN
        RAISE EXCEPTION 'a batch of issuing.accept holds a user at most once' USING ERRCODE = '22023';
    END IF;

    PERFORM pg_advisory_xact_lock(l.h)
    FROM (SELECT hashtextextended(u.user_id, 4711) AS h FROM unnest(user_ids) AS u (user_id) ORDER BY 1 OFFSET 0) AS l;

    t := clock_timestamp();

    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(ids, user_ids, keys, fingerprints, payloads::jsonb[], traceparents)
            WITH ORDINALITY AS a (id, user_id, key, fingerprint, payload, traceparent, n)
    ), judged AS MATERIALIZED (
        SELECT a.*, k.event_id AS known_id, k.created_at AS known_at, w.counted, w.oldest,
            CASE
                WHEN k.event_id = a.id THEN 'accepted'
                WHEN k.fingerprint = a.fingerprint THEN 'replayed'
                WHEN k.event_id IS NOT NULL THEN 'reused'
                WHEN a.payload ->> 'replaces' IS NOT NULL AND NOT issuing.is_replaceable(a.user_id, a.payload ->> 'replaces') THEN 'not_replaceable'
                WHEN w.counted >= limit_count THEN 'limited'
                ELSE 'accepted'
            END AS verdict
        FROM asked a
        LEFT JOIN LATERAL (
            SELECT n.* FROM (
                SELECT k.event_id, k.created_at, k.fingerprint FROM idempotency_keys k
                WHERE k.user_id = a.user_id AND k.key = a.key
                ORDER BY k.created_at DESC
                LIMIT 1) n
            WHERE n.created_at >= t - key_retention OR NOT issuing.key_is_over(n.event_id, t - key_retention)
        ) k ON true
        CROSS JOIN LATERAL (
            SELECT count(*) AS counted, min(l.at) AS oldest
            FROM rate_limit_log l
            WHERE l.user_id = a.user_id AND l.at > t - limit_window AND (l.accepted OR count_attempts) AND l.request_id <> a.id
        ) w
    ), new_keys AS (
        INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
        SELECT j.id, t, j.user_id, j.key, j.fingerprint FROM judged j WHERE j.verdict = 'accepted' AND j.known_id IS NULL
    ), new_tries AS (
        INSERT INTO rate_limit_log (at, request_id, accepted, user_id)
        SELECT t, j.id, j.verdict = 'accepted', j.user_id FROM judged j
        WHERE j.verdict IN ('accepted', 'limited') AND j.known_id IS NULL
    ), new_events AS (
        INSERT INTO outbox_events (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload, traceparent)
        SELECT j.id, t, t, t, j.user_id, j.key, j.payload, j.traceparent FROM judged j WHERE j.verdict = 'accepted' AND j.known_id IS NULL
    )
    SELECT j.verdict,
           coalesce(j.known_id, j.id),
           coalesce(j.known_at, t),
           j.counted + CASE WHEN j.verdict = 'accepted' OR j.verdict = 'limited' AND count_attempts THEN 1 ELSE 0 END,
           CASE WHEN j.verdict = 'accepted' OR j.verdict = 'limited' AND count_attempts THEN coalesce(j.oldest, t) ELSE j.oldest END,
           CASE WHEN j.verdict = 'limited' THEN issuing.frees_at(j.user_id, j.id, t, limit_count, limit_window, count_attempts) END,
           t
    FROM judged j ORDER BY j.n;

    IF pg_current_xact_id_if_assigned() IS NULL THEN
        PERFORM pg_logical_emit_message(true, 'issuing', '');
    END IF;
END
$$;
