/* The story: many clients wait and hold no connection, and the session that receives the wakeups listens only while a
 * client waits. No client may wait past the end of its request, also when it came while the session did not listen, or
 * when the wakeup was lost. Needs a database: its conninfo (keyword=value) in ISSUING_TEST_DATABASE. */
#include "database.h"
#include "run_until.h"

#include "api/waiters.h"
#include "common/lib/base/clock.h"
#include "tests/support/suite.h"

#define WAITERS 50

static struct pg_sync *db;
static struct pg_pool *pool;
static struct waiters *waiters;
static struct users users;
static struct waiter waiting[WAITERS];
static int readies;
static bool waiters_closed, pool_closed;

static void on_ready(struct waiter *waiter)
{
    ck_assert(!waiter->is_waiting);
    readies++;
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

/* Its session did this last; "" = nothing yet. */
static bool session_did(const char *text)
{
    return database_int(db,
                        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'issuing-listen' "
                        "AND datname = current_database() AND state = 'idle' AND query = '%s'",
                        text) == 1;
}

static void put_event(const struct uuid *id)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(id, text);
    database_exec(db, "INSERT INTO outbox_events (id, user_id, payload) VALUES ('%s', 'anna', '{\"kind\": \"new\"}')",
                  text);
}

static void end_event(const struct uuid *id)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(id, text);
    database_exec(db, "UPDATE outbox_events SET status = 'COMPLETED', completed_at = now() WHERE id = '%s'", text);
}

static void start_waiting(int index, int64_t for_ms)
{
    waiting[index] = (struct waiter){.id = uuid7_make(), .deadline_ms = clock_mono_ms() + for_ms, .on_ready = on_ready};
    put_event(&waiting[index].id);
    ck_assert(waiters_add(waiters, &waiting[index], "anna"));
}

static void set_up(void)
{
    struct err err = {0};
    struct pg_pool_options options = {.conninfo = database_conninfo(),
                                      .application_name = "test_waiters",
                                      .connections = 1,
                                      .pipeline = 4,
                                      .waiting_max = 10};
    readies = 0;
    waiters_closed = pool_closed = false;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    db = database_open(NULL);
    database_run(db, "DELETE FROM outbox_events");
    ck_assert_msg(pg_pool_open(&loop, &options, &pool, &err), "%s", err.message);
    ck_assert_msg(waiters_open(&loop, pool, &users, database_conninfo(), &waiters, &err), "%s", err.message);
    run_until(pg_pool_ready(pool) && session_did(""));
}

static void tear_down(void)
{
    waiters_stop(waiters);
    run_until(waiters_is_idle(waiters));
    waiters_close(waiters, on_closed, &waiters_closed);
    run_until(waiters_closed);
    pg_pool_close(pool, on_closed, &pool_closed);
    run_until(pool_closed);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(users.count, 0);
    pg_sync_closep(&db);
}

TEST(each_is_ready_when_its_request_is_final_and_no_other)
{
    for (int i = 0; i < WAITERS; i++)
        start_waiting(i, 60000);
    ck_assert_int_eq(waiters_count(waiters), WAITERS);
    run_until(session_did("LISTEN issuing_final"));
    for (int i = 0; i < WAITERS; i += 2)
        end_event(&waiting[i].id);
    database_run(db, "NOTIFY issuing_final");
    run_until(readies == WAITERS / 2);
    for (int i = 0; i < WAITERS; i++)
        ck_assert_int_eq(waiting[i].is_waiting, i % 2);
}

TEST(a_change_without_a_notification_is_found_all_the_same)
{
    start_waiting(0, 60000);
    run_until(session_did("LISTEN issuing_final") && beats_passed(20)); /* its hint was followed */
    end_event(&waiting[0].id);
    run_until(readies == 1);
}

TEST(what_is_over_before_the_wait_is_found_at_once)
{
    waiting[0] = (struct waiter){.id = uuid7_make(), .deadline_ms = clock_mono_ms() + 60000, .on_ready = on_ready};
    put_event(&waiting[0].id);
    end_event(&waiting[0].id);
    ck_assert(waiters_add(waiters, &waiting[0], "anna"));
    run_until(readies == 1);
}

TEST(a_wait_ends_with_its_time)
{
    start_waiting(0, 60000);
    start_waiting(1, 50);
    run_until(readies == 1);
    ck_assert(waiting[0].is_waiting);
    ck_assert(!waiting[1].is_waiting);
}

TEST(one_that_left_is_not_called)
{
    start_waiting(0, 60000);
    start_waiting(1, 60000);
    waiters_remove(waiters, &waiting[0]);
    end_event(&waiting[0].id);
    end_event(&waiting[1].id);
    run_until(readies == 1);
    ck_assert(!waiting[1].is_waiting);
    ck_assert_int_eq(waiters_count(waiters), 0);
}

