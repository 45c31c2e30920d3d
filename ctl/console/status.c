/* See status.h. Left out: history; every figure is of now. */
#include "ctl/console/status.h"

#include <inttypes.h>

#include "common/lib/base/clock.h"
#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "statements.h"

#define KEPT_FACTOR 20
#define KEPT_MOST_MS 30000
#define FLOW_ROWS_MAX 1000 /* of each part */
#define WORKERS_SHOWN 100

static const struct plot_series ends[] = {{ENDS_COMPLETED, "completed", "line completed"},
                                          {ENDS_REJECTED, "rejected", "line rejected"},
                                          {ENDS_FAILED, "failed", "line failed"}};
const struct plot status_plot_ends = {
    .id = "ends",
    .title = "Events by the hour in which they ended",
    .series = ends,
    .series_count = ARRAY_SIZE(ends),
};

void status_done(struct status *status)
{
    for (int what = 0; what < STATUS_COUNT; what++)
        pg_rows_free(status->kept[what].rows);
    *status = (struct status){.kept = {{.rows = NULL}}};
}

bool status_is_slow(const struct err *err)
{
    return err_is_sqlstate(err, "57014") || err_is_sqlstate(err, "55P03");
}

bool status_read(struct console *console, enum status_what what, const struct pg_rows **ret_rows, struct err *err)
{
    struct pg_param backlog[BACKLOG_PARAMS];
    const struct pg_param newest = pg_param_int8(VERDICT_NEWEST), most = pg_param_int8(VERDICT_MADE_MAX);
    const struct pg_param flow[] = {pg_param_int8(FLOW_PART_S), pg_param_int8(FLOW_PARTS),
                                    pg_param_int8(FLOW_ROWS_MAX)};
    const struct pg_param hours[] = {pg_param_int8(24), pg_param_int8(3600)};
    const struct pg_param days[] = {pg_param_int8(30), pg_param_int8(86400)};
    const struct {
        const struct sql_statement *statement;
        const struct pg_param *params;
    } questions[STATUS_COUNT] = {
        [STATUS_OPEN] = {&sql_operator_open, backlog},
        [STATUS_FAILED] = {&sql_operator_failed, backlog},
        [STATUS_REJECTED] = {&sql_operator_status_rejected, NULL},
        [STATUS_PATTERN] = {&sql_operator_pattern, &newest},
        [STATUS_PACE] = {&sql_operator_pace, &most},
        [STATUS_FLOW] = {&sql_console_flow, flow},
        [STATUS_HOURS] = {&sql_console_ends, hours},
        [STATUS_DAYS] = {&sql_console_ends, days},
    };
    struct status_kept *kept = &console->status.kept[what];
    int64_t begun_ms = clock_mono_ms();
    if (!kept->rows || begun_ms >= kept->until_ms) {
        struct pg_rows *rows = NULL;
        backlog_params(BACKLOG_MAX, console->ctl->config->issuer.key_lifetime_ms, backlog);
        if (!pg_sync_query(console->ctl->db, questions[what].statement, questions[what].params, &rows, err))
            return false;
        pg_rows_free(kept->rows);
        kept->rows = rows;
        int64_t kept_ms = KEPT_FACTOR * (clock_mono_ms() - begun_ms);
        kept->until_ms = clock_mono_ms() + (kept_ms < KEPT_MOST_MS ? kept_ms : KEPT_MOST_MS);
    }
    *ret_rows = kept->rows;
    return true;
}

bool status_read_facts(struct console *console, const struct pg_rows *open, const struct pg_rows *failed,
                       struct verdict_facts *ret_facts, struct err *err)
{
    struct verdict_facts facts;
    verdict_facts_of(console->ctl->config, console->ctl->place, open, failed, &facts);
    if (!status_read(console, STATUS_REJECTED, &facts.rejected, err) ||
        !status_read(console, STATUS_PATTERN, &facts.pattern, err) ||
        !status_read(console, STATUS_PACE, &facts.pace, err))
        return false;
    *ret_facts = facts;
    return true;
}

