/* Clients leave, stall and come back at any moment, and a server that waits for them, forgets them or frees them twice
 * can be taken down. Every wait has a limit, every handler's reply is valid at any time, and a drain loses no
 * request. */
#include "http_server/http_server_world.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "tests/support/suite.h"

/* ---- clients that go ---- */

TEST(a_client_that_ended_its_side_still_gets_its_answers)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, "GET /later HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\nGET /cut");
    shutdown(fd, SHUT_WR);
    run_some();
    ck_assert_int_eq(world.held_count, 1);
    ck_assert_int_eq(world.gone, 0);
    reply_text(world.held[0], 200, "late");
    listen_for(fd, 0);
    ck_assert_int_eq(heard.count, 2);
    ck_assert(body_is(0, "late") && body_is(1, "short"));
    ck_assert_int_eq(world.gone, 0);
    close(fd);
    stop();
}

static void reset(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    close(fd);
}

TEST(a_handler_is_notified_once_of_a_reset_and_may_still_reply)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, "POST /later?abc HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");
    run_some();
    ck_assert_int_eq(world.held_count, 1);
    reset(fd);
    run_some();
    ck_assert_int_eq(world.gone, 1);
    ck_assert_int_eq(http_server_connections(world.server), 0);
    ck_assert_int_eq(memcmp(world.held[0]->body.bytes, "hello", 5), 0);
    reply_text(world.held[0], 200, "not sent");
    run_some();
    ck_assert_int_eq(world.gone, 1);
    stop();
}

TEST(a_server_closes_while_requests_run_and_their_replies_go_nowhere)
{
    start_with_defaults();
    int fd = dial(), idle = dial(), half = dial();
    send_text(fd, "GET /later HTTP/1.1\r\n" H "\r\nGET /short HTTP/1.1\r\n" H "\r\n");
    send_text(half, "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhe");
    run_some();
    ck_assert_int_eq(world.held_count, 1);
    ck_assert_int_eq(http_server_connections(world.server), 3);
    close_server();
    ck_assert_int_eq(world.gone, 1);
    reply_text(world.held[0], 200, "not sent");
    ck_assert_int_eq(world.handled, 1);
    close(fd);
    close(idle);
    close(half);
    stop();
}

TEST(a_reply_between_close_and_its_callback_is_lawful)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    run_some();
    http_server_close(world.server, on_server_closed, &world);
    reply_text(world.held[0], 200, "not sent");
    uv_run(&world.loop, UV_RUN_DEFAULT);
    ck_assert(world.is_closed);
    ck_assert_int_eq(world.gone, 0);
    world.server = NULL;
    close(fd);
    stop();
}

TEST(the_end_of_input_counts_as_gone_where_the_handler_sets_it)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    run_some();
    ck_assert_int_eq(world.held_count, 1);
    world.held[0]->gone_at_end = true;
    shutdown(fd, SHUT_WR);
    run_some();
    ck_assert_int_eq(world.gone, 1);
    ck_assert_int_eq(http_server_connections(world.server), 0);
    http_reply_part(world.held[0], "nobody", 6);
    reply_text(world.held[0], 200, "not sent");
    close(fd);
    stop();
}

/* ---- time ---- */

TEST(a_request_that_does_not_arrive_in_time_is_answered_408)
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

TEST(an_idle_connection_is_closed_without_a_reply)
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
    send_text(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(fd, 0);
    ck_assert_int_eq(heard.count, 1);
    ck_assert(body_is(0, "short"));
    ck_assert_int_eq(world.refused, 0);
    close(fd);
    stop();
}

