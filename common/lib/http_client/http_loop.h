/* Runs libcurl on the loop of the program, by its multi_socket interface: sockets, timers, completions. What a transfer
 * is for, its owner knows (http_connect.c). Private to the HTTP client. */
#ifndef ISSUING_HTTP_LOOP_H
#define ISSUING_HTTP_LOOP_H

#include <curl/curl.h>
#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/err.h"

/* Embedded in the client, which lives until on_closed. */
struct http_loop {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;
    struct http_watch **watches; /* by descriptor */
    int watches_size;
    int watches_open; /* not yet closed, whether in `watches` or not */
    bool is_closing;
    struct closing closing;
};

/* Embedded in what it is for. */
struct http_loop_transfer {
    CURL *easy;
    /* It is over. From the loop, never below http_loop_start(). Must call http_loop_stop(), may start others. */
    void (*on_done)(struct http_loop_transfer *transfer, CURLcode code);
    char problem[CURL_ERROR_SIZE]; /* why it failed; may be "" */
};

must_check bool http_loop_open(struct http_loop *ret_loop, uv_loop_t *uv, struct err *err);
/* Sets what all transfers have in common, and starts it. false: out of memory; the easy handle is the caller's. */
must_check bool http_loop_start(struct http_loop *loop, struct http_loop_transfer *transfer);
/* Ends it, on_done is not called any more, and frees the easy handle. */
void http_loop_stop(struct http_loop *loop, struct http_loop_transfer *transfer);
/* Precondition: no transfer is left. on_closed is called from the loop. */
void http_loop_close(struct http_loop *loop, void (*on_closed)(void *context), void *context);

#endif
