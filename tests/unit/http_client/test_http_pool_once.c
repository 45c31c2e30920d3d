/* Calls that must not be sent a second time: what counts is whether a byte was handed to the kernel. One
 * byte on a pooled connection that dies makes the call lost; without one it goes to a new connection as ever. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/fault_injection.h"
#include "tests/unit/http_client/expecting.h"
#include "tests/unit/scripted_peer.h"
#include "tests/support/suite.h"

static int sends, fails_at, fails_with = EPIPE;
static bool starves;

/* A byte at each send; the fails_at-th fails, and all behind it. If it starves, there is no memory behind the first. */
static ssize_t send_and_fail(int fd, const void *bytes, size_t length, int flags)
{
    (void)length;
    if (++sends >= fails_at) {
        errno = fails_with;
        return -1;
    }
    if (starves && sends == 1)
        allocations_fail_at(1, 1000);
    return real_send(fd, bytes, 1, flags);
}

static void start_once(struct scripted_call *call)
{
    scripted_prepare(call, "PATCH", "/once");
    ck_assert(buf_put_text(&call->call.body, "{\"state\": \"CLOSED\"}"));
    call->call.must_not_resend = true;
    scripted_start(call);
}

static void expect_lost(struct scripted_call *call)
{
    scripted_wait(call);
    ck_assert(!call->call.was_resent);
    expect_result(call, HTTP_LOST);
    scripted_settle();
    ck_assert(!scripted_has_connection());
}

TEST(a_pooled_connection_that_ends_behind_the_request_loses_the_call)
{
    for (int i = 0; i < 2; i++) {
        struct scripted_call call;
        int fd = pool_one_connection();
        start_once(&call);
        scripted_receive_any(fd);
        if (i)
            scripted_reset(fd);
        else
            scripted_close(fd);
        expect_lost(&call);
    }
}

TEST(a_pooled_connection_that_takes_no_byte_is_replaced)
{
    struct scripted_call call;
    int fd = pool_one_connection();
    sends = 0, fails_at = 1;
    send_instead = send_and_fail;
    start_once(&call);
    send_instead = NULL;
    ck_assert_uint_eq(scripted_peek(fd, text), 0);
    answer_on_new_connection(&call, false);
    ck_assert_ptr_eq(strstr(text, "PATCH /once HTTP/1.1\r\n"), text);
    scripted_close(fd);
}

TEST(one_byte_on_a_pooled_connection_that_dies_loses_the_call)
{
    struct scripted_call call;
    int fd = pool_one_connection();
    sends = 0, fails_at = 2;
    send_instead = send_and_fail;
    start_once(&call);
    SCRIPTED_UNTIL(sends >= 2);
    send_instead = NULL;
    ck_assert_uint_eq(scripted_peek(fd, text), 1);
    scripted_close(fd);
    expect_lost(&call);
}

TEST(a_rest_without_memory_loses_the_call_from_the_loop)
{
    /* One byte left with the start, and there is no memory for the rest of the request. */
    struct scripted_call call;
    int fd = pool_one_connection();
    sends = 0, fails_at = 2, fails_with = EAGAIN;
    scripted_prepare(&call, "PATCH", "/once");
    call.call.must_not_resend = true;
    send_instead = send_and_fail;
    starves = true;
    scripted_start(&call);
    ck_assert_int_gt(allocations_stop_failing(), 0);
    starves = false;
    send_instead = NULL;
    ck_assert_int_eq(call.ends, 0);
    ck_assert_int_le(sends, 2); /* through TLS a record is written on by itself */
    ck_assert_uint_eq(scripted_peek(fd, text), 1);
    expect_lost(&call);
    scripted_close(fd);
}

static void add_tests(Suite *suite, const char *scheme, void (*set_up)(void))
{
    TCase *tests = tcase_create(scheme);
    tcase_add_checked_fixture(tests, set_up, scripted_tear_down);
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}

SUITE(http_pool_once)
{
    add_tests(suite, "http", scripted_set_up);
    add_tests(suite, "https", scripted_set_up_tls);
}
