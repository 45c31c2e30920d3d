/* The end of a connection after its last reply.
 *
 * Closing a socket with unread input resets the connection, and a reset can overtake the reply on its way (RFC 9112
 * 9.6). So our side is shut first, and what the client still sends is read and dropped: a proxy may send a large body
 * to its end before it reads the refusal, and would take a reset for a failure of this server.
 *
 * Invariant: draining is bounded in time, in bytes and in bytes between two sweeps. How many connections drain at once
 * is bounded in http_pressure.c. */
#include <sys/socket.h>

#include "common/base/clock.h"
#include "common/http_server/http_server_internal.h"

int64_t http_conn_linger_deadline(const struct http_conn *conn)
{
    int64_t quiet_ms = clock_mono_ms() + HTTP_LINGER_QUIET_MS;
    return quiet_ms < conn->linger_until_ms ? quiet_ms : conn->linger_until_ms;
}

void http_conn_linger(struct http_conn *conn)
{
    uv_os_fd_t fd;
    if (conn->client_is_done || uv_fileno((uv_handle_t *)&conn->tcp, &fd) != 0 || shutdown(fd, SHUT_WR) != 0) {
        http_conn_close(conn);
        return;
    }
    conn->linger_until_ms = clock_mono_ms() + (conn->server->is_draining ? HTTP_LINGER_DRAIN_MS : HTTP_LINGER_MS);
    http_conn_set_state(conn, HTTP_CONN_LINGER);
    http_wipe(&conn->tail, 0);
}

void http_conn_linger_took(struct http_conn *conn, size_t length)
{
    conn->lingered += length;
    conn->lingered_now += length;
    conn->server->lingered_now += length;
    http_conn_set_state(conn, HTTP_CONN_LINGER);
    if (conn->lingered > HTTP_LINGER_BYTES)
        http_conn_close(conn);
}

bool http_conn_linger_is_paused(const struct http_conn *conn)
{
    return conn->lingered_now >= HTTP_LINGER_RATE || conn->server->lingered_now >= HTTP_LINGER_RATE_ALL;
}

void http_conn_linger_resume(struct http_conn *conn)
{
    if (conn->lingered_now == 0)
        return;
    conn->lingered_now = 0;
    http_conn_adjust_reading(conn);
}

void http_conn_linger_hurry(struct http_conn *conn)
{
    conn->linger_until_ms = clock_mono_ms() + HTTP_LINGER_DRAIN_MS;
    http_conn_set_state(conn, HTTP_CONN_LINGER);
}
