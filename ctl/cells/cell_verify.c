/* issuing-ctl cell verify; see cell_show.h.
 *
 * What is true of cells at any time: each bucket is in exactly one, no user has rows in a cell that does not have the
 * bucket, the rows of a bucket on its way are the same on both sides, the router knows. Every check runs, whatever the
 * others found. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cells/cell_copy.h"
#include "ctl/cells/cell_show.h"
#include "ctl/print.h"
#include "statements.h"

#define WHAT_SIZE 120

struct verify {
    const struct ctl *ctl;
    struct cells *cells;
    struct cell_router *router;
    const struct cell_view *view;
    int failures, unknowns;
};

enum finding { IS_FINE, IS_WRONG, IS_UNKNOWN };

static void find(struct verify *verify, enum finding finding, const char *what, const char *why)
{
    static const char *const words[] = {[IS_FINE] = "ok", [IS_WRONG] = "WRONG", [IS_UNKNOWN] = "unknown"};
    static const char *const results[] = {[IS_FINE] = "ok", [IS_WRONG] = "wrong", [IS_UNKNOWN] = "unknown"};
    verify->failures += finding == IS_WRONG;
    verify->unknowns += finding == IS_UNKNOWN;
    if (verify->ctl->json) {
        struct json *object = json_new_object();
        if (object && json_set_text(object, "check", what) && json_set_text(object, "result", results[finding]) &&
            json_set_text(object, "why", why))
            (void)print_json(object, stdout);
        else
            json_free(object);
        return;
    }
    printf("%-8s %s", words[finding], what);
    if (why) {
        fputs(": ", stdout);
        print_text(why, stdout);
    }
    putchar('\n');
}

static void find_err(struct verify *verify, const char *what, const struct err *err)
{
    find(verify, err->kind == ERR_REFUSED ? IS_WRONG : IS_UNKNOWN, what, err->message);
}

static void check_cell(struct verify *verify, int index)
{
    char what[WHAT_SIZE];
    const struct cell_db *cell = &verify->cells->list[index];
    snprintf(what, sizeof(what), "the cell %s answers, and its database has its name", cell->name);
    if (!verify->view->is_read[index])
        find(verify, IS_UNKNOWN, what, verify->view->why[index].message);
    else if (!cell->is_made)
        find(verify, IS_WRONG, what, "no cell yet: issuing-ctl cell init");
    else
        find(verify, IS_FINE, what, NULL);
}

static void check_strays(struct verify *verify, int index)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    char what[WHAT_SIZE], why[200];
    struct cell_db *cell = &verify->cells->list[index];
    struct err err;
    snprintf(what, sizeof(what), "every user with rows in %s belongs there", cell->name);
    if (!verify->view->is_read[index] || !cell->is_made)
        return;
    bool is_asked = cell_be_patient(cell, true, &err) && cell_query(cell, &sql_cell_strays, NULL, &rows, &err) &&
                    cell_be_patient(cell, false, &err);
    if (!is_asked) {
        find(verify, IS_UNKNOWN, what, err.message);
        return;
    }
    for (int row = 0; row < pg_rows_count(rows); row++) {
        snprintf(why, sizeof(why), "%" PRId64 " users of bucket %" PRId64 " do not", pg_int8(rows, row, 1),
                 pg_int8(rows, row, 0));
        find(verify, IS_WRONG, what, why);
    }
    if (pg_rows_count(rows) == 0)
        find(verify, IS_FINE, what, NULL);
}

/* A move that goes on meanwhile may change what was compared. */
static bool is_as_before(struct verify *verify, int cell, int bucket)
{
    const struct cell_side *before = &verify->view->sides[cell][bucket];
    struct cell_side now;
    struct err ignored;
    return cell_read_side(&verify->cells->list[cell], bucket, &now, &ignored) && now.state == before->state &&
           memcmp(&now.move, &before->move, sizeof(now.move)) == 0;
}

/* Rows that nobody changes: closed or gone in the source, and not yet here in the destination. */
static void check_copy(struct verify *verify, int from, int to, int bucket)
{
    char what[WHAT_SIZE];
    struct err err;
    int64_t rows = 0;
    bool is_copied = true;
    snprintf(what, sizeof(what), "bucket %d has the same rows in %s and %s", bucket, verify->view->names[from],
             verify->view->names[to]);
    if (verify->view->sides[from][bucket].state == CELL_CLOSED &&
        !cell_is_copied(&verify->cells->list[to], bucket, &is_copied, &err))
        find_err(verify, what, &err);
    else if (!is_copied)
        find(verify, IS_FINE, what, "nothing is copied yet");
    else if (cell_compare(&verify->cells->list[from], &verify->cells->list[to], bucket, &rows, &err))
        find(verify, IS_FINE, what, NULL);
    else if (is_as_before(verify, from, bucket) && is_as_before(verify, to, bucket))
        find_err(verify, what, &err);
    else
        find(verify, IS_UNKNOWN, what, "the move went on meanwhile: run this again");
}

/* Whether the source's rows of a bucket are at rest. */
static bool is_at_rest(enum cell_state state)
{
    /* guard: verify compares a copy whose source is closed */
    return state == CELL_CLOSED || state == CELL_GONE;
}

static void check_copies(struct verify *verify)
{
    const struct cell_view *view = verify->view;
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++)
        for (int from = 0; from < view->count; from++)
            for (int to = 0; to < view->count; to++)
                if (from != to && view->is_read[from] && view->is_read[to] &&
                    is_at_rest(view->sides[from][bucket].state) && view->sides[to][bucket].state == CELL_ARRIVING &&
                    cell_is_one_move(&view->sides[from][bucket], &view->sides[to][bucket]))
                    check_copy(verify, from, to, bucket);
}

static void check_router(struct verify *verify, const struct cell_map *map)
{
    char what[WHAT_SIZE], why[200], text[CELL_BUCKETS_TEXT_SIZE];
    (void)cell_router_compare(verify->router, map);
    for (int i = 0; i < verify->router->count; i++) {
        const struct cell_place *place = &verify->router->places[i];
        snprintf(what, sizeof(what), "the router %.80s agrees", place->name);
        snprintf(why, sizeof(why), "it differs in %s", cell_buckets_text(&place->different, text));
        if (place->is_failed)
            find(verify, IS_UNKNOWN, what, place->why);
        else
            find(verify, place->different.count > 0 ? IS_WRONG : IS_FINE, what,
                 place->different.count > 0 ? why : NULL);
    }
}

int cell_show_verify(const struct ctl *ctl, struct cells *cells, struct cell_router *router,
                     const struct cell_view *view)
{
    struct verify verify = {.ctl = ctl, .cells = cells, .router = router, .view = view};
    struct cell_map *map = malloc(sizeof(*map));
    struct err err;
    if (!map) {
        err_set(&err, ERR_MEMORY, "out of memory");
        return ctl_fail(&err);
    }
    for (int i = 0; i < cells->count; i++)
        check_cell(&verify, i);
    if (cell_view_map(view, map, &err)) {
        find(&verify, IS_FINE, "each bucket is in exactly one cell", NULL);
        check_router(&verify, map);
    } else {
        find_err(&verify, "each bucket is in exactly one cell", &err);
    }
    for (int i = 0; i < cells->count; i++)
        check_strays(&verify, i);
    check_copies(&verify);
    free(map);
    return verify.failures > 0 ? CTL_REFUSED : verify.unknowns > 0 ? CTL_AWAY : CTL_DONE;
}
