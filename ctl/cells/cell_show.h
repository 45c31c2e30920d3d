/* What `issuing-ctl cell status`, `verify` and `move` print. */
#ifndef ISSUING_CTL_CELL_SHOW_H
#define ISSUING_CTL_CELL_SHOW_H

#include "ctl/cells/cell_db.h"
#include "ctl/cells/cell_move.h"
#include "ctl/cells/cell_router.h"
#include "ctl/cells/cell_view.h"

/* A row for each cell, the buckets on their way, the places of the router. Returns the exit code. */
int cell_show_status(const struct ctl *ctl, struct cells *cells, struct cell_router *router,
                     const struct cell_view *view);
/* Every check of `cell verify`, a line each. Returns the exit code: CTL_REFUSED when one fails. */
int cell_show_verify(const struct ctl *ctl, struct cells *cells, struct cell_router *router,
                     const struct cell_view *view);
/* The line of one bucket of `cell move`. */
void cell_show_report(const struct ctl *ctl, const struct cell_report *report);
/* Says on standard error which places of the router could not be told, or differ, and what to run. */
void cell_show_unrouted(const struct cell_router *router);

#endif
