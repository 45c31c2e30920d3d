/* issuing-ctl cell: which cell has which users, and moving them.
 *
 * The databases decide (docs/scaling.md); the router is told, and asked. status, verify and map read; init, move and
 * empty change, as the owner of the tables. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cells/cell_init.h"
#include "ctl/cells/cell_move.h"
#include "ctl/cells/cell_router.h"
#include "ctl/cells/cell_show.h"
#include "ctl/cells/cell_view.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/stop.h"

#define DRAIN_TIMEOUT_MS 60000
#define MAX_PAUSE_MS 2000
#define HOUR_MS (INT64_C(3600) * 1000)

/* One run of the command. */
struct cell_run {
    struct ctl *ctl;
    char **words; /* what stands after the verb */
    int word_count;
    const char *to, *stop_after, *drain_timeout, *max_pause, *reason;
    bool undo, keep_source, write, dry_run;
    struct action action;
    struct cells cells;
    struct cell_router router;
    struct cell_view *view;
};

static int fail_usage(const char *text)
{
    struct err err;
    err_set(&err, ERR_USAGE, "%s", text);
    return ctl_fail(&err);
}

/* Everything that all verbs need: the configuration, the router, the states in all cells that answer. */
static bool open_run(struct cell_run *run, struct err *err)
{
    return action_init(&run->action, run->reason ? run->reason : "issuing-ctl cell", err) &&
           cells_init(&run->cells, run->ctl->config, &run->action, err) &&
           cell_router_init(&run->router, run->ctl->config, err) && cell_view_new(&run->cells, &run->view, err);
}

/* ---- init, status, verify, map ---- */

static int run_init(struct cell_run *run)
{
    struct cell_buckets buckets;
    struct err err;
    int index;
    if (run->word_count == 0)
        return fail_usage("cell init needs the name of a cell");
    if (run->word_count > 1 && !cell_buckets_read(run->words + 1, run->word_count - 1, &buckets, &err))
        return ctl_fail(&err);
    if (!open_run(run, &err) || !cells_find(&run->cells, run->words[0], &index, &err))
        return ctl_fail(&err);
    return cell_init(run->ctl, &run->cells, run->view, index, run->word_count > 1 ? &buckets : NULL, run->dry_run);
}

static int run_status(struct cell_run *run)
{
    struct err err;
    if (run->word_count > 0)
        return fail_usage("cell status takes no argument");
    if (!open_run(run, &err))
        return ctl_fail(&err);
    return cell_show_status(run->ctl, &run->cells, &run->router, run->view);
}

static int run_verify(struct cell_run *run)
{
    struct err err;
    if (run->word_count > 0)
        return fail_usage("cell verify takes no argument");
    if (!open_run(run, &err))
        return ctl_fail(&err);
    return cell_show_verify(run->ctl, &run->cells, &run->router, run->view);
}

static int print_map(const struct cell_run *run, const struct cell_map *map)
{
    struct buf text;
    struct err err;
    int code = CTL_DONE;
    buf_init(&text, CELL_MAP_TEXT_MAX);
    if (!cell_map_put(map, &text)) {
        err_set(&err, ERR_MEMORY, "out of memory");
        code = ctl_fail(&err);
    } else if (!run->ctl->json) {
        fwrite(text.bytes, 1, text.length, stdout);
    }
    for (int bucket = 0; code == CTL_DONE && run->ctl->json && bucket < CELL_BUCKETS; bucket++) {
        struct json *object = json_new_object();
        if (object && json_set_integer(object, "bucket", bucket) && json_set_text(object, "cell", map->names[bucket]))
            (void)print_json(object, stdout);
        else
            json_free(object);
    }
    buf_done(&text);
    return code;
}

static int write_map(struct cell_run *run, const struct cell_map *map)
{
    struct err err;
    if (run->router.count == 0) {
        err_set(&err, ERR_CONFIG, "router.map_file is not set");
        return ctl_fail(&err);
    }
    int failures = cell_router_write(&run->router, map);
    if (failures > 0)
        cell_show_unrouted(&run->router);
    if (!run->ctl->json)
        printf("%d of %d places of the router have the map of the databases.\n", run->router.count - failures,
               run->router.count);
    return failures > 0 ? CTL_AWAY : CTL_DONE;
}

static int run_map(struct cell_run *run)
{
    struct err err;
    if (run->word_count > 0)
        return fail_usage("cell map takes no argument");
    struct cell_map *map = malloc(sizeof(*map));
    bool is_known =
        map ? open_run(run, &err) && cell_view_map(run->view, map, &err) : err_set(&err, ERR_MEMORY, "out of memory");
    int code = !is_known ? ctl_fail(&err) : run->write ? write_map(run, map) : print_map(run, map);
    free(map);
    return code;
}

