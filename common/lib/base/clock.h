/* The only source of "now" in C. Durations use the monotonic clock; the database's clock decides windows, leases and
 * schedules, so the wall clock here only stamps logs, ids and checks tokens.
 *
 * The timers of libuv stand still while the machine is suspended, so a timer only wakes the loop; clock_mono_ms()
 * decides whether a time is over. */
#ifndef ISSUING_CLOCK_H
#define ISSUING_CLOCK_H

#include "common/lib/base/base.h"

#define CLOCK_RFC3339_SIZE 28 /* "2026-11-20T10:39:57.123456Z" and its NUL */

int64_t clock_wall_us(void); /* since 1970, UTC */
int64_t clock_mono_us(void); /* since an arbitrary start; never goes back; includes the time of a suspension */
int64_t clock_mono_ms(void);

/* RFC 3339, UTC, microseconds: the one form of a time in every answer, log and table. */
void clock_format(int64_t wall_us, char ret_text[CLOCK_RFC3339_SIZE]);

/* For tests, until clock_release(): freezes both clocks at these values; or lets both jump ahead and run on, as after a
 * suspension. */
void clock_freeze(int64_t wall_us, int64_t mono_us);
void clock_advance(int64_t us);
void clock_release(void);

#endif
