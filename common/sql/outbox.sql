-- name: outbox_claim :many
-- why: PENDING events that are due, oldest due first, by outbox_events_due. SKIP LOCKED: two workers never wait for each other and never get
-- the same row. The token is the fence: whoever took the event before matches no row any more. The attempt is counted here, so a crash
-- cannot run it for free; first_sent_at is set here, so a crash right after counts as "may have been sent" without a write before the send.
-- $1 token, $2 limit, $3 lease in ms, $4 worker.
WITH due AS (
    SELECT e.id, e.first_sent_at
    FROM outbox_events e
    WHERE e.status = 'PENDING' AND e.event_type = 'CARD_ISSUE' AND e.next_attempt_at <= clock_timestamp()
    ORDER BY e.next_attempt_at
    LIMIT $2::int8
    FOR UPDATE SKIP LOCKED
), held AS (
    UPDATE outbox_events e
    SET status = 'PROCESSING', retry_count = e.retry_count + 1, lease_token = $1::uuid, lease_owner = $4::text,
        lease_until = now() + $3::int8 * interval '1 millisecond', first_sent_at = coalesce(e.first_sent_at, now()), updated_at = now()
    FROM due
    WHERE e.id = due.id
    RETURNING e.id, e.user_id, e.payload, e.traceparent, e.retry_count, e.deferred_since, due.first_sent_at AS sent_before
)
SELECT h.id, h.user_id, h.payload::text, h.traceparent, h.retry_count,
       (extract(epoch FROM now() - h.sent_before) * 1000)::int8, -- age of the first send that may have arrived; null = surely none
       (extract(epoch FROM now() - h.deferred_since) * 1000)::int8,
       c.id, c.issuer_card_id, c.last4, c.exp_month, c.exp_year, c.status,
       r.issuer_card_id
FROM held h
LEFT JOIN cards c ON c.request_id = h.id
LEFT JOIN cards r ON r.user_id = h.user_id AND r.id::text = lower(h.payload ->> 'replaces');

-- name: outbox_reclaim :many
-- why: events whose lease ran out (their worker died, hung, or was cut off), by outbox_events_leased. They go back to PENDING with the
-- attempt spent and first_sent_at kept, and the lost attempt is written down for its worker. The usual claim takes them next.
-- $1 limit.
WITH lost AS (
    SELECT e.id, e.lease_token, e.lease_owner, e.updated_at, e.lease_until
    FROM outbox_events e
    WHERE e.status = 'PROCESSING' AND e.lease_until < clock_timestamp()
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
-- why: stores the card of an attempt that still holds its lease. The lock on the event row keeps a re-claim out until this commits, and the
-- token in the condition turns a stale worker's save into nothing. cards_one_per_request makes a second save of the same event harmless.
-- Returns the events whose card is stored now, by this statement or an earlier run of it, and that card's id. $1 ids, $2 tokens, then the cards.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::int8[], $7::int8[], $8::bytea[], $9::uuid[])
        AS a (event_id, token, card_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
), held AS MATERIALIZED (
    SELECT e.id, e.user_id FROM outbox_events e JOIN asked a ON a.event_id = e.id
    WHERE e.lease_token = a.token
    ORDER BY e.id
    FOR NO KEY UPDATE OF e
), saved AS (
    INSERT INTO cards (id, request_id, user_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
    SELECT a.card_id, h.id, h.user_id, a.issuer_card_id, a.last4, a.exp_month, a.exp_year, a.number_record, a.replaces
    FROM held h JOIN asked a ON a.event_id = h.id
    ON CONFLICT (request_id) DO NOTHING
    RETURNING request_id
)
SELECT h.id, coalesce((SELECT c.id FROM cards c WHERE c.request_id = h.id), (SELECT a.card_id FROM asked a WHERE a.event_id = h.id))
FROM held h;

-- name: outbox_extend :many
-- why: a longer lease for attempts that still hold theirs; same fence. $1 ids, $2 tokens, $3 lease in ms.
UPDATE outbox_events e
SET lease_until = now() + $3::int8 * interval '1 millisecond'
FROM unnest($1::uuid[], $2::uuid[]) AS a (id, token)
WHERE e.id = a.id AND e.lease_token = a.token
RETURNING e.id;

-- name: outbox_end :many
-- why: the end of attempts, whatever it is: completed, refused, failed, to be tried again, deferred. The token is the fence: 0 rows for an event
-- = the lease was lost and nothing changes. Rows of one statement are disjoint (one attempt an event), so there is no lock order to keep.
-- $1 ids, $2 tokens, $3 status, $4 delay in ms before the next attempt (PENDING), $5 attempt given back (deferral),
-- $6 what first_sent_at becomes (keep, clear), $7 deferred_since (true: start or keep, false: clear), $8 reason code, $9 reason detail,
-- $10 last_error, $11 step, $12 outcome, $13 cause code, $14 cause detail, $15 outcome unknown, $16 worker, $17 ms since the claim,
-- $18 card status to set (null = leave), $19 card replaced by a completed reissue (null = none).
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int8[], $5::bool[], $6::bool[], $7::bool[], $8::text[], $9::text[], $10::text[],
                         $11::text[], $12::text[], $13::text[], $14::text[], $15::bool[], $17::int8[], $18::text[], $19::uuid[])
        AS a (id, token, status, delay_ms, give_back, clear_sent, deferred, reason_code, reason_detail, last_error,
              step, outcome, code, detail, unknown, took_ms, card_status, replaced)
), ended AS (
    UPDATE outbox_events e
    SET status = a.status,
        lease_token = NULL,
        lease_until = NULL,
        retry_count = e.retry_count - CASE WHEN a.give_back THEN 1 ELSE 0 END,
        next_attempt_at = CASE WHEN a.status = 'PENDING' THEN now() + a.delay_ms * interval '1 millisecond' ELSE e.next_attempt_at END,
        first_sent_at = CASE WHEN a.clear_sent THEN NULL ELSE e.first_sent_at END,
        deferred_since = CASE WHEN a.deferred THEN coalesce(e.deferred_since, now()) END,
        reason_code = a.reason_code,
        reason_detail = a.reason_detail,
        last_error = a.last_error,
        completed_at = CASE WHEN a.status <> 'PENDING' THEN now() END,
        updated_at = now()
    FROM asked a
    WHERE e.id = a.id AND e.lease_token = a.token
    RETURNING e.id, e.user_id, e.retry_count
), noted AS (
    INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker, step, outcome, code, detail)
    SELECT d.id, a.token, now() - a.took_ms * interval '1 millisecond', now(),
           d.retry_count + CASE WHEN a.give_back THEN 1 ELSE 0 END, a.unknown, d.user_id, $16::text, a.step, a.outcome, a.code, a.detail
    FROM ended d JOIN asked a ON a.id = d.id
    ON CONFLICT DO NOTHING
), card_changed AS (
    UPDATE cards c SET status = a.card_status, updated_at = now()
    FROM ended d JOIN asked a ON a.id = d.id
    WHERE a.card_status IS NOT NULL AND c.request_id = d.id
), card_replaced AS (
    UPDATE cards c SET status = 'replaced', updated_at = now()
    FROM ended d JOIN asked a ON a.id = d.id
    WHERE a.replaced IS NOT NULL AND c.id = a.replaced AND c.user_id = d.user_id AND c.status = 'active'
)
SELECT d.id FROM ended d;

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
