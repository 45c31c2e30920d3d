/* See server_gauges.h. */
#include "common/core/server_gauges.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "common/core/daemon_metrics.h"
#include "common/lib/base/clock.h"
#include "statements.h"

/* The figures of a place, and what is shown of several. */
enum figure { ALIVE, LAG, PROOF_AGE, PROOF_BROKEN, LIST_AGE, LIST_UNKNOWN, DISAGREE, SNAPSHOT, ROW, WAL };
enum fold { LEAST, MOST, SUM };
static const struct {
    enum daemon_metric metric;
    enum fold fold;
} folds[SERVER_FIGURES] = {
    [ALIVE] = {DAEMON_METRIC_WORKERS_ALIVE, LEAST},     [LAG] = {DAEMON_METRIC_STATISTICS_LAG, MOST},
    [PROOF_AGE] = {DAEMON_METRIC_PROOF_AGE, MOST},      [PROOF_BROKEN] = {DAEMON_METRIC_PROOF_BROKEN, SUM},
    [LIST_AGE] = {DAEMON_METRIC_LIST_AGE, MOST},        [LIST_UNKNOWN] = {DAEMON_METRIC_LIST_UNKNOWN, SUM},
    [DISAGREE] = {DAEMON_METRIC_WORKERS_DISAGREE, SUM}, [SNAPSHOT] = {DAEMON_METRIC_OLDEST_SNAPSHOT, MOST},
    [ROW] = {DAEMON_METRIC_OLDEST_ROW, MOST},           [WAL] = {DAEMON_METRIC_SLOT_WAL, MOST},
};

static_assert(WAL + 1 == SERVER_FIGURES, "a place for each figure");

static void show_figures_of(struct server_gauges *gauges, enum figure first, enum figure last)
{
    for (int i = (int)first; i <= (int)last; i++) {
        double shown = NAN;
        for (const struct server_gauges *each = gauges->first; each; each = each->next) {
            double value = each->figures[i];
            if (isnan(value))
                continue;
            bool is_further = isnan(shown) || (folds[i].fold == LEAST ? value < shown : value > shown);
            shown = folds[i].fold == SUM ? (isnan(shown) ? 0 : shown) + value : is_further ? value : shown;
        }
        if (!isnan(shown))
            gauge_question_show(&gauges->question, folds[i].metric, NULL, shown);
    }
}

/* The worst of all places. A target that no living worker calls has no state: its gauge is NaN, on which no alert
 * fires. */
static void show_target(struct server_gauges *gauges, const struct server_target *target)
{
    const struct gauges_options *options = &gauges->question.options;
    struct metrics *metrics = options->metrics;
    struct metric_series *paused = metrics_series(metrics, DAEMON_METRIC_TARGET_PAUSED, target->name, NULL);
    if (target->is_paused)
        metric_set(paused, 1);
    if (!options->has_breaker_states || isnan(target->state))
        return;
    struct metric_series *state = metrics_series(metrics, DAEMON_METRIC_BREAKER_STATE, target->name, NULL);
    if (isnan(metric_value(state)) || target->state > metric_value(state))
        metric_set(state, target->state);
}

static void show_targets(struct server_gauges *gauges)
{
    const struct gauges_options *options = &gauges->question.options;
    metrics_set_all(options->metrics, DAEMON_METRIC_TARGET_PAUSED, 0);
    if (options->has_breaker_states)
        metrics_set_all(options->metrics, DAEMON_METRIC_BREAKER_STATE, NAN);
    for (const struct server_gauges *each = gauges->first; each; each = each->next)
        for (int i = 0; i < each->target_count; i++)
            show_target(gauges, &each->targets[i]);
}

static void read_workers(struct server_gauges *gauges, const struct pg_rows *rows)
{
    double *figures = gauges->figures;
    gauges->target_count = 0;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        if (pg_is_null(rows, row, 0)) {
            figures[ALIVE] = (double)pg_int8(rows, row, 1);
            figures[LAG] = (double)pg_int8(rows, row, 3) / 1e3;
            figures[PROOF_AGE] = (double)pg_int8(rows, row, 4) / 1e3;
            figures[PROOF_BROKEN] = (double)pg_int8(rows, row, 5);
            figures[LIST_AGE] = pg_is_null(rows, row, 6) ? 0 : (double)pg_int8(rows, row, 6) / 1e3;
            figures[LIST_UNKNOWN] = (double)pg_int8(rows, row, 7);
            figures[DISAGREE] = (double)pg_int8(rows, row, 8);
        } else if (gauges->target_count < SERVER_TARGETS_MAX) {
            struct server_target *target = &gauges->targets[gauges->target_count++];
            snprintf(target->name, sizeof(target->name), "%s", pg_text(rows, row, 0));
            target->is_paused = pg_bool(rows, row, 2);
            target->state = pg_is_null(rows, row, 1) ? NAN : (double)pg_int8(rows, row, 1);
        }
    }
}

/* A place that was not read yet has no series, on which no alert fires. */
static void show_workers_of_place(struct server_gauges *gauges)
{
    char number[12];
    snprintf(number, sizeof(number), "%d", gauges->question.options.place);
    if (gauges->question.options.places > 1)
        gauge_question_show(&gauges->question, DAEMON_METRIC_PLACE_WORKERS, number, gauges->figures[ALIVE]);
}

static void on_timer(uv_timer_t *timer);

static void on_server(struct pg_query *query, const struct pg_query_result *result)
{
    struct server_gauges *gauges = container_of(query, struct server_gauges, question.query);
    if (result->kind == PG_DONE) {
        for (int i = SNAPSHOT; i <= WAL; i++)
            gauges->figures[i] = (double)pg_int8(result->rows, 0, i - SNAPSHOT);
        show_figures_of(gauges, SNAPSHOT, WAL);
    }
    gauge_question_ask_after(&gauges->question, gauge_question_pause_ms(&gauges->question), on_timer);
}

static void on_workers(struct pg_query *query, const struct pg_query_result *result)
{
    struct server_gauges *gauges = container_of(query, struct server_gauges, question.query);
    struct gauge_question *question = &gauges->question;
    if (result->kind != PG_DONE) {
        gauge_question_ask_after(question, gauge_question_pause_ms(question), on_timer);
        return;
    }
    read_workers(gauges, result->rows);
    show_figures_of(gauges, ALIVE, DISAGREE);
    show_workers_of_place(gauges);
    show_targets(gauges);
    question->answered_ms = clock_mono_ms();
    gauge_question_ask(question, &sql_server_gauges, on_server);
}

static void on_timer(uv_timer_t *timer)
{
    struct server_gauges *gauges = container_of(timer, struct server_gauges, question.timer);
    gauges->question.begun_ms = clock_mono_ms();
    gauge_question_ask(&gauges->question, &sql_worker_gauges, on_workers);
}

void server_gauges_open(struct server_gauges *gauges, const struct gauges_options *options, struct server_gauges *first)
{
    for (int i = 0; i < SERVER_FIGURES; i++)
        gauges->figures[i] = NAN;
    gauges->first = first ? first : gauges;
    struct server_gauges **end = &gauges->first->next;
    while (first && *end)
        end = &(*end)->next;
    if (first)
        *end = gauges;
    gauge_question_open(&gauges->question, options, on_timer);
    gauge_question_show(&gauges->question, DAEMON_METRIC_TARGET_PAUSED, "issuer", 0);
    gauge_question_show(&gauges->question, DAEMON_METRIC_TARGET_PAUSED, "core", 0);
}
