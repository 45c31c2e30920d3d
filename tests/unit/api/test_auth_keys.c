/* The story: whoever can choose a key can be every user. A key file that is weak, wrong, or open to others stops the
 * start; a reload that fails leaves the old keys in force. */
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

/* ---- key files ---- */

static void refuse_jwks(const char *says)
{
    struct auth *opened = NULL;
    write_jwks();
    ck_assert_msg(!auth_open(&config, &opened, &open_err), "taken, though: %s", says);
    ck_assert_ptr_null(opened);
    ck_assert_int_eq(open_err.kind, ERR_CONFIG);
    ck_assert_msg(strstr(open_err.message, says), "%s, not %s", open_err.message, says);
    ck_assert_msg(strstr(open_err.message, jwks_path), "%s", open_err.message);
}

TEST(weak_and_wrong_keys_stop_the_start)
{
    EVP_PKEY *weak = EVP_RSA_gen(1024);
    char jwk[2048];
    const char *n = number_of(rsa, OSSL_PKEY_PARAM_RSA_N);
    put_rsa(weak, "");
    refuse_jwks("2048");
    put_jwk("{\"kty\":\"RSA\",\"n\":\"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxu"
            "hDR1L6tSoQ\",\"e\":\"AQAB\"}"); /* 512 bits */
    refuse_jwks("2048");
    static const char *const exponents[] = {"AQ", "Ag", "AAAB", "AQAA", "AAAAAAAAAAAB", "", "AQAB="};
    for (size_t i = 0; i < ARRAY_SIZE(exponents); i++) {
        snprintf(jwk, sizeof(jwk), "{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"%s\"}", n, exponents[i]);
        put_jwk(jwk);
        refuse_jwks("keys[0]");
    }
    put_jwk("{\"kty\":\"RSA\",\"e\":\"AQAB\"}");
    refuse_jwks("n or e is missing");
    put_rsa(rsa, ",\"alg\":\"ES256\"");
    refuse_jwks("alg and kty disagree");
    put_rsa(rsa, ",\"alg\":\"HS256\"");
    refuse_jwks("alg and kty disagree");
    put_rsa(rsa, ",\"alg\":\"none\"");
    refuse_jwks("alg and kty disagree");
    put_ec(ec, "P-256", ",\"alg\":\"RS256\"");
    refuse_jwks("alg and kty disagree");
    put_ec(ec, "P-384", ",\"alg\":\"ES256\"");
    refuse_jwks("alg and crv disagree");
    put_jwk("{\"kty\":\"EC\",\"x\":\"AAAA\",\"y\":\"AAAA\"}");
    refuse_jwks("crv is missing");
    put_jwk("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AAAA\",\"y\":\"AAAA\"}");
    refuse_jwks("32 bytes");
    snprintf(jwk, sizeof(jwk), "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"}",
             coordinate_of(ec, OSSL_PKEY_PARAM_EC_PUB_X), coordinate_of(ec, OSSL_PKEY_PARAM_EC_PUB_X));
    put_jwk(jwk);
    refuse_jwks("not on P-256");
    put_jwk("{\"kty\":\"oct\",\"k\":\"AAECAwQFBgcICQoLDA0ODwABAgMEBQYHCAkKCwwNDg8\",\"alg\":\"HS256\"}");
    refuse_jwks("symmetric");
    put_jwk("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AAAA\"}");
    refuse_jwks("32 bytes");
    put_rsa(rsa, ",\"kid\":\"same\"");
    put_ed(ed_bytes(ed), ",\"kid\":\"same\"");
    refuse_jwks("keys[1]: its kid");
    put_rsa(rsa, ",\"kid\":7");
    refuse_jwks("kid");
    EVP_PKEY_free(weak);
}

TEST(an_ed25519_key_of_small_order_stops_the_start)
{
    /* Orders 4, 1, 8, 8, 2, and spellings of 0 and 1 that are not canonical; each with both signs. */
    static const char *const keys[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    };
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        unsigned char bytes[32];
        for (size_t at = 0; at < sizeof(bytes); at++)
            ck_assert_int_eq(sscanf(keys[i] + 2 * at, "%2hhx", &bytes[at]), 1);
        for (int sign = 0; sign < 2; sign++) {
            put_ed(base64url(bytes, sizeof(bytes)), "");
            refuse_jwks("small order");
            bytes[31] |= 0x80;
        }
    }
}

