-- limiter: Redis, SET NX PX
-- needs: Redis
-- limit: 1

-- setup:
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());

-- redis: lock
SET limit:{user} {request} NX PX {window}

-- step: insert
INSERT INTO log (user_id, request) VALUES ($1, $2);
