/* A connection may break anywhere: in its handshake, in the request, in the answer. It is broken here behind each
 * single byte that the client reads, and behind each that it writes, in clear text and over TLS, with a whole handshake
 * and with one that takes up a session. A call whose request the peer may have seen is lost, one of which no byte left
 * is not sent, and only a whole answer is one. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "tests/unit/fault_injection.h"
#include "tests/unit/http_client/expecting.h"
#include "tests/unit/scripted_peer.h"
#include "tests/support/suite.h"

static size_t left; /* bytes until it is cut */
static bool is_cut, is_request;
static size_t requested; /* bytes of the request that left, of its records */

/* What the kernel reports: a reset, or the end. */
static int cut_error;

static ssize_t receive_until_cut(int fd, void *bytes, size_t length, int flags)
{
    if (left == 0) {
        is_cut = true;
        errno = cut_error;
        return cut_error ? -1 : 0;
    }
    ssize_t count = real_recv(fd, bytes, length < left ? length : left, flags);
    left -= count > 0 ? (size_t)count : 0;
    return count;
}

/* A ClientHello, and the Finished behind a ChangeCipherSpec, are the handshake (fault_injection.c). */
static ssize_t send_until_cut(int fd, const void *bytes, size_t length, int flags)
{
    const unsigned char *first = bytes;
    if (left == 0) {
        is_cut = true;
        errno = EPIPE;
        return -1;
    }
    is_request = is_request || !scripted.tls || first[0] == 23;
    ssize_t count = real_send(fd, bytes, length < left ? length : left, flags);
    left -= count > 0 ? (size_t)count : 0;
    requested += is_request && count > 0 ? (size_t)count : 0;
    return count;
}

/* Plays the peer until the call ends; returns whether it got the whole request. */
static bool play_to_end(struct scripted_call *call)
{
    bool is_heard = false, is_open = true;
    int fd = scripted_accept();
    for (int iterations = 0; call->ends == 0; iterations++) {
        ck_assert_int_lt(iterations, 100000);
        if (is_open && is_cut && !is_heard && iterations > 50) { /* a request without an end */
            scripted_close(fd);
            is_open = false;
        }
        if (is_open && !is_heard && scripted_hear(fd, text) > 0 && strstr(text, "request\"}")) {
            is_heard = true;
            scripted_receive_any(fd);
            scripted_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes");
        }
        scripted_run_once();
    }
    if (is_open)
        scripted_close(fd);
    scripted_settle();
    return is_heard;
}

static void expect_true_result(const struct scripted_call *call, bool is_heard, size_t at)
{
    enum http_result result = call->call.result;
    ck_assert_int_eq(call->ends, 1);
    if (!is_cut)
        ck_assert_msg(result == HTTP_ANSWERED, "at %zu: %s", at, call->call.error);
    if (is_heard)
        ck_assert_msg(result != HTTP_NOT_SENT, "at %zu: the peer has read it: %s", at, call->call.error);
    if (result == HTTP_ANSWERED)
        ck_assert_str_eq(call->call.answer.bytes, "yes");
    ck_assert(!call->call.was_resent);
}

static enum http_handshake handshake; /* of the last call that was answered */

/* Returns whether the connection was cut before the call was answered. */
static bool read_until(size_t at, int error)
{
    struct scripted_call call;
    left = at;
    cut_error = error;
    is_cut = false;
    recv_instead = receive_until_cut;
    scripted_call(&call, "/cut");
    bool is_heard = play_to_end(&call);
    recv_instead = NULL;
    expect_true_result(&call, is_heard, at);
    bool is_answered = call.call.result == HTTP_ANSWERED;
    if (is_answered)
        handshake = call.call.handshake;
    if (!is_heard)
        ck_assert_msg(call.call.result == HTTP_NOT_SENT, "at %zu: nobody has read it", at);
    http_call_done(&call.call);
    return !is_answered;
}

static bool write_until(size_t at)
{
    struct scripted_call call;
    left = at;
    is_cut = is_request = false;
    requested = 0;
    send_instead = send_until_cut;
    scripted_call(&call, "/cut");
    bool is_heard = play_to_end(&call);
    send_instead = NULL;
    expect_true_result(&call, is_heard, at);
    bool is_answered = call.call.result == HTTP_ANSWERED;
    if (!is_answered)
        ck_assert_msg(call.call.result == (requested > 0 ? HTTP_LOST : HTTP_NOT_SENT), "at %zu: %zu bytes left: %s", at,
                      requested, call.call.error);
    http_call_done(&call.call);
    return !is_answered;
}

static void cut_everywhere(size_t least)
{
    size_t at = 0;
    while (read_until(at, ECONNRESET))
        at++;
    ck_assert_uint_ge(at, least);
    for (size_t end = 0; end < at; end += 5)
        (void)read_until(end, 0);
    for (at = 0; write_until(at);)
        at++;
    ck_assert_uint_ge(at, 100);
}

START_TEST(a_connection_in_clear_text_that_is_cut_behind_any_byte_gives_a_true_result)
{
    cut_everywhere(50);
}

START_TEST(a_connection_over_tls_that_is_cut_behind_any_byte_gives_a_true_result)
{
    spares_handshakes = false;
    SSL_CTX_set_num_tickets(scripted.tls, 0);
    cut_everywhere(500);
}

START_TEST(a_connection_of_tls_1_2_that_is_cut_behind_any_byte_gives_a_true_result)
{
    spares_handshakes = false;
    SSL_CTX_set_max_proto_version(scripted.tls, TLS1_2_VERSION);
    SSL_CTX_set_options(scripted.tls, SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(scripted.tls, SSL_SESS_CACHE_OFF);
    size_t at = 0;
    while (read_until(at, ECONNRESET))
        at++;
    ck_assert_uint_ge(at, 500);
}

/* Before each call one that is answered leaves a session. */
START_TEST(a_connection_that_takes_up_a_session_and_is_cut_gives_a_true_result)
{
    spares_handshakes = false;
    bool is_over = false;
    size_t at;
    for (at = 0; !is_over; at += 3) {
        (void)read_until(SIZE_MAX, 0);
        is_over = !read_until(at, ECONNRESET);
    }
    ck_assert_uint_ge(at, 200);
    ck_assert_int_eq(handshake, HTTP_HANDSHAKE_RESUMED); /* else it was a whole handshake that was cut */
}

SUITE(http_pool_cut)
{
    TCase *clear = tcase_create("http"), *tls = tcase_create("https");
    tcase_add_checked_fixture(clear, scripted_set_up, scripted_tear_down);
    tcase_add_checked_fixture(tls, scripted_set_up_tls, scripted_tear_down);
    tcase_set_timeout(tls, 100000);
    tcase_add_test(clear, a_connection_in_clear_text_that_is_cut_behind_any_byte_gives_a_true_result);
    tcase_add_test(tls, a_connection_over_tls_that_is_cut_behind_any_byte_gives_a_true_result);
    tcase_add_test(tls, a_connection_of_tls_1_2_that_is_cut_behind_any_byte_gives_a_true_result);
    tcase_add_test(tls, a_connection_that_takes_up_a_session_and_is_cut_gives_a_true_result);
    suite_add_tcase(suite, clear);
    suite_add_tcase(suite, tls);
}
