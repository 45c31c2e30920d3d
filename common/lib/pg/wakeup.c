/* See wakeup.h. NOTIFY takes a lock over the whole database at commit, so it is never part of a transaction that a
 * caller waits for. It is a transaction of its own; under load the gap keeps its cost below the cost of what it
 * reports, and the listeners are working then anyway. */
#include "common/lib/pg/wakeup.h"

#include <assert.h>
#include <stdlib.h>

#include "common/lib/base/clock.h"

#define WAKEUP_TIMEOUT_MS 1000

struct wakeup_gap {
    uv_timer_t timer;
    struct wakeup *wakeup;
};

static void submit(struct wakeup *wakeup)
{
    wakeup->is_wanted_again = false;
    wakeup->next_ms = clock_mono_ms() + WAKEUP_GAP_MS;
    pg_pool_submit(wakeup->pool, &wakeup->query);
}

static void on_gap_over(uv_timer_t *timer)
{
    submit(container_of(timer, struct wakeup_gap, timer)->wakeup);
}

void wakeup_send(struct wakeup *wakeup)
{
    if (wakeup->is_pending) {
        /* One that still waits for the end of the gap serves this call, too. */
        wakeup->is_wanted_again = !uv_is_active((uv_handle_t *)&wakeup->gap->timer);
        return;
    }
    wakeup->is_pending = true;
    int64_t left_ms = wakeup->next_ms - clock_mono_ms();
    if (left_ms > 0)
        uv_timer_start(&wakeup->gap->timer, on_gap_over, (uint64_t)left_ms, 0);
    else
        submit(wakeup);
}

static void on_result(struct pg_query *query, const struct pg_query_result *result)
{
    (void)result; /* ignoring: listeners also poll */
    struct wakeup *wakeup = container_of(query, struct wakeup, query);
    wakeup->is_pending = false;
    /* guard: what happens while a wakeup is on its way gets a wakeup of its own */
    if (wakeup->is_wanted_again)
        wakeup_send(wakeup);
}

bool wakeup_open(struct wakeup *wakeup, uv_loop_t *loop, struct pg_pool *pool, const struct sql_statement *statement,
                 struct err *err)
{
    *wakeup = (struct wakeup){.pool = pool, .gap = malloc(sizeof(*wakeup->gap))};
    if (!wakeup->gap)
        return err_set(err, ERR_MEMORY, "no memory for a timer");
    uv_timer_init(loop, &wakeup->gap->timer);
    wakeup->gap->wakeup = wakeup;
    wakeup->query.statement = statement;
    wakeup->query.timeout_ms = WAKEUP_TIMEOUT_MS;
    wakeup->query.on_result = on_result;
    return true;
}

bool wakeup_is_idle(const struct wakeup *wakeup)
{
    return !wakeup->is_pending;
}

static void free_gap(uv_handle_t *handle)
{
    free(container_of((uv_timer_t *)handle, struct wakeup_gap, timer));
}

void wakeup_close(struct wakeup *wakeup)
{
    assert(wakeup_is_idle(wakeup));
    if (wakeup->gap)
        uv_close((uv_handle_t *)&wakeup->gap->timer, free_gap);
    wakeup->gap = NULL;
}
