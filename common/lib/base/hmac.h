/* HMAC-SHA256 (RFC 2104) under a key that is set up once, and the form in which Standard Webhooks 1.0.0 writes keys. */
#ifndef ISSUING_HMAC_H
#define ISSUING_HMAC_H

#include "common/lib/base/base.h"
#include "common/lib/base/digest.h"
#include "common/lib/base/err.h"

#define WHSEC_PREFIX "whsec_"
#define WHSEC_KEY_MIN 24 /* bytes, decoded */
#define WHSEC_KEY_MAX 64

struct hmac;

must_check struct hmac *hmac_new(const void *key, size_t length, struct err *err);
/* The key is overwritten; accepts NULL. */
void hmac_free(struct hmac *hmac);
/* The digest of head and body, one behind the other. False: OpenSSL failed. */
must_check bool hmac_digest(const struct hmac *hmac, struct slice head, struct slice body,
                            unsigned char ret_digest[DIGEST_SIZE]);
/* "whsec_" and the base64 of 24 to 64 bytes, with padding and in its one form. Returns the number of bytes; 0 = the
 * text is not such a key. The caller wipes the key. */
size_t hmac_read_whsec(struct slice text, unsigned char ret_key[WHSEC_KEY_MAX + 2]);

#endif
