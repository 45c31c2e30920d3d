-- Why: what an attacker with one token, or with a program's database role, could make grow or shrink without end: refused tries, reveals of card numbers,
-- the audit trail, and retentions. And an acceptance costs no more than before the schema `issuing`.
-- Locks: ACCESS EXCLUSIVE on rate_limit_log, outbox_events and operator_actions, taken at the start, given up after lock_timeout and tried again. Under it
-- only the catalogue changes: no row of theirs is read or written, no index is built, however large they are; 106 ms beside 1.5 million actions and a million
-- tries, on two cores that were busy with other work.
-- Older programs: connections that are open go on; a new one is refused, because the version is not theirs. They reveal numbers by the old function, which has
-- the database's ceiling. The old functions and views in `public` stay as they are; public.operator_actions reads the new table.

-- No housekeeping meanwhile: it takes these locks in another order.
SELECT pg_advisory_xact_lock(4711, 1);
LOCK TABLE issuing.rate_limit_log, issuing.outbox_events, issuing.operator_actions IN ACCESS EXCLUSIVE MODE;

-- ---- retentions, partitions ----

-- How long the audit trail is kept: no program has a word in it, only the owner. PCI DSS 4.0, 10.5.1, wants twelve months.
ALTER TABLE issuing.retentions DROP CONSTRAINT retentions_name_check;
ALTER TABLE issuing.retentions ADD CONSTRAINT retentions_name_check CHECK (name IN ('keys', 'limits', 'events', 'audit'));
INSERT INTO issuing.retentions (name, kept, least) VALUES ('audit', '400 d', '365 d');

-- Makes one partition; of the events, with that of their attempts.
CREATE OR REPLACE FUNCTION issuing.partition_add(new_parent text, new_from timestamptz, new_to timestamptz) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        new_name text := format('%s_%s', new_parent, to_char(new_from AT TIME ZONE 'UTC', 'YYYYMMDD_HH24MISS'));
        -- Room for the version that a claim writes; what is only inserted and dropped needs no vacuum.
        storage text := CASE new_parent
            WHEN 'outbox_events' THEN 'fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05'
            WHEN 'outbox_attempts' THEN 'autovacuum_vacuum_insert_scale_factor = 1'
            WHEN 'operator_actions' THEN 'autovacuum_vacuum_insert_scale_factor = 1'
            ELSE 'autovacuum_enabled = false' END;
        is_by_id bool := new_parent IN ('outbox_events', 'outbox_attempts');
    BEGIN
        EXECUTE format('CREATE TABLE issuing.%I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED) WITH (%s)', new_name, new_parent, storage);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', new_parent, new_name,
                       CASE WHEN is_by_id THEN issuing.uuid7_least(new_from)::text ELSE new_from::text END,
                       CASE WHEN is_by_id THEN issuing.uuid7_least(new_to)::text ELSE new_to::text END);
        INSERT INTO partitions (from_at, to_at, parent, name) VALUES (new_from, new_to, new_parent, new_name);
        IF new_parent = 'outbox_events' THEN
            PERFORM issuing.partition_add('outbox_attempts', new_from, new_to);
        END IF;
    END
    $$;

-- The retention in force, raised to what is wanted. Never lowered, and never by a caller beyond what an option can be.
CREATE OR REPLACE FUNCTION issuing.retention_at_least(which text, wanted interval) RETURNS interval
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        bounded interval := least(coalesce(wanted, interval '0'), interval '36600 days');
    BEGIN
        UPDATE retentions r SET kept = bounded WHERE r.name = which AND r.kept < bounded;
        RETURN (SELECT r.kept FROM retentions r WHERE r.name = which);
    END
    $$;

