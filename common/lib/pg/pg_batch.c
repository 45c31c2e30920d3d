/* See pg_batch.h.
 *
 * Invariants: an item is in the queue, or in one batch, or has ended. A batch is busy from its start until it has
 * neither a query nor a retry timer on its way and each of its items has ended or is back in the queue. Hooks run when
 * no pointer into the queue is held, since they may add items. */
#include "common/lib/pg/pg_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"

#define HANG_MS 10            /* a batch that is out for longer does not hold the others up */
#define LOAD_FROM 8           /* items of a batch */
#define OVERDUE_AT_A_TIME 256 /* given up in one iteration of the loop, so that they do not block it */

struct batch {
    struct pg_batcher *batcher;
    struct pg_query query;
    struct pg_columns columns;
    struct pg_batch_item **items; /* options.items_max */
    int count;
    int tries;
    bool is_busy;
    int64_t since_ms; /* by the loop's clock */
    uv_timer_t retry_timer;
};

struct pg_batcher {
    struct pg_batcher_options options;
    struct pg_batch_item *first, *last; /* the queue */
    int waiting_count;                  /* its length */
    int usual_count;                    /* items of a batch, mostly of the last four */
    int64_t last_ms;                    /* the last batch started, by the loop's clock */
    uv_prepare_t prepare;
    uv_timer_t wake_timer; /* makes the loop do another iteration */
    struct closing closing;
    struct pg_batch_item **items; /* of all batches */
    struct batch batches[];       /* options.batch_count */
};

static void on_wake(uv_timer_t *timer)
{
    (void)timer; /* the next iteration does the work */
}

/* Also from a callback that runs after this iteration's on_prepare(): the loop does not sleep over it. */
static void wake(struct pg_batcher *batcher)
{
    (void)uv_timer_start(&batcher->wake_timer, on_wake, 0, 0);
}

/* ---- the queue ---- */

void pg_batcher_add(struct pg_batcher *batcher, struct pg_batch_item *item)
{
    item->may_be_done = false;
    pg_batcher_add_again(batcher, item, false);
}

void pg_batcher_add_again(struct pg_batcher *batcher, struct pg_batch_item *item, bool goes_alone)
{
    item->goes_alone = goes_alone;
    item->next = NULL;
    if (batcher->last) {
        batcher->last->next = item;
    } else {
        batcher->first = item;
        wake(batcher);
    }
    batcher->last = item;
    batcher->waiting_count++;
}

static struct pg_batch_item *take_first(struct pg_batcher *batcher)
{
    struct pg_batch_item *item = batcher->first;
    batcher->first = item->next;
    if (!batcher->first)
        batcher->last = NULL;
    batcher->waiting_count--;
    return item;
}

static void give_up(struct pg_batcher *batcher, struct pg_batch_item *item, const char *why)
{
    batcher->options.hooks->on_given_up(batcher->options.context, item, why);
}

/* While the database is away, an item that has waited as long as a batch may is given up without a batch of its own. */
static void give_up_stale(struct pg_batcher *batcher, const char *why)
{
    int64_t stale_ms = clock_mono_ms() - batcher->options.away_timeout_ms;
    while (batcher->first && batcher->first->since_ms <= stale_ms && !pg_pool_ready(batcher->options.pool))
        give_up(batcher, take_first(batcher), why);
}

/* Their callers do not wait any more. false: there may be more of them. */
static bool give_up_overdue(struct pg_batcher *batcher)
{
    int64_t now_ms = clock_mono_ms();
    for (int i = 0; i < OVERDUE_AT_A_TIME; i++) {
        if (!batcher->first || batcher->first->deadline_ms > now_ms)
            return true;
        give_up(batcher, take_first(batcher), "no connection was free in time");
    }
    return false;
}

/* ---- one batch ---- */

static void set_free(struct batch *batch)
{
    batch->is_busy = false;
    batch->count = 0;
    if (batch->batcher->first)
        wake(batch->batcher);
}

static void on_result(struct pg_query *query, const struct pg_query_result *result);
static void on_retry(uv_timer_t *timer);

static bool fill(struct batch *batch)
{
    const struct pg_batcher_options *options = &batch->batcher->options;
    pg_columns_start(&batch->columns);
    for (int i = 0; i < batch->count; i++) {
        pg_columns_start_row(&batch->columns);
        options->hooks->add_row(options->context, &batch->columns, batch->items[i]);
    }
    return pg_columns_finish(&batch->columns, batch->query.params, options->statement->parameters);
}

