/* The worker's verdict on an attempt depends on one question: may the issuer have read the request? The result "not
 * sent" for a request that was read makes a second card; "lost" for a request that never left costs a look-up. So the
 * peer misbehaves here in every way, over real sockets, in clear text and in TLS, and the result is checked. */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_client/http_client.h"
#include "tests/unit/http_caller.h"
#include "tests/unit/http_peer.h"
#include "tests/support/suite.h"

#define NOON_S 1795176000LL /* 2026-11-20T12:00:00Z, a Friday */

static const char *scheme;

static void set_up_clear(void)
{
    scheme = "http";
    set_up(HTTP_PEER_CLEAR);
}

static void set_up_tls(void)
{
    scheme = "https";
    set_up(HTTP_PEER_TLS);
}

static bool is_tls(void)
{
    return strcmp(scheme, "https") == 0;
}

static const char *url_at(int port, const char *path)
{
    static char url[256];
    snprintf(url, sizeof(url), "%s://127.0.0.1:%d%s", scheme, port, path);
    return url;
}

static const char *url_of(const char *path)
{
    return url_at(peer.port, path);
}

static void make_and_run(struct http_call *call, const char *method, const char *path)
{
    make(call, method, url_of(path));
    run(call);
}

#define NOON_S 1795176000LL /* 2026-11-20T12:00:00Z, a Friday */
#define SECRET "never-shown"

static void call_path(struct http_call *call, const char *path)
{
    prepare(call, "POST", url_of(path));
    call->secret_header = "Authorization: Bearer " SECRET;
    ck_assert(buf_put_text(&call->body, "{\"pan\":\"" SECRET "\"}"));
    run(call);
    ck_assert_ptr_null(strstr(call->error, SECRET)); /* nor what the peer sent */
    ck_assert_ptr_null(strstr(call->error, "what do you want"));
    ck_assert_ptr_null(strstr(call->error, "pan"));
}

static void expect_result(const char *path, enum http_result result)
{
    struct http_call call;
    call_path(&call, path);
    ck_assert_msg(call.result == result, "%s: result %d, %s", path, (int)call.result, call.error);
    if (result != HTTP_ANSWERED) {
        ck_assert_uint_eq(call.answer.length, 0);
        ck_assert_int_eq(call.retry_after_ms, -1);
        ck_assert(!call.answer_is_json);
        ck_assert_str_ne(call.error, "");
    }
    http_call_done(&call);
}

/* ---- what is sent ---- */

TEST(an_answer_comes_with_status_and_body)
{
    struct http_call call;
    call_path(&call, "/ok");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_int_eq(call.status, 200);
    ck_assert_uint_eq(call.answer.length, 16);
    ck_assert_str_eq(call.answer.bytes, "connection 00001");
    ck_assert_int_eq(call.retry_after_ms, -1);
    ck_assert(!call.answer_is_json);
    ck_assert(!call.was_resent);
    ck_assert_str_eq(call.error, "");
    ck_assert_int_ge(call.took_us, 0);
    ck_assert_int_eq(peer.requests, 1);
    http_call_done(&call);
}

TEST(a_post_carries_its_headers_and_body_and_nothing_unasked)
{
    struct http_call call;
    prepare(&call, "POST", url_of("/v1/users/../x%20y?q=1"));
    http_call_header(&call, "Idempotency-Key", "0190");
    http_call_header(&call, "Content-Type", "application/json");
    call.secret_header = "Authorization: Bearer never-shown";
    ck_assert(buf_put_text(&call.body, "{\"a\":1}"));
    run(&call);
    ck_assert_int_eq(call.status, 404);
    const char *request = peer.last_request;
    ck_assert_ptr_eq(strstr(request, "POST /v1/users/../x%20y?q=1 HTTP/1.1\r\n"), request);
    ck_assert_ptr_nonnull(strstr(request, "\r\nIdempotency-Key: 0190\r\n"));
    ck_assert_ptr_nonnull(strstr(request, "\r\nContent-Type: application/json\r\n"));
    ck_assert_ptr_nonnull(strstr(request, "\r\nAuthorization: Bearer never-shown\r\n"));
    ck_assert_ptr_nonnull(strstr(request, "\r\nUser-Agent: issuing\r\n"));
    ck_assert_ptr_nonnull(strstr(request, "\r\nContent-Length: 7\r\n"));
    ck_assert_ptr_nonnull(strstr(request, "\r\n\r\n{\"a\":1}"));
    ck_assert_ptr_null(strstr(request, "Expect"));
    ck_assert_ptr_null(strstr(request, "Accept-Encoding"));
    ck_assert_ptr_null(call.lines.bytes); /* wiped and freed */
    ck_assert_ptr_null(call.body.bytes);
    http_call_done(&call);
}

