/* libcurl's multi_socket interface on libuv: sockets, timers, completions, and nothing about calls.
 * Private to the HTTP client. */
#ifndef ISSUING_HTTP_LOOP_H
#define ISSUING_HTTP_LOOP_H

#include <curl/curl.h>
#include <uv.h>

#include "common/base/base.h"
#include "common/base/closing.h"
#include "common/base/err.h"
#include "common/http_client/http_tls.h"

/* Embedded in the client, which lives until on_closed. */
struct http_loop {
    uv_loop_t *loop;
    CURLSH *share; /* names and TLS sessions, for all lanes */
    struct http_tls_turn turn;
    struct http_lane *lanes;
    struct http_watch **watches; /* by descriptor */
    int watches_size;
    int watches_open; /* not yet closed, whether in `watches` or not */
    bool is_closing;
    struct closing closing;
};

/* One multi handle. At each transfer curl walks all connections of one, twice: so a handle has few of them, and there
 * are as many handles as it takes. */
struct http_lane {
    struct http_loop *loop;
    struct http_lane *next;
    CURLM *multi;
    /* A transfer is over. From the loop, never below http_lane_start(). Must call http_lane_stop() for it, may start
     * others. */
    void (*on_done)(CURL *easy, CURLcode code);
    uv_timer_t timer;
    bool is_in_timer;    /* its callback runs */
    uv_idle_t next_turn; /* in place of the timer, where that would run again in the same turn */
    int calls;           /* the owner's, as next_open is */
    struct http_lane *next_open;
};

must_check bool http_loop_open(struct http_loop *ret_loop, uv_loop_t *uv, struct err *err);
/* NULL: out of memory. Lives as long as the loop. */
struct http_lane *http_lane_new(struct http_loop *loop, int connections_max,
                                void (*on_done)(CURL *easy, CURLcode code));
/* Sets the options that all easy handles have in common, once: sockets, protocols, no redirects, no proxy, buffers.
 * *lane names the lane that the transfer runs in; problem: CURL_ERROR_SIZE bytes that live as long as the handle. */
must_check bool http_loop_adopt(struct http_loop *loop, CURL *easy, struct http_lane **lane, char *problem);
must_check bool http_lane_start(struct http_lane *lane, CURL *easy);
void http_lane_stop(struct http_lane *lane, CURL *easy);
/* Precondition: no transfer is left and every easy handle cleaned up. Ends pooled connections, then calls on_closed:
 * from the loop, or at once when no handle is open. */
void http_loop_close(struct http_loop *loop, void (*on_closed)(void *context), void *context);

#endif
