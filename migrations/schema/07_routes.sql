-- Routes: which types workers deliver, and in which order.

-- Those that count.
CREATE OR REPLACE VIEW issuing.route_workers_living AS
SELECT w.* FROM issuing.route_workers w
WHERE w.seen_at BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() + interval '1 minute';

-- Whether an event of this type is open, or an end waits to become one.
CREATE OR REPLACE FUNCTION issuing.route_is_open(of_type text) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM outbox_events e WHERE e.event_type = of_type AND e.due_at IS NOT NULL)
        OR of_type = 'CARD_REQUEST_ENDED' AND EXISTS (SELECT FROM ends_to_tell t WHERE t.refused IS NULL);
END
$$;

-- A type is no longer ordered: what is held behind other events is due at once, at most 2000 events a call.
CREATE OR REPLACE FUNCTION issuing.free_held(of_type text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    most constant int8 := 2000;
BEGIN
    UPDATE outbox_events e
    SET next_attempt_at = clock_timestamp(), held_behind = NULL,
        updated_at = greatest(e.updated_at, clock_timestamp())
    WHERE e.id = ANY (ARRAY(SELECT h.id FROM outbox_events h
                            WHERE h.event_type = of_type AND h.due_at > now() AND h.status = 'PENDING'
                              AND h.held_behind IS NOT NULL
                            LIMIT most FOR UPDATE SKIP LOCKED));
    IF NOT FOUND THEN
        UPDATE routes r SET frees_held = false WHERE r.event_type = of_type AND NOT r.is_ordered;
    END IF;
END
$$;

-- Called by each worker before its first claim and with every heartbeat. If any living worker says that a type is
-- ordered, it is. The rows of routes are locked in their order, and what workers say is read after that, in a statement
-- of its own: so the last of several workers sees what the others said. A lost write is followed by the next, so the
-- commit does not wait for the disk, unless a route is new: from then on ends are told.
CREATE OR REPLACE FUNCTION issuing.note_routes(
    worker text, types text[], ordereds bool[], lookups bool[], lifetimes_ms int8[], attempts int8[], signeds bool[])
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
    PERFORM FROM routes r WHERE r.event_type = ANY (types) ORDER BY r.event_type FOR UPDATE;
    UPDATE routes r
    SET is_ordered = s.is_ordered, frees_held = NOT s.is_ordered AND (r.is_ordered OR r.frees_held),
        has_lookup = w.has_lookup, key_lifetime_ms = w.key_lifetime_ms, max_attempts = w.max_attempts,
        is_signed = w.is_signed, worker = w.worker, seen_at = at
    FROM route_workers w
    CROSS JOIN LATERAL (SELECT bool_or(o.is_ordered) AS is_ordered FROM route_workers_living o
                        WHERE o.event_type = w.event_type) s
    WHERE w.worker = note_routes.worker AND r.event_type = w.event_type;
    -- guard: what was held is freed when the order is given up
    PERFORM free_held(r.event_type) FROM routes r WHERE r.frees_held AND r.event_type = ANY (types);
    -- By the clock of the retentions: a step of the database's makes no route old.
    FOR left_type IN
        SELECT r.event_type FROM routes r
        -- guard: a route leaves no sooner than its retention
        WHERE r.seen_at < believed(at) - (SELECT t.kept FROM retentions t WHERE t.name = 'routes')
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

-- An operator's word: nobody is to deliver this type, and no end is told. Returns why it is refused, or null:
-- `not_found`; `living`: a worker names it, and would register it again; `open`: events are open or ends wait. forced:
-- also then. Open events stay until a route takes them or somebody cancels them; ends that wait are given up.
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
        WITH gone AS (DELETE FROM ends_to_tell t RETURNING cardinality(t.ids) AS n)
        SELECT coalesce(sum(g.n), 0) INTO given_up FROM gone g;
    END IF;
    INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, before, after)
    VALUES (actor, os_user, sudo_user, 'remove_route', why, to_jsonb(before),
            jsonb_build_object('type', of_type, 'ends_given_up', given_up));
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION issuing.note_routes(text, text[], bool[], bool[], int8[], int8[], bool[]),
    issuing.remove_route(text, bool, text, text, text, text)
FROM PUBLIC;
