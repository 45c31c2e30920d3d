/* The life of the pool's connections: what is checked before the first query, when one is silent, what becomes of a
 * session that hangs, and what follows when another server is the primary. States: pg_pool_internal.h.
 *
 * Invariants:
 * - A slot gets queries only in state UP: connected, the schema checked, not read-only.
 * - A connection that is silent is abandoned, not closed: its backend may run for long, and closing would not
 *   end it. Connections and abandoned sessions to one server together are never more than options.connections +
 *   PG_POOL_SPARE, so a server on which statements hang is not filled with sessions.
 * - Slots in use are on one timeline. Each promotion begins a new one with a higher number, so the higher one is the
 *   primary; a session to the other, which may be frozen or not know yet, is given up. What is in flight there ends
 *   PG_UNKNOWN: it may have been committed before the promotion. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/backoff.h"
#include "common/lib/pg/pg_place.h"
#include "common/lib/pg/pg_pool_internal.h"
#include "common/lib/pg/pg_settings.h"
#include "statements.h"

/* The connections of many processes do not come to a new primary in the same millisecond. */
#define WAKE_SPREAD_MS 50

void slot_set_state(struct slot *slot, enum slot_state state)
{
    assert(state != SLOT_CHECKING || slot->state == SLOT_DOWN);
    assert(state != SLOT_UP || slot->state == SLOT_CHECKING);
    assert(state != SLOT_RETIRING || slot->state == SLOT_UP);
    slot->state = state;
}

bool pg_pool_ready(const struct pg_pool *pool)
{
    if (pool->is_replacing)
        return true;
    for (int i = 0; i < pool->options.connections; i++)
        if (pool->slots[i].state == SLOT_UP)
            return true;
    return false;
}

bool pg_pool_is_behind_pooler(const struct pg_pool *pool)
{
    return pool->is_behind_pooler;
}

int pg_pool_sessions_max(const struct pg_pool *pool)
{
    return pool->options.connections + PG_POOL_SPARE;
}

int pg_pool_abandoned_max(const struct pg_pool *pool)
{
    return 2 * pg_pool_sessions_max(pool);
}

bool pg_pool_is_hung(const struct pg_pool *pool)
{
    return pool->abandoned_count >= pg_pool_sessions_max(pool) && !pg_pool_ready(pool);
}

enum pg_cause pg_pool_cause(const struct pg_pool *pool)
{
    return pool->cause;
}

enum pg_cause pg_pool_find_cause(const struct pg_pool *pool, const char *reason, char *ret_text, size_t size)
{
    if (pool->abandoned_count > 0 && pool->waits_for_standby) {
        snprintf(ret_text, size, "commits wait for a synchronous standby");
        return PG_CAUSE_STANDBY;
    }
    if (pg_pool_is_hung(pool) && pool->servers.hosts.count <= 1) {
        snprintf(ret_text, size, "statements hang: no session answers");
        return PG_CAUSE_HUNG;
    }
    enum pg_cause cause = pg_hosts_why(&pool->servers.hosts, reason, ret_text, size);
    return pg_pool_is_hung(pool) && cause == PG_CAUSE_OTHER ? PG_CAUSE_HUNG : cause;
}

static void report_state(struct pg_pool *pool, const char *reason)
{
    char text[sizeof(pool->reason)] = "";
    bool is_ready = pg_pool_ready(pool);
    pool->cause = is_ready ? PG_CAUSE_COUNT : pg_pool_find_cause(pool, reason, text, sizeof(text));
    bool is_same = is_ready ? pool->reported == REPORTED_READY
                            : pool->reported == REPORTED_DOWN && strcmp(text, pool->reason) == 0;
    if (is_same)
        return;
    pool->reported = is_ready ? REPORTED_READY : REPORTED_DOWN;
    memcpy(pool->reason, text, sizeof(pool->reason));
    if (pool->options.on_state && !pool->is_closing)
        pool->options.on_state(pool->options.context, is_ready, pool->reason);
}

