-- Events one by one and in lists, and the actions on them: `list`, `show`, `explain`, `replay` and their kin.
-- The first 14 parameters of operator_pick_* are those of ctl/filter.h. A statement that returns an event returns the
-- columns of `enum column` in ctl/event.c, in their order.

-- part: event_columns
-- `enum column` of ctl/event.c, without the last ones, which each statement adds.
e.id, e.user_id, CASE WHEN e.event_type = 'CARD_ISSUE' THEN e.payload ->> 'kind' END, e.status, e.event_type,
e.retry_count, e.next_attempt_at, e.created_at,
e.updated_at, e.completed_at, e.first_sent_at, e.deferred_since, e.lease_until, e.lease_owner, e.idempotency_key,
e.reason_code, e.reason_detail, e.last_error,
CASE WHEN e.event_type = 'CARD_ISSUE' THEN e.payload ->> 'replaces' END,
CASE WHEN e.event_type = 'CARD_ISSUE' AND e.payload ->> 'kind' = 'reissue'
     THEN coalesce(e.payload ->> 'reason', 'lost') END,
e.first_sent_at IS NOT NULL AND c.id IS NULL AND e.status IN ('PENDING', 'FAILED'),
c.id, c.last4, c.exp_month, c.exp_year, c.status, clock_timestamp(),
e.traceparent, c.issuer_card_id, e.held_behind, e.result::text, c.number_erased_at,

-- part: event_filters
-- $1 to $14 as in ctl/filter.h.
($1::text IS NULL OR e.status = $1::text)
AND ($2::text IS NULL OR e.event_type = $2::text)
AND ($3::text IS NULL OR e.reason_code = $3::text)
AND ($4::text IS NULL OR e.user_id = $4::text)
AND ($5::int8 IS NULL OR e.created_at >= timestamptz 'epoch' + $5::int8 * interval '1 microsecond')
AND ($6::int8 IS NULL OR e.created_at < timestamptz 'epoch' + $6::int8 * interval '1 microsecond')
AND ($7::int8 IS NULL OR e.status = 'FAILED'
    AND coalesce(e.completed_at, e.updated_at)
        >= timestamptz 'epoch' + $7::int8 * interval '1 microsecond')
AND ($8::text IS NULL OR e.idempotency_key = $8::text)
AND ($9::text IS NULL OR c.id::text = lower($9::text) OR c.issuer_card_id = $9::text
     OR e.event_type = 'CARD_ISSUE' AND lower(e.payload ->> 'replaces') = lower($9::text))
AND ($10::text IS NULL OR c.last4 = $10::text)
AND ($11::text IS NULL
     OR coalesce(substring(e.traceparent FROM 4 FOR 32), replace(e.id::text, '-', '')) = $11::text)
AND ($12::bool IS NOT TRUE
     OR e.first_sent_at IS NOT NULL AND c.id IS NULL AND e.status IN ('PENDING', 'FAILED'))
AND ($13::bool IS NOT TRUE OR e.status = 'PENDING' AND e.next_attempt_at < now() - interval '1 minute'
     OR e.status = 'PROCESSING' AND e.lease_until < now() - interval '1 minute')
AND ($14::text IS DISTINCT FROM 'unsent' OR e.first_sent_at IS NULL)
AND ($14::text IS DISTINCT FROM 'no duplicates' OR e.reason_code IS DISTINCT FROM 'issuer_duplicate'
     OR e.event_type <> 'CARD_ISSUE')

-- part: card_for_filters
-- Each card is looked up by its request, and only for a filter on cards. OFFSET 0: a join that is free to choose may
-- read all cards instead.
LEFT JOIN LATERAL (SELECT k.id, k.last4, k.issuer_card_id FROM issuing.cards k
                   WHERE ($9::text IS NOT NULL OR $10::text IS NOT NULL OR $12::bool)
                     AND k.request_id = e.id AND k.user_id = e.user_id OFFSET 0) c ON true

-- part: of_range
($15::uuid IS NULL OR x.id >= $15::uuid) AND ($16::uuid IS NULL OR x.id < $16::uuid)
ORDER BY CASE WHEN $17::bool THEN x.id END DESC, x.id
LIMIT $18::int8

