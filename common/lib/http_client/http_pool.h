/* HTTP/1.1 on pooled connections, in clear text and over TLS alike: calls wait here, are sent, answered and ended.
 * Private to the HTTP client. */
#ifndef ISSUING_HTTP_POOL_H
#define ISSUING_HTTP_POOL_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/closing.h"
#include "common/lib/http_client/http_call.h"
#include "common/lib/http_client/http_calls.h"
#include "common/lib/http_client/http_conn_limit.h"
#include "common/lib/http_client/http_connector.h"
#include "common/lib/http_client/http_url_origin.h"

#define HTTP_INPUT_SIZE (16 * 1024)

LIST_HEAD(http_pooled_conns, http_pooled_conn);

/* What belongs to one origin. A call is in one of the lists, and in `sent` exactly while it has a connection. */
struct http_pool_origin {
    struct http_pool *pool;
    struct http_pool_origin *next; /* of the pool's list */
    const struct http_url_origin *origin;
    struct http_calls waiting;           /* for any connection */
    struct http_calls retry_on_new_conn; /* the pooled connection that they were sent on was dead */
    struct http_calls sent;
    struct http_pooled_conns idle;    /* the last used first */
    struct http_connects connects;    /* connections that are being made */
    struct http_pooled_conns shaking; /* those in their handshake, which are being made as well */
    int idle_count, connecting;
    int overdue;    /* handshakes that the calls which they were begun for did not wait for */
    int open_count; /* made, whether idle or not */
    struct http_conn_limit limit;
};

/* Embedded in the client. */
struct http_pool {
    uv_loop_t *uv;
    struct http_connector connector;
    struct http_pool_origin *origins;
    int idle_max; /* pooled connections of one origin */
    size_t answer_max;
    int conns_open;        /* not yet closed */
    uv_timer_t deadline;   /* ends calls whose time is over */
    int64_t due_ms;        /* when it runs; meaningful while it is active */
    uv_timer_t idle_timer; /* closes connections that were idle for long */
    uv_timer_t slow_timer; /* while calls wait for a connection: is their peer slow? */
    struct buf request;    /* the one that is being sent; wiped after it */
    bool is_closing;
    struct closing closing;
    char input[HTTP_INPUT_SIZE]; /* what was read; wiped after it was parsed */
};

must_check bool http_pool_open(struct http_pool *pool, uv_loop_t *uv, int idle_max, size_t answer_max, struct err *err);
/* Both live as long as the pool; the origin may be closed and opened again after http_pool_leave(). */
void http_pool_origin_init(struct http_pool_origin *pool_origin, struct http_pool *pool,
                           const struct http_url_origin *origin);
/* Takes the call over, and ends it once, from the loop; or returns why it did not start. */
const char *http_pool_start(struct http_pool_origin *origin, struct http_call *call);
/* Closes idle connections, and stops those that are being made. Precondition: no call uses the origin. */
void http_pool_leave(struct http_pool_origin *origin);
/* Precondition: the client is closing, so no call starts another. */
void http_pool_stop_all(struct http_pool *pool, const char *why);
/* Precondition: every origin was left. Calls on_closed from the loop. */
void http_pool_close(struct http_pool *pool, void (*on_closed)(void *context), void *context);

/* ---- for the parts of the pool ---- */

/* Gives a connection without a call to the call that waits longest, else to the pool. */
void http_pool_assign(struct http_pool_origin *origin, struct http_pooled_conn *conn);
/* Looks for late calls at deadline_ms at the latest; if that is over already, in the next iteration of the loop. */
void http_pool_due(struct http_pool *pool, int64_t deadline_ms);
void http_pool_wake(struct http_pool *pool);
/* The callback of each connection's watcher. */
void http_pool_on_poll(uv_poll_t *poll, int status, int events);

#endif
