/* The way of one bucket from cell to cell, step by step. Private to the mover (cell_move.h). */
#ifndef ISSUING_CTL_CELL_TRANSIT_H
#define ISSUING_CTL_CELL_TRANSIT_H

#include "ctl/cells/cell_move.h"

/* Where a bucket comes from and goes to; from -1: it has its report. */
struct cell_route {
    int from, to;
    bool is_listed; /* by this run: `move` */
    bool is_hasty;  /* the bucket before this one found a database away, and waited for it */
    struct uuid move;
};

/* Takes the bucket on its way, from wherever it is, and fills the report. */
void cell_transit(const struct cell_mover *mover, int bucket, const struct cell_route *route, enum cell_wish wish,
                  struct cell_report *report);
/* The first step for many buckets: `fresh` are listed under this move, and one scan finds the users of `all`. */
must_check bool cell_list_buckets(struct cell_db *source, const struct cell_buckets *fresh,
                                  const struct cell_buckets *all, const char *to, const struct uuid *move,
                                  struct err *err);

#endif
