/* The story: in a quiet system a worker sees a request before it is on disk, and no client may be told before it is. What
 * puts it there may be refused, lost with its connection, run too early or on a server that crashed in between; each time
 * the request is recorded once and told only when a flush came surely after it. To see and to hold the flush, the pool's
 * sessions find a function of the test's own under the name of the server's. Needs a database: its conninfo
 * (keyword=value) in ISSUING_TEST_DATABASE. */
#include "database.h"
#include "turning.h"

#include "api/acceptor.h"
#include "common/pg_pool.h"
#include "common/sql/statements.h"

#define REQUESTS 4
#define HOLD "SELECT pg_advisory_lock(4711)"
#define LET_GO "SELECT pg_advisory_unlock(4711)"

struct request {
    struct acceptance acceptance; /* first: an acceptance is its request */
    enum acceptance_verdict verdict;
    int decisions;
    int64_t seen; /* when it was decided: the events that the last flush on disk saw */
};

static struct pg_sync *db;
static struct pg_pool *pool;
static struct nudge nudge;
static struct metrics *metrics;
static struct acceptor *acceptor;
static struct config config;
static struct request requests[REQUESTS];
static int decided;
static bool acceptor_closed, pool_closed;

static const struct metric_family families[] = {
    {.name = "test_batch_size", .type = METRIC_HISTOGRAM, .help = "Of a test.", .buckets = metric_buckets_size}};
/* In the place of the nudge: what was prepared for the batch is gone. */
static const struct sql_statement forget_batch = {
    .name = "forget_batch", .text = "SELECT shadow.forget('accept_batch')::text", .shape = SQL_ONE};

/* The function takes a place in a sequence, which no rollback takes back, then does what the test wants of it. */
static void set_flush(const char *fault)
{
    database_exec(
        db,
        "CREATE OR REPLACE FUNCTION shadow.pg_logical_emit_message(is_transactional bool, prefix text, content "
        "text) RETURNS pg_lsn LANGUAGE plpgsql AS $$ DECLARE run int8 := nextval('shadow.runs'); BEGIN "
        "PERFORM pg_advisory_xact_lock_shared(4711); %s "
        "INSERT INTO shadow.flushes SELECT count(*) FROM outbox_events; "
        "RETURN pg_catalog.pg_logical_emit_message(is_transactional, prefix, content); END $$",
        fault);
}

static void make_shadow(void)
{
    database_run(db,
                 "DROP SCHEMA IF EXISTS shadow CASCADE; CREATE SCHEMA shadow; CREATE SEQUENCE shadow.runs; "
                 "CREATE TABLE shadow.flushes (seen int8); "
                 "CREATE FUNCTION shadow.forget(start text) RETURNS void LANGUAGE plpgsql AS $$ DECLARE n text; BEGIN "
                 "FOR n IN SELECT name FROM pg_prepared_statements WHERE starts_with(name, start) LOOP "
                 "EXECUTE format('DEALLOCATE %I', n); END LOOP; END $$");
    set_flush("");
}

static int64_t flushes(void)
{
    return database_int(db, "SELECT count(*) FROM shadow.flushes");
}

static int64_t runs(void)
{
    return database_int(db, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM shadow.runs");
}

static void expect_events(int64_t count)
{
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM outbox_events"), count);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM idempotency_keys"), count);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM rate_limit_log"), count);
}

static bool is_held(void)
{
    return database_int(
               db,
               "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid IN (4711, 4712) AND NOT granted") ==
           1;
}

static void on_decided(struct acceptance *acceptance, enum acceptance_verdict verdict)
{
    struct request *request = (struct request *)acceptance;
    request->verdict = verdict;
    request->decisions++;
    request->seen = database_int(db, "SELECT coalesce(max(seen), 0) FROM shadow.flushes");
    decided++;
}

static struct request *put(int index, const char *user, const char *key)
{
    static const char payload[] = "{\"kind\": \"new\"}";
    struct request *request = &requests[index];
    *request = (struct request){.acceptance = {.id = uuid7_make(),
                                               .user_id = user,
                                               .key = key,
                                               .key_length = strlen(key),
                                               .payload = {payload, strlen(payload)},
                                               .on_decided = on_decided}};
    ck_assert(acceptor_put(acceptor, &request->acceptance));
    return request;
}

