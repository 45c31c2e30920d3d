/* See worker_metrics.h. */
#include "worker/worker_metrics.h"

static const struct metric_family families[] = {
#define X(id, name, type, help, label1, label2, buckets) {name, type, help, {label1, label2}, buckets},
    WORKER_METRICS(X)
#undef X
};

struct metrics *worker_metrics_new(void)
{
    return metrics_new(families, ARRAY_SIZE(families));
}

void worker_metrics_count(struct metrics *metrics, enum worker_metric metric, const char *label1, const char *label2)
{
    metric_add(metrics_series(metrics, metric, label1, label2), 1);
}
