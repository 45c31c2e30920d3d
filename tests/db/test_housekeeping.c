/* The story: what is over leaves by DROP of a partition, so whatever must not leave with it has to be known to the last row. An unfinished
 * request, an open question, its history and its key stay, whenever they end; nothing is half done when somebody is in the way; and who
 * accepts or works meanwhile does not notice. Time is made by hand: partitions and rows of the past, and when a partition was settled. */
#include "tests/db/database.h"

#include <pthread.h>

#include "common/sql/statements.h"
#include "common/uuid7.h"

#define HOUR_MS (INT64_C(3600) * 1000)
#define DAY_MS (24 * HOUR_MS)

static struct pg_sync *owner, *worker, *other;

/* The clock by which retentions are judged, as the last pass left it. */
static void set_clock(const char *passed_ago, const char *steady_for, const char *believed_ago)
{
    database_exec(
        owner,
        "UPDATE house_clock SET passed_at = clock_timestamp() - interval '%s', steady_from = clock_timestamp() - "
        "interval '%s', believed_at = clock_timestamp() - interval '%s'",
        passed_ago, steady_for, believed_ago);
}

/* As an empty house: not one partition but `_rest`. */
static void set_up(void)
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
                 "partition_plans, rest_scans");
    database_run(owner, "ALTER TABLE outbox_events_rest DROP CONSTRAINT IF EXISTS rest_promise; "
                        "ALTER TABLE outbox_attempts_rest DROP CONSTRAINT IF EXISTS rest_promise");
    database_run(owner, "UPDATE retentions SET kept = least");
    set_clock("0 s", "1 h", "0 s");
}

static void tear_down(void)
{
    pg_sync_closep(&other);
    pg_sync_closep(&worker);
    pg_sync_closep(&owner);
}

/* ---- one pass ---------------------------------------------------------------------------------------------------------------- */

struct retention {
    int64_t keys_ms, limits_ms, events_ms;
};

static const struct retention usual = {.keys_ms = DAY_MS, .limits_ms = DAY_MS, .events_ms = 90 * DAY_MS};

/* What a pass did, "action table amount; ...", all its calls; valid until the next one. */
static const char *pass_of(struct pg_sync *db, const struct retention *retention, bool *ret_again)
{
    static const struct sql_statement *const calls[] = {&sql_keep_rows, &sql_keep_house, &sql_check_rest};
    static char text[1000];
    struct pg_param params[] = {pg_param_int8(retention->keys_ms), pg_param_int8(retention->limits_ms),
                                pg_param_int8(retention->events_ms), pg_param_int8(HOUR_MS)};
    size_t length = 0;
    text[0] = '\0';
    *ret_again = false;
    for (size_t call = 0; call < ARRAY_SIZE(calls); call++) {
        struct pg_rows *rows = database_ask(db, calls[call], params);
        for (int i = 0; i < pg_rows_count(rows); i++) {
            const char *table = pg_bytes(rows, i, 1).bytes;
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s %s %lld", length ? "; " : "",
                                       pg_bytes(rows, i, 0).bytes, table ? table : "-", (long long)pg_int8(rows, i, 2));
            ck_assert_uint_lt(length, sizeof text);
            *ret_again |= pg_bool(rows, i, 4);
        }
        pg_rows_free(rows);
    }
    return text;
}

static const char *pass(void)
{
    bool again;
    return pass_of(worker, &usual, &again);
}

/* Passes until there is no more to do; returns how many had something. */
static int passes(const struct retention *retention)
{
    bool again = true;
    int count = 0;
    while (again) {
        (void)pass_of(worker, retention, &again);
        count += again;
        ck_assert_int_lt(count, 1000);
    }
    return count;
}

static void expect_pass(const char *wanted)
{
    const char *done = pass();
    ck_assert_msg(strcmp(done, wanted) == 0, "the pass did \"%s\", not \"%s\"", done, wanted);
}

/* ---- the past ---------------------------------------------------------------------------------------------------------------- */

static void add_partition(const char *parent, int from_days_ago, int to_days_ago)
{
    database_exec(owner,
                  "SELECT issuing.partition_add('%s', date_trunc('day', now()) - interval '%d days', date_trunc('day', "
                  "now()) - interval '%d days')",
                  parent, from_days_ago, to_days_ago);
}

/* Of every partition whose time is over. */
static void settle(const char *ago)
{
    database_exec(owner, "UPDATE partitions SET settled_at = now() - interval '%s' WHERE to_at < now()", ago);
}

static const char *text_of(const struct uuid *uuid)
{
    static char texts[8][UUID_TEXT_SIZE];
    static int next;
    char *text = texts[next++ % 8];
    uuid_format(uuid, text);
    return text;
}

