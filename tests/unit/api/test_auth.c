/* The token is the only thing that says who a user is, and every known hole of JWT libraries is a way to be somebody
 * else: the token choosing its algorithm, a public key used as a secret, a key brought along, a signature that fits
 * everything. Keys are made at run time, tokens are signed here, bent in one place, and must be refused for it. */
#include <check.h>
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

#include "api/auth.h"
#include "api/auth_key.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/token.h"

#define NOW_S 1795176000LL
#define SECRET_TEXT "0123456789abcdef0123456789abcdef"
#define GOOD_CLAIMS "{\"sub\":\"alice\",\"exp\":1795176100}"

static char folder[64], secret_path[96], jwks_path[96];
static struct config config;
static struct auth *auth;
static struct err err;
static const char *why;
static char user[AUTH_USER_SIZE];

/* ---- making keys and tokens ---- */

static EVP_PKEY *rsa, *other_rsa, *ec, *ed;
static char text_of[400 * 1024]; /* the JWKS being built */

static const char *base64url(const unsigned char *bytes, size_t length)
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

static const char *base64url_text(const char *text)
{
    return base64url((const unsigned char *)text, strlen(text));
}

static void sign_with(EVP_PKEY *key, const char *text, unsigned char *signature, size_t *length)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const EVP_MD *digest = key == ed ? NULL : EVP_sha256();
    ck_assert_int_eq(EVP_DigestSignInit(context, NULL, digest, NULL, key), 1);
    ck_assert_int_eq(EVP_DigestSign(context, signature, length, (const unsigned char *)text, strlen(text)), 1);
    EVP_MD_CTX_free(context);
}

static void der_to_raw(unsigned char *signature, size_t *length)
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

static const char *join(const char *header, const char *claims, const char *signature)
{
    static char texts[4][40000];
    static int next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof(texts[0]), signature ? "%s.%s.%s" : "%s.%s", header, claims, signature ? signature : "");
    return text;
}

/* header and claims as JSON; key NULL = HMAC with the secret. */
static const char *token(EVP_PKEY *key, const char *header, const char *claims)
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

static const char *hs256(const char *claims)
{
    return token(NULL, "{\"alg\":\"HS256\"}", claims);
}

static const char *number_of(EVP_PKEY *key, const char *name)
{
    BIGNUM *number = NULL;
    unsigned char bytes[1024];
    ck_assert_int_eq(EVP_PKEY_get_bn_param(key, name, &number), 1);
    int length = BN_bn2bin(number, bytes);
    BN_free(number);
    return base64url(bytes, (size_t)length);
}

static const char *coordinate_of(EVP_PKEY *key, const char *name)
{
    BIGNUM *number = NULL;
    unsigned char bytes[66];
    int size = (EVP_PKEY_get_bits(key) + 7) / 8;
    ck_assert_int_eq(EVP_PKEY_get_bn_param(key, name, &number), 1);
    ck_assert_int_eq(BN_bn2binpad(number, bytes, size), size);
    BN_free(number);
    return base64url(bytes, (size_t)size);
}

static const char *ed_bytes(EVP_PKEY *key)
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

static void put_jwk(const char *jwk)
{
    put(text_of[0] ? "," : "");
    put(jwk);
}

static void put_rsa(EVP_PKEY *key, const char *more)
{
    char jwk[4096];
    snprintf(jwk, sizeof(jwk), "{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"%s\"%s}", number_of(key, OSSL_PKEY_PARAM_RSA_N),
             number_of(key, OSSL_PKEY_PARAM_RSA_E), more);
    put_jwk(jwk);
}

static void put_ec(EVP_PKEY *key, const char *curve, const char *more)
{
    char jwk[1024];
    snprintf(jwk, sizeof(jwk), "{\"kty\":\"EC\",\"crv\":\"%s\",\"x\":\"%s\",\"y\":\"%s\"%s}", curve,
             coordinate_of(key, OSSL_PKEY_PARAM_EC_PUB_X), coordinate_of(key, OSSL_PKEY_PARAM_EC_PUB_Y), more);
    put_jwk(jwk);
}

