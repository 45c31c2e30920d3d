/* See sweep.h. One statement in flight; the stretches that are due are looked at one after the other, youngest first. */
#include "worker/sweep.h"

#include <assert.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/sql/statements.h"
#include "worker/claim.h"
#include "worker/worker.h"

#define FREED_MAX 500 /* leases taken back by one statement */
#define COST_FACTOR 100
#define SWEEP_TIMEOUT_MS 10000

/* Ages in ms; a stretch goes from one to the next, the last one to the beginning of time. */
static const int64_t ages_ms[] = {0, 2000, 20000, 200000, 2000000};
#define STRETCHES ((int)ARRAY_SIZE(ages_ms))

struct sweep {
    struct worker *worker;
    uv_timer_t poll;
    struct pg_ask ask;
    int asked;        /* which stretch `ask` looks at; -1 = none */
    int64_t asked_ms; /* when */
    int64_t again_ms[STRETCHES];
    bool is_stopped;
    void (*on_closed)(void *context);
    void *closed_context;
};

static void look(struct sweep *sweep);

static void on_looked(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct sweep *sweep = container_of(ask, struct sweep, ask);
    struct claim *claim = sweep->worker->claim;
    int64_t now_ms = clock_mono_ms(), cost_ms = 0, freed = 0;
    if (answer->kind == PG_DONE) {
        freed = pg_int8(answer->rows, 0, 0);
        if (freed > 0) {
            log_warning("leases ran out; their events are PENDING again", LOG_NUMBER("events", freed));
            claim_hint(claim);
        }
        if (!pg_is_null(answer->rows, 0, 1))
            claim_go_back(claim, pg_int8(answer->rows, 0, 1));
        cost_ms = pg_int8(answer->rows, 0, 2);
    } else if (answer->kind == PG_UNKNOWN && now_ms - sweep->asked_ms >= SWEEP_TIMEOUT_MS) {
        /* Too many entries to look through. (One that waited for a connection in vain is PG_NOT_SENT.) */
        cost_ms = SWEEP_TIMEOUT_MS;
        log_warning("a look behind the bookmark took too long; is a transaction open since long ago?",
                    LOG_NUMBER("ms", SWEEP_TIMEOUT_MS));
    }
    int64_t rest_ms = freed == FREED_MAX ? 0 : cost_ms * COST_FACTOR;
    int64_t poll_ms = sweep->worker->config->worker.poll_interval_ms;
    /* A little less than the poll, or every other poll would find it not yet due. */
    sweep->again_ms[sweep->asked] = now_ms + (rest_ms > poll_ms ? rest_ms : poll_ms / 2);
    sweep->asked = -1;
    look(sweep);
}

static void look(struct sweep *sweep)
{
    if (sweep->is_stopped || sweep->asked >= 0)
        return;
    int64_t now_ms = clock_mono_ms();
    int due = 0;
    while (due < STRETCHES && now_ms < sweep->again_ms[due])
        due++;
    if (due == STRETCHES)
        return;
    int64_t bookmark_us = claim_bookmark_us(sweep->worker->claim);
    sweep->asked = due;
    sweep->asked_ms = now_ms;
    sweep->ask.statement = &sql_outbox_sweep;
    sweep->ask.params[0] = due + 1 < STRETCHES ? pg_param_int8(ages_ms[due + 1]) : pg_param_null();
    sweep->ask.params[1] = pg_param_int8(ages_ms[due]);
    sweep->ask.params[2] = bookmark_us >= 0 ? pg_param_int8(bookmark_us) : pg_param_null();
    sweep->ask.params[3] = pg_param_int8(FREED_MAX);
    sweep->ask.timeout_ms = SWEEP_TIMEOUT_MS;
    sweep->ask.is_slow = true;
    sweep->ask.on_answer = on_looked;
    pg_pool_ask(sweep->worker->pool, &sweep->ask);
}

static void on_poll(uv_timer_t *timer)
{
    look(container_of(timer, struct sweep, poll));
}

bool sweep_open(struct worker *worker, struct sweep **ret_sweep, struct err *err)
{
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep)
        return err_set(err, ERR_MEMORY, "no memory for the sweep");
    sweep->worker = worker;
    sweep->asked = -1;
    uv_timer_init(worker->loop, &sweep->poll);
    uv_timer_start(&sweep->poll, on_poll, 1, (uint64_t)worker->config->worker.poll_interval_ms);
    *ret_sweep = sweep;
    return true;
}

void sweep_stop(struct sweep *sweep)
{
    sweep->is_stopped = true;
    uv_timer_stop(&sweep->poll);
}

bool sweep_is_idle(const struct sweep *sweep)
{
    return sweep->asked < 0;
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct sweep *sweep = container_of((uv_timer_t *)handle, struct sweep, poll);
    void (*on_closed)(void *context) = sweep->on_closed;
    void *context = sweep->closed_context;
    free(sweep);
    on_closed(context);
}

void sweep_close(struct sweep *sweep, void (*on_closed)(void *context), void *context)
{
    assert(sweep_is_idle(sweep));
    sweep->on_closed = on_closed;
    sweep->closed_context = context;
    uv_close((uv_handle_t *)&sweep->poll, on_poll_closed);
}
