-- All statements of issuing-ctl, except the migrations. The role is issuing_operator (migrate: the owner), which has no
-- right on cards.number_record. The first 14 parameters of operator_pick_* are those of ctl/filter.c. A statement that
-- returns an event returns the columns of ctl/event.h, in its order.

-- part: event_columns
-- The columns of ctl/event.h, in its order, but the last ones.
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
-- ctl/filter.h, $1 to $14.
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

-- name: operator_session :none
-- why: the first statement of every session of issuing-ctl: whatever search_path the role, the database or the caller
-- has, names are found in PostgreSQL and in our schema only. A command, because a command looks up no name itself.
SET search_path = pg_catalog, issuing, pg_temp;

-- name: operator_lock_timeout :none
-- why: the second one: a command that meets a lock which another session holds for long says so and ends, since an
-- operator cannot see what it waits for. migrate and the console set a shorter time.
SET lock_timeout = '10s';

-- name: operator_status_exact :many
-- why: the number of events in each status, and the age of the oldest in seconds. It reads the whole table. No lock.
SELECT e.status, count(*),
       coalesce(greatest(extract(epoch FROM clock_timestamp() - min(coalesce(e.run_at, e.created_at))), 0), 0)::int8
FROM issuing.outbox_events e
GROUP BY e.status;

-- name: operator_status_small :many
-- why: the same of at most $1 events, any of them: where that is all, the counts are exact. No lock. $1 how many.
SELECT e.status, count(*),
       coalesce(greatest(extract(epoch FROM clock_timestamp() - min(coalesce(e.run_at, e.created_at))), 0), 0)::int8
FROM (SELECT x.status, x.created_at, x.run_at FROM issuing.outbox_events x LIMIT $1::int8) e
GROUP BY e.status;

-- part: is_unknown
(b.first_sent_at IS NOT NULL
 AND (b.event_type <> 'CARD_ISSUE'
      OR (SELECT c.id FROM issuing.cards c WHERE c.request_id = b.id LIMIT 1) IS NULL))

-- part: open_columns
-- What operator_open reads of an event: it may have to sort 100,000 of them.
x.id, x.event_type, x.status, x.due_at, x.first_sent_at, x.created_at, x.run_at, x.held_behind, x.deferral_code,
x.last_error

-- name: operator_open :many
-- why: the open events by type, by why they are PENDING and by why they were deferred, read once for all that `status`,
-- the console's first page and `targets` say of them (ctl/backlog.h has the columns). At most $1 of a type that is
-- delivered (card requests, and what issuing.routes names), and at most $1 of all types between two of these, which
-- nobody delivers: a service that writes ids into the type makes thousands, so all but the ten with most events are one
-- row, "n other types". Each by a range of outbox_events_due, in its order, so that no event is read twice; $1 means "or
-- more". A delivered type without an open event has a row too. Ends that wait to be told are a row of their
-- own. is_live: whether a living worker has the route; null = nobody has one. No lock. $2 issuer.key_lifetime in ms.
WITH delivered AS MATERIALIZED (
    SELECT d.type, d.is_live, lead(d.type, 1, chr(1114111)) OVER (ORDER BY d.type) AS next -- behind all types
    FROM (SELECT '' AS type, NULL::bool AS is_live
          UNION ALL SELECT 'CARD_ISSUE', EXISTS (SELECT FROM issuing.workers w
                                                 WHERE w.seen_at BETWEEN clock_timestamp() - interval '60 s'
                                                                     AND clock_timestamp() + interval '60 s')
          UNION ALL SELECT r.event_type, EXISTS (SELECT FROM issuing.route_workers_living w
                                                 WHERE w.event_type = r.event_type)
          FROM issuing.routes r WHERE r.event_type <> 'CARD_ISSUE') d
), counted AS MATERIALIZED (
    SELECT b.key[1] AS type, b.key[2] AS cause, b.key[3] AS code, bool_and(b.is_delivered) AS is_delivered,
           count(*) FILTER (WHERE b.status = 'PENDING') AS pending,
           count(*) FILTER (WHERE b.status = 'PROCESSING') AS processing,
           count(*) FILTER (WHERE b.held_behind IS NOT NULL) AS held,
           count(*) FILTER (WHERE b.status = 'PENDING' AND b.due_at <= clock_timestamp()) AS due,
           count(*) FILTER (WHERE b.is_overdue) AS overdue,
           count(*) FILTER (WHERE b.status = 'PENDING' AND b.run_at > now()) AS scheduled,
           count(*) FILTER (WHERE b.status = 'PENDING' AND b.is_unknown) AS unknown,
           min(coalesce(b.run_at, b.created_at)) FILTER (WHERE b.status = 'PENDING') AS pending_at,
           min(coalesce(b.run_at, b.created_at)) FILTER (WHERE b.run_at > now() IS NOT TRUE) AS oldest_at,
           min(b.due_at) FILTER (WHERE b.is_overdue) AS overdue_at,
           min(b.first_sent_at) FILTER (WHERE b.status = 'PENDING' AND b.is_unknown AND b.has_key) AS first_sent_at,
           min(b.due_at) FILTER (WHERE b.status = 'PENDING') AS next_at
    FROM (SELECT b.*,
                 b.status = 'PENDING' AND b.due_at < now() - interval '60 s' AND b.is_delivered AS is_overdue,
-- insert: is_unknown
                 AS is_unknown,
                 b.event_type = 'CARD_ISSUE'
                 AND b.first_sent_at > now() - $2::int8 * interval '1 millisecond' AS has_key
          FROM (SELECT e.id, e.event_type, e.status, e.due_at, e.first_sent_at, e.created_at, e.run_at, e.held_behind,
                       e.event_type = d.type AS is_delivered,
                       -- type, cause, code; one value, because the planner expects few of these, and sorts no rows
                       ARRAY[e.event_type,
                             CASE WHEN e.status <> 'PENDING' THEN NULL
                                  WHEN e.held_behind IS NOT NULL THEN 'held_behind'
                                  WHEN e.run_at > now() THEN 'scheduled'
                                  WHEN e.last_error LIKE 'the lease of %' THEN 'lease_expired' -- outbox_sweep
                                  -- else "step: code: detail"
                                  ELSE coalesce(e.deferral_code, nullif(split_part(e.last_error, ': ', 2), ''),
                                                'not_tried')
                             END,
                             CASE WHEN e.event_type = d.type THEN e.deferral_code END] AS key
                FROM delivered d
                CROSS JOIN LATERAL (
                    (SELECT
-- insert: open_columns
                     FROM issuing.outbox_events x WHERE x.event_type = d.type AND x.due_at IS NOT NULL
                     ORDER BY x.due_at LIMIT $1::int8)
                    UNION ALL
                    (SELECT
-- insert: open_columns
                     FROM issuing.outbox_events x
                     -- guard: an open event is read and counted once
                     WHERE x.event_type > d.type AND x.event_type < d.next AND x.due_at IS NOT NULL
                     ORDER BY x.event_type, x.due_at LIMIT $1::int8)) e) b
          OFFSET 0) b
    GROUP BY b.key
), others AS MATERIALIZED (
    SELECT c.*, least(dense_rank() OVER (ORDER BY c.of_type DESC, c.type), 11) AS line
    FROM (SELECT x.*, sum(x.pending) OVER (PARTITION BY x.type) AS of_type FROM counted x WHERE NOT x.is_delivered) c
)
SELECT t.type, t.cause, t.code, t.is_live, clock_timestamp(), t.pending, t.processing, t.held, t.due, t.overdue,
       t.scheduled, t.unknown, t.ends, t.pending_at, t.oldest_at, t.overdue_at, t.first_sent_at, t.next_at
FROM (SELECT d.type, c.cause, c.code, d.is_live, coalesce(c.pending, 0) AS pending,
             coalesce(c.processing, 0) AS processing, coalesce(c.held, 0) AS held, coalesce(c.due, 0) AS due,
             coalesce(c.overdue, 0) AS overdue,
             coalesce(c.scheduled, 0) AS scheduled, coalesce(c.unknown, 0) AS unknown, 0::int8 AS ends, c.pending_at,
             c.oldest_at, c.overdue_at, c.first_sent_at, c.next_at
      FROM delivered d LEFT JOIN counted c ON c.type = d.type
      WHERE d.type <> ''
      UNION ALL
      SELECT d.type, NULL, NULL, d.is_live, 0, 0, 0, 0, 0, 0, 0, w.events, w.oldest_at, NULL, NULL, NULL, NULL
      FROM delivered d, issuing.ends_waiting w -- no events yet
      WHERE d.type = 'CARD_REQUEST_ENDED' AND w.events > 0
      UNION ALL
      SELECT n.name, o.cause, NULL, NULL,
             sum(o.pending)::int8, sum(o.processing)::int8, 0, 0, 0, sum(o.scheduled)::int8, sum(o.unknown)::int8, 0,
             min(o.pending_at), min(o.oldest_at), NULL, min(o.first_sent_at), min(o.next_at)
      FROM others o
      JOIN (SELECT x.line, CASE WHEN count(DISTINCT x.type) = 1 THEN min(x.type)
                                ELSE count(DISTINCT x.type) || ' other types' END AS name
            FROM others x GROUP BY x.line) n ON n.line = o.line
      GROUP BY o.line, n.name, o.cause) t
ORDER BY t.is_live DESC NULLS LAST, t.type, t.cause, t.code
LIMIT 5000;

-- name: operator_failed :many
-- why: the FAILED events by reason and type, most frequent first, by outbox_events_failed, the oldest $1 of them, which
-- means "or more" (ctl/backlog.h has the columns): how many, when the first and the last one failed; and of them all,
-- in each row, how many there are, with an unknown outcome, as the metric counts it, and when the first send was of
-- those of these whose key has not ended. No lock. $2 issuer.key_lifetime in ms.
SELECT coalesce(b.reason_code, '-'), b.event_type, count(*), min(b.completed_at), max(b.completed_at),
       (sum(count(*)) OVER ())::int8, (sum(count(*) FILTER (WHERE b.is_unknown)) OVER ())::int8,
       min(min(b.first_sent_at) FILTER (WHERE b.is_unknown AND b.has_key)) OVER ()
FROM (SELECT b.*,
-- insert: is_unknown
             AS is_unknown,
             b.event_type = 'CARD_ISSUE' AND b.first_sent_at > now() - $2::int8 * interval '1 millisecond' AS has_key
      FROM (SELECT e.id, e.event_type, e.reason_code, e.completed_at, e.first_sent_at
            FROM issuing.outbox_events e WHERE e.failed_at IS NOT NULL ORDER BY e.id LIMIT $1::int8) b
      OFFSET 0) b
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT 100;

-- name: operator_pattern :many
-- why: whether it is the users: the longest begin of user ids whose users all have trouble (an event that is FAILED, or
-- open after a failed attempt), at least five of them, while nine tenths of the others have none, and these are more.
-- Among the newest $1 events by the primary key, of those that were tried. No row: there is none. Columns: the begin,
-- its users, the others, those of them with trouble, what its events say most often, when the first of these was made.
-- No lock.
WITH users AS MATERIALIZED (
    SELECT e.user_id, bool_or(e.has_trouble) AS has_trouble, mode() WITHIN GROUP (ORDER BY e.cause) AS cause,
           min(e.created_at) FILTER (WHERE e.has_trouble) AS since
    FROM (SELECT x.user_id, x.created_at, x.status IN ('FAILED', 'PENDING', 'PROCESSING') AS has_trouble,
                 coalesce(x.reason_code, x.last_error) AS cause
          FROM (SELECT n.* FROM issuing.outbox_events n ORDER BY n.id DESC LIMIT $1::int8) x
          WHERE x.status NOT IN ('PENDING', 'PROCESSING') OR x.last_error IS NOT NULL) e
    GROUP BY e.user_id
), groups AS MATERIALIZED (
    SELECT left(u.user_id, g.n) AS begin, g.n, count(*) AS users, mode() WITHIN GROUP (ORDER BY u.cause) AS cause,
           min(u.since) AS since
    FROM users u, generate_series(1, 8) AS g (n)
    WHERE length(u.user_id) > g.n
    GROUP BY 1, 2
    -- guard: a pattern is one only where every user has the trouble
    HAVING bool_and(u.has_trouble) AND count(*) >= 5
)
SELECT g.begin, g.users, a.users - g.users, a.troubled - g.users, left(coalesce(g.cause, '?'), 80), g.since
FROM groups g
CROSS JOIN (SELECT count(*) AS users, count(*) FILTER (WHERE u.has_trouble) AS troubled FROM users u) a
WHERE a.users - g.users > g.users AND (a.troubled - g.users) * 10 <= a.users - g.users
ORDER BY g.users DESC, g.n DESC
LIMIT 1;

