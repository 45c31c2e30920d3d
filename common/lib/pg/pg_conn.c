/* See pg_conn.h.
 *
 * Rules of libpq that this file follows (its manual, "Asynchronous Command Processing" and "Pipeline Mode"): PQsocket
 * is read again after every PQconnectPoll; flush until 0 while also consuming input; read results until NULL; close the
 * poll handle before PQfinish.
 *
 * Invariants:
 * - There is one poll handle for each descriptor, and it is closed before libpq may close the descriptor. PQconnectPoll
 *   may close it and open another one under the same number, so each step of connecting has a new handle.
 * - Hooks may lose or close the connection, so the state is read again after each of them.
 * - Each query is followed by its own Sync, so each is a transaction of its own and the failure of one does not abort
 *   its neighbour.
 * - A query is done only when the server has confirmed its Sync: the implicit transaction commits there, and a commit
 *   can still fail. A fatal error without the Sync is a lost connection, hence PG_UNKNOWN.
 * - A success does not count when the server warned that it did not wait for a synchronous standby (pg_doubt). Such a
 *   warning comes between the rows and the confirmation of the Sync, so it belongs to the first query in flight.
 * - PQconnectStart would resolve a host name by blocking, so it gets an address (pg_servers.h).
 * Left out: cancelling on the server (libpq 15 can only do it by blocking, so a statement that was given up runs on
 * there unless its role has a statement_timeout). */
#include "common/lib/pg/pg_conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
#include "common/lib/pg/pg_conninfo.h"

/* After a connection that lasted this long the backoff starts from the beginning. */
#define LASTED_MS 1000
#define REASON_SIZE 256
/* How soon the servers are asked again when they have nothing to try. */
#define HELD_MS 50
/* Connections that were lost together do not come back in the same millisecond. */
#define SPREAD_MS 20

struct pg_watch {
    uv_poll_t poll;
    struct pg_connection *connection;
};

/* ---- connecting ---- */

/* The only code that changes the state. */
static void set_state(struct pg_connection *connection, enum pg_connection_state state)
{
    assert(connection->state != PG_STATE_CLOSED);
    assert(state != PG_STATE_CONNECTING || connection->state == PG_STATE_DOWN);
    assert(state != PG_STATE_UP || connection->state == PG_STATE_CONNECTING);
    connection->state = state;
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct pg_watch *watch = container_of((uv_poll_t *)handle, struct pg_watch, poll);
    struct closing *closing = &watch->connection->closing;
    free(watch);
    closing_part_closed(closing);
}

