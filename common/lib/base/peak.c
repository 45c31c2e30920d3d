/* See peak.h. */
#include "common/lib/base/peak.h"

/* Empties the slots that time has passed over. */
static void advance(struct peak *peak, int64_t now_ms)
{
    int64_t slot = now_ms / PEAK_SLOT_MS;
    if (slot - peak->slot > PEAK_SLOTS)
        peak->slot = slot - PEAK_SLOTS;
    while (peak->slot < slot)
        peak->highest[++peak->slot % PEAK_SLOTS] = 0;
}

void peak_note(struct peak *peak, int64_t value, int64_t now_ms)
{
    advance(peak, now_ms);
    int64_t *highest = &peak->highest[peak->slot % PEAK_SLOTS];
    if (value > *highest)
        *highest = value;
}

int64_t peak_highest(struct peak *peak, int64_t now_ms)
{
    int64_t highest = 0;
    advance(peak, now_ms);
    for (int i = 0; i < PEAK_SLOTS; i++)
        if (peak->highest[i] > highest)
            highest = peak->highest[i];
    return highest;
}
