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

-- name: session_server :one
-- why: what the server is, on each new connection: its timeline, which each promotion raises (0 = unknown, because it
-- is a standby), whether it is a standby, and whether it takes no writes. A session to a server that another one has
-- replaced is told apart by the lower timeline. No lock.
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0
            ELSE ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int8
       END,
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool;
