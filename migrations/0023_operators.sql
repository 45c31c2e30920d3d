-- Why: what an operator asks for touches nobody else's mark and no deadline but its own, a replay of FAILED
-- issuer_duplicate begins with a look-up, keys are kept as long as any program promises, and a card number leaves the
-- database only after the commit of its audit row. Locks: ACCESS EXCLUSIVE on peer_checks for its constraint and index,
-- for a moment. Older programs: cannot run after it.

-- ---- replay ----

-- FAILED issuer_duplicate: the issuer has shown more than one card. Whatever the key's age, and whether a card is stored:
-- the next attempt, and all later ones until the issuer shows exactly one, begin at the look-up (worker/issue_card.c,
-- read_duplicate). Also where an attempt after the replay failed for another reason.
CREATE OR REPLACE FUNCTION issuing.reopen(e issuing.outbox_events, was_found bool) RETURNS issuing.outbox_events
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        is_duplicate bool := e.event_type = 'CARD_ISSUE'
                             AND (e.reason_code IS NOT DISTINCT FROM 'issuer_duplicate'
                                  OR e.held_end IS NOT DISTINCT FROM 'duplicate');
        after outbox_events;
    BEGIN
        UPDATE outbox_events o
        SET status = 'PENDING', retry_count = 0, lost_count = 0, deferral_count = 0, deferral_code = NULL,
            deferred_since = NULL, held_end = CASE WHEN is_duplicate THEN 'duplicate' END, held_end_code = NULL,
            next_attempt_at = now(), updated_at = clock_timestamp(), completed_at = NULL, reason_code = NULL,
            reason_detail = NULL, last_error = NULL,
            first_sent_at = CASE WHEN was_found OR is_duplicate THEN coalesce(o.first_sent_at, o.created_at)
                                 ELSE o.first_sent_at END
        WHERE o.id = e.id AND o.status = 'FAILED'
        RETURNING o.* INTO STRICT after;
        PERFORM count_end(e, -1);
        RETURN after;
    END
    $$;

-- ---- marks ----

-- `look`: a worker's own mark (ask_check). It is beside the mark of an operator, so neither ends, delays or prolongs the
-- other. Of operators' marks an event has at most one.
ALTER TABLE issuing.peer_checks DROP CONSTRAINT peer_checks_action_check;
ALTER TABLE issuing.peer_checks ADD CONSTRAINT peer_checks_action_check CHECK (action IN ('reconcile', 'reissue', 'look'));
DROP INDEX issuing.peer_checks_event;
CREATE UNIQUE INDEX peer_checks_event ON issuing.peer_checks (event_id, (action = 'look')) WHERE finished_at IS NULL;

-- An operator's mark that is past its deadline and that no worker holds is over, also while no worker runs that would
-- say so: it must not stand in the way of the next one.
CREATE FUNCTION issuing.end_overdue(event uuid) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        UPDATE peer_checks p SET finished_at = clock_timestamp(), result = 'undecided', lease_token = NULL
        WHERE p.event_id = event AND p.finished_at IS NULL AND p.action <> 'look' AND p.deadline_at <= now()
          AND (p.lease_token IS NULL OR p.due_at <= now())
    $$;

