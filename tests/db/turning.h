/* What the database tests of rooms on the loop share: the loop, and turning it until something has come true. */
#ifndef ISSUING_TEST_TURNING_H
#define ISSUING_TEST_TURNING_H

#include <check.h>
#include <stdbool.h>
#include <uv.h>

#define BEAT_MS 10
#define FOR_EVER_BEATS (60000 / BEAT_MS)

static uv_loop_t loop;
static const char *turning_why = ""; /* what a condition that never came is told with */
static int turning_beats;

/* Conditions that look at the server are looked at again with each beat. */
static void turning_on_beat(uv_timer_t *timer)
{
    (void)timer;
    turning_beats++;
}

/* Turns the loop until the condition holds; a minute is for ever. */
#define run_until(condition)                                               \
    do {                                                                   \
        uv_timer_t beat;                                                   \
        bool came = false;                                                 \
        turning_beats = 0;                                                 \
        (void)uv_timer_init(&loop, &beat);                                 \
        (void)uv_timer_start(&beat, turning_on_beat, BEAT_MS, BEAT_MS);    \
        while (!(came = (condition)) && turning_beats < FOR_EVER_BEATS)    \
            (void)uv_run(&loop, UV_RUN_ONCE);                              \
        uv_close((uv_handle_t *)&beat, NULL);                              \
        (void)uv_run(&loop, UV_RUN_NOWAIT);                                \
        ck_assert_msg(came, "never came: %s %s", #condition, turning_why); \
    } while (0)

/* In a condition: so many since the turning began. */
static inline bool beats_passed(int beats)
{
    return turning_beats >= beats;
}

#endif
