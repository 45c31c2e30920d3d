-- What `issuing-ctl doctor --data` compares: what the tables say of each other.

-- name: operator_data_begin :none
-- why: each check of the data is one statement, so it sees one state. Read-only; operator_data_timeout limits its
-- time.
BEGIN READ ONLY;

-- name: operator_data_timeout :one
-- why: a check that takes longer than $1 (as 60s) is given up: a statement that reads for hours holds up vacuum.
SELECT set_config('statement_timeout', $1::text, true);

-- name: operator_data_state :one
-- why: where a proof that was stopped goes on (null = it begins again, as after a day), what it has found, and when it
-- began; the first id of the last $1 us (null = of all); whether this role may record a proof. No lock.
SELECT CASE WHEN d.is_new THEN NULL ELSE p.up_to END, CASE WHEN d.is_new THEN 0 ELSE p.broken END,
       (extract(epoch FROM CASE WHEN d.is_new THEN clock_timestamp() ELSE p.began_at END) * 1000000)::int8,
       issuing.uuid7_least(clock_timestamp() - $1::int8 * interval '1 microsecond'),
       has_function_privilege('issuing.note_proof(uuid, uuid, int8, int8)', 'EXECUTE')
FROM issuing.data_proofs p
CROSS JOIN LATERAL (SELECT p.up_to IS NULL OR p.began_at NOT BETWEEN clock_timestamp() - interval '1 day'
                                                             AND clock_timestamp() AS is_new) d;

-- name: operator_data_next :one
-- why: where the next piece ends: about 64 pieces, of 20000 events at least. null = it is the last one. By the primary
-- key. No lock. $1 where it begins; null = at the first event.
SELECT (SELECT e.id FROM issuing.outbox_events e
        WHERE e.id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
        ORDER BY e.id
        OFFSET (SELECT greatest(20000, sum(c.reltuples) / 64)::int8 FROM pg_class c
                WHERE c.relkind = 'r' AND c.relname LIKE 'outbox\_events\_%')
        LIMIT 1);

-- name: operator_data_note :one
-- why: a piece was read: issuing.note_proof. False: another proof is under way. $1 where the piece began, $2 where it
-- ended, $3 when the proof began, in us, $4 how many rows break a rule.
SELECT issuing.note_proof($1::uuid, $2::uuid, $3::int8, $4::int8);

-- Each check below is of one piece, which begins at the id $1 and ends before $2; null = without an end. Where a row
-- has no id of an event, the time in these ids counts. Returns the number of rows that break the rule (1001 = more than
-- 1000) and the first few of them; then what there is, which is added up. A rule about an event covers only the time
-- for which events still exist: from their oldest partition on.

-- part: first_partition
coalesce((SELECT min(p.from_at) FROM issuing.partitions p WHERE p.parent = 'outbox_events'), '-infinity')

