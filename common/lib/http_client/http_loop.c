/* See http_loop.h.
 *
 * How libcurl and libuv are connected, and why:
 * - curl sets a timer: -1 stops it, 0 means soon. The timer never runs inside that callback, because curl is not
 *   reentrant there.
 * - curl reports which events of a socket it is interested in. It still does so while curl_multi_cleanup() runs, so
 *   watchers outlive the multi handle.
 * - After EVERY curl_multi_socket_action() the completions are read: one action may finish any number of transfers.
 * - libuv reports a broken socket as a negative status and has stopped the watcher by then; curl gets CURL_CSELECT_ERR.
 *
 * Invariants: one watcher a descriptor; it is closed before its descriptor is, because the number may be used again at
 * once. */
#include "common/lib/http_client/http_loop.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_MS 20

struct http_watch {
    uv_poll_t poll;
    struct http_loop *loop;
    int fd;
};

static bool curl_ready;

static void init_curl(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* ---- transfers ---- */

static void on_timer(uv_timer_t *timer);

static void act(struct http_loop *loop, curl_socket_t fd, int flags)
{
    struct http_loop_transfer *transfer;
    CURLMsg *message;
    int count;
    /* Out of memory, curl does not set its timer, and a call would wait without an end. */
    if (curl_multi_socket_action(loop->multi, fd, flags, &count) != CURLM_OK)
        uv_timer_start(&loop->timer, on_timer, RETRY_MS, 0);
    while ((message = curl_multi_info_read(loop->multi, &count)))
        if (message->msg == CURLMSG_DONE &&
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer) == CURLE_OK)
            transfer->on_done(transfer, message->data.result);
}

static void on_timer(uv_timer_t *timer)
{
    act(container_of(timer, struct http_loop, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timer(CURLM *multi, long timeout_ms, void *context)
{
    (void)multi;
    struct http_loop *loop = context;
    uv_timer_stop(&loop->timer);
    if (timeout_ms >= 0)
        uv_timer_start(&loop->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

/* ---- watchers ---- */

static void on_watch_closed(uv_handle_t *handle)
{
    struct http_watch *watch = container_of((uv_poll_t *)handle, struct http_watch, poll);
    struct http_loop *loop = watch->loop;
    free(watch);
    loop->watches_open--;
    if (loop->is_closing)
        closing_part_closed(&loop->closing);
}

static void watch_drop(struct http_loop *loop, int fd)
{
    struct http_watch *watch = fd < loop->watches_size ? loop->watches[fd] : NULL;
    if (!watch)
        return;
    loop->watches[fd] = NULL;
    uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
}

static bool grow_watches(struct http_loop *loop, int fd)
{
    if (fd < loop->watches_size)
        return true;
    int size = fd + 64;
    struct http_watch **watches = realloc(loop->watches, (size_t)size * sizeof(struct http_watch *));
    if (!watches)
        return false;
    for (int i = loop->watches_size; i < size; i++)
        watches[i] = NULL;
    loop->watches = watches;
    loop->watches_size = size;
    return true;
}

/* The watcher of this descriptor, made where there is none. NULL: out of memory. */
static struct http_watch *watch_of(struct http_loop *loop, int fd)
{
    if (!grow_watches(loop, fd) || loop->watches[fd])
        return fd < loop->watches_size ? loop->watches[fd] : NULL;
    struct http_watch *watch = calloc(1, sizeof(*watch));
    if (!watch || uv_poll_init(loop->loop, &watch->poll, fd) != 0) {
        free(watch);
        return NULL;
    }
    watch->loop = loop;
    watch->fd = fd;
    loop->watches[fd] = watch;
    loop->watches_open++;
    return watch;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct http_watch *watch = container_of(poll, struct http_watch, poll);
    int flags = (events & UV_READABLE ? CURL_CSELECT_IN : 0) | (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0);
    act(watch->loop, watch->fd, status < 0 ? CURL_CSELECT_ERR : flags);
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *unused)
{
    (void)easy, (void)unused;
    struct http_loop *loop = context;
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    if (what == CURL_POLL_REMOVE) {
        watch_drop(loop, fd);
        return 0;
    }
    struct http_watch *watch = watch_of(loop, fd);
    if (watch) /* -1 would end every transfer; without a watcher this one ends by its timer */
        uv_poll_start(&watch->poll, events, on_poll);
    return 0;
}

static curl_socket_t open_socket(void *unused, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)unused, (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static int close_socket(void *context, curl_socket_t fd)
{
    watch_drop(context, fd);
    return close(fd);
}

/* ---- for the HTTP client ---- */

bool http_loop_open(struct http_loop *ret_loop, uv_loop_t *uv, struct err *err)
{
    static uv_once_t once = UV_ONCE_INIT;
    uv_once(&once, init_curl);
    if (!curl_ready)
        return err_set(err, ERR_SYSTEM, "libcurl does not start");
    CURLM *multi = curl_multi_init();
    if (!multi || curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, ret_loop) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_curl_timer) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_TIMERDATA, ret_loop) != CURLM_OK) {
        curl_multi_cleanup(multi);
        return err_set(err, ERR_MEMORY, "out of memory for the HTTP client");
    }
    *ret_loop = (struct http_loop){.loop = uv, .multi = multi};
    uv_timer_init(uv, &ret_loop->timer);
    return true;
}

#define SET(option, value) (curl_easy_setopt(transfer->easy, option, value) == CURLE_OK)

bool http_loop_start(struct http_loop *loop, struct http_loop_transfer *transfer)
{
    return SET(CURLOPT_PRIVATE, transfer) && SET(CURLOPT_ERRORBUFFER, transfer->problem) &&
           SET(CURLOPT_OPENSOCKETFUNCTION, open_socket) && SET(CURLOPT_CLOSESOCKETFUNCTION, close_socket) &&
           SET(CURLOPT_CLOSESOCKETDATA, loop) && SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_TCP_KEEPALIVE, 1L) &&
           /* a name server that hangs must not hold up the loop when the call's time is over */
           SET(CURLOPT_QUICK_EXIT, 1L) && curl_multi_add_handle(loop->multi, transfer->easy) == CURLM_OK;
}

#undef SET

void http_loop_stop(struct http_loop *loop, struct http_loop_transfer *transfer)
{
    curl_multi_remove_handle(loop->multi, transfer->easy);
    curl_easy_cleanup(transfer->easy);
    transfer->easy = NULL;
}

static void release(void *module)
{
    struct http_loop *loop = module;
    free(loop->watches);
    loop->watches = NULL;
}

void http_loop_close(struct http_loop *loop, void (*on_closed)(void *context), void *context)
{
    curl_multi_cleanup(loop->multi); /* on_curl_socket() and close_socket() are called from here */
    loop->multi = NULL;
    for (int fd = 0; fd < loop->watches_size; fd++)
        watch_drop(loop, fd);
    loop->is_closing = true;
    closing_start(&loop->closing, release, loop, on_closed, context);
    for (int i = 0; i < loop->watches_open; i++)
        closing_part(&loop->closing);
    closing_handle(&loop->closing, &loop->timer);
    closing_end(&loop->closing);
}
