-- Where the places are on a Citus cluster, and what is wrong there. Elsewhere nothing is called here: a body is looked
-- at only when it runs.

-- The node that has each place. No row: the database is not on Citus.
CREATE OR REPLACE FUNCTION issuing.citus_places() RETURNS TABLE (place int8, node text, bytes int8)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    IF to_regclass('pg_catalog.pg_dist_schema') IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT p.place::int8, string_agg(DISTINCT format('%s:%s', n.nodename, n.nodeport), ', '),
           sum(citus_total_relation_size(d.logicalrelid, false))::int8
    FROM place_states p
    JOIN pg_namespace s ON s.nspname = format('issuing_p%s', p.place)
    JOIN pg_dist_schema o ON o.schemaid = s.oid
    JOIN pg_dist_partition d ON d.colocationid = o.colocationid
    JOIN pg_dist_shard h ON h.logicalrelid = d.logicalrelid
    JOIN pg_dist_placement l ON l.shardid = h.shardid
    JOIN pg_dist_node n ON n.groupid = l.groupid AND n.noderole = 'primary'
    GROUP BY p.place
    ORDER BY p.place;
END
$$;

-- What would stop a move, or calls behind it. For the owner.
CREATE OR REPLACE FUNCTION issuing.citus_faults() RETURNS TABLE (fault text, fix text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    copies constant text := $q$SELECT coalesce(md5(string_agg(p.prosrc, '' ORDER BY p.oid::regprocedure::text)), '')
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname ~ '^issuing_p[0-9]+(_here)?$'$q$;
    ours text;
BEGIN
    IF NOT EXISTS (SELECT FROM citus_places()) THEN
        RETURN QUERY SELECT 'no place is on Citus', 'issuing-ctl citus apply';
        RETURN;
    END IF;
    EXECUTE copies INTO ours;
    RETURN QUERY
    SELECT format('place %s is not a distributed schema', p.place), 'issuing-ctl citus apply'
    FROM place_states p WHERE NOT EXISTS (SELECT FROM citus_places() c WHERE c.place = p.place);
    RETURN QUERY
    SELECT format('node %s:%s %s', n.nodename, n.nodeport, coalesce('does not answer: ' || nullif(r.result, ''), '')),
           'start it, or remove it'
    FROM run_command_on_all_nodes('SELECT 1') r JOIN pg_dist_node n ON n.nodeid = r.nodeid WHERE NOT r.success;
    RETURN QUERY
    SELECT format('node %s:%s has other functions', n.nodename, n.nodeport), 'issuing-ctl citus apply'
    FROM run_command_on_all_nodes(copies) r JOIN pg_dist_node n ON n.nodeid = r.nodeid
    WHERE r.success AND r.result <> ours;
    RETURN QUERY
    SELECT format('node %s:%s has %s', n.nodename, n.nodeport, r.result),
           'wal_level = logical, max_prepared_transactions = 200, max_locks_per_transaction = 256; restart it'
    FROM run_command_on_all_nodes($q$
        SELECT coalesce(string_agg(format('%s = %s', s.name, s.setting), ', '), '') FROM pg_settings s
        WHERE s.name = 'wal_level' AND s.setting <> 'logical'
           OR s.name IN ('max_prepared_transactions') AND s.setting::int8 < 1$q$) r
    JOIN pg_dist_node n ON n.nodeid = r.nodeid WHERE r.success AND r.result <> '';
    RETURN QUERY
    SELECT format('%s cannot move: it has no replica identity', c.oid::regclass),
           format('ALTER TABLE %s REPLICA IDENTITY FULL', c.oid::regclass)
    FROM place_states p JOIN pg_class c ON c.relnamespace = to_regnamespace(format('issuing_p%s', p.place))
    WHERE c.relkind = 'r' AND c.relreplident = 'd'
      AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary);
END
$$;

REVOKE ALL ON FUNCTION issuing.citus_faults()
FROM PUBLIC;
