-- Why: acceptance of a batch of requests, exact under contention. Locks: ACCESS EXCLUSIVE on rate_limit_log while its index is replaced and
-- the second one is built: 3.5 s with 1 million rows in it, on two cores that were busy with other work, and in proportion. Acceptances wait meanwhile; those
-- that wait 2 s are refused (503), did nothing, and succeed when repeated. The log holds one window of tries, or as long as limit rows were kept
-- (`SELECT count(*) FROM rate_limit_log` tells how many): with many, migrate in a quiet hour. lock_timeout bounds the wait for the lock.
-- Older programs: none.
--
-- How long things are kept belongs to the database: a program's configuration can make a retention longer, never shorter. keep_house raises `kept` to
-- what a worker is configured with; only the owner lowers it, by issuing.set_retention. docs/operators.md says how.
CREATE TABLE issuing.retentions (
    name  text PRIMARY KEY CHECK (name IN ('keys', 'limits', 'events')),
    kept  interval NOT NULL,
    least interval NOT NULL,
    CONSTRAINT retentions_least CHECK (kept >= least AND least >= interval '0')
);
INSERT INTO issuing.retentions (name, kept, least) VALUES ('keys', '1 h', '1 h'), ('limits', '1 h', '1 h'), ('events', '1 d', '1 d');

CREATE FUNCTION issuing.set_retention(name text, kept interval) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
    AS $$ UPDATE retentions r SET kept = $2 WHERE r.name = $1 $$;
REVOKE ALL ON FUNCTION issuing.set_retention(text, interval) FROM PUBLIC;

-- The clock by which retentions are judged. The database's own may step, by hours or a year and for a moment only, and a key forgotten then is a
-- second card. So this one advances by what lies between two passes of keep_house while that is little (5 minutes), and stands still while a clock
-- steps or nobody keeps house. After a day without a step the database's clock is believed again. A retention is never shorter by it than by 5 minutes
-- for each step.
CREATE TABLE issuing.house_clock (
    one         bool PRIMARY KEY DEFAULT true CHECK (one),
    passed_at   timestamptz, -- the database's clock at the last pass; NULL before the first
    steady_from timestamptz, -- no step and no pause since
    believed_at timestamptz, -- this clock at the last pass
    CONSTRAINT house_clock_whole CHECK (num_nulls(passed_at, steady_from, believed_at) IN (0, 3))
);
INSERT INTO issuing.house_clock DEFAULT VALUES;

-- What the time is when the database's clock says t; never later than t.
CREATE FUNCTION issuing.believed(t timestamptz) RETURNS timestamptz
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        -- least() skips a NULL.
        SELECT least(t, h.believed_at + CASE WHEN t BETWEEN h.passed_at AND h.passed_at + interval '5 minutes' THEN t - h.passed_at ELSE interval '0' END)
        FROM house_clock h
    $$;

-- One index for the limit, whatever counts: the accepted tries of a user are read without the refused ones, however many those are. The other one finds
-- a refused try that is recorded already, and costs an accepted one nothing.
DROP INDEX issuing.rate_limit_log_user;
CREATE INDEX rate_limit_log_user ON issuing.rate_limit_log (user_id, accepted, at);
CREATE INDEX rate_limit_log_refused ON issuing.rate_limit_log (request_id) WHERE NOT accepted;

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

