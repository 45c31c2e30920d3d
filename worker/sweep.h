/* What lies behind the claims' bookmark and should not: leases that ran out, and events that became visible late.
 *
 * The claims walk the index of due events from their bookmark on and never look back. The sweep does, in stretches of
 * age: the youngest is two seconds long, each older one ten times the one before, the last without end. A stretch is
 * looked at again after a hundred times as long as the last look took, and not before the next poll: where the index
 * is clean that is every poll; behind a snapshot that somebody holds open, where a look visits every entry that no
 * vacuum may remove, it is as often as one per cent of the time allows. */
#ifndef ISSUING_SWEEP_H
#define ISSUING_SWEEP_H

#include "common/base.h"
#include "common/err.h"

struct worker;
struct sweep;

must_check bool sweep_open(struct worker *worker, struct sweep **ret_sweep, struct err *err);
/* No look starts after it. */
void sweep_stop(struct sweep *sweep);
bool sweep_is_idle(const struct sweep *sweep);
/* Wants an idle one. on_closed from the loop. */
void sweep_close(struct sweep *sweep, void (*on_closed)(void *context), void *context);

#endif
