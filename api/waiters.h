/* Clients that wait for a final status, without a database connection each: one statement queries the ids of all of
 * them, after a wakeup (NOTIFY from the workers, may be lost) and at the latest every WAITERS_POLL_MS. A session
 * listens while a client waits, and a little longer.
 *
 * However many clients wait for one request, its id is queried once. A user has at most WAITERS_OF_USER waits: each
 * holds one of the connections that all clients share, for up to half a minute, and a person with several devices needs
 * few. */
#ifndef ISSUING_WAITERS_H
#define ISSUING_WAITERS_H

#include <uv.h>

#include "api/users.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_pool.h"

#define WAITERS_POLL_MS 250
#define WAITERS_OF_USER 100
#define WAITERS_BUCKETS 16384 /* a power of two */

struct waiter {
    struct uuid id;
    int64_t deadline_ms; /* monotonic */
    /* The status is final, or the time is up, or the program stops; exactly once, from the loop. */
    void (*on_ready)(struct waiter *waiter);
    /* private */
    TAILQ_ENTRY(waiter) link;                 /* in the line: one of each id */
    struct waiter *next_same, *previous_same; /* for the same id: a ring */
    struct waiter *next_in_bucket;
    struct user *user;
    bool is_waiting, is_leader;
};

struct waiters;

/* conninfo: for the session that listens. users must live longer. */
must_check bool waiters_open(uv_loop_t *loop, struct pg_pool *pool, struct users *users, const char *conninfo,
                             struct waiters **ret_waiters, struct err *err);
/* Its owner keeps the waiter until on_ready or waiters_remove(). false: the user has too many waits, or there is no
 * memory; on_ready will not be called. user_id is borrowed during the call. */
must_check bool waiters_add(struct waiters *waiters, struct waiter *waiter, const char *user_id);
/* on_ready will not be called. Precondition: waiter->is_waiting. */
void waiters_remove(struct waiters *waiters, struct waiter *waiter);
int waiters_count(const struct waiters *waiters);
/* The number of different requests that they wait for. */
int waiters_id_count(const struct waiters *waiters);
/* How many ids one statement queries, 26213 otherwise. With more, several statements follow one another. */
void waiters_set_ids_max(struct waiters *waiters, int ids_max);
/* From now on every wait ends at once. */
void waiters_stop(struct waiters *waiters);
bool waiters_is_idle(const struct waiters *waiters);
/* Precondition: waiters_is_idle(). on_closed from the loop. */
void waiters_close(struct waiters *waiters, void (*on_closed)(void *context), void *context);

#endif
