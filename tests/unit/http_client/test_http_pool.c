/* Calls over both schemes, one event after the other: whatever may happen to a connection is made to happen in each
 * state that a call can be in, and the result is checked. "Not sent" for a request of which a byte was handed to the
 * kernel can make a second card; "answered" is only for an answer to this very request. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/http_client/http_client.h"
#include "common/lib/http_client/http_pooled_conn.h"
#include "tests/unit/fault_injection.h"
#include "tests/unit/http_client/expecting.h"
#include "tests/unit/scripted_peer.h"
#include "tests/support/suite.h"

/* ---- sending ---- */

static size_t most; /* bytes that one send takes */
static int sends, fails_at, fails_with;

static ssize_t send_little(int fd, const void *bytes, size_t length, int flags)
{
    sends++;
    if (sends % 3 == 2) {
        errno = sends % 2 ? EAGAIN : EINTR;
        return -1;
    }
    return real_send(fd, bytes, length < most ? length : most, flags);
}

/* The kernel takes `most` bytes at each send, and at the fails_at-th it fails. */
static ssize_t send_and_fail(int fd, const void *bytes, size_t length, int flags)
{
    if (++sends == fails_at) {
        errno = fails_with;
        return -1;
    }
    return real_send(fd, bytes, length < most ? length : most, flags);
}

static void send_fails_at(int n, int with, size_t each)
{
    sends = 0;
    fails_at = n;
    fails_with = with;
    most = each;
    send_instead = send_and_fail;
}

TEST(a_request_that_leaves_in_pieces_arrives_whole)
{
    static char whole[SCRIPTED_REQUEST_SIZE];
    int fd = -1;
    for (most = 1; most < 400; most += most < 12 ? 1 : 67) {
        struct scripted_call call;
        scripted_prepare(&call, "POST", "/pieces?of=a-request");
        http_call_header(&call.call, "X-Header", "value");
        sends = 0;
        send_instead = send_little;
        scripted_start(&call);
        if (fd < 0)
            fd = scripted_accept();
        scripted_receive(fd, text);
        send_instead = NULL;
        if (most == 1)
            memcpy(whole, text, sizeof(text));
        ck_assert_str_eq(text, whole);
        scripted_answer(fd, "yes");
        scripted_wait(&call);
        ck_assert(!call.call.was_resent);
        expect_answer(&call, "yes");
    }
    ck_assert(!scripted_has_connection());
    scripted_close(fd);
}

TEST(a_kernel_that_takes_nothing_at_first_is_tried_again)
{
    static const int errors[] = {EAGAIN, EINTR};
    int fd = pool_one_connection();
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        struct scripted_call call;
        send_fails_at(1, errors[i], INPUT_SIZE);
        scripted_call(&call, "/again");
        scripted_receive_any(fd);
        ck_assert_int_eq(sends, 2);
        scripted_answer(fd, "yes");
        scripted_wait(&call);
        ck_assert(!call.call.was_resent);
        expect_answer(&call, "yes");
    }
    send_instead = NULL;
    scripted_close(fd);
}

TEST(a_request_that_waits_for_the_kernel_is_not_sent_until_a_byte_has_left)
{
    struct scripted_call call;
    send_fails_at(1, EAGAIN, INPUT_SIZE);
    scripted_prepare(&call, "POST", "/wait");
    call.call.timeout_ms = 1000;
    most = 0; /* nothing, at every later try */
    scripted_start(&call);
    int fd = scripted_accept();
    scripted_wait(&call);
    send_instead = NULL;
    ck_assert_uint_eq(scripted_peek(fd, text), 0);
    expect_result(&call, HTTP_NOT_SENT);
    scripted_close(fd);
}

TEST(what_a_peer_sends_before_a_byte_of_the_request_has_left_is_no_answer)
{
    static const bool is_pooled[] = {true, false};
    for (size_t i = 0; i < ARRAY_SIZE(is_pooled); i++) {
        int fd = is_pooled[i] ? pool_one_connection() : -1;
        struct scripted_call call;
        send_fails_at(1, EAGAIN, 0);
        scripted_call(&call, "/mine");
        if (!is_pooled[i])
            fd = scripted_accept();
        scripted_answer(fd, "of another call");
        scripted_settle();
        send_instead = NULL;
        if (is_pooled[i]) {
            answer_on_new_connection(&call, false);
        } else {
            scripted_wait(&call);
            expect_result(&call, HTTP_NOT_SENT);
        }
        ck_assert(scripted_is_closed(fd));
        scripted_close(fd);
    }
}

