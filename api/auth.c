/* Who asks? Reads "Authorization: Bearer <JWT>" and answers with the user id or with why not.
 *
 * Invariants: nothing a token says is believed before its signature fits, except which of OUR keys to try; the header's
 * `alg` must then be that key's. Times are checked on every call, cached or not. Decoded parts of a token are wiped; no
 * message has a byte of one.
 *
 * The cache is direct-mapped by the SHA-256 of the whole token: a hit spares parsing and the signature. It cannot be
 * poisoned, since only tokens that passed get in, and it never outlives `exp`.
 *
 * Left out: revocation, fetching key sets, what a user may do. */
#include "api/auth.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/auth_key.h"
#include "common/clock.h"
#include "common/json_strict.h"
#include "common/json_value.h"
#include "common/outbox.h"
#include "common/secret.h"

#define SECRET_MIN 32
#define LEEWAY_US (30 * 1000000LL)
#define NUMERIC_DATE_MAX 1e12 /* seconds: the year 33658; fits int64 in microseconds */
#define CACHE_SIZE 4096       /* a power of two */
#define DIGEST_SIZE 32
#define PART_MAX (AUTH_TOKEN_MAX / 4 * 3)

struct cache_entry {
    unsigned char digest[DIGEST_SIZE];
    int64_t expires_us;
    int64_t not_before_us;
    char user[AUTH_USER_SIZE]; /* "" while empty */
};

struct auth {
    char *issuer, *audience; /* NULL = not checked */
    struct auth_keys keys;
    EVP_MD *sha256;
    EVP_MD_CTX *digest;
    EVP_MAC_CTX *mac; /* holds the HS256 secret; NULL = none */
    struct cache_entry *cache;
};

/* What is needed of the claims. */
struct claims {
    char user[AUTH_USER_SIZE];
    int64_t expires_us;
    int64_t not_before_us; /* INT64_MIN = none */
};

/* ---- the parts ---- */

struct parts {
    struct slice header, claims, signature;
    struct slice signed_text; /* header.claims */
};

static bool split(struct slice token, struct parts *ret_parts)
{
    const char *end = token.bytes + token.length;
    const char *first = memchr(token.bytes, '.', token.length);
    const char *second = first ? memchr(first + 1, '.', (size_t)(end - first - 1)) : NULL;
    if (!second || memchr(second + 1, '.', (size_t)(end - second - 1))) /* five parts would be encrypted */
        return false;
    *ret_parts = (struct parts){
        .header = {.bytes = token.bytes, .length = (size_t)(first - token.bytes)},
        .claims = {.bytes = first + 1, .length = (size_t)(second - first - 1)},
        .signature = {.bytes = second + 1, .length = (size_t)(end - second - 1)},
        .signed_text = {.bytes = token.bytes, .length = (size_t)(second - token.bytes)},
    };
    return true;
}

/* Decodes a part into `text` and checks that it is one strict JSON object. */
static bool read_object(struct slice part, char text[PART_MAX], struct json_value *ret_object)
{
    size_t length = 0;
    if (!auth_base64url(part, (unsigned char *)text, PART_MAX, &length) || !json_strict_check(text, length, NULL))
        return false;
    *ret_object = json_value_of(text, length);
    return ret_object->kind == JSON_OBJECT;
}

/* ---- header and signature ---- */

struct header {
    enum auth_algorithm algorithm;
    bool has_kid;
    char kid[AUTH_KID_SIZE];
};

/* RFC 7515, 4.1.9: "JWT" is short for "application/jwt"; RFC 9068 for at+jwt. */
static bool is_fitting_type(struct json_value type)
{
    char text[32];
    static const char prefix[] = "application/";
    if (type.kind == JSON_MISSING)
        return true;
    if (!json_string(type, text, sizeof(text), NULL))
        return false;
    const char *name = strncasecmp(text, prefix, sizeof(prefix) - 1) == 0 ? text + sizeof(prefix) - 1 : text;
    return strcasecmp(name, "JWT") == 0 || strcasecmp(name, "at+jwt") == 0;
}

