/* A worker is asked to look one event up at its peer (reconcile), or to replace it by a new one (reissue). The mark
 * that this leaves is in the URL of the event's page, which shows what came of it. A worker, or the mark's deadline,
 * ends it, also when the console is gone. */
#include <stdio.h>
#include <string.h>

#include "ctl/action.h"
#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/marks.h"
#include "statements.h"

#define ASK_MS 60000
#define ASK_REFRESH_S 2

/* *ret_rows: the mark and why it is refused, in these columns. */
static bool ask(struct page *page, const struct uuid *id, bool is_reissue, const struct action *who, int *ret_mark,
                struct pg_rows **ret_rows, struct err *err)
{
    struct pg_param params[3 + ACTION_PARAMS] = {pg_param_uuid(id), pg_param_int8(ASK_MS)};
    struct buf buf;
    action_params(who, params + 2);
    params[2 + ACTION_PARAMS] = pg_param_null(); /* because: as the old event says; batch: none */
    *ret_mark = is_reissue ? 0 : 1;
    if (is_reissue)
        return pg_sync_query(page->console->ctl->db, &sql_operator_ask_reissue, params, ret_rows, err);
    params[0] = pg_array_of_uuids(&buf, id, 1);
    bool done = buf.failed ? err_set(err, ERR_MEMORY, "out of memory")
                           : pg_sync_query(page->console->ctl->db, &sql_operator_ask_reconcile, params, ret_rows, err);
    buf_done(&buf);
    return done;
}

static bool start(struct page *page, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const char *action = form_get(page->form, "action");
    bool is_reissue = action && strcmp(action, "reissue") == 0;
    char mark[UUID_TEXT_SIZE];
    struct action who;
    struct uuid id;
    int column;
    if (!uuid_parse(page->segment, strlen(page->segment), &id))
        return err_set(err, ERR_NOT_FOUND, "%.60s is not an event id", page->segment);
    if (!is_reissue && (!action || strcmp(action, "reconcile") != 0))
        return err_set(err, ERR_USAGE, "the action must be reconcile or reissue");
    if (!form_get(page->form, "reason"))
        return err_set(err, ERR_USAGE, "a reason is required: it goes into the audit trail");
    /* guard: the console makes a new key only where that was confirmed */
    if (is_reissue && !form_get(page->form, "confirmed"))
        return err_set(err, ERR_USAGE, "a reissue sends a request with a new key to the issuer: confirm it");
    if (!action_init(&who, form_get(page->form, "reason"), err) ||
        !ask(page, &id, is_reissue, &who, &column, &rows, err))
        return false;
    const char *refused = pg_rows_count(rows) > 0 ? pg_text(rows, 0, column + 1) : "not_found";
    if (refused)
        return err_set(err, ERR_REFUSED, "nothing was done: %s", marks_text("refused", refused));
    struct uuid found = pg_uuid(rows, 0, column);
    uuid_format(&found, mark);
    snprintf(page->location, sizeof(page->location), "/events/%s?mark=%s", page->segment, mark);
    return true;
}

bool page_ask(struct page *page, struct err *err)
{
    return start(page, err) || (layout_refused(page, err) && page_event(page, err));
}

void page_ask_write_form(struct page *page, const char *id, bool is_reissue, const char *peer)
{
    struct buf *out = page->out;
    char action[64];
    const char *word = is_reissue ? "reissue" : "reconcile", *refused = form_get(page->form, "action");
    snprintf(action, sizeof(action), "/events/%.40s/ask", id);
    layout_post(page, action);
    html_put(out,
             "<p class=\"buttons\"><label class=\"unseen\" for=\"why-{}\">Reason</label>"
             "<input id=\"why-{}\" name=\"reason\" value=\"{}\" required maxlength=\"1000\" placeholder=\"reason\" "
             "autocomplete=\"off\">\n",
             3, word, word, refused && strcmp(refused, word) == 0 ? form_get(page->form, "reason") : NULL);
    if (is_reissue)
        buf_put_text(out, "<label><input type=\"checkbox\" name=\"confirmed\" value=\"1\" required> with a new key, if "
                          "the issuer has no card</label>\n");
    html_put(out, "<button name=\"action\" value=\"{}\">{}{}</button></p></form>\n", 3, word,
             is_reissue ? "Reissue" : "Look up at ", is_reissue ? "" : peer);
}

bool page_ask_write_result(struct page *page, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct buf *out = page->out;
    const char *mark = form_get(page->form, "mark");
    struct uuid id;
    if (!mark)
        return true;
    if (!uuid_parse(mark, strlen(mark), &id))
        return err_set(err, ERR_USAGE, "the link to the look-up is damaged");
    if (!marks_read(page->console->ctl, &id, 1, &rows, err))
        return false;
    bool is_over = pg_rows_count(rows) == 0 || pg_bool(rows, 0, MARK_IS_FINISHED);
    page->refresh_s = is_over ? 0 : ASK_REFRESH_S;
    html_put(out, "<p id=\"asked\" data-live role=\"status\" aria-live=\"polite\" class=\"notice {}\"{}>", 2,
             is_over ? "good" : "warn", is_over ? " data-ended" : "");
    if (!is_over) {
        buf_put_text(out, "A worker looks it up; that may take a minute.</p>\n");
        return true;
    }
    const char *result = pg_rows_count(rows) > 0 ? pg_text(rows, 0, MARK_RESULT) : "gone";
    const char *detail = pg_rows_count(rows) > 0 ? pg_text(rows, 0, MARK_DETAIL) : NULL;
    const char *words = marks_text(result, detail);
    html_put(out, "The look-up is over: <span class=\"short\">{}</span> {}", 2, result, words);
    if (pg_rows_count(rows) > 0 && !pg_is_null(rows, 0, MARK_NEW_ID)) {
        struct uuid new_id = pg_uuid(rows, 0, MARK_NEW_ID);
        char text[UUID_TEXT_SIZE];
        uuid_format(&new_id, text);
        html_put(out, " The new event is <a class=\"id\" href=\"/events/{}\">{}</a>.", 2, text, text);
    }
    html_put(out, " <a href=\"/events/{}\">Show the event as it is now.</a></p>\n", 1, page->segment);
    return true;
}