static void expect(const struct request *request, enum acceptance_verdict verdict, const struct request *of)
{
    ck_assert_int_eq(request->decisions, 1);
    ck_assert_int_eq(request->verdict, verdict);
    ck_assert_mem_eq(&request->acceptance.event_id, &of->acceptance.id, sizeof(struct uuid));
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

static void open_rooms(int connections, const struct sql_statement *told_by)
{
    struct err err = {.kind = ERR_NONE};
    char conninfo[1024];
    (void)snprintf(conninfo, sizeof conninfo, "%s options=-csearch_path=shadow,pg_catalog,public", database_conninfo());
    const struct pg_pool_options pool_options = {.conninfo = conninfo,
                                                 .application_name = "test_acceptor",
                                                 .connections = connections,
                                                 .pipeline = 8,
                                                 .waiting_max = 10};
    ck_assert_msg(pg_pool_open(&loop, &pool_options, &pool, &err), "%s", err.message);
    run_until(database_int(db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'test_acceptor' AND "
                               "state = 'idle'") == connections &&
              pg_pool_ready(pool) && beats_passed(2));
    config.database.connections = connections + 1; /* one more than batches at once */
    ck_assert_msg(nudge_open(&nudge, &loop, pool, told_by, &err), "%s", err.message);
    const struct acceptor_options options = {.loop = &loop,
                                             .pool = pool,
                                             .config = &config,
                                             .batch_size = metrics_series(metrics, 0, NULL, NULL),
                                             .wake = &nudge};
    ck_assert_msg(acceptor_open(&options, &acceptor, &err), "%s", err.message);
}

static void set_up(void)
{
    memset(&config, 0, sizeof config);
    config.limit.count = 1000;
    config.limit.window_ms = config.idempotency.retention_ms = 3600 * 1000;
    decided = 0;
    acceptor_closed = pool_closed = false;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    db = database_open(NULL);
    database_run(db, "DELETE FROM outbox_events; DELETE FROM idempotency_keys; DELETE FROM rate_limit_log");
    make_shadow();
    ck_assert_ptr_nonnull(metrics = metrics_new(families, ARRAY_SIZE(families)));
}

static void tear_down(void)
{
    run_until(acceptor_is_idle(acceptor) && nudge_is_idle(&nudge));
    acceptor_close(acceptor, on_closed, &acceptor_closed);
    run_until(acceptor_closed);
    pg_pool_close(pool, on_closed, &pool_closed);
    run_until(pool_closed);
    nudge_close(&nudge);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    metrics_free(metrics);
    database_run(db, "DROP SCHEMA shadow CASCADE");
    pg_sync_closep(&db);
}

START_TEST(a_request_is_visible_and_nobody_is_told_until_it_is_flushed)
{
    open_rooms(1, &sql_notify_wake);
    database_run(db, HOLD);
    const struct request *request = put(0, "anna", "k");
    run_until(is_held());
    expect_events(1);
    run_until(beats_passed(3));
    ck_assert_int_eq(decided, 0);
    ck_assert(!acceptor_is_idle(acceptor));
    database_run(db, LET_GO);
    run_until(decided == 1);
    expect(request, ACCEPTANCE_ACCEPTED, request);
    ck_assert_int_eq(request->seen, 1);
    expect_events(1);
    ck_assert_int_eq(runs(), 1);
}
END_TEST

/* Also the user's own next one waits here: it has to find the first. */
START_TEST(others_are_told_while_a_flush_hangs)
{
    open_rooms(2, &sql_notify_wake);
    set_flush("IF run = 1 THEN PERFORM pg_advisory_xact_lock_shared(4712); END IF;");
    database_run(db, "SELECT pg_advisory_lock(4712)");
    (void)put(0, "anna", "k");
    run_until(is_held());
    (void)put(1, "anna", "l");
    for (int i = 2; i < REQUESTS; i++) {
        const struct request *other = put(i, "bob", i == 2 ? "k" : "l");
        run_until(decided == i - 1 && pg_pool_in_flight(pool) == 1); /* and the other connection is free again */
        expect(other, ACCEPTANCE_ACCEPTED, other);
    }
    run_until(beats_passed(3));
    ck_assert_int_eq(requests[0].decisions + requests[1].decisions, 0);
    database_run(db, "SELECT pg_advisory_unlock(4712)");
    run_until(decided == REQUESTS);
    for (int i = 0; i < 2; i++)
        expect(&requests[i], ACCEPTANCE_ACCEPTED, &requests[i]);
    expect_events(REQUESTS);
}
END_TEST

/* Refused for now, refused for good, lost with its connection: each is like an unknown COMMIT. */
START_TEST(a_flush_that_was_not_done_is_none_and_the_request_is_recorded_once)
{
    static const char *const faults[] = {
        "IF run = 1 THEN RAISE EXCEPTION 'no' USING ERRCODE = '53100'; END IF;",
        "IF run = 1 THEN RAISE EXCEPTION 'no'; END IF;",
        "IF run = 1 THEN PERFORM pg_terminate_backend(pg_catalog.pg_backend_pid()); PERFORM pg_sleep(60); END IF;",
    };
    open_rooms(1, &sql_notify_wake);
    set_flush(faults[_i]);
    const struct request *request = put(0, "anna", "k");
    run_until(decided == 1);
    expect(request, ACCEPTANCE_ACCEPTED, request);
    ck_assert_int_eq(request->seen, 1);
    ck_assert_int_eq(runs(), 2);
    ck_assert_int_eq(flushes(), 1);
    expect_events(1);
}
END_TEST

START_TEST(a_refused_request_is_told_so_and_its_flush_is_no_verdict)
{
    open_rooms(1, &sql_notify_wake);
    database_run(db, HOLD);
    struct request *request = put(0, "anna", "k");
    request->acceptance.payload = (struct slice){"{", 1}; /* as a bug would have it */
    run_until(is_held());
    run_until(beats_passed(3));
    ck_assert_int_eq(decided, 0); /* the batch may not be used again while its flush is out */
    database_run(db, LET_GO);
    run_until(decided == 1);
    ck_assert_int_eq(request->verdict, ACCEPTANCE_UNAVAILABLE);
    expect_events(0);
}
END_TEST

/* The name of the batch is gone, so it runs again by its text, behind the flush that was meant for it. */
START_TEST(a_flush_that_ran_before_its_batch_is_none)
{
    open_rooms(1, &forget_batch);
    (void)put(0, "anna", "k");
    run_until(decided == 1 && nudge_may_follow(&nudge));
    const struct request *request = put(1, "bob", "k");
    run_until(decided == 2);
    expect(request, ACCEPTANCE_ACCEPTED, request);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM shadow.flushes WHERE seen = 1"),
                     2); /* the second too early */
    ck_assert_int_eq(request->seen, 2);
    expect_events(2);
}
END_TEST

