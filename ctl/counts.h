/* How many events are where, for `status`: counted up to COUNTS_MAX, and estimated above. */
#ifndef ISSUING_CTL_COUNTS_H
#define ISSUING_CTL_COUNTS_H

#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "ctl/backlog.h"
#include "ctl/ctl.h"
#include "ctl/print.h"

#define COUNTS_STATUSES 5
#define COUNTS_MAX BACKLOG_MAX

/* All zeros is an empty one. */
struct counts {
    int64_t events[COUNTS_STATUSES];
    bool estimated[COUNTS_STATUSES];
    int64_t oldest_pending_s;      /* of those that were counted */
    struct pg_rows *open, *failed; /* owned: operator_open, operator_failed */
};

/* exact: counts all events. */
must_check bool counts_read(struct ctl *ctl, bool exact, struct counts *counts, struct err *err);
void counts_done(struct counts *counts);
/* For programs; the caller may add members and prints it. NULL: out of memory. */
struct json *counts_json(const struct counts *counts);
/* FAILED events of this type, among those that were counted. */
int64_t counts_failed_of(const struct counts *counts, const char *type);
/* "1,204", "about 1,200,000", "below 1,000". */
void counts_add(struct table *table, int64_t events, bool is_estimated);

#endif
