/* What keeps every worker from a PENDING event: no worker, no route, an event before it, a target that takes no calls.
 * Pure. */
#ifndef ISSUING_CTL_OUTLOOK_WAIT_H
#define ISSUING_CTL_OUTLOOK_WAIT_H

#include "ctl/cluster.h"
#include "ctl/event.h"
#include "ctl/outlook.h"

/* Sets out->wait and out->target. */
void outlook_wait_find(const struct event *event, const struct cluster *cluster, struct outlook *out);
/* What out->wait means, as a clause; "" = nothing keeps the workers from it. */
void outlook_wait_clause(const struct event *event, const struct outlook *out, const struct cluster *cluster,
                         char *ret_text, size_t size);

#endif
