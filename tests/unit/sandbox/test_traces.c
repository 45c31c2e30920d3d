/* The story: somebody asks why a card took so long. A drawing that loses a late span, hides a wait or hangs on spans
 * that are each other's parents answers wrongly; one that lets a span's text act on the terminal or the page is a
 * hole. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/buf.h"
#include "common/lib/base/slice.h"
#include "sandbox/otlp.h"
#include "sandbox/spans.h"
#include "sandbox/trace_drawing.h"
#include "tests/support/suite.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SECOND 1000 /* ms */

static struct spans *spans;
static struct buf out, body;

static void set_up(void)
{
    spans = spans_new();
    ck_assert_ptr_nonnull(spans);
    buf_init(&out, 64 << 20);
    buf_init(&body, 64 << 20);
}

static void tear_down(void)
{
    spans_free(spans);
    buf_done(&out);
    buf_done(&body);
}

static const char *read_body(const char *text, size_t *ret_rejected)
{
    return otlp_read(slice_of(text), spans, ret_rejected);
}

/* One span of a service in a body of its own; `more` are further members. */
static void take(const char *service, const char *id, const char *parent, int kind, int from_ms, int to_ms,
                 const char *name, const char *more)
{
    size_t rejected;
    buf_reset(&body);
    buf_put_format(
        &body,
        "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{"
        "\"stringValue\":\"%s\"}}]},\"scopeSpans\":[{\"spans\":[{\"traceId\":\"" TRACE
        "\",\"spanId\":\"00000000000000%s\",\"parentSpanId\":\"%s%s\",\"kind\":%d,\"name\":\"%s\","
        "\"startTimeUnixNano\":\"1796000000%03d000000\",\"endTimeUnixNano\":\"179600000%d%03d000000\"%s}]}]}]}",
        service, id, *parent ? "00000000000000" : "", parent, kind, name, from_ms, to_ms / SECOND, to_ms % SECOND,
        more);
    ck_assert_ptr_null(read_body(body.bytes, &rejected));
    ck_assert_uint_eq(rejected, 0);
}

static const char *draw(bool as_page)
{
    static const struct span *found[SPANS_MAX];
    buf_reset(&out);
    ck_assert(trace_draw(found, spans_of(spans, TRACE, found, SPANS_MAX), as_page, &out));
    return out.bytes;
}

static void assert_has(const char *text, const char *wanted)
{
    ck_assert_msg(strstr(text, wanted), "no \"%s\" in\n%s", wanted, text);
}

static void assert_has_not(const char *text, const char *unwanted)
{
    ck_assert_msg(!strstr(text, unwanted), "\"%s\" in\n%s", unwanted, text);
}

TEST(a_tree_has_each_span_below_its_parent_with_its_time_and_its_wait)
{
    take("api", "01", "", SPAN_SERVER, 0, 20, "POST /v1/card-requests", "");
    take("worker", "02", "01", SPAN_CONSUMER, 100, 300, "process CARD_ISSUE",
         ",\"status\":{\"code\":2,\"message\":\"no answer\"},\"attributes\":["
         "{\"key\":\"issuing.attempt\",\"value\":{\"intValue\":\"1\"}},"
         "{\"key\":\"messaging.system\",\"value\":{\"stringValue\":\"issuing\"}}]");
    take("worker", "03", "02", SPAN_CLIENT, 110, 290, "POST /v1/cards",
         ",\"attributes\":[{\"key\":\"error.type\",\"value\":{\"stringValue\":\"timeout\"}}]");
    take("worker", "04", "01", SPAN_CONSUMER, 800, 1000, "process CARD_ISSUE",
         ",\"attributes\":[{\"key\":\"issuing.attempt\",\"value\":{\"intValue\":2}}],"
         "\"events\":[{\"name\":\"replay\",\"timeUnixNano\":\"1796000000800000000\"}]");
    const char *want =
        "trace " TRACE ": 4 spans in 1.00 s, from 2026-11-30T00:53:20.000000Z\n\n"
        "                                                after     took  = runs, # in error, . waits\n"
        "api: POST /v1/card-requests                    0.0 ms    20 ms |=                               |\n"
        "  worker: process CARD_ISSUE                   100 ms   200 ms |...######                       |"
        " error: no answer, attempt 1, waited 80 ms\n"
        "    POST /v1/cards                             110 ms   180 ms |   ======                       | timeout\n"
        "  worker: process CARD_ISSUE                   800 ms   200 ms |         ................=======|"
        " attempt 2, waited 500 ms, event: replay after 800 ms\n";
    ck_assert_str_eq(draw(false), want);
}

