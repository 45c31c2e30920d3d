-- What there is for a worker to do. A worker asks at every poll, and sends what takes work only where there is some: so
-- an idle worker costs one statement a poll, however many kinds of work there are.

-- A row for each thing that waits: a type of these that has an event that is due, or whose lease ran out; `marks`;
-- `changes` of the statistics. One more tells what it cost, and the time. It must never be narrower than what takes the
-- work: what is not named here waits. Without a bookmark, so it visits whatever the index has before now; the worker
-- sees the cost, and goes back to claims and sweeps by themselves where it is high (worker/watch.h). It locks nothing.
CREATE OR REPLACE FUNCTION issuing.what_waits(types text[])
RETURNS TABLE (what text, cost_ms int8, now_us int8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
BEGIN
    FOREACH what IN ARRAY types LOOP
        IF EXISTS (SELECT FROM outbox_events e
                   WHERE e.event_type = what AND e.due_at <= now()
                     -- guard: a lease that ran out is work
                     AND (e.status = 'PENDING' OR e.lease_until < now()))
           -- guard: a notification that waits is work
           OR what = 'CARD_REQUEST_ENDED' AND issuing.notifications_wait() THEN
            RETURN NEXT;
        END IF;
    END LOOP;
    what := 'marks';
    IF EXISTS (SELECT FROM marks p WHERE p.finished_at IS NULL AND p.due_at <= now())
       -- guard: a mark that a clock set which was ahead is work
       OR EXISTS (SELECT FROM marks p WHERE p.finished_at IS NULL AND p.due_at > now()
                                              AND p.due_set_at > now() + interval '1 second') THEN
        RETURN NEXT;
    END IF;
    what := 'changes';
    IF EXISTS (SELECT FROM statistics_changes c WHERE c.refused IS NULL) THEN
        RETURN NEXT;
    END IF;
    what := 'asked';
    cost_ms := extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000;
    now_us := extract(epoch FROM now()) * 1000000;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION issuing.what_waits FROM PUBLIC;
