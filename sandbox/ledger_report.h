/* The ledger as JSON, for tests and people. */
#ifndef ISSUING_SANDBOX_LEDGER_REPORT_H
#define ISSUING_SANDBOX_LEDGER_REPORT_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "sandbox/ledger.h"

struct ledger_range {
    size_t from, limit;    /* rows of cards, and rows of links */
    const char *user_id;   /* NULL = any */
    const char *reference; /* NULL = any; a link's reference is its request */
};

/* All of these: false = out->failed. */
bool ledger_report(const struct ledger *ledger, const struct ledger_range *range, struct buf *out); /* GET /ledger */
bool ledger_report_summary(const struct ledger *ledger, struct buf *out); /* GET /ledger/summary */
bool ledger_report_numbers(const struct ledger *ledger, const struct ledger_range *range,
                           struct buf *out); /* GET /numbers */

#endif
