-- name: request_get :many
-- why: one request of one user, with its card; no lock. user_id is in the condition, so another user's id finds nothing.
SELECT e.id, e.payload ->> 'kind', e.status, e.created_at, e.updated_at, e.next_attempt_at, e.retry_count,
       e.reason_code, e.reason_detail, c.id, c.last4, c.exp_month, c.exp_year, c.status, e.deferred_since IS NOT NULL OR e.last_error IS NOT NULL
FROM issuing.outbox_events e
LEFT JOIN issuing.cards c ON c.request_id = e.id
WHERE e.id = $1::uuid AND e.user_id = $2::text;

-- name: request_list :many
-- why: newest first by id (time-ordered), keyset paging on outbox_events_user; no lock. $2 = the last id of the page before, or null.
SELECT e.id, e.payload ->> 'kind', e.status, e.created_at, e.updated_at, e.next_attempt_at, e.retry_count,
       e.reason_code, e.reason_detail, c.id, c.last4, c.exp_month, c.exp_year, c.status, e.deferred_since IS NOT NULL OR e.last_error IS NOT NULL
FROM issuing.outbox_events e
LEFT JOIN issuing.cards c ON c.request_id = e.id
WHERE e.user_id = $1::text AND e.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
ORDER BY e.id DESC
LIMIT $3::int8;

-- name: requests_final :many
-- why: which of the requests that clients wait for have reached a final status; one statement for all waiters, by primary key, no lock.
SELECT e.id
FROM issuing.outbox_events e
WHERE e.id = ANY ($1::uuid[]) AND e.status IN ('COMPLETED', 'REJECTED', 'FAILED')
ORDER BY e.id;

-- name: card_get :many
-- why: one card of one user. A card whose request has not completed is not the user's yet; a cancelled one is shown as such.
SELECT c.id, c.last4, c.exp_month, c.exp_year, c.status
FROM issuing.cards c
WHERE c.id = $1::uuid AND c.user_id = $2::text
  AND (c.status = 'cancelled' OR NOT EXISTS (SELECT FROM issuing.outbox_events e WHERE e.id = c.request_id AND e.status <> 'COMPLETED'));

-- name: card_list :many
-- why: as card_get; newest first, keyset paging on the primary key.
SELECT c.id, c.last4, c.exp_month, c.exp_year, c.status
FROM issuing.cards c
WHERE c.user_id = $1::text AND c.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
  AND (c.status = 'cancelled' OR NOT EXISTS (SELECT FROM issuing.outbox_events e WHERE e.id = c.request_id AND e.status <> 'COMPLETED'))
ORDER BY c.id DESC
LIMIT $3::int8;

-- name: card_number :many
-- why: the encrypted number, and the audit row of its being shown, by one function: issuing.reveal_number in migrations/0010_card_numbers.sql. The api has
-- no other way to a number. number_record is null when its key is none of $3. $1 card, $2 user, $3 the ids of the keys that this api can open.
SELECT id, exp_month, exp_year, number_record, key_id
FROM issuing.reveal_number($1::uuid, $2::text, $3::int8[]);

-- name: notify_wake :many
-- why: a hint to workers, in a transaction of its own: NOTIFY takes a database-wide lock at commit and has no place in the accepting one. Its commit
-- does not wait for the disk, since there is nothing in it to write: a hint that a crash loses is a hint lost.
SELECT issuing.hint('issuing_wake')::text;

-- name: notify_final :many
-- why: a hint to the api that some request reached a final status; outside the finishing transaction for the same reason.
SELECT issuing.hint('issuing_final')::text;
