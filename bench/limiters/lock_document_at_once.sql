-- limiter: lock document, taken late, where a conflict comes at once and nobody waits, as in MongoDB
-- needs: a document for each user
-- limit: any
-- retry: 40001 40P01 55P03
-- While the other transaction is open each repeat fails at the lock, and has made its call.

-- setup:
CREATE TABLE locks (user_id text PRIMARY KEY, token text);
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON log (user_id, at);
CREATE TABLE effects (user_id text NOT NULL, request text NOT NULL);
CREATE FUNCTION take(whose text, by text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(whose, 0)) THEN
        RAISE lock_not_available;
    END IF;
    INSERT INTO locks (user_id, token) VALUES (whose, by) ON CONFLICT (user_id) DO UPDATE SET token = excluded.token;
    RETURN 'go';
END $$;

-- step: begin
BEGIN ISOLATION LEVEL REPEATABLE READ;

-- step: count
SELECT CASE WHEN count(*) < $3 THEN 'go' ELSE 'refuse' END
FROM log WHERE user_id = $1 AND at > clock_timestamp() - $4 * interval '1 ms';

-- effect: call
INSERT INTO effects (user_id, request) VALUES ($1, $2);

-- step: lock
SELECT take($1, $2);

-- step: insert
INSERT INTO log (user_id, request) VALUES ($1, $2);

-- step: commit
COMMIT;

-- refused:
ROLLBACK;
