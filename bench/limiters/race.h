/* Many clients of one limiter at once. */
#ifndef ISSUING_BENCH_RACE_H
#define ISSUING_BENCH_RACE_H

#include <stdint.h>

#include "bench/limiters/limiter.h"

struct race {
    const struct limiter *limiter;
    const char *conninfo, *redis_address;
    int64_t window_ms;
    uint64_t seed;
};

/* `groups` groups of `size` clients, side by side. In each of `rounds` rounds a group has a new user, of whom `limit`
 * requests may be accepted; its clients begin together, each up to `spread_us` late. Prints one line of JSON: how many
 * requests were accepted beyond the limit, and how many were refused though the limit was not reached. */
void race_run(const struct race *race, int groups, int size, int rounds, int limit, int spread_us);
/* `clients` clients for `seconds`, each request of another user. Prints throughput and latency. */
void race_load(const struct race *race, int clients, int seconds);

#endif
