/* The story: the findings of a check go to a terminal, into a ticket and into the database. They must say what is wrong
 * and what to do about it, must not call right what nobody saw, and must hold no key, no card number and nobody's name,
 * whatever the peers answer. */
#include "worker/questions/issuer_findings.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "tests/support/suite.h"

#define KEY "sk_test_51Hsecret"

static struct http_call call;
static struct findings findings;
static struct issuer_findings_facts facts;
static struct issuer_parameters given, fixed, known, nothing;

static void begin(const struct issuer_profile *profile)
{
    memset(&fixed, 0, sizeof(fixed));
    facts = (struct issuer_findings_facts){
        .profile = profile,
        .fixed = &fixed,
        .worker = "host:17",
        .user_id = "alice",
        .issuer = {.url = "https://issuer.example", .credential_file = "/etc/issuer.credential"},
        .core = {.url = "https://core.example"},
        .issuer_header = "Authorization: Bearer " KEY,
    };
    issuer_findings_begin(&findings, &facts);
}

static void set_up(void)
{
    http_call_init(&call, 64 * 1024);
    findings_init(&findings);
    begin(&issuer_stripe);
}

static void tear_down(void)
{
    http_call_done(&call);
    findings_done(&findings);
}

static void answered(int status, const char *text)
{
    call.result = HTTP_ANSWERED;
    call.status = status;
    call.retry_after_ms = -1;
    buf_reset(&call.answer);
    ck_assert(buf_put_text(&call.answer, text));
}

static void expect(const char *text)
{
    ck_assert_msg(strstr(findings.text.bytes, text), "no %s in %s", text, findings.text.bytes);
}

static void expect_not(const char *text)
{
    ck_assert_msg(!strstr(findings.text.bytes, text), "%s in %s", text, findings.text.bytes);
}

static void end(enum issuer_call which)
{
    ck_assert(issuer_findings_end(&findings, &facts, which, &known));
    ck_assert_msg(json_strict_check(findings.text.bytes, findings.text.length, NULL), "%s", findings.text.bytes);
}

/* second: of a look-up of one card, the answer to the wrong path; NULL = it is not asked for. */
static void answers(enum issuer_call which, int status, const char *text, const char *second)
{
    struct issuer_lookup lookup = {0};
    struct outcome outcome = {0};
    struct uuid event = uuid4_make();
    answered(status, text);
    if (which == ISSUER_LOOKUP)
        issuer_read_lookup(facts.profile, &call, &event, &lookup, &outcome);
    if (second) {
        answered(404, second);
        issuer_read_lookup(facts.profile, &call, &event, &lookup, &outcome);
    }
    issuer_findings_add_answer(&findings, &facts, which, &call, &lookup, &outcome);
    issuer_lookup_forget(&lookup);
}

static void answer(enum issuer_call which, int status, const char *text)
{
    answers(which, status, text, NULL);
}

TEST(a_look_up_that_finds_nothing_is_right)
{
    answer(ISSUER_LOOKUP, 200, "{\"data\":[],\"has_more\":false}");
    expect("\"check\":\"credential\",\"level\":\"ok\"");
    expect("\"check\":\"look-up\",\"level\":\"ok\"");
    end(ISSUER_LOOKUP);
    ck_assert(!findings.has_failure);
}

TEST(the_account_is_compared_with_its_name_and_the_line_to_set_is_told)
{
    static const struct {
        const char *account, *body, *level, *found;
    } rows[] = {
        {NULL, "{\"id\":\"acct_1\"}", "note", "set issuer.account = acct_1"},
        {"acct_1", "{\"id\":\"acct_1\"}", "ok", "of acct_1, as issuer.account says"},
        {"acct_2", "{\"id\":\"acct_1\"}", "fail", "of acct_1, and issuer.account is acct_2"},
        {"acct_2", "{\"id\":\"" KEY "\"}", "note",
         "did not tell the account of the credential; issuer.account is acct_2"},
        {NULL, "{\"id\":\"a b\"}", "note", "did not tell"},
        {NULL, "{\"id\":7}", "note", "issuer.account is not set"},
        {NULL, "<html>", "note", "did not tell"},
        {NULL, NULL, "note", "no call of this profile tells"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char level[40];
        begin(&issuer_stripe);
        facts.account = rows[i].account;
        if (rows[i].body)
            answered(200, rows[i].body);
        issuer_findings_add_account(&findings, &facts, rows[i].body ? &call : NULL);
        snprintf(level, sizeof(level), "\"check\":\"account\",\"level\":\"%s\"", rows[i].level);
        expect(level);
        expect(rows[i].found);
        expect_not(KEY);
        ck_assert_int_eq(findings.has_failure, strcmp(rows[i].level, "fail") == 0);
        end(ISSUER_CALLS);
    }
}

TEST(a_refused_credential_names_file_and_form_and_shows_no_word_of_the_peer)
{
    answer(ISSUER_LOOKUP, 401,
           "{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"Invalid API Key provided: " KEY "\"}}");
    expect("\"check\":\"credential\",\"level\":\"fail\"");
    expect("/etc/issuer.credential");
    expect("Authorization: Bearer ...");
    expect("invalid_request_error");
    expect_not("Invalid API Key");
    expect_not(KEY);
    end(ISSUER_LOOKUP);
    ck_assert(findings.has_failure);
}

TEST(words_in_which_our_credential_may_be_are_left_out_whatever_the_status)
{
    static const int statuses[] = {400, 402, 404, 422, 500};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        begin(&issuer_stripe);
        answer(ISSUER_LOOKUP, statuses[i], "{\"error\":{\"code\":\"odd\",\"message\":\"you sent " KEY "\"}}");
        expect("odd");
        expect_not(KEY);
    }
    begin(&issuer_adyen);
    facts.issuer_header = "X-API-Key: " KEY;
    answer(ISSUER_RETRIEVE, 422, "{\"errorCode\":\"30_031\",\"detail\":\"" KEY "\"}");
    expect("30_031");
    expect_not(KEY);
}

