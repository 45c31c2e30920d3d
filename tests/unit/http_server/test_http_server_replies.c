/* A reply that is lost, sent twice, cut or out of order makes a client believe something false about its card request.
 * What is accepted is answered once, in order, however many requests came in one read and however slowly the client
 * takes the replies. */
#include "http_server/http_server_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "tests/support/suite.h"

/* ---- replies ---- */

TEST(a_reply_has_its_length_its_date_and_the_server_name)
{
    start_with_defaults();
    clock_freeze(784111777LL * 1000000, clock_mono_us());
    int fd = dial();
    send_text(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 1);
    static const char expected[] =
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: issuing\r\nContent-Type: text/plain\r\n"
        "Content-Length: 5\r\n\r\nshort";
    ck_assert_msg(heard.length == sizeof(expected) - 1 && memcmp(heard.bytes, expected, heard.length) == 0, "%.*s",
                  (int)heard.length, heard.bytes);
    close(fd);
    stop();
}

TEST(head_gets_the_length_and_no_body)
{
    start_with_defaults();
    int fd = dial();
    heard.has_no_bodies = true;
    send_text(fd, "HEAD /short HTTP/1.1\r\n" H "\r\nHEAD /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 2);
    ck_assert(head_has(0, "\r\nContent-Length: 5\r\n"));
    ck_assert_uint_eq(heard.length, heard.replies[0].head.length + heard.replies[1].head.length);
    send_text(fd, "HEAD /short HTTP/1.1\r\n" H "Transfer-Encoding: x\r\n\r\n");
    listen_for(fd, 0);
    assert_refused("HEAD", 400);
    ck_assert_uint_eq(heard.length, heard.replies[0].head.length);
    close(fd);
    stop();
}

TEST(a_204_has_neither_body_nor_length)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, "GET /nothing HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 2);
    ck_assert_int_eq(heard.replies[0].status, 204);
    ck_assert(!head_has(0, "Content-"));
    ck_assert(body_is(1, "short"));
    close(fd);
    stop();
}

TEST(a_value_with_a_line_break_is_left_out_of_the_reply)
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

START_TEST(a_connection_lasts_as_long_as_client_and_handler_want)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, persistence[_i].request);
    listen_for(fd, persistence[_i].is_closed ? 0 : 1);
    ck_assert_int_eq(heard.count, 1);
    ck_assert_int_eq(head_has(0, "\r\nConnection: close\r\n"), persistence[_i].says_close);
    ck_assert_int_eq(head_has(0, "\r\nConnection: keep-alive\r\n"), persistence[_i].says_keep_alive);
    if (!persistence[_i].is_closed) {
        send_text(fd, persistence[_i].request);
        listen_for(fd, 1);
        ck_assert(body_is(0, "short"));
    }
    close(fd);
    stop();
}

TEST(expect_continue_is_answered_before_the_body_is_sent)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, "POST /a HTTP/1.1\r\n" H "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
    listen_for(fd, 1);
    ck_assert_int_eq(heard.replies[0].status, 100);
    ck_assert_str_eq("HTTP/1.1 100 Continue\r\n\r\n", (heard.bytes[heard.length] = '\0', heard.bytes));
    send_text(fd, "hi");
    listen_for(fd, 1);
    ck_assert_int_eq(heard.replies[0].status, 200);
    send_text(fd, "POST /short HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n");
    listen_for(fd, 1);
    ck_assert_int_eq(heard.replies[0].status, 200);
    close(fd);
    stop();
}

/* ---- order and pace ---- */

TEST(a_hundred_pipelined_requests_are_answered_in_order)
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

TEST(pipelined_requests_reach_the_handler_one_by_one_and_never_inside_a_reply)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd,
              "GET /later?1 HTTP/1.1\r\n" H "\r\nGET /later?2 HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    run_some();
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(world.held_count, i + 1);
        ck_assert_int_eq(world.held[i]->query.bytes[0], '1' + i);
        reply_text(world.held[i], 200, i == 0 ? "one" : "two");
        ck_assert_int_eq(world.held_count, i + 1);
        run_some();
    }
    listen_for(fd, 3);
    ck_assert(body_is(0, "one") && body_is(1, "two") && body_is(2, "short"));
    close(fd);
    stop();
}

TEST(a_request_keeps_its_bytes_until_its_reply)
{
    start_with_defaults();
    int fd = dial(), other = dial();
    send_text(fd, "POST /later?abc HTTP/1.1\r\n" H "A: first\r\nContent-Length: 5\r\n\r\nhello");
    for (int i = 0; i < 20; i++)
        send_text(other, "POST /x?def HTTP/1.1\r\n" H "A: other\r\nContent-Length: 5\r\n\r\nworld");
    send_text(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
    run_some();
    ck_assert_int_eq(world.held_count, 1);
    describe(world.held[0]);
    listen_for(fd, 2);
    ck_assert(body_is(0, "POST|/later|abc|3|Host=a;A=first;Content-Length=5;|hello"));
    close(fd);
    close(other);
    stop();
}

TEST(a_client_that_sends_on_and_on_behind_a_running_request_has_to_wait)
{
    start_with_defaults();
    int fd = dial();
    int small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    send_text(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
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
    reply_text(world.held[0], 200, "at last");
    listen_for(fd, REPLIES_MAX);
    ck_assert(body_is(0, "at last") && body_is(REPLIES_MAX - 1, "short"));
    ck_assert_int_gt(world.handled, handled + 100);
    free(flood);
    close(fd);
    stop();
}

TEST(a_large_reply_reaches_a_slow_reader_whole_and_the_next_one_follows)
{
    start_with_defaults();
    make_big();
    int fd = dial();
    send_text(fd, "GET /big HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    run_some();
    ck_assert_int_eq(world.handled, 1); /* the second waits: output is bounded */
    send_text(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 3);
    ck_assert_uint_eq(heard.replies[0].body.length, BIG);
    ck_assert_int_eq(memcmp(heard.replies[0].body.bytes, world.big, BIG), 0);
    ck_assert(body_is(1, "short") && body_is(2, "short"));
    close(fd);
    stop();
}

/* ---- replies of the sandbox ---- */

TEST(faults_for_the_sandbox_reset_or_cut_the_answer)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, "GET /reset HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 0);
    ck_assert(heard.was_reset);
    ck_assert_uint_eq(heard.length, 0);
    close(fd);
    fd = dial();
    send_text(fd, "GET /short HTTP/1.1\r\n" H "\r\nGET /raw HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 0);
    ck_assert(!heard.was_reset);
    ck_assert_int_eq(heard.count, 1);
    ck_assert_int_eq(memcmp(heard.bytes + heard.length - 3, "cut", 3), 0);
    ck_assert_int_eq(world.handled, 3);
    close(fd);
    stop();
}

TEST(a_reply_in_parts_arrives_as_one)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, "GET /later HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    run_some();
    ck_assert_int_eq(world.held_count, 1);
    static const char first[] = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc";
    http_reply_part(world.held[0], first, sizeof(first) - 1);
    run_some();
    ck_assert_int_eq(world.handled, 1);
    http_reply_raw(world.held[0], "def", 3, false);
    listen_for(fd, 2);
    ck_assert(body_is(0, "abcdef") && body_is(1, "short"));
    close(fd);
    stop();
}

SUITE(http_server_replies)
{
    TCase *tests = tcase_create("http_server_replies");
    ADD_TESTS(tests);
    tcase_add_loop_test(tests, a_connection_lasts_as_long_as_client_and_handler_want, 0, (int)ARRAY_SIZE(persistence));
    suite_add_tcase(suite, tests);
}
