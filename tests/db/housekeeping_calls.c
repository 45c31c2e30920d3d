/* See housekeeping_calls.h. */
#include "tests/db/housekeeping_calls.h"

#include "statements.h"

struct pg_sync *owner, *worker, *other;

void set_clock(const char *passed_ago, const char *steady_for, const char *clock_ago)
{
    database_exec(owner,
                  "UPDATE housekeeping_clock SET passed_at = clock_timestamp() - interval '%s', steady_from = "
                  "clock_timestamp() - "
                  "interval '%s', clock_at = clock_timestamp() - interval '%s'",
                  passed_ago, steady_for, clock_ago);
}

void set_up(void)
{
    owner = database_open("issuing_owner");
    worker = database_open("issuing_worker");
    other = database_open("issuing_worker");
    database_run(worker,
                 "SET statement_timeout = '20s'"); /* a wait that should not be ends as an error, not as a hung test */
    database_run(owner, "DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM partitions LOOP "
                        "EXECUTE format('DROP TABLE %I', p); END LOOP; DELETE FROM partitions; END $$");
    database_run(owner,
                 "TRUNCATE outbox_events, outbox_attempts, cards, card_reissues, idempotency_keys, rate_limit_log, "
                 "partition_plans, default_scans");
    database_run(owner, "ALTER TABLE outbox_events_default DROP CONSTRAINT IF EXISTS default_promise; "
                        "ALTER TABLE outbox_attempts_default DROP CONSTRAINT IF EXISTS default_promise");
    database_run(owner, "UPDATE retentions SET kept = least");
    set_clock("0 s", "1 h", "0 s");
}

void tear_down(void)
{
    pg_sync_closep(&other);
    pg_sync_closep(&worker);
    pg_sync_closep(&owner);
}

const struct retention usual = {.keys_ms = DAY_MS, .limits_ms = DAY_MS, .events_ms = 90 * DAY_MS};

const char *pass_of(struct pg_sync *db, const struct retention *retention, bool *ret_has_more)
{
    static const struct sql_statement *const calls[] = {&sql_keep_rows, &sql_run_housekeeping,
                                                        &sql_check_default_partitions};
    static char text[1000];
    struct pg_param params[] = {pg_param_int8(retention->keys_ms), pg_param_int8(retention->limits_ms),
                                pg_param_int8(retention->events_ms), pg_param_int8(HOUR_MS)};
    size_t length = 0;
    text[0] = '\0';
    *ret_has_more = false;
    for (size_t call = 0; call < ARRAY_SIZE(calls); call++) {
        struct pg_rows *rows = database_query(db, calls[call], params);
        for (int i = 0; i < pg_rows_count(rows); i++) {
            const char *table = pg_bytes(rows, i, 1).bytes;
            length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s %s %lld", length ? "; " : "",
                                       pg_bytes(rows, i, 0).bytes, table ? table : "-", (long long)pg_int8(rows, i, 2));
            ck_assert_uint_lt(length, sizeof(text));
            *ret_has_more |= pg_bool(rows, i, 4);
        }
        pg_rows_free(rows);
    }
    return text;
}

const char *pass(void)
{
    bool has_more;
    return pass_of(worker, &usual, &has_more);
}

int passes(const struct retention *retention)
{
    bool has_more = true;
    int count = 0;
    while (has_more) {
        (void)pass_of(worker, retention, &has_more);
        count += has_more;
        ck_assert_int_lt(count, 1000);
    }
    return count;
}

void expect_pass(const char *wanted)
{
    const char *done = pass();
    ck_assert_msg(strcmp(done, wanted) == 0, "the pass did \"%s\", not \"%s\"", done, wanted);
}

void add_partition(const char *parent, int from_days_ago, int to_days_ago)
{
    database_exec(owner,
                  "SELECT issuing.partition_add('%s', date_trunc('day', now()) - interval '%d days', date_trunc('day', "
                  "now()) - interval '%d days')",
                  parent, from_days_ago, to_days_ago);
}

void settle(const char *ago)
{
    database_exec(owner, "UPDATE partitions SET settled_at = now() - interval '%s' WHERE to_at < now()", ago);
}

