-- Why: the statements that every attempt runs, as functions: their plans are cached with the connection and yet depend on nothing in it,
-- so a transaction pooler may stand between. Locks: ACCESS EXCLUSIVE on outbox_events for the new columns, for a moment. Older programs: they do not
-- know these functions and columns and go on as before.
-- The planner switches keep the index paths even where statistics were taken on an empty table.

ALTER TABLE issuing.outbox_events
    ADD COLUMN last_sent_at   timestamptz,           -- no create that may still arrive left after this time; NULL with first_sent_at = the first one
    ADD COLUMN lost_count     int NOT NULL DEFAULT 0, -- attempts in a row that were lost with their worker
    ADD COLUMN deferral_count int NOT NULL DEFAULT 0, -- deferrals in a row with the same cause
    ADD COLUMN deferral_code  text,                   -- that cause
    ADD COLUMN held_end       text,                   -- PENDING: refused, ineligible, ...: the end, once no create can arrive any more (worker/flow.h)
    ADD COLUMN held_end_code  text;                   -- its reason code

-- Events whose last two attempts were lost with their worker: the event may be what kills it. Each is tried alone, so that it takes no others along. A row
-- may outlive its cause; a later claim of that kind removes it then, but never before no sweep can be at work that has just found a cause for it: without
-- its row such an event would be claimed by nobody. `since`: of the last such sweep.
CREATE TABLE issuing.lost_events (
    event_id uuid PRIMARY KEY,
    since    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What few claimed events need to have looked up. Functions of their own and not joins in the statement: those would make every claim pay for getting
-- them ready. STABLE, so each sees what the statement sees.

-- Tells listeners on a channel that there is something to look at.
CREATE FUNCTION issuing.hint(channel text) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
    AS $$ SELECT pg_notify(channel, '') $$;

-- The card of an event, where one is stored already, without its number: a worker never needs to read one.
CREATE FUNCTION issuing.card_of(event uuid) RETURNS issuing.cards
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        card cards;
    BEGIN
        SELECT c.id, c.request_id, c.created_at, c.updated_at, c.replaces, c.exp_month, c.exp_year, c.user_id, c.issuer_card_id, c.last4, c.status, NULL::bytea
        INTO card FROM cards c WHERE c.request_id = event;
        RETURN card;
    END
    $$;

-- The issuer's id of a card of this user; null = there is none.
CREATE FUNCTION issuing.issuer_card_id_of(holder text, card text) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN (SELECT c.issuer_card_id FROM cards c WHERE c.user_id = holder AND c.id::text = lower(card));
    END
    $$;

-- Whether an event, other than this one, waits to be tried alone and is due.
CREATE FUNCTION issuing.lost_is_due(but uuid) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
    BEGIN
        RETURN EXISTS (SELECT FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
                       WHERE e.event_type = 'CARD_ISSUE' AND e.status = 'PENDING' AND e.due_at <= now() AND e.lost_count >= 2
                         AND e.id IS DISTINCT FROM but);
    END
    $$;

-- PENDING events that are due, oldest due first, by outbox_events_due. SKIP LOCKED: two workers never wait for each other and never get the same
-- row. The token is the fence: whoever took the event before matches no row any more. The attempt is counted here, so a crash cannot run it for
-- free; first_sent_at is set here, so a crash right after counts as "may have been sent" without a write before the send.
--
-- Clocks step. A row that was written by a clock that was ahead bears times that are still to come; the claim moves the times of such a row back by as
-- much as its last write is ahead, so that its ages stay what they were. No age is ever negative; null alone means "nothing was sent". A time that no
-- clock has ever shown counts as 1970 or as 1000 years to come: one such row must not stop the claims of all others.
--
-- The walk begins at a bookmark, not at the beginning of the index: there lie the entries of all that was finished since the last vacuum, or since the
-- oldest snapshot that somebody holds, and each would be visited every time. The last row of the answer has no id and carries the next bookmark: the
-- last time taken, or a little before now when everything due was taken; below 0 = from the beginning. What commits behind it, outbox_sweep finds.
--
-- An event whose last two attempts were lost with their worker is passed over, and taken by a claim with `alone`: at most one, and the worker that
-- asks so has nothing else in its hands.
CREATE FUNCTION issuing.claim(new_token uuid, most int8, lease_ms int8, worker text,
                              since_us int8,     -- the bookmark: microseconds since 1970; null = from the beginning
                              slack_ms int8,     -- so long a commit may take to become visible without being left to the sweep
                              alone bool)
RETURNS TABLE (
    id uuid, user_id text, payload text, traceparent text, retry_count int4,
    sent_age_ms int8,     -- age of the first send that may have arrived; null = surely none
    deferred_age_ms int8, -- of the unbroken row of 409/425 answers; null = none
    card_id uuid, issuer_card_id text, last4 text, exp_month int2, exp_year int2, card_status text, -- the card, where it is stored already
    replaces_issuer_card_id text, -- reissue: the issuer's id of the card to replace
    cancel_code text,             -- an earlier attempt had begun to cancel the card
    next_since_us int8,           -- of the last row: the next bookmark; null = unchanged
    settle_age_ms int8,           -- age of the last send that may still be on its way; null = there is none
    lost_count int4,              -- of the last row: 1 = there are events to be tried alone that are due, else 0
    now_us int8,                  -- of the last row: the database's clock
    deferral_count int4, deferral_code text, -- deferrals in a row for the same cause, and that cause
    changed_age_ms int8,          -- since the row last changed: for an event that was deferred or failed, since then
    held_end text, held_end_code text) -- the end that waits until no create can arrive any more
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
BEGIN
    IF alone THEN
        DELETE FROM lost_events l
        WHERE l.since < now() - interval '1 minute'
          AND NOT EXISTS (SELECT FROM outbox_events e WHERE e.id = l.event_id AND e.due_at IS NOT NULL AND e.lost_count >= 2);
        SELECT e.id INTO alone_id
        FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
        WHERE e.event_type = 'CARD_ISSUE' AND e.status = 'PENDING' AND e.due_at <= now() AND e.lost_count >= 2
        ORDER BY e.due_at
        LIMIT 1
        FOR UPDATE OF e SKIP LOCKED;
    END IF;
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT e.id, e.first_sent_at, e.updated_at, CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now() ELSE interval '0' END AS ahead
        FROM outbox_events e
        WHERE NOT alone AND e.event_type = 'CARD_ISSUE' AND e.due_at >= since AND e.due_at <= now() AND e.status = 'PENDING' AND e.lost_count < 2
        ORDER BY e.due_at
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ), one AS MATERIALIZED (
        SELECT e.id, e.first_sent_at, e.updated_at, CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now() ELSE interval '0' END AS ahead
        FROM outbox_events e
        WHERE alone AND e.id = alone_id
    ), held AS (
        UPDATE outbox_events e
        SET status = 'PROCESSING', retry_count = least(e.retry_count + 1, 1000000), lease_token = new_token, lease_owner = worker,
            lease_until = now() + lease_ms * interval '1 millisecond',
            first_sent_at = least(coalesce(e.first_sent_at - due.ahead, now()), now()),
            last_sent_at = CASE WHEN e.last_sent_at IS NOT NULL THEN least(e.last_sent_at - due.ahead, now()) END,
            deferred_since = CASE WHEN e.deferred_since IS NOT NULL THEN least(e.deferred_since - due.ahead, now()) END,
            updated_at = now()
        FROM (SELECT * FROM due UNION ALL SELECT * FROM one) due
        WHERE e.id = due.id
        RETURNING e.id, e.due_at, e.user_id, e.payload, e.traceparent, e.retry_count, e.deferred_since, e.cancel_code, e.lost_count,
                  e.first_sent_at, e.last_sent_at, due.first_sent_at AS sent_before,
                  e.deferral_count, e.deferral_code, due.updated_at AS changed_before, e.held_end, e.held_end_code
    )
    SELECT h.id, h.user_id,
           -- What cannot be a request is not unpacked: one such row must not take a worker's memory.
           CASE WHEN pg_column_size(h.payload) <= 262144 THEN h.payload::text END,
           h.traceparent, h.retry_count,
           CASE WHEN h.sent_before IS NOT NULL THEN (extract(epoch FROM now() - greatest(h.first_sent_at, 'epoch')) * 1000)::int8 END,
           (extract(epoch FROM now() - greatest(h.deferred_since, CASE WHEN h.deferred_since IS NOT NULL THEN timestamptz 'epoch' END)) * 1000)::int8,
           (c.found).id, (c.found).issuer_card_id, (c.found).last4, (c.found).exp_month, (c.found).exp_year, (c.found).status,
           r.issuer_card_id, h.cancel_code, NULL::int8,
           CASE WHEN h.sent_before IS NOT NULL THEN (extract(epoch FROM now() - greatest(coalesce(h.last_sent_at, h.first_sent_at), 'epoch')) * 1000)::int8 END,
           h.lost_count, NULL::int8,
           h.deferral_count, h.deferral_code, (extract(epoch FROM now() - least(greatest(h.changed_before, 'epoch'), now())) * 1000)::int8, h.held_end, h.held_end_code
    FROM held h
    -- Looked for only where there can be one.
    CROSS JOIN LATERAL (SELECT CASE WHEN h.sent_before IS NOT NULL THEN issuing.card_of(h.id) END AS found OFFSET 0) c
    CROSS JOIN LATERAL (SELECT CASE WHEN h.payload ->> 'replaces' IS NOT NULL
                                    THEN issuing.issuer_card_id_of(h.user_id, h.payload ->> 'replaces') END AS issuer_card_id OFFSET 0) r
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           CASE WHEN NOT alone
                THEN (extract(epoch FROM CASE WHEN count(*) < most THEN now() - slack_ms * interval '1 millisecond'
                                              ELSE max(greatest(h.due_at, timestamptz 'epoch' - interval '1 microsecond')) END) * 1000000)::int8 END,
           NULL, CASE WHEN EXISTS (SELECT FROM lost_events) AND issuing.lost_is_due(alone_id) THEN 1 ELSE 0 END, (extract(epoch FROM now()) * 1000000)::int8,
           NULL, NULL, NULL, NULL, NULL
    FROM held h;
