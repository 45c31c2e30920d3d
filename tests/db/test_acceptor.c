/* The story: between the HTTP request and the row there is one module that must give every request its own verdict,
 * exactly once, wake the workers when there is something new to do and only then, and keep two requests of one user
 * apart. The rules of the verdicts themselves are tested in test_accept*.c. Needs a database: its conninfo in
 * ISSUING_TEST_DATABASE. */
#include "api/acceptor.h"
#include "common/lib/base/clock.h"
#include "common/lib/pg/pg_listen.h"

#include "database.h"
#include "run_until.h"
#include "tests/support/suite.h"

#define REQUESTS 150

struct request {
    struct acceptance acceptance;
    char user[32];
    enum acceptance_verdict verdict;
    int decisions;
};

static const struct metric_family families[] = {
    {"batch_size", METRIC_HISTOGRAM, "batch size", {NULL}, metric_buckets_size},
    {"failures", METRIC_COUNTER, "failures", {"reason"}, NULL}};
static const struct sql_statement notify = {
    .name = "notify", .text = "SELECT pg_notify('test_acceptor', '')::text", .shape = SQL_ONE};

static struct pg_pool *pool;
static struct pg_sync *db;
static struct pg_listen *listener;
static struct acceptor *acceptor;
static struct metrics *metrics;
static struct wakeup wakeup;
static struct config config;
static struct request requests[REQUESTS];
static const char *const reasons[ACCEPTANCE_FAILURES] = {"user_lock", "lock", "schema", "late", "moved", "other"};
static struct metric_series *failures[ACCEPTANCE_FAILURES];
static int decided, hints, closed;

static void on_decided(struct acceptance *acceptance, enum acceptance_verdict verdict)
{
    struct request *request = container_of(acceptance, struct request, acceptance);
    request->verdict = verdict;
    request->decisions++;
    decided++;
}

static void submit(int index, const char *user, const char *key, unsigned char fingerprint)
{
    struct request *request = &requests[index];
    *request = (struct request){.acceptance = {.proposed_id = uuid7_make(), .on_decided = on_decided}};
    snprintf(request->user, sizeof(request->user), "%s", user);
    request->acceptance.user_id = request->user;
    struct client_key *client_key = &request->acceptance.client_key;
    client_key->length = (size_t)snprintf(client_key->text, sizeof(client_key->text), "%s", key);
    request->acceptance.fingerprint[0] = fingerprint;
    request->acceptance.payload = SLICE("{\"kind\":\"new\"}");
    ck_assert(acceptor_submit(acceptor, &request->acceptance));
}

static void expect(int index, enum acceptance_verdict verdict)
{
    ck_assert_int_eq(requests[index].decisions, 1);
    ck_assert_int_eq(requests[index].verdict, verdict);
}

static void expect_failures(enum acceptance_failure failure, int count)
{
    ck_assert_int_eq((int)metric_value(failures[failure]), count);
}

static void on_hint(void *context, const char *payload)
{
    (void)payload;
    (void)context;
    hints++;
}

/* Notifications come in the order of their commits: after this one, no other is on its way. */
static void expect_hints(int count)
{
    run_until(wakeup_is_idle(&wakeup));
    database_run(db, "NOTIFY test_acceptor");
    run_until(hints >= count + 1);
    ck_assert_int_eq(hints, count + 1);
    hints = 0;
}

static void on_closed(void *context)
{
    (void)context;
    closed++;
}

static void set_up(void)
{
    struct err err = {0};
    db = database_open(NULL);
    database_run(db, "DELETE FROM outbox_events; DELETE FROM rate_limit_log; DELETE FROM idempotency_keys");
    decided = hints = closed = 0;
    config = (struct config){.database.connections = 3,
                             .limit = {.count = 2, .window_ms = 3600000, .counts = LIMIT_COUNTS_ACCEPTED},
                             .idempotency.retention_ms = INT64_C(86400000) * 60};
    struct pg_pool_options options = {.conninfo = database_conninfo(),
                                      .application_name = "test_acceptor",
                                      .connections = 3,
                                      .pipeline = 4,
                                      .waiting_max = 100,
                                      .schema_least = 1,
                                      .schema_most = INT32_MAX};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    metrics = metrics_new(families, ARRAY_SIZE(families));
    ck_assert_msg(pg_pool_open(&loop, &options, &pool, &err), "%s", err.message);
    ck_assert(pg_listen_open(&loop, database_conninfo(), "test_acceptor", on_hint, NULL, &listener, &err));
    ck_assert(wakeup_open(&wakeup, &loop, pool, &notify, &err));
    struct acceptor_options acceptor_options = {.loop = &loop,
                                                .pool = pool,
                                                .config = &config,
                                                .batch_size = metrics_series(metrics, 0, NULL, NULL),
                                                .wakeup = &wakeup};
    for (int i = 0; i < ACCEPTANCE_FAILURES; i++)
        acceptor_options.failures[i] = failures[i] = metrics_series(metrics, 1, reasons[i], NULL);
    ck_assert_msg(acceptor_open(&acceptor_options, &acceptor, &err), "%s", err.message);
    run_until(pg_pool_ready(pool) && hints == 1); /* the hint that every new connection gives */
    hints = 0;
}

