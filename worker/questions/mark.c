/* See mark.h. */
#include "worker/questions/mark.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "statements.h"
#include "worker/base/worker_metrics.h"
#include "worker/flow/flow_run.h"
#include "worker/flow/spans.h"

#define BACKOFF_BASE_MS 250
#define BACKOFF_CAP_MS 30000
#define PROBE_REST_MS 1000
#define ATTEMPTS_COUNTED 16 /* for the backoff */

void mark_init(struct mark *mark, struct mark_env *env)
{
    mark->env = env;
    mark->question.env = env->flow.worker;
    flow_init(&mark->flow, &env->flow);
}

void mark_done(struct mark *mark)
{
    flow_done(&mark->flow);
}

static void release(struct mark *mark)
{
    spans_end_mark(&mark->flow);
    flow_forget(&mark->flow);
    mark->flow.is_busy = false;
    mark->env->on_released(mark->env->context);
}

/* ---- statements ---- */

static void on_put_back(struct pg_query *query, const struct pg_query_result *result)
{
    (void)result; /* without it the lease runs out, which is the same but later */
    release(container_of(query, struct mark, question.query));
}

/* This try has no result. wait_ms: at least so long; -1 = the usual delay. */
static void put_back(struct mark *mark, const char *why, int64_t wait_ms)
{
    int tries = mark->facts.tries < ATTEMPTS_COUNTED ? mark->facts.tries : ATTEMPTS_COUNTED;
    int64_t delay_ms = backoff_ceiling_ms(tries, BACKOFF_BASE_MS, BACKOFF_CAP_MS);
    if (wait_ms > delay_ms)
        delay_ms = wait_ms;
    snprintf(mark->why, sizeof(mark->why), "%s", why);
    mark->question.query.params[2] =
        pg_param_int8(mark->env->flow.is_draining ? 0 : delay_ms); /* 0: for another worker */
    mark->question.query.params[3] = pg_param_string(mark->why);
    log_debug("a look-up was postponed", FLOW_IN_LOG(&mark->flow), LOG_TEXT("why", mark->why));
    question_submit(&mark->question, &sql_reconcile_put_back, on_put_back);
}

/* An operator should look into it, even if no operator left the mark. */
static bool is_trouble(const char *result)
{
    return strcmp(result, "duplicate") == 0 || strcmp(result, "missing") == 0 ||
           strcmp(result, "orphan_cancelled") == 0 || strcmp(result, "orphan_left") == 0;
}

static void on_ended(struct pg_query *query, const struct pg_query_result *result)
{
    struct mark *mark = container_of(query, struct mark, question.query);
    const char *came_to = result->kind == PG_DONE ? pg_text(result->rows, 0, 0) : NULL;
    if (came_to && strcmp(came_to, "done") == 0) {
        worker_metrics_count(mark->env->flow.worker->series->metrics, WORKER_METRIC_CHECKS, mark->result, NULL);
        log_at(is_trouble(mark->result) ? LOG_WARNING : LOG_INFO, "reconciled", FLOW_IN_LOG(&mark->flow),
               LOG_TEXT("result", mark->result), LOG_TEXT("detail", mark->detail ? mark->detail : ""));
        mark->env->on_result(mark->env->result_context);
    } else {
        log_warning("the result of a look-up could not be stored", FLOW_IN_LOG(&mark->flow),
                    LOG_TEXT("result", mark->result), LOG_TEXT("why", came_to ? came_to : result->message));
    }
    release(mark);
}

static void write_result(struct mark *mark, const char *result, const char *detail)
{
    bool is_executed = strcmp(result, "executed") == 0;
    mark->result = result;
    mark->detail = detail;
    mark->question.query.params[2] = pg_param_int8(mark->seen_us);
    mark->question.query.params[3] = pg_param_string(result);
    mark->question.query.params[4] = pg_param_string(is_executed ? mark->flow.result.bytes : detail);
    question_submit(&mark->question, &sql_reconcile_end, on_ended);
}

static void on_orphan_noted(struct pg_query *query, const struct pg_query_result *result)
{
    struct mark *mark = container_of(query, struct mark, question.query);
    bool is_noted = result->kind == PG_DONE && pg_bool(result->rows, 0, 0);
    if (!is_noted)
        log_warning("a live card of a rejected request could not be noted", FLOW_IN_LOG(&mark->flow),
                    LOG_TEXT("why", result->message));
    else if (mark->facts.status == OUTBOX_REJECTED)
        log_warning("a rejected request has a live card at the issuer: it is cancelled", FLOW_IN_LOG(&mark->flow));
    mark->flow.write.on_written(&mark->flow.write, is_noted ? WRITE_DONE : WRITE_FENCED, result->message);
}

static void submit_write(void *context, struct write_op *op)
{
    struct mark *mark = container_of(op, struct mark, flow.write);
    (void)context;
    assert(op->kind == WRITE_MARK);
    question_submit(&mark->question, &sql_reconcile_note_orphan, on_orphan_noted);
}

/* ---- what the flow asks ---- */

static const char *leave(struct flow *flow)
{
    struct mark *mark = container_of(flow, struct mark, flow);
    struct mark_env *env = mark->env;
    int64_t now_ms = clock_mono_ms();
    flow->is_probe = flow_peer(flow)->target.breaker.state != BREAKER_CLOSED;
    if (!flow->is_probe)
        return NULL;
    /* Where no event is left that could close the breaker, a mark ends what it has begun: a look-up may have pages. */
    if (!mark->has_probed && now_ms < env->probe_not_before_ms)
        return outbox_cause_name(OUTBOX_CAUSE_BREAKER_OPEN);
    mark->has_probed = true;
    env->probe_not_before_ms = now_ms + PROBE_REST_MS + 2 * env->flow.worker->config->breaker.probe_interval_ms;
    return NULL;
}

static struct flow_verdict decide(struct flow *flow, const struct outcome *outcome, const struct shown *shown)
{
    struct mark *mark = container_of(flow, struct mark, flow);
    mark->facts.is_frozen = flow->card.state == ISSUER_CARD_FROZEN || flow->card.state == ISSUER_CARD_INACTIVE;
    return decide_mark(&mark->facts, flow->attempt.step, flow->attempt.asks_for, outcome, shown);
}

static void end(struct flow *flow, const struct flow_verdict *verdict)
{
    struct mark *mark = container_of(flow, struct mark, flow);
    if (verdict->kind == FLOW_COMPLETE)
        write_result(mark, verdict->code, verdict->detail);
    else if (verdict->kind == FLOW_DROP)
        release(mark); /* another worker has it */
    else
        put_back(mark, verdict->code, verdict->wait_ms);
}

void mark_env_init(struct mark_env *env)
{
    static const struct flow_mark mark = {.leave = leave, .decide = decide, .end = end};
    env->flow.mark = &mark;
    env->flow.submit_write = submit_write;
}

void mark_start(struct mark *mark, const struct uuid *token, const struct pg_rows *rows, int row)
{
    struct flow *flow = &mark->flow;
    flow->token = mark->question.token = *token;
    mark->has_probed = false;
    mark_row_read(rows, row, mark);
    flow_run_mark(flow, decide_mark_first(&mark->facts));
}
