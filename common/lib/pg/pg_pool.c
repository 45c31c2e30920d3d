/* The queues of the pool: who waits, which connection takes a query, when it is sent, who gets its result; opening
 * and closing. The life of a connection is in pg_pool_slots.c.
 *
 * Invariants:
 * - Submitting only appends to a queue; everything is sent and reported from the loop. on_prepare() runs before the
 *   loop sleeps, so a single query is sent in the same iteration, and those of one iteration are spread over the
 *   connections together. (libuv runs prepare handles that were started later first, so those that submit run before
 *   the pool.)
 * - Each query submitted is counted in in_flight_count until its one result. Callbacks of the user run at the end of
 *   the function that they are called from, or from loops that hold no pointer into a queue; they may submit and may
 *   close.
 * Left out: growing and shrinking, priorities. */
#include "common/lib/pg/pg_pool.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/pg/pg_conninfo.h"
#include "common/lib/pg/pg_pool_internal.h"

#define PIDS_MAX 4096
#define CLOSING_TEXT "the program is closing its connections"
/* A query with less time left than this, or than this part of its time, is not sent: the result would come too late. */
#define ANSWER_LEAST_MS 1000
#define ANSWER_LEAST_PART 5

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* while the handle is active, the loop does not sleep */
}

/* Makes on_prepare() run before the loop sleeps, also when it has run in this iteration of the loop already. */
static void request_iteration(struct pg_pool *pool)
{
    if (!uv_is_closing((uv_handle_t *)&pool->keep_awake))
        (void)uv_idle_start(&pool->keep_awake, on_idle);
}

/* The query's result, to its owner. */
static void report_result(struct pg_pool *pool, struct pg_query *query, const struct pg_query_result *result)
{
    pool->in_flight_count--;
    if (result->kind == PG_REFUSED && pool->options.on_error)
        pool->options.on_error(pool->options.context, result->sqlstate);
    query->on_result(query, result);
}

static void report_not_sent(struct pg_pool *pool, struct pg_query *query, const char *why)
{
    struct pg_query_result result = {.kind = PG_NOT_SENT};
    snprintf(result.message, sizeof(result.message), "%s: %.180s", query->statement->name, why);
    report_result(pool, query, &result);
}

int pg_pool_in_flight(const struct pg_pool *pool)
{
    return pool->in_flight_count;
}

int pg_pool_waiting(const struct pg_pool *pool)
{
    return pool->waiting.count + pool->yielding.count;
}

/* ---- late queries ---- */

static void on_deadline(uv_timer_t *timer);

/* The deadline timer fires at deadline_ms or earlier. */
static void watch_deadline(struct pg_pool *pool, int64_t deadline_ms)
{
    uv_handle_t *timer = (uv_handle_t *)&pool->deadline_timer;
    if (uv_is_closing(timer) || (uv_is_active(timer) && pool->due_ms <= deadline_ms))
        return;
    int64_t now_ms = clock_mono_ms();
    int64_t delay_ms = deadline_ms - now_ms > PG_POOL_PRECISION_MS ? deadline_ms - now_ms : PG_POOL_PRECISION_MS;
    pool->due_ms = now_ms + delay_ms;
    (void)uv_timer_start(&pool->deadline_timer, on_deadline, (uint64_t)delay_ms, 0);
}

/* The last moment to send a query that waits. */
static int64_t send_by_ms(const struct pg_query *query)
{
    int64_t part_ms = query->timeout_ms / ANSWER_LEAST_PART;
    /* guard: what has too little time left is not sent */
    return query->deadline_ms - (part_ms < ANSWER_LEAST_MS ? part_ms : ANSWER_LEAST_MS);
}

static const char *why_too_late(const struct pg_pool *pool)
{
    return pg_pool_ready(pool) ? "no connection was free in time" : "no connection to the database in time";
}

/* Takes those that cannot be sent in time out of a queue. */
static void take_late(struct pg_queries *queries, int64_t now_ms, struct pg_queries *ret_late)
{
    struct pg_queries rest = {0};
    struct pg_query *query;
    while ((query = pg_queries_take(queries)))
        pg_queries_append(send_by_ms(query) <= now_ms ? ret_late : &rest, query);
    *queries = rest;
}

static void report_unknown(struct pg_pool *pool, struct pg_query *query)
{
    struct pg_query_result result = {.kind = PG_UNKNOWN};
    snprintf(result.message, sizeof(result.message), "no answer to %s within %lld ms", query->statement->name,
             (long long)query->timeout_ms);
    report_result(pool, query, &result);
}

