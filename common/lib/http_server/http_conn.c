/* What happens to a connection of the HTTP server from outside: it is opened, its deadlines pass, the server drains.
 *
 * Left out: what follows from its state (http_conn_state.c), reading (http_conn_read.c), replies (http_conn_write.c),
 * which connections to accept (http_server.c). */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server_internal.h"

/* ---- in time ---- */

void http_conn_expire(struct http_conn *conn, int64_t now_ms)
{
    if (http_conn_is_unread(conn, now_ms)) {
        conn->server->counts.unread++;
        http_conn_reset(conn);
        return;
    }
    if (conn->state == HTTP_CONN_LINGER)
        http_conn_linger_resume(conn);
    if (now_ms < conn->deadline_ms)
        return;
    switch (conn->state) {
    case HTTP_CONN_IDLE:
        if (conn->writes == 0)
            http_conn_close(conn);
        break;
    case HTTP_CONN_LINGER:
        http_conn_close(conn);
        break;
    case HTTP_CONN_HEAD:
    case HTTP_CONN_BODY:
        if (http_slot_is_begun(conn->slot))
            http_conn_refuse(conn, 408, "the request did not arrive in time");
        else
            http_conn_close(conn);
        break;
    case HTTP_CONN_RUNNING:
    case HTTP_CONN_CLOSED:
        break;
    }
}

/* ---- its beginning ---- */

/* A connection above the limit of its address is refused like those above the limit of all connections, and counts as
 * one of them. A request is always answered: to the proxy that sent it, a connection that ends without a reply would
 * look like a failure of this server. */
static void refuse_address(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    if (conn->slot) {
        http_conn_refuse(conn, 429, "too many requests of this address are running");
        return;
    }
    if (server->surplus >= server->options.surplus_max) {
        http_conn_close(conn);
        return;
    }
    /* guard: those above the limit of their address are bounded */
    conn->is_surplus = true;
    server->surplus++;
    http_conn_refuse(conn, 429, "too many connections of this address");
}

bool http_conn_accept_origin(struct http_conn *conn, enum http_origin_verdict verdict)
{
    switch (verdict) {
    case HTTP_ORIGIN_FINE:
        return true;
    case HTTP_ORIGIN_AWAITED:
        return false;
    case HTTP_ORIGIN_FULL:
        refuse_address(conn);
        return false;
    case HTTP_ORIGIN_MALFORMED:
        http_conn_refuse(conn, 400, "a connection of this proxy must begin with a PROXY header of version 2");
        return false;
    case HTTP_ORIGIN_BROKEN:
        http_conn_close(conn);
        return false;
    }
    return false;
}

void http_conn_open(struct http_server *server, int fd, bool is_surplus)
{
    struct http_conn *conn = calloc(1, sizeof(*conn));
    if (!conn || uv_tcp_init(server->loop, &conn->tcp) != 0) {
        free(conn);
        close(fd);
        return;
    }
    conn->server = server;
    conn->is_surplus = is_surplus;
    conn->state = HTTP_CONN_IDLE;
    conn->deadline_ms = HTTP_NO_DEADLINE;
    conn->wait = HTTP_WAIT_NONE;
    buf_init(&conn->tail, HTTP_READ_SIZE);
    LIST_INSERT_HEAD(&server->conns, conn, all);
    server->connections++;
    server->surplus += is_surplus;
    if (uv_tcp_open(&conn->tcp, fd) != 0) {
        close(fd);
        http_conn_close(conn);
    } else if (is_surplus) {
        http_conn_refuse(conn, 503, "too many connections");
    } else if (http_conn_accept_origin(conn, http_origin_open(&conn->origin, fd, &server->options, server->caps))) {
        http_conn_set_state(conn, HTTP_CONN_IDLE);
        http_conn_update(conn);
    }
}

void http_conn_drain(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_LINGER)
        http_conn_linger_hurry(conn);
    bool is_idle = conn->state == HTTP_CONN_IDLE && conn->tail.length == 0 && http_conn_takes_input(conn);
    if (!is_idle || conn->server->gathering == conn)
        return;
    uv_os_fd_t fd;
    char byte;
    if (uv_fileno((uv_handle_t *)&conn->tcp, &fd) == 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
        http_conn_set_state(conn, HTTP_CONN_IDLE); /* a request has arrived: it is read and answered, in a short time */
        /* guard: who has just connected is answered by an api that ends */
    } else if (conn->server->options.listen_fd >= 0 && !conn->had_request) {
        /* A restart with a passed socket is not to be seen: who has just connected is about to send a request. */
        conn->deadline_ms = clock_mono_ms() + HTTP_NEW_DRAIN_MS;
    } else {
        http_conn_close(conn);
    }
}
