/* Targets and workers; pause, resume and probe. A worker obeys within seconds. */
#include <stdio.h>

#include "ctl/action.h"
#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/console/status.h"
#include "ctl/options.h"
#include "statements.h"

bool page_targets(struct page *page, struct err *err)
{
    struct cluster cluster = {.worker_count = 0};
    struct buf *out = page->out;
    const char *done = form_get(page->form, "done");
    const struct pg_rows *open = NULL;
    if ((!status_read(page->console, STATUS_OPEN, &open, err) && !status_is_slow(err)) ||
        !cluster_read(page->console->ctl->db, open, &cluster, err)) {
        cluster_done(&cluster);
        return false;
    }
    buf_put_text(out, "<h1>Targets and workers</h1>\n");
    if (done)
        html_put(out, "<p class=\"notice good\" role=\"status\">Done: {}. Workers obey within seconds.</p>\n", 1,
                 strcmp(done, "pause_target") == 0    ? "paused"
                 : strcmp(done, "resume_target") == 0 ? "resumed"
                                                      : "probe requested");
    buf_put_text(out, "<p>A paused target gets no calls; its events wait, and no attempt is used up. "
                      "A probe sends one call through an open breaker now.</p>\n");
    status_write_targets(page, &cluster, page->console->may_control);
    status_write_workers(out, &cluster);
    cluster_done(&cluster);
    return true;
}

static const char *refusal_text(const char *code)
{
    if (strcmp(code, "paused") == 0)
        return "it is paused";
    if (strcmp(code, "not_paused") == 0)
        return "it is not paused";
    return "that is not the name of a target";
}

static bool control(struct page *page, struct err *err)
{
    static const char *const words[] = {"pause_target", "resume_target", "probe_target"};
    pg_rows_scope struct pg_rows *rows = NULL;
    const char *action = form_get(page->form, "action");
    struct action who;
    bool is_known = false;
    for (size_t i = 0; action && i < ARRAY_SIZE(words); i++)
        is_known = is_known || strcmp(words[i], action) == 0;
    if (!is_known)
        return err_set(err, ERR_USAGE, "the action must be pause, resume or probe");
    if (!form_get(page->form, "reason"))
        return err_set(err, ERR_USAGE, "a reason is required: it goes into the audit trail");
    const char *span = form_get(page->form, "for");
    int64_t pause_us = 0;
    if (span && span[0] && (!options_duration(span, &pause_us) || pause_us < 1000000))
        return err_set(err, ERR_USAGE, "a pause needs a duration such as 90s, 2h or 1d, or none");
    if (!action_init(&who, form_get(page->form, "reason"), err))
        return false;
    struct pg_param params[3 + ACTION_PARAMS] = {pg_param_string(action), pg_param_string(page->segment)};
    action_params(&who, params + 2);
    params[2 + ACTION_PARAMS] = pause_us > 0 ? pg_param_int8(pause_us / 1000) : pg_param_null();
    if (!pg_sync_query(page->console->ctl->db, &sql_operator_control, params, &rows, err))
        return false;
    if (!pg_is_null(rows, 0, 0))
        return err_set(err, ERR_REFUSED, "nothing was done with %s: %s", page->segment,
                       refusal_text(pg_text(rows, 0, 0)));
    (void)!pg_sync_query(page->console->ctl->db, &sql_notify_wake, NULL, NULL, NULL); /* lost: seconds later */
    snprintf(page->location, sizeof(page->location), "/targets?done=%s", action);
    return true;
}

bool page_control(struct page *page, struct err *err)
{
    return control(page, err) || (layout_refused(page, err) && page_targets(page, err));
}
