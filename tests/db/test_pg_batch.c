/* The story: hundreds of requests share one statement and one commit. If that statement is refused, cut off or held up,
 * each of them must still get a result of its own, exactly once, and the right one: a bad item must not take its
 * neighbours along, an unknown commit must be settled by the same statement, and what cannot be written in time must
 * end. Needs a database: its conninfo (keyword=value) in ISSUING_TEST_DATABASE. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/pg/pg_batch.h"

#include "database.h"
#include "run_until.h"
#include "tests/support/suite.h"

#define APPLICATION "test_pg_batch"
#define ITEMS 400
#define ITEMS_MAX 64

enum result { NOTHING, WRITTEN, REFUSED, GIVEN_UP };

struct thing {
    struct pg_batch_item item;
    int64_t number;
    enum result result;
    int tries;   /* how often it was part of a statement */
    int results; /* how often it ended */
    int repeats; /* so often it is sent again when it is refused */
    int place;   /* how many ended before it */
    char why[200];
};

static struct pg_pool *pool;
static struct pg_sync *db; /* beside the pool */
static struct pg_batcher *batcher;
static struct thing things[ITEMS];
static int ended, batches, batch_sizes[ITEMS];
static int64_t timeout_ms; /* of a statement */
static int gather_items;
static bool is_batcher_closed, is_pool_closed;

/* A number below zero is refused for good. The row of a number that is there already stays, so it may run twice. */
static const struct sql_statement insert = {
    .name = "insert",
    .by_name = true,
    .text = "INSERT INTO test_pg_batch SELECT n, 1 / (n >= 0)::int, $2::text FROM unnest($1::int8[]) AS n "
            "ON CONFLICT (n) DO UPDATE SET runs = test_pg_batch.runs + 1 RETURNING n",
    .parameters = 2,
    .shape = SQL_MANY};
/* The same, behind a lock that the test holds. */
static const struct sql_statement insert_behind_lock = {
    .name = "insert_behind_lock",
    .text = "INSERT INTO test_pg_batch SELECT n, 1, $2::text FROM unnest($1::int8[]) AS n, "
            "(SELECT pg_advisory_xact_lock_shared(4711) OFFSET 0) AS l RETURNING n",
    .parameters = 2,
    .shape = SQL_MANY};

static void end_thing(struct pg_batch_item *item, enum result result, const char *why)
{
    struct thing *thing = container_of(item, struct thing, item);
    thing->result = result;
    thing->results++;
    thing->place = ended++;
    snprintf(thing->why, sizeof(thing->why), "%s", why);
}

static void add_row(void *context, struct pg_columns *columns, const struct pg_batch_item *item)
{
    ck_assert_ptr_eq(context, things);
    struct thing *thing = &things[container_of(item, struct thing, item) - things];
    thing->tries++;
    pg_columns_add_int8(columns, thing->number);
    pg_columns_set_scalar(columns, pg_param_text("by us", 5));
}

static void on_done(void *context, struct pg_batch_item **items, int count, const struct pg_rows *rows)
{
    ck_assert_ptr_eq(context, things);
    ck_assert_int_eq(pg_rows_count(rows), count);
    batch_sizes[batches++] = count;
    for (int i = 0; i < count; i++)
        end_thing(items[i], WRITTEN, "");
}

static bool on_refused(void *context, struct pg_batch_item *item, const struct pg_query_result *result)
{
    struct thing *thing = container_of(item, struct thing, item);
    ck_assert_ptr_eq(context, things);
    ck_assert_str_eq(result->sqlstate, "22012");
    if (thing->repeats-- > 0)
        return true;
    end_thing(item, REFUSED, result->message);
    return false;
}

static void on_given_up(void *context, struct pg_batch_item *item, const char *why)
{
    ck_assert_ptr_eq(context, things);
    end_thing(item, GIVEN_UP, why);
}

static const struct pg_batcher_hooks hooks = {
    .add_row = add_row,
    .on_done = on_done,
    .on_refused = on_refused,
    .on_given_up = on_given_up,
};

static void on_closed(void *context)
{
    *(bool *)context = true;
}

