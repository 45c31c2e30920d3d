/* The overview: is all well, what waits for an operator, how far behind are we, who works. It refreshes itself, so its
 * questions are bounded, and the costly ones are asked again only after a pause that grows with their cost. */
#include <inttypes.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/console/plot.h"
#include "ctl/console/status.h"

#define REASONS_SHOWN 20

enum flow_column { FROM_AT, ACCEPTED, COMPLETED, REJECTED, FAILED, IS_CUT };

/* Events accepted and ended in the last hours: from the rows, in steps of ten minutes; if these are too many to read
 * again and again, from the statistics of the hours in which events ended. */
struct flow {
    const struct pg_rows *parts, *hours; /* hours: instead of parts; both NULL = the database took too long */
    int64_t begun, completed, rejected;  /* begun: accepted, or ended */
    char since[40];
};

static void write_summary(struct buf *out, const struct cluster *cluster, const struct verdict_facts *facts)
{
    struct verdict verdict;
    verdict_of(cluster, facts, &verdict);
    html_put(out,
             "<p id=\"summary\" data-live role=\"status\" aria-live=\"polite\" class=\"notice {}\">"
             "<span aria-hidden=\"true\">{}</span> {}",
             3,
             verdict.is_grave ? "bad"
             : verdict.is_bad ? "warn"
                              : "good",
             verdict.is_bad ? "\xE2\x96\xB2" : "\xE2\x9C\x93", verdict.text);
    if (verdict.todo[0])
        html_put(out, "<br><strong>Do:</strong> {}.", 1, verdict.todo);
    buf_put_text(out, "</p>\n");
}

static void write_tile(struct buf *out, const char *href, const char *label, int64_t number, bool or_more,
                       const char *more)
{
    html_put(out, "<li><a href=\"{}\"><span class=\"label\">{}</span> <span class=\"figure\">", 2, href, label);
    html_number(out, number);
    html_put(out, "{}</span> <span class=\"hint\">{}</span></a></li>\n", 2, or_more ? "+" : "", more);
}

static void write_tiles(struct buf *out, const struct verdict_facts *facts, const struct flow *flow)
{
    char age[96] = "none", span[PRINT_SPAN_SIZE], later[PRINT_NUMBER_SIZE];
    bool or_more = facts->pending + facts->processing >= VERDICT_EVENTS_MAX;
    if (facts->oldest_us != 0)
        snprintf(age, sizeof(age), "oldest %s", print_span(facts->now_us - facts->oldest_us, span));
    if (facts->scheduled > 0)
        snprintf(age + strlen(age), sizeof(age) - strlen(age), ", %s to run later",
                 print_number(facts->scheduled, later));
    buf_put_text(out, "<ul id=\"tiles\" class=\"tiles\" data-live>\n");
    write_tile(out, "/events?status=FAILED&order=oldest", "Wait for an operator", facts->failed,
               facts->failed >= VERDICT_EVENTS_MAX, facts->failed > 0 ? "FAILED" : "none");
    write_tile(out, "/events?unknown=1&order=oldest", "Unknown outcome", facts->unknown,
               or_more || facts->failed >= VERDICT_EVENTS_MAX, "PENDING and FAILED");
    write_tile(out, "/events?status=PENDING&order=oldest", "Pending", facts->pending, or_more, age);
    write_tile(out, "/events?overdue=1&order=oldest", "Overdue", facts->overdue, facts->overdue >= VERDICT_EVENTS_MAX,
               "due for a minute");
    write_tile(out, "/events?status=PROCESSING", "Processing", facts->processing,
               facts->processing >= VERDICT_EVENTS_MAX, "held by workers");
    if (flow->parts || flow->hours) {
        write_tile(out, "/statistics", flow->hours ? "Ended, last 6 h" : "Accepted, last 6 h", flow->begun, false,
                   flow->since);
        write_tile(out, "/events?status=COMPLETED&since=6h", "Completed, last 6 h", flow->completed, false, "of these");
        write_tile(out, "/events?status=REJECTED&since=6h", "Rejected, last 6 h", flow->rejected, false, "of these");
    }
    buf_put_text(out, "</ul>\n");
}

