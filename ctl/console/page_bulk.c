/* A bulk action: preview, start, progress, stop.
 *
 * The preview is a GET: its URL can be passed on. It counts, shows the first events with what would happen to each, and
 * has the form that starts it. Starting needs a reason and a confirmation, which for many events is their number,
 * typed; when more match by then than were shown, nothing is started. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/console/selection.h"

#define PREVIEW_ROWS 20
#define TICK_MAX 10 /* more events than this are confirmed by their number */

static void write_preview_row(struct buf *out, const struct event *event, const char *would, const char *why)
{
    html_put(out, "<tr><th scope=\"row\"><a class=\"id\" href=\"/events/{}\">{}</a></th><td>", 2, event->id_text,
             event->id_text);
    html_status(out, event->status_text);
    html_put(out,
             "</td><td>{}</td><td class=\"user\">{}</td><td class=\"short\">{}</td><td class=\"short\">{}</td><td "
             "class=\"why\">{}</td></tr>\n",
             5, event_kind(event), event->user_id, event->reason_code, would, why);
}

/* One event as the preview shows it, like a dry run of the command. */
static bool preview_event(struct page *page, struct job *job, const struct uuid *id, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct bulk_verb *verb = job->bulk.verb;
    struct event event;
    const char *code = "status";
    char why[640] = "", would[40];
    if (!event_find(page->console->ctl->db, id, &rows, &event, err)) {
        if (err->kind == ERR_NOT_FOUND)
            html_put(page->out, "<tr><td colspan=\"7\">{}</td></tr>\n", 1, err->message);
        return err->kind == ERR_NOT_FOUND;
    }
    bool is_right = strcmp(event.status_text, verb->status) == 0;
    if (is_right && !verb->preview(&job->bulk, &event, &code, why, sizeof(why), err))
        return false;
    if (verb == &bulk_resolve && code && strcmp(code, "unknown") == 0)
        *(event_is_card(&event) ? &job->asks_no_card : &job->asks_not_executed) = true;
    if (code)
        bulk_why_refused(verb, &event, code, why, sizeof(why));
    snprintf(would, sizeof(would), "%s%s", code ? "refused" : "would be ", code ? "" : verb->past);
    write_preview_row(page->out, &event, would, why);
    return true;
}

static bool write_preview_rows(struct page *page, struct job *job, struct err *err)
{
    struct buf *out = page->out;
    int64_t seen_us;
    struct uuid id;
    html_table(out, "Preview",
               job->bulk.total > PREVIEW_ROWS ? "The first 20 of them, oldest first" : "All of them, oldest first",
               "Event|Status|Kind|User|Reason|Result|What happens then, or why not");
    for (int shown = 0; shown < PREVIEW_ROWS; shown++) {
        if (!job_next(job, &id, &seen_us, err)) {
            if (err->kind != ERR_NONE)
                return false;
            break;
        }
        if (!preview_event(page, job, &id, err))
            return false;
    }
    html_table_end(out);
    return true;
}

static void write_scope(struct buf *out, const struct job *job)
{
    const char *status = job->bulk.verb->status;
    if (!job->by_filter) {
        buf_put_text(out, "selected events");
    } else if (selection_is_empty(&job->form, status)) {
        html_put(out, "every {} event", 1, status);
    } else {
        html_put(out, "{} events with ", 1, status);
        selection_write_words(out, &job->form, status);
    }
}

static void write_hidden(struct page *page, const struct job *job)
{
    struct buf *out = page->out;
    html_put(out, "<input type=\"hidden\" name=\"verb\" value=\"{}\">", 1, job->bulk.verb->word);
    html_hidden(out, "scope", job->by_filter ? "filter" : "ids");
    buf_put_format(out, "<input type=\"hidden\" name=\"shown\" value=\"%" PRId64 "\">\n", job->bulk.total);
    if (job->by_filter)
        selection_write_hidden(out, &job->form);
    for (int i = 0; i < job->id_count; i++) {
        char id[UUID_TEXT_SIZE];
        uuid_format(&job->ids[i], id);
        html_hidden(out, "id", id);
    }
}

/* If the start was refused, the form keeps what was typed, except the confirmations: they must be about what is shown
 * now. */