void pg_pool_on_news(void *context)
{
    struct pg_pool *pool = context;
    pool->is_replacing = pool->is_replacing && pg_hosts_has_target(&pool->servers.hosts);
    if (pool->is_closing || pg_pool_ready(pool))
        return;
    for (int i = 0; i < pool->options.connections; i++)
        if (pool->slots[i].connection.state == PG_STATE_DOWN)
            pg_connection_wake(&pool->slots[i].connection, 0);
    if (!pg_hosts_has_target(&pool->servers.hosts)) /* else attempts report what they find */
        report_state(pool, "");
}

/* ---- another server is the primary ---- */

static void wake(struct slot *slot)
{
    pg_connection_wake(&slot->connection, (int64_t)(backoff_random() % WAKE_SPREAD_MS));
}

/* A session is up and settled: the others have nothing to look for elsewhere. */
static void gather(struct slot *settled)
{
    static const char *const why = "another server is the primary";
    struct pg_pool *pool = settled->pool;
    for (int i = 0; i < pool->options.connections; i++) {
        struct slot *slot = &pool->slots[i];
        bool is_elsewhere = slot->connection.target != settled->connection.target;
        bool is_older = slot->timeline > 0 && slot->timeline < settled->timeline;
        bool is_in_use = slot->state == SLOT_UP || slot->state == SLOT_RETIRING;
        if (slot->connection.state == PG_STATE_DOWN)
            wake(slot);
        /* guard: sessions to a primary that was replaced are given up */
        else if (is_in_use && is_older)
            pg_connection_lose(&slot->connection, why);
        else if (!is_in_use && is_elsewhere)
            pg_connection_cut(&slot->connection, why);
    }
    for (int i = 0; i < pg_pool_abandoned_max(pool); i++)
        if (pool->abandoned[i].timeline > 0 && pool->abandoned[i].timeline < settled->timeline)
            pg_abandoned_drop(&pool->abandoned[i].session);
}

/* ---- the checks of a new session ---- */

static void set_up(struct slot *slot)
{
    slot_set_state(slot, SLOT_UP);
    slot->pool->is_replacing = false;
    pg_history_follow(&slot->pool->history, &slot->history);
    pg_connection_settle(&slot->connection);
    report_state(slot->pool, "");
    gather(slot);
}

/* Its deadline is the connection's, which runs until the slot is up. */
static void send_check(struct slot *slot, enum slot_check check)
{
    slot->checks[check].deadline_ms = INT64_MAX;
    if (pg_connection_send(&slot->connection, &slot->checks[check]))
        pg_connection_flush(&slot->connection);
    else
        pg_connection_lose(&slot->connection, NULL);
}

/* The checks have passed. While sessions hang there, this one can find out what they wait for; later it may hang
 * itself. */
static void check_waits(struct slot *slot)
{
    struct pg_pool *pool = slot->pool;
    struct pg_array pids;
    int count = 0;
    pg_array_start(&pids, &slot->pids, PG_INT8);
    for (int i = 0; i < pg_pool_abandoned_max(pool); i++) {
        const struct pg_pool_abandoned *it = &pool->abandoned[i];
        if (pg_abandoned_is_free(&it->session) || it->target != slot->connection.target)
            continue;
        pg_array_add_int8(&pids, pg_abandoned_pid(&it->session));
        count++;
    }
    slot->checks[SLOT_WAITS] = (struct pg_query){.statement = &sql_session_waits};
    slot->checks[SLOT_WAITS].params[0] = pg_array_param(&pids);
    if (count == 0 || slot->pids.failed)
        set_up(slot);
    else
        send_check(slot, SLOT_WAITS);
}

static void on_waits(struct slot *slot, const struct pg_query_result *result)
{
    if (result->kind == PG_DONE && pg_rows_count(result->rows) == 1)
        slot->pool->waits_for_standby = pg_int8(result->rows, 0, 0) > 0;
    set_up(slot);
}

