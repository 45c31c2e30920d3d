/* The issuer is called through the internet. Whoever stands between must neither read an order for a card nor answer
 * it: a peer that cannot prove who it is gets not a byte. And where TLS offers HTTP/2, many orders are on their way on
 * one connection; when that dies, libcurl sends them once more by itself. It must never do so without saying it: an
 * answer that is believed to belong to the only sending would close a question that is open. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/http_caller.h"
#include "tests/unit/http_peer.h"

#define SECRET "tell-nobody"

static const char *url_of(const char *host, const char *path)
{
    static char url[256];
    snprintf(url, sizeof(url), "https://%s:%d%s", host, peer.port, path);
    return url;
}

static void prepare_order(struct http_call *call)
{
    prepare(call, "POST", url_of("127.0.0.1", "/ok"));
    call->secret_header = "Authorization: Bearer " SECRET;
    ck_assert(buf_put_text(&call->body, "{\"memo\":\"" SECRET "\"}"));
}

/* ---- who the peer is ---- */

static struct certificate others_authority;

/* A peer with a certificate for `names` that ends then, signed by `signer`; a client that trusts `trusted`. */
static void set_up_pair(enum http_peer_kind kind, const char *names, long ends_s, const struct certificate *signer,
                        const struct certificate *trusted)
{
    struct certificate certificate;
    certificate_make(&certificate, signer, names, ends_s);
    http_peer_start(kind, kind == HTTP_PEER_CLEAR || kind == HTTP_PEER_PROTESTING ? NULL : &certificate);
    certificate_done(&certificate);
    open_client(trusted ? file_of(trusted) : NULL);
}

static void set_up_authorities(void)
{
    certificate_make_authority(&authority, "test authority");
    certificate_make_authority(&others_authority, "test authority"); /* the name alone proves nothing */
}

static void tear_down_pair(void)
{
    tear_down();
    certificate_done(&others_authority);
}

static void expect_not_sent(const char *host, int64_t timeout_ms)
{
    struct http_call call;
    prepare_order(&call);
    make(&call, "POST", url_of(host, "/ok"));
    ck_assert(buf_put_text(&call.body, SECRET));
    call.timeout_ms = timeout_ms;
    run(&call);
    ck_assert_msg(call.fate == HTTP_NOT_SENT, "fate %d, status %d, %s", (int)call.fate, call.status, call.error);
    ck_assert_str_ne(call.error, "");
    ck_assert_ptr_null(strstr(call.error, SECRET));
    ck_assert_ptr_null(strstr(call.error, "/ok"));
    ck_assert(!call.was_resent);
    ck_assert_int_eq(peer.requests, 0);
    http_call_done(&call);
}

static void expect_answered(const char *host)
{
    struct http_call call;
    prepare(&call, "GET", url_of(host, "/ok"));
    run(&call);
    ck_assert_msg(call.fate == HTTP_ANSWERED, "%s", call.error);
    http_call_done(&call);
}

START_TEST(a_peer_that_the_named_authority_vouches_for_is_answered)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1,DNS:localhost", DAY_S, &authority, &authority);
    expect_answered("127.0.0.1");
    expect_answered("localhost");
}
END_TEST

START_TEST(a_delete_is_one_over_tls_too)
{
    struct http_call call;
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    prepare(&call, "DELETE", url_of("127.0.0.1", "/ok"));
    run(&call);
    ck_assert_int_eq(call.fate, HTTP_ANSWERED);
    ck_assert_ptr_eq(strstr(peer.last_request, "DELETE /ok HTTP/1.1\r\n"), peer.last_request);
    make(&call, "GET", url_of("127.0.0.1", "/ok"));
    run(&call);
    ck_assert_ptr_eq(strstr(peer.last_request, "GET /ok HTTP/1.1\r\n"), peer.last_request);
    http_call_done(&call);
}
END_TEST

START_TEST(a_certificate_for_another_name_sends_nothing)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.2,DNS:issuer.example,DNS:127.0.0.1", DAY_S, &authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
    expect_not_sent("localhost", 10000);
}
END_TEST

START_TEST(an_unknown_authority_sends_nothing)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &others_authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
}
END_TEST

START_TEST(without_a_file_an_own_authority_is_unknown)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, NULL);
    expect_not_sent("127.0.0.1", 10000);
}
END_TEST

START_TEST(an_expired_certificate_sends_nothing)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", -60, &authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
}
END_TEST