TEST(a_file_that_is_no_key_set_stops_the_start)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "byte 0"},
        {"x", "byte 0"},
        {"[]", "no JWK set"},
        {"{}", "no JWK set"},
        {"{\"keys\":{}}", "no JWK set"},
        {"{\"keys\":[]}", "no key for"},
        {"{\"keys\":[7]}", "keys[0]: no object"},
        {"{\"keys\":[{}]}", "kty is missing"},
        {"{\"keys\":[],\"keys\":[]}", "no JWK set"},
        {"{\"keys\":[{\"kty\":\"XYZ\"}]}", "no key for"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct auth *opened = NULL;
        write_file(jwks_path, rows[i].text);
        ck_assert(!auth_open(&config, &opened, &open_err));
        ck_assert_int_eq(open_err.kind, ERR_CONFIG);
        ck_assert_msg(strcasestr(open_err.message, rows[i].says), "%s, not %s", open_err.message, rows[i].says);
    }
    unlink(jwks_path);
    struct auth *opened = NULL;
    ck_assert(!auth_open(&config, &opened, &open_err));
    ck_assert_int_eq(open_err.kind, ERR_CONFIG);
    config.auth.jwks_file = folder;
    ck_assert(!auth_open(&config, &opened, &open_err));
    ck_assert_int_eq(open_err.kind, ERR_CONFIG);
    write_file(jwks_path, "");
}

TEST(a_key_set_has_limits)
{
    char more[300];
    for (int i = 0; i < 32; i++) {
        snprintf(more, sizeof(more), ",\"kid\":\"%d\"", i);
        put_ed(ed_bytes(ed), more);
    }
    write_jwks();
    reopen();
    expect_accepted(token(ed, "{\"alg\":\"EdDSA\",\"kid\":\"31\"}", GOOD_CLAIMS));
    for (int i = 0; i < 33; i++) {
        snprintf(more, sizeof(more), ",\"kid\":\"%d\"", i);
        put_ed(ed_bytes(ed), more);
    }
    refuse_jwks("more than 32 keys");
    snprintf(more, sizeof(more), ",\"kid\":\"%0257d\"", 0);
    put_ed(ed_bytes(ed), more);
    refuse_jwks("kid");
    put_ed(ed_bytes(ed), "");
    memset(text_of + strlen(text_of), ' ', 300 * 1024);
    refuse_jwks("more than 262144 bytes");
    memset(text_of, 0, sizeof(text_of));
}

TEST(keys_that_are_not_for_us_are_passed_over)
{
    put_rsa(rsa, ",\"kid\":\"r\",\"use\":\"enc\"");
    put_rsa(rsa, ",\"kid\":\"r512\",\"alg\":\"RS512\"");
    put_ec(ec, "P-256", ",\"kid\":\"e\",\"key_ops\":[\"deriveKey\"]");
    put_jwk("{\"kty\":\"AKP\",\"kid\":\"x\"}");
    put_jwk("{\"kty\":\"OKP\",\"crv\":\"X25519\",\"use\":\"enc\",\"x\":\"AAAA\"}");
    put_ed(ed_bytes(ed), ",\"kid\":\"d\",\"alg\":\"Ed25519\",\"x5c\":[\"MII\"],\"unknown\":{\"a\":[1]}");
    write_jwks();
    reopen();
    expect_refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS), "key is unknown");
    expect_refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r512\"}", GOOD_CLAIMS), "key is unknown");
    expect_refused(token(ec, "{\"alg\":\"ES256\",\"kid\":\"e\"}", GOOD_CLAIMS), "key is unknown");
    expect_accepted(token(ed, "{\"alg\":\"EdDSA\",\"kid\":\"d\"}", GOOD_CLAIMS));
}