TEST(the_order_in_which_spans_arrive_changes_nothing)
{
    static const char *const ids[] = {"01", "02", "03", "04"};
    static const char *const parents[] = {"", "01", "02", "02"};
    char *first = NULL;
    for (int turn = 0; turn < 24; turn++) {
        int left[] = {0, 1, 2, 3}, count = 4, rest = turn;
        spans_clear(spans);
        for (int divisor = 4; divisor > 0; divisor--) {
            int at = rest % divisor, i = left[at];
            rest /= divisor;
            left[at] = left[--count];
            take("api", ids[i], parents[i], SPAN_CONSUMER, 10 * i, 500, "work", "");
        }
        if (!first)
            first = strdup(draw(false));
        else
            ck_assert_str_eq(draw(false), first);
    }
    free(first);
}

TEST(a_span_that_is_sent_again_is_there_once)
{
    take("api", "01", "", SPAN_SERVER, 0, 20, "before", "");
    take("api", "02", "01", SPAN_CLIENT, 0, 20, "child", "");
    take("api", "01", "", SPAN_SERVER, 0, 30, "after", "");
    assert_has(draw(false), ": 2 spans");
    assert_has_not(draw(false), "before");
    ck_assert_str_eq(spans_newest(spans, 1)->name, "after");
}

TEST(a_span_without_its_parent_is_at_the_top_and_says_so)
{
    take("worker", "02", "0f", SPAN_CONSUMER, 100, 300, "process CARD_ISSUE", "");
    take("worker", "03", "0f", SPAN_CONSUMER, 500, 600, "process CARD_ISSUE", "");
    assert_has(draw(false), "\nworker: process CARD_ISSUE                     0.0 ms");
    assert_has(draw(false), "below a span that is not here: 000000000000000f\n");
    assert_has(draw(false), "waited 200 ms, below");
    take("api", "0f", "", SPAN_SERVER, 0, 20, "late", "");
    assert_has_not(draw(false), "not here");
    assert_has(draw(false), "\n  worker: process CARD_ISSUE                   100 ms");
}

TEST(spans_that_are_each_others_parents_are_drawn_once_each)
{
    take("a", "01", "01", SPAN_SERVER, 0, 20, "itself", "");
    take("a", "02", "04", SPAN_CONSUMER, 30, 40, "second", "");
    take("a", "03", "02", SPAN_CONSUMER, 40, 50, "third", "");
    take("a", "04", "03", SPAN_CONSUMER, 50, 60, "fourth", "");
    take("a", "05", "03", SPAN_CLIENT, 55, 60, "fifth", "");
    const char *drawn = draw(false);
    assert_has(drawn, "\na: itself ");
    assert_has(drawn, "\na: second ");
    assert_has(drawn, "\n  third ");
    assert_has(drawn, "\n    fourth ");
    assert_has(drawn, "\n    fifth ");
    ck_assert_ptr_null(strstr(strstr(drawn, "second") + 1, "second"));
}

