-- What a worker looks for among open events beside its claims: leases that ran out, events that became visible late,
-- and times of a clock that was ahead. A look reads so many rows at most, `looks`, by outbox_events_due and the last
-- due ones first: so a backlog that nobody claims costs no more the larger it is. What is due at the same microsecond
-- is read together, and `looked` says how many that were. The next look goes on where this one ended: at `rest_us`,
-- microseconds since 1970; null = everything was looked at.

-- Behind the claims' bookmark: events whose lease ran out (their worker died, hung or lost its connection), and PENDING
-- ones that became visible late. The former return to PENDING. The lost attempt counts as lost and not as an attempt of
-- the event, first_sent_at stays, and a row of outbox_attempts records the loss for its worker. An event that keeps
-- losing its worker ends FAILED `worker_lost` here, where no worker touches it: its outcome stays unknown. The row of
-- the loss makes a trigger do what belongs to that end. Of the PENDING ones the oldest time is returned, so that the
-- bookmark moves back to it. One call covers one range of time. SKIP LOCKED: two sweeps, or a sweep and a late write,
-- never wait for each other.
CREATE OR REPLACE FUNCTION issuing.sweep(
    from_ms int8,     -- from this age; null = from the beginning
    to_ms int8,       -- to this age
    bookmark_us int8, -- nothing after it; null = no bound. Or where the last look ended
    most int8,        -- leases that are taken back
    lost_most int8,   -- so many attempts lost in a row end an event
    of_type text,
    inserted bool,    -- true = only what services sent, false = only what clients requested; null = both
    looks int8)
RETURNS TABLE (
    freed int8,
    late_us int8,     -- null = nothing became visible late
    cost_ms int8,     -- time of this statement
    ended int8,       -- of those that were freed
    rest_us int8,
    looked int8)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    since constant timestamptz := coalesce(now() - from_ms * interval '1 millisecond', '-infinity');
    until constant timestamptz := least(now() - to_ms * interval '1 millisecond',
                                        -- guard: the sweep leaves what lies after the bookmark to the claims
                                        timestamptz 'epoch' + bookmark_us * interval '1 microsecond');
    seen record;
BEGIN
    SELECT count(*) AS looked, min(l.due_at) AS first_due, min(l.lease_until) AS lease_until,
           min(l.due_at) FILTER (WHERE l.lease_until IS NULL) AS pending_due
    INTO seen
    FROM (SELECT e.due_at, e.lease_until
          FROM outbox_events e
          -- guard: the stretches of the sweep meet
          WHERE e.event_type = of_type AND e.due_at >= since AND e.due_at <= until
          ORDER BY e.due_at DESC
          -- guard: a sweep reads a bounded number of rows
          -- guard: a sweep leaves none of those that are due together
          FETCH FIRST (looks) ROWS WITH TIES) l;
    looked := seen.looked;
    freed := 0;
    ended := 0;
    IF seen.lease_until < now() THEN
        WITH lost AS MATERIALIZED (
            SELECT e.id, e.lease_token, e.lease_owner, e.updated_at, clock_timestamp() AS t,
                   clock_timestamp() + CASE WHEN e.lost_count > 0 THEN interval '1 second' * least(e.lost_count, 60)
                                            ELSE interval '0' END AS next_at
            FROM outbox_events e
            WHERE e.event_type = of_type AND e.due_at >= seen.first_due AND e.due_at <= until
              -- guard: only a lease that ran out is taken back
              AND e.status = 'PROCESSING' AND e.lease_until < now()
              AND (inserted IS NULL OR (e.idempotency_key IS NULL) = inserted)
            -- guard: two sweeps do not wait for each other
            LIMIT most
            FOR UPDATE SKIP LOCKED
        ), back AS (
            UPDATE outbox_events e
            -- guard: an event that keeps losing its worker ends
            SET status = CASE WHEN e.lost_count + 1 >= lost_most THEN 'FAILED' ELSE 'PENDING' END,
                reason_code = CASE WHEN e.lost_count + 1 >= lost_most THEN 'worker_lost' END,
                completed_at = CASE WHEN e.lost_count + 1 >= lost_most THEN lost.t END,
                -- guard: an attempt that is lost with its worker is counted
                lease_token = NULL, lease_until = NULL, lost_count = e.lost_count + 1,
                -- guard: an attempt that is lost with its worker is given back
                retry_count = greatest(e.retry_count - 1, 0),
                next_attempt_at = lost.next_at, last_sent_at = lost.t, updated_at = lost.t,
                last_error = 'the lease of worker ' || coalesce(lost.lease_owner, '?') || ' ran out'
            FROM lost
            WHERE e.id = lost.id
            RETURNING e.id, e.user_id, e.retry_count, e.lost_count
        ), noted AS (
            INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                         step, outcome, code, detail)
            SELECT b.id, l.lease_token, l.updated_at, now(), b.retry_count + 1, true, b.user_id, l.lease_owner,
                   'unknown', 'lost', 'lease_expired', NULL
            FROM back b JOIN lost l ON l.id = b.id
            ON CONFLICT DO NOTHING
        ), suspected AS (
            INSERT INTO lost_events (event_id) SELECT b.id FROM back b
            WHERE b.lost_count >= 2 AND b.lost_count < lost_most
            -- guard: an event that is lost again keeps its position among those that are tried alone
            ON CONFLICT (event_id) DO UPDATE SET since = excluded.since
        )
        SELECT count(*), count(*) FILTER (WHERE b.lost_count >= lost_most) INTO freed, ended FROM back b;
    END IF;
    IF seen.pending_due IS NOT NULL THEN
        -- A locked row is being claimed at this moment.
        -- guard: what is due since before 1970 is named as the beginning
        SELECT (extract(epoch FROM greatest(e.due_at, timestamptz 'epoch' - interval '1 microsecond'))
                * 1000000)::int8
        INTO late_us
        FROM outbox_events e
        WHERE e.event_type = of_type AND e.due_at >= seen.pending_due AND e.due_at <= until
          -- guard: the sweep names what became visible late
          -- guard: the sweep sends no claim back to an event that it passes over
          AND e.status = 'PENDING' AND e.lost_count < 2
          AND (inserted IS NULL OR (e.idempotency_key IS NULL) = inserted)
        ORDER BY e.due_at
        LIMIT 1
        FOR UPDATE SKIP LOCKED;
    END IF;
    cost_ms := extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000;
    -- guard: a sweep goes on behind what it has looked at
    rest_us := CASE WHEN seen.looked >= looks AND isfinite(seen.first_due)
                    THEN (extract(epoch FROM seen.first_due) * 1000000)::int8 - 1 END;
    RETURN NEXT;