-- part: walk
-- From here to walk_end: the events `x` that are looked at.
SELECT m.id, m.updated_at, m.matches, m.looked
FROM (SELECT e.id, e.updated_at, count(*) OVER () AS looked,
             row_number() OVER (ORDER BY CASE WHEN $17::bool THEN e.id END DESC, e.id) AS n,
             -- insert: event_filters
             AS matches
      FROM (SELECT x.* FROM

-- part: walk_end
           ) e
      -- insert: card_for_filters
     ) m
WHERE m.matches OR m.n = m.looked
ORDER BY m.n;

-- name: operator_pick_all :many
-- why: the events that match, walked by the primary key, $18 of them looked at in one statement, so that no statement
-- runs long however rare the matches are. Returns those that match, in order, and the last one that was looked at; the
-- last column is how many were. A statement is planned with its values: a filter that is null disappears, and of the
-- two sort keys one. No lock. $1-$14 filters (ctl/filter.h), $15 first id, $16 the id before which it ends, $17 newest
-- first, $18 how many to look at.
-- insert: walk
            issuing.outbox_events x WHERE
-- insert: of_range
-- insert: walk_end

-- name: operator_pick_user :many
-- why: like operator_pick_all, for the events of one user, by outbox_events_user. No lock.
-- insert: walk
            issuing.outbox_events x WHERE x.user_id = $4::text AND
-- insert: of_range
-- insert: walk_end

-- name: operator_pick_failed :many
-- why: like operator_pick_all, for the FAILED events, by outbox_events_failed. No lock.
-- insert: walk
            issuing.outbox_events x
            -- guard: the FAILED events are found by their index
            WHERE x.failed_at IS NOT NULL AND
-- insert: of_range
-- insert: walk_end

-- name: operator_pick_open :many
-- why: the open events that match: all of them are read by outbox_events_due, which is not in the order of ids, and
-- sorted; of those that are to be overdue, only what was due (a lease begins at a due time). All rows match; the last
-- column is how many there are. No lock. Parameters as operator_pick_all.
SELECT e.id, e.updated_at, true, count(*) OVER ()
FROM (SELECT * FROM issuing.outbox_events x
      WHERE x.due_at IS NOT NULL AND ($13::bool IS NOT TRUE OR x.due_at < now() - interval '1 minute')) e
-- insert: card_for_filters
WHERE
  -- insert: event_filters
  AND ($15::uuid IS NULL OR e.id >= $15::uuid) AND ($16::uuid IS NULL OR e.id < $16::uuid)
ORDER BY CASE WHEN $17::bool THEN e.id END DESC, e.id
LIMIT $18::int8;

-- name: operator_pick_unknown :many
-- why: like operator_pick_all, for the open events that were tried and the FAILED ones, by outbox_events_tried and
-- outbox_events_failed: all that can be unknown. Two walks, of which the first events of both are one. No lock.
-- insert: walk
            ((SELECT * FROM issuing.outbox_events x
              WHERE x.due_at IS NOT NULL AND (x.last_error IS NOT NULL OR x.deferral_code IS NOT NULL) AND
-- insert: of_range
             ) UNION ALL
             (SELECT * FROM issuing.outbox_events x
              WHERE $1::text IS DISTINCT FROM 'PENDING' AND x.failed_at IS NOT NULL AND
-- insert: of_range
             )) x
            WHERE
-- insert: of_range
-- insert: walk_end

-- name: operator_events :many
-- why: events by their ids, in the order of the ids; primary keys. No lock. $1 ids.
SELECT
       -- insert: event_columns
       r.last4, r.status
FROM unnest($1::uuid[]) WITH ORDINALITY AS i (id, n)
JOIN issuing.outbox_events e ON e.id = i.id
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id
LEFT JOIN issuing.cards r ON r.user_id = e.user_id
    AND r.id = CASE WHEN e.payload ->> 'replaces' ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                    THEN (e.payload ->> 'replaces')::uuid END
ORDER BY i.n;