-- name: operator_pace :many
-- why: at which rate what waits is done: of each type that is delivered, how many events ended since the beginning of
-- the hour that was ten minutes ago, by outbox_statistics; how many were made since, at the rate of the newest $1 by
-- the primary key; that begin; and whether more than these were made. No lock. $1 how many.
WITH span AS MATERIALIZED (
    SELECT date_trunc('hour', now() - interval '10 min', 'UTC') AS since
), newest AS MATERIALIZED (
    SELECT x.event_type, x.created_at FROM issuing.outbox_events x
    WHERE x.id >= issuing.uuid7_least((SELECT s.since FROM span s)) -- a join would be free to read all ids
    ORDER BY x.id DESC LIMIT $1::int8
), made AS MATERIALIZED (
    SELECT n.event_type, count(*) AS events FROM newest n GROUP BY 1
), ended AS MATERIALIZED (
    SELECT e.event_type, sum(e.count)::int8 AS events FROM issuing.outbox_statistics e, span s
    WHERE e.hour >= s.since
    GROUP BY 1
)
SELECT d.type, coalesce(e.events, 0), coalesce(m.events * r.times, 0)::int8, s.since, r.is_cut
FROM span s
CROSS JOIN (SELECT count(*) >= $1::int8 AS is_cut,
                   CASE WHEN count(*) < $1::int8 THEN 1
                        ELSE extract(epoch FROM now() - p.since)
                             / greatest(extract(epoch FROM now() - min(n.created_at)), 1) END AS times
            FROM span p LEFT JOIN newest n ON true GROUP BY p.since) r
CROSS JOIN (SELECT 'CARD_ISSUE' AS type UNION SELECT r.event_type FROM issuing.routes r) d
LEFT JOIN ended e ON e.event_type = d.type
LEFT JOIN made m ON m.event_type = d.type
ORDER BY d.type
LIMIT 100;

-- name: operator_status_rejected :many
-- why: why events were REJECTED since the beginning of the hour before this one, by outbox_statistics, whose primary
-- key begins with the hour; most frequent first. The fourth column is the number of them all, the fifth that of all
-- events that ended in any way, the last one the begin. No lock.
WITH ended AS MATERIALIZED (
    SELECT s.status, s.reason_code, s.event_type, s.count FROM issuing.outbox_statistics s
    WHERE s.hour >= date_trunc('hour', now(), 'UTC') - interval '1 hour'
)
SELECT coalesce(e.reason_code, '-'), e.event_type, sum(e.count)::int8, (sum(sum(e.count)) OVER ())::int8,
       (SELECT sum(a.count)::int8 FROM ended a), date_trunc('hour', now(), 'UTC') - interval '1 hour'
FROM ended e
WHERE e.status = 'REJECTED'
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT 20;

-- name: operator_routes :many
-- why: what workers deliver besides card requests, as they have told it (issuing.note_routes): the last one that named
-- it and when, how many living workers name it, since when it is registered, what living workers say of it that differ
-- from each other (null: they agree), how many events are open, 10000 at most, and how many ends wait to be told. Open
-- events by outbox_events_due. No lock.
SELECT r.event_type, r.is_ordered, r.has_lookup, r.key_lifetime_ms::int8, r.max_attempts::int8, r.is_signed, r.worker,
       r.seen_at,
       (SELECT count(*) FROM issuing.route_workers_living w WHERE w.event_type = r.event_type), r.since,
       (SELECT string_agg(d.worker || ' says ' || d.said, ', ' ORDER BY d.worker)
        FROM (SELECT DISTINCT ON (x.said) x.worker, x.said
              FROM (SELECT w.worker,
                           concat_ws(' ', CASE WHEN w.is_ordered THEN 'ordered' ELSE 'unordered' END,
                                     'key_lifetime=' || w.key_lifetime_ms || 'ms', 'max_attempts=' || w.max_attempts,
                                     CASE WHEN w.has_lookup THEN 'lookup_url' END,
                                     CASE WHEN w.is_signed THEN 'signed' END) AS said
                    FROM issuing.route_workers_living w WHERE w.event_type = r.event_type) x
              ORDER BY x.said, x.worker) d
        HAVING count(*) > 1),
       (SELECT count(*) FROM (SELECT FROM issuing.outbox_events e
                              WHERE e.event_type = r.event_type AND e.due_at IS NOT NULL LIMIT 10000) o),
       CASE WHEN r.event_type = 'CARD_REQUEST_ENDED' THEN (SELECT w.events FROM issuing.ends_waiting w) ELSE 0 END
FROM issuing.routes r
ORDER BY r.event_type
LIMIT 64;

-- name: operator_ends_refused :one
-- why: ends that cannot be told (issuing.ends_to_tell.refused): how many rows, one of their requests, and why. No lock.
SELECT count(*), min(r.ids[1]::text), min(r.refused) FROM issuing.ends_refused r;

-- name: operator_remove_route :one
-- why: nobody is to deliver the type any more: issuing.remove_route, with its audit row.
-- null = done, else why not. $1 type, $2 also while events are open or ends wait, $3 actor, $4 user of the operating
-- system, $5 SUDO_USER, $6 reason.
SELECT issuing.remove_route($1::text, $2::bool, $3::text, $4::text, $5::text, $6::text);

-- name: operator_held_back :many
-- why: the FAILED events of ordered types that hold back later ones of their user, with how many wait, 1000 at most;
-- the greatest number first. The oldest 2000 FAILED events of each are looked at, by outbox_events_failed; what waits,
-- by outbox_events_order. No lock. $1 how many to return.
SELECT f.id, f.event_type, w.n, count(*) OVER ()
FROM (SELECT x.id, x.event_type, x.user_id
      FROM issuing.routes r
      CROSS JOIN LATERAL (SELECT * FROM issuing.outbox_events o
                          WHERE o.failed_at IS NOT NULL AND o.event_type = r.event_type
                          ORDER BY o.id LIMIT 2000) x
      WHERE r.is_ordered) f
CROSS JOIN LATERAL (SELECT count(*) AS n
                    FROM (SELECT FROM issuing.outbox_events o
                          WHERE o.event_type = f.event_type AND o.event_type <> 'CARD_ISSUE' AND o.user_id = f.user_id
                            AND o.id > f.id AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL)
                            AND o.due_at IS NOT NULL
                          LIMIT 1000) b) w
WHERE w.n > 0
ORDER BY w.n DESC, f.id
LIMIT $1::int8;

-- name: operator_status_estimate :one
-- why: how many events there are, by the planner: the sum over the partitions of the rows by the statistics. A plan
-- only: no table is read. No lock that matters.
EXPLAIN (FORMAT JSON) SELECT FROM issuing.outbox_events e;

-- name: operator_status_estimate_rejected :one
-- why: the same for the REJECTED ones. A plan only.
EXPLAIN (FORMAT JSON) SELECT FROM issuing.outbox_events e WHERE e.status = 'REJECTED';

-- name: operator_status_estimate_open :one
-- why: the same for the open ones, where they are more than operator_open counts. A plan only.
EXPLAIN (FORMAT JSON) SELECT FROM issuing.outbox_events e WHERE e.due_at IS NOT NULL;

-- name: operator_status_estimate_failed :one
-- why: the same for the FAILED ones, where they are more than operator_failed counts. A plan only.
EXPLAIN (FORMAT JSON) SELECT FROM issuing.outbox_events e WHERE e.failed_at IS NOT NULL;

-- name: operator_bounds :one
-- why: what a walk needs once (ctl/pick.h, ctl/audit/audit.h): the time that "ago" counts from; and for events, from
-- when to when there are partitions. Ids of other times are in the partition _rest. No lock.
SELECT clock_timestamp(), min(p.from_at), max(p.to_at)
FROM issuing.partitions p
WHERE p.parent = 'outbox_events';

-- name: operator_pick_all :many
-- why: the events that match, walked by the primary key, $18 of them looked at in one statement, so that no statement
-- runs long however rare the matches are. Returns those that match, in order, and the last one that was looked at; the
-- last column is how many were. A statement is planned with its values: a filter that is null disappears, and of the
-- two sort keys one. No lock. $1-$14 filters (ctl/filter.h), $15 first id, $16 the id before which it ends, $17 newest
-- first, $18 how many to look at.
SELECT m.id, m.updated_at, m.matches, m.looked
FROM (SELECT e.id, e.updated_at, count(*) OVER () AS looked,
             row_number() OVER (ORDER BY CASE WHEN $17::bool THEN e.id END DESC, e.id) AS n,
             -- insert: event_filters
             AS matches
      FROM (SELECT * FROM issuing.outbox_events x
            WHERE ($15::uuid IS NULL OR x.id >= $15::uuid) AND ($16::uuid IS NULL OR x.id < $16::uuid)
            ORDER BY CASE WHEN $17::bool THEN x.id END DESC, x.id
            LIMIT $18::int8) e
      -- insert: card_for_filters
     ) m
WHERE m.matches OR m.n = m.looked
ORDER BY m.n;

-- name: operator_pick_user :many
-- why: like operator_pick_all, for the events of one user, by outbox_events_user. No lock.
SELECT m.id, m.updated_at, m.matches, m.looked
FROM (SELECT e.id, e.updated_at, count(*) OVER () AS looked,
             row_number() OVER (ORDER BY CASE WHEN $17::bool THEN e.id END DESC, e.id) AS n,
             -- insert: event_filters
             AS matches
      FROM (SELECT * FROM issuing.outbox_events x
            WHERE x.user_id = $4::text AND ($15::uuid IS NULL OR x.id >= $15::uuid)
              AND ($16::uuid IS NULL OR x.id < $16::uuid)
            ORDER BY CASE WHEN $17::bool THEN x.id END DESC, x.id
            LIMIT $18::int8) e
      -- insert: card_for_filters
     ) m
WHERE m.matches OR m.n = m.looked
ORDER BY m.n;

-- name: operator_pick_failed :many
-- why: like operator_pick_all, for the FAILED events, by outbox_events_failed. No lock.
SELECT m.id, m.updated_at, m.matches, m.looked
FROM (SELECT e.id, e.updated_at, count(*) OVER () AS looked,
             row_number() OVER (ORDER BY CASE WHEN $17::bool THEN e.id END DESC, e.id) AS n,
             -- insert: event_filters
             AS matches
      FROM (SELECT * FROM issuing.outbox_events x
            -- guard: the FAILED events are found by their index
            WHERE x.failed_at IS NOT NULL AND ($15::uuid IS NULL OR x.id >= $15::uuid)
              AND ($16::uuid IS NULL OR x.id < $16::uuid)
            ORDER BY CASE WHEN $17::bool THEN x.id END DESC, x.id
            LIMIT $18::int8) e
      -- insert: card_for_filters
     ) m
WHERE m.matches OR m.n = m.looked
ORDER BY m.n;

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

-- name: operator_pick_unsettled :many
-- why: like operator_pick_open, for the open and the FAILED events, by outbox_events_due and outbox_events_failed.
SELECT e.id, e.updated_at, true, count(*) OVER ()
FROM (SELECT * FROM issuing.outbox_events x WHERE x.due_at IS NOT NULL OR x.failed_at IS NOT NULL) e
-- insert: card_for_filters
WHERE
  -- insert: event_filters
  AND ($15::uuid IS NULL OR e.id >= $15::uuid) AND ($16::uuid IS NULL OR e.id < $16::uuid)
ORDER BY CASE WHEN $17::bool THEN e.id END DESC, e.id
LIMIT $18::int8;

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

-- name: operator_actions_of :many
-- why: what operators did to one event, in order; operator_actions_event. No lock. $1 event.
SELECT o.at, o.actor, o.action, o.reason, o.before::text, o.after::text, o.db_role, o.os_user, o.sudo_user
FROM issuing.operator_actions o
WHERE o.event_id = $1::uuid
ORDER BY o.id
LIMIT 10000;

