-- The claim: which events a worker takes. The statements of an attempt are functions: their plans are cached with the
-- connection and depend on nothing in it, so a transaction pooler may stand between.

-- First what few claimed events need to have looked up. Functions of their own and not joins in the statement: those
-- would make every claim pay for getting them ready. STABLE, so each sees what the statement sees.

-- Of the card that a reissue is to replace: its issuer (null = it is not known), the request that it was made for, and
-- the issuer's id of it. All null: this user has no such card.
CREATE OR REPLACE FUNCTION issuing.card_to_replace(holder text, card_id text) RETURNS issuing.cards
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    card cards;
BEGIN
    SELECT c.issuer, c.request_id, c.issuer_card_id INTO card.issuer, card.request_id, card.issuer_card_id
    FROM cards c WHERE c.user_id = holder AND c.id::text = lower(card_id);
    RETURN card;
END
$$;

-- The card of an event, where one is stored already, without its number and its issuer: a worker never needs to read
-- them.
CREATE OR REPLACE FUNCTION issuing.card_of(event uuid) RETURNS issuing.cards
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    card cards;
BEGIN
    SELECT c.id, c.request_id, c.created_at, c.updated_at, c.replaces, c.exp_month, c.exp_year, c.user_id,
        c.issuer_card_id, c.last4, c.status, NULL::bytea
    INTO card FROM cards c WHERE c.request_id = event;
    RETURN card;
END
$$;

-- Whether an event of this type, other than this one, waits to be tried alone and is due.
CREATE OR REPLACE FUNCTION issuing.lost_is_due(but uuid, of_type text) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
                   -- guard: no event is held back for one that is not due
                   WHERE e.event_type = of_type AND e.status = 'PENDING' AND e.due_at <= now()
                     AND e.lost_count >= 2 AND e.id IS DISTINCT FROM but);
END
$$;