/* Accepted that many days ago under the key `user`, in its status for that long, with one attempt. */
static struct uuid add_event(const char *user, int days_ago, const char *status, const char *ended_ago)
{
    struct pg_rows *rows = NULL;
    char text[300];
    snprintf(text, sizeof text,
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

/* What the key of that user says to a new request with the same body. */
static char *verdict_of(const char *user)
{
    char text[500];
    snprintf(text, sizeof text,
             "SELECT verdict FROM issuing.accept(ARRAY[gen_random_uuid()], ARRAY['%s'], ARRAY['%s'], "
             "ARRAY[sha256('{\"kind\": \"new\"}')], ARRAY['{\"kind\": \"new\"}'], ARRAY[NULL], 1000000, '1 h', false, "
             "'1 day')",
             user, user);
    return database_text(owner, text);
}

static void expect_verdict(const char *user, const char *wanted)
{
    char *verdict = verdict_of(user);
    ck_assert_msg(strcmp(verdict, wanted) == 0, "%s: %s, not %s", user, verdict, wanted);
    free(verdict);
}

static void expect_text(const char *query, const char *wanted)
{
    char *text = database_text(owner, query);
    ck_assert_msg(strcmp(text ? text : "", wanted) == 0, "%s: \"%s\", not \"%s\"", query, text ? text : "", wanted);
    free(text);
}

static int64_t partition_count(const char *parent)
{
    return database_int(owner, "SELECT count(*) FROM partitions WHERE parent = '%s'", parent);
}

/* The list and what is there are the same, and no table lies about. */
static void expect_list_is_true(void)
{
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM partitions p FULL JOIN ("
                            "SELECT c.relname, i.inhparent::regclass::text AS parent FROM pg_class c "
                            "LEFT JOIN pg_inherits i ON i.inhrelid = c.oid "
                            "WHERE c.relkind = 'r' AND c.relname ~ '^(outbox_events|outbox_attempts|idempotency_keys|"
                            "rate_limit_log)_[0-9]{8}_') t ON t.relname = p.name AND t.parent = p.parent "
                            "WHERE t.relname IS NULL OR p.name IS NULL"),
        0);
}

/* ---- made ahead -------------------------------------------------------------------------------------------------------------- */

/* Partitions of one table whose end is not the beginning of the next, as the catalogue has them. */
static int64_t gaps(void)
{
    return database_int(
        owner, "SELECT count(*) FROM (SELECT p.parent, lead(p.name) OVER w AS next, "
               "substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \\((.*)\\)') AS until, "
               "lead(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'FROM \\((.*)\\) TO')) OVER w AS next_from "
               "FROM partitions p JOIN pg_class c ON c.relname = p.name WINDOW w AS (PARTITION BY p.parent ORDER BY "
               "p.from_at)) g "
               "WHERE next IS NOT NULL AND until IS DISTINCT FROM next_from");
}

START_TEST(partitions_are_made_ahead_and_without_a_gap)
{
    bool again;
    struct retention longer = usual;
    ck_assert_str_eq(pass_of(worker, &usual, &again), "created outbox_events 0");
    ck_assert(again);
    ck_assert_int_eq(passes(&usual), 2); /* one partition a pass */
    expect_pass("");
    ck_assert_int_eq(partition_count("outbox_events"), 1);
    ck_assert_int_eq(partition_count("outbox_attempts"), 1);
    ck_assert_int_eq(partition_count("idempotency_keys"), 1);
    ck_assert_int_eq(partition_count("rate_limit_log"), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE to_at < now() + CASE WHEN parent LIKE "
                                         "'outbox%%' THEN interval '15 days' ELSE interval '1 day' END"),
                     0);
    for (int i = 1; i <= 3; i++) { /* the ends come too near: here because more is wanted ahead */
        longer.keys_ms *= 3;
        longer.limits_ms *= 3;
        longer.events_ms *= 3;
        ck_assert_int_eq(passes(&longer), 3);
        ck_assert_int_eq(partition_count("outbox_events"), 1 + i);
    }
    ck_assert_int_eq(passes(&longer), 0);
    ck_assert_int_eq(gaps(), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions"), 16);
    expect_list_is_true();
}
END_TEST

START_TEST(two_workers_never_make_the_same_partition)
{
    bool again;
    database_run(other, "BEGIN");
    ck_assert_str_eq(pass_of(other, &usual, &again), "created outbox_events 0");
    ck_assert_str_eq(pass_of(worker, &usual, &again), "busy - 0; busy - 0");
    ck_assert(!again);
    database_run(other, "ROLLBACK"); /* it died */
    expect_pass("created outbox_events 0");
    database_run(other, "BEGIN");
    ck_assert_str_eq(pass_of(other, &usual, &again), "created idempotency_keys 0");
    ck_assert_str_eq(pass_of(worker, &usual, &again), "busy - 0; busy - 0");
    database_run(other, "COMMIT");
    expect_pass("created rate_limit_log 0");
    expect_pass("");
    expect_list_is_true();
}
END_TEST

START_TEST(after_a_long_pause_what_was_written_meanwhile_is_not_in_the_way)
{
    (void)add_event("of-now", 0, "PENDING", "0 s");
    (void)add_event("of-yesterday", 1, "COMPLETED", "1 h");
    database_run(owner, "INSERT INTO rate_limit_log VALUES (now(), gen_random_uuid(), true, 'of-now')");
    ck_assert_int_eq(passes(&usual), 3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE from_at < now()"), 0);
    expect_list_is_true();
    expect_text("SELECT string_agg(user_id, ' ' ORDER BY user_id) FROM outbox_events_rest", "of-now of-yesterday");
    expect_verdict("of-now", "replayed");
    expect_verdict("of-yesterday", "replayed");
    expect_verdict("somebody-new", "accepted");
}
END_TEST

/* ---- settled, dropped -------------------------------------------------------------------------------------------------------- */

static int64_t settled(const char *parent)
{
    return database_int(owner, "SELECT count(*) FROM partitions WHERE parent = '%s' AND settled_at IS NOT NULL",
                        parent);
}

START_TEST(an_id_of_another_kind_is_cut_around)
{
    /* Three ids of times to come, two of them close together, are where only `_rest` has room for them. */
    database_run(owner, "INSERT INTO outbox_events (id, user_id, payload) "
                        "SELECT issuing.uuid7_least(now() + d), 'v4', '{}' FROM unnest(ARRAY[interval '5 days', "
                        "'5 days 10 minutes', '9 days']) AS d");
    (void)passes(&usual);
    ck_assert_int_ge(database_int(owner, "SELECT count(*) FROM partitions WHERE parent = 'outbox_events'"), 3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions p JOIN outbox_events_rest e "
                                         "ON p.parent = 'outbox_events' AND issuing.uuid7_time(e.id) >= p.from_at "
                                         "AND issuing.uuid7_time(e.id) < p.to_at"),
                     0);
    ck_assert_int_eq(database_int(owner, "SELECT max(to_at) >= now() + interval '15 days' FROM partitions "
                                         "WHERE parent = 'outbox_events'"),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'v4'"), 3);
}
END_TEST

START_TEST(an_event_without_a_key_or_of_another_time_does_not_keep_keys)
{
    add_partition("idempotency_keys", 9, 8);
    add_partition("idempotency_keys", 8, 7);
    /* Another service's, for ever not yet due; and an open one with a key, of the younger partition's time. */
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, next_attempt_at, created_at) "
                        "VALUES ('service', '{}', now() + interval '100 years', date_trunc('day', now()) - interval '8 "
                        "days 12 hours')");
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, idempotency_key, created_at) "
                        "VALUES ('alice', '{}', 'k', date_trunc('day', now()) - interval '7 days 12 hours')");
    (void)passes(&usual);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE parent = 'idempotency_keys' "
                                         "AND settled_at IS NOT NULL AND to_at < now() - interval '7 days 12 hours'"),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE parent = 'idempotency_keys' "
                                         "AND settled_at IS NULL AND to_at < now()"),
                     1);
}
END_TEST

START_TEST(a_partition_is_dropped_when_it_is_settled_and_its_retention_is_over)
{
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("rate_limit_log", 9, 8);
    database_run(owner, "INSERT INTO rate_limit_log SELECT date_trunc('day', now()) - interval '8 days 1 h', "
                        "gen_random_uuid(), true, 'old' "
                        "FROM generate_series(1, 7)");
    expect_pass(""); /* settled from now on, however long ago its time was */
    ck_assert_int_eq(settled("rate_limit_log"), 1);
    settle("23 h 50 min");
    expect_pass("");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM rate_limit_log"), 7);
    settle("24 h 10 min");
    expect_pass("dropped rate_limit_log 0");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM rate_limit_log"), 0);
    ck_assert_int_eq(partition_count("rate_limit_log"), 1);
    expect_list_is_true();
}
END_TEST

START_TEST(nothing_is_settled_while_something_of_its_time_is_unfinished)
{
    static const char *const unfinished[] = {
        "status = 'PENDING', lease_token = NULL, lease_until = NULL, completed_at = NULL",
        "status = 'PROCESSING', lease_token = gen_random_uuid(), lease_until = now(), completed_at = NULL"};
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    (void)add_event("u", 115, "PENDING", "115 days");
    for (size_t i = 0; i < ARRAY_SIZE(unfinished); i++) {
        database_exec(owner, "UPDATE outbox_events SET %s", unfinished[i]);
        expect_pass("");
        ck_assert_int_eq(settled("outbox_events") + settled("idempotency_keys"), 0);
    }
    database_run(owner, "UPDATE outbox_events SET status = 'REJECTED', lease_token = NULL, lease_until = NULL");
    expect_pass("");
    ck_assert_int_eq(settled("outbox_events") + settled("idempotency_keys"), 2);
}
END_TEST

