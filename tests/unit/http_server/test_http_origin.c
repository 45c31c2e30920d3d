/* The story: 10,300 idle connections of one address took every connection of the server. So each address has its share,
 * also behind a proxy, which names the client of a connection or of a request. But a client that could name its own
 * address would take the share of another, or one more for each false address; and a proxy that is refused without an
 * answer takes the server for dead.
 *
 * Clients dial from different addresses of 127.0.0.0/8. Server and clients share one thread. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server.h"
#include "tests/unit/fault_injection.h"
#include "tests/support/stuck.h"
#include "tests/support/suite.h"

#define HELD_MAX 16
#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"
#define BYTES(literal) (literal), sizeof(literal) - 1
#define PROXIED_7 SIGNATURE "\x21\x11\0\x0c\xc0\0\2\x07\x7f\0\0\1\xd9\x03\x1f\x90" /* 192.0.2.7 */
#define PROXIED_8 SIGNATURE "\x21\x11\0\x0c\xc0\0\2\x08\x7f\0\0\1\xd9\x03\x1f\x90"
#define PROXY_ITSELF SIGNATURE "\x20\0\0\0"

static struct {
    uv_loop_t loop;
    struct http_server_options options;
    struct ip_networks trusted;
    struct http_server *server;
    bool is_closed;
    bool holds; /* requests are not answered until release() */
    struct http_request *held[HELD_MAX];
    int held_count, full_count;
    char full[IP_ADDRESS_TEXT_SIZE];
    char got[64 * 1024];
    size_t got_length;
    bool has_ended;
} world;

/* ---- the program: answers with the client's address ---- */

static void answer(struct http_request *request)
{
    char text[IP_ADDRESS_TEXT_SIZE];
    ip_address_format(&request->client, text);
    http_reply(request, &(struct http_reply){.status = 200, .body = text, .body_length = strlen(text)});
}

static void on_request(void *context, struct http_request *request)
{
    (void)context;
    if (world.holds && world.held_count < HELD_MAX)
        world.held[world.held_count++] = request;
    else
        answer(request);
}

static void on_address_full(void *context, const struct ip_address *address)
{
    (void)context;
    world.full_count++;
    ip_address_format(address, world.full);
}

static void start(int max_per_address, const char *trusted, bool proxy_protocol, const char *header)
{
    struct err err;
    memset(&world, 0, sizeof(world));
    http_server_defaults(&world.options);
    world.options.listen = "127.0.0.1:0";
    world.options.on_request = on_request;
    world.options.on_address_full = on_address_full;
    world.options.max_per_address = max_per_address;
    world.options.proxy_protocol = proxy_protocol;
    world.options.client_address_header = header;
    if (trusted) {
        ck_assert(ip_networks_parse(trusted, &world.trusted, &err));
        world.options.trusted_proxies = &world.trusted;
    }
    ck_assert_int_eq(uv_loop_init(&world.loop), 0);
}

static void open_server(void)
{
    struct err err;
    ck_assert_msg(http_server_open(&world.loop, &world.options, &world.server, &err), "%s", err.message);
}

static void on_closed(void *context)
{
    (void)context;
    world.is_closed = true;
}

static void stop(void)
{
    http_server_close(world.server, on_closed, NULL);
    while (!world.is_closed)
        uv_run(&world.loop, UV_RUN_ONCE);
    while (world.held_count > 0)
        answer(world.held[--world.held_count]);
    uv_run(&world.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&world.loop), 0);
    clock_release();
}

static void release(void)
{
    world.holds = false;
    while (world.held_count > 0)
        answer(world.held[--world.held_count]);
}

static void turn_some(void)
{
    for (int i = 0; i < 20; i++)
        uv_run(&world.loop, UV_RUN_NOWAIT);
}

static void wait_for_connections(int count)
{
    int64_t give_up = clock_mono_ms() + stuck_after_ms();
    while (http_server_connections(world.server) != count) {
        turn_some();
        ck_assert_msg(clock_mono_ms() < give_up, "%d connections", http_server_connections(world.server));
    }
}

static void wait_for_held(int count)
{
    int64_t give_up = clock_mono_ms() + stuck_after_ms();
    while (world.held_count != count) {
        turn_some();
        ck_assert_msg(clock_mono_ms() < give_up, "%d requests", world.held_count);
    }
}

