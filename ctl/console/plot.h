/* A plot over time as inline SVG, with its figures as a table for people who cannot see it. */
#ifndef ISSUING_CONSOLE_PLOT_H
#define ISSUING_CONSOLE_PLOT_H

#include "common/lib/base/buf.h"
#include "common/lib/pg/pg_result.h"

/* A column of the rows: int8. NULL ends a line and begins it again behind the gap. */
struct plot_series {
    int column;
    const char *name;
    const char *class; /* of console.css: colour and dash */
};

struct plot {
    const char *id;    /* unique on the page */
    const char *title; /* what a screen reader says instead of the picture */
    const struct plot_series *series;
    int series_count;
    bool is_duration; /* the values are ms; else numbers */
    bool is_by_day;   /* the axis shows days; else times of the day */
    bool is_small;
};

/* rows: the first column is the time at which a part begins, oldest first. */
void plot_write(struct buf *out, const struct plot *plot, const struct pg_rows *rows);
/* The top of an axis: the first round value that is not below `value`, at least 1. is_duration: ms, round in its
 * units. */
int64_t plot_top(int64_t value, bool is_duration);

#endif
