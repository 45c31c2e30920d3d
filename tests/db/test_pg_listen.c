/* The story: for each NOTIFY the server wakes every session that listens to anything, so a session that does not need
 * hints should not listen. A session that needs them again may not miss what happened in between, however often and
 * fast it changes, and whatever happens to the connection. Needs a database: its conninfo in ISSUING_TEST_DATABASE. */
#include "database.h"
#include "run_until.h"

#include "common/lib/pg/pg_listen.h"
#include "tests/support/suite.h"

#define NAME "issuing-listen"

static struct pg_sync *db;
static struct pg_listen *listener;
static int hints;
static char last_payload[64];
static bool closed;

static void on_hint(void *context, const char *payload)
{
    snprintf(last_payload, sizeof(last_payload), "%s", payload ? payload : "(starts to listen)");
    ck_assert_ptr_eq(context, &hints);
    hints++;
}

static void on_closed(void *context)
{
    ck_assert_ptr_eq(context, &closed);
    closed = true;
}

static void open_listener(void)
{
    struct err err = {0};
    ck_assert_msg(pg_listen_open(&loop, database_conninfo(), "test_pg_listen", on_hint, &hints, &listener, &err), "%s",
                  err.message);
}

static void close_listener(void)
{
    pg_listen_close(listener, on_closed, &closed);
    listener = NULL;
    run_until(closed);
}

/* Its session is there and did this last; "" = nothing yet. */
static bool session_did(const char *text)
{
    return database_int(db,
                        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '" NAME
                        "' AND datname = current_database() AND state = 'idle' AND query = '%s'",
                        text) == 1;
}

/* Starting to listen gives one hint, and this NOTIFY another: so no earlier NOTIFY gave one. */
static void expect_silence_until_wanted(void)
{
    pg_listen_want(listener, true);
    run_until(hints >= 1);
    database_run(db, "NOTIFY test_pg_listen");
    run_until(hints >= 2);
    ck_assert_int_eq(hints, 2);
    hints = 0;
}

static void set_up(void)
{
    hints = 0;
    closed = false;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    db = database_open(NULL);
    open_listener();
}

static void tear_down(void)
{
    if (listener)
        close_listener();
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    pg_sync_closep(&db);
}

TEST(what_is_not_wanted_is_not_heard)
{
    run_until(hints == 1);
    for (int i = 0; i < 3; i++) {
        hints = 0;
        pg_listen_want(listener, false);
        run_until(session_did("UNLISTEN test_pg_listen"));
        database_run(db, "NOTIFY test_pg_listen");
        database_run(db, "NOTIFY test_pg_listen");
        expect_silence_until_wanted();
    }
}

TEST(a_listener_that_is_not_wanted_does_not_listen)
{
    pg_listen_want(listener, false);
    run_until(session_did(""));
    database_run(db, "NOTIFY test_pg_listen");
    expect_silence_until_wanted();
}

TEST(wanting_what_is_wanted_already_sends_nothing)
{
    run_until(hints == 1);
    for (int i = 0; i < 10; i++)
        pg_listen_want(listener, true);
    database_run(db, "NOTIFY test_pg_listen");
    run_until(hints == 2);
    ck_assert(session_did("LISTEN test_pg_listen"));
}

TEST(after_fast_changes_the_last_one_holds)
{
    run_until(hints == 1);
    hints = 0;
    for (int i = 0; i < 101; i++)
        pg_listen_want(listener, i % 2);
    run_until(session_did("UNLISTEN test_pg_listen"));
    database_run(db, "NOTIFY test_pg_listen");
    expect_silence_until_wanted();
    for (int i = 0; i < 100; i++)
        pg_listen_want(listener, i % 2);
    run_until(hints == 1); /* it stopped, and began again */
    database_run(db, "NOTIFY test_pg_listen");
    run_until(hints == 2);
}

TEST(a_new_connection_listens_only_if_wanted)
{
    run_until(hints == 1);
    for (int i = 0; i < 2; i++) {
        bool is_wanted = i > 0;
        pg_listen_want(listener, is_wanted);
        run_until(session_did(is_wanted ? "LISTEN test_pg_listen" : "UNLISTEN test_pg_listen"));
        hints = 0;
        database_run(db, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" NAME
                         "' AND datname = current_database()");
        run_until(session_did(is_wanted ? "LISTEN test_pg_listen" : ""));
        database_run(db, "NOTIFY test_pg_listen");
        if (is_wanted)
            run_until(hints == 2); /* that of the connecting, and this one */
        else
            expect_silence_until_wanted();
    }
}

TEST(a_change_on_its_way_does_not_delay_the_end)
{
    run_until(hints == 1);
    pg_listen_want(listener, false);
    pg_listen_want(listener, true);
    close_listener();
    ck_assert_int_eq(hints, 1);
}

static void on_hint_stop(void *context, const char *payload)
{
    on_hint(context, payload);
    pg_listen_want(listener, false);
}

TEST(a_listener_may_be_switched_off_from_a_hint)
{
    struct err err = {0};
    close_listener();
    closed = false;
    hints = 0;
    ck_assert(pg_listen_open(&loop, database_conninfo(), "test_pg_listen", on_hint_stop, &hints, &listener, &err));
    run_until(session_did("UNLISTEN test_pg_listen"));
    ck_assert_int_eq(hints, 1);
    pg_listen_want(listener, true);
    run_until(hints == 2);
}

TEST(a_hint_follows_each_connect_and_each_notification)
{
    run_until(hints == 1);
    database_run(db, "NOTIFY test_pg_listen");
    run_until(hints == 2);
    database_run(db, "NOTIFY test_pg_other");
    database_run(db, "NOTIFY test_pg_listen, 'a'; NOTIFY test_pg_listen, 'b'");
    run_until(hints == 4);
    database_run(db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" NAME
                     "' AND datname = current_database()");
    run_until(hints == 5);
    database_run(db, "NOTIFY test_pg_listen");
    run_until(hints == 6);
    close_listener();
    ck_assert_int_eq(hints, 6);
}

static void on_hint_close(void *context, const char *payload)
{
    on_hint(context, payload);
    pg_listen_close(listener, on_closed, &closed);
    listener = NULL;
}

TEST(a_listener_may_be_closed_from_a_hint)
{
    struct err err = {0};
    close_listener();
    closed = false;
    hints = 0;
    ck_assert(pg_listen_open(&loop, database_conninfo(), "test_pg_listen", on_hint_close, &hints, &listener, &err));
    run_until(closed);
    ck_assert_int_eq(hints, 1);
}

TEST(a_channel_has_a_plain_name)
{
    static const char *const names[] = {
        "", "1a", "a b", "a;DROP", "A", "\"a\"", "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff1234"};
    struct pg_listen *refused = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct err err = {0};
        ck_assert(!pg_listen_open(&loop, database_conninfo(), names[i], on_hint, &hints, &refused, &err));
        ck_assert_int_eq(err.kind, ERR_CONFIG);
    }
    ck_assert_ptr_null(refused);
}

TEST(a_hint_brings_its_payload_and_none_when_it_starts_to_listen)
{
    run_until(hints >= 1);
    ck_assert_str_eq(last_payload, "(starts to listen)");
    database_run(db, "NOTIFY test_pg_listen");
    run_until(hints >= 2);
    ck_assert_str_eq(last_payload, "");
    database_run(db, "NOTIFY test_pg_listen, 'PAYMENT_CHARGE'");
    run_until(hints >= 3);
    ck_assert_str_eq(last_payload, "PAYMENT_CHARGE");
}

TESTS_BETWEEN(pg_listen, set_up, tear_down)
