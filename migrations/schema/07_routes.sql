-- Routes: which types workers deliver, and in which order.

-- What the living workers say of their routes.
CREATE OR REPLACE VIEW issuing.route_workers_living AS
SELECT w.* FROM issuing.route_workers w
WHERE w.seen_at BETWEEN statement_timestamp() - interval '1 minute' AND statement_timestamp() + interval '1 minute';

-- A worker pauses these targets for all workers, until an operator resumes them. An existing pause stays as it is,
-- unless it would end by itself.
CREATE OR REPLACE FUNCTION issuing.pause_stopped(worker text, targets text[], whys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    WITH paused AS (
        INSERT INTO target_controls AS c (target, paused_at, paused_by, paused_why)
        SELECT t.name, clock_timestamp(), worker, t.why
        FROM unnest(targets, whys) AS t (name, why) ORDER BY 1
        ON CONFLICT (target) DO UPDATE
        SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_why = excluded.paused_why,
            paused_until = NULL
        -- guard: a 410 outlasts a pause for a time
        WHERE c.paused_at IS NULL OR c.paused_until IS NOT NULL
        RETURNING c.*
    )
    INSERT INTO operator_actions (actor, action, reason, after)
    SELECT worker, 'pause_target', p.paused_why, to_jsonb(p) FROM paused p;
END
$$;

-- Called by each worker before its first claim and with every heartbeat. If any living worker says that a type is
-- ordered, it is. The rows of routes are locked in their order, and what workers say is read after that, in a statement
-- of its own: so the last of several workers sees what the others said. A lost write is followed by the next, so the
-- commit does not wait for the disk, unless a route is new: from then on notifications are made.
CREATE OR REPLACE FUNCTION issuing.note_routes(
    worker text, types text[], ordereds bool[], lookups bool[], lifetimes_ms int8[], attempts int8[], signeds bool[],
    stopped text[] DEFAULT '{}', whys text[] DEFAULT '{}') -- targets that this worker has paused for all
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp SET lock_timeout = '200ms'
AS $$
#variable_conflict use_column
DECLARE
    at constant timestamptz := clock_timestamp();
    left_type text;
BEGIN
    INSERT INTO route_workers AS w (event_type, worker, is_ordered, has_lookup, key_lifetime_ms, max_attempts,
                                    is_signed, seen_at)
    SELECT t.type, note_routes.worker, t.is_ordered, t.has_lookup, t.lifetime_ms, t.attempts, t.is_signed, at
    FROM unnest(types, ordereds, lookups, lifetimes_ms, note_routes.attempts, signeds)
        AS t (type, is_ordered, has_lookup, lifetime_ms, attempts, is_signed)
    ON CONFLICT (event_type, worker) DO UPDATE
    SET is_ordered = excluded.is_ordered, has_lookup = excluded.has_lookup,
        key_lifetime_ms = excluded.key_lifetime_ms, max_attempts = excluded.max_attempts,
        is_signed = excluded.is_signed, seen_at = excluded.seen_at;
    DELETE FROM route_workers w
    WHERE (w.event_type, w.worker) IN (
        SELECT o.event_type, o.worker FROM route_workers o
        WHERE o.worker = note_routes.worker AND o.event_type <> ALL (coalesce(types, '{}'))
           OR o.seen_at NOT BETWEEN at - interval '1 day' AND at + interval '1 minute'
        FOR UPDATE SKIP LOCKED);
    INSERT INTO routes (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts, is_signed, worker,
                        seen_at)
    SELECT w.event_type, w.is_ordered, w.has_lookup, w.key_lifetime_ms, w.max_attempts, w.is_signed, w.worker, at
    FROM route_workers w WHERE w.worker = note_routes.worker
    ORDER BY w.event_type
    ON CONFLICT (event_type) DO NOTHING;
    IF NOT FOUND THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(stopped) > 0 THEN
        PERFORM pause_stopped(note_routes.worker, stopped, whys);
    END IF;
    PERFORM FROM routes r WHERE r.event_type = ANY (types) ORDER BY r.event_type FOR UPDATE;
    UPDATE routes r
    SET is_ordered = s.is_ordered, frees_held = NOT s.is_ordered AND (r.is_ordered OR r.frees_held),
        has_lookup = w.has_lookup, key_lifetime_ms = w.key_lifetime_ms, max_attempts = w.max_attempts,
        is_signed = w.is_signed, worker = w.worker, seen_at = at
    FROM route_workers w
    CROSS JOIN LATERAL (SELECT bool_or(o.is_ordered) AS is_ordered FROM route_workers_living o
                        WHERE o.event_type = w.event_type) s
    WHERE w.worker = note_routes.worker AND r.event_type = w.event_type;
    FOR left_type IN
        SELECT r.event_type FROM routes r WHERE r.frees_held AND r.event_type = ANY (types) ORDER BY r.event_type
    LOOP
        -- guard: what was held is freed when the order is given up
        CONTINUE WHEN free_held(left_type);
        UPDATE routes r SET frees_held = false WHERE r.event_type = left_type AND NOT r.is_ordered;
    END LOOP;
    -- By the clock of the retentions: a step of the database's clock makes no route old.
    FOR left_type IN
        SELECT r.event_type FROM routes r
        -- guard: a route leaves no sooner than its retention
        WHERE r.seen_at < retention_now(at) - (SELECT t.kept FROM retentions t WHERE t.name = 'routes')
        FOR UPDATE SKIP LOCKED
    LOOP
        -- guard: a route whose events are open stays
        CONTINUE WHEN route_is_open(left_type);
        DELETE FROM routes r WHERE r.event_type = left_type;
        INSERT INTO operator_actions (actor, action, reason, before)
        VALUES (note_routes.worker, 'route_left', 'no worker named it for the retention of routes',
                jsonb_build_object('type', left_type));
    END LOOP;
END
$$;

-- An operator removes the route of this type: nobody delivers it any more, and no notification is made. Returns why it
-- is refused, or null: `not_found`; `living`: a worker names it, and would register it again; `open`: events are open
-- or ends wait. forced: removed also if events are open or ends wait. Open events stay until a route takes them or
-- somebody cancels them; ends that wait are given up.
CREATE OR REPLACE FUNCTION issuing.remove_route(
    of_type text, forced bool, actor text, os_user text, sudo_user text, why text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before routes;
    given_up int8 := 0;
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    SELECT r.* INTO before FROM routes r WHERE r.event_type = of_type FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF EXISTS (SELECT FROM route_workers_living w WHERE w.event_type = of_type) THEN
        RETURN 'living';
    ELSIF route_is_open(of_type) AND forced IS NOT TRUE THEN
        RETURN 'open';
    END IF;
    DELETE FROM routes r WHERE r.event_type = of_type;
    DELETE FROM route_workers w WHERE w.event_type = of_type;
    IF of_type = 'CARD_REQUEST_ENDED' THEN
        WITH gone AS (DELETE FROM end_notifications t RETURNING cardinality(t.ids) AS n)
        SELECT coalesce(sum(g.n), 0) INTO given_up FROM gone g;
    END IF;
    INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, before, after)
    VALUES (actor, os_user, sudo_user, 'remove_route', why, to_jsonb(before),
            jsonb_build_object('type', of_type, 'ends_given_up', given_up));
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION issuing.pause_stopped, issuing.note_routes, issuing.remove_route FROM PUBLIC;
