/* An attacker tries tokens. The metric must count every refusal by its reason, from the first one on, and the refusals
 * must not fill the log: it has one line for each reason and second, and a count of the others, which is never lost. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/refusals.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "tests/support/stuck.h"
#include "tests/support/suite.h"

static const struct metric_family families[] = {
    {"issuing_auth_failures_total", METRIC_COUNTER, "Refused.", {"reason"}, NULL},
};
static uv_loop_t loop;
static struct metrics *metrics;
static struct refusals refusals;
static struct closing closing;
static bool is_closing;
static int saved_stderr, captured;
static char written[65536];

static void set_up(void)
{
    is_closing = false;
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    captured = memfd_create("stderr", MFD_CLOEXEC);
    ck_assert_int_ge(dup2(captured, STDERR_FILENO), 0);
    log_init("issuing-api", LOG_INFO, LOG_FORMAT_TEXT);
    clock_freeze(1795176000000000, 5000000);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    metrics = metrics_new(families, 1);
    refusals_open(&refusals, &loop, metrics, 0);
}

static void close_refusals(void)
{
    closing_start(&closing, NULL, NULL, NULL, NULL);
    refusals_close(&refusals, &closing);
    closing_end(&closing);
}

static void tear_down(void)
{
    if (!is_closing)
        close_refusals();
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    metrics_free(metrics);
    clock_release();
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(captured);
}

/* The lines since the last call; *ret_text: one after the other. */
static int lines(const char **ret_text)
{
    ssize_t length = pread(captured, written, sizeof(written) - 1, 0);
    ck_assert_int_ge(length, 0);
    written[length] = '\0';
    ck_assert_int_eq(ftruncate(captured, 0), 0);
    ck_assert_int_eq(lseek(captured, 0, SEEK_SET), 0);
    int count = 0;
    for (const char *at = written; *at; at++)
        count += *at == '\n';
    *ret_text = written;
    return count;
}

static void note(enum auth_refusal refusal, int times)
{
    for (int i = 0; i < times; i++)
        refusals_note(&refusals, refusal, "", "");
}

static double counted(const char *word)
{
    return metric_value(metrics_series(metrics, 0, word, NULL));
}

TEST(every_reason_is_there_from_the_start)
{
    struct buf text;
    buf_init(&text, 65536);
    metrics_render(metrics, &text);
#define X(id, word, phrase) \
    ck_assert_ptr_nonnull(strstr(text.bytes, "issuing_auth_failures_total{reason=\"" word "\"} 0\n"));
    AUTH_REFUSALS(X)
#undef X
    buf_done(&text);
}

TEST(a_flood_is_one_line_a_second_and_reason)
{
    const char *text;
    note(AUTH_REFUSED_SIGNATURE, 1000);
    note(AUTH_REFUSED_EXPIRED, 1);
    ck_assert_int_eq(lines(&text), 2);
    ck_assert_ptr_nonnull(
        strstr(text, "a token was refused reason=signature why=\"the token's signature does not fit\"\n"));
    ck_assert_ptr_nonnull(strstr(text, "a token was refused reason=expired why="));
    clock_freeze(1795176001000000, 6000000);
    note(AUTH_REFUSED_SIGNATURE, 500);
    ck_assert_int_eq(lines(&text), 1);
    ck_assert_ptr_nonnull(strstr(text, "more tokens were refused reason=signature count=1000\n"));
    ck_assert_double_eq(counted("signature"), 1500);
    ck_assert_double_eq(counted("expired"), 1);
    ck_assert_double_eq(counted("missing"), 0);
    is_closing = true;
    close_refusals();
    ck_assert_int_eq(lines(&text), 1);
    ck_assert_ptr_nonnull(strstr(text, "more tokens were refused reason=signature count=499\n"));
}

#define TRACE_ID "4bf92f3577b34da6a3ce929d0e0e4736"

TEST(the_line_has_the_address_and_the_trace_where_they_are_known)
{
    const char *text;
    refusals_note(&refusals, AUTH_REFUSED_KEY, "192.0.2.7", TRACE_ID);
    refusals_note(&refusals, AUTH_REFUSED_MISSING, "", "");
    ck_assert_int_eq(lines(&text), 2);
    ck_assert_ptr_nonnull(
        strstr(text, "reason=unknown_key why=\"the token's key is unknown\" client=192.0.2.7 trace_id=" TRACE_ID "\n"));
    ck_assert_ptr_nonnull(strstr(text, "reason=missing why=\"no token was sent\"\n"));
}

/* The end of a flood is logged although no further token comes. */
TEST(what_was_left_out_is_logged_when_nothing_follows)
{
    const char *text;
    clock_release();
    uv_ref((uv_handle_t *)&refusals.timer); /* nothing else keeps this loop alive */
    note(AUTH_REFUSED_KEY, 8);
    ck_assert_int_eq(lines(&text), 1);
    int64_t until_ms = clock_mono_ms() + stuck_after_ms();
    while (uv_is_active((uv_handle_t *)&refusals.timer) && clock_mono_ms() < until_ms) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(10000);
    }
    ck_assert(!uv_is_active((uv_handle_t *)&refusals.timer));
    ck_assert_int_eq(lines(&text), 1);
    ck_assert_ptr_nonnull(strstr(text, "more tokens were refused reason=unknown_key count=7\n"));
}

TESTS_BETWEEN(refusals, set_up, tear_down)