START_TEST(a_peer_in_clear_text_sends_nothing)
{
    set_up_pair(HTTP_PEER_PROTESTING, "IP:127.0.0.1", DAY_S, &authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
}
END_TEST

START_TEST(a_handshake_that_is_never_answered_sends_nothing)
{
    set_up_pair(HTTP_PEER_CLEAR, "IP:127.0.0.1", DAY_S, &authority, &authority);
    expect_not_sent("127.0.0.1", 300);
}
END_TEST

START_TEST(a_peer_that_knows_old_versions_only_sends_nothing)
{
    set_up_pair(HTTP_PEER_OLD_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
}
END_TEST

START_TEST(a_file_of_authorities_that_is_gone_or_unreadable_sends_nothing)
{
    static const char *const files[] = {"/nonexistent/ca.pem", "/dev/null", "/", "/proc/self/cmdline"};
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        close_client();
        open_client(files[i]);
        expect_not_sent("127.0.0.1", 10000);
    }
}
END_TEST

START_TEST(a_machine_that_slept_during_the_handshake_sends_nothing)
{
    struct http_call call;
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    prepare_order(&call);
    call.timeout_ms = 60000;
    start(&call);
    clock_advance(DAY_S * INT64_C(1000000)); /* libcurl's timers do not notice */
    while (ended == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_msg(call.fate == HTTP_NOT_SENT, "fate %d: %s", (int)call.fate, call.error);
    ck_assert_str_eq(call.error, "its time was over before it was sent");
    ck_assert_int_eq(peer.requests, 0);
    http_call_done(&call);
    clock_release();
    expect_answered("127.0.0.1");
}
END_TEST

static void trust(const struct certificate *certificate)
{
    char path[64];
    struct authorities *authorities = NULL;
    struct err err = {0};
    int fd = certificate_file(certificate, path, sizeof(path));
    ck_assert_msg(authorities_load(path, &authorities, &err), "%s", err.message);
    http_client_trust(client, authorities);
    authorities_release(authorities);
    close(fd); /* the file may be gone afterwards */
}

START_TEST(authorities_are_changed_while_the_client_works)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &others_authority);
    expect_not_sent("127.0.0.1", 10000);
    trust(&authority);
    expect_answered("127.0.0.1");
    expect_answered("127.0.0.1");
    trust(&others_authority); /* also for a connection that is open */
    struct http_call call;
    prepare(&call, "GET", url_of("127.0.0.1", "/ok"));
    run(&call);
    ck_assert_int_eq(call.fate, HTTP_NOT_SENT);
    http_call_done(&call);
    trust(&authority);
    prepare(&call, "GET", url_of("127.0.0.1", "/ok"));
    start(&call);
    trust(&others_authority); /* a call on its way keeps those that it began with */
    int before = ended;
    while (ended == before)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_msg(call.fate == HTTP_ANSWERED, "%s", call.error);
    http_call_done(&call);
}
END_TEST

START_TEST(an_answer_that_somebody_cut_is_none)
{
    static const char *const paths[] = {"/partial-drop", "/partial-chunk-drop", "/partial-header-drop", "/drop"};
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct http_call call;
        prepare(&call, "GET", url_of("127.0.0.1", paths[i]));
        run(&call);
        ck_assert_msg(call.fate == HTTP_LOST, "%s: %d", paths[i], (int)call.fate);
        http_call_done(&call);
    }
}
END_TEST

/* ---- HTTP/2 ---- */

#define MANY 30

static struct http_call calls[MANY];

static void set_up_http2(void)
{
    set_up(HTTP_PEER_HTTP2);
}

static void then(enum http2_act act, int times)
{
    for (int i = 0; i < times; i++) {
        ck_assert_int_lt(peer.acts_count, HTTP2_ACTS_MAX);
        peer.acts[peer.acts_count++] = act;
    }
}

static void run_orders(int count)
{
    int before = ended;
    for (int i = 0; i < count; i++) {
        prepare_order(&calls[i]);
        start(&calls[i]);
    }
    while (ended < before + count)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(ended, before + count);
}

static void forget_orders(int count)
{
    for (int i = 0; i < count; i++) {
        ck_assert_ptr_null(strstr(calls[i].error, SECRET));
        http_call_done(&calls[i]);
    }
}

static void run_order(void)
{
    run_orders(1);
}