/* Between two sessions behind a pooler the server may have crashed, and lost what was not on disk. */
START_TEST(a_flush_by_another_session_is_none)
{
    open_rooms(1, &sql_notify_wake);
    database_run(db,
                 "CREATE SEQUENCE shadow.sessions; CREATE FUNCTION shadow.pg_backend_pid() RETURNS int LANGUAGE sql "
                 "AS $$ SELECT nextval('shadow.sessions')::int $$");
    const struct request *request = put(0, "anna", "k");
    run_until(decided == 1);
    expect(request, ACCEPTANCE_ACCEPTED, request);
    ck_assert_int_eq(flushes(), 2); /* the second was in the batch's own transaction */
    expect_events(1);
}
END_TEST

START_TEST(a_repeat_is_told_behind_a_flush_too_with_a_nudge_or_without)
{
    open_rooms(1, &sql_notify_wake);
    const struct request *first = put(0, "anna", "k");
    run_until(decided == 1 && nudge_may_follow(&nudge));
    for (int i = 1; i < REQUESTS; i++) { /* from the second on the nudges are in vain */
        database_run(db, HOLD);
        const struct request *repeat = put(i, "anna", "k");
        run_until(is_held());
        run_until(beats_passed(2));
        ck_assert_int_eq(decided, i);
        database_run(db, LET_GO);
        run_until(decided == i + 1);
        expect(repeat, ACCEPTANCE_REPLAYED, first);
        ck_assert_int_eq(flushes(), i + 1);
        run_until(nudge_is_idle(&nudge) && beats_passed(2));
        ck_assert(!nudge_may_follow(&nudge));
    }
    expect_events(1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("acceptor");
    TCase *tcase = tcase_create("acceptor");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_request_is_visible_and_nobody_is_told_until_it_is_flushed);
    tcase_add_test(tcase, others_are_told_while_a_flush_hangs);
    tcase_add_loop_test(tcase, a_flush_that_was_not_done_is_none_and_the_request_is_recorded_once, 0, 3);
    tcase_add_test(tcase, a_refused_request_is_told_so_and_its_flush_is_no_verdict);
    tcase_add_test(tcase, a_flush_that_ran_before_its_batch_is_none);
    tcase_add_test(tcase, a_flush_by_another_session_is_none);
    tcase_add_test(tcase, a_repeat_is_told_behind_a_flush_too_with_a_nudge_or_without);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