TEST(a_pooled_connection_that_takes_no_byte_is_replaced_and_nothing_was_sent_twice)
{
    static const int errors[] = {EPIPE, ECONNRESET, ENOBUFS};
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        int fd = pool_one_connection();
        struct scripted_call call;
        send_fails_at(1, errors[i], INPUT_SIZE);
        scripted_call(&call, "/again");
        ck_assert_uint_eq(scripted_peek(fd, text), 0);
        answer_on_new_connection(&call, false);
        send_instead = NULL;
        scripted_settle();
        ck_assert(scripted_is_closed(fd));
        scripted_close(fd);
    }
}

TEST(nothing_was_sent_when_no_connection_took_a_byte)
{
    int fd = pool_one_connection();
    struct scripted_call call;
    send_fails_at(1, EPIPE, INPUT_SIZE);
    scripted_stop_listening();
    scripted_call(&call, "/again");
    scripted_wait(&call);
    send_instead = NULL;
    expect_result(&call, HTTP_NOT_SENT);
    scripted_close(fd);
}

TEST(a_new_connection_that_takes_no_byte_sent_nothing)
{
    struct scripted_call call;
    send_fails_at(1, EPIPE, INPUT_SIZE);
    scripted_call(&call, "/again");
    int fd = scripted_accept();
    scripted_wait(&call);
    send_instead = NULL;
    expect_result(&call, HTTP_NOT_SENT);
    scripted_close(fd);
}

TEST(one_byte_that_left_is_a_request_that_may_be_known)
{
    /* On a new connection the call is lost; on a pooled one it is sent again, and reports it; and it stays lost when
     * the second try finds no listener. */
    static const int errors[] = {EPIPE, ECONNRESET};
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        struct scripted_call call;
        send_fails_at(2, errors[i], 1);
        scripted_call(&call, "/one-byte");
        int fd = scripted_accept();
        SCRIPTED_UNTIL(sends == 2);
        scripted_close(fd);
        scripted_wait(&call);
        send_instead = NULL;
        expect_result(&call, HTTP_LOST);

        fd = pool_one_connection();
        send_fails_at(2, errors[i], 1);
        scripted_call(&call, "/one-byte");
        SCRIPTED_UNTIL(sends == 2);
        send_instead = NULL;
        ck_assert_uint_eq(scripted_peek(fd, text), 1);
        scripted_close(fd);
        answer_on_new_connection(&call, true);
    }
    int fd = pool_one_connection();
    struct scripted_call call;
    send_fails_at(2, EPIPE, 1);
    scripted_call(&call, "/one-byte");
    SCRIPTED_UNTIL(sends == 2);
    send_instead = NULL;
    scripted_stop_listening();
    scripted_close(fd);
    scripted_wait(&call);
    expect_result(&call, HTTP_LOST);
}

TEST(a_request_that_is_too_large_is_not_sent_and_costs_no_other_call)
{
    static char header[HTTP_REQUEST_MAX];
    memset(header, 'x', sizeof(header) - 1);
    memcpy(header, "Authorization: ", 15);
    int fd = pool_one_connection();
    struct scripted_call call;
    scripted_prepare(&call, "POST", "/large");
    call.call.secret_header = header;
    scripted_start(&call);
    int other = scripted_accept();
    scripted_wait(&call);
    expect_result(&call, HTTP_NOT_SENT);
    ck_assert(!scripted_is_asked(fd) && !scripted_is_asked(other));
    scripted_close(other);
    scripted_close(fd);
    scripted_settle();
    fd = pool_one_connection();
    scripted_close(fd);
}

TEST(an_answer_may_come_before_the_whole_request_left_and_its_connection_is_not_used_again)
{
    struct scripted_call call;
    int fd = pool_one_connection();
    send_fails_at(2, EAGAIN, 10);
    most = 10;
    scripted_call(&call, "/early");
    ck_assert_uint_eq(scripted_peek(fd, text), 10);
    most = 0;
    scripted_answer(fd, "too much");
    scripted_wait(&call);
    send_instead = NULL;
    ck_assert(!call.call.was_resent);
    expect_answer(&call, "too much");
    scripted_settle();
    ck_assert_uint_eq(scripted_peek(fd, text), 10);
    ck_assert(scripted_is_closed(fd));
    scripted_close(fd);
    fd = pool_one_connection();
    scripted_close(fd);
}

/* A part, nothing for now, and EPIPE for the rest. */
static ssize_t send_a_part(int fd, const void *bytes, size_t length, int flags)
{
    if (++sends == 1)
        return real_send(fd, bytes, length < most ? length : most, flags);
    errno = sends == 2 ? EAGAIN : EPIPE;
    return -1;
}

TEST(a_peer_that_reads_no_further_may_have_answered)
{
    struct scripted_call call;
    send_fails_at(0, 0, 10);
    send_instead = send_a_part;
    scripted_call(&call, "/early");
    int fd = scripted_accept();
    SCRIPTED_UNTIL(sends == 3);
    scripted_answer(fd, "too much");
    scripted_wait(&call);
    send_instead = NULL;
    expect_answer(&call, "too much");
    SCRIPTED_UNTIL(scripted_is_closed(fd));
    scripted_close(fd);
}

