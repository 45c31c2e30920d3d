/* The acceptor's line: acceptances in the order they came, at most one of a user ready or in a batch. The user's others
 * hang on that one and take its place one after the other. */
#ifndef ISSUING_ACCEPT_QUEUE_H
#define ISSUING_ACCEPT_QUEUE_H

#include "api/acceptor.h"

#define ACCEPT_QUEUE_MAX 20000
#define ACCEPT_QUEUE_BUCKETS 16384 /* a power of two */

/* Begins as all zeros; owns nothing. */
struct accept_queue {
    struct acceptance *first, *last; /* ready, FIFO */
    int ready;                       /* so many */
    int alone;                       /* so many of the first go one by one */
    int held;                        /* put and not left */
    struct acceptance *buckets[ACCEPT_QUEUE_BUCKETS];
};

/* false: it is full. */
must_check bool accept_queue_put(struct accept_queue *queue, struct acceptance *acceptance);
/* The first that is ready; there is one. */
struct acceptance *accept_queue_take(struct accept_queue *queue);
/* Back to the head of the line, in this order, each to go alone. */
void accept_queue_give_back(struct accept_queue *queue, struct acceptance *const *items, int count);
/* One that was taken is decided: the user's next one, if any, is ready now. */
void accept_queue_leave(struct accept_queue *queue, struct acceptance *taken);
/* All that are held, taken ones too; visit may free what it is given. The queue may not be used any more. */
void accept_queue_end(struct accept_queue *queue, void (*visit)(struct acceptance *acceptance));

#endif