static void write_reasons(struct buf *out, const struct pg_rows *failed)
{
    html_section(out, "failed", "Failed, by reason");
    if (pg_rows_count(failed) == 0) {
        buf_put_text(out, "<p class=\"empty\">No event waits for an operator.</p></section>\n");
        return;
    }
    html_table(out, "FAILED events by reason", NULL, "Reason|Type|#Events|First|Last");
    for (int row = 0; row < pg_rows_count(failed) && row < REASONS_SHOWN; row++) {
        const char *code = pg_text(failed, row, FAILED_CODE), *type = pg_text(failed, row, FAILED_TYPE);
        buf_put_text(out, "<tr><th scope=\"row\"><a href=\"/events?status=FAILED&amp;order=oldest&amp;code=");
        html_url(out, code);
        buf_put_text(out, "&amp;type=");
        html_url(out, type);
        html_put(out, "\">{}</a></th><td>{}</td>", 2, code, type);
        html_cell_number(out, pg_int8(failed, row, FAILED_EVENTS));
        html_cell_time(out, pg_time_us(failed, row, FAILED_SINCE));
        html_cell_time(out, pg_time_us(failed, row, FAILED_LAST));
        buf_put_text(out, "</tr>\n");
    }
    html_table_end(out);
    buf_put_text(out, "</section>\n");
}

/* Only where there is another type than that of card requests. */
static void write_types(struct buf *out, const struct pg_rows *open)
{
    struct backlog_type type;
    if (!backlog_has_types(open))
        return;
    html_section(out, "types", "Types of events");
    html_table(out, "Open events by type", NULL, "Type|#Pending|#Held back|#Processing|Oldest|Delivered");
    for (int row = 0; backlog_next(open, &row, &type);) {
        const int64_t shown[] = {backlog_waiting(&type), type.held, type.processing};
        buf_put_text(out, "<tr><th scope=\"row\"><a href=\"/events?status=PENDING&amp;order=oldest");
        if (!strchr(type.name, ' ')) { /* "n other types" */
            buf_put_text(out, "&amp;type=");
            html_url(out, type.name);
        }
        html_put(out, "\">{}</a></th>", 1, type.name);
        for (size_t i = 0; i < ARRAY_SIZE(shown); i++) {
            buf_put_text(out, "<td class=\"number\">");
            html_number(out, shown[i]);
            buf_put_text(out, backlog_is_cut(open, type.name) ? "+</td>" : "</td>");
        }
        buf_put_text(out, "<td>");
        if (backlog_waiting(&type) > 0)
            html_span(out, backlog_age_us(&type, backlog_now_us(open)));
        html_put(out, "</td><td>{}</td></tr>\n", 1, backlog_delivered_by(&type));
    }
    html_table_end(out);
    buf_put_text(out, "</section>\n");
}

static bool read_flow(struct console *console, struct flow *flow, struct err *err)
{
    bool is_cut = false;
    *flow = (struct flow){.since = "events"};
    if (!status_read(console, STATUS_FLOW, &flow->parts, err))
        return status_is_slow(err);
    for (int row = 0; row < pg_rows_count(flow->parts); row++) {
        flow->begun += pg_int8(flow->parts, row, ACCEPTED);
        flow->completed += pg_int8(flow->parts, row, COMPLETED);
        flow->rejected += pg_int8(flow->parts, row, REJECTED);
        is_cut = is_cut || pg_bool(flow->parts, row, IS_CUT);
    }
    if (!is_cut)
        return true;
    *flow = (struct flow){.since = "events"};
    if (!status_read(console, STATUS_HOURS, &flow->hours, err))
        return status_is_slow(err);
    int rows = pg_rows_count(flow->hours), first = rows - 1 - FLOW_PARTS * FLOW_PART_S / 3600;
    char time[CLOCK_RFC3339_SIZE];
    for (int row = first; row < rows; row++) {
        flow->completed += pg_int8(flow->hours, row, ENDS_COMPLETED);
        flow->rejected += pg_int8(flow->hours, row, ENDS_REJECTED);
        flow->begun += pg_int8(flow->hours, row, ENDS_FAILED);
    }
    flow->begun += flow->completed + flow->rejected;
    clock_format(pg_time_us(flow->hours, first, ENDS_FROM_AT), time);
    snprintf(flow->since, sizeof(flow->since), "events, since %.5s", time + 11);
    return true;
}

