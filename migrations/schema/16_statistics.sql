-- Statistics of ends: 02_upkeep_tables.sql explains them.

-- The bounds of the times, in ms; a time that is longer than the last bound counts as a little less than it.
CREATE OR REPLACE FUNCTION issuing.statistics_bounds() RETURNS float8[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT '{10, 25, 50, 100, 250, 500, 1000, 2000, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000,
             3600000, 7200000, 21600000, 43200000, 86400000, 259200000, 604800000, 1000000000000}'::float8[]
$$;

-- The changes that wait, in rows like those of outbox_statistics, by the same expressions as in count_events.
CREATE OR REPLACE VIEW issuing.statistics_waiting AS
SELECT g.place, g.hour, g.event_type, g.status, g.reason_code,
       (issuing.statistics_bounds())[width_bucket(g.age_ms::float8, issuing.statistics_bounds()) + 1]::int8 AS below_ms,
       g.count, g.count * g.age_ms AS sum_ms
FROM (SELECT c.ctid AS place,
             date_bin('1 hour', least(greatest(c.ended_at, 'epoch'), '2500-01-01 00:00:00+00'), 'epoch') AS hour,
             left(coalesce(u.event_type, c.event_type), 64) AS event_type, c.status, c.reason_code, c.count,
             (least(greatest(date_part('epoch', c.ended_at) - date_part('epoch', u.created_at), 0), 999999999)
              * 1000)::int8 AS age_ms
      FROM issuing.statistics_changes c
      CROSS JOIN LATERAL unnest(c.created_ats, c.event_types) AS u (created_at, event_type)
      WHERE c.refused IS NULL) g
UNION ALL
SELECT c.ctid, c.ended_at, c.event_type, c.status, c.reason_code, c.below_ms, c.count, c.sum_ms
FROM issuing.statistics_changes c
WHERE c.refused IS NULL AND c.created_ats IS NULL;

