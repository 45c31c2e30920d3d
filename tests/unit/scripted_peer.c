/* See scripted_peer.h. SIGPIPE is as it was: a client that needs it ignored ends the test. */
#include "tests/unit/scripted_peer.h"

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

#include "common/base/clock.h"
#include "tests/unit/fault_injection.h"

struct scripted_peer scripted;
static bool inside_start;
static int fillers[2] = {-1, -1};

int scripted_descriptors(void)
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
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)scripted.port)};
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

void scripted_open(int connections_max)
{
    struct http_client_options options = {.connections_max = connections_max, .answer_max = SCRIPTED_ANSWER_MAX};
    ck_assert(http_client_open(&scripted.loop, &options, &scripted.client, NULL));
    scripted.is_closed = false;
}

static void on_anchor(uv_timer_t *timer)
{
    (void)timer;
}

void scripted_set_up(void)
{
    struct rlimit files = {.rlim_cur = 0};
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 2048 && files.rlim_max >= 2048) {
        files.rlim_cur = 2048;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    memset(&scripted, 0, sizeof(scripted));
    uv_loop_t first; /* what libuv opens once for a process stays */
    ck_assert_int_eq(uv_loop_init(&first), 0);
    ck_assert_int_eq(uv_loop_close(&first), 0);
    scripted.descriptors = scripted_descriptors();
    struct sockaddr_in address;
    make_address(&address);
    socklen_t length = sizeof(address);
    scripted.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(scripted.listener, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(scripted.listener, 1024), 0);
    ck_assert_int_eq(getsockname(scripted.listener, (struct sockaddr *)&address, &length), 0);
    scripted.port = ntohs(address.sin_port);
    ck_assert_int_eq(uv_loop_init(&scripted.loop), 0);
    uv_timer_init(&scripted.loop, &scripted.anchor);
    uv_timer_start(&scripted.anchor, on_anchor, 3600000, 3600000);
    scripted_open(64);
}

static void on_closed(void *context)
{
    bool was_paused = allocations_pause(true);
    ck_assert_ptr_eq(context, &scripted);
    ck_assert(!scripted.is_closed);
    allocations_pause(was_paused);
    scripted.is_closed = true;
    scripted.client = NULL;
}

void scripted_close_client(void)
{
    http_client_close(scripted.client, on_closed, &scripted);
}

void scripted_stop_listening(void)
{
    if (scripted.listener >= 0)
        close(scripted.listener);
    scripted.listener = -1;
}

void scripted_tear_down(void)
{
    if (scripted.client) {
        scripted_close_client();
        ck_assert(!scripted.is_closed);
    }
    uv_close((uv_handle_t *)&scripted.anchor, NULL);
    uv_run(&scripted.loop, UV_RUN_DEFAULT);
    ck_assert(scripted.is_closed);
    ck_assert_int_eq(uv_loop_close(&scripted.loop), 0);
    scripted_stop_listening();
    ck_assert_int_eq(scripted_descriptors(), scripted.descriptors);
    clock_release();
}

void scripted_fill_backlog(void)
{
    struct sockaddr_in address;
    make_address(&address);
    ck_assert_int_eq(listen(scripted.listener, 0), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, sizeof(address));
    }
}

void scripted_empty_backlog(void)
{
    ck_assert_int_eq(listen(scripted.listener, 1024), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fillers); i++)
        close(fillers[i]);
    int fd = accept4(scripted.listener, NULL, NULL, SOCK_CLOEXEC); /* a filler's */
    ck_assert_int_ge(fd, 0);
    close(fd);
}

/* ---- the calls ---- */

static void on_done(struct http_call *call)
{
    bool was_paused = allocations_pause(true);
    struct scripted_call *own = container_of(call, struct scripted_call, call);
    ck_assert(!inside_start);
    ck_assert_ptr_null(call->client);
    own->ends++;
    own->order = ++scripted.ended;
    if (own->then)
        own->then(own);
    allocations_pause(was_paused);
}