struct uuid add_event(const char *user, int days_ago, const char *status, const char *ended_ago)
{
    struct pg_rows *rows = NULL;
    char text[300];
    snprintf(text, sizeof(text),
             "SELECT (left(issuing.uuid7_least(now() - interval '%d days')::text, 14) || '7' || "
             "substr(gen_random_uuid()::text, 16))::uuid",
             days_ago);
    rows = database_rows(owner, text);
    struct uuid id = pg_uuid(rows, 0, 0);
    pg_rows_free(rows);
    database_exec(owner,
                  "INSERT INTO outbox_events (id, user_id, idempotency_key, payload, status, retry_count, created_at, "
                  "updated_at, completed_at, next_attempt_at, first_sent_at, lease_token, lease_until) "
                  "SELECT '%s', '%s', '%s', '{\"kind\":\"new\"}', s, 1, t, now() - interval '%s', "
                  "CASE WHEN s NOT IN ('PENDING', 'PROCESSING') THEN now() - interval '%s' END, t, t, "
                  "CASE WHEN s = 'PROCESSING' THEN gen_random_uuid() END, CASE WHEN s = 'PROCESSING' THEN now() END "
                  "FROM (SELECT '%s' AS s, now() - interval '%d days' AS t) v",
                  text_of(&id), user, user, ended_ago, ended_ago, status, days_ago);
    database_exec(owner,
                  "INSERT INTO idempotency_keys (event_id, created_at, user_id, key, fingerprint) "
                  "SELECT id, created_at, user_id, idempotency_key, sha256(payload::text::bytea) FROM outbox_events "
                  "WHERE id = '%s'",
                  text_of(&id));
    database_exec(
        owner,
        "INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, "
        "step, outcome) VALUES ('%s', gen_random_uuid(), now(), now(), 1, true, '%s', 'issue', 'retry')",
        text_of(&id), user);
    return id;
}

/* The verdict of that user's key for a new request with the same body. */
static char *verdict_of(const char *user)
{
    char text[500];
    snprintf(text, sizeof(text),
             "SELECT verdict FROM issuing.accept(ARRAY[gen_random_uuid()], ARRAY['%s'], ARRAY['%s'], "
             "ARRAY[sha256('{\"kind\": \"new\"}')], ARRAY['{\"kind\": \"new\"}'], ARRAY[NULL], ARRAY[NULL], 1000000, "
             "'1 h', false, "
             "'1 day')",
             user, user);
    return database_text(owner, text);
}

void expect_verdict(const char *user, const char *wanted)
{
    char *verdict = verdict_of(user);
    ck_assert_msg(strcmp(verdict, wanted) == 0, "%s: %s, not %s", user, verdict, wanted);
    free(verdict);
}

void expect_text(const char *query, const char *wanted)
{
    char *text = database_text(owner, query);
    ck_assert_msg(strcmp(text ? text : "", wanted) == 0, "%s: \"%s\", not \"%s\"", query, text ? text : "", wanted);
    free(text);
}

int64_t partition_count(const char *parent)
{
    return database_int(owner, "SELECT count(*) FROM partitions WHERE parent = '%s'", parent);
}

void expect_list_is_true(void)
{
    ck_assert_int_eq(
        database_int(owner,
                     "SELECT count(*) FROM partitions p FULL JOIN ("
                     "SELECT c.relname, i.inhparent::regclass::text AS parent FROM pg_class c "
                     "LEFT JOIN pg_inherits i ON i.inhrelid = c.oid "
                     "WHERE c.relkind = 'r' AND c.relname ~ '^(outbox_events|outbox_attempts|idempotency_keys|"
                     "rate_limit_log|operator_actions)_[0-9]{8}t') t ON t.relname = p.name AND t.parent = p.parent "
                     "WHERE t.relname IS NULL OR p.name IS NULL"),
        0);
}

int64_t gaps(void)
{
    return database_int(
        owner, "SELECT count(*) FROM (SELECT p.parent, lead(p.name) OVER w AS next, "
               "substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \\((.*)\\)') AS until, "
               "lead(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'FROM \\((.*)\\) TO')) OVER w AS next_from "
               "FROM partitions p JOIN pg_class c ON c.relname = p.name WINDOW w AS (PARTITION BY p.parent ORDER BY "
               "p.from_at)) g "
               "WHERE next IS NOT NULL AND until IS DISTINCT FROM next_from");
}

int64_t settled(const char *parent)
{
    return database_int(owner, "SELECT count(*) FROM partitions WHERE parent = '%s' AND settled_at IS NOT NULL",
                        parent);
}
