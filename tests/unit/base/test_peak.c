/* The story: the loop stalls for a second. Two monitoring servers and a curious operator look at the metric; each of
 * them must see the stall, whoever came first. */
#include <check.h>

#include "common/lib/base/peak.h"
#include "tests/support/suite.h"

#define NOW 1000000000 /* ms */

static struct peak peak;

static void start(void)
{
    peak = (struct peak){0};
}

TEST(looking_at_a_peak_does_not_take_it_away)
{
    peak_note(&peak, 5, NOW);
    peak_note(&peak, 900, NOW + 10);
    peak_note(&peak, 7, NOW + 20);
    ck_assert_int_eq(peak_highest(&peak, NOW + 30), 900);
    ck_assert_int_eq(peak_highest(&peak, NOW + 30), 900);
    ck_assert_int_eq(peak_highest(&peak, NOW + 59999), 900);
}

TEST(a_peak_is_over_after_70_seconds)
{
    peak_note(&peak, 900, NOW);
    for (int64_t at = NOW; at < NOW + 70000; at += 250)
        peak_note(&peak, 3, at);
    ck_assert_int_eq(peak_highest(&peak, NOW + 70000), 3);
}

TEST(a_pause_of_any_length_leaves_nothing_old_behind)
{
    static const int64_t pauses_ms[] = {70000, 80000, 3600000, INT64_C(1) << 40};
    for (size_t i = 0; i < ARRAY_SIZE(pauses_ms); i++) {
        start();
        for (int64_t at = NOW; at < NOW + 70000; at += 250)
            peak_note(&peak, 900, at);
        ck_assert_int_eq(peak_highest(&peak, NOW + 70000 + pauses_ms[i]), 0);
    }
}

TEST(nothing_noted_is_zero)
{
    ck_assert_int_eq(peak_highest(&peak, NOW), 0);
    ck_assert_int_eq(peak_highest(&peak, 0), 0);
}

TESTS_BETWEEN(peak, start, NULL)
