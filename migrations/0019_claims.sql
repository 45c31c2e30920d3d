-- Why: the claim and the ends of attempts, as the second review of the promise left them. Locks: none that matter;
-- functions are replaced. Programs of the release before cannot run after it.

-- Programs that were never released called these.
DROP FUNCTION issuing.claim(uuid, int8, int8, text, int8, int8, bool);
DROP FUNCTION issuing.claim(uuid, int8, int8, text, int8, int8, bool, text, bool);
DROP FUNCTION issuing.complete(uuid[], uuid[], text, int8[]);
DROP FUNCTION issuing.end_attempts(uuid[], uuid[], text[], int8[], bool[], bool[], bool[], text[], text[], text[], text[],
                                   text[], text[], text[], bool[], text, int8[], text[], uuid[], bool[], text[], text[],
                                   text[]);

-- ---- the issuer of an event ----

-- An event and a card belong to the issuer that they were first sent to, or made at: its profile, and scheme, host and
-- port of its url. Strict: a claim that would send an event elsewhere says so instead. Rows are never removed.
CREATE TABLE issuing.issuers (
    id int2 PRIMARY KEY CHECK (id > 0),
    profile text NOT NULL CHECK (octet_length(profile) BETWEEN 1 AND 64),
    origin text NOT NULL CHECK (octet_length(origin) BETWEEN 1 AND 1024),
    seen_at timestamptz NOT NULL DEFAULT now(), -- about when a worker last claimed for it
    UNIQUE (profile, origin)
);
-- In no index, because each first claim writes it; of no foreign key, because that would cost each first claim a look.
ALTER TABLE issuing.outbox_events ADD COLUMN sent_to int2;
ALTER TABLE issuing.cards ADD COLUMN issuer int2;

-- The number of the issuer that a worker speaks to. The lock is taken once for each issuer, so that no number is given
-- twice; numbers are dense, since a sequence would lose one with each conflict.
CREATE FUNCTION issuing.note_issuer(its_profile text, its_origin text) RETURNS int2
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    found_id int2;
    seen timestamptz;
