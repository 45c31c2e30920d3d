/* The last day by the hour, and the last 30 days, as plots, by outbox_statistics as `issuing-ctl stats` has them: an
 * event counts in the hour and the day in which it ended, and every event does. */
#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/console/plot.h"
#include "ctl/console/status.h"

static void write_plot(struct buf *out, const struct plot *plot, const struct pg_rows *rows, const char *heading)
{
    html_put(out, "<section aria-labelledby=\"{}-h\"><h2 id=\"{}-h\">{}</h2>\n", 3, plot->id, plot->id, heading);
    plot_write(out, plot, rows);
    buf_put_text(out, "</section>\n");
}

bool page_statistics(struct page *page, struct err *err)
{
    static const struct plot_series times[] = {{ENDS_P50, "half of the events within", "line accepted"},
                                               {ENDS_P99, "99 of 100 events within", "line failed"}};
    const struct plot spans = {.id = "spans",
                               .title = "Time from acceptance to the final status, by the hour in which events ended",
                               .series = times,
                               .series_count = 2,
                               .is_duration = true};
    struct plot days = status_plot_ends;
    days.id = "days";
    days.title = "Events by the day in which they ended";
    days.is_by_day = true;
    const struct pg_rows *by_hour, *by_day;
    if (!status_read(page->console, STATUS_HOURS, &by_hour, err) ||
        !status_read(page->console, STATUS_DAYS, &by_day, err))
        return false;
    buf_put_text(page->out, "<h1>Statistics</h1>\n<p>An event counts in the hour and in the day (UTC) in which it "
                            "ended; the last ones are not over. These figures follow the events by a few seconds; "
                            "<code>issuing-ctl stats</code> shows them by type and reason.</p>\n");
    write_plot(page->out, &status_plot_ends, by_hour, "The last day");
    write_plot(page->out, &spans, by_hour, "Time to the final status");
    write_plot(page->out, &days, by_day, "The last 30 days");
    return true;
}
