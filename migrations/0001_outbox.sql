-- Why: the tables of the outbox. Locks: none that matter, all tables are new. Older programs: there are none.
--
-- STRICT (one transaction decides): idempotency_keys, rate_limit_log, outbox_events, cards, outbox_attempts, operator_actions.
-- EVENTUAL: the link in core-api, which lives there and follows `COMPLETED`; counters and statistics.
-- Every table that belongs to a user carries user_id, so that the rows of one user can live on one shard.

-- Tables that grow are partitioned by time, so that what is over leaves by DROP (0004_housekeeping.sql makes and drops the partitions): events and
-- attempts by the event's id, which is time-ordered, keys and limit rows by their time. The partition `_rest` of each takes what fits nowhere: events
-- whose service brought another kind of id, what an old partition still held when it was dropped, everything if no worker ran for long.

-- Time-ordered ids (RFC 9562, version 7) for events that other services insert; our programs make their own.
CREATE FUNCTION issuing_uuid7() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$
        SELECT encode(
            set_bit(set_bit(
                overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::int8) FROM 3)
                        FROM 1 FOR 6),
                52, 1), 53, 1),
            'hex')::uuid
    $$;

-- The outbox. PUBLIC (CONTRACT 5): operators read it, other services insert event_type, user_id and payload.
--
-- An event lives through three versions of its row: accepted, claimed, ended. What is indexed does not change when it is claimed, so that version is
-- HOT: no index entry, and the accepted one goes away without a vacuum. No index may name status, a lease or a time that a claim writes; due_at and
-- failed_at stand in for them, kept by the database, so that they are right whoever writes.
CREATE TABLE outbox_events (
    id              uuid NOT NULL DEFAULT issuing_uuid7(),     -- also the request's id and the issuer's Idempotency-Key
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at    timestamptz,                               -- when the final status was reached
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- PENDING: not before
    due_at          timestamptz GENERATED ALWAYS AS (CASE WHEN status IN ('PENDING', 'PROCESSING') THEN next_attempt_at END) STORED,
    failed_at       timestamptz GENERATED ALWAYS AS (CASE WHEN status = 'FAILED' THEN updated_at END) STORED,
    lease_until     timestamptz,                               -- PROCESSING: the worker's right ends here
    first_sent_at   timestamptz,                               -- the first send that may have arrived at the issuer; NULL = surely nothing was sent
    deferred_since  timestamptz,                               -- start of an unbroken row of 409/425 answers
    lease_token     uuid,                                      -- PROCESSING: every write of the worker must name it
    retry_count     int NOT NULL DEFAULT 0,                    -- attempts, counted when claimed, given back by a deferral
    event_type      text NOT NULL DEFAULT 'CARD_ISSUE',
    status          text NOT NULL DEFAULT 'PENDING',
    user_id         text NOT NULL,
    idempotency_key text,                                      -- the client's key, for people; the one that counts is in idempotency_keys
    payload         jsonb NOT NULL,                            -- the request body
    traceparent     text,                                      -- of the client
    lease_owner     text,                                      -- which worker holds or last held it
    reason_code     text,                                      -- REJECTED, FAILED: safe to show
    reason_detail   text,
    last_error      text,                                      -- for operators
    cancel_code     text,                                      -- its card must be cancelled at the issuer, and it ends REJECTED with this code
    PRIMARY KEY (id),
    CONSTRAINT outbox_events_status CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'REJECTED', 'FAILED')),
    CONSTRAINT outbox_events_lease CHECK ((status = 'PROCESSING') = (lease_token IS NOT NULL) AND (lease_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT outbox_events_retry_count CHECK (retry_count >= 0),
    CONSTRAINT outbox_events_reason CHECK (reason_code ~ '^[a-z0-9_]{1,64}$')
) PARTITION BY RANGE (id);

CREATE INDEX outbox_events_due ON outbox_events (event_type, due_at) WHERE due_at IS NOT NULL; -- issuing_claim, outbox_sweep
CREATE INDEX outbox_events_failed ON outbox_events (id) WHERE failed_at IS NOT NULL;           -- operators, gauges
CREATE INDEX outbox_events_user ON outbox_events (user_id, id);                                -- the client's own list

-- One row per (user, key) that was accepted. The stored answer follows from event_id, created_at and the (equal) body. The newest row of a key counts:
-- one whose retention is over may still be there beside it. That there is one that counts is the work of the lock in issuing_accept.
CREATE TABLE idempotency_keys (
    event_id    uuid NOT NULL,
    created_at  timestamptz NOT NULL, -- the event's created_at: part of the stored answer
    user_id     text NOT NULL,
    key         text NOT NULL,
    fingerprint bytea NOT NULL,       -- SHA-256 of the value of the body
    PRIMARY KEY (user_id, key, created_at)
) PARTITION BY RANGE (created_at);

-- The sliding-window log: one row per try that was counted, accepted or refused.
CREATE TABLE rate_limit_log (
    at         timestamptz NOT NULL, -- the database's clock, after the user's lock was taken
    request_id uuid NOT NULL,
    accepted   bool NOT NULL,
    user_id    text NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX rate_limit_log_user ON rate_limit_log (user_id, at); -- issuing_accept

-- At most one card per request. The number is encrypted by the worker before it comes here (keyring.h).
CREATE TABLE cards (
    id             uuid NOT NULL,    -- ours: in the API and towards core-api
    request_id     uuid NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    replaces       uuid,
    exp_month      int2 NOT NULL CHECK (exp_month BETWEEN 1 AND 12),
    exp_year       int2 NOT NULL CHECK (exp_year BETWEEN 2000 AND 9999),
    user_id        text NOT NULL,
    issuer_card_id text NOT NULL,    -- between worker and issuer only
    last4          text NOT NULL CHECK (last4 ~ '^[0-9]{4}$'),
    status         text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'replaced', 'cancelled')),
    number_record  bytea,            -- NULL: not stored (card.store = never, or the issuer gave only last4)
    PRIMARY KEY (user_id, id),       -- a card is only ever asked for in its user's name
    CONSTRAINT cards_one_per_request UNIQUE (request_id)
) WITH (fillfactor = 95);

