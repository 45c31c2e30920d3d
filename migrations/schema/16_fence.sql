-- A place goes to another database: the replica of this one that becomes a database of its own. Only the owner calls
-- these; issuing-ctl place commits each of them. No row is copied. With one place there is none that could go.
--
--   served -> leaving     release_places. From its commit on nobody writes; what may have looked before is waited for
--   leaving -> served     undo_release
--   leaving -> closing    close_places, when no such transaction is left. From here there is no way back
--   closing -> released   end_release, when `closing` is on the synchronous standbys. Only this row can be taken
--   released -> served    take_places, in the database that the row names, once that is no replica any more
--
-- Why two databases never serve one place:
--  1. `released` follows in the write-ahead log every write that the old database made. A replica that has it has them.
--  2. Each step is committed, and on the synchronous standbys, before the next one begins. So where some replica has
--     `released`, any standby that is promoted in place of the old database has `closing`, and cannot go back.
--  3. The row names who may take it: the server's cluster_name, which is different in each database (Patroni sets its
--     scope). With the first release every row names an owner, so a replica that becomes a primary under another name
--     serves nothing until it has taken something.

-- Writes the action into the audit trail of the place itself, which goes with the place.
CREATE OR REPLACE FUNCTION issuing.note_place(what text, of_place int8, other text, actor text, os_user text,
                                              sudo_user text, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    EXECUTE format('INSERT INTO issuing_p%s.operator_actions (actor, os_user, sudo_user, action, reason, after)
                    VALUES ($1, $2, $3, $4, $5, $6)', of_place)
    USING actor, os_user, sudo_user, what, why, jsonb_build_object('place', of_place, 'database', other);
END
$$;

-- NULL: done. Else why not. The same call again finds its work done, as with the others.
CREATE OR REPLACE FUNCTION issuing.release_places(first int8, last int8, next_one text, actor text, os_user text,
                                                  sudo_user text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    ours constant text := current_setting('cluster_name');
    id constant uuid := gen_random_uuid();
    wrong text;
    p int8;
BEGIN
    PERFORM FROM place_states s ORDER BY s.place FOR UPDATE;
    IF ours = '' OR next_one = '' OR next_one = ours THEN
        RETURN format('cluster_name tells databases apart, and has to differ; it is "%s" here and "%s" there', ours,
                      next_one);
    END IF;
    SELECT format('place %s is %s, by or for the database "%s"', s.place, s.state, coalesce(s.next_owner, s.owner))
    INTO wrong
    FROM place_states s
    WHERE s.place BETWEEN first AND last AND NOT is_served(s.place)
      AND NOT (s.state <> 'served' AND s.owner = ours AND s.next_owner = next_one)
    ORDER BY s.place LIMIT 1;
    IF wrong IS NOT NULL THEN
        RETURN wrong;
    END IF;
    IF NOT EXISTS (SELECT FROM place_states s WHERE s.place NOT BETWEEN first AND last AND is_served(s.place)) THEN
        RETURN 'no place would be left here: a whole database moves by a switchover';
    END IF;
    FOR p IN SELECT s.place FROM place_states s WHERE s.place BETWEEN first AND last AND is_served(s.place) LOOP
        PERFORM note_place('release_place', p, next_one, actor, os_user, sudo_user, why);
    END LOOP;
    UPDATE place_states s SET owner = ours WHERE s.owner IS NULL;
    UPDATE place_states s
    SET state = 'leaving', next_owner = next_one, release_id = id, since = clock_timestamp()
    WHERE s.place BETWEEN first AND last AND s.state = 'served';
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION issuing.undo_release(first int8, last int8, actor text, os_user text, sudo_user text,
                                                why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    wrong text;
    p int8;
BEGIN
    PERFORM FROM place_states s ORDER BY s.place FOR UPDATE;
    SELECT format('place %s is %s, and may have been taken', s.place, s.state) INTO wrong
    FROM place_states s
    WHERE s.place BETWEEN first AND last
      -- guard: a release that may have been taken is not taken back
      AND NOT (s.state = 'leaving' AND s.owner = current_setting('cluster_name')) AND NOT is_served(s.place)
    ORDER BY s.place LIMIT 1;
    IF wrong IS NOT NULL THEN
        RETURN wrong;
    END IF;
    FOR p IN SELECT s.place FROM place_states s
             WHERE s.place BETWEEN first AND last AND s.state = 'leaving' LOOP
        UPDATE place_states s SET state = 'served', next_owner = NULL, release_id = NULL, since = clock_timestamp()
        WHERE s.place = p;
        PERFORM note_place('undo_release', p, NULL, actor, os_user, sudo_user, why);
    END LOOP;
    RETURN NULL;
END
$$;

-- Who may have looked at the fence before now: the transactions that run, and those that are prepared.
CREATE OR REPLACE FUNCTION issuing.transactions_now() RETURNS text[]
LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT coalesce(array_agg(t.id), '{}')
    FROM (SELECT l.virtualxid AS id FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
          WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.pid <> pg_backend_pid()
            -- Not the server's own, such as autovacuum: they write no rows of ours.
            AND a.datname = current_database() AND a.usesysid IS NOT NULL
          UNION ALL
          SELECT p.gid FROM pg_prepared_xacts p WHERE p.database = current_database()) t
$$;

-- The next state of the places that have the one before it, and of those that have it already: also their row is
-- written, since the commit of a transaction that writes nothing waits for no standby.
CREATE OR REPLACE FUNCTION issuing.move_places(first int8, last int8, before text, after text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    wrong text;
BEGIN
    PERFORM FROM place_states s ORDER BY s.place FOR UPDATE;
    SELECT format('place %s is %s', s.place, s.state) INTO wrong
    FROM place_states s
    WHERE s.place BETWEEN first AND last
      AND NOT (s.state IN (before, after, 'released') AND s.owner = current_setting('cluster_name'))
    ORDER BY s.place LIMIT 1;
    IF wrong IS NULL THEN
        UPDATE place_states s SET state = CASE WHEN s.state = before THEN after ELSE s.state END,
                                  since = clock_timestamp()
        WHERE s.place BETWEEN first AND last;
    END IF;
    RETURN wrong;
END
$$;

-- Those that are served here already are passed over: the same call again finds its work done.
CREATE OR REPLACE FUNCTION issuing.take_places(first int8, last int8, actor text, os_user text, sudo_user text,
                                               why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    ours constant text := current_setting('cluster_name');
    wrong text;
    p int8;
BEGIN
    PERFORM FROM place_states s ORDER BY s.place FOR UPDATE;
    SELECT CASE WHEN s.state = 'released'
                THEN format('place %s was released for the database "%s"; this one is "%s"', s.place, s.next_owner, ours)
                WHEN s.state = 'served'
                THEN format('place %s was not released, as far as this database has heard', s.place)
                ELSE format('place %s: only the beginning of its release has come here; this database became a primary '
                            'too early, and must be made again from the old one', s.place) END
    INTO wrong
    FROM place_states s
    WHERE s.place BETWEEN first AND last AND NOT is_served(s.place)
      -- guard: only what was released is taken
      -- guard: only the database that a release names takes it
      AND NOT (s.state = 'released' AND s.next_owner = ours)
    ORDER BY s.place LIMIT 1;
    IF wrong IS NOT NULL THEN
        RETURN wrong;
    END IF;
    FOR p IN SELECT s.place FROM place_states s
             WHERE s.place BETWEEN first AND last AND NOT is_served(s.place) LOOP
        UPDATE place_states s SET state = 'served', owner = ours, next_owner = NULL, since = clock_timestamp()
        WHERE s.place = p;
        PERFORM note_place('take_place', p, ours, actor, os_user, sudo_user, why);
    END LOOP;
    UPDATE place_states s SET since = s.since WHERE s.place BETWEEN first AND last; -- see move_places
    RETURN NULL;
END
$$;

-- Drops what another database serves. The caller has asked that one.
CREATE OR REPLACE FUNCTION issuing.drop_place(of_place int8, actor text, os_user text, sudo_user text, why text)
    RETURNS bool
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    PERFORM FROM place_states s WHERE s.place = of_place FOR UPDATE;
    IF to_regnamespace(format('issuing_p%s', of_place)) IS NULL THEN
        RETURN false;
    END IF;
    -- guard: a place that is served is not dropped
    IF is_served(of_place) OR EXISTS (SELECT FROM place_states s WHERE s.place = of_place
                                      AND (s.owner IS NULL OR s.state IN ('leaving', 'closing'))) THEN
        RAISE EXCEPTION 'place % is not another database''s', of_place USING ERRCODE = '55000';
    END IF;
    PERFORM note_place('drop_place', first_place(), format('place %s of %s', of_place, (SELECT s.owner
        FROM place_states s WHERE s.place = of_place)), actor, os_user, sudo_user, why);
    EXECUTE format('DROP SCHEMA issuing_p%s CASCADE', of_place);
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION issuing.release_places(int8, int8, text, text, text, text, text),
    issuing.note_place(text, int8, text, text, text, text, text),
    issuing.undo_release(int8, int8, text, text, text, text), issuing.transactions_now(),
    issuing.move_places(int8, int8, text, text), issuing.take_places(int8, int8, text, text, text, text),
    issuing.drop_place(int8, text, text, text, text)
FROM PUBLIC;
