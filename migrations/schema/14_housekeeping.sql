-- Housekeeping: old rows leave by DROP of a partition (14_partitions.sql), rows of the `_default` partitions by DELETE.
-- No step stops another one:
--  1. A pass is five calls, each a transaction: keep_rows (clock, rows of `_default`, settling), run_housekeeping
--     (makes or drops one partition), check_default_partitions (reads a large `_default`), erase_numbers, forget_keys.
--     What one of them did stays when the next one is ended by a timeout.
--  2. Each step has its own exception block: a failure becomes a row (`failed`, with the reason), and the next step
--     runs.
--  3. Deleting reads a bounded piece of `_default` and goes on there in the next pass.
--  4. A commit here does not wait for the synchronous standbys (synchronous_commit = local): with no standby there, a
--     commit that hangs would hold ACCESS EXCLUSIVE on outbox_events, and all claims and reads with it. No client gets
--     an answer that depends on this commit.
--  5. erase_numbers has a lock of its own: its audit row waits for the standbys.

-- Takes the lock of a job until this transaction ends; false = another one has it. Never waits.
CREATE OR REPLACE FUNCTION issuing.take_job_lock(of_work text) RETURNS bool
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    PERFORM FROM job_locks t WHERE t.name = of_work FOR UPDATE SKIP LOCKED;
    RETURN FOUND;
END
$$;

