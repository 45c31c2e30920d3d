/* The story: it is three in the morning, and no worker runs. The api must still show how many cards wait and for how
 * long, that no worker lives, and what operators have paused, or nobody is woken. And whatever lies in the table, a
 * backlog of millions or a row with a time of the year 4000 B.C., counting must neither fail nor cost much. Needs a
 * database: its conninfo (keyword=value) in ISSUING_TEST_DATABASE. */
#include "database.h"
#include "run_until.h"

#include <math.h>

#include "common/core/daemon_metrics.h"
#include "common/core/outbox_gauges.h"
#include "statements.h"
#include "tests/support/suite.h"

static const struct metric_family families[] = {DAEMON_METRICS(METRIC_FAMILY)};

static struct pg_sync *db;
static struct pg_pool *pool;
static struct metrics *metrics;
static struct outbox_gauges *gauges;
static bool gauges_closed, pool_closed;

static void on_closed(void *context)
{
    *(bool *)context = true;
}

static void set_up(void)
{
    struct err err = {0};
    struct pg_pool_options options = {.conninfo = database_conninfo(),
                                      .application_name = "test_gauges",
                                      .connections = 1,
                                      .pipeline = 4,
                                      .waiting_max = 10};
    gauges_closed = pool_closed = false;
    gauges = NULL;
    /* As the programs' sessions have it: the pool of this test asks for no version, which would set it. */
    ck_assert_int_eq(setenv("PGOPTIONS", "-c jit=off", 1), 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    metrics = metrics_new(families, ARRAY_SIZE(families));
    db = database_open(NULL);
    database_run(db, "DELETE FROM outbox_events; DELETE FROM cards; DELETE FROM workers; "
                     "DELETE FROM target_controls; DELETE FROM routes");
    ck_assert_msg(pg_pool_open(&loop, &options, &pool, &err), "%s", err.message);
    run_until(pg_pool_ready(pool));
}

static void tear_down(void)
{
    if (gauges)
        outbox_gauges_stop(gauges);
    pg_pool_close(pool, on_closed, &pool_closed);
    run_until(pool_closed);
    if (gauges) {
        outbox_gauges_close(gauges, on_closed, &gauges_closed);
        run_until(gauges_closed);
    }
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    metrics_free(metrics);
    pg_sync_close(db);
}

static double value(enum daemon_metric metric, const char *label)
{
    return metric_value(metrics_series(metrics, metric, label, NULL));
}

static void start_gauges(bool has_breaker_states)
{
    struct err err = {0};
    struct gauges_options options = {
        .loop = &loop, .pool = pool, .metrics = metrics, .has_breaker_states = has_breaker_states};
    metric_set(metrics_series(metrics, DAEMON_METRIC_WORKERS_ALIVE, NULL, NULL), -1);
    metric_set(metrics_series(metrics, DAEMON_METRIC_OLDEST_PENDING, NULL, NULL), -1);
    ck_assert_msg(outbox_gauges_open(&options, NULL, &gauges, &err), "%s", err.message);
    run_until(value(DAEMON_METRIC_WORKERS_ALIVE, NULL) >= 0 && value(DAEMON_METRIC_OLDEST_PENDING, NULL) >= 0);
}

static void add(const char *user, const char *more_columns, const char *more_values)
{
    database_exec(db, "INSERT INTO outbox_events (user_id, payload%s) VALUES ('%s', '{}'%s)", more_columns, user,
                  more_values);
}

static void expect_int(enum daemon_metric metric, const char *label, int wanted)
{
    ck_assert_int_eq((int)value(metric, label), wanted);
}

TEST(the_gauges_show_what_is_open_failed_and_unknown)
{
    add("a", ", created_at", ", now() - interval '100 s'");
    add("b", ", next_attempt_at, first_sent_at", ", now() + interval '1 h', now() - interval '50 s'");
    add("c", ", status, lease_token, lease_until, first_sent_at",
        ", 'PROCESSING', gen_random_uuid(), now() + interval '1 m', now() - interval '9 h'");
    add("d", ", status, first_sent_at", ", 'FAILED', now() - interval '70 s'");
    add("e", ", status", ", 'FAILED'");
    add("f", ", status, completed_at", ", 'COMPLETED', now()");
    /* Its card is stored: nothing is unknown. */
    add("g", ", first_sent_at", ", now() - interval '8 h'");
    database_run(db, "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) "
                     "SELECT gen_random_uuid(), id, 1, 2030, 'g', 'i', '1111' FROM outbox_events WHERE user_id = 'g'");
    start_gauges(true);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", 3);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "PROCESSING", 1);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "FAILED", 2);
    expect_int(DAEMON_METRIC_OUTCOME_UNKNOWN, NULL, 2);
    ck_assert(value(DAEMON_METRIC_OLDEST_PENDING, NULL) >= 100 && value(DAEMON_METRIC_OLDEST_PENDING, NULL) < 160);
    ck_assert(value(DAEMON_METRIC_UNKNOWN_OLDEST, NULL) >= 70 && value(DAEMON_METRIC_UNKNOWN_OLDEST, NULL) < 130);
}

TEST(what_is_to_run_later_is_not_late)
{
    add("a", ", created_at, run_at, next_attempt_at",
        ", now() - interval '9 h', now() + interval '2 days', now() + interval '2 days'");
    add("b", ", created_at, run_at, next_attempt_at",
        ", now() - interval '9 h', now() - interval '50 s', now() - interval '50 s'");
    start_gauges(true);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", 1);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "SCHEDULED", 1);
    ck_assert(value(DAEMON_METRIC_OLDEST_PENDING, NULL) >= 50 && value(DAEMON_METRIC_OLDEST_PENDING, NULL) < 3600);
}

TEST(what_is_at_work_is_not_waiting)
{
    add("a", ", status, lease_token, lease_until, first_sent_at",
        ", 'PROCESSING', gen_random_uuid(), now() + interval '1 m', now() - interval '9 h'");
    add("b", ", status", ", 'FAILED'");
    start_gauges(true);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "PROCESSING", 1);
    expect_int(DAEMON_METRIC_OUTCOME_UNKNOWN, NULL, 0);
    expect_int(DAEMON_METRIC_OLDEST_PENDING, NULL, 0);
    expect_int(DAEMON_METRIC_UNKNOWN_OLDEST, NULL, 0);
}

