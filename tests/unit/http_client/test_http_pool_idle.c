/* Pooled connections: what arrives on one before a request left is not an answer to that request, and a connection that
 * may have something behind its answer is not used again. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/fault_injection.h"
#include "tests/unit/http_client/expecting.h"
#include "tests/unit/scripted_peer.h"
#include "tests/support/suite.h"

static const char stale[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale";

START_TEST(an_idle_connection_that_speaks_is_dropped)
{
    static const char *const words[] = {stale, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", "x",
                                        "\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        int fd = pool_one_connection();
        scripted_send(fd, words[i]);
        scripted_settle();
        ck_assert(scripted_is_closed(fd));
        struct scripted_call call;
        scripted_call(&call, "/mine");
        answer_on_new_connection(&call, false);
        scripted_close(fd);
    }
}

START_TEST(what_arrived_on_an_idle_connection_before_the_request_left_is_no_answer_to_it)
{
    /* The loop has not run yet: the bytes are in the kernel when the call starts. */
    static const char *const words[] = {stale, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", "x",
                                        "\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        int fd = pool_one_connection();
        scripted_send(fd, words[i]);
        struct scripted_call call;
        scripted_call(&call, "/mine");
        ck_assert(!scripted_is_asked(fd)); /* nor did the request go there */
        answer_on_new_connection(&call, false);
        ck_assert(scripted_is_closed(fd));
        scripted_close(fd);
    }
}

START_TEST(no_call_notices_a_connection_that_was_closed_while_idle)
{
    for (int i = 0; i < 4; i++) {
        int fd = pool_one_connection();
        if (i % 2)
            scripted_reset(fd);
        else
            scripted_close(fd);
        if (i / 2)
            scripted_settle(); /* with and without the chance to see it */
        struct scripted_call call;
        scripted_call(&call, "/mine");
        answer_on_new_connection(&call, false);
    }
}

