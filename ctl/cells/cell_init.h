/* issuing-ctl cell init: makes a database a cell. */
#ifndef ISSUING_CTL_CELL_INIT_H
#define ISSUING_CTL_CELL_INIT_H

#include "ctl/cells/cell_db.h"
#include "ctl/cells/cell_view.h"

/* buckets NULL: all where no other cell is made yet, else none. Prints what it means for the users who have rows there.
 * Returns the exit code. */
int cell_init(const struct ctl *ctl, struct cells *cells, const struct cell_view *view, int index,
              const struct cell_buckets *buckets, bool is_dry_run);

#endif
