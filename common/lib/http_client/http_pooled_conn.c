/* See http_pooled_conn.h. */
#include "common/lib/http_client/http_pooled_conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_client/http_tunnel.h"
#include "common/lib/http_client/http_url_origin.h"

/* ---- its lists ---- */

void http_pooled_conn_add_idle(struct http_pooled_conn *conn)
{
    conn->idle_ms = clock_mono_ms();
    LIST_INSERT_HEAD(&conn->origin->idle, conn, entry);
    conn->origin->idle_count++;
    uv_unref((uv_handle_t *)&conn->poll);
}

void http_pooled_conn_remove_idle(struct http_pooled_conn *conn)
{
    LIST_REMOVE(conn, entry);
    conn->origin->idle_count--;
    uv_ref((uv_handle_t *)&conn->poll);
}

/* ---- from its making to its end ---- */

static void on_conn_closed(uv_handle_t *handle)
{
    struct http_pooled_conn *conn = container_of((uv_poll_t *)handle, struct http_pooled_conn, poll);
    struct http_pool *pool = conn->origin->pool;
    free(conn);
    pool->conns_open--;
    if (pool->is_closing)
        closing_part_closed(&pool->closing);
}

void http_pooled_conn_drop(struct http_pooled_conn *conn)
{
    if (conn->is_shaking)
        LIST_REMOVE(conn, entry);
    else
        conn->origin->open_count--;
    http_tunnel_free(conn->tunnel);
    /* guard: what was not written is wiped */
    buf_wipe(&conn->unsent);
    buf_done(&conn->unsent);
    /* First: the handle must leave epoll before the number of its descriptor is used again. */
    uv_close((uv_handle_t *)&conn->poll, on_conn_closed);
    http_stream_close(&conn->stream, !conn->is_writing);
}

static bool watch(struct http_pooled_conn *conn, int events)
{
    return uv_poll_start(&conn->poll, events, conn->on_poll) == 0;
}

struct http_pooled_conn *http_pooled_conn_new(struct http_pool_origin *origin, int fd, int64_t deadline_ms,
                                              uv_poll_cb on_poll)
{
    struct http_pooled_conn *conn = calloc(1, sizeof(*conn));
    if (!conn || uv_poll_init(origin->pool->uv, &conn->poll, fd) != 0) {
        free(conn);
        close(fd);
        return NULL;
    }
    conn->origin = origin;
    conn->deadline_ms = deadline_ms;
    conn->on_poll = on_poll;
    buf_init(&conn->unsent, HTTP_REQUEST_MAX);
    origin->pool->conns_open++;
    const char *authority = origin->origin->authority;
    if (!http_stream_open(&conn->stream, fd, authority ? NULL : origin->origin->tls,
                          HTTP_CALL_BYTES(origin->pool->answer_max))) {
        uv_close((uv_handle_t *)&conn->poll, on_conn_closed);
        return NULL;
    }
    conn->is_shaking = true;
    LIST_INSERT_HEAD(&origin->shaking, conn, entry);
    if ((authority && !(conn->tunnel = http_tunnel_new(authority))) || !watch(conn, UV_READABLE)) {
        http_pooled_conn_drop(conn);
        return NULL;
    }
    return conn;
}

/* Through the proxy, if there is one, then with the peer. */
static enum http_stream_shaking shake(struct http_pooled_conn *conn, char ret_why[HTTP_TLS_WHY_SIZE])
{
    if (conn->tunnel) {
        enum http_stream_shaking shaking =
            http_tunnel_shake(conn->tunnel, &conn->stream, conn->origin->pool->input, HTTP_INPUT_SIZE, ret_why);
        if (shaking != HTTP_STREAM_SHAKEN)
            return shaking;
        http_tunnel_free(conn->tunnel);
        conn->tunnel = NULL;
        if (!http_stream_secure(&conn->stream, conn->origin->origin->tls)) {
            snprintf(ret_why, HTTP_TLS_WHY_SIZE, "out of memory for a connection");
            return HTTP_STREAM_REFUSED;
        }
    }
    return http_stream_shake(&conn->stream, ret_why);
}

enum http_stream_shaking http_pooled_conn_shake(struct http_pooled_conn *conn, char ret_why[HTTP_TLS_WHY_SIZE])
{
    enum http_stream_shaking shaking = shake(conn, ret_why);
    if (shaking == HTTP_STREAM_SHAKEN) {
        LIST_REMOVE(conn, entry);
        conn->is_shaking = false;
        conn->handshake = http_stream_handshake(&conn->stream);
        conn->origin->open_count++;
    }
    if (shaking != HTTP_STREAM_REFUSED && (conn->origin->origin->tls || conn->origin->origin->authority))
        (void)watch(conn, shaking == HTTP_STREAM_WRITES ? UV_WRITABLE : UV_READABLE); /* else its time ends it */
    return shaking;
}

/* ---- writing ---- */

static ssize_t write_some(struct http_pooled_conn *conn, const char *bytes, size_t length)
{
    bool had_sent = conn->stream.has_sent;
    ssize_t count = http_stream_write(&conn->stream, bytes, length);
    if (conn->stream.has_sent && !had_sent)
        http_call_leaves(conn->call);
    return count;
}

bool http_pooled_conn_write_first(struct http_pooled_conn *conn, const struct buf *request)
{
    ssize_t count = write_some(conn, request->bytes, request->length);
    if (count < 0 || (size_t)count == request->length)
        return count >= 0;
    conn->is_writing = true;
    return buf_put(&conn->unsent, request->bytes + count, request->length - (size_t)count) &&
           watch(conn, UV_READABLE | UV_WRITABLE);
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
    conn->is_writing = false;
    return watch(conn, UV_READABLE);
}
