-- The first statement on each new connection.

-- name: schema_version :one
-- why: runs on each new connection, so that a program never works on a schema that it was not written for. Always one
-- row. Without the table (nothing was migrated yet, or an older release migrated) the server answers 42P01, which means
-- version 0. Takes no lock that a migration would wait for. It also fixes the search_path of the session, whatever the
-- role or the database has set: no operator or function of another schema is found, also not by this statement. The
-- third column is the server's process: another one than the connection was told means that a pooler is in between. The
-- next two set what else may be set, and what statements would mean something else under: how texts become times,
-- numbers and strings; and what may be planned with (without JIT, which costs more than any statement of ours, and
-- without processes beside the session's: a count is not worth the CPU of the work). Behind a pooler this does not
-- reach every session, so functions that depend on it set it themselves. The last four columns are null where there is
-- one place; else which place this database is, of how many, the cluster_name of its home, and that of this server.
SELECT coalesce((SELECT pg_catalog.max(m.version) FROM issuing.schema_migration m), 0)::pg_catalog.int8,
       pg_catalog.set_config('search_path', 'pg_catalog, issuing, pg_temp', false),
       pg_catalog.pg_backend_pid()::pg_catalog.int8,
       (SELECT pg_catalog.count(pg_catalog.set_config(s.name, s.value, false))
        FROM (VALUES ('datestyle', 'ISO, YMD'), ('timezone', 'UTC'), ('intervalstyle', 'postgres'),
                     ('bytea_output', 'hex'), ('standard_conforming_strings', 'on'), ('array_nulls', 'on'),
                     ('extra_float_digits', '1'), ('transform_null_equals', 'off'), ('quote_all_identifiers', 'off'),
                     ('jit', 'off'), ('max_parallel_workers_per_gather', '0')) s (name, value)),
       (SELECT pg_catalog.count(pg_catalog.set_config(s.name, s.boot_val, false))
        FROM pg_catalog.pg_settings s WHERE pg_catalog.starts_with(s.name, 'enable_')),
       p.number::pg_catalog.int8, p.places::pg_catalog.int8, p.home, pg_catalog.current_setting('cluster_name')
FROM (VALUES (0)) AS one (row) LEFT JOIN issuing.place p ON true;
