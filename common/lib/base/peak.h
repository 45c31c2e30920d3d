/* The highest value of the last minute. Looking at it changes nothing, so any number of scrapers see the same peak.
 * Pure; starts as all zeros. Values are not negative. */
#ifndef ISSUING_PEAK_H
#define ISSUING_PEAK_H

#include "common/lib/base/base.h"

#define PEAK_SLOTS 7 /* one of them is being filled */
#define PEAK_SLOT_MS 10000

struct peak {
    int64_t slot; /* the newest, by its number since the clock's beginning */
    int64_t highest[PEAK_SLOTS];
};

void peak_note(struct peak *peak, int64_t value, int64_t now_ms);
/* Of the last 60 to 70 seconds; 0 = nothing was noted. now_ms: monotonic, as for peak_note(). */
int64_t peak_highest(struct peak *peak, int64_t now_ms);

#endif
