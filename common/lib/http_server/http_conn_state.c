/* What follows from the state of a connection: its deadline, the queue in which it waits for its client, its part of
 * the sums of memory, whether it is read from, draining after its last reply, and its end.
 *
 * Invariants: only http_conn_set_state() changes the state; after http_conn_close() a connection does nothing but
 * wait for its close callback, and only that frees it. A connection stands in at most one queue, and in `large` only
 * while it waits for a head or a reader; the sums are those of the connections when they were last placed.
 * Left out: the events that move the state (http_conn.c, http_conn_read.c, http_conn_write.c). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server_internal.h"

#define FREE_SLOTS_MAX 256            /* slots stored for the next requests */
#define FREE_BYTES ((size_t)8 * 1024) /* of memory of each connection, which do not count */
/* guard: few refused clients are drained at once */
#define LINGER_MAX 256 /* connections that are drained at once */

void http_wipe(struct buf *buf, size_t keep_capacity)
{
    if (buf->bytes)
        explicit_bzero(buf->bytes, buf->length); /* buf_consume() has overwritten what it took */
    buf_reset(buf);
    if (buf->capacity > keep_capacity)
        buf_done(buf);
}

/* ---- states ---- */

#define TO(state) (1u << (state))

static bool is_move(enum http_conn_state from, enum http_conn_state to)
{
    static const unsigned moves[] = {
        [HTTP_CONN_IDLE] = TO(HTTP_CONN_IDLE) | TO(HTTP_CONN_HEAD) | TO(HTTP_CONN_LINGER),
        [HTTP_CONN_HEAD] = TO(HTTP_CONN_BODY) | TO(HTTP_CONN_RUNNING) | TO(HTTP_CONN_IDLE),
        [HTTP_CONN_BODY] = TO(HTTP_CONN_RUNNING) | TO(HTTP_CONN_IDLE),
        [HTTP_CONN_RUNNING] = TO(HTTP_CONN_IDLE) | TO(HTTP_CONN_BODY),
        [HTTP_CONN_LINGER] = TO(HTTP_CONN_LINGER),
        [HTTP_CONN_CLOSED] = 0,
    };
    return moves[from] & TO(to) || (to == HTTP_CONN_CLOSED && from != HTTP_CONN_CLOSED);
}

/* The deadline of HTTP_CONN_LINGER as of now. */
static int64_t linger_deadline(const struct http_conn *conn)
{
    int64_t quiet_ms = clock_mono_ms() + HTTP_LINGER_QUIET_MS;
    return quiet_ms < conn->linger_until_ms ? quiet_ms : conn->linger_until_ms;
}

static int64_t deadline_of(const struct http_conn *conn, enum http_conn_state state)
{
    const struct http_server *server = conn->server;
    const struct http_server_options *options = &server->options;
    switch (state) {
    case HTTP_CONN_IDLE:
        /* guard: a PROXY header must come in time */
        if (conn->origin.awaited || server->is_draining)
            return clock_mono_ms() + options->header_timeout_ms;
        return clock_mono_ms() + options->idle_timeout_ms;
    case HTTP_CONN_HEAD:
        return clock_mono_ms() + options->header_timeout_ms;
    case HTTP_CONN_BODY:
        return clock_mono_ms() + options->body_timeout_ms;
    case HTTP_CONN_LINGER:
        return linger_deadline(conn);
    case HTTP_CONN_RUNNING:
    case HTTP_CONN_CLOSED:
        break;
    }
    return HTTP_NO_DEADLINE;
}

void http_conn_set_state(struct http_conn *conn, enum http_conn_state state)
{
    assert(is_move(conn->state, state));
    conn->state = state;
    conn->had_request |= state == HTTP_CONN_HEAD;
    conn->deadline_ms = deadline_of(conn, state);
}

/* ---- queues and sums ---- */