static void tear_down(void)
{
    do /* a check may begin in the last iteration of the loop */
        run_until(acceptor_is_idle(acceptor) && wakeup_is_idle(&wakeup));
    while (!acceptor_is_idle(acceptor));
    acceptor_close(acceptor, on_closed, NULL);
    run_until(closed == 1);
    wakeup_close(&wakeup);
    pg_listen_close(listener, on_closed, NULL);
    pg_pool_close(pool, on_closed, NULL);
    run_until(closed == 3);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    metrics_free(metrics);
    pg_sync_closep(&db);
}

TEST(every_request_gets_its_own_verdict_once)
{
    char user[32];
    for (int i = 0; i < REQUESTS; i++) {
        snprintf(user, sizeof(user), "user-%d", i / 3); /* a user's three are never in one batch */
        submit(i, user, i % 3 == 1 ? "key-1" : "key-0", 1);
    }
    ck_assert_int_eq(decided, 0);
    run_until(decided == REQUESTS);
    for (int i = 0; i < REQUESTS; i++) {
        expect(i, i % 3 == 2 ? ACCEPTANCE_REPLAYED : ACCEPTANCE_ACCEPTED);
        const struct acceptance *acceptance = &requests[i].acceptance, *first = &requests[i - i % 3].acceptance;
        const struct uuid *wanted = i % 3 == 2 ? &first->event_id : &acceptance->proposed_id;
        ck_assert_mem_eq(&acceptance->event_id, wanted, sizeof(*wanted));
        ck_assert_int_eq(acceptance->used, i % 3 == 0 ? 1 : 2);
    }
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM outbox_events"), 2 * REQUESTS / 3);
}

TEST(a_verdict_carries_what_the_answer_needs)
{
    submit(0, "anna", "key-0", 1);
    submit(1, "anna", "key-1", 1);
    submit(2, "anna", "key-2", 1);
    submit(3, "anna", "key-1", 2);
    run_until(decided == 4);
    expect(2, ACCEPTANCE_LIMITED);
    expect(3, ACCEPTANCE_REUSED);
    const struct acceptance *accepted = &requests[1].acceptance, *limited = &requests[2].acceptance;
    ck_assert_int_eq(database_int(db,
                                  "SELECT count(*) FROM outbox_events WHERE idempotency_key = 'key-1' AND "
                                  "created_at = timestamptz 'epoch' + %lld * interval '1 microsecond'",
                                  (long long)accepted->created_us),
                     1);
    int64_t window_us = config.limit.window_ms * 1000;
    ck_assert_int_gt(limited->oldest_in_us, 0);
    ck_assert_int_le(limited->oldest_in_us, window_us);
    ck_assert_int_gt(limited->frees_in_us, 0);
    ck_assert_int_le(limited->frees_in_us, window_us);
    ck_assert_int_le(limited->decided_us, clock_mono_us());
}

TEST(a_recorded_event_wakes_the_workers_and_a_repeat_does_not)
{
    submit(0, "anna", "key-0", 1);
    run_until(decided == 1);
    expect_hints(1);
    submit(1, "anna", "key-0", 1);
    submit(2, "anna", "key-0", 2);
    run_until(decided == 3);
    expect(1, ACCEPTANCE_REPLAYED);
    expect(2, ACCEPTANCE_REUSED);
    expect_hints(0);
    submit(3, "berta", "key-0", 1);
    run_until(decided == 4);
    expect_hints(1);
}

TEST(a_user_whose_lock_is_held_is_told_and_the_others_pass)
{
    char user[32];
    /* Of user-7 the same key is being recorded, of user-8 another one. */
    database_run(
        db, "BEGIN; SELECT count(*) FROM issuing.accept(ARRAY[gen_random_uuid(), gen_random_uuid()], "
            "ARRAY['user-7', 'user-8'], ARRAY['key-0', 'key-1'], array_fill(decode(repeat('00', 32), 'hex'), "
            "ARRAY[2]), array_fill('{\"kind\":\"new\"}'::text, ARRAY[2]), "
            "ARRAY[NULL, NULL]::text[], ARRAY[NULL, NULL]::text[], 2, interval '1 hour', false, interval '60 days')");
    for (int i = 0; i < 20; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        submit(i, user, "key-0", 1);
    }
    run_until(decided == 20);
    database_run(db, "ROLLBACK");
    for (int i = 0; i < 20; i++)
        expect(i, i == 7 ? ACCEPTANCE_IN_PROGRESS : i == 8 ? ACCEPTANCE_USER_BUSY : ACCEPTANCE_ACCEPTED);
    expect_failures(ACCEPTANCE_USER_LOCK, 1);
    ck_assert_str_eq(acceptor_note(acceptor), "");
}