-- Who holds the lock of a job, as a text; NULL = nobody, or it has just ended.
CREATE OR REPLACE FUNCTION issuing.job_lock_holder(of_work text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT format('process %s, role %s', l.pid, coalesce(a.usename, '?'))
    FROM job_locks t
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = t.xmax AND l.granted
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE t.name = of_work
    LIMIT 1
$$;

-- What keep_rows returns when it does not get the housekeeping lock. Another worker holds it for one pass at most, so
-- it is a failure when the housekeeping clock has not moved for three passes.
CREATE OR REPLACE FUNCTION issuing.job_lock_taken()
RETURNS SETOF issuing.pass_row
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    -- guard: a housekeeping lock that is kept is a failure
    SELECT CASE WHEN now() BETWEEN h.at - interval '90 s' AND h.at + interval '90 s' THEN 'busy' ELSE 'failed' END,
           'all', 0::int8,
           format('no pass since %s UTC; the housekeeping lock is held by %s',
                  to_char(h.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
                  coalesce(job_lock_holder('housekeeping'), 'a session that ended just now')),
           false
    FROM (SELECT coalesce(c.passed_at, (SELECT max(m.applied_at) FROM schema_migration m)) AS at
          FROM housekeeping_clock c) h
$$;

-- Moves the clock of issuing.retention_now on. A step, or a pause without a pass, does not count as time; after a day
-- without one the database's clock counts again, whatever it says.
CREATE OR REPLACE FUNCTION issuing.advance_clock() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    t constant timestamptz := now();
    h housekeeping_clock;
BEGIN
    SELECT c.* INTO h FROM housekeeping_clock c;
    h.steady_from := CASE WHEN t BETWEEN h.passed_at - interval '5 minutes' AND h.passed_at + interval '5 minutes'
                          THEN h.steady_from ELSE t END;
    h.clock_at := CASE WHEN h.passed_at IS NULL OR h.steady_from < t - interval '1 day' THEN t
                          WHEN t NOT BETWEEN h.passed_at - interval '5 minutes'
                              -- guard: a step of the clock is not time that has passed
                              AND h.passed_at + interval '5 minutes' THEN h.clock_at
                          ELSE h.clock_at + greatest(t - h.passed_at, interval '0') END;
    UPDATE housekeeping_clock SET passed_at = t, steady_from = h.steady_from, clock_at = h.clock_at;
END
$$;

-- Deletes rows of one `_default` partition that are over (of events, with their attempts), 1000 at most, of the next
-- 2048 pages; of `cards` it erases the numbers. The condition is of `r`, $1 is the time before which they are over.
CREATE OR REPLACE FUNCTION issuing.expire_default(rest text, condition text, before timestamptz) RETURNS int8
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    most constant int8 := 1000;
    pages constant int8 := 2048;
    page int8 := (SELECT s.next_block FROM default_scans s WHERE s.name = rest);
    end_page constant int8 := pg_relation_size(rest::regclass) / current_setting('block_size')::int8;
    gone int8;
BEGIN
    IF page IS NULL OR page >= end_page THEN
        page := 0;
    END IF;
    EXECUTE format('WITH old AS MATERIALIZED (SELECT r.ctid FROM %1$I r
                                              WHERE r.ctid >= %2$L::tid AND r.ctid < %3$L::tid AND (%4$s)
                                              LIMIT %5$s
                                              -- guard: a row that another session has locked keeps no others
                                              FOR UPDATE SKIP LOCKED),
                         gone AS (%7$s WHERE r.ctid = old.ctid RETURNING r.*)%6$s
                    SELECT count(*) FROM gone',
                   rest, format('(%s,0)', page), format('(%s,0)', page + pages), condition, most,
                   CASE rest WHEN 'outbox_events_default' THEN
                       ', attempts AS (DELETE FROM outbox_attempts_default a USING gone WHERE a.event_id = gone.id)'
                           ELSE '' END,
                   CASE rest WHEN 'cards'
                             THEN 'UPDATE cards r SET number_record = NULL, number_erased_at = now() FROM old'
                             ELSE format('DELETE FROM %I r USING old', rest) END)
    INTO gone USING before;
    -- guard: deleting goes on where it ended
    INSERT INTO default_scans (name, next_block) VALUES (rest, CASE WHEN gone = most
        THEN page WHEN page + pages < end_page THEN page + pages ELSE 0 END)
    ON CONFLICT (name) DO UPDATE SET next_block = excluded.next_block;
    RETURN gone;
END
$$;

-- Deletes rows past their retention in each `_default` partition, and in two small tables. A table that fails does not
-- stop the others.
CREATE OR REPLACE FUNCTION issuing.expire_rows(t timestamptz, keys_kept interval, limits_kept interval,
                                               events_kept interval)
RETURNS SETOF issuing.pass_row
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp -- and what keep_rows sets
AS $$
DECLARE
    kind record;
    gone int8;
BEGIN
    FOR kind IN
        SELECT * FROM (VALUES
            ('idempotency_keys', 'idempotency_keys_default', keys_kept,
             'r.created_at < $1
              AND NOT EXISTS (SELECT FROM outbox_events e
                              WHERE e.id = r.event_id
                                AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                                     OR coalesce(e.completed_at, e.updated_at) >= $1))'),
            ('rate_limit_log', 'rate_limit_log_default', limits_kept, 'r.at < $1'),
            -- created_at as well: a worker may write updated_at, so an attacker in a worker could otherwise make an
            -- event look older.
            ('outbox_events', 'outbox_events_default', events_kept,
             -- guard: a worker makes no event old
             'r.due_at IS NULL AND r.failed_at IS NULL AND r.updated_at < $1 AND r.created_at < $1'),
            ('operator_actions', 'operator_actions_default',
             (SELECT r.kept FROM retentions r WHERE r.name = 'audit'), 'r.at < $1'),
            ('number_reveals', 'number_reveals', interval '1 hour', 'r.last_at < $1'),
            ('issuer_events', 'issuer_events', interval '1 day', 'r.at < $1'))
            AS v (parent, rest, kept, condition)
    LOOP
        BEGIN
            gone := issuing.expire_default(kind.rest, kind.condition, t - kind.kept);
            RETURN QUERY SELECT 'expired', kind.parent, gone, NULL, gone >= 1000 WHERE gone > 0;
        -- guard: rows that cannot be deleted do not keep the others
        EXCEPTION WHEN OTHERS THEN
            RETURN QUERY SELECT 'failed', kind.parent, 0::int8, SQLERRM, false;
        END;
    END LOOP;
END
$$;

-- The events of a partition that are open or FAILED: open_ids, 10001 at most. has_open: one of them keeps the partition
-- from being settled.
CREATE OR REPLACE FUNCTION issuing.open_in(p issuing.partitions, due_before timestamptz,
                                           OUT has_open bool, OUT open_ids uuid[])
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp -- and what keep_rows sets
AS $$
#variable_conflict use_column
BEGIN
    CASE p.parent
    WHEN 'outbox_events' THEN
        -- An event that is due after the retention ends does not: like a FAILED one, it moves to `_default`.
        EXECUTE format(
            -- guard: an open event of a route keeps its partition unsettled
            'SELECT EXISTS (SELECT FROM (SELECT %2$L UNION ALL SELECT r.event_type FROM routes r) t (type)
                            -- guard: an event of a far time keeps no partition
                            JOIN %1$I e ON e.event_type = t.type WHERE e.due_at <= $1),
                    ARRAY (SELECT e.id FROM %1$I e
                           WHERE e.due_at IS NOT NULL OR e.failed_at IS NOT NULL LIMIT 10001)',
            p.name, 'CARD_ISSUE') INTO has_open, open_ids USING due_before;
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
END
$$;

-- Marks past partitions as settled: no transaction of their period can still run, and none of their events is
-- unfinished. Their retention starts now.
CREATE OR REPLACE FUNCTION issuing.settle_partitions(t timestamptz, events_kept interval)
RETURNS SETOF issuing.pass_row
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp -- and what keep_rows sets
AS $$
DECLARE
    p partitions;
    has_open bool;
    open_ids uuid[];
