/* See acceptor.h. Who is next is accept_queue.h's; here are the batches.
 *
 * Invariants: a batch is busy from its start until neither its ask nor its flush is on its way and each of its
 * acceptances is decided or given back; an acceptance is decided once. */
#include "api/acceptor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/accept_queue.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/sql/statements.h"

#define BATCH_MAX 64
#define BATCHES_MAX 16
#define ARRAYS 6
#define ARRAY_BYTES_MAX (4 * 1024 * 1024)
#define PATIENCE_MS 10 /* a batch that takes longer holds nobody else up */
#define ASK_TIMEOUT_MS 5000
#define ASK_AWAY_TIMEOUT_MS 1000    /* while no connection is up */
#define ACCEPT_WITHIN_MS 8000       /* from put to a verdict, however often it is tried */
#define PG_EPOCH_US 946684800000000 /* 2000-01-01 */

struct batch {
    struct acceptor *acceptor;
    struct pg_ask ask;
    struct buf arrays[ARRAYS];
    struct acceptance *items[BATCH_MAX];
    int count;
    bool is_busy;
    int64_t since_ms; /* by the loop's clock */
    uv_timer_t again;
};

struct acceptor {
    struct acceptor_options options;
    struct batch batches[BATCHES_MAX];
    int batch_count;
    struct accept_queue queue;
    uv_prepare_t turn;
    uv_timer_t patience; /* only wakes the loop */
    int open_handles;
    void (*on_closed)(void *context);
    void *closed_context;
};

bool acceptor_put(struct acceptor *acceptor, struct acceptance *acceptance)
{
    acceptance->tries = 0;
    acceptance->deadline_ms = clock_mono_ms() + ACCEPT_WITHIN_MS;
    return accept_queue_put(&acceptor->queue, acceptance);
}

static void decide(struct acceptor *acceptor, struct acceptance *acceptance, enum acceptance_verdict verdict)
{
    accept_queue_leave(&acceptor->queue, acceptance);
    acceptance->on_decided(acceptance, verdict);
}

/* ---- one batch ---- */

static void on_answer(struct pg_ask *ask, const struct pg_answer *answer);
static void on_again(uv_timer_t *timer);

static bool fill(struct batch *batch)
{
    static const enum pg_type types[ARRAYS] = {PG_UUID, PG_TEXT, PG_TEXT, PG_BYTEA, PG_TEXT, PG_TEXT};
    struct pg_array arrays[ARRAYS];
    for (int i = 0; i < ARRAYS; i++)
        pg_array_start(&arrays[i], &batch->arrays[i], types[i]);
    for (int i = 0; i < batch->count; i++) {
        const struct acceptance *item = batch->items[i];
        pg_array_add_uuid(&arrays[0], &item->id);
        pg_array_add(&arrays[1], item->user_id, strlen(item->user_id));
        pg_array_add(&arrays[2], item->key, item->key_length);
        pg_array_add(&arrays[3], item->fingerprint, FINGERPRINT_SIZE);
        pg_array_add(&arrays[4], item->payload.bytes, item->payload.length);
        pg_array_add(&arrays[5], item->traceparent.bytes, item->traceparent.length);
    }
    const struct config *config = batch->acceptor->options.config;
    for (int i = 0; i < ARRAYS; i++) {
        batch->ask.params[i] = pg_array_param(&arrays[i]);
        if (batch->arrays[i].failed)
            return false;
    }
    batch->ask.params[6] = pg_param_int8(config->limit.count);
    batch->ask.params[7] = pg_param_int8(config->limit.window_ms);
    batch->ask.params[8] = pg_param_bool(config->limit.counts == LIMIT_COUNTS_ATTEMPTS);
    batch->ask.params[9] = pg_param_int8(config->idempotency.retention_ms);
    return true;
}

static void end_batch(struct batch *batch, enum acceptance_verdict verdict)
{
    for (int i = 0; i < batch->count; i++)
        decide(batch->acceptor, batch->items[i], verdict);
    batch->is_busy = false;
}

static void send_batch(struct batch *batch)
{
    if (!fill(batch)) {
        end_batch(batch, ACCEPTANCE_UNAVAILABLE);
        return;
    }
    batch->ask.statement = &sql_accept_batch;
    batch->ask.timeout_ms = pg_pool_ready(batch->acceptor->options.pool) ? ASK_TIMEOUT_MS : ASK_AWAY_TIMEOUT_MS;
    batch->ask.on_answer = on_answer;
    nudge_ask(batch->acceptor->options.wake, &batch->ask);
}

