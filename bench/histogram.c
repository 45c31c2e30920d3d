/* See histogram.h. Values below 2 x HISTOGRAM_STEPS have a bucket each; above, each doubling has HISTOGRAM_STEPS. */
#include "bench/histogram.h"

#include <string.h>

#include "common/lib/base/base.h"

void histogram_clear(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
}

static size_t bucket_of(int64_t time_us)
{
    uint64_t value = time_us > 0 ? (uint64_t)time_us : 0;
    unsigned shift = 0;
    while (value >> shift >= 2 * HISTOGRAM_STEPS)
        shift++;
    size_t bucket = (size_t)shift * HISTOGRAM_STEPS + (size_t)(value >> shift);
    return bucket < HISTOGRAM_STEPS * HISTOGRAM_DOUBLINGS ? bucket : HISTOGRAM_STEPS * HISTOGRAM_DOUBLINGS - 1;
}

/* The middle of what falls into the bucket. */
static int64_t time_of(size_t bucket)
{
    if (bucket < (size_t)2 * HISTOGRAM_STEPS)
        return (int64_t)bucket;
    unsigned shift = (unsigned)(bucket / HISTOGRAM_STEPS) - 1;
    int64_t low = (int64_t)((bucket - (size_t)shift * HISTOGRAM_STEPS) << shift);
    return low + ((INT64_C(1) << shift) >> 1);
}

void histogram_add(struct histogram *histogram, int64_t time_us)
{
    histogram->counts[bucket_of(time_us)]++;
    histogram->count++;
    if (time_us > histogram->max_us)
        histogram->max_us = time_us;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (size_t bucket = 0; bucket < ARRAY_SIZE(into->counts); bucket++)
        into->counts[bucket] += from->counts[bucket];
    into->count += from->count;
    if (from->max_us > into->max_us)
        into->max_us = from->max_us;
}

int64_t histogram_at(const struct histogram *histogram, double share)
{
    uint64_t wanted = (uint64_t)((double)histogram->count * share + 0.5), seen = 0;
    if (wanted == 0)
        wanted = 1;
    for (size_t bucket = 0; bucket < ARRAY_SIZE(histogram->counts); bucket++) {
        seen += histogram->counts[bucket];
        if (seen >= wanted) {
            int64_t middle = time_of(bucket);
            return middle < histogram->max_us ? middle : histogram->max_us;
        }
    }
    return 0;
}
