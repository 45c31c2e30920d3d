-- What operators ask the issuer through workers: `reconcile`, `reissue`, `doctor --issuer`, lists of its cards.

-- name: operator_ask_reconcile :many
-- why: a mark for each event, which a worker processes: issuing.ask_reconcile. An unfinished one is joined, and keeps
-- its deadline; that of a reissue is `busy`. $1 events, $2 time in ms, $3 actor, $4 user of the operating system, $5
-- SUDO_USER, $6 reason, $7 the batch.
SELECT i.id, a.check_id, a.refused, a.is_joined
FROM (SELECT set_config('issuing.batch', coalesce($7::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL unnest(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid[] END) AS i (id)
CROSS JOIN LATERAL issuing.ask_reconcile(i.id, $2::int8, $3::text, $4::text, $5::text, $6::text) AS a;

-- name: operator_ask_reissue :many
-- why: the mark of a reissue: issuing.ask_reissue. $1 event, $2 time in ms, $3 actor, $4 user of the operating system,
-- $5 SUDO_USER, $6 reason, $7 why the card is replaced, null = as before.
SELECT check_id, refused
FROM issuing.ask_reissue($1::uuid, $2::int8, $3::text, $4::text, $5::text, $6::text, $7::text);

-- name: operator_marks :many
-- why: the results of marks, with the event as it is now; primary keys. No lock. $1 marks.
SELECT p.id, p.event_id, p.finished_at IS NOT NULL, p.result, p.detail, p.new_id, e.status
FROM issuing.marks p
LEFT JOIN issuing.outbox_events e ON e.id = p.event_id
WHERE p.id = ANY ($1::uuid[]);

-- name: operator_withdraw_mark :one
-- why: the operator no longer waits for a mark, and it must have no effect. A worker that was quicker has written its
-- result, which is returned. $1 mark.
SELECT issuing.withdraw_mark($1::uuid);

-- name: operator_ask_issuer_check :one
-- why: a check for a worker, and its audit row: issuing.ask_issuer_check. $1 target, $2 user or null, $3 whether a card
-- is made, $4 time in ms, $5 actor, $6 user of the operating system, $7 SUDO_USER, $8 reason.
SELECT check_id, refused
FROM issuing.ask_issuer_check($1::text, $2::text, $3::bool, $4::int8, $5::text, $6::text, $7::text, $8::text);

-- name: operator_issuer_check :many
-- why: the result of a check, a row a finding, in their order; by the primary key. No row: there is no result yet. No
-- lock. $1 check.
SELECT c.worker, c.result, f.finding ->> 'check', f.finding ->> 'level', f.finding ->> 'found', f.finding ->> 'fix'
FROM issuing.issuer_checks c
LEFT JOIN LATERAL jsonb_array_elements(c.detail) WITH ORDINALITY AS f (finding, place) ON true
WHERE c.id = $1::uuid AND c.ended_at IS NOT NULL
ORDER BY f.place;

-- name: operator_trial :many
-- why: what the last trial of the issuer has shown, a row a finding, in their order; issuing.last_trial(). No lock.
SELECT c.ended_at, f.finding ->> 'check', f.finding ->> 'found'
FROM issuing.issuer_checks c, jsonb_array_elements(c.detail) WITH ORDINALITY AS f (finding, place)
WHERE c.id = issuing.last_trial() AND f.finding ->> 'check' IN ('profile', 'shown', 'asked')
ORDER BY f.place;

-- name: operator_ask_listing :one
-- why: the issuer's list for a worker, or the one that waits already, and the audit row: issuing.ask_listing. $1 since,
-- in us since 1970 or negative = ago, $2 time in ms, $3 actor, $4 user of the operating system, $5 SUDO_USER, $6
-- reason.
SELECT refused, listing, from_us, goes_on
FROM issuing.ask_listing($1::int8, $2::int8, $3::text, $4::text, $5::text, $6::text);

-- name: operator_listing :many
-- why: how far a list is, and what came of it; by the primary key. No row: it is a month old. No lock. $1 list.
SELECT l.ended_at IS NOT NULL, l.trouble, l.pages, l.cards, l.listed_at IS NOT NULL,
       (extract(epoch FROM l.began_at) * 1000000)::int8, coalesce(l.counts, '{}')::text, coalesce(q.questions, 0)
FROM issuing.issuer_listings l
LEFT JOIN LATERAL (SELECT sum(n.value::int8)::int8 AS questions FROM jsonb_each_text(l.counts) n
                   WHERE n.key = ANY (issuing.kinds_of_question())) q ON true
WHERE l.id = $1::uuid;

-- name: operator_listing_questions :many
-- why: the first questions of a list, by the primary key. No lock. $1 list, $2 how many.
SELECT c.kind, c.reference::text, c.issuer_card_id
FROM issuing.listed_cards c
WHERE c.listing = $1::uuid AND c.kind = ANY (issuing.kinds_of_question())
ORDER BY c.kind, c.reference LIMIT $2::int8;
