/* issuing-ctl status: how many events are where. */
#include <inttypes.h>
#include <stdio.h>

#include "common/outbox.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "statements.h"

#define STATUSES 5

struct counts {
    int64_t events[STATUSES];
    int64_t oldest_pending_s;
};

static bool read_counts(struct ctl *ctl, struct counts *ret_counts, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct counts counts = {0};
    if (!pg_sync_query(ctl->db, &sql_operator_status, NULL, &rows, err))
        return false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        struct slice text = pg_bytes(rows, row, 0);
        enum outbox_status status;
        if (!outbox_status_parse(text.bytes, text.length, &status))
            return err_set(err, ERR_DATABASE,
                           "events have the unknown status %.40s; is the schema newer than this program?", text.bytes);
        counts.events[status] = pg_int8(rows, row, 1);
        if (status == OUTBOX_PENDING)
            counts.oldest_pending_s = pg_int8(rows, row, 2);
    }
    *ret_counts = counts;
    return true;
}

static bool print_as_json(const struct counts *counts)
{
    struct json *object = json_new_object(), *events = json_new_object();
    bool whole = object && events;
    for (int status = 0; whole && status < STATUSES; status++)
        whole = json_set_integer(events, outbox_status_name((enum outbox_status)status), counts->events[status]);
    if (!whole) {
        json_free(events);
        json_free(object);
        return false;
    }
    whole = json_set(object, "events", events) &&
            json_set_integer(object, "oldest_pending_seconds", counts->oldest_pending_s);
    if (whole)
        return print_json(object, stdout);
    json_free(object);
    return false;
}

static const char *meaning(enum outbox_status status, const struct counts *counts, char *text, size_t size)
{
    char span[PRINT_SPAN_SIZE];
    switch (status) {
    case OUTBOX_PENDING:
        snprintf(text, size,
                 counts->events[status] > 0 ? "waits for its next attempt; the oldest is %s old"
                                            : "waits for its next attempt",
                 print_span(counts->oldest_pending_s * 1000000, span));
        return text;
    case OUTBOX_PROCESSING:
        return "a worker holds it";
    case OUTBOX_COMPLETED:
        return "card stored and linked";
    case OUTBOX_REJECTED:
        return "definitely refused, no usable card";
    case OUTBOX_FAILED:
        return counts->events[status] > 0 ? "waits for an operator: see below" : "waits for an operator";
    }
    return "";
}

static bool print_failed(struct ctl *ctl, struct table *table, struct err *err)
{
    static const char *const heads[] = {"FAILED BECAUSE", "EVENTS", "SINCE", NULL};
    pg_rows_scope struct pg_rows *rows = NULL;
    char time[PRINT_TIME_SIZE];
    if (!pg_sync_query(ctl->db, &sql_operator_status_failed, NULL, &rows, err))
        return false;
    table_init(table, heads);
    for (int row = 0; row < pg_rows_count(rows); row++) {
        table_add(table, pg_bytes(rows, row, 0).bytes);
        table_add_number(table, pg_int8(rows, row, 1));
        table_add(table, print_time(pg_time_us(rows, row, 2), time));
    }
    putchar('\n');
    bool whole = table_flush(table, stdout);
    table_done(table);
    puts("\nWhich: issuing-ctl list --status FAILED --code CODE    One of them: issuing-ctl explain ID");
    return whole || err_set(err, ERR_MEMORY, "out of memory");
}

static bool print_as_table(struct ctl *ctl, const struct counts *counts, struct err *err)
{
    static const char *const heads[] = {"STATUS", "EVENTS", "MEANING", NULL};
    struct table table;
    char text[100];
    table_init(&table, heads);
    for (int status = 0; status < STATUSES; status++) {
        table_add(&table, outbox_status_name((enum outbox_status)status));
        table_add_number(&table, counts->events[status]);
        table_add(&table, meaning((enum outbox_status)status, counts, text, sizeof(text)));
    }
    bool whole = table_flush(&table, stdout);
    table_done(&table);
    if (!whole)
        return err_set(err, ERR_MEMORY, "out of memory");
    return counts->events[OUTBOX_FAILED] == 0 || print_failed(ctl, &table, err);
}

static int run_status(struct ctl *ctl, char **arguments, int count)
{
    const struct option_spec none[] = {{.name = NULL}};
    struct counts counts = {0};
    struct err err;
    if (!options_read(none, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count > 0) {
        err_set(&err, ERR_USAGE, "status takes no argument; `show ID` shows one event");
        return ctl_fail(&err);
    }
    if (!ctl_connect(ctl, &err) || !read_counts(ctl, &counts, &err))
        return ctl_fail(&err);
    if (!ctl->json)
        return print_as_table(ctl, &counts, &err) ? CTL_DONE : ctl_fail(&err);
    if (!print_as_json(&counts)) {
        err_set(&err, ERR_MEMORY, "out of memory");
        return ctl_fail(&err);
    }
    return CTL_DONE;
}

const struct ctl_command ctl_status = {
    .word = "status",
    .usage = "",
    .summary = "how many events are where",
    .help = "Counts the events by status, and shows how old the oldest PENDING one is and why FAILED ones failed.\n"
            "--json: {\"events\": {STATUS: n, ...}, \"oldest_pending_seconds\": n}\n",
    .run = run_status,
};