/* ---- move ---- */

struct move_totals {
    const struct ctl *ctl;
    int done, failed, away, unrouted, stopped;
    int64_t longest_pause_us;
};

static void on_report(void *context, const struct cell_report *report)
{
    struct move_totals *totals = context;
    enum cell_result result = report->result;
    totals->done += result == CELL_RESULT_MOVED || result == CELL_RESULT_ALREADY || result == CELL_RESULT_UNDONE;
    totals->stopped += result == CELL_RESULT_STOPPED;
    totals->failed += result == CELL_RESULT_GAVE_UP || result == CELL_RESULT_FAILED;
    totals->away += result == CELL_RESULT_UNREACHED;
    totals->unrouted += report->unrouted > 0;
    if (report->pause_us > totals->longest_pause_us)
        totals->longest_pause_us = report->pause_us;
    cell_show_report(totals->ctl, report);
}

static bool read_duration(const char *name, const char *text, int64_t least_ms, int64_t *ms, struct err *err)
{
    int64_t us;
    if (!text)
        return true;
    if (!options_duration(text, &us) || us / 1000 < least_ms || us / 1000 > HOUR_MS)
        return err_set(err, ERR_USAGE, "--%s needs a time from %" PRId64 "ms to 1h, such as 2s", name, least_ms);
    *ms = us / 1000;
    return true;
}

static bool read_order(const struct cell_run *run, struct cell_order *ret_order, struct err *err)
{
    struct cell_order order = {.wish = run->undo ? CELL_WISH_UNDO : CELL_WISH_MOVE,
                               .keeps_source = run->keep_source,
                               .drain_timeout_ms = DRAIN_TIMEOUT_MS,
                               .max_pause_ms = MAX_PAUSE_MS};
    if (!cell_buckets_read(run->words, run->word_count, &order.buckets, err) ||
        !read_duration("drain-timeout", run->drain_timeout, 0, &order.drain_timeout_ms, err) ||
        !read_duration("max-pause", run->max_pause, 10, &order.max_pause_ms, err))
        return false;
    if (!run->to && !run->undo)
        return err_set(err, ERR_USAGE, "cell move needs --to CELL or --undo");
    if (run->undo && run->keep_source)
        return err_set(err, ERR_USAGE, "--keep-source does not go with --undo");
    order.has_stop = run->stop_after != NULL;
    if (order.has_stop && (!cell_step_parse(run->stop_after, &order.stop_after) || order.stop_after >= CELL_STEP_DONE))
        return err_set(err, ERR_USAGE,
                       "--stop-after needs a step: list, expect, drain, close, copy, leave, arrive, "
                       "router, empty, open or refuse");
    *ret_order = order;
    return true;
}

/* The router is made equal to the databases before the first pause, so that places that do not answer are known. */
static void prepare_router(struct cell_run *run)
{
    struct cell_map *map = malloc(sizeof(*map));
    struct err ignored;
    if (map && run->router.count > 0 && cell_view_map(run->view, map, &ignored))
        (void)cell_router_write(&run->router, map);
    free(map);
}

/* Once more after the last bucket: a mover that was stopped for a while may have told the router what is not true any
 * more. Where the databases cannot be read, what the moves found stands. */
static int settle_router(struct cell_run *run, int unrouted)
{
    struct cell_map *map = malloc(sizeof(*map));
    struct err err;
    int failures = unrouted;
    if (map && run->router.count > 0 && cell_view_read(run->view, &run->cells, &err) &&
        cell_view_map(run->view, map, &err))
        failures = cell_router_write(&run->router, map);
    free(map);
    return failures;
}

static void print_totals(const struct cell_run *run, const struct move_totals *totals)
{
    char pause[PRINT_SPAN_SIZE];
    if (run->ctl->json || totals->done + totals->failed + totals->away + totals->stopped < 2)
        return;
    printf("%d of %d buckets %s; the longest pause was %s.\n", totals->done,
           totals->done + totals->failed + totals->away + totals->stopped, run->undo ? "undone" : "moved",
           print_span(totals->longest_pause_us, pause));
}

