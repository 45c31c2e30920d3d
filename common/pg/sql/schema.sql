-- name: schema_version :one
-- why: runs on each new connection, so that a program never works on a schema that it was not written for. Always one
-- row. Without the table (nothing was migrated yet, or an older release migrated) the server answers 42P01, which means
-- version 0. Takes no lock that a migration would wait for. It also fixes the search_path of the session, whatever the
-- role or the database has set: no operator or function of another schema is found. The last column is the server's
-- process: another one than the connection was told means that a pooler is in between.
SELECT coalesce(pg_catalog.max(version), 0)::pg_catalog.int8,
       pg_catalog.set_config('search_path', 'pg_catalog, issuing, pg_temp', false),
       pg_catalog.pg_backend_pid()::pg_catalog.int8 FROM issuing.schema_migration;
