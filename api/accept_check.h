/* Whether the database takes requests at all. When it refuses one (a constraint, a missing right, a full lock table,
 * the isolation, a lock), the fault may be that request's or everybody's: then a trial request is accepted and rolled
 * back (issuing.try_accept), after partition plans that refuse every request were withdrawn (issuing.withdraw_plans).
 * While the trial fails it is repeated every second, and the api is not ready: no client would send requests that could
 * show that it works again. A probe now and then finds faults that no request has met; it withdraws only plans that are
 * about to refuse requests. */
#ifndef ISSUING_ACCEPT_CHECK_H
#define ISSUING_ACCEPT_CHECK_H

#include <uv.h>

#include "common/lib/base/closing.h"
#include "common/lib/pg/pg_pool.h"

/* The pointers must live until the check is closed. Starts as all zeros. */
struct accept_check {
    /* in */
    struct pg_pool *pool;
    /* From the loop, after each check, also a failed one. */
    void (*on_checked)(struct accept_check *check);
    /* out */
    char why_not[200]; /* why nobody's request can be recorded; "" = they can, as far as is known */
    /* private */
    uv_timer_t timer;
    struct pg_query query;
    bool is_in_flight;
    bool is_wanted; /* a check, when the probe that is in flight is over */
};

void accept_check_open(struct accept_check *check, uv_loop_t *loop);
/* Checks once, and until it works; one check at a time. */
void accept_check_start(struct accept_check *check);
/* Whether a refusal with this SQLSTATE may be everybody's. */
bool accept_check_is_needed(const char sqlstate[6]);
bool accept_check_is_idle(const struct accept_check *check);
/* Precondition: accept_check_is_idle(). Its handle is a part of `closing`. */
void accept_check_close(struct accept_check *check, struct closing *closing);

#endif
