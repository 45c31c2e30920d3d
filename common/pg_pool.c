/* A fixed number of connections and the asks waiting for them.
 *
 * Invariants:
 * - Asking only puts into a queue; everything is sent and answered from the loop. The turn (a prepare handle; libuv runs
 * those that were started later before it) comes before the loop sleeps, so a lone ask leaves in the same turn and
 * those of one turn are spread together.
 * - Each ask accepted is counted in in_flight until its one answer. User callbacks run at the end of what they are
 * called from, or from loops that hold no pointer into a queue; they may ask and may close.
 * - A slot gets asks only in state UP: connected, the schema looked at, not read-only.
 * - The second ask of a pair is in no queue until the first has been sent: it shares the first one's fate until then.
 * - A connection whose statement is late is abandoned, not closed: its backend may be at work for long, and closing would
 * not end it. Connections and abandoned sessions together are never more than options.connections + SPARE, so a server
 * where statements hang is not filled up with sessions.
 * Left out: growing and shrinking, priorities. */
#include "common/pg_pool.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/pg_abandoned.h"
#include "common/pg_conn_internal.h"
#include "common/sql/statements.h"

/* Deadlines are kept to this; it bounds how often a long queue is looked through. */
#define DEADLINE_LEAST_MS 10
/* So many sessions there may be beyond options.connections, to go on with while abandoned ones hang. */
#define SPARE 2
#define PIDS_MAX 4096

enum slot_state {
    SLOT_DOWN,
    SLOT_CHECKING, /* the schema's version is asked, and what abandoned sessions wait for */
    SLOT_UP,
    SLOT_RETIRING, /* read-only since a failover: gets no more asks, and is closed once it has answered */
};

struct slot {
    struct pg_connection connection;
    struct pg_pool *pool;
    enum slot_state state;
    bool unflushed;
    struct pg_ask schema_ask, waits_ask;
    struct buf pids; /* of waits_ask */
};

struct pg_pool {
    uv_loop_t *loop;
    struct pg_pool_options options; /* texts are our copies */
    uv_prepare_t turn;
    uv_idle_t awake; /* runs while there is work for the turn, so that the loop does not sleep over it */
    uv_timer_t deadline;
    int64_t due_ms; /* when the deadline timer fires; meaningful while it is active */
    struct pg_asks waiting;
    struct pg_asks turned_away; /* answered PG_NOT_SENT in the next turn */
    /* options.connections + SPARE, of which abandoned_count are not free. They and the connections that there are come
     * to no more than that in all. */
    struct pg_pool_abandoned {
        struct pg_abandoned session; /* first */
        struct pg_pool *pool;
    } * abandoned;
    int abandoned_count;
    bool waits_for_standby; /* some of them, when last asked */
    int in_flight;
    enum { REPORTED_NOTHING, REPORTED_READY, REPORTED_DOWN } reported;
    char reason[256]; /* why it is down, as reported */
    bool closing, connections_closed;
    int open_parts; /* connections and handles that libuv has not closed yet */
    void (*on_closed)(void *context);
    void *closed_context;
    struct slot slots[]; /* options.connections */
};

static void on_awake(uv_idle_t *awake)
{
    (void)awake; /* only an active handle is wanted */
}

/* Makes the turn come before the loop sleeps, also when this turn of the loop has passed it already. */
static void kick(struct pg_pool *pool)
{
    if (!uv_is_closing((uv_handle_t *)&pool->awake))
        (void)uv_idle_start(&pool->awake, on_awake);
}

static void answer(struct pg_pool *pool, struct pg_ask *ask, const struct pg_answer *given)
{
    pool->in_flight--;
    if (given->kind == PG_REFUSED && pool->options.on_error)
        pool->options.on_error(pool->options.context, given->sqlstate);
    ask->on_answer(ask, given);
}

