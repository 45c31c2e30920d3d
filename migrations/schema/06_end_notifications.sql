-- CARD_REQUEST_ENDED: the notification of an end of a card request, made where a route for it is registered. The
-- transaction of the end writes a row of end_notifications only, and the claim makes the event.

-- What waits, for people and gauges: of at most 10000 rows.
CREATE OR REPLACE VIEW issuing.ends_waiting AS
SELECT coalesce(sum(cardinality(l.ids)), 0)::int8 AS events, min(l.ended_at) AS oldest_at
FROM (SELECT t.ids, t.ended_at FROM issuing.end_notifications t WHERE t.refused IS NULL ORDER BY t.n LIMIT 10000) l;

CREATE OR REPLACE VIEW issuing.ends_refused AS
SELECT t.n, t.ended_at, t.ids, t.refused FROM issuing.end_notifications t WHERE t.refused IS NOT NULL;

-- Follows, as a statement of its own, the end of these events: the card requests among them get their notifications.
-- The usual end, issuing.complete, writes its row itself.
CREATE OR REPLACE FUNCTION issuing.notify_ends(
    events uuid[],
    at timestamptz) -- only those that ended at this time; null = all
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM routes r WHERE r.event_type = 'CARD_REQUEST_ENDED') THEN
        RETURN;
    END IF;
    INSERT INTO end_notifications (ended_at, ids, is_again)
    SELECT max(e.completed_at), array_agg(e.id), bool_or(e.ends IS NOT NULL)
    FROM unnest(events) AS a (id) JOIN outbox_events e ON e.id = a.id
    WHERE e.event_type = 'CARD_ISSUE' AND e.status IN ('COMPLETED', 'REJECTED')
      AND (at IS NULL OR e.completed_at = at)
    HAVING count(*) > 0;
    WITH failed AS (
        UPDATE outbox_events e SET ends = coalesce(e.ends, 0) + 1
        FROM unnest(events) AS a (id)
        WHERE e.id = a.id AND e.event_type = 'CARD_ISSUE' AND e.status = 'FAILED'
          AND (at IS NULL OR e.completed_at = at)
        RETURNING e.id, e.ends, e.updated_at, e.reason_code, e.reason_detail
    )
    INSERT INTO end_notifications (ended_at, ids, is_again, end_number, code, detail)
    SELECT f.updated_at, ARRAY[f.id], f.ends > 1, f.ends, f.reason_code, left(f.reason_detail, 1000) FROM failed f;
END
$$;

-- The newest id of these events of the user, in microseconds; null = there is none. A function, so that the claim does
-- not pay for these plans where it does not need them.
CREATE OR REPLACE FUNCTION issuing.newest_notification_us(of_user text, request uuid, is_again bool, is_ordered bool)
    RETURNS int8
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    us int8;
BEGIN
    -- guard: the ids of one request follow its ends
    IF is_again THEN
        us := (SELECT uuid7_us(n.id) FROM outbox_events n
               WHERE n.user_id = of_user AND n.event_type = 'CARD_REQUEST_ENDED'
                 AND n.payload #>> '{data,id}' = request::text
               ORDER BY n.id DESC LIMIT 1);
    END IF;
    IF is_ordered THEN
        us := greatest(us, (SELECT uuid7_us(n.id) FROM outbox_events n
                            WHERE n.event_type = 'CARD_REQUEST_ENDED' AND n.event_type <> 'CARD_ISSUE'
                              AND n.user_id = of_user AND (n.due_at IS NOT NULL OR n.failed_at IS NOT NULL)
                            ORDER BY n.id DESC LIMIT 1));
    END IF;
    RETURN us;
END
$$;

