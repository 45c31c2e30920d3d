-- Run at the start of every migrate. Makes the five roles when it may. They log in by whatever pg_hba.conf says; no
-- password is set here.
--   issuing_owner     owns the tables; migrations run as it
--   issuing_api       accepts requests, reads requests and cards of one user at a time
--   issuing_worker    claims, saves, finishes, cleans up
--   issuing_operator  reads everything but card numbers, changes events by functions that write the audit trail
--   issuing_viewer    reads what an operator reads, changes nothing
DO $$
DECLARE
    ours constant text[] := ARRAY['issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator',
                                  'issuing_viewer'];
    r text;
BEGIN
    FOREACH r IN ARRAY ours LOOP
        IF to_regrole(r) IS NULL THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I LOGIN', r);
            EXCEPTION
                WHEN insufficient_privilege THEN
                    RAISE NOTICE 'role % is missing and may not be created by %', r, current_user;
                WHEN duplicate_object OR unique_violation THEN
                    NULL; -- another migrate was quicker: roles belong to the whole cluster
            END;
        END IF;
    END LOOP;
    FOREACH r IN ARRAY ours LOOP
        BEGIN
            -- What a session of ours names without a schema is ours or PostgreSQL's, and nothing that others may
            -- create.
            EXECUTE format('ALTER ROLE %I SET search_path = pg_catalog, issuing, pg_temp', r);
            -- JIT costs more than any statement of ours takes: views over a backlog were 6 to 17 times slower.
            EXECUTE format('ALTER ROLE %I SET jit = off', r);
            IF r IN ('issuing_api', 'issuing_worker') THEN
                -- A client that gave up on a statement cannot take it back; this bounds how long it runs on.
                EXECUTE format('ALTER ROLE %I SET statement_timeout = %L', r, '15s');
                EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', r, '15s');
            END IF;
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; -- not ours to set
        END;
    END LOOP;
    IF to_regrole('issuing_owner') IS NOT NULL AND to_regnamespace('issuing') IS NULL THEN
        BEGIN
            CREATE SCHEMA issuing AUTHORIZATION issuing_owner;
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'the schema issuing was not made by %', current_user;
        END;
    END IF;
END
$$;
