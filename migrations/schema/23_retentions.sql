-- What the database promises to keep, and what programs may ask for at most.

-- For the owner, who alone may shorten a retention.
CREATE OR REPLACE FUNCTION issuing.set_retention(name text, kept interval) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
AS $$ UPDATE retentions r SET kept = $2 WHERE r.name = $1 $$;

-- The retention in force, raised to what is wanted. Never lowered, and never by a caller beyond what an option
-- can be. While a notification waits, its request is kept, and with it all that ended after it.
CREATE OR REPLACE FUNCTION issuing.retention_at_least(which text, wanted interval) RETURNS interval
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    bounded interval := least(coalesce(wanted, interval '0'), interval '36600 days');
BEGIN
    -- guard: a worker shortens no retention
    UPDATE retentions r SET kept = bounded WHERE r.name = which AND r.kept < bounded;
    RETURN greatest((SELECT r.kept FROM retentions r WHERE r.name = which),
                    -- guard: a request is kept while its notification waits
                    CASE WHEN which = 'events'
                         THEN (SELECT now() - min(t.ended_at) + interval '1 day' FROM end_notifications t
                               WHERE t.refused IS NULL) END);
END
$$;

-- The retention in force, raised to what is wanted. Where the row cannot be written, what is wanted holds for this
-- pass.
CREATE OR REPLACE FUNCTION issuing.retention_in_force(which text, wanted interval) RETURNS interval
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    RETURN issuing.retention_at_least(which, wanted);
EXCEPTION WHEN lock_not_available THEN
    RETURN (SELECT greatest(r.kept, least(wanted, interval '36600 days')) FROM retentions r WHERE r.name = which);
END
$$;

-- What an api promises at its start: keys are honoured, and tries are counted, for at least so long. It can only
-- lengthen. What was dropped before is gone: keys_before_ms says from when on the longer time holds.
CREATE OR REPLACE FUNCTION issuing.promise_retentions(key_retention interval, limit_window interval)
RETURNS TABLE (keys_before_ms int8, keys_ms int8)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    keys_before_ms := (SELECT (extract(epoch FROM r.kept) * 1000)::int8 FROM retentions r WHERE r.name = 'keys');
    -- guard: an api lengthens the retention of keys
    keys_ms := (extract(epoch FROM retention_at_least('keys', key_retention)) * 1000)::int8;
    PERFORM retention_at_least('limits', limit_window);
    RETURN NEXT;
END
$$;

-- For the owner, who alone may raise a ceiling.
CREATE OR REPLACE FUNCTION issuing.set_ceiling(name text, most int8) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
AS $$ UPDATE ceilings c SET most = $2 WHERE c.name = $1 $$;

REVOKE ALL ON FUNCTION issuing.set_retention, issuing.retention_at_least, issuing.retention_in_force,
    issuing.promise_retentions, issuing.set_ceiling FROM PUBLIC;
