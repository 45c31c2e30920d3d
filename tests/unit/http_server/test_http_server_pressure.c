/* Thousands of idle, slow or unread connections made the server refuse everybody else, or held its memory. At the
 * limits the connections that can best be spared give way, and ordinary requests are served. */
#include "http_server/http_server_world.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "tests/support/suite.h"

/* ---- memory ---- */

static int dial_and_send(const char *before, size_t count)
{
    char *text = repeat(before, 'a', count, "");
    int fd = dial();
    send_text(fd, text);
    free(text);
    return fd;
}

/* 9900 connections with 15 KB of a head and 64 KB of a body each held 832 MB, before any token was checked. */
TEST(heads_that_do_not_end_give_way_when_memory_is_short)
{
    struct http_server_options options = options_for_tests();
    options.memory_max = (size_t)256 * 1024;
    start(&options);
    int fds[60];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = dial_and_send("GET / HTTP/1.1\r\n" H "A: ", 15000);
    int fresh = dial();
    assert_served(fresh);
    int count = world.refused;
    ck_assert_int_gt(count, 30);
    ck_assert_int_lt(count, 50);
    ck_assert_uint_eq(http_server_counts(world.server).memory, (uint64_t)count);
    world.refused = 1;
    listen_for(fds[0], 0);
    assert_refused("the oldest", 503);
    ck_assert(head_has(0, "\r\nRetry-After: 1\r\n"));
    send_text(fds[59], "\r\n\r\n"); /* the youngest is not disturbed */
    listen_for(fds[59], 1);
    ck_assert_int_eq(heard.replies[0].status, 200);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    close(fresh);
    stop();
}

TEST(bodies_beyond_the_memory_are_turned_away_and_small_requests_are_served)
{
    struct http_server_options options = options_for_tests();
    options.memory_max = (size_t)256 * 1024;
    start(&options);
    int fds[8];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = dial_and_send("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nfff0\r\n", 60000);
    ck_assert_int_ge(world.refused, 3);
    int early = dial_and_send("POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 65536\r\n\r\n", 0);
    world.refused = 0;
    listen_for(early, 0);
    assert_refused("at its head", 503);
    int fresh = dial();
    send_text(fresh, "POST /a HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");
    listen_for(fresh, 1);
    ck_assert_int_eq(heard.replies[0].status, 200);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    close(early);
    close(fresh);
    stop();
}

TEST(unread_answers_give_way_when_memory_is_short)
{
    struct http_server_options options = options_for_tests();
    options.memory_max = 2 * BIG + BIG / 2;
    start(&options);
    make_big();
    int fds[4];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = dial();
        send_text(fds[i], "GET /big HTTP/1.1\r\n" H "\r\n");
        run_some();
    }
    int fresh = dial();
    assert_served(fresh);
    ck_assert_int_eq(http_server_connections(world.server), 3);
    listen_for(fds[3], 1);
    ck_assert_uint_eq(heard.replies[0].body.length, BIG);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    close(fresh);
    stop();
}

/* Slow readers of one text share it. */
TEST(a_static_body_is_sent_from_where_it_lies)
{
    struct http_server_options options = options_for_tests();
    options.memory_max = (size_t)64 * 1024;
    options.write_timeout_ms = 10 * stuck_after_ms(); /* the last one is read when all others are */
    start(&options);
    make_big();
    int fds[8];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = dial();
        send_text(fds[i], "GET /static HTTP/1.1\r\n" H "\r\nHEAD /static HTTP/1.1\r\n" H "\r\n");
        run_some();
    }
    int fresh = dial();
    assert_served(fresh);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        heard.has_no_bodies = false;
        listen_for(fds[i], 1);
        ck_assert_uint_eq(heard.replies[0].body.length, BIG);
        ck_assert_int_eq(memcmp(heard.replies[0].body.bytes, world.big, BIG), 0);
        size_t first = heard.replies[0].head.length + BIG;
        int64_t give_up = (int64_t)(uv_hrtime() / 1000000000) + stuck_after_s();
        while (heard.length == first || memcmp(heard.bytes + heard.length - 4, "\r\n\r\n", 4) != 0) {
            run_once();
            hear(fds[i]);
            ck_assert(!heard.has_ended);
            ck_assert_int_lt((int64_t)(uv_hrtime() / 1000000000), give_up);
        }
        ck_assert_ptr_nonnull(memmem(heard.bytes + first, heard.length - first, "Content-Length: 6291456\r\n", 25));
        close(fds[i]);
    }
    ck_assert_uint_eq(http_server_counts(world.server).memory, 0);
    close(fresh);
    stop();
}

/* ---- connections ---- */

