/* issuing-ctl stats: how many events ended, how, and how long that took, by the statistics that follow the events, or
 * counted from the rows; and the rebuild of the statistics. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/moment.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "statements.h"

#define HOUR_US INT64_C(3600000000)
#define LATE_MS 10000 /* a fold is made every second */

struct stats {
    const char *since, *by, *type, *reason;
    bool is_exact, is_rebuild;
    struct moment moment;
    int64_t part_s;   /* 0 = one part */
    int64_t since_us; /* the first hour; 0 = all */
    struct action action;
};

/* Columns of operator_stats. */
enum { PART_AT, TYPE, STATUS, REASON, COUNT, MEAN, P50, P95, P99 };

static bool read_options(struct stats *stats, char **arguments, int count, struct err *err)
{
    const struct option_spec specs[] = {
        {.name = "since", .text = &stats->since},
        {.name = "by", .text = &stats->by},
        {.name = "type", .text = &stats->type},
        {.name = "exact", .flag = &stats->is_exact},
        {.name = "rebuild", .flag = &stats->is_rebuild},
        {.name = "reason", .text = &stats->reason},
        {.name = NULL},
    };
    if (!options_read(specs, arguments, count, &count, err))
        return false;
    if (count > 0)
        return err_set(err, ERR_USAGE, "stats takes no %.60s", arguments[0]);
    if (stats->since && !moment_parse(stats->since, &stats->moment))
        return err_set(err, ERR_USAGE, "--since %.60s is neither " MOMENT_FORMS, stats->since);
    if (stats->by && strcmp(stats->by, "hour") != 0 && strcmp(stats->by, "day") != 0)
        return err_set(err, ERR_USAGE, "--by takes hour or day, not %.60s", stats->by);
    stats->part_s = !stats->by ? 0 : strcmp(stats->by, "day") == 0 ? 86400 : 3600;
    if (!stats->is_rebuild)
        return !stats->reason || err_set(err, ERR_USAGE, "--reason is for --rebuild");
    if (stats->by || stats->type || stats->is_exact)
        return err_set(err, ERR_USAGE, "--rebuild takes --since and --reason only");
    return action_init(&stats->action, stats->reason, err);
}

/* ---- show ---- */

static struct json *group_json(const struct pg_rows *rows, int row)
{
    return JSON_OBJECT(json_time("from", pg_time_us(rows, row, PART_AT)), json_text("type", pg_text(rows, row, TYPE)),
                       json_text("status", pg_text(rows, row, STATUS)), json_text("reason", pg_text(rows, row, REASON)),
                       json_number("count", pg_int8(rows, row, COUNT)),
                       json_number("mean_ms", pg_int8(rows, row, MEAN)), json_number("p50_ms", pg_int8(rows, row, P50)),
                       json_number("p95_ms", pg_int8(rows, row, P95)), json_number("p99_ms", pg_int8(rows, row, P99)));
}

static void add_bound(struct table *table, int64_t ms)
{
    char span[PRINT_SPAN_SIZE], text[PRINT_SPAN_SIZE + 2];
    snprintf(text, sizeof(text), "< %s", print_span(ms * 1000, span));
    table_add(table, text);
}

static void add_group(struct table *table, const struct pg_rows *rows, int row, bool has_parts)
{
    char text[PRINT_SPAN_SIZE], time[PRINT_TIME_SIZE], number[PRINT_NUMBER_SIZE];
    if (has_parts)
        table_add(table, print_time(pg_time_us(rows, row, PART_AT), time));
    table_add(table, pg_text(rows, row, TYPE));
    table_add(table, pg_text(rows, row, STATUS));
    table_add(table, pg_text(rows, row, REASON));
    table_add(table, print_number(pg_int8(rows, row, COUNT), number));
    table_add(table, print_span(pg_int8(rows, row, MEAN) * 1000, text));
    add_bound(table, pg_int8(rows, row, P50));
    add_bound(table, pg_int8(rows, row, P95));
    add_bound(table, pg_int8(rows, row, P99));
}

static bool print_groups(const struct ctl *ctl, const struct stats *stats, const struct pg_rows *rows, struct err *err)
{
    static const char *const heads[] = {"FROM", "TYPE", "STATUS", "REASON", "COUNT", "MEAN", "P50", "P95", "P99", NULL};
    bool has_parts = stats->part_s > 0;
    struct table table;
    table_init(&table, has_parts ? heads : heads + 1);
    for (int row = 0; row < pg_rows_count(rows); row++) {
        if (ctl->json)
            table_add_json(&table, group_json(rows, row));
        else
            add_group(&table, rows, row, has_parts);
    }
    return table_end(&table, err);
}

