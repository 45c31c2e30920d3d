/* Where a key is not trusted, a create that is sent twice is two cards. The HTTP client sends a request once more on
 * its own account when a pooled connection turns out dead. With must_not_resend it does not: the peer counts the
 * requests that it read, and a call that was not answered is lost. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/http_caller.h"
#include "tests/unit/http_peer.h"
#include "tests/support/suite.h"

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

static void make_path(struct http_call *call, const char *method, const char *path)
{
    char url[128];
    snprintf(url, sizeof(url), "%s://127.0.0.1:%d%s", scheme, peer.port, path);
    make(call, method, url);
}

static void init(struct http_call *call)
{
    prepare(call, "POST", "http://");
}

/* With a body that fills what a call may have. */
static void run_full(struct http_call *call, const char *method, const char *path, bool must_not_resend)
{
    static char body[HTTP_CALL_TEXT_MAX];
    memset(body, 'b', sizeof(body));
    make_path(call, method, path);
    call->must_not_resend = must_not_resend;
    ck_assert(buf_put(&call->body, body, sizeof(body)));
    run(call);
}

static void run_once(struct http_call *call, const char *method, const char *path)
{
    run_full(call, method, path, true);
}

/* Leaves one idle connection. */
static void pool_one_connection(struct http_call *call)
{
    run_once(call, "POST", "/ok");
    ck_assert_msg(call->result == HTTP_ANSWERED, "%s", call->error);
}

static void expect_lost(const struct http_call *call, int requests)
{
    ck_assert_msg(call->result == HTTP_LOST, "result %d, %s", (int)call->result, call->error);
    ck_assert(!call->was_resent);
    ck_assert_uint_eq(call->answer.length, 0);
    ck_assert_int_eq(peer.requests, requests);
}

TEST(a_request_that_was_read_on_a_pooled_connection_is_lost_and_not_sent_again)
{
    static const char *const methods[] = {"POST", "PATCH"};
    static const char *const paths[] = {"/close", "/drop", "/reset"};
    int requests = 0;
    for (size_t i = 0; i < ARRAY_SIZE(methods) * ARRAY_SIZE(paths); i++) {
        struct http_call call;
        init(&call);
        pool_one_connection(&call);
        run_once(&call, methods[i / ARRAY_SIZE(paths)], paths[i % ARRAY_SIZE(paths)]);
        requests += 2;
        expect_lost(&call, requests);
        http_call_done(&call);
    }
    /* what tells that the peer would have read it twice */
    struct http_call call;
    init(&call);
    pool_one_connection(&call);
    run_full(&call, "POST", "/close-once", false);
    ck_assert(call.was_resent);
    ck_assert_int_eq(peer.requests, requests + 3);
    http_call_done(&call);
}

TEST(a_pooled_connection_that_died_costs_no_second_sending)
{
    static const enum http_peer_end ends[] = {HTTP_PEER_CLOSES, HTTP_PEER_DROPS, HTTP_PEER_RESETS};
    int requests = 0;
    for (int i = 0; i < 6; i++) {
        struct http_call call;
        init(&call);
        pool_one_connection(&call);
        end_idle(ends[i / 2], i % 2 == 1);
        run_once(&call, "PATCH", "/ok");
        requests += 1 + (call.result == HTTP_ANSWERED);
        ck_assert_msg(call.result != HTTP_NOT_SENT, "%d: %s", i, call.error);
        ck_assert_msg(call.result == HTTP_ANSWERED || i % 2 == 0, "%d: its end was seen, and it was used: %s", i,
                      call.error);
        ck_assert(!call.was_resent);
        ck_assert_int_eq(peer.requests, requests);
        http_call_done(&call);
    }
}

TEST(a_request_that_never_left_a_dead_pooled_connection_is_sent_on_a_new_one)
{
    struct http_call call;
    init(&call);
    pool_one_connection(&call);
    end_idle(HTTP_PEER_DROPS, true);
    run_once(&call, "POST", "/ok");
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    ck_assert_int_eq(peer.accepted, 2);
    ck_assert_int_eq(peer.requests, 2);
    http_call_done(&call);
}

TEST(a_call_that_may_be_sent_again_is_so_after_one_that_must_not)
{
    struct http_call call;
    init(&call);
    pool_one_connection(&call);
    run_once(&call, "POST", "/close");
    expect_lost(&call, 2);
    pool_one_connection(&call);
    run_full(&call, "POST", "/close-once", false);
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    ck_assert(call.was_resent);
    http_call_done(&call);
}

/* ---- PATCH ---- */

TEST(a_patch_carries_its_headers_and_its_body)
{
    struct http_call call;
    init(&call);
    make_path(&call, "PATCH", "/ok");
    http_call_header(&call, "Content-Type", "application/json");
    ck_assert(buf_put_text(&call.body, "{\"state\": \"CLOSED\"}"));
    run(&call);
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    const char *request = peer.last_request;
    ck_assert_ptr_eq(strstr(request, "PATCH /ok HTTP/1.1\r\n"), request);
    ck_assert_ptr_nonnull(strstr(request, "\r\nContent-Type: application/json\r\n"));
    ck_assert_ptr_nonnull(strstr(request, "\r\nContent-Length: 19\r\n"));
    ck_assert_ptr_nonnull(strstr(request, "\r\n\r\n{\"state\": \"CLOSED\"}"));
    ck_assert_ptr_null(strstr(request, "Expect"));
    ck_assert_ptr_null(strstr(request, "Transfer-Encoding"));
    ck_assert_str_eq(call.answer.bytes, "connection 00001");
    make_path(&call, "PATCH", "/ok"); /* without a body */
    run(&call);
    ck_assert_ptr_nonnull(strstr(peer.last_request, "\r\nContent-Length: 0\r\n"));
    ck_assert_ptr_null(strstr(peer.last_request, "Content-Type"));
    make_path(&call, "GET", "/ok");
    run(&call);
    ck_assert_ptr_eq(strstr(peer.last_request, "GET /ok HTTP/1.1\r\n"), peer.last_request);
    ck_assert_ptr_null(strstr(peer.last_request, "Content-Length"));
    http_call_done(&call);
}