/* `jwk`, `jku`, `x5c` and `x5u` are not looked at: a token does not bring its own key. */
static const char *read_header(struct slice part, struct header *ret_header)
{
    char text[PART_MAX], algorithm[16];
    struct json_value object;
    const char *why = NULL;
    *ret_header = (struct header){.has_kid = false};
    if (!read_object(part, text, &object))
        return "the token is malformed";
    struct json_value kid = json_member(object, "kid");
    if (!json_string(json_member(object, "alg"), algorithm, sizeof(algorithm), NULL) ||
        !auth_algorithm_parse(algorithm, &ret_header->algorithm))
        why = "the token's algorithm is not accepted";
    else if (json_member(object, "crit").kind != JSON_MISSING)
        why = "the token has a critical extension";
    else if (!is_fitting_type(json_member(object, "typ")))
        why = "the token is of another type";
    else if (kid.kind != JSON_MISSING && !json_string(kid, ret_header->kid, sizeof(ret_header->kid), NULL))
        why = "the token's key is unknown";
    ret_header->has_kid = kid.kind != JSON_MISSING;
    return why;
}

static bool fits_secret(struct auth *auth, struct slice text, const unsigned char *signature, size_t length)
{
    unsigned char mac[DIGEST_SIZE];
    size_t mac_length = 0;
    bool fits = EVP_MAC_init(auth->mac, NULL, 0, NULL) == 1 &&
                EVP_MAC_update(auth->mac, (const unsigned char *)text.bytes, text.length) == 1 &&
                EVP_MAC_final(auth->mac, mac, &mac_length, sizeof(mac)) == 1 &&
                secret_equal(mac, mac_length, signature, length);
    secret_wipe(mac, sizeof(mac));
    return fits;
}

static const struct auth_key *find_key(const struct auth *auth, const char *kid)
{
    for (size_t i = 0; i < auth->keys.count; i++)
        if (auth->keys.keys[i].has_kid && strcmp(auth->keys.keys[i].kid, kid) == 0)
            return &auth->keys.keys[i];
    return NULL;
}

/* NULL if the signature fits one of the keys that the header may mean. */
static const char *check_signature(struct auth *auth, const struct parts *parts, const struct header *header)
{
    unsigned char signature[PART_MAX];
    size_t length = 0;
    if (!auth_base64url(parts->signature, signature, sizeof(signature), &length))
        return "the token is malformed";
    bool fits = false, tried = false;
    const struct auth_key *named = header->has_kid ? find_key(auth, header->kid) : NULL;
    if (named) {
        tried = named->algorithm == header->algorithm;
        fits = tried && auth_key_verify(named, parts->signed_text, signature, length);
    } else if (header->algorithm == AUTH_HS256) {
        /* The secret has no kid, so a token for it may carry any that is not a public key's. */
        tried = auth->mac != NULL;
        fits = tried && fits_secret(auth, parts->signed_text, signature, length);
    } else if (!header->has_kid) {
        for (size_t i = 0; i < auth->keys.count && !fits; i++) {
            if (auth->keys.keys[i].algorithm != header->algorithm)
                continue;
            tried = true;
            fits = auth_key_verify(&auth->keys.keys[i], parts->signed_text, signature, length);
        }
    }
    secret_wipe(signature, length);
    if (fits)
        return NULL;
    return tried ? "the token's signature does not fit" : "the token's key is unknown";
}

/* ---- claims ---- */

/* RFC 7519, 2: seconds since 1970, fractions allowed. */
static bool read_date(struct json_value value, int64_t *ret_us)
{
    char text[64];
    if (value.kind != JSON_NUMBER || value.raw.length >= sizeof(text) || value.raw.bytes[0] == '-')
        return false;
    memcpy(text, value.raw.bytes, value.raw.length);
    text[value.raw.length] = '\0';
    double seconds = strtod(text, NULL);
    if (!(seconds >= 0 && seconds <= NUMERIC_DATE_MAX))
        return false;
    *ret_us = (int64_t)(seconds * 1e6);
    return true;
}

static bool is_text(struct json_value value, const char *expected)
{
    char text[PART_MAX];
    return json_string(value, text, sizeof(text), NULL) && strcmp(text, expected) == 0;
}

static bool has_audience(struct json_value audience, const char *expected)
{
    struct json_value element;
    size_t cursor = 0;
    if (audience.kind == JSON_STRING)
        return is_text(audience, expected);
    while (json_next_element(audience, &cursor, &element))
        if (is_text(element, expected))
            return true;
    return false;
}

static bool read_user(struct json_value subject, char ret_user[AUTH_USER_SIZE])
{
    size_t length = 0;
    return json_string(subject, ret_user, AUTH_USER_SIZE, &length) && outbox_user_id_is_valid(ret_user, length);
}

