"""Every piece of SQL that knows the schema, in one place. Tables are named by their parents: partitions are looked
after by the server."""

FINGERPRINT = "'\\x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'"
PAYLOAD = "'{\"kind\":\"new\",\"program\":\"standard\"}'"

# Acceptance by pgbench: as the api does it for one request, for 32, and as ordinary code does it.
ACCEPT_ONE = f"""
\\set u random(1, 1000000)
SELECT verdict FROM issuing.accept(ARRAY[gen_random_uuid()], ARRAY['u' || :u], ARRAY[gen_random_uuid()::text],
                                   ARRAY[{FINGERPRINT}::bytea],
    ARRAY[{PAYLOAD}], ARRAY[NULL::text], ARRAY[NULL::text], 1000000, interval '10 seconds', false, interval '24 hours');
"""

MANY = 32
ACCEPT_MANY = f"""
\\set u random(1, 1000000)
SELECT count(verdict) FROM issuing.accept(
    (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, {MANY})),
    (SELECT array_agg('u' || :u || '-' || g) FROM generate_series(1, {MANY}) g),
    (SELECT array_agg(gen_random_uuid()::text) FROM generate_series(1, {MANY})),
    (SELECT array_agg({FINGERPRINT}::bytea) FROM generate_series(1, {MANY})),
    (SELECT array_agg({PAYLOAD}::text) FROM generate_series(1, {MANY})),
    (SELECT array_agg(NULL::text) FROM generate_series(1, {MANY})),
    (SELECT array_agg(NULL::text) FROM generate_series(1, {MANY})),
    1000000, interval '10 seconds', false, interval '24 hours');
"""

ACCEPT_FOUR = f"""
\\set u random(1, 1000000)
BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended('u' || :u, 4711));
INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
VALUES (issuing.uuid7(), clock_timestamp(), 'u' || :u, gen_random_uuid()::text, {FINGERPRINT}) ON CONFLICT DO NOTHING;
INSERT INTO rate_limit_log (at, request_id, accepted, user_id)
SELECT clock_timestamp(), gen_random_uuid(), true, 'u' || :u
WHERE (SELECT count(*) FROM rate_limit_log WHERE user_id = 'u' || :u
       AND at > clock_timestamp() - interval '10 seconds') < 1000000;
INSERT INTO outbox_events (user_id, idempotency_key, payload) VALUES ('u' || :u, 'k', {PAYLOAD});
COMMIT;
"""

# The database's part of a worker, without a worker: claim, save and end in batches, a commit each. Nothing crosses a
# socket.
DRAIN = """
CREATE OR REPLACE PROCEDURE bench_drain(batch int8) LANGUAGE plpgsql AS $$
DECLARE
    token uuid;
    ids uuid[];
    tokens uuid[];
    n int;
    since int8;
BEGIN
    LOOP
        token := gen_random_uuid();
        SELECT array_agg(e.id) FILTER (WHERE e.id IS NOT NULL), max(c.next_since_us) INTO ids, since
        FROM issuing.claim(token, batch, 60000, 'bench', since, 1000, false, 'CARD_ISSUE', false) c
        LEFT JOIN unnest(c.events) e ON true;
        COMMIT;
        n := cardinality(ids);
        EXIT WHEN n IS NULL;
        tokens := array_fill(token, ARRAY[n]);
        PERFORM count(*)
        FROM issuing.save(ids, tokens, (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, n)),
            (SELECT array_agg('card_' || i) FROM unnest(ids) i), array_fill('4242'::text, ARRAY[n]),
            array_fill(12::int8, ARRAY[n]), array_fill(2030::int8, ARRAY[n]),
            array_fill(decode(repeat('a7', 49), 'hex'), ARRAY[n]),
            array_fill(NULL::uuid, ARRAY[n]));
        COMMIT;
        PERFORM count(*) FROM issuing.complete(ids, tokens, 'bench', array_fill(1::int8, ARRAY[n]), 'link', NULL);
        COMMIT;
    END LOOP;
END
$$
"""
RUN_DRAIN = "CALL bench_drain(100)"

# What one claim of 100 costs, without a bookmark, rolled back.
CLAIM_TIMES = 5
CLAIM_COST = """
BEGIN;
EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
SELECT id FROM issuing.claim(gen_random_uuid(), 100, 60000, 'bench', NULL, 1000, false, 'CARD_ISSUE', false), unnest(events);
ROLLBACK;
"""

# Where tables are partitioned by time: also one for what the benches make up for the hours before now.
PAST = """
DO $$
BEGIN
    IF to_regprocedure('issuing.partition_add(text,timestamptz,timestamptz)') IS NOT NULL THEN
        PERFORM issuing.partition_add(p, date_trunc('hour', now()) - interval '1 hour', date_trunc('hour', now()))
        FROM unnest(ARRAY['outbox_events', 'idempotency_keys', 'rate_limit_log']) p;
    END IF;
END
$$
"""

