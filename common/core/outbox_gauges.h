/* The gauges of what is in the database: open and failed events, of all and of each type that is delivered, the age of
 * the oldest, unknown outcomes, events that nobody delivers, living workers, the state of each target, pauses. Both
 * daemons show them, so that an alert works also while no worker runs.
 *
 * They are asked for every 5 s at most, and take two per cent of the time of one connection at most: counting goes over
 * at most a million card requests and 100000 events of each route, fewer where that takes long, and starts where open
 * events can be. Above 10000 events they are asked for less often, 120000 and more once a minute. While the database
 * does not answer, the old values stay, and issuing_outbox_gauges_age_seconds grows. */
#ifndef ISSUING_OUTBOX_GAUGES_H
#define ISSUING_OUTBOX_GAUGES_H

#include "common/core/gauge_question.h"
#include "common/lib/base/err.h"

struct outbox_gauges;

/* first: the gauges of the first place, which show the sums of all; NULL = these are the first. */
must_check bool outbox_gauges_open(const struct gauges_options *options, struct outbox_gauges *first,
                                   struct outbox_gauges **ret_gauges, struct err *err);
/* Sets issuing_outbox_gauges_age_seconds: before a scrape. */
void outbox_gauges_update_age(struct outbox_gauges *gauges);
/* The PENDING events and the age of the oldest, as they were counted last; false: they were not counted yet. */
bool outbox_gauges_backlog(const struct outbox_gauges *gauges, int64_t *ret_pending, int64_t *ret_oldest_ms);
/* No statement starts after it. One that is in flight ends with the pool. */
void outbox_gauges_stop(struct outbox_gauges *gauges);
/* Precondition: stopped, and the pool is closed. */
void outbox_gauges_close(struct outbox_gauges *gauges, void (*on_closed)(void *context), void *context);

#endif