TEST(an_empty_outbox_is_zero)
{
    start_gauges(true);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", 0);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "FAILED", 0);
    expect_int(DAEMON_METRIC_OLDEST_PENDING, NULL, 0);
    expect_int(DAEMON_METRIC_UNKNOWN_OLDEST, NULL, 0);
    expect_int(DAEMON_METRIC_WORKERS_ALIVE, NULL, 0);
    expect_int(DAEMON_METRIC_TARGET_PAUSED, "issuer", 0);
    outbox_gauges_update_age(gauges);
    ck_assert(value(DAEMON_METRIC_GAUGES_AGE, NULL) < 60);
}

/* A row that is older than the trigger against such times: it hides none of the others. */
TEST(no_row_makes_the_count_fail)
{
    database_run(db, "SET session_replication_role = replica"); /* no triggers */
    add("b", ", next_attempt_at", ", 'infinity'");
    add("a", ", next_attempt_at", ", '-infinity'");
    add("c", ", created_at", ", '4000-01-01 BC'");
    add("d", ", first_sent_at", ", '-infinity'");
    add("e", "", "");
    start_gauges(true);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", 5);
    expect_int(DAEMON_METRIC_OUTCOME_UNKNOWN, NULL, 1);
    ck_assert(value(DAEMON_METRIC_OLDEST_PENDING, NULL) > 1e9);
}

static void add_worker(const char *name, int seen_s, const char *issuer, const char *core)
{
    database_exec(db,
                  "INSERT INTO workers (name, host, pid, version, started_at, seen_at, in_flight, slots) "
                  "VALUES ('%s', 'h', 1, '1', now(), now() - %d * interval '1 s', 0, 1)",
                  name, seen_s);
    database_exec(db,
                  "INSERT INTO worker_targets (worker, target, state, since, is_resting, is_paused, in_flight, "
                  "waiting, call_limit) VALUES ('%s', 'issuer', '%s', now(), false, false, 0, 0, 1), "
                  "('%s', 'core', '%s', now(), false, false, 0, 0, 1)",
                  name, issuer, name, core);
}

TEST(a_target_is_as_bad_as_the_worst_living_worker_says)
{
    add_worker("w1", 1, "closed", "half_open");
    add_worker("w2", 30, "open", "closed");
    add_worker("dead", 61, "open", "open");
    start_gauges(true);
    expect_int(DAEMON_METRIC_WORKERS_ALIVE, NULL, 2);
    expect_int(DAEMON_METRIC_BREAKER_STATE, "issuer", 2);
    expect_int(DAEMON_METRIC_BREAKER_STATE, "core", 1);
}

