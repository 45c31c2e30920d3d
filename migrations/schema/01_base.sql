-- The schema, and the ids that its tables need.

-- A new database: the schema must be ours and empty. In a schema where only the owner creates, and with a search_path
-- of `pg_catalog, issuing, pg_temp`, nobody can put a function, an operator or a cast in front of ours.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_class c
               WHERE c.relnamespace = to_regnamespace('issuing') AND c.relname = 'schema_migration') THEN
        RETURN;
    ELSIF to_regnamespace('issuing') IS NULL THEN
        CREATE SCHEMA issuing;
    ELSIF NOT EXISTS (SELECT FROM pg_namespace n
        WHERE n.nspname = 'issuing' AND n.nspowner = current_user::regrole) THEN
        RAISE EXCEPTION 'the schema "issuing" belongs to %, not to %: drop it, or ALTER SCHEMA issuing OWNER TO %',
            (SELECT n.nspowner::regrole FROM pg_namespace n WHERE n.nspname = 'issuing'), current_user,
            quote_ident(current_user)
            USING ERRCODE = '42501';
    ELSIF EXISTS (SELECT FROM pg_class WHERE relnamespace = 'issuing'::regnamespace)
       OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'issuing'::regnamespace)
       OR EXISTS (SELECT FROM pg_operator WHERE oprnamespace = 'issuing'::regnamespace)
       OR EXISTS (SELECT FROM pg_type WHERE typnamespace = 'issuing'::regnamespace) THEN
        RAISE EXCEPTION 'the schema "issuing" is not empty' USING ERRCODE = '55000';
    END IF;
    REVOKE ALL ON SCHEMA issuing FROM PUBLIC;
END
$$;

-- The keys of advisory locks; ../README.md has all locks and their order. salt: of lock_salt. Bodies in the form RETURN
-- are resolved here and become a part of the query that calls them.
CREATE OR REPLACE FUNCTION issuing.user_lock(user_id text, salt int8) RETURNS int8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(user_id, salt);

-- Of a client's key. For keys that nobody has seen it is as random as the salt.
CREATE OR REPLACE FUNCTION issuing.key_lock(user_id text, key text, salt int8) RETURNS int8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(key, hashtextextended(user_id, salt # 3));

CREATE OR REPLACE FUNCTION issuing.reveal_lock(user_id text, salt int8) RETURNS int8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(user_id, salt # 1);

CREATE OR REPLACE FUNCTION issuing.order_lock(event_type text, user_id text, salt int8) RETURNS int8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(event_type || ' ' || user_id, salt # 2);

-- One of 1024 groups of users: the first two bytes of the SHA-256 of the user id. The body is parsed here, so it
-- depends on no search_path, and has none: a function with one is not inlined. (convert_to is not immutable; decode
-- leaves every byte but the backslash as it is.)
CREATE OR REPLACE FUNCTION issuing.group_of(user_id text) RETURNS int4
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('x' || substr(encode(sha256(decode(replace(user_id, '\', '\\'), 'escape')), 'hex'), 1, 4))::bit(16)::int4
       % 1024;

-- A time-ordered id (RFC 9562, version 7) of that time, in microseconds since 1970. The 12 bits behind the milliseconds
-- are the fraction of the millisecond (6.2, method 3): where events of one user are delivered in the order of their
-- ids, those of one transaction have to be in order too.
CREATE OR REPLACE FUNCTION issuing.uuid7_of(us int8) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN encode(overlay(uuid_send(gen_random_uuid())
                      PLACING int8send((us / 1000) << 16 | 28672 | (us % 1000) * 4096 / 1000)
                      FROM 1 FOR 8), 'hex')::uuid;

-- The same of now, for events that other services insert; our programs make their own.
CREATE OR REPLACE FUNCTION issuing.uuid7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT issuing.uuid7_of(t.us)
    FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::int8 AS us OFFSET 0) t
$$;

-- The least id of version 7 of that moment.
CREATE OR REPLACE FUNCTION issuing.uuid7_least(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
AS $$ SELECT rpad(lpad(to_hex((extract(epoch FROM at) * 1000.0)::int8), 12, '0'), 32, '0')::uuid $$;

-- The moment of such an id.
CREATE OR REPLACE FUNCTION issuing.uuid7_time(id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
AS $$ SELECT timestamptz 'epoch' + ('x' || left(replace(id::text, '-', ''),
    12))::bit(48)::int8::float8 * interval '1 millisecond' $$;

-- The microseconds since 1970 in an id of uuid7(), rounded up to the one that it was made of.
CREATE OR REPLACE FUNCTION issuing.uuid7_us(id uuid) RETURNS int8
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT ('x0000' || left(h.hex, 12))::bit(64)::int8 * 1000
           + (('x' || substr(h.hex, 14, 3))::bit(12)::int8 * 1000 + 4095) / 4096
    FROM (SELECT encode(uuid_send(id), 'hex') AS hex) h
$$;

-- The only part of the system that makes events of this type; null = senders do.
CREATE OR REPLACE FUNCTION issuing.own_type(event_type text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE event_type WHEN 'CARD_REQUEST_ENDED' THEN 'the end of a card request'
                       WHEN 'CARD_STATUS_CHANGED' THEN 'a change of a card''s status' END;

-- The setting issuing.batch names the bulk action that an action belongs to: "<id> <what was selected>", for the one
-- transaction. Any other text names none, so that no setting of a role or a database stops an action.
CREATE OR REPLACE FUNCTION issuing.batch_id(setting text) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substring(setting FROM '^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}) ')::uuid;

CREATE OR REPLACE FUNCTION issuing.batch_scope(setting text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN issuing.batch_id(setting) IS NOT NULL THEN left(substr(setting, 38), 1000) END;

-- An audit row is not lost when the server crashes or a standby takes over, also if the caller has set
-- synchronous_commit.
CREATE OR REPLACE FUNCTION issuing.commit_durably() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    IF current_setting('synchronous_commit') <> 'remote_apply' THEN
        -- guard: an audit row survives a crash with any setting of the caller
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN NULL;
END
$$;

-- The traceparent of what follows from an event. Where nobody gave the event one, the event's id is its trace; a parent
-- of zeros, which no client can give, says so (common/lib/base/trace.h).
CREATE OR REPLACE FUNCTION issuing.trace_below(parent text, event_id uuid) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(parent, '00-' || replace(event_id::text, '-', '') || '-0000000000000000-00');

-- Tells listeners on a channel that there is something to look at; not while the queue fills up (wake_for).
CREATE OR REPLACE FUNCTION issuing.hint(channel text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
AS $$ SELECT pg_notify(channel, '') WHERE pg_notification_queue_usage() < 0.01 $$;

-- Refuses an action that does not say who acts and why, or says it at too great a length.
CREATE OR REPLACE FUNCTION issuing.check_who(actor text, os_user text, sudo_user text, why text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, issuing, pg_temp SET standard_conforming_strings = on
AS $$
BEGIN
    -- guard: an action has an actor and a reason
    IF coalesce(btrim(actor), '') = '' OR coalesce(btrim(why, E' \t\r\n'), '') = '' THEN
        RAISE EXCEPTION 'an action needs an actor and a reason' USING ERRCODE = '22023';
    END IF;
    IF greatest(octet_length(actor), octet_length(os_user), octet_length(sudo_user)) > 256
       OR octet_length(why) > 4096 THEN
        RAISE EXCEPTION 'the actor or the reason of an action is too long' USING ERRCODE = '22001';
    END IF;
END
$$;

REVOKE ALL ON FUNCTION issuing.check_who FROM PUBLIC;
