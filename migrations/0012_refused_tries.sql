-- Why: a refused try whose call ran again more than a second later got a second row in rate_limit_log. Where refused
-- tries count, that row prolonged the block. Locks: none on tables; two functions are replaced. Older programs go on,
-- and the repair holds for them too. issuing.accept stays as 0011_limits.sql defines it.

-- Whether a refused try gets a row. Two conditions:
-- 1. Fewer than `most` refused tries of this user are younger than `piece` (explained in 0011_limits.sql).
-- 2. It has no row yet. A call whose COMMIT is unknown runs again with the same ids, at most 8 s after its first run
--    (api/acceptor.c), and a statement ends within 15 s. Condition 1 allows at most `most` rows in a second, so the
--    newest 30 * most rows of this user cover the last 30 s. Where the window is shorter than 10 s, a piece is a
--    tenth of it, and they cover three windows; a row that is older than its window counts no more.
-- Only a refused try reads these rows, by the index rate_limit_log_user. While a client repeats without a pause,
-- condition 1 is false, and condition 2 is not evaluated.
CREATE OR REPLACE FUNCTION issuing.gets_a_row(
    who text, request uuid, t timestamptz, piece interval, limit_window interval, most int8)
    RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        IF (SELECT count(*) >= most
            FROM (SELECT FROM rate_limit_log l
                  WHERE l.user_id = who AND NOT l.accepted AND l.at > t - piece
                  LIMIT most) n) THEN
            RETURN false;
        END IF;
        RETURN NOT EXISTS (
            SELECT
            FROM (SELECT l.request_id FROM rate_limit_log l
                  WHERE l.user_id = who AND NOT l.accepted AND l.at > t - greatest(limit_window, interval '30 s')
                  ORDER BY l.at DESC
                  LIMIT 30 * most) n
            WHERE n.request_id = request);
    END
    $$;

-- When the next try of a limited user can pass: when the limit_count-th newest counted try leaves the window. Where
-- refused tries count, the try that is being refused is the newest of them if it gets a row now; if an earlier run of
-- the same call wrote its row, it counts with that row. Never later than one window from now: a try with a time in the
-- future counts as one of now, and its row is corrected.
CREATE OR REPLACE FUNCTION issuing.frees_at(
    who text, request uuid, t timestamptz, limit_count int8, limit_window interval, count_attempts bool)
    RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        counts bool := count_attempts
            AND issuing.gets_a_row(who, request, t, least(limit_window / 10::float8, '1 s'), limit_window, limit_count);
        newer int8 := greatest(limit_count - CASE WHEN counts THEN 2 ELSE 1 END, 0);
    BEGIN
        IF EXISTS (SELECT FROM rate_limit_log l WHERE l.user_id = who AND l.accepted AND l.at > t)
           OR count_attempts
              AND EXISTS (SELECT FROM rate_limit_log l WHERE l.user_id = who AND NOT l.accepted AND l.at > t) THEN
            PERFORM issuing.mend_tries(who);
        END IF;
        IF counts AND limit_count = 1 THEN
            RETURN t + limit_window;
        END IF;
        RETURN limit_window + coalesce(
            (SELECT least(c.at, t)
             FROM ((SELECT l.at FROM rate_limit_log l
                    WHERE l.user_id = who AND l.accepted AND l.at > t - limit_window AND l.request_id <> request
                    ORDER BY l.at DESC
                    LIMIT newer + 1)
                   UNION ALL
                   (SELECT l.at FROM rate_limit_log l
                    WHERE count_attempts AND l.user_id = who AND NOT l.accepted AND l.at > t - limit_window
                    ORDER BY l.at DESC
                    LIMIT newer + 1)) c
             ORDER BY c.at DESC
             OFFSET newer
             LIMIT 1), t);
    END
    $$;
