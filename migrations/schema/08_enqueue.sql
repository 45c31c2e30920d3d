-- How other services send events, and what the table of events takes.

-- A row of a foreign role, beyond what the claim of all others can take. A trigger and not a CHECK: a CHECK, also one
-- that is NOT VALID, is looked at again by every UPDATE, so a row beyond it that is there already would itself stop
-- the claim of all others, and the drop of its partition. Rows of the owner's functions are looked at by these, or are
-- as they were found (housekeeping moves such rows).
CREATE OR REPLACE FUNCTION issuing.refuse_row() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    why text;
BEGIN
    IF (SELECT pg_get_userbyid(c.relowner) FROM pg_class c WHERE c.oid = TG_RELID) = CURRENT_USER THEN
        RETURN NEW;
    END IF;
    -- guard: only our own functions make the end of a card request
    why := CASE WHEN own_type(NEW.event_type) IS NOT NULL
                THEN format('event_type %s is only made by %s', NEW.event_type, own_type(NEW.event_type))
                ELSE why_unusable(NEW.event_type, NEW.user_id, NEW.payload) END;
    IF why IS NULL THEN
        why := CASE
            WHEN NEW.retry_count > 1000000
            THEN format('retry_count is %s, and may be 1000000', NEW.retry_count)
            WHEN NEW.next_attempt_at = 'infinity' THEN 'next_attempt_at is infinity, and must be a time that comes'
            WHEN NOT isfinite(NEW.created_at) OR NOT isfinite(NEW.updated_at) OR NOT isfinite(NEW.first_sent_at)
                 OR NOT isfinite(NEW.deferred_since)
            THEN 'created_at, updated_at, first_sent_at and deferred_since must be finite'
            WHEN NEW.updated_at > NEW.created_at + interval '1000 years'
            THEN format('updated_at is %s, and may be 1000 years after created_at', NEW.updated_at) END;
    END IF;
    -- guard: a value beyond its range is refused
    IF why IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'outbox_events_range', TABLE = 'outbox_events', MESSAGE = why;
    END IF;
    RETURN NEW;
END
$$;

-- One live reissue per card: a card request of kind reissue is noted as that of its card, and nothing else is. A
-- REJECTED event, also one that housekeeping moves to another partition, is not noted; nor is one whose payload cannot
-- be used. A card that is neither active nor frozen has been replaced: it gets no other reissue when the event is long
-- gone.
CREATE OR REPLACE FUNCTION issuing.reissue_once() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    replaced text := lower(NEW.payload ->> 'replaces');
BEGIN
    -- guard: only a card reissue is noted as the reissue of its card
    IF NEW.event_type <> 'CARD_ISSUE' OR NEW.payload ->> 'kind' IS DISTINCT FROM 'reissue'
       -- guard: a rejected reissue is not noted
       OR NEW.status = 'REJECTED' THEN
        RETURN NULL;
    END IF;
    INSERT INTO card_reissues (event_id, user_id, card_id) VALUES (NEW.id, NEW.user_id, replaced)
    ON CONFLICT (user_id, card_id) DO NOTHING;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    -- Another event has the row. The lock on the row comes first, in its own statement: only a snapshot taken after it
    -- sees the event of the transaction that was waited for.
    -- guard: the event that replaces a card is looked up after the lock on its row
    PERFORM FROM card_reissues r WHERE r.user_id = NEW.user_id AND r.card_id = replaced FOR UPDATE;
    UPDATE card_reissues r SET event_id = NEW.id
    WHERE r.user_id = NEW.user_id AND r.card_id = replaced
      AND (r.event_id = NEW.id
           OR NOT EXISTS (SELECT FROM outbox_events e
                          WHERE e.id = r.event_id AND e.status <> 'REJECTED'
                            -- guard: a reissue whose payload cannot be used leaves its card to another
                            AND e.reason_code IS DISTINCT FROM 'payload_invalid')
              AND NOT EXISTS (SELECT FROM cards c
                              WHERE c.user_id = NEW.user_id AND c.id::text = replaced
                                AND c.status NOT IN ('active', 'frozen')));
    IF NOT FOUND THEN
        RAISE unique_violation USING CONSTRAINT = 'outbox_events_reissue', TABLE = 'outbox_events',
            MESSAGE = 'there is a live reissue of this card already';
    END IF;
    RETURN NULL;