-- name: operator_attempts :many
-- why: the history of one event, newest first so that the limit cuts the oldest; primary key. No lock. $1 event, $2
-- limit.
SELECT a.attempt, a.worker, a.started_at, a.ended_at, a.step, a.outcome, a.code, a.detail, a.unknown
FROM issuing.outbox_attempts a
WHERE a.event_id = $1::uuid
ORDER BY a.started_at DESC, a.attempt DESC
LIMIT $2::int8;

-- part: acted
-- An event as an action of an operator has left it. `r` comes next: what the action returns.
SELECT
       -- insert: event_columns
       NULL::text, NULL::text, r.refused

-- part: of_acted
CROSS JOIN LATERAL (SELECT (r.event_row).*) AS e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id;

-- name: operator_replay :many
-- why: FAILED (of a route also REJECTED) -> PENDING and its audit row. Locks, conditions and what a replay resets are
-- explained at issuing.replay. No row = no such event; the last column says why nothing was done. The batch is set
-- first, and for this transaction only: a session may be a pooler's. $1 event, $2 updated_at as seen in us or null, $3
-- actor, $4 user of the operating system, $5 SUDO_USER, $6 reason, $7 the batch as of issuing.batch_id, or null.
-- insert: acted
FROM (SELECT set_config('issuing.batch', coalesce($7::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL issuing.replay(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid END, $2::int8,
                                  $3::text, $4::text, $5::text, $6::text) AS r
-- insert: of_acted

-- name: operator_resend :many
-- why: COMPLETED -> PENDING and its audit row: issuing.resend. $1 to $7 as in operator_replay.
-- insert: acted
FROM (SELECT set_config('issuing.batch', coalesce($7::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL issuing.resend(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid END, $2::int8,
                                  $3::text, $4::text, $5::text, $6::text) AS r
-- insert: of_acted

-- name: operator_prospect :many
-- why: what decides about the next attempt of one event beside the columns of ctl/event.h, and why a replay of it would
-- be refused, by the conditions of issuing.replay, which locks the row and may find it changed; then, of an ordered
-- type, the status of the event that it waits for, the first one of its user that is open or FAILED, and how many of
-- that user come after it, 1000 at most; then the issuer that it, or the card that it is to replace, belongs to, where
-- that is not the one that was claimed for last, and that one; then the deferrals in a row for one cause, and that
-- cause. Primary key and outbox_events_order. No lock. No row = no such event. $1 event.
SELECT e.cancel_code, e.held_end, e.held_end_code, e.lost_count, coalesce(e.last_sent_at, e.first_sent_at),
       CASE WHEN e.status <> 'FAILED' AND (e.status <> 'REJECTED' OR e.event_type = 'CARD_ISSUE') THEN 'not_failed'
            WHEN octet_length(e.payload::text) > 65536 OR octet_length(e.user_id) NOT BETWEEN 1 AND 128
                THEN 'out_of_range'
            WHEN e.event_type = 'CARD_ISSUE' AND e.payload ->> 'kind' = 'reissue'
                 AND EXISTS (SELECT FROM issuing.card_reissues r
                             WHERE r.user_id = e.user_id AND r.card_id = lower(e.payload ->> 'replaces')
                               AND r.event_id <> e.id) THEN 'place_taken' END,
       (SELECT o.status FROM issuing.outbox_events o WHERE o.id = e.held_behind),
       f.id, f.status,
       (SELECT count(*)
        FROM (SELECT FROM issuing.outbox_events o
              WHERE e.event_type IN (SELECT r.event_type FROM issuing.routes r WHERE r.is_ordered)
                AND o.event_type = e.event_type AND o.event_type <> 'CARD_ISSUE' AND o.user_id = e.user_id
                AND o.id > e.id AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL) AND o.due_at IS NOT NULL
              LIMIT 1000) w),
       b.profile || ' at ' || b.address, p.profile || ' at ' || p.address, e.deferral_count, e.deferral_code
FROM issuing.outbox_events e
LEFT JOIN LATERAL (SELECT i.id, i.profile, i.address FROM issuing.issuers i
                   WHERE e.event_type = 'CARD_ISSUE' ORDER BY i.seen_at DESC, i.id DESC LIMIT 1) p ON true
LEFT JOIN issuing.issuers b
    ON b.id = coalesce(nullif(e.sent_to, p.id),
                       nullif(CASE WHEN e.event_type = 'CARD_ISSUE'
                                   THEN (issuing.card_to_replace(e.user_id, e.payload ->> 'replaces')).issuer END,
                              p.id))
LEFT JOIN LATERAL (SELECT o.id, o.status FROM issuing.outbox_events o
                   WHERE e.held_behind IS NOT NULL AND o.event_type = e.event_type AND o.event_type <> 'CARD_ISSUE'
                     AND o.user_id = e.user_id AND o.id < e.id AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL)
                   ORDER BY o.id LIMIT 1) f ON true
WHERE e.id = $1::uuid;

-- name: operator_cancel :many
-- why: PENDING -> REJECTED `cancelled` and its audit row: issuing.cancel. $1 to $7 as in operator_replay, $8 the text
-- for the user.
-- insert: acted
FROM (SELECT set_config('issuing.batch', coalesce($7::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL issuing.cancel(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid END, $2::int8, $8::text,
                                  $3::text, $4::text, $5::text, $6::text) AS r
-- insert: of_acted

-- name: operator_adopt :many
-- why: a PENDING event is given to the present issuer, with its audit row: issuing.adopt. $1 to $7 as in
-- operator_replay, $8 the address of that issuer or null, $9 issuer.settle_time in ms.
-- insert: acted
FROM (SELECT set_config('issuing.batch', coalesce($7::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL issuing.adopt(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid END, $2::int8,
                   CASE WHEN $8::text IS NOT NULL
                        THEN coalesce((SELECT i.id FROM issuing.issuers i WHERE i.address = $8::text
                                       ORDER BY i.seen_at DESC LIMIT 1), 0::int2) END,
                   $9::int8, $3::text, $4::text, $5::text, $6::text) AS r
-- insert: of_acted

-- name: operator_elsewhere :many
-- why: open card requests that workers have deferred because they belong to another issuer, by that issuer, and the
-- issuer that was claimed for last. It reads the open ones by outbox_events_due, and is asked where operator_open tells
-- of such ones. No lock.
SELECT coalesce(i.profile || ' at ' || i.address, 'the issuer of the card that is replaced'), count(*),
       (SELECT p.profile || ' at ' || p.address FROM issuing.issuers p ORDER BY p.seen_at DESC, p.id DESC LIMIT 1)
FROM issuing.outbox_events e
LEFT JOIN issuing.issuers i ON i.id = e.sent_to
WHERE e.event_type = 'CARD_ISSUE' AND e.due_at IS NOT NULL AND e.last_error LIKE '%: other\_issuer%'
GROUP BY 1
ORDER BY 2 DESC, 1
LIMIT 10;

-- name: operator_resolve :many
-- why: FAILED -> REJECTED `resolved` and its audit row: issuing.resolve. $1 to $7 as in operator_replay, $8 the
-- operator confirms that there is no card, $9 issuer.settle_time in ms, $10 the text for the user. For an event of a
-- route instead of these: $11 the operator confirms that it was not executed; $12 types and $13 their settling times in
-- ms, $14 that of all other types; $15 the text.
-- insert: acted
FROM (SELECT o.event_type = 'CARD_ISSUE' AS is_card,
             (SELECT s.ms FROM unnest($12::text[], $13::int8[]) AS s (type, ms) WHERE s.type = o.event_type)
                 AS settle_ms
      FROM issuing.outbox_events o
      WHERE o.id = $1::uuid AND set_config('issuing.batch', coalesce($7::text, ''), true) IS NOT NULL) t
-- guard: that there is no card does not mean that a charge was not executed
CROSS JOIN LATERAL issuing.resolve($1::uuid, $2::int8, CASE WHEN t.is_card THEN $8::bool ELSE $11::bool END,
                                   CASE WHEN t.is_card THEN $9::int8 ELSE coalesce(t.settle_ms, $14::int8) END,
                                   CASE WHEN t.is_card THEN $10::text ELSE $15::text END,
                                   $3::text, $4::text, $5::text, $6::text) AS r
-- insert: of_acted
