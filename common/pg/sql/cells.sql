-- Moving a bucket between cells, as the owner of the tables (ctl/cell_move.c). Each function is one transaction, and
-- each compares bucket, state and move, so two movers, or one that wakes up late, do no harm. docs/scaling.md has the
-- states.

-- name: cell_session :one
-- why: the first statement of a mover's session. A transaction that is left open must not hold a bucket's lock; a lock
-- that another session holds is tried again by the mover; a commit of a move must be durable on the standbys too, since
-- a failover that forgets that a bucket has left makes two owners. The actor is for the audit rows. $1 actor, $2 reason,
-- $3 the longest statement.
SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', false),
       pg_catalog.set_config('lock_timeout', '2s', false),
       pg_catalog.set_config('statement_timeout', $3::int8::text || 'ms', false),
       pg_catalog.set_config('synchronous_commit',
                             CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
                                  ELSE pg_catalog.current_setting('synchronous_commit') END, false),
       pg_catalog.set_config('issuing.actor', $1::text, false),
       pg_catalog.set_config('issuing.reason', $2::text, false);

-- name: cell_statement_timeout :one
-- why: the scan for the users of a bucket reads whole tables, and every other statement is short. $1 milliseconds, 0 =
-- no limit.
SELECT pg_catalog.set_config('statement_timeout', $1::int8::text || 'ms', false);

-- name: cell_copy_timeout :one
-- why: the same for the rest of this transaction, since a copy is part of a pause. $1 milliseconds.
SELECT pg_catalog.set_config('statement_timeout', $1::int8::text || 'ms', true);

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
-- why: the state of all buckets in this cell. No lock: every function of a move compares again. Ages are the database's.
SELECT b.bucket, b.state, b.other, b.move_id,
       (extract(epoch FROM clock_timestamp() - b.since) * 1000000)::int8
FROM issuing.cell_buckets b
ORDER BY b.bucket;

-- name: cell_side :many
-- why: the same of one bucket. $1 bucket.
SELECT b.bucket, b.state, b.other, b.move_id,
       (extract(epoch FROM clock_timestamp() - b.since) * 1000000)::int8
FROM issuing.cell_buckets b
WHERE b.bucket = $1::int8::int2;

-- name: cell_rows_left :one
-- why: how many events of buckets that have left are still to be deleted. By the index on users; a bucket that has left
-- has its users in cell_users. No lock.
SELECT count(*)::int8
FROM issuing.cell_buckets b
JOIN issuing.cell_users u ON u.bucket = b.bucket
JOIN issuing.outbox_events e ON e.user_id = u.user_id
WHERE b.state = 'gone';

-- name: cell_init :none
-- why: makes this database a cell: issuing.cell_init. $1 name, $2 buckets.
SELECT issuing.cell_init($1::text, $2::int8[]::int2[]);

-- name: cell_users_outside :one
-- why: what `cell init` would mean: the users with rows here, and how many of them have a bucket that is not in $1. It
-- reads the tables. No lock.
WITH users AS (
    SELECT e.user_id FROM issuing.outbox_events e
    UNION SELECT k.user_id FROM issuing.idempotency_keys k
    UNION SELECT l.user_id FROM issuing.rate_limit_log l
    UNION SELECT c.user_id FROM issuing.cards c
    UNION SELECT r.user_id FROM issuing.card_reissues r
)
SELECT count(*)::int8, count(*) FILTER (WHERE issuing.bucket_of(u.user_id) <> ALL ($1::int8[]))::int8
FROM users u;

-- name: cell_strays :many
-- why: users with rows in a cell that does not have their bucket: no state but away may have rows, and without a row of
-- cell_buckets none. It reads the tables, for `cell verify`. $1 how many to name.
WITH users AS (
    SELECT e.user_id FROM issuing.outbox_events e
    UNION SELECT k.user_id FROM issuing.idempotency_keys k
    UNION SELECT l.user_id FROM issuing.rate_limit_log l
    UNION SELECT c.user_id FROM issuing.cards c
    UNION SELECT r.user_id FROM issuing.card_reissues r
    UNION SELECT a.user_id FROM issuing.outbox_attempts a
)
SELECT x.bucket::int8, min(x.user_id), count(*)::int8
FROM (SELECT u.user_id, issuing.bucket_of(u.user_id) AS bucket FROM users u) x
LEFT JOIN issuing.cell_buckets b ON b.bucket = x.bucket
WHERE b.bucket IS NULL OR b.state = 'away'
GROUP BY 1
ORDER BY 1
LIMIT $1::int8;

-- name: cell_list :none
-- why: here -> listing: from now on each user who writes is recorded. $1 buckets, $2 the other cell, $3 move.
SELECT issuing.cell_list($1::int8[]::int2[], $2::text, $3::uuid);

-- name: cell_list_users :none
-- why: the users who are there already, by one scan for all buckets. May be repeated. $1 buckets.
SELECT issuing.cell_list_users($1::int8[]::int2[]);

-- name: cell_expect :none
-- why: the destination: away -> arriving. $1 bucket, $2 the other cell, $3 move.
SELECT issuing.cell_expect($1::int8::int2, $2::text, $3::uuid);

-- name: cell_drain :none
-- why: listing -> draining: nothing is claimed any more. $1 bucket, $2 move.
SELECT issuing.cell_drain($1::int8::int2, $2::uuid);

-- name: cell_busy :one
-- why: how many attempts and marks of the bucket are under way. $1 bucket.
SELECT issuing.cell_busy($1::int8::int2)::int8;

-- name: cell_close :none
-- why: draining -> closed, under the bucket's exclusive lock. $1 bucket, $2 move.
SELECT issuing.cell_close($1::int8::int2, $2::uuid);

-- name: cell_leave :none
-- why: closed -> gone: the point of no return. $1 bucket, $2 move.
SELECT issuing.cell_leave($1::int8::int2, $2::uuid);

-- name: cell_flush :one
-- why: the bucket has left, and another session may have written so: this commit waits until everything before it is
-- durable here and on the synchronous standbys, before the destination takes the bucket.
SELECT pg_catalog.pg_logical_emit_message(true, 'issuing cell', '')::text;

-- name: cell_arrive :none
-- why: arriving -> here. $1 bucket, $2 move.
SELECT issuing.cell_arrive($1::int8::int2, $2::uuid);

-- name: cell_open :none
-- why: undo: listing, draining or closed -> here. $1 bucket, $2 move.
SELECT issuing.cell_open($1::int8::int2, $2::uuid);

-- name: cell_refuse :none
-- why: undo: what was copied is deleted, arriving -> away. $1 bucket, $2 move.
SELECT issuing.cell_refuse($1::int8::int2, $2::uuid);

-- name: cell_empty :one
-- why: deletes rows of a bucket that has left; with the last ones gone -> away. $1 bucket, $2 rows at most.
SELECT issuing.cell_empty($1::int8::int2, $2::int8::int4)::int8;

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
              WHERE b.bucket = $1::int8::int2 AND b.state = 'arriving' AND b.move_id = $2::uuid FOR UPDATE)
SELECT count(*)::int8 FROM held;

-- name: cell_copy :many
-- why: the COPY of each table, in order. $1 bucket.
SELECT c.name::text, c.copy_out::text, c.copy_in::text FROM issuing.cell_copy($1::int8::int2) c;

-- name: cell_fingerprint :many
-- why: the rows of a bucket, counted and summed up for each table; both sides of a copy must agree. $1 bucket.
SELECT f.name::text, f.rows::int8, f.checksum::text FROM issuing.cell_fingerprint($1::int8::int2) f;