static void check_schema(struct slot *slot, int64_t version)
{
    const struct pg_pool_options *options = &slot->pool->options;
    if (version >= options->schema_least && version <= options->schema_most)
        return; /* the result of the server's query follows */
    char text[200];
    snprintf(text, sizeof(text), "the schema is at version %lld, this program needs %d to %d: %s", (long long)version,
             options->schema_least, options->schema_most,
             version < options->schema_least ? "run issuing-ctl migrate"
                                             : "install the program that belongs to the schema");
    pg_connection_lose(&slot->connection, text);
}

static void check_pooler(struct slot *slot, const struct pg_rows *rows)
{
    int process = PQbackendPID(slot->connection.libpq);
    slot->pool->is_behind_pooler = pg_rows_count(rows) == 1 && pg_int8(rows, 0, 2) != process;
}

static void check_place(struct slot *slot, const struct pg_rows *rows)
{
    const struct pg_pool_options *options = &slot->pool->options;
    char text[PG_FAULT_SIZE];
    switch (pg_place_check(rows, options->place, options->places > 0 ? options->places : 1, text)) {
    case PG_PLACE_FITS:
        return; /* the result of the server's query follows */
    case PG_PLACE_WRONG:
        pg_connection_lose(&slot->connection, text);
        break;
    case PG_PLACE_ELSEWHERE:
        pg_connection_refuse(&slot->connection, PG_SEEN_ELSEWHERE, text);
        break;
    }
}

static void on_schema(struct slot *slot, const struct pg_query_result *result)
{
    if (result->kind == PG_DONE) {
        check_pooler(slot, result->rows);
        check_schema(slot, pg_rows_count(result->rows) == 1 ? pg_int8(result->rows, 0, 0) : 0);
        if (slot->state == SLOT_CHECKING) /* the schema fits */
            check_place(slot, result->rows);
    } else if (strcmp(result->sqlstate, "42P01") == 0) {
        check_schema(slot, 0); /* no such table */
    } else {
        pg_connection_lose(&slot->connection, result->message);
    }
}

static void on_settings(struct slot *slot, const struct pg_query_result *result)
{
    char text[PG_FAULT_SIZE];
    if (result->kind == PG_REFUSED)
        pg_connection_lose(&slot->connection, result->message);
    else if (pg_settings_fault(result->rows, text))
        pg_connection_lose(&slot->connection, text);
}

static int64_t newest_timeline(const struct pg_pool *pool)
{
    int64_t newest = 0;
    for (int i = 0; i < pool->options.connections; i++) {
        const struct slot *slot = &pool->slots[i];
        if ((slot->state == SLOT_UP || slot->state == SLOT_RETIRING) && slot->timeline > newest)
            newest = slot->timeline;
    }
    return newest;
}

/* Of a server whose timeline is not known, nothing is. Answers that others get in that time are not counted against
 * it. */
static void check_history(struct slot *slot)
{
    slot->history = slot->pool->history;
    slot->checks[SLOT_HISTORY] = (struct pg_query){.statement = &sql_session_history};
    pg_history_params(&slot->history, slot->checks[SLOT_HISTORY].params);
    if (slot->timeline == 0)
        check_waits(slot);
    else
        send_check(slot, SLOT_HISTORY);
}

static void on_history(struct slot *slot, const struct pg_query_result *result)
{
    char text[160];
    const char *lost = NULL;
    if (result->kind == PG_DONE)
        lost = pg_history_read(result->rows, slot->timeline, &slot->history);
    snprintf(text, sizeof(text), "the database lacks acknowledged commits: %.80s; see issuing-ctl accept-history",
             lost ? lost : "");
    if (result->kind != PG_DONE)
        pg_connection_lose(&slot->connection, result->message);
    /* guard: a database that lacks acknowledged commits is not used */
    else if (lost)
        pg_connection_refuse(&slot->connection, PG_SEEN_LOST, text);
    else
        check_waits(slot);
}

