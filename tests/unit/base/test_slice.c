/* A comparison that reads past the end of a slice, or takes a prefix for the whole, accepts a wrong
 * name as a known one. */
#include <check.h>

#include "common/lib/base/base.h"
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

TESTS(slice)
