/* A client's trace must lead from its request through the worker to the peers. A traceparent that is not one must not
 * go out to a peer: it comes from clients and from other services' rows, so it may hold anything. */
#include <check.h>
#include <string.h>

#include "common/base/trace.h"
#include "tests/support/suite.h"

#define TRACE_ID "4bf92f3577b34da6a3ce929d0e0e4736"
#define TRACE "00-" TRACE_ID "-00f067aa0ba902b7-01"

static bool is_valid(const char *text)
{
    return trace_is_valid((struct slice){.bytes = text, .length = strlen(text)});
}

START_TEST(a_traceparent_of_version_00_is_valid)
{
    ck_assert(is_valid(TRACE));
    ck_assert(is_valid("00-00000000000000000000000000000001-0000000000000001-ff"));
}
END_TEST

static const char *const bad[] = {
    "",
    "00-" TRACE_ID "-00f067aa0ba902b7-0",
    "00-" TRACE_ID "-00f067aa0ba902b7-011",
    "01-" TRACE_ID "-00f067aa0ba902b7-01",                     /* another version */
    "ff-" TRACE_ID "-00f067aa0ba902b7-01",                     /* no version */
    "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", /* upper case */
    "00-" TRACE_ID "-00F067AA0BA902B7-01",
    "00-00000000000000000000000000000000-00f067aa0ba902b7-01", /* no trace id */
    "00-" TRACE_ID "-0000000000000000-01",                     /* no span id */
    "00-" TRACE_ID "_00f067aa0ba902b7-01",
    "00_" TRACE_ID "-00f067aa0ba902b7-01",
    "00-" TRACE_ID "-00f067aa0ba902b7_01",
    "00-" TRACE_ID "-00f067aa0ba902b\n-01",
    "00-" TRACE_ID "-00f067aa0ba902b7-0g",
    "00-4bf92f3577b34da6a3ce929d0e0e473\r-00f067aa0ba902b7-01",
};

START_TEST(what_is_no_traceparent_is_not_valid)
{
    ck_assert_msg(!is_valid(bad[_i]), "%s", bad[_i]);
}
END_TEST

START_TEST(a_nul_inside_or_a_null_is_not_valid)
{
    char text[] = TRACE;
    text[54] = '\0';
    ck_assert(!trace_is_valid((struct slice){.bytes = text, .length = TRACE_LENGTH}));
    ck_assert(!trace_is_valid((struct slice){0}));
}
END_TEST

START_TEST(a_child_keeps_the_trace_and_the_flags_and_has_a_span_of_its_own)
{
    char child[TRACE_SIZE], other[TRACE_SIZE];
    trace_make_child(TRACE, child);
    trace_make_child(TRACE, other);
    ck_assert(is_valid(child));
    ck_assert_mem_eq(child, TRACE, 36);
    ck_assert_str_eq(child + 52, "-01");
    ck_assert_str_ne(child, TRACE);
    ck_assert_str_ne(child, other);
}
END_TEST

START_TEST(a_call_without_a_parent_begins_a_trace)
{
    char child[TRACE_SIZE], other[TRACE_SIZE];
    trace_make_child("", child);
    trace_make_child("", other);
    ck_assert(is_valid(child));
    ck_assert_int_ne(memcmp(child + 3, other + 3, 32), 0);
}
END_TEST

SUITE(trace)
{
    TCase *tcase = tcase_create("trace");
    tcase_add_test(tcase, a_traceparent_of_version_00_is_valid);
    tcase_add_loop_test(tcase, what_is_no_traceparent_is_not_valid, 0, ARRAY_SIZE(bad));
    tcase_add_test(tcase, a_nul_inside_or_a_null_is_not_valid);
    tcase_add_test(tcase, a_child_keeps_the_trace_and_the_flags_and_has_a_span_of_its_own);
    tcase_add_test(tcase, a_call_without_a_parent_begins_a_trace);
    suite_add_tcase(suite, tcase);
}
