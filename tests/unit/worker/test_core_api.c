/* The story: core-api decides who may have a card and is informed of it afterwards, but may never see its number. A
 * failing core-api must neither refuse a user nor lose a card that exists. Each rule of docs/peers.md about core-api is
 * here. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "worker/peers/core_api.h"
#include "worker/peer_call.h"
#include "tests/support/suite.h"

#define REQUEST "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"
#define CARD "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5c"
#define OLD_CARD "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5d"

static struct outcome outcome;
static struct core_link link_of_card;

static void set_up(void)
{
    http_call_init(&call, 64 * 1024);
    link_of_card = (struct core_link){.last4 = "1111", .exp_month = 3, .exp_year = 2031};
    ck_assert(uuid_parse(REQUEST, strlen(REQUEST), &link_of_card.event_id));
    ck_assert(uuid_parse(CARD, strlen(CARD), &link_of_card.card_id));
}

static void tear_down(void)
{
    http_call_done(&call);
}

static const struct issuer_profile *profile = &issuer_generic;
static struct core_eligibility eligibility;

static void check(int status, const char *text)
{
    answered(status, text);
    memset(&outcome, 0x55, sizeof(outcome));
    core_read_check(&call, profile, &eligibility, &outcome);
}

static void link_(int status, const char *text)
{
    answered(status, text);
    memset(&outcome, 0x55, sizeof(outcome));
    outcome_of_link(&call, &outcome);
}

static void expect(enum outcome_kind kind, enum outcome_advice advice, const char *code)
{
    ck_assert_msg(outcome.kind == kind, "%d: kind %d", call.status, (int)outcome.kind);
    ck_assert_msg(outcome.advice == advice, "%d: advice %d", call.status, (int)outcome.advice);
    ck_assert_str_eq(outcome.code, code);
}

TEST(a_clear_yes_is_a_yes)
{
    check(200, "{\"eligible\":true}");
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    ck_assert_int_eq(outcome.health, BREAKER_GOOD);
    check(200, " {\"since\":1,\"eligible\" : true,\"reason\":\"ignored\"} ");
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    check(200, "{\"name\":\"Ana \\ud83d\",\"id\":18446744073709551616,\"id\":1e400,\"eligible\":true}");
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
}

static bool is_told_apart(bool is_made, const char *text)
{
    ck_assert(is_made && call.names_other);
    answered(200, text);
    call.is_anothers = call.names_other(&call);
    return call.is_anothers;
}

/* Story: a gateway answered one question twice. The next user, who may have no card, got one. */
TEST(an_answer_that_names_somebody_else_decides_nothing)
{
    static const char *const others[] = {
        "{\"eligible\":true,\"user_id\":\"bob\"}", "{\"eligible\":true,\"user_id\":null}",
        "{\"eligible\":true,\"user_id\":\"alice\",\"user_id\":\"alice\"}", "{\"eligible\":false,\"user_id\":\"ali\"}"};
    static const char *const ours[] = {"{\"eligible\":true,\"user_id\":\"al\\u0069ce\"}", "{\"eligible\":true}",
                                       "{\"eligible\":true,\"of\":{\"user_id\":\"bob\"}}", "true"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        ck_assert_msg(is_told_apart(core_build_check(&call, "http://c", "alice", false), others[i]), "%s", others[i]);
        core_read_check(&call, profile, &eligibility, &outcome);
        expect(OUTCOME_UNKNOWN, ADVICE_RETRY, "core_unreadable");
    }
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        ck_assert_msg(!is_told_apart(core_build_check(&call, "http://c", "alice", false), ours[i]), "%s", ours[i]);
    struct core_link link = {.last4 = "1111", .exp_month = 1, .exp_year = 2030};
    ck_assert(!is_told_apart(core_build_link(&call, "http://c", "alice", &link),
                             "{\"request_id\":\"00000000-0000-0000-0000-000000000000\"}"));
    ck_assert(is_told_apart(core_build_link(&call, "http://c", "alice", &link),
                            "{\"request_id\":\"00000000-0000-0000-0000-000000000001\"}"));
    outcome_of_link(&call, &outcome);
    expect(OUTCOME_UNKNOWN, ADVICE_RETRY, "core_unreadable");
    ck_assert(is_told_apart(core_build_unlink(&call, "http://c", "alice", &link.event_id, &link.card_id),
                            "{\"request_id\":\"00000000-0000-0000-0000-000000000001\"}"));
    outcome_of_unlink(&call, &outcome);
    expect(OUTCOME_UNKNOWN, ADVICE_RETRY, "core_unreadable");
    call.is_anothers = false;
}

