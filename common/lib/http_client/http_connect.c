/* See http_connect.h. A transfer of libcurl's that ends when its connection is made (CURLOPT_CONNECT_ONLY). The
 * descriptor is duplicated, because curl closes its own with the transfer. */
#include "common/lib/http_client/http_connect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"

struct http_connect {
    struct http_loop_transfer transfer;
    struct http_pool_origin *origin;
    struct http_connect *next, *previous;
    int64_t deadline_ms;
    void (*on_end)(struct http_pool_origin *origin, int fd, int64_t deadline_ms, const char *why);
};

static void free_connect(struct http_connect *connect)
{
    if (connect->previous)
        connect->previous->next = connect->next;
    else
        connect->origin->connects = connect->next;
    if (connect->next)
        connect->next->previous = connect->previous;
    http_loop_stop(connect->origin->pool->loop, &connect->transfer);
    free(connect);
}

static void on_done(struct http_loop_transfer *transfer, CURLcode code)
{
    struct http_connect *connect = container_of(transfer, struct http_connect, transfer);
    curl_socket_t socket = CURL_SOCKET_BAD;
    char why[CURL_ERROR_SIZE];
    snprintf(why, sizeof(why), "%s", transfer->problem[0] ? transfer->problem : curl_easy_strerror(code));
    if (code == CURLE_OK)
        curl_easy_getinfo(transfer->easy, CURLINFO_ACTIVESOCKET, &socket);
    int fd = socket == CURL_SOCKET_BAD ? -1 : fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 && code == CURLE_OK)
        snprintf(why, sizeof(why), "%s", strerror(errno));
    struct http_connect ended = *connect;
    free_connect(connect);
    /* guard: a connection that took too long ends no call that has time */
    ended.on_end(ended.origin, fd, ended.deadline_ms, code == CURLE_OPERATION_TIMEDOUT ? NULL : why);
}

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

static bool set_options(CURL *easy, const struct http_url_origin *origin, int64_t timeout_ms)
{
    return SET(CURLOPT_CURLU, origin->address) && SET(CURLOPT_CONNECT_ONLY, 1L) &&
           SET(CURLOPT_CONNECTTIMEOUT_MS, (long)timeout_ms) &&
           /* guard: a proxy of the environment is none of ours */
           SET(CURLOPT_PROXY, "");
}

#undef SET

bool http_connect_start(struct http_pool_origin *origin, int64_t deadline_ms,
                        void (*on_end)(struct http_pool_origin *origin, int fd, int64_t deadline_ms, const char *why))
{
    struct http_connect *connect = calloc(1, sizeof(*connect));
    if (!connect)
        return false;
    *connect = (struct http_connect){.transfer = {.easy = curl_easy_init(), .on_done = on_done},
                                     .origin = origin,
                                     .next = origin->connects,
                                     .deadline_ms = deadline_ms,
                                     .on_end = on_end};
    int64_t left_ms = deadline_ms - clock_mono_ms();
    if (!connect->transfer.easy || !set_options(connect->transfer.easy, origin->origin, left_ms < 1 ? 1 : left_ms) ||
        !http_loop_start(origin->pool->loop, &connect->transfer)) {
        curl_easy_cleanup(connect->transfer.easy);
        free(connect);
        return false;
    }
    if (origin->connects)
        origin->connects->previous = connect;
    origin->connects = connect;
    return true;
}

void http_connect_stop_all(struct http_pool_origin *origin)
{
    for (struct http_connect *connect = origin->connects, *next; connect; connect = next) {
        next = connect->next;
        free_connect(connect);
    }
}