-- part: audit_columns
-- The columns of ctl/audit/audit.c, in its order, but the last two.
s.id, s.at, s.event_id, s.actor, s.action, s.reason, s.db_role, s.os_user, s.sudo_user, s.before::text, s.after::text,
s.before ->> 'status', s.after ->> 'status', coalesce(s.after ->> 'target', s.before ->> 'target'), s.batch,
s.batch_scope,

-- part: audit_window
-- $1 since and $2 before, in us since 1970; $3 the id before which it goes on within $2. Null = any.
($1::int8 IS NULL OR o.at >= timestamptz 'epoch' + $1::int8 * interval '1 microsecond')
AND ($2::int8 IS NULL OR o.at <= timestamptz 'epoch' + $2::int8 * interval '1 microsecond')
-- guard: a walk over the audit goes on among the actions of one time
AND ($3::int8 IS NULL OR o.at < timestamptz 'epoch' + $2::int8 * interval '1 microsecond' OR o.id < $3::int8)

-- part: audit_own
o.id, o.at, o.event_id, o.actor, o.action, o.reason, o.db_role, o.os_user, o.sudo_user, o.before, o.after, o.batch,
o.batch_scope

-- part: audit_wanted
-- $4 actor, $5 action.
($4::text IS NULL OR $4::text IN (o.actor, o.os_user, o.sudo_user, o.db_role))
AND ($5::text IS NULL OR o.action = $5::text)

-- name: operator_audit :many
-- why: one step of a walk over the actions, newest first, by operator_actions_at. Looks at no more than $8, because
-- card numbers that users were shown are many. Returns the first $6 that match; and, unless there were more than $6,
-- the last one that was looked at, whose last but one column is false where it does not match. The last column of the
-- last row says whether nothing is left. Where $9, a bulk action of one actor matches once, with its newest row: newer
-- ones that earlier steps looked at are found by operator_actions_batch. No join with the rows themselves: it would read
-- the whole table. No lock. $1 to $3 audit_window, $6 how many to return, $7 also card numbers, $8 how many to look at,
-- $10 until, in us or null.
SELECT
-- insert: audit_columns
       -- guard: a walk over the audit ends only where all actions were looked at
       s.matches, s.n = s.looked AND s.looked < $8::int8
FROM (SELECT m.*, row_number() OVER w AS n, count(*) FILTER (WHERE m.matches) OVER w AS hits, count(*) OVER () AS looked
      FROM (SELECT f.*,
                   f.is_wanted
                   -- guard: a bulk action is one line of the audit
                   AND CASE WHEN f.batch IS NULL OR NOT $9::bool THEN true
                            WHEN f.in_batch > 1 THEN false
                            ELSE $3::int8 IS NULL OR (
                                SELECT o.id FROM issuing.operator_actions o
                                WHERE o.batch = f.batch AND o.db_role = f.db_role AND o.actor = f.actor
                                  AND o.action = f.action
                                  AND (o.at, o.id) >= (timestamptz 'epoch' + $2::int8 * interval '1 microsecond',
                                                       $3::int8)
                                  AND ($10::int8 IS NULL
                                       OR o.at <= timestamptz 'epoch' + $10::int8 * interval '1 microsecond')
                                LIMIT 1) IS NULL END AS matches
            FROM (SELECT
-- insert: audit_own
                         , row_number() OVER (PARTITION BY o.batch, o.db_role, o.actor, o.action
                                              ORDER BY o.at DESC, o.id DESC) AS in_batch,
-- insert: audit_wanted
                         AND ($7::bool OR o.action NOT IN ('number_revealed', 'number_refused')) AS is_wanted
                  FROM (SELECT * FROM issuing.operator_actions o
                        WHERE
-- insert: audit_window
                        ORDER BY o.at DESC, o.id DESC
                        LIMIT $8::int8) o) f
            OFFSET 0) m -- PostgreSQL 15 makes no plan of a window over the sub-select of `matches`
      WINDOW w AS (ORDER BY m.at DESC, m.id DESC ROWS UNBOUNDED PRECEDING)) s
WHERE s.hits <= $6::int8 AND (s.matches OR s.n = s.looked)
ORDER BY s.n;

-- name: operator_audit_event :many
-- why: the same for the actions on one event, by operator_actions_event: all of them are looked at, those of one event
-- are few. No lock. $1 to $3 audit_window, $6 how many to return, $7 event.
SELECT
-- insert: audit_columns
       true, count(*) OVER () < $6::int8
FROM (SELECT
-- insert: audit_own
      FROM issuing.operator_actions o
      WHERE o.event_id = $7::uuid
        AND
-- insert: audit_wanted
        AND
-- insert: audit_window
      ORDER BY o.at DESC, o.id DESC
      LIMIT $6::int8) s
ORDER BY s.at DESC, s.id DESC;

-- name: operator_audit_batch :many
-- why: the same for the actions of one bulk action, by operator_actions_batch. No lock. $1 to $3 audit_window, $6 how
-- many to return, $7 batch.
SELECT
-- insert: audit_columns
       true, count(*) OVER () < $6::int8
FROM (SELECT
-- insert: audit_own
      FROM issuing.operator_actions o
      WHERE o.batch = $7::uuid
        AND
-- insert: audit_wanted
        AND
-- insert: audit_window
      ORDER BY o.at DESC, o.id DESC
      LIMIT $6::int8) s
ORDER BY s.at DESC, s.id DESC;

-- name: operator_batch :one
-- why: what one bulk action of one actor did, and what its events are now: operator_actions_batch, then the primary key
-- of the newest $5 events. No lock. $1 batch, $2 database role, $3 actor, $4 action.
SELECT count(*)::int8, min(o.at), max(o.at),
       (SELECT string_agg(t.events || ' ' || t.status, ', ' ORDER BY t.events DESC, t.status)
        FROM (SELECT coalesce(e.status, 'removed') AS status, count(*) AS events
              FROM (SELECT n.event_id FROM issuing.operator_actions n
                    WHERE n.batch = $1::uuid AND n.db_role = $2::text AND n.actor = $3::text AND n.action = $4::text
                      AND n.event_id IS NOT NULL
                    ORDER BY n.at DESC, n.id DESC
                    LIMIT $5::int8) n
              LEFT JOIN issuing.outbox_events e ON e.id = n.event_id
              GROUP BY 1) t)
FROM issuing.operator_actions o
WHERE o.batch = $1::uuid AND o.db_role = $2::text AND o.actor = $3::text AND o.action = $4::text;

-- name: operator_audit_settled :one place
-- why: up to where the trail is decided, before it is exported: issuing.audit_settled. It waits up to 3 s for those
-- that write. No lock.
SELECT a.number, a.held, a.kept_from, a.asked_at FROM issuing.audit_settled() a;

-- name: operator_audit_begin :one
-- why: the number behind which a chain begins: before the first action since then, or before all. operator_actions_at.
-- No lock. $1 since, in us since 1970, or null; $2 up to where the trail is decided.
SELECT CASE WHEN $1::int8 IS NULL THEN 0
            ELSE coalesce((SELECT min(o.id) - 1 FROM issuing.operator_actions o
                           WHERE o.at >= timestamptz 'epoch' + $1::int8 * interval '1 microsecond'), $2::int8) END;

-- name: operator_audit_by_id :many
-- why: the next actions in the order of their numbers, which never changes up to $2; operator_actions_id. No lock. $1
-- behind which number, $2 up to which, $3 how many.
SELECT
-- insert: audit_columns
       true, false
FROM issuing.operator_actions s
WHERE s.id > $1::int8 AND s.id <= $2::int8
ORDER BY s.id
LIMIT $3::int8;

-- name: operator_limits :one
-- why: whether the next card request of a user would be accepted, as issuing.accept and issuing.frees_at decide
-- : the tries that count in the window, and when the next one passes, null = now.
-- rate_limit_log_user; as many rows as the limit counts. No lock. $1 user, $2 limit.count, $3 limit.window in ms, $4
-- refused tries count too.
WITH clock AS MATERIALIZED (
    SELECT c.t, c.t - $3::int8 * interval '1 millisecond' AS since FROM clock_timestamp() AS c (t)
), accepted AS MATERIALIZED (
    SELECT l.at FROM issuing.rate_limit_log l
    WHERE l.user_id = $1::text AND l.accepted AND l.at > (SELECT since FROM clock)
    ORDER BY l.at DESC
    LIMIT $2::int8
), refused AS MATERIALIZED (
    SELECT l.at FROM issuing.rate_limit_log l
    WHERE l.user_id = $1::text AND NOT l.accepted AND l.at > (SELECT since FROM clock)
    ORDER BY l.at DESC
    LIMIT greatest($2::int8, 1000)
), counted AS MATERIALIZED (
    SELECT a.at FROM accepted a
    UNION ALL SELECT r.at FROM refused r WHERE $4::bool
)
SELECT t, (SELECT count(*) FROM accepted), (SELECT count(*) FROM refused), (SELECT max(at) FROM refused),
       (SELECT least(c.at, t) + $3::int8 * interval '1 millisecond' FROM counted c
        ORDER BY c.at DESC OFFSET $2::int8 - 1 LIMIT 1)
FROM clock;

-- name: operator_limits_tries :many
-- why: the newest tries of a user within the window, accepted and refused, newest first, by rate_limit_log_user. No
-- lock. $1 user, $2 limit.window in ms, $3 how many.
SELECT t.at, t.accepted, t.request_id, t.at + $2::int8 * interval '1 millisecond'
FROM ((SELECT l.at, l.accepted, l.request_id FROM issuing.rate_limit_log l
       WHERE l.user_id = $1::text AND l.accepted AND l.at > now() - $2::int8 * interval '1 millisecond'
       ORDER BY l.at DESC LIMIT $3::int8)
      UNION ALL
      (SELECT l.at, l.accepted, l.request_id FROM issuing.rate_limit_log l
       WHERE l.user_id = $1::text AND NOT l.accepted AND l.at > now() - $2::int8 * interval '1 millisecond'
       ORDER BY l.at DESC LIMIT $3::int8)) t
ORDER BY t.at DESC
LIMIT $3::int8;

-- name: operator_replay :many
-- why: FAILED (of a route also REJECTED) -> PENDING and its audit row. Locks, conditions and what a replay resets are
-- explained at issuing.replay. No row = no such event; the last column says why nothing was done. The batch is set
-- first, and for this transaction only: a session may be a pooler's. $1 event, $2 updated_at as seen in us or null, $3
-- actor, $4 user of the operating system, $5 SUDO_USER, $6 reason, $7 the batch as of issuing.batch_id, or null.
SELECT
       -- insert: event_columns
       NULL::text, NULL::text, r.refused
