-- Run at the start of every migrate. Makes the five roles when it may. They log in as pg_hba.conf says; no password is
-- set here.
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
    wanted record;
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
    FOR wanted IN
        SELECT o.role, v.name, v.value
        FROM unnest(ours) WITH ORDINALITY AS o (role, n)
        JOIN (VALUES
            -- What a session of ours names without a schema is ours or PostgreSQL's, and nothing that others may
            -- create.
            ('search_path', 'pg_catalog, issuing, pg_temp', false),
            -- JIT costs more than any statement of ours takes: views over a backlog were 6 to 17 times slower.
            ('jit', 'off', false),
            -- The parameters of our statements (sealed card numbers, keys and ids of users) are never written to the
            -- server's log.
            -- guard: the server logs no value of our statements
            ('log_parameter_max_length', '0', false),
            ('log_parameter_max_length_on_error', '0', false),
            ('auto_explain.log_parameter_max_length', '0', false),
            -- A client that gave up on a statement cannot take it back; this bounds how long it runs on.
            ('statement_timeout', '''15s''', true),
            ('idle_in_transaction_session_timeout', '''15s''', true)) AS v (name, value, is_of_programs)
            ON NOT v.is_of_programs OR o.role IN ('issuing_api', 'issuing_worker')
        -- PostgreSQL 15 does not have it: its auto_explain logs no values.
        WHERE v.name !~ '^auto_explain' OR current_setting('server_version_num')::int8 >= 160000
        ORDER BY o.n, v.name
    LOOP
        -- Roles belong to the cluster, and the lock of a migrate to its database. A migrate of another database that
        -- has just changed this row makes ours fail with "tuple concurrently updated" (XX000), and then it is as
        -- wanted.
        FOR tries IN REVERSE 20..1 LOOP
            EXIT WHEN EXISTS (SELECT FROM pg_db_role_setting s
                              WHERE s.setdatabase = 0 AND s.setrole = to_regrole(wanted.role)
                                AND wanted.name || '=' || btrim(wanted.value, '''') = ANY (s.setconfig));
            BEGIN
                EXECUTE format('ALTER ROLE %I SET %s = %s', wanted.role, wanted.name, wanted.value);
            EXCEPTION
                WHEN insufficient_privilege OR undefined_object THEN
                    EXIT; -- not ours to set
                WHEN internal_error OR unique_violation THEN
                    IF tries = 1 THEN
                        RAISE;
                    END IF;
            END;
        END LOOP;
    END LOOP;
    -- A schema issuing that is not ours is refused by 01_base.sql, and no right changes.
    IF to_regclass('issuing.schema_migration') IS NULL
       AND (EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = to_regnamespace('issuing'))
            OR EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = to_regnamespace('issuing'))) THEN
        RETURN;
    END IF;
    IF (SELECT u.rolsuper FROM pg_roles u WHERE u.rolname = current_user) THEN
        -- Whoever sees the key of a lock can take the lock.
        REVOKE ALL ON FUNCTION pg_catalog.pg_lock_status() FROM PUBLIC;
        REVOKE ALL ON pg_catalog.pg_locks FROM PUBLIC;
        FOREACH r IN ARRAY ARRAY['issuing_owner', 'issuing_operator', 'issuing_viewer', 'pg_monitor'] LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION pg_catalog.pg_lock_status() TO %I', r);
            EXECUTE format('GRANT SELECT ON pg_catalog.pg_locks TO %I', r);
        END LOOP;
    END IF;
    -- guard: a new database that nobody else uses is closed to everybody else
    IF to_regclass('issuing.schema_migration') IS NULL
       AND EXISTS (SELECT FROM pg_database d
                   WHERE d.datname = current_database() AND d.datacl IS NULL AND d.datname <> 'postgres'
                     AND NOT d.datistemplate AND pg_has_role(d.datdba, 'USAGE'))
       -- guard: migrate takes no right from others in their database
       AND NOT EXISTS (SELECT FROM pg_namespace n
                       WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
                         AND (n.nspname !~ '^(public|issuing(_p[0-9]+)?)$'
                              OR EXISTS (SELECT FROM pg_class c
                                         WHERE c.relnamespace = n.oid
                                           AND NOT EXISTS (SELECT FROM pg_depend x
                                                           WHERE x.objid = c.oid AND x.deptype = 'e')))) THEN
        EXECUTE format('REVOKE CONNECT, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
        FOREACH r IN ARRAY ours LOOP
            IF to_regrole(r) IS NOT NULL THEN
                EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), r);
            END IF;
        END LOOP;
    END IF;
    IF to_regrole('issuing_owner') IS NOT NULL AND to_regnamespace('issuing') IS NULL THEN
        BEGIN
            CREATE SCHEMA issuing AUTHORIZATION issuing_owner;
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'the schema issuing was not made by %', current_user;
        END;
    END IF;
END
$$;
