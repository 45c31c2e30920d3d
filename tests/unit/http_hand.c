/* See http_hand.h. SIGPIPE is as it was: a client that needs it ignored ends the test. */
#include "tests/unit/http_hand.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/unit/failing.h"

struct hand hand;
static bool inside_start;
static int fillers[2] = {-1, -1};

int hand_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(folder);
    int count = -1; /* its own */
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void make_address(struct sockaddr_in *address)
{
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)hand.port)};
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

void hand_open(int connections_max)
{
    struct http_client_options options = {.connections_max = connections_max, .answer_max = HAND_ANSWER_MAX};
    ck_assert(http_client_open(&hand.loop, &options, &hand.client, NULL));
    hand.is_closed = false;
}

static void on_anchor(uv_timer_t *timer)
{
    (void)timer;
}

void hand_set_up(void)
{
    struct rlimit files = {.rlim_cur = 0};
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 2048 && files.rlim_max >= 2048) {
        files.rlim_cur = 2048;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    memset(&hand, 0, sizeof(hand));
    uv_loop_t first; /* what libuv opens once for a process stays */
    ck_assert_int_eq(uv_loop_init(&first), 0);
    ck_assert_int_eq(uv_loop_close(&first), 0);
    hand.descriptors = hand_descriptors();
    struct sockaddr_in address;
    make_address(&address);
    socklen_t length = sizeof(address);
    hand.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(hand.listener, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(hand.listener, 1024), 0);
    ck_assert_int_eq(getsockname(hand.listener, (struct sockaddr *)&address, &length), 0);
    hand.port = ntohs(address.sin_port);
    ck_assert_int_eq(uv_loop_init(&hand.loop), 0);
    uv_timer_init(&hand.loop, &hand.anchor);
    uv_timer_start(&hand.anchor, on_anchor, 3600000, 3600000);
    hand_open(64);
}

static void on_closed(void *context)
{
    bool was_paused = allocations_pause(true);
    ck_assert_ptr_eq(context, &hand);
    ck_assert(!hand.is_closed);
    allocations_pause(was_paused);
    hand.is_closed = true;
    hand.client = NULL;
}

void hand_close_client(void)
{
    http_client_close(hand.client, on_closed, &hand);
}

void hand_stop_listening(void)
{
    if (hand.listener >= 0)
        close(hand.listener);
    hand.listener = -1;
}

void hand_tear_down(void)
{
    if (hand.client) {
        hand_close_client();
        ck_assert(!hand.is_closed);
    }
    uv_close((uv_handle_t *)&hand.anchor, NULL);
    uv_run(&hand.loop, UV_RUN_DEFAULT);
    ck_assert(hand.is_closed);
    ck_assert_int_eq(uv_loop_close(&hand.loop), 0);
    hand_stop_listening();
    ck_assert_int_eq(hand_descriptors(), hand.descriptors);
    clock_release();
}

void hand_have_no_room(void)
{
    struct sockaddr_in address;
    make_address(&address);
    ck_assert_int_eq(listen(hand.listener, 0), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, sizeof(address));
    }
}

void hand_make_room(void)
{
    ck_assert_int_eq(listen(hand.listener, 1024), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fillers); i++)
        close(fillers[i]);
    int fd = accept4(hand.listener, NULL, NULL, SOCK_CLOEXEC); /* a filler's */
    ck_assert_int_ge(fd, 0);
    close(fd);
}

/* ---- the calls ---- */

static void on_done(struct http_call *call)
{
    bool was_paused = allocations_pause(true);
    struct hand_call *own = container_of(call, struct hand_call, call);
    ck_assert(!inside_start);
    ck_assert_ptr_null(call->client);
    own->ends++;
    own->order = ++hand.ended;
    if (own->then)
        own->then(own);
    allocations_pause(was_paused);
}

