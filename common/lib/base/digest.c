/* See digest.h. */
#include "common/lib/base/digest.h"

#include <openssl/sha.h>

void digest_sha256(const void *bytes, size_t length, unsigned char ret_digest[DIGEST_SIZE])
{
    (void)SHA256(bytes, length, ret_digest); /* returns its third argument */
}
