/* See read_queue.h.
 *
 * Invariants: a user is queued exactly while one of the user's reads waits and fewer than
 * running_of_user_max run; all that wait are in their user's line and in the list by age, both in the order in which
 * they were added. */
#include "api/read_queue.h"

#define MEASURED_OVER 64 /* reads in the moving average */

void read_queue_init(struct read_queue *queue)
{
    *queue = (struct read_queue){.running = 0};
    TAILQ_INIT(&queue->users);
    TAILQ_INIT(&queue->by_age);
}

static void queue_user(struct read_queue *queue, struct user *user)
{
    /* guard: reads are shared out among users */
    if (user->is_queued || user->waiting == 0 || user->running >= queue->running_of_user_max)
        return;
    user->is_queued = true;
    TAILQ_INSERT_TAIL(&queue->users, user, queued);
}

static void unqueue_user(struct read_queue *queue, struct user *user)
{
    TAILQ_REMOVE(&queue->users, user, queued);
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
    if (user->waiting == 0)
        TAILQ_INIT(&user->line);
    TAILQ_INSERT_TAIL(&user->line, reading, link);
    queue->users_waiting += user->waiting++ == 0;
    TAILQ_INSERT_TAIL(&queue->by_age, reading, by_age);
    queue->waiting++;
    queue_user(queue, user);
    return NULL;
}

static void stop_waiting(struct read_queue *queue, struct reading *reading)
{
    struct user *user = reading->user;
    TAILQ_REMOVE(&user->line, reading, link);
    queue->users_waiting -= --user->waiting == 0;
    TAILQ_REMOVE(&queue->by_age, reading, by_age);
    queue->waiting--;
}

struct reading *read_queue_take(struct read_queue *queue)
{
    struct user *user = TAILQ_FIRST(&queue->users);
    if (!user || queue->running >= queue->running_max)
        return NULL;
    struct reading *reading = TAILQ_FIRST(&user->line);
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
    struct reading *reading = TAILQ_FIRST(&queue->by_age);
    if (!reading || reading->since_us >= before_us)
        return NULL;
    stop_waiting(queue, reading);
    if (reading->user->is_queued && reading->user->waiting == 0)
        unqueue_user(queue, reading->user);
    return reading;
}
