/* See auth_fixture.h. */
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

char folder[64], secret_path[96], jwks_path[96], user[AUTH_USER_SIZE];
struct config config;
struct auth *auth;
struct err open_err;
const char *why;

/* ---- making keys and tokens ---- */

EVP_PKEY *rsa, *other_rsa, *ec, *ed;
char text_of[400 * 1024];

const char *base64url(const unsigned char *bytes, size_t length)
{
    static char texts[8][20000];
    static int next;
    char *text = texts[next++ % 8];
    ck_assert_uint_lt(length, 14000);
    int count = EVP_EncodeBlock((unsigned char *)text, bytes, (int)length);
    while (count > 0 && text[count - 1] == '=')
        text[--count] = '\0';
    for (char *c = text; *c; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    return text;
}

const char *base64url_text(const char *text)
{
    return base64url((const unsigned char *)text, strlen(text));
}

void sign_with(EVP_PKEY *key, const char *text, unsigned char *signature, size_t *length)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const EVP_MD *digest = key == ed ? NULL : EVP_sha256();
    ck_assert_int_eq(EVP_DigestSignInit(context, NULL, digest, NULL, key), 1);
    ck_assert_int_eq(EVP_DigestSign(context, signature, length, (const unsigned char *)text, strlen(text)), 1);
    EVP_MD_CTX_free(context);
}

void der_to_raw(unsigned char *signature, size_t *length)
{
    const unsigned char *at = signature;
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &at, (long)*length);
    ck_assert_ptr_nonnull(pair);
    unsigned char raw[64];
    ck_assert_int_eq(BN_bn2binpad(ECDSA_SIG_get0_r(pair), raw, 32), 32);
    ck_assert_int_eq(BN_bn2binpad(ECDSA_SIG_get0_s(pair), raw + 32, 32), 32);
    ECDSA_SIG_free(pair);
    memcpy(signature, raw, sizeof(raw));
    *length = sizeof(raw);
}

const char *join(const char *header, const char *claims, const char *signature)
{
    static char texts[4][40000];
    static int next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof(texts[0]), signature ? "%s.%s.%s" : "%s.%s", header, claims, signature ? signature : "");
    return text;
}

/* header and claims as JSON; key NULL = HMAC with the secret. */
const char *token(EVP_PKEY *key, const char *header, const char *claims)
{
    const char *text = join(base64url_text(header), base64url_text(claims), NULL);
    unsigned char signature[1024];
    size_t length = sizeof(signature);
    if (key) {
        sign_with(key, text, signature, &length);
        if (key == ec)
            der_to_raw(signature, &length);
    } else {
        unsigned int mac_length = 0;
        HMAC(EVP_sha256(), SECRET_TEXT, (int)strlen(SECRET_TEXT), (const unsigned char *)text, strlen(text), signature,
             &mac_length);
        length = mac_length;
    }
    return join(base64url_text(header), base64url_text(claims), base64url(signature, length));
}

const char *hs256(const char *claims)
{
    return token(NULL, "{\"alg\":\"HS256\"}", claims);
}

const char *number_of(EVP_PKEY *key, const char *name)
{
    BIGNUM *number = NULL;
    unsigned char bytes[1024];
    ck_assert_int_eq(EVP_PKEY_get_bn_param(key, name, &number), 1);
    int length = BN_bn2bin(number, bytes);
    BN_free(number);
    return base64url(bytes, (size_t)length);
}

const char *coordinate_of(EVP_PKEY *key, const char *name)
{
    BIGNUM *number = NULL;
    unsigned char bytes[66];
    int size = (EVP_PKEY_get_bits(key) + 7) / 8;
    ck_assert_int_eq(EVP_PKEY_get_bn_param(key, name, &number), 1);
    ck_assert_int_eq(BN_bn2binpad(number, bytes, size), size);
    BN_free(number);
    return base64url(bytes, (size_t)size);
}

const char *ed_bytes(EVP_PKEY *key)
{
    unsigned char bytes[32];
    size_t length = sizeof(bytes);
    ck_assert_int_eq(EVP_PKEY_get_raw_public_key(key, bytes, &length), 1);
    return base64url(bytes, length);
}

/* Each adds one JWK with further members (",..." or ""). */
static void put(const char *text)
{
    ck_assert_uint_lt(strlen(text_of) + strlen(text) + 2, sizeof(text_of));
    strcat(text_of, text);
}

void put_jwk(const char *jwk)
{
    put(text_of[0] ? "," : "");
    put(jwk);
}

