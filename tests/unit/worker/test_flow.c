/* A key that the issuer may have forgotten makes a second card out of a retry. The boundary between "send again" and
 * "look up first" is one comparison, and it must be on the safe side to the millisecond. */
#include <check.h>
#include <stdlib.h>

#include "worker/flow/flow.h"
#include "worker/flow/step.h"
#include "tests/support/suite.h"

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)

static void expect_boundary(int64_t lifetime_ms, int64_t timeout_ms, int64_t boundary_ms)
{
    ck_assert_msg(!attempt_key_expired(boundary_ms - 1, lifetime_ms, timeout_ms, 0), "%lld, %lld",
                  (long long)lifetime_ms, (long long)timeout_ms);
    ck_assert_msg(attempt_key_expired(boundary_ms, lifetime_ms, timeout_ms, 0), "%lld, %lld", (long long)lifetime_ms,
                  (long long)timeout_ms);
    ck_assert(attempt_key_expired(boundary_ms + 1, lifetime_ms, timeout_ms, 0));
    ck_assert(attempt_key_expired(lifetime_ms, lifetime_ms, timeout_ms, 0));
    ck_assert(attempt_key_expired(INT64_MAX / 2, lifetime_ms, timeout_ms, 0));
}

TEST(a_long_lifetime_has_a_margin_of_five_minutes)
{
    expect_boundary(24 * HOUR, 3 * SECOND, 24 * HOUR - 5 * MINUTE);
    expect_boundary(HOUR, 3 * SECOND, 55 * MINUTE);
    expect_boundary(50 * MINUTE, 3 * SECOND, 45 * MINUTE); /* a tenth is exactly five minutes */
}

TEST(a_shorter_lifetime_has_a_margin_of_its_tenth)
{
    expect_boundary(40 * MINUTE, 3 * SECOND, 36 * MINUTE);
    expect_boundary(60 * SECOND, 3 * SECOND, 54 * SECOND);
    expect_boundary(30 * SECOND, 3 * SECOND, 27 * SECOND); /* the tenth and the timeout are equal */
}

TEST(the_margin_is_never_shorter_than_one_call)
{
    expect_boundary(10 * SECOND, 3 * SECOND, 7 * SECOND);
    expect_boundary(60 * SECOND, 20 * SECOND, 40 * SECOND);
    expect_boundary(24 * HOUR, 10 * MINUTE, 24 * HOUR - 5 * MINUTE); /* but at most five minutes */
}

TEST(a_lifetime_shorter_than_one_call_is_over_at_once)
{
    ck_assert(attempt_key_expired(0, 2 * SECOND, 3 * SECOND, 0));
    ck_assert(attempt_key_expired(0, 3 * SECOND, 3 * SECOND, 0));
    ck_assert(!attempt_key_expired(0, 3 * SECOND + 1, 3 * SECOND, 0));
    ck_assert(attempt_key_expired(0, 0, 0, 0));
}

TEST(the_margin_is_never_shorter_than_the_settling_time)
{
    ck_assert(!attempt_key_expired(50 * SECOND - 1, 80 * SECOND, 3 * SECOND, 30 * SECOND));
    ck_assert(attempt_key_expired(50 * SECOND, 80 * SECOND, 3 * SECOND, 30 * SECOND));
    ck_assert(attempt_key_expired(14 * HOUR, 24 * HOUR, 3 * SECOND, 10 * HOUR)); /* also above the five minutes */
}