TEST(a_no_brings_its_reason_or_ours)
{
    check(200, "{\"eligible\":false,\"reason\":\"kyc_missing\"}");
    expect(OUTCOME_REFUSED, ADVICE_REJECT, "kyc_missing");
    static const char *const unusable[] = {
        "{\"eligible\":false}",
        "{\"eligible\":false,\"reason\":null}",
        "{\"eligible\":false,\"reason\":\"\"}",
        "{\"eligible\":false,\"reason\":\"No KYC!\"}",
        "{\"eligible\":false,\"reason\":1}",
        "{\"eligible\":false,\"reason\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(unusable); i++) {
        check(200, unusable[i]);
        expect(OUTCOME_REFUSED, ADVICE_REJECT, "core_refused");
    }
}

TEST(an_answer_without_a_decision_is_retried)
{
    static const char *const unclear[] = {"",
                                          "{}",
                                          "[]",
                                          "true",
                                          "{\"eligible\":null}",
                                          "{\"eligible\":\"true\"}",
                                          "{\"eligible\":1}",
                                          "{\"eligible\":true",
                                          "{\"eligible\":true,\"eligible\":false}",
                                          "{\"Eligible\":true}",
                                          "<html>"};
    for (size_t i = 0; i < ARRAY_SIZE(unclear); i++) {
        check(200, unclear[i]);
        expect(OUTCOME_UNKNOWN, ADVICE_RETRY, "core_unreadable");
    }
    check(201, "{\"eligible\":true}"); /* nothing was created by a question */
    ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
}

TEST(each_status_of_a_check_has_the_meaning_in_the_table)
{
    check(404, "{\"code\":\"whatever\"}");
    expect(OUTCOME_REFUSED, ADVICE_REJECT, "user_not_found");
    ck_assert_int_eq(outcome.health, BREAKER_GOOD); /* an unknown user is not an outage */
    static const int refused[] = {400, 410, 422};
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        check(refused[i], "{\"code\":\"user_blocked\"}");
        expect(OUTCOME_REFUSED, ADVICE_REJECT, "user_blocked");
        check(refused[i], "");
        expect(OUTCOME_REFUSED, ADVICE_REJECT, "core_refused");
    }
    check(408, "");
    expect(OUTCOME_UNKNOWN, ADVICE_RETRY, "core_http_408");
    check(409, "");
    expect(OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, "core_http_409");
    check(425, "");
    expect(OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, "core_http_425");
    check(429, "");
    expect(OUTCOME_NOT_EXECUTED, ADVICE_WAIT, "core_http_429");
    static const int configuration[] = {301, 302, 308, 401, 403, 405};
    for (size_t i = 0; i < ARRAY_SIZE(configuration); i++) {
        check(configuration[i], "");
        ck_assert_int_eq(outcome.advice, ADVICE_CONFIGURATION);
        ck_assert_int_eq(outcome.health, BREAKER_REFUSED);
    }
    check(402, "{\"code\":\"x\"}");
    expect(OUTCOME_REFUSED, ADVICE_FAIL, "core_http_402");
    check(418, "");
    expect(OUTCOME_REFUSED, ADVICE_FAIL, "core_http_418");
    for (int status = 500; status < 600; status++) {
        check(status, "{\"eligible\":false,\"reason\":\"down\"}");
        ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
        ck_assert_int_eq(outcome.health, BREAKER_BAD);
    }
}

