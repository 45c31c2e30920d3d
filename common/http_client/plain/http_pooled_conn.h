/* One connection in clear text: its descriptor and watcher, its place in the pool, and the writing of a request. What
 * happens to calls is http_plain.c's business. Private to the clear-text transport. */
#ifndef ISSUING_HTTP_POOLED_CONN_H
#define ISSUING_HTTP_POOLED_CONN_H

#include "common/http_client/plain/http_answer.h"
#include "common/http_client/plain/http_plain.h"

/* A credential may have 64 KiB. */
#define HTTP_REQUEST_MAX (HTTP_CALL_TEXT_MAX + HTTP_CALL_BODY_MAX + 72 * 1024)

struct http_pooled_conn {
    uv_poll_t poll;
    uv_poll_cb on_poll;
    int fd;
    struct http_plain_origin *origin;
    struct http_call *call;                   /* NULL = idle */
    struct http_pooled_conn *next, *previous; /* while idle */
    int64_t idle_ms;                          /* since when */
    bool is_reused;                           /* it was idle, or served another call before this one */
    bool has_sent;                            /* a byte of the request left */
    bool is_writing;                          /* `unsent` waits until the kernel takes more */
    bool is_broken;                           /* the loop watches it no longer */
    struct buf unsent;                        /* of the request */
    struct http_answer answer;
};

/* Takes the descriptor over, also when it fails. NULL: out of memory. */
struct http_pooled_conn *http_pooled_conn_new(struct http_plain_origin *origin, int fd, uv_poll_cb on_poll);
/* Closes it. Its memory lives until the loop has closed the handle. */
void http_pooled_conn_drop(struct http_pooled_conn *conn);
/* Into the pool of idle connections, and out of it. */
void http_pooled_conn_add_idle(struct http_pooled_conn *conn);
void http_pooled_conn_remove_idle(struct http_pooled_conn *conn);
/* Nothing has arrived. The loop may not have noticed yet that something has. */
bool http_pooled_conn_is_silent(const struct http_pooled_conn *conn);
/* Writes its call's request; what the kernel does not take is stored in `unsent` and written when the socket is
 * writable. false: the connection is broken, or out of memory. */
must_check bool http_pooled_conn_write_first(struct http_pooled_conn *conn, const struct buf *request);
must_check bool http_pooled_conn_write_more(struct http_pooled_conn *conn);

#endif
