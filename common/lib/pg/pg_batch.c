/* See pg_batch.h.
 *
 * Invariants: an item is in one line, or in one batch, or has ended. A batch is busy from its start until it has
 * neither a query nor a retry timer on its way and each of its items has ended or is back in a line. Hooks run when no
 * pointer into a line is held, since they may add items. */
#include "common/lib/pg/pg_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/pg/pg_place.h"

#define HANG_MS 10            /* a batch that is out for longer does not hold the others up */
#define LOAD_FROM 8           /* items of a batch */
#define MOVED_PAUSE_MS 100    /* before a place that was not served is tried again */
#define OVERDUE_AT_A_TIME 256 /* given up in one turn of the loop, so that they do not block it */

struct batch {
    struct pg_batcher *batcher;
    struct line *line; /* that its items are of */
    struct pg_query query;
    struct pg_columns columns;
    struct pg_batch_item **items; /* options.items_max */
    int count;
    int tries;
    bool is_busy;
    int64_t since_ms; /* by the loop's clock */
    uv_timer_t retry_timer;
};

/* The queue of one place. */
struct line {
    int place;
    struct pg_batch_item *first, *last;
    int alone_count; /* so many of its first go one by one, because their batch was refused */
    int64_t from_ms; /* no batch starts before; 0 = at any time */
};

struct pg_batcher {
    struct pg_batcher_options options;
    /* The first: all items without hooks->place_of, else those that were added before their place was known; then one
     * for each place. */
    struct line lines[1 + PG_PLACES_MAX];
    int line_count;      /* the others were never used */
    int waiting_count;   /* in all lines */
    int64_t next_number; /* of an item */
    bool has_moved;      /* a place was not served: items may wait for long */
    int usual_count;     /* items of a batch, mostly of the last four */
    int64_t last_ms;     /* the last batch started, by the loop's clock */
    uv_prepare_t turn;
    uv_timer_t wake_timer; /* makes the loop take another turn */
    struct closing closing;
    struct pg_batch_item **items; /* of all batches */
    struct batch batches[];       /* options.batch_count */
};

static void on_wake(uv_timer_t *timer)
{
    (void)timer; /* the turn that follows does the work */
}

/* Also from a callback that runs after this turn's on_loop_turn(): the loop does not sleep over it. */
static void wake(struct pg_batcher *batcher)
{
    (void)uv_timer_start(&batcher->wake_timer, on_wake, 0, 0);
}

/* ---- the queue ---- */

static struct line *line_of(struct pg_batcher *batcher, const struct pg_batch_item *item)
{
    const struct pg_batcher_options *options = &batcher->options;
    int i = options->hooks->place_of ? 1 + options->hooks->place_of(options->context, item) : 0;
    if (i >= batcher->line_count)
        batcher->line_count = i + 1;
    return &batcher->lines[i];
}

static void append(struct pg_batcher *batcher, struct line *line, struct pg_batch_item *item)
{
    item->next = NULL;
    if (line->last)
        line->last->next = item;
    else
        line->first = item;
    line->last = item;
    batcher->waiting_count++;
}

static void prepend(struct pg_batcher *batcher, struct line *line, struct pg_batch_item *item)
{
    item->next = line->first;
    line->first = item;
    if (!line->last)
        line->last = item;
    batcher->waiting_count++;
}

void pg_batcher_add(struct pg_batcher *batcher, struct pg_batch_item *item)
{
    item->may_be_done = false;
    pg_batcher_add_again(batcher, item, false);
}

void pg_batcher_add_again(struct pg_batcher *batcher, struct pg_batch_item *item, bool goes_alone)
{
    item->goes_alone = goes_alone;
    item->number = batcher->next_number++;
    if (batcher->waiting_count == 0)
        wake(batcher);
    append(batcher, line_of(batcher, item), item);
}

static struct pg_batch_item *take_first(struct pg_batcher *batcher, struct line *line)
{
    struct pg_batch_item *item = line->first;
    line->first = item->next;
    if (!line->first)
        line->last = NULL;
    batcher->waiting_count--;
    if (line->alone_count > 0)
        line->alone_count--;
    return item;
}

/* The places are known now: those that were added before go to their lines. */
static void spread(struct pg_batcher *batcher)
{
    struct line *first = &batcher->lines[0], *line;
    while (first->first && (line = line_of(batcher, first->first)) != first)
        append(batcher, line, take_first(batcher, first));
}

static int64_t hung_since_ms(const struct pg_batcher *batcher)
{
    return (int64_t)uv_now(batcher->options.loop) - HANG_MS;
}

/* There are several databases, and that of the place is away. */
static bool is_left_out(const struct pg_batcher *batcher, int place)
{
    const struct pg_pool *pool = batcher->options.pool;
    return pg_pool_databases(pool) > 1 && !pg_pool_ready_for(pool, place);
}

/* A place whose batch hangs leaves the others to the other places. What can wait does not start while its database is
 * away. */
