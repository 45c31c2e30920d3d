-- Everything that issuing-ctl says to the database, the migrations apart. The role is issuing_operator (migrate: the owner), which has no
-- right on cards.number_record. The first five parameters of what takes filters are those of ctl/filter.c; the columns of an event are
-- those of ctl/event.h, in its order, wherever one is returned.

-- name: operator_session :none
-- why: the first statement of every session of issuing-ctl: whatever search_path the role, the database or the caller has, names are found in
-- PostgreSQL and in our schema only. A command, since it looks up no name itself.
SET search_path = pg_catalog, issuing, pg_temp;

-- name: operator_status :many
-- why: how many events each status has; walks the table once, because finished events are in no partial index. No lock.
SELECT e.status, count(*),
       coalesce(greatest(extract(epoch FROM clock_timestamp() - min(e.created_at)), 0), 0)::int8 -- age of the oldest, s
FROM issuing.outbox_events e
GROUP BY e.status;

-- name: operator_status_failed :many
-- why: the open questions by reason, most frequent first, by outbox_events_failed. No lock.
SELECT coalesce(e.reason_code, '-'), count(*), min(e.completed_at)
FROM issuing.outbox_events e
WHERE e.failed_at IS NOT NULL
GROUP BY 1
ORDER BY 2 DESC, 1
LIMIT 20;

-- name: operator_events :many
-- why: events by filter, or one by its id; newest first, keyset paging on the primary key (ids are time-ordered). No lock.
-- $1-$5 filters, $6 one id, $7 the last id of the page before, $8 limit.
SELECT e.id, e.user_id, e.payload ->> 'kind', e.status, e.event_type, e.retry_count, e.next_attempt_at, e.created_at, e.updated_at,
       e.completed_at, e.first_sent_at, e.deferred_since, e.lease_until, e.lease_owner, e.idempotency_key, e.reason_code, e.reason_detail,
       e.last_error, e.payload ->> 'replaces',
       e.first_sent_at IS NOT NULL AND c.id IS NULL AND e.status IN ('PENDING', 'FAILED'),
       c.id, c.last4, c.exp_month, c.exp_year, c.status, clock_timestamp()
FROM issuing.outbox_events e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id
WHERE ($1::text IS NULL OR e.status = $1::text)
  AND ($2::text IS NULL OR e.event_type = $2::text)
  AND ($3::text IS NULL OR e.reason_code = $3::text)
  AND ($4::text IS NULL OR e.user_id = $4::text)
  AND ($5::int8 IS NULL OR e.created_at >= now() - $5::int8 * interval '1 microsecond')
  AND ($6::uuid IS NULL OR e.id = $6::uuid)
  AND ($7::uuid IS NULL OR e.id < $7::uuid)
ORDER BY e.id DESC
LIMIT $8::int8;

-- name: operator_attempts :many
-- why: the history of one event, newest first so that the limit cuts the oldest; primary key. No lock. $1 event, $2 limit.
SELECT a.attempt, a.worker, a.started_at, a.ended_at, a.step, a.outcome, a.code, a.detail, a.unknown
FROM issuing.outbox_attempts a
WHERE a.event_id = $1::uuid
ORDER BY a.started_at DESC, a.attempt DESC
LIMIT $2::int8;

-- name: operator_actions_of :many
-- why: what people did to one event, in order; operator_actions_event. No lock. $1 event.
SELECT o.at, o.actor, o.action, o.reason, o.before::text, o.after::text, o.db_role, o.os_user, o.sudo_user
FROM issuing.operator_actions o
WHERE o.event_id = $1::uuid
ORDER BY o.id
LIMIT 10000;

