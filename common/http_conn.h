/* Private to the HTTP server: what its five rooms know of each other. Nobody else includes this.
 *
 * http_server.c  the listener: accepting, the limit of connections, the sweep for deadlines, drain and close
 * http_conn.c    one connection: reading, the tail of unread bytes, timeouts, refusals, replies, the lingering close
 * http_parse.c   bytes into one request; the only room that knows llhttp
 * http_head.c    what a request line and a header block must look like
 * http_reply.c   one reply into bytes
 *
 * A connection is small while nobody talks on it; what a request needs (an exchange: header slots, buffers, parser)
 * is borrowed from the server with its first byte and given back with its reply, so thousands of idle connections
 * cost little and a busy one allocates nothing. */
#ifndef ISSUING_HTTP_CONN_H
#define ISSUING_HTTP_CONN_H

#include <sys/queue.h>

#include "common/http_server.h"

#define HTTP_READ_SIZE ((size_t)16 * 1024) /* one read; also the most that is kept unread behind a running request */
#define HTTP_LINGER_MS \
    1000 /* how long a closing connection's input is drained, so that the answer is not lost to a reset */
#define HTTP_LINGER_BYTES ((size_t)64 * 1024)

/* ---- http_head.c ---- */

#define HTTP_METHOD_MAX 32 /* bytes */

struct http_refusal {
    int status;         /* 0 = nothing to refuse */
    const char *detail; /* static text */
};

struct http_line {
    enum http_method method;
    size_t method_length;
    size_t target_length; /* it begins one byte behind the method */
    bool is_1_0;
};

/* `line` is without its CRLF and has no control characters but HT. */
struct http_refusal http_check_line(struct slice line, size_t target_max, struct http_line *ret_line);
/* The rules that llhttp lacks. *ret_expects: there is an "Expect: 100-continue" to be honoured. */
struct http_refusal http_check_fields(const struct http_request *request, bool is_1_0, bool *ret_expects);

/* ---- http_parse.c ---- */

/* One request from its first byte to its reply. */
struct http_exchange {
    struct http_request request;
    struct http_conn *conn; /* NULL once the connection is gone and only the handler still holds the request */
    struct http_exchange *next_spare; /* in the server's free list */
    bool is_handed_over;              /* the handler has it, until its reply */
    bool keep_alive;                  /* the client's wish, by version and Connection */
    bool is_1_0;
    bool wants_continue;         /* Expect: 100-continue, and there is a body to wait for */
    struct http_refusal refusal; /* set with HTTP_REFUSED */
};

enum http_progress {
    HTTP_MORE,      /* all bytes used, the request is not complete */
    HTTP_HEAD_DONE, /* the header block is complete and accepted; a body follows */
    HTTP_COMPLETE,  /* the request may be handled; what was not used belongs to the next one */
    HTTP_REFUSED,   /* answer what the refusal says and close */
    HTTP_BROKEN,    /* out of memory */
};

struct http_exchange *http_exchange_new(
    const struct http_server_options *limits); /* NULL: no memory; `limits` must outlive its use */
void http_exchange_free(struct http_exchange *exchange);
/* Makes it ready for the next request; keeps the memory. */
void http_exchange_begin(struct http_exchange *exchange, int64_t started_us);
/* Overwrites what the request carried (tokens) and gives back unusually large memory. */
void http_exchange_forget(struct http_exchange *exchange);
/* Whether anything but empty lines has been read. */
bool http_exchange_is_begun(const struct http_exchange *exchange);
/* Reads bytes of the request until it is complete, refused, or they are used up. Never looks past the end of the
 * request. The result depends on the bytes only, not on how they were cut into pieces. */
enum http_progress http_exchange_read(struct http_exchange *exchange, const char *bytes, size_t length,
                                      size_t *ret_used);

/* ---- http_reply.c ---- */