static void unwatch(struct pg_connection *connection)
{
    if (!connection->watch)
        return;
    uv_close((uv_handle_t *)&connection->watch->poll, on_poll_closed);
    connection->watch = NULL;
    connection->events = 0;
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* Watches the descriptor that libpq has now. false: no memory, or no such descriptor. */
static bool start_watch(struct pg_connection *connection, int events)
{
    assert(!connection->watch);
    struct pg_watch *watch = malloc(sizeof(*watch));
    if (!watch)
        return false;
    watch->connection = connection;
    if (uv_poll_init(connection->loop, &watch->poll, PQsocket(connection->libpq)) != 0) {
        free(watch);
        return false;
    }
    connection->watch = watch;
    (void)closing_part(&connection->closing);
    connection->events = events;
    return uv_poll_start(&watch->poll, events, on_poll) == 0;
}

static void finish_connecting(struct pg_connection *connection)
{
    if (PQsetnonblocking(connection->libpq, 1) != 0 || PQenterPipelineMode(connection->libpq) != 1 ||
        !start_watch(connection, UV_READABLE)) {
        pg_connection_lose(connection, NULL);
        return;
    }
    set_state(connection, PG_STATE_UP);
    connection->hooks->on_up(connection);
}

static void step_connecting(struct pg_connection *connection)
{
    unwatch(connection);
    bool is_going_on = false;
    switch (PQconnectPoll(connection->libpq)) {
    case PGRES_POLLING_READING:
        is_going_on = start_watch(connection, UV_READABLE);
        break;
    case PGRES_POLLING_ACTIVE: /* libpq never returns it */
    case PGRES_POLLING_WRITING:
        is_going_on = start_watch(connection, UV_WRITABLE);
        break;
    case PGRES_POLLING_OK:
        finish_connecting(connection);
        return;
    case PGRES_POLLING_FAILED:
        break;
    }
    if (!is_going_on)
        pg_connection_lose(connection, NULL);
}

static void on_timer(uv_timer_t *timer);

static void start_timer(struct pg_connection *connection, int64_t delay_ms)
{
    (void)uv_timer_start(&connection->timer, on_timer, (uint64_t)delay_ms, 0);
}

static void start_attempt(struct pg_connection *connection, int target)
{
    struct pg_options options = pg_servers_options(connection->servers, target);
    struct pg_hosts *hosts = &connection->servers->hosts;
    connection->limit_ms = pg_hosts_limit_ms(hosts, target);
    set_state(connection, PG_STATE_CONNECTING);
    connection->target = target;
    pg_hosts_begin(hosts, target, clock_mono_ms());
    connection->settled_ms = 0;
    connection->libpq = PQconnectStartParams(options.keywords, options.values, 1);
    if (!connection->libpq || PQstatus(connection->libpq) == CONNECTION_BAD || !start_watch(connection, UV_WRITABLE)) {
        pg_connection_lose(connection, NULL);
        return;
    }
    pg_watch_notices(connection->libpq, &connection->notices);
    /* A list that libpq walks itself may have blocked the loop for long. */
    uv_update_time(connection->loop);
    start_timer(connection, connection->limit_ms);
}

static void give_up_attempt(struct pg_connection *connection)
{
    char text[120];
    snprintf(text, sizeof(text),
             connection->state == PG_STATE_UP
                 ? "the server accepts connections and does not answer within %g s (or a pooler has no session "
                   "left)"
                 : "no answer from the database server within %g s",
             (double)connection->limit_ms / 1000);
    pg_connection_refuse(connection, PG_SEEN_SILENT, text);
}

static void on_timer(uv_timer_t *timer)
{
    struct pg_connection *connection = container_of(timer, struct pg_connection, timer);
    if (connection->state != PG_STATE_DOWN) {
        give_up_attempt(connection);
        return;
    }
    bool is_known = pg_servers_refresh(connection->servers);
    int target = is_known ? pg_hosts_choose(&connection->servers->hosts, clock_mono_ms()) : -1;
    if (target < 0)
        start_timer(connection, HELD_MS);
    else
        start_attempt(connection, target);
}

static void on_all_closed(void *context)
{
    struct pg_connection *connection = context;
    connection->hooks->on_closed(connection);
}

void pg_connection_init(struct pg_connection *connection, uv_loop_t *loop, const struct pg_connection_hooks *hooks,
                        struct pg_servers *servers)
{
    *connection =
        (struct pg_connection){.loop = loop, .hooks = hooks, .servers = servers, .target = -1, .state = PG_STATE_DOWN};
    (void)uv_timer_init(loop, &connection->timer); /* cannot fail */
    closing_start(&connection->closing, NULL, NULL, on_all_closed, connection);
}

void pg_connection_wake(struct pg_connection *connection, int64_t delay_ms)
{
    assert(connection->state == PG_STATE_DOWN);
    start_timer(connection, delay_ms);
}

void pg_connection_settle(struct pg_connection *connection)
{
    assert(connection->state == PG_STATE_UP);
    if (connection->settled_ms)
        return;
    (void)uv_timer_stop(&connection->timer);
    connection->settled_ms = clock_mono_ms();
    pg_hosts_settle(&connection->servers->hosts, connection->target);
}

void pg_connection_flush(struct pg_connection *connection)
{
    if (connection->state != PG_STATE_UP)
        return;
    int left = PQflush(connection->libpq);
    int events = left > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE;
    if (left >= 0 && events == connection->events)
        return;
    if (left < 0 || uv_poll_start(&connection->watch->poll, events, on_poll) != 0) {
        pg_connection_lose(connection, NULL);
        return;
    }
    connection->events = events;
}

/* ---- what is sent, and what comes back ---- */

/* name NULL: by its text. */
static bool send_statement(struct pg_connection *connection, struct pg_query *query, struct pg_name *name)
{
    const struct sql_statement *statement = query->statement;
    struct pg_values values;
    pg_values_fill(&values, query->params, statement->parameters);
    if (!name) {
        query->method = PG_BY_TEXT;
        return PQsendQueryParams(connection->libpq, statement->text, statement->parameters, NULL, values.values,
                                 values.lengths, values.formats, 1) == 1;
    }
    query->method = name->is_sent ? PG_BY_NAME : PG_PREPARING;
    if (!name->is_sent && !PQsendPrepare(connection->libpq, name->text, statement->text, statement->parameters, NULL))
        return false;
    name->is_sent = true;
    return PQsendQueryPrepared(connection->libpq, name->text, statement->parameters, values.values, values.lengths,
                               values.formats, 1) == 1;
}

/* libpq 15 writes to the socket with each Sync, so leaving out Syncs between queries would save no system call. */
static void put_in_flight(struct pg_connection *connection, struct pg_query *query)
{
    query->sent = true;
    query->is_given_up = false;
    if (!connection->in_flight.first)
        connection->first_since_ms = clock_mono_ms();
    pg_queries_append(&connection->in_flight, query);
    if (!PQpipelineSync(connection->libpq))
        pg_connection_lose(connection, NULL);
}

bool pg_connection_send(struct pg_connection *connection, struct pg_query *query)
{
    assert(connection->state == PG_STATE_UP);
    if (!send_statement(connection, query, pg_names_find(&connection->names, query->statement)))
        return false;
    put_in_flight(connection, query);
    return true;
}

void pg_connection_replace(struct pg_connection *connection, struct pg_query *query, struct pg_query *replacement)
{
    void (*on_result)(struct pg_query * query, const struct pg_query_result *result) = replacement->on_result;
    *replacement = *query;
    replacement->on_result = on_result;
    /* guard: what was late is not sent again by its text */
    replacement->is_given_up = true;
    struct pg_queries *queries = &connection->in_flight;
    struct pg_query **link = &queries->first;
    while (*link != query)
        link = &(*link)->next;
    *link = replacement;
    if (queries->last == query)
        queries->last = replacement;
}

/* The first in flight has an error of the server, which may be why the connection ends. */
static bool has_error(const struct pg_connection *connection)
{
    return connection->result && PQresultStatus(connection->result) == PGRES_FATAL_ERROR;
}

/* The name was refused, not the statement: once more, by its text. */
static void send_by_text(struct pg_connection *connection, struct pg_query *query)
{
    bool is_sent = send_statement(connection, query, NULL);
    put_in_flight(connection, query);
    if (!is_sent && connection->state == PG_STATE_UP)
        pg_connection_lose(connection, NULL);
}

/* The server confirmed the Sync of the first in flight, so its result is final. */
static void report_first(struct pg_connection *connection)
{
    struct pg_query *query = pg_queries_take(&connection->in_flight);
    PGresult *libpq_result = connection->result;
    connection->result = NULL;
    connection->first_since_ms = clock_mono_ms();
    struct pg_query_result result = {.kind = PG_DONE, .rows = (const struct pg_rows *)libpq_result};
    struct pg_doubt doubt = connection->notices.doubt;
    connection->notices.doubt = (struct pg_doubt){0};
    if (PQresultStatus(libpq_result) == PGRES_FATAL_ERROR) {
        result = (struct pg_query_result){.kind = PG_REFUSED};
        pg_result_sqlstate(libpq_result, result.sqlstate);
        pg_result_message(libpq_result, query->statement->name, result.message, sizeof(result.message));
        bool is_by_name = query->method != PG_BY_TEXT && !query->is_given_up;
        if (is_by_name && pg_names_refused(&connection->names, query->statement, result.sqlstate)) {
            PQclear(libpq_result);
            send_by_text(connection, query);
            return;
        }
        /* guard: a commit whose wait for the standby was ended is not reported */
    } else if (doubt.is_there) {
        result = (struct pg_query_result){.kind = PG_UNKNOWN};
        snprintf(result.message, sizeof(result.message), "%s: %s", query->statement->name, doubt.why);
    }
    connection->hooks->on_result(connection, query, &result);
    PQclear(libpq_result);
}

/* Takes one result of libpq. false: the answers do not fit the queries, so the connection is not usable any more. */
static bool take_result(struct pg_connection *connection, PGresult *result)
{
    struct pg_query *query = connection->in_flight.first;
    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
        if (connection->result)
            break;
        if (query->method == PG_PREPARING) { /* the result of the Parse; that of the query follows */
            query->method = PG_BY_NAME;
            pg_names_prepared(&connection->names, query->statement);
            PQclear(result);
            return true;
        }
        connection->result = result;
        return true;
    case PGRES_FATAL_ERROR:
        /* Also after a success: the commit failed. */
        PQclear(connection->result);
        connection->result = result;
        return PQstatus(connection->libpq) == CONNECTION_OK;
    case PGRES_PIPELINE_SYNC:
        PQclear(result);
        if (!connection->result)
            return false;
        report_first(connection);
        return true;
    case PGRES_PIPELINE_ABORTED: /* only behind a refused Parse: each query has its own Sync */
        if (query->method != PG_PREPARING || !has_error(connection))
            break;
        PQclear(result);
        return true;
    case PGRES_EMPTY_QUERY:
    case PGRES_COPY_OUT:
    case PGRES_COPY_IN:
    case PGRES_COPY_BOTH:
    case PGRES_BAD_RESPONSE:
    case PGRES_NONFATAL_ERROR:
    case PGRES_SINGLE_TUPLE:
#ifdef LIBPQ_HAS_CHUNK_MODE /* libpq 17 */
    case PGRES_TUPLES_CHUNK:
#endif
        break;
    }
    PQclear(result);
    return false;
}

