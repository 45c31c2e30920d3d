-- Types of parameters and results. Run once, in a new database, as 02_tables.sql is.

-- What a claim hands out (claim).
CREATE TYPE issuing.claimed_event AS (
    id uuid, user_id text, payload text, traceparent text, tracestate text, retry_count int4,
    sent_age_ms int8,     -- age of the first send that may have arrived; null = certainly none
    deferred_age_ms int8, -- of the unbroken row of 409/425 answers; null = none
    -- the card, where it is stored already
    card_id uuid, issuer_card_id text, last4 text, exp_month int2, exp_year int2,
    replaces_issuer_card_id text, -- reissue: the issuer's id of the card to replace
    cancel_code text,             -- an earlier attempt had begun to cancel the card
    settle_age_ms int8,           -- age of the last send that may still be on its way; null = there is none
    lost_count int4,
    deferral_count int4, deferral_code text, -- deferrals in a row for the same cause, and that cause
    changed_age_ms int8,          -- since the row last changed: for an event that was deferred or failed, since then
    held_end text, held_end_code text, -- the end that waits until no create can arrive any more
    issuer_parameters text,       -- null = none are kept
    made_ms int8,                 -- when the row was made: milliseconds since 1970, at least 0
    is_of_other_issuer bool,            -- it, or the card that it is to replace, belongs to another issuer
    replaces_request_id uuid,     -- reissue: the request that the card to replace was made for
    is_resent bool,               -- it was COMPLETED before, and an operator has it sent again
    is_accepted bool);            -- by an api, for a client; false = a service sent it

-- How an attempt ended (end_attempts).
CREATE TYPE issuing.attempt_end AS (
    id uuid, token uuid, status text,
    delay_ms int8,      -- PENDING: before the next attempt
    give_back bool,     -- a deferral: the attempt is not counted
    clear_sent bool,    -- nothing was ever sent that may have arrived
    deferred bool,      -- true: starts or continues a row of 409/425 answers
    reason_code text, reason_detail text, last_error text,
    step text, outcome text, code text, detail text, unknown bool, -- of the attempt's row
    took_ms int8,
    card_status text,   -- what the request's card becomes; null = leave
    -- COMPLETED: the card that it replaces. REJECTED, FAILED: the card that it was to replace, and that is closed at
    -- the issuer. null = none
    replaced uuid,
    may_arrive bool,    -- a create of this attempt may still be on its way to the issuer
    -- PENDING: the end that waits until no create can arrive any more; null = none does
    held_end text, held_end_code text,
    parameters text,    -- a JSON object: kept where the event keeps none yet; null = none
    result text);       -- an answer to keep; null = none

-- What a call of a pass of housekeeping did, or could not do.
CREATE TYPE issuing.pass_row AS (
    action text,     -- expired, erased, created, dropped, planned (a large `_default` is to be checked first), checked;
                     -- postponed, failed; busy: another worker is at it
    table_name text,
    amount int8,     -- rows that were deleted, erased, or moved to the `_default` partition
    detail text,
    again bool);     -- another call finds more

-- An end of a card request that becomes an event: as in end_notifications.
CREATE TYPE issuing.noted_end AS (id uuid, ended_at timestamptz, number int4, code text, detail text);

-- A parameter of this type is who calls, and its default says so. SECURITY DEFINER hides the caller, and session_user
-- is not the caller behind SET ROLE, a pool, a function of another owner, or when autovacuum computes an index. The
-- CHECK looks where the value is made, which is outside of the function, so no other name can be given.
-- guard: nobody calls in the name of another role
CREATE DOMAIN issuing.caller AS name CHECK (VALUE = CURRENT_USER);
