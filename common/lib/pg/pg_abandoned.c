/* See pg_abandoned.h.
 *
 * Invariants: no caller waits for these results, since every query has been answered PG_UNKNOWN; nothing new is sent,
 * but what libpq has buffered is written, since half a message would keep the server waiting for ever. */
#include "common/lib/pg/pg_abandoned.h"

#include <assert.h>

bool pg_abandoned_is_free(const struct pg_abandoned *abandoned)
{
    return !abandoned->libpq && !abandoned->is_closing;
}

static void on_closed(uv_handle_t *handle)
{
    struct pg_abandoned *abandoned = container_of((uv_poll_t *)handle, struct pg_abandoned, poll);
    abandoned->is_closing = false;
    abandoned->on_over(abandoned);
}

void pg_abandoned_drop(struct pg_abandoned *abandoned)
{
    if (!abandoned->libpq)
        return;
    abandoned->is_closing = true;
    uv_close((uv_handle_t *)&abandoned->poll, on_closed); /* first: libpq closes the descriptor */
    PQfinish(abandoned->libpq);
    abandoned->libpq = NULL;
}

static bool drain(struct pg_abandoned *abandoned)
{
    int nulls = 0; /* one ends the results of a statement, two in a row mean that there is nothing more */
    while (abandoned->syncs > 0 && nulls < 2 && !PQisBusy(abandoned->libpq)) {
        PGresult *result = PQgetResult(abandoned->libpq);
        nulls = result ? 0 : nulls + 1;
        if (PQresultStatus(result) == PGRES_PIPELINE_SYNC)
            abandoned->syncs--;
        PQclear(result);
    }
    return abandoned->syncs > 0 && PQstatus(abandoned->libpq) == CONNECTION_OK;
}

static void on_poll(uv_poll_t *poll, int status, int events);

static bool watch(struct pg_abandoned *abandoned)
{
    int left = PQflush(abandoned->libpq);
    int events = left > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE;
    return left >= 0 && uv_poll_start(&abandoned->poll, events, on_poll) == 0;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct pg_abandoned *abandoned = container_of(poll, struct pg_abandoned, poll);
    (void)events;
    bool is_going_on = status == 0 && PQconsumeInput(abandoned->libpq) == 1 && drain(abandoned) && watch(abandoned);
    if (!is_going_on)
        pg_abandoned_drop(abandoned);
}

bool pg_abandoned_take(struct pg_abandoned *abandoned, uv_loop_t *loop, PGconn *libpq, int syncs,
                       void (*on_over)(struct pg_abandoned *abandoned))
{
    assert(pg_abandoned_is_free(abandoned));
    if (uv_poll_init(loop, &abandoned->poll, PQsocket(libpq)) != 0) {
        PQfinish(libpq);
        return false;
    }
    abandoned->libpq = libpq;
    abandoned->syncs = syncs;
    abandoned->on_over = on_over;
    if (!drain(abandoned) || !watch(abandoned))
        pg_abandoned_drop(abandoned);
    return true;
}

int pg_abandoned_pid(const struct pg_abandoned *abandoned)
{
    return abandoned->libpq ? PQbackendPID(abandoned->libpq) : 0;
}
