-- What the metrics of the programs show of events, workers and targets.

-- name: outbox_gauges_types :many
-- why: which types workers deliver besides card requests (`route`: the type), the FAILED events of each of these and of
-- card requests (`failed`: type, events, with unknown outcome, ms since the first send of these that was sent first;
-- the type of all others is null), and the open events that nobody delivers (`undelivered`: null, events). Users'
-- services write the types, so no other name than a route's leaves this statement. FAILED: the oldest $1, by
-- outbox_events_failed. Undelivered: at most $2 between two delivered types, by ranges of outbox_events_due, so that
-- no event of a delivered type is read. No lock.
WITH routes AS MATERIALIZED (
    SELECT r.event_type AS type FROM issuing.routes r ORDER BY r.event_type LIMIT 64
), delivered AS MATERIALIZED (
    SELECT d.type, lead(d.type, 1, chr(1114111)) OVER (ORDER BY d.type) AS next -- behind all types
    FROM (SELECT '' AS type UNION SELECT 'CARD_ISSUE' UNION SELECT r.type FROM routes r) d
)
SELECT 'route', r.type, 0::int8, 0::int8, 0::int8 FROM routes r
UNION ALL
SELECT 'failed', d.type, count(*), count(*) FILTER (WHERE f.is_unknown),
       coalesce((extract(epoch FROM clock_timestamp() - min(greatest(f.first_sent_at, timestamptz 'epoch'))
                                                        FILTER (WHERE f.is_unknown)) * 1000)::int8, 0)
FROM (SELECT e.event_type, e.first_sent_at,
             e.first_sent_at IS NOT NULL
               AND (e.event_type <> 'CARD_ISSUE'
                    OR (SELECT c.id FROM issuing.cards c WHERE c.request_id = e.id LIMIT 1) IS NULL) AS is_unknown
      FROM (SELECT x.id, x.event_type, x.first_sent_at FROM issuing.outbox_events x
            WHERE x.failed_at IS NOT NULL ORDER BY x.id LIMIT $1::int8) e
      OFFSET 0) f -- once for each, and not for each use
-- guard: many types that users' services write hide no figure
LEFT JOIN delivered d ON d.type = f.event_type
GROUP BY d.type
UNION ALL
SELECT 'undelivered', NULL, coalesce(sum(n.events), 0)::int8, 0, 0
FROM delivered d
CROSS JOIN LATERAL (
    SELECT count(*) AS events
    FROM (SELECT FROM issuing.outbox_events x
          -- guard: what nobody delivers is counted apart
          WHERE x.event_type > d.type AND x.event_type < d.next AND x.due_at IS NOT NULL
          LIMIT $2::int8) e) n
LIMIT 200;

-- name: outbox_gauges :many
-- why: the open events of one type, from the index of open events only; finished events are not counted. It does not
-- start at the beginning of the index (see issuing.claim), but where open events can be while nothing is wrong: part
-- `front`. What lies behind that is counted now and then, separately, so that an event that no claim finds is visible
-- too: part `behind`. Each part reads at most $3 rows, the oldest by due time, so a backlog of millions costs no more
-- than that and is shown as $3 events. Notifications that wait are not events yet: part `ends`. A part without rows has
-- no row here. Times before 1970 are taken as 1970: another service may have written any. What its sender wanted to run
-- later is not PENDING here until then, and is counted apart (the last column); then its age counts from that time. No
-- lock. $1 the front begins at this time in us (null = an hour ago); $2 whether to count what is behind; $3 rows of a
-- part; $4 type.
SELECT e.part, count(*) FILTER (WHERE e.status = 'PENDING'), count(*) FILTER (WHERE e.status = 'PROCESSING'),
       coalesce((extract(epoch FROM clock_timestamp() - min(greatest(e.since, timestamptz 'epoch'))
                                                        FILTER (WHERE e.status = 'PENDING')) * 1000)::int8, 0),
       count(*) FILTER (WHERE e.is_unknown),
       coalesce((extract(epoch FROM clock_timestamp() - min(greatest(e.first_sent_at, timestamptz 'epoch'))
                                                        FILTER (WHERE e.is_unknown)) * 1000)::int8, 0),
       (extract(epoch FROM greatest(least(min(e.due_at), now()), timestamptz 'epoch')) * 1000000)::int8,
       count(*) FILTER (WHERE e.status = 'SCHEDULED')