/* With what would have gone behind it. */
static void answer_not_sent(struct pg_pool *pool, struct pg_ask *ask, const char *why)
{
    while (ask) {
        struct pg_ask *behind = ask->behind; /* the ask may be reused from inside its answer */
        struct pg_answer not_sent = {.kind = PG_NOT_SENT};
        (void)snprintf(not_sent.message, sizeof(not_sent.message), "%s: %s", ask->statement->name, why);
        answer(pool, ask, &not_sent);
        ask = behind;
    }
}

bool pg_pool_ready(const struct pg_pool *pool)
{
    for (int i = 0; i < pool->options.connections; i++)
        if (pool->slots[i].state == SLOT_UP)
            return true;
    return false;
}

int pg_pool_in_flight(const struct pg_pool *pool)
{
    return pool->in_flight;
}

static int sessions_max(const struct pg_pool *pool)
{
    return pool->options.connections + SPARE;
}

/* There is no session left that could be asked anything, and there may be no further one. */
static bool is_hung(const struct pg_pool *pool)
{
    return pool->abandoned_count == sessions_max(pool);
}

static const char *find_cause(const struct pg_pool *pool, const char *reason)
{
    if (pool->abandoned_count > 0 && pool->waits_for_standby)
        return "commits wait for a synchronous standby";
    return is_hung(pool) ? "statements hang: no session answers" : reason;
}

static void report(struct pg_pool *pool, const char *reason)
{
    bool ready = pg_pool_ready(pool);
    reason = find_cause(pool, reason);
    if (ready ? pool->reported == REPORTED_READY : pool->reported == REPORTED_DOWN && strcmp(reason, pool->reason) == 0)
        return;
    pool->reported = ready ? REPORTED_READY : REPORTED_DOWN;
    (void)snprintf(pool->reason, sizeof(pool->reason), "%s", ready ? "" : reason);
    if (pool->options.on_state && !pool->closing)
        pool->options.on_state(pool->options.context, ready, pool->reason);
}

/* --- the life of a slot --- */

static void slot_is_up(struct slot *slot)
{
    slot->state = SLOT_UP;
    pg_connection_settle(&slot->connection);
    kick(slot->pool);
    report(slot->pool, "");
}

/* Its deadline is the connection's, which runs until the slot is up. */
static void ask_check(struct slot *slot, struct pg_ask *ask)
{
    ask->deadline_ms = INT64_MAX;
    if (pg_connection_send(&slot->connection, ask))
        pg_connection_flush(&slot->connection);
    else
        pg_connection_lose(&slot->connection, NULL);
}

/* The schema fits. While sessions hang, this one can tell what they wait for; later it may hang itself. */
static void ask_waits(struct slot *slot)
{
    struct pg_pool *pool = slot->pool;
    struct pg_array pids;
    pg_array_start(&pids, &slot->pids, PG_INT8);
    for (int i = 0; i < sessions_max(pool); i++)
        if (!pg_abandoned_is_free(&pool->abandoned[i].session))
            pg_array_add_int8(&pids, pg_abandoned_pid(&pool->abandoned[i].session));
    slot->waits_ask = (struct pg_ask){.statement = &sql_session_waits};
    slot->waits_ask.params[0] = pg_array_param(&pids);
    if (pool->abandoned_count == 0 || slot->pids.failed)
        slot_is_up(slot);
    else
        ask_check(slot, &slot->waits_ask);
}

static void waits_answered(struct slot *slot, const struct pg_answer *given)
{
    if (given->kind == PG_UNKNOWN)
        return; /* the connection is lost already */
    if (given->kind == PG_DONE && pg_rows_count(given->rows) == 1)
        slot->pool->waits_for_standby = pg_int8(given->rows, 0, 0) > 0;
    slot_is_up(slot);
}

static void check_schema(struct slot *slot, int64_t version)
{
    const struct pg_pool_options *options = &slot->pool->options;
    if (version >= options->schema_least && version <= options->schema_most) {
        ask_waits(slot);
        return;
    }
    char text[200];
    (void)snprintf(text, sizeof(text), "the schema is at version %lld, this program needs %d to %d: %s",
                   (long long)version, options->schema_least, options->schema_most,
                   version < options->schema_least ? "run issuing-ctl migrate"
                                                   : "install the program that belongs to the schema");
    pg_connection_lose(&slot->connection, text);
}