/* Takes the results that have arrived. false: the answers do not fit the queries. */
static bool drain(struct pg_connection *connection)
{
    int nulls = 0; /* one ends the results of a statement, two in a row mean that there is nothing more */
    while (connection->state == PG_STATE_UP && connection->in_flight.first && nulls < 2 &&
           !PQisBusy(connection->libpq)) {
        PGresult *result = PQgetResult(connection->libpq);
        nulls = result ? 0 : nulls + 1;
        if (result && !take_result(connection, result))
            return false;
    }
    return true;
}

static void drain_notifications(struct pg_connection *connection)
{
    while (connection->state == PG_STATE_UP) {
        PGnotify *notification = PQnotifies(connection->libpq);
        if (!notification)
            return;
        if (connection->hooks->on_notify)
            connection->hooks->on_notify(connection, notification->extra);
        PQfreemem(notification);
    }
}

/* ---- the end ---- */

static void find_libpq_reason(const struct pg_connection *connection, char *ret_reason, size_t size)
{
    char text[REASON_SIZE];
    snprintf(text, sizeof(text), "%s", PQerrorMessage(connection->libpq));
    /* While connecting, each host of a list has its line; later libpq only guesses behind the first. */
    if (connection->state == PG_STATE_UP)
        text[strcspn(text, "\n")] = '\0';
    pg_line(ret_reason, size, text);
    const char *remedy = connection->state == PG_STATE_CONNECTING ? pg_remedy(text) : NULL;
    if (remedy) {
        pg_line(text, sizeof(text), ret_reason);
        snprintf(ret_reason, size, "%.140s; %s", text, remedy);
    }
}

