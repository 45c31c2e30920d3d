/* See cell_router_socket.h.
 *
 * Invariants: a call ends within ASK_MS, whatever the other side does; an answer is bounded (the maximum of the
 * caller's buffer) and printed only with its control characters replaced.
 * Left out: a connection for many calls; HAProxy closes after one line, unless it is told otherwise. */
#include "ctl/cells/cell_router_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/config/config_value.h"

#define ASK_MS 500 /* part of a bucket's pause */
#define READ_SIZE 16384

static bool fail(struct cell_place *place, const char *what, const char *why)
{
    snprintf(place->why, sizeof(place->why), "%.40s: %.150s", what, why);
    place->is_failed = true;
    return false;
}

void cell_socket_note(struct cell_place *place, const char *what, struct slice answer)
{
    char line[120];
    size_t length = 0;
    while (answer.length > 0 && (answer.bytes[0] == '\n' || answer.bytes[0] == '\r')) {
        answer.bytes++;
        answer.length--;
    }
    for (; length < answer.length && length + 1 < sizeof(line) && answer.bytes[length] != '\n'; length++)
        line[length] = answer.bytes[length] >= ' ' && answer.bytes[length] < 0x7f ? answer.bytes[length] : '?';
    line[length] = '\0';
    (void)fail(place, what, length > 0 ? line : "no answer");
}

static bool find_unix(struct cell_place *place)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(place->name);
    if (length >= sizeof(address.sun_path))
        return fail(place, "find", "the path is too long for a socket");
    memcpy(address.sun_path, place->name, length + 1);
    memcpy(&place->address, &address, sizeof(address));
    place->address_length = sizeof(address);
    return true;
}

bool cell_socket_find(struct cell_place *place)
{
    char host[CONFIG_HOST_SIZE], port_text[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    struct err err;
    int port;
    if (place->name[0] == '/')
        return find_unix(place);
    if (!config_value_address(place->name, host, &port, &err))
        return fail(place, "find", err.message);
    snprintf(port_text, sizeof(port_text), "%d", port);
    int code = getaddrinfo(host, port_text, &hints, &found);
    if (code != 0)
        return fail(place, "find", gai_strerror(code));
    memcpy(&place->address, found->ai_addr, found->ai_addrlen);
    place->address_length = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

static bool await(struct cell_place *place, int fd, short events, int64_t until_ms, const char *what)
{
    for (;;) {
        struct pollfd socket = {.fd = fd, .events = events};
        int64_t left_ms = until_ms - clock_mono_ms();
        if (left_ms <= 0)
            return fail(place, what, "no answer in time");
        int ready = poll(&socket, 1, (int)left_ms);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return fail(place, what, strerror(errno));
    }
}

static bool open_socket(struct cell_place *place, int fd, int64_t until_ms)
{
    int code = 0;
    socklen_t size = sizeof(code);
    if (connect(fd, (const struct sockaddr *)&place->address, place->address_length) == 0)
        return true;
    if (errno != EINPROGRESS)
        return fail(place, "connect", strerror(errno));
    if (!await(place, fd, POLLOUT, until_ms, "connect"))
        return false;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0)
        code = errno;
    return code == 0 || fail(place, "connect", strerror(code));
}

static bool send_all(struct cell_place *place, int fd, struct slice line, int64_t until_ms)
{
    while (line.length > 0) {
        ssize_t sent = send(fd, line.bytes, line.length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return fail(place, "send", strerror(errno));
        if (sent > 0) {
            line.bytes += sent;
            line.length -= (size_t)sent;
        } else if (!await(place, fd, POLLOUT, until_ms, "send")) {
            return false;
        }
    }
    return true;
}

static bool receive_all(struct cell_place *place, int fd, struct buf *answer, int64_t until_ms)
{
    for (;;) {
        char *room = buf_reserve(answer, READ_SIZE);
        if (!room)
            return fail(place, "read", "the answer is too long");
        ssize_t length = recv(fd, room, READ_SIZE, 0);
        if (length == 0)
            return true;
        if (length > 0)
            answer->length += (size_t)length;
        else if (errno != EAGAIN && errno != EINTR)
            return fail(place, "read", strerror(errno));
        if (!await(place, fd, POLLIN, until_ms, "read"))
            return false;
    }
}

bool cell_socket_ask(struct cell_place *place, struct slice line, struct buf *answer)
{
    int64_t until_ms = clock_mono_ms() + ASK_MS;
    buf_reset(answer);
    if (place->address_length == 0 && !cell_socket_find(place))
        return false;
    int fd = socket(place->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(place, "socket", strerror(errno));
    bool is_done = open_socket(place, fd, until_ms) && send_all(place, fd, line, until_ms) &&
                   receive_all(place, fd, answer, until_ms);
    close(fd);
    return is_done;
}