TEST(a_pause_shows_also_while_no_worker_lives_and_a_state_does_not)
{
    add_worker("dead", 61, "open", "open");
    database_run(db, "INSERT INTO target_controls (target, paused_at, paused_by, paused_why) "
                     "VALUES ('core', now(), 'anna', 'ticket')");
    metric_set(metrics_series(metrics, DAEMON_METRIC_BREAKER_STATE, "issuer", NULL), 2); /* shown before */
    start_gauges(true);
    expect_int(DAEMON_METRIC_WORKERS_ALIVE, NULL, 0);
    expect_int(DAEMON_METRIC_TARGET_PAUSED, "core", 1);
    expect_int(DAEMON_METRIC_TARGET_PAUSED, "issuer", 0);
    ck_assert(isnan(value(DAEMON_METRIC_BREAKER_STATE, "issuer")));
}

TEST(a_worker_that_was_seen_before_the_clock_was_set_back_is_dead)
{
    add_worker("ahead", -7200, "open", "open");
    metric_set(metrics_series(metrics, DAEMON_METRIC_BREAKER_STATE, "issuer", NULL), 2);
    start_gauges(true);
    expect_int(DAEMON_METRIC_WORKERS_ALIVE, NULL, 0);
    ck_assert(isnan(value(DAEMON_METRIC_BREAKER_STATE, "issuer")));
}

TEST(other_targets_do_not_hide_the_issuer_and_core_api)
{
    add_worker("w", 1, "open", "half_open");
    database_run(db, "INSERT INTO target_controls (target) SELECT 'a' || n FROM generate_series(1, 60) AS n");
    start_gauges(true);
    expect_int(DAEMON_METRIC_BREAKER_STATE, "issuer", 2);
    expect_int(DAEMON_METRIC_BREAKER_STATE, "core", 1);
}

TEST(a_worker_shows_its_own_breakers)
{
    add_worker("other", 1, "open", "open");
    metric_set(metrics_series(metrics, DAEMON_METRIC_BREAKER_STATE, "issuer", NULL), 0);
    start_gauges(false);
    expect_int(DAEMON_METRIC_WORKERS_ALIVE, NULL, 1);
    expect_int(DAEMON_METRIC_BREAKER_STATE, "issuer", 0);
}

/* A lock that somebody holds, or a disk that does not answer: the old figures stay, and their age shows it. */
TEST(figures_that_cannot_be_read_grow_old)
{
    struct pg_sync *other = database_open(NULL);
    add("a", "", ""); /* while nothing is open, events are counted less often */
    start_gauges(true);
    database_run(other, "BEGIN; LOCK workers, outbox_events");
    run_until(pg_pool_in_flight(pool) == 2); /* five seconds later both are asked again, and wait for the lock */
    outbox_gauges_update_age(gauges);
    double age = value(DAEMON_METRIC_GAUGES_AGE, NULL);
    ck_assert(age > 4);
    expect_int(DAEMON_METRIC_WORKERS_ALIVE, NULL, 0);
    database_run(other, "ROLLBACK");
    run_until(pg_pool_in_flight(pool) == 0);
    outbox_gauges_update_age(gauges);
    ck_assert(value(DAEMON_METRIC_GAUGES_AGE, NULL) < age);
    pg_sync_close(other);
}

static bool answered;
static enum pg_kind answered_kind;

static void on_answer(struct pg_query *query, const struct pg_query_result *result)
{
    (void)query;
    answered = true;
    answered_kind = result->kind;
}

