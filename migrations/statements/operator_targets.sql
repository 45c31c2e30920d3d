-- Workers, targets, routes, and what operators ask of them: `workers`, `targets`, `route`, `pause`.

-- name: operator_routes :many
-- why: what workers deliver besides card requests, as they have said (issuing.note_routes): the last one that named
-- it and when, how many living workers name it, since when it is registered, what living workers say of it that differ
-- from each other (null: they agree), how many events are open, 10000 at most, and how many notifications wait. Open
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
-- why: notifications that cannot be made (issuing.end_notifications.refused): how many rows, one of their requests, and
-- why. No lock.
SELECT count(*), min(r.ids[1]::text), min(r.refused) FROM issuing.ends_refused r;

-- name: operator_remove_route :one
-- why: nobody is to deliver the type any more: issuing.remove_route, with its audit row. null = done, else why not. $1
-- type, $2 also while events are open or ends wait, $3 actor, $4 user of the operating system, $5 SUDO_USER, $6 reason.
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
    SELECT t.*, t.state <> 'closed' OR t.is_resting OR t.is_paused AS is_blocked
    FROM issuing.worker_targets t JOIN issuing.workers_living w ON w.name = t.worker
), names AS MATERIALIZED (
    SELECT 'issuer' AS target UNION SELECT 'core' UNION SELECT t.target FROM issuing.worker_targets t
    UNION SELECT r.event_type FROM issuing.routes r
    UNION SELECT c.target FROM issuing.target_controls c WHERE c.paused_at IS NOT NULL
), seen AS MATERIALIZED (
    SELECT n.target, count(l.worker) AS workers, count(*) FILTER (WHERE l.is_blocked) AS blocked,
           count(*) FILTER (WHERE l.state = 'open') AS open, count(*) FILTER (WHERE l.state = 'half_open') AS half_open,
           count(*) FILTER (WHERE l.is_resting) AS resting, count(*) FILTER (WHERE l.is_paused) AS obeying,
           count(*) FILTER (WHERE l.probe_number >= coalesce(c.probe_number, 0)) AS probed,
           coalesce(min(l.since) FILTER (WHERE l.state <> 'closed'), max(l.since)) AS since,
           coalesce((array_agg(l.cause ORDER BY l.since) FILTER (WHERE l.cause IS NOT NULL))[1],
                    CASE WHEN bool_or(l.is_resting) -- after a 429
                         THEN CASE WHEN n.target IN ('issuer', 'core') THEN n.target ELSE 'route' END
                              || '_http_429' END)
               AS cause,
           min(l.next_at) AS next_at,
           coalesce(sum(l.in_flight), 0)::int8 AS in_flight, coalesce(sum(l.waiting), 0)::int8 AS waiting,
           c.paused_at, c.paused_by, c.paused_why, c.paused_until
    FROM names n
    LEFT JOIN living l ON l.target = n.target
    LEFT JOIN issuing.target_controls c ON c.target = n.target
    GROUP BY n.target, c.target
)
SELECT s.target, s.workers, s.blocked, s.open, s.half_open, s.resting, s.obeying, s.probed, s.since, s.cause, s.next_at,
       s.in_flight, s.waiting, s.paused_at, s.paused_by, s.paused_why, s.paused_until,
       clock_timestamp()
FROM seen s
ORDER BY s.target IN ('issuer', 'core') DESC, s.target DESC
LIMIT 64;

-- name: operator_control :one
-- why: pauses, resumes or probes a target, with its audit row: issuing.control_target. The caller sends a wakeup
-- afterwards. null = done, else why not. $1 action, $2 target, $3 actor, $4 user of the operating system, $5 SUDO_USER,
-- $6 reason, $7 how long a pause lasts in ms, null = until it is resumed.
SELECT issuing.control_target($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::int8);
