/* What the overview, the targets and the statistics read and show: open and failed events, flow, workers, targets. */
#ifndef ISSUING_CONSOLE_STATUS_H
#define ISSUING_CONSOLE_STATUS_H

#include "common/lib/pg/pg_sync.h"
#include "ctl/cluster.h"
#include "ctl/console/page.h"
#include "ctl/verdict.h"

/* Results that are costly where there are many events are kept, and used again for a time that is twenty times what
 * they took, and 30 s at most, so that a page that refreshes itself costs the database little, and no figure is old. */
struct status_kept {
    struct pg_rows *rows; /* owned */
    int64_t until_ms;     /* monotonic */
    int64_t part_s, parts;
};

struct status {
    struct status_kept open, failed, rejected, pattern, pace, flow, hours, days;
};

void status_done(struct status *status);

/* A question that took too long, or met a lock that is held: the rest of a page can be shown without it. */
bool status_is_slow(const struct err *err);

/* From these rows of operator_open and operator_failed. */
must_check bool status_read_facts(struct console *console, const struct pg_rows *open, const struct pg_rows *failed,
                                  struct verdict_facts *ret_facts, struct err *err);
/* *ret_rows are those of operator_open, operator_failed, operator_status_rejected, console_flow; they stay valid until
 * the next read. */
must_check bool status_read_open(struct console *console, const struct pg_rows **ret_rows, struct err *err);
must_check bool status_read_failed(struct console *console, const struct pg_rows **ret_rows, struct err *err);
must_check bool status_read_rejected(struct console *console, const struct pg_rows **ret_rows, struct err *err);
must_check bool status_read_flow(struct console *console, int64_t part_s, int64_t parts,
                                 const struct pg_rows **ret_rows, struct err *err);
/* *ret_rows are those of console_ends, whose columns these are: the last 24 hours, or the last 30 days. */
enum ends_column { ENDS_FROM_AT, ENDS_COMPLETED, ENDS_REJECTED, ENDS_FAILED, ENDS_P50, ENDS_P99 };
must_check bool status_read_ends(struct console *console, bool by_day, const struct pg_rows **ret_rows,
                                 struct err *err);
/* Tables. Without open events in the cluster its backlogs are "?". has_actions: with the forms that pause, resume and
 * probe. */
void status_write_targets(struct page *page, const struct cluster *cluster, bool has_actions);
void status_write_workers(struct buf *out, const struct cluster *cluster);

#endif