TEST(only_a_200_can_say_yes)
{
    for (int status = 100; status < 600; status++) {
        check(status, "{\"eligible\":true}");
        ck_assert_msg((outcome.kind == OUTCOME_EXECUTED) == (status == 200), "%d", status);
    }
}

TEST(no_answer_is_retried_and_counts_against_core_api)
{
    static const enum http_result fates[] = {HTTP_NOT_SENT, HTTP_LOST};
    for (size_t i = 0; i < ARRAY_SIZE(fates); i++) {
        answered(200, "{\"eligible\":true}");
        call.result = fates[i];
        core_read_check(&call, profile, &eligibility, &outcome);
        ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
        ck_assert_int_eq(outcome.health, BREAKER_BAD);
        ck_assert_int_ne(outcome.kind, OUTCOME_EXECUTED);
        outcome_of_link(&call, &outcome);
        ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
        ck_assert_int_eq(outcome.health, BREAKER_BAD);
        ck_assert_int_ne(outcome.kind, OUTCOME_EXECUTED);
    }
}

TEST(a_link_is_made_by_200_or_201_and_by_nothing_else)
{
    for (int status = 100; status < 600; status++) {
        link_(status, "");
        ck_assert_msg((outcome.kind == OUTCOME_EXECUTED) == (status == 200 || status == 201), "%d", status);
    }
}

TEST(a_refused_link_brings_core_apis_code_or_ours)
{
    static const int refused[] = {400, 404, 409, 410, 422};
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        link_(refused[i], "{\"code\":\"account_closed\",\"detail\":\"since May\"}");
        expect(OUTCOME_REFUSED, ADVICE_REJECT, "account_closed");
        ck_assert_str_eq(outcome.detail, "since May");
        link_(refused[i], "");
        expect(OUTCOME_REFUSED, ADVICE_REJECT, "link_refused");
        link_(refused[i], "{\"code\":\"In Progress\"}");
        expect(OUTCOME_REFUSED, ADVICE_REJECT, "link_refused");
    }
}

TEST(a_409_in_progress_waits_and_is_no_refusal)
{
    link_(409, "{\"code\":\"in_progress\"}");
    expect(OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, "core_http_409");
    link_(422, "{\"code\":\"in_progress\"}"); /* only as a 409 does the word mean that */
    expect(OUTCOME_REFUSED, ADVICE_REJECT, "in_progress");
}

TEST(each_other_status_of_a_link_has_the_meaning_in_the_table)
{
    link_(408, "");
    expect(OUTCOME_UNKNOWN, ADVICE_RETRY, "core_http_408");
    link_(425, "");
    expect(OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, "core_http_425");
    answered(429, "");
    call.retry_after_ms = 1234;
    outcome_of_link(&call, &outcome);
    expect(OUTCOME_NOT_EXECUTED, ADVICE_WAIT, "core_http_429");
    ck_assert_int_eq(outcome.wait_ms, 1234);
    static const int configuration[] = {301, 307, 401, 403, 405};
    for (size_t i = 0; i < ARRAY_SIZE(configuration); i++) {
        link_(configuration[i], "");
        ck_assert_int_eq(outcome.advice, ADVICE_CONFIGURATION);
        ck_assert_int_eq(outcome.health, BREAKER_REFUSED);
    }
    link_(402, "{\"code\":\"x\"}");
    expect(OUTCOME_REFUSED, ADVICE_FAIL, "core_http_402");
    link_(451, "");
    expect(OUTCOME_REFUSED, ADVICE_FAIL, "core_http_451");
    link_(500, "");
    expect(OUTCOME_UNKNOWN, ADVICE_RETRY, "core_http_500");
    link_(202, "");
    ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
}

