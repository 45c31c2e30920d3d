/* See http_connector.h. Each connection is a transfer of libcurl's that ends when it is made (CURLOPT_CONNECT_ONLY).
 * The descriptor is duplicated, because curl closes its own with the transfer.
 *
 * How libcurl and libuv are connected, and why:
 * - curl sets a timer: -1 stops it, 0 means soon. The timer never runs inside that callback, because curl is not
 *   reentrant there.
 * - curl reports which events of a socket it is interested in, and that it closes it, also while curl_multi_cleanup()
 *   runs, so watchers outlive the multi handle.
 * - After EVERY curl_multi_socket_action() the completions are read: one action may finish any number of transfers.
 * - libuv reports a broken socket as a negative status and has stopped the watcher by then; curl gets CURL_CSELECT_ERR.
 *
 * Invariants: one watcher a descriptor; it is closed before its descriptor is, because the number may be used again at
 * once. */
#include "common/lib/http_client/http_connector.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/lib/base/clock.h"

#define RETRY_MS 20

struct http_connect {
    CURL *easy;
    struct http_connector *connector;
    LIST_ENTRY(http_connect) entry;
    int64_t deadline_ms;
    void (*on_end)(void *context, int fd, int64_t deadline_ms, const char *why);
    void *context;
    char problem[CURL_ERROR_SIZE]; /* why it failed; may be "" */
};

struct http_watch {
    uv_poll_t poll;
    struct http_connector *connector;
    int fd;
};

static bool curl_ready;

static void init_curl(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* ---- one connection ---- */

static void free_connect(struct http_connect *connect)
{
    LIST_REMOVE(connect, entry);
    curl_multi_remove_handle(connect->connector->multi, connect->easy);
    curl_easy_cleanup(connect->easy);
    free(connect);
}

static void end_connect(struct http_connect *connect, CURLcode code)
{
    curl_socket_t socket = CURL_SOCKET_BAD;
    char why[CURL_ERROR_SIZE];
    snprintf(why, sizeof(why), "%s", connect->problem[0] ? connect->problem : curl_easy_strerror(code));
    if (code == CURLE_OK)
        curl_easy_getinfo(connect->easy, CURLINFO_ACTIVESOCKET, &socket);
    int fd = socket == CURL_SOCKET_BAD ? -1 : fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 && code == CURLE_OK)
        snprintf(why, sizeof(why), "%s", strerror(errno));
    struct http_connect ended = *connect;
    free_connect(connect);
    /* guard: a connection that took too long ends no call that has time */
    ended.on_end(ended.context, fd, ended.deadline_ms, code == CURLE_OPERATION_TIMEDOUT ? NULL : why);
}

static curl_socket_t open_socket(void *unused, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)unused, (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

static bool set_options(struct http_connect *connect, CURLU *address, int64_t timeout_ms)
{
    CURL *easy = connect->easy;
    return SET(CURLOPT_PRIVATE, connect) && SET(CURLOPT_ERRORBUFFER, connect->problem) && SET(CURLOPT_CURLU, address) &&
           SET(CURLOPT_CONNECT_ONLY, 1L) && SET(CURLOPT_CONNECTTIMEOUT_MS, (long)timeout_ms) &&
           /* guard: a proxy of the environment is not used */
           SET(CURLOPT_PROXY, "") && SET(CURLOPT_OPENSOCKETFUNCTION, open_socket) && SET(CURLOPT_NOSIGNAL, 1L) &&
           SET(CURLOPT_TCP_KEEPALIVE, 1L) &&
           /* a name server that hangs must not hold up the loop when the call's time is over */
           SET(CURLOPT_QUICK_EXIT, 1L);
}

#undef SET

bool http_connector_start(struct http_connector *connector, struct http_connects *connects, CURLU *address,
                          int64_t deadline_ms,
                          void (*on_end)(void *context, int fd, int64_t deadline_ms, const char *why), void *context)
{
    struct http_connect *connect = calloc(1, sizeof(*connect));
    if (!connect)
        return false;
    *connect = (struct http_connect){.easy = curl_easy_init(),
                                     .connector = connector,
                                     .deadline_ms = deadline_ms,
                                     .on_end = on_end,
                                     .context = context};
    LIST_INSERT_HEAD(connects, connect, entry);
    int64_t left_ms = deadline_ms - clock_mono_ms();
    if (connect->easy && set_options(connect, address, left_ms < 1 ? 1 : left_ms) &&
        curl_multi_add_handle(connector->multi, connect->easy) == CURLM_OK)
        return true;
    free_connect(connect);
    return false;
}

void http_connector_stop(struct http_connects *connects)
{
    while (!LIST_EMPTY(connects))
        free_connect(LIST_FIRST(connects));
}

/* ---- libcurl's timer ---- */

static void on_timer(uv_timer_t *timer);

static void act(struct http_connector *connector, curl_socket_t fd, int flags)
{
    struct http_connect *connect;
    CURLMsg *message;
    int count;
    /* Out of memory, curl does not set its timer, and a call would wait without an end. */
    if (curl_multi_socket_action(connector->multi, fd, flags, &count) != CURLM_OK)
        uv_timer_start(&connector->timer, on_timer, RETRY_MS, 0);
    while ((message = curl_multi_info_read(connector->multi, &count)))
        if (message->msg == CURLMSG_DONE &&
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &connect) == CURLE_OK)
            end_connect(connect, message->data.result);
}

