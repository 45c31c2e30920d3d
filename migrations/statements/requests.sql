-- What a client reads, and what an api writes beside acceptance.

-- part: request
SELECT e.id, e.payload ->> 'kind', e.status, e.created_at, e.updated_at, e.next_attempt_at, e.retry_count,
       e.reason_code, e.reason_detail, c.id, c.last4, c.exp_month, c.exp_year, c.status,
       e.deferred_since IS NOT NULL OR e.last_error IS NOT NULL,
       CASE WHEN e.reason_code = 'reissued' THEN (SELECT r.new_id FROM issuing.event_reissues r
                                                  WHERE r.old_id = e.id) END
FROM issuing.outbox_events e
LEFT JOIN issuing.cards c ON c.request_id = e.id
WHERE e.event_type = 'CARD_ISSUE' AND

-- name: request_get :many
-- why: one card request of one user, with its card. No lock. user_id is in the condition, so another user's id finds
-- nothing, and so does the id of an event of another type. issuing.make_notifications writes the same answer into an
-- event. $1 request, $2 user.
-- insert: request
e.id = $1::uuid AND e.user_id = $2::text;

-- name: request_list :many
-- why: newest first by id (time-ordered), keyset paging on outbox_events_user, where events of other types are passed
-- over. No lock. $1 user, $2 the last id of the previous page or null, $3 limit.
-- insert: request
e.user_id = $1::text AND e.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
ORDER BY e.id DESC
LIMIT $3::int8;

-- name: requests_final :many
-- why: which of the requests that clients wait for have reached a final status. One statement for all waiters, by
-- primary key. No lock. $1 requests.
SELECT e.id
FROM issuing.outbox_events e
WHERE e.id = ANY ($1::uuid[]) AND e.status IN ('COMPLETED', 'REJECTED', 'FAILED')
ORDER BY e.id;

-- part: users_card
-- A card belongs to its user only when its request has completed; a cancelled card is shown as cancelled.
SELECT c.id, c.last4, c.exp_month, c.exp_year, c.status
FROM issuing.cards c
WHERE (c.status = 'cancelled' OR NOT EXISTS (SELECT FROM issuing.outbox_events e
                                             WHERE e.id = c.request_id AND e.status <> 'COMPLETED'))
  AND

-- name: card_get :many
-- why: one card of one user, by the primary key. No lock. $1 card, $2 user.
-- insert: users_card
      c.id = $1::uuid AND c.user_id = $2::text;

-- name: card_list :many
-- why: like card_get; newest first, keyset paging on the primary key. $1 user, $2 the last id of the previous page or
-- null, $3 limit.
-- insert: users_card
      c.user_id = $1::text AND c.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
ORDER BY c.id DESC
LIMIT $3::int8;

-- name: card_ask_reveal :many
-- why: the audit row of a disclosure, its count and a ticket: issuing.ask_reveal; 13_numbers.sql explains the lock and
-- the races. The ticket is null when none of the keys in $3 opens the number, and when frees_in_ms is set, because too
-- many numbers were shown to this user. $1 card, $2 user, $3 ids of the keys that this api can open, $4 the most
-- numbers in a minute, at most the database's ceiling.
SELECT id, ticket, key_id, frees_in_ms, is_erased
FROM issuing.ask_reveal($1::uuid, $2::text, $3::int8[], $4::int8);

-- name: card_take_number :many
-- why: the encrypted number, in a transaction of its own: issuing.take_number gives it only once the audit row is
-- committed and on the disk. The record is null where the caller must ask again. No row: the ticket is too old. $1
-- ticket.
SELECT id, exp_month, exp_year, number_record
FROM issuing.take_number($1::uuid);

-- name: promise_retentions :one
-- why: before the api is ready the database keeps keys, and counts tries, for at least as long as this api promises; it
-- can only lengthen. Without it the housekeeping, which is a worker's, would drop them by the worker's configuration.
-- Returns for how long keys were kept before, and are from now on, in ms. $1 idempotency.retention and $2 limit.window
-- in ms.
SELECT keys_before_ms, keys_ms
FROM issuing.promise_retentions($1::int8 * interval '1 millisecond', $2::int8 * interval '1 millisecond');

-- name: notify_wake :many
-- why: a wakeup for workers, in a transaction of its own: NOTIFY takes a database-wide lock at commit, so it must not
-- be part of an acceptance. The commit does not wait for the disk, because the transaction writes nothing.
SELECT issuing.hint('issuing_wake')::text;

-- name: notify_final :many
-- why: a wakeup for apis: a request has reached a final status. Outside the transaction that ends the request, for the
-- same reason.
SELECT issuing.hint('issuing_final')::text;

-- name: note_issuer_event :one
-- why: an event of the issuer, verified by the api, is a mark for a worker: see issuing.note_issuer_event. $1 the
-- SHA-256 of its body, $2 the event that the card was made for or null, $3 the issuer's id of the card.
SELECT issuing.note_issuer_event($1::bytea, $2::uuid, $3::text);
