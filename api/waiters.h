/* Clients that wait for a final status, without a database connection each: one statement asks for all of them, on a
 * hint (NOTIFY from the workers, may be lost) and at the latest every WAITERS_POLL_MS. Hints are listened to while somebody
 * waits, and a little longer. */
#ifndef ISSUING_WAITERS_H
#define ISSUING_WAITERS_H

#include <uv.h>

#include "common/base.h"
#include "common/err.h"
#include "common/pg_pool.h"
#include "common/uuid7.h"

#define WAITERS_POLL_MS 250

struct waiter {
    struct uuid id;
    int64_t deadline_ms; /* monotonic */
    void (*on_ready)(
        struct waiter *waiter); /* final, or the time is up, or the program stops; exactly once, from the loop */
    /* private */
    struct waiter *next, *previous;
    bool is_waiting;
};

struct waiters;

/* conninfo: for the session that listens. */
must_check bool waiters_open(uv_loop_t *loop, struct pg_pool *pool, const char *conninfo, struct waiters **ret_waiters,
                             struct err *err);
void waiters_add(struct waiters *waiters, struct waiter *waiter);
/* on_ready will not be called. */
void waiters_remove(struct waiters *waiters, struct waiter *waiter);
int waiters_count(const struct waiters *waiters);
/* How many of them one statement asks for; 26213 otherwise. With more, several ask one after the other. */
void waiters_limit(struct waiters *waiters, int ask_max);
/* From now on every wait is over at once. */
void waiters_stop(struct waiters *waiters);
bool waiters_is_idle(const struct waiters *waiters);
void waiters_close(struct waiters *waiters, void (*on_closed)(void *context), void *context);

#endif