FROM (SELECT set_config('issuing.batch', coalesce($7::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL issuing.replay(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid END, $2::int8, $3::text, $4::text, $5::text, $6::text) AS r
CROSS JOIN LATERAL (SELECT (r.event_row).*) AS e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id;

-- name: operator_resend :many
-- why: COMPLETED -> PENDING and its audit row: issuing.resend. $1 event, $2 updated_at as seen in us or null, $3 actor,
-- $4 user of the operating system, $5 SUDO_USER, $6 reason, $7 the batch.
SELECT
       -- insert: event_columns
       NULL::text, NULL::text, r.refused
FROM (SELECT set_config('issuing.batch', coalesce($7::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL issuing.resend(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid END, $2::int8, $3::text, $4::text, $5::text, $6::text) AS r
CROSS JOIN LATERAL (SELECT (r.event_row).*) AS e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id;

-- name: operator_prospect :many
-- why: what decides about the next attempt of one event beside the columns of ctl/event.h, and why a replay of it would
-- be refused, by the conditions of issuing.replay, which locks the row and may find it
-- changed; then, of an ordered type, the status of the event that it waits for, the first one of its user that is open
-- or FAILED, and how many of that user come after it, 1000 at most; then the issuer that it, or the card that it is to
-- replace, belongs to, where that is not the one that was claimed for last, and that one; then the deferrals in a row for one cause,
-- and that cause. Primary key and outbox_events_order. No lock. No row = no such event. $1 event.
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
                                   THEN issuing.issuer_of_card(e.user_id, e.payload ->> 'replaces') END, p.id))
LEFT JOIN LATERAL (SELECT o.id, o.status FROM issuing.outbox_events o
                   WHERE e.held_behind IS NOT NULL AND o.event_type = e.event_type AND o.event_type <> 'CARD_ISSUE'
                     AND o.user_id = e.user_id AND o.id < e.id AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL)
                   ORDER BY o.id LIMIT 1) f ON true
WHERE e.id = $1::uuid;

-- name: operator_cancel :many
-- why: PENDING -> REJECTED `cancelled` and its audit row: issuing.cancel. $1 event, $2
-- updated_at as seen in us or null, $3 the text for the user, $4 actor, $5 user of the operating system, $6 SUDO_USER,
-- $7 reason, $8 the batch.
SELECT
       -- insert: event_columns
       NULL::text, NULL::text, r.refused
FROM (SELECT set_config('issuing.batch', coalesce($8::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL issuing.cancel(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid END, $2::int8, $3::text, $4::text, $5::text, $6::text, $7::text) AS r
CROSS JOIN LATERAL (SELECT (r.event_row).*) AS e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id;

-- name: operator_adopt :many
-- why: a PENDING event is given to the present issuer, with its audit row: issuing.adopt.
-- $1 event, $2 updated_at as seen in us or null, $3 the address of that issuer or null, $4 issuer.settle_time in ms, $5
-- actor, $6 user of the operating system, $7 SUDO_USER, $8 reason, $9 the batch.
SELECT
       -- insert: event_columns
       NULL::text, NULL::text, r.refused
FROM (SELECT set_config('issuing.batch', coalesce($9::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL issuing.adopt(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid END, $2::int8,
                   CASE WHEN $3::text IS NOT NULL
                        THEN coalesce((SELECT i.id FROM issuing.issuers i WHERE i.address = $3::text
                                       ORDER BY i.seen_at DESC LIMIT 1), 0::int2) END,
                   $4::int8, $5::text, $6::text, $7::text, $8::text) AS r
CROSS JOIN LATERAL (SELECT (r.event_row).*) AS e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id;

-- name: operator_elsewhere :many
-- why: open card requests that workers have deferred because they belong to another issuer, by that issuer, and the
-- issuer that was claimed for last. It reads the open ones by outbox_events_due, and is asked where operator_open tells of
-- such ones. No lock.
SELECT coalesce(i.profile || ' at ' || i.address, 'the issuer of the card that is replaced'), count(*),
       (SELECT p.profile || ' at ' || p.address FROM issuing.issuers p ORDER BY p.seen_at DESC, p.id DESC LIMIT 1)
FROM issuing.outbox_events e
LEFT JOIN issuing.issuers i ON i.id = e.sent_to
WHERE e.event_type = 'CARD_ISSUE' AND e.due_at IS NOT NULL AND e.last_error LIKE '%: other\_issuer%'
GROUP BY 1
ORDER BY 2 DESC, 1
LIMIT 10;

-- name: operator_resolve :many
-- why: FAILED -> REJECTED `resolved` and its audit row: issuing.resolve. $1 event, $2
-- updated_at as seen in us or null, $3 the operator confirms that there is no card, $4 issuer.settle_time in ms, $5 the
-- text for the user, $6 actor, $7 user of the operating system, $8 SUDO_USER, $9 reason. For an event of a route in the
-- place of $3 to $5: $10 the operator confirms that it was not executed; $11 types and $12 their settling times in ms,
-- $13 that of all other types; $14 the text. $15 the batch.
SELECT
       -- insert: event_columns
       NULL::text, NULL::text, r.refused
FROM (SELECT o.event_type = 'CARD_ISSUE' AS is_card,
             (SELECT s.ms FROM unnest($11::text[], $12::int8[]) AS s (type, ms) WHERE s.type = o.event_type)
                 AS settle_ms
      FROM issuing.outbox_events o
      WHERE o.id = $1::uuid AND set_config('issuing.batch', coalesce($15::text, ''), true) IS NOT NULL) t
-- guard: that there is no card does not mean that a charge was not executed
CROSS JOIN LATERAL issuing.resolve($1::uuid, $2::int8, CASE WHEN t.is_card THEN $3::bool ELSE $10::bool END,
                                   CASE WHEN t.is_card THEN $4::int8 ELSE coalesce(t.settle_ms, $13::int8) END,
                                   CASE WHEN t.is_card THEN $5::text ELSE $14::text END,
                                   $6::text, $7::text, $8::text, $9::text) AS r
CROSS JOIN LATERAL (SELECT (r.event_row).*) AS e
LEFT JOIN issuing.cards c ON c.request_id = e.id AND c.user_id = e.user_id;

-- name: operator_ask_reconcile :many
-- why: a mark for each event, which a worker processes: issuing.ask_reconcile. An
-- unfinished one is joined, and keeps its deadline; that of a reissue is `busy`. $1 events, $2 time in ms, $3 actor, $4
-- user of the operating system, $5 SUDO_USER, $6 reason, $7 the batch.
SELECT i.id, a.check_id, a.refused, a.is_joined
FROM (SELECT set_config('issuing.batch', coalesce($7::text, ''), true) AS is_set OFFSET 0) AS b
CROSS JOIN LATERAL unnest(CASE WHEN b.is_set IS NOT NULL THEN $1::uuid[] END) AS i (id)
CROSS JOIN LATERAL issuing.ask_reconcile(i.id, $2::int8, $3::text, $4::text, $5::text, $6::text) AS a;

-- name: operator_ask_reissue :many
-- why: the mark of a reissue: issuing.ask_reissue. $1 event, $2 time in ms, $3 actor,
-- $4 user of the operating system, $5 SUDO_USER, $6 reason, $7 why the card is replaced, null = as before.
SELECT check_id, refused
FROM issuing.ask_reissue($1::uuid, $2::int8, $3::text, $4::text, $5::text, $6::text, $7::text);

-- name: operator_checks :many
-- why: the results of marks, with the event as it is now; primary keys. No lock. $1 marks.
SELECT p.id, p.event_id, p.finished_at IS NOT NULL, p.result, p.detail, p.new_id, e.status
FROM issuing.peer_checks p
LEFT JOIN issuing.outbox_events e ON e.id = p.event_id
WHERE p.id = ANY ($1::uuid[]);

-- name: operator_withdraw_check :one
-- why: the operator no longer waits for a mark, and it must have no effect. A worker that was quicker has written its
-- result, which is returned. $1 mark.
SELECT issuing.withdraw_check($1::uuid);

-- name: operator_ask_issuer_check :one
-- why: a check for a worker, and its audit row: issuing.ask_issuer_check. $1 target, $2 user or
-- null, $3 whether a card is made, $4 time in ms, $5 actor, $6 user of the operating system, $7 SUDO_USER, $8 reason.
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
-- in us since 1970 or negative = ago, $2 time in ms, $3 actor, $4 user of the operating system, $5 SUDO_USER, $6 reason.
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

-- name: operator_doctor :one
-- why: the facts that doctor judges: settings and catalogue rows that every role may read. It touches no table of ours,
-- so it works on an empty database. A backend much older than the connection means that a pooler is in between.
SELECT current_setting('server_version_num')::int8,
       current_user::text,
       (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user),
       pg_is_in_recovery(),
       -- What others have: this session has set its own.
       (SELECT s.reset_val FROM pg_settings s WHERE s.name = 'synchronous_commit'),
       current_setting('fsync'),
       current_setting('full_page_writes'),
       current_setting('autovacuum'),
       current_setting('track_counts'),
       current_setting('server_encoding'),
       clock_timestamp(),
       (SELECT coalesce((extract(epoch FROM clock_timestamp() - a.backend_start) * 1000000)::int8, 0)
        FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()),
       (SELECT string_agg(coalesce(r.rolname, 'the database'), ', ' ORDER BY r.rolname)
        FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole
        WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
          AND EXISTS (SELECT FROM unnest(s.setconfig) AS o (setting)
                      WHERE o.setting ~* '^synchronous_commit=(off|false|no|0)$'
                          OR o.setting ~* '^synchronous_commit=local$'
                            AND current_setting('synchronous_standby_names') <> '')),
       current_database()::text,
       current_setting('synchronous_standby_names'),
       -- Only who may read statistics sees the states of others' connections.
       CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE')
            THEN (SELECT count(*) FROM pg_stat_replication s WHERE s.sync_state IN ('sync', 'quorum')) END,
       current_setting('max_locks_per_transaction')::int8;

-- name: operator_doctor_jit :one
-- why: those of our roles for which JIT is not off, by what is set for the role, or for the role in this database,
-- which wins. NULL = none. A session of a program switches it off itself; people's do not. No lock.
SELECT string_agg(r.rolname, ', ' ORDER BY r.rolname)
FROM pg_roles r
WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
  AND coalesce((SELECT o.setting FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS o (setting)
                WHERE s.setrole = r.oid
                  AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
                  AND o.setting ~* '^jit='
                ORDER BY s.setdatabase DESC LIMIT 1), '') !~* '^jit=(off|false|no|0)$';

-- name: operator_doctor_logged :many
-- why: roles of ours whose statements are written to the server's log with what they are given, why, and how to end it.
-- What counts for a role is set for it in this database, for it, for the database, or for the server. No lock.
WITH set_for AS MATERIALIZED (
    SELECT r.oid AS role, split_part(o.setting, '=', 1) AS name, substr(o.setting, strpos(o.setting, '=') + 1) AS value,
           row_number() OVER (PARTITION BY r.oid, split_part(o.setting, '=', 1)
                              ORDER BY s.setrole = 0, s.setdatabase = 0) AS n
    FROM pg_roles r
    JOIN pg_db_role_setting s ON s.setrole IN (r.oid, 0)
        AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
    CROSS JOIN unnest(s.setconfig) AS o (setting)
), server AS MATERIALIZED (
    -- The session's own value says nothing of the server where it was set for this role.
    SELECT p.name, CASE WHEN p.source IN ('user', 'database user') THEN p.boot_val ELSE p.setting END AS value
    FROM pg_settings p WHERE p.name ~ 'log_'
), found AS (
    SELECT r.rolname AS role, v.name, v.reason, v.pattern,
           coalesce((SELECT f.value FROM set_for f WHERE f.role = r.oid AND f.name = v.name AND f.n = 1),
                    (SELECT g.value FROM server g WHERE g.name = v.name), '-1') AS most,
           coalesce((SELECT f.value FROM set_for f WHERE f.role = r.oid AND f.name = v.reason AND f.n = 1),
                    (SELECT g.value FROM server g WHERE g.name = v.reason)) AS reason_value
    FROM pg_roles r
    CROSS JOIN (VALUES ('log_parameter_max_length', 'log_statement', '^(mod|all)$'),
                       ('log_parameter_max_length', 'log_min_duration_statement', '^[0-9]'),
                       ('log_parameter_max_length', 'log_min_duration_sample', '^[0-9]'),
                       ('log_parameter_max_length', 'log_transaction_sample_rate', '[1-9]'),
                       ('log_parameter_max_length_on_error', 'log_min_error_statement', ''),
                       ('auto_explain.log_parameter_max_length', 'auto_explain.log_min_duration', '^[0-9]'))
               AS v (name, reason, pattern)
    WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
      -- It came with PostgreSQL 16; before, auto_explain logged no values.
      AND (v.name !~ '^auto_explain' OR current_setting('server_version_num')::int8 >= 160000)
)
SELECT f.role::text, string_agg(format('%s = %s', f.reason, f.reason_value), ', '),
       format('as a superuser: ALTER ROLE %I SET %s = 0', f.role, f.name)
FROM found f
-- guard: doctor sees that values of our statements are logged
WHERE f.reason_value ~ f.pattern AND f.most !~ '^0+ *([kMGT]?B)?$'
GROUP BY f.role, f.name
ORDER BY 1, 3;

-- name: operator_doctor_disagree :many
-- why: what the living workers must have alike, and have not. No lock.
SELECT d.name, left(d.says, 600) FROM issuing.workers_disagree d ORDER BY d.name;

-- name: operator_doctor_collation :one
-- why: the version of the database's collation when its indexes were made, and the one that the host has now; NULL = it
-- has none. Catalogues only. No lock.
SELECT d.datcollversion, pg_database_collation_actual_version(d.oid)
FROM pg_database d WHERE d.datname = current_database();

-- name: operator_doctor_publications :one
-- why: tables of ours that a publication has and whose rows cannot be changed therefore, because they have neither a
-- primary key nor another replica identity; NULL = none. Catalogues only. No lock.
SELECT string_agg(DISTINCT c.oid::regclass::text, ', '), min(t.pubname)::text
FROM pg_publication_tables t
JOIN pg_publication p ON p.pubname = t.pubname AND (p.pubupdate OR p.pubdelete)
JOIN pg_class o ON o.oid = to_regclass(format('%I.%I', t.schemaname, t.tablename))
JOIN pg_class c ON c.oid = o.oid OR c.relispartition AND pg_partition_root(c.oid) = o.oid
WHERE t.schemaname ~ '^issuing(_p[0-9]+)?$' AND c.relkind = 'r' AND c.relreplident IN ('d', 'n')
  AND NOT (c.relreplident = 'd' AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary));

-- name: operator_doctor_holders :many
-- why: what holds vacuum or WAL back in this cluster: snapshots and prepared transactions that are older than $1 ms, slots
-- that hold rows or WAL and that nobody reads, tables whose oldest row is older than $3 transactions. The time of another
-- role's session is told to who may read statistics; without it, its age in transactions counts ($2). Catalogues only. No
-- lock.
SELECT 'snapshot', format('process %s of role %s, state %s', a.pid, coalesce(a.usename, '?'), coalesce(a.state, '?')),
       (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::int8, age(a.backend_xmin)::int8, NULL::int8,
       'end it: SELECT pg_terminate_backend(PID)'
FROM pg_stat_activity a
WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
  AND CASE WHEN a.xact_start IS NULL THEN age(a.backend_xmin) > $2::int8
           ELSE a.xact_start < clock_timestamp() - $1::int8 * interval '1 millisecond' END
UNION ALL
SELECT 'prepared', format('transaction %L of role %s in database %s', left(p.gid, 60), p.owner, p.database),
       (extract(epoch FROM clock_timestamp() - p.prepared) * 1000)::int8, age(p.transaction)::int8, NULL,
       'COMMIT PREPARED or ROLLBACK PREPARED, as its transaction manager says'
FROM pg_prepared_xacts p WHERE p.prepared < clock_timestamp() - $1::int8 * interval '1 millisecond'
UNION ALL
SELECT 'slot', format('%s%s', s.slot_name, CASE WHEN s.active THEN '' ELSE ', which nobody reads' END), NULL,
       coalesce(greatest(age(s.xmin), age(s.catalog_xmin)), 0)::int8,
       CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::int8 END,
       'start its reader, or SELECT pg_drop_replication_slot(NAME): the disk fills'
FROM pg_replication_slots s WHERE NOT s.active AND s.wal_status IS DISTINCT FROM 'lost'
UNION ALL
SELECT 'wraparound', c.oid::regclass::text, NULL, age(c.relfrozenxid)::int8, NULL,
       'VACUUM it, and see why autovacuum does not: PostgreSQL refuses to write in the end'
FROM pg_class c
WHERE c.relkind IN ('r', 't', 'm') AND age(c.relfrozenxid) > $3::int8
ORDER BY 4 DESC NULLS LAST
LIMIT 20;

-- name: operator_doctor_certificates :many
-- why: when the certificates of the targets end, as living workers saw them. No lock.
SELECT t.target, min(t.certificate_ends_at),
       floor(extract(epoch FROM min(t.certificate_ends_at) - clock_timestamp()) / 86400)::int8
FROM issuing.worker_targets t JOIN issuing.workers w ON w.name = t.worker
WHERE t.certificate_ends_at IS NOT NULL
  AND w.seen_at BETWEEN clock_timestamp() - interval '60 s' AND clock_timestamp() + interval '60 s'
GROUP BY t.target
ORDER BY 2;

-- name: operator_doctor_history :one
-- why: what programs have found missing here, and since when, while no operator has accepted it; nulls = nothing. No
-- lock.
SELECT string_agg(h.lost, '; ' ORDER BY h.lost_at), min(h.lost_at)
FROM issuing.histories h
WHERE h.lost_at IS NOT NULL AND h.accepted_at IS NULL;

-- name: operator_doctor_house :one
-- why: how long ago the housekeeping passed, who has its turn, and plans that are late with who holds their tables. No
-- lock.
SELECT (extract(epoch FROM clock_timestamp() - h.passed_at) * 1000)::int8, h.holder, h.plans
FROM issuing.house_state() h;

-- name: operator_doctor_locks_seen :one
-- why: whether everybody may read the keys of locks (pg_locks), and whether this role and the owner of the schema may.
-- No lock.
SELECT EXISTS (SELECT FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
               WHERE p.oid = 'pg_lock_status()'::regprocedure AND x.grantee = 0),
       bool_and(has_function_privilege(r.oid, 'pg_lock_status()', 'EXECUTE')
                AND has_table_privilege(r.oid, 'pg_locks', 'SELECT'))
FROM pg_roles r
WHERE r.rolname = current_user OR r.oid = (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'issuing');

-- name: operator_doctor_strangers :many
-- why: sessions of other roles that hold advisory locks here, or that a session of ours has waited for longer than a
-- second. Since when they do what they do is told to who may read statistics. No lock.
WITH ours AS MATERIALIZED (
    SELECT r.oid FROM pg_roles r
    WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
), blocking AS MATERIALIZED (
    SELECT DISTINCT b.pid
    FROM pg_locks l
    JOIN pg_stat_activity a ON a.pid = l.pid AND a.usesysid IN (SELECT o.oid FROM ours o)
    CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) AS b (pid)
    WHERE NOT l.granted AND l.waitstart < clock_timestamp() - interval '1 second'
), holding AS MATERIALIZED (
    SELECT l.pid, count(*) AS locks
    FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    GROUP BY 1
)
SELECT a.pid::int8, a.usename::text, coalesce(a.xact_start, a.state_change), coalesce(h.locks, 0),
       EXISTS (SELECT FROM blocking b WHERE b.pid = a.pid)
FROM pg_stat_activity a
LEFT JOIN holding h ON h.pid = a.pid
WHERE (h.pid IS NOT NULL OR a.pid IN (SELECT b.pid FROM blocking b))
  AND a.usesysid NOT IN (SELECT o.oid FROM ours o) AND a.pid <> pg_backend_pid()
ORDER BY 5 DESC, 1
LIMIT 20;

-- name: operator_held :many
-- why: sessions that keep everybody from reading our tables: they have locked one exclusively, or somebody who wants to
-- waits for them. Since when is told to who may read statistics; to others since when somebody waits. Asked before our
-- tables are. Catalogues only. It waits for no lock.
WITH locked AS MATERIALIZED (
    SELECT coalesce(l.pid, 0) AS pid, l.granted, c.relname
    FROM pg_locks l
    JOIN pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p')
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname ~ '^issuing(_p[0-9]+)?$'
    WHERE l.mode = 'AccessExclusiveLock'
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
), holding AS MATERIALIZED (
    SELECT k.pid, k.relname FROM locked k WHERE k.granted
    UNION
    SELECT b.pid, k.relname FROM locked k CROSS JOIN LATERAL unnest(pg_blocking_pids(k.pid)) AS b (pid)
    WHERE NOT k.granted
)
SELECT h.pid::int8, a.usename::text,
       coalesce(min(a.xact_start), (SELECT min(w.waitstart) FROM pg_locks w
                                    WHERE NOT w.granted AND h.pid = ANY (pg_blocking_pids(w.pid)))),
       string_agg(h.relname, ', ' ORDER BY h.relname)
FROM holding h LEFT JOIN pg_stat_activity a ON a.pid = h.pid
WHERE h.pid <> pg_backend_pid()
GROUP BY h.pid, a.usename
ORDER BY 3 NULLS LAST, 1
LIMIT 20;

-- name: operator_roles :many
-- why: which of the five roles exist, whether one of them is a superuser (then none of its rights means anything), and
-- whether it may be missing. No lock.
SELECT w.name, r.rolname IS NOT NULL, coalesce(r.rolsuper, false), w.name = 'issuing_viewer'
FROM unnest(ARRAY['issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer'])
    WITH ORDINALITY AS w (name, n)
LEFT JOIN pg_roles r ON r.rolname = w.name
ORDER BY w.n;

-- name: operator_rights :many
-- why: rights that differ from those of grants.sql, missing or too many, of our roles and of PUBLIC. Needs the schema.
-- No lock. What a place has is wanted in each place, and of what stands in issuing for all of them. $1 what grants.sql
-- grants, as embed_schema.py lists it.
WITH spaces AS MATERIALIZED (
    SELECT '' AS suffix, to_regnamespace('issuing')::oid AS space, p.count > 1 AS is_over_places FROM issuing.places p
    UNION ALL
    SELECT '_p' || n, to_regnamespace('issuing_p' || n)::oid, false
    FROM issuing.places p, generate_series(0, p.count - 1) n
    WHERE p.count > 1 AND to_regnamespace('issuing_p' || n) IS NOT NULL
), listed AS MATERIALIZED (
    SELECT r.oid AS role, w.value ->> 1 AS kind, w.value ->> 3 AS col, w.value ->> 4 AS granted,
           replace(w.value ->> 2, chr(1), s.suffix) AS name,
           s.is_over_places AND strpos(w.value ->> 2, chr(1)) > 0 AS may_be_missing
    FROM jsonb_array_elements($1::text::jsonb) w
    JOIN pg_roles r ON r.rolname = w.value ->> 0 AND NOT r.rolsuper
    JOIN spaces s ON s.suffix = '' OR strpos(w.value ->> 2, chr(1)) > 0
), wanted AS MATERIALIZED (
    SELECT l.role, l.kind, l.col, l.granted, l.name, t.thing
    FROM listed l
    CROSS JOIN LATERAL (SELECT CASE l.kind WHEN 'table' THEN to_regclass(l.name)::oid
                                           WHEN 'function' THEN to_regprocedure(l.name)::oid
                                           ELSE to_regnamespace(l.name)::oid END AS thing) t
    WHERE NOT (l.may_be_missing AND t.thing IS NULL)
), has AS MATERIALIZED (
    SELECT x.grantee AS role, 'table' AS kind, NULL::text AS col, x.privilege_type AS granted, c.oid AS thing
    FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) x
    -- guard: doctor sees a right too many
    WHERE c.relnamespace IN (SELECT s.space FROM spaces s) AND x.grantee <> c.relowner
    UNION
    SELECT x.grantee, 'table', t.attname, x.privilege_type, c.oid
    FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid AND NOT t.attisdropped
    CROSS JOIN LATERAL aclexplode(t.attacl) x
    WHERE c.relnamespace IN (SELECT s.space FROM spaces s) AND x.grantee <> c.relowner
    UNION
    SELECT x.grantee, 'function', NULL, x.privilege_type, p.oid
    FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) x
    WHERE p.pronamespace IN (SELECT s.space FROM spaces s) AND x.grantee NOT IN (p.proowner, 0)
    UNION
    SELECT x.grantee, 'schema', NULL, x.privilege_type, n.oid
    FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) x
    WHERE n.oid IN (SELECT s.space FROM spaces s) AND x.grantee <> n.nspowner
)
SELECT (SELECT r.rolname FROM pg_roles r WHERE r.oid = w.role)::text, w.name, w.col, w.granted, true
FROM wanted w
WHERE NOT EXISTS (SELECT FROM has h WHERE h.role = w.role AND h.kind = w.kind AND h.thing = w.thing
                  AND h.granted = w.granted
                  AND h.col IS NOT DISTINCT FROM w.col)
UNION ALL
SELECT CASE WHEN h.role = 0 THEN 'PUBLIC' ELSE r.rolname END,
       CASE h.kind WHEN 'table' THEN h.thing::regclass::text
                   WHEN 'function' THEN h.thing::regprocedure::text
                   ELSE h.thing::regnamespace::text END,
       h.col, h.granted, false
FROM has h
LEFT JOIN pg_roles r ON r.oid = h.role
WHERE (h.role = 0 OR r.rolname IN ('issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
       AND NOT r.rolsuper)
  AND NOT EXISTS (SELECT FROM wanted w WHERE w.role = h.role AND w.kind = h.kind AND w.thing = h.thing
                  AND w.granted = h.granted
                  AND w.col IS NOT DISTINCT FROM h.col)
ORDER BY 5, 1, 2, 3, 4
LIMIT 50;

-- name: operator_guards :many
-- why: settings that let code of others run in our name, or let a role do more than its own rights allow: owners, the
-- search_path of functions and roles, who may call functions that run as the owner, memberships. One row for each
-- fault: whether it is only a warning, what, and how to repair it. Catalogues only. No lock.
WITH ours AS MATERIALIZED (
    SELECT n.oid, n.nspowner AS owner, r.rolname AS owner_name, r.rolsuper
    FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
    WHERE n.nspname = 'issuing'
), spaces AS MATERIALIZED ( -- and those of the places
    SELECT n.oid, n.nspname AS name,
           format('search_path=pg_catalog, %sissuing, pg_temp', CASE WHEN n.nspname <> 'issuing'
                                                                     THEN n.nspname || ', ' END) AS path
    FROM pg_namespace n WHERE n.nspname ~ '^issuing(_p[0-9]+)?$'
), programs AS MATERIALIZED (
    SELECT r.* FROM pg_roles r
    WHERE r.rolname IN ('issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer') AND NOT r.rolsuper
), things AS MATERIALIZED (
    SELECT c.oid::regclass::text AS name, c.relowner AS owner FROM pg_class c JOIN spaces o ON c.relnamespace = o.oid
    WHERE c.relkind <> 'i' AND c.relkind <> 'I'
    UNION ALL SELECT p.oid::regprocedure::text, p.proowner FROM pg_proc p JOIN spaces o ON p.pronamespace = o.oid
    UNION ALL SELECT p.oid::regoperator::text, p.oprowner FROM pg_operator p JOIN spaces o ON p.oprnamespace = o.oid
    UNION ALL SELECT t.oid::regtype::text, t.typowner FROM pg_type t JOIN spaces o ON t.typnamespace = o.oid
    UNION ALL SELECT c.collname, c.collowner FROM pg_collation c JOIN spaces o ON c.collnamespace = o.oid
    UNION ALL SELECT c.opcname, c.opcowner FROM pg_opclass c JOIN spaces o ON c.opcnamespace = o.oid
), faults AS (
    SELECT 1 AS n, false AS is_warning,
           format('%s belongs to %s and not to %s', t.name, pg_get_userbyid(t.owner), o.owner_name) AS what,
           'ALTER ... OWNER TO the owner of the schema, or drop it: it may run as any role that uses the schema'
               AS fix
    FROM things t CROSS JOIN ours o WHERE t.owner <> o.owner
    UNION ALL
    SELECT 0, false, format('the schema issuing belongs to %s%s', o.owner_name,
                            CASE WHEN o.rolsuper THEN ', a superuser' ELSE '' END),
           'let it and all that is in it belong to issuing_owner, and no superuser'
    FROM ours o
    WHERE o.rolsuper
       OR o.owner_name <> 'issuing_owner' AND EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'issuing_owner')
    UNION ALL
    SELECT 3, false, format('%s may create in the schema %s', coalesce(r.rolname, 'PUBLIC'), o.name),
           format('REVOKE CREATE ON SCHEMA %s FROM it', o.name)
    FROM spaces o JOIN pg_namespace s ON s.oid = o.oid CROSS JOIN LATERAL aclexplode(s.nspacl) x
    LEFT JOIN pg_roles r ON r.oid = x.grantee
    WHERE x.privilege_type = 'CREATE' AND x.grantee <> s.nspowner
    UNION ALL
    SELECT 0, false, format('the schema %s belongs to %s and not to %s', o.name, pg_get_userbyid(s.nspowner),
                            w.owner_name),
           'ALTER SCHEMA ... OWNER TO the owner of the schema issuing'
    FROM spaces o JOIN pg_namespace s ON s.oid = o.oid CROSS JOIN ours w WHERE s.nspowner <> w.owner
    UNION ALL
    SELECT 4, false, format('%s has no fixed search_path', p.oid::regprocedure),
           'run issuing-ctl migrate, or ALTER FUNCTION ... SET search_path = pg_catalog, issuing, pg_temp'
    FROM pg_proc p CROSS JOIN ours o LEFT JOIN spaces s ON s.oid = p.pronamespace
    WHERE (s.oid IS NOT NULL OR p.prosecdef AND p.proowner = o.owner)
      AND NOT coalesce(p.proconfig && ARRAY[coalesce(s.path, 'search_path=pg_catalog, issuing, pg_temp'),
                                                'search_path=pg_catalog, pg_temp'], false)
      AND p.prosqlbody IS NULL -- parsed when it was made
    UNION ALL
    SELECT 5, false, format('everybody may call %s, which runs as %s', p.oid::regprocedure, o.owner_name),
           'REVOKE ALL ON FUNCTION ... FROM PUBLIC'
    FROM pg_proc p CROSS JOIN ours o
    WHERE p.prosecdef AND p.proowner = o.owner
      -- guard: doctor sees a function of the owner that everybody may call
      AND (p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) x WHERE x.grantee = 0))
    UNION ALL
    SELECT 6, false, format('%s is a member of %s', r.rolname, m.rolname),
           format('REVOKE %I FROM %I: the role can do all that the other can', m.rolname, r.rolname)
    FROM programs r CROSS JOIN ours o
    JOIN pg_roles m ON m.oid <> r.oid AND pg_has_role(r.oid, m.oid, 'MEMBER')
        AND (m.rolsuper OR m.oid = o.owner OR m.rolname ~ '^issuing_(owner|api|worker|operator|viewer)$'
             OR m.rolname IN ('pg_read_all_data', 'pg_write_all_data', 'pg_read_server_files', 'pg_write_server_files',
                              'pg_execute_server_program'))
    WHERE NOT (r.rolname = 'issuing_operator' AND m.rolname = 'issuing_viewer')
    UNION ALL
    SELECT 7, false, format('%s may %s', r.rolname, w.what), format('ALTER ROLE %I %s', r.rolname, w.fix)
    FROM programs r
    CROSS JOIN LATERAL (VALUES (r.rolcreaterole, 'make and change roles', 'NOCREATEROLE'),
                               (r.rolreplication, 'read all data as a replica', 'NOREPLICATION'),
                               (r.rolbypassrls, 'pass by row security', 'NOBYPASSRLS')) AS w (is_so, what, fix)
    WHERE w.is_so
    UNION ALL
    SELECT 8, false, format('%s can read encrypted card numbers in %s', r.rolname, t.name),
           'REVOKE it; numbers are for issuing.take_number only'
    FROM programs r
    CROSS JOIN (SELECT s.name || '.cards' FROM spaces s UNION ALL SELECT 'public.cards') AS t (name)
    JOIN pg_attribute a ON a.attrelid = to_regclass(t.name) AND a.attname = 'number_record'
    WHERE has_column_privilege(r.oid, a.attrelid, a.attnum, 'SELECT')
    UNION ALL
    SELECT 9, false, format('the trigger %s of %s is switched off', t.tgname, t.tgrelid::regclass),
           'ALTER TABLE ... ENABLE TRIGGER'
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN spaces o ON o.oid = c.relnamespace
    WHERE t.tgenabled = 'D'
    UNION ALL
    SELECT 10, false,
           format('%s.cards has lost cards_one_per_request: two cards of one request could be stored', o.name),
           format('ALTER TABLE %s.cards ADD CONSTRAINT cards_one_per_request UNIQUE (request_id)', o.name)
    FROM pg_class c JOIN spaces o ON o.oid = c.relnamespace
    WHERE c.relname = 'cards' AND c.relkind IN ('r', 'p')
      AND NOT EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
                      WHERE i.indrelid = c.oid AND x.relname = 'cards_one_per_request' AND i.indisunique
                        AND i.indisvalid)
    UNION ALL
    SELECT 11, v.setting IS NULL, format('%s: %s', r.rolname, coalesce(v.setting, 'no search_path is set')),
           format('ALTER ROLE %I SET search_path = pg_catalog, issuing, pg_temp (migrate does it as a superuser)',
                  r.rolname)
    FROM pg_roles r
    LEFT JOIN LATERAL (
        SELECT u.setting FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS u (setting)
        WHERE s.setrole = r.oid
          AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
          AND u.setting LIKE 'search_path=%'
        ORDER BY u.setting = 'search_path=pg_catalog, issuing, pg_temp' LIMIT 1) v ON true
    WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
      AND v.setting IS DISTINCT FROM 'search_path=pg_catalog, issuing, pg_temp'
    UNION ALL
    SELECT 12, true, 'everybody may create in the schema public',
           'REVOKE CREATE ON SCHEMA public FROM PUBLIC: what others create there may be found before what they mean'
    FROM pg_namespace n CROSS JOIN LATERAL aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x
    WHERE n.nspname = 'public' AND x.grantee = 0 AND x.privilege_type = 'CREATE'
    UNION ALL
    SELECT 13, true,
           format('everybody may %s', CASE x.privilege_type WHEN 'CONNECT' THEN 'connect to this database'
                                                            ELSE 'make temporary tables in this database' END),
           format('REVOKE %s ON DATABASE %I FROM PUBLIC%s', x.privilege_type, d.datname,
                  CASE x.privilege_type WHEN 'CONNECT' THEN ', and GRANT CONNECT to those who need it: '
                                                            || 'who connects can hold locks that requests wait for' END)
    FROM pg_database d CROSS JOIN LATERAL aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) x
    -- guard: doctor reports that everybody may connect
    WHERE d.datname = current_database() AND x.grantee = 0 AND x.privilege_type IN ('CONNECT', 'TEMPORARY')
    UNION ALL
    SELECT 14, r.rolname = 'issuing_viewer', format('%s may not connect to this database', r.rolname),
           format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), r.rolname)
    FROM pg_roles r
    WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
      AND NOT r.rolsuper
      -- guard: doctor reports that a role may not connect
      AND NOT has_database_privilege(r.oid, current_database(), 'CONNECT')
    UNION ALL
    -- A role may change its own settings, and they outlive the program that did it. search_path, synchronous_commit and
    -- jit are checked elsewhere.
    SELECT 15, u.setting !~ '^default_transaction_(isolation|read_only)=',
           format('%s has a setting that migrate has not given it: %s', r.rolname, u.setting),
           format('ALTER ROLE %I%s RESET %s, unless you mean it', r.rolname,
                  CASE WHEN s.setdatabase <> 0 THEN format(' IN DATABASE %I', current_database()) END,
                  split_part(u.setting, '=', 1))
    FROM pg_roles r
    JOIN pg_db_role_setting s ON s.setrole = r.oid
        AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
    CROSS JOIN LATERAL unnest(s.setconfig) AS u (setting)
    WHERE r.rolname IN ('issuing_owner', 'issuing_api', 'issuing_worker', 'issuing_operator', 'issuing_viewer')
      AND u.setting !~ '^(search_path|synchronous_commit|jit)='
      AND u.setting !~ '^(auto_explain\.)?log_parameter_max_length(_on_error)?=0$'
      AND NOT (r.rolname IN ('issuing_api', 'issuing_worker')
               AND u.setting IN ('statement_timeout=15s', 'idle_in_transaction_session_timeout=15s'))
)
SELECT f.is_warning, f.what, f.fix FROM faults f ORDER BY f.is_warning, f.n, f.what LIMIT 50;

