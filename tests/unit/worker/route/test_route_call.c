/* The story: a receiver knows a delivery by its headers: which event it is, whose, and whether it has seen it already.
 * So what goes over the wire is compared line by line and to the last byte of the body, over both transports; an answer
 * means what the table of outcomes says, never more; and what is kept of it holds no secret. */
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/unit/http_caller.h"
#include "worker/route/route_call.h"
#include "tests/support/suite.h"

#define EVENT "01890a5d-ac96-774b-bcce-b302099a8057"
#define SECRET "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define CREATED_MS INT64_C(1700000000123) /* 2023-11-14T22:13:20.123Z */
#define NOW_MS INT64_C(1700000060999)
#define TRACEPARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static struct config_route config;
static struct route route;
static struct route_event event;
static struct http_call call;
static struct outcome outcome;
static char method[8], url[128], lookup_url[128];
static char secret_path[64];

static struct route_signer *make_signer(const char *text)
{
    struct route_signer *signer = NULL;
    struct err err = {0};
    snprintf(secret_path, sizeof(secret_path), "/tmp/test_route_call.%ld", (long)getpid());
    FILE *file = fopen(secret_path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(secret_path, 0600), 0);
    ck_assert_msg(route_signer_load(secret_path, &signer, &err), "%s", err.message);
    ck_assert_int_eq(unlink(secret_path), 0);
    return signer;
}

static const struct trace trace = {.parent = TRACEPARENT};

static void set_up_route(void)
{
    config = (struct config_route){.type = "PAYMENT_CHARGE", .url = url, .method = method};
    strcpy(method, "POST");
    strcpy(url, "https://pay.example/v1/charges/");
    route = (struct route){.config = &config};
    event = (struct route_event){.user_id = "alice", .payload = SLICE("{\"amount\": 100}"), .created_ms = CREATED_MS};
    ck_assert(uuid_parse(EVENT, strlen(EVENT), &event.event_id));
    http_call_init(&call, ANSWER_MAX * 16);
    memset(&outcome, 0, sizeof(outcome));
}

static void tear_down_route(void)
{
    http_call_done(&call);
    route_signer_free(route.signer);
}

static void expect_line(int number, const char *text)
{
    const char *line = call.lines.bytes;
    for (; number > 0 && line; number--)
        line = http_call_next_line(&call, line);
    if (text) {
        ck_assert_ptr_nonnull(line);
        ck_assert_str_eq(line, text);
    } else {
        ck_assert_ptr_null(line);
    }
}

static void expect_header(const char *header)
{
    for (const char *line = call.lines.bytes; line; line = http_call_next_line(&call, line))
        if (strcmp(line, header) == 0)
            return;
    ck_abort_msg("no header \"%s\"", header);
}

/* ---- what is built ---- */

START_TEST(a_delivery_has_the_headers_of_cloudevents_in_binary_mode)
{
    event.trace = &trace;
    ck_assert(route_build_deliver(&route, &event, NOW_MS, &call));
    ck_assert_str_eq(call.method, "POST");
    expect_line(0, "https://pay.example/v1/charges/");
    expect_line(1, "Content-Type: application/json");
    expect_line(2, "Idempotency-Key: " EVENT);
    expect_line(3, "ce-specversion: 1.0");
    expect_line(4, "ce-id: " EVENT);
    expect_line(5, "ce-type: PAYMENT_CHARGE");
    expect_line(6, "ce-source: issuing");
    expect_line(7, "ce-time: 2023-11-14T22:13:20.123Z");
    expect_line(8, "ce-subject: alice");
    expect_line(9, "traceparent: " TRACEPARENT);
    expect_line(10, NULL);
    ck_assert_str_eq(call.body.bytes, "{\"amount\": 100}");
    ck_assert(call.status_is_enough);
    ck_assert_ptr_null(http_call_check(&call));
}

