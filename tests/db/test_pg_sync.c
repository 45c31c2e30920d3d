/* The story: what goes into the database comes out as the same bytes, nulls and empties included. A refusal is
 * different from a lost connection: the first is final, after the second the outcome is unknown. Neither message quotes
 * the values that were sent. Needs a database: its conninfo in ISSUING_TEST_DATABASE. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/pg/pg_sync.h"
#include "tests/support/suite.h"

static struct pg_sync *db;
static struct err err;

static const char *conninfo(void)
{
    const char *text = getenv("ISSUING_TEST_DATABASE");
    ck_assert_msg(text != NULL, "ISSUING_TEST_DATABASE is not set");
    return text;
}

static void set_up(void)
{
    err = (struct err){.kind = ERR_NONE};
    ck_assert_msg(pg_sync_open(conninfo(), "test_pg_sync", &db, &err), "%s", err.message);
}

static void tear_down(void)
{
    pg_sync_closep(&db);
}

static struct pg_rows *ask(const struct sql_statement *statement, const struct pg_param *params)
{
    struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_query(db, statement, params, &rows, &err), "%s", err.message);
    return rows;
}

static bool is_bytes(struct slice slice, const char *bytes, size_t length)
{
    return slice.bytes && slice.length == length && memcmp(slice.bytes, bytes, length) == 0;
}

TEST(scalars_come_back_as_they_went)
{
    static const struct sql_statement echo = {
        .name = "echo",
        .text = "SELECT $1::int8, $2::bool, $3::uuid, $4::text, $5::bytea, $1::int8::int4, $1::int8::int2, -$1::int8",
        .parameters = 5,
        .shape = SQL_ONE,
    };
    static const char every[] = {0, 1, '\'', '\\', (char)0xff, 0};
    struct uuid uuid = uuid7_make();
    struct pg_param params[] = {pg_param_int8(-12345), pg_param_bool(true), pg_param_uuid(&uuid),
                                pg_param_text("gr\xc3\xbc\xc3\x9f", 6), pg_param_text(every, sizeof(every))};
    pg_rows_scope struct pg_rows *rows = ask(&echo, params);
    ck_assert_int_eq(pg_rows_count(rows), 1);
    ck_assert_int_eq(pg_int8(rows, 0, 0), -12345);
    ck_assert(pg_bool(rows, 0, 1));
    struct uuid back = pg_uuid(rows, 0, 2);
    ck_assert(uuid_equal(&uuid, &back));
    ck_assert(is_bytes(pg_bytes(rows, 0, 3), "gr\xc3\xbc\xc3\x9f", 6));
    ck_assert(is_bytes(pg_bytes(rows, 0, 4), every, sizeof(every)));
    ck_assert_int_eq(pg_int8(rows, 0, 5), -12345);
    ck_assert_int_eq(pg_int8(rows, 0, 6), -12345);
    ck_assert_int_eq(pg_int8(rows, 0, 7), 12345);
}

TEST(nulls_come_back_as_nulls_and_empties_as_empties)
{
    static const struct sql_statement echo = {
        .name = "echo_nulls",
        .text = "SELECT $1::int8, $2::bool, $3::uuid, $4::text, $5::bytea, $6::text, $7::bytea",
        .parameters = 7,
        .shape = SQL_ONE,
    };
    struct pg_param params[] = {pg_param_null(), pg_param_null(),      pg_param_null(),     pg_param_null(),
                                pg_param_null(), pg_param_text("", 0), pg_param_text("", 0)};
    pg_rows_scope struct pg_rows *rows = ask(&echo, params);
    for (int column = 0; column < 5; column++)
        ck_assert(pg_is_null(rows, 0, column));
    ck_assert_int_eq(pg_int8(rows, 0, 0), 0);
    ck_assert(!pg_bool(rows, 0, 1));
    struct uuid zero = {.bytes = {0}};
    struct uuid back = pg_uuid(rows, 0, 2);
    ck_assert(uuid_equal(&zero, &back));
    ck_assert_ptr_null(pg_bytes(rows, 0, 3).bytes);
    for (int column = 5; column < 7; column++) {
        ck_assert(!pg_is_null(rows, 0, column));
        ck_assert(is_bytes(pg_bytes(rows, 0, column), "", 0));
    }
}

static const struct sql_statement echo_arrays = {
    .name = "echo_arrays",
    .text = "SELECT u, t, b, n, f FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::int8[], $5::bool[]) "
            "WITH ORDINALITY AS a (u, t, b, n, f, i) ORDER BY i",
    .parameters = 5,
    .shape = SQL_MANY,
};

TEST(arrays_come_back_in_order_with_their_nulls)
{
    struct buf bufs[5];
    struct pg_array arrays[5];
    static const enum pg_type types[5] = {PG_UUID, PG_TEXT, PG_BYTEA, PG_INT8, PG_BOOL};
    struct pg_param params[5];
    struct uuid uuids[1000];
    for (int i = 0; i < 5; i++) {
        buf_init(&bufs[i], 1 << 20);
        pg_array_start(&arrays[i], &bufs[i], types[i]);
    }
    for (int i = 0; i < 1000; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d,\"{}", i);
        uuids[i] = uuid7_make();
        pg_array_add_uuid(&arrays[0], i % 7 ? &uuids[i] : NULL);
        pg_array_add(&arrays[1], i % 5 ? text : NULL, strlen(text));
        pg_array_add(&arrays[2], "\0\xff", (size_t)(i % 3));
        pg_array_add_int8(&arrays[3], -i);
        pg_array_add_bool(&arrays[4], i % 2 == 1);
    }
    for (int i = 0; i < 5; i++)
        params[i] = pg_array_param(&arrays[i]);
    pg_rows_scope struct pg_rows *rows = ask(&echo_arrays, params);
    ck_assert_int_eq(pg_rows_count(rows), 1000);
    for (int i = 0; i < 1000; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d,\"{}", i);
        struct uuid uuid = pg_uuid(rows, i, 0);
        ck_assert(i % 7 ? uuid_equal(&uuid, &uuids[i]) : pg_is_null(rows, i, 0));
        ck_assert(i % 5 ? is_bytes(pg_bytes(rows, i, 1), text, strlen(text)) : pg_is_null(rows, i, 1));
        ck_assert(is_bytes(pg_bytes(rows, i, 2), "\0\xff", (size_t)(i % 3)));
        ck_assert_int_eq(pg_int8(rows, i, 3), -i);
        ck_assert(pg_bool(rows, i, 4) == (i % 2 == 1));
    }
    for (int i = 0; i < 5; i++)
        buf_done(&bufs[i]);
}

TEST(an_empty_array_is_neither_null_nor_an_error)
{
    static const struct sql_statement length = {
        .name = "array_length",
        .text = "SELECT cardinality($1::uuid[]), cardinality($2::uuid[]), $1::uuid[] = '{}'::uuid[]",
        .parameters = 2,
        .shape = SQL_ONE,
    };
    struct buf buf;
    struct pg_array array;
    buf_init(&buf, 100);
    pg_array_start(&array, &buf, PG_UUID);
    struct pg_param params[] = {pg_array_param(&array), pg_param_null()};
    pg_rows_scope struct pg_rows *rows = ask(&length, params);
    ck_assert(!pg_is_null(rows, 0, 0));
    ck_assert_int_eq(pg_int8(rows, 0, 0), 0);
    ck_assert(pg_is_null(rows, 0, 1));
    ck_assert(pg_bool(rows, 0, 2));
    buf_done(&buf);
}

/* The operator's first command on a bad night. An attempt that had failed at once was waited for, for a minute. */
TEST(a_socket_that_nobody_has_open_is_told_at_once)
{
    for (int i = 0; i < 20; i++) {
        struct pg_sync *none = NULL;
        ck_assert(!pg_sync_open("host=@issuing-nowhere dbname=x", "test_pg_sync", &none, &err));
        ck_assert_int_eq(err.kind, ERR_AWAY);
    }
}