static enum acceptance_verdict verdict_of(struct slice text)
{
    static const struct {
        const char *text;
        enum acceptance_verdict verdict;
    } verdicts[] = {
        {"accepted", ACCEPTANCE_ACCEPTED},
        {"replayed", ACCEPTANCE_REPLAYED},
        {"limited", ACCEPTANCE_LIMITED},
        {"reused", ACCEPTANCE_REUSED},
        {"not_replaceable", ACCEPTANCE_NOT_REPLACEABLE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++)
        if (strlen(verdicts[i].text) == text.length && memcmp(verdicts[i].text, text.bytes, text.length) == 0)
            return verdicts[i].verdict;
    assert(!"the function has no other verdicts");
    return ACCEPTANCE_UNAVAILABLE;
}

static void read_row(struct acceptance *item, const struct pg_rows *rows, int row, int64_t window_us)
{
    int64_t decided = pg_int8(rows, row, 6);
    item->event_id = pg_uuid(rows, row, 1);
    item->created_us = pg_int8(rows, row, 2) + PG_EPOCH_US;
    item->used = pg_int8(rows, row, 3);
    item->oldest_in_us = pg_is_null(rows, row, 4) ? -1 : pg_int8(rows, row, 4) + window_us - decided;
    item->frees_in_us = pg_is_null(rows, row, 5) ? 0 : pg_int8(rows, row, 5) - decided;
    item->decided_us = clock_mono_us();
}

static void batch_done(struct batch *batch, const struct pg_rows *rows)
{
    struct acceptor *acceptor = batch->acceptor;
    bool any_accepted = false;
    assert(pg_rows_count(rows) == batch->count);
    metric_observe(acceptor->options.batch_size, batch->count);
    for (int i = 0; i < batch->count; i++) {
        enum acceptance_verdict verdict = verdict_of(pg_bytes(rows, i, 0));
        any_accepted |= verdict == ACCEPTANCE_ACCEPTED;
        read_row(batch->items[i], rows, i, acceptor->options.config->limit.window_ms * 1000);
        decide(acceptor, batch->items[i], verdict);
    }
    batch->is_busy = false;
    if (any_accepted)
        nudge_send_for(acceptor->options.wake, &batch->ask);
}

/* The database is away: those who have waited as long as the batch did need not wait for a batch of their own. */
static void turn_away_late(struct acceptor *acceptor)
{
    struct accept_queue *queue = &acceptor->queue;
    int64_t late_ms = clock_mono_ms() + ACCEPT_WITHIN_MS - ASK_AWAY_TIMEOUT_MS;
    while (queue->first && queue->first->deadline_ms <= late_ms && !pg_pool_ready(acceptor->options.pool))
        decide(acceptor, accept_queue_take(queue), ACCEPTANCE_UNAVAILABLE);
}

/* Each goes alone: one of them is what the database refuses, or waits for. */
static void split(struct batch *batch)
{
    accept_queue_give_back(&batch->acceptor->queue, batch->items, batch->count);
    batch->is_busy = false;
}

/* The outcome is unknown, or the fault passes: the same transaction again, for those whose client may still be there.
 * */
static void try_again(struct batch *batch)
{
    int64_t now_ms = clock_mono_ms();
    int kept = 0, tries = 0;
    for (int i = 0; i < batch->count; i++) {
        struct acceptance *item = batch->items[i];
        if (now_ms >= item->deadline_ms) {
            decide(batch->acceptor, item, ACCEPTANCE_UNAVAILABLE);
            continue;
        }
        tries = ++item->tries > tries ? item->tries : tries;
        batch->items[kept++] = item;
    }
    batch->count = kept;
    if (kept == 0)
        batch->is_busy = false;
    else
        uv_timer_start(&batch->again, on_again, (uint64_t)backoff_delay_ms(tries, 10, 500, backoff_random()) + 1, 0);
}

static void on_again(uv_timer_t *timer)
{
    send_batch(container_of(timer, struct batch, again));
}

static void on_answer(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct batch *batch = container_of(ask, struct batch, ask);
    switch (answer->kind) {
    case PG_DONE:
        batch_done(batch, answer->rows);
        return;
    case PG_NOT_SENT:
        end_batch(batch, ACCEPTANCE_UNAVAILABLE);
        turn_away_late(batch->acceptor);
        return;
    case PG_UNKNOWN:
        try_again(batch);
        return;
    case PG_REFUSED:
        if (pg_sqlstate_is_transient(answer->sqlstate)) {
            try_again(batch);
        } else if (batch->count > 1) {
            split(batch);
        } else if (strcmp(answer->sqlstate, "55P03") == 0) { /* lock_timeout: somebody else holds this user or key */
            end_batch(batch, ACCEPTANCE_IN_PROGRESS);
        } else if (strcmp(answer->sqlstate, "23505") == 0 &&
                   batch->items[0]->tries++ == 0) { /* another service was quicker: look again */
            send_batch(batch);
        } else {
            log_error("a request could not be recorded", LOG_TEXT("sqlstate", answer->sqlstate),
                      LOG_TEXT("why", answer->message));
            end_batch(batch, ACCEPTANCE_UNAVAILABLE);
        }
        return;
    }
}

static void start_batch(struct acceptor *acceptor, struct batch *batch)
{
    int most = acceptor->queue.alone > 0 ? 1 : BATCH_MAX;
    batch->count = 0;
    while (acceptor->queue.first && batch->count < most)
        batch->items[batch->count++] = accept_queue_take(&acceptor->queue);
    batch->is_busy = true;
    batch->since_ms = (int64_t)uv_now(acceptor->options.loop);
    send_batch(batch);
}

static void on_patience(uv_timer_t *timer)
{
    (void)timer; /* the turn that follows looks for itself */
}

/* At once where nothing is out. Otherwise the next batch must be as large as all that are out, and larger the more they
 * are: so batches grow with the load instead of competing in the database. One that hangs (a lock, a slow disk) does not
 * hold the others up for long. */
static bool is_worth_a_batch(const struct acceptor *acceptor)
{
    int out = 0, sent = 0;
    int64_t late_ms = (int64_t)uv_now(acceptor->options.loop) - PATIENCE_MS;
    for (int i = 0; i < acceptor->batch_count; i++) {
        const struct batch *batch = &acceptor->batches[i];
        if (!batch->is_busy)
            continue;
        if (batch->since_ms <= late_ms)
            return true;
        out++;
        sent += batch->count;
    }
    return acceptor->queue.ready >= out * sent;
}

static void on_turn(uv_prepare_t *prepare)
{
    struct acceptor *acceptor = container_of(prepare, struct acceptor, turn);
    for (int i = 0; i < acceptor->batch_count && acceptor->queue.first; i++) {
        if (acceptor->batches[i].is_busy)
            continue;
        if (!is_worth_a_batch(acceptor)) {
            if (!uv_is_active((uv_handle_t *)&acceptor->patience))
                uv_timer_start(&acceptor->patience, on_patience, PATIENCE_MS, 0);
            return;
        }
        start_batch(acceptor, &acceptor->batches[i]);
    }
}

/* ---- open, close ---- */

bool acceptor_open(const struct acceptor_options *options, struct acceptor **ret_acceptor, struct err *err)
{
    struct acceptor *acceptor = calloc(1, sizeof *acceptor);
    if (!acceptor)
        return err_set(err, ERR_MEMORY, "no memory for the acceptor");
    acceptor->options = *options;
    /* One connection stays free for reads where there is more than one. */
    int64_t connections = options->config->database.connections;
    int64_t batches = connections > 1 ? connections - 1 : 1;
    acceptor->batch_count = batches > BATCHES_MAX ? BATCHES_MAX : (int)batches;
    for (int i = 0; i < acceptor->batch_count; i++) {
        struct batch *batch = &acceptor->batches[i];
        batch->acceptor = acceptor;
        for (int j = 0; j < ARRAYS; j++)
            buf_init(&batch->arrays[j], ARRAY_BYTES_MAX);
        uv_timer_init(options->loop, &batch->again);
        acceptor->open_handles++;
    }
    uv_timer_init(options->loop, &acceptor->patience);
    acceptor->open_handles++;
    uv_prepare_init(options->loop, &acceptor->turn);
    uv_prepare_start(&acceptor->turn, on_turn);
    acceptor->open_handles++;
    *ret_acceptor = acceptor;
    return true;
}

static void abandon(struct acceptance *acceptance)
{
    acceptance->on_decided(acceptance, ACCEPTANCE_UNAVAILABLE);
}

void acceptor_abandon(struct acceptor *acceptor)
{
    accept_queue_end(&acceptor->queue, abandon);
}

bool acceptor_is_idle(const struct acceptor *acceptor)
{
    return acceptor->queue.held == 0;
}

static void handle_closed(struct acceptor *acceptor)
{
    if (--acceptor->open_handles > 0)
        return;
    for (int i = 0; i < acceptor->batch_count; i++)
        for (int j = 0; j < ARRAYS; j++)
            buf_done(&acceptor->batches[i].arrays[j]);
    void (*on_closed)(void *context) = acceptor->on_closed;
    void *context = acceptor->closed_context;
    free(acceptor);
    on_closed(context);
}

static void on_batch_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_timer_t *)handle, struct batch, again)->acceptor);
}

static void on_turn_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_prepare_t *)handle, struct acceptor, turn));
}

static void on_patience_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_timer_t *)handle, struct acceptor, patience));
}

void acceptor_close(struct acceptor *acceptor, void (*on_closed)(void *context), void *context)
{
    assert(acceptor_is_idle(acceptor));
    acceptor->on_closed = on_closed;
    acceptor->closed_context = context;
    for (int i = 0; i < acceptor->batch_count; i++)
        uv_close((uv_handle_t *)&acceptor->batches[i].again, on_batch_closed);
    uv_close((uv_handle_t *)&acceptor->turn, on_turn_closed);
    uv_close((uv_handle_t *)&acceptor->patience, on_patience_closed);
}
