-- Moving a bucket between cells, as the owner of the tables (ctl/cells/cell_move.c). Each function is one transaction, and
-- each compares bucket, state and move, so two movers, or one that wakes up late, do no harm. docs/scaling.md has the
-- states.

-- name: cell_session :one
-- why: the first statement of a mover's session. A transaction that is left open must not hold a bucket's lock; who
-- waits for that lock keeps writers out, so the wait is short and tried again; a commit of a move must be durable on
-- the standbys too, since a failover that forgets that a bucket has left makes two owners. The server ends the session
-- within seconds when the mover's host is gone, whatever it waits for. $1 the longest statement in ms.
SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', false),
       pg_catalog.set_config('lock_timeout', '250ms', false),
       pg_catalog.set_config('tcp_keepalives_idle', '4s', false),
       pg_catalog.set_config('tcp_keepalives_interval', '2s', false),
       pg_catalog.set_config('tcp_keepalives_count', '3', false),
       pg_catalog.set_config('tcp_user_timeout', '10s', false),
       pg_catalog.set_config('client_connection_check_interval', '2s', false),
       pg_catalog.set_config('statement_timeout', $1::int8::text || 'ms', false),
       pg_catalog.set_config('synchronous_commit',
                             CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
                                  ELSE pg_catalog.current_setting('synchronous_commit') END, false);

-- name: cell_actor :one
-- why: the second one of an owner's session: who writes the audit rows. $1 actor, $2 user of the operating system, $3
-- SUDO_USER, $4 reason.
SELECT issuing.cell_actor($1::text, $2::text, $3::text, $4::text);

-- name: cell_statement_timeout :one
-- why: the scan for the users of a bucket reads whole tables, and every other statement is short. $1 milliseconds, 0 =
-- no limit. What waits for all writers of a table, as `cell init` does, waits longer for its locks.
SELECT pg_catalog.set_config('statement_timeout', $1::int8::text || 'ms', false),
       pg_catalog.set_config('lock_timeout', CASE WHEN $1::int8 = 0 THEN '10s' ELSE '250ms' END, false);

-- name: cell_copy_timeout :many
-- why: the same for the rest of this transaction, since a copy is part of a pause. The users of a bucket are few, and
-- everything else is found by them, whatever the statistics of the tables say. $1 milliseconds.
SELECT pg_catalog.set_config('statement_timeout', $1::int8::text || 'ms', true),
       pg_catalog.set_config(o.name, 'off', true)