-- name: operator_replay_count :one
-- why: how many FAILED events match, and the horizon of one bulk action: what fails after it is news, and left alone. The horizon is the database's
-- time, or later where a clock stepped back and a row that is there already bears a later time. $1-$5 filters.
SELECT count(*), greatest(clock_timestamp(), max(e.updated_at))
FROM issuing.outbox_events e
WHERE e.failed_at IS NOT NULL
  AND ($1::text IS NULL OR e.status = $1::text)
  AND ($2::text IS NULL OR e.event_type = $2::text)
  AND ($3::text IS NULL OR e.reason_code = $3::text)
  AND ($4::text IS NULL OR e.user_id = $4::text)
  AND ($5::int8 IS NULL OR e.created_at >= now() - $5::int8 * interval '1 microsecond');

-- name: operator_replay_page :many
-- why: the next FAILED events that match, oldest first, keyset paging on outbox_events_failed. Takes no lock: updated_at says which state of
-- the row was seen, and operator_replay and operator_resolve act on that state only. $1-$5 filters, $6 horizon in us, $7 the last id of the page before, $8 limit.
SELECT e.id, e.updated_at
FROM issuing.outbox_events e
WHERE e.failed_at IS NOT NULL
  AND ($1::text IS NULL OR e.status = $1::text)
  AND ($2::text IS NULL OR e.event_type = $2::text)
  AND ($3::text IS NULL OR e.reason_code = $3::text)
  AND ($4::text IS NULL OR e.user_id = $4::text)
  AND ($5::int8 IS NULL OR e.created_at >= now() - $5::int8 * interval '1 microsecond')
  AND (extract(epoch FROM e.updated_at) * 1000000)::int8 <= $6::int8
  AND ($7::uuid IS NULL OR e.id > $7::uuid)
ORDER BY e.id
LIMIT $8::int8;

-- name: operator_cancel_count :one
-- why: as operator_replay_count, of the PENDING events that match and surely were not sent; outbox_events_due. No lock. $1-$5 filters.
SELECT count(*), greatest(clock_timestamp(), max(e.updated_at))
FROM issuing.outbox_events e
WHERE e.due_at IS NOT NULL AND e.status = 'PENDING' AND e.first_sent_at IS NULL
  AND ($1::text IS NULL OR e.status = $1::text)
  AND ($2::text IS NULL OR e.event_type = $2::text)
  AND ($3::text IS NULL OR e.reason_code = $3::text)
  AND ($4::text IS NULL OR e.user_id = $4::text)
  AND ($5::int8 IS NULL OR e.created_at >= now() - $5::int8 * interval '1 microsecond');

-- name: operator_cancel_page :many
-- why: as operator_replay_page, of the PENDING events that match and surely were not sent. No lock. $1-$5 filters, $6 horizon in us, $7 the last id of the
-- page before, $8 limit.
SELECT e.id, e.updated_at
FROM issuing.outbox_events e
WHERE e.due_at IS NOT NULL AND e.status = 'PENDING' AND e.first_sent_at IS NULL
  AND ($1::text IS NULL OR e.status = $1::text)
  AND ($2::text IS NULL OR e.event_type = $2::text)
  AND ($3::text IS NULL OR e.reason_code = $3::text)
  AND ($4::text IS NULL OR e.user_id = $4::text)
  AND ($5::int8 IS NULL OR e.created_at >= now() - $5::int8 * interval '1 microsecond')
  AND (extract(epoch FROM e.updated_at) * 1000000)::int8 <= $6::int8
  AND ($7::uuid IS NULL OR e.id > $7::uuid)
ORDER BY e.id
LIMIT $8::int8;

-- name: operator_replay :many
-- why: FAILED -> PENDING and its audit row; locks, conditions and what a replay resets are explained at issuing.replay in migrations/0009_operators.sql.
-- No row = no such event; the last column says why nothing was done. $1 event, $2 updated_at as seen in us or null, $3 actor, $4 user of the operating
-- system, $5 SUDO_USER, $6 reason.
SELECT e.id, e.user_id, e.payload ->> 'kind', e.status, e.event_type, e.retry_count, e.next_attempt_at, e.created_at, e.updated_at,
       e.completed_at, e.first_sent_at, e.deferred_since, e.lease_until, e.lease_owner, e.idempotency_key, e.reason_code, e.reason_detail,
       e.last_error, e.payload ->> 'replaces',
       e.first_sent_at IS NOT NULL AND c.id IS NULL AND e.status IN ('PENDING', 'FAILED'),
       c.id, c.last4, c.exp_month, c.exp_year, c.status, clock_timestamp(), r.refused
