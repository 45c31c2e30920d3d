-- Takes distribute.sql back: the tables of the schema `issuing` are the coordinator's own again, with all their rows.
-- Run it on the coordinator, as a superuser, while no program runs:
--
--     psql -X -v ON_ERROR_STOP=1 -d issuing -f undistribute.sql

SET client_min_messages = warning;

SELECT citus_schema_undistribute('issuing');

DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace = 'issuing'::regnamespace AND 'plan_cache_mode=force_custom_plan' = ANY (p.proconfig)
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', f);
    END LOOP;
END
$$;
