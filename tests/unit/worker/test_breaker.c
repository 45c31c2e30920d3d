/* The story: a peer in an outage must not be flooded, an outage must not end events, and calls must resume by
 * themselves. The breaker opens after a row of failures; it sends one probe at a time, at growing intervals, recovers
 * gradually, and ignores the result of a call that began before the last change of state. */
#include <check.h>
#include <stdlib.h>

#include "worker/peers/breaker.h"
#include "tests/support/suite.h"

enum { FAILURES = 5, PROBE_MS = 2000, LIMIT = 8 };

static struct breaker breaker;

static void set_up(void)
{
    breaker_init(&breaker, FAILURES, PROBE_MS, LIMIT, 0);
}

static void run_one(enum breaker_result result, int64_t now_ms)
{
    uint32_t epoch = breaker_start(&breaker, now_ms);
    breaker_end(&breaker, epoch, result, "issuer_http_503", now_ms);
}

static void open_it(int64_t now_ms)
{
    for (int i = 0; i < FAILURES; i++)
        run_one(BREAKER_BAD, now_ms);
    ck_assert_int_eq(breaker.state, BREAKER_OPEN);
}

TEST(it_begins_closed_with_its_full_capacity)
{
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_int_eq(breaker_capacity(&breaker, 0), LIMIT);
    ck_assert(!breaker_rejects(&breaker, 0));
}

TEST(capacity_shrinks_with_each_call_in_flight_and_comes_back)
{
    uint32_t epochs[LIMIT];
    for (int i = 0; i < LIMIT; i++) {
        ck_assert_int_eq(breaker_capacity(&breaker, 0), LIMIT - i);
        epochs[i] = breaker_start(&breaker, 0);
    }
    ck_assert_int_eq(breaker_capacity(&breaker, 0), 0);
    ck_assert(!breaker_rejects(&breaker, 0)); /* at its limit it is not open: calls wait */
    breaker_end(&breaker, epochs[0], BREAKER_GOOD, NULL, 1);
    ck_assert_int_eq(breaker_capacity(&breaker, 1), 1);
}

TEST(the_last_failure_of_a_row_opens_it_and_none_before)
{
    for (int i = 0; i < FAILURES - 1; i++) {
        run_one(BREAKER_BAD, 10);
        ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    }
    run_one(BREAKER_BAD, 10);
    ck_assert_int_eq(breaker.state, BREAKER_OPEN);
    ck_assert_int_eq(breaker_capacity(&breaker, 10), 0);
    ck_assert(breaker_rejects(&breaker, 10));
}

TEST(a_good_answer_ends_a_row_of_failures)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < FAILURES - 1; i++)
            run_one(BREAKER_BAD, 0);
        run_one(BREAKER_GOOD, 0);
    }
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_int_eq(breaker.failures, 0);
}

TEST(a_call_that_never_started_does_not_count)
{
    for (int i = 0; i < FAILURES - 1; i++)
        run_one(BREAKER_BAD, 0);
    for (int i = 0; i < 20; i++)
        run_one(BREAKER_NOTHING, 0);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_int_eq(breaker.failures, FAILURES - 1);
    ck_assert_int_eq(breaker.in_flight, 0);
    run_one(BREAKER_BAD, 0);
    ck_assert_int_eq(breaker.state, BREAKER_OPEN);
}

TEST(refused_calls_are_answered)
{
    for (int i = 0; i < 10 * FAILURES; i++)
        run_one(BREAKER_REFUSED, 0);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    open_it(0);
    run_one(BREAKER_REFUSED, PROBE_MS);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
}

TEST(a_410_opens_it_at_once)
{
    run_one(BREAKER_GONE, 0);
    ck_assert_int_eq(breaker.state, BREAKER_OPEN);
    run_one(BREAKER_GONE, PROBE_MS); /* also as the answer to a probe */
    ck_assert_int_eq(breaker.state, BREAKER_OPEN);
    run_one(BREAKER_GOOD, 2 * PROBE_MS);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
}

