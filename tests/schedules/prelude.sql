-- What schedules share. In the files P is a number: event P of user `alice`, its token and so on.
CREATE SCHEMA schedule;
GRANT USAGE ON SCHEMA schedule TO PUBLIC;
ALTER DEFAULT PRIVILEGES IN SCHEMA schedule GRANT SELECT ON TABLES TO PUBLIC;
-- Not now(): its ids are below those that functions make meanwhile.
CREATE TABLE schedule.begun AS SELECT clock_timestamp() AS at;
CREATE TABLE schedule.partitions AS SELECT * FROM issuing.partitions;
CREATE UNLOGGED TABLE public.said (step text, value text, error text, at timestamptz);

-- What a session finds first, where names are not resolved as they are meant.
CREATE SCHEMA hostile;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT c.relname FROM pg_class c
                WHERE c.relnamespace = 'issuing'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition LOOP
        EXECUTE format('CREATE TABLE hostile.%I ()', name);
    END LOOP;
END
$$;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hostile TO PUBLIC;

-- The id of the event n: they rise with n.
CREATE FUNCTION schedule.id(n int) RETURNS uuid LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT (left(issuing.uuid7_least(b.at)::text, 24) || lpad(n::text, 12, '0'))::uuid FROM schedule.begun b $$;
-- The token, card or mark n.
CREATE FUNCTION schedule.token(n int) RETURNS uuid LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid $$;

-- Empty tables, and the partitions of the beginning. No trigger takes part.
CREATE FUNCTION schedule.reset() RETURNS void LANGUAGE plpgsql
SET session_replication_role = replica SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('DROP TABLE IF EXISTS %I.%I', p.relnamespace::regnamespace, q.name)
        FROM issuing.partitions q JOIN pg_class p ON p.relname = q.name
        WHERE q.name NOT IN (SELECT b.name FROM schedule.partitions b)
        UNION ALL
        SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', c.conrelid::regclass, c.conname)
        FROM pg_constraint c WHERE c.conname = 'default_promise'
        UNION ALL
        SELECT format('DELETE FROM %s', c.oid::regclass) FROM pg_class c
        WHERE c.relnamespace = 'issuing'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relname NOT IN ('schema_migration', 'ceilings', 'retentions', 'lock_salt', 'job_locks', 'partitions',
                                'housekeeping_clock')
    LOOP
        EXECUTE statement;
    END LOOP;
    DELETE FROM issuing.partitions p WHERE p.name NOT IN (SELECT b.name FROM schedule.partitions b);
    UPDATE issuing.partitions p SET settled_at = NULL, still_open = '{}'
    WHERE p.settled_at IS NOT NULL OR p.still_open <> '{}';
    UPDATE issuing.housekeeping_clock SET passed_at = NULL, steady_from = NULL, clock_at = NULL
    WHERE passed_at IS NOT NULL;
    UPDATE schedule.begun SET at = clock_timestamp() - interval '1 second';
END
$body$;

-- A lock is waited for as long as an order takes, also on a busy machine.
CREATE FUNCTION schedule.be_patient() RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace = 'issuing'::regnamespace AND p.proconfig && '{lock_timeout=2s,lock_timeout=200ms}' LOOP
        EXECUTE format('ALTER FUNCTION %s SET lock_timeout = ''60s''', f);
    END LOOP;
END
$$;
SELECT schedule.be_patient();

-- ---- setup: only the superuser calls these ----

-- The event n, as it is after the acceptance of a request, or PENDING of another type.
CREATE FUNCTION schedule.event(n int, of_type text DEFAULT 'CARD_ISSUE', who text DEFAULT 'alice',
                               body text DEFAULT '{"kind": "new"}') RETURNS void LANGUAGE sql
AS $$
    INSERT INTO issuing.outbox_events (id, event_type, user_id, payload, idempotency_key, next_attempt_at, created_at,
                                       updated_at)
    SELECT schedule.id(n), of_type, who, body::jsonb, CASE WHEN of_type = 'CARD_ISSUE' THEN 'key' || n END, b.at, b.at,
           b.at
    FROM schedule.begun b
$$;

-- The event n, held by a worker under the token n; lease_ms below 0: the lease is over.
CREATE FUNCTION schedule.held(n int, of_type text DEFAULT 'CARD_ISSUE', lease_ms int DEFAULT 60000, who text DEFAULT 'alice')
    RETURNS void LANGUAGE sql
