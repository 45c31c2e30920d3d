/* The story: the same key with another body is an error at most issuers, and a body that the issuer reads differently
 * from us is a card that nobody asked for. So every request of every profile is fixed byte for byte, whatever a client
 * writes into a memo and an issuer into an id. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../issuers/request_cases.h"
#include "common/lib/json/json_strict.h"
#include "golden_requests.h"
#include "tests/support/suite.h"
#include "common/core/issuer/profile_rows.h"

static struct http_call call;

static void set_up(void)
{
    http_call_init(&call, 64 * 1024);
}

static void tear_down(void)
{
    http_call_done(&call);
}

static const struct golden *golden_of(const char *profile, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(golden); i++)
        if (strcmp(golden[i].profile, profile) == 0 && strcmp(golden[i].call, name) == 0)
            return &golden[i];
    return NULL;
}

static void header_lines(char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (const char *line = http_call_next_line(&call, call.lines.bytes); line; line = http_call_next_line(&call, line))
        length += (size_t)snprintf(text + length, size - length, "%s\n", line);
}

static void expect_golden(const struct golden_values *values, const struct request_case *request)
{
    const struct golden *expected = golden_of(values->profile->name, request->name);
    char headers[1024], url[1024];
    ck_assert_msg(expected != NULL, "%s %s has no golden request", values->profile->name, request->name);
    ck_assert(request_case_make(values, request, &call));
    header_lines(headers, sizeof(headers));
    snprintf(url, sizeof(url), "%s%s", values->base, expected->path);
    ck_assert_str_eq(call.method, expected->method);
    ck_assert_str_eq(call.lines.bytes, url);
    ck_assert_str_eq(headers, expected->headers);
    ck_assert_str_eq(call.body.length ? call.body.bytes : "", expected->body);
}

static bool is_long(const struct request_case *request)
{
    return request->memo && strlen(request->memo) > 100;
}

TEST(every_request_of_every_profile_is_the_golden_one)
{
    size_t count = 0;
    for (const struct golden_values *values = golden_values; values->profile; values++)
        for (const struct request_case *request = request_cases; request->name; request++)
            if (request_case_applies(values, request) && !is_long(request)) {
                expect_golden(values, request);
                count++;
            }
    ck_assert_uint_eq(count, ARRAY_SIZE(golden));
}

static const struct golden_values *values_of(const struct issuer_profile *profile)
{
    const struct golden_values *values = golden_values;
    while (values->profile != profile)
        values++;
    return values;
}

static const struct request_case *case_of(const char *name)
{
    const struct request_case *request = request_cases;
    while (strcmp(request->name, name) != 0)
        request++;
    return request;
}

TEST(the_longest_memo_arrives_whole)
{
    const struct request_case *request = case_of("create_long_memo");
    char expected[1024] = "&metadata[memo]=", memo[512];
    ck_assert_uint_eq(strlen(request->memo), OUTBOX_MEMO_MAX);
    ck_assert(request_case_make(values_of(&issuer_generic), request, &call));
    ck_assert(json_strict_check(call.body.bytes, call.body.length, NULL));
    struct json_value body = json_value_of(call.body.bytes, call.body.length);
    ck_assert(json_string(json_member(body, "memo"), memo, sizeof(memo), NULL));
    ck_assert_str_eq(memo, request->memo);

    ck_assert(request_case_make(values_of(&issuer_stripe), request, &call));
    for (int i = 0; i < 127; i++)
        strcat(expected, "%C3%A9");
    strcat(expected, ".&metadata[program]=");
    ck_assert_ptr_nonnull(strstr(call.body.bytes, expected));
}

TEST(a_json_body_is_json_whatever_the_client_wrote)
{
    static const char *const memos[] = {"\"",           "\\",           "}",        "\"}", "\xff", "\xc3",
                                        "\xed\xa0\x80", "\x01\x1f\x7f", "</script>"};
    for (const struct golden_values *values = golden_values; values->profile; values++) {
        if (values->profile->calls[ISSUER_CREATE].encoding != ENCODING_JSON)
            continue;
        for (size_t i = 0; i < ARRAY_SIZE(memos); i++) {
            struct request_case request = {.call = ISSUER_CREATE, .name = "", .is_odd = true, .memo = memos[i]};
            ck_assert(request_case_make(values, &request, &call));
            ck_assert_msg(json_strict_check(call.body.bytes, call.body.length, NULL), "%s", call.body.bytes);
        }
    }
}

TEST(a_form_has_as_many_fields_whatever_the_client_wrote)
{
    static const char *const memos[] = {"a&b", "=", "&status=canceled", "%26", "a;b", "\r\n", "+", "[]"};
    for (size_t i = 0; i < ARRAY_SIZE(memos); i++) {
        struct request_case request = {.call = ISSUER_CREATE, .name = "", .is_odd = true, .memo = memos[i]};
        size_t fields = 1, equals = 0;
        ck_assert(request_case_make(values_of(&issuer_stripe), &request, &call));
        for (const char *byte = call.body.bytes; *byte; byte++) {
            fields += *byte == '&';
            equals += *byte == '=';
            ck_assert_ptr_null(strchr("\r\n+;", *byte));
        }
        ck_assert_uint_eq(fields, 7);
        ck_assert_uint_eq(equals, 7);
    }
}

TEST(a_card_whose_id_would_change_the_path_is_not_asked_about)
{
    static const char *const ids[] = {"", ".", ".."};
    for (const struct golden_values *values = golden_values; values->profile; values++) {
        if (!strstr(values->profile->calls[ISSUER_CANCEL].path, "{card}"))
            continue;
        for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
            struct issuer_subject subject = {.base = values->base, .card_id = ids[i]};
            ck_assert_msg(!issuer_build(values->profile, ISSUER_CANCEL, &subject, &call), "%s", ids[i]);
            ck_assert(!http_call_is_made(&call));
        }
    }
}

/* Whoever forgets to ask issuer_parameters_missing() gets no call, rather than one without a holder. */
TEST(a_call_that_lacks_what_it_must_have_is_not_built)
{
    struct issuer_parameters none = {0};
    struct outbox_payload payload = {.is_reissue = true};
    struct issuer_subject subject = {
        .base = "https://x.example", .payload = &payload, .user_id = "u", .replaces = "ic_1"};
    for (const struct issuer_profile *const *profile = issuer_profiles; *profile; profile++) {
        if (!(*profile)->parameters)
            continue;
        for (const struct issuer_parameters *given = &none;; given = NULL) {
            subject.parameters = given;
            ck_assert_msg(!issuer_build(*profile, ISSUER_CREATE, &subject, &call), "%s", (*profile)->name);
            ck_assert(!http_call_is_made(&call));
            if (!given)
                break;
        }
        ck_assert(!issuer_build(*profile, ISSUER_CANCEL, &subject, &call)); /* which card? */
    }
    subject = (struct issuer_subject){.base = "https://x.example", .card_id = "ic_1"};
    ck_assert(issuer_build(&issuer_stripe, ISSUER_CANCEL, &subject, &call)); /* it needs no holder */
}

