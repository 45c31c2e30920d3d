/* Story: whatever fails whenever, each request ends as one card, one refusal, or one question. A moment of the
 * simulation (tests/simulate/), always the same schedules; `./dev simulate` runs others. */
#include "tests/simulate/sim.h"
#include "tests/support/suite.h"

enum { PARTS = 4, SCHEDULES = 250 };

START_TEST(no_schedule_breaks_an_invariant)
{
    for (int i = 0; i < SCHEDULES; i++) {
        uint64_t seed = (uint64_t)(_i * SCHEDULES + i + 1);
        ck_assert_msg(sim_run(seed, false), "seed %d: %s", (int)seed, sim.failure);
    }
    ck_assert_int_gt(sim_totals.completed, 0);
    ck_assert_int_gt(sim_totals.faults, 0);
}

TEST(a_seed_is_a_schedule)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ck_assert(sim_run(seed, false));
        int64_t tasks = sim.tasks_run, now_us = sim.now_us;
        ck_assert(sim_run(seed, false));
        ck_assert_int_eq(sim.tasks_run, tasks);
        ck_assert_int_eq(sim.now_us, now_us);
    }
}

/* As schedule 398 once found: both targets were paused since the worker's start. */
TEST(a_clock_that_is_set_back_before_the_first_claim_delays_no_event)
{
    sim_begin(1, false);
    sim.faults_until_us = sim.now_us;
    sim.is_paused[0] = sim.is_paused[1] = true;
    sim_pass(MINUTE);
    sim.db_offset_us -= 30 * HOUR;
    ck_assert_msg(sim_finish(), "%s", sim.failure);
}

/* As seed 2035970 found: core-api was paused, so nothing was claimed meanwhile, and the event that was accepted with
 * the clock ahead waited for its time. */
TEST(a_clock_that_steps_forth_and_back_during_a_pause_delays_no_event)
{
    sim_begin(1, false);
    sim.faults_until_us = sim.now_us;
    sim_pass(2 * MINUTE);
    sim.is_paused[1] = true;
    sim_pass(MINUTE);
    sim.db_offset_us += 30 * HOUR;
    sim_event_make(sim.event_count);
    sim_outbox_accept(sim.event_count++);
    sim_pass(MINUTE);
    sim.db_offset_us -= 30 * HOUR;
    ck_assert_msg(sim_finish(), "%s", sim.failure);
}

/* The worker that comes back was never told of the clock's step. */
TEST(a_clock_that_is_set_back_while_no_worker_runs_delays_no_event)
{
    sim_begin(1, false);
    sim.faults_until_us = sim.now_us;
    sim_pass(2 * MINUTE);
    for (int i = 0; i < sim.worker_count; i++)
        sim_worker_kill(&sim.workers[i], MINUTE);
    sim.db_offset_us += 30 * HOUR;
    sim_event_make(sim.event_count);
    sim_outbox_accept(sim.event_count++);
    sim_pass(MINUTE / 2);
    sim.db_offset_us -= 30 * HOUR;
    ck_assert_msg(sim_finish(), "%s", sim.failure);
}

/* A look reads a few events only, the last due ones first (tests/simulate/outbox.c). */
TEST(a_lease_that_ran_out_behind_a_backlog_is_taken_back_during_a_pause)
{
    sim_begin(1, false);
    sim.faults_until_us = sim.now_us;
    sim_pass(2 * MINUTE);
    sim.is_paused[0] = sim.is_paused[1] = true;
    sim_pass(MINUTE);
    while (sim.event_count < SIM_EVENTS_FIRST) {
        sim_event_make(sim.event_count);
        sim_outbox_accept(sim.event_count++);
    }
    for (int i = 0; i < sim.event_count; i++) {
        sim.events[i].status = OUTBOX_PENDING;
        sim.events[i].next_us = sim_db_now_us() - MINUTE + i * SECOND;
    }
    struct sim_event *lost = &sim.events[0];
    lost->status = OUTBOX_PROCESSING;
    lost->has_token = true;
    lost->lease_until_us = sim_db_now_us() - SECOND;
    sim_pass(MINUTE);
    ck_assert_int_eq(lost->status, OUTBOX_PENDING);
}

/* As the first seed found: two attempts lost their leases at the same moment, and the second report waited for a poll,
 * behind which the worker could have ended. In the second one it comes while the first is under way. */
START_TEST(two_creates_that_were_late_together_are_reported_together)
{
    static const uint64_t seeds[] = {489846, 47347};
    ck_assert_msg(sim_run(seeds[_i], false), "%s", sim.failure);
}

/* As this seed found: a claim took so long that an outage began meanwhile, and answers from before it counted against
 * the event. */
TEST(an_outage_that_begins_while_a_claim_is_under_way_ends_no_event)
{
    ck_assert_msg(sim_run(33975, false), "%s", sim.failure);
}

/* As these seeds found: core-api had been asked less than a millisecond after the claim was sent. */
START_TEST(a_check_right_after_the_claim_is_one_of_this_attempt)
{
    static const uint64_t seeds[] = {1140, 14548};
    ck_assert_msg(sim_run(seeds[_i], false), "%s", sim.failure);
}

SUITE(simulate)
{
    TCase *tcase = tcase_create("simulate");
    tcase_add_loop_test(tcase, no_schedule_breaks_an_invariant, 0, PARTS);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, two_creates_that_were_late_together_are_reported_together, 0, 2);
    tcase_add_loop_test(tcase, a_check_right_after_the_claim_is_one_of_this_attempt, 0, 2);
    suite_add_tcase(suite, tcase);
}
