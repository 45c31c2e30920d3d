/* Public keys from a JWK set (RFC 7517, 7518, 8037).
 *
 * Invariants: each key in use has one algorithm, determined by its type and, where present, confirmed by its `alg`; it
 * is strong enough and lies on its curve. Keys of other types, curves, algorithms and uses are skipped and counted (RFC
 * 7517, 5): an identity provider adds such keys beside those in use. A set in which one key of ours is bad is refused
 * as a whole: the operator must notice it, and half a set would lock out half of the users. A user who may write the
 * file can sign as any user, so only its owner may write it.
 * Left out: fetching sets, certificates (x5c, x5u), private members (they are not read). */
#include <errno.h>
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/auth_key.h"
#include "common/lib/base/secret.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"

#define RSA_BITS_MIN 2048
#define RSA_BITS_MAX 8192
#define RSA_EXPONENT_BYTES 8
#define FIELD_SIZE 32 /* of P-256 and of Ed25519 */
#define NAME_SIZE 64

/* ---- members ---- */

/* Reads a short text; "" when it is missing, is not a string, or is longer than every name that is known here. */
static void read_name(struct json_value jwk, const char *member, char ret_name[NAME_SIZE])
{
    if (!json_string(json_member(jwk, member), ret_name, NAME_SIZE, NULL))
        ret_name[0] = '\0';
}

static bool read_bytes(struct json_value jwk, const char *member, unsigned char *out, size_t out_size,
                       size_t *ret_length)
{
    struct json_value value = json_member(jwk, member);
    if (value.kind != JSON_STRING || value.raw.length < 3)
        return false;
    /* The text between the quotes is not unescaped: an escape is not valid base64url. */
    struct slice text = {.bytes = value.raw.bytes + 1, .length = value.raw.length - 2};
    return auth_base64url(text, out, out_size, ret_length);
}

/* Whether `use` and `key_ops`, which are optional, allow the key to check signatures. */
static bool is_for_signatures(struct json_value jwk)
{
    char name[NAME_SIZE];
    if (json_member(jwk, "use").kind != JSON_MISSING) {
        read_name(jwk, "use", name);
        if (strcmp(name, "sig") != 0)
            return false;
    }
    struct json_value operations = json_member(jwk, "key_ops"), operation;
    if (operations.kind == JSON_MISSING)
        return true;
    size_t cursor = 0;
    while (json_next_element(operations, &cursor, &operation))
        if (json_string(operation, name, sizeof(name), NULL) && strcmp(name, "verify") == 0)
            return true;
    return false;
}

enum alg_verdict { ALG_OURS, ALG_OTHER, ALG_DISAGREES };

/* Compares `alg` with the type of the key. A missing `alg` means the one algorithm that the type has here. An unknown
 * name is another algorithm, unless it is known to need a key of another type. */
static enum alg_verdict judge_alg(struct json_value jwk, enum auth_algorithm algorithm)
{
    static const struct {
        const char *kty, *prefix;
    } others[] = {{"RSA", "RS"}, {"RSA", "PS"},   {"EC", "ES"},  {"EC", "ECDH"},
                  {"OKP", "Ed"}, {"OKP", "ECDH"}, {"oct", "HS"}, {"none", "none"}};
    if (json_member(jwk, "alg").kind == JSON_MISSING)
        return ALG_OURS;
    char name[NAME_SIZE];
    read_name(jwk, "alg", name);
    enum auth_algorithm named;
    if (auth_algorithm_parse(name, &named))
        return named == algorithm ? ALG_OURS : ALG_DISAGREES;
    enum alg_verdict verdict = name[0] ? ALG_OTHER : ALG_DISAGREES;
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        if (strncmp(name, others[i].prefix, strlen(others[i].prefix)) != 0)
            continue;
        if (strcmp(others[i].kty, auth_algorithm_kty(algorithm)) == 0)
            return ALG_OTHER;
        verdict = ALG_DISAGREES;
    }
    return verdict;
}

