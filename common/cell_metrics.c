/* See cell_metrics.h. */
#include "common/cell_metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/daemon_metrics.h"

/* The states of a bucket (docs/scaling.md). Each is shown from the start, so that the first move can be seen. */
static const char *const states[] = {"here", "listing", "draining", "closed", "gone", "arriving", "away"};

/* Columns of sql_cell_gauges. */
enum { NAME, SINCE, STATE, BUCKETS, AGE_MS };

static bool is_of_move(const char *state)
{
    return strcmp(state, "here") != 0 && strcmp(state, "away") != 0;
}

static void set(struct metrics *metrics, enum daemon_metric metric, const char *state, double value)
{
    metric_set(metrics_series(metrics, metric, state, NULL), value);
}

void cell_metrics_show(struct metrics *metrics, const struct pg_rows *rows)
{
    char since[24];
    metrics_set_all(metrics, DAEMON_METRIC_CELL_INFO, 0); /* after a change to another database */
    for (size_t i = 0; pg_rows_count(rows) > 0 && i < ARRAY_SIZE(states); i++) {
        set(metrics, DAEMON_METRIC_CELL_BUCKETS, states[i], 0);
        if (is_of_move(states[i]))
            set(metrics, DAEMON_METRIC_CELL_STATE_AGE, states[i], 0);
    }
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *state = pg_bytes(rows, row, STATE).bytes;
        snprintf(since, sizeof(since), "%" PRId64, pg_int8(rows, row, SINCE));
        metric_set(metrics_series(metrics, DAEMON_METRIC_CELL_INFO, pg_bytes(rows, row, NAME).bytes, since), 1);
        if (!state)
            continue;
        set(metrics, DAEMON_METRIC_CELL_BUCKETS, state, (double)pg_int8(rows, row, BUCKETS));
        if (is_of_move(state))
            set(metrics, DAEMON_METRIC_CELL_STATE_AGE, state, (double)pg_int8(rows, row, AGE_MS) / 1e3);
    }
}