AS $$
    SELECT schedule.event(n, of_type, who);
    UPDATE issuing.outbox_events e
    SET status = 'PROCESSING', lease_token = schedule.token(n), lease_owner = 'first',
        lease_until = now() + lease_ms * interval '1 millisecond', retry_count = 1, first_sent_at = b.at
    FROM schedule.begun b WHERE e.id = schedule.id(n)
$$;

-- The event n, FAILED some time ago.
CREATE FUNCTION schedule.failed(n int, of_type text DEFAULT 'CARD_ISSUE', body text DEFAULT '{"kind": "new"}')
    RETURNS void LANGUAGE sql
AS $$
    SELECT schedule.event(n, of_type, 'alice', body);
    UPDATE issuing.outbox_events e SET status = 'FAILED', completed_at = b.at, reason_code = 'attempts_exhausted'
    FROM schedule.begun b WHERE e.id = schedule.id(n)
$$;

-- The card that was made for the event n.
CREATE FUNCTION schedule.card(n int, who text DEFAULT 'alice') RETURNS void LANGUAGE sql
AS $$
    INSERT INTO issuing.cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4)
    VALUES (schedule.token(n), schedule.id(n), 1, 2030, who, 'card' || n, '1234')
$$;

CREATE FUNCTION schedule.route(of_type text, is_ordered bool) RETURNS void LANGUAGE sql
AS $$
    INSERT INTO issuing.routes (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts, is_signed, worker,
                                seen_at)
    VALUES (of_type, is_ordered, false, 86400000, 10, false, 'first', clock_timestamp())
$$;

-- ---- steps: the calls of the programs, with what a schedule does not vary ----

CREATE FUNCTION schedule.accept(n int, who text, key text, most int DEFAULT 3, body text DEFAULT '{"kind": "new"}')
    RETURNS text LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.verdict FROM issuing.accept(ARRAY[schedule.id(n)], ARRAY[who], ARRAY[key], ARRAY[sha256(body::bytea)],
                                            ARRAY[body], ARRAY[NULL], ARRAY[NULL], most, interval '1 hour', false,
                                            interval '1 day') a
$$;

-- The ids of the events that the claim n hands out, as numbers.
CREATE FUNCTION schedule.claim(n int, of_type text DEFAULT 'CARD_ISSUE', is_ordered bool DEFAULT false,
                               alone bool DEFAULT false, most int DEFAULT 10)
    RETURNS text LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce((SELECT string_agg(right(u.id::text, 12)::int8::text, ' ' ORDER BY u.id) FROM unnest(c.events) u),
                    'nothing')
    FROM issuing.claim(schedule.token(n), most, 60000, 'worker' || n, NULL, 0, alone, of_type, is_ordered) c
$$;

-- The end of the attempt under the token n, as the worker writes it.
CREATE FUNCTION schedule.end_attempt(event int, n int, status text, reason text DEFAULT NULL, clear_sent bool DEFAULT false)
    RETURNS text LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*)::text
    FROM issuing.end_attempts(ARRAY[ROW(schedule.id(event), schedule.token(n), status, 0, status = 'PENDING', clear_sent,
                                        false, reason, NULL, NULL, 'issue', lower(status), reason, NULL, false, 5, NULL,
                                        NULL, false, NULL, NULL, NULL, NULL)::issuing.attempt_end], 'worker' || n)
$$;

CREATE FUNCTION schedule.complete(event int, n int, step text DEFAULT 'link') RETURNS text LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*)::text FROM issuing.complete(ARRAY[schedule.id(event)], ARRAY[schedule.token(n)], 'worker' || n,
                                                ARRAY[5], step, ARRAY[NULL])
$$;

-- Stores the card n.
CREATE FUNCTION schedule.save(event int, n int) RETURNS text LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*)::text FROM issuing.save(ARRAY[schedule.id(event)], ARRAY[schedule.token(n)], ARRAY[schedule.token(n)],
                                            ARRAY['card' || n], ARRAY['1234'], ARRAY[1], ARRAY[2030], ARRAY[NULL::bytea],
                                            ARRAY[NULL::uuid])
$$;