static void put_ed(const char *bytes, const char *more)
{
    char jwk[1024];
    snprintf(jwk, sizeof(jwk), "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"%s\"%s}", bytes, more);
    put_jwk(jwk);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

static void write_jwks(void)
{
    static char whole[sizeof(text_of) + 32];
    snprintf(whole, sizeof(whole), "{\"keys\":[%s]}", text_of);
    write_file(jwks_path, whole);
    text_of[0] = '\0';
    config.auth.jwks_file = jwks_path;
}

static void reopen(void)
{
    auth_close(auth);
    auth = NULL;
    ck_assert_msg(auth_open(&config, &auth, &err), "%s", err.message);
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

static bool check_value(const char *bytes, size_t length)
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

static bool check_token(const char *text)
{
    static char value[60000];
    int length = snprintf(value, sizeof(value), "Bearer %s", text);
    return check_value(value, (size_t)length);
}

static void accept(const char *text)
{
    ck_assert_msg(check_token(text), "refused: %s", why);
    ck_assert_str_eq(user, "alice");
}

static void refuse(const char *text, const char *because)
{
    ck_assert_msg(!check_token(text), "accepted, though: %s", because);
    ck_assert_msg(strstr(why, because), "refused because %s, not because %s", why, because);
}

/* ---- what is good ---- */

START_TEST(a_token_of_each_algorithm_is_accepted)
{
    accept(hs256(GOOD_CLAIMS));
    accept(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\",\"typ\":\"JWT\"}", GOOD_CLAIMS));
    accept(token(ec, "{\"alg\":\"ES256\",\"kid\":\"e\",\"typ\":\"at+jwt\"}", GOOD_CLAIMS));
    accept(token(ed, "{\"alg\":\"EdDSA\",\"kid\":\"d\",\"typ\":\"jwt\"}", GOOD_CLAIMS));
    accept(token(ed, "{\"alg\":\"EdDSA\",\"kid\":\"d\",\"typ\":\"application/AT+JWT\"}", GOOD_CLAIMS));
}
END_TEST

START_TEST(a_minted_token_is_accepted_and_carries_what_was_asked_for)
{
    struct secret key;
    struct buf out;
    buf_init(&out, 8192);
    ck_assert(secret_copy(&key, SECRET_TEXT, strlen(SECRET_TEXT), &err));
    ck_assert(token_mint_hs256(&key, "alice", NOW_S + 60, NULL, NULL, &out, &err));
    accept(out.bytes);
    config.auth.issuer = "https://id.example/\"quoted\"";
    config.auth.audience = "issuing";
    reopen();
    refuse(out.bytes, "another issuer");
    buf_reset(&out);
    ck_assert(token_mint_hs256(&key, "alice", NOW_S + 60, config.auth.issuer, "issuing", &out, &err));
    accept(out.bytes);
    buf_reset(&out);
    ck_assert(token_mint_hs256(&key, "alice", NOW_S - 60, config.auth.issuer, "issuing", &out, &err));
    refuse(out.bytes, "expired");
    key.length = 31;
    ck_assert(!token_mint_hs256(&key, "alice", NOW_S + 60, NULL, NULL, &out, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    key.length = 32;
    struct buf small;
    buf_init(&small, 10);
    ck_assert(!token_mint_hs256(&key, "alice", NOW_S + 60, NULL, NULL, &small, &err));
    buf_done(&small);
    buf_done(&out);
    secret_done(&key);
}
END_TEST

START_TEST(users_of_every_length_keep_their_names)
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
END_TEST

START_TEST(without_a_kid_all_keys_of_the_algorithm_are_tried)
{
    accept(token(rsa, "{\"alg\":\"RS256\"}", GOOD_CLAIMS));
    accept(token(other_rsa, "{\"alg\":\"RS256\"}", GOOD_CLAIMS));
    accept(token(ec, "{\"alg\":\"ES256\"}", GOOD_CLAIMS));
    accept(token(ed, "{\"alg\":\"EdDSA\"}", GOOD_CLAIMS));
}
END_TEST

START_TEST(a_kid_means_that_key_and_no_other)
{
    refuse(token(other_rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS), "signature does not fit");
    refuse(token(other_rsa, "{\"alg\":\"RS256\",\"kid\":\"x\"}", GOOD_CLAIMS), "key is unknown");
    refuse(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"R\"}", GOOD_CLAIMS), "key is unknown");
    refuse(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"\"}", GOOD_CLAIMS), "key is unknown");
    refuse(token(rsa, "{\"alg\":\"RS256\",\"kid\":null}", GOOD_CLAIMS), "key is unknown");
    refuse(token(rsa, "{\"alg\":\"RS256\",\"kid\":7}", GOOD_CLAIMS), "key is unknown");
    accept(token(NULL, "{\"alg\":\"HS256\",\"kid\":\"the secret's own\"}", GOOD_CLAIMS));
    refuse(token(NULL, "{\"alg\":\"HS256\",\"kid\":\"r\"}", GOOD_CLAIMS), "key is unknown");
}
END_TEST

START_TEST(a_kid_is_only_ever_compared)
{
    char header[12000], long_kid[5001];
    static const char *const kids[] = {"../../etc/passwd", "' OR 1=1 --", "/dev/null", "%s%n"};
    for (size_t i = 0; i < ARRAY_SIZE(kids); i++) {
        snprintf(header, sizeof(header), "{\"alg\":\"RS256\",\"kid\":\"%s\"}", kids[i]);
        refuse(token(rsa, header, GOOD_CLAIMS), "key is unknown");
    }
    memset(long_kid, 'k', sizeof(long_kid) - 1);
    long_kid[sizeof(long_kid) - 1] = '\0';
    snprintf(header, sizeof(header), "{\"alg\":\"RS256\",\"kid\":\"%s\"}", long_kid);
    refuse(token(rsa, header, GOOD_CLAIMS), "key is unknown");
    snprintf(header, sizeof(header), "{\"alg\":\"RS256\",\"kid\":\"%s%s\"}", long_kid, long_kid);
    refuse(token(rsa, header, GOOD_CLAIMS), "too long");
}
END_TEST

/* ---- the header ---- */

START_TEST(the_header_never_chooses_the_algorithm)
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
        refuse(token(NULL, headers[i], GOOD_CLAIMS), "algorithm is not accepted");
        refuse(join(base64url_text(headers[i]), base64url_text(GOOD_CLAIMS), ""), "algorithm is not accepted");
    }
    refuse(token(rsa, "{\"alg\":\"ES256\",\"kid\":\"r\"}", GOOD_CLAIMS), "key is unknown");
    refuse(token(ec, "{\"alg\":\"RS256\",\"kid\":\"e\"}", GOOD_CLAIMS), "key is unknown");
    refuse(token(ed, "{\"alg\":\"RS256\"}", GOOD_CLAIMS), "signature does not fit");
}
END_TEST

