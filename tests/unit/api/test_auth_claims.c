/* The story: the api may use only what the signature of a token covers, and only as long as its claims allow. A bit
 * that is flipped, a claim that is missing or out of range, and a token of another issuer are refused; the cache
 * changes none of it. */
#include "api/auth_fixture.h"

#include <limits.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/core_names.h>
#include <openssl/hmac.h>
#include <openssl/x509.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/auth_key.h"
#include "common/core/token.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/clock.h"
#include "tests/support/suite.h"

/* ---- signatures ---- */

TEST(a_signature_with_any_bit_flipped_does_not_fit)
{
    EVP_PKEY *const keys[] = {NULL, rsa, ec, ed};
    static const char *const headers[] = {"{\"alg\":\"HS256\"}", "{\"alg\":\"RS256\"}", "{\"alg\":\"ES256\"}",
                                          "{\"alg\":\"EdDSA\"}"};
    for (size_t k = 0; k < ARRAY_SIZE(keys); k++) {
        char good[2048];
        snprintf(good, sizeof(good), "%s", token(keys[k], headers[k], GOOD_CLAIMS));
        const char *part = strrchr(good, '.') + 1;
        unsigned char signature[1024];
        size_t length = 0;
        struct slice text = {.bytes = part, .length = strlen(part)};
        ck_assert(auth_base64url(text, signature, sizeof(signature), &length));
        size_t start = (size_t)(part - good);
        for (size_t bit = 0; bit < length * 8; bit += 5) {
            char bent[2048];
            signature[bit / 8] ^= (unsigned char)(1 << bit % 8);
            snprintf(bent, sizeof(bent), "%.*s%s", (int)start, good, base64url(signature, length));
            expect_refused(bent, "signature does not fit");
            signature[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        for (size_t shorter = 0; shorter < length; shorter += 7) {
            char bent[2048];
            snprintf(bent, sizeof(bent), "%.*s%s", (int)start, good, base64url(signature, shorter));
            expect_refused(bent, "signature does not fit");
        }
        expect_accepted(good);
    }
}

TEST(claims_and_header_are_signed)
{
    static const char other[] = "{\"sub\":\"mallo\",\"exp\":1795176100}";
    const char *good = hs256(GOOD_CLAIMS);
    const char *signature = strrchr(good, '.') + 1;
    expect_refused(join(base64url_text("{\"alg\":\"HS256\"}"), base64url_text(other), signature),
                   "signature does not fit");
    expect_refused(join(base64url_text("{\"alg\":\"HS256\" }"), base64url_text(GOOD_CLAIMS), signature),
                   "signature does not fit");
}

TEST(es256_signatures_are_raw_and_in_range)
{
    static const char header[] = "{\"alg\":\"ES256\",\"kid\":\"e\"}";
    static const unsigned char order[32] = {0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff,
                                            0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17,
                                            0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51};
    char h[100], c[100];
    snprintf(h, sizeof(h), "%s", base64url_text(header));
    snprintf(c, sizeof(c), "%s", base64url_text(GOOD_CLAIMS));
    unsigned char signature[128] = {0};
    expect_refused(join(h, c, base64url(signature, 64)), "signature does not fit"); /* r = s = 0 */
    size_t length = sizeof(signature);
    sign_with(ec, join(h, c, NULL), signature, &length);
    expect_refused(join(h, c, base64url(signature, length)), "signature does not fit"); /* DER */
    der_to_raw(signature, &length);
    expect_accepted(join(h, c, base64url(signature, length)));
    unsigned char bent[64];
    for (int half = 0; half < 2; half++) {
        memcpy(bent, signature, 64);
        memset(bent + 32 * half, 0, 32);
        expect_refused(join(h, c, base64url(bent, 64)), "signature does not fit");
        memcpy(bent + 32 * half, order, 32);
        expect_refused(join(h, c, base64url(bent, 64)), "signature does not fit");
        memset(bent + 32 * half, 0xff, 32);
        expect_refused(join(h, c, base64url(bent, 64)), "signature does not fit");
    }
    memset(bent, 0, sizeof(bent));
    bent[31] = bent[63] = 1;
    expect_refused(join(h, c, base64url(bent, 64)), "signature does not fit");
}

/* ---- claims ---- */

TEST(exp_must_be_there_and_a_sensible_number)
{
    static const char *const unusable[] = {
        "{\"sub\":\"alice\"}",
        "{\"sub\":\"alice\",\"exp\":\"1795176100\"}",
        "{\"sub\":\"alice\",\"exp\":-1}",
        "{\"sub\":\"alice\",\"exp\":-0}",
        "{\"sub\":\"alice\",\"exp\":1e18}",
        "{\"sub\":\"alice\",\"exp\":1000000000000000000}",
        "{\"sub\":\"alice\",\"exp\":99999999999999999999}",
        "{\"sub\":\"alice\",\"exp\":1e999}",
        "{\"sub\":\"alice\",\"exp\":1000000000001}",
        "{\"sub\":\"alice\",\"exp\":null}",
        "{\"sub\":\"alice\",\"exp\":true}",
        "{\"sub\":\"alice\",\"exp\":[1795176100]}",
        "{\"sub\":\"alice\",\"exp\":1795176100.00000000000000000000000000000000000000000000000000000000000000}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(unusable); i++)
        expect_refused(hs256(unusable[i]), "no usable exp");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":0}"), "expired");
    expect_accepted(hs256("{\"sub\":\"alice\",\"exp\":1000000000000}"));
    expect_accepted(hs256("{\"sub\":\"alice\",\"exp\":1795176100.5}"));
    expect_accepted(hs256("{\"sub\":\"alice\",\"exp\":1.7951761e9}"));
}

TEST(a_token_expires_thirty_seconds_after_exp_also_when_it_is_cached)
{
    const char *good = hs256("{\"sub\":\"alice\",\"exp\":1795176000}");
    clock_freeze((NOW_S + 30) * 1000000 - 1, 0);
    expect_accepted(good);
    expect_accepted(good);
    clock_freeze((NOW_S + 30) * 1000000, 0);
    expect_refused(good, "expired");
    reopen(); /* nothing cached */
    expect_refused(good, "expired");
    clock_freeze((NOW_S + 29) * 1000000, 0);
    expect_accepted(good);
}

TEST(a_token_starts_thirty_seconds_before_nbf_also_when_it_is_cached)
{
    const char *good = hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":1795176000}");
    clock_freeze((NOW_S - 30) * 1000000 - 1, 0);
    expect_refused(good, "not valid yet");
    clock_freeze((NOW_S - 30) * 1000000, 0);
    expect_accepted(good);
    clock_freeze((NOW_S - 31) * 1000000, 0); /* the clock was set back */
    expect_refused(good, "not valid yet");
    clock_freeze(NOW_S * 1000000, 0);
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":\"1795176000\"}"), "no usable nbf");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":-1}"), "no usable nbf");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":null}"), "no usable nbf");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":1e18}"), "no usable nbf");
}