TEST(a_connection_above_the_limit_is_answered_503_with_retry_after)
{
    struct http_server_options options = options_for_tests();
    options.max_connections = 2;
    start(&options);
    int first = dial(), second = dial();
    send_text(first, "GET /later HTTP/1.1\r\n" H "\r\n");
    send_text(second, "GET /later HTTP/1.1\r\n" H "\r\n");
    run_some();
    ck_assert_int_eq(world.held_count, 2);
    int third = dial();
    listen_for(third, 0);
    assert_refused("third", 503);
    ck_assert(head_has(0, "\r\nRetry-After: 1\r\n"));
    close(third);
    reply_text(world.held[0], 200, "first");
    listen_for(first, 1);
    ck_assert(body_is(0, "first"));
    close(first);
    run_some();
    third = dial();
    send_text(third, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(third, 1);
    ck_assert(body_is(0, "short"));
    close(second);
    close(third);
    stop();
}

static void assert_ended_without_a_reply(int fd)
{
    listen_for(fd, 0);
    ck_assert_uint_eq(heard.length, 0);
    close(fd);
}

/* Ten thousand idle connections of one address shut everybody else out for a minute. */
TEST(at_the_limit_the_connection_that_was_idle_longest_gives_way)
{
    struct http_server_options options = options_for_tests();
    options.max_connections = 4;
    start(&options);
    int running = dial(), fds[3];
    send_text(running, "GET /later HTTP/1.1\r\n" H "\r\n");
    for (int i = 0; i < 3; i++) {
        fds[i] = dial();
        run_some();
    }
    assert_served(fds[0]); /* now fds[1] is idle longest */
    int fresh = dial();
    assert_served(fresh);
    assert_ended_without_a_reply(fds[1]);
    assert_served(fds[0]);
    assert_served(fds[2]);
    for (int i = 0; i < 20; i++) { /* a flood: clients that send requests are served */
        int one = dial();
        assert_served(one);
        close(one);
        run_some();
    }
    ck_assert_int_eq(world.refused, 0);
    ck_assert_uint_ge(http_server_counts(world.server).gave_way, 1);
    reply_text(world.held[0], 200, "still there");
    listen_for(running, 1);
    ck_assert(body_is(0, "still there"));
    close(running);
    close(fresh);
    close(fds[0]);
    close(fds[2]);
    stop();
}

/* The console: heads that do not end kept its operator out, whose browser keeps connections open. */
TEST(who_has_proved_who_it_is_gives_way_last)
{
    struct http_server_options options = options_for_tests();
    options.max_connections = 4;
    options.young_ms = 0;
    start(&options);
    int known = dial(), halves[20];
    send_text(known, "GET /prefer HTTP/1.1\r\n" H "\r\n");
    listen_for(known, 1);
    for (size_t i = 0; i < ARRAY_SIZE(halves); i++) {
        halves[i] = dial();
        send_text(halves[i], "GET / HTTP/1.1\r\nHost: ");
        if (i % 2) /* else both are accepted in one iteration */
            run_some();
    }
    int fresh = dial();
    assert_served(fresh);
    assert_served(known);
    ck_assert_int_eq(world.refused, 0);
    for (size_t i = 0; i < ARRAY_SIZE(halves); i++)
        close(halves[i]);
    int others[4];
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) { /* where all are known, the one that is idle longest goes */
        others[i] = dial();
        send_text(others[i], "GET /prefer HTTP/1.1\r\n" H "\r\n");
        listen_for(others[i], 1);
    }
    int last = dial();
    assert_served(last);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        close(others[i]);
    close(known);
    close(fresh);
    close(last);
    stop();
}

static bool admits_odd(void *context, int fd)
{
    (void)context, (void)fd;
    static int count;
    return ++count % 2;
}

TEST(a_connection_that_is_not_admitted_is_closed_without_a_reply)
{
    struct http_server_options options = options_for_tests();
    options.admits = admits_odd;
    start(&options);
    int first = dial(), second = dial();
    run_some();
    assert_ended_without_a_reply(second);
    assert_served(first);
    close(first);
    close(second);
    stop();
}

TEST(an_idle_connection_whose_request_has_arrived_is_passed_over)
{
    struct http_server_options options = options_for_tests();
    options.max_connections = 2;
    start(&options);
    int asking = dial();
    run_some();
    int idle = dial();
    run_some();
    static const char text[] = "GET /short HTTP/1.1\r\n" H "\r\n";
    int fresh =
        dial(); /* waits in the kernel, and is accepted in the iteration in which the request is read, or before */
    ck_assert_int_eq((int)send(asking, text, sizeof(text) - 1, MSG_NOSIGNAL), (int)sizeof(text) - 1);
    run_some();
    assert_ended_without_a_reply(idle);
    listen_for(asking, 1);
    ck_assert(body_is(0, "short"));
    assert_served(fresh);
    close(asking);
    close(fresh);
    stop();
}

/* One byte each, every five seconds, would hold all places. */
TEST(heads_that_do_not_end_give_way_when_nothing_is_idle)
{
    struct http_server_options options = options_for_tests();
    options.max_connections = 3;
    options.header_timeout_ms = options.body_timeout_ms = 60000;
    start(&options);
    int fds[3] = {dial(), dial(), dial()};
    send_text(fds[0], "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhe");
    send_text(fds[1], "G");
    send_text(fds[2], "G");
    run_some();
    int early = dial();
    listen_for(early, 0);
    assert_refused("while they may still end", 503);
    close(early);
    clock_advance(2000000);
    int fresh = dial();
    assert_served(fresh);
    assert_ended_without_a_reply(fds[1]);
    close(fds[0]);
    close(fds[2]);
    close(fresh);
    stop();
}

START_TEST(without_descriptors_accepting_pauses_and_the_waiting_are_served_later)
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
    run_some();
    ck_assert_int_eq(http_server_connections(world.server), 0);
    struct pollfd backend = {.fd = uv_backend_fd(&world.loop), .events = POLLIN};
    int spinning = poll(&backend, 1, 0);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_int_eq(spinning, 0);
    for (int i = 0; i < 3; i++) {
        send_text(fds[i], "GET /short HTTP/1.1\r\n" H "\r\n");
        listen_for(fds[i], 1);
        ck_assert(body_is(0, "short"));
        close(fds[i]);
    }
    stop();
}

SUITE(http_server_pressure)
{
    TCase *tests = tcase_create("http_server_pressure");
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
    TCase *tagged = tcase_create("no_valgrind");
    tcase_set_tags(tagged, "no_valgrind"); /* it counts file descriptors, of which valgrind has some of its own */
    tcase_add_test(tagged, without_descriptors_accepting_pauses_and_the_waiting_are_served_later);
    suite_add_tcase(suite, tagged);
}
