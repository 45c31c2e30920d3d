-- What `migrate`, `keys rewrap` and `accept-history` do beside the schema itself.

-- name: operator_migrate_lock :one
-- why: one migrate at a time. Session-scoped, because several transactions run under it, and tried instead of waited
-- for, because a waiter would hold a snapshot.
SELECT pg_try_advisory_lock(4711, 3);

-- name: operator_migrate_state :one
-- why: whether there is a schema, who is connected, as which role to go on, and whether the users are divided by
-- buckets or over schemas, as in no release. The role is the owner of the existing tables, or issuing_owner; null when
-- the connected role may not become it. From PostgreSQL 16 on membership alone does not allow SET ROLE.
SELECT m.oid IS NOT NULL, current_user::text, r.rolname::text,
       coalesce(to_regclass('issuing.cell_buckets'), to_regclass('issuing.places')) IS NOT NULL
FROM (SELECT to_regclass('issuing.schema_migration')::oid AS oid) m
LEFT JOIN pg_class c ON c.oid = m.oid
LEFT JOIN pg_roles r ON (CASE WHEN c.oid IS NULL THEN r.rolname = 'issuing_owner' ELSE r.oid = c.relowner END)
    AND pg_has_role(current_user, r.oid,
                    CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END);

-- name: operator_migrate_as :one
-- why: SET ROLE with a parameter, for the rest of the session. $1 role.
SELECT set_config('role', $1::text, false);

-- name: operator_migrate_settings :one
-- why: what the files are read under, whatever the role or the database has set (as schema_version does it), the
-- encoding of the database, and the version of PostgreSQL.
SELECT current_setting('server_encoding'),
       current_setting('server_version_num')::int8,
       (SELECT count(set_config(s.name, s.value, false))
        FROM (VALUES ('datestyle', 'ISO, YMD'), ('timezone', 'UTC'), ('intervalstyle', 'postgres'),
                     ('bytea_output', 'hex'), ('standard_conforming_strings', 'on'), ('array_nulls', 'on'),
                     ('extra_float_digits', '1'), ('transform_null_equals', 'off'), ('quote_all_identifiers', 'off'),
                     ('row_security', 'on'), ('statement_timeout', '0'), ('jit', 'off'),
                     ('search_path', 'pg_catalog, issuing, pg_temp')) s (name, value));

-- name: operator_migrate_applied :many
-- why: the applied versions, in order. No lock.
SELECT m.version, m.name, m.sha256, m.applied_at, m.applied_by, m.ms
FROM issuing.schema_migration m
ORDER BY m.version;

-- name: operator_migrate_begin :none
-- why: upgrades, functions, rights and the rows in schema_migration are one transaction.
BEGIN;

-- name: operator_migrate_lock_timeout :one
-- why: inside that transaction: other sessions wait behind a migration that waits for a lock, so it gives up soon and
-- is tried again. $1 lock_timeout, e.g. 3s.
SELECT set_config('lock_timeout', $1::text, true);

-- name: operator_migrate_note :none
-- why: in the transaction of the upgrade itself. $1 version, $2 name, $3 sha256, $4 ms.
INSERT INTO issuing.schema_migration (version, name, sha256, ms) VALUES ($1::int8, $2::text, $3::text, $4::int8);

-- name: operator_migrate_commit :none
-- why: the end of operator_migrate_begin.
COMMIT;

-- name: operator_migrate_rollback :none
-- why: the other end of operator_migrate_begin.
ROLLBACK;

-- name: operator_number_keys :many
-- why: the number of card numbers under each key: issuing.number_keys. Reads all cards once; counts only. No lock.
SELECT key_id, records
FROM issuing.number_keys();

-- name: owner_rewrap_take :many
-- why: the next card numbers that are not sealed with the active key, locked until the end of the transaction:
-- issuing.rewrap_take. For the owner of the tables only. $1 user and $2 card after which to go on (null = from the
-- beginning), $3 active key, $4 number of cards to look at.
SELECT id, user_id, number_record, looked_at_user, looked_at_card, left_out
FROM issuing.rewrap_take($1::text, $2::uuid, $3::int8, $4::int8);

-- name: owner_rewrap_put :one
-- why: stores them sealed again, each over the record that was opened, with an audit row: issuing.rewrap_put. $1 cards,
-- $2 users, $3 old records, $4 new records, $5 who.
SELECT issuing.rewrap_put($1::uuid[], $2::text[], $3::bytea[], $4::bytea[], $5::text);

-- name: operator_accept_history :one
-- why: what programs have found missing is accepted, with its audit row: issuing.accept_history. null = there was
-- nothing. $1 actor, $2 user of the operating system, $3 SUDO_USER, $4 reason.
SELECT issuing.accept_history($1::text, $2::text, $3::text, $4::text);
