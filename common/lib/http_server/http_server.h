/* An HTTP/1.1 and 1.0 server on the loop: listener, limits, timeouts, drain. README.md in this folder describes it.
 *
 * One request at a time on each connection (pipelined requests wait unread, in order); a request is answered by
 * http_reply(), at once or later. Requests are refused with 400 and the connection closed before a handler sees them
 * for: Content-Length with Transfer-Encoding, two Content-Lengths, bare LF or CR, obs-fold, no Host or two,
 * Transfer-Encoding in HTTP/1.0, a target that names another host than Host, and whatever llhttp refuses (RFC 9112);
 * with 413, 414 or 431 for sizes.
 *
 * Opening a server sets SIGPIPE to be ignored unless the program handles it, since libuv's writes would raise it. */
#ifndef ISSUING_HTTP_SERVER_H
#define ISSUING_HTTP_SERVER_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"
#include "common/lib/base/ip_address.h"

struct http_server;

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PATCH, HTTP_OTHER };

#define HTTP_HEADERS_MAX 64
#define HTTP_NOTE_SIZE 144

/* Valid from on_request (or on_head) until http_reply() was called for it. */
struct http_request {
    enum http_method method;
    struct slice target; /* "/...": of a target in absolute form, what is behind its authority */
    struct slice path;   /* target up to '?', not decoded */
    struct slice query;  /* after '?', may be empty */
    struct slice body;
    struct {
        struct slice name, value;
    } headers[HTTP_HEADERS_MAX];
    int header_count;
    int64_t started_us;       /* monotonic, when its first byte was read */
    struct ip_address client; /* the client that it belongs to: see http_origin.h */
    void *user;               /* the handler's own; NULL at first */
    /* Set by a handler that answers later and wants to be notified when the client is gone. The request must still be
     * replied to (the reply goes nowhere). */
    void (*on_gone)(struct http_request *request);
    /* Set by a handler: the end of the client's input counts as gone too (a closed socket looks like a half-closed
     * one). */
    bool gone_at_end;
    bool drops_body;           /* set by on_head: the body is read, and nothing of it is stored */
    char note[HTTP_NOTE_SIZE]; /* the handler's own too, not cleared: results of on_head for on_request */
};

/* Its client has proved who it is: from now on its connection gives way only when no other connection can. */
void http_prefer(struct http_request *request);
/* For a handler that has read the body and answers later: gives back the memory of the body, which is then empty. */
void http_drop_body(struct http_request *request);

/* The first header of that name (case-insensitive), or {NULL,0}; ret_count (may be NULL) is the number of such
 * headers. */
struct slice http_header(const struct http_request *request, const char *name, int *ret_count);

#define HTTP_REPLY_HEADERS_MAX 10

struct http_reply {
    int status;
    const char *content_type; /* NULL = no body type */
    const char *body;         /* copied before http_reply returns; for HEAD only its length is sent */
    size_t body_length;
    struct {
        const char *name;
        const char *value;
    } headers[HTTP_REPLY_HEADERS_MAX]; /* name NULL ends */
    bool close;                        /* close the connection after it */
    bool is_static; /* the body stays where it is for as long as the process lives: it is not copied */
};

void http_reply(struct http_request *request, const struct http_reply *reply);
/* For fault simulation (sandbox) only: closes the connection with a reset, or after writing these raw bytes. Each ends
 * the request like http_reply(). */
void http_reply_reset(struct http_request *request);
void http_reply_raw(struct http_request *request, const char *bytes, size_t length, bool close);
/* Likewise: sends the beginning of a reply; a later http_reply_raw() ends it. */
void http_reply_part(struct http_request *request, const char *bytes, size_t length);

/* Counters of what the server did when connections, memory or descriptors were short. */
struct http_server_counts {
    uint64_t gave_way;      /* connections closed to make room for a new one */
    uint64_t memory;        /* closed or turned away because memory_max was reached */
    uint64_t unread;        /* closed because their client did not take its answer */
    uint64_t accept_pauses; /* times that accepting paused for lack of descriptors or memory */
    uint64_t replies;       /* requests answered, refused ones too */
};

