/* Calls in clear text, one event after the other: whatever may happen to a connection is made to happen in each state
 * that a call can be in, and the fate is asked for. "Not sent" said of a request of which a byte was handed to the
 * kernel can make a second card; "answered" may only be said of an answer to this very request. */
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

#include "common/http_client.h"
#include "tests/unit/failing.h"
#include "tests/unit/http_hand.h"

#define INPUT_SIZE (16 * 1024) /* what the client reads at a time */

static char text[HAND_REQUEST_SIZE];

static void expect_answer(struct hand_call *call, const char *body)
{
    ck_assert_msg(call->call.fate == HTTP_ANSWERED, "%s", call->call.error);
    ck_assert_int_eq(call->ends, 1);
    ck_assert_int_eq(call->call.status, 200);
    ck_assert_uint_eq(call->call.answer.length, strlen(body));
    ck_assert_mem_eq(call->call.answer.bytes ? call->call.answer.bytes : "", body, strlen(body));
    http_call_done(&call->call);
}

static void expect_fate(struct hand_call *call, enum http_fate fate)
{
    ck_assert_msg(call->call.fate == fate, "fate %d: %s", (int)call->call.fate, call->call.error);
    ck_assert_int_eq(call->ends, 1);
    if (fate != HTTP_ANSWERED) {
        ck_assert_uint_eq(call->call.answer.length, 0);
        ck_assert_int_eq(call->call.status, 0);
        ck_assert_str_ne(call->call.error, "");
    }
    http_call_done(&call->call);
}

/* Leaves one idle connection; returns the peer's end of it. */
static int keep_one(void)
{
    struct hand_call call;
    hand_call(&call, "/first");
    int fd = hand_accept();
    hand_take(fd);
    hand_answer(fd, "first");
    hand_wait(&call);
    expect_answer(&call, "first");
    return fd;
}

/* Leaves so many idle connections. */
static void keep(int *fds, int count)
{
    static struct hand_call calls[100];
    for (int i = 0; i < count; i++) {
        hand_call(&calls[i], "/first");
        fds[i] = hand_accept();
        hand_take(fds[i]);
    }
    for (int i = 0; i < count; i++) {
        hand_answer(fds[i], "first");
        hand_wait(&calls[i]);
        expect_answer(&calls[i], "first");
    }
}

/* A call whose request is heard on a new connection. */
static int call_and_hear(struct hand_call *call, const char *path)
{
    hand_call(call, path);
    int fd = hand_accept();
    hand_take(fd);
    return fd;
}

/* Serves it on a new connection to the end. */
static void serve_anew(struct hand_call *call, bool was_resent)
{
    int fd = hand_accept();
    hand_hear(fd, text);
    hand_answer(fd, "anew");
    hand_wait(call);
    ck_assert(call->call.was_resent == was_resent);
    expect_answer(call, "anew");
    hand_close(fd);
    hand_settle();
}

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

START_TEST(a_request_that_leaves_in_pieces_arrives_whole)
{
    static char whole[HAND_REQUEST_SIZE];
    int fd = -1;
    for (most = 1; most < 400; most += most < 12 ? 1 : 67) {
        struct hand_call call;
        hand_prepare(&call, "POST", "/pieces?of=a-request");
        ck_assert(buf_put_text(&call.call.lines, "X-Header: value"));
        http_call_end_line(&call.call);
        sends = 0;
        send_instead = send_little;
        hand_start(&call);
        if (fd < 0)
            fd = hand_accept();
        hand_hear(fd, text);
        send_instead = NULL;
        if (most == 1)
            memcpy(whole, text, sizeof(text));
        ck_assert_str_eq(text, whole);
        hand_answer(fd, "yes");
        hand_wait(&call);
        ck_assert(!call.call.was_resent);
        expect_answer(&call, "yes");
    }
    ck_assert(!hand_has_connection());
    hand_close(fd);
}
END_TEST

START_TEST(a_kernel_that_takes_nothing_at_first_is_tried_again)
{
    static const int errors[] = {EAGAIN, EINTR};
    int fd = keep_one();
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        struct hand_call call;
        send_fails_at(1, errors[i], INPUT_SIZE);
        hand_call(&call, "/again");
        hand_take(fd);
        ck_assert_int_eq(sends, 2);
        hand_answer(fd, "yes");
        hand_wait(&call);
        ck_assert(!call.call.was_resent);
        expect_answer(&call, "yes");
    }
    send_instead = NULL;
    hand_close(fd);
}
END_TEST