TEST(a_ramp_begins_with_few_calls_and_ends_where_it_was)
{
    breaker_init(&breaker, FAILURES, PROBE_MS, 64, 0);
    breaker.limit = 20;
    breaker.quick_up_to = 2; /* a 429 had lowered it */
    breaker_ramp(&breaker, 77);
    ck_assert_int_eq(breaker.since_ms, 77);
    ck_assert_int_eq(breaker.limit, 16);
    for (int expected = 17; expected <= 20; expected++) {
        run_one(BREAKER_GOOD, 80);
        ck_assert_int_eq(breaker.limit, expected);
    }
    run_one(BREAKER_GOOD, 80);
    ck_assert_int_eq(breaker.limit, 20);
    open_it(100);
    breaker_ramp(&breaker, 101);
    ck_assert_int_eq(breaker.since_ms, 100);
}

TEST(the_probe_is_due_exactly_when_its_interval_has_passed)
{
    open_it(1000);
    ck_assert_int_eq(breaker_capacity(&breaker, 1000 + PROBE_MS - 1), 0);
    ck_assert(breaker_rejects(&breaker, 1000 + PROBE_MS - 1));
    ck_assert_int_eq(breaker_capacity(&breaker, 1000 + PROBE_MS), 1);
    ck_assert(!breaker_rejects(&breaker, 1000 + PROBE_MS));
}

TEST(only_one_probe_is_in_flight_at_a_time)
{
    open_it(0);
    (void)breaker_start(&breaker, PROBE_MS);
    ck_assert_int_eq(breaker.state, BREAKER_HALF_OPEN);
    ck_assert_int_eq(breaker_capacity(&breaker, PROBE_MS), 0);
    ck_assert_int_eq(breaker_capacity(&breaker, PROBE_MS * 100), 0);
    ck_assert(breaker_rejects(&breaker, PROBE_MS * 100));
}

TEST(failed_probes_double_the_interval_up_to_half_a_minute)
{
    static const int64_t intervals[] = {2000, 4000, 8000, 16000, 30000, 30000, 30000};
    int64_t now_ms = 5000;
    open_it(now_ms);
    for (size_t i = 0; i < ARRAY_SIZE(intervals); i++) {
        ck_assert_int_eq(breaker_capacity(&breaker, now_ms + intervals[i] - 1), 0);
        now_ms += intervals[i];
        ck_assert_int_eq(breaker_capacity(&breaker, now_ms), 1);
        run_one(BREAKER_BAD, now_ms);
        ck_assert_int_eq(breaker.state, BREAKER_OPEN);
    }
    now_ms += 30000;
    run_one(BREAKER_GOOD, now_ms);
    open_it(now_ms); /* a good probe forgets the long intervals */
    ck_assert_int_eq(breaker_capacity(&breaker, now_ms + PROBE_MS), 1);
}

TEST(after_a_probe_that_was_not_sent_the_next_may_start_at_once)
{
    open_it(0);
    run_one(BREAKER_NOTHING, PROBE_MS);
    ck_assert_int_eq(breaker.state, BREAKER_OPEN);
    ck_assert_int_eq(breaker_capacity(&breaker, PROBE_MS), 1);
    run_one(BREAKER_BAD, PROBE_MS);
    ck_assert_int_eq(breaker_capacity(&breaker, PROBE_MS + 2 * PROBE_MS), 1); /* doubled once, not twice */
    ck_assert_int_eq(breaker_capacity(&breaker, PROBE_MS + 2 * PROBE_MS - 1), 0);
}

TEST(recovery_begins_with_one_call_and_doubles_each_round_trip)
{
    open_it(0);
    run_one(BREAKER_GOOD, PROBE_MS);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    for (int expected = 1; expected <= LIMIT; expected *= 2) {
        uint32_t epochs[LIMIT];
        int started = 0;
        while (breaker_capacity(&breaker, PROBE_MS) > 0)
            epochs[started++] = breaker_start(&breaker, PROBE_MS);
        ck_assert_int_eq(started, expected);
        for (int i = 0; i < started; i++)
            breaker_end(&breaker, epochs[i], BREAKER_GOOD, NULL, PROBE_MS);
    }
    ck_assert_int_eq(breaker_capacity(&breaker, PROBE_MS), LIMIT); /* and never past the full limit */
}