static void check_server(struct slot *slot, bool is_standby, bool is_read_only)
{
    int64_t newest = newest_timeline(slot->pool);
    char text[160];
    snprintf(text, sizeof(text), "an older primary: it is on timeline %lld, and sessions are in use on timeline %lld",
             (long long)slot->timeline, (long long)newest);
    if (is_standby)
        pg_connection_refuse(&slot->connection, PG_SEEN_STANDBY, "the database server is a standby");
    /* guard: a read-only database is not ready */
    else if (is_read_only)
        pg_connection_refuse(&slot->connection, PG_SEEN_READ_ONLY, "the database is read-only");
    else if (slot->timeline > 0 && slot->timeline < newest)
        pg_connection_refuse(&slot->connection, PG_SEEN_OUTDATED, text);
    else
        check_history(slot);
}

static void on_server(struct slot *slot, const struct pg_query_result *result)
{
    if (result->kind == PG_REFUSED) { /* something that is not quite PostgreSQL: its timeline stays unknown */
        check_server(slot, false, false);
        return;
    }
    slot->timeline = pg_int8(result->rows, 0, 0);
    check_server(slot, pg_bool(result->rows, 0, 1), pg_bool(result->rows, 0, 2));
}

/* Each gets what the server said: PG_DONE or PG_REFUSED. */
static void (*const on_check[SLOT_CHECKS])(struct slot *slot, const struct pg_query_result *result) = {
    [SLOT_SCHEMA] = on_schema,   [SLOT_SETTINGS] = on_settings, [SLOT_SERVER] = on_server,
    [SLOT_HISTORY] = on_history, [SLOT_WAITS] = on_waits,
};

void slot_begin_checks(struct slot *slot)
{
    slot_set_state(slot, SLOT_CHECKING);
    slot->timeline = 0;
    slot->history = (struct pg_history){0};
    if (slot->pool->options.schema_least <= 0) {
        check_waits(slot);
        return;
    }
    slot->checks[SLOT_SCHEMA] = (struct pg_query){.statement = &sql_schema_version};
    slot->checks[SLOT_SETTINGS] = (struct pg_query){.statement = &sql_session_settings};
    slot->checks[SLOT_SETTINGS].params[0] = pg_param_int8(PQbackendPID(slot->connection.libpq));
    slot->checks[SLOT_SERVER] = (struct pg_query){.statement = &sql_session_server};
    for (enum slot_check check = SLOT_SCHEMA; check <= SLOT_SERVER && slot->state == SLOT_CHECKING; check++)
        send_check(slot, check);
}

bool slot_take_result(struct slot *slot, struct pg_query *query, const struct pg_query_result *result)
{
    for (int i = 0; i < SLOT_CHECKS; i++)
        if (query == &slot->checks[i]) {
            if (result->kind != PG_UNKNOWN) /* else the connection is lost already */
                on_check[i](slot, result);
            return false;
        }
    /* guard: a session whose server is not the home of the place any more is given up */
    bool is_left = pg_sqlstate_is_moved(result->sqlstate) || strcmp(result->sqlstate, "25006") == 0;
    if (slot->state == SLOT_UP && result->kind == PG_REFUSED && is_left)
        slot_set_state(slot, SLOT_RETIRING);
    if (result->kind == PG_DONE)
        pg_history_note(&slot->pool->history, &slot->history, result->rows);
    slot->yielding_count -= query->yields;
    return true;
}

/* ---- silence ---- */

/* Load is not silence. What counts against a connection is the time of one statement alone, from when the server had
 * nothing to do before it: a statement that takes longer than it may makes the connection silent, and it is abandoned.
 * A query that is late for another reason, behind others that are answered, is reported PG_UNKNOWN to its owner; a copy
 * without an owner (an orphan) keeps its place in the pipeline, and the connection stays. */

static void on_orphan_result(struct pg_query *orphan, const struct pg_query_result *result)
{
    (void)result; /* the owner has PG_UNKNOWN already */
    free(orphan);
}

