/* See status.h. Left out: history; every figure is of now. */
#include "ctl/console/status.h"

#include <inttypes.h>

#include "common/lib/base/clock.h"
#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/layout.h"
#include "statements.h"

#define KEPT_FACTOR 20
#define KEPT_MOST_MS 30000
#define FLOW_ROWS_MAX 1000 /* of each part */
#define WORKERS_SHOWN 100

void status_done(struct status *status)
{
    pg_rows_free(status->open.rows);
    pg_rows_free(status->rejected.rows);
    pg_rows_free(status->pattern.rows);
    pg_rows_free(status->pace.rows);
    pg_rows_free(status->failed.rows);
    pg_rows_free(status->flow.rows);
    pg_rows_free(status->hours.rows);
    pg_rows_free(status->days.rows);
    *status = (struct status){.open = {.rows = NULL}};
}

bool status_is_slow(const struct err *err)
{
    return err_is_sqlstate(err, "57014") || err_is_sqlstate(err, "55P03");
}

static bool keep(struct console *console, struct status_kept *kept, const struct sql_statement *statement,
                 const struct pg_param *params, struct err *err)
{
    struct pg_rows *rows = NULL;
    int64_t begun_ms = clock_mono_ms();
    if (kept->rows && begun_ms < kept->until_ms)
        return true;
    if (!pg_sync_query(console->ctl->db, statement, params, &rows, err))
        return false;
    pg_rows_free(kept->rows);
    kept->rows = rows;
    int64_t kept_ms = KEPT_FACTOR * (clock_mono_ms() - begun_ms);
    kept->until_ms = clock_mono_ms() + (kept_ms < KEPT_MOST_MS ? kept_ms : KEPT_MOST_MS);
    return true;
}

static bool keep_backlog(struct console *console, struct status_kept *kept, const struct sql_statement *statement,
                         const struct pg_rows **ret_rows, struct err *err)
{
    struct pg_param params[BACKLOG_PARAMS];
    backlog_params(BACKLOG_MAX, console->ctl->config->issuer.key_lifetime_ms, params);
    if (!keep(console, kept, statement, params, err))
        return false;
    *ret_rows = kept->rows;
    return true;
}

bool status_read_open(struct console *console, const struct pg_rows **ret_rows, struct err *err)
{
    return keep_backlog(console, &console->status.open, &sql_operator_open, ret_rows, err);
}

bool status_read_failed(struct console *console, const struct pg_rows **ret_rows, struct err *err)
{
    return keep_backlog(console, &console->status.failed, &sql_operator_failed, ret_rows, err);
}

bool status_read_rejected(struct console *console, const struct pg_rows **ret_rows, struct err *err)
{
    if (!keep(console, &console->status.rejected, &sql_operator_status_rejected, NULL, err))
        return false;
    *ret_rows = console->status.rejected.rows;
    return true;
}

bool status_read_facts(struct console *console, const struct pg_rows *open, const struct pg_rows *failed,
                       struct verdict_facts *ret_facts, struct err *err)
{
    const struct pg_param newest = pg_param_int8(VERDICT_NEWEST), most = pg_param_int8(VERDICT_MADE_MAX);
    struct status *status = &console->status;
    if (!keep(console, &status->rejected, &sql_operator_status_rejected, NULL, err) ||
        !keep(console, &status->pattern, &sql_operator_pattern, &newest, err) ||
        !keep(console, &status->pace, &sql_operator_pace, &most, err))
        return false;
    verdict_facts_of(console->ctl->config, console->ctl->place, open, failed, ret_facts);
    ret_facts->rejected = status->rejected.rows;
    ret_facts->pattern = status->pattern.rows;
    ret_facts->pace = status->pace.rows;
    return true;
}

bool status_read_flow(struct console *console, int64_t part_s, int64_t parts, const struct pg_rows **ret_rows,
                      struct err *err)
{
    const struct pg_param params[] = {pg_param_int8(part_s), pg_param_int8(parts), pg_param_int8(FLOW_ROWS_MAX)};
    if (!keep(console, &console->status.flow, &sql_console_flow, params, err))
        return false;
    *ret_rows = console->status.flow.rows;
    return true;
}