TEST(a_patch_of_eight_kib_is_whole_also_when_it_is_sent_a_second_time)
{
    struct http_call call;
    init(&call);
    pool_one_connection(&call);
    run_full(&call, "PATCH", "/close-once", false);
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    ck_assert(call.was_resent);
    ck_assert_ptr_eq(strstr(peer.last_request, "PATCH /close-once HTTP/1.1\r\n"), peer.last_request);
    const char *body = strstr(peer.last_request, "\r\n\r\n");
    ck_assert_ptr_nonnull(body);
    ck_assert_uint_eq(strspn(body + 4, "b"), HTTP_CALL_TEXT_MAX);
    http_call_done(&call);
}

/* ---- PUT, and large bodies ---- */

TEST(a_put_carries_its_headers_and_its_body)
{
    struct http_call call;
    init(&call);
    make_path(&call, "PUT", "/ok");
    http_call_header(&call, "Content-Type", "application/json");
    ck_assert(buf_put_text(&call.body, "{\"amount\": 100}"));
    run(&call);
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    const char *request = peer.last_request;
    ck_assert_ptr_eq(strstr(request, "PUT /ok HTTP/1.1\r\n"), request);
    ck_assert_ptr_nonnull(strstr(request, "\r\nContent-Type: application/json\r\n"));
    ck_assert_ptr_nonnull(strstr(request, "\r\nContent-Length: 15\r\n"));
    ck_assert_ptr_nonnull(strstr(request, "\r\n\r\n{\"amount\": 100}"));
    ck_assert_ptr_null(strstr(request, "Expect"));
    ck_assert_ptr_null(strstr(request, "Transfer-Encoding"));
    http_call_done(&call);
}

#define BODY (64 * 1024) /* of the largest payload; other calls may have less */

TEST(a_body_of_64_kib_is_whole_where_it_was_allowed_also_when_it_is_sent_a_second_time)
{
    static const char *const methods[] = {"POST", "PUT"};
    static char body[BODY + 1];
    memset(body, 'b', sizeof(body));
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        struct http_call call;
        init(&call);
        pool_one_connection(&call);
        make_path(&call, methods[i], i == 0 ? "/close-once" : "/ok");
        http_call_allow_body(&call, BODY);
        ck_assert(buf_put(&call.body, body, BODY));
        run(&call);
        ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
        ck_assert_int_eq(call.was_resent, i == 0);
        const char *begin = strstr(peer.last_request, "\r\n\r\n");
        ck_assert_ptr_nonnull(begin);
        ck_assert_uint_eq(strspn(begin + 4, "b"), BODY);
        ck_assert_ptr_nonnull(strstr(peer.last_request, "\r\nContent-Length: 65536\r\n"));
        ck_assert_ptr_null(strstr(peer.last_request, "Expect"));
        http_call_done(&call);
    }
}

TEST(an_answer_that_is_too_large_is_one_without_a_body_where_the_status_is_enough)
{
    static const char *const paths[] = {"/large", "/largest", "/ok"};
    struct http_call call;
    init(&call);
    for (int i = 0; i < 2; i++) { /* again: the connection before is not used any more */
        make_path(&call, "POST", "/large");
        call.status_is_enough = true;
        run(&call);
        ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
        ck_assert_int_eq(call.status, 200);
        ck_assert_uint_eq(call.answer.length, 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        make_path(&call, "POST", paths[i]); /* the flag is the call's, and is gone */
        run(&call);
        ck_assert_int_eq(call.result, i == 0 ? HTTP_LOST : HTTP_ANSWERED);
        ck_assert(i == 0 || call.answer.length > 0);
    }
    ck_assert(!call.was_resent);
    ck_assert_int_eq(peer.requests, 5);
    http_call_done(&call);
}

TEST(a_body_is_bounded_by_what_its_own_call_was_allowed)
{
    static char body[BODY + 1];
    struct http_call call;
    init(&call);
    make_path(&call, "PUT", "/ok");
    http_call_allow_body(&call, BODY);
    ck_assert(!buf_put(&call.body, body, sizeof(body)));
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    make_path(&call, "PUT", "/ok"); /* the next one is allowed what any call is */
    ck_assert(!buf_put(&call.body, body, HTTP_CALL_TEXT_MAX + 1));
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    ck_assert_int_eq(peer.requests, 0);
    http_call_done(&call);
}

static TCase *add_case(Suite *suite, const char *name, void (*set_up_peer)(void))
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, set_up_peer, tear_down);
    suite_add_tcase(suite, tests);
    return tests;
}

static void add_tests(TCase *tests)
{
    ADD_TESTS(tests);
}

SUITE(http_client_once)
{
    add_tests(add_case(suite, "http", set_up_clear));
    add_tests(add_case(suite, "https", set_up_tls));
}
