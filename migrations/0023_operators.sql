-- Why: a replay of FAILED issuer_duplicate begins with a look-up. Locks: none that matter. Older programs: cannot run
-- after it.

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
