-- Places: users are divided over several databases, each with this whole schema. The row of `place` says which of them
-- this one is. Without a row it is the only one, and none of this costs anything.
--
-- `home` is the cluster_name of the servers that may serve the place; Patroni sets it to its scope. A place moves to
-- other servers by PostgreSQL's replication: they replay a new home, and are promoted. Why no place is ever served by
-- two servers: home is one value that travels in the write-ahead log. The old server refuses from the commit on that
-- changed it, and another one can serve the place only if it has replayed that commit.

-- The place of a user among so many: equal ranges of the 1024 groups, as common/core/place.h computes it.
CREATE OR REPLACE FUNCTION issuing.place_of(user_id text, places int4) RETURNS int4
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN issuing.group_of(user_id) * places / 1024;

-- For a constraint, so that nothing of a user is recorded in two places: true, or ISUSR.
CREATE OR REPLACE FUNCTION issuing.check_user(user_id text, number int4, places int4) RETURNS bool
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    -- guard: a place takes no request of a user of another place
    IF place_of(user_id, places) <> number THEN
        RAISE EXCEPTION 'this is place % of %, and the user is one of place %', number, places,
            place_of(user_id, places) USING ERRCODE = 'ISUSR';
    END IF;
    RETURN true;
END
$$;

-- Before each statement that writes to a table of a place. A query of its own: it sees a move that was committed since
-- the statement's snapshot.
CREATE OR REPLACE FUNCTION issuing.check_home() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    p place;
BEGIN
    SELECT * INTO p FROM place;
    -- guard: a server that is not the home of a place writes nothing
    IF p.home <> current_setting('cluster_name') THEN
        RAISE EXCEPTION 'place % is served by "%", and this is "%"', p.number, p.home, current_setting('cluster_name')
            USING ERRCODE = 'ISPLC';
    END IF;
    RETURN NULL;
END
$$;

-- Makes this database that place, as each migrate does again: what is there stays, and a table that is new gets its
-- trigger. NULL = done, or there is one place; else why not.
CREATE OR REPLACE FUNCTION issuing.become_place(which int4, of_places int4) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    p place;
    name text;
BEGIN
    SELECT * INTO p FROM place;
    IF p.number IS NULL AND of_places <= 1 THEN
        RETURN NULL;
    ELSIF of_places > 64 OR which NOT BETWEEN 0 AND of_places - 1 THEN
        RETURN format('there is no place %s of %s', which, of_places);
    ELSIF p.number IS NULL AND (EXISTS (SELECT FROM outbox_events) OR EXISTS (SELECT FROM idempotency_keys)
                                OR EXISTS (SELECT FROM cards)) THEN
        RETURN 'this database has users already, and is the only place for ever';
    ELSIF (p.number, p.places) IS DISTINCT FROM (which, of_places) AND p.number IS NOT NULL THEN
        RETURN format('this database is place %s of %s for ever, and database.url means place %s of %s', p.number,
                      p.places, which, of_places);
    END IF;
    INSERT INTO place (number, places, home) VALUES (which, of_places, current_setting('cluster_name'))
    ON CONFLICT DO NOTHING;
    FOREACH name IN ARRAY ARRAY['idempotency_keys', 'rate_limit_log'] LOOP
        IF NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = format('issuing.%I', name)::regclass
                       AND c.conname = 'of_this_place') THEN
            EXECUTE format('ALTER TABLE issuing.%I ADD CONSTRAINT of_this_place
                                CHECK (issuing.check_user(user_id, %s, %s))', name, which, of_places);
        END IF;
    END LOOP;
    FOR name IN SELECT c.relname FROM pg_class c
                WHERE c.relnamespace = 'issuing'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
                  AND c.relname NOT IN ('place', 'schema_migration')
                  AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = 'at_home') LOOP
        EXECUTE format('CREATE TRIGGER at_home BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON issuing.%I
                            FOR EACH STATEMENT EXECUTE FUNCTION issuing.check_home()', name);
    END LOOP;
    RETURN NULL;
END
$$;

-- ---- a place that goes to other servers; issuing-ctl place calls these ----

-- From the commit on nothing is written here. NULL: done. Else why not. The same call again finds its work done. It is
-- called twice: move_id is null first, and new when no transaction is left that found the place at home.
CREATE OR REPLACE FUNCTION issuing.move_place(next_home text, move_id uuid, actor text, os_user text, sudo_user text,
    why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    ours constant text := current_setting('cluster_name');
    p place;
BEGIN
    SELECT * INTO p FROM place FOR UPDATE;
    IF p.number IS NULL THEN
        RETURN 'this database is the only place: a whole database moves by a switchover';
    ELSIF ours = '' OR next_home IN ('', ours) THEN
        RETURN format('cluster_name tells servers apart: it is "%s" here, and "%s" there', ours, next_home);
    ELSIF p.home <> ours AND (p.home <> next_home OR p.left_by IS DISTINCT FROM ours) THEN
        RETURN format('place %s is served by "%s", and this is "%s"', p.number, p.home, ours);
    ELSIF current_setting('synchronous_standby_names') = ''
          AND (SELECT count(*) > 1 FROM pg_stat_get_wal_senders() w) THEN
        RETURN 'commits wait for no standby here (synchronous_standby_names), and a failover could forget the move';
    END IF;
    IF p.home = ours THEN
        PERFORM note_place('move_place', next_home, actor, os_user, sudo_user, why);
    END IF;
    -- Also where it is done already: the commit of a transaction that writes nothing waits for no standby.
    UPDATE place SET home = next_home, left_by = ours, move = move_id;
    RETURN NULL;
END
$$;

-- The way back of a place that no other server serves yet, in two steps. First it has no home: a standby that has
-- replayed this serves nothing when it is promoted. Then the server that it has left is its home again. NULL: done.
CREATE OR REPLACE FUNCTION issuing.take_place_back(is_last bool, actor text, os_user text, sudo_user text, why text)
    RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    ours constant text := current_setting('cluster_name');
    p place;
BEGIN
    SELECT * INTO p FROM place FOR UPDATE;
    -- guard: only the server that a place has left takes it back
    IF p.left_by IS DISTINCT FROM ours THEN
        RETURN format('the place is served by "%s", and did not leave "%s"', p.home, ours);
    ELSIF NOT is_last THEN
        UPDATE place SET home = '';
    -- guard: a place is taken back when no standby can serve it any more
    ELSIF p.home <> '' THEN
        RETURN format('place %s has a home, "%s"', p.number, p.home);
    ELSE
        UPDATE place SET home = ours, left_by = NULL;
        PERFORM note_place('take_place_back', ours, actor, os_user, sudo_user, why);
    END IF;
    RETURN NULL;
END
$$;

-- The audit row of a move. other: the server that the place goes to.
CREATE OR REPLACE FUNCTION issuing.note_place(what text, other text, actor text, os_user text, sudo_user text, why text)
    RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, after)
    SELECT actor, os_user, sudo_user, what, why, jsonb_build_object('place', p.number, 'server', other) FROM place p;
END
$$;

-- Who may have asked for the home before now: the transactions that run, and those that are prepared.
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

REVOKE ALL ON FUNCTION issuing.check_home, issuing.become_place, issuing.move_place, issuing.take_place_back,
    issuing.note_place, issuing.transactions_now FROM PUBLIC;
