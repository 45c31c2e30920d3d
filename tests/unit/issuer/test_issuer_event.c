/* Events of issuers: whose signature counts, and which cards a body is about. The first vector is that of the Standard
 * Webhooks libraries; the others were computed with Python's hmac by the vendors' documents. */
#include "common/core/issuer/issuer_event.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/suite.h"

#define NOW 1614265330
#define BODY "{\"test\": 2432232314}"

static const struct vector {
    const struct issuer_profile *profile;
    const char *secret, *values[ISSUER_EVENT_HEADERS];
    bool has_time;
} vectors[] = {
    {&issuer_generic,
     "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
     {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "1614265330", "msg_p5jXN8AQM9LWM0D4loKWxJek"},
     true},
    {&issuer_lithic,
     "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
     {"v1a,AAAA v1,bm9uZQ== v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "1614265330",
      "msg_p5jXN8AQM9LWM0D4loKWxJek"},
     true},
    {&issuer_stripe,
     "whsec_a_signing_secret",
     {"t=1614265330,v1=16d04d7fdaee2c043c2affc7a550a0087aee751ac86bfb90a2e61f700c43a0fe,v0=00"},
     true},
    {&issuer_adyen, "00112233445566778899AABBCCDDEEFF", {"Jo2iXekTaO4+rWLXREqh4Nn0Spp5tOIe9WCEiNiXwAE="}, false},
    {&issuer_marqeta, "issuing:secret", {"Basic aXNzdWluZzpzZWNyZXQ="}, false},
};

static struct issuer_event_secrets *secrets;
static char path[] = "/tmp/issuer_event_XXXXXX";

/* The file of the secrets; NULL = it was refused, and err says why. */
static bool load(const struct issuer_profile *profile, const char *text, struct err *err)
{
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    issuer_event_secrets_free(secrets);
    secrets = NULL;
    bool done = issuer_event_secrets_load(profile, path, &secrets, err);
    unlink(path);
    memset(path + strlen(path) - 6, 'X', 6);
    return done;
}

static void tear_down(void)
{
    issuer_event_secrets_free(secrets);
    secrets = NULL;
}

static struct slice slice_of(const char *text)
{
    return text ? (struct slice){.bytes = text, .length = strlen(text)} : (struct slice){0};
}

static enum issuer_event_check check_at(const struct vector *vector, const char *body, int64_t now_s)
{
    struct slice values[ISSUER_EVENT_HEADERS];
    for (int i = 0; i < ISSUER_EVENT_HEADERS; i++)
        values[i] = slice_of(vector->values[i]);
    return issuer_event_check(secrets, values, slice_of(body), now_s);
}

START_TEST(a_signature_counts_as_its_issuer_documents_it)
{
    struct err err;
    const struct vector *vector = &vectors[_i];
    ck_assert_msg(load(vector->profile, vector->secret, &err), "%s", err.message);
    ck_assert_int_eq(check_at(vector, BODY, NOW), ISSUER_EVENT_SIGNED);
    ck_assert_int_eq(check_at(vector, BODY, NOW + 300), ISSUER_EVENT_SIGNED);
    for (int shift = -301; shift <= 301; shift += 602)
        ck_assert_int_eq(check_at(vector, BODY, NOW + shift),
                         vector->has_time ? ISSUER_EVENT_LATE : ISSUER_EVENT_SIGNED);
    if (vector->profile != &issuer_marqeta)
        ck_assert_int_eq(check_at(vector, BODY " ", NOW), ISSUER_EVENT_FORGED);
}

