/* The story: a create that is sent with a key which the issuer has forgotten makes a second card. The worker and
 * issuing-ctl each had a copy of this rule, and explain announced a send that the worker did not make. */
#include <check.h>

#include "common/core/issuer_key.h"
#include "tests/support/suite.h"

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)

TEST(a_key_may_be_used_until_its_lifetime_less_the_margin)
{
    static const struct {
        int64_t lifetime_ms, timeout_ms, settle_ms, sendable_ms;
    } cases[] = {
        {24 * HOUR, 3 * SECOND, 0, 24 * HOUR - 5 * MINUTE}, /* a tenth, at most 5 min */
        {50 * MINUTE, 3 * SECOND, 0, 45 * MINUTE},          /* a tenth is exactly 5 min */
        {MINUTE, 3 * SECOND, 0, 54 * SECOND},               /* a tenth */
        {10 * SECOND, 3 * SECOND, 0, 7 * SECOND},           /* the timeout is more than a tenth */
        {HOUR, 10 * MINUTE, 0, 55 * MINUTE},                /* the timeout is more than 5 min */
        {80 * SECOND, 3 * SECOND, 30 * SECOND, 50 * SECOND},
        {24 * HOUR, 3 * SECOND, 10 * HOUR, 14 * HOUR}, /* the settling time has no upper bound */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ck_assert_int_eq(issuer_key_sendable_ms(cases[i].lifetime_ms, cases[i].timeout_ms, cases[i].settle_ms),
                         cases[i].sendable_ms);
}

TEST(a_lifetime_shorter_than_one_call_allows_no_second_create)
{
    ck_assert_int_le(issuer_key_sendable_ms(2 * SECOND, 3 * SECOND, 0), 0);
    ck_assert_int_le(issuer_key_sendable_ms(20 * SECOND, SECOND, 30 * SECOND), 0);
    ck_assert_int_eq(issuer_key_sendable_ms(0, 0, 0), 0);
}

TEST(a_key_that_is_honoured_for_ever_is_never_past_its_lifetime)
{
    ck_assert_int_eq(issuer_key_sendable_ms(ISSUER_KEY_FOREVER_MS, 30 * SECOND, 60 * SECOND), INT64_MAX);
    ck_assert_int_eq(issuer_key_sendable_ms(ISSUER_KEY_FOREVER_MS, 10 * MINUTE, 24 * HOUR), INT64_MAX);
    ck_assert_int_eq(issuer_key_sendable_ms(ISSUER_KEY_FOREVER_MS - 1, 30 * SECOND, 60 * SECOND),
                     ISSUER_KEY_FOREVER_MS - 1 - 5 * MINUTE);
}

TESTS(issuer_key)
