/* issuing-ctl list: events by filter. Looks at a page of events at a time and prints what matches at once, so a long list
 * costs memory for one page only, and Ctrl-C ends it between two pages. */
#include <inttypes.h>
#include <stdio.h>

#include "ctl/bundle.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/filter.h"
#include "ctl/options.h"
#include "ctl/pick.h"
#include "ctl/print.h"
#include "ctl/stop.h"

#define FETCH_MAX 500
#define LIMIT_DEFAULT 100

struct list {
    struct ctl *ctl;
    struct filter filter;
    struct table table;
    int64_t limit, shown;
    bool bundles;               /* for people outside: bundle.h */
    bool is_cut;                /* there are more */
    struct uuid ids[FETCH_MAX]; /* matched, not printed */
    int count;
};

static bool print_event(struct list *list, const struct event *event, struct err *err)
{
    struct json *json;
    if (list->bundles) {
        if (!bundle_json(list->ctl->db, event, &json, err))
            return false;
        return print_json(json, stdout) || err_set(err, ERR_MEMORY, "out of memory");
    }
    if (list->ctl->json)
        return print_json(event_json(event), stdout) || err_set(err, ERR_MEMORY, "out of memory");
    event_add_row(event, &list->table);
    return true;
}

/* Prints the events that were collected. One that changed since and is in another status than was asked for is left
 * out. */
static bool print_collected(struct list *list, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    if (list->count == 0)
        return true;
    if (!event_fetch(list->ctl->db, list->ids, list->count, &rows, err))
        return false;
    list->count = 0;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        if (!event_read(rows, row, &event, err))
            return false;
        if (list->filter.status && event.status != list->filter.wanted)
            continue;
        list->shown++;
        if (!print_event(list, &event, err))
            return false;
    }
    return table_flush(&list->table, stdout) || err_set(err, ERR_MEMORY, "out of memory");
}

static bool collect_page(struct list *list, const struct pg_rows *rows, struct err *err)
{
    struct pick_row found;
    for (int row = 0; row < pg_rows_count(rows) && !stop_is_requested(); row++) {
        if (!pick_row(rows, row, &found))
            continue;
        if (list->shown + list->count == list->limit) {
            if (!print_collected(list, err))
                return false;
            list->is_cut = list->shown == list->limit;
            if (list->is_cut)
                return true;
        }
        list->ids[list->count++] = found.id;
        if (list->count == FETCH_MAX && !print_collected(list, err))
            return false;
    }
    return true;
}

static bool run(struct list *list, struct err *err)
{
    struct pick pick;
    if (!pick_open(&pick, list->ctl->db, &list->filter, !list->filter.oldest_first, err))
        return false;
    while (!pick_is_over(&pick) && !list->is_cut && !stop_is_requested()) {
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!pick_read(&pick, list->ctl->db, &rows, err) || !collect_page(list, rows, err))
            return false;
        /* What was found is shown now, however long the next match takes. */
        if (!list->is_cut && !print_collected(list, err))
            return false;
        fflush(stdout);
    }
    return true;
}

static int run_list(struct ctl *ctl, char **arguments, int count)
{
    struct list list = {.ctl = ctl};
    struct err err;
    const struct option_spec specs[] = {FILTER_OPTIONS(&list.filter),
                                        FILTER_ORDER_OPTION(&list.filter),
                                        {.name = "bundle", .flag = &list.bundles},
                                        {.name = NULL}};
    if (!options_read(specs, arguments, count, &count, &err) || !filter_check(&list.filter, &err))
        return ctl_fail(&err);
    if (count > 0) {
        err_set(&err, ERR_USAGE, "list takes filters, not %.60s; `show` and `explain` take an id", arguments[0]);
        return ctl_fail(&err);
    }
    list.limit = list.filter.limit > 0 ? list.filter.limit : LIMIT_DEFAULT;
    if (!ctl_connect(ctl, &err))
        return ctl_fail(&err);

    stop_watch();
    table_init(&list.table, event_heads);
    bool done = run(&list, &err);
    table_done(&list.table);
    if (!done)
        return ctl_fail(&err);
    fflush(stdout);
    if (stop_is_requested())
        fputs("issuing-ctl: stopped; there may be more\n", stderr);
    else if (list.is_cut)
        fprintf(stderr, "issuing-ctl: only the %s %" PRId64 " are shown; --limit N shows more\n",
                list.filter.oldest_first ? "oldest" : "newest", list.shown);
    else if (list.shown == 0 && !ctl->json)
        fputs(filter_is_empty(&list.filter) ? "There are no events.\n" : "No event matches.\n", stderr);
    return stop_is_requested() ? CTL_REFUSED : CTL_DONE;
}

const struct ctl_command ctl_list = {
    .word = "list",
    .usage = "[FILTERS] [--oldest-first] [--limit N] [--bundle]",
    .summary = "events by filter, newest first",
    .help = "Lists events, newest first. An event is listed when all filters hold.\n\n"
            "  --status S     PENDING, PROCESSING, COMPLETED, REJECTED or FAILED\n" FILTER_HELP
            "  --oldest-first the oldest first\n"
            "  --limit N      at most N events, 100 by default; standard error says when there are more\n"
            "  --bundle       for people outside, as JSON: each event with its attempts, and without what names\n"
            "                 its user (user id, client key, trace, last digits)\n" FILTER_COSTS
            "Ctrl-C ends the search (exit 1); what was found until then is printed.\n",
    .run = run_list,
};