/* Signs as HS256 with any key. */
static const char *hmac_with(const void *key, size_t key_length, const char *header)
{
    const char *text = join(base64url_text(header), base64url_text(GOOD_CLAIMS), NULL);
    unsigned char mac[32];
    unsigned int length = 0;
    HMAC(EVP_sha256(), key, (int)key_length, (const unsigned char *)text, strlen(text), mac, &length);
    return join(base64url_text(header), base64url_text(GOOD_CLAIMS), base64url(mac, length));
}

START_TEST(a_public_key_is_no_secret)
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
    refuse(hs256(GOOD_CLAIMS), "key is unknown");
    OPENSSL_free(der);
}
END_TEST

START_TEST(a_token_cannot_bring_its_own_key)
{
    EVP_PKEY *mine = EVP_RSA_gen(2048);
    char header[4096];
    snprintf(header, sizeof(header), "{\"alg\":\"RS256\",\"jwk\":{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"AQAB\"}}",
             number_of(mine, OSSL_PKEY_PARAM_RSA_N));
    refuse(token(mine, header, GOOD_CLAIMS), "signature does not fit");
    refuse(token(mine, "{\"alg\":\"RS256\",\"jku\":\"http://127.0.0.1/jwks\"}", GOOD_CLAIMS), "signature does not fit");
    refuse(token(mine, "{\"alg\":\"RS256\",\"x5u\":\"http://127.0.0.1/x\",\"x5c\":[\"MII\"]}", GOOD_CLAIMS),
           "signature does not fit");
    accept(token(rsa, header, GOOD_CLAIMS)); /* ours; the member is not looked at */
    EVP_PKEY_free(mine);
}
END_TEST

START_TEST(headers_that_ask_for_more_are_refused)
{
    refuse(token(NULL, "{\"alg\":\"HS256\",\"crit\":[\"b64\"],\"b64\":false}", GOOD_CLAIMS), "critical");
    refuse(token(NULL, "{\"alg\":\"HS256\",\"crit\":[\"x\"]}", GOOD_CLAIMS), "critical");
    refuse(token(NULL, "{\"alg\":\"HS256\",\"crit\":[]}", GOOD_CLAIMS), "critical");
    refuse(token(NULL, "{\"alg\":\"HS256\",\"crit\":null}", GOOD_CLAIMS), "critical");
    refuse(token(NULL, "{\"alg\":\"HS256\",\"typ\":\"JWE\"}", GOOD_CLAIMS), "another type");
    refuse(token(NULL, "{\"alg\":\"HS256\",\"typ\":\"secevent+jwt\"}", GOOD_CLAIMS), "another type");
    refuse(token(NULL, "{\"alg\":\"HS256\",\"typ\":1}", GOOD_CLAIMS), "another type");
}
END_TEST

START_TEST(members_may_not_be_there_twice)
{
    refuse(token(NULL, "{\"alg\":\"HS256\",\"alg\":\"HS256\"}", GOOD_CLAIMS), "malformed");
    refuse(token(NULL, "{\"alg\":\"none\",\"\\u0061lg\":\"HS256\"}", GOOD_CLAIMS), "malformed");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":1795176100,\"sub\":\"bob\"}"), "malformed");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":1795176100,\"x\":{\"a\":1,\"a\":2}}"), "malformed");
}
END_TEST

/* ---- the form ---- */

START_TEST(only_bearer_and_a_token_is_read)
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
END_TEST

