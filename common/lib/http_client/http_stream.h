/* The bytes of one connection, in clear text or through TLS: what is sent, what arrives, and how much of it. Never
 * blocks. Private to the HTTP client.
 *
 * Budget. A peer may send what is not a part of an answer and never reaches a reader: handshake messages, empty
 * records, key updates, session tickets. While such records come fast enough, OpenSSL reads on. So the bytes are
 * counted where they are read off the socket. In one iteration of the loop a connection gets
 * HTTP_STREAM_ITERATION_BYTES: then reading ends as if nothing more had come yet, and the loop sees to everything else
 * first. For one call, or its handshake, or while it is idle, it gets what http_stream_begin() allows: then the
 * connection is broken. */
#ifndef ISSUING_HTTP_STREAM_H
#define ISSUING_HTTP_STREAM_H

#include <sys/types.h>

#include "common/lib/base/base.h"
#include "common/lib/http_client/http_call.h"
#include "common/lib/http_client/http_tls.h"

#define HTTP_STREAM_ITERATION_BYTES (64 * 1024)

/* Instead of a number of bytes. */
#define HTTP_STREAM_AGAIN (-1)
#define HTTP_STREAM_BROKEN (-2)

struct http_stream {
    int fd;
    struct ssl_st *ssl; /* NULL = in clear text */
    struct http_tls *tls;
    size_t left;           /* bytes that the peer may send until http_stream_begin() */
    size_t iteration_left; /* bytes, in this iteration */
    bool is_request;       /* what is being written, not a message of TLS */
    bool has_sent;         /* a byte of the request left, or of a record with it */
    bool is_broken;
    const char *why; /* it broke; static text */
};

enum http_stream_shaking { HTTP_STREAM_SHAKEN, HTTP_STREAM_READS, HTTP_STREAM_WRITES, HTTP_STREAM_REFUSED };

/* Takes the descriptor over, also when it fails. tls NULL = in clear text. false: out of memory. */
must_check bool http_stream_open(struct http_stream *stream, int fd, struct http_tls *tls, size_t bytes_max);
/* The same for one in clear text on which TLS begins now, unless tls is NULL. */
must_check bool http_stream_secure(struct http_stream *stream, struct http_tls *tls);
/* The next part of the handshake, when the socket can be read, or written. */
enum http_stream_shaking http_stream_shake(struct http_stream *stream, char ret_why[HTTP_TLS_WHY_SIZE]);
/* Of a stream whose handshake is over. */
enum http_handshake http_stream_handshake(const struct http_stream *stream);
/* A request follows: nothing of it has left yet. Sets how many bytes its peer may send. */
void http_stream_begin(struct http_stream *stream, size_t bytes_max);
/* An iteration of the loop begins. */
void http_stream_begin_iteration(struct http_stream *stream);
/* Returns the number of bytes, 0 = the peer has ended the stream in order, or HTTP_STREAM_*. */
ssize_t http_stream_read(struct http_stream *stream, char *bytes, size_t size);
/* Returns how many of the bytes need not be written again, 0 = all have to be, when the socket can be written; or
 * HTTP_STREAM_BROKEN. */
ssize_t http_stream_write(struct http_stream *stream, const char *bytes, size_t length);
/* What arrived has not been read to its end, although the socket may have nothing more. */
bool http_stream_has_more(const struct http_stream *stream);
/* The peer has said nothing behind what was read. `looks`: asks the kernel too, since the loop may not have noticed it
 * yet. */
bool http_stream_is_silent(struct http_stream *stream, bool looks);
/* is_in_order: tells the peer by TLS, unless the connection broke. */
void http_stream_close(struct http_stream *stream, bool is_in_order);

#endif
