/* A NOTIFY off the write path: at once when there was none for a while, then at most one every NUDGE_GAP_MS; any number
 * asked for meanwhile become one more, for sure. Never two at a time, but for one that goes right behind a statement. A
 * hint that may be lost. */
#ifndef ISSUING_NUDGE_H
#define ISSUING_NUDGE_H

#include "common/base.h"
#include "common/err.h"
#include "common/pg_pool.h"

#define NUDGE_GAP_MS 5

struct nudge {
    struct pg_pool *pool;
    struct pg_ask ask;
    struct pg_ask behind;          /* the same, right behind another ask */
    const struct pg_ask *followed; /* that other one, until `behind` is answered; NULL = none */
    uv_timer_t *gap;               /* owned; frees itself when closed */
    int64_t next_ms;               /* not before */
    bool is_busy;                  /* one of its own is on its way, or waits for the gap to end */
    bool again;
    bool in_vain; /* the last one followed has had nothing to tell so far */
};

must_check bool nudge_open(struct nudge *nudge, uv_loop_t *loop, struct pg_pool *pool,
                           const struct sql_statement *statement, struct err *err);
/* Never fails loudly: a lost hint costs a poll interval. */
void nudge_send(struct nudge *nudge);
/* Asks; where a nudge may go now, it goes right behind the ask (pg_pool_ask_pair), in the hope that there will be something
 * to tell: so in a quiet system a hint is out as soon as what it tells of is committed. */
void nudge_ask(struct nudge *nudge, struct pg_ask *ask);
/* What was asked so is done, and there is something to tell: as nudge_send(), unless one is right behind the ask. */
void nudge_send_for(struct nudge *nudge, const struct pg_ask *ask);
bool nudge_is_idle(const struct nudge *nudge);
/* Wants an idle one. One that was never opened (all zeros) is fine. */
void nudge_close(struct nudge *nudge);

#endif
