/* The story: behind a snapshot that is held for hours a look back visits millions of dead entries. It must become many
 * short looks, find its way back to one when the entries are gone, and never come to a width that does not move on. */
#include <check.h>
#include <stdlib.h>

#include "worker/sweep.h"

#define DAY_MS INT64_C(86400000)

START_TEST(a_cheap_look_stays_unbounded)
{
    ck_assert_int_eq(sweep_next_width_ms(SWEEP_UNBOUNDED, 0), SWEEP_UNBOUNDED);
    ck_assert_int_eq(sweep_next_width_ms(SWEEP_UNBOUNDED, 20), SWEEP_UNBOUNDED);
}
END_TEST

START_TEST(a_look_that_took_long_is_cut_and_cut_again)
{
    int64_t width_ms = sweep_next_width_ms(SWEEP_UNBOUNDED, 21), before_ms = SWEEP_UNBOUNDED;
    while (width_ms < before_ms) {
        ck_assert_int_gt(width_ms, 0);
        before_ms = width_ms;
        width_ms = sweep_next_width_ms(width_ms, 10000);
    }
    ck_assert_int_ge(width_ms, 1); /* however slow, it moves on */
    ck_assert_int_le(width_ms, 1000);
}
END_TEST

START_TEST(a_good_width_is_kept)
{
    ck_assert_int_eq(sweep_next_width_ms(17000, 5), 17000);
    ck_assert_int_eq(sweep_next_width_ms(17000, 20), 17000);
}
END_TEST

START_TEST(cheap_looks_grow_until_nothing_bounds_them)
{
    int64_t width_ms = 1000;
    int steps = 0;
    for (; width_ms != SWEEP_UNBOUNDED && steps < 100; steps++) {
        int64_t next_ms = sweep_next_width_ms(width_ms, 0);
        ck_assert(next_ms == SWEEP_UNBOUNDED || (next_ms > width_ms && next_ms <= DAY_MS));
        width_ms = next_ms;
    }
    ck_assert_int_lt(steps, 30);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sweep");
    TCase *tcase = tcase_create("sweep");
    tcase_add_test(tcase, a_cheap_look_stays_unbounded);
    tcase_add_test(tcase, a_look_that_took_long_is_cut_and_cut_again);
    tcase_add_test(tcase, a_good_width_is_kept);
    tcase_add_test(tcase, cheap_looks_grow_until_nothing_bounds_them);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
