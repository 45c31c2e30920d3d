/* The story: one wrong row of a profile's rules is a second card. "Refused" over a card that exists leaves a live card
 * that nobody knows of, "not executed" sends a second request, and no test of the flow can see it. So every row is
 * here, and over all profiles, calls, statuses, codes and headers nothing that leaves the outcome open is ever read as
 * a definite one. */
#include <stdlib.h>

#include "tests/support/suite.h"
#include "vendor_answers.h"
#include "common/core/issuer/issuer_rules.h"

static struct http_call call;
static struct reading reading;

static void set_up(void)
{
    http_call_init(&call, 64 * 1024);
    memset(&reading, 0, sizeof(reading));
}

static void tear_down(void)
{
    http_call_done(&call);
}

#define STRIPE_ERROR(type, code) "{\"error\":{\"type\":\"" type "\",\"code\":\"" code "\",\"message\":\"no\"}}"
#define ADYEN_ERROR(code) "{\"status\":422,\"detail\":\"no\",\"errorCode\":\"" code "\"}"
#define MARQETA_ERROR(code) "{\"error_code\":\"" code "\",\"error_message\":\"no\"}"
#define INCREASE_ERROR(type) "{\"type\":\"" type "\",\"status\":409,\"title\":\"t\",\"detail\":\"no\"}"
#define LITHIC_ERROR "{\"debugging_request_id\":\"94d5\",\"message\":\"no\"}"

