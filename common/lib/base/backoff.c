/* How long to wait before the next attempt.
 *
 * Invariants: 0 <= delay <= ceiling <= cap, for any input; no arithmetic overflows.
 * Left out: who counts attempts and what a deferral is; the worker knows. */
#include "common/lib/base/backoff.h"

#include <sys/random.h>

#include "common/lib/base/clock.h"

static uint64_t state;
static bool seeded;

int64_t backoff_ceiling_ms(int attempt, int64_t base_ms, int64_t cap_ms)
{
    if (base_ms <= 0 || cap_ms <= 0)
        return 0;
    int64_t ceiling_ms = base_ms;
    for (int i = 1; i < attempt && ceiling_ms < cap_ms; i++) {
        if (ceiling_ms > cap_ms / 2)
            return cap_ms;
        ceiling_ms *= 2;
    }
    return ceiling_ms < cap_ms ? ceiling_ms : cap_ms;
}

int64_t backoff_delay_ms(int attempt, int64_t base_ms, int64_t cap_ms, uint64_t random)
{
    uint64_t choices = (uint64_t)backoff_ceiling_ms(attempt, base_ms, cap_ms) + 1;
    /* The high half of the product is uniform over the choices without a division (Lemire 2018). */
    __extension__ typedef unsigned __int128 wide;
    return (int64_t)((wide)random * choices >> 64);
}

void backoff_seed(uint64_t seed)
{
    state = seed;
    seeded = true;
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t backoff_random(void)
{
    if (!seeded) {
        uint64_t seed;
        /* Jitter without the kernel's randomness is still jitter: the clocks of two processes differ. */
        if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
            seed = (uint64_t)clock_wall_us() ^ (uint64_t)clock_mono_us() << 32;
        backoff_seed(seed);
    }
    state += 0x9e3779b97f4a7c15U;
    uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
}
