/* The story: the clock of the database is set forward by an hour between a create and a look-up. The create looks old,
 * the look-up finds nothing, and the event is REJECTED while its card arrives a second later. So the worker must notice
 * that the clock was set, and must not mistake a slow answer or a slewed clock for it. */
#include <check.h>
#include <stdlib.h>

#include "worker/base/db_clock.h"
#include "tests/support/suite.h"

#define MS INT64_C(1000)
#define SECOND (1000 * MS)
#define HOUR (3600 * SECOND)
#define START (1000 * HOUR) /* the database's time when ours is 0 */

static struct db_clock watched;

/* An answer after so long, read in the middle. */
static enum db_clock_step note(int64_t at_us, int64_t took_us, int64_t ahead_us)
{
    return db_clock_note(&watched, START + at_us + took_us / 2 + ahead_us, at_us, at_us + took_us);
}

static void set_up(void)
{
    watched = (struct db_clock){0};
    ck_assert_int_eq(note(0, MS, 0), DB_CLOCK_STEADY);
}

TEST(nothing_is_known_at_first)
{
    struct db_clock fresh = {0};
    ck_assert_int_eq(db_clock_steady_ms(&fresh, HOUR), 0);
    ck_assert_int_eq(db_clock_steady_ms(&watched, 11 * MS), 10);
}

TEST(a_clock_that_runs_evenly_stays_steady)
{
    for (int64_t at_us = SECOND; at_us < HOUR; at_us += SECOND)
        ck_assert_int_eq(note(at_us, at_us % 7 * MS, at_us / 2000), DB_CLOCK_STEADY); /* slewed by 500 ppm */
    ck_assert_int_eq(db_clock_steady_ms(&watched, HOUR + MS), 3600000);
}

TEST(a_step_begins_a_new_steady_time)
{
    ck_assert_int_eq(note(10 * SECOND, MS, HOUR), DB_CLOCK_SET_FORWARD);
    ck_assert_int_eq(db_clock_steady_ms(&watched, 12 * SECOND + MS), 2000);
    ck_assert_int_eq(note(12 * SECOND, MS, HOUR), DB_CLOCK_STEADY);
    ck_assert_int_eq(note(20 * SECOND, MS, -HOUR), DB_CLOCK_SET_BACK);
    ck_assert_int_eq(db_clock_steady_ms(&watched, 21 * SECOND + MS), 1000);
    ck_assert_int_eq(note(30 * SECOND, MS, -HOUR + 700 * MS), DB_CLOCK_SET_FORWARD);
}

TEST(a_slow_answer_is_no_step_and_hides_none)
{
    ck_assert_int_eq(note(10 * SECOND, 30 * SECOND, 0), DB_CLOCK_STEADY);
    ck_assert_int_eq(note(50 * SECOND, MS, 5 * SECOND), DB_CLOCK_SET_FORWARD);
}

TEST(a_suspended_machine_shows_as_a_step)
{
    /* Our clock stood still for an hour, the database's did not. */
    ck_assert_int_eq(note(SECOND, MS, HOUR), DB_CLOCK_SET_FORWARD);
}

TESTS_BETWEEN(db_clock, set_up, NULL)
