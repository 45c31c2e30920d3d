/* Bytes of a connection into requests, and requests to the handler.
 *
 * One request at a time. What the client sends behind a running request is stored in the tail, up to one read's worth;
 * then reading stops, and TCP makes the client wait. Replies to requests that came in one read leave in one write.
 *
 * A request with a body is shown to on_head first. One that is answered there keeps its connection: the rest of its
 * body is read and dropped.
 *
 * Invariants: handlers are called from the loop only, never from within http_reply(); at most one connection is
 * gathering.
 * Left out: what the bytes mean (http_parse.c). */
#include <assert.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server_internal.h"

#define GATHER_MAX ((size_t)64 * 1024)         /* replies to one read that are sent together */
#define TAIL_KEEP ((size_t)HTTP_READ_SIZE / 4) /* capacity of an empty tail */

/* ---- one request ---- */

static bool begin_slot(struct http_conn *conn, int64_t started_us)
{
    struct http_server *server = conn->server;
    struct http_slot *slot = server->free_slots;
    if (slot) {
        server->free_slots = slot->next_free;
        server->free_slot_count--;
    } else {
        slot = http_slot_new(&server->options);
        if (!slot)
            return false;
    }
    http_conn_leave_queue(conn);
    http_slot_begin(slot, started_us);
    slot->conn = conn;
    conn->slot = slot;
    http_conn_set_state(conn, HTTP_CONN_HEAD);
    return true;
}

/* The head is complete: the request counts for the client that it belongs to. May be called again for the same
 * request. */
static bool begin_request(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    return http_conn_accept_origin(
        conn, http_origin_begin_request(&conn->origin, &conn->slot->request, &server->options, server->caps));
}

static void complete(struct http_conn *conn)
{
    /* guard: a request that was answered at its head is not handled */
    if (conn->slot->is_answered) {
        http_conn_release_slot(conn);
        http_conn_set_state(conn, HTTP_CONN_IDLE);
        return;
    }
    if (!begin_request(conn))
        return;
    http_conn_set_state(conn, HTTP_CONN_RUNNING);
    conn->slot->is_handed_over = true;
    conn->server->options.on_request(conn->server->options.context, &conn->slot->request);
}

/* Whether the handler wants the body; if not, the request is answered. */
static bool passes_head(struct http_conn *conn)
{
    const struct http_server_options *options = &conn->server->options;
    struct http_slot *slot = conn->slot;
    /* guard: the head is judged before the body is read */
    if (!options->on_head)
        return true;
    http_conn_set_state(conn, HTTP_CONN_RUNNING);
    slot->is_handed_over = slot->is_at_head = true;
    if (!options->on_head(options->context, &slot->request))
        return false;
    assert(conn->slot == slot && slot->is_handed_over);
    slot->is_handed_over = slot->is_at_head = false;
    if (conn->state == HTTP_CONN_CLOSED) /* the handler has closed the server */
        return false;
    http_conn_set_state(conn, HTTP_CONN_BODY);
    return true;
}

static void expect_body(struct http_conn *conn)
{
    /* guard: a body on its way holds a permit */
    if (!begin_request(conn))
        return;
    struct http_server *server = conn->server;
    http_conn_set_state(conn, HTTP_CONN_BODY);
    http_conn_place(conn); /* as one that may not give way, whatever it has sent so far */
    if (!passes_head(conn))
        return;
    struct http_slot *slot = conn->slot;
    if (!slot->request.drops_body && !http_pressure_fits(server, http_slot_announced(slot)) &&
        conn->state == HTTP_CONN_BODY) {
        server->counts.memory++;
        http_conn_turn_away(conn);
    } else if (slot->wants_continue && !buf_put_text(&server->gathered, "HTTP/1.1 100 Continue\r\n\r\n")) {
        http_conn_close(conn);
    }
}

/* A body whose rest cannot be read ends the connection, because a request is answered once. */
static void refuse_input(struct http_conn *conn)
{
    struct http_slot *slot = conn->slot;
    if (!slot->is_answered) {
        http_conn_refuse(conn, slot->refusal.status, slot->refusal.detail);
        return;
    }
    http_conn_release_slot(conn);
    http_conn_set_state(conn, HTTP_CONN_IDLE);
    conn->is_over = true;
}

/* ---- pipelined requests ---- */

