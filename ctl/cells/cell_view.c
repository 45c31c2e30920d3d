/* See cell_view.h.
 *
 * Invariants: a bucket has one owner or none; where two cells claim it nothing is decided.
 * Left out: one moment for all cells, which does not exist. A bucket that moves between two reads seems to be nowhere
 * or twice, so a view of that kind is read again, and who acts on a view looks again. */
#include "ctl/cells/cell_view.h"

#include <string.h>

static bool has_bucket(enum cell_state state)
{
    return state == CELL_HERE || state == CELL_LISTING || state == CELL_DRAINING || state == CELL_CLOSED;
}

/* The only cell whose state of the bucket is wanted. */
static int only_cell(const struct cell_view *view, int bucket, bool (*is_wanted)(enum cell_state state))
{
    int found = CELL_NOWHERE;
    for (int i = 0; i < view->count; i++) {
        if (!view->is_read[i] || !is_wanted(view->sides[i][bucket].state))
            continue;
        if (found != CELL_NOWHERE)
            return CELL_TWICE;
        found = i;
    }
    return found;
}

static bool is_arriving(enum cell_state state)
{
    return state == CELL_ARRIVING;
}

static bool reads_all(const struct cell_view *view)
{
    for (int i = 0; i < view->count; i++)
        if (!view->is_read[i])
            return false;
    return true;
}

int cell_view_owner(const struct cell_view *view, int bucket)
{
    int owner = only_cell(view, bucket, has_bucket);
    if (owner != CELL_NOWHERE)
        return owner;
    int arriving = only_cell(view, bucket, is_arriving);
    if (arriving != CELL_NOWHERE)
        return arriving;
    return reads_all(view) ? CELL_NOWHERE : CELL_UNKNOWN;
}

/* A cell that has left the bucket on the way to `to`: under the move of `to`, else at any time. */
static int left_for(const struct cell_view *view, int bucket, int to)
{
    int found = CELL_NOWHERE;
    for (int i = 0; i < view->count; i++) {
        const struct cell_side *side = &view->sides[i][bucket];
        if (i == to || !view->is_read[i] || (side->state != CELL_GONE && side->state != CELL_AWAY))
            continue;
        if (cell_is_one_move(side, &view->sides[to][bucket]))
            return i;
        if (side->state == CELL_GONE && strcmp(side->other, view->names[to]) == 0)
            found = i;
    }
    return found;
}

static bool refuse_twice(const struct cell_view *view, int bucket, struct err *err)
{
    const char *first = NULL, *second = NULL;
    for (int i = 0; i < view->count; i++) {
        if (!view->is_read[i] || !has_bucket(view->sides[i][bucket].state))
            continue;
        second = first ? view->names[i] : second;
        first = first ? first : view->names[i];
    }
    return err_set(err, ERR_REFUSED, "bucket %d is in %s and in %s", bucket, first ? first : "several cells",
                   second ? second : "others");
}

bool cell_view_source(const struct cell_view *view, int bucket, int to, int *ret_from, struct err *err)
{
    int owner = only_cell(view, bucket, has_bucket);
    if (owner == CELL_TWICE)
        return refuse_twice(view, bucket, err);
    if (owner >= 0 && owner != to) {
        const struct cell_side *side = &view->sides[owner][bucket];
        if (side->state != CELL_HERE && strcmp(side->other, view->names[to]) != 0)
            return err_set(err, ERR_REFUSED, "bucket %d is on its way from %s to %s: finish or undo that move first",
                           bucket, view->names[owner], side->other);
        int arriving = only_cell(view, bucket, is_arriving);
        if (arriving >= 0 && arriving != to)
            return err_set(err, ERR_REFUSED, "an undone move of bucket %d has left rows in %s: --undo removes them",
                           bucket, view->names[arriving]);
        *ret_from = owner;
        return true;
    }
    int left = left_for(view, bucket, to);
    if (owner == to || view->sides[to][bucket].state == CELL_ARRIVING) {
        *ret_from = left == CELL_NOWHERE ? to : left;
        if (owner == to || left != CELL_NOWHERE)
            return true;
    }
    for (int i = 0; i < view->count; i++)
        if (!view->is_read[i])
            return err_set(err, ERR_AWAY, "bucket %d may be in cell %s, which could not be read", bucket,
                           view->names[i]);
    int arriving = only_cell(view, bucket, is_arriving);
    if (arriving >= 0)
        return err_set(err, ERR_REFUSED, "bucket %d is on its way to %s: finish that move first", bucket,
                       view->names[arriving]);
    return err_set(err, ERR_REFUSED, "bucket %d is in no cell", bucket);
}

bool cell_view_destination(const struct cell_view *view, int bucket, int *ret_to, struct err *err)
{
    int owner = only_cell(view, bucket, has_bucket), arriving = only_cell(view, bucket, is_arriving);
    if (owner == CELL_TWICE)
        return refuse_twice(view, bucket, err);
    if (arriving >= 0) {
        *ret_to = arriving;
        return true;
    }
    for (int i = 0; owner >= 0 && view->sides[owner][bucket].state != CELL_HERE && i < view->count; i++) {
        if (strcmp(view->sides[owner][bucket].other, view->names[i]) == 0) {
            *ret_to = i;
            return true;
        }
    }
    return err_set(err, ERR_REFUSED, "bucket %d is on no way that could be undone", bucket);
}

bool cell_view_map(const struct cell_view *view, struct cell_map *ret_map, struct err *err)
{
    struct cell_buckets nowhere = {.count = 0}, twice = {.count = 0}, unknown = {.count = 0};
    char text[CELL_BUCKETS_TEXT_SIZE];
    memset(ret_map, 0, sizeof(*ret_map));
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++) {
        int owner = cell_view_owner(view, bucket);
        if (owner >= 0)
            memcpy(ret_map->names[bucket], view->names[owner], strlen(view->names[owner]) + 1);
        else
            cell_buckets_put(owner == CELL_TWICE ? &twice : owner == CELL_NOWHERE ? &nowhere : &unknown, bucket);
    }
    if (twice.count > 0)
        return err_set(err, ERR_REFUSED, "in more than one cell: %s", cell_buckets_text(&twice, text));
    for (int i = 0; unknown.count > 0 && i < view->count; i++)
        if (!view->is_read[i])
            return err_set(err, ERR_AWAY, "buckets %s may be in cell %s, which could not be read",
                           cell_buckets_text(&unknown, text), view->names[i]);
    return nowhere.count == 0 || err_set(err, ERR_REFUSED, "in no cell: %s", cell_buckets_text(&nowhere, text));
}
