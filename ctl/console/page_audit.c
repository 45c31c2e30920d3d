/* What operators did: who, when, what, why, before and after. Newest first, paged by the id of the row. */
#include <inttypes.h>

#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/options.h"
#include "statements.h"

#define ROWS 100

enum column { ID, AT, ACTOR, ACTION, EVENT, REASON, DB_ROLE, OS_USER, SUDO_USER, BEFORE, AFTER, TARGET };

static const struct {
    const char *name, *label, *hint;
} fields[] = {{"actor", "Actor", "exactly"},
              {"action", "Action", "replay"},
              {"event", "Event id", ""},
              {"since", "Since", "24h"}};

static void write_filters(struct page *page)
{
    struct buf *out = page->out;
    buf_put_text(out, "<form class=\"filters\" action=\"/audit\" role=\"search\" aria-label=\"Filter the audit\">"
                      "<div class=\"fields\">\n");
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        html_put(out,
                 "<p class=\"field\"><label for=\"a-{}\">{}</label><input id=\"a-{}\" name=\"{}\" value=\"{}\" "
                 "placeholder=\"{}\" maxlength=\"128\" autocomplete=\"off\" spellcheck=\"false\"></p>\n",
                 6, fields[i].name, fields[i].label, fields[i].name, fields[i].name,
                 form_get(page->form, fields[i].name), fields[i].hint);
    buf_put_text(out,
                 "<p class=\"field buttons\"><button>Show</button> <a href=\"/audit\">Clear</a></p></div></form>\n");
}

static bool read_params(const struct form *form, struct uuid *event_id, struct pg_param params[6], struct err *err)
{
    const char *actor = form_get(form, "actor"), *action = form_get(form, "action"), *event = form_get(form, "event"),
               *since = form_get(form, "since");
    int64_t since_us = 0, after;
    if (event && !uuid_parse(event, strlen(event), event_id))
        return err_set(err, ERR_USAGE, "%.60s is not an event id", event);
    if (since && (!options_duration(since, &since_us) || since_us == 0))
        return err_set(err, ERR_USAGE, "\"Since\" needs a duration with a unit: 90s, 15m, 12h, 7d");
    if (!form_number(form, "after", 1, INT64_MAX, 0, &after, err))
        return false;
    params[0] = pg_param_text(actor, actor ? strlen(actor) : 0);
    params[1] = pg_param_text(action, action ? strlen(action) : 0);
    params[2] = event ? pg_param_uuid(event_id) : pg_param_null();
    params[3] = since ? pg_param_int8(since_us) : pg_param_null();
    params[4] = after > 0 ? pg_param_int8(after) : pg_param_null();
    params[5] = pg_param_int8(ROWS + 1);
    return true;
}

static const char *text_at(const struct pg_rows *rows, int row, int column)
{
    return pg_bytes(rows, row, column).bytes;
}

static void write_row(struct buf *out, const struct pg_rows *rows, int row)
{
    buf_put_text(out, "<tr><td class=\"when\">");
    html_time(out, pg_time_us(rows, row, AT));
    html_put(out, "</td><th scope=\"row\">{}</th><td>{}</td><td>", 2, text_at(rows, row, ACTOR),
             text_at(rows, row, ACTION));
    if (!pg_is_null(rows, row, EVENT)) {
        struct uuid id = pg_uuid(rows, row, EVENT);
        char text[UUID_TEXT_SIZE];
        uuid_format(&id, text);
        html_put(out, "<a class=\"id\" href=\"/events/{}\">{}</a>", 2, text, text);
    } else {
        html_put(out, "{}", 1, text_at(rows, row, TARGET));
    }
    buf_put_text(out, "</td><td>");
    if (!pg_is_null(rows, row, BEFORE))
        html_put(out, "{} to {}", 2, text_at(rows, row, BEFORE), text_at(rows, row, AFTER));
    html_put(out, "</td><td class=\"why\">{}</td><td>{}{}{}</td></tr>\n", 4, text_at(rows, row, REASON),
             text_at(rows, row, DB_ROLE), pg_is_null(rows, row, OS_USER) ? "" : ", as ", text_at(rows, row, OS_USER));
}

bool page_audit(struct page *page, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[6];
    struct uuid event_id;
    struct buf *out = page->out;
    if (!read_params(page->form, &event_id, params, err) ||
        !pg_sync_query(page->console->ctl->db, &sql_console_audit, params, &rows, err))
        return false;
    int count = pg_rows_count(rows) > ROWS ? ROWS : pg_rows_count(rows);
    buf_put_text(out, "<h1>Audit</h1>\n");
    write_filters(page);
    buf_put_text(out, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Actions of operators\"><table>"
                      "<caption>Actions, newest first</caption><thead><tr><th scope=\"col\">Time</th>"
                      "<th scope=\"col\">Actor</th><th scope=\"col\">Action</th><th scope=\"col\">Event or target</th>"
                      "<th scope=\"col\">Change</th><th scope=\"col\">Reason</th>"
                      "<th scope=\"col\">Database role, user</th></tr></thead><tbody>\n");
    for (int row = 0; row < count; row++)
        write_row(out, rows, row);
    buf_put_text(out, "</tbody></table></div>\n");
    if (count == 0)
        buf_put_text(out, "<p class=\"empty\">No action matches.</p>\n");
    if (pg_rows_count(rows) <= ROWS)
        return true;
    buf_put_text(out, "<nav class=\"paging\" aria-label=\"Paging\"><a rel=\"next\" href=\"/audit?");
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (form_get(page->form, fields[i].name)) {
            html_put(out, "{}=", 1, fields[i].name);
            html_url(out, form_get(page->form, fields[i].name));
            buf_put_text(out, "&amp;");
        }
    buf_put_format(out, "after=%" PRId64 "\">Older actions</a></nav>\n", pg_int8(rows, ROWS - 1, ID));
    return true;
}
