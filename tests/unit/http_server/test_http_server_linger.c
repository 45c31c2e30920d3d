/* A client that was refused while it still sent saw a reset instead of the answer, and a proxy took such servers out of
 * rotation. The input of a refused client is drained, for a bounded time and size. */
#include "http_server/http_server_world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/suite.h"

TEST(a_refusal_reaches_a_client_that_still_sends)
{
    start_with_defaults();
    char *text = repeat("POST / HTTP/1.1\r\n" H "Content-Length: 100000\r\n\r\n", 'a', 50000, "");
    provoke(text, strlen(text));
    assert_refused("large body", 413);
    free(text);
    stop();
}

/* Behind a proxy one request of 1 MB was enough: the answer was lost to a reset, and the proxy took the server for
 * dead. */
TEST(a_refusal_reaches_clients_that_send_a_megabyte_before_they_read)
{
    static const struct {
        const char *before;
        int status;
    } all[] = {
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1000000\r\n\r\n", 413},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1000000\r\nContent-Length: 1000000\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Expect: wonders\r\nContent-Length: 1000000\r\n\r\n", 417},
        {"GET /", 414},
        {"GET / HTTP/1.1\r\n" H "A: ", 431},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nFFFFF\r\n", 413},
    };
    enum { ROUNDS = 3 * ARRAY_SIZE(all) };
    start_with_defaults();
    int fds[ROUNDS];
    for (size_t i = 0; i < ROUNDS; i++) { /* all are answered, and none has read, when the first one reads */
        char *text = repeat(all[i % ARRAY_SIZE(all)].before, 'a', 1000000, "");
        fds[i] = dial();
        int small = 32768; /* what the kernel takes at once is not what a proxy has sent */
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
        ck_assert_uint_eq(send_all(fds[i], text, strlen(text)), strlen(text));
        free(text);
    }
    for (size_t i = 0; i < ROUNDS; i++) {
        listen_for(fds[i], 0);
        world.refused = 1;
        assert_refused(all[i % ARRAY_SIZE(all)].before, all[i % ARRAY_SIZE(all)].status);
        close(fds[i]);
    }
    stop();
}

TEST(no_more_than_256_refused_clients_are_drained_at_once)
{
    start_with_defaults();
    int fds[300];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = dial();
        send_text(fds[i], "bad\r\n");
    }
    run_some();
    ck_assert_int_eq(world.refused, (int)ARRAY_SIZE(fds));
    ck_assert_int_eq(http_server_connections(world.server), 256);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    stop();
}

TEST(a_client_that_never_stops_sending_after_its_refusal_is_cut_off)
{
    start_with_defaults();
    int fd = dial();
    send_text(fd, "bad\r\n");
    char *more = repeat("", 'a', (size_t)40 * 1024 * 1024, "");
    ck_assert_uint_lt(send_some(fd, more, strlen(more)), strlen(more));
    while (http_server_connections(world.server) > 0)
        uv_run(&world.loop, UV_RUN_ONCE);
    ck_assert_int_eq(world.refused, 1);
    free(more);
    close(fd);
    stop();
}

TESTS(http_server_linger)
