-- The tables of requests, cards, issuers and operators, their indexes and constraints, and what each column promises.
-- Run once, in a new database; from then on tables change by ../upgrades/. 02_upkeep_tables.sql has the others.
--
-- Strict (one transaction decides): idempotency_keys, rate_limit_log, outbox_events, event_keys, cards, card_reissues,
-- event_reissues, outbox_attempts, operator_actions, issuers, senders, end_notifications. Eventual: outbox_statistics
-- (follows statistics_changes), workers, worker_targets, route_workers; the link of a card in core-api, which follows
-- COMPLETED. Every table that belongs to a user has user_id. Every text has the collation C: in another one an index is
-- sorted by a library of the host, and when that sorts otherwise one day, a key that is there is no longer found. Every
-- table has a primary key or REPLICA IDENTITY FULL: where somebody publishes all tables, PostgreSQL refuses to change
-- the rows of one that has neither. FULL costs an insert nothing, and a change nothing but where wal_level is logical.
--
-- Tables that grow are partitioned by time, so that old rows leave by DROP: events and attempts by the event's id,
-- which is ordered by time, the others by a time of their own. housekeeping makes and drops the partitions. The
-- partition `_default` of each table takes what fits in no other: events whose sender brought another kind of id, what
-- a dropped partition still held, everything if no worker ran for long.

-- ---- events ----

-- The outbox. Operators read this table. Other services insert by issuing.enqueue.
--
-- An event has three versions of its row: accepted, claimed, ended. What is indexed does not change when an event is
-- claimed, so that update is HOT: no index entry, and the old version goes without a vacuum. No index may name the
-- status, a lease or a time that a claim writes; due_at and failed_at stand in for them and are kept by the database.
CREATE TABLE issuing.outbox_events (
    id              uuid NOT NULL DEFAULT issuing.uuid7(),  -- also the request's id and the issuer's Idempotency-Key
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at    timestamptz,                            -- when the final status was reached
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- PENDING: not before
    due_at          timestamptz GENERATED ALWAYS AS (CASE WHEN status IN ('PENDING', 'PROCESSING')
                                                          THEN next_attempt_at END) STORED,
    failed_at       timestamptz GENERATED ALWAYS AS (CASE WHEN status = 'FAILED' THEN updated_at END) STORED,
    lease_until     timestamptz,                            -- PROCESSING: the worker's lease ends here
    first_sent_at   timestamptz, -- the first send that may have arrived; NULL = nothing was sent
    deferred_since  timestamptz,                            -- start of an unbroken row of 409/425 answers
    lease_token     uuid,                                   -- PROCESSING: every write of the worker must name it
    retry_count     int NOT NULL DEFAULT 0,                 -- attempts: counted when claimed, given back by a deferral
    event_type      text COLLATE "C" NOT NULL DEFAULT 'CARD_ISSUE',
    status          text COLLATE "C" NOT NULL DEFAULT 'PENDING',
    user_id         text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C",   -- the client's key, for people; the one that counts is in idempotency_keys
    payload         jsonb NOT NULL,                         -- the request body
    traceparent     text COLLATE "C",                       -- of the client
    tracestate      text COLLATE "C",                       -- likewise
    lease_owner     text COLLATE "C",                       -- which worker holds or last held it
    reason_code     text COLLATE "C",                       -- REJECTED, FAILED: safe to show
    reason_detail   text COLLATE "C",
    last_error      text COLLATE "C",                       -- for operators
    cancel_code     text COLLATE "C", -- its card must be cancelled at the issuer, and it ends REJECTED with this code
    last_sent_at    timestamptz, -- no create that may still arrive left later; NULL with first_sent_at = the first one
    lost_count      int NOT NULL DEFAULT 0,                 -- attempts in a row that were lost with their worker
    deferral_count  int NOT NULL DEFAULT 0,                 -- deferrals in a row with the same cause
    deferral_code   text COLLATE "C", -- that cause; operator_*: an operator's act since the last attempt
    held_end        text COLLATE "C", -- PENDING: the end, once no create can arrive any more (worker/flow/flow.h)
    held_end_code   text COLLATE "C",                       -- its reason code
    -- What the issuer must be told of the user (holder, product), kept from the first attempt that leaves an outcome
    -- unknown: a repeat under the same key must be the same request.
    issuer_parameters jsonb
        CHECK (jsonb_typeof(issuer_parameters) = 'object' AND pg_column_size(issuer_parameters) <= 4096),
    result          jsonb,              -- the receiver's answer, where the route keeps it
    held_behind     uuid,               -- PENDING: the earlier event of its user and type that it waits for
    sent_to         int2, -- of issuers. In no index, because each first claim writes it; of no foreign key, for speed
    ends            int4, -- a card request: how often it was FAILED while notifications were made; NULL = never
    run_at          timestamptz, -- its sender wants it not before: neither due nor late until then. NULL = at once
    resent          int4, -- how often an operator had it sent again after it was COMPLETED; NULL = never
    PRIMARY KEY (id),
    CONSTRAINT outbox_events_status
        CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'REJECTED', 'FAILED')),
    CONSTRAINT outbox_events_lease
        CHECK ((status = 'PROCESSING') = (lease_token IS NOT NULL) AND (lease_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT outbox_events_retry_count CHECK (retry_count >= 0),
    CONSTRAINT outbox_events_reason CHECK (reason_code ~ '^[a-z0-9_]{1,64}$'),
    -- Of the text as PostgreSQL writes it, which may be longer than the answer was.
    CONSTRAINT outbox_events_result CHECK (result IS NULL OR octet_length(result::text) <= 16384)
) PARTITION BY RANGE (id);
CREATE TABLE issuing.outbox_events_default PARTITION OF issuing.outbox_events DEFAULT
    WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05);