static const char *text_of(const struct http_call *call)
{
    return call->answer.bytes ? call->answer.bytes : "";
}

START_TEST(orders_at_the_same_time_share_a_connection)
{
    for (int round = 1; round <= 2; round++) {
        run_orders(MANY);
        for (int i = 0; i < MANY; i++) {
            ck_assert_msg(calls[i].fate == HTTP_ANSWERED, "%s", calls[i].error);
            ck_assert_int_eq(calls[i].status, 200);
            ck_assert_str_eq(text_of(&calls[i]), "connection 00001");
            ck_assert(!calls[i].was_resent);
        }
        forget_orders(MANY);
        ck_assert_int_eq(peer.http2_requests, round * MANY);
    }
    ck_assert_int_eq(peer.accepted, 1);
}
END_TEST

/* All were read and none was answered, so an answer is that to a second sending. */
static void expect_no_silent_resending(enum http2_act last)
{
    int before = peer.requests;
    peer.acts_count = 0;
    peer.http2_requests = 0;
    then(HTTP2_HANGS, MANY - 1);
    then(last, 1);
    run_orders(MANY);
    int sent = peer.requests - before, resent = 0;
    for (int i = 0; i < MANY; i++) {
        ck_assert_msg(calls[i].fate != HTTP_NOT_SENT, "act %d, %s", (int)last, calls[i].error);
        ck_assert_msg(calls[i].fate == HTTP_LOST || calls[i].was_resent, "act %d: resent without a word", (int)last);
        resent += calls[i].was_resent;
    }
    ck_assert_msg(sent >= MANY && sent <= MANY + 5 * resent, "act %d: sent %d, said %d", (int)last, sent, resent);
    forget_orders(MANY);
}

START_TEST(many_orders_on_a_connection_that_dies_are_not_sent_again_in_silence)
{
    expect_no_silent_resending(HTTP2_CLOSES);
    expect_no_silent_resending(HTTP2_DROPS);
    expect_no_silent_resending(HTTP2_RESETS);
    expect_no_silent_resending(HTTP2_LEAVES);
}
END_TEST

START_TEST(many_orders_on_a_connection_that_dies_are_lost_when_there_is_no_other)
{
    then(HTTP2_ANSWERS, 1);
    then(HTTP2_HANGS, MANY - 1);
    then(HTTP2_CLOSES, 1);
    run_order();
    forget_orders(1);
    http_peer_stop_listening();
    run_orders(MANY);
    for (int i = 0; i < MANY; i++)
        ck_assert_msg(calls[i].fate == HTTP_LOST, "fate %d, %s", (int)calls[i].fate, calls[i].error);
    forget_orders(MANY);
    ck_assert_int_eq(peer.requests, 1 + MANY);
}
END_TEST

START_TEST(a_refused_order_is_sent_again_and_says_so)
{
    then(HTTP2_REFUSES, 1);
    run_order();
    ck_assert_msg(calls[0].fate == HTTP_ANSWERED, "%s", calls[0].error);
    ck_assert(calls[0].was_resent);
    ck_assert_int_eq(peer.requests, 2);
    forget_orders(1);
}
END_TEST

START_TEST(an_order_that_is_refused_again_and_again_is_lost_after_a_few)
{
    then(HTTP2_REFUSES, HTTP2_ACTS_MAX);
    run_order();
    ck_assert_int_eq(calls[0].fate, HTTP_LOST);
    ck_assert(calls[0].was_resent);
    ck_assert_int_gt(peer.requests, 1);
    ck_assert_int_le(peer.requests, 6);
    forget_orders(1);
}
END_TEST

START_TEST(a_peer_that_goes_away_answers_what_it_took_and_the_rest_says_that_it_was_sent_again)
{
    then(HTTP2_HANGS, 2);
    then(HTTP2_GOES_AWAY, 1);
    for (int i = 0; i < 3; i++) {
        while (i == 2 && peer.requests < 2) /* the last stream is what the peer must not have taken */
            uv_run(&loop, UV_RUN_NOWAIT);
        prepare_order(&calls[i]);
        start(&calls[i]);
    }
    while (ended < 3)
        uv_run(&loop, UV_RUN_ONCE);
    /* libcurl 7.88 sometimes loses an answer that came with the GOAWAY; but what it says of an answer is true. */
    int answered = 0;
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(calls[i].fate != HTTP_NOT_SENT, "%s", calls[i].error);
        if (calls[i].fate == HTTP_LOST)
            continue;
        ck_assert_str_eq(text_of(&calls[i]), i == 2 ? "connection 00002" : "connection 00001");
        ck_assert_int_eq(calls[i].was_resent, i == 2);
        answered++;
    }
    ck_assert_int_gt(answered, 0);
    forget_orders(3);
}
END_TEST

