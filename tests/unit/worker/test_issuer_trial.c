/* Stories: a trial was begun with the key of the live mode, and a real card was made; the findings, which go into a ticket,
 * repeated the vendor's words with our key in them. */
#include "worker/issuer_trial.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/uuid7.h"
#include "tests/support/suite.h"

START_TEST(only_what_is_known_as_a_test_mode_is_one)
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
END_TEST

START_TEST(a_refused_create_ends_the_trial_without_our_secrets)
{
    static const char words[] =
        "{\"code\": \"bad_holder\", \"detail\": \"ich_secret of key-0123456789 has no address\"}";
    struct issuer_parameters known = {0};
    struct issuer_trial trial;
    struct findings findings;
    struct issuer_lookup lookup = {0};
    struct http_call call;
    struct uuid reference = uuid7_make();
    const struct issuer_findings_facts facts = {.profile = &issuer_generic, .fixed = &known, .worker = "w"};
    struct credential *credential = NULL;
    struct err err;
    char path[] = "/tmp/issuing-trial-XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_eq(write(file, "key-0123456789\n", 15), 15);
    close(file);
    ck_assert_msg(credential_load(path, &issuer_generic.credential, &credential, &err), "%s", err.message);
    unlink(path);
    snprintf(known.values[0], sizeof(known.values[0]), "ich_secret");
    http_call_init(&call, 64 * 1024);
    findings_init(&findings);
    findings_begin(&findings);
    issuer_trial_begin(&trial, &known, false);
    trial.credential = credential;
    ck_assert_int_eq(trial.next, ISSUER_CREATE);
    call.result = HTTP_ANSWERED;
    call.status = 422;
    ck_assert(buf_put(&call.answer, words, strlen(words)));
    ck_assert(!issuer_trial_answer(&trial, &findings, &facts, &call, &reference, &lookup, 1));
    ck_assert_int_eq(trial.next, ISSUER_CALLS);
    ck_assert(findings_end(&findings));
    ck_assert_ptr_nonnull(strstr((const char *)findings.text.bytes, "bad_holder"));
    ck_assert_ptr_nonnull(strstr((const char *)findings.text.bytes, "has no address"));
    ck_assert_ptr_null(strstr((const char *)findings.text.bytes, "ich_secret"));
    ck_assert_ptr_null(strstr((const char *)findings.text.bytes, "0123456789"));
    credential_release(credential);
    http_call_done(&call);
    findings_done(&findings);
}
END_TEST

SUITE(issuer_trial)
{
    TCase *tests = tcase_create("issuer_trial");
    tcase_add_test(tests, only_what_is_known_as_a_test_mode_is_one);
    tcase_add_test(tests, a_refused_create_ends_the_trial_without_our_secrets);
    suite_add_tcase(suite, tests);
}
