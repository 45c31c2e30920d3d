/* The story: the server's port faces clients that are slow, broken or hostile, often behind a proxy that reads HTTP
 * a little differently. Whoever can make proxy and server disagree about where a request ends can smuggle one past
 * the proxy; whoever can make the server wait, remember or spin can take it down. So everything ambiguous is refused
 * and the connection ended, every size and time has a limit, and what is accepted is answered once, in order,
 * however the bytes were cut.
 *
 * Server and clients share one thread: a test sends bytes and turns the loop until it has heard what it waits for. */
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/http_server.h"

#define HEARD_MAX ((size_t)8 * 1024 * 1024)
#define REPLIES_MAX 512
#define HELD_MAX 128
#define GIVE_UP_S 20
#define BIG ((size_t)6 * 1024 * 1024)

struct reply {
    int status;
    struct slice head, body;
};

/* What one client got back. */
static struct {
    char *bytes;
    size_t length;
    bool has_ended, was_reset;
    bool has_no_bodies; /* asked by HEAD */
    bool is_opaque;     /* not to be taken apart */
    struct reply replies[REPLIES_MAX];
    int count;
} heard;

static struct {
    uv_loop_t loop;
    struct http_server *server;
    struct http_request *held[HELD_MAX];
    int held_count;
    int handled, refused, gone;
    bool is_closed;
    char *big;
} world;

/* ---- the program behind the server ---- */

static void say(struct http_request *request, int status, const char *body)
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

static bool is_path(const struct http_request *request, const char *path)
{
    return request->path.length == strlen(path) && memcmp(request->path.bytes, path, request->path.length) == 0;
}

static void describe(struct http_request *request)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "OTHER"};
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
        say(request, 200, "short");
    } else if (is_path(request, "/later")) {
        ck_assert_int_lt(world.held_count, HELD_MAX);
        request->on_gone = on_gone;
        world.held[world.held_count++] = request;
    } else if (is_path(request, "/big")) {
        struct http_reply reply = {.status = 200, .body = world.big, .body_length = BIG};
        http_reply(request, &reply);
    } else if (is_path(request, "/nothing")) {
        http_reply(request, &(struct http_reply){.status = 204});
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

static void on_refused(void *context, int status, const char *detail, struct http_reply *ret_reply)
{
    (void)context;
    ck_assert_int_eq(status, ret_reply->status);
    world.refused++;
    ret_reply->content_type = "application/problem+json";
    ret_reply->body = detail;
    ret_reply->body_length = strlen(detail);
}

static struct http_server_options options_for_tests(void)
{
    struct http_server_options options;
    http_server_defaults(&options);
    options.listen = "127.0.0.1:0";
    options.server_name = "issuing";
    options.on_request = on_request;
    options.on_refused = on_refused;
    return options;
}

static void start(const struct http_server_options *options)
{
    memset(&world, 0, sizeof(world));
    memset(&heard, 0, sizeof(heard));
    ck_assert_int_eq(uv_loop_init(&world.loop), 0);
    struct err err;
    ck_assert_msg(http_server_open(&world.loop, options, &world.server, &err), "%s", err.message);
    heard.bytes = malloc(HEARD_MAX);
    ck_assert_ptr_nonnull(heard.bytes);
}

static void start_with_defaults(void)
{
    struct http_server_options options = options_for_tests();
    start(&options);
}

static void make_big(void)
{
    world.big = malloc(BIG);
    ck_assert_ptr_nonnull(world.big);
    for (size_t i = 0; i < BIG; i++)
        world.big[i] = (char)('a' + i % 23);
}

static void on_closed(void *context)
{
    ck_assert_ptr_eq(context, &world);
    world.is_closed = true;
}

static void close_server(void)
{
    http_server_close(world.server, on_closed, &world);
    ck_assert(!world.is_closed);
    while (!world.is_closed)
        uv_run(&world.loop, UV_RUN_ONCE);
    world.server = NULL;
}

static void stop(void)
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

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_server_port(world.server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void turn(void)
{
    uv_run(&world.loop, UV_RUN_NOWAIT);
}

static void turn_some(void)
{
    for (int i = 0; i < 20; i++)
        turn();
}

/* Until the loop or the client has something to do. */
static void wait_for(int fd, short events)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events}, {.fd = uv_backend_fd(&world.loop), .events = POLLIN}};
    int timeout = uv_backend_timeout(&world.loop);
    poll(fds, 2, timeout < 0 || timeout > 5 ? 5 : timeout);
}

/* Returns how much could be sent before the connection was ended or took no more. */
static size_t send_some(int fd, const char *bytes, size_t length)
{
    size_t sent = 0;
    int idle_turns = 0;
    while (sent < length && idle_turns < 50) {
        ssize_t count = send(fd, bytes + sent, length - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN)
            break;
        idle_turns = count > 0 ? 0 : idle_turns + 1;
        sent += count > 0 ? (size_t)count : 0;
        turn();
    }
    return sent;
}

static void tell(int fd, const char *text)
{
    ck_assert_uint_eq(send_some(fd, text, strlen(text)), strlen(text));
}

/* Finds the complete replies in what was heard. */
static void count_replies(void)
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
        reply->status = atoi(at + 9);
        const char *told = memmem(at, reply->head.length, "Content-Length: ", 16);
        size_t length = told && !heard.has_no_bodies ? strtoul(told + 16, NULL, 10) : 0;
        if (length > (size_t)(end - blank) - 4)
            return;
        reply->body = (struct slice){.bytes = blank + 4, .length = length};
        at = blank + 4 + length;
        heard.count++;
    }
}

static void hear(int fd)
{
    ck_assert_uint_lt(heard.length, HEARD_MAX);
    ssize_t count = recv(fd, heard.bytes + heard.length, HEARD_MAX - heard.length, MSG_DONTWAIT);
    if (count > 0)
        heard.length += (size_t)count;
    else if (count == 0)
        heard.has_ended = true;
    else if (errno != EAGAIN)
        heard.has_ended = heard.was_reset = true;
    else
        wait_for(fd, POLLIN);
}

static void forget_heard(void)
{
    heard.length = 0;
    heard.count = 0;
    heard.has_ended = heard.was_reset = false;
}

/* Listens until there are `count` replies, or the end; with count 0, until the end. */
static void listen_for(int fd, int count)
{
    int64_t give_up = uv_hrtime() / 1000000000 + GIVE_UP_S;
    forget_heard();
    while (!heard.has_ended && (count == 0 || heard.count < count)) {
        turn();
        hear(fd);
        if (!heard.is_opaque)
            count_replies();
        ck_assert_msg((int64_t)(uv_hrtime() / 1000000000) < give_up, "no end; so far: %.*s",
                      (int)(heard.length < 2000 ? heard.length : 2000), heard.bytes);
    }
}

static bool head_has(int index, const char *text)
{
    ck_assert_int_lt(index, heard.count);
    return memmem(heard.replies[index].head.bytes, heard.replies[index].head.length, text, strlen(text)) != NULL;
}