TEST(a_post_without_a_body_is_empty_and_a_get_after_it_has_none)
{
    struct http_call call;
    prepare(&call, "POST", url_of("/ok"));
    run(&call);
    ck_assert_ptr_nonnull(strstr(peer.last_request, "POST /ok "));
    ck_assert_ptr_nonnull(strstr(peer.last_request, "\r\nContent-Length: 0\r\n"));
    ck_assert_ptr_null(strstr(peer.last_request, "Content-Type"));
    make_and_run(&call, "GET", "/ok");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_ptr_nonnull(strstr(peer.last_request, "GET /ok "));
    ck_assert_ptr_null(strstr(peer.last_request, "Content-Length"));
    ck_assert_str_eq(call.answer.bytes, "connection 00001");
    http_call_done(&call);
}

TEST(a_delete_has_headers_and_no_body)
{
    struct http_call call;
    prepare(&call, "DELETE", url_of("/ok"));
    http_call_header(&call, "Idempotency-Key", "0190:unlink");
    run(&call);
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_ptr_eq(strstr(peer.last_request, "DELETE /ok HTTP/1.1\r\n"), peer.last_request);
    ck_assert_ptr_nonnull(strstr(peer.last_request, "\r\nIdempotency-Key: 0190:unlink\r\n"));
    ck_assert_ptr_null(strstr(peer.last_request, "Content-Length"));
    make_and_run(&call, "GET", "/ok");
    ck_assert_ptr_nonnull(strstr(peer.last_request, "GET /ok "));
    http_call_done(&call);
}

TEST(a_large_body_is_sent_at_once_without_asking_first)
{
    static char body[5000];
    memset(body, 'b', sizeof(body));
    struct http_call call;
    prepare(&call, "POST", url_of("/ok"));
    ck_assert(buf_put(&call.body, body, sizeof(body)));
    run(&call);
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_ptr_nonnull(strstr(peer.last_request, "\r\nContent-Length: 5000\r\n"));
    ck_assert_ptr_null(strstr(peer.last_request, "Expect"));
    http_call_done(&call);
}

TEST(a_proxy_in_the_environment_is_not_used)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        setenv(names[i], "http://127.0.0.1:1", 1);
    expect_result("/ok", HTTP_ANSWERED);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        unsetenv(names[i]);
}

TEST(a_redirect_is_an_answer_and_is_not_followed)
{
    struct http_call call;
    call_path(&call, "/redirect");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_int_eq(call.status, 302);
    ck_assert_int_eq(peer.requests, 1);
    http_call_done(&call);
}

TEST(interim_answers_are_passed_over)
{
    struct http_call call;
    call_path(&call, "/interim");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_int_eq(call.status, 200);
    ck_assert_str_eq(call.answer.bytes, "ok");
    ck_assert_int_eq(call.retry_after_ms, -1);
    http_call_done(&call);
}

TEST(chunks_are_joined_and_trailers_say_nothing)
{
    struct http_call call;
    call_path(&call, "/chunked");
    ck_assert_int_eq(call.status, 201);
    ck_assert_str_eq(call.answer.bytes, "abcde");
    ck_assert_int_eq(call.retry_after_ms, -1);
    http_call_done(&call);
}

TEST(a_body_may_end_with_the_connection)
{
    struct http_call call;
    call_path(&call, "/until-close");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_str_eq(call.answer.bytes, "{}");
    ck_assert(call.answer_is_json);
    http_call_done(&call);
}