static void open_pool(const char *extra, int connections)
{
    struct err err = {0};
    char *conninfo = NULL;
    ck_assert_int_ge(asprintf(&conninfo, "%s %s", database_conninfo(), extra), 0);
    struct pg_pool_options options = {.conninfo = conninfo,
                                      .application_name = APPLICATION,
                                      .connections = connections,
                                      .pipeline = 4,
                                      .waiting_max = 100};
    ck_assert_msg(pg_pool_open(&loop, &options, &pool, &err), "%s", err.message);
    free(conninfo);
}

static void open_batcher(const struct sql_statement *statement, int batch_count, int64_t away_timeout_ms)
{
    struct err err = {0};
    struct pg_batcher_options options = {.loop = &loop,
                                         .pool = pool,
                                         .statement = statement,
                                         .hooks = &hooks,
                                         .context = things,
                                         .batch_count = batch_count,
                                         .items_max = ITEMS_MAX,
                                         .array_bytes_max = 65536,
                                         .growth = 2,
                                         .gather_ms = 3600000,
                                         .gather_items = gather_items,
                                         .timeout_ms = timeout_ms,
                                         .retry_base_ms = 10,
                                         .retry_cap_ms = 20,
                                         .away_timeout_ms = away_timeout_ms};
    ck_assert_msg(pg_batcher_open(&options, &batcher, &err), "%s", err.message);
}

static void open_all(const struct sql_statement *statement, int batch_count)
{
    open_pool("", 3);
    run_until(pg_pool_ready(pool));
    open_batcher(statement, batch_count, 0);
}

/* since_ms is long ago: how long one has waited matters in one test only. */
static void add(int index, int64_t number, int64_t within_ms)
{
    things[index] = (struct thing){.number = number, .item = {.deadline_ms = clock_mono_ms() + within_ms}};
    pg_batcher_add(batcher, &things[index].item);
}

static void expect(int from, int to, enum result result)
{
    for (int i = from; i < to; i++) {
        ck_assert_int_eq(things[i].results, 1);
        ck_assert_msg(things[i].result == result, "%d: %d, %s", i, (int)things[i].result, things[i].why);
    }
}

