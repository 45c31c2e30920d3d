-- Partitions: the next ones are made before they are needed, old ones are dropped, one in a call of run_housekeeping.
-- Each takes ACCESS EXCLUSIVE on its table (made: on the `_default` partition only) for a moment, and is given up and
-- tried again later rather than waited for. 14_housekeeping.sql has the rest of a pass.

-- Who holds the `_default` partitions of a table so that none can be made beside them; NULL = nobody.
CREATE OR REPLACE FUNCTION issuing.default_holders(of_parent text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT 'held by ' || string_agg(DISTINCT format('process %s, role %s', l.pid, coalesce(a.usename, '?')), ', ')
    FROM pg_locks l
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.relation IN (SELECT c.oid FROM pg_class c
                         WHERE c.relnamespace = 'issuing'::regnamespace
                           AND c.relname IN (of_parent || '_default',
                                             replace(of_parent, 'events', 'attempts') || '_default'))
$$;

-- For doctor: the last pass, who holds the housekeeping lock, and the plans that are late with who holds their tables.
CREATE OR REPLACE FUNCTION issuing.housekeeping_state() RETURNS TABLE (passed_at timestamptz, holder text, plans text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT coalesce(c.passed_at, (SELECT max(m.applied_at) FROM schema_migration m)), job_lock_holder('housekeeping'),
           (SELECT string_agg(format('%s from %s UTC on%s', n.parent,
                                     to_char(n.from_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'),
                                     '; ' || default_holders(n.parent)), ', ' ORDER BY n.parent)
            FROM partition_plans n
            WHERE now() NOT BETWEEN n.planned_at - interval '1 minute' AND n.planned_at + interval '15 minutes')
    FROM housekeeping_clock c
$$;

-- Ends the plan of a table, and takes its promise back.
CREATE OR REPLACE FUNCTION issuing.plan_end(of_parent text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT IF EXISTS default_promise', of_parent || '_default');
    IF of_parent = 'outbox_events' THEN
        ALTER TABLE outbox_attempts_default DROP CONSTRAINT IF EXISTS default_promise;
    END IF;
    DELETE FROM partition_plans n WHERE n.parent = of_parent;
END
$$;

-- The promise of a plan: a constraint that refuses rows of this range in a `_default` partition. Rows that are there
-- are checked later (check_default_partitions), so that it locks the table for a moment only.
CREATE OR REPLACE FUNCTION issuing.default_promise(rest text, from_at timestamptz, to_at timestamptz) RETURNS void
-- guard: a promise is made in UTC whatever the session says
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
SET datestyle = 'ISO, YMD' SET timezone = 'UTC'
AS $$
DECLARE
    col text := CASE rest WHEN 'outbox_events_default' THEN 'id' WHEN 'outbox_attempts_default' THEN 'event_id'
                          WHEN 'idempotency_keys_default' THEN 'created_at' ELSE 'at' END;
    is_by_id bool := rest IN ('outbox_events_default', 'outbox_attempts_default');
BEGIN
    EXECUTE format('ALTER TABLE %1$I ADD CONSTRAINT default_promise CHECK (%2$I < %3$L::%5$s OR %2$I >= %4$L::%5$s)
                    NOT VALID', rest, col,
                   CASE WHEN is_by_id THEN issuing.uuid7_least(from_at)::text ELSE from_at::text END,
                   CASE WHEN is_by_id THEN issuing.uuid7_least(to_at)::text ELSE to_at::text END,
                   CASE WHEN is_by_id THEN 'uuid' ELSE 'timestamptz' END);
END
$$;

-- Withdraws the plans whose range begins before that time; waits for their locks as long as a request may wait. An api
-- withdraws all plans when `default_promise` refuses its row, and now and then those that are about to begin: no worker
-- may be alive to do it, or the api's clock may be a day ahead.
CREATE OR REPLACE FUNCTION issuing.withdraw_plans(before timestamptz) RETURNS int8
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET lock_timeout = '2s'
AS $$
DECLARE
    of_parent text;
    withdrawn int8 := 0;
BEGIN
    PERFORM set_config('synchronous_commit', 'local', true);
    FOR of_parent IN
        SELECT n.parent FROM partition_plans n WHERE n.from_at < before ORDER BY n.parent
    LOOP
        BEGIN
            -- guard: whoever a plan refuses withdraws it
            PERFORM issuing.plan_end(of_parent);
            withdrawn := withdrawn + 1;
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'issuing: the plan of % stays: %; %', of_parent, SQLERRM, issuing.default_holders(of_parent);
        END;
    END LOOP;
    RETURN withdrawn;
END
$$;

-- Makes one partition; of the events, with that of their attempts. Times in DDL are written in UTC, because a text such
-- as `11:00 IST` is another time when it is read again.
CREATE OR REPLACE FUNCTION issuing.partition_add(new_parent text, new_from timestamptz, new_to timestamptz) RETURNS void
-- guard: a partition is made in UTC whatever the session says
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
SET datestyle = 'ISO, YMD' SET timezone = 'UTC'
AS $$
DECLARE
    new_name text := format('%s_%s', new_parent, to_char(new_from AT TIME ZONE 'UTC',
                                                                      -- guard: no log takes a name for a card number
                                                                      'YYYYMMDD"t"HH24MISS'));
    -- More than half of a page stays free for the versions that claims write. Rows that are only inserted and dropped
    -- need no vacuum.
    storage text := CASE new_parent
        WHEN 'outbox_events' THEN 'fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05'
        WHEN 'outbox_attempts' THEN 'autovacuum_vacuum_insert_scale_factor = 1'
        WHEN 'operator_actions' THEN 'autovacuum_vacuum_insert_scale_factor = 1'
        ELSE 'autovacuum_enabled = false' END;
    is_by_id bool := new_parent IN ('outbox_events', 'outbox_attempts');
BEGIN
    -- guard: a page keeps free space for what a claim writes
    EXECUTE format('CREATE TABLE issuing.%I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED)
                    WITH (%s)', new_name, new_parent, storage);
    IF new_parent IN ('rate_limit_log', 'operator_actions') THEN
        -- Without a key: else no replication by rows takes it.
        EXECUTE format('ALTER TABLE issuing.%I REPLICA IDENTITY FULL', new_name);
    END IF;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', new_parent, new_name,
                   CASE WHEN is_by_id THEN issuing.uuid7_least(new_from)::text ELSE new_from::text END,
                   CASE WHEN is_by_id THEN issuing.uuid7_least(new_to)::text ELSE new_to::text END);
    INSERT INTO partitions (from_at, to_at, parent, name) VALUES (new_from, new_to, new_parent, new_name);
    IF new_parent = 'outbox_events' THEN
        PERFORM issuing.partition_add('outbox_attempts', new_from, new_to);
    END IF;
END
$$;

-- Drops one partition. What must stay moves to the `_default` partition first: of events the unfinished and the FAILED
-- ones, and those that were such when it was settled and ended since `before`, with their attempts; the keys of such
-- events. Returns how many rows moved; raises program_limit_exceeded, and does nothing, if they are many. Only under
-- READ COMMITTED do the statements after the lock see all that was written before it.
CREATE OR REPLACE FUNCTION issuing.partition_drop(old_name text, before timestamptz) RETURNS int8
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    old partitions := (SELECT p FROM partitions p WHERE p.name = old_name);
    attempts text := (SELECT p.name FROM partitions p WHERE p.parent = 'outbox_attempts' AND p.from_at = old.from_at);
    columns text;
    kept uuid[];
    moved int8 := 0;
BEGIN
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', old.parent, old.name);
    CASE old.parent
    WHEN 'outbox_events' THEN
        SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO columns
        FROM pg_attribute a
        WHERE a.attrelid = 'outbox_events'::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';
        -- guard: the drop of a partition keeps what is open
        EXECUTE format('SELECT ARRAY (SELECT e.id FROM %I e
                                      WHERE e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                                         OR e.id = ANY ($1) AND coalesce(e.completed_at, e.updated_at) >= $2
                                      LIMIT 10001)', old.name) INTO kept USING old.still_open, before;
        -- Rows that move are not new, so no trigger may check them again, or refuse them. DETACH has locked `_default`
        -- already.
        -- guard: an event that moves is not judged as a new one
        ALTER TABLE outbox_events_default DISABLE TRIGGER USER;
        EXECUTE format('INSERT INTO outbox_events_default (%s) SELECT %s FROM %I WHERE id = ANY ($1)', columns, columns,
            old.name) USING kept;
        GET DIAGNOSTICS moved = ROW_COUNT;
        ALTER TABLE outbox_events_default ENABLE TRIGGER USER;
        EXECUTE format('ALTER TABLE outbox_attempts DETACH PARTITION %I', attempts);
        EXECUTE format('INSERT INTO outbox_attempts SELECT a.* FROM %I a WHERE a.event_id = ANY ($1)',
            attempts) USING kept;
        EXECUTE format('DROP TABLE %I', attempts);
        DELETE FROM partitions p WHERE p.name = attempts;
    WHEN 'idempotency_keys' THEN
        -- guard: the drop of a partition keeps the keys of what is open
        EXECUTE format('INSERT INTO idempotency_keys
                        SELECT k.* FROM outbox_events e
                        JOIN %I k ON k.user_id = e.user_id AND k.key = e.idempotency_key
                        WHERE e.created_at < $3 AND k.event_id = e.id
                          AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                               OR e.id = ANY ($1) AND coalesce(e.completed_at, e.updated_at) >= $2)
                        LIMIT 10001', old.name) USING old.still_open, before, old.to_at;
        GET DIAGNOSTICS moved = ROW_COUNT;
    ELSE
        NULL; -- a try that no window counts any more
    END CASE;
    IF moved > 10000 THEN
        RAISE program_limit_exceeded USING MESSAGE = format('%s holds more than 10000 rows that must stay', old.name);
    END IF;
    EXECUTE format('DROP TABLE %I', old.name);
    DELETE FROM partitions p WHERE p.name = old.name;
    RETURN moved;
END
$$;

-- Withdraws the plans that are late, or whose range is near: until then a row of the range is refused.
CREATE OR REPLACE FUNCTION issuing.take_plans_back()
RETURNS SETOF issuing.pass_row
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp -- and what run_housekeeping sets
AS $$
DECLARE
    n partition_plans;
    is_overdue bool;
BEGIN
    FOR n IN SELECT q.* FROM partition_plans q LOOP
        is_overdue := now() NOT BETWEEN n.planned_at - interval '1 minute' AND n.planned_at + interval '12 minutes';
        -- guard: a plan that is not done in time is taken back
        IF is_overdue OR now() > n.planned_at + interval '10 minutes'
           OR n.from_at < now() + interval '12 hours' THEN
            BEGIN
                -- The nearer the range, the longer it waits, because statements behind this lock wait as well.
                PERFORM set_config('lock_timeout',
                                   CASE WHEN n.from_at < now() + interval '12 hours' THEN '1s' ELSE '30ms' END, true);
                PERFORM issuing.plan_end(n.parent);
                RETURN QUERY SELECT 'failed', n.parent, 0::int8,
                                    format('%s_default could not be checked in time', n.parent), false;
            EXCEPTION
                WHEN lock_not_available THEN
                    RETURN QUERY SELECT CASE WHEN is_overdue THEN 'failed' ELSE 'postponed' END, n.parent, 0::int8,
                                        concat_ws('; ', SQLERRM, issuing.default_holders(n.parent)), false;
                WHEN OTHERS THEN
                    RETURN QUERY SELECT 'failed', n.parent, 0::int8, SQLERRM, false;
            END;
            PERFORM set_config('lock_timeout', '30ms', true);
        END IF;
    END LOOP;
END
$$;

-- The range of a table's next partition: it begins at `least_from`, or later, and is not shorter than `shortest`.
CREATE OR REPLACE FUNCTION issuing.next_range(
    of_parent text, least_from timestamptz, length interval, shortest interval,
    OUT new_from timestamptz, OUT new_to timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp -- and what run_housekeeping sets
AS $$
DECLARE
    alien timestamptz;
BEGIN
    new_from := least_from;
    new_to := least_from + length;
    -- An id of another kind may contain a time in the future. While `_default` has such a row, no partition can cover
    -- it, so the range is cut before or after it.
    IF of_parent = 'outbox_events' THEN
        FOR alien IN
            SELECT issuing.uuid7_time(e.id) FROM outbox_events_default e
            WHERE e.id >= issuing.uuid7_least(new_from) AND e.id < issuing.uuid7_least(new_to)
            ORDER BY e.id
        LOOP
            IF alien >= new_from + shortest THEN
                new_to := alien;
                EXIT;
            END IF;
            new_from := alien + interval '1 millisecond';
        END LOOP;
    END IF;
    new_to := least(greatest(new_to, new_from + shortest),
                    (SELECT min(q.from_at) FROM partitions q WHERE q.parent = of_parent AND q.from_at > new_from));
END
$$;

-- Makes a partition of this range, or plans it if `_default` is large. Until the plan is checked or withdrawn, a row of
-- the range is refused.
CREATE OR REPLACE FUNCTION issuing.begin_partition(of_parent text, new_from timestamptz, new_to timestamptz,
                                                   is_large bool) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp -- and what run_housekeeping sets
AS $$
BEGIN
    IF NOT is_large THEN
        PERFORM issuing.partition_add(of_parent, new_from, new_to);
        RETURN 'created';
    END IF;
    PERFORM issuing.default_promise(of_parent || '_default', new_from, new_to);
    IF of_parent = 'outbox_events' THEN
        PERFORM issuing.default_promise('outbox_attempts_default', new_from, new_to);
    END IF;
    INSERT INTO partition_plans (parent, from_at, to_at, planned_at) VALUES (of_parent, new_from, new_to, now());
    RETURN 'planned';
END
$$;

-- Makes or plans the next partition of a table, if it is time to; no row = it is not.
CREATE OR REPLACE FUNCTION issuing.make_next(of_parent text, length interval, shortest interval, is_steady bool)
RETURNS TABLE (
    action text,  -- created, planned; postponed, failed
    detail text,
    is_held bool) -- the table is locked: who holds it would be in the way of a drop as well
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp -- and what run_housekeeping sets
AS $$
#variable_conflict use_column
DECLARE
    n partition_plans;
    is_large bool;
    distance interval;
    end_at timestamptz;
    next_end_at timestamptz;
BEGIN
    -- guard: a large rest is checked before a partition is attached
    is_large := pg_relation_size((of_parent || '_default')::regclass) > 8388608
                OR of_parent = 'outbox_events' AND pg_relation_size('outbox_attempts_default'::regclass) > 8388608;
    -- Partitions end so far ahead that the next one begins at least `distance` from now.
    -- guard: a promised range begins after a day
    distance := CASE WHEN is_large THEN interval '1 day 15 minutes' ELSE interval '1 minute' END;
    end_at := (SELECT max(q.to_at) FROM partitions q
               -- guard: a partition of a clock that was ahead is not what comes next
               WHERE q.parent = of_parent AND q.from_at <= now() + distance + length + length);
    SELECT q.* INTO n FROM partition_plans q WHERE q.parent = of_parent;
    IF n.is_checked THEN
        PERFORM issuing.partition_add(of_parent, n.from_at, n.to_at);
        PERFORM issuing.plan_end(of_parent);
        RETURN QUERY SELECT 'created', n.from_at::text, false;
    ELSIF n.parent IS NULL
          AND (end_at IS NULL
               OR end_at < now() + length + CASE WHEN is_large THEN interval '1 day' ELSE interval '0' END)
          AND (is_steady OR NOT EXISTS (SELECT FROM partitions q WHERE q.parent = of_parent)) THEN
        -- After a pause without a worker there are rows of now in the `_default` partition: the new one begins after
        -- them.
        end_at := greatest(end_at, date_trunc('second', now()) + distance);
        SELECT r.new_from, r.new_to INTO end_at, next_end_at
        FROM issuing.next_range(of_parent, end_at, length, shortest) r;
        RETURN QUERY SELECT issuing.begin_partition(of_parent, end_at, next_end_at, is_large), end_at::text, false;
    END IF;
EXCEPTION
    WHEN lock_not_available OR check_violation THEN
        RETURN QUERY SELECT CASE WHEN is_steady AND end_at < now() + distance + length / 2 THEN 'failed'
                                 ELSE 'postponed' END,
                            concat_ws('; ', SQLERRM, issuing.default_holders(of_parent)), true;
    WHEN OTHERS THEN
        RETURN QUERY SELECT 'failed', SQLERRM, false;
END
$$;

-- Drops one partition of a table that was settled before that time. One that cannot be dropped does not keep the
-- others.
CREATE OR REPLACE FUNCTION issuing.drop_one(of_parent text, before timestamptz)
RETURNS SETOF issuing.pass_row
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp -- and what run_housekeeping sets
AS $$
DECLARE
    p partitions;
    moved int8;
BEGIN
    FOR p IN
        SELECT q.* FROM partitions q
        WHERE q.parent = of_parent AND q.settled_at < before
        ORDER BY q.to_at LIMIT 16
    LOOP
        BEGIN
            moved := issuing.partition_drop(p.name, before);
            RETURN QUERY SELECT 'dropped', of_parent, moved, p.name, true;
            RETURN;
        EXCEPTION
            WHEN lock_not_available THEN
                RETURN QUERY SELECT 'postponed', of_parent, 0::int8, SQLERRM, false;
                EXIT;
            WHEN program_limit_exceeded THEN
                RETURN QUERY SELECT 'postponed', of_parent, 0::int8, SQLERRM, false;
            -- guard: a partition that cannot be dropped does not keep the others
            WHEN OTHERS THEN
                RETURN QUERY SELECT 'failed', of_parent, 0::int8, format('%s: %s', p.name, SQLERRM), false;
        END;
    END LOOP;
END
$$;

-- The tables that are partitioned by time: how long a partition is, and how long it stays after it was settled.
CREATE OR REPLACE FUNCTION issuing.partitioned_tables(key_retention interval, limit_window interval,
                                                      event_retention interval, shortest interval)
RETURNS TABLE (parent text, length interval, retention interval)
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    -- With any retention that a caller asks for, a partition settles within a year; so a retention that the owner
    -- shortens takes effect again.
    -- guard: no partition is longer than a year
    longest constant interval := interval '366 days';
    keys_kept constant interval := issuing.retention_in_force('keys', key_retention);
    limits_kept constant interval := issuing.retention_in_force('limits', limit_window);
    events_kept constant interval := greatest(issuing.retention_in_force('events', event_retention), keys_kept);
    audit_kept constant interval := (SELECT r.kept FROM retentions r WHERE r.name = 'audit');
BEGIN
    RETURN QUERY VALUES
        ('outbox_events',    least(greatest(events_kept / 6::float8, shortest), longest), events_kept),
        ('idempotency_keys', least(greatest(keys_kept, shortest), longest),               keys_kept),
        ('rate_limit_log',   least(greatest(limits_kept, shortest), longest),             limits_kept),
        ('operator_actions', least(greatest(audit_kept / 12::float8, shortest), longest), audit_kept);
END
$$;

-- The second call of a pass, again as long as it says so: makes one partition, or drops one whose time is over.
CREATE OR REPLACE FUNCTION issuing.run_housekeeping(
    key_retention interval, limit_window interval, event_retention interval,
    least_length interval) -- no partition is shorter; an hour to a day
RETURNS SETOF issuing.pass_row
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    shortest constant interval := least(greatest(least_length, interval '1 hour'), interval '1 day');
    t timestamptz;
    is_steady bool;
    kind record;
    made record;
    dropped pass_row;
BEGIN
    -- guard: the housekeeping runs only under READ COMMITTED
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.run_housekeeping needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;
    -- guard: one worker at a time does the housekeeping
    IF NOT issuing.take_job_lock('housekeeping') THEN
        RETURN QUERY SELECT 'busy', NULL, 0::int8, NULL, false;
        RETURN;
    END IF;
    -- guard: the commit of a drop does not wait for standbys
    PERFORM set_config('synchronous_commit', 'local', true);
    t := issuing.retention_now(now());
    -- The passes of the last five minutes, this one included, agree on the time.
    -- guard: no partition is made while the clock steps
    is_steady := (SELECT now() BETWEEN h.steady_from + interval '5 minutes' AND h.passed_at + interval '5 minutes'
                  FROM housekeeping_clock h);
    -- Does not wait for a lock: all other statements would wait behind it.
    PERFORM set_config('lock_timeout', '30ms', true);
    RETURN QUERY SELECT * FROM issuing.take_plans_back();
    <<kinds>>
    FOR kind IN
        SELECT * FROM issuing.partitioned_tables(key_retention, limit_window, event_retention, shortest)
    LOOP
        SELECT m.* INTO made FROM issuing.make_next(kind.parent, kind.length, shortest, is_steady) m;
        IF made.action IS NOT NULL THEN
            RETURN QUERY SELECT made.action, kind.parent, 0::int8, made.detail, made.action IN ('created', 'planned');
            EXIT kinds WHEN made.action IN ('created', 'planned');
            CONTINUE kinds WHEN made.is_held;
        END IF;
        FOR dropped IN SELECT * FROM issuing.drop_one(kind.parent, t - kind.retention) LOOP
            RETURN NEXT dropped;
            EXIT kinds WHEN dropped.again;
        END LOOP;
    END LOOP;
END
$$;

-- The third call: checks the plan of one large `_default`, which takes as long as reading it.
CREATE OR REPLACE FUNCTION issuing.check_default_partitions()
RETURNS SETOF issuing.pass_row
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    n partition_plans;
BEGIN
    IF NOT EXISTS (SELECT FROM partition_plans q WHERE NOT q.is_checked)
       OR NOT issuing.take_job_lock('housekeeping') THEN
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'local', true);
    FOR n IN SELECT q.* FROM partition_plans q WHERE NOT q.is_checked ORDER BY q.planned_at LIMIT 1 LOOP
        BEGIN
            -- No reader or writer of rows waits behind this lock; a running vacuum gives way after deadlock_timeout.
            PERFORM set_config('lock_timeout', '3s', true);
            EXECUTE format('ALTER TABLE %I VALIDATE CONSTRAINT default_promise', n.parent || '_default');
            IF n.parent = 'outbox_events' THEN
                ALTER TABLE outbox_attempts_default VALIDATE CONSTRAINT default_promise;
            END IF;
            UPDATE partition_plans q SET is_checked = true WHERE q.parent = n.parent;
            RETURN QUERY SELECT 'checked', n.parent, 0::int8, n.from_at::text, true;
        EXCEPTION
            WHEN lock_not_available THEN
                RETURN QUERY SELECT 'postponed', n.parent, 0::int8, SQLERRM, false;
            WHEN OTHERS THEN
                RETURN QUERY SELECT 'failed', n.parent, 0::int8, SQLERRM, false;
                -- A row of the range was written before the promise: the next plan goes around it. It is taken back
                -- by run_housekeeping, which does not wait for the lock.
                UPDATE partition_plans q SET planned_at = '-infinity' WHERE q.parent = n.parent;
        END;
    END LOOP;
END
$$;

REVOKE ALL ON FUNCTION issuing.default_holders, issuing.housekeeping_state, issuing.plan_end, issuing.default_promise,
    issuing.withdraw_plans, issuing.partition_add, issuing.partition_drop, issuing.take_plans_back, issuing.next_range,
    issuing.begin_partition, issuing.make_next, issuing.drop_one, issuing.partitioned_tables, issuing.run_housekeeping,
    issuing.check_default_partitions FROM PUBLIC;
