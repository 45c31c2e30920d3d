/* What calls do with memory. Tokens and card numbers go through buffers of the client: when a call is
 * over and its answer forgotten, none of them may be found anywhere in the process. And every allocation may fail: the
 * call ends once all the same, with a true result, and nothing leaks. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/http_client/http_client.h"
#include "tests/unit/fault_injection.h"
#include "tests/unit/process_memory.h"
#include "tests/unit/scripted_peer.h"
#include "tests/support/suite.h"

static char text[SCRIPTED_REQUEST_SIZE];

/* ---- what is left of secrets ---- */

#define SECRET_LENGTH 40
#define MASK 0x55

enum secret { OF_HEADER, OF_LINE, OF_BODY, OF_ANSWER, SECRETS };

static char masked[SECRETS][SECRET_LENGTH]; /* never written down otherwise but where it is used */
static char secret_header[128], scratch[8192];

static void make_secrets(void)
{
    unsigned int seed = 4711;
    for (int i = 0; i < SECRETS; i++)
        for (int j = 0; j < SECRET_LENGTH; j++)
            masked[i][j] = (char)(('a' + rand_r(&seed) % 26) ^ MASK);
}

static void put_secret(char *out, enum secret secret)
{
    size_t length = strlen(out);
    for (int i = 0; i < SECRET_LENGTH; i++)
        out[length++] = masked[secret][i] ^ MASK;
    out[length] = '\0';
}

static bool is_in(const char *bytes, const char *end, const void *context)
{
    const char *wanted = context;
    for (; (bytes = memchr(bytes, wanted[0] ^ MASK, (size_t)(end - bytes))); bytes++) {
        int same = 1;
        while (same < SECRET_LENGTH && bytes + same < end && (bytes[same] ^ MASK) == wanted[same])
            same++;
        if (same >= SECRET_LENGTH / 2) /* half a token is too much */
            return true;
    }
    return false;
}

static bool is_left(enum secret secret)
{
    return process_memory_has(is_in, masked[secret]);
}

static void expect_nothing_left(const char *when)
{
    static const char *const names[] = {"header", "line", "body", "answer"};
    for (int i = 0; i < SECRETS; i++)
        ck_assert_msg(!is_left((enum secret)i), "%s: the secret of the %s is left", when, names[i]);
}

static void start_secret_call(struct scripted_call *call)
{
    scripted_prepare(call, "POST", "/secret");
    scratch[0] = '\0';
    put_secret(scratch, OF_LINE);
    http_call_header(&call->call, "X-Line", scratch);
    scratch[0] = '\0';
    put_secret(scratch, OF_BODY);
    for (int i = 0; i < 20; i++)
        buf_put_text(&call->call.body, scratch); /* it grows */
    strcpy(secret_header, "Authorization: Bearer ");
    put_secret(secret_header, OF_HEADER);
    call->call.secret_header = secret_header;
    explicit_bzero(scratch, sizeof(scratch));
    scripted_start(call);
}

/* The answer, or so much of it. */
static void say_secret(int fd, size_t most)
{
    strcpy(scratch, "HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n");
    for (int i = 0; i < 4000 / SECRET_LENGTH; i++)
        put_secret(scratch, OF_ANSWER);
    size_t length = strlen(scratch);
    for (size_t at = 0; at < length && at < most; at += 500) {
        scripted_send_bytes(fd, scratch + at, length - at < 500 ? length - at : 500);
        scripted_run_once();
    }
    explicit_bzero(scratch, sizeof(scratch));
}

static ssize_t send_hundred(int fd, const void *bytes, size_t length, int flags)
{
    static int count;
    if (count++ % 2) {
        errno = EAGAIN;
        return -1;
    }
    return real_send(fd, bytes, length < 100 ? length : 100, flags);
}

static void end_secret_call(struct scripted_call *call, enum http_result result, const char *when)
{
    scripted_wait(call);
    ck_assert_int_eq(call->call.result, result);
    if (result == HTTP_ANSWERED) {
        ck_assert_uint_eq(call->call.answer.length, 4000);
        ck_assert(is_left(OF_ANSWER)); /* it can be found where it is */
        http_call_forget(&call->call);
    }
    explicit_bzero(secret_header, sizeof(secret_header));
    expect_nothing_left(when);
    http_call_done(&call->call);
}

