/* The users who have a running call: one record each, for what is shared among users (read_queue.h, waiters.h). Those
 * modules own the members; the table only finds and holds the records. */
#ifndef ISSUING_USERS_H
#define ISSUING_USERS_H

#include <sys/queue.h>

#include "api/auth.h"

#define USERS_BUCKETS 16384 /* a power of two */

struct user {
    /* read_queue.c */
    TAILQ_HEAD(, reading) line; /* those that wait, oldest first; set up with the first of them */
    int waiting;                /* the number of those */
    int running;                /* taken and not finished */
    TAILQ_ENTRY(user) queued;
    bool is_queued;
    /* reads.c */
    int64_t refused_since_ms;
    int refused; /* since then */
    /* waiters.c */
    int waits;
    /* private */
    int holders;
    struct user *next_in_bucket;
    char id[AUTH_USER_SIZE];
};

/* Begins as all zeros; owns the records. */
struct users {
    struct user *buckets[USERS_BUCKETS];
    int count;
};

/* The record of this user; a new one, with all members zero, where there is none. Each take needs one release. NULL: no
 * memory. */
must_check struct user *users_take(struct users *users, const char *id);
void users_release(struct users *users, struct user *user);

#endif