BEGIN
    SELECT i.id, i.seen_at INTO found_id, seen FROM issuers i WHERE i.profile = its_profile AND i.origin = its_origin;
    IF found_id IS NULL THEN
        LOCK TABLE issuers IN SHARE ROW EXCLUSIVE MODE;
        INSERT INTO issuers (id, profile, origin)
        SELECT coalesce(max(i.id), 0) + 1, its_profile, its_origin FROM issuers i
        ON CONFLICT (profile, origin) DO NOTHING;
        SELECT i.id INTO found_id FROM issuers i WHERE i.profile = its_profile AND i.origin = its_origin;
    ELSIF seen NOT BETWEEN now() - interval '1 minute' AND now() + interval '1 minute'
          OR seen < now() - interval '1 second' AND EXISTS (SELECT FROM issuers o WHERE o.seen_at > seen) THEN
        UPDATE issuers SET seen_at = now()
        WHERE id = (SELECT i.id FROM issuers i WHERE i.id = found_id FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN found_id;
END
$$;
REVOKE ALL ON FUNCTION issuing.note_issuer(text, text) FROM PUBLIC;

-- The issuer that workers speak to now: the one that was claimed for last. Null: none was, or another one was claimed
-- for a few minutes before, so that only an operator can say which is meant.
CREATE FUNCTION issuing.present_issuer() RETURNS int2
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT i.id FROM issuers i
    WHERE NOT EXISTS (SELECT FROM issuers o WHERE o.id <> i.id AND o.seen_at > i.seen_at - interval '3 minutes')
$$;

-- The issuer of the card that a reissue is to replace; null = it is not known, or there is no such card.
CREATE FUNCTION issuing.issuer_of_card(holder text, card text) RETURNS int2
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    RETURN (SELECT c.issuer FROM cards c WHERE c.user_id = holder AND c.id::text = lower(card));
END
$$;

-- An operator says that a PENDING event, and the card that it is to replace, belong to an issuer after all. What may have
-- been sent stays unknown, and is looked up there before anything is sent. to_issuer: null = the present one.
-- settle_ms: not while a create may still arrive at the issuer before, which would make a card that nobody looks for.
CREATE FUNCTION issuing.adopt(
    event uuid, seen_us int8, to_issuer int2, settle_ms int8, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, event_row issuing.outbox_events)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before outbox_events;
    owner int2 := coalesce((SELECT i.id FROM issuers i WHERE i.id = to_issuer), CASE WHEN to_issuer IS NULL
                                                                                THEN present_issuer() END);
    card_owner int2;
BEGIN
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = event FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    event_row := before;
    card_owner := issuer_of_card(before.user_id, before.payload ->> 'replaces');
    IF before.event_type <> 'CARD_ISSUE' THEN
        refused := 'other_type';
    ELSIF before.status = 'PROCESSING' THEN
        refused := 'processing';
    ELSIF before.status <> 'PENDING' THEN
        refused := 'not_pending';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    ELSIF owner IS NULL THEN
        refused := CASE WHEN to_issuer IS NULL AND EXISTS (SELECT FROM issuers) THEN 'which_issuer' ELSE 'no_issuer' END;
    ELSIF coalesce(before.sent_to, owner) = owner AND coalesce(card_owner, owner) = owner THEN
        IF seen_us IS NOT NULL THEN
            RETURN; -- a filter matches many that are not meant
        END IF;
        refused := 'same_issuer';
    ELSIF sent_age_ms(before) < settle_ms THEN
        refused := 'settling';
    ELSE
        UPDATE outbox_events e
        SET sent_to = CASE WHEN e.sent_to IS NOT NULL THEN owner END,
            -- Those of another vendor's calls are of no use.
            issuer_parameters = CASE WHEN NOT EXISTS (SELECT FROM issuers o JOIN issuers n ON n.profile <> o.profile
                                                      WHERE o.id = e.sent_to AND n.id = owner)
                                     THEN e.issuer_parameters END,
            held_end = CASE WHEN e.first_sent_at IS NULL OR e.cancel_code IS NOT NULL
                                 OR EXISTS (SELECT FROM cards c WHERE c.request_id = e.id) THEN e.held_end
                            ELSE coalesce(e.held_end, 'before_sending') END,
            next_attempt_at = now(), updated_at = clock_timestamp()
        WHERE e.id = event
        RETURNING e.* INTO event_row;
        UPDATE cards c SET issuer = owner
        WHERE c.user_id = before.user_id AND c.issuer <> owner
          AND (c.request_id = event OR c.id::text = lower(before.payload ->> 'replaces'));
        PERFORM note_action('adopt', before, event_row, actor, os_user, sudo_user, why,
                            jsonb_build_object('from', (SELECT to_jsonb(i) - 'seen_at' FROM issuers i
                                                        WHERE i.id = coalesce(nullif(before.sent_to, owner), card_owner)),
                                               'to', (SELECT to_jsonb(i) - 'seen_at' FROM issuers i WHERE i.id = owner)));
    END IF;
    RETURN NEXT;
END
$$;
REVOKE ALL ON FUNCTION issuing.adopt(uuid, int8, int2, int8, text, text, text, text) FROM PUBLIC;

-- As in 0007_attempts.sql; a card belongs to the issuer of its event.
CREATE OR REPLACE FUNCTION issuing.save(ids uuid[], tokens uuid[], card_ids uuid[], issuer_card_ids text[],
                                        last4s text[], exp_months int8[], exp_years int8[], number_records bytea[],
                                        replaced_ids uuid[])
RETURNS TABLE (id uuid, card_id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT e.user_id, e.sent_to, a.*
        FROM unnest(ids, tokens, card_ids, issuer_card_ids, last4s, exp_months, exp_years, number_records, replaced_ids)
            AS a (event_id, token, card_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
        JOIN outbox_events e ON e.id = a.event_id
        WHERE e.lease_token = a.token
        FOR NO KEY UPDATE OF e
    ), saved AS (
        INSERT INTO cards (id, request_id, user_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces,
                           issuer)
        SELECT h.card_id, h.event_id, h.user_id, h.issuer_card_id, h.last4, h.exp_month, h.exp_year, h.number_record,
               h.replaces, h.sent_to
        FROM held h
        ON CONFLICT (request_id) DO NOTHING
    )
    SELECT h.event_id, coalesce((SELECT c.id FROM cards c WHERE c.request_id = h.event_id), h.card_id)
    FROM held h;
END
$$;

CREATE OR REPLACE FUNCTION issuing.hold_behind(of_type text, most int8, since timestamptz)
    RETURNS TABLE (
        ready uuid[],
        next_since timestamptz, -- null = everything due was looked at
        is_filled bool)         -- there may be more that is due
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        looks constant int8 := least(greatest(2 * most, 32), 128); -- each with a lock of its own
        ids uuid[];
        users text[];
        dues timestamptz[];
        changes timestamptz[];
        waits bool[];
        parked int4[] := issuing.cell_parked();
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.claim of an ordered type needs READ COMMITTED, not %',
                current_setting('transaction_isolation') USING ERRCODE = '25001';
        END IF;
        SELECT array_agg(d.id), array_agg(d.user_id), array_agg(d.due_at), array_agg(d.updated_at)
        INTO ids, users, dues, changes
        FROM (SELECT e.id, e.user_id, e.due_at, e.updated_at
              FROM outbox_events e
              WHERE e.event_type = of_type AND e.due_at >= since AND e.due_at <= now()
                AND e.status = 'PENDING' AND e.lost_count < 2
                AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
              ORDER BY e.due_at
              LIMIT looks
              FOR UPDATE SKIP LOCKED) d;
        -- In statements of their own: what comes next must see every end that gave its lock back before.
        SELECT array_agg(NOT l.has_lock ORDER BY l.n)
        INTO waits
        FROM unnest(issuing.try_orders(of_type, users)) WITH ORDINALITY AS l (has_lock, n);
        RETURN QUERY
        WITH asked AS MATERIALIZED (
            SELECT a.id, a.due_at, a.updated_at, a.waits, a.n, b.id AS behind
            FROM unnest(ids, users, dues, changes, waits)
                WITH ORDINALITY AS a (id, user_id, due_at, updated_at, waits, n)
            LEFT JOIN LATERAL (
                SELECT o.id FROM outbox_events o
                WHERE NOT a.waits AND o.event_type = of_type AND o.event_type <> 'CARD_ISSUE'
                  AND o.user_id = a.user_id AND o.id < a.id AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL)
                ORDER BY o.id DESC LIMIT 1) b ON true
        ), held AS (
            UPDATE outbox_events e
            SET held_behind = a.behind,
                next_attempt_at = now() + least(greatest(now() - greatest(least(e.created_at, now()), 'epoch'),
                                                         interval '5 minutes'), interval '1 hour'),
                first_sent_at = e.first_sent_at - a.ahead, last_sent_at = e.last_sent_at - a.ahead,
                deferred_since = e.deferred_since - a.ahead, updated_at = now()
            FROM (SELECT x.id, x.behind, CASE WHEN x.updated_at > now()
                                              THEN least(x.updated_at, now() + interval '1000 years') - now()
                                              ELSE interval '0' END AS ahead
                  FROM asked x WHERE x.behind IS NOT NULL) a
            WHERE e.id = a.id
        ), free AS (
            SELECT a.id, a.due_at, row_number() OVER (ORDER BY a.n) AS n
            FROM asked a WHERE NOT a.waits AND a.behind IS NULL
        )
        SELECT (SELECT array_agg(f.id ORDER BY f.n) FROM free f WHERE f.n <= most),
               least((SELECT min(a.due_at) FROM asked a WHERE a.waits),
                     (SELECT min(f.due_at) FROM free f WHERE f.n > most),
                     (SELECT max(a.due_at) FROM asked a HAVING count(*) >= looks)),
               (SELECT count(*) >= looks FROM asked) OR EXISTS (SELECT FROM free f WHERE f.n > most);
    END
    $$;

-- The last attempt was answered 401, 403, 404, 405, 3xx, or as the issuer's profile says the same by another 4xx.
CREATE FUNCTION issuing.is_refused(deferral_code text) RETURNS bool
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, issuing, pg_temp
    RETURN coalesce(deferral_code ~ '^(issuer|core|route)_http_[34]..$' AND right(deferral_code, 3)
                    NOT IN ('408', '409', '425', '429'), false);

-- Which events a claim takes while some are refused (worker/suspicion.h): fresh ones, then refused ones, in turns from
-- three places of the index: the oldest in their order; any of the newest, since those that are refused may come
-- faster than claims do; and any behind a time left to chance, so that nothing hides an event for ever. `looks` rows
-- are looked at in each place, whatever lies there. Which place is first is left to chance, too. Nothing is locked:
-- claim locks.
CREATE FUNCTION issuing.choose_due(of_type text, most int8, since timestamptz, choice text, parked int4[])
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
        turn constant int4 := (ARRAY[0, 1, 1, 2, 2])[1 + floor(random() * 5)]; -- the newest and any more often
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
               AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
             ORDER BY e.due_at
             LIMIT looks)
            UNION ALL
            (SELECT e.id, e.due_at, is_refused(e.deferral_code), random(), 1
             FROM outbox_events e
             WHERE e.event_type = of_type AND e.due_at >= since AND e.due_at <= now()
               AND e.status = 'PENDING' AND e.lost_count < 2
               AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
             ORDER BY e.due_at DESC
             LIMIT looks)
            UNION ALL
            (SELECT e.id, e.due_at, is_refused(e.deferral_code), random(), 2
             FROM outbox_events e
             WHERE e.event_type = of_type AND e.due_at >= any_since AND e.due_at <= now()
               AND e.status = 'PENDING' AND e.lost_count < 2
               AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
             ORDER BY e.due_at
             LIMIT looks)
        ), ranked AS (
            SELECT l.id, l.due_at, l.refused,
                   3 * row_number() OVER (PARTITION BY l.place, l.refused ORDER BY l.n) + (l.place + turn) % 3 AS n
            FROM looked l
            WHERE l.refused = (choice = 'refused') OR choice = 'fresh_first'
        )
        SELECT r.id, r.due_at
        FROM ranked r
        GROUP BY r.id, r.due_at, r.refused
        ORDER BY r.refused, min(r.n)
        LIMIT 2 * most + 16; -- others may have taken some of them
    END
    $$;

