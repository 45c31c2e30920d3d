-- Acceptance: key, limit and event of a request, exact under contention.

-- One call is one transaction: key, limit row and event of each request. What makes it exact:
--  1. The lock of each user comes first, in a statement of its own. Insert-then-count without the lock fails: two
--     concurrent transactions do not see each other's uncommitted row, and both pass. The lock ends with the
--     transaction, so it cannot outlive a dead connection. It is tried and never waited for: any session can take a key
--     that it has seen, and would stop the batch and its connection. A user whose lock is taken is `busy`, or
--     `recording` where the lock of the same key is taken as well. Nothing is written for that user, and the caller
--     asks again. A key that is recorded already is told all the same. A call that waits for nobody is in no deadlock.
--  2. Under READ COMMITTED the second statement takes a new snapshot, so it sees all that the lock's former holders
--     committed. Under any other isolation level it would not; therefore the function refuses to run there.
--  3. The clock is read after the lock, so the times of one user's rows rise in the order of their commits.
--  4. The key is looked at before the limit: a repeat is never limited, and a refused try leaves its key unused. A key
--     counts for key_retention after its event's final status; that of an unfinished event, or of FAILED, always.
--  5. Run again after a lost connection, the call finds its own key (event_id = the id that it brought) and says
--     `accepted` again: the read-back of an unknown COMMIT is the same call.
--  6. A verdict is told after the call's commit, also where the call only found rows. With a synchronous standby a row
--     may be visible and not replicated: the session that wrote it was ended while it waited. The commit of a
--     transaction that only read waits for nothing, nor does one that has just a transaction id. So such a call writes
--     a message to the write-ahead log, which nobody reads.
--  7. A batch holds a user at most once: the caller's promise, checked here. lock_timeout bounds the wait for whoever
--     has locked a table.
-- The planner switches keep the index paths even where statistics were taken on an empty table. What only few requests
-- need is asked in functions of their own, below: as a part of the one statement it would make every call pay. They are
-- STABLE, so each sees what the statement sees.
CREATE OR REPLACE FUNCTION issuing.accept(
    ids uuid[], user_ids text[], keys text[], fingerprints bytea[], payloads text[], traceparents text[],
    tracestates text[], limit_count int8, limit_window interval, count_attempts bool, key_retention interval)
