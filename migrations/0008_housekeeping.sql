-- Why: what is over leaves by DROP of a partition, and the next partitions are there before they are needed. Locks: each partition made or dropped takes
-- ACCESS EXCLUSIVE on its table (made: on the `_rest` partition only) for a moment, and is given up and tried again later rather than waited for.
-- Older programs: none.

-- The least id of version 7 of that moment.
CREATE FUNCTION issuing.uuid7_least(at timestamptz) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
    AS $$ SELECT rpad(lpad(to_hex((extract(epoch FROM at) * 1000)::int8), 12, '0'), 32, '0')::uuid $$;

-- And the moment of such an id.
CREATE FUNCTION issuing.uuid7_time(id uuid) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
    AS $$ SELECT timestamptz 'epoch' + ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::int8 * interval '1 millisecond' $$;

-- Makes one partition; of the events, with that of their attempts.
CREATE FUNCTION issuing.partition_add(new_parent text, new_from timestamptz, new_to timestamptz) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        new_name text := format('%s_%s', new_parent, to_char(new_from AT TIME ZONE 'UTC', 'YYYYMMDD_HH24MISS'));
        -- Room for the version that a claim writes; what is only inserted and dropped needs no vacuum.
        storage text := CASE new_parent
            WHEN 'outbox_events' THEN 'fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05'
            WHEN 'outbox_attempts' THEN 'autovacuum_vacuum_insert_scale_factor = 1'
            ELSE 'autovacuum_enabled = false' END;
        is_by_id bool := new_parent IN ('outbox_events', 'outbox_attempts');
    BEGIN
        EXECUTE format('CREATE TABLE issuing.%I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED) WITH (%s)', new_name, new_parent, storage);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', new_parent, new_name,
                       CASE WHEN is_by_id THEN issuing.uuid7_least(new_from)::text ELSE new_from::text END,
                       CASE WHEN is_by_id THEN issuing.uuid7_least(new_to)::text ELSE new_to::text END);
        INSERT INTO partitions (from_at, to_at, parent, name) VALUES (new_from, new_to, new_parent, new_name);
        IF new_parent = 'outbox_events' THEN
            PERFORM issuing.partition_add('outbox_attempts', new_from, new_to);
        END IF;
    END
    $$;

-- Drops one partition. What must stay moves to the `_rest` partition first: of events the unfinished and the FAILED ones, and those that were such
-- when it was settled and ended less than the retention ago, with their attempts; the keys of such events. Returns how many rows moved; raises
-- program_limit_exceeded, and does nothing, if they are many. Only under READ COMMITTED do the statements after the lock see all that was written
-- before it.
CREATE FUNCTION issuing.partition_drop(old_name text, retention interval) RETURNS int8
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
            EXECUTE format('SELECT ARRAY (SELECT e.id FROM %I e
                                          WHERE e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                                             OR e.id = ANY ($1) AND coalesce(e.completed_at, e.updated_at) >= now() - $2
                                          LIMIT 10001)', old.name) INTO kept USING old.still_open, retention;
            EXECUTE format('INSERT INTO outbox_events (%s) SELECT %s FROM %I WHERE id = ANY ($1)', columns, columns, old.name) USING kept;
            GET DIAGNOSTICS moved = ROW_COUNT;
            EXECUTE format('ALTER TABLE outbox_attempts DETACH PARTITION %I', attempts);
            EXECUTE format('INSERT INTO outbox_attempts SELECT a.* FROM %I a WHERE a.event_id = ANY ($1)', attempts) USING kept;
            EXECUTE format('DROP TABLE %I', attempts);
            DELETE FROM partitions p WHERE p.name = attempts;
        WHEN 'idempotency_keys' THEN
            EXECUTE format('INSERT INTO idempotency_keys SELECT k.* FROM outbox_events e JOIN %I k ON k.user_id = e.user_id AND k.key = e.idempotency_key
                            WHERE e.created_at < $3 AND k.event_id = e.id
                              AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                                   OR e.id = ANY ($1) AND coalesce(e.completed_at, e.updated_at) >= now() - $2)
                            LIMIT 10001', old.name) USING old.still_open, retention, old.to_at;
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