END
$$;

-- After the database's clock was set back: open events with times in the future, which were written while the clock was
-- ahead. All times of such a row move back by as much as its last write is ahead, so each wait and each lease lasts as
-- long as intended. A difference of one second is ignored, because the clocks of a cluster differ by that much.
CREATE OR REPLACE FUNCTION issuing.rebase(
    most int8,      -- events that are moved
    of_type text,
    inserted bool,  -- as of the sweep
    until_us int8,  -- nothing that is due later: where the last look ended; null = no bound
    looks int8)
RETURNS TABLE (moved int8, rest_us int8, looked int8)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    until constant timestamptz := coalesce(timestamptz 'epoch' + until_us * interval '1 microsecond', 'infinity');
    seen record;
BEGIN
    SELECT count(*) AS looked, min(l.due_at) AS first_due, max(l.updated_at) AS updated_at
    INTO seen
    FROM (SELECT e.due_at, e.updated_at
          FROM outbox_events e
          WHERE e.event_type = of_type AND e.due_at <= until
          ORDER BY e.due_at DESC
          -- guard: a rebase reads a bounded number of rows
          FETCH FIRST (looks) ROWS WITH TIES) l;
    looked := seen.looked;
    moved := 0;
    IF seen.updated_at > now() THEN
        WITH ahead AS MATERIALIZED (
            SELECT e.id, e.updated_at, e.next_attempt_at, e.lease_until, e.first_sent_at, e.last_sent_at,
                   e.deferred_since, least(e.updated_at, now() + interval '1000 years') - now() AS by
            FROM outbox_events e
            WHERE e.event_type = of_type AND e.due_at >= seen.first_due AND e.due_at <= until
              AND (e.due_at > now() OR e.status = 'PROCESSING')
              AND (inserted IS NULL OR (e.idempotency_key IS NULL) = inserted)
              -- guard: what a clock that was ahead has written is found
              AND e.updated_at > now() + interval '1 second'
            LIMIT most
            FOR UPDATE SKIP LOCKED
        ), back AS MATERIALIZED (
            SELECT a.id, least(a.updated_at - a.by, now()) AS updated_at, a.next_attempt_at - a.by AS next_attempt_at,
                   a.lease_until - a.by AS lease_until, a.first_sent_at - a.by AS first_sent_at,
                   a.last_sent_at - a.by AS last_sent_at, a.deferred_since - a.by AS deferred_since
            FROM ahead a
        ), written AS (
            UPDATE outbox_events e
            SET updated_at = b.updated_at, next_attempt_at = b.next_attempt_at, lease_until = b.lease_until,
                first_sent_at = b.first_sent_at, last_sent_at = b.last_sent_at, deferred_since = b.deferred_since
            FROM back b
            WHERE e.id = b.id
            RETURNING e.id
        )
        SELECT count(*) INTO moved FROM written;
    END IF;
    -- guard: a rebase goes on behind what it has looked at
    rest_us := CASE WHEN seen.looked >= looks AND seen.first_due > '-infinity'
                    -- No clock has shown more.
                    THEN (extract(epoch FROM least(seen.first_due, timestamptz '9999-12-31')) * 1000000)::int8 - 1 END;
    RETURN NEXT;
END
$$;
