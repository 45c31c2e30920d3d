/* See pg_listen.h.
 *
 * Invariants: whenever it starts to listen it gives one hint, because earlier notifications are lost. After
 * pg_listen_close() no callback is called except on_closed. */
#include "common/lib/pg/pg_listen.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/pg/pg_conn.h"
#include "common/lib/pg/pg_conninfo.h"

#define CHANNEL_MAX 63 /* NAMEDATALEN - 1 */

struct pg_listen {
    struct pg_connection connection;
    struct pg_servers servers;
    char *conninfo;
    char start_text[sizeof("LISTEN ") + CHANNEL_MAX], stop_text[sizeof("UNLISTEN ") + CHANNEL_MAX];
    struct sql_statement start, stop;
    struct pg_query query;
    bool is_changing; /* `query` is on its way */
    bool is_wanted;
    bool is_listening; /* the session listens, or will when `query` is done */
    bool is_closing;
    void (*on_hint)(void *context, const char *payload);
    void *context;
    void (*on_closed)(void *context);
    void *closed_context;
};

static void hint(struct pg_listen *listen, const char *payload)
{
    if (!listen->is_closing)
        listen->on_hint(listen->context, payload);
}

/* Makes the session do what is wanted. One change at a time; its result checks again. */
static void apply_wanted(struct pg_listen *listen)
{
    struct pg_connection *connection = &listen->connection;
    if (connection->state != PG_STATE_UP || listen->is_changing || listen->is_listening == listen->is_wanted)
        return;
    listen->is_listening = listen->is_wanted;
    listen->is_changing = true;
    listen->query = (struct pg_query){.statement = listen->is_wanted ? &listen->start : &listen->stop};
    if (pg_connection_send(connection, &listen->query))
        pg_connection_flush(connection);
    else
        pg_connection_lose(connection, NULL);
}

static void on_up(struct pg_connection *connection)
{
    struct pg_listen *listen = container_of(connection, struct pg_listen, connection);
    listen->is_changing = listen->is_listening = false;
    if (listen->is_wanted)
        apply_wanted(listen);
    else
        pg_connection_settle(connection);
}

static void on_down(struct pg_connection *connection, const char *reason)
{
    (void)connection;
    (void)reason; /* the pool's connections report it */
}

static void on_result(struct pg_connection *connection, struct pg_query *query, const struct pg_query_result *result)
{
    struct pg_listen *listen = container_of(connection, struct pg_listen, connection);
    (void)query;
    listen->is_changing = false;
    switch (result->kind) {
    case PG_DONE:
        pg_connection_settle(connection);
        if (listen->is_listening)
            hint(listen, NULL);
        apply_wanted(listen);
        break;
    case PG_REFUSED:
        pg_connection_lose(connection, result->message);
        break;
    case PG_NOT_SENT:
    case PG_UNKNOWN:
        break; /* lost already, or closing */
    }
}

static void on_notify(struct pg_connection *connection, const char *payload)
{
    hint(container_of(connection, struct pg_listen, connection), payload);
}

static void free_listen(struct pg_listen *listen)
{
    pg_servers_done(&listen->servers);
    free(listen->conninfo);
    free(listen);
}

static void on_connection_closed(struct pg_connection *connection)
{
    struct pg_listen *listen = container_of(connection, struct pg_listen, connection);
    void (*on_closed)(void *context) = listen->on_closed;
    void *context = listen->closed_context;
    free_listen(listen);
    if (on_closed)
        on_closed(context);
}

static const struct pg_connection_hooks hooks = {
    .on_up = on_up,
    .on_down = on_down,
    .on_result = on_result,
    .on_notify = on_notify,
    .on_closed = on_connection_closed,
};

static bool is_identifier(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length > 0 && length <= CHANNEL_MAX && text[length] == '\0' && !(text[0] >= '0' && text[0] <= '9');
}

bool pg_listen_open(uv_loop_t *loop, const char *conninfo, const char *channel,
                    void (*on_hint)(void *context, const char *payload), void *context, struct pg_listen **ret_listen,
                    struct err *err)
{
    if (!pg_conninfo_check(conninfo, err))
        return false;
    if (!is_identifier(channel))
        return err_set(err, ERR_CONFIG, "a channel's name is 1 to %d of a-z, 0-9 and _, and starts with no digit",
                       CHANNEL_MAX);
    struct pg_listen *listen = calloc(1, sizeof(*listen));
    char *copy = strdup(conninfo ? conninfo : "");
    if (!listen || !copy) {
        free(listen);
        free(copy);
        return err_set(err, ERR_MEMORY, "out of memory");
    }
    listen->conninfo = copy;
    listen->on_hint = on_hint;
    listen->context = context;
    /* LISTEN takes no parameter, so the name is part of the text; is_identifier() makes that safe. */
    snprintf(listen->start_text, sizeof(listen->start_text), "LISTEN %s", channel);
    snprintf(listen->stop_text, sizeof(listen->stop_text), "UNLISTEN %s", channel);
    listen->start = (struct sql_statement){.name = "listen", .text = listen->start_text, .shape = SQL_NONE};
    listen->stop = (struct sql_statement){.name = "unlisten", .text = listen->stop_text, .shape = SQL_NONE};
    listen->is_wanted = true;
    pg_servers_init(&listen->servers, loop, listen->conninfo, "issuing-listen", 0);
    pg_connection_init(&listen->connection, loop, &hooks, &listen->servers);
    pg_connection_wake(&listen->connection, 0);
    *ret_listen = listen;
    return true;
}

void pg_listen_want(struct pg_listen *listen, bool is_wanted)
{
    assert(!listen->is_closing);
    listen->is_wanted = is_wanted;
    apply_wanted(listen);
}

void pg_listen_close(struct pg_listen *listen, void (*on_closed)(void *context), void *context)
{
    assert(!listen->is_closing);
    listen->is_closing = true;
    listen->on_closed = on_closed;
    listen->closed_context = context;
    pg_connection_close(&listen->connection);
}
