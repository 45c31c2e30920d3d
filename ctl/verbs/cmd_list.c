/* issuing-ctl list: events by filter. Looks at a page of events at a time and prints what matches at once, so a long
 * list costs memory for one page of each place only, and Ctrl-C ends it between two pages. Several places are walked at
 * the same time, and their events are merged by their ids, which is the order of each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/explain/story_json.h"
#include "ctl/filter.h"
#include "ctl/options.h"
#include "ctl/pick.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

#define FETCH_MAX 500
#define LIMIT_DEFAULT 100
#define ATTEMPTS_MAX 1000 /* of an event, in a bundle */
#define HEADS_MAX (PRINT_COLUMNS_MAX + 1)

/* One place. */
struct source {
    int place;
    struct pg_sync *db; /* owned; NULL = it is away, or went away */
    struct pick pick;
    struct pg_rows *page; /* owned: what was read last, NULL = nothing */
    int next;             /* row of it */
    bool is_found;        /* `found` is the next event of this place */
    struct pick_row found;
    struct pg_rows *events; /* owned: those of it that are printed at present */
    int event;              /* row of it */
};

struct list {
    struct ctl *ctl;
    struct filter filter;
    struct table table;
    int64_t limit, shown;
    bool bundles;           /* for people outside */
    bool is_cut;            /* there are more */
    struct source *sources; /* owned */
    int source_count;
    /* Matched, not printed. */
    struct uuid ids[FETCH_MAX];
    struct source *from[FETCH_MAX];
    int count;
};

/* The others go on. The exit code is that of the worst one. */
static void fail(struct list *list, struct source *source, struct err *err)
{
    if (list->ctl->is_over_all && err->kind != ERR_USAGE)
        err_prefix(err, "place %d", source->place);
    int code = ctl_fail(err);
    list->ctl->code = code == CTL_USAGE ? code : ctl_worse(list->ctl->code, code);
    pg_sync_close(source->db);
    source->db = NULL;
    source->is_found = false;
}

/* For people outside, the issuer, core-api's team, support: the event with its attempts, and without what names its
 * user: user id, client key, trace, the digits of its card and of the one it replaces. These members are null. What
 * operators did is left out, since reasons may name anything. */
static bool read_bundle(struct pg_sync *db, const struct event *event, struct json **ret_json, struct err *err)
{
    pg_rows_scope struct pg_rows *attempts = NULL;
    const struct pg_param params[] = {pg_param_uuid(&event->id), pg_param_int8(ATTEMPTS_MAX)};
    struct event copy = *event;
    if (!pg_sync_query(db, &sql_operator_attempts, params, &attempts, err))
        return false;
    copy.user_id = copy.client_key = copy.traceparent = copy.last4 = copy.replaced_last4 = NULL;
    copy.trace_id[0] = '\0';
    *ret_json = event_json(&copy);
    json_add(ret_json, json_tree("attempts", story_attempts_json(attempts, false)));
    return true;
}

static bool print_event(struct list *list, struct source *source, const struct event *event, struct err *err)
{
    struct json *json;
    if (list->ctl->is_over_all)
        print_set_place(source->place);
    if (list->bundles) {
        if (read_bundle(source->db, event, &json, err))
            return print_json(json, err);
        fail(list, source, err);
        return true;
    }
    if (list->ctl->json)
        return print_json(event_json(event), err);
    if (list->ctl->is_over_all)
        table_add_number(&list->table, source->place);
    event_add_row(event, &list->table);
    return true;
}

/* Of those that were collected. */
static void fetch(struct list *list, struct source *source)
{
    struct uuid ids[FETCH_MAX];
    struct err err;
    int count = 0;
    source->event = 0;
    for (int i = 0; i < list->count; i++)
        if (list->from[i] == source)
            ids[count++] = list->ids[i];
    if (count > 0 && !event_fetch(source->db, ids, count, &source->events, &err))
        fail(list, source, &err);
}

/* One that changed since and is in another status than was asked for is left out. */
static bool print_next(struct list *list, struct source *source, const struct uuid *id, struct err *err)
{
    struct event event;
    if (!source->db || !source->events || source->event == pg_rows_count(source->events))
        return true;
    if (!event_read(source->events, source->event, &event, err))
        return false;
    if (memcmp(&event.id, id, sizeof(*id)) != 0) /* it is gone */
        return true;
    source->event++;
    if (list->filter.status && event.status != list->filter.wanted)
        return true;
    list->shown++;
    return print_event(list, source, &event, err);
}

/* Prints the events that were collected. */
static bool print_collected(struct list *list, struct err *err)
{
    bool whole = true;
    for (int i = 0; i < list->source_count && list->count > 0; i++)
        fetch(list, &list->sources[i]);
    for (int i = 0; i < list->count && whole; i++)
        whole = print_next(list, list->from[i], &list->ids[i], err);
    list->count = 0;
    for (int i = 0; i < list->source_count; i++) {
        pg_rows_free(list->sources[i].events);
        list->sources[i].events = NULL;
    }
    if (!whole)
        return false;
    whole = table_flush(&list->table, stdout) || err_set(err, ERR_MEMORY, "out of memory");
    fflush(stdout);
    return whole;
}

/* Finds the next event of the place. What was found before is shown now, however long the next match takes. */
static bool find(struct list *list, struct source *source, struct err *err)
{
    while (source->db && !source->is_found && !stop_is_requested()) {
        struct err why;
        while (source->page && !source->is_found && source->next < pg_rows_count(source->page))
            source->is_found = pick_row(source->page, source->next++, &source->found);
        if (source->is_found || pick_is_over(&source->pick))
            return true;
        if (!print_collected(list, err))
            return false;
        pg_rows_free(source->page);
        source->page = NULL;
        source->next = 0;
        if (source->db && !pick_read(&source->pick, source->db, &source->page, &why))
            fail(list, source, &why);
    }
    return true;
}

