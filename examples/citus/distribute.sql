-- Makes `issuing` a distributed schema of a Citus cluster: all its tables lie on one node. docs/scaling.md (Citus) says
-- what that is good for, and what it needs. Run it on the coordinator, as a superuser, after `issuing-ctl migrate`,
-- while no program runs:
--
--     psql -X -v ON_ERROR_STOP=1 -d issuing -f distribute.sql
--
-- undistribute.sql takes it back, also where this file stopped half-way. Before each later `issuing-ctl migrate` run
-- undistribute.sql, and after it this file.

SET client_min_messages = warning;
SET lock_timeout = '10s';
SET search_path = pg_catalog; -- so that names are written with their schema

DO $$
BEGIN
    IF current_setting('citus.enable_unsafe_triggers', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'set citus.enable_unsafe_triggers = on on all nodes: events have triggers';
    END IF;
    IF current_setting('citus.allow_nested_distributed_execution', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'set citus.allow_nested_distributed_execution = on on all nodes: functions read tables';
    END IF;
    IF NOT (SELECT groupid = 0 FROM pg_dist_local_group) THEN
        RAISE EXCEPTION 'this node is not the coordinator: run the file there';
    END IF;
END
$$;

\ir functions.sql

-- Each table in one piece, all on the same node.
SELECT citus_schema_distribute('issuing');

-- Citus plans with values, and a generic plan does not know them. PostgreSQL also makes one after some calls, unless
-- the setting of the session says otherwise.
DO $$
DECLARE
    f regprocedure;
BEGIN
    EXECUTE format('ALTER DATABASE %I SET plan_cache_mode = force_custom_plan', current_database());
    FOR f IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace = 'issuing'::regnamespace AND 'plan_cache_mode=force_generic_plan' = ANY (p.proconfig)
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_custom_plan', f);
    END LOOP;
END
$$;

-- Statements that Citus sends to the node of the tables call functions there.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace = 'issuing'::regnamespace AND p.prokind = 'f' AND p.prorettype <> 'trigger'::regtype
             ORDER BY p.oid -- a body in SQL is checked on each node, so what it calls comes first
    LOOP
        PERFORM create_distributed_function(f);
    END LOOP;
END
$$;

-- That passes over functions that Citus has known before, and over the REVOKE of those with a row as a parameter. So
-- the definitions follow as they are here, in a transaction of their own, because they go over other connections.
DO $$
DECLARE
    f record;
    given text;
BEGIN
    FOR f IN SELECT p.oid::regprocedure AS name, p.proowner::regrole AS owner, pg_get_functiondef(p.oid) AS text,
                    has_function_privilege('public', p.oid, 'EXECUTE') AS is_public
             FROM pg_proc p
             WHERE p.pronamespace = 'issuing'::regnamespace AND p.prokind = 'f'
             ORDER BY p.oid
    LOOP
        given := format('BEGIN SET LOCAL citus.enable_ddl_propagation = off; EXECUTE %L;'
                        ' ALTER FUNCTION %s OWNER TO %s;', f.text, f.name, f.owner);
        IF NOT f.is_public THEN
            given := given || format(' REVOKE ALL ON FUNCTION %s FROM PUBLIC;', f.name);
        END IF;
        IF EXISTS (SELECT FROM run_command_on_workers(format('DO %L', given || ' END')) r WHERE NOT r.success) THEN
            RAISE EXCEPTION 'a node refused the function %', f.name;
        END IF;
    END LOOP;
END
$$;

-- Citus copies no rights on columns. The tables of the other nodes get them as they are here, and so does the piece
-- with the rows; but Citus inserts a row together with its defaults, so there INSERT has to be a right on the whole
-- table. Therefore the programs' roles may reach only the coordinator.
DO $$
DECLARE
    held record;
    given text;
BEGIN
    FOR held IN
        SELECT c.oid::regclass AS tab, a.grantee::regrole AS role, a.privilege_type AS what,
               string_agg(quote_ident(t.attname), ', ' ORDER BY t.attnum) AS columns
        FROM pg_class c
        JOIN pg_attribute t ON t.attrelid = c.oid AND NOT t.attisdropped
        CROSS JOIN LATERAL aclexplode(t.attacl) a
        WHERE c.relnamespace = 'issuing'::regnamespace
        GROUP BY 1, 2, 3
    LOOP
        given := format('BEGIN SET LOCAL citus.enable_ddl_propagation = off; GRANT %s (%s) ON %s TO %s; END',
                        held.what, held.columns, held.tab, held.role);
        IF EXISTS (SELECT FROM run_command_on_workers(format('DO %L', given)) r WHERE NOT r.success)
           OR EXISTS (SELECT FROM run_command_on_shards(held.tab, format(
                          'GRANT %s%s ON %%s TO %s', held.what,
                          CASE WHEN held.what <> 'INSERT' THEN format(' (%s)', held.columns) ELSE '' END, held.role)) r
                      WHERE NOT r.success) THEN
            RAISE EXCEPTION 'a node refused: GRANT % (%) ON % TO %', held.what, held.columns, held.tab, held.role;
        END IF;
    END LOOP;
END
$$;