static void write_target_state(struct buf *out, const struct cluster_target *target)
{
    static const struct {
        const char *state, *class, *sign, *text;
    } states[] = {
        {"paused", "pending", "\xE2\x80\x96", "paused"},
        {"open", "failed", "\xE2\x96\xB2", "breaker open"},
        {"half_open", "failed", "\xE2\x96\xB3", "breaker half open"},
        {"resting", "processing", "\xE2\x97\x90", "resting after 429"},
        {"closed", "completed", "\xE2\x9C\x93", "breaker closed"},
        {"no_worker", "rejected", "?", "no worker calls it"},
    };
    const char *state = cluster_state(target);
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        if (strcmp(states[i].state, state) == 0)
            html_pill(out, states[i].class, states[i].sign, states[i].text);
}

static void write_target_why(struct buf *out, const struct cluster_target *target, int64_t now_us)
{
    if (target->paused_us != 0) {
        html_put(out, "paused by {} for ", 1, target->paused_by);
        html_span(out, now_us - target->paused_us);
        html_put(out, ": {}", 1, target->paused_why);
        if (target->paused_until_us != 0) {
            buf_put_text(out, "; until ");
            html_time(out, target->paused_until_us);
        }
        if (target->obeying < target->workers)
            buf_put_format(out, "; %" PRId64 " of %" PRId64 " workers obey so far", target->obeying, target->workers);
        return;
    }
    if (target->obeying > 0)
        buf_put_format(out, "%" PRId64 " of %" PRId64 " workers still obey the pause; ", target->obeying,
                       target->workers);
    if (!target->cause)
        return;
    int64_t open = target->open + target->half_open;
    html_put(out, "<span class=\"short\">{}</span>{}", 2, target->cause, open > 0 ? " for " : ", until ");
    if (open > 0)
        html_span(out, now_us - target->since_us);
    else
        html_time(out, target->next_us);
    buf_put_format(out, ", at %" PRId64 " of %" PRId64 " workers", open > 0 ? open : target->resting, target->workers);
}

static void write_spans(struct buf *out, const char *chosen)
{
    static const struct {
        const char *value, *text;
    } spans[] = {{"", "until resumed"}, {"15m", "15 min"}, {"1h", "1 h"}, {"4h", "4 h"}};
    for (size_t i = 0; i < ARRAY_SIZE(spans); i++)
        html_put(out, "<option value=\"{}\"{}>{}</option>", 3, spans[i].value,
                 chosen && strcmp(chosen, spans[i].value) == 0 ? " selected" : "", spans[i].text);
}

/* In a row of its own below the target: what is to its right may lie outside a narrow window. */
static void write_target_form(struct page *page, const char *target, bool is_paused)
{
    struct buf *out = page->out;
    bool is_refused = strcmp(page->segment, target) == 0; /* it keeps what was typed */
    html_put(out,
             "<tr class=\"act\"><td colspan=\"5\"><form method=\"post\" class=\"inline\" action=\"/targets/{}\">"
             "<input type=\"hidden\" name=\"form_secret\" value=\"{}\">"
             "<label class=\"unseen\" for=\"why-{}\">Reason for {}</label>"
             "<input id=\"why-{}\" name=\"reason\" value=\"{}\" required maxlength=\"1000\" placeholder=\"reason\" "
             "autocomplete=\"off\">\n",
             6, target, page->session->form_secret, target, target, target,
             is_refused ? form_get(page->form, "reason") : NULL);
    if (is_paused) {
        html_put(out,
                 "<button name=\"action\" value=\"resume_target\">Resume<span class=\"unseen\"> {}</span></button>", 1,
                 target);
    } else {
        html_put(out,
                 "<label class=\"unseen\" for=\"for-{}\">How long to pause {}</label>"
                 "<select id=\"for-{}\" name=\"for\">",
                 3, target, target, target);
        write_spans(out, is_refused ? form_get(page->form, "for") : NULL);
        html_put(out,
                 "</select>\n<button name=\"action\" value=\"pause_target\">Pause<span class=\"unseen\"> "
                 "{}</span></button>\n"
                 "<button name=\"action\" value=\"probe_target\">Probe now<span class=\"unseen\"> {}</span></button>",
                 2, target, target);
    }
    buf_put_text(out, "</form></td></tr>\n");
}

