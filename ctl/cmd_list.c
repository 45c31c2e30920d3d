/* issuing-ctl list: events by filter, newest first. Reads page by page, so a long list costs memory for one page. */
#include <inttypes.h>
#include <stdio.h>

#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/filter.h"
#include "ctl/options.h"
#include "ctl/print.h"

#define PAGE 500
#define LIMIT_DEFAULT 100
#define LIMIT_MAX INT64_C(1000000000)

/* Prints the rows of one page, `wanted` at most. */
static bool print_page(const struct ctl *ctl, const struct pg_rows *rows, int64_t wanted, struct table *table,
                       struct uuid *ret_last, struct err *err)
{
    struct event event;
    for (int row = 0; row < pg_rows_count(rows) && row < wanted; row++) {
        if (!event_read(rows, row, &event, err))
            return false;
        *ret_last = event.id;
        if (!ctl->json)
            event_add_row(&event, table);
        else if (!print_json(event_json(&event), stdout))
            return err_set(err, ERR_MEMORY, "out of memory");
    }
    return table_flush(table, stdout) || err_set(err, ERR_MEMORY, "out of memory");
}

/* *ret_shown is right also after a failure. */
static bool list(struct ctl *ctl, const struct filter *filter, int64_t limit, struct table *table, int64_t *ret_shown,
                 bool *ret_cut, struct err *err)
{
    struct uuid last;
    *ret_shown = 0;
    for (;;) {
        int64_t left = limit - *ret_shown;
        /* One more than fits, to know whether the list was cut. */
        int64_t page = left < PAGE ? left + 1 : PAGE;
        struct pg_rows *rows = NULL;
        if (!event_page(ctl->db, filter, *ret_shown > 0 ? &last : NULL, page, &rows, err))
            return false;
        int count = pg_rows_count(rows);
        bool printed = print_page(ctl, rows, left, table, &last, err);
        pg_rows_free(rows);
        if (!printed)
            return false;
        *ret_cut = count > left;
        *ret_shown += *ret_cut ? left : count;
        if (*ret_cut || count < page)
            return true;
    }
}

static int run_list(struct ctl *ctl, char **arguments, int count)
{
    struct filter filter = {0};
    int64_t limit = LIMIT_DEFAULT, shown = 0;
    bool cut = false;
    struct err err;
    const struct option_spec specs[] = {
        FILTER_OPTIONS(&filter),
        {.name = "limit", .number = &limit, .min = 1, .max = LIMIT_MAX},
        {.name = NULL},
    };
    if (!options_read(specs, arguments, count, &count, &err) || !filter_check(&filter, &err))
        return ctl_fail(&err);
    if (count > 0) {
        err_set(&err, ERR_USAGE, "list takes filters, not %.60s; `show` and `explain` take an id", arguments[0]);
        return ctl_fail(&err);
    }
    if (!ctl_connect(ctl, &err))
        return ctl_fail(&err);

    struct table table;
    table_init(&table, event_heads);
    bool done = list(ctl, &filter, limit, &table, &shown, &cut, &err);
    table_done(&table);
    if (!done)
        return ctl_fail(&err);
    fflush(stdout);
    if (cut)
        fprintf(stderr, "issuing-ctl: only the newest %" PRId64 " are shown; --limit N shows more\n", shown);
    else if (shown == 0 && !ctl->json)
        fputs(filter_is_empty(&filter) ? "There are no events.\n" : "No event matches.\n", stderr);
    return CTL_DONE;
}

const struct ctl_command ctl_list = {
    .word = "list",
    .usage = "[--status S] [--type T] [--code C] [--user U] [--since D] [--limit N]",
    .summary = "events by filter, newest first",
    .help = "Lists events, newest first. An event is listed when all filters hold.\n\n"
            "  --status S     PENDING, PROCESSING, COMPLETED, REJECTED or FAILED\n" FILTER_HELP
            "  --limit N      at most N events, 100 by default; a note on standard error says when there are more\n",
    .run = run_list,
};