END
$$;

-- One event that was checked, with an id that was made for it; returns the id of the event that there is. A key counts
-- for as long as its event is there.
CREATE OR REPLACE FUNCTION issuing.put_event(new_id uuid, of_type text, of_user text, body jsonb, of_key text,
    run_at timestamptz)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    held uuid;
    found_user text;
    found_body jsonb;
BEGIN
    WHILE of_key IS NOT NULL LOOP
        INSERT INTO event_keys (event_type, key, event_id) VALUES (of_type, of_key, new_id) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        SELECT k.event_id, e.user_id, e.payload INTO held, found_user, found_body
        FROM event_keys k LEFT JOIN outbox_events e ON e.id = k.event_id
        WHERE k.event_type = of_type AND k.key = of_key;
        IF found_user = of_user AND found_body = body THEN
            RETURN held;
        -- guard: a key belongs to one user and payload
        ELSIF found_user IS NOT NULL THEN
            RAISE EXCEPTION 'the key % of type % was used for another event', quote_literal(of_key), of_type
                USING ERRCODE = 'IS422', DETAIL = format('event %s has another user or payload', held);
        END IF;
        -- The event is gone, or forget_keys has just removed the row.
        UPDATE event_keys k SET event_id = new_id, created_at = clock_timestamp()
        WHERE k.event_type = of_type AND k.key = of_key AND k.event_id = held;
        EXIT WHEN FOUND;
    END LOOP;
    -- What is due in the past would lie behind the bookmarks of the claims.
    INSERT INTO outbox_events (id, event_type, user_id, payload, run_at, next_attempt_at)
    -- guard: what is due in the past is not put behind the claims
    VALUES (new_id, of_type, of_user, body, CASE WHEN run_at > clock_timestamp() THEN run_at END,
            greatest(run_at, clock_timestamp()));
    RETURN new_id;
END
$$;

-- The time for the next id of an event of these users, in microseconds since 1970: now. Of an ordered type behind all
-- of theirs that are open or FAILED, also where the clock was set back since these were made. The range of a plan of
-- the housekeeping takes no event. A sender does not take the plan back: it would keep the table locked until its own
-- transaction ends. The api and the workers do, before the range begins or as soon as one of them is there again.
CREATE OR REPLACE FUNCTION issuing.next_id_us(of_type text, users text[]) RETURNS int8
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    us int8 := (date_part('epoch', clock_timestamp()) * 1000000)::int8;
BEGIN
    -- guard: a step of the clock changes no order
    IF EXISTS (SELECT FROM routes r WHERE r.event_type = of_type AND r.is_ordered) THEN
        us := greatest(us, (SELECT max(uuid7_us(n.id)) + 1
                            FROM (SELECT DISTINCT a.id FROM unnest(users) AS a (id)) u
                            CROSS JOIN LATERAL (SELECT o.id FROM outbox_events o
                                                WHERE o.event_type = of_type AND o.event_type <> 'CARD_ISSUE'
                                                  AND o.user_id = u.id
                                                  AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL)
                                                ORDER BY o.id DESC LIMIT 1) n));
    END IF;
    -- guard: a sender locks no table
    IF EXISTS (SELECT FROM partition_plans n
               WHERE n.parent = 'outbox_events'
                 -- Ids of one call lie at most 10 ms apart, and a range begins at a whole millisecond.
                 AND n.from_at <= timestamptz 'epoch' + (us + 12000) * interval '1 microsecond'
                 AND n.to_at > timestamptz 'epoch' + us * interval '1 microsecond') THEN
        RAISE lock_not_available USING
            MESSAGE = 'the partition of outbox_events for this time is being prepared',
            HINT = 'Try again. It passes within 30 s while issuing-api or issuing-worker runs.';
    END IF;
    RETURN us;
END
$$;