END
$$;

-- Stores the cards of attempts that still hold their lease. The lock on the event row keeps a re-claim out until this commits, and the token in the
-- condition turns a stale worker's save into nothing. cards_one_per_request makes a second save of the same event harmless. Returns the events
-- whose card is stored now, by this call or an earlier run of it, and that card's id.
CREATE FUNCTION issuing.save(ids uuid[], tokens uuid[], card_ids uuid[], issuer_card_ids text[], last4s text[], exp_months int8[], exp_years int8[],
                             number_records bytea[], replaced_ids uuid[])
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
        SELECT e.user_id, a.*
        FROM unnest(ids, tokens, card_ids, issuer_card_ids, last4s, exp_months, exp_years, number_records, replaced_ids)
            AS a (event_id, token, card_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
        JOIN outbox_events e ON e.id = a.event_id
        WHERE e.lease_token = a.token
        FOR NO KEY UPDATE OF e
    ), saved AS (
        INSERT INTO cards (id, request_id, user_id, issuer_card_id, last4, exp_month, exp_year, number_record, replaces)
        SELECT h.card_id, h.event_id, h.user_id, h.issuer_card_id, h.last4, h.exp_month, h.exp_year, h.number_record, h.replaces
        FROM held h
        ON CONFLICT (request_id) DO NOTHING
    )
    SELECT h.event_id, coalesce((SELECT c.id FROM cards c WHERE c.request_id = h.event_id), h.card_id)
    FROM held h;
