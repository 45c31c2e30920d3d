/* The issuer is called through the internet. No machine in between may read an order for a card or answer it: a peer
 * that cannot prove its identity gets no byte of the order. */
#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/http_client/client_certificate.h"
#include "tests/unit/http_caller.h"
#include "tests/unit/http_peer.h"
#include "tests/support/stuck.h"
#include "tests/support/suite.h"

#define SECRET "never-shown"

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
    open_client(trusted);
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
    ck_assert_msg(call.result == HTTP_NOT_SENT, "result %d, status %d, %s", (int)call.result, call.status, call.error);
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
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    http_call_done(&call);
}

TEST(a_peer_that_the_named_authority_vouches_for_is_answered)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1,DNS:localhost", DAY_S, &authority, &authority);
    expect_answered("127.0.0.1");
    expect_answered("localhost");
}

TEST(a_delete_is_one_over_tls_too)
{
    struct http_call call;
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    prepare(&call, "DELETE", url_of("127.0.0.1", "/ok"));
    run(&call);
    ck_assert_int_eq(call.result, HTTP_ANSWERED);
    ck_assert_ptr_eq(strstr(peer.last_request, "DELETE /ok HTTP/1.1\r\n"), peer.last_request);
    make(&call, "GET", url_of("127.0.0.1", "/ok"));
    run(&call);
    ck_assert_ptr_eq(strstr(peer.last_request, "GET /ok HTTP/1.1\r\n"), peer.last_request);
    http_call_done(&call);
}

/* Each call on a connection of its own. */
static int resumed_after(int calls)
{
    for (int i = 0; i < calls; i++) {
        struct http_call call;
        int before = peer.resumed;
        prepare(&call, "GET", url_of("127.0.0.1", "/ok-then-close"));
        run(&call);
        ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
        ck_assert_int_eq(call.handshake, peer.resumed > before ? HTTP_HANDSHAKE_RESUMED : HTTP_HANDSHAKE_FULL);
        ck_assert_int_gt(call.certificate_ends_s, clock_wall_us() / 1000000);
        http_call_done(&call);
        end_idle(HTTP_PEER_DROPS, true);
    }
    return peer.resumed;
}

/* A short handshake costs half of the CPU of a whole one. It does not look at the peer's certificate again. */
TEST(a_session_is_taken_up_until_authorities_change_or_the_certificate_ends)
{
    static const enum http_peer_kind kinds[] = {HTTP_PEER_TLS, HTTP_PEER_TLS_1_2};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        set_up_pair(kinds[i], "IP:127.0.0.1", DAY_S, &authority, &authority);
        ck_assert_int_eq(resumed_after(3), 2);
        trust(&authority); /* read anew, though they are the same */
        ck_assert_int_eq(resumed_after(1), 2);
        ck_assert_int_eq(resumed_after(1), 3);
        clock_advance((DAY_S + 1) * INT64_C(1000000));
        struct http_call call;
        prepare(&call, "GET", url_of("127.0.0.1", "/ok"));
        run(&call); /* OpenSSL has a clock of its own */
        ck_assert_int_eq(call.handshake, HTTP_HANDSHAKE_FULL);
        http_call_done(&call);
        ck_assert_int_eq(peer.resumed, 3);
        if (i + 1 < ARRAY_SIZE(kinds)) {
            close_client();
            http_peer_stop();
        }
    }
}

/* ---- revocation ---- */

static void expect_refused(const char *why)
{
    struct http_call call;
    prepare(&call, "GET", url_of("127.0.0.1", "/ok"));
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    ck_assert_msg(strstr(call.error, why), "%s", call.error);
    ck_assert_int_eq(peer.requests, 0);
    http_call_done(&call);
}

/* Trusts `authority`, with a CRL of `signer` behind it. */
static void trust_with_crl(const struct certificate *signer, const struct certificate *revoked, long ends_s)
{
    char path[64];
    int fd = certificate_file(&authority, path, sizeof(path));
    certificate_add_crl(fd, signer, revoked, ends_s);
    trust_file(fd, path);
}

