/* SHA-256 (FIPS 180-4), for fingerprints and cache keys. */
#ifndef ISSUING_DIGEST_H
#define ISSUING_DIGEST_H

#include "common/lib/base/base.h"

#define DIGEST_SIZE 32

void digest_sha256(const void *bytes, size_t length, unsigned char ret_digest[DIGEST_SIZE]);

#endif
