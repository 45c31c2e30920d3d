-- Heartbeats of workers, and what operators ask of targets.

-- The workers that were seen within a minute. A time far ahead is from before the clock was set back.
CREATE OR REPLACE VIEW issuing.workers_living AS
SELECT w.* FROM issuing.workers w
WHERE w.seen_at BETWEEN statement_timestamp() - interval '1 minute' AND statement_timestamp() + interval '1 minute';

-- What the living workers must have alike, and have not: the option, and each value with one worker that has it. null =
-- the option is not known to that worker's release.
CREATE OR REPLACE VIEW issuing.workers_disagree AS
SELECT o.name, string_agg(coalesce(v.value, 'not known') || ' (' || v.worker || ')', ', ' ORDER BY v.value) AS says
FROM (SELECT DISTINCT k.name FROM issuing.workers_living w CROSS JOIN jsonb_object_keys(w.must_agree) AS k (name)) o
CROSS JOIN LATERAL (SELECT w.must_agree ->> o.name AS value, min(w.name) AS worker
                    FROM issuing.workers_living w GROUP BY 1) v
GROUP BY o.name
HAVING count(*) > 1;

-- Ends the pauses whose time is over, each with an audit row.
CREATE OR REPLACE FUNCTION issuing.end_pauses()
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    WITH over AS MATERIALIZED (
        SELECT c.* FROM target_controls c
        -- guard: a pause for a time ends by itself
        WHERE c.paused_until <= clock_timestamp()
        FOR UPDATE SKIP LOCKED -- another worker ends it
    ), ended AS (
        UPDATE target_controls c SET paused_at = NULL, paused_by = NULL, paused_why = NULL, paused_until = NULL
        FROM over o
        WHERE c.target = o.target
        RETURNING to_jsonb(o) AS before, to_jsonb(c) AS after
    )
    INSERT INTO operator_actions (actor, action, reason, before, after)
    SELECT e.before ->> 'paused_by', 'resume_target', 'the time of the pause is over', e.before, e.after FROM ended e;
END
$$;

REVOKE ALL ON FUNCTION issuing.end_pauses FROM PUBLIC;

-- What a worker writes every few seconds, and what it is to obey. A step of the clock does no lasting harm: every time
-- is written again, as an age before now, and a row whose time is ahead of the clock is removed until its worker writes
-- it again. A lock that another session holds on the tables of workers is waited for only shortly; then the row is not
-- written (is_noted false), but the controls are read. A lost heartbeat is followed by the next, so its commit does not
-- wait for the disk or for a standby.
CREATE OR REPLACE FUNCTION issuing.heartbeat(
    worker text, host_name text, process int8, release text, up_ms int8, held int8, room int8, draining bool,
    targets text[], states text[], since_ms int8[], causes text[], restings bool[], pauses bool[],
    next_ms int8[], -- null = none
    flights int8[], waits int8[], limits int8[], probes int8[],
    certificates_s int8[], -- null = none was seen
    agreement jsonb, lifetime_ms int8, settle_ms int8)
RETURNS TABLE (target text, is_paused bool, paused_by text, paused_why text, probe_number int8, is_noted bool,
               least_lifetime_ms int8, most_settle_ms int8) -- of all living workers; null = not known now
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp SET lock_timeout = '200ms'
AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
    noted bool := true;
    least_lifetime int8;
    most_settle int8;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    BEGIN
        INSERT INTO workers AS w (name, host, pid, version, started_at, seen_at, in_flight, slots, is_draining,
                                  must_agree, key_lifetime_ms, settle_time_ms)
        VALUES (worker, host_name, process, release, at - up_ms * interval '1 millisecond', at, held, room,
                draining, agreement, lifetime_ms, settle_ms)
        ON CONFLICT (name) DO UPDATE
        SET host = excluded.host, pid = excluded.pid, version = excluded.version, started_at = excluded.started_at,
            seen_at = excluded.seen_at, in_flight = excluded.in_flight, slots = excluded.slots,
            is_draining = excluded.is_draining, must_agree = excluded.must_agree,
            key_lifetime_ms = excluded.key_lifetime_ms, settle_time_ms = excluded.settle_time_ms;
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
        SELECT min(w.key_lifetime_ms), max(w.settle_time_ms) INTO least_lifetime, most_settle FROM workers_living w;
    -- guard: locked tables of heartbeats hide no control
    EXCEPTION WHEN OTHERS THEN
        noted := false;
    END;
    IF EXISTS (SELECT FROM target_controls c WHERE c.paused_until <= at) THEN
        PERFORM end_pauses();
    END IF;
    RETURN QUERY
    SELECT t.name, c.paused_at IS NOT NULL, c.paused_by, c.paused_why, coalesce(c.probe_number, 0), noted,
           least_lifetime, most_settle
    FROM unnest(targets) AS t (name)
    LEFT JOIN target_controls c ON c.target = t.name;
END
$$;

-- The three actions on a target: change and audit row are one transaction. NULL = done; else why not: `paused` (it is
-- already, or for a probe: nothing may be sent), `not_paused`, `bad_target`. A target that is a route is named after
-- its type; a probe makes its next event due. pause_ms: how long a pause lasts; null = until it is resumed.
CREATE OR REPLACE FUNCTION issuing.control_target(
    action text, target_name text, actor text, os_user text, sudo_user text, why text, pause_ms int8 DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before target_controls;
    after target_controls;
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    IF target_name !~ '^[A-Za-z][A-Za-z0-9_]{0,63}$' THEN
        RETURN 'bad_target';
    END IF;
    INSERT INTO target_controls (target) VALUES (target_name) ON CONFLICT (target) DO NOTHING;
    SELECT c.* INTO STRICT before FROM target_controls c WHERE c.target = target_name FOR UPDATE;
    IF (action IN ('pause_target', 'resume_target', 'probe_target')) IS NOT TRUE THEN
        RAISE EXCEPTION 'no such action: %', action USING ERRCODE = '22023';
    ELSIF action = 'resume_target' AND before.paused_at IS NULL THEN
        RETURN 'not_paused';
    ELSIF action <> 'resume_target' AND before.paused_at IS NOT NULL THEN
        RETURN 'paused';
    END IF;
    -- What is not set is null: a target that is probed or resumed is not paused.
    after.paused_at := CASE WHEN action = 'pause_target' THEN clock_timestamp() END;
    UPDATE target_controls c
    SET paused_at = after.paused_at, paused_by = CASE WHEN action = 'pause_target' THEN actor END,
        paused_why = CASE WHEN action = 'pause_target' THEN why END,
        paused_until = after.paused_at + pause_ms * interval '1 millisecond',
        probe_number = c.probe_number + CASE WHEN action = 'probe_target' THEN 1 ELSE 0 END
    WHERE c.target = target_name
    RETURNING c.* INTO STRICT after;
    IF action = 'probe_target' THEN
        PERFORM make_one_due(CASE WHEN target_name IN ('issuer', 'core') THEN 'CARD_ISSUE' ELSE target_name END);
    END IF;
    INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, before, after)
    VALUES (actor, os_user, sudo_user, action, why, to_jsonb(before), to_jsonb(after));
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION issuing.control_target FROM PUBLIC;
