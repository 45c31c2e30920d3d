/* Reads the cells into a view; see cell_view.h. cell_view.c says what a view means. */
#include <stdlib.h>
#include <time.h>

#include "ctl/cells/cell_view.h"

#define LOOKS 3
#define LOOK_NAP_NS 100000000

static bool read_once(struct cell_view *view, struct cells *cells, struct err *err)
{
    view->count = cells->count;
    for (int i = 0; i < cells->count; i++) {
        view->names[i] = cells->list[i].name;
        view->is_read[i] =
            cell_open(cells, i, &view->why[i]) && cell_read_sides(&cells->list[i], view->sides[i], &view->why[i]);
        if (!view->is_read[i] && view->why[i].kind == ERR_CONFIG) {
            *err = view->why[i];
            return false;
        }
    }
    return true;
}

void cell_view_free(struct cell_view *view)
{
    free(view);
}

static bool is_consistent(const struct cell_view *view)
{
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++) {
        int owner = cell_view_owner(view, bucket);
        if (owner == CELL_TWICE || owner == CELL_NOWHERE)
            return false;
    }
    return true;
}

bool cell_view_read(struct cell_view *view, struct cells *cells, struct err *err)
{
    for (int looks = 0; looks < LOOKS; looks++) {
        if (looks > 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_NAP_NS}, NULL);
        if (!read_once(view, cells, err))
            return false;
        if (is_consistent(view))
            break;
    }
    return true;
}

bool cell_view_new(struct cells *cells, struct cell_view **ret_view, struct err *err)
{
    struct cell_view *view = calloc(1, sizeof(*view));
    if (!view)
        return err_set(err, ERR_MEMORY, "out of memory");
    if (!cell_view_read(view, cells, err)) {
        free(view);
        return false;
    }
    *ret_view = view;
    return true;
}