CREATE FUNCTION issuing.claim(
    new_token uuid, most int8, lease_ms int8, worker text,
    since_us int8, -- the bookmark: microseconds since 1970; null = from the beginning
    slack_ms int8, -- so long a commit may take to become visible without being left to the sweep
    alone bool,
    of_type text,      -- event_type
    is_ordered bool,   -- an event that has to wait is held behind an earlier one; also where another worker says so
    issuer_profile text DEFAULT NULL, issuer_origin text DEFAULT NULL, -- of card requests: whom the worker speaks to
    choice text DEFAULT 'oldest', -- or `fresh_first`, `fresh`, `refused`: issuing.choose_due, of both sources
    inserted bool DEFAULT NULL, -- true = only what services sent, false = only what clients requested; null = both
    looks int8 DEFAULT NULL)    -- so many of the due events are looked at; null = any number
RETURNS TABLE (
    id uuid, user_id text, payload text, traceparent text, retry_count int4,
    sent_age_ms int8,     -- age of the first send that may have arrived; null = certainly none
    deferred_age_ms int8, -- of the unbroken row of 409/425 answers; null = none
    -- the card, where it is stored already
    card_id uuid, issuer_card_id text, last4 text, exp_month int2, exp_year int2, card_status text,
    replaces_issuer_card_id text, -- reissue: the issuer's id of the card to replace
    cancel_code text,             -- an earlier attempt had begun to cancel the card
    next_since_us int8,           -- of the last row: the next bookmark; null = unchanged
    settle_age_ms int8,           -- age of the last send that may still be on its way; null = there is none
    lost_count int4,              -- of the last row: 1 = there are events to be tried alone that are due, else 0
    now_us int8,                  -- of the last row: the database's clock
    deferral_count int4, deferral_code text, -- deferrals in a row for the same cause, and that cause
    changed_age_ms int8,          -- since the row last changed: for an event that was deferred or failed, since then
    held_end text, held_end_code text, -- the end that waits until no create can arrive any more
    issuer_parameters text,       -- null = none are kept
    made_ms int8,                 -- when the row was made: milliseconds since 1970, at least 0
    is_filled bool,               -- of the last row: there may be more that is due
    is_elsewhere bool)            -- it, or the card that it is to replace, belongs to another issuer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    since timestamptz := coalesce(timestamptz 'epoch' + since_us * interval '1 microsecond', '-infinity');
    alone_id uuid;
    slack interval := slack_ms * interval '1 millisecond';
    named uuid[]; -- the events that are handed out, where they are not simply the oldest
    ordered_since timestamptz;
    ordered_is_filled bool;
    is_chosen bool := NOT alone AND choice <> 'oldest';
    is_cell bool := EXISTS (SELECT FROM cell_buckets);
    parked int4[]; -- buckets whose events stay where they are; null = none
    speaks_to int2 := CASE WHEN issuer_origin IS NOT NULL THEN note_issuer(issuer_profile, issuer_origin) END;
    until timestamptz := now();
    makes_ends bool;         -- it also makes events of ends that are to be told (0020_ends.sql)
    due_most int8 := most;   -- of the events that are there
