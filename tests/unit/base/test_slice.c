/* A comparison that reads past the end of a slice, or takes a prefix for the whole, accepts a wrong
 * name as a known one. */
#include <check.h>

#include "common/lib/base/slice.h"
#include "tests/support/suite.h"

TEST(a_slice_is_compared_in_its_whole_length)
{
    ck_assert(slice_is(SLICE("Host"), "Host"));
    ck_assert(!slice_is(SLICE("host"), "Host"));
    ck_assert(!slice_is(SLICE("Hos"), "Host"));
    ck_assert(!slice_is(SLICE("Hosts"), "Host"));
    ck_assert(!slice_is(SLICE("a\0b"), "a"));
    struct slice part = {.bytes = "Hosts", .length = 4};
    ck_assert(slice_is(part, "Host"));
}

TEST(letters_match_in_either_case)
{
    ck_assert(slice_is_nocase(SLICE("HOST"), "host"));
    ck_assert(slice_is_nocase(SLICE("content-LENGTH"), "Content-Length"));
    ck_assert(!slice_is_nocase(SLICE("Hos"), "host"));
    ck_assert(!slice_is_nocase(SLICE("Hosts"), "host"));
    ck_assert(!slice_is_nocase(SLICE("a_b"), "a-b"));
}

TEST(a_slice_without_memory_is_the_empty_text)
{
    struct slice missing = {0};
    ck_assert(slice_is(missing, ""));
    ck_assert(slice_is_nocase(missing, ""));
    ck_assert(!slice_is(missing, "x"));
    ck_assert(!slice_is_nocase(missing, "x"));
    ck_assert(slice_is(SLICE(""), ""));
}

TEST(a_text_that_does_not_fit_is_copied_as_none)
{
    char text[4] = "xyz";
    slice_copy(SLICE("abc"), text, sizeof(text));
    ck_assert_str_eq(text, "abc");
    slice_copy((struct slice){.bytes = "abcd", .length = 2}, text, sizeof(text));
    ck_assert_str_eq(text, "ab");
    slice_copy(SLICE("abcd"), text, sizeof(text));
    ck_assert_str_eq(text, "");
    slice_copy((struct slice){0}, text, sizeof(text));
    ck_assert_str_eq(text, "");
}

TEST(a_slice_is_taken_apart_at_each_separator)
{
    struct slice rest = SLICE("ab,,c");
    ck_assert(slice_is(slice_take(&rest, ','), "ab"));
    ck_assert(slice_is(slice_take(&rest, ','), ""));
    ck_assert(slice_is(slice_take(&rest, ','), "c"));
    ck_assert_uint_eq(rest.length, 0);
    ck_assert(slice_is(slice_take(&rest, ','), ""));
    rest = (struct slice){0};
    ck_assert_uint_eq(slice_take(&rest, ',').length, 0);
    ck_assert(slice_begins(SLICE("v1=x"), "v1="));
    ck_assert(!slice_begins(SLICE("v1"), "v1="));
    ck_assert(slice_begins((struct slice){0}, ""));
}

TEST(quotes_are_taken_off_where_they_are_at_both_ends)
{
    ck_assert(slice_is(slice_unquote(SLICE("\"a\"")), "a"));
    ck_assert(slice_is(slice_unquote(SLICE("\"\"")), ""));
    ck_assert(slice_is(slice_unquote(SLICE("\"")), "\""));
    ck_assert(slice_is(slice_unquote(SLICE("\"a")), "\"a"));
}

TEST(a_word_is_found_whole)
{
    static const char *const words[] = {"busy", "accepted"};
    ck_assert_int_eq(slice_among(SLICE("accepted"), words, 2), 1);
    ck_assert_int_eq(slice_among(SLICE("accept"), words, 2), -1);
    ck_assert_int_eq(slice_among(SLICE(""), words, 2), -1);
}

TEST(a_number_is_digits_and_nothing_else)
{
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "12345", "0x1", "1.0"};
    int64_t number = 7;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert(!slice_number(slice_of(bad[i]), 4, &number));
    ck_assert_int_eq(number, 7);
    ck_assert(slice_number(SLICE("0012"), 4, &number));
    ck_assert_int_eq(number, 12);
    ck_assert(slice_number(SLICE("999999999999999999"), 18, &number));
    ck_assert_int_eq(number, 999999999999999999);
}

TEST(hexadecimal_digits_are_pairs_that_fit)
{
    static const char *const bad[] = {"", "0", "0g", "g0", "0a0", "000102030405"};
    unsigned char bytes[4];
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_uint_eq(slice_read_hex(slice_of(bad[i]), bytes, sizeof(bytes)), 0);
    ck_assert_uint_eq(slice_read_hex(SLICE("00aFFf9A"), bytes, sizeof(bytes)), 4);
    ck_assert_mem_eq(bytes, "\x00\xaf\xff\x9a", 4);
}

TESTS(slice)