/* database.connections = 1: what must not wait is done while somebody holds the lock. */
TEST(on_an_only_connection_figures_that_cannot_be_read_keep_nobody_waiting)
{
    struct pg_sync *other = database_open(NULL);
    struct gauges_options options = {.loop = &loop, .pool = pool, .metrics = metrics, .has_one_connection = true};
    struct pg_query query = {.statement = &sql_notify_wake, .timeout_ms = 4000, .on_result = on_answer};
    answered = false;
    database_run(other, "BEGIN; LOCK workers");
    ck_assert(outbox_gauges_open(&options, NULL, &gauges, NULL));
    run_until(database_int(db, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 1);
    pg_pool_submit(pool, &query);
    run_until(answered);
    ck_assert_int_eq(answered_kind, PG_DONE);
    database_run(other, "ROLLBACK");
    pg_sync_close(other);
}

/* ---- the statement ---- */

struct counted {
    int64_t pending, oldest_ms, unknown;
};

static struct counted count(struct pg_sync *as, const char *part, struct pg_param from, bool counts_behind,
                            int64_t rows)
{
    struct pg_param params[] = {from, pg_param_bool(counts_behind), pg_param_int8(rows), pg_param_string("CARD_ISSUE")};
    struct pg_rows *found = database_query(as, &sql_outbox_gauges, params);
    struct counted counted = {0};
    for (int row = 0; row < pg_rows_count(found); row++)
        if (strcmp(pg_bytes(found, row, 0).bytes, part) == 0)
            counted = (struct counted){pg_int8(found, row, 1), pg_int8(found, row, 3), pg_int8(found, row, 4)};
    pg_rows_free(found);
    return counted;
}

/* The bookmark has moved past events that no claim finds: the count behind it has them, and the count from it does not
 * have them as well. */
TEST(open_events_far_behind_the_bookmark_are_counted_apart)
{
    add("behind", ", next_attempt_at, created_at, first_sent_at",
        ", now() - interval '2 h', now() - interval '3 h', now() - interval '3 h'");
    add("young", "", "");
    char *mark = database_text(db, "SELECT (extract(epoch FROM now() - interval '1 h') * 1000000)::int8::text");
    struct pg_param from[] = {pg_param_int8(strtoll(mark, NULL, 10)), pg_param_null()};
    for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
        for (int counts_behind = 0; counts_behind < 2; counts_behind++) {
            struct counted behind = count(db, "behind", from[i], counts_behind, 1000);
            ck_assert_int_eq(behind.pending, counts_behind);
            ck_assert_int_eq(behind.unknown, counts_behind);
            ck_assert_int_eq(behind.oldest_ms >= INT64_C(3) * 3600 * 1000, counts_behind);
            struct counted front = count(db, "front", from[i], counts_behind, 1000);
            ck_assert_int_eq(front.pending, 1);
            ck_assert_int_eq(front.unknown, 0);
        }
    }
    free(mark);
}

TEST(a_large_backlog_is_counted_up_to_a_limit_the_oldest_first)
{
    database_run(db, "INSERT INTO outbox_events (user_id, payload, next_attempt_at, created_at) "
                     "SELECT 'u', '{}', now() - n * interval '1 s', now() - n * interval '1 s' "
                     "FROM generate_series(1, 500) n");
    struct counted few = count(db, "front", pg_param_null(), true, 100);
    ck_assert_int_eq(few.pending, 100);
    ck_assert_int_ge(few.oldest_ms, 500 * 1000);
    ck_assert_int_eq(count(db, "front", pg_param_null(), true, 1000).pending, 500);
}

/* The index has the order, and the planner takes the rows as they lie where it finds that cheaper. */
TEST(a_limited_count_has_the_oldest_whatever_the_plan_is)
{
    static const char *const parts[] = {"front", "behind"};
    database_run(db, "INSERT INTO outbox_events (user_id, payload, next_attempt_at, created_at) "
                     "SELECT 'u', '{}', t, t FROM generate_series(1, 40) n, (VALUES (0), (7200)) ago (s), "
                     "LATERAL (SELECT now() - (ago.s + n) * interval '1 s' AS t) at; "
                     "SET enable_indexscan = off; SET enable_bitmapscan = off");
    for (int64_t is_behind = 0; is_behind < 2; is_behind++) {
        struct counted few = count(db, parts[is_behind], pg_param_null(), true, 20);
        ck_assert_int_eq(few.pending, 20);
        ck_assert_int_ge(few.oldest_ms, (is_behind * 7200 + 40) * 1000);
    }
}

static double of_type(const char *type, const char *status)
{
    return metric_value(metrics_series(metrics, DAEMON_METRIC_TYPE_EVENTS, type, status));
}

static void add_of(const char *type, const char *more_columns, const char *more_values)
{
    database_exec(db, "INSERT INTO outbox_events (event_type, user_id, payload%s) VALUES ('%s', 'u', '{}'%s)",
                  more_columns, type, more_values);
}

static void add_route(const char *type)
{
    database_exec(db,
                  "INSERT INTO routes (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts, is_signed, "
                  "worker, seen_at) VALUES ('%s', false, false, 86400000, 10, false, 'w', now())",
                  type);
}