static void write_start_form(struct page *page, const struct job *job)
{
    struct buf *out = page->out;
    const char *word = job->bulk.verb->word;
    buf_put_text(out, "<section aria-labelledby=\"start-title\"><h2 id=\"start-title\">Start</h2>\n");
    layout_post(page, "/bulk");
    write_hidden(page, job);
    html_put(out,
             "<div class=\"stack\"><p class=\"field\"><label for=\"reason\">Reason, for the audit trail</label>"
             "<input id=\"reason\" name=\"reason\" value=\"{}\" required maxlength=\"1000\" autocomplete=\"off\"></p>\n"
             "<p class=\"field\"><label for=\"rate\">Events a second, at most (empty: no limit)"
             "</label><input id=\"rate\" name=\"rate\" value=\"{}\" placeholder=\"5, 0.2, 10/m\" maxlength=\"20\" "
             "autocomplete=\"off\"></p>\n",
             2, form_get(&job->form, "reason"), job->bulk.rate);
    /* A confirmation that does not apply would teach people to tick everything. Rows after those that were shown may be
     * of any kind. */
    bool asks_all = job->bulk.verb == &bulk_resolve && job->bulk.total > PREVIEW_ROWS;
    if (job->asks_no_card || asks_all)
        buf_put_text(out, "<p><label><input type=\"checkbox\" name=\"confirm_no_card\" value=\"1\"> It is certain that "
                          "the issuer has no card for any of them (required if an outcome is unknown)</label></p>\n");
    if (job->asks_not_executed || asks_all)
        buf_put_text(out,
                     "<p><label><input type=\"checkbox\" name=\"confirm_not_executed\" value=\"1\"> Events of routes: "
                     "it is certain that the receiver has executed none of them (required if an outcome is "
                     "unknown)</label></p>\n");
    if (job->bulk.total > TICK_MAX)
        buf_put_format(out,
                       "<p class=\"field\"><label for=\"typed\">Type the number of events, %" PRId64
                       ", to confirm</label>"
                       "<input id=\"typed\" name=\"typed\" required inputmode=\"numeric\" autocomplete=\"off\"></p>\n",
                       job->bulk.total);
    else
        buf_put_text(out, "<p><label><input type=\"checkbox\" name=\"confirmed\" value=\"1\" required> I confirm this"
                          "</label></p>\n");
    buf_put_format(out,
                   "<p class=\"buttons\"><button class=\"main\">%c%s %" PRId64 " event%s</button> "
                   "<a href=\"/events\">Back to the events</a></p></div></form></section>\n",
                   word[0] - 'a' + 'A', word + 1, job->bulk.total, job->bulk.total == 1 ? "" : "s");
}

/* The job is counted. */
static bool write_preview(struct page *page, struct job *job, struct err *err)
{
    struct buf *out = page->out;
    html_put(out, "<h1>{} ", 1, job->bulk.verb->question);
    write_scope(out, job);
    buf_put_text(out, "</h1>\n<p><strong>");
    html_number(out, job->bulk.total);
    buf_put_text(out, job->bulk.total == 1 ? " event</strong>." : " events</strong>.");
    if (job->has_more)
        buf_put_text(out, " There may be more; one bulk action takes the oldest ones, at most 100,000.");
    buf_put_text(out, " Nothing is changed yet.</p>\n");
    if (job->bulk.total == 0) {
        html_put(out, "<p class=\"empty\">No {} event matches, so there is nothing to do.</p>\n", 1,
                 job->bulk.verb->status);
        return true;
    }
    if (!write_preview_rows(page, job, err))
        return false;
    if (jobs_running(&page->console->jobs))
        buf_put_text(out,
                     "<p class=\"notice\">Another bulk action is running. It must end before this one starts.</p>\n");
    write_start_form(page, job);
    return true;
}

bool page_preview(struct page *page, struct err *err)
{
    struct job *job;
    if (!job_read(page->console->ctl, page->form, &job, err))
        return false;
    bool is_written =
        (job_read_rate(job, err) || layout_refused(page, err)) && job_count(job, err) && write_preview(page, job, err);
    job_free(job);
    return is_written;
}

