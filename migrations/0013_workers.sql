-- Why: operators see which workers run and how each of them sees its targets, and they pause, resume and probe a target.
-- Workers write what is here every few seconds, so that issuing-ctl, the api and alerts know about them without a
-- connection to any worker. Locks: an index on operator_actions is built under SHARE (about 1 s per million audit rows);
-- reveals of card numbers wait for it. Older programs go on; a worker of an older release writes no row here and obeys
-- no control.
--
-- Nothing here decides about a card: a row that is lost or wrong costs a wrong picture, and a pause that ends too early
-- or too late. All times are the database's.

-- One row for each worker process. A row that was not seen for 60 s counts as dead; a heartbeat removes it after a day.
CREATE TABLE issuing.workers (
    name       text PRIMARY KEY,     -- host:pid, the owner of its leases (outbox_events.lease_owner)
    host       text NOT NULL,
    pid        int8 NOT NULL,
    version    text NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    in_flight  int4 NOT NULL,        -- events held
    slots      int4 NOT NULL,        -- worker.max_in_flight
    is_draining bool NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- One row for each target that a worker calls: the state of its breaker there. Each worker knows only the answers that
-- it got itself, so the rows of one target may differ.
CREATE TABLE issuing.worker_targets (
    worker     text NOT NULL REFERENCES issuing.workers ON DELETE CASCADE,
    target     text NOT NULL,        -- issuer, core
    state      text NOT NULL CHECK (state IN ('closed', 'half_open', 'open')),
    since      timestamptz NOT NULL, -- closed: when it closed, or began; open, half_open: when it opened
    cause      text,                 -- the last failure that opened it or kept it open; NULL: closed
    is_resting bool NOT NULL,        -- it answered "too many requests", and gets no call until next_at
    is_paused  bool NOT NULL,        -- the worker obeys a pause
    next_at    timestamptz,          -- open: the next probe; resting: the end of the rest; NULL: neither
    in_flight  int4 NOT NULL,        -- calls
    waiting    int4 NOT NULL,        -- calls that wait for their turn
    call_limit int4 NOT NULL,        -- calls at a time that the worker allows itself now
    probe_number int8 NOT NULL DEFAULT 0, -- of target_controls: the last probe that the worker obeyed
    PRIMARY KEY (worker, target)
) WITH (fillfactor = 50);

-- The worker that was the last to end by itself: one row, for "no worker runs: the last one was seen then and there".
CREATE TABLE issuing.last_worker (
    is_only  bool PRIMARY KEY DEFAULT true CHECK (is_only),
    name     text NOT NULL,
    host     text NOT NULL,
    ended_at timestamptz NOT NULL
);

-- What operators asked for. A worker reads it with each heartbeat and before its first claim.
CREATE TABLE issuing.target_controls (
    target       text PRIMARY KEY CHECK (target ~ '^[A-Za-z][A-Za-z0-9_]{0,63}$'),
    paused_at    timestamptz,             -- NULL = not paused
    paused_by    text,                    -- the actor, for people
    paused_why   text,
    probe_number int8 NOT NULL DEFAULT 0, -- how often a probe was asked for; a worker compares it with its last one
    CONSTRAINT target_controls_paused CHECK ((paused_at IS NULL) = (paused_by IS NULL)
                                             AND (paused_at IS NULL) = (paused_why IS NULL))
);

-- What a worker writes every few seconds, and what it is to obey. Clock steps heal: every time is written anew, as an
-- age before now, and a row whose time is ahead of the clock is removed until its worker writes it again. Locks that
-- others hold on the tables of workers are waited for only shortly, and cost the picture, not the controls: is_noted
-- tells. A lost heartbeat is followed by the next, so its commit does not wait for the disk or for a standby.
CREATE FUNCTION issuing.heartbeat(
    worker text, host_name text, process int8, release text, up_ms int8, held int8, room int8, draining bool,
    targets text[], states text[], since_ms int8[], causes text[], restings bool[], pauses bool[],
    next_ms int8[], -- null = none
    flights int8[], waits int8[], limits int8[], probes int8[])
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
                                             in_flight, waiting, call_limit, probe_number)
            SELECT heartbeat.worker, t.target, t.state, at - t.since * interval '1 millisecond', t.cause, t.is_resting,
                   t.is_paused, at + t.next * interval '1 millisecond', t.in_flight, t.waiting, t.call_limit,
                   t.probe_number
            FROM unnest(targets, states, since_ms, causes, restings, pauses, next_ms, flights, waits, limits, probes)
                AS t (target, state, since, cause, is_resting, is_paused, next, in_flight, waiting, call_limit,
                      probe_number)
            ON CONFLICT (worker, target) DO UPDATE
            SET state = excluded.state, since = excluded.since, cause = excluded.cause,
                is_resting = excluded.is_resting, is_paused = excluded.is_paused, next_at = excluded.next_at, in_flight = excluded.in_flight,
                waiting = excluded.waiting, call_limit = excluded.call_limit, probe_number = excluded.probe_number;
            DELETE FROM workers w WHERE w.name IN (
                SELECT o.name FROM workers o
                WHERE o.name <> heartbeat.worker
                  AND (o.seen_at < at - interval '1 day' OR o.seen_at > at + interval '1 minute')
                LIMIT 1000 -- more would take longer than a worker waits, and it would never learn the controls
                FOR UPDATE SKIP LOCKED);
        EXCEPTION WHEN OTHERS THEN
            noted := false;
        END;
        RETURN QUERY
        SELECT t.name, c.paused_at IS NOT NULL, c.paused_by, c.paused_why, coalesce(c.probe_number, 0), noted
        FROM unnest(targets) AS t (name)
        LEFT JOIN target_controls c ON c.target = t.name;
    END
    $$;

