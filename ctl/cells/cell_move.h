/* Moves buckets from cell to cell, one after the other. cell_steps.h has the order of the steps. */
#ifndef ISSUING_CTL_CELL_MOVE_H
#define ISSUING_CTL_CELL_MOVE_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "ctl/cells/cell_db.h"
#include "ctl/cells/cell_router.h"
#include "ctl/cells/cell_steps.h"
#include "ctl/cells/cell_view.h"

struct cell_order {
    struct cell_buckets buckets;
    int to; /* index of a cell; -1: of an undo, wherever each bucket was on its way to */
    enum cell_wish wish;
    bool keeps_source;
    bool has_stop;
    enum cell_step stop_after;
    int64_t drain_timeout_ms, max_pause_ms;
};

#define CELL_RESULTS(X)                                                                         \
    X(MOVED, "moved")                  /* and nothing is left to do in the databases */         \
    X(ALREADY, "already_there")        /* there was nothing to do */                            \
    X(UNDONE, "undone")                /* as asked */                                           \
    X(STOPPED, "stopped")              /* --stop-after, or a signal before this bucket began */ \
    X(GAVE_UP, "undone_after_failure") /* the bucket is where it was, and is served there */    \
    X(FAILED, "failed")                /* the bucket is on its way: the same command goes on */ \
    X(UNREACHED, "away")               /* the same, since a database was away */

enum cell_result {
#define X(name, word) CELL_RESULT_##name,
    CELL_RESULTS(X)
#undef X
};
const char *cell_result_word(enum cell_result result);

/* What became of one bucket. */
struct cell_report {
    int bucket;
    const char *from, *to; /* names; NULL = not known */
    enum cell_result result;
    enum cell_step last; /* the last step that was done */
    enum cell_state source_state, destination_state;
    int64_t rows, bytes;
    int64_t drain_us, pause_us; /* -1: there was none */
    int unrouted;               /* places of the router that could not be told */
    char why[400];              /* "" = nothing went wrong */
};

struct cell_mover {
    struct cells *cells;
    struct cell_router *router;
    const struct cell_order *order;
    void (*on_report)(void *context, const struct cell_report *report); /* once a bucket, in order */
    void *context;
};

/* Lists all buckets, then moves each. A bucket that fails does not stop the others; a signal (stop.h) stops before the
 * next one. True: every bucket has got its report. ERR_AWAY, ERR_CONFIG before the first report. */
must_check bool cell_move(const struct cell_mover *mover, struct cell_view *view, struct err *err);
/* Deletes the rows of buckets that have left this cell, in pieces. Precondition: the caller knows that each of them is
 * in another cell. */
must_check bool cell_empty(struct cell_db *cell, int bucket, int64_t *rows, struct err *err);

#endif