/* ---- start and stop ---- */

static bool confirm(const struct job *job, struct err *err)
{
    int64_t shown, typed;
    if (!form_number(&job->form, "shown", 1, JOB_EVENTS_MAX, 0, &shown, err) ||
        !form_number(&job->form, "typed", 1, INT64_MAX, 0, &typed, err))
        return false;
    /* guard: a bulk action of the console takes no more events than were confirmed */
    if (job->bulk.total > shown)
        return err_set(err, ERR_REFUSED,
                       "%" PRId64 " events match now, and %" PRId64 " were shown: nothing was started; look again",
                       job->bulk.total, shown);
    if (shown > TICK_MAX ? typed != shown : !form_get(&job->form, "confirmed"))
        return err_set(err, ERR_USAGE, "the number of events was not confirmed: it is %" PRId64, shown);
    return true;
}

/* The job is counted. */
static bool start(struct page *page, struct job *job, struct err *err)
{
    if (!form_get(&job->form, "reason"))
        return err_set(err, ERR_USAGE, "a reason is required: it goes into the audit trail");
    if (!action_init(&job->bulk.action, form_get(&job->form, "reason"), err) || !job_read_rate(job, err) ||
        !confirm(job, err))
        return false;
    bulk_begin(&job->bulk, job->by_filter);
    return jobs_start(&page->console->jobs, job, page->form, err);
}

bool page_start(struct page *page, struct err *err)
{
    struct job *job;
    if (!job_read(page->console->ctl, page->form, &job, err))
        return false;
    if (!job_count(job, err) || !start(page, job, err)) {
        bool is_written = layout_refused(page, err) && write_preview(page, job, err);
        job_free(job);
        return is_written;
    }
    snprintf(page->location, sizeof(page->location), "/jobs/%d", job->number);
    console_wake(page->console);
    return true;
}

static struct job *find_job(struct page *page, struct err *err)
{
    struct job *job = jobs_find(&page->console->jobs, atoi(page->segment));
    if (!job)
        err_set(err, ERR_NOT_FOUND, "this console has no such bulk action; the audit trail has what was changed");
    return job;
}

bool page_stop(struct page *page, struct err *err)
{
    struct job *job = find_job(page, err);
    if (!job)
        return false;
    if (job->state == JOB_RUNNING) {
        job_stop(job);
        console_wake(page->console);
    }
    snprintf(page->location, sizeof(page->location), "/jobs/%d", job->number);
    return true;
}

/* ---- progress ---- */

static void write_state(struct buf *out, const struct job *job)
{
    const struct job_state_pill *state = &job_states[job->state];
    html_pill(out, state->class, state->sign, state->word);
}

static void write_figures(struct buf *out, const struct job *job)
{
    const struct {
        const char *name;
        int64_t number;
    } figures[] = {{job->bulk.verb->past, job->bulk.done},
                   {"refused", job->bulk.refused},
                   {"skipped: changed in between", job->bulk.skipped},
                   {"selected", job->bulk.total}};
    buf_put_text(out, "<dl class=\"figures\">\n");
    for (size_t i = 0; i < ARRAY_SIZE(figures); i++) {
        html_put(out, "<div><dt>{}</dt><dd>", 1, figures[i].name);
        html_number(out, figures[i].number);
        buf_put_text(out, "</dd></div>\n");
    }
    buf_put_text(out, "</dl>\n");
}

static void write_refusals(struct buf *out, const struct job *job)
{
    if (job->refusal_count == 0)
        return;
    buf_put_text(out, "<h2>Refused</h2>\n");
    html_table(out, "Refused events", NULL, "Event|Why");
    for (int i = 0; i < job->refusal_count; i++)
        html_put(out, "<tr><th scope=\"row\"><a class=\"id\" href=\"/events/{}\">{}</a></th><td>{}</td></tr>\n", 3,
                 job->refusals[i].id, job->refusals[i].id, job->refusals[i].why);
    html_table_end(out);
    if (job->bulk.refused > job->refusal_count)
        buf_put_text(out, "<p class=\"hint\">Only the first ones are listed.</p>\n");
}

