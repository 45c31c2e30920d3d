/* What runs beside the attempts: the pass that makes the next partitions and drops those whose retention is over; by one
 * worker of the cluster at a time, in short transactions. */
#ifndef ISSUING_HOUSEKEEPING_H
#define ISSUING_HOUSEKEEPING_H

#include "common/core/config/config.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"
#include "common/lib/pg/pg_pool.h"

struct housekeeping;

/* All pointers are borrowed until housekeeping is closed. */
struct housekeeping_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    const struct config *config;
    struct metrics *metrics;
};

must_check bool housekeeping_open(const struct housekeeping_options *options, struct housekeeping **ret_housekeeping,
                                  struct err *err);
/* No statement starts after it. */
void housekeeping_stop(struct housekeeping *housekeeping);
/* No statement is in flight. */
bool housekeeping_is_idle(const struct housekeeping *housekeeping);
/* Precondition: housekeeping_is_idle(). on_closed is called from the loop. */
void housekeeping_close(struct housekeeping *housekeeping, void (*on_closed)(void *context), void *context);

#endif