static enum http_wait wait_of(const struct http_conn *conn)
{
    if (conn->is_surplus) /* these have a limit of their own */
        return HTTP_WAIT_NONE;
    switch (conn->state) {
    case HTTP_CONN_IDLE:
        return conn->writes > 0 ? HTTP_WAIT_READER : conn->tail.length > 0 ? HTTP_WAIT_NONE : HTTP_WAIT_REQUEST;
    case HTTP_CONN_HEAD:
        return conn->writes > 0 ? HTTP_WAIT_READER : HTTP_WAIT_HEAD;
    case HTTP_CONN_BODY:
        return conn->writes > 0 ? HTTP_WAIT_READER : HTTP_WAIT_BODY;
    case HTTP_CONN_LINGER:
        return HTTP_WAIT_END;
    case HTTP_CONN_RUNNING:
    case HTTP_CONN_CLOSED:
        break;
    }
    return HTTP_WAIT_NONE;
}

static size_t memory_of(const struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_CLOSED)
        return 0;
    return sizeof(*conn) + conn->tail.capacity + conn->pending + (conn->slot ? http_slot_memory(conn->slot) : 0);
}

void http_conn_leave_queue(struct http_conn *conn)
{
    if (conn->wait == HTTP_WAIT_NONE)
        return;
    conn->server->lingering -= conn->wait == HTTP_WAIT_END;
    TAILQ_REMOVE(&conn->server->waiting[conn->wait], conn, waiting);
    conn->wait = HTTP_WAIT_NONE;
}

static void enter(struct http_conn *conn, enum http_wait wait)
{
    struct http_server *server = conn->server;
    conn->wait = wait;
    if (wait == HTTP_WAIT_NONE)
        return;
    TAILQ_INSERT_TAIL(&server->waiting[wait], conn, waiting);
    if (wait == HTTP_WAIT_END && ++server->lingering > LINGER_MAX)
        http_conn_close(TAILQ_FIRST(&server->waiting[HTTP_WAIT_END]));
}

static void count(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    size_t memory = memory_of(conn), counted = memory > FREE_BYTES ? memory - FREE_BYTES : 0;
    server->memory += memory - conn->memory; /* unsigned: also down */
    server->counted += counted - conn->counted;
    conn->memory = memory;
    conn->counted = counted;
    if (server->memory > server->most_memory)
        server->most_memory = server->memory;
    /* guard: unfinished heads give way when memory is short */
    /* guard: unread answers give way when memory is short */
    bool is_large = counted > 0 && (conn->wait == HTTP_WAIT_HEAD || conn->wait == HTTP_WAIT_READER);
    if (is_large && !conn->is_large)
        TAILQ_INSERT_TAIL(&server->large, conn, large);
    else if (!is_large && conn->is_large)
        TAILQ_REMOVE(&server->large, conn, large);
    conn->is_large = is_large;
}

void http_conn_place(struct http_conn *conn)
{
    enum http_wait wait = wait_of(conn);
    if (wait != conn->wait) {
        http_conn_leave_queue(conn);
        enter(conn, wait);
    }
    count(conn);
}

/* ---- reading ---- */

bool http_conn_takes_input(const struct http_conn *conn)
{
    bool is_between = conn->state == HTTP_CONN_IDLE || conn->state == HTTP_CONN_HEAD || conn->state == HTTP_CONN_BODY;
    return is_between && conn->writes == 0 && !conn->is_over;
}

/* The tail is worked through from the loop. */
static void make_ready(struct http_conn *conn)
{
    if (conn->is_ready)
        return;
    conn->is_ready = true;
    TAILQ_INSERT_TAIL(&conn->server->ready, conn, ready);
    if (!conn->server->is_closing)
        uv_idle_start(&conn->server->run_ready, conn->server->reader->on_ready);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    (void)suggested;
    struct http_conn *conn = container_of(handle, struct http_conn, tcp);
    /* Never more than fits into the tail: adjust_reading() stops before the tail is full. */
    *ret_buf = uv_buf_init(conn->server->read_bytes, (unsigned)(HTTP_READ_SIZE - conn->tail.length));
}

/* Starts or stops reading, by what the connection can take. */
static void adjust_reading(struct http_conn *conn)
{
    bool is_drained = conn->lingered_now >= HTTP_LINGER_RATE || conn->server->lingered_now >= HTTP_LINGER_RATE_ALL;
    bool is_paused = conn->state == HTTP_CONN_LINGER && is_drained; /* until the next sweep */
    bool is_wanted = !conn->client_is_done && conn->tail.length < HTTP_READ_SIZE && !is_paused;
    if (is_wanted == conn->is_reading)
        return;
    conn->is_reading = is_wanted;
    if (!is_wanted)
        uv_read_stop(http_conn_stream(conn));
    else if (uv_read_start(http_conn_stream(conn), on_alloc, conn->server->reader->on_read) != 0)
        http_conn_close(conn);
}

