/* See api_metrics.h. */
#include "api/api_metrics.h"

#include <stdio.h>

#include "common/base/clock.h"

static const struct metric_family families[] = {
#define X(id, name, type, help, label1, label2, buckets) {name, type, help, {label1, label2}, buckets},
    API_METRICS(X)
#undef X
};

struct metrics *api_metrics_new(void)
{
    return metrics_new(families, ARRAY_SIZE(families));
}

void api_metrics_count_answer(struct metrics *metrics, struct route_metrics *routes, enum route route, int status,
                              int64_t started_us)
{
    struct route_metrics *series = &routes[route];
    if (!series->seconds)
        series->seconds = metrics_series(metrics, API_METRIC_HTTP_SECONDS, route_name(route), NULL);
    metric_observe(series->seconds, (double)(clock_mono_us() - started_us) / 1e6);
    size_t i = 0;
    while (i < ROUTE_STATUSES_MAX - 1 && series->statuses[i].status != 0 && series->statuses[i].status != status)
        i++;
    if (series->statuses[i].status != status) {
        char code[8];
        snprintf(code, sizeof(code), "%d", status);
        series->statuses[i].status = status;
        series->statuses[i].requests = metrics_series(metrics, API_METRIC_HTTP_REQUESTS, route_name(route), code);
    }
    metric_add(series->statuses[i].requests, 1);
}
