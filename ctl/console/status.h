/* What the overview, the targets and the statistics read and show: open and failed events, flow, workers, targets. */
#ifndef ISSUING_CONSOLE_STATUS_H
#define ISSUING_CONSOLE_STATUS_H

#include "common/lib/pg/pg_sync.h"
#include "ctl/cluster.h"
#include "ctl/console/page.h"
#include "ctl/console/plot.h"
#include "ctl/verdict.h"

/* Results that are costly where there are many events are kept, and used again for a time that is twenty times what
 * they took, and 30 s at most, so that a page that refreshes itself costs the database little, and no figure is old. */
struct status_kept {
    struct pg_rows *rows; /* owned */
    int64_t until_ms;     /* monotonic */
};

/* operator_open, operator_failed, operator_status_rejected, operator_pattern, operator_pace; console_flow; console_ends
 * of the last 24 hours, of the last 30 days. */
enum status_what {
    STATUS_OPEN,
    STATUS_FAILED,
    STATUS_REJECTED,
    STATUS_PATTERN,
    STATUS_PACE,
    STATUS_FLOW,
    STATUS_HOURS,
    STATUS_DAYS,
    STATUS_COUNT
};

#define FLOW_PART_S 600
#define FLOW_PARTS 36

/* Columns of console_ends. */
enum ends_column { ENDS_FROM_AT, ENDS_COMPLETED, ENDS_REJECTED, ENDS_FAILED, ENDS_P50, ENDS_P99 };

/* Of these rows by the hour. */
extern const struct plot status_plot_ends;

struct status {
    struct status_kept kept[STATUS_COUNT];
};

void status_done(struct status *status);

/* A question that took too long, or met a lock that is held: the rest of a page can be shown without it. */
bool status_is_slow(const struct err *err);

/* From these rows of operator_open and operator_failed. */
must_check bool status_read_facts(struct console *console, const struct pg_rows *open, const struct pg_rows *failed,
                                  struct verdict_facts *ret_facts, struct err *err);
/* *ret_rows stay valid until the next read of the same. */
must_check bool status_read(struct console *console, enum status_what what, const struct pg_rows **ret_rows,
                            struct err *err);
/* Parts of a page. Without open events in the cluster its backlogs are "?". has_actions: with the forms that pause,
 * resume and probe. */
void status_write_targets(struct page *page, const struct cluster *cluster, bool has_actions);
void status_write_workers(struct buf *out, const struct cluster *cluster);

#endif