BEGIN
    -- A partition that was settled in the future was settled by a clock that was ahead: it is checked again.
    BEGIN
        -- guard: what was settled in the future is settled again
        UPDATE partitions q SET settled_at = NULL, still_open = '{}' WHERE q.settled_at > t;
    EXCEPTION WHEN OTHERS THEN
        RETURN QUERY SELECT 'failed', 'partitions', 0::int8, SQLERRM, false;
    END;
    -- Not before every transaction that began in its period has ended (the roles' statement_timeout).
    FOR p IN
        SELECT q.* FROM partitions q
        WHERE q.settled_at IS NULL AND q.to_at < t - interval '1 minute' AND q.parent <> 'outbox_attempts'
        ORDER BY q.to_at
    LOOP
        BEGIN
            SELECT o.has_open, o.open_ids INTO has_open, open_ids FROM issuing.open_in(p, t + events_kept) o;
            IF cardinality(open_ids) > 10000 THEN
                RETURN QUERY SELECT 'postponed', p.parent, 0::int8,
                                    format('%s holds more than 10000 rows that must stay', p.name), false;
            -- guard: nothing unfinished is in a settled partition
            ELSIF NOT has_open THEN
                -- guard: the retention of what was open when its partition was settled counts from its own end
                UPDATE partitions q SET settled_at = t, still_open = open_ids WHERE q.name = p.name;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            RETURN QUERY SELECT 'failed', p.parent, 0::int8, format('%s: %s', p.name, SQLERRM), false;
        END;
    END LOOP;
END
$$;

-- The first call of a pass: the clock moves on, rows of the `_default` partitions that are over are deleted, and
-- partitions become settled. What cannot be written does not keep the rest.
CREATE OR REPLACE FUNCTION issuing.keep_rows(key_retention interval, limit_window interval, event_retention interval)
RETURNS SETOF issuing.pass_row
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    t timestamptz;
    keys_kept interval;
    events_kept interval;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.keep_rows needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;
    IF NOT issuing.take_job_lock('housekeeping') THEN
        RETURN QUERY SELECT * FROM issuing.job_lock_taken();
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'local', true);
    PERFORM set_config('lock_timeout', '1s', true);
    BEGIN
        PERFORM issuing.advance_clock();
    EXCEPTION WHEN OTHERS THEN
        RETURN QUERY SELECT 'failed', 'housekeeping_clock', 0::int8, SQLERRM, false;
    END;
    t := issuing.retention_now(now());
    keys_kept := issuing.retention_in_force('keys', key_retention);
    events_kept := greatest(issuing.retention_in_force('events', event_retention), keys_kept);
    RETURN QUERY SELECT * FROM issuing.expire_rows(t, keys_kept, issuing.retention_in_force('limits', limit_window),
                                                   events_kept);
    RETURN QUERY SELECT * FROM issuing.settle_partitions(t, events_kept);
END
$$;

-- The fourth call: erases the numbers of cards that were closed, or have expired, longer ago than the retention. Their
-- rows stay. A piece of the table in each pass; a row that another session has locked is left for the next walk.
CREATE OR REPLACE FUNCTION issuing.erase_numbers(number_retention interval)
RETURNS SETOF issuing.pass_row
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET lock_timeout = '1s'
AS $$
DECLARE
    -- Also where this worker does not get the lock, so that the longest one counts.
    -- guard: a worker erases no number before its retention
    kept interval := issuing.retention_in_force('numbers', number_retention);
    gone int8;
BEGIN
    IF kept >= interval '36600 days' OR NOT issuing.take_job_lock('numbers') THEN
        RETURN;
    END IF;
    gone := issuing.expire_default('cards',
        'r.number_record IS NOT NULL
         -- guard: a card in use keeps its number
         AND (r.closed_at < $1
              OR greatest(r.created_at, make_date(r.exp_year, r.exp_month, 1) + interval ''1 month'') < $1)
         -- guard: a card that is not settled keeps its number
         AND NOT EXISTS (SELECT FROM outbox_events e
                         WHERE e.id = r.request_id AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL))
         -- guard: a card that is being replaced keeps its number
         AND NOT EXISTS (SELECT FROM card_reissues n JOIN outbox_events e ON e.id = n.event_id
                         WHERE n.user_id = r.user_id AND n.card_id = r.id::text
                           AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL))',
        issuing.retention_now(now()) - kept);
    IF gone > 0 THEN
        INSERT INTO operator_actions (actor, action, after)
        VALUES ('housekeeping', 'numbers_erased', jsonb_build_object('numbers', gone, 'kept', kept));
        RETURN QUERY SELECT 'erased', 'cards', gone, NULL, gone >= 1000;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION issuing.take_job_lock, issuing.job_lock_holder, issuing.job_lock_taken, issuing.advance_clock,
    issuing.expire_default, issuing.expire_rows, issuing.open_in, issuing.settle_partitions, issuing.keep_rows,
    issuing.erase_numbers FROM PUBLIC;
