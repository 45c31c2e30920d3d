/* Copies the rows of one closed bucket into the other cell, and compares both. */
#ifndef ISSUING_CTL_CELL_COPY_H
#define ISSUING_CTL_CELL_COPY_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "ctl/cells/cell_db.h"

struct cell_copied {
    int64_t rows, bytes;
    bool was_there; /* an earlier mover had copied the rows; they were only compared */
};

/* One transaction of the destination, and one snapshot of the source. Precondition: the bucket is closed in the source
 * and arriving in the destination, under this move. until_ms: a time of clock_mono_ms(). After a failure nothing of it
 * is in the destination, unless the commit's outcome is unknown (ERR_AWAY); the same call then finds out. */
must_check bool cell_copy(struct cell_db *source, struct cell_db *destination, int bucket, const struct uuid *move,
                          int64_t until_ms, struct cell_copied *ret_copied, struct err *err);
/* Whether the destination has rows of the bucket: a copy was committed. A bucket without users never has any. */
must_check bool cell_is_copied(struct cell_db *destination, int bucket, bool *ret_is_there, struct err *err);
/* Compares the rows that both have of a bucket. ERR_REFUSED names the table in which they differ. */
must_check bool cell_compare(struct cell_db *source, struct cell_db *destination, int bucket, int64_t *ret_rows,
                             struct err *err);

#endif
