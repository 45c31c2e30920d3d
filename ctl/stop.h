/* Ctrl-C and SIGTERM during a longer command: the command stops between two rows, and reports what it has done. */
#ifndef ISSUING_CTL_STOP_H
#define ISSUING_CTL_STOP_H

#include "common/lib/base/base.h"

/* From now on the first signal only sets stop_is_requested(); a second one kills the program, as without this. */
void stop_watch(void);
bool stop_is_requested(void);
/* Sleeps until a time of clock_mono_us(). False: stopped before. */
bool stop_sleep_until(int64_t mono_us);

#endif