TEST(calls_from_before_a_change_say_nothing_about_what_came_after)
{
    uint32_t old[LIMIT - 1];
    for (int i = 0; i < LIMIT - 1; i++)
        old[i] = breaker_start(&breaker, 0);
    open_it(0);
    breaker_end(&breaker, old[0], BREAKER_GOOD, NULL, 1); /* cannot close it */
    ck_assert_int_eq(breaker.state, BREAKER_OPEN);
    breaker_end(&breaker, old[1], BREAKER_BAD, "issuer_http_503", PROBE_MS - 1); /* cannot put off the probe */
    ck_assert_int_eq(breaker_capacity(&breaker, PROBE_MS), 1);
    uint32_t probe = breaker_start(&breaker, PROBE_MS);
    breaker_end(&breaker, old[2], BREAKER_GOOD, NULL, PROBE_MS); /* is not the probe */
    ck_assert_int_eq(breaker.state, BREAKER_HALF_OPEN);
    breaker_end(&breaker, old[3], BREAKER_BAD, "issuer_http_503", PROBE_MS);
    ck_assert_int_eq(breaker.state, BREAKER_HALF_OPEN);
    breaker_end(&breaker, probe, BREAKER_GOOD, NULL, PROBE_MS);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    breaker_end(&breaker, old[4], BREAKER_BAD, "issuer_http_503", PROBE_MS); /* the outage is over: old news */
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    breaker_end(&breaker, old[5], BREAKER_GOOD, NULL, PROBE_MS); /* nor does an old success ramp up */
    ck_assert_int_eq(breaker.limit, 1);
}

TEST(too_many_requests_halve_the_limit_once_for_all_that_were_in_flight)
{
    uint32_t epochs[LIMIT];
    for (int i = 0; i < LIMIT; i++)
        epochs[i] = breaker_start(&breaker, 0);
    for (int i = 0; i < LIMIT; i++)
        breaker_end(&breaker, epochs[i], BREAKER_BUSY, "issuer_http_429", 1);
    ck_assert_int_eq(breaker.limit, LIMIT / 2);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    for (int i = 0; i < 10; i++)
        run_one(BREAKER_BUSY, 2);
    ck_assert_int_eq(breaker.limit, 1);
}

TEST(after_too_many_requests_one_call_goes_at_a_time_until_one_is_answered)
{
    run_one(BREAKER_BUSY, 0);
    uint32_t epoch = breaker_start(&breaker, 1);
    ck_assert_int_eq(breaker_capacity(&breaker, 1), 0);
    breaker_end(&breaker, epoch, BREAKER_NOTHING, NULL, 1); /* never left: the next one goes in its place */
    ck_assert_int_eq(breaker_capacity(&breaker, 1), 1);
    run_one(BREAKER_GOOD, 1);
    ck_assert_int_eq(breaker_capacity(&breaker, 1), LIMIT / 2);
}

TEST(above_the_halved_limit_it_grows_by_one_a_window)
{
    run_one(BREAKER_BUSY, 0);
    for (int limit = LIMIT / 2; limit < LIMIT; limit++) {
        for (int i = 0; i < limit; i++) {
            ck_assert_int_eq(breaker.limit, limit);
            run_one(BREAKER_GOOD, 1);
        }
    }
    ck_assert_int_eq(breaker.limit, LIMIT);
    run_one(BREAKER_GOOD, 1);
    ck_assert_int_eq(breaker.limit, LIMIT);
}

TEST(a_probe_that_is_answered_429_closes_it)
{
    open_it(0);
    run_one(BREAKER_BUSY, PROBE_MS);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_int_eq(breaker.limit, 1);
    ck_assert_int_eq(breaker_capacity(&breaker, PROBE_MS), 1);
}

