/* The story: a receiver of traces takes OpenTelemetry's JSON and nothing else, and a span that it cannot read is lost
 * without a word. So what is written is compared byte for byte with what the protocol says. */
#include <check.h>
#include <stdlib.h>

#include "common/core/span.h"
#include "tests/support/suite.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"

static struct buf out;

static void setup(void)
{
    buf_init(&out, 4096);
}

static void teardown(void)
{
    buf_done(&out);
}

static const struct span server = {
    .kind = SPAN_SERVER,
    .trace_id = TRACE,
    .id = "00f067aa0ba902b7",
    .parent_id = "b7ad6b7169203331",
    .verb = "POST",
    .object = "/v1/card-requests",
    .start_us = 1700000000000001,
    .end_us = 1700000000500000,
};

TEST(a_span_is_written_as_the_protocol_says)
{
    span_begin(&out, &server);
    span_text(&out, "http.route", "/v1/card-requests");
    span_integer(&out, "http.response.status_code", 202);
    span_bool(&out, "issuing.replayed", false);
    span_end(&out, false);
    ck_assert_str_eq(out.bytes,
                     "{\"traceId\":\"" TRACE "\",\"spanId\":\"00f067aa0ba902b7\",\"parentSpanId\":\"b7ad6b7169203331\","
                     "\"name\":\"POST /v1/card-requests\",\"kind\":2,\"startTimeUnixNano\":\"1700000000000001000\","
                     "\"endTimeUnixNano\":\"1700000000500000000\",\"attributes\":["
                     "{\"key\":\"http.route\",\"value\":{\"stringValue\":\"/v1/card-requests\"}},"
                     "{\"key\":\"http.response.status_code\",\"value\":{\"intValue\":\"202\"}},"
                     "{\"key\":\"issuing.replayed\",\"value\":{\"boolValue\":false}}]}");
}

TEST(a_root_has_no_parent_and_an_error_has_a_status)
{
    struct span root = server;
    root.kind = SPAN_CONSUMER;
    root.parent_id = "";
    root.end_us = root.start_us - 5; /* a clock that was set back: a span does not end before it begins */
    span_begin(&out, &root);
    span_text(&out, "left.out", NULL);
    span_text(&out, "left.out", "");
    span_bool(&out, "b", true);
    span_integer(&out, "least", INT64_MIN);
    span_end(&out, true);
    ck_assert_str_eq(out.bytes,
                     "{\"traceId\":\"" TRACE "\",\"spanId\":\"00f067aa0ba902b7\",\"name\":\"POST /v1/card-requests\","
                     "\"kind\":5,\"startTimeUnixNano\":\"1700000000000001000\","
                     "\"endTimeUnixNano\":\"1700000000000001000\",\"attributes\":["
                     "{\"key\":\"b\",\"value\":{\"boolValue\":true}},"
                     "{\"key\":\"least\",\"value\":{\"intValue\":\"-9223372036854775808\"}}],\"status\":{\"code\":2}}");
}

TEST(events_stand_before_the_attributes)
{
    struct span span = server;
    span.start_us = -7; /* no time */
    span.events[0] = "worker.lost";
    span.events[1] = "operator.replayed";
    span_begin(&out, &span);
    span_end(&out, false);
    ck_assert(strstr(out.bytes, ",\"events\":[{\"timeUnixNano\":\"1000\",\"name\":\"worker.lost\"},"
                                "{\"timeUnixNano\":\"1000\",\"name\":\"operator.replayed\"}],\"attributes\":[]}"));
}

TEST(a_text_is_escaped)
{
    span_begin(&out, &server);
    span_text(&out, "t", "a\"b\\\n\xff");
    span_end(&out, false);
    ck_assert(strstr(out.bytes, "\"stringValue\":\"a\\\"b\\\\\\n\xef\xbf\xbd\"}}]}"));
}

TEST(ids_are_of_16_digits_and_differ)
{
    char one[SPAN_ID_SIZE] = "", other[SPAN_ID_SIZE] = "";
    span_make_id(one);
    span_make_id(other);
    ck_assert_uint_eq(strspn(one, "0123456789abcdef"), 16);
    ck_assert_str_ne(one, other);
}

TEST(of_many_events_the_share_is_sampled_and_each_one_always_alike)
{
    int sampled = 0;
    for (int i = 0; i < 20000; i++) {
        const struct uuid event_id = uuid7_make();
        char id[TRACE_ID_SIZE];
        trace_id_of((struct slice){0}, &event_id, id);
        bool is_sampled = span_is_sampled(id, 250000);
        ck_assert(is_sampled == span_is_sampled(id, 250000));
        ck_assert(span_is_sampled(id, 1000000) && !span_is_sampled(id, 0));
        sampled += is_sampled;
    }
    ck_assert_int_gt(sampled, 4500); /* eight standard deviations */
    ck_assert_int_lt(sampled, 5500);
}

TESTS_BETWEEN(span, setup, teardown)