START_TEST(nothing_is_settled_before_what_was_begun_in_its_time_can_have_committed)
{
    ck_assert_int_eq(passes(&usual), 3);
    database_run(owner,
                 "SELECT issuing.partition_add('rate_limit_log', now() - interval '1 day', now() - interval '20 s')");
    expect_pass("");
    ck_assert_int_eq(settled("rate_limit_log"), 0);
    database_run(owner, "UPDATE partitions SET to_at = now() - interval '61 s' WHERE to_at < now()");
    expect_pass("");
    ck_assert_int_eq(settled("rate_limit_log"), 1);
}
END_TEST

START_TEST(what_is_open_survives_the_drop_whole_with_its_history_and_its_key)
{
    static const char *const statuses[] = {"PENDING", "PROCESSING", "FAILED", "COMPLETED", "REJECTED"};
    static const char whole[] =
        "SELECT string_agg(to_jsonb(e)::text, ' ' ORDER BY id) FROM outbox_events e WHERE status IN "
        "('PENDING', 'PROCESSING', 'FAILED')";
    struct uuid ids[ARRAY_SIZE(statuses)];
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
        ids[i] = add_event(statuses[i], 115, statuses[i], "114 days");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_rest"), 0);
    char *before = database_text(owner, whole);
    settle("91 days");
    expect_pass("dropped outbox_events 3");
    expect_pass("dropped idempotency_keys 3");
    expect_pass("");
    expect_text(whole, before);
    free(before);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events"), 3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_rest"), 3);
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE id = '%s'", text_of(&ids[i])),
                         i < 3);
        ck_assert_int_eq(
            database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s'", text_of(&ids[i])), i < 3);
        expect_verdict(statuses[i], i < 3 ? "replayed" : "accepted");
    }
    expect_list_is_true();
}
END_TEST

/* An open question that is asked again after its partition was settled ends later than everything else in there. */
START_TEST(an_open_question_that_ended_lately_is_kept_for_the_retention_of_its_own_end)
{
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    (void)add_event("ended-lately", 115, "FAILED", "114 days");
    (void)add_event("ended-long-ago", 115, "FAILED", "114 days");
    (void)add_event("completed", 115, "COMPLETED", "114 days");
    expect_pass(""); /* settled: FAILED keeps nobody waiting */
    ck_assert_int_eq(settled("outbox_events") + settled("idempotency_keys"), 2);
    settle("91 days");
    database_run(
        owner,
        "UPDATE outbox_events SET status = 'COMPLETED', updated_at = t, completed_at = t FROM (VALUES "
        "('ended-lately', now() - interval '23 h'), ('ended-long-ago', now() - interval '90 days 1 h')) v (u, t) "
        "WHERE user_id = u");
    expect_pass("dropped outbox_events 1");
    expect_pass("dropped idempotency_keys 1");
    expect_text("SELECT string_agg(user_id, ' ') FROM outbox_events", "ended-lately");
    expect_text("SELECT string_agg(user_id, ' ') FROM outbox_attempts", "ended-lately");
    expect_text("SELECT string_agg(user_id, ' ') FROM idempotency_keys", "ended-lately");
    expect_verdict("ended-lately", "replayed");
    /* From here on it is one of the rows that expire one by one. */
    expect_pass("");
    database_run(
        owner,
        "UPDATE outbox_events SET updated_at = t, completed_at = t FROM (SELECT now() - interval '25 h' AS t) v");
    expect_pass("expired idempotency_keys 1");
    expect_verdict("ended-lately", "accepted");
    database_run(owner, "UPDATE outbox_events SET updated_at = now() - interval '91 days' WHERE status = 'COMPLETED'");
    expect_pass("expired outbox_events 1");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts"), 0);
}
END_TEST

START_TEST(a_partition_with_too_much_that_must_stay_is_left_alone)
{
    bool again;
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 120, 110);
    database_run(
        owner,
        "INSERT INTO outbox_events (id, user_id, payload, status) SELECT (left(issuing.uuid7_least(now() - "
        "interval '115 days')::text, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid, 'many', '{}', 'FAILED' "
        "FROM generate_series(1, 10001)");
    ck_assert_str_eq(pass_of(worker, &usual, &again), "postponed outbox_events 0");
    ck_assert(!again);
    ck_assert_int_eq(settled("outbox_events"), 0);
    settle("91 days");
    ck_assert_str_eq(pass_of(worker, &usual, &again), "postponed outbox_events 0");
    ck_assert(!again);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events"), 10001);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_rest"), 0);
    expect_list_is_true();
    database_run(owner, "DELETE FROM outbox_events WHERE id = (SELECT min(id::text)::uuid FROM outbox_events)");
    expect_pass("dropped outbox_events 10000");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_rest"), 10000);
}
END_TEST

/* ---- one by one -------------------------------------------------------------------------------------------------------------- */

START_TEST(rows_that_are_in_no_partition_expire_a_thousand_a_pass)
{
    bool again;
    (void)add_event("failed", 200, "FAILED", "200 days");
    (void)add_event("pending", 200, "PENDING", "200 days");
    (void)add_event("completed-lately", 200, "COMPLETED", "1 h");
    ck_assert_int_eq(passes(&usual), 3);
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - n * interval '1 min', gen_random_uuid(), true, 'u' "
                        "FROM generate_series(1441, 1441 + 2200 - 1) n");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '23 h', gen_random_uuid(), true, 'u' FROM "
                        "generate_series(1, 5)");
    database_run(owner,
                 "INSERT INTO idempotency_keys SELECT gen_random_uuid(), now() - interval '25 h', 'u', n::text, '' "
                 "FROM generate_series(1, 1000) n");
    database_run(
        owner,
        "INSERT INTO outbox_events (id, user_id, payload, status, updated_at) SELECT ('00000000-0000-7000-8000-' || "
        "lpad(n::text, 12, '0'))::uuid, 'old', '{}', 'COMPLETED', now() - interval '91 days' FROM generate_series(1, "
        "1500) n");
    database_run(owner, "INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, "
                        "user_id, step, outcome) "
                        "SELECT id, gen_random_uuid(), now(), now(), 1, false, 'old', 'link', 'completed' FROM "
                        "outbox_events WHERE user_id = 'old'");
    ck_assert_str_eq(pass_of(worker, &usual, &again),
                     "expired idempotency_keys 1000; expired rate_limit_log 1000; expired outbox_events 1000");
    ck_assert(again);
    ck_assert_str_eq(pass_of(worker, &usual, &again), "expired rate_limit_log 1000; expired outbox_events 500");
    ck_assert(again);
    ck_assert_str_eq(pass_of(worker, &usual, &again), "expired rate_limit_log 200");
    ck_assert(!again);
    expect_pass("");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM rate_limit_log"), 5);
    expect_text("SELECT string_agg(user_id, ' ' ORDER BY user_id) FROM outbox_events",
                "completed-lately failed pending");
    expect_text("SELECT string_agg(user_id, ' ' ORDER BY user_id) FROM outbox_attempts",
                "completed-lately failed pending");
    expect_text("SELECT string_agg(user_id, ' ' ORDER BY user_id) FROM idempotency_keys",
                "completed-lately failed pending");
    expect_verdict("failed", "replayed");
    expect_verdict("pending", "replayed");
    expect_verdict("completed-lately", "replayed");
}
END_TEST