void scripted_make(struct scripted_call *call, const char *method, const char *path)
{
    char base[32] = "";
    if (path[0] == '/')
        snprintf(base, sizeof(base), "http://127.0.0.1:%d", scripted.port);
    http_call_make(&call->call, method, base);
    http_call_url(&call->call, path);
    if (method[0] == 'P')
        buf_put_text(&call->call.body, "{\"body\":\"of the request\"}");
}

void scripted_prepare(struct scripted_call *call, const char *method, const char *path)
{
    memset(call, 0, sizeof(*call));
    http_call_init(&call->call, SCRIPTED_ANSWER_MAX);
    scripted_make(call, method, path);
    call->call.timeout_ms = 60000;
    call->call.on_done = on_done;
}

void scripted_start(struct scripted_call *call)
{
    inside_start = true;
    http_client_start(scripted.client, &call->call);
    inside_start = false;
}

void scripted_call(struct scripted_call *call, const char *path)
{
    scripted_prepare(call, "POST", path);
    scripted_start(call);
}

void scripted_turn(void)
{
    uv_run(&scripted.loop, UV_RUN_NOWAIT);
}

void scripted_wait(struct scripted_call *call)
{
    SCRIPTED_UNTIL(call->ends > 0);
    ck_assert_int_eq(call->ends, 1);
}

void scripted_settle(void)
{
    for (int i = 0; i < 10; i++)
        scripted_turn();
}

/* ---- the peer ---- */

bool scripted_has_connection(void)
{
    struct pollfd poller = {.fd = scripted.listener, .events = POLLIN};
    return poll(&poller, 1, 0) > 0;
}

int scripted_accept(void)
{
    SCRIPTED_UNTIL(scripted_has_connection());
    int fd = accept4(scripted.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), yes = 1;
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)); /* every send leaves at once */
    return fd;
}

static bool is_whole(const char *text, size_t length)
{
    const char *end = strstr(text, "\r\n\r\n");
    const char *field = strstr(text, "Content-Length: ");
    size_t body = field && end && field < end ? strtoul(field + 16, NULL, 10) : 0;
    return end && length >= (size_t)(end + 4 - text) + body;
}

void scripted_receive(int fd, char *text)
{
    size_t length = 0;
    text[0] = '\0';
    while (!is_whole(text, length)) {
        ssize_t count = read(fd, text + length, SCRIPTED_REQUEST_SIZE - 1 - length);
        ck_assert_msg(count > 0 || (count < 0 && errno == EAGAIN), "the client left in its request: %s", text);
        if (count < 0) {
            struct pollfd poller = {.fd = fd, .events = POLLIN};
            SCRIPTED_UNTIL(poll(&poller, 1, 0) > 0);
        }
        length += count > 0 ? (size_t)count : 0;
        text[length] = '\0';
    }
}

void scripted_receive_any(int fd)
{
    static char text[SCRIPTED_REQUEST_SIZE];
    scripted_receive(fd, text);
    explicit_bzero(text, sizeof(text));
}

size_t scripted_peek(int fd, char *text)
{
    ssize_t count = real_recv(fd, text, SCRIPTED_REQUEST_SIZE - 1, MSG_PEEK | MSG_DONTWAIT);
    size_t length = count > 0 ? (size_t)count : 0;
    text[length] = '\0';
    return length;
}

void scripted_send_bytes(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t count = real_send(fd, bytes, length, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN) {
            scripted_turn();
            continue;
        }
        if (count <= 0)
            return; /* the client had enough */
        bytes += count;
        length -= (size_t)count;
    }
}

void scripted_send(int fd, const char *text)
{
    scripted_send_bytes(fd, text, strlen(text));
}

void scripted_answer(int fd, const char *body)
{
    char text[512];
    int length = snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    ck_assert_int_lt(length, (int)sizeof(text));
    scripted_send_bytes(fd, text, (size_t)length);
}

void scripted_close(int fd)
{
    close(fd);
}

void scripted_reset(int fd)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    close(fd);
}

bool scripted_is_closed(int fd)
{
    char bytes[4096];
    ssize_t count;
    do
        count = read(fd, bytes, sizeof(bytes));
    while (count > 0);
    return count == 0 || errno != EAGAIN;
}
