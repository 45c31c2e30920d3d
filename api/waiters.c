/* See waiters.h. */
#include "api/waiters.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/outbox.h"
#include "common/pg_listen.h"
#include "common/sql/statements.h"

#define TICK_MS 25      /* how exactly a wait's end is kept */
#define LINGER_MS 10000 /* so long hints are listened to after the last has gone */
#define ASK_TIMEOUT_MS 5000
#define IDS_MAX (512 * 1024)
#define ARRAY_HEAD 20 /* of an array in PostgreSQL's binary format */
#define ARRAY_ITEM 20 /* an id and its length */

struct waiters {
    uv_loop_t *loop;
    struct pg_pool *pool;
    struct pg_listen *listen;
    struct waiter *first, *last;
    int count;
    int ask_max; /* of them in one statement */
    int left;    /* of them to be asked for until all were, since the last hint */
    bool hinted, is_asking, is_stopped;
    bool lingers; /* the timer runs to the end of listening */
    int64_t asked_ms;
    struct pg_ask ask;
    struct buf ids;
    uv_timer_t tick;
    uv_prepare_t turn;
    int open_parts;
    void (*on_closed)(void *context);
    void *closed_context;
};

static void end(struct waiters *waiters, struct waiter *waiter)
{
    waiters_remove(waiters, waiter);
    waiter->on_ready(waiter);
}

