-- What the pages of `issuing-ctl console` read beside the statements of operator_*.sql, as the operator's own role
-- (issuing_operator, or issuing_viewer, which may not act). None takes a lock. Each is bounded: by a limit of rows, or
-- by a range of the primary key (ids are time-ordered) with a limit of rows for each part of it.

-- name: console_session :one
-- why: after each connect: who the database takes us for, and whether that role may act on events and on targets. The
-- console shows no action to a role that may not, and the database would refuse it.
SELECT session_user::text, current_database()::text,
       has_function_privilege('issuing.replay(uuid,int8,text,text,text,text)', 'EXECUTE'),
       has_function_privilege('issuing.control_target(text,text,text,text,text,text,int8)', 'EXECUTE');

-- name: console_limit :one
-- why: after each connect: no page waits longer than $1 s for a statement, and a console that only reads ($2) changes
-- nothing even by mistake.
SELECT set_config('statement_timeout', $1::int8 || 's', false), set_config('lock_timeout', $1::int8 || 's', false),
       set_config('default_transaction_read_only', CASE WHEN $2::bool THEN 'on' ELSE 'off' END, false);

-- name: console_find :one
-- why: the event of an id that somebody was told: its own (a request's is the same), or what the issuer calls its card.
-- By the primary key and cards_at_issuer. null = there is none. $1 the id.
SELECT coalesce((SELECT e.id FROM issuing.outbox_events e
                 WHERE e.id = CASE WHEN $1::text ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                                   THEN $1::text::uuid END),
                (SELECT c.request_id FROM issuing.cards c WHERE c.issuer_card_id = $1::text LIMIT 1));

-- name: console_flow :many
-- why: what was accepted in each part of the last hours, and what became of it: one range of the primary key for each
-- part, at most $3 rows of it; a part that has as many is not known, as the last column says. The last part ends with
-- the last whole minute, since a part that has just begun would look like an outage. $1 length of a part in s, $2
-- parts, $3 rows.
SELECT p.from_at, b.n, b.completed, b.rejected, b.failed, b.n >= $3::int8
FROM generate_series($2::int8 - 1, 0, -1) AS g (i)
CROSS JOIN LATERAL (
    SELECT date_bin(interval '1 min', now(), 'epoch') - (g.i + 1) * $1::int8 * interval '1 s' AS from_at
) p
CROSS JOIN LATERAL (
    SELECT count(*) AS n,
           count(*) FILTER (WHERE r.status = 'COMPLETED') AS completed,
           count(*) FILTER (WHERE r.status = 'REJECTED') AS rejected,
           count(*) FILTER (WHERE r.status = 'FAILED') AS failed
    FROM (SELECT e.status FROM issuing.outbox_events e
          WHERE e.id >= issuing.uuid7_least(p.from_at)
            AND e.id < issuing.uuid7_least(p.from_at + $1::int8 * interval '1 s')
          LIMIT $3::int8) r
) b
ORDER BY p.from_at;

-- name: console_ends :many
-- why: how many events ended in each of the last $1 parts of $2 s, the one at hand included, and within how many ms
-- half and 99 of 100 of them did: by outbox_statistics, whose primary key begins with the hour.
SELECT p.from_at, b.completed, b.rejected, b.failed, b.p50, b.p99
FROM generate_series($1::int8 - 1, 0, -1) AS g (i)
CROSS JOIN LATERAL (
    SELECT date_bin($2::int8 * interval '1 s', now(), 'epoch') - g.i * $2::int8 * interval '1 s' AS from_at
) p
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.completed), 0)::int8 AS completed, coalesce(sum(r.rejected), 0)::int8 AS rejected,
           coalesce(sum(r.failed), 0)::int8 AS failed,
           min(r.below_ms) FILTER (WHERE r.total > 0 AND r.up_to >= r.total * 0.5) AS p50,
           min(r.below_ms) FILTER (WHERE r.total > 0 AND r.up_to >= r.total * 0.99) AS p99
    FROM (SELECT s.below_ms, sum(s.count) FILTER (WHERE s.status = 'COMPLETED') AS completed,
                 sum(s.count) FILTER (WHERE s.status = 'REJECTED') AS rejected,
                 sum(s.count) FILTER (WHERE s.status = 'FAILED') AS failed,
                 sum(sum(s.count)) OVER (ORDER BY s.below_ms) AS up_to, sum(sum(s.count)) OVER () AS total
          FROM issuing.outbox_statistics s
          WHERE s.hour >= p.from_at AND s.hour < p.from_at + $2::int8 * interval '1 s'
          GROUP BY s.below_ms) r
) b
ORDER BY p.from_at;
