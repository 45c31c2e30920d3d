/* Answers, log pages and a peer's bytes are collected in these buffers. A peer that never stops must hit the maximum, a
 * failed append must not leave half a document that looks whole, and what held a card number must be overwritten. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/buf.h"
#include "tests/support/suite.h"

TEST(a_new_buffer_is_empty_and_costs_nothing)
{
    struct buf buf;
    buf_init(&buf, 100);
    ck_assert_ptr_null(buf.bytes);
    ck_assert_uint_eq(buf_slice(&buf).length, 0);
    ck_assert(buf_put(&buf, NULL, 0));
    ck_assert_str_eq(buf.bytes, "");
    buf_done(&buf);
    ck_assert_ptr_null(buf.bytes);
}

TEST(what_was_appended_comes_back_terminated)
{
    struct buf buf;
    buf_init(&buf, 100000);
    ck_assert(buf_put_text(&buf, "one "));
    ck_assert(buf_put_byte(&buf, '2'));
    ck_assert(buf_put_format(&buf, " %s %d", "three", 4));
    ck_assert(buf_put(&buf, "\0x", 2));
    ck_assert_uint_eq(buf.length, 15);
    ck_assert_mem_eq(buf.bytes, "one 2 three 4\0x", 15);
    ck_assert_int_eq(buf.bytes[buf.length], '\0');
    buf_done(&buf);
}

TEST(a_buffer_holds_exactly_its_maximum)
{
    for (size_t max = 0; max < 600; max += 7) {
        struct buf buf;
        buf_init(&buf, max);
        for (size_t i = 0; i < max; i++)
            ck_assert(buf_put_byte(&buf, (char)('a' + i % 26)));
        ck_assert_uint_eq(buf.length, max);
        ck_assert(!buf.failed);
        ck_assert(!buf_put_byte(&buf, 'x'));
        ck_assert(buf.failed);
        ck_assert_uint_eq(buf.length, max);
        for (size_t i = 0; i < max; i++)
            ck_assert_int_eq(buf.bytes[i], (char)('a' + i % 26));
        buf_done(&buf);
    }
}

TEST(a_failed_append_sticks_until_reset)
{
    struct buf buf;
    buf_init(&buf, 5);
    ck_assert(buf_put_text(&buf, "abc"));
    ck_assert(!buf_put_text(&buf, "def"));
    ck_assert(!buf_put_text(&buf, "d"));
    ck_assert(!buf_put_format(&buf, "%d", 1));
    ck_assert_ptr_null(buf_reserve(&buf, 1));
    ck_assert_str_eq(buf.bytes, "abc");
    buf_reset(&buf);
    ck_assert(!buf.failed);
    ck_assert(buf_put_text(&buf, "fghij"));
    ck_assert_str_eq(buf.bytes, "fghij");
    buf_done(&buf);
}

TEST(a_format_that_does_not_fit_leaves_nothing_of_itself)
{
    struct buf buf;
    buf_init(&buf, 300);
    ck_assert(buf_put_text(&buf, "kept"));
    ck_assert(!buf_put_format(&buf, "%0400d", 1));
    ck_assert_uint_eq(buf.length, 4);
    ck_assert_str_eq(buf.bytes, "kept");
    buf_reset(&buf);
    ck_assert(buf_put_format(&buf, "%0300d", 1));
    ck_assert_uint_eq(buf.length, 300);
    buf_done(&buf);
}

TEST(a_format_longer_than_the_free_space_grows_the_buffer)
{
    struct buf buf;
    buf_init(&buf, 100000);
    ck_assert(buf_put_text(&buf, "x"));
    ck_assert(buf_put_format(&buf, "%05000d|%s", 7, "end"));
    ck_assert_uint_eq(buf.length, 5005);
    ck_assert_str_eq(buf.bytes + 5000, "7|end");
    buf_done(&buf);
}

TEST(a_length_near_the_end_of_the_address_space_is_refused)
{
    struct buf buf;
    buf_init(&buf, 1000);
    ck_assert(buf_put_text(&buf, "abc"));
    ck_assert_ptr_null(buf_reserve(&buf, SIZE_MAX));
    buf_reset(&buf);
    ck_assert_ptr_null(buf_reserve(&buf, SIZE_MAX - 2));
    buf_done(&buf);
    buf_init(&buf, SIZE_MAX);
    ck_assert_ptr_null(buf_reserve(&buf, SIZE_MAX));
    buf_reset(&buf);
    ck_assert(buf_put_text(&buf, "fine"));
    buf_done(&buf);
}

TEST(a_reservation_is_written_in_place)
{
    struct buf buf;
    buf_init(&buf, 1000);
    ck_assert(buf_put_text(&buf, "ab"));
    char *space = buf_reserve(&buf, 500);
    ck_assert_ptr_nonnull(space);
    memset(space, 'c', 500);
    buf.length += 500;
    ck_assert_uint_eq(strlen(buf.bytes), 502);
    ck_assert(buf_put_text(&buf, "d"));
    ck_assert_mem_eq(buf.bytes + 500, "ccd", 4);
    buf_done(&buf);
}

TEST(consuming_takes_from_the_front)
{
    struct buf buf;
    buf_init(&buf, 100);
    buf_consume(&buf, 0);
    ck_assert(buf_put_text(&buf, "abcdef"));
    buf_consume(&buf, 2);
    ck_assert_str_eq(buf.bytes, "cdef");
    buf_consume(&buf, 4);
    ck_assert_uint_eq(buf.length, 0);
    ck_assert_str_eq(buf.bytes, "");
    buf_done(&buf);
}

TEST(what_was_consumed_is_not_left_behind_the_end)
{
    struct buf buf;
    buf_init(&buf, 100);
    ck_assert(buf_put_text(&buf, "a token and more"));
    buf_consume(&buf, 8);
    ck_assert_str_eq(buf.bytes, "and more");
    for (size_t i = buf.length; i < 16; i++)
        ck_assert_int_eq(buf.bytes[i], 0);
    buf_consume(&buf, 8);
    for (size_t i = 0; i < 16; i++)
        ck_assert_int_eq(buf.bytes[i], 0);
    buf_done(&buf);
}

TEST(integers_are_decimal)
{
    struct buf buf;
    buf_init(&buf, 100);
    ck_assert(buf_put_integer(&buf, 0) && buf_put_byte(&buf, ' ') && buf_put_integer(&buf, -70) &&
              buf_put_byte(&buf, ' ') && buf_put_integer(&buf, INT64_MAX) && buf_put_byte(&buf, ' ') &&
              buf_put_integer(&buf, INT64_MIN));
    ck_assert_str_eq(buf.bytes, "0 -70 9223372036854775807 -9223372036854775808");
    buf_done(&buf);
    buf_init(&buf, 2);
    ck_assert(!buf_put_integer(&buf, 123) && buf.failed);
    buf_done(&buf);
}

TEST(wiping_overwrites_also_what_was_consumed_or_reset)
{
    struct buf buf;
    buf_init(&buf, 1000);
    ck_assert(buf_put_text(&buf, "4111111111111111 and more"));
    buf_consume(&buf, 9);
    buf_reset(&buf);
    size_t capacity = buf.capacity;
    buf_wipe(&buf);
    ck_assert_uint_eq(buf.length, 0);
    ck_assert_uint_eq(buf.capacity, capacity);
    for (size_t i = 0; i < capacity; i++)
        ck_assert_int_eq(buf.bytes[i], 0);
    ck_assert(buf_put_text(&buf, "again"));
    buf_done(&buf);
    buf_init(&buf, 10);
    buf_wipe(&buf);
    ck_assert_ptr_null(buf.bytes);
}

TESTS(buf)