START_TEST(a_peer_that_wants_an_older_version_gets_it_and_the_call_says_so)
{
    then(HTTP2_WANTS_1_1, 1);
    run_order();
    ck_assert_msg(calls[0].fate == HTTP_ANSWERED, "%s", calls[0].error);
    ck_assert(calls[0].was_resent);
    ck_assert_int_eq(peer.requests, 2);
    ck_assert_int_eq(peer.http2_requests, 1);
    forget_orders(1);
}
END_TEST

START_TEST(a_refusal_that_came_too_late_does_not_make_the_next_order_go_twice_in_silence)
{
    then(HTTP2_INTERIM_REFUSES, 1);
    then(HTTP2_CLOSES, 1); /* on a fresh connection: read, and no answer */
    run_order();
    ck_assert(calls[0].fate == HTTP_LOST || calls[0].was_resent);
    forget_orders(1);
    run_order();
    ck_assert(calls[0].fate == HTTP_LOST || calls[0].was_resent);
    forget_orders(1);
}
END_TEST

START_TEST(half_an_answer_over_http2_is_none)
{
    static const enum http2_act acts[] = {HTTP2_CLOSES,      HTTP2_DROPS,       HTTP2_RESETS,     HTTP2_FAILS,
                                          HTTP2_HALF_CLOSES, HTTP2_HALF_RESETS, HTTP2_HALF_FAILS, HTTP2_HALF_STOPS,
                                          HTTP2_HALF_ENDS,   HTTP2_HALF_BABBLES};
    for (size_t i = 0; i < ARRAY_SIZE(acts); i++) {
        then(acts[i], 1);
        int before = peer.requests;
        run_order();
        ck_assert_msg(calls[0].fate == HTTP_LOST, "act %d: fate %d", (int)acts[i], (int)calls[0].fate);
        ck_assert_uint_eq(calls[0].answer.length, 0);
        ck_assert_msg(peer.requests == before + 1 && !calls[0].was_resent, "act %d: sent again", (int)acts[i]);
        forget_orders(1);
    }
}
END_TEST

START_TEST(half_an_answer_of_untold_length_is_none_or_no_more_than_came)
{
    static const enum http2_act acts[] = {HTTP2_HALF_CLOSES, HTTP2_HALF_RESETS, HTTP2_HALF_FAILS, HTTP2_HALF_STOPS,
                                          HTTP2_HALF_BABBLES};
    peer.hides_length = true;
    for (size_t i = 0; i < ARRAY_SIZE(acts); i++) {
        then(acts[i], 1);
        run_order();
        /* libcurl 7.88 takes some of them for whole. The reader of JSON does not. */
        if (calls[0].fate == HTTP_ANSWERED)
            ck_assert_str_eq(text_of(&calls[0]), "{\"pan\":");
        forget_orders(1);
    }
    ck_assert_int_eq(peer.requests, (int)ARRAY_SIZE(acts));
}
END_TEST

START_TEST(orders_that_fail_or_are_given_up_leave_those_beside_them_alone)
{
    run_order();
    forget_orders(1);
    peer.http2_requests = 0;
    then(HTTP2_FAILS, 1);
    then(HTTP2_HANGS, 2);
    then(HTTP2_ANSWERS, 6);
    then(HTTP2_ANSWERS_ALL, 1); /* that of one given up comes too late */
    for (int i = 0; i < 10; i++) {
        while (i == 9 && ended < 1 + 8)
            uv_run(&loop, UV_RUN_ONCE);
        prepare_order(&calls[i]);
        calls[i].timeout_ms = i == 1 ? 300 : 10000;
        start(&calls[i]);
    }
    while (ended < 1 + 10)
        uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < 10; i++) {
        ck_assert_msg(calls[i].fate == (i < 2 ? HTTP_LOST : HTTP_ANSWERED), "%d: %s", i, calls[i].error);
        ck_assert(!calls[i].was_resent);
    }
    ck_assert_int_eq(peer.requests, 1 + 10);
    ck_assert_int_eq(peer.accepted, 1);
    forget_orders(10);
}
END_TEST