-- Receivers choose reasons, so at most 50 of a type and hour have rows of their own: those that a fold saw first. All
-- others count as `other`. A reason that has a row keeps it.
CREATE OR REPLACE FUNCTION issuing.counted_reason(of_hour timestamptz, of_type text, reason text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    RETURN CASE WHEN reason IN ('', 'other')
                     OR EXISTS (SELECT FROM outbox_statistics s
                                WHERE s.hour = of_hour AND s.event_type = of_type AND s.reason_code = reason)
                     OR (SELECT count(DISTINCT s.reason_code) FROM outbox_statistics s
                         WHERE s.hour = of_hour AND s.event_type = of_type AND s.reason_code NOT IN ('', 'other')) < 50
                THEN reason ELSE 'other' END;
END
$$;

-- The count from the rows that are there. Reads the whole outbox. STABLE: a statement that calls it and reads
-- outbox_statistics sees both at the same moment.
CREATE OR REPLACE FUNCTION issuing.count_events(since timestamptz) -- hours that begin before are left out
RETURNS TABLE (hour timestamptz, event_type text, status text, reason_code text, below_ms int8, count int8, sum_ms int8)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    #variable_conflict use_column
    DECLARE
        bounds float8[] := statistics_bounds();
    BEGIN
        RETURN QUERY
        SELECT r.hour, r.event_type, r.status, counted_reason(r.hour, r.event_type, r.reason_code), r.below_ms,
               sum(r.count)::int8, sum(r.sum_ms)::int8
        FROM (
        SELECT g.hour, g.event_type, g.status, g.reason_code,
               bounds[width_bucket(g.age_ms::float8, bounds) + 1]::int8 AS below_ms, count(*) AS count,
               sum(g.age_ms) AS sum_ms
        FROM (SELECT date_bin('1 hour', least(greatest(t.ended_at, 'epoch'), '2500-01-01 00:00:00+00'), 'epoch')
                         AS hour,
                     left(e.event_type, 64) AS event_type, e.status, coalesce(e.reason_code, '') AS reason_code,
                     (least(greatest(date_part('epoch', t.ended_at) - date_part('epoch', e.created_at), 0), 999999999)
                      * 1000)::int8 AS age_ms
              FROM outbox_events e CROSS JOIN LATERAL (SELECT coalesce(e.completed_at, e.updated_at) AS ended_at) t
              WHERE e.status IN ('COMPLETED', 'REJECTED', 'FAILED')) g
        WHERE g.hour >= since
        GROUP BY 1, 2, 3, 4, 5) r
        GROUP BY 1, 2, 3, 4, 5;
    END
    $$;

-- Moves the changes in these rows, as the fold does; returns their number. Only the fold deletes changes, one fold at a
-- time, so both parts of the statement see the same.
CREATE OR REPLACE FUNCTION issuing.fold_changes(places tid[]) RETURNS int8
LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    WITH waiting AS MATERIALIZED (
        SELECT w.hour, w.event_type, w.status, w.reason_code, w.below_ms, sum(w.count) AS count, sum(w.sum_ms) AS sum_ms
        FROM statistics_waiting w
        WHERE w.place = ANY (places)
        GROUP BY 1, 2, 3, 4, 5
    ), reasons AS (
        SELECT r.hour, r.event_type, r.reason_code,
               row_number() OVER (PARTITION BY r.hour, r.event_type ORDER BY bool_or(r.is_old) DESC, r.reason_code) AS n
        FROM (SELECT w.hour, w.event_type, w.reason_code, false AS is_old FROM waiting w
              UNION ALL
              SELECT s.hour, s.event_type, s.reason_code, true
              FROM (SELECT DISTINCT w.hour, w.event_type FROM waiting w) t
              JOIN outbox_statistics s ON s.hour = t.hour AND s.event_type = t.event_type) r
        WHERE r.reason_code NOT IN ('', 'other')
        GROUP BY 1, 2, 3
    ), added AS (
        INSERT INTO outbox_statistics AS s (hour, event_type, status, reason_code, below_ms, count, sum_ms)
        -- guard: a receiver's reasons do not fill the statistics
        SELECT w.hour, w.event_type, w.status, CASE WHEN r.n > 50 THEN 'other' ELSE w.reason_code END, w.below_ms,
               sum(w.count)::int8, sum(w.sum_ms)::int8
        FROM waiting w
        LEFT JOIN reasons r ON r.hour = w.hour AND r.event_type = w.event_type AND r.reason_code = w.reason_code
        GROUP BY 1, 2, 3, 4, 5
        ON CONFLICT (hour, event_type, status, reason_code, below_ms)
        DO UPDATE SET count = s.count + excluded.count, sum_ms = s.sum_ms + excluded.sum_ms
    ), taken AS (
        -- guard: a change of the statistics is folded once
        DELETE FROM statistics_changes c WHERE c.ctid = ANY (places)
        RETURNING 1
    )
    SELECT count(*) FROM taken
$$;

-- Moves changes, `most` at most, into outbox_statistics. What is deleted is what is added, in one transaction: a worker
-- that dies changes nothing. A lock (take_job_lock) lets one worker do it at a time. A change that cannot be added is
-- marked and left out, and the others go on.
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
        -- Without a change there is nothing to write, and taking the lock would be a write.
        IF EXISTS (SELECT FROM statistics_changes c WHERE c.refused IS NULL) AND take_job_lock('statistics') THEN
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

-- Makes the statistics equal to what count_events says. One statement compares the rows, the statistics and the changes
-- that wait, all at one moment, and writes the difference as further changes; so it may run beside ends and folds, and
-- every end is counted once. What the housekeeping has deleted is not counted any more.
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
        IF NOT take_job_lock('rebuild') THEN
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
                  SELECT w.hour, w.event_type, w.status, counted_reason(w.hour, w.event_type, w.reason_code),
                         w.below_ms, -w.count::numeric, -w.sum_ms::numeric
                  -- guard: a rebuild of the statistics knows the changes that wait
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

REVOKE ALL ON FUNCTION issuing.fold_changes, issuing.fold_statistics, issuing.rebuild_statistics FROM PUBLIC;