START_TEST(a_request_that_waits_for_the_kernel_is_not_sent_until_a_byte_has_left)
{
    struct hand_call call;
    send_fails_at(1, EAGAIN, INPUT_SIZE);
    hand_prepare(&call, "POST", "/wait");
    call.call.timeout_ms = 50;
    most = 0; /* nothing, at every later try */
    hand_start(&call);
    hand_wait(&call);
    send_instead = NULL;
    int fd = hand_accept();
    ck_assert_uint_eq(hand_peek(fd, text), 0);
    expect_fate(&call, HTTP_NOT_SENT);
    hand_close(fd);
}
END_TEST

START_TEST(what_a_peer_says_before_a_byte_of_the_request_has_left_is_no_answer)
{
    static const bool kept[] = {true, false};
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
        int fd = kept[i] ? keep_one() : -1;
        struct hand_call call;
        send_fails_at(1, EAGAIN, 0);
        hand_call(&call, "/mine");
        if (!kept[i])
            fd = hand_accept();
        hand_answer(fd, "of somebody else");
        hand_settle();
        send_instead = NULL;
        if (kept[i]) {
            serve_anew(&call, false);
        } else {
            hand_wait(&call);
            expect_fate(&call, HTTP_NOT_SENT);
        }
        ck_assert(hand_is_left(fd));
        hand_close(fd);
    }
}
END_TEST

START_TEST(a_kept_connection_that_takes_no_byte_is_replaced_and_nothing_was_sent_twice)
{
    static const int errors[] = {EPIPE, ECONNRESET, ENOBUFS};
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        int fd = keep_one();
        struct hand_call call;
        send_fails_at(1, errors[i], INPUT_SIZE);
        hand_call(&call, "/again");
        ck_assert_uint_eq(hand_peek(fd, text), 0);
        serve_anew(&call, false);
        send_instead = NULL;
        hand_settle();
        ck_assert(hand_is_left(fd));
        hand_close(fd);
    }
}
END_TEST

START_TEST(nothing_was_sent_when_no_connection_took_a_byte)
{
    int fd = keep_one();
    struct hand_call call;
    send_fails_at(1, EPIPE, INPUT_SIZE);
    hand_stop_listening();
    hand_call(&call, "/again");
    hand_wait(&call);
    send_instead = NULL;
    expect_fate(&call, HTTP_NOT_SENT);
    hand_close(fd);
}
END_TEST

START_TEST(a_new_connection_that_takes_no_byte_sent_nothing)
{
    struct hand_call call;
    send_fails_at(1, EPIPE, INPUT_SIZE);
    hand_call(&call, "/again");
    int fd = hand_accept();
    hand_wait(&call);
    send_instead = NULL;
    expect_fate(&call, HTTP_NOT_SENT);
    hand_close(fd);
}
END_TEST

START_TEST(one_byte_that_left_is_a_request_that_may_be_known)
{
    /* On a new connection the call is lost; on a kept one it goes again, and says so; and it stays lost when the second
     * try finds nobody. */
    static const int errors[] = {EPIPE, ECONNRESET};
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        struct hand_call call;
        send_fails_at(2, errors[i], 1);
        hand_call(&call, "/one-byte");
        int fd = hand_accept();
        HAND_UNTIL(sends == 2);
        hand_close(fd);
        hand_wait(&call);
        send_instead = NULL;
        expect_fate(&call, HTTP_LOST);

        fd = keep_one();
        send_fails_at(2, errors[i], 1);
        hand_call(&call, "/one-byte");
        HAND_UNTIL(sends == 2);
        send_instead = NULL;
        ck_assert_uint_eq(hand_peek(fd, text), 1);
        hand_close(fd);
        serve_anew(&call, true);
    }
    int fd = keep_one();
    struct hand_call call;
    send_fails_at(2, EPIPE, 1);
    hand_call(&call, "/one-byte");
    HAND_UNTIL(sends == 2);
    send_instead = NULL;
    hand_stop_listening();
    hand_close(fd);
    hand_wait(&call);
    expect_fate(&call, HTTP_LOST);
}
END_TEST

START_TEST(a_request_that_is_too_large_is_not_sent_and_costs_nobody_else)
{
    static char header[100000];
    memset(header, 'x', sizeof(header) - 1);
    memcpy(header, "Authorization: ", 15);
    int fd = keep_one();
    struct hand_call call;
    hand_prepare(&call, "POST", "/large");
    call.call.secret_header = header;
    hand_start(&call);
    hand_wait(&call);
    expect_fate(&call, HTTP_NOT_SENT);
    ck_assert_uint_eq(hand_peek(fd, text), 0);
    while (hand_has_connection())
        hand_close(hand_accept());
    hand_close(fd);
    hand_settle();
    fd = keep_one();
    hand_close(fd);
}
END_TEST

