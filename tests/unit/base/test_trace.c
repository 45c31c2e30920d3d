/* A client's trace must lead from its request through the worker to the peers. A traceparent that is not one must not
 * go out to a peer: it comes from clients and from other services' rows, so it may hold anything. */
#include <check.h>
#include <string.h>

#include "common/lib/base/trace.h"
#include "tests/support/suite.h"

#define TRACE_ID "4bf92f3577b34da6a3ce929d0e0e4736"
#define TRACE "00-" TRACE_ID "-00f067aa0ba902b7-01"

static bool is_valid(const char *text)
{
    return trace_is_valid((struct slice){.bytes = text, .length = strlen(text)});
}

TEST(a_traceparent_of_version_00_is_valid)
{
    ck_assert(is_valid(TRACE));
    ck_assert(is_valid("00-00000000000000000000000000000001-0000000000000001-ff"));
}

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

TEST(a_nul_inside_or_a_null_is_not_valid)
{
    char text[] = TRACE;
    text[54] = '\0';
    ck_assert(!trace_is_valid((struct slice){.bytes = text, .length = TRACE_LENGTH}));
    ck_assert(!trace_is_valid((struct slice){0}));
}

static bool is_state(const char *text)
{
    return trace_state_is_valid((struct slice){.bytes = text, .length = strlen(text)});
}

TEST(a_tracestate_has_members_with_key_and_value)
{
    ck_assert(is_state("congo=t61rcWkgMzE"));
    ck_assert(is_state("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"));
    ck_assert(is_state(" fw529a3039@dt=FfAEC ,\t, 4f/a_b-*=a b!~ "));
    ck_assert(is_state("a=1,"));
}

static const char *const bad_states[] = {
    "", ",", " , ", "a", "a=", "=b", "a=b=c", "A=b", "-a=b", "a b=c", "a=b\x7f", "a=\xc3\xa4", "a=b\r\nx: y", "a=b;c,d",
};

START_TEST(what_is_no_tracestate_is_not_valid)
{
    ck_assert_msg(!is_state(bad_states[_i]), "%s", bad_states[_i]);
}

TEST(a_tracestate_has_at_most_512_bytes_and_32_members)
{
    char text[TRACE_STATE_MAX + 2];
    memset(text, 'v', sizeof(text));
    memcpy(text, "a=", 2);
    memcpy(text + 258, ",b=", 3);
    ck_assert(!trace_state_is_valid((struct slice){text, TRACE_STATE_MAX + 1}));
    ck_assert(trace_state_is_valid((struct slice){text, TRACE_STATE_MAX}));
    memcpy(text + 258, "v,b=", 4); /* a value of 257 bytes */
    ck_assert(!trace_state_is_valid((struct slice){text, TRACE_STATE_MAX}));
    for (int members = 1; members <= 33; members++) {
        memcpy(text + 4 * (members - 1), "a=b,", 4);
        ck_assert_int_eq(trace_state_is_valid((struct slice){text, 4 * (size_t)members}), members <= 32);
    }
    text[1] = '\0';
    ck_assert(!trace_state_is_valid((struct slice){text, 4}));
    ck_assert(!trace_state_is_valid((struct slice){0}));
}

static struct trace trace;
static struct uuid event_id;

static void of_event(const char *parent, const char *state)
{
    ck_assert(uuid_parse("0190b5a8-7c1e-7cc3-98c4-dc0c0c07398f", 36, &event_id));
    trace_of_event((struct slice){parent, strlen(parent)}, (struct slice){state, strlen(state)}, &event_id, &trace);
}

TEST(the_calls_of_an_event_go_on_with_what_its_client_gave)
{
    of_event(TRACE, "a=b,c=d");
    ck_assert_str_eq(trace.parent, TRACE);
    ck_assert_str_eq(trace.state, "a=b,c=d");
    ck_assert_str_eq(trace.id, TRACE_ID);
    of_event(TRACE, "a=b,c");
    ck_assert_str_eq(trace.parent, TRACE);
    ck_assert_str_eq(trace.state, "");
}

TEST(an_event_without_a_trace_has_one_of_its_own_that_is_not_sampled)
{
    of_event("", "");
    ck_assert_str_eq(trace.id, "0190b5a87c1e7cc398c4dc0c0c07398f");
    ck_assert_str_eq(trace.parent, "00-0190b5a87c1e7cc398c4dc0c0c07398f-98c4dc0c0c07398f-00");
    of_event("00-" TRACE_ID "-00f067aa0ba902b7-0g", "a=b");
    ck_assert_str_eq(trace.state, ""); /* it is of the trace that is not a trace */
    memset(&event_id, 0, sizeof(event_id));
    trace_of_event((struct slice){0}, (struct slice){0}, &event_id, &trace);
    ck_assert_str_eq(trace.parent, "");
}

TEST(what_follows_from_an_event_without_a_trace_is_of_its_trace)
{
    of_event("00-" TRACE_ID "-0000000000000000-00", "a=b");
    ck_assert_str_eq(trace.id, TRACE_ID);
    ck_assert_str_eq(trace.parent, "00-" TRACE_ID "-a3ce929d0e0e4736-00");
    ck_assert_str_eq(trace.state, "");
    ck_assert(trace.is_ours);
}

SUITE(trace)
{
    TCase *tcase = tcase_create("trace");
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, what_is_no_traceparent_is_not_valid, 0, ARRAY_SIZE(bad));
    tcase_add_loop_test(tcase, what_is_no_tracestate_is_not_valid, 0, ARRAY_SIZE(bad_states));
    suite_add_tcase(suite, tcase);
}
