/* See sweep_pace.h. */
#include "worker/flow/sweep_pace.h"

#define ROWS_MOST_MS 20 /* above it a look was too wide, below ROWS_LITTLE_MS it might have been wider */
#define ROWS_LITTLE_MS 5
#define REST_FACTOR 50      /* of what the rows of a look cost */
#define REST_EMPTY_FACTOR 4 /* of what a look at nothing costs */
#define REST_YOUNG_FACTOR 9
#define REST_MOST_MS 30000
#define SPEED 2              /* a walk's, compared to that at which events age */
#define WIDTH_FIRST_MS 60000 /* the first that is not unbounded */
#define WIDTH_LEAST_MS 1000
#define WIDTH_MOST_MS (24 * 3600 * 1000)
#define PATIENCE_MOST_MS (3600 * 1000)
#define AGE_MOST_MS (40LL * 24 * 3600 * 1000)

static int64_t least(int64_t left, int64_t right)
{
    return left < right ? left : right;
}

static int64_t most(int64_t left, int64_t right)
{
    return left > right ? left : right;
}

static void begin_walk(struct sweep_pace *pace, int64_t now_ms)
{
    pace->age_ms = SWEEP_YOUNG_MS;
    pace->began_ms = now_ms;
    pace->least_width_ms = pace->width_ms;
}

void sweep_pace_init(struct sweep_pace *pace, int64_t poll_interval_ms, int64_t now_ms)
{
    *pace = (struct sweep_pace){
        .poll_interval_ms = poll_interval_ms, .width_ms = SWEEP_UNBOUNDED, .patience_ms = SWEEP_WALK_MS};
    for (int i = 0; i < SWEEP_YOUNG_COSTS; i++)
        pace->young_costs_ms[i] = -1;
    begin_walk(pace, now_ms);
}

int64_t sweep_pace_young(struct sweep_pace *pace, int64_t now_ms, int64_t cost_ms)
{
    pace->young_costs_ms[pace->young_next] = cost_ms;
    pace->young_next = (pace->young_next + 1) % SWEEP_YOUNG_COSTS;
    return now_ms + most(least(cost_ms * REST_YOUNG_FACTOR, REST_MOST_MS), pace->poll_interval_ms);
}

/* Of a look of this cost, the part that a look at nothing has too. */
static int64_t empty_cost_ms(const struct sweep_pace *pace, int64_t cost_ms)
{
    int64_t empty_ms = INT64_MAX;
    for (int i = 0; i < SWEEP_YOUNG_COSTS; i++)
        if (pace->young_costs_ms[i] >= 0)
            empty_ms = least(empty_ms, pace->young_costs_ms[i]);
    return empty_ms == INT64_MAX ? 0 : least(empty_ms, cost_ms);
}

/* After a look of this width whose rows cost rows_ms. */
static int64_t next_width_ms(int64_t width_ms, int64_t rows_ms)
{
    if (rows_ms > ROWS_MOST_MS)
        return width_ms == SWEEP_UNBOUNDED ? WIDTH_FIRST_MS : most(width_ms / 2, WIDTH_LEAST_MS);
    if (rows_ms >= ROWS_LITTLE_MS || width_ms == SWEEP_UNBOUNDED)
        return width_ms;
    return width_ms * 2 > WIDTH_MOST_MS ? SWEEP_UNBOUNDED : width_ms * 2;
}

int64_t sweep_pace_old(struct sweep_pace *pace, int64_t now_ms, int64_t cost_ms, int64_t looked, bool was_full)
{
    bool was_last = pace->width_ms == SWEEP_UNBOUNDED;
    /* guard: what a look at nothing costs too does not narrow the next */
    int64_t empty_ms = empty_cost_ms(pace, cost_ms), rows_ms = cost_ms - empty_ms;
    int64_t rest_least_ms = empty_ms * REST_EMPTY_FACTOR;
    int64_t step_least_ms = cost_ms + rest_least_ms;
    int64_t rest_ms = least(rows_ms * REST_FACTOR, REST_MOST_MS);
    if (!was_last)
        /* guard: a walk of the sweep is faster than events age */
        rest_ms = least(rest_ms, pace->width_ms / SPEED - cost_ms);
    int64_t due_ms = now_ms + most(rest_ms, rest_least_ms);
    /* guard: the sweep reads so many rows a poll and no more */
    due_ms = most(due_ms, now_ms + pace->poll_interval_ms * looked / SWEEP_LOOKS);
    if (was_full) /* there is more where it looked */
        return due_ms;

    int64_t next_ms = most(next_width_ms(pace->width_ms, rows_ms), SPEED * step_least_ms);
    if (!was_last) {
        pace->age_ms += pace->width_ms;
        /* guard: a walk of the sweep ends with all that is left */
        if (pace->age_ms >= AGE_MOST_MS || now_ms - pace->began_ms >= pace->patience_ms)
            next_ms = SWEEP_UNBOUNDED;
        else
            pace->least_width_ms = least(pace->least_width_ms, next_ms);
        pace->width_ms = next_ms;
        return due_ms;
    }
    pace->patience_ms = SWEEP_WALK_MS;
    /* The next walk begins with what the densest part of this one allowed. */
    due_ms = most(due_ms, pace->began_ms + pace->poll_interval_ms);
    pace->width_ms = least(pace->least_width_ms, next_ms);
    begin_walk(pace, due_ms);
    return due_ms;
}

int64_t sweep_pace_late(struct sweep_pace *pace, int64_t now_ms, int64_t limit_ms)
{
    if (pace->width_ms == SWEEP_UNBOUNDED) { /* the walk goes on, and tries all that is left again later */
        pace->began_ms = now_ms;
        pace->patience_ms = least(pace->patience_ms * 2, PATIENCE_MOST_MS);
    }
    pace->width_ms = next_width_ms(pace->width_ms, limit_ms);
    pace->least_width_ms = pace->width_ms;
    return now_ms + pace->poll_interval_ms;
}