TEST(a_refusal_has_its_sqlstate_and_the_connection_goes_on)
{
    static const struct sql_statement division = {
        .name = "division", .text = "SELECT 1 / $1::int8", .parameters = 1, .shape = SQL_ONE};
    struct pg_param zero = pg_param_int8(0);
    struct pg_param one = pg_param_int8(1);
    struct pg_rows *rows = NULL;
    ck_assert(!pg_sync_query(db, &division, &zero, &rows, &err));
    ck_assert_ptr_null(rows);
    ck_assert_int_eq(err.kind, ERR_DATABASE);
    ck_assert_str_eq(err.sqlstate, "22012");
    ck_assert_ptr_nonnull(strstr(err.message, "division by zero"));
    ck_assert_ptr_nonnull(strstr(err.message, "22012"));
    rows = ask(&division, &one);
    ck_assert_int_eq(pg_int8(rows, 0, 0), 1);
    pg_rows_free(rows);
}

TEST(a_message_never_quotes_a_value)
{
    static const struct sql_statement casts[] = {
        {.name = "cast_uuid", .text = "SELECT $1::text::uuid", .parameters = 1, .shape = SQL_ONE},
        {.name = "cast_json", .text = "SELECT $1::text::jsonb", .parameters = 1, .shape = SQL_ONE},
        {.name = "cast_int", .text = "SELECT $1::text::int4", .parameters = 1, .shape = SQL_ONE},
        {.name = "cast_time", .text = "SELECT $1::text::timestamptz", .parameters = 1, .shape = SQL_ONE},
    };
    static const char secret[] = "4111111111111111";
    struct pg_param param = pg_param_string(secret);
    for (size_t i = 0; i < ARRAY_SIZE(casts); i++) {
        if (pg_sync_query(db, &casts[i], &param, NULL, &err))
            continue; /* a number is lawful JSON */
        ck_assert_int_eq(err.kind, ERR_DATABASE);
        ck_assert_msg(!strstr(err.message, "4111"), "%s", err.message);
        ck_assert_ptr_nonnull(strstr(err.message, casts[i].name));
    }
    ck_assert(!pg_sync_query(db, &casts[0], &param, NULL, &err));
}

