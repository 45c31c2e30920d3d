-- limiter: log the operation, commit, count
-- needs: one table
-- limit: any
-- A refused try stays in the log and counts.

-- setup:
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON log (user_id, at);

-- step: log
INSERT INTO log (user_id, request) VALUES ($1, $2);

-- step: count
SELECT CASE WHEN count(*) <= $3 THEN 'go' ELSE 'refuse' END
FROM log WHERE user_id = $1 AND at > clock_timestamp() - $4 * interval '1 ms';
