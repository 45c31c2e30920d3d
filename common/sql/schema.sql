-- name: schema_version :one
-- why: asked on each new connection, so that a program never works on a schema it was not written for. One row always; without the table
-- (nothing was migrated yet, or by an older release) the server says 42P01, which means version 0. No lock that a migration would wait for.
-- It also pins the search_path of the session, whatever the role or the database has: no operator or function of another schema is found.
SELECT coalesce(pg_catalog.max(version), 0)::pg_catalog.int8, pg_catalog.set_config('search_path', 'pg_catalog, issuing, pg_temp', false) FROM issuing.schema_migration;
