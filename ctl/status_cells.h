/* `status --cell all`: a line for each cell, and the sums. */
#ifndef ISSUING_CTL_STATUS_CELLS_H
#define ISSUING_CTL_STATUS_CELLS_H

#include "ctl/ctl.h"

/* The exit code: the worst one of the cells. */
int status_cells(struct ctl *ctl, bool exact);

#endif
