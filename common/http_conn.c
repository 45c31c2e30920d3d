/* One connection of the HTTP server: what is read, what is answered, and when it ends.
 *
 * One request at a time. What the client sends behind a running request is kept in the tail, up to one read's worth;
 * then reading stops, and TCP tells the client to wait. Replies to requests that came in one read leave in one
 * write. While a reply waits for a slow reader nothing more is read into requests, so the output of a connection is
 * bounded by one read's worth of replies.
 *
 * Invariants: handlers are called from the loop only, never from within http_reply(), so pipelined requests don't
 * recurse; at most one connection is gathering; after http_conn_close() a connection does nothing but wait for its
 * close callback, and only that frees it.
 * Left out: what the bytes mean (http_parse.c), how a reply looks (http_reply.c), whom to accept (http_server.c). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/http_conn.h"

#define SPARE_MAX 256                      /* exchanges kept for the next requests */
#define GATHER_MAX ((size_t)64 * 1024)     /* replies of one turn that are sent together */
#define KEEP_CAPACITY ((size_t)256 * 1024) /* of the shared output buffers */
#define NO_DEADLINE INT64_MAX

struct pending_write {
    uv_write_t request;
    struct http_conn *conn;
    size_t length;
    char bytes[];
};

static uv_stream_t *stream_of(struct http_conn *conn)
{
    return (uv_stream_t *)&conn->tcp;
}

static int64_t after_ms(int64_t duration_ms)
{
    return clock_mono_ms() + duration_ms;
}

/* Replies carry card numbers and input carries tokens: neither stays in memory longer than it is needed. */
static void forget(struct buf *buf, size_t keep_capacity)
{
    if (buf->bytes)
        explicit_bzero(buf->bytes, buf->length);
    buf_reset(buf);
    if (buf->capacity > keep_capacity)
        buf_done(buf);
}

/* ---- its end ---- */

static void release_exchange(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    struct http_exchange *exchange = conn->exchange;
    conn->exchange = NULL;
    if (!exchange)
        return;
    if (server->spare_count >= SPARE_MAX) {
        http_exchange_free(exchange);
        return;
    }
    http_exchange_forget(exchange);
    exchange->next_spare = server->spare;
    server->spare = exchange;
    server->spare_count++;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http_conn *conn = container_of(handle, struct http_conn, tcp);
    struct http_server *server = conn->server;
    struct http_exchange *exchange = conn->exchange;
    if (conn->is_ready)
        TAILQ_REMOVE(&server->ready, conn, ready);
    forget(&conn->tail, 0);
    if (exchange && exchange->is_handed_over) {
        /* From here on it belongs to the handler alone; its reply will free it, even after the server is gone. */
        conn->exchange = NULL;
        exchange->conn = NULL;
        if (exchange->request.on_gone)
            exchange->request.on_gone(&exchange->request);
    } else {
        release_exchange(conn);
    }
    http_server_forget(server, conn);
}

void http_conn_close(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_CLOSED)
        return;
    conn->state = HTTP_CONN_CLOSED;
    uv_close((uv_handle_t *)&conn->tcp, on_handle_closed);
}

static void close_with_reset(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_CLOSED)
        return;
    if (uv_tcp_close_reset(&conn->tcp, on_handle_closed) == 0)
        conn->state = HTTP_CONN_CLOSED;
    else
        http_conn_close(conn);
}

/* Closing a socket with unread input resets the connection, and a reset can overtake the answer (RFC 9112 9.6). So:
 * say that no more will come, read and drop for a moment, then close. */
static void linger(struct http_conn *conn)
{
    uv_os_fd_t fd;
    if (conn->client_is_done || uv_fileno((uv_handle_t *)&conn->tcp, &fd) != 0 || shutdown(fd, SHUT_WR) != 0) {
        http_conn_close(conn);
        return;
    }
    conn->state = HTTP_CONN_LINGER;
    conn->deadline_ms = after_ms(HTTP_LINGER_MS);
    forget(&conn->tail, 0);
}

/* ---- what comes next ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf);
static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buf);

static void regulate_reading(struct http_conn *conn)
{
    bool is_wanted = !conn->client_is_done && conn->tail.length < HTTP_READ_SIZE;
    if (is_wanted == conn->is_reading)
        return;
    conn->is_reading = is_wanted;
    if (!is_wanted)
        uv_read_stop(stream_of(conn));
    else if (uv_read_start(stream_of(conn), on_alloc, on_read) != 0)
        http_conn_close(conn);
}

static void make_ready(struct http_conn *conn);

/* Called after every event of a connection: decides what it waits for now. */
static void settle(struct http_conn *conn)
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
        regulate_reading(conn);
}

