/* issuing-ctl status: how many events are where.
 *
 * It costs the same however many events there are: up to COUNT_MAX are counted, and what is more is estimated by the
 * planner's statistics, and marked. The open and the FAILED ones, which an operator acts on, are counted by their
 * indexes; their numbers are exact up to COUNT_MAX each. --exact counts everything. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/outbox.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "statements.h"

#define STATUSES 5
#define COUNT_MAX 100000

struct counts {
    int64_t events[STATUSES];
    bool estimated[STATUSES];
    int64_t oldest_pending_s; /* of those that were counted */
    struct pg_rows *failed;   /* owned: operator_status_failed */
    struct pg_rows *types;    /* owned: operator_status_types */
    int64_t failed_counted;   /* the sum of `failed` */
};

/* Columns of operator_status_types and operator_status_failed. */
enum type_column { TYPE, TYPE_PENDING, TYPE_PROCESSING, TYPE_HELD, TYPE_OLDEST, TYPE_IS_LIVE };
enum failed_column { FAILED_CODE, FAILED_EVENTS, FAILED_SINCE, FAILED_ALL, FAILED_TYPE };

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

/* Counts at most `most` events by this statement. most 0 = it takes no bound. */
static bool count(struct ctl *ctl, const struct sql_statement *statement, int64_t most, struct counts *counts,
                  struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_int8(most)};
    return pg_sync_query(ctl->db, statement, params, &rows, err) && take_counts(rows, counts, err);
}

/* The planner's number of rows: [{"Plan": {"Plan Rows": n, ...}}]. */
static bool estimate(struct ctl *ctl, const struct sql_statement *statement, int64_t *ret_rows, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    json_scope struct json *plans = NULL;
    double number;
    if (!pg_sync_query(ctl->db, statement, NULL, &rows, err))
        return false;
    struct slice text = pg_bytes(rows, 0, 0);
    if (!json_parse(text.bytes, text.length, &plans, err))
        return false;
    const struct json *plan = json_get(json_array_at(plans, 0), "Plan");
    if (!plan || !json_get_number(plan, "Plan Rows", &number))
        return err_set(err, ERR_DATABASE, "the database's plan has no number of rows");
    *ret_rows = (int64_t)number;
    return true;
}

static int64_t at_least(int64_t number, int64_t least)
{
    return number > least ? number : least;
}

static bool read_open(struct ctl *ctl, struct counts *counts, struct err *err)
{
    int64_t open = 0;
    if (!count(ctl, &sql_operator_status_open, COUNT_MAX + 1, counts, err))
        return false;
    if (counts->events[OUTBOX_PENDING] + counts->events[OUTBOX_PROCESSING] <= COUNT_MAX)
        return true;
    if (!estimate(ctl, &sql_operator_status_estimate_open, &open, err))
        return false;
    /* Those that are held are due, so they are among the first by the index. */
    counts->events[OUTBOX_PENDING] = at_least(open - counts->events[OUTBOX_PROCESSING], counts->events[OUTBOX_PENDING]);
    counts->estimated[OUTBOX_PENDING] = counts->estimated[OUTBOX_PROCESSING] = true;
    return true;
}

static bool read_failed(struct ctl *ctl, int64_t most, struct counts *counts, struct err *err)
{
    const struct pg_param params[] = {pg_param_int8(most)};
    if (!pg_sync_query(ctl->db, &sql_operator_status_failed, params, &counts->failed, err))
        return false;
    counts->failed_counted = pg_rows_count(counts->failed) > 0 ? pg_int8(counts->failed, 0, FAILED_ALL) : 0;
    return true;
}

static bool read_types(struct ctl *ctl, struct counts *counts, struct err *err)
{
    const struct pg_param params[] = {pg_param_int8(COUNT_MAX + 1)};
    return pg_sync_query(ctl->db, &sql_operator_status_types, params, &counts->types, err);
}

