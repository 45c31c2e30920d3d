/* Reads of the database, shared among users: each user has a queue, and the queues are served in turn, so that a
 * thousand reads of one user delay only that user. It has no loop and no clock; reads.h has them.
 *
 * A user has at most running_of_user_max reads at the database; the others wait in the user's queue. A new read is
 * accepted or refused at once: it is refused if the queue is full, or longer than what can be read in time at the
 * recent rate. */
#ifndef ISSUING_READ_QUEUE_H
#define ISSUING_READ_QUEUE_H

#include "api/users.h"

#define READ_QUEUE_WAITING_OF_USER 1024
#define READ_QUEUE_WAITING 20000

/* Its owner keeps it until it is finished, taken as late, or refused. */
struct reading {
    void (*on_admitted)(struct reading *reading); /* it may be sent now */
    void (*on_refused)(struct reading *reading, const char *why);
    /* private */
    struct user *user;
    int64_t since_us;            /* when it was added */
    TAILQ_ENTRY(reading) link;   /* in the user's line, or in a list of refused ones */
    TAILQ_ENTRY(reading) by_age; /* among all that wait */
    const char *why;             /* of a refusal */
    int64_t notify_ms;           /* of a refusal: when on_refused is due */
};

TAILQ_HEAD(readings, reading);

/* Begins with read_queue_init(). */
struct read_queue {
    int running_max;         /* > 0 */
    int running_of_user_max; /* > 0 */
    int running;             /* taken and not finished */
    int waiting;
    int users_waiting;        /* users with a line */
    TAILQ_HEAD(, user) users; /* those whose next read may run */
    struct readings by_age;   /* all that wait, oldest first */
    int64_t wait_max_us;      /* the longest wait that a new read may expect */
    double interval_us;       /* between the ends of two reads while others waited: a moving average */
    int64_t measured_us;      /* when the last read ended; 0 = none waited then */
};

/* The limits are set by the owner. */
void read_queue_init(struct read_queue *queue);
/* NULL: it waits. Otherwise the reason for its refusal. Precondition: reading->user is set. */
must_check const char *read_queue_add(struct read_queue *queue, struct reading *reading, int64_t now_us);
/* The next one that may run; NULL = none may. */
must_check struct reading *read_queue_take(struct read_queue *queue);
/* One that was taken has ended. */
void read_queue_finish(struct read_queue *queue, struct reading *reading, int64_t now_us);
/* Removes and returns the one that has waited longest, if it was added before that time; otherwise NULL. */
must_check struct reading *read_queue_take_late(struct read_queue *queue, int64_t before_us);

#endif