static int run_move(struct cell_run *run)
{
    struct cell_order order;
    struct move_totals totals = {.ctl = run->ctl};
    struct err err;
    if (!read_order(run, &order, &err) || !open_run(run, &err))
        return ctl_fail(&err);
    order.to = -1;
    if (run->to && !cells_find(&run->cells, run->to, &order.to, &err))
        return ctl_fail(&err);
    if (!run->undo && (!cell_open(&run->cells, order.to, &err) || !cell_demand_mover(&run->cells.list[order.to], &err)))
        return ctl_fail(&err); /* an undo opens the source even when the destination is away */
    prepare_router(run);
    const struct cell_mover mover = {
        .cells = &run->cells, .router = &run->router, .order = &order, .on_report = on_report, .context = &totals};
    if (!cell_move(&mover, run->view, &err))
        return ctl_fail(&err);
    int unrouted = settle_router(run, totals.unrouted);
    print_totals(run, &totals);
    if (unrouted > 0)
        cell_show_unrouted(&run->router);
    if (stop_is_requested() && totals.stopped + totals.failed + totals.away > 0)
        fputs("issuing-ctl: stopped; run the same command again for the rest\n", stderr);
    return totals.away > 0                         ? CTL_AWAY
           : totals.failed > 0                     ? CTL_REFUSED
           : unrouted > 0                          ? CTL_AWAY
           : totals.stopped > 0 && !order.has_stop ? CTL_REFUSED
                                                   : CTL_DONE;
}

/* ---- empty ---- */

/* Only what another cell has is deleted. */
static bool empty_bucket(struct cell_run *run, int index, int bucket, struct err *err)
{
    int owner = cell_view_owner(run->view, bucket);
    struct cell_side side;
    int64_t rows = 0;
    if (owner < 0 || owner == index)
        return err_set(err, ERR_REFUSED, "bucket %d is in no other cell", bucket);
    if (!cell_open(&run->cells, owner, err) || !cell_read_side(&run->cells.list[owner], bucket, &side, err) ||
        !cell_open(&run->cells, index, err) || !cell_demand_mover(&run->cells.list[index], err))
        return false;
    if (side.state == CELL_ARRIVING || side.state == CELL_AWAY)
        return err_set(err, ERR_REFUSED, "bucket %d is not in %s yet: `cell move %d --to %s` goes on", bucket,
                       run->view->names[owner], bucket, run->view->names[owner]);
    if (!cell_empty(&run->cells.list[index], bucket, &rows, err))
        return false;
    if (run->ctl->json) {
        struct json *object = json_new_object();
        if (object && json_set_integer(object, "bucket", bucket) &&
            json_set_text(object, "cell", run->view->names[index]) && json_set_integer(object, "deleted", rows))
            (void)print_json(object, stdout);
        else
            json_free(object);
    } else {
        printf("bucket %d: %" PRId64 " rows deleted in %s; it is in %s\n", bucket, rows, run->view->names[index],
               run->view->names[owner]);
    }
    fflush(stdout);
    return true;
}

static int run_empty(struct cell_run *run)
{
    struct cell_buckets buckets = {.count = 0};
    struct err err;
    int code = CTL_DONE, found = 0;
    if (run->word_count == 0)
        cell_buckets_all(&buckets);
    else if (!cell_buckets_read(run->words, run->word_count, &buckets, &err))
        return ctl_fail(&err);
    if (!open_run(run, &err))
        return ctl_fail(&err);
    stop_watch();
    for (int i = 0; i < run->cells.count && !stop_is_requested(); i++) {
        for (int bucket = 0; bucket < CELL_BUCKETS && !stop_is_requested(); bucket++) {
            if (!buckets.has[bucket] || !run->view->is_read[i] || run->view->sides[i][bucket].state != CELL_GONE)
                continue;
            found++;
            if (!empty_bucket(run, i, bucket, &err))
                code = ctl_fail(&err);
        }
    }
    if (found == 0 && !run->ctl->json)
        puts("No cell that answers has rows of these buckets left to delete.");
    return stop_is_requested() ? CTL_REFUSED : code;
}

/* ---- the command ---- */

static const struct cell_verb {
    const char *word;
    int (*run)(struct cell_run *run);
    const char *options; /* those that it takes, a blank behind each */
} verbs[] = {
    {"init", run_init, "dry-run "},
    {"status", run_status, ""},
    {"move", run_move, "to undo keep-source stop-after drain-timeout max-pause reason "},
    {"verify", run_verify, ""},
    {"empty", run_empty, "reason "},
    {"map", run_map, "write "},
};