/* A pass looks through a bounded piece of a large `_rest`, and the next one goes on from there. */
START_TEST(a_large_rest_is_looked_through_in_pieces)
{
    ck_assert_int_eq(passes(&usual), 3);
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '1 min', gen_random_uuid(), true, "
                        "'somebody' FROM generate_series(1, 250000)");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '25 h', gen_random_uuid(), true, 'old'");
    ck_assert_int_gt(database_int(owner, "SELECT pg_relation_size('rate_limit_log_rest') / 8192"), 2048);
    expect_pass("");
    expect_pass("expired rate_limit_log 1");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '25 h', gen_random_uuid(), true, 'old'");
    database_run(owner, "DELETE FROM rate_limit_log WHERE user_id = 'somebody'");
    database_run(owner, "UPDATE rest_scans SET next_block = 1000000"); /* it has shrunk since */
    expect_pass("");
    expect_pass("expired rate_limit_log 1");
}
END_TEST

/* ---- somebody is in the way -------------------------------------------------------------------------------------------------- */

START_TEST(a_drop_that_would_have_to_wait_is_given_up_whole)
{
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    (void)add_event("failed", 115, "FAILED", "114 days");
    (void)add_event("completed", 115, "COMPLETED", "114 days");
    settle("91 days");
    static const char *const in_the_way[] = {
        "BEGIN; SELECT count(*) FROM outbox_events",
        "BEGIN; UPDATE outbox_events SET last_error = 'somebody works' WHERE user_id = 'failed'",
        "BEGIN; SELECT count(*) FROM outbox_attempts", /* only the second of the two tables is held */
    };
    for (size_t i = 0; i < ARRAY_SIZE(in_the_way); i++) {
        database_run(other, in_the_way[i]);
        expect_pass(i ? "postponed outbox_events 0" : "postponed outbox_events 0; dropped idempotency_keys 1");
        database_run(other, "ROLLBACK");
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events"), 2);
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts"), 2);
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_rest"), 0);
        ck_assert_int_eq(partition_count("outbox_events") + partition_count("outbox_attempts"), 4);
        expect_list_is_true();
    }
    expect_pass("dropped outbox_events 1");
    expect_list_is_true();
    expect_verdict("failed", "replayed");
}
END_TEST

START_TEST(a_partition_that_cannot_be_made_at_once_is_made_later)
{
    database_run(other, "BEGIN; SELECT count(*) FROM outbox_events");
    expect_pass("postponed outbox_events 0; created idempotency_keys 0");
    ck_assert_int_eq(partition_count("outbox_events") + partition_count("outbox_attempts"), 0);
    expect_list_is_true();
    database_run(other, "ROLLBACK");
    expect_pass("created outbox_events 0");
    expect_list_is_true();
}
END_TEST

START_TEST(a_pass_in_an_old_snapshot_is_refused)
{
    struct err err = {.kind = ERR_NONE};
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 120, 110);
    settle("91 days");
    database_run(worker, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    (void)add_event("late", 115, "PENDING", "0 s"); /* that snapshot does not see it, and the drop would not ask */
    ck_assert(!pg_sync_exec(worker, "SELECT issuing.keep_house('1 day', '1 day', '90 days', '1 h')", &err));
    ck_assert_str_eq(pg_sync_sqlstate(worker), "25001");
    database_run(worker, "ROLLBACK");
    expect_pass("dropped outbox_events 1");
    expect_verdict("late", "replayed");
}
END_TEST

/* ---- one thing does not stop the others -------------------------------------------------------------------------------------- */

/* A reissue of that user's card in a partition of the past, and the place that it has. */
static struct uuid add_reissue(const char *user, const char *status)
{
    struct uuid id = add_event(user, 115, "FAILED", "114 days");
    database_exec(owner,
                  "UPDATE outbox_events SET payload = '{\"kind\":\"reissue\",\"replaces\":\"c-%s\"}', status = '%s' "
                  "WHERE id = '%s'",
                  user, status, text_of(&id));
    database_exec(owner,
                  "INSERT INTO card_reissues (event_id, user_id, card_id) VALUES ('%s', '%s', 'c-%s') ON CONFLICT "
                  "(user_id, card_id) DO UPDATE SET event_id = excluded.event_id",
                  text_of(&id), user, user);
    return id;
}

/* A reissue FAILED when its partition was settled; it was replayed later and REJECTED, or its payload cannot be used; the user asked again with
 * success, so the place of the card is the next one's. Others are COMPLETED and FAILED, in their own places. When the partition goes, all move,
 * nobody's place changes, and the tables that come after are not held up. */
START_TEST(a_reissue_that_moves_needs_no_place_and_takes_none)
{
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    (void)add_reissue("rejected", "FAILED");
    (void)add_reissue("unusable", "FAILED");
    (void)add_reissue("completed", "FAILED");
    (void)add_reissue("failed", "FAILED");
    expect_pass("");
    ck_assert_int_eq(settled("outbox_events"), 1);
    settle("91 days");
    database_run(
        owner, "UPDATE outbox_events SET status = 'REJECTED', updated_at = now(), completed_at = now() WHERE user_id "
               "= 'rejected'; "
               "UPDATE outbox_events SET status = 'COMPLETED', updated_at = now(), completed_at = now() WHERE user_id "
               "= 'completed'; "
               "UPDATE outbox_events SET reason_code = 'payload_invalid' WHERE user_id = 'unusable'; "
               "INSERT INTO outbox_events (user_id, payload) SELECT u, ('{\"kind\":\"reissue\",\"replaces\":\"c-' || u "
               "|| '\"}')::jsonb FROM unnest(ARRAY['rejected', 'unusable']) AS u");
    char *before =
        database_text(owner, "SELECT string_agg(user_id || event_id, ' ' ORDER BY user_id) FROM card_reissues");
    expect_pass("dropped outbox_events 4");
    expect_pass("dropped idempotency_keys 4");
    expect_pass("");
    char *after =
        database_text(owner, "SELECT string_agg(user_id || event_id, ' ' ORDER BY user_id) FROM card_reissues");
    ck_assert_str_eq(after, before);
    free(before);
    free(after);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'rejected'"), 2);
    struct err err = {.kind = ERR_NONE}; /* and what is inserted afterwards is judged again */
    ck_assert(!pg_sync_exec(owner,
                            "INSERT INTO outbox_events (user_id, payload) VALUES ('failed', "
                            "'{\"kind\":\"reissue\",\"replaces\":\"c-failed\"}')",
                            &err));
    ck_assert_str_eq(pg_sync_sqlstate(owner), "23505");
}
END_TEST