/* More held users than there are connections: the others are recorded while those are asked again. */
TEST(held_locks_hold_no_connection)
{
    enum { HELD = 40 };
    char user[32];
    database_run(db, "SELECT pg_advisory_lock(issuing.user_lock('held-' || n, salt)) FROM issuing.lock_salt, "
                     "generate_series(0, 39) n");
    for (int i = 0; i < HELD; i++) {
        snprintf(user, sizeof(user), "held-%d", i);
        submit(i, user, "key-0", 1);
    }
    for (int i = HELD; i < HELD + 20; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        submit(i, user, "key-0", 1);
    }
    run_until(decided >= 20);
    for (int i = HELD; i < HELD + 20; i++)
        expect(i, ACCEPTANCE_ACCEPTED);
    run_until(decided == HELD + 20);
    for (int i = 0; i < HELD; i++)
        expect(i, ACCEPTANCE_USER_BUSY);
    ck_assert_str_ne(acceptor_note(acceptor), "");
    ck_assert_str_eq(acceptor_why_not(acceptor), "");
    database_run(db, "SELECT pg_advisory_unlock_all()");
    decided = 0;
    submit(0, "held-0", "key-0", 1);
    run_until(decided == 1);
    expect(0, ACCEPTANCE_ACCEPTED);
}

/* Somebody who may lock the table, and not another request of the user. */
TEST(a_lock_on_a_table_is_not_taken_for_a_key_that_is_being_recorded)
{
    database_run(db, "BEGIN; LOCK TABLE issuing.rate_limit_log IN EXCLUSIVE MODE");
    submit(0, "anna", "key-0", 1);
    run_until(decided == 1);
    database_run(db, "ROLLBACK");
    expect(0, ACCEPTANCE_UNAVAILABLE);
    expect_failures(ACCEPTANCE_LOCK, 1);
}

/* The row of one request breaks a rule: that says nothing about the others. */
TEST(one_request_that_is_refused_alone_says_nothing_of_the_others)
{
    database_run(db, "ALTER TABLE issuing.rate_limit_log ADD CONSTRAINT picky CHECK (user_id <> 'poison') NOT VALID");
    submit(0, "anna", "key-0", 1);
    submit(1, "poison", "key-0", 1);
    submit(2, "berta", "key-0", 1);
    run_until(decided == 3);
    database_run(db, "ALTER TABLE issuing.rate_limit_log DROP CONSTRAINT picky");
    expect(0, ACCEPTANCE_ACCEPTED);
    expect(1, ACCEPTANCE_UNAVAILABLE);
    expect(2, ACCEPTANCE_ACCEPTED);
    expect_failures(ACCEPTANCE_SCHEMA, 1);
    ck_assert_str_eq(acceptor_why_not(acceptor), "");
}

/* A rule, a right or a function that a colleague has changed: no request is recorded any more. The program says so, and
 * finds out by itself when it works again, since no client is sent to it meanwhile. */
TEST(a_schema_that_refuses_everybody_is_told_until_it_works_again)
{
    static const char *const faults[][2] = {
        {"ALTER TABLE issuing.rate_limit_log ADD CONSTRAINT nobody CHECK (user_id = '') NOT VALID",
         "ALTER TABLE issuing.rate_limit_log DROP CONSTRAINT nobody"},
        {"ALTER TABLE issuing.lock_salt RENAME TO lock_nobody", "ALTER TABLE issuing.lock_nobody RENAME TO lock_salt"},
        {"ALTER TABLE issuing.idempotency_keys RENAME COLUMN fingerprint TO footprint",
         "ALTER TABLE issuing.idempotency_keys RENAME COLUMN footprint TO fingerprint"},
    };
    for (int i = 0; i < (int)ARRAY_SIZE(faults); i++) {
        char user[32];
        snprintf(user, sizeof(user), "user-%d", i);
        decided = 0;
        database_run(db, faults[i][0]);
        submit(i, user, "key-0", 1);
        run_until(decided == 1);
        expect(i, ACCEPTANCE_UNAVAILABLE);
        ck_assert_str_ne(acceptor_why_not(acceptor), "");
        database_run(db, faults[i][1]);
        run_until(!acceptor_why_not(acceptor)[0]);
        submit(i, user, "key-0", 1);
        run_until(decided == 2);
        expect(i, ACCEPTANCE_ACCEPTED);
    }
    expect_failures(ACCEPTANCE_SCHEMA, ARRAY_SIZE(faults));
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM outbox_events WHERE user_id NOT LIKE 'user-%%'"), 0);
}

