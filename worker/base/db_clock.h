/* Whether the database's clock has run evenly beside ours. Pure.
 *
 * Ages of sends are differences of the database's times. A clock that is set forward makes a send look older than it
 * is, and a look-up that found nothing would then decide while a create or delivery is still on its way. So each answer
 * that carries the database's time is compared with our own clock, which counts steadily: the difference of the two may
 * only drift. After a step, and after the start, when nothing is known yet, the clock counts as steady from then on. A
 * decision that rests on an age waits until the steady time covers that age. */
#ifndef ISSUING_DB_CLOCK_H
#define ISSUING_DB_CLOCK_H

#include "common/lib/base/base.h"

enum db_clock_step {
    DB_CLOCK_STEADY,
    DB_CLOCK_SET_FORWARD,
    DB_CLOCK_SET_BACK,
};

struct db_clock {
    bool is_known;
    int64_t low_us, high_us; /* bounds of (the database's time - ours) */
    int64_t steady_since_us; /* by our clock */
};

/* sent_us, answered_us: our clock when the statement was sent and answered; db_us: the database's clock in between. The
 * first call is not a step. */
enum db_clock_step db_clock_note(struct db_clock *clock, int64_t db_us, int64_t sent_us, int64_t answered_us);
/* How long the clock has been seen to run evenly; 0 = nothing is known. */
int64_t db_clock_steady_ms(const struct db_clock *clock, int64_t now_us);

#endif