static void write_progress(struct buf *out, const struct job *job)
{
    buf_put_text(out, "<section id=\"progress\" data-live aria-label=\"Progress\">\n<p>");
    write_state(out, job);
    buf_put_text(out, " since ");
    html_time(out, job->state == JOB_RUNNING ? job->started_us : job->ended_us);
    buf_put_format(out,
                   "</p>\n<progress max=\"%" PRId64 "\" value=\"%" PRId64 "\" aria-label=\"Progress\">%" PRId64
                   " of %" PRId64 "</progress>\n",
                   job->bulk.total > 0 ? job->bulk.total : 1, job->state == JOB_DONE ? job->bulk.total : job_acted(job),
                   job_acted(job), job->bulk.total);
    write_figures(out, job);
    if (job->trouble[0])
        html_put(out, "<p class=\"notice bad\">{}{}</p>\n", 2, job->trouble,
                 job->state == JOB_RUNNING ? "; it continues when the database answers." : ".");
    write_refusals(out, job);
    buf_put_text(out, "</section>\n");
}

bool page_job(struct page *page, struct err *err)
{
    struct job *job = find_job(page, err);
    struct buf *out = page->out;
    char action[64], id[UUID_TEXT_SIZE];
    if (!job)
        return false;
    html_put(out, "<h1>{} ", 1, job->bulk.verb->question);
    write_scope(out, job);
    html_put(out, "</h1>\n<p>Reason: {}", 1, job->bulk.action.reason);
    if (job->bulk.rate)
        html_put(out, ". At most {} events a second", 1, job->bulk.rate);
    html_put(out, ". <a href=\"/audit?batch={}\">In the audit</a>.</p>\n", 1, action_batch_id(&job->bulk.action, id));
    html_put(out, "<p id=\"outcome\" data-live role=\"status\" aria-live=\"polite\" class=\"unseen\">{}</p>\n", 1,
             job_states[job->state].word);
    write_progress(out, job);
    page->refresh_s = job->state == JOB_RUNNING ? page->refresh_s : 0;
    if (job->state == JOB_RUNNING && page->console->may_act) {
        buf_put_text(out, "<div id=\"stop\" data-live>");
        snprintf(action, sizeof(action), "/jobs/%d/stop", job->number);
        layout_post(page, action);
        buf_put_text(out, "<p class=\"buttons\"><button>Stop after the current event</button></p></form></div>\n");
    } else {
        buf_put_text(
            out,
            "<div id=\"stop\" data-live data-ended><p><a href=\"/events?status=FAILED\">To the FAILED events</a></p>"
            "</div>\n");
    }
    return true;
}

bool page_jobs(struct page *page, struct err *err)
{
    const struct jobs *jobs = &page->console->jobs;
    struct buf *out = page->out;
    (void)err;
    buf_put_text(
        out,
        "<h1>Bulk actions</h1>\n<p>All bulk actions of this console since it was started. What they changed is in the "
        "<a href=\"/audit\">audit trail</a>. A bulk action begins at the "
        "<a href=\"/events?status=FAILED\">events</a>.</p>\n<section id=\"jobs\" data-live>\n");
    if (jobs->count == 0) {
        buf_put_text(out, "<p class=\"empty\">None so far.</p>\n</section>\n");
        return true;
    }
    html_table(out, "Bulk actions, newest first", NULL, "Action|State|#Done|#Refused|#Of|Started|Reason");
    for (int i = 0; i < jobs->count; i++) {
        const struct job *job = jobs->list[i];
        buf_put_format(out, "<tr><th scope=\"row\"><a href=\"/jobs/%d\">%s ", job->number, job->bulk.verb->word);
        write_scope(out, job);
        buf_put_text(out, "</a></th><td>");
        write_state(out, job);
        buf_put_format(out,
                       "</td><td class=\"number\">%" PRId64 "</td><td class=\"number\">%" PRId64
                       "</td><td class=\"number\">%" PRId64 "</td>",
                       job->bulk.done, job->bulk.refused, job->bulk.total);
        html_cell_time(out, job->started_us);
        html_put(out, "<td class=\"why\">{}</td></tr>\n", 1, job->bulk.action.reason);
    }
    html_table_end(out);
    buf_put_text(out, "</section>\n");
    return true;
}
