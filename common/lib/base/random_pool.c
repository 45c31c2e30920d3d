/* See random_pool.h.
 *
 * Invariants: random bytes are used once and overwritten; a child after fork(2) starts with none.
 * Left out: threads; bytes are taken on the loop only. */
#include "common/lib/base/random_pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define POOL_SIZE 4096

static unsigned char pool[POOL_SIZE];
static size_t pool_left; /* unused bytes, at the end of the pool */
static bool fork_watched;

static void drop_pool(void)
{
    explicit_bzero(pool, sizeof(pool));
    pool_left = 0;
}

static void fill_pool(void)
{
    if (!fork_watched) {
        /* Without the handler a child would repeat its parent's bytes: better none at all. */
        if (pthread_atfork(NULL, NULL, drop_pool) != 0)
            abort();
        fork_watched = true;
    }
    size_t have = 0;
    while (have < sizeof(pool)) {
        ssize_t count = getrandom(pool + have, sizeof(pool) - have, 0);
        if (count > 0)
            have += (size_t)count;
        else if (errno != EINTR)
            abort();
    }
    pool_left = sizeof(pool);
}

void random_pool_take(void *out, size_t length)
{
    assert(length <= RANDOM_POOL_MAX);
    if (pool_left < length)
        fill_pool();
    unsigned char *from = pool + sizeof(pool) - pool_left;
    memcpy(out, from, length);
    explicit_bzero(from, length);
    /* guard: no random byte is used twice */
    pool_left -= length;
}
