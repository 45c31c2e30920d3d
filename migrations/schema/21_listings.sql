-- The issuer's list of cards beside ours: issuing-ctl reconcile --from-issuer, and the check that workers make
-- themselves (issuer.reconcile_every). Nothing here changes an event or a card.

-- The questions that a list may raise. `no_event`: a live card whose reference is not an event. `unsent`: its event is
-- open, and nothing was sent according to its row. `rejected`, `failed`: the end of its event. `other_card`: the
-- request has another card here, or none and is COMPLETED. `not_listed`: a card of ours that the issuer does not list.
CREATE OR REPLACE FUNCTION issuing.kinds_of_question() RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT ARRAY['no_event', 'unsent', 'rejected', 'failed', 'other_card', 'not_listed'] $$;

-- An operator asks, or goes on with what was asked within a day for about the same time, also by another operator.
-- `paused`: the issuer is not to be called. `busy`: enough is asked for already. since_us: since 1970; negative = so
-- long ago.
CREATE OR REPLACE FUNCTION issuing.ask_listing(since_us int8, within_ms int8, actor text, os_user text, sudo_user text,
                                               why text)
RETURNS TABLE (refused text, listing uuid, from_us int8, goes_on bool)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    from_at timestamptz := CASE WHEN since_us < 0 THEN clock_timestamp() ELSE timestamptz 'epoch' END
                           + since_us * interval '1 microsecond';
    until timestamptz := clock_timestamp() + least(greatest(within_ms, 0), 86400000) * interval '1 millisecond';
BEGIN
    PERFORM check_who(ask_listing.actor, ask_listing.os_user, ask_listing.sudo_user, why);
    IF EXISTS (SELECT FROM target_controls t WHERE t.target = 'issuer' AND t.paused_at IS NOT NULL) THEN
        refused := 'paused';
        RETURN NEXT;
        RETURN;
    END IF;
    LOCK TABLE issuer_listings IN SHARE ROW EXCLUSIVE MODE;
    -- guard: two operators wait for one list
    UPDATE issuer_listings l SET wanted_until = greatest(l.wanted_until, until)
    WHERE l.id = (SELECT o.id FROM issuer_listings o
                  WHERE o.ended_at IS NULL AND o.since BETWEEN from_at - interval '1 day' AND from_at
                    AND o.asked_at BETWEEN clock_timestamp() - interval '1 day' AND clock_timestamp()
                  ORDER BY o.since DESC LIMIT 1)
    RETURNING l.id, (extract(epoch FROM l.since) * 1000000)::int8 INTO listing, from_us;
    goes_on := FOUND;
    IF NOT goes_on AND (SELECT count(*) FROM issuer_listings l WHERE l.ended_at IS NULL
                                                                 AND l.wanted_until > clock_timestamp()) >= 5 THEN
        refused := 'busy';
    ELSIF NOT goes_on THEN
        INSERT INTO issuer_listings AS l (since, wanted_until) VALUES (from_at, until) RETURNING l.id INTO listing;
        from_us := (extract(epoch FROM from_at) * 1000000)::int8;
    END IF;
    IF refused IS NULL THEN
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, after)
        VALUES (ask_listing.actor, ask_listing.os_user, ask_listing.sudo_user, 'list_issuer', why,
                jsonb_build_object('listing', listing, 'since', from_at, 'goes_on', goes_on));
    END IF;
    RETURN NEXT;
END
$$;

-- A worker asks by itself, every so often: for the cards since the last time, of a week at most.
CREATE OR REPLACE FUNCTION issuing.ask_regular_listing(every interval) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    FOR again IN 1 .. 2 LOOP -- once more under the lock, with a new snapshot
        -- guard: a list is asked for regularly, by one worker
        IF EXISTS (SELECT FROM issuer_listings l
                   WHERE l.is_regular AND l.asked_at BETWEEN clock_timestamp() - every
                                                         AND clock_timestamp() + interval '1 minute') THEN
            RETURN;
        END IF;
        LOCK TABLE issuer_listings IN SHARE ROW EXCLUSIVE MODE;
    END LOOP;
    INSERT INTO issuer_listings (is_regular, since, wanted_until)
    SELECT true, greatest(coalesce(max(l.began_at), clock_timestamp() - every) - interval '1 hour',
                          clock_timestamp() - interval '7 days'), clock_timestamp() + every
    FROM issuer_listings l WHERE l.is_regular AND l.ended_at IS NOT NULL AND l.trouble IS NULL;
END
$$;

-- Takes the oldest list that waits for a worker of this issuer, under a lease of a minute at most. Also removes
-- finished ones, and requests one every every_ms (0 = never).
CREATE OR REPLACE FUNCTION issuing.take_listing(new_token uuid, lease_ms int8, worker_name text, its_profile text,
                                                its_address text, every_ms int8)