/* ---- output ---- */

static void on_written(uv_write_t *request, int status)
{
    struct pending_write *write = container_of(request, struct pending_write, request);
    struct http_conn *conn = write->conn;
    explicit_bzero(write->bytes, write->length);
    free(write);
    conn->writes--;
    if (status < 0)
        http_conn_close(conn);
    if (conn->state == HTTP_CONN_IDLE && conn->writes == 0)
        conn->deadline_ms = after_ms(conn->server->options.idle_timeout_ms);
    settle(conn);
}

static bool write_later(struct http_conn *conn, const char *bytes, size_t length)
{
    struct pending_write *write = malloc(sizeof(*write) + length);
    if (!write)
        return false;
    write->conn = conn;
    write->length = length;
    memcpy(write->bytes, bytes, length);
    uv_buf_t piece = uv_buf_init(write->bytes, (unsigned)length);
    if (uv_write(&write->request, stream_of(conn), &piece, 1, on_written) != 0) {
        explicit_bzero(write->bytes, length);
        free(write);
        return false;
    }
    if (conn->writes++ == 0)
        conn->write_deadline_ms = after_ms(conn->server->options.idle_timeout_ms);
    return true;
}

/* Sends what it can at once and keeps a copy of the rest. */
static void flush(struct http_conn *conn, struct buf *out)
{
    if (conn->state != HTTP_CONN_CLOSED && out->length > 0) {
        uv_buf_t whole = uv_buf_init(out->bytes, (unsigned)out->length);
        int sent = uv_try_write(stream_of(conn), &whole, 1);
        if (sent == UV_EAGAIN)
            sent = 0;
        if (sent < 0 ||
            ((size_t)sent < out->length && !write_later(conn, out->bytes + sent, out->length - (size_t)sent)))
            http_conn_close(conn);
    }
    forget(out, KEEP_CAPACITY);
}

static struct buf *output_of(struct http_conn *conn)
{
    return conn->server->gathering == conn ? &conn->server->gathered : &conn->server->scratch;
}

/* The answer to the current request, if any, is in the output; `is_built` is false when there was no memory for it. */
static void finish(struct http_conn *conn, bool is_built, bool is_last)
{
    struct http_server *server = conn->server;
    release_exchange(conn);
    conn->state = HTTP_CONN_IDLE;
    conn->is_over = is_last;
    if (!is_built)
        http_conn_close(conn);
    if (server->gathering == conn)
        return; /* work() does the rest, once for all replies of its turn */
    conn->deadline_ms = after_ms(server->options.idle_timeout_ms);
    flush(conn, &server->scratch);
    settle(conn);
}

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

/* Answers what no handler will see, and ends the connection: after a framing error nobody knows where the next
 * request begins. */
static void refuse(struct http_conn *conn, int status, const char *detail)
{
    struct http_server *server = conn->server;
    struct http_reply reply = {.status = status};
    if (server->options.on_refused)
        server->options.on_refused(server->options.context, status, detail, &reply);
    if (conn->state == HTTP_CONN_CLOSED)
        return;
    if (status == 503)
        add_retry_after(&reply);
    struct http_reply_style style = {.date = &server->date,
                                     .server_name = server->server_name,
                                     .no_body = conn->exchange && conn->exchange->request.method == HTTP_HEAD,
                                     .is_last = true};
    finish(conn, http_reply_build(output_of(conn), &reply, &style), true);
}

/* ---- replies ---- */

/* The connection that waits for this reply; NULL when none does any more, and then the request is gone too. */
static struct http_conn *conn_of(struct http_request *request)
{
    struct http_exchange *exchange = container_of(request, struct http_exchange, request);
    struct http_conn *conn = exchange->conn;
    if (!conn) {
        http_exchange_free(exchange);
        return NULL;
    }
    assert(conn->exchange == exchange && exchange->is_handed_over);
    exchange->is_handed_over = false;
    if (conn->state == HTTP_CONN_CLOSED) {
        release_exchange(conn);
        return NULL;
    }
    assert(conn->state == HTTP_CONN_RUNNING);
    return conn;
}

