/* The token is the only thing that says who a user is, and every known hole of JWT libraries is a way to be somebody
 * else: the token choosing its algorithm, a public key used as a secret, a key brought along, a signature that fits
 * everything. Keys are made at run time, tokens are signed here, bent in one place, and must be refused for it. */
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

/* ---- what is good ---- */

TEST(a_token_of_each_algorithm_is_accepted)
{
    expect_accepted(hs256(GOOD_CLAIMS));
    expect_accepted(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\",\"typ\":\"JWT\"}", GOOD_CLAIMS));
    expect_accepted(token(ec, "{\"alg\":\"ES256\",\"kid\":\"e\",\"typ\":\"at+jwt\"}", GOOD_CLAIMS));
    expect_accepted(token(ed, "{\"alg\":\"EdDSA\",\"kid\":\"d\",\"typ\":\"jwt\"}", GOOD_CLAIMS));
    expect_accepted(token(ed, "{\"alg\":\"Ed25519\",\"kid\":\"d\"}", GOOD_CLAIMS));
    expect_refused(token(ed, "{\"alg\":\"Ed448\",\"kid\":\"d\"}", GOOD_CLAIMS), "algorithm");
    expect_accepted(token(ed, "{\"alg\":\"EdDSA\",\"kid\":\"d\",\"typ\":\"application/AT+JWT\"}", GOOD_CLAIMS));
}

TEST(a_minted_token_is_accepted_and_carries_what_was_asked_for)
{
    struct secret key;
    struct buf out;
    buf_init(&out, 8192);
    ck_assert(secret_copy(&key, SECRET_TEXT, strlen(SECRET_TEXT), &open_err));
    ck_assert(token_mint_hs256(&key, "alice", NOW_S + 60, NULL, NULL, &out, &open_err));
    expect_accepted(out.bytes);
    config.auth.issuer = "https://id.example/\"quoted\"";
    config.auth.audience = "issuing";
    reopen();
    expect_refused(out.bytes, "another issuer");
    buf_reset(&out);
    ck_assert(token_mint_hs256(&key, "alice", NOW_S + 60, config.auth.issuer, "issuing", &out, &open_err));
    expect_accepted(out.bytes);
    buf_reset(&out);
    ck_assert(token_mint_hs256(&key, "alice", NOW_S - 60, config.auth.issuer, "issuing", &out, &open_err));
    expect_refused(out.bytes, "expired");
    key.length = 31;
    ck_assert(!token_mint_hs256(&key, "alice", NOW_S + 60, NULL, NULL, &out, &open_err));
    ck_assert_int_eq(open_err.kind, ERR_CONFIG);
    key.length = 32;
    struct buf small;
    buf_init(&small, 10);
    ck_assert(!token_mint_hs256(&key, "alice", NOW_S + 60, NULL, NULL, &small, &open_err));
    buf_done(&small);
    buf_done(&out);
    secret_done(&key);
}

TEST(users_of_every_length_keep_their_names)
{
    char name[AUTH_USER_SIZE + 1], claims[400];
    for (size_t length = 1; length <= 129; length++) {
        memset(name, 'u', sizeof(name));
        name[length] = '\0';
        snprintf(claims, sizeof(claims), "{\"sub\":\"%s\",\"exp\":1795176100}", name);
        bool fits = check_token(hs256(claims));
        ck_assert_msg(fits == (length <= 128), "%zu", length);
        if (fits)
            ck_assert_str_eq(user, name);
    }
    ck_assert(check_token(hs256("{\"sub\":\" a\\\"~\\u0041/..\",\"exp\":1795176100}")));
    ck_assert_str_eq(user, " a\"~A/..");
}

TEST(without_a_kid_all_keys_of_the_algorithm_are_tried)
{
    expect_accepted(token(rsa, "{\"alg\":\"RS256\"}", GOOD_CLAIMS));
    expect_accepted(token(other_rsa, "{\"alg\":\"RS256\"}", GOOD_CLAIMS));
    expect_accepted(token(ec, "{\"alg\":\"ES256\"}", GOOD_CLAIMS));
    expect_accepted(token(ed, "{\"alg\":\"EdDSA\"}", GOOD_CLAIMS));
}

