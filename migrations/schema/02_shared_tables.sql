-- The tables that all places share: who works, what is delivered, how long things are kept. Run once, in a new
-- database; from then on tables change by ../upgrades/.

-- How many places there are; for ever. A user's place is issuing.place_of(user_id).
CREATE TABLE issuing.places (
    one   bool PRIMARY KEY DEFAULT true CHECK (one),
    count int2 NOT NULL CHECK (count BETWEEN 1 AND 64)
);

-- Which places this database serves; each has a row where there are several. 16_fence.sql has the states.
CREATE TABLE issuing.place_states (
    place      int2 PRIMARY KEY CHECK (place BETWEEN 0 AND 63),
    state      text COLLATE "C" NOT NULL DEFAULT 'served' CHECK (state IN ('served', 'leaving', 'closing', 'released')),
    owner      text COLLATE "C", -- cluster_name of the database that serves it, or served it; NULL = no place ever left
    next_owner text COLLATE "C", -- cluster_name of the database that may take it
    release_id uuid, -- of the last release; the same in both databases
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((state = 'served') = (next_owner IS NULL))
);

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

-- What a program may ask for at most, as the owner has set it: a program's configuration can only lower it.
CREATE TABLE issuing.ceilings (
    name text COLLATE "C" PRIMARY KEY CHECK (name IN ('reveals')),
    most int8 NOT NULL CHECK (most BETWEEN 0 AND 1000) -- card numbers shown to one user within a minute; 0 = none
);
INSERT INTO issuing.ceilings (name, most) VALUES ('reveals', 60);

-- `doctor --issuer`: are url, credential and parameters of an issuer right before the first card? `route test`: are those
-- of a route? An operator leaves a check here, a worker makes one harmless call with its own configuration. A check that
-- is lost is asked again.
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