-- A NOTIFY makes the commits of its transactions wait for each other. So at most one open transaction of a type sends
-- one; the events of the others are found by it, by the next one, or by polling. Whoever holds this lock for long
-- delays the events of one type by a second. So does a session that listens in a transaction that it does not end: what
-- it has not read stays in the queue, and when that is full, every transaction that notifies fails at its COMMIT.
CREATE OR REPLACE FUNCTION issuing.wake_for(event_type text, run_at timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    IF (run_at <= clock_timestamp()) IS NOT FALSE AND coalesce(current_setting('issuing.wake', true), '') <> 'off'
       -- guard: one open transaction of a type notifies
       AND pg_try_advisory_xact_lock(4716, hashtext(event_type))
       -- guard: a full queue of notifications fails no sender
       AND pg_notification_queue_usage() < 0.01 THEN
        PERFORM pg_notify('issuing_wake', event_type);
    END IF;
END
$$;

-- Records an event in the caller's transaction. docs/outbox.md says what it promises.
CREATE OR REPLACE FUNCTION issuing.enqueue(
    type text, user_id text, payload jsonb,
    key text DEFAULT NULL,            -- the same type and key once more: the same event
    run_at timestamptz DEFAULT NULL,  -- not before
    caller issuing.caller DEFAULT CURRENT_USER)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    -- guard: who calls is the role of the statement and not of the session
    PERFORM check_sender(caller, type), check_sent(type, user_id, payload, key, run_at, NULL), wake_for(type, run_at);
    RETURN put_event(uuid7_of(next_id_us(type, ARRAY[user_id])), type, user_id, payload, key, run_at);
END
$$;

-- As many events as there are payloads. The ids are in the order of the arrays, as are those of one user in time; the
-- keys are taken in an order of their own, so that two such calls do not deadlock.
CREATE OR REPLACE FUNCTION issuing.enqueue_many(
    type text, user_ids text[], payloads jsonb[], keys text[] DEFAULT NULL, run_at timestamptz DEFAULT NULL,
    caller issuing.caller DEFAULT CURRENT_USER)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    count constant int8 := coalesce(cardinality(payloads), 0);
    first_us int8;
    ids uuid[];
    n int8;
BEGIN
    PERFORM check_sender(caller, type), check_many(type, user_ids, payloads, keys, run_at), wake_for(type, run_at);
    first_us := next_id_us(type, user_ids);
    ids := ARRAY(SELECT uuid7_of(first_us + g) FROM generate_series(1, count) AS g ORDER BY g);
    FOR n IN SELECT g FROM generate_series(1, count) AS g ORDER BY keys[g] COLLATE "C", g LOOP
        ids[n] := put_event(ids[n], type, user_ids[n], payloads[n], keys[n], run_at);
    END LOOP;
    RETURN ids;
END
$$;

-- How an event stands that the caller may have sent: none of a client, and only of types that the caller may send.
CREATE OR REPLACE FUNCTION issuing.end_of(id uuid, caller issuing.caller DEFAULT CURRENT_USER)
RETURNS TABLE (status text, reason_code text, reason_detail text, result jsonb, completed_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.status, e.reason_code, e.reason_detail, e.result, e.completed_at
    FROM outbox_events e
    -- guard: a sender sees no request of a client
    WHERE e.id = end_of.id AND e.idempotency_key IS NULL AND may_send(caller, e.event_type);
END
$$;

-- The last call of a pass of housekeeping: removes keys whose events are gone. A key and its event are committed
-- together, so a key without an event has lost it.
CREATE OR REPLACE FUNCTION issuing.forget_keys()
    RETURNS SETOF issuing.pass_row
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    gone int8;
BEGIN
    IF NOT EXISTS (SELECT FROM event_keys) THEN
        RETURN;
    END IF;
    -- A sender may hold a row for long.
    PERFORM set_config('lock_timeout', '1s', true);
    -- guard: a key outlives its event no longer than a pass of housekeeping
    gone := expire_default('event_keys', 'r.created_at < $1 AND NOT EXISTS (SELECT FROM outbox_events e
                                                                               WHERE e.id = r.event_id)',
                        now() - (SELECT r.kept FROM retentions r WHERE r.name = 'events'));
    RETURN QUERY SELECT 'expired', 'event_keys', gone, NULL::text, gone >= 1000 WHERE gone > 0;
END
$$;

REVOKE ALL ON FUNCTION issuing.reissue_once, issuing.enqueue, issuing.enqueue_many, issuing.end_of, issuing.forget_keys
FROM PUBLIC;