TEST(one_text_of_several_statements_is_one_transaction)
{
    static const struct sql_statement count = {
        .name = "count", .text = "SELECT count(*) FROM pg_temp.t", .shape = SQL_ONE};
    ck_assert_msg(pg_sync_exec(db, "CREATE TEMP TABLE t (i int); INSERT INTO t VALUES (1)", &err), "%s", err.message);
    ck_assert(!pg_sync_exec(db, "INSERT INTO t VALUES (2); SELECT 1/0; INSERT INTO t VALUES (3)", &err));
    ck_assert_str_eq(err.sqlstate, "22012");
    pg_rows_scope struct pg_rows *rows = ask(&count, NULL);
    ck_assert_int_eq(pg_int8(rows, 0, 0), 1);
    ck_assert(pg_sync_exec(db, "", &err));
    ck_assert(!pg_sync_exec(db, "COPY t FROM STDIN", &err));
    ck_assert_int_eq(err.kind, ERR_DATABASE);
    ck_assert(pg_sync_exec(db, "SELECT 1", &err));
}

TEST(a_lost_connection_is_away_and_stays_away)
{
    static const struct sql_statement one = {.name = "one", .text = "SELECT 1", .shape = SQL_ONE};
    ck_assert(!pg_sync_exec(db, "SELECT pg_terminate_backend(pg_backend_pid())", &err));
    ck_assert_int_eq(err.kind, ERR_AWAY);
    ck_assert(!pg_sync_query(db, &one, NULL, NULL, &err));
    ck_assert_int_eq(err.kind, ERR_AWAY);
}

