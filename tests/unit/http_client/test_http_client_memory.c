/* Issuers answer with card numbers. A number that stays in memory when its call is over is in the next core dump, and
 * in the hands of whoever reads this process by a bug. So when a call has ended, however it ended, and its answer was
 * forgotten, no number may be found anywhere in the process: over TLS and in clear text, with the connection open or
 * closed. The same holds for what was sent: our credential, and the body. The peer is a process of its own. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/http_caller.h"
#include "tests/unit/process_memory.h"
#include "tests/support/suite.h"

#define PARALLEL 200
#define SECRET "credential-0123456789abcdef"

static pid_t child;

static _Noreturn void be_peer(enum http_peer_kind kind, const struct certificate *certificate, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    http_peer_start(kind, kind == HTTP_PEER_CLEAR ? NULL : certificate);
    if (write(out, &peer.port, sizeof(peer.port)) != sizeof(peer.port))
        _exit(1);
    for (;;)
        pause();
}

/* As set_up(), with the peer in another process. */
static void set_up_process(enum http_peer_kind kind)
{
    struct certificate certificate;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    certificate_make_authority(&authority, "test authority");
    certificate_make(&certificate, &authority, "IP:127.0.0.1", DAY_S);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        be_peer(kind, &certificate, ends[1]);
    certificate_done(&certificate);
    memset(&peer, 0, sizeof(peer));
    peer.kind = kind;
    ck_assert_int_eq(read(ends[0], &peer.port, sizeof(peer.port)), sizeof(peer.port));
    close(ends[0]);
    close(ends[1]);
    open_client(&authority);
}

static void tear_down_process(void)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    certificate_done(&authority);
}

static const char *url_of(const char *path)
{
    static char url[128];
    snprintf(url, sizeof(url), "%s://127.0.0.1:%d%s", peer.kind == HTTP_PEER_CLEAR ? "http" : "https", peer.port, path);
    return url;
}

/* ---- what is left ---- */

static bool is_text_in(const char *bytes, const char *end, const void *text)
{
    return memmem(bytes, (size_t)(end - bytes), text, strlen(text)) != NULL;
}

/* Both texts are of the program itself, which nobody can write to. */
static bool number_is_left(void)
{
    return process_memory_has(is_text_in, HTTP_PEER_CARD_NUMBER);
}

static bool secret_is_left(void)
{
    return process_memory_has(is_text_in, SECRET);
}

static void run_to_end(struct http_call *call, const char *path)
{
    http_call_init(call, ANSWER_MAX);
    make(call, "POST", url_of(path));
    call->secret_header = "Authorization: Bearer " SECRET;
    ck_assert(buf_put_text(&call->body, "{\"memo\":\"" SECRET "\"}"));
    call->timeout_ms = strcmp(path, "/card-hang") == 0 ? 300 : 10000;
    run(call);
}

static const char *const paths[] = {
    "/card",         "/card-then-close", "/card-until-close", "/card-error",   "/card-chunked",
    "/card-cut",     "/card-drop",       "/card-reset",       "/card-hang",    "/card-twice",
    "/card-garbage", "/card-header",     "/card-half-header", "/card-trailer", "/cards-largest",
    "/cards-large",
};

static void expect_no_number(enum http_peer_kind kind)
{
    if (!PROCESS_MEMORY_IS_SEARCHABLE)
        return;
    struct http_call call;
    set_up_process(kind);
    ck_assert_msg(!number_is_left(), "before");
    run_to_end(&call, "/card");
    ck_assert_msg(call.result == HTTP_ANSWERED, "%s", call.error);
    ck_assert_msg(number_is_left(), "it can be found where it is");
    http_call_done(&call);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        run_to_end(&call, paths[i]);
        http_call_forget(&call);
        ck_assert_msg(!number_is_left(), "%s: ended with %d %d %s", paths[i], (int)call.result, call.status,
                      call.error);
        ck_assert_msg(!secret_is_left(), "%s: what was sent", paths[i]);
        http_call_done(&call);
    }
    close_client();
    ck_assert_msg(!number_is_left(), "closed");
    tear_down_process();
}

TEST(no_number_is_left_when_its_call_over_tls_is_over)
{
    expect_no_number(HTTP_PEER_TLS);
}

TEST(no_number_is_left_when_its_call_over_older_tls_is_over)
{
    expect_no_number(HTTP_PEER_TLS_1_2);
}

TEST(no_number_is_left_when_its_call_in_clear_text_is_over)
{
    expect_no_number(HTTP_PEER_CLEAR);
}

/* Story: many calls at once, whose connections stay open: OpenSSL frees the buffer of a connection that is idle. */
static void expect_no_number_of_many(enum http_peer_kind kind)
{
    static struct http_call calls[PARALLEL];
    if (!PROCESS_MEMORY_IS_SEARCHABLE)
        return;
    set_up_process(kind);
    for (int round = 0; round < 2; round++) {
        int before = ended;
        for (int i = 0; i < PARALLEL; i++) {
            http_call_init(&calls[i], ANSWER_MAX);
            make(&calls[i], "POST", url_of(i % 2 ? "/card" : "/cards-largest"));
            calls[i].timeout_ms = 60000;
            calls[i].on_done = on_done;
            start(&calls[i]);
        }
        while (ended < before + PARALLEL)
            uv_run(&loop, UV_RUN_ONCE);
        for (int i = 0; i < PARALLEL; i++) {
            ck_assert_msg(calls[i].result == HTTP_ANSWERED, "%s", calls[i].error);
            http_call_forget(&calls[i]);
        }
        ck_assert_msg(!number_is_left(), "in round %d", round);
        for (int i = 0; i < PARALLEL; i++)
            http_call_done(&calls[i]);
    }
    close_client();
    tear_down_process();
}

TEST(no_number_of_many_calls_over_tls_is_left)
{
    expect_no_number_of_many(HTTP_PEER_TLS);
}

TEST(no_number_of_many_calls_in_clear_text_is_left)
{
    expect_no_number_of_many(HTTP_PEER_CLEAR);
}

SUITE(http_client_memory)
{
    TCase *tests = tcase_create("numbers");
    tcase_set_tags(tests, "no_valgrind"); /* it reads all memory, also what is not allocated */
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}
