/* See cell_show.h: the status, and the line of a bucket that was to be moved. cell_verify.c has the checks. */
#include "ctl/cells/cell_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print.h"
#include "statements.h"

static bool set_bool(struct json *object, const char *name, bool value)
{
    return json_set(object, name, json_new_bool(value));
}

/* -1 = null */
static bool set_count(struct json *object, const char *name, int64_t count)
{
    return count < 0 ? json_set(object, name, NULL) : json_set_integer(object, name, count);
}

/* ---- a cell ---- */

struct counts {
    struct cell_buckets here, moving, gone;
};

static struct counts count_buckets(const struct cell_view *view, int cell)
{
    struct counts counts = {.here = {.count = 0}};
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++) {
        switch (view->sides[cell][bucket].state) {
        case CELL_HERE:
            cell_buckets_put(&counts.here, bucket);
            break;
        case CELL_LISTING:
        case CELL_DRAINING:
        case CELL_CLOSED:
        case CELL_ARRIVING:
            cell_buckets_put(&counts.moving, bucket);
            break;
        case CELL_GONE:
            cell_buckets_put(&counts.gone, bucket);
            break;
        case CELL_AWAY:
            break;
        }
    }
    return counts;
}

/* Events that are still to be deleted; -1 = not known. */
static int64_t rows_left(struct cell_db *cell, const struct counts *counts)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct err ignored;
    if (counts->gone.count == 0)
        return 0;
    return cell_query(cell, &sql_cell_rows_left, NULL, &rows, &ignored) ? pg_int8(rows, 0, 0) : -1;
}

static bool print_cell_json(struct cell_db *cell, const struct cell_view *view, int index)
{
    struct counts counts = count_buckets(view, index);
    struct json *object = json_new_object();
    char text[CELL_BUCKETS_TEXT_SIZE];
    bool is_read = view->is_read[index];
    int64_t left = is_read ? rows_left(cell, &counts) : -1;
    if (object && json_set_text(object, "cell", cell->name) && set_bool(object, "reachable", is_read) &&
        set_bool(object, "initialised", is_read && cell->is_made) &&
        set_count(object, "here", is_read ? counts.here.count : -1) &&
        set_count(object, "moving", is_read ? counts.moving.count : -1) &&
        set_count(object, "gone", is_read ? counts.gone.count : -1) && set_count(object, "events_left", left) &&
        json_set_text(object, "buckets", is_read ? cell_buckets_text(&counts.here, text) : NULL) &&
        json_set_text(object, "error", is_read ? NULL : view->why[index].message))
        return print_json(object, stdout);
    json_free(object);
    return false;
}

static void add_cell(struct table *table, struct cell_db *cell, const struct cell_view *view, int index)
{
    struct counts counts = count_buckets(view, index);
    char text[CELL_BUCKETS_TEXT_SIZE];
    bool is_shown = view->is_read[index] && cell->is_made;
    table_add(table, cell->name);
    if (!is_shown) {
        for (int column = 0; column < 4; column++)
            table_add(table, NULL);
        table_add(table, view->is_read[index] ? "no cell yet: issuing-ctl cell init" : view->why[index].message);
        return;
    }
    int64_t left = rows_left(cell, &counts);
    table_add_number(table, counts.here.count);
    table_add_number(table, counts.moving.count);
    table_add_number(table, counts.gone.count);
    if (left >= 0)
        table_add_number(table, left);
    else
        table_add(table, "?");
    table_add(table, cell_buckets_text(&counts.here, text));
}

static bool print_cells(const struct ctl *ctl, struct cells *cells, const struct cell_view *view)
{
    static const char *const heads[] = {"CELL", "HERE", "MOVING", "LEFT", "EVENTS LEFT", "BUCKETS", NULL};
    struct table table;
    bool whole = true;
    for (int i = 0; ctl->json && whole && i < cells->count; i++)
        whole = print_cell_json(&cells->list[i], view, i);
    if (ctl->json)
        return whole;
    table_init(&table, heads);
    for (int i = 0; i < cells->count; i++)
        add_cell(&table, &cells->list[i], view, i);
    whole = table_flush(&table, stdout);
    table_done(&table);
    return whole;
}

