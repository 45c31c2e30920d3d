-- name: what_waits :many
-- why: at every poll, whether there is anything to take: issuing.what_waits and issuing.asks_wait. No lock. $1
-- types of events.
SELECT what, cost_ms, now_us, issuing.asks_wait()
FROM issuing.what_waits($1::text[]);

-- name: outbox_claim :many
-- why: leases events that are due to this worker, under a new token. Locks, order, fence and bookmark are explained at
-- issuing.claim. Each row has one event and then the columns of the claim; no event = one row without an id. $1
-- token, $2 limit, $3 lease in ms, $4 worker, $5 bookmark or null, $6 slack in ms, $7 alone, $8 event type, $9 whether
-- it is ordered; of card requests, $10 the issuer's profile and $11 its address; $12 which of the due events;
-- $13 true = only what services sent, false = only what clients requested, $14 how many to look at, or null.
SELECT id, user_id, payload, traceparent, tracestate, retry_count, sent_age_ms, deferred_age_ms, card_id,
       issuer_card_id, last4, exp_month, exp_year, replaces_issuer_card_id, cancel_code, settle_age_ms, lost_count,
       deferral_count, deferral_code, changed_age_ms, held_end, held_end_code, issuer_parameters, made_ms, is_elsewhere,
       replaces_request_id, is_resent, is_accepted, next_since_us, has_lost, now_us, is_filled
FROM issuing.claim($1::uuid, $2::int8, $3::int8, $4::text, $5::int8, $6::int8, $7::bool, $8::text, $9::bool, $10::text,
                   $11::text, $12::text, $13::bool, $14::int8)
LEFT JOIN unnest(events) ON true;

