/* issuing-ctl status: how many events are where (counts.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/outbox.h"
#include "ctl/counts.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"

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

static bool print_failed(const struct counts *counts, struct table *table, struct err *err)
{
    static const char *const heads[] = {"FAILED BECAUSE", "TYPE", "EVENTS", "SINCE", NULL};
    char time[PRINT_TIME_SIZE];
    table_init(table, heads);
    for (int row = 0; row < pg_rows_count(counts->failed); row++) {
        table_add(table, pg_bytes(counts->failed, row, FAILED_CODE).bytes);
        table_add(table, pg_bytes(counts->failed, row, FAILED_TYPE).bytes);
        counts_add(table, pg_int8(counts->failed, row, FAILED_EVENTS), false);
        table_add(table, print_time(pg_time_us(counts->failed, row, FAILED_SINCE), time));
    }
    putchar('\n');
    bool whole = table_flush(table, stdout);
    table_done(table);
    if (counts->estimated[OUTBOX_FAILED])
        printf("(of the first %d)\n", COUNTS_MAX + 1);
    puts("\nWhich: issuing-ctl list --status FAILED --code CODE    One of them: issuing-ctl explain ID");
    return whole || err_set(err, ERR_MEMORY, "out of memory");
}

static void add_open(struct table *table, int64_t events)
{
    char number[PRINT_NUMBER_SIZE], text[PRINT_NUMBER_SIZE + 16];
    snprintf(text, sizeof(text), "%s%s", events > COUNTS_MAX ? "more than " : "",
             print_number(events > COUNTS_MAX ? COUNTS_MAX : events, number));
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
        add_open(table, counts_failed_of(counts, type));
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
    for (int status = 0; status < COUNTS_STATUSES; status++) {
        table_add(&table, outbox_status_name((enum outbox_status)status));
        counts_add(&table, counts->events[status], counts->estimated[status]);
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

static bool read_command(char **arguments, int count, bool *ret_exact, struct err *err)
{
    const struct option_spec specs[] = {{.name = "exact", .flag = ret_exact}, {.name = NULL}};
    return options_read(specs, arguments, count, &count, err) &&
           (count == 0 || err_set(err, ERR_USAGE, "status takes no argument; `show ID` shows one event"));
}

static int run_status(struct ctl *ctl, char **arguments, int count)
{
    bool exact = false;
    struct counts counts = {0};
    struct err err;
    if (!read_command(arguments, count, &exact, &err))
        return ctl_fail(&err);
    bool done = ctl_connect(ctl, &err) && counts_read(ctl, exact, &counts, &err);
    if (done && ctl->json)
        done = print_json(counts_json(&counts), stdout) || err_set(&err, ERR_MEMORY, "out of memory");
    else if (done)
        done = print_as_table(&counts, &err);
    counts_done(&counts);
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
