/* What runs beside the flow: the gauges of the outbox, and the pass that makes the next partitions and drops those whose
 * retention is over, by one worker of the cluster at a time, in short transactions. */
#ifndef ISSUING_HOUSEKEEPING_H
#define ISSUING_HOUSEKEEPING_H

#include "common/base.h"
#include "common/err.h"

struct worker;
struct housekeeping;

must_check bool housekeeping_open(struct worker *worker, struct housekeeping **ret_housekeeping, struct err *err);
void housekeeping_stop(struct housekeeping *housekeeping);
bool housekeeping_is_idle(const struct housekeeping *housekeeping);
void housekeeping_close(struct housekeeping *housekeeping, void (*on_closed)(void *context), void *context);

#endif
