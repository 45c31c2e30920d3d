/* Which cell the database is, and where its buckets are, as metrics. A database that is no cell shows none of them. */
#ifndef ISSUING_CELL_METRICS_H
#define ISSUING_CELL_METRICS_H

#include "common/base/metrics.h"
#include "common/pg/pg_result.h"

/* rows: of sql_cell_gauges. */
void cell_metrics_show(struct metrics *metrics, const struct pg_rows *rows);

#endif