static void schema_answered(struct slot *slot, const struct pg_answer *given)
{
    switch (given->kind) {
    case PG_DONE:
        check_schema(slot, pg_rows_count(given->rows) == 1 ? pg_int8(given->rows, 0, 0) : 0);
        break;
    case PG_REFUSED:
        if (strcmp(given->sqlstate, "42P01") == 0)
            check_schema(slot, 0); /* no such table */
        else
            pg_connection_lose(&slot->connection, given->message);
        break;
    case PG_NOT_SENT:
    case PG_UNKNOWN:
        break; /* the connection is lost already */
    }
}

static void on_up(struct pg_connection *connection)
{
    struct slot *slot = container_of(connection, struct slot, connection);
    slot->state = SLOT_CHECKING;
    if (slot->pool->options.schema_least <= 0) {
        ask_waits(slot);
        return;
    }
    slot->schema_ask = (struct pg_ask){.statement = &sql_schema_version};
    ask_check(slot, &slot->schema_ask);
}

static bool may_connect(struct pg_connection *connection)
{
    const struct pg_pool *pool = container_of(connection, struct slot, connection)->pool;
    int sessions = pool->abandoned_count;
    for (int i = 0; i < pool->options.connections; i++)
        sessions += pool->slots[i].connection.libpq != NULL;
    return sessions < sessions_max(pool);
}

static void part_closed(struct pg_pool *pool);

static void on_session_over(struct pg_abandoned *session)
{
    struct pg_pool *pool = container_of(session, struct pg_pool_abandoned, session)->pool;
    if (--pool->abandoned_count == 0)
        pool->waits_for_standby = false;
    part_closed(pool);
}

static void on_abandoned(struct pg_connection *connection, PGconn *session, int syncs)
{
    struct pg_pool *pool = container_of(connection, struct slot, connection)->pool;
    int i = 0;
    while (!pg_abandoned_is_free(&pool->abandoned[i].session))
        i++; /* there is one: this session was counted, too */
    assert(i < sessions_max(pool));
    if (!pg_abandoned_take(&pool->abandoned[i].session, pool->loop, session, syncs, on_session_over))
        return;
    pool->abandoned_count++;
    pool->open_parts++;
}

/* Nobody will serve those that wait. */
static void turn_all_away(struct pg_pool *pool)
{
    struct pg_ask *ask;
    while ((ask = pg_asks_take(&pool->waiting)))
        pg_asks_put(&pool->turned_away, ask);
    kick(pool);
}

static void on_down(struct pg_connection *connection, const char *reason)
{
    struct slot *slot = container_of(connection, struct slot, connection);
    slot->state = SLOT_DOWN;
    slot->unflushed = false;
    if (pg_pool_ready(slot->pool))
        return;
    report(slot->pool, reason);
    if (is_hung(slot->pool))
        turn_all_away(slot->pool);
}

static void on_connection_answer(struct pg_connection *connection, struct pg_ask *ask, const struct pg_answer *given)
{
    struct slot *slot = container_of(connection, struct slot, connection);
    struct pg_pool *pool = slot->pool;
    if (ask == &slot->schema_ask) {
        schema_answered(slot, given);
        return;
    }
    if (ask == &slot->waits_ask) {
        waits_answered(slot, given);
        return;
    }
    if (slot->state == SLOT_UP && given->kind == PG_REFUSED && strcmp(given->sqlstate, "25006") == 0)
        slot->state = SLOT_RETIRING;
    if (pool->waiting.first || slot->state == SLOT_RETIRING)
        kick(pool);
    answer(pool, ask, given);
}

/* Notifications may come through a pooler that mixes clients up; the pool has no use for them. */
static void on_notify(struct pg_connection *connection)
{
    (void)connection;
}

static void on_connection_closed(struct pg_connection *connection)
{
    part_closed(container_of(connection, struct slot, connection)->pool);
}

