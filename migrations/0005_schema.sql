-- Why: everything gets a schema of its own, `issuing`. In `public` any role that may create there can put a function, operator or cast in front of one
-- that ours resolve; in a schema where only the owner creates, and with a fixed search_path of `pg_catalog, issuing, pg_temp`, nobody can.
-- The bounds of the table that other services write to are here as well, and the narrower rule for the place of a reissue.
-- Locks: ACCESS EXCLUSIVE on every table, given up after lock_timeout and tried again. Under it the catalogue changes and the open events are read, by
-- their index; no finished row is read or written, no index is built. On two cores that were busy with other work: 2 s with 200,000 open events beside 10
-- million finished ones; next to nothing where few are open.
-- Older programs: connections that are open go on; a new one is refused, because the version is not theirs. `public` keeps views of the tables under
-- their old names, with the rights that others have on the tables, and the old functions, which now work through those views. Old housekeeping does nothing
-- any more. The views also keep other services' unqualified SELECT, INSERT, UPDATE and DELETE working; COPY into them and TRUNCATE do not.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'issuing') THEN
        CREATE SCHEMA issuing;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'issuing' AND n.nspowner = current_user::regrole) THEN
        RAISE EXCEPTION 'the schema "issuing" belongs to %, not to %, who owns the tables: drop it, or ALTER SCHEMA issuing OWNER TO %',
            (SELECT n.nspowner::regrole FROM pg_namespace n WHERE n.nspname = 'issuing'), current_user, quote_ident(current_user)
            USING ERRCODE = '42501';
    END IF;
    IF EXISTS (SELECT FROM pg_class WHERE relnamespace = 'issuing'::regnamespace)
       OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'issuing'::regnamespace)
       OR EXISTS (SELECT FROM pg_operator WHERE oprnamespace = 'issuing'::regnamespace)
       OR EXISTS (SELECT FROM pg_type WHERE typnamespace = 'issuing'::regnamespace) THEN
        RAISE EXCEPTION 'the schema "issuing" is not empty' USING ERRCODE = '55000';
    END IF;
END
$$;
REVOKE ALL ON SCHEMA issuing FROM PUBLIC;

-- The move: parents first, as every statement locks them, then their partitions.
LOCK TABLE public.idempotency_keys, public.rate_limit_log, public.outbox_events, public.cards, public.card_reissues, public.outbox_attempts,
    public.operator_actions, public.partitions IN ACCESS EXCLUSIVE MODE;
DO $$
DECLARE
    parent regclass;
    child regclass;
BEGIN
    FOREACH parent IN ARRAY ARRAY['public.idempotency_keys', 'public.rate_limit_log', 'public.outbox_events', 'public.outbox_attempts', 'public.cards',
                                  'public.card_reissues', 'public.operator_actions', 'public.partitions', 'public.schema_migration']::regclass[] LOOP
        FOR child IN SELECT i.inhrelid::regclass FROM pg_inherits i WHERE i.inhparent = parent LOOP
            EXECUTE format('ALTER TABLE %s SET SCHEMA issuing', child);
        END LOOP;
        EXECUTE format('ALTER TABLE %s SET SCHEMA issuing', parent);
    END LOOP;
END
$$;

-- Time-ordered ids (RFC 9562, version 7) for events that other services insert; our programs make their own.
CREATE FUNCTION issuing.uuid7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT encode(
            set_bit(set_bit(
                overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::int8) FROM 3)
                        FROM 1 FOR 6),
                52, 1), 53, 1),
            'hex')::uuid
    $$;
ALTER TABLE issuing.outbox_events ALTER COLUMN id SET DEFAULT issuing.uuid7();

-- Open rows that are beyond the range now end here as questions (FAILED); a replay of one is refused (0009). Only open rows are read, by their index.
SET LOCAL enable_seqscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
WITH beyond AS MATERIALIZED (
    SELECT e.id, e.lease_token, e.lease_owner, e.updated_at,
           CASE WHEN octet_length(e.payload::text) > 65536 THEN format('the payload has %s bytes, more than 65536', octet_length(e.payload::text))
                WHEN octet_length(e.user_id) NOT BETWEEN 1 AND 128 THEN format('the user id has %s bytes, not 1 to 128', octet_length(e.user_id))
                WHEN e.retry_count > 1000000 THEN format('retry_count is %s, more than 1000000', e.retry_count)
                ELSE 'next_attempt_at is infinite' END AS what,
           EXISTS (SELECT FROM issuing.cards c WHERE c.request_id = e.id AND c.status <> 'cancelled') AS has_card
    FROM issuing.outbox_events e
    WHERE e.due_at IS NOT NULL
      AND (octet_length(e.payload::text) > 65536 OR octet_length(e.user_id) NOT BETWEEN 1 AND 128 OR e.retry_count > 1000000
           OR e.next_attempt_at >= 'infinity')
), ended AS (
    UPDATE issuing.outbox_events e
    SET status = 'FAILED', lease_token = NULL, lease_until = NULL, deferred_since = NULL,
        -- `payload_invalid` says that there is no card.
        reason_code = CASE WHEN b.has_card THEN 'attempts_exhausted' ELSE 'payload_invalid' END,
        reason_detail = CASE WHEN b.has_card THEN 'All attempts were used up.' ELSE 'The request could not be read.' END,
        last_error = 'ended by migration 0005: ' || b.what, completed_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM beyond b
    WHERE e.id = b.id
    RETURNING e.id, e.user_id, e.retry_count
)
INSERT INTO issuing.outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker, step, outcome, code, detail)
SELECT e.id, b.lease_token, b.updated_at, now(), e.retry_count, true, e.user_id, b.lease_owner, 'unknown', 'lost', 'lease_expired',
       'ended by migration 0005: ' || b.what
