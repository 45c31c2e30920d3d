/* See auth_token.h.
 *
 * Invariants: nothing in a token is used before its signature fits, except to select which of OUR keys to try; the
 * header's `alg` must then be that key's. Decoded parts of a token are wiped.
 * Left out: signatures of public keys (auth_key.c), the caches of verified and refused tokens (auth.c). */
#include "api/auth_token.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/core/outbox.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/secret.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"

#define LEEWAY_US (30 * 1000000LL)
#define NUMERIC_DATE_MAX 1e12 /* seconds: the year 33658; fits int64 in microseconds */
#define PART_MAX (AUTH_TOKEN_MAX / 4 * 3)

/* ---- parts ---- */

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

/* The index of a member's name among those that are read; -1 = another name. */
static int registered(struct slice name)
{
    static const char *const names[] = {"alg", "aud", "crit", "exp", "iat", "iss", "jti", "kid", "nbf", "sub", "typ"};
    char text[8];
    if (!json_string((struct json_value){.kind = JSON_STRING, .raw = name}, text, sizeof(text), NULL))
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(text, names[i]) == 0)
            return (int)i;
    return -1;
}

/* A registered name may stand there once, and plainly: a proxy that chooses by `sub`, and takes the other one of two or
 * does not resolve "\u0073ub", would take another user, or none. Names that are others' may have escapes
 * ("https:\/\/...") and be there twice. */
static bool names_are_plain(struct json_value object)
{
    struct json_value value;
    struct slice name;
    size_t cursor = 0;
    unsigned seen = 0;
    while (json_next_member(object, &cursor, &name, &value)) {
        int which = registered(name);
        unsigned bit = which < 0 ? 0 : 1u << which;
        /* guard: the name of a claim is spelled plainly */
        if (bit != 0 && memchr(name.bytes, '\\', name.length))
            return false;
        /* guard: a claim stands in a token once */
        if (seen & bit)
            return false;
        seen |= bit;
    }
    return true;
}

/* Decodes a part into `text` and checks that it is a JSON object with plain names. */
static bool read_object(struct slice part, char text[PART_MAX], struct json_value *ret_object)
{
    size_t length = 0;
    if (!auth_base64url(part, (unsigned char *)text, PART_MAX, &length) || !json_grammar_check(text, length, NULL))
        return false;
    *ret_object = json_value_of(text, length);
    return ret_object->kind == JSON_OBJECT && names_are_plain(*ret_object);
}

/* ---- header and signature ---- */

struct header {
    enum auth_algorithm algorithm;
    bool has_kid;
    char kid[AUTH_KID_SIZE];
};

/* RFC 7515, 4.1.9: "JWT" is short for "application/jwt"; RFC 9068 for at+jwt. */
static bool is_token_type(struct json_value type)
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
static bool read_header(const struct auth_verifier *verifier, struct slice part, struct header *ret_header,
                        enum auth_refusal *ret_refusal)
{
    char text[PART_MAX], algorithm[16];
    struct json_value object;
    *ret_header = (struct header){.has_kid = false};
    if (!read_object(part, text, &object))
        return auth_refuse(AUTH_REFUSED_MALFORMED, ret_refusal);
    struct json_value kid = json_member(object, "kid");
    if (!json_string(json_member(object, "alg"), algorithm, sizeof(algorithm), NULL) ||
        !auth_algorithm_parse(algorithm, &ret_header->algorithm))
        return auth_refuse(AUTH_REFUSED_ALGORITHM, ret_refusal);
    if (json_member(object, "crit").kind != JSON_MISSING)
        return auth_refuse(AUTH_REFUSED_CRITICAL, ret_refusal);
    if (!is_token_type(json_member(object, "typ")))
        return auth_refuse(AUTH_REFUSED_TYPE, ret_refusal);
    if (kid.kind != JSON_MISSING && !json_string(kid, ret_header->kid, sizeof(ret_header->kid), NULL))
        return auth_refuse(AUTH_REFUSED_KEY, ret_refusal);
    ret_header->has_kid = kid.kind != JSON_MISSING;
    return ret_header->has_kid || !verifier->require_kid || auth_refuse(AUTH_REFUSED_NO_KID, ret_refusal);
}

static bool fits_secret(struct auth_verifier *verifier, struct slice text, const unsigned char *signature,
                        size_t length)
{
    unsigned char mac[DIGEST_SIZE];
    verifier->signatures_checked++;
    bool fits = hmac_digest(verifier->hmac, (struct slice){"", 0}, text, mac) &&
                secret_equal(mac, sizeof(mac), signature, length);
    secret_wipe(mac, sizeof(mac));
    return fits;
}

