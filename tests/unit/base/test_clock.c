/* Every answer, log line and table shows times in one form. A wrong leap day or a sign error would be seen by every
 * client, so the calendar is compared with the C library's over all the years it can show. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/lib/base/clock.h"
#include "tests/support/suite.h"

static void expect(int64_t wall_us, const char *wanted)
{
    char text[CLOCK_RFC3339_SIZE];
    clock_format(wall_us, text);
    ck_assert_str_eq(text, wanted);
}

TEST(known_instants_have_their_known_form)
{
    expect(0, "1970-01-01T00:00:00.000000Z");
    expect(-1, "1969-12-31T23:59:59.999999Z");
    expect(951782400000000, "2000-02-29T00:00:00.000000Z");
    expect(1795171197123456, "2026-11-20T10:39:57.123456Z");
    expect(4107542399999999, "2100-02-28T23:59:59.999999Z");
    expect(4107542400000000, "2100-03-01T00:00:00.000000Z");
}

TEST(years_that_have_no_four_digits_are_shown_as_the_nearest_that_has)
{
    expect(INT64_MAX, "9999-12-31T23:59:59.999999Z");
    expect(INT64_MIN, "0000-01-01T00:00:00.000000Z");
    expect(253402300799999999, "9999-12-31T23:59:59.999999Z");
    expect(-62167219200000000, "0000-01-01T00:00:00.000000Z");
}

TEST(the_calendar_agrees_with_the_c_library)
{
    const int64_t step_seconds = 86400 * 13 + 3607;
    for (int64_t seconds = -62167219200; seconds <= 253402300799; seconds += step_seconds) {
        time_t time = (time_t)seconds;
        struct tm parts;
        char wanted[64];
        ck_assert_ptr_nonnull(gmtime_r(&time, &parts));
        snprintf(wanted, sizeof(wanted), "%04d-%02d-%02dT%02d:%02d:%02d.000042Z", parts.tm_year + 1900,
                 parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
        expect(seconds * 1000000 + 42, wanted);
    }
}

TEST(the_monotonic_clock_does_not_go_back)
{
    int64_t before_us = clock_mono_us();
    for (int i = 0; i < 1000; i++) {
        int64_t now_us = clock_mono_us();
        ck_assert_int_ge(now_us, before_us);
        before_us = now_us;
    }
    ck_assert_int_ge(clock_mono_ms(), before_us / 1000);
}

TEST(the_wall_clock_is_that_of_the_system)
{
    time_t before = time(NULL);
    int64_t wall_us = clock_wall_us();
    time_t after = time(NULL);
    ck_assert_int_ge(wall_us / 1000000, before - 1);
    ck_assert_int_le(wall_us / 1000000, after + 1);
}

TEST(a_frozen_clock_stands_still_until_released)
{
    clock_freeze(5000000, 7000);
    ck_assert_int_eq(clock_wall_us(), 5000000);
    ck_assert_int_eq(clock_mono_us(), 7000);
    ck_assert_int_eq(clock_mono_ms(), 7);
    clock_release();
    ck_assert_int_gt(clock_wall_us(), 1600000000000000);
}

/* ---- what the kernel offers: linked with --wrap (meson.build) ---- */

#define SLEPT_US (86400 * INT64_C(1000000))

static bool has_boottime;
static int boottime_calls;

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);
/* A machine that was suspended for a day. */
int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
    boottime_calls += id == CLOCK_BOOTTIME;
    if (id == CLOCK_BOOTTIME && !has_boottime) {
        errno = EINVAL;
        return -1;
    }
    int done = __real_clock_gettime(id == CLOCK_BOOTTIME ? CLOCK_MONOTONIC : id, now);
    if (id == CLOCK_BOOTTIME)
        now->tv_sec += SLEPT_US / 1000000;
    return done;
}

static int64_t kernel_mono_us(void)
{
    struct timespec now;
    ck_assert_int_eq(__real_clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

TEST(the_time_of_a_suspension_counts)
{
    has_boottime = true;
    int64_t before_us = kernel_mono_us();
    int64_t now_us = clock_mono_us();
    ck_assert_int_ge(now_us, before_us + SLEPT_US);
    ck_assert_int_le(now_us, kernel_mono_us() + SLEPT_US);
}

TEST(a_kernel_that_cannot_count_it_is_called_once)
{
    has_boottime = false;
    int64_t before_us = kernel_mono_us();
    int64_t now_us = clock_mono_us();
    ck_assert_int_ge(now_us, before_us);
    ck_assert_int_le(now_us, kernel_mono_us());
    has_boottime = true; /* the clock must not jump by a change of mind */
    ck_assert_int_ge(clock_mono_us(), now_us);
    ck_assert_int_le(clock_mono_us(), kernel_mono_us());
    ck_assert_int_eq(boottime_calls, 1);
}

TEST(an_advanced_clock_runs_on_from_there)
{
    int64_t wall_us = clock_wall_us(), mono_us = clock_mono_us();
    clock_advance(SLEPT_US);
    ck_assert_int_ge(clock_wall_us(), wall_us + SLEPT_US);
    ck_assert_int_ge(clock_mono_us(), mono_us + SLEPT_US);
    clock_release();
    ck_assert_int_lt(clock_mono_us(), mono_us + SLEPT_US);
}

TESTS(clock)