static bool body_is(int index, const char *text)
{
    ck_assert_int_lt(index, heard.count);
    return heard.replies[index].body.length == strlen(text) &&
           memcmp(heard.replies[index].body.bytes, text, strlen(text)) == 0;
}

/* One connection: sends all, says that it is done, listens to the end. `step` bytes at a time. */
static void converse(const char *bytes, size_t length, size_t step)
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
static void provoke(const char *bytes, size_t length)
{
    int fd = dial();
    send_some(fd, bytes, length);
    listen_for(fd, 0);
    close(fd);
}

static void assert_refused(const char *name, int status)
{
    ck_assert_msg(heard.count == 1, "%s: %d replies: %.*s", name, heard.count, (int)heard.length, heard.bytes);
    ck_assert_msg(heard.replies[0].status == status, "%s: %.*s", name, (int)heard.length, heard.bytes);
    ck_assert_msg(head_has(0, "\r\nConnection: close\r\n"), "%s: not said to close", name);
    ck_assert_msg(!heard.was_reset, "%s: reset", name);
    ck_assert_msg(world.refused == 1, "%s: on_refused was called %d times", name, world.refused);
}

static char *repeat(const char *before, char byte, size_t count, const char *after)
{
    size_t length = strlen(before) + count + strlen(after) + 1;
    char *text = malloc(length);
    ck_assert_ptr_nonnull(text);
    memcpy(text, before, strlen(before));
    memset(text + strlen(before), byte, count);
    memcpy(text + strlen(before) + count, after, strlen(after) + 1);
    return text;
}

/* ---- what is refused ---- */

#define H "Host: a\r\n"
#define ROW(row_name, row_status, text)              \
    {                                                \
        row_name, row_status, text, sizeof(text) - 1 \
    }