/* ---- buckets on their way ---- */

static bool is_on_its_way(enum cell_state state)
{
    return state == CELL_LISTING || state == CELL_DRAINING || state == CELL_CLOSED || state == CELL_ARRIVING;
}

static bool print_way(const struct ctl *ctl, struct table *table, const struct cell_view *view, int cell, int bucket)
{
    const struct cell_side *side = &view->sides[cell][bucket];
    char age[PRINT_SPAN_SIZE];
    if (ctl->json) {
        struct json *object = json_new_object();
        if (object && json_set_integer(object, "bucket", bucket) && json_set_text(object, "cell", view->names[cell]) &&
            json_set_text(object, "state", cell_state_word(side->state)) &&
            json_set_text(object, "other", side->other) && json_set_integer(object, "age_ms", side->age_us / 1000))
            return print_json(object, stdout);
        json_free(object);
        return false;
    }
    table_add_number(table, bucket);
    table_add(table, view->names[cell]);
    table_add(table, cell_state_word(side->state));
    table_add(table, side->other);
    table_add(table, print_span(side->age_us, age));
    return !table->failed;
}

static bool print_ways(const struct ctl *ctl, const struct cell_view *view)
{
    static const char *const heads[] = {"BUCKET", "CELL", "STATE", "OTHER CELL", "SINCE", NULL};
    struct table table;
    bool whole = true, any = false;
    table_init(&table, heads);
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++) {
        for (int cell = 0; whole && cell < view->count; cell++) {
            if (!view->is_read[cell] || !is_on_its_way(view->sides[cell][bucket].state))
                continue;
            if (!any && !ctl->json)
                fputs("\nOn their way; `cell move BUCKET --to CELL` goes on, `cell move BUCKET --undo` goes back:\n",
                      stdout);
            any = true;
            whole = print_way(ctl, &table, view, cell, bucket);
        }
    }
    whole = table_flush(&table, stdout) && whole;
    table_done(&table);
    return whole;
}

/* ---- the router ---- */

static bool print_place(const struct ctl *ctl, const struct cell_place *place)
{
    char text[CELL_BUCKETS_TEXT_SIZE];
    if (ctl->json) {
        struct json *object = json_new_object();
        if (object && json_set_text(object, "router", place->name) &&
            set_bool(object, "agrees", !place->is_failed && place->different.count == 0) &&
            set_count(object, "different", place->is_failed ? -1 : place->different.count) &&
            json_set_text(object, "error", place->is_failed ? place->why : NULL))
            return print_json(object, stdout);
        json_free(object);
        return false;
    }
    printf("router %s: ", place->name);
    if (place->is_failed)
        print_text(place->why, stdout);
    else if (place->different.count > 0)
        printf("DIFFERS in %d buckets: %s; `issuing-ctl cell map --write` repairs it", place->different.count,
               cell_buckets_text(&place->different, text));
    else
        fputs("agrees with the databases", stdout);
    putchar('\n');
    return true;
}

void cell_show_unrouted(const struct cell_router *router)
{
    fflush(stdout);
    for (int i = 0; i < router->count; i++) {
        const struct cell_place *place = &router->places[i];
        if (!place->is_failed && place->different.count == 0)
            continue;
        fprintf(stderr, "issuing-ctl: router %s: ", place->name);
        print_text(place->is_failed ? place->why : "still differs", stderr);
        fputc('\n', stderr);
    }
    fputs("issuing-ctl: the databases are right and the router is not: run `issuing-ctl cell map --write`\n", stderr);
}

/* ---- a bucket that was to be moved ---- */

static bool set_ms(struct json *object, const char *name, int64_t us)
{
    return us < 0 ? json_set(object, name, NULL) : json_set_integer(object, name, us / 1000);
}

