-- name: session_waits :one
-- why: what the sessions that this pool abandoned wait for. It runs on each new connection while there are such
-- sessions. The usual cause is a commit that waits for a synchronous standby, and the operator must see it. A role sees
-- the waits of its own sessions. Behind a pooler the processes are others, and the statement finds nothing. $1
-- processes.
SELECT count(*) FILTER (WHERE a.wait_event = 'SyncRep')::int8
FROM pg_catalog.pg_stat_activity a
WHERE a.pid = ANY ($1::int8[]);

-- name: session_process :one
-- why: the server's process, to be compared with the one that the connection was told when it was made. No lock.
SELECT pg_catalog.pg_backend_pid()::pg_catalog.int8;

-- name: session_cell :one
-- why: the cell that the database is, NULL where it is none; on each new connection of a program that must not use
-- another cell's. No lock.
SELECT (SELECT c.name FROM issuing.cell c);