-- name: outbox_sweep :one
-- why: finds events behind the claims' bookmark: events whose lease ran out (their worker died, hung or lost its
-- connection), and PENDING ones that became visible late. The former return to PENDING. The lost attempt counts as lost
-- and not as an attempt of the event, first_sent_at stays, and a row of outbox_attempts records the loss for its
-- worker. An event that keeps losing its worker ends FAILED `worker_lost` here, where no worker touches it: its outcome
-- stays unknown. The row of the loss makes a trigger do what belongs to that end. Of the PENDING ones the oldest time
-- is returned, so that the bookmark moves back to it. One call covers one range of time, by outbox_events_due. SKIP
-- LOCKED: two sweeps, or a sweep and a late write, never wait for each other. $1 from this age in ms (null = from the
-- beginning), $2 to this age in ms, $3 the bookmark (null = no bound), $4 limit, $5 number of attempts lost in a row
-- that ends an event, $6 event type, $7 true = only what services sent, false = only what clients requested.
WITH lost AS MATERIALIZED (
    SELECT e.id, e.lease_token, e.lease_owner, e.updated_at, clock_timestamp() AS t,
           clock_timestamp() + CASE WHEN e.lost_count > 0 THEN interval '1 second' * least(e.lost_count, 60)
                                    ELSE interval '0' END AS next_at
    FROM issuing.outbox_events e
    WHERE e.event_type = $6::text
      AND e.due_at >= coalesce(now() - $1::int8 * interval '1 millisecond', '-infinity')
      AND e.due_at <= least(now() - $2::int8 * interval '1 millisecond',
                            -- guard: the sweep takes no lease back after the bookmark
                            timestamptz 'epoch' + $3::int8 * interval '1 microsecond')
      -- guard: only a lease that ran out is taken back
      AND e.status = 'PROCESSING' AND e.lease_until < now()
      AND ($7::bool IS NULL OR (e.idempotency_key IS NULL) = $7::bool)
    -- guard: two sweeps do not wait for each other
    LIMIT $4::int8
    FOR UPDATE SKIP LOCKED
), freed AS (
    UPDATE issuing.outbox_events e
    -- guard: an event that keeps losing its worker ends
    SET status = CASE WHEN e.lost_count + 1 >= $5::int8 THEN 'FAILED' ELSE 'PENDING' END,
        reason_code = CASE WHEN e.lost_count + 1 >= $5::int8 THEN 'worker_lost' END,
        completed_at = CASE WHEN e.lost_count + 1 >= $5::int8 THEN lost.t END,
        -- guard: an attempt that is lost with its worker is counted
        lease_token = NULL, lease_until = NULL, lost_count = e.lost_count + 1,
        -- guard: an attempt that is lost with its worker is given back
        retry_count = greatest(e.retry_count - 1, 0),
        next_attempt_at = lost.next_at, last_sent_at = lost.t, updated_at = lost.t,
        last_error = 'the lease of worker ' || coalesce(lost.lease_owner, '?') || ' ran out'
    FROM lost
    WHERE e.id = lost.id
    RETURNING e.id, e.user_id, e.retry_count, e.lost_count
), noted AS (
    INSERT INTO issuing.outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                         step, outcome, code, detail)
    SELECT f.id, l.lease_token, l.updated_at, now(), f.retry_count + 1, true, f.user_id, l.lease_owner, 'unknown',
           'lost', 'lease_expired', NULL
    FROM freed f JOIN lost l ON l.id = f.id
    ON CONFLICT DO NOTHING
), suspected AS (
    INSERT INTO issuing.lost_events (event_id) SELECT f.id FROM freed f
    WHERE f.lost_count >= 2 AND f.lost_count < $5::int8
    -- guard: an event that is lost again keeps its place among those that are tried alone
    ON CONFLICT (event_id) DO UPDATE SET since = excluded.since
), late AS MATERIALIZED (
    -- A locked row is being claimed at this moment.
    -- guard: the stretches of the sweep meet
    SELECT e.due_at
    FROM issuing.outbox_events e
    WHERE e.event_type = $6::text
      AND e.due_at >= coalesce(now() - $1::int8 * interval '1 millisecond', '-infinity')
      AND e.due_at <= least(now() - $2::int8 * interval '1 millisecond',
                            -- guard: the sweep leaves what lies after the bookmark to the claims
                            timestamptz 'epoch' + $3::int8 * interval '1 microsecond')
      -- guard: the sweep names what became visible late
      -- guard: the sweep sends no claim back to an event that it passes over
      AND e.status = 'PENDING' AND e.lost_count < 2
      AND ($7::bool IS NULL OR (e.idempotency_key IS NULL) = $7::bool)
    ORDER BY e.due_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
SELECT (SELECT count(*) FROM freed),
       -- guard: what is due since before 1970 is named as the beginning
       (SELECT (extract(epoch FROM greatest(late.due_at, timestamptz 'epoch' - interval '1 microsecond'))
                * 1000000)::int8 FROM late),
       (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000)::int8, -- time of this statement
       (SELECT count(*) FROM freed f WHERE f.lost_count >= $5::int8);

-- name: outbox_rebase :one
-- why: after the database's clock was set back: open events with times in the future, which were written while the
-- clock was ahead. All times of such a row move back by as much as its last write is ahead, so each wait and each lease
-- lasts as long as intended. A difference of one second is ignored, because the clocks of a cluster differ by that
-- much. One pass reads the open events of one type once, in pieces. SKIP LOCKED. $1 limit, $2 event type, $3 true =
-- only what services sent, false = only what clients requested.
WITH ahead AS MATERIALIZED (
    SELECT e.id, e.updated_at, e.next_attempt_at, e.lease_until, e.first_sent_at, e.last_sent_at, e.deferred_since,
           least(e.updated_at, now() + interval '1000 years') - now() AS by
    FROM issuing.outbox_events e
    WHERE e.due_at IS NOT NULL AND e.event_type = $2::text AND (e.due_at > now() OR e.status = 'PROCESSING')
      AND ($3::bool IS NULL OR (e.idempotency_key IS NULL) = $3::bool)
      -- guard: what a clock that was ahead has written is found
      AND e.updated_at > now() + interval '1 second'
    LIMIT $1::int8
    FOR UPDATE SKIP LOCKED
), back AS MATERIALIZED (
    SELECT a.id, least(a.updated_at - a.by, now()) AS updated_at, a.next_attempt_at - a.by AS next_attempt_at,
           a.lease_until - a.by AS lease_until, a.first_sent_at - a.by AS first_sent_at,
           a.last_sent_at - a.by AS last_sent_at, a.deferred_since - a.by AS deferred_since
    FROM ahead a
), moved AS (
    UPDATE issuing.outbox_events e
    SET updated_at = b.updated_at, next_attempt_at = b.next_attempt_at, lease_until = b.lease_until,
        first_sent_at = b.first_sent_at, last_sent_at = b.last_sent_at, deferred_since = b.deferred_since
    FROM back b
    WHERE e.id = b.id
    RETURNING e.id
)
SELECT count(*) FROM moved;

-- name: outbox_save :many
-- why: stores the cards of attempts that hold their lease, and nothing for those that do not: issuing.save.
SELECT id, card_id, issuing.acknowledged()
FROM issuing.save($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::int8[], $7::int8[], $8::bytea[],
                  $9::uuid[]);

-- name: outbox_extend :many
-- why: extends the lease of attempts that still hold theirs; same fence. $1 ids, $2 tokens, $3 lease in ms.
UPDATE issuing.outbox_events e
SET lease_until = now() + $3::int8 * interval '1 millisecond'
FROM unnest($1::uuid[], $2::uuid[]) AS a (id, token)
-- guard: a longer lease names its token
WHERE e.id = a.id AND e.lease_token = a.token
RETURNING e.id;

-- name: outbox_keep :many
-- why: what the issuer is told of the user outlives a worker that dies with its create, so that the card is looked up
-- where it was made; same fence. What was kept first stays. $1 ids, $2 tokens, $3 the parameters, as JSON.
UPDATE issuing.outbox_events e
-- guard: the parameters that are kept before the first create stay
SET issuer_parameters = coalesce(e.issuer_parameters, a.parameters::jsonb)
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS a (id, token, parameters)
-- guard: parameters are kept before a create only by the one who holds the lease
WHERE e.id = a.id AND e.lease_token = a.token
RETURNING e.id;

-- name: outbox_mark :many
-- why: the intention to cancel a card outlives the worker, so that no later attempt links or completes a card that may
-- be cancelled already; same fence. The parameters that the first one kept stay. $1 ids, $2 tokens, $3 codes, $4 what
-- the issuer was told of the user, as JSON, or null.
UPDATE issuing.outbox_events e
SET cancel_code = a.code, issuer_parameters = coalesce(e.issuer_parameters, a.parameters::jsonb)
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) AS a (id, token, code, parameters)
WHERE e.id = a.id AND e.lease_token = a.token
RETURNING e.id;

