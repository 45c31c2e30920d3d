-- limiter: advisory lock of the transaction (ours)
-- needs: nothing but the log
-- limit: any
-- The lock is a statement of its own: the next statement's snapshot is taken when the lock is held.

-- setup:
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON log (user_id, at);

-- step: begin
BEGIN;

-- step: lock
SELECT 'go' FROM pg_advisory_xact_lock(hashtextextended($1, 0));

-- step: count
SELECT CASE WHEN count(*) < $3 THEN 'go' ELSE 'refuse' END
FROM log WHERE user_id = $1 AND at > clock_timestamp() - $4 * interval '1 ms';

-- step: insert
INSERT INTO log (user_id, request) VALUES ($1, $2);

-- step: commit
COMMIT;

-- refused:
ROLLBACK;
