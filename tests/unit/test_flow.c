/* The story: a key that the issuer may have forgotten makes a second card out of a retry. The boundary between "send again" and "ask
 * first" is one comparison, and it must be on the safe side to the millisecond. The runner as a whole is shown by the end-to-end stories. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "worker/flow.h"

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)

static void expect_boundary(int64_t lifetime_ms, int64_t timeout_ms, int64_t boundary_ms)
{
    ck_assert_msg(!flow_key_expired(boundary_ms - 1, lifetime_ms, timeout_ms), "%lld, %lld", (long long)lifetime_ms,
                  (long long)timeout_ms);
    ck_assert_msg(flow_key_expired(boundary_ms, lifetime_ms, timeout_ms), "%lld, %lld", (long long)lifetime_ms,
                  (long long)timeout_ms);
    ck_assert(flow_key_expired(boundary_ms + 1, lifetime_ms, timeout_ms));
    ck_assert(flow_key_expired(lifetime_ms, lifetime_ms, timeout_ms));
    ck_assert(flow_key_expired(INT64_MAX / 2, lifetime_ms, timeout_ms));
}

START_TEST(a_long_lifetime_has_a_margin_of_five_minutes)
{
    expect_boundary(24 * HOUR, 3 * SECOND, 24 * HOUR - 5 * MINUTE);
    expect_boundary(HOUR, 3 * SECOND, 55 * MINUTE);
    expect_boundary(50 * MINUTE, 3 * SECOND, 45 * MINUTE); /* a tenth is exactly five minutes */
}
END_TEST

START_TEST(a_shorter_lifetime_has_a_margin_of_its_tenth)
{
    expect_boundary(40 * MINUTE, 3 * SECOND, 36 * MINUTE);
    expect_boundary(60 * SECOND, 3 * SECOND, 54 * SECOND);
    expect_boundary(30 * SECOND, 3 * SECOND, 27 * SECOND); /* the tenth and the timeout are equal */
}
END_TEST

START_TEST(the_margin_is_never_shorter_than_one_call)
{
    expect_boundary(10 * SECOND, 3 * SECOND, 7 * SECOND);
    expect_boundary(60 * SECOND, 20 * SECOND, 40 * SECOND);
    expect_boundary(24 * HOUR, 10 * MINUTE, 24 * HOUR - 5 * MINUTE); /* but at most five minutes */
}
END_TEST

START_TEST(a_lifetime_shorter_than_one_call_is_over_at_once)
{
    ck_assert(flow_key_expired(0, 2 * SECOND, 3 * SECOND));
    ck_assert(flow_key_expired(0, 3 * SECOND, 3 * SECOND));
    ck_assert(!flow_key_expired(0, 3 * SECOND + 1, 3 * SECOND));
    ck_assert(flow_key_expired(0, 0, 0));
}
END_TEST

START_TEST(what_was_sent_just_now_is_not_expired)
{
    ck_assert(!flow_key_expired(0, 24 * HOUR, 3 * SECOND));
    ck_assert(!flow_key_expired(1, 24 * HOUR, 3 * SECOND));
}
END_TEST

START_TEST(every_step_has_a_row_and_a_name_of_its_own)
{
    for (int step = 0; step < STEP_COUNT; step++) {
        const struct flow_step_row *row = &flow_steps[step];
        ck_assert_ptr_nonnull(row->name);
        ck_assert_ptr_nonnull(row->text);
        ck_assert_ptr_nonnull(row->ask);
        ck_assert_ptr_nonnull(row->answer);
        ck_assert_str_eq(flow_step_name((enum flow_step)step), row->name);
        for (int other = 0; other < step; other++)
            ck_assert_str_ne(row->name, flow_steps[other].name);
    }
    ck_assert_str_eq(flow_step_name(STEP_CHECK), "check");
    ck_assert(!flow_steps[STEP_SAVE].target); /* the database has no breaker */
    ck_assert(flow_steps[STEP_ISSUE].target);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flow");
    TCase *tcase = tcase_create("flow");
    tcase_add_test(tcase, a_long_lifetime_has_a_margin_of_five_minutes);
    tcase_add_test(tcase, a_shorter_lifetime_has_a_margin_of_its_tenth);
    tcase_add_test(tcase, the_margin_is_never_shorter_than_one_call);
    tcase_add_test(tcase, a_lifetime_shorter_than_one_call_is_over_at_once);
    tcase_add_test(tcase, what_was_sent_just_now_is_not_expired);
    tcase_add_test(tcase, every_step_has_a_row_and_a_name_of_its_own);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
