/* See sweep.h. One statement in flight. A look is at the young, or at the next piece of a pass. */
#include "worker/sweep.h"

#include <assert.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/sql/statements.h"
#include "worker/claim.h"
#include "worker/worker.h"

#define FREED_MAX 500 /* leases taken back by one statement */
#define YOUNG_MS 2000
#define COST_MOST_MS 20 /* above it a look was too wide, below COST_LITTLE_MS it might have been wider */
#define COST_LITTLE_MS 5
#define REST_FACTOR 50
#define WIDTH_FIRST_MS 60000 /* the first that is not unbounded */
#define WIDTH_LEAST_MS 1000
#define WIDTH_MOST_MS (24 * 3600 * 1000)
#define AGE_MOST_MS (40LL * 24 * 3600 * 1000)
#define SWEEP_TIMEOUT_MS 10000

/* A statement that began before the clock was set back may commit times of before after the first rebase: again, until
 * every such statement is over (the roles' statement_timeout). */
static const int64_t REBASE_AGAIN_MS[] = {1000, 4000, 15000};

struct sweep {
    struct worker *worker;
    uv_timer_t timer;
    struct pg_ask ask;
    bool is_asking, is_young; /* is_young: what the ask looks at */
    bool rebase_wanted;       /* the database's clock was set back, or may have been */
    int64_t rebase_due_ms;
    int rebase_turn; /* of REBASE_AGAIN_MS */
    int64_t asked_ms;
    int64_t young_due_ms, old_due_ms;
    int64_t pass_began_ms;
    int64_t age_ms;         /* where the pass has got to */
    int64_t width_ms;       /* of the next look */
    int64_t least_width_ms; /* of this pass: where the next one begins */
    bool is_stopped;
    void (*on_closed)(void *context);
    void *closed_context;
};

int64_t sweep_next_width_ms(int64_t width_ms, int64_t cost_ms)
{
    if (cost_ms > COST_MOST_MS) {
        if (width_ms == SWEEP_UNBOUNDED)
            return WIDTH_FIRST_MS;
        return width_ms / 2 > WIDTH_LEAST_MS ? width_ms / 2 : WIDTH_LEAST_MS;
    }
    if (cost_ms >= COST_LITTLE_MS || width_ms == SWEEP_UNBOUNDED)
        return width_ms;
    return width_ms * 2 > WIDTH_MOST_MS ? SWEEP_UNBOUNDED : width_ms * 2;
}

static void begin_pass(struct sweep *sweep, int64_t now_ms)
{
    sweep->age_ms = YOUNG_MS;
    sweep->pass_began_ms = now_ms;
    sweep->least_width_ms = sweep->width_ms;
}

/* After a look at what is old. */
static void go_on(struct sweep *sweep, int64_t now_ms, int64_t cost_ms, bool was_full)
{
    bool was_last = sweep->width_ms == SWEEP_UNBOUNDED;
    int64_t next_ms = sweep_next_width_ms(sweep->width_ms, cost_ms);
    if (!was_last && !was_full && sweep->age_ms + sweep->width_ms >= AGE_MOST_MS)
        next_ms = SWEEP_UNBOUNDED; /* whatever it costs: a pass comes to its end */
    sweep->old_due_ms = now_ms + cost_ms * REST_FACTOR;
    if (was_full) /* there is more where it looked */
        return;
    if (!was_last)
        sweep->age_ms += sweep->width_ms;
    sweep->width_ms = next_ms;
    if (next_ms < sweep->least_width_ms)
        sweep->least_width_ms = next_ms;
    if (!was_last)
        return;
    /* The next pass begins with what the densest part of this one allowed. */
    int64_t poll_ms = sweep->pass_began_ms + sweep->worker->config->worker.poll_interval_ms;
    if (sweep->old_due_ms < poll_ms)
        sweep->old_due_ms = poll_ms;
    sweep->width_ms = sweep->least_width_ms;
    begin_pass(sweep, sweep->old_due_ms);
}

static void on_timer(uv_timer_t *timer);

static void wait_for_next(struct sweep *sweep, int64_t now_ms)
{
    if (sweep->is_stopped)
        return;
    int64_t due_ms = sweep->young_due_ms < sweep->old_due_ms ? sweep->young_due_ms : sweep->old_due_ms;
    uv_timer_start(&sweep->timer, on_timer, due_ms > now_ms ? (uint64_t)(due_ms - now_ms) : 0, 0);
}

static void on_looked(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct sweep *sweep = container_of(ask, struct sweep, ask);
    struct claim *claim = sweep->worker->claim;
    int64_t now_ms = clock_mono_ms(), cost_ms = 0, freed = 0;
    int64_t poll_ms = sweep->worker->config->worker.poll_interval_ms;
    sweep->is_asking = false;
    if (answer->kind == PG_DONE) {
        freed = pg_int8(answer->rows, 0, 0);
        if (freed > 0) {
            log_warning("leases ran out; their events are PENDING again", LOG_NUMBER("events", freed));
            claim_hint(claim);
        }
        if (!pg_is_null(answer->rows, 0, 1))
            claim_go_back(claim, pg_int8(answer->rows, 0, 1));
        cost_ms = pg_int8(answer->rows, 0, 2);
        if (pg_int8(answer->rows, 0, 3) > 0)
            log_warning("events that lost their worker again and again are FAILED worker_lost",
                        LOG_NUMBER("events", pg_int8(answer->rows, 0, 3)));
    }
    /* Too many entries to look through, or no database: this one is no look. (One that waited for a connection in vain
     * is PG_NOT_SENT, and says nothing of the width.) */
    bool is_late = answer->kind == PG_UNKNOWN && now_ms - sweep->asked_ms >= SWEEP_TIMEOUT_MS;
    if (sweep->is_young)
        sweep->young_due_ms = now_ms + (cost_ms * REST_FACTOR > poll_ms ? cost_ms * REST_FACTOR : poll_ms);
    else if (answer->kind == PG_DONE)
        go_on(sweep, now_ms, cost_ms, freed == FREED_MAX);
    else
        sweep->old_due_ms = now_ms + poll_ms;
    if (is_late && !sweep->is_young) {
        sweep->width_ms = sweep_next_width_ms(sweep->width_ms, SWEEP_TIMEOUT_MS);
        sweep->least_width_ms = sweep->width_ms;
    }
    wait_for_next(sweep, now_ms);
}