START_TEST(an_idle_connection_of_http2_that_died_is_replaced)
{
    static const enum http_peer_end ends[] = {HTTP_PEER_LEAVES, HTTP_PEER_DROPS, HTTP_PEER_RESETS, HTTP_PEER_CLOSES};
    run_order();
    forget_orders(1);
    for (int i = 0; i < 7; i++) {
        /* TLS's good bye without HTTP/2's deceives libcurl, unless the loop has seen it. */
        bool is_noticed = i % 2 == 1 || ends[i / 2] == HTTP_PEER_CLOSES;
        end_idle(ends[i / 2], is_noticed);
        run_order();
        ck_assert_msg(calls[0].fate == HTTP_ANSWERED, "%d: %s", i, calls[0].error);
        ck_assert_int_eq(peer.requests, 2 + i);
        ck_assert_int_eq(peer.accepted, 2 + i);
        forget_orders(1);
    }
}
END_TEST

START_TEST(closing_with_orders_on_their_way_over_http2_ends_them)
{
    then(HTTP2_HANGS, MANY);
    for (int i = 0; i < MANY; i++) {
        prepare_order(&calls[i]);
        start(&calls[i]);
    }
    while (peer.requests < MANY)
        uv_run(&loop, UV_RUN_NOWAIT);
    http_client_close(client, on_closed, &closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(closed, 1);
    ck_assert_int_eq(ended, MANY);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(calls[i].fate, HTTP_LOST);
    forget_orders(MANY);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_client_tls");
    TCase *peers = tcase_create("peers");
    tcase_add_checked_fixture(peers, set_up_authorities, tear_down_pair);
    tcase_set_timeout(peers, 120);
    tcase_add_test(peers, a_peer_that_the_named_authority_vouches_for_is_answered);
    tcase_add_test(peers, a_delete_is_one_over_tls_too);
    tcase_add_test(peers, a_certificate_for_another_name_sends_nothing);
    tcase_add_test(peers, an_unknown_authority_sends_nothing);
    tcase_add_test(peers, without_a_file_an_own_authority_is_unknown);
    tcase_add_test(peers, an_expired_certificate_sends_nothing);
    tcase_add_test(peers, a_peer_in_clear_text_sends_nothing);
    tcase_add_test(peers, a_handshake_that_is_never_answered_sends_nothing);
    tcase_add_test(peers, a_peer_that_knows_old_versions_only_sends_nothing);
    tcase_add_test(peers, a_file_of_authorities_that_is_gone_or_unreadable_sends_nothing);
    tcase_add_test(peers, a_machine_that_slept_during_the_handshake_sends_nothing);
    tcase_add_test(peers, authorities_are_changed_while_the_client_works);
    tcase_add_test(peers, an_answer_that_somebody_cut_is_none);
    suite_add_tcase(suite, peers);
    TCase *http2 = tcase_create("http2");
    tcase_add_checked_fixture(http2, set_up_http2, tear_down);
    tcase_set_timeout(http2, 120);
    tcase_add_test(http2, orders_at_the_same_time_share_a_connection);
    tcase_add_test(http2, many_orders_on_a_connection_that_dies_are_not_sent_again_in_silence);
    tcase_add_test(http2, many_orders_on_a_connection_that_dies_are_lost_when_there_is_no_other);
    tcase_add_test(http2, a_refused_order_is_sent_again_and_says_so);
    tcase_add_test(http2, an_order_that_is_refused_again_and_again_is_lost_after_a_few);
    tcase_add_test(http2, a_peer_that_goes_away_answers_what_it_took_and_the_rest_says_that_it_was_sent_again);
    tcase_add_test(http2, a_peer_that_wants_an_older_version_gets_it_and_the_call_says_so);
    tcase_add_test(http2, a_refusal_that_came_too_late_does_not_make_the_next_order_go_twice_in_silence);
    tcase_add_test(http2, half_an_answer_over_http2_is_none);
    tcase_add_test(http2, half_an_answer_of_untold_length_is_none_or_no_more_than_came);
    tcase_add_test(http2, orders_that_fail_or_are_given_up_leave_those_beside_them_alone);
    tcase_add_test(http2, an_idle_connection_of_http2_that_died_is_replaced);
    tcase_add_test(http2, closing_with_orders_on_their_way_over_http2_ends_them);
    suite_add_tcase(suite, http2);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