/* Not of the schema: readiness follows all the same. */
TEST(whatever_refuses_everybody_is_told_until_it_is_gone)
{
    database_run(db, "BEGIN; LOCK TABLE issuing.rate_limit_log IN EXCLUSIVE MODE");
    submit(0, "anna", "key-0", 1);
    run_until(decided == 1 && acceptor_why_not(acceptor)[0]);
    database_run(db, "ROLLBACK");
    run_until(!acceptor_why_not(acceptor)[0]);
    database_run(db,
                 "CREATE FUNCTION fills() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE out_of_memory; END'; "
                 "CREATE TRIGGER fills BEFORE INSERT ON issuing.rate_limit_log_default FOR EACH STATEMENT EXECUTE "
                 "FUNCTION fills(); CREATE TRIGGER fills BEFORE INSERT ON issuing.rate_limit_log FOR EACH STATEMENT "
                 "EXECUTE FUNCTION fills()");
    submit(1, "berta", "key-0", 1);
    run_until(acceptor_why_not(acceptor)[0]);
    ck_assert_int_eq(decided, 1); /* it is tried again meanwhile */
    database_run(db, "DROP FUNCTION fills() CASCADE");
    run_until(decided == 2);
    expect(1, ACCEPTANCE_ACCEPTED);
    run_until(!acceptor_why_not(acceptor)[0]);
}

/* No worker has passed for a day, so nobody took the plan back; now its range has begun. */
TEST(what_housekeeping_has_promised_refuses_nobody)
{
    static const char *const tables[] = {"rate_limit_log", "idempotency_keys", "outbox_events"};
    database_run(db, "DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM issuing.partitions LOOP "
                     "EXECUTE format('DROP TABLE issuing.%I', p); END LOOP; DELETE FROM issuing.partitions; END $$");
    for (int i = 0; i < (int)ARRAY_SIZE(tables); i++) {
        char user[32];
        snprintf(user, sizeof(user), "user-%d", i);
        database_exec(
            db,
            "INSERT INTO issuing.partition_plans (parent, from_at, to_at, planned_at) VALUES ('%s', now() - "
            "interval '1 min', now() + interval '1 h', now() - interval '1 day'); "
            "SELECT issuing.default_promise(parent || '_default', from_at, to_at) FROM issuing.partition_plans",
            tables[i]);
        submit(i, user, "key-0", 1);
        run_until(decided == i + 1);
        expect(i, ACCEPTANCE_ACCEPTED);
        ck_assert_int_eq(database_int(db, "SELECT count(*) FROM issuing.partition_plans"), 0);
    }
    ck_assert_str_eq(acceptor_why_not(acceptor), "");
}

/* Every session that may connect can take an advisory lock whose key it knows. */
TEST(no_lock_that_another_role_can_take_stops_a_user)
{
    database_run(db,
                 "SELECT pg_advisory_lock(hashtextextended('anna', 4711)), pg_advisory_lock(hashtextextended('anna', "
                 "4712)), pg_advisory_lock(4711, 1)");
    submit(0, "anna", "key-0", 1);
    run_until(decided == 1);
    expect(0, ACCEPTANCE_ACCEPTED);
    database_run(db, "SELECT pg_advisory_unlock_all()");
}

/* Another server does, or will soon: all clients of the batch are told to come back at once. */
TEST(users_whose_place_has_moved_are_told)
{
    database_run(db, "CREATE FUNCTION elsewhere() RETURNS trigger LANGUAGE plpgsql AS "
                     "'BEGIN RAISE ''not here'' USING ERRCODE = ''ISPLC''; END'; "
                     "CREATE TRIGGER elsewhere BEFORE INSERT ON issuing.rate_limit_log EXECUTE FUNCTION elsewhere()");
    submit(0, "anna", "key-0", 1);
    submit(1, "berta", "key-0", 1);
    submit(2, "clara", "key-0", 1);
    run_until(decided == 3);
    database_run(db, "DROP FUNCTION elsewhere() CASCADE");
    for (int i = 0; i < 3; i++)
        expect(i, ACCEPTANCE_USER_MOVING);
    expect_failures(ACCEPTANCE_MOVED, 3);
    ck_assert_str_eq(acceptor_why_not(acceptor), "");
}

TESTS_BETWEEN(acceptor, set_up, tear_down)