TEST(the_question_names_the_user_encoded_and_the_kind)
{
    ck_assert(core_build_check(&call, "http://core", "alice", false));
    ck_assert_str_eq(call.method, "GET");
    expect_line(0, "http://core/v1/users/alice/card-eligibility?kind=new");
    ck_assert_uint_eq(call.body.length, 0);
    expect_line(1, NULL);
    ck_assert(core_build_check(&call, "http://core", "../a b/%?#&+~_-.", true));
    expect_line(0, "http://core/v1/users/..%2Fa%20b%2F%25%3F%23%26%2B~_-./card-eligibility?kind=reissue");
}

TEST(no_user_changes_the_path)
{
    static const char *const users[] = {"", ".", ".."};
    for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
        ck_assert_msg(!core_build_check(&call, "http://core", users[i], false), "%s", users[i]);
        ck_assert_msg(!core_build_link(&call, "http://core", users[i], &link_of_card), "%s", users[i]);
    }
    ck_assert(core_build_check(&call, "http://core", "...", false));
    expect_line(0, "http://core/v1/users/.../card-eligibility?kind=new");
    /* Encoded once more each: one decoding gives the user id, and no dots or slashes of a path. */
    ck_assert(core_build_check(&call, "http://core", "%2e%2e", false));
    expect_line(0, "http://core/v1/users/%252e%252e/card-eligibility?kind=new");
    ck_assert(core_build_check(&call, "http://core", ".%2E", false));
    expect_line(0, "http://core/v1/users/.%252E/card-eligibility?kind=new");
    ck_assert(core_build_check(&call, "http://core", "a/../../b", false));
    expect_line(0, "http://core/v1/users/a%2F..%2F..%2Fb/card-eligibility?kind=new");
    ck_assert(core_build_check(&call, "http://core", "..%2f..", false));
    expect_line(0, "http://core/v1/users/..%252f../card-eligibility?kind=new");
    ck_assert(core_build_check(&call, "http://core", "..\\..", false));
    expect_line(0, "http://core/v1/users/..%5C../card-eligibility?kind=new");
    ck_assert(core_build_check(&call, "http://core", ".a", false));
    expect_line(0, "http://core/v1/users/.a/card-eligibility?kind=new");
}

TEST(a_link_carries_what_core_api_may_know_and_nothing_else)
{
    ck_assert(core_build_link(&call, "http://core", "a/b", &link_of_card));
    ck_assert_str_eq(call.method, "POST");
    expect_line(0, "http://core/v1/users/a%2Fb/cards");
    expect_line(1, "Idempotency-Key: " REQUEST);
    expect_line(2, "Content-Type: application/json");
    expect_line(3, NULL);
    ck_assert_str_eq(call.body.bytes,
                     "{\"request_id\":\"" REQUEST "\",\"card_id\":\"" CARD
                     "\",\"last4\":\"1111\",\"exp_month\":3,\"exp_year\":2031,\"kind\":\"new\",\"replaces\":null}");
    link_of_card.is_reissue = true;
    link_of_card.replaces = OLD_CARD;
    ck_assert(core_build_link(&call, "http://core", "alice", &link_of_card));
    ck_assert_ptr_nonnull(strstr(call.body.bytes, "\"kind\":\"reissue\",\"replaces\":\"" OLD_CARD "\"}"));
    ck_assert(json_strict_check(call.body.bytes, call.body.length, NULL));
}

TEST(an_unlink_names_the_card_and_has_a_key_of_its_own)
{
    struct uuid event, card;
    ck_assert(uuid_parse(REQUEST, strlen(REQUEST), &event) && uuid_parse(CARD, strlen(CARD), &card));
    ck_assert(core_build_unlink(&call, "http://core", "a/b", &event, &card));
    ck_assert_str_eq(call.method, "DELETE");
    expect_line(0, "http://core/v1/users/a%2Fb/cards/" CARD);
    expect_line(1, "Idempotency-Key: " REQUEST ":unlink");
    expect_line(2, NULL);
    ck_assert_uint_eq(call.body.length, 0);
}

