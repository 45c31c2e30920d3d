/* An HTTP/1.1 and 1.0 server on the loop: listener, limits, timeouts, drain. One connection is http_conn.c's;
 * http_parse.c is the only room
 * that knows llhttp (strict build). SIGPIPE is set to be ignored if nobody handles it, since libuv's writes would raise
 * it.
 *
 * One request at a time per connection (pipelined ones wait unread, in order); a request is answered by http_reply(),
 * at once or later.
 * Refused with 400 and closed before anybody sees them: Content-Length with Transfer-Encoding, two Content-Lengths,
 * bare LF or CR, obs-fold,
 * no Host or two, Transfer-Encoding on 1.0, and whatever llhttp refuses (RFC 9112). 413, 414, 431 for sizes (CONTRACT
 * 2). */
#ifndef ISSUING_HTTP_SERVER_H
#define ISSUING_HTTP_SERVER_H

#include <uv.h>

#include "common/base.h"
#include "common/buf.h"
#include "common/err.h"

struct http_server;

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OTHER };

#define HTTP_HEADERS_MAX 64

/* Valid from on_request until http_reply() for it was called. */
struct http_request {
    enum http_method method;
    struct slice target; /* as sent, origin form only ("/..."); anything else was refused with 400 */
    struct slice path;   /* target up to '?', not decoded */
    struct slice query;  /* after '?', may be empty */
    struct slice body;
    struct {
        struct slice name, value;
    } headers[HTTP_HEADERS_MAX];
    int header_count;
    int64_t started_us; /* monotonic, when its first byte was read */
    void *user;         /* the handler's own; NULL at first */
    /* Set by a handler that answers later and wants to know that the client is gone; the request still must be replied
     * to (the reply goes nowhere). */
    void (*on_gone)(struct http_request *request);
    bool
        gone_at_end; /* set by a handler: the end of the client's input counts as gone too (a closed socket looks like a half-closed one) */
};

/* The first header of that name (case-insensitive), or {NULL,0}; ret_count (may be NULL) says how many there are. */
struct slice http_header(const struct http_request *request, const char *name, int *ret_count);

#define HTTP_REPLY_HEADERS_MAX 10

struct http_reply {
    int status;
    const char *content_type; /* NULL = no body type */
    const char *body;         /* copied before http_reply returns; for HEAD only its length is told */
    size_t body_length;
    struct {
        const char *name;
        const char *value;
    } headers[HTTP_REPLY_HEADERS_MAX]; /* name NULL ends */
    bool close;                        /* close the connection after it */
};

void http_reply(struct http_request *request, const struct http_reply *reply);
/* For fault simulation (sandbox) only: closes the connection with a reset, or after writing these raw bytes. Ends the
 * request like http_reply. */
void http_reply_reset(struct http_request *request);
void http_reply_raw(struct http_request *request, const char *bytes, size_t length, bool close);
/* Likewise: sends the beginning of what a later http_reply_raw() ends. */
void http_reply_part(struct http_request *request, const char *bytes, size_t length);

struct http_server_options {
    const char *listen;  /* "127.0.0.1:8080", "[::1]:8080", "host:port", "*:8080"; port 0 = any free one */
    int max_connections; /* beyond it a connection is accepted and closed at once with 503 */
    size_t body_max;     /* 64 KiB by CONTRACT 2 */
    size_t target_max;   /* 4 KiB */
    size_t header_max;   /* whole header block, 16 KiB */
    int64_t header_timeout_ms, body_timeout_ms, idle_timeout_ms; /* 5 s, 10 s, 60 s */
    const char *server_name;                                     /* Server header; NULL = none */
    void (*on_request)(void *context, struct http_request *request);
    /* A request refused below the router: lets the program choose the error body and count it. NULL = an empty body.
     * Fills ret_reply (status is set);
     * what it points to must stay valid until it returns control to the loop. */
    void (*on_refused)(void *context, int status, const char *detail, struct http_reply *ret_reply);
    void *context;
};

/* Fills in the contract's limits; the caller sets listen, on_request, on_refused, context. */
void http_server_defaults(struct http_server_options *ret_options);
must_check bool http_server_open(uv_loop_t *loop, const struct http_server_options *options,
                                 struct http_server **ret_server, struct err *err);
int http_server_port(const struct http_server *server);
int http_server_connections(const struct http_server *server);
/* Stops accepting and closes idle connections; running requests go on and get "Connection: close". */
void http_server_drain(struct http_server *server);
bool http_server_is_drained(const struct http_server *server); /* no connection left */
/* Closes everything, also running requests, whose later http_reply() is then lawful and goes nowhere; then on_closed
 * from the loop. */
void http_server_close(struct http_server *server, void (*on_closed)(void *context), void *context);

#endif
