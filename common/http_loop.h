/* libcurl's multi_socket interface on libuv: sockets, timer, completions, and nothing about calls.
 * Private to http_client.c. */
#ifndef ISSUING_HTTP_LOOP_H
#define ISSUING_HTTP_LOOP_H

#include <curl/curl.h>
#include <uv.h>

#include "common/base.h"
#include "common/err.h"

/* Embedded in its owner, who lives until on_closed. */
struct http_loop {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;
    struct http_watch **watches; /* by descriptor */
    int watches_size;
    int open_handles;
    /* A transfer is over. From the loop, never below http_loop_start(). Must call http_loop_stop() for it, may start
     * others. */
    void (*on_done)(struct http_loop *loop, CURL *easy, CURLcode code);
    void (*on_closed)(struct http_loop *loop);
};

must_check bool http_loop_open(struct http_loop *ret_loop, uv_loop_t *uv, int connections_max,
                               void (*on_done)(struct http_loop *loop, CURL *easy, CURLcode code), struct err *err);
/* Sets the socket options of a new easy handle, once. */
must_check bool http_loop_adopt(struct http_loop *loop, CURL *easy);
must_check bool http_loop_start(struct http_loop *loop, CURL *easy);
void http_loop_stop(struct http_loop *loop, CURL *easy);
/* With no transfer left and every easy handle cleaned up. Ends kept connections, then on_closed from the loop. */
void http_loop_close(struct http_loop *loop, void (*on_closed)(struct http_loop *loop));

#endif
