-- limiter: lock document, taken first; the whole transaction again on a conflict
-- needs: a document for each user
-- limit: any
-- retry: 40001 40P01
-- As SELECT FOR UPDATE is emulated where there is none: the transaction writes to the lock document, and of two that do
-- so one fails and begins anew. The effect stands for a call to another service.

-- setup:
CREATE TABLE locks (user_id text PRIMARY KEY, token text);
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON log (user_id, at);
CREATE TABLE effects (user_id text NOT NULL, request text NOT NULL);

-- step: begin
BEGIN ISOLATION LEVEL REPEATABLE READ;

-- step: lock
INSERT INTO locks (user_id, token) VALUES ($1, $2) ON CONFLICT (user_id) DO UPDATE SET token = excluded.token;

-- step: count
SELECT CASE WHEN count(*) < $3 THEN 'go' ELSE 'refuse' END
FROM log WHERE user_id = $1 AND at > clock_timestamp() - $4 * interval '1 ms';

-- effect: call
INSERT INTO effects (user_id, request) VALUES ($1, $2);

-- step: insert
INSERT INTO log (user_id, request) VALUES ($1, $2);

-- step: commit
COMMIT;

-- refused:
ROLLBACK;
