/* Bytes to the client. What the kernel does not take at once is copied and sent later. A client that does not take its
 * reply is found out here: it must take PROGRESS_MIN bytes within write_timeout_ms, also of what the kernel holds.
 *
 * Invariant: while a write waits, http_conn_takes_input() is false, so the output of a connection is bounded by the
 * replies to one read. */
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/base/clock.h"
#include "common/http_server/http_server_internal.h"

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

struct buf *http_conn_output(struct http_conn *conn)
{
    return conn->server->gathering == conn ? &conn->server->gathered : &conn->server->scratch;
}