/* header: the first noted one, or with a leading '2' the second. */
static const struct row {
    const struct issuer_profile *profile;
    enum issuer_call call;
    int status;
    const char *body, *header;
    enum outcome_kind kind;
    enum outcome_advice advice;
    enum breaker_result health;
    const char *code;
} rows[] = {
    /* ---- stripe ---- */
    {&issuer_stripe, ISSUER_CREATE, 400, STRIPE_ERROR("invalid_request_error", "parameter_missing"), "",
     OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD, "parameter_missing"},
    {&issuer_stripe, ISSUER_CREATE, 400, "{\"error\":{\"type\":\"invalid_request_error\"}}", "", OUTCOME_REFUSED,
     ADVICE_REJECT, BREAKER_GOOD, "invalid_request_error"},
    {&issuer_stripe, ISSUER_CREATE, 400, "{\"error\":{\"type\":\"idempotency_error\"}}", "", OUTCOME_UNKNOWN,
     ADVICE_LOOK_UP, BREAKER_ANSWERED, "issuer_http_400"},
    {&issuer_stripe, ISSUER_CREATE, 400, STRIPE_ERROR("idempotency_error", "other"), "", OUTCOME_UNKNOWN,
     ADVICE_LOOK_UP, BREAKER_ANSWERED, "issuer_http_400"},
    {&issuer_stripe, ISSUER_CREATE, 409, "{\"error\":{\"type\":\"idempotency_error\"}}", "", OUTCOME_UNKNOWN,
     ADVICE_LOOK_UP, BREAKER_ANSWERED, "issuer_http_409"},
    {&issuer_stripe, ISSUER_CANCEL, 400, "{\"error\":{\"type\":\"idempotency_error\"}}", "", OUTCOME_REFUSED,
     ADVICE_FAIL, BREAKER_GOOD, "cancel_failed"},
    {&issuer_stripe, ISSUER_CREATE, 400, STRIPE_ERROR("invalid_request_error", "rate_limit"), "", OUTCOME_NOT_EXECUTED,
     ADVICE_WAIT, BREAKER_BUSY, "issuer_http_400"},
    {&issuer_stripe, ISSUER_CREATE, 402, STRIPE_ERROR("card_error", "declined"), "", OUTCOME_REFUSED, ADVICE_REJECT,
     BREAKER_GOOD, "declined"},
    {&issuer_stripe, ISSUER_CREATE, 404, STRIPE_ERROR("invalid_request_error", "resource_missing"), "", OUTCOME_REFUSED,
     ADVICE_REJECT, BREAKER_GOOD, "resource_missing"},
    {&issuer_stripe, ISSUER_CREATE, 404, STRIPE_ERROR("invalid_request_error", "url_unknown"), "", OUTCOME_NOT_EXECUTED,
     ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_404"},
    {&issuer_stripe, ISSUER_LOOKUP, 404, STRIPE_ERROR("invalid_request_error", "resource_missing"), "",
     OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_404"},
    {&issuer_stripe, ISSUER_ACTIVATE, 404, STRIPE_ERROR("invalid_request_error", "resource_missing"), "",
     OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_404"},
    {&issuer_stripe, ISSUER_RETIRE, 404, STRIPE_ERROR("invalid_request_error", "resource_missing"), "", OUTCOME_REFUSED,
     ADVICE_FAIL, BREAKER_GOOD, "cancel_failed"},
    {&issuer_stripe, ISSUER_RETRIEVE, 404, STRIPE_ERROR("invalid_request_error", "resource_missing"), "",
     OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD, "resource_missing"},
    {&issuer_stripe, ISSUER_CREATE, 409, STRIPE_ERROR("invalid_request_error", "idempotency_key_in_use"), "",
     OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, BREAKER_ANSWERED, "issuer_http_409"},
    {&issuer_stripe, ISSUER_CREATE, 424, STRIPE_ERROR("api_error", "x"), "", OUTCOME_UNKNOWN, ADVICE_RETRY,
     BREAKER_ANSWERED, "issuer_http_424"},
    {&issuer_stripe, ISSUER_CREATE, 429, STRIPE_ERROR("invalid_request_error", "lock_timeout"), "",
     OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, BREAKER_ANSWERED, "issuer_http_429"},
    {&issuer_stripe, ISSUER_CANCEL, 429, STRIPE_ERROR("invalid_request_error", "lock_timeout"), "",
     OUTCOME_NOT_EXECUTED, ADVICE_WAIT, BREAKER_BUSY, "issuer_http_429"},
    {&issuer_stripe, ISSUER_CREATE, 429, STRIPE_ERROR("invalid_request_error", "rate_limit"), "", OUTCOME_NOT_EXECUTED,
     ADVICE_WAIT, BREAKER_BUSY, "issuer_http_429"},
    {&issuer_stripe, ISSUER_CREATE, 500, STRIPE_ERROR("api_error", "x"), "", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD,
     "issuer_http_500"},
    {&issuer_stripe, ISSUER_CREATE, 500, STRIPE_ERROR("api_error", "x"), "true", OUTCOME_UNKNOWN, ADVICE_KEY_SPENT,
     BREAKER_ANSWERED, "issuer_http_500"},
    {&issuer_stripe, ISSUER_CREATE, 500, "", "TRUE", OUTCOME_UNKNOWN, ADVICE_KEY_SPENT, BREAKER_ANSWERED,
     "issuer_http_500"},
    {&issuer_stripe, ISSUER_CREATE, 500, "", "false", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_500"},
    {&issuer_stripe, ISSUER_CREATE, 503, "", "2false", OUTCOME_UNKNOWN, ADVICE_LOOK_UP, BREAKER_ANSWERED,
     "issuer_http_503"},
    {&issuer_stripe, ISSUER_CREATE, 503, "", "2true", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_503"},
    {&issuer_stripe, ISSUER_CANCEL, 500, "", "true", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_500"},
    /* ---- lithic ---- */
    {&issuer_lithic, ISSUER_CREATE, 400, LITHIC_ERROR, "", OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD,
     "issuer_refused"},
    {&issuer_lithic, ISSUER_CREATE, 422, LITHIC_ERROR, "", OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD,
     "issuer_refused"},
    {&issuer_lithic, ISSUER_CREATE, 401, LITHIC_ERROR, "", OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED,
     "issuer_http_401"},
    {&issuer_lithic, ISSUER_CREATE, 404, LITHIC_ERROR, "", OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED,
     "issuer_http_404"},
    {&issuer_lithic, ISSUER_CANCEL, 404, LITHIC_ERROR, "", OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD, "cancel_failed"},
    {&issuer_lithic, ISSUER_CREATE, 409, LITHIC_ERROR, "", OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS,
     BREAKER_ANSWERED, "issuer_http_409"},
    {&issuer_lithic, ISSUER_CREATE, 429, LITHIC_ERROR, "", OUTCOME_NOT_EXECUTED, ADVICE_WAIT, BREAKER_BUSY,
     "issuer_http_429"},
    {&issuer_lithic, ISSUER_CREATE, 500, LITHIC_ERROR, "", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD,
     "issuer_http_500"},
    /* ---- marqeta ---- */
    {&issuer_marqeta, ISSUER_CREATE, 400, MARQETA_ERROR("400019"), "", OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD,
     "400019"},
    {&issuer_marqeta, ISSUER_CREATE, 412, MARQETA_ERROR("412001"), "", OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD,
     "412001"},
    {&issuer_marqeta, ISSUER_CREATE, 422, MARQETA_ERROR("422027"), "", OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD,
     "422027"},
    {&issuer_marqeta, ISSUER_CREATE, 404, MARQETA_ERROR("404000"), "", OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION,
     BREAKER_REFUSED, "issuer_http_404"},
    {&issuer_marqeta, ISSUER_CREATE, 409, MARQETA_ERROR("409001"), "", OUTCOME_UNKNOWN, ADVICE_LOOK_UP,
     BREAKER_ANSWERED, "issuer_http_409"},
    {&issuer_marqeta, ISSUER_ACTIVATE, 409, MARQETA_ERROR("409001"), "", OUTCOME_UNKNOWN, ADVICE_LOOK_UP,
     BREAKER_ANSWERED, "issuer_http_409"},
    {&issuer_marqeta, ISSUER_ACTIVATE, 422, MARQETA_ERROR("422001"), "", OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD,
     "422001"},
    {&issuer_marqeta, ISSUER_CANCEL, 409, MARQETA_ERROR("409001"), "", OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD,
     "cancel_failed"},
    {&issuer_marqeta, ISSUER_RETIRE, 404, MARQETA_ERROR("404001"), "", OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD,
     "cancel_failed"},
    {&issuer_marqeta, ISSUER_CREATE, 429, MARQETA_ERROR("429001"), "", OUTCOME_NOT_EXECUTED, ADVICE_WAIT, BREAKER_BUSY,
     "issuer_http_429"},
    {&issuer_marqeta, ISSUER_CREATE, 500, MARQETA_ERROR("500000"), "", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD,
     "issuer_http_500"},
    /* ---- adyen ---- */
    {&issuer_adyen, ISSUER_CREATE, 422, ADYEN_ERROR("704"), "", OUTCOME_UNKNOWN, ADVICE_WAIT_IN_PROGRESS,
     BREAKER_ANSWERED, "issuer_http_422"},
    {&issuer_adyen, ISSUER_CREATE, 422, "{\"errorCode\":704}", "", OUTCOME_UNKNOWN, ADVICE_WAIT_IN_PROGRESS,
     BREAKER_ANSWERED, "issuer_http_422"},
    {&issuer_adyen, ISSUER_CREATE, 409, ADYEN_ERROR("704"), "", OUTCOME_UNKNOWN, ADVICE_WAIT_IN_PROGRESS,
     BREAKER_ANSWERED, "issuer_http_409"},
    {&issuer_adyen, ISSUER_CREATE, 422, ADYEN_ERROR("30_031"), "true", OUTCOME_UNKNOWN, ADVICE_WAIT_IN_PROGRESS,
     BREAKER_ANSWERED, "issuer_http_422"},
    {&issuer_adyen, ISSUER_CREATE, 422, ADYEN_ERROR("30_031"), "false", OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD,
     "30_031"},
    {&issuer_adyen, ISSUER_CREATE, 422, ADYEN_ERROR("30_031"), "", OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD,
     "30_031"},
    {&issuer_adyen, ISSUER_CREATE, 400, ADYEN_ERROR("00_400"), "", OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD,
     "00_400"},
    {&issuer_adyen, ISSUER_CREATE, 503, ADYEN_ERROR("703"), "", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD,
     "issuer_http_503"},
    {&issuer_adyen, ISSUER_CREATE, 500, "", "true", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_500"},
    /* Its key is not trusted. */
    {&issuer_adyen, ISSUER_CREATE, 404, "", "", OUTCOME_UNKNOWN, ADVICE_CONFIGURATION, BREAKER_REFUSED,
     "issuer_http_404"},
    {&issuer_adyen, ISSUER_CREATE, 429, ADYEN_ERROR("30_031"), "", OUTCOME_UNKNOWN, ADVICE_WAIT, BREAKER_BUSY,
     "issuer_http_429"},
    {&issuer_adyen, ISSUER_CREATE, 422, "<html>", "", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED,
     "issuer_http_422"},
    {&issuer_adyen, ISSUER_CREATE, 451, "", "", OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED, "issuer_http_451"},
    {&issuer_adyen, ISSUER_CREATE, 451, ADYEN_ERROR("30_031"), "", OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD,
     "issuer_http_451"},
    {&issuer_adyen, ISSUER_CANCEL, 429, "", "", OUTCOME_NOT_EXECUTED, ADVICE_WAIT, BREAKER_BUSY, "issuer_http_429"},
    {&issuer_adyen, ISSUER_CANCEL, 404, "", "", OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD, "cancel_failed"},
    /* ---- increase ---- */
    {&issuer_increase, ISSUER_CREATE, 400, INCREASE_ERROR("invalid_parameters_error"), "", OUTCOME_REFUSED,
     ADVICE_REJECT, BREAKER_GOOD, "invalid_parameters_error"},
    {&issuer_increase, ISSUER_CREATE, 401, INCREASE_ERROR("invalid_api_key_error"), "", OUTCOME_NOT_EXECUTED,
     ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_401"},
    {&issuer_increase, ISSUER_CREATE, 403, INCREASE_ERROR("insufficient_permissions_error"), "", OUTCOME_NOT_EXECUTED,
     ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_403"},
    {&issuer_increase, ISSUER_CREATE, 404, INCREASE_ERROR("object_not_found_error"), "", OUTCOME_REFUSED, ADVICE_REJECT,
     BREAKER_GOOD, "object_not_found_error"},
    {&issuer_increase, ISSUER_CREATE, 404, INCREASE_ERROR("api_method_not_found_error"), "", OUTCOME_NOT_EXECUTED,
     ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_404"},
    {&issuer_increase, ISSUER_LOOKUP, 404, INCREASE_ERROR("object_not_found_error"), "", OUTCOME_NOT_EXECUTED,
     ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_404"},
    {&issuer_increase, ISSUER_CANCEL, 404, INCREASE_ERROR("object_not_found_error"), "", OUTCOME_REFUSED, ADVICE_FAIL,
     BREAKER_GOOD, "cancel_failed"},
    {&issuer_increase, ISSUER_RETRIEVE, 404, INCREASE_ERROR("object_not_found_error"), "", OUTCOME_REFUSED, ADVICE_FAIL,
     BREAKER_GOOD, "object_not_found_error"},
    {&issuer_increase, ISSUER_CREATE, 409, INCREASE_ERROR("idempotency_key_already_used_error"), "", OUTCOME_UNKNOWN,
     ADVICE_LOOK_UP, BREAKER_ANSWERED, "issuer_http_409"},
    {&issuer_increase, ISSUER_CREATE, 409, INCREASE_ERROR("invalid_operation_error"), "", OUTCOME_REFUSED,
     ADVICE_REJECT, BREAKER_GOOD, "invalid_operation_error"},
    {&issuer_increase, ISSUER_CREATE, 409, INCREASE_ERROR("another_error"), "", OUTCOME_NOT_EXECUTED,
     ADVICE_WAIT_IN_PROGRESS, BREAKER_ANSWERED, "issuer_http_409"},
    {&issuer_increase, ISSUER_CANCEL, 409, INCREASE_ERROR("invalid_operation_error"), "", OUTCOME_REFUSED, ADVICE_FAIL,
     BREAKER_GOOD, "cancel_failed"},
    {&issuer_increase, ISSUER_RETIRE, 409, INCREASE_ERROR("invalid_operation_error"), "", OUTCOME_REFUSED, ADVICE_FAIL,
     BREAKER_GOOD, "cancel_failed"},
    {&issuer_increase, ISSUER_CREATE, 429, INCREASE_ERROR("rate_limited_error"), "", OUTCOME_NOT_EXECUTED, ADVICE_WAIT,
     BREAKER_BUSY, "issuer_http_429"},
    {&issuer_increase, ISSUER_CREATE, 500, INCREASE_ERROR("internal_server_error"), "", OUTCOME_UNKNOWN, ADVICE_RETRY,
     BREAKER_BAD, "issuer_http_500"},
};

TEST(every_answer_that_a_vendor_documents_has_its_meaning)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        bool is_second = row->header[0] == '2';
        set_answer(&call, row->status, row->body);
        snprintf(call.noted[is_second], sizeof(call.noted[0]), "%s", row->header + is_second);
        read_answer(row->profile, row->call, &call, &reading);
        const struct outcome *outcome = &reading.outcome;
        ck_assert_msg(outcome->kind == row->kind, "%zu: kind %d", i, (int)outcome->kind);
        ck_assert_msg(outcome->advice == row->advice, "%zu: advice %d", i, (int)outcome->advice);
        ck_assert_msg(outcome->health == row->health, "%zu: health %d", i, (int)outcome->health);
        ck_assert_msg(strcmp(outcome->code, row->code) == 0, "%zu: %s", i, outcome->code);
    }
}

/* The first rule that fits decides: both fit here. */
TEST(a_bound_key_is_looked_up_also_where_it_is_said_beside_a_rate_limit)
{
    set_answer(&call, 400, STRIPE_ERROR("idempotency_error", "rate_limit"));
    read_answer(&issuer_stripe, ISSUER_CREATE, &call, &reading);
    ck_assert_int_eq(reading.outcome.advice, ADVICE_LOOK_UP);
}

/* Adyen's answer has the header only where it has processed the call by its key. */
TEST(where_the_answer_tells_that_the_key_was_honoured_it_is_trusted)
{
    static const struct {
        const char *header;
        enum outcome_kind kind;
    } answers[] = {{EVENT, OUTCOME_NOT_EXECUTED}, {"", OUTCOME_UNKNOWN}, {"0" EVENT, OUTCOME_UNKNOWN}};
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        set_answer(&call, 429, "");
        snprintf(call.noted[1], sizeof(call.noted[1]), "%s", answers[i].header);
        read_answer(&issuer_adyen, ISSUER_CREATE, &call, &reading);
        ck_assert_msg(reading.outcome.kind == answers[i].kind, "%s", answers[i].header);
    }
    call.noted[1][0] = '\0';
}

TEST(where_no_rule_fits_the_common_table_decides)
{
    for (size_t v = 0; v < ARRAY_SIZE(vendors); v++)
        for (int status = 100; status < 700; status++) {
            const struct issuer_rule *rule = vendors[v].profile->rules;
            struct outcome expected;
            for (; rule->meaning != MEANS_END; rule++)
                if ((rule->calls == 0 || (rule->calls & 1u << ISSUER_CREATE)) && !rule->code && !rule->header &&
                    status >= rule->status_min && status <= rule->status_max)
                    break;
            set_answer(&call, status, "<html>");
            if (rule->meaning != MEANS_END || outcome_of_call(&call, &outcome_issuer, false, &expected) == false ||
                !vendors[v].profile->key_is_trusted)
                continue;
            read_answer(vendors[v].profile, ISSUER_CREATE, &call, &reading);
            ck_assert_int_eq(reading.outcome.kind, expected.kind);
            ck_assert_int_eq(reading.outcome.advice, expected.advice);
            ck_assert_int_eq(reading.outcome.health, expected.health);
            ck_assert_str_eq(reading.outcome.code, expected.code);
        }
}

TEST(a_vendors_code_is_lowered_and_cleaned_and_never_a_number_of_a_card)
{
    static const struct {
        const char *given, *code;
    } codes[] = {
        {"\"Program Closed\"", "program_closed"},
        {"\"30_031\"", "30_031"},
        {"\"a-b.c/D\"", "a_b_c_d"},
        {"\"caf\\u00e9\"", "caf__"},
        {"704", "704"},
        {"-1.5", "_1_5"},
        {"\"\"", "issuer_refused"},
        {"null", "issuer_refused"},
        {"true", "issuer_refused"},
        {"[\"a\"]", "issuer_refused"},
        {"{\"a\":1}", "issuer_refused"},
        {"\"4111111111111111\"", "issuer_refused"},
        {"4111111111111111", "issuer_refused"},
        {"\"4111-1111-1111-1111\"", "issuer_refused"},
        {"\"card 4111 1111 1111 1111 refused\"", "issuer_refused"},
        {"\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"", "issuer_refused"}, /* 65 */
    };
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        char body[256];
        snprintf(body, sizeof(body), "{\"errorCode\":%s,\"detail\":\"4111111111111111\"}", codes[i].given);
        set_answer(&call, 400, body);
        read_answer(&issuer_adyen, ISSUER_ACTIVATE, &call, &reading);
        ck_assert_int_eq(reading.outcome.kind, OUTCOME_REFUSED);
        ck_assert_str_eq(reading.outcome.code, codes[i].code);
        ck_assert_ptr_null(strstr(reading.outcome.detail, "4111111111111111"));
    }
}

/* ---- over all profiles ---- */

static const char *const bodies[] = {
    "",
    "{}",
    "[]",
    "null",
    "<html>",
    "{\"error\":{\"type\":\"idempotency_error\",\"code\":\"resource_missing\"}}",
    STRIPE_ERROR("invalid_request_error", "resource_missing"),
    STRIPE_ERROR("api_error", "rate_limit"),
    STRIPE_ERROR("api_error", "lock_timeout"),
    "{\"code\":\"refused\"}",
    ADYEN_ERROR("704"),
    ADYEN_ERROR("703"),
    ADYEN_ERROR("30_031"),
    MARQETA_ERROR("400019"),
    MARQETA_ERROR("404001"),
    LITHIC_ERROR,
    INCREASE_ERROR("idempotency_key_already_used_error"),
    INCREASE_ERROR("object_not_found_error"),
    INCREASE_ERROR("invalid_operation_error"),
    GENERIC_CARD,
    STRIPE_CARD,
    LITHIC_CARD,
    MARQETA_CARD,
    ADYEN_CARD,
    INCREASE_CARD,
    "{\"data\":[],\"next_cursor\":null}",
    "{\"status\":\"active\",\"state\":\"ACTIVE\"}",
    "{\"status\":\"cancelled\",\"state\":\"TERMINATED\"}",
    "{\"data\":[],\"has_more\":false}",
    "\x80\xff",
    "{\"status\":\"active\"", /* cut */
};
static const char *const headers[] = {"", "true", "false"};

static bool is_success(const struct issuer_profile *profile, enum issuer_call which)
{
    return call.status == 200 || (call.status == 201 && (which == ISSUER_CREATE || profile == &issuer_marqeta)) ||
           (call.status == 409 && which == ISSUER_CANCEL && profile == &issuer_generic) ||
           (call.status == 404 && which == ISSUER_LOOKUP && profile == &issuer_marqeta);
}

static void expect_no_false_certainty(const struct issuer_profile *profile, enum issuer_call which)
{
    const struct outcome *outcome = &reading.outcome;
    const char *wrong = NULL;
    bool is_open = call.status >= 500 || call.status < 300 || call.status == 408;
    bool is_doubted = which == ISSUER_CREATE && !profile->key_is_trusted;
    struct issuer_words words;
    issuer_words_read(profile, &call, &words);
    if (outcome->kind == OUTCOME_EXECUTED)
        wrong = is_success(profile, which) ? NULL : "is executed";
    else if (is_open && outcome->kind != OUTCOME_UNKNOWN)
        wrong = "is not unknown";
    else if (is_doubted && outcome->kind != OUTCOME_UNKNOWN &&
             (outcome->kind != OUTCOME_REFUSED || !issuer_words_code(&words)[0]))
        wrong = "is not unknown, although the key is not trusted";
    else if (which == ISSUER_LOOKUP && outcome->kind == OUTCOME_REFUSED)
        wrong = "is a look-up that decides something";
    else if (outcome->advice == ADVICE_NONE || !outcome->code[0])
        wrong = "is not whole";
    if (wrong) /* no ck_assert: each writes to a pipe */
        ck_abort_msg("%s, call %d: %d %s by %s", profile->name, (int)which, call.status, wrong,
                     call.answer.length ? call.answer.bytes : "");
}

/* Every status that a rule may name, and the edges of the rest. */
static bool is_tried(int status)
{
    return (status >= 200 && status < 212) || (status >= 400 && status < 432) || (status >= 500 && status < 512) ||
           status % 100 == 99 || status % 100 < 2 || status == 451 || status == 520;
}

/* Every pair of values of the first two noted headers, as far as the profile notes any. */
static size_t header_pairs(const struct issuer_profile *profile)
{
    const char *const *noted = profile->noted_headers;
    size_t count = ARRAY_SIZE(headers);
    return !noted ? 1 : !noted[1] ? count : count * count;
}

static void read_every_answer(const struct issuer_profile *profile, enum issuer_call which)
{
    size_t pairs = header_pairs(profile);
    for (int status = 100; status <= 700; status++)
        for (size_t b = 0; is_tried(status) && b < ARRAY_SIZE(bodies); b++)
            for (size_t h = 0; h < pairs; h++) {
                set_answer(&call, status, bodies[b]);
                snprintf(call.noted[0], sizeof(call.noted[0]), "%s", headers[h % ARRAY_SIZE(headers)]);
                snprintf(call.noted[1], sizeof(call.noted[1]), "%s", headers[h / ARRAY_SIZE(headers)]);
                read_answer(profile, which, &call, &reading);
                expect_no_false_certainty(profile, which);
                issuer_lookup_forget(&reading.lookup);
            }
    for (int result = HTTP_NOT_SENT; result <= HTTP_LOST; result++) {
        set_answer(&call, 200, GENERIC_CARD);
        call.result = (enum http_result)result;
        read_answer(profile, which, &call, &reading);
        ck_assert_int_eq(reading.outcome.kind, result == HTTP_LOST ? OUTCOME_UNKNOWN : OUTCOME_NOT_EXECUTED);
        ck_assert_int_eq(reading.outcome.advice, ADVICE_RETRY);
    }
}

TEST(what_leaves_the_outcome_open_is_never_read_as_a_definite_one)
{
    for (const struct issuer_profile *const *profile = issuer_profiles; *profile; profile++)
        for (int which = 0; which < ISSUER_CALLS; which++)
            if (issuer_profile_has(*profile, (enum issuer_call)which))
                read_every_answer(*profile, (enum issuer_call)which);
}

TEST(no_rule_makes_a_definite_meaning_of_a_408_a_5xx_or_a_2xx)
{
    for (const struct issuer_profile *const *profile = issuer_profiles; *profile; profile++)
        for (const struct issuer_rule *rule = (*profile)->rules; rule && rule->meaning != MEANS_END; rule++) {
            bool is_open = rule->status_max >= 500 || rule->status_min < 300 ||
                           (rule->status_min <= 408 && rule->status_max >= 408);
            bool is_definite =
                rule->meaning != MEANS_UNKNOWN && rule->meaning != MEANS_LOOK_UP && rule->meaning != MEANS_KEY_SPENT;
            bool is_success = rule->meaning == MEANS_EXECUTED && rule->status_max < 300;
            ck_assert(rule->status_min >= 200 && rule->status_min <= rule->status_max && rule->status_max < 600);
            ck_assert_msg(!is_open || !is_definite || is_success, "%s: %d", (*profile)->name, rule->status_min);
        }
}

TESTS_BETWEEN(issuer_rules, set_up, tear_down)