static void on_timer(uv_timer_t *timer)
{
    act(container_of(timer, struct http_connector, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timer(CURLM *multi, long timeout_ms, void *context)
{
    (void)multi;
    struct http_connector *connector = context;
    uv_timer_stop(&connector->timer);
    if (timeout_ms >= 0)
        uv_timer_start(&connector->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

/* ---- its sockets ---- */

static void on_watch_closed(uv_handle_t *handle)
{
    struct http_watch *watch = container_of((uv_poll_t *)handle, struct http_watch, poll);
    struct http_connector *connector = watch->connector;
    free(watch);
    connector->watches_open--;
    if (connector->is_closing)
        closing_part_closed(&connector->closing);
}

/* NULL: out of memory. */
static struct http_watch *new_watch(struct http_connector *connector, int fd)
{
    struct http_watch *watch = calloc(1, sizeof(*watch));
    if (!watch || uv_poll_init(connector->loop, &watch->poll, fd) != 0) {
        free(watch);
        return NULL;
    }
    watch->connector = connector;
    watch->fd = fd;
    connector->watches_open++;
    (void)curl_multi_assign(connector->multi, fd, watch); /* cannot fail: curl knows the socket that it tells of */
    return watch;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct http_watch *watch = container_of(poll, struct http_watch, poll);
    int flags = (events & UV_READABLE ? CURL_CSELECT_IN : 0) | (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0);
    act(watch->connector, watch->fd, status < 0 ? CURL_CSELECT_ERR : flags);
}

/* `of_socket`: its watcher. */
static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *of_socket)
{
    (void)easy;
    struct http_watch *watch = of_socket;
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    if (what == CURL_POLL_REMOVE) {
        if (watch)
            uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
        (void)curl_multi_assign(((struct http_connector *)context)->multi, fd, NULL);
        return 0;
    }
    if (!watch)
        watch = new_watch(context, fd);
    if (watch) /* -1 would end every transfer; without a watcher this one ends by its timer */
        uv_poll_start(&watch->poll, events, on_poll);
    return 0;
}

/* ---- opening and closing ---- */

bool http_connector_open(struct http_connector *ret_connector, uv_loop_t *loop, struct err *err)
{
    static uv_once_t once = UV_ONCE_INIT;
    uv_once(&once, init_curl);
    if (!curl_ready)
        return err_set(err, ERR_SYSTEM, "libcurl does not start");
    CURLM *multi = curl_multi_init();
    if (!multi || curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, ret_connector) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_curl_timer) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_TIMERDATA, ret_connector) != CURLM_OK) {
        curl_multi_cleanup(multi);
        return err_set(err, ERR_MEMORY, "out of memory for the HTTP client");
    }
    *ret_connector = (struct http_connector){.loop = loop, .multi = multi};
    uv_timer_init(loop, &ret_connector->timer);
    return true;
}

void http_connector_close(struct http_connector *connector, void (*on_closed)(void *context), void *context)
{
    curl_multi_cleanup(connector->multi); /* on_curl_socket() is called from here */
    connector->multi = NULL;
    connector->is_closing = true;
    closing_start(&connector->closing, NULL, NULL, on_closed, context);
    for (int i = 0; i < connector->watches_open; i++)
        closing_part(&connector->closing);
    closing_handle(&connector->closing, &connector->timer);
    closing_end(&connector->closing);
}