static const struct auth_key *find_key(const struct auth_verifier *verifier, const char *kid)
{
    for (size_t i = 0; i < verifier->keys.count; i++)
        if (verifier->keys.keys[i].has_kid && strcmp(verifier->keys.keys[i].kid, kid) == 0)
            return &verifier->keys.keys[i];
    return NULL;
}

static bool fits_key(struct auth_verifier *verifier, const struct auth_key *key, struct slice text,
                     const unsigned char *signature, size_t length)
{
    verifier->signatures_checked++;
    return auth_key_verify(key, text, signature, length);
}

/* The signature fits one of the keys that the header may mean. */
static bool check_signature(struct auth_verifier *verifier, const struct parts *parts, const struct header *header,
                            enum auth_refusal *ret_refusal)
{
    unsigned char signature[PART_MAX];
    size_t length = 0;
    if (!auth_base64url(parts->signature, signature, sizeof(signature), &length))
        return auth_refuse(AUTH_REFUSED_MALFORMED, ret_refusal);
    bool fits = false, tried = false;
    const struct auth_key *named = header->has_kid ? find_key(verifier, header->kid) : NULL;
    if (named) {
        tried = named->algorithm == header->algorithm;
        fits = tried && fits_key(verifier, named, parts->signed_text, signature, length);
    } else if (header->algorithm == AUTH_HS256) {
        /* The secret has no kid, so a token for it may carry any that is not a public key's. */
        tried = verifier->hmac != NULL;
        fits = tried && fits_secret(verifier, parts->signed_text, signature, length);
    } else if (!header->has_kid) {
        for (size_t i = 0; i < verifier->keys.count && !fits; i++) {
            /* guard: the algorithm belongs to the key */
            if (verifier->keys.keys[i].algorithm != header->algorithm)
                continue;
            tried = true;
            fits = fits_key(verifier, &verifier->keys.keys[i], parts->signed_text, signature, length);
        }
    }
    secret_wipe(signature, length);
    return fits || auth_refuse(tried ? AUTH_REFUSED_SIGNATURE : AUTH_REFUSED_KEY, ret_refusal);
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

static bool read_claims(const struct auth_verifier *verifier, struct slice part, struct auth_claims *ret_claims,
                        enum auth_refusal *ret_refusal)
{
    char text[PART_MAX];
    struct json_value object;
    bool fits = false;
    ret_claims->not_before_us = INT64_MIN;
    if (!read_object(part, text, &object)) {
        secret_wipe(text, sizeof(text));
        return auth_refuse(AUTH_REFUSED_MALFORMED, ret_refusal);
    }
    struct json_value not_before = json_member(object, "nbf");
    if (!read_date(json_member(object, "exp"), &ret_claims->expires_us))
        *ret_refusal = AUTH_REFUSED_EXPIRY;
    else if (not_before.kind != JSON_MISSING && !read_date(not_before, &ret_claims->not_before_us))
        *ret_refusal = AUTH_REFUSED_START;
    else if (verifier->issuer && !is_text(json_member(object, "iss"), verifier->issuer))
        *ret_refusal = AUTH_REFUSED_ISSUER;
    else if (verifier->audience && !has_audience(json_member(object, "aud"), verifier->audience))
        *ret_refusal = AUTH_REFUSED_AUDIENCE;
    else if (!read_user(json_member(object, "sub"), ret_claims->user))
        *ret_refusal = AUTH_REFUSED_SUBJECT;
    else
        fits = true;
    secret_wipe(text, sizeof(text));
    return fits;
}

bool auth_token_check_times(const struct auth_verifier *verifier, const struct auth_claims *claims,
                            enum auth_refusal *ret_refusal)
{
    int64_t now_us = clock_wall_us();
    if (now_us >= claims->expires_us + LEEWAY_US)
        return auth_refuse(AUTH_REFUSED_EXPIRED, ret_refusal);
    if (claims->not_before_us != INT64_MIN && now_us < claims->not_before_us - LEEWAY_US)
        return auth_refuse(AUTH_REFUSED_EARLY, ret_refusal);
    if (verifier->max_lifetime_us > 0 && claims->expires_us - now_us > verifier->max_lifetime_us + LEEWAY_US)
        return auth_refuse(AUTH_REFUSED_LIFETIME, ret_refusal);
    return true;
}

bool auth_token_read(struct auth_verifier *verifier, struct slice token, struct auth_claims *ret_claims,
                     enum auth_refusal *ret_refusal)
{
    struct parts parts;
    struct header header;
    if (!split(token, &parts))
        return auth_refuse(AUTH_REFUSED_MALFORMED, ret_refusal);
    return read_header(verifier, parts.header, &header, ret_refusal) &&
           check_signature(verifier, &parts, &header, ret_refusal) &&
           read_claims(verifier, parts.claims, ret_claims, ret_refusal) &&
           auth_token_check_times(verifier, ret_claims, ret_refusal);
}
