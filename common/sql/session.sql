-- name: session_waits :one
-- why: what the sessions that this pool gave up are waiting for, asked on each new connection while there are such sessions: a commit that waits
-- for a synchronous standby is the usual cause, and the operator shall read it. A role sees the waits of its own sessions; behind a pooler the
-- processes are others, and nothing is found. $1 processes.
SELECT count(*) FILTER (WHERE a.wait_event = 'SyncRep')::int8
FROM pg_catalog.pg_stat_activity a
WHERE a.pid = ANY ($1::int8[]);