START_TEST(what_cannot_be_done_is_told_and_everything_else_is_done)
{
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 120, 110);
    add_partition("outbox_events", 110, 100);
    add_partition("rate_limit_log", 9, 8);
    /* The oldest partition is in the list and cannot be read or dropped; rows of one `_rest` cannot be deleted. */
    database_run(owner,
                 "UPDATE partitions SET name = 'gone_' || name WHERE parent = 'outbox_events' AND from_at < now() - "
                 "interval '115 days'");
    database_run(owner, "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$; "
                        "CREATE TRIGGER broken BEFORE DELETE ON idempotency_keys_rest FOR EACH ROW EXECUTE FUNCTION "
                        "broken()");
    database_run(owner, "INSERT INTO idempotency_keys SELECT gen_random_uuid(), now() - interval '25 h', 'u', 'k', ''");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '25 h', gen_random_uuid(), true, 'u'");
    expect_pass("failed idempotency_keys 0; expired rate_limit_log 1; failed outbox_events 0");
    ck_assert_int_eq(settled("outbox_events"), 1);
    ck_assert_int_eq(settled("rate_limit_log"), 1);
    settle("91 days");
    expect_pass("failed idempotency_keys 0; failed outbox_events 0; dropped outbox_events 0");
    expect_pass("failed idempotency_keys 0; failed outbox_events 0; dropped rate_limit_log 0");
    database_run(owner, "DROP TRIGGER broken ON idempotency_keys_rest; DROP FUNCTION broken(); "
                        "UPDATE partitions SET name = substr(name, 6) WHERE name LIKE 'gone%'");
}
END_TEST

static int64_t rest_reads(void)
{
    return database_int(worker, "SELECT pg_stat_get_xact_numscans('outbox_events_rest'::regclass) + "
                                "pg_stat_get_xact_numscans('outbox_attempts_rest'::regclass)");
}

/* How often that call reads all of a `_rest` of events. The transaction stays open: only within it are the counts kept. */
static int64_t whole_reads(const struct sql_statement *call)
{
    struct pg_param params[] = {pg_param_int8(usual.keys_ms), pg_param_int8(usual.limits_ms),
                                pg_param_int8(usual.events_ms), pg_param_int8(HOUR_MS)};
    database_run(worker, "BEGIN");
    int64_t before = rest_reads();
    pg_rows_free(database_ask(worker, call, params));
    return rest_reads() - before;
}

/* A service with ids of its own filled `_rest`. A partition that is made beside it is announced, then `_rest` is checked under a lock that
 * nobody waits for, and the ATTACH, which holds the lock that everybody waits for, reads nothing. */
START_TEST(a_large_rest_is_not_read_under_the_lock_that_all_wait_for)
{
    bool again;
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, status, id) SELECT 'v4', '{}', 'COMPLETED', "
                        "('f' || substr(gen_random_uuid()::text, 2))::uuid FROM generate_series(1, 100000)");
    ck_assert_int_gt(database_int(owner, "SELECT pg_relation_size('outbox_events_rest') / 1024"), 8192);
    ck_assert_int_eq(whole_reads(&sql_keep_house), 0);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(partition_count("outbox_events"), 0);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM partition_plans WHERE from_at > now() + interval '14 min'"), 1);
    (void)add_event("meanwhile", 0, "PENDING", "0 s"); /* what is written now is not in its range */
    ck_assert_int_eq(whole_reads(&sql_check_rest), 2);
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM pg_locks WHERE relation = 'outbox_events_rest'::regclass "
                                  "AND mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', "
                                  "'ShareLock')"),
                     0);
    database_run(other, "BEGIN; SELECT count(*) FROM outbox_events; UPDATE outbox_events SET last_error = 'x' WHERE "
                        "user_id = 'meanwhile'; ROLLBACK"); /* beside the check */
    database_run(worker, "COMMIT");
    ck_assert_int_eq(whole_reads(&sql_keep_house), 0);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(partition_count("outbox_events"), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM pg_constraint WHERE conname = 'rest_promise'"), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partition_plans"), 0);
    ck_assert_str_eq(pass_of(worker, &usual, &again), "created idempotency_keys 0");
    expect_list_is_true();
}
END_TEST

/* A plan that nobody brings to its end would refuse rows when its time comes. */
START_TEST(a_plan_that_is_not_done_in_time_is_taken_back)
{
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, status, id) SELECT 'v4', '{}', 'COMPLETED', "
                        "('f' || substr(gen_random_uuid()::text, 2))::uuid FROM generate_series(1, 100000)");
    static const char *const late[] = {"planned_at = planned_at - interval '11 min'",
                                       "from_at = now() + interval '1 min'", "planned_at = now() + interval '1 h'"};
    for (size_t i = 0; i < ARRAY_SIZE(late); i++) {
        struct pg_param params[] = {pg_param_int8(usual.keys_ms), pg_param_int8(usual.limits_ms),
                                    pg_param_int8(usual.events_ms), pg_param_int8(HOUR_MS)};
        pg_rows_free(database_ask(worker, &sql_keep_house, params));
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM pg_constraint WHERE conname = 'rest_promise'"), 2);
        database_exec(owner, "UPDATE partition_plans SET %s", late[i]);
        database_run(other,
                     "BEGIN; SELECT count(*) FROM outbox_events"); /* it can be taken back, but nothing planned */
        database_run(other, "COMMIT");
        struct pg_rows *rows = database_ask(worker, &sql_keep_house, params);
        ck_assert_str_eq(pg_bytes(rows, 0, 0).bytes, "failed");
        pg_rows_free(rows);
        ck_assert_int_eq(
            database_int(owner, "SELECT count(*) FROM partition_plans WHERE planned_at > now() - interval '1 min' AND "
                                "planned_at <= now() AND from_at > now() + interval '2 min'"),
            1); /* and is planned anew */
        database_run(owner, "DELETE FROM partition_plans; ALTER TABLE outbox_events_rest DROP CONSTRAINT rest_promise; "
                            "ALTER TABLE outbox_attempts_rest DROP CONSTRAINT rest_promise");
    }
}
END_TEST

/* A row of the range that came between the choice and the constraint: the check says so, the plan ends, and the next one goes around it. */
START_TEST(a_row_in_the_way_of_a_plan_is_gone_around)
{
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, status, id) SELECT 'v4', '{}', 'COMPLETED', "
                        "('f' || substr(gen_random_uuid()::text, 2))::uuid FROM generate_series(1, 100000)");
    struct pg_param params[] = {pg_param_int8(usual.keys_ms), pg_param_int8(usual.limits_ms),
                                pg_param_int8(usual.events_ms), pg_param_int8(HOUR_MS)};
    pg_rows_free(database_ask(worker, &sql_keep_house, params));
    database_run(owner,
                 "ALTER TABLE outbox_events_rest DROP CONSTRAINT rest_promise; INSERT INTO outbox_events (user_id, "
                 "payload, id) VALUES ('v4', '{}', issuing.uuid7_least(now() + interval '5 days')); "
                 "SELECT issuing.rest_promise('outbox_events_rest', from_at, to_at) FROM partition_plans");
    struct pg_rows *rows = database_ask(worker, &sql_check_rest, NULL);
    ck_assert_str_eq(pg_bytes(rows, 0, 0).bytes, "failed");
    pg_rows_free(rows);
    ck_assert_int_ge(passes(&usual), 4);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partition_plans"), 0);
    ck_assert_int_ge(partition_count("outbox_events"), 2);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM pg_constraint WHERE conname = 'rest_promise'"), 0);
}
END_TEST

