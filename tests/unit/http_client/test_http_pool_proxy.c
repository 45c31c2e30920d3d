/* Many companies let nothing out but through a proxy. It makes a connection (CONNECT) and passes bytes on; over https
 * it sees none of ours. Whatever it does instead, nothing of a request has left, and the loop goes on. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/fault_injection.h"
#include "tests/unit/http_client/expecting.h"
#include "tests/unit/scripted_peer.h"
#include "tests/support/suite.h"

#define TARGET "127.0.0.1:1" /* where nobody listens */

static void start_to(struct scripted_call *call, const char *target, int64_t timeout_ms)
{
    static char proxy[64], url[64];
    snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", scripted.port);
    snprintf(url, sizeof(url), "%s://%s/mine", scripted.tls ? "https" : "http", target);
    scripted_prepare(call, "POST", url);
    call->call.proxy = proxy;
    call->call.timeout_ms = timeout_ms;
    scripted_start(call);
}

static void start_through_proxy(struct scripted_call *call, int64_t timeout_ms)
{
    start_to(call, TARGET, timeout_ms);
}

static int accept_connect(void)
{
    int fd = scripted_accept_only();
    scripted_receive(fd, text);
    ck_assert_ptr_eq(strstr(text, "CONNECT " TARGET " HTTP/1.1\r\n"), text);
    ck_assert_ptr_nonnull(strstr(text, "Host: " TARGET "\r\n"));
    ck_assert_ptr_null(strstr(text, "body"));
    return fd;
}

TEST(a_proxy_is_asked_for_a_connection_that_is_used_again)
{
    struct scripted_call call;
    ck_assert_int_eq(setenv("NO_PROXY", "*", 1), 0); /* a variable of the environment is not for us */
    start_through_proxy(&call, 60000);
    int fd = accept_connect();
    scripted_send(fd, "HTTP/1.1 200 Connection established\r\nX-Proxy: here\r\n\r\n");
    scripted_shake(fd);
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            start_through_proxy(&call, 60000);
        scripted_receive(fd, text);
        ck_assert_ptr_eq(strstr(text, "POST /mine HTTP/1.1\r\nHost: " TARGET "\r\n"), text);
        scripted_answer(fd, "through");
        scripted_wait(&call);
        expect_answer(&call, "through");
    }
    ck_assert(!scripted_has_connection());
    scripted_close(fd);
}

TEST(a_call_without_the_proxy_does_not_take_its_connections)
{
    struct scripted_call call;
    start_through_proxy(&call, 60000);
    int fd = accept_connect();
    scripted_send(fd, "HTTP/1.1 200 OK\r\n\r\n");
    scripted_shake(fd);
    scripted_receive_any(fd);
    scripted_answer(fd, "through");
    scripted_wait(&call);
    expect_answer(&call, "through");
    char url[64];
    snprintf(url, sizeof(url), "%s://" TARGET "/direct", scripted.tls ? "https" : "http");
    scripted_prepare(&call, "POST", url);
    scripted_start(&call);
    scripted_wait(&call);
    expect_result(&call, HTTP_NOT_SENT);
    scripted_close(fd);
}

