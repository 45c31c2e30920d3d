/* The story: rows that are in no partition expire one by one, and only when the database's own retentions say so,
 * whatever a worker claims. Requests and workers do not notice the housekeeping, and only workers can start it. */
#include "tests/db/housekeeping_calls.h"

#include <pthread.h>

#include "tests/support/suite.h"

TEST(rows_that_are_in_no_partition_expire_a_thousand_a_pass)
{
    bool has_more;
    (void)add_event("failed", 200, "FAILED", "200 days");
    (void)add_event("pending", 200, "PENDING", "200 days");
    (void)add_event("completed-lately", 200, "COMPLETED", "1 h");
    ck_assert_int_eq(passes(&usual), 4);
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - n * interval '1 min', gen_random_uuid(), true, 'u' "
                        "FROM generate_series(1441, 1441 + 2200 - 1) n");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '23 h', gen_random_uuid(), true, 'u' FROM "
                        "generate_series(1, 5)");
    database_run(owner,
                 "INSERT INTO idempotency_keys SELECT gen_random_uuid(), now() - interval '25 h', 'u', n::text, '' "
                 "FROM generate_series(1, 1000) n");
    database_run(
        owner,
        "INSERT INTO outbox_events (id, user_id, payload, status, created_at, updated_at) SELECT "
        "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'old', '{}', 'COMPLETED', now() - interval "
        "'91 days', now() - interval '91 days' FROM generate_series(1, "
        "1500) n");
    database_run(owner, "INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, "
                        "user_id, step, outcome) "
                        "SELECT id, gen_random_uuid(), now(), now(), 1, false, 'old', 'link', 'completed' FROM "
                        "outbox_events WHERE user_id = 'old'");
    ck_assert_str_eq(pass_of(worker, &usual, &has_more),
                     "expired idempotency_keys 1000; expired rate_limit_log 1000; expired outbox_events 1000");
    ck_assert(has_more);
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "expired rate_limit_log 1000; expired outbox_events 500");
    ck_assert(has_more);
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "expired rate_limit_log 200");
    ck_assert(!has_more);
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

/* A pass reads a bounded piece of a large `_default`, and the next pass continues after that piece. */
TEST(a_large_rest_is_looked_through_in_pieces)
{
    ck_assert_int_eq(passes(&usual), 4);
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '1 min', gen_random_uuid(), true, "
                        "'somebody' FROM generate_series(1, 250000)");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '25 h', gen_random_uuid(), true, 'old'");
    ck_assert_int_gt(database_int(owner, "SELECT pg_relation_size('rate_limit_log_default') / 8192"), 2048);
    expect_pass(
        "planned rate_limit_log 0; checked rate_limit_log 0"); /* the next partition, for so large a `_default` */
    expect_pass("expired rate_limit_log 1; created rate_limit_log 0");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '25 h', gen_random_uuid(), true, 'old'");
    database_run(owner, "DELETE FROM rate_limit_log WHERE user_id = 'somebody'");
    database_run(owner, "UPDATE default_scans SET next_block = 1000000"); /* it has shrunk since */
    expect_pass("");
    expect_pass("expired rate_limit_log 1");
}

/* While a standby is away, a commit that waited for it would hold the lock on outbox_events, and with it every claim
 * and read. */
TEST(a_commit_of_the_housekeeping_does_not_wait_for_standbys)
{
    static const char *const calls[] = {"SELECT issuing.keep_rows('1 d', '1 d', '90 d')",
                                        "SELECT issuing.run_housekeeping('1 d', '1 d', '90 d', '1 h')"};
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        database_exec(worker, "BEGIN; %s", calls[i]);
        char *commits = database_text(worker, "SELECT current_setting('synchronous_commit')");
        ck_assert_str_eq(commits, "local");
        free(commits);
        database_run(worker, "COMMIT");
    }
}

