-- Why: operators change rows only through functions that write the audit row in the same statement, and the row says which database role acted by the
-- database's own word. What needs the issuer's word (reconcile, reissue) is a mark that a worker acts on: a look-up, then one guarded transaction.
-- Locks: ACCESS EXCLUSIVE on operator_actions for its new columns, for a moment. Older programs: an issuing-ctl of an older release can look, but no
-- longer change anything; a worker of an older release leaves the marks alone.
--
-- Every function here runs as the owner. Parameters of an action: actor (free text, for people), os_user and sudo_user (what the operating system says),
-- why. None of them is proof; db_role is, and no caller can set it.

ALTER TABLE issuing.operator_actions
    ADD COLUMN db_role   text, -- the login role of the session that acted, or that asked for it; NULL = before this column was there
    ADD COLUMN os_user   text, -- the user of the operating system
    ADD COLUMN sudo_user text; -- SUDO_USER, where it was set
ALTER TABLE issuing.operator_actions ALTER COLUMN db_role SET DEFAULT session_user;

-- Which event took the place of which, for ever: the constraint that no event is reissued twice.
CREATE TABLE issuing.event_reissues (
    old_id uuid PRIMARY KEY,
    new_id uuid NOT NULL UNIQUE,
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Marks: "look this event up at the issuer, and act". A worker takes a mark under a lease and a token, as it takes an event.
CREATE TABLE issuing.peer_checks (
    id           uuid PRIMARY KEY DEFAULT issuing.uuid7(),
    event_id     uuid NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline_at  timestamptz NOT NULL, -- then the result is `undecided`
    due_at       timestamptz NOT NULL DEFAULT now(), -- not before; while a worker has it: the end of the lease
    due_set_at   timestamptz NOT NULL DEFAULT now(), -- when due_at was set: still to come = by a clock that was ahead
    orphan_at    timestamptz, -- REJECTED: a live card was found, and is cancelled from then on
    finished_at  timestamptz,
    lease_token  uuid,
    new_id       uuid, -- reissued: the new event
    attempts     int NOT NULL DEFAULT 0,
    action       text NOT NULL CHECK (action IN ('reconcile', 'reissue')),
    actor        text NOT NULL,
    db_role      text NOT NULL DEFAULT session_user,
    os_user      text,
    sudo_user    text,
    reason       text,
    worker       text, -- which one has it or last had it
    result       text,
    detail       text, -- with a result: more of it. Without: why the last try did not decide
    CONSTRAINT peer_checks_end CHECK ((finished_at IS NULL) = (result IS NULL))
);
CREATE UNIQUE INDEX peer_checks_event ON issuing.peer_checks (event_id) WHERE finished_at IS NULL; -- one unfinished mark an event
CREATE INDEX peer_checks_due ON issuing.peer_checks (due_at) WHERE finished_at IS NULL;            -- take_checks
CREATE INDEX peer_checks_finished ON issuing.peer_checks (finished_at) WHERE finished_at IS NOT NULL; -- take_checks: what is old goes

-- ---- what the functions share; nobody else may call these ----

-- What an action changes, as the audit row shows it before and after.
CREATE FUNCTION issuing.state_of(e issuing.outbox_events) RETURNS jsonb
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT jsonb_build_object('status', e.status, 'retry_count', e.retry_count, 'lost_count', e.lost_count, 'deferral_count', e.deferral_count,
                                  'deferral_code', e.deferral_code, 'next_attempt_at', e.next_attempt_at, 'completed_at', e.completed_at,
                                  'first_sent_at', e.first_sent_at, 'reason_code', e.reason_code, 'reason_detail', e.reason_detail,
                                  'last_error', e.last_error, 'deferred_since', e.deferred_since)
    $$;

CREATE FUNCTION issuing.check_who(actor text, os_user text, sudo_user text, why text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        IF coalesce(btrim(actor), '') = '' OR coalesce(btrim(why, E' \t\r\n'), '') = '' THEN
            RAISE EXCEPTION 'an action needs an actor and a reason' USING ERRCODE = '22023';
        END IF;
        IF octet_length(actor) > 256 OR octet_length(os_user) > 256 OR octet_length(sudo_user) > 256 OR octet_length(why) > 4096 THEN
            RAISE EXCEPTION 'the actor or the reason of an action is too long' USING ERRCODE = '22001';
        END IF;
    END
    $$;

CREATE FUNCTION issuing.note_action(what text, before issuing.outbox_events, after issuing.outbox_events, actor text, os_user text, sudo_user text,
                                    why text, more jsonb)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM check_who(actor, os_user, sudo_user, why);
        INSERT INTO operator_actions (event_id, actor, os_user, sudo_user, action, reason, before, after)
        VALUES (before.id, actor, os_user, sudo_user, what, why, state_of(before), state_of(after) || coalesce(more, '{}'));
    END
    $$;

-- As note_action, in the name of whoever left a mark: the database role is the one that the database saw then.
CREATE FUNCTION issuing.note_check(what text, before issuing.outbox_events, after issuing.outbox_events, c issuing.peer_checks, more jsonb) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        INSERT INTO operator_actions (event_id, actor, db_role, os_user, sudo_user, action, reason, before, after)
        VALUES (before.id, c.actor, c.db_role, c.os_user, c.sudo_user, what, c.reason, state_of(before),
                state_of(after) || jsonb_build_object('worker', c.worker) || coalesce(more, '{}'))
    $$;

-- Whether the place of its card is this event's. An event that was REJECTED or whose payload could not be used may have lost it to another one. The lock
-- on the place makes the answer hold until the end of the transaction: the trigger on outbox_events takes the same one.
CREATE FUNCTION issuing.keeps_place(e issuing.outbox_events) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        place text := lower(e.payload ->> 'replaces');
        holder uuid;
    BEGIN
        IF e.event_type <> 'CARD_ISSUE' OR e.payload ->> 'kind' IS DISTINCT FROM 'reissue' OR place IS NULL THEN
            RETURN true;
        END IF;
        INSERT INTO card_reissues (event_id, user_id, card_id) VALUES (e.id, e.user_id, place) ON CONFLICT (user_id, card_id) DO NOTHING;
        SELECT r.event_id INTO holder FROM card_reissues r WHERE r.user_id = e.user_id AND r.card_id = place FOR UPDATE;
        RETURN holder = e.id;
    END
    $$;

-- Whether an open event may hold what this one holds (the range in 0005). One that was there before them may not, and then it stays FAILED or is
-- ended.
CREATE FUNCTION issuing.can_be_open(e issuing.outbox_events) RETURNS bool
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$ SELECT octet_length(e.payload::text) <= 65536 AND octet_length(e.user_id) BETWEEN 1 AND 128 $$;

-- FAILED -> PENDING, due at once by the clock that claims read; the tries start again, first_sent_at and last_sent_at stay. With a card that was found at
-- the issuer the event counts as sent, whatever the row says.
CREATE FUNCTION issuing.reopen(e issuing.outbox_events, was_found bool) RETURNS issuing.outbox_events
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        after outbox_events;
    BEGIN
        UPDATE outbox_events o
        SET status = 'PENDING', retry_count = 0, lost_count = 0, deferral_count = 0, deferral_code = NULL, deferred_since = NULL,
            held_end = NULL, held_end_code = NULL,
            next_attempt_at = now(), updated_at = clock_timestamp(), completed_at = NULL, reason_code = NULL, reason_detail = NULL, last_error = NULL,
            first_sent_at = CASE WHEN was_found THEN coalesce(o.first_sent_at, o.created_at) ELSE o.first_sent_at END
        WHERE o.id = e.id AND o.status = 'FAILED'
        RETURNING o.* INTO STRICT after;
        RETURN after;
    END
    $$;

CREATE FUNCTION issuing.reject(e issuing.outbox_events, code text, detail text) RETURNS issuing.outbox_events
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        after outbox_events;
    BEGIN
        UPDATE outbox_events o
        SET status = 'REJECTED', reason_code = code, reason_detail = detail, completed_at = clock_timestamp(), updated_at = clock_timestamp()
        WHERE o.id = e.id AND o.status = e.status
        RETURNING o.* INTO STRICT after;
        RETURN after;
    END
    $$;

-- How long ago the last send left that may still arrive, in ms; NULL = surely nothing was sent.
CREATE FUNCTION issuing.sent_age_ms(e issuing.outbox_events) RETURNS int8
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$ SELECT (extract(epoch FROM now() - coalesce(e.last_sent_at, e.first_sent_at)) * 1000)::int8 WHERE e.first_sent_at IS NOT NULL $$;

CREATE FUNCTION issuing.has_card(event uuid) RETURNS bool
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$ SELECT EXISTS (SELECT FROM cards c WHERE c.request_id = event AND c.status <> 'cancelled') $$;

-- ---- what operators do: one row when the event is there, with the event as it is then; refused NULL = it was done ----

-- The row lock comes first and every condition is checked on the newest version of the row, so of two operators one acts. seen_us: updated_at of the state
-- that was chosen, in microseconds; NULL = any state.
CREATE FUNCTION issuing.replay(event uuid, seen_us int8, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, event_row issuing.outbox_events)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before outbox_events;
BEGIN
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = event FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    event_row := before;
    IF before.status <> 'FAILED' THEN
        refused := 'not_failed';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    ELSIF NOT can_be_open(before) THEN
        refused := 'out_of_range';
    ELSIF NOT keeps_place(before) THEN
        refused := 'place_taken';
    ELSE
        event_row := reopen(before, false);
        PERFORM note_action('replay', before, event_row, actor, os_user, sudo_user, why, NULL);
    END IF;
    RETURN NEXT;
END
$$;

-- PENDING -> REJECTED `cancelled`, only while surely nothing was sent. A claim that is quicker wins (a claim sets first_sent_at). detail: what the user may
-- read.
CREATE FUNCTION issuing.cancel(event uuid, seen_us int8, detail text, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, event_row issuing.outbox_events)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before outbox_events;
BEGIN
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = event FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    event_row := before;
    IF before.status = 'PROCESSING' THEN
        refused := 'processing';
    ELSIF before.status <> 'PENDING' THEN
        refused := 'not_pending';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    ELSIF EXISTS (SELECT FROM cards c WHERE c.request_id = event) THEN
        refused := 'card';
    ELSIF before.first_sent_at IS NOT NULL THEN
        refused := 'sent';
    ELSE
        event_row := reject(before, 'cancelled', left(detail, 1000));
        PERFORM note_action('cancel', before, event_row, actor, os_user, sudo_user, why, NULL);
    END IF;
    RETURN NEXT;
END
$$;

-- FAILED -> REJECTED `resolved`: the operator answers the question. Over an outcome that is unknown only when the operator confirms that there is no card,
-- and when no create may still be under way; over a stored card never.
CREATE FUNCTION issuing.resolve(event uuid, seen_us int8, no_card_confirmed bool, settle_ms int8, detail text, actor text, os_user text,
                                sudo_user text, why text)
RETURNS TABLE (refused text, event_row issuing.outbox_events)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before outbox_events;
BEGIN
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = event FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    event_row := before;
    IF before.status <> 'FAILED' THEN
        refused := 'not_failed';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    ELSIF has_card(event) THEN
        refused := 'card';
    ELSIF before.first_sent_at IS NOT NULL AND no_card_confirmed IS NOT TRUE THEN
        refused := 'unknown';
    ELSIF sent_age_ms(before) < settle_ms THEN
        refused := 'settling';
    ELSE
        event_row := reject(before, 'resolved', left(detail, 1000));
        PERFORM note_action('resolve', before, event_row, actor, os_user, sudo_user, why,
                            jsonb_build_object('no_card_confirmed', no_card_confirmed IS TRUE));
    END IF;
    RETURN NEXT;
END
$$;

-- Leaves a mark, or joins the unfinished one of this event. Changes no event.
CREATE FUNCTION issuing.ask_reconcile(event uuid, within_ms int8, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, check_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    deadline timestamptz := now() + least(greatest(within_ms, 0), 86400000) * interval '1 millisecond';
    kind text;
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    SELECT e.event_type INTO kind FROM outbox_events e WHERE e.id = event;
    IF kind IS NULL THEN
        refused := 'not_found';
    ELSIF kind <> 'CARD_ISSUE' THEN
        refused := 'other_type';
    ELSE
        INSERT INTO peer_checks AS p (event_id, deadline_at, action, actor, os_user, sudo_user, reason)
        VALUES (event, deadline, 'reconcile', actor, os_user, sudo_user, why)
        ON CONFLICT (event_id) WHERE finished_at IS NULL
        DO UPDATE SET deadline_at = greatest(p.deadline_at, excluded.deadline_at),
                      due_at = CASE WHEN p.lease_token IS NULL THEN least(p.due_at, now()) ELSE p.due_at END,
                      due_set_at = CASE WHEN p.lease_token IS NULL THEN now() ELSE p.due_set_at END
        RETURNING p.id INTO check_id;
    END IF;
    RETURN NEXT;
END
$$;

-- Leaves the mark of a reissue. `busy`: another mark of this event is not finished.
CREATE FUNCTION issuing.ask_reissue(event uuid, within_ms int8, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, check_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    e outbox_events;
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    SELECT o.* INTO e FROM outbox_events o WHERE o.id = event;
    IF e.id IS NULL THEN
        refused := 'not_found';
    ELSIF e.event_type <> 'CARD_ISSUE' THEN
        refused := 'other_type';
    ELSIF EXISTS (SELECT FROM event_reissues r WHERE r.old_id = event) THEN
        refused := 'reissued';
    ELSIF e.status <> 'FAILED' THEN
        refused := 'not_failed';
    ELSIF EXISTS (SELECT FROM cards c WHERE c.request_id = event) THEN
        refused := 'card';
    ELSIF e.reason_code = 'payload_invalid' OR NOT can_be_open(e) THEN
        refused := 'payload_invalid';
    ELSE
        INSERT INTO peer_checks AS p (event_id, deadline_at, action, actor, os_user, sudo_user, reason)
        VALUES (event, now() + least(greatest(within_ms, 0), 86400000) * interval '1 millisecond', 'reissue', actor, os_user, sudo_user, why)
        ON CONFLICT (event_id) WHERE finished_at IS NULL DO NOTHING
        RETURNING p.id INTO check_id;
        IF check_id IS NULL THEN
            refused := 'busy';
        END IF;
    END IF;
    RETURN NEXT;
END
$$;

-- Takes a mark back; what a worker does under it meanwhile finds the mark finished and changes nothing. Returns the result, which is the worker's where the
-- worker was quicker.
CREATE FUNCTION issuing.withdraw_check(check_id uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    found_result text;
BEGIN
    UPDATE peer_checks p SET finished_at = clock_timestamp(), result = 'withdrawn', lease_token = NULL
    WHERE p.id = check_id AND p.finished_at IS NULL;
    SELECT p.result INTO found_result FROM peer_checks p WHERE p.id = check_id;
    RETURN found_result;
END
$$;

-- ---- what workers do ----

-- A worker asks for a look at an event: a create of an attempt that had lost its lease may have made a card that nobody holds, whatever the event's status
-- is by now. The send is noted, so that no "not found" is believed before it has settled, neither by the flow nor by the mark. An unfinished
-- mark of the event begins anew: what its worker has seen may be older than the card. False: no such event.
CREATE FUNCTION issuing.ask_check(event uuid, why text) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    INSERT INTO peer_checks AS p (event_id, deadline_at, action, actor, reason)
    SELECT e.id, now() + interval '365 days', 'reconcile', 'worker', left(why, 1000)
    FROM outbox_events e WHERE e.id = event AND e.event_type = 'CARD_ISSUE'
    ON CONFLICT (event_id) WHERE finished_at IS NULL
    DO UPDATE SET deadline_at = greatest(p.deadline_at, excluded.deadline_at), due_at = now(), lease_token = NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- After the mark, as end_check locks the two.
    UPDATE outbox_events e SET last_sent_at = now(), first_sent_at = coalesce(e.first_sent_at, now())
    WHERE e.id = event AND e.event_type = 'CARD_ISSUE' AND e.status <> 'COMPLETED';
    RETURN true;
END
$$;

-- Marks that are due, under a lease; SKIP LOCKED, so two workers never get the same one. What is past its deadline ends here, as does what is long finished.
-- A mark waits for the end of an attempt during which another send was noted: that attempt does not know of it and may end the event over it.
CREATE FUNCTION issuing.take_checks(new_token uuid, most int8, lease_ms int8, worker_name text)
RETURNS TABLE (
    id uuid, event_id uuid, action text, attempts int4, has_orphan bool,
    status text, user_id text,            -- null = the event is gone
    seen_us int8,                         -- updated_at of the state that is judged
    sent_age_ms int8,                     -- of the last send that may still arrive; null = surely nothing was sent
    card_id uuid, issuer_card_id text, card_status text) -- the stored card
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    due uuid[];
BEGIN
    DELETE FROM peer_checks p
    WHERE p.id IN (SELECT o.id FROM peer_checks o WHERE o.finished_at < now() - interval '7 days' LIMIT 100 FOR UPDATE SKIP LOCKED);
    -- A mark that a clock set which was ahead: due as much earlier, or nobody would look at it until that time has come.
    UPDATE peer_checks p SET due_at = p.due_at - (p.due_set_at - now()), due_set_at = now()
    WHERE p.id IN (SELECT o.id FROM peer_checks o
                   WHERE o.finished_at IS NULL AND o.due_at > now() AND o.due_set_at > now() + interval '1 second' FOR UPDATE SKIP LOCKED);
    due := ARRAY(SELECT p.id FROM peer_checks p
                 WHERE p.finished_at IS NULL AND p.due_at <= now()
                   -- A value and not EXISTS: this is asked once for each mark that is taken, not joined with all events.
                   AND (SELECT e.status = 'PROCESSING' AND e.last_sent_at > e.updated_at FROM outbox_events e WHERE e.id = p.event_id) IS NOT TRUE
                 ORDER BY p.due_at
                 LIMIT most
                 FOR UPDATE SKIP LOCKED);
    -- A send that bears a time still to come was noted by a clock that was ahead: it counts as sent now, so that it settles.
    UPDATE outbox_events e SET last_sent_at = least(e.last_sent_at, now()), first_sent_at = least(e.first_sent_at, now())
    WHERE e.id = ANY (ARRAY(SELECT p.event_id FROM peer_checks p WHERE p.id = ANY (due))) AND e.due_at IS NULL
      AND (e.last_sent_at > now() + interval '1 second' OR e.first_sent_at > now() + interval '1 second');
    RETURN QUERY
    WITH ended AS (
        UPDATE peer_checks p SET finished_at = clock_timestamp(), result = 'undecided', lease_token = NULL
        WHERE p.id = ANY (due) AND p.deadline_at <= now()
    ), held AS (
        UPDATE peer_checks p
        SET lease_token = new_token, due_at = now() + lease_ms * interval '1 millisecond', due_set_at = now(), attempts = p.attempts + 1, worker = worker_name
        WHERE p.id = ANY (due) AND p.deadline_at > now()
        RETURNING p.*
    )
    SELECT h.id, h.event_id, h.action, h.attempts, h.orphan_at IS NOT NULL, e.status, e.user_id, (extract(epoch FROM e.updated_at) * 1000000)::int8,
           issuing.sent_age_ms(e), (c.card).id, (c.card).issuer_card_id, (c.card).status
    FROM held h
    LEFT JOIN outbox_events e ON e.id = h.event_id
    CROSS JOIN LATERAL (SELECT issuing.card_of(h.event_id) AS card OFFSET 0) c;
END
$$;

-- Not decided: tried again after the delay, or, where the deadline comes first, ended `undecided`. why: for people.
CREATE FUNCTION issuing.put_check_back(check_id uuid, token uuid, delay_ms int8, why text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
    UPDATE peer_checks p
    SET lease_token = NULL,
        due_at = now() + delay_ms * interval '1 millisecond',
        due_set_at = now(),
        detail = left(why, 1000),
        finished_at = CASE WHEN now() + delay_ms * interval '1 millisecond' >= p.deadline_at THEN clock_timestamp() END,
        result = CASE WHEN now() + delay_ms * interval '1 millisecond' >= p.deadline_at THEN 'undecided' END
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL
$$;

-- REJECTED, and the issuer has a live card: noted before it is cancelled, so that whoever goes on after a crash knows of it. False: the mark is lost.
CREATE FUNCTION issuing.note_orphan(check_id uuid, token uuid) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    UPDATE peer_checks p SET orphan_at = coalesce(p.orphan_at, clock_timestamp())
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL;
    RETURN FOUND;
END
$$;

-- The end of a mark, and what follows from it, in one transaction. The token is the fence: `fenced` = the mark is another worker's, or finished, and nothing
-- changes. `changed` = the event is no longer in the state that was judged: nothing changes, the mark is due again.
--   found                FAILED -> PENDING: the flow looks the card up, stores, links and completes it; `refused` where another event has its place, or
--                        where what the row holds may not be open
--   cancelled_at_issuer  FAILED -> REJECTED `card_cancelled`; with COMPLETED only told
--   duplicate            FAILED: reason `issuer_duplicate`; with COMPLETED only told
--   orphan_cancelled     REJECTED: the audit row, and the stored card's status
--   reissued             FAILED -> REJECTED `reissued`, and a new event with a key of its own in its place
--   all others           nothing but the mark
CREATE FUNCTION issuing.end_check(check_id uuid, token uuid, seen_us int8, found_result text, found_detail text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    c peer_checks;
    before outbox_events;
    after outbox_events;
    said text := found_detail;
    ended text := found_result;
    made uuid;
BEGIN
    SELECT p.* INTO c FROM peer_checks p WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;
    IF FOUND AND (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        UPDATE peer_checks p SET lease_token = NULL, due_at = now(), due_set_at = now(), detail = 'the event changed meanwhile' WHERE p.id = check_id;
        RETURN 'changed';
    END IF;
    IF (c.action = 'reissue') <> (found_result IN ('reissued', 'refused')) AND found_result NOT IN ('gone') THEN
        RAISE EXCEPTION 'a mark of % cannot end %', c.action, found_result USING ERRCODE = '22023';
    END IF;
    IF found_result = 'orphan_cancelled' AND before.status = 'REJECTED' THEN
        UPDATE cards k SET status = 'cancelled', updated_at = now() WHERE k.request_id = before.id AND k.status <> 'cancelled';
        PERFORM note_check('reconcile', before, before, c, jsonb_build_object('result', found_result, 'detail', found_detail));
    ELSIF before.status = 'FAILED' AND found_result IN ('found', 'cancelled_at_issuer', 'duplicate') THEN
        after := before;
        IF found_result = 'found' AND NOT can_be_open(before) THEN
            ended := 'refused';
            said := 'out_of_range';
        ELSIF found_result = 'found' AND keeps_place(before) THEN
            after := reopen(before, true);
        ELSIF found_result = 'found' THEN -- two live reissues of one card: a question
            ended := 'refused';
            said := 'place_taken';
        ELSIF found_result = 'cancelled_at_issuer' THEN
            UPDATE cards k SET status = 'cancelled', updated_at = now() WHERE k.request_id = before.id AND k.status <> 'cancelled';
            after := reject(before, 'card_cancelled', found_detail);
        ELSIF before.reason_code IS DISTINCT FROM 'issuer_duplicate' THEN
            UPDATE outbox_events e SET reason_code = 'issuer_duplicate', reason_detail = found_detail, updated_at = clock_timestamp()
            WHERE e.id = before.id
            RETURNING e.* INTO after;
        END IF;
        IF after IS DISTINCT FROM before THEN
            PERFORM note_check('reconcile', before, after, c, jsonb_build_object('result', found_result));
        END IF;
    ELSIF found_result = 'reissued' THEN
        IF before.status IS DISTINCT FROM 'FAILED' OR EXISTS (SELECT FROM cards k WHERE k.request_id = before.id) OR NOT keeps_place(before) THEN
            ended := 'refused';
            said := CASE WHEN before.status IS DISTINCT FROM 'FAILED' THEN 'not_failed'
                         WHEN EXISTS (SELECT FROM cards k WHERE k.request_id = before.id) THEN 'card'
                         ELSE 'place_taken' END;
        ELSE
            made := uuid7();
            INSERT INTO event_reissues (old_id, new_id) VALUES (before.id, made);
            after := reject(before, 'reissued', found_detail || ' ' || made);
            -- Only now, when the old event is REJECTED, does the trigger give the place of its card to the new one.
            INSERT INTO outbox_events (id, event_type, user_id, idempotency_key, payload, traceparent)
            VALUES (made, before.event_type, before.user_id, before.idempotency_key, before.payload, before.traceparent);
            PERFORM note_check('reissue', before, after, c, jsonb_build_object('new_id', made));
            said := NULL;
        END IF;
    END IF;
    UPDATE peer_checks p
    SET finished_at = clock_timestamp(), result = ended, detail = said, new_id = made, lease_token = NULL
    WHERE p.id = check_id;
    RETURN 'done';
END
$$;

-- ---- who may what ----

REVOKE ALL ON FUNCTION issuing.state_of(issuing.outbox_events), issuing.check_who(text, text, text, text),
    issuing.note_action(text, issuing.outbox_events, issuing.outbox_events, text, text, text, text, jsonb),
    issuing.note_check(text, issuing.outbox_events, issuing.outbox_events, issuing.peer_checks, jsonb), issuing.keeps_place(issuing.outbox_events),
    issuing.reopen(issuing.outbox_events, bool), issuing.reject(issuing.outbox_events, text, text), issuing.sent_age_ms(issuing.outbox_events),
    issuing.has_card(uuid), issuing.can_be_open(issuing.outbox_events),
    issuing.replay(uuid, int8, text, text, text, text), issuing.cancel(uuid, int8, text, text, text, text, text),
    issuing.resolve(uuid, int8, bool, int8, text, text, text, text, text), issuing.ask_reconcile(uuid, int8, text, text, text, text),
    issuing.ask_reissue(uuid, int8, text, text, text, text), issuing.withdraw_check(uuid),
    issuing.ask_check(uuid, text), issuing.take_checks(uuid, int8, int8, text), issuing.put_check_back(uuid, uuid, int8, text),
    issuing.note_orphan(uuid, uuid), issuing.end_check(uuid, uuid, int8, text, text)
FROM PUBLIC;
-- What grants.sql gave before. What the roles get instead is in grants.sql now, which runs after this.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_operator') THEN
        REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON issuing.outbox_events, issuing.operator_actions FROM issuing_operator;
        REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON public.outbox_events, public.operator_actions FROM issuing_operator;
    END IF;
END
$$;