# UUID v7 of a time, as our programs make them.
UUID7 = ("encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send((extract(epoch FROM"
         " {at}) * 1000)::int8) FROM 3) "
         "FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid")


def pending(first, last, total, span_s, which="true"):
    """Due events, with the rows that acceptance leaves, spread over the last span_s seconds; which: a condition of
    g."""
    return f"""
WITH e AS MATERIALIZED (
    SELECT {UUID7.format(at="t.at")} AS id, t.at, 'past-' || t.g AS user_id, 'key-' || t.g AS key
    FROM (SELECT g, now() - ({total} - g) * (interval '{span_s} seconds' / {total}) - interval '1 second' AS at
          FROM generate_series({first}, {last}) g WHERE {which}) t
), keys AS (
    INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
    SELECT id, at, user_id, key, {FINGERPRINT}::bytea FROM e
), tries AS (
    INSERT INTO rate_limit_log (at, request_id, accepted, user_id) SELECT at, id, true, user_id FROM e
)
INSERT INTO outbox_events (id, created_at, updated_at, next_attempt_at, user_id, idempotency_key, payload)
SELECT id, at, at, at, user_id, key, {PAYLOAD}::jsonb FROM e
"""


def finished(first, last, total, span_s):
    """Events that are over, with all that is left of them, spread over the last span_s seconds."""
    return f"""
WITH e AS MATERIALIZED (
    SELECT {UUID7.format(at="t.at")} AS id, gen_random_uuid() AS card_id, gen_random_uuid() AS token, t.at,
           'past-' || t.g AS user_id, 'key-' || t.g AS key
    FROM (SELECT g, now() - ({total} - g) * (interval '{span_s} seconds' / {total}) - interval '1 second' AS at
          FROM generate_series({first}, {last}) g) t
), keys AS (
    INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint)
    SELECT id, at, user_id, key, {FINGERPRINT}::bytea FROM e
), tries AS (
    INSERT INTO rate_limit_log (at, request_id, accepted, user_id) SELECT at, id, true, user_id FROM e
), events AS (
    INSERT INTO outbox_events (id, created_at, updated_at, completed_at, next_attempt_at, first_sent_at, retry_count,
                               status, user_id,
                               idempotency_key, payload, lease_owner)
    SELECT id, at, at, at, at, at, 1, 'COMPLETED', user_id, key, {PAYLOAD}::jsonb, 'bench' FROM e
), attempts AS (
    INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, worker, step,
                                 outcome)
    SELECT id, token, at, at, 1, false, user_id, 'bench', 'link', 'completed' FROM e
)
INSERT INTO cards (id, request_id, created_at, updated_at, exp_month, exp_year, user_id, issuer_card_id, last4,
                   number_record)
SELECT card_id, id, at, at, 12, 2030, user_id, 'card_' || id, '4242', decode(repeat('a7', 49), 'hex') FROM e
"""


def routed(event_type, first, last, total):
    """Due events of a route, as another service inserts them, spread over the last ten minutes."""
    return f"""
INSERT INTO outbox_events (id, created_at, updated_at, next_attempt_at, event_type, user_id, payload)
SELECT {UUID7.format(at="t.at")}, t.at, t.at, t.at, '{event_type}', 'past-' || t.g,
       jsonb_build_object('order', 'order-' || t.g, 'amount', 12.50)
FROM (SELECT g, now() - ({total} - g) * (interval '600 seconds' / {total}) - interval '1 second' AS at
      FROM generate_series({first}, {last}) g) t
"""


# The tables with rows in them.
FILLED = """
SELECT string_agg(c.oid::regclass::text, ', ') FROM pg_class c
WHERE c.relnamespace = 'issuing'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND (SELECT sum(pg_relation_size(p.relid)) FROM (SELECT relid FROM pg_partition_tree(c.oid) UNION SELECT c.oid) p) > 0
"""

# By the database's clock: from the first claim to the last completion.
DRAIN_TOOK = ("SELECT extract(epoch FROM max(completed_at) - min(first_sent_at)) FROM outbox_events"
              " WHERE status = 'COMPLETED'")

# Completions a second in the middle half of a drain, and the seconds from an event's claim to its completion there.
STEADY = """
WITH middle AS (SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY completed_at) AS first,
                       percentile_disc(0.75) WITHIN GROUP (ORDER BY completed_at) AS last
                FROM outbox_events WHERE status = 'COMPLETED')
SELECT count(*) / extract(epoch FROM max(last) - max(first)), avg(extract(epoch FROM completed_at - first_sent_at))
FROM outbox_events, middle WHERE status = 'COMPLETED' AND completed_at > first AND completed_at <= last
"""