-- claim, sweep
-- guard: what a claim writes is in no index
CREATE INDEX outbox_events_due ON issuing.outbox_events (event_type, due_at) WHERE due_at IS NOT NULL;
-- operators, gauges
CREATE INDEX outbox_events_failed ON issuing.outbox_events (id) WHERE failed_at IS NOT NULL;
-- operators: the open events of which something may have been sent are among those that were tried. Made of what an
-- attempt's end writes and a claim does not, so that acceptances and claims make no entry. invariants.py looks whether
-- each is there.
CREATE INDEX outbox_events_tried ON issuing.outbox_events (id)
    WHERE due_at IS NOT NULL AND (last_error IS NOT NULL OR deferral_code IS NOT NULL);
-- the client's own list
CREATE INDEX outbox_events_user ON issuing.outbox_events (user_id, id);
-- What waits for an event that ends: wake_held.
CREATE INDEX outbox_events_held ON issuing.outbox_events (held_behind) WHERE held_behind IS NOT NULL;
-- The events of a user and type that are open or FAILED: the claim of an ordered type. Card requests are in no order.
CREATE INDEX outbox_events_order ON issuing.outbox_events (event_type, user_id, id)
    WHERE event_type <> 'CARD_ISSUE' AND (due_at IS NOT NULL OR failed_at IS NOT NULL);

-- What each attempt came to. The row of a worker that died is written by the worker that takes its event over.
CREATE TABLE issuing.outbox_attempts (
    event_id    uuid NOT NULL,
    lease_token uuid NOT NULL,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz NOT NULL,
    attempt     int NOT NULL,     -- retry_count while it ran
    unknown     bool NOT NULL,    -- the issuer may have acted, and its answer is unknown
    user_id     text COLLATE "C" NOT NULL,
    worker      text COLLATE "C",
    step        text COLLATE "C" NOT NULL, -- where it ended
    outcome     text COLLATE "C" NOT NULL, -- completed, rejected, failed, retry, deferred, lost
    code        text COLLATE "C", -- the cause: issuer_http_503, connection_refused, breaker_open, drain ...
    detail      text COLLATE "C", -- for operators
    PRIMARY KEY (event_id, lease_token)
) PARTITION BY RANGE (event_id);
CREATE TABLE issuing.outbox_attempts_default PARTITION OF issuing.outbox_attempts DEFAULT;

