/* See waiters.h.
 *
 * Invariants: of those that wait for one id, one is the leader: it is in the line and in the table of ids; the others
 * form a ring with it. When the leader leaves, the next of the ring goes to the end of the line. */
#include "api/waiters.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/outbox.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/pg/pg_listen.h"
#include "statements.h"

#define TICK_MS 25      /* the precision of the end of a wait */
#define LINGER_MS 10000 /* the session that listens stays open so long after the last wait */
#define QUERY_TIMEOUT_MS 5000
#define IDS_MAX (512 * 1024)
#define ARRAY_HEAD 20 /* of an array in PostgreSQL's binary format */
#define ARRAY_ITEM 20 /* an id and its length */

struct waiters {
    struct pg_pool *pool;
    struct pg_listen *listen;
    struct users *users;
    TAILQ_HEAD(, waiter) leaders;
    int count;
    int leader_count;
    int ids_max;     /* in one statement */
    int ids_left;    /* leaders to be queried until all were, since the last wakeup */
    bool has_wakeup; /* there may be news about any id */
    bool is_querying, is_stopped;
    bool is_lingering; /* no client waits, and the timer runs until the end of listening */
    int64_t queried_ms;
    struct pg_query query;
    struct buf ids;
    uv_timer_t tick;
    uv_prepare_t prepare;
    struct closing closing;
    struct waiter *buckets[WAITERS_BUCKETS]; /* leaders, by id */
};

static void finish(struct waiters *waiters, struct waiter *waiter)
{
    waiters_remove(waiters, waiter);
    waiter->on_ready(waiter);
}

/* The last bytes of an id are random. */
static struct waiter **bucket_of(struct waiters *waiters, const struct uuid *id)
{
    uint64_t tail;
    memcpy(&tail, (const char *)id + sizeof(*id) - sizeof(tail), sizeof(tail));
    return &waiters->buckets[(tail ^ tail >> 32) & (WAITERS_BUCKETS - 1)];
}

/* The link to the leader of this id; NULL = none waits for it. */
static struct waiter **find_leader(struct waiters *waiters, const struct uuid *id)
{
    for (struct waiter **link = bucket_of(waiters, id); *link; link = &(*link)->next_in_bucket)
        if (uuid_equal(&(*link)->id, id))
            return link;
    return NULL;
}

static void on_result(struct pg_query *query, const struct pg_query_result *result)
{
    struct waiters *waiters = container_of(query, struct waiters, query);
    waiters->is_querying = false;
    if (result->kind !=
        PG_DONE) { /* the next query is the poll's: not one in every iteration while the database is away */
        waiters->ids_left = 0;
        return;
    }
    /* on_ready queries the database and answers later: no waiter is added or removed by it */
    for (int row = 0; row < pg_rows_count(result->rows); row++) {
        struct uuid id = pg_uuid(result->rows, row, 0);
        struct waiter **link;
        while ((link = find_leader(waiters, &id)))
            finish(waiters, *link);
    }
}

/* Queries the ids of the first leaders and moves these to the end of the line, so that each is reached. */
static void query_some(struct waiters *waiters)
{
    struct pg_array ids;
    int count = waiters->ids_left < waiters->ids_max ? waiters->ids_left : waiters->ids_max;
    count = waiters->leader_count < count ? waiters->leader_count : count;
    pg_array_start(&ids, &waiters->ids, PG_UUID);
    for (int i = 0; i < count; i++) {
        struct waiter *waiter = TAILQ_FIRST(&waiters->leaders);
        pg_array_add_uuid(&ids, &waiter->id);
        /* guard: a request that was queried goes to the end of the line */
        TAILQ_REMOVE(&waiters->leaders, waiter, link);
        TAILQ_INSERT_TAIL(&waiters->leaders, waiter, link);
    }
    waiters->queried_ms = clock_mono_ms();
    if (waiters->ids.failed) { /* no memory: the next poll tries again */
        waiters->ids_left = 0;
        return;
    }
    waiters->ids_left -= count;
    waiters->is_querying = true;
    waiters->query.statement = &sql_requests_final;
    waiters->query.params[0] = pg_array_param(&ids);
    waiters->query.timeout_ms = QUERY_TIMEOUT_MS;
    waiters->query.on_result = on_result;
    pg_pool_submit(waiters->pool, &waiters->query);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct waiters *waiters = container_of(prepare, struct waiters, prepare);
    if (TAILQ_EMPTY(&waiters->leaders) || waiters->is_querying)
        return;
    if (waiters->has_wakeup) { /* what was queried before the wakeup must be queried again */
        waiters->has_wakeup = false;
        waiters->ids_left = waiters->leader_count;
    }
    if (waiters->ids_left > 0)
        query_some(waiters);
}

static void on_tick(uv_timer_t *timer);

static void on_none_left(struct waiters *waiters)
{
    if (waiters->is_lingering) {
        uv_timer_stop(&waiters->tick);
        pg_listen_want(waiters->listen, false);
    } else {
        waiters->is_lingering = true;
        uv_timer_start(&waiters->tick, on_tick, LINGER_MS, 0);
    }
}

/* Of those that wait for the id of this leader. */
static void finish_late(struct waiters *waiters, struct waiter *first, int64_t now_ms)
{
    struct waiter *waiter = first->next_same, *next;
    bool is_last;
    do {
        next = waiter->next_same;
        is_last = waiter == first;
        if (waiters->is_stopped || now_ms >= waiter->deadline_ms)
            finish(waiters, waiter);
        waiter = next;
    } while (!is_last);
}