TEST(a_running_request_has_all_the_time_its_handler_takes)
{
    struct http_server_options options = options_for_tests();
    options.idle_timeout_ms = options.header_timeout_ms = options.body_timeout_ms = 20;
    start(&options);
    int fd = dial(), idle = dial();
    send_text(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    listen_for(idle, 0); /* so a sweep has passed */
    run_once();          /* and the end of what it closed */
    ck_assert_int_eq(world.held_count, 1);
    ck_assert_int_eq(http_server_connections(world.server), 1);
    reply_text(world.held[0], 200, "done");
    listen_for(fd, 1);
    ck_assert(body_is(0, "done"));
    close(fd);
    close(idle);
    stop();
}

TEST(a_client_that_never_reads_its_answer_is_cut_off)
{
    struct http_server_options options = options_for_tests();
    options.write_timeout_ms = 20;
    start(&options);
    make_big();
    int fd = dial();
    send_text(fd, "GET /big HTTP/1.1\r\n" H "\r\n");
    while (http_server_connections(world.server) > 0)
        uv_run(&world.loop, UV_RUN_ONCE);
    ck_assert_int_eq(world.handled, 1);
    close(fd);
    stop();
}

/* Ten seconds for each piece, not a minute for the whole: thousands of readers that never read held 89 KB each. */
TEST(a_reader_that_goes_on_gets_its_answer_and_one_that_stops_is_cut_off)
{
    struct http_server_options options = options_for_tests();
    start(&options);
    make_big();
    int slow = dial(), stuck = dial();
    send_text(slow, "GET /big HTTP/1.1\r\n" H "\r\n");
    send_text(stuck, "GET /big HTTP/1.1\r\n" H "\r\n");
    run_some();
    int64_t give_up = (int64_t)(uv_hrtime() / 1000000000) + stuck_after_s();
    forget_heard();
    while (http_server_connections(world.server) > 1) {
        size_t before = heard.length;
        while (heard.length < before + HEAR_MAX) { /* little: the answer outlasts several sweeps */
            run_once(), hear(slow);
            ck_assert_msg(!heard.has_ended, "the one that goes on was cut off after %zu bytes", heard.length);
        }
        clock_advance(4000000);
        uv_sleep(20);
        run_some();
        ck_assert_int_lt((int64_t)(uv_hrtime() / 1000000000), give_up);
    }
    ck_assert_uint_eq(http_server_counts(world.server).unread, 1);
    size_t so_far = heard.length;
    ck_assert_uint_lt(so_far, BIG); /* so it was cut off for not reading while the other went on */
    while (heard.length < BIG)
        hear(slow), run_once();
    count_replies();
    ck_assert_int_eq(heard.count, 1);
    close(slow);
    close(stuck);
    stop();
}

TEST(a_large_answer_that_the_kernel_took_must_be_read_in_time_too)
{
    struct http_server_options options = options_for_tests();
    options.write_timeout_ms = 20;
    start(&options);
    make_big();
    int stuck = dial(), small = 4096;
    setsockopt(stuck, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    send_text(stuck, "GET /kernel HTTP/1.1\r\n" H "\r\n");
    while (http_server_counts(world.server).unread == 0)
        uv_run(&world.loop, UV_RUN_ONCE);
    int fine = dial();
    send_text(fine, "GET /kernel HTTP/1.1\r\n" H "\r\n");
    listen_for(fine, 1);
    for (int64_t until = clock_mono_ms() + 600; clock_mono_ms() < until;) /* two sweeps */
        uv_run(&world.loop, UV_RUN_ONCE);
    assert_served(fine);
    close(stuck);
    close(fine);
    stop();
}

/* ---- drain and addresses ---- */

TEST(draining_closes_the_idle_and_lets_the_busy_finish)
{
    start_with_defaults();
    int idle = dial(), running = dial(), half = dial();
    send_text(running, "GET /later HTTP/1.1\r\n" H "\r\n");
    send_text(half, "GET /short HTTP/1.1\r\n");
    run_some();
    ck_assert_int_eq(world.held_count, 1);
    http_server_drain(world.server);
    ck_assert(!http_server_is_drained(world.server));
    listen_for(idle, 0);
    ck_assert_uint_eq(heard.length, 0);
    ck_assert(!heard.was_reset);
    send_text(half, H "\r\n");
    listen_for(half, 0);
    ck_assert(body_is(0, "short") && head_has(0, "\r\nConnection: close\r\n"));
    reply_text(world.held[0], 200, "done");
    listen_for(running, 0);
    ck_assert(body_is(0, "done") && head_has(0, "\r\nConnection: close\r\n"));
    close(idle);
    close(half);
    close(running);
    run_some();
    ck_assert(http_server_is_drained(world.server));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_server_port(world.server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_ne(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    close(fd);
    stop();
}

TEST(a_request_that_arrived_before_the_drain_is_answered)
{
    start_with_defaults();
    int fd = dial();
    run_some();
    static const char text[] = "GET /short HTTP/1.1\r\n" H "\r\n";
    ck_assert_int_eq((int)send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL), (int)sizeof(text) - 1);
    http_server_drain(world.server);
    listen_for(fd, 0);
    ck_assert_int_eq(heard.count, 1);
    ck_assert(body_is(0, "short"));
    close(fd);
    stop();
}

/* A passed socket is somebody else's as well: a connection that comes during the drain, and one that the kernel had
 * accepted before it, wait for the server that comes next. */
TEST(a_drain_leaves_the_backlog_of_a_passed_socket_to_the_next_server)
{
    struct http_server_options options = options_for_tests();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int passed = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(passed, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(passed, 16), 0);
    options.listen = "not looked at";
    options.listen_fd = dup(passed);
    start(&options);
    char text[HTTP_SERVER_ADDRESS_SIZE], wanted[HTTP_SERVER_ADDRESS_SIZE];
    snprintf(wanted, sizeof(wanted), "127.0.0.1:%d", http_server_port(world.server));
    http_server_address(world.server, text);
    ck_assert_str_eq(text, wanted);
    int served = dial();
    assert_served(served);
    int accepted = dial(); /* and has not sent its request yet */
    run_some();
    int before = dial();
    http_server_drain(world.server);
    int during = dial();
    run_some();
    ck_assert(!http_server_is_drained(world.server));
    send_text(accepted, "GET /short HTTP/1.1\r\n" H "\r\n");
    listen_for(accepted, 0);
    ck_assert(body_is(0, "short") && head_has(0, "\r\nConnection: close\r\n"));
    close(accepted);
    send_text(before, "GET /short HTTP/1.1\r\n" H "\r\n");
    send_text(during, "GET /short HTTP/1.1\r\n" H "\r\n");
    close(served);
    run_some();
    ck_assert(http_server_is_drained(world.server));
    stop();

    options.listen_fd = dup(passed);
    start(&options);
    listen_for(before, 1);
    ck_assert(body_is(0, "short"));
    listen_for(during, 1);
    ck_assert(body_is(0, "short"));
    close(before);
    close(during);
    close(passed);
    stop();
}

TEST(a_second_server_on_the_same_port_is_refused_with_a_reason)
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

TEST(an_address_that_is_none_is_a_configuration_error)
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

TEST(any_address_and_names_may_be_listened_on)
{
    static const char *const texts[] = {"*:0", "localhost:0", "0.0.0.0:0"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct http_server_options options = options_for_tests();
        options.listen = texts[i];
        start(&options);
        ck_assert_int_gt(http_server_port(world.server), 0);
        if (i != 1) { /* localhost may be ::1 only */
            int fd = dial();
            send_text(fd, "GET /short HTTP/1.1\r\n" H "\r\n");
            listen_for(fd, 1);
            ck_assert(body_is(0, "short"));
            close(fd);
        }
        stop();
    }
}

TESTS(http_server_life)
