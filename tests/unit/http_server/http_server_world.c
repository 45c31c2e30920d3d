/* See http_server_world.h. */
#include "http_server/http_server_world.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"

struct heard heard;
struct world world;

/* ---- the program behind the server ---- */

void reply_text(struct http_request *request, int status, const char *body)
{
    struct http_reply reply = {
        .status = status, .content_type = "text/plain", .body = body, .body_length = strlen(body)};
    http_reply(request, &reply);
}

static void on_gone(struct http_request *request)
{
    ck_assert_ptr_nonnull(request);
    world.gone++;
}

bool is_path(const struct http_request *request, const char *path)
{
    return request->path.length == strlen(path) && memcmp(request->path.bytes, path, request->path.length) == 0;
}

void describe(struct http_request *request)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "PATCH", "OTHER"};
    static char text[128 * 1024];
    int length = snprintf(text, sizeof(text), "%s|%.*s|%.*s|%d|", methods[request->method], (int)request->path.length,
                          request->path.bytes, (int)request->query.length, request->query.bytes, request->header_count);
    for (int i = 0; i < request->header_count; i++) {
        length += snprintf(text + length, sizeof(text) - (size_t)length, "%.*s=%.*s;",
                           (int)request->headers[i].name.length, request->headers[i].name.bytes,
                           (int)request->headers[i].value.length, request->headers[i].value.bytes);
    }
    text[length++] = '|';
    if (request->body.length > 0)
        memcpy(text + length, request->body.bytes, request->body.length);
    struct http_reply reply = {.status = 200, .body = text, .body_length = (size_t)length + request->body.length};
    http_reply(request, &reply);
}

static void on_request(void *context, struct http_request *request)
{
    (void)context;
    world.handled++;
    if (is_path(request, "/short")) {
        reply_text(request, 200, "short");
    } else if (is_path(request, "/later")) {
        ck_assert_int_lt(world.held_count, HELD_MAX);
        request->on_gone = on_gone;
        world.held[world.held_count++] = request;
    } else if (is_path(request, "/big")) {
        struct http_reply reply = {.status = 200, .body = world.big, .body_length = BIG};
        http_reply(request, &reply);
    } else if (is_path(request, "/kernel")) {
        struct http_reply reply = {.status = 200, .body = world.big, .body_length = 40000};
        http_reply(request, &reply);
    } else if (is_path(request, "/static")) {
        struct http_reply reply = {.status = 200, .body = world.big, .body_length = BIG, .is_static = true};
        http_reply(request, &reply);
    } else if (is_path(request, "/nothing")) {
        http_reply(request, &(struct http_reply){.status = 204});
    } else if (is_path(request, "/prefer")) {
        http_prefer(request);
        reply_text(request, 200, "preferred");
    } else if (is_path(request, "/bye")) {
        http_reply(request, &(struct http_reply){.status = 200, .body = "bye", .body_length = 3, .close = true});
    } else if (is_path(request, "/inject")) {
        struct http_reply reply = {.status = 200,
                                   .headers = {{"Location", "/a\r\nSet-Cookie: evil"}, {"X-Fine", "yes"}}};
        http_reply(request, &reply);
    } else if (is_path(request, "/reset")) {
        http_reply_reset(request);
    } else if (is_path(request, "/raw")) {
        http_reply_raw(request, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ncut", 42, true);
    } else {
        describe(request);
    }
}

static void on_refused(void *context, const struct http_request *request, int status, const char *detail,
                       struct http_reply *ret_reply)
{
    (void)context;
    ck_assert(!request || (request->path.length > 0 && request->path.bytes[0] == '/'));
    ck_assert_int_eq(status, ret_reply->status);
    world.refused++;
    ret_reply->content_type = "application/problem+json";
    ret_reply->body = detail;
    ret_reply->body_length = strlen(detail);
}

struct http_server_options options_for_tests(void)
{
    struct http_server_options options;
    http_server_defaults(&options);
    options.listen = "127.0.0.1:0";
    options.server_name = "issuing";
    options.on_request = on_request;
    options.on_refused = on_refused;
    return options;
}

void start(const struct http_server_options *options)
{
    memset(&world, 0, sizeof(world));
    memset(&heard, 0, sizeof(heard));
    ck_assert_int_eq(uv_loop_init(&world.loop), 0);
    struct err err;
    ck_assert_msg(http_server_open(&world.loop, options, &world.server, &err), "%s", err.message);
    heard.bytes = malloc(HEARD_MAX);
    ck_assert_ptr_nonnull(heard.bytes);
}

void start_with_defaults(void)
{
    struct http_server_options options = options_for_tests();
    start(&options);
}

void make_big(void)
{
    world.big = malloc(BIG);
    ck_assert_ptr_nonnull(world.big);
    for (size_t i = 0; i < BIG; i++)
        world.big[i] = (char)('a' + i % 23);
}

void on_server_closed(void *context)
{
    ck_assert_ptr_eq(context, &world);
    world.is_closed = true;
}

void close_server(void)
{
    http_server_close(world.server, on_server_closed, &world);
    ck_assert(!world.is_closed);
    while (!world.is_closed)
        uv_run(&world.loop, UV_RUN_ONCE);
    world.server = NULL;
}

void stop(void)
{
    if (world.server)
        close_server();
    uv_run(&world.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&world.loop), 0);
    free(heard.bytes);
    free(world.big);
    memset(&heard, 0, sizeof(heard));
    clock_release();
}

