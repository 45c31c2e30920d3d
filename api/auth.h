/* Bearer tokens: JWT (RFC 7519, RFC 7515) with HS256, RS256, ES256 or EdDSA. The key determines the algorithm; the
 * token's header never does.
 *
 * A token is accepted only when all of this holds:
 * - it has three base64url parts without padding, and no object in it has a member twice;
 * - the header has the `alg` of the key and no `crit`; `kid`, where auth.require_kid is set; keys in it are ignored;
 * - `exp` is there and not over (leeway 30 s) and, where auth.max_lifetime is set, not further away than that;
 * - `nbf`, if it is there, is not in the future (leeway 30 s); `iss` and `aud` are as configured;
 * - `sub` has 1 to 128 bytes of 0x20-0x7E, and is neither "." nor "..". */
#ifndef ISSUING_AUTH_H
#define ISSUING_AUTH_H

#include "common/core/config/config.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

struct auth;

/* Why a token is refused: the word for the metric and the log, and the phrase that the client gets. */
#define AUTH_REFUSALS(X)                                                      \
    X(MISSING, "missing", "no token was sent")                                \
    X(REPEATED, "repeated", "there are two Authorization headers")            \
    X(SCHEME, "scheme", "the scheme is not Bearer")                           \
    X(TOO_LONG, "too_long", "the token is too long")                          \
    X(MALFORMED, "malformed", "the token is malformed")                       \
    X(ALGORITHM, "algorithm", "the token's algorithm is not accepted")        \
    X(CRITICAL, "critical", "the token has a critical extension")             \
    X(TYPE, "type", "the token is of another type")                           \
    X(NO_KID, "no_kid", "the token names no key")                             \
    X(KEY, "unknown_key", "the token's key is unknown")                       \
    X(SIGNATURE, "signature", "the token's signature does not fit")           \
    X(EXPIRY, "expiry", "the token has no usable exp")                        \
    X(START, "start", "the token has no usable nbf")                          \
    X(ISSUER, "issuer", "the token has another issuer")                       \
    X(AUDIENCE, "audience", "the token is for another audience")              \
    X(SUBJECT, "subject", "the token has no usable sub")                      \
    X(EXPIRED, "expired", "the token has expired")                            \
    X(EARLY, "not_yet_valid", "the token is not valid yet")                   \
    X(LIFETIME, "lifetime", "the token is valid for longer than is accepted") \
    X(UNCHECKED, "unchecked", "the token could not be checked")

enum auth_refusal {
#define X(id, word, text) AUTH_REFUSED_##id,
    AUTH_REFUSALS(X)
#undef X
        AUTH_REFUSAL_COUNT
};

const char *auth_refusal_word(enum auth_refusal refusal);
const char *auth_refusal_text(enum auth_refusal refusal);

#define AUTH_TOKEN_MAX 8192
#define AUTH_USER_SIZE 129

/* Loads config->auth.hs256_secret_file (at least 32 bytes, at least 8 different ones) and config->auth.jwks_file.
 * Refuses files that others may write, and weak keys: RSA below 2048 bits or with e < 3, points that are not on P-256,
 * Ed25519 keys of small order, a kid used twice, a key whose alg and kty disagree, symmetric keys in the JWKS.
 * ERR_CONFIG. */
must_check bool auth_open(const struct config *config, struct auth **ret_auth, struct err *err);
/* Reads both files again. A file that cannot be used leaves the old keys in force and is reported to on_error; the
 * result is false then. Remembered tokens, accepted and refused ones, are verified again. */
bool auth_reload(struct auth *auth, const struct config *config, void (*on_error)(const char *why));
void auth_close(struct auth *auth);

/* authorization: the header's value, {NULL,0} if absent. On success ret_user is NUL-terminated. On failure *ret_refusal
 * is the reason. Two caches, keyed by SHA-256, save the signature check of repeats: one of accepted tokens, never past
 * exp, and one of tokens whose signature fitted no key, for a second. */
must_check bool auth_check(struct auth *auth, struct slice authorization, char ret_user[AUTH_USER_SIZE],
                           enum auth_refusal *ret_refusal);

/* How many keys of the JWKS are for other algorithms, curves or uses. */
size_t auth_unused_keys(const struct auth *auth);
/* How many signatures were computed so far: for tests. */
uint64_t auth_signatures_checked(const struct auth *auth);

#endif