/* ---- clients ---- */

/* The server has not accepted it yet. */
static int knock(const char *from)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_server_port(world.server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                       self = {.sin_family = AF_INET};
    inet_pton(AF_INET, from, &self.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&self, sizeof(self)), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static int dial(const char *from)
{
    int fd = knock(from);
    turn_some();
    return fd;
}

static void say(int fd, const char *bytes, size_t length)
{
    ck_assert_int_eq(send(fd, bytes, length, MSG_NOSIGNAL), (ssize_t)length);
    turn_some();
}

/* The status of the next answer, which is in world.got; 0 when the connection ends without one. */
static int listen_for(int fd)
{
    int64_t give_up = clock_mono_ms() + stuck_after_ms();
    memset(world.got, 0, sizeof(world.got));
    world.got_length = 0;
    world.has_ended = false;
    for (;;) {
        uv_run(&world.loop, UV_RUN_NOWAIT);
        ssize_t count = recv(fd, world.got + world.got_length, sizeof(world.got) - 1 - world.got_length, MSG_DONTWAIT);
        if (count > 0)
            world.got_length += (size_t)count;
        world.has_ended = count == 0 || (count < 0 && errno != EAGAIN);
        const char *blank = strstr(world.got, "\r\n\r\n"), *announced = strstr(world.got, "Content-Length: ");
        if (blank && announced && strlen(blank + 4) >= strtoul(announced + 16, NULL, 10))
            return atoi(world.got + strlen("HTTP/1.1 "));
        if (world.has_ended)
            return 0;
        ck_assert_msg(clock_mono_ms() < give_up, "no answer: %s", world.got);
        poll(NULL, 0, 1);
    }
}

static bool ends(int fd)
{
    (void)listen_for(fd);
    while (!world.has_ended)
        (void)listen_for(fd);
    return true;
}

static bool is_for(const char *address)
{
    return strcmp(strstr(world.got, "\r\n\r\n") + 4, address) == 0;
}

static void assert_for(int fd, const char *bytes, size_t length, const char *address)
{
    say(fd, bytes, length);
    ck_assert_msg(listen_for(fd) == 200 && is_for(address), "wanted %s: %s", address, world.got);
}

/* ---- without a proxy ---- */

TEST(an_address_has_its_share_and_others_theirs)
{
    start(2, NULL, false, NULL);
    open_server();
    int first = dial("127.0.0.5"), second = dial("127.0.0.5"), third = dial("127.0.0.5"), other = dial("127.0.0.6");
    ck_assert_int_eq(listen_for(third), 429);
    ck_assert(strstr(world.got, "\r\nRetry-After: 1\r\n") && strstr(world.got, "\r\nConnection: close\r\n"));
    ck_assert(world.full_count == 1 && strcmp(world.full, "127.0.0.5") == 0);
    close(third);
    assert_for(first, BYTES(GET "\r\n"), "127.0.0.5");
    assert_for(other, BYTES(GET "\r\n"), "127.0.0.6");
    close(first);
    wait_for_connections(2);
    first = dial("127.0.0.5");
    assert_for(first, BYTES(GET "\r\n"), "127.0.0.5");
    close(first);
    close(second);
    close(other);
    wait_for_connections(0);
    stop();
}

TEST(those_that_are_refused_take_no_place_of_others_and_are_bounded)
{
    start(1, NULL, false, NULL);
    world.options.max_connections = 4;
    open_server();
    int fds[300], one = dial("127.0.0.5"), refused = 0, closed = 0;
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = dial("127.0.0.5");
    int other = dial("127.0.0.6");
    assert_for(other, BYTES(GET "\r\n"), "127.0.0.6");
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        int status = listen_for(fds[i]);
        refused += status == 429;
        closed += status == 0;
        close(fds[i]);
    }
    ck_assert_int_eq(refused + closed, (int)ARRAY_SIZE(fds));
    ck_assert_int_ge(refused, 256);
    assert_for(one, BYTES(GET "\r\n"), "127.0.0.5");
    close(one);
    close(other);
    stop();
}