-- A time as clients read it: RFC 3339, in UTC, of the years that have four digits.
CREATE OR REPLACE FUNCTION issuing.utc_text(at timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_char(least(greatest(at, '0001-01-01 00:00:00+00'), '9999-12-31 23:59:59.999999+00') AT TIME ZONE 'UTC',
               'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- The events CARD_REQUEST_ENDED of these ends. The payload is a webhook of Standard Webhooks; its data is what `GET
-- /v1/card-requests/{id}` answered from that end on (api/card_requests.c), with the user and the number of the end.
-- Where the type is in no order, the event is made as the claim leaves one, and is returned; else it is PENDING, and
-- the claim decides whether it is handed out. Ids rise with the ends, also after a step of the clock: those of one
-- request follow the newest that it has, and where the type is ordered, those of a user follow the newest that is open
-- or FAILED. A request that is not there, or whose user id no event may have, gets no event.
CREATE OR REPLACE FUNCTION issuing.make_notifications(
    ends issuing.noted_end[], new_token uuid, lease_ms int8, worker text, is_ordered bool)
RETURNS TABLE (id uuid, user_id text, payload text, traceparent text, tracestate text,
               created_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what claim_notifications sets
AS $$
#variable_conflict use_column
DECLARE
    us constant int8 := (date_part('epoch', clock_timestamp()) * 1000000)::int8;
    ordered_us int8[]; -- by the index of the end
BEGIN
    IF is_ordered THEN
        ordered_us := ARRAY(
            SELECT max(greatest(us, newest_notification_us(e.user_id, a.id, coalesce(a.number, e.ends + 1, 1) > 1,
                                                  true) + 1)) OVER (PARTITION BY e.user_id ORDER BY a.i)
            FROM unnest(ends) WITH ORDINALITY AS a (id, ended_at, number, code, detail, i)
            LEFT JOIN outbox_events e ON e.id = a.id
            ORDER BY a.i);
    END IF;
    -- As text, of which only the parts in to_json can need an escape: two thirds of the time of jsonb_build_object.
    RETURN QUERY
    INSERT INTO outbox_events AS m (id, event_type, user_id, traceparent, tracestate, created_at, updated_at,
                                    next_attempt_at, payload, status, retry_count, lease_token,
                                    lease_owner, lease_until, first_sent_at)
    SELECT uuid7_of(t.us), 'CARD_REQUEST_ENDED', t.user_id, t.traceparent, t.tracestate, least(t.ended_at, now()),
           now(),
           -- Due when the lease ends: the next claims do not pass over what is handed out already.
           now() + CASE WHEN is_ordered THEN 0 ELSE lease_ms END * interval '1 millisecond',
           concat('{"type":"card_request.ended","timestamp":"', t.updated_text, '","data":{"id":"', t.id,
                  '","kind":', coalesce(to_json(t.kind)::text, 'null'), ',"status":"', t.status,
                  '","created_at":"', t.created_text, '","updated_at":"', t.updated_text,
                  -- The card may have been replaced since; at this end it was active.
                  '","card":', CASE WHEN t.status = 'COMPLETED' AND c.id IS NOT NULL
                                    THEN concat('{"id":"', c.id, '","last4":"', c.last4, '","exp_month":',
                                                c.exp_month, ',"exp_year":', c.exp_year, ',"status":"active"}')
                                    ELSE 'null' END,
                  ',"reason":', CASE WHEN t.status <> 'COMPLETED'
                                     THEN concat('{"code":', coalesce(to_json(t.code)::text, 'null'),
                                                 ',"detail":', coalesce(to_json(t.detail)::text, 'null'),
                                                 CASE WHEN t.code = 'reissued'
                                                      THEN (SELECT concat(',"replaced_by":"', r.new_id, '"')
                                                            FROM event_reissues r WHERE r.old_id = t.id) END, '}')
                                     ELSE 'null' END,
                  ',"user_id":', to_json(t.user_id), ',"end":', t.number, '}}')::jsonb,
           CASE WHEN is_ordered THEN 'PENDING' ELSE 'PROCESSING' END, CASE WHEN is_ordered THEN 0 ELSE 1 END,
           CASE WHEN NOT is_ordered THEN new_token END, CASE WHEN NOT is_ordered THEN worker END,
           CASE WHEN NOT is_ordered THEN now() + lease_ms * interval '1 millisecond' END,
           CASE WHEN NOT is_ordered THEN now() END
    FROM (
        SELECT d.*,
               -- Ends of one request that are taken together rise with i: they have the same newest id.
               CASE WHEN is_ordered THEN ordered_us[d.i]
                    WHEN d.number > 1 THEN greatest(us, newest_notification_us(d.user_id, d.id, true, false) + 1)
                    ELSE us END + d.i AS us,
               utc_text(d.created_at) AS created_text, utc_text(d.updated_at) AS updated_text
        FROM (
            SELECT a.i, a.ended_at, e.id, e.user_id, trace_below(e.traceparent, e.id) AS traceparent, e.tracestate,
                   e.created_at,
                   CASE WHEN pg_column_size(e.payload) <= 262144 THEN left(e.payload ->> 'kind', 64) END AS kind,
                   coalesce(a.number, e.ends + 1, 1) AS number,
                   -- guard: the notification of an end that was FAILED has that end
                   CASE WHEN a.number IS NULL THEN e.status ELSE 'FAILED' END AS status,
                   CASE WHEN a.number IS NULL THEN e.updated_at ELSE a.ended_at END AS updated_at,
                   CASE WHEN a.number IS NULL THEN e.reason_code ELSE a.code END AS code,
                   CASE WHEN a.number IS NULL THEN left(e.reason_detail, 1000) ELSE a.detail END AS detail
            FROM unnest(ends) WITH ORDINALITY AS a (id, ended_at, number, code, detail, i)
            JOIN outbox_events e ON e.id = a.id
            WHERE e.event_type = 'CARD_ISSUE' AND octet_length(e.user_id) BETWEEN 1 AND 128
              AND (a.number IS NOT NULL OR e.status IN ('COMPLETED', 'REJECTED'))
            OFFSET 0
        ) d
        OFFSET 0
    ) t LEFT JOIN cards c ON c.request_id = t.id
    RETURNING m.id, m.user_id, m.payload::text, m.traceparent, m.tracestate, m.created_at;
END
$$;

-- Whether an event of this type is open, or an end waits to become one.
CREATE OR REPLACE FUNCTION issuing.route_is_open(of_type text) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM outbox_events e WHERE e.event_type = of_type AND e.due_at IS NOT NULL)
        OR of_type = 'CARD_REQUEST_ENDED' AND EXISTS (SELECT FROM end_notifications t WHERE t.refused IS NULL);
END
$$;

-- Whether a claim of this type has ends to take.
CREATE OR REPLACE FUNCTION issuing.notifications_wait() RETURNS bool
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp SET enable_seqscan = off
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM end_notifications t WHERE t.refused IS NULL ORDER BY t.n);
END
$$;

-- The rows of the list that a claim takes, locked: from the first one on, SKIP LOCKED, until they have `most` ends.
CREATE OR REPLACE FUNCTION issuing.next_notifications(
    most int8, is_ordered bool,
    OUT places tid[], OUT listed int8, OUT last_count int8) -- how many ends they have, and the last of them
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what claim_notifications sets
AS $$
DECLARE
    head constant int8 := (SELECT t.n FROM end_notifications t WHERE t.refused IS NULL ORDER BY t.n LIMIT 1);
    r record;
BEGIN
    listed := 0;
    IF head IS NULL OR most <= 0 THEN
        RETURN;
    END IF;
    FOR r IN
        SELECT t.ctid, t.n, cardinality(t.ids) AS count, t.is_again
        FROM end_notifications t WHERE t.refused IS NULL AND t.n >= head
        ORDER BY t.n
        FOR UPDATE SKIP LOCKED
    LOOP
        -- guard: whoever has the first end takes all where they are in order
        EXIT WHEN listed >= most OR is_ordered AND listed = 0 AND r.n > head;
        -- guard: an end waits for the earlier one of its request
        EXIT WHEN r.is_again AND (SELECT count(*) FROM end_notifications t
                                  WHERE t.refused IS NULL AND t.n >= head AND t.n < r.n)
                                 <> coalesce(cardinality(places), 0);
        places := places || r.ctid;
        listed := listed + r.count;
        last_count := r.count;
    END LOOP;
END
$$;

-- The events of these ends, one by one, since one of them cannot become an event: what cannot is refused, visibly.
CREATE OR REPLACE FUNCTION issuing.make_each_notification(
    ends issuing.noted_end[], new_token uuid, lease_ms int8, worker text, is_ordered bool)
RETURNS TABLE (id uuid, user_id text, payload text, traceparent text, tracestate text, created_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what claim_notifications sets
AS $$
#variable_conflict use_column
DECLARE
    broken text;
BEGIN
    FOR i IN 1..cardinality(ends) LOOP
        BEGIN
            RETURN QUERY SELECT * FROM make_notifications(ends[i:i], new_token, lease_ms, worker, is_ordered);
        EXCEPTION
            -- Not of this end: the claim fails as a whole, and the next one tries again.
            WHEN transaction_rollback OR insufficient_resources OR object_not_in_prerequisite_state
                 OR operator_intervention OR system_error THEN
                RAISE;
            WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
                IF broken = 'default_promise' THEN
                    RAISE;
                END IF;
                INSERT INTO end_notifications (ended_at, ids, end_number, code, detail, refused)
                VALUES (ends[i].ended_at, ARRAY[ends[i].id], ends[i].number, ends[i].code, ends[i].detail, SQLERRM);
        END;
    END LOOP;
END
$$;

-- Those of these ends of which there can be no event are refused, visibly.
CREATE OR REPLACE FUNCTION issuing.refuse_missing(ends issuing.noted_end[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what claim_notifications sets
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO end_notifications (ended_at, ids, end_number, code, detail, refused)
    SELECT a.ended_at, ARRAY[a.id], a.number, a.code, a.detail,
           'there is no such end: the request is gone, or its user id is none that an event may have'
    FROM unnest(ends) a
    LEFT JOIN outbox_events e ON e.id = a.id AND e.event_type = 'CARD_ISSUE'
                                 AND octet_length(e.user_id) BETWEEN 1 AND 128
                                 AND (a.number IS NOT NULL OR e.status IN ('COMPLETED', 'REJECTED'))
    WHERE e.id IS NULL;
END
$$;

-- Turns ends into events, at most `most`, for a claim of this type, and returns those that are handed out: see
-- make_notifications. What a row of the list has beyond `most` stays in it. Where the type is ordered, whoever has the
-- first row takes all, so the events are made in the order of the ends. An end that is not the first of its request
-- waits until no other claim has a row before it, so its id follows those of the earlier ones. Nothing leaves the list
-- without an event or a word.
CREATE OR REPLACE FUNCTION issuing.claim_notifications(
    new_token uuid, most int8, lease_ms int8, worker text, is_ordered bool)
RETURNS TABLE (id uuid, user_id text, payload text, traceparent text, tracestate text,
               created_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    taken record;
    ends noted_end[];
    made int8 := 0;
    broken text;
BEGIN
    taken := next_notifications(most, is_ordered);
    IF taken.places IS NULL THEN
        RETURN;
    END IF;
    ends := ARRAY(SELECT ROW(u.id, t.ended_at, t.end_number, t.code, t.detail)::noted_end
                  FROM end_notifications t CROSS JOIN LATERAL unnest(t.ids) WITH ORDINALITY AS u (id, i)
                  WHERE t.ctid = ANY (taken.places)
                  ORDER BY t.n, u.i LIMIT most);
    BEGIN
        RETURN QUERY SELECT * FROM make_notifications(ends, new_token, lease_ms, worker, is_ordered);
        GET DIAGNOSTICS made = ROW_COUNT;
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
        -- guard: a plan of housekeeping makes no end refused
        IF broken = 'default_promise' THEN
            -- A plan of the housekeeping, not these ends. The next pass withdraws it; a claim cannot alter a table
            -- that it is writing. The ends stay on the list.
            UPDATE partition_plans n SET planned_at = '-infinity' WHERE n.planned_at > '-infinity';
            RETURN;
        END IF;
        RETURN QUERY SELECT * FROM make_each_notification(ends, new_token, lease_ms, worker, is_ordered);
    END;
    IF taken.listed > most THEN
        UPDATE end_notifications t SET ids = t.ids[taken.last_count - (taken.listed - most) + 1:]
        WHERE t.ctid = taken.places[cardinality(taken.places)];
        taken.places := trim_array(taken.places, 1);
    END IF;
    DELETE FROM end_notifications t WHERE t.ctid = ANY (taken.places);
    -- guard: no end leaves the list without an event or a word
    IF made < cardinality(ends) THEN
        PERFORM refuse_missing(ends);
    END IF;
END
$$;

REVOKE ALL ON FUNCTION issuing.notify_ends, issuing.make_notifications, issuing.notifications_wait,
    issuing.next_notifications, issuing.refuse_missing, issuing.make_each_notification,
    issuing.claim_notifications, issuing.route_is_open FROM PUBLIC;
