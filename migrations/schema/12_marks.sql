-- Marks: "look this event up at the issuer, and act", and checks of an issuer's settings. An operator or a worker
-- leaves a mark, a worker acts on it.

-- As note_action, in the name of whoever left a mark: the database role is the one that the database saw then.
CREATE OR REPLACE FUNCTION issuing.note_mark(what text, before issuing.outbox_events, after issuing.outbox_events,
    c issuing.marks, more jsonb) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
AS $$
    INSERT INTO operator_actions (event_id, actor, db_role, os_user, sudo_user, action, reason, before, after, batch,
                                  batch_scope)
    VALUES (before.id, c.actor, c.db_role, c.os_user, c.sudo_user, what, c.reason, state_of(before),
            state_of(after) || jsonb_build_object('worker', c.worker) || coalesce(more, '{}'), batch_id(c.batch),
            batch_scope(c.batch))
$$;

-- Ends an operator's mark that is past its deadline and that no worker holds. No worker may be running that would end
-- it, and it must not block the next mark.
CREATE OR REPLACE FUNCTION issuing.end_overdue(event uuid) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
AS $$
    UPDATE marks p SET finished_at = clock_timestamp(), result = 'undecided', lease_token = NULL
    -- guard: a mark that is overdue stands in nobody's way
    WHERE p.event_id = event AND p.finished_at IS NULL AND p.action <> 'look' AND p.deadline_at <= now()
      -- guard: a mark that a worker holds is not ended by an operator
      AND (p.lease_token IS NULL OR p.due_at <= now())
$$;

-- Leaves the mark of a look-up, or joins the one that is there: is_joined. `other_type`: nobody can be asked about
-- events of this type. `busy`: a mark of a reissue is not finished. within_ms: until its deadline, a day at most.
CREATE OR REPLACE FUNCTION issuing.ask_reconcile(
    event uuid, within_ms int8, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, check_id uuid, is_joined bool)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    made uuid := uuid7();
    deadline timestamptz := now() + least(greatest(within_ms, 0), 86400000) * interval '1 millisecond';
    kind text;
    can_be_asked bool;
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    SELECT e.event_type, e.event_type = 'CARD_ISSUE' OR r.has_lookup INTO kind, can_be_asked
    FROM outbox_events e LEFT JOIN routes r ON r.event_type = e.event_type
    WHERE e.id = event;
    IF kind IS NULL THEN
        refused := 'not_found';
    ELSIF can_be_asked IS NOT TRUE THEN
        refused := 'other_type';
    ELSE
        PERFORM end_overdue(event);
        INSERT INTO marks AS p (id, event_id, deadline_at, action, actor, os_user, sudo_user, reason)
        VALUES (made, event, deadline, 'reconcile', actor, os_user, sudo_user, why)
        ON CONFLICT (event_id, (action = 'look')) WHERE finished_at IS NULL
        -- guard: a mark that is joined keeps its deadline
        DO UPDATE SET due_at = CASE WHEN p.lease_token IS NULL THEN least(p.due_at, now()) ELSE p.due_at END,
                      due_set_at = CASE WHEN p.lease_token IS NULL THEN now() ELSE p.due_set_at END
        -- guard: a mark is joined by its own action only
        WHERE p.action = excluded.action
        RETURNING p.id INTO check_id;
        is_joined := check_id <> made;
        IF check_id IS NULL THEN
            refused := 'busy';
        END IF;
    END IF;
    RETURN NEXT;
END
$$;

-- Leaves the mark of a reissue. No other operator joins it. `busy`: another operator's mark of this event is not
-- finished. because: the new event says that the card is replaced for this reason; null = as the old one says.
CREATE OR REPLACE FUNCTION issuing.ask_reissue(
    event uuid, within_ms int8, actor text, os_user text, sudo_user text, why text, because text)
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
    -- guard: only what replaces a card has a reason for it
    ELSIF because IS NOT NULL AND e.payload ->> 'kind' IS DISTINCT FROM 'reissue' THEN
        refused := 'replaces_none';
    ELSE
        PERFORM end_overdue(event);
        INSERT INTO marks AS p (event_id, deadline_at, action, actor, os_user, sudo_user, reason, because)
        VALUES (event, now() + least(greatest(within_ms, 0), 86400000) * interval '1 millisecond', 'reissue', actor,
                os_user, sudo_user, why, because)
        ON CONFLICT (event_id, (action = 'look')) WHERE finished_at IS NULL DO NOTHING
        RETURNING p.id INTO check_id;
        IF check_id IS NULL THEN
            refused := 'busy';
        END IF;
    END IF;
    RETURN NEXT;