-- As in 0008_housekeeping.sql, with the audit trail and the reveals.
-- The first call of a pass, by one worker of the cluster at a time: the clock moves on, rows of the `_rest` partitions that are over are deleted, and
-- partitions become settled.
CREATE OR REPLACE FUNCTION issuing.keep_rows(key_retention interval, limit_window interval, event_retention interval)
RETURNS TABLE (
    action text,     -- expired, postponed, failed; busy: another worker is at it
    table_name text,
    amount int8,     -- rows deleted
    detail text,
    again bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        kind record;
        p partitions;
        t timestamptz;
        keys_kept interval;
        has_open bool;
        open_ids uuid[];
        gone int8;
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.keep_rows needs READ COMMITTED, not %', current_setting('transaction_isolation') USING ERRCODE = '25001';
        END IF;
        IF NOT pg_try_advisory_xact_lock(4711, 1) THEN
            RETURN QUERY SELECT 'busy', NULL, 0::int8, NULL, false;
            RETURN;
        END IF;
        PERFORM set_config('synchronous_commit', 'local', true);
        PERFORM set_config('lock_timeout', '1s', true);

        PERFORM issuing.keep_clock();
        t := issuing.believed(now());
        keys_kept := issuing.retention_at_least('keys', key_retention);

        FOR kind IN
            SELECT * FROM (VALUES
                ('idempotency_keys', 'idempotency_keys_rest', keys_kept,
                 'r.created_at < $1 AND NOT EXISTS (SELECT FROM outbox_events e
                                                    WHERE e.id = r.event_id AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                                                                                 OR coalesce(e.completed_at, e.updated_at) >= $1))'),
                ('rate_limit_log', 'rate_limit_log_rest', issuing.retention_at_least('limits', limit_window), 'r.at < $1'),
                -- created_at as well: a worker may write updated_at, and whoever has broken into one makes no event older.
                ('outbox_events', 'outbox_events_rest', greatest(issuing.retention_at_least('events', event_retention), keys_kept),
                 'r.due_at IS NULL AND r.failed_at IS NULL AND r.updated_at < $1 AND r.created_at < $1'),
                ('operator_actions', 'operator_actions_rest', (SELECT r.kept FROM retentions r WHERE r.name = 'audit'), 'r.at < $1'),
                ('number_reveals', 'number_reveals', interval '1 hour', 'r.last_at < $1')) AS v (parent, rest, kept, condition)
        LOOP
            BEGIN
                gone := issuing.rest_expire(kind.rest, kind.condition, t - kind.kept);
                RETURN QUERY SELECT 'expired', kind.parent, gone, NULL, gone >= 1000 WHERE gone > 0;
            EXCEPTION WHEN OTHERS THEN
                RETURN QUERY SELECT 'failed', kind.parent, 0::int8, SQLERRM, false;
            END;
        END LOOP;

        -- What was settled in a time to come was settled by a clock that was ahead: it is judged anew.
        UPDATE partitions q SET settled_at = NULL, still_open = '{}' WHERE q.settled_at > t;

        -- Nothing of its time is at work: the end of its life is counted from now. Not before all that was begun in its time has committed or is over
        -- (the roles' statement_timeout).
        FOR p IN
            SELECT q.* FROM partitions q
            WHERE q.settled_at IS NULL AND q.to_at < t - interval '1 minute' AND q.parent <> 'outbox_attempts'
            ORDER BY q.to_at
        LOOP
            BEGIN
                CASE p.parent
                WHEN 'outbox_events' THEN
                    EXECUTE format('SELECT EXISTS (SELECT FROM %1$I e WHERE e.due_at IS NOT NULL AND e.event_type = %2$L),
                                           ARRAY (SELECT e.id FROM %1$I e WHERE e.due_at IS NOT NULL OR e.failed_at IS NOT NULL LIMIT 10001)',
                                   p.name, 'CARD_ISSUE') INTO has_open, open_ids;
                WHEN 'idempotency_keys' THEN
                    SELECT EXISTS (SELECT FROM outbox_events e
                                   WHERE e.due_at IS NOT NULL AND e.event_type = 'CARD_ISSUE' AND e.idempotency_key IS NOT NULL
                                     AND e.created_at >= p.from_at AND e.created_at < p.to_at),
                           ARRAY (SELECT e.id FROM outbox_events e
                                  WHERE e.failed_at IS NOT NULL AND e.idempotency_key IS NOT NULL AND e.created_at >= p.from_at AND e.created_at < p.to_at
                                  LIMIT 10001)
                    INTO has_open, open_ids;
                ELSE
                    has_open := false;
                    open_ids := '{}';
                END CASE;
                IF cardinality(open_ids) > 10000 THEN
                    RETURN QUERY SELECT 'postponed', p.parent, 0::int8, format('%s holds more than 10000 rows that must stay', p.name), false;
                ELSIF NOT has_open THEN
                    UPDATE partitions q SET settled_at = t, still_open = open_ids WHERE q.name = p.name;
                END IF;
            EXCEPTION WHEN OTHERS THEN
                RETURN QUERY SELECT 'failed', p.parent, 0::int8, format('%s: %s', p.name, SQLERRM), false;
            END;
        END LOOP;
    END
    $$;

-- The second call of a pass: ONE partition is made or dropped, at its end, so that its lock is held for the shortest time. `again` = there is more.
CREATE OR REPLACE FUNCTION issuing.keep_house(
    key_retention interval, limit_window interval, event_retention interval,
    least_length interval) -- no partition is shorter; an hour to a day
RETURNS TABLE (
    action text,     -- created, dropped, planned (a large `_rest` is to be checked first), postponed, failed; busy: another worker is at it
    table_name text,
    amount int8,     -- rows moved to the `_rest` partition
    detail text,
    again bool)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        shortest interval := least(greatest(least_length, interval '1 hour'), interval '1 day');
        -- Whatever retention a caller asks for, a partition settles within the year, and a retention that the owner shortens is short again.
        longest constant interval := interval '366 days';
        keys_kept interval;
        events_kept interval;
        limits_kept interval;
        audit_kept interval := (SELECT r.kept FROM retentions r WHERE r.name = 'audit');
        kind record;
        p partitions;
        n partition_plans;
        t timestamptz;
        is_steady bool;
        is_large bool;
        gone int8;
        end_at timestamptz;
        next_end_at timestamptz;
        alien timestamptz;
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.keep_house needs READ COMMITTED, not %', current_setting('transaction_isolation') USING ERRCODE = '25001';
        END IF;
        IF NOT pg_try_advisory_xact_lock(4711, 1) THEN
            RETURN QUERY SELECT 'busy', NULL, 0::int8, NULL, false;
            RETURN;
        END IF;
        PERFORM set_config('synchronous_commit', 'local', true);
        keys_kept := issuing.retention_at_least('keys', key_retention);
        limits_kept := issuing.retention_at_least('limits', limit_window);
        events_kept := greatest(issuing.retention_at_least('events', event_retention), keys_kept);
        t := issuing.believed(now());
        -- Several passes over five minutes agree what the time is, this one included.
        is_steady := (SELECT now() BETWEEN h.steady_from + interval '5 minutes' AND h.passed_at + interval '5 minutes' FROM house_clock h);

        -- A lock that is not there at once is not waited for: everybody would wait behind us.
        PERFORM set_config('lock_timeout', '30ms', true);
        FOR n IN SELECT q.* FROM partition_plans q LOOP
            IF now() NOT BETWEEN n.planned_at AND n.planned_at + interval '10 minutes' OR n.from_at < now() + interval '2 minutes' THEN
                BEGIN
                    PERFORM issuing.plan_end(n.parent);
                    RETURN QUERY SELECT 'failed', n.parent, 0::int8, format('%s_rest could not be checked in time', n.parent), false;
                EXCEPTION
                    WHEN lock_not_available THEN
                        RETURN QUERY SELECT 'postponed', n.parent, 0::int8, SQLERRM, false;
                    WHEN OTHERS THEN
                        RETURN QUERY SELECT 'failed', n.parent, 0::int8, SQLERRM, false;
                END;
            END IF;
        END LOOP;

        FOR kind IN
            SELECT * FROM (VALUES
                ('outbox_events',    least(greatest(events_kept / 6::float8, shortest), longest), events_kept),
                ('idempotency_keys', least(greatest(keys_kept, shortest), longest),               keys_kept),
                ('rate_limit_log',   least(greatest(limits_kept, shortest), longest),             limits_kept),
                ('operator_actions', least(greatest(audit_kept / 12::float8, shortest), longest), audit_kept)) AS v (parent, length, retention)
        LOOP
            BEGIN
                -- One that a clock far ahead made is not what comes next.
                end_at := (SELECT max(q.to_at) FROM partitions q WHERE q.parent = kind.parent AND q.from_at <= now() + kind.length + kind.length);
                SELECT q.* INTO n FROM partition_plans q WHERE q.parent = kind.parent;
                IF n.is_checked THEN
                    PERFORM issuing.partition_add(kind.parent, n.from_at, n.to_at);
                    PERFORM issuing.plan_end(kind.parent);
                    RETURN QUERY SELECT 'created', kind.parent, 0::int8, n.from_at::text, true;
                    RETURN;
                ELSIF n.parent IS NULL AND (end_at IS NULL OR end_at < now() + kind.length)
                      AND (is_steady OR NOT EXISTS (SELECT FROM partitions q WHERE q.parent = kind.parent)) THEN
                    is_large := pg_relation_size((kind.parent || '_rest')::regclass) > 8388608
                                OR kind.parent = 'outbox_events' AND pg_relation_size('outbox_attempts_rest'::regclass) > 8388608;
                    -- After a pause without a worker there are rows of now in the `_rest` partition: the new one begins after them, and where its range is
                    -- to be checked first, after all that is written meanwhile.
                    end_at := greatest(end_at, date_trunc('second', now()) + CASE WHEN is_large THEN interval '15 minutes' ELSE interval '1 minute' END);
                    next_end_at := end_at + kind.length;
                    -- An id of another kind may say a time to come, and where such a row is in `_rest` no partition can be: cut around it.
                    IF kind.parent = 'outbox_events' THEN
                        FOR alien IN
                            SELECT issuing.uuid7_time(e.id) FROM outbox_events_rest e
                            WHERE e.id >= issuing.uuid7_least(end_at) AND e.id < issuing.uuid7_least(next_end_at)
                            ORDER BY e.id
                        LOOP
                            IF alien >= end_at + shortest THEN
                                next_end_at := alien;
                                EXIT;
                            END IF;
                            end_at := alien + interval '1 millisecond';
                        END LOOP;
                    END IF;
                    next_end_at := least(greatest(next_end_at, end_at + shortest),
                                         (SELECT min(q.from_at) FROM partitions q WHERE q.parent = kind.parent AND q.from_at > end_at));
                    IF is_large THEN
                        PERFORM issuing.rest_promise(kind.parent || '_rest', end_at, next_end_at);
                        IF kind.parent = 'outbox_events' THEN
                            PERFORM issuing.rest_promise('outbox_attempts_rest', end_at, next_end_at);
                        END IF;
                        INSERT INTO partition_plans (parent, from_at, to_at, planned_at) VALUES (kind.parent, end_at, next_end_at, now());
                        RETURN QUERY SELECT 'planned', kind.parent, 0::int8, end_at::text, true;
                    ELSE
                        PERFORM issuing.partition_add(kind.parent, end_at, next_end_at);
                        RETURN QUERY SELECT 'created', kind.parent, 0::int8, end_at::text, true;
                    END IF;
                    RETURN;
                END IF;
            EXCEPTION
                WHEN lock_not_available OR check_violation THEN
                    RETURN QUERY SELECT 'postponed', kind.parent, 0::int8, SQLERRM, false;
                    CONTINUE; -- who holds the table now would be in the way of a drop as well
                WHEN OTHERS THEN
                    RETURN QUERY SELECT 'failed', kind.parent, 0::int8, SQLERRM, false;
            END;
            -- One that cannot be dropped does not keep the others.
            FOR p IN
                SELECT q.* FROM partitions q
                WHERE q.parent = kind.parent AND q.settled_at < t - kind.retention
                ORDER BY q.to_at LIMIT 16
            LOOP
                BEGIN
                    gone := issuing.partition_drop(p.name, t - kind.retention);
                    RETURN QUERY SELECT 'dropped', kind.parent, gone, p.name, true;
                    RETURN;
                EXCEPTION
                    WHEN lock_not_available THEN
                        RETURN QUERY SELECT 'postponed', kind.parent, 0::int8, SQLERRM, false;
                        EXIT;
                    WHEN program_limit_exceeded THEN
                        RETURN QUERY SELECT 'postponed', kind.parent, 0::int8, SQLERRM, false;
                    WHEN OTHERS THEN
                        RETURN QUERY SELECT 'failed', kind.parent, 0::int8, format('%s: %s', p.name, SQLERRM), false;
                END;
            END LOOP;
        END LOOP;
    END
    $$;

-- ---- the audit trail ----
-- Partitioned by time, and what is over leaves by DROP. What is there becomes the `_rest` partition as it is: a default partition without siblings holds
-- whatever it likes, so nothing is read. The next pass of a worker makes the first partition beside it, which checks a large `_rest` first without being in
-- the way (keep_house), and deletes from `_rest` what is over, a thousand rows at a time. A row of every kind is kept equally long.
ALTER TABLE issuing.operator_actions RENAME TO operator_actions_rest;
ALTER INDEX issuing.operator_actions_pkey RENAME TO operator_actions_rest_pkey;
ALTER INDEX issuing.operator_actions_event RENAME TO operator_actions_rest_event;
CREATE SEQUENCE issuing.operator_actions_number;
DO $$
DECLARE
    old_sequence text := pg_get_serial_sequence('issuing.operator_actions_rest', 'id');
    next_id int8;
BEGIN
    EXECUTE format('SELECT s.last_value + s.is_called::int FROM %s s', old_sequence) INTO next_id;
    PERFORM setval('issuing.operator_actions_number', next_id, false);
END
$$;
-- An identity cannot be a partition's.
ALTER TABLE issuing.operator_actions_rest ALTER COLUMN id DROP IDENTITY;
ALTER TABLE issuing.operator_actions_rest ALTER COLUMN id SET DEFAULT nextval('issuing.operator_actions_number');
CREATE TABLE issuing.operator_actions (LIKE issuing.operator_actions_rest INCLUDING DEFAULTS) PARTITION BY RANGE (at);
ALTER SEQUENCE issuing.operator_actions_number OWNED BY issuing.operator_actions.id;
CREATE INDEX operator_actions_event ON issuing.operator_actions (event_id);
ALTER TABLE issuing.operator_actions ATTACH PARTITION issuing.operator_actions_rest DEFAULT;
-- What roles were granted on the table, they need on its successor.
DO $$
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT a.privilege_type, a.is_grantable, a.grantee, a.col
        FROM pg_class c
        CROSS JOIN LATERAL (SELECT x.privilege_type, x.is_grantable, x.grantee, NULL::name AS col FROM aclexplode(c.relacl) x
                            UNION ALL
                            SELECT x.privilege_type, x.is_grantable, x.grantee, t.attname
                            FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) x
                            WHERE t.attrelid = c.oid AND NOT t.attisdropped) a
        WHERE c.oid = 'issuing.operator_actions_rest'::regclass AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT %s%s ON issuing.operator_actions TO %s%s', given.privilege_type,
                       CASE WHEN given.col IS NULL THEN '' ELSE format(' (%I)', given.col) END,
                       CASE WHEN given.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(given.grantee)) END,
                       CASE WHEN given.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    -- A view keeps to the table that it was made of.
    IF to_regclass('public.operator_actions') IS NOT NULL THEN
        CREATE OR REPLACE VIEW public.operator_actions AS
            SELECT o.id, o.at, o.event_id, o.actor, o.action, o.reason, o.before, o.after FROM issuing.operator_actions o;
    END IF;
