/* The statistics follow the events: within a second one worker of the cluster moves what the ends of events have left
 * in statistics_changes into outbox_statistics, in one short transaction (issuing.fold_statistics). Nothing decides
 * by the statistics, so a fold waits for a connection that nobody else needs, and one that fails is simply made
 * again. */
#ifndef ISSUING_STATISTICS_H
#define ISSUING_STATISTICS_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_pool.h"

struct statistics;

/* Borrowed until the module is closed. */
struct statistics_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
};

must_check bool statistics_open(const struct statistics_options *options, struct statistics **ret_statistics,
                                struct err *err);
/* There are changes, or may be. */
void statistics_wake(struct statistics *statistics);
/* No statement starts after it. */
void statistics_stop(struct statistics *statistics);
/* No statement is in flight. */
bool statistics_is_idle(const struct statistics *statistics);
/* Precondition: statistics_is_idle(). on_closed is called from the loop. */
void statistics_close(struct statistics *statistics, void (*on_closed)(void *context), void *context);

#endif