START_TEST(a_header_that_is_missing_cut_or_changed_signs_nothing)
{
    struct err err;
    const struct vector *vector = &vectors[_i];
    ck_assert_msg(load(vector->profile, vector->secret, &err), "%s", err.message);
    for (int which = 0; which < ISSUER_EVENT_HEADERS && vector->values[which]; which++) {
        struct vector changed = *vector;
        changed.values[which] = NULL;
        ck_assert_int_eq(check_at(&changed, BODY, NOW), ISSUER_EVENT_FORGED);
        char text[200];
        const char *end = strstr(vector->values[which], ",v0"); /* which means nothing */
        size_t length = end ? (size_t)(end - vector->values[which]) : strlen(vector->values[which]);
        size_t begin = which == 0 && vector->profile == &issuer_lithic ? length - 44 : 0;
        for (size_t at = begin; at < length; at++) {
            snprintf(text, sizeof(text), "%.*s", (int)length, vector->values[which]);
            changed.values[which] = text;
            text[at] ^= 1;
            ck_assert_msg(check_at(&changed, BODY, NOW) != ISSUER_EVENT_SIGNED, "%s", text);
            text[at] = '\0';
            ck_assert_msg(check_at(&changed, BODY, NOW) != ISSUER_EVENT_SIGNED, "%s", text);
        }
    }
}

/* Frozen, thawed, frozen again: the first and the third body may be equal. */
TEST(of_standard_webhooks_the_id_tells_two_events_with_one_body_apart)
{
    static const struct slice first[ISSUER_EVENT_HEADERS] = {{"s", 1}, {"1", 1}, {"msg_1", 5}},
                              again[ISSUER_EVENT_HEADERS] = {{"t", 1}, {"2", 1}, {"msg_1", 5}},
                              other[ISSUER_EVENT_HEADERS] = {{"s", 1}, {"1", 1}, {"msg_2", 5}};
    unsigned char digests[4][DIGEST_SIZE];
    struct err err;
    ck_assert_msg(load(vectors[0].profile, vectors[0].secret, &err), "%s", err.message);
    issuer_event_digest(secrets, first, slice_of(BODY), digests[0]);
    issuer_event_digest(secrets, again, slice_of(BODY), digests[1]);
    issuer_event_digest(secrets, other, slice_of(BODY), digests[2]);
    issuer_event_digest(secrets, first, slice_of(BODY " "), digests[3]);
    ck_assert_mem_eq(digests[0], digests[1], DIGEST_SIZE);
    ck_assert_mem_ne(digests[0], digests[2], DIGEST_SIZE);
    ck_assert_mem_ne(digests[0], digests[3], DIGEST_SIZE);
}

TEST(of_two_secrets_each_counts)
{
    struct err err;
    char text[200];
    const struct vector *vector = &vectors[0];
    snprintf(text, sizeof(text), "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n%s\n", vector->secret);
    ck_assert_msg(load(vector->profile, text, &err), "%s", err.message);
    ck_assert_int_eq(check_at(vector, BODY, NOW), ISSUER_EVENT_SIGNED);
}