TEST(times_that_are_missing_or_turned_round_are_told)
{
    size_t rejected;
    take("a", "01", "", SPAN_SERVER, 500, 100, "backwards", "");
    take("a", "02", "", SPAN_SERVER, 500, 600, "right", "");
    ck_assert_ptr_null(read_body("{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":["
                                 "{\"traceId\":\"" TRACE "\",\"spanId\":\"000000000000000a\",\"name\":\"timeless\"},"
                                 "{\"traceId\":\"" TRACE "\",\"spanId\":\"000000000000000B\",\"name\":\"endless\","
                                 "\"startTimeUnixNano\":\"1796000000550000000\"},"
                                 "{\"traceId\":\"" TRACE "\",\"spanId\":\"000000000000000C\",\"name\":\"far\","
                                 "\"startTimeUnixNano\":\"18446744073709551615\",\"endTimeUnixNano\":1}"
                                 "]}]}]}",
                                 &rejected));
    ck_assert_uint_eq(rejected, 0);
    assert_has(draw(false), "ends before its start");
    assert_has(draw(false), "without a start");
    assert_has(draw(false), "without an end");
    assert_has(draw(true), "ends before its start");
}

TEST(what_cannot_be_a_span_is_rejected_and_the_others_are_taken)
{
    static const char *const bad[] = {
        "{}",
        "5",
        "{\"traceId\":\"" TRACE "\",\"name\":\"n\"}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0000000000000001\"}",
        "{\"traceId\":\"" TRACE "0\",\"spanId\":\"0000000000000001\",\"name\":\"n\"}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0000000000000000\",\"name\":\"n\"}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"000000000000000g\",\"name\":\"n\"}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0000000000000001\",\"parentSpanId\":\"1\",\"name\":\"n\"}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0000000000000001\",\"name\":5}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0000000000000001\",\"name\":\"a\",\"name\":\"b\"}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0000000000000001\",\"name\":\"n\",\"kind\":\"SPAN_KIND_SERVER\"}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0000000000000001\",\"name\":\"n\",\"startTimeUnixNano\":\"-1\"}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0000000000000001\",\"name\":\"n\",\"attributes\":[5]}",
        "{\"traceId\":\"" TRACE "\",\"spanId\":\"0000000000000001\",\"name\":\"n\",\"events\":{}}",
    };
    size_t rejected;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        spans_clear(spans);
        buf_reset(&body);
        buf_put_format(&body,
                       "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[%s,{\"traceId\":\"" TRACE
                       "\",\"spanId\":\"000000000000000a\",\"name\":\"good\"}]}]}]}",
                       bad[i]);
        ck_assert_ptr_null(read_body(body.bytes, &rejected));
        ck_assert_msg(rejected == 1 && spans_newest(spans, 0) && !spans_newest(spans, 1), "%s", bad[i]);
        ck_assert_str_eq(spans_newest(spans, 0)->name, "good");
    }
}

TEST(a_body_that_is_no_export_leaves_nothing)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"resourceSpans\":{}}",
        "{\"resourceSpans\":[5]}",
        "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"traceId\":\"" TRACE
        "\",\"spanId\":\"000000000000000a\",\"name\":\"good\"}]},{\"spans\":5}]}]}",
    };
    static const char *const empty[] = {"{}", "{\"resourceSpans\":[]}", "{\"resourceSpans\":null,\"new\":[[{}]]}",
                                        "{\"resourceSpans\":[{\"scopeSpans\":[{\"scope\":{}}]}]}"};
    size_t rejected;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(read_body(bad[i], &rejected) && !spans_newest(spans, 0), "%s", bad[i]);
    for (size_t i = 0; i < ARRAY_SIZE(empty); i++)
        ck_assert_msg(!read_body(empty[i], &rejected) && !rejected && !spans_newest(spans, 0), "%s", empty[i]);
}

TEST(unknown_members_and_all_kinds_of_attributes_are_read)
{
    take("a", "01", "", SPAN_SERVER, 0, 10, "n",
         ",\"flags\":257,\"links\":[{}],\"new\":{\"a\":[1,{\"b\":null}]},\"attributes\":["
         "{\"key\":\"x.text\",\"value\":{\"stringValue\":\"t\\u00e9\"}},{\"key\":\"x.yes\",\"value\":{\"boolValue\":"
         "true}},"
         "{\"key\":\"x.number\",\"value\":{\"doubleValue\":1.5}},{\"key\":\"x.none\"},"
         "{\"key\":\"x.list\",\"value\":{\"arrayValue\":{\"values\":[{\"intValue\":\"7\"}]}}},"
         "{\"key\":\"http.response.status_code\",\"value\":{\"intValue\":\"503\"}},"
         "{\"key\":\"error.type\",\"value\":{\"stringValue\":\"503\"}}]");
    assert_has(draw(false), " text t\xc3\xa9, yes true, number 1.5, none , "
                            "list {\"values\":[{\"intValue\":\"7\"}]}, 503\n");
}

