/* One connection of the HTTP server: its states and their deadlines, its beginning and its end.
 *
 * Invariants: only http_conn_set_state() changes the state; after http_conn_close() a connection does nothing but wait
 * for its close callback, and only that frees it.
 * Left out: reading (http_conn_read.c), replies (http_conn_write.c), which connections to accept (http_server.c). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server_internal.h"

#define FREE_SLOTS_MAX 256 /* slots stored for the next requests */
#define NO_DEADLINE INT64_MAX

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
    return NO_DEADLINE;
}

void http_conn_set_state(struct http_conn *conn, enum http_conn_state state)
{
    assert(is_move(conn->state, state));
    conn->state = state;
    conn->had_request |= state == HTTP_CONN_HEAD;
    conn->deadline_ms = deadline_of(conn, state);
}

/* ---- draining after the last reply ----
 *
 * Closing a socket with unread input resets the connection, and a reset can overtake the reply on its way (RFC 9112
 * 9.6). So our side is shut first, and what the client still sends is read and dropped: a proxy may send a large body
 * to its end before it reads the refusal, and would take a reset for a failure of this server.
 *
 * Draining is bounded in time, in bytes and in bytes between two sweeps. How many connections drain at once is bounded
 * in http_pressure.c. */

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

bool http_conn_linger_is_paused(const struct http_conn *conn)
{
    return conn->lingered_now >= HTTP_LINGER_RATE || conn->server->lingered_now >= HTTP_LINGER_RATE_ALL;
}

/* The sweep: draining goes on. */
static void resume_linger(struct http_conn *conn)
{
    if (conn->lingered_now == 0)
        return;
    conn->lingered_now = 0;
    http_conn_adjust_reading(conn);
}

/* The server drains: the time left is short. */
static void hurry_linger(struct http_conn *conn)
{
    conn->linger_until_ms = clock_mono_ms() + HTTP_LINGER_DRAIN_MS;
    http_conn_set_state(conn, HTTP_CONN_LINGER);
}

/* ---- after each event, and in time ---- */

void http_conn_update(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_CLOSED)
        return;
    if (conn->state != HTTP_CONN_LINGER && conn->state != HTTP_CONN_RUNNING && conn->writes == 0) {
        bool is_idle = conn->state == HTTP_CONN_IDLE && conn->tail.length == 0;
        if (conn->is_over || (is_idle && conn->server->is_draining))
            linger(conn);
        else if (conn->tail.length > 0)
            http_conn_make_ready(conn);
        else if (conn->client_is_done)
            http_conn_close(conn);
    }
    if (conn->state != HTTP_CONN_CLOSED)
        http_conn_adjust_reading(conn);
    http_pressure_place(conn);
}

void http_conn_expire(struct http_conn *conn, int64_t now_ms)
{
    if (http_conn_is_unread(conn, now_ms)) {
        conn->server->counts.unread++;
        http_conn_reset(conn);
        return;
    }
    if (conn->state == HTTP_CONN_LINGER)
        resume_linger(conn);
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
    conn->deadline_ms = NO_DEADLINE;
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
    http_pressure_place(conn);
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

void http_conn_drain(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_LINGER)
        hurry_linger(conn);
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
