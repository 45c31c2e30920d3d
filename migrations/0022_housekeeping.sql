-- Why: no lock that a role without our rights can take stops acceptance, a claim or housekeeping; no setting of a role
-- or of the database moves a partition; a plan of housekeeping refuses no row; and acceptance can be tried without a
-- trace. Locks: none that matter; tables are made, functions are replaced.

-- ---- turns: one session at a time does periodic work ----
-- Rows and not advisory locks: those have no rights, and any session that may connect can take them all. Only the
-- owner, and functions that run as the owner, can lock a row here.
CREATE TABLE issuing.turns (name text PRIMARY KEY CHECK (name IN ('housekeeping', 'statistics', 'rebuild')));
INSERT INTO issuing.turns (name) VALUES ('housekeeping'), ('statistics'), ('rebuild');

-- Whether this transaction has the turn from now on. Never waits.
CREATE FUNCTION issuing.take_turn(of_work text) RETURNS bool
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM FROM turns t WHERE t.name = of_work FOR UPDATE SKIP LOCKED;
        RETURN FOUND;
    END
    $$;

-- Who has the turn, as a text; NULL = nobody, or it ended meanwhile.
CREATE FUNCTION issuing.turn_holder(of_work text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT format('process %s, role %s', l.pid, coalesce(a.usename, '?'))
        FROM turns t
        JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = t.xmax AND l.granted
        LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE t.name = of_work
        LIMIT 1
    $$;

-- What keep_rows says when it does not get its turn: that of another worker is over within a pass, so a clock of the
-- house that three passes have not moved is a failure.
CREATE FUNCTION issuing.turn_taken()
    RETURNS TABLE (action text, table_name text, amount int8, detail text, again bool)
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT CASE WHEN now() BETWEEN h.at - interval '90 s' AND h.at + interval '90 s' THEN 'busy' ELSE 'failed' END,
               'all', 0::int8,
               format('no pass since %s UTC; its turn has %s',
                      to_char(h.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
                      coalesce(turn_holder('housekeeping'), 'a session that ended just now')),
               false
        FROM (SELECT coalesce(c.passed_at, (SELECT max(m.applied_at) FROM schema_migration m)) AS at
              FROM house_clock c) h
    $$;

-- Who holds the `_rest` partitions of a table so that none can be made beside them; NULL = nobody.
CREATE FUNCTION issuing.rest_holders(of_parent text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT 'held by ' || string_agg(DISTINCT format('process %s, role %s', l.pid, coalesce(a.usename, '?')), ', ')
        FROM pg_locks l
        LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.relation IN (SELECT c.oid FROM pg_class c
                             WHERE c.relnamespace = 'issuing'::regnamespace
                               AND c.relname IN (of_parent || '_rest',
                                                 replace(of_parent, 'events', 'attempts') || '_rest'))
    $$;

-- For doctor: the last pass, who has the turn, and the plans that are late with who holds their tables.
CREATE FUNCTION issuing.house_state() RETURNS TABLE (passed_at timestamptz, holder text, plans text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT coalesce(c.passed_at, (SELECT max(m.applied_at) FROM schema_migration m)), turn_holder('housekeeping'),
               (SELECT string_agg(format('%s from %s UTC on%s', n.parent,
                                         to_char(n.from_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'),
                                         '; ' || rest_holders(n.parent)), ', ' ORDER BY n.parent)
                FROM partition_plans n
                WHERE now() NOT BETWEEN n.planned_at - interval '1 minute' AND n.planned_at + interval '15 minutes')
        FROM house_clock c
    $$;

-- ---- locks of users ----
-- A user's lock stays an advisory lock: the user has no row. Its key is made with a salt of this database that only the
-- owner and the api's role read, so that no other role can take it beforehand. A lock that is held is seen in pg_locks by
-- everybody. issuing.accept takes its own without a function: calling one that has settings costs a tenth of an accept.
CREATE TABLE issuing.lock_salt (
    one  bool PRIMARY KEY DEFAULT true CHECK (one),
    salt int8 NOT NULL
);
INSERT INTO issuing.lock_salt (salt)
SELECT ('x' || left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 16)
       )::bit(64)::int8;

-- Card numbers that are shown to a user.
CREATE FUNCTION issuing.lock_reveal(user_id text) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended(user_id, s.salt # 1)) FROM lock_salt s;
    END
    $$;

-- The order of a user's events of a type: who ends events takes all locks in sorted order, before any row.
CREATE FUNCTION issuing.lock_orders(types text[], user_ids text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(k.key)
        FROM (SELECT DISTINCT hashtextextended(a.type || ' ' || a.user_id, s.salt # 2) AS key
              FROM unnest(types, user_ids) AS a (type, user_id), lock_salt s ORDER BY 1 OFFSET 0) AS k;
    END
    $$;

-- The claim only tries. For each user, in the order of the array: whether this transaction has the lock now.
CREATE FUNCTION issuing.try_orders(of_type text, user_ids text[]) RETURNS bool[]
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN (SELECT array_agg(pg_try_advisory_xact_lock(hashtextextended(of_type || ' ' || a.user_id, s.salt # 2))
                                 ORDER BY a.n)
                FROM lock_salt s, unnest(user_ids) WITH ORDINALITY AS a (user_id, n));
    END
    $$;

-- issuing.lock_order of 0016_routes.sql, whose locks have a salt.
CREATE OR REPLACE FUNCTION issuing.lock_order(events uuid[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    BEGIN
        IF EXISTS (SELECT FROM routes r WHERE r.is_ordered) THEN
            PERFORM lock_orders(array_agg(e.event_type), array_agg(e.user_id))
            FROM unnest(events) AS a (id)
            JOIN outbox_events e ON e.id = a.id
            JOIN routes r ON r.event_type = e.event_type AND r.is_ordered;
        END IF;
    END
    $$;

-- ---- acceptance ----

-- issuing.accept of 0018_cells.sql, whose lock has a salt.
CREATE OR REPLACE FUNCTION issuing.accept(
    ids uuid[], user_ids text[], keys text[], fingerprints bytea[], payloads text[], traceparents text[],
    limit_count int8, limit_window interval, count_attempts bool, key_retention interval)
RETURNS TABLE (
    verdict    text,        -- accepted, replayed, reused, not_replaceable, limited; moving, elsewhere
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
    barred text[]; -- the verdict of a user who is not here; null = without cells
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.accept needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;

    BEGIN
        IF cardinality(user_ids) = 1 AND array_lower(user_ids, 1) = 1 THEN
            PERFORM pg_advisory_xact_lock(hashtextextended(user_ids[1], s.salt)) FROM lock_salt s;
        ELSE
            -- Two of one user would be judged by one snapshot, and both pass.
            IF (SELECT count(DISTINCT u.user_id) < count(*) FROM unnest(user_ids) AS u (user_id)) THEN
                RAISE EXCEPTION 'a batch of issuing.accept holds a user at most once' USING ERRCODE = '22023';
            END IF;
            PERFORM pg_advisory_xact_lock(l.h)
            FROM (SELECT hashtextextended(u.user_id, s.salt) AS h
                  FROM unnest(user_ids) AS u (user_id), lock_salt s ORDER BY 1 OFFSET 0) AS l;
        END IF;
    EXCEPTION WHEN lock_not_available THEN
        -- Told apart from other locks: only programs of ours can hold this one, while they record a request of the user.
        RAISE EXCEPTION 'another request of this user is being recorded' USING ERRCODE = 'ISBSY';
    END;
    IF EXISTS (SELECT FROM cell_buckets) THEN
        barred := issuing.cell_gate(user_ids);
    END IF;
    t := clock_timestamp();

    RETURN QUERY
    WITH judged AS MATERIALIZED (
        SELECT a.*, k.event_id AS known_id, k.created_at AS known_at,
            least(w.accepted + coalesce(cardinality(w.refused), 0), limit_count) AS counted,
            least(w.oldest, w.refused[1]) AS oldest,
            CASE
                WHEN barred[a.n] IS NOT NULL THEN barred[a.n]
                WHEN k.event_id = a.id THEN 'accepted'
                WHEN k.fingerprint = a.fingerprint THEN 'replayed'
                WHEN k.event_id IS NOT NULL THEN 'reused'
                WHEN a.payload ->> 'replaces' IS NOT NULL
                     AND NOT issuing.is_replaceable(a.user_id, a.payload ->> 'replaces') THEN 'not_replaceable'
                WHEN w.accepted + coalesce(cardinality(w.refused), 0) >= limit_count THEN 'limited'
                ELSE 'accepted'
            END AS verdict
        FROM unnest(ids, user_ids, keys, fingerprints, payloads::jsonb[], traceparents)
            WITH ORDINALITY AS a (id, user_id, key, fingerprint, payload, traceparent, n)
        LEFT JOIN LATERAL (
            SELECT n.* FROM (
                SELECT k.event_id, k.created_at, k.fingerprint FROM idempotency_keys k
                WHERE k.user_id = a.user_id AND k.key = a.key
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
                                   traceparent)
        SELECT j.id, t, t, t, j.user_id, j.key, j.payload, j.traceparent FROM judged j
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

    IF pg_current_xact_id_if_assigned() IS NULL THEN
        PERFORM pg_logical_emit_message(true, 'issuing', '');
    END IF;
END
$$;

-- ---- partitions ----
-- Whatever writes times into DDL has them in UTC: a text such as `11:00 IST` is another time when it is read again.

CREATE OR REPLACE FUNCTION issuing.partition_add(new_parent text, new_from timestamptz, new_to timestamptz) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    SET datestyle = 'ISO, YMD' SET timezone = 'UTC'
    AS $$
    DECLARE
        new_name text := format('%s_%s', new_parent, to_char(new_from AT TIME ZONE 'UTC', 'YYYYMMDD_HH24MISS'));
        -- Room for the version that a claim writes; what is only inserted and dropped needs no vacuum.
        storage text := CASE new_parent
            WHEN 'outbox_events' THEN 'fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05'
            WHEN 'outbox_attempts' THEN 'autovacuum_vacuum_insert_scale_factor = 1'
            WHEN 'operator_actions' THEN 'autovacuum_vacuum_insert_scale_factor = 1'
            ELSE 'autovacuum_enabled = false' END;
        is_by_id bool := new_parent IN ('outbox_events', 'outbox_attempts');
    BEGIN
        EXECUTE format('CREATE TABLE issuing.%I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED)
                        WITH (%s)', new_name, new_parent, storage);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', new_parent, new_name,
                       CASE WHEN is_by_id THEN issuing.uuid7_least(new_from)::text ELSE new_from::text END,
                       CASE WHEN is_by_id THEN issuing.uuid7_least(new_to)::text ELSE new_to::text END);
        INSERT INTO partitions (from_at, to_at, parent, name) VALUES (new_from, new_to, new_parent, new_name);
        IF new_parent = 'outbox_events' THEN
            PERFORM issuing.partition_add('outbox_attempts', new_from, new_to);
        END IF;
    END
    $$;

CREATE OR REPLACE FUNCTION issuing.rest_promise(rest text, from_at timestamptz, to_at timestamptz) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    SET datestyle = 'ISO, YMD' SET timezone = 'UTC'
    AS $$
    DECLARE
        col text := CASE rest WHEN 'outbox_events_rest' THEN 'id' WHEN 'outbox_attempts_rest' THEN 'event_id'
                              WHEN 'idempotency_keys_rest' THEN 'created_at' ELSE 'at' END;
        is_by_id bool := rest IN ('outbox_events_rest', 'outbox_attempts_rest');
    BEGIN
        EXECUTE format('ALTER TABLE %1$I ADD CONSTRAINT rest_promise CHECK (%2$I < %3$L::%5$s OR %2$I >= %4$L::%5$s)
                        NOT VALID', rest, col,
                       CASE WHEN is_by_id THEN issuing.uuid7_least(from_at)::text ELSE from_at::text END,
                       CASE WHEN is_by_id THEN issuing.uuid7_least(to_at)::text ELSE to_at::text END,
                       CASE WHEN is_by_id THEN 'uuid' ELSE 'timestamptz' END);
    END
    $$;

-- The retention in force, raised to what is wanted. Where the row cannot be written, what is wanted holds for this
-- pass.
CREATE FUNCTION issuing.retention_in_force(which text, wanted interval) RETURNS interval
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN issuing.retention_at_least(which, wanted);
    EXCEPTION WHEN lock_not_available THEN
        RETURN (SELECT greatest(r.kept, least(wanted, interval '36600 days')) FROM retentions r WHERE r.name = which);
    END
    $$;

-- Takes back the plans; it waits for their locks as long as a request may wait. Whoever is refused by `rest_promise`
-- calls it and tries again: nobody else would while no worker is alive, or where the caller's clock is a day ahead.
CREATE FUNCTION issuing.withdraw_plans() RETURNS int8
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET lock_timeout = '2s'
    AS $$
    DECLARE
        of_parent text;
        withdrawn int8 := 0;
    BEGIN
        PERFORM set_config('synchronous_commit', 'local', true);
        FOR of_parent IN
            SELECT n.parent FROM partition_plans n ORDER BY n.parent
        LOOP
            BEGIN
                PERFORM issuing.plan_end(of_parent);
                withdrawn := withdrawn + 1;
            EXCEPTION WHEN OTHERS THEN
                RAISE WARNING 'issuing: the plan of % stays: %; %', of_parent, SQLERRM, issuing.rest_holders(of_parent);
            END;
        END LOOP;
        RETURN withdrawn;
    END
    $$;

-- Before the caller's transaction records events: a plan whose range has begun, because no worker was there to take it
-- back, would refuse them. The locks are held until that transaction ends, whose commit stays as durable as it was.
CREATE FUNCTION issuing.make_room() RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        durability text := current_setting('synchronous_commit');
    BEGIN
        IF EXISTS (SELECT FROM partition_plans n
                   WHERE n.from_at < clock_timestamp() + interval '1 minute' AND n.to_at > clock_timestamp()) THEN
            PERFORM withdraw_plans();
            PERFORM set_config('synchronous_commit', durability, true);
        END IF;
    END
    $$;

-- Accepts a request and takes it back. NULL = that worked; else the SQLSTATE and the message of what refused it. It
-- runs with the caller's rights, and leaves nothing.
CREATE FUNCTION issuing.try_accept() RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM issuing.accept(ARRAY[gen_random_uuid()], ARRAY['issuing.try_accept'], ARRAY['try'], ARRAY[sha256('')],
                               ARRAY['{"kind": "new"}'], ARRAY[NULL], 1, interval '1 s', false, interval '1 s');
        RAISE EXCEPTION 'undo' USING ERRCODE = 'ISUND';
    EXCEPTION
        WHEN SQLSTATE 'ISUND' THEN
            RETURN NULL;
        WHEN OTHERS THEN
            RETURN SQLSTATE || ' ' || SQLERRM;
    END
    $$;

-- issuing.keep_rows of 0016_routes.sql; what cannot be written does not keep the rest.
CREATE OR REPLACE FUNCTION issuing.keep_rows(key_retention interval, limit_window interval, event_retention interval)
RETURNS TABLE (
    action text,     -- expired, postponed, failed; busy: another worker is at it
    table_name text,
    amount int8,     -- rows deleted
    detail text,
    again bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        kind record;
        p partitions;
        t timestamptz;
        keys_kept interval;
        has_open bool;
        open_ids uuid[];
        gone int8;
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.keep_rows needs READ COMMITTED, not %', current_setting('transaction_isolation')
                USING ERRCODE = '25001';
        END IF;
        IF NOT issuing.take_turn('housekeeping') THEN
            RETURN QUERY SELECT * FROM issuing.turn_taken();
            RETURN;
        END IF;
        PERFORM set_config('synchronous_commit', 'local', true);
        PERFORM set_config('lock_timeout', '1s', true);

        BEGIN
            PERFORM issuing.keep_clock();
        EXCEPTION WHEN OTHERS THEN
            RETURN QUERY SELECT 'failed', 'house_clock', 0::int8, SQLERRM, false;
        END;
        t := issuing.believed(now());
        keys_kept := issuing.retention_in_force('keys', key_retention);

        FOR kind IN
            SELECT * FROM (VALUES
                ('idempotency_keys', 'idempotency_keys_rest', keys_kept,
                 'r.created_at < $1
                  AND NOT EXISTS (SELECT FROM outbox_events e
                                  WHERE e.id = r.event_id
                                    AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                                         OR coalesce(e.completed_at, e.updated_at) >= $1))'),
                ('rate_limit_log', 'rate_limit_log_rest', issuing.retention_in_force('limits', limit_window),
                 'r.at < $1'),
                -- created_at as well: a worker may write updated_at, and whoever has broken into one makes no event
                -- older.
                ('outbox_events', 'outbox_events_rest',
                 greatest(issuing.retention_in_force('events', event_retention), keys_kept),
                 'r.due_at IS NULL AND r.failed_at IS NULL AND r.updated_at < $1 AND r.created_at < $1'),
                ('operator_actions', 'operator_actions_rest',
                 (SELECT r.kept FROM retentions r WHERE r.name = 'audit'), 'r.at < $1'),
                ('number_reveals', 'number_reveals', interval '1 hour', 'r.last_at < $1'))
                AS v (parent, rest, kept, condition)
        LOOP
            BEGIN
                gone := issuing.rest_expire(kind.rest, kind.condition, t - kind.kept);
                RETURN QUERY SELECT 'expired', kind.parent, gone, NULL, gone >= 1000 WHERE gone > 0;
            EXCEPTION WHEN OTHERS THEN
                RETURN QUERY SELECT 'failed', kind.parent, 0::int8, SQLERRM, false;
            END;
        END LOOP;

        -- What was settled in a time to come was settled by a clock that was ahead: it is judged anew.
        BEGIN
            UPDATE partitions q SET settled_at = NULL, still_open = '{}' WHERE q.settled_at > t;
        EXCEPTION WHEN OTHERS THEN
            RETURN QUERY SELECT 'failed', 'partitions', 0::int8, SQLERRM, false;
        END;

        -- Nothing of its time is at work: the end of its life is counted from now. Not before all that was begun in its
        -- time has committed or is over (the roles' statement_timeout).
        FOR p IN
            SELECT q.* FROM partitions q
            WHERE q.settled_at IS NULL AND q.to_at < t - interval '1 minute' AND q.parent <> 'outbox_attempts'
            ORDER BY q.to_at
        LOOP
            BEGIN
                CASE p.parent
                WHEN 'outbox_events' THEN
                    EXECUTE format(
                        'SELECT EXISTS (SELECT FROM (SELECT %2$L UNION ALL SELECT r.event_type FROM routes r) t (type)
                                        JOIN %1$I e ON e.event_type = t.type WHERE e.due_at IS NOT NULL),
                                ARRAY (SELECT e.id FROM %1$I e
                                       WHERE e.due_at IS NOT NULL OR e.failed_at IS NOT NULL LIMIT 10001)',
                        p.name, 'CARD_ISSUE') INTO has_open, open_ids;
                WHEN 'idempotency_keys' THEN
                    SELECT EXISTS (SELECT FROM outbox_events e
                                   WHERE e.due_at IS NOT NULL AND e.event_type = 'CARD_ISSUE'
                                     AND e.idempotency_key IS NOT NULL
                                     AND e.created_at >= p.from_at AND e.created_at < p.to_at),
                           ARRAY (SELECT e.id FROM outbox_events e
                                  WHERE e.failed_at IS NOT NULL AND e.idempotency_key IS NOT NULL
                                    AND e.created_at >= p.from_at AND e.created_at < p.to_at
                                  LIMIT 10001)
                    INTO has_open, open_ids;
                ELSE
                    has_open := false;
                    open_ids := '{}';
                END CASE;
                IF cardinality(open_ids) > 10000 THEN
                    RETURN QUERY SELECT 'postponed', p.parent, 0::int8,
                                        format('%s holds more than 10000 rows that must stay', p.name), false;
                ELSIF NOT has_open THEN
                    UPDATE partitions q SET settled_at = t, still_open = open_ids WHERE q.name = p.name;
                END IF;
            EXCEPTION WHEN OTHERS THEN
                RETURN QUERY SELECT 'failed', p.parent, 0::int8, format('%s: %s', p.name, SQLERRM), false;
            END;
        END LOOP;
    END
    $$;

-- issuing.keep_house of 0011_limits.sql; a range that is checked first begins after a day.
CREATE OR REPLACE FUNCTION issuing.keep_house(
    key_retention interval, limit_window interval, event_retention interval,
    least_length interval) -- no partition is shorter; an hour to a day
RETURNS TABLE (
    action text,     -- created, dropped, planned (a large `_rest` is to be checked first), postponed, failed; busy
    table_name text,
    amount int8,     -- rows moved to the `_rest` partition
    detail text,
    again bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        shortest interval := least(greatest(least_length, interval '1 hour'), interval '1 day');
        -- Whatever retention a caller asks for, a partition settles within the year, and a retention that the owner
        -- shortens is short again.
        longest constant interval := interval '366 days';
        keys_kept interval;
        events_kept interval;
        limits_kept interval;
        audit_kept interval := (SELECT r.kept FROM retentions r WHERE r.name = 'audit');
        kind record;
        p partitions;
        n partition_plans;
        t timestamptz;
        is_steady bool;
        is_overdue bool;
        is_large bool;
        distance interval;
        gone int8;
        end_at timestamptz;
        next_end_at timestamptz;
        alien timestamptz;
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.keep_house needs READ COMMITTED, not %', current_setting('transaction_isolation')
                USING ERRCODE = '25001';
        END IF;
        IF NOT issuing.take_turn('housekeeping') THEN
            RETURN QUERY SELECT 'busy', NULL, 0::int8, NULL, false;
            RETURN;
        END IF;
        PERFORM set_config('synchronous_commit', 'local', true);
        keys_kept := issuing.retention_in_force('keys', key_retention);
        limits_kept := issuing.retention_in_force('limits', limit_window);
        events_kept := greatest(issuing.retention_in_force('events', event_retention), keys_kept);
        t := issuing.believed(now());
        -- Several passes over five minutes agree what the time is, this one included.
        is_steady := (SELECT now() BETWEEN h.steady_from + interval '5 minutes' AND h.passed_at + interval '5 minutes'
                      FROM house_clock h);

        -- A lock that is not there at once is not waited for: everybody would wait behind us.
        PERFORM set_config('lock_timeout', '30ms', true);
        FOR n IN SELECT q.* FROM partition_plans q LOOP
            is_overdue := now() NOT BETWEEN n.planned_at - interval '1 minute' AND n.planned_at + interval '12 minutes';
            IF is_overdue OR now() > n.planned_at + interval '10 minutes'
               OR n.from_at < now() + interval '12 hours' THEN
                BEGIN
                    -- The nearer the range, the longer it waits: what comes behind this lock waits as well.
                    PERFORM set_config('lock_timeout',
                                       CASE WHEN n.from_at < now() + interval '12 hours' THEN '1s' ELSE '30ms' END,
                                       true);
                    PERFORM issuing.plan_end(n.parent);
                    RETURN QUERY SELECT 'failed', n.parent, 0::int8,
                                        format('%s_rest could not be checked in time', n.parent), false;
                EXCEPTION
                    WHEN lock_not_available THEN
                        RETURN QUERY SELECT CASE WHEN is_overdue THEN 'failed' ELSE 'postponed' END, n.parent, 0::int8,
                                            concat_ws('; ', SQLERRM, issuing.rest_holders(n.parent)), false;
                    WHEN OTHERS THEN
                        RETURN QUERY SELECT 'failed', n.parent, 0::int8, SQLERRM, false;
                END;
                PERFORM set_config('lock_timeout', '30ms', true);
            END IF;
        END LOOP;

        FOR kind IN
            SELECT * FROM (VALUES
                ('outbox_events',    least(greatest(events_kept / 6::float8, shortest), longest), events_kept),
                ('idempotency_keys', least(greatest(keys_kept, shortest), longest),               keys_kept),
                ('rate_limit_log',   least(greatest(limits_kept, shortest), longest),             limits_kept),
                ('operator_actions', least(greatest(audit_kept / 12::float8, shortest), longest), audit_kept))
                AS v (parent, length, retention)
        LOOP
            BEGIN
                is_large := pg_relation_size((kind.parent || '_rest')::regclass) > 8388608
                            OR kind.parent = 'outbox_events'
                               AND pg_relation_size('outbox_attempts_rest'::regclass) > 8388608;
                -- Partitions end so far ahead that the next one begins at least `distance` from now.
                distance := CASE WHEN is_large THEN interval '1 day 15 minutes' ELSE interval '1 minute' END;
                -- One that a clock far ahead made is not what comes next.
                end_at := (SELECT max(q.to_at) FROM partitions q
                           WHERE q.parent = kind.parent
                             AND q.from_at <= now() + distance + kind.length + kind.length);
                SELECT q.* INTO n FROM partition_plans q WHERE q.parent = kind.parent;
                IF n.is_checked THEN
                    PERFORM issuing.partition_add(kind.parent, n.from_at, n.to_at);
                    PERFORM issuing.plan_end(kind.parent);
                    RETURN QUERY SELECT 'created', kind.parent, 0::int8, n.from_at::text, true;
                    RETURN;
                ELSIF n.parent IS NULL
                      AND (end_at IS NULL
                           OR end_at < now() + kind.length
                                       + CASE WHEN is_large THEN interval '1 day' ELSE interval '0' END)
                      AND (is_steady OR NOT EXISTS (SELECT FROM partitions q WHERE q.parent = kind.parent)) THEN
                    -- After a pause without a worker there are rows of now in the `_rest` partition: the new one begins
                    -- after them. Where its range is to be checked first it begins after a day: until the check is done
                    -- or taken back, a row of the range is refused.
                    end_at := greatest(end_at, date_trunc('second', now()) + distance);
                    next_end_at := end_at + kind.length;
                    -- An id of another kind may say a time to come, and where such a row is in `_rest` no partition can
                    -- be: cut around it.
                    IF kind.parent = 'outbox_events' THEN
                        FOR alien IN
                            SELECT issuing.uuid7_time(e.id) FROM outbox_events_rest e
                            WHERE e.id >= issuing.uuid7_least(end_at) AND e.id < issuing.uuid7_least(next_end_at)
                            ORDER BY e.id
                        LOOP
                            IF alien >= end_at + shortest THEN
                                next_end_at := alien;
                                EXIT;
                            END IF;
                            end_at := alien + interval '1 millisecond';
                        END LOOP;
                    END IF;
                    next_end_at := least(greatest(next_end_at, end_at + shortest),
                                         (SELECT min(q.from_at) FROM partitions q
                                          WHERE q.parent = kind.parent AND q.from_at > end_at));
                    IF is_large THEN
                        PERFORM issuing.rest_promise(kind.parent || '_rest', end_at, next_end_at);
                        IF kind.parent = 'outbox_events' THEN
                            PERFORM issuing.rest_promise('outbox_attempts_rest', end_at, next_end_at);
                        END IF;
                        INSERT INTO partition_plans (parent, from_at, to_at, planned_at)
                        VALUES (kind.parent, end_at, next_end_at, now());
                        RETURN QUERY SELECT 'planned', kind.parent, 0::int8, end_at::text, true;
                    ELSE
                        PERFORM issuing.partition_add(kind.parent, end_at, next_end_at);
                        RETURN QUERY SELECT 'created', kind.parent, 0::int8, end_at::text, true;
                    END IF;
                    RETURN;
                END IF;
            EXCEPTION
                WHEN lock_not_available OR check_violation THEN
                    RETURN QUERY SELECT CASE WHEN is_steady AND end_at < now() + distance + kind.length / 2
                                                  THEN 'failed'
                                             ELSE 'postponed' END,
                                        kind.parent, 0::int8,
                                        concat_ws('; ', SQLERRM, issuing.rest_holders(kind.parent)), false;
                    CONTINUE; -- who holds the table now would be in the way of a drop as well
                WHEN OTHERS THEN
                    RETURN QUERY SELECT 'failed', kind.parent, 0::int8, SQLERRM, false;
            END;
            -- One that cannot be dropped does not keep the others.
            FOR p IN
                SELECT q.* FROM partitions q
                WHERE q.parent = kind.parent AND q.settled_at < t - kind.retention
                ORDER BY q.to_at LIMIT 16
            LOOP
                BEGIN
                    gone := issuing.partition_drop(p.name, t - kind.retention);
                    RETURN QUERY SELECT 'dropped', kind.parent, gone, p.name, true;
                    RETURN;
                EXCEPTION
                    WHEN lock_not_available THEN
                        RETURN QUERY SELECT 'postponed', kind.parent, 0::int8, SQLERRM, false;
                        EXIT;
                    WHEN program_limit_exceeded THEN
                        RETURN QUERY SELECT 'postponed', kind.parent, 0::int8, SQLERRM, false;
                    WHEN OTHERS THEN
                        RETURN QUERY SELECT 'failed', kind.parent, 0::int8, format('%s: %s', p.name, SQLERRM), false;
                END;
            END LOOP;
        END LOOP;
    END
    $$;

CREATE OR REPLACE FUNCTION issuing.check_rest()
RETURNS TABLE (action text, table_name text, amount int8, detail text, again bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    #variable_conflict use_column
    DECLARE
        n partition_plans;
    BEGIN
        IF NOT EXISTS (SELECT FROM partition_plans q WHERE NOT q.is_checked)
           OR NOT issuing.take_turn('housekeeping') THEN
            RETURN;
        END IF;
        PERFORM set_config('synchronous_commit', 'local', true);
        FOR n IN SELECT q.* FROM partition_plans q WHERE NOT q.is_checked ORDER BY q.planned_at LIMIT 1 LOOP
            BEGIN
                -- Nobody who reads or writes rows waits behind this lock; a vacuum at work gives way after
                -- deadlock_timeout.
                PERFORM set_config('lock_timeout', '3s', true);
                EXECUTE format('ALTER TABLE %I VALIDATE CONSTRAINT rest_promise', n.parent || '_rest');
                IF n.parent = 'outbox_events' THEN
                    ALTER TABLE outbox_attempts_rest VALIDATE CONSTRAINT rest_promise;
                END IF;
                UPDATE partition_plans q SET is_checked = true WHERE q.parent = n.parent;
                RETURN QUERY SELECT 'checked', n.parent, 0::int8, n.from_at::text, true;
            EXCEPTION
                WHEN lock_not_available THEN
                    RETURN QUERY SELECT 'postponed', n.parent, 0::int8, SQLERRM, false;
                WHEN OTHERS THEN
                    RETURN QUERY SELECT 'failed', n.parent, 0::int8, SQLERRM, false;
                    -- A row of the range was written before the promise: the next plan goes around it. It is taken back
                    -- by keep_house, which does not wait for the lock.
                    UPDATE partition_plans q SET planned_at = '-infinity' WHERE q.parent = n.parent;
            END;
        END LOOP;
    END
    $$;

-- ---- statistics: issuing.fold_statistics and rebuild_statistics of 0017_ends.sql, in their turn ----

CREATE OR REPLACE FUNCTION issuing.fold_statistics(most int8)
RETURNS TABLE (
    folded int8,   -- changes that were moved
    refused int8,  -- changes that were marked
    has_more bool) -- another call finds more
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        places tid[];
        place tid;
    BEGIN
        folded := 0;
        refused := 0;
        -- Without a change there is nothing to write, and the turn would be a write.
        IF EXISTS (SELECT FROM statistics_changes c WHERE c.refused IS NULL) AND take_turn('statistics') THEN
            places := ARRAY(SELECT c.ctid FROM statistics_changes c WHERE c.refused IS NULL LIMIT most);
        END IF;
        BEGIN
            folded := fold_changes(places);
        EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
            FOREACH place IN ARRAY places LOOP
                BEGIN
                    folded := folded + fold_changes(ARRAY[place]);
                EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
                    UPDATE statistics_changes c SET refused = left(SQLERRM, 200) WHERE c.ctid = place;
                    refused := refused + 1;
                END;
            END LOOP;
        END;
        has_more := folded + refused >= most;
        RETURN NEXT;
    END
    $$;

CREATE OR REPLACE FUNCTION issuing.rebuild_statistics(
    since_us int8, -- microseconds since 1970: hours that begin before stay as they are; null = all
    actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, corrected int8) -- `busy`; else how many rows of the statistics were wrong
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    #variable_conflict use_column
    DECLARE
        since timestamptz := coalesce(timestamptz 'epoch' + since_us * interval '1 microsecond', '-infinity');
    BEGIN
        PERFORM check_who(actor, os_user, sudo_user, why);
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.rebuild_statistics needs READ COMMITTED, not %',
                current_setting('transaction_isolation') USING ERRCODE = '25001';
        END IF;
        IF NOT take_turn('rebuild') THEN
            refused := 'busy';
            RETURN NEXT;
            RETURN;
        END IF;
        WITH forgotten AS (
            DELETE FROM statistics_changes c WHERE c.refused IS NOT NULL AND c.ended_at >= since - interval '1 hour'
        ), missing AS (
            INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, below_ms, count, sum_ms)
            SELECT d.hour, d.event_type, d.status, d.reason_code, d.below_ms, sum(d.count)::int8, sum(d.sum_ms)::int8
            FROM (SELECT n.hour, n.event_type, n.status, n.reason_code, n.below_ms, n.count::numeric, n.sum_ms::numeric
                  FROM count_events(since) n
                  UNION ALL
                  SELECT s.hour, s.event_type, s.status, s.reason_code, s.below_ms,
                         -s.count::numeric, -s.sum_ms::numeric
                  FROM outbox_statistics s WHERE s.hour >= since
                  UNION ALL
                  SELECT w.hour, w.event_type, w.status, w.reason_code, w.below_ms,
                         -w.count::numeric, -w.sum_ms::numeric
                  FROM statistics_waiting w WHERE w.hour >= since) d
            GROUP BY 1, 2, 3, 4, 5
            HAVING sum(d.count) <> 0 OR sum(d.sum_ms) <> 0
            RETURNING 1
        )
        SELECT count(*) INTO corrected FROM missing;
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, after)
        VALUES (actor, os_user, sudo_user, 'rebuild_statistics', why,
                jsonb_build_object('since', CASE WHEN since_us IS NOT NULL THEN since END, 'corrected', corrected));
        -- The caller wants to see the result. A worker folds what is left after these.
        FOR i IN 1..100 LOOP
            EXIT WHEN NOT (SELECT f.has_more FROM fold_statistics(1000) f);
        END LOOP;
        RETURN NEXT;
    END
    $$;

DO $$
DECLARE
    f regprocedure;
BEGIN
    FOREACH f IN ARRAY ARRAY['issuing.take_turn(text)', 'issuing.turn_holder(text)', 'issuing.turn_taken()',
                             'issuing.rest_holders(text)', 'issuing.house_state()', 'issuing.lock_reveal(text)',
                             'issuing.lock_orders(text[], text[])', 'issuing.try_orders(text, text[])',
                             'issuing.retention_in_force(text, interval)', 'issuing.withdraw_plans()',
                             'issuing.make_room()']::regprocedure[]
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
    END LOOP;
END
$$;

-- A new database has two hours of rate_limit_log and a day of keys ahead, which the first pass of a worker lengthens. An
-- api that runs for days before there is a worker would fill `_rest` instead.
DO $$
DECLARE
    of_parent text;
    end_at timestamptz;
BEGIN
    FOREACH of_parent IN ARRAY ARRAY['idempotency_keys', 'rate_limit_log'] LOOP
        end_at := (SELECT max(p.to_at) FROM issuing.partitions p WHERE p.parent = of_parent);
        IF end_at > now() THEN
            PERFORM issuing.partition_add(of_parent, end_at, end_at + interval '7 days');
        END IF;
    END LOOP;
END
$$;