END
$$;

-- Withdraws the mark of a reissue, which only its caller waits for; a look that others may have joined stays. A worker
-- that still acts on the mark finds it finished and changes nothing. Returns the result: the worker's, if the worker
-- was quicker.
CREATE OR REPLACE FUNCTION issuing.withdraw_mark(check_id uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    found_result text;
BEGIN
    UPDATE marks p SET finished_at = clock_timestamp(), result = 'withdrawn', lease_token = NULL
    -- guard: only a reissue is withdrawn
    WHERE p.id = check_id AND p.finished_at IS NULL AND p.action = 'reissue';
    SELECT p.result INTO found_result FROM marks p WHERE p.id = check_id;
    RETURN found_result;
END
$$;

-- A worker asks for a look at an event: a create of an attempt that had lost its lease may have made a card that nobody
-- holds; the event may have any status by now. The send is noted, so that "not found" decides nothing before it has
-- settled, neither for the flow nor for a mark. Every unfinished mark of the event starts again, since what its worker
-- has seen may be older than the card; an operator's mark keeps its deadline, and the worker's own look continues after
-- it. False: no such event.
CREATE OR REPLACE FUNCTION issuing.add_mark(event uuid, why text) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    INSERT INTO marks AS p (event_id, deadline_at, action, actor, reason)
    -- guard: a worker's look is a mark of its own
    SELECT e.id, now() + interval '365 days', 'look', 'worker', left(why, 1000)
    FROM outbox_events e WHERE e.id = event AND e.event_type = 'CARD_ISSUE'
    ON CONFLICT (event_id, (action = 'look')) WHERE finished_at IS NULL
    -- guard: a report lets an unfinished look start again
    DO UPDATE SET deadline_at = greatest(p.deadline_at, excluded.deadline_at), due_at = now(), due_set_at = now(),
                  lease_token = NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE marks p SET due_at = now(), due_set_at = now(), lease_token = NULL
    -- guard: a report lets an operator's unfinished mark start again
    -- guard: a late create makes an operator's mark start again
    WHERE p.event_id = event AND p.finished_at IS NULL AND p.action <> 'look' AND p.lease_token IS NOT NULL;
    -- After the marks, as end_mark locks the two.
    UPDATE outbox_events e SET last_sent_at = now(), first_sent_at = coalesce(e.first_sent_at, now())
    WHERE e.id = event AND e.event_type = 'CARD_ISSUE' AND e.status <> 'COMPLETED';
    RETURN true;
END
$$;

-- Marks that are due, under a lease; SKIP LOCKED, so two workers never get the same one. What is past its deadline
-- ends here, as does what is long finished. Only marks of events of these types: a worker takes what it can look up. A
-- mark that no worker takes ends at its deadline, and so does a mark whose event is gone. A mark waits for the end of
-- an attempt during which another send was noted: that attempt does not know of it and may end the event over it.
CREATE OR REPLACE FUNCTION issuing.take_marks(new_token uuid, most int8, lease_ms int8, worker_name text, types text[])
RETURNS TABLE (
    id uuid, event_id uuid, action text, attempts int4, has_orphan bool,
    status text, user_id text,  -- null = the event is gone
    seen_us int8,               -- updated_at of the state that is judged
    sent_age_ms int8,           -- of the last send that may still arrive; null = certainly nothing was sent
    card_id uuid, issuer_card_id text, card_status text, -- the stored card
    issuer_parameters text,     -- null = none are kept
    made_ms int8,               -- when the event was made: milliseconds since 1970, at least 0
    event_type text)
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
    DELETE FROM marks p
    WHERE p.id IN (SELECT o.id FROM marks o
                   WHERE o.finished_at < now() - interval '7 days' LIMIT 100 FOR UPDATE SKIP LOCKED);
    -- A mark that was set by a clock that was ahead: its due time is moved back by as much, or no worker would take it
    -- until that time has come.
    UPDATE marks p SET due_at = p.due_at - (p.due_set_at - now()), due_set_at = now()
    WHERE p.id IN (SELECT o.id FROM marks o
                   -- guard: a mark that a clock set which was ahead is due as it was meant
                   WHERE o.finished_at IS NULL AND o.due_at > now() AND o.due_set_at > now() + interval '1 second'
                   FOR UPDATE SKIP LOCKED);
    due := ARRAY(SELECT p.id FROM marks p
                 WHERE p.finished_at IS NULL AND p.due_at <= now()
                   -- A value and not EXISTS: this is asked once for each mark that is taken, not joined with all
                   -- events.
                   -- guard: a mark waits for the end of an attempt that knows nothing of the send
                   AND (SELECT (e.status = 'PROCESSING'
                                AND (e.last_sent_at > e.updated_at OR p.action = 'look' AND p.actor = 'issuer'))
                               OR (e.event_type <> ALL (types) AND p.deadline_at > now())
                        FROM outbox_events e WHERE e.id = p.event_id) IS NOT TRUE
                 ORDER BY p.due_at
                 LIMIT most
                 FOR UPDATE SKIP LOCKED);
    -- A send whose time is in the future was noted by a clock that was ahead: it counts as sent now, so that it
    -- settles.
    UPDATE outbox_events e
    SET last_sent_at = least(e.last_sent_at, now()), first_sent_at = least(e.first_sent_at, now())
    WHERE e.id = ANY (ARRAY(SELECT p.event_id FROM marks p WHERE p.id = ANY (due))) AND e.due_at IS NULL
      AND (e.last_sent_at > now() + interval '1 second' OR e.first_sent_at > now() + interval '1 second');
    RETURN QUERY
    WITH ended AS (
        UPDATE marks p SET finished_at = clock_timestamp(), result = 'undecided', lease_token = NULL
        WHERE p.id = ANY (due) AND p.deadline_at <= now()
    ), held AS (
        UPDATE marks p
        SET lease_token = new_token, due_at = now() + lease_ms * interval '1 millisecond', due_set_at = now(),
            attempts = p.attempts + 1, worker = worker_name
        WHERE p.id = ANY (due) AND p.deadline_at > now()
        RETURNING p.*
    )
    -- Cards stay when their events are gone.
    SELECT h.id, h.event_id, h.action, h.attempts, h.orphan_at IS NOT NULL,
           CASE WHEN e.id IS NULL AND h.action = 'look' AND (c.card).id IS NOT NULL THEN 'COMPLETED' ELSE e.status END,
           coalesce(e.user_id, (c.card).user_id), (extract(epoch FROM e.updated_at) * 1000000)::int8,
           issuing.sent_age_ms(e), (c.card).id, (c.card).issuer_card_id, (c.card).status, e.issuer_parameters::text,
           unix_ms(coalesce(e.created_at, (c.card).created_at)), e.event_type
    FROM held h
    LEFT JOIN outbox_events e ON e.id = h.event_id
    CROSS JOIN LATERAL (SELECT issuing.card_of(h.event_id) AS card OFFSET 0) c;
END
$$;

-- No decision yet: the mark is tried again after the delay. If the deadline comes first, it ends `undecided`. why: for
-- people.
CREATE OR REPLACE FUNCTION issuing.put_mark_back(check_id uuid, token uuid, delay_ms int8, why text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    UPDATE marks p
    SET lease_token = NULL,
        due_at = now() + delay_ms * interval '1 millisecond',
        due_set_at = now(),
        detail = left(why, 1000),
        finished_at = CASE WHEN now() + delay_ms * interval '1 millisecond' >= p.deadline_at THEN clock_timestamp() END,
        result = CASE WHEN now() + delay_ms * interval '1 millisecond' >= p.deadline_at THEN 'undecided' END
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL;
END
$$;

-- Of a REJECTED event: notes the issuer's live card before it is cancelled, so that it is known after a crash. Of a
-- COMPLETED event whose card the issuer has closed: the card is shown as closed before core-api is called. False: the
-- mark is lost.
CREATE OR REPLACE FUNCTION issuing.note_orphan(check_id uuid, token uuid) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    c marks;
BEGIN
    UPDATE marks p SET orphan_at = coalesce(p.orphan_at, clock_timestamp())
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL
    RETURNING p.* INTO c;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT EXISTS (SELECT FROM outbox_events e WHERE e.id = c.event_id AND e.status <> 'COMPLETED') THEN
        PERFORM set_card_status(c.event_id, 'cancelled', c);
    END IF;
    RETURN true;
END
$$;

-- The receiver of a route says that it has executed this event: a FAILED one is COMPLETED, with this answer where the
-- route keeps answers. A REJECTED one stays REJECTED, and the mark tells the operator.
CREATE OR REPLACE FUNCTION issuing.complete_executed(c issuing.marks, before issuing.outbox_events, answer text)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    after outbox_events;
BEGIN
    IF before.status = 'FAILED' THEN
        UPDATE outbox_events e
        SET status = 'COMPLETED', reason_code = NULL, reason_detail = NULL, held_behind = NULL,
            result = coalesce(kept_result(answer), e.result),
            completed_at = clock_timestamp(), updated_at = clock_timestamp()
        WHERE e.id = before.id
        RETURNING e.* INTO after;
        PERFORM follow_end(before, after);
        PERFORM note_mark('reconcile', before, after, c, jsonb_build_object('result', 'executed'));
    END IF;
END
$$;

-- Writes what a look-up at the issuer means for a FAILED event: `found`, `cancelled_at_issuer` or `duplicate`. ended,
-- said: the result of the mark and its detail. A new reason of a FAILED event has a notification as an end has, since
-- it is what a client reads from now on.
CREATE OR REPLACE FUNCTION issuing.answer_question(
    c issuing.marks, before issuing.outbox_events, INOUT ended text, INOUT said text)
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    what constant text := ended;
    after outbox_events := before;
BEGIN
    IF ended = 'found' AND NOT can_be_open(before) THEN
        ended := 'refused';
        said := 'out_of_range';
    ELSIF ended = 'found' AND keeps_place(before) THEN
        after := reopen(before, true);
    ELSIF ended = 'found' THEN -- two live reissues of one card: a question
        ended := 'refused';
        said := 'place_taken';
    ELSIF ended = 'cancelled_at_issuer' THEN
        UPDATE cards k SET status = 'cancelled', updated_at = now()
        WHERE k.request_id = before.id AND k.status <> 'cancelled';
        after := reject(before, 'card_cancelled', said);
    ELSIF before.reason_code IS DISTINCT FROM 'issuer_duplicate' THEN
        UPDATE outbox_events e
        SET reason_code = 'issuer_duplicate', reason_detail = said, updated_at = clock_timestamp()
        WHERE e.id = before.id
        RETURNING e.* INTO after;
        -- guard: a new reason of a question is told
        PERFORM follow_end(before, after);
    END IF;
    IF after IS DISTINCT FROM before THEN
        PERFORM note_mark('reconcile', before, after, c, jsonb_build_object('result', what));
    END IF;
END
$$;

-- Makes a new event with its own key instead of a FAILED one, which becomes REJECTED. said: the detail, and the text of
-- the rejected one before the new id.
CREATE OR REPLACE FUNCTION issuing.make_reissue(
    c issuing.marks, before issuing.outbox_events, INOUT said text, OUT ended text, OUT made uuid)
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    is_stored constant bool := EXISTS (SELECT FROM cards k WHERE k.request_id = before.id); -- a card, cancelled or not
    after outbox_events;
BEGIN
    IF before.status IS DISTINCT FROM 'FAILED' OR is_stored OR NOT keeps_place(before) THEN
        ended := 'refused';
        said := CASE WHEN before.status IS DISTINCT FROM 'FAILED' THEN 'not_failed' WHEN is_stored THEN 'card'
                     ELSE 'place_taken' END;
        RETURN;
    END IF;
    ended := 'reissued';
    made := uuid7();
    INSERT INTO event_reissues (old_id, new_id) VALUES (before.id, made);
    after := reject(before, 'reissued', said || ' ' || made);
    -- Only now, when the old event is REJECTED, does the trigger take the new one as the reissue of its card.
    INSERT INTO outbox_events (id, event_type, user_id, idempotency_key, payload, traceparent, tracestate,
                               deferral_code)
    VALUES (made, before.event_type, before.user_id, before.idempotency_key,
            before.payload || jsonb_strip_nulls(jsonb_build_object('reason', c.because)),
            trace_below(before.traceparent, before.id),
            before.tracestate, 'operator_reissued');
    PERFORM note_mark('reissue', before, after, c, jsonb_strip_nulls(jsonb_build_object(
        'new_id', made, 'because', c.because)));
    said := NULL;
END
$$;

-- The end of a mark, and what follows from it, in one transaction. The token is the fence: `fenced` = the mark is
-- another worker's, or finished, and nothing changes. `changed` = the event is no longer in the state that was judged:
-- nothing changes, the mark is due again.
--   found                FAILED -> PENDING: the flow looks the card up, stores, links and completes it; `refused` where
--                        another event replaces its card, or where what the row holds may not be open
--   cancelled_at_issuer  FAILED -> REJECTED `card_cancelled`; COMPLETED: the card's status
--   ok, frozen           COMPLETED: the card's status
--   duplicate            FAILED: reason `issuer_duplicate`; with COMPLETED only told
--   orphan_cancelled     REJECTED: the audit row, and the stored card's status
--   reissued             FAILED -> REJECTED `reissued`, and a new event with a key of its own
--   executed             of a route, FAILED -> COMPLETED, with the receiver's answer as found_detail
--   all others           nothing but the mark
-- A reissue is not made behind its deadline, which its caller, killed or not, has seen pass.
CREATE OR REPLACE FUNCTION issuing.end_mark(
    check_id uuid, token uuid, seen_us int8, found_result text, found_detail text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    c marks;
    before outbox_events;
    said text := found_detail;
    ended text := found_result;
    made uuid;
BEGIN
    SELECT p.* INTO c FROM marks p
    -- guard: the end of a mark names its token
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL
      -- guard: only a reconcile ends as executed
      AND (p.action = 'reconcile' OR found_result IS DISTINCT FROM 'executed')
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    PERFORM lock_order(ARRAY[c.event_id]);
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;
    -- guard: a mark is ended over the state that was judged
    IF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us
       OR found_result = 'executed' AND coalesce(before.event_type, 'CARD_ISSUE') = 'CARD_ISSUE' THEN
        UPDATE marks p
        SET lease_token = NULL, due_at = now(), due_set_at = now(), detail = 'the event changed meanwhile'
        WHERE p.id = check_id;
        RETURN 'changed';
    END IF;
    IF (c.action = 'reissue') <> (found_result IN ('reissued', 'refused')) AND found_result NOT IN ('gone') THEN
        RAISE EXCEPTION 'a mark of % cannot end %', c.action, found_result USING ERRCODE = '22023';
    END IF;
    IF c.action <> 'reissue' AND coalesce(before.status, 'COMPLETED') = 'COMPLETED'
       AND found_result IN ('ok', 'frozen', 'cancelled_at_issuer') THEN
        -- guard: a card is shown as the issuer has it
        PERFORM set_card_status(c.event_id, CASE found_result WHEN 'ok' THEN 'active' WHEN 'frozen' THEN 'frozen'
                                            ELSE 'cancelled' END, c);
    ELSIF found_result = 'executed' THEN
        PERFORM complete_executed(c, before, found_detail);
        said := NULL;
    ELSIF found_result = 'orphan_cancelled' AND before.status = 'REJECTED' THEN
        UPDATE cards k SET status = 'cancelled', updated_at = now()
        WHERE k.request_id = before.id AND k.status <> 'cancelled';
        PERFORM note_mark('reconcile', before, before, c,
                           jsonb_build_object('result', found_result, 'detail', found_detail));
    ELSIF before.status = 'FAILED' AND found_result IN ('found', 'cancelled_at_issuer', 'duplicate') THEN
        SELECT a.ended, a.said INTO ended, said FROM answer_question(c, before, ended, said) a;
    -- guard: a reissue is not made behind its deadline
    ELSIF found_result = 'reissued' AND c.deadline_at <= clock_timestamp() THEN
        ended := 'undecided';
        said := NULL;
    ELSIF found_result = 'reissued' THEN
        SELECT r.ended, r.said, r.made INTO ended, said, made FROM make_reissue(c, before, said) r;
    END IF;
    UPDATE marks p
    SET finished_at = clock_timestamp(), result = ended, detail = said, new_id = made, lease_token = NULL
    WHERE p.id = check_id;
    RETURN 'done';
END
$$;

REVOKE ALL ON FUNCTION issuing.note_mark, issuing.complete_executed, issuing.answer_question, issuing.make_reissue,
    issuing.end_overdue, issuing.ask_reconcile, issuing.ask_reissue, issuing.withdraw_mark, issuing.add_mark,
    issuing.take_marks, issuing.put_mark_back, issuing.note_orphan, issuing.end_mark FROM PUBLIC;
