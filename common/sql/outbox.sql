-- name: outbox_claim :many
-- why: due events, leased to this worker under a new token; locks, order and fence are explained at issuing_claim in migrations/0003_attempts.sql.
-- $1 token, $2 limit, $3 lease in ms, $4 worker.
SELECT id, user_id, payload, traceparent, retry_count, sent_age_ms, deferred_age_ms, card_id, issuer_card_id, last4, exp_month, exp_year,
       card_status, replaces_issuer_card_id, cancel_code
FROM issuing_claim($1::uuid, $2::int8, $3::int8, $4::text);

-- name: outbox_reclaim :many
-- why: events whose lease ran out (their worker died, hung, or was cut off), by outbox_events_leased. They go back to PENDING with the
-- attempt spent and first_sent_at kept, and the lost attempt is written down for its worker. The usual claim takes them next.
-- $1 limit.
WITH lost AS (
    SELECT e.id, e.lease_token, e.lease_owner, e.updated_at, e.lease_until
    FROM outbox_events e
    WHERE e.status = 'PROCESSING' AND e.lease_until < now()
    ORDER BY e.lease_until
    LIMIT $1::int8
    FOR UPDATE SKIP LOCKED
), freed AS (
    UPDATE outbox_events e
    SET status = 'PENDING', lease_token = NULL, lease_until = NULL, next_attempt_at = now(), updated_at = now(),
        last_error = 'the lease of worker ' || coalesce(lost.lease_owner, '?') || ' ran out'
    FROM lost
    WHERE e.id = lost.id
    RETURNING e.id, e.user_id, e.retry_count
), noted AS (
    INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker, step, outcome, code, detail)
    SELECT f.id, l.lease_token, l.updated_at, now(), f.retry_count, true, f.user_id, l.lease_owner, 'unknown', 'lost', 'lease_expired', NULL
    FROM freed f JOIN lost l ON l.id = f.id
    ON CONFLICT DO NOTHING
)
SELECT f.id FROM freed f;

-- name: outbox_save :many
-- why: stores cards of attempts that hold their lease, and nothing for those that do not: issuing_save in migrations/0003_attempts.sql.
SELECT id, card_id
FROM issuing_save($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::int8[], $7::int8[], $8::bytea[], $9::uuid[]);

-- name: outbox_extend :many
-- why: a longer lease for attempts that still hold theirs; same fence. $1 ids, $2 tokens, $3 lease in ms.
UPDATE outbox_events e
SET lease_until = now() + $3::int8 * interval '1 millisecond'
FROM unnest($1::uuid[], $2::uuid[]) AS a (id, token)
WHERE e.id = a.id AND e.lease_token = a.token
RETURNING e.id;

-- name: outbox_mark :many
-- why: the intention to cancel a card outlives the worker, so that no later attempt links or keeps a card that may be cancelled already; same
-- fence. $1 ids, $2 tokens, $3 codes.
UPDATE outbox_events e
SET cancel_code = a.code
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS a (id, token, code)
WHERE e.id = a.id AND e.lease_token = a.token
RETURNING e.id;

-- name: outbox_end :many
-- why: the end of attempts, guarded by their tokens: issuing_end in migrations/0003_attempts.sql.
SELECT id
FROM issuing_end($1::uuid[], $2::uuid[], $3::text[], $4::int8[], $5::bool[], $6::bool[], $7::bool[], $8::text[], $9::text[], $10::text[],
                 $11::text[], $12::text[], $13::text[], $14::text[], $15::bool[], $16::text, $17::int8[], $18::text[], $19::uuid[]);

-- name: outbox_gauges :one
-- why: what the worker's gauges show, from the partial indexes of open and failed events only; finished ones are not counted. No lock.
SELECT (SELECT count(*) FROM outbox_events WHERE status = 'PENDING'),
       (SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'),
       (SELECT count(*) FROM outbox_events WHERE status = 'FAILED'),
       (SELECT coalesce((extract(epoch FROM clock_timestamp() - min(created_at)) * 1000)::int8, 0) FROM outbox_events WHERE status = 'PENDING'),
       (SELECT count(*) FROM outbox_events e WHERE e.status IN ('PENDING', 'FAILED') AND e.first_sent_at IS NOT NULL
           AND NOT EXISTS (SELECT FROM cards c WHERE c.request_id = e.id));

-- name: keys_expire :many
-- why: keys whose request reached its final status longer ago than the retention; the key of an unfinished event, or of an open question
-- (FAILED), stays. The age index narrows the walk, the limit keeps the transaction short, and the transaction-scoped lock lets one worker of
-- the cluster do it at a time and cannot outlive it. $1 retention in ms, $2 limit.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(4711, 1) AS mine
), old AS (
    SELECT k.ctid FROM idempotency_keys k
    LEFT JOIN outbox_events e ON e.id = k.event_id
    WHERE (SELECT mine FROM turn) AND k.created_at < now() - $1::int8 * interval '1 millisecond'
      AND (e.id IS NULL OR e.status IN ('COMPLETED', 'REJECTED')
           AND coalesce(e.completed_at, e.updated_at) < now() - $1::int8 * interval '1 millisecond')
    LIMIT $2::int8
), gone AS (
    DELETE FROM idempotency_keys k USING old WHERE k.ctid = old.ctid RETURNING 1
)
SELECT count(*) FROM gone;

-- name: limits_expire :many
-- why: tries that no window can count any more; one worker at a time, as keys_expire. $1 age in ms, $2 limit.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(4711, 2) AS mine
), old AS (
    SELECT l.ctid FROM rate_limit_log l
    WHERE (SELECT mine FROM turn) AND l.at < now() - $1::int8 * interval '1 millisecond'
    LIMIT $2::int8
), gone AS (
    DELETE FROM rate_limit_log l USING old WHERE l.ctid = old.ctid RETURNING 1
)
SELECT count(*) FROM gone;