/* Reads into the current request and acts on what it is now. Returns how many bytes were used. */
static size_t read_into_slot(struct http_conn *conn, const char *bytes, size_t length, int64_t read_us)
{
    size_t used = 0;
    if (!conn->slot && !begin_slot(conn, read_us)) {
        http_conn_close(conn);
        return 0;
    }
    switch (http_slot_read(conn->slot, bytes, length, &used)) {
    case HTTP_MORE:
        break;
    case HTTP_HEAD_DONE:
        expect_body(conn);
        break;
    case HTTP_COMPLETE:
        complete(conn);
        break;
    case HTTP_REFUSED:
        refuse_input(conn);
        break;
    case HTTP_BROKEN:
        http_conn_close(conn);
        break;
    }
    return used;
}

/* Makes requests of the bytes, one after the other, for as long as they are answered at once. Returns how many bytes
 * were used. */
static size_t work(struct http_conn *conn, const char *bytes, size_t length, int64_t read_us)
{
    struct http_server *server = conn->server;
    size_t used = 0;
    if (conn->origin.awaited) {
        if (!http_conn_accept_origin(
                conn, http_origin_read(&conn->origin, bytes, length, &used, &server->options, server->caps)))
            return used;
        http_conn_set_state(conn, HTTP_CONN_IDLE); /* waits for a request from now on */
    }
    server->gathering = conn;
    while (used < length && http_conn_takes_input(conn)) {
        used += read_into_slot(conn, bytes + used, length - used, read_us);
        if (server->gathered.length > GATHER_MAX)
            http_conn_flush(conn, &server->gathered, HTTP_NO_BYTES);
    }
    server->gathering = NULL;
    http_conn_flush(conn, &server->gathered, HTTP_NO_BYTES);
    return used;
}

/* Works through the tail of each connection in server->ready. */
static void on_ready(uv_idle_t *idle)
{
    struct http_server *server = container_of(idle, struct http_server, run_ready);
    struct http_conn_queue ready = TAILQ_HEAD_INITIALIZER(ready);
    TAILQ_CONCAT(&ready, &server->ready, ready);
    struct http_conn *conn;
    while ((conn = TAILQ_FIRST(&ready)) != NULL) {
        TAILQ_REMOVE(&ready, conn, ready);
        conn->is_ready = false;
        if (!http_conn_takes_input(conn))
            continue;
        size_t used = work(conn, conn->tail.bytes, conn->tail.length, conn->tail_us);
        if (used == conn->tail.length)
            http_wipe(&conn->tail, TAIL_KEEP);
        else
            buf_consume(&conn->tail, used);
        http_conn_update(conn);
        http_pressure_relieve(conn);
    }
    if (TAILQ_EMPTY(&server->ready) && !server->is_closing)
        uv_idle_stop(idle);
}

/* ---- the socket ---- */

static void store_tail(struct http_conn *conn, const char *bytes, size_t length, int64_t read_us)
{
    if (length == 0 || conn->is_over || conn->state == HTTP_CONN_CLOSED)
        return;
    if (conn->tail.length == 0)
        conn->tail_us = read_us;
    if (!buf_put(&conn->tail, bytes, length))
        http_conn_close(conn);
}

/* A client may end its side and still wait for the replies to what it sent. */
static void take_end(struct http_conn *conn, bool is_error)
{
    conn->client_is_done = true;
    bool is_gone = conn->state == HTTP_CONN_RUNNING && conn->slot->request.gone_at_end;
    if (is_error || conn->state == HTTP_CONN_LINGER || is_gone)
        http_conn_close(conn);
}

static void take_bytes(struct http_conn *conn, const char *bytes, size_t length)
{
    int64_t now_us = clock_mono_us();
    size_t used = 0;
    if (conn->tail.length == 0)
        used = work(conn, bytes, length, now_us);
    store_tail(conn, bytes + used, length - used, now_us);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buf)
{
    struct http_conn *conn = container_of(stream, struct http_conn, tcp);
    if (length == 0)
        return;
    if (length < 0)
        take_end(conn, length != UV_EOF);
    else if (conn->state == HTTP_CONN_LINGER)
        http_conn_linger_took(conn, (size_t)length);
    else
        take_bytes(conn, buf->base, (size_t)length);
    /* guard: what was read from a client is overwritten */
    if (length > 0)
        explicit_bzero(buf->base, (size_t)length);
    http_conn_update(conn);
    http_pressure_relieve(conn);
}

const struct http_reader http_conn_reader = {.on_read = on_read, .on_ready = on_ready};