/* With no standby there, a commit that waited for it would hold the lock on outbox_events, and all who claim and read. */
START_TEST(a_commit_of_the_housekeeping_does_not_wait_for_standbys)
{
    static const char *const calls[] = {"SELECT issuing.keep_rows('1 d', '1 d', '90 d')",
                                        "SELECT issuing.keep_house('1 d', '1 d', '90 d', '1 h')"};
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        database_exec(worker, "BEGIN; %s", calls[i]);
        char *commits = database_text(worker, "SELECT current_setting('synchronous_commit')");
        ck_assert_str_eq(commits, "local");
        free(commits);
        database_run(worker, "COMMIT");
    }
}
END_TEST

/* ---- clocks that step -------------------------------------------------------------------------------------------------------- */

/* The database's clock jumps ahead by a year, for a moment or for hours: what is over by it alone does not go, nothing becomes settled, and no
 * partition of next year is made. */
START_TEST(a_clock_that_jumps_ahead_drops_and_makes_nothing)
{
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 420, 410);
    add_partition("idempotency_keys", 420, 410);
    settle("365 days 1 min"); /* all that was settled just before the jump */
    add_partition("outbox_events", 400, 390);
    /* Partitions end a year before what the clock says. */
    database_run(owner,
                 "DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM partitions WHERE to_at > now() LOOP EXECUTE "
                 "format('DROP TABLE %I', p); DELETE FROM partitions WHERE name = p; END LOOP; END $$");
    add_partition("outbox_events", 366, 305);
    add_partition("rate_limit_log", 366, 364);
    database_run(owner,
                 "SELECT issuing.partition_add('idempotency_keys', now() - interval '365 days 1 h', now() - interval "
                 "'364 days'); INSERT INTO idempotency_keys SELECT gen_random_uuid(), now() - interval '365 days "
                 "2 h', 'u', 'k', ''");
    int64_t before = database_int(owner, "SELECT count(*) FROM partitions");
    set_clock("365 days", "400 days", "365 days");
    for (int i = 0; i < 3; i++) { /* the pass of the jump, and more of them */
        expect_pass("");
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions"), before);
    }
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM idempotency_keys_rest"), 1);
    /* Three hours of passes: that much, and no more, has passed. */
    database_run(owner,
                 "UPDATE house_clock SET believed_at = believed_at + interval '3 h', steady_from = now() - interval "
                 "'3 h'");
    bool again = true;
    while (again)
        ck_assert_ptr_null(strstr(pass_of(worker, &usual, &again), "dropped"));
    /* A day of it: then that is the time. */
    database_run(owner, "UPDATE house_clock SET steady_from = now() - interval '25 h'");
    ck_assert_int_gt(passes(&usual), 2);
    ck_assert_int_eq(partition_count("idempotency_keys"),
                     2); /* the one whose retention was never counted, and a new one */
}
END_TEST

START_TEST(a_clock_that_was_ahead_leaves_nothing_that_is_in_the_way)
{
    ck_assert_int_eq(passes(&usual), 3);
    /* It was a year ahead for long enough: partitions of next year, one that was settled then, and a pass of then. */
    for (int i = 0; i < 3; i++)
        add_partition(i == 0 ? "outbox_events" : i == 1 ? "idempotency_keys" : "rate_limit_log", -365, -375);
    add_partition("rate_limit_log", 9, 8);
    database_run(owner, "UPDATE partitions SET settled_at = now() + interval '365 days' WHERE to_at < now()");
    set_clock("-365 days", "-364 days", "-365 days");
    expect_pass("");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE settled_at <= now()"), 1);
    settle("25 h");
    expect_pass("dropped rate_limit_log 0"); /* its retention is counted from when it was settled anew */
    /* What comes next is made as ever, up to those of next year. */
    database_run(owner,
                 "DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM partitions WHERE from_at < now() + interval "
                 "'100 days' LOOP EXECUTE format('DROP TABLE %I', p); DELETE FROM partitions WHERE name = p; END "
                 "LOOP; END $$");
    expect_pass(""); /* not before passes over five minutes agree what the time is */
    set_clock("0 s", "6 min", "0 s");
    ck_assert_int_eq(passes(&usual), 3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE from_at < now() + interval '2 min'"),
                     4);
    expect_list_is_true();
}
END_TEST

START_TEST(the_clock_of_the_house_moves_by_passes_only)
{
    static const char believed[] = "SELECT round(extract(epoch FROM now() - believed_at) / 3600)::int FROM house_clock";
    static const struct {
        const char *passed_ago, *steady_for, *believed_ago;
        int hours_behind;
    } cases[] = {
        {"30 s", "1 h", "30 s", 0},     {"10 h", "20 h", "10 h", 10}, /* a step, or a pause */
        {"30 s", "1 h", "10 h", 10},    {"30 s", "25 h", "10 h", 0},  /* a day without a step */
        {"-10 h", "1 h", "-10 h", -10}, {"-1 s", "1 h", "0 s", 0},
    };
    database_run(owner, "UPDATE house_clock SET passed_at = NULL, steady_from = NULL, believed_at = NULL");
    ck_assert_int_eq(database_int(owner, "SELECT issuing.believed('2001-01-01') = '2001-01-01'"), 1);
    (void)pass(); /* the first one of an installation */
    ck_assert_int_eq(database_int(owner, "%s", believed), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        set_clock(cases[i].passed_ago, cases[i].steady_for, cases[i].believed_ago);
        (void)pass();
        ck_assert_int_eq(database_int(owner, "%s", believed), cases[i].hours_behind);
        ck_assert_int_eq(database_int(owner, "SELECT issuing.believed(now()) <= now()"), 1);
        ck_assert_int_eq(database_int(owner, "SELECT now() - passed_at < interval '1 min' FROM house_clock"), 1);
    }
}
END_TEST

/* ---- whose retentions --------------------------------------------------------------------------------------------------------- */