static void on_rebased(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct sweep *sweep = container_of(ask, struct sweep, ask);
    sweep->is_asking = false;
    int64_t moved = answer->kind == PG_DONE ? pg_int8(answer->rows, 0, 0) : 0;
    int64_t now_ms = clock_mono_ms();
    sweep->rebase_wanted |= answer->kind != PG_DONE || moved == FREED_MAX;
    if (!sweep->rebase_wanted && sweep->rebase_turn < (int)ARRAY_SIZE(REBASE_AGAIN_MS)) {
        sweep->rebase_wanted = true;
        sweep->rebase_due_ms = now_ms + REBASE_AGAIN_MS[sweep->rebase_turn++];
    }
    if (answer->kind != PG_DONE)
        sweep->rebase_due_ms = now_ms + sweep->worker->config->worker.poll_interval_ms;
    if (moved > 0) {
        log_warning("events bore times of a clock that was ahead; their waits begin now", LOG_NUMBER("events", moved));
        claim_go_back(sweep->worker->claim, -1);
    }
    wait_for_next(sweep, now_ms);
}

static void rebase(struct sweep *sweep)
{
    sweep->rebase_wanted = false;
    sweep->is_asking = true;
    sweep->ask.statement = &sql_outbox_rebase;
    sweep->ask.params[0] = pg_param_int8(FREED_MAX);
    sweep->ask.timeout_ms = SWEEP_TIMEOUT_MS;
    sweep->ask.is_slow = true;
    sweep->ask.on_answer = on_rebased;
    pg_pool_ask(sweep->worker->pool, &sweep->ask);
}

void sweep_rebase(struct sweep *sweep)
{
    sweep->rebase_wanted = true;
    sweep->rebase_due_ms = 0;
    sweep->rebase_turn = 0;
    if (!sweep->is_asking && !sweep->is_stopped)
        uv_timer_start(&sweep->timer, on_timer, 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct sweep *sweep = container_of(timer, struct sweep, timer);
    int64_t now_ms = clock_mono_ms();
    if (sweep->is_asking)
        return;
    if (sweep->rebase_wanted && sweep->rebase_due_ms <= now_ms) {
        rebase(sweep);
        return;
    }
    sweep->is_young = sweep->young_due_ms <= now_ms;
    if (!sweep->is_young && sweep->old_due_ms > now_ms) {
        wait_for_next(sweep, now_ms);
        return;
    }
    int64_t bookmark_us = claim_bookmark_us(sweep->worker->claim);
    int64_t to_ms = sweep->is_young ? 0 : sweep->age_ms;
    bool is_last = !sweep->is_young && sweep->width_ms == SWEEP_UNBOUNDED;
    sweep->is_asking = true;
    sweep->asked_ms = now_ms;
    sweep->ask.statement = &sql_outbox_sweep;
    sweep->ask.params[0] =
        is_last ? pg_param_null() : pg_param_int8(sweep->is_young ? YOUNG_MS : to_ms + sweep->width_ms);
    sweep->ask.params[1] = pg_param_int8(to_ms);
    sweep->ask.params[2] = bookmark_us >= 0 ? pg_param_int8(bookmark_us) : pg_param_null();
    sweep->ask.params[3] = pg_param_int8(FREED_MAX);
    sweep->ask.params[4] = pg_param_int8(FLOW_LOST_MAX);
    sweep->ask.timeout_ms = SWEEP_TIMEOUT_MS;
    sweep->ask.is_slow = true;
    sweep->ask.on_answer = on_looked;
    pg_pool_ask(sweep->worker->pool, &sweep->ask);
}

bool sweep_open(struct worker *worker, struct sweep **ret_sweep, struct err *err)
{
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep)
        return err_set(err, ERR_MEMORY, "no memory for the sweep");
    sweep->worker = worker;
    sweep->width_ms = SWEEP_UNBOUNDED;
    sweep->rebase_wanted = true; /* the clock may have been set back while no worker ran */
    begin_pass(sweep, clock_mono_ms());
    uv_timer_init(worker->loop, &sweep->timer);
    uv_timer_start(&sweep->timer, on_timer, 1, 0);
    *ret_sweep = sweep;
    return true;
}

void sweep_stop(struct sweep *sweep)
{
    sweep->is_stopped = true;
    uv_timer_stop(&sweep->timer);
}

bool sweep_is_idle(const struct sweep *sweep)
{
    return !sweep->is_asking;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct sweep *sweep = container_of((uv_timer_t *)handle, struct sweep, timer);
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
    uv_close((uv_handle_t *)&sweep->timer, on_timer_closed);
}