-- name: operator_retention :one
-- why: for how long the database keeps what $1 names, in ms: doctor compares it with the configuration. No lock.
SELECT (SELECT (extract(epoch FROM r.kept) * 1000)::int8 FROM issuing.retentions r WHERE r.name = $1::text);

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

-- Every operator_data_ check below: of one piece, which begins at the id $1 and ends before $2; null = without an end.
-- Where a row has no id of an event, the time in these ids counts. Returns the number of rows that break the rule (1001
-- = more than 1000) and the first few of them; then what there is, which is added up. A rule about an event covers only
-- the time for which events still exist: from their oldest partition on.

-- name: operator_data_accepted :one
-- why: no accepted request is lost: every key has its event, and accepted = ended + open.
WITH counted AS MATERIALIZED (
    SELECT coalesce(e.status, 'lost') AS status, count(*) AS n, min(k.event_id::text) AS one
    FROM issuing.idempotency_keys k LEFT JOIN issuing.outbox_events e ON e.id = k.event_id AND e.user_id = k.user_id
    WHERE k.created_at >= coalesce(issuing.uuid7_time($1::uuid), '-infinity')
      AND k.created_at <= coalesce(issuing.uuid7_time($2::uuid), 'infinity')
      AND (k.created_at < issuing.uuid7_time($2::uuid)) IS NOT FALSE
      AND k.created_at >= coalesce((SELECT min(p.from_at) FROM issuing.partitions p
                          WHERE p.parent = 'outbox_events'),
                                   '-infinity')
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
    WHERE l.accepted AND l.at >= coalesce(issuing.uuid7_time($1::uuid), '-infinity')
      AND l.at <= coalesce(issuing.uuid7_time($2::uuid), 'infinity')
      AND (l.at < issuing.uuid7_time($2::uuid)) IS NOT FALSE
      AND l.at >= coalesce((SELECT min(p.from_at) FROM issuing.partitions p
                          WHERE p.parent = 'outbox_events'),
                           '-infinity')
      AND NOT EXISTS (SELECT FROM issuing.outbox_events e WHERE e.id = l.request_id)
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

-- name: operator_data_keys :one
-- why: an open event or open question is never accepted a second time: its key exists. One that a reissue made bears
-- the key of the event that it replaces, and the key stays with that one.
WITH bad AS MATERIALIZED (
    SELECT e.id::text AS id FROM issuing.outbox_events e
    WHERE e.idempotency_key IS NOT NULL AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL)
      AND e.id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
      AND e.id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      AND (e.id < $2::uuid) IS NOT FALSE
      AND NOT EXISTS (SELECT FROM issuing.idempotency_keys k
                      WHERE k.user_id = e.user_id AND k.key = e.idempotency_key AND k.event_id = e.id)
      AND NOT EXISTS (SELECT FROM issuing.event_reissues r WHERE r.new_id = e.id)
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

-- name: operator_data_completed :one
-- why: COMPLETED means that there is a card.
WITH bad AS MATERIALIZED (
    SELECT e.id::text AS id FROM issuing.outbox_events e
    WHERE e.event_type = 'CARD_ISSUE' AND e.status = 'COMPLETED'
      AND e.id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
      AND e.id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      AND (e.id < $2::uuid) IS NOT FALSE
      AND NOT EXISTS (SELECT FROM issuing.cards c WHERE c.request_id = e.id AND c.user_id = e.user_id)
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

-- name: operator_data_cards :one
-- why: every card belongs to a card request of its user; cards = completed + being linked + questions + cancelled ones
-- of refused requests.
WITH counted AS MATERIALIZED (
    SELECT coalesce(e.status, 'lost') AS status, count(*) AS n, min(c.id::text) AS one
    FROM issuing.cards c
    LEFT JOIN issuing.outbox_events e ON e.id = c.request_id AND e.user_id = c.user_id AND e.event_type = 'CARD_ISSUE'
    WHERE c.request_id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
      AND c.request_id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      AND (c.request_id < $2::uuid) IS NOT FALSE
      AND c.request_id >= issuing.uuid7_least(coalesce(
                          (SELECT min(p.from_at) FROM issuing.partitions p
                          WHERE p.parent = 'outbox_events'), 'epoch'))
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
    WHERE c.request_id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
      AND c.request_id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      AND (c.request_id < $2::uuid) IS NOT FALSE
      -- The same, for the plan.
      AND e.id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
      AND e.id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
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
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

-- name: operator_data_two_cards :one
-- why: one card for each request; the unique index ensures it as long as it exists and is valid.
WITH bad AS MATERIALIZED (
    SELECT c.request_id::text AS id FROM issuing.cards c
    WHERE c.request_id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
      AND c.request_id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      AND (c.request_id < $2::uuid) IS NOT FALSE
    GROUP BY c.request_id HAVING count(*) > 1
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

-- name: operator_data_places :one
-- why: an event holds the place of a reissue; otherwise no event could ever take it.
WITH bad AS MATERIALIZED (
    SELECT r.event_id::text AS id FROM issuing.card_reissues r
    WHERE r.event_id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
      AND r.event_id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      AND (r.event_id < $2::uuid) IS NOT FALSE
      AND r.event_id >= issuing.uuid7_least(coalesce(
                          (SELECT min(p.from_at) FROM issuing.partitions p
                          WHERE p.parent = 'outbox_events'), 'epoch'))
      AND substring(r.event_id::text FROM 15 FOR 1) = '7'
      AND NOT EXISTS (SELECT FROM issuing.outbox_events e WHERE e.id = r.event_id)
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

-- name: operator_data_told :one
-- why: a final end of a card request is told, or waits to be told, from the minute on after a route for it was
-- registered: an end that is older than the commit of the registration is not.
WITH waiting AS MATERIALIZED (
    SELECT u.id FROM issuing.ends_to_tell t CROSS JOIN LATERAL unnest(t.ids) AS u (id)
), bad AS MATERIALIZED (
    SELECT e.id::text AS id
    FROM issuing.outbox_events e JOIN issuing.routes r ON r.event_type = 'CARD_REQUEST_ENDED'
    WHERE e.event_type = 'CARD_ISSUE' AND e.status IN ('COMPLETED', 'REJECTED')
      AND e.completed_at > r.since + interval '1 minute' AND octet_length(e.user_id) BETWEEN 1 AND 128
      AND e.id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
      AND e.id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      AND (e.id < $2::uuid) IS NOT FALSE
      AND NOT EXISTS (SELECT FROM waiting w WHERE w.id = e.id)
      AND NOT EXISTS (SELECT FROM issuing.outbox_events n
                      WHERE n.user_id = e.user_id AND n.event_type = 'CARD_REQUEST_ENDED'
                        AND n.payload #>> '{data,id}' = e.id::text AND n.payload #>> '{data,status}' = e.status)
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

-- name: operator_data_overdue :one
-- why: nothing waits for what is over: no event behind one that ended (claims look again within an hour), no lease that
-- ran out long ago, no mark behind its deadline, no live card of a refused request that is still to be cancelled. The
-- piece is that of all.
WITH bad AS MATERIALIZED (
    SELECT e.id::text AS id FROM issuing.outbox_events e
    WHERE e.held_behind IS NOT NULL AND e.status = 'PENDING' AND e.updated_at < now() - interval '2 hours'
      AND NOT EXISTS (SELECT FROM issuing.outbox_events o
                      WHERE o.id = e.held_behind AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL))
      AND e.id >= coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
      AND e.id <= coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      AND (e.id < $2::uuid) IS NOT FALSE
    UNION ALL
    SELECT e.id::text FROM issuing.outbox_events e
    WHERE e.status = 'PROCESSING' AND e.due_at IS NOT NULL AND e.lease_until < now() - interval '1 hour'
    UNION ALL
    SELECT p.event_id::text FROM issuing.peer_checks p
    WHERE p.finished_at IS NULL
      AND (p.deadline_at < now() - interval '1 hour' OR p.orphan_at < now() - interval '1 hour')
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

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
    LIMIT 1001
)
SELECT (SELECT count(*) FROM bad), (SELECT string_agg(b.id, ' ') FROM (SELECT id FROM bad LIMIT 5) b);

-- name: operator_migrate_lock :one
-- why: one migrate at a time. Session-scoped, because several transactions run under it, and tried instead of waited
-- for, because a waiter would hold a snapshot.
SELECT pg_try_advisory_lock(4711, 3);

-- name: operator_migrate_state :one
-- why: whether there is a schema, who owns it, as which role to go on, whether it is divided by buckets, as a version
-- that was never released made it, and whether it is on Citus. The role is the owner of the existing tables, or issuing_owner; null when
-- the connected role may not become it. From PostgreSQL 16 on membership alone does not allow SET ROLE.
SELECT m.oid IS NOT NULL, current_user::text, r.rolname::text, to_regclass('issuing.cell_buckets') IS NOT NULL,
       to_regclass('issuing.places') IS NOT NULL, to_regproc('issuing.stay_here') IS NOT NULL
FROM (SELECT to_regclass('issuing.schema_migration')::oid AS oid) m
LEFT JOIN pg_class c ON c.oid = m.oid
LEFT JOIN pg_roles r ON (CASE WHEN c.oid IS NULL THEN r.rolname = 'issuing_owner' ELSE r.oid = c.relowner END)
    AND pg_has_role(current_user, r.oid,
                    CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END);

-- name: operator_migrate_places :one
-- why: over how many places the users are divided, and the bits of those that were dropped here. No lock.
SELECT p.count::int8,
       (SELECT coalesce(bit_or(1::int8 << s.place), 0) FROM issuing.place_states s
        WHERE to_regnamespace(format('issuing_p%s', s.place)) IS NULL)
FROM issuing.places p;

-- name: operator_has_event :one
-- why: whether the event is in this database, where there are several. No lock. $1 event.
SELECT EXISTS (SELECT FROM issuing.outbox_events e WHERE e.id = $1::uuid);

-- name: operator_place_server :one
-- why: what the server is, before a place goes from it or to it: its name, the cluster that it was made with, and
-- whether it is a replica. No lock.
SELECT current_setting('cluster_name'), c.system_identifier, pg_is_in_recovery()
FROM pg_control_system() c;

-- name: operator_place_states :many
-- why: which places the database serves, and what became of the others. A replica can be asked. No lock.
SELECT s.place::int8, s.state, s.owner, s.next_owner, s.since, issuing.is_served(s.place),
       to_regnamespace(format('issuing_p%s', s.place)) IS NOT NULL, s.release_id::text
FROM issuing.place_states s
ORDER BY s.place;

-- name: operator_citus_places :many
-- why: the node and the bytes of each place: issuing.citus_places. No row where the database is not on Citus. No lock.
SELECT place, node, bytes
FROM issuing.citus_places();

-- name: owner_citus_faults :many
-- why: what would stop a move between nodes: issuing.citus_faults.
SELECT fault, fix
FROM issuing.citus_faults();

-- name: owner_place_release :one
-- why: the places are refused from its commit on: issuing.release_places. null = done, else why not. $1 first, $2 last
-- place, $3 cluster_name of the database that may take them, $4 to $7 who and why.
SELECT issuing.release_places($1::int8, $2::int8, $3::text, $4::text, $5::text, $6::text, $7::text);

-- name: owner_place_undo :one
-- why: issuing.undo_release. null = done, else why not. $1 first, $2 last place, $3 to $6 who and why.
SELECT issuing.undo_release($1::int8, $2::int8, $3::text, $4::text, $5::text, $6::text);

-- name: owner_place_transactions :one
-- why: who may have looked at the fence before it fell: issuing.transactions_now.
SELECT array_to_string(issuing.transactions_now(), ' ');

-- name: owner_place_waits :one
-- why: how many of these transactions still run. $1 their names, with blanks between.
SELECT count(*)::int8 FROM unnest(issuing.transactions_now()) t WHERE t = ANY (string_to_array($1::text, ' '));

-- name: owner_place_move :one
-- why: a step of a release: issuing.move_places. null = done, else why not. $1 first, $2 last place, $3 the state
-- before, $4 the state after.
SELECT issuing.move_places($1::int8, $2::int8, $3::text, $4::text);

-- name: owner_place_take :one
-- why: issuing.take_places. null = done, else why not. $1 first, $2 last place, $3 to $6 who and why.
SELECT issuing.take_places($1::int8, $2::int8, $3::text, $4::text, $5::text, $6::text);

-- name: owner_place_drop :one
-- why: issuing.drop_place, with its audit row. False: there was nothing. $1 place, $2 to $5 who and why.
SELECT issuing.drop_place($1::int8, $2::text, $3::text, $4::text, $5::text);

-- name: operator_migrate_divide :none
-- why: says so, in a new database. $1 how many.
INSERT INTO issuing.places (count) SELECT $1::int8 WHERE NOT EXISTS (SELECT FROM issuing.places);

-- name: operator_migrate_as :one
-- why: SET ROLE with a parameter, for the rest of the session. $1 role.
SELECT set_config('role', $1::text, false);

-- name: operator_migrate_settings :one
-- why: what the files are read under, whatever the role or the database has set (as schema_version does it), the
-- encoding of the database, and the version of PostgreSQL.
SELECT current_setting('server_encoding'),
       current_setting('server_version_num')::int8,
       (SELECT count(set_config(s.name, s.value, false))
        FROM (VALUES ('datestyle', 'ISO, YMD'), ('timezone', 'UTC'), ('intervalstyle', 'postgres'),
                     ('bytea_output', 'hex'), ('standard_conforming_strings', 'on'), ('array_nulls', 'on'),
                     ('extra_float_digits', '1'), ('transform_null_equals', 'off'), ('quote_all_identifiers', 'off'),
                     ('row_security', 'on'), ('statement_timeout', '0'), ('jit', 'off'),
                     ('search_path', 'pg_catalog, issuing, pg_temp')) s (name, value));

-- name: operator_migrate_applied :many
-- why: the applied versions, in order. No lock.
SELECT m.version, m.name, m.sha256, m.applied_at, m.applied_by, m.ms
FROM issuing.schema_migration m
ORDER BY m.version;

-- name: operator_migrate_begin :none
-- why: upgrades, functions, rights and the rows in schema_migration are one transaction.
BEGIN;

-- name: operator_migrate_lock_timeout :one
-- why: inside that transaction: other sessions wait behind a migration that waits for a lock, so it gives up soon and
-- is tried again. $1 lock_timeout, e.g. 3s.
SELECT set_config('lock_timeout', $1::text, true);

-- name: operator_migrate_note :none
-- why: in the transaction of the upgrade itself. $1 version, $2 name, $3 sha256, $4 ms.
INSERT INTO issuing.schema_migration (version, name, sha256, ms) VALUES ($1::int8, $2::text, $3::text, $4::int8);

-- name: operator_migrate_commit :none
-- why: the end of operator_migrate_begin.
COMMIT;

-- name: operator_migrate_rollback :none
-- why: the other end of operator_migrate_begin.
ROLLBACK;

-- name: operator_number_keys :many
-- why: the number of card numbers under each key: issuing.number_keys. Reads all
-- cards once; counts only. No lock.
SELECT key_id, records
FROM issuing.number_keys();

-- name: owner_rewrap_take :many
-- why: the next card numbers that are not sealed with the active key, locked until the end of the transaction:
-- issuing.rewrap_take. For the owner of the tables only. $1 user and $2 card after
-- which to go on (null = from the beginning), $3 active key, $4 number of cards to look at.
SELECT id, user_id, number_record, looked_at_user, looked_at_card, left_out
FROM issuing.rewrap_take($1::text, $2::uuid, $3::int8, $4::int8);

-- name: owner_rewrap_put :one
-- why: stores them sealed again, each over the record that was opened, with an audit row: issuing.rewrap_put. $1 cards,
-- $2 users, $3 old records, $4 new records, $5 who.
SELECT issuing.rewrap_put($1::uuid[], $2::text[], $3::bytea[], $4::bytea[], $5::text);

-- ---- workers, targets and their controls ----

-- name: operator_workers :many
-- why: the workers that have written a heartbeat within a day (issuing.heartbeat removes older rows), living ones
-- first, then by the time they were last seen. A row with a time far ahead of the clock is from before the clock was
-- set back, and its worker is dead if it is not written again. No lock. $1 how many.
SELECT w.name, w.host, w.pid::int8, w.version, w.started_at, w.seen_at, w.in_flight::int8, w.slots::int8, w.is_draining,
       w.seen_at BETWEEN clock_timestamp() - interval '60 s' AND clock_timestamp() + interval '60 s', clock_timestamp()
FROM issuing.workers w
ORDER BY 10 DESC, w.seen_at DESC, w.name
LIMIT $1::int8;

-- name: operator_last_worker :many
-- why: the worker that was the last to end by itself; no row: none has. No lock.
SELECT l.host, l.ended_at
FROM issuing.last_worker l;

-- name: operator_targets :many
-- why: each target as all living workers see it together, and what an operator asked of it. No lock.
WITH living AS MATERIALIZED (
    SELECT t.*, t.state <> 'closed' OR t.is_resting OR t.is_paused AS is_shut
    FROM issuing.worker_targets t JOIN issuing.workers w ON w.name = t.worker
    WHERE w.seen_at BETWEEN clock_timestamp() - interval '60 s' AND clock_timestamp() + interval '60 s'
), names AS MATERIALIZED (
    SELECT 'issuer' AS target UNION SELECT 'core' UNION SELECT t.target FROM issuing.worker_targets t
    UNION SELECT r.event_type FROM issuing.routes r
    UNION SELECT c.target FROM issuing.target_controls c WHERE c.paused_at IS NOT NULL
), seen AS MATERIALIZED (
    SELECT n.target, count(l.worker) AS workers, count(*) FILTER (WHERE l.is_shut) AS shut,
           count(*) FILTER (WHERE l.state = 'open') AS open, count(*) FILTER (WHERE l.state = 'half_open') AS half_open,
           count(*) FILTER (WHERE l.is_resting) AS resting, count(*) FILTER (WHERE l.is_paused) AS obeying,
           count(*) FILTER (WHERE l.probe_number >= coalesce(c.probe_number, 0)) AS probed,
           coalesce(min(l.since) FILTER (WHERE l.state <> 'closed'), max(l.since)) AS since,
           coalesce((array_agg(l.cause ORDER BY l.since) FILTER (WHERE l.cause IS NOT NULL))[1],
                    CASE WHEN bool_or(l.is_resting) -- after a 429
                         THEN CASE WHEN n.target IN ('issuer', 'core') THEN n.target ELSE 'route' END || '_http_429' END)
               AS cause,
           min(l.next_at) AS next_at,
           coalesce(sum(l.in_flight), 0)::int8 AS in_flight, coalesce(sum(l.waiting), 0)::int8 AS waiting,
           c.paused_at, c.paused_by, c.paused_why, c.paused_until
    FROM names n
    LEFT JOIN living l ON l.target = n.target
    LEFT JOIN issuing.target_controls c ON c.target = n.target
    GROUP BY n.target, c.target
)
SELECT s.target, s.workers, s.shut, s.open, s.half_open, s.resting, s.obeying, s.probed, s.since, s.cause, s.next_at,
       s.in_flight, s.waiting, s.paused_at, s.paused_by, s.paused_why, s.paused_until,
       clock_timestamp()
FROM seen s
ORDER BY s.target IN ('issuer', 'core') DESC, s.target DESC
LIMIT 64;

-- name: operator_control :one
-- why: pauses, resumes or probes a target, with its audit row: issuing.control_target.
-- The caller sends a wakeup afterwards. null = done, else why not. $1 action, $2 target, $3 actor, $4 user of the
-- operating system, $5 SUDO_USER, $6 reason, $7 how long a pause lasts in ms, null = until it is resumed.
SELECT issuing.control_target($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::int8);

-- name: operator_accept_history :one
-- why: what programs have found missing is accepted, with its audit row: issuing.accept_history. null = there was
-- nothing. $1 actor, $2 user of the operating system, $3 SUDO_USER, $4 reason.
SELECT issuing.accept_history($1::text, $2::text, $3::text, $4::text);

-- name: operator_sender :one
-- why: adds or removes a role that may send events of a type, with its audit row: issuing.change_sender. null = done,
-- else why not. $1 action, $2 role, $3 type, $4 actor, $5 user of the operating system, $6 SUDO_USER, $7 reason.
SELECT issuing.change_sender($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text);

-- name: operator_senders :many
-- why: who may send which type; whether a role of this name is there, whether it is the one that was added, and whether
-- it may connect where it logs in. No lock.
SELECT s.role, s.event_type, s.added_at, to_regrole(quote_ident(s.role)) IS NOT NULL,
       s.role_oid IS NOT DISTINCT FROM to_regrole(quote_ident(s.role))::oid,
       (r.rolcanlogin AND NOT has_database_privilege(r.oid, current_database(), 'CONNECT')) IS NOT TRUE
FROM issuing.senders s LEFT JOIN pg_roles r ON r.rolname = s.role
ORDER BY s.event_type, s.role;

-- name: operator_inserters :many
-- why: roles that are none of ours and may insert into the table of events, or into what is left of it in `public`, by
-- a right of their own: what they insert is of any type but our own. Catalogues only. No lock.
SELECT coalesce(r.rolname::text, 'PUBLIC'), min(c.oid::regclass::text)
FROM pg_class c
CROSS JOIN LATERAL (SELECT x.grantee, x.privilege_type FROM aclexplode(c.relacl) x
                    UNION
                    SELECT x.grantee, x.privilege_type
                    FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) x WHERE t.attrelid = c.oid) a
LEFT JOIN pg_roles r ON r.oid = a.grantee
WHERE (c.oid IN (to_regclass('issuing.outbox_events'), to_regclass('public.outbox_events'))
       OR c.oid IN (SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = to_regclass('issuing.outbox_events')))
  AND a.privilege_type = 'INSERT' AND a.grantee <> c.relowner
  AND coalesce(r.rolname, '') NOT IN ('issuing_owner', 'issuing_api')
GROUP BY 1
ORDER BY 1
LIMIT 20;

-- name: operator_role_names :many
-- why: the roles that a mistyped name may mean. No lock.
SELECT r.rolname::text FROM pg_roles r WHERE r.rolname !~ '^pg_' LIMIT 10000;

-- ---- statistics ----

-- part: stats_groups
-- The columns of ctl/verbs/cmd_stats.c. A percentile is the bound below which that share of the times lies. Changes that are
-- below 0 until their counterpart is folded show nothing. $1 type, $2 length of a part in s; null = any, one part.
SELECT g.part_at, g.event_type, g.status, nullif(g.reason_code, ''), sum(g.count)::int8,
       (sum(g.sum_ms) / sum(g.count))::int8, min(g.below_ms) FILTER (WHERE g.up_to >= g.total * 0.5),
       min(g.below_ms) FILTER (WHERE g.up_to >= g.total * 0.95),
       min(g.below_ms) FILTER (WHERE g.up_to >= g.total * 0.99)
FROM (SELECT b.*, sum(b.count) OVER (bound ORDER BY b.below_ms) AS up_to, sum(b.count) OVER bound AS total
      FROM (SELECT CASE WHEN $2::int8 IS NOT NULL THEN date_bin($2::int8 * interval '1 s', s.hour, 'epoch') END
                       AS part_at, s.event_type, s.status, s.reason_code, s.below_ms, sum(s.count) AS count,
                   sum(s.sum_ms) AS sum_ms
            FROM counted s
            WHERE $1::text IS NULL OR s.event_type = $1::text
            GROUP BY 1, 2, 3, 4, 5) b
      WINDOW bound AS (PARTITION BY b.part_at, b.event_type, b.status, b.reason_code)) g
GROUP BY g.part_at, g.event_type, g.status, g.reason_code
HAVING sum(g.count) > 0
ORDER BY g.part_at, g.event_type, g.status, g.reason_code;

-- name: operator_stats :many
-- why: what ended, how, and how long it took, by outbox_statistics, which follows the events by seconds; primary key.
-- No lock. $1 and $2 stats_groups, $3 the first hour, in us since 1970; null = all.
WITH counted AS MATERIALIZED (
    SELECT t.hour, t.event_type, t.status, t.reason_code, t.below_ms, t.count, t.sum_ms
    FROM issuing.outbox_statistics t
    WHERE t.hour >= coalesce(timestamptz 'epoch' + $3::int8 * interval '1 microsecond', '-infinity')
)
-- insert: stats_groups

-- name: operator_stats_exact :many
-- why: the same, counted from the rows that are there: reads the whole outbox. No lock.
WITH counted AS MATERIALIZED (
    SELECT t.hour, t.event_type, t.status, t.reason_code, t.below_ms, t.count, t.sum_ms
    FROM issuing.count_events(coalesce(timestamptz 'epoch' + $3::int8 * interval '1 microsecond', '-infinity')) t
)
-- insert: stats_groups

-- name: operator_stats_state :one
-- why: the clock that "ago" counts from; how old the oldest change is that waits to be folded, in ms, among 10000; and
-- how many changes could not be folded. No lock.
SELECT clock_timestamp(),
       (SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(c.at)) * 1000, 0), 0)::int8
        FROM (SELECT x.at FROM issuing.statistics_changes x WHERE x.refused IS NULL LIMIT 10000) c),
       (SELECT count(*) FROM issuing.statistics_changes c WHERE c.refused IS NOT NULL);

-- name: operator_stats_rebuild :one
-- why: makes the statistics what the rows say, with its audit row: issuing.rebuild_statistics. $1 the first hour, in us
-- since 1970, null = all; $2 actor, $3 user of the operating system, $4 SUDO_USER, $5 reason.
SELECT refused, corrected
FROM issuing.rebuild_statistics($1::int8, $2::text, $3::text, $4::text, $5::text);
