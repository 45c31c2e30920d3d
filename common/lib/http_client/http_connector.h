/* Makes TCP connections by libcurl, on the loop of the program: it looks up the name, tries the addresses of both
 * families, and keeps the time. Private to the HTTP client. */
#ifndef ISSUING_HTTP_CONNECTOR_H
#define ISSUING_HTTP_CONNECTOR_H

#include <curl/curl.h>
#include <sys/queue.h>
#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/err.h"

/* Embedded in the pool, which lives until on_closed. */
struct http_connector {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;
    int watches_open; /* not yet closed */
    bool is_closing;
    struct closing closing;
};

/* Connections that are being made; all zero = none. */
LIST_HEAD(http_connects, http_connect);

must_check bool http_connector_open(struct http_connector *ret_connector, uv_loop_t *loop, struct err *err);
/* on_end is called once, later, from the loop: with a connected descriptor, which the receiver owns, or with -1 and
 * why, NULL = its time is over. Until then it is one of `connects`. false: out of memory. */
must_check bool http_connector_start(struct http_connector *connector, struct http_connects *connects, CURLU *address,
                                     int64_t deadline_ms,
                                     void (*on_end)(void *context, int fd, int64_t deadline_ms, const char *why),
                                     void *context);
/* on_end of these is not called. */
void http_connector_stop(struct http_connects *connects);
/* Precondition: none is being made. on_closed is called from the loop. */
void http_connector_close(struct http_connector *connector, void (*on_closed)(void *context), void *context);

#endif
