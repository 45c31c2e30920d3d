/* What the tests of pooled connections expect of one call, and how they leave idle connections behind. */
#ifndef ISSUING_TEST_HTTP_POOL_EXPECTING_H
#define ISSUING_TEST_HTTP_POOL_EXPECTING_H

#include <check.h>
#include <string.h>

#include "tests/unit/scripted_peer.h"

#define INPUT_SIZE (16 * 1024) /* what the client reads at a time */

static char text[SCRIPTED_REQUEST_SIZE];

static inline void expect_answer(struct scripted_call *call, const char *body)
{
    ck_assert_msg(call->call.result == HTTP_ANSWERED, "%s", call->call.error);
    ck_assert_int_eq(call->ends, 1);
    ck_assert_int_eq(call->call.status, 200);
    ck_assert_uint_eq(call->call.answer.length, strlen(body));
    ck_assert_mem_eq(call->call.answer.bytes ? call->call.answer.bytes : "", body, strlen(body));
    http_call_done(&call->call);
}

static inline void expect_result(struct scripted_call *call, enum http_result result)
{
    ck_assert_msg(call->call.result == result, "result %d: %s", (int)call->call.result, call->call.error);
    ck_assert_int_eq(call->ends, 1);
    if (result != HTTP_ANSWERED) {
        ck_assert_uint_eq(call->call.answer.length, 0);
        ck_assert_int_eq(call->call.status, 0);
        ck_assert_str_ne(call->call.error, "");
    }
    http_call_done(&call->call);
}

/* Leaves one idle connection; returns the peer's end of it. */
static inline int pool_one_connection(void)
{
    struct scripted_call call;
    scripted_call(&call, "/first");
    int fd = scripted_accept();
    scripted_receive_any(fd);
    scripted_answer(fd, "first");
    scripted_wait(&call);
    expect_answer(&call, "first");
    return fd;
}

/* Leaves `count` idle connections. */
static inline void keep(int *fds, int count)
{
    static struct scripted_call calls[100];
    for (int i = 0; i < count; i++) {
        scripted_call(&calls[i], "/first");
        fds[i] = scripted_accept();
        scripted_receive_any(fds[i]);
    }
    for (int i = 0; i < count; i++) {
        scripted_answer(fds[i], "first");
        scripted_wait(&calls[i]);
        expect_answer(&calls[i], "first");
    }
}

/* A call whose request is heard on a new connection. */
static inline int call_and_receive(struct scripted_call *call, const char *path)
{
    scripted_call(call, path);
    int fd = scripted_accept();
    scripted_receive_any(fd);
    return fd;
}

/* Answers the call on a new connection. */
static inline void answer_on_new_connection(struct scripted_call *call, bool was_resent)
{
    int fd = scripted_accept();
    scripted_receive(fd, text);
    scripted_answer(fd, "anew");
    scripted_wait(call);
    ck_assert(call->call.was_resent == was_resent);
    expect_answer(call, "anew");
    scripted_close(fd);
    scripted_settle();
}

#endif