TEST(the_texts_of_a_span_act_on_neither_terminal_nor_page)
{
    take("<i>", "01", "", SPAN_SERVER, 0, 10, "\\u001b[2J\\u009b\\u202e</td><script>\\\"'&\\n",
         ",\"status\":{\"code\":2,\"message\":\"<b>\"},\"attributes\":[{\"key\":\"<u>\",\"value\":{\"stringValue\":"
         "\"\\u0007<s>\"}}],\"events\":[{\"name\":\"<p>\"}]");
    const char *text = draw(false);
    for (const char *at = text; *at; at++)
        ck_assert_msg(*at == '\n' || (unsigned char)*at >= ' ', "the byte %d", *at);
    assert_has(text, "<i>: ?[2J?\?</td><script>\"'&?");
    const char *page = draw(true);
    static const char *const marks[] = {"<i>", "</td>", "<script", "<b>", "<u>", "<s>", "\x1b", "\xe2\x80\xae"};
    for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
        assert_has_not(page, marks[i]);
    assert_has(page, "&#60;script&#62;&#34;&#39;&#38;");
}

TEST(long_texts_are_cut_between_characters_and_what_has_no_room_is_told)
{
    char name[400] = "", more[8000] = ",\"attributes\":[";
    for (int i = 0; i < 100; i++)
        strcat(name, "\xc3\xa9");
    for (int i = 0; i < 40; i++)
        sprintf(more + strlen(more), "%s{\"key\":\"x.%d\",\"value\":{\"stringValue\":\"%s\"}}", i ? "," : "", i,
                "0123456789012345678901234567890123456789");
    strcat(more, "]");
    take("a", "01", "", SPAN_SERVER, 0, 10, name, more);
    const struct span *span = spans_newest(spans, 0);
    ck_assert_uint_eq(strlen(span->name), 94);
    ck_assert(span->is_cut && span->attribute_count > 10 && span->attributes_end <= sizeof(span->attributes));
    assert_has(draw(false), ", ...\n");
}

TEST(the_last_spans_are_kept_and_all_of_them_can_be_drawn)
{
    struct span span = {.trace_id = TRACE, .name = "n", .kind = SPAN_CONSUMER, .start_ns = 1};
    for (int i = 0; i < SPANS_MAX + 10; i++) {
        memcpy(span.parent_id, span.id, sizeof(span.id));
        snprintf(span.id, sizeof(span.id), "%016x", i + 1);
        span.end_ns = ++span.start_ns + 1;
        spans_put(spans, &span);
    }
    char last[SPAN_ID_SIZE];
    snprintf(last, sizeof(last), "%016x", SPANS_MAX + 10);
    ck_assert_str_eq(spans_newest(spans, 0)->id, last);
    ck_assert_str_eq(spans_newest(spans, SPANS_MAX - 1)->id, "000000000000000b");
    ck_assert_ptr_null(spans_newest(spans, SPANS_MAX));
    assert_has(draw(false), ": 8192 spans");
    assert_has(draw(false), "below a span that is not here: 000000000000000a\n");
}

TEST(a_list_names_each_trace_and_its_first_span)
{
    take("api", "01", "", SPAN_SERVER, 0, 20, "POST /v1/card-requests", "");
    struct trace_line line = {.first = spans_newest(spans, 0), .spans = 7, .errors = 1, .from_ns = 1, .to_ns = 2000001};
    ck_assert(trace_draw_list(&line, 1, "http://h/traces/", false, &out));
    assert_has(out.bytes, "    2.0 ms     7      1  api: POST /v1/card-requests ");
    assert_has(out.bytes, "  http://h/traces/" TRACE "\n");
    buf_reset(&out);
    ck_assert(trace_draw_list(&line, 1, "http://h/traces/", true, &out));
    assert_has(out.bytes, "<a href=\"/traces/" TRACE "\">POST /v1/card-requests</a>");
}

TESTS_BETWEEN(traces, set_up, tear_down)
