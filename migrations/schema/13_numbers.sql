-- Card numbers: a number leaves the database only through ask_reveal and take_number, which write the audit row;
-- records are sealed again with another key without anybody but the owner reading them.

-- When a card was closed. It does not depend on the card's other times, which a worker may write. A clock that is
-- behind makes none older than the last pass of the housekeeping.
CREATE OR REPLACE FUNCTION issuing.note_closed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    NEW.closed_at := CASE WHEN NEW.status IN ('replaced', 'cancelled')
        -- guard: nobody makes a card closed long ago
        THEN coalesce(OLD.closed_at, greatest(now(), (SELECT h.clock_at FROM housekeeping_clock h))) END;
    RETURN NEW;
END
$$;

-- No row: the user has no such card with a number. frees_in_ms: too many numbers were shown to this user, and the next
-- one may be then. No ticket otherwise: the record is sealed with key_id, which is not among `openable`; then nothing
-- is counted or written. is_erased: there was a number. `most` in a minute, at most the database's ceiling. The lock of
-- the user comes first; it is tried, and where another session has it, ISBSY: the caller asks again.
CREATE OR REPLACE FUNCTION issuing.ask_reveal(card uuid, holder text, openable int8[], most int8)
RETURNS TABLE (id uuid, ticket uuid, key_id int8, frees_in_ms int8, is_erased bool)
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
        RAISE EXCEPTION 'issuing.ask_reveal needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;
    -- guard: the lock of the user comes before a number is counted
    IF (SELECT pg_try_advisory_xact_lock(issuing.reveal_lock(holder, s.salt)) FROM lock_salt s) IS NOT TRUE THEN
        RAISE EXCEPTION 'another session holds the lock of this user''s reveals' USING ERRCODE = 'ISBSY';
    END IF;
    t := clock_timestamp();

    -- guard: an api reveals no more than the ceiling
    allowed := coalesce((SELECT least(c.most, ask_reveal.most) FROM ceilings c WHERE c.name = 'reveals'), 0);
    SELECT c.id, c.request_id, issuing.key_id_of(c.number_record) AS key_id, c.number_record IS NULL AS is_erased
    INTO found
    FROM cards c
    -- guard: a number is shown to its user only
    WHERE c.id = card AND c.user_id = holder AND (c.number_record IS NOT NULL OR c.number_erased_at IS NOT NULL)
      AND (c.status = 'cancelled' OR NOT EXISTS (SELECT FROM outbox_events e
                                                 WHERE e.id = c.request_id AND e.status <> 'COMPLETED'));
    IF found.id IS NULL OR allowed < 1 THEN
        RETURN;
    END IF;
    -- guard: no audit row for what is not revealed
    IF (found.key_id = ANY (openable)) IS NOT TRUE THEN
        -- guard: a record that cannot be opened stays in the database
        RETURN QUERY SELECT found.id, NULL::uuid, found.key_id, NULL::int8, found.is_erased;
        RETURN;
    END IF;

    SELECT r.* INTO before FROM number_reveals r WHERE r.user_id = holder;
    -- guard: a reveal of a clock that was ahead counts as one of now
    recent := ARRAY(SELECT least(a.at, t) FROM unnest(before.revealed_at) AS a (at)
                    WHERE a.at > t - interval '1 minute' ORDER BY 1);
    IF cardinality(recent) >= allowed THEN
        -- guard: refused reveals are one row a minute
        IF before.last_at > t OR (before.refused_at > t - interval '1 minute') IS NOT TRUE THEN
            UPDATE number_reveals r SET last_at = t, refused_at = t, revealed_at = recent WHERE r.user_id = holder;
            INSERT INTO operator_actions (event_id, actor, action, after)
            VALUES (found.request_id, holder, 'number_refused',
                    jsonb_build_object('card_id', found.id, 'within_a_minute', allowed));
        END IF;
        RETURN QUERY SELECT found.id, NULL::uuid, NULL::int8,
            greatest(ceil(extract(epoch FROM recent[cardinality(recent) - allowed + 1] + interval '1 minute' - t)
                          * 1000), 1)::int8, false;
        RETURN;
    END IF;
    INSERT INTO number_reveals AS r (user_id, last_at, revealed_at) VALUES (holder, t, recent || t)
    ON CONFLICT (user_id) DO UPDATE SET last_at = excluded.last_at, revealed_at = excluded.revealed_at;
    INSERT INTO operator_actions (event_id, actor, action, after)
    VALUES (found.request_id, holder, 'number_revealed', jsonb_build_object('card_id', found.id));
    -- Removes tickets that nobody has taken, after a crash between the two calls.
    DELETE FROM reveal_tickets k
    WHERE k.id IN (SELECT o.id FROM reveal_tickets o
                   -- guard: tickets that nobody took go
                   WHERE o.made_at < t - interval '1 minute' OR o.made_at > t + interval '1 minute'
                   LIMIT 100 FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    INSERT INTO reveal_tickets AS k (made_at, user_id, card_id) VALUES (t, holder, found.id)
    RETURNING k.card_id, k.id, found.key_id, NULL::int8, false;
END
$$;

-- No row: there is no such ticket, it is older than ten seconds, it was taken, or the transaction that asked for it is
-- this one. A row without a record: this server's disk may not have the audit row yet, because the caller has set
-- synchronous_commit after ask_reveal, or because other sessions are writing. The caller commits and asks again: that
-- COMMIT also flushes what was written before. A caller that takes it back with a ROLLBACK may take it again in these
-- seconds, and gets the same number, whose audit row is committed.
CREATE OR REPLACE FUNCTION issuing.take_number(ticket uuid)
RETURNS TABLE (id uuid, exp_month int2, exp_year int2, number_record bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    k reveal_tickets;
    is_good bool;
    reached pg_lsn;
BEGIN
    -- guard: a number waits for the commit of its audit row
    SELECT d.* INTO k FROM reveal_tickets d WHERE d.id = ticket AND d.made_by <> pg_current_xact_id();
    -- guard: a ticket is good for seconds
    is_good := clock_timestamp() - k.made_at BETWEEN interval '-10 s' AND interval '10 s';
    reached := coalesce(k.wal_end, pg_current_wal_insert_lsn()); -- the ticket was seen before: its COMMIT is written
    -- guard: a number waits until the disk has its audit row
    IF is_good AND pg_current_wal_flush_lsn() < reached THEN
        UPDATE reveal_tickets d SET wal_end = reached WHERE d.id = k.id;
        RETURN QUERY SELECT k.card_id, NULL::int2, NULL::int2, NULL::bytea;
        RETURN;
    END IF;
    -- guard: a ticket is taken once
    DELETE FROM reveal_tickets d WHERE d.id = k.id;
    IF NOT FOUND OR NOT is_good THEN
        RETURN;
    END IF;
    RAISE LOG 'issuing: the number of card % is revealed to %', k.card_id, session_user;
    RETURN QUERY SELECT c.id, c.exp_month, c.exp_year, c.number_record FROM cards c
                 WHERE c.user_id = k.user_id AND c.id = k.card_id AND c.number_record IS NOT NULL;
END
$$;

-- The key that a record is sealed with (common/core/keyring.h: version, key id, nonce, ...); NULL = no form that is
-- known.
CREATE OR REPLACE FUNCTION issuing.key_id_of(record bytea) RETURNS int8
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT CASE WHEN octet_length(record) BETWEEN 45 AND 52 AND get_byte(record, 0) = 1
                THEN (get_byte(record, 1)::int8 << 24) + (get_byte(record, 2)::int8 << 16) + (get_byte(record,
                    3)::int8 << 8) + get_byte(record, 4) END
$$;

-- How many records each key holds; counts only. key_id NULL = records of no known form. Reads all cards once.
CREATE OR REPLACE FUNCTION issuing.number_keys() RETURNS TABLE (key_id int8, records int8)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT issuing.key_id_of(h.head || decode(repeat('00', 40), 'hex')), sum(h.records)::int8
    FROM (SELECT CASE WHEN octet_length(c.number_record) BETWEEN 45 AND 52 THEN substring(c.number_record
        FROM 1 FOR 5) END AS head, count(*) AS records
          FROM cards c WHERE c.number_record IS NOT NULL GROUP BY 1) h
    GROUP BY 1
    ORDER BY 1
$$;

-- One step of sealing again, for the owner of the tables: of the next `most` cards behind (after_user, after_card), in
-- the order of the primary key, those that are not sealed with `active`. Locked until the transaction ends; what
-- somebody else has locked is left out. The last row has no id and carries the last card that was looked at (NULL =
-- there are no more) and how many were left out.
CREATE OR REPLACE FUNCTION issuing.rewrap_take(after_user text, after_card uuid, active int8, most int8)
RETURNS TABLE (id uuid, user_id text, number_record bytea, looked_at_user text, looked_at_card uuid, left_out int8)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    users text[];
    ids uuid[];
    wanted int8;
    taken int8;
BEGIN
    SELECT array_agg(c.user_id), array_agg(c.id), count(*) FILTER (WHERE c.is_wanted) INTO users, ids, wanted
    FROM (SELECT n.user_id, n.id, n.number_record IS NOT NULL
                 AND issuing.key_id_of(n.number_record) IS DISTINCT FROM active AS is_wanted
          FROM cards n
          WHERE (n.user_id, n.id) > (coalesce(after_user, ''),
                                     coalesce(after_card, '00000000-0000-0000-0000-000000000000'))
          ORDER BY n.user_id, n.id LIMIT most) c;
    RETURN QUERY
        SELECT c.id, c.user_id, c.number_record, NULL::text, NULL::uuid, NULL::int8
        FROM unnest(users, ids) AS a (user_id, id) JOIN cards c ON c.user_id = a.user_id AND c.id = a.id
        WHERE c.number_record IS NOT NULL AND issuing.key_id_of(c.number_record) IS DISTINCT FROM active
        ORDER BY c.user_id, c.id
        FOR UPDATE OF c SKIP LOCKED;
    GET DIAGNOSTICS taken = ROW_COUNT;
    RETURN QUERY SELECT NULL::uuid, NULL::text, NULL::bytea, users[cardinality(users)], ids[cardinality(ids)],
                        greatest(wanted - taken, 0);
END
$$;

-- Stores what was sealed again, each only over the record that was opened, and writes the audit row. Returns how many
-- were stored.
CREATE OR REPLACE FUNCTION issuing.rewrap_put(ids uuid[], user_ids text[], old_records bytea[], new_records bytea[],
    who text) RETURNS int8
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    stored int8;
BEGIN
    WITH sealed AS (
        UPDATE cards c SET number_record = a.new_record
        FROM unnest(ids, user_ids, old_records, new_records) AS a (id, user_id, old_record, new_record)
        -- guard: a record is replaced only by what was made of it
        WHERE c.user_id = a.user_id AND c.id = a.id AND c.number_record = a.old_record
        RETURNING a.old_record, a.new_record
    ), counted AS (
        SELECT issuing.key_id_of(s.old_record) AS old_key, issuing.key_id_of(s.new_record) AS new_key,
            count(*) AS records FROM sealed s GROUP BY 1, 2
    ), noted AS (
        INSERT INTO operator_actions (actor, action, before, after)
        SELECT who, 'number_rewrapped', jsonb_build_object('key_id', n.old_key), jsonb_build_object('key_id',
            n.new_key, 'records', n.records)
        FROM counted n
    )
    SELECT coalesce(sum(n.records), 0)::int8 INTO stored FROM counted n;
    RETURN stored;
END
$$;

REVOKE ALL ON FUNCTION issuing.note_closed, issuing.ask_reveal, issuing.take_number,
    issuing.number_keys, issuing.rewrap_take, issuing.rewrap_put FROM PUBLIC;