/* A worker that was started with another configuration, or that an attacker controls. */
TEST(a_worker_lengthens_a_retention_and_shortens_none)
{
    static const struct retention negative = {.keys_ms = -DAY_MS, .limits_ms = -DAY_MS, .events_ms = -DAY_MS},
                                  little = {.keys_ms = 1000, .limits_ms = 1000, .events_ms = 1000};
    bool has_more;
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    add_partition("rate_limit_log", 120, 110);
    (void)add_event("u", 115, "COMPLETED", "115 days");
    (void)add_event("of-today", 0, "COMPLETED", "0 s");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '23 h', gen_random_uuid(), true, 'u'");
    settle("23 h");
    ck_assert_str_eq(pass_of(worker, &negative, &has_more), "");
    ck_assert_str_eq(pass_of(worker, &little, &has_more), "");
    database_run(worker, "SELECT issuing.run_housekeeping('-1 d', '-1 d', '-1 d', '1 h')");
    database_run(worker, "SELECT issuing.keep_rows('-1 d', NULL, '-1 d')");
    ck_assert_int_eq(
        partition_count("outbox_events") + partition_count("idempotency_keys") + partition_count("rate_limit_log"), 6);
    expect_verdict("of-today", "replayed");
    expect_text(
        "SELECT string_agg(name || ' ' || extract(epoch FROM kept)::int8 / 3600, ', ' ORDER BY name) FROM retentions "
        "WHERE name NOT IN ('audit', 'routes')",
        "events 2160, keys 24, limits 24, numbers 168");
    /* Only the owner shortens, and not below the least. */
    struct err err = {.kind = ERR_NONE};
    ck_assert(!pg_sync_exec(owner, "SELECT issuing.set_retention('keys', '59 min')", &err));
    ck_assert_str_eq(err.sqlstate, "23514");
    database_run(owner, "SELECT issuing.set_retention('keys', '2 h'), issuing.set_retention('limits', '2 h')");
    ck_assert_str_eq(pass_of(worker, &little, &has_more), "expired rate_limit_log 1; dropped idempotency_keys 0");
    ck_assert_str_eq(pass_of(worker, &little, &has_more), "dropped rate_limit_log 0");
}

TEST(a_new_event_is_not_deleted_however_old_a_worker_makes_it)
{
    bool has_more;
    ck_assert_int_eq(passes(&usual), 4);
    database_run(owner, "INSERT INTO outbox_events (id, user_id, payload) VALUES (gen_random_uuid(), 'backdated', "
                        "'{\"kind\":\"new\"}')");
    database_run(worker, "UPDATE outbox_events SET status = 'COMPLETED', updated_at = '2000-01-01', completed_at = "
                         "'2000-01-01' WHERE user_id = 'backdated'");
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_default WHERE user_id = 'backdated'"), 1);
}

/* An action of that many days ago, in the partition of its time or in `_default`. */
static void add_action(int days_ago)
{
    database_exec(owner,
                  "INSERT INTO operator_actions (at, actor, action) VALUES (now() - interval '%d days', 'olga', '%d')",
                  days_ago, days_ago);
}

TEST(what_was_done_leaves_when_its_retention_is_over_and_no_program_can_shorten_it)
{
    struct err err = {.kind = ERR_NONE};
    static const struct retention little = {.keys_ms = 1, .limits_ms = 1, .events_ms = 1};
    bool has_more;
    database_run(owner, "TRUNCATE operator_actions; SELECT issuing.set_retention('audit', '400 d')");
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("operator_actions", 500, 470);
    add_partition("operator_actions", 430, 395);
    for (int days = 380; days <= 480; days += 20)
        add_action(days); /* 480, and 420 and 400, are of these partitions */
    add_action(0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions_default"), 4);
    database_run(owner, "UPDATE partitions SET settled_at = to_at + interval '1 min' WHERE to_at < now()");
    ck_assert_str_eq(pass_of(worker, &little, &has_more), "expired operator_actions 2; dropped operator_actions 0");
    expect_text("SELECT string_agg(action, ' ' ORDER BY at) FROM operator_actions", "420 400 380 0");
    expect_list_is_true();
    for (int i = 0; i < 3; i++)
        (void)pass_of(worker, &little, &has_more);
    expect_text("SELECT string_agg(action, ' ' ORDER BY at) FROM operator_actions", "420 400 380 0");
    ck_assert(!pg_sync_exec(owner, "SELECT issuing.set_retention('audit', '364 d')", &err));
    ck_assert_str_eq(err.sqlstate, "23514");
    database_run(owner, "SELECT issuing.set_retention('audit', '365 d')");
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "expired operator_actions 1; dropped operator_actions 0");
    expect_text("SELECT string_agg(action, ' ' ORDER BY at) FROM operator_actions", "0");
}