TEST(a_secret_that_is_none_is_refused_and_not_shown)
{
    static const struct {
        const struct issuer_profile *profile;
        const char *text;
    } rows[] = {
        {&issuer_generic, ""},
        {&issuer_generic, "whsec_c2hvcnQ="},
        {&issuer_generic, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n\n"},
        {&issuer_generic, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
        {&issuer_lithic, "a\nb\nc"},
        {&issuer_stripe, "sk_test_0123456789abcdef"},
        {&issuer_stripe, "whsec_"},
        {&issuer_adyen, "00112233445566778899AABBCCDDEEFG"},
        {&issuer_adyen, "001122"},
        {&issuer_marqeta, "no colon"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct err err = {0};
        ck_assert_msg(!load(rows[i].profile, rows[i].text, &err), "%s", rows[i].text);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert(strlen(rows[i].text) < 8 || !strstr(err.message, rows[i].text));
    }
}

TEST(a_body_names_its_cards)
{
#define OURS "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"
    static const struct {
        const struct issuer_profile *profile;
        const char *body;
        int count;
        const char *id;
        bool has_reference;
    } rows[] = {
        {&issuer_generic, "{\"type\":\"card.updated\",\"data\":{\"id\":\"card-1\",\"reference\":\"" OURS "\"}}", 1,
         "card-1", true},
        {&issuer_generic, "{\"type\":\"card.updated\",\"data\":{\"id\":\"card-1\",\"reference\":7}}", 1, "card-1",
         false},
        {&issuer_generic, "{\"type\":\"payment.made\",\"data\":{\"id\":\"card-1\"}}", 0, "", false},
        {&issuer_generic, "{\"type\":\"card.updated\",\"data\":{}}", 0, "", false},
        {&issuer_generic, "{\"type\":\"card.updated\",\"data\":{\"id\":\"a\"},\"data\":{}}", 0, "", false},
        {&issuer_generic,
         "{\"by\":\"Ana \\ud83d\",\"by\":1e400,\"type\":\"card.updated\",\"data\":{\"id\":\"card-1\"}}", 1, "card-1",
         false},
        {&issuer_generic, "", -1, "", false},
        {&issuer_stripe,
         "{\"type\":\"issuing_card.updated\",\"data\":{\"object\":{\"id\":\"ic_1\",\"metadata\":{\"issuing_reference\":"
         "\"" OURS "\"}}}}",
         1, "ic_1", true},
        {&issuer_stripe, "{\"type\":\"issuing_authorization.created\",\"data\":{\"object\":{\"id\":\"iauth_1\"}}}", 0,
         "", false},
        {&issuer_lithic, "{\"event_type\":\"card.created\",\"card_token\":\"t-1\"}", 1, "t-1", false},
        {&issuer_increase, "{\"type\":\"event\",\"category\":\"card.updated\",\"associated_object_id\":\"card_1\"}", 1,
         "card_1", false},
        {&issuer_increase, "{\"category\":\"card_payment.created\",\"associated_object_id\":\"card_payment_1\"}", 0, "",
         false},
        {&issuer_marqeta,
         "{\"cardtransitions\":[{\"card_token\":\"" OURS "\"},{\"token\":\"x\"},{\"card_token\":\"other\"}]}", 2, OURS,
         true},
        {&issuer_marqeta, "{\"transactions\":[]}", 0, "", false},
        {&issuer_adyen,
         "{\"type\":\"balancePlatform.paymentInstrument.updated\",\"data\":{\"paymentInstrument\":{\"id\":\"PI1\","
         "\"reference\":"
         "\"" OURS "\"}}}",
         1, "PI1", true},
    };
    static struct issuer_event_card cards[ISSUER_EVENT_CARDS_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        memset(cards, 0, sizeof(cards));
        ck_assert_msg(issuer_event_read(rows[i].profile, slice_of(rows[i].body), cards) == rows[i].count, "%s",
                      rows[i].body);
        ck_assert_str_eq(cards[0].id, rows[i].id);
        ck_assert_int_eq(cards[0].has_reference, rows[i].has_reference);
    }
}

TEST(a_body_about_too_many_cards_is_refused)
{
    static char body[8192];
    static struct issuer_event_card cards[ISSUER_EVENT_CARDS_MAX];
    for (int extra = 0; extra < 2; extra++) {
        size_t length = (size_t)snprintf(body, sizeof(body), "{\"cardtransitions\":[");
        for (int i = 0; i < ISSUER_EVENT_CARDS_MAX + extra; i++)
            length += (size_t)snprintf(body + length, sizeof(body) - length, "%s{\"card_token\":\"t-%d\"}",
                                       i > 0 ? "," : "", i);
        snprintf(body + length, sizeof(body) - length, "]}");
        ck_assert_int_eq(issuer_event_read(&issuer_marqeta, slice_of(body), cards),
                         extra ? -1 : ISSUER_EVENT_CARDS_MAX);
    }
}

SUITE(issuer_event)
{
    TCase *tcase = tcase_create("issuer_event");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, a_signature_counts_as_its_issuer_documents_it, 0, ARRAY_SIZE(vectors));
    tcase_add_loop_test(tcase, a_header_that_is_missing_cut_or_changed_signs_nothing, 0, ARRAY_SIZE(vectors));
    ADD_TESTS(tcase);
    suite_add_tcase(suite, tcase);
}