-- Whether the retention of a key is over: it was recorded, and its event ended (or is gone), longer ago than the retention, by the clock that does not step.
CREATE FUNCTION issuing.key_is_over(event uuid, recorded_at timestamptz, t timestamptz, retention interval) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        before timestamptz := issuing.believed(t) - greatest(retention, (SELECT r.kept FROM retentions r WHERE r.name = 'keys'));
    BEGIN
        RETURN recorded_at < before
           AND NOT EXISTS (SELECT FROM outbox_events e
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

-- Whether a refused try is in the log: a call that runs again after an unknown COMMIT must not count it twice.
CREATE FUNCTION issuing.is_refused(request uuid) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN EXISTS (SELECT FROM rate_limit_log l WHERE l.request_id = request AND NOT l.accepted);
    END
    $$;

-- Tries of a user from times to come, written while a clock was ahead, become tries of now. Otherwise each would count in every window until its time has
-- come. The caller may choose neither rows nor times.
CREATE FUNCTION issuing.mend_tries(who text) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        t timestamptz := clock_timestamp();
    BEGIN
        UPDATE rate_limit_log l SET at = t
        FROM (SELECT f.tableoid AS part, f.ctid AS place FROM rate_limit_log f WHERE f.user_id = who AND f.at > t ORDER BY f.accepted DESC LIMIT 1000) f
        WHERE l.tableoid = f.part AND l.ctid = f.place AND l.user_id = who AND l.at > t;
    END
    $$;
REVOKE ALL ON FUNCTION issuing.mend_tries(text) FROM PUBLIC;

-- When the next try of a limited user can pass: as soon as the try that blocks longest leaves the window, the limit_count-th newest. Where refused
-- tries count, the one being refused is the newest of them. Never later than one window from now: a try from a time to come counts as one of now, and
-- is made one.
CREATE FUNCTION issuing.frees_at(who text, request uuid, t timestamptz, limit_count int8, limit_window interval, count_attempts bool) RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        newer int8 := greatest(limit_count - CASE WHEN count_attempts THEN 2 ELSE 1 END, 0);
    BEGIN
        IF EXISTS (SELECT FROM rate_limit_log l WHERE l.user_id = who AND l.accepted AND l.at > t)
           OR count_attempts AND EXISTS (SELECT FROM rate_limit_log l WHERE l.user_id = who AND NOT l.accepted AND l.at > t) THEN
            PERFORM issuing.mend_tries(who);
        END IF;
        IF count_attempts AND limit_count = 1 THEN
            RETURN t + limit_window;
        END IF;
        RETURN limit_window + coalesce(
            (SELECT least(c.at, t) FROM (
                (SELECT l.at FROM rate_limit_log l
                 WHERE l.user_id = who AND l.accepted AND l.at > t - limit_window AND l.request_id <> request ORDER BY l.at DESC LIMIT newer + 1)
                UNION ALL
                (SELECT l.at FROM rate_limit_log l
                 WHERE count_attempts AND l.user_id = who AND NOT l.accepted AND l.at > t - limit_window AND l.request_id <> request
                 ORDER BY l.at DESC LIMIT newer + 1)) c
             ORDER BY c.at DESC OFFSET newer LIMIT 1), t);
    END
    $$;

CREATE FUNCTION issuing.accept(
    ids uuid[], user_ids text[], keys text[], fingerprints bytea[], payloads text[], traceparents text[],
    limit_count int8, limit_window interval, count_attempts bool, key_retention interval)
RETURNS TABLE (
    verdict    text,        -- accepted, replayed, reused, not_replaceable, limited
    event_id   uuid,        -- of the accepted or replayed event
    created_at timestamptz, -- of that event
    used       int8,        -- counted tries in the window, limit_count of them at most, and this one where it counts
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
            WHERE n.created_at >= t - key_retention OR NOT issuing.key_is_over(n.event_id, n.created_at, t, key_retention)
        ) k ON true
        CROSS JOIN LATERAL (
            -- Oldest first, and no more than decide: with the limit reached nothing depends on how far it is exceeded.
            SELECT least(count(*), limit_count) AS counted, CASE WHEN count(*) > 0 THEN least(min(c.at), t) END AS oldest FROM (
                (SELECT l.at FROM rate_limit_log l
                 WHERE l.user_id = a.user_id AND l.accepted AND l.at > t - limit_window AND l.request_id <> a.id ORDER BY l.at LIMIT limit_count)
                UNION ALL
                (SELECT l.at FROM rate_limit_log l
                 WHERE count_attempts AND l.user_id = a.user_id AND NOT l.accepted AND l.at > t - limit_window AND l.request_id <> a.id
                 ORDER BY l.at LIMIT limit_count)) c
        ) w
    ), new_keys AS (
        INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
        SELECT j.id, t, j.user_id, j.key, j.fingerprint FROM judged j WHERE j.verdict = 'accepted' AND j.known_id IS NULL
    ), new_tries AS (
        INSERT INTO rate_limit_log (at, request_id, accepted, user_id)
        SELECT t, j.id, j.verdict = 'accepted', j.user_id FROM judged j
        WHERE j.known_id IS NULL AND (j.verdict = 'accepted' OR j.verdict = 'limited' AND NOT issuing.is_refused(j.id))
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