struct http_server_options {
    const char *listen; /* "127.0.0.1:8080", "[::1]:8080", "host:port", "*:8080"; port 0 = any free one */
    /* A listening, non-blocking socket of TCP or of the file system, which somebody else may hold as well
     * (listen_fds.h), used instead of `listen`; the server closes it, also when it cannot be opened. -1 = none. */
    int listen_fd;
    int max_connections; /* beyond it the one that is idle longest is closed; if none is idle, the new one, with 503 */
    int max_per_address; /* connections of one client address, 429 beyond it; 0 = no limit */
    const struct ip_networks *trusted_proxies; /* may be NULL. This and the next two must outlive the server */
    bool proxy_protocol;                       /* a trusted proxy begins each connection with a PROXY header */
    const char *client_address_header; /* in which a trusted proxy names the client of each request; NULL = none */
    /* Notifies that an address was refused a connection or a request. May be NULL. */
    void (*on_address_full)(void *context, const struct ip_address *address);
    /* Whether an accepted connection may stay; else it is closed without a reply. NULL = true. */
    bool (*admits)(void *context, int fd);
    int64_t young_ms;  /* when connections run short, a younger head or body does not give way: 1 s */
    int surplus_max;   /* connections open only to be refused; any more are closed without a reply */
    size_t body_max;   /* 64 KiB */
    size_t target_max; /* 4 KiB */
    size_t header_max; /* whole header block, 16 KiB */
    int64_t header_timeout_ms, body_timeout_ms, idle_timeout_ms; /* 5 s, 10 s, 60 s */
    bool tells_idle_timeout;  /* by a Keep-Alive field in each reply that leaves its connection open */
    int64_t write_timeout_ms; /* a client must take 4 KiB of its reply in this time: 10 s */
    size_t memory_max;        /* of all connections, beyond 8 KiB each: 64 MiB (http_pressure.c) */
    const char *server_name;  /* Server header; NULL = none */
    /* The head of a request was accepted and its body is to come; no byte of the body was read, and "100 Continue" was
     * not sent. false: the handler has called http_reply(), and on_request will not be called. true: on_request follows
     * with the body, or never, when the request ends before; so results may be stored in `user` and `note` only. NULL =
     * true. */
    bool (*on_head)(void *context, struct http_request *request);
    void (*on_request)(void *context, struct http_request *request);
    /* A request was refused by the server itself: the program chooses the error body and counts it. NULL = an empty
     * body. Fills ret_reply (status is set); what it points to must stay valid until control returns to the loop.
     * request: whose head was read to its end; NULL = none. */
    void (*on_refused)(void *context, const struct http_request *request, int status, const char *detail,
                       struct http_reply *ret_reply);
    /* Accepting pauses for a moment; `error` is the errno of accept(2). May be NULL. */
    void (*on_accept_pauses)(void *context, int error);
    void *context;
};

/* The default limits; the caller sets listen, on_request, on_refused, context. */
void http_server_defaults(struct http_server_options *ret_options);
must_check bool http_server_open(uv_loop_t *loop, const struct http_server_options *options,
                                 struct http_server **ret_server, struct err *err);
int http_server_port(const struct http_server *server);
/* The address that it listens on, as a client may use it: "127.0.0.1:8080", "[::1]:8080". */
#define HTTP_SERVER_ADDRESS_SIZE 64
void http_server_address(const struct http_server *server, char ret_text[HTTP_SERVER_ADDRESS_SIZE]);
int http_server_connections(const struct http_server *server);
struct http_server_counts http_server_counts(const struct http_server *server);
/* Stops accepting and closes idle connections; running requests continue and get "Connection: close". Connections that
 * the kernel holds for us are accepted first; those of a socket that was passed stay in its backlog for the process
 * that comes next. */
void http_server_drain(struct http_server *server);
bool http_server_is_drained(const struct http_server *server); /* no connection left */
/* Closes everything; on_closed is called from the loop. A handler that holds a request must still call http_reply(),
 * also after that; the reply goes nowhere. */
void http_server_close(struct http_server *server, void (*on_closed)(void *context), void *context);

#endif