static const struct pg_connection_hooks hooks = {
    .may_connect = may_connect,
    .on_abandoned = on_abandoned,
    .on_up = on_up,
    .on_down = on_down,
    .on_answer = on_connection_answer,
    .on_notify = on_notify,
    .on_closed = on_connection_closed,
};

/* --- asking --- */

static void on_deadline(uv_timer_t *timer);

static void watch_deadline(struct pg_pool *pool, int64_t deadline_ms)
{
    if (uv_is_closing((uv_handle_t *)&pool->deadline) ||
        (uv_is_active((uv_handle_t *)&pool->deadline) && pool->due_ms <= deadline_ms))
        return;
    int64_t now_ms = clock_mono_ms();
    int64_t delay_ms = deadline_ms - now_ms > DEADLINE_LEAST_MS ? deadline_ms - now_ms : DEADLINE_LEAST_MS;
    pool->due_ms = now_ms + delay_ms;
    (void)uv_timer_start(&pool->deadline, on_deadline, (uint64_t)delay_ms, 0);
}

/* The last one asked is the one that nothing is put behind. */
static bool takes_asks(const struct slot *slot)
{
    const struct pg_asks *asks = &slot->connection.in_flight;
    return slot->state == SLOT_UP && asks->count < slot->pool->options.pipeline && !(asks->last && asks->last->is_slow);
}

/* Room that the next turn will find; the FIFO may be longer by that without anybody waiting. */
static int room(const struct pg_pool *pool)
{
    int count = 0;
    for (int i = 0; i < pool->options.connections; i++)
        if (takes_asks(&pool->slots[i]))
            count += pool->options.pipeline - pool->slots[i].connection.in_flight.count;
    return count;
}

static void accept_ask(struct pg_pool *pool, struct pg_ask *ask, int64_t from_ms)
{
    assert(ask->statement && ask->on_answer && ask->timeout_ms > 0 && ask->statement->parameters <= PG_PARAMS_MAX);
    ask->sent = false;
    ask->behind = NULL;
    ask->deadline_ms = from_ms + ask->timeout_ms;
    pool->in_flight++;
}

void pg_pool_ask(struct pg_pool *pool, struct pg_ask *ask)
{
    accept_ask(pool, ask, clock_mono_ms());
    bool full = pool->waiting.count >= pool->options.waiting_max &&
                pool->waiting.count >= pool->options.waiting_max + room(pool);
    if (pool->closing || full || is_hung(pool)) {
        pg_asks_put(&pool->turned_away, ask);
    } else {
        pg_asks_put(&pool->waiting, ask);
        watch_deadline(pool, ask->deadline_ms);
    }
    kick(pool);
}

void pg_pool_ask_pair(struct pg_pool *pool, struct pg_ask *ask, struct pg_ask *behind)
{
    assert(!ask->is_slow);
    pg_pool_ask(pool, ask);
    /* Not to be late while the first may still run: that would cost the first its connection. */
    accept_ask(pool, behind, ask->deadline_ms);
    ask->behind = behind;
}

static void answer_turned_away(struct pg_pool *pool)
{
    /* Those that callbacks add are for the next turn. */
    struct pg_asks asks = pool->turned_away;
    pool->turned_away = (struct pg_asks){.first = NULL};
    struct pg_ask *ask;
    while ((ask = pg_asks_take(&asks)))
        answer_not_sent(pool, ask,
                        pool->closing   ? "the program is closing its connections"
                        : is_hung(pool) ? find_cause(pool, "")
                                        : "too many statements are waiting");
}

/* The one with the fewest in flight; NULL when none takes any. */
static struct slot *choose_slot(struct pg_pool *pool)
{
    struct slot *best = NULL;
    for (int i = 0; i < pool->options.connections; i++) {
        struct slot *slot = &pool->slots[i];
        if (takes_asks(slot) && (!best || slot->connection.in_flight.count < best->connection.in_flight.count))
            best = slot;
    }
    return best;
}