/* ---- draining after the last reply ----
 *
 * Closing a socket with unread input resets the connection, and a reset can overtake the reply on its way (RFC 9112
 * 9.6). So our side is shut first, and what the client still sends is read and dropped: a proxy may send a large body
 * to its end before it reads the refusal, and would take a reset for a failure of this server.
 *
 * Draining is bounded in time, in bytes, in bytes between two sweeps, and in connections at once. */

/* The last reply is sent: shuts our side and drains the input, or closes when there is nothing to wait for. */
static void linger(struct http_conn *conn)
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

void http_conn_linger_resume(struct http_conn *conn)
{
    if (conn->lingered_now == 0)
        return;
    conn->lingered_now = 0;
    adjust_reading(conn);
}

void http_conn_linger_hurry(struct http_conn *conn)
{
    conn->linger_until_ms = clock_mono_ms() + HTTP_LINGER_DRAIN_MS;
    http_conn_set_state(conn, HTTP_CONN_LINGER);
}

/* ---- after each event ---- */

void http_conn_update(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_CLOSED)
        return;
    if (conn->state != HTTP_CONN_LINGER && conn->state != HTTP_CONN_RUNNING && conn->writes == 0) {
        bool is_idle = conn->state == HTTP_CONN_IDLE && conn->tail.length == 0;
        if (conn->is_over || (is_idle && conn->server->is_draining))
            linger(conn);
        else if (conn->tail.length > 0)
            make_ready(conn);
        else if (conn->client_is_done)
            http_conn_close(conn);
    }
    if (conn->state != HTTP_CONN_CLOSED)
        adjust_reading(conn);
    http_conn_place(conn);
}

/* ---- its end ---- */

void http_conn_release_slot(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    struct http_slot *slot = conn->slot;
    conn->slot = NULL;
    /* guard: an answer gives the place of its request back */
    http_origin_end_request(&conn->origin, server->caps);
    if (!slot)
        return;
    if (server->free_slot_count >= FREE_SLOTS_MAX) {
        http_slot_free(slot);
        return;
    }
    http_slot_wipe(slot);
    slot->next_free = server->free_slots;
    server->free_slots = slot;
    server->free_slot_count++;
}

/* The last one may be what a closing server waits for. */
static void free_conn(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    LIST_REMOVE(conn, all);
    server->connections--;
    server->surplus -= conn->is_surplus;
    server->closing_count -= !conn->is_surplus;
    free(conn);
    if (server->is_closing)
        closing_part_closed(&server->closing);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http_conn *conn = container_of(handle, struct http_conn, tcp);
    struct http_server *server = conn->server;
    struct http_slot *slot = conn->slot;
    if (conn->is_ready)
        TAILQ_REMOVE(&server->ready, conn, ready);
    http_wipe(&conn->tail, 0);
    if (slot && slot->is_handed_over) {
        /* From here on it belongs to the handler alone; its reply will free it, even after the server is gone. */
        conn->slot = NULL;
        slot->conn = NULL;
        if (slot->request.on_gone)
            slot->request.on_gone(&slot->request);
    } else {
        http_conn_release_slot(conn);
    }
    /* guard: a connection gives its place back */
    http_origin_close(&conn->origin, server->caps);
    free_conn(conn);
}

static void count_closed(struct http_conn *conn)
{
    http_conn_set_state(conn, HTTP_CONN_CLOSED);
    conn->server->closing_count += !conn->is_surplus;
    http_conn_place(conn);
}

void http_conn_close(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_CLOSED)
        return;
    uv_close((uv_handle_t *)&conn->tcp, on_handle_closed);
    count_closed(conn);
}

void http_conn_reset(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_CLOSED)
        return;
    if (uv_tcp_close_reset(&conn->tcp, on_handle_closed) == 0)
        count_closed(conn);
    else
        http_conn_close(conn);
}