/* A worker that was started with another file, or that somebody else drives. */
START_TEST(a_worker_lengthens_a_retention_and_shortens_none)
{
    static const struct retention negative = {.keys_ms = -DAY_MS, .limits_ms = -DAY_MS, .events_ms = -DAY_MS},
                                  little = {.keys_ms = 1000, .limits_ms = 1000, .events_ms = 1000};
    bool again;
    ck_assert_int_eq(passes(&usual), 3);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    add_partition("rate_limit_log", 120, 110);
    (void)add_event("u", 115, "COMPLETED", "115 days");
    (void)add_event("of-today", 0, "COMPLETED", "0 s");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '23 h', gen_random_uuid(), true, 'u'");
    settle("23 h");
    ck_assert_str_eq(pass_of(worker, &negative, &again), "");
    ck_assert_str_eq(pass_of(worker, &little, &again), "");
    database_run(worker, "SELECT issuing.keep_house('-1 d', '-1 d', '-1 d', '1 h')");
    database_run(worker, "SELECT issuing.keep_rows('-1 d', NULL, '-1 d')");
    ck_assert_int_eq(
        partition_count("outbox_events") + partition_count("idempotency_keys") + partition_count("rate_limit_log"), 6);
    expect_verdict("of-today", "replayed");
    expect_text(
        "SELECT string_agg(name || ' ' || extract(epoch FROM kept)::int8 / 3600, ', ' ORDER BY name) FROM retentions",
        "events 2160, keys 24, limits 24");
    /* Only the owner shortens, and not below the least. */
    struct err err = {.kind = ERR_NONE};
    ck_assert(!pg_sync_exec(owner, "SELECT issuing.set_retention('keys', '59 min')", &err));
    ck_assert_str_eq(pg_sync_sqlstate(owner), "23514");
    database_run(owner, "SELECT issuing.set_retention('keys', '2 h'), issuing.set_retention('limits', '2 h')");
    ck_assert_str_eq(pass_of(worker, &little, &again), "expired rate_limit_log 1; dropped idempotency_keys 0");
    ck_assert_str_eq(pass_of(worker, &little, &again), "dropped rate_limit_log 0");
}
END_TEST

/* Where anybody may create in `public`, somebody makes an operator that fits `interval / integer` better than what PostgreSQL has, and waits for
 * the owner's functions to run it. */
START_TEST(an_operator_that_somebody_puts_into_public_is_never_run)
{
    struct pg_sync *super = database_open(NULL), *api = database_open("issuing_api");
    database_run(super, "GRANT CREATE, USAGE ON SCHEMA public TO PUBLIC");
    static const char *const types[][2] = {{"interval", "integer"}, {"interval", "bigint"}, {"bigint", "interval"},
                                           {"integer", "interval"}, {"numeric", "integer"}, {"timestamptz", "text"},
                                           {"integer", "numeric"},  {"interval", "numeric"}};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        database_exec(
            api,
            "CREATE FUNCTION public.evil(%s, %s) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN RAISE 'run as %%', "
            "current_user; END $$",
            types[i][0], types[i][1]);
        database_exec(api, "CREATE OPERATOR public./ (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.evil)",
                      types[i][0], types[i][1]);
        database_exec(api, "CREATE OPERATOR public.* (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.evil)",
                      types[i][0], types[i][1]);
    }
    database_run(worker, "SET search_path = public, pg_catalog, issuing");
    for (int i = 0; i < 4; i++)
        database_run(worker,
                     "SELECT issuing.keep_rows('1 d', '1 d', '90 d'); SELECT issuing.keep_house('1 d', '1 d', '90 "
                     "d', '1 h'); SELECT issuing.check_rest()");
    ck_assert_int_eq(partition_count("outbox_events"), 1);
    database_run(super, "DROP FUNCTION public.evil(interval, integer), public.evil(interval, bigint), "
                        "public.evil(bigint, interval), public.evil(integer, interval), public.evil(numeric, integer), "
                        "public.evil(timestamptz, text), public.evil(integer, numeric), public.evil(interval, numeric) "
                        "CASCADE; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    pg_sync_close(api);
    pg_sync_close(super);
}
END_TEST

/* ---- meanwhile --------------------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 8 };

struct busy {
    pthread_t thread;
    struct pg_sync *db;
    const char *text;
    volatile bool *is_over;
    int runs;
    char sqlstate[6];
};

static void *keep_busy(void *context)
{
    struct busy *busy = context;
    struct err err;
    while (!*busy->is_over && !busy->sqlstate[0]) {
        if (!pg_sync_exec(busy->db, busy->text, &err))
            snprintf(busy->sqlstate, sizeof busy->sqlstate, "%s", pg_sync_sqlstate(busy->db));
        busy->runs++;
    }
    return NULL;
}

/* Requests are accepted, claimed and finished while partitions come and go: nobody fails, nothing is lost, nothing happens twice. */
START_TEST(who_accepts_and_who_works_does_not_notice)
{
    volatile bool is_over = false;
    static const char accepting[] =
        "SELECT issuing.accept(ARRAY[issuing.uuid7()], ARRAY['busy'], ARRAY[gen_random_uuid()::text], "
        "ARRAY['f'::bytea], ARRAY['{\"kind\":\"new\"}'], ARRAY[NULL], 1000000, '1 h', false, '1 day')";
    static const char working[] =
        "WITH claimed AS MATERIALIZED (SELECT id FROM issuing.claim('00000000-0000-4000-8000-000000000001', 50, 60000, "
        "'w', NULL, 100, false) "
        "WHERE id IS NOT NULL) SELECT 1 FROM claimed; "
        "SELECT issuing.complete(ARRAY(SELECT id FROM outbox_events WHERE status = 'PROCESSING' AND due_at IS NOT "
        "NULL), "
        "(SELECT array_agg(lease_token) FROM outbox_events WHERE status = 'PROCESSING' AND due_at IS NOT NULL), 'w', "
        "ARRAY(SELECT 1::int8 FROM outbox_events WHERE status = 'PROCESSING' AND due_at IS NOT NULL))";
    struct busy busy[] = {{.db = database_open("issuing_api"), .text = accepting},
                          {.db = database_open("issuing_api"), .text = accepting},
                          {.db = database_open("issuing_worker"), .text = working}};
    struct retention longer = usual;
    int created = 0, dropped = 0;
    ck_assert_int_eq(passes(&usual), 3);
    longer.events_ms *= 3;
    for (int i = 0; i < ROUNDS; i++) {
        add_partition("outbox_events", 200 + 10 * i, 190 + 10 * i);
        add_partition("idempotency_keys", 200 + 10 * i, 190 + 10 * i);
        (void)add_event("open", 195 + 10 * i, "FAILED", "1 h");
    }
    settle("1000000 days");
    for (size_t i = 0; i < ARRAY_SIZE(busy); i++) {
        busy[i].is_over = &is_over;
        ck_assert_int_eq(pthread_create(&busy[i].thread, NULL, keep_busy, &busy[i]), 0);
    }
    for (int i = 0; i < 2000 && (created < ROUNDS || dropped < 2 * ROUNDS); i++) {
        bool again;
        const char *done = pass_of(worker, &longer, &again);
        created += strstr(done, "created outbox_events") != NULL;
        dropped += strstr(done, "dropped") != NULL;
        if (strstr(done, "created outbox_events") && created < ROUNDS)
            longer.events_ms *= 3;
    }
    is_over = true;
    for (size_t i = 0; i < ARRAY_SIZE(busy); i++) {
        ck_assert_int_eq(pthread_join(busy[i].thread, NULL), 0);
        pg_sync_close(busy[i].db);
    }
    for (size_t i = 0; i < ARRAY_SIZE(busy); i++) {
        ck_assert_msg(!busy[i].sqlstate[0], "SQLSTATE %s after %d runs: %s", busy[i].sqlstate, busy[i].runs,
                      busy[i].text);
        ck_assert_int_gt(busy[i].runs, 0);
    }
    ck_assert_int_eq(created, ROUNDS);
    ck_assert_int_eq(dropped, 2 * ROUNDS);
    expect_list_is_true();
    ck_assert_int_eq(gaps(), 0);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'open' AND status = 'FAILED'"), ROUNDS);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM idempotency_keys WHERE user_id = 'open'"), ROUNDS);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'busy'"),
                     busy[0].runs + busy[1].runs);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM idempotency_keys WHERE user_id = 'busy'"),
                     busy[0].runs + busy[1].runs);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE user_id = 'busy'"),
        database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'busy' AND status = 'COMPLETED'"));
}
END_TEST