START_TEST(a_token_has_three_parts_of_strict_base64url)
{
    const char *header = base64url_text("{\"alg\":\"HS256\"}");
    const char *good = hs256(GOOD_CLAIMS);
    char bent[2048];
    static const char *const forms[] = {"", ".", "..", "...", "....", "a.b", "a.b.c.d.e", "\xff.\xff.\xff"};
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
        refuse(forms[i], "malformed");
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
    refuse(join(base64url_text("[]"), base64url_text(GOOD_CLAIMS), "AAAA"), "malformed");
    refuse(join(base64url_text("{\"alg\":\"HS256\"} x"), base64url_text(GOOD_CLAIMS), "AAAA"), "malformed");
    const char *with_nul = base64url((const unsigned char *)"{\"alg\":\"HS256\"}\0", 16);
    refuse(join(with_nul, base64url_text(GOOD_CLAIMS), "AAAA"), "malformed");
    refuse(hs256("[\"alice\"]"), "malformed");
    refuse(hs256("\"alice\""), "malformed");
    refuse(hs256(""), "malformed");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":1795176100}{}"), "malformed");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":NaN}"), "malformed");
}
END_TEST

START_TEST(a_second_spelling_of_the_same_signature_is_refused)
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
END_TEST

START_TEST(base64url_follows_the_letter)
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
END_TEST

START_TEST(a_token_of_more_than_eight_kib_is_not_looked_at)
{
    static char claims[7000];
    for (int padding = 6080; padding <= 6120; padding += 40) {
        int length = snprintf(claims, sizeof(claims), "{\"sub\":\"alice\",\"exp\":1795176100,\"x\":\"");
        memset(claims + length, 'x', (size_t)(padding - length - 2));
        strcpy(claims + padding - 2, "\"}");
        const char *text = hs256(claims);
        if (strlen(text) <= AUTH_TOKEN_MAX)
            accept(text);
        else
            refuse(text, "too long");
        ck_assert_int_eq(strlen(text) <= AUTH_TOKEN_MAX, padding == 6080);
    }
}
END_TEST

/* ---- signatures ---- */

START_TEST(a_signature_with_any_bit_flipped_does_not_fit)
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
            refuse(bent, "signature does not fit");
            signature[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        for (size_t shorter = 0; shorter < length; shorter += 7) {
            char bent[2048];
            snprintf(bent, sizeof(bent), "%.*s%s", (int)start, good, base64url(signature, shorter));
            refuse(bent, "signature does not fit");
        }
        accept(good);
    }
}
END_TEST

START_TEST(claims_and_header_are_signed)
{
    static const char other[] = "{\"sub\":\"mallo\",\"exp\":1795176100}";
    const char *good = hs256(GOOD_CLAIMS);
    const char *signature = strrchr(good, '.') + 1;
    refuse(join(base64url_text("{\"alg\":\"HS256\"}"), base64url_text(other), signature), "signature does not fit");
    refuse(join(base64url_text("{\"alg\":\"HS256\" }"), base64url_text(GOOD_CLAIMS), signature),
           "signature does not fit");
}
END_TEST

START_TEST(es256_signatures_are_raw_and_in_range)
{
    static const char header[] = "{\"alg\":\"ES256\",\"kid\":\"e\"}";
    static const unsigned char order[32] = {0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff,
                                            0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17,
                                            0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51};
    char h[100], c[100];
    snprintf(h, sizeof(h), "%s", base64url_text(header));
    snprintf(c, sizeof(c), "%s", base64url_text(GOOD_CLAIMS));
    unsigned char signature[128] = {0};
    refuse(join(h, c, base64url(signature, 64)), "signature does not fit"); /* r = s = 0 */
    size_t length = sizeof(signature);
    sign_with(ec, join(h, c, NULL), signature, &length);
    refuse(join(h, c, base64url(signature, length)), "signature does not fit"); /* DER */
    der_to_raw(signature, &length);
    accept(join(h, c, base64url(signature, length)));
    unsigned char bent[64];
    for (int half = 0; half < 2; half++) {
        memcpy(bent, signature, 64);
        memset(bent + 32 * half, 0, 32);
        refuse(join(h, c, base64url(bent, 64)), "signature does not fit");
        memcpy(bent + 32 * half, order, 32);
        refuse(join(h, c, base64url(bent, 64)), "signature does not fit");
        memset(bent + 32 * half, 0xff, 32);
        refuse(join(h, c, base64url(bent, 64)), "signature does not fit");
    }
    memset(bent, 0, sizeof(bent));
    bent[31] = bent[63] = 1;
    refuse(join(h, c, base64url(bent, 64)), "signature does not fit");
}
END_TEST

/* ---- claims ---- */