TEST(with_more_waiters_than_one_statement_reads_all_have_their_turn)
{
    waiters_set_ids_max(waiters, 7);
    for (int i = 0; i < WAITERS; i++)
        start_waiting(i, 60000);
    for (int i = 0; i < WAITERS; i += 3)
        end_event(&waiting[i].id);
    database_run(db, "NOTIFY issuing_final"); /* it may be lost: the poll reads all as well */
    run_until(readies == (WAITERS + 2) / 3);
    for (int i = 0; i < WAITERS; i++)
        ck_assert_int_eq(waiting[i].is_waiting, i % 3 != 0);
    for (int i = 0; i < WAITERS; i++)
        if (i % 3 != 0)
            end_event(&waiting[i].id);
    run_until(readies == WAITERS); /* without notifications, by polls alone */
}

TEST(more_waiters_than_any_statement_holds_are_all_looked_up)
{
    enum { MANY = 30000 };
    static struct waiter many[MANY];
    start_waiting(0, 600000);
    for (int i = 0; i < MANY; i++) {
        char user[16];
        snprintf(user, sizeof(user), "user-%d", i);
        many[i] = (struct waiter){.id = uuid7_make(), .deadline_ms = clock_mono_ms() + 600000, .on_ready = on_ready};
        ck_assert(waiters_add(waiters, &many[i], user));
    }
    start_waiting(1, 600000);
    end_event(&waiting[0].id);
    end_event(&waiting[1].id);
    run_until(readies == 2);
    ck_assert(!waiting[0].is_waiting && !waiting[1].is_waiting);
    for (int i = 0; i < MANY; i++)
        waiters_remove(waiters, &many[i]);
    ck_assert_int_eq(waiters_count(waiters), 0);
}

/* Many waits for one request once filled the array of all requests that are looked up. */
TEST(a_request_that_many_wait_for_is_looked_up_once)
{
    enum { MANY = 2000 };
    static struct waiter many[MANY];
    struct uuid id = uuid7_make();
    waiters_set_ids_max(waiters, 2); /* one statement holds all of them */
    put_event(&id);
    for (int i = 0; i < MANY; i++) {
        char user[16];
        snprintf(user, sizeof(user), "user-%d", i % 50);
        many[i] = (struct waiter){
            .id = id, .deadline_ms = clock_mono_ms() + (i % 4 == 1 ? 50 : 600000), .on_ready = on_ready};
        ck_assert(waiters_add(waiters, &many[i], user));
    }
    start_waiting(0, 600000);
    ck_assert_int_eq(waiters_count(waiters), MANY + 1);
    ck_assert_int_eq(waiters_id_count(waiters), 2);
    run_until(readies == MANY / 4); /* whose time is up */
    for (int i = 0; i < MANY; i += 4)
        waiters_remove(waiters, &many[i]); /* also the one that stands for all */
    ck_assert_int_eq(waiters_id_count(waiters), 2);
    ck_assert_int_eq(waiters_count(waiters), MANY / 2 + 1);
    end_event(&id);
    run_until(readies == MANY / 4 + MANY / 2);
    for (int i = 0; i < MANY; i++)
        ck_assert(!many[i].is_waiting);
    ck_assert(waiting[0].is_waiting);
    ck_assert_int_eq(waiters_id_count(waiters), 1);
    end_event(&waiting[0].id);
    run_until(!waiting[0].is_waiting);
    ck_assert_int_eq(waiters_id_count(waiters), 0);
}

TEST(a_user_has_so_many_waits_and_no_more)
{
    static struct waiter many[WAITERS_OF_USER + 1];
    for (int i = 0; i <= WAITERS_OF_USER; i++) {
        many[i] = (struct waiter){.id = uuid7_make(), .deadline_ms = clock_mono_ms() + 600000, .on_ready = on_ready};
        ck_assert_int_eq(waiters_add(waiters, &many[i], "bob"), i < WAITERS_OF_USER);
    }
    start_waiting(0, 600000); /* of another client */
    waiters_remove(waiters, &many[7]);
    ck_assert(waiters_add(waiters, &many[7], "bob"));
    ck_assert(!waiters_add(waiters, &many[WAITERS_OF_USER], "bob"));
    ck_assert_int_eq(waiters_count(waiters), WAITERS_OF_USER + 1);
    for (int i = 0; i < WAITERS_OF_USER; i++)
        waiters_remove(waiters, &many[i]);
    ck_assert_int_eq(users.count, 1);
}

TEST(the_session_listens_while_somebody_waits_and_not_for_ever_after)
{
    for (int i = 0; i < 2; i++) {
        start_waiting(i, 60000);
        run_until(session_did("LISTEN issuing_final"));
        end_event(&waiting[i].id);
        run_until(readies == i + 1 && beats_passed(20));
        ck_assert(session_did("LISTEN issuing_final")); /* the next may come soon */
        if (i == 0)
            run_until(session_did("UNLISTEN issuing_final"));
    }
}

TESTS_BETWEEN(waiters, set_up, tear_down)
