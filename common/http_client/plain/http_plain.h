/* The transport of http://: HTTP/1.1 in clear text on pooled connections, without libcurl once a connection is made.
 * README.md beside this file describes when it is used, what it gains and what it costs. */
#ifndef ISSUING_HTTP_PLAIN_H
#define ISSUING_HTTP_PLAIN_H

#include <uv.h>

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/closing.h"
#include "common/http_client/http_call.h"
#include "common/http_client/http_loop.h"
#include "common/http_client/http_url_origin.h"
#include "common/http_client/plain/http_calls.h"

#define HTTP_INPUT_SIZE (16 * 1024)

struct http_pooled_conn;

/* What belongs to one origin. A call is in one of the lists, and in `sent` exactly while it has a connection. */
struct http_plain_origin {
    struct http_plain *plain;
    struct http_plain_origin *next; /* of the transport's list */
    const struct http_url_origin *origin;
    struct http_calls waiting;           /* for any connection */
    struct http_calls retry_on_new_conn; /* the pooled connection that they were sent on was dead */
    struct http_calls sent;
    struct http_pooled_conn *idle; /* the last used first */
    struct http_connect *connects; /* connections that are being made */
    int idle_count, connecting;
};

/* Embedded in the client. */
struct http_plain {
    uv_loop_t *uv;
    struct http_loop *loop; /* libcurl's, which makes the connections */
    struct http_lane *connect_lane;
    struct http_plain_origin *origins;
    int idle_max; /* pooled connections of one origin */
    size_t answer_max;
    int conns_open;        /* not yet closed */
    uv_timer_t deadline;   /* ends calls whose time is over */
    int64_t due_ms;        /* when it runs; meaningful while it is active */
    uv_timer_t idle_timer; /* closes connections that were idle for long */
    struct buf request;    /* the one that is being sent; wiped after it */
    bool is_closing;
    struct closing closing;
    char input[HTTP_INPUT_SIZE]; /* what was read; wiped after it was parsed */
};

void http_plain_open(struct http_plain *plain, uv_loop_t *uv, struct http_loop *loop, int idle_max, size_t answer_max);
/* Both live as long as the transport; the origin may be closed and opened again after http_plain_leave(). */
void http_plain_origin_init(struct http_plain_origin *plain_origin, struct http_plain *plain,
                            const struct http_url_origin *origin);
/* Takes the call over, and ends it once, from the loop; or returns why it did not start. */
const char *http_plain_start(struct http_plain_origin *origin, struct http_call *call);
/* Closes idle connections, and stops those that are being made. Precondition: no call uses the origin. */
void http_plain_leave(struct http_plain_origin *origin);
/* Precondition: the client is closing, so no call starts another. */
void http_plain_stop_all(struct http_plain *plain, const char *why);
/* Precondition: every origin was left. Calls on_closed from the loop. */
void http_plain_close(struct http_plain *plain, void (*on_closed)(void *context), void *context);

#endif