/* The same statement later, for those whose deadline has not passed. */
static void retry(struct batch *batch, const char *why)
{
    const struct pg_batcher_options *options = &batch->batcher->options;
    int64_t now_ms = clock_mono_ms();
    int left = 0;
    for (int i = 0; i < batch->count; i++) {
        if (now_ms >= batch->items[i]->deadline_ms)
            give_up(batch->batcher, batch->items[i], why);
        else
            batch->items[left++] = batch->items[i];
    }
    batch->count = left;
    if (left == 0) {
        set_free(batch);
        return;
    }
    int64_t delay_ms =
        backoff_delay_ms(++batch->tries, options->retry_base_ms, options->retry_cap_ms, backoff_random());
    (void)uv_timer_start(&batch->retry_timer, on_retry, (uint64_t)delay_ms + 1, 0);
}

static void not_sent(struct batch *batch, const char *why)
{
    if (batch->batcher->options.away_timeout_ms == 0) {
        retry(batch, why);
        return;
    }
    for (int i = 0; i < batch->count; i++)
        give_up(batch->batcher, batch->items[i], why);
    set_free(batch);
    give_up_stale(batch->batcher, why);
}

static void send_batch(struct batch *batch)
{
    const struct pg_batcher_options *options = &batch->batcher->options;
    if (!fill(batch)) {
        not_sent(batch, "out of memory");
        return;
    }
    bool is_away = options->away_timeout_ms > 0 && !pg_pool_ready(options->pool);
    batch->query.statement = options->statement;
    batch->query.timeout_ms = is_away ? options->away_timeout_ms : options->timeout_ms;
    batch->query.on_result = on_result;
    pg_pool_submit(options->pool, &batch->query);
}

static void on_retry(uv_timer_t *timer)
{
    send_batch(container_of(timer, struct batch, retry_timer));
}

/* Back to the head of the queue, in the same order; each of them goes alone. */
static void split(struct batch *batch)
{
    struct pg_batcher *batcher = batch->batcher;
    for (int i = batch->count - 1; i >= 0; i--) {
        /* guard: a batch that is refused is split */
        batch->items[i]->goes_alone = true;
        batch->items[i]->next = batcher->first;
        batcher->first = batch->items[i];
        if (!batcher->last)
            batcher->last = batch->items[i];
    }
    batcher->waiting_count += batch->count;
    set_free(batch);
}

static void refuse_all(struct batch *batch, const struct pg_query_result *result)
{
    for (int i = 0; i < batch->count; i++)
        (void)batch->batcher->options.hooks->on_refused(batch->batcher->options.context, batch->items[i], result);
    set_free(batch);
}

static void refused(struct batch *batch, const struct pg_query_result *result)
{
    const struct pg_batcher_options *options = &batch->batcher->options;
    bool is_waited_for = pg_sqlstate_is_moved(result->sqlstate) && options->away_timeout_ms == 0;
    bool is_transient = is_waited_for || pg_sqlstate_is_transient(result->sqlstate);
    if (is_transient && options->hooks->on_transient)
        options->hooks->on_transient(options->context, result->sqlstate);
    if (is_transient)
        retry(batch, result->message);
    else if (pg_sqlstate_is_moved(result->sqlstate)) /* it is so for all of them */
        refuse_all(batch, result);
    else if (batch->count > 1)
        split(batch);
    else if (options->hooks->on_refused(options->context, batch->items[0], result))
        send_batch(batch);
    else
        set_free(batch);
}

static void on_result(struct pg_query *query, const struct pg_query_result *result)
{
    struct batch *batch = container_of(query, struct batch, query);
    const struct pg_batcher_options *options = &batch->batcher->options;
    switch (result->kind) {
    case PG_DONE:
        options->hooks->on_done(options->context, batch->items, batch->count, result->rows);
        set_free(batch);
        return;
    case PG_REFUSED:
        refused(batch, result);
        return;
    case PG_NOT_SENT:
        not_sent(batch, result->message);
        return;
    case PG_UNKNOWN:
        for (int i = 0; i < batch->count; i++)
            /* guard: an item whose outcome is unknown is reported as unknown */
            batch->items[i]->may_be_done = true;
        retry(batch, result->message);
        return;
    }
}

/* ---- when a batch starts ---- */

static void start_batch(struct pg_batcher *batcher, struct batch *batch)
{
    int most = batcher->first->goes_alone ? 1 : batcher->options.items_max;
    batch->count = batch->tries = 0;
    while (batcher->first && batch->count < most && (batch->count == 0 || !batcher->first->goes_alone))
        batch->items[batch->count++] = take_first(batcher);
    batch->is_busy = true;
    batch->since_ms = batcher->last_ms = (int64_t)uv_now(batcher->options.loop);
    batcher->usual_count = (3 * batcher->usual_count + batch->count + 3) / 4;
    send_batch(batch);
}