static const char *read_claims(const struct auth *auth, struct slice part, struct claims *ret_claims)
{
    char text[PART_MAX];
    struct json_value object;
    const char *why = NULL;
    ret_claims->not_before_us = INT64_MIN;
    if (!read_object(part, text, &object)) {
        secret_wipe(text, sizeof(text));
        return "the token is malformed";
    }
    struct json_value not_before = json_member(object, "nbf");
    if (!read_date(json_member(object, "exp"), &ret_claims->expires_us))
        why = "the token has no usable exp";
    else if (not_before.kind != JSON_MISSING && !read_date(not_before, &ret_claims->not_before_us))
        why = "the token has no usable nbf";
    else if (auth->issuer && !is_text(json_member(object, "iss"), auth->issuer))
        why = "the token has another issuer";
    else if (auth->audience && !has_audience(json_member(object, "aud"), auth->audience))
        why = "the token is for another audience";
    else if (!read_user(json_member(object, "sub"), ret_claims->user))
        why = "the token has no usable sub";
    secret_wipe(text, sizeof(text));
    return why;
}

static const char *check_times(int64_t expires_us, int64_t not_before_us)
{
    int64_t now_us = clock_wall_us();
    if (now_us >= expires_us + LEEWAY_US)
        return "the token has expired";
    if (not_before_us != INT64_MIN && now_us < not_before_us - LEEWAY_US)
        return "the token is not valid yet";
    return NULL;
}

/* ---- one check ---- */

static bool digest_token(struct auth *auth, struct slice token, unsigned char ret_digest[DIGEST_SIZE])
{
    unsigned int length = 0;
    return EVP_DigestInit_ex2(auth->digest, auth->sha256, NULL) == 1 &&
           EVP_DigestUpdate(auth->digest, token.bytes, token.length) == 1 &&
           EVP_DigestFinal_ex(auth->digest, ret_digest, &length) == 1 && length == DIGEST_SIZE;
}

/* The slot of a digest; the digest itself is as good as random. */
static struct cache_entry *cache_slot(struct auth *auth, const unsigned char digest[DIGEST_SIZE])
{
    return &auth->cache[(digest[0] << 8 | digest[1]) & (CACHE_SIZE - 1)];
}

static const char *check_token(struct auth *auth, struct slice token, char ret_user[AUTH_USER_SIZE])
{
    unsigned char digest[DIGEST_SIZE];
    if (!digest_token(auth, token, digest))
        return "the token could not be checked";
    struct cache_entry *entry = cache_slot(auth, digest);
    if (entry->user[0] && memcmp(entry->digest, digest, sizeof(digest)) == 0) {
        const char *why = check_times(entry->expires_us, entry->not_before_us);
        if (!why)
            memcpy(ret_user, entry->user, sizeof(entry->user));
        return why;
    }
    struct parts parts;
    struct header header;
    struct claims claims = {.user = ""};
    if (!split(token, &parts))
        return "the token is malformed";
    const char *why = read_header(parts.header, &header);
    if (!why)
        why = check_signature(auth, &parts, &header);
    if (!why)
        why = read_claims(auth, parts.claims, &claims);
    if (!why)
        why = check_times(claims.expires_us, claims.not_before_us);
    if (why)
        return why;
    *entry = (struct cache_entry){.expires_us = claims.expires_us, .not_before_us = claims.not_before_us};
    memcpy(entry->digest, digest, sizeof(digest));
    memcpy(entry->user, claims.user, sizeof(claims.user));
    memcpy(ret_user, claims.user, sizeof(claims.user));
    return NULL;
}

bool auth_check(struct auth *auth, struct slice authorization, char ret_user[AUTH_USER_SIZE], const char **ret_why)
{
    static const char scheme[] = "Bearer ";
    struct slice token = {.bytes = authorization.bytes, .length = authorization.length};
    if (!token.bytes || token.length == 0) {
        *ret_why = "no token was sent";
        return false;
    }
    if (token.length < sizeof(scheme) - 1 || strncasecmp(token.bytes, scheme, sizeof(scheme) - 1) != 0) {
        *ret_why = "the scheme is not Bearer";
        return false;
    }
    size_t start = sizeof(scheme) - 1;
    while (start < token.length && token.bytes[start] == ' ')
        start++;
    token = (struct slice){.bytes = token.bytes + start, .length = token.length - start};
    if (token.length > AUTH_TOKEN_MAX) {
        *ret_why = "the token is too long";
        return false;
    }
    const char *why = check_token(auth, token, ret_user);
    if (why)
        *ret_why = why;
    return !why;
}

