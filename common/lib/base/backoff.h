/* Pure: attempt number -> how long to wait (exponential, full jitter: AWS Architecture Blog, "Exponential Backoff And
 * Jitter"). */
#ifndef ISSUING_BACKOFF_H
#define ISSUING_BACKOFF_H

#include "common/lib/base/base.h"

/* The ceiling before jitter: base * 2^(attempt-1), at most cap. attempt counts from 1. */
int64_t backoff_ceiling_ms(int attempt, int64_t base_ms, int64_t cap_ms);
/* Uniform in [0, ceiling]; `random` is any 64 random bits. */
int64_t backoff_delay_ms(int attempt, int64_t base_ms, int64_t cap_ms, uint64_t random);
/* 64 random bits from the process's own generator (seeded by the kernel; a test may seed it). Not for keys. */
uint64_t backoff_random(void);
void backoff_seed(uint64_t seed);

#endif
