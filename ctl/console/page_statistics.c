/* The last day by the hour, as plots: what was accepted, how it ended, how long that took. Then the last 30 days.
 *
 * In the plots of the last day an event counts in the hour in which it was accepted, whenever it ended, so that the
 * lines of one hour add up. The plot of the days is that of `issuing-ctl stats --by day`: an event counts in the day in
 * which it ended. */
#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/console/plot.h"
#include "ctl/console/status.h"

#define HOUR_S 3600
#define HOURS 24
#define DAYS 30

enum flow_column { FROM_AT, ACCEPTED, COMPLETED, REJECTED, FAILED, STILL_OPEN, P50, P99, IS_CUT };

static bool write_days(struct page *page, struct err *err)
{
    enum days_column { DAY_FROM_AT, DAY_COMPLETED, DAY_REJECTED, DAY_FAILED };
    static const struct plot_series ends[] = {{DAY_COMPLETED, "completed", "line completed"},
                                              {DAY_REJECTED, "rejected", "line rejected"},
                                              {DAY_FAILED, "failed", "line failed"}};
    const struct plot plot = {.id = "days",
                              .title = "Events by the day in which they ended",
                              .series = ends,
                              .series_count = ARRAY_SIZE(ends),
                              .is_by_day = true};
    const struct pg_rows *rows;
    if (!status_read_days(page->console, DAYS, &rows, err))
        return false;
    buf_put_text(page->out, "<section aria-labelledby=\"days-h\"><h2 id=\"days-h\">The last 30 days</h2>\n"
                            "<p>An event counts in the day (UTC) in which it ended. These figures follow the events by "
                            "a few seconds; <code>issuing-ctl stats</code> shows them by type and reason.</p>\n");
    plot_write(page->out, &plot, rows);
    buf_put_text(page->out, "</section>\n");
    return true;
}

bool page_statistics(struct page *page, struct err *err)
{
    static const struct plot_series ends[] = {{ACCEPTED, "accepted", "line accepted"},
                                              {COMPLETED, "completed", "line completed"},
                                              {REJECTED, "rejected", "line rejected"},
                                              {FAILED, "failed", "line failed"}};
    static const struct plot_series times[] = {{P50, "half of the events within", "line accepted"},
                                               {P99, "99 of 100 events within", "line failed"}};
    const struct plot counts = {.id = "ends",
                                .title = "Events by the hour of their acceptance, and how they ended",
                                .series = ends,
                                .series_count = ARRAY_SIZE(ends)};
    const struct plot spans = {.id = "spans",
                               .title = "Time from acceptance to the final status, by the hour of acceptance",
                               .series = times,
                               .series_count = ARRAY_SIZE(times),
                               .is_duration = true};
    const struct pg_rows *rows;
    bool is_cut = false;
    if (!status_read_flow(page->console, HOUR_S, HOURS, &rows, err))
        return false;
    for (int row = 0; row < pg_rows_count(rows); row++)
        is_cut = is_cut || pg_bool(rows, row, IS_CUT);
    buf_put_text(page->out, "<h1>Statistics</h1>\n<p>The last 24 hours by the hour. An event counts in the hour in "
                            "which it was accepted, whenever it ended.</p>\n");
    if (is_cut)
        buf_put_text(page->out, "<p class=\"notice\">In hours with more than 5000 events only 5000 are counted here, "
                                "so the lines end there. The metrics count all events.</p>\n");
    buf_put_text(page->out, "<section aria-labelledby=\"ends-h\"><h2 id=\"ends-h\">Accepted, and how it ended</h2>\n");
    plot_write(page->out, &counts, rows);
    buf_put_text(page->out,
                 "</section>\n<section aria-labelledby=\"spans-h\"><h2 id=\"spans-h\">Time to the final status</h2>\n");
    plot_write(page->out, &spans, rows);
    buf_put_text(page->out, "</section>\n");
    return write_days(page, err);
}