static bool check_options(const struct cell_verb *verb, const struct cell_run *run, struct err *err)
{
    const struct {
        const char *name;
        bool is_given;
    } given[] = {
        {"to ", run->to},
        {"undo ", run->undo},
        {"keep-source ", run->keep_source},
        {"stop-after ", run->stop_after},
        {"drain-timeout ", run->drain_timeout},
        {"max-pause ", run->max_pause},
        {"reason ", run->reason},
        {"write ", run->write},
        {"dry-run ", run->dry_run},
    };
    for (size_t i = 0; i < ARRAY_SIZE(given); i++)
        if (given[i].is_given && !strstr(verb->options, given[i].name))
            return err_set(err, ERR_USAGE, "cell %s takes no --%s", verb->word, given[i].name);
    return true;
}

static int run_verb(struct cell_run *run, const char *word)
{
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (strcmp(word, verbs[i].word) != 0)
            continue;
        if (!check_options(&verbs[i], run, &err))
            return ctl_fail(&err);
        int code = verbs[i].run(run);
        cell_view_free(run->view);
        cells_done(&run->cells);
        return code;
    }
    return fail_usage("cell takes init, status, move, verify, empty or map");
}

static int run_cell(struct ctl *ctl, char **arguments, int count)
{
    struct cell_run *run = calloc(1, sizeof(*run));
    struct err err;
    if (!run) {
        err_set(&err, ERR_MEMORY, "out of memory");
        return ctl_fail(&err);
    }
    const struct option_spec specs[] = {
        {.name = "to", .text = &run->to},
        {.name = "undo", .flag = &run->undo},
        {.name = "keep-source", .flag = &run->keep_source},
        {.name = "stop-after", .text = &run->stop_after},
        {.name = "drain-timeout", .text = &run->drain_timeout},
        {.name = "max-pause", .text = &run->max_pause},
        {.name = "reason", .text = &run->reason},
        {.name = "write", .flag = &run->write},
        {.name = "dry-run", .flag = &run->dry_run},
        {.name = NULL},
    };
    run->ctl = ctl;
    int code = options_read(specs, arguments, count, &count, &err) ? CTL_DONE : ctl_fail(&err);
    if (code == CTL_DONE) {
        run->words = arguments + 1;
        run->word_count = count > 0 ? count - 1 : 0;
        code = run_verb(run, count > 0 ? arguments[0] : "");
    }
    free(run);
    return code;
}

const struct ctl_command ctl_cell = {
    .word = "cell",
    .usage = "init NAME [BUCKET...] | status | move BUCKET... --to NAME | move BUCKET... --undo | verify | "
             "empty [BUCKET...] | map [--write]",
    .summary = "the cells: which database has which users, and moving them",
    .help =
        "A cell is a section [cell.NAME] of the configuration. A BUCKET is 17, 0-511 or 3,5,8-9.\n\n"
        "init NAME [BUCKET...]  makes the database of NAME a cell, as issuing_owner. The first cell takes all buckets\n"
        "                       or those given, and all its users must be in them; a later one takes none\n"
        "  --dry-run            says only what it would mean for the users who are there\n"
        "status                 each cell with its buckets, the buckets on their way, and whether the router agrees\n"
        "move BUCKET...         moves buckets one after the other, as issuing_owner. Clients of a bucket get 503 "
        "while\n"
        "                       it is paused, and everybody else is served. The same command again goes on after\n"
        "                       whatever stopped it; Ctrl-C stops after the bucket under way\n"
        "  --to NAME            the cell that gets them\n"
        "  --undo               back to where they were; refused for a bucket that has left its cell\n"
        "  --max-pause TIME     a bucket that is not copied by then is undone; 2s by default\n"
        "  --drain-timeout TIME so long attempts under way are awaited before that; 60s by default\n"
        "  --keep-source        the rows stay in the old cell, unused, until `cell empty`\n"
        "  --stop-after STEP    list, expect, drain, close, copy, leave, arrive, router or empty\n"
        "  --reason TEXT        for the audit rows in both cells\n"
        "verify                 reads all rows of all cells: each bucket is in one cell, no user's rows are in "
        "another\n"
        "                       one, copies are equal, the router agrees. Exit 1 when something is wrong\n"
        "empty [BUCKET...]      deletes the rows of buckets that have left, in pieces\n"
        "  --reason TEXT        for the audit rows\n"
        "map                    prints the router's map, made from the databases; refused while a bucket is in no "
        "cell\n"
        "                       or in two\n"
        "  --write              writes it to router.map_file and to the HAProxys of router.sockets\n\n"
        "Exit 75: a database or a part of the router was away; the same command again does the rest.\n",
    .run = run_cell,
    .no_cell = "cell looks at every cell by itself: leave out --cell",
};
