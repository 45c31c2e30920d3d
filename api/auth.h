/* Bearer tokens: JWT (RFC 7519, 7515) with HS256, RS256, ES256 or EdDSA. The algorithm belongs to the key, never to the
 * token's header.
 *
 * Accepted only: three base64url parts without padding, header with `alg` of the key and no `crit`, `jwk`-style keys
 * ignored, duplicate members
 * refused, `exp` required (leeway 30 s), `nbf` checked where present, `iss` / `aud` where configured, `sub` 1-128 bytes
 * of 0x20-0x7E, and neither "." nor "..". */
#ifndef ISSUING_AUTH_H
#define ISSUING_AUTH_H

#include "common/base.h"
#include "common/config.h"
#include "common/err.h"

struct auth;

#define AUTH_TOKEN_MAX 8192
#define AUTH_USER_SIZE 129

/* Loads config->auth.hs256_secret_file (32 bytes or more) and config->auth.jwks_file. Refuses weak keys: RSA under 2048
 * bits or e < 3, curves other than
 * P-256 / Ed25519, duplicate kid, a key whose alg and kty disagree, symmetric keys in the JWKS. ERR_CONFIG. */
must_check bool auth_open(const struct config *config, struct auth **ret_auth, struct err *err);
/* Reads both files again. One that cannot be used leaves the old keys in force and is told to on_error; false then. Tokens
 * that were remembered are verified anew. */
bool auth_reload(struct auth *auth, const struct config *config, void (*on_error)(const char *why));
void auth_close(struct auth *auth);

/* authorization: the header's value, {NULL,0} if absent. On success ret_user is NUL-terminated. On failure *ret_why is
 * a static phrase for the
 * WWW-Authenticate error_description ("the token has expired"), never token bytes. A small cache of verified tokens
 * (keyed by SHA-256, never past exp)
 * spares the signature check for repeats. */
must_check bool auth_check(struct auth *auth, struct slice authorization, char ret_user[AUTH_USER_SIZE],
                           const char **ret_why);

#endif
