/* Stories: a trial was begun with the key of the live mode, and a real card was made; the findings, which go into a
 * ticket, repeated the vendor's words with our key in them; a frozen card that the issuer goes on to show as active,
 * and a settle time that is too short, were not seen; a card whose create got no definite answer stayed, and nobody was
 * told. */
#include "worker/questions/issuer_trial.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/base/uuid7.h"
#include "tests/support/suite.h"

TEST(only_what_is_known_as_a_test_mode_is_one)
{
    static const struct {
        const struct issuer_profile *profile;
        const char *url, *header;
        bool is_test;
    } rows[] = {
        {&issuer_stripe, "https://api.stripe.com", "Authorization: Bearer sk_live_1", false},
        {&issuer_stripe, "https://api.stripe.com", "Authorization: Bearer sk_test_1", true},
        {&issuer_stripe, "https://api.stripe.com", "Authorization: Bearer rk_test_1", true},
        {&issuer_stripe, "https://api.stripe.com", NULL, false},
        {&issuer_lithic, "https://api.lithic.com", "Authorization: k_test_", false},
        {&issuer_lithic, "https://sandbox.lithic.com", "Authorization: k", true},
        {&issuer_marqeta, "https://issuer-api.marqeta.com/v3", "Authorization: Basic eA==", false},
        {&issuer_marqeta, "https://sandbox-api.marqeta.com/v3", "Authorization: Basic eA==", true},
        {&issuer_adyen, "https://balanceplatform-api-live.adyen.com/bcl/v2", "X-API-Key: k", false},
        {&issuer_adyen, "https://balanceplatform-api-test.adyen.com/bcl/v2", "X-API-Key: k", true},
        {&issuer_increase, "https://api.increase.com", "Authorization: Bearer secret_key_1", false},
        {&issuer_increase, "https://sandbox.increase.com", "Authorization: Bearer sandbox_key_1", true},
        {&issuer_generic, "https://sandbox.issuer.example", "Authorization: Bearer sk_test_1", false},
        {&issuer_generic, "http://127.0.0.1:9001", NULL, true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        ck_assert_msg(issuer_trial_is_test(rows[i].profile, rows[i].url, rows[i].header) == rows[i].is_test, "row %zu",
                      i);
}

static struct issuer_parameters known;
static struct issuer_trial trial;
static struct findings findings;
static struct issuer_lookup lookup;
static struct http_call call;
static struct uuid reference;
static struct issuer_findings_facts facts;

static void set_up(void)
{
    known = (struct issuer_parameters){0};
    reference = uuid7_make();
    http_call_init(&call, 64 * 1024);
    findings_init(&findings);
    findings_begin(&findings);
}

static void tear_down(void)
{
    issuer_lookup_forget(&lookup);
    http_call_done(&call);
    findings_done(&findings);
}

static void begin(const struct issuer_profile *profile)
{
    facts = (struct issuer_findings_facts){.profile = profile, .fixed = &known, .worker = "w"};
    issuer_trial_begin(&trial, &facts, &known, &reference, "");
}

/* The text has the trial's reference instead of %s. */
static void answer(int status, const char *text, int64_t now_ms)
{
    char id[UUID_TEXT_SIZE], body[1000];
    uuid_format(&trial.reference, id);
    snprintf(body, sizeof(body), text, id); /* NOLINT: a format of this file */
    buf_reset(&call.answer);
    call.result = HTTP_ANSWERED;
    call.status = status;
    ck_assert(buf_put(&call.answer, body, strlen(body)));
    ck_assert(!issuer_trial_answer(&trial, &findings, &call, NULL, &lookup, now_ms));
}

static const char *found(void)
{
    ck_assert(findings_end(&findings));
    return (const char *)findings.text.bytes;
}

TEST(a_refused_create_ends_the_trial_without_our_secrets)
{
    struct credential *credential = NULL;
    struct err err;
    char path[] = "/tmp/issuing-trial-XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_eq(write(file, "key-0123456789\n", 15), 15);
    close(file);
    ck_assert_msg(credential_load(path, &issuer_generic.credential, &credential, &err), "%s", err.message);
    unlink(path);
    snprintf(known.values[0], sizeof(known.values[0]), "ich_secret");
    begin(&issuer_generic);
    trial.credential = credential;
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CREATE);
    answer(422, "{\"code\": \"bad_holder\", \"detail\": \"ich_secret of key-0123456789 has no address\"}", 1);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CALLS);
    const char *text = found();
    ck_assert_ptr_nonnull(strstr(text, "bad_holder"));
    ck_assert_ptr_nonnull(strstr(text, "has no address"));
    ck_assert_ptr_null(strstr(text, "ich_secret"));
    ck_assert_ptr_null(strstr(text, "0123456789"));
    credential_release(credential);
}

#define CARD(status)                                                                                               \
    "{\"id\":\"card_1\",\"idempotency_key\":\"%s\",\"last4\":\"1111\",\"expiration_month\":1,\"expiration_year\":" \
    "2099,"                                                                                                        \
    "\"status\":\"" status "\"}"