static void write_flow(struct buf *out, const struct flow *flow)
{
    static const struct plot_series series[] = {{ACCEPTED, "accepted", "line accepted"},
                                                {COMPLETED, "completed", "line completed"},
                                                {FAILED, "failed", "line failed"}};
    const struct plot parts = {
        .id = "flow",
        .title = "Events accepted in the last six hours, in steps of ten minutes, and how they ended",
        .series = series,
        .series_count = ARRAY_SIZE(series),
        .is_small = true,
    };
    struct plot hours = status_plot_ends;
    hours.id = "flow";
    hours.is_small = true;
    html_section(out, "line", flow->hours ? "The last day" : "The last six hours");
    plot_write(out, flow->hours ? &hours : &parts, flow->hours ? flow->hours : flow->parts);
    buf_put_text(out, "</section>\n");
}

/* One slow question costs its part of the page only. A part that is missing is the same element, so that the next
 * refresh brings it back. */
static void write_missing(struct buf *out, const char *id, const char *what)
{
    html_put(out,
             "<section id=\"{}\" data-live><p class=\"notice warn\">The database took too long, or a lock is held: {} "
             "cannot be shown now.</p></section>\n",
             2, id, what);
}

static bool write_head(struct page *page, const struct cluster *cluster, const struct pg_rows *failed,
                       const struct flow *flow, struct err *err)
{
    struct verdict_facts facts;
    buf_put_text(page->out, "<h1>Overview</h1>\n");
    if (!cluster->open || !failed || !status_read_facts(page->console, cluster->open, failed, &facts, err)) {
        write_missing(page->out, "summary", "what is wrong and how many events are open");
        write_missing(page->out, "tiles", "figures");
        return !cluster->open || !failed || status_is_slow(err);
    }
    write_summary(page->out, cluster, &facts);
    write_tiles(page->out, &facts, flow);
    return true;
}

static bool write_overview(struct page *page, const struct cluster *cluster, struct err *err)
{
    struct console *console = page->console;
    struct buf *out = page->out;
    const struct pg_rows *failed = NULL;
    struct flow flow;
    if ((!status_read(console, STATUS_FAILED, &failed, err) && !status_is_slow(err)) ||
        !read_flow(console, &flow, err) || !write_head(page, cluster, failed, &flow, err))
        return false;
    if (cluster->open)
        write_types(out, cluster->open);
    else
        write_missing(out, "types", "the types of events");
    if (flow.parts || flow.hours)
        write_flow(out, &flow);
    else
        write_missing(out, "line", "what ended in the last hours");
    buf_put_text(out, "<div class=\"columns\">\n");
    status_write_targets(page, cluster, false);
    if (failed)
        write_reasons(out, failed);
    else
        write_missing(out, "failed", "the reasons of FAILED events");
    buf_put_text(out, "</div>\n");
    status_write_workers(out, cluster);
    return true;
}

bool page_overview(struct page *page, struct err *err)
{
    struct cluster cluster = {.worker_count = 0};
    const struct pg_rows *open = NULL;
    bool is_written = (status_read(page->console, STATUS_OPEN, &open, err) || status_is_slow(err)) &&
                      cluster_read(page->console->ctl->db, open, &cluster, err) && write_overview(page, &cluster, err);
    cluster_done(&cluster);
    return is_written;
}
