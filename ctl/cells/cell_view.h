/* All cells at one moment: who has which bucket. Read from the databases; everything else is pure. */
#ifndef ISSUING_CTL_CELL_VIEW_H
#define ISSUING_CTL_CELL_VIEW_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "ctl/cells/cell_db.h"
#include "ctl/cells/cell_map.h"

#define CELL_NOWHERE (-1)
#define CELL_TWICE (-2)
#define CELL_UNKNOWN (-3) /* no cell that was read has it, and not all could be read */

struct cell_view {
    int count;
    const char *names[CONFIG_CELLS_MAX]; /* borrowed from the configuration */
    bool is_read[CONFIG_CELLS_MAX];
    struct err why[CONFIG_CELLS_MAX]; /* of a cell that could not be read */
    struct cell_side sides[CONFIG_CELLS_MAX][CELL_BUCKETS];
};

/* Several megabytes; freed by cell_view_free. ERR_MEMORY, and ERR_CONFIG when two cells are one database. */
must_check bool cell_view_new(struct cells *cells, struct cell_view **ret_view, struct err *err);
void cell_view_free(struct cell_view *view); /* accepts NULL */
/* Reads the cells again; a cell that cannot be read is marked. ERR_CONFIG as above. */
must_check bool cell_view_read(struct cell_view *view, struct cells *cells, struct err *err);

/* The index of the cell that calls of this bucket belong to: the one that has it, and the destination once the source
 * has left it. */
int cell_view_owner(const struct cell_view *view, int bucket);
/* The cell that a move of this bucket to `to` comes from: the one that has it, or has left it on the way to `to`.
 * *ret_from = `to`: the bucket lives there, and no other cell has rows of it. ERR_REFUSED: nowhere, twice, or on its
 * way to a third cell. */
must_check bool cell_view_source(const struct cell_view *view, int bucket, int to, int *ret_from, struct err *err);
/* Where the bucket is on its way to, for an undo. ERR_REFUSED: on no way. */
must_check bool cell_view_destination(const struct cell_view *view, int bucket, int *ret_to, struct err *err);
/* The map that these states mean. ERR_REFUSED names the buckets that are nowhere or twice, ERR_AWAY a cell that could
 * not be read and may have the missing ones. */
must_check bool cell_view_map(const struct cell_view *view, struct cell_map *ret_map, struct err *err);

#endif