TEST(a_kid_means_that_key_and_no_other)
{
    expect_refused(token(other_rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS), "signature does not fit");
    expect_refused(token(other_rsa, "{\"alg\":\"RS256\",\"kid\":\"x\"}", GOOD_CLAIMS), "key is unknown");
    expect_refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"R\"}", GOOD_CLAIMS), "key is unknown");
    expect_refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"\"}", GOOD_CLAIMS), "key is unknown");
    expect_refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":null}", GOOD_CLAIMS), "key is unknown");
    expect_refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":7}", GOOD_CLAIMS), "key is unknown");
    expect_accepted(token(NULL, "{\"alg\":\"HS256\",\"kid\":\"the secret's own\"}", GOOD_CLAIMS));
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"kid\":\"r\"}", GOOD_CLAIMS), "key is unknown");
}

TEST(a_kid_is_only_ever_compared)
{
    char header[12000], long_kid[5001];
    static const char *const kids[] = {"../../etc/passwd", "' OR 1=1 --", "/dev/null", "%s%n"};
    for (size_t i = 0; i < ARRAY_SIZE(kids); i++) {
        snprintf(header, sizeof(header), "{\"alg\":\"RS256\",\"kid\":\"%s\"}", kids[i]);
        expect_refused(token(rsa, header, GOOD_CLAIMS), "key is unknown");
    }
    memset(long_kid, 'k', sizeof(long_kid) - 1);
    long_kid[sizeof(long_kid) - 1] = '\0';
    snprintf(header, sizeof(header), "{\"alg\":\"RS256\",\"kid\":\"%s\"}", long_kid);
    expect_refused(token(rsa, header, GOOD_CLAIMS), "key is unknown");
    snprintf(header, sizeof(header), "{\"alg\":\"RS256\",\"kid\":\"%s%s\"}", long_kid, long_kid);
    expect_refused(token(rsa, header, GOOD_CLAIMS), "too long");
}

/* ---- the header ---- */

TEST(the_header_never_chooses_the_algorithm)
{
    static const char *const headers[] = {
        "{\"alg\":\"none\"}",  "{\"alg\":\"None\"}",
        "{\"alg\":\"nOnE\"}",  "{\"alg\":\"NONE\"}",
        "{\"alg\":\"hs256\"}", "{\"alg\":\"HS384\"}",
        "{\"alg\":\"HS512\"}", "{\"alg\":\"PS256\"}",
        "{\"alg\":\"\"}",      "{\"alg\":\"RS512\"}",
        "{\"alg\":null}",      "{\"alg\":[\"HS256\"]}",
        "{\"alg\":256}",       "{}",
        "{\"typ\":\"JWT\"}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
        expect_refused(token(NULL, headers[i], GOOD_CLAIMS), "algorithm is not accepted");
        expect_refused(join(base64url_text(headers[i]), base64url_text(GOOD_CLAIMS), ""), "algorithm is not accepted");
    }
    expect_refused(token(rsa, "{\"alg\":\"ES256\",\"kid\":\"r\"}", GOOD_CLAIMS), "key is unknown");
    expect_refused(token(ec, "{\"alg\":\"RS256\",\"kid\":\"e\"}", GOOD_CLAIMS), "key is unknown");
    expect_refused(token(ed, "{\"alg\":\"RS256\"}", GOOD_CLAIMS), "signature does not fit");
}

/* Signs as HS256 with any key. */
static const char *hmac_with(const void *key, size_t key_length, const char *header)
{
    const char *text = join(base64url_text(header), base64url_text(GOOD_CLAIMS), NULL);
    unsigned char mac[32];
    unsigned int length = 0;
    HMAC(EVP_sha256(), key, (int)key_length, (const unsigned char *)text, strlen(text), mac, &length);
    return join(base64url_text(header), base64url_text(GOOD_CLAIMS), base64url(mac, length));
}

