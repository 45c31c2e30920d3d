-- name: schema_version :one
-- why: asked on each new connection, so that a program never works on a schema it was not written for. One row always; without the table
-- (nothing was migrated yet) the server says 42P01, which means version 0. No lock that a migration would wait for.
SELECT coalesce(max(version), 0)::int8 FROM schema_migration;