/* ---- open and close ---- */

static bool load_secret(struct auth *auth, const char *path, struct err *err)
{
    struct secret secret = {.bytes = NULL};
    if (!secret_load(&secret, path, err))
        return err_prefix(err, "auth.hs256_secret_file");
    if (secret.length < SECRET_MIN) {
        secret_done(&secret);
        return err_set(err, ERR_CONFIG, "auth.hs256_secret_file: %s: a secret must have %d bytes or more", path,
                       SECRET_MIN);
    }
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, "SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    EVP_MAC_free(hmac); /* the context has a reference of its own */
    /* From here on the context keeps the secret; later inits take it from there. */
    bool done = mac && EVP_MAC_init(mac, secret.bytes, secret.length, parameters) == 1;
    secret_done(&secret);
    if (!done) {
        EVP_MAC_CTX_free(mac);
        return err_set(err, ERR_SYSTEM, "auth.hs256_secret_file: OpenSSL has no HMAC with SHA-256");
    }
    EVP_MAC_CTX_free(auth->mac);
    auth->mac = mac;
    return true;
}

static bool load_jwks(struct auth *auth, const char *path, struct err *err)
{
    struct auth_keys keys = {.count = 0};
    if (!auth_jwks_load(path, &keys, err))
        return err_prefix(err, "auth.jwks_file");
    auth_keys_done(&auth->keys);
    auth->keys = keys;
    return true;
}

bool auth_reload(struct auth *auth, const struct config *config, void (*on_error)(const char *why))
{
    struct err err = {0};
    bool good = true;
    if (config->auth.hs256_secret_file && !load_secret(auth, config->auth.hs256_secret_file, &err)) {
        on_error(err.message);
        good = false;
    }
    if (config->auth.jwks_file && !load_jwks(auth, config->auth.jwks_file, &err)) {
        on_error(err.message);
        good = false;
    }
    /* What was verified by a key that may be gone has to prove itself again. */
    secret_wipe(auth->cache, CACHE_SIZE * sizeof(*auth->cache));
    return good;
}

static bool copy_text(const char *text, char **ret_copy, struct err *err)
{
    if (!text)
        return true;
    *ret_copy = strdup(text);
    return *ret_copy || err_set(err, ERR_MEMORY, "out of memory for auth");
}

static bool fill(struct auth *auth, const struct config *config, struct err *err)
{
    const char *secret_file = config->auth.hs256_secret_file, *jwks_file = config->auth.jwks_file;
    if (!secret_file && !jwks_file)
        return err_set(err, ERR_CONFIG, "no key for tokens: set auth.hs256_secret_file or auth.jwks_file");
    auth->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    auth->digest = EVP_MD_CTX_new();
    auth->cache = calloc(CACHE_SIZE, sizeof(*auth->cache));
    if (!auth->sha256 || !auth->digest || !auth->cache)
        return err_set(err, ERR_MEMORY, "out of memory for auth");
    if (jwks_file && !load_jwks(auth, jwks_file, err))
        return false;
    return (!secret_file || load_secret(auth, secret_file, err)) &&
           copy_text(config->auth.issuer, &auth->issuer, err) && copy_text(config->auth.audience, &auth->audience, err);
}

bool auth_open(const struct config *config, struct auth **ret_auth, struct err *err)
{
    struct auth *auth = calloc(1, sizeof(*auth));
    if (!auth)
        return err_set(err, ERR_MEMORY, "out of memory for auth");
    if (!fill(auth, config, err)) {
        auth_close(auth);
        return false;
    }
    *ret_auth = auth;
    return true;
}

void auth_close(struct auth *auth)
{
    if (!auth)
        return;
    auth_keys_done(&auth->keys);
    EVP_MAC_CTX_free(auth->mac);
    EVP_MD_CTX_free(auth->digest);
    EVP_MD_free(auth->sha256);
    if (auth->cache)
        secret_wipe(auth->cache, CACHE_SIZE * sizeof(*auth->cache));
    free(auth->cache);
    free(auth->issuer);
    free(auth->audience);
    free(auth);
}
