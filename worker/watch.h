/* Asks at every poll what there is to do (issuing.what_waits), and wakes who does it: claims and sweeps of events,
 * reconcile, statistics, checks and lists of the issuer. So an idle worker sends one statement a poll, and polls may
 * be frequent.
 *
 * The answer saves work and decides nothing: one that does not come before the next poll, or that is an error, means
 * that there may be something of everything. Polls of events and marks come every worker.poll_interval, those of the
 * rest at least every second. The question about events looks at everything due, without a bookmark. Where that costs
 * much, since a snapshot is held or the index is full of what has ended, claims and sweeps look by themselves until the
 * sweeps find it cheap again. */
#ifndef ISSUING_WATCH_H
#define ISSUING_WATCH_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_pool.h"

struct claims;
struct issuer_check;
struct issuer_listing;
struct reconcile;
struct statistics;
struct watch;

/* All pointers are borrowed until the module is closed. */
struct watch_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    int64_t poll_interval_ms;
    struct claims *claims;
    struct reconcile *reconcile;
    struct statistics *statistics;
    struct issuer_check *issuer_check;
    struct issuer_listing *issuer_listing;
};

must_check bool watch_open(const struct watch_options *options, struct watch **ret_watch, struct err *err);
/* After it no query is sent, and no wake-up is reported. */
void watch_stop(struct watch *watch);
/* No statement is in flight. */
bool watch_is_idle(const struct watch *watch);
/* Precondition: watch_is_idle(). on_closed is called from the loop. */
void watch_close(struct watch *watch, void (*on_closed)(void *context), void *context);

#endif
