/* See http_connect.h. A transfer of libcurl's that ends when its connection is made (CURLOPT_CONNECT_ONLY). The
 * descriptor is duplicated, because curl closes its own with the transfer. */
#include "common/http_client/plain/http_connect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct http_connect {
    struct http_plain_origin *origin;
    struct http_connect *next, *previous;
    CURL *easy;
    struct http_lane *lane;
    void (*on_end)(struct http_plain_origin *origin, int fd, const char *why);
    char problem[CURL_ERROR_SIZE];
};

static void free_connect(struct http_connect *connect)
{
    if (connect->previous)
        connect->previous->next = connect->next;
    else
        connect->origin->connects = connect->next;
    if (connect->next)
        connect->next->previous = connect->previous;
    http_lane_stop(connect->lane, connect->easy);
    curl_easy_cleanup(connect->easy);
    free(connect);
}

static void on_done(CURL *easy, CURLcode code)
{
    struct http_connect *connect = NULL;
    curl_socket_t socket = CURL_SOCKET_BAD;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &connect);
    char why[CURL_ERROR_SIZE];
    snprintf(why, sizeof(why), "%s", connect->problem[0] ? connect->problem : curl_easy_strerror(code));
    if (code == CURLE_OK)
        curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &socket);
    int fd = socket == CURL_SOCKET_BAD ? -1 : fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 && code == CURLE_OK)
        snprintf(why, sizeof(why), "%s", strerror(errno));
    struct http_plain_origin *origin = connect->origin;
    void (*on_end)(struct http_plain_origin *, int, const char *) = connect->on_end;
    free_connect(connect);
    /* guard: a connection that took too long ends no call that has time */
    on_end(origin, fd, code == CURLE_OPERATION_TIMEDOUT ? NULL : why);
}

static bool set_options(struct http_connect *connect, int64_t timeout_ms)
{
    CURL *easy = connect->easy;
    return http_loop_adopt(connect->origin->plain->loop, easy, &connect->lane, connect->problem) &&
           curl_easy_setopt(easy, CURLOPT_PRIVATE, connect) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CURLU, connect->origin->origin->address) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)timeout_ms) == CURLE_OK;
}

bool http_connect_start(struct http_plain_origin *origin, int64_t timeout_ms,
                        void (*on_end)(struct http_plain_origin *origin, int fd, const char *why))
{
    struct http_plain *plain = origin->plain;
    if (!plain->connect_lane)
        plain->connect_lane = http_lane_new(plain->loop, 1, on_done);
    struct http_connect *connect = plain->connect_lane ? calloc(1, sizeof(*connect)) : NULL;
    if (!connect)
        return false;
    *connect = (struct http_connect){.origin = origin,
                                     .next = origin->connects,
                                     .easy = curl_easy_init(),
                                     .lane = plain->connect_lane,
                                     .on_end = on_end};
    if (!connect->easy || !set_options(connect, timeout_ms) || !http_lane_start(connect->lane, connect->easy)) {
        curl_easy_cleanup(connect->easy);
        free(connect);
        return false;
    }
    if (origin->connects)
        origin->connects->previous = connect;
    origin->connects = connect;
    return true;
}

void http_connect_stop_all(struct http_plain_origin *origin)
{
    for (struct http_connect *connect = origin->connects, *next; connect; connect = next) {
        next = connect->next;
        free_connect(connect);
    }
}
