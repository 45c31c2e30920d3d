/* A NOTIFY off the write path: at once when there was none for a while, then at most one every NUDGE_GAP_MS; any number
 * asked for meanwhile become one more, for sure. Never two at a time. A hint that may be lost. */
#ifndef ISSUING_NUDGE_H
#define ISSUING_NUDGE_H

#include "common/base.h"
#include "common/err.h"
#include "common/pg_pool.h"

#define NUDGE_GAP_MS 5

struct nudge {
    struct pg_pool *pool;
    struct pg_ask ask;
    uv_timer_t *gap; /* owned; frees itself when closed */
    int64_t next_ms; /* not before */
    bool is_busy;    /* one is on its way, or waits for the gap to end */
    bool again;
};

must_check bool nudge_open(struct nudge *nudge, uv_loop_t *loop, struct pg_pool *pool,
                           const struct sql_statement *statement, struct err *err);
/* Never fails loudly: a lost hint costs a poll interval. */
void nudge_send(struct nudge *nudge);
/* Wants one that is not busy. One that was never opened (all zeros) is fine. */
void nudge_close(struct nudge *nudge);

#endif