/* A real key, as a key set would name it. */
static void put_curve(const char *type, const char *curve, const char *more)
{
    EVP_PKEY *key = strcmp(type, "EC") == 0 ? EVP_EC_gen(curve) : EVP_PKEY_Q_keygen(NULL, NULL, curve);
    ck_assert_ptr_nonnull(key);
    if (strcmp(type, "EC") == 0) {
        put_ec(key, curve, more);
    } else {
        char jwk[1024];
        unsigned char bytes[64];
        size_t length = sizeof(bytes);
        ck_assert_int_eq(EVP_PKEY_get_raw_public_key(key, bytes, &length), 1);
        snprintf(jwk, sizeof(jwk), "{\"kty\":\"OKP\",\"crv\":\"%s\",\"x\":\"%s\"%s}", curve, base64url(bytes, length),
                 more);
        put_jwk(jwk);
    }
    EVP_PKEY_free(key);
}

/* An identity provider adds a key of another kind, and the next start of the api ends with 78. */
TEST(keys_of_other_curves_and_algorithms_are_passed_over)
{
    struct auth *opened = NULL;
    for (int with_ours = 0; with_ours < 2; with_ours++) {
        put_curve("EC", "P-384", ",\"alg\":\"ES384\",\"kid\":\"a\"");
        put_curve("EC", "P-384", "");
        put_curve("EC", "P-521", ",\"alg\":\"ES512\",\"use\":\"sig\"");
        put_curve("EC", "secp256k1", ",\"alg\":\"ES256K\"");
        put_curve("EC", "P-256", ",\"alg\":\"ECDH-ES+A128KW\"");
        put_curve("OKP", "X25519", ",\"alg\":\"ECDH-ES\"");
        put_curve("OKP", "X25519", "");
        put_curve("OKP", "X448", ",\"use\":\"enc\"");
        put_curve("OKP", "Ed448", "");
        put_jwk("{\"kty\":\"OKP\",\"crv\":\"Ed448\",\"alg\":\"EdDSA\",\"x\":\"AAAA\"}");
        put_rsa(rsa, ",\"alg\":\"PS256\"");
        put_rsa(rsa, ",\"alg\":\"RSA-OAEP\"");
        put_rsa(rsa, ",\"alg\":\"XY-1\"");
        put_jwk("{\"kty\":\"AKP\",\"alg\":\"ML-DSA-44\",\"pub\":\"AAAA\"}");
        if (with_ours)
            put_curve("EC", "P-256", ",\"kid\":\"ours\"");
        write_jwks();
        bool done = auth_open(&config, &opened, &open_err);
        ck_assert_msg(done == with_ours, "%s", open_err.message);
        if (!done)
            ck_assert_msg(strstr(open_err.message, "14 others were ignored"), "%s", open_err.message);
    }
    ck_assert_uint_eq(auth_unused_keys(opened), 14);
    auth_close(opened);
}

/* Whoever may write the key set can act as every user. */
TEST(a_key_set_that_others_may_write_stops_the_start)
{
    static const mode_t bad[] = {0620, 0602, 0664, 0646, 0666};
    struct auth *opened = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_assert_int_eq(chmod(jwks_path, bad[i]), 0);
        ck_assert(!auth_open(&config, &opened, &open_err));
        ck_assert_int_eq(open_err.kind, ERR_CONFIG);
        ck_assert_msg(strstr(open_err.message, "lets others than its owner write it"), "%s", open_err.message);
        ck_assert_msg(strstr(open_err.message, jwks_path), "%s", open_err.message);
    }
    ck_assert_int_eq(chmod(jwks_path, 0644), 0); /* the keys are public */
    reopen();
    static char link_path[120];
    snprintf(link_path, sizeof(link_path), "%s/link", folder);
    ck_assert_int_eq(symlink("jwks", link_path), 0);
    config.auth.jwks_file = link_path;
    reopen();
    ck_assert_int_eq(chmod(jwks_path, 0666), 0); /* of the file itself, not of the link */
    ck_assert(!auth_open(&config, &opened, &open_err));
    ck_assert_int_eq(unlink(link_path), 0);
}