TEST(a_crl_in_the_file_of_authorities_is_asked)
{
    struct certificate certificate;
    certificate_make(&certificate, &authority, "IP:127.0.0.1", DAY_S);
    http_peer_start(HTTP_PEER_TLS, &certificate);
    open_client(&authority);
    trust_with_crl(&authority, &certificate, DAY_S);
    expect_refused("certificate revoked");
    trust_with_crl(&authority, NULL, -60);
    expect_refused("CRL has expired");
    certificate_done(&others_authority);
    certificate_make_authority(&others_authority, "another authority");
    trust_with_crl(&others_authority, NULL, DAY_S); /* whether it was revoked, nobody says */
    expect_refused("unable to get certificate CRL");
    trust_with_crl(&authority, &others_authority, DAY_S); /* another certificate */
    expect_answered("127.0.0.1");
    certificate_done(&certificate);
}

static void expect_of_chain(const struct certificate *below, bool is_in_file, const struct certificate *revoked,
                            const char *why)
{
    char path[64];
    int fd = certificate_file(&authority, path, sizeof(path));
    if (is_in_file)
        certificate_add(fd, below);
    certificate_add_crl(fd, below, NULL, DAY_S);
    if (revoked)
        certificate_add_crl(fd, &authority, revoked, DAY_S);
    trust_file(fd, path);
    if (why)
        expect_refused(why);
    else
        expect_answered("127.0.0.1");
}

TEST(an_authority_above_the_signer_may_have_a_crl)
{
    struct certificate certificate, below;
    certificate_make_below(&below, &authority, "below");
    certificate_make(&certificate, &below, "IP:127.0.0.1", DAY_S);
    http_peer_start(HTTP_PEER_TLS, &certificate);
    ck_assert_int_eq(SSL_CTX_add1_chain_cert(peer.tls, below.x509), 1);
    open_client(&authority);
    expect_of_chain(&below, false, &below, "certificate revoked");
    expect_of_chain(&below, false, &certificate, NULL);
    expect_of_chain(&below, false, NULL, NULL);
    expect_of_chain(&below, true, &below, NULL); /* it ends the chain */
    certificate_done(&certificate);
    certificate_done(&below);
}

TEST(no_session_is_taken_up_when_a_crl_has_ended)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    trust_with_crl(&authority, NULL, DAY_S / 2);
    ck_assert_int_eq(resumed_after(2), 1);
    clock_advance((DAY_S / 2 + 1) * INT64_C(1000000));
    ck_assert_int_eq(resumed_after(1), 1); /* OpenSSL has a clock of its own: it is answered */
}

TEST(a_crl_that_has_ended_is_doubted)
{
    char path[64];
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    for (int has_ended = 0; has_ended < 2; has_ended++) {
        struct authorities *authorities = NULL;
        int fd = certificate_file(&authority, path, sizeof(path));
        certificate_add_crl(fd, &authority, NULL, DAY_S);
        certificate_add_crl(fd, &authority, NULL, has_ended ? -60 : DAY_S);
        ck_assert(authorities_load(path, &authorities, NULL));
        ck_assert((authorities_doubt(authorities) != NULL) == has_ended);
        authorities_release(authorities);
        close(fd);
    }
}

TEST(a_certificate_for_another_name_sends_nothing)
{
    set_up_pair(HTTP_PEER_TLS,
                "IP:127.0.0.2,DNS:issuer.example,DNS:127.0.0.1,DNS:*,DNS:l*calhost,DNS:localhost.example,"
                "DNS:*.issuer.localhost,DNS:ab*.core.localhost",
                DAY_S, &authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
    expect_not_sent("localhost", 10000);
    expect_not_sent("a.b.issuer.localhost", 10000); /* a wildcard is one label */
    expect_not_sent("abc.core.localhost", 10000);   /* and a whole one */
    expect_not_sent("issuer.localhost", 10000);
    expect_answered("a.issuer.localhost");
    expect_answered("A.Issuer.Localhost");
}

/* OpenSSL falls back to the common name unless it is told not to (RFC 9110, 4.3.4). A party that gets an
 * authority to sign a name of a person or a machine would be the issuer. */
TEST(a_certificate_that_names_the_host_as_its_common_name_only_sends_nothing)
{
    static const char *const others[] = {NULL, "email:localhost@example.com", "URI:https://localhost/"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        struct certificate certificate;
        certificate_make_with(&certificate, &authority, "localhost", others[i], DAY_S);
        http_peer_start(HTTP_PEER_TLS, &certificate);
        certificate_done(&certificate);
        open_client(&authority);
        expect_not_sent("localhost", 10000);
        if (i + 1 < ARRAY_SIZE(others)) {
            close_client();
            http_peer_stop();
        }
    }
}

/* The handshake of TLS agrees on a protocol. A peer that chooses one that was not offered would read
 * something else than HTTP/1.1. */
TEST(a_peer_that_chooses_a_protocol_that_was_not_offered_is_sent_nothing)
{
    set_up_pair(HTTP_PEER_FORCING, "IP:127.0.0.1", DAY_S, &authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
}

TEST(an_unknown_authority_sends_nothing)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &others_authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
}

TEST(without_a_file_an_own_authority_is_unknown)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, NULL);
    expect_not_sent("127.0.0.1", 10000);
}