-- One pass, in one short transaction, by one worker of the cluster at a time. Rows of the `_rest` partitions that are over are deleted, a thousand at most;
-- partitions become settled; and at the end, so that its lock is held for the shortest time, ONE partition is made or dropped. `again` = there is more.
CREATE FUNCTION issuing.keep_house(
    key_retention interval, limit_window interval, event_retention interval,
    least_length interval) -- no partition is shorter
RETURNS TABLE (
    action text,     -- expired, created, dropped, postponed; busy: another worker is at it
    table_name text,
    amount int8,     -- rows deleted, rows moved to the `_rest` partition
    detail text,
    again bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        rest constant int := 1000;
        kind record;
        p partitions;
        has_open bool;
        open_ids uuid[];
        gone int8;
        end_at timestamptz;
        next_end_at timestamptz;
        alien timestamptz;
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.keep_house needs READ COMMITTED, not %', current_setting('transaction_isolation') USING ERRCODE = '25001';
        END IF;

        IF NOT pg_try_advisory_xact_lock(4711, 1) THEN
            RETURN QUERY SELECT 'busy', NULL, 0::int8, NULL, false;
            RETURN;
        END IF;

        DELETE FROM idempotency_keys_rest k USING (
            SELECT k.ctid FROM idempotency_keys_rest k
            WHERE k.created_at < now() - key_retention
              AND NOT EXISTS (SELECT FROM outbox_events e
                              WHERE e.id = k.event_id AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                                                           OR coalesce(e.completed_at, e.updated_at) >= now() - key_retention))
            LIMIT rest) old
        WHERE k.ctid = old.ctid;
        GET DIAGNOSTICS gone = ROW_COUNT;
        RETURN QUERY SELECT 'expired', 'idempotency_keys', gone, NULL, gone = rest WHERE gone > 0;

        DELETE FROM rate_limit_log_rest l USING (
            SELECT l.ctid FROM rate_limit_log_rest l WHERE l.at < now() - limit_window LIMIT rest) old
        WHERE l.ctid = old.ctid;
        GET DIAGNOSTICS gone = ROW_COUNT;
        RETURN QUERY SELECT 'expired', 'rate_limit_log', gone, NULL, gone = rest WHERE gone > 0;

        WITH old AS (
            SELECT e.id FROM outbox_events_rest e
            WHERE e.due_at IS NULL AND e.failed_at IS NULL AND e.updated_at < now() - event_retention
            LIMIT rest
        ), attempts AS (
            DELETE FROM outbox_attempts_rest a USING old WHERE a.event_id = old.id
        )
        DELETE FROM outbox_events_rest e USING old WHERE e.id = old.id;
        GET DIAGNOSTICS gone = ROW_COUNT;
        RETURN QUERY SELECT 'expired', 'outbox_events', gone, NULL, gone = rest WHERE gone > 0;

        -- Nothing of its time is at work: the end of its life is counted from now. Not before all that was begun in its time has committed or is over
        -- (the roles' statement_timeout).
        FOR p IN
            SELECT q.* FROM partitions q
            WHERE q.settled_at IS NULL AND q.to_at < now() - interval '1 minute' AND q.parent <> 'outbox_attempts'
            ORDER BY q.to_at
        LOOP
            CASE p.parent
            WHEN 'outbox_events' THEN
                EXECUTE format('SELECT EXISTS (SELECT FROM %1$I e WHERE e.due_at IS NOT NULL AND e.event_type = %2$L),
                                       ARRAY (SELECT e.id FROM %1$I e WHERE e.due_at IS NOT NULL OR e.failed_at IS NOT NULL LIMIT 10001)',
                               p.name, 'CARD_ISSUE') INTO has_open, open_ids;
            WHEN 'idempotency_keys' THEN
                SELECT EXISTS (SELECT FROM outbox_events e
                               WHERE e.due_at IS NOT NULL AND e.event_type = 'CARD_ISSUE' AND e.idempotency_key IS NOT NULL
                                 AND e.created_at >= p.from_at AND e.created_at < p.to_at),
                       ARRAY (SELECT e.id FROM outbox_events e
                              WHERE e.failed_at IS NOT NULL AND e.idempotency_key IS NOT NULL AND e.created_at >= p.from_at AND e.created_at < p.to_at
                              LIMIT 10001)
                INTO has_open, open_ids;
            ELSE
                has_open := false;
                open_ids := '{}';
            END CASE;
            IF cardinality(open_ids) > 10000 THEN
                RETURN QUERY SELECT 'postponed', p.parent, 0::int8, format('%s holds more than 10000 rows that must stay', p.name), false;
            ELSIF NOT has_open THEN
                UPDATE partitions q SET settled_at = now(), still_open = open_ids WHERE q.name = p.name;
            END IF;
        END LOOP;

        -- A lock that is not there at once is not waited for: everybody would wait behind us.
        PERFORM set_config('lock_timeout', '30ms', true);
        FOR kind IN
            SELECT * FROM (VALUES
                ('outbox_events',    greatest(event_retention / 6, least_length), event_retention),
                ('idempotency_keys', greatest(key_retention, least_length),       key_retention),
                ('rate_limit_log',   greatest(limit_window, least_length),        limit_window)) AS v (parent, length, retention)
        LOOP
            end_at := (SELECT max(q.to_at) FROM partitions q WHERE q.parent = kind.parent);
            BEGIN
                IF end_at IS NULL OR end_at < now() + kind.length THEN
                    -- After a pause without a worker there are rows of now in the `_rest` partition: the new one begins after them.
                    end_at := greatest(end_at, date_trunc('second', now()) + interval '1 minute');
                    next_end_at := end_at + kind.length;
                    -- An id of another kind may say a time to come, and where such a row is in `_rest` no partition can be: cut around it.
                    IF kind.parent = 'outbox_events' THEN
                        FOR alien IN
                            SELECT issuing.uuid7_time(e.id) FROM outbox_events_rest e
                            WHERE e.id >= issuing.uuid7_least(end_at) AND e.id < issuing.uuid7_least(next_end_at)
                            ORDER BY e.id
                        LOOP
                            IF alien >= end_at + least_length THEN
                                next_end_at := alien;
                                EXIT;
                            END IF;
                            end_at := alien + interval '1 millisecond';
                        END LOOP;
                    END IF;
                    PERFORM issuing.partition_add(kind.parent, end_at, greatest(next_end_at, end_at + least_length));
                    RETURN QUERY SELECT 'created', kind.parent, 0::int8, end_at::text, true;
                    RETURN;
                END IF;
                SELECT q.* INTO p FROM partitions q
                WHERE q.parent = kind.parent AND q.settled_at < now() - kind.retention
                ORDER BY q.to_at LIMIT 1;
                IF FOUND THEN
                    gone := issuing.partition_drop(p.name, kind.retention);
                    RETURN QUERY SELECT 'dropped', kind.parent, gone, p.name, true;
                    RETURN;
                END IF;
            EXCEPTION WHEN lock_not_available OR program_limit_exceeded OR check_violation THEN
                RETURN QUERY SELECT 'postponed', kind.parent, 0::int8, SQLERRM, false;
            END;
        END LOOP;
    END
    $$;

REVOKE ALL ON FUNCTION issuing.partition_add(text, timestamptz, timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION issuing.partition_drop(text, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION issuing.keep_house(interval, interval, interval, interval) FROM PUBLIC;

