-- Cells: which buckets of users live in this database, the gate of each write, the steps of a move
-- (docs/scaling.md).

-- HAProxy computes the same: sha2(256),bytes(0,2),hex,hex2i,mod(1024). The body is parsed here, so it depends on no
-- search_path, and has none: a function with one is not inlined. (convert_to is not immutable; decode leaves every byte
-- but the backslash as it is.)
CREATE OR REPLACE FUNCTION issuing.bucket_of(user_id text) RETURNS int4
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('x' || substr(encode(sha256(decode(replace(user_id, '\', '\\'), 'escape')), 'hex'), 1, 4))::bit(16)::int4
       % 1024;

-- A writer takes the lock (4713, bucket), shared, and looks at the state afterwards, in a statement of its own. Whoever
-- closes a bucket takes the same lock exclusively: so a writer that passed is over before, and one that comes later
-- sees the new state. A writer only tries the lock. The try also fails while the other one waits, so nobody waits here.
-- Another isolation level than READ COMMITTED has an old snapshot: there the row of the bucket is locked, which fails
-- (40001) if it has changed since that snapshot.

-- The state of this user's bucket, or `moving` where the lock is not free. For the triggers, which only a cell has.
CREATE OR REPLACE FUNCTION issuing.cell_state(who text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    of_user int4 := issuing.bucket_of(who);
    -- guard: an insert of another service holds the bucket's lock
    is_free bool := pg_try_advisory_xact_lock_shared(4713, of_user);
    found_state text;
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT c.state INTO found_state FROM cell_buckets c WHERE c.bucket = of_user;
    ELSE
        -- guard: a transaction with an old snapshot locks the row of the bucket
        SELECT c.state INTO found_state FROM cell_buckets c WHERE c.bucket = of_user FOR SHARE;
        -- guard: a transaction from before the cell passes no gate
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the database became a cell after this transaction began' USING ERRCODE = '40001';
        END IF;
    END IF;
    RETURN CASE WHEN is_free OR found_state IN ('gone', 'away') THEN found_state ELSE 'moving' END;
END
$$;

-- What a writer is told: NULL = go on; `moving` = soon; `elsewhere` = in another cell.
CREATE OR REPLACE FUNCTION issuing.cell_verdict(state text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT CASE WHEN state IN ('moving', 'closed', 'arriving') THEN 'moving'
                WHEN state IN ('gone', 'away') THEN 'elsewhere' END
$$;

-- The gate for the users of one transaction: a verdict for each, in their order; null where all of them are here. The
-- users of a bucket that is to be moved are recorded, also one who is refused: that does no harm.
CREATE OR REPLACE FUNCTION issuing.cell_gate(users text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    buckets int4[];
    are_free bool[];
    states text[];
BEGIN
    SELECT array_agg(l.bucket), array_agg(l.is_free) INTO buckets, are_free
    -- guard: whoever passes the gate holds the bucket's lock
    FROM (SELECT b.bucket, pg_try_advisory_xact_lock_shared(4713, b.bucket) AS is_free
          FROM (SELECT DISTINCT issuing.bucket_of(u.id) AS bucket FROM unnest(users) AS u (id)
                ORDER BY 1 OFFSET 0) b) l;
    states := ARRAY(SELECT (SELECT c.state FROM cell_buckets c WHERE c.bucket = b.bucket)
                    FROM unnest(buckets) WITH ORDINALITY AS b (bucket, n) ORDER BY b.n);
    IF 'here' = ALL (states) AND are_free[1] AND true = ALL (are_free) THEN
        RETURN NULL;
    ELSIF states && '{listing,draining}' THEN
        -- guard: who writes while a bucket is listed is recorded
        -- guard: a user who writes while the bucket is listed is recorded
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
CREATE OR REPLACE FUNCTION issuing.cell_note_users(users text[]) RETURNS void
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
CREATE OR REPLACE FUNCTION issuing.cell_refuse_write(state text, of_user int4) RETURNS void
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
CREATE OR REPLACE FUNCTION issuing.cell_is_copy(who text) RETURNS bool
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM cell_buckets c
                   WHERE c.bucket = issuing.bucket_of(who)::int2 AND c.state = 'arriving')
       -- As this function runs as the owner, current_user says nothing.
       -- guard: only the owner copies into a bucket that arrives
       AND pg_has_role(coalesce(nullif(current_setting('role'), 'none'), session_user)::name,
                       (SELECT c.relowner FROM pg_class c WHERE c.oid = 'outbox_events'::regclass), 'MEMBER');
END
$$;

-- Reads of clients: raises when the bucket of this user is not here. The statement calls it once, and it sees what that
-- statement sees.
CREATE OR REPLACE FUNCTION issuing.demand_here(who text) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    found_state text;
BEGIN
    SELECT c.state INTO found_state FROM cell_buckets c WHERE c.bucket = issuing.bucket_of(who)::int2;
    IF found_state = 'arriving' THEN
        RAISE EXCEPTION 'the bucket of this user is being moved' USING ERRCODE = 'IS001';
    -- guard: a read is refused where the bucket is not
    ELSIF found_state IN ('gone', 'away') THEN
        RAISE EXCEPTION 'the bucket of this user is in another cell' USING ERRCODE = 'IS002';
    END IF;
    RETURN true;
END
$$;

-- As demand_here, for what writes.
CREATE OR REPLACE FUNCTION issuing.demand_open(who text) RETURNS void
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

-- A new event of another service.
CREATE OR REPLACE FUNCTION issuing.cell_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    found_state text := issuing.cell_state(NEW.user_id);
BEGIN
    IF found_state = 'here' THEN
        RETURN NEW;
    ELSIF found_state IN ('listing', 'draining') THEN
        -- guard: an insert of another service records its user
        PERFORM issuing.cell_note_users(ARRAY[NEW.user_id]);
    ELSIF NOT issuing.cell_is_copy(NEW.user_id) THEN
        PERFORM issuing.cell_refuse_write(found_state, issuing.bucket_of(NEW.user_id));
    END IF;
    RETURN NEW;
END
$$;

-- A change of an event that no worker has, but for claims, which have a gate of their own. What takes rows as it finds
-- them (wake-ups) leaves this one out; an operator is told.
CREATE OR REPLACE FUNCTION issuing.cell_update() RETURNS trigger
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
CREATE OR REPLACE FUNCTION issuing.cell_mark() RETURNS trigger
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

-- The buckets whose events no worker takes; null = none. A claim that merely left out such events after it has chosen
-- them would find the same ones again and again, and never reach the others.
CREATE OR REPLACE FUNCTION issuing.cell_parked() RETURNS int4[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp SET enable_seqscan = off
AS $$
BEGIN
    RETURN (SELECT array_agg(c.bucket::int4) FROM cell_buckets c
            WHERE c.state IN ('draining', 'closed', 'gone', 'arriving'));
END
$$;

-- Who does what follows, for the audit row: said once in a session of issuing-ctl. The database's role is recorded
-- whatever is said here.
CREATE OR REPLACE FUNCTION issuing.cell_actor(actor text, os_user text, sudo_user text, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    PERFORM check_who(actor, os_user, sudo_user, why);
    PERFORM set_config('issuing.actor', actor, false), set_config('issuing.os_user', coalesce(os_user, ''), false),
            set_config('issuing.sudo_user', coalesce(sudo_user, ''), false),
            set_config('issuing.reason', why, false);
END
$$;

CREATE OR REPLACE FUNCTION issuing.cell_note(what text, more jsonb) RETURNS void
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
CREATE OR REPLACE FUNCTION issuing.cell_all_users() RETURNS SETOF text
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
CREATE OR REPLACE FUNCTION issuing.cell_strays() RETURNS TABLE (bucket int4, users int8)
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
CREATE OR REPLACE FUNCTION issuing.cell_init(cell_name text, buckets int4[]) RETURNS bool
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
        -- guard: a cell has only users of its buckets from its beginning
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

-- Each is one transaction of the owner. A step names the move, and does nothing to a bucket that is in another state or
-- of another move: it raises IS003. A step that is repeated is done already, and gives the same answer. So a second
-- mover, or one that was stopped and goes on later, does no harm.

-- From one of these states of this move to `after`. True: just now; false: it was so already; null: there are no cells.
CREATE OR REPLACE FUNCTION issuing.cell_turn(of_bucket int4, move uuid, befores text[], after text) RETURNS bool
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
    -- guard: a step is of its move
    -- guard: a step is of its state
    ELSIF (b.move_id = move AND b.state = ANY (befores)) IS NOT TRUE THEN
        RAISE EXCEPTION 'bucket % is "%" since %, of move %: not % of move %', of_bucket, b.state, b.since,
            coalesce(b.move_id::text, '-'), array_to_string(befores, ' or '), move USING ERRCODE = 'IS003';
    END IF;
    UPDATE cell_buckets c SET state = after, since = clock_timestamp() WHERE c.bucket = of_bucket;
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION issuing.cell_note_step(of_bucket int4, what text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT issuing.cell_note('move_bucket', jsonb_build_object('step', what, 'bucket', c.bucket, 'state', c.state,
                                                               'other', c.other, 'move_id', c.move_id))
    FROM cell_buckets c WHERE c.bucket = of_bucket
$$;

-- Source: here -> listing. Returns the buckets that are of this move now, whatever their state; one that is not here is
-- left out.
CREATE OR REPLACE FUNCTION issuing.cell_list(buckets int4[], other_cell text, move uuid) RETURNS SETOF int4
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
CREATE OR REPLACE FUNCTION issuing.cell_list_users(buckets int4[]) RETURNS int8
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
                  -- guard: the scan for users waits for those who wrote before the list
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
CREATE OR REPLACE FUNCTION issuing.cell_drain(of_bucket int4, move uuid) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    -- guard: whoever parks a bucket waits for the claims under way
    -- guard: a claim that began before the drain is waited for
    PERFORM pg_advisory_xact_lock(4713, -1);
    RETURN issuing.cell_turn(of_bucket, move, '{listing}', 'draining') IS NOT NULL;
END
$$;

-- Source: attempts under way, and marks that a worker has. The open events are read where they are few, whoever has
-- them; behind a backlog the events of the users of this bucket, who are all recorded by then.
CREATE OR REPLACE FUNCTION issuing.cell_busy(of_bucket int4) RETURNS int8
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
        -- guard: a bucket is not closed while attempts are under way behind a backlog
        WHERE e.due_at IS NOT NULL AND e.status = 'PROCESSING';
    END IF;
    RETURN attempts
         + (SELECT count(*) FROM peer_checks p
            -- guard: a mark that a worker has keeps its bucket open
            WHERE p.finished_at IS NULL AND p.lease_token IS NOT NULL AND p.due_at > now()
              AND (SELECT issuing.bucket_of(e.user_id) FROM outbox_events e WHERE e.id = p.event_id) = of_bucket);
END
$$;

-- Source: draining -> closed. Waits for those who have passed the gate, at most the session's lock_timeout (55P03 then:
-- try again). False: attempts are under way. What a claim has taken is seen only after the lock, in a statement of its
-- own.
CREATE OR REPLACE FUNCTION issuing.cell_close(of_bucket int4, move uuid) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
BEGIN
    -- guard: the mover waits for those who have passed the gate
    PERFORM pg_advisory_xact_lock(4713, of_bucket);
    IF (SELECT c.state = 'draining' AND c.move_id = move FROM cell_buckets c WHERE c.bucket = of_bucket)
       -- guard: a bucket is not closed while attempts are under way
       AND issuing.cell_busy(of_bucket) > 0 THEN
        RETURN false;
    END IF;
    RETURN issuing.cell_turn(of_bucket, move, '{draining}', 'closed') IS NOT NULL;
END
$$;

-- Source: closed -> gone. The point of no return: the rows must be in the other cell, and equal.
CREATE OR REPLACE FUNCTION issuing.cell_leave(of_bucket int4, move uuid) RETURNS bool
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
CREATE OR REPLACE FUNCTION issuing.cell_open(of_bucket int4, move uuid) RETURNS bool
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
CREATE OR REPLACE FUNCTION issuing.cell_expect(
    of_bucket int4, other_cell text, move uuid, source_clock timestamptz DEFAULT NULL)
RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, issuing, pg_temp
AS $$
DECLARE
    is_new bool;
BEGIN
    -- guard: cells whose clocks differ exchange no bucket
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

-- A query for each table, in the order of the copy. The users are those of cell_users; all other rows are found by
-- them. A session that runs these queries itself switches off enable_seqscan, enable_hashjoin, enable_mergejoin, jit.
CREATE OR REPLACE FUNCTION issuing.cell_queries(of_bucket int4)
    RETURNS TABLE (n int4, name text, columns text, query text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, issuing, pg_temp SET standard_conforming_strings = on
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
        -- guard: the keys move with their bucket
        -- guard: keys move with their users
        (4, 'idempotency_keys', users || ' JOIN issuing.idempotency_keys t ON t.user_id = u.user_id'),
        -- guard: the tries of the limit move with their bucket
        -- guard: limit rows move with their users
        (5, 'rate_limit_log', users || ' JOIN issuing.rate_limit_log t ON t.user_id = u.user_id'),
        -- guard: cards move with their users
        (6, 'cards', users || ' JOIN issuing.cards t ON t.user_id = u.user_id'),
        -- guard: reissues move with their users
        (7, 'card_reissues', users || ' JOIN issuing.card_reissues t ON t.user_id = u.user_id'),
        (8, 'event_reissues', format('(SELECT r.* FROM %s JOIN issuing.event_reissues r ON r.old_id = e.id UNION
                                       SELECT r.* FROM %s JOIN issuing.event_reissues r ON r.new_id = e.id) t',
                                     events, events)),
        -- guard: reveals move with their users
        (9, 'number_reveals', users || ' JOIN issuing.number_reveals t ON t.user_id = u.user_id'),
        (10, 'lost_events', events || ' JOIN issuing.lost_events t ON t.event_id = e.id'),
        -- guard: marks move with their users
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
CREATE OR REPLACE FUNCTION issuing.cell_copy(of_bucket int4) RETURNS TABLE (name text, copy_out text, copy_in text)
LANGUAGE sql STABLE SET search_path = pg_catalog, issuing, pg_temp
AS $$
    SELECT q.name, format('COPY (%s) TO STDOUT (FORMAT binary)', q.query),
           format('COPY issuing.%I (%s) FROM STDIN (FORMAT binary)', q.name, q.columns)
    FROM issuing.cell_queries(of_bucket) q
    ORDER BY q.n
$$;

-- Rows of the bucket in each table, and a sum over them that does not depend on their order: equal where the rows are.
CREATE OR REPLACE FUNCTION issuing.cell_fingerprint(of_bucket int4) RETURNS TABLE (name text, rows int8, checksum text)
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
CREATE OR REPLACE FUNCTION issuing.cell_count(events uuid[], sign int) RETURNS void
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
CREATE OR REPLACE FUNCTION issuing.cell_delete(of_bucket int4, most int8, is_counted bool) RETURNS int8
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
CREATE OR REPLACE FUNCTION issuing.cell_arrive(of_bucket int4, move uuid) RETURNS bool
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
    -- guard: ended events are counted where they are
    PERFORM issuing.cell_count(events, 1);
    UPDATE peer_checks p SET lease_token = NULL, due_at = now(), due_set_at = now()
    WHERE p.lease_token IS NOT NULL AND p.finished_at IS NULL AND p.event_id = ANY (events);
    -- guard: a settled partition that gets rows is judged anew
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
CREATE OR REPLACE FUNCTION issuing.cell_refuse(of_bucket int4, move uuid) RETURNS bool
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
CREATE OR REPLACE FUNCTION issuing.cell_empty(of_bucket int4, most int8) RETURNS int8
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
    -- guard: what leaves a cell leaves its statistics
    deleted := issuing.cell_delete(of_bucket, most, true);
    IF deleted = 0 THEN
        PERFORM issuing.cell_turn(of_bucket, b.move_id, '{gone}', 'away');
        PERFORM issuing.cell_note_step(of_bucket, 'empty');
    END IF;
    RETURN deleted;
END
$$;

REVOKE ALL ON FUNCTION issuing.cell_state(text), issuing.cell_gate(text[]), issuing.cell_note_users(text[]),
    issuing.cell_is_copy(text), issuing.cell_insert(), issuing.cell_update(), issuing.cell_mark(),
    issuing.cell_actor(text, text, text, text), issuing.cell_note(text, jsonb), issuing.cell_all_users(),
    issuing.cell_strays(), issuing.cell_init(text, int4[]), issuing.cell_turn(int4, uuid, text[], text),
    issuing.cell_note_step(int4, text), issuing.cell_list(int4[], text, uuid), issuing.cell_list_users(int4[]),
    issuing.cell_drain(int4, uuid), issuing.cell_busy(int4), issuing.cell_close(int4, uuid),
    issuing.cell_leave(int4, uuid), issuing.cell_open(int4, uuid), issuing.cell_expect(int4, text, uuid, timestamptz),
    issuing.cell_queries(int4), issuing.cell_copy(int4), issuing.cell_fingerprint(int4),
    issuing.cell_count(uuid[], int4), issuing.cell_delete(int4, int8, bool), issuing.cell_arrive(int4, uuid),
    issuing.cell_refuse(int4, uuid), issuing.cell_empty(int4, int8)
FROM PUBLIC;