/* What a reader of the statistics must know: they are behind, or changes are missing. On standard error. */
static void print_notes(const struct ctl *ctl, const struct stats *stats, const struct pg_rows *rows, int64_t lag_ms,
                        int64_t refused)
{
    char span[PRINT_SPAN_SIZE];
    fflush(stdout);
    if (pg_rows_count(rows) == 0 && !ctl->json)
        fputs("No event has ended in this time.\n", stderr);
    if (stats->is_exact)
        return;
    if (lag_ms > LATE_MS)
        fprintf(stderr,
                "issuing-ctl: the statistics are %s behind: a worker that runs folds them (issuing-ctl workers)\n",
                print_span(lag_ms * 1000, span));
    if (refused > 0)
        fprintf(stderr,
                "issuing-ctl: %" PRId64 " changes could not be counted (statistics_changes.refused): stats --rebuild\n",
                refused);
}

static struct pg_param since_param(const struct stats *stats)
{
    return stats->since ? pg_param_int8(stats->since_us) : pg_param_null();
}

static bool show(struct ctl *ctl, struct stats *stats, int64_t lag_ms, int64_t refused, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {
        pg_param_string(stats->type),
        stats->part_s > 0 ? pg_param_int8(stats->part_s) : pg_param_null(),
        since_param(stats),
    };
    if (!pg_sync_query(ctl->db, stats->is_exact ? &sql_operator_stats_exact : &sql_operator_stats, params, &rows,
                       err) ||
        !print_groups(ctl, stats, rows, err))
        return false;
    print_notes(ctl, stats, rows, lag_ms, refused);
    return true;
}

/* ---- rebuild ---- */

static bool rebuild(struct ctl *ctl, struct stats *stats, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[1 + ACTION_PARAMS] = {since_param(stats)};
    action_params(&stats->action, params + 1);
    if (!pg_sync_query(ctl->db, &sql_operator_stats_rebuild, params, &rows, err))
        return false;
    bool is_refused = !pg_is_null(rows, 0, 0);
    int64_t corrected = is_refused ? 0 : pg_int8(rows, 0, 1);
    ctl->code = is_refused ? CTL_REFUSED : CTL_DONE;
    if (ctl->json)
        return print_json(JSON_OBJECT(json_text("result", is_refused ? "refused" : "rebuilt"),
                                      json_text("why", pg_text(rows, 0, 0)), json_number("corrected", corrected)),
                          err);
    if (is_refused)
        puts("refused: another rebuild is running");
    else
        printf("rebuilt: %" PRId64 " %s corrected\n", corrected, corrected == 1 ? "row" : "rows");
    return true;
}

static bool run_stats(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    enum { NOW, LAG_MS, REFUSED };
    pg_rows_scope struct pg_rows *rows = NULL;
    struct stats stats = {.since = NULL};
    if (!read_options(&stats, arguments, count, err) || !ctl_connect(ctl, err) ||
        !pg_sync_query(ctl->db, &sql_operator_stats_state, NULL, &rows, err))
        return false;
    if (stats.since) {
        int64_t since_us = moment_us(&stats.moment, pg_time_us(rows, 0, NOW));
        stats.since_us = since_us - since_us % HOUR_US;
    }
    return stats.is_rebuild ? rebuild(ctl, &stats, err)
                            : show(ctl, &stats, pg_int8(rows, 0, LAG_MS), pg_int8(rows, 0, REFUSED), err);
}

const struct ctl_command ctl_stats = {
    .word = "stats",
    .usage = "[--since D] [--by hour|day] [--type T] [--exact] | --rebuild [--since D] --reason TEXT",
    .summary = "how many events ended, how, and how long it took",
    .help =
        "Shows how many events reached each final status, by reason, with the mean time from acceptance to the final\n"
        "status, and bounds below which 50, 95 and 99 percent of these times are. An event counts in the hour in\n"
        "which it ended; one that is replayed is not counted until it ends again. Days begin at 00:00 UTC.\n\n"
        "  --since D      from the hour of D on: a duration back from now (90s, 12h, 4w) or a time (2026-11-20,\n"
        "                 2026-11-20T10:39:57Z)\n"
        "  --by hour|day  a row for each hour or day instead of one for the whole time\n"
        "  --type T       events of this type only\n"
        "  --exact        count the events themselves: slow where they are many\n"
        "  --rebuild      make the statistics equal to --exact; possible at any time, also under load\n"
        "  --reason TEXT  why it is rebuilt; stored in operator_actions\n\n"
        "The statistics follow the events by a few seconds, and nothing decides by them. They keep the count of\n"
        "events that the housekeeping has deleted (outbox.retention). --exact counts only events that are still\n"
        "there, so a rebuild loses the others: with --since, only hours from D on are rebuilt.\n",
    .run = run_stats,
};
