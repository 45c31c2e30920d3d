/* Which connection gives way when connections or memory run short.
 *
 * Any client may open connections, begin requests and leave replies unread; only a request whose head was complete
 * and accepted has passed a check. So connections that wait for their client stand in one queue for each thing they
 * wait for, the longest waiting first, and give way before a new connection is turned away, in this order: no request
 * begun; answered and only being drained; a head that does not end; a reply that is not taken; a body that does not
 * end. A running request never gives way. A connection whose client has proved who it is (http_prefer) comes after
 * all others.
 *
 * Memory: what a connection holds beyond 8 KiB counts against one sum, options.memory_max. Above it the heads and
 * unread replies that have counted longest give way; when none of these is left, a body that counts is turned away
 * with 503. Ordinary requests fit into that and are not affected.
 *
 * Left out: how a connection gets into its queue and into the sum (http_conn_state.c); limits by address; the
 * kernel's memory, which SO_SNDBUF bounds (http_server.c). */
#include <malloc.h>
#include <sys/socket.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server_internal.h"

#define TRIES_MAX 8                  /* idle connections whose next request has arrived, and that are passed over */
#define TRIM_BYTES ((size_t)8 << 20) /* when so much less is in use than before, memory is given back to the system */

/* ---- too many connections ---- */

static bool has_input(struct http_conn *conn)
{
    uv_os_fd_t fd;
    char byte;
    return uv_fileno((uv_handle_t *)&conn->tcp, &fd) == 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static bool may_go(const struct http_conn *conn, int64_t now_ms)
{
    const struct http_server_options *options = &conn->server->options;
    if (conn->wait == HTTP_WAIT_HEAD)
        return now_ms >= conn->deadline_ms - options->header_timeout_ms + options->young_ms;
    if (conn->wait == HTTP_WAIT_BODY)
        return now_ms >= conn->deadline_ms - options->body_timeout_ms + options->young_ms;
    return true;
}

static struct http_conn *longest(const struct http_conn_queue *queue, bool is_preferred)
{
    struct http_conn *conn = TAILQ_FIRST(queue);
    /* guard: who has a cookie gives way last */
    while (conn && conn->is_preferred != is_preferred)
        conn = TAILQ_NEXT(conn, waiting);
    return conn;
}

static struct http_conn *first_to_go(struct http_server *server, bool is_preferred)
{
    struct http_conn_queue *idle = &server->waiting[HTTP_WAIT_REQUEST];
    struct http_conn *conn;
    for (int i = 0; i < TRIES_MAX && (conn = longest(idle, is_preferred)) != NULL; i++) {
        /* guard: an idle connection whose request has arrived is passed over */
        if (!has_input(conn))
            return conn;
        TAILQ_REMOVE(idle, conn, waiting);
        TAILQ_INSERT_TAIL(idle, conn, waiting);
    }
    int64_t now_ms = clock_mono_ms();
    for (int wait = HTTP_WAIT_END; wait < HTTP_WAIT_NONE; wait++) {
        conn = longest(&server->waiting[wait], is_preferred);
        if (conn && may_go(conn, now_ms))
            return conn;
    }
    return server->options.young_ms == 0 && !is_preferred ? longest(idle, false) : NULL; /* unread, of this iteration */
}

void http_prefer(struct http_request *request)
{
    struct http_slot *slot = container_of(request, struct http_slot, request);
    if (!slot->conn)
        return;
    slot->conn->is_preferred = true;
    slot->conn->server->has_preferred = true;
}

bool http_pressure_close_one(struct http_server *server)
{
    struct http_conn *conn = first_to_go(server, false);
    if (!conn && server->has_preferred)
        conn = first_to_go(server, true);
    if (!conn)
        return false;
    server->counts.gave_way++;
    if (conn->wait == HTTP_WAIT_READER)
        http_conn_reset(conn);
    else
        http_conn_close(conn);
    return true;
}

/* ---- too much memory ---- */

bool http_pressure_fits(struct http_server *server, uint64_t bytes)
{
    size_t most = server->options.memory_max;
    while (bytes > most || server->counted > most - bytes) {
        struct http_conn *conn = TAILQ_FIRST(&server->large);
        if (!conn)
            return false;
        server->counts.memory++;
        if (conn->wait == HTTP_WAIT_HEAD)
            http_conn_turn_away(conn);
        else
            http_conn_reset(conn);
    }
    return true;
}

void http_pressure_relieve(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    if (server->counted <= server->options.memory_max || http_pressure_fits(server, 0))
        return;
    if (conn->state != HTTP_CONN_BODY || conn->counted == 0)
        return;
    /* guard: bodies beyond the memory are refused */
    server->counts.memory++;
    http_conn_turn_away(conn);
}

/* free(3) does not return most of what a flood took: it lies in pieces between what is still in use. */
void http_pressure_sweep(struct http_server *server)
{
    if (server->most_memory < TRIM_BYTES || server->most_memory - TRIM_BYTES < server->memory)
        return;
    server->most_memory = server->memory;
    /* guard: memory goes back to the system after a flood */
    (void)malloc_trim(0);
}