TEST(who_was_shown_a_number_is_forgotten_after_an_hour)
{
    ck_assert_int_eq(passes(&usual), 4);
    database_run(owner, "INSERT INTO number_reveals (user_id, last_at, revealed_at) VALUES ('old', now() - interval "
                        "'61 min', '{}'), ('new', now() - interval '59 min', '{}')");
    expect_pass("expired number_reveals 1");
    expect_text("SELECT string_agg(user_id, ' ') FROM number_reveals", "new");
    database_run(owner, "TRUNCATE number_reveals");
}

/* Where every role may create in `public`, an attacker makes an operator that fits `interval / integer` better than
 * that of PostgreSQL, and waits for the owner's functions to run it. */
TEST(an_operator_that_somebody_puts_into_public_is_never_run)
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
        database_run(
            worker, "SELECT issuing.keep_rows('1 d', '1 d', '90 d'); SELECT issuing.run_housekeeping('1 d', '1 d', '90 "
                    "d', '1 h'); SELECT issuing.check_default_partitions()");
    ck_assert_int_eq(partition_count("outbox_events"), 1);
    database_run(super, "DROP FUNCTION public.evil(interval, integer), public.evil(interval, bigint), "
                        "public.evil(bigint, interval), public.evil(integer, interval), public.evil(numeric, integer), "
                        "public.evil(timestamptz, text), public.evil(integer, numeric), public.evil(interval, numeric) "
                        "CASCADE; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    pg_sync_close(api);
    pg_sync_close(super);
}

enum {
    ROUNDS = 8,
    CREATED = 3 /* each longer than the one before, from 15 days, and none longer than a year */
};

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
            snprintf(busy->sqlstate, sizeof(busy->sqlstate), "%s", err.sqlstate);
        busy->runs++;
    }
    return NULL;
}

#define ACCEPTING(user)                                                                                 \
    "SELECT issuing.accept(ARRAY[issuing.uuid7()], ARRAY['" user "'], ARRAY[gen_random_uuid()::text], " \
    "ARRAY['f'::bytea], ARRAY['{\"kind\":\"new\"}'], ARRAY[NULL], ARRAY[NULL], 1000000, '1 h', false, '1 day')"

/* Requests are accepted, claimed and completed while partitions are made and dropped: no call fails, nothing is lost,
 * nothing happens twice. */
TEST(acceptance_and_workers_do_not_notice_the_housekeeping)
{
    volatile bool is_over = false;
    /* Each of its own user: of one user only one is recorded at a time. */
    static const char accepting[2][200] = {ACCEPTING("busy-1"), ACCEPTING("busy-2")};
    static const char working[] =
        "WITH claimed AS MATERIALIZED (SELECT id FROM issuing.claim('00000000-0000-4000-8000-000000000001', 50, 60000, "
        "'w', NULL, 100, false, 'CARD_ISSUE', false), unnest(events)) SELECT 1 FROM claimed; "
        "SELECT issuing.complete(ARRAY(SELECT id FROM outbox_events WHERE status = 'PROCESSING' AND due_at IS NOT "
        "NULL), "
        "(SELECT array_agg(lease_token) FROM outbox_events WHERE status = 'PROCESSING' AND due_at IS NOT NULL), 'w', "
        "ARRAY(SELECT 1::int8 FROM outbox_events WHERE status = 'PROCESSING' AND due_at IS NOT NULL), 'finish', NULL)";
    struct busy busy[] = {{.db = database_open("issuing_api"), .text = accepting[0]},
                          {.db = database_open("issuing_api"), .text = accepting[1]},
                          {.db = database_open("issuing_worker"), .text = working}};
    struct retention longer = usual;
    int created = 0, dropped = 0;
    ck_assert_int_eq(passes(&usual), 4);
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
    for (int i = 0; i < 2000 && (created < CREATED || dropped < 2 * ROUNDS); i++) {
        bool has_more;
        const char *done = pass_of(worker, &longer, &has_more);
        created += strstr(done, "created outbox_events") != NULL;
        dropped += strstr(done, "dropped") != NULL;
        if (strstr(done, "created outbox_events") && created < CREATED)
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
    ck_assert_int_eq(created, CREATED);
    ck_assert_int_eq(dropped, 2 * ROUNDS);
    expect_list_is_true();
    ck_assert_int_eq(gaps(), 0);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'open' AND status = 'FAILED'"), ROUNDS);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM idempotency_keys WHERE user_id = 'open'"), ROUNDS);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id LIKE 'busy-_'"),
                     busy[0].runs + busy[1].runs);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM idempotency_keys WHERE user_id LIKE 'busy-_'"),
                     busy[0].runs + busy[1].runs);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE user_id LIKE 'busy-_'"),
        database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id LIKE 'busy-_' AND status = 'COMPLETED'"));
}

