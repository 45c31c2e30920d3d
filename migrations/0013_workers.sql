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
    since      timestamptz NOT NULL, -- when the breaker came into this state
    cause      text,                 -- the failure that opened it; NULL: closed
    is_resting bool NOT NULL,        -- it answered "too many requests", and gets no call until next_at
    is_paused  bool NOT NULL,        -- the worker obeys a pause
    next_at    timestamptz,          -- open: the next probe; resting: the end of the rest; NULL: neither
    in_flight  int4 NOT NULL,        -- calls
    waiting    int4 NOT NULL,        -- calls that wait for their turn
    call_limit int4 NOT NULL,        -- calls at a time that the worker allows itself now
    PRIMARY KEY (worker, target)
) WITH (fillfactor = 50);

-- What operators asked for. A worker reads it with each heartbeat and before its first claim.
CREATE TABLE issuing.target_controls (
    target       text PRIMARY KEY CHECK (target ~ '^[A-Za-z][A-Za-z0-9_]{0,63}$'),
    paused_at    timestamptz,             -- NULL = not paused
    paused_by    text,                    -- the actor, for people
    paused_why   text,
    probe_number int8 NOT NULL DEFAULT 0, -- how often a probe was asked for; a worker compares it with the last one it saw
    CONSTRAINT target_controls_paused CHECK ((paused_at IS NULL) = (paused_by IS NULL) AND (paused_at IS NULL) = (paused_why IS NULL))
);

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
            ELSE
                RAISE EXCEPTION 'no such action: %', action USING ERRCODE = '22023';
        END CASE;
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, before, after)
        VALUES (actor, os_user, sudo_user, action, why, to_jsonb(before), to_jsonb(after));
        RETURN NULL;
    END
    $$;
REVOKE ALL ON FUNCTION issuing.control_target(text, text, text, text, text, text) FROM PUBLIC;
