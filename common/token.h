/* Makes bearer tokens (JWT, HS256) for development, demos and tests. In production they come from elsewhere; api/auth.h
 * reads them. */
#ifndef ISSUING_TOKEN_H
#define ISSUING_TOKEN_H

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/secret.h"

/* Appends a token to out. key: 32 bytes or more (ERR_CONFIG). issuer and audience may be NULL; user is not checked, so
 * that bad ones can be made. */
must_check bool token_mint_hs256(const struct secret *key, const char *user, int64_t expires_at_s, const char *issuer,
                                 const char *audience, struct buf *out, struct err *err);

#endif