-- Events whose last two attempts were lost with their worker: the event may be the cause. Each is tried alone. A row
-- may outlive its cause; a later claim of that kind removes the row, but not while a sweep may have just found a cause
-- for it: without its row such an event would be claimed by nobody. `since`: of the last such sweep.
CREATE TABLE issuing.lost_events (
    event_id uuid PRIMARY KEY,
    since    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- ---- acceptance ----

-- One row per (user, key) that was accepted. The stored answer follows from event_id, created_at and the (equal) body.
-- The newest row of a key counts: one whose retention is over may still be there beside it. That only one counts is
-- the work of the user's lock in issuing.accept.
CREATE TABLE issuing.idempotency_keys (
    event_id    uuid NOT NULL,
    created_at  timestamptz NOT NULL, -- the event's created_at: part of the stored answer
    user_id     text COLLATE "C" NOT NULL,
    -- guard: no index depends on how the host sorts
    key         text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,       -- SHA-256 of the value of the body
    PRIMARY KEY (user_id, key, created_at)
) PARTITION BY RANGE (created_at);
CREATE TABLE issuing.idempotency_keys_default PARTITION OF issuing.idempotency_keys DEFAULT;

-- The sliding-window log: one row per try that was counted, accepted or refused.
CREATE TABLE issuing.rate_limit_log (
    at         timestamptz NOT NULL, -- the database's clock, after the user's lock was taken
    request_id uuid NOT NULL,
    accepted   bool NOT NULL,
    user_id    text COLLATE "C" NOT NULL
) PARTITION BY RANGE (at);
CREATE TABLE issuing.rate_limit_log_default PARTITION OF issuing.rate_limit_log DEFAULT;
ALTER TABLE issuing.rate_limit_log_default REPLICA IDENTITY FULL;
-- The accepted tries of a user are read without the refused ones, however many those are.
-- guard: refused tries cost the limit nothing
CREATE INDEX rate_limit_log_user ON issuing.rate_limit_log (user_id, accepted, at);

-- A user's lock is an advisory lock: the user has no row. Its key is made with a salt of this database that only the
-- owner and the api's role read, so that no other role can take the lock beforehand. A lock that is held is seen in
-- pg_locks, which roles.sql closes where it may.
CREATE TABLE issuing.lock_salt (
    one  bool PRIMARY KEY DEFAULT true CHECK (one),
    salt int8 NOT NULL
);
INSERT INTO issuing.lock_salt (salt)
SELECT ('x' || left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 16)
       )::bit(64)::int8;

-- Where users are divided over several databases, the one row that says which of them this is (24_place.sql). Written
-- by migrate and by `issuing-ctl place`.
CREATE TABLE issuing.place (
    one     bool PRIMARY KEY DEFAULT true CHECK (one),
    number  int4 NOT NULL,
    places  int4 NOT NULL CHECK (places BETWEEN 2 AND 64 AND number BETWEEN 0 AND places - 1),
    home    text COLLATE "C" NOT NULL, -- cluster_name of the servers that may serve it
    left_by text COLLATE "C",          -- of those that gave it away last; null = it never moved, or was taken back
    -- Of the last move, new in its last commit: a server that shows it has all that was accepted before. A position of
    -- the write-ahead log does not say that, since a failover begins another timeline. Null = that commit is to come.
    move    uuid
);

-- ---- cards ----

-- At most one card per request. The number is encrypted by the worker before it is stored (common/core/keyring.h).
CREATE TABLE issuing.cards (
    id             uuid NOT NULL,    -- ours: in the API and towards core-api; made from request_id (common/core/card.h)
    request_id     uuid NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    replaces       uuid,
    exp_month      int2 NOT NULL CHECK (exp_month BETWEEN 1 AND 12),
    exp_year       int2 NOT NULL CHECK (exp_year BETWEEN 2000 AND 9999),
    user_id        text COLLATE "C" NOT NULL,
    issuer_card_id text COLLATE "C" NOT NULL, -- between worker and issuer only
    last4          text COLLATE "C" NOT NULL CHECK (last4 ~ '^[0-9]{4}$'),
    status         text COLLATE "C" NOT NULL DEFAULT 'active'
        CHECK (status IN ('active', 'frozen', 'replaced', 'cancelled')),
    number_record  bytea,            -- NULL: not stored (card.store = never, or the issuer gave only last4), or erased
    issuer         int2,             -- of issuers: where the card was made
    closed_at      timestamptz,      -- since when it is replaced or cancelled; written by note_closed only
    number_erased_at timestamptz,    -- when erase_numbers did
    PRIMARY KEY (user_id, id),       -- a card is only ever asked for in its user's name
    -- guard: one card a request
    CONSTRAINT cards_one_per_request UNIQUE (request_id)
) WITH (fillfactor = 95);
CREATE INDEX cards_at_issuer ON issuing.cards (issuer_card_id); -- note_issuer_event, list --card

-- Which events of the issuer were noted, by the SHA-256 of their bodies. keep_rows removes rows that are a day old.
CREATE TABLE issuing.issuer_events (
    request_id uuid NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    PRIMARY KEY (request_id, digest)
);
CREATE INDEX issuer_events_at ON issuing.issuer_events (at);