/* ---- rights ------------------------------------------------------------------------------------------------------------------ */

START_TEST(only_the_worker_keeps_house_and_only_as_a_whole)
{
    static const struct {
        const char *role, *text;
    } forbidden[] = {
        {"issuing_worker", "SELECT issuing.partition_add('rate_limit_log', now(), now() + interval '1 day')"},
        {"issuing_worker", "SELECT issuing.partition_drop('rate_limit_log_rest', now())"},
        {"issuing_worker", "DELETE FROM outbox_events"},
        {"issuing_worker", "DELETE FROM idempotency_keys"},
        {"issuing_worker", "DELETE FROM rate_limit_log"},
        {"issuing_worker", "DELETE FROM rate_limit_log_rest"},
        {"issuing_worker", "DELETE FROM outbox_events_rest"},
        {"issuing_worker", "UPDATE partitions SET settled_at = now()"},
        {"issuing_worker", "DELETE FROM card_reissues"},
        {"issuing_worker", "UPDATE retentions SET kept = least"},
        {"issuing_worker", "SELECT issuing.set_retention('keys', '1 h')"},
        {"issuing_worker", "SELECT issuing.retention_at_least('keys', '1 h')"},
        {"issuing_worker", "SELECT issuing.keep_clock()"},
        {"issuing_worker", "SELECT issuing.rest_expire('cards', 'true', now())"},
        {"issuing_worker", "UPDATE house_clock SET believed_at = now()"},
        {"issuing_worker", "DELETE FROM partition_plans"},
        {"issuing_api", "SELECT issuing.keep_rows('1 day', '1 day', '90 days')"},
        {"issuing_api", "SELECT issuing.check_rest()"},
        {"issuing_operator", "SELECT issuing.set_retention('keys', '1 h')"},
        {"issuing_api", "SELECT issuing.keep_house('1 day', '1 day', '90 days', '1 h')"},
        {"issuing_operator", "SELECT issuing.keep_house('1 day', '1 day', '90 days', '1 h')"},
        {"issuing_operator", "SELECT issuing.partition_drop('rate_limit_log_rest', now())"},
        {"issuing_operator", "UPDATE partitions SET settled_at = now()"},
        {"issuing_api", "INSERT INTO card_reissues VALUES (gen_random_uuid(), 'u', 'c')"},
    };
    struct err err = {.kind = ERR_NONE};
    for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++) {
        struct pg_sync *db = database_open(forbidden[i].role);
        ck_assert_msg(!pg_sync_exec(db, forbidden[i].text, &err), "%s could: %s", forbidden[i].role, forbidden[i].text);
        ck_assert_msg(strcmp(pg_sync_sqlstate(db), "42501") == 0, "%s: %s", forbidden[i].text, err.message);
        pg_sync_close(db);
    }
    ck_assert_int_eq(
        database_int(owner,
                     "SELECT count(*) FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', "
                     "p.proowner))) a WHERE p.proname IN ('keep_house', 'keep_rows', 'check_rest', "
                     "'partition_add', 'partition_drop', 'rest_expire', 'set_retention', 'retention_at_least') AND "
                     "a.grantee = 0"),
        0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("housekeeping");
    TCase *tcase = tcase_create("housekeeping");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, partitions_are_made_ahead_and_without_a_gap);
    tcase_add_test(tcase, two_workers_never_make_the_same_partition);
    tcase_add_test(tcase, after_a_long_pause_what_was_written_meanwhile_is_not_in_the_way);
    tcase_add_test(tcase, an_id_of_another_kind_is_cut_around);
    tcase_add_test(tcase, an_event_without_a_key_or_of_another_time_does_not_keep_keys);
    tcase_add_test(tcase, a_partition_is_dropped_when_it_is_settled_and_its_retention_is_over);
    tcase_add_test(tcase, nothing_is_settled_while_something_of_its_time_is_unfinished);
    tcase_add_test(tcase, nothing_is_settled_before_what_was_begun_in_its_time_can_have_committed);
    tcase_add_test(tcase, what_is_open_survives_the_drop_whole_with_its_history_and_its_key);
    tcase_add_test(tcase, an_open_question_that_ended_lately_is_kept_for_the_retention_of_its_own_end);
    tcase_add_test(tcase, a_partition_with_too_much_that_must_stay_is_left_alone);
    tcase_add_test(tcase, rows_that_are_in_no_partition_expire_a_thousand_a_pass);
    tcase_add_test(tcase, a_large_rest_is_looked_through_in_pieces);
    tcase_add_test(tcase, a_drop_that_would_have_to_wait_is_given_up_whole);
    tcase_add_test(tcase, a_partition_that_cannot_be_made_at_once_is_made_later);
    tcase_add_test(tcase, a_pass_in_an_old_snapshot_is_refused);
    tcase_add_test(tcase, a_reissue_that_moves_needs_no_place_and_takes_none);
    tcase_add_test(tcase, what_cannot_be_done_is_told_and_everything_else_is_done);
    tcase_add_test(tcase, a_large_rest_is_not_read_under_the_lock_that_all_wait_for);
    tcase_add_test(tcase, a_plan_that_is_not_done_in_time_is_taken_back);
    tcase_add_test(tcase, a_row_in_the_way_of_a_plan_is_gone_around);
    tcase_add_test(tcase, a_commit_of_the_housekeeping_does_not_wait_for_standbys);
    tcase_add_test(tcase, a_clock_that_jumps_ahead_drops_and_makes_nothing);
    tcase_add_test(tcase, a_clock_that_was_ahead_leaves_nothing_that_is_in_the_way);
    tcase_add_test(tcase, the_clock_of_the_house_moves_by_passes_only);
    tcase_add_test(tcase, a_worker_lengthens_a_retention_and_shortens_none);
    tcase_add_test(tcase, an_operator_that_somebody_puts_into_public_is_never_run);
    tcase_add_test(tcase, who_accepts_and_who_works_does_not_notice);
    tcase_add_test(tcase, only_the_worker_keeps_house_and_only_as_a_whole);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