/* ---- a client ---- */

int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_server_port(world.server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

void run_once(void)
{
    uv_run(&world.loop, UV_RUN_NOWAIT);
}

void run_some(void)
{
    for (int i = 0; i < 20; i++)
        run_once();
}

/* Until the loop or the client has something to do. */
static void wait_for(int fd, short events)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events}, {.fd = uv_backend_fd(&world.loop), .events = POLLIN}};
    int timeout = uv_backend_timeout(&world.loop);
    poll(fds, 2, timeout < 0 || timeout > 5 ? 5 : timeout);
}

/* Returns how much could be sent before the connection was ended or took no more. */
size_t send_some(int fd, const char *bytes, size_t length)
{
    size_t sent = 0;
    int idle_iterations = 0;
    while (sent < length && idle_iterations < 50) {
        ssize_t count = send(fd, bytes + sent, length - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN)
            break;
        idle_iterations = count > 0 ? 0 : idle_iterations + 1;
        sent += count > 0 ? (size_t)count : 0;
        run_once();
    }
    return sent;
}

/* However long it takes; returns how much could be sent before the connection was ended. */
size_t send_all(int fd, const char *bytes, size_t length)
{
    size_t sent = 0;
    int64_t give_up = (int64_t)(uv_hrtime() / 1000000000) + stuck_after_s();
    while (sent < length && (int64_t)(uv_hrtime() / 1000000000) < give_up) {
        ssize_t count = send(fd, bytes + sent, length - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN)
            break;
        sent += count > 0 ? (size_t)count : 0;
        run_once();
        if (count < 0)
            wait_for(fd, POLLOUT);
    }
    return sent;
}

void send_text(int fd, const char *text)
{
    ck_assert_uint_eq(send_some(fd, text, strlen(text)), strlen(text));
}

/* Not by strtoul(3): a sanitizer that is strict about strings looks for the end of all that was heard, at each call. */
static size_t number_at(const char *at, const char *end)
{
    size_t number = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (size_t)(*at - '0');
    return number;
}

/* Finds the complete replies in what was heard. */
void count_replies(void)
{
    const char *at = heard.bytes, *end = heard.bytes + heard.length;
    heard.count = 0;
    while (at < end && heard.count < REPLIES_MAX) {
        const char *blank = memmem(at, (size_t)(end - at), "\r\n\r\n", 4);
        if (!blank)
            return;
        struct reply *reply = &heard.replies[heard.count];
        reply->head = (struct slice){.bytes = at, .length = (size_t)(blank + 4 - at)};
        ck_assert_int_eq(memcmp(at, "HTTP/1.1 ", 9), 0);
        reply->status = (int)number_at(at + 9, end);
        const char *announced = memmem(at, reply->head.length, "Content-Length: ", 16);
        size_t length = announced && !heard.has_no_bodies ? number_at(announced + 16, end) : 0;
        if (length > (size_t)(end - blank) - 4)
            return;
        reply->body = (struct slice){.bytes = blank + 4, .length = length};
        at = blank + 4 + length;
        heard.count++;
    }
}