TEST(a_user_is_printable_ascii)
{
    static const char *const subs[] = {
        "\"\"",         "null",        "7",  "[\"alice\"]", "\"a\\nb\"", "\"\\u0000\"", "\"a\\u007f\"",
        "\"\xc3\xa4\"", "\"\\u202e\"", "{}", "\".\"",       "\"..\"",    "\"\\u002e.\""};
    for (size_t i = 0; i < ARRAY_SIZE(subs); i++) {
        char claims[200];
        snprintf(claims, sizeof(claims), "{\"sub\":%s,\"exp\":1795176100}", subs[i]);
        ck_assert_msg(!check_token(hs256(claims)), "%s", subs[i]);
    }
    expect_refused(hs256("{\"exp\":1795176100}"), "no usable sub");
}

TEST(a_token_may_not_live_longer_than_configured)
{
    static const char far_away[] = "{\"sub\":\"alice\",\"exp\":999999999999}";
    expect_accepted(hs256(far_away));
    config.auth.max_lifetime_ms = 3600 * 1000;
    reopen();
    expect_refused(hs256(far_away), "for longer than is accepted");
    expect_accepted(hs256("{\"sub\":\"alice\",\"exp\":1795179630}")); /* an hour and the leeway */
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1795179631}"), "for longer than is accepted");
    const char *good = hs256("{\"sub\":\"alice\",\"exp\":1795179600}");
    expect_accepted(good);
    clock_freeze((NOW_S - 60) * 1000000, 0); /* the clock was set back: also for what is cached */
    expect_refused(good, "for longer than is accepted");
}