/* A route's backlog is what the routes' alerts look at; it must neither be taken for late cards nor stay unseen. */
TEST(each_type_that_is_delivered_is_counted)
{
    add_route("CHARGE");
    add_route("NOTE");
    add("a", ", created_at", ", now() - interval '50 s'");
    add_of("CHARGE", ", created_at", ", now() - interval '500 s'");
    add_of("CHARGE", ", first_sent_at", ", now() - interval '70 s'");
    add_of("CHARGE", ", status, lease_token, lease_until", ", 'PROCESSING', gen_random_uuid(), now() + interval '1 m'");
    add_of("CHARGE", ", status, first_sent_at", ", 'FAILED', now() - interval '90 s'");
    add_of("CHARGE", ", status, completed_at", ", 'COMPLETED', now()");
    start_gauges(true);
    ck_assert_int_eq((int)of_type("CARD_ISSUE", "PENDING"), 1);
    ck_assert_int_eq((int)of_type("CHARGE", "PENDING"), 2);
    ck_assert_int_eq((int)of_type("CHARGE", "PROCESSING"), 1);
    ck_assert_int_eq((int)of_type("CHARGE", "FAILED"), 1);
    ck_assert_int_eq((int)of_type("NOTE", "PENDING"), 0);
    ck_assert(value(DAEMON_METRIC_TYPE_OLDEST, "CARD_ISSUE") < 110);
    ck_assert(value(DAEMON_METRIC_TYPE_OLDEST, "CHARGE") >= 500);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", 3);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "FAILED", 1);
    expect_int(DAEMON_METRIC_OUTCOME_UNKNOWN, NULL, 2);
    ck_assert(value(DAEMON_METRIC_OLDEST_PENDING, NULL) >= 500);
    ck_assert(value(DAEMON_METRIC_UNKNOWN_OLDEST, NULL) >= 90 && value(DAEMON_METRIC_UNKNOWN_OLDEST, NULL) < 150);
    expect_int(DAEMON_METRIC_UNDELIVERED, NULL, 0);
}

/* Other services write the types: they are as many as there are, and none of their names may become a label. */
TEST(what_nobody_delivers_is_one_figure)
{
    struct buf text;
    add_route("NOTE");
    add_of("AAA", "", "");
    add_of("MIDDLE", "", "");
    add_of("ZZZ", "", "");
    add_of("ZZZ", ", status", ", 'FAILED'");
    database_run(db, "SET session_replication_role = replica"); /* past the table's own checks */
    add_of("CHARGE \\\" {x=''y''}", "", "");
    database_run(db, "RESET session_replication_role");
    add("a", "", "");
    add_of("NOTE", "", "");
    start_gauges(true);
    expect_int(DAEMON_METRIC_UNDELIVERED, NULL, 4);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", 2);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "FAILED", 1);
    ck_assert_int_eq((int)of_type("other", "FAILED"), 1);
    buf_init(&text, 1 << 20);
    metrics_render(metrics, &text);
    ck_assert_ptr_nonnull(strstr(text.bytes, "issuing_outbox_type_events{type=\"NOTE\",status=\"PENDING\"} 1"));
    ck_assert_ptr_null(strstr(text.bytes, "ZZZ"));
    ck_assert_ptr_null(strstr(text.bytes, "MIDDLE"));
    ck_assert_ptr_null(strstr(text.bytes, "CHARGE"));
    buf_done(&text);
}

TEST(many_types_of_failed_events_hide_nothing)
{
    database_run(db, "INSERT INTO outbox_events (user_id, payload, event_type, status) "
                     "SELECT 'a', '{}', 'AAA_' || n, 'FAILED' FROM generate_series(1, 300) n");
    add_of("ZZZ", "", "");
    start_gauges(true);
    expect_int(DAEMON_METRIC_UNDELIVERED, NULL, 1);
    ck_assert_int_eq((int)of_type("other", "FAILED"), 300);
}

TEST(a_route_that_is_gone_is_zero_and_its_events_are_nobodys)
{
    add_route("CHARGE");
    add_of("CHARGE", "", "");
    start_gauges(true);
    ck_assert_int_eq((int)of_type("CHARGE", "PENDING"), 1);
    database_run(db, "DELETE FROM routes");
    run_until(value(DAEMON_METRIC_UNDELIVERED, NULL) > 0);
    ck_assert_int_eq((int)of_type("CHARGE", "PENDING"), 0);
    expect_int(DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", 0);
}

TEST(both_daemons_may_ask)
{
    static const char *const roles[] = {"issuing_api", "issuing_worker"};
    add("a", ", first_sent_at", ", now()");
    add_worker("w", 1, "closed", "closed");
    for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
        struct pg_sync *as = database_open(roles[i]);
        ck_assert_int_eq(count(as, "front", pg_param_null(), true, 10).unknown, 1);
        struct pg_rows *rows = database_query(as, &sql_worker_gauges, NULL);
        ck_assert_int_eq(pg_rows_count(rows), 3);
        pg_rows_free(rows);
        pg_sync_close(as);
    }
}

TESTS_BETWEEN(outbox_gauges, set_up, tear_down)
