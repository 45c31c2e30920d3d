/* A NOTIFY off the write path: at most one on its way, any number asked for meanwhile become one more. A hint that may
 * be lost. */
#ifndef ISSUING_NUDGE_H
#define ISSUING_NUDGE_H

#include "common/base.h"
#include "common/pg_pool.h"

struct nudge {
    struct pg_pool *pool;
    struct pg_ask ask;
    bool is_busy;
    bool again;
};

void nudge_init(struct nudge *nudge, struct pg_pool *pool, const struct sql_statement *statement);
/* Never fails loudly: a lost hint costs a poll interval. The pool must answer (close) before the memory goes. */
void nudge_send(struct nudge *nudge);

#endif
