/* Random bytes of the kernel, some KiB of them at a time: for ids, tokens and nonces. */
#ifndef ISSUING_RANDOM_POOL_H
#define ISSUING_RANDOM_POOL_H

#include "common/lib/base/base.h"

#define RANDOM_POOL_MAX 64 /* bytes that can be taken at once */

/* Aborts only if the kernel has no randomness. */
void random_pool_take(void *out, size_t length);

#endif