START_TEST(an_answer_may_come_before_the_whole_request_left_and_its_connection_is_not_used_again)
{
    struct hand_call call;
    int fd = keep_one();
    send_fails_at(2, EAGAIN, 10);
    most = 10;
    hand_call(&call, "/early");
    ck_assert_uint_eq(hand_peek(fd, text), 10);
    most = 0;
    hand_answer(fd, "too much");
    hand_wait(&call);
    send_instead = NULL;
    ck_assert(!call.call.was_resent);
    expect_answer(&call, "too much");
    hand_settle();
    ck_assert_uint_eq(hand_peek(fd, text), 10);
    ck_assert(hand_is_left(fd));
    hand_close(fd);
    fd = keep_one();
    hand_close(fd);
}
END_TEST

START_TEST(a_peer_that_reads_no_further_may_have_answered)
{
    /* The kernel says EPIPE for the rest, and the answer is there to be read. */
    struct hand_call call;
    send_fails_at(2, EPIPE, 10);
    hand_call(&call, "/early");
    int fd = hand_accept();
    HAND_UNTIL(sends == 2);
    hand_answer(fd, "too much");
    hand_wait(&call);
    send_instead = NULL;
    expect_answer(&call, "too much");
    HAND_UNTIL(hand_is_left(fd));
    hand_close(fd);
}
END_TEST

/* ---- receiving ---- */

static int receives;