-- Something to probe a target with: where events are rare, the next one may come back much later.
CREATE OR REPLACE FUNCTION issuing.make_one_due(of_type text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    UPDATE outbox_events e SET next_attempt_at = clock_timestamp()
    WHERE e.id = (SELECT n.id FROM outbox_events n
                  WHERE n.event_type = of_type AND n.due_at > clock_timestamp() AND n.status = 'PENDING'
                    AND n.held_behind IS NULL
                  ORDER BY n.due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
$$;

-- The last attempt was answered 401, 403, 404, 405, 3xx, or as the issuer's profile says the same by another 4xx; or a
-- delivery was refused while none was taken.
CREATE OR REPLACE FUNCTION issuing.is_refused(deferral_code text) RETURNS bool
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, issuing, pg_temp
RETURN coalesce(deferral_code ~ '^(issuer|core|route)_http_[34]..$' AND right(deferral_code, 3)
                NOT IN ('408', '409', '425', '429') OR deferral_code = 'route_refuses', false);

-- Which events a claim takes while some are refused (worker/peers/suspicion.h): fresh ones, then refused ones, in turns
-- from three parts of the index: the oldest in their order; any of the newest, since those that are refused may come
-- faster than claims do; and any behind a time left to chance, so that nothing hides an event for ever. `looks` rows
-- are looked at in each part, whatever is there. Which part is first is left to chance, too. Nothing is locked: claim
-- locks.
CREATE OR REPLACE FUNCTION issuing.choose_due(of_type text, most int8, since timestamptz, choice text)
RETURNS TABLE (id uuid, due_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    looks constant int8 := 512;
    lot constant int4 := (ARRAY[0, 1, 1, 2, 2])[1 + floor(random() * 5)]; -- the newest and any more often
    first_due timestamptz := (SELECT min(e.due_at) FROM outbox_events e
                              WHERE e.event_type = of_type AND e.due_at >= since AND e.due_at <= now());
    any_since timestamptz;
BEGIN
    first_due := greatest(first_due, now() - interval '30 days');
    any_since := greatest(since, first_due + random() * (now() - first_due));
    RETURN QUERY
    WITH looked AS MATERIALIZED (
        (SELECT e.id, e.due_at, is_refused(e.deferral_code) AS refused, extract(epoch FROM e.due_at) AS n,
                0 AS place
         FROM outbox_events e
         WHERE e.event_type = of_type AND e.due_at >= since AND e.due_at <= now()
           AND e.status = 'PENDING' AND e.lost_count < 2
         ORDER BY e.due_at
         LIMIT looks)
        UNION ALL
        (SELECT e.id, e.due_at, is_refused(e.deferral_code), random(), 1
         FROM outbox_events e
         WHERE e.event_type = of_type AND e.due_at >= since AND e.due_at <= now()
           AND e.status = 'PENDING' AND e.lost_count < 2
         ORDER BY e.due_at DESC
         LIMIT looks)
        UNION ALL
        (SELECT e.id, e.due_at, is_refused(e.deferral_code), random(), 2
         FROM outbox_events e
         -- guard: refused ones at both ends hide no fresh one
         WHERE e.event_type = of_type AND e.due_at >= any_since AND e.due_at <= now()
           AND e.status = 'PENDING' AND e.lost_count < 2
         ORDER BY e.due_at
         LIMIT looks)
    ), ranked AS (
        SELECT l.id, l.due_at, l.refused,
               3 * row_number() OVER (PARTITION BY l.place, l.refused ORDER BY l.n) + (l.place + lot) % 3 AS n
        FROM looked l
        -- guard: the claim leaves refused events where fresh ones are wanted
        WHERE l.refused = (choice = 'refused') OR choice = 'fresh_first'
    )
    SELECT r.id, r.due_at
    FROM ranked r
    GROUP BY r.id, r.due_at, r.refused
    ORDER BY r.refused, min(r.n)
    LIMIT 2 * most + 16; -- others may have taken some of them
END
$$;

-- What follows chooses events for a claim and locks them, with SKIP LOCKED: two workers never wait for each other and
-- never get the same row. Each function answers with the same columns, of what the claim then takes:
--   ids, were_sent, changed_ats: the events in their order; whether something was sent for each before, and when each
--       row last changed. The claim changes both. null = no event.
--   next_since: the next bookmark; null = unchanged
--   is_filled: there may be more that is due

-- An event whose last two attempts were lost with their worker: at most one, for a worker that has nothing else in
-- flight. Before that, rows of events that are no longer such are removed.
CREATE OR REPLACE FUNCTION issuing.due_alone(
    of_type text,
    OUT ids uuid[], OUT were_sent bool[], OUT changed_ats timestamptz[], OUT next_since timestamptz, OUT is_filled bool)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what the claim sets
AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM lost_events l
    -- guard: no event is taken from those that are tried alone while a sweep may put it there
    WHERE l.since < now() - interval '1 minute'
      AND NOT EXISTS (SELECT FROM outbox_events e
                      WHERE e.id = l.event_id AND e.due_at IS NOT NULL AND e.lost_count >= 2);
    SELECT array_agg(d.id), array_agg(d.was_sent), array_agg(d.updated_at), false
    INTO ids, were_sent, changed_ats, is_filled
    FROM (SELECT e.id, e.first_sent_at IS NOT NULL AS was_sent, e.updated_at
          FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
          WHERE e.event_type = of_type AND e.status = 'PENDING' AND e.due_at <= now() AND e.lost_count >= 2
          ORDER BY e.due_at
          LIMIT 1
          FOR UPDATE OF e SKIP LOCKED) d;
END
$$;

-- While some are refused: those that choose_due chooses and nobody has taken since.
CREATE OR REPLACE FUNCTION issuing.due_chosen(
    of_type text, is_ordered bool, most int8, since timestamptz, choice text,
    OUT ids uuid[], OUT were_sent bool[], OUT changed_ats timestamptz[], OUT next_since timestamptz, OUT is_filled bool)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what the claim sets
AS $$
#variable_conflict use_column
DECLARE
    chosen uuid[];
BEGIN
    -- guard: what is chosen of an ordered type waits for its user's earlier events
    IF is_ordered THEN -- each that need not wait, from the first one that is wanted
        SELECT p.ready INTO chosen
        FROM (SELECT c.due_at FROM issuing.choose_due(of_type, 1, since, choice) c LIMIT 1) c,
             issuing.hold_behind(of_type, 32, c.due_at) p;
    ELSE
        chosen := ARRAY(SELECT c.id FROM issuing.choose_due(of_type, most, since, choice) c);
    END IF;
    SELECT array_agg(d.id), array_agg(d.was_sent), array_agg(d.updated_at), count(*) >= most
    INTO ids, were_sent, changed_ats, is_filled
    FROM (SELECT e.id, e.first_sent_at IS NOT NULL AS was_sent, e.updated_at
          FROM unnest(chosen) WITH ORDINALITY AS a (id, n) JOIN outbox_events e ON e.id = a.id
          WHERE e.status = 'PENDING' AND e.due_at <= now()
            AND (is_refused(e.deferral_code) = (choice = 'refused') OR choice = 'fresh_first')
          ORDER BY is_refused(e.deferral_code), a.n
          LIMIT most
          FOR UPDATE OF e SKIP LOCKED) d;
END
$$;

-- Of an ordered type, the oldest that need not wait for an earlier one of their user.
CREATE OR REPLACE FUNCTION issuing.due_ordered(
    of_type text, most int8, since timestamptz, slack interval,
    OUT ids uuid[], OUT were_sent bool[], OUT changed_ats timestamptz[], OUT next_since timestamptz, OUT is_filled bool)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what the claim sets
AS $$
#variable_conflict use_column
BEGIN
    SELECT p.ready, greatest(least(p.next_since, now() - slack), timestamptz 'epoch' - interval '1 microsecond'),
           p.is_filled
    INTO ids, next_since, is_filled
    FROM issuing.hold_behind(of_type, most, since) p;
    -- They are locked, so they are still what hold_behind has seen.
    SELECT array_agg(e.id ORDER BY a.n), array_agg(e.first_sent_at IS NOT NULL ORDER BY a.n),
           array_agg(e.updated_at ORDER BY a.n)
    INTO ids, were_sent, changed_ats
    FROM unnest(ids) WITH ORDINALITY AS a (id, n) JOIN outbox_events e ON e.id = a.id;
END
$$;

-- The oldest due, by outbox_events_due. The scan begins at the bookmark `since`, not at the beginning of the index:
-- there lie the entries of all that was finished since the last vacuum, or since the oldest snapshot that is held, and
-- each would be visited every time. The next bookmark is the last time taken, or a little before now when everything
-- due was taken. What commits behind the bookmark, outbox_sweep finds. An event whose last two attempts were lost with
-- their worker is passed over: see due_alone.
CREATE OR REPLACE FUNCTION issuing.due_oldest(
    of_type text, most int8, since timestamptz, slack interval, inserted bool, looks int8, -- as of the claim
    OUT ids uuid[], OUT were_sent bool[], OUT changed_ats timestamptz[], OUT next_since timestamptz, OUT is_filled bool)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what the claim sets
AS $$
#variable_conflict use_column
DECLARE
    least_since constant timestamptz := timestamptz 'epoch' - interval '1 microsecond'; -- it means the beginning
    until timestamptz := now();
BEGIN
    IF looks IS NOT NULL THEN
        -- Those of the other source are passed by, and there may be any number.
        until := coalesce((SELECT e.due_at FROM outbox_events e
                           WHERE e.event_type = of_type AND e.due_at > since AND e.due_at <= now()
                           ORDER BY e.due_at OFFSET looks LIMIT 1), now());
    END IF;
    SELECT array_agg(d.id), array_agg(d.was_sent), array_agg(d.updated_at),
           -- guard: the bookmark lies the slack before now
           -- guard: a full answer leaves its bookmark at the last time taken
           CASE WHEN count(*) < most THEN least(now() - slack, until)
                -- guard: a bookmark before 1970 is the beginning
                ELSE coalesce(max(greatest(d.due_at, least_since)), greatest(since, least_since)) END,
           count(*) >= most OR until < now()
    INTO ids, were_sent, changed_ats, next_since, is_filled
    FROM (SELECT e.id, e.first_sent_at IS NOT NULL AS was_sent, e.updated_at, e.due_at
          FROM outbox_events e
          -- guard: a claim takes events of its own type only
          WHERE e.event_type = of_type
            -- guard: a claim begins at its bookmark, not after it
            -- guard: a claim begins at its bookmark, not before it
            -- guard: an event that lost its worker twice is claimed with no other
            -- guard: a claim looks at a bounded number of the other source
            AND e.due_at >= since AND e.due_at <= until AND e.status = 'PENDING' AND e.lost_count < 2
            -- guard: a claim of one source takes none of the other
            AND (inserted IS NULL OR (e.idempotency_key IS NULL) = inserted)
          ORDER BY e.due_at
          LIMIT most
          FOR UPDATE SKIP LOCKED) d;
END
$$;

-- By how much the last write of a row is ahead of the clock. Clocks step: a row that was written by a clock that was
-- ahead has times in the future. Its times are moved back by so much, so that its ages stay what they were. A time that
-- no clock has ever shown counts as 1000 years ahead: one such row must not stop the claims of all others.
CREATE OR REPLACE FUNCTION issuing.ahead_by(changed_at timestamptz) RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN changed_at > now() THEN least(changed_at, now() + interval '1000 years') - now()
            ELSE interval '0' END;

-- How long ago that was; null = there is no such time. A time before 1970 counts as 1970.
CREATE OR REPLACE FUNCTION issuing.age_ms(at timestamptz) RETURNS int8
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN at IS NOT NULL
            -- guard: a time that no clock has shown stops no claim
            THEN (extract(epoch FROM now() - greatest(at, 'epoch')) * 1000)::int8 END;

-- Of a time that has passed: milliseconds since 1970, at least 0.
CREATE OR REPLACE FUNCTION issuing.unix_ms(at timestamptz) RETURNS int8
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM least(greatest(at, 'epoch'), now())) * 1000)::int8;

-- Takes the events that were chosen. The token is the fence: whoever took an event before matches no row any more. The
-- attempt is counted here, so a crash cannot run it for free; first_sent_at is set here, so a crash right after counts
-- as "may have been sent" without a write before the send. No age is ever negative; null alone means "nothing was
-- sent".
CREATE OR REPLACE FUNCTION issuing.take_due(
    ids uuid[], were_sent bool[], changed_ats timestamptz[], new_token uuid, lease_ms int8, worker text, of_type text,
    speaks_to int2, OUT taken issuing.claimed_event[])
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what the claim sets
AS $$
#variable_conflict use_column
BEGIN
    WITH held AS (
        UPDATE outbox_events e
        -- guard: the attempt is counted when it is claimed
        SET status = 'PROCESSING', held_behind = NULL, retry_count = least(e.retry_count + 1, 1000000),
            lease_token = new_token, lease_owner = worker,
            lease_until = now() + lease_ms * interval '1 millisecond',
            -- guard: a claim notes that something may be sent
            -- guard: the age of a send stays what it was when the clock is set back
            -- guard: no send is of a time to come
            first_sent_at = least(coalesce(e.first_sent_at - ahead_by(e.updated_at), now()), now()),
            -- guard: an event belongs to the issuer of its first send
            sent_to = coalesce(e.sent_to, speaks_to),
            last_sent_at = CASE WHEN e.last_sent_at IS NOT NULL
                                THEN least(e.last_sent_at - ahead_by(e.updated_at), now()) END,
            deferred_since = CASE WHEN e.deferred_since IS NOT NULL
                                  THEN least(e.deferred_since - ahead_by(e.updated_at), now()) END,
            updated_at = now()
        FROM unnest(ids, were_sent, changed_ats) AS a (id, was_sent, changed_at)
        WHERE e.id = a.id
        RETURNING e.id, e.user_id, e.payload, e.traceparent, e.tracestate, e.retry_count, e.deferred_since,
                  e.cancel_code, e.lost_count, e.first_sent_at, e.last_sent_at, e.deferral_count, e.deferral_code,
                  e.held_end, e.held_end_code, e.issuer_parameters, e.created_at, e.sent_to, e.resent,
                  e.idempotency_key, a.was_sent, a.changed_at,
                  CASE WHEN of_type = 'CARD_ISSUE' THEN e.payload ->> 'replaces' END AS replaces
    )
    SELECT coalesce(array_agg(ROW(h.id, h.user_id,
                         -- What cannot be a request is not unpacked: one such row must not take a worker's memory.
                         CASE WHEN pg_column_size(h.payload) <= 262144 THEN h.payload::text END,
                         h.traceparent, h.tracestate, h.retry_count,
                         CASE WHEN h.was_sent THEN age_ms(h.first_sent_at) END, age_ms(h.deferred_since),
                         (c.found).id, (c.found).issuer_card_id, (c.found).last4, (c.found).exp_month,
                         (c.found).exp_year,
                         (c.old).issuer_card_id,
                         -- guard: the intention to cancel outlives the worker
                         h.cancel_code,
                         CASE WHEN h.was_sent THEN age_ms(coalesce(h.last_sent_at, h.first_sent_at)) END,
                         h.lost_count, h.deferral_count, h.deferral_code, age_ms(least(h.changed_at, now())),
                         h.held_end, h.held_end_code, h.issuer_parameters::text, unix_ms(h.created_at),
                         -- guard: a replacement is asked of the issuer that made the card
                         h.sent_to IS DISTINCT FROM speaks_to OR coalesce((c.old).issuer <> speaks_to, false),
                         (c.old).request_id, h.resent IS NOT NULL, h.idempotency_key IS NOT NULL)::claimed_event), '{}')
    INTO taken
    FROM held h
    -- Looked for only where there can be one.
    CROSS JOIN LATERAL (SELECT CASE WHEN h.was_sent AND of_type = 'CARD_ISSUE' THEN issuing.card_of(h.id) END AS found,
                               CASE WHEN h.replaces IS NOT NULL
                                    THEN issuing.card_to_replace(h.user_id, h.replaces) END AS old
                        OFFSET 0) c;
END
$$;

-- New events of ends, as a claim of CARD_REQUEST_ENDED hands them out.
CREATE OR REPLACE FUNCTION issuing.take_ends(new_token uuid, most int8, lease_ms int8, worker text)
RETURNS issuing.claimed_event[]
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp -- and what the claim sets
AS $$
BEGIN
    RETURN ARRAY(SELECT ROW(c.id, c.user_id, c.payload, c.traceparent, c.tracestate, 1, NULL, NULL, NULL, NULL, NULL,
                            NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, age_ms(c.created_at), NULL, NULL, NULL,
                            unix_ms(c.created_at), false, NULL, false, false)::claimed_event
                 FROM issuing.claim_notifications(new_token, most, lease_ms, worker, false) c);
END
$$;

-- PENDING events of one type that are due: one of the functions above chooses them, and take_due takes them.
CREATE OR REPLACE FUNCTION issuing.claim(
    new_token uuid, most int8, lease_ms int8, worker text,
    since_us int8, -- the bookmark: microseconds since 1970; below 0, or null = from the beginning
    slack_ms int8, -- so long a commit may take to become visible without being left to the sweep
    alone bool,    -- one that lost its worker twice; the worker that asks so has nothing else in flight
    of_type text,      -- event_type
    is_ordered bool,   -- an event that has to wait is held behind an earlier one; also where another worker says so
    issuer_profile text DEFAULT NULL, issuer_address text DEFAULT NULL, -- of card requests: whom the worker speaks to
    choice text DEFAULT 'oldest', -- or `fresh_first`, `fresh`, `refused`: issuing.choose_due, of both sources
    inserted bool DEFAULT NULL, -- true = only what services sent, false = only what clients requested; null = both
    looks int8 DEFAULT NULL)    -- so many of the due events are looked at; null = any number
RETURNS TABLE (
    events issuing.claimed_event[],
    next_since_us int8, -- the next bookmark; null = unchanged
    has_lost bool,      -- there are events to be tried alone that are due
    now_us int8,        -- the database's clock
    is_filled bool)     -- there may be more that is due
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    since timestamptz := coalesce(timestamptz 'epoch' + since_us * interval '1 microsecond', '-infinity');
    slack interval := slack_ms * interval '1 millisecond';
    speaks_to int2 := CASE WHEN issuer_address IS NOT NULL THEN note_issuer(issuer_profile, issuer_address) END;
    makes_ends bool := of_type = 'CARD_REQUEST_ENDED' AND NOT alone AND choice <> 'refused'
                       AND issuing.notifications_wait();
    due record;
BEGIN
    is_ordered := is_ordered OR of_type <> 'CARD_ISSUE'
                  -- guard: a claim is ordered where another worker says so
                  AND EXISTS (SELECT FROM routes r WHERE r.event_type = of_type AND r.is_ordered);
    IF makes_ends AND is_ordered THEN
        PERFORM FROM issuing.claim_notifications(new_token, most, lease_ms, worker, true);
    END IF;
    IF alone THEN
        due := issuing.due_alone(of_type);
    ELSIF choice <> 'oldest' THEN
        due := issuing.due_chosen(of_type, is_ordered, most, since,
                                  CASE WHEN makes_ends THEN 'fresh' ELSE choice END); -- as the ends are
    ELSIF is_ordered THEN
        due := issuing.due_ordered(of_type, most, since, slack);
    ELSE
        -- Retries and new ends get half of `most` each, if they need it; who gets the one that is left is left to
        -- chance.
        due := issuing.due_oldest(of_type, CASE WHEN makes_ends THEN (most + (random() < 0.5)::int) / 2 ELSE most END,
                                  since, slack, inserted, looks);
    END IF;
    events := issuing.take_due(due.ids, due.were_sent, due.changed_ats, new_token, lease_ms, worker, of_type,
                               speaks_to);
    IF makes_ends AND NOT is_ordered THEN
        events := events || issuing.take_ends(new_token, most - cardinality(events), lease_ms, worker);
        due.is_filled := due.is_filled OR cardinality(events) >= most;
    END IF;
    RETURN QUERY
    SELECT events, (extract(epoch FROM due.next_since) * 1000000)::int8,
           EXISTS (SELECT FROM lost_events) AND issuing.lost_is_due(CASE WHEN alone THEN due.ids[1] END, of_type),
           (extract(epoch FROM now()) * 1000000)::int8, due.is_filled;
END
$$;

REVOKE ALL ON FUNCTION issuing.make_one_due FROM PUBLIC;
