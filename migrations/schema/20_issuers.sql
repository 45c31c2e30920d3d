-- Issuers, and the checks of an issuer or a route that operators ask for.

-- The number of the issuer that a worker speaks to. The lock is taken once for each issuer, so that no number is given
-- twice; numbers are dense, since a sequence would lose one with each conflict.
CREATE OR REPLACE FUNCTION issuing.note_issuer(its_profile text, its_address text) RETURNS int2
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    found_id int2;
    seen timestamptz;
BEGIN
    SELECT i.id, i.seen_at INTO found_id, seen FROM issuers i WHERE i.profile = its_profile AND i.address = its_address;
    IF found_id IS NULL THEN
        LOCK TABLE issuers IN SHARE ROW EXCLUSIVE MODE;
        INSERT INTO issuers (id, profile, address)
        SELECT coalesce(max(i.id), 0) + 1, its_profile, its_address FROM issuers i
        ON CONFLICT (profile, address) DO NOTHING;
        SELECT i.id INTO found_id FROM issuers i WHERE i.profile = its_profile AND i.address = its_address;
    ELSIF seen NOT BETWEEN now() - interval '1 minute' AND now() + interval '1 minute'
          OR seen < now() - interval '1 second' AND EXISTS (SELECT FROM issuers o WHERE o.seen_at > seen) THEN
        UPDATE issuers SET seen_at = now()
        WHERE id = (SELECT i.id FROM issuers i WHERE i.id = found_id FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN found_id;
END
$$;

-- The issuer that workers speak to now: that of the last claim. Null: there was no claim, or one for another issuer at
-- most three minutes before it, so that only an operator knows which is meant.
CREATE OR REPLACE FUNCTION issuing.present_issuer() RETURNS int2
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT i.id FROM issuers i
    WHERE NOT EXISTS (SELECT FROM issuers o WHERE o.id <> i.id AND o.seen_at > i.seen_at - interval '3 minutes')
$$;

-- An operator asks. `paused`: an operator wants no calls to the target. `not_found`: no worker has registered the
-- route. `busy`: more checks wait than workers can soon make. Two operators at the same moment may exceed that number
-- by one each. The call that follows is made by a worker in the operator's name, so it is in the audit trail.
CREATE OR REPLACE FUNCTION issuing.ask_issuer_check(
    target_of text, user_of text, creates_of bool, within_ms int8, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, check_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    -- guard: a check of the issuer is not asked while the issuer is paused
    IF EXISTS (SELECT FROM target_controls t WHERE t.target = target_of AND t.paused_at IS NOT NULL) THEN
        refused := 'paused';
    ELSIF target_of <> 'issuer' AND NOT EXISTS (SELECT FROM routes r WHERE r.event_type = target_of) THEN
        refused := 'not_found';
    ELSIF (SELECT count(*) FROM issuer_checks c
           WHERE c.ended_at IS NULL AND now() BETWEEN c.asked_at - interval '1 s' AND c.deadline_at) >= 20 THEN
        refused := 'busy';
    ELSE
        INSERT INTO issuer_checks AS c (target, user_id, creates, deadline_at, actor, os_user, sudo_user)
        VALUES (target_of, user_of, creates_of,
                now() + least(greatest(within_ms, 0), 3600000) * interval '1 millisecond', actor, os_user, sudo_user)
        RETURNING c.id INTO check_id;
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, after)
        VALUES (actor, os_user, sudo_user, CASE target_of WHEN 'issuer' THEN 'check_issuer' ELSE 'test_route' END, why,
                jsonb_build_object('check_id', check_id, 'target', target_of, 'user_id', user_of,
                                   'creates', creates_of));
    END IF;
    RETURN NEXT;
END
$$;

-- The last trial that made a card: what the issuer does where its documents do not say it. NULL = there was none.
CREATE OR REPLACE FUNCTION issuing.last_trial() RETURNS uuid
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT c.id FROM issuer_checks c
    WHERE c.creates AND c.ended_at IS NOT NULL AND c.detail @> '[{"check": "create", "level": "ok"}]'
    ORDER BY c.ended_at DESC LIMIT 1
$$;

-- Takes the oldest waiting check of one of these targets, under a lease; SKIP LOCKED, so two workers never get the same
-- one. Also ends checks that are past their deadline, and removes those that ended a week ago, except the last trial. A
-- lease lasts a minute at most; a longer one was written by a clock that was ahead, and is over.
CREATE OR REPLACE FUNCTION issuing.take_issuer_check(new_token uuid, lease_ms int8, worker_name text, targets text[])
RETURNS TABLE (id uuid, user_id text, target text, creates bool)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM issuer_checks c
    WHERE c.id IN (SELECT o.id FROM issuer_checks o WHERE o.ended_at < now() - interval '7 days'
                   -- guard: what the last trial of the issuer has shown is kept
                   AND o.id IS DISTINCT FROM last_trial()
                   LIMIT 100 FOR UPDATE SKIP LOCKED);
    UPDATE issuer_checks c
    SET ended_at = clock_timestamp(), result = 'unanswered', lease_until = NULL, lease_token = NULL
    WHERE c.id IN (SELECT o.id FROM issuer_checks o WHERE o.ended_at IS NULL AND o.deadline_at <= now()
                   -- guard: what a worker still has at its deadline may tell what was found
                   AND (o.lease_until IS NULL OR o.lease_until NOT BETWEEN now() AND now() + interval '1 minute')
                   LIMIT 100 FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    UPDATE issuer_checks c
    SET lease_token = new_token, worker = worker_name,
        lease_until = now() + least(greatest(lease_ms, 0), 60000) * interval '1 millisecond'
    WHERE c.id = (SELECT o.id FROM issuer_checks o
                  WHERE o.ended_at IS NULL AND o.deadline_at > now() AND o.target = ANY (targets)
                    AND (o.lease_until IS NULL OR o.lease_until <= now()
                         OR o.lease_until > now() + interval '1 minute')
                  ORDER BY o.asked_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING c.id, c.user_id, c.target, c.creates;
END
$$;

-- Extends the lease: the calls of a trial take longer than one. False: nobody waits for it any more, or another worker
-- has it.
CREATE OR REPLACE FUNCTION issuing.renew_issuer_check(check_id uuid, token uuid, lease_ms int8) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    UPDATE issuer_checks c
    SET lease_until = now() + least(greatest(lease_ms, 0), 60000) * interval '1 millisecond'
    -- guard: a check of the issuer that another worker has is not renewed
    WHERE c.id = check_id AND c.lease_token = token AND c.ended_at IS NULL AND c.deadline_at > now();
    RETURN FOUND;
END
$$;

-- Returns a check: its worker drains, or may not call the target now. Another worker may take it at once.
CREATE OR REPLACE FUNCTION issuing.put_issuer_check_back(check_id uuid, token uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
    UPDATE issuer_checks c SET lease_until = NULL, lease_token = NULL
    WHERE c.id = check_id AND c.lease_token = token AND c.ended_at IS NULL
$$;

-- What the worker found. False: another worker has the check by now, or it ended.
CREATE OR REPLACE FUNCTION issuing.end_issuer_check(check_id uuid, token uuid, found_result text, findings jsonb)
    RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    UPDATE issuer_checks c
    SET ended_at = clock_timestamp(), result = found_result, detail = findings, lease_until = NULL,
        lease_token = NULL
    -- guard: a check of the issuer that another worker has is not ended
    WHERE c.id = check_id AND c.lease_token = token AND c.ended_at IS NULL;
    RETURN FOUND;
END
$$;

REVOKE ALL ON FUNCTION issuing.note_issuer, issuing.last_trial, issuing.ask_issuer_check, issuing.take_issuer_check,
    issuing.renew_issuer_check, issuing.put_issuer_check_back, issuing.end_issuer_check FROM PUBLIC;
