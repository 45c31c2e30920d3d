/* A statement that gauges repeat: one is in flight, and the pause before the next one follows from the cost of the
 * last. */
#ifndef ISSUING_GAUGE_QUESTION_H
#define ISSUING_GAUGE_QUESTION_H

#include <uv.h>

#include "common/core/daemon_metrics.h"
#include "common/lib/base/metrics.h"
#include "common/lib/pg/pg_pool.h"

/* Borrowed until the gauges are closed. */
struct gauges_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    int place, places;       /* which of how many; 0 = as 1 */
    struct metrics *metrics; /* begins with DAEMON_METRICS */
    /* issuing_breaker_state is the worst one over all workers. Not for a worker, which shows its own. */
    bool has_breaker_states;
    /* The pool has no other connection: the work waits behind each statement, so it is given up soon. */
    bool has_one_connection;
};

struct gauge_question {
    struct gauges_options options;
    uv_timer_t timer;
    struct pg_query query;         /* its parameters are set by the owner */
    int64_t begun_ms, answered_ms; /* answered_ms: when it was last answered well; the owner sets both */
    int64_t sent_ms;               /* the statement in flight */
    int64_t timeout_ms;            /* of a statement */
    bool is_stopped;
};

/* Asks for the first time a moment later: on_timer is called from the loop. */
void gauge_question_open(struct gauge_question *question, const struct gauges_options *options,
                         void (*on_timer)(uv_timer_t *timer));
/* Shows a figure; label NULL = the gauge has none. */
void gauge_question_show(const struct gauge_question *question, enum daemon_metric metric, const char *label,
                         double value);
/* Sends a statement, unless it was stopped. */
void gauge_question_ask(struct gauge_question *question, const struct sql_statement *statement,
                        void (*on_result)(struct pg_query *query, const struct pg_query_result *result));
/* on_timer is called after this time, unless it was stopped. */
void gauge_question_ask_after(struct gauge_question *question, int64_t wait_ms, void (*on_timer)(uv_timer_t *timer));
/* When the next one is due, by what this one has cost since begun_ms: at least 5 s, at most a minute. */
int64_t gauge_question_pause_ms(const struct gauge_question *question);
/* A statement in flight ends with the pool. The timer is closed by the owner. */
void gauge_question_stop(struct gauge_question *question);

#endif
