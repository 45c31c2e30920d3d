-- limiter: count and insert in one transaction, READ COMMITTED
-- needs: one table
-- limit: any

-- setup:
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON log (user_id, at);

-- step: begin
BEGIN;

-- step: count
SELECT CASE WHEN count(*) < $3 THEN 'go' ELSE 'refuse' END
FROM log WHERE user_id = $1 AND at > clock_timestamp() - $4 * interval '1 ms';

-- step: insert
INSERT INTO log (user_id, request) VALUES ($1, $2);

-- step: commit
COMMIT;

-- refused:
ROLLBACK;
