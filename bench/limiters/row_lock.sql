-- limiter: lock on a row of the user, made on demand
-- needs: a table of users that this service may write to
-- limit: any

-- setup:
CREATE TABLE users (user_id text PRIMARY KEY);
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON log (user_id, at);

-- step: begin
BEGIN;

-- step: user
INSERT INTO users (user_id) VALUES ($1) ON CONFLICT DO NOTHING;

-- step: lock
SELECT 'go' FROM users WHERE user_id = $1 FOR UPDATE;

-- step: count
SELECT CASE WHEN count(*) < $3 THEN 'go' ELSE 'refuse' END
FROM log WHERE user_id = $1 AND at > clock_timestamp() - $4 * interval '1 ms';

-- step: insert
INSERT INTO log (user_id, request) VALUES ($1, $2);

-- step: commit
COMMIT;

-- refused:
COMMIT;
