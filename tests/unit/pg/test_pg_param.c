/* The story: parameters travel in binary, and a wrong byte is not a syntax error: the server takes it as another
 * number, or as the wrong element of an array, and a card goes to another user. So the bytes are compared with what
 * PostgreSQL itself writes (SELECT array_send(...)), and a buffer that overflowed must never look like a shorter
 * array. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/pg/pg_param.h"
#include "tests/support/suite.h"

static struct buf buf;
static struct pg_array array;

static void set_up(void)
{
    buf_init(&buf, 4096);
}

static void tear_down(void)
{
    buf_done(&buf);
}

static void check_bytes(struct pg_param param, const void *wanted, size_t length)
{
    ck_assert_int_eq(param.length, (int)length);
    ck_assert_ptr_nonnull(param.bytes);
    ck_assert_mem_eq(param.bytes, wanted, length);
}

static void check_inline(struct pg_param param, const void *wanted, size_t length)
{
    ck_assert_ptr_null(param.bytes);
    ck_assert_int_eq(param.inline_length, (int)length);
    ck_assert_mem_eq(param.inline_bytes, wanted, length);
}

static bool is_null(struct pg_param param)
{
    return !param.bytes && param.inline_length == 0;
}

TEST(scalars_are_in_network_order_and_move_with_their_struct)
{
    check_inline(pg_param_int8(0x0102030405060708), "\1\2\3\4\5\6\7\10", 8);
    check_inline(pg_param_int8(-2), "\377\377\377\377\377\377\377\376", 8);
    check_inline(pg_param_int8(INT64_MIN), "\200\0\0\0\0\0\0\0", 8);
    check_inline(pg_param_bool(true), "\1", 1);
    check_inline(pg_param_bool(false), "\0", 1);
    struct uuid uuid = {.bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255}};
    check_inline(pg_param_uuid(&uuid), uuid.bytes, 16);
}

TEST(an_empty_text_is_not_null_and_no_text_is)
{
    check_bytes(pg_param_text("", 0), "", 0);
    check_bytes(pg_param_text("a\0b", 3), "a\0b", 3);
    ck_assert(is_null(pg_param_text(NULL, 0)));
    ck_assert(is_null(pg_param_text(NULL, 7)));
    ck_assert(is_null(pg_param_uuid(NULL)));
    ck_assert(is_null(pg_param_null()));
}

TEST(an_empty_array_has_no_dimension)
{
    pg_array_start(&array, &buf, PG_UUID);
    /* array_send('{}'::uuid[]) */
    check_bytes(pg_array_param(&array), "\0\0\0\0\0\0\0\0\0\0\x0b\x86", 12);
}

TEST(numbers_and_bools_are_as_the_server_writes_them)
{
    pg_array_start(&array, &buf, PG_INT8);
    pg_array_add_int8(&array, 1);
    pg_array_add_int8(&array, -1);
    /* array_send('{1,-1}'::int8[]) */
    check_bytes(pg_array_param(&array),
                "\0\0\0\1\0\0\0\0\0\0\0\x14\0\0\0\2\0\0\0\1"
                "\0\0\0\10\0\0\0\0\0\0\0\1\0\0\0\10\377\377\377\377\377\377\377\377",
                44);
    pg_array_start(&array, &buf, PG_BOOL);
    pg_array_add_bool(&array, true);
    pg_array_add_bool(&array, false);
    check_bytes(pg_array_param(&array), "\0\0\0\1\0\0\0\0\0\0\0\x10\0\0\0\2\0\0\0\1\0\0\0\1\1\0\0\0\1\0", 30);
}

TEST(a_null_among_texts_is_flagged_and_an_empty_text_is_not)
{
    pg_array_start(&array, &buf, PG_TEXT);
    pg_array_add(&array, "ab", 2);
    pg_array_add(&array, NULL, 0);
    pg_array_add(&array, "", 0);
    /* array_send('{ab,NULL,""}'::text[]) */
    check_bytes(pg_array_param(&array),
                "\0\0\0\1\0\0\0\1\0\0\0\x19\0\0\0\3\0\0\0\1"
                "\0\0\0\2ab\377\377\377\377\0\0\0\0",
                34);
    pg_array_start(&array, &buf, PG_BYTEA);
    pg_array_add(&array, "", 0);
    check_bytes(pg_array_param(&array), "\0\0\0\1\0\0\0\0\0\0\0\x11\0\0\0\1\0\0\0\1\0\0\0\0", 24);
}

TEST(uuids_may_be_null)
{
    struct uuid uuid = {.bytes = {7}};
    pg_array_start(&array, &buf, PG_UUID);
    pg_array_add_uuid(&array, &uuid);
    pg_array_add_uuid(&array, NULL);
    struct pg_param param = pg_array_param(&array);
    ck_assert_int_eq(param.length, 20 + 4 + 16 + 4);
    ck_assert_mem_eq((const char *)param.bytes + 4, "\0\0\0\1", 4);
    ck_assert_mem_eq((const char *)param.bytes + 20, "\0\0\0\x10\7", 5);
    ck_assert_mem_eq((const char *)param.bytes + 40, "\377\377\377\377", 4);
}

TEST(a_buffer_used_again_starts_clean)
{
    pg_array_start(&array, &buf, PG_TEXT);
    pg_array_add(&array, NULL, 0);
    ck_assert_int_eq(pg_array_param(&array).length, 24);
    pg_array_start(&array, &buf, PG_TEXT);
    check_bytes(pg_array_param(&array), "\0\0\0\0\0\0\0\0\0\0\0\x19", 12);
}

TEST(an_array_that_does_not_fit_is_null_and_fails_its_buffer)
{
    struct buf small;
    buf_init(&small, 40);
    pg_array_start(&array, &small, PG_TEXT);
    pg_array_add(&array, "twelve bytes", 12);
    ck_assert(!small.failed);
    pg_array_add(&array, "too much by now", 15);
    pg_array_add(&array, "", 0);
    ck_assert(small.failed);
    ck_assert(is_null(pg_array_param(&array)));
    buf_done(&small);
}

TEST(an_array_whose_head_does_not_fit_is_null_too)
{
    struct buf tiny;
    buf_init(&tiny, 8);
    pg_array_start(&array, &tiny, PG_INT8);
    pg_array_add_int8(&array, 1);
    ck_assert(tiny.failed);
    ck_assert(is_null(pg_array_param(&array)));
    buf_done(&tiny);
}

TESTS_BETWEEN(pg_param, set_up, tear_down)