RETURNS TABLE (
    verdict    text,        -- accepted, replayed, reused, not_replaceable, limited; busy, recording: to be asked again
    event_id   uuid,        -- of the accepted or replayed event
    created_at timestamptz, -- of that event
    used       int8,        -- counted tries in the window, limit_count of them at most, and this one where it counts
    oldest_at  timestamptz, -- the oldest of them
    frees_at   timestamptz, -- limited: when the next try can pass
    decided_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET lock_timeout = '2s'
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    has_lock bool[]; -- in the order of the users
    has_key bool[];  -- likewise: nobody else records that key now
BEGIN
    -- guard: acceptance only under READ COMMITTED
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.accept needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;

    -- Two of one user would be judged by one snapshot, and both pass.
    IF cardinality(user_ids) > 1
       AND (SELECT count(DISTINCT u.user_id) < count(*) FROM unnest(user_ids) AS u (user_id)) THEN
        RAISE EXCEPTION 'a batch of issuing.accept holds a user at most once' USING ERRCODE = '22023';
    END IF;
    -- guard: the user's lock comes first
    -- guard: no other role can name a user's lock
    -- guard: a batch waits for no user
    has_lock := ARRAY(SELECT pg_try_advisory_xact_lock(issuing.user_lock(u.user_id, s.salt))
                      FROM lock_salt s, unnest(user_ids) WITH ORDINALITY AS u (user_id, n) ORDER BY u.n);
    -- guard: who records a key now is told from who only holds the user's lock
    has_key := ARRAY(SELECT pg_try_advisory_xact_lock(issuing.key_lock(u.user_id, u.key, s.salt))
                     FROM lock_salt s, unnest(user_ids, keys) WITH ORDINALITY AS u (user_id, key, n) ORDER BY u.n);
    t := clock_timestamp();

    RETURN QUERY
    WITH judged AS MATERIALIZED (
        SELECT a.*, k.event_id AS known_id, k.created_at AS known_at,
            least(w.accepted + coalesce(cardinality(w.refused), 0), limit_count) AS counted,
            least(w.oldest, w.refused[1]) AS oldest,
            CASE
                -- guard: a run after an unknown COMMIT finds its own key
                WHEN k.event_id = a.id THEN 'accepted'
                -- guard: another body under the same key is refused
                WHEN k.fingerprint = a.fingerprint THEN 'replayed'
                WHEN k.event_id IS NOT NULL THEN 'reused'
                -- guard: nobody is judged without the lock
                WHEN has_lock[a.n] IS NOT TRUE THEN CASE WHEN has_key[a.n] THEN 'busy' ELSE 'recording' END
                WHEN a.payload ->> 'replaces' IS NOT NULL
                     AND NOT issuing.is_replaceable(a.user_id, a.payload ->> 'replaces') THEN 'not_replaceable'
                -- guard: the limit counts what is in the window
                WHEN w.accepted + coalesce(cardinality(w.refused), 0) >= limit_count THEN 'limited'
                ELSE 'accepted'
            END AS verdict
        FROM unnest(ids, user_ids, keys, fingerprints, payloads::jsonb[], traceparents, tracestates)
            WITH ORDINALITY AS a (id, user_id, key, fingerprint, payload, traceparent, tracestate, n)
        LEFT JOIN LATERAL (
            SELECT n.* FROM (
                SELECT k.event_id, k.created_at, k.fingerprint FROM idempotency_keys k
                WHERE k.user_id = a.user_id AND k.key = a.key
                -- guard: the newest row of a key counts
                ORDER BY k.created_at DESC
                LIMIT 1) n
            WHERE n.created_at >= t - key_retention
               OR NOT issuing.key_is_over(n.event_id, n.created_at, t, key_retention)
        ) k ON true
        CROSS JOIN LATERAL (
            -- Oldest first, and no more than decide: with the limit reached nothing depends on how far it is exceeded.
            SELECT count(*) AS accepted, min(c.at) AS oldest,
                   CASE WHEN count_attempts THEN issuing.refused_tries(a.user_id, a.id, t - limit_window, limit_count)
                   END AS refused
            FROM (SELECT l.at FROM rate_limit_log l
                  WHERE l.user_id = a.user_id AND l.accepted AND l.at > t - limit_window AND l.request_id <> a.id
                  ORDER BY l.at LIMIT limit_count) c
        ) w
    ), new_keys AS (
        INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
        SELECT j.id, t, j.user_id, j.key, j.fingerprint FROM judged j
        WHERE j.verdict = 'accepted' AND j.known_id IS NULL
    ), new_tries AS (
        INSERT INTO rate_limit_log (at, request_id, accepted, user_id)
        SELECT t, j.id, j.verdict = 'accepted', j.user_id FROM judged j
        WHERE j.known_id IS NULL AND (j.verdict = 'accepted' OR j.verdict = 'limited'
              AND CASE WHEN count_attempts
                       THEN issuing.gets_a_row(j.user_id, j.id, t, least(limit_window / 10::float8, '1 s'),
                                               limit_window, limit_count)
                       ELSE issuing.gets_a_row(j.user_id, j.id, t, '1 s', '1 s', 1) END)
    ), new_events AS (
        INSERT INTO outbox_events (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload,
                                   traceparent, tracestate)
        SELECT j.id, t, t, t, j.user_id, j.key, j.payload, j.traceparent, j.tracestate FROM judged j
        WHERE j.verdict = 'accepted' AND j.known_id IS NULL
    )
    SELECT j.verdict,
           coalesce(j.known_id, j.id),
           coalesce(j.known_at, t),
           j.counted + CASE WHEN j.verdict = 'accepted' OR j.verdict = 'limited' AND count_attempts THEN 1 ELSE 0 END,
           CASE WHEN j.oldest IS NOT NULL OR j.verdict = 'accepted' OR j.verdict = 'limited' AND count_attempts
                THEN least(j.oldest, t) END,
           CASE WHEN j.verdict = 'limited'
                THEN issuing.frees_at(j.user_id, j.id, t, limit_count, limit_window, count_attempts) END,
           t
    -- In the order of the arrays, which is that of `judged`: one scan of what was kept, and no parallel plan in a
    -- statement that writes. A sort that has nothing to do costs as much as a trigger.
    FROM judged j;

    -- guard: a call that only found waits for the disk
    -- guard: what a standby may not have is not reported
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        PERFORM pg_logical_emit_message(true, 'issuing', '');
    END IF;
END
$$;

-- What the time is when the database's clock says t; never later than t.
CREATE OR REPLACE FUNCTION issuing.retention_now(t timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    h housekeeping_clock;
BEGIN
    SELECT c.* INTO h FROM housekeeping_clock c;
    -- least() skips a NULL.
    RETURN least(t, h.clock_at + CASE WHEN t BETWEEN h.passed_at AND h.passed_at + interval '5 minutes'
        THEN t - h.passed_at ELSE interval '0' END);
END
$$;

-- Whether the retention of a key is over: it was recorded, and its event ended (or is gone), longer ago than the
-- retention, by the clock that does not step.
CREATE OR REPLACE FUNCTION issuing.key_is_over(event uuid, recorded_at timestamptz, t timestamptz, retention interval)
    RETURNS bool
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    -- guard: a clock that jumps forgets no key
    -- guard: an api shortens no retention of keys
    before timestamptz := issuing.retention_now(t) - greatest(retention, (SELECT r.kept
        FROM retentions r WHERE r.name = 'keys'));
BEGIN
    RETURN recorded_at < before
       AND NOT EXISTS (SELECT FROM outbox_events e
                       WHERE e.id = event
                         -- guard: the key of what is unfinished or failed counts for ever
                         AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL OR coalesce(e.completed_at,
                             e.updated_at) >= before));
END
$$;

-- Whether it is an active or frozen card of this user, of a completed request, without a live reissue.
CREATE OR REPLACE FUNCTION issuing.is_replaceable(holder text, card text) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM cards c
                   WHERE c.id = card::uuid AND c.user_id = holder AND c.status IN ('active', 'frozen')
                     AND NOT EXISTS (SELECT FROM outbox_events o WHERE o.id = c.request_id AND o.status <> 'COMPLETED'))
       AND NOT EXISTS (SELECT FROM card_reissues r JOIN outbox_events e ON e.id = r.event_id
                       WHERE r.user_id = holder AND r.card_id = lower(card) AND e.status <> 'REJECTED');