START_TEST(a_delivery_that_is_built_again_is_the_same)
{
    struct http_call again;
    http_call_init(&again, 1);
    ck_assert(route_build_deliver(&route, &event, NOW_MS, &again));
    ck_assert(route_build_deliver(&route, &event, NOW_MS, &call));
    ck_assert(route_build_deliver(&route, &event, NOW_MS + 100000, &call));
    ck_assert_uint_eq(call.lines.length, again.lines.length);
    ck_assert_mem_eq(call.lines.bytes, again.lines.bytes, call.lines.length);
    ck_assert_uint_eq(call.body.length, again.body.length);
    http_call_done(&again);
}

START_TEST(a_signed_delivery_has_the_headers_of_standard_webhooks)
{
    char signature[ROUTE_SIGNATURE_SIZE], line[200];
    config.sign_secret_file = lookup_url;
    route.signer = make_signer("whsec_" SECRET);
    event.trace = &trace;
    ck_assert(route_build_deliver(&route, &event, NOW_MS, &call));
    ck_assert(route_sign(route.signer, EVENT, NOW_MS / 1000, event.payload, signature));
    snprintf(line, sizeof(line), "webhook-signature: %s", signature);
    expect_line(10, "webhook-id: " EVENT);
    expect_line(11, "webhook-timestamp: 1700000060");
    expect_line(12, line);
    expect_line(13, NULL);
    ck_assert_ptr_null(http_call_check(&call));
}

START_TEST(a_delivery_whose_secret_is_missing_is_not_sent_unsigned)
{
    config.sign_secret_file = lookup_url;
    ck_assert(!route_build_deliver(&route, &event, NOW_MS, &call));
    ck_assert_ptr_nonnull(http_call_check(&call));
}

