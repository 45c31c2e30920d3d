/* See db_clock.h. */
#include "worker/base/db_clock.h"

#define TOLERANCE_US 500000 /* more between two answers is a step, less is drift */

enum db_clock_step db_clock_note(struct db_clock *clock, int64_t db_us, int64_t sent_us, int64_t answered_us)
{
    int64_t low_us = db_us - answered_us, high_us = db_us - sent_us;
    enum db_clock_step step = DB_CLOCK_STEADY;
    if (!clock->is_known) {
        clock->steady_since_us = answered_us;
    } else if (low_us > clock->high_us + TOLERANCE_US) {
        step = DB_CLOCK_SET_FORWARD;
        clock->steady_since_us = answered_us;
    } else if (high_us < clock->low_us - TOLERANCE_US) {
        step = DB_CLOCK_SET_BACK;
        clock->steady_since_us = answered_us;
    } else if (high_us - low_us > TOLERANCE_US && high_us - low_us > clock->high_us - clock->low_us) {
        return step; /* a slow answer shows less than what is known */
    }
    clock->is_known = true;
    clock->low_us = low_us;
    clock->high_us = high_us;
    return step;
}

int64_t db_clock_steady_ms(const struct db_clock *clock, int64_t now_us)
{
    return clock->is_known && now_us > clock->steady_since_us ? (now_us - clock->steady_since_us) / 1000 : 0;
}