/* A console must not hang with a server that says nothing any more. */
TEST(a_wait_for_an_answer_ends_at_its_limit)
{
    static const struct sql_statement quick = {.name = "quick", .text = "SELECT 7::int8", .shape = SQL_ONE};
    static const struct sql_statement wrong = {.name = "wrong", .text = "SELECT 1 / 0", .shape = SQL_ONE};
    static const struct sql_statement silent = {.name = "silent", .text = "SELECT pg_sleep(600)", .shape = SQL_ONE};
    pg_sync_limit(db, 20000);
    struct pg_rows *rows = ask(&quick, NULL);
    ck_assert_int_eq(pg_int8(rows, 0, 0), 7);
    pg_rows_free(rows);
    ck_assert(!pg_sync_query(db, &wrong, NULL, NULL, &err));
    ck_assert_int_eq(err.kind, ERR_DATABASE);
    ck_assert_str_eq(err.sqlstate, "22012");
    pg_sync_limit(db, 100);
    ck_assert(!pg_sync_query(db, &silent, NULL, NULL, &err));
    ck_assert_int_eq(err.kind, ERR_AWAY);
    ck_assert(!pg_sync_query(db, &quick, NULL, NULL, &err)); /* its answer would be mistaken for this one's */
    ck_assert_int_eq(err.kind, ERR_AWAY);
}

TEST(no_server_is_away_and_nonsense_is_configuration)
{
    struct pg_sync *other = NULL;
    ck_assert(!pg_sync_open("host=127.0.0.1 port=1 password=opensesame", "test", &other, &err));
    ck_assert_int_eq(err.kind, ERR_AWAY);
    ck_assert_ptr_null(strchr(err.message, '\n'));
    ck_assert(!pg_sync_open("host=127.0.0.1 password=open sesame", "test", &other, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_ptr_null(strstr(err.message, "sesame"));
    ck_assert(!pg_sync_open("postgresql://a:sesame@[::1", "test", &other, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_ptr_null(strstr(err.message, "sesame"));
    ck_assert_ptr_null(other);
}

/* issuing-ctl tells who may connect when the server refuses, and only then. */
TEST(a_refused_connection_is_configuration_with_its_sqlstate)
{
    struct pg_sync *other = NULL;
    char nowhere[512];
    snprintf(nowhere, sizeof(nowhere), "%s dbname=there_is_no_such_database", conninfo());
    ck_assert(!pg_sync_open(nowhere, "test", &other, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_str_eq(err.sqlstate, "3D000");
    ck_assert(!pg_sync_open("host=127.0.0.1 port=1", "test", &other, &err));
    ck_assert_int_eq(err.kind, ERR_AWAY);
    ck_assert_str_eq(err.sqlstate, "");
    ck_assert_ptr_null(other);
}

TEST(a_crash_loses_nothing_that_a_session_of_ours_has_committed)
{
    static const char *const settings[][2] = {
        {"off", "on"}, {"local", "on"}, {"remote_write", "remote_write"}, {"remote_apply", "remote_apply"}};
    char text[200];
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
        snprintf(text, sizeof(text), "SET synchronous_commit = %s", settings[i][0]);
        ck_assert_msg(pg_sync_exec(db, text, &err), "%s", err.message);
        ck_assert_msg(pg_sync_set_up(db, &err), "%s", err.message);
        snprintf(text, sizeof(text), "DO $$ BEGIN ASSERT current_setting('synchronous_commit') = '%s'; END $$",
                 settings[i][1]);
        ck_assert_msg(pg_sync_exec(db, text, &err), "%s: %s", settings[i][0], err.message);
    }
}

TESTS_BETWEEN(pg_sync, set_up, tear_down)
