/* What the receiver of a route answered to a delivery of the type TEST (issuing-ctl route test), and what the same
 * answer would make of an event. Pure; findings.h says what no finding may have. Of the url only its origin is
 * shown. */
#ifndef ISSUING_ROUTE_FINDINGS_H
#define ISSUING_ROUTE_FINDINGS_H

#include "worker/peers/findings.h"
#include "worker/route/route.h"

/* Drops earlier findings, and adds the one that names route and worker. */
void route_findings_begin(struct findings *findings, const struct route *route, const char *worker);
/* credential: that the call was sent with; NULL = none. Afterwards findings_end(). */
void route_findings_add_answer(struct findings *findings, const struct route *route, const struct http_call *call,
                               const struct credential *credential);

#endif
