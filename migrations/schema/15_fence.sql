-- The fence of a place: nothing is written to a place that this database does not serve, nor is it read for a user.
-- Only where there are several places; with one, nothing is asked.
--
-- What writes to a table of a place is refused by a trigger for each statement (15_triggers.sql); the housekeeping, which
-- works on partitions, by take_job_lock. The triggers look with a snapshot of their own, and issuing.release_places
-- waits for every transaction that may have looked before it.

CREATE OR REPLACE FUNCTION issuing.refuse_moved() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    -- guard: a place that is not served takes no write
    IF NOT EXISTS (SELECT FROM place_states s
                   WHERE s.place = 0 /* place */ AND s.state = 'served'
                     -- guard: a copy of the database serves nothing that it has not taken
                     AND (s.owner IS NULL OR s.owner = current_setting('cluster_name'))) THEN
        RAISE EXCEPTION 'this database does not serve place %', 0 /* place */ USING ERRCODE = 'ISPLC';
    END IF;
    RETURN NULL;
END
$$;

-- The same for what reads. True.
CREATE OR REPLACE FUNCTION issuing.check_served() RETURNS bool
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    -- guard: a place that is not served answers nobody
    IF NOT is_served(0 /* place */) THEN
        RAISE EXCEPTION 'this database does not serve place %', 0 /* place */ USING ERRCODE = 'ISPLC';
    END IF;
    RETURN true;
END
$$;

DO $$
BEGIN
    IF 1 /* places */ = 1 THEN
        CREATE OR REPLACE FUNCTION issuing.check_served() RETURNS bool LANGUAGE sql IMMUTABLE PARALLEL SAFE
        RETURN true;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION issuing.refuse_moved()
FROM PUBLIC;