void hear(int fd)
{
    ck_assert_uint_lt(heard.length, HEARD_MAX);
    size_t room = HEARD_MAX - heard.length;
    /* The kernel may hold the whole of a large answer: who reads slowly must not get all of it at once. */
    ssize_t count = recv(fd, heard.bytes + heard.length, room < HEAR_MAX ? room : HEAR_MAX, MSG_DONTWAIT);
    if (count > 0)
        heard.length += (size_t)count;
    else if (count == 0)
        heard.has_ended = true;
    else if (errno != EAGAIN)
        heard.has_ended = heard.was_reset = true;
    else
        wait_for(fd, POLLIN);
}

void forget_heard(void)
{
    heard.length = 0;
    heard.count = 0;
    heard.has_ended = heard.was_reset = false;
}

/* Listens until there are `count` replies, or the end; with count 0, until the end. */
void listen_for(int fd, int count)
{
    int64_t give_up = (int64_t)(uv_hrtime() / 1000000000) + stuck_after_s();
    forget_heard();
    while (!heard.has_ended && (count == 0 || heard.count < count)) {
        run_once();
        hear(fd);
        if (!heard.is_opaque)
            count_replies();
        ck_assert_msg((int64_t)(uv_hrtime() / 1000000000) < give_up, "no end; so far: %.*s",
                      (int)(heard.length < 2000 ? heard.length : 2000), heard.bytes);
    }
}

bool head_has(int index, const char *text)
{
    ck_assert_int_lt(index, heard.count);
    return memmem(heard.replies[index].head.bytes, heard.replies[index].head.length, text, strlen(text)) != NULL;
}

bool body_is(int index, const char *text)
{
    ck_assert_int_lt(index, heard.count);
    return heard.replies[index].body.length == strlen(text) &&
           memcmp(heard.replies[index].body.bytes, text, strlen(text)) == 0;
}

/* One connection: sends all bytes, shuts its side, and reads to the end. `step` bytes at a time. */
void converse(const char *bytes, size_t length, size_t step)
{
    int fd = dial();
    for (size_t at = 0; at < length; at += step) {
        size_t piece = length - at < step ? length - at : step;
        if (send_some(fd, bytes + at, piece) < piece)
            break;
    }
    shutdown(fd, SHUT_WR);
    listen_for(fd, 0);
    close(fd);
}

/* Sends all and listens to the end, which the server has to bring about. */
void provoke(const char *bytes, size_t length)
{
    int fd = dial();
    send_some(fd, bytes, length);
    listen_for(fd, 0);
    close(fd);
}

void assert_refused(const char *name, int status)
{
    ck_assert_msg(heard.count == 1, "%s: %d replies: %.*s", name, heard.count, (int)heard.length, heard.bytes);
    ck_assert_msg(heard.replies[0].status == status, "%s: %.*s", name, (int)heard.length, heard.bytes);
    ck_assert_msg(head_has(0, "\r\nConnection: close\r\n"), "%s: without Connection: close", name);
    ck_assert_msg(!heard.was_reset, "%s: reset", name);
    ck_assert_msg(world.refused == 1, "%s: on_refused was called %d times", name, world.refused);
}

char *repeat(const char *before, char byte, size_t count, const char *after)
{
    size_t length = strlen(before) + count + strlen(after) + 1;
    char *text = malloc(length);
    ck_assert_ptr_nonnull(text);
    memcpy(text, before, strlen(before));
    memset(text + strlen(before), byte, count);
    memcpy(text + strlen(before) + count, after, strlen(after) + 1);
    return text;
}

void assert_served(int fd)
{
    send_text(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 1);
    ck_assert(body_is(0, "short"));
}