TEST(a_public_key_is_no_secret)
{
    unsigned char *der = NULL;
    int length = i2d_PUBKEY(rsa, &der);
    char pem[2048] = "-----BEGIN PUBLIC KEY-----\n";
    ck_assert_int_gt(length, 0);
    size_t at = strlen(pem);
    for (int i = 0; i < length; i += 48) {
        at += (size_t)EVP_EncodeBlock((unsigned char *)pem + at, der + i, length - i < 48 ? length - i : 48);
        pem[at++] = '\n';
    }
    strcpy(pem + at, "-----END PUBLIC KEY-----\n");
    static const char *const headers[] = {"{\"alg\":\"HS256\"}", "{\"alg\":\"HS256\",\"kid\":\"r\"}"};
    for (int with_secret = 1; with_secret >= 0; with_secret--) {
        for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
            const char *modulus = number_of(rsa, OSSL_PKEY_PARAM_RSA_N);
            ck_assert(!check_token(hmac_with(der, (size_t)length, headers[i])));
            ck_assert(!check_token(hmac_with(pem, strlen(pem), headers[i])));
            ck_assert(!check_token(hmac_with(pem, strlen(pem) - 1, headers[i])));
            ck_assert(!check_token(hmac_with(modulus, strlen(modulus), headers[i])));
            ck_assert(!check_token(hmac_with("", 0, headers[i])));
        }
        config.auth.hs256_secret_file = NULL;
        reopen();
    }
    expect_refused(hs256(GOOD_CLAIMS), "key is unknown");
    OPENSSL_free(der);
}

TEST(a_token_cannot_bring_its_own_key)
{
    EVP_PKEY *mine = EVP_RSA_gen(2048);
    char header[4096];
    snprintf(header, sizeof(header), "{\"alg\":\"RS256\",\"jwk\":{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"AQAB\"}}",
             number_of(mine, OSSL_PKEY_PARAM_RSA_N));
    expect_refused(token(mine, header, GOOD_CLAIMS), "signature does not fit");
    expect_refused(token(mine, "{\"alg\":\"RS256\",\"jku\":\"http://127.0.0.1/jwks\"}", GOOD_CLAIMS),
                   "signature does not fit");
    expect_refused(token(mine, "{\"alg\":\"RS256\",\"x5u\":\"http://127.0.0.1/x\",\"x5c\":[\"MII\"]}", GOOD_CLAIMS),
                   "signature does not fit");
    expect_accepted(token(rsa, header, GOOD_CLAIMS)); /* ours; the member is not looked at */
    EVP_PKEY_free(mine);
}

TEST(headers_that_ask_for_more_are_refused)
{
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"crit\":[\"b64\"],\"b64\":false}", GOOD_CLAIMS), "critical");
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"crit\":[\"x\"]}", GOOD_CLAIMS), "critical");
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"crit\":[]}", GOOD_CLAIMS), "critical");
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"crit\":null}", GOOD_CLAIMS), "critical");
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"typ\":\"JWE\"}", GOOD_CLAIMS), "another type");
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"typ\":\"secevent+jwt\"}", GOOD_CLAIMS), "another type");
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"typ\":1}", GOOD_CLAIMS), "another type");
}

TEST(members_may_not_be_there_twice)
{
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"alg\":\"HS256\"}", GOOD_CLAIMS), "malformed");
    expect_refused(token(NULL, "{\"alg\":\"none\",\"\\u0061lg\":\"HS256\"}", GOOD_CLAIMS), "malformed");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1795176100,\"sub\":\"bob\"}"), "malformed");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1795176100,\"jti\":1,\"jti\":2}"), "malformed");
}

/* Story: the provider cut a name in the middle of a character, and that user was refused for ever. */
TEST(what_nobody_reads_in_a_token_makes_it_no_worse)
{
    static const char *const others[] = {
        "\"name\":\"Ana \\ud83d\"",        "\"note\":\"a\\u0000b\"",
        "\"id\":18446744073709551616",     "\"n\":[1e400,123456789012345678901234567890]",
        "\"x\":{\"a\":1,\"a\":2},\"x\":1", "\"t\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]",
    };
    char claims[200];
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        snprintf(claims, sizeof(claims), "{%s,\"sub\":\"alice\",\"exp\":1795176100}", others[i]);
        ck_assert_msg(check_token(hs256(claims)), "%s", claims);
    }
    expect_refused(hs256("{\"sub\":\"ali\\ud83d\",\"exp\":1795176100}"), "sub");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1e400}"), "exp");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1795176100,\"name\":\"Ana \xff\"}"), "malformed");
}