static bool is_among(const struct pg_rows *rows, const struct uuid *id)
{
    int low = 0, high = pg_rows_count(rows);
    while (low < high) {
        int middle = (low + high) / 2;
        struct uuid there = pg_uuid(rows, middle, 0);
        int order = memcmp(&there, id, sizeof there);
        if (order == 0)
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static void put_last(struct waiters *waiters, struct waiter *waiter)
{
    waiter->next = NULL;
    waiter->previous = waiters->last;
    if (waiter->previous)
        waiter->previous->next = waiter;
    else
        waiters->first = waiter;
    waiters->last = waiter;
}

static void take_out(struct waiters *waiters, struct waiter *waiter)
{
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        waiters->first = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    else
        waiters->last = waiter->previous;
}

static void on_answer(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct waiters *waiters = container_of(ask, struct waiters, ask);
    waiters->is_asking = false;
    if (answer->kind != PG_DONE) {
        waiters->left = 0; /* the next look is a poll's: a database that is away is not asked at every turn */
        return;
    }
    /* Rows come sorted by id (the statement says so), so each waiter is looked up in them. */
    for (struct waiter *waiter = waiters->first, *next; waiter && pg_rows_count(answer->rows) > 0; waiter = next) {
        next = waiter->next; /* on_ready asks the database and answers later: no other waiter joins or leaves here */
        if (is_among(answer->rows, &waiter->id))
            end(waiters, waiter);
    }
}

/* Those at the front are asked for and go to the end, so that all have their turn however many they are. */
static void ask_for_some(struct waiters *waiters)
{
    struct pg_array ids;
    int count = waiters->left < waiters->ask_max ? waiters->left : waiters->ask_max;
    count = waiters->count < count ? waiters->count : count;
    pg_array_start(&ids, &waiters->ids, PG_UUID);
    for (int i = 0; i < count; i++) {
        struct waiter *waiter = waiters->first;
        pg_array_add_uuid(&ids, &waiter->id);
        take_out(waiters, waiter);
        put_last(waiters, waiter);
    }
    waiters->asked_ms = clock_mono_ms();
    if (waiters->ids.failed) { /* no memory: the next poll tries again */
        waiters->left = 0;
        return;
    }
    waiters->left -= count;
    waiters->is_asking = true;
    waiters->ask.statement = &sql_requests_final;
    waiters->ask.params[0] = pg_array_param(&ids);
    waiters->ask.timeout_ms = ASK_TIMEOUT_MS;
    waiters->ask.on_answer = on_answer;
    pg_pool_ask(waiters->pool, &waiters->ask);
}

static void on_turn(uv_prepare_t *prepare)
{
    struct waiters *waiters = container_of(prepare, struct waiters, turn);
    if (!waiters->first || waiters->is_asking)
        return;
    if (waiters->hinted) { /* what was asked for before the hint has to be asked for again */
        waiters->hinted = false;
        waiters->left = waiters->count;
    }
    if (waiters->left > 0)
        ask_for_some(waiters);
}

static void on_tick(uv_timer_t *timer);

static void nobody_waits(struct waiters *waiters)
{
    if (waiters->lingers) {
        uv_timer_stop(&waiters->tick);
        pg_listen_want(waiters->listen, false);
    } else {
        waiters->lingers = true;
        uv_timer_start(&waiters->tick, on_tick, LINGER_MS, 0);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct waiters *waiters = container_of(timer, struct waiters, tick);
    int64_t now_ms = clock_mono_ms();
    for (struct waiter *waiter = waiters->first, *next; waiter; waiter = next) {
        next = waiter->next;
        if (waiters->is_stopped || now_ms >= waiter->deadline_ms)
            end(waiters, waiter);
    }
    if (!waiters->first)
        nobody_waits(waiters);
    else if (now_ms - waiters->asked_ms >= WAITERS_POLL_MS)
        waiters->hinted = true;
}

void waiters_add(struct waiters *waiters, struct waiter *waiter)
{
    assert(!waiter->is_waiting);
    if (!waiters->first) {
        waiters->asked_ms = clock_mono_ms();
        waiters->lingers = false;
        uv_timer_start(&waiters->tick, on_tick, TICK_MS, TICK_MS);
        pg_listen_want(waiters->listen, true);
    }
    put_last(waiters, waiter);
    waiter->is_waiting = true;
    waiters->count++;
    waiters->hinted = true; /* it may be final already */
}

void waiters_remove(struct waiters *waiters, struct waiter *waiter)
{
    assert(waiter->is_waiting);
    take_out(waiters, waiter);
    waiter->is_waiting = false;
    waiters->count--;
}

int waiters_count(const struct waiters *waiters)
{
    return waiters->count;
}

void waiters_limit(struct waiters *waiters, int ask_max)
{
    assert(ask_max > 0 && ask_max <= (IDS_MAX - ARRAY_HEAD) / ARRAY_ITEM);
    waiters->ask_max = ask_max;
}

void waiters_stop(struct waiters *waiters)
{
    waiters->is_stopped = true;
}

bool waiters_is_idle(const struct waiters *waiters)
{
    return !waiters->first && !waiters->is_asking;
}

static void on_hint(void *context)
{
    struct waiters *waiters = context;
    waiters->hinted = true;
}

bool waiters_open(uv_loop_t *loop, struct pg_pool *pool, const char *conninfo, struct waiters **ret_waiters,
                  struct err *err)
{
    struct waiters *waiters = calloc(1, sizeof *waiters);
    if (!waiters)
        return err_set(err, ERR_MEMORY, "no memory for the waiters");
    if (!pg_listen_open(loop, conninfo, OUTBOX_FINAL_CHANNEL, on_hint, waiters, &waiters->listen, err)) {
        free(waiters);
        return false;
    }
    pg_listen_want(waiters->listen, false);
    waiters->loop = loop;
    waiters->pool = pool;
    waiters->ask_max = (IDS_MAX - ARRAY_HEAD) / ARRAY_ITEM;
    buf_init(&waiters->ids, IDS_MAX);
    uv_timer_init(loop, &waiters->tick);
    uv_prepare_init(loop, &waiters->turn);
    uv_prepare_start(&waiters->turn, on_turn);
    waiters->open_parts = 3;
    *ret_waiters = waiters;
    return true;
}

static void part_closed(struct waiters *waiters)
{
    if (--waiters->open_parts > 0)
        return;
    buf_done(&waiters->ids);
    void (*on_closed)(void *context) = waiters->on_closed;
    void *context = waiters->closed_context;
    free(waiters);
    on_closed(context);
}

static void on_tick_closed(uv_handle_t *handle)
{
    part_closed(container_of((uv_timer_t *)handle, struct waiters, tick));
}

static void on_turn_closed(uv_handle_t *handle)
{
    part_closed(container_of((uv_prepare_t *)handle, struct waiters, turn));
}

static void on_listen_closed(void *context)
{
    part_closed(context);
}

void waiters_close(struct waiters *waiters, void (*on_closed)(void *context), void *context)
{
    assert(waiters_is_idle(waiters));
    waiters->on_closed = on_closed;
    waiters->closed_context = context;
    uv_close((uv_handle_t *)&waiters->tick, on_tick_closed);
    uv_close((uv_handle_t *)&waiters->turn, on_turn_closed);
    pg_listen_close(waiters->listen, on_listen_closed, waiters);
}
