/* The process of a worker: its real objects (worker/worker.h), which start, stand still, and are killed. Metrics are
 * left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/metrics.h"
#include "sim.h"
#include "worker/worker.h"

void sim_worker_start(struct sim_worker *worker)
{
    struct err err = {0};
    worker->life++;
    worker->is_up = true;
    worker->prepare_count = 0;
    worker->frozen_until_us = 0;
    worker->loop.data = worker;
    snprintf(worker->name, sizeof(worker->name), "worker-%d", worker->number);
    const struct worker_options options = {
        .loop = &worker->loop,
        .config = &sim.config,
        .name = worker->name,
        .pool = (struct pg_pool *)worker,
        .http = (struct http_client *)worker,
    };
    sim.current = worker;
    if (!worker_open(&options, &worker->worker, &err)) {
        fprintf(stderr, "simulate: %s\n", err.message);
        exit(2);
    }
    sim.current = NULL;
}

static void on_restart(void *subject, int64_t number)
{
    struct sim_worker *worker = subject;
    if (worker->is_up || worker->life != number || sim.is_over)
        return;
    sim_tell("%-12s starts", worker->name);
    sim_worker_start(worker);
}

void sim_worker_kill(struct sim_worker *worker, int64_t down_us)
{
    if (!worker->is_up)
        return;
    sim_tell("%-12s dies", worker->name);
    worker->is_up = false;
    worker->life++;
    sim.has_lost_report |= worker->owes_report;
    sim_after(down_us, NULL, on_restart, worker, worker->life);
}

void sim_worker_freeze(struct sim_worker *worker, int64_t for_us)
{
    sim_tell("%-12s stands still for %.1f s", worker->name, (double)for_us / 1e6);
    worker->frozen_until_us = sim.now_us + for_us;
}

/* ---- metrics ---- */

struct metric_series *__wrap_metrics_series(struct metrics *metrics, size_t family_index, const char *label1,
                                            const char *label2);
struct metric_series *__wrap_metrics_series(struct metrics *metrics, size_t family_index, const char *label1,
                                            const char *label2)
{
    static char nothing[64];
    (void)metrics;
    (void)family_index;
    (void)label1;
    (void)label2;
    return (struct metric_series *)(void *)nothing;
}

struct metric_series *__wrap_metrics_series_of(struct metrics *metrics, size_t family_index,
                                               const char *const values[METRIC_LABELS_MAX]);
struct metric_series *__wrap_metrics_series_of(struct metrics *metrics, size_t family_index,
                                               const char *const values[METRIC_LABELS_MAX])
{
    (void)values;
    return __wrap_metrics_series(metrics, family_index, NULL, NULL);
}

void __wrap_metric_add(struct metric_series *series, double by);
void __wrap_metric_add(struct metric_series *series, double by)
{
    (void)series;
    (void)by;
}

void __wrap_metric_set(struct metric_series *series, double value);
void __wrap_metric_set(struct metric_series *series, double value)
{
    (void)series;
    (void)value;
}

void __wrap_metric_observe(struct metric_series *series, double value);
void __wrap_metric_observe(struct metric_series *series, double value)
{
    (void)series;
    (void)value;
}