void http_reply(struct http_request *request, const struct http_reply *reply)
{
    struct http_conn *conn = conn_of(request);
    if (!conn)
        return;
    const struct http_exchange *exchange = conn->exchange;
    bool is_last = reply->close || !exchange->keep_alive || conn->server->is_draining;
    struct http_reply_style style = {.date = &conn->server->date,
                                     .server_name = conn->server->server_name,
                                     .no_body = request->method == HTTP_HEAD,
                                     .is_last = is_last,
                                     .say_keep_alive = exchange->is_1_0};
    finish(conn, http_reply_build(output_of(conn), reply, &style), is_last);
}

void http_reply_raw(struct http_request *request, const char *bytes, size_t length, bool close)
{
    struct http_conn *conn = conn_of(request);
    if (!conn)
        return;
    bool is_last = close || !conn->exchange->keep_alive || conn->server->is_draining;
    finish(conn, buf_put(output_of(conn), bytes, length), is_last);
}

void http_reply_part(struct http_request *request, const char *bytes, size_t length)
{
    struct http_conn *conn = container_of(request, struct http_exchange, request)->conn;
    if (!conn || conn->state != HTTP_CONN_RUNNING)
        return;
    struct buf *out = output_of(conn);
    if (!buf_put(out, bytes, length))
        http_conn_close(conn);
    flush(conn, out);
}

void http_reply_reset(struct http_request *request)
{
    struct http_conn *conn = conn_of(request);
    if (!conn)
        return;
    release_exchange(conn);
    flush(conn, output_of(conn));
    close_with_reset(conn);
}

/* ---- input ---- */

static bool begin_exchange(struct http_conn *conn, int64_t started_us)
{
    struct http_server *server = conn->server;
    struct http_exchange *exchange = server->spare;
    if (exchange) {
        server->spare = exchange->next_spare;
        server->spare_count--;
    } else {
        exchange = http_exchange_new(&server->options);
        if (!exchange)
            return false;
    }
    http_exchange_begin(exchange, started_us);
    exchange->conn = conn;
    conn->exchange = exchange;
    conn->state = HTTP_CONN_HEAD;
    conn->deadline_ms = NO_DEADLINE;
    return true;
}

static void hand_over(struct http_conn *conn)
{
    conn->state = HTTP_CONN_RUNNING;
    conn->deadline_ms = NO_DEADLINE;
    conn->exchange->is_handed_over = true;
    conn->server->options.on_request(conn->server->options.context, &conn->exchange->request);
}

static void expect_body(struct http_conn *conn)
{
    conn->state = HTTP_CONN_BODY;
    conn->deadline_ms = after_ms(conn->server->options.body_timeout_ms);
    if (conn->exchange->wants_continue && !buf_put_text(&conn->server->gathered, "HTTP/1.1 100 Continue\r\n\r\n"))
        http_conn_close(conn);
}

/* Whether bytes may be made into requests now. */
static bool takes_input(const struct http_conn *conn)
{
    bool is_between = conn->state == HTTP_CONN_IDLE || conn->state == HTTP_CONN_HEAD || conn->state == HTTP_CONN_BODY;
    return is_between && conn->writes == 0 && !conn->is_over;
}

/* Makes requests of the bytes, one after the other, for as long as they are answered at once. Returns how many bytes
 * were used. */
static size_t work(struct http_conn *conn, const char *bytes, size_t length, int64_t read_us)
{
    struct http_server *server = conn->server;
    size_t used = 0;
    server->gathering = conn;
    while (used < length && takes_input(conn)) {
        if (!conn->exchange && !begin_exchange(conn, read_us)) {
            http_conn_close(conn);
            break;
        }
        size_t taken = 0;
        enum http_progress progress = http_exchange_read(conn->exchange, bytes + used, length - used, &taken);
        used += taken;
        switch (progress) {
        case HTTP_MORE:
            if (conn->deadline_ms == NO_DEADLINE)
                conn->deadline_ms = after_ms(server->options.header_timeout_ms);
            break;
        case HTTP_HEAD_DONE:
            expect_body(conn);
            break;
        case HTTP_COMPLETE:
            hand_over(conn);
            break;
        case HTTP_REFUSED:
            refuse(conn, conn->exchange->refusal.status, conn->exchange->refusal.detail);
            break;
        case HTTP_BROKEN:
            http_conn_close(conn);
            break;
        }
        if (server->gathered.length > GATHER_MAX)
            flush(conn, &server->gathered);
    }
    if (conn->state == HTTP_CONN_IDLE)
        conn->deadline_ms = after_ms(server->options.idle_timeout_ms);
    server->gathering = NULL;
    flush(conn, &server->gathered);
    return used;
}