/* Story: a proxy that chooses by `sub` found none in a token that was accepted here, and sent that user elsewhere. */
TEST(the_names_of_registered_claims_are_spelled_without_escapes)
{
    static const char *const claims[] = {
        "{\"\\u0073ub\":\"alice\",\"exp\":1795176100}",
        "{\"su\\u0062\":\"alice\",\"exp\":1795176100}",
        "{\"sub\":\"alice\",\"\\u0065xp\":1795176100}",
        "{\"sub\":\"alice\",\"exp\":1795176100,\"\\u006ebf\":1}",
        "{\"sub\":\"alice\",\"exp\":1795176100,\"\\u0061ud\":\"x\"}",
        "{\"sub\":\"alice\",\"exp\":1795176100,\"i\\u0073s\":\"x\"}",
        "{\"sub\":\"alice\",\"exp\":1795176100,\"\\u0069at\":1}",
        "{\"sub\":\"alice\",\"exp\":1795176100,\"jt\\u0069\":\"x\"}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(claims); i++)
        expect_refused(hs256(claims[i]), "malformed");
    expect_refused(token(NULL, "{\"\\u0061lg\":\"HS256\"}", GOOD_CLAIMS), "malformed");
    expect_refused(token(NULL, "{\"alg\":\"HS256\",\"\\u0063rit\":[]}", GOOD_CLAIMS), "malformed");
    /* Others' names, values, and what is not a name of the token itself. */
    ck_assert(check_token(hs256("{\"sub\":\"alice\",\"exp\":1795176100,\"https:\\/\\/id.example\\/role\":\"x\"}")));
    ck_assert(check_token(hs256("{\"sub\":\"al\\u0069ce\",\"exp\":1795176100,\"x\":{\"\\u0073ub\":1}}")));
    ck_assert(check_token(hs256("{\"sub\":\"alice\",\"exp\":1795176100,\"\\u0053ub\":\"S\",\"s\\u0075\":1}")));
}

/* ---- the form ---- */

TEST(only_bearer_and_a_token_is_read)
{
    char value[2048];
    const char *good = hs256(GOOD_CLAIMS);
    static const char *const fine[] = {"Bearer %s", "bearer %s", "BEARER %s", "Bearer    %s"};
    static const char *const wrong[] = {"%s",       "Bearer%s",    "Bearer\t%s",      " Bearer %s",
                                        "Basic %s", "Bearer %s ",  "Bearer %s,x",     "Bearer \"%s\"",
                                        "Token %s", "Bearer %s\n", "Bearer Bearer %s"};
    for (size_t i = 0; i < ARRAY_SIZE(fine); i++) {
        snprintf(value, sizeof(value), fine[i], good);
        ck_assert_msg(check_value(value, strlen(value)), "%s", fine[i]);
        ck_assert_str_eq(user, "alice");
    }
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        snprintf(value, sizeof(value), wrong[i], good);
        ck_assert_msg(!check_value(value, strlen(value)), "%s", wrong[i]);
    }
    ck_assert(!check_value(NULL, 0));
    ck_assert_str_eq(why, "no token was sent");
    ck_assert(!check_value("", 0));
    ck_assert(!check_value("Bearer", 6));
    ck_assert(!check_value("Bearer ", 7));
}

