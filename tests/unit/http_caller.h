/* The client's side of the tests of outgoing HTTP: one loop, one client, calls to the peer. */
#ifndef ISSUING_TEST_HTTP_CALLER_H
#define ISSUING_TEST_HTTP_CALLER_H

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_client/http_client.h"
#include "tests/unit/certificate.h"
#include "tests/unit/http_peer.h"

#define ANSWER_MAX 4096
#define DAY_S 86400

static struct certificate authority;
static uv_loop_t loop;
static struct http_client *client;
static int ended, closed;
static bool inside_start; /* on_done must never see it */

/* The file may be gone afterwards. */
static inline void trust_file(int fd, const char *path)
{
    struct authorities *authorities = NULL;
    struct err err = {0};
    ck_assert_msg(authorities_load(path, &authorities, &err), "%s", err.message);
    http_client_trust(client, authorities);
    authorities_release(authorities);
    close(fd);
}

static inline void trust(const struct certificate *certificate)
{
    char path[64];
    int fd = certificate_file(certificate, path, sizeof(path));
    trust_file(fd, path);
}

/* trusted NULL = the system's authorities. */
static inline void open_client(const struct certificate *trusted)
{
    struct http_client_options options = {.connections_max = 64, .answer_max = ANSWER_MAX};
    /* 500 parallel calls are 1000 descriptors, in one process. */
    struct rlimit files = {.rlim_cur = 0};
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 2048 && files.rlim_max >= 2048) {
        files.rlim_cur = 2048;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert(http_client_open(&loop, &options, &client, NULL));
    if (trusted)
        trust(trusted);
    ended = closed = 0;
}

static inline void on_closed(void *context)
{
    ck_assert_ptr_eq(context, &closed);
    closed++;
    client = NULL;
}

static inline void close_client(void)
{
    if (client) {
        http_client_close(client, on_closed, &closed);
        ck_assert_int_eq(closed, 0);
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    ck_assert_int_eq(closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    clock_release();
}

/* A peer whose certificate `authority` has signed, and a client that trusts it. */
static inline void set_up(enum http_peer_kind kind)
{
    struct certificate certificate;
    certificate_make_authority(&authority, "test authority");
    certificate_make(&certificate, &authority, "IP:127.0.0.1", DAY_S);
    http_peer_start(kind, kind == HTTP_PEER_CLEAR || kind == HTTP_PEER_PROTESTING ? NULL : &certificate);
    certificate_done(&certificate);
    open_client(&authority);
}

static inline void tear_down(void)
{
    close_client();
    http_peer_stop();
    certificate_done(&authority);
}

static inline void on_done(struct http_call *call)
{
    ck_assert(!inside_start);
    ck_assert_ptr_null(call->client);
    ended++;
}

static inline void start(struct http_call *call)
{
    inside_start = true;
    http_client_start(client, call);
    inside_start = false;
}

static inline void run(struct http_call *call)
{
    int before = ended;
    call->on_done = on_done;
    start(call);
    while (ended == before)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(ended, before + 1);
}

static inline void on_rest(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
}

/* Ends what is open at the peer, with or without the chance for the client to notice. */
static inline void end_idle(enum http_peer_end how, bool is_noticed)
{
    peer.release = (int)how;
    while (peer.open > 0)
        uv_sleep(1);
    if (!is_noticed)
        return;
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_rest, 5, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
}

static inline void make(struct http_call *call, const char *method, const char *url)
{
    http_call_make(call, method, url);
    ck_assert(http_call_is_made(call));
}

static inline void prepare(struct http_call *call, const char *method, const char *url)
{
    http_call_init(call, ANSWER_MAX);
    make(call, method, url);
    call->timeout_ms = 10000;
    call->on_done = on_done;
}

#endif