static bool may_start(const struct pg_batcher *batcher, const struct line *line)
{
    const struct pg_batcher_options *options = &batcher->options;
    int out_count = 0, hung_count = 0;
    if (options->away_timeout_ms == 0 &&
        (line->from_ms > (int64_t)uv_now(options->loop) || is_left_out(batcher, line->place)))
        return false;
    for (int i = 0; i < options->batch_count; i++) {
        const struct batch *batch = &batcher->batches[i];
        bool is_out = batch->is_busy && batch->line == line;
        out_count += is_out;
        hung_count += is_out && batch->since_ms <= hung_since_ms(batcher);
    }
    /* guard: a place that hangs takes no batch from the others */
    return out_count < options->place_batches && (hung_count == 0 || pg_pool_places(options->pool) <= 1);
}

/* NULL: none of those that have items may start a batch. */
static struct line *oldest_line(struct pg_batcher *batcher)
{
    struct line *oldest = NULL;
    for (int i = 0; i < batcher->line_count; i++) {
        struct line *line = &batcher->lines[i];
        if (line->first && (!oldest || line->first->number < oldest->first->number) && may_start(batcher, line))
            oldest = line;
    }
    return oldest;
}

static void give_up(struct pg_batcher *batcher, struct pg_batch_item *item, const char *why)
{
    batcher->options.hooks->on_given_up(batcher->options.context, item, why);
}

/* The database is away: an item that has waited for as long as a batch did need not wait for a batch of its own. */
static void give_up_stale(struct pg_batcher *batcher, const char *why)
{
    int64_t stale_ms = clock_mono_ms() - batcher->options.away_timeout_ms;
    for (int i = 0; i < batcher->line_count; i++) {
        struct line *line = &batcher->lines[i];
        while (line->first && line->first->since_ms <= stale_ms &&
               !pg_pool_ready_for(batcher->options.pool, line->place))
            give_up(batcher, take_first(batcher, line), why);
    }
}

/* Their callers do not wait any more. false: there may be more of them. */
static bool give_up_overdue(struct pg_batcher *batcher)
{
    int64_t now_ms = clock_mono_ms();
    int left = OVERDUE_AT_A_TIME;
    for (int i = 0; i < batcher->line_count; i++) {
        struct line *line = &batcher->lines[i];
        while (line->first && line->first->deadline_ms <= now_ms) {
            if (left-- == 0)
                return false;
            give_up(batcher, take_first(batcher, line), "no connection was free in time");
        }
    }
    return true;
}

/* ---- one batch ---- */