/* NULL: libpq knows. */
static const char *why_not_sent(const struct slot *slot)
{
    bool is_broken = PQstatus(slot->connection.libpq) == CONNECTION_BAD; /* else half of it may be in libpq's buffer */
    return is_broken ? NULL : "a statement could not be built: out of memory";
}

static void send_behind(struct pg_pool *pool, struct slot *slot, struct pg_ask *behind)
{
    bool is_up = slot->state == SLOT_UP; /* sending the first may have lost it */
    if (is_up && pg_connection_send(&slot->connection, behind))
        return;
    if (is_up)
        pg_connection_lose(&slot->connection, why_not_sent(slot));
    answer_not_sent(pool, behind, "the connection was lost before it");
}

static void send_first(struct pg_pool *pool, struct slot *slot)
{
    struct pg_ask *ask = pg_asks_take(&pool->waiting);
    struct pg_ask *behind = ask->behind; /* once it is sent, the ask may be answered and reused */
    slot->unflushed = true;
    if (pg_connection_send(&slot->connection, ask)) {
        if (behind)
            send_behind(pool, slot, behind);
        return;
    }
    const char *why = why_not_sent(slot);
    if (!why)
        pg_asks_put_front(&pool->waiting, ask);
    pg_connection_lose(&slot->connection, why);
    if (why) /* no memory for this ask: elsewhere it would fail as well */
        answer_not_sent(pool, ask, "out of memory");
}

static void close_connections(struct pg_pool *pool);

static void on_turn(uv_prepare_t *turn)
{
    struct pg_pool *pool = turn->data;
    if (!uv_is_active((uv_handle_t *)&pool->awake))
        return;
    (void)uv_idle_stop(&pool->awake);
    answer_turned_away(pool);
    if (pool->closing) {
        close_connections(pool);
        return;
    }
    for (int i = 0; i < pool->options.connections; i++)
        if (pool->slots[i].state == SLOT_RETIRING && !pool->slots[i].connection.in_flight.first)
            pg_connection_lose(&pool->slots[i].connection, "the database server has become read-only");
    struct slot *slot;
    while (pool->waiting.first && (slot = choose_slot(pool)))
        send_first(pool, slot);
    for (int i = 0; i < pool->options.connections; i++) {
        if (pool->slots[i].unflushed)
            pg_connection_flush(&pool->slots[i].connection);
        pool->slots[i].unflushed = false;
    }
}

/* --- deadlines --- */

/* Takes those past their deadline out of the FIFO. */
static struct pg_asks take_late(struct pg_asks *asks, int64_t now_ms)
{
    struct pg_asks late = {.first = NULL};
    struct pg_asks rest = {.first = NULL};
    struct pg_ask *ask;
    while ((ask = pg_asks_take(asks)))
        pg_asks_put(ask->deadline_ms <= now_ms ? &late : &rest, ask);
    *asks = rest;
    return late;
}

static const struct pg_ask *find_late(const struct pg_asks *asks, int64_t now_ms)
{
    for (const struct pg_ask *ask = asks->first; ask; ask = ask->next)
        if (ask->deadline_ms <= now_ms)
            return ask;
    return NULL;
}

static int64_t soonest_of(const struct pg_asks *asks, int64_t soonest_ms)
{
    for (const struct pg_ask *ask = asks->first; ask; ask = ask->next)
        if (ask->deadline_ms < soonest_ms)
            soonest_ms = ask->deadline_ms;
    return soonest_ms;
}

