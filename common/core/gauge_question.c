/* See gauge_question.h. */
#include "common/core/gauge_question.h"

#include "common/lib/base/clock.h"

#define FIRST_MS 200
#define INTERVAL_MS 5000
#define COST_FACTOR 50      /* a backlog is walked to be counted: no more than two per cent of the time */
#define PAUSE_MOST_MS 60000 /* and yet no figure is much older */
#define QUERY_TIMEOUT_MS 5000
#define ONLY_CONNECTION_TIMEOUT_MS 500

void gauge_question_open(struct gauge_question *question, const struct gauges_options *options,
                         void (*on_timer)(uv_timer_t *timer))
{
    question->options = *options;
    /* guard: on an only connection no request waits long behind a count */
    question->timeout_ms = options->has_one_connection ? ONLY_CONNECTION_TIMEOUT_MS : QUERY_TIMEOUT_MS;
    question->answered_ms = clock_mono_ms();
    (void)uv_timer_init(options->loop, &question->timer);
    gauge_question_ask_after(question, FIRST_MS, on_timer);
}

void gauge_question_show(const struct gauge_question *question, enum daemon_metric metric, const char *label,
                         double value)
{
    metric_set(metrics_series(question->options.metrics, metric, label, NULL), value);
}

void gauge_question_ask(struct gauge_question *question, const struct sql_statement *statement,
                        void (*on_result)(struct pg_query *query, const struct pg_query_result *result))
{
    if (question->is_stopped)
        return;
    question->sent_ms = clock_mono_ms();
    question->query.statement = statement;
    question->query.timeout_ms = question->timeout_ms;
    question->query.is_slow = true;
    question->query.yields = true; /* a connection is left to the work */
    question->query.on_result = on_result;
    pg_pool_submit(question->options.pool, &question->query);
}

void gauge_question_ask_after(struct gauge_question *question, int64_t wait_ms, void (*on_timer)(uv_timer_t *timer))
{
    if (!question->is_stopped)
        (void)uv_timer_start(&question->timer, on_timer, (uint64_t)wait_ms, 0);
}

int64_t gauge_question_pause_ms(const struct gauge_question *question)
{
    int64_t cost_ms = (clock_mono_ms() - question->begun_ms) * COST_FACTOR;
    return cost_ms < INTERVAL_MS ? INTERVAL_MS : cost_ms < PAUSE_MOST_MS ? cost_ms : PAUSE_MOST_MS;
}

void gauge_question_stop(struct gauge_question *question)
{
    question->is_stopped = true;
    (void)uv_timer_stop(&question->timer);
}