TEST(an_expired_certificate_sends_nothing)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", -60, &authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
}

TEST(a_peer_in_clear_text_sends_nothing)
{
    set_up_pair(HTTP_PEER_PROTESTING, "IP:127.0.0.1", DAY_S, &authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
}

TEST(a_handshake_that_is_never_answered_sends_nothing)
{
    set_up_pair(HTTP_PEER_CLEAR, "IP:127.0.0.1", DAY_S, &authority, &authority);
    expect_not_sent("127.0.0.1", 300);
}

TEST(a_peer_that_knows_old_versions_only_sends_nothing)
{
    set_up_pair(HTTP_PEER_OLD_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    expect_not_sent("127.0.0.1", 10000);
}

TEST(a_file_of_authorities_that_is_gone_or_unreadable_is_none)
{
    static const char *const files[] = {"/nonexistent/ca.pem", "/dev/null", "/", "/proc/self/cmdline"};
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct authorities *authorities = NULL;
        ck_assert_msg(!authorities_load(files[i], &authorities, NULL), "%s", files[i]);
        ck_assert_ptr_null(authorities);
    }
}

TEST(a_machine_that_slept_during_the_handshake_sends_nothing)
{
    struct http_call call;
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    prepare_order(&call);
    call.timeout_ms = 60000;
    start(&call);
    clock_advance(DAY_S * INT64_C(1000000)); /* libcurl's timer does not notice */
    while (ended == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_msg(call.result == HTTP_NOT_SENT, "result %d: %s", (int)call.result, call.error);
    ck_assert_str_eq(call.error, "no connection in time");
    ck_assert_int_eq(peer.requests, 0);
    http_call_done(&call);
    clock_release();
    expect_answered("127.0.0.1");
}

TEST(authorities_are_changed_while_the_client_works)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &others_authority);
    expect_not_sent("127.0.0.1", 10000);
    trust(&authority);
    expect_answered("127.0.0.1");
    expect_answered("127.0.0.1");
    trust(&others_authority); /* also for a connection that is open */
    for (int i = 0; peer.open > 0 && i < stuck_after_ms(); i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
    ck_assert_int_eq(peer.open, 0);
    struct http_call call;
    prepare(&call, "GET", url_of("127.0.0.1", "/ok"));
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    http_call_done(&call);
    trust(&authority);
    prepare(&call, "GET", url_of("127.0.0.1", "/ok"));
    start(&call);
    trust(&others_authority); /* a call on its way keeps those that it began with */
    int before = ended;
    while (ended == before)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    make(&call, "GET", url_of("127.0.0.1", "/ok")); /* its connection is not for the next one */
    run(&call);
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    http_call_done(&call);
}

static size_t allocated_bytes(void)
{
    struct mallinfo2 all = mallinfo2(); /* of this thread's arena; the peer has another thread */
    return all.uordblks + all.hblkhd;
}

/* A system's bundle is 220 KB, and 2 MB when it is parsed. A worker with a connection for each of 256 calls held 290
 * MB, and copied the bundle at each call. */
TEST(connections_share_the_authorities)
{
    enum { CALLS = 16, BUNDLE_BYTES = 512 * 1024 };
    static char filler[BUNDLE_BYTES];
    static struct http_call calls[CALLS];
    char path[64];
    struct authorities *authorities = NULL;
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &others_authority);
    memset(filler, '\n', sizeof(filler));
    int fd = certificate_file(&authority, path, sizeof(path));
    ck_assert_int_ge(lseek(fd, 0, SEEK_END), 0);
    ck_assert_int_eq(write(fd, filler, sizeof(filler)), sizeof(filler));
    ck_assert(authorities_load(path, &authorities, NULL));
    close(fd);
    http_client_trust(client, authorities);
    authorities_release(authorities);
    expect_answered("127.0.0.1");
    size_t before = allocated_bytes();
    for (int i = 0; i < CALLS; i++) {
        prepare(&calls[i], "GET", url_of("127.0.0.1", "/hang"));
        start(&calls[i]);
    }
    while (peer.requests < 1 + CALLS)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_uint_lt(allocated_bytes() - before, CALLS * BUNDLE_BYTES / 2);
    close_client();
    for (int i = 0; i < CALLS; i++)
        http_call_done(&calls[i]);
    open_client(NULL);
}

