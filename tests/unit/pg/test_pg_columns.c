/* The story: one statement writes the ends of a hundred attempts. Its parameters are arrays side by side, and a value
 * that slips into the neighbouring array, or is missing in one row, ends the wrong attempt with the right token. So
 * types and values are given by the same call, every row must make the same calls, and what did not fit is never
 * sent. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/pg/pg_columns.h"
#include "tests/support/suite.h"

static struct pg_columns columns;
static struct pg_param params[PG_PARAMS_MAX];

static void tear_down(void)
{
    pg_columns_done(&columns);
}

static void add_rows(int count)
{
    struct uuid uuid = {.bytes = {1, 2, 3}};
    pg_columns_start(&columns);
    for (int i = 0; i < count; i++) {
        pg_columns_start_row(&columns);
        pg_columns_add_uuid(&columns, i % 2 ? NULL : &uuid);
        pg_columns_add_text(&columns, i % 2 ? "ab" : NULL);
        pg_columns_set_scalar(&columns, pg_param_int8(7));
        pg_columns_add_int8(&columns, i);
        pg_columns_add_bool(&columns, i % 2);
        pg_columns_add_slice(&columns, i % 2 ? (struct slice){0} : SLICE("xyz"));
        pg_columns_add_bytea(&columns, "\0\1", 2);
    }
}

/* What pg_param.h makes of the same values, one array after the other. */
static void check_array(struct pg_param param, struct pg_array *array)
{
    struct pg_param wanted = pg_array_param(array);
    ck_assert_int_eq(param.length, wanted.length);
    ck_assert_mem_eq(param.bytes, wanted.bytes, (size_t)wanted.length);
}

static void check_params(int count)
{
    struct uuid uuid = {.bytes = {1, 2, 3}};
    static const enum pg_type types[] = {PG_UUID, PG_TEXT, PG_INT8, PG_BOOL, PG_TEXT, PG_BYTEA};
    struct buf bufs[ARRAY_SIZE(types)];
    struct pg_array arrays[ARRAY_SIZE(types)];
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        buf_init(&bufs[i], 4096);
        pg_array_start(&arrays[i], &bufs[i], types[i]);
    }
    for (int i = 0; i < count; i++) {
        pg_array_add_uuid(&arrays[0], i % 2 ? NULL : &uuid);
        pg_array_add(&arrays[1], i % 2 ? "ab" : NULL, i % 2 ? 2 : 0);
        pg_array_add_int8(&arrays[2], i);
        pg_array_add_bool(&arrays[3], i % 2);
        pg_array_add(&arrays[4], i % 2 ? NULL : "xyz", i % 2 ? 0 : 3);
        pg_array_add(&arrays[5], "\0\1", 2);
    }
    check_array(params[0], &arrays[0]);
    check_array(params[1], &arrays[1]);
    ck_assert_ptr_null(params[2].bytes);
    ck_assert_mem_eq(params[2].inline_bytes, "\0\0\0\0\0\0\0\7", 8);
    for (size_t i = 2; i < ARRAY_SIZE(types); i++)
        check_array(params[i + 1], &arrays[i]);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        buf_done(&bufs[i]);
}

TEST(rows_become_an_array_for_each_column_and_a_scalar_stays_one)
{
    pg_columns_init(&columns, 4096);
    add_rows(5);
    ck_assert(pg_columns_finish(&columns, params, 7));
    check_params(5);
}

TEST(a_statement_after_another_starts_clean)
{
    pg_columns_init(&columns, 4096);
    add_rows(20);
    ck_assert(pg_columns_finish(&columns, params, 7));
    add_rows(1);
    ck_assert(pg_columns_finish(&columns, params, 7));
    check_params(1);
    pg_columns_start(&columns); /* another statement: a scalar where an array was */
    pg_columns_start_row(&columns);
    pg_columns_set_scalar(&columns, pg_param_int8(1));
    ck_assert(pg_columns_finish(&columns, params, 1));
    ck_assert_ptr_null(params[0].bytes);
}

TEST(what_does_not_fit_is_reported_and_the_next_statement_is_not_harmed)
{
    pg_columns_init(&columns, 200);
    add_rows(50);
    ck_assert(!pg_columns_finish(&columns, params, 7));
    add_rows(2);
    ck_assert(pg_columns_finish(&columns, params, 7));
    check_params(2);
}

static void add_wrong_row(int fault)
{
    struct uuid uuid = {.bytes = {1}};
    pg_columns_start_row(&columns);
    if (fault == 0) /* another type */
        pg_columns_add_int8(&columns, 1);
    else
        pg_columns_add_uuid(&columns, &uuid);
    if (fault != 1) /* one too few */
        pg_columns_add_bool(&columns, true);
    if (fault == 2) /* one too many */
        pg_columns_add_bool(&columns, true);
    bool is_finished = pg_columns_finish(&columns, params, 2);
    ck_assert_msg(false, "not caught, and finished: %d", is_finished);
}

START_TEST(a_row_that_differs_from_the_first_is_caught)
{
    pg_columns_init(&columns, 4096);
    pg_columns_start(&columns);
    pg_columns_start_row(&columns);
    pg_columns_add_uuid(&columns, NULL);
    pg_columns_add_bool(&columns, false);
    add_wrong_row(_i);
}

SUITE(pg_columns)
{
    TCase *tcase = tcase_create("pg_columns");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    ADD_TESTS(tcase);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("assertions");
    tcase_set_tags(tcase, "no_valgrind"); /* which runs all tests in one process */
    tcase_add_loop_test_raise_signal(tcase, a_row_that_differs_from_the_first_is_caught, SIGABRT, 0, 3);
    suite_add_tcase(suite, tcase);
}
