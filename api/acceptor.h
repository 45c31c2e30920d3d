/* The batcher: requests to be recorded -> one call of issuing.accept for many of them -> one verdict each
 * (migrations/0006_accept.sql).
 *
 * The batch is natural, not timed: what is ready when a batch is free goes together, at the end of the loop's turn. A
 * batch holds a user at most once;
 * a user's next request waits, here, for its predecessor. A batch whose connection was lost runs again as a whole:
 * nothing outside the database
 * happens in it, and a request that had committed finds its own key. One that the database refuses is split, so that
 * one bad request does not
 * hurt its neighbours. */
#ifndef ISSUING_ACCEPTOR_H
#define ISSUING_ACCEPTOR_H

#include <uv.h>

#include "common/base.h"
#include "common/config.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/nudge.h"
#include "common/outbox.h"
#include "common/pg_pool.h"

#define FINGERPRINT_SIZE 32

enum acceptance_verdict {
    ACCEPTANCE_ACCEPTED,
    ACCEPTANCE_REPLAYED,
    ACCEPTANCE_REUSED, /* same key, other body */
    ACCEPTANCE_NOT_REPLACEABLE,
    ACCEPTANCE_LIMITED,
    ACCEPTANCE_IN_PROGRESS, /* somebody else still records the same key */
    ACCEPTANCE_UNAVAILABLE, /* not recorded, or unknown: the same key tells */
};

/* One request. Its owner keeps it (and what it points to) until on_decided, which is called exactly once, from the
 * loop. */
struct acceptance {
    /* in */
    struct uuid id;
    const char *user_id;
    const char *key;
    size_t key_length;
    unsigned char fingerprint[FINGERPRINT_SIZE];
    struct slice payload;     /* JSON text of our own making */
    struct slice traceparent; /* {NULL,0} = none */
    void (*on_decided)(struct acceptance *acceptance, enum acceptance_verdict verdict);
    /* out: ACCEPTED, REPLAYED, LIMITED */
    struct uuid event_id;
    int64_t created_us;   /* of the event; since 1970 */
    int64_t used;         /* counted tries in the window */
    int64_t oldest_in_us; /* until the oldest of them leaves the window; -1 = none */
    int64_t frees_in_us;  /* LIMITED: until the next try can pass */
    int64_t decided_us;   /* monotonic: when these were true */
    /* private */
    struct acceptance *next;         /* in the FIFO of ready ones */
    struct acceptance *next_of_user; /* waits for this one */
    struct acceptance *last_of_user; /* of a head: its queue's end */
    struct acceptance *next_in_bucket;
    int64_t deadline_ms;
    int tries;
};

struct acceptor;

struct acceptor_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    const struct config *config;
    struct metric_series *batch_size; /* issuing_accept_batch_size */
    struct nudge *wake;               /* tells workers that a batch recorded an event */
};

must_check bool acceptor_open(const struct acceptor_options *options, struct acceptor **ret_acceptor, struct err *err);
/* false: the queue is full; on_decided will not be called. */
must_check bool acceptor_put(struct acceptor *acceptor, struct acceptance *acceptance);
bool acceptor_is_idle(const struct acceptor *acceptor);
/* The very last words: tells everybody still held UNAVAILABLE. The process must end right after; the acceptor may not
 * be used any more. */
void acceptor_abandon(struct acceptor *acceptor);
/* Wants an idle one. on_closed from the loop. */
void acceptor_close(struct acceptor *acceptor, void (*on_closed)(void *context), void *context);

#endif
