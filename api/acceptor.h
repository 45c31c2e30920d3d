/* The acceptor: requests to be recorded -> calls of issuing.accept for many of them at once -> one verdict each
 * (migrations/schema/03_accept.sql). The batches are those of common/lib/pg/pg_batch.h.
 *
 * A batch holds a user at most once; a user's next request waits here until the one before it is decided. A batch whose
 * outcome is unknown is sent again: it changes nothing outside the database, and a committed request finds its key. A
 * user whose lock another session holds waits here too, without delaying its batch or occupying a connection: it is
 * tried again with the next batches. */
#ifndef ISSUING_ACCEPTOR_H
#define ISSUING_ACCEPTOR_H

#include <uv.h>

#include "api/client_headers.h"
#include "common/core/config/config.h"
#include "common/core/outbox.h"
#include "common/lib/base/again.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"
#include "common/lib/pg/pg_batch.h"
#include "common/lib/pg/pg_pool.h"
#include "common/lib/pg/wakeup.h"

#define FINGERPRINT_SIZE 32

enum acceptance_verdict {
    ACCEPTANCE_ACCEPTED,
    ACCEPTANCE_REPLAYED,
    ACCEPTANCE_REUSED, /* the same key with another body */
    ACCEPTANCE_NOT_REPLACEABLE,
    ACCEPTANCE_LIMITED,
    ACCEPTANCE_IN_PROGRESS, /* an earlier try for this request, or one with its key, has not ended */
    ACCEPTANCE_USER_BUSY,   /* another session has had the user's lock all the time; nothing was recorded */
    ACCEPTANCE_USER_MOVING, /* the database does not serve this user, at the moment */
    ACCEPTANCE_UNAVAILABLE, /* not recorded, or unknown: a repeat with the same key finds out */
};

/* One request. It and what it points to must live until on_decided, which is called exactly once, from the loop. */
struct acceptance {
    /* in */
    struct uuid proposed_id; /* of the event, if this request is the first with its key */
    const char *user_id;
    struct client_key client_key;
    unsigned char fingerprint[FINGERPRINT_SIZE];
    struct slice payload;     /* JSON text that the api has written */
    struct slice traceparent; /* {NULL,0} = none */
    struct slice tracestate;  /* likewise; goes with a traceparent */
    void (*on_decided)(struct acceptance *acceptance, enum acceptance_verdict verdict);
    /* out: ACCEPTED, REPLAYED, LIMITED */
    struct uuid event_id;
    int64_t created_us;   /* of the event; since 1970 */
    int64_t used;         /* counted tries in the window */
    int64_t oldest_in_us; /* until the oldest of them leaves the window; -1 = none */
    int64_t frees_in_us;  /* LIMITED: until the next try can pass */
    int64_t decided_us;   /* monotonic: when these were true */
    /* private */
    struct pg_batch_item item;
    bool was_repeated;               /* after a unique_violation */
    bool was_checked;                /* after a refusal of the schema */
    struct acceptance *next_refused; /* waits for the check */
    struct again_item again;         /* waits for the user's lock */
    int64_t again_until_ms;
    struct acceptance *next_of_user; /* waits for this one */
    struct acceptance *last_of_user; /* of a user's first: the end of that user's queue */
    int count_of_user;               /* of a user's first: with those that wait for it */
    struct acceptance *next_in_bucket;
};

/* Why requests were not recorded. */
enum acceptance_failure {
    ACCEPTANCE_USER_LOCK, /* another session has held this user's lock too long */
    ACCEPTANCE_LOCK,      /* another lock was waited for too long: somebody holds a table or a row */
    ACCEPTANCE_SCHEMA,    /* a constraint, a right, a missing function */
    ACCEPTANCE_LATE,      /* not in time: the database is away, or refuses for a reason that passes */
    ACCEPTANCE_MOVED,     /* the database does not serve this user */
    ACCEPTANCE_OTHER,
    ACCEPTANCE_FAILURES,
};

struct acceptor;

struct acceptor_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    const struct config *config;
    struct metric_series *batch_size; /* issuing_accept_batch_size */
    struct metric_series *failures[ACCEPTANCE_FAILURES];
    struct wakeup *wakeup; /* wakes the workers when a batch has recorded an event */
};

must_check bool acceptor_open(const struct acceptor_options *options, struct acceptor **ret_acceptor, struct err *err);
/* false: the queue is full; on_decided will not be called. */
must_check bool acceptor_submit(struct acceptor *acceptor, struct acceptance *acceptance);
/* Requests that are not decided. */
int acceptor_held(const struct acceptor *acceptor);
/* Why nobody's request can be recorded, though the database is there; "" = they can, as far as is known. */
const char *acceptor_why_not(const struct acceptor *acceptor);
/* A sentence about users whose requests are not recorded while those of others are; "" = there were none in the last
 * minute. */
const char *acceptor_note(struct acceptor *acceptor);
/* Every request is decided. */
bool acceptor_is_idle(const struct acceptor *acceptor);
/* Decides every request that it holds as UNAVAILABLE. The process must end right after; the acceptor is not usable. */
void acceptor_abandon(struct acceptor *acceptor);
/* Precondition: acceptor_is_idle(). on_closed from the loop; the acceptor is freed before it. */
void acceptor_close(struct acceptor *acceptor, void (*on_closed)(void *context), void *context);

#endif
