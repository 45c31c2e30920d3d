/* Two clients of one limiter under a fixed schedule, so that an anomaly is shown each time and not by chance. */
#ifndef ISSUING_BENCH_INTERLEAVE_H
#define ISSUING_BENCH_INTERLEAVE_H

#include "bench/limiters/limiter.h"
#include "bench/limiters/session.h"

/* Both sessions are open; their requests are of one user. Words of the schedule: `a` or `b`: the next step of that
 * session; `a*`: all its steps up to the end; `pause:MS`; `wait:MS%PERIOD`: until the wall clock is MS past a multiple
 * of PERIOD. A step that waits for a lock of the other session is left waiting, and the schedule goes on; the session's
 * next word waits for it first. What is left after the schedule runs to its end, a first. Prints each step with what
 * came of it, then both results. */
void interleave_run(struct session *a, struct session *b, const char *schedule, const char *conninfo);

#endif