/* The story: an end that was written before core-api had forgotten the card leaves a dead card in the user's
 * account. */
TEST(only_a_core_api_without_the_link_ends_an_unlink)
{
    static const int gone[] = {200, 204, 404, 410}, open[] = {201, 400, 401, 403, 405, 409, 422, 425, 429, 500, 503};
    for (size_t i = 0; i < ARRAY_SIZE(gone); i++) {
        call.result = HTTP_ANSWERED;
        call.status = gone[i];
        outcome_of_unlink(&call, &outcome);
        ck_assert_msg(outcome.kind == OUTCOME_EXECUTED, "%d", gone[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(open); i++) {
        call.result = HTTP_ANSWERED;
        call.status = open[i];
        outcome_of_unlink(&call, &outcome);
        ck_assert_msg(outcome.kind == OUTCOME_NOT_EXECUTED || outcome.kind == OUTCOME_UNKNOWN, "%d", open[i]);
    }
    call.result = HTTP_LOST;
    outcome_of_unlink(&call, &outcome);
    ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
}

TEST(what_does_not_fit_is_no_call)
{
    call.body.max = 8;
    ck_assert(!core_build_link(&call, "http://core", "alice", &link_of_card));
    call.lines.max = 8;
    call.body.max = HTTP_CALL_TEXT_MAX;
    ck_assert(!core_build_check(&call, "http://core", "alice", false));
    ck_assert(!core_build_link(&call, "http://core", "alice", &link_of_card));
}

/* ---- what core-api tells of the user, for the issuer ---- */

#define ALLOWED(object) "{\"eligible\":true,\"issuer\":" object "}"

TEST(parameters_are_read_beside_either_answer)
{
    profile = &issuer_stripe;
    check(200, ALLOWED("{\"cardholder\":\"ich_1\",\"other\":\"x\"}"));
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    ck_assert(eligibility.has_parameters);
    ck_assert_str_eq(issuer_parameters_value(profile, &eligibility.parameters, "cardholder"), "ich_1");
    check(200, "{\"eligible\":false,\"reason\":\"blocked\",\"issuer\":{\"cardholder\":\"ich_2\"}}");
    ck_assert_int_eq(outcome.kind, OUTCOME_REFUSED);
    ck_assert_str_eq(outcome.code, "blocked");
    ck_assert_str_eq(issuer_parameters_value(profile, &eligibility.parameters, "cardholder"), "ich_2");
    check(200, "{\"eligible\":true}");
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    ck_assert(!eligibility.has_parameters);
    check(404, "{\"issuer\":{\"cardholder\":\"ich_3\"}}");
    ck_assert_str_eq(outcome.code, "user_not_found");
    ck_assert(!eligibility.has_parameters);
}

/* A holder that is cut, or of another type, is not the user's: nothing may be sent for it. */
static const char *const broken[] = {
    ALLOWED("[]"),
    ALLOWED("null"),
    ALLOWED("\"ich_1\""),
    ALLOWED("{\"cardholder\":1}"),
    ALLOWED("{\"cardholder\":\"\"}"),
    ALLOWED("{\"cardholder\":\"a\\nb\"}"),
    ALLOWED("{\"card-holder\":\"x\"}"),
    "{\"eligible\":false,\"issuer\":[]}",
};

START_TEST(parameters_that_break_their_limits_make_the_answer_unreadable)
{
    profile = &issuer_stripe;
    check(200, broken[_i]);
    ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
    ck_assert_str_eq(outcome.code, "core_unreadable");
    profile = &issuer_generic; /* has none, and ignores the member */
    check(200, broken[_i]);
    ck_assert_int_ne(outcome.kind, OUTCOME_UNKNOWN);
    ck_assert(!eligibility.has_parameters);
}

SUITE(core_api)
{
    TCase *tcase = tcase_create("core_api");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, parameters_that_break_their_limits_make_the_answer_unreadable, 0, ARRAY_SIZE(broken));
    suite_add_tcase(suite, tcase);
}
