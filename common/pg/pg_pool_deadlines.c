/* Queries that are late.
 *
 * Load is not silence. What counts against a connection is the time of one statement alone, from when the server had
 * nothing to do before it: a statement that takes longer than it may makes the connection silent, and it is abandoned.
 * A query that is late for another reason, behind others that are answered, is reported PG_UNKNOWN to its owner; a copy
 * without an owner (an orphan) keeps its place in the pipeline, and the connection stays. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/pg/pg_pool_internal.h"

/* The precision of deadlines; it bounds how often a long queue is searched. */
#define PRECISION_MS 10
/* A query with less time left than this, or than this part of its time, is not sent: the result would come too late. */
#define ANSWER_LEAST_MS 1000
#define ANSWER_LEAST_PART 5

static void on_deadline(uv_timer_t *timer);

void pg_pool_watch_deadline(struct pg_pool *pool, int64_t deadline_ms)
{
    uv_handle_t *timer = (uv_handle_t *)&pool->deadline_timer;
    if (uv_is_closing(timer) || (uv_is_active(timer) && pool->due_ms <= deadline_ms))
        return;
    int64_t now_ms = clock_mono_ms();
    int64_t delay_ms = deadline_ms - now_ms > PRECISION_MS ? deadline_ms - now_ms : PRECISION_MS;
    pool->due_ms = now_ms + delay_ms;
    (void)uv_timer_start(&pool->deadline_timer, on_deadline, (uint64_t)delay_ms, 0);
}

int64_t pg_pool_send_by_ms(const struct pg_query *query)
{
    int64_t part_ms = query->timeout_ms / ANSWER_LEAST_PART;
    return query->deadline_ms - (part_ms < ANSWER_LEAST_MS ? part_ms : ANSWER_LEAST_MS);
}

const char *pg_pool_why_too_late(const struct pg_pool *pool)
{
    return pg_pool_ready(pool) ? "no connection was free in time" : "no connection to the database in time";
}

static void on_orphan_result(struct pg_query *orphan, const struct pg_query_result *result)
{
    (void)result; /* the owner has PG_UNKNOWN already */
    free(orphan);
}

bool pg_pool_is_orphan(const struct pg_query *query)
{
    return query->on_result == on_orphan_result;
}

/* Takes those that cannot be sent in time out of a queue. */
static void take_late(struct pg_queries *queries, int64_t now_ms, struct pg_queries *ret_late)
{
    struct pg_queries rest = {0};
    struct pg_query *query;
    while ((query = pg_queries_take(queries)))
        pg_queries_append(pg_pool_send_by_ms(query) <= now_ms ? ret_late : &rest, query);
    *queries = rest;
}

static const struct pg_query *find_late(const struct slot *slot, int64_t now_ms)
{
    for (const struct pg_query *query = slot->connection.in_flight.first; query; query = query->next)
        if (query->deadline_ms <= now_ms)
            return query;
    return NULL;
}

/* The statement that the server has worked on for as long as it may take; NULL = there is none. */
static const struct pg_query *find_silent(const struct slot *slot, int64_t now_ms)
{
    const struct pg_query *first = slot->connection.in_flight.first;
    bool is_ours = slot->state == SLOT_UP || slot->state == SLOT_RETIRING; /* else the connection's own deadline runs */
    bool is_over = is_ours && first && slot->connection.turn_ms + first->timeout_ms <= now_ms + PRECISION_MS;
    return is_over ? first : NULL;
}

/* Puts orphans in the places of late queries. Their owners get PG_UNKNOWN later, when the loop over the pipeline is
 * over. false: no memory. */
static bool detach_late(struct slot *slot, int64_t now_ms, struct pg_queries *ret_detached)
{
    struct pg_query *next;
    for (struct pg_query *query = slot->connection.in_flight.first; query; query = next) {
        next = query->next;
        if (query->deadline_ms > now_ms)
            continue;
        struct pg_query *orphan = calloc(1, sizeof(*orphan));
        if (!orphan)
            return false;
        orphan->on_result = on_orphan_result;
        pg_connection_replace(&slot->connection, query, orphan);
        orphan->deadline_ms = INT64_MAX;
        pg_queries_append(ret_detached, query);
    }
    return true;
}

static void check_slot(struct slot *slot, int64_t now_ms, struct pg_queries *ret_detached)
{
    const struct pg_query *silent = find_silent(slot, now_ms);
    if (!silent && !detach_late(slot, now_ms, ret_detached))
        silent = find_late(slot, now_ms);
    if (!silent)
        return;
    char text[200];
    (void)snprintf(text, sizeof(text), "no answer to %s within %lld ms", silent->statement->name,
                   (long long)silent->timeout_ms);
    pg_connection_abandon(&slot->connection, text);
}

static void report_unknown(struct pg_pool *pool, struct pg_query *query)
{
    struct pg_query_result result = {.kind = PG_UNKNOWN};
    (void)snprintf(result.message, sizeof(result.message), "no answer to %s within %lld ms", query->statement->name,
                   (long long)query->timeout_ms);
    pg_pool_report_result(pool, query, &result);
}

static int64_t earlier(int64_t a_ms, int64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

static int64_t next_deadline_ms(const struct pg_pool *pool)
{
    int64_t next_ms = INT64_MAX;
    for (const struct pg_query *query = pool->waiting.first; query; query = query->next)
        next_ms = earlier(next_ms, pg_pool_send_by_ms(query));
    for (const struct pg_query *query = pool->yielding.first; query; query = query->next)
        next_ms = earlier(next_ms, pg_pool_send_by_ms(query));
    for (int i = 0; i < pool->options.connections; i++) {
        const struct pg_connection *connection = &pool->slots[i].connection;
        const struct pg_query *first = connection->in_flight.first;
        for (const struct pg_query *query = first; query; query = query->next)
            next_ms = earlier(next_ms, query->deadline_ms);
        if (first && first->timeout_ms > 0)
            next_ms = earlier(next_ms, connection->turn_ms + first->timeout_ms);
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
        check_slot(&pool->slots[i], now_ms, &detached);
    struct pg_query *query;
    while ((query = pg_queries_take(&detached)))
        report_unknown(pool, query);
    while ((query = pg_queries_take(&late)))
        pg_pool_report_not_sent(pool, query, pg_pool_why_too_late(pool));
    int64_t next_ms = next_deadline_ms(pool);
    if (next_ms != INT64_MAX)
        pg_pool_watch_deadline(pool, next_ms);
}
