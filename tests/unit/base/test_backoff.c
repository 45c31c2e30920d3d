/* A thousand events whose issuer was away must not come back at the same moment, nor wait a year because a shift
 * overflowed. The delays are checked at their ends and for their spread. */
#include <check.h>

#include "common/lib/base/backoff.h"
#include "tests/support/suite.h"

TEST(the_ceiling_doubles_up_to_the_cap)
{
    ck_assert_int_eq(backoff_ceiling_ms(1, 1000, 300000), 1000);
    ck_assert_int_eq(backoff_ceiling_ms(2, 1000, 300000), 2000);
    ck_assert_int_eq(backoff_ceiling_ms(9, 1000, 300000), 256000);
    ck_assert_int_eq(backoff_ceiling_ms(10, 1000, 300000), 300000);
    ck_assert_int_eq(backoff_ceiling_ms(1, 5000, 300), 300);
}

TEST(odd_input_gives_an_answer_between_zero_and_the_cap)
{
    ck_assert_int_eq(backoff_ceiling_ms(0, 1000, 300000), 1000);
    ck_assert_int_eq(backoff_ceiling_ms(-5, 1000, 300000), 1000);
    ck_assert_int_eq(backoff_ceiling_ms(INT32_MAX, 1, INT64_MAX), INT64_MAX);
    ck_assert_int_eq(backoff_ceiling_ms(INT32_MAX, 3, 300000), 300000);
    ck_assert_int_eq(backoff_ceiling_ms(64, INT64_MAX, INT64_MAX), INT64_MAX);
    ck_assert_int_eq(backoff_ceiling_ms(3, 0, 300000), 0);
    ck_assert_int_eq(backoff_ceiling_ms(3, 1000, -1), 0);
    ck_assert_int_eq(backoff_delay_ms(3, 0, 300000, UINT64_MAX), 0);
    ck_assert_int_eq(backoff_delay_ms(1, INT64_MAX, INT64_MAX, UINT64_MAX), INT64_MAX);
}

TEST(the_jitter_reaches_both_ends_and_not_beyond)
{
    ck_assert_int_eq(backoff_delay_ms(1, 1000, 300000, 0), 0);
    ck_assert_int_eq(backoff_delay_ms(1, 1000, 300000, UINT64_MAX), 1000);
    ck_assert_int_eq(backoff_delay_ms(1, 1000, 300000, UINT64_MAX / 2), 500);
    ck_assert_int_eq(backoff_delay_ms(20, 1000, 300000, UINT64_MAX), 300000);
}

TEST(the_jitter_is_spread_evenly)
{
    enum { DRAWS = 40000, PARTS = 4 };
    int hits[PARTS] = {0};
    backoff_seed(42);
    for (int i = 0; i < DRAWS; i++)
        hits[backoff_delay_ms(3, 1000, 300000, backoff_random()) * PARTS / 4001]++;
    for (int i = 0; i < PARTS; i++) {
        ck_assert_int_gt(hits[i], DRAWS / PARTS - 600);
        ck_assert_int_lt(hits[i], DRAWS / PARTS + 600);
    }
}

TEST(a_seed_repeats_its_numbers_and_another_does_not)
{
    backoff_seed(7);
    uint64_t first = backoff_random(), second = backoff_random();
    backoff_seed(7);
    ck_assert_uint_eq(backoff_random(), first);
    ck_assert_uint_eq(backoff_random(), second);
    backoff_seed(8);
    ck_assert_uint_ne(backoff_random(), first);
    ck_assert_uint_ne(first, second);
}

TESTS(backoff)