-- part: counted_and_shown
-- The end of WITH bad AS (SELECT ... AS id.
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

-- name: operator_data_accepted :one
-- why: no accepted request is lost: every key has its event, and accepted = ended + open.
WITH counted AS MATERIALIZED (
    SELECT coalesce(e.status, 'lost') AS status, count(*) AS n, min(k.event_id::text) AS one
    FROM issuing.idempotency_keys k LEFT JOIN issuing.outbox_events e ON e.id = k.event_id AND e.user_id = k.user_id
    WHERE issuing.at_in_piece(k.created_at, $1::uuid, $2::uuid)
      AND k.created_at >=
-- insert: first_partition
    GROUP BY 1
)
SELECT coalesce(sum(c.n) FILTER (WHERE c.status = 'lost'), 0)::int8, min(c.one) FILTER (WHERE c.status = 'lost'),
       coalesce(sum(c.n), 0)::int8,
       coalesce(sum(c.n) FILTER (WHERE c.status = 'COMPLETED'), 0)::int8,
       coalesce(sum(c.n) FILTER (WHERE c.status = 'REJECTED'), 0)::int8,
       coalesce(sum(c.n) FILTER (WHERE c.status = 'FAILED'), 0)::int8,
       coalesce(sum(c.n) FILTER (WHERE c.status IN ('PENDING', 'PROCESSING')), 0)::int8
FROM counted c;

-- name: operator_data_limits :one
-- why: a try that was counted as accepted has its event.
WITH bad AS MATERIALIZED (
    SELECT l.request_id::text AS id FROM issuing.rate_limit_log l
    WHERE l.accepted AND issuing.at_in_piece(l.at, $1::uuid, $2::uuid)
      AND l.at >=
-- insert: first_partition
      AND NOT EXISTS (SELECT FROM issuing.outbox_events e WHERE e.id = l.request_id)
-- insert: counted_and_shown

-- name: operator_data_keys :one
-- why: an open event or open question is never accepted a second time: its key exists. One that a reissue made has the
-- key of the event that it replaces, and the key stays with that one.
WITH bad AS MATERIALIZED (
    SELECT e.id::text AS id FROM issuing.outbox_events e
    WHERE e.idempotency_key IS NOT NULL AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL)
      AND issuing.in_piece(e.id, $1::uuid, $2::uuid)
      AND NOT EXISTS (SELECT FROM issuing.idempotency_keys k
                      WHERE k.user_id = e.user_id AND k.key = e.idempotency_key AND k.event_id = e.id)
      AND NOT EXISTS (SELECT FROM issuing.event_reissues r WHERE r.new_id = e.id)
-- insert: counted_and_shown

-- name: operator_data_completed :one
-- why: COMPLETED means that there is a card.
WITH bad AS MATERIALIZED (
    SELECT e.id::text AS id FROM issuing.outbox_events e
    WHERE e.event_type = 'CARD_ISSUE' AND e.status = 'COMPLETED'
      AND issuing.in_piece(e.id, $1::uuid, $2::uuid)
      AND NOT EXISTS (SELECT FROM issuing.cards c WHERE c.request_id = e.id AND c.user_id = e.user_id)
-- insert: counted_and_shown

-- name: operator_data_cards :one
-- why: every card belongs to a card request of its user; cards = completed + being linked + questions + cancelled ones
-- of refused requests.
WITH counted AS MATERIALIZED (
    SELECT coalesce(e.status, 'lost') AS status, count(*) AS n, min(c.id::text) AS one
    FROM issuing.cards c
    LEFT JOIN issuing.outbox_events e ON e.id = c.request_id AND e.user_id = c.user_id AND e.event_type = 'CARD_ISSUE'
    WHERE issuing.in_piece(c.request_id, $1::uuid, $2::uuid)
      AND c.request_id >= issuing.uuid7_least(greatest('epoch',
-- insert: first_partition
      ))
      AND substring(c.request_id::text FROM 15 FOR 1) = '7'
    GROUP BY 1
)
SELECT coalesce(sum(c.n) FILTER (WHERE c.status = 'lost'), 0)::int8, min(c.one) FILTER (WHERE c.status = 'lost'),
       coalesce(sum(c.n), 0)::int8,
       coalesce(sum(c.n) FILTER (WHERE c.status = 'COMPLETED'), 0)::int8,
       coalesce(sum(c.n) FILTER (WHERE c.status IN ('PENDING', 'PROCESSING')), 0)::int8,
       coalesce(sum(c.n) FILTER (WHERE c.status = 'FAILED'), 0)::int8,
       coalesce(sum(c.n) FILTER (WHERE c.status = 'REJECTED'), 0)::int8
FROM counted c;

-- name: operator_data_ends :one
-- why: the end of a request and its card agree. REJECTED = no usable card. A FAILED request may have its card (the link
-- was refused and core.on_link_refused is keep, attempts ran out while linking, the cancel failed), but not under a
-- reason that says there is none. A card that was replaced is not active.
WITH bad AS MATERIALIZED (
    SELECT e.id::text AS id FROM issuing.cards c JOIN issuing.outbox_events e ON e.id = c.request_id
    WHERE issuing.in_piece(c.request_id, $1::uuid, $2::uuid)
      -- The same, for the plan.
      AND issuing.in_piece(e.id, $1::uuid, $2::uuid)
      -- guard: a proof sees a refused request with a usable card
      AND (e.status = 'REJECTED' AND c.status <> 'cancelled'
           -- guard: a proof sees a card that lives beside the one that replaced it
           OR e.status = 'COMPLETED' AND c.replaces IS NOT NULL
              AND (SELECT o.status FROM issuing.cards o
                   WHERE o.user_id = c.user_id AND o.id = c.replaces) IN ('active', 'frozen')
           OR e.status = 'FAILED' AND c.status <> 'cancelled'
              AND (e.reason_code IN ('issuer_key_expired', 'issuer_duplicate', 'issuer_refused', 'outcome_unknown',
                                     'payload_invalid', 'user_not_found')
                   OR e.reason_code LIKE 'issuer\_http\_%'))
-- insert: counted_and_shown

-- name: operator_data_two_cards :one
-- why: one card for each request; the unique index ensures it as long as it exists and is valid.
WITH bad AS MATERIALIZED (
    SELECT c.request_id::text AS id FROM issuing.cards c
    WHERE issuing.in_piece(c.request_id, $1::uuid, $2::uuid)
    GROUP BY c.request_id HAVING count(*) > 1
-- insert: counted_and_shown

-- name: operator_data_reissues :one
-- why: a card is being replaced by an event that exists; otherwise it could never be replaced.
WITH bad AS MATERIALIZED (
    SELECT r.event_id::text AS id FROM issuing.card_reissues r
    WHERE issuing.in_piece(r.event_id, $1::uuid, $2::uuid)
      AND r.event_id >= issuing.uuid7_least(greatest('epoch',
-- insert: first_partition
      ))
      AND substring(r.event_id::text FROM 15 FOR 1) = '7'
      AND NOT EXISTS (SELECT FROM issuing.outbox_events e WHERE e.id = r.event_id)
-- insert: counted_and_shown

-- name: operator_data_notified :one
-- why: a final end of a card request has its notification, or waits for it, from the minute on after a route for it was
-- registered: an end that is older than the commit of the registration is not.
WITH waiting AS MATERIALIZED (
    SELECT u.id FROM issuing.end_notifications t CROSS JOIN LATERAL unnest(t.ids) AS u (id)
), bad AS MATERIALIZED (
    SELECT e.id::text AS id
    FROM issuing.outbox_events e JOIN issuing.routes r ON r.event_type = 'CARD_REQUEST_ENDED'
    WHERE e.event_type = 'CARD_ISSUE' AND e.status IN ('COMPLETED', 'REJECTED')
      AND e.completed_at > r.since + interval '1 minute' AND octet_length(e.user_id) BETWEEN 1 AND 128
      AND issuing.in_piece(e.id, $1::uuid, $2::uuid)
      AND NOT EXISTS (SELECT FROM waiting w WHERE w.id = e.id)
      AND NOT EXISTS (SELECT FROM issuing.outbox_events n
                      WHERE n.user_id = e.user_id AND n.event_type = 'CARD_REQUEST_ENDED'
                        AND n.payload #>> '{data,id}' = e.id::text AND n.payload #>> '{data,status}' = e.status)
-- insert: counted_and_shown

-- name: operator_data_overdue :one
-- why: nothing waits for what is over: no event behind one that ended (claims look again within an hour), no lease that
-- ran out long ago, no mark behind its deadline, no live card of a refused request that is still to be cancelled. The
-- piece is that of all.
WITH bad AS MATERIALIZED (
    SELECT e.id::text AS id FROM issuing.outbox_events e
    WHERE e.held_behind IS NOT NULL AND e.status = 'PENDING' AND e.updated_at < now() - interval '2 hours'
      AND NOT EXISTS (SELECT FROM issuing.outbox_events o
                      WHERE o.id = e.held_behind AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL))
      AND issuing.in_piece(e.id, $1::uuid, $2::uuid)
    UNION ALL
    SELECT e.id::text FROM issuing.outbox_events e
    WHERE e.status = 'PROCESSING' AND e.due_at IS NOT NULL AND e.lease_until < now() - interval '1 hour'
    UNION ALL
    SELECT p.event_id::text FROM issuing.marks p
    WHERE p.finished_at IS NULL
      AND (p.deadline_at < now() - interval '1 hour' OR p.orphan_at < now() - interval '1 hour')
-- insert: counted_and_shown

-- name: operator_data_statistics :one
-- why: the statistics, with what waits to be added, equal the rows, in the hours whose events are all there: of the
-- last retention, by hour, type and status. A difference is a row that breaks the rule. Reads these events once. $1
-- where the first piece begins.
WITH since AS MATERIALIZED (
    SELECT date_bin('1 hour', greatest(now() - (SELECT r.kept FROM issuing.retentions r WHERE r.name = 'events'),
                                       issuing.uuid7_time($1::uuid)), 'epoch') + interval '1 hour' AS hour
), bad AS MATERIALIZED (
    SELECT format('%s/%s/%s', to_char(n.hour AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24'), n.event_type, n.status) AS id
    FROM (SELECT c.hour, c.event_type, c.status, c.count
          FROM since CROSS JOIN LATERAL issuing.count_events(since.hour) c
          UNION ALL
          SELECT s.hour, s.event_type, s.status, -s.count
          FROM issuing.outbox_statistics s WHERE s.hour >= (SELECT hour FROM since)
          UNION ALL
          SELECT w.hour, w.event_type, w.status, -w.count
          FROM issuing.statistics_waiting w WHERE w.hour >= (SELECT hour FROM since)) n
    GROUP BY n.hour, n.event_type, n.status HAVING sum(n.count) <> 0
-- insert: counted_and_shown
