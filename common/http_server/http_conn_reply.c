/* Replies of handlers, refusals by the server itself, and what follows for the connection.
 *
 * Invariant: no handler is called from here, so pipelined requests do not recurse.
 * Left out: the bytes of a reply (http_reply.c), sending (http_conn_write.c). */
#include <assert.h>
#include <string.h>

#include "common/http_server/http_server_internal.h"

/* The reply to the current request, if any, is in the output, but for `fixed`, which follows; `is_built` is false when
 * there was no memory for it. */
static void finish(struct http_conn *conn, bool is_built, struct slice fixed, bool is_last)
{
    struct http_server *server = conn->server;
    server->counts.replies++;
    conn->is_over = is_last;
    if (!is_last && conn->slot && conn->slot->is_at_head) {
        http_conn_set_state(conn, HTTP_CONN_BODY);
        http_slot_drop_body(conn->slot);
    } else {
        http_conn_release_slot(conn);
        http_conn_set_state(conn, HTTP_CONN_IDLE);
    }
    if (!is_built)
        http_conn_close(conn);
    if (server->gathering == conn) {
        if (fixed.length > 0)
            http_conn_flush(conn, &server->gathered, fixed);
        return; /* work() does the rest, once for all replies to one read */
    }
    http_conn_flush(conn, &server->scratch, fixed);
    http_conn_update(conn);
}

/* ---- refusals ---- */

static void add_retry_after(struct http_reply *reply)
{
    int i = 0;
    while (i < HTTP_REPLY_HEADERS_MAX && reply->headers[i].name) {
        if (strcasecmp(reply->headers[i].name, "Retry-After") == 0)
            return;
        i++;
    }
    if (i < HTTP_REPLY_HEADERS_MAX) {
        reply->headers[i].name = "Retry-After";
        reply->headers[i].value = "1";
    }
}

void http_conn_refuse(struct http_conn *conn, int status, const char *detail)
{
    struct http_server *server = conn->server;
    struct http_reply reply = {.status = status};
    if (server->options.on_refused)
        server->options.on_refused(server->options.context, status, detail, &reply);
    if (conn->state == HTTP_CONN_CLOSED)
        return;
    if (status == 503 || status == 429)
        add_retry_after(&reply);
    struct http_reply_style style = {.date = &server->date,
                                     .server_name = server->server_name,
                                     .no_body = conn->slot && conn->slot->request.method == HTTP_HEAD,
                                     .is_last = true};
    finish(conn, http_reply_build(http_conn_output(conn), &reply, &style), HTTP_NO_BYTES, true);
}

void http_conn_turn_away(struct http_conn *conn)
{
    http_conn_refuse(conn, 503, "too much is being sent at once");
}

/* ---- replies of handlers ---- */

/* The connection that waits for this reply; NULL when none does any more, and then the request is freed. */
static struct http_conn *conn_of(struct http_request *request)
{
    struct http_slot *slot = container_of(request, struct http_slot, request);
    struct http_conn *conn = slot->conn;
    if (!conn) {
        http_slot_free(slot);
        return NULL;
    }
    assert(conn->slot == slot && slot->is_handed_over);
    slot->is_handed_over = false;
    if (conn->state == HTTP_CONN_CLOSED) {
        http_conn_release_slot(conn);
        return NULL;
    }
    assert(conn->state == HTTP_CONN_RUNNING);
    return conn;
}

/* Whether the reply to the request that the handler has is the connection's last. A client that waits for "100
 * Continue" may send the body of a request that was answered at its head, or may not: the connection cannot go on. */
static bool is_last_reply(const struct http_conn *conn)
{
    const struct http_slot *slot = conn->slot;
    return !slot->keep_alive || conn->server->is_draining || (slot->is_at_head && slot->wants_continue);
}

void http_reply(struct http_request *request, const struct http_reply *reply)
{
    struct http_conn *conn = conn_of(request);
    if (!conn)
        return;
    const struct http_slot *slot = conn->slot;
    bool is_last = reply->close || is_last_reply(conn);
    bool is_head = request->method == HTTP_HEAD;
    struct http_reply_style style = {.date = &conn->server->date,
                                     .server_name = conn->server->server_name,
                                     .no_body = is_head || reply->is_static,
                                     .is_last = is_last,
                                     .say_keep_alive = slot->is_1_0};
    struct slice fixed = HTTP_NO_BYTES;
    if (reply->is_static && !is_head)
        fixed = (struct slice){reply->body, reply->body_length};
    finish(conn, http_reply_build(http_conn_output(conn), reply, &style), fixed, is_last);
}

void http_reply_raw(struct http_request *request, const char *bytes, size_t length, bool close)
{
    struct http_conn *conn = conn_of(request);
    if (!conn)
        return;
    bool is_last = close || is_last_reply(conn);
    finish(conn, buf_put(http_conn_output(conn), bytes, length), HTTP_NO_BYTES, is_last);
}

void http_reply_part(struct http_request *request, const char *bytes, size_t length)
{
    struct http_conn *conn = container_of(request, struct http_slot, request)->conn;
    if (!conn || conn->state != HTTP_CONN_RUNNING)
        return;
    struct buf *out = http_conn_output(conn);
    if (!buf_put(out, bytes, length))
        http_conn_close(conn);
    http_conn_flush(conn, out, HTTP_NO_BYTES);
}

void http_reply_reset(struct http_request *request)
{
    struct http_conn *conn = conn_of(request);
    if (!conn)
        return;
    http_conn_release_slot(conn);
    http_conn_flush(conn, http_conn_output(conn), HTTP_NO_BYTES);
    http_conn_reset(conn);
}