-- A batch of two, each of another user, with a limit of one.
CREATE FUNCTION schedule.accept_two(n int, one text, two text, key text) RETURNS text LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(a.verdict, ' ')
    FROM issuing.accept(ARRAY[schedule.id(n), schedule.id(n + 1)], ARRAY[one, two], ARRAY[key, key],
                           ARRAY[sha256(''), sha256('')], ARRAY['{"kind": "new"}', '{"kind": "new"}'], ARRAY[NULL, NULL],
                           ARRAY[NULL, NULL], 1, interval '1 hour', false, interval '1 day') a
$$;

-- The body of a reissue of the card n.
CREATE FUNCTION schedule.reissue_of(n int) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT format('{"kind": "reissue", "replaces": "%s"}', schedule.token(n)) $$;

-- Whether the claim n, of one event, hands its card out.
CREATE FUNCTION schedule.claim_card(n int) RETURNS text LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN cardinality(c.events) = 0 THEN 'nothing' WHEN c.events[1].card_id IS NULL THEN 'no card'
                ELSE 'card' END
    FROM issuing.claim(schedule.token(n), 1, 60000, 'worker' || n, NULL, 0, false, 'CARD_ISSUE', false) c
$$;

-- The unfinished mark n of the event n; token: of the worker that has it, NULL = none.
CREATE FUNCTION schedule.mark(n int, action text, token int) RETURNS void LANGUAGE sql
AS $$
    INSERT INTO issuing.marks (id, event_id, deadline_at, action, actor, lease_token, due_at)
    VALUES (schedule.token(n), schedule.id(n), now() + interval '1 hour', action, 'op', schedule.token(token),
            now() + CASE WHEN token IS NULL THEN interval '-1 minute' ELSE interval '1 minute' END)
$$;

-- The end of the mark n over the event as the setup left it.
CREATE FUNCTION schedule.end_mark(n int, token int, result text) RETURNS text LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT issuing.end_mark(schedule.token(n), schedule.token(token), (extract(epoch FROM b.at) * 1000000)::int8, result,
                             'detail')
    FROM schedule.begun b
$$;

-- What the claim n of CARD_REQUEST_ENDED hands out: the numbers of the ends.
CREATE FUNCTION schedule.told(n int, most int) RETURNS text LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(u.payload::jsonb #>> '{data,end}', ' ')
    FROM issuing.claim(schedule.token(n), most, 60000, 'worker' || n, NULL, 0, false, 'CARD_REQUEST_ENDED', false) c,
         unnest(c.events) u
$$;

-- The tickets that there are, also those of this transaction.
CREATE FUNCTION schedule.tickets() RETURNS SETOF uuid LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT t.id FROM issuing.reveal_tickets t $$;

-- The key of the event n, as its acceptance wrote it.
CREATE FUNCTION schedule.key_of(n int) RETURNS void LANGUAGE sql
AS $$
    INSERT INTO issuing.idempotency_keys (event_id, created_at, user_id, key, fingerprint)
    SELECT e.id, e.created_at, e.user_id, e.idempotency_key, sha256('{"kind": "new"}')
    FROM issuing.outbox_events e WHERE e.id = schedule.id(n)
$$;

-- The event n, and its key, become those of a year ago, in partitions that are settled. Its id changes.
CREATE FUNCTION schedule.grow_old(n int) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    day timestamptz := date_trunc('day', clock_timestamp()) - interval '400 days';
    old uuid := (left(issuing.uuid7_least(day + interval '1 hour')::text, 24) || lpad(n::text, 12, '0'))::uuid;
    young uuid := schedule.id(n);
BEGIN
    PERFORM issuing.partition_add('outbox_events', day, day + interval '1 day'),
            issuing.partition_add('idempotency_keys', day, day + interval '1 day');
    UPDATE schedule.begun SET at = day + interval '1 hour';
    UPDATE issuing.outbox_events SET id = old, created_at = day + interval '1 hour' WHERE id = young;
    UPDATE issuing.idempotency_keys SET event_id = old, created_at = day + interval '1 hour' WHERE event_id = young;
END
$$;

CREATE FUNCTION schedule.drop_old(of_parent text) RETURNS int8 LANGUAGE sql
AS $$
    SELECT issuing.partition_drop(p.name, now() - interval '100 days') FROM issuing.partitions p
    WHERE p.parent = of_parent AND p.to_at < now() - interval '100 days'
$$;