-- One live reissue per card. A unique index could not do it: in a partitioned table it must hold the id. A reissue
-- that was REJECTED leaves the card to another one.
CREATE TABLE issuing.card_reissues (
    event_id uuid NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    card_id  text COLLATE "C" NOT NULL, -- as the payload says it, in lower case
    PRIMARY KEY (user_id, card_id)
);

-- Which event replaces which, for ever: no event is reissued twice.
CREATE TABLE issuing.event_reissues (
    old_id uuid PRIMARY KEY,
    new_id uuid NOT NULL UNIQUE,
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Whose numbers were shown lately: one row a user, updated in place. keep_rows removes rows that are an hour old.
CREATE TABLE issuing.number_reveals (
    user_id     text COLLATE "C" PRIMARY KEY,
    last_at     timestamptz NOT NULL,  -- when the row was written
    refused_at  timestamptz,           -- the last refusal that has a row in operator_actions
    revealed_at timestamptz[] NOT NULL -- within the minute before last_at
) WITH (fillfactor = 50);

-- A number leaves in two calls, which are two transactions. ask_reveal writes the audit row and counts; take_number
-- gives the record only for a ticket that an earlier transaction has committed, and that this server's disk has. So a
-- number that left is in the audit trail and in the count, also if the caller rolls back, or lets its COMMIT return
-- before the disk has it. A try that is not committed does not count.
CREATE TABLE issuing.reveal_tickets (
    id      uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    made_by xid8 NOT NULL DEFAULT pg_current_xact_id(), -- the whole transaction, with any savepoint
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    user_id text COLLATE "C" NOT NULL,
    card_id uuid NOT NULL,
    wal_end pg_lsn -- behind the COMMIT of made_by; NULL = take_number has not had to wait for the disk
);
CREATE INDEX reveal_tickets_made ON issuing.reveal_tickets (made_at);

-- What a program may ask for at most, as the owner has set it: a program's configuration can only lower it.
CREATE TABLE issuing.ceilings (
    name text COLLATE "C" PRIMARY KEY CHECK (name IN ('reveals')),
    most int8 NOT NULL CHECK (most BETWEEN 0 AND 1000) -- card numbers shown to one user within a minute; 0 = none
);
INSERT INTO issuing.ceilings (name, most) VALUES ('reveals', 60);

-- ---- issuers ----

-- An event and a card belong to the issuer that the event was first sent to: its profile and its address. A
-- claim that would send an event elsewhere says so instead. Rows are never removed.
CREATE TABLE issuing.issuers (
    id int2 PRIMARY KEY CHECK (id > 0),
    profile text COLLATE "C" NOT NULL CHECK (octet_length(profile) BETWEEN 1 AND 64),
    -- its whole url; of a named account "URL account NAME"
    address text COLLATE "C" NOT NULL CHECK (octet_length(address) BETWEEN 1 AND 1200),
    seen_at timestamptz NOT NULL DEFAULT now(), -- about when a worker last claimed for it
    UNIQUE (profile, address)
);

-- `doctor --issuer`: are url, credential and parameters of an issuer right before the first card? `route test`: are
-- those of a route? An operator leaves a check here, a worker makes one harmless call with its own configuration. A
-- check that is lost is asked again.
CREATE TABLE issuing.issuer_checks (
    id          uuid PRIMARY KEY DEFAULT issuing.uuid7(),
    -- issuer, or the type of a route
    target      text COLLATE "C" NOT NULL CHECK (octet_length(target) BETWEEN 1 AND 64),
    -- core-api is asked about; NULL = about nobody
    user_id     text COLLATE "C" CHECK (octet_length(user_id) BETWEEN 1 AND 128),
    creates     bool NOT NULL DEFAULT false, -- a card of the issuer's test mode is made, and closed
    asked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline_at timestamptz NOT NULL, -- the operator waits no longer, and no worker begins it any more
    lease_until timestamptz,          -- a worker has it until then
    lease_token uuid,
    ended_at    timestamptz,
    actor       text COLLATE "C" NOT NULL,
    db_role     text COLLATE "C" NOT NULL DEFAULT session_user,
    os_user     text COLLATE "C",
    sudo_user   text COLLATE "C",
    worker      text COLLATE "C",     -- which one has it or last had it
    result      text COLLATE "C" CHECK (result IN ('ok', 'fail', 'unanswered')),
    detail      jsonb,                -- the findings, in their order: [{"check", "level", "found", "fix"}, ...]
    CONSTRAINT issuer_checks_detail CHECK (jsonb_typeof(detail) = 'array' AND octet_length(detail::text) <= 65536),
    CONSTRAINT issuer_checks_lease CHECK ((lease_until IS NULL) = (lease_token IS NULL)),
    CONSTRAINT issuer_checks_end CHECK ((ended_at IS NULL) = (result IS NULL))
);
CREATE INDEX issuer_checks_open ON issuing.issuer_checks (asked_at) WHERE ended_at IS NULL;
CREATE INDEX issuer_checks_ended ON issuing.issuer_checks (ended_at) WHERE ended_at IS NOT NULL;

-- `reconcile --from-issuer`: the issuer's own list of its cards, beside our events and cards. Whoever asks leaves a
-- row; a worker reads the list page by page under a lease and a token, and another one goes on where it stopped. One
-- that is lost is asked again.
CREATE TABLE issuing.issuer_listings (
    id           uuid PRIMARY KEY DEFAULT issuing.uuid7(),
    is_regular   bool NOT NULL DEFAULT false, -- by issuer.reconcile_every; else an operator asked
    since        timestamptz NOT NULL, -- cards that were made from then on
    asked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    wanted_until timestamptz NOT NULL, -- then nobody waits, and no worker continues; whoever asks again moves it
    lease_until  timestamptz,
    lease_token  uuid,
    worker       text COLLATE "C",     -- which one has it or last had it
    issuer       int2,                 -- of issuers, from the first page on: whose list it is; 0 = it got no event yet
    began_at     timestamptz,          -- when the first page was asked for
    cursor       text COLLATE "C",     -- the card that the next page begins after; NULL = the first page
    pages        int8 NOT NULL DEFAULT 0,
    cards        int8 NOT NULL DEFAULT 0,
    idle_pages   int8 NOT NULL DEFAULT 0, -- in a row, that had no new card
    listed_at    timestamptz,          -- when the last page was read
    compared_to  uuid,                 -- cards of requests up to this one were looked for in the list
    ended_at     timestamptz,
    -- why the list was not read last; of one that has ended: NULL = it was compared as a whole
    trouble      text COLLATE "C",
    counts       jsonb,                -- cards by listed_cards.kind, of one that was compared
    CONSTRAINT issuer_listings_cursor CHECK (octet_length(cursor) <= 256),
    CONSTRAINT issuer_listings_trouble CHECK (octet_length(trouble) <= 1000),
    CONSTRAINT issuer_listings_lease CHECK ((lease_until IS NULL) = (lease_token IS NULL))
);

-- What such a list had, and what it should have had. Rows that are not questions leave when it is compared.
CREATE TABLE issuing.listed_cards (
    listing        uuid NOT NULL,
    issuer_card_id text COLLATE "C" NOT NULL,
    reference      uuid, -- an event's id; NULL = the card has no reference of this form
    kind           text COLLATE "C" NOT NULL, -- issuing.kinds_of_question() are questions
    PRIMARY KEY (listing, issuer_card_id)
);
CREATE INDEX listed_cards_rest ON issuing.listed_cards (listing)
    WHERE kind <> ALL (ARRAY['no_event', 'unsent', 'rejected', 'failed', 'other_card', 'not_listed']);

-- ---- operators ----

-- Who did what, and why. Append-only for every role.
CREATE SEQUENCE issuing.operator_actions_number;
CREATE TABLE issuing.operator_actions (
    id        int8 NOT NULL DEFAULT nextval('issuing.operator_actions_number'), -- an identity cannot be a partition's
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    event_id  uuid,
    actor     text COLLATE "C" NOT NULL, -- free text, for people
    action    text COLLATE "C" NOT NULL,
    reason    text COLLATE "C",
    before    jsonb,
    after     jsonb,
    -- guard: the role of an action is the one that the database reports
    db_role   text COLLATE "C" DEFAULT session_user, -- the login role of the session that acted, or that asked for it
    os_user   text COLLATE "C",         -- the user of the operating system
    sudo_user text COLLATE "C",         -- SUDO_USER, where it was set
    batch     uuid DEFAULT issuing.batch_id(current_setting('issuing.batch', true)), -- of one bulk action
    -- what it had selected
    batch_scope text COLLATE "C" DEFAULT issuing.batch_scope(current_setting('issuing.batch', true))
) PARTITION BY RANGE (at);
ALTER SEQUENCE issuing.operator_actions_number OWNED BY issuing.operator_actions.id;
CREATE TABLE issuing.operator_actions_default PARTITION OF issuing.operator_actions DEFAULT;
ALTER TABLE issuing.operator_actions_default REPLICA IDENTITY FULL;
CREATE INDEX operator_actions_event ON issuing.operator_actions (event_id);
CREATE INDEX operator_actions_id ON issuing.operator_actions (id);
CREATE INDEX operator_actions_at ON issuing.operator_actions (at);
CREATE INDEX operator_actions_batch ON issuing.operator_actions (batch, at, id) WHERE batch IS NOT NULL;

-- Marks: "look this event up at the issuer, and act". A worker takes a mark under a lease and a token, as it takes an
-- event. `look` is a worker's own mark (add_mark); it is beside the mark of an operator, so that neither ends, delays
-- or prolongs the other. An event has at most one unfinished mark of operators and one of workers.
CREATE TABLE issuing.marks (
    id           uuid PRIMARY KEY DEFAULT issuing.uuid7(),
    event_id     uuid NOT NULL,
    deadline_at  timestamptz NOT NULL, -- then the result is `undecided`
    due_at       timestamptz NOT NULL DEFAULT now(), -- not before; while a worker has it: the end of the lease
    due_set_at   timestamptz NOT NULL DEFAULT now(), -- when due_at was set: still to come = by a clock that was ahead
    orphan_at    timestamptz, -- REJECTED: a live card was found, and is being cancelled. COMPLETED: it was closed
    finished_at  timestamptz,
    lease_token  uuid,
    new_id       uuid, -- reissued: the new event
    attempts     int NOT NULL DEFAULT 0,
    action       text COLLATE "C" NOT NULL CHECK (action IN ('reconcile', 'reissue', 'look')),
    actor        text COLLATE "C" NOT NULL,
    db_role      text COLLATE "C" NOT NULL DEFAULT session_user,
    os_user      text COLLATE "C",
    sudo_user    text COLLATE "C",
    reason       text COLLATE "C",
    -- of the new event; null = as before
    because      text COLLATE "C" CHECK (because IN ('lost', 'stolen', 'damaged', 'expired')),
    worker       text COLLATE "C", -- which one has it or last had it
    result       text COLLATE "C",
    detail       text COLLATE "C", -- with a result: more of it. Without: why the last try did not decide
    batch        text COLLATE "C" DEFAULT left(current_setting('issuing.batch', true), 1100), -- see batch_id
    CONSTRAINT marks_end CHECK ((finished_at IS NULL) = (result IS NULL))
);
CREATE UNIQUE INDEX marks_event ON issuing.marks (event_id, (action = 'look')) WHERE finished_at IS NULL;
CREATE INDEX marks_due ON issuing.marks (due_at) WHERE finished_at IS NULL; -- take_marks
CREATE INDEX marks_finished ON issuing.marks (finished_at) WHERE finished_at IS NOT NULL;

-- Ends whose notifications are not events yet. The transaction of the ends writes one row for all of one call: the ids
-- are enough, because a request that is COMPLETED or REJECTED never changes again. An end that is FAILED has a row of
-- its own with what GET said, since a replay changes the request. A row costs little however long nobody takes it.
-- Taken by claim_notifications, in the order of n: a sequence follows the ends of one request, also when a clock steps.
CREATE TABLE issuing.end_notifications (
    n          int8 NOT NULL GENERATED ALWAYS AS IDENTITY,
    ended_at   timestamptz NOT NULL,
    ids        uuid[] NOT NULL,
    is_again   bool NOT NULL DEFAULT false, -- for at least one of them this is not the first end
    end_number int4,                        -- FAILED: which end of the request it is; NULL = COMPLETED or REJECTED
    code       text COLLATE "C",            -- of FAILED
    detail     text COLLATE "C",
    refused    text COLLATE "C"             -- why it cannot become an event; such a row stays until somebody acts
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, toast_tuple_target = 8000);
-- Compression is not worth its time in rows that live for a second.
-- guard: notifications are made also while all tables are replicated
ALTER TABLE issuing.end_notifications ALTER ids SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
CREATE INDEX end_notifications_waiting ON issuing.end_notifications (n) WHERE refused IS NULL;
