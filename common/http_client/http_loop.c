/* Runs libcurl on the loop of the program.
 *
 * How libcurl and libuv are connected, and why:
 * - curl sets a timer: -1 stops it, 0 means soon. The timer never runs inside that callback, because curl is not
 *   reentrant there. While a peer sends a lot, curl interrupts its reading by a timer of 0. libuv would run that in the
 *   same turn of the loop, again and again: so a timer that curl sets while one runs waits for the next turn.
 * - curl reports which events of a socket it is interested in. It still does so while curl_multi_cleanup() runs, so
 *   watchers outlive the multi handle.
 * - After EVERY curl_multi_socket_action() the completions are read: one action may finish any number of transfers.
 * - libuv reports a broken socket as a negative status and has stopped the watcher by then; curl gets CURL_CSELECT_ERR.
 * - A watcher lives as long as its connection (sockets are opened and closed here), not as long as curl's interest: a
 *   pooled connection costs no epoll_ctl per call. Sockets that curl opens by itself (its name resolver's) are watched
 *   while curl is interested in them.
 *
 * Invariants: one watcher a descriptor; it is closed before its descriptor is, because the number may be used again at
 * once. What curl frees is wiped, because its buffers hold credentials and card numbers.
 * Left out: what a transfer is for (http_transfer.c, plain/http_connect.c). */
#include "common/http_client/http_loop.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/closing.h"
#include "common/base/secret.h"

#define RETRY_MS 20
/* Nearly every answer comes in one piece of this size or less; what curl reads into is wiped after each call. */
#define READ_SIZE 1536L
#define UPLOAD_SIZE 16384L /* curl's least; with TLS it copies each request into one */

struct http_watch {
    uv_poll_t poll;
    struct http_lane *lane;
    int fd;
    int wanted;         /* UV_READABLE | UV_WRITABLE as curl is interested; 0 = idle */
    int watched;        /* what the loop watches now */
    bool is_connection; /* opened by open_socket(): goes with close_socket() only */
};

/* ---- what curl frees is wiped ---- */

static void wiping_free(void *bytes)
{
    if (!bytes) /* most calls of curl's are such */
        return;
    secret_wipe(bytes, malloc_usable_size(bytes));
    free(bytes);
}

static void *wiping_realloc(void *old, size_t size)
{
    size_t old_size = old ? malloc_usable_size(old) : 0;
    if (old && size <= old_size)
        return old;
    void *bytes = malloc(size);
    if (bytes && old) {
        memcpy(bytes, old, old_size < size ? old_size : size);
        wiping_free(old);
    }
    return bytes;
}

static bool curl_ready;

static void init_curl(void)
{
    curl_ready =
        curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wiping_free, wiping_realloc, strdup, calloc) == CURLE_OK;
}

/* ---- transfers ---- */

static void read_completions(struct http_lane *lane)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(lane->multi, &left)))
        if (message->msg == CURLMSG_DONE)
            lane->on_done(message->easy_handle, message->data.result);
}

static void on_timer(uv_timer_t *timer);

static void act(struct http_lane *lane, curl_socket_t fd, int flags)
{
    int running;
    lane->loop->turn.number++;
    /* When curl is out of memory it does not set its timer, and a call would wait for ever. */
    if (curl_multi_socket_action(lane->multi, fd, flags, &running) != CURLM_OK)
        uv_timer_start(&lane->timer, on_timer, RETRY_MS, 0);
    read_completions(lane);
}

static void on_timer(uv_timer_t *timer)
{
    struct http_lane *lane = container_of(timer, struct http_lane, timer);
    lane->is_in_timer = true;
    act(lane, CURL_SOCKET_TIMEOUT, 0);
    lane->is_in_timer = false;
}