static void on_tick(uv_timer_t *timer)
{
    struct waiters *waiters = container_of(timer, struct waiters, tick);
    int64_t now_ms = clock_mono_ms();
    for (struct waiter *waiter = TAILQ_FIRST(&waiters->leaders), *next; waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, link); /* of another id */
        finish_late(waiters, waiter, now_ms);
    }
    if (TAILQ_EMPTY(&waiters->leaders))
        on_none_left(waiters);
    else if (now_ms - waiters->queried_ms >= WAITERS_POLL_MS)
        waiters->has_wakeup = true;
}

static void make_leader(struct waiters *waiters, struct waiter *waiter)
{
    struct waiter **bucket = bucket_of(waiters, &waiter->id);
    waiter->next_in_bucket = *bucket;
    *bucket = waiter;
    waiter->is_leader = true;
    TAILQ_INSERT_TAIL(&waiters->leaders, waiter, link);
    waiters->leader_count++;
}

static void join(struct waiters *waiters, struct waiter *waiter)
{
    struct waiter **link = find_leader(waiters, &waiter->id);
    waiter->is_leader = false;
    waiter->next_same = waiter->previous_same = waiter;
    /* guard: a request is queried once, however many clients wait */
    if (!link) {
        make_leader(waiters, waiter);
        return;
    }
    struct waiter *first = *link;
    waiter->next_same = first;
    waiter->previous_same = first->previous_same;
    waiter->previous_same->next_same = waiter;
    first->previous_same = waiter;
}

static void leave(struct waiters *waiters, struct waiter *waiter)
{
    struct waiter *next = waiter->next_same;
    next->previous_same = waiter->previous_same;
    waiter->previous_same->next_same = next;
    if (!waiter->is_leader)
        return;
    struct waiter **link = find_leader(waiters, &waiter->id);
    *link = waiter->next_in_bucket;
    TAILQ_REMOVE(&waiters->leaders, waiter, link);
    waiters->leader_count--;
    if (next == waiter)
        return;
    make_leader(waiters, next);
}

bool waiters_add(struct waiters *waiters, struct waiter *waiter, const char *user_id)
{
    assert(!waiter->is_waiting);
    struct user *user = users_take(waiters->users, user_id);
    if (!user)
        return false;
    /* guard: a user has a limited number of waits */
    if (user->waits >= WAITERS_OF_USER) {
        users_release(waiters->users, user);
        return false;
    }
    user->waits++;
    waiter->user = user;
    if (TAILQ_EMPTY(&waiters->leaders)) {
        waiters->queried_ms = clock_mono_ms();
        waiters->is_lingering = false;
        uv_timer_start(&waiters->tick, on_tick, TICK_MS, TICK_MS);
        pg_listen_want(waiters->listen, true);
    }
    join(waiters, waiter);
    waiter->is_waiting = true;
    waiters->count++;
    waiters->has_wakeup = true; /* it may be final already */
    return true;
}

void waiters_remove(struct waiters *waiters, struct waiter *waiter)
{
    assert(waiter->is_waiting);
    leave(waiters, waiter);
    waiter->is_waiting = false;
    waiters->count--;
    waiter->user->waits--;
    users_release(waiters->users, waiter->user);
    waiter->user = NULL;
}

int waiters_count(const struct waiters *waiters)
{
    return waiters->count;
}

int waiters_id_count(const struct waiters *waiters)
{
    return waiters->leader_count;
}

void waiters_set_ids_max(struct waiters *waiters, int ids_max)
{
    assert(ids_max > 0 && ids_max <= (IDS_MAX - ARRAY_HEAD) / ARRAY_ITEM);
    waiters->ids_max = ids_max;
}

void waiters_stop(struct waiters *waiters)
{
    waiters->is_stopped = true;
}

bool waiters_is_idle(const struct waiters *waiters)
{
    return TAILQ_EMPTY(&waiters->leaders) && !waiters->is_querying;
}

static void on_wakeup(void *context, const char *payload)
{
    (void)payload;
    struct waiters *waiters = context;
    waiters->has_wakeup = true;
}

bool waiters_open(uv_loop_t *loop, struct pg_pool *pool, struct users *users, const char *conninfo,
                  struct waiters **ret_waiters, struct err *err)
{
    struct waiters *waiters = calloc(1, sizeof(*waiters));
    if (!waiters)
        return err_set(err, ERR_MEMORY, "no memory for the waiters");
    if (!pg_listen_open(loop, conninfo, OUTBOX_FINAL_CHANNEL, on_wakeup, waiters, &waiters->listen, err)) {
        free(waiters);
        return false;
    }
    pg_listen_want(waiters->listen, false);
    TAILQ_INIT(&waiters->leaders);
    waiters->pool = pool;
    waiters->users = users;
    waiters->ids_max = (IDS_MAX - ARRAY_HEAD) / ARRAY_ITEM;
    buf_init(&waiters->ids, IDS_MAX);
    uv_timer_init(loop, &waiters->tick);
    uv_prepare_init(loop, &waiters->prepare);
    uv_prepare_start(&waiters->prepare, on_prepare);
    *ret_waiters = waiters;
    return true;
}

static void release(void *context)
{
    struct waiters *waiters = context;
    buf_done(&waiters->ids);
    free(waiters);
}

void waiters_close(struct waiters *waiters, void (*on_closed)(void *context), void *context)
{
    struct closing *closing = &waiters->closing;
    assert(waiters_is_idle(waiters));
    closing_start(closing, release, waiters, on_closed, context);
    closing_handle(closing, &waiters->tick);
    closing_handle(closing, &waiters->prepare);
    pg_listen_close(waiters->listen, closing_part_closed, closing_part(closing));
    closing_end(closing);
}
