-- limiter: advisory lock of the session, taken in a transaction that has read before
-- needs: nothing, but it does not hold
-- limit: any
-- The default of MySQL is REPEATABLE READ: with GET_LOCK the snapshot is that of the first read, from before the lock.

-- setup:
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON log (user_id, at);

-- step: begin
BEGIN ISOLATION LEVEL REPEATABLE READ;

-- step: read
SELECT 'go' FROM (SELECT count(*) FROM log) any_read;

-- step: lock
SELECT 'go' FROM pg_advisory_lock(hashtextextended($1, 0));

-- step: count
SELECT CASE WHEN count(*) < $3 THEN 'go' ELSE 'refuse' END
FROM log WHERE user_id = $1 AND at > clock_timestamp() - $4 * interval '1 ms';

-- step: insert
INSERT INTO log (user_id, request) VALUES ($1, $2);

-- step: commit
COMMIT;

-- step: unlock
SELECT 'go' FROM pg_advisory_unlock(hashtextextended($1, 0));

-- refused:
SELECT 'go' FROM pg_advisory_unlock_all();