END
$$;

-- The end that nearly every attempt has: linked, done, nothing else to write. What issuing.end_attempts would write, without what such an end never has.
-- The token is the fence: no row for an event = the lease was lost and nothing changes.
CREATE FUNCTION issuing.complete(ids uuid[], tokens uuid[], worker text, tooks_ms int8[])
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
    RETURN QUERY
    WITH completed AS (
        UPDATE outbox_events e
        SET status = 'COMPLETED', lease_token = NULL, lease_until = NULL, deferred_since = NULL, deferral_count = 0, deferral_code = NULL, last_error = NULL, reason_code = NULL,
            reason_detail = NULL, completed_at = now(), updated_at = now()
        FROM unnest(ids, tokens, tooks_ms) AS a (id, token, took_ms)
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, a.token, a.took_ms
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker, step, outcome)
        SELECT d.id, d.token, now() - d.took_ms * interval '1 millisecond', now(), d.retry_count, false, d.user_id, worker, 'link', 'completed'
        FROM completed d
    )
    SELECT d.id FROM completed d;
END
$$;

-- Every other end of attempts: completed with more to write, refused, failed, to be tried again, deferred. The token is the fence: no row for an event = the
-- lease was lost and nothing changes. Events of one call are disjoint (one attempt an event), so there is no lock order to keep.
--
-- Deferrals in a row for the same cause are counted, and only the first of them is a row in outbox_attempts. A cause of our own (breaker_open, drain ...)
-- says nothing about the event: it neither counts nor ends a row of answers of a peer, whose causes begin with the peer's name.
CREATE FUNCTION issuing.end_attempts(
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
    held_ends text[], held_end_codes text[]) -- PENDING: the end that waits until no create can arrive any more; null = none does
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
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT *, a.code !~ '^(issuer|core)_' AS is_ours
        FROM unnest(ids, tokens, statuses, delays_ms, give_backs, clear_sents, deferreds, reason_codes, reason_details, last_errors,
                    steps, outcomes, codes, details, unknowns, tooks_ms, card_statuses, replaced_ids, may_arrives, held_ends, held_end_codes)
            AS a (id, token, status, delay_ms, give_back, clear_sent, deferred, reason_code, reason_detail, last_error,
                  step, outcome, code, detail, unknown, took_ms, card_status, replaced, may_arrive, held_end, held_end_code)
    ), ended AS (
        UPDATE outbox_events e
        SET status = a.status,
            lease_token = NULL,
            lease_until = NULL,
            retry_count = e.retry_count - CASE WHEN a.give_back THEN 1 ELSE 0 END,
            next_attempt_at = CASE WHEN a.status = 'PENDING' THEN now() + a.delay_ms * interval '1 millisecond' ELSE e.next_attempt_at END,
            -- Only what the claim of this attempt has set: an earlier attempt's send is not this one's to forget.
            first_sent_at = CASE WHEN a.clear_sent AND e.first_sent_at = e.updated_at AND e.last_sent_at IS NULL THEN NULL ELSE e.first_sent_at END,
            last_sent_at = CASE WHEN a.may_arrive THEN now() ELSE e.last_sent_at END,
            held_end = a.held_end, held_end_code = a.held_end_code,
            lost_count = 0,
            deferred_since = CASE WHEN a.deferred THEN coalesce(e.deferred_since, now()) END,
            deferral_count = CASE WHEN NOT a.give_back THEN 0
                                  WHEN a.code = e.deferral_code THEN least(e.deferral_count, 999999) + 1
                                  WHEN a.is_ours AND e.deferral_code ~ '^(issuer|core)_' THEN e.deferral_count
                                  ELSE 1 END,
            deferral_code = CASE WHEN NOT a.give_back THEN NULL
                                 WHEN a.is_ours AND e.deferral_code ~ '^(issuer|core)_' THEN e.deferral_code
                                 ELSE a.code END,
            reason_code = a.reason_code,
            reason_detail = a.reason_detail,
            last_error = a.last_error,
            completed_at = CASE WHEN a.status <> 'PENDING' THEN now() END,
            updated_at = now()
        FROM asked a
        WHERE e.id = a.id AND e.lease_token = a.token
        RETURNING e.id, e.user_id, e.retry_count, e.deferral_count, e.deferral_code
    ), noted AS (
        INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker, step, outcome, code, detail)
        SELECT d.id, a.token, now() - a.took_ms * interval '1 millisecond', now(),
               d.retry_count + CASE WHEN a.give_back THEN 1 ELSE 0 END, a.unknown, d.user_id, worker, a.step, a.outcome, a.code, a.detail
        FROM ended d JOIN asked a ON a.id = d.id
        WHERE NOT (a.give_back AND (d.deferral_count > 1 OR d.deferral_code IS DISTINCT FROM a.code))
        ON CONFLICT DO NOTHING
    ), card_changed AS (
        UPDATE cards c SET status = a.card_status, updated_at = now()
        FROM ended d JOIN asked a ON a.id = d.id
        WHERE a.card_status IS NOT NULL AND c.request_id = d.id
    ), card_replaced AS (
        UPDATE cards c SET status = 'replaced', updated_at = now()
        FROM ended d JOIN asked a ON a.id = d.id
        WHERE a.replaced IS NOT NULL AND c.id = a.replaced AND c.user_id = d.user_id AND c.status = 'active'
    )
    SELECT d.id FROM ended d;
END
$$;
