/* What operators did: who, when, what, why, before and after. Newest first, with the filters of `issuing-ctl audit`.
 *
 * Invariants: a page looks at a bounded number of actions, and where that was not enough, it says so and goes on from
 * there. Paging is by the time and the id of an action, so that a page stays the same when new actions come. */
#include "ctl/audit/audit.h"

#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"

#define ROWS 100
#define STEPS_MAX 5 /* of AUDIT_LOOK_MAX actions each */

struct trail {
    struct audit_filter filter;
    struct audit_walk walk;
    struct audit_cursor last; /* of the action that is shown last */
    int count;
    bool has_more; /* another one matches */
};

static const struct {
    const char *name, *label, *hint;
} fields[] = {{"actor", "Actor", "exactly"}, {"action", "Action", "replay"},
              {"event", "Event id", ""},     {"batch", "Bulk action", "its id"},
              {"since", "Since", "24h"},     {"until", "Until", "2026-11-20T10:39Z"}};

static void write_filters(struct page *page)
{
    struct buf *out = page->out;
    buf_put_text(out, "<form class=\"filters\" action=\"/audit\" role=\"search\" aria-label=\"Filter the audit\">"
                      "<div class=\"fields\">\n");
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        html_field(out, "a", fields[i].name, fields[i].label, form_get(page->form, fields[i].name), fields[i].hint,
                   "128");
    buf_put_text(out,
                 "<p class=\"field buttons\"><button>Show</button> <a href=\"/audit\">Clear</a></p></div></form>\n");
}

/* batch: of a row that stands for a whole bulk action; else NULL. */
static void write_row(struct buf *out, const struct audit_row *row, const struct audit_batch *batch)
{
    buf_put_text(out, "<tr>");
    html_cell_time(out, row->cursor.at_us);
    html_put(out, "<th scope=\"row\">{}</th><td>{}</td><td>", 2, row->actor, row->action);
    if (batch) {
        html_put(out, "<a href=\"/audit?batch={}\">", 1, row->batch);
        html_number(out, batch->count);
        html_put(out, " times</a> of {}", 1, row->scope);
    } else if (row->event_id[0]) {
        html_put(out, "<a class=\"id\" href=\"/events/{}\">{}</a>", 2, row->event_id, row->event_id);
    } else {
        html_put(out, "{}", 1, row->target);
    }
    buf_put_text(out, "</td><td>");
    if (batch)
        html_put(out, "now {}", 1, batch->outcome);
    else if (row->from_status)
        html_put(out, "{} to {}", 2, row->from_status, row->to_status);
    html_put(out, "</td><td class=\"why\">{}</td><td>{}{}{}</td></tr>\n", 4, row->reason, row->db_role,
             row->os_user ? ", as " : "", row->os_user);
}

static bool open_trail(const struct form *form, struct trail *trail, struct pg_sync *db, struct err *err)
{
    const char *after = form_get(form, "after");
    struct audit_cursor cursor;
    trail->filter = (struct audit_filter){.since = form_get(form, "since"),
                                          .until = form_get(form, "until"),
                                          .actor = form_get(form, "actor"),
                                          .action = form_get(form, "action"),
                                          .event = form_get(form, "event"),
                                          .batch = form_get(form, "batch")};
    if (!audit_check(&trail->filter, err))
        return false;
    if (after && !audit_cursor_parse(after, &cursor))
        return err_set(err, ERR_USAGE, "the link to the next page is damaged");
    if (!audit_open(&trail->walk, db, &trail->filter, err))
        return false;
    if (after)
        audit_go_on_behind(&trail->walk, &cursor);
    return true;
}

/* One row more than the page shows tells that another page follows. */
static bool write_rows(struct page *page, struct trail *trail, struct err *err)
{
    /* guard: a page of the audit looks at a bounded number of actions */
    for (int step = 0; step < STEPS_MAX && !trail->walk.is_over && !trail->has_more; step++) {
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!audit_step(&trail->walk, page->console->ctl->db, ROWS + 1 - trail->count, &rows, err))
            return false;
        for (int i = 0; i < pg_rows_count(rows) && !trail->has_more; i++) {
            struct audit_row row;
            struct audit_batch batch;
            if (!audit_row(rows, i, &row))
                continue;
            trail->has_more = trail->count == ROWS;
            if (trail->has_more)
                break;
            trail->count++;
            trail->last = row.cursor;
            bool is_whole = row.batch[0] && !trail->filter.batch && !trail->filter.event;
            if (is_whole && !audit_read_batch(page->console->ctl->db, &row, &batch, err))
                return false;
            write_row(page->out, &row, is_whole ? &batch : NULL);
        }
    }
    return true;
}

/* "/audit?actor=x&": the filters, for HTML. */
static void write_link(struct page *page)
{
    buf_put_text(page->out, "/audit?");
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        const char *value = form_get(page->form, fields[i].name);
        if (!value)
            continue;
        html_put(page->out, "{}=", 1, fields[i].name);
        html_url(page->out, value);
        buf_put_text(page->out, "&amp;");
    }
}

static void write_next(struct page *page, const struct trail *trail)
{
    struct buf *out = page->out;
    char after[AUDIT_CURSOR_SIZE];
    audit_cursor_format(trail->has_more ? &trail->last : &trail->walk.cursor, after);
    buf_put_text(out, "<nav class=\"paging\" aria-label=\"Paging\">");
    if (form_get(page->form, "after")) {
        buf_put_text(out, "<a href=\"");
        write_link(page);
        buf_put_text(out, "\">First page</a> ");
    }
    if (trail->has_more || !trail->walk.is_over) {
        buf_put_text(out, "<a rel=\"next\" href=\"");
        write_link(page);
        html_put(out, "after={}\">{}</a>", 2, after, trail->has_more ? "Older actions" : "Search on");
    }
    buf_put_text(out, "</nav>\n");
}

bool page_audit(struct page *page, struct err *err)
{
    struct trail trail = {.count = 0};
    struct buf *out = page->out;
    bool is_open = open_trail(page->form, &trail, page->console->ctl->db, err);
    buf_put_text(out, "<h1>Audit</h1>\n");
    if (!is_open && !layout_refused(page, err))
        return false;
    write_filters(page);
    if (!is_open)
        return true;
    html_table(out, "Actions of operators", "Actions, newest first",
               "Time|Actor|Action|Event or target|Change|Reason|Database role, user");
    if (!write_rows(page, &trail, err))
        return false;
    html_table_end(out);
    bool is_cut = !trail.has_more && !trail.walk.is_over;
    if (trail.count == 0)
        buf_put_text(out, is_cut ? "<p class=\"empty\">None found so far.</p>\n"
                                 : "<p class=\"empty\">No action matches.</p>\n");
    if (is_cut)
        buf_put_text(out, "<p class=\"notice\">Most actions of this time do not match, so the search was cut off here. "
                          "An event or another time makes it fast; the link below searches on.</p>\n");
    write_next(page, &trail);
    return true;
}