END
$$;

-- ---- triggers of the outbox ----
-- PostgreSQL reads the text of a trigger's WHEN anew in every statement that inserts, and a long one cost an eighth of an acceptance. So the conditions are in
-- the functions, and WHEN says in few words which rows need not be looked at.

-- Rows with a client's key are inserted by issuing.accept, whose own values are in range; other services have no right to give one. What gets past this
-- nevertheless stops no claim (issuing.claim). A payload of theirs holds texts only, of which a byte is six at the most when it is written out.
CREATE OR REPLACE FUNCTION issuing.refuse_row() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        IF octet_length(NEW.payload::text) > 65536 OR octet_length(NEW.user_id) NOT BETWEEN 1 AND 128
           OR NEW.retry_count > 1000000 OR NEW.next_attempt_at = 'infinity'
           OR NOT isfinite(NEW.created_at) OR NOT isfinite(NEW.updated_at) OR NEW.updated_at > NEW.created_at + interval '1000 years'
           OR NOT isfinite(NEW.first_sent_at) OR NOT isfinite(NEW.deferred_since) THEN
            RAISE check_violation USING CONSTRAINT = TG_NAME, TABLE = 'outbox_events', MESSAGE = 'a value of the event is beyond its range';
        END IF;
        RETURN NEW;
    END
    $$;
