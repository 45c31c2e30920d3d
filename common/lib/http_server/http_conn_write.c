/* What goes to the client: replies of handlers, refusals by the server itself, and their bytes. What the kernel does
 * not take at once is copied and sent later. A client that does not take its reply is found out here: it must take
 * PROGRESS_MIN bytes within write_timeout_ms, also of what the kernel holds.
 *
 * Invariants: no handler is called from here, so pipelined requests do not recurse. While a write waits,
 * http_conn_takes_input() is false, so the output of a connection is bounded by the replies to one read.
 * Left out: what the bytes of a reply are (http_reply.c). */
#include <assert.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server_internal.h"

#define OUTPUT_KEEP ((size_t)256 * 1024) /* capacity of the shared output buffers between replies */
#define PROGRESS_MIN 4096                /* bytes of a reply that a reader must take within write_timeout_ms */

/* A write that waits for the client. */
struct pending_write {
    uv_write_t request;
    struct http_conn *conn;
    size_t length;
    char bytes[];
};

static int64_t write_deadline_ms(const struct http_conn *conn)
{
    return clock_mono_ms() + conn->server->options.write_timeout_ms;
}

static void on_written(uv_write_t *request, int status)
{
    struct pending_write *write = container_of(request, struct pending_write, request);
    struct http_conn *conn = write->conn;
    explicit_bzero(write->bytes, write->length);
    conn->pending -= write->length;
    free(write);
    conn->writes--;
    if (status < 0)
        http_conn_close(conn);
    if (conn->state == HTTP_CONN_IDLE && conn->writes == 0)
        http_conn_set_state(conn, HTTP_CONN_IDLE); /* waits for a request from now on */
    http_conn_update(conn);
}

/* Bytes that the client has not acknowledged, ours and the kernel's. */
static size_t unsent_of(struct http_conn *conn)
{
    uv_os_fd_t fd;
    int in_kernel = 0;
    if (uv_fileno((uv_handle_t *)&conn->tcp, &fd) != 0 || ioctl(fd, SIOCOUTQ, &in_kernel) != 0)
        in_kernel = 0;
    return uv_stream_get_write_queue_size(http_conn_stream(conn)) + (size_t)in_kernel;
}

static void watch_reader(struct http_conn *conn)
{
    conn->unsent = unsent_of(conn);
    conn->write_deadline_ms = write_deadline_ms(conn);
}

/* A large reply that the kernel took as a whole must be gone in time, too. */
static void watch_kernel(struct http_conn *conn, size_t length)
{
    if (!conn->is_watched) {
        conn->unsent = 0;
        conn->write_deadline_ms = write_deadline_ms(conn);
    }
    conn->is_watched = true;
    conn->unsent += length;
}

/* Whether the reader has taken enough since the last look; then it gets the same time again. */
static bool has_progress(struct http_conn *conn)
{
    size_t before = conn->unsent;
    watch_reader(conn);
    if (conn->unsent == 0)
        conn->is_watched = false;
    /* guard: an unread answer is given up */
    /* guard: a slow reader that goes on is not cut off */
    return conn->unsent == 0 || conn->unsent + PROGRESS_MIN <= before;
}

bool http_conn_is_unread(struct http_conn *conn, int64_t now_ms)
{
    bool has_reader = conn->writes > 0 || conn->is_watched;
    return has_reader && now_ms >= conn->write_deadline_ms && !has_progress(conn);
}

/* Copies `bytes`; `fixed` stays where it is. */
static bool write_later(struct http_conn *conn, struct slice bytes, struct slice fixed)
{
    struct pending_write *write = malloc(sizeof(*write) + bytes.length);
    if (!write)
        return false;
    write->conn = conn;
    write->length = bytes.length;
    if (bytes.length > 0)
        memcpy(write->bytes, bytes.bytes, bytes.length);
    uv_buf_t pieces[2] = {uv_buf_init(write->bytes, (unsigned)bytes.length),
                          uv_buf_init((char *)fixed.bytes, (unsigned)fixed.length)}; /* libuv only reads it */
    bool has_bytes = bytes.length > 0, has_fixed = fixed.length > 0;
    if (uv_write(&write->request, http_conn_stream(conn), has_bytes ? pieces : pieces + 1,
                 (unsigned)has_bytes + has_fixed, on_written) != 0) {
        explicit_bzero(write->bytes, bytes.length);
        free(write);
        return false;
    }
    conn->pending += bytes.length;
    if (conn->writes++ == 0)
        watch_reader(conn);
    return true;
}

