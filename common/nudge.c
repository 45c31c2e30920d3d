/* See nudge.h. NOTIFY takes a lock over the whole database at commit, so it never rides in a transaction that somebody
 * waits for. */
#include "common/nudge.h"

#define NUDGE_TIMEOUT_MS 1000

static void on_answer(struct pg_ask *ask, const struct pg_answer *answer)
{
    (void)answer; /* ignoring: polling is the truth */
    struct nudge *nudge = container_of(ask, struct nudge, ask);
    nudge->is_busy = false;
    if (nudge->again)
        nudge_send(nudge);
}

void nudge_init(struct nudge *nudge, struct pg_pool *pool, const struct sql_statement *statement)
{
    *nudge = (struct nudge){.pool = pool};
    nudge->ask.statement = statement;
    nudge->ask.timeout_ms = NUDGE_TIMEOUT_MS;
    nudge->ask.on_answer = on_answer;
}

void nudge_send(struct nudge *nudge)
{
    nudge->again = nudge->is_busy;
    if (nudge->is_busy)
        return;
    nudge->is_busy = true;
    pg_pool_ask(nudge->pool, &nudge->ask);
}