TEST(whatever_happens_in_flight_is_what_was_started_less_what_ended)
{
    enum { CALLS = 64 };
    struct {
        uint32_t epoch;
        bool is_out;
    } calls[CALLS] = {0};
    unsigned int seed = 20261120;
    int out = 0;
    int64_t now_ms = 0;
    int changes = 0;
    for (int i = 0; i < 20000; i++) {
        int n = rand_r(&seed) % CALLS;
        enum breaker_state before = breaker.state;
        if (calls[n].is_out) {
            int any = rand_r(&seed) % (5 * BREAKER_NOTHING);
            breaker_end(&breaker, calls[n].epoch, any <= BREAKER_NOTHING ? (enum breaker_result)any : BREAKER_BAD,
                        "issuer_http_503", now_ms);
            calls[n].is_out = false;
            out--;
        } else if (breaker_capacity(&breaker, now_ms) > 0) {
            calls[n].epoch = breaker_start(&breaker, now_ms);
            calls[n].is_out = true;
            out++;
        }
        now_ms += rand_r(&seed) % 200;
        changes += breaker.state != before;
        ck_assert_int_eq(breaker.in_flight, out);
        ck_assert_int_ge(breaker.limit, 1);
        ck_assert_int_le(breaker.limit, LIMIT);
        ck_assert_int_le(breaker.probe_interval_ms, BREAKER_PROBE_INTERVAL_MAX_MS);
        ck_assert_int_lt(breaker.failures, FAILURES);
        ck_assert(!(breaker_rejects(&breaker, now_ms) && breaker_capacity(&breaker, now_ms) > 0));
    }
    ck_assert_int_gt(changes, 100);
}

/* Operators read since when, and because of what; a probe that fails does not make the outage younger. */
TEST(it_tells_since_when_it_is_open_and_the_last_cause)
{
    ck_assert_str_eq(breaker.cause, "");
    open_it(10);
    ck_assert_int_eq(breaker.since_ms, 10);
    ck_assert_str_eq(breaker.cause, "issuer_http_503");
    uint32_t epoch = breaker_start(&breaker, 10 + PROBE_MS);
    ck_assert_str_eq(breaker.cause, "issuer_http_503");
    breaker_end(&breaker, epoch, BREAKER_BAD, "issuer_no_answer", 20 + PROBE_MS);
    ck_assert_int_eq(breaker.since_ms, 10);
    ck_assert_str_eq(breaker.cause, "issuer_no_answer");
    epoch = breaker_start(&breaker, 20 + 3 * PROBE_MS);
    breaker_end(&breaker, epoch, BREAKER_GOOD, NULL, 30 + 3 * PROBE_MS);
    ck_assert_int_eq(breaker.since_ms, 30 + 3 * PROBE_MS);
    ck_assert_str_eq(breaker.cause, "");
}

TEST(a_probe_may_be_hastened_and_nothing_else_is)
{
    breaker_hasten(&breaker, 5);
    ck_assert_int_eq(breaker_capacity(&breaker, 5), LIMIT);
    open_it(10);
    ck_assert_int_eq(breaker_capacity(&breaker, 11), 0);
    breaker_hasten(&breaker, 11);
    ck_assert_int_eq(breaker_capacity(&breaker, 11), 1);
    breaker_hasten(&breaker, 12); /* it is due since 11 already */
    ck_assert_int_eq(breaker.probe_at_ms, 11);
    uint32_t epoch = breaker_start(&breaker, 12);
    breaker_hasten(&breaker, 13);
    ck_assert_int_eq(breaker_capacity(&breaker, 13), 0); /* one at a time */
    breaker_end(&breaker, epoch, BREAKER_BAD, "issuer_http_503", 14);
    ck_assert_int_eq(breaker.probe_at_ms, 14 + 2 * PROBE_MS);
}

TESTS_BETWEEN(breaker, set_up, NULL)
