/* The list of events: the filters of `issuing-ctl list` in the URL, a page at a time, with actions on what is ticked or
 * on all that match.
 *
 * Invariants: a page looks at a bounded number of events and for a bounded time; where that was not enough, it says so
 * and goes on from there. Paging is by the id of the last event, so that a page stays the same when new events come. */
#include <inttypes.h>

#include "common/lib/base/clock.h"
#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/console/selection.h"
#include "ctl/console/status.h"
#include "ctl/event.h"
#include "ctl/pick.h"
#include "statements.h"

#define ROWS_DEFAULT 50
#define ROWS_MAX JOB_IDS_MAX
#define SEARCH_MS 1500 /* then a page is shown with what was found */

struct listing {
    struct filter filter;
    struct pick pick;
    bool oldest_first;
    int64_t rows;
    struct uuid ids[ROWS_MAX], last; /* last: where the next page begins */
    int count;
    bool has_more, is_cut; /* is_cut: time was up, and there may be more */
};

static bool read_listing(const struct form *form, struct listing *listing, struct err *err)
{
    const char *order = form_get(form, "order");
    if (!selection_read(form, &listing->filter, err) ||
        !form_number(form, "rows", 1, ROWS_MAX, ROWS_DEFAULT, &listing->rows, err))
        return false;
    if (order && strcmp(order, "oldest") != 0 && strcmp(order, "newest") != 0)
        return err_set(err, ERR_USAGE, "order must be newest or oldest");
    listing->oldest_first = order && strcmp(order, "oldest") == 0;
    return true;
}

/* The ids of the page: one more than it shows tells that another page follows. */
static bool find_ids(const struct form *form, struct listing *listing, struct pg_sync *db, struct err *err)
{
    const char *after = form_get(form, "after");
    struct uuid id;
    int64_t until_ms = clock_mono_ms() + SEARCH_MS;
    if (!pick_open(&listing->pick, db, &listing->filter, !listing->oldest_first, err))
        return false;
    if (after && !uuid_parse(after, strlen(after), &id))
        return err_set(err, ERR_USAGE, "the link to the next page is damaged");
    if (after)
        pick_go_on_behind(&listing->pick, &id);
    while (!pick_is_over(&listing->pick) && !listing->has_more) {
        pg_rows_scope struct pg_rows *rows = NULL;
        struct pick_row row;
        if (clock_mono_ms() > until_ms) {
            listing->is_cut = true;
            return true;
        }
        if (!pick_read(&listing->pick, db, &rows, err))
            return false;
        for (int i = 0; i < pg_rows_count(rows) && !listing->has_more; i++) {
            bool is_match = pick_row(rows, i, &row);
            listing->has_more = is_match && listing->count == listing->rows;
            if (listing->has_more)
                break;
            listing->last = row.id;
            if (is_match)
                listing->ids[listing->count++] = row.id;
        }
    }
    return true;
}

static void write_filters(struct page *page)
{
    struct buf *out = page->out;
    const char *order = form_get(page->form, "order");
    buf_put_text(out, "<form class=\"filters\" action=\"/events\" role=\"search\" aria-label=\"Filter events\">\n"
                      "<div class=\"fields\">\n");
    selection_write_common(out, page->form);
    html_put(out,
             "<p class=\"field\"><label for=\"f-order\">Order</label><select id=\"f-order\" name=\"order\">"
             "<option value=\"newest\">newest first</option><option value=\"oldest\"{}>oldest first</option>"
             "</select></p>\n"
             "<p class=\"field\"><label for=\"f-open\">Open by id</label><input id=\"f-open\" name=\"open\" "
             "placeholder=\"event or card\" maxlength=\"255\" autocomplete=\"off\" spellcheck=\"false\">"
             "</p>\n"
             "<p class=\"field buttons\"><button>Show</button> <a href=\"/events\">Clear</a></p>\n",
             1, order && strcmp(order, "oldest") == 0 ? " selected" : "");
    selection_write_others(out, page->form);
    buf_put_text(out, "</div></form>\n");
}

