-- limiter: exclusion constraint over time ranges
-- needs: the extension btree_gist
-- limit: 1
-- refuse: 23P01
-- retry: 40P01

-- setup:
CREATE EXTENSION IF NOT EXISTS btree_gist SCHEMA public;
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
                  counts tstzrange NOT NULL, EXCLUDE USING gist (user_id WITH =, counts WITH &&));

-- step: insert
INSERT INTO log (user_id, request, counts)
SELECT $1, $2, tstzrange(t, t + $4 * interval '1 ms') FROM clock_timestamp() t;