static void on_deadline(uv_timer_t *timer)
{
    struct pg_pool *pool = timer->data;
    int64_t now_ms = clock_mono_ms();
    struct pg_asks late = take_late(&pool->waiting, now_ms);
    for (int i = 0; i < pool->options.connections; i++) {
        const struct pg_ask *silent = find_late(&pool->slots[i].connection.in_flight, now_ms);
        if (!silent)
            continue;
        char text[200];
        (void)snprintf(text, sizeof(text), "no answer to %s within %lld ms", silent->statement->name,
                       (long long)silent->timeout_ms);
        pg_connection_abandon(&pool->slots[i].connection, text);
    }
    struct pg_ask *ask;
    while ((ask = pg_asks_take(&late)))
        answer_not_sent(pool, ask,
                        pg_pool_ready(pool) ? "no connection was free in time"
                                            : "no connection to the database in time");
    int64_t soonest_ms = soonest_of(&pool->waiting, INT64_MAX);
    for (int i = 0; i < pool->options.connections; i++)
        soonest_ms = soonest_of(&pool->slots[i].connection.in_flight, soonest_ms);
    if (soonest_ms != INT64_MAX)
        watch_deadline(pool, soonest_ms);
}

/* --- opening and closing --- */

static void free_pool(struct pg_pool *pool)
{
    for (int i = 0; i < pool->options.connections; i++)
        buf_done(&pool->slots[i].pids);
    free(pool->abandoned);
    free((char *)pool->options.conninfo);
    free((char *)pool->options.application_name);
    free(pool);
}

static void part_closed(struct pg_pool *pool)
{
    if (--pool->open_parts > 0)
        return;
    /* Asked after the last turn. */
    while (pool->turned_away.first)
        answer_turned_away(pool);
    assert(pool->in_flight == 0);
    void (*on_closed)(void *context) = pool->on_closed;
    void *context = pool->closed_context;
    free_pool(pool);
    if (on_closed)
        on_closed(context);
}

static void on_handle_closed(uv_handle_t *handle)
{
    part_closed(handle->data);
}

static void close_connections(struct pg_pool *pool)
{
    if (!pool->connections_closed) {
        pool->connections_closed = true;
        for (int i = 0; i < pool->options.connections; i++) {
            pool->slots[i].state = SLOT_DOWN;
            pg_connection_close(&pool->slots[i].connection);
        }
        for (int i = 0; i < sessions_max(pool); i++)
            pg_abandoned_drop(&pool->abandoned[i].session);
        struct pg_ask *ask;
        while ((ask = pg_asks_take(&pool->waiting)))
            answer_not_sent(pool, ask, "the program is closing its connections");
    }
    if (pool->turned_away.first) {
        kick(pool);
        return;
    }
    uv_close((uv_handle_t *)&pool->turn, on_handle_closed);
    uv_close((uv_handle_t *)&pool->awake, on_handle_closed);
    uv_close((uv_handle_t *)&pool->deadline, on_handle_closed);
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
    pool->abandoned = calloc((size_t)sessions_max(pool), sizeof(pool->abandoned[0]));
    if (!pool->options.conninfo || !pool->options.application_name || !pool->abandoned) {
        free_pool(pool);
        return err_set(err, ERR_MEMORY, "out of memory");
    }
    for (int i = 0; i < sessions_max(pool); i++)
        pool->abandoned[i].pool = pool;
    (void)uv_prepare_init(loop, &pool->turn); /* cannot fail */
    (void)uv_prepare_start(&pool->turn, on_turn);
    (void)uv_idle_init(loop, &pool->awake);     /* cannot fail */
    (void)uv_timer_init(loop, &pool->deadline); /* cannot fail */
    pool->turn.data = pool;
    pool->awake.data = pool;
    pool->deadline.data = pool;
    pool->open_parts = 3 + options->connections;
    for (int i = 0; i < options->connections; i++) {
        pool->slots[i].pool = pool;
        buf_init(&pool->slots[i].pids, PIDS_MAX);
        pg_connection_init(&pool->slots[i].connection, loop, &hooks, pool->options.conninfo,
                           pool->options.application_name);
        pg_connection_start(&pool->slots[i].connection);
    }
    *ret_pool = pool;
    return true;
}

void pg_pool_close(struct pg_pool *pool, void (*on_closed)(void *context), void *context)
{
    assert(!pool->closing);
    pool->closing = true;
    pool->on_closed = on_closed;
    pool->closed_context = context;
    kick(pool);
}