FROM (SELECT o.part, o.first_sent_at, o.due_at, coalesce(o.run_at, o.created_at) AS since,
             -- guard: what is to run later is not late
             CASE WHEN o.status = 'PENDING' AND o.run_at > now() THEN 'SCHEDULED' ELSE o.status END AS status,
             o.status <> 'PROCESSING' AND o.first_sent_at IS NOT NULL
               AND ($4::text <> 'CARD_ISSUE'
                    OR (SELECT c.id FROM issuing.cards c WHERE c.request_id = o.id LIMIT 1) IS NULL) AS is_unknown
      FROM ((SELECT 'front' AS part, e.id, e.status, e.created_at, e.first_sent_at, e.due_at, e.run_at
             FROM issuing.outbox_events e
             WHERE e.event_type = $4::text
               AND e.due_at >= coalesce(timestamptz 'epoch' + $1::int8 * interval '1 microsecond',
                                        now() - interval '1 hour')
             -- guard: a limited count has the oldest
             ORDER BY e.due_at LIMIT $3::int8)
            UNION ALL
            (SELECT 'behind', e.id, e.status, e.created_at, e.first_sent_at, e.due_at, e.run_at
             FROM issuing.outbox_events e
             -- guard: what lies behind the bookmark is counted
             WHERE $2::bool AND e.event_type = $4::text
               AND e.due_at < coalesce(timestamptz 'epoch' + $1::int8 * interval '1 microsecond',
                                       now() - interval '1 hour')
             -- guard: a limited count of what lies behind has the oldest
             ORDER BY e.due_at LIMIT $3::int8)) o) e
GROUP BY e.part
UNION ALL
SELECT 'ends', w.events, 0, greatest((extract(epoch FROM clock_timestamp() - w.oldest_at) * 1000)::int8, 0), 0, 0, 0, 0
FROM issuing.ends_waiting w WHERE $4::text = 'CARD_REQUEST_ENDED'
UNION ALL
SELECT 'now', 0, 0, 0, 0, 0, (extract(epoch FROM now()) * 1000000)::int8, 0;

-- name: worker_gauges :many
-- why: how many workers live, and what they and the operators say of each target: the worst state of its breaker over
-- the living workers (null = none of them calls it), and whether it is paused. The first row has no target. A worker
-- that was not seen for 60 s is dead, and so is one whose time is far ahead of the clock: it was seen before the clock
-- was set back (issuing.heartbeat). At most 50 targets, issuer and core among them. The first row also says how old the
-- oldest change is that the statistics do not have yet, in ms, among 10000 of them; 0 = they have all; and how long ago
-- the last whole proof of the data began, in ms, and how many rows it found that break a rule; and the same of the last
-- comparison with the issuer's list (null = there was none), with its cards that have no event here; and in how many
-- options that must be alike the living workers differ. No lock.
SELECT NULL::text, (SELECT count(*) FROM issuing.workers w
                    -- guard: a worker that was not seen for a minute is not alive
                    -- guard: a worker that was seen before the clock was set back is not alive
                    WHERE w.seen_at BETWEEN now() - interval '60 s' AND now() + interval '60 s'), NULL::bool,
       (SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(c.at)) * 1000, 0), 0)::int8
        FROM (SELECT x.at FROM issuing.statistics_changes x WHERE x.refused IS NULL LIMIT 10000) c),
       greatest(extract(epoch FROM clock_timestamp() - p.proven_at) * 1000, 0)::int8, p.proven_broken,
       greatest(extract(epoch FROM clock_timestamp() - c.began_at) * 1000, 0)::int8, coalesce(c.unknown, 0),
       (SELECT count(*) FROM issuing.workers_disagree)
FROM issuing.data_proofs p
LEFT JOIN (SELECT l.began_at, (l.counts ->> 'no_event')::int8 AS unknown FROM issuing.issuer_listings l
           WHERE l.ended_at IS NOT NULL AND l.trouble IS NULL ORDER BY l.began_at DESC LIMIT 1) c ON true
UNION ALL
(SELECT coalesce(s.target, c.target), s.state, c.paused_at IS NOT NULL, NULL, NULL, NULL, NULL, NULL, NULL
 FROM (SELECT t.target, max(CASE t.state WHEN 'closed' THEN 0 WHEN 'half_open' THEN 1 ELSE 2 END)::int8 AS state
       FROM issuing.worker_targets t
       JOIN issuing.workers w ON w.name = t.worker
       WHERE w.seen_at BETWEEN now() - interval '60 s' AND now() + interval '60 s'
       GROUP BY t.target) s
 FULL JOIN issuing.target_controls c ON c.target = s.target
 ORDER BY coalesce(s.target, c.target) IN ('issuer', 'core') DESC, 1 LIMIT 50);