/* The best known cause: the server's last error, or libpq's. */
static void find_reason(const struct pg_connection *connection, const char *reason, char *ret_reason, size_t size)
{
    if (reason)
        pg_line(ret_reason, size, reason);
    else if (has_error(connection))
        pg_result_message(connection->result, "", ret_reason, size);
    else if (!connection->libpq)
        pg_line(ret_reason, size, "out of memory");
    else
        find_libpq_reason(connection, ret_reason, size);
    if (!ret_reason[0])
        pg_line(ret_reason, size, "the connection to the database broke");
}

static void lose_broken(struct pg_connection *connection, const char *broken)
{
    const char *end = connection->notices.end;
    /* A host that fell silent ends nothing: keepalives found it out. */
    connection->is_ended = connection->settled_ms && !connection->in_flight.first &&
                           (end[0] || pg_seen_of(connection->libpq, broken) != PG_SEEN_SILENT);
    pg_connection_lose(connection, end[0] ? end : broken[0] && !has_error(connection) ? broken : NULL);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct pg_connection *connection = container_of(poll, struct pg_watch, poll)->connection;
    (void)events;
    if (connection->state == PG_STATE_CONNECTING) {
        step_connecting(connection); /* after an error too: libpq goes to the next host */
        return;
    }
    char broken[REASON_SIZE] = "";
    bool is_good = PQconsumeInput(connection->libpq) == 1;
    if (!is_good)
        find_libpq_reason(connection, broken, sizeof(broken)); /* draining overwrites it */
    /* What arrived before the connection broke still counts. */
    is_good = drain(connection) && status == 0 && is_good;
    drain_notifications(connection);
    if (connection->state != PG_STATE_UP)
        return;
    if (is_good && PQstatus(connection->libpq) == CONNECTION_OK)
        pg_connection_flush(connection);
    else
        lose_broken(connection, broken);
}