static ssize_t receive_fails(int fd, void *bytes, size_t length, int flags)
{
    (void)fd, (void)bytes, (void)length, (void)flags;
    receives++;
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

START_TEST(an_answer_that_comes_byte_by_byte_is_one_answer)
{
    int fd = -1;
    recv_instead = receive_one_byte;
    for (int i = 0; i < 3; i++) {
        struct hand_call call;
        hand_call(&call, "/bytes");
        if (fd < 0)
            fd = hand_accept();
        hand_take(fd);
        hand_answer(fd, "byte by byte");
        hand_wait(&call);
        expect_answer(&call, "byte by byte");
    }
    recv_instead = NULL;
    ck_assert(!hand_has_connection());
    hand_close(fd);
}
END_TEST

START_TEST(a_reset_before_an_answer_is_lost_on_a_new_connection_and_sent_again_on_a_kept_one)
{
    struct hand_call call;
    hand_reset(call_and_hear(&call, "/reset"));
    hand_wait(&call);
    expect_fate(&call, HTTP_LOST);

    int fd = keep_one();
    hand_call(&call, "/reset");
    hand_take(fd);
    hand_reset(fd);
    serve_anew(&call, true);

    fd = keep_one();
    hand_call(&call, "/reset");
    hand_take(fd);
    fails_with = ECONNRESET;
    recv_instead = receive_fails;
    hand_answer(fd, "never read");
    HAND_UNTIL(hand_has_connection());
    recv_instead = NULL;
    serve_anew(&call, true);
    hand_close(fd);
}
END_TEST

START_TEST(a_byte_of_an_answer_forbids_to_send_again)
{
    static const char *const beginnings[] = {"H", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal",
                                             "HTTP/1.1 100 Continue\r\n\r\n", "no HTTP", "\r\n"};
    for (size_t i = 0; i < 2 * ARRAY_SIZE(beginnings); i++) {
        int fd = keep_one();
        struct hand_call call;
        hand_call(&call, "/half");
        hand_take(fd);
        hand_say(fd, beginnings[i / 2]);
        hand_turn();
        if (i % 2)
            hand_reset(fd);
        else
            hand_close(fd);
        hand_wait(&call);
        ck_assert(!call.call.was_resent);
        expect_fate(&call, HTTP_LOST);
        hand_settle();
        ck_assert(!hand_has_connection());
    }
}
END_TEST

START_TEST(a_body_without_a_length_that_a_reset_ends_is_none)
{
    static const bool is_seen[] = {true, false};
    for (size_t i = 0; i < ARRAY_SIZE(is_seen); i++) {
        struct hand_call call;
        int fd = call_and_hear(&call, "/cut");
        hand_say(fd, "HTTP/1.1 200 OK\r\n\r\n{\"id\": 1}");
        if (is_seen[i])
            hand_settle();
        hand_reset(fd);
        hand_wait(&call);
        expect_fate(&call, HTTP_LOST);
    }
}
END_TEST

START_TEST(a_reset_while_the_request_leaves_is_lost_or_sent_again)
{
    for (int i = 0; i < 4; i++) {
        bool is_kept = i % 2, is_seen = i / 2;
        struct hand_call call;
        int fd = is_kept ? keep_one() : -1;
        send_fails_at(2, EAGAIN, 10);
        most = 10;
        hand_call(&call, "/reset");
        fd = is_kept ? fd : hand_accept();
        HAND_UNTIL(hand_peek(fd, text) == 10);
        if (is_seen) {
            most = 0; /* no more, and the reset is all that there is to see */
            hand_settle();
        }
        hand_reset(fd);
        send_instead = NULL; /* it meets the kernel's own errors */
        if (is_kept) {
            serve_anew(&call, true);
        } else {
            hand_wait(&call);
            expect_fate(&call, HTTP_LOST);
        }
    }
}
END_TEST

static int dying; /* the peer's end of the connection that is written to */

/* The peer resets between the client's look at the connection and its writing. The first error is the reset's, the next
 * is EPIPE with its signal. */
static ssize_t send_to_the_dying(int fd, const void *bytes, size_t length, int flags)
{
    send_instead = NULL;
    hand_reset(dying);
    ck_assert_int_eq(real_send(fd, bytes, length, flags), -1);
    return real_send(fd, bytes, length, flags);
}

START_TEST(a_broken_pipe_ends_no_program)
{
    struct hand_call call;
    dying = keep_one();
    send_instead = send_to_the_dying;
    hand_call(&call, "/dying");
    serve_anew(&call, false);
}
END_TEST

START_TEST(a_call_goes_twice_at_most)
{
    int fd = keep_one();
    struct hand_call call;
    hand_call(&call, "/twice");
    hand_take(fd);
    hand_close(fd);
    fd = hand_accept();
    hand_take(fd);
    hand_close(fd);
    hand_wait(&call);
    expect_fate(&call, HTTP_LOST);
    ck_assert(!hand_has_connection());
}
END_TEST

START_TEST(a_call_on_a_dead_connection_goes_to_a_new_one_though_others_are_idle)
{
    int fds[3];
    keep(fds, 3);
    struct hand_call call;
    hand_call(&call, "/again");
    struct pollfd polls[3];
    for (int i = 0; i < 3; i++)
        polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    ck_assert_int_eq(poll(polls, 3, 10000), 1);
    for (int i = 0; i < 3; i++)
        if (polls[i].revents)
            hand_take(fds[i]);
    for (int i = 0; i < 3; i++)
        hand_close(fds[i]);
    serve_anew(&call, true);
}
END_TEST

START_TEST(a_call_that_waits_for_a_new_connection_does_not_take_one_that_served_another)
{
    int fds[2];
    keep(fds, 2);
    struct hand_call again, other;
    hand_call(&again, "/again");
    hand_take(fds[1]);
    hand_call(&other, "/other");
    hand_take(fds[0]);
    hand_have_no_room();
    hand_close(fds[1]);
    hand_settle();
    hand_answer(fds[0], "other");
    hand_wait(&other);
    expect_answer(&other, "other");
    hand_settle();
    ck_assert_uint_eq(hand_peek(fds[0], text), 0);
    hand_make_room();
    serve_anew(&again, true);
    hand_close(fds[0]);
}
END_TEST

START_TEST(a_call_whose_second_try_is_refused_is_lost)
{
    int fds[3];
    keep(fds, 3);
    struct hand_call calls[3];
    for (int i = 0; i < 3; i++)
        hand_call(&calls[i], "/lost");
    for (int i = 0; i < 3; i++)
        hand_take(fds[i]);
    hand_stop_listening();
    for (int i = 0; i < 3; i++)
        hand_close(fds[i]);
    for (int i = 0; i < 3; i++) {
        HAND_UNTIL(calls[i].ends > 0);
        expect_fate(&calls[i], HTTP_LOST);
    }
}
END_TEST

/* ---- idle connections ---- */

static const char stale[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale";

START_TEST(an_idle_connection_that_speaks_is_dropped)
{
    static const char *const words[] = {stale, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", "x",
                                        "\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        int fd = keep_one();
        hand_say(fd, words[i]);
        hand_settle();
        ck_assert(hand_is_left(fd));
        struct hand_call call;
        hand_call(&call, "/mine");
        serve_anew(&call, false);
        hand_close(fd);
    }
}
END_TEST

START_TEST(what_an_idle_connection_said_before_the_request_left_is_no_answer_to_it)
{
    /* The loop had no turn yet: the words are in the kernel when the call starts. */
    static const char *const words[] = {stale, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", "x",
                                        "\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        int fd = keep_one();
        hand_say(fd, words[i]);
        struct hand_call call;
        hand_call(&call, "/mine");
        ck_assert_uint_eq(hand_peek(fd, text), 0); /* nor did the request go there */
        serve_anew(&call, false);
        ck_assert(hand_is_left(fd));
        hand_close(fd);
    }
}
END_TEST

START_TEST(no_call_notices_a_connection_that_was_closed_while_idle)
{
    for (int i = 0; i < 4; i++) {
        int fd = keep_one();
        if (i % 2)
            hand_reset(fd);
        else
            hand_close(fd);
        if (i / 2)
            hand_settle(); /* with and without the chance to see it */
        struct hand_call call;
        hand_call(&call, "/mine");
        serve_anew(&call, false);
    }
}
END_TEST

START_TEST(what_comes_behind_an_answer_is_no_answer_to_the_next_call)
{
    int fd = keep_one();
    struct hand_call first, second;
    hand_call(&first, "/first");
    hand_call(&second, "/second");
    hand_take(fd);
    char both[256];
    snprintf(both, sizeof(both), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst%s", stale);
    int other = hand_accept();
    hand_say(fd, both);
    hand_wait(&first);
    expect_answer(&first, "first");
    HAND_UNTIL(hand_is_left(fd));
    hand_take(other);
    hand_answer(other, "second");
    hand_wait(&second);
    expect_answer(&second, "second");
    hand_close(fd);
    hand_close(other);
}
END_TEST

/* An answer that ends where the client's read ends, and `behind` behind it. */
static void say_full_answer(int fd, const char *behind)
{
    static char bytes[INPUT_SIZE + 256];
    int header =
        snprintf(bytes, sizeof(bytes), "HTTP/1.1 200 OK\r\nX: yyy\r\nContent-Length: %d\r\n\r\n", INPUT_SIZE - 50);
    ck_assert_int_eq(header, 50);
    memset(bytes + header, 'f', (size_t)(INPUT_SIZE - header));
    strcpy(bytes + INPUT_SIZE, behind);
    hand_say_bytes(fd, bytes, INPUT_SIZE + strlen(behind));
}

START_TEST(what_comes_behind_an_answer_that_fills_a_read_is_no_answer_to_the_call_that_waits)
{
    int fd = keep_one();
    struct hand_call first, second;
    hand_call(&first, "/first");
    hand_take(fd);
    hand_have_no_room();
    hand_call(&second, "/second"); /* waits for whatever comes first */
    hand_settle();
    say_full_answer(fd, stale);
    hand_wait(&first);
    ck_assert_int_eq(first.call.fate, HTTP_ANSWERED);
    http_call_done(&first.call);
    hand_settle();
    ck_assert_int_eq(second.ends, 0);
    hand_make_room();
    serve_anew(&second, false);
    hand_close(fd);
}
END_TEST

START_TEST(an_answer_that_fills_a_read_leaves_its_connection_usable)
{
    int fd = keep_one();
    for (int i = 0; i < 3; i++) {
        struct hand_call call;
        hand_call(&call, "/full");
        hand_take(fd);
        say_full_answer(fd, "");
        hand_wait(&call);
        ck_assert_int_eq(call.call.fate, HTTP_ANSWERED);
        ck_assert_uint_eq(call.call.answer.length, INPUT_SIZE - 50);
        http_call_done(&call.call);
    }
    hand_close(fd);
}
END_TEST

START_TEST(only_an_answer_that_allows_it_leaves_its_connection_usable)
{
    static const struct {
        const char *answer;
        bool is_kept;
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
        struct hand_call call;
        int fd = call_and_hear(&call, "/keep");
        hand_say(fd, rows[i].answer);
        hand_wait(&call);
        expect_answer(&call, "x");
        hand_settle();
        if (!rows[i].is_kept)
            ck_assert_msg(hand_is_left(fd), "%s", rows[i].answer);
        hand_call(&call, "/next");
        int next = rows[i].is_kept ? fd : hand_accept();
        hand_take(next);
        hand_say(next, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        hand_wait(&call);
        expect_answer(&call, "");
        hand_close(fd);
        if (next != fd)
            hand_close(next);
    }
}
END_TEST

START_TEST(an_answer_with_a_reset_behind_it_counts_and_its_connection_does_not)
{
    for (int i = 0; i < 2; i++) {
        struct hand_call call;
        int fd = call_and_hear(&call, "/reset");
        int before = hand_descriptors();
        hand_answer(fd, "whole");
        hand_reset(fd);
        hand_wait(&call);
        expect_answer(&call, "whole");
        hand_settle();
        ck_assert_int_eq(hand_descriptors(), before - 2); /* both ends are gone */
        hand_call(&call, "/next");
        serve_anew(&call, false);
    }
}
END_TEST

START_TEST(so_many_connections_are_kept_and_no_more)
{
    hand_close_client();
    HAND_UNTIL(hand.is_closed);
    hand_open(2);
    int fds[10], idle = 0;
    hand_close(keep_one()); /* what libcurl opens once is there from now on */
    hand_settle();
    int before = hand_descriptors();
    keep(fds, 10);
    hand_settle();
    for (int i = 0; i < 10; i++)
        idle += !hand_is_left(fds[i]);
    ck_assert_int_eq(idle, 2);
    ck_assert_int_eq(hand_descriptors(), before + 10 + 2);
    for (int i = 0; i < 10; i++)
        hand_close(fds[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_plain");
    TCase *tests = tcase_create("http_plain");
    tcase_add_checked_fixture(tests, hand_set_up, hand_tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_request_that_leaves_in_pieces_arrives_whole);
    tcase_add_test(tests, a_kernel_that_takes_nothing_at_first_is_tried_again);
    tcase_add_test(tests, a_request_that_waits_for_the_kernel_is_not_sent_until_a_byte_has_left);
    tcase_add_test(tests, what_a_peer_says_before_a_byte_of_the_request_has_left_is_no_answer);
    tcase_add_test(tests, a_kept_connection_that_takes_no_byte_is_replaced_and_nothing_was_sent_twice);
    tcase_add_test(tests, nothing_was_sent_when_no_connection_took_a_byte);
    tcase_add_test(tests, a_new_connection_that_takes_no_byte_sent_nothing);
    tcase_add_test(tests, one_byte_that_left_is_a_request_that_may_be_known);
    tcase_add_test(tests, a_request_that_is_too_large_is_not_sent_and_costs_nobody_else);
    tcase_add_test(tests, an_answer_may_come_before_the_whole_request_left_and_its_connection_is_not_used_again);
    tcase_add_test(tests, a_peer_that_reads_no_further_may_have_answered);
    tcase_add_test(tests, an_answer_that_comes_byte_by_byte_is_one_answer);
    tcase_add_test(tests, a_reset_before_an_answer_is_lost_on_a_new_connection_and_sent_again_on_a_kept_one);
    tcase_add_test(tests, a_byte_of_an_answer_forbids_to_send_again);
    tcase_add_test(tests, a_body_without_a_length_that_a_reset_ends_is_none);
    tcase_add_test(tests, a_reset_while_the_request_leaves_is_lost_or_sent_again);
    tcase_add_test(tests, a_broken_pipe_ends_no_program);
    tcase_add_test(tests, a_call_goes_twice_at_most);
    tcase_add_test(tests, a_call_on_a_dead_connection_goes_to_a_new_one_though_others_are_idle);
    tcase_add_test(tests, a_call_that_waits_for_a_new_connection_does_not_take_one_that_served_another);
    tcase_add_test(tests, a_call_whose_second_try_is_refused_is_lost);
    tcase_add_test(tests, an_idle_connection_that_speaks_is_dropped);
    tcase_add_test(tests, what_an_idle_connection_said_before_the_request_left_is_no_answer_to_it);
    tcase_add_test(tests, no_call_notices_a_connection_that_was_closed_while_idle);
    tcase_add_test(tests, what_comes_behind_an_answer_is_no_answer_to_the_next_call);
    tcase_add_test(tests, what_comes_behind_an_answer_that_fills_a_read_is_no_answer_to_the_call_that_waits);
    tcase_add_test(tests, an_answer_that_fills_a_read_leaves_its_connection_usable);
    tcase_add_test(tests, only_an_answer_that_allows_it_leaves_its_connection_usable);
    tcase_add_test(tests, an_answer_with_a_reset_behind_it_counts_and_its_connection_does_not);
    tcase_add_test(tests, so_many_connections_are_kept_and_no_more);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