CREATE OR REPLACE TRIGGER outbox_events_range BEFORE INSERT ON issuing.outbox_events
    FOR EACH ROW WHEN (NEW.idempotency_key IS NULL OR pg_column_size(NEW.payload) > 8192)
    EXECUTE FUNCTION issuing.refuse_row();

-- As in 0005_schema.sql.
CREATE OR REPLACE FUNCTION issuing.reissue_once() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
    DECLARE
        replaced text := lower(NEW.payload ->> 'replaces');
    BEGIN
        IF NEW.event_type <> 'CARD_ISSUE' OR NEW.payload ->> 'kind' IS DISTINCT FROM 'reissue' OR NEW.status = 'REJECTED' THEN
            RETURN NULL;
        END IF;
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
CREATE OR REPLACE TRIGGER outbox_events_reissue AFTER INSERT ON issuing.outbox_events
    FOR EACH ROW WHEN (NEW.payload ->> 'replaces' IS NOT NULL)
    EXECUTE FUNCTION issuing.reissue_once();

-- ---- acceptance ----
-- The locks and the races are explained in 0006_accept.sql, and all that is said there holds here.
--
-- A refused try has a row, within bounds: of one user's at most one a second; where refused tries count (count_attempts), limit_count within a
-- second, or within a tenth of the window where that is shorter: a `piece`. What is exact: the limit of accepted requests, in both modes, because an
-- accepted try always has its row; and the count of all tries that have one. A try that gets no row has limit_count rows of refused ones beside it that
-- are at most a piece older, and only the newest limit_count tries can decide; so it is refused rightly, and the block that it prolongs ends at most a
-- piece too early. frees_at says the time at which it does end.
-- What a call reads of the log: the accepted tries of the window, limit_count at most; and as many refused ones where these count, else no more than the
-- newest of a second, when the call is refused. It cannot be less for a count that is exact: with a limit of a million, a user who has so many in
-- the window costs that many.

