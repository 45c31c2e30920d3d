-- How many events there are, in which state, since when and why: `issuing-ctl status`, the first page.

-- name: operator_status :many
-- why: the number of events in each status, and the age of the oldest in seconds: of at most $1 events, any of them.
-- Where that is all, the counts are exact. Null = all, without a limit, so that several processes may count. It reads
-- the table. No lock.
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
-- row, "n other types". Each by a range of outbox_events_due, in its order, so that no event is read twice; $1 means
-- "or more". A delivered type without an open event has a row too. Notifications that wait are a row of their own.
-- is_live: whether a living worker has the route; null = nobody has one. No lock. $2 issuer.key_lifetime in ms.
WITH delivered AS MATERIALIZED (
    SELECT d.type, d.is_live, lead(d.type, 1, chr(1114111)) OVER (ORDER BY d.type) AS next -- behind all types
    FROM (SELECT '' AS type, NULL::bool AS is_live
          UNION ALL SELECT 'CARD_ISSUE', EXISTS (SELECT FROM issuing.workers_living)
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
-- when to when there are partitions. Ids of other times are in the partition _default. No lock.
SELECT clock_timestamp(), min(p.from_at), max(p.to_at)
FROM issuing.partitions p
WHERE p.parent = 'outbox_events';