TEST(a_trusted_proxy_has_no_limit_of_its_own)
{
    start(1, "127.0.0.1 127.0.1.0/24", false, NULL);
    open_server();
    int fds[5];
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = dial(i % 2 ? "127.0.0.1" : "127.0.1.9");
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        assert_for(fds[i], BYTES(GET "\r\n"), i % 2 ? "127.0.0.1" : "127.0.1.9");
        close(fds[i]);
    }
    stop();
}

/* ---- the PROXY protocol ---- */

TEST(a_connection_belongs_to_the_client_that_a_trusted_proxy_names)
{
    start(2, "127.0.0.1", true, NULL);
    open_server();
    int first = dial("127.0.0.1"), second = dial("127.0.0.1"), third = dial("127.0.0.1"), other = dial("127.0.0.1"),
        itself[4];
    assert_for(first, BYTES(PROXIED_7 GET "\r\n"), "192.0.2.7");
    assert_for(first, BYTES(GET "\r\n"), "192.0.2.7");
    for (size_t i = 0; i < sizeof(PROXIED_7) - 1; i++)
        say(second, &PROXIED_7[i], 1);
    say(third, BYTES(PROXIED_7 GET "\r\n"));
    ck_assert_int_eq(listen_for(third), 429);
    ck_assert_str_eq(world.full, "192.0.2.7");
    assert_for(other, BYTES(PROXIED_8 GET "\r\n"), "192.0.2.8");
    for (size_t i = 0; i < ARRAY_SIZE(itself); i++)
        itself[i] = dial("127.0.0.1");
    for (size_t i = 0; i < ARRAY_SIZE(itself); i++) {
        assert_for(itself[i], BYTES(PROXY_ITSELF GET "\r\n"), "127.0.0.1");
        close(itself[i]);
    }
    assert_for(second, BYTES(GET "\r\n"), "192.0.2.7");
    close(first);
    close(third);
    wait_for_connections(2);
    first = dial("127.0.0.1");
    assert_for(first, BYTES(PROXIED_7 GET "\r\n"), "192.0.2.7");
    close(first);
    close(second);
    close(other);
    stop();
}

TEST(a_proxy_header_of_a_stranger_is_a_malformed_request)
{
    start(2, "127.0.0.1", true, NULL);
    open_server();
    int fd = dial("127.0.0.9");
    say(fd, BYTES(PROXIED_7 GET "\r\n"));
    ck_assert_int_eq(listen_for(fd), 400);
    close(fd);
    fd = dial("127.0.0.9");
    assert_for(fd, BYTES(GET "X-Forwarded-For: 192.0.2.7\r\n\r\n"), "127.0.0.9");
    close(fd);
    stop();
    /* And of anybody where it is off. */
    start(2, "127.0.0.1", false, NULL);
    open_server();
    fd = dial("127.0.0.1");
    say(fd, BYTES(PROXIED_7 GET "\r\n"));
    ck_assert_int_eq(listen_for(fd), 400);
    close(fd);
    stop();
}

static const struct {
    const char *bytes;
    size_t length;
} malformed[] = {
    {BYTES(GET "\r\n")},
    {BYTES("PROXY TCP4 192.0.2.7 127.0.0.1 55555 8080\r\n" GET "\r\n")},
    {BYTES(SIGNATURE "\x31\x11\0\x0c\xc0\0\2\x07\x7f\0\0\1\xd9\x03\x1f\x90" GET "\r\n")},
    {BYTES(SIGNATURE "\x21\x11\0\x0b\xc0\0\2\x07\x7f\0\0\1\xd9\x03\x1f" GET "\r\n")},
    {BYTES(SIGNATURE "\x21\x11\xff\xff\xc0\0\2\x07\x7f\0\0\1\xd9\x03\x1f\x90" GET "\r\n")},
};

START_TEST(a_proxy_that_begins_otherwise_is_answered_400_and_nothing_behind_it_is_served)
{
    start(2, "127.0.0.1", true, NULL);
    open_server();
    int fd = dial("127.0.0.1");
    world.holds = true;
    say(fd, malformed[_i].bytes, malformed[_i].length);
    ck_assert_int_eq(listen_for(fd), 400);
    ck_assert(ends(fd));
    ck_assert_int_eq(world.held_count, 0);
    close(fd);
    wait_for_connections(0);
    stop();
}

