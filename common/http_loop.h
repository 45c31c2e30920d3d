/* libcurl's multi_socket interface on libuv: sockets, timers, completions, and nothing about calls.
 * Private to the rooms of the HTTP client. */
#ifndef ISSUING_HTTP_LOOP_H
#define ISSUING_HTTP_LOOP_H

#include <curl/curl.h>
#include <uv.h>

#include "common/base.h"
#include "common/err.h"

/* Embedded in its owner, who lives until on_closed. */
struct http_loop {
    uv_loop_t *loop;
    CURLSH *share; /* names and TLS sessions, for all lanes */
    struct http_lane *lanes;
    struct http_watch **watches; /* by descriptor */
    int watches_size;
    uv_timer_t anchor; /* never runs; its end is the loop's when there is nothing else to close */
    int open_handles;
    void (*on_closed)(struct http_loop *loop);
};

/* One multi handle. At each transfer curl walks all connections of one, twice: so a handle has few of them, and there are
 * as many handles as it takes. */
struct http_lane {
    struct http_loop *loop;
    struct http_lane *next;
    CURLM *multi;
    /* A transfer is over. From the loop, never below http_lane_start(). Must call http_lane_stop() for it, may start
     * others. */
    void (*on_done)(CURL *easy, CURLcode code);
    uv_timer_t timer;
    int calls; /* the owner's, as next_open is */
    struct http_lane *next_open;
};

must_check bool http_loop_open(struct http_loop *ret_loop, uv_loop_t *uv, struct err *err);
/* NULL: out of memory. Lives as long as the loop. */
struct http_lane *http_lane_new(struct http_loop *loop, int connections_max,
                                void (*on_done)(CURL *easy, CURLcode code));
/* Sets the options of a new easy handle, once. *lane names the lane that the transfer runs in. */
must_check bool http_loop_adopt(struct http_loop *loop, CURL *easy, struct http_lane **lane);
must_check bool http_lane_start(struct http_lane *lane, CURL *easy);
void http_lane_stop(struct http_lane *lane, CURL *easy);
/* With no transfer left and every easy handle cleaned up. Ends kept connections, then on_closed from the loop. */
void http_loop_close(struct http_loop *loop, void (*on_closed)(struct http_loop *loop));

#endif