FROM issuing.replay($1::uuid, $2::int8, $3::text, $4::text, $5::text, $6::text) AS r
CROSS JOIN LATERAL (SELECT (r.event_row).*) AS e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id;

-- name: operator_cancel :many
-- why: PENDING -> REJECTED `cancelled` and its audit row: issuing.cancel in migrations/0009_operators.sql. $1 event, $2 updated_at as seen in us or null,
-- $3 what the user may read, $4 actor, $5 user of the operating system, $6 SUDO_USER, $7 reason.
SELECT e.id, e.user_id, e.payload ->> 'kind', e.status, e.event_type, e.retry_count, e.next_attempt_at, e.created_at, e.updated_at,
       e.completed_at, e.first_sent_at, e.deferred_since, e.lease_until, e.lease_owner, e.idempotency_key, e.reason_code, e.reason_detail,
       e.last_error, e.payload ->> 'replaces',
       e.first_sent_at IS NOT NULL AND c.id IS NULL AND e.status IN ('PENDING', 'FAILED'),
       c.id, c.last4, c.exp_month, c.exp_year, c.status, clock_timestamp(), r.refused
FROM issuing.cancel($1::uuid, $2::int8, $3::text, $4::text, $5::text, $6::text, $7::text) AS r
CROSS JOIN LATERAL (SELECT (r.event_row).*) AS e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id;

-- name: operator_resolve :many
-- why: FAILED -> REJECTED `resolved` and its audit row: issuing.resolve in migrations/0009_operators.sql. $1 event, $2 updated_at as seen in us or null,
-- $3 the operator confirms that there is no card, $4 issuer.settle_time in ms, $5 what the user may read, $6 actor, $7 user of the operating system,
-- $8 SUDO_USER, $9 reason.
SELECT e.id, e.user_id, e.payload ->> 'kind', e.status, e.event_type, e.retry_count, e.next_attempt_at, e.created_at, e.updated_at,
       e.completed_at, e.first_sent_at, e.deferred_since, e.lease_until, e.lease_owner, e.idempotency_key, e.reason_code, e.reason_detail,
       e.last_error, e.payload ->> 'replaces',
       e.first_sent_at IS NOT NULL AND c.id IS NULL AND e.status IN ('PENDING', 'FAILED'),
       c.id, c.last4, c.exp_month, c.exp_year, c.status, clock_timestamp(), r.refused
FROM issuing.resolve($1::uuid, $2::int8, $3::bool, $4::int8, $5::text, $6::text, $7::text, $8::text, $9::text) AS r
CROSS JOIN LATERAL (SELECT (r.event_row).*) AS e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id;

-- name: operator_reconcile_page :many
-- why: the next events to be looked up at the issuer, oldest first, keyset paging on the primary key; the FAILED ones by outbox_events_failed. No lock.
-- $1-$5 filters, $6 the last id of the page before, $7 limit. FAILED: those whose outcome is unknown.
SELECT e.id
FROM issuing.outbox_events e
WHERE e.event_type = 'CARD_ISSUE'
  AND (e.status <> 'FAILED' OR e.first_sent_at IS NOT NULL AND NOT EXISTS (SELECT FROM issuing.cards c WHERE c.request_id = e.id))
  AND ($1::text IS NULL OR e.status = $1::text)
  AND ($2::text IS NULL OR e.event_type = $2::text)
  AND ($3::text IS NULL OR e.reason_code = $3::text)
  AND ($4::text IS NULL OR e.user_id = $4::text)
  AND ($5::int8 IS NULL OR e.created_at >= now() - $5::int8 * interval '1 microsecond')
  AND ($6::uuid IS NULL OR e.id > $6::uuid)
ORDER BY e.id
LIMIT $7::int8;