TEST(an_encoded_body_is_handed_over_as_it_came)
{
    struct http_call call;
    call_path(&call, "/encoded");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_uint_eq(call.answer.length, 4);
    ck_assert_mem_eq(call.answer.bytes, "\x1f\x8b\x08!", 4);
    http_call_done(&call);
}

/* ---- results ---- */

TEST(a_refused_connection_sent_nothing)
{
    /* The port stays taken, so that nobody else listens there meanwhile. */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    struct http_call call;
    prepare(&call, "GET", url_at(ntohs(address.sin_port), "/ok"));
    run(&call);
    close(fd);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    ck_assert_ptr_nonnull(strstr(call.error, "onnect"));
    http_call_done(&call);
}

TEST(an_unusable_address_sent_nothing)
{
    static const char *const urls[] = {
        /* with the scheme before a colon */
        "://name.invalid/",
        "not a url",
        "://",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "://127.0.0.1:99999/",
        "",
        ":///x",
        "://127.0.0.1?x",
        "://127.0.0.1/a b",
        "://127.0.0.1/a#b",
        "://127.0.0.1/\x80",
        "://127.0.0.1",
    };
    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        char url[64];
        snprintf(url, sizeof(url), "%s%s", urls[i][0] == ':' ? scheme : "", urls[i]);
        struct http_call call;
        prepare(&call, "GET", url);
        run(&call);
        ck_assert_msg(call.result == HTTP_NOT_SENT, "%s", url);
        ck_assert_str_ne(call.error, "");
        http_call_done(&call);
    }
}