static void on_next_turn(uv_idle_t *next_turn)
{
    uv_idle_stop(next_turn);
    act(container_of(next_turn, struct http_lane, next_turn), CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timer(CURLM *multi, long timeout_ms, void *context)
{
    (void)multi;
    struct http_lane *lane = context;
    uv_timer_stop(&lane->timer);
    uv_idle_stop(&lane->next_turn);
    /* guard: a timer that is named while one is served waits for the next turn */
    if (timeout_ms == 0 && lane->is_in_timer)
        uv_idle_start(&lane->next_turn, on_next_turn);
    else if (timeout_ms >= 0)
        uv_timer_start(&lane->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

/* ---- watchers ---- */

static void on_watch_closed(uv_handle_t *handle)
{
    struct http_watch *watch = container_of((uv_poll_t *)handle, struct http_watch, poll);
    struct http_loop *loop = watch->lane->loop;
    free(watch);
    loop->watches_open--;
    if (loop->is_closing)
        closing_part_closed(&loop->closing);
}

static struct http_watch *watch_of(struct http_loop *loop, int fd)
{
    return fd < loop->watches_size ? loop->watches[fd] : NULL;
}

static void watch_drop(struct http_watch *watch)
{
    watch->lane->loop->watches[watch->fd] = NULL;
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

static struct http_watch *watch_new(struct http_lane *lane, int fd, bool is_connection)
{
    struct http_loop *loop = lane->loop;
    if (!grow_watches(loop, fd))
        return NULL;
    if (loop->watches[fd]) /* its socket went without close_socket(): the number is a new one's */
        watch_drop(loop->watches[fd]);
    struct http_watch *watch = calloc(1, sizeof(*watch));
    if (!watch || uv_poll_init(loop->loop, &watch->poll, fd) != 0) {
        free(watch);
        return NULL;
    }
    watch->lane = lane;
    watch->fd = fd;
    watch->is_connection = is_connection;
    loop->watches[fd] = watch;
    loop->watches_open++;
    return watch;
}

static void watch_stop(struct http_watch *watch)
{
    uv_poll_stop(&watch->poll);
    watch->watched = 0;
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* Before curl uses a pooled connection it checks whether the peer has closed it, and mistakes an unread TLS
 * close_notify for a live connection. So it is read here. */
static void on_idle_event(struct http_watch *watch, int status, int events)
{
    char bytes[256];
    watch_stop(watch);
    if (status < 0)
        return;
    if (events & UV_DISCONNECT)
        while (recv(watch->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
            continue;
    else if (uv_poll_start(&watch->poll, UV_DISCONNECT, on_poll) == 0) /* it is a session ticket */
        watch->watched = UV_DISCONNECT;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct http_watch *watch = container_of(poll, struct http_watch, poll);
    if (!watch->wanted) {
        on_idle_event(watch, status, events);
        return;
    }
    int flags = 0;
    if (status < 0) {
        flags = CURL_CSELECT_ERR;
        watch_stop(watch);
    } else {
        if (events & UV_READABLE)
            flags |= CURL_CSELECT_IN;
        if (events & UV_WRITABLE)
            flags |= CURL_CSELECT_OUT;
    }
    act(watch->lane, watch->fd, flags); /* may drop the watch; its memory stays until the loop has closed it */
}

/* An idle connection stays watched for reading, unreferenced, so that the next call needs no system call for it. */
static void watch_idle(struct http_watch *watch)
{
    watch->wanted = 0;
    uv_unref((uv_handle_t *)&watch->poll);
    if (watch->watched != UV_READABLE)
        watch_stop(watch);
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *unused)
{
    (void)easy;
    (void)unused;
    struct http_lane *lane = context;
    struct http_watch *watch = watch_of(lane->loop, fd);
    if (what == CURL_POLL_REMOVE) {
        if (watch && watch->is_connection)
            watch_idle(watch);
        else if (watch)
            watch_drop(watch);
        return 0;
    }
    if (!watch)
        watch = watch_new(lane, fd, false);
    if (!watch)
        return 0; /* -1 would end every transfer; this one ends by its timer */
    watch->wanted = 0;
    if (what & CURL_POLL_IN)
        watch->wanted |= UV_READABLE;
    if (what & CURL_POLL_OUT)
        watch->wanted |= UV_WRITABLE;
    uv_ref((uv_handle_t *)&watch->poll);
    int events = watch->wanted | (watch->wanted & UV_READABLE ? UV_DISCONNECT : 0); /* see on_idle_event() */
    if (watch->wanted != watch->watched && uv_poll_start(&watch->poll, events, on_poll) == 0)
        watch->watched = watch->wanted;
    return 0;
}

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    struct http_lane **lane = context;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0 && !watch_new(*lane, fd, true)) {
        close(fd);
        return CURL_SOCKET_BAD;
    }
    return fd;
}

static int close_socket(void *context, curl_socket_t fd)
{
    struct http_watch *watch = watch_of(context, fd);
    if (watch)
        watch_drop(watch);
    return close(fd);
}

/* ---- for the transports ---- */

bool http_loop_open(struct http_loop *ret_loop, uv_loop_t *uv, struct err *err)
{
    static uv_once_t once = UV_ONCE_INIT;
    uv_once(&once, init_curl);
    if (!curl_ready)
        return err_set(err, ERR_SYSTEM, "libcurl does not start");
    CURLSH *share = curl_share_init();
    if (!share || curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS) != CURLSHE_OK ||
        curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) != CURLSHE_OK) {
        curl_share_cleanup(share);
        return err_set(err, ERR_MEMORY, "out of memory for the HTTP client");
    }
    *ret_loop = (struct http_loop){.loop = uv, .share = share};
    return true;
}

struct http_lane *http_lane_new(struct http_loop *loop, int connections_max, void (*on_done)(CURL *easy, CURLcode code))
{
    struct http_lane *lane = calloc(1, sizeof(*lane));
    CURLM *multi = lane ? curl_multi_init() : NULL;
    if (!multi || curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)connections_max) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, lane) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_curl_timer) != CURLM_OK ||
        curl_multi_setopt(multi, CURLMOPT_TIMERDATA, lane) != CURLM_OK) {
        curl_multi_cleanup(multi);
        free(lane);
        return NULL;
    }
    lane->loop = loop;
    lane->multi = multi;
    lane->on_done = on_done;
    lane->next = loop->lanes;
    loop->lanes = lane;
    uv_timer_init(loop->loop, &lane->timer);
    uv_idle_init(loop->loop, &lane->next_turn);
    return lane;
}

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

