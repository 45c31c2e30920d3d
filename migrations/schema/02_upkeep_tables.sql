-- The tables of what runs beside requests: housekeeping, statistics, workers, routes and senders, retentions, proofs.
-- Run once, as 02_tables.sql is, which also says what holds of all tables.

-- ---- housekeeping ----

-- One session at a time does periodic work. Rows and not advisory locks: those have no rights, and any session that may
-- connect can take them all. Only the owner, and functions that run as the owner, can lock a row here.
CREATE TABLE issuing.job_locks (
    name text COLLATE "C" PRIMARY KEY CHECK (name IN ('housekeeping', 'numbers', 'statistics', 'rebuild'))
);
INSERT INTO issuing.job_locks (name) VALUES ('housekeeping'), ('numbers'), ('statistics'), ('rebuild');

-- The clock by which retentions are judged. The database's own may step, by hours or a year and for a moment only, and
-- a key forgotten then is a second card. So this clock advances by what lies between two passes of run_housekeeping
-- while that is little (5 minutes), and stands still while a clock steps or no housekeeping runs. After a day without a
-- step the database's clock counts again. A retention is never shorter by it than by 5 minutes for each step.
CREATE TABLE issuing.housekeeping_clock (
    one         bool PRIMARY KEY DEFAULT true CHECK (one),
    passed_at   timestamptz, -- the database's clock at the last pass; NULL before the first
    steady_from timestamptz, -- no step and no pause since
    clock_at timestamptz, -- this clock at the last pass
    CONSTRAINT housekeeping_clock_whole CHECK (num_nulls(passed_at, steady_from, clock_at) IN (0, 3))
);
INSERT INTO issuing.housekeeping_clock DEFAULT VALUES;

-- The partitions that are there. One is settled when every event of its time has reached an end: from then on the
-- retention is counted. An open question (FAILED) may be asked again and so end later; still_open holds those events,
-- whose own end counts.
CREATE TABLE issuing.partitions (
    from_at    timestamptz NOT NULL,
    to_at      timestamptz NOT NULL,
    settled_at timestamptz,
    still_open uuid[] NOT NULL DEFAULT '{}', -- FAILED, or another program's, when it was settled; 10000 at most
    parent     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" PRIMARY KEY,
    CHECK (from_at < to_at)
);

-- A partition to come whose range a large `_default` is being checked for: run_housekeeping.
CREATE TABLE issuing.partition_plans (
    parent     text COLLATE "C" PRIMARY KEY,
    from_at    timestamptz NOT NULL,
    to_at      timestamptz NOT NULL,
    planned_at timestamptz NOT NULL,
    is_checked bool NOT NULL DEFAULT false
);

-- Where in each `_default` partition the next pass looks for rows to delete.
CREATE TABLE issuing.default_scans (
    name       text COLLATE "C" PRIMARY KEY,
    next_block int8 NOT NULL
);

-- ---- statistics ----
-- outbox_statistics says how many events ended in each hour, how, and how long that took, without a count of all
-- events. It follows the events by seconds, and nothing decides by it. Each function that gives an event its final
-- status, or takes it back, writes what changes into statistics_changes, in the same transaction; a status that is
-- taken back is a change of -1. One worker at a time moves the changes into outbox_statistics (fold_statistics). A row
-- of outbox_statistics would be a lock that all ends of an hour wait for; changes are only inserted.

-- Events with a final status, counted by these five columns.
CREATE TABLE issuing.outbox_statistics (
    hour        timestamptz NOT NULL, -- in which the events reached the final status
    event_type  text COLLATE "C" NOT NULL,
    status      text COLLATE "C" NOT NULL,
    reason_code text COLLATE "C" NOT NULL, -- '' = none
    below_ms    int8 NOT NULL,        -- the time from created_at to the final status was less; one of statistics_bounds
    count       int8 NOT NULL,
    sum_ms      int8 NOT NULL,        -- of these times
    PRIMARY KEY (hour, event_type, status, reason_code, below_ms)
);

-- A change is of events, or of one row of outbox_statistics. Whoever ends events writes one row for all that ended
-- alike in one call; all computation is left to the fold, which does it for thousands of events at once. No index: rows
-- are inserted at every end and read only all together.
CREATE TABLE issuing.statistics_changes (
    at          timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz NOT NULL, -- when they reached the status; of a row: its hour
    event_type  text COLLATE "C" NOT NULL,
    event_types text[] COLLATE "C",   -- one for each event, where they differ
    status      text COLLATE "C" NOT NULL,
    reason_code text COLLATE "C" NOT NULL,
    created_ats timestamptz[],        -- of the events
    count       int8 NOT NULL,        -- for each event, or in all; below 0: a final status was taken back
    below_ms    int8,                 -- of a row
    sum_ms      int8,                 -- of a row
    refused     text COLLATE "C"      -- why the change cannot be added, as a number that is too large; it is left out
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, toast_tuple_target = 8000);
ALTER TABLE issuing.statistics_changes ALTER created_ats SET STORAGE EXTERNAL, ALTER event_types SET STORAGE EXTERNAL,
    REPLICA IDENTITY FULL;

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
    waiting    int4 NOT NULL,        -- calls in the target's queue
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
-- of its type is open. So whether there is a notification does not depend on who is alive.
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

-- ---- proofs ----

-- How far `issuing-ctl prove` has read: one row. It goes over the events by their ids, in pieces, and may be
-- stopped between two.
CREATE TABLE issuing.data_proofs (
    one           bool PRIMARY KEY DEFAULT true CHECK (one),
    began_at      timestamptz,             -- of the proof that is under way, or of the last one
    up_to         uuid,                    -- events below this id are read; NULL = none is under way
    broken        int8 NOT NULL DEFAULT 0, -- rows that break a rule, as far as it is read
    -- when the last whole proof began; before the first one: when this row was made
    proven_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    proven_broken int8 NOT NULL DEFAULT 0  -- what that one found
);
INSERT INTO issuing.data_proofs DEFAULT VALUES;

-- ---- history ----

-- Names of histories of commits: what programs remember beside the last position that was acknowledged
-- (19_histories.sql). One is this database's own. `lost`: a program has seen commits acknowledged under this name which
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
