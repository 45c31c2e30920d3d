/* See reads.h. read_queue.h decides which read is next and what is refused; here are the loop and the clock.
 *
 * Invariant: a reading holds its user's record from reads_submit() to reads_finish() or on_refused. */
#include "api/reads.h"

#include <assert.h>
#include <stdlib.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"

#define TICK_MS 10 /* the precision of the end of a wait */
#define REFUSED_LATER_MS 1000
#define ANSWER_MS 2000 /* the part of READS_WITHIN_MS that is the database's */
#define LEFT_LEAST_MS 100
#define RUNNING_ON_CONNECTION 8 /* more do not make a connection faster, and the next read waits for them */
#define RUNNING_OF_USER_MAX 8
/* In one tick, so that they do not block the loop. */
#define LATE_AT_A_TIME 40
#define REFUSALS_AT_A_TIME 20

struct reads {
    struct reads_options options;
    struct read_queue queue;
    struct readings refused_now, refused_later; /* the second in the order of notify_ms */
    uv_timer_t tick;                            /* runs while a read waits or a refusal is due */
    struct closing closing;
};

static void release(struct reads *reads, struct reading *reading)
{
    if (reading->user)
        users_release(reads->options.users, reading->user);
    reading->user = NULL;
}

static void on_tick(uv_timer_t *timer);

static void start_tick(struct reads *reads, bool at_once)
{
    if (at_once || !uv_is_active((uv_handle_t *)&reads->tick))
        (void)uv_timer_start(&reads->tick, on_tick, at_once ? 0 : TICK_MS, TICK_MS);
}

static void admit_next(struct reads *reads)
{
    struct reading *reading;
    while ((reading = read_queue_take(&reads->queue)))
        reading->on_admitted(reading);
}

static bool is_refused_at_once(struct user *user, int64_t now_ms)
{
    if (!user)
        return true;
    if (now_ms - user->refused_since_ms >= REFUSED_LATER_MS) {
        user->refused_since_ms = now_ms;
        user->refused = 0;
    }
    /* guard: a user gets a hundred refusals at once */
    return user->refused++ < READS_REFUSED_AT_ONCE;
}

static void refuse(struct reads *reads, struct reading *reading, const char *why)
{
    int64_t now_ms = clock_mono_ms();
    bool at_once = is_refused_at_once(reading->user, now_ms);
    metric_add(reads->options.refused, 1);
    reading->why = why;
    reading->notify_ms = at_once ? now_ms : now_ms + REFUSED_LATER_MS;
    TAILQ_INSERT_TAIL(at_once ? &reads->refused_now : &reads->refused_later, reading, link);
    start_tick(reads, at_once);
}

static void notify_first(struct reads *reads, struct readings *refused)
{
    struct reading *reading = TAILQ_FIRST(refused);
    TAILQ_REMOVE(refused, reading, link);
    release(reads, reading);
    reading->on_refused(reading, reading->why);
}

static void refuse_late(struct reads *reads)
{
    struct reading *reading;
    bool is_up = pg_pool_ready(reads->options.pool);
    int64_t within_ms = is_up ? READS_WITHIN_MS - ANSWER_MS : READS_AWAY_WITHIN_MS;
    int64_t before_us = clock_mono_us() - within_ms * 1000;
    for (int i = 0; i < LATE_AT_A_TIME && (reading = read_queue_take_late(&reads->queue, before_us)); i++) {
        metric_add(reads->options.refused, 1);
        reading->why = is_up ? "More calls wait than can be answered in time." : "The database cannot be asked now.";
        TAILQ_INSERT_TAIL(&reads->refused_now, reading, link);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct reads *reads = container_of(timer, struct reads, tick);
    /* guard: a read that waited too long is refused */
    refuse_late(reads);
    struct readings now; /* a client may repeat at once: that is for the next tick */
    TAILQ_INIT(&now);
    TAILQ_CONCAT(&now, &reads->refused_now, link);
    while (!TAILQ_EMPTY(&now))
        notify_first(reads, &now);
    int64_t now_ms = clock_mono_ms();
    struct readings *later = &reads->refused_later;
    for (int i = 0; i < REFUSALS_AT_A_TIME && !TAILQ_EMPTY(later) && TAILQ_FIRST(later)->notify_ms <= now_ms; i++)
        notify_first(reads, later);
    if (TAILQ_EMPTY(&reads->queue.by_age) && TAILQ_EMPTY(later) && TAILQ_EMPTY(&reads->refused_now))
        (void)uv_timer_stop(timer);
}

void reads_submit(struct reads *reads, struct reading *reading, const char *user_id)
{
    reading->user = users_take(reads->options.users, user_id);
    const char *why = "Out of memory.";
    if (reading->user)
        why = read_queue_add(&reads->queue, reading, clock_mono_us());
    if (why) {
        refuse(reads, reading, why);
        return;
    }
    admit_next(reads);
    if (!TAILQ_EMPTY(&reads->queue.by_age))
        start_tick(reads, false);
}

void reads_finish(struct reads *reads, struct reading *reading)
{
    read_queue_finish(&reads->queue, reading, clock_mono_us());
    release(reads, reading);
    admit_next(reads);
}

int64_t reads_left_ms(const struct reads *reads, const struct reading *reading)
{
    int64_t within_ms = pg_pool_ready(reads->options.pool) ? READS_WITHIN_MS : READS_AWAY_WITHIN_MS;
    int64_t left_ms = within_ms - (clock_mono_us() - reading->since_us) / 1000;
    return left_ms > LEFT_LEAST_MS ? left_ms : LEFT_LEAST_MS;
}

int reads_waiting(const struct reads *reads)
{
    return reads->queue.waiting;
}

bool reads_open(const struct reads_options *options, struct reads **ret_reads, struct err *err)
{
    struct reads *reads = calloc(1, sizeof(*reads));
    if (!reads)
        return err_set(err, ERR_MEMORY, "no memory for the reads");
    reads->options = *options;
    /* The pool leaves one connection to acceptance, and a user leaves one more to other users. */
    int connections = options->connections > 1 ? options->connections - 1 : 1;
    int of_user = connections > 1 ? connections - 1 : 1;
    TAILQ_INIT(&reads->refused_now);
    TAILQ_INIT(&reads->refused_later);
    read_queue_init(&reads->queue);
    reads->queue.running_max = RUNNING_ON_CONNECTION * connections;
    reads->queue.running_of_user_max = of_user < RUNNING_OF_USER_MAX ? of_user : RUNNING_OF_USER_MAX;
    reads->queue.wait_max_us = (READS_WITHIN_MS - ANSWER_MS) * (int64_t)1000;
    (void)uv_timer_init(options->loop, &reads->tick); /* cannot fail */
    *ret_reads = reads;
    return true;
}

void reads_close(struct reads *reads, void (*on_closed)(void *context), void *context)
{
    assert(reads->queue.running == 0 && reads->queue.waiting == 0 && TAILQ_EMPTY(&reads->refused_now) &&
           TAILQ_EMPTY(&reads->refused_later));
    closing_start(&reads->closing, free, reads, on_closed, context);
    closing_handle(&reads->closing, &reads->tick);
    closing_end(&reads->closing);
}
