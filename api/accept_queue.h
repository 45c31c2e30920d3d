/* The requests that the acceptor holds, by user. Of each user one is ready, or in a batch; the others hang on it and
 * become ready one after the other. The order among those that are ready is the batcher's (pg_batch.h). */
#ifndef ISSUING_ACCEPT_QUEUE_H
#define ISSUING_ACCEPT_QUEUE_H

#include "api/acceptor.h"

#define ACCEPT_QUEUE_MAX 20000
#define ACCEPT_QUEUE_OF_USER (ACCEPT_QUEUE_MAX / 2) /* so that the queue is never one user's */
#define ACCEPT_QUEUE_BUCKETS 16384                  /* a power of two */

/* Starts as all zeros; owns nothing. */
struct accept_queue {
    int held_count;                                   /* added and not removed */
    struct acceptance *buckets[ACCEPT_QUEUE_BUCKETS]; /* the first of each user */
};

enum accept_queue_result {
    ACCEPT_QUEUE_READY,  /* the user's only one: it may go now */
    ACCEPT_QUEUE_BEHIND, /* accept_queue_remove() returns it when it may go */
    ACCEPT_QUEUE_FULL,   /* not added: the queue is full, or has too many of this user */
};

must_check enum accept_queue_result accept_queue_add(struct accept_queue *queue, struct acceptance *acceptance);
/* Removes one that was ready. Returns the user's next one, which is ready now; NULL = there is none. */
must_check struct acceptance *accept_queue_remove(struct accept_queue *queue, struct acceptance *acceptance);
/* All that are held; visit may free what it is given. The queue may not be used any more. */
void accept_queue_visit(struct accept_queue *queue, void (*visit)(struct acceptance *acceptance));

#endif
