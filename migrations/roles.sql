-- Run at the start of every migrate. Makes the five roles when it may. They log in by whatever pg_hba.conf says; no password is set here.
--   issuing_owner     owns the tables; migrations run as it
--   issuing_api       accepts requests, reads requests and cards of one user at a time
--   issuing_worker    claims, saves, finishes, cleans up
--   issuing_operator  reads everything but card numbers, replays, is audited
--   issuing_viewer    reads what an operator reads, changes nothing
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator',
                           'issuing_viewer'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I LOGIN', r);
            EXCEPTION
                WHEN insufficient_privilege THEN RAISE NOTICE 'role % is missing and may not be created by %', r, current_user;
                WHEN duplicate_object OR unique_violation THEN NULL; -- somebody else was quicker: roles belong to the whole cluster
            END;
        END IF;
    END LOOP;
    -- A client that gave up on a statement cannot take it back; this bounds how long it runs on.
    FOREACH r IN ARRAY ARRAY['issuing_api', 'issuing_worker'] LOOP
        BEGIN
            EXECUTE format('ALTER ROLE %I SET statement_timeout = %L', r, '15s');
            EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', r, '15s');
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; -- not ours to set
        END;
    END LOOP;
    -- JIT costs more than any statement of ours takes, also those of people: views over a backlog were 6 to 17 times slower.
    FOREACH r IN ARRAY ARRAY['issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator',
                           'issuing_viewer'] LOOP
        BEGIN
            EXECUTE format('ALTER ROLE %I SET jit = off', r);
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; -- not ours to set
        END;
    END LOOP;
    -- What a session of ours names without a schema is ours or PostgreSQL's, and nothing that others may create. Not while the tables are in `public`:
    -- programs of a release from before 0005 name no schema, and must find them until 0005 has moved them. Then this file runs again.
    IF to_regclass('public.schema_migration') IS NULL OR to_regclass('issuing.schema_migration') IS NOT NULL THEN
        FOREACH r IN ARRAY ARRAY['issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator',
                               'issuing_viewer'] LOOP
            BEGIN
                EXECUTE format('ALTER ROLE %I SET search_path = pg_catalog, issuing, pg_temp', r);
            EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL;
            END;
        END LOOP;
    END IF;
    -- The schema belongs to whoever owns the tables, or will.
    r := coalesce((SELECT c.relowner::regrole::text FROM pg_class c WHERE c.oid = to_regclass('public.schema_migration')),
                  (SELECT quote_ident(o.rolname) FROM pg_roles o WHERE o.rolname = 'issuing_owner'));
    IF r IS NOT NULL AND NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'issuing') THEN
        BEGIN
            EXECUTE format('CREATE SCHEMA issuing AUTHORIZATION %s', r);
        EXCEPTION WHEN insufficient_privilege THEN RAISE NOTICE 'the schema issuing was not made by %', current_user;
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_owner') THEN
        BEGIN
            GRANT USAGE, CREATE ON SCHEMA public TO issuing_owner;
        EXCEPTION WHEN insufficient_privilege THEN RAISE NOTICE 'issuing_owner was not given the schema public';
        END;
    END IF;
END
$$;
