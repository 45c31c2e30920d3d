/* Makes bearer tokens (JWT, HS256) for development, demos and tests. In production they come from elsewhere; api/auth.h
 * reads them. */
#ifndef ISSUING_TOKEN_H
#define ISSUING_TOKEN_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"
#include "common/lib/base/secret.h"

#define TOKEN_SECRET_MIN 32 /* bytes of a secret for HS256 */

/* Appends a token to out. key: TOKEN_SECRET_MIN bytes or more, otherwise ERR_CONFIG. issuer and audience may be NULL.
 * user is not checked, so that tests can make tokens with a bad one. */
must_check bool token_mint_hs256(const struct secret *key, const char *user, int64_t expires_at_s, const char *issuer,
                                 const char *audience, struct buf *out, struct err *err);

#endif