TEST(a_proxy_that_makes_no_connection_sent_nothing)
{
    static const struct {
        const char *answer, *why;
    } rows[] = {
        {"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno", "the proxy answered 403 to CONNECT"},
        {"HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n",
         "the proxy: it wants credentials (407)"},
        {"HTTP/1.1 502 Bad gateway\r\nConnection: close\r\n\r\n", "the proxy answered 502 to CONNECT"},
        {"HTTP/1.1 302 There\r\nLocation: http://127.0.0.1/\r\n\r\n", "the proxy answered 302 to CONNECT"},
        {"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 503 No\r\n\r\n", "the proxy answered 503 to CONNECT"},
        {"HTTP/1.1 101 Up\r\n\r\n", "the proxy: an upgrade that was not requested"},
        {"HTTP/1.1 200 OK\r\n\r\nhalf", "the proxy: bytes behind its answer to CONNECT"},
        {"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "the proxy: bytes behind its answer to CONNECT"},
        {"HTTP/1.1 200 OK\n\n", "the proxy: the answer is not HTTP/1"},
        {"HTTP/1.1 200 OK\r\nhalf", "the proxy: the peer closed in the middle of its answer"},
        {"HTTP/1.1 100 Go\r\n\r\n", "the proxy: the peer closed in the middle of its answer"},
        {"what is this\r\n\r\n", "the proxy: the answer is not HTTP/1"},
        {"", "the proxy: the peer closed without an answer"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct scripted_call call;
        start_through_proxy(&call, 60000);
        int fd = accept_connect();
        scripted_send(fd, rows[i].answer);
        scripted_close(fd);
        scripted_wait(&call);
        ck_assert_str_eq(call.call.error, rows[i].why);
        expect_result(&call, HTTP_NOT_SENT);
        scripted_settle();
    }
}

TEST(a_proxy_that_connects_may_say_so_in_many_ways)
{
    static const char *const heads[] = {
        "HTTP/1.0 200 Connection established\r\n\r\n",
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 204 No\r\n\r\n",
        "HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        /* a body that such an answer cannot have (RFC 9110, 9.3.6) */
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 299 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        struct scripted_call call;
        start_through_proxy(&call, 60000);
        int fd = accept_connect();
        for (const char *byte = heads[i]; *byte; byte++) {
            scripted_send_bytes(fd, byte, 1);
            scripted_settle();
        }
        scripted_shake(fd);
        scripted_receive_any(fd);
        scripted_answer(fd, "through");
        scripted_wait(&call);
        expect_answer(&call, "through");
        scripted_close(fd);
        scripted_settle();
    }
}

TEST(another_peer_behind_the_proxy_gets_nothing)
{
    struct scripted_call call;
    if (!scripted.tls)
        return;
    start_to(&call, "localhost:1", 60000);
    int fd = scripted_accept_only();
    scripted_receive(fd, text);
    ck_assert_ptr_eq(strstr(text, "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n"), text);
    scripted_send(fd, "HTTP/1.1 200 OK\r\n\r\n");
    scripted_shake(fd);
    scripted_wait(&call);
    ck_assert_ptr_nonnull(strstr(call.call.error, "certificate is refused"));
    expect_result(&call, HTTP_NOT_SENT);
    scripted_close(fd);
}

/* ---- without end ---- */

static struct flood {
    int fd;
    const char *head, *piece; /* the latter again and again */
    atomic_int iterations;    /* of the loop, counted by a timer */
    bool stood;               /* the loop, all the time */
} flood;

static void on_iteration(uv_timer_t *timer)
{
    (void)timer;
    atomic_fetch_add(&flood.iterations, 1);
}

/* false: the client has left. */
static bool pour(const char *bytes, size_t length)
{
    struct pollfd poller = {.fd = flood.fd, .events = POLLOUT};
    ssize_t count = poll(&poller, 1, 10) > 0 ? real_send(flood.fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    return count >= 0 || errno == EAGAIN;
}

/* Sends until the client leaves, or its loop has turned. */
static void *send_without_end(void *context)
{
    static char bytes[16384];
    size_t head = strlen(flood.head), piece = strlen(flood.piece), length = head;
    int64_t begun_ms = scripted_now_ms();
    memcpy(bytes, flood.head, head);
    for (; length + piece <= sizeof(bytes); length += piece)
        memcpy(bytes + length, flood.piece, piece);
    if (!pour(bytes, length))
        return context;
    int iterations = atomic_load(&flood.iterations);
    while (pour(bytes + head, length - head)) {
        flood.stood = scripted_now_ms() - begun_ms > stuck_after_ms() / 2;
        if (flood.stood || atomic_load(&flood.iterations) > iterations + 100)
            break;
    }
    return context;
}

static void start_flood(const char *head, const char *piece, pthread_t *ret_thread, uv_timer_t *timer)
{
    flood = (struct flood){.fd = accept_connect(), .head = head, .piece = piece};
    uv_timer_init(&scripted.loop, timer);
    uv_timer_start(timer, on_iteration, 1, 1);
    ck_assert_int_eq(pthread_create(ret_thread, NULL, send_without_end, NULL), 0);
}

static void end_flood(pthread_t thread, uv_timer_t *timer)
{
    pthread_join(thread, NULL);
    ck_assert_msg(!flood.stood, "the loop stood while the proxy sent");
    uv_close((uv_handle_t *)timer, NULL);
    scripted_close(flood.fd);
    scripted_settle();
}

TEST(a_proxy_that_sends_without_end_does_not_stop_the_loop)
{
#define REFUSED "HTTP/1.1 407 A\r\nProxy-Authenticate: Basic realm=\"x\"\r\n"
#define LARGE "Content-Length: 999999999\r\n\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n\r\n"
    static const struct {
        const char *head, *piece, *why;
    } rows[] = {
        {REFUSED CHUNKED, "5\r\nhello\r\n", "the proxy: it wants credentials (407)"},
        {REFUSED LARGE, "x", "the proxy: it wants credentials (407)"},
        {REFUSED "\r\n", "x", "the proxy: it wants credentials (407)"},
        {"HTTP/1.1 403 A\r\n" CHUNKED, "5\r\nhello\r\n", "the proxy answered 403 to CONNECT"},
        {"HTTP/1.1 403 A\r\n" LARGE, "x", "the proxy answered 403 to CONNECT"},
        {"HTTP/1.1 200 A\r\n" CHUNKED, "5\r\nhello\r\n", "the proxy: bytes behind its answer to CONNECT"},
        {"HTTP/1.1 200 A\r\n" LARGE, "x", "the proxy: bytes behind its answer to CONNECT"},
        {"HTTP/1.1 200 A\r\n", "X-A: b\r\n", "the proxy: the answer's header is too large"},
        {"HTTP/1.1 200 A\r\nX: ", "x", "the proxy: the answer's header is too large"},
        {REFUSED "X: ", "x", "the proxy: the answer's header is too large"},
        {"", "HTTP/1.1 100 Go\r\n\r\n", "the proxy: the answer's header is too large"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct scripted_call call;
        pthread_t thread;
        uv_timer_t timer;
        start_through_proxy(&call, 60000);
        start_flood(rows[i].head, rows[i].piece, &thread, &timer);
        scripted_wait(&call);
        ck_assert_str_eq(call.call.error, rows[i].why);
        expect_result(&call, HTTP_NOT_SENT);
        end_flood(thread, &timer);
    }
}

TEST(a_proxy_that_does_not_answer_costs_the_time_of_the_call)
{
    struct scripted_call call;
    start_through_proxy(&call, 300);
    int fd = accept_connect();
    scripted_wait(&call);
    expect_result(&call, HTTP_NOT_SENT);
    scripted_close(fd);
}

static void add_tests(Suite *suite, const char *scheme, void (*set_up)(void))
{
    TCase *tests = tcase_create(scheme);
    tcase_add_checked_fixture(tests, set_up, scripted_tear_down);
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}

SUITE(http_pool_proxy)
{
    add_tests(suite, "http", scripted_set_up);
    add_tests(suite, "https", scripted_set_up_tls);
}