/* 32 zeros of a command that failed, blanks of an empty field, a word that a template holds: everybody's secret. */
TEST(a_secret_without_entropy_stops_the_start)
{
    static const char zeros[64];
    static const struct {
        const char *bytes;
        size_t length;
    } rows[] = {
        {zeros, 32},
        {zeros, 64},
        {"                                ", 32},
        {"00000000000000000000000000000000", 32},
        {"changemechangemechangemechangeme", 32}, /* 7 different letters */
    };
    struct auth *opened = NULL;
    config.auth.jwks_file = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        FILE *file = fopen(secret_path, "w");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(rows[i].bytes, 1, rows[i].length, file), rows[i].length);
        ck_assert_int_eq(fclose(file), 0);
        ck_assert_msg(!auth_open(&config, &opened, &open_err), "row %zu", i);
        ck_assert_int_eq(open_err.kind, ERR_CONFIG);
        ck_assert_msg(strstr(open_err.message, "fewer than 8 different bytes"), "%s", open_err.message);
        ck_assert_ptr_null(strstr(open_err.message, "change"));
    }
    write_file(secret_path, "abcdefghabcdefghabcdefghabcdefgh"); /* 8 */
    reopen();
}

TEST(a_secret_that_is_short_or_open_to_all_stops_the_start)
{
    struct auth *opened = NULL;
    config.auth.jwks_file = NULL;
    write_file(secret_path, "0123456789abcdef0123456789abcde\n");
    ck_assert(!auth_open(&config, &opened, &open_err));
    ck_assert_int_eq(open_err.kind, ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(open_err.message, "32 bytes"));
    ck_assert_ptr_null(strstr(open_err.message, "abcde"));
    write_file(secret_path, SECRET_TEXT);
    ck_assert_int_eq(chmod(secret_path, 0604), 0);
    ck_assert(!auth_open(&config, &opened, &open_err));
    ck_assert_int_eq(open_err.kind, ERR_CONFIG);
    config.auth.hs256_secret_file = NULL;
    ck_assert(!auth_open(&config, &opened, &open_err));
    ck_assert_ptr_nonnull(strstr(open_err.message, "auth.jwks_file"));
    ck_assert_ptr_null(opened);
}

/* ---- reading the files again ---- */

static char logged[600];

static void on_error(const char *message)
{
    strncat(logged, message, sizeof(logged) - strlen(logged) - 1);
}

TEST(after_a_reload_the_new_keys_count_and_the_old_ones_do_not)
{
    static char old[4096];
    snprintf(old, sizeof(old), "%s", hs256(GOOD_CLAIMS));
    expect_accepted(old); /* and remembered */
    expect_accepted(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    write_file(secret_path, "another secret of more than thirty-two bytes");
    text_of[0] = '\0';
    put_rsa(other_rsa, ",\"kid\":\"r\"");
    write_jwks();
    ck_assert(auth_reload(auth, &config, on_error));
    ck_assert_str_eq(logged, "");
    expect_refused(old, "signature");
    expect_refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS), "signature");
    write_file(secret_path, SECRET_TEXT "\n");
    ck_assert(auth_reload(auth, &config, on_error));
    expect_accepted(old);
}

TEST(a_file_that_cannot_be_used_leaves_the_old_keys_in_force)
{
    static char good[4096];
    snprintf(good, sizeof(good), "%s", hs256(GOOD_CLAIMS));
    write_file(secret_path, "short");
    write_file(jwks_path, "{\"keys\":[");
    logged[0] = '\0';
    ck_assert(!auth_reload(auth, &config, on_error));
    ck_assert_ptr_nonnull(strstr(logged, "auth.hs256_secret_file"));
    ck_assert_ptr_nonnull(strstr(logged, "auth.jwks_file"));
    expect_accepted(good);
    expect_accepted(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    unlink(secret_path);
    unlink(jwks_path);
    ck_assert(!auth_reload(auth, &config, on_error));
    expect_accepted(good);
    expect_accepted(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    write_file(secret_path, SECRET_TEXT "\n"); /* for the end of the test */
    write_file(jwks_path, "");
}

SUITE(auth_keys)
{
    TCase *tests = auth_case(suite);
    ADD_TESTS(tests);
}
