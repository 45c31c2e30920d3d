-- Takes distribute.sql back: the tables of the schema `issuing` are the coordinator's own again, with all their rows.
-- Run it on the coordinator, as a superuser, while no program runs; `issuing-ctl migrate` must follow, which gives the
-- programs their rights back:
--
--     psql -X -v ON_ERROR_STOP=1 -d issuing -f undistribute.sql

SET client_min_messages = warning;
SET search_path = pg_catalog; -- so that names are written with their schema
SET check_function_bodies = off;

BEGIN;

-- Citus makes the tables anew, and the functions with a row of one as a parameter or result go with the old ones.
CREATE TEMP TABLE kept ON COMMIT DROP AS
SELECT p.oid, p.oid::regprocedure::text AS name, p.proowner::regrole::text AS owner, pg_get_functiondef(p.oid) AS text,
       has_function_privilege('public', p.oid, 'EXECUTE') AS is_public
FROM pg_proc p
WHERE p.pronamespace = 'issuing'::regnamespace AND p.prokind = 'f';

SELECT citus_schema_undistribute('issuing');

DO $$
DECLARE
    f record;
BEGIN
    SET LOCAL citus.enable_ddl_propagation = off;
    FOR f IN SELECT k.* FROM pg_temp.kept k WHERE to_regprocedure(k.name) IS NULL ORDER BY k.oid LOOP
        EXECUTE f.text;
        EXECUTE format('ALTER FUNCTION %s OWNER TO %s', f.name, f.owner);
        IF NOT f.is_public THEN
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.name);
        END IF;
    END LOOP;
END
$$;

DO $$
DECLARE
    f regprocedure;
BEGIN
    EXECUTE format('ALTER DATABASE %I RESET plan_cache_mode', current_database());
    FOR f IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace = 'issuing'::regnamespace AND 'plan_cache_mode=force_custom_plan' = ANY (p.proconfig)
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', f);
    END LOOP;
END
$$;

COMMIT;