/* How long the next batch waits for more items. */
static int64_t gather_ms(const struct pg_batcher *batcher)
{
    const struct pg_batcher_options *options = &batcher->options;
    if (batcher->usual_count < LOAD_FROM || batcher->waiting_count >= options->gather_items ||
        batcher->first->goes_alone)
        return 0;
    return batcher->last_ms + options->gather_ms - (int64_t)uv_now(options->loop);
}

static bool is_worth_a_batch(const struct pg_batcher *batcher)
{
    int out_count = 0, sent_count = 0;
    int64_t hung_ms = (int64_t)uv_now(batcher->options.loop) - HANG_MS;
    for (int i = 0; i < batcher->options.batch_count; i++) {
        const struct batch *batch = &batcher->batches[i];
        if (!batch->is_busy)
            continue;
        /* guard: a batch that hangs does not hold up the next */
        if (batch->since_ms <= hung_ms)
            return true;
        out_count++;
        sent_count += batch->count;
    }
    return batcher->waiting_count >= batcher->options.growth * out_count * sent_count;
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct pg_batcher *batcher = container_of(prepare, struct pg_batcher, prepare);
    if (!batcher->first)
        return;
    (void)uv_timer_stop(&batcher->wake_timer);
    /* guard: a request that waited past the time to a verdict is not tried */
    if (batcher->options.away_timeout_ms > 0 && !give_up_overdue(batcher)) {
        wake(batcher);
        return;
    }
    for (int i = 0; i < batcher->options.batch_count && batcher->first; i++) {
        if (batcher->batches[i].is_busy)
            continue;
        int64_t wait_ms = is_worth_a_batch(batcher) ? gather_ms(batcher) : HANG_MS;
        if (wait_ms > 0) {
            (void)uv_timer_start(&batcher->wake_timer, on_wake, (uint64_t)wait_ms, 0);
            return;
        }
        start_batch(batcher, &batcher->batches[i]);
    }
}

/* ---- open, close ---- */

static void release(void *module)
{
    struct pg_batcher *batcher = module;
    for (int i = 0; i < batcher->options.batch_count; i++)
        pg_columns_done(&batcher->batches[i].columns);
    free(batcher->items);
    free(batcher);
}

bool pg_batcher_open(const struct pg_batcher_options *options, struct pg_batcher **ret_batcher, struct err *err)
{
    assert(options->batch_count > 0 && options->items_max > 0 && options->timeout_ms > 0);
    size_t batch_count = (size_t)options->batch_count, items_max = (size_t)options->items_max;
    struct pg_batcher *batcher = calloc(1, sizeof(*batcher) + batch_count * sizeof(batcher->batches[0]));
    struct pg_batch_item **items = calloc(batch_count * items_max, sizeof(items[0]));
    if (!batcher || !items) {
        free(batcher);
        free(items);
        return err_set(err, ERR_MEMORY, "no memory for batches of statements");
    }
    batcher->options = *options;
    batcher->items = items;
    for (size_t i = 0; i < batch_count; i++) {
        struct batch *batch = &batcher->batches[i];
        batch->batcher = batcher;
        batch->items = items + i * items_max;
        pg_columns_init(&batch->columns, options->array_bytes_max);
        (void)uv_timer_init(options->loop, &batch->retry_timer); /* cannot fail */
    }
    (void)uv_timer_init(options->loop, &batcher->wake_timer); /* cannot fail */
    (void)uv_prepare_init(options->loop, &batcher->prepare);  /* cannot fail */
    /* libuv runs prepare handles that were started later first. The pool's was started before this one, so a batch that
     * starts in an iteration is sent in it. In the other order it would be sent in the next one. */
    (void)uv_prepare_start(&batcher->prepare, on_prepare);
    *ret_batcher = batcher;
    return true;
}

bool pg_batcher_is_idle(const struct pg_batcher *batcher)
{
    for (int i = 0; i < batcher->options.batch_count; i++)
        if (batcher->batches[i].is_busy)
            return false;
    return !batcher->first;
}

void pg_batcher_close(struct pg_batcher *batcher, void (*on_closed)(void *context), void *context)
{
    assert(pg_batcher_is_idle(batcher));
    struct closing *closing = &batcher->closing;
    closing_start(closing, release, batcher, on_closed, context);
    for (int i = 0; i < batcher->options.batch_count; i++)
        closing_handle(closing, &batcher->batches[i].retry_timer);
    closing_handle(closing, &batcher->wake_timer);
    closing_handle(closing, &batcher->prepare);
    closing_end(closing);
}