-- `issuing-ctl audit`: the newest actions first.
CREATE INDEX operator_actions_at ON issuing.operator_actions (at);

-- The three actions on a target: change and audit row are one transaction. NULL = done; else why not: `paused` (it is
-- already, or for a probe: nothing may be sent), `not_paused`, `bad_target`.
CREATE FUNCTION issuing.control_target(
    action text, target_name text, actor text, os_user text, sudo_user text, why text)
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
        CASE action
            WHEN 'pause_target' THEN
                IF before.paused_at IS NOT NULL THEN
                    RETURN 'paused';
                END IF;
                UPDATE target_controls c SET paused_at = clock_timestamp(), paused_by = actor, paused_why = why
                WHERE c.target = target_name
                RETURNING c.* INTO STRICT after;
            WHEN 'resume_target' THEN
                IF before.paused_at IS NULL THEN
                    RETURN 'not_paused';
                END IF;
                UPDATE target_controls c SET paused_at = NULL, paused_by = NULL, paused_why = NULL
                WHERE c.target = target_name
                RETURNING c.* INTO STRICT after;
            WHEN 'probe_target' THEN
                IF before.paused_at IS NOT NULL THEN
                    RETURN 'paused';
                END IF;
                UPDATE target_controls c SET probe_number = c.probe_number + 1
                WHERE c.target = target_name
                RETURNING c.* INTO STRICT after;
                -- Something to probe with: where events are rare, the next one may come back much later.
                UPDATE outbox_events e SET next_attempt_at = clock_timestamp()
                WHERE e.id = (SELECT n.id FROM outbox_events n
                              WHERE n.event_type = 'CARD_ISSUE' AND n.due_at > clock_timestamp()
                                AND n.status = 'PENDING'
                              ORDER BY n.due_at LIMIT 1 FOR UPDATE SKIP LOCKED);
            ELSE
                RAISE EXCEPTION 'no such action: %', action USING ERRCODE = '22023';
        END CASE;
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, before, after)
        VALUES (actor, os_user, sudo_user, action, why, to_jsonb(before), to_jsonb(after));
        RETURN NULL;
    END
    $$;
REVOKE ALL ON FUNCTION issuing.control_target(text, text, text, text, text, text) FROM PUBLIC;
