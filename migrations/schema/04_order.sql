-- Order: if an event of an ordered type is due while an earlier one of its user and type is open or FAILED, the claim
-- holds it behind that one: held_behind names the nearest earlier event, and next_attempt_at lies far ahead. When the
-- earlier event ends COMPLETED or REJECTED, the held one is due again. Claim and end exclude each other by the lock of
-- user and type, and each looks only after it has the lock, in a statement of its own: so either the claim sees the
-- end, or the end sees the held event. The claim only tries the lock (try_orders), and leaves the event if it does not
-- get it. Every function that ends events takes all locks in their order, before it locks any row.

-- The order of a user's events of a type: who ends events takes all locks in sorted order, before any row. Any session
-- can hold a key that it has seen: the wait is short, and without `waits` there is none. ISBSY: to be tried again.
CREATE OR REPLACE FUNCTION issuing.lock_orders(types text[], user_ids text[], waits bool) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET lock_timeout = '2s'
AS $$
DECLARE
    held bool := false;
BEGIN
    FOR held IN
        SELECT CASE WHEN waits THEN pg_advisory_xact_lock(k.key) IS NULL
                    ELSE NOT pg_try_advisory_xact_lock(k.key) END
        FROM (SELECT DISTINCT issuing.order_lock(a.type, a.user_id, s.salt) AS key
              FROM unnest(types, user_ids) AS a (type, user_id) CROSS JOIN lock_salt s ORDER BY 1 OFFSET 0) AS k
    LOOP
        IF held THEN
            RAISE lock_not_available;
        END IF;
    END LOOP;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'another session holds the lock of a user''s events' USING ERRCODE = 'ISBSY';
END
$$;

-- Precedes, as a statement of its own, everything that may end one of these events COMPLETED or REJECTED, in the same
-- transaction and before any of their rows is locked. ISBSY: another session holds the lock of one of them. A worker
-- then tries each alone, without waiting, so that a lock that is held costs one user's ends and no connection.
CREATE OR REPLACE FUNCTION issuing.lock_order(events uuid[], waits bool DEFAULT true) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    IF EXISTS (SELECT FROM routes r WHERE r.is_ordered) THEN
        -- guard: an end of an ordered type excludes claims
        PERFORM lock_orders(array_agg(e.event_type), array_agg(e.user_id), waits)
        FROM unnest(events) AS a (id)
        JOIN outbox_events e ON e.id = a.id
        JOIN routes r ON r.event_type = e.event_type AND r.is_ordered;
    END IF;
END
$$;

