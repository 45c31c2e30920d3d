-- What operators change. Every function here runs as the owner and writes the audit row in the same transaction.
-- Parameters of an action: actor (free text, for people), os_user and sudo_user (what the operating system says), why.
-- None of them is proof; db_role is, and no caller can set it.

-- What an action changes, as the audit row shows it before and after.
CREATE OR REPLACE FUNCTION issuing.state_of(e issuing.outbox_events) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT jsonb_build_object(
        'status', e.status, 'retry_count', e.retry_count, 'lost_count', e.lost_count,
        'deferral_count', e.deferral_count, 'deferral_code', e.deferral_code, 'next_attempt_at', e.next_attempt_at,
        'completed_at', e.completed_at, 'first_sent_at', e.first_sent_at, 'reason_code', e.reason_code,
        'reason_detail', e.reason_detail, 'last_error', e.last_error, 'deferred_since', e.deferred_since)
$$;

-- The audit row of an action on an event. more: members that `after` has besides.
CREATE OR REPLACE FUNCTION issuing.note_action(
    what text, before issuing.outbox_events, after issuing.outbox_events, actor text, os_user text, sudo_user text,
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

-- Whether this event may still make the card that it stands for (of the request, or of the card that it replaces). An
-- event that was REJECTED, or whose payload could not be used, may have lost that right to another event. The lock,
-- which the trigger on outbox_events takes too, makes the answer hold until the transaction ends.
CREATE OR REPLACE FUNCTION issuing.keeps_place(e issuing.outbox_events) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    place text := lower(e.payload ->> 'replaces');
    holder uuid;
BEGIN
    IF e.event_type <> 'CARD_ISSUE' OR e.payload ->> 'kind' IS DISTINCT FROM 'reissue' OR place IS NULL THEN
        RETURN true;
    END IF;
    INSERT INTO card_reissues (event_id, user_id, card_id) VALUES (e.id, e.user_id, place)
        ON CONFLICT (user_id, card_id) DO NOTHING;
    SELECT r.event_id INTO holder FROM card_reissues r WHERE r.user_id = e.user_id AND r.card_id = place FOR UPDATE;
    RETURN holder = e.id;
END
$$;

-- Whether refuse_row() would take this row as an open event. A row that is older than those checks may break them; it
-- then stays FAILED, or is ended.
CREATE OR REPLACE FUNCTION issuing.can_be_open(e issuing.outbox_events) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$ SELECT octet_length(e.payload::text) <= 65536 AND octet_length(e.user_id) BETWEEN 1 AND 128 $$;

-- The age in ms of the last send that may still arrive; NULL = certainly nothing was sent.
CREATE OR REPLACE FUNCTION issuing.sent_age_ms(e issuing.outbox_events) RETURNS int8
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$ SELECT (extract(epoch FROM now() - coalesce(e.last_sent_at, e.first_sent_at)) * 1000)::int8
    WHERE e.first_sent_at IS NOT NULL $$;

-- Whether there is a card of this request that is not cancelled.
CREATE OR REPLACE FUNCTION issuing.has_card(event uuid) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$ SELECT EXISTS (SELECT FROM cards c WHERE c.request_id = event AND c.status <> 'cancelled') $$;

-- FAILED -> PENDING, of an event of a route also REJECTED and COMPLETED -> PENDING, due at once by the clock that
-- claims read; the tries start again, first_sent_at and last_sent_at stay. With a card that was found at the issuer the
-- event counts as sent, also if the row says that nothing was.
--
-- FAILED issuer_duplicate: the issuer has shown more than one card. The next attempt, and all later ones until the
-- issuer shows exactly one, begin at the look-up (common/core/decide/decide_answer.c, found_duplicate): with a key of
-- any age, with or without a stored card, and also if an attempt after the replay failed for another reason.
CREATE OR REPLACE FUNCTION issuing.reopen(e issuing.outbox_events, was_found bool) RETURNS issuing.outbox_events
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    -- guard: a receiver's own code is not a second card
    is_duplicate bool := e.event_type = 'CARD_ISSUE'
                         AND (e.reason_code IS NOT DISTINCT FROM 'issuer_duplicate'
                              OR e.held_end IS NOT DISTINCT FROM 'duplicate');
    after outbox_events;
BEGIN
    UPDATE outbox_events o
    -- guard: a replay forgets what was counted
    SET status = 'PENDING', retry_count = 0, lost_count = 0, deferral_count = 0,
        deferral_code = CASE WHEN was_found THEN 'operator_reconciled' ELSE 'operator_replayed' END,
        -- guard: a replay after two cards is marked
        deferred_since = NULL, held_end_code = NULL,
        held_end = CASE WHEN is_duplicate THEN 'duplicate'
                        -- guard: an adopted event that is replayed is looked up first
                        WHEN e.held_end = 'before_sending' THEN e.held_end END,
        next_attempt_at = now(), updated_at = clock_timestamp(), completed_at = NULL, reason_code = NULL,
        reason_detail = NULL, last_error = NULL,
        -- guard: an event whose card was found counts as sent
        first_sent_at = CASE WHEN was_found OR is_duplicate THEN coalesce(o.first_sent_at, o.created_at)
                             ELSE o.first_sent_at END
    WHERE o.id = e.id AND o.status = e.status
    RETURNING o.* INTO STRICT after;
    -- guard: a replay takes back what the statistics have counted
    PERFORM count_end(e, -1);
    RETURN after;
END
$$;

-- The row lock comes first and every condition is checked on the newest version of the row, so of two operators one
-- acts. seen_us: updated_at of the state that was chosen, in microseconds; NULL = any state.
CREATE OR REPLACE FUNCTION issuing.replay(event uuid, seen_us int8, actor text, os_user text, sudo_user text, why text)
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
    -- guard: a card request that was rejected is not replayed
    IF before.status <> 'FAILED' AND (before.status <> 'REJECTED' OR before.event_type = 'CARD_ISSUE') THEN
        refused := 'not_failed';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    -- guard: what may not be open is not replayed
    ELSIF NOT can_be_open(before) THEN
        refused := 'out_of_range';
    -- guard: a replay is refused while another event is to replace its card
    ELSIF NOT keeps_place(before) THEN
        refused := 'place_taken';
    ELSE
        event_row := reopen(before, false);
        PERFORM note_action('replay', before, event_row, actor, os_user, sudo_user, why, NULL);
    END IF;
    RETURN NEXT;
END
$$;

-- A COMPLETED event of a route is sent again, under the same key and marked as such: COMPLETED -> PENDING. It was
-- executed, so it ends COMPLETED also if this delivery fails. The lifetime of its key begins again: the receiver is to
-- treat it as the first one.
CREATE OR REPLACE FUNCTION issuing.resend(event uuid, seen_us int8, actor text, os_user text, sudo_user text, why text)
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
    -- guard: no card request is sent again
    IF before.event_type = 'CARD_ISSUE' THEN
        refused := 'other_type';
    ELSIF before.status <> 'COMPLETED' THEN
        refused := 'not_completed';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    ELSIF NOT can_be_open(before) THEN
        refused := 'out_of_range';
    ELSE
        PERFORM reopen(before, false);
        UPDATE outbox_events e
        SET first_sent_at = NULL, last_sent_at = NULL, resent = coalesce(e.resent, 0) + 1,
            deferral_code = 'operator_resent'
        WHERE e.id = event
        RETURNING e.* INTO event_row;
        PERFORM note_action('resend', before, event_row, actor, os_user, sudo_user, why, NULL);
    END IF;
    RETURN NEXT;
END
$$;

-- REJECTED; what was sent again goes back to COMPLETED, since it was executed.
CREATE OR REPLACE FUNCTION issuing.reject(e issuing.outbox_events, code text, detail text) RETURNS issuing.outbox_events
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    after outbox_events;
BEGIN
    UPDATE outbox_events o
    -- guard: what was executed is never rejected
    SET status = CASE WHEN o.resent IS NULL THEN 'REJECTED' ELSE 'COMPLETED' END,
        reason_code = CASE WHEN o.resent IS NULL THEN code END,
        reason_detail = CASE WHEN o.resent IS NULL THEN detail END, held_behind = NULL,
        completed_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE o.id = e.id AND o.status = e.status
    RETURNING o.* INTO STRICT after;
    PERFORM follow_end(e, after);
    RETURN after;
END
$$;

-- PENDING -> REJECTED `cancelled`, of an event of which nothing was sent.
CREATE OR REPLACE FUNCTION issuing.cancel(
    event uuid, seen_us int8, detail text, actor text, os_user text, sudo_user text, why text)
RETURNS TABLE (refused text, event_row issuing.outbox_events)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before outbox_events;
BEGIN
    PERFORM lock_order(ARRAY[event]);
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

-- FAILED -> REJECTED `resolved`. no_card_confirmed: the operator has seen that the issuer has no card, or the receiver
-- has not executed the event.
CREATE OR REPLACE FUNCTION issuing.resolve(
    event uuid, seen_us int8, no_card_confirmed bool, settle_ms int8, detail text, actor text, os_user text,
    sudo_user text, why text)
RETURNS TABLE (refused text, event_row issuing.outbox_events)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before outbox_events;
BEGIN
    PERFORM lock_order(ARRAY[event]);
    SELECT e.* INTO before FROM outbox_events e WHERE e.id = event FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    event_row := before;
    IF before.status <> 'FAILED' THEN
        refused := 'not_failed';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    -- guard: resolve ends nothing over a card
    ELSIF has_card(event) THEN
        refused := 'card';
    -- guard: resolve ends nothing over an unknown outcome without a confirmation
    ELSIF before.first_sent_at IS NOT NULL AND no_card_confirmed IS NOT TRUE THEN
        refused := 'unknown';
    -- guard: resolve ends nothing while a create may still arrive
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

-- Assigns a PENDING event, and the card that it is to replace, to another issuer. An UNKNOWN outcome stays, so the
-- event is looked up there before anything is sent. to_issuer: null = the present one. Refused for settle_ms after the
-- last send: the create might still arrive at the former issuer and make a card that nobody looks for.
CREATE OR REPLACE FUNCTION issuing.adopt(
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
    card_owner := (card_to_replace(before.user_id, before.payload ->> 'replaces')).issuer;
    IF before.event_type <> 'CARD_ISSUE' THEN
        refused := 'other_type';
    ELSIF before.status = 'PROCESSING' THEN
        refused := 'processing';
    ELSIF before.status <> 'PENDING' THEN
        refused := 'not_pending';
    ELSIF (extract(epoch FROM before.updated_at) * 1000000)::int8 <> seen_us THEN
        refused := 'changed';
    ELSIF owner IS NULL THEN
        refused := CASE WHEN to_issuer IS NULL AND EXISTS (SELECT
            FROM issuers) THEN 'which_issuer' ELSE 'no_issuer' END;
    ELSIF coalesce(before.sent_to, owner) = owner AND coalesce(card_owner, owner) = owner THEN
        IF seen_us IS NOT NULL THEN
            RETURN; -- a filter matches many that are not meant
        END IF;
        refused := 'same_issuer';
    -- guard: nothing is adopted while its create may still arrive
    ELSIF sent_age_ms(before) < settle_ms THEN
        refused := 'settling';
    ELSE
        UPDATE outbox_events e
        SET sent_to = CASE WHEN e.sent_to IS NOT NULL THEN owner END,
            -- Parameters of another vendor's calls are of no use.
            issuer_parameters = CASE WHEN NOT EXISTS (SELECT FROM issuers o JOIN issuers n ON n.profile <> o.profile
                                                      WHERE o.id = e.sent_to AND n.id = owner)
                                     THEN e.issuer_parameters END,
            held_end = CASE WHEN e.first_sent_at IS NULL OR e.cancel_code IS NOT NULL
                                 OR EXISTS (SELECT FROM cards c WHERE c.request_id = e.id) THEN e.held_end
                            -- guard: an event that was adopted is looked up before anything is sent
                            -- guard: an event that is adopted stays a duplicate
                            ELSE coalesce(e.held_end, 'before_sending') END,
            next_attempt_at = now(), updated_at = clock_timestamp()
        WHERE e.id = event
        RETURNING e.* INTO event_row;
        UPDATE cards c SET issuer = owner
        WHERE c.user_id = before.user_id AND c.issuer <> owner
          AND (c.request_id = event OR c.id::text = lower(before.payload ->> 'replaces'));
        PERFORM note_action('adopt', before, event_row, actor, os_user, sudo_user, why,
                            jsonb_build_object('from', (SELECT to_jsonb(i) - 'seen_at' FROM issuers i
                                                        WHERE i.id = coalesce(nullif(before.sent_to, owner),
                                                            card_owner)),
                                               'to', (SELECT to_jsonb(i) - 'seen_at'
                                                   FROM issuers i WHERE i.id = owner)));
    END IF;
    RETURN NEXT;
END
$$;

-- The number up to which the audit trail is complete: no row up to `number` can still be committed. A transaction locks
-- the table before it takes a number, so a transaction without that lock, after `number` was read, has committed its
-- rows up to there or writes above it. Those that have the lock are waited for, for a moment; held: who still has it.
-- kept_from: older rows may have been removed. A standby does not see who writes.
CREATE OR REPLACE FUNCTION issuing.audit_settled(OUT number int8, OUT held text, OUT kept_from timestamptz,
                                                 OUT asked_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    locks constant text := 'SELECT l.* FROM pg_locks l
                            WHERE l.mode = ''RowExclusiveLock'' AND l.granted
                              AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                              AND l.relation IN (SELECT t.relid FROM pg_partition_tree($1) t)';
    trail constant regclass := 'issuing.operator_actions'::regclass;
    writers text[];
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'the audit trail is exported and verified at the primary' USING ERRCODE = '25006';
    END IF;
    number := (SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END FROM operator_actions_number s);
    -- guard: a row that commits late is waited for
    EXECUTE 'SELECT array_agg(DISTINCT w.virtualtransaction) FROM (' || locks || ') w' INTO writers USING trail;
    FOR i IN 1..60 LOOP
        EXECUTE 'SELECT string_agg(DISTINCT coalesce(format(''process %s, role %s'', w.pid, a.usename),
                                                     ''a prepared transaction''), '', '')
                 FROM (' || locks || ') w LEFT JOIN pg_stat_activity a ON a.pid = w.pid
                 WHERE w.virtualtransaction = ANY ($2)' INTO held USING trail, writers;
        EXIT WHEN held IS NULL;
        PERFORM pg_sleep(0.05);
    END LOOP;
    asked_at := clock_timestamp();
    kept_from := issuing.retention_now(asked_at) - (SELECT r.kept FROM retentions r WHERE r.name = 'audit');
END
$$;

REVOKE ALL ON FUNCTION issuing.audit_settled, issuing.state_of, issuing.note_action, issuing.keeps_place,
    issuing.can_be_open,
    -- guard: no other role may call what the functions share
    issuing.sent_age_ms, issuing.has_card, issuing.reopen, issuing.replay, issuing.resend, issuing.reject,
    issuing.cancel, issuing.resolve, issuing.adopt FROM PUBLIC;
