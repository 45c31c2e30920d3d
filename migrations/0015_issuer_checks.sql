-- Why: somebody with a new account at an issuer wants to know whether url, credential and parameters are right before
-- the first card. issuing-ctl speaks to the database only, so an operator leaves a check here, a worker makes one
-- harmless call with its own configuration, and issuing-ctl prints what the worker found. Locks: none on what is there
-- already. Older programs go on; a worker of an older release leaves the checks alone.
--
-- Nothing here decides about a card or an event: a check that is lost costs an answer, and the operator asks again.

CREATE TABLE issuing.issuer_checks (
    id          uuid PRIMARY KEY DEFAULT issuing.uuid7(),
    user_id     text CHECK (octet_length(user_id) BETWEEN 1 AND 128), -- core-api is asked about; NULL = about nobody
    asked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline_at timestamptz NOT NULL, -- the operator waits no longer, and no worker begins it any more
    lease_until timestamptz,          -- until then a worker has it
    lease_token uuid,
    ended_at    timestamptz,
    actor       text NOT NULL,
    db_role     text NOT NULL DEFAULT session_user,
    os_user     text,
    sudo_user   text,
    worker      text,                 -- which one has it or last had it
    result      text CHECK (result IN ('ok', 'fail', 'unanswered')),
    detail      jsonb,                -- the findings, in their order: [{"check", "level", "found", "fix"}, ...]
    CONSTRAINT issuer_checks_detail CHECK (jsonb_typeof(detail) = 'array' AND octet_length(detail::text) <= 65536),
    CONSTRAINT issuer_checks_lease CHECK ((lease_until IS NULL) = (lease_token IS NULL)),
    CONSTRAINT issuer_checks_end CHECK ((ended_at IS NULL) = (result IS NULL))
);
CREATE INDEX issuer_checks_open ON issuing.issuer_checks (asked_at) WHERE ended_at IS NULL;
CREATE INDEX issuer_checks_ended ON issuing.issuer_checks (ended_at) WHERE ended_at IS NOT NULL; -- what is old goes

-- An operator asks. `paused`: an operator wants no calls to the issuer. `busy`: more checks wait than workers can soon
-- make. Two operators at the same moment may exceed that number by one each. The call that follows is made by a worker
-- in the operator's name, so it is on record.
CREATE FUNCTION issuing.ask_issuer_check(
    user_of text, within_ms int8, actor text, os_user text, sudo_user text, why text)
    RETURNS TABLE (refused text, check_id uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM check_who(actor, os_user, sudo_user, why);
        IF EXISTS (SELECT FROM target_controls t WHERE t.target = 'issuer' AND t.paused_at IS NOT NULL) THEN
            refused := 'paused';
        ELSIF (SELECT count(*) FROM issuer_checks c
               WHERE c.ended_at IS NULL AND now() BETWEEN c.asked_at - interval '1 s' AND c.deadline_at) >= 20 THEN
            refused := 'busy';
        ELSE
            INSERT INTO issuer_checks AS c (user_id, deadline_at, actor, os_user, sudo_user)
            VALUES (user_of, now() + least(greatest(within_ms, 0), 3600000) * interval '1 millisecond', actor, os_user,
                    sudo_user)
            RETURNING c.id INTO check_id;
            INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, after)
            VALUES (actor, os_user, sudo_user, 'check_issuer', why,
                    jsonb_build_object('check_id', check_id, 'user_id', user_of));
        END IF;
        RETURN NEXT;
    END
    $$;

-- The oldest check that waits, under a lease; SKIP LOCKED, so two workers never get the same one. What is past its
-- deadline ends here, and what ended a week ago is removed. A lease lasts a minute at most: one that seems to last
-- longer was written by a clock that was ahead, and is over.
CREATE FUNCTION issuing.take_issuer_check(new_token uuid, lease_ms int8, worker_name text)
    RETURNS TABLE (id uuid, user_id text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    #variable_conflict use_column
    BEGIN
        DELETE FROM issuer_checks c
        WHERE c.id IN (SELECT o.id FROM issuer_checks o WHERE o.ended_at < now() - interval '7 days'
                       LIMIT 100 FOR UPDATE SKIP LOCKED);
        UPDATE issuer_checks c
        SET ended_at = clock_timestamp(), result = 'unanswered', lease_until = NULL, lease_token = NULL
        WHERE c.id IN (SELECT o.id FROM issuer_checks o WHERE o.ended_at IS NULL AND o.deadline_at <= now()
                       LIMIT 100 FOR UPDATE SKIP LOCKED);
        RETURN QUERY
        UPDATE issuer_checks c
        SET lease_token = new_token, worker = worker_name,
            lease_until = now() + least(greatest(lease_ms, 0), 60000) * interval '1 millisecond'
        WHERE c.id = (SELECT o.id FROM issuer_checks o
                      WHERE o.ended_at IS NULL AND o.deadline_at > now()
                        AND (o.lease_until IS NULL OR o.lease_until <= now()
                             OR o.lease_until > now() + interval '1 minute')
                      ORDER BY o.asked_at LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING c.id, c.user_id;
    END
    $$;

-- The worker that has it drains, or may not call the issuer now: another one may take it at once.
CREATE FUNCTION issuing.put_issuer_check_back(check_id uuid, token uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        UPDATE issuer_checks c SET lease_until = NULL, lease_token = NULL
        WHERE c.id = check_id AND c.lease_token = token AND c.ended_at IS NULL
    $$;

-- What the worker found. False: another worker has the check by now, or it ended.
CREATE FUNCTION issuing.end_issuer_check(check_id uuid, token uuid, found_result text, findings jsonb) RETURNS bool
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        UPDATE issuer_checks c
        SET ended_at = clock_timestamp(), result = found_result, detail = findings, lease_until = NULL,
            lease_token = NULL
        WHERE c.id = check_id AND c.lease_token = token AND c.ended_at IS NULL;
        RETURN FOUND;
    END
    $$;

REVOKE ALL ON FUNCTION issuing.ask_issuer_check(text, int8, text, text, text, text),
    issuing.take_issuer_check(uuid, int8, text), issuing.put_issuer_check_back(uuid, uuid),
    issuing.end_issuer_check(uuid, uuid, text, jsonb)
FROM PUBLIC;