TEST(no_secret_is_left_when_its_call_is_over)
{
    if (!PROCESS_MEMORY_IS_SEARCHABLE)
        return;
    make_secrets();
    expect_nothing_left("before");
    struct scripted_call call;
    start_secret_call(&call);
    ck_assert(is_left(OF_HEADER) && is_left(OF_LINE) && is_left(OF_BODY));
    int fd = scripted_accept();
    scripted_receive_any(fd);
    say_secret(fd, SIZE_MAX);
    end_secret_call(&call, HTTP_ANSWERED, "answered");

    start_secret_call(&call);
    scripted_receive_any(fd);
    say_secret(fd, SIZE_MAX);
    end_secret_call(&call, HTTP_ANSWERED, "answered on a pooled connection");

    send_instead = send_hundred;
    start_secret_call(&call);
    scripted_receive_any(fd);
    send_instead = NULL;
    say_secret(fd, SIZE_MAX);
    end_secret_call(&call, HTTP_ANSWERED, "sent in pieces");

    send_instead = send_hundred;
    start_secret_call(&call);
    scripted_settle();
    send_instead = NULL;
    scripted_close(fd);
    fd = scripted_accept();
    scripted_receive_any(fd);
    say_secret(fd, SIZE_MAX);
    end_secret_call(&call, HTTP_ANSWERED, "sent again");

    send_instead = send_hundred;
    start_secret_call(&call);
    SCRIPTED_UNTIL(scripted_peek(fd, scratch) >= 200);
    say_secret(fd, SIZE_MAX);
    send_instead = NULL;
    end_secret_call(&call, HTTP_ANSWERED, "answered before all was sent");
    scripted_close(fd);

    start_secret_call(&call);
    fd = scripted_accept();
    scripted_receive_any(fd);
    say_secret(fd, 1500);
    scripted_close(fd);
    end_secret_call(&call, HTTP_LOST, "half an answer");

    scripted_stop_listening();
    start_secret_call(&call);
    end_secret_call(&call, HTTP_NOT_SENT, "refused");
    scripted_close_client();
    SCRIPTED_UNTIL(scripted.is_closed);
    expect_nothing_left("closed");
}

/* ---- allocations that fail ---- */

#define CALLS 5
#define PEERS 64

static struct scripted_call calls[CALLS];
static bool was_heard[CALLS], was_cut[CALLS];
static int fds[PEERS], fds_count;

static ssize_t send_twice(int fd, const void *bytes, size_t length, int flags)
{
    static int count;
    if (count++ % 3 == 1) {
        errno = EAGAIN;
        return -1;
    }
    return real_send(fd, bytes, length < 40 ? length : length - length / 2, flags);
}

/* The fourth call's connection dies under it, once; the third one's answer is large. */
static void answer_by_id(int fd, int id)
{
    static char answer[32768];
    if (id == 3 && !was_cut[id]) {
        was_cut[id] = true;
        shutdown(fd, SHUT_RDWR);
        return;
    }
    int width = id == 2 ? 20000 : 2;
    scripted_send_bytes(fd, answer,
                        (size_t)snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%-*d",
                                         width, width, id));
}

/* Whatever came in: who was heard of is noted, who was heard to the end is answered. */
static void serve_all(void)
{
    while (scripted_has_connection() && fds_count < PEERS)
        fds[fds_count++] = scripted_accept();
    for (int i = 0; i < fds_count; i++) {
        int id;
        if (scripted_hear(fds[i], text) == 0)
            continue;
        ck_assert_msg(sscanf(text, "POST /id/%d HTTP", &id) == 1, "%s", text);
        was_heard[id] = true;
        const char *end = strstr(text, "\r\n\r\n");
        if (!end || strlen(end + 4) < 24)
            continue;
        scripted_receive_any(fds[i]);
        answer_by_id(fds[i], id);
    }
}

static bool open_client(void)
{
    struct http_client_options options = {.connections_max = 4, .answer_max = SCRIPTED_ANSWER_MAX};
    allocations_pause(false);
    bool is_open = http_client_open(&scripted.loop, &options, &scripted.client, NULL);
    allocations_pause(true);
    if (is_open)
        scripted_trust();
    scripted.is_closed = !is_open;
    return is_open;
}

static void run_without_pause(void)
{
    allocations_pause(false);
    scripted_run_once();
    allocations_pause(true);
}

static void begin_call(int id, int64_t timeout_ms)
{
    char path[32];
    snprintf(path, sizeof(path), "/id/%d", id);
    was_heard[id] = was_cut[id] = false;
    scripted_prepare(&calls[id], "POST", path);
    calls[id].call.timeout_ms = timeout_ms;
    allocations_pause(false);
    http_client_start(scripted.client, &calls[id].call);
    allocations_pause(true);
}

static void finish_call(int id)
{
    for (int iterations = 0; calls[id].ends == 0; iterations++) {
        ck_assert_int_lt(iterations, 100000);
        run_without_pause();
        serve_all();
        if (iterations > 200)
            uv_sleep(1);
    }
}