static void set_free(struct batch *batch)
{
    batch->is_busy = false;
    batch->count = 0;
    if (batch->batcher->waiting_count > 0)
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

/* Back to the heads of their lines, in the same order. */
static void put_back(struct batch *batch)
{
    for (int i = batch->count - 1; i >= 0; i--)
        prepend(batch->batcher, line_of(batch->batcher, batch->items[i]), batch->items[i]);
    set_free(batch);
}

static void not_sent(struct batch *batch, const char *why)
{
    /* guard: what waited for the first connection reaches its place */
    if (batch->query.place == PG_PLACE_UNKNOWN && pg_pool_places(batch->batcher->options.pool) > 1) {
        put_back(batch);
        return;
    }
    if (batch->batcher->options.away_timeout_ms == 0) {
        /* A database that is away keeps no batch from the others. */
        if (is_left_out(batch->batcher, batch->query.place))
            put_back(batch);
        else
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
    bool is_away = options->away_timeout_ms > 0 && !pg_pool_ready_for(options->pool, batch->query.place);
    batch->query.statement = options->statement;
    batch->query.timeout_ms = is_away ? options->away_timeout_ms : options->timeout_ms;
    batch->query.on_result = on_result;
    pg_pool_submit(options->pool, &batch->query);
}

static void on_retry(uv_timer_t *timer)
{
    send_batch(container_of(timer, struct batch, retry_timer));
}

/* Each of them goes alone. */
static void split(struct batch *batch)
{
    line_of(batch->batcher, batch->items[0])->alone_count += batch->count;
    put_back(batch);
}

static void wait_for_place(struct batch *batch)
{
    batch->batcher->has_moved = true;
    batch->line->from_ms = (int64_t)uv_now(batch->batcher->options.loop) + MOVED_PAUSE_MS;
    /* A place that has left keeps no batch from the others. */
    put_back(batch);
}

static void refuse_all(struct batch *batch, const struct pg_query_result *result)
{
    const struct pg_batcher_options *options = &batch->batcher->options;
    for (int i = 0; i < batch->count; i++)
        (void)options->hooks->on_refused(options->context, batch->items[i], result);
    set_free(batch);
}

static void refused(struct batch *batch, const struct pg_query_result *result)
{
    const struct pg_batcher_options *options = &batch->batcher->options;
    bool is_moved = pg_sqlstate_is_moved(result->sqlstate);
    bool is_transient = pg_sqlstate_is_transient(result->sqlstate);
    if (is_transient && options->hooks->on_transient)
        options->hooks->on_transient(options->context, batch->items[0], result->sqlstate);
    if (is_transient)
        retry(batch, result->message);
    else if (is_moved && options->away_timeout_ms == 0)
        wait_for_place(batch);
    else if (is_moved) /* all of them are of one place */
        refuse_all(batch, result);
    /* guard: a batch that is refused is split */
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

static bool goes_alone(const struct line *line)
{
    return line->alone_count > 0 || line->first->goes_alone;
}

static void start_batch(struct pg_batcher *batcher, struct batch *batch, struct line *line)
{
    int most = goes_alone(line) ? 1 : batcher->options.items_max;
    batch->count = batch->tries = 0;
    while (line->first && batch->count < most && (batch->count == 0 || !line->first->goes_alone))
        batch->items[batch->count++] = take_first(batcher, line);
    batch->query.place = line->place;
    batch->line = line;
    batch->is_busy = true;
    batch->since_ms = batcher->last_ms = (int64_t)uv_now(batcher->options.loop);
    batcher->usual_count = (3 * batcher->usual_count + batch->count + 3) / 4;
    send_batch(batch);
}

/* How long the next batch waits for more items. */
static int64_t gather_ms(const struct pg_batcher *batcher, const struct line *line)
{
    const struct pg_batcher_options *options = &batcher->options;
    if (batcher->usual_count < LOAD_FROM || batcher->waiting_count >= options->gather_items || goes_alone(line))
        return 0;
    return batcher->last_ms + options->gather_ms - (int64_t)uv_now(options->loop);
}

static bool is_worth_a_batch(const struct pg_batcher *batcher)
{
    int out_count = 0, sent_count = 0;
    int64_t hung_ms = hung_since_ms(batcher);
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

static void on_loop_turn(uv_prepare_t *turn)
{
    struct pg_batcher *batcher = container_of(turn, struct pg_batcher, turn);
    if (batcher->waiting_count == 0)
        return;
    (void)uv_timer_stop(&batcher->wake_timer);
    spread(batcher);
    /* guard: a request that waited past the time to a verdict is not tried */
    bool may_expire =
        batcher->options.away_timeout_ms > 0 || batcher->has_moved || pg_pool_databases(batcher->options.pool) > 1;
    if (may_expire && !give_up_overdue(batcher)) {
        wake(batcher);
        return;
    }
    for (int i = 0; i < batcher->options.batch_count && batcher->waiting_count > 0; i++) {
        if (batcher->batches[i].is_busy)
            continue;
        struct line *line = oldest_line(batcher);
        int64_t wait_ms = line && is_worth_a_batch(batcher) ? gather_ms(batcher, line) : HANG_MS;
        if (wait_ms > 0) {
            (void)uv_timer_start(&batcher->wake_timer, on_wake, (uint64_t)wait_ms, 0);
            return;
        }
        start_batch(batcher, &batcher->batches[i], line);
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
    if (options->place_batches == 0)
        batcher->options.place_batches = options->batch_count;
    batcher->items = items;
    for (int i = 0; i <= PG_PLACES_MAX; i++)
        batcher->lines[i].place = i - 1;
    batcher->lines[0].place = options->hooks->place_of ? PG_PLACE_UNKNOWN : options->place;
    for (size_t i = 0; i < batch_count; i++) {
        struct batch *batch = &batcher->batches[i];
        batch->batcher = batcher;
        batch->items = items + i * items_max;
        pg_columns_init(&batch->columns, options->array_bytes_max);
        (void)uv_timer_init(options->loop, &batch->retry_timer); /* cannot fail */
    }
    (void)uv_timer_init(options->loop, &batcher->wake_timer); /* cannot fail */
    (void)uv_prepare_init(options->loop, &batcher->turn);     /* cannot fail */
    /* libuv runs prepare handles that were started later first. The pool's was started before this one, so a batch that
     * starts in a turn is sent in the same turn. In the other order it would be sent one turn later. */
    (void)uv_prepare_start(&batcher->turn, on_loop_turn);
    *ret_batcher = batcher;
    return true;
}

bool pg_batcher_is_idle(const struct pg_batcher *batcher)
{
    for (int i = 0; i < batcher->options.batch_count; i++)
        if (batcher->batches[i].is_busy)
            return false;
    return batcher->waiting_count == 0;
}

void pg_batcher_close(struct pg_batcher *batcher, void (*on_closed)(void *context), void *context)
{
    assert(pg_batcher_is_idle(batcher));
    struct closing *closing = &batcher->closing;
    closing_start(closing, release, batcher, on_closed, context);
    for (int i = 0; i < batcher->options.batch_count; i++)
        closing_handle(closing, &batcher->batches[i].retry_timer);
    closing_handle(closing, &batcher->wake_timer);
    closing_handle(closing, &batcher->turn);
    closing_end(closing);
}