BEGIN
    -- With an old snapshot the database may be a cell that does not look like one.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.claim needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;
    IF is_cell THEN
        -- Every claim shares this lock; whoever parks a bucket has it alone. So the mover waits for the claims that do
        -- not know of it, and what is read in later statements holds until this claim is over.
        PERFORM pg_advisory_xact_lock_shared(4713, -1);
        parked := issuing.cell_parked();
    END IF;
    IF looks IS NOT NULL THEN
        -- Those of the other source are passed by, and there may be any number.
        until := coalesce((SELECT e.due_at FROM outbox_events e
                           WHERE e.event_type = of_type AND e.due_at > since AND e.due_at <= now()
                           ORDER BY e.due_at OFFSET looks LIMIT 1), now());
    END IF;
    is_ordered := is_ordered OR of_type <> 'CARD_ISSUE'
                  AND EXISTS (SELECT FROM routes r WHERE r.event_type = of_type AND r.is_ordered);
    makes_ends := of_type = 'CARD_REQUEST_ENDED' AND NOT alone AND choice <> 'refused' AND issuing.ends_wait();
    IF makes_ends AND choice = 'fresh_first' THEN
        choice := 'fresh'; -- as the ends are
    END IF;
    IF makes_ends AND is_ordered THEN
        PERFORM FROM issuing.claim_ends(new_token, most, lease_ms, worker, true);
    ELSIF makes_ends THEN
        -- What is retried and new ends have half of the places each, if they need them; the one that is left by lot.
        due_most := (most + (random() < 0.5)::int) / 2;
    END IF;
    IF alone THEN
        DELETE FROM lost_events l
        WHERE l.since < now() - interval '1 minute'
          AND NOT EXISTS (SELECT FROM outbox_events e
                          WHERE e.id = l.event_id AND e.due_at IS NOT NULL AND e.lost_count >= 2);
        SELECT e.id INTO alone_id
        FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
        WHERE e.event_type = of_type AND e.status = 'PENDING' AND e.due_at <= now() AND e.lost_count >= 2
          AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
        ORDER BY e.due_at
        LIMIT 1
        FOR UPDATE OF e SKIP LOCKED;
        named := ARRAY[alone_id];
    ELSIF is_chosen THEN
        IF is_ordered THEN -- each that need not wait, from the first one that is wanted
            SELECT p.ready INTO named
            FROM (SELECT c.due_at FROM issuing.choose_due(of_type, 1, since, choice, parked) c LIMIT 1) c,
                 issuing.hold_behind(of_type, 32, c.due_at) p;
        ELSE
            named := ARRAY(SELECT c.id FROM issuing.choose_due(of_type, most, since, choice, parked) c);
        END IF;
        SELECT array_agg(n.id) INTO named
        FROM (SELECT e.id
              FROM unnest(named) WITH ORDINALITY AS a (id, n) JOIN outbox_events e ON e.id = a.id
              WHERE e.status = 'PENDING' AND e.due_at <= now()
                AND (is_refused(e.deferral_code) = (choice = 'refused') OR choice = 'fresh_first')
              ORDER BY is_refused(e.deferral_code), a.n
              LIMIT most
              FOR UPDATE OF e SKIP LOCKED) n;
    ELSIF is_ordered THEN
        SELECT p.ready, p.next_since, p.is_filled INTO named, ordered_since, ordered_is_filled
        FROM issuing.hold_behind(of_type, most, since) p;
    END IF;
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT e.id, e.due_at, e.first_sent_at, e.updated_at,
               CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now()
                    ELSE interval '0' END AS ahead
        FROM outbox_events e
        WHERE NOT alone AND NOT is_ordered AND NOT is_chosen AND e.event_type = of_type
          AND e.due_at >= since AND e.due_at <= until AND e.status = 'PENDING' AND e.lost_count < 2
          AND (inserted IS NULL OR (e.idempotency_key IS NULL) = inserted)
          AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
        ORDER BY e.due_at
        LIMIT due_most
        FOR UPDATE SKIP LOCKED
    ), one AS MATERIALIZED (
        SELECT e.id, e.first_sent_at, e.updated_at,
               CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now()
                    ELSE interval '0' END AS ahead
        FROM unnest(named) AS n (id) JOIN outbox_events e ON e.id = n.id
        WHERE alone OR is_ordered OR is_chosen
    ), held AS (
        UPDATE outbox_events e
        SET status = 'PROCESSING', held_behind = NULL, retry_count = least(e.retry_count + 1, 1000000),
            lease_token = new_token, lease_owner = worker,
            lease_until = now() + lease_ms * interval '1 millisecond',
            first_sent_at = least(coalesce(e.first_sent_at - due.ahead, now()), now()),
            sent_to = coalesce(e.sent_to, speaks_to),
            last_sent_at = CASE WHEN e.last_sent_at IS NOT NULL THEN least(e.last_sent_at - due.ahead, now()) END,
            deferred_since = CASE WHEN e.deferred_since IS NOT NULL THEN least(e.deferred_since - due.ahead, now()) END,
            updated_at = now()
        FROM (SELECT d.id, d.first_sent_at, d.updated_at, d.ahead FROM due d UNION ALL SELECT * FROM one) due
        WHERE e.id = due.id
          -- Also not an event that is left behind in a cell where its bucket is `away`.
          AND (NOT is_cell OR (SELECT b.state FROM cell_buckets b WHERE b.bucket = issuing.bucket_of(e.user_id)::int2)
                              IN ('here', 'listing'))
        RETURNING e.id, e.due_at, e.user_id, e.payload, e.traceparent, e.retry_count, e.deferred_since, e.cancel_code,
                  e.lost_count, e.first_sent_at, e.last_sent_at, due.first_sent_at AS sent_before,
                  e.deferral_count, e.deferral_code, due.updated_at AS changed_before, e.held_end, e.held_end_code,
                  e.issuer_parameters, e.created_at, e.sent_to
    ), ends AS MATERIALIZED (
        SELECT c.* FROM (SELECT count(*) AS n FROM held) g
        CROSS JOIN LATERAL issuing.claim_ends(new_token, most - g.n, lease_ms, worker, false) c
        WHERE makes_ends AND NOT is_ordered
    )
    SELECT h.id, h.user_id,
           -- What cannot be a request is not unpacked: one such row must not take a worker's memory.
           CASE WHEN pg_column_size(h.payload) <= 262144 THEN h.payload::text END,
           h.traceparent, h.retry_count,
           CASE WHEN h.sent_before IS NOT NULL
                THEN (extract(epoch FROM now() - greatest(h.first_sent_at, 'epoch')) * 1000)::int8 END,
           (extract(epoch FROM now() - greatest(h.deferred_since, CASE WHEN h.deferred_since IS NOT NULL
                                                                       THEN timestamptz 'epoch' END)) * 1000)::int8,
           (c.found).id, (c.found).issuer_card_id, (c.found).last4, (c.found).exp_month, (c.found).exp_year,
           (c.found).status,
           r.issuer_card_id, h.cancel_code, NULL::int8,
           CASE WHEN h.sent_before IS NOT NULL
                THEN (extract(epoch FROM now() - greatest(coalesce(h.last_sent_at, h.first_sent_at), 'epoch'))
                      * 1000)::int8 END,
           h.lost_count, NULL::int8,
           h.deferral_count, h.deferral_code,
           (extract(epoch FROM now() - least(greatest(h.changed_before, 'epoch'), now())) * 1000)::int8,
           h.held_end, h.held_end_code, h.issuer_parameters::text,
           (extract(epoch FROM least(greatest(h.created_at, 'epoch'), now())) * 1000)::int8, NULL::bool,
           h.sent_to IS DISTINCT FROM speaks_to OR coalesce(r.issuer <> speaks_to, false)
    FROM held h
    -- Looked for only where there can be one.
    CROSS JOIN LATERAL (SELECT CASE WHEN h.sent_before IS NOT NULL AND of_type = 'CARD_ISSUE'
                                    THEN issuing.card_of(h.id) END AS found OFFSET 0) c
    CROSS JOIN LATERAL (SELECT CASE WHEN of_type = 'CARD_ISSUE' AND h.payload ->> 'replaces' IS NOT NULL
                                    THEN issuing.issuer_card_id_of(h.user_id, h.payload ->> 'replaces')
                               END AS issuer_card_id,
                               CASE WHEN of_type = 'CARD_ISSUE' AND h.payload ->> 'replaces' IS NOT NULL
                                    THEN issuing.issuer_of_card(h.user_id, h.payload ->> 'replaces')
                               END AS issuer OFFSET 0) r
    UNION ALL
    SELECT c.id, c.user_id, c.payload, c.traceparent, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, 0, NULL, 0, NULL, (extract(epoch FROM now() - c.created_at) * 1000)::int8, NULL, NULL, NULL,
           (extract(epoch FROM greatest(c.created_at, 'epoch')) * 1000)::int8, NULL, false
    FROM ends c
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           CASE WHEN NOT alone AND NOT is_chosen
                THEN (extract(epoch FROM CASE WHEN is_ordered THEN greatest(least(ordered_since, now() - slack),
                                                                       timestamptz 'epoch' - interval '1 microsecond')
                                              WHEN count(*) < due_most THEN least(now() - slack, until)
                                              ELSE coalesce(max(greatest(h.due_at, timestamptz 'epoch'
                                                                                   - interval '1 microsecond')),
                                                            greatest(since, timestamptz 'epoch'
                                                                            - interval '1 microsecond')) END)
                      * 1000000)::int8 END,
           NULL,
           CASE WHEN EXISTS (SELECT FROM lost_events) AND issuing.lost_is_due(alone_id, of_type) THEN 1 ELSE 0 END,
           (extract(epoch FROM now()) * 1000000)::int8,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           CASE WHEN is_chosen THEN coalesce(cardinality(named), 0) + (SELECT count(*) FROM ends) >= most
                WHEN is_ordered THEN coalesce(ordered_is_filled, false)
                ELSE count(*) >= due_most OR count(*) + (SELECT count(*) FROM ends) >= most
                     OR until < now() END AND NOT alone,
           NULL::bool
    -- What was looked at, not what was handed out: the bookmark passes an event that was left behind.
    FROM due h;