void http_conn_flush(struct http_conn *conn, struct buf *out, struct slice fixed)
{
    if (conn->state != HTTP_CONN_CLOSED && out->length + fixed.length > 0) {
        uv_buf_t whole[2] = {uv_buf_init(out->bytes, (unsigned)out->length),
                             uv_buf_init((char *)fixed.bytes, (unsigned)fixed.length)};
        int result = uv_try_write(http_conn_stream(conn), whole, fixed.length > 0 ? 2 : 1);
        size_t sent = result > 0 ? (size_t)result : 0, of_out = sent < out->length ? sent : out->length;
        struct slice rest = {out->bytes + of_out, out->length - of_out};
        struct slice rest_fixed = {fixed.bytes + (sent - of_out), fixed.length - (sent - of_out)};
        if ((result < 0 && result != UV_EAGAIN) ||
            (rest.length + rest_fixed.length > 0 && !write_later(conn, rest, rest_fixed)))
            http_conn_close(conn);
        if (out->length + fixed.length >= PROGRESS_MIN && conn->writes == 0)
            watch_kernel(conn, out->length + fixed.length);
    }
    http_wipe(out, OUTPUT_KEEP);
}

/* Where to put the bytes of a reply; http_conn_flush() is to follow. */
static struct buf *output_of(struct http_conn *conn)
{
    return conn->server->gathering == conn ? &conn->server->gathered : &conn->server->scratch;
}

/* ---- replies ---- */

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
    bool has_head = conn->slot && conn->slot->request.path.bytes && !conn->slot->is_answered;
    if (server->options.on_refused)
        server->options.on_refused(server->options.context, has_head ? &conn->slot->request : NULL, status, detail,
                                   &reply);
    if (conn->state == HTTP_CONN_CLOSED)
        return;
    if (status == 503 || status == 429)
        add_retry_after(&reply);
    struct http_reply_style style = {.date = &server->date,
                                     .server_name = server->server_name,
                                     .no_body = conn->slot && conn->slot->request.method == HTTP_HEAD,
                                     .is_last = true};
    finish(conn, http_reply_build(output_of(conn), &reply, &style), HTTP_NO_BYTES, true);
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
    struct http_reply_style style = {
        .date = &conn->server->date,
        .server_name = conn->server->server_name,
        .no_body = is_head || reply->is_static,
        .is_last = is_last,
        .say_keep_alive = slot->is_1_0,
        .idle_ms = conn->server->options.tells_idle_timeout ? conn->server->options.idle_timeout_ms : 0};
    struct slice fixed = HTTP_NO_BYTES;
    if (reply->is_static && !is_head)
        fixed = (struct slice){reply->body, reply->body_length};
    finish(conn, http_reply_build(output_of(conn), reply, &style), fixed, is_last);
}

void http_reply_raw(struct http_request *request, const char *bytes, size_t length, bool close)
{
    struct http_conn *conn = conn_of(request);
    if (!conn)
        return;
    bool is_last = close || is_last_reply(conn);
    finish(conn, buf_put(output_of(conn), bytes, length), HTTP_NO_BYTES, is_last);
}

void http_reply_part(struct http_request *request, const char *bytes, size_t length)
{
    struct http_conn *conn = container_of(request, struct http_slot, request)->conn;
    if (!conn || conn->state != HTTP_CONN_RUNNING)
        return;
    struct buf *out = output_of(conn);
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
    http_conn_flush(conn, output_of(conn), HTTP_NO_BYTES);
    http_conn_reset(conn);
}