TEST(a_second_proxy_header_is_a_malformed_request)
{
    start(2, "127.0.0.1", true, NULL);
    open_server();
    int fd = dial("127.0.0.1");
    say(fd, BYTES(PROXIED_7 PROXIED_8 GET "\r\n"));
    ck_assert_int_eq(listen_for(fd), 400);
    close(fd);
    stop();
}

TEST(a_proxy_header_that_does_not_come_in_time_ends_the_connection)
{
    start(2, "127.0.0.1", true, NULL);
    world.options.header_timeout_ms = 300;
    open_server();
    int silent = dial("127.0.0.1"), slow = dial("127.0.0.1");
    say(slow, BYTES("\r\n\r\n"));
    ck_assert(ends(silent) && ends(slow));
    close(silent);
    close(slow);
    wait_for_connections(0);
    stop();
}

TEST(a_client_that_leaves_within_the_header_leaves_nothing_behind)
{
    start(1, "127.0.0.1", true, NULL);
    open_server();
    for (size_t length = 0; length <= sizeof(PROXIED_7) - 1; length++) {
        int fd = dial("127.0.0.1");
        if (length > 0)
            say(fd, PROXIED_7, length);
        close(fd);
    }
    wait_for_connections(0);
    int fd = dial("127.0.0.1");
    assert_for(fd, BYTES(PROXIED_7 GET "\r\n"), "192.0.2.7");
    close(fd);
    stop();
}

TEST(without_memory_for_the_header_the_connection_ends_and_the_server_lives)
{
    start(1, "127.0.0.1", true, NULL);
    open_server();
    for (long n = 1; n <= 4; n++) {
        int fd = dial("127.0.0.1");
        wait_for_connections(1);
        allocations_fail_at(n, 100);
        (void)send(fd, BYTES(PROXIED_7 GET "\r\n"), MSG_NOSIGNAL);
        turn_some();
        allocations_stop_failing();
        close(fd);
        wait_for_connections(0);
    }
    for (long n = 1; n <= 3; n++) {
        int fd = knock("127.0.0.1");
        allocations_fail_at(n, 100);
        turn_some();
        allocations_stop_failing();
        ck_assert(ends(fd));
        close(fd);
        wait_for_connections(0);
    }
    int fd = dial("127.0.0.1");
    assert_for(fd, BYTES(PROXIED_7 GET "\r\n"), "192.0.2.7");
    close(fd);
    stop();
}

/* ---- the header line ---- */

static const struct {
    const char *lines, *client;
} header_lines[] = {
    {"", "127.0.0.1"},
    {"X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"},
    {"x-forwarded-FOR:192.0.2.7\r\n", "192.0.2.7"},
    {"X-Forwarded-For: 192.0.2.66, 192.0.2.7\r\n", "192.0.2.7"},
    {"X-Forwarded-For: 192.0.2.7, 10.1.1.1,10.2.2.2\r\n", "192.0.2.7"},
    {"X-Forwarded-For: 192.0.2.66\r\nX-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"},
    {"X-Forwarded-For: 192.0.2.66\r\nX-A: b\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 10.1.1.1\r\n",
     "192.0.2.7"},
    {"X-Forwarded-For: [2001:db8::7]:4711\r\n", "2001:db8::7"},
    {"X-Forwarded-For: 192.0.2.7:4711\r\n", "192.0.2.7"},
    {"X-Forwarded-For: , 192.0.2.7 ,\t,\r\n", "192.0.2.7"},
    {"X-Forwarded-For:\r\n", "127.0.0.1"},
    {"X-Forwarded-For: unknown\r\n", "127.0.0.1"},
    {"X-Forwarded-For: 192.0.2.66, unknown, 10.1.1.1\r\n", "10.1.1.1"},
    {"X-Forwarded-For: 192.0.2.66 192.0.2.7\r\n", "127.0.0.1"},
    {"X-Forwarded-For: 10.1.1.1\r\n", "10.1.1.1"},
    {"X-Forwarded-Fo: 192.0.2.7\r\nX-Forwarded-Forx: 192.0.2.8\r\nForwarded: for=192.0.2.9\r\n", "127.0.0.1"},
};

