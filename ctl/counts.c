/* See counts.h.
 *
 * It costs the same however many events there are: what is above COUNTS_MAX is estimated by the planner's statistics.
 * The open and the FAILED ones, which an operator acts on, are counted by their indexes; their numbers are exact up to
 * COUNTS_MAX each. */
#include "ctl/counts.h"

#include <stdio.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "statements.h"

#define ESTIMATE_MIN 1000 /* statistics of the planner say nothing about fewer */
#define ESTIMATE_SURE 2   /* an estimate above this multiple of COUNTS_MAX is shown, and the rows are not counted */

/* Rows of (status, count, age of the oldest). */
static bool take_counts(const struct pg_rows *rows, struct counts *counts, struct err *err)
{
    for (int row = 0; row < pg_rows_count(rows); row++) {
        struct slice text = pg_bytes(rows, row, 0);
        enum outbox_status status;
        if (!outbox_status_parse(text.bytes, text.length, &status))
            return err_set(err, ERR_DATABASE,
                           "events have the unknown status %.40s; is the schema newer than this program?", text.bytes);
        counts->events[status] = pg_int8(rows, row, 1);
        if (status == OUTBOX_PENDING)
            counts->oldest_pending_s = pg_int8(rows, row, 2);
    }
    return true;
}

/* Counts at most so many events; null = all. */
static bool count(struct ctl *ctl, struct pg_param most, struct counts *counts, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {most};
    return pg_sync_query(ctl->db, &sql_operator_status, params, &rows, err) && take_counts(rows, counts, err);
}

/* The planner's number of rows: [{"Plan": {"Plan Rows": n, ...}}]. */
static bool estimate(struct ctl *ctl, const struct sql_statement *statement, int64_t *ret_rows, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct json_value plan;
    size_t cursor = 0;
    if (!pg_sync_query(ctl->db, statement, NULL, &rows, err))
        return false;
    struct slice text = pg_bytes(rows, 0, 0);
    if (json_strict_check(text.bytes, text.length, NULL) &&
        json_next_element(json_value_of(text.bytes, text.length), &cursor, &plan) &&
        json_integer(json_member(json_member(plan, "Plan"), "Plan Rows"), 0, INT64_MAX, ret_rows))
        return true;
    return err_set(err, ERR_DATABASE, "EXPLAIN gave no estimate of rows");
}

static int64_t at_least(int64_t number, int64_t least)
{
    return number > least ? number : least;
}

static bool read_open(struct ctl *ctl, struct counts *counts, struct err *err)
{
    struct backlog_type type;
    int64_t open = 0;
    for (int row = 0; backlog_next(counts->open, &row, &type);) {
        int64_t age_s = type.pending > 0 ? backlog_age_us(&type, backlog_now_us(counts->open)) / 1000000 : 0;
        counts->events[OUTBOX_PENDING] += type.pending;
        counts->events[OUTBOX_PROCESSING] += type.processing;
        counts->oldest_pending_s = at_least(age_s, counts->oldest_pending_s);
    }
    if (counts->events[OUTBOX_PENDING] + counts->events[OUTBOX_PROCESSING] <= COUNTS_MAX)
        return true;
    if (!estimate(ctl, &sql_operator_status_estimate_open, &open, err))
        return false;
    /* Those that are held are due, so they are among the first by the index: their number is exact. */
    counts->events[OUTBOX_PENDING] = at_least(open - counts->events[OUTBOX_PROCESSING], counts->events[OUTBOX_PENDING]);
    counts->estimated[OUTBOX_PENDING] = true;
    return true;
}

/* all: how many there are, by the planner. */
static bool read_large(struct ctl *ctl, int64_t all, struct counts *counts, struct err *err)
{
    int64_t rejected = 0, failed = backlog_failed(counts->failed), seen[COUNTS_STATUSES];
    memcpy(seen, counts->events, sizeof(seen)); /* these were counted, so the statistics do not matter */
    memset(counts->events, 0, sizeof(counts->events));
    counts->oldest_pending_s = 0;
    if (!read_open(ctl, counts, err) || !estimate(ctl, &sql_operator_status_estimate_rejected, &rejected, err))
        return false;
    if (failed > COUNTS_MAX) {
        if (!estimate(ctl, &sql_operator_status_estimate_failed, &failed, err))
            return false;
        failed = at_least(failed, backlog_failed(counts->failed));
        counts->estimated[OUTBOX_FAILED] = true;
    }
    counts->events[OUTBOX_FAILED] = failed;
    counts->events[OUTBOX_REJECTED] = at_least(rejected, seen[OUTBOX_REJECTED]);
    counts->events[OUTBOX_COMPLETED] =
        at_least(all - rejected - failed - counts->events[OUTBOX_PENDING] - counts->events[OUTBOX_PROCESSING],
                 seen[OUTBOX_COMPLETED]);
    counts->estimated[OUTBOX_REJECTED] = counts->estimated[OUTBOX_COMPLETED] = true;
    return true;
}