/* Each is followed by a request that must never be served. */
static const struct {
    const char *name;
    int status;
    const char *bytes;
    size_t length;
} refused[] = {
    ROW("length and encoding", 400,
        "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("encoding and length", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    ROW("two lengths", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ROW("two equal lengths", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\na"),
    ROW("a list of lengths", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\na"),
    ROW("plus sign in a length", 400, "POST / HTTP/1.1\r\n" H "Content-Length: +5\r\n\r\nhello"),
    ROW("negative length", 400, "POST / HTTP/1.1\r\n" H "Content-Length: -5\r\n\r\nhello"),
    ROW("empty length", 400, "POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n"),
    ROW("hexadecimal length", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 0x5\r\n\r\nhello"),
    ROW("inner space in a length", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 1 1\r\n\r\nhello"),
    ROW("length past 64 bits", 400, "POST / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999999\r\n\r\n"),
    ROW("large length", 413, "POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551615\r\n\r\n"),
    ROW("length one above the limit", 413, "POST / HTTP/1.1\r\n" H "Content-Length: 65537\r\n\r\n"),
    ROW("length above the limit, Expect", 413,
        "POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n"),
    ROW("0x in a chunk size", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n"),
    ROW("chunk size past 64 bits", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n"),
    ROW("large chunk", 413, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n"),
    ROW("seventeen zeros in a chunk size", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n00000000000000000\r\n\r\n"),
    ROW("empty chunk size", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n\r\n\r\n"),
    ROW("negative chunk size", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n"),
    ROW("space before a chunk size", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n 1\r\na\r\n0\r\n\r\n"),
    ROW("chunk longer than told", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n"),
    ROW("bare LF behind a chunk size", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n"),
    ROW("bare LF behind a chunk", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n"),
    ROW("bare LF behind the last chunk", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\n"),
    ROW("bare CR in a chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;a\rb\r\na\r\n0\r\n\r\n"),
    ROW("LF in a chunk extension", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n"),
    ROW("folded trailer", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n"),
    ROW("malformed trailer", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nA b\r\n\r\n"),
    ROW("bare CR in a header", 400, "GET / HTTP/1.1\r\n" H "A: b\rC: d\r\n\r\n"),
    ROW("header block ended by CR alone (CVE-2025-23167)", 400,
        "GET / HTTP/1.1\r\n" H "\r\rGET /smuggled HTTP/1.1\r\n" H "\r\n"),
    ROW("header block ended by CR and a letter (CVE-2025-23167)", 400, "GET / HTTP/1.1\r\n" H "\rX\r\n\r\n"),
    ROW("empty value and CR (CVE-2023-30589)", 400, "GET / HTTP/1.1\r\n" H "A:\rContent-Length: 5\r\n\r\n"),
    ROW("space before the first header (CVE-2024-27982)", 400,
        "POST / HTTP/1.1\r\n " H "Content-Length: 5\r\n\r\nhello"),
    ROW("bare LF lines", 400, "GET / HTTP/1.1\nHost: a\n\n"),
    ROW("bare LF behind a header", 400, "GET / HTTP/1.1\r\nHost: a\n\r\n"),
    ROW("bare LF for the empty line", 400, "GET / HTTP/1.1\r\nHost: a\r\n\n"),
    ROW("space before the colon", 400, "GET / HTTP/1.1\r\n" H "A : b\r\n\r\n"),
    ROW("space before the colon of a length", 400, "POST / HTTP/1.1\r\n" H "Content-Length : 5\r\n\r\nhello"),
    ROW("NUL in a value", 400, "GET / HTTP/1.1\r\n" H "A: b\0c\r\n\r\n"),
    ROW("NUL in a name", 400, "GET / HTTP/1.1\r\n" H "A\0: b\r\n\r\n"),
    ROW("DEL in a value", 400, "GET / HTTP/1.1\r\n" H "A: b\x7F\r\n\r\n"),
    ROW("escape in a value", 400, "GET / HTTP/1.1\r\n" H "A: \x1B[0m\r\n\r\n"),
    ROW("non-ASCII name", 400, "GET / HTTP/1.1\r\n" H "\xC3\xA9: b\r\n\r\n"),
    ROW("empty name", 400, "GET / HTTP/1.1\r\n" H ": b\r\n\r\n"),
    ROW("empty name in a trailer", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n: b\r\n\r\n"),
    ROW("no colon", 400, "GET / HTTP/1.1\r\n" H "Anything\r\n\r\n"),
    ROW("parenthesis in a name", 400, "GET / HTTP/1.1\r\n" H "A(b): c\r\n\r\n"),
    ROW("control byte in the target", 400, "GET /\x01 HTTP/1.1\r\n" H "\r\n"),
    ROW("HT in the target", 400, "GET /\ta HTTP/1.1\r\n" H "\r\n"),
    ROW("non-ASCII target", 400, "GET /\xC3\xA9 HTTP/1.1\r\n" H "\r\n"),
    ROW("fragment", 400, "GET /a#b HTTP/1.1\r\n" H "\r\n"),
    ROW("unknown encoding", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ROW("chunked is not last", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    ROW("compressed and chunked", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ROW("chunked twice", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("identity", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n"),
    ROW("empty encoding", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\r\n"),
    ROW("vertical tab before chunked", 400,
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: \x0B"
        "chunked\r\n\r\n0\r\n\r\n"),
    ROW("encoding on 1.0", 400, "POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("no Host", 400, "GET / HTTP/1.1\r\n\r\n"),
    ROW("two Hosts", 400, "GET / HTTP/1.1\r\n" H "Host: b\r\n\r\n"),
    ROW("two equal Hosts", 400, "GET / HTTP/1.1\r\n" H H "\r\n"),
    ROW("two Hosts on 1.0", 400, "GET / HTTP/1.0\r\n" H "Host: b\r\n\r\n"),
    ROW("empty Host", 400, "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    ROW("Host with user", 400, "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n"),
    ROW("Host with a path", 400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    ROW("Host with a space", 400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ROW("Host with a bad port", 400, "GET / HTTP/1.1\r\nHost: a:80x\r\n\r\n"),
    ROW("folded header", 400, "GET / HTTP/1.1\r\n" H "A: b\r\n c\r\n\r\n"),
    ROW("header folded with HT", 400, "GET / HTTP/1.1\r\n" H "A: b\r\n\tc\r\n\r\n"),
    ROW("folded empty header", 400, "GET / HTTP/1.1\r\n" H "A:\r\n b\r\n\r\n"),
    ROW("folded encoding", 400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ROW("absolute target", 400, "GET http://evil/ HTTP/1.1\r\n" H "\r\n"),
    ROW("asterisk", 400, "OPTIONS * HTTP/1.1\r\n" H "\r\n"),
    ROW("CONNECT", 400, "CONNECT a:443 HTTP/1.1\r\n" H "\r\n"),
    ROW("CONNECT with a path", 400, "CONNECT /a HTTP/1.1\r\n" H "\r\n"),
    ROW("PRI", 400, "PRI /a HTTP/1.1\r\n" H "\r\n"),
    ROW("preface of HTTP/2", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ROW("HTTP/2.0", 505, "GET / HTTP/2.0\r\n" H "\r\n"),
    ROW("HTTP/1.2", 505, "GET / HTTP/1.2\r\n" H "\r\n"),
    ROW("HTTP/9.9", 505, "GET / HTTP/9.9\r\n" H "\r\n"),
    ROW("HTTP/0.9 said", 400, "GET / HTTP/0.9\r\n" H "\r\n"),
    ROW("HTTP/0.9", 400, "GET /\r\n"),
    ROW("HTTP/1.1 and a space", 400, "GET / HTTP/1.1 \r\n" H "\r\n"),
    ROW("HTTP/11.1", 400, "GET / HTTP/11.1\r\n" H "\r\n"),
    ROW("http/1.1", 400, "GET / http/1.1\r\n" H "\r\n"),
    ROW("RTSP", 400, "GET / RTSP/1.0\r\n" H "\r\n"),
    ROW("ICE", 400, "SOURCE / ICE/1.0\r\n" H "\r\n"),
    ROW("two spaces", 400, "GET  / HTTP/1.1\r\n" H "\r\n"),
    ROW("space in the target", 400, "GET /a b HTTP/1.1\r\n" H "\r\n"),
    ROW("space first", 400, " GET / HTTP/1.1\r\n" H "\r\n"),
    ROW("no method", 400, "/ HTTP/1.1\r\n" H "\r\n"),
    ROW("method of 33 bytes", 400, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\n" H "\r\n"),
    ROW("parenthesis in the method", 400, "G(T / HTTP/1.1\r\n" H "\r\n"),
    ROW("five empty lines", 400, "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n"),
    ROW("TLS", 400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ROW("unknown Expect", 417, "POST / HTTP/1.1\r\n" H "Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello"),
};

START_TEST(what_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_served)
{
    static const char smuggled[] = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    start_with_defaults();
    char bytes[1024];
    size_t length = refused[_i].length;
    memcpy(bytes, refused[_i].bytes, length);
    memcpy(bytes + length, smuggled, sizeof(smuggled) - 1);
    provoke(bytes, length + sizeof(smuggled) - 1);
    assert_refused(refused[_i].name, refused[_i].status);
    ck_assert_int_eq(world.handled, 0);
    stop();
}
END_TEST

/* Sends before + count times byte + after, and expects the status. */
static void assert_long_one_refused(const char *before, char byte, size_t count, const char *after, int status)
{
    start_with_defaults();
    char *text = repeat(before, byte, count, after);
    provoke(text, strlen(text));
    assert_refused(before, status);
    ck_assert_int_eq(world.handled, 0);
    free(text);
    stop();
}

START_TEST(what_is_too_long_is_refused_by_its_name)
{
    assert_long_one_refused("GET /", 'a', 4096, " HTTP/1.1\r\n" H "\r\n", 414);
    assert_long_one_refused("GET /", 'a', 100000, "", 414);
    assert_long_one_refused("GET / HTTP/1.1\r\n" H "A: ", 'a', 16384, "\r\n\r\n", 431);
    assert_long_one_refused("GET / HTTP/1.1\r\n" H "A: ", 'a', 100000, "", 431);
    assert_long_one_refused("GET / HTTP/1.1\r\n" H, 'a', 100000, "", 431);
    assert_long_one_refused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nA: ", 'a', 20000,
                            "\r\n\r\n", 431);
    assert_long_one_refused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;", 'a', 100000, "", 400);
    assert_long_one_refused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;", 'a', 256,
                            "\r\na\r\n0\r\n\r\n", 400);
    assert_long_one_refused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n", '0', 100000, "", 400);
}
END_TEST

START_TEST(what_just_fits_is_accepted)
{
    start_with_defaults();
    char *texts[] = {
        repeat("GET /", 'a', 4095, " HTTP/1.1\r\n" H "\r\n"),
        repeat("GET / HTTP/1.1\r\n" H "A: ", 'a', 16384 - 17, "\r\n\r\n"),
        repeat("POST / HTTP/1.1\r\n" H "Content-Length: 65536\r\n\r\n", 'a', 65536, ""),
        repeat("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n10000\r\n", 'a', 65536, "\r\n0\r\n\r\n"),
        repeat("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;", 'a', 255, "\r\na\r\n0\r\n\r\n"),
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        converse(texts[i], strlen(texts[i]), SIZE_MAX);
        ck_assert_int_eq(heard.count, 1);
        ck_assert_msg(heard.replies[0].status == 200, "%zu: %.*s", i, (int)heard.length, heard.bytes);
        free(texts[i]);
    }
    stop();
}
END_TEST

START_TEST(sixty_four_headers_are_accepted_and_sixty_five_are_not)
{
    start_with_defaults();
    char text[4096];
    for (int count = 64; count <= 65; count++) {
        size_t length = (size_t)snprintf(text, sizeof(text), "GET /short HTTP/1.1\r\n" H);
        for (int i = 1; i < count; i++)
            length += (size_t)snprintf(text + length, sizeof(text) - length, "A%d: b\r\n", i);
        length += (size_t)snprintf(text + length, sizeof(text) - length, "\r\n");
        converse(text, length, SIZE_MAX);
        ck_assert_int_eq(heard.count, 1);
        ck_assert_int_eq(heard.replies[0].status, count == 64 ? 200 : 431);
    }
    stop();
}
END_TEST

START_TEST(a_body_that_grows_past_the_limit_by_chunks_is_refused)
{
    start_with_defaults();
    char *chunk = repeat("8000\r\n", 'a', 0x8000, "\r\n");
    char *text = malloc(4 * strlen(chunk) + 256);
    ck_assert_ptr_nonnull(text);
    sprintf(text, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n%s%s1\r\na\r\n0\r\n\r\n", chunk, chunk);
    provoke(text, strlen(text));
    assert_refused("chunks", 413);
    ck_assert_int_eq(world.handled, 0);
    free(text);
    free(chunk);
    stop();
}
END_TEST

START_TEST(short_extensions_of_many_chunks_are_refused_when_they_add_up)
{
    start_with_defaults();
    static char text[64 * 1024];
    size_t length = (size_t)snprintf(text, sizeof(text), "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 1000; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "1;abcdefgh=ijklmnop\r\na\r\n");
    length += (size_t)snprintf(text + length, sizeof(text) - length, "0\r\n\r\n");
    provoke(text, length);
    assert_refused("extensions", 400);
    stop();
}
END_TEST

/* ---- what is accepted ---- */

static const struct {
    const char *name, *request, *answer;
} accepted[] = {
    {"plain", "GET /a?b=c HTTP/1.1\r\n" H "\r\n", "GET|/a|b=c|1|Host=a;|"},
    {"white space around a value", "GET /a HTTP/1.1\r\nHost: \t a \t \r\n\r\n", "GET|/a||1|Host=a;|"},
    {"no white space", "GET /a HTTP/1.1\r\nHost:a\r\n\r\n", "GET|/a||1|Host=a;|"},
    {"empty value", "GET /a HTTP/1.1\r\n" H "A:\r\nB: \r\nC: d\r\n\r\n", "GET|/a||4|Host=a;A=;B=;C=d;|"},
    {"non-ASCII value", "GET /a HTTP/1.1\r\n" H "A: \xC3\xA9\r\n\r\n", "GET|/a||2|Host=a;A=\xC3\xA9;|"},
    {"empty line first", "\r\nGET /a HTTP/1.1\r\n" H "\r\n", "GET|/a||1|Host=a;|"},
    {"two marks in the target", "GET /a?b?c HTTP/1.1\r\n" H "\r\n", "GET|/a|b?c|1|Host=a;|"},
    {"empty query", "GET /a? HTTP/1.1\r\n" H "\r\n", "GET|/a||1|Host=a;|"},
    {"encoded path, as sent", "GET //%2e%2e/%00%2F HTTP/1.1\r\n" H "\r\n", "GET|//%2e%2e/%00%2F||1|Host=a;|"},
    {"Host with a port", "GET /a HTTP/1.1\r\nHost: a.b:80\r\n\r\n", "GET|/a||1|Host=a.b:80;|"},
    {"IPv6 Host", "GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "GET|/a||1|Host=[::1]:80;|"},
    {"1.0 without Host", "GET /a HTTP/1.0\r\n\r\n", "GET|/a||0||"},
    {"body", "POST /a HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello", "POST|/a||2|Host=a;Content-Length=5;|hello"},
    {"empty body", "POST /a HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", "POST|/a||2|Host=a;Content-Length=0;|"},
    {"leading zeros", "POST /a HTTP/1.1\r\n" H "Content-Length: 0005\r\n\r\nhello",
     "POST|/a||2|Host=a;Content-Length=0005;|hello"},
    {"GET with a body", "GET /a HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello",
     "GET|/a||2|Host=a;Content-Length=5;|hello"},
    {"chunks",
     "POST /a HTTP/1.1\r\n" H
     "transfer-encoding: Chunked\r\n\r\n2;x=\"y\"\r\nhe\r\n03\r\nllo\r\n0\r\nHost: b\r\nX: y\r\n\r\n",
     "POST|/a||2|Host=a;transfer-encoding=Chunked;|hello"},
    {"no chunk", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     "POST|/a||2|Host=a;Transfer-Encoding=chunked;|"},
    {"other method", "DELETE /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"unknown method", "BREW /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"unknown method with a body", "BREW /a HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello",
     "OTHER|/a||2|Host=a;Content-Length=5;|hello"},
    {"lower case method", "get /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"TRACE", "TRACE /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"SOURCE", "SOURCE /a HTTP/1.1\r\n" H "\r\n", "OTHER|/a||1|Host=a;|"},
    {"Upgrade", "GET /a HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
     "GET|/a||3|Host=a;Connection=Upgrade;Upgrade=h2c;|"},
    {"Upgrade with a body",
     "POST /a HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
     "POST|/a||4|Host=a;Connection=Upgrade;Upgrade=h2c;Content-Length=2;|hi"},
    {"Expect on 1.0", "POST /a HTTP/1.0\r\nExpect: x\r\nContent-Length: 2\r\n\r\nhi",
     "POST|/a||2|Expect=x;Content-Length=2;|hi"},
};

/* The request behind it shows that the end was found. Also byte by byte. */
START_TEST(what_is_well_formed_is_read_as_it_was_sent_however_it_was_cut)
{
    char text[1024];
    size_t length = (size_t)snprintf(text, sizeof(text), "%sGET /short HTTP/1.1\r\n" H "\r\n", accepted[_i].request);
    int expected = strstr(accepted[_i].request, "HTTP/1.0") ? 1 : 2; /* 1.0 closes */
    for (size_t step = 1; step <= length; step = step == 1 ? 7 : step == 7 ? length : length + 1) {
        start_with_defaults();
        converse(text, length, step);
        ck_assert_msg(heard.count == expected && body_is(0, accepted[_i].answer), "%s by %zu: %.*s", accepted[_i].name,
                      step, (int)heard.length, heard.bytes);
        ck_assert(expected == 1 || body_is(1, "short"));
        ck_assert_int_eq(world.refused, 0);
        stop();
    }
}
END_TEST

START_TEST(http_header_finds_the_first_of_a_name_in_any_case_and_counts_them)
{
    struct http_request request = {.header_count = 3};
    request.headers[0].name = SLICE("Accept");
    request.headers[0].value = SLICE("one");
    request.headers[1].name = SLICE("X");
    request.headers[1].value = SLICE("");
    request.headers[2].name = SLICE("ACCEPT");
    request.headers[2].value = SLICE("two");
    int count = -1;
    struct slice value = http_header(&request, "accept", &count);
    ck_assert_int_eq(count, 2);
    ck_assert_uint_eq(value.length, 3);
    ck_assert_int_eq(memcmp(value.bytes, "one", 3), 0);
    ck_assert_ptr_nonnull(http_header(&request, "x", NULL).bytes);
    ck_assert_ptr_null(http_header(&request, "accep", &count).bytes);
    ck_assert_int_eq(count, 0);
}
END_TEST

/* ---- replies ---- */

START_TEST(a_reply_tells_its_length_its_date_and_who_made_it)
{
    start_with_defaults();
    clock_freeze(784111777LL * 1000000, clock_mono_us());
    int fd = dial();
    tell(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 1);
    static const char expected[] =
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: issuing\r\nContent-Type: text/plain\r\n"
        "Content-Length: 5\r\n\r\nshort";
    ck_assert_msg(heard.length == sizeof(expected) - 1 && memcmp(heard.bytes, expected, heard.length) == 0, "%.*s",
                  (int)heard.length, heard.bytes);
    close(fd);
    stop();
}
END_TEST

START_TEST(head_is_told_the_length_and_gets_no_body)
{
    start_with_defaults();
    int fd = dial();
    heard.has_no_bodies = true;
    tell(fd, "HEAD /short HTTP/1.1\r\n" H "\r\nHEAD /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 2);
    ck_assert(head_has(0, "\r\nContent-Length: 5\r\n"));
    ck_assert_uint_eq(heard.length, heard.replies[0].head.length + heard.replies[1].head.length);
    tell(fd, "HEAD /short HTTP/1.1\r\n" H "Transfer-Encoding: x\r\n\r\n");
    listen_for(fd, 0);
    assert_refused("HEAD", 400);
    ck_assert_uint_eq(heard.length, heard.replies[0].head.length);
    close(fd);
    stop();
}
END_TEST

START_TEST(a_204_has_neither_body_nor_length)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "GET /nothing HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 2);
    ck_assert_int_eq(heard.replies[0].status, 204);
    ck_assert(!head_has(0, "Content-"));
    ck_assert(body_is(1, "short"));
    close(fd);
    stop();
}
END_TEST

START_TEST(a_value_with_a_line_break_is_left_out_of_the_reply)
{
    start_with_defaults();
    static const char text[] = "GET /inject HTTP/1.1\r\n" H "\r\n";
    converse(text, sizeof(text) - 1, SIZE_MAX);
    ck_assert_int_eq(heard.count, 1);
    ck_assert(head_has(0, "\r\nX-Fine: yes\r\n"));
    ck_assert(!head_has(0, "evil"));
    ck_assert(!head_has(0, "Location"));
    stop();
}
END_TEST

static const struct {
    const char *request;
    bool is_closed, says_close, says_keep_alive;
} persistence[] = {
    {"GET /short HTTP/1.1\r\n" H "\r\n", false, false, false},
    {"GET /short HTTP/1.1\r\n" H "Connection: close\r\n\r\n", true, true, false},
    {"GET /short HTTP/1.1\r\n" H "Connection: x, Close\r\n\r\n", true, true, false},
    {"GET /short HTTP/1.0\r\n\r\n", true, true, false},
    {"GET /short HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", false, false, true},
    {"GET /bye HTTP/1.1\r\n" H "\r\n", true, true, false},
};

START_TEST(a_connection_lasts_as_client_and_handler_wish)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, persistence[_i].request);
    listen_for(fd, persistence[_i].is_closed ? 0 : 1);
    ck_assert_int_eq(heard.count, 1);
    ck_assert_int_eq(head_has(0, "\r\nConnection: close\r\n"), persistence[_i].says_close);
    ck_assert_int_eq(head_has(0, "\r\nConnection: keep-alive\r\n"), persistence[_i].says_keep_alive);
    if (!persistence[_i].is_closed) {
        tell(fd, persistence[_i].request);
        listen_for(fd, 1);
        ck_assert(body_is(0, "short"));
    }
    close(fd);
    stop();
}
END_TEST

START_TEST(expect_continue_is_answered_before_the_body_is_sent)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "POST /a HTTP/1.1\r\n" H "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
    listen_for(fd, 1);
    ck_assert_int_eq(heard.replies[0].status, 100);
    ck_assert_str_eq("HTTP/1.1 100 Continue\r\n\r\n", (heard.bytes[heard.length] = '\0', heard.bytes));
    tell(fd, "hi");
    listen_for(fd, 1);
    ck_assert_int_eq(heard.replies[0].status, 200);
    tell(fd, "POST /short HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n");
    listen_for(fd, 1);
    ck_assert_int_eq(heard.replies[0].status, 200);
    close(fd);
    stop();
}
END_TEST

/* ---- order and pace ---- */

START_TEST(a_hundred_pipelined_requests_are_answered_in_order)
{
    start_with_defaults();
    char text[16 * 1024];
    size_t length = 0;
    for (int i = 0; i < 100; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "GET /n?%d HTTP/1.1\r\n" H "\r\n", i);
    converse(text, length, SIZE_MAX);
    ck_assert_int_eq(heard.count, 100);
    for (int i = 0; i < 100; i++) {
        char body[64];
        snprintf(body, sizeof(body), "GET|/n|%d|1|Host=a;|", i);
        ck_assert_msg(body_is(i, body), "%d: %.*s", i, (int)heard.replies[i].body.length, heard.replies[i].body.bytes);
    }
    stop();
}
END_TEST

START_TEST(pipelined_requests_reach_the_handler_one_by_one_and_never_inside_a_reply)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "GET /later?1 HTTP/1.1\r\n" H "\r\nGET /later?2 HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    turn_some();
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(world.held_count, i + 1);
        ck_assert_int_eq(world.held[i]->query.bytes[0], '1' + i);
        say(world.held[i], 200, i == 0 ? "one" : "two");
        ck_assert_int_eq(world.held_count, i + 1);
        turn_some();
    }
    listen_for(fd, 3);
    ck_assert(body_is(0, "one") && body_is(1, "two") && body_is(2, "short"));
    close(fd);
    stop();
}
END_TEST

START_TEST(a_request_keeps_its_bytes_until_its_reply)
{
    start_with_defaults();
    int fd = dial(), other = dial();
    tell(fd, "POST /later?abc HTTP/1.1\r\n" H "A: first\r\nContent-Length: 5\r\n\r\nhello");
    for (int i = 0; i < 20; i++)
        tell(other, "POST /x?def HTTP/1.1\r\n" H "A: other\r\nContent-Length: 5\r\n\r\nworld");
    tell(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
    turn_some();
    ck_assert_int_eq(world.held_count, 1);
    describe(world.held[0]);
    listen_for(fd, 2);
    ck_assert(body_is(0, "POST|/later|abc|3|Host=a;A=first;Content-Length=5;|hello"));
    close(fd);
    close(other);
    stop();
}
END_TEST

START_TEST(a_client_that_sends_on_and_on_behind_a_running_request_has_to_wait)
{
    start_with_defaults();
    int fd = dial();
    int small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    tell(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    static const char one[] = "GET /short HTTP/1.1\r\n" H "\r\n";
    size_t count = 300000, length = count * (sizeof(one) - 1);
    char *flood = malloc(length);
    ck_assert_ptr_nonnull(flood);
    for (size_t i = 0; i < count; i++)
        memcpy(flood + i * (sizeof(one) - 1), one, sizeof(one) - 1);
    size_t sent = send_some(fd, flood, length);
    ck_assert_uint_lt(sent, length);
    ck_assert_int_eq(world.handled, 1);
    int handled = world.handled;
    say(world.held[0], 200, "at last");
    listen_for(fd, REPLIES_MAX);
    ck_assert(body_is(0, "at last") && body_is(REPLIES_MAX - 1, "short"));
    ck_assert_int_gt(world.handled, handled + 100);
    free(flood);
    close(fd);
    stop();
}
END_TEST

START_TEST(a_large_reply_reaches_a_slow_reader_whole_and_the_next_one_follows)
{
    start_with_defaults();
    make_big();
    int fd = dial();
    tell(fd, "GET /big HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    turn_some();
    ck_assert_int_eq(world.handled, 1); /* the second waits: output is bounded */
    tell(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 3);
    ck_assert_uint_eq(heard.replies[0].body.length, BIG);
    ck_assert_int_eq(memcmp(heard.replies[0].body.bytes, world.big, BIG), 0);
    ck_assert(body_is(1, "short") && body_is(2, "short"));
    close(fd);
    stop();
}
END_TEST

START_TEST(a_refusal_reaches_a_client_that_still_sends)
{
    start_with_defaults();
    char *text = repeat("POST / HTTP/1.1\r\n" H "Content-Length: 100000\r\n\r\n", 'a', 50000, "");
    provoke(text, strlen(text));
    assert_refused("large body", 413);
    free(text);
    stop();
}
END_TEST

/* ---- clients that go ---- */

START_TEST(a_client_that_ended_its_side_still_gets_its_answers)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "GET /later HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\nGET /cut");
    shutdown(fd, SHUT_WR);
    turn_some();
    ck_assert_int_eq(world.held_count, 1);
    ck_assert_int_eq(world.gone, 0);
    say(world.held[0], 200, "late");
    listen_for(fd, 0);
    ck_assert_int_eq(heard.count, 2);
    ck_assert(body_is(0, "late") && body_is(1, "short"));
    ck_assert_int_eq(world.gone, 0);
    close(fd);
    stop();
}
END_TEST

static void reset(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    close(fd);
}

START_TEST(a_handler_is_told_once_of_a_reset_and_may_still_reply)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "POST /later?abc HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");
    turn_some();
    ck_assert_int_eq(world.held_count, 1);
    reset(fd);
    turn_some();
    ck_assert_int_eq(world.gone, 1);
    ck_assert_int_eq(http_server_connections(world.server), 0);
    ck_assert_int_eq(memcmp(world.held[0]->body.bytes, "hello", 5), 0);
    say(world.held[0], 200, "nobody hears");
    turn_some();
    ck_assert_int_eq(world.gone, 1);
    stop();
}
END_TEST

START_TEST(a_server_closes_while_requests_run_and_their_replies_go_nowhere)
{
    start_with_defaults();
    int fd = dial(), idle = dial(), half = dial();
    tell(fd, "GET /later HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    tell(half, "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhe");
    turn_some();
    ck_assert_int_eq(world.held_count, 1);
    ck_assert_int_eq(http_server_connections(world.server), 3);
    close_server();
    ck_assert_int_eq(world.gone, 1);
    say(world.held[0], 200, "nobody hears");
    ck_assert_int_eq(world.handled, 1);
    close(fd);
    close(idle);
    close(half);
    stop();
}
END_TEST

START_TEST(a_reply_between_close_and_its_callback_is_lawful)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    turn_some();
    http_server_close(world.server, on_closed, &world);
    say(world.held[0], 200, "nobody hears");
    uv_run(&world.loop, UV_RUN_DEFAULT);
    ck_assert(world.is_closed);
    ck_assert_int_eq(world.gone, 0);
    world.server = NULL;
    close(fd);
    stop();
}
END_TEST

START_TEST(faults_for_the_sandbox_reset_or_cut_the_answer)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "GET /reset HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 0);
    ck_assert(heard.was_reset);
    ck_assert_uint_eq(heard.length, 0);
    close(fd);
    fd = dial();
    tell(fd, "GET /short HTTP/1.1\r\n" H "\r\nGET /raw HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 0);
    ck_assert(!heard.was_reset);
    ck_assert_int_eq(heard.count, 1);
    ck_assert_int_eq(memcmp(heard.bytes + heard.length - 3, "cut", 3), 0);
    ck_assert_int_eq(world.handled, 3);
    close(fd);
    stop();
}
END_TEST

START_TEST(the_end_of_input_counts_as_gone_where_the_handler_wishes_so)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    turn_some();
    ck_assert_int_eq(world.held_count, 1);
    world.held[0]->gone_at_end = true;
    shutdown(fd, SHUT_WR);
    turn_some();
    ck_assert_int_eq(world.gone, 1);
    ck_assert_int_eq(http_server_connections(world.server), 0);
    http_reply_part(world.held[0], "nobody", 6);
    say(world.held[0], 200, "nobody hears");
    close(fd);
    stop();
}
END_TEST

START_TEST(a_reply_in_parts_arrives_as_one)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "GET /later HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    turn_some();
    ck_assert_int_eq(world.held_count, 1);
    static const char first[] = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc";
    http_reply_part(world.held[0], first, sizeof(first) - 1);
    turn_some();
    ck_assert_int_eq(world.handled, 1);
    http_reply_raw(world.held[0], "def", 3, false);
    listen_for(fd, 2);
    ck_assert(body_is(0, "abcdef") && body_is(1, "short"));
    close(fd);
    stop();
}
END_TEST

/* ---- time ---- */

START_TEST(a_request_that_does_not_arrive_in_time_is_told_so)
{
    struct http_server_options options = options_for_tests();
    options.header_timeout_ms = options.body_timeout_ms = 20;
    start(&options);
    static const char *const texts[] = {"G", "GET / HTTP/1.1\r\n" H,
                                        "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhell",
                                        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        world.refused = 0;
        provoke(texts[i], strlen(texts[i]));
        assert_refused(texts[i], 408);
    }
    ck_assert_int_eq(world.handled, 0);
    stop();
}
END_TEST

START_TEST(an_idle_connection_is_closed_without_a_word)
{
    struct http_server_options options = options_for_tests();
    options.idle_timeout_ms = 20;
    options.header_timeout_ms = 20;
    start(&options);
    provoke("", 0);
    ck_assert_uint_eq(heard.length, 0);
    provoke("\r\n", 2); /* some clients end a body so */
    ck_assert_uint_eq(heard.length, 0);
    int fd = dial();
    tell(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 0);
    ck_assert_int_eq(heard.count, 1);
    ck_assert(body_is(0, "short"));
    ck_assert_int_eq(world.refused, 0);
    close(fd);
    stop();
}
END_TEST

START_TEST(a_running_request_has_all_the_time_its_handler_takes)
{
    struct http_server_options options = options_for_tests();
    options.idle_timeout_ms = options.header_timeout_ms = options.body_timeout_ms = 20;
    start(&options);
    int fd = dial(), idle = dial();
    tell(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    listen_for(idle, 0); /* so a sweep has passed */
    ck_assert_int_eq(world.held_count, 1);
    ck_assert_int_eq(http_server_connections(world.server), 1);
    say(world.held[0], 200, "done");
    listen_for(fd, 1);
    ck_assert(body_is(0, "done"));
    close(fd);
    close(idle);
    stop();
}
END_TEST

START_TEST(a_client_that_never_reads_its_answer_is_cut_off)
{
    struct http_server_options options = options_for_tests();
    options.idle_timeout_ms = 20;
    start(&options);
    make_big();
    int fd = dial();
    tell(fd, "GET /big HTTP/1.1\r\n" H "\r\n");
    while (http_server_connections(world.server) > 0)
        uv_run(&world.loop, UV_RUN_ONCE);
    ck_assert_int_eq(world.handled, 1);
    close(fd);
    stop();
}
END_TEST

START_TEST(a_client_that_never_stops_sending_after_its_refusal_is_cut_off)
{
    start_with_defaults();
    int fd = dial();
    tell(fd, "bad\r\n");
    char *more = repeat("", 'a', (size_t)16 * 1024 * 1024, "");
    ck_assert_uint_lt(send_some(fd, more, strlen(more)), strlen(more));
    while (http_server_connections(world.server) > 0)
        uv_run(&world.loop, UV_RUN_ONCE);
    ck_assert_int_eq(world.refused, 1);
    free(more);
    close(fd);
    stop();
}
END_TEST

/* ---- how many ---- */

START_TEST(a_connection_above_the_limit_is_told_to_come_back)
{
    struct http_server_options options = options_for_tests();
    options.max_connections = 2;
    start(&options);
    int first = dial(), second = dial(), third = dial();
    listen_for(third, 0);
    assert_refused("third", 503);
    ck_assert(head_has(0, "\r\nRetry-After: 1\r\n"));
    close(third);
    tell(first, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(first, 1);
    ck_assert(body_is(0, "short"));
    close(first);
    turn_some();
    third = dial();
    tell(third, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(third, 1);
    ck_assert(body_is(0, "short"));
    close(second);
    close(third);
    stop();
}
END_TEST

START_TEST(without_descriptors_accepting_rests_and_the_waiting_are_served_later)
{
    start_with_defaults();
    int fds[3];
    for (int i = 0; i < 3; i++)
        fds[i] = dial();
    struct rlimit before, low;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = (rlim_t)fds[2] + 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    turn_some();
    ck_assert_int_eq(http_server_connections(world.server), 0);
    struct pollfd backend = {.fd = uv_backend_fd(&world.loop), .events = POLLIN};
    int spinning = poll(&backend, 1, 0);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_int_eq(spinning, 0);
    for (int i = 0; i < 3; i++) {
        tell(fds[i], "GET /short HTTP/1.1\r\n" H "\r\n");
        listen_for(fds[i], 1);
        ck_assert(body_is(0, "short"));
        close(fds[i]);
    }
    stop();
}
END_TEST

/* ---- drain and addresses ---- */

START_TEST(draining_closes_the_idle_and_lets_the_busy_finish)
{
    start_with_defaults();
    int idle = dial(), running = dial(), half = dial();
    tell(running, "GET /later HTTP/1.1\r\n" H "\r\n");
    tell(half, "GET /short HTTP/1.1\r\n");
    turn_some();
    ck_assert_int_eq(world.held_count, 1);
    http_server_drain(world.server);
    ck_assert(!http_server_is_drained(world.server));
    listen_for(idle, 0);
    ck_assert_uint_eq(heard.length, 0);
    ck_assert(!heard.was_reset);
    tell(half, H "\r\n");
    listen_for(half, 0);
    ck_assert(body_is(0, "short") && head_has(0, "\r\nConnection: close\r\n"));
    say(world.held[0], 200, "done");
    listen_for(running, 0);
    ck_assert(body_is(0, "done") && head_has(0, "\r\nConnection: close\r\n"));
    close(idle);
    close(half);
    close(running);
    turn_some();
    ck_assert(http_server_is_drained(world.server));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_server_port(world.server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_ne(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    close(fd);
    stop();
}
END_TEST

START_TEST(a_request_that_arrived_before_the_drain_is_answered)
{
    start_with_defaults();
    int fd = dial();
    turn_some();
    static const char text[] = "GET /short HTTP/1.1\r\n" H "\r\n";
    ck_assert_int_eq((int)send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL), (int)sizeof(text) - 1);
    http_server_drain(world.server);
    listen_for(fd, 0);
    ck_assert_int_eq(heard.count, 1);
    ck_assert(body_is(0, "short"));
    close(fd);
    stop();
}
END_TEST

START_TEST(a_second_server_on_the_same_port_is_refused_with_a_reason)
{
    start_with_defaults();
    char listen[32];
    snprintf(listen, sizeof(listen), "127.0.0.1:%d", http_server_port(world.server));
    struct http_server_options options = options_for_tests();
    options.listen = listen;
    struct http_server *second = NULL;
    struct err err;
    ck_assert(!http_server_open(&world.loop, &options, &second, &err));
    ck_assert_ptr_null(second);
    ck_assert_int_eq(err.kind, ERR_SYSTEM);
    ck_assert_msg(strstr(err.message, listen) && strstr(err.message, "in use"), "%s", err.message);
    stop();
}
END_TEST

START_TEST(an_address_that_is_none_is_a_configuration_error)
{
    static const char *const texts[] = {
        "",      "8080",     "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",      "127.0.0.1:65536", "127.0.0.1:-1",
        ":8080", "::1:8080", "[::1]",     "[]:80",      "127.0.0.1:080000", "127.0.0.1: 80"};
    start_with_defaults();
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct http_server_options options = options_for_tests();
        options.listen = texts[i];
        struct http_server *server = NULL;
        struct err err;
        ck_assert_msg(!http_server_open(&world.loop, &options, &server, &err), "%s", texts[i]);
        ck_assert_msg(err.kind == ERR_CONFIG, "%s: %s", texts[i], err.message);
    }
    stop();
}
END_TEST

START_TEST(any_address_and_names_may_be_listened_on)
{
    static const char *const texts[] = {"*:0", "localhost:0", "0.0.0.0:0"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct http_server_options options = options_for_tests();
        options.listen = texts[i];
        start(&options);
        ck_assert_int_gt(http_server_port(world.server), 0);
        if (i != 1) { /* localhost may be ::1 only */
            int fd = dial();
            tell(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
            listen_for(fd, 1);
            ck_assert(body_is(0, "short"));
            close(fd);
        }
        stop();
    }
}
END_TEST

/* ---- chance ---- */

static uint64_t chance_state;

static uint32_t chance(uint32_t below)
{
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return below > 0 ? (uint32_t)(chance_state >> 11) % below : 0;
}

static const char *const seeds[] = {
    "GET /a?b=c HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n",
    "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n",
    "HEAD /short HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /short HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "BREW /short HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "POST /nothing HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
};

static const char *const splices[] = {
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    ";",
    "0",
    "\r\n\r\n",
    "\r\n ",
    "Content-Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Host: b\r\n",
    "Connection: close\r\n",
    "0\r\n\r\n",
    "HTTP/1.1",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\x80",
    "\x01",
    ",",
    "Upgrade: x\r\n",
    "FFFFFFFF",
};

static size_t make_input(char *text, size_t size)
{
    size_t length = 0;
    for (uint32_t i = 0, count = 1 + chance(3); i < count; i++)
        length += (size_t)snprintf(text + length, size - length, "%s", seeds[chance(ARRAY_SIZE(seeds))]);
    for (uint32_t i = 0, count = chance(4); i < count && length + 64 < size; i++) {
        size_t at = chance((uint32_t)length);
        const char *splice = splices[chance(ARRAY_SIZE(splices))];
        size_t cut = 1 + chance(8);
        if (cut > length - at)
            cut = length - at;
        switch (chance(4)) {
        case 0:
            text[at] = (char)chance(256);
            break;
        case 1:
            memmove(text + at, text + at + cut, length - at - cut);
            length -= cut;
            break;
        default:
            memmove(text + at + strlen(splice), text + at, length - at);
            memcpy(text + at, splice, strlen(splice));
            length += strlen(splice);
            break;
        }
    }
    return length;
}

START_TEST(a_damaged_request_gets_the_same_answers_however_it_is_cut)
{
    start_with_defaults();
    clock_freeze(clock_wall_us(), clock_mono_us());
    chance_state = 0x9E3779B97F4A7C15ULL;
    static char text[4096], whole[1 << 20];
    int answered = 0, refusals = 0;
    for (int round = 0; round < 2500; round++) {
        size_t length = make_input(text, sizeof(text));
        heard.is_opaque = true; /* HEAD and others mixed */
        converse(text, length, SIZE_MAX);
        size_t whole_length = heard.length < sizeof(whole) ? heard.length : sizeof(whole);
        memcpy(whole, heard.bytes, whole_length);
        answered += world.handled > 0;
        int handled = world.handled, refused_before = world.refused;
        converse(text, length, round % 3 == 0 ? 1 : 1 + chance(16));
        ck_assert_msg(heard.length == whole_length && memcmp(heard.bytes, whole, whole_length) == 0,
                      "round %d: %.*s\n--- whole\n%.*s\n--- cut\n%.*s", round, (int)length, text, (int)whole_length,
                      whole, (int)heard.length, heard.bytes);
        ck_assert_int_eq(world.handled, 2 * handled);
        ck_assert_int_eq(world.refused, 2 * refused_before);
        refusals += world.refused > 0;
        world.handled = world.refused = 0;
    }
    ck_assert_int_gt(answered, 250);
    ck_assert_int_gt(refusals, 250);
    turn_some();
    ck_assert_int_eq(http_server_connections(world.server), 0);
    stop();
}
END_TEST

static Suite *http_server_suite(void)
{
    Suite *suite = suite_create("http_server");
    TCase *framing = tcase_create("framing");
    tcase_set_timeout(framing, 60);
    tcase_add_loop_test(framing, what_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_served, 0,
                        (int)ARRAY_SIZE(refused));
    tcase_add_test(framing, what_is_too_long_is_refused_by_its_name);
    tcase_add_test(framing, what_just_fits_is_accepted);
    tcase_add_test(framing, sixty_four_headers_are_accepted_and_sixty_five_are_not);
    tcase_add_test(framing, a_body_that_grows_past_the_limit_by_chunks_is_refused);
    tcase_add_test(framing, short_extensions_of_many_chunks_are_refused_when_they_add_up);
    tcase_add_loop_test(framing, what_is_well_formed_is_read_as_it_was_sent_however_it_was_cut, 0,
                        (int)ARRAY_SIZE(accepted));
    tcase_add_test(framing, http_header_finds_the_first_of_a_name_in_any_case_and_counts_them);
    tcase_add_test(framing, a_damaged_request_gets_the_same_answers_however_it_is_cut);
    suite_add_tcase(suite, framing);

    TCase *replies = tcase_create("replies");
    tcase_set_timeout(replies, 60);
    tcase_add_test(replies, a_reply_tells_its_length_its_date_and_who_made_it);
    tcase_add_test(replies, head_is_told_the_length_and_gets_no_body);
    tcase_add_test(replies, a_204_has_neither_body_nor_length);
    tcase_add_test(replies, a_value_with_a_line_break_is_left_out_of_the_reply);
    tcase_add_loop_test(replies, a_connection_lasts_as_client_and_handler_wish, 0, (int)ARRAY_SIZE(persistence));
    tcase_add_test(replies, expect_continue_is_answered_before_the_body_is_sent);
    tcase_add_test(replies, a_hundred_pipelined_requests_are_answered_in_order);
    tcase_add_test(replies, pipelined_requests_reach_the_handler_one_by_one_and_never_inside_a_reply);
    tcase_add_test(replies, a_request_keeps_its_bytes_until_its_reply);
    tcase_add_test(replies, a_client_that_sends_on_and_on_behind_a_running_request_has_to_wait);
    tcase_add_test(replies, a_large_reply_reaches_a_slow_reader_whole_and_the_next_one_follows);
    tcase_add_test(replies, a_refusal_reaches_a_client_that_still_sends);
    suite_add_tcase(suite, replies);

    TCase *ends = tcase_create("ends");
    tcase_set_timeout(ends, 60);
    tcase_add_test(ends, a_client_that_ended_its_side_still_gets_its_answers);
    tcase_add_test(ends, a_handler_is_told_once_of_a_reset_and_may_still_reply);
    tcase_add_test(ends, a_server_closes_while_requests_run_and_their_replies_go_nowhere);
    tcase_add_test(ends, a_reply_between_close_and_its_callback_is_lawful);
    tcase_add_test(ends, faults_for_the_sandbox_reset_or_cut_the_answer);
    tcase_add_test(ends, the_end_of_input_counts_as_gone_where_the_handler_wishes_so);
    tcase_add_test(ends, a_reply_in_parts_arrives_as_one);
    tcase_add_test(ends, a_request_that_does_not_arrive_in_time_is_told_so);
    tcase_add_test(ends, an_idle_connection_is_closed_without_a_word);
    tcase_add_test(ends, a_running_request_has_all_the_time_its_handler_takes);
    tcase_add_test(ends, a_client_that_never_reads_its_answer_is_cut_off);
    tcase_add_test(ends, a_client_that_never_stops_sending_after_its_refusal_is_cut_off);
    tcase_add_test(ends, a_connection_above_the_limit_is_told_to_come_back);
    tcase_add_test(ends, draining_closes_the_idle_and_lets_the_busy_finish);
    tcase_add_test(ends, a_request_that_arrived_before_the_drain_is_answered);
    tcase_add_test(ends, a_second_server_on_the_same_port_is_refused_with_a_reason);
    tcase_add_test(ends, an_address_that_is_none_is_a_configuration_error);
    tcase_add_test(ends, any_address_and_names_may_be_listened_on);
    suite_add_tcase(suite, ends);

    /* It counts file descriptors, of which valgrind has some of its own. */
    TCase *descriptors = tcase_create("descriptors");
    tcase_set_tags(descriptors, "no_valgrind");
    tcase_set_timeout(descriptors, 60);
    tcase_add_test(descriptors, without_descriptors_accepting_rests_and_the_waiting_are_served_later);
    suite_add_tcase(suite, descriptors);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(http_server_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