static void expect_honest(int id, long n)
{
    struct http_call *call = &calls[id].call;
    char body[8];
    snprintf(body, sizeof(body), "%d ", id);
    ck_assert_msg(calls[id].ends == 1, "%ld: call %d ended %d times", n, id, calls[id].ends);
    if (call->result == HTTP_ANSWERED)
        ck_assert_msg(call->status == 200 && strncmp(call->answer.bytes, body, 2) == 0, "%ld: %d", n, id);
    if (call->result == HTTP_NOT_SENT)
        ck_assert_msg(!was_heard[id], "%ld: call %d was heard: %s", n, id, call->error);
    if (call->was_resent)
        ck_assert_msg(was_heard[id], "%ld: %d", n, id);
    http_call_done(call);
}

static void close_client(void)
{
    scripted_close_client();
    while (!scripted.is_closed)
        run_without_pause();
}

static void close_peers(void)
{
    while (scripted_has_connection())
        scripted_close(scripted_accept());
    for (int i = 0; i < fds_count; i++)
        scripted_close(fds[i]);
    fds_count = 0;
}

/* Returns how many allocations there were; *ret_answered, how many calls were answered, -1 = there was no client. */
static long play_without_memory(long n, long further, int *ret_answered)
{
    *ret_answered = -1;
    allocations_pause(true);
    allocations_fail_at(n, further);
    send_instead = send_twice;
    if (open_client()) {
        *ret_answered = 0;
        for (int id = 0; id < CALLS; id++) {
            begin_call(id, n > 0 ? 3000 : 20000); /* more than a busy machine takes for an answer */
            finish_call(id);
            *ret_answered += calls[id].call.result == HTTP_ANSWERED;
            expect_honest(id, n);
        }
        close_client();
    }
    send_instead = NULL;
    long count = allocations_stop_failing();
    allocations_pause(false);
    close_peers();
    return count;
}

START_TEST(an_allocation_that_fails_ends_a_call_once_and_with_a_true_result)
{
    scripted_close_client();
    SCRIPTED_UNTIL(scripted.is_closed);
    int answered, before = scripted_descriptors();
    long count = play_without_memory(0, 0, &answered);
    ck_assert_int_eq(answered, CALLS);
    ck_assert_int_gt(count, 15);
    for (long n = 1; n <= count; n += scripted.tls ? 23 : 1) { /* OpenSSL makes thousands */
        (void)play_without_memory(n, 0, &answered);
        ck_assert_int_eq(scripted_descriptors(), before);
        ck_assert(answered == -1 || answered >= CALLS - 2); /* it ends a call or two, not the client */
    }
}

START_TEST(when_memory_is_gone_for_long_all_calls_end)
{
    scripted_close_client();
    SCRIPTED_UNTIL(scripted.is_closed);
    int answered, before = scripted_descriptors();
    long count = play_without_memory(0, 0, &answered);
    for (long n = 1; n <= count; n += scripted.tls ? 229 : 7) {
        (void)play_without_memory(n, 1000000, &answered);
        ck_assert_int_eq(scripted_descriptors(), before);
    }
    (void)play_without_memory(0, 0, &answered);
    ck_assert_int_eq(answered, CALLS);
}

/* OpenSSL leaves out of a context what it has no memory for, and says nothing. */
START_TEST(what_an_allocation_leaves_out_of_a_context_costs_one_call)
{
    scripted_close_client();
    SCRIPTED_UNTIL(scripted.is_closed);
    int before = scripted_descriptors();
    for (long n = 1, count = 1; count >= n - 1; n++) { /* until none fails any more */
        ck_assert(open_client());
        allocations_fail_at(n, 0);
        begin_call(0, 3000);
        count = allocations_stop_failing();
        finish_call(0);
        expect_honest(0, n);
        begin_call(1, 20000);
        finish_call(1);
        ck_assert_msg(calls[1].call.result == HTTP_ANSWERED, "%ld: %s", n, calls[1].call.error);
        expect_honest(1, n);
        close_client();
        allocations_pause(false);
        close_peers();
        ck_assert_int_eq(scripted_descriptors(), before);
    }
}

static void add_tests(Suite *suite, const char *scheme, void (*set_up)(void))
{
    TCase *tests = tcase_create(scheme);
    tcase_add_checked_fixture(tests, set_up, scripted_tear_down);
    tcase_add_test(tests, an_allocation_that_fails_ends_a_call_once_and_with_a_true_result);
    tcase_add_test(tests, when_memory_is_gone_for_long_all_calls_end);
    tcase_add_test(tests, what_an_allocation_leaves_out_of_a_context_costs_one_call);
    suite_add_tcase(suite, tests);
}

SUITE(http_pool_memory)
{
    add_tests(suite, "http", scripted_set_up);
    add_tests(suite, "https", scripted_set_up_tls);
    TCase *secrets = tcase_create("secrets");
    tcase_set_tags(secrets, "no_valgrind"); /* it reads all memory, also what is not allocated */
    tcase_add_checked_fixture(secrets, scripted_set_up, scripted_tear_down);
    ADD_TESTS(secrets);
    suite_add_tcase(suite, secrets);
}