START_TEST(the_first_hop_from_the_right_that_is_not_trusted_is_the_client)
{
    char text[512];
    start(2, "127.0.0.1 10.0.0.0/8", false, "X-Forwarded-For");
    open_server();
    int proxy = dial("127.0.0.1"), stranger = dial("127.0.0.9");
    int length = snprintf(text, sizeof(text), GET "%s\r\n", header_lines[_i].lines);
    assert_for(proxy, text, (size_t)length, header_lines[_i].client);
    assert_for(stranger, text, (size_t)length, "127.0.0.9");
    close(proxy);
    close(stranger);
    stop();
}

TEST(requests_at_work_count_for_the_address_of_each)
{
    start(2, "127.0.0.1", false, "X-Forwarded-For");
    open_server();
    world.holds = true;
    int first = dial("127.0.0.1"), second = dial("127.0.0.1"), third = dial("127.0.0.1"), other = dial("127.0.0.1");
    say(first, BYTES(GET "X-Forwarded-For: 192.0.2.7\r\n\r\n"));
    say(second, BYTES(GET "X-Forwarded-For: 192.0.2.7\r\n\r\n"));
    wait_for_held(2);
    say(third, BYTES(GET "X-Forwarded-For: 192.0.2.7\r\n\r\n"));
    ck_assert_int_eq(listen_for(third), 429);
    ck_assert_str_eq(world.full, "192.0.2.7");
    say(other, BYTES(GET "X-Forwarded-For: 192.0.2.8\r\n\r\n"));
    wait_for_held(3);
    release();
    ck_assert(listen_for(other) == 200 && is_for("192.0.2.8"));
    ck_assert(listen_for(first) == 200 && is_for("192.0.2.7"));
    ck_assert(listen_for(second) == 200 && is_for("192.0.2.7"));
    /* The permits are given back with the answers: idle connections of the proxy hold none. */
    int fresh = dial("127.0.0.1");
    assert_for(fresh, BYTES(GET "X-Forwarded-For: 192.0.2.7\r\n\r\n"), "192.0.2.7");
    assert_for(other, BYTES(GET "X-Forwarded-For: 192.0.2.7\r\n\r\n"), "192.0.2.7");
    close(fresh);
    for (int i = 0; i < 5; i++)
        assert_for(first, BYTES(GET "X-Forwarded-For: 192.0.2.7\r\n\r\n"), "192.0.2.7");
    close(first);
    close(second);
    close(third);
    close(other);
    wait_for_connections(0);
    stop();
}

TEST(a_body_on_its_way_holds_the_place_of_its_client)
{
    static const char post[] = "POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 2001:db8:0:1::7\r\nContent-Length: 4\r\n"
                               "Expect: 100-continue\r\n\r\n";
    start(1, "127.0.0.1", false, "X-Forwarded-For");
    open_server();
    int first = dial("127.0.0.1"), second = dial("127.0.0.1");
    say(first, BYTES(post));
    say(second, BYTES(post));
    ck_assert_int_eq(listen_for(second), 429); /* and not 100 */
    say(first, BYTES("body"));
    turn_some();
    ck_assert_int_eq((int)recv(first, world.got, sizeof(world.got) - 1, MSG_DONTWAIT | MSG_PEEK) > 0, 1);
    close(first);
    close(second);
    wait_for_connections(0);
    /* A client that leaves gives its permit back, whatever its request has come to. */
    world.holds = true;
    for (int i = 0; i < 3; i++) {
        first = dial("127.0.0.1");
        say(first, BYTES(GET "X-Forwarded-For: 2001:db8:0:1::7\r\n\r\n"));
        wait_for_held(i + 1);
        struct linger now = {.l_onoff = 1};
        setsockopt(first, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        close(first);
        wait_for_connections(0);
    }
    stop();
}

SUITE(http_origin)
{
    TCase *tests = tcase_create("all");
    ADD_TESTS(tests);
    tcase_add_loop_test(tests, a_proxy_that_begins_otherwise_is_answered_400_and_nothing_behind_it_is_served, 0,
                        (int)ARRAY_SIZE(malformed));
    tcase_add_loop_test(tests, the_first_hop_from_the_right_that_is_not_trusted_is_the_client, 0,
                        (int)ARRAY_SIZE(header_lines));
    suite_add_tcase(suite, tests);
}
