/* The story: an event becomes visible late, behind the claims' bookmark. However much a look costs, and for whatever
 * reason, a walk reaches it soon; and where the entries are what costs, the walk leaves the database its time. */
#include "worker/flow/sweep_pace.h"

#include "tests/support/suite.h"

#define SECOND_MS INT64_C(1000)
#define HOUR_MS (3600 * SECOND_MS)
#define DAY_MS (24 * HOUR_MS)
#define POLL_MS 500
#define LIMIT_MS 10000 /* of a look */

/* A database in which a look costs `empty_ms`, `busy_ms` more unless it is at the young events, and `dense_us` for each
 * second of the events' age that it looks at, back to `dense_until_ms`. */
struct world {
    int64_t empty_ms, busy_ms, dense_us, dense_until_ms;
};

static int64_t cost_of(const struct world *world, int64_t from_ms, int64_t to_ms, bool is_young)
{
    int64_t until_ms = to_ms < world->dense_until_ms ? to_ms : world->dense_until_ms;
    int64_t rows_ms = until_ms > from_ms ? (until_ms - from_ms) / 1000 * world->dense_us / 1000 : 0;
    return world->empty_ms + (is_young ? 0 : world->busy_ms) + rows_ms;
}

struct course {
    int64_t seen_after_ms; /* of the event */
    int64_t spent_ms;      /* by looks, up to then */
};

/* The sweep has run for `before_ms` when an event becomes visible that is due since `age_ms`. */
static struct course walk(const struct world *world, int64_t before_ms, int64_t age_ms)
{
    const int64_t give_up_ms = before_ms + 100 * DAY_MS;
    struct sweep_pace pace;
    int64_t now_ms = 0, young_due_ms = 0, old_due_ms = 0, spent_ms = 0;
    sweep_pace_init(&pace, POLL_MS, now_ms);
    while (now_ms < give_up_ms) {
        bool is_young = young_due_ms <= now_ms;
        if (!is_young && old_due_ms > now_ms) {
            now_ms = young_due_ms < old_due_ms ? young_due_ms : old_due_ms;
            continue;
        }
        bool is_last = pace.width_ms == SWEEP_UNBOUNDED;
        int64_t from_ms = is_young ? 0 : pace.age_ms;
        int64_t to_ms = is_young ? SWEEP_YOUNG_MS : is_last ? INT64_MAX : pace.age_ms + pace.width_ms;
        int64_t cost_ms = cost_of(world, from_ms, to_ms, is_young), event_ms = age_ms + now_ms - before_ms;
        bool is_late = cost_ms >= LIMIT_MS;
        bool is_seen = now_ms >= before_ms && !is_late && event_ms >= from_ms && event_ms <= to_ms;
        now_ms += is_late ? LIMIT_MS : cost_ms;
        spent_ms += is_late ? LIMIT_MS : cost_ms;
        if (is_seen)
            return (struct course){now_ms - before_ms, spent_ms};
        if (is_young)
            young_due_ms = sweep_pace_young(&pace, now_ms, cost_ms);
        else if (is_late)
            old_due_ms = sweep_pace_late(&pace, now_ms, LIMIT_MS);
        else
            old_due_ms = sweep_pace_old(&pace, now_ms, cost_ms, 0, false);
    }
    return (struct course){INT64_MAX, spent_ms};
}

static const int64_t ages_ms[] = {3 * SECOND_MS, 60 * SECOND_MS, HOUR_MS, 10 * DAY_MS, 100 * DAY_MS};

TEST(a_look_that_costs_the_same_whatever_it_finds_delays_nothing)
{
    static const int64_t costs_ms[] = {0, 10, 30, 100, 300, 1000, 3000};
    for (size_t i = 0; i < ARRAY_SIZE(costs_ms); i++)
        for (size_t j = 0; j < ARRAY_SIZE(ages_ms); j++) {
            struct world world = {.empty_ms = costs_ms[i]};
            struct course course = walk(&world, 25 * SECOND_MS, ages_ms[j]);
            ck_assert_int_le(course.seen_after_ms, 2 * POLL_MS + 8 * costs_ms[i]);
        }
}