/* Whether `crv` is the curve that we use for this type. false: the key has another curve, and *ret_why is NULL; or the
 * key is wrong, and *ret_why is the fault. */
static bool is_our_curve(struct json_value jwk, const char *ours, enum auth_algorithm algorithm, const char **ret_why)
{
    char curve[NAME_SIZE], alg[NAME_SIZE];
    read_name(jwk, "crv", curve);
    read_name(jwk, "alg", alg);
    *ret_why = NULL;
    if (strcmp(curve, ours) == 0)
        return true;
    if (!curve[0])
        *ret_why = "crv is missing or no name";
    else if ((algorithm == AUTH_ES256 && strcmp(alg, "ES256") == 0) || strcmp(alg, ours) == 0)
        /* RFC 7518, 3.4, and RFC 9864, 2.2; EdDSA may be Ed448, too */
        *ret_why = "alg and crv disagree";
    return false;
}

/* ---- keys ---- */

static EVP_PKEY *make_key(const char *type, OSSL_PARAM_BLD *builder)
{
    EVP_PKEY *pkey = NULL;
    OSSL_PARAM *parameters = OSSL_PARAM_BLD_to_param(builder);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (!parameters || !context || EVP_PKEY_fromdata_init(context) != 1 ||
        EVP_PKEY_fromdata(context, &pkey, EVP_PKEY_PUBLIC_KEY, parameters) != 1)
        pkey = NULL;
    EVP_PKEY_CTX_free(context);
    OSSL_PARAM_free(parameters);
    return pkey;
}

/* The readers of each type. NULL: *ret_why is the fault (static), or NULL when the key is for another curve. */
static EVP_PKEY *read_rsa(struct json_value jwk, const char **ret_why)
{
    unsigned char modulus[RSA_BITS_MAX / 8 + 1], exponent[RSA_EXPONENT_BYTES + 1];
    size_t modulus_length, exponent_length;
    if (!read_bytes(jwk, "n", modulus, sizeof(modulus), &modulus_length) ||
        !read_bytes(jwk, "e", exponent, sizeof(exponent), &exponent_length)) {
        *ret_why = "n or e is missing, too long or no base64url";
        return NULL;
    }
    BIGNUM *n = BN_bin2bn(modulus, (int)modulus_length, NULL), *e = BN_bin2bn(exponent, (int)exponent_length, NULL);
    EVP_PKEY *pkey = NULL;
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    if (!n || !e || !builder)
        *ret_why = "out of memory";
    else if (BN_num_bits(n) < RSA_BITS_MIN || BN_num_bits(n) > RSA_BITS_MAX || !BN_is_odd(n))
        *ret_why = "an RSA key must have 2048 to 8192 bits";
    else if (BN_is_one(e) || !BN_is_odd(e) || BN_num_bits(e) > 8 * RSA_EXPONENT_BYTES)
        *ret_why = "the exponent of an RSA key must be odd and 3 or more";
    else if (OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n) != 1 ||
             OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, e) != 1 || !(pkey = make_key("RSA", builder)))
        *ret_why = "OpenSSL refuses the RSA key";
    OSSL_PARAM_BLD_free(builder);
    BN_free(n);
    BN_free(e);
    return pkey;
}

static bool is_on_curve(EVP_PKEY *pkey)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, pkey, NULL);
    bool fits = context && EVP_PKEY_public_check(context) == 1;
    EVP_PKEY_CTX_free(context);
    return fits;
}