TEST(a_connection_that_is_never_made_sent_nothing)
{
    /* A full backlog: the kernel answers no SYN. */
    int port, fd = http_peer_listen(&port);
    ck_assert_int_eq(listen(fd, 0), 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fillers[4];
    for (size_t i = 0; i < ARRAY_SIZE(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, sizeof(address));
    }
    struct http_call call;
    prepare(&call, "POST", url_at(port, "/ok"));
    call.timeout_ms = 200;
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    http_call_done(&call);
    for (size_t i = 0; i < ARRAY_SIZE(fillers); i++)
        close(fillers[i]);
    close(fd);
}

TEST(a_header_with_a_line_break_is_not_sent)
{
    struct http_call call;
    prepare(&call, "GET", url_of("/ok"));
    http_call_header(&call, "traceparent", "x\r\nX-Injected: y");
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    ck_assert_int_eq(peer.requests, 0);
    make_and_run(&call, "GET", "/ok");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    http_call_done(&call);
}

TEST(a_peer_that_closes_without_an_answer_may_have_read_the_request)
{
    expect_result("/close", HTTP_LOST);
    expect_result("/drop", HTTP_LOST);
    expect_result("/reset", HTTP_LOST);
    ck_assert_int_eq(peer.requests, 3);
}

TEST(half_an_answer_is_none)
{
    expect_result("/partial", HTTP_LOST);
    expect_result("/partial-header", HTTP_LOST);
    expect_result("/partial-chunk", HTTP_LOST);
    expect_result("/partial-interim", HTTP_LOST);
    expect_result("/garbage", HTTP_LOST);
    expect_result("/upgrade", HTTP_LOST);
}

TEST(a_header_that_begins_folded_hurts_no_call)
{
    struct http_call call;
    for (int i = 0; i < 3; i++) {
        call_path(&call, "/headers"); /* what the folded line might be joined to */
        ck_assert_int_eq(call.result, HTTP_ANSWERED);
        http_call_done(&call);
        call_path(&call, "/folded-first");
        ck_assert_msg(call.result != HTTP_NOT_SENT, "%s", call.error);
        http_call_done(&call);
    }
}

TEST(a_peer_that_hangs_is_given_up_at_the_timeout)
{
    static const char *const paths[] = {"/hang", "/hang-in-body"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct http_call call;
        prepare(&call, "POST", url_of("/ok")); /* the handshake of TLS has time of its own */
        run(&call);
        make(&call, "POST", url_of(paths[i]));
        call.timeout_ms = 100;
        run(&call);
        ck_assert_int_eq(call.result, HTTP_LOST);
        ck_assert_int_ge(call.took_us, 90000);
        ck_assert_uint_eq(call.answer.length, 0);
        http_call_done(&call);
    }
    ck_assert_int_eq(peer.requests, 4);
}

TEST(an_answer_over_the_maximum_is_lost_and_one_at_it_is_not)
{
    expect_result("/large", HTTP_LOST);
    expect_result("/endless", HTTP_LOST);
    expect_result("/large-header", HTTP_LOST);
    struct http_call call;
    call_path(&call, "/largest");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_uint_eq(call.answer.length, 4096);
    http_call_done(&call);
}

TEST(a_calls_own_maximum_counts_too)
{
    struct http_call call;
    prepare(&call, "GET", url_of("/ok"));
    call.answer.max = 15;
    run(&call);
    ck_assert_int_eq(call.result, HTTP_LOST);
    ck_assert_str_eq(call.error, "the answer is too large");
    http_call_done(&call);
}

TEST(a_failed_call_leaves_nothing_of_the_answer_behind)
{
    struct http_call call;
    call_path(&call, "/partial");
    ck_assert_int_eq(call.result, HTTP_LOST);
    ck_assert_ptr_null(call.answer.bytes); /* wiped and freed */
    http_call_done(&call);
}

/* ---- pooled connections ---- */

TEST(a_connection_is_used_again)
{
    struct http_call call;
    prepare(&call, "POST", url_of("/ok"));
    for (int i = 0; i < 20; i++) {
        make_and_run(&call, i % 3 ? "POST" : "GET", "/ok");
        ck_assert_int_eq(call.result, HTTP_ANSWERED);
        ck_assert_str_eq(call.answer.bytes, "connection 00001");
    }
    ck_assert_int_eq(peer.accepted, 1);
    http_call_done(&call);
}

TEST(a_pooled_connection_that_the_peer_closed_is_replaced)
{
    struct http_call call;
    prepare(&call, "POST", url_of("/ok-then-close"));
    int answered = 0;
    for (int i = 0; i < 20; i++) {
        make_and_run(&call, "POST", "/ok-then-close");
        /* The request may cross the peer's close on the way: then it cannot be known, and LOST is true. */
        ck_assert_msg(call.result == HTTP_ANSWERED || call.result == HTTP_LOST, "%s", call.error);
        answered += call.result == HTTP_ANSWERED;
        if (i % 2 == 0)
            uv_sleep(5); /* with and without the chance to notice */
    }
    ck_assert_int_ge(answered, 10);
    ck_assert_int_eq(peer.accepted, answered);
    http_call_done(&call);
}

TEST(a_connection_that_died_while_it_was_idle_is_replaced)
{
    static const enum http_peer_end ends[] = {HTTP_PEER_CLOSES, HTTP_PEER_DROPS, HTTP_PEER_RESETS};
    struct http_call call;
    prepare(&call, "POST", url_of("/ok"));
    run(&call);
    for (int i = 0; i < 6; i++) {
        end_idle(ends[i / 2], i % 2 == 1);
        make_and_run(&call, "POST", "/ok");
        ck_assert_msg(call.result == HTTP_ANSWERED, "%d: %s", i, call.error);
        ck_assert_int_eq(peer.accepted, 2 + i);
        ck_assert_int_eq(peer.requests, 2 + i);
    }
    http_call_done(&call);
}

TEST(a_request_that_was_sent_once_more_reports_it)
{
    struct http_call call;
    prepare(&call, "POST", url_of("/ok"));
    run(&call);
    make_and_run(&call, "POST", "/close-once"); /* read on the pooled connection, answered on the next one */
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    ck_assert(call.was_resent);
    ck_assert_int_eq(peer.requests, 3);
    ck_assert_int_eq(peer.accepted, 2);
    make_and_run(&call, "POST", "/ok");
    ck_assert(!call.was_resent);
    http_call_done(&call);
}

TEST(on_a_fresh_connection_nothing_is_sent_twice)
{
    struct http_call call;
    call_path(&call, "/close-once");
    ck_assert_int_eq(call.result, HTTP_LOST);
    ck_assert(!call.was_resent);
    ck_assert_int_eq(peer.requests, 1);
    http_call_done(&call);
}

TEST(a_request_that_left_on_a_dead_connection_is_lost_though_the_second_try_was_refused)
{
    /* The peer stops listening; it reads one more request on the pooled connection and dies with it. */
    struct http_call call;
    prepare(&call, "POST", url_of("/ok"));
    run(&call);
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    http_peer_stop_listening();
    make_and_run(&call, "POST", "/close");
    ck_assert_int_eq(peer.requests, 2);
    ck_assert_msg(call.result == HTTP_LOST, "%s", call.error);
    http_call_done(&call);
}

/* ---- many, and the end ---- */

#define CALLS 500

static struct http_call calls[CALLS];
static int answered;

static void count_done(struct http_call *call)
{
    on_done(call);
    answered += call->result == HTTP_ANSWERED && call->status == 200 && call->answer.length == 16;
    call->on_done = NULL; /* a second end would crash */
}

TEST(five_hundred_calls_at_once_each_get_their_own_answer)
{
    answered = 0;
    for (int round = 1; round <= 2; round++) {
        for (int i = 0; i < CALLS; i++) {
            if (round == 1)
                http_call_init(&calls[i], ANSWER_MAX);
            make(&calls[i], i % 2 ? "GET" : "POST", url_of("/ok"));
            calls[i].timeout_ms = 60000;
            calls[i].on_done = count_done;
            start(&calls[i]);
        }
        uv_run(&loop, UV_RUN_DEFAULT); /* pooled connections do not hold the loop */
        ck_assert_int_eq(ended, round * CALLS);
        ck_assert_int_eq(answered, round * CALLS);
    }
    for (int i = 0; i < CALLS; i++)
        http_call_done(&calls[i]);
}

static int chain_left;

static void start_again(struct http_call *call)
{
    on_done(call);
    ck_assert_int_eq(call->result, HTTP_ANSWERED);
    make(call, "GET", url_of("/ok"));
    if (--chain_left > 0)
        start(call);
}

TEST(a_call_may_be_started_again_from_its_own_end)
{
    struct http_call call;
    prepare(&call, "GET", url_of("/ok"));
    call.on_done = start_again;
    chain_left = 50;
    start(&call);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(ended, 50);
    ck_assert_int_eq(peer.accepted, 1);
    http_call_done(&call);
}

TEST(closing_ends_every_call_once_and_the_loop_is_empty_after_it)
{
    static struct http_call hanging[20], fresh[5];
    for (size_t i = 0; i < ARRAY_SIZE(hanging); i++) {
        prepare(&hanging[i], "POST", url_of("/hang"));
        hanging[i].on_done = count_done;
        start(&hanging[i]);
    }
    while (peer.requests < (int)ARRAY_SIZE(hanging))
        uv_run(&loop, UV_RUN_NOWAIT);
    for (size_t i = 0; i < ARRAY_SIZE(fresh); i++) {
        prepare(&fresh[i], "POST", url_of("/hang"));
        fresh[i].on_done = count_done;
        start(&fresh[i]);
    }
    http_client_close(client, on_closed, &closed);
    ck_assert_int_eq(ended, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(closed, 1);
    ck_assert_int_eq(ended, (int)(ARRAY_SIZE(hanging) + ARRAY_SIZE(fresh)));
    for (size_t i = 0; i < ARRAY_SIZE(hanging); i++) {
        ck_assert_int_eq(hanging[i].result, HTTP_LOST);
        ck_assert_str_eq(hanging[i].error, "the client is closing");
        http_call_done(&hanging[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(fresh); i++)
        http_call_done(&fresh[i]);
}

/* One address, written in as many ways as a test may need. */
static const char *nth_url(int n, const char *path)
{
    static char url[256];
    snprintf(url, sizeof(url), "%s://127.0.0.1:%0*d%s", scheme, 5 + n, peer.port, path);
    return url;
}

#define ADDRESSES 80
#define ADDRESSES_AT_ONCE \
    72 /* so that 32 routes, each with a look-up elsewhere, the issuer and core-api have one each */

TEST(an_idle_address_makes_room_for_a_new_one_and_a_busy_one_does_not)
{
    static struct http_call hanging[ADDRESSES];
    struct http_call call;
    prepare(&call, "GET", url_of("/ok"));
    for (int i = 0; i < ADDRESSES; i++) {
        make(&call, "GET", nth_url(i, "/ok"));
        run(&call);
        ck_assert_int_eq(call.result, HTTP_ANSWERED);
    }
    int lost = 0;
    for (int i = 0; i < ADDRESSES; i++) {
        prepare(&hanging[i], "GET", nth_url(i, "/hang"));
        hanging[i].timeout_ms = is_tls() ? 3000 : 300; /* handshakes are in it */
        start(&hanging[i]);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < ADDRESSES; i++) {
        lost += hanging[i].result == HTTP_LOST;
        if (hanging[i].result != HTTP_LOST) {
            ck_assert_int_eq(hanging[i].result, HTTP_NOT_SENT);
            ck_assert_str_eq(hanging[i].error, "too many addresses at once");
        }
        http_call_done(&hanging[i]);
    }
    ck_assert_int_eq(lost, ADDRESSES_AT_ONCE);
    ck_assert_int_eq(peer.requests, ADDRESSES + ADDRESSES_AT_ONCE);
    make_and_run(&call, "GET", "/ok");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    http_call_done(&call);
}

TEST(a_call_that_was_not_made_is_not_sent)
{
    struct http_call call;
    prepare(&call, "GET", url_of("/ok"));
    run(&call);
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    run(&call); /* what was made is gone with the call that it was made for */
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    http_call_make(&call, "GET", ""); /* no URL, in front of a header */
    http_call_header(&call, "X", "y");
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    make(&call, "GET", url_of("/ok"));
    ck_assert(!buf_put(&call.lines, "x", HTTP_CALL_TEXT_MAX + 1));
    ck_assert(!http_call_is_made(&call));
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    make(&call, "GET", url_of("/ok"));
    for (int i = 0; i <= HTTP_CALL_HEADERS_MAX; i++)
        http_call_header(&call, "X", "y");
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    ck_assert_int_eq(peer.requests, 1);
    make_and_run(&call, "GET", "/ok");
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    http_call_forget(&call);
    ck_assert_ptr_null(call.answer.bytes);
    http_call_done(&call);
}

static struct http_call late;

static void close_and_start_another(struct http_call *call)
{
    on_done(call);
    http_client_close(client, on_closed, &closed);
    start(&late);
}

TEST(a_call_started_while_closing_is_not_sent_and_ends_from_the_loop)
{
    struct http_call call;
    prepare(&late, "GET", url_of("/ok"));
    prepare(&call, "GET", url_of("/ok"));
    call.on_done = close_and_start_another;
    start(&call);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(ended, 2);
    ck_assert_int_eq(closed, 1);
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_int_eq(late.result, HTTP_NOT_SENT);
    ck_assert_int_eq(peer.requests, 1);
    http_call_done(&call);
    http_call_done(&late);
}

TEST(a_client_that_was_never_used_closes)
{
    http_client_close(client, on_closed, &closed);
    ck_assert_int_eq(closed, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(closed, 1);
}

TEST(the_answers_header_is_read)
{
    struct http_call call;
    snprintf(peer.answer_header, sizeof(peer.answer_header),
             "Content-Type: application/problem+json\r\nretry-AFTER:  12 ");
    call_path(&call, "/header");
    ck_assert_int_eq(call.status, 503);
    ck_assert_int_eq(call.retry_after_ms, 12000);
    ck_assert(call.answer_is_json);
    http_call_done(&call);

    clock_freeze(NOON_S * 1000000, 0);
    snprintf(peer.answer_header, sizeof(peer.answer_header),
             "Content-Type: text/html\r\nRetry-After: Fri, 20 Nov 2026 12:01:00 GMT");
    call_path(&call, "/header");
    ck_assert_int_eq(call.retry_after_ms, 60000);
    ck_assert(!call.answer_is_json);
    http_call_done(&call);
}

static void add_tests(Suite *suite, const char *name, void (*set_up_peer)(void))
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, set_up_peer, tear_down);
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}

SUITE(http_client)
{
    add_tests(suite, "http", set_up_clear);
    add_tests(suite, "https", set_up_tls);
}