static void print_report_json(const struct cell_report *report)
{
    struct json *object = json_new_object();
    bool is_known = report->from != NULL;
    if (object && json_set_integer(object, "bucket", report->bucket) && json_set_text(object, "from", report->from) &&
        json_set_text(object, "to", report->to) && json_set_text(object, "result", cell_result_word(report->result)) &&
        json_set_text(object, "last_step", report->last == CELL_STEP_DONE ? NULL : cell_step_word(report->last)) &&
        json_set_text(object, "source_state", is_known ? cell_state_word(report->source_state) : NULL) &&
        json_set_text(object, "destination_state", is_known ? cell_state_word(report->destination_state) : NULL) &&
        json_set_integer(object, "rows", report->rows) && json_set_integer(object, "bytes", report->bytes) &&
        set_ms(object, "drain_ms", report->drain_us) && set_ms(object, "pause_ms", report->pause_us) &&
        json_set(object, "router_told", json_new_bool(report->unrouted == 0)) &&
        json_set_text(object, "why", report->why[0] ? report->why : NULL))
        (void)print_json(object, stdout);
    else
        json_free(object);
}

static void print_report(const struct cell_report *report)
{
    char text[PRINT_NUMBER_SIZE], pause[PRINT_SPAN_SIZE], drain[PRINT_SPAN_SIZE];
    printf("bucket %d", report->bucket);
    if (report->from)
        printf(" %s -> %s", report->from, report->to);
    switch (report->result) {
    case CELL_RESULT_MOVED:
        printf(": moved, %s rows", print_number(report->rows, text));
        break;
    case CELL_RESULT_ALREADY:
        fputs(": it is there already", stdout);
        break;
    case CELL_RESULT_UNDONE:
        printf(": undone, it is in %s", report->from);
        break;
    case CELL_RESULT_STOPPED:
        printf(": stopped after %s", report->last == CELL_STEP_DONE ? "nothing" : cell_step_word(report->last));
        break;
    case CELL_RESULT_GAVE_UP:
        printf(": NOT MOVED, it is in %s as before", report->from);
        break;
    case CELL_RESULT_FAILED:
        fputs(": FAILED", stdout);
        break;
    case CELL_RESULT_UNREACHED:
        fputs(": a database is away; the same command goes on", stdout);
        break;
    }
    if (report->drain_us > 100000)
        printf(", waited %s for attempts", print_span(report->drain_us, drain));
    if (report->pause_us >= 0)
        printf(", paused for %s", print_span(report->pause_us, pause));
    if (report->why[0] != '\0') {
        fputs(": ", stdout);
        print_text(report->why, stdout);
    }
    putchar('\n');
}

void cell_show_report(const struct ctl *ctl, const struct cell_report *report)
{
    if (ctl->json)
        print_report_json(report);
    else
        print_report(report);
    fflush(stdout); /* a move of many buckets takes minutes */
}

/* ---- all of it ---- */

int cell_show_status(const struct ctl *ctl, struct cells *cells, struct cell_router *router,
                     const struct cell_view *view)
{
    struct cell_map *map = malloc(sizeof(*map));
    struct err err;
    int code = CTL_DONE;
    if (!map || !print_cells(ctl, cells, view) || !print_ways(ctl, view)) {
        free(map);
        err_set(&err, ERR_MEMORY, "out of memory");
        return ctl_fail(&err);
    }
    for (int i = 0; i < view->count; i++)
        code = view->is_read[i] ? code : CTL_AWAY;
    if (!cell_view_map(view, map, &err)) {
        code = ctl_fail(&err);
    } else if (router->count > 0) {
        if (!ctl->json)
            putchar('\n');
        if (cell_router_compare(router, map) > 0 && code == CTL_DONE)
            code = CTL_REFUSED;
        for (int i = 0; i < router->count; i++)
            (void)print_place(ctl, &router->places[i]);
    }
    free(map);
    return code;
}