/* ---- receiving ---- */

static int receives;

static ssize_t receive_fails(int fd, void *bytes, size_t length, int flags)
{
    (void)fd, (void)bytes, (void)length, (void)flags;
    receives++;
    recv_instead = NULL;
    errno = fails_with;
    return -1;
}

static ssize_t receive_one_byte(int fd, void *bytes, size_t length, int flags)
{
    receives++;
    if (receives % 3 == 2 && !(flags & MSG_PEEK)) {
        errno = receives % 2 ? EAGAIN : EINTR;
        return -1;
    }
    return real_recv(fd, bytes, length > 1 ? 1 : length, flags);
}

TEST(an_answer_that_comes_byte_by_byte_is_one_answer)
{
    int fd = -1;
    recv_instead = receive_one_byte;
    for (int i = 0; i < 3; i++) {
        struct scripted_call call;
        scripted_call(&call, "/bytes");
        if (fd < 0)
            fd = scripted_accept();
        scripted_receive_any(fd);
        scripted_answer(fd, "byte by byte");
        scripted_wait(&call);
        expect_answer(&call, "byte by byte");
    }
    recv_instead = NULL;
    ck_assert(!scripted_has_connection());
    scripted_close(fd);
}

/* Zeros before the size of a chunk are neither header nor body, and the reader of answers skips them. */
TEST(a_peer_that_sends_without_end_is_given_up_by_size)
{
    static char zeros[8192];
    struct scripted_call call;
    int fd = call_and_receive(&call, "/zeros");
    memset(zeros, '0', sizeof(zeros));
    scripted_send(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    size_t sent = 0;
    for (; call.ends == 0; sent += sizeof(zeros)) {
        ck_assert_uint_lt(sent, 8 * HTTP_CALL_BYTES(SCRIPTED_ANSWER_MAX));
        scripted_send_bytes(fd, zeros, sizeof(zeros));
        scripted_run_once();
    }
    ck_assert_uint_gt(sent, HTTP_CALL_BYTES(SCRIPTED_ANSWER_MAX) / 2);
    ck_assert_str_eq(call.call.error, "the peer sends without end");
    expect_result(&call, HTTP_LOST);
    scripted_close(fd);
}

TEST(an_answer_in_pieces_of_one_byte_is_one_answer)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n";
    struct scripted_call call;
    int fd = call_and_receive(&call, "/pieces");
    for (size_t i = 0; i < sizeof(answer) - 1; i++) { /* over TLS each is a record */
        scripted_send_bytes(fd, answer + i, 1);
        if (i % 3 == 0)
            scripted_run_once();
    }
    scripted_wait(&call);
    expect_answer(&call, "yes");
    scripted_close(fd);
}

TEST(a_reset_before_an_answer_is_lost_on_a_new_connection_and_sent_again_on_a_pooled_one)
{
    struct scripted_call call;
    scripted_reset(call_and_receive(&call, "/reset"));
    scripted_wait(&call);
    expect_result(&call, HTTP_LOST);

    int fd = pool_one_connection();
    scripted_call(&call, "/reset");
    scripted_receive_any(fd);
    scripted_reset(fd);
    answer_on_new_connection(&call, true);

    fd = pool_one_connection();
    scripted_call(&call, "/reset");
    scripted_receive_any(fd);
    fails_with = ECONNRESET;
    recv_instead = receive_fails;
    scripted_answer(fd, "never read");
    SCRIPTED_UNTIL(receives > 0);
    answer_on_new_connection(&call, true);
    scripted_close(fd);
}

TEST(a_byte_of_an_answer_forbids_to_send_again)
{
    static const char *const beginnings[] = {"H", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal",
                                             "HTTP/1.1 100 Continue\r\n\r\n", "no HTTP", "\r\n"};
    for (size_t i = 0; i < 2 * ARRAY_SIZE(beginnings); i++) {
        int fd = pool_one_connection();
        struct scripted_call call;
        scripted_call(&call, "/half");
        scripted_receive_any(fd);
        scripted_send(fd, beginnings[i / 2]);
        scripted_run_once();
        if (i % 2)
            scripted_reset(fd);
        else
            scripted_close(fd);
        scripted_wait(&call);
        ck_assert(!call.call.was_resent);
        expect_result(&call, HTTP_LOST);
        scripted_settle();
        ck_assert(!scripted_has_connection());
    }
}

