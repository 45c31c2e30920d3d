-- Why: users who outgrow one PostgreSQL are divided over several, the cells (docs/scaling.md). A cell knows which of
-- the 1024 buckets of users live there, and refuses all others; a bucket is moved online from one cell to another.
-- Locks: none that matter. The tables are new, and functions are replaced; the triggers on the outbox are made by
-- issuing.cell_init, so that a database without cells has none of them. Older programs go on in a database without
-- cells; in a cell they get an error for a user whose bucket is not there.

-- ---- tables ----

-- The name of this cell; no row = the database is no cell and serves every user.
CREATE TABLE issuing.cell (
    is_only bool PRIMARY KEY DEFAULT true CHECK (is_only),
    name    text NOT NULL CHECK (name ~ '^[a-z][a-z0-9_-]{0,31}$'),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- All 1024 buckets, as docs/scaling.md explains their states; or no row, in a database that is no cell.
CREATE TABLE issuing.cell_buckets (
    bucket  int2 PRIMARY KEY CHECK (bucket BETWEEN 0 AND 1023),
    state   text NOT NULL CHECK (state IN ('here', 'listing', 'draining', 'closed', 'gone', 'arriving', 'away')),
    other   text CHECK (other ~ '^[a-z][a-z0-9_-]{0,31}$'), -- the other cell of the move that is on, or was last
    move_id uuid,                                           -- that move
    since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT cell_buckets_move CHECK (state IN ('here', 'away') OR other IS NOT NULL AND move_id IS NOT NULL)
) WITH (fillfactor = 50);
-- Whose events no claim hands out: usually none.
CREATE INDEX cell_buckets_parked ON issuing.cell_buckets (bucket)
    WHERE state IN ('draining', 'closed', 'gone', 'arriving');

-- The users of a bucket that moves: who was there when the move began, by one scan, and who has written since. Not
-- unique: two transactions that record the same user do not wait for each other.
CREATE TABLE issuing.cell_users (
    bucket  int2 NOT NULL,
    user_id text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX cell_users_bucket ON issuing.cell_users (bucket, user_id);

-- ---- the bucket of a user ----

-- HAProxy computes the same: sha2(256),bytes(0,2),hex,hex2i,mod(1024). The body is parsed here, so it depends on no
-- search_path, and has none: a function with one is not inlined. (convert_to is not immutable; decode leaves every byte
-- but the backslash as it is.)
CREATE FUNCTION issuing.bucket_of(user_id text) RETURNS int4
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('x' || substr(encode(sha256(decode(replace(user_id, '\', '\\'), 'escape')), 'hex'), 1, 4))::bit(16)::int4
           % 1024;

-- ---- the gate ----
--
-- A writer takes the lock (4713, bucket), shared, and looks at the state afterwards, in a statement of its own. Whoever
-- closes a bucket takes the same lock exclusively: so a writer that passed is over before, and one that comes later
-- sees the new state. A writer only tries the lock. The try also fails while the other one waits, so nobody waits here.
-- Another isolation level than READ COMMITTED has an old snapshot: there the row of the bucket is locked, which fails
-- (40001) if it has changed since that snapshot.

-- The state of this user's bucket, or `moving` where the lock is not free. For the triggers, which only a cell has.
CREATE FUNCTION issuing.cell_state(who text) RETURNS text
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        of_user int4 := issuing.bucket_of(who);
        is_free bool := pg_try_advisory_xact_lock_shared(4713, of_user);
        found_state text;
    BEGIN
        IF current_setting('transaction_isolation') = 'read committed' THEN
            SELECT c.state INTO found_state FROM cell_buckets c WHERE c.bucket = of_user;
        ELSE
            SELECT c.state INTO found_state FROM cell_buckets c WHERE c.bucket = of_user FOR SHARE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'the database became a cell after this transaction began' USING ERRCODE = '40001';
            END IF;
        END IF;
        RETURN CASE WHEN is_free OR found_state IN ('gone', 'away') THEN found_state ELSE 'moving' END;
    END
    $$;

-- What a writer is told: NULL = go on; `moving` = soon; `elsewhere` = in another cell.
CREATE FUNCTION issuing.cell_verdict(state text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT CASE WHEN state IN ('moving', 'closed', 'arriving') THEN 'moving'
                    WHEN state IN ('gone', 'away') THEN 'elsewhere' END
    $$;

-- The gate for the users of one transaction: a verdict for each, in their order; null where all of them are here. The
-- users of a bucket that is to be moved are recorded, also one who is refused: that does no harm.
CREATE FUNCTION issuing.cell_gate(users text[]) RETURNS text[]
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
    AS $$
    DECLARE
        buckets int4[];
        are_free bool[];
        states text[];
    BEGIN
        SELECT array_agg(l.bucket), array_agg(l.is_free) INTO buckets, are_free
        FROM (SELECT b.bucket, pg_try_advisory_xact_lock_shared(4713, b.bucket) AS is_free
              FROM (SELECT DISTINCT issuing.bucket_of(u.id) AS bucket FROM unnest(users) AS u (id)
                    ORDER BY 1 OFFSET 0) b) l;
        states := ARRAY(SELECT (SELECT c.state FROM cell_buckets c WHERE c.bucket = b.bucket)
                        FROM unnest(buckets) WITH ORDINALITY AS b (bucket, n) ORDER BY b.n);
        IF 'here' = ALL (states) AND are_free[1] AND true = ALL (are_free) THEN
            RETURN NULL;
        ELSIF states && '{listing,draining}' THEN
            PERFORM issuing.cell_note_users(users);
        END IF;
        RETURN ARRAY(SELECT issuing.cell_verdict(CASE WHEN b.is_free OR b.state IN ('gone', 'away') THEN b.state
                                                      ELSE 'moving' END)
                     FROM unnest(users) WITH ORDINALITY AS u (id, n)
                     JOIN unnest(buckets, states, are_free) AS b (bucket, state, is_free)
                       ON b.bucket = issuing.bucket_of(u.id)
                     ORDER BY u.n);
    END
    $$;

-- Records users who write while their bucket is to be moved. No transaction waits for another one here.
CREATE FUNCTION issuing.cell_note_users(users text[]) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
        INSERT INTO cell_users (bucket, user_id)
        SELECT c.bucket, u.id
        FROM unnest(users) AS u (id)
        JOIN cell_buckets c ON c.bucket = issuing.bucket_of(u.id)::int2 AND c.state IN ('listing', 'draining')
        WHERE NOT EXISTS (SELECT FROM cell_users k WHERE k.bucket = c.bucket AND k.user_id = u.id)
    $$;

-- The error of a writer whose user's bucket is in this state.
CREATE FUNCTION issuing.cell_refuse_write(state text, of_user int4) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        IF issuing.cell_verdict(state) = 'elsewhere' THEN
            RAISE check_violation USING TABLE = 'cell_buckets', CONSTRAINT = 'cell_buckets',
                MESSAGE = format('the users of bucket %s are in another cell', of_user);
        END IF;
        RAISE lock_not_available USING TABLE = 'cell_buckets', CONSTRAINT = 'cell_buckets',
            MESSAGE = format('the users of bucket %s are being moved to another cell', of_user);
    END
    $$;

-- Whether a row is being copied: into a bucket that arrives, by the owner of the tables.
CREATE FUNCTION issuing.cell_is_copy(who text) RETURNS bool
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        RETURN EXISTS (SELECT FROM cell_buckets c
                       WHERE c.bucket = issuing.bucket_of(who)::int2 AND c.state = 'arriving')
           -- As this function runs as the owner, current_user says nothing.
           AND pg_has_role(coalesce(nullif(current_setting('role'), 'none'), session_user)::name,
                           (SELECT c.relowner FROM pg_class c WHERE c.oid = 'outbox_events'::regclass), 'MEMBER');
    END
    $$;

-- Reads of clients: raises when the bucket of this user is not here. The statement calls it once, and it sees what that
-- statement sees.
CREATE FUNCTION issuing.demand_here(who text) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        found_state text;
    BEGIN
        SELECT c.state INTO found_state FROM cell_buckets c WHERE c.bucket = issuing.bucket_of(who)::int2;
        IF found_state = 'arriving' THEN
            RAISE EXCEPTION 'the bucket of this user is being moved' USING ERRCODE = 'IS001';
        ELSIF found_state IN ('gone', 'away') THEN
            RAISE EXCEPTION 'the bucket of this user is in another cell' USING ERRCODE = 'IS002';
        END IF;
        RETURN true;
    END
    $$;

-- As demand_here, for what writes.
CREATE FUNCTION issuing.demand_open(who text) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        verdict text;
    BEGIN
        IF EXISTS (SELECT FROM cell_buckets) THEN
            verdict := (issuing.cell_gate(ARRAY[who]))[1];
            IF verdict = 'moving' THEN
                RAISE EXCEPTION 'the bucket of this user is being moved' USING ERRCODE = 'IS001';
            ELSIF verdict = 'elsewhere' THEN
                RAISE EXCEPTION 'the bucket of this user is in another cell' USING ERRCODE = 'IS002';
            END IF;
        END IF;
    END
    $$;

-- ---- triggers of the outbox, made by cell_init ----

-- A new event of another service.
CREATE FUNCTION issuing.cell_insert() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        found_state text := issuing.cell_state(NEW.user_id);
    BEGIN
        IF found_state = 'here' THEN
            RETURN NEW;
        ELSIF found_state IN ('listing', 'draining') THEN
            PERFORM issuing.cell_note_users(ARRAY[NEW.user_id]);
        ELSIF NOT issuing.cell_is_copy(NEW.user_id) THEN
            PERFORM issuing.cell_refuse_write(found_state, issuing.bucket_of(NEW.user_id));
        END IF;
        RETURN NEW;
    END
    $$;

-- A change of an event that no worker has, but for claims, which have a gate of their own. What takes rows as it finds
-- them (wake-ups) leaves this one out; an operator is told.
CREATE FUNCTION issuing.cell_update() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        found_state text := issuing.cell_state(NEW.user_id);
    BEGIN
        IF found_state IN ('here', 'listing', 'draining') THEN
            RETURN NEW;
        ELSIF NEW.status <> OLD.status THEN
            PERFORM issuing.cell_refuse_write(found_state, issuing.bucket_of(NEW.user_id));
        END IF;
        RETURN NULL;
    END
    $$;

-- A mark: as an event.
CREATE FUNCTION issuing.cell_mark() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        who text := (SELECT e.user_id FROM outbox_events e WHERE e.id = NEW.event_id);
        found_state text;
        is_lease bool := TG_OP = 'UPDATE' AND NEW.lease_token IS NOT NULL
                         AND NEW.lease_token IS DISTINCT FROM OLD.lease_token;
    BEGIN
        IF who IS NULL THEN
            RETURN NEW;
        END IF;
        found_state := issuing.cell_state(who);
        IF found_state IN ('here', 'listing') OR found_state = 'draining' AND NOT is_lease
           OR TG_OP = 'INSERT' AND issuing.cell_is_copy(who) THEN
            RETURN NEW;
        ELSIF TG_OP = 'INSERT' OR NEW.finished_at IS NOT NULL AND NEW.result <> 'undecided' THEN
            PERFORM issuing.cell_refuse_write(found_state, issuing.bucket_of(who));
        END IF;
        RETURN NULL;
    END
    $$;

-- ---- acceptance ----

-- issuing.accept of 0011_limits.sql, with the gate: after the locks of the users, before all that is judged. A user who
-- is not here is refused alone, and a repeat is refused too, since its key lives where the bucket lives.
CREATE OR REPLACE FUNCTION issuing.accept(
    ids uuid[], user_ids text[], keys text[], fingerprints bytea[], payloads text[], traceparents text[],
    limit_count int8, limit_window interval, count_attempts bool, key_retention interval)
RETURNS TABLE (
    verdict    text,        -- accepted, replayed, reused, not_replaceable, limited; moving, elsewhere
    event_id   uuid,        -- of the accepted or replayed event
    created_at timestamptz, -- of that event
    used       int8,        -- counted tries in the window, limit_count of them at most, and this one where it counts
    oldest_at  timestamptz, -- the oldest of them
    frees_at   timestamptz, -- limited: when the next try can pass
    decided_at timestamptz)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET lock_timeout = '2s'
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    barred text[]; -- the verdict of a user who is not here; null = without cells
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.accept needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;

    IF cardinality(user_ids) = 1 AND array_lower(user_ids, 1) = 1 THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(user_ids[1], 4711));
    ELSE
        -- Two of one user would be judged by one snapshot, and both pass.
        IF (SELECT count(DISTINCT u.user_id) < count(*) FROM unnest(user_ids) AS u (user_id)) THEN
            RAISE EXCEPTION 'a batch of issuing.accept holds a user at most once' USING ERRCODE = '22023';
        END IF;
        PERFORM pg_advisory_xact_lock(l.h)
        FROM (SELECT hashtextextended(u.user_id, 4711) AS h
              FROM unnest(user_ids) AS u (user_id) ORDER BY 1 OFFSET 0) AS l;
    END IF;

    IF EXISTS (SELECT FROM cell_buckets) THEN
        barred := issuing.cell_gate(user_ids);
    END IF;
    t := clock_timestamp();

    RETURN QUERY
    WITH judged AS MATERIALIZED (
        SELECT a.*, k.event_id AS known_id, k.created_at AS known_at,
            least(w.accepted + coalesce(cardinality(w.refused), 0), limit_count) AS counted,
            least(w.oldest, w.refused[1]) AS oldest,
            CASE
                WHEN barred[a.n] IS NOT NULL THEN barred[a.n]
                WHEN k.event_id = a.id THEN 'accepted'
                WHEN k.fingerprint = a.fingerprint THEN 'replayed'
                WHEN k.event_id IS NOT NULL THEN 'reused'
                WHEN a.payload ->> 'replaces' IS NOT NULL
                     AND NOT issuing.is_replaceable(a.user_id, a.payload ->> 'replaces') THEN 'not_replaceable'
                WHEN w.accepted + coalesce(cardinality(w.refused), 0) >= limit_count THEN 'limited'
                ELSE 'accepted'
            END AS verdict
        FROM unnest(ids, user_ids, keys, fingerprints, payloads::jsonb[], traceparents)
            WITH ORDINALITY AS a (id, user_id, key, fingerprint, payload, traceparent, n)
        LEFT JOIN LATERAL (
            SELECT n.* FROM (
                SELECT k.event_id, k.created_at, k.fingerprint FROM idempotency_keys k
                WHERE k.user_id = a.user_id AND k.key = a.key
                ORDER BY k.created_at DESC
                LIMIT 1) n
            WHERE n.created_at >= t - key_retention
               OR NOT issuing.key_is_over(n.event_id, n.created_at, t, key_retention)
        ) k ON true
        CROSS JOIN LATERAL (
            -- Oldest first, and no more than decide: with the limit reached nothing depends on how far it is exceeded.
            SELECT count(*) AS accepted, min(c.at) AS oldest,
                   CASE WHEN count_attempts THEN issuing.refused_tries(a.user_id, a.id, t - limit_window, limit_count)
                   END AS refused
            FROM (SELECT l.at FROM rate_limit_log l
                  WHERE l.user_id = a.user_id AND l.accepted AND l.at > t - limit_window AND l.request_id <> a.id
                  ORDER BY l.at LIMIT limit_count) c
        ) w
    ), new_keys AS (
        INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
        SELECT j.id, t, j.user_id, j.key, j.fingerprint FROM judged j
        WHERE j.verdict = 'accepted' AND j.known_id IS NULL
    ), new_tries AS (
        INSERT INTO rate_limit_log (at, request_id, accepted, user_id)
        SELECT t, j.id, j.verdict = 'accepted', j.user_id FROM judged j
        WHERE j.known_id IS NULL AND (j.verdict = 'accepted' OR j.verdict = 'limited'
              AND CASE WHEN count_attempts
                       THEN issuing.gets_a_row(j.user_id, j.id, t, least(limit_window / 10::float8, '1 s'),
                                               limit_window, limit_count)
                       ELSE issuing.gets_a_row(j.user_id, j.id, t, '1 s', '1 s', 1) END)
    ), new_events AS (
        INSERT INTO outbox_events (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload,
                                   traceparent)
        SELECT j.id, t, t, t, j.user_id, j.key, j.payload, j.traceparent FROM judged j
        WHERE j.verdict = 'accepted' AND j.known_id IS NULL
    )
    SELECT j.verdict,
           coalesce(j.known_id, j.id),
           coalesce(j.known_at, t),
           j.counted + CASE WHEN j.verdict = 'accepted' OR j.verdict = 'limited' AND count_attempts THEN 1 ELSE 0 END,
           CASE WHEN j.oldest IS NOT NULL OR j.verdict = 'accepted' OR j.verdict = 'limited' AND count_attempts
                THEN least(j.oldest, t) END,
           CASE WHEN j.verdict = 'limited'
                THEN issuing.frees_at(j.user_id, j.id, t, limit_count, limit_window, count_attempts) END,
           t
    -- In the order of the arrays, which is that of `judged`: one scan of what was kept, and no parallel plan in a
    -- statement that writes. A sort that has nothing to do costs as much as a trigger.
    FROM judged j;

    IF pg_current_xact_id_if_assigned() IS NULL THEN
        PERFORM pg_logical_emit_message(true, 'issuing', '');
    END IF;
END
$$;

-- ---- claims ----

-- The buckets whose events no worker takes; null = none. A claim that merely left out such events after it has chosen
-- them would find the same ones again and again, and never reach the others.
CREATE FUNCTION issuing.cell_parked() RETURNS int4[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp SET enable_seqscan = off
    AS $$
    BEGIN
        RETURN (SELECT array_agg(c.bucket::int4) FROM cell_buckets c
                WHERE c.state IN ('draining', 'closed', 'gone', 'arriving'));
    END
    $$;

-- issuing.lost_is_due, hold_behind and claim of 0016_routes.sql, which pass over events of buckets that are parked.
CREATE OR REPLACE FUNCTION issuing.lost_is_due(but uuid, of_type text) RETURNS bool
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
    DECLARE
        parked int4[] := issuing.cell_parked();
    BEGIN
        RETURN EXISTS (SELECT FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
                       WHERE e.event_type = of_type AND e.status = 'PENDING' AND e.due_at <= now()
                         AND e.lost_count >= 2 AND e.id IS DISTINCT FROM but
                         AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked)));
    END
    $$;

CREATE OR REPLACE FUNCTION issuing.hold_behind(of_type text, most int8, since timestamptz)
    RETURNS TABLE (
        ready uuid[],
        next_since timestamptz, -- null = everything due was looked at
        is_filled bool)         -- there may be more that is due
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
    AS $$
    #variable_conflict use_column
    DECLARE
        looks constant int8 := least(greatest(2 * most, 32), 128); -- each with a lock of its own
        ids uuid[];
        users text[];
        dues timestamptz[];
        changes timestamptz[];
        waits bool[];
        parked int4[] := issuing.cell_parked();
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.claim of an ordered type needs READ COMMITTED, not %',
                current_setting('transaction_isolation') USING ERRCODE = '25001';
        END IF;
        SELECT array_agg(d.id), array_agg(d.user_id), array_agg(d.due_at), array_agg(d.updated_at)
        INTO ids, users, dues, changes
        FROM (SELECT e.id, e.user_id, e.due_at, e.updated_at
              FROM outbox_events e
              WHERE e.event_type = of_type AND e.due_at >= since AND e.due_at <= now()
                AND e.status = 'PENDING' AND e.lost_count < 2
                AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
              ORDER BY e.due_at
              LIMIT looks
              FOR UPDATE SKIP LOCKED) d;
        -- In statements of their own: what comes next must see every end that gave its lock back before.
        SELECT array_agg(NOT pg_try_advisory_xact_lock(4712, hashtext(of_type || a.user_id)) ORDER BY a.n)
        INTO waits
        FROM unnest(users) WITH ORDINALITY AS a (user_id, n);
        RETURN QUERY
        WITH asked AS MATERIALIZED (
            SELECT a.id, a.due_at, a.updated_at, a.waits, a.n, b.id AS behind
            FROM unnest(ids, users, dues, changes, waits)
                WITH ORDINALITY AS a (id, user_id, due_at, updated_at, waits, n)
            LEFT JOIN LATERAL (
                SELECT o.id FROM outbox_events o
                WHERE NOT a.waits AND o.event_type = of_type AND o.event_type <> 'CARD_ISSUE'
                  AND o.user_id = a.user_id AND o.id < a.id AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL)
                ORDER BY o.id DESC LIMIT 1) b ON true
        ), held AS (
            UPDATE outbox_events e
            SET held_behind = a.behind,
                next_attempt_at = now() + least(greatest(now() - greatest(least(e.created_at, now()), 'epoch'),
                                                         interval '5 minutes'), interval '1 hour'),
                first_sent_at = e.first_sent_at - a.ahead, last_sent_at = e.last_sent_at - a.ahead,
                deferred_since = e.deferred_since - a.ahead, updated_at = now()
            FROM (SELECT x.id, x.behind, CASE WHEN x.updated_at > now()
                                              THEN least(x.updated_at, now() + interval '1000 years') - now()
                                              ELSE interval '0' END AS ahead
                  FROM asked x WHERE x.behind IS NOT NULL) a
            WHERE e.id = a.id
        ), free AS (
            SELECT a.id, a.due_at, row_number() OVER (ORDER BY a.n) AS n
            FROM asked a WHERE NOT a.waits AND a.behind IS NULL
        )
        SELECT (SELECT array_agg(f.id ORDER BY f.n) FROM free f WHERE f.n <= most),
               least((SELECT min(a.due_at) FROM asked a WHERE a.waits),
                     (SELECT min(f.due_at) FROM free f WHERE f.n > most),
                     (SELECT max(a.due_at) FROM asked a HAVING count(*) >= looks)),
               (SELECT count(*) >= looks FROM asked) OR EXISTS (SELECT FROM free f WHERE f.n > most);
    END
    $$;

-- The one that programs of older releases call.
CREATE OR REPLACE FUNCTION issuing.claim(
    new_token uuid, most int8, lease_ms int8, worker text, since_us int8, slack_ms int8, alone bool)
RETURNS TABLE (
    id uuid, user_id text, payload text, traceparent text, retry_count int4, sent_age_ms int8, deferred_age_ms int8,
    card_id uuid, issuer_card_id text, last4 text, exp_month int2, exp_year int2, card_status text,
    replaces_issuer_card_id text, cancel_code text, next_since_us int8, settle_age_ms int8, lost_count int4,
    now_us int8, deferral_count int4, deferral_code text, changed_age_ms int8, held_end text, held_end_code text,
    issuer_parameters text, made_ms int8)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT c.id, c.user_id, c.payload, c.traceparent, c.retry_count, c.sent_age_ms, c.deferred_age_ms, c.card_id,
           c.issuer_card_id, c.last4, c.exp_month, c.exp_year, c.card_status, c.replaces_issuer_card_id, c.cancel_code,
           c.next_since_us, c.settle_age_ms, c.lost_count, c.now_us, c.deferral_count, c.deferral_code,
           c.changed_age_ms, c.held_end, c.held_end_code, c.issuer_parameters, c.made_ms
    FROM issuing.claim(new_token, most, lease_ms, worker, since_us, slack_ms, alone, 'CARD_ISSUE', false) c;
END
$$;

CREATE OR REPLACE FUNCTION issuing.claim(
    new_token uuid, most int8, lease_ms int8, worker text,
    since_us int8, -- the bookmark: microseconds since 1970; null = from the beginning
    slack_ms int8, -- so long a commit may take to become visible without being left to the sweep
    alone bool,
    of_type text,      -- event_type
    is_ordered bool)   -- as in issuing.routes: an event that has to wait is held behind an earlier one
RETURNS TABLE (
    id uuid, user_id text, payload text, traceparent text, retry_count int4,
    sent_age_ms int8,     -- age of the first send that may have arrived; null = certainly none
    deferred_age_ms int8, -- of the unbroken row of 409/425 answers; null = none
    -- the card, where it is stored already
    card_id uuid, issuer_card_id text, last4 text, exp_month int2, exp_year int2, card_status text,
    replaces_issuer_card_id text, -- reissue: the issuer's id of the card to replace
    cancel_code text,             -- an earlier attempt had begun to cancel the card
    next_since_us int8,           -- of the last row: the next bookmark; null = unchanged
    settle_age_ms int8,           -- age of the last send that may still be on its way; null = there is none
    lost_count int4,              -- of the last row: 1 = there are events to be tried alone that are due, else 0
    now_us int8,                  -- of the last row: the database's clock
    deferral_count int4, deferral_code text, -- deferrals in a row for the same cause, and that cause
    changed_age_ms int8,          -- since the row last changed: for an event that was deferred or failed, since then
    held_end text, held_end_code text, -- the end that waits until no create can arrive any more
    issuer_parameters text,       -- null = none are kept
    made_ms int8,                 -- when the row was made: milliseconds since 1970, at least 0
    is_filled bool)               -- of the last row: there may be more that is due
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    since timestamptz := coalesce(timestamptz 'epoch' + since_us * interval '1 microsecond', '-infinity');
    alone_id uuid;
    slack interval := slack_ms * interval '1 millisecond';
    named uuid[]; -- the events that are handed out, where they are not simply the oldest
    ordered_since timestamptz;
    ordered_is_filled bool;
    is_cell bool := EXISTS (SELECT FROM cell_buckets);
    parked int4[]; -- buckets whose events stay where they are; null = none
BEGIN
    -- With an old snapshot the database may be a cell that does not look like one.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'issuing.claim needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;
    IF is_cell THEN
        -- Every claim shares this lock; whoever parks a bucket has it alone. So the mover waits for the claims that do
        -- not know of it, and what is read in later statements holds until this claim is over.
        PERFORM pg_advisory_xact_lock_shared(4713, -1);
        parked := issuing.cell_parked();
    END IF;
    IF alone THEN
        DELETE FROM lost_events l
        WHERE l.since < now() - interval '1 minute'
          AND NOT EXISTS (SELECT FROM outbox_events e
                          WHERE e.id = l.event_id AND e.due_at IS NOT NULL AND e.lost_count >= 2);
        SELECT e.id INTO alone_id
        FROM lost_events l JOIN outbox_events e ON e.id = l.event_id
        WHERE e.event_type = of_type AND e.status = 'PENDING' AND e.due_at <= now() AND e.lost_count >= 2
          AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
        ORDER BY e.due_at
        LIMIT 1
        FOR UPDATE OF e SKIP LOCKED;
        named := ARRAY[alone_id];
    ELSIF is_ordered THEN
        SELECT p.ready, p.next_since, p.is_filled INTO named, ordered_since, ordered_is_filled
        FROM issuing.hold_behind(of_type, most, since) p;
    END IF;
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT e.id, e.due_at, e.first_sent_at, e.updated_at,
               CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now()
                    ELSE interval '0' END AS ahead
        FROM outbox_events e
        WHERE NOT alone AND NOT is_ordered AND e.event_type = of_type AND e.due_at >= since AND e.due_at <= now()
          AND e.status = 'PENDING' AND e.lost_count < 2
          AND (parked IS NULL OR issuing.bucket_of(e.user_id) <> ALL (parked))
        ORDER BY e.due_at
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ), one AS MATERIALIZED (
        SELECT e.id, e.first_sent_at, e.updated_at,
               CASE WHEN e.updated_at > now() THEN least(e.updated_at, now() + interval '1000 years') - now()
                    ELSE interval '0' END AS ahead
        FROM unnest(named) AS n (id) JOIN outbox_events e ON e.id = n.id
        WHERE alone OR is_ordered
    ), held AS (
        UPDATE outbox_events e
        SET status = 'PROCESSING', held_behind = NULL, retry_count = least(e.retry_count + 1, 1000000),
            lease_token = new_token, lease_owner = worker,
            lease_until = now() + lease_ms * interval '1 millisecond',
            first_sent_at = least(coalesce(e.first_sent_at - due.ahead, now()), now()),
            last_sent_at = CASE WHEN e.last_sent_at IS NOT NULL THEN least(e.last_sent_at - due.ahead, now()) END,
            deferred_since = CASE WHEN e.deferred_since IS NOT NULL THEN least(e.deferred_since - due.ahead, now()) END,
            updated_at = now()
        FROM (SELECT d.id, d.first_sent_at, d.updated_at, d.ahead FROM due d UNION ALL SELECT * FROM one) due
        WHERE e.id = due.id
          -- Also not an event that is left behind in a cell where its bucket is `away`.
          AND (NOT is_cell OR (SELECT b.state FROM cell_buckets b WHERE b.bucket = issuing.bucket_of(e.user_id)::int2)
                              IN ('here', 'listing'))
        RETURNING e.id, e.due_at, e.user_id, e.payload, e.traceparent, e.retry_count, e.deferred_since, e.cancel_code,
                  e.lost_count, e.first_sent_at, e.last_sent_at, due.first_sent_at AS sent_before,
                  e.deferral_count, e.deferral_code, due.updated_at AS changed_before, e.held_end, e.held_end_code,
                  e.issuer_parameters, e.created_at
    )
    SELECT h.id, h.user_id,
           -- What cannot be a request is not unpacked: one such row must not take a worker's memory.
           CASE WHEN pg_column_size(h.payload) <= 262144 THEN h.payload::text END,
           h.traceparent, h.retry_count,
           CASE WHEN h.sent_before IS NOT NULL
                THEN (extract(epoch FROM now() - greatest(h.first_sent_at, 'epoch')) * 1000)::int8 END,
           (extract(epoch FROM now() - greatest(h.deferred_since, CASE WHEN h.deferred_since IS NOT NULL
                                                                       THEN timestamptz 'epoch' END)) * 1000)::int8,
           (c.found).id, (c.found).issuer_card_id, (c.found).last4, (c.found).exp_month, (c.found).exp_year,
           (c.found).status,
           r.issuer_card_id, h.cancel_code, NULL::int8,
           CASE WHEN h.sent_before IS NOT NULL
                THEN (extract(epoch FROM now() - greatest(coalesce(h.last_sent_at, h.first_sent_at), 'epoch'))
                      * 1000)::int8 END,
           h.lost_count, NULL::int8,
           h.deferral_count, h.deferral_code,
           (extract(epoch FROM now() - least(greatest(h.changed_before, 'epoch'), now())) * 1000)::int8,
           h.held_end, h.held_end_code, h.issuer_parameters::text,
           (extract(epoch FROM least(greatest(h.created_at, 'epoch'), now())) * 1000)::int8, NULL::bool
    FROM held h
    -- Looked for only where there can be one.
    CROSS JOIN LATERAL (SELECT CASE WHEN h.sent_before IS NOT NULL AND of_type = 'CARD_ISSUE'
                                    THEN issuing.card_of(h.id) END AS found OFFSET 0) c
    CROSS JOIN LATERAL (SELECT CASE WHEN of_type = 'CARD_ISSUE' AND h.payload ->> 'replaces' IS NOT NULL
                                    THEN issuing.issuer_card_id_of(h.user_id, h.payload ->> 'replaces')
                               END AS issuer_card_id OFFSET 0) r
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           CASE WHEN NOT alone
                THEN (extract(epoch FROM CASE WHEN is_ordered THEN greatest(least(ordered_since, now() - slack),
                                                                       timestamptz 'epoch' - interval '1 microsecond')
                                              WHEN count(*) < most THEN now() - slack
                                              ELSE max(greatest(h.due_at,
                                                                timestamptz 'epoch' - interval '1 microsecond')) END)
                      * 1000000)::int8 END,
           NULL,
           CASE WHEN EXISTS (SELECT FROM lost_events) AND issuing.lost_is_due(alone_id, of_type) THEN 1 ELSE 0 END,
           (extract(epoch FROM now()) * 1000000)::int8,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           CASE WHEN is_ordered THEN coalesce(ordered_is_filled, false) ELSE count(*) >= most END AND NOT alone
    -- What was looked at, not what was handed out: the bookmark passes an event that was left behind.
    FROM due h;
END
$$;

-- issuing.take_checks of 0017_ends.sql, which passes over marks of events of such buckets.
CREATE OR REPLACE FUNCTION issuing.take_checks(new_token uuid, most int8, lease_ms int8, worker_name text, types text[])
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
    parked int4[] := issuing.cell_parked();
BEGIN
    DELETE FROM peer_checks p
    WHERE p.id IN (SELECT o.id FROM peer_checks o
                   WHERE o.finished_at < now() - interval '7 days' LIMIT 100 FOR UPDATE SKIP LOCKED);
    -- A mark that a clock set which was ahead: due as much earlier, or nobody would look at it until that time has
    -- come.
    UPDATE peer_checks p SET due_at = p.due_at - (p.due_set_at - now()), due_set_at = now()
    WHERE p.id IN (SELECT o.id FROM peer_checks o
                   WHERE o.finished_at IS NULL AND o.due_at > now() AND o.due_set_at > now() + interval '1 second'
                   FOR UPDATE SKIP LOCKED);
    due := ARRAY(SELECT p.id FROM peer_checks p
                 WHERE p.finished_at IS NULL AND p.due_at <= now()
                   -- A value and not EXISTS: this is asked once for each mark that is taken, not joined with all
                   -- events.
                   AND (SELECT (e.status = 'PROCESSING' AND e.last_sent_at > e.updated_at)
                               OR (e.event_type <> ALL (types) AND p.deadline_at > now())
                               OR issuing.bucket_of(e.user_id) = ANY (parked)
                        FROM outbox_events e WHERE e.id = p.event_id) IS NOT TRUE
                 ORDER BY p.due_at
                 LIMIT most
                 FOR UPDATE SKIP LOCKED);
    -- A send that bears a time still to come was noted by a clock that was ahead: it counts as sent now, so that it
    -- settles.
    UPDATE outbox_events e
    SET last_sent_at = least(e.last_sent_at, now()), first_sent_at = least(e.first_sent_at, now())
    WHERE e.id = ANY (ARRAY(SELECT p.event_id FROM peer_checks p WHERE p.id = ANY (due))) AND e.due_at IS NULL
      AND (e.last_sent_at > now() + interval '1 second' OR e.first_sent_at > now() + interval '1 second');
    RETURN QUERY
    WITH ended AS (
        UPDATE peer_checks p SET finished_at = clock_timestamp(), result = 'undecided', lease_token = NULL
        WHERE p.id = ANY (due) AND p.deadline_at <= now()
    ), held AS (
        UPDATE peer_checks p
        SET lease_token = new_token, due_at = now() + lease_ms * interval '1 millisecond', due_set_at = now(),
            attempts = p.attempts + 1, worker = worker_name
        WHERE p.id = ANY (due) AND p.deadline_at > now()
        RETURNING p.*
    )
    SELECT h.id, h.event_id, h.action, h.attempts, h.orphan_at IS NOT NULL, e.status, e.user_id,
           (extract(epoch FROM e.updated_at) * 1000000)::int8,
           issuing.sent_age_ms(e), (c.card).id, (c.card).issuer_card_id, (c.card).status, e.issuer_parameters::text,
           (extract(epoch FROM least(greatest(e.created_at, 'epoch'), now())) * 1000)::int8, e.event_type
    FROM held h
    LEFT JOIN outbox_events e ON e.id = h.event_id
    CROSS JOIN LATERAL (SELECT issuing.card_of(h.event_id) AS card OFFSET 0) c;
END
$$;

-- ---- card numbers, marks, rows of other services ----

-- issuing.reveal_number of 0011_limits.sql, with the gate behind the lock of the user.
CREATE OR REPLACE FUNCTION issuing.reveal_number(card uuid, holder text, openable int8[], most int8)
RETURNS TABLE (id uuid, exp_month int2, exp_year int2, number_record bytea, key_id int8, frees_in_ms int8)
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
        RAISE EXCEPTION 'issuing.reveal_number needs READ COMMITTED, not %', current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(holder, 4712));
    PERFORM issuing.demand_open(holder);
    t := clock_timestamp();

    allowed := coalesce((SELECT least(c.most, reveal_number.most) FROM ceilings c WHERE c.name = 'reveals'), 0);
    SELECT c.id, c.request_id, c.exp_month, c.exp_year, c.number_record, issuing.key_id_of(c.number_record) AS key_id
    INTO found
    FROM cards c
    WHERE c.id = card AND c.user_id = holder AND c.number_record IS NOT NULL
      AND (c.status = 'cancelled' OR NOT EXISTS (SELECT FROM outbox_events e
                                                 WHERE e.id = c.request_id AND e.status <> 'COMPLETED'));
    IF found.id IS NULL OR allowed < 1 THEN
        RETURN;
    END IF;
    IF (found.key_id = ANY (openable)) IS NOT TRUE THEN
        RETURN QUERY SELECT found.id, found.exp_month, found.exp_year, NULL::bytea, found.key_id, NULL::int8;
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
        RETURN QUERY SELECT found.id, NULL::int2, NULL::int2, NULL::bytea, NULL::int8,
            greatest(ceil(extract(epoch FROM recent[cardinality(recent) - allowed + 1] + interval '1 minute' - t)
                          * 1000), 1)::int8;
        RETURN;
    END IF;
    INSERT INTO number_reveals AS r (user_id, last_at, revealed_at) VALUES (holder, t, recent || t)
    ON CONFLICT (user_id) DO UPDATE SET last_at = excluded.last_at, revealed_at = excluded.revealed_at;
    INSERT INTO operator_actions (event_id, actor, action, after)
    VALUES (found.request_id, holder, 'number_revealed', jsonb_build_object('card_id', found.id));
    RAISE LOG 'issuing: the number of card % is revealed to %', found.id, session_user;
    RETURN QUERY SELECT found.id, found.exp_month, found.exp_year, found.number_record, found.key_id, NULL::int8;
END
$$;

-- issuing.ask_check of 0009_operators.sql, for events that are in another cell by now.
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
    SELECT e.id, now() + interval '365 days', 'reconcile', 'worker', left(why, 1000)
    FROM outbox_events e WHERE e.id = event AND e.event_type = 'CARD_ISSUE'
    ON CONFLICT (event_id) WHERE finished_at IS NULL
    DO UPDATE SET deadline_at = greatest(p.deadline_at, excluded.deadline_at), due_at = now(), lease_token = NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- After the mark, as end_check locks the two.
    UPDATE outbox_events e SET last_sent_at = now(), first_sent_at = coalesce(e.first_sent_at, now())
    WHERE e.id = event AND e.event_type = 'CARD_ISSUE' AND e.status <> 'COMPLETED';
    RETURN true;
END
$$;

-- issuing.refuse_row and reissue_once of 0011_limits.sql and follow_lost of 0017_ends.sql: a row that is copied from
-- another cell is not new. No trigger refuses it, takes a place for it, or counts it.
CREATE OR REPLACE FUNCTION issuing.refuse_row() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        IF octet_length(NEW.payload::text) > 65536 OR octet_length(NEW.user_id) NOT BETWEEN 1 AND 128
           OR NEW.retry_count > 1000000 OR NEW.next_attempt_at = 'infinity'
           OR NOT isfinite(NEW.created_at) OR NOT isfinite(NEW.updated_at)
           OR NEW.updated_at > NEW.created_at + interval '1000 years'
           OR NOT isfinite(NEW.first_sent_at) OR NOT isfinite(NEW.deferred_since) THEN
            -- A row that was there before the bounds moves with its bucket.
            IF pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = 'outbox_events'::regclass),
                           'MEMBER') THEN
                IF issuing.cell_is_copy(NEW.user_id) THEN
                    RETURN NEW;
                END IF;
            END IF;
            RAISE check_violation USING CONSTRAINT = TG_NAME, TABLE = 'outbox_events',
                MESSAGE = 'a value of the event is beyond its range';
        END IF;
        RETURN NEW;
    END
    $$;
CREATE OR REPLACE FUNCTION issuing.reissue_once() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
    DECLARE
        replaced text := lower(NEW.payload ->> 'replaces');
    BEGIN
        IF NEW.event_type <> 'CARD_ISSUE' OR NEW.payload ->> 'kind' IS DISTINCT FROM 'reissue'
           OR NEW.status = 'REJECTED' OR issuing.cell_is_copy(NEW.user_id) THEN
            RETURN NULL;
        END IF;
        INSERT INTO card_reissues (event_id, user_id, card_id) VALUES (NEW.id, NEW.user_id, replaced)
        ON CONFLICT (user_id, card_id) DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        -- Another event has the place. The lock on the place comes first, in its own statement: only a snapshot taken
        -- after it sees the event of the transaction that was waited for.
        PERFORM FROM card_reissues r WHERE r.user_id = NEW.user_id AND r.card_id = replaced FOR UPDATE;
        UPDATE card_reissues r SET event_id = NEW.id
        WHERE r.user_id = NEW.user_id AND r.card_id = replaced
          AND (r.event_id = NEW.id
               OR NOT EXISTS (SELECT FROM outbox_events e
                              WHERE e.id = r.event_id AND e.status <> 'REJECTED'
                                AND e.reason_code IS DISTINCT FROM 'payload_invalid')
                  AND NOT EXISTS (SELECT FROM cards c
                                  WHERE c.user_id = NEW.user_id AND c.id::text = replaced AND c.status <> 'active'));
        IF NOT FOUND THEN
            RAISE unique_violation USING CONSTRAINT = 'outbox_events_reissue', TABLE = 'outbox_events',
                MESSAGE = 'there is a live reissue of this card already';
        END IF;
        RETURN NULL;
    END
    $$;
CREATE OR REPLACE FUNCTION issuing.follow_lost() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        e outbox_events;
    BEGIN
        SELECT o.* INTO e FROM outbox_events o
        WHERE o.id = NEW.event_id AND o.status = 'FAILED' AND o.reason_code = 'worker_lost'
          AND o.completed_at >= statement_timestamp();
        IF FOUND AND NOT issuing.cell_is_copy(e.user_id) THEN
            PERFORM count_end(e, 1), tell_ends(ARRAY[e.id], NULL);
        END IF;
        RETURN NULL;
    END
    $$;

-- issuing.count_events of 0017_ends.sql, without the rows that are being copied: cell_arrive counts these.
CREATE OR REPLACE FUNCTION issuing.count_events(since timestamptz) -- hours that begin before are left out
RETURNS TABLE (hour timestamptz, event_type text, status text, reason_code text, below_ms int8, count int8, sum_ms int8)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    #variable_conflict use_column
    DECLARE
        bounds float8[] := statistics_bounds();
        arriving int4[] := (SELECT array_agg(c.bucket::int4) FROM cell_buckets c WHERE c.state = 'arriving');
    BEGIN
        RETURN QUERY
        SELECT g.hour, g.event_type, g.status, g.reason_code, bounds[width_bucket(g.age_ms::float8, bounds) + 1]::int8,
               count(*), sum(g.age_ms)::int8
        FROM (SELECT date_bin('1 hour', least(greatest(t.ended_at, 'epoch'), '2500-01-01 00:00:00+00'), 'epoch')
                         AS hour,
                     left(e.event_type, 64) AS event_type, e.status, coalesce(e.reason_code, '') AS reason_code,
                     (least(greatest(date_part('epoch', t.ended_at) - date_part('epoch', e.created_at), 0), 999999999)
                      * 1000)::int8 AS age_ms
              FROM outbox_events e CROSS JOIN LATERAL (SELECT coalesce(e.completed_at, e.updated_at) AS ended_at) t
              WHERE e.status IN ('COMPLETED', 'REJECTED', 'FAILED')
                AND (arriving IS NULL OR issuing.bucket_of(e.user_id) <> ALL (arriving))) g
        WHERE g.hour >= since
        GROUP BY 1, 2, 3, 4, 5;
    END
    $$;

-- ---- cells ----

-- Who does what follows, for the audit row: said once in a session of issuing-ctl. The database's role is recorded
-- whatever is said here.
CREATE FUNCTION issuing.cell_actor(actor text, os_user text, sudo_user text, why text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM check_who(actor, os_user, sudo_user, why);
        PERFORM set_config('issuing.actor', actor, false), set_config('issuing.os_user', coalesce(os_user, ''), false),
                set_config('issuing.sudo_user', coalesce(sudo_user, ''), false),
                set_config('issuing.reason', why, false);
    END
    $$;

CREATE FUNCTION issuing.cell_note(what text, more jsonb) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        INSERT INTO operator_actions (actor, os_user, sudo_user, action, reason, after)
        VALUES (coalesce(nullif(current_setting('issuing.actor', true), ''), session_user),
                nullif(current_setting('issuing.os_user', true), ''),
                nullif(current_setting('issuing.sudo_user', true), ''), what,
                nullif(current_setting('issuing.reason', true), ''),
                jsonb_build_object('cell', (SELECT c.name FROM cell c)) || more)
    $$;

-- Every user who has rows here. Reads an index of each table once.
CREATE FUNCTION issuing.cell_all_users() RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT DISTINCT e.user_id FROM outbox_events e UNION
        SELECT DISTINCT k.user_id FROM idempotency_keys k UNION
        SELECT DISTINCT l.user_id FROM rate_limit_log l UNION
        SELECT DISTINCT c.user_id FROM cards c UNION
        SELECT r.user_id FROM card_reissues r UNION
        SELECT n.user_id FROM number_reveals n
    $$;

-- Users who have rows here although their bucket is in another cell: there must be none. Reads as cell_all_users.
CREATE FUNCTION issuing.cell_strays() RETURNS TABLE (bucket int4, users int8)
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT c.bucket::int4, count(*)
        FROM cell_all_users() AS u (id) JOIN cell_buckets c ON c.bucket = issuing.bucket_of(u.id)::int2
        WHERE c.state = 'away'
        GROUP BY 1 ORDER BY 1
    $$;

-- Makes this database the cell `cell_name`, with these buckets (null = all, {} = none, as for a new cell). Every user
-- who has rows here must be of one of them. False: it is that cell already, whatever buckets it has. The name of a cell
-- never changes. All acceptances are waited for, and wait: whoever has looked into cell_buckets holds its lock.
CREATE FUNCTION issuing.cell_init(cell_name text, buckets int4[]) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        known text;
        owner_name name := (SELECT pg_get_userbyid(c.relowner) FROM pg_class c WHERE c.oid = 'outbox_events'::regclass);
        strays int8;
    BEGIN
        IF current_setting('server_encoding') <> 'UTF8' THEN
            RAISE EXCEPTION 'a cell needs a database in UTF8, not in %', current_setting('server_encoding')
                USING ERRCODE = '22023';
        ELSIF EXISTS (SELECT FROM unnest(buckets) AS b (bucket) WHERE (b.bucket BETWEEN 0 AND 1023) IS NOT TRUE) THEN
            RAISE EXCEPTION 'a bucket is a number from 0 to 1023' USING ERRCODE = '22023';
        END IF;
        PERFORM pg_advisory_xact_lock(4711, 1); -- no housekeeping meanwhile: it takes these locks in another order
        LOCK TABLE cell_buckets IN ACCESS EXCLUSIVE MODE;
        SELECT c.name INTO known FROM cell c;
        IF known = cell_name THEN
            RETURN false;
        ELSIF known IS NOT NULL THEN
            RAISE EXCEPTION 'this database is the cell % already', known USING ERRCODE = '55000';
        END IF;
        LOCK TABLE outbox_events, peer_checks IN SHARE ROW EXCLUSIVE MODE;
        IF cardinality(buckets) < 1024 THEN
            SELECT count(*) INTO strays FROM cell_all_users() AS u (id)
            WHERE issuing.bucket_of(u.id) <> ALL (buckets);
            IF strays > 0 THEN
                RAISE EXCEPTION '% users who have rows here are of other buckets', strays USING ERRCODE = '55000';
            END IF;
        END IF;
        INSERT INTO cell (name) VALUES (cell_name);
        INSERT INTO cell_buckets (bucket, state)
        SELECT n, CASE WHEN buckets IS NULL OR n = ANY (buckets) THEN 'here' ELSE 'away' END
        FROM generate_series(0, 1023) AS g (n);
        -- The owner's CARD_REQUEST_ENDED is of an event that is here.
        EXECUTE format('CREATE TRIGGER outbox_events_cell_insert BEFORE INSERT ON outbox_events
                            FOR EACH ROW WHEN (NEW.idempotency_key IS NULL
                                               AND (NEW.event_type <> %L OR current_user <> %L))
                            EXECUTE FUNCTION issuing.cell_insert()', 'CARD_REQUEST_ENDED', owner_name);
        CREATE TRIGGER outbox_events_cell_update BEFORE UPDATE ON outbox_events
            FOR EACH ROW WHEN (OLD.status <> 'PROCESSING' AND NEW.status <> 'PROCESSING')
            EXECUTE FUNCTION issuing.cell_update();
        CREATE TRIGGER peer_checks_cell BEFORE INSERT OR UPDATE ON peer_checks
            FOR EACH ROW EXECUTE FUNCTION issuing.cell_mark();
        PERFORM issuing.cell_note('cell_init', jsonb_build_object('buckets', to_jsonb(buckets)));
        RETURN true;
    END
    $$;

-- ---- the steps of a move (docs/scaling.md, "Moving a bucket") ----
--
-- Each is one transaction of the owner. A step names the move, and does nothing to a bucket that is in another state or
-- of another move: it raises IS003. A step that is repeated is done already, and gives the same answer. So a second
-- mover, or one that was stopped and goes on later, does no harm.

-- From one of these states of this move to `after`. True: just now; false: it was so already; null: there are no cells.
CREATE FUNCTION issuing.cell_turn(of_bucket int4, move uuid, befores text[], after text) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        b cell_buckets;
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'a step of a move needs READ COMMITTED, not %', current_setting('transaction_isolation')
                USING ERRCODE = '25001';
        END IF;
        SELECT c.* INTO b FROM cell_buckets c WHERE c.bucket = of_bucket FOR UPDATE;
        IF NOT FOUND THEN
            RETURN NULL;
        ELSIF b.move_id = move AND b.state = after THEN
            RETURN false;
        ELSIF (b.move_id = move AND b.state = ANY (befores)) IS NOT TRUE THEN
            RAISE EXCEPTION 'bucket % is "%" since %, of move %: not % of move %', of_bucket, b.state, b.since,
                coalesce(b.move_id::text, '-'), array_to_string(befores, ' or '), move USING ERRCODE = 'IS003';
        END IF;
        UPDATE cell_buckets c SET state = after, since = clock_timestamp() WHERE c.bucket = of_bucket;
        RETURN true;
    END
    $$;

CREATE FUNCTION issuing.cell_note_step(of_bucket int4, what text) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT issuing.cell_note('move_bucket', jsonb_build_object('step', what, 'bucket', c.bucket, 'state', c.state,
                                                                   'other', c.other, 'move_id', c.move_id))
        FROM cell_buckets c WHERE c.bucket = of_bucket
    $$;

-- Source: here -> listing. Returns the buckets that are of this move now, whatever their state; one that is not here is
-- left out.
CREATE FUNCTION issuing.cell_list(buckets int4[], other_cell text, move uuid) RETURNS SETOF int4
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        IF other_cell = (SELECT c.name FROM cell c) THEN
            RAISE EXCEPTION 'the buckets are in the cell % already', other_cell USING ERRCODE = '22023';
        END IF;
        UPDATE cell_buckets c SET state = 'listing', other = other_cell, move_id = move, since = clock_timestamp()
        WHERE c.bucket = ANY (buckets) AND c.state = 'here' AND c.move_id IS DISTINCT FROM move;
        RETURN QUERY SELECT c.bucket::int4 FROM cell_buckets c
            WHERE c.bucket = ANY (buckets) AND c.move_id = move AND c.state IN ('listing', 'draining', 'closed', 'gone')
            ORDER BY 1;
    END
    $$;

-- Source: writes down the users of the buckets that are `listing`. A transaction that passed the gate before the state
-- was `listing` has recorded nobody: it holds the lock of the gate, and is waited for, without being in the way of
-- others. Then one scan. Returns the number of users. May be repeated.
CREATE FUNCTION issuing.cell_list_users(buckets int4[]) RETURNS int8
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp SET work_mem = '64MB' SET jit = off
    AS $$
    DECLARE
        writers text[];
        added int8;
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'issuing.cell_list_users needs READ COMMITTED, not %',
                current_setting('transaction_isolation') USING ERRCODE = '25001';
        END IF;
        writers := ARRAY(SELECT l.virtualtransaction FROM pg_locks l
                         WHERE l.locktype = 'advisory' AND l.granted AND l.pid <> pg_backend_pid()
                           AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                           AND l.classid = 4713 AND l.objsubid = 2 AND l.objid::int8 = ANY (buckets));
        WHILE EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'virtualxid' AND l.granted
                      AND l.virtualtransaction = ANY (writers)) LOOP
            PERFORM pg_sleep(0.01);
        END LOOP;
        INSERT INTO cell_users (bucket, user_id)
        SELECT c.bucket, u.id
        FROM cell_all_users() AS u (id) JOIN cell_buckets c ON c.bucket = issuing.bucket_of(u.id)::int2
        WHERE c.state = 'listing' AND c.bucket = ANY (buckets)
          AND NOT EXISTS (SELECT FROM cell_users k WHERE k.bucket = c.bucket AND k.user_id = u.id);
        GET DIAGNOSTICS added = ROW_COUNT;
        RETURN added;
    END
    $$;

-- Source: listing -> draining. No claim takes an event of the bucket any more. Waits for the claims under way, and
-- later ones wait for it, at most the session's lock_timeout (55P03 then: try again).
CREATE FUNCTION issuing.cell_drain(of_bucket int4, move uuid) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(4713, -1);
        RETURN issuing.cell_turn(of_bucket, move, '{listing}', 'draining') IS NOT NULL;
    END
    $$;

-- Source: attempts under way, and marks that a worker has. The open events are read where they are few, whoever has
-- them; behind a backlog the events of the users of this bucket, who are all recorded by then.
CREATE FUNCTION issuing.cell_busy(of_bucket int4) RETURNS int8
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    DECLARE
        attempts int8;
    BEGIN
        IF (SELECT count(*) FROM (SELECT FROM outbox_events e WHERE e.due_at IS NOT NULL LIMIT 2000) o) < 2000 THEN
            SELECT count(*) INTO attempts FROM outbox_events e
            WHERE e.due_at IS NOT NULL AND e.status = 'PROCESSING' AND issuing.bucket_of(e.user_id) = of_bucket;
        ELSE
            SELECT count(*) INTO attempts
            FROM (SELECT DISTINCT k.user_id FROM cell_users k WHERE k.bucket = of_bucket) u
            JOIN outbox_events e ON e.user_id = u.user_id
            WHERE e.due_at IS NOT NULL AND e.status = 'PROCESSING';
        END IF;
        RETURN attempts
             + (SELECT count(*) FROM peer_checks p
                WHERE p.finished_at IS NULL AND p.lease_token IS NOT NULL AND p.due_at > now()
                  AND (SELECT issuing.bucket_of(e.user_id) FROM outbox_events e WHERE e.id = p.event_id) = of_bucket);
    END
    $$;

-- Source: draining -> closed. Waits for those who have passed the gate, at most the session's lock_timeout (55P03 then:
-- try again). False: attempts are under way. What a claim has taken is seen only after the lock, in a statement of its
-- own.
CREATE FUNCTION issuing.cell_close(of_bucket int4, move uuid) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(4713, of_bucket);
        IF (SELECT c.state = 'draining' AND c.move_id = move FROM cell_buckets c WHERE c.bucket = of_bucket)
           AND issuing.cell_busy(of_bucket) > 0 THEN
            RETURN false;
        END IF;
        RETURN issuing.cell_turn(of_bucket, move, '{draining}', 'closed') IS NOT NULL;
    END
    $$;

-- Source: closed -> gone. The point of no return: the rows must be in the other cell, and equal.
CREATE FUNCTION issuing.cell_leave(of_bucket int4, move uuid) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        is_new bool := issuing.cell_turn(of_bucket, move, '{closed}', 'gone');
    BEGIN
        IF is_new THEN
            PERFORM issuing.cell_note_step(of_bucket, 'leave');
        END IF;
        RETURN is_new IS NOT NULL;
    END
    $$;

-- Source: listing, draining or closed -> here: the move is undone. Before cell_refuse in the other cell, since after
-- this no mover can make the bucket `gone`. Events that became due meanwhile are found by the workers' sweep.
CREATE FUNCTION issuing.cell_open(of_bucket int4, move uuid) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        is_new bool := issuing.cell_turn(of_bucket, move, '{listing,draining,closed}', 'here');
    BEGIN
        IF is_new THEN
            DELETE FROM cell_users u WHERE u.bucket = of_bucket;
            PERFORM issuing.cell_note_step(of_bucket, 'open');
        END IF;
        RETURN is_new IS NOT NULL;
    END
    $$;

-- Destination: away -> arriving. source_clock: what the source's clock_timestamp() says at this moment. Where the two
-- clocks differ by more than a second, the ages of keys and sends would be wrong here, so it refuses (IS004).
CREATE FUNCTION issuing.cell_expect(
    of_bucket int4, other_cell text, move uuid, source_clock timestamptz DEFAULT NULL)
    RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        is_new bool;
    BEGIN
        IF abs(extract(epoch FROM clock_timestamp() - source_clock)) > 1 THEN
            RAISE EXCEPTION 'the clock of the other cell differs by % s',
                round(extract(epoch FROM source_clock - clock_timestamp()), 3) USING ERRCODE = 'IS004';
        ELSIF other_cell = (SELECT c.name FROM cell c) THEN
            RAISE EXCEPTION 'the other cell has the name of this one, %', other_cell USING ERRCODE = '22023';
        END IF;
        -- A bucket that came back to `away` by cell_refuse may be tried again.
        UPDATE cell_buckets c SET move_id = move, other = other_cell
        WHERE c.bucket = of_bucket AND c.state = 'away';
        is_new := issuing.cell_turn(of_bucket, move, '{away}', 'arriving');
        IF is_new AND EXISTS (SELECT FROM cell_users u WHERE u.bucket = of_bucket) THEN
            RAISE EXCEPTION 'this cell has rows of bucket %', of_bucket USING ERRCODE = '55000';
        END IF;
        RETURN is_new IS NOT NULL;
    END
    $$;

-- ---- the rows of a bucket ----

-- A query for each table, in the order of the copy. The users are those of cell_users; all other rows are found by
-- them. A session that runs these queries itself switches off enable_seqscan, enable_hashjoin, enable_mergejoin, jit.
CREATE FUNCTION issuing.cell_queries(of_bucket int4) RETURNS TABLE (n int4, name text, columns text, query text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        users text := format('(SELECT DISTINCT k.user_id FROM issuing.cell_users k WHERE k.bucket = %s) u',
                             of_bucket::int2);
        events text := users || ' JOIN issuing.outbox_events e ON e.user_id = u.user_id';
    BEGIN
        RETURN QUERY
        SELECT t.n, t.name, a.columns, format('SELECT %s FROM %s', a.named, regexp_replace(t.source, '\s+', ' ', 'g'))
        FROM (VALUES
            (1, 'cell_users', format('(SELECT DISTINCT k.bucket, k.user_id FROM issuing.cell_users k
                                       WHERE k.bucket = %s) t', of_bucket::int2)),
            (2, 'outbox_events', users || ' JOIN issuing.outbox_events t ON t.user_id = u.user_id'),
            (3, 'outbox_attempts', events || ' JOIN issuing.outbox_attempts t ON t.event_id = e.id'),
            (4, 'idempotency_keys', users || ' JOIN issuing.idempotency_keys t ON t.user_id = u.user_id'),
            (5, 'rate_limit_log', users || ' JOIN issuing.rate_limit_log t ON t.user_id = u.user_id'),
            (6, 'cards', users || ' JOIN issuing.cards t ON t.user_id = u.user_id'),
            (7, 'card_reissues', users || ' JOIN issuing.card_reissues t ON t.user_id = u.user_id'),
            (8, 'event_reissues', format('(SELECT r.* FROM %s JOIN issuing.event_reissues r ON r.old_id = e.id UNION
                                           SELECT r.* FROM %s JOIN issuing.event_reissues r ON r.new_id = e.id) t',
                                         events, events)),
            (9, 'number_reveals', users || ' JOIN issuing.number_reveals t ON t.user_id = u.user_id'),
            (10, 'lost_events', events || ' JOIN issuing.lost_events t ON t.event_id = e.id'),
            (11, 'peer_checks', events || ' JOIN issuing.peer_checks t ON t.event_id = e.id'),
            (12, 'operator_actions', events || ' JOIN issuing.operator_actions t ON t.event_id = e.id'))
            AS t (n, name, source)
        CROSS JOIN LATERAL (
            SELECT string_agg(quote_ident(c.attname), ', ' ORDER BY c.attname) AS columns,
                   string_agg('t.' || quote_ident(c.attname), ', ' ORDER BY c.attname) AS named
            FROM pg_attribute c
            WHERE c.attrelid = ('issuing.' || t.name)::regclass AND c.attnum > 0 AND NOT c.attisdropped
              AND c.attgenerated = '' AND NOT (t.name = 'operator_actions' AND c.attname = 'id')) a
        ORDER BY t.n;
    END
    $$;

-- How to copy the bucket: `copy_out` in the source, `copy_in` in the destination, one table after the other.
CREATE FUNCTION issuing.cell_copy(of_bucket int4) RETURNS TABLE (name text, copy_out text, copy_in text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
    AS $$
        SELECT q.name, format('COPY (%s) TO STDOUT (FORMAT binary)', q.query),
               format('COPY issuing.%I (%s) FROM STDIN (FORMAT binary)', q.name, q.columns)
        FROM issuing.cell_queries(of_bucket) q
        ORDER BY q.n
    $$;

-- Rows of the bucket in each table, and a sum over them that does not depend on their order: equal where the rows are.
CREATE FUNCTION issuing.cell_fingerprint(of_bucket int4) RETURNS TABLE (name text, rows int8, checksum text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    DECLARE
        q record;
    BEGIN
        FOR q IN SELECT * FROM issuing.cell_queries(of_bucket) LOOP
            name := q.name;
            EXECUTE format('SELECT count(*), coalesce(sum(hash_record_extended(r, 4713)), 0)::text FROM (%s) r',
                           q.query)
            INTO rows, checksum;
            RETURN NEXT;
        END LOOP;
    END
    $$;

-- The final statuses of these events become changes of the statistics: sign 1 = the events came, -1 = they leave.
CREATE FUNCTION issuing.cell_count(events uuid[], sign int) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
        INSERT INTO statistics_changes (ended_at, event_type, event_types, status, reason_code, created_ats, count)
        SELECT g.ended_at, min(g.event_type), array_agg(g.event_type), g.status, g.reason_code,
               array_agg(g.created_at), sign
        FROM (SELECT coalesce(e.completed_at, e.updated_at) AS ended_at, e.event_type, e.status,
                     coalesce(e.reason_code, '') AS reason_code, e.created_at
              FROM unnest(events) AS a (id) JOIN outbox_events e ON e.id = a.id
              WHERE e.status IN ('COMPLETED', 'REJECTED', 'FAILED')) g
        GROUP BY g.ended_at, g.status, g.reason_code
    $$;

-- Deletes rows of the bucket, `most` events or users at a time; returns how many. 0 = nothing is left.
CREATE FUNCTION issuing.cell_delete(of_bucket int4, most int8, is_counted bool) RETURNS int8
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    DECLARE
        events uuid[] := ARRAY(SELECT e.id FROM cell_users u JOIN outbox_events e ON e.user_id = u.user_id
                               WHERE u.bucket = of_bucket LIMIT most);
        users text[];
    BEGIN
        IF cardinality(events) > 0 THEN
            IF is_counted THEN
                PERFORM issuing.cell_count(ARRAY(SELECT DISTINCT a.id FROM unnest(events) AS a (id)), -1);
            END IF;
            DELETE FROM outbox_attempts a WHERE a.event_id = ANY (events);
            DELETE FROM event_reissues r WHERE r.old_id = ANY (events) OR r.new_id = ANY (events);
            DELETE FROM lost_events l WHERE l.event_id = ANY (events);
            DELETE FROM peer_checks p
            WHERE p.id IN (SELECT o.id FROM peer_checks o WHERE o.event_id = ANY (events));
            DELETE FROM operator_actions o WHERE o.event_id = ANY (events);
            DELETE FROM outbox_events e WHERE e.id = ANY (events);
            RETURN cardinality(events);
        END IF;
        users := ARRAY(SELECT DISTINCT k.user_id
                       FROM (SELECT u.user_id FROM cell_users u WHERE u.bucket = of_bucket LIMIT most) k);
        DELETE FROM idempotency_keys k WHERE k.user_id = ANY (users);
        DELETE FROM rate_limit_log l WHERE l.user_id = ANY (users);
        DELETE FROM cards c WHERE c.user_id = ANY (users);
        DELETE FROM card_reissues r WHERE r.user_id = ANY (users);
        DELETE FROM number_reveals n WHERE n.user_id = ANY (users);
        DELETE FROM cell_users u WHERE u.bucket = of_bucket AND u.user_id = ANY (users);
        RETURN cardinality(users);
    END
    $$;

-- Destination: arriving -> here. Ended events count in the statistics of this cell from now on. A mark that a worker of
-- the other cell had is due again. A partition that was settled before it got rows that end later is judged anew.
-- Workers find events that are due by their sweep.
CREATE FUNCTION issuing.cell_arrive(of_bucket int4, move uuid) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
    AS $$
    DECLARE
        is_new bool := issuing.cell_turn(of_bucket, move, '{arriving}', 'here');
        events uuid[];
    BEGIN
        IF is_new IS NOT TRUE THEN
            RETURN is_new IS NOT NULL;
        END IF;
        events := ARRAY(SELECT e.id FROM (SELECT DISTINCT k.user_id FROM cell_users k WHERE k.bucket = of_bucket) u
                        JOIN outbox_events e ON e.user_id = u.user_id);
        PERFORM issuing.cell_count(events, 1);
        UPDATE peer_checks p SET lease_token = NULL, due_at = now(), due_set_at = now()
        WHERE p.lease_token IS NOT NULL AND p.finished_at IS NULL AND p.event_id = ANY (events);
        UPDATE partitions p SET settled_at = NULL, still_open = '{}'
        WHERE p.settled_at IS NOT NULL AND p.parent IN ('outbox_events', 'idempotency_keys')
          AND EXISTS (SELECT FROM unnest(events) AS a (id) JOIN outbox_events e ON e.id = a.id
                      WHERE CASE p.parent WHEN 'outbox_events' THEN e.id >= issuing.uuid7_least(p.from_at)
                                                                    AND e.id < issuing.uuid7_least(p.to_at)
                                          ELSE e.created_at >= p.from_at AND e.created_at < p.to_at END
                        AND (e.due_at IS NOT NULL OR e.failed_at IS NOT NULL
                             OR coalesce(e.completed_at, e.updated_at) >= p.settled_at));
        DELETE FROM cell_users u WHERE u.bucket = of_bucket;
        PERFORM issuing.cell_note_step(of_bucket, 'arrive');
        RETURN true;
    END
    $$;

-- Destination: arriving -> away: the move is undone, and what was copied is deleted.
CREATE FUNCTION issuing.cell_refuse(of_bucket int4, move uuid) RETURNS bool
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        is_new bool := issuing.cell_turn(of_bucket, move, '{arriving}', 'away');
    BEGIN
        IF is_new THEN
            WHILE issuing.cell_delete(of_bucket, 10000, false) > 0 LOOP
                NULL;
            END LOOP;
            PERFORM issuing.cell_note_step(of_bucket, 'refuse');
        END IF;
        RETURN is_new IS NOT NULL;
    END
    $$;

-- Source: deletes rows of a bucket that is `gone`, a piece with each call; returns how many. 0 = all are deleted, and
-- the bucket is `away`.
CREATE FUNCTION issuing.cell_empty(of_bucket int4, most int8) RETURNS int8
    LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
    AS $$
    DECLARE
        b cell_buckets;
        deleted int8;
    BEGIN
        SELECT c.* INTO b FROM cell_buckets c WHERE c.bucket = of_bucket FOR UPDATE;
        IF NOT FOUND OR b.state = 'away' THEN
            RETURN 0;
        ELSIF b.state IS DISTINCT FROM 'gone' THEN
            RAISE EXCEPTION 'bucket % is "%" and not gone', of_bucket, b.state USING ERRCODE = 'IS003';
        END IF;
        deleted := issuing.cell_delete(of_bucket, most, true);
        IF deleted = 0 THEN
            PERFORM issuing.cell_turn(of_bucket, b.move_id, '{gone}', 'away');
            PERFORM issuing.cell_note_step(of_bucket, 'empty');
        END IF;
        RETURN deleted;
    END
    $$;

-- ---- who may what ----

REVOKE ALL ON FUNCTION issuing.cell_state(text), issuing.cell_gate(text[]), issuing.cell_note_users(text[]),
    issuing.cell_is_copy(text), issuing.cell_insert(), issuing.cell_update(), issuing.cell_mark(),
    issuing.cell_actor(text, text, text, text), issuing.cell_note(text, jsonb), issuing.cell_all_users(),
    issuing.cell_strays(), issuing.cell_init(text, int4[]), issuing.cell_turn(int4, uuid, text[], text),
    issuing.cell_note_step(int4, text), issuing.cell_list(int4[], text, uuid), issuing.cell_list_users(int4[]),
    issuing.cell_drain(int4, uuid), issuing.cell_busy(int4), issuing.cell_close(int4, uuid),
    issuing.cell_leave(int4, uuid), issuing.cell_open(int4, uuid),
    issuing.cell_expect(int4, text, uuid, timestamptz), issuing.cell_queries(int4), issuing.cell_copy(int4),
    issuing.cell_fingerprint(int4), issuing.cell_count(uuid[], int), issuing.cell_delete(int4, int8, bool),
    issuing.cell_arrive(int4, uuid), issuing.cell_refuse(int4, uuid), issuing.cell_empty(int4, int8)
FROM PUBLIC;
-- grants.sql runs only when all files are applied; the older programs go on meanwhile.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_api') THEN
        GRANT SELECT ON issuing.cell_buckets TO issuing_api;
        GRANT EXECUTE ON FUNCTION issuing.cell_gate(text[]) TO issuing_api;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'issuing_worker') THEN
        GRANT SELECT ON issuing.cell_buckets TO issuing_worker;
    END IF;
END
$$;