/* Without a kid each key of the algorithm costs a signature check. */
TEST(a_token_without_a_kid_is_refused_where_one_is_required)
{
    config.auth.require_kid = true;
    reopen();
    expect_refused(token(rsa, "{\"alg\":\"RS256\"}", GOOD_CLAIMS), "names no key");
    expect_refused(token(ed, "{\"alg\":\"EdDSA\"}", GOOD_CLAIMS), "names no key");
    expect_refused(hs256(GOOD_CLAIMS), "names no key");
    ck_assert_uint_eq(auth_signatures_checked(auth), 0);
    expect_accepted(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    expect_accepted(token(NULL, "{\"alg\":\"HS256\",\"kid\":\"any\"}", GOOD_CLAIMS));
}

/* Three P-256 keys and no kid: 168 us of the api for each bad token, as often as somebody likes. */
TEST(a_bad_token_that_comes_again_costs_no_signature_check)
{
    static char bad[4096];
    snprintf(bad, sizeof(bad), "%s", token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    char *last = &bad[strlen(bad) - 3];
    *last = *last == 'A' ? 'B' : 'A'; /* another letter of base64url: the token stays well-formed */
    for (int i = 0; i < 100; i++)
        expect_refused(bad, "signature does not fit");
    ck_assert_uint_eq(auth_signatures_checked(auth), 1);
    clock_freeze(NOW_S * 1000000, 999 * 1000);
    expect_refused(bad, "signature does not fit");
    ck_assert_uint_eq(auth_signatures_checked(auth), 1);
    clock_freeze(NOW_S * 1000000, 1000 * 1000);
    expect_refused(bad, "signature does not fit");
    ck_assert_uint_eq(auth_signatures_checked(auth), 2);
    expect_accepted(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
}

/* A refusal that time heals is never remembered, and none outlives the keys that it was made with. */
TEST(a_remembered_refusal_never_refuses_what_has_become_valid)
{
    static char early[4096], stranger[4096], nameless[4096];
    snprintf(early, sizeof(early), "%s", hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":1795176031}"));
    snprintf(stranger, sizeof(stranger), "%s", token(other_rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    snprintf(nameless, sizeof(nameless), "%s", token(rsa, "{\"alg\":\"RS256\",\"kid\":\"new\"}", GOOD_CLAIMS));
    expect_refused(early, "not valid yet");
    expect_refused(stranger, "signature does not fit");
    expect_refused(nameless, "key is unknown");
    clock_freeze((NOW_S + 1) * 1000000, 0); /* no millisecond of the other clock has passed */
    expect_accepted(early);
    text_of[0] = '\0';
    put_rsa(other_rsa, ",\"kid\":\"r\"");
    put_rsa(rsa, ",\"kid\":\"new\"");
    write_jwks();
    ck_assert(auth_reload(auth, &config, NULL));
    expect_accepted(stranger);
    expect_accepted(nameless);
}

TEST(issuer_and_audience_are_checked_where_they_are_configured)
{
    expect_accepted(hs256("{\"sub\":\"alice\",\"exp\":1795176100,\"iss\":\"anybody\",\"aud\":\"anything\"}"));
    config.auth.issuer = "us";
    config.auth.audience = "cards";
    reopen();
    static const char *const good[] = {"\"iss\":\"us\",\"aud\":\"cards\"", "\"iss\":\"us\",\"aud\":[\"x\",\"cards\"]",
                                       "\"iss\":\"\\u0075s\",\"aud\":[\"cards\"]"};
    static const struct {
        const char *claims, *because;
    } bad[] = {
        {"\"aud\":\"cards\"", "issuer"},
        {"\"iss\":\"US\",\"aud\":\"cards\"", "issuer"},
        {"\"iss\":\"us \",\"aud\":\"cards\"", "issuer"},
        {"\"iss\":[\"us\"],\"aud\":\"cards\"", "issuer"},
        {"\"iss\":\"us\"", "audience"},
        {"\"iss\":\"us\",\"aud\":\"card\"", "audience"},
        {"\"iss\":\"us\",\"aud\":[]", "audience"},
        {"\"iss\":\"us\",\"aud\":[\"x\",[\"cards\"]]", "audience"},
        {"\"iss\":\"us\",\"aud\":{\"cards\":\"cards\"}", "audience"},
        {"\"iss\":\"us\",\"aud\":null", "audience"},
    };
    char claims[200];
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        snprintf(claims, sizeof(claims), "{\"sub\":\"alice\",\"exp\":1795176100,%s}", good[i]);
        expect_accepted(hs256(claims));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        snprintf(claims, sizeof(claims), "{\"sub\":\"alice\",\"exp\":1795176100,%s}", bad[i].claims);
        expect_refused(hs256(claims), bad[i].because);
    }
}

TEST(the_cache_never_mixes_users_up)
{
    /* Many more tokens than slots, in two rounds: every slot is taken over and over. */
    static char tokens[6000][160];
    char claims[100], name[20];
    for (int i = 0; i < 6000; i++) {
        snprintf(claims, sizeof(claims), "{\"sub\":\"user-%d\",\"exp\":1795176100}", i);
        snprintf(tokens[i], sizeof(tokens[i]), "%s", hs256(claims));
    }
    for (int i = 0; i < 12000; i++) {
        ck_assert_msg(check_token(tokens[i % 6000]), "%s", why);
        snprintf(name, sizeof(name), "user-%d", i % 6000);
        ck_assert_str_eq(user, name);
    }
}

SUITE(auth_claims)
{
    TCase *tests = auth_case(suite);
    ADD_TESTS(tests);
}
