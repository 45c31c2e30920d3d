/* Many companies let nothing out but through a proxy. It makes a connection (CONNECT) and passes bytes on; over https it
 * sees none of ours. Whatever it does in place of that, nothing of a request has left. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/http_client/expecting.h"
#include "tests/unit/scripted_peer.h"
#include "tests/support/suite.h"

#define TARGET "127.0.0.1:1" /* where nobody listens */

static void start_through_proxy(struct scripted_call *call, int64_t timeout_ms)
{
    static char proxy[64], url[64];
    snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", scripted.port);
    snprintf(url, sizeof(url), "%s://" TARGET "/mine", scripted.tls ? "https" : "http");
    scripted_prepare(call, "POST", url);
    call->call.proxy = proxy;
    call->call.timeout_ms = timeout_ms;
    scripted_start(call);
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

START_TEST(a_proxy_is_asked_for_a_connection_that_is_used_again)
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
END_TEST

START_TEST(a_call_without_the_proxy_does_not_take_its_connections)
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
END_TEST

START_TEST(a_proxy_that_makes_no_connection_sent_nothing)
{
    static const char *const answers[] = {
        "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 502 Bad gateway\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 200 OK\r\nhalf",
        "what is this\r\n\r\n",
        "",
    };
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct scripted_call call;
        start_through_proxy(&call, 60000);
        int fd = accept_connect();
        scripted_send(fd, answers[i]);
        scripted_close(fd);
        scripted_wait(&call);
        expect_result(&call, HTTP_NOT_SENT);
        scripted_settle();
    }
}
END_TEST

START_TEST(a_proxy_that_does_not_answer_costs_the_time_of_the_call)
{
    struct scripted_call call;
    start_through_proxy(&call, 300);
    int fd = accept_connect();
    scripted_wait(&call);
    expect_result(&call, HTTP_NOT_SENT);
    scripted_close(fd);
}
END_TEST

static void add_tests(Suite *suite, const char *scheme, void (*set_up)(void))
{
    TCase *tests = tcase_create(scheme);
    tcase_add_checked_fixture(tests, set_up, scripted_tear_down);
    tcase_add_test(tests, a_proxy_is_asked_for_a_connection_that_is_used_again);
    tcase_add_test(tests, a_call_without_the_proxy_does_not_take_its_connections);
    tcase_add_test(tests, a_proxy_that_makes_no_connection_sent_nothing);
    tcase_add_test(tests, a_proxy_that_does_not_answer_costs_the_time_of_the_call);
    suite_add_tcase(suite, tests);
}

SUITE(http_pool_proxy)
{
    add_tests(suite, "http", scripted_set_up);
    add_tests(suite, "https", scripted_set_up_tls);
}