TEST(numbers_of_cards_and_control_characters_of_a_peer_are_harmless)
{
    answer(ISSUER_LOOKUP, 400, "{\"error\":{\"message\":\"card 4000003212345674 \\u001b[31m\\u0000 \\\"x\"}}");
    expect_not("4000003212345674");
    expect_not("\\u001b");
    expect_not("\\u0000");
    end(ISSUER_LOOKUP);
}

#define MISSING "{\"error_code\":\"404001\",\"error_message\":\"card not found\"}"

TEST(a_404_is_no_such_card_only_in_the_issuers_own_words)
{
    begin(&issuer_marqeta);
    answers(ISSUER_LOOKUP, 404, MISSING, "{\"error_code\":\"404000\",\"error_message\":\"no handler\"}");
    expect("\"check\":\"look-up\",\"level\":\"ok\"");
    begin(&issuer_marqeta);
    answers(ISSUER_LOOKUP, 404, MISSING, MISSING); /* the path may be wrong */
    expect("\"check\":\"look-up\",\"level\":\"fail\"");
    begin(&issuer_marqeta);
    answer(ISSUER_LOOKUP, 404, "<html>not found</html>");
    expect("\"check\":\"look-up\",\"level\":\"fail\"");
    expect_not("\"check\":\"credential\"");
    begin(&issuer_stripe); /* a list is there, also when it is empty */
    answer(ISSUER_LOOKUP, 404, "{\"error\":{\"code\":\"resource_missing\",\"message\":\"No such cardholder\"}}");
    expect("\"check\":\"look-up\",\"level\":\"fail\"");
    begin(&issuer_stripe);
    answer(ISSUER_RETRIEVE, 404, "{\"error\":{\"code\":\"resource_missing\",\"message\":\"No such card\"}}");
    expect("\"check\":\"look-up\",\"level\":\"ok\"");
    begin(&issuer_stripe);
    answer(ISSUER_RETRIEVE, 404, "<html>not found</html>");
    expect("\"check\":\"look-up\",\"level\":\"fail\"");
}

TEST(an_answer_that_shows_nothing_of_the_credential_does_not_call_it_right)
{
    static const int statuses[] = {302, 400, 404, 405, 418, 429, 500, 503};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        begin(&issuer_lithic);
        answer(ISSUER_LOOKUP, statuses[i], "");
        expect_not("\"check\":\"credential\"");
        ck_assert_int_eq(findings.has_failure, statuses[i] != 429);
    }
    call.result = HTTP_LOST;
    snprintf(call.error, sizeof(call.error), "Timeout was reached");
    begin(&issuer_lithic);
    issuer_findings_add_answer(&findings, &facts, ISSUER_LOOKUP, &call, NULL, NULL);
    expect("issuer.timeout");
    expect_not("\"check\":\"credential\"");
}

TEST(a_card_for_a_reference_that_was_never_used_is_a_failure)
{
    struct issuer_lookup found = {.live = 1};
    struct outcome executed;
    answered(200, "{}");
    outcome_executed(&executed);
    issuer_findings_add_answer(&findings, &facts, ISSUER_LOOKUP, &call, &found, &executed);
    expect("\"check\":\"look-up\",\"level\":\"fail\"");
    begin(&issuer_stripe);
    answer(ISSUER_RETRIEVE, 200, "{\"id\":\"ic_1\"}");
    expect("\"check\":\"look-up\",\"level\":\"fail\"");
}

TEST(parameters_are_named_with_their_origin_and_never_shown)
{
    begin(&issuer_adyen);
    answered(200, "{\"eligible\":true,\"issuer\":{\"balanceAccountId\":\"BA1\",\"cardholderName\":\"S. Hopper\","
                  "\"cardholdername\":\"x\"}}");
    issuer_findings_add_core(&findings, &facts, &call, &given);
    expect("alice may have a card");
    expect("ignores: cardholdername");
    known = given;
    issuer_findings_add_parameters(&findings, &facts, &given, &known);
    expect("missing: issuingCountryCode, brand, brandVariant; balanceAccountId, cardholderName from core-api");
    ck_assert(findings.has_failure);
    ck_assert_int_eq(issuer_findings_call(&issuer_adyen, &known), ISSUER_LOOKUP);
    ck_assert_int_eq(issuer_findings_call(&issuer_adyen, &nothing), ISSUER_RETRIEVE);
    expect_not("Hopper");
    expect_not("BA1");
    end(ISSUER_LOOKUP);
    expect("whether the issuer takes the values of cardholderName; ");
}

TEST(many_names_and_long_ones_end_in_a_text_that_is_still_json)
{
    char text[4096] = "{\"eligible\":false,\"reason\":\"blocked\",\"issuer\":{";
    for (int i = 0; i < 16; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s\"%c%039d\":\"v\"", i ? "," : "", 'a' + i, 0);
    for (char *byte = strchr(text, '0'); byte; byte = strchr(byte, '0'))
        *byte = '_';
    strcat(text, "}}");
    answered(200, text);
    issuer_findings_add_core(&findings, &facts, &call, &given);
    expect("may not have a card: blocked");
    expect("ignores: a____");
    issuer_findings_add_core_unasked(&findings, "x", "y");
    issuer_findings_add_uncalled(&findings, "x", "y");
    end(ISSUER_CALLS);
}

TESTS_BETWEEN(issuer_findings, set_up, tear_down)
