/* See reconcile.h. */
#include "worker/questions/reconcile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "statements.h"
#include "worker/questions/lost_creates.h"
#include "worker/questions/mark.h"

#define MARKS_MAX 4   /* at a time */
#define TIDY_MS 60000 /* a take also removes what is over */
#define TYPES_BYTES_MAX 4096

struct reconcile {
    struct reconcile_options options;
    uv_timer_t timer;
    struct question question; /* that takes marks; it has no id */
    struct buf types;         /* its parameter: what this worker can look up now */
    bool is_taking;
    int taking_count; /* how many may be taken */
    bool is_due;      /* there may be marks: somebody said so, or the last take was filled */
    struct mark_env env;
    struct mark marks[MARKS_MAX];
    int busy_count;
    int64_t tidied_ms;
    struct lost_creates lost_creates;
    struct closing closing;
};

static struct mark *free_mark(struct reconcile *reconcile)
{
    for (int i = 0; i < MARKS_MAX; i++)
        if (!reconcile->marks[i].flow.is_busy)
            return &reconcile->marks[i];
    return NULL;
}

static void take(struct reconcile *reconcile);

static void on_taken(struct pg_query *query, const struct pg_query_result *result)
{
    struct reconcile *reconcile = container_of(query, struct reconcile, question.query);
    int count = result->kind == PG_DONE ? pg_rows_count(result->rows) : 0; /* leases that may be there run out */
    reconcile->is_taking = false;
    reconcile->is_due = count > 0 && count == reconcile->taking_count;
    for (int row = 0; row < count; row++) {
        struct mark *mark = free_mark(reconcile);
        assert(mark); /* the limit was the free ones, and only a take fills them */
        reconcile->busy_count++;
        mark_start(mark, &reconcile->question.token, result->rows, row);
    }
    take(reconcile);
}

static void take(struct reconcile *reconcile)
{
    const struct question_env *env = reconcile->options.env;
    struct pg_param *params = reconcile->question.query.params;
    if (!reconcile->is_due || reconcile->is_taking || reconcile->env.flow.is_draining ||
        reconcile->busy_count >= MARKS_MAX)
        return;
    /* Every mark begins with a look-up. */
    if (!question_targets(env, OUTBOX_EVENT_TYPE, true, &reconcile->types, &params[4]))
        return;
    reconcile->is_taking = true;
    reconcile->is_due = false;
    reconcile->taking_count = MARKS_MAX - reconcile->busy_count;
    params[3] = pg_param_int8(reconcile->taking_count);
    params[5] = pg_param_text(env->config->issuer.profile, strlen(env->config->issuer.profile));
    params[6] = pg_param_text(env->peers->issuer_address, strlen(env->peers->issuer_address));
    question_take(&reconcile->question, &sql_reconcile_take, env->config->worker.lease_ms, on_taken);
}

static void on_mark_released(void *context)
{
    struct reconcile *reconcile = context;
    reconcile->busy_count--;
    assert(reconcile->busy_count >= 0);
    take(reconcile);
}

static void on_mark_result(void *context)
{
    struct reconcile *reconcile = context;
    reconcile->options.on_result(reconcile->options.context);
}

static void on_timer(uv_timer_t *timer)
{
    struct reconcile *reconcile = container_of(timer, struct reconcile, timer);
    int64_t now_ms = clock_mono_ms();
    lost_creates_send(&reconcile->lost_creates);
    if (now_ms - reconcile->tidied_ms < TIDY_MS)
        return;
    reconcile->tidied_ms = now_ms;
    reconcile_wake(reconcile);
}

void reconcile_wake(struct reconcile *reconcile)
{
    if (!reconcile->is_taking) /* else it is looked at now */
        reconcile->is_due = true;
    take(reconcile);
}

void reconcile_report(struct reconcile *reconcile, const struct uuid *event_id)
{
    lost_creates_add(&reconcile->lost_creates, event_id);
}

/* ---- open, drain, close ---- */

bool reconcile_open(const struct reconcile_options *options, struct reconcile **ret_reconcile, struct err *err)
{
    struct reconcile *reconcile = calloc(1, sizeof(*reconcile));
    if (!reconcile)
        return err_set(err, ERR_MEMORY, "no memory for the marks");
    const struct question_env *env = options->env;
    reconcile->options = *options;
    reconcile->question.env = env;
    reconcile->env = (struct mark_env){
        .flow = {.config = env->config,
                 .parameters = env->parameters,
                 .peers = env->peers,
                 .routes = env->routes,
                 .db_clock = options->db_clock,
                 .exporter = options->exporter},
        .question = env,
        .metrics = options->metrics,
        .on_result = on_mark_result,
        .on_released = on_mark_released,
        .context = reconcile,
    };
    mark_env_init(&reconcile->env);
    lost_creates_init(&reconcile->lost_creates, env->pool);
    buf_init(&reconcile->types, TYPES_BYTES_MAX);
    for (int i = 0; i < MARKS_MAX; i++)
        mark_init(&reconcile->marks[i], &reconcile->env);
    uv_timer_init(env->loop, &reconcile->timer);
    uint64_t poll_ms = (uint64_t)env->config->worker.poll_interval_ms;
    uv_timer_start(&reconcile->timer, on_timer, poll_ms, poll_ms);
    *ret_reconcile = reconcile;
    return true;
}

void reconcile_stop(struct reconcile *reconcile)
{
    reconcile->env.flow.is_draining = true;
    uv_timer_stop(&reconcile->timer);
}

bool reconcile_is_idle(const struct reconcile *reconcile)
{
    return reconcile->busy_count == 0 && !reconcile->is_taking && lost_creates_is_idle(&reconcile->lost_creates);
}

static void release(void *module)
{
    struct reconcile *reconcile = module;
    for (int i = 0; i < MARKS_MAX; i++)
        mark_done(&reconcile->marks[i]);
    buf_done(&reconcile->types);
    free(reconcile);
}

void reconcile_close(struct reconcile *reconcile, void (*on_closed)(void *context), void *context)
{
    assert(reconcile_is_idle(reconcile));
    lost_creates_done(&reconcile->lost_creates);
    closing_start(&reconcile->closing, release, reconcile, on_closed, context);
    closing_handle(&reconcile->closing, &reconcile->timer);
    closing_end(&reconcile->closing);
}
