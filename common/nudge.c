/* See nudge.h. NOTIFY takes a lock over the whole database at commit, so it never rides in a transaction that somebody
 * waits for. And it is a transaction itself, so under load the gap keeps its cost below that of what it tells about;
 * whoever listens then works already.
 *
 * One that goes behind an ask does not hold up the others, however long that ask takes; it only begins a gap. After one
 * in vain none does until there was something to tell: a client that is refused time and again wakes nobody. */
#include "common/nudge.h"

#include <assert.h>
#include <stdlib.h>

#include "common/clock.h"

#define NUDGE_TIMEOUT_MS 1000

static void ask_alone(struct nudge *nudge)
{
    nudge->again = false;
    nudge->next_ms = clock_mono_ms() + NUDGE_GAP_MS;
    pg_pool_ask(nudge->pool, &nudge->ask);
}

static void on_gap_over(uv_timer_t *timer)
{
    ask_alone(timer->data);
}

void nudge_send(struct nudge *nudge)
{
    if (nudge->is_busy) {
        nudge->again = !uv_is_active((uv_handle_t *)nudge->gap);
        return;
    }
    nudge->is_busy = true;
    int64_t left_ms = nudge->next_ms - clock_mono_ms();
    if (left_ms > 0)
        uv_timer_start(nudge->gap, on_gap_over, (uint64_t)left_ms, 0);
    else
        ask_alone(nudge);
}

static void on_answer(struct pg_ask *asked, const struct pg_answer *answer)
{
    (void)answer; /* ignoring: polling is the truth */
    struct nudge *nudge = container_of(asked, struct nudge, ask);
    nudge->is_busy = false;
    if (nudge->again)
        nudge_send(nudge);
}

void nudge_ask(struct nudge *nudge, struct pg_ask *ask)
{
    int64_t now_ms = clock_mono_ms();
    if (nudge->followed == ask) /* it runs once more, and that one was for the first run */
        nudge->followed = &nudge->behind;
    if (nudge->followed || nudge->is_busy || nudge->in_vain || now_ms < nudge->next_ms) {
        pg_pool_ask(nudge->pool, ask);
        return;
    }
    nudge->followed = ask;
    nudge->in_vain = true;
    nudge->next_ms = now_ms + NUDGE_GAP_MS;
    pg_pool_ask_pair(nudge->pool, ask, &nudge->behind);
}

void nudge_send_for(struct nudge *nudge, const struct pg_ask *ask)
{
    nudge->in_vain = false;
    if (nudge->followed != ask)
        nudge_send(nudge);
}

static void on_answer_behind(struct pg_ask *asked, const struct pg_answer *answer)
{
    (void)answer; /* ignoring, as above */
    container_of(asked, struct nudge, behind)->followed = NULL;
}

bool nudge_open(struct nudge *nudge, uv_loop_t *loop, struct pg_pool *pool, const struct sql_statement *statement,
                struct err *err)
{
    *nudge = (struct nudge){.pool = pool, .gap = malloc(sizeof *nudge->gap)};
    if (!nudge->gap)
        return err_set(err, ERR_MEMORY, "no memory for a timer");
    uv_timer_init(loop, nudge->gap);
    nudge->gap->data = nudge;
    nudge->ask.statement = nudge->behind.statement = statement;
    nudge->ask.timeout_ms = nudge->behind.timeout_ms = NUDGE_TIMEOUT_MS;
    nudge->ask.on_answer = on_answer;
    nudge->behind.on_answer = on_answer_behind;
    return true;
}

bool nudge_is_idle(const struct nudge *nudge)
{
    return !nudge->is_busy && !nudge->followed;
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

void nudge_close(struct nudge *nudge)
{
    assert(nudge_is_idle(nudge));
    if (nudge->gap)
        uv_close((uv_handle_t *)nudge->gap, on_timer_closed);
    nudge->gap = NULL;
}
