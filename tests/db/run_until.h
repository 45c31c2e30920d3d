/* What the database tests of modules on the loop share: the loop, and a macro that runs it until a condition holds. */
#ifndef ISSUING_TEST_RUN_UNTIL_H
#define ISSUING_TEST_RUN_UNTIL_H

#include <check.h>
#include <stdbool.h>
#include <uv.h>

#include "tests/support/stuck.h"

#define BEAT_MS 10

static uv_loop_t loop;
static const char *run_until_why = ""; /* printed with a condition that never held */
static int run_until_beats;

/* Wakes the loop, so that conditions that depend on the server are evaluated again. */
static void run_until_on_beat(uv_timer_t *timer)
{
    (void)timer;
    run_until_beats++;
}

/* Runs the loop until the condition holds; the test fails when it does not come. */
#define run_until(condition)                                                          \
    do {                                                                              \
        uv_timer_t beat;                                                              \
        bool came = false;                                                            \
        run_until_beats = 0;                                                          \
        (void)uv_timer_init(&loop, &beat);                                            \
        (void)uv_timer_start(&beat, run_until_on_beat, BEAT_MS, BEAT_MS);             \
        while (!(came = (condition)) && run_until_beats < stuck_after_ms() / BEAT_MS) \
            (void)uv_run(&loop, UV_RUN_ONCE);                                         \
        uv_close((uv_handle_t *)&beat, NULL);                                         \
        (void)uv_run(&loop, UV_RUN_NOWAIT);                                           \
        ck_assert_msg(came, "never came: %s %s", #condition, run_until_why);          \
    } while (0)

/* For a condition: so many beats of 10 ms have passed since run_until() started. */
static inline bool beats_passed(int beats)
{
    return run_until_beats >= beats;
}

#endif
