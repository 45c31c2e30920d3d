/* A connection of the server, from its first byte to its close: whatever a client sends, it gets whole answers, as our
 * own client reads them, and then the end; and nothing is left of the connection. With a proxy's header before, and the
 * client's address in a header line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/http_server/http_parse_internal.h" /* before llhttp.h, whose methods have the names of ours */
#include "common/lib/http_client/http_answer.h"
#include "tests/fuzz/fuzz.h"

#define HEARD_MAX ((size_t)512 * 1024)
#define TURNS_MAX 3000

static uv_loop_t loop;
static struct ip_networks proxies;

static void on_request(void *context, struct http_request *request)
{
    (void)context;
    char body[32];
    snprintf(body, sizeof(body), "%zu bytes", request->body.length);
    struct http_reply reply = {.status = 200, .content_type = "text/plain", .body = body, .body_length = strlen(body)};
    if (request->method == HTTP_HEAD) /* so that its answer can be read without knowing that it is one */
        reply.body_length = 0;
    http_reply(request, &reply);
}

static bool on_head(void *context, struct http_request *request)
{
    request->drops_body = slice_is(request->path, "/drop");
    if (!slice_is(request->path, "/no"))
        return true;
    on_request(context, request);
    return false;
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

/* The answers behind each other, then the end. */
static void read_answers(struct slice heard)
{
    while (heard.length > 0) {
        struct http_call call;
        struct http_answer answer;
        size_t used = 0;
        http_call_init(&call, HEARD_MAX);
        http_answer_begin(&answer, &call, HEARD_MAX);
        enum http_answer_state state = http_answer_take(&answer, heard.bytes, heard.length, &used);
        if (state == HTTP_ANSWER_GOES_ON)
            fuzz_expect(fuzz_memory_is_short);
        else
            fuzz_expect(state == HTTP_ANSWER_WHOLE && call.status >= 200 && call.status < 600);
        http_answer_forget(&answer);
        http_call_done(&call);
        heard = (struct slice){heard.bytes + used, heard.length - used};
    }
}

/* Returns how much came back until the server ended the connection. */
static size_t converse(struct http_server *server, int fd, struct slice bytes, char *heard)
{
    size_t length = 0, sent = 0;
    bool is_shut = false;
    for (int turn = 0;; turn++) {
        fuzz_expect(turn < TURNS_MAX);
        ssize_t count = sent < bytes.length ? send(fd, bytes.bytes + sent, bytes.length - sent, MSG_NOSIGNAL) : 0;
        if (count < 0 && errno != EAGAIN)
            sent = bytes.length;
        sent += count > 0 ? (size_t)count : 0;
        if (sent == bytes.length && !is_shut)
            is_shut = shutdown(fd, SHUT_WR) == 0 || errno != EINTR;
        uv_run(&loop, UV_RUN_NOWAIT);
        count = recv(fd, heard + length, HEARD_MAX - length, MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN))
            break;
        length += count > 0 ? (size_t)count : 0;
    }
    close(fd);
    for (int turn = 0; http_server_connections(server) > 0; turn++) {
        fuzz_expect(turn < TURNS_MAX);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    return length;
}

static void serve(const struct http_server_options *options, struct slice bytes)
{
    static char heard[HEARD_MAX];
    struct http_server *server = NULL;
    struct err err = {.kind = ERR_NONE};
    int fds[2];
    bool is_closed = false;
    if (!http_server_open(&loop, options, &server, &err)) {
        fuzz_expect_err(&err, ERR_MEMORY, ERR_SYSTEM);
        return;
    }
    fuzz_expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    http_conn_open(server, fds[0], false);
    size_t length = converse(server, fds[1], bytes, heard);
    http_server_close(server, on_closed, &is_closed);
    while (!is_closed)
        uv_run(&loop, UV_RUN_ONCE);
    bool was_paused = fuzz_pause && fuzz_pause(true);
    read_answers((struct slice){heard, length});
    if (fuzz_pause)
        (void)fuzz_pause(was_paused);
}

FUZZ(server)
{
    struct http_server_options options;
    static bool is_open;
    if (!is_open) {
        struct err err;
        bool was_paused = fuzz_pause && fuzz_pause(true);
        fuzz_expect(uv_loop_init(&loop) == 0 && ip_networks_parse("::/128, 10.0.0.0/8", &proxies, &err));
        if (fuzz_pause)
            (void)fuzz_pause(was_paused);
        is_open = true;
    }
    http_server_defaults(&options);
    options.listen = "127.0.0.1:0";
    options.server_name = "issuing";
    options.on_request = on_request;
    options.header_max = 1024;
    options.body_max = 512;
    unsigned way = fuzz_choose(in, 4);
    if (way & 1)
        options.on_head = on_head;
    if (way & 2) { /* the other end of a socket pair has no address: it is :: */
        options.trusted_proxies = &proxies;
        options.client_address_header = "X-Forwarded-For";
        options.max_per_address = 1;
        options.proxy_protocol = true;
    }
    serve(&options, (struct slice){in->bytes, in->length});
}