bool http_loop_adopt(struct http_loop *loop, CURL *easy, struct http_lane **lane, char *problem)
{
    return SET(CURLOPT_SHARE, loop->share) && SET(CURLOPT_OPENSOCKETFUNCTION, open_socket) &&
           SET(CURLOPT_OPENSOCKETDATA, lane) && SET(CURLOPT_CLOSESOCKETFUNCTION, close_socket) &&
           SET(CURLOPT_CLOSESOCKETDATA, loop) && SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_VERBOSE, 0L) &&
           SET(CURLOPT_ERRORBUFFER, problem) && SET(CURLOPT_PROTOCOLS_STR, "http,https") &&
           SET(CURLOPT_FOLLOWLOCATION, 0L) && SET(CURLOPT_PROXY, "") &&
           SET(CURLOPT_NOPROXY, "*") && /* else it looks for one in the environment each time */
           SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) && SET(CURLOPT_BUFFERSIZE, READ_SIZE) &&
           SET(CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_SIZE) && SET(CURLOPT_TCP_KEEPALIVE, 1L) &&
           /* a name server that hangs must not hold up the loop when the call's time is over */
           SET(CURLOPT_QUICK_EXIT, 1L);
}

#undef SET

bool http_lane_start(struct http_lane *lane, CURL *easy)
{
    return curl_multi_add_handle(lane->multi, easy) == CURLM_OK;
}

void http_lane_stop(struct http_lane *lane, CURL *easy)
{
    curl_multi_remove_handle(lane->multi, easy);
}

static void release_loop(void *context)
{
    struct http_loop *loop = context;
    for (struct http_lane *lane = loop->lanes, *next; lane; lane = next) {
        next = lane->next;
        free(lane);
    }
    loop->lanes = NULL;
    free(loop->watches);
    loop->watches = NULL;
}

void http_loop_close(struct http_loop *loop, void (*on_closed)(void *context), void *context)
{
    for (struct http_lane *lane = loop->lanes; lane; lane = lane->next) {
        curl_multi_cleanup(lane->multi); /* on_curl_socket() and close_socket() are called from here */
        lane->multi = NULL;
    }
    for (int fd = 0; fd < loop->watches_size; fd++)
        if (loop->watches[fd])
            watch_drop(loop->watches[fd]);
    curl_share_cleanup(loop->share);
    loop->share = NULL;
    loop->is_closing = true;
    closing_start(&loop->closing, release_loop, loop, on_closed, context);
    for (int i = 0; i < loop->watches_open; i++)
        closing_part(&loop->closing);
    for (struct http_lane *lane = loop->lanes; lane; lane = lane->next) {
        closing_handle(&loop->closing, &lane->timer);
        closing_handle(&loop->closing, &lane->next_turn);
    }
    closing_end(&loop->closing);
}