void status_write_targets(struct page *page, const struct cluster *cluster, bool has_actions)
{
    struct buf *out = page->out;
    html_section(out, "targets", "Targets");
    if (cluster->target_count == 0) {
        buf_put_text(out, "<p class=\"empty\">No worker has written a heartbeat yet.</p>\n</section>\n");
        return;
    }
    html_table(out, "Targets that workers call", NULL, "Target|State|#Events behind|#In flight|Why");
    for (int i = 0; i < cluster->target_count; i++) {
        const struct cluster_target *target = &cluster->targets[i];
        html_put(out, "<tr><th scope=\"row\">{}</th><td>", 1, target->name);
        write_target_state(out, target);
        buf_put_text(out, "</td><td class=\"number\">");
        if (cluster->open)
            html_number(out, target->backlog);
        buf_put_text(out, !cluster->open ? "?" : target->is_least ? "+" : "");
        buf_put_text(out, "</td><td class=\"number\">");
        html_number(out, target->in_flight);
        if (target->waiting > 0)
            buf_put_format(out, " +%" PRId64 " waiting", target->waiting);
        buf_put_text(out, "</td><td class=\"why\">");
        write_target_why(out, target, cluster->now_us);
        buf_put_text(out, "</td></tr>\n");
        if (has_actions)
            write_target_form(page, target->name, target->paused_us != 0);
    }
    html_table_end(out);
    buf_put_text(out, "</section>\n");
}

static void write_worker(struct buf *out, const struct cluster_worker *worker, int64_t now_us)
{
    html_put(out, "<tr><th scope=\"row\">{}</th><td>", 1, worker->name);
    if (!worker->is_alive)
        html_pill(out, "rejected", "\xE2\x9C\x95", "dead");
    else if (worker->is_silent)
        html_pill(out, "failed", "\xE2\x96\xB2", "silent");
    else if (worker->is_draining)
        html_pill(out, "processing", "\xE2\x97\x90", "draining");
    else
        html_pill(out, "completed", "\xE2\x9C\x93", "working");
    html_put(out, "</td><td>{}</td>", 1, worker->version);
    buf_put_format(out, "<td class=\"number\">%" PRId64 " of %" PRId64 "</td>", worker->in_flight, worker->slots);
    html_cell_time(out, worker->started_us);
    buf_put_text(out, "<td>");
    html_span(out, now_us > worker->seen_us ? now_us - worker->seen_us : 0);
    buf_put_text(out, " ago</td></tr>\n");
}

void status_write_workers(struct buf *out, const struct cluster *cluster)
{
    html_section(out, "workers", "Workers");
    if (cluster->worker_count == 0) {
        buf_put_text(out,
                     "<p class=\"empty\">No worker has written a heartbeat within the last day.</p>\n</section>\n");
        return;
    }
    html_table(out, "Workers of the last day", NULL, "Worker|State|Version|#Events held|Started|Seen");
    for (int i = 0; i < cluster->worker_count && i < WORKERS_SHOWN; i++)
        write_worker(out, &cluster->workers[i], cluster->now_us);
    html_table_end(out);
    if (cluster->worker_count > WORKERS_SHOWN)
        buf_put_format(out, "<p class=\"hint\">%d more are not shown: issuing-ctl workers</p>\n",
                       cluster->worker_count - WORKERS_SHOWN);
    buf_put_text(out, "</section>\n");
}
