-- What a worker does with events: it takes them, keeps what an attempt learns, ends them, and does the housekeeping.

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
       deferral_count, deferral_code, changed_age_ms, held_end, held_end_code, issuer_parameters, made_ms,
       is_of_other_issuer, replaces_request_id, is_resent, is_accepted, next_since_us, has_lost, now_us, is_filled
FROM issuing.claim($1::uuid, $2::int8, $3::int8, $4::text, $5::int8, $6::int8, $7::bool, $8::text, $9::bool, $10::text,
                   $11::text, $12::text, $13::bool, $14::int8)
LEFT JOIN unnest(events) ON true;

-- name: outbox_sweep :one
-- why: finds events behind the claims' bookmark: leases that ran out, and what became visible late. Locks, ranges and
-- what becomes of a lost attempt are explained at issuing.sweep. $1 from this age in ms (null = from the beginning), $2
-- to this age in ms, $3 the bookmark or where the last look ended (null = no bound), $4 limit, $5 number of attempts
-- lost in a row that ends an event, $6 event type, $7 true = only what services sent, false = only what clients
-- requested, $8 how many rows to look at.
SELECT freed, late_us, cost_ms, ended, rest_us, looked
FROM issuing.sweep($1::int8, $2::int8, $3::int8, $4::int8, $5::int8, $6::text, $7::bool, $8::int8);

-- name: outbox_rebase :one
-- why: after the database's clock was set back: times in the future of open events move back: issuing.rebase. $1 limit,
-- $2 event type, $3 true = only what services sent, false = only what clients requested, $4 where the last look ended
-- (null = no bound), $5 how many rows to look at.
SELECT moved, rest_us, looked
FROM issuing.rebase($1::int8, $2::text, $3::bool, $4::int8, $5::int8);

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
-- settled. One worker of the cluster at a time: issuing.keep_rows. $1 keys, $2 limit rows, $3 events; all in ms, and
-- never less than the database's own retentions.
SELECT action, table_name, amount, detail, again
FROM issuing.keep_rows($1::int8 * interval '1 millisecond', $2::int8 * interval '1 millisecond',
                       $3::int8 * interval '1 millisecond');

-- name: run_housekeeping :many
-- why: the second call of a pass: makes or drops one partition: issuing.run_housekeeping. $1 keys, $2 limit rows, $3
-- events, $4 least length of a partition; all in ms.
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