void hand_make(struct hand_call *call, const char *method, const char *path)
{
    http_call_make(&call->call, method);
    if (path[0] == '/')
        buf_put_format(&call->call.lines, "http://127.0.0.1:%d%s", hand.port, path);
    else
        buf_put_text(&call->call.lines, path);
    http_call_end_line(&call->call);
    if (method[0] == 'P')
        buf_put_text(&call->call.body, "{\"body\":\"of the request\"}");
}

void hand_prepare(struct hand_call *call, const char *method, const char *path)
{
    memset(call, 0, sizeof(*call));
    http_call_init(&call->call, HAND_ANSWER_MAX);
    hand_make(call, method, path);
    call->call.timeout_ms = 60000;
    call->call.on_done = on_done;
}

void hand_start(struct hand_call *call)
{
    inside_start = true;
    http_client_start(hand.client, &call->call);
    inside_start = false;
}

void hand_call(struct hand_call *call, const char *path)
{
    hand_prepare(call, "POST", path);
    hand_start(call);
}

void hand_turn(void)
{
    uv_run(&hand.loop, UV_RUN_NOWAIT);
}

void hand_wait(struct hand_call *call)
{
    HAND_UNTIL(call->ends > 0);
    ck_assert_int_eq(call->ends, 1);
}

void hand_settle(void)
{
    for (int i = 0; i < 10; i++)
        hand_turn();
}

/* ---- the peer ---- */

bool hand_has_connection(void)
{
    struct pollfd poller = {.fd = hand.listener, .events = POLLIN};
    return poll(&poller, 1, 0) > 0;
}

int hand_accept(void)
{
    HAND_UNTIL(hand_has_connection());
    int fd = accept4(hand.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), yes = 1;
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)); /* what is said is said now */
    return fd;
}

static bool is_whole(const char *text, size_t length)
{
    const char *end = strstr(text, "\r\n\r\n");
    const char *field = strstr(text, "Content-Length: ");
    size_t body = field && end && field < end ? strtoul(field + 16, NULL, 10) : 0;
    return end && length >= (size_t)(end + 4 - text) + body;
}

void hand_hear(int fd, char *text)
{
    size_t length = 0;
    text[0] = '\0';
    while (!is_whole(text, length)) {
        ssize_t count = read(fd, text + length, HAND_REQUEST_SIZE - 1 - length);
        ck_assert_msg(count > 0 || (count < 0 && errno == EAGAIN), "the client left in its request: %s", text);
        if (count < 0) {
            struct pollfd poller = {.fd = fd, .events = POLLIN};
            HAND_UNTIL(poll(&poller, 1, 0) > 0);
        }
        length += count > 0 ? (size_t)count : 0;
        text[length] = '\0';
    }
}

void hand_take(int fd)
{
    static char text[HAND_REQUEST_SIZE];
    hand_hear(fd, text);
    explicit_bzero(text, sizeof(text));
}

size_t hand_peek(int fd, char *text)
{
    ssize_t count = real_recv(fd, text, HAND_REQUEST_SIZE - 1, MSG_PEEK | MSG_DONTWAIT);
    size_t length = count > 0 ? (size_t)count : 0;
    text[length] = '\0';
    return length;
}

void hand_say_bytes(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t count = real_send(fd, bytes, length, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN) {
            hand_turn();
            continue;
        }
        if (count <= 0)
            return; /* the client had enough */
        bytes += count;
        length -= (size_t)count;
    }
}

void hand_say(int fd, const char *text)
{
    hand_say_bytes(fd, text, strlen(text));
}

void hand_answer(int fd, const char *body)
{
    char text[512];
    int length = snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    ck_assert_int_lt(length, (int)sizeof(text));
    hand_say_bytes(fd, text, (size_t)length);
}

void hand_close(int fd)
{
    close(fd);
}

void hand_reset(int fd)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    close(fd);
}

bool hand_is_left(int fd)
{
    char bytes[4096];
    ssize_t count;
    do
        count = read(fd, bytes, sizeof(bytes));
    while (count > 0);
    return count == 0 || errno != EAGAIN;
}