static EVP_PKEY *read_ec(struct json_value jwk, const char **ret_why)
{
    if (!is_our_curve(jwk, "P-256", AUTH_ES256, ret_why))
        return NULL;
    unsigned char point[1 + 2 * FIELD_SIZE] = {POINT_CONVERSION_UNCOMPRESSED};
    size_t x_length = 0, y_length = 0;
    if (!read_bytes(jwk, "x", point + 1, FIELD_SIZE, &x_length) || x_length != FIELD_SIZE ||
        !read_bytes(jwk, "y", point + 1 + FIELD_SIZE, FIELD_SIZE, &y_length) || y_length != FIELD_SIZE) {
        *ret_why = "x and y must be 32 bytes in base64url";
        return NULL;
    }
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    EVP_PKEY *pkey = NULL;
    if (builder && OSSL_PARAM_BLD_push_utf8_string(builder, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(builder, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)) == 1)
        pkey = make_key("EC", builder);
    OSSL_PARAM_BLD_free(builder);
    if (pkey && !is_on_curve(pkey)) {
        EVP_PKEY_free(pkey);
        pkey = NULL;
    }
    if (!pkey)
        *ret_why = "the point is not on P-256";
    return pkey;
}

/* With a key of small order one signature fits many texts (RFC 8032, 8; the list is that of libsodium). OpenSSL does
 * not check this. A key is also found when its sign bit is set or its y is not reduced modulo p. */
static bool is_weak_ed25519(const unsigned char key[FIELD_SIZE])
{
    static const unsigned char small[][FIELD_SIZE] = {
        {0x00},
        {0x01},
        {0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
         0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05},
        {0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
         0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a},
    };
    unsigned char y[FIELD_SIZE];
    memcpy(y, key, sizeof(y));
    y[FIELD_SIZE - 1] &= 0x7f;
    for (size_t i = 0; i < ARRAY_SIZE(small); i++)
        if (memcmp(y, small[i], sizeof(y)) == 0)
            return true;
    /* p = 2^255 - 19: p - 1 has order 2, and values from p on are not canonical. */
    for (size_t i = 1; i < FIELD_SIZE; i++)
        if (y[i] != (i == FIELD_SIZE - 1 ? 0x7f : 0xff))
            return false;
    return y[0] >= 0xec;
}

static EVP_PKEY *read_okp(struct json_value jwk, const char **ret_why)
{
    if (!is_our_curve(jwk, "Ed25519", AUTH_EDDSA, ret_why))
        return NULL;
    unsigned char key[FIELD_SIZE];
    size_t length = 0;
    if (!read_bytes(jwk, "x", key, sizeof(key), &length) || length != sizeof(key)) {
        *ret_why = "x must be 32 bytes in base64url";
        return NULL;
    }
    if (is_weak_ed25519(key)) {
        *ret_why = "an Ed25519 key of small order";
        return NULL;
    }
    EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, sizeof(key));
    if (!pkey)
        *ret_why = "OpenSSL refuses the Ed25519 key";
    return pkey;
}

/* ---- the set ---- */

static bool read_kid(struct json_value jwk, struct auth_key *key, const struct auth_keys *known, const char **ret_why)
{
    struct json_value kid = json_member(jwk, "kid");
    key->has_kid = kid.kind != JSON_MISSING;
    if (!key->has_kid)
        return true;
    if (!json_string(kid, key->kid, sizeof(key->kid), NULL)) {
        *ret_why = "kid must be a text of 256 bytes at most";
        return false;
    }
    for (size_t i = 0; i < known->count; i++) {
        if (known->keys[i].has_kid && strcmp(known->keys[i].kid, key->kid) == 0) {
            *ret_why = "its kid is another key's too";
            return false;
        }
    }
    return true;
}