RETURNS TABLE (id uuid, since_us int8, after text, is_listed bool)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    its_issuer int2 := coalesce((SELECT i.id FROM issuers i
                                 WHERE i.profile = its_profile AND i.address = its_address), 0);
    over uuid;
    kept text[];
BEGIN
    IF every_ms > 0 THEN
        PERFORM ask_regular_listing(every_ms * interval '1 millisecond');
    END IF;
    DELETE FROM issuer_listings l
    WHERE l.asked_at < clock_timestamp() - interval '30 days'
      AND NOT EXISTS (SELECT FROM listed_cards c WHERE c.listing = l.id);
    -- One list at a time, and by the index: this is asked every second, while a list of a million cards is under way.
    SELECT l.id, CASE WHEN l.asked_at >= clock_timestamp() - interval '30 days' THEN kinds_of_question() ELSE '{}' END
    INTO over, kept
    FROM issuer_listings l
    WHERE (l.ended_at IS NOT NULL OR l.asked_at <= clock_timestamp() - interval '1 day')
      AND EXISTS (SELECT FROM listed_cards c WHERE c.listing = l.id AND c.kind <> ALL (kinds_of_question()))
       OR l.asked_at < clock_timestamp() - interval '30 days'
    LIMIT 1;
    IF FOUND THEN
        DELETE FROM listed_cards c
        WHERE c.listing = over
          AND c.issuer_card_id = ANY (ARRAY(SELECT o.issuer_card_id FROM listed_cards o
                                            WHERE o.listing = over AND o.kind <> ALL (kept) LIMIT 10000));
    END IF;
    RETURN QUERY
    UPDATE issuer_listings l
    SET lease_token = new_token, worker = worker_name, issuer = its_issuer,
        began_at = coalesce(l.began_at, clock_timestamp()),
        lease_until = clock_timestamp() + least(greatest(lease_ms, 0), 60000) * interval '1 millisecond'
    WHERE l.id = (SELECT o.id FROM issuer_listings o
                  WHERE o.ended_at IS NULL AND o.wanted_until > clock_timestamp()
                    AND (o.issuer IS NULL OR o.issuer IN (0, its_issuer))
                    AND (o.lease_until IS NULL
                         OR o.lease_until NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 minute')
                  ORDER BY o.asked_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING l.id, (extract(epoch FROM l.since) * 1000000)::int8, l.cursor, l.listed_at IS NOT NULL;
END
$$;

-- Whether a worker can take something that an operator or a worker requested: a check of the issuer, or a list.
CREATE OR REPLACE FUNCTION issuing.asks_wait() RETURNS bool
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp SET enable_seqscan = off
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM issuer_checks c WHERE c.ended_at IS NULL)
           OR EXISTS (SELECT FROM issuer_listings l
                      WHERE l.ended_at IS NULL AND l.wanted_until > clock_timestamp());
END
$$;

-- One page: its cards are compared, and the position of the next one is noted, in one transaction. An event or a card
-- that changed within settle_ms, which the page may not show yet, is not a question. False: another worker has it,
-- nobody waits for it, or it has ended.
CREATE OR REPLACE FUNCTION issuing.note_listed(of_listing uuid, token uuid, ids text[], refs uuid[], live bool[],
                                               next text, settle_ms int8, lease_ms int8) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    settled timestamptz := clock_timestamp() - greatest(settle_ms, 0) * interval '1 millisecond';
    fresh int8;
    goes_on bool;
BEGIN
    -- guard: a page counts once, under the token of its worker
    PERFORM FROM issuer_listings l WHERE l.id = of_listing AND l.lease_token = token AND l.ended_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WITH listed AS MATERIALIZED (
        SELECT u.id, u.ref, u.is_live FROM unnest(ids, refs, live) AS u (id, ref, is_live)
    ), events AS MATERIALIZED (
        SELECT e.id, e.status, e.first_sent_at, e.updated_at FROM outbox_events e WHERE e.id = ANY (refs)
    ), ours AS MATERIALIZED (
        SELECT c.request_id, c.issuer_card_id FROM cards c WHERE c.request_id = ANY (refs)
    )
    INSERT INTO listed_cards AS l (listing, issuer_card_id, reference, kind)
    SELECT of_listing, p.id, p.ref,
           CASE WHEN p.ref IS NULL THEN 'foreign'
                WHEN c.issuer_card_id = p.id AND e.status IS DISTINCT FROM 'FAILED'
                     AND (e.status IS DISTINCT FROM 'REJECTED' OR NOT p.is_live) THEN 'ok'
                WHEN NOT p.is_live THEN 'closed'
                -- guard: what has just changed is not a question
                WHEN e.updated_at > settled THEN 'open'
                WHEN e.status = 'FAILED' THEN 'failed'
                WHEN e.status = 'REJECTED' THEN 'rejected'
                WHEN c.request_id IS NOT NULL OR e.status = 'COMPLETED' THEN 'other_card'
                WHEN e.id IS NULL AND EXISTS (SELECT FROM issuer_checks k WHERE k.id = p.ref) THEN 'closed'
                WHEN e.id IS NULL THEN 'no_event'
                -- guard: an event that says that nothing was sent has no card
                WHEN e.first_sent_at IS NULL THEN 'unsent'
                ELSE 'open' END
    FROM listed p LEFT JOIN events e ON e.id = p.ref LEFT JOIN ours c ON c.request_id = p.ref
    -- guard: a card that comes on two pages counts once
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS fresh = ROW_COUNT;
    UPDATE issuer_listings l
    SET cursor = next, pages = l.pages + 1, cards = l.cards + fresh,
        idle_pages = CASE WHEN fresh > 0 THEN 0 ELSE l.idle_pages + 1 END,
        listed_at = CASE WHEN next IS NULL THEN clock_timestamp() END,
        trouble = CASE WHEN l.idle_pages >= 3 AND fresh = 0 AND next IS NOT NULL
                       THEN 'its pages do not end: four in a row had no new card' END,
        ended_at = CASE WHEN l.idle_pages >= 3 AND fresh = 0 AND next IS NOT NULL THEN clock_timestamp() END,
        lease_until = clock_timestamp() + least(greatest(lease_ms, 0), 60000) * interval '1 millisecond'
    WHERE l.id = of_listing
    RETURNING l.ended_at IS NULL AND l.wanted_until > clock_timestamp() INTO goes_on;
    RETURN goes_on;
END
$$;

-- After the last page: finds cards of ours that the list lacks, a few thousand requests at a time. Only those of
-- requests that were accepted since, whose cards the list must have, and that were stored settle_ms before it began.
-- `more`, `done`; null = as false above.
CREATE OR REPLACE FUNCTION issuing.compare_listed(of_listing uuid, token uuid, settle_ms int8, lease_ms int8)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    l issuer_listings;
    up_to uuid;
BEGIN
    SELECT * INTO l FROM issuer_listings o
    WHERE o.id = of_listing AND o.lease_token = token AND o.ended_at IS NULL AND o.listed_at IS NOT NULL
      AND o.wanted_until > clock_timestamp() FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    l.compared_to := coalesce(l.compared_to, uuid7_least(l.since));
    SELECT c.request_id INTO up_to FROM cards c WHERE c.request_id > l.compared_to
    ORDER BY c.request_id OFFSET 5000 LIMIT 1;
    INSERT INTO listed_cards (listing, issuer_card_id, reference, kind)
    SELECT l.id, c.issuer_card_id, c.request_id, 'not_listed'
    FROM cards c
    WHERE c.request_id > l.compared_to AND (up_to IS NULL OR c.request_id <= up_to)
      AND c.issuer = l.issuer AND c.status <> 'cancelled' AND c.created_at >= l.since
      AND c.created_at < l.began_at - greatest(settle_ms, 0) * interval '1 millisecond'
    ON CONFLICT DO NOTHING;
    UPDATE issuer_listings o
    SET compared_to = up_to,
        lease_until = clock_timestamp() + least(greatest(lease_ms, 0), 60000) * interval '1 millisecond',
        ended_at = CASE WHEN up_to IS NULL THEN clock_timestamp() END,
        counts = CASE WHEN up_to IS NULL THEN (SELECT jsonb_object_agg(k.kind, k.n)
                                               FROM (SELECT c.kind, count(*) AS n FROM listed_cards c
                                                     WHERE c.listing = l.id GROUP BY 1) k) END
    WHERE o.id = l.id;
    RETURN CASE WHEN up_to IS NULL THEN 'done' ELSE 'more' END;
END
$$;

-- The worker returns it: the worker drains, or could not read the list; ends = nobody will try again.
CREATE OR REPLACE FUNCTION issuing.leave_listing(of_listing uuid, token uuid, why text, ends bool) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
    UPDATE issuer_listings l
    SET lease_until = NULL, lease_token = NULL, trouble = coalesce(left(why, 900), l.trouble),
        ended_at = CASE WHEN ends THEN clock_timestamp() END
    WHERE l.id = of_listing AND l.lease_token = token AND l.ended_at IS NULL
$$;

REVOKE ALL ON FUNCTION issuing.ask_listing, issuing.ask_regular_listing, issuing.asks_wait, issuing.take_listing,
    issuing.note_listed, issuing.compare_listed, issuing.leave_listing FROM PUBLIC;
