/* One libpq connection on the loop: connect, ask, drain, lose, connect again.
 *
 * Invariants:
 * - One poll handle per descriptor, and closed before libpq may close the descriptor: PQconnectPoll may do so and open
 * another one under the same number, so each step of connecting has a handle of its own.
 * - An ask is done only when the server confirmed its Sync: the implicit transaction commits there, and a commit can
 * still fail. A fatal error without the Sync is a lost connection, hence PG_UNKNOWN. Only on_rows is told before it:
 * for such an ask a Flush goes in front of the Sync, since without one the server keeps the rows until it has
 * committed.
 * - A success is none when the server warned that it did not wait for a synchronous standby (pg_doubt). Such a warning
 * comes between the rows and the confirmation of the Sync, so it belongs to the first in flight.
 * - on_rows and on_answer belong to one run on the server: an ask whose rows were told is never asked again by its
 * text.
 * - Hooks, and on_rows, may lose or close the connection; so the state is looked at again after each of them.
 * Left out: cancelling on the server (libpq 15 can do it only by blocking, so a statement given up runs on there unless
 * its role has a statement_timeout), and looking up names without blocking (PQconnectStart blocks on them; numeric
 * addresses and sockets do not). */
#include "common/pg_conn_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/backoff.h"
#include "common/clock.h"

#define SETTLE_MS 5000
#define RETRY_BASE_MS 100
#define RETRY_CAP_MS 5000
/* A connection that lasted this long starts its backoff anew. */
#define LASTED_MS 1000
#define REASON_SIZE 256
/* How soon it is asked again whether it may connect. */
#define HELD_MS 50

void pg_asks_put(struct pg_asks *asks, struct pg_ask *ask)
{
    ask->next = NULL;
    if (asks->last)
        asks->last->next = ask;
    else
        asks->first = ask;
    asks->last = ask;
    asks->count++;
}

void pg_asks_put_front(struct pg_asks *asks, struct pg_ask *ask)
{
    ask->next = asks->first;
    asks->first = ask;
    if (!asks->last)
        asks->last = ask;
    asks->count++;
}

struct pg_ask *pg_asks_take(struct pg_asks *asks)
{
    struct pg_ask *ask = asks->first;
    if (!ask)
        return NULL;
    asks->first = ask->next;
    if (!asks->first)
        asks->last = NULL;
    asks->count--;
    ask->next = NULL;
    return ask;
}