-- Leaves a mark, or joins the unfinished one of the same action: both callers get its result, and its deadline stays
-- that of whoever left it. A mark that was joined may so end `undecided` before the caller's time is up: then the caller
-- asks again. `busy`: the unfinished mark is to do something else. Changes no event.
DROP FUNCTION issuing.ask_reconcile(uuid, int8, text, text, text, text);
CREATE FUNCTION issuing.ask_reconcile(
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
        INSERT INTO peer_checks AS p (id, event_id, deadline_at, action, actor, os_user, sudo_user, reason)
        VALUES (made, event, deadline, 'reconcile', actor, os_user, sudo_user, why)
        ON CONFLICT (event_id, (action = 'look')) WHERE finished_at IS NULL
        DO UPDATE SET due_at = CASE WHEN p.lease_token IS NULL THEN least(p.due_at, now()) ELSE p.due_at END,
                      due_set_at = CASE WHEN p.lease_token IS NULL THEN now() ELSE p.due_set_at END
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

-- Leaves the mark of a reissue, which nobody joins. `busy`: another operator's mark of this event is not finished.
CREATE OR REPLACE FUNCTION issuing.ask_reissue(
    event uuid, within_ms int8, actor text, os_user text, sudo_user text, why text)
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
        PERFORM end_overdue(event);
        INSERT INTO peer_checks AS p (event_id, deadline_at, action, actor, os_user, sudo_user, reason)
        VALUES (event, now() + least(greatest(within_ms, 0), 86400000) * interval '1 millisecond', 'reissue', actor,
                os_user, sudo_user, why)
        ON CONFLICT (event_id, (action = 'look')) WHERE finished_at IS NULL DO NOTHING
        RETURNING p.id INTO check_id;
        IF check_id IS NULL THEN
            refused := 'busy';
        END IF;
    END IF;
    RETURN NEXT;
END
$$;

-- Takes the mark of a reissue back, which is its caller's alone; a look that others may have joined stays. What a worker
-- does under the mark meanwhile finds it finished and changes nothing. Returns the result, which is the worker's where
-- the worker was quicker.
CREATE OR REPLACE FUNCTION issuing.withdraw_check(check_id uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    found_result text;
BEGIN
    UPDATE peer_checks p SET finished_at = clock_timestamp(), result = 'withdrawn', lease_token = NULL
    WHERE p.id = check_id AND p.finished_at IS NULL AND p.action = 'reissue';
    SELECT p.result INTO found_result FROM peer_checks p WHERE p.id = check_id;
    RETURN found_result;
END
$$;

-- A worker asks for a look at an event: a create of an attempt that had lost its lease may have made a card that nobody
-- holds, whatever the event's status is by now. The send is noted, so that no "not found" is believed before it has
-- settled, neither by the flow nor by a mark. Every unfinished mark of the event begins anew, since what its worker has
-- seen may be older than the card; an operator's one keeps its deadline, and the look goes on after it. False: no such
-- event.
CREATE OR REPLACE FUNCTION issuing.ask_check(event uuid, why text) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    -- No error: a worker reports many events in one statement. While a bucket is being moved the trigger refuses the
    -- mark, and the worker reports the event again. The other cell looks the event up before it decides anything.
    IF EXISTS (SELECT FROM cell_buckets c
               WHERE c.bucket = (SELECT issuing.bucket_of(e.user_id) FROM outbox_events e WHERE e.id = event)
                 AND c.state IN ('gone', 'away')) THEN
        RAISE LOG 'issuing: the event % is in another cell, where nobody learns of a late answer: %', event,
            left(why, 200);
        RETURN false;
    END IF;
    INSERT INTO peer_checks AS p (event_id, deadline_at, action, actor, reason)
    SELECT e.id, now() + interval '365 days', 'look', 'worker', left(why, 1000)
    FROM outbox_events e WHERE e.id = event AND e.event_type = 'CARD_ISSUE'
    ON CONFLICT (event_id, (action = 'look')) WHERE finished_at IS NULL
    DO UPDATE SET deadline_at = greatest(p.deadline_at, excluded.deadline_at), due_at = now(), due_set_at = now(),
                  lease_token = NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE peer_checks p SET due_at = now(), due_set_at = now(), lease_token = NULL
    WHERE p.event_id = event AND p.finished_at IS NULL AND p.action <> 'look' AND p.lease_token IS NOT NULL;
    -- After the marks, as end_check locks the two.
    UPDATE outbox_events e SET last_sent_at = now(), first_sent_at = coalesce(e.first_sent_at, now())
    WHERE e.id = event AND e.event_type = 'CARD_ISSUE' AND e.status <> 'COMPLETED';
    RETURN true;
END
$$;

-- Programs that were never released called it.
DROP FUNCTION issuing.take_checks(uuid, int8, int8, text);

-- issuing.end_check of 0017_ends.sql. A reissue is not made behind its deadline, which its caller, killed or not, has
-- seen pass. A new reason of a FAILED event is told as an end is, since it is what a client reads from now on.
CREATE OR REPLACE FUNCTION issuing.end_check(
    check_id uuid, token uuid, seen_us int8, found_result text, found_detail text)
RETURNS text
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
    SELECT p.* INTO c FROM peer_checks p
    WHERE p.id = check_id AND p.lease_token = token AND p.finished_at IS NULL
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    PERFORM lock_order(ARRAY[c.event_id]);
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = c.event_id FOR UPDATE;
    IF FOUND AND (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        UPDATE peer_checks p
        SET lease_token = NULL, due_at = now(), due_set_at = now(), detail = 'the event changed meanwhile'
        WHERE p.id = check_id;
        RETURN 'changed';
    END IF;
    IF (c.action = 'reissue') <> (found_result IN ('reissued', 'refused')) AND found_result NOT IN ('gone') THEN
        RAISE EXCEPTION 'a mark of % cannot end %', c.action, found_result USING ERRCODE = '22023';
    END IF;
    IF found_result = 'orphan_cancelled' AND before.status = 'REJECTED' THEN
        UPDATE cards k SET status = 'cancelled', updated_at = now()
        WHERE k.request_id = before.id AND k.status <> 'cancelled';
        PERFORM note_check('reconcile', before, before, c,
                           jsonb_build_object('result', found_result, 'detail', found_detail));
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
            UPDATE cards k SET status = 'cancelled', updated_at = now()
            WHERE k.request_id = before.id AND k.status <> 'cancelled';
            after := reject(before, 'card_cancelled', found_detail);
        ELSIF before.reason_code IS DISTINCT FROM 'issuer_duplicate' THEN
            UPDATE outbox_events e
            SET reason_code = 'issuer_duplicate', reason_detail = found_detail, updated_at = clock_timestamp()
            WHERE e.id = before.id
            RETURNING e.* INTO after;
            PERFORM follow_end(before, after);
        END IF;
        IF after IS DISTINCT FROM before THEN
            PERFORM note_check('reconcile', before, after, c, jsonb_build_object('result', found_result));
        END IF;
    ELSIF found_result = 'reissued' AND c.deadline_at <= clock_timestamp() THEN
        ended := 'undecided';
        said := NULL;
    ELSIF found_result = 'reissued' THEN
        IF before.status IS DISTINCT FROM 'FAILED' OR EXISTS (SELECT FROM cards k WHERE k.request_id = before.id)
           OR NOT keeps_place(before) THEN
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
            VALUES (made, before.event_type, before.user_id, before.idempotency_key, before.payload,
                    before.traceparent);
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

-- ---- retentions ----

-- What an api promises at its start: keys are honoured, and tries are counted, for at least so long. It can only
-- lengthen. What was dropped before is gone: keys_before_ms says from when on the longer time holds.
CREATE FUNCTION issuing.promise_retentions(key_retention interval, limit_window interval)
RETURNS TABLE (keys_before_ms int8, keys_ms int8)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    keys_before_ms := (SELECT (extract(epoch FROM r.kept) * 1000)::int8 FROM retentions r WHERE r.name = 'keys');
    keys_ms := (extract(epoch FROM retention_at_least('keys', key_retention)) * 1000)::int8;
    PERFORM retention_at_least('limits', limit_window);
    RETURN NEXT;
END
$$;

-- ---- card numbers ----

-- A number leaves in two calls, which are two transactions. ask_reveal writes the audit row and counts; take_number
-- gives the record only for a ticket that another, earlier transaction has committed. So whatever the caller's
-- transactions do, a number that left is in the audit trail and in the count. A try that is not committed counts
-- nothing, and nothing leaves.
CREATE TABLE issuing.reveal_tickets (
    id      uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    made_by xid8 NOT NULL DEFAULT pg_current_xact_id(), -- the whole transaction, whatever savepoint
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    user_id text NOT NULL,
    card_id uuid NOT NULL
);
CREATE INDEX reveal_tickets_made ON issuing.reveal_tickets (made_at); -- ask_reveal: what is over goes

DROP FUNCTION issuing.reveal_number(uuid, text, int8[]);
DROP FUNCTION issuing.reveal_number(uuid, text, int8[], int8);

-- No row: the user has no such card with a number. frees_in_ms: too many numbers were shown to this user, and the next
-- one may be then. No ticket otherwise: the record is sealed with key_id, which is not among `openable`; then nothing is
-- counted or written. `most` in a minute, at most the database's ceiling. The lock of the user comes first.
CREATE FUNCTION issuing.ask_reveal(card uuid, holder text, openable int8[], most int8)
RETURNS TABLE (id uuid, ticket uuid, key_id int8, frees_in_ms int8)
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
    PERFORM issuing.lock_reveal(holder);
    PERFORM issuing.demand_open(holder);
    t := clock_timestamp();

    allowed := coalesce((SELECT least(c.most, ask_reveal.most) FROM ceilings c WHERE c.name = 'reveals'), 0);
    SELECT c.id, c.request_id, issuing.key_id_of(c.number_record) AS key_id
    INTO found
    FROM cards c
    WHERE c.id = card AND c.user_id = holder AND c.number_record IS NOT NULL
      AND (c.status = 'cancelled' OR NOT EXISTS (SELECT FROM outbox_events e
                                                 WHERE e.id = c.request_id AND e.status <> 'COMPLETED'));
    IF found.id IS NULL OR allowed < 1 THEN
        RETURN;
    END IF;
    IF (found.key_id = ANY (openable)) IS NOT TRUE THEN
        RETURN QUERY SELECT found.id, NULL::uuid, found.key_id, NULL::int8;
        RETURN;
    END IF;

    SELECT r.* INTO before FROM number_reveals r WHERE r.user_id = holder;
    recent := ARRAY(SELECT least(a.at, t) FROM unnest(before.revealed_at) AS a (at)
                    WHERE a.at > t - interval '1 minute' ORDER BY 1);
    IF cardinality(recent) >= allowed THEN
        IF before.last_at > t OR (before.refused_at > t - interval '1 minute') IS NOT TRUE THEN
            UPDATE number_reveals r SET last_at = t, refused_at = t, revealed_at = recent WHERE r.user_id = holder;
            INSERT INTO operator_actions (event_id, actor, action, after)
            VALUES (found.request_id, holder, 'number_refused',
                    jsonb_build_object('card_id', found.id, 'within_a_minute', allowed));
        END IF;
        RETURN QUERY SELECT found.id, NULL::uuid, NULL::int8,
            greatest(ceil(extract(epoch FROM recent[cardinality(recent) - allowed + 1] + interval '1 minute' - t)
                          * 1000), 1)::int8;
        RETURN;
    END IF;
    INSERT INTO number_reveals AS r (user_id, last_at, revealed_at) VALUES (holder, t, recent || t)
    ON CONFLICT (user_id) DO UPDATE SET last_at = excluded.last_at, revealed_at = excluded.revealed_at;
    INSERT INTO operator_actions (event_id, actor, action, after)
    VALUES (found.request_id, holder, 'number_revealed', jsonb_build_object('card_id', found.id));
    -- Those that nobody has taken: a crash between the two calls.
    DELETE FROM reveal_tickets k
    WHERE k.id IN (SELECT o.id FROM reveal_tickets o
                   WHERE o.made_at < t - interval '1 minute' OR o.made_at > t + interval '1 minute'
                   LIMIT 100 FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    INSERT INTO reveal_tickets AS k (made_at, user_id, card_id) VALUES (t, holder, found.id)
    RETURNING k.card_id, k.id, found.key_id, NULL::int8;
END
$$;

-- No row: there is no such ticket, it is older than ten seconds, it was taken, or the transaction that asked for it is
-- this one. A caller that takes it back with a ROLLBACK may take it again in these seconds, and gets the same number,
-- whose audit row is committed.
CREATE FUNCTION issuing.take_number(ticket uuid)
RETURNS TABLE (id uuid, exp_month int2, exp_year int2, number_record bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    k reveal_tickets;
BEGIN
    DELETE FROM reveal_tickets d WHERE d.id = ticket AND d.made_by <> pg_current_xact_id() RETURNING d.* INTO k;
    IF k.id IS NULL OR clock_timestamp() - k.made_at NOT BETWEEN interval '-10 s' AND interval '10 s' THEN
        RETURN;
    END IF;
    PERFORM issuing.demand_open(k.user_id);
    RAISE LOG 'issuing: the number of card % is revealed to %', k.card_id, session_user;
    RETURN QUERY SELECT c.id, c.exp_month, c.exp_year, c.number_record FROM cards c
                 WHERE c.user_id = k.user_id AND c.id = k.card_id AND c.number_record IS NOT NULL;
END
$$;

REVOKE ALL ON FUNCTION issuing.end_overdue(uuid), issuing.ask_reconcile(uuid, int8, text, text, text, text),
    issuing.promise_retentions(interval, interval), issuing.ask_reveal(uuid, text, int8[], int8),
    issuing.take_number(uuid)
FROM PUBLIC;

-- ---- functions with backslashes in their texts ----

-- With standard_conforming_strings = off in a session, PostgreSQL would read them differently.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
             WHERE p.pronamespace = 'issuing'::regnamespace AND strpos(p.prosrc, chr(92)) > 0 LOOP
        EXECUTE format('ALTER FUNCTION %s SET standard_conforming_strings = on', f);
    END LOOP;
END
$$;