START_TEST(exp_must_be_there_and_a_sensible_number)
{
    static const char *const unusable[] = {
        "{\"sub\":\"alice\"}",
        "{\"sub\":\"alice\",\"exp\":\"1795176100\"}",
        "{\"sub\":\"alice\",\"exp\":-1}",
        "{\"sub\":\"alice\",\"exp\":-0}",
        "{\"sub\":\"alice\",\"exp\":1e18}",
        "{\"sub\":\"alice\",\"exp\":1000000000000000000}",
        "{\"sub\":\"alice\",\"exp\":1000000000001}",
        "{\"sub\":\"alice\",\"exp\":null}",
        "{\"sub\":\"alice\",\"exp\":true}",
        "{\"sub\":\"alice\",\"exp\":[1795176100]}",
        "{\"sub\":\"alice\",\"exp\":1795176100.00000000000000000000000000000000000000000000000000000000000000}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(unusable); i++)
        refuse(hs256(unusable[i]), "no usable exp");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":1e999}"), "malformed");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":99999999999999999999}"), "malformed");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":0}"), "expired");
    accept(hs256("{\"sub\":\"alice\",\"exp\":1000000000000}"));
    accept(hs256("{\"sub\":\"alice\",\"exp\":1795176100.5}"));
    accept(hs256("{\"sub\":\"alice\",\"exp\":1.7951761e9}"));
}
END_TEST

START_TEST(a_token_expires_thirty_seconds_after_exp_also_when_it_is_cached)
{
    const char *good = hs256("{\"sub\":\"alice\",\"exp\":1795176000}");
    clock_freeze((NOW_S + 30) * 1000000 - 1, 0);
    accept(good);
    accept(good);
    clock_freeze((NOW_S + 30) * 1000000, 0);
    refuse(good, "expired");
    reopen(); /* nothing cached */
    refuse(good, "expired");
    clock_freeze((NOW_S + 29) * 1000000, 0);
    accept(good);
}
END_TEST

START_TEST(a_token_starts_thirty_seconds_before_nbf_also_when_it_is_cached)
{
    const char *good = hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":1795176000}");
    clock_freeze((NOW_S - 30) * 1000000 - 1, 0);
    refuse(good, "not valid yet");
    clock_freeze((NOW_S - 30) * 1000000, 0);
    accept(good);
    clock_freeze((NOW_S - 31) * 1000000, 0); /* the clock was set back */
    refuse(good, "not valid yet");
    clock_freeze(NOW_S * 1000000, 0);
    refuse(hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":\"1795176000\"}"), "no usable nbf");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":-1}"), "no usable nbf");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":null}"), "no usable nbf");
    refuse(hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":1e18}"), "no usable nbf");
}
END_TEST

START_TEST(a_user_is_printable_ascii)
{
    static const char *const subs[] = {
        "\"\"",         "null",        "7",  "[\"alice\"]", "\"a\\nb\"", "\"\\u0000\"", "\"a\\u007f\"",
        "\"\xc3\xa4\"", "\"\\u202e\"", "{}", "\".\"",       "\"..\"",    "\"\\u002e.\""};
    for (size_t i = 0; i < ARRAY_SIZE(subs); i++) {
        char claims[200];
        snprintf(claims, sizeof(claims), "{\"sub\":%s,\"exp\":1795176100}", subs[i]);
        ck_assert_msg(!check_token(hs256(claims)), "%s", subs[i]);
    }
    refuse(hs256("{\"exp\":1795176100}"), "no usable sub");
}
END_TEST

START_TEST(a_token_may_not_live_longer_than_configured)
{
    static const char far_away[] = "{\"sub\":\"alice\",\"exp\":999999999999}";
    accept(hs256(far_away));
    config.auth.max_lifetime_ms = 3600 * 1000;
    reopen();
    refuse(hs256(far_away), "for longer than is accepted");
    accept(hs256("{\"sub\":\"alice\",\"exp\":1795179630}")); /* an hour and the leeway */
    refuse(hs256("{\"sub\":\"alice\",\"exp\":1795179631}"), "for longer than is accepted");
    const char *good = hs256("{\"sub\":\"alice\",\"exp\":1795179600}");
    accept(good);
    clock_freeze((NOW_S - 60) * 1000000, 0); /* the clock was set back: also for what is cached */
    refuse(good, "for longer than is accepted");
}
END_TEST