TEST(only_the_worker_runs_housekeeping_and_only_as_a_whole)
{
    static const struct {
        const char *role, *text;
    } forbidden[] = {
        {"issuing_worker", "SELECT issuing.partition_add('rate_limit_log', now(), now() + interval '1 day')"},
        {"issuing_worker", "SELECT issuing.partition_drop('rate_limit_log_default', now())"},
        {"issuing_worker", "DELETE FROM outbox_events"},
        {"issuing_worker", "DELETE FROM idempotency_keys"},
        {"issuing_worker", "DELETE FROM rate_limit_log"},
        {"issuing_worker", "DELETE FROM rate_limit_log_default"},
        {"issuing_worker", "DELETE FROM outbox_events_default"},
        {"issuing_worker", "UPDATE partitions SET settled_at = now()"},
        {"issuing_worker", "DELETE FROM card_reissues"},
        {"issuing_worker", "UPDATE retentions SET kept = least"},
        {"issuing_worker", "SELECT issuing.set_retention('keys', '1 h')"},
        {"issuing_worker", "SELECT issuing.retention_at_least('keys', '1 h')"},
        {"issuing_worker", "SELECT issuing.advance_clock()"},
        {"issuing_worker", "SELECT issuing.expire_default('cards', 'true', now())"},
        {"issuing_worker", "UPDATE housekeeping_clock SET clock_at = now()"},
        {"issuing_worker", "DELETE FROM partition_plans"},
        {"issuing_api", "SELECT issuing.keep_rows('1 day', '1 day', '90 days')"},
        {"issuing_api", "SELECT issuing.check_default_partitions()"},
        {"issuing_api", "SELECT issuing.erase_numbers('7 days')"},
        {"issuing_operator", "SELECT issuing.erase_numbers('7 days')"},
        {"issuing_operator", "SELECT issuing.set_retention('keys', '1 h')"},
        {"issuing_api", "SELECT issuing.run_housekeeping('1 day', '1 day', '90 days', '1 h')"},
        {"issuing_operator", "SELECT issuing.run_housekeeping('1 day', '1 day', '90 days', '1 h')"},
        {"issuing_operator", "SELECT issuing.partition_drop('rate_limit_log_default', now())"},
        {"issuing_operator", "UPDATE partitions SET settled_at = now()"},
        {"issuing_api", "INSERT INTO card_reissues VALUES (gen_random_uuid(), 'u', 'c')"},
    };
    struct err err = {.kind = ERR_NONE};
    for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++) {
        struct pg_sync *db = database_open(forbidden[i].role);
        ck_assert_msg(!pg_sync_exec(db, forbidden[i].text, &err), "%s could: %s", forbidden[i].role, forbidden[i].text);
        ck_assert_msg(strcmp(err.sqlstate, "42501") == 0, "%s: %s", forbidden[i].text, err.message);
        pg_sync_close(db);
    }
    ck_assert_int_eq(
        database_int(owner,
                     "SELECT count(*) FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', "
                     "p.proowner))) a WHERE p.proname IN ('run_housekeeping', 'keep_rows', 'check_default_partitions', "
                     "'erase_numbers', "
                     "'partition_add', 'partition_drop', 'expire_default', 'set_retention', 'retention_at_least') AND "
                     "a.grantee = 0"),
        0);
}

TESTS_BETWEEN(housekeeping, set_up, tear_down)
