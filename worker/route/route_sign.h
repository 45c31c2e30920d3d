/* Signs deliveries as Standard Webhooks 1.0.0 says: webhook-id, webhook-timestamp and webhook-signature, an HMAC-SHA256
 * over "<id>.<timestamp>.<body>" in base64. A file holds one secret or two, each on its own line, as "whsec_<base64>"
 * of 24 to 64 bytes; with two secrets both sign, so that receivers can change theirs meanwhile. */
#ifndef ISSUING_ROUTE_SIGN_H
#define ISSUING_ROUTE_SIGN_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

#define ROUTE_SECRETS_MAX 2
#define ROUTE_SIGNATURE_SIZE (ROUTE_SECRETS_MAX * 48 + 1) /* "v1,<44 characters>" for each, a blank between, a NUL */

struct route_signer;

/* Reads the secrets of a file. ERR_CONFIG without any part of a secret in it. */
must_check bool route_signer_load(const char *path, struct route_signer **ret_signer, struct err *err);
/* Wipes and frees; accepts NULL. */
void route_signer_free(struct route_signer *signer);
/* The value of webhook-signature. timestamp_s: Unix time. False: the digest failed. */
must_check bool route_sign(const struct route_signer *signer, const char *id, int64_t timestamp_s, struct slice body,
                           char ret_signature[ROUTE_SIGNATURE_SIZE]);
/* Overwrites with '*' what a peer's words repeat of the secrets. NULL is accepted. */
void route_signer_hide(const struct route_signer *signer, char *text);
/* Whether one of the secrets is in the text. NULL has none. */
bool route_signer_is_in(const struct route_signer *signer, struct slice text);

#endif
