/* A NOTIFY that makes other programs look at a table now. It is a hint that may be lost: every listener also polls.
 *
 * The first one is sent at once. After it, at most one is sent every WAKEUP_GAP_MS, and at most one is on its way; any
 * number of calls in the meantime become one more NOTIFY. */
#ifndef ISSUING_WAKEUP_H
#define ISSUING_WAKEUP_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_pool.h"

#define WAKEUP_GAP_MS 5

struct wakeup_gap;

struct wakeup {
    struct pg_pool *pool;
    struct pg_query query;
    struct wakeup_gap *gap; /* its timer; owned, and freed by its close callback */
    int64_t next_ms;        /* monotonic: the earliest time of the next NOTIFY */
    bool is_pending;        /* a NOTIFY is on its way, or waits for the end of the gap */
    bool is_wanted_again;   /* another call came after the NOTIFY was sent */
};

/* The statement sends the NOTIFY; it lives as long as the wakeup. */
must_check bool wakeup_open(struct wakeup *wakeup, uv_loop_t *loop, struct pg_pool *pool,
                            const struct sql_statement *statement, struct err *err);
/* Reports no failure: a lost wakeup costs its listeners one poll interval. */
void wakeup_send(struct wakeup *wakeup);
bool wakeup_is_idle(const struct wakeup *wakeup);
/* Precondition: wakeup_is_idle(). A wakeup that was never opened (all zeros) may be closed, too. The struct may be
 * freed at once. */
void wakeup_close(struct wakeup *wakeup);

#endif