/* Adds the key, or skips it. false: the key is bad, and *ret_why is the fault. */
static bool read_key(struct json_value jwk, struct auth_keys *keys, const char **ret_why)
{
    static const struct {
        enum auth_algorithm algorithm;
        EVP_PKEY *(*read)(struct json_value jwk, const char **ret_why);
    } types[] = {{AUTH_RS256, read_rsa}, {AUTH_ES256, read_ec}, {AUTH_EDDSA, read_okp}};
    char kty[NAME_SIZE];
    read_name(jwk, "kty", kty);
    *ret_why = !kty[0] ? "kty is missing" : "a symmetric key; a secret belongs into auth.hs256_secret_file";
    if (!kty[0] || strcmp(kty, auth_algorithm_kty(AUTH_HS256)) == 0)
        return false;
    size_t type = 0;
    while (type < ARRAY_SIZE(types) && strcmp(kty, auth_algorithm_kty(types[type].algorithm)) != 0)
        type++;
    if (type == ARRAY_SIZE(types) || !is_for_signatures(jwk)) {
        keys->unused_count++;
        return true;
    }
    enum alg_verdict verdict = judge_alg(jwk, types[type].algorithm);
    *ret_why = "alg and kty disagree";
    if (verdict == ALG_DISAGREES)
        return false;
    struct auth_key key = {.algorithm = types[type].algorithm};
    key.pkey =
        types[type].read(jwk, ret_why); /* also for another algorithm: a weak key in a set is refused in any case */
    if (!key.pkey && *ret_why)
        return false;
    if (!key.pkey || verdict == ALG_OTHER) {
        EVP_PKEY_free(key.pkey);
        keys->unused_count++;
        return true;
    }
    bool fits = read_kid(jwk, &key, keys, ret_why);
    if (fits && keys->count == AUTH_KEYS_MAX) {
        *ret_why = "more than 32 keys";
        fits = false;
    }
    if (fits)
        keys->keys[keys->count++] = key;
    else
        EVP_PKEY_free(key.pkey);
    return fits;
}

bool auth_jwks_parse(struct slice text, struct auth_keys *ret_keys, struct err *err)
{
    struct err why_not;
    if (text.length > AUTH_JWKS_MAX)
        return err_set(err, ERR_CONFIG, "more than %d bytes", AUTH_JWKS_MAX);
    if (!json_grammar_check(text.bytes, text.length, &why_not))
        return err_set(err, ERR_CONFIG, "%.200s", why_not.message);
    struct json_value set = json_member(json_value_of(text.bytes, text.length), "keys"), jwk;
    if (set.kind != JSON_ARRAY)
        return err_set(err, ERR_CONFIG, "no JWK set: an object with an array \"keys\" was expected");
    struct auth_keys keys = {.count = 0};
    size_t cursor = 0;
    for (int index = 0; json_next_element(set, &cursor, &jwk); index++) {
        const char *why = "no object";
        if (jwk.kind != JSON_OBJECT || !read_key(jwk, &keys, &why)) {
            auth_keys_done(&keys);
            return err_set(err, ERR_CONFIG, "keys[%d]: %s", index, why);
        }
    }
    if (keys.count == 0)
        return err_set(err, ERR_CONFIG, "no key for RS256, ES256 or EdDSA; %zu others were ignored", keys.unused_count);
    *ret_keys = keys;
    return true;
}

static bool read_file(const char *path, char *out, size_t out_size, size_t *ret_length, struct err *err)
{
    /* O_NONBLOCK: a named pipe must not hang the start. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, ERR_CONFIG, "%s", strerror(errno));
    /* guard: a key set that others may write is refused */
    if (!secret_check_writers(fd, err)) {
        close(fd);
        return false;
    }
    size_t length = 0;
    ssize_t count = 1;
    while (count != 0 && length < out_size) {
        count = read(fd, out + length, out_size - length);
        if (count < 0 && errno != EINTR) {
            int error = errno;
            close(fd);
            return err_set(err, ERR_CONFIG, "%s", strerror(error));
        }
        length += count > 0 ? (size_t)count : 0;
    }
    close(fd);
    *ret_length = length;
    return true;
}

bool auth_jwks_load(const char *path, struct auth_keys *ret_keys, struct err *err)
{
    char *text = malloc(AUTH_JWKS_MAX + 1); /* the last byte only to notice a longer file */
    if (!text)
        return err_set(err, ERR_MEMORY, "out of memory for %s", path);
    size_t length = 0;
    bool done = read_file(path, text, AUTH_JWKS_MAX + 1, &length, err) &&
                auth_jwks_parse((struct slice){.bytes = text, .length = length}, ret_keys, err);
    free(text);
    return done || err_prefix(err, "%s", path);
}
