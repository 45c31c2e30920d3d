/* One mark that this worker holds (reconcile.h): a flow whose steps look its event up, and close a card that must not
 * exist. flow_run.h makes its calls, decide_mark.h decides, and here is what only a mark does: its statements, and how
 * it treats a peer that is away.
 *
 * Invariants: no card is cancelled at the issuer before the mark notes it (STEP_MARK); no end is written without the
 * token; a call that got no answer leads to another try, never to a result. A mark's calls only ask, and close what was
 * noted, so one may outlast the mark's lease. */
#ifndef ISSUING_MARK_H
#define ISSUING_MARK_H

#include "common/core/decide/decide_mark.h"
#include "worker/flow/flow.h"
#include "worker/questions/question.h"

/* What all marks of a worker share. Owned by reconcile.c; outlives every mark. */
struct mark_env {
    struct flow_env flow;        /* without submit_write and mark, which mark_env_init() sets */
    int64_t probe_not_before_ms; /* until then the probes of an open breaker are for attempts only */
    /* A mark has ended with a result: an event may have become final, or PENDING. */
    void (*on_result)(void *context);
    void *result_context;
    /* The mark is not held any more. From the loop. */
    void (*on_released)(void *context);
    void *context;
};

struct mark {
    struct mark_env *env;
    struct flow flow; /* attempt.number counts the tries of the mark; save.card_id is that of the stored card */
    struct mark_facts facts;
    int64_t seen_us;          /* the state of the event that was judged */
    bool has_probed;          /* a call went as the breaker's probe, and was answered well */
    struct question question; /* its row */
    const char *result, *detail;
    char why[OUTBOX_REASON_CODE_SIZE];
};

void mark_env_init(struct mark_env *env);
/* Sets up a slot for a mark once / frees what it owns. */
void mark_init(struct mark *mark, struct mark_env *env);
void mark_done(struct mark *mark);
/* mark_row.c: what a row of reconcile_take tells of a mark and its event. The token stays. */
void mark_row_read(const struct pg_rows *rows, int row, struct mark *mark);
/* Starts work on a mark that was taken (a row of reconcile_take) under this token. Ends exactly once, from
 * the loop, with env->on_released. */
void mark_start(struct mark *mark, const struct uuid *token, const struct pg_rows *rows, int row);

#endif