END
$$;

CREATE OR REPLACE FUNCTION issuing.complete(
    ids uuid[], tokens uuid[], worker text, tooks_ms int8[],
    step text,      -- of all of them
    results text[]) -- answers to keep; null = none
RETURNS TABLE (id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    IF step <> 'link' THEN
        PERFORM lock_order(ids);
    END IF;
    RETURN QUERY
    WITH completed AS (
        UPDATE outbox_events e
        SET status = 'COMPLETED', lease_token = NULL, lease_until = NULL, deferred_since = NULL, deferral_count = 0,
            deferral_code = NULL, last_error = NULL, reason_code = NULL, reason_detail = NULL, completed_at = now(),
            updated_at = now(),
            result = CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) ELSE e.result END
        FROM unnest(ids, tokens, tooks_ms, results) AS a (id, token, took_ms, result)
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, a.token, a.took_ms, e.event_type, e.created_at, e.ends
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                     step, outcome)
        SELECT d.id, d.token, now() - d.took_ms * interval '1 millisecond', now(), d.retry_count, false, d.user_id,
               worker, step, 'completed'
        FROM completed d
    ), counted AS (
        -- One row, because a group for each type costs more than all else here.
        INSERT INTO statistics_changes (ended_at, event_type, event_types, status, reason_code, created_ats, count)
        SELECT now(), min(d.event_type),
               CASE WHEN min(d.event_type) <> max(d.event_type) THEN array_agg(d.event_type) END,
               'COMPLETED', '', array_agg(d.created_at), 1
        FROM completed d
        HAVING count(*) > 0
    ), told AS (
        INSERT INTO ends_to_tell (ended_at, ids, is_again)
        SELECT now(), array_agg(d.id), bool_or(d.ends IS NOT NULL)
        FROM completed d
        WHERE step = 'link' AND EXISTS (SELECT FROM routes r WHERE r.event_type = 'CARD_REQUEST_ENDED')
        HAVING count(*) > 0
    )
    SELECT d.id FROM completed d;
    IF step <> 'link' THEN
        PERFORM wake_held(ids);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION issuing.end_attempts(
    ids uuid[], tokens uuid[], statuses text[],
    delays_ms int8[],      -- PENDING: before the next attempt
    give_backs bool[],     -- a deferral: the attempt is not counted
    clear_sents bool[],    -- nothing was ever sent that may have arrived
    deferreds bool[],      -- true: starts or continues a row of 409/425 answers
    reason_codes text[], reason_details text[], last_errors text[],
    steps text[], outcomes text[], codes text[], details text[], unknowns bool[], -- of the attempt's row
    worker text, tooks_ms int8[],
    card_statuses text[],  -- what the request's card becomes; null = leave
    replaced_ids uuid[],   -- the card that a completed reissue replaces; null = none
    may_arrives bool[],    -- a create of this attempt may still be on its way to the issuer
    -- PENDING: the end that waits until no create can arrive any more; null = none does
    held_ends text[], held_end_codes text[],
    parameters text[],     -- JSON objects: kept where the event keeps none yet; null = none
    results text[])        -- answers to keep; null = none