struct http_date {
    int64_t second;
    char text[30]; /* "Sun, 06 Nov 1994 08:49:37 GMT" */
};

struct http_reply_style {
    struct http_date *date;
    const char *server_name; /* may be NULL */
    bool no_body;            /* HEAD: the length only */
    bool is_last;            /* "Connection: close" */
    bool say_keep_alive;     /* to a 1.0 client that wishes it */
};

/* Appends the whole reply; false: no memory, and `out` is as before but for `failed`. */
bool http_reply_build(struct buf *out, const struct http_reply *reply, const struct http_reply_style *style);

/* ---- http_conn.c ---- */

enum http_conn_state {
    HTTP_CONN_IDLE,    /* nothing of a request was read */
    HTTP_CONN_HEAD,    /* reading the header block */
    HTTP_CONN_BODY,    /* reading the body */
    HTTP_CONN_RUNNING, /* the handler has the request */
    HTTP_CONN_LINGER,  /* the last reply is sent, our side is shut; draining what the client still sends */
    HTTP_CONN_CLOSED,  /* its handle is closing; only the close callback is to come */
};

struct http_conn {
    uv_tcp_t tcp;
    struct http_server *server;
    LIST_ENTRY(http_conn) all;
    TAILQ_ENTRY(http_conn) ready;
    struct http_exchange *exchange; /* owned; NULL when idle */
    enum http_conn_state state;
    int writes;    /* waiting for the client to take their bytes */
    bool is_ready; /* in the server's list of those to go on with from the loop */
    bool is_reading;
    bool is_over;        /* the last reply was given: once sent, linger and close */
    bool is_surplus;     /* above the limit: accepted to be told so */
    bool client_is_done; /* end of input: no more requests, but those read are still answered */
    int64_t deadline_ms; /* of the state; INT64_MAX = none */
    int64_t write_deadline_ms;
    int64_t tail_us; /* when the tail's first byte was read */
    size_t lingered; /* bytes drained */
    struct buf tail; /* read but not yet looked at */
};

LIST_HEAD(http_conn_list, http_conn);
TAILQ_HEAD(http_conn_queue, http_conn);

struct http_server {
    uv_loop_t *loop;
    struct http_server_options options;
    char *server_name;
    uv_poll_t listener;
    uv_timer_t accept_pause;
    uv_timer_t sweep;
    uv_idle_t turn; /* goes on with the connections in `ready` */
    int listen_fd;  /* -1 when not listening any more */
    int port;
    int open_handles; /* of the server itself */
    int connections, surplus;
    bool is_draining, is_closing;
    struct http_conn_list conns;
    struct http_conn_queue ready;
    struct http_conn *gathering; /* its replies are collected in `gathered` while its input is being worked through */
    struct buf gathered, scratch;
    struct http_exchange *spare;
    int spare_count;
    struct http_date date;
    char read_bytes[HTTP_READ_SIZE]; /* shared: a read is used up or copied before the next */
    void (*on_closed)(void *context);
    void *closed_context;
};

/* Takes an accepted, non-blocking socket; closes it when there is no memory. A surplus one is answered 503 and
 * closed. */
void http_conn_open(struct http_server *server, int fd, bool is_surplus);
/* Ends it at once; on_gone, if a handler holds a request, comes from the loop. May be called again. */
void http_conn_close(struct http_conn *conn);
/* Does what is due when a deadline has passed. */
void http_conn_expire(struct http_conn *conn, int64_t now_ms);
/* Closes it if no request is under way on it. */
void http_conn_drain(struct http_conn *conn);
/* Works through the tail of each connection in server->ready. */
void http_conn_run_ready(struct http_server *server);

/* ---- http_server.c ---- */

/* Lets http_conn_run_ready() be called from the loop. */
void http_server_wake(struct http_server *server);
/* Frees a connection whose handle is closed; the last one may be what a closing server waits for. */
void http_server_forget(struct http_server *server, struct http_conn *conn);

#endif