bool pg_sqlstate_is_transient(const char sqlstate[6])
{
    static const char *const starts[] = {"40001", "40P01", "25006", "53", "57P0", "08"};
    for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
        if (strncmp(sqlstate, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

static void handle_closed(struct pg_connection *connection)
{
    connection->handles--;
    if (connection->state == PG_STATE_CLOSED && connection->handles == 0)
        connection->hooks->on_closed(connection);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct pg_connection *connection = handle->data;
    free(handle);
    handle_closed(connection);
}

static void on_timer_closed(uv_handle_t *handle)
{
    handle_closed(handle->data);
}

static void unwatch(struct pg_connection *connection)
{
    if (!connection->poll)
        return;
    uv_close((uv_handle_t *)connection->poll, on_poll_closed);
    connection->poll = NULL;
    connection->events = 0;
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* The descriptor as libpq has it now. false: no memory, or no such descriptor. */
static bool watch(struct pg_connection *connection, int events)
{
    assert(!connection->poll);
    uv_poll_t *poll = malloc(sizeof(*poll));
    if (!poll)
        return false;
    if (uv_poll_init(connection->loop, poll, PQsocket(connection->libpq)) != 0) {
        free(poll);
        return false;
    }
    poll->data = connection;
    connection->poll = poll;
    connection->handles++;
    connection->events = events;
    return uv_poll_start(poll, events, on_poll) == 0;
}

static void finish_connecting(struct pg_connection *connection)
{
    if (PQsetnonblocking(connection->libpq, 1) != 0 || PQenterPipelineMode(connection->libpq) != 1 ||
        !watch(connection, UV_READABLE)) {
        pg_connection_lose(connection, NULL);
        return;
    }
    connection->state = PG_STATE_UP;
    connection->hooks->on_up(connection);
}

static void step_connecting(struct pg_connection *connection)
{
    unwatch(connection);
    bool going_on = false;
    switch (PQconnectPoll(connection->libpq)) {
    case PGRES_POLLING_READING:
        going_on = watch(connection, UV_READABLE);
        break;
    case PGRES_POLLING_ACTIVE: /* libpq never returns it */
    case PGRES_POLLING_WRITING:
        going_on = watch(connection, UV_WRITABLE);
        break;
    case PGRES_POLLING_OK:
        finish_connecting(connection);
        return;
    case PGRES_POLLING_FAILED:
        break;
    }
    if (!going_on)
        pg_connection_lose(connection, NULL);
}

static void on_timer(uv_timer_t *timer)
{
    struct pg_connection *connection = timer->data;
    if (connection->state != PG_STATE_DOWN) {
        /* libpq itself never leaves a silent host for the next one of the list. */
        pg_hosts_rotate(&connection->hosts, connection->libpq);
        pg_connection_lose(connection, connection->state == PG_STATE_UP
                                           ? "the server accepts connections and does not answer within 5 s"
                                           : "no answer from the database server within 5 s");
        return;
    }
    if (connection->hooks->may_connect && !connection->hooks->may_connect(connection)) {
        (void)uv_timer_start(timer, on_timer, HELD_MS, 0);
        return;
    }
    struct pg_words words = pg_words_of(connection->conninfo, connection->application_name, &connection->hosts);
    connection->state = PG_STATE_CONNECTING;
    connection->attempts++;
    connection->settled_ms = 0;
    connection->libpq = PQconnectStartParams(words.keywords, words.values, 1);
    if (!connection->libpq || PQstatus(connection->libpq) == CONNECTION_BAD || !watch(connection, UV_WRITABLE)) {
        pg_connection_lose(connection, NULL);
        return;
    }
    pg_watch_notices(connection->libpq, &connection->doubt);
    /* A name look-up may have blocked the loop for long. */
    uv_update_time(connection->loop);
    (void)uv_timer_start(&connection->timer, on_timer, SETTLE_MS, 0);
}

void pg_connection_init(struct pg_connection *connection, uv_loop_t *loop, const struct pg_connection_hooks *hooks,
                        const char *conninfo, const char *application_name)
{
    *connection = (struct pg_connection){.loop = loop,
                                         .hooks = hooks,
                                         .conninfo = conninfo,
                                         .application_name = application_name,
                                         .state = PG_STATE_DOWN};
    (void)uv_timer_init(loop, &connection->timer); /* cannot fail */
    connection->timer.data = connection;
    connection->handles = 1;
}

void pg_connection_start(struct pg_connection *connection)
{
    (void)uv_timer_start(&connection->timer, on_timer, 0, 0);
}

void pg_connection_settle(struct pg_connection *connection)
{
    assert(connection->state == PG_STATE_UP);
    (void)uv_timer_stop(&connection->timer);
    connection->settled_ms = clock_mono_ms();
}

static bool send_by(struct pg_connection *connection, struct pg_ask *ask, struct pg_name *name)
{
    const struct sql_statement *statement = ask->statement;
    struct pg_values values;
    pg_values_fill(&values, ask->params, statement->parameters);
    if (!name) {
        ask->way = PG_BY_TEXT;
        return PQsendQueryParams(connection->libpq, statement->text, statement->parameters, NULL, values.values,
                                 values.lengths, values.formats, 1) == 1;
    }
    ask->way = name->is_sent ? PG_BY_NAME : PG_NAMING;
    if (!name->is_sent && !PQsendPrepare(connection->libpq, name->text, statement->text, statement->parameters, NULL))
        return false;
    name->is_sent = true;
    return PQsendQueryPrepared(connection->libpq, name->text, statement->parameters, values.values, values.lengths,
                               values.formats, 1) == 1;
}

/* A Sync after each: one failure must not abort its neighbours. Libpq 15 pushes with each Sync, so there is no send to
 * save; the Flush leaves with it. */
static void put_in_flight(struct pg_connection *connection, struct pg_ask *ask)
{
    ask->sent = true;
    ask->rows_told = false;
    pg_asks_put(&connection->in_flight, ask);
    if ((ask->on_rows && !PQsendFlushRequest(connection->libpq)) || !PQpipelineSync(connection->libpq))
        pg_connection_lose(connection, NULL);
}

bool pg_connection_send(struct pg_connection *connection, struct pg_ask *ask)
{
    assert(connection->state == PG_STATE_UP);
    if (!send_by(connection, ask, pg_name_to_ask_by(&connection->names, ask->statement)))
        return false;
    put_in_flight(connection, ask);
    return true;
}

void pg_connection_flush(struct pg_connection *connection)
{
    if (connection->state != PG_STATE_UP)
        return;
    int left = PQflush(connection->libpq);
    int events = left > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE;
    if (left >= 0 && events == connection->events)
        return;
    if (left < 0 || uv_poll_start(connection->poll, events, on_poll) != 0) {
        pg_connection_lose(connection, NULL);
        return;
    }
    connection->events = events;
}

static bool has_last_words(const struct pg_connection *connection)
{
    return connection->result && PQresultStatus(connection->result) == PGRES_FATAL_ERROR;
}

/* The name was refused, not what is asked: once more, by its text. */
static void ask_by_text(struct pg_connection *connection, struct pg_ask *ask)
{
    bool is_sent = send_by(connection, ask, NULL);
    put_in_flight(connection, ask);
    if (!is_sent && connection->state == PG_STATE_UP)
        pg_connection_lose(connection, NULL);
}

/* The server confirmed the Sync of the first in flight: what it said before is final. */
static void answer_first(struct pg_connection *connection)
{
    struct pg_ask *ask = pg_asks_take(&connection->in_flight);
    PGresult *result = connection->result;
    connection->result = NULL;
    struct pg_answer answer = {.kind = PG_DONE, .rows = (const struct pg_rows *)result};
    struct pg_doubt doubt = connection->doubt;
    connection->doubt = (struct pg_doubt){.is_there = false};
    if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
        answer = (struct pg_answer){.kind = PG_REFUSED};
        pg_result_sqlstate(result, answer.sqlstate);
        pg_result_message(result, ask->statement->name, answer.message, sizeof(answer.message));
        bool is_by_name = ask->way != PG_BY_TEXT && !ask->rows_told; /* else the name was good: the commit failed */
        if (is_by_name && pg_name_refused(&connection->names, ask->statement, answer.sqlstate)) {
            PQclear(result);
            ask_by_text(connection, ask);
            return;
        }
    } else if (doubt.is_there) {
        answer = (struct pg_answer){.kind = PG_UNKNOWN};
        (void)snprintf(answer.message, sizeof(answer.message), "%s: %s", ask->statement->name, doubt.why);
    }
    connection->hooks->on_answer(connection, ask, &answer);
    PQclear(result);
}

/* Before the commit. Whatever the ask does meanwhile, these rows live until it returns. */
static void tell_rows(struct pg_connection *connection, struct pg_ask *ask, PGresult *result)
{
    ask->rows_told = true;
    ask->on_rows(ask, (const struct pg_rows *)result);
    if (connection->state == PG_STATE_UP)
        connection->result = result;
    else
        PQclear(result);
}

/* One result of libpq; NULL ends those of one statement. false: this connection cannot be understood any more. */
static bool take_result(struct pg_connection *connection, PGresult *result)
{
    struct pg_ask *ask = connection->in_flight.first;
    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
        if (connection->result)
            break;
        if (ask->way == PG_NAMING) { /* this was the Parse; what it was for is still to come */
            ask->way = PG_BY_NAME;
            pg_name_kept(&connection->names, ask->statement);
            PQclear(result);
            return true;
        }
        if (ask->on_rows)
            tell_rows(connection, ask, result);
        else
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
        answer_first(connection);
        return true;
    case PGRES_PIPELINE_ABORTED: /* only behind a refused Parse: each ask has its own Sync */
        if (ask->way != PG_NAMING || !has_last_words(connection))
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
        break;
    }
    PQclear(result);
    return false;
}

static bool drain(struct pg_connection *connection)
{
    int nulls = 0; /* one ends a statement, two in a row mean that there is nothing more */
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
        PQfreemem(notification);
        connection->hooks->on_notify(connection);
    }
}

static void find_libpq_reason(const struct pg_connection *connection, char *ret_reason, size_t size)
{
    char text[REASON_SIZE];
    (void)snprintf(text, sizeof(text), "%s", PQerrorMessage(connection->libpq));
    /* While connecting, each host of a list has its line; later libpq only guesses behind the first. */
    if (connection->state == PG_STATE_UP)
        text[strcspn(text, "\n")] = '\0';
    pg_line(ret_reason, size, text);
}

/* The best known cause: the server's last words, or libpq's. */
static void find_reason(const struct pg_connection *connection, const char *reason, char *ret_reason, size_t size)
{
    if (reason)
        pg_line(ret_reason, size, reason);
    else if (has_last_words(connection))
        pg_result_message(connection->result, "", ret_reason, size);
    else if (!connection->libpq)
        pg_line(ret_reason, size, "out of memory");
    else
        find_libpq_reason(connection, ret_reason, size);
    if (!ret_reason[0])
        pg_line(ret_reason, size, "the connection to the database broke");
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct pg_connection *connection = poll->data;
    (void)events;
    if (connection->state == PG_STATE_CONNECTING) {
        step_connecting(connection); /* after an error too: libpq goes to the next host */
        return;
    }
    char broken[REASON_SIZE] = "";
    bool good = PQconsumeInput(connection->libpq) == 1;
    if (!good)
        find_libpq_reason(connection, broken, sizeof(broken)); /* draining overwrites it */
    /* What arrived before the connection broke still counts. */
    good = drain(connection) && status == 0 && good;
    drain_notifications(connection);
    if (connection->state != PG_STATE_UP)
        return;
    if (good && PQstatus(connection->libpq) == CONNECTION_OK)
        pg_connection_flush(connection);
    else
        pg_connection_lose(connection, broken[0] && !has_last_words(connection) ? broken : NULL);
}

enum letting_go { TO_COME_BACK, TO_COME_BACK_WITHOUT_CLOSING, FOR_EVER };

static void let_go(struct pg_connection *connection, const char *reason, enum letting_go how)
{
    char text[REASON_SIZE];
    find_reason(connection, reason, text, sizeof(text));
    struct pg_asks lost = connection->in_flight;
    connection->in_flight = (struct pg_asks){.first = NULL};
    connection->names = (struct pg_names){.count = 0};
    unwatch(connection);
    PQclear(connection->result);
    connection->result = NULL;
    connection->doubt = (struct pg_doubt){.is_there = false};
    PGconn *libpq = connection->libpq;
    connection->libpq = NULL;
    if (how == TO_COME_BACK_WITHOUT_CLOSING) {
        pg_ignore_notices(libpq); /* the doubt is no business of this connection any more */
        connection->hooks->on_abandoned(connection, libpq, lost.count);
    } else {
        PQfinish(libpq);
    }
    if (how == FOR_EVER) {
        connection->state = PG_STATE_CLOSED;
        uv_close((uv_handle_t *)&connection->timer, on_timer_closed);
        pg_hosts_done(&connection->hosts);
    } else {
        connection->state = PG_STATE_DOWN;
        if (connection->settled_ms && clock_mono_ms() - connection->settled_ms >= LASTED_MS)
            connection->attempts = 0;
        int attempt = connection->attempts > 0 ? connection->attempts : 1;
        int64_t delay_ms = backoff_delay_ms(attempt, RETRY_BASE_MS, RETRY_CAP_MS, backoff_random());
        (void)uv_timer_start(&connection->timer, on_timer, (uint64_t)delay_ms, 0);
        connection->hooks->on_down(connection, text);
    }
    struct pg_answer answer = {.kind = PG_UNKNOWN};
    pg_line(answer.message, sizeof(answer.message), text);
    struct pg_ask *ask;
    while ((ask = pg_asks_take(&lost)))
        connection->hooks->on_answer(connection, ask, &answer);
}

void pg_connection_lose(struct pg_connection *connection, const char *reason)
{
    assert(connection->state != PG_STATE_CLOSED);
    let_go(connection, reason, TO_COME_BACK);
}

void pg_connection_abandon(struct pg_connection *connection, const char *reason)
{
    assert(connection->state == PG_STATE_UP);
    let_go(connection, reason, TO_COME_BACK_WITHOUT_CLOSING);
}

void pg_connection_close(struct pg_connection *connection)
{
    assert(connection->state != PG_STATE_CLOSED);
    let_go(connection, "the program is closing its connections", FOR_EVER);
}
