-- Who may send events.

-- Grants the functions that a sender may call; called again after a migration that has replaced one of them.
CREATE OR REPLACE FUNCTION issuing.grant_sender(role text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA issuing TO %I', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION issuing.enqueue, issuing.enqueue_many, issuing.end_of TO %I', role);
END
$$;

-- An operator adds or removes a sender. Returns why it is refused, or null. A role that was created again under its old
-- name must be added again, for each type.
CREATE OR REPLACE FUNCTION issuing.change_sender(
    action text, -- add_sender, remove_sender
    role text, event_type text, actor text, os_user text, sudo_user text, why text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    there oid := to_regrole(quote_ident(role));
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    -- Two that grant at the same time fail; nobody else waits for this lock.
    LOCK TABLE senders IN SHARE ROW EXCLUSIVE MODE;
    IF event_type !~ '^[A-Z][A-Z0-9_]{0,63}$' THEN
        RETURN 'bad_type';
    ELSIF action = 'add_sender' THEN
        IF own_type(event_type) IS NOT NULL THEN
            RETURN 'own_type';
        ELSIF there IS NULL THEN
            RETURN 'no_role';
        ELSIF role ~ '^issuing_(owner|api|worker|operator|viewer)$' THEN
            RETURN 'own_role';
        END IF;
        PERFORM grant_sender(role);
        INSERT INTO senders AS s (event_type, role, role_oid) VALUES (event_type, role, there)
        ON CONFLICT ON CONSTRAINT senders_pkey DO UPDATE
            SET role_oid = excluded.role_oid, added_at = excluded.added_at
            WHERE s.role_oid <> excluded.role_oid;
        IF NOT FOUND THEN
            RETURN 'known';
        END IF;
    ELSIF action = 'remove_sender' THEN
        DELETE FROM senders s WHERE s.event_type = change_sender.event_type AND s.role = change_sender.role;
        IF NOT FOUND THEN
            RETURN 'unknown';
        END IF;
        -- USAGE of the schema stays: the role may have been given it for something else.
        IF there IS NOT NULL AND NOT EXISTS (SELECT FROM senders s WHERE s.role = change_sender.role
                                                                     AND s.role_oid = there) THEN
            EXECUTE format('REVOKE EXECUTE ON FUNCTION issuing.enqueue, issuing.enqueue_many, issuing.end_of FROM %I',
                           role);
        END IF;
    ELSE
        RAISE EXCEPTION 'no such action: %', action USING ERRCODE = '22023';
    END IF;
    INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, after)
    VALUES (actor, os_user, sudo_user, action, why, jsonb_build_object('target', role || ' ' || event_type));
    RETURN NULL;
END
$$;

-- Whether a role may send events of a type: it was added for it, or has the rights of one that was.
CREATE OR REPLACE FUNCTION issuing.may_send(caller name, of_type text) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM senders s
                   -- guard: a role that was created again has no right of the old one
                   WHERE s.event_type = of_type AND s.role_oid = to_regrole(quote_ident(s.role))
                     AND (s.role = caller OR pg_has_role(caller, s.role_oid, 'USAGE')));
END
$$;

-- Refuses a caller that may not send this type, and says what an operator can do about it.
CREATE OR REPLACE FUNCTION issuing.check_sender(caller name, of_type text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    -- guard: a role sends only the types that it was added for
    IF of_type ~ '^[A-Z][A-Z0-9_]{0,63}$' AND may_send(caller, of_type) THEN
        RETURN;
    ELSIF of_type ~ '^[A-Z][A-Z0-9_]{0,63}$' THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('role %s may not send events of type %s', coalesce(quote_ident(caller), 'null'),
                             of_type),
            HINT = CASE WHEN own_type(of_type) IS NOT NULL THEN format('only %s makes such an event', own_type(of_type))
                   ELSE format('issuing-ctl sender add %s %s --reason TEXT', quote_ident(caller), of_type) END;
    END IF;
    RAISE check_violation USING MESSAGE = why_unusable(of_type, NULL, NULL);
END
$$;

-- Why these values cannot be an event; null = they can.
CREATE OR REPLACE FUNCTION issuing.why_unusable(event_type text, user_id text, payload jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    RETURN CASE
        WHEN event_type !~ '^[A-Z][A-Z0-9_]{0,63}$' OR event_type IS NULL
        THEN format('event_type %s is not of the form [A-Z][A-Z0-9_]{0,63}',
                    coalesce(quote_literal(left(event_type, 80)), 'null'))
        WHEN user_id IS NULL THEN 'user_id is null'
        WHEN octet_length(user_id) NOT BETWEEN 1 AND 128
        THEN format('user_id has %s bytes, and may have 1 to 128', octet_length(user_id))
        WHEN payload IS NULL THEN 'payload is null'
        WHEN octet_length(payload::text) > 65536
        THEN format('payload has %s bytes as text, and may have 65536', octet_length(payload::text)) END;
END
$$;

-- Refuses what cannot be sent.
CREATE OR REPLACE FUNCTION issuing.check_sent(
    of_type text, of_user text, body jsonb, of_key text, run_at timestamptz,
    nth int8) -- of the events of a call, from 1 on; null = the only one
RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    why text := why_unusable(of_type, of_user, body);
BEGIN
    IF why IS NULL THEN
        why := CASE WHEN NOT octet_length(of_key) BETWEEN 1 AND 255
                    THEN format('key has %s bytes, and may have 1 to 255', octet_length(of_key))
                    WHEN run_at > clock_timestamp() + interval '10 years'
                    THEN format('run_at is %s, and may be 10 years ahead', run_at) END;
    END IF;
    IF why IS NOT NULL THEN
        RAISE check_violation USING MESSAGE = coalesce('event ' || nth || ': ', '') || why;
    END IF;
END
$$;

-- The same of what enqueue_many takes. An array of two dimensions, or one that begins elsewhere, has as many elements,
-- and keys[1] is then null or another event's key.
CREATE OR REPLACE FUNCTION issuing.check_many(
    of_type text, user_ids text[], payloads jsonb[], keys text[], run_at timestamptz)
RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    count constant int8 := coalesce(cardinality(payloads), 0);
    one constant text := format('[1:%s]', count); -- of one dimension
BEGIN
    IF count NOT BETWEEN 1 AND 10000 OR cardinality(user_ids) IS DISTINCT FROM count
       OR cardinality(keys) <> count THEN
        RAISE check_violation USING MESSAGE = format(
            'there are %s payloads, %s user_ids and %s keys; there may be 1 to 10000, and as many of each',
            count, coalesce(cardinality(user_ids), 0), coalesce(cardinality(keys)::text, 'no'));
    -- guard: the key of an event is not lost in an array of another form
    ELSIF one <> ANY (ARRAY[array_dims(payloads), array_dims(user_ids), coalesce(array_dims(keys), one)]) THEN
        RAISE check_violation USING MESSAGE = format(
            'the arrays are payloads%s, user_ids%s and keys%s; each must be %s',
            array_dims(payloads), array_dims(user_ids), coalesce(array_dims(keys), ' null'), one);
    END IF;
    FOR n IN 1..count LOOP
        PERFORM check_sent(of_type, user_ids[n], payloads[n], keys[n], run_at, n);
    END LOOP;
END
$$;

REVOKE ALL ON FUNCTION issuing.change_sender FROM PUBLIC;
