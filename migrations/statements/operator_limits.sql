-- The requests of one user against the limit: `issuing-ctl limits`.

-- name: operator_limits :one
-- why: whether the next card request of a user would be accepted, as issuing.accept and issuing.frees_at decide: the
-- tries that count in the window, and when the next one passes, null = now. rate_limit_log_user; as many rows as the
-- limit counts. No lock. $1 user, $2 limit.count, $3 limit.window in ms, $4 refused tries count too.
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
SELECT t, (SELECT count(*) FROM accepted), (SELECT count(*) FROM refused),
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