bool status_read_ends(struct console *console, bool by_day, const struct pg_rows **ret_rows, struct err *err)
{
    const struct pg_param params[] = {pg_param_int8(by_day ? 30 : 24), pg_param_int8(by_day ? 86400 : 3600)};
    struct status_kept *kept = by_day ? &console->status.days : &console->status.hours;
    if (!keep(console, kept, &sql_console_ends, params, err))
        return false;
    *ret_rows = kept->rows;
    return true;
}

static void write_pill(struct buf *out, const char *class, const char *sign, const char *text)
{
    html_put(out, "<span class=\"status {}\"><span aria-hidden=\"true\">{}</span> {}</span>", 3, class, sign, text);
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
            write_pill(out, states[i].class, states[i].sign, states[i].text);
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
    buf_put_text(out, "<tr class=\"act\"><td colspan=\"5\">");
    html_put(out, "<form method=\"post\" class=\"inline\" action=\"/targets/{}\">", 1, target);
    html_put(out,
             "<input type=\"hidden\" name=\"form_secret\" value=\"{}\">"
             "<label class=\"unseen\" for=\"why-{}\">Reason for {}</label>"
             "<input id=\"why-{}\" name=\"reason\" value=\"{}\" required maxlength=\"1000\" placeholder=\"reason\" "
             "autocomplete=\"off\">\n",
             5, page->session->form_secret, target, target, target, is_refused ? form_get(page->form, "reason") : NULL);
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
    if (cluster->target_count == 0) {
        buf_put_text(out, "<p class=\"empty\">No worker has written a heartbeat yet.</p>\n");
        return;
    }
    html_table(out, "Targets that workers call");
    buf_put_text(
        out, "<th scope=\"col\">Target</th><th scope=\"col\">State</th>"
             "<th scope=\"col\" class=\"number\">Events behind</th><th scope=\"col\" class=\"number\">In flight</th>"
             "<th scope=\"col\">Why</th>");
    html_table_body(out);
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
}

static void write_worker(struct buf *out, const struct cluster_worker *worker, int64_t now_us)
{
    html_put(out, "<tr><th scope=\"row\">{}</th><td>", 1, worker->name);
    if (!worker->is_alive)
        write_pill(out, "rejected", "\xE2\x9C\x95", "dead");
    else if (worker->is_silent)
        write_pill(out, "failed", "\xE2\x96\xB2", "silent");
    else if (worker->is_draining)
        write_pill(out, "processing", "\xE2\x97\x90", "draining");
    else
        write_pill(out, "completed", "\xE2\x9C\x93", "working");
    html_put(out, "</td><td>{}</td>", 1, worker->version);
    buf_put_format(out, "<td class=\"number\">%" PRId64 " of %" PRId64 "</td><td class=\"when\">", worker->in_flight,
                   worker->slots);
    html_time(out, worker->started_us);
    buf_put_text(out, "</td><td>");
    html_span(out, now_us > worker->seen_us ? now_us - worker->seen_us : 0);
    buf_put_text(out, " ago</td></tr>\n");
}

void status_write_workers(struct buf *out, const struct cluster *cluster)
{
    if (cluster->worker_count == 0) {
        buf_put_text(out, "<p class=\"empty\">No worker has written a heartbeat within the last day.</p>\n");
        return;
    }
    html_table(out, "Workers of the last day");
    buf_put_text(out, "<th scope=\"col\">Worker</th><th scope=\"col\">State</th><th scope=\"col\">Version</th>"
                      "<th scope=\"col\" class=\"number\">Events held</th><th scope=\"col\">Started</th>"
                      "<th scope=\"col\">Seen</th>");
    html_table_body(out);
    for (int i = 0; i < cluster->worker_count && i < WORKERS_SHOWN; i++)
        write_worker(out, &cluster->workers[i], cluster->now_us);
    html_table_end(out);
    if (cluster->worker_count > WORKERS_SHOWN)
        buf_put_format(out, "<p class=\"hint\">%d more are not shown: issuing-ctl workers</p>\n",
                       cluster->worker_count - WORKERS_SHOWN);
}