/* What a vendor's own replacement does to number and old card is not wanted (the profiles' comments say what it is). */
TEST(a_reissue_is_a_plain_create_and_the_close_of_the_old_card_tells_why)
{
    static const struct {
        const struct issuer_profile *profile;
        const char *close[OUTBOX_REISSUE_REASONS];
    } vendors[] = {
        {&issuer_stripe,
         {"status=canceled&cancellation_reason=lost", "status=canceled&cancellation_reason=stolen", "status=canceled",
          "status=canceled"}},
        {&issuer_lithic,
         {"\"substatus\":\"LOST\"", "\"substatus\":\"COMPROMISED\"", "\"substatus\":\"DAMAGED\"",
          "\"substatus\":\"EXPIRED\""}},
        {&issuer_marqeta,
         {"\"reason_code\":\"01\"", "\"reason_code\":\"01\"", "\"reason_code\":\"01\"", "\"reason_code\":\"01\""}},
        {&issuer_adyen,
         {"\"statusReason\":\"lost\"", "\"statusReason\":\"stolen\"", "\"statusReason\":\"damaged\"",
          "\"statusReason\":\"expired\""}},
        {&issuer_increase,
         {"\"status\":\"canceled\"", "\"status\":\"canceled\"", "\"status\":\"canceled\"", "\"status\":\"canceled\""}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(vendors); i++) {
        const struct golden_values *values = values_of(vendors[i].profile);
        char plain[4096];
        ck_assert(request_case_make(values, case_of("create_new"), &call));
        snprintf(plain, sizeof(plain), "%s", call.body.bytes);
        ck_assert(request_case_make(values, case_of("create_reissue"), &call));
        ck_assert_str_eq(call.body.bytes, plain);
        for (int reason = 0; reason < OUTBOX_REISSUE_REASONS; reason++) {
            struct outbox_payload payload = {.is_reissue = true, .reason = (enum outbox_reissue_reason)reason};
            struct issuer_subject subject = {.base = "https://x.example", .payload = &payload, .card_id = "old"};
            ck_assert(issuer_build(vendors[i].profile, ISSUER_RETIRE, &subject, &call));
            const char *close = vendors[i].close[reason];
            ck_assert_msg(vendors[i].profile == &issuer_stripe ? strcmp(call.body.bytes, close) == 0
                                                               : strstr(call.body.bytes, close) != NULL,
                          "%s: %s", vendors[i].profile->name, call.body.bytes);
        }
    }
}

TEST(only_a_create_whose_key_is_not_trusted_is_never_sent_twice)
{
    for (const struct golden_values *values = golden_values; values->profile; values++)
        for (const struct request_case *request = request_cases; request->name; request++)
            if (request_case_applies(values, request)) {
                ck_assert(request_case_make(values, request, &call));
                ck_assert(call.must_not_resend == (values->profile == &issuer_adyen && request->call == ISSUER_CREATE));
                ck_assert_ptr_eq(call.noted_headers, values->profile->noted_headers);
                /* A page that is too large is an answer that cannot be read, and no failure of the issuer. */
                ck_assert(call.status_is_enough == (request->call == ISSUER_LOOKUP));
            }
}

/* A table that no vendor has, with objects between other members, and rows that are left out. */
static const struct issuer_field nested[] = {
    TEXT("a/b", "1"),
    FIELD("a/c/d", FROM_MEMO, .when = IF_GIVEN),
    TEXT("a/c/d2", "with d", .when = WITH_LAST),
    TEXT("a/c/e", "2"),
    TEXT("a/f", "3"),
    TEXT("ab", "4"),
    FIELD("o/p/q", FROM_PROGRAM, .when = IF_GIVEN),
    TEXT("h/i/j", "5"),
    TEXT("h/k", "6"),
    {0},
};

TEST(objects_open_and_close_as_their_rows_stand)
{
    struct issuer_profile profile = {.calls[ISSUER_CREATE] = {.method = "POST", .path = "/x", .body = nested}};
    struct outbox_payload payload = {0};
    struct issuer_subject subject = {.base = "https://x.example", .payload = &payload};
    profile.calls[ISSUER_CREATE].encoding = ENCODING_JSON;
    ck_assert(issuer_build(&profile, ISSUER_CREATE, &subject, &call));
    ck_assert_str_eq(call.body.bytes, "{\"a\":{\"b\":\"1\",\"c\":{\"e\":\"2\"},\"f\":\"3\"},\"ab\":\"4\","
                                      "\"h\":{\"i\":{\"j\":\"5\"},\"k\":\"6\"}}");
    payload = (struct outbox_payload){.has_memo = true, .memo = "m", .has_program = true, .program = "p"};
    ck_assert(issuer_build(&profile, ISSUER_CREATE, &subject, &call));
    ck_assert_str_eq(call.body.bytes,
                     "{\"a\":{\"b\":\"1\",\"c\":{\"d\":\"m\",\"d2\":\"with d\",\"e\":\"2\"},\"f\":\"3\"},\"ab\":\"4\","
                     "\"o\":{\"p\":{\"q\":\"p\"}},\"h\":{\"i\":{\"j\":\"5\"},\"k\":\"6\"}}");
    profile.calls[ISSUER_CREATE].encoding = ENCODING_FORM;
    ck_assert(issuer_build(&profile, ISSUER_CREATE, &subject, &call));
    ck_assert_str_eq(call.body.bytes,
                     "a[b]=1&a[c][d]=m&a[c][d2]=with%20d&a[c][e]=2&a[f]=3&ab=4&o[p][q]=p&h[i][j]=5&h[k]=6");
}

TEST(a_time_before_1970_is_1970)
{
    struct issuer_parameters parameters = {.values = {"ich_1", "eur"}};
    struct issuer_subject subject = {.base = "https://x.example", .parameters = &parameters, .since_ms = -5000};
    ck_assert(issuer_build(&issuer_stripe, ISSUER_LOOKUP, &subject, &call));
    ck_assert_ptr_nonnull(strstr(call.lines.bytes, "created[gte]=0&"));
    ck_assert(issuer_build(&issuer_lithic, ISSUER_LOOKUP, &subject, &call));
    ck_assert_ptr_nonnull(strstr(call.lines.bytes, "begin=1970-01-01T00%3A00%3A00.000000Z&"));
}

TESTS_BETWEEN(issuer_request, set_up, tear_down)