TEST(an_answer_that_was_cut_on_its_way_is_none)
{
    static const char *const paths[] = {"/partial-drop", "/partial-chunk-drop", "/partial-header-drop", "/drop"};
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct http_call call;
        prepare(&call, "GET", url_of("127.0.0.1", paths[i]));
        run(&call);
        ck_assert_msg(call.result == HTTP_LOST, "%s: %d", paths[i], (int)call.result);
        http_call_done(&call);
    }
}

/* ---- who we are ---- */

static struct certificate own_authority;

static struct client_certificate *make_own(const char *name)
{
    struct certificate made;
    struct client_certificate *own = NULL;
    struct err err = {0};
    char cert_path[64], key_path[64];
    certificate_make_with(&made, &own_authority, name, NULL, DAY_S);
    int cert = certificate_file(&made, cert_path, sizeof(cert_path));
    int key = certificate_key_file(&made, NULL, key_path, sizeof(key_path));
    ck_assert_msg(client_certificate_load(cert_path, key_path, &own, &err), "%s", err.message);
    close(cert); /* the files may be gone afterwards */
    close(key);
    certificate_done(&made);
    return own;
}

static void set_up_asking(enum http_peer_kind kind)
{
    certificate_make_authority(&own_authority, "own authority");
    http_peer_require_certificate(&own_authority);
    set_up_pair(kind, "IP:127.0.0.1", DAY_S, &authority, &authority);
    http_peer_require_certificate(NULL);
}

/* The call's certificate is given back right after the start, as a reload does. */
static enum http_result result_with(const char *name)
{
    struct http_call call;
    struct client_certificate *own = name ? make_own(name) : NULL;
    prepare_order(&call);
    call.certificate = own;
    start(&call);
    client_certificate_release(own);
    for (int before = ended; ended == before;)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_ptr_null(strstr(call.error, SECRET));
    ck_assert(!call.was_resent);
    enum http_result result = call.result;
    http_call_done(&call);
    return result;
}

TEST(a_peer_that_requires_a_certificate_gets_that_of_the_call)
{
    static const char *const names[] = {"first", "second", "first"};
    set_up_asking(HTTP_PEER_TLS);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        ck_assert_int_eq(result_with(names[i]), HTTP_ANSWERED);
        ck_assert_str_eq(peer.client, names[i]); /* not the one of a connection, or a session, from before */
    }
    ck_assert_int_eq(peer.accepted, 3);
    certificate_done(&own_authority);
}

TEST(calls_with_the_same_certificate_share_a_connection)
{
    struct http_call call;
    struct client_certificate *own;
    set_up_asking(HTTP_PEER_TLS);
    own = make_own("worker");
    prepare_order(&call);
    for (int i = 0; i < 3; i++) {
        make(&call, "GET", url_of("127.0.0.1", "/ok"));
        call.certificate = own;
        run(&call);
        ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    }
    ck_assert_int_eq(peer.accepted, 1);
    http_call_done(&call);
    client_certificate_release(own);
    certificate_done(&own_authority);
}

/* With TLS 1.3 the client is done with its handshake before the peer has looked at the certificate: the refusal comes
 * when the request may have been read. */