/* The planner takes another plan for what is old, or the server is busy whenever it is asked that. */
TEST(a_cost_that_the_young_looks_do_not_show_delays_nothing_for_long)
{
    static const int64_t costs_ms[] = {10, 30, 100, 300, 1000, 3000, 8000};
    for (size_t i = 0; i < ARRAY_SIZE(costs_ms); i++)
        for (size_t j = 0; j < ARRAY_SIZE(ages_ms); j++) {
            struct world world = {.empty_ms = 1, .busy_ms = costs_ms[i]};
            struct course course = walk(&world, HOUR_MS, ages_ms[j]);
            ck_assert_int_le(course.seen_after_ms, 180 * SECOND_MS);
        }
}

/* A snapshot is held for six hours, in which each second left entries that take 6 ms to pass over: the look at all of
 * it is never answered. What is due since an hour is found after an hour and a half at most, since the walk is twice as
 * fast as events age; and the looks take a tenth of the time at most. */
TEST(behind_a_snapshot_that_is_held_the_walk_is_cut_and_moves_on)
{
    struct world world = {.empty_ms = 1, .dense_us = 6000, .dense_until_ms = 6 * HOUR_MS};
    struct course before = walk(&world, 6 * HOUR_MS, 0), course = walk(&world, 6 * HOUR_MS, HOUR_MS);
    ck_assert_int_le(course.seen_after_ms, HOUR_MS + HOUR_MS / 2);
    ck_assert_int_le(before.spent_ms, 6 * HOUR_MS / 7);
    course = walk(&world, 6 * HOUR_MS, 60 * SECOND_MS);
    ck_assert_int_le(course.seen_after_ms, 2 * HOUR_MS);
}

/* A minute of such entries. */
TEST(a_short_snapshot_is_hardly_noticed)
{
    struct world world = {.empty_ms = 1, .dense_us = 6000, .dense_until_ms = 60 * SECOND_MS};
    struct course course = walk(&world, HOUR_MS, 50 * SECOND_MS);
    ck_assert_int_le(course.seen_after_ms, 60 * SECOND_MS);
    ck_assert_int_le(course.spent_ms, HOUR_MS / 10);
}

/* However slow every look is, the walk moves on. */
TEST(the_width_never_comes_to_nothing)
{
    struct sweep_pace pace;
    int64_t now_ms = 0, age_ms;
    sweep_pace_init(&pace, POLL_MS, now_ms);
    for (int i = 0; i < 100; i++) {
        now_ms = sweep_pace_late(&pace, now_ms + LIMIT_MS, LIMIT_MS);
        ck_assert_int_ge(pace.width_ms, 1);
    }
    ck_assert_int_le(pace.width_ms, SECOND_MS);
    age_ms = pace.age_ms;
    now_ms = sweep_pace_old(&pace, now_ms, 100, 0, true);
    ck_assert_int_eq(pace.age_ms, age_ms); /* there is more where it looked */
    (void)sweep_pace_old(&pace, now_ms, 100, 0, false);
    ck_assert_int_gt(pace.age_ms, age_ms);
}

/* Behind a pause there is a backlog of any length, and a piece of it costs next to nothing. */
TEST(so_many_rows_are_looked_at_a_poll)
{
    struct sweep_pace pace;
    sweep_pace_init(&pace, POLL_MS, 0);
    ck_assert_int_eq(sweep_pace_old(&pace, 1000, 0, SWEEP_LOOKS, true), 1000 + POLL_MS);
    ck_assert_int_eq(sweep_pace_old(&pace, 5000, 0, 20 * SWEEP_LOOKS, true), 5000 + 20 * POLL_MS); /* due together */
    ck_assert_int_eq(sweep_pace_old(&pace, 90000, 0, SWEEP_LOOKS / 100, true), 90000 + POLL_MS / 100);
    ck_assert_int_eq(pace.age_ms, SWEEP_YOUNG_MS);
}

TESTS(sweep_pace)