static void keep_for_later(struct http_conn *conn, const char *bytes, size_t length, int64_t read_us)
{
    if (length == 0 || conn->is_over || conn->state == HTTP_CONN_CLOSED)
        return;
    if (conn->tail.length == 0)
        conn->tail_us = read_us;
    if (!buf_put(&conn->tail, bytes, length))
        http_conn_close(conn);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    (void)suggested;
    struct http_conn *conn = container_of(handle, struct http_conn, tcp);
    /* Never more than fits into the tail: regulate_reading() stops before there is no room. */
    *ret_buf = uv_buf_init(conn->server->read_bytes, (unsigned)(HTTP_READ_SIZE - conn->tail.length));
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buf)
{
    struct http_conn *conn = container_of(stream, struct http_conn, tcp);
    if (length == 0)
        return;
    if (length < 0) {
        /* A client may end its side and still wait for the answers to what it sent. */
        conn->client_is_done = true;
        bool is_gone = conn->state == HTTP_CONN_RUNNING && conn->exchange->request.gone_at_end;
        if (length != UV_EOF || conn->state == HTTP_CONN_LINGER || is_gone)
            http_conn_close(conn);
    } else if (conn->state == HTTP_CONN_LINGER) {
        conn->lingered += (size_t)length;
        if (conn->lingered > HTTP_LINGER_BYTES)
            http_conn_close(conn);
    } else {
        int64_t now_us = clock_mono_us();
        size_t used = 0;
        if (conn->tail.length == 0)
            used = work(conn, buf->base, (size_t)length, now_us);
        keep_for_later(conn, buf->base + used, (size_t)length - used, now_us);
    }
    settle(conn);
}

static void make_ready(struct http_conn *conn)
{
    if (conn->is_ready)
        return;
    conn->is_ready = true;
    TAILQ_INSERT_TAIL(&conn->server->ready, conn, ready);
    http_server_wake(conn->server);
}

void http_conn_run_ready(struct http_server *server)
{
    struct http_conn_queue ready = TAILQ_HEAD_INITIALIZER(ready);
    TAILQ_CONCAT(&ready, &server->ready, ready);
    struct http_conn *conn;
    while ((conn = TAILQ_FIRST(&ready)) != NULL) {
        TAILQ_REMOVE(&ready, conn, ready);
        conn->is_ready = false;
        if (!takes_input(conn))
            continue;
        size_t used = work(conn, conn->tail.bytes, conn->tail.length, conn->tail_us);
        if (used == conn->tail.length)
            forget(&conn->tail, HTTP_READ_SIZE / 4);
        else
            buf_consume(&conn->tail, used);
        settle(conn);
    }
}

/* ---- its beginning, and time ---- */

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
    conn->deadline_ms = after_ms(server->options.idle_timeout_ms);
    buf_init(&conn->tail, HTTP_READ_SIZE);
    LIST_INSERT_HEAD(&server->conns, conn, all);
    server->connections++;
    server->surplus += is_surplus;
    if (uv_tcp_open(&conn->tcp, fd) != 0) {
        close(fd);
        http_conn_close(conn);
    } else if (is_surplus) {
        refuse(conn, 503, "too many connections");
    } else {
        settle(conn);
    }
}

void http_conn_expire(struct http_conn *conn, int64_t now_ms)
{
    if (conn->writes > 0 && now_ms >= conn->write_deadline_ms) {
        http_conn_close(conn);
        return;
    }
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
        if (http_exchange_is_begun(conn->exchange))
            refuse(conn, 408, "the request did not arrive in time");
        else
            http_conn_close(conn);
        break;
    case HTTP_CONN_RUNNING:
    case HTTP_CONN_CLOSED:
        break;
    }
}

void http_conn_drain(struct http_conn *conn)
{
    bool is_idle = conn->state == HTTP_CONN_IDLE && conn->tail.length == 0 && takes_input(conn);
    if (!is_idle || conn->server->gathering == conn)
        return;
    uv_os_fd_t fd;
    char byte;
    if (uv_fileno((uv_handle_t *)&conn->tcp, &fd) == 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
        conn->deadline_ms = after_ms(conn->server->options.header_timeout_ms); /* a request is here: answer it */
    else
        http_conn_close(conn);
}