/* CloudEvents, binding to HTTP 1.0.2, 3.1.3.2; the last rows are its own examples. */
START_TEST(a_user_is_percent_encoded_as_cloudevents_says)
{
    static const struct {
        const char *user_id, *header;
    } rows[] = {
        {"a b", "ce-subject: a%20b"},
        {"\"", "ce-subject: %22"},
        {"100%", "ce-subject: 100%25"},
        {"%20", "ce-subject: %2520"},
        {"a\r\nX-Evil: 1", "ce-subject: a%0D%0AX-Evil:%201"},
        {"\x7f\x01\xff", "ce-subject: %7F%01%FF"},
        {"!#$&'()*+,-./:;<=>?@[\\]^_`{|}~", "ce-subject: !#$&'()*+,-./:;<=>?@[\\]^_`{|}~"},
        {"Euro \xe2\x82\xac \xf0\x9f\x98\x80", "ce-subject: Euro%20%E2%82%AC%20%F0%9F%98%80"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        event.user_id = rows[i].user_id;
        ck_assert(route_build_deliver(&route, &event, NOW_MS, &call));
        expect_header(rows[i].header);
        ck_assert_ptr_null(http_call_check(&call));
    }
}

START_TEST(the_time_has_milliseconds_and_is_utc)
{
    static const struct {
        int64_t created_ms;
        const char *header;
    } rows[] = {
        {0, "ce-time: 1970-01-01T00:00:00.000Z"},         {999, "ce-time: 1970-01-01T00:00:00.999Z"},
        {-1, "ce-time: 1969-12-31T23:59:59.999Z"},        {INT64_C(951782400000), "ce-time: 2000-02-29T00:00:00.000Z"},
        {INT64_MAX, "ce-time: 9999-12-31T23:59:59.999Z"}, {INT64_MIN, "ce-time: 0000-01-01T00:00:00.000Z"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        event.created_ms = rows[i].created_ms;
        ck_assert(route_build_deliver(&route, &event, NOW_MS, &call));
        expect_header(rows[i].header);
    }
}

START_TEST(a_payload_of_64_kib_is_delivered_and_a_larger_one_is_not)
{
    static char payload[ROUTE_PAYLOAD_MAX + 1];
    memset(payload, '1', sizeof(payload));
    event.payload = (struct slice){.bytes = payload, .length = ROUTE_PAYLOAD_MAX};
    ck_assert(route_build_deliver(&route, &event, NOW_MS, &call));
    ck_assert_uint_eq(call.body.length, ROUTE_PAYLOAD_MAX);
    event.payload.length++;
    ck_assert(!route_build_deliver(&route, &event, NOW_MS, &call));
    event.payload.length = 0;
    ck_assert(route_build_deliver(&route, &event, NOW_MS, &call));
    ck_assert_uint_eq(call.body.length, 0);
}

START_TEST(a_look_up_asks_for_the_event)
{
    static const struct {
        const char *configured, *asked;
    } rows[] = {
        {"https://pay.example/v1/charges/{id}", "https://pay.example/v1/charges/" EVENT},
        {"https://pay.example/{id}/state/", "https://pay.example/" EVENT "/state/"},
        {"https://pay.example/by-key-{id}.json", "https://pay.example/by-key-" EVENT ".json"},
    };
    config.lookup_url = lookup_url;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        strcpy(lookup_url, rows[i].configured);
        ck_assert(route_build_lookup(&route, &event, &call));
        ck_assert_str_eq(call.method, "GET");
        expect_line(0, rows[i].asked);
        expect_line(1, NULL);
        ck_assert_uint_eq(call.body.length, 0);
        ck_assert_ptr_null(http_call_check(&call));
    }
    event.trace = &trace;
    ck_assert(route_build_lookup(&route, &event, &call));
    expect_line(1, "traceparent: " TRACEPARENT);
    expect_line(2, NULL);
}

/* ---- what is read ---- */

static void answered(int status, const char *text)
{
    call.result = HTTP_ANSWERED;
    call.status = status;
    call.retry_after_ms = -1;
    buf_reset(&call.answer);
    ck_assert(buf_put_text(&call.answer, text));
}

START_TEST(any_2xx_is_executed_whatever_its_body_is)
{
    for (int status = 200; status <= 299; status++) {
        answered(status, status % 2 ? "" : "<html>");
        outcome_of_delivery(&call, &outcome);
        ck_assert_msg(outcome.kind == OUTCOME_EXECUTED && outcome.advice == ADVICE_NONE, "%d", status);
        ck_assert_int_eq(outcome.health, BREAKER_GOOD);
    }
}

START_TEST(everything_else_is_the_table_of_outcomes)
{
    static const struct {
        int status;
        enum outcome_kind kind;
        enum outcome_advice advice;
        const char *code;
    } rows[] = {
        {301, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, "route_http_301"},
        {400, OUTCOME_REFUSED, ADVICE_REJECT, "route_refused"},
        {401, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, "route_http_401"},
        {404, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, "route_http_404"},
        {408, OUTCOME_UNKNOWN, ADVICE_RETRY, "route_http_408"},
        {409, OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, "route_http_409"},
        {410, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, "route_http_410"},
        {418, OUTCOME_REFUSED, ADVICE_FAIL, "route_http_418"},
        {422, OUTCOME_REFUSED, ADVICE_REJECT, "route_refused"},
        {425, OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, "route_http_425"},
        {429, OUTCOME_NOT_EXECUTED, ADVICE_WAIT, "route_http_429"},
        {500, OUTCOME_UNKNOWN, ADVICE_RETRY, "route_http_500"},
        {503, OUTCOME_UNKNOWN, ADVICE_RETRY, "route_http_503"},
        {600, OUTCOME_UNKNOWN, ADVICE_RETRY, "route_http_600"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        answered(rows[i].status, "");
        outcome_of_delivery(&call, &outcome);
        ck_assert_msg(outcome.kind == rows[i].kind && outcome.advice == rows[i].advice, "%d", rows[i].status);
        ck_assert_str_eq(outcome.code, rows[i].code);
        ck_assert((outcome.health == BREAKER_GONE) == (rows[i].status == 410));
        ck_assert(rows[i].kind != OUTCOME_REFUSED || outcome.health == BREAKER_REFUSED);
    }
    answered(422, "{\"code\":\"insufficient_funds\",\"detail\":\"card 4111111111111111 is empty\"}");
    outcome_of_delivery(&call, &outcome);
    ck_assert_str_eq(outcome.code, "insufficient_funds");
    ck_assert_ptr_nonnull(strstr(outcome.detail, "is empty"));
    ck_assert_ptr_null(strstr(outcome.detail, "4111111111111111"));
    answered(422, "{\"code\":\"No Code\"}");
    outcome_of_delivery(&call, &outcome);
    ck_assert_str_eq(outcome.code, "route_refused");
    call.result = HTTP_LOST;
    outcome_of_delivery(&call, &outcome);
    ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
    ck_assert_str_eq(outcome.code, "route_no_answer");
    call.result = HTTP_NOT_SENT;
    outcome_of_delivery(&call, &outcome);
    ck_assert_int_eq(outcome.kind, OUTCOME_NOT_EXECUTED);
    ck_assert_str_eq(outcome.code, "route_unreachable");
}

START_TEST(a_look_up_says_yes_no_or_nothing)
{
    bool was_executed = false;
    answered(200, "anything");
    outcome_of_question(&call, &was_executed, &outcome);
    ck_assert(outcome.kind == OUTCOME_EXECUTED && was_executed);
    answered(404, "");
    outcome_of_question(&call, &was_executed, &outcome);
    ck_assert(outcome.kind == OUTCOME_EXECUTED && !was_executed);
    for (int status = 100; status <= 999; status++) {
        if (status == 200 || status == 404)
            continue;
        answered(status, "{\"code\":\"gone\"}");
        was_executed = true;
        outcome_of_question(&call, &was_executed, &outcome);
        ck_assert_msg(outcome.kind == OUTCOME_UNKNOWN || outcome.kind == OUTCOME_NOT_EXECUTED, "%d", status);
        ck_assert_msg(outcome.advice != ADVICE_REJECT && outcome.advice != ADVICE_FAIL, "%d", status);
        ck_assert(was_executed); /* untouched */
    }
    call.result = HTTP_LOST;
    outcome_of_question(&call, &was_executed, &outcome);
    ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
    call.result = HTTP_NOT_SENT;
    outcome_of_question(&call, &was_executed, &outcome);
    ck_assert_int_eq(outcome.kind, OUTCOME_NOT_EXECUTED);
}

/* ---- the kept result ---- */

static void expect_kept(const char *text, bool is_kept)
{
    answered(200, text);
    struct slice result = route_read_result(&call, &route);
    ck_assert_msg((result.length > 0) == is_kept, "%s", text);
    if (is_kept)
        ck_assert(slice_is(result, text));
}

START_TEST(a_json_answer_is_kept_where_the_route_says_so)
{
    static const char *const kept[] = {"{}",
                                       "[]",
                                       "null",
                                       "true",
                                       "0",
                                       "\"x\"",
                                       " {\"a\": [1, 2.5, -3e10]}\n",
                                       "\"1e9999\"",
                                       "{\"1e9\":\"\\\"1e9999\"}",
                                       "\"\\u00e9 \xc3\xa9\""};
    static const char *const dropped[] = {"",
                                          " ",
                                          "{",
                                          "{}x",
                                          "{'a':1}",
                                          "NaN",
                                          "\"\\u0000\"",
                                          "\"\\ud800\"",
                                          "\"\xff\"",
                                          "1e999",
                                          "1e-9000",
                                          "[1e5000,1e-5000]",
                                          "{\"a\":1,\"a\":2}",
                                          "01",
                                          "\xef\xbb\xbf{}"};
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        expect_kept(kept[i], false);
    config.keep_result = true;
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        expect_kept(kept[i], true);
    for (size_t i = 0; i < ARRAY_SIZE(dropped); i++)
        expect_kept(dropped[i], false);
    expect_kept("[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]", true);
    expect_kept("[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]", false);
    answered(422, "{}");
    ck_assert_uint_eq(route_read_result(&call, &route).length, 0);
    answered(200, "{}");
    call.result = HTTP_LOST;
    ck_assert_uint_eq(route_read_result(&call, &route).length, 0);
}

START_TEST(a_result_of_8_kib_is_kept_and_a_longer_one_is_not)
{
    static char text[ROUTE_RESULT_MAX + 2];
    config.keep_result = true;
    memset(text, 'x', sizeof(text) - 1);
    text[0] = text[ROUTE_RESULT_MAX - 1] = '"';
    text[ROUTE_RESULT_MAX] = '\0';
    expect_kept(text, true);
    text[ROUTE_RESULT_MAX - 1] = 'x';
    text[ROUTE_RESULT_MAX] = '"';
    text[ROUTE_RESULT_MAX + 1] = '\0';
    expect_kept(text, false);
}

START_TEST(a_result_that_repeats_a_secret_of_ours_is_not_kept)
{
    struct err err = {0};
    char path[64];
    config.keep_result = true;
    snprintf(path, sizeof(path), "/tmp/test_route_call.%ld", (long)getpid());
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs("tok_12345678\n", file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert(credential_load(path, &credential_bearer, &route.peer.credential, &err));
    ck_assert_int_eq(unlink(path), 0);
    route.signer = make_signer("whsec_" SECRET);
    expect_kept("{\"a\":\"b\"}", true);
    expect_kept("{\"you\":\"Bearer tok_12345678\"}", false);
    expect_kept("{\"secret\":\"whsec_" SECRET "\"}", false);
    credential_release(route.peer.credential);
    route.peer.credential = NULL;
}

/* ---- over the wire ---- */

static const char *scheme;

static void set_up_wire(void)
{
    set_up_route();
    http_call_done(&call);
    set_up(strcmp(scheme, "http") == 0 ? HTTP_PEER_CLEAR : HTTP_PEER_TLS);
    http_call_init(&call, ANSWER_MAX);
    call.timeout_ms = 10000;
    snprintf(url, sizeof(url), "%s://127.0.0.1:%d/ok", scheme, peer.port);
    snprintf(lookup_url, sizeof(lookup_url), "%s://127.0.0.1:%d/ok{id}", scheme, peer.port);
}

static void set_up_clear(void)
{
    scheme = "http";
    set_up_wire();
}

static void set_up_tls(void)
{
    scheme = "https";
    set_up_wire();
}

static void tear_down_wire(void)
{
    tear_down_route();
    tear_down();
}

/* The peer read this request line, exactly these header lines in some order, and this body. */
static void expect_request(const char *line, const char *const *headers, int count, const char *body, size_t length)
{
    const char *at = peer.last_request, *end = strstr(at, "\r\n\r\n");
    char host[64];
    ck_assert_ptr_nonnull(end);
    ck_assert_msg(strncmp(at, line, strlen(line)) == 0 && strncmp(at + strlen(line), " HTTP/1.1\r\n", 11) == 0, "%s",
                  at);
    snprintf(host, sizeof(host), "Host: 127.0.0.1:%d", peer.port);
    int lines = 0, found = 0;
    for (at = strstr(at, "\r\n") + 2; at < end + 2; at = strstr(at, "\r\n") + 2) {
        size_t line_length = (size_t)(strstr(at, "\r\n") - at);
        lines++;
        for (int i = 0; i <= count; i++) {
            const char *header = i < count ? headers[i] : host;
            found += strlen(header) == line_length && strncmp(header, at, line_length) == 0;
        }
    }
    ck_assert_msg(lines == count + 1 && found == count + 1, "%d lines, %d as expected:\n%s", lines, found,
                  peer.last_request);
    ck_assert_mem_eq(end + 4, body, length);
    ck_assert_int_eq(end[4 + length], '\0');
}

START_TEST(a_delivery_is_the_same_over_both_transports)
{
    static const char *const methods[] = {"POST", "PUT"};
    char signature[ROUTE_SIGNATURE_SIZE], signed_line[200];
    config.sign_secret_file = lookup_url;
    route.signer = make_signer("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX\nwhsec_" SECRET);
    event.user_id = "a b";
    event.trace = &trace;
    event.payload = SLICE("{\"name\": \"caf\xc3\xa9\"}");
    ck_assert(route_sign(route.signer, EVENT, NOW_MS / 1000, event.payload, signature));
    snprintf(signed_line, sizeof(signed_line), "webhook-signature: %s", signature);
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        const char *const headers[] = {
            "User-Agent: issuing",
            "Accept: */*",
            "Content-Type: application/json",
            "Content-Length: 17",
            "Idempotency-Key: " EVENT,
            "ce-specversion: 1.0",
            "ce-id: " EVENT,
            "ce-type: PAYMENT_CHARGE",
            "ce-source: issuing",
            "ce-time: 2023-11-14T22:13:20.123Z",
            "ce-subject: a%20b",
            "traceparent: " TRACEPARENT,
            "webhook-id: " EVENT,
            "webhook-timestamp: 1700000060",
            signed_line,
            "Authorization: Bearer tok",
        };
        char line[32];
        strcpy(method, methods[i]);
        snprintf(line, sizeof(line), "%s /ok", methods[i]);
        ck_assert(route_build_deliver(&route, &event, NOW_MS, &call));
        call.secret_header = "Authorization: Bearer tok";
        run(&call);
        ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
        expect_request(line, headers, (int)ARRAY_SIZE(headers), event.payload.bytes, event.payload.length);
        outcome_of_delivery(&call, &outcome);
        ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    }
}

START_TEST(a_payload_of_64_kib_arrives_whole)
{
    static char payload[ROUTE_PAYLOAD_MAX];
    memset(payload, '7', sizeof(payload));
    event.payload = (struct slice){.bytes = payload, .length = sizeof(payload)};
    ck_assert(route_build_deliver(&route, &event, NOW_MS, &call));
    run(&call);
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    const char *body = strstr(peer.last_request, "\r\n\r\n");
    ck_assert_ptr_nonnull(body);
    ck_assert_uint_eq(strlen(body + 4), sizeof(payload));
    ck_assert_mem_eq(body + 4, payload, sizeof(payload));
    ck_assert_ptr_null(strstr(peer.last_request, "Expect"));
}

START_TEST(a_look_up_is_the_same_over_both_transports)
{
    static const char *const headers[] = {"User-Agent: issuing", "Accept: */*", ("traceparent: " TRACEPARENT)};
    config.lookup_url = lookup_url;
    event.trace = &trace;
    ck_assert(route_build_lookup(&route, &event, &call));
    run(&call);
    expect_request("GET /ok" EVENT, headers, (int)ARRAY_SIZE(headers), "", 0);
}

SUITE(route_call)
{
    TCase *tests = tcase_create("pure");
    tcase_add_checked_fixture(tests, set_up_route, tear_down_route);
    tcase_add_test(tests, a_delivery_has_the_headers_of_cloudevents_in_binary_mode);
    tcase_add_test(tests, a_delivery_that_is_built_again_is_the_same);
    tcase_add_test(tests, a_signed_delivery_has_the_headers_of_standard_webhooks);
    tcase_add_test(tests, a_delivery_whose_secret_is_missing_is_not_sent_unsigned);
    tcase_add_test(tests, a_user_is_percent_encoded_as_cloudevents_says);
    tcase_add_test(tests, the_time_has_milliseconds_and_is_utc);
    tcase_add_test(tests, a_payload_of_64_kib_is_delivered_and_a_larger_one_is_not);
    tcase_add_test(tests, a_look_up_asks_for_the_event);
    tcase_add_test(tests, any_2xx_is_executed_whatever_its_body_is);
    tcase_add_test(tests, everything_else_is_the_table_of_outcomes);
    tcase_add_test(tests, a_look_up_says_yes_no_or_nothing);
    tcase_add_test(tests, a_json_answer_is_kept_where_the_route_says_so);
    tcase_add_test(tests, a_result_of_8_kib_is_kept_and_a_longer_one_is_not);
    tcase_add_test(tests, a_result_that_repeats_a_secret_of_ours_is_not_kept);
    suite_add_tcase(suite, tests);
    for (int i = 0; i < 2; i++) {
        TCase *wire = tcase_create(i == 0 ? "http" : "https");
        tcase_add_checked_fixture(wire, i == 0 ? set_up_clear : set_up_tls, tear_down_wire);
        tcase_add_test(wire, a_delivery_is_the_same_over_both_transports);
        tcase_add_test(wire, a_payload_of_64_kib_arrives_whole);
        tcase_add_test(wire, a_look_up_is_the_same_over_both_transports);
        suite_add_tcase(suite, wire);
    }
}