void put_rsa(EVP_PKEY *key, const char *more)
{
    char jwk[4096];
    snprintf(jwk, sizeof(jwk), "{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"%s\"%s}", number_of(key, OSSL_PKEY_PARAM_RSA_N),
             number_of(key, OSSL_PKEY_PARAM_RSA_E), more);
    put_jwk(jwk);
}

void put_ec(EVP_PKEY *key, const char *curve, const char *more)
{
    char jwk[1024];
    snprintf(jwk, sizeof(jwk), "{\"kty\":\"EC\",\"crv\":\"%s\",\"x\":\"%s\",\"y\":\"%s\"%s}", curve,
             coordinate_of(key, OSSL_PKEY_PARAM_EC_PUB_X), coordinate_of(key, OSSL_PKEY_PARAM_EC_PUB_Y), more);
    put_jwk(jwk);
}

void put_ed(const char *bytes, const char *more)
{
    char jwk[1024];
    snprintf(jwk, sizeof(jwk), "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"%s\"%s}", bytes, more);
    put_jwk(jwk);
}

void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

void write_jwks(void)
{
    static char whole[sizeof(text_of) + 32];
    snprintf(whole, sizeof(whole), "{\"keys\":[%s]}", text_of);
    write_file(jwks_path, whole);
    text_of[0] = '\0';
    config.auth.jwks_file = jwks_path;
}

void reopen(void)
{
    auth_close(auth);
    auth = NULL;
    ck_assert_msg(auth_open(&config, &auth, &open_err), "%s", open_err.message);
}

static void set_up(void)
{
    snprintf(folder, sizeof(folder), "test_auth.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(secret_path, sizeof(secret_path), "%s/secret", folder);
    snprintf(jwks_path, sizeof(jwks_path), "%s/jwks", folder);
    write_file(secret_path, SECRET_TEXT "\n");
    text_of[0] = '\0';
    put_rsa(rsa, ",\"kid\":\"r\",\"alg\":\"RS256\",\"use\":\"sig\"");
    put_ec(ec, "P-256", ",\"kid\":\"e\",\"key_ops\":[\"verify\"]");
    put_ed(ed_bytes(ed), ",\"kid\":\"d\",\"alg\":\"EdDSA\"");
    put_rsa(other_rsa, "");
    write_jwks();
    config = (struct config){.auth = {.hs256_secret_file = secret_path, .jwks_file = jwks_path}};
    clock_freeze(NOW_S * 1000000, 0);
    auth = NULL;
    reopen();
}

static void tear_down(void)
{
    auth_close(auth);
    auth = NULL;
    clock_release();
    unlink(secret_path);
    unlink(jwks_path);
    ck_assert_int_eq(rmdir(folder), 0);
}

bool check_value(const char *bytes, size_t length)
{
    strcpy(user, "untouched");
    why = "untouched";
    enum auth_refusal refusal = AUTH_REFUSAL_COUNT;
    bool fits = auth_check(auth, (struct slice){.bytes = bytes, .length = length}, user, &refusal);
    if (fits) {
        ck_assert_int_eq(refusal, AUTH_REFUSAL_COUNT);
    } else {
        ck_assert_str_eq(user, "untouched");
        ck_assert_int_lt(refusal, AUTH_REFUSAL_COUNT);
        why = auth_refusal_text(refusal);
    }
    return fits;
}

bool check_token(const char *text)
{
    static char value[60000];
    int length = snprintf(value, sizeof(value), "Bearer %s", text);
    return check_value(value, (size_t)length);
}

void expect_accepted(const char *text)
{
    ck_assert_msg(check_token(text), "refused: %s", why);
    ck_assert_str_eq(user, "alice");
}

void expect_refused(const char *text, const char *because)
{
    ck_assert_msg(!check_token(text), "accepted, though: %s", because);
    ck_assert_msg(strstr(why, because), "refused because %s, not because %s", why, because);
}

static void make_keys(void) /* once: it takes long */
{
    rsa = EVP_RSA_gen(2048);
    other_rsa = EVP_RSA_gen(2048);
    ec = EVP_EC_gen("P-256");
    ed = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
}

static void free_keys(void)
{
    EVP_PKEY_free(rsa);
    EVP_PKEY_free(other_rsa);
    EVP_PKEY_free(ec);
    EVP_PKEY_free(ed);
}

TCase *auth_case(Suite *suite)
{
    TCase *cases = tcase_create("auth");
    tcase_add_unchecked_fixture(cases, make_keys, free_keys);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    suite_add_tcase(suite, cases);
    return cases;
}