static int64_t earlier(int64_t a_ms, int64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

static int64_t next_deadline_ms(const struct pg_pool *pool)
{
    int64_t next_ms = INT64_MAX;
    for (const struct pg_query *query = pool->waiting.first; query; query = query->next)
        next_ms = earlier(next_ms, send_by_ms(query));
    for (const struct pg_query *query = pool->yielding.first; query; query = query->next)
        next_ms = earlier(next_ms, send_by_ms(query));
    for (int i = 0; i < pool->options.connections; i++) {
        const struct pg_connection *connection = &pool->slots[i].connection;
        const struct pg_query *first = connection->in_flight.first;
        for (const struct pg_query *query = first; query; query = query->next)
            next_ms = earlier(next_ms, query->deadline_ms);
        if (first && first->timeout_ms > 0)
            next_ms = earlier(next_ms, connection->first_since_ms + first->timeout_ms);
    }
    return next_ms;
}

static void on_deadline(uv_timer_t *timer)
{
    struct pg_pool *pool = container_of(timer, struct pg_pool, deadline_timer);
    int64_t now_ms = clock_mono_ms();
    struct pg_queries late = {0}, detached = {0};
    take_late(&pool->waiting, now_ms, &late);
    take_late(&pool->yielding, now_ms, &late);
    for (int i = 0; i < pool->options.connections; i++)
        slot_check_time(&pool->slots[i], now_ms, &detached);
    struct pg_query *query;
    while ((query = pg_queries_take(&detached)))
        report_unknown(pool, query);
    while ((query = pg_queries_take(&late)))
        report_not_sent(pool, query, why_too_late(pool));
    int64_t next_ms = next_deadline_ms(pool);
    if (next_ms != INT64_MAX)
        watch_deadline(pool, next_ms);
}

/* ---- submitting ---- */

/* The last one sent may be the one that no other is sent behind. */
static bool takes_queries(const struct slot *slot)
{
    const struct pg_queries *queries = &slot->connection.in_flight;
    return slot->state == SLOT_UP && queries->count < slot->pool->options.pipeline &&
           !(queries->last && queries->last->is_slow);
}

/* How many queries the next iteration can send; the queue may be longer by that although nothing waits for long. */
static int capacity(const struct pg_pool *pool)
{
    int count = 0;
    for (int i = 0; i < pool->options.connections; i++)
        if (takes_queries(&pool->slots[i]))
            count += pool->options.pipeline - pool->slots[i].connection.in_flight.count;
    return count;
}

void pg_pool_submit(struct pg_pool *pool, struct pg_query *query)
{
    assert(query->statement && query->on_result && query->timeout_ms > 0 &&
           query->statement->parameters <= PG_PARAMS_MAX);
    query->sent = false;
    query->deadline_ms = clock_mono_ms() + query->timeout_ms;
    pool->in_flight_count++;
    int waiting = pg_pool_waiting(pool);
    bool is_full = waiting >= pool->options.waiting_max && waiting >= pool->options.waiting_max + capacity(pool);
    /* guard: when all sessions hang no query waits */
    if (pool->is_closing || is_full || pg_pool_is_hung(pool)) {
        pg_queries_append(&pool->rejected, query);
    } else {
        /* guard: queries that yield go after the others */
        pg_queries_append(query->yields ? &pool->yielding : &pool->waiting, query);
        watch_deadline(pool, send_by_ms(query));
    }
    request_iteration(pool);
}

static struct pg_query *take_waiting(struct pg_pool *pool)
{
    struct pg_query *query = pg_queries_take(&pool->waiting);
    return query ? query : pg_queries_take(&pool->yielding);
}

/* Rejects every query that waits: no connection will ever take it. */
static void reject_waiting(struct pg_pool *pool)
{
    struct pg_query *query;
    while ((query = take_waiting(pool)))
        pg_queries_append(&pool->rejected, query);
    request_iteration(pool);
}

static void report_rejected(struct pg_pool *pool)
{
    /* Those that callbacks add are for the next iteration. */
    struct pg_queries queries = pool->rejected;
    if (!queries.first)
        return;
    pool->rejected = (struct pg_queries){0};
    struct pg_query *query;
    char hung[sizeof(pool->reason)];
    (void)pg_pool_find_cause(pool, "", hung, sizeof(hung));
    while ((query = pg_queries_take(&queries)))
        report_not_sent(pool, query,
                        pool->is_closing        ? CLOSING_TEXT
                        : pg_pool_is_hung(pool) ? hung
                                                : "too many statements are waiting");
}

/* ---- sending ---- */

/* Whether a query that yields may go to a connection that has none of them: one that is up stays without. */
static bool leaves_one(const struct pg_pool *pool)
{
    int up = 0, with = 0;
    for (int i = 0; i < pool->options.connections; i++) {
        up += pool->slots[i].state == SLOT_UP;
        with += pool->slots[i].state == SLOT_UP && pool->slots[i].yielding_count > 0;
    }
    /* guard: queries that yield leave a connection */
    return with < (up > 1 ? up - 1 : 1);
}

/* The one with the fewest in flight; NULL when none takes a query. */
static struct slot *choose_slot(struct pg_pool *pool, bool yields)
{
    struct slot *best = NULL;
    bool any = !yields || leaves_one(pool);
    for (int i = 0; i < pool->options.connections; i++) {
        struct slot *slot = &pool->slots[i];
        if (takes_queries(slot) && (any || slot->yielding_count > 0) &&
            (!best || slot->connection.in_flight.count < best->connection.in_flight.count))
            best = slot;
    }
    return best;
}

/* NULL: libpq has the reason. */
static const char *why_not_sent(const struct slot *slot)
{
    bool is_broken = PQstatus(slot->connection.libpq) == CONNECTION_BAD; /* else half of it may be in libpq's buffer */
    return is_broken ? NULL : "a statement could not be built: out of memory";
}

static void send_first(struct pg_pool *pool, struct pg_queries *queries, struct slot *slot)
{
    struct pg_query *query = pg_queries_take(queries);
    slot->is_unflushed = true;
    slot->yielding_count += query->yields; /* first, because sending may report its result */
    if (pg_connection_send(&slot->connection, query))
        return;
    const char *why = why_not_sent(slot);
    slot->yielding_count -= query->yields;
    if (!why)
        pg_queries_prepend(queries, query);
    pg_connection_lose(&slot->connection, why);
    if (why) /* no memory for this query: on another connection it would fail as well */
        report_not_sent(pool, query, "out of memory");
}

static void send_waiting(struct pg_pool *pool, struct pg_queries *queries, int64_t now_ms)
{
    struct slot *slot;
    while (queries->first && (slot = choose_slot(pool, queries == &pool->yielding))) {
        if (send_by_ms(queries->first) > now_ms)
            send_first(pool, queries, slot);
        else
            report_not_sent(pool, pg_queries_take(queries), why_too_late(pool));
    }
}

/* ---- hooks of a connection ---- */

static void on_up(struct pg_connection *connection)
{
    struct slot *slot = container_of(connection, struct slot, connection);
    slot_begin_checks(slot);
    if (slot->state == SLOT_UP) /* nothing was to be checked */
        request_iteration(slot->pool);
}

static void on_down(struct pg_connection *connection, const char *reason)
{
    struct slot *slot = container_of(connection, struct slot, connection);
    slot_end(slot, reason);
    if (pg_pool_is_hung(slot->pool))
        reject_waiting(slot->pool);
}

static void on_result(struct pg_connection *connection, struct pg_query *query, const struct pg_query_result *result)
{
    struct slot *slot = container_of(connection, struct slot, connection);
    struct pg_pool *pool = slot->pool;
    bool is_ours = slot_take_result(slot, query, result);
    if (pool->waiting.first || pool->yielding.first || slot->state == SLOT_RETIRING)
        request_iteration(pool);
    if (!is_ours)
        return;
    const struct pg_query *next = connection->in_flight.first;
    /* guard: a statement that was late and hangs when it is the first is silence */
    if (next && pg_pool_is_orphan(next)) /* it has no deadline of its own that wakes the timer */
        watch_deadline(pool, connection->first_since_ms + next->timeout_ms);
    if (pg_pool_is_orphan(query))
        query->on_result(query, result);
    else
        report_result(pool, query, result);
}

static void on_connection_closed(struct pg_connection *connection)
{
    closing_part_closed(&container_of(connection, struct slot, connection)->pool->closing);
}

static const struct pg_connection_hooks hooks = {
    .on_abandoned = pg_pool_on_abandoned,
    .on_up = on_up,
    .on_down = on_down,
    .on_result = on_result,
    .on_closed = on_connection_closed,
};

/* ---- each iteration of the loop ---- */

static void close_connections(struct pg_pool *pool);

static void on_prepare(uv_prepare_t *prepare)
{
    struct pg_pool *pool = container_of(prepare, struct pg_pool, prepare);
    if (!uv_is_active((uv_handle_t *)&pool->keep_awake))
        return;
    (void)uv_idle_stop(&pool->keep_awake);
    /* guard: a batch is sent in the iteration in which its items were added */
    report_rejected(pool);
    if (pool->is_closing) {
        close_connections(pool);
        return;
    }
    for (int i = 0; i < pool->options.connections; i++)
        if (pool->slots[i].state == SLOT_RETIRING && !pool->slots[i].connection.in_flight.first)
            pg_connection_lose(&pool->slots[i].connection, "the database server has become read-only");
    if (pool->waiting.first || pool->yielding.first) {
        int64_t now_ms = clock_mono_ms();
        send_waiting(pool, &pool->waiting, now_ms);
        send_waiting(pool, &pool->yielding, now_ms);
    }
    for (int i = 0; i < pool->options.connections; i++) {
        if (pool->slots[i].is_unflushed)
            pg_connection_flush(&pool->slots[i].connection);
        pool->slots[i].is_unflushed = false;
    }
}

/* ---- opening and closing ---- */

static void free_pool(struct pg_pool *pool)
{
    for (int i = 0; i < pool->options.connections; i++)
        buf_done(&pool->slots[i].pids);
    pg_servers_done(&pool->servers);
    free(pool->abandoned);
    free((char *)pool->options.conninfo);
    free((char *)pool->options.application_name);
    free(pool);
}

bool pg_pool_open(uv_loop_t *loop, const struct pg_pool_options *options, struct pg_pool **ret_pool, struct err *err)
{
    assert(options->connections >= 1 && options->pipeline >= 1 && options->waiting_max >= 0);
    if (!pg_conninfo_check(options->conninfo, err))
        return false;
    struct pg_pool *pool = calloc(1, sizeof(*pool) + (size_t)options->connections * sizeof(pool->slots[0]));
    if (!pool)
        return err_set(err, ERR_MEMORY, "out of memory");
    pool->loop = loop;
    pool->options = *options;
    pool->options.conninfo = strdup(options->conninfo ? options->conninfo : "");
    pool->options.application_name = strdup(options->application_name ? options->application_name : "");
    pool->cause = PG_CAUSE_COUNT;
    pool->abandoned = calloc((size_t)pg_pool_abandoned_max(pool), sizeof(pool->abandoned[0]));
    if (!pool->options.conninfo || !pool->options.application_name || !pool->abandoned) {
        free_pool(pool);
        return err_set(err, ERR_MEMORY, "out of memory");
    }
    for (int i = 0; i < pg_pool_abandoned_max(pool); i++)
        pool->abandoned[i].pool = pool;
    pg_servers_init(&pool->servers, loop, pool->options.conninfo, pool->options.application_name,
                    pg_pool_sessions_max(pool));
    pool->servers.on_news = pg_pool_on_news;
    pool->servers.context = pool;
    if (options->resolve)
        pool->servers.resolve = options->resolve;
    (void)uv_prepare_init(loop, &pool->prepare); /* cannot fail */
    (void)uv_prepare_start(&pool->prepare, on_prepare);
    (void)uv_idle_init(loop, &pool->keep_awake);      /* cannot fail */
    (void)uv_timer_init(loop, &pool->deadline_timer); /* cannot fail */
    for (int i = 0; i < options->connections; i++) {
        pool->slots[i].pool = pool;
        buf_init(&pool->slots[i].pids, PIDS_MAX);
        pg_connection_init(&pool->slots[i].connection, loop, &hooks, &pool->servers);
        pg_connection_wake(&pool->slots[i].connection, 0);
    }
    *ret_pool = pool;
    return true;
}

static void release(void *module)
{
    struct pg_pool *pool = module;
    /* Submitted after the last iteration. */
    while (pool->rejected.first)
        report_rejected(pool);
    assert(pool->in_flight_count == 0);
    free_pool(pool);
}

static void close_all_sessions(struct pg_pool *pool)
{
    struct closing *closing = &pool->closing;
    closing_start(closing, release, pool, pool->on_closed, pool->closed_context);
    pool->are_connections_closed = true;
    pool->is_replacing = false;
    for (int i = 0; i < pool->options.connections; i++) {
        slot_set_state(&pool->slots[i], SLOT_DOWN);
        (void)closing_part(closing);
        pg_connection_close(&pool->slots[i].connection);
    }
    for (int i = 0; i < pg_pool_abandoned_max(pool); i++) {
        struct pg_abandoned *session = &pool->abandoned[i].session;
        if (pg_abandoned_is_free(session))
            continue;
        (void)closing_part(closing);
        pg_abandoned_drop(session);
    }
    struct pg_query *query;
    while ((query = take_waiting(pool)))
        report_not_sent(pool, query, CLOSING_TEXT);
}

/* Callbacks that run while it closes may submit again, so the handles stay until nothing is rejected any more. */
static void close_connections(struct pg_pool *pool)
{
    if (!pool->are_connections_closed)
        close_all_sessions(pool);
    if (pool->rejected.first) {
        request_iteration(pool);
        return;
    }
    closing_handle(&pool->closing, &pool->prepare);
    closing_handle(&pool->closing, &pool->keep_awake);
    closing_handle(&pool->closing, &pool->deadline_timer);
    closing_end(&pool->closing);
}

void pg_pool_close(struct pg_pool *pool, void (*on_closed)(void *context), void *context)
{
    assert(!pool->is_closing);
    pool->is_closing = true;
    pool->on_closed = on_closed;
    pool->closed_context = context;
    request_iteration(pool);
}
