/* See read_queue.h.
 *
 * Invariants: a user is queued exactly while one of the user's reads waits and fewer than
 * running_of_user_max run; all that wait are in their user's line and in the list by age, both in the order in which
 * they were added. */
#include "api/read_queue.h"

#include <assert.h>

#define MEASURED_OVER 64 /* reads in the moving average */

static void queue_user(struct read_queue *queue, struct user *user)
{
    /* guard: reads are shared out among users */
    if (user->is_queued || user->waiting == 0 || user->running >= queue->running_of_user_max)
        return;
    user->is_queued = true;
    user->next_queued = NULL;
    if (queue->last_user)
        queue->last_user->next_queued = user;
    else
        queue->first_user = user;
    queue->last_user = user;
}

static void unqueue_user(struct read_queue *queue, struct user *user)
{
    struct user **link = &queue->first_user, *before = NULL;
    while (*link != user) {
        before = *link;
        link = &before->next_queued;
    }
    *link = user->next_queued;
    if (queue->last_user == user)
        queue->last_user = before;
    user->is_queued = false;
}

/* How many reads go before a new one of this user: at most all, and of each other user one more than of this one. */
static int64_t count_ahead(const struct read_queue *queue, const struct user *user)
{
    int64_t others = queue->users_waiting - (user->waiting > 0);
    int64_t ahead = user->waiting + others * (user->waiting + 1);
    return ahead < queue->waiting ? ahead : queue->waiting;
}

const char *read_queue_add(struct read_queue *queue, struct reading *reading, int64_t now_us)
{
    struct user *user = reading->user;
    if (queue->running == 0 && queue->waiting == 0) /* a rate from before a pause does not count */
        /* guard: a pause forgets what was measured before it */
        queue->interval_us = 0;
    if (user->waiting >= READ_QUEUE_WAITING_OF_USER)
        return "Too many calls of this user wait.";
    if (queue->waiting >= READ_QUEUE_WAITING)
        return "Too many calls wait.";
    /* guard: a read that could not be served in time is refused at once */
    if ((double)count_ahead(queue, user) * queue->interval_us > (double)queue->wait_max_us)
        return "More calls wait than can be answered in time.";
    reading->since_us = now_us;
    reading->next = NULL;
    if (user->last)
        user->last->next = reading;
    else
        user->first = reading;
    user->last = reading;
    queue->users_waiting += user->waiting++ == 0;
    reading->newer = NULL;
    reading->older = queue->newest;
    if (queue->newest)
        queue->newest->newer = reading;
    else
        queue->oldest = reading;
    queue->newest = reading;
    queue->waiting++;
    queue_user(queue, user);
    return NULL;
}

/* Precondition: it is the first of its user's line. */
static void stop_waiting(struct read_queue *queue, struct reading *reading)
{
    struct user *user = reading->user;
    assert(user->first == reading);
    user->first = reading->next;
    if (!user->first)
        user->last = NULL;
    queue->users_waiting -= --user->waiting == 0;
    if (reading->older)
        reading->older->newer = reading->newer;
    else
        queue->oldest = reading->newer;
    if (reading->newer)
        reading->newer->older = reading->older;
    else
        queue->newest = reading->older;
    queue->waiting--;
}

struct reading *read_queue_take(struct read_queue *queue)
{
    struct user *user = queue->first_user;
    if (!user || queue->running >= queue->running_max)
        return NULL;
    struct reading *reading = user->first;
    unqueue_user(queue, user);
    stop_waiting(queue, reading);
    queue->running++;
    user->running++;
    /* guard: the users' reads are sent in rotation */
    queue_user(queue, user); /* at the end: the other users come first */
    return reading;
}

static void measure(struct read_queue *queue, int64_t now_us)
{
    if (queue->waiting == 0) {
        queue->measured_us = 0;
        return;
    }
    if (queue->measured_us > 0)
        queue->interval_us += ((double)(now_us - queue->measured_us) - queue->interval_us) / MEASURED_OVER;
    queue->measured_us = now_us;
}

void read_queue_finish(struct read_queue *queue, struct reading *reading, int64_t now_us)
{
    measure(queue, now_us);
    queue->running--;
    reading->user->running--;
    queue_user(queue, reading->user);
}

struct reading *read_queue_take_late(struct read_queue *queue, int64_t before_us)
{
    struct reading *reading = queue->oldest;
    if (!reading || reading->since_us >= before_us)
        return NULL;
    stop_waiting(queue, reading);
    if (reading->user->is_queued && reading->user->waiting == 0)
        unqueue_user(queue, reading->user);
    return reading;
}