/* From the create until the card is frozen. shown: by the issuer, after this. */
static void freeze(const char *shown)
{
    snprintf(known.values[0], sizeof(known.values[0]), "account_1");
    begin(&issuer_increase);
    trial.settle_ms = 60000;
    answer(200, CARD("active"), 1000);
    answer(200, CARD("active"), 1000);
    answer(200, "{\"data\":[" CARD("active") "],\"next_cursor\":null}", 8000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_FREEZE);
    answer(200, CARD("disabled"), 9000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_RETRIEVE);
    answer(200, shown, 9000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CANCEL);
}

TEST(a_settle_time_that_is_too_short_and_a_frozen_card_that_is_shown_as_active_are_named)
{
    freeze(CARD("active"));
    ck_assert(findings.has_failure);
    const char *text = found();
    ck_assert_ptr_nonnull(strstr(text, "a frozen card is shown as active"));
    ck_assert_ptr_nonnull(strstr(text, "\"warn\""));
    ck_assert_ptr_nonnull(strstr(text, "issuer.settle_time = 70s"));
}

TEST(each_question_is_answered_and_every_card_is_closed)
{
    static const char refused[] = "{\"type\":\"object_not_found_error\",\"status\":404,\"title\":\"%s\"}";
    freeze(CARD("disabled"));
    answer(200, CARD("canceled"), 9000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_RETIRE);
    answer(409, "{\"type\":\"invalid_operation_error\",\"status\":409,\"title\":\"%s\"}", 9000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CREATE);
    ck_assert(!uuid_equal(&trial.reference, &reference));
    ck_assert_str_ne(issuer_trial_parameters(&trial)->values[0], "account_1");
    answer(404, refused, 9000);
    ck_assert_str_eq(issuer_trial_parameters(&trial)->values[0], "account_1");
    answer(200, CARD("active"), 9000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CANCEL);
    answer(200, CARD("canceled"), 9000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CALLS);
    issuer_trial_done(&trial, &findings);
    const char *text = found();
    ck_assert_ptr_nonnull(strstr(text, "a frozen card is shown as frozen"));
    ck_assert_ptr_nonnull(strstr(text, "a second close: 409 invalid_operation_error, taken for refused"));
    ck_assert_ptr_nonnull(strstr(text, "an unknown account: 404 object_not_found_error, taken for refused"));
    ck_assert_ptr_nonnull(strstr(text, "the key after a refusal: makes a card: the refusal was not kept"));
    ck_assert_ptr_nonnull(strstr(text, "how soon a card shows by key: 7000 ms after the create"));
    ck_assert_ptr_nonnull(strstr(text, "the key while its first call runs: not answered"));
}

/* From the create until the create that must be refused is. */
static void refuse_the_strange_holder(void)
{
    freeze(CARD("disabled"));
    answer(200, CARD("canceled"), 9000);
    answer(409, "{\"type\":\"invalid_operation_error\",\"status\":409,\"title\":\"%s\"}", 9000);
    answer(404, "{\"type\":\"object_not_found_error\",\"status\":404,\"title\":\"%s\"}", 9000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CREATE);
}

TEST(the_card_of_a_create_without_a_definite_answer_is_looked_for_and_closed_or_named)
{
    char named[UUID_TEXT_SIZE];
    static const char found_none[] = "{\"data\":[],\"next_cursor\":null,\"for\":\"%s\"}";
    refuse_the_strange_holder();
    answer(503, "%s", 10000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_LOOKUP);
    ck_assert_str_eq(issuer_trial_parameters(&trial)->values[0], "account_1");
    answer(200, "{\"data\":[" CARD("active") "],\"next_cursor\":null}", 11000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CANCEL);
    ck_assert_str_eq(issuer_trial_card(&trial), "card_1");
    answer(200, CARD("canceled"), 11000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CALLS);
    issuer_trial_done(&trial, &findings);
    ck_assert(!findings.has_failure);
    uuid_format(&trial.reference, named);
    ck_assert_ptr_nonnull(strstr(found(), named));

    findings_begin(&findings);
    refuse_the_strange_holder();
    answer(503, "%s", 10000);
    answer(200, found_none, 10000 + ISSUER_TRIAL_SHOWN_MS + 1);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CALLS);
    ck_assert(findings.has_failure);
    issuer_trial_done(&trial, &findings);
    const char *text = found();
    uuid_format(&trial.reference, named);
    ck_assert_ptr_nonnull(strstr(text, named));
    ck_assert_ptr_nonnull(strstr(text, "close it by hand"));
}

TEST(a_trial_in_a_hurry_closes_what_it_has_made_and_names_what_it_may_have_left)
{
    char named[UUID_TEXT_SIZE];
    snprintf(known.values[0], sizeof(known.values[0]), "account_1");
    begin(&issuer_increase);
    answer(200, CARD("active"), 1000);
    answer(503, "%s", 1000);
    issuer_trial_hurry(&trial);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CANCEL);
    answer(200, CARD("canceled"), 1000);
    ck_assert_int_eq(issuer_trial_call(&trial), ISSUER_CALLS);
    issuer_trial_done(&trial, &findings);
    uuid_format(&trial.reference, named);
    const char *text = found();
    ck_assert_ptr_nonnull(strstr(text, named));
    ck_assert_ptr_nonnull(strstr(text, "cut short"));
}

TESTS_BETWEEN(issuer_trial, set_up, tear_down)