TEST(a_body_without_a_length_that_a_reset_ends_is_none)
{
    static const bool is_seen[] = {true, false};
    for (size_t i = 0; i < ARRAY_SIZE(is_seen); i++) {
        struct scripted_call call;
        int fd = call_and_receive(&call, "/cut");
        scripted_send(fd, "HTTP/1.1 200 OK\r\n\r\n{\"id\": 1}");
        if (is_seen[i])
            scripted_settle();
        scripted_reset(fd);
        scripted_wait(&call);
        expect_result(&call, HTTP_LOST);
    }
}

TEST(a_reset_while_the_request_leaves_is_lost_or_sent_again)
{
    for (int i = 0; i < 4; i++) {
        bool is_pooled = i % 2, is_seen = i / 2;
        struct scripted_call call;
        int fd = is_pooled ? pool_one_connection() : -1;
        send_fails_at(2, EAGAIN, 10);
        most = 10;
        scripted_call(&call, "/reset");
        fd = is_pooled ? fd : scripted_accept();
        SCRIPTED_UNTIL(scripted_peek(fd, text) == 10);
        if (is_seen) {
            most = 0; /* no more, and the reset is all that there is to see */
            scripted_settle();
        }
        scripted_reset(fd);
        send_instead = NULL; /* it meets the kernel's own errors */
        if (is_pooled) {
            answer_on_new_connection(&call, true);
        } else {
            scripted_wait(&call);
            expect_result(&call, HTTP_LOST);
        }
    }
}

static int dying; /* the peer's end of the connection that is written to */

/* The peer resets between the client's look at the connection and its writing. The first error is the reset's, the next
 * is EPIPE with its signal. */
static ssize_t send_to_the_dying(int fd, const void *bytes, size_t length, int flags)
{
    send_instead = NULL;
    scripted_reset(dying);
    ck_assert_int_eq(real_send(fd, bytes, length, flags), -1);
    return real_send(fd, bytes, length, flags);
}

TEST(a_broken_pipe_ends_no_program)
{
    struct scripted_call call;
    dying = pool_one_connection();
    send_instead = send_to_the_dying;
    scripted_call(&call, "/dying");
    answer_on_new_connection(&call, false);
}

TEST(a_call_goes_twice_at_most)
{
    int fd = pool_one_connection();
    struct scripted_call call;
    scripted_call(&call, "/twice");
    scripted_receive_any(fd);
    scripted_close(fd);
    fd = scripted_accept();
    scripted_receive_any(fd);
    scripted_close(fd);
    scripted_wait(&call);
    expect_result(&call, HTTP_LOST);
    ck_assert(!scripted_has_connection());
}

TEST(a_call_on_a_dead_connection_goes_to_a_new_one_though_others_are_idle)
{
    int fds[3];
    keep(fds, 3);
    struct scripted_call call;
    scripted_call(&call, "/again");
    struct pollfd polls[3];
    for (int i = 0; i < 3; i++)
        polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    ck_assert_int_eq(poll(polls, 3, 10000), 1);
    for (int i = 0; i < 3; i++)
        if (polls[i].revents)
            scripted_receive_any(fds[i]);
    for (int i = 0; i < 3; i++)
        scripted_close(fds[i]);
    answer_on_new_connection(&call, true);
}

TEST(a_call_that_waits_for_a_new_connection_does_not_take_one_that_served_another)
{
    int fds[2];
    keep(fds, 2);
    struct scripted_call again, other;
    scripted_call(&again, "/again");
    scripted_receive_any(fds[1]);
    scripted_call(&other, "/other");
    scripted_receive_any(fds[0]);
    scripted_fill_backlog();
    scripted_close(fds[1]);
    scripted_settle();
    scripted_answer(fds[0], "other");
    scripted_wait(&other);
    expect_answer(&other, "other");
    scripted_settle();
    ck_assert_uint_eq(scripted_peek(fds[0], text), 0);
    scripted_empty_backlog();
    answer_on_new_connection(&again, true);
    scripted_close(fds[0]);
}

TEST(a_call_whose_second_try_is_refused_is_lost)
{
    int fds[3];
    keep(fds, 3);
    struct scripted_call calls[3];
    for (int i = 0; i < 3; i++)
        scripted_call(&calls[i], "/lost");
    for (int i = 0; i < 3; i++)
        scripted_receive_any(fds[i]);
    scripted_stop_listening();
    for (int i = 0; i < 3; i++)
        scripted_close(fds[i]);
    for (int i = 0; i < 3; i++) {
        SCRIPTED_UNTIL(calls[i].ends > 0);
        expect_result(&calls[i], HTTP_LOST);
    }
}

static void add_tests(Suite *suite, const char *scheme, void (*set_up)(void))
{
    TCase *tests = tcase_create(scheme);
    tcase_add_checked_fixture(tests, set_up, scripted_tear_down);
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}

SUITE(http_pool)
{
    add_tests(suite, "http", scripted_set_up);
    add_tests(suite, "https", scripted_set_up_tls);
}