TEST(a_send_settles_after_its_time_by_both_clocks)
{
    const int64_t settle_ms = 30 * SECOND, lease_ms = 20 * SECOND, long_steady = 24 * HOUR;
    ck_assert_int_eq(attempt_settle_left_ms(-1, 0, settle_ms, lease_ms), 0); /* nothing was sent */
    ck_assert_int_eq(attempt_settle_left_ms(0, long_steady, settle_ms, lease_ms), 30 * SECOND);
    ck_assert_int_eq(attempt_settle_left_ms(29 * SECOND, long_steady, settle_ms, lease_ms), SECOND);
    ck_assert_int_eq(attempt_settle_left_ms(30 * SECOND, long_steady, settle_ms, lease_ms), 0);
    /* The database's clock was set forward a moment ago: its ages prove nothing yet. */
    ck_assert_int_eq(attempt_settle_left_ms(2 * HOUR, 0, settle_ms, lease_ms), 50 * SECOND);
    ck_assert_int_eq(attempt_settle_left_ms(2 * HOUR, 49 * SECOND, settle_ms, lease_ms), SECOND);
    ck_assert_int_eq(attempt_settle_left_ms(2 * HOUR, 50 * SECOND, settle_ms, lease_ms), 0);
}

/* The age is of the moment at which the claim was executed, which may be that of its answer. */
TEST(a_claim_that_took_long_makes_no_send_older)
{
    const struct attempt attempt = {.settle_age_ms = 20 * SECOND, .claimed_ms = HOUR, .claim_took_ms = 5 * SECOND};
    struct view view = {.rules = {.settle_time_ms = 30 * SECOND}, .steady_ms = 24 * HOUR, .now_ms = HOUR + 14 * SECOND};
    ck_assert_int_eq(attempt_unsettled_ms(&attempt, &view), SECOND);
    view.now_ms += SECOND;
    ck_assert_int_eq(attempt_unsettled_ms(&attempt, &view), 0);
}

TEST(what_was_sent_just_now_is_not_expired)
{
    ck_assert(!attempt_key_expired(0, 24 * HOUR, 3 * SECOND, 0));
    ck_assert(!attempt_key_expired(1, 24 * HOUR, 3 * SECOND, 0));
}

TEST(every_step_calls_a_peer_or_writes_and_has_a_name_of_its_own)
{
    struct peers peers;
    const struct worker_env worker = {.peers = &peers};
    const struct flow_env env = {.worker = &worker};
    struct route route;
    struct flow flow = {.env = &env, .route = &route};
    for (int i = 0; i < STEP_COUNT; i++) {
        enum flow_step step = flow.attempt.step = (enum flow_step)i;
        ck_assert_ptr_nonnull(flow_step_name(step));
        ck_assert_ptr_nonnull(flow_step_text(step));
        ck_assert_ptr_nonnull(flow_steps[step].prepare);
        ck_assert_ptr_nonnull(flow_steps[step].read);
        ck_assert_int_eq(flow_peer(&flow) == NULL, flow_step_write(step) != FLOW_WRITES_NOTHING);
        for (int other = 0; other < i; other++)
            ck_assert_str_ne(flow_step_name(step), flow_step_name((enum flow_step)other));
    }
    flow.attempt.step = STEP_ISSUE;
    ck_assert_ptr_eq(flow_peer(&flow), &peers.issuer);
    flow.attempt.step = STEP_LINK;
    ck_assert_ptr_eq(flow_peer(&flow), &peers.core);
}

/* A held end is stored by its word: another worker must find the same reason again. */
TEST(the_word_of_a_held_end_leads_back_to_its_reason)
{
    int words = 0;
    for (int i = 0; i < LOOKUP_REASONS; i++) {
        const char *name = lookup_reason_name((enum lookup_reason)i);
        if (!name)
            continue;
        ck_assert_int_eq(lookup_reason_parse(name), i);
        words++;
    }
#define X(name, word) words--;
    OUTBOX_HELD_ENDS(X)
#undef X
    ck_assert_int_eq(words, 0);
    ck_assert_int_eq(lookup_reason_parse(""), LOOKUP_NONE);
    ck_assert_int_eq(lookup_reason_parse("in_outage"), LOOKUP_NONE);
}

TEST(every_wait_has_a_name)
{
    for (int i = 0; i < FLOW_WAITS; i++)
        ck_assert_ptr_nonnull(flow_wait_name((enum flow_wait)i));
}

TESTS(flow)
