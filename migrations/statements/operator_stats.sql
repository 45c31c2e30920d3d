-- What `issuing-ctl stats` and the console's figures read.

-- part: stats_groups
-- The columns of ctl/verbs/cmd_stats.c. A percentile is the bound below which that share of the times lies. Changes
-- that are below 0 until their counterpart is folded show nothing. $1 type, $2 length of a part in s; null = any, one
-- part.
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