RETURNS TABLE (id uuid)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM lock_order(ids);
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT *, a.code !~ '^(issuer|core|route)_' AS is_ours
        FROM unnest(ids, tokens, statuses, delays_ms, give_backs, clear_sents, deferreds, reason_codes, reason_details,
                    last_errors, steps, outcomes, codes, details, unknowns, tooks_ms, card_statuses, replaced_ids,
                    may_arrives, held_ends, held_end_codes, parameters, results)
            AS a (id, token, status, delay_ms, give_back, clear_sent, deferred, reason_code, reason_detail, last_error,
                  step, outcome, code, detail, unknown, took_ms, card_status, replaced, may_arrive, held_end,
                  held_end_code, parameters, result)
    ), changed AS (
        UPDATE outbox_events e
        SET status = a.status,
            lease_token = NULL,
            lease_until = NULL,
            retry_count = e.retry_count - CASE WHEN a.give_back THEN 1 ELSE 0 END,
            next_attempt_at = CASE WHEN a.status = 'PENDING' THEN now() + a.delay_ms * interval '1 millisecond'
                                   ELSE e.next_attempt_at END,
            -- Only what the claim of this attempt has set: an earlier attempt's send is not this one's to forget.
            first_sent_at = CASE WHEN a.clear_sent AND e.first_sent_at = e.updated_at AND e.last_sent_at IS NULL
                                 THEN NULL ELSE e.first_sent_at END,
            sent_to = CASE WHEN NOT a.clear_sent OR e.last_sent_at IS NOT NULL OR e.first_sent_at <> e.updated_at
                           THEN e.sent_to END,
            last_sent_at = CASE WHEN a.may_arrive THEN now() ELSE e.last_sent_at END,
            held_end = a.held_end, held_end_code = a.held_end_code,
            lost_count = 0,
            deferred_since = CASE WHEN a.deferred THEN coalesce(e.deferred_since, now()) END,
            deferral_count = CASE WHEN NOT a.give_back THEN 0
                                  WHEN a.code = e.deferral_code THEN least(e.deferral_count, 999999) + 1
                                  WHEN a.is_ours AND e.deferral_code ~ '^(issuer|core|route)_' THEN e.deferral_count
                                  ELSE 1 END,
            deferral_code = CASE WHEN NOT a.give_back THEN NULL
                                 WHEN a.is_ours AND e.deferral_code ~ '^(issuer|core|route)_' THEN e.deferral_code
                                 ELSE a.code END,
            reason_code = a.reason_code,
            reason_detail = a.reason_detail,
            last_error = a.last_error,
            -- Before another attempt core-api is asked anew, where certainly nothing was sent with these.
            issuer_parameters = CASE WHEN a.clear_sent AND a.status <> 'REJECTED' AND e.last_sent_at IS NULL
                                         AND e.first_sent_at = e.updated_at
                                     THEN NULL ELSE coalesce(e.issuer_parameters, a.parameters::jsonb) END,
            result = CASE WHEN a.result IS NOT NULL THEN kept_result(a.result) ELSE e.result END,
            completed_at = CASE WHEN a.status <> 'PENDING' THEN now() END,
            updated_at = now()
        FROM asked a
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, e.deferral_count, e.deferral_code, e.status, e.reason_code,
                  e.event_type, e.created_at
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker,
                                     step, outcome, code, detail)
        SELECT d.id, a.token, now() - a.took_ms * interval '1 millisecond', now(),
               d.retry_count + CASE WHEN a.give_back THEN 1 ELSE 0 END, a.unknown, d.user_id, worker, a.step, a.outcome,
               a.code, a.detail
        FROM changed d JOIN asked a ON a.id = d.id
        WHERE NOT (a.give_back AND (d.deferral_count > 1 OR d.deferral_code IS DISTINCT FROM a.code))
        ON CONFLICT DO NOTHING
    ), counted AS (
        INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)
        SELECT now(), d.event_type, d.status, coalesce(d.reason_code, ''), array_agg(d.created_at), 1
        FROM changed d
        WHERE d.status <> 'PENDING'
        GROUP BY d.event_type, d.status, d.reason_code
    ), card_changed AS (
        UPDATE cards c SET status = a.card_status, updated_at = now()
        FROM changed d JOIN asked a ON a.id = d.id
        WHERE a.card_status IS NOT NULL AND c.request_id = d.id
    ), card_replaced AS (
        UPDATE cards c SET status = 'replaced', updated_at = now()
        FROM changed d JOIN asked a ON a.id = d.id
        WHERE a.replaced IS NOT NULL AND c.id = a.replaced AND c.user_id = d.user_id AND c.status = 'active'
    )
    SELECT d.id FROM changed d;
    IF EXISTS (SELECT FROM routes) THEN
        PERFORM wake_held(ARRAY(SELECT u.id FROM unnest(ids, statuses) AS u (id, status)
                                WHERE u.status IN ('COMPLETED', 'REJECTED')));
        PERFORM tell_ends(ids, now());
    END IF;
END
$$;