-- Not used any more: a try that is recorded already is found among the newest ones of its user.
DROP FUNCTION issuing.is_refused(uuid);
DROP INDEX issuing.rate_limit_log_refused;

-- Of the switches that accept had set, these were for this one function only.
ALTER FUNCTION issuing.is_replaceable(text, text) SET enable_hashjoin = off;
ALTER FUNCTION issuing.is_replaceable(text, text) SET enable_mergejoin = off;

-- Refused tries of a user in the window, oldest first, as many as can decide; only where refused tries count.
CREATE FUNCTION issuing.refused_tries(who text, request uuid, since timestamptz, most int8) RETURNS timestamptz[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN ARRAY(SELECT l.at FROM rate_limit_log l
                     WHERE l.user_id = who AND NOT l.accepted AND l.at > since AND l.request_id <> request ORDER BY l.at LIMIT most);
    END
    $$;

-- Whether a refused try gets a row: `most` of this user have none older than `piece`. A call that runs again after an unknown COMMIT must not count its try
-- twice: it is looked for among the newest `most`; when it is none of these, it decides nothing any more, and may be there again.
CREATE FUNCTION issuing.gets_a_row(who text, request uuid, t timestamptz, piece interval, limit_window interval, most int8) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN (SELECT count(*) FILTER (WHERE n.at > t - piece) < most AND bool_or(n.request_id = request) IS NOT TRUE
                FROM (SELECT l.at, l.request_id FROM rate_limit_log l
                      WHERE l.user_id = who AND NOT l.accepted AND l.at > t - limit_window ORDER BY l.at DESC LIMIT most) n);
    END
    $$;

-- When the next try of a limited user can pass: as soon as the try that blocks longest leaves the window, the limit_count-th newest. Where refused
-- tries count and this one gets a row, it is the newest of them. Never later than one window from now: a try from a time to come counts as one of now, and
-- is made one.
CREATE OR REPLACE FUNCTION issuing.frees_at(who text, request uuid, t timestamptz, limit_count int8, limit_window interval, count_attempts bool)
    RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        counts bool := count_attempts
            AND (SELECT count(*) < limit_count
                 FROM (SELECT FROM rate_limit_log l
                       WHERE l.user_id = who AND NOT l.accepted AND l.at > t - least(limit_window / 10::float8, '1 s') AND l.request_id <> request
                       LIMIT limit_count) n);
        newer int8 := greatest(limit_count - CASE WHEN counts THEN 2 ELSE 1 END, 0);
    BEGIN
        IF EXISTS (SELECT FROM rate_limit_log l WHERE l.user_id = who AND l.accepted AND l.at > t)
           OR count_attempts AND EXISTS (SELECT FROM rate_limit_log l WHERE l.user_id = who AND NOT l.accepted AND l.at > t) THEN
            PERFORM issuing.mend_tries(who);
        END IF;
        IF counts AND limit_count = 1 THEN
            RETURN t + limit_window;
        END IF;
        RETURN limit_window + coalesce(
            (SELECT least(c.at, t) FROM (
                (SELECT l.at FROM rate_limit_log l
                 WHERE l.user_id = who AND l.accepted AND l.at > t - limit_window AND l.request_id <> request ORDER BY l.at DESC LIMIT newer + 1)
                UNION ALL
                (SELECT l.at FROM rate_limit_log l
                 WHERE count_attempts AND l.user_id = who AND NOT l.accepted AND l.at > t - limit_window AND l.request_id <> request
                 ORDER BY l.at DESC LIMIT newer + 1)) c
             ORDER BY c.at DESC OFFSET newer LIMIT 1), t);
    END
    $$;

CREATE OR REPLACE FUNCTION issuing.accept(
    ids uuid[], user_ids text[], keys text[], fingerprints bytea[], payloads text[], traceparents text[],
    limit_count int8, limit_window interval, count_attempts bool, key_retention interval)
RETURNS TABLE (
    verdict    text,        -- accepted, replayed, reused, not_replaceable, limited
    event_id   uuid,        -- of the accepted or replayed event
    created_at timestamptz, -- of that event
    used       int8,        -- counted tries in the window, limit_count of them at most, and this one where it counts
    oldest_at  timestamptz, -- the oldest of them
    frees_at   timestamptz, -- limited: when the next try can pass
    decided_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET lock_timeout = '2s'
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.accept needs READ COMMITTED, not %', current_setting('transaction_isolation') USING ERRCODE = '25001';
    END IF;

    IF cardinality(user_ids) = 1 AND array_lower(user_ids, 1) = 1 THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(user_ids[1], 4711));
    ELSE
        -- Two of one user would be judged by one snapshot, and both pass.
        IF (SELECT count(DISTINCT u.user_id) < count(*) FROM unnest(user_ids) AS u (user_id)) THEN
            RAISE EXCEPTION 'a batch of issuing.accept holds a user at most once' USING ERRCODE = '22023';
        END IF;
        PERFORM pg_advisory_xact_lock(l.h)
        FROM (SELECT hashtextextended(u.user_id, 4711) AS h FROM unnest(user_ids) AS u (user_id) ORDER BY 1 OFFSET 0) AS l;
    END IF;

    t := clock_timestamp();

    RETURN QUERY
    WITH judged AS MATERIALIZED (
        SELECT a.*, k.event_id AS known_id, k.created_at AS known_at,
            least(w.accepted + coalesce(cardinality(w.refused), 0), limit_count) AS counted, least(w.oldest, w.refused[1]) AS oldest,
            CASE
                WHEN k.event_id = a.id THEN 'accepted'
                WHEN k.fingerprint = a.fingerprint THEN 'replayed'
                WHEN k.event_id IS NOT NULL THEN 'reused'
                WHEN a.payload ->> 'replaces' IS NOT NULL AND NOT issuing.is_replaceable(a.user_id, a.payload ->> 'replaces') THEN 'not_replaceable'
                WHEN w.accepted + coalesce(cardinality(w.refused), 0) >= limit_count THEN 'limited'
                ELSE 'accepted'
            END AS verdict
        FROM unnest(ids, user_ids, keys, fingerprints, payloads::jsonb[], traceparents)
            WITH ORDINALITY AS a (id, user_id, key, fingerprint, payload, traceparent, n)
        LEFT JOIN LATERAL (
            SELECT n.* FROM (
                SELECT k.event_id, k.created_at, k.fingerprint FROM idempotency_keys k
                WHERE k.user_id = a.user_id AND k.key = a.key
                ORDER BY k.created_at DESC
                LIMIT 1) n
            WHERE n.created_at >= t - key_retention OR NOT issuing.key_is_over(n.event_id, n.created_at, t, key_retention)
        ) k ON true
        CROSS JOIN LATERAL (
            -- Oldest first, and no more than decide: with the limit reached nothing depends on how far it is exceeded.
            SELECT count(*) AS accepted, min(c.at) AS oldest,
                   CASE WHEN count_attempts THEN issuing.refused_tries(a.user_id, a.id, t - limit_window, limit_count) END AS refused
            FROM (SELECT l.at FROM rate_limit_log l
                  WHERE l.user_id = a.user_id AND l.accepted AND l.at > t - limit_window AND l.request_id <> a.id ORDER BY l.at LIMIT limit_count) c
        ) w
    ), new_keys AS (
        INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
        SELECT j.id, t, j.user_id, j.key, j.fingerprint FROM judged j WHERE j.verdict = 'accepted' AND j.known_id IS NULL
    ), new_tries AS (
        INSERT INTO rate_limit_log (at, request_id, accepted, user_id)
        SELECT t, j.id, j.verdict = 'accepted', j.user_id FROM judged j
        WHERE j.known_id IS NULL AND (j.verdict = 'accepted' OR j.verdict = 'limited'
              AND CASE WHEN count_attempts THEN issuing.gets_a_row(j.user_id, j.id, t, least(limit_window / 10::float8, '1 s'), limit_window, limit_count)
                       ELSE issuing.gets_a_row(j.user_id, j.id, t, '1 s', '1 s', 1) END)
    ), new_events AS (
        INSERT INTO outbox_events (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload, traceparent)
        SELECT j.id, t, t, t, j.user_id, j.key, j.payload, j.traceparent FROM judged j WHERE j.verdict = 'accepted' AND j.known_id IS NULL
    )
    SELECT j.verdict,
           coalesce(j.known_id, j.id),
           coalesce(j.known_at, t),
           j.counted + CASE WHEN j.verdict = 'accepted' OR j.verdict = 'limited' AND count_attempts THEN 1 ELSE 0 END,
           CASE WHEN j.oldest IS NOT NULL OR j.verdict = 'accepted' OR j.verdict = 'limited' AND count_attempts THEN least(j.oldest, t) END,
           CASE WHEN j.verdict = 'limited' THEN issuing.frees_at(j.user_id, j.id, t, limit_count, limit_window, count_attempts) END,
           t
    -- In the order of the arrays, which is that of `judged`: one scan of what was kept, and no parallel plan in a statement that writes. A sort that has
    -- nothing to do costs as much as a trigger.
    FROM judged j;

    IF pg_current_xact_id_if_assigned() IS NULL THEN
        PERFORM pg_logical_emit_message(true, 'issuing', '');
    END IF;
END
$$;

-- ---- card numbers that are shown ----

-- What a program may ask for at most, as the owner has set it: a program's configuration can make it less, never more.
CREATE TABLE issuing.ceilings (
    name text PRIMARY KEY CHECK (name IN ('reveals')), -- reveals: card numbers shown to one user within a minute; 0 = none
    most int8 NOT NULL CHECK (most BETWEEN 0 AND 1000)
);
INSERT INTO issuing.ceilings (name, most) VALUES ('reveals', 60);

CREATE FUNCTION issuing.set_ceiling(name text, most int8) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
    AS $$ UPDATE ceilings c SET most = $2 WHERE c.name = $1 $$;

-- Whose numbers were shown lately: one row a user, which is written in place. keep_rows removes what nobody has touched for an hour.
CREATE TABLE issuing.number_reveals (
    user_id     text PRIMARY KEY,
    last_at     timestamptz NOT NULL,  -- when the row was written
    refused_at  timestamptz,           -- the last refusal that has a row in operator_actions
    revealed_at timestamptz[] NOT NULL -- within the minute before last_at
) WITH (fillfactor = 50);

-- The encrypted number of one card of one user, and the audit row, in one transaction: neither is there without the other. A record whose key is not among
-- `openable`, the keys that the caller can open, is not given away, counts nothing and leaves no row: then number_record is NULL and key_id says which key it
-- needs. No row = no such card of this user, no number stored, or none is to be shown at all. The line in the server's log stays when the caller undoes
-- its transaction.
-- `most` numbers are shown to a user within a minute, and never more than the ceiling; then only frees_in_ms is there: how long until the next one. The first
-- refusal of a minute has an audit row; the others write nothing. It is exact as issuing.accept is: the lock of the user comes first, in its own
-- statement; the next one sees all that the lock's former holders committed (READ COMMITTED only); the clock is read after the lock. A time still
-- to come, of a clock that was ahead, counts as now.
CREATE FUNCTION issuing.reveal_number(card uuid, holder text, openable int8[], most int8)
RETURNS TABLE (id uuid, exp_month int2, exp_year int2, number_record bytea, key_id int8, frees_in_ms int8)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET lock_timeout = '2s'
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    allowed int8;
    found record;
    before number_reveals;
    recent timestamptz[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.reveal_number needs READ COMMITTED, not %', current_setting('transaction_isolation') USING ERRCODE = '25001';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(holder, 4712));
    t := clock_timestamp();

    allowed := coalesce((SELECT least(c.most, reveal_number.most) FROM ceilings c WHERE c.name = 'reveals'), 0);
    SELECT c.id, c.request_id, c.exp_month, c.exp_year, c.number_record, issuing.key_id_of(c.number_record) AS key_id INTO found
    FROM cards c
    WHERE c.id = card AND c.user_id = holder AND c.number_record IS NOT NULL
      AND (c.status = 'cancelled' OR NOT EXISTS (SELECT FROM outbox_events e WHERE e.id = c.request_id AND e.status <> 'COMPLETED'));
    IF found.id IS NULL OR allowed < 1 THEN
        RETURN;
    END IF;
    IF (found.key_id = ANY (openable)) IS NOT TRUE THEN
        RETURN QUERY SELECT found.id, found.exp_month, found.exp_year, NULL::bytea, found.key_id, NULL::int8;
        RETURN;
    END IF;

    SELECT r.* INTO before FROM number_reveals r WHERE r.user_id = holder;
    recent := ARRAY(SELECT least(a.at, t) FROM unnest(before.revealed_at) AS a (at) WHERE a.at > t - interval '1 minute' ORDER BY 1);
    IF cardinality(recent) >= allowed THEN
        IF before.last_at > t OR (before.refused_at > t - interval '1 minute') IS NOT TRUE THEN
            UPDATE number_reveals r SET last_at = t, refused_at = t, revealed_at = recent WHERE r.user_id = holder;
            INSERT INTO operator_actions (event_id, actor, action, after)
            VALUES (found.request_id, holder, 'number_refused', jsonb_build_object('card_id', found.id, 'within_a_minute', allowed));
        END IF;
        RETURN QUERY SELECT found.id, NULL::int2, NULL::int2, NULL::bytea, NULL::int8,
            greatest(ceil(extract(epoch FROM recent[cardinality(recent) - allowed + 1] + interval '1 minute' - t) * 1000), 1)::int8;
        RETURN;
    END IF;
    INSERT INTO number_reveals AS r (user_id, last_at, revealed_at) VALUES (holder, t, recent || t)
    ON CONFLICT (user_id) DO UPDATE SET last_at = excluded.last_at, revealed_at = excluded.revealed_at;
    INSERT INTO operator_actions (event_id, actor, action, after)
    VALUES (found.request_id, holder, 'number_revealed', jsonb_build_object('card_id', found.id));
    RAISE LOG 'issuing: the number of card % is revealed to %', found.id, session_user;
    RETURN QUERY SELECT found.id, found.exp_month, found.exp_year, found.number_record, found.key_id, NULL::int8;
END
$$;

-- The same for programs of the release before, over connections that are still open.
CREATE OR REPLACE FUNCTION issuing.reveal_number(card uuid, holder text, openable int8[])
RETURNS TABLE (id uuid, exp_month int2, exp_year int2, number_record bytea, key_id int8)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    found record;
BEGIN
    SELECT n.* INTO found FROM issuing.reveal_number(card, holder, openable, NULL) n;
    IF found.frees_in_ms IS NOT NULL THEN
        RAISE EXCEPTION 'too many numbers were shown to this user' USING ERRCODE = '53400';
    END IF;
    RETURN QUERY SELECT found.id, found.exp_month, found.exp_year, found.number_record, found.key_id WHERE found.id IS NOT NULL;
END
$$;

-- ---- who may what ----

DO $$
DECLARE
    f regprocedure;
BEGIN
    FOREACH f IN ARRAY ARRAY['issuing.set_ceiling(text, int8)', 'issuing.reveal_number(uuid, text, int8[], int8)']::regprocedure[] LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
    END LOOP;
END
$$;
