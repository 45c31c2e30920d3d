/* Asks at every poll what there is to do (issuing.what_waits), and wakes the modules that do it: claims and sweeps of
 * events, reconcile, statistics, checks and lists of the issuer. So an idle worker sends one statement a poll, and
 * polls may be frequent.
 *
 * The answer saves work and decides nothing: one that does not come before the next poll, or that is an error, means
 * that there may be something of everything. Polls of events and marks come every worker.poll_interval, those of the
 * rest at least every second. The question about events looks at everything due, without a bookmark. Where that costs
 * much, since a snapshot is held or the index is full of what has ended, claims and sweeps look by themselves until the
 * sweeps find it cheap again. */
#ifndef ISSUING_WATCH_H
#define ISSUING_WATCH_H

#include "worker/base/job.h"

struct claims;
struct issuer_check;
struct issuer_listing;
struct reconcile;
struct statistics;

/* What it wakes. Borrowed until the worker is closed. */
struct watch_options {
    struct claims *claims;
    struct reconcile *reconcile;
    struct statistics *statistics;
    struct issuer_check *issuer_check;
    struct issuer_listing *issuer_listing;
};

must_check bool watch_open(const struct watch_options *options, const struct worker_env *env, struct err *err);

#endif