TEST(a_refusal_of_our_certificate_over_tls_1_3_is_not_taken_for_not_sent)
{
    int lost = 0;
    set_up_asking(HTTP_PEER_TLS);
    for (int i = 0; i < 20 && lost == 0; i++) {
        enum http_result result = result_with(NULL);
        ck_assert_int_ne(result, HTTP_ANSWERED); /* not sent: the peer was faster than the first byte */
        lost += result == HTTP_LOST;
    }
    ck_assert_int_gt(lost, 0);
    ck_assert_int_eq(peer.requests, 0);
    certificate_done(&own_authority);
}

TEST(a_refusal_of_our_certificate_over_tls_1_2_comes_before_the_request)
{
    set_up_asking(HTTP_PEER_TLS_1_2);
    ck_assert_int_eq(result_with(NULL), HTTP_NOT_SENT);
    ck_assert_int_eq(peer.requests, 0);
    ck_assert_int_eq(result_with("worker"), HTTP_ANSWERED);
    ck_assert_str_eq(peer.client, "worker");
    certificate_done(&own_authority);
}

/* ---- peers that send without end ---- */

static int iterations;

/* The peer sends first, as much as the kernel takes. */
static void on_iteration(uv_prepare_t *prepare)
{
    (void)prepare;
    iterations++;
    for (int before = 0, i = 0; before != peer.pieces && i < 100; i++) {
        before = peer.pieces;
        uv_sleep(3);
    }
}

/* Runs a call to a peer that floods; the loop's iterations meanwhile are counted. */
static void expect_flood_ends(const char *path)
{
    struct http_call call;
    uv_prepare_t prepare_handle;
    prepare(&call, "GET", url_of("127.0.0.1", path));
    call.timeout_ms = 600000; /* the size ends it, not the time */
    uv_prepare_init(&loop, &prepare_handle);
    uv_prepare_start(&prepare_handle, on_iteration);
    iterations = 0;
    run(&call);
    uv_close((uv_handle_t *)&prepare_handle, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_msg(call.result == HTTP_LOST, "%s: result %d", path, (int)call.result);
    ck_assert_msg(strstr(call.error, "too large") || strstr(call.error, "without end"), "%s: %s", path, call.error);
    ck_assert_uint_eq(call.answer.length, 0);
    http_call_done(&call);
}

/* A peer sends what no callback of ours sees, as fast as it can. While OpenSSL reads that, nothing else of
 * the worker would happen: no deadline, no lease, no other call. */
TEST(a_peer_that_sends_without_end_is_given_up_by_size)
{
    static const char *const paths[] = {
        "/flood-headers",          "/flood-interim", "/flood-chunks",   "/flood-extension",
        "/flood-quoted-extension", "/flood-zeros",   "/flood-trailers", "/flood-bytes"};
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        expect_flood_ends(paths[i]);
    expect_answered("127.0.0.1");
}

TEST(over_tls_1_2_a_peer_that_sends_without_end_is_given_up_by_size)
{
    static const char *const paths[] = {"/flood-headers", "/flood-extension", "/flood-bytes"};
    set_up_pair(HTTP_PEER_TLS_1_2, "IP:127.0.0.1", DAY_S, &authority, &authority);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        expect_flood_ends(paths[i]);
    expect_answered("127.0.0.1");
}

TEST(a_peer_that_says_nothing_without_end_is_given_up_by_size_while_the_loop_goes_on)
{
    static const char *const paths[] = {"/flood-keys", "/flood-all-keys", "/flood-tickets"};
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        expect_flood_ends(paths[i]);
        /* What one call may take is the bytes of more iterations than this. */
        ck_assert_msg(iterations >= 8, "%s: %d iterations", paths[i], iterations);
    }
    expect_answered("127.0.0.1");
}

/* Large answers are not floods, however many there were on a connection before. */
TEST(the_bytes_of_each_call_are_counted_apart)
{
    set_up_pair(HTTP_PEER_TLS, "IP:127.0.0.1", DAY_S, &authority, &authority);
    for (int i = 0; i < 300; i++) {
        struct http_call call;
        prepare(&call, "GET", url_of("127.0.0.1", "/largest"));
        run(&call);
        ck_assert_msg(call.result == HTTP_ANSWERED, "%d: %s", i, call.error);
        ck_assert_uint_eq(call.answer.length, 4096);
        http_call_done(&call);
    }
    ck_assert_int_eq(peer.accepted, 1);
}

TESTS_BETWEEN(http_client_tls, set_up_authorities, tear_down_pair)