static bool read_large(struct ctl *ctl, struct counts *counts, struct err *err)
{
    int64_t all = 0, rejected = 0, failed = counts->failed_counted, seen[STATUSES];
    memcpy(seen, counts->events, sizeof(seen)); /* so many there are, whatever the statistics say */
    memset(counts->events, 0, sizeof(counts->events));
    counts->oldest_pending_s = 0;
    if (!read_open(ctl, counts, err) || !estimate(ctl, &sql_operator_status_estimate, &all, err) ||
        !estimate(ctl, &sql_operator_status_estimate_rejected, &rejected, err))
        return false;
    if (failed > COUNT_MAX) {
        if (!estimate(ctl, &sql_operator_status_estimate_failed, &failed, err))
            return false;
        failed = at_least(failed, counts->failed_counted);
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

static bool read_counts(struct ctl *ctl, bool exact, struct counts *counts, struct err *err)
{
    int64_t total = 0;
    if (!read_failed(ctl, exact ? INT64_MAX : COUNT_MAX + 1, counts, err) || !read_types(ctl, counts, err))
        return false;
    if (exact)
        return count(ctl, &sql_operator_status_exact, 0, counts, err);
    if (!count(ctl, &sql_operator_status_small, COUNT_MAX + 1, counts, err))
        return false;
    for (int status = 0; status < STATUSES; status++)
        total += counts->events[status];
    return total <= COUNT_MAX || read_large(ctl, counts, err);
}

/* FAILED events of this type, among those that were counted. */
static int64_t failed_of(const struct counts *counts, const char *type)
{
    int64_t failed = 0;
    for (int row = 0; row < pg_rows_count(counts->failed); row++)
        if (strcmp(pg_bytes(counts->failed, row, FAILED_TYPE).bytes, type) == 0)
            failed += pg_int8(counts->failed, row, FAILED_EVENTS);
    return failed;
}

/* ---- JSON ---- */

static struct json *failed_json(const struct pg_rows *rows)
{
    struct json *failed = json_new_array();
    bool whole = failed != NULL;
    for (int row = 0; whole && row < pg_rows_count(rows); row++) {
        struct json *line = json_new_object();
        whole = line && json_set_text(line, "code", pg_bytes(rows, row, FAILED_CODE).bytes) &&
                json_set_text(line, "type", pg_bytes(rows, row, FAILED_TYPE).bytes) &&
                json_set_integer(line, "events", pg_int8(rows, row, FAILED_EVENTS)) &&
                print_set_time(line, "since", pg_time_us(rows, row, FAILED_SINCE));
        if (!whole)
            json_free(line);
        else
            whole = json_append(failed, line);
    }
    if (whole)
        return failed;
    json_free(failed);
    return NULL;
}

static struct json *types_json(const struct counts *counts)
{
    const struct pg_rows *rows = counts->types;
    struct json *types = json_new_array();
    bool whole = types != NULL;
    for (int row = 0; whole && row < pg_rows_count(rows); row++) {
        const char *type = pg_bytes(rows, row, TYPE).bytes;
        bool is_delivered = !pg_is_null(rows, row, TYPE_IS_LIVE);
        struct json *line = json_new_object();
        whole = line && json_set_text(line, "type", type) && json_set(line, "delivered", json_new_bool(is_delivered)) &&
                json_set(line, "alive", json_new_bool(is_delivered && pg_bool(rows, row, TYPE_IS_LIVE))) &&
                json_set_integer(line, "pending", pg_int8(rows, row, TYPE_PENDING)) &&
                json_set_integer(line, "processing", pg_int8(rows, row, TYPE_PROCESSING)) &&
                json_set_integer(line, "held_back", pg_int8(rows, row, TYPE_HELD)) &&
                json_set_integer(line, "failed", failed_of(counts, type)) &&
                json_set_integer(line, "oldest_pending_seconds", pg_int8(rows, row, TYPE_OLDEST));
        if (!whole)
            json_free(line);
        else
            whole = json_append(types, line);
    }
    if (whole)
        return types;
    json_free(types);
    return NULL;
}

static struct json *events_json(const struct counts *counts)
{
    struct json *events = json_new_object();
    bool whole = events != NULL;
    for (int status = 0; whole && status < STATUSES; status++)
        whole = json_set_integer(events, outbox_status_name((enum outbox_status)status), counts->events[status]);
    if (whole)
        return events;
    json_free(events);
    return NULL;
}

static struct json *estimated_json(const struct counts *counts)
{
    struct json *names = json_new_array();
    bool whole = names != NULL;
    for (int status = 0; whole && status < STATUSES; status++)
        if (counts->estimated[status])
            whole = json_append(names, json_new_text(outbox_status_name((enum outbox_status)status)));
    if (whole)
        return names;
    json_free(names);
    return NULL;
}

static bool set_whole(struct json *object, const char *name, struct json *value)
{
    return value && json_set(object, name, value);
}

static bool print_as_json(const struct counts *counts)
{
    struct json *object = json_new_object();
    if (object && set_whole(object, "events", events_json(counts)) &&
        json_set_integer(object, "oldest_pending_seconds", counts->oldest_pending_s) &&
        set_whole(object, "failed", failed_json(counts->failed)) && set_whole(object, "types", types_json(counts)) &&
        set_whole(object, "estimated", estimated_json(counts)))
        return print_json(object, stdout);
    json_free(object);
    return false;
}

/* ---- text ---- */

static const char *meaning(enum outbox_status status, const struct counts *counts, char *text, size_t size)
{
    char span[PRINT_SPAN_SIZE];
    switch (status) {
    case OUTBOX_PENDING:
        snprintf(text, size,
                 counts->events[status] == 0 ? "waits for its next attempt"
                 : counts->estimated[status] ? "waits for its next attempt; the oldest is at least %s old"
                                             : "waits for its next attempt; the oldest is %s old",
                 print_span(counts->oldest_pending_s * 1000000, span));
        return text;
    case OUTBOX_PROCESSING:
        return "a worker holds it";
    case OUTBOX_COMPLETED:
        return "card stored and linked, or executed by the receiver";
    case OUTBOX_REJECTED:
        return "definitely refused: no usable card, or not executed";
    case OUTBOX_FAILED:
        return counts->events[status] > 0 ? "waits for an operator: see below" : "waits for an operator";
    }
    return "";
}

/* Two digits, and the rest zeros: an estimate has no more. */
static int64_t rounded(int64_t number)
{
    int64_t unit = 1;
    while (number / unit >= 1000)
        unit *= 10;
    return (number + unit / 2) / unit * unit;
}

static void add_count(struct table *table, int64_t events, bool estimated)
{
    char number[PRINT_NUMBER_SIZE], text[PRINT_NUMBER_SIZE + 8];
    snprintf(text, sizeof(text), "%s%s", estimated ? "about " : "",
             print_number(estimated ? rounded(events) : events, number));
    table_add(table, text);
}

static bool print_failed(const struct counts *counts, struct table *table, struct err *err)
{
    static const char *const heads[] = {"FAILED BECAUSE", "TYPE", "EVENTS", "SINCE", NULL};
    char time[PRINT_TIME_SIZE];
    table_init(table, heads);
    for (int row = 0; row < pg_rows_count(counts->failed); row++) {
        table_add(table, pg_bytes(counts->failed, row, FAILED_CODE).bytes);
        table_add(table, pg_bytes(counts->failed, row, FAILED_TYPE).bytes);
        add_count(table, pg_int8(counts->failed, row, FAILED_EVENTS), false);
        table_add(table, print_time(pg_time_us(counts->failed, row, FAILED_SINCE), time));
    }
    putchar('\n');
    bool whole = table_flush(table, stdout);
    table_done(table);
    if (counts->estimated[OUTBOX_FAILED])
        printf("(of the first %d)\n", COUNT_MAX + 1);
    puts("\nWhich: issuing-ctl list --status FAILED --code CODE    One of them: issuing-ctl explain ID");
    return whole || err_set(err, ERR_MEMORY, "out of memory");
}

static void add_open(struct table *table, int64_t events)
{
    char number[PRINT_NUMBER_SIZE], text[PRINT_NUMBER_SIZE + 16];
    snprintf(text, sizeof(text), "%s%s", events > COUNT_MAX ? "more than " : "",
             print_number(events > COUNT_MAX ? COUNT_MAX : events, number));
    table_add(table, text);
}

/* Only where there is another type than that of card requests. */
static bool print_types(const struct counts *counts, struct table *table, struct err *err)
{
    static const char *const heads[] = {"TYPE",   "PENDING", "HELD BACK", "PROCESSING",
                                        "FAILED", "OLDEST",  "DELIVERED", NULL};
    const struct pg_rows *rows = counts->types;
    char span[PRINT_SPAN_SIZE];
    table_init(table, heads);
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *type = pg_bytes(rows, row, TYPE).bytes;
        table_add(table, type);
        add_open(table, pg_int8(rows, row, TYPE_PENDING));
        add_open(table, pg_int8(rows, row, TYPE_HELD));
        add_open(table, pg_int8(rows, row, TYPE_PROCESSING));
        add_open(table, failed_of(counts, type));
        table_add(table, pg_int8(rows, row, TYPE_PENDING) > 0
                             ? print_span(pg_int8(rows, row, TYPE_OLDEST) * 1000000, span)
                             : NULL);
        table_add(table, pg_is_null(rows, row, TYPE_IS_LIVE) ? "by nobody: no worker has a route for it"
                         : pg_bool(rows, row, TYPE_IS_LIVE)  ? "yes"
                                                             : "no living worker");
    }
    putchar('\n');
    bool whole = table_flush(table, stdout);
    table_done(table);
    return whole || err_set(err, ERR_MEMORY, "out of memory");
}

static bool print_as_table(const struct counts *counts, struct err *err)
{
    static const char *const heads[] = {"STATUS", "EVENTS", "MEANING", NULL};
    struct table table;
    char text[100];
    table_init(&table, heads);
    for (int status = 0; status < STATUSES; status++) {
        table_add(&table, outbox_status_name((enum outbox_status)status));
        add_count(&table, counts->events[status], counts->estimated[status]);
        table_add(&table, meaning((enum outbox_status)status, counts, text, sizeof(text)));
    }
    bool whole = table_flush(&table, stdout);
    table_done(&table);
    if (!whole)
        return err_set(err, ERR_MEMORY, "out of memory");
    if (counts->estimated[OUTBOX_COMPLETED])
        puts("\nabout: estimated from the statistics of the database; `status --exact` counts all events");
    return (pg_rows_count(counts->types) <= 1 || print_types(counts, &table, err)) &&
           (pg_rows_count(counts->failed) == 0 || print_failed(counts, &table, err));
}

static int run_status(struct ctl *ctl, char **arguments, int count)
{
    bool exact = false;
    const struct option_spec specs[] = {{.name = "exact", .flag = &exact}, {.name = NULL}};
    struct counts counts = {0};
    struct err err;
    if (!options_read(specs, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count > 0) {
        err_set(&err, ERR_USAGE, "status takes no argument; `show ID` shows one event");
        return ctl_fail(&err);
    }
    bool done = ctl_connect(ctl, &err) && read_counts(ctl, exact, &counts, &err);
    if (done && ctl->json)
        done = print_as_json(&counts) || err_set(&err, ERR_MEMORY, "out of memory");
    else if (done)
        done = print_as_table(&counts, &err);
    pg_rows_free(counts.failed);
    pg_rows_free(counts.types);
    return done ? CTL_DONE : ctl_fail(&err);
}

const struct ctl_command ctl_status = {
    .word = "status",
    .usage = "[--exact]",
    .summary = "how many events have which status",
    .help =
        "Counts the events by status, and shows how old the oldest PENDING one is and why FAILED ones failed.\n"
        "It takes the same time however many events there are: where there are more than 100,000, COMPLETED and\n"
        "REJECTED are estimated from the statistics of the database (\"about\"); PENDING, PROCESSING and FAILED are\n"
        "counted up to 100,000. Where there are routes, or events of a type that nobody delivers, a second table\n"
        "has each type: what waits, what is held back behind an earlier event of its user, and who delivers it.\n\n"
        "  --exact        count all events: seconds for each million\n\n"
        "--json: {\"events\": {STATUS: n, ...}, \"oldest_pending_seconds\": n,\n"
        "\"failed\": [{\"code\": C, \"type\": T, \"events\": n, \"since\": TIME}, ...],\n"
        "\"types\": [{\"type\": T, \"delivered\": B, \"alive\": B, \"pending\": n, \"processing\": n, \"held_back\": "
        "n,\n"
        "\"failed\": n, \"oldest_pending_seconds\": n}, ...], \"estimated\": [STATUS, ...]}\n",
    .run = run_status,
};