static void write_row(struct page *page, const struct event *event)
{
    struct buf *out = page->out;
    const char *id = event->id_text;
    buf_put_text(out, "<tr>");
    if (page->console->may_act)
        html_put(out,
                 "<td class=\"tick\"><input type=\"checkbox\" name=\"id\" value=\"{}\" aria-label=\"Event {}\"></td>",
                 2, id, id);
    html_put(out, "<th scope=\"row\"><a class=\"id\" href=\"/events/{}\">{}</a></th><td>", 2, id, id);
    html_status(out, event->status_text);
    html_put(out, "</td><td>{}</td><td class=\"user\">{}</td><td class=\"why\"><span class=\"short\">{}</span>{}</td>",
             4, event_kind(event), event->user_id, event->reason_code,
             !event->reason_code && event->status == OUTBOX_PENDING ? event->last_error : "");
    buf_put_format(out, "<td class=\"number\">%" PRId64 "</td>", event->retry_count);
    html_cell_time(out, event->created_us);
    if (event->held_behind_text[0] && event->status == OUTBOX_PENDING)
        html_put(out, "<td class=\"when\">after <a href=\"/events/{}\">an earlier one</a></td>", 1,
                 event->held_behind_text);
    else
        html_cell_time(out, event->status == OUTBOX_PENDING ? event->next_attempt_us : event->completed_us);
    html_put(out, "<td>{}</td></tr>\n", 1, event->has_card ? event->last4 : event->outcome_unknown ? "unknown" : "-");
}

static void write_actions(struct page *page)
{
    struct buf *out = page->out;
    buf_put_text(out, "<fieldset class=\"actions\"><legend>Act on</legend>\n"
                      "<label><input type=\"radio\" name=\"scope\" value=\"ids\" checked> the selected events</label>\n"
                      "<label><input type=\"radio\" name=\"scope\" value=\"filter\"> all events that match");
    if (selection_is_empty(page->form, NULL)) {
        buf_put_text(out, " (any event)");
    } else {
        buf_put_text(out, ": ");
        selection_write_words(out, page->form, NULL);
    }
    buf_put_text(out, "</label>\n<span class=\"buttons\">"
                      "<button name=\"verb\" value=\"replay\">Replay ...</button>\n"
                      "<button name=\"verb\" value=\"resolve\">Resolve ...</button>\n"
                      "<button name=\"verb\" value=\"cancel\">Cancel ...</button></span>\n"
                      "<p class=\"hint\">Each first shows a preview, and asks for a reason.</p></fieldset>\n");
}

static void write_next(struct page *page, const struct listing *listing)
{
    struct buf *out = page->out;
    char id[UUID_TEXT_SIZE];
    uuid_format(&listing->last, id);
    buf_put_text(out, "<nav class=\"paging\" aria-label=\"Paging\">");
    if (form_get(page->form, "after")) {
        buf_put_text(out, "<a href=\"/events?");
        selection_write_query(out, page->form);
        html_put(out, "&amp;order={}\">First page</a> ", 1, listing->oldest_first ? "oldest" : "newest");
    }
    if (listing->has_more || listing->is_cut) {
        buf_put_text(out, "<a rel=\"next\" href=\"/events?");
        selection_write_query(out, page->form);
        html_put(out, "&amp;order={}&amp;after={}", 2, listing->oldest_first ? "oldest" : "newest", id);
        buf_put_format(out, "&amp;rows=%" PRId64 "\">%s</a>", listing->rows,
                       listing->has_more ? "Next page" : "Search on");
    }
    buf_put_text(out, "</nav>\n");
}

static bool write_table(struct page *page, const struct listing *listing, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct buf *out = page->out;
    bool may_act = page->console->may_act;
    if (listing->count > 0 && !event_fetch(page->console->ctl->db, listing->ids, listing->count, &rows, err))
        return false;
    if (may_act) {
        buf_put_text(out, "<form action=\"/bulk\" id=\"act\">\n");
        selection_write_hidden(out, page->form);
    }
    html_put(out,
             "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Events\"><table class=\"events\">"
             "<caption>Events, {} first</caption><thead><tr>",
             1, listing->oldest_first ? "oldest" : "newest");
    if (may_act)
        buf_put_text(out,
                     "<th scope=\"col\" class=\"tick\"><span class=\"unseen\">Selected</span>"
                     "<input type=\"checkbox\" id=\"tick-all\" aria-label=\"Select all on this page\" hidden></th>");
    html_heads(out, "Event|Status|Kind|User|Reason or last error|#Attempts|Created|Ended or next attempt|Card");
    buf_put_text(out, "</tr></thead>\n<tbody>\n");
    for (int row = 0; rows && row < pg_rows_count(rows); row++) {
        struct event event;
        if (!event_read(rows, row, &event, err))
            return false;
        write_row(page, &event);
    }
    html_table_end(out);
    if (listing->count == 0)
        buf_put_text(out, listing->is_cut ? "<p class=\"empty\">None found so far.</p>\n"
                                          : "<p class=\"empty\">No event matches.</p>\n");
    if (may_act && listing->count > 0)
        write_actions(page);
    if (may_act)
        buf_put_text(out, "</form>\n");
    return true;
}