-- `reconcile --from-issuer`: the issuer's own list of its cards, beside our events and cards. Whoever asks leaves a row;
-- a worker reads the list page by page under a lease and a token, and another one goes on where it stopped. One that
-- is lost is asked again.
CREATE TABLE issuing.issuer_listings (
    id           uuid PRIMARY KEY DEFAULT issuing.uuid7(),
    is_regular   bool NOT NULL DEFAULT false, -- by issuer.reconcile_every; else an operator asked
    since        timestamptz NOT NULL, -- cards that were made from then on
    asked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    wanted_until timestamptz NOT NULL, -- from then on nobody waits, and no worker continues; whoever asks again moves it
    lease_until  timestamptz,
    lease_token  uuid,
    worker       text COLLATE "C",     -- which one has it or last had it
    issuer       int2,                 -- of issuers, from the first page on: whose list it is; 0 = nothing was sent there yet
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

-- What such a list had, and what it should have had. Rows that are no question leave when it is compared.
CREATE TABLE issuing.listed_cards (
    listing        uuid NOT NULL,
    issuer_card_id text COLLATE "C" NOT NULL,
    reference      uuid, -- an event's id; NULL = the card has no reference of this form
    kind           text COLLATE "C" NOT NULL, -- issuing.kinds_of_question() are questions
    PRIMARY KEY (listing, issuer_card_id)
);
CREATE INDEX listed_cards_rest ON issuing.listed_cards (listing)
    WHERE kind <> ALL (ARRAY['no_event', 'unsent', 'rejected', 'failed', 'other_card', 'not_listed']);

-- ---- workers ----
-- Workers write these rows every few seconds, so that issuing-ctl, the api and alerts need no connection to a worker.
-- If a row is lost or wrong, people see a wrong picture; a pause that ends too early or too late costs no card. All
-- times are the database's.

-- One row for each worker process. A row that was not seen for 60 s counts as dead; a heartbeat removes it after a day.
CREATE TABLE issuing.workers (
    name       text COLLATE "C" PRIMARY KEY, -- host:pid, the owner of its leases (outbox_events.lease_owner)
    host       text COLLATE "C" NOT NULL,
    pid        int8 NOT NULL,
    version    text COLLATE "C" NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    in_flight  int4 NOT NULL,        -- events held
    slots      int4 NOT NULL,        -- worker.max_in_flight
    is_draining bool NOT NULL DEFAULT false,
    -- What all workers must have alike: options and their values (config_each_agreed), and two of them in ms.
    must_agree jsonb NOT NULL DEFAULT '{}',
    key_lifetime_ms int8,
    settle_time_ms int8
) WITH (fillfactor = 50);

-- One row for each target that a worker calls: the state of its breaker there. Each worker knows only the answers that
-- it got itself, so the rows of one target may differ.
CREATE TABLE issuing.worker_targets (
    worker     text COLLATE "C" NOT NULL REFERENCES issuing.workers ON DELETE CASCADE,
    target     text COLLATE "C" NOT NULL, -- issuer, core, or the type of a route
    state      text COLLATE "C" NOT NULL CHECK (state IN ('closed', 'half_open', 'open')),
    since      timestamptz NOT NULL, -- closed: when it closed, or began; open, half_open: when it opened
    cause      text COLLATE "C",     -- the last failure that opened it or kept it open; NULL: closed
    is_resting bool NOT NULL,        -- it answered "too many requests", and gets no call until next_at
    is_paused  bool NOT NULL,        -- the worker obeys a pause
    next_at    timestamptz,          -- open: the next probe; resting: the end of the rest; NULL: neither
    in_flight  int4 NOT NULL,        -- calls
    waiting    int4 NOT NULL,        -- calls that wait for their turn
    call_limit int4 NOT NULL,        -- calls at a time that the worker allows itself now
    probe_number int8 NOT NULL DEFAULT 0, -- of target_controls: the last probe that the worker obeyed
    certificate_ends_at timestamptz,      -- the first certificate of the target's chain; NULL: none was seen
    PRIMARY KEY (worker, target)
) WITH (fillfactor = 50);

-- The worker that was the last to end by itself: one row, for "no worker runs: the last one was seen then and there".
CREATE TABLE issuing.last_worker (
    is_only  bool PRIMARY KEY DEFAULT true CHECK (is_only),
    name     text COLLATE "C" NOT NULL,
    host     text COLLATE "C" NOT NULL,
    ended_at timestamptz NOT NULL
);

-- What operators asked for. A worker reads it with each heartbeat and before its first claim.
CREATE TABLE issuing.target_controls (
    target       text COLLATE "C" PRIMARY KEY CHECK (target ~ '^[A-Za-z][A-Za-z0-9_]{0,63}$'),
    paused_at    timestamptz,             -- NULL = not paused
    paused_by    text COLLATE "C",        -- the actor, for people
    paused_why   text COLLATE "C",
    paused_until timestamptz,             -- NULL = until an operator resumes it
    probe_number int8 NOT NULL DEFAULT 0, -- how often a probe was asked for; a worker compares it with its last one
    CONSTRAINT target_controls_paused CHECK ((paused_at IS NULL) = (paused_by IS NULL)
                                             AND (paused_at IS NULL) = (paused_why IS NULL)
                                             AND (paused_at IS NOT NULL OR paused_until IS NULL))
);

-- ---- routes and senders ----

-- The types that workers deliver, as they are configured there. The first worker that names a route registers it. The
-- route leaves by an operator's word (remove_route), or when no worker has named it for retentions.routes and nothing
-- of its type is open. So whether an end is told does not depend on who is alive.
CREATE TABLE issuing.routes (
    event_type      text COLLATE "C" PRIMARY KEY
        CHECK (event_type ~ '^[A-Z][A-Z0-9_]{0,63}$' AND event_type <> 'CARD_ISSUE'),
    is_ordered      bool NOT NULL,
    has_lookup      bool NOT NULL,
    key_lifetime_ms int8 NOT NULL,
    max_attempts    int8 NOT NULL,
    is_signed       bool NOT NULL,
    worker          text COLLATE "C" NOT NULL, -- that named it last
    seen_at         timestamptz NOT NULL, -- when
    since           timestamptz NOT NULL DEFAULT clock_timestamp(),
    frees_held      bool NOT NULL DEFAULT false -- it was ordered: what is held behind others is freed
) WITH (fillfactor = 50);

-- What each worker says of each route. Operators see who disagrees; a row counts for a minute.
CREATE TABLE issuing.route_workers (
    event_type      text COLLATE "C" NOT NULL,
    worker          text COLLATE "C" NOT NULL,
    is_ordered      bool NOT NULL,
    has_lookup      bool NOT NULL,
    key_lifetime_ms int8 NOT NULL,
    max_attempts    int8 NOT NULL,
    is_signed       bool NOT NULL,
    seen_at         timestamptz NOT NULL,
    PRIMARY KEY (event_type, worker)
) WITH (fillfactor = 50);

-- Who may send which type: this role and, as with any right, each role that has its rights. Name and oid must both fit:
-- a role that was created again under an old name is another role, and so is each role of another cluster that this
-- database was restored into (pg_upgrade keeps the oids). Without the right to call the function a row has no effect.
-- Written by change_sender only.
CREATE TABLE issuing.senders (
    event_type text COLLATE "C" NOT NULL CHECK (event_type ~ '^[A-Z][A-Z0-9_]{0,63}$'
                     AND event_type NOT IN ('CARD_REQUEST_ENDED', 'CARD_STATUS_CHANGED')),
    role       text COLLATE "C" NOT NULL,
    role_oid   oid NOT NULL,
    added_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (event_type, role)
);

-- The keys that senders gave, each with its event. The unique index makes two transactions with one key wait for each
-- other, and nobody else. A row is removed after its event (forget_keys); between the two it has no effect.
CREATE TABLE issuing.event_keys (
    event_id   uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    event_type text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    PRIMARY KEY (event_type, key)
);

-- ---- retentions ----

-- How long things are kept belongs to the database: a program's configuration can only lengthen a retention.
-- run_housekeeping raises `kept` to what a worker is configured with; only the owner lowers it, by
-- issuing.set_retention. The audit trail is the owner's alone: PCI DSS 4.0, 10.5.1, wants twelve months. routes: how
-- long a route stays that no worker names. numbers: how long after the end of a card its number is kept, for ever until
-- the owner says less; the least is the time to notice that cards were closed which should not be.
CREATE TABLE issuing.retentions (
    name  text COLLATE "C" PRIMARY KEY CHECK (name IN ('keys', 'limits', 'events', 'audit', 'routes', 'numbers')),
    kept  interval NOT NULL,
    least interval NOT NULL,
    CONSTRAINT retentions_least CHECK (kept >= least AND least >= interval '0')
);
INSERT INTO issuing.retentions (name, kept, least)
-- guard: the audit trail has a least retention
VALUES ('keys', '1 h', '1 h'), ('limits', '1 h', '1 h'), ('events', '1 d', '1 d'), ('audit', '400 d', '365 d'),
       -- guard: a number has a least retention
       ('routes', '30 d', '1 h'), ('numbers', '36600 d', '7 d');

-- A parameter of this type is who calls, and its default says so. SECURITY DEFINER hides the caller, and session_user
-- is not the caller behind SET ROLE, a pool, a function of another owner, or when autovacuum computes an index. The
-- CHECK looks where the value is made, which is outside of the function, so no other name can be given.
-- guard: nobody calls in the name of another role
CREATE DOMAIN issuing.caller AS name CHECK (VALUE = CURRENT_USER);

-- ---- proofs ----

-- How far `issuing-ctl prove` has read: one row. It goes over the events by their ids, in pieces, and may be
-- stopped between two.
CREATE TABLE issuing.data_proofs (
    one           bool PRIMARY KEY DEFAULT true CHECK (one),
    began_at      timestamptz,             -- of the proof that is under way, or of the last one
    up_to         uuid,                    -- events below this id are read; NULL = none is under way
    broken        int8 NOT NULL DEFAULT 0, -- rows that break a rule, as far as it is read
    proven_at     timestamptz NOT NULL DEFAULT clock_timestamp(), -- when the last whole one began; at first: of the table
    proven_broken int8 NOT NULL DEFAULT 0  -- what that one found
);
INSERT INTO issuing.data_proofs DEFAULT VALUES;

-- ---- history ----

-- Names of histories of commits: what programs remember beside the last position that was acknowledged
-- (16_histories.sql). One is this database's own. `lost`: a program has seen commits acknowledged under this name which
-- are not here. Until an operator accepts that, no program uses the database.
CREATE TABLE issuing.histories (
    id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    is_current  bool NOT NULL,
    lost        text COLLATE "C", -- how that was seen
    lost_at     timestamptz,
    accepted_at timestamptz,
    CHECK ((lost IS NULL) = (lost_at IS NULL) AND (accepted_at IS NULL OR lost_at IS NOT NULL))
);
CREATE UNIQUE INDEX histories_current ON issuing.histories (is_current) WHERE is_current;
INSERT INTO issuing.histories (is_current) VALUES (true);

-- ---- versions ----

-- What migrate has applied: 1 = these tables, n = the upgrade n.
CREATE TABLE issuing.schema_migration (
    version    int PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,
    sha256     text COLLATE "C" NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_by text COLLATE "C" NOT NULL DEFAULT session_user,
    ms         int NOT NULL
);
