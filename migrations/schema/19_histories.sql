-- Whether a server has the commits that were acknowledged: common/lib/pg/pg_history.h says how programs use it.

-- A position in the WAL before the commit of this transaction, as bytes. When the commit is confirmed, all up to there
-- is as durable as the commit: on the disk and at the synchronous standbys. Null where nothing was written, or where
-- the session does not wait for its commit. The column keeps its name: programs look for it.
CREATE OR REPLACE FUNCTION issuing.acknowledged() RETURNS int8
LANGUAGE sql VOLATILE
-- guard: only what a commit makes durable is acknowledged
RETURN CASE WHEN pg_current_xact_id_if_assigned() IS NOT NULL AND current_setting('synchronous_commit') <> 'off'
            THEN (pg_current_wal_insert_lsn() - '0/0')::int8 END;

-- What this database is, and why it is not to be used (null = it is). known...: what the caller remembers, or nulls. A
-- server that lacks what was acknowledged is on an older timeline or at a lower position; a dump that was restored has
-- another database or schema. A later position proves nothing. A loss that was found is stored until an operator
-- accepts it: also after the position has grown past what is known, and for programs that remember nothing.
CREATE OR REPLACE FUNCTION issuing.check_history(known uuid, known_system text, known_timeline int8,
                                                 known_position int8)
RETURNS TABLE (id uuid, system text, lost text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    position int8 := pg_current_wal_insert_lsn() - '0/0';
    timeline int8 := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int8;
    found text;
BEGIN
    id := (SELECT h.id FROM histories h WHERE h.is_current);
    system := format('%s/%s/%s', (SELECT c.system_identifier FROM pg_control_system() c),
                     (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()),
                     (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'issuing'));
    found := CASE
        WHEN known_system <> system OR known <> id THEN 'it is another one, perhaps a dump that was restored'
        WHEN timeline < known_timeline
        THEN format('it is on timeline %s, and commits were acknowledged on timeline %s', timeline, known_timeline)
        -- guard: a server at a lower position than was acknowledged has lost commits
        WHEN position < known_position
        THEN format('it was at %s, and commits up to %s were acknowledged', '0/0'::pg_lsn + position,
                    '0/0'::pg_lsn + known_position) END;
    IF found IS NOT NULL AND NOT EXISTS (SELECT FROM histories h WHERE h.id = known AND h.lost_at IS NOT NULL) THEN
        PERFORM set_config('synchronous_commit', 'local', true);
        INSERT INTO histories AS h (id, is_current, lost, lost_at) VALUES (known, false, found, clock_timestamp())
        ON CONFLICT (id) DO UPDATE SET lost = excluded.lost, lost_at = excluded.lost_at;
    END IF;
    -- guard: what one program has found stops all of them
    lost := (SELECT h.lost FROM histories h WHERE h.lost_at IS NOT NULL AND h.accepted_at IS NULL
             ORDER BY h.lost_at LIMIT 1);
    RETURN NEXT;
END
$$;

-- An operator accepts the loss, and programs use the database again. Returns the loss; null = there was none. The
-- history gets a new name, so that later acknowledgements cannot be taken for the lost ones.
CREATE OR REPLACE FUNCTION issuing.accept_history(actor text, os_user text, sudo_user text, why text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    found text;
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    WITH accepted AS (
        UPDATE histories h SET accepted_at = clock_timestamp(), is_current = false
        WHERE h.lost_at IS NOT NULL AND h.accepted_at IS NULL RETURNING h.lost
    )
    SELECT string_agg(DISTINCT a.lost, '; ') INTO found FROM accepted a;
    IF found IS NOT NULL THEN
        INSERT INTO histories (is_current)
        SELECT true WHERE NOT EXISTS (SELECT FROM histories h WHERE h.is_current);
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, after)
        VALUES (actor, os_user, sudo_user, 'accept_history', why, jsonb_build_object('target', found));
    END IF;
    RETURN found;
END
$$;

REVOKE ALL ON FUNCTION issuing.check_history, issuing.accept_history FROM PUBLIC;
