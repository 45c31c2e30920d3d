/* Times in buckets of at most 0.8 % width, from one microsecond to hours: exact enough for percentiles, and of a fixed
 * size however many there are. */
#ifndef ISSUING_BENCH_HISTOGRAM_H
#define ISSUING_BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEPS 128 /* of one doubling */
#define HISTOGRAM_DOUBLINGS 28

struct histogram {
    uint64_t counts[HISTOGRAM_STEPS * HISTOGRAM_DOUBLINGS];
    uint64_t count;
    int64_t max_us;
};

void histogram_clear(struct histogram *histogram);
/* Negative ones count as 0, those beyond the last bucket as the last. */
void histogram_add(struct histogram *histogram, int64_t time_us);
void histogram_merge(struct histogram *into, const struct histogram *from);
/* The smallest time that `share` (0 to 1) of all are not above, in microseconds; 0 when there are none. */
int64_t histogram_at(const struct histogram *histogram, double share);

#endif