-- name: outbox_complete :many
-- why: the usual end, guarded by the tokens: issuing.complete. $1 ids, $2 tokens, $3 worker, $4 durations in ms, $5 the
-- step, $6 answers to keep, as JSON, or null.
SELECT id, issuing.acknowledged()
FROM issuing.complete($1::uuid[], $2::uuid[], $3::text, $4::int8[], $5::text, $6::text[]);

-- name: outbox_end :many
-- why: every other end of attempts, guarded by their tokens: issuing.end_attempts. One array for each column of
-- issuing.attempt_end, in its order; $24 worker.
SELECT id, issuing.acknowledged()
FROM issuing.end_attempts(
    ARRAY(SELECT ROW(a.*)::issuing.attempt_end
          FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int8[], $5::bool[], $6::bool[], $7::bool[], $8::text[],
                      $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bool[],
                      $16::int8[], $17::text[], $18::uuid[], $19::bool[], $20::text[], $21::text[], $22::text[],
                      $23::text[]) a),
    $24::text);

-- name: keep_rows :many
-- why: the first call of a pass: deletes rows past their retention one by one, and decides which partitions are
-- settled. One worker of the cluster at a time: issuing.keep_rows. $1 keys, $2 limit
-- rows, $3 events; all in ms, and never less than the database's own retentions.
SELECT action, table_name, amount, detail, again
FROM issuing.keep_rows($1::int8 * interval '1 millisecond', $2::int8 * interval '1 millisecond',
                       $3::int8 * interval '1 millisecond');

-- name: run_housekeeping :many
-- why: the second call of a pass: makes or drops one partition: issuing.run_housekeeping. $1
-- keys, $2 limit rows, $3 events, $4 least length of a partition; all in ms.
SELECT action, table_name, amount, detail, again
FROM issuing.run_housekeeping($1::int8 * interval '1 millisecond', $2::int8 * interval '1 millisecond',
                        $3::int8 * interval '1 millisecond',
                        $4::int8 * interval '1 millisecond');

-- name: check_default_partitions :many
-- why: the third call of a pass: reads a large `_default` partition before a partition is made beside it, under a lock
-- that no other session waits for: issuing.check_default_partitions.
SELECT action, table_name, amount, detail, again
FROM issuing.check_default_partitions();

-- name: erase_numbers :many
-- why: the fourth call of a pass: numbers of cards that ended longer ago than card.number_retention are erased, a piece
-- of the table at a time: issuing.erase_numbers. $1 the retention in ms, never less than the database's own.
SELECT action, table_name, amount, detail, again
FROM issuing.erase_numbers($1::int8 * interval '1 millisecond');

-- name: forget_keys :many
-- why: the last call of a pass: keys of senders whose events are gone: issuing.forget_keys.
SELECT action, table_name, amount, detail, again
FROM issuing.forget_keys();
