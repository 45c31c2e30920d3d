/* The story: all reads waited in one queue, and a full queue became an outage. So a read is sent when it is its user's
 * turn, or refused: never within the call, and each exactly once, with the database or without. Needs a database: its
 * conninfo (keyword=value) in ISSUING_TEST_DATABASE. */
#include "database.h"
#include "run_until.h"

#include "api/reads.h"
#include "common/lib/base/clock.h"
#include "tests/support/suite.h"

#define READS 6000
#define CONNECTIONS 2
#define OUT_MAX 8 /* one connection is acceptance's */
#define OF_USER 1

struct asking {
    struct reading reading; /* first */
    struct pg_query query;
    int turns, answers, refusals, place;
    enum pg_kind kind;
};

static struct pg_sync *db;
static struct pg_pool *pool;
static struct reads *reads;
static struct users users;
static struct metrics *metrics;
static struct metric_series *refused;
static struct asking askings[READS];
static int over, refusals;
static bool inside_put, reads_closed, pool_closed;

static const struct sql_statement wait_for_lock = {
    .name = "wait_for_lock", .text = "SELECT pg_advisory_xact_lock(4713)::text", .shape = SQL_ONE};
static const struct metric_family family = {"refused_total", METRIC_COUNTER, "Refused.", {NULL, NULL}, NULL};

static void on_result(struct pg_query *query, const struct pg_query_result *answer)
{
    struct asking *asking = container_of(query, struct asking, query);
    reads_finish(reads, &asking->reading);
    asking->answers++;
    asking->place = over++;
    asking->kind = answer->kind;
}

static void on_admitted(struct reading *reading)
{
    struct asking *asking = (struct asking *)reading;
    asking->turns++;
    asking->query = (struct pg_query){.statement = &wait_for_lock,
                                      .timeout_ms = reads_left_ms(reads, reading),
                                      .on_result = on_result,
                                      .yields = true};
    pg_pool_submit(pool, &asking->query);
}

static void on_refused(struct reading *reading, const char *why)
{
    struct asking *asking = (struct asking *)reading;
    ck_assert(!inside_put);
    ck_assert_msg(why[0] != '\0', "a reason");
    asking->refusals++;
    asking->place = over++;
    refusals++;
}

static void put(int index, const char *user)
{
    askings[index] = (struct asking){.reading = {.on_admitted = on_admitted, .on_refused = on_refused}};
    inside_put = true;
    reads_submit(reads, &askings[index].reading, user);
    inside_put = false;
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

static void open_all(const char *conninfo)
{
    struct err err = {0};
    struct pg_pool_options options = {.conninfo = conninfo,
                                      .application_name = "test_reads",
                                      .connections = CONNECTIONS,
                                      .pipeline = 32,
                                      .waiting_max = 100};
    ck_assert_msg(pg_pool_open(&loop, &options, &pool, &err), "%s", err.message);
    struct reads_options reads_options = {
        .loop = &loop, .pool = pool, .users = &users, .connections = CONNECTIONS, .refused = refused};
    ck_assert_msg(reads_open(&reads_options, &reads, &err), "%s", err.message);
}

static void set_up(void)
{
    over = refusals = 0;
    inside_put = reads_closed = pool_closed = false;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    metrics = metrics_new(&family, 1);
    ck_assert_ptr_nonnull(metrics);
    refused = metrics_series(metrics, 0, NULL, NULL);
    db = database_open(NULL);
}

static void tear_down(void)
{
    reads_close(reads, on_closed, &reads_closed);
    pg_pool_close(pool, on_closed, &pool_closed);
    run_until(reads_closed && pool_closed);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(users.count, 0);
    metrics_free(metrics);
    pg_sync_closep(&db);
}

static void open_with_database(void)
{
    open_all(database_conninfo());
    run_until(pg_pool_ready(pool));
}

TEST(a_user_who_reads_much_is_overtaken)
{
    enum { MUCH = 100, OTHERS = 20 };
    open_with_database();
    database_run(db, "SELECT pg_advisory_lock(4713)");
    for (int i = 0; i < MUCH; i++)
        put(i, "hog");
    for (int i = 0; i < OTHERS; i++) {
        char user[16];
        snprintf(user, sizeof(user), "user-%d", i);
        put(MUCH + i, user);
    }
    ck_assert_int_eq(reads_waiting(reads), MUCH + OTHERS - OUT_MAX);
    run_until(askings[0].query.sent);
    database_run(db, "SELECT pg_advisory_unlock(4713)");
    run_until(over == MUCH + OTHERS);
    for (int i = 0; i < MUCH + OTHERS; i++) {
        ck_assert_int_eq(askings[i].turns, 1);
        ck_assert_int_eq(askings[i].answers, 1);
        ck_assert_int_eq(askings[i].kind, PG_DONE);
    }
    /* After the one that was out. */
    for (int i = 0; i < OTHERS; i++)
        ck_assert_int_le(askings[MUCH + i].place, OF_USER + OTHERS);
    ck_assert_int_eq(refusals, 0);
}

TEST(refusals_come_from_the_loop_and_only_so_many_of_them_at_once)
{
    enum { MORE = 1000 };
    static const int full = OF_USER + READ_QUEUE_WAITING_OF_USER;
    open_with_database();
    database_run(db, "SELECT pg_advisory_lock(4713)");
    for (int i = 0; i < full + MORE; i++)
        put(i, "hog");
    ck_assert_int_eq(over, 0);
    run_until(refusals > 0);
    ck_assert_int_eq(refusals, READS_REFUSED_AT_ONCE);
    put(full + MORE, "anna");
    database_run(db, "SELECT pg_advisory_unlock(4713)");
    run_until(over == full + MORE + 1);
    ck_assert_int_eq(askings[full + MORE].kind, PG_DONE);
    ck_assert_int_eq(askings[full + MORE].answers, 1);
    for (int i = 0; i < full + MORE; i++)
        ck_assert_int_eq(askings[i].answers + askings[i].refusals, 1);
    for (int i = full; i < full + MORE; i++)
        ck_assert_int_eq(askings[i].refusals, 1);
}

TEST(without_a_database_no_read_waits_for_long)
{
    open_all("host=127.0.0.1 port=1");
    for (int i = 0; i < 100; i++)
        put(i, i % 2 ? "hog" : "anna");
    run_until(over == 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(askings[i].answers + askings[i].refusals, 1);
        if (askings[i].answers)
            ck_assert_int_eq(askings[i].kind, PG_NOT_SENT);
    }
    ck_assert_int_eq(reads_waiting(reads), 0);
}

/* A backend that does not answer: who waits behind it is turned away before it is given up, and costs no connection. */
TEST(who_waits_too_long_is_turned_away)
{
    open_with_database();
    database_run(db, "SELECT pg_advisory_lock(4713)");
    for (int i = 0; i < 50; i++)
        put(i, "hog");
    run_until(refusals == 50 - OF_USER);
    for (int i = OF_USER; i < 50; i++)
        ck_assert_int_eq(askings[i].turns, 0);
    database_run(db, "SELECT pg_advisory_unlock(4713)");
    run_until(over == 50);
    for (int i = 0; i < OF_USER; i++)
        ck_assert_int_eq(askings[i].kind, PG_DONE);
}

TESTS_BETWEEN(reads, set_up, tear_down)
