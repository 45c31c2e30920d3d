/* One connection: its stream and watcher, its list in the pool, and the writing of a request. http_pool.c decides what
 * happens to calls. Private to the HTTP client. */
#ifndef ISSUING_HTTP_POOLED_CONN_H
#define ISSUING_HTTP_POOLED_CONN_H

#include "common/lib/http_client/http_answer.h"
#include "common/lib/http_client/http_pool.h"
#include "common/lib/http_client/http_stream.h"

/* A credential may have 64 KiB. */
#define HTTP_REQUEST_MAX (HTTP_CALL_TEXT_MAX + HTTP_CALL_BODY_MAX + 72 * 1024)

struct http_pooled_conn {
    uv_poll_t poll;
    uv_poll_cb on_poll;
    struct http_stream stream;
    struct http_pool_origin *origin;
    struct http_call *call; /* NULL = idle, or in its handshake */
    bool is_shaking, is_overdue;
    struct http_tunnel *tunnel;         /* to a proxy that has not connected yet; else NULL */
    enum http_handshake handshake;      /* not yet reported by a call */
    LIST_ENTRY(http_pooled_conn) entry; /* while it has no call */
    int64_t deadline_ms;                /* of the handshake */
    int64_t idle_ms, sent_ms;           /* since when; when its call began */
    int64_t ends_ms;                    /* it begins no call from then on; 0 = not known before its first */
    bool is_reused;                     /* it was idle, or served another call before this one */
    bool is_writing;                    /* `unsent` waits until the kernel takes more */
    bool is_broken;                     /* the loop watches it no longer */
    struct buf unsent;                  /* of the request */
    struct http_answer answer;
};

/* In its handshake. Takes the descriptor over, also when it fails. NULL: out of memory. */
struct http_pooled_conn *http_pooled_conn_new(struct http_pool_origin *origin, int fd, int64_t deadline_ms,
                                              uv_poll_cb on_poll);
/* The next part of the handshake; the connection waits for what it needs. */
enum http_stream_shaking http_pooled_conn_shake(struct http_pooled_conn *conn, char ret_why[HTTP_TLS_WHY_SIZE]);
/* Closes it. Its memory lives until the loop has closed the handle. Precondition: it has no call. */
void http_pooled_conn_drop(struct http_pooled_conn *conn);
/* Into the pool of idle connections, and out of it. */
void http_pooled_conn_add_idle(struct http_pooled_conn *conn);
void http_pooled_conn_remove_idle(struct http_pooled_conn *conn);
/* Writes its call's request; what the kernel does not take is stored in `unsent` and written when the socket is
 * writable. false: the connection is broken, or out of memory. */
must_check bool http_pooled_conn_write_first(struct http_pooled_conn *conn, const struct buf *request);
must_check bool http_pooled_conn_write_more(struct http_pooled_conn *conn);

#endif