/* The source whose event is the next one of the list; NULL = there is none. */
static struct source *choose(const struct list *list)
{
    struct source *chosen = NULL;
    for (int i = 0; i < list->source_count; i++) {
        struct source *source = &list->sources[i];
        if (!source->is_found)
            continue;
        int order = chosen ? memcmp(&source->found.id, &chosen->found.id, sizeof(chosen->found.id)) : 0;
        if (!chosen || (list->filter.oldest_first ? order < 0 : order > 0))
            chosen = source;
    }
    return chosen;
}

static bool run(struct list *list, struct err *err)
{
    struct source *source;
    for (int i = 0; i < list->source_count; i++)
        if (!find(list, &list->sources[i], err))
            return false;
    while ((source = choose(list))) {
        if (list->shown + list->count == list->limit) {
            if (!print_collected(list, err))
                return false;
            list->is_cut = list->shown == list->limit;
            if (list->is_cut)
                return true;
        }
        list->ids[list->count] = source->found.id;
        list->from[list->count++] = source;
        source->is_found = false;
        if ((list->count == FETCH_MAX && !print_collected(list, err)) || !find(list, source, err))
            return false;
    }
    return print_collected(list, err);
}

static void open_source(struct list *list, struct source *source)
{
    struct ctl *ctl = list->ctl;
    struct err err;
    bool is_open = ctl_connect(ctl, &err);
    source->place = ctl->place;
    source->db = ctl->db;
    ctl->db = NULL;
    if (!is_open || !pick_open(&source->pick, source->db, &list->filter, !list->filter.oldest_first, &err))
        fail(list, source, &err);
}

static bool open_sources(struct list *list, struct err *err)
{
    struct ctl *ctl = list->ctl;
    int places = ctl->is_over_all ? (int)ctl->config->database.places : 1;
    list->sources = calloc((size_t)places, sizeof(*list->sources));
    if (!list->sources)
        return err_set(err, ERR_MEMORY, "out of memory");
    for (int i = 0; i < places && ctl->code != CTL_USAGE; i++) {
        ctl->place = ctl->is_over_all ? i : ctl->place;
        open_source(list, &list->sources[list->source_count++]);
    }
    return true;
}

static void list_done(struct list *list)
{
    for (int i = 0; i < list->source_count; i++) {
        pg_rows_free(list->sources[i].page);
        pg_rows_free(list->sources[i].events);
        pg_sync_close(list->sources[i].db);
    }
    free(list->sources);
    table_done(&list->table);
}

static void init_table(struct list *list)
{
    const char *heads[HEADS_MAX + 1] = {"PLACE"};
    for (int i = 0; i < HEADS_MAX - 1 && event_heads[i]; i++)
        heads[i + 1] = event_heads[i];
    table_init(&list->table, list->ctl->is_over_all ? heads : event_heads);
}

static bool run_list(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct list list = {.ctl = ctl};
    const struct option_spec specs[] = {FILTER_OPTIONS(&list.filter),
                                        FILTER_ORDER_OPTION(&list.filter),
                                        {.name = "bundle", .flag = &list.bundles},
                                        {.name = NULL}};
    if (!options_read(specs, arguments, count, &count, err) || !filter_check(&list.filter, err))
        return false;
    if (count > 0)
        return err_set(err, ERR_USAGE, "list takes filters, not %.60s; `show` and `explain` take an id", arguments[0]);
    list.limit = list.filter.limit > 0 ? list.filter.limit : LIMIT_DEFAULT;

    init_table(&list);
    bool done = open_sources(&list, err);
    stop_watch();
    done = done && (ctl->code == CTL_USAGE || run(&list, err));
    list_done(&list);
    if (!done || ctl->code == CTL_USAGE)
        return done;
    fflush(stdout);
    if (stop_is_requested())
        fputs("issuing-ctl: stopped; there may be more\n", stderr);
    else if (list.is_cut)
        fprintf(stderr, "issuing-ctl: only the %s %" PRId64 " are shown; --limit N shows more\n",
                list.filter.oldest_first ? "oldest" : "newest", list.shown);
    else if (list.shown == 0 && ctl->code == CTL_DONE && !ctl->json)
        fputs(filter_is_empty(&list.filter) ? "There are no events.\n" : "No event matches.\n", stderr);
    if (stop_is_requested() && ctl->code == CTL_DONE)
        ctl->code = CTL_REFUSED;
    return true;
}

const struct ctl_command ctl_list = {
    .word = "list",
    .usage = "[FILTERS] [--oldest-first] [--limit N] [--bundle]",
    .summary = "events by filter, newest first",
    .help =
        "Lists events, newest first. An event is listed when all filters hold.\n\n"
        "  --status S     PENDING, PROCESSING, COMPLETED, REJECTED or FAILED\n" FILTER_HELP
        "  --oldest-first the oldest first\n"
        "  --limit N      at most N events, 100 by default; standard error says when there are more\n"
        "  --bundle       for people outside, as JSON: each event with its attempts, and without what names\n"
        "                 its user (user id, client key, trace, last digits)\n" FILTER_COSTS
        "Where users are divided over places: one list of all, with the place of each event, and --limit counts over\n"
        "all; --place N lists those of one.\n"
        "Ctrl-C ends the search (exit 1); what was found until then is printed.\n",
    .run = run_list,
    .in_places = CTL_OVER_ALL,
};
