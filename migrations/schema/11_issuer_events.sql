-- Events of the issuer, and what a card's new status leads to.

-- An event of the issuer about a card, whose signature the api has verified: a hint. A worker looks the card up now,
-- and decides by what it sees there. `reference`: of the event that the card was made for, where the issuer says it;
-- `card`: the issuer's id. Returns `noted`, `repeated` (the same body again), or `unknown`: there is no such card here.
CREATE OR REPLACE FUNCTION issuing.note_issuer_event(body_digest bytea, reference uuid, card text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    request uuid;
    has_ended bool;
BEGIN
    request := coalesce((SELECT e.id FROM outbox_events e WHERE e.id = reference AND e.event_type = 'CARD_ISSUE'),
                        (SELECT c.request_id FROM cards c WHERE c.request_id = reference),
                        (SELECT c.request_id FROM cards c WHERE c.issuer_card_id = card
                         ORDER BY c.created_at DESC LIMIT 1));
    IF request IS NULL THEN
        RETURN 'unknown';
    END IF;
    INSERT INTO issuer_events (request_id, digest) VALUES (request, body_digest) ON CONFLICT DO NOTHING;
    -- guard: an event of the issuer that comes again costs no attempt
    IF NOT FOUND THEN
        RETURN 'repeated';
    END IF;
    -- The next attempt looks up, or repeats, what it does not know; a deferral of a closed target costs nothing.
    UPDATE outbox_events e
    SET next_attempt_at = clock_timestamp(), updated_at = greatest(e.updated_at, clock_timestamp())
    -- guard: an event of the issuer brings no create forward
    WHERE e.id = request AND e.status = 'PENDING' AND e.first_sent_at IS NOT NULL
      AND e.next_attempt_at > clock_timestamp();
    IF NOT EXISTS (SELECT FROM outbox_events e WHERE e.id = request AND e.status = 'PENDING') THEN
        INSERT INTO marks AS p (event_id, deadline_at, action, actor, reason)
        VALUES (request, now() + interval '365 days', 'look', 'issuer', 'an event of the issuer')
        ON CONFLICT (event_id, (action = 'look')) WHERE finished_at IS NULL
        -- guard: an event of the issuer lets an unfinished look start again
        DO UPDATE SET due_at = now(), due_set_at = now(), lease_token = NULL;
    END IF;
    RETURN 'noted';
END
$$;

-- A card's status as a look-up at the issuer has just shown it. A card that was replaced stays replaced.
CREATE OR REPLACE FUNCTION issuing.set_card_status(request uuid, shown text, c issuing.marks) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    before cards;
BEGIN
    SELECT k.* INTO before FROM cards k WHERE k.request_id = request FOR UPDATE;
    -- guard: a look-up makes no replaced card active
    IF NOT FOUND OR before.status NOT IN ('active', 'frozen') OR before.status = shown THEN
        RETURN;
    END IF;
    UPDATE cards k SET status = shown, updated_at = clock_timestamp() WHERE k.request_id = request;
    INSERT INTO operator_actions (event_id, actor, db_role, os_user, sudo_user, action, reason, before, after)
    VALUES (request, c.actor, c.db_role, c.os_user, c.sudo_user, 'card_status', c.reason,
            jsonb_build_object('card_id', before.id, 'status', before.status),
            jsonb_build_object('card_id', before.id, 'status', shown, 'worker', c.worker));
END
$$;

-- CARD_STATUS_CHANGED, in the transaction of the change, where a route of that type is registered. The card of a
-- request that is not COMPLETED was never shown. Ids of one card rise, also after a step of the clock.
CREATE OR REPLACE FUNCTION issuing.notify_card_status() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    us int8 := (date_part('epoch', clock_timestamp()) * 1000000)::int8;
    newest int8;
BEGIN
    IF NOT EXISTS (SELECT FROM routes r WHERE r.event_type = 'CARD_STATUS_CHANGED')
       OR EXISTS (SELECT FROM outbox_events e WHERE e.id = NEW.request_id AND e.status <> 'COMPLETED') THEN
        RETURN NULL;
    END IF;
    newest := (SELECT uuid7_us(n.id) FROM outbox_events n
               WHERE n.user_id = NEW.user_id AND n.event_type = 'CARD_STATUS_CHANGED'
                 AND n.payload #>> '{data,id}' = NEW.id::text
               ORDER BY n.id DESC LIMIT 1);
    INSERT INTO outbox_events (id, event_type, user_id, payload)
    VALUES (uuid7_of(greatest(us, newest + 1)), 'CARD_STATUS_CHANGED', NEW.user_id,
            jsonb_build_object(
                'type', 'card.status_changed',
                'timestamp', utc_text(NEW.updated_at),
                'data', jsonb_build_object(
                    'id', NEW.id, 'request_id', NEW.request_id, 'user_id', NEW.user_id, 'last4', NEW.last4,
                    'exp_month', NEW.exp_month, 'exp_year', NEW.exp_year, 'status', NEW.status,
                    'previous_status', OLD.status)));
    PERFORM wake_for('CARD_STATUS_CHANGED', NULL);
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION issuing.note_issuer_event, issuing.set_card_status, issuing.notify_card_status FROM PUBLIC;