-- One live reissue per card. A unique index could not: in a partitioned table it must hold the id. A reissue that was REJECTED gives its place away.
CREATE TABLE card_reissues (
    event_id uuid NOT NULL,
    user_id  text NOT NULL,
    card_id  text NOT NULL, -- as the payload says it, in lower case
    PRIMARY KEY (user_id, card_id)
);

CREATE FUNCTION issuing_reissue_once() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
    AS $$
    DECLARE
        replaced text := lower(NEW.payload ->> 'replaces');
    BEGIN
        INSERT INTO card_reissues (event_id, user_id, card_id) VALUES (NEW.id, NEW.user_id, replaced)
        ON CONFLICT (user_id, card_id) DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        -- Somebody has the place. The lock on it comes first, in its own statement: only a snapshot taken after it sees the event of whoever we
        -- waited for. One statement would look that event up in a snapshot older than its commit, not find it, and take its place.
        PERFORM FROM card_reissues r WHERE r.user_id = NEW.user_id AND r.card_id = replaced FOR UPDATE;
        UPDATE card_reissues r SET event_id = NEW.id
        WHERE r.user_id = NEW.user_id AND r.card_id = replaced
          AND (r.event_id = NEW.id OR NOT EXISTS (SELECT FROM outbox_events e WHERE e.id = r.event_id AND e.status <> 'REJECTED'));
        IF NOT FOUND THEN
            RAISE unique_violation USING CONSTRAINT = 'outbox_events_reissue', TABLE = 'outbox_events',
                MESSAGE = 'there is a live reissue of this card already';
        END IF;
        RETURN NULL;
    END
    $$;
CREATE TRIGGER outbox_events_reissue AFTER INSERT ON outbox_events
    FOR EACH ROW WHEN (NEW.payload ->> 'replaces' IS NOT NULL) EXECUTE FUNCTION issuing_reissue_once();

-- What each attempt came to. The one of a worker that died is written by whoever takes its event over.
CREATE TABLE outbox_attempts (
    event_id    uuid NOT NULL,
    lease_token uuid NOT NULL,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz NOT NULL,
    attempt     int NOT NULL,     -- retry_count while it ran
    unknown     bool NOT NULL,    -- the issuer may have acted and we do not know
    user_id     text NOT NULL,
    worker      text,
    step        text NOT NULL,    -- where it ended
    outcome     text NOT NULL,    -- completed, rejected, failed, retry, deferred, lost
    code        text,             -- the cause: issuer_http_503, connection_refused, breaker_open, drain ...
    detail      text,             -- for operators
    PRIMARY KEY (event_id, lease_token)
) PARTITION BY RANGE (event_id);

-- Who did what, and why. Append-only for every role.
CREATE TABLE operator_actions (
    id       int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    event_id uuid,
    actor    text NOT NULL,
    action   text NOT NULL,
    reason   text,
    before   jsonb,
    after    jsonb
);
CREATE INDEX operator_actions_event ON operator_actions (event_id);