FROM ended e JOIN beyond b ON b.id = e.id
WHERE b.lease_token IS NOT NULL
ON CONFLICT DO NOTHING;
-- The range of every column that another service may write: one row beyond it would stop the claims of all others. By a trigger and not by CHECK: a CHECK,
-- also one that is NOT VALID, is looked at again by every UPDATE, so a row that is there already and beyond it would itself stop the claim of all others,
-- and the drop of its partition. A row that is there already ends FAILED `payload_invalid`, as ever.
CREATE FUNCTION issuing.refuse_row() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RAISE check_violation USING CONSTRAINT = TG_NAME, TABLE = 'outbox_events', MESSAGE = 'a value of the event is beyond its range';
    END
    $$;
CREATE TRIGGER outbox_events_range BEFORE INSERT ON issuing.outbox_events
    FOR EACH ROW WHEN (octet_length(NEW.payload::text) > 65536 OR octet_length(NEW.user_id) NOT BETWEEN 1 AND 128
                       OR NEW.retry_count > 1000000 OR NEW.next_attempt_at = 'infinity'
                       OR NOT isfinite(NEW.created_at) OR NOT isfinite(NEW.updated_at) OR NEW.updated_at > NEW.created_at + interval '1000 years'
                       OR NOT isfinite(NEW.first_sent_at) OR NOT isfinite(NEW.deferred_since))
    EXECUTE FUNCTION issuing.refuse_row();

-- One live reissue per card: a card request of kind reissue takes the place of its card, and nothing else does. A REJECTED event, also one that
-- housekeeping moves to another partition, needs no place; nor does one whose payload cannot be used. A card that is no longer active has been
-- replaced: its place stays taken when the event is long gone.
CREATE FUNCTION issuing.reissue_once() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        replaced text := lower(NEW.payload ->> 'replaces');
    BEGIN
        INSERT INTO card_reissues (event_id, user_id, card_id) VALUES (NEW.id, NEW.user_id, replaced)
        ON CONFLICT (user_id, card_id) DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        -- Another event has the place. The lock on the place comes first, in its own statement: only a snapshot taken after it sees the event of the
        -- transaction that was waited for.
        PERFORM FROM card_reissues r WHERE r.user_id = NEW.user_id AND r.card_id = replaced FOR UPDATE;
        UPDATE card_reissues r SET event_id = NEW.id
        WHERE r.user_id = NEW.user_id AND r.card_id = replaced
          AND (r.event_id = NEW.id
               OR NOT EXISTS (SELECT FROM outbox_events e
                              WHERE e.id = r.event_id AND e.status <> 'REJECTED' AND e.reason_code IS DISTINCT FROM 'payload_invalid')
                  AND NOT EXISTS (SELECT FROM cards c WHERE c.user_id = NEW.user_id AND c.id::text = replaced AND c.status <> 'active'));
        IF NOT FOUND THEN
            RAISE unique_violation USING CONSTRAINT = 'outbox_events_reissue', TABLE = 'outbox_events',
                MESSAGE = 'there is a live reissue of this card already';
        END IF;
        RETURN NULL;
    END
    $$;
DROP TRIGGER outbox_events_reissue ON issuing.outbox_events;
CREATE TRIGGER outbox_events_reissue AFTER INSERT ON issuing.outbox_events
    FOR EACH ROW WHEN (NEW.event_type = 'CARD_ISSUE' AND NEW.payload ->> 'kind' = 'reissue' AND NEW.payload ->> 'replaces' IS NOT NULL
                       AND NEW.status <> 'REJECTED')
    EXECUTE FUNCTION issuing.reissue_once();
DROP FUNCTION public.issuing_reissue_once();