-- name: operator_ask_reconcile :many
-- why: a mark for each event, for workers to act on: issuing.ask_reconcile in migrations/0009_operators.sql. An event has one unfinished mark, which a second
-- operator joins. $1 events, $2 time in ms, $3 actor, $4 user of the operating system, $5 SUDO_USER, $6 reason.
SELECT i.id, a.check_id, a.refused
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL issuing.ask_reconcile(i.id, $2::int8, $3::text, $4::text, $5::text, $6::text) AS a;

-- name: operator_ask_reissue :many
-- why: the mark of a reissue: issuing.ask_reissue in migrations/0009_operators.sql. $1 event, $2 time in ms, $3 actor, $4 user of the operating system,
-- $5 SUDO_USER, $6 reason.
SELECT check_id, refused
FROM issuing.ask_reissue($1::uuid, $2::int8, $3::text, $4::text, $5::text, $6::text);

-- name: operator_checks :many
-- why: what became of marks, with the event as it is now; primary keys. No lock. $1 marks.
SELECT p.id, p.event_id, p.finished_at IS NOT NULL, p.result, p.detail, p.new_id, e.status
FROM issuing.peer_checks p
LEFT JOIN issuing.outbox_events e ON e.id = p.event_id
WHERE p.id = ANY ($1::uuid[]);

-- name: operator_withdraw_check :one
-- why: nobody waits for a mark any more, and nothing shall come of it; a worker that was quicker has written its result, which is returned. $1 mark.
SELECT issuing.withdraw_check($1::uuid);

-- name: operator_doctor :one
-- why: the facts that doctor judges; settings and catalogue rows that every role may read. No table of ours is touched, so it works on an
-- empty database. A backend much older than the connection means that a pooler stands between.
SELECT current_setting('server_version_num')::int8,
       current_user::text,
       (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user),
       pg_is_in_recovery(),
       current_setting('synchronous_commit'),
       current_setting('fsync'),
       current_setting('full_page_writes'),
       current_setting('autovacuum'),
       current_setting('track_counts'),
       current_setting('default_transaction_isolation'),
       current_setting('server_encoding'),
       clock_timestamp(),
       (SELECT coalesce((extract(epoch FROM clock_timestamp() - a.backend_start) * 1000000)::int8, 0)
        FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()),
       (SELECT string_agg(coalesce(r.rolname, 'the database'), ', ' ORDER BY r.rolname)
        FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole
        WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
          AND EXISTS (SELECT FROM unnest(s.setconfig) AS o (setting) WHERE o.setting ~* '^synchronous_commit=(off|false|no|0)$')),
       current_database()::text;

-- name: operator_roles :many
-- why: which of the four roles are there, and whether one of them is a superuser (then no right of it means anything). No lock.
SELECT w.name, r.rolname IS NOT NULL, coalesce(r.rolsuper, false)
FROM unnest(ARRAY['issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator']) WITH ORDINALITY AS w (name, n)
LEFT JOIN pg_roles r ON r.rolname = w.name
ORDER BY w.n;