FROM pg_catalog.unnest(ARRAY['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'jit']) AS o (name);

-- name: cell_identity :one
-- why: which database this is, wherever it was reached: two sections of the configuration with one database would move
-- a bucket onto itself. The name is null before `cell init`. No lock.
SELECT (SELECT c.name FROM issuing.cell c),
       (SELECT s.system_identifier::text FROM pg_catalog.pg_control_system() s) || '/' || d.oid::text,
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.pg_has_role(n.nspowner, 'MEMBER')
FROM pg_catalog.pg_database d, pg_catalog.pg_namespace n
WHERE d.datname = pg_catalog.current_database() AND n.nspname = 'issuing';

-- name: cell_sides :many
-- why: the state of all buckets in this cell. No lock: every function of a move compares again. Ages are the
-- database's.
SELECT b.bucket, b.state, b.other, b.move_id,
       (extract(epoch FROM clock_timestamp() - b.since) * 1000000)::int8
FROM issuing.cell_buckets b
ORDER BY b.bucket;

-- name: cell_side :many
-- why: the same of one bucket. $1 bucket.
SELECT b.bucket, b.state, b.other, b.move_id,
       (extract(epoch FROM clock_timestamp() - b.since) * 1000000)::int8
FROM issuing.cell_buckets b
WHERE b.bucket = $1::int8::int4;

-- name: cell_rows_left :one
-- why: how many events of buckets that have left are still to be deleted. By the index on users; a bucket that has left
-- has its users in cell_users. No lock.
SELECT count(*)::int8
FROM (SELECT DISTINCT u.user_id FROM issuing.cell_buckets b JOIN issuing.cell_users u ON u.bucket = b.bucket
      WHERE b.state = 'gone') u
JOIN issuing.outbox_events e ON e.user_id = u.user_id;

-- name: cell_init :one
-- why: makes this database a cell: issuing.cell_init. $1 name, $2 buckets.
SELECT issuing.cell_init($1::text, $2::int8[]::int4[]);

-- name: cell_users_outside :one
-- why: what `cell init` would mean: the users with rows here, and how many of them have a bucket that is not in $1. It
-- reads an index of each table. No lock.
SELECT count(*)::int8, count(*) FILTER (WHERE issuing.bucket_of(u.id) <> ALL ($1::int8[]))::int8
FROM issuing.cell_all_users() AS u (id);

-- name: cell_strays :many
-- why: users with rows in a cell that does not have their bucket. It reads an index of each table. No lock.
SELECT s.bucket::int8, s.users::int8 FROM issuing.cell_strays() s;

-- name: cell_list :many
-- why: here -> listing: from now on each user who writes is recorded. $1 buckets, $2 the other cell, $3 move.
SELECT issuing.cell_list($1::int8[]::int4[], $2::text, $3::uuid);

-- name: cell_list_users :one
-- why: the users who are there already, by one scan for all buckets. May be repeated. $1 buckets.
SELECT issuing.cell_list_users($1::int8[]::int4[]);

-- name: cell_clock :one
-- why: the source's clock, in microseconds since 1970, for the next one.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8;

-- name: cell_expect :one
-- why: the destination: away -> arriving; refused where the two clocks differ. $1 bucket, $2 the other cell, $3 move,
-- $4 the source's clock.
SELECT issuing.cell_expect($1::int8::int4, $2::text, $3::uuid,
                           timestamptz 'epoch' + $4::int8 * interval '1 microsecond');

-- name: cell_drain :one
-- why: listing -> draining: nothing is claimed any more. $1 bucket, $2 move.
SELECT issuing.cell_drain($1::int8::int4, $2::uuid);

-- name: cell_busy :one
-- why: how many attempts and marks of the bucket are under way. $1 bucket.
SELECT issuing.cell_busy($1::int8::int4)::int8;

-- name: cell_close :one
-- why: draining -> closed, under the bucket's exclusive lock. False: attempts are under way. $1 bucket, $2 move.
SELECT issuing.cell_close($1::int8::int4, $2::uuid);

-- name: cell_leave :one
-- why: closed -> gone: the point of no return. $1 bucket, $2 move.
SELECT issuing.cell_leave($1::int8::int4, $2::uuid);

-- name: cell_flush :one
-- why: the bucket has left, and another session may have written so: this commit waits until everything before it is
-- durable here and on the synchronous standbys, before the destination takes the bucket.
SELECT pg_catalog.pg_logical_emit_message(true, 'issuing cell', '')::text;

-- name: cell_arrive :one
-- why: arriving -> here. $1 bucket, $2 move.
SELECT issuing.cell_arrive($1::int8::int4, $2::uuid);

-- name: cell_open :one
-- why: undo: listing, draining or closed -> here. $1 bucket, $2 move.
SELECT issuing.cell_open($1::int8::int4, $2::uuid);

-- name: cell_refuse :one
-- why: undo: what was copied is deleted, arriving -> away. $1 bucket, $2 move.
SELECT issuing.cell_refuse($1::int8::int4, $2::uuid);

-- name: cell_empty :one
-- why: deletes rows of a bucket that has left; with the last ones gone -> away. $1 bucket, $2 rows at most.
SELECT issuing.cell_empty($1::int8::int4, $2::int8);

-- name: cell_begin_read :none
-- why: the source's side of a copy: one snapshot for all tables and their fingerprints.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: cell_begin :none
-- why: the destination's side of a copy: one transaction.
BEGIN;

-- name: cell_commit :none
-- why: the end of either.
COMMIT;

-- name: cell_rollback :none
-- why: the end of either after a failure.
ROLLBACK;

-- name: cell_hold :one
-- why: locks the bucket's row in the destination, so that an undo waits for the copy, and a copy that comes after an
-- undo finds no row. $1 bucket, $2 move. 0: not arriving under this move.
WITH held AS (SELECT b.bucket FROM issuing.cell_buckets b
              -- guard: an undo waits for the copy under way
              WHERE b.bucket = $1::int8::int4 AND b.state = 'arriving' AND b.move_id = $2::uuid FOR UPDATE)
SELECT count(*)::int8 FROM held;

-- name: cell_is_copied :one
-- why: whether an earlier mover has committed the copy: the list of users is its first table. $1 bucket.
SELECT EXISTS (SELECT FROM issuing.cell_users u WHERE u.bucket = $1::int8::int4);

-- name: cell_copy :many
-- why: the COPY of each table, in order. $1 bucket.
SELECT c.name::text, c.copy_out::text, c.copy_in::text FROM issuing.cell_copy($1::int8::int4) c;

-- name: cell_fingerprint :many
-- why: the rows of a bucket, counted and summed up for each table; both sides of a copy must agree. $1 bucket.
SELECT f.name::text, f.rows::int8, f.checksum::text FROM issuing.cell_fingerprint($1::int8::int4) f;
