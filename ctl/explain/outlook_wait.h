/* What keeps every worker from a PENDING event: no worker, no route, an event before it, a target that takes no calls.
 * Pure. */
#ifndef ISSUING_CTL_OUTLOOK_WAIT_H
#define ISSUING_CTL_OUTLOOK_WAIT_H

#include "ctl/cluster.h"
#include "ctl/event.h"

/* For programs. */
#define OUTLOOK_WAITS(X) \
    X(NOTHING, nothing)  \
    X(WORKER, worker)    \
    X(ROUTE, route)      \
    X(EVENT, event)      \
    X(PAUSE, pause)      \
    X(BREAKER, breaker)  \
    X(REST, rest)

enum outlook_wait_for {
#define X(name, word) OUTLOOK_WAIT_FOR_##name,
    OUTLOOK_WAITS(X)
#undef X
};

struct outlook_wait {
    enum outlook_wait_for what;          /* EVENT: event->held_behind_text; ROUTE: nobody delivers its type */
    const struct cluster_target *target; /* of a pause, breaker or rest; borrowed from the cluster */
};

const char *outlook_wait_name(enum outlook_wait_for what);
void outlook_wait_find(const struct event *event, const struct cluster *cluster, struct outlook_wait *ret_wait);
/* What it means, as a clause; "" = nothing keeps the workers from it. */
void outlook_wait_clause(const struct event *event, const struct outlook_wait *wait, const struct cluster *cluster,
                         char *ret_text, size_t size);

#endif