-- name: operator_rights :many
-- why: rights that are not as grants.sql leaves them: missing, or there and dangerous. Needs the tables. No lock.
SELECT w.role, w.tab, w.col, w.right_, w.wanted
FROM (VALUES
    ('issuing_api', 'schema_migration', NULL, 'SELECT', true),
    ('issuing_api', 'outbox_events', NULL, 'SELECT', true),
    ('issuing_api', 'outbox_events', 'payload', 'INSERT', true),
    ('issuing_api', 'outbox_events', 'status', 'UPDATE', false),
    ('issuing_api', 'idempotency_keys', NULL, 'INSERT', true),
    ('issuing_api', 'idempotency_keys', NULL, 'DELETE', false),
    ('issuing_api', 'rate_limit_log', NULL, 'INSERT', true),
    ('issuing_api', 'cards', 'last4', 'SELECT', true),
    ('issuing_api', 'cards', 'number_record', 'SELECT', false),
    ('issuing_api', 'cards', NULL, 'INSERT', false),
    ('issuing_api', 'operator_actions', 'actor', 'INSERT', false),
    ('issuing_api', 'operator_actions', NULL, 'DELETE', false),
    ('issuing_worker', 'schema_migration', NULL, 'SELECT', true),
    ('issuing_worker', 'outbox_events', 'lease_token', 'UPDATE', true),
    ('issuing_worker', 'outbox_events', 'payload', 'UPDATE', false),
    ('issuing_worker', 'outbox_events', NULL, 'DELETE', false),
    ('issuing_worker', 'outbox_attempts', NULL, 'INSERT', true),
    ('issuing_worker', 'cards', NULL, 'INSERT', true),
    ('issuing_worker', 'cards', 'status', 'UPDATE', true),
    ('issuing_worker', 'cards', 'number_record', 'UPDATE', false),
    ('issuing_worker', 'cards', 'number_record', 'SELECT', false),
    ('issuing_worker', 'idempotency_keys', NULL, 'DELETE', false),
    ('issuing_worker', 'rate_limit_log', NULL, 'DELETE', false),
    ('issuing_worker', 'operator_actions', NULL, 'DELETE', false),
    ('issuing_operator', 'schema_migration', NULL, 'SELECT', true),
    ('issuing_operator', 'outbox_events', NULL, 'SELECT', true),
    ('issuing_operator', 'outbox_events', 'status', 'UPDATE', false),
    ('issuing_operator', 'outbox_events', NULL, 'DELETE', false),
    ('issuing_operator', 'outbox_attempts', NULL, 'SELECT', true),
    ('issuing_operator', 'cards', 'last4', 'SELECT', true),
    ('issuing_operator', 'cards', 'number_record', 'SELECT', false),
    ('issuing_operator', 'operator_actions', 'actor', 'INSERT', false),
    ('issuing_operator', 'peer_checks', NULL, 'SELECT', true),
    ('issuing_operator', 'peer_checks', NULL, 'INSERT', false),
    ('issuing_operator', 'event_reissues', NULL, 'INSERT', false),
    ('issuing_worker', 'peer_checks', NULL, 'INSERT', false),
    ('issuing_operator', 'operator_actions', NULL, 'UPDATE', false),
    ('issuing_operator', 'operator_actions', NULL, 'DELETE', false)
) AS w (role, tab, col, right_, wanted)
JOIN pg_roles r ON r.rolname = w.role AND NOT r.rolsuper
WHERE w.wanted <> CASE WHEN w.col IS NULL THEN has_table_privilege(r.oid, 'issuing.' || w.tab, w.right_)
                       ELSE has_column_privilege(r.oid, 'issuing.' || w.tab, w.col, w.right_) END
UNION ALL
SELECT w.role, w.function || '()', NULL, 'EXECUTE', w.wanted
FROM (VALUES
    ('issuing_operator', 'replay', true),
    ('issuing_operator', 'cancel', true),
    ('issuing_operator', 'resolve', true),
    ('issuing_operator', 'ask_reconcile', true),
    ('issuing_operator', 'ask_reissue', true),
    ('issuing_operator', 'withdraw_check', true),
    ('issuing_operator', 'end_check', false),
    ('issuing_worker', 'ask_check', true),
    ('issuing_worker', 'take_checks', true),
    ('issuing_worker', 'put_check_back', true),
    ('issuing_worker', 'note_orphan', true),
    ('issuing_worker', 'end_check', true),
    ('issuing_worker', 'replay', false),
    ('issuing_worker', 'resolve', false),
    ('issuing_api', 'replay', false),
    ('issuing_api', 'end_check', false)
) AS w (role, function, wanted)
JOIN pg_roles r ON r.rolname = w.role AND NOT r.rolsuper
WHERE w.wanted <> EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'issuing'::regnamespace AND p.proname = w.function
                            AND has_function_privilege(r.oid, p.oid, 'EXECUTE'))
ORDER BY 1, 2, 3, 4;