TEST(a_token_has_three_parts_of_strict_base64url)
{
    const char *header = base64url_text("{\"alg\":\"HS256\"}");
    const char *good = hs256(GOOD_CLAIMS);
    char bent[2048];
    static const char *const forms[] = {"", ".", "..", "...", "....", "a.b", "a.b.c.d.e", "\xff.\xff.\xff"};
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
        expect_refused(forms[i], "malformed");
    /* One byte more or other anywhere: padding, white space, the other alphabet. */
    size_t length = strlen(good);
    static const char *const extra[] = {"=", " ", "\n", "\t", ".", "+", "/", "%", "\x80"};
    for (size_t at = 0; at <= length; at++) {
        for (size_t i = 0; i < ARRAY_SIZE(extra); i++) {
            if (at == 0 && extra[i][0] == ' ')
                continue; /* between the scheme and the token */
            snprintf(bent, sizeof(bent), "%.*s%s%s", (int)at, good, extra[i], good + at);
            ck_assert_msg(!check_token(bent), "'%s' at %zu", extra[i], at);
        }
    }
    ck_assert(header[0] == 'e');
    expect_refused(join(base64url_text("[]"), base64url_text(GOOD_CLAIMS), "AAAA"), "malformed");
    expect_refused(join(base64url_text("{\"alg\":\"HS256\"} x"), base64url_text(GOOD_CLAIMS), "AAAA"), "malformed");
    const char *with_nul = base64url((const unsigned char *)"{\"alg\":\"HS256\"}\0", 16);
    expect_refused(join(with_nul, base64url_text(GOOD_CLAIMS), "AAAA"), "malformed");
    expect_refused(hs256("[\"alice\"]"), "malformed");
    expect_refused(hs256("\"alice\""), "malformed");
    expect_refused(hs256(""), "malformed");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":1795176100}{}"), "malformed");
    expect_refused(hs256("{\"sub\":\"alice\",\"exp\":NaN}"), "malformed");
}

TEST(a_second_spelling_of_the_same_signature_is_refused)
{
    /* 32 bytes leave two bits over; 3 of 4 last characters would decode to the same bytes. */
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    char bent[2048];
    int accepted = 0;
    snprintf(bent, sizeof(bent), "%s", hs256(GOOD_CLAIMS));
    for (size_t i = 0; i < 64; i++) {
        bent[strlen(bent) - 1] = digits[i];
        accepted += check_token(bent);
    }
    ck_assert_int_eq(accepted, 1);
}

TEST(base64url_follows_the_letter)
{
    static const struct {
        const char *text;
        const char *bytes; /* NULL = refused */
    } rows[] = {
        {"", ""},
        {"Zg", "f"},
        {"Zm8", "fo"},
        {"Zm9v", "foo"},
        {"Zm9vYg", "foob"},
        {"Zm9vYmE", "fooba"},
        {"Zm9vYmFy", "foobar"},
        {"Zh", NULL},
        {"Zm9", NULL},
        {"Z", NULL},
        {"Zm9vY", NULL},
        {"Zg==", NULL},
        {"Zm 8", NULL},
        {"Zm+8", NULL},
        {"Zm/8", NULL},
        {"Zm9vYmFyZm9vYmFyZm9v", NULL}, /* longer than the room */
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        unsigned char out[9];
        size_t length = 77;
        struct slice given = {.bytes = rows[i].text, .length = strlen(rows[i].text)};
        bool fits = auth_base64url(given, out, sizeof(out), &length);
        ck_assert_msg(fits == (rows[i].bytes != NULL), "%s", rows[i].text);
        if (!rows[i].bytes)
            continue;
        ck_assert_uint_eq(length, strlen(rows[i].bytes));
        ck_assert_mem_eq(out, rows[i].bytes, length);
    }
    unsigned char all[256], decoded[256];
    size_t length = 0;
    for (int i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    const char *text = base64url(all, sizeof(all));
    ck_assert(auth_base64url((struct slice){.bytes = text, .length = strlen(text)}, decoded, sizeof(decoded), &length));
    ck_assert_mem_eq(decoded, all, sizeof(all));
}

TEST(a_token_of_more_than_eight_kib_is_not_looked_at)
{
    static char claims[7000];
    for (int padding = 6080; padding <= 6120; padding += 40) {
        int length = snprintf(claims, sizeof(claims), "{\"sub\":\"alice\",\"exp\":1795176100,\"x\":\"");
        memset(claims + length, 'x', (size_t)(padding - length - 2));
        strcpy(claims + padding - 2, "\"}");
        const char *text = hs256(claims);
        if (strlen(text) <= AUTH_TOKEN_MAX)
            expect_accepted(text);
        else
            expect_refused(text, "too long");
        ck_assert_int_eq(strlen(text) <= AUTH_TOKEN_MAX, padding == 6080);
    }
}

SUITE(auth)
{
    TCase *tests = auth_case(suite);
    ADD_TESTS(tests);
}