END
$$;

-- Refused tries of a user in the window, oldest first, as many as can decide; only where refused tries count.
CREATE OR REPLACE FUNCTION issuing.refused_tries(who text, request uuid, since timestamptz, most int8)
    RETURNS timestamptz[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    RETURN ARRAY(SELECT l.at FROM rate_limit_log l
                 WHERE l.user_id = who AND NOT l.accepted AND l.at > since AND l.request_id <> request ORDER BY l.at
                     LIMIT most);
END
$$;

-- Whether a refused try gets a row. Two conditions:
-- 1. Fewer than `most` refused tries of this user are younger than `piece`.
-- 2. It has no row yet. A call whose COMMIT is unknown runs again with the same ids, at most 8 s after its first run
--    (api/acceptor.c), and a statement ends within 15 s. Condition 1 allows at most `most` rows in a second, so the
--    newest 30 * most rows of this user cover the last 30 s. Where the window is shorter than 10 s, a piece is a
--    tenth of it, and they cover three windows; a row that is older than its window counts no more.
-- Only a refused try reads these rows, by the index rate_limit_log_user. While a client repeats without a pause,
-- condition 1 is false, and condition 2 is not evaluated.
CREATE OR REPLACE FUNCTION issuing.gets_a_row(
    who text, request uuid, t timestamptz, piece interval, limit_window interval, most int8)
RETURNS bool
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    -- guard: refused tries fill no table
    IF (SELECT count(*) >= most
        FROM (SELECT FROM rate_limit_log l
              WHERE l.user_id = who AND NOT l.accepted AND l.at > t - piece
              LIMIT most) n) THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (
        SELECT
        FROM (SELECT l.request_id FROM rate_limit_log l
              WHERE l.user_id = who AND NOT l.accepted AND l.at > t - greatest(limit_window, interval '30 s')
              ORDER BY l.at DESC
              LIMIT 30 * most) n
        -- guard: a refused try is recorded once
        WHERE n.request_id = request);
END
$$;

-- Tries of a user in the future, written while a clock was ahead, become tries of now. Otherwise each would count in
-- every window until its time has come. The caller may choose neither rows nor times.
CREATE OR REPLACE FUNCTION issuing.repair_tries(who text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    t timestamptz := clock_timestamp();
BEGIN
    UPDATE rate_limit_log l SET at = t
    FROM (SELECT f.tableoid AS part, f.ctid AS place
        FROM rate_limit_log f WHERE f.user_id = who AND f.at > t ORDER BY f.accepted DESC LIMIT 1000) f
    WHERE l.tableoid = f.part AND l.ctid = f.place AND l.user_id = who AND l.at > t;
END
$$;

-- When the next try of a limited user can pass: when the limit_count-th newest counted try leaves the window. Where
-- refused tries count, the try that is being refused is the newest of them if it gets a row now; if an earlier run of
-- the same call wrote its row, it counts with that row. Never later than one window from now: a try with a time in the
-- future counts as one of now, and its row is corrected.
CREATE OR REPLACE FUNCTION issuing.frees_at(
    who text, request uuid, t timestamptz, limit_count int8, limit_window interval, count_attempts bool)
RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    -- guard: a refused try without a row prolongs nothing
    counts bool := count_attempts
        AND issuing.gets_a_row(who, request, t, least(limit_window / 10::float8, '1 s'), limit_window, limit_count);
    newer int8 := greatest(limit_count - CASE WHEN counts THEN 2 ELSE 1 END, 0);
BEGIN
    IF EXISTS (SELECT FROM rate_limit_log l WHERE l.user_id = who AND l.accepted AND l.at > t)
       OR count_attempts
          AND EXISTS (SELECT FROM rate_limit_log l WHERE l.user_id = who AND NOT l.accepted AND l.at > t) THEN
        -- guard: a try of a clock that was ahead becomes one of now
        PERFORM issuing.repair_tries(who);
    END IF;
    IF counts AND limit_count = 1 THEN
        RETURN t + limit_window;
    END IF;
    RETURN limit_window + coalesce(
        (SELECT least(c.at, t)
         FROM ((SELECT l.at FROM rate_limit_log l
                WHERE l.user_id = who AND l.accepted AND l.at > t - limit_window AND l.request_id <> request
                ORDER BY l.at DESC
                LIMIT newer + 1)
               UNION ALL
               (SELECT l.at FROM rate_limit_log l
                WHERE count_attempts AND l.user_id = who AND NOT l.accepted AND l.at > t - limit_window
                ORDER BY l.at DESC
                LIMIT newer + 1)) c
         ORDER BY c.at DESC
         OFFSET newer
         LIMIT 1), t);
END
$$;

-- Accepts a request and takes it back. NULL = that worked; else the SQLSTATE and the message of what refused it. It
-- runs with the caller's rights, and leaves nothing.
CREATE OR REPLACE FUNCTION issuing.try_accept() RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    PERFORM issuing.accept(ARRAY[gen_random_uuid()], ARRAY[tried.id], ARRAY['try'], ARRAY[sha256('')],
                           ARRAY['{"kind": "new"}'], ARRAY[NULL], ARRAY[NULL], 1, interval '1 s', false, interval '1 s')
    -- A user of this place whom nobody else tries: two checks at once would find each other's lock.
    FROM (SELECT concat('issuing.try_accept.', gen_random_uuid()) AS id FROM generate_series(0, 9999)) tried
    WHERE NOT EXISTS (SELECT FROM place p WHERE place_of(tried.id, p.places) <> p.number) LIMIT 1;
    RAISE EXCEPTION 'undo' USING ERRCODE = 'ISUND';
EXCEPTION
    WHEN SQLSTATE 'ISUND' THEN
        RETURN NULL;
    WHEN OTHERS THEN
        RETURN SQLSTATE || ' ' || SQLERRM;
END
$$;

REVOKE ALL ON FUNCTION issuing.repair_tries FROM PUBLIC;