START_TEST(what_comes_behind_an_answer_is_no_answer_to_the_next_call)
{
    int fd = pool_one_connection();
    struct scripted_call first, second;
    scripted_call(&first, "/first");
    scripted_call(&second, "/second");
    scripted_receive_any(fd);
    char both[256];
    snprintf(both, sizeof(both), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst%s", stale);
    int other = scripted_accept();
    scripted_send(fd, both);
    scripted_wait(&first);
    expect_answer(&first, "first");
    SCRIPTED_UNTIL(scripted_is_closed(fd));
    scripted_receive_any(other);
    scripted_answer(other, "second");
    scripted_wait(&second);
    expect_answer(&second, "second");
    scripted_close(fd);
    scripted_close(other);
}

static bool names_other(struct http_call *call)
{
    return call->answer.length == strlen(call->subject) &&
           memcmp(call->answer.bytes, call->subject, call->answer.length) != 0;
}

/* Story: a gateway answered one request twice, and every later call got the answer of the call before. */
START_TEST(a_connection_whose_answer_names_another_request_is_used_by_no_other_call)
{
    int fd = pool_one_connection();
    struct scripted_call first, second;
    scripted_prepare(&first, "POST", "/first");
    http_call_about(&first.call, "stale", names_other);
    scripted_start(&first);
    scripted_call(&second, "/second");
    scripted_receive_any(fd);
    int other = scripted_accept();
    scripted_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst");
    scripted_wait(&first);
    expect_answer(&first, "first");
    ck_assert(first.call.is_anothers);
    SCRIPTED_UNTIL(scripted_is_closed(fd));
    scripted_receive_any(other);
    scripted_answer(other, "second");
    scripted_wait(&second);
    expect_answer(&second, "second");
    ck_assert(!second.call.is_anothers);
    scripted_prepare(&first, "POST", "/first");
    http_call_about(&first.call, "other", names_other);
    scripted_start(&first);
    scripted_receive_any(other);
    scripted_answer(other, "other");
    scripted_wait(&first);
    expect_answer(&first, "other");
    ck_assert(!first.call.is_anothers);
    scripted_settle();
    ck_assert(!scripted_is_closed(other));
    scripted_close(fd);
    scripted_close(other);
}

/* The call on a connection that may become a millisecond old. */
static int call_on_short_lived(struct scripted_call *call)
{
    scripted_prepare(call, "POST", "/first");
    call->call.connection_age_ms = 1;
    scripted_start(call);
    int fd = scripted_accept();
    scripted_receive_any(fd);
    return fd;
}

/* Story: the issuer's name moved to another address, and a busy worker stayed on the old one for ever. */
START_TEST(a_connection_that_is_old_ends_between_two_calls)
{
    struct scripted_call first, second;
    for (int waits = 0; waits < 2; waits++) {
        int fd = call_on_short_lived(&first);
        int64_t start_ms = scripted_now_ms();
        if (waits) {
            SCRIPTED_UNTIL(scripted_now_ms() > start_ms + 1);
            scripted_answer(fd, "first");
            scripted_wait(&first);
            scripted_settle();
            ck_assert(scripted_is_closed(fd)); /* also where no call comes that looks at it */
        } else {
            scripted_answer(fd, "first");
            scripted_wait(&first);
            SCRIPTED_UNTIL(scripted_now_ms() > start_ms + 1);
        }
        expect_answer(&first, "first");
        scripted_call(&second, "/second");
        answer_on_new_connection(&second, false);
        SCRIPTED_UNTIL(scripted_is_closed(fd));
        scripted_close(fd);
    }
}

/* An answer that ends where the client's read ends, and `behind` behind it. */
static void say_full_answer(int fd, const char *behind)
{
    static char bytes[INPUT_SIZE + 256];
    int header =
        snprintf(bytes, sizeof(bytes), "HTTP/1.1 200 OK\r\nX: yyy\r\nContent-Length: %d\r\n\r\n", INPUT_SIZE - 50);
    ck_assert_int_eq(header, 50);
    memset(bytes + header, 'f', (size_t)(INPUT_SIZE - header));
    strcpy(bytes + INPUT_SIZE, behind);
    scripted_send_bytes(fd, bytes, INPUT_SIZE + strlen(behind));
}

START_TEST(what_comes_behind_an_answer_that_fills_a_read_is_no_answer_to_the_call_that_waits)
{
    int fd = pool_one_connection();
    struct scripted_call first, second;
    scripted_call(&first, "/first");
    scripted_receive_any(fd);
    scripted_fill_backlog();
    scripted_call(&second, "/second"); /* waits for whatever comes first */
    scripted_settle();
    say_full_answer(fd, stale);
    scripted_wait(&first);
    ck_assert_int_eq(first.call.result, HTTP_ANSWERED);
    http_call_done(&first.call);
    scripted_settle();
    ck_assert_int_eq(second.ends, 0);
    scripted_empty_backlog();
    answer_on_new_connection(&second, false);
    scripted_close(fd);
}

START_TEST(an_answer_that_fills_a_read_leaves_its_connection_usable)
{
    int fd = pool_one_connection();
    for (int i = 0; i < 3; i++) {
        struct scripted_call call;
        scripted_call(&call, "/full");
        scripted_receive_any(fd);
        say_full_answer(fd, "");
        scripted_wait(&call);
        ck_assert_int_eq(call.call.result, HTTP_ANSWERED);
        ck_assert_uint_eq(call.call.answer.length, INPUT_SIZE - 50);
        http_call_done(&call.call);
    }
    scripted_close(fd);
}

START_TEST(only_an_answer_that_allows_it_leaves_its_connection_usable)
{
    static const struct {
        const char *answer;
        bool is_pooled;
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Foo, CLOSE\r\n\r\nx", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n\r\n", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", true},
        {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct scripted_call call;
        int fd = call_and_receive(&call, "/keep");
        scripted_send(fd, rows[i].answer);
        scripted_wait(&call);
        expect_answer(&call, "x");
        scripted_settle();
        if (!rows[i].is_pooled)
            ck_assert_msg(scripted_is_closed(fd), "%s", rows[i].answer);
        scripted_call(&call, "/next");
        int next = rows[i].is_pooled ? fd : scripted_accept();
        scripted_receive_any(next);
        scripted_send(next, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        scripted_wait(&call);
        expect_answer(&call, "");
        scripted_close(fd);
        if (next != fd)
            scripted_close(next);
    }
}

START_TEST(an_answer_with_a_reset_behind_it_counts_and_its_connection_does_not)
{
    for (int i = 0; i < 2; i++) {
        struct scripted_call call;
        int fd = call_and_receive(&call, "/reset");
        int before = scripted_descriptors();
        scripted_answer(fd, "whole");
        scripted_reset(fd);
        scripted_wait(&call);
        expect_answer(&call, "whole");
        scripted_settle();
        ck_assert_int_eq(scripted_descriptors(), before - 2); /* both ends are gone */
        scripted_call(&call, "/next");
        answer_on_new_connection(&call, false);
    }
}

START_TEST(no_more_connections_are_pooled_than_allowed)
{
    scripted_close_client();
    SCRIPTED_UNTIL(scripted.is_closed);
    scripted_open(2);
    int fds[10], idle = 0;
    scripted_close(pool_one_connection()); /* what libcurl opens once is there from now on */
    scripted_settle();
    int before = scripted_descriptors();
    keep(fds, 10);
    scripted_settle();
    for (int i = 0; i < 10; i++)
        idle += !scripted_is_closed(fds[i]);
    ck_assert_int_eq(idle, 2);
    ck_assert_int_eq(scripted_descriptors(), before + 10 + 2);
    for (int i = 0; i < 10; i++)
        scripted_close(fds[i]);
}

TEST(a_ticket_that_comes_while_a_connection_is_idle_leaves_it_usable)
{
    struct scripted_call call;
    int fd = pool_one_connection();
    for (int i = 0; i < 2; i++) { /* before the loop has seen it, and after */
        scripted_send_ticket(fd);
        if (i)
            scripted_settle();
        scripted_call(&call, "/next");
        scripted_receive_any(fd);
        scripted_answer(fd, "next");
        scripted_wait(&call);
        expect_answer(&call, "next");
        ck_assert(!scripted_has_connection());
    }
    scripted_close(fd);
}

static void add_tests(Suite *suite, const char *scheme, void (*set_up)(void))
{
    TCase *tests = tcase_create(scheme);
    tcase_add_checked_fixture(tests, set_up, scripted_tear_down);
    tcase_add_test(tests, an_idle_connection_that_speaks_is_dropped);
    tcase_add_test(tests, what_arrived_on_an_idle_connection_before_the_request_left_is_no_answer_to_it);
    tcase_add_test(tests, no_call_notices_a_connection_that_was_closed_while_idle);
    tcase_add_test(tests, what_comes_behind_an_answer_is_no_answer_to_the_next_call);
    tcase_add_test(tests, a_connection_that_is_old_ends_between_two_calls);
    tcase_add_test(tests, a_connection_whose_answer_names_another_request_is_used_by_no_other_call);
    tcase_add_test(tests, what_comes_behind_an_answer_that_fills_a_read_is_no_answer_to_the_call_that_waits);
    tcase_add_test(tests, an_answer_that_fills_a_read_leaves_its_connection_usable);
    tcase_add_test(tests, only_an_answer_that_allows_it_leaves_its_connection_usable);
    tcase_add_test(tests, an_answer_with_a_reset_behind_it_counts_and_its_connection_does_not);
    tcase_add_test(tests, no_more_connections_are_pooled_than_allowed);
    suite_add_tcase(suite, tests);
}

SUITE(http_pool_idle)
{
    add_tests(suite, "http", scripted_set_up);
    add_tests(suite, "https", scripted_set_up_tls);
    TCase *tls = tcase_create("tls");
    tcase_add_checked_fixture(tls, scripted_set_up_tls, scripted_tear_down);
    ADD_TESTS(tls);
    suite_add_tcase(suite, tls);
}