/* Open and FAILED ones: there are at least this many events. */
static int64_t waiting(const struct counts *counts)
{
    struct backlog_type type;
    int64_t events = backlog_failed(counts->failed);
    for (int row = 0; backlog_next(counts->open, &row, &type);)
        events += type.pending + type.processing;
    return events;
}

bool counts_read(struct ctl *ctl, bool exact, struct counts *counts, struct err *err)
{
    int64_t total = 0, all = 0;
    struct pg_param params[BACKLOG_PARAMS];
    backlog_params(COUNTS_MAX + 1, ctl->config->issuer.key_lifetime_ms, params);
    if (!pg_sync_query(ctl->db, &sql_operator_open, params, &counts->open, err))
        return false;
    params[0] = pg_param_int8(exact ? INT64_MAX : COUNTS_MAX + 1);
    if (!pg_sync_query(ctl->db, &sql_operator_failed, params, &counts->failed, err))
        return false;
    if (exact)
        return count(ctl, pg_param_null(), counts, err);
    if (!estimate(ctl, &sql_operator_status_estimate, &all, err))
        return false;
    if (waiting(counts) > COUNTS_MAX || all > ESTIMATE_SURE * COUNTS_MAX)
        return read_large(ctl, all, counts, err);
    if (!count(ctl, pg_param_int8(COUNTS_MAX + 1), counts, err))
        return false;
    for (int status = 0; status < COUNTS_STATUSES; status++)
        total += counts->events[status];
    return total <= COUNTS_MAX || read_large(ctl, all, counts, err);
}

int64_t counts_failed_of(const struct counts *counts, const char *type)
{
    int64_t failed = 0;
    for (int row = 0; row < pg_rows_count(counts->failed); row++)
        if (strcmp(pg_text(counts->failed, row, FAILED_TYPE), type) == 0)
            failed += pg_int8(counts->failed, row, FAILED_EVENTS);
    return failed;
}

void counts_done(struct counts *counts)
{
    pg_rows_free(counts->failed);
    pg_rows_free(counts->open);
    *counts = (struct counts){0};
}

/* Two digits, and the rest zeros: an estimate has no more. */
static int64_t rounded(int64_t number)
{
    int64_t unit = 1;
    while (number / unit >= 1000)
        unit *= 10;
    return (number + unit / 2) / unit * unit;
}

void counts_add(struct table *table, int64_t events, bool is_estimated)
{
    char number[PRINT_NUMBER_SIZE], text[PRINT_NUMBER_SIZE + 8];
    bool is_few = is_estimated && events < ESTIMATE_MIN;
    snprintf(text, sizeof(text), "%s%s",
             is_few         ? "below "
             : is_estimated ? "about "
                            : "",
             print_number(is_few         ? ESTIMATE_MIN
                          : is_estimated ? rounded(events)
                                         : events,
                          number));
    table_add(table, text);
}

/* ---- JSON ---- */

static struct json *failed_json(const struct pg_rows *rows)
{
    struct json *failed = json_new_array();
    for (int row = 0; row < pg_rows_count(rows); row++)
        json_append(&failed, JSON_OBJECT(json_text("code", pg_text(rows, row, FAILED_CODE)),
                                         json_text("type", pg_text(rows, row, FAILED_TYPE)),
                                         json_number("events", pg_int8(rows, row, FAILED_EVENTS)),
                                         json_time("since", pg_time_us(rows, row, FAILED_SINCE))));
    return failed;
}

static struct json *types_json(const struct counts *counts)
{
    struct json *types = json_new_array();
    struct backlog_type type;
    for (int row = 0; backlog_next(counts->open, &row, &type);)
        json_append(&types,
                    JSON_OBJECT(json_text("type", type.name), json_flag("delivered", type.is_delivered),
                                json_flag("alive", type.is_live), json_number("pending", backlog_waiting(&type)),
                                json_number("processing", type.processing), json_number("held_back", type.held),
                                json_number("failed", counts_failed_of(counts, type.name)),
                                json_number("oldest_pending_seconds",
                                            backlog_age_us(&type, backlog_now_us(counts->open)) / 1000000)));
    return types;
}

struct json *counts_json(const struct counts *counts)
{
    struct json *events = json_object_of(NULL, 0), *estimated = json_new_array();
    for (int status = 0; status < COUNTS_STATUSES; status++) {
        const char *name = outbox_status_name((enum outbox_status)status);
        json_add(&events, json_number(name, counts->events[status]));
        if (counts->estimated[status])
            json_append(&estimated, json_new_text(name));
    }
    return JSON_OBJECT(json_tree("events", events), json_number("oldest_pending_seconds", counts->oldest_pending_s),
                       json_tree("failed", failed_json(counts->failed)), json_tree("types", types_json(counts)),
                       json_tree("estimated", estimated));
}
