-- Heartbeats of workers.

-- What a worker writes every few seconds, and what it is to obey. Clock steps heal: every time is written anew, as an
-- age before now, and a row whose time is ahead of the clock is removed until its worker writes it again. Locks that
-- others hold on the tables of workers are waited for only shortly, and cost the picture, not the controls: is_noted
-- tells. A lost heartbeat is followed by the next, so its commit does not wait for the disk or for a standby.
CREATE OR REPLACE FUNCTION issuing.heartbeat(
    worker text, host_name text, process int8, release text, up_ms int8, held int8, room int8, draining bool,
    targets text[], states text[], since_ms int8[], causes text[], restings bool[], pauses bool[],
    next_ms int8[], -- null = none
    flights int8[], waits int8[], limits int8[], probes int8[],
    certificates_s int8[]) -- null = none was seen
RETURNS TABLE (target text, is_paused bool, paused_by text, paused_why text, probe_number int8, is_noted bool)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp SET lock_timeout = '200ms'
AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
    noted bool := true;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    BEGIN
        INSERT INTO workers AS w (name, host, pid, version, started_at, seen_at, in_flight, slots, is_draining)
        VALUES (worker, host_name, process, release, at - up_ms * interval '1 millisecond', at, held, room,
                draining)
        ON CONFLICT (name) DO UPDATE
        SET host = excluded.host, pid = excluded.pid, version = excluded.version, started_at = excluded.started_at,
            seen_at = excluded.seen_at, in_flight = excluded.in_flight, slots = excluded.slots,
            is_draining = excluded.is_draining;
        INSERT INTO worker_targets AS w (worker, target, state, since, cause, is_resting, is_paused, next_at,
                                         in_flight, waiting, call_limit, probe_number, certificate_ends_at)
        SELECT heartbeat.worker, t.target, t.state, at - t.since * interval '1 millisecond', t.cause, t.is_resting,
               t.is_paused, at + t.next * interval '1 millisecond', t.in_flight, t.waiting, t.call_limit,
               t.probe_number, at + t.certificate * interval '1 second'
        FROM unnest(targets, states, since_ms, causes, restings, pauses, next_ms, flights, waits, limits, probes,
                    certificates_s)
            AS t (target, state, since, cause, is_resting, is_paused, next, in_flight, waiting, call_limit,
                  probe_number, certificate)
        ON CONFLICT (worker, target) DO UPDATE
        SET state = excluded.state, since = excluded.since, cause = excluded.cause,
            is_resting = excluded.is_resting, is_paused = excluded.is_paused, next_at = excluded.next_at,
            in_flight = excluded.in_flight, waiting = excluded.waiting, call_limit = excluded.call_limit,
            probe_number = excluded.probe_number, certificate_ends_at = excluded.certificate_ends_at;
        DELETE FROM workers w WHERE w.name IN (
            SELECT o.name FROM workers o
            WHERE o.name <> heartbeat.worker
              AND (o.seen_at < at - interval '1 day' OR o.seen_at > at + interval '1 minute')
            -- guard: dead workers by the thousand are removed in parts
            LIMIT 1000 -- more would take longer than a worker waits, and it would never learn the controls
            FOR UPDATE SKIP LOCKED);
    -- guard: locked tables of heartbeats hide no control
    EXCEPTION WHEN OTHERS THEN
        noted := false;
    END;
    RETURN QUERY
    SELECT t.name, c.paused_at IS NOT NULL, c.paused_by, c.paused_why, coalesce(c.probe_number, 0), noted
    FROM unnest(targets) AS t (name)
    LEFT JOIN target_controls c ON c.target = t.name;
END
$$;
