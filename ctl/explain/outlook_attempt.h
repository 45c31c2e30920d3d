/* What the coming attempt over an event does, as an operator reads it. The decision is the worker's own (decide.h),
 * over an attempt that is filled from the row; here it only gets words. Pure. */
#ifndef ISSUING_CTL_OUTLOOK_ATTEMPT_H
#define ISSUING_CTL_OUTLOOK_ATTEMPT_H

#include "common/core/config/config.h"
#include "common/core/decide/decide.h"
#include "common/lib/base/base.h"
#include "ctl/cluster.h"
#include "ctl/event.h"

/* For programs, for people. */
#define OUTLOOK_ACTIONS(X)                                          \
    X(ATTEMPT, attempt, "A worker makes an attempt")                \
    X(LINK, link, "A worker links the card")                        \
    X(LOOK_UP, look_up, "A worker looks the card up at the issuer") \
    X(CANCEL, cancel, "A worker cancels the card")                  \
    X(DELIVER, deliver, "A worker delivers it")                     \
    X(ASK, ask, "A worker asks the receiver about it")              \
    X(END, end, "A worker ends it")                                 \
    X(WAIT, wait, "A worker is working on it")                      \
    X(TAKE_OVER, take_over, "Another worker takes over")            \
    X(OPERATOR, operator, "An operator decides")                    \
    X(NONE, none, "Nothing")

enum outlook_action {
#define X(name, word, text) OUTLOOK_##name,
    OUTLOOK_ACTIONS(X)
#undef X
};

#define OUTLOOK_CLAUSE_SIZE 440

/* How long after it was sent a delivery may still arrive (common/core/issuer_key.h). For a route that is not configured
 * here: the longest time that a route can have. */
int64_t outlook_route_settle_ms(const struct config *config, const char *type);
#define OUTLOOK_ROUTE_SETTLE_MAX_MS (INT64_C(20) * 60 * 1000)

/* The event as a claim at at_us would give it to a worker. event_read_prospect() has read it; route: NULL = a card
 * request. What a route is comes from issuing.routes, where workers leave it; its timeout is in the configuration
 * only. */
void outlook_attempt_fill(const struct event *event, const struct cluster_route *route, const struct config *config,
                          int64_t at_us, struct attempt *ret_attempt, struct view *ret_view);
/* What that attempt does, as a clause. any_attempt: one was made before, or may have been. */
enum outlook_action outlook_attempt(const struct event *event, const struct cluster_route *route, bool any_attempt,
                                    const struct config *config, int64_t at_us, char ret_text[OUTLOOK_CLAUSE_SIZE]);

#endif