static int64_t waiting_for_lock(void)
{
    return database_int(db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
}

static void set_up(void)
{
    memset(things, 0, sizeof(things));
    ended = batches = 0;
    timeout_ms = 60000;
    gather_items = 0;
    is_batcher_closed = is_pool_closed = false;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    db = database_open(NULL);
    database_run(db, "DROP TABLE IF EXISTS test_pg_batch; "
                     "CREATE TABLE test_pg_batch (n int8 PRIMARY KEY, runs int8 NOT NULL, who text NOT NULL)");
}

static void tear_down(void)
{
    database_run(db, "SELECT pg_advisory_unlock_all()");
    run_until(pg_batcher_is_idle(batcher));
    pg_batcher_close(batcher, on_closed, &is_batcher_closed);
    run_until(is_batcher_closed);
    pg_pool_close(pool, on_closed, &is_pool_closed);
    run_until(is_pool_closed);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    database_run(db, "DROP TABLE test_pg_batch");
    pg_sync_closep(&db);
}

TEST(what_is_added_in_one_iteration_travels_together_and_each_ends_once)
{
    open_all(&insert, 1);
    for (int i = 0; i < 100; i++)
        add(i, i, 60000);
    ck_assert_int_eq(ended, 0);
    run_until(ended == 100);
    expect(0, 100, WRITTEN);
    ck_assert_int_eq(batches, 2);
    ck_assert_int_eq(batch_sizes[0], ITEMS_MAX);
    ck_assert_int_eq(batch_sizes[1], 100 - ITEMS_MAX);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(things[i].place, i); /* in the order in which they were added */
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM test_pg_batch WHERE runs = 1 AND who = 'by us'"), 100);
}

TEST(under_load_a_small_batch_waits_for_more_items)
{
    gather_items = 12;
    open_all(&insert, 2);
    for (int i = 0; i < 3; i++)
        add(i, i, 60000);
    run_until(ended == 3);
    for (int i = 3; i < 43; i++) /* after a small one it starts at once */
        add(i, i, 60000);
    run_until(ended == 43);
    for (int i = 43; i < 54; i++) /* after a large one it is gathered */
        add(i, i, 60000);
    run_until(beats_passed(5));
    ck_assert_int_eq(batches, 2);
    add(54, 54, 60000);
    run_until(ended == 55);
    ck_assert_int_eq(batches, 3);
    ck_assert_int_eq(batch_sizes[2], 12);
    /* What goes alone waits for nothing. */
    things[55] = (struct thing){.number = 55, .item = {.deadline_ms = clock_mono_ms() + 60000}};
    pg_batcher_add_again(batcher, &things[55].item, true);
    run_until(ended == 56);
    expect(0, 56, WRITTEN);
}

/* That libuv runs this prepare handle before the pool's is not in its documentation. */
TEST(a_batch_is_sent_in_the_iteration_in_which_its_items_were_added)
{
    open_all(&insert_behind_lock, 1);
    run_until(beats_passed(2));
    database_run(db, "SELECT pg_advisory_lock(4711)");
    add(0, 0, 60000);
    (void)uv_run(&loop, UV_RUN_NOWAIT); /* one iteration, and no other until the server has the statement */
    for (int i = 0; i < stuck_after_ms() / 10 && waiting_for_lock() == 0; i++)
        ck_assert_int_eq(usleep(10 * 1000), 0);
    ck_assert_int_eq(waiting_for_lock(), 1);
    database_run(db, "SELECT pg_advisory_unlock(4711)");
    run_until(ended == 1);
    expect(0, 1, WRITTEN);
}

TEST(one_that_is_refused_does_not_hurt_its_neighbours)
{
    open_all(&insert, 2);
    for (int i = 0; i < 20; i++)
        add(i, i == 7 ? -1 : i, 60000);
    run_until(ended == 20);
    expect(0, 7, WRITTEN);
    expect(7, 8, REFUSED);
    expect(8, 20, WRITTEN);
    ck_assert_str_eq(things[7].why, "insert: division by zero");
    for (int i = 0; i < batches; i++)
        ck_assert_int_eq(batch_sizes[i], 1);
    add(20, 20, 60000); /* and those that come later go together again */
    add(21, 21, 60000);
    run_until(ended == 22);
    ck_assert_int_eq(batch_sizes[batches - 1], 2);
}

TEST(what_was_split_goes_before_what_came_later)
{
    open_all(&insert, 1);
    for (int i = 0; i < 3; i++)
        add(i, i == 1 ? -1 : i, 60000);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    for (int i = 3; i < 6; i++)
        add(i, i, 60000);
    run_until(ended == 6);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(things[i].place, i);
    ck_assert_int_eq(batch_sizes[batches - 1], 3);
}

TEST(one_that_is_refused_may_be_sent_again)
{
    open_all(&insert, 1);
    add(0, -1, 60000);
    things[0].repeats = 3;
    run_until(ended == 1);
    expect(0, 1, REFUSED);
    ck_assert_int_eq(things[0].repeats, -1);
}

TEST(an_unknown_outcome_is_settled_by_the_same_statement)
{
    open_all(&insert_behind_lock, 1);
    database_run(db, "SELECT pg_advisory_lock(4711)");
    for (int i = 0; i < 10; i++)
        add(i, i, 60000);
    run_until(waiting_for_lock() == 1);
    database_run(db, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = "
                     "'" APPLICATION "'");
    run_until(things[0].item.may_be_done);
    ck_assert_int_eq(ended, 0);
    database_run(db, "SELECT pg_advisory_unlock(4711)");
    run_until(ended == 10);
    expect(0, 10, WRITTEN);
    ck_assert_int_eq(batches, 1);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM test_pg_batch WHERE runs = 1"), 10);
}

TEST(after_an_unknown_outcome_only_those_with_time_left_are_tried_again)
{
    open_all(&insert_behind_lock, 1);
    database_run(db, "SELECT pg_advisory_lock(4711)");
    for (int i = 0; i < 10; i++)
        add(i, i, i < 5 ? 1 : 60000);
    run_until(waiting_for_lock() == 1);
    run_until(beats_passed(2));
    database_run(db, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = "
                     "'" APPLICATION "'");
    run_until(ended == 5);
    expect(0, 5, GIVEN_UP);
    for (int i = 0; i < 5; i++)
        ck_assert(things[i].item.may_be_done); /* its owner can tell "not written" from "perhaps written" */
    database_run(db, "SELECT pg_advisory_unlock(4711)");
    run_until(ended == 10);
    expect(5, 10, WRITTEN);
}

TEST(a_batch_that_hangs_does_not_hold_up_the_next)
{
    open_all(&insert_behind_lock, 2);
    database_run(db, "SELECT pg_advisory_lock(4711)");
    for (int i = 0; i < 10; i++)
        add(i, i, 60000);
    run_until(waiting_for_lock() == 1);
    add(10, 10, 60000); /* less than twice as many */
    run_until(things[10].tries == 1);
    ck_assert_int_eq(ended, 0);
    database_run(db, "SELECT pg_advisory_unlock(4711)");
    run_until(ended == 11);
    expect(0, 11, WRITTEN);
    ck_assert_int_eq(batches, 2);
}

TEST(an_item_that_cannot_be_sent_is_tried_until_its_deadline)
{
    timeout_ms = 100;
    open_pool("host=127.0.0.1 port=1", 1);
    open_batcher(&insert, 1, 0);
    add(0, 0, 1);
    add(1, 1, 500);
    run_until(ended == 2);
    expect(0, 2, GIVEN_UP);
    ck_assert_int_eq(things[0].tries, 1); /* at least once, although its time was over */
    ck_assert_int_gt(things[1].tries, 1);
    ck_assert(!things[1].item.may_be_done);
}

TEST(an_item_with_a_caller_is_given_up_as_soon_as_it_cannot_be_sent)
{
    open_pool("host=127.0.0.1 port=1", 1);
    open_batcher(&insert, 1, 100);
    for (int i = 0; i < 200; i++)
        add(i, i, 60000); /* those beyond the first batch have waited as long */
    run_until(ended == 200);
    expect(0, 200, GIVEN_UP);
    ck_assert(!things[0].item.may_be_done);
    ck_assert_str_eq(things[0].why, "insert: no connection to the database in time");
}

TEST(an_item_with_a_caller_whose_time_is_over_is_not_tried)
{
    open_pool("", 1);
    run_until(pg_pool_ready(pool));
    open_batcher(&insert_behind_lock, 1, 60000);
    database_run(db, "SELECT pg_advisory_lock(4711)");
    add(0, 0, 60000);
    run_until(waiting_for_lock() == 1);
    for (int i = 1; i < ITEMS; i++) /* more than are given up in one iteration */
        add(i, i, 1);
    run_until(beats_passed(2));
    database_run(db, "SELECT pg_advisory_unlock(4711)");
    run_until(ended == ITEMS);
    expect(0, 1, WRITTEN);
    expect(1, ITEMS, GIVEN_UP);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM test_pg_batch"), 1);
}

/* The writer's: its database does not serve these users, and soon will, or another one will. */
TEST(what_nobody_waits_for_is_tried_again_while_its_users_are_not_served)
{
    open_all(&insert, 1);
    database_run(db, "CREATE OR REPLACE FUNCTION elsewhere() RETURNS trigger LANGUAGE plpgsql AS "
                     "'BEGIN RAISE ''not here'' USING ERRCODE = ''ISPLC''; END'; "
                     "CREATE TRIGGER elsewhere BEFORE INSERT ON test_pg_batch EXECUTE FUNCTION elsewhere()");
    for (int i = 0; i < 3; i++)
        add(i, i, 60000);
    run_until(things[2].tries >= 3);
    ck_assert_int_eq(ended, 0);
    database_run(db, "DROP FUNCTION elsewhere() CASCADE");
    run_until(ended == 3);
    expect(0, 3, WRITTEN);
    ck_assert_int_eq(batch_sizes[0], 3); /* nor was it split */
}

TESTS_BETWEEN(pg_batch, set_up, tear_down)