/* The filters do not count then. */
static bool go_to_event(struct page *page, const char *id, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_string(id)};
    char found[UUID_TEXT_SIZE];
    if (!pg_sync_query(page->console->ctl->db, &sql_console_find, params, &rows, err))
        return false;
    if (pg_is_null(rows, 0, 0))
        return err_set(err, ERR_NOT_FOUND, "no event has this id, and no card at the issuer: %.80s", id);
    struct uuid event = pg_uuid(rows, 0, 0);
    uuid_format(&event, found);
    snprintf(page->location, sizeof(page->location), "/events/%s", found);
    return true;
}

static void write_count(struct buf *out, const char *query, const char *label, int64_t number, bool or_more)
{
    html_put(out, "<li><a href=\"/events?{}\">{}</a> ", 2, query, label);
    html_number(out, number);
    buf_put_text(out, or_more || number >= VERDICT_EVENTS_MAX ? "+</li>\n" : "</li>\n");
}

/* How many there are, each a link; without them where the database takes too long. */
static bool write_counts(struct page *page, struct err *err)
{
    struct buf *out = page->out;
    const struct pg_rows *open, *failed, *rejected;
    struct verdict_facts facts;
    if (!status_read(page->console, STATUS_OPEN, &open, err) ||
        !status_read(page->console, STATUS_FAILED, &failed, err) ||
        !status_read(page->console, STATUS_REJECTED, &rejected, err))
        return status_is_slow(err);
    verdict_facts_of(page->console->ctl->config, page->console->ctl->place, open, failed, &facts);
    bool is_cut = facts.pending + facts.processing >= VERDICT_EVENTS_MAX;
    buf_put_text(out, "<ul class=\"counts\" aria-label=\"How many there are\">\n");
    write_count(out, "status=PENDING&order=oldest", "PENDING", facts.pending, is_cut);
    write_count(out, "status=PROCESSING", "PROCESSING", facts.processing, false);
    write_count(out, "status=FAILED&order=oldest", "FAILED", facts.failed, false);
    write_count(out, "unknown=1&order=oldest", "outcome unknown", facts.unknown,
                is_cut || facts.failed >= VERDICT_EVENTS_MAX);
    write_count(out, "overdue=1&order=oldest", "overdue", facts.overdue, false);
    write_count(out, "status=REJECTED&since=2h", "REJECTED since the beginning of the last hour",
                pg_rows_count(rejected) > 0 ? pg_int8(rejected, 0, VERDICT_REJECTED) : 0, false);
    buf_put_text(out, "</ul>\n");
    return true;
}

bool page_events(struct page *page, struct err *err)
{
    struct listing listing = {.count = 0};
    if (form_get(page->form, "open"))
        return go_to_event(page, form_get(page->form, "open"), err);
    bool is_read = read_listing(page->form, &listing, err);
    buf_put_text(page->out, "<h1>Events</h1>\n");
    if (!is_read) {
        if (!layout_refused(page, err))
            return false;
        write_filters(page);
        return true;
    }
    if (!write_counts(page, err) || !find_ids(page->form, &listing, page->console->ctl->db, err))
        return false;
    write_filters(page);
    if (listing.is_cut)
        buf_put_text(page->out, "<p class=\"notice\">The search took long and stopped here. A user id, a time or a "
                                "status makes it fast; the link below continues it.</p>\n");
    if (!write_table(page, &listing, err))
        return false;
    write_next(page, &listing);
    return true;
}
