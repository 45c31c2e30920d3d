/* See http_pooled_conn.h. */
#include "common/http_client/plain/http_pooled_conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"

/* ---- from its making to its end ---- */

static void on_conn_closed(uv_handle_t *handle)
{
    struct http_pooled_conn *conn = container_of((uv_poll_t *)handle, struct http_pooled_conn, poll);
    struct http_plain *plain = conn->origin->plain;
    free(conn);
    plain->conns_open--;
    if (plain->is_closing)
        closing_part_closed(&plain->closing);
}

void http_pooled_conn_drop(struct http_pooled_conn *conn)
{
    /* guard: what was not written is wiped */
    buf_wipe(&conn->unsent);
    buf_done(&conn->unsent);
    /* First: the handle must leave epoll before the number of its descriptor is used again. */
    uv_close((uv_handle_t *)&conn->poll, on_conn_closed);
    close(conn->fd);
}

struct http_pooled_conn *http_pooled_conn_new(struct http_plain_origin *origin, int fd, uv_poll_cb on_poll)
{
    struct http_pooled_conn *conn = calloc(1, sizeof(*conn));
    if (!conn || uv_poll_init(origin->plain->uv, &conn->poll, fd) != 0) {
        free(conn);
        close(fd);
        return NULL;
    }
    origin->plain->conns_open++;
    conn->fd = fd;
    conn->origin = origin;
    conn->on_poll = on_poll;
    buf_init(&conn->unsent, HTTP_REQUEST_MAX);
    if (uv_poll_start(&conn->poll, UV_READABLE, on_poll) != 0) {
        http_pooled_conn_drop(conn);
        return NULL;
    }
    return conn;
}

/* ---- the pool ---- */

void http_pooled_conn_add_idle(struct http_pooled_conn *conn)
{
    struct http_plain_origin *origin = conn->origin;
    conn->idle_ms = clock_mono_ms();
    conn->previous = NULL;
    conn->next = origin->idle;
    if (origin->idle)
        origin->idle->previous = conn;
    origin->idle = conn;
    origin->idle_count++;
    uv_unref((uv_handle_t *)&conn->poll);
}

void http_pooled_conn_remove_idle(struct http_pooled_conn *conn)
{
    struct http_plain_origin *origin = conn->origin;
    if (conn->previous)
        conn->previous->next = conn->next;
    else
        origin->idle = conn->next;
    if (conn->next)
        conn->next->previous = conn->previous;
    origin->idle_count--;
    uv_ref((uv_handle_t *)&conn->poll);
}

bool http_pooled_conn_is_silent(const struct http_pooled_conn *conn)
{
    struct pollfd poller = {.fd = conn->fd, .events = POLLIN};
    /* guard: what arrived on a pooled connection before the request is no answer to it */
    return poll(&poller, 1, 0) == 0;
}

/* ---- writing ---- */

/* Returns the number of bytes that left, -1 = the connection is broken. */
static ssize_t write_some(struct http_pooled_conn *conn, const char *bytes, size_t length)
{
    ssize_t count = send(conn->fd, bytes, length, MSG_NOSIGNAL);
    if (count < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
    /* guard: one byte that left is a request that may be known */
    if (count > 0 && !conn->has_sent)
        http_call_leaves(conn->call);
    conn->has_sent |= count > 0;
    return count;
}

static bool watch(struct http_pooled_conn *conn, bool for_writing)
{
    conn->is_writing = for_writing;
    return uv_poll_start(&conn->poll, for_writing ? UV_READABLE | UV_WRITABLE : UV_READABLE, conn->on_poll) == 0;
}

bool http_pooled_conn_write_first(struct http_pooled_conn *conn, const struct buf *request)
{
    ssize_t count = write_some(conn, request->bytes, request->length);
    if (count < 0 || (size_t)count == request->length)
        return count >= 0;
    return buf_put(&conn->unsent, request->bytes + count, request->length - (size_t)count) && watch(conn, true);
}

bool http_pooled_conn_write_more(struct http_pooled_conn *conn)
{
    ssize_t count = write_some(conn, conn->unsent.bytes, conn->unsent.length);
    if (count < 0)
        return false;
    buf_consume(&conn->unsent, (size_t)count); /* also overwrites what was sent */
    if (conn->unsent.length > 0)
        return true;
    buf_done(&conn->unsent); /* a pool of idle connections needs no memory of large bodies */
    return watch(conn, false);
}
