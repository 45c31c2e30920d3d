/* Checks deliveries of webhooks as Standard Webhooks 1.0.0 says: webhook-signature has, among others, "v1," and the
 * base64 of an HMAC-SHA256 over "<webhook-id>.<webhook-timestamp>.<body>". Written from that text; shares nothing with
 * what signs. */
#ifndef ISSUING_SANDBOX_SIGNATURE_H
#define ISSUING_SANDBOX_SIGNATURE_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/secret.h"
#include "common/lib/http_server/http_server.h"

/* Reads the first line of the file, "whsec_<base64>". ERR_CONFIG. */
must_check bool signature_load(const char *path, struct secret *ret_key, struct err *err);
/* What is wrong with the delivery: a code of bad_signature, bad_timestamp, no_signature. NULL = nothing. */
const char *signature_check(const struct secret *key, const struct http_request *request, int64_t now_s);

#endif