enum ending { RECONNECT, RECONNECT_AND_LEAVE_OPEN, CLOSE };

static enum pg_seen find_seen(const struct pg_connection *connection, const char *reason)
{
    if (connection->verdict != PG_SEEN_NOTHING)
        return connection->verdict;
    return connection->state == PG_STATE_CONNECTING ? pg_seen_of(connection->libpq, reason) : PG_SEEN_OTHER;
}

/* What the servers learn from the end of the attempt or session. */
static void tell_servers(struct pg_connection *connection, const char *reason, enum ending ending)
{
    struct pg_hosts *hosts = &connection->servers->hosts;
    int target = connection->target;
    int64_t now_ms = clock_mono_ms();
    if (target < 0)
        return;
    if (!connection->settled_ms && (connection->is_cut || ending == CLOSE))
        pg_hosts_cut(hosts, target);
    else if (!connection->settled_ms)
        pg_hosts_fail(hosts, target, find_seen(connection, reason), reason, now_ms, backoff_random());
    else if (ending == RECONNECT_AND_LEAVE_OPEN)
        pg_hosts_abandon(hosts, target, reason, now_ms);
    else
        pg_hosts_lose(hosts, target, now_ms - connection->settled_ms >= LASTED_MS, reason, now_ms, backoff_random());
}

/* Takes what belongs to the session out of the connection. */
static void end_session(struct pg_connection *connection, enum ending ending, int syncs)
{
    connection->names = (struct pg_names){0};
    unwatch(connection);
    PQclear(connection->result);
    connection->result = NULL;
    connection->notices = (struct pg_notices){0};
    PGconn *libpq = connection->libpq;
    int target = connection->target;
    connection->libpq = NULL;
    connection->target = -1;
    connection->verdict = PG_SEEN_NOTHING;
    connection->is_cut = false;
    connection->settled_ms = 0;
    if (ending == RECONNECT_AND_LEAVE_OPEN) {
        pg_ignore_notices(libpq); /* connection->notices are for the next session */
        connection->hooks->on_abandoned(connection, libpq, syncs, target);
    } else {
        PQfinish(libpq);
    }
}

static void end(struct pg_connection *connection, const char *reason, enum ending ending)
{
    char text[REASON_SIZE];
    find_reason(connection, reason, text, sizeof(text));
    struct pg_queries lost = connection->in_flight;
    connection->in_flight = (struct pg_queries){0};
    tell_servers(connection, text, ending);
    end_session(connection, ending, lost.count);
    if (ending == CLOSE) {
        set_state(connection, PG_STATE_CLOSED);
        closing_handle(&connection->closing, &connection->timer);
        closing_end(&connection->closing);
    } else {
        set_state(connection, PG_STATE_DOWN);
        start_timer(connection, (int64_t)(backoff_random() % SPREAD_MS));
        connection->hooks->on_down(connection, text);
        connection->is_ended = false;
    }
    struct pg_query_result result = {.kind = PG_UNKNOWN};
    pg_line(result.message, sizeof(result.message), text);
    struct pg_query *query;
    while ((query = pg_queries_take(&lost)))
        connection->hooks->on_result(connection, query, &result);
}

void pg_connection_lose(struct pg_connection *connection, const char *reason)
{
    assert(connection->state != PG_STATE_CLOSED);
    end(connection, reason, RECONNECT);
}

void pg_connection_refuse(struct pg_connection *connection, enum pg_seen verdict, const char *reason)
{
    assert(!connection->settled_ms);
    connection->verdict = verdict;
    pg_connection_lose(connection, reason);
}

void pg_connection_cut(struct pg_connection *connection, const char *reason)
{
    assert(!connection->settled_ms && connection->state != PG_STATE_DOWN);
    connection->is_cut = true;
    pg_connection_lose(connection, reason);
}

void pg_connection_abandon(struct pg_connection *connection, const char *reason)
{
    assert(connection->state == PG_STATE_UP && connection->settled_ms);
    end(connection, reason, RECONNECT_AND_LEAVE_OPEN);
}

void pg_connection_close(struct pg_connection *connection)
{
    assert(connection->state != PG_STATE_CLOSED);
    end(connection, "the program is closing its connections", CLOSE);
}
