-- limiter: advisory lock of the session (as GET_LOCK of MySQL)
-- needs: a connection of its own for the whole time, and no pooler in transaction mode
-- limit: any

-- setup:
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON log (user_id, at);

-- step: lock
SELECT 'go' FROM pg_advisory_lock(hashtextextended($1, 0));

-- step: count
SELECT CASE WHEN count(*) < $3 THEN 'go' ELSE 'refuse' END
FROM log WHERE user_id = $1 AND at > clock_timestamp() - $4 * interval '1 ms';

-- step: insert
INSERT INTO log (user_id, request) VALUES ($1, $2);

-- step: unlock
SELECT 'go' FROM pg_advisory_unlock(hashtextextended($1, 0));

-- refused:
SELECT 'go' FROM pg_advisory_unlock(hashtextextended($1, 0));