-- What older programs, other services and operators' scripts that name no schema still find. Inserts and updates go through to the tables. The
-- number of a card is not among what can be read here; an older worker can still store one.
CREATE VIEW public.schema_migration AS SELECT * FROM issuing.schema_migration;
CREATE VIEW public.outbox_events AS SELECT * FROM issuing.outbox_events;
CREATE VIEW public.idempotency_keys AS SELECT * FROM issuing.idempotency_keys;
CREATE VIEW public.rate_limit_log AS SELECT * FROM issuing.rate_limit_log;
CREATE VIEW public.cards AS SELECT * FROM issuing.cards;
CREATE VIEW public.card_reissues AS SELECT * FROM issuing.card_reissues;
CREATE VIEW public.outbox_attempts AS SELECT * FROM issuing.outbox_attempts;
CREATE VIEW public.operator_actions AS SELECT * FROM issuing.operator_actions;
CREATE OR REPLACE FUNCTION public.issuing_card_of(event uuid) RETURNS issuing.cards
    LANGUAGE sql STABLE
    AS $$
        SELECT c.id, c.request_id, c.created_at, c.updated_at, c.replaces, c.exp_month, c.exp_year, c.user_id, c.issuer_card_id, c.last4, c.status, NULL::bytea
        FROM issuing.cards c WHERE c.request_id = event
    $$;
CREATE OR REPLACE FUNCTION public.issuing_keep_house(
    key_retention interval, limit_window interval, event_retention interval, least_length interval)
RETURNS TABLE (action text, table_name text, amount int8, detail text, again bool)
    LANGUAGE sql SECURITY INVOKER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT 'busy', NULL::text, 0::int8, NULL::text, false $$;
DROP FUNCTION public.issuing_partition_drop(text, interval);
DROP FUNCTION public.issuing_partition_add(text, timestamptz, timestamptz);
DROP FUNCTION public.issuing_uuid7_least(timestamptz);
DROP FUNCTION public.issuing_uuid7_time(uuid);
-- What was granted to others on a table, they need on its view.
DO $$
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT c.relname, a.privilege_type, a.is_grantable, a.grantee, a.col
        FROM pg_class c
        CROSS JOIN LATERAL (SELECT x.privilege_type, x.is_grantable, x.grantee, NULL::name AS col FROM aclexplode(c.relacl) x
                            UNION ALL
                            SELECT x.privilege_type, x.is_grantable, x.grantee, t.attname
                            FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) x
                            WHERE t.attrelid = c.oid AND NOT t.attisdropped) a
        WHERE c.oid = ANY (ARRAY['issuing.schema_migration', 'issuing.outbox_events', 'issuing.idempotency_keys', 'issuing.rate_limit_log', 'issuing.cards',
                                 'issuing.card_reissues', 'issuing.outbox_attempts', 'issuing.operator_actions']::regclass[])
          AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') AND a.grantee <> c.relowner
          AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = a.grantee AND r.rolname IN ('issuing_api', 'issuing_worker', 'issuing_operator'))
    LOOP
        EXECUTE format('GRANT %s%s ON public.%I TO %s%s', given.privilege_type, CASE WHEN given.col IS NULL THEN '' ELSE format(' (%I)', given.col) END, given.relname,
                       CASE WHEN given.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(given.grantee)) END,
                       CASE WHEN given.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
END
$$;
-- grants.sql runs only when all files are applied; the older programs go on meanwhile.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_api') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_api;
        GRANT SELECT ON public.schema_migration, public.outbox_events, public.card_reissues TO issuing_api;
        GRANT SELECT, INSERT ON public.idempotency_keys, public.rate_limit_log TO issuing_api;
        GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, issuer_card_id, last4, status)
            ON public.cards TO issuing_api;
        GRANT INSERT (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload, traceparent) ON public.outbox_events TO issuing_api;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_worker') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_worker;
        GRANT SELECT ON public.schema_migration, public.outbox_events TO issuing_worker;
        GRANT UPDATE (status, retry_count, next_attempt_at, lease_token, lease_owner, lease_until, first_sent_at, deferred_since, cancel_code,
                      reason_code, reason_detail, last_error, completed_at, updated_at) ON public.outbox_events TO issuing_worker;
        GRANT SELECT, INSERT ON public.outbox_attempts TO issuing_worker;
        GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, issuer_card_id, last4, status), INSERT
            ON public.cards TO issuing_worker;
        GRANT UPDATE (status, updated_at) ON public.cards TO issuing_worker;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_operator') THEN
        GRANT USAGE ON SCHEMA issuing TO issuing_operator;
        GRANT SELECT ON public.schema_migration, public.outbox_events, public.outbox_attempts, public.operator_actions, public.idempotency_keys,
            public.rate_limit_log, public.card_reissues TO issuing_operator;
        GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, issuer_card_id, last4, status)
            ON public.cards TO issuing_operator;
    END IF;
END
$$;
