/* See http_stream.h. OpenSSL reads and writes through a BIO of ours, so the return values of recv() and send() are seen
 * here over both schemes. */
#include "common/lib/http_client/http_stream.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

static bool is_again(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* ---- the socket ---- */

static ssize_t receive(struct http_stream *stream, char *bytes, size_t size)
{
    /* guard: a connection gets a share of each iteration */
    size_t most = stream->left < stream->iteration_left ? stream->left : stream->iteration_left;
    if (most == 0) {
        errno = stream->left == 0 ? EMSGSIZE : EAGAIN;
        return -1;
    }
    ssize_t count = recv(stream->fd, bytes, size < most ? size : most, 0);
    if (count > 0) {
        /* guard: a call takes its bound of bytes and no more */
        stream->left -= (size_t)count;
        stream->iteration_left -= (size_t)count;
    }
    return count;
}

static ssize_t transmit(struct http_stream *stream, const char *bytes, size_t length)
{
    ssize_t count = send(stream->fd, bytes, length, MSG_NOSIGNAL);
    /* guard: one byte that left is a request that may be known */
    stream->has_sent |= count > 0 && stream->is_request;
    return count;
}

/* ---- OpenSSL's view of it ---- */

static int on_read(BIO *bio, char *bytes, int size)
{
    ssize_t count = receive(BIO_get_data(bio), bytes, (size_t)size);
    BIO_clear_retry_flags(bio);
    if (count < 0 && is_again())
        BIO_set_retry_read(bio);
    return (int)count;
}

static int on_write(BIO *bio, const char *bytes, int length)
{
    ssize_t count = transmit(BIO_get_data(bio), bytes, (size_t)length);
    BIO_clear_retry_flags(bio);
    if (count < 0 && is_again())
        BIO_set_retry_write(bio);
    return (int)count;
}

static long on_control(BIO *bio, int command, long value, void *pointer)
{
    (void)bio, (void)value, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *method; /* for the life of the process */

static void make_method(void)
{
    method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "stream");
    if (method && (BIO_meth_set_read(method, on_read) != 1 || BIO_meth_set_write(method, on_write) != 1 ||
                   BIO_meth_set_ctrl(method, on_control) != 1)) {
        BIO_meth_free(method);
        method = NULL;
    }
}

static bool open_tls(struct http_stream *stream, struct http_tls *tls)
{
    static uv_once_t once = UV_ONCE_INIT;
    uv_once(&once, make_method);
    BIO *bio = method ? BIO_new(method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    stream->ssl = http_tls_new(tls, bio);
    return stream->ssl != NULL;
}

static const char *why_broken(const struct http_stream *stream, const char *otherwise)
{
    const char *reason = stream->ssl ? ERR_reason_error_string(ERR_peek_last_error()) : NULL;
    if (stream->left == 0)
        return "the peer sends without end";
    return reason ? reason : otherwise;
}

static ssize_t break_stream(struct http_stream *stream, const char *otherwise)
{
    stream->is_broken = true;
    stream->why = why_broken(stream, otherwise);
    if (stream->ssl)
        ERR_clear_error();
    return HTTP_STREAM_BROKEN;
}

/* ---- from its making to its end ---- */

bool http_stream_open(struct http_stream *stream, int fd, struct http_tls *tls, size_t bytes_max)
{
    *stream = (struct http_stream){.fd = fd, .left = bytes_max, .iteration_left = HTTP_STREAM_ITERATION_BYTES};
    if (http_stream_secure(stream, tls))
        return true;
    close(fd);
    return false;
}

bool http_stream_secure(struct http_stream *stream, struct http_tls *tls)
{
    stream->tls = tls;
    return !tls || open_tls(stream, tls);
}

enum http_stream_shaking http_stream_shake(struct http_stream *stream, char ret_why[HTTP_TLS_WHY_SIZE])
{
    if (!stream->ssl)
        return HTTP_STREAM_SHAKEN;
    ERR_clear_error();
    int done = SSL_do_handshake(stream->ssl);
    switch (done == 1 ? SSL_ERROR_NONE : SSL_get_error(stream->ssl, done)) {
    case SSL_ERROR_NONE:
        http_tls_note(stream->tls, stream->ssl);
        return HTTP_STREAM_SHAKEN;
    case SSL_ERROR_WANT_READ:
        return HTTP_STREAM_READS;
    case SSL_ERROR_WANT_WRITE:
        return HTTP_STREAM_WRITES;
    }
    stream->is_broken = true;
    http_tls_failed(stream->tls, stream->ssl, ret_why);
    return HTTP_STREAM_REFUSED;
}

enum http_handshake http_stream_handshake(const struct http_stream *stream)
{
    if (!stream->ssl)
        return HTTP_HANDSHAKE_NONE;
    return SSL_session_reused(stream->ssl) ? HTTP_HANDSHAKE_RESUMED : HTTP_HANDSHAKE_FULL;
}

void http_stream_begin(struct http_stream *stream, size_t bytes_max)
{
    stream->left = bytes_max;
    stream->has_sent = false;
}

void http_stream_begin_iteration(struct http_stream *stream)
{
    stream->iteration_left = HTTP_STREAM_ITERATION_BYTES;
}

/*
 * Before 3.2, OpenSSL makes a buffer to write with for a ticket as well, which SSL_MODE_RELEASE_BUFFERS does not
 * release. Since 3.2 that mode releases all, and SSL_free_buffers() crashes: SSL_OP_CLEANSE_PLAINTEXT overwrites the
 * buffer that the mode has released already (tls_release_read_buffer() of OpenSSL 3.5). */
static void release_buffers(SSL *ssl)
{
    if (OPENSSL_version_major() == 3 && OPENSSL_version_minor() < 2)
        (void)SSL_free_buffers(ssl);
}

ssize_t http_stream_read(struct http_stream *stream, char *bytes, size_t size)
{
    if (!stream->ssl) {
        ssize_t count = receive(stream, bytes, size);
        if (count >= 0)
            return count;
        return is_again() ? HTTP_STREAM_AGAIN : break_stream(stream, "the connection was reset");
    }
    ERR_clear_error();
    int count = SSL_read(stream->ssl, bytes, (int)size);
    if (count > 0)
        return count;
    switch (SSL_get_error(stream->ssl, count)) {
    case SSL_ERROR_WANT_READ:
        release_buffers(stream->ssl);
        return HTTP_STREAM_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    }
    return break_stream(stream, "the connection was reset");
}

ssize_t http_stream_write(struct http_stream *stream, const char *bytes, size_t length)
{
    if (stream->ssl) /* else OpenSSL has no part in it */
        ERR_clear_error();
    stream->is_request = true;
    ssize_t count = stream->ssl ? SSL_write(stream->ssl, bytes, (int)length) : transmit(stream, bytes, length);
    stream->is_request = false;
    if (count > 0)
        return count;
    if (stream->ssl ? SSL_get_error(stream->ssl, (int)count) == SSL_ERROR_WANT_WRITE : count == 0 || is_again())
        return 0;
    return break_stream(stream, "the connection broke");
}

bool http_stream_has_more(const struct http_stream *stream)
{
    return stream->ssl && SSL_has_pending(stream->ssl);
}

bool http_stream_is_silent(struct http_stream *stream, bool looks)
{
    struct pollfd poller = {.fd = stream->fd, .events = POLLIN};
    char byte;
    /* guard: what arrived on a pooled connection before the request is not an answer to it */
    if (!http_stream_has_more(stream) && (!looks || poll(&poller, 1, 0) == 0))
        return true;
    if (!stream->ssl)
        return false;
    http_stream_begin_iteration(stream);
    /* guard: what TLS says for itself leaves a connection usable */
    return http_stream_read(stream, &byte, 1) == HTTP_STREAM_AGAIN && stream->iteration_left > 0;
}

void http_stream_close(struct http_stream *stream, bool is_in_order)
{
    if (stream->ssl && is_in_order && !stream->is_broken && SSL_is_init_finished(stream->ssl))
        (void)SSL_shutdown(stream->ssl);
    else if (stream->ssl) /* else OpenSSL would not take up its session again */
        SSL_set_shutdown(stream->ssl, SSL_SENT_SHUTDOWN);
    if (stream->ssl) {
        SSL_free(stream->ssl);
        ERR_clear_error();
    }
    close(stream->fd);
}
