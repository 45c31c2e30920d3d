-- What a program asks and sets on each new connection, beside schema.sql.

-- name: session_waits :one
-- why: what the sessions that this pool abandoned wait for. It runs on each new connection while there are such
-- sessions. The usual cause is a commit that waits for a synchronous standby, and the operator must see it. A role sees
-- the waits of its own sessions. Behind a pooler the processes are others, and the statement finds nothing. $1
-- processes.
SELECT count(*) FILTER (WHERE a.wait_event = 'SyncRep')::int8
FROM pg_catalog.pg_stat_activity a
WHERE a.pid = ANY ($1::int8[]);

-- name: session_settings :one
-- why: three settings would change what programs say, so each new connection sets them, whatever the role, the database
-- or the server has: PostgreSQL only warns of a commit that did not wait for its standby, acceptance, claims and
-- disclosures need READ COMMITTED, and what somebody is told must survive a crash. A fourth would end sessions on a
-- quiet night. Behind a pooler (the process is another one than the connection was told, $1) the next transaction may
-- run in another session, so nothing is set; the first column has the setting that is wrong there, null = none. The
-- second: whether the session is our own. No lock.
SELECT CASE WHEN s.is_own
            THEN nullif(pg_catalog.concat(
                     -- guard: no setting hides that a commit did not wait for its standby
                     pg_catalog.set_config('client_min_messages', 'warning', false), ', ',
                     pg_catalog.set_config('default_transaction_isolation', 'read committed', false), ', ',
                     pg_catalog.set_config('idle_session_timeout', '0', false), ', ',
                     -- guard: no setting lets a crash lose what somebody was told
                     pg_catalog.set_config('synchronous_commit', s.durable_commits, false)),
                     'warning, read committed, 0, ' || s.durable_commits)
            WHEN s.messages IN ('error', 'fatal', 'panic') THEN 'client_min_messages = ' || s.messages
            WHEN s.isolation <> 'read committed' THEN 'default_transaction_isolation = ' || s.isolation
            WHEN s.commits <> s.durable_commits AND (s.commits = 'off' OR s.standbys <> '')
            THEN 'synchronous_commit = ' || s.commits
       END,
       s.is_own
FROM (SELECT pg_catalog.pg_backend_pid() = $1::int8 AS is_own,
             pg_catalog.current_setting('client_min_messages') AS messages,
             pg_catalog.current_setting('default_transaction_isolation') AS isolation,
             pg_catalog.current_setting('synchronous_standby_names') AS standbys,
             c.commits, CASE WHEN c.commits IN ('off', 'local') THEN 'on' ELSE c.commits END AS durable_commits
      FROM (SELECT pg_catalog.current_setting('synchronous_commit') AS commits) c) s;

-- name: session_server :one
-- why: what the server is, on each new connection: its timeline, which each promotion raises (0 = unknown, because it
-- is a standby), whether it is a standby, and whether it takes no writes. A session to a server that another one has
-- replaced is told apart by the lower timeline. No lock.
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0
            ELSE ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int8
       END,
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool;

-- name: session_history :one
-- why: whether the server has the commits that this pool saw acknowledged, on each new connection to a primary:
-- issuing.check_history, which notes it where they are missing. Of what is remembered, $1 the history's name, $2 the
-- database, $3 timeline, $4 position; or nulls.
SELECT id, system, lost
FROM issuing.check_history($1::uuid, $2::text, $3::int8, $4::int8);

-- name: operator_session :none
-- why: the first statement of every session of issuing-ctl: whatever search_path the role, the database or the caller
-- has, names are found in PostgreSQL and in our schema only. A command, because a command looks up no name itself.
SET search_path = pg_catalog, issuing, pg_temp;

-- name: operator_lock_timeout :none
-- why: the second one: a command that meets a lock which another session holds for long says so and ends, since an
-- operator cannot see what it waits for. migrate and the console set a shorter time.
SET lock_timeout = '10s';