/* Without a kid each key of the algorithm costs a signature check. */
START_TEST(a_token_without_a_kid_is_refused_where_one_is_required)
{
    config.auth.require_kid = true;
    reopen();
    refuse(token(rsa, "{\"alg\":\"RS256\"}", GOOD_CLAIMS), "names no key");
    refuse(token(ed, "{\"alg\":\"EdDSA\"}", GOOD_CLAIMS), "names no key");
    refuse(hs256(GOOD_CLAIMS), "names no key");
    ck_assert_uint_eq(auth_signatures_checked(auth), 0);
    accept(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    accept(token(NULL, "{\"alg\":\"HS256\",\"kid\":\"any\"}", GOOD_CLAIMS));
}
END_TEST

/* Three P-256 keys and no kid: 168 us of the api for each bad token, as often as somebody likes. */
START_TEST(a_bad_token_that_comes_again_costs_no_signature_check)
{
    static char bad[4096];
    (void)snprintf(bad, sizeof(bad), "%s", token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    char *last = &bad[strlen(bad) - 3];
    *last = *last == 'A' ? 'B' : 'A'; /* another letter of base64url: the token stays well-formed */
    for (int i = 0; i < 100; i++)
        refuse(bad, "signature does not fit");
    ck_assert_uint_eq(auth_signatures_checked(auth), 1);
    clock_freeze(NOW_S * 1000000, 999 * 1000);
    refuse(bad, "signature does not fit");
    ck_assert_uint_eq(auth_signatures_checked(auth), 1);
    clock_freeze(NOW_S * 1000000, 1000 * 1000);
    refuse(bad, "signature does not fit");
    ck_assert_uint_eq(auth_signatures_checked(auth), 2);
    accept(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
}
END_TEST

/* A refusal that time heals is never remembered, and none outlives the keys that it was made with. */
START_TEST(a_remembered_refusal_never_refuses_what_has_become_valid)
{
    static char early[4096], stranger[4096], nameless[4096];
    (void)snprintf(early, sizeof(early), "%s", hs256("{\"sub\":\"alice\",\"exp\":1795179600,\"nbf\":1795176031}"));
    (void)snprintf(stranger, sizeof(stranger), "%s",
                   token(other_rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    (void)snprintf(nameless, sizeof(nameless), "%s", token(rsa, "{\"alg\":\"RS256\",\"kid\":\"new\"}", GOOD_CLAIMS));
    refuse(early, "not valid yet");
    refuse(stranger, "signature does not fit");
    refuse(nameless, "key is unknown");
    clock_freeze((NOW_S + 1) * 1000000, 0); /* no millisecond of the other clock has passed */
    accept(early);
    text_of[0] = '\0';
    put_rsa(other_rsa, ",\"kid\":\"r\"");
    put_rsa(rsa, ",\"kid\":\"new\"");
    write_jwks();
    ck_assert(auth_reload(auth, &config, NULL));
    accept(stranger);
    accept(nameless);
}
END_TEST

START_TEST(issuer_and_audience_are_checked_where_they_are_configured)
{
    accept(hs256("{\"sub\":\"alice\",\"exp\":1795176100,\"iss\":\"anybody\",\"aud\":\"anything\"}"));
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
        accept(hs256(claims));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        snprintf(claims, sizeof(claims), "{\"sub\":\"alice\",\"exp\":1795176100,%s}", bad[i].claims);
        refuse(hs256(claims), bad[i].because);
    }
}
END_TEST

START_TEST(the_cache_never_mixes_users_up)
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
END_TEST

/* ---- key files ---- */

static void refuse_jwks(const char *says)
{
    struct auth *opened = NULL;
    write_jwks();
    ck_assert_msg(!auth_open(&config, &opened, &err), "taken, though: %s", says);
    ck_assert_ptr_null(opened);
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_msg(strstr(err.message, says), "%s, not %s", err.message, says);
    ck_assert_msg(strstr(err.message, jwks_path), "%s", err.message);
}

START_TEST(weak_and_wrong_keys_stop_the_start)
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
END_TEST

START_TEST(an_ed25519_key_of_small_order_stops_the_start)
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
END_TEST

START_TEST(a_file_that_is_no_key_set_stops_the_start)
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
        {"{\"keys\":[],\"keys\":[]}", "second time"},
        {"{\"keys\":[{\"kty\":\"XYZ\"}]}", "no key for"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct auth *opened = NULL;
        write_file(jwks_path, rows[i].text);
        ck_assert(!auth_open(&config, &opened, &err));
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_msg(strcasestr(err.message, rows[i].says), "%s, not %s", err.message, rows[i].says);
    }
    unlink(jwks_path);
    struct auth *opened = NULL;
    ck_assert(!auth_open(&config, &opened, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    config.auth.jwks_file = folder;
    ck_assert(!auth_open(&config, &opened, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    write_file(jwks_path, "");
}
END_TEST

START_TEST(a_key_set_has_limits)
{
    char more[300];
    for (int i = 0; i < 32; i++) {
        snprintf(more, sizeof(more), ",\"kid\":\"%d\"", i);
        put_ed(ed_bytes(ed), more);
    }
    write_jwks();
    reopen();
    accept(token(ed, "{\"alg\":\"EdDSA\",\"kid\":\"31\"}", GOOD_CLAIMS));
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
END_TEST

START_TEST(keys_that_are_not_for_us_are_passed_over)
{
    put_rsa(rsa, ",\"kid\":\"r\",\"use\":\"enc\"");
    put_rsa(rsa, ",\"kid\":\"r512\",\"alg\":\"RS512\"");
    put_ec(ec, "P-256", ",\"kid\":\"e\",\"key_ops\":[\"deriveKey\"]");
    put_jwk("{\"kty\":\"AKP\",\"kid\":\"x\"}");
    put_jwk("{\"kty\":\"OKP\",\"crv\":\"X25519\",\"use\":\"enc\",\"x\":\"AAAA\"}");
    put_ed(ed_bytes(ed), ",\"kid\":\"d\",\"x5c\":[\"MII\"],\"unknown\":{\"a\":[1]}");
    write_jwks();
    reopen();
    refuse(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS), "key is unknown");
    refuse(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r512\"}", GOOD_CLAIMS), "key is unknown");
    refuse(token(ec, "{\"alg\":\"ES256\",\"kid\":\"e\"}", GOOD_CLAIMS), "key is unknown");
    accept(token(ed, "{\"alg\":\"EdDSA\",\"kid\":\"d\"}", GOOD_CLAIMS));
}
END_TEST

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
START_TEST(keys_of_other_curves_and_algorithms_are_passed_over)
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
        bool done = auth_open(&config, &opened, &err);
        ck_assert_msg(done == with_ours, "%s", err.message);
        if (!done)
            ck_assert_msg(strstr(err.message, "14 others were passed over"), "%s", err.message);
    }
    ck_assert_uint_eq(auth_unused_keys(opened), 14);
    auth_close(opened);
}
END_TEST

/* Who may write the key set is every user. */
START_TEST(a_key_set_that_others_may_write_stops_the_start)
{
    static const mode_t bad[] = {0620, 0602, 0664, 0646, 0666};
    struct auth *opened = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_assert_int_eq(chmod(jwks_path, bad[i]), 0);
        ck_assert(!auth_open(&config, &opened, &err));
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_msg(strstr(err.message, "lets others than its owner write it"), "%s", err.message);
        ck_assert_msg(strstr(err.message, jwks_path), "%s", err.message);
    }
    ck_assert_int_eq(chmod(jwks_path, 0644), 0); /* the keys are public */
    reopen();
    static char link_path[120];
    snprintf(link_path, sizeof(link_path), "%s/link", folder);
    ck_assert_int_eq(symlink("jwks", link_path), 0);
    config.auth.jwks_file = link_path;
    reopen();
    ck_assert_int_eq(chmod(jwks_path, 0666), 0); /* of the file itself, not of the link */
    ck_assert(!auth_open(&config, &opened, &err));
    ck_assert_int_eq(unlink(link_path), 0);
}
END_TEST

/* 32 zeros of a command that failed, blanks of an empty field, a word that a template holds: everybody's secret. */
START_TEST(a_secret_without_entropy_stops_the_start)
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
        ck_assert_msg(!auth_open(&config, &opened, &err), "row %zu", i);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_msg(strstr(err.message, "fewer than 8 different bytes"), "%s", err.message);
        ck_assert_ptr_null(strstr(err.message, "change"));
    }
    write_file(secret_path, "abcdefghabcdefghabcdefghabcdefgh"); /* 8 */
    reopen();
}
END_TEST

START_TEST(a_secret_that_is_short_or_open_to_all_stops_the_start)
{
    struct auth *opened = NULL;
    config.auth.jwks_file = NULL;
    write_file(secret_path, "0123456789abcdef0123456789abcde\n");
    ck_assert(!auth_open(&config, &opened, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.message, "32 bytes"));
    ck_assert_ptr_null(strstr(err.message, "abcde"));
    write_file(secret_path, SECRET_TEXT);
    ck_assert_int_eq(chmod(secret_path, 0604), 0);
    ck_assert(!auth_open(&config, &opened, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    config.auth.hs256_secret_file = NULL;
    ck_assert(!auth_open(&config, &opened, &err));
    ck_assert_ptr_nonnull(strstr(err.message, "auth.jwks_file"));
    ck_assert_ptr_null(opened);
}
END_TEST

/* ---- reading the files again ---- */

static char told[600];

static void on_error(const char *message)
{
    strncat(told, message, sizeof(told) - strlen(told) - 1);
}

START_TEST(after_a_reload_the_new_keys_count_and_the_old_ones_do_not)
{
    static char old[4096];
    (void)snprintf(old, sizeof(old), "%s", hs256(GOOD_CLAIMS));
    accept(old); /* and remembered */
    accept(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    write_file(secret_path, "another secret of more than thirty-two bytes");
    text_of[0] = '\0';
    put_rsa(other_rsa, ",\"kid\":\"r\"");
    write_jwks();
    ck_assert(auth_reload(auth, &config, on_error));
    ck_assert_str_eq(told, "");
    refuse(old, "signature");
    refuse(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS), "signature");
    write_file(secret_path, SECRET_TEXT "\n");
    ck_assert(auth_reload(auth, &config, on_error));
    accept(old);
}
END_TEST

START_TEST(a_file_that_cannot_be_used_leaves_the_old_keys_in_force)
{
    static char good[4096];
    (void)snprintf(good, sizeof(good), "%s", hs256(GOOD_CLAIMS));
    write_file(secret_path, "short");
    write_file(jwks_path, "{\"keys\":[");
    told[0] = '\0';
    ck_assert(!auth_reload(auth, &config, on_error));
    ck_assert_ptr_nonnull(strstr(told, "auth.hs256_secret_file"));
    ck_assert_ptr_nonnull(strstr(told, "auth.jwks_file"));
    accept(good);
    accept(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    unlink(secret_path);
    unlink(jwks_path);
    ck_assert(!auth_reload(auth, &config, on_error));
    accept(good);
    accept(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD_CLAIMS));
    write_file(secret_path, SECRET_TEXT "\n"); /* for the end of the test */
    write_file(jwks_path, "");
}
END_TEST

int main(void)
{
    rsa = EVP_RSA_gen(2048); /* once: it takes long */
    other_rsa = EVP_RSA_gen(2048);
    ec = EVP_EC_gen("P-256");
    ed = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    Suite *suite = suite_create("auth");
    TCase *tests = tcase_create("auth");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_token_of_each_algorithm_is_accepted);
    tcase_add_test(tests, a_minted_token_is_accepted_and_carries_what_was_asked_for);
    tcase_add_test(tests, users_of_every_length_keep_their_names);
    tcase_add_test(tests, without_a_kid_all_keys_of_the_algorithm_are_tried);
    tcase_add_test(tests, a_kid_means_that_key_and_no_other);
    tcase_add_test(tests, a_kid_is_only_ever_compared);
    tcase_add_test(tests, the_header_never_chooses_the_algorithm);
    tcase_add_test(tests, a_public_key_is_no_secret);
    tcase_add_test(tests, a_token_cannot_bring_its_own_key);
    tcase_add_test(tests, headers_that_ask_for_more_are_refused);
    tcase_add_test(tests, members_may_not_be_there_twice);
    tcase_add_test(tests, only_bearer_and_a_token_is_read);
    tcase_add_test(tests, a_token_has_three_parts_of_strict_base64url);
    tcase_add_test(tests, a_second_spelling_of_the_same_signature_is_refused);
    tcase_add_test(tests, base64url_follows_the_letter);
    tcase_add_test(tests, a_token_of_more_than_eight_kib_is_not_looked_at);
    tcase_add_test(tests, a_signature_with_any_bit_flipped_does_not_fit);
    tcase_add_test(tests, claims_and_header_are_signed);
    tcase_add_test(tests, es256_signatures_are_raw_and_in_range);
    tcase_add_test(tests, exp_must_be_there_and_a_sensible_number);
    tcase_add_test(tests, a_token_expires_thirty_seconds_after_exp_also_when_it_is_cached);
    tcase_add_test(tests, a_token_starts_thirty_seconds_before_nbf_also_when_it_is_cached);
    tcase_add_test(tests, a_user_is_printable_ascii);
    tcase_add_test(tests, issuer_and_audience_are_checked_where_they_are_configured);
    tcase_add_test(tests, the_cache_never_mixes_users_up);
    tcase_add_test(tests, weak_and_wrong_keys_stop_the_start);
    tcase_add_test(tests, an_ed25519_key_of_small_order_stops_the_start);
    tcase_add_test(tests, a_file_that_is_no_key_set_stops_the_start);
    tcase_add_test(tests, a_key_set_has_limits);
    tcase_add_test(tests, keys_that_are_not_for_us_are_passed_over);
    tcase_add_test(tests, keys_of_other_curves_and_algorithms_are_passed_over);
    tcase_add_test(tests, a_key_set_that_others_may_write_stops_the_start);
    tcase_add_test(tests, a_secret_without_entropy_stops_the_start);
    tcase_add_test(tests, a_token_may_not_live_longer_than_configured);
    tcase_add_test(tests, a_token_without_a_kid_is_refused_where_one_is_required);
    tcase_add_test(tests, a_bad_token_that_comes_again_costs_no_signature_check);
    tcase_add_test(tests, a_remembered_refusal_never_refuses_what_has_become_valid);
    tcase_add_test(tests, a_secret_that_is_short_or_open_to_all_stops_the_start);
    tcase_add_test(tests, after_a_reload_the_new_keys_count_and_the_old_ones_do_not);
    tcase_add_test(tests, a_file_that_cannot_be_used_leaves_the_old_keys_in_force);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    EVP_PKEY_free(rsa);
    EVP_PKEY_free(other_rsa);
    EVP_PKEY_free(ec);
    EVP_PKEY_free(ed);
    return failed ? 1 : 0;
}