# The same two of one event type: {type}.
RATE_OF = """
SELECT count(*) / extract(epoch FROM max(completed_at) - min(first_sent_at)) FROM outbox_events
WHERE event_type = '{type}' AND status = 'COMPLETED'
"""
STEADY_OF = """
WITH middle AS (SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY completed_at) AS first,
                       percentile_disc(0.75) WITHIN GROUP (ORDER BY completed_at) AS last
                FROM outbox_events WHERE event_type = '{type}' AND status = 'COMPLETED')
SELECT count(*) / extract(epoch FROM max(last) - max(first))
FROM outbox_events, middle WHERE event_type = '{type}' AND completed_at > first AND completed_at <= last
"""

LATENCY = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY d), percentile_cont(0.99) WITHIN GROUP (ORDER BY d), max(d), count(*)
FROM (SELECT extract(epoch FROM completed_at - created_at) * 1000 AS d FROM outbox_events
      WHERE created_at >= '{since}' AND completed_at IS NOT NULL) x
"""

# By an index, however many are over: looking must cost nothing. 0 = nothing is left to do.
UNFINISHED = """
SET enable_seqscan = off;
SELECT count(*) FROM (SELECT FROM outbox_events WHERE event_type = 'CARD_ISSUE' AND due_at IS NOT NULL LIMIT 1) x
"""

# Completions and their latency by buckets of time since a moment.
BY_BUCKET = """
SELECT floor(extract(epoch FROM completed_at - '{since}'::timestamptz) / {bucket}) AS b, count(*),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY d), percentile_cont(0.99) WITHIN GROUP (ORDER BY d)
FROM (SELECT completed_at, extract(epoch FROM completed_at - created_at) * 1000 AS d FROM outbox_events
      WHERE completed_at >= '{since}') x
GROUP BY b ORDER BY b
"""

# Of a table, its partitions, their indexes and toast; and the rows that are dead but still there.
SIZE_AND_DEAD = """
WITH parts AS (SELECT relid FROM pg_partition_tree('{table}') UNION SELECT '{table}'::regclass)
SELECT sum(pg_total_relation_size(relid)),
       (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_all_tables WHERE relid IN (SELECT relid FROM parts)),
       count(*)
FROM parts
"""

# A reader that stays: it has a snapshot and has seen the outbox.
HOLD = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM (SELECT FROM outbox_events LIMIT 1000) x;"

# Row versions so far, by table; partitions count for their parent.
VERSIONS = """
SELECT coalesce(pg_partition_root(relid), relid)::regclass::text AS name, sum(n_tup_ins), sum(n_tup_upd),
       sum(n_tup_hot_upd), sum(n_tup_del)
FROM pg_stat_all_tables WHERE schemaname = 'issuing' GROUP BY 1
HAVING sum(n_tup_ins) + sum(n_tup_upd) + sum(n_tup_del) > 0 ORDER BY 1
"""

# File numbers, as they stand in WAL records, and whose they are: (file, table, index or '').
FILES = """
SELECT pg_relation_filenode(c.oid), coalesce(pg_partition_root(t.oid), t.oid)::regclass::text,
       CASE WHEN i.indexrelid IS NULL THEN '' ELSE c.relname END
FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
JOIN pg_class t ON t.oid = coalesce(i.indrelid, c.oid)
WHERE c.relkind IN ('r', 'i', 't') AND pg_relation_filenode(c.oid) IS NOT NULL
"""

# No NOTIFY: the function that sends it does nothing. The statement stays, so that only the wake-up
# is missing.
WAKE_UP_OFF = """
CREATE OR REPLACE FUNCTION issuing.hint(channel text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, issuing, pg_temp AS '';
"""
WAKE_UP_ON = """
CREATE OR REPLACE FUNCTION issuing.hint(channel text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, issuing, pg_temp
    AS $$ SELECT pg_notify(channel, '') $$;
"""

SETTINGS = """
SELECT string_agg(name || ' ' || current_setting(name), ', ' ORDER BY n)
FROM unnest(ARRAY['fsync', 'synchronous_commit', 'full_page_writes',
    'wal_sync_method', 'shared_buffers', 'max_wal_size']) WITH ORDINALITY AS s (name, n)
"""

# Requests that no worker processes, one for each user; their ids in the order of the users.
WAITABLE = f"""
WITH e AS (
    INSERT INTO outbox_events (user_id, payload, next_attempt_at)
    SELECT 'waiting-' || g, {PAYLOAD.replace("{", "{{").replace("}", "}}")}, now() + interval '1 day'
    FROM generate_series(1, {{count}}) g
    RETURNING id, user_id
)
SELECT id FROM e ORDER BY substring(user_id FROM 9)::int
"""

# The backlog of an outage: {count} PENDING events (deferred with several causes, of them some with an unknown outcome;
# scheduled for days ahead; due) and as many FAILED ones, of card requests and of a route, twice as many COMPLETED. The
# issuer and core-api are paused, so that a worker leaves them alone.
OF_A_TIME = UUID7.format(at="t.at")
MANY_OPEN = (f"""
INSERT INTO target_controls (target, paused_at, paused_by, paused_why)
VALUES ('issuer', now(), 'bench', 'bench'), ('core', now(), 'bench', 'bench')
""", """
SET ROLE issuing_owner;
SELECT issuing.partition_add('outbox_events', date_trunc('hour', now()) - interval '21 h', date_trunc('hour', now()))
""", """
INSERT INTO routes (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts, is_signed, worker, seen_at)
VALUES ('MAIL', false, false, 86400000, 10, false, 'bench', now())
""", f"""
SET session_replication_role = replica;
INSERT INTO outbox_events (id, created_at, updated_at, completed_at, next_attempt_at, first_sent_at, retry_count,
                           status, user_id, idempotency_key, payload, reason_code, event_type, last_error)
SELECT {OF_A_TIME}, t.at, t.at, t.at, t.at, CASE WHEN t.g % 10 = 0 THEN t.at END, 3, 'FAILED', 'past-' || t.g % 50000,
       'key-' || t.g, {PAYLOAD.replace("{", "{{").replace("}", "}}")}::jsonb,
       (ARRAY['issuer_http_418', 'attempts_exhausted', 'link_refused', 'issuer_key_expired'])[1 + t.g % 4],
       CASE WHEN t.g % 20 = 0 THEN 'MAIL' ELSE 'CARD_ISSUE' END, 'create: issuer_http_418: teapot'
FROM (SELECT g, now() - interval '8 h' + g * interval '0.2 s' AS at FROM generate_series(1, {{count}}) g) t
""", f"""
SET session_replication_role = replica;
INSERT INTO outbox_events (id, created_at, updated_at, next_attempt_at, first_sent_at, retry_count, user_id,
                           idempotency_key, payload, event_type, deferral_code, last_error, run_at)
SELECT {OF_A_TIME}, t.at, t.at,
       CASE WHEN t.g % 10 < 6 THEN now() + interval '1 h' * random() WHEN t.g % 10 < 9 THEN now() + interval '2 days'
            ELSE t.at END,
       CASE WHEN t.g % 10 = 1 THEN t.at END, CASE WHEN t.g % 10 < 6 THEN 2 ELSE 0 END, 'past-' || t.g % 50000,
       'key-' || t.g, {PAYLOAD.replace("{", "{{").replace("}", "}}")}::jsonb,
       CASE WHEN t.g % 20 = 0 THEN 'MAIL' ELSE 'CARD_ISSUE' END,
       CASE WHEN t.g % 10 < 4 THEN (ARRAY['issuer_http_503', 'breaker_open', 'core_unreachable'])[1 + t.g % 3] END,
       CASE WHEN t.g % 10 < 6 THEN 'create: issuer_http_503: no answer' END,
       CASE WHEN t.g % 10 BETWEEN 6 AND 8 THEN now() + interval '2 days' END
FROM (SELECT g, now() - interval '7 h' + g * interval '0.2 s' AS at FROM generate_series(1, {{count}}) g) t
""", f"""
SET session_replication_role = replica;
WITH e AS MATERIALIZED (
    SELECT {OF_A_TIME} AS id, t.at, t.g
    FROM (SELECT g, now() - interval '20 h' + g * interval '0.2 s' AS at FROM generate_series(1, 2 * {{count}}) g) t
), events AS (
    INSERT INTO outbox_events (id, created_at, updated_at, completed_at, next_attempt_at, first_sent_at, retry_count,
                               status, user_id, idempotency_key, payload, lease_owner)
    SELECT id, at, at, at, at, at, 1, 'COMPLETED', 'past-' || g % 50000, 'key-' || g,
           {PAYLOAD.replace("{", "{{").replace("}", "}}")}::jsonb, 'bench' FROM e
)
INSERT INTO cards (id, request_id, created_at, updated_at, exp_month, exp_year, user_id, issuer_card_id, last4)
SELECT gen_random_uuid(), id, at, at, 12, 2030, 'past-' || g % 50000, 'card_' || id, '4242' FROM e
""")
SOME_EVENT = "SELECT id FROM outbox_events WHERE event_type = 'CARD_ISSUE' AND due_at IS NOT NULL ORDER BY due_at LIMIT 1"

# The worker that is gone counts as one that lives.
STAY_ALIVE = "UPDATE workers SET seen_at = clock_timestamp() + interval '50 s'"
# Sessions of programs; rows that those which ended have read since the last call.
SESSIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename ~ '^issuing_'
"""
READ = """
SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables WHERE schemaname = 'issuing';
SELECT pg_stat_reset();
"""
