-- What the places share, on a Citus cluster. Run by `issuing-ctl citus apply`, and by each later migrate. Citus copies a
-- table of `issuing` to every node (a reference table), so that functions read it where their place is.

DO $$
BEGIN
    IF EXISTS (SELECT FROM issuing.place_states s WHERE s.owner IS NOT NULL) THEN
        RAISE EXCEPTION 'places of this database were given to another one' USING ERRCODE = '55000';
    ELSIF NOT pg_catalog.citus_is_coordinator() THEN
        RAISE EXCEPTION 'this node is not the coordinator' USING ERRCODE = '55000';
    END IF;
END
$$;

-- By name: the first of two tables with a foreign key between them makes another table of the second.
SELECT pg_catalog.create_reference_table(format('issuing.%I', c.name))
FROM (SELECT t.relname AS name FROM pg_class t
      WHERE t.relnamespace = 'issuing'::regnamespace AND t.relkind = 'r'
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition d WHERE d.logicalrelid = t.oid)
      ORDER BY t.oid) c;

-- Precedes every look at a table of a place. A move of the place waits for whoever has this lock, and whoever gets it
-- afterwards sees that the place has left: the programs repeat a call that is answered 40001.
CREATE OR REPLACE FUNCTION issuing.stay_here(shard int8) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    PERFORM lock_shard_metadata(5, ARRAY[shard]); -- 5: SHARE
    -- A call that waited while its place left works on no old copy.
    IF NOT EXISTS (SELECT FROM pg_dist_placement p JOIN pg_dist_local_group g ON g.groupid = p.groupid
                   WHERE p.shardid = shard) THEN
        RAISE EXCEPTION 'the place is on another node' USING ERRCODE = '40001',
            HINT = 'not in a transaction block: the call goes to the node of its place';
    END IF;
END
$$;

-- As in 01_base.sql, of the copy on this node: also called for a row, where Citus plans nothing.
DO $do$
BEGIN
    EXECUTE format($fn$
        CREATE OR REPLACE FUNCTION issuing.is_served(of_place int8) RETURNS bool
        LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
        AS $body$
        BEGIN
            RETURN EXISTS (SELECT FROM %s s WHERE s.place = of_place AND s.state = 'served');
        END
        $body$ $fn$, (SELECT format('issuing.place_states_%s', d.shardid) FROM pg_catalog.pg_dist_shard d
                      WHERE d.logicalrelid = 'issuing.place_states'::regclass));
END
$do$;

-- Each node has a WAL of its own, and an api may go to another node, so no position says anything (16_histories.sql).
DO $do$
BEGIN
    EXECUTE 'CREATE OR REPLACE FUNCTION issuing.acknowledged() RETURNS int8 LANGUAGE sql VOLATILE RETURN NULL::int8';
END
$do$;

-- Called by a function that keeps its plans; a statement through Citus needs the values of its parameters.
ALTER FUNCTION issuing.note_issuer(text, text) SET plan_cache_mode = auto;

REVOKE ALL ON FUNCTION issuing.stay_here(int8)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION issuing.stay_here(int8) TO issuing_api, issuing_worker, issuing_operator;
