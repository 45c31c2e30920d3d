/* Unauthenticated clients made the server store 64 KiB bodies that it would refuse anyway. So a request is judged by
 * its head, before its body is read, and a refused one does not lose its connection for it. */
#include "http_server/http_server_world.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/support/suite.h"

static bool on_head(void *context, struct http_request *request)
{
    (void)context;
    world.heads++;
    if (is_path(request, "/no")) {
        reply_text(request, 401, "no");
        return false;
    }
    snprintf(request->note, sizeof(request->note), "noted");
    request->user = request->note;
    request->drops_body = is_path(request, "/drop");
    return true;
}

static void start_with_on_head(void)
{
    struct http_server_options options = options_for_tests();
    options.on_head = on_head;
    start(&options);
}

TEST(a_request_that_is_refused_at_its_head_gets_no_100_continue)
{
    start_with_on_head();
    int fd = dial();
    send_text(fd, "POST /no HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    listen_for(fd, 0);
    ck_assert_int_eq(heard.count, 1);
    ck_assert_int_eq(heard.replies[0].status, 401);
    ck_assert(head_has(0, "\r\nConnection: close\r\n"));
    ck_assert_int_eq(world.handled, 0);
    close(fd);
    fd = dial();
    send_text(fd, "POST /yes HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    listen_for(fd, 1);
    ck_assert_int_eq(heard.replies[0].status, 100);
    send_text(fd, "hello");
    listen_for(fd, 1);
    ck_assert_int_eq(heard.replies[0].status, 200);
    close(fd);
    stop();
}

/* A client whose token has expired need not connect again; and nothing of the body is read as a request. */
TEST(the_body_of_a_request_that_was_refused_at_its_head_is_dropped)
{
    static const char *const bodies[] = {"Content-Length: 36\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r",
                                         "Transfer-Encoding: chunked\r\n\r\n24;a=\"b\"\r\nGET /smuggled "
                                         "HTTP/1.1\r\nHost: a\r\n\r\n\r\r\n0\r\nA: b\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
        char text[512];
        size_t length = (size_t)snprintf(text, sizeof(text), "POST /no HTTP/1.1\r\n" H "%s%s", bodies[i],
                                         "POST /yes HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nhi");
        for (size_t step = 1; step <= length; step = step == 1 ? 11 : step == 11 ? length : length + 1) {
            start_with_on_head();
            converse(text, length, step);
            ck_assert_msg(heard.count == 2, "%zu by %zu: %.*s", i, step, (int)heard.length, heard.bytes);
            ck_assert_int_eq(heard.replies[0].status, 401);
            ck_assert(!head_has(0, "\r\nConnection: close\r\n"));
            ck_assert(body_is(1, "POST|/yes||2|Host=a;Content-Length=2;|hi"));
            ck_assert_int_eq(world.handled, 1);
            stop();
        }
    }
}

TEST(a_malformed_dropped_body_ends_the_connection_without_a_second_answer)
{
    static const char *const rests[] = {
        "Transfer-Encoding: chunked\r\n\r\nx\r\n", "Transfer-Encoding: chunked\r\n\r\n10001\r\n",
        "Transfer-Encoding: chunked\r\n\r\n1\r\nabc", "Transfer-Encoding: chunked\r\n\r\n0\r\nA b\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(rests); i++) {
        char text[256];
        int length = snprintf(text, sizeof(text), "POST /no HTTP/1.1\r\n" H "%s%s", rests[i],
                              "GET /smuggled HTTP/1.1\r\n" H "\r\n");
        start_with_on_head();
        provoke(text, (size_t)length);
        ck_assert_msg(heard.count == 1 && heard.replies[0].status == 401, "%zu: %.*s", i, (int)heard.length,
                      heard.bytes);
        ck_assert(!heard.was_reset);
        ck_assert_int_eq(world.handled + world.refused, 0);
        stop();
    }
    struct http_server_options options = options_for_tests();
    options.on_head = on_head;
    options.body_timeout_ms = 20;
    start(&options);
    static const char slow[] = "POST /no HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nabc";
    provoke(slow, sizeof(slow) - 1);
    ck_assert_int_eq(heard.count, 1);
    ck_assert_int_eq(world.refused, 0);
    stop();
}

TEST(a_note_of_on_head_is_there_with_the_body)
{
    start_with_on_head();
    int fd = dial();
    send_text(fd, "POST /later HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhe");
    run_some();
    ck_assert_int_eq(world.heads, 1);
    ck_assert_int_eq(world.held_count, 0);
    send_text(fd, "llo");
    run_some();
    ck_assert_int_eq(world.held_count, 1);
    ck_assert_ptr_eq(world.held[0]->user, world.held[0]->note);
    ck_assert_str_eq(world.held[0]->note, "noted");
    ck_assert_uint_eq(world.held[0]->body.length, 5);
    http_drop_body(world.held[0]);
    ck_assert_uint_eq(world.held[0]->body.length, 0);
    describe(world.held[0]);
    listen_for(fd, 1);
    ck_assert(body_is(0, "POST|/later||2|Host=a;Content-Length=5;|"));
    send_text(fd, "GET /later HTTP/1.1\r\n" H "\r\n"); /* no body: on_request judges by itself */
    run_some();
    ck_assert_int_eq(world.held_count, 2);
    ck_assert_int_eq(world.heads, 1);
    ck_assert_ptr_null(world.held[1]->user);
    reply_text(world.held[1], 200, "x");
    listen_for(fd, 1);
    send_text(fd, "GET /drop HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");
    listen_for(fd, 1);
    ck_assert(body_is(0, "GET|/drop||2|Host=a;Content-Length=5;|"));
    close(fd);
    stop();
}

static bool close_server_on_head(void *context, struct http_request *request)
{
    (void)context;
    (void)request;
    http_server_close(world.server, on_server_closed, &world);
    world.server = NULL;
    return true;
}

TEST(a_server_that_is_closed_at_a_head_stays_closed)
{
    struct http_server_options options = options_for_tests();
    options.on_head = close_server_on_head;
    start(&options);
    int first = dial(), second = dial();
    run_some();
    send_text(first, "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");
    while (!world.is_closed)
        uv_run(&world.loop, UV_RUN_ONCE);
    ck_assert_int_eq(world.handled, 0);
    close(first);
    close(second);
    stop();
}

TESTS(http_server_head)
