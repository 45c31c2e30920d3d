-- Why: a card number leaves the database only through a function that writes the audit row; records are sealed again with another key without
-- anybody but the owner reading them; which key holds how many records can be counted by operators. Locks: none that last.
-- Older programs: an older api cannot show numbers any more (503); everything else of theirs goes on.

-- The key that a record is sealed with (common/keyring.h: version, key id, nonce, ...); NULL = no form that is known.
CREATE FUNCTION issuing.key_id_of(record bytea) RETURNS int8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT CASE WHEN octet_length(record) BETWEEN 45 AND 52 AND get_byte(record, 0) = 1
                    THEN (get_byte(record, 1)::int8 << 24) + (get_byte(record, 2)::int8 << 16) + (get_byte(record, 3)::int8 << 8) + get_byte(record, 4) END
    $$;

-- The encrypted number of one card of one user, and the audit row, in one statement: neither is there without the other. A record whose key is not among
-- `openable`, the keys that the caller can open, is not given away, and leaves no row: then number_record is NULL and key_id says which key it needs.
-- No row = no such card of this user, or no number stored. The line in the server's log stays when the caller undoes its transaction.
CREATE FUNCTION issuing.reveal_number(card uuid, holder text, openable int8[])
RETURNS TABLE (id uuid, exp_month int2, exp_year int2, number_record bytea, key_id int8)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    found record;
BEGIN
    FOR found IN
        WITH shown AS MATERIALIZED (
            SELECT c.id, c.request_id, c.user_id, c.exp_month, c.exp_year, c.number_record, issuing.key_id_of(c.number_record) AS key_id
            FROM cards c
            WHERE c.id = card AND c.user_id = holder AND c.number_record IS NOT NULL
              AND (c.status = 'cancelled' OR NOT EXISTS (SELECT FROM outbox_events e WHERE e.id = c.request_id AND e.status <> 'COMPLETED'))
        ), noted AS (
            INSERT INTO operator_actions (event_id, actor, action, after)
            SELECT s.request_id, s.user_id, 'number_revealed', jsonb_build_object('card_id', s.id) FROM shown s WHERE s.key_id = ANY (openable)
        )
        SELECT s.*, coalesce(s.key_id = ANY (openable), false) AS is_openable FROM shown s
    LOOP
        IF found.is_openable THEN
            RAISE LOG 'issuing: the number of card % is revealed to %', found.id, session_user;
        END IF;
        RETURN QUERY SELECT found.id, found.exp_month, found.exp_year, CASE WHEN found.is_openable THEN found.number_record END, found.key_id;
    END LOOP;
END
$$;

-- How many records each key holds; counts only. key_id NULL = records of no known form. Reads all cards once.
CREATE FUNCTION issuing.number_keys() RETURNS TABLE (key_id int8, records int8)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT issuing.key_id_of(h.head || decode(repeat('00', 40), 'hex')), sum(h.records)::int8
        FROM (SELECT CASE WHEN octet_length(c.number_record) BETWEEN 45 AND 52 THEN substring(c.number_record FROM 1 FOR 5) END AS head, count(*) AS records
              FROM cards c WHERE c.number_record IS NOT NULL GROUP BY 1) h
        GROUP BY 1
        ORDER BY 1
    $$;

-- One step of sealing again, for the owner of the tables: of the next `most` cards behind (after_user, after_card), in the order of the primary key, those
-- that are not sealed with `active`. Locked until the transaction ends; what somebody else has locked is left out. The last row has no id and carries
-- the last card that was looked at (NULL = there are no more) and how many were left out.
CREATE FUNCTION issuing.rewrap_take(after_user text, after_card uuid, active int8, most int8)
RETURNS TABLE (id uuid, user_id text, number_record bytea, looked_at_user text, looked_at_card uuid, left_out int8)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    until_user text;
    until_card uuid;
    wanted int8;
    taken int8;
BEGIN
    SELECT w.user_id, w.id INTO until_user, until_card
    FROM (SELECT c.user_id, c.id FROM cards c
          WHERE (c.user_id, c.id) > (coalesce(after_user, ''), coalesce(after_card, '00000000-0000-0000-0000-000000000000'))
          ORDER BY c.user_id, c.id LIMIT most) w
    ORDER BY w.user_id DESC, w.id DESC LIMIT 1;
    IF until_user IS NOT NULL THEN
        SELECT count(*) INTO wanted FROM cards c
        WHERE (c.user_id, c.id) > (coalesce(after_user, ''), coalesce(after_card, '00000000-0000-0000-0000-000000000000'))
          AND (c.user_id, c.id) <= (until_user, until_card)
          AND c.number_record IS NOT NULL AND issuing.key_id_of(c.number_record) IS DISTINCT FROM active;
        RETURN QUERY
            SELECT c.id, c.user_id, c.number_record, NULL::text, NULL::uuid, NULL::int8 FROM cards c
            WHERE (c.user_id, c.id) > (coalesce(after_user, ''), coalesce(after_card, '00000000-0000-0000-0000-000000000000'))
              AND (c.user_id, c.id) <= (until_user, until_card)
              AND c.number_record IS NOT NULL AND issuing.key_id_of(c.number_record) IS DISTINCT FROM active
            ORDER BY c.user_id, c.id
            FOR UPDATE SKIP LOCKED;
        GET DIAGNOSTICS taken = ROW_COUNT;
    END IF;
    RETURN QUERY SELECT NULL::uuid, NULL::text, NULL::bytea, until_user, until_card, greatest(coalesce(wanted, 0) - coalesce(taken, 0), 0);
END
$$;

-- Stores what was sealed again, each only over the record that was opened, and writes the audit row. Returns how many were stored.
CREATE FUNCTION issuing.rewrap_put(ids uuid[], user_ids text[], old_records bytea[], new_records bytea[], who text) RETURNS int8
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
        WHERE c.user_id = a.user_id AND c.id = a.id AND c.number_record = a.old_record
        RETURNING a.old_record, a.new_record
    ), counted AS (
        SELECT issuing.key_id_of(s.old_record) AS old_key, issuing.key_id_of(s.new_record) AS new_key, count(*) AS records FROM sealed s GROUP BY 1, 2
    ), noted AS (
        INSERT INTO operator_actions (actor, action, before, after)
        SELECT who, 'number_rewrapped', jsonb_build_object('key_id', n.old_key), jsonb_build_object('key_id', n.new_key, 'records', n.records)
        FROM counted n
    )
    SELECT coalesce(sum(n.records), 0)::int8 INTO stored FROM counted n;
    RETURN stored;
END
$$;

REVOKE ALL ON FUNCTION issuing.reveal_number(uuid, text, int8[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION issuing.number_keys() FROM PUBLIC;
REVOKE ALL ON FUNCTION issuing.rewrap_take(text, uuid, int8, int8) FROM PUBLIC;
REVOKE ALL ON FUNCTION issuing.rewrap_put(uuid[], text[], bytea[], bytea[], text) FROM PUBLIC;
-- A trigger of somebody else's table could call it as well.
REVOKE ALL ON FUNCTION issuing.reissue_once() FROM PUBLIC;
