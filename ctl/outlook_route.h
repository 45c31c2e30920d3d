/* The outlook of an event that a route delivers (outlook.h): what the coming attempt does, and how long a send may
 * still arrive. What a route is comes from issuing.routes, where workers leave it; its timeout is in the configuration
 * only. Pure. */
#ifndef ISSUING_CTL_OUTLOOK_ROUTE_H
#define ISSUING_CTL_OUTLOOK_ROUTE_H

#include "common/config/config.h"
#include "ctl/cluster.h"
#include "ctl/event.h"
#include "ctl/outlook.h"

/* For so long after it was sent a delivery may still arrive (common/issuer_key.h). Of a route that the configuration
 * does not have: the longest time that any route can have. */
int64_t outlook_route_settle_ms(const struct config *config, const char *type);
#define OUTLOOK_ROUTE_SETTLE_MAX_MS (INT64_C(20) * 60 * 1000)

/* What the coming attempt does, as a clause. any_attempt: one was made before, or may have been; at_us: when the coming
 * one would be made. */
enum outlook_action outlook_route_attempt(const struct event *event, const struct cluster_route *route,
                                          bool any_attempt, const struct config *config, int64_t at_us, char *ret_text,
                                          size_t size);
/* Why an event waits that is held behind another one of its user and type. */
void outlook_route_held(const struct event *event, char *ret_text, size_t size);

#endif
