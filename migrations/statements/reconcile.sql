-- Marks of operators and of workers: "look this event up at the issuer, or at the receiver of its route, and act". The
-- functions are in migrations/schema/12_marks.sql; the role is issuing_worker, which has no right on the table. Each
-- statement may run again: the token makes all runs but the first ineffective.

-- name: reconcile_ask :many
-- why: the worker requests a look-up for its own events, beside the marks of operators. False: there is no such event.
-- $1 events, $2 why.
SELECT issuing.add_mark(i.id, $2::text)
FROM unnest($1::uuid[]) AS i (id);

-- name: reconcile_take :many
-- why: leases marks that are due, under a token, by marks_due. SKIP LOCKED: two workers never get the same mark.
-- $1 token, $2 lease in ms, $3 worker, $4 limit, $5 types of events that this worker can look up now, $6 profile and $7
-- address of its issuer: an event that belongs to another one is not looked up here.
SELECT t.id, t.event_id, t.action, t.attempts, t.has_orphan, t.status, t.user_id, t.seen_us, t.sent_age_ms, t.card_id,
       t.issuer_card_id, t.card_status, t.issuer_parameters, t.made_ms, t.event_type,
       EXISTS (SELECT FROM issuing.outbox_events e
               WHERE e.id = t.event_id AND e.sent_to IS NOT NULL
                 AND NOT EXISTS (SELECT FROM issuing.issuers i
                                 WHERE i.id = e.sent_to AND i.profile = $6::text AND i.address = $7::text)),
       (SELECT e.traceparent FROM issuing.outbox_events e WHERE e.id = t.event_id),
       (SELECT e.tracestate FROM issuing.outbox_events e WHERE e.id = t.event_id)
FROM issuing.take_marks($1::uuid, $4::int8, $2::int8, $3::text, $5::text[]) t;

-- name: reconcile_put_back :many
-- why: the try decided nothing, or the worker drains. Guarded by the token. $1 mark, $2 token, $3 delay in ms, $4 why.
SELECT issuing.put_mark_back($1::uuid, $2::uuid, $3::int8, $4::text)::text;

-- name: reconcile_note_orphan :one
-- why: records that a card is being cancelled, so that the worker that goes on after a crash knows it. Guarded by the
-- token. $1 mark, $2 token.
SELECT issuing.note_orphan($1::uuid, $2::uuid);

-- name: reconcile_end :one
-- why: the result and its consequences are one transaction. Guarded by the token and by the state of the event that was
-- judged. $1 mark, $2 token, $3 updated_at of that state in us, $4 result, $5 detail; of `executed` the receiver's
-- answer or null.
SELECT issuing.end_mark($1::uuid, $2::uuid, $3::int8, $4::text, $5::text);
