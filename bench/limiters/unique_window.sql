-- limiter: unique index over a fixed window
-- needs: one table
-- limit: 1
-- refuse: 23505

-- setup:
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, slot int8 NOT NULL, UNIQUE (user_id, slot),
                  at timestamptz NOT NULL DEFAULT clock_timestamp());

-- step: insert
INSERT INTO log (user_id, request, slot)
VALUES ($1, $2, floor(extract(epoch FROM clock_timestamp()) * 1000 / $4)::int8);