bool pg_pool_is_orphan(const struct pg_query *query)
{
    return query->on_result == on_orphan_result;
}

/* The statement that the server has worked on for as long as it may take; NULL = there is none. */
static const struct pg_query *find_silent(const struct slot *slot, int64_t now_ms)
{
    const struct pg_query *first = slot->connection.in_flight.first;
    bool is_ours = slot->state == SLOT_UP || slot->state == SLOT_RETIRING; /* else the connection's own deadline runs */
    bool is_over =
        is_ours && first && slot->connection.first_since_ms + first->timeout_ms <= now_ms + PG_POOL_PRECISION_MS;
    return is_over ? first : NULL;
}

/* Puts orphans in the places of late queries. Their owners get PG_UNKNOWN later, when the loop over the pipeline is
 * over. Returns the one for which there was no memory. */
static const struct pg_query *detach_late(struct slot *slot, int64_t now_ms, struct pg_queries *ret_detached)
{
    struct pg_query *next;
    for (struct pg_query *query = slot->connection.in_flight.first; query; query = next) {
        next = query->next;
        if (query->deadline_ms > now_ms)
            continue;
        /* guard: late behind others is not silent */
        struct pg_query *orphan = calloc(1, sizeof(*orphan));
        if (!orphan)
            return query;
        orphan->on_result = on_orphan_result;
        pg_connection_replace(&slot->connection, query, orphan);
        orphan->deadline_ms = INT64_MAX;
        pg_queries_append(ret_detached, query);
    }
    return NULL;
}

void slot_check_time(struct slot *slot, int64_t now_ms, struct pg_queries *ret_detached)
{
    const struct pg_query *silent = find_silent(slot, now_ms);
    if (!silent)
        silent = detach_late(slot, now_ms, ret_detached);
    if (!silent)
        return;
    char text[200];
    snprintf(text, sizeof(text), "no answer to %s within %lld ms", silent->statement->name,
             (long long)silent->timeout_ms);
    /* guard: a session that hangs is counted, not closed */
    /* guard: a session that hangs while a standby is away is counted, not closed */
    pg_connection_abandon(&slot->connection, text);
}

/* ---- the end of a session ---- */

static void on_session_over(struct pg_abandoned *session)
{
    struct pg_pool_abandoned *it = container_of(session, struct pg_pool_abandoned, session);
    struct pg_pool *pool = it->pool;
    it->timeline = 0;
    pg_hosts_leave(&pool->servers.hosts, it->target);
    if (--pool->abandoned_count == 0)
        pool->waits_for_standby = false;
    if (pool->are_connections_closed)
        closing_part_closed(&pool->closing);
}

void pg_pool_on_abandoned(struct pg_connection *connection, PGconn *session, int syncs, int target)
{
    struct slot *slot = container_of(connection, struct slot, connection);
    struct pg_pool *pool = slot->pool;
    int i = 0;
    while (!pg_abandoned_is_free(&pool->abandoned[i].session))
        i++; /* one is free, since this session was counted as well */
    assert(i < pg_pool_abandoned_max(pool));
    pool->abandoned[i].target = target;
    pool->abandoned[i].timeline = slot->timeline;
    if (pg_abandoned_take(&pool->abandoned[i].session, pool->loop, session, syncs, on_session_over))
        pool->abandoned_count++;
    else
        pg_hosts_leave(&pool->servers.hosts, target);
}

void slot_end(struct slot *slot, const char *reason)
{
    struct pg_pool *pool = slot->pool;
    bool was_ready = pg_pool_ready(pool);
    slot_set_state(slot, SLOT_DOWN);
    slot->is_unflushed = false;
    /* guard: a session that ends while it is idle is replaced before the database is called away */
    pool->is_replacing = slot->connection.is_ended && was_ready && pool->abandoned_count == 0 && !pool->is_closing;
    if (slot->connection.is_ended && pool->options.on_ended)
        pool->options.on_ended(pool->options.context, reason);
    if (!pg_pool_ready(pool))
        report_state(pool, reason);
}