-- name: operator_migrate_lock :one
-- why: one migrate at a time. Session-scoped, because several transactions run under it, and tried instead of waited for, because a waiter
-- would hold a snapshot. The worker's housekeeping has (4711, 1).
SELECT pg_try_advisory_lock(4711, 3);

-- name: operator_migrate_state :one
-- why: whether there is a schema, who owns it, and as whom to go on: as the owner of what is there, else as issuing_owner; null when the
-- connected role may not become that; and in which schema it is. From PostgreSQL 16 on membership alone does not allow SET ROLE.
SELECT m.oid IS NOT NULL, current_user::text, r.rolname::text, c.relnamespace::regnamespace::text
FROM (SELECT coalesce(to_regclass('issuing.schema_migration'), to_regclass('public.schema_migration'))::oid AS oid) m
LEFT JOIN pg_class c ON c.oid = m.oid
LEFT JOIN pg_roles r ON (CASE WHEN c.oid IS NULL THEN r.rolname = 'issuing_owner' ELSE r.oid = c.relowner END)
    AND pg_has_role(current_user, r.oid, CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END);

-- name: operator_migrate_as :one
-- why: SET ROLE with a parameter; for the rest of the session. $1 role.
SELECT set_config('role', $1::text, false);

-- name: operator_migrate_table :none
-- why: the list of what was applied; the only table that no numbered file makes. 0005 moves it to the schema issuing. Under
-- operator_migrate_lock.
CREATE TABLE public.schema_migration (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    sha256     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_by text NOT NULL DEFAULT session_user,
    ms         int NOT NULL
);

-- name: operator_migrate_path :one
-- why: the search_path of the session: names without a schema are found in ours, before 0005 has run in public; nowhere else.
SELECT set_config('search_path', $1::text, false);

-- name: operator_migrate_applied :many
-- why: what was applied, in order. The table is where operator_migrate_path looks. No lock.
SELECT m.version, m.name, m.sha256, m.applied_at, m.applied_by, m.ms
FROM schema_migration m
ORDER BY m.version;

-- name: operator_migrate_begin :none
-- why: a numbered file and its row in schema_migration are one transaction.
BEGIN;

-- name: operator_migrate_patience :one
-- why: inside that transaction: a migration that waits for a lock makes everybody behind it wait as well, so it gives up soon and is tried
-- again. $1 lock_timeout, e.g. 3s.
SELECT set_config('lock_timeout', $1::text, true);

-- name: operator_migrate_note :none
-- why: in the transaction of the file itself. $1 version, $2 name, $3 sha256, $4 ms.
INSERT INTO schema_migration (version, name, sha256, ms) VALUES ($1::int8, $2::text, $3::text, $4::int8);

-- name: operator_migrate_commit :none
-- why: the end of operator_migrate_begin.
COMMIT;

-- name: operator_migrate_rollback :none
-- why: the other end of operator_migrate_begin.
ROLLBACK;

-- name: operator_number_keys :many
-- why: how many card numbers each key holds: issuing.number_keys in migrations/0010_card_numbers.sql. Reads all cards once; counts only. No lock.
SELECT key_id, records
FROM issuing.number_keys();

-- name: owner_rewrap_take :many
-- why: the next card numbers that are not sealed with the active key, locked until the end of the transaction: issuing.rewrap_take in
-- migrations/0010_card_numbers.sql. For the owner of the tables only. $1 user and $2 card to go on behind (null = from the beginning), $3 active key,
-- $4 how many cards to look at.
SELECT id, user_id, number_record, looked_at_user, looked_at_card, left_out
FROM issuing.rewrap_take($1::text, $2::uuid, $3::int8, $4::int8);

-- name: owner_rewrap_put :one
-- why: stores them sealed again, each over the record that was opened, with an audit row: issuing.rewrap_put. $1 cards, $2 users, $3 old records,
-- $4 new records, $5 who.
SELECT issuing.rewrap_put($1::uuid[], $2::text[], $3::bytea[], $4::bytea[], $5::text);