-- Follows, as a statement of its own, the end of these events as COMPLETED or REJECTED: what waits for one of them is
-- due now. A row that was written by a clock that was ahead stays ahead, so that its other times are still recognised
-- (outbox_rebase).
CREATE OR REPLACE FUNCTION issuing.wake_held(events uuid[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
    UPDATE outbox_events e
    -- guard: what waits for an event that ended is due
    SET next_attempt_at = clock_timestamp(), held_behind = NULL,
        updated_at = greatest(e.updated_at, clock_timestamp())
    -- guard: an end wakes what is held behind it
    WHERE e.held_behind = ANY (events) AND e.status = 'PENDING'
$$;

-- The claim only tries. For each user, in the order of the array: whether this transaction has the lock now.
CREATE OR REPLACE FUNCTION issuing.try_orders(of_type text, user_ids text[]) RETURNS bool[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    RETURN (SELECT array_agg(pg_try_advisory_xact_lock(issuing.order_lock(of_type, a.user_id, s.salt))
                             ORDER BY a.n)
            FROM lock_salt s, unnest(user_ids) WITH ORDINALITY AS a (user_id, n));
END
$$;

-- The events of an ordered type that a claim may hand out, at most `most`. The others that it looked at are held
-- behind earlier ones, or left as they are if an end has the lock. Claims look at a held event again without a
-- wake-up: after five minutes, then after as long again as it has existed, at most an hour. So a wake-up that was lost
-- (the type was not ordered for a while) costs time only, and a million held events cost little.
CREATE OR REPLACE FUNCTION issuing.hold_behind(of_type text, most int8, since timestamptz)
RETURNS TABLE (
    ready uuid[],
    next_since timestamptz, -- null = everything due was looked at
    is_filled bool)         -- there may be more that is due
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    looks constant int8 := least(greatest(2 * most, 32), 128); -- each with a lock of its own
    ids uuid[];
    users text[];
    dues timestamptz[];
    changes timestamptz[];
    waits bool[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.claim of an ordered type needs READ COMMITTED, not %',
            current_setting('transaction_isolation') USING ERRCODE = '25001';
    END IF;
    SELECT array_agg(d.id), array_agg(d.user_id), array_agg(d.due_at), array_agg(d.updated_at)
    INTO ids, users, dues, changes
    FROM (SELECT e.id, e.user_id, e.due_at, e.updated_at
          FROM outbox_events e
          WHERE e.event_type = of_type AND e.due_at >= since AND e.due_at <= now()
            AND e.status = 'PENDING' AND e.lost_count < 2
          ORDER BY e.due_at
          LIMIT looks
          FOR UPDATE SKIP LOCKED) d;
    -- In statements of their own: what comes next must see every end that gave its lock back before.
    -- guard: a claim of an ordered type excludes ends
    SELECT array_agg(NOT l.has_lock ORDER BY l.n)
    INTO waits
    FROM unnest(issuing.try_orders(of_type, users)) WITH ORDINALITY AS l (has_lock, n);
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT a.id, a.due_at, a.updated_at, a.waits, a.n, b.id AS behind
        FROM unnest(ids, users, dues, changes, waits)
            WITH ORDINALITY AS a (id, user_id, due_at, updated_at, waits, n)
        LEFT JOIN LATERAL (
            SELECT o.id FROM outbox_events o
            WHERE NOT a.waits AND o.event_type = of_type AND o.event_type <> 'CARD_ISSUE'
              -- guard: a failed event holds back what comes after it
              -- guard: a question holds back what is behind it
              AND o.user_id = a.user_id AND o.id < a.id AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL)
            -- guard: an event waits for the earlier ones of its user
            -- guard: an event is held behind the nearest one
            ORDER BY o.id DESC LIMIT 1) b ON true
    ), held AS (
        UPDATE outbox_events e
        SET held_behind = a.behind,
            -- guard: a held event is not looked at by every claim
            next_attempt_at = now() + least(greatest(now() - greatest(least(e.created_at, now()), 'epoch'),
                                                     interval '5 minutes'), interval '1 hour'),
            first_sent_at = e.first_sent_at - a.ahead, last_sent_at = e.last_sent_at - a.ahead,
            deferred_since = e.deferred_since - a.ahead, updated_at = now()
        FROM (SELECT x.id, x.behind, ahead_by(x.updated_at) AS ahead FROM asked x WHERE x.behind IS NOT NULL) a
        WHERE e.id = a.id
    ), free AS (
        SELECT a.id, a.due_at, row_number() OVER (ORDER BY a.n) AS n
        FROM asked a WHERE NOT a.waits AND a.behind IS NULL
    )
    SELECT (SELECT array_agg(f.id ORDER BY f.n) FROM free f WHERE f.n <= most),
           least((SELECT min(a.due_at) FROM asked a WHERE a.waits),
                 (SELECT min(f.due_at) FROM free f WHERE f.n > most),
                 (SELECT max(a.due_at) FROM asked a HAVING count(*) >= looks)),
           (SELECT count(*) >= looks FROM asked) OR EXISTS (SELECT FROM free f WHERE f.n > most);
END
$$;

-- A type is no longer ordered: what is held behind other events is due at once, at most 2000 events a call. False:
-- nothing was held any more.
CREATE OR REPLACE FUNCTION issuing.free_held(of_type text) RETURNS bool
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
    RETURN FOUND;
END
$$;

REVOKE ALL ON FUNCTION issuing.lock_orders, issuing.try_orders, issuing.free_held FROM PUBLIC;
