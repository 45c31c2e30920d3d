/* See api_metrics.h. */
#include "api/api_metrics.h"

#include <assert.h>
#include <stdio.h>

#include "common/lib/base/clock.h"

static const struct metric_family families[] = {API_METRICS(METRIC_FAMILY)};

struct metrics *api_metrics_new(void)
{
    return metrics_new(families, ARRAY_SIZE(families));
}

/* The statuses that the api answers with; any other is counted as `other`. 499: the client left while it waited. */
static const int statuses[] = {202, 201, 200, 400, 401, 404, 405, 408, 409, 413, 414,
                               415, 417, 422, 429, 431, 499, 500, 501, 503, 505};
static_assert(ARRAY_SIZE(statuses) < API_STATUSES_MAX, "the last column is that of all others");

/* Which of them each route gives: these are shown from the start. */
static const int answers[ROUTE_COUNT][12] = {
    [ROUTE_CARD_REQUESTS_POST] = {202, 400, 401, 409, 415, 422, 429, 503},
    [ROUTE_CARD_REQUESTS_LIST] = {200, 400, 401, 503},
    [ROUTE_CARD_REQUESTS_GET] = {200, 400, 401, 404, 503},
    [ROUTE_CARDS_LIST] = {200, 400, 401, 503},
    [ROUTE_CARDS_NUMBER] = {200, 400, 401, 404, 429, 503},
    [ROUTE_CARDS_GET] = {200, 400, 401, 404, 503},
    [ROUTE_OPENAPI] = {200, 400},
    [ROUTE_PROBLEM] = {200, 400, 404},
    [ROUTE_UNKNOWN] = {404, 405},
};
static const int waiting_answers[ROUTE_COUNT][12] = {
    [ROUTE_CARD_REQUESTS_POST] = {201, 202, 499, 503},
    [ROUTE_CARD_REQUESTS_GET] = {200, 404, 499, 503},
};
static const int refused_answers[] = {400, 408, 413, 414, 417, 429, 431, 503, 505, 0};

static const char *const methods[ROUTE_COUNT] = {
#define X(id, method, path, needs_token, handler) [ROUTE_##id] = &(#method)[sizeof("HTTP_") - 1],
    ROUTES(X)
#undef X
        [ROUTE_UNKNOWN] = "other",
};

static struct metric_series *find(struct metrics *metrics, const char *route, const char *method, size_t column)
{
    char code[16];
    snprintf(code, sizeof(code), column < ARRAY_SIZE(statuses) ? "%d" : "other",
             column < ARRAY_SIZE(statuses) ? statuses[column] : 0);
    const char *const values[METRIC_LABELS_MAX] = {route, method, code};
    return metrics_series_of(metrics, API_METRIC_HTTP_REQUESTS, values);
}

static size_t column_of(int status)
{
    size_t column = 0;
    while (column < ARRAY_SIZE(statuses) && statuses[column] != status)
        column++;
    return column;
}

static struct metric_series *answer_of(struct api_series *series, struct route_series *of, const char *route,
                                       const char *method, int status)
{
    size_t column = column_of(status);
    if (!of->answers[column])
        of->answers[column] = find(series->metrics, route, method, column);
    return of->answers[column];
}

/* "/v1/card-requests", or "/v1/card-requests, waiting". */
static void put_label(enum route route, bool has_waited, char label[64])
{
    snprintf(label, 64, "%s%s", route_name(route), has_waited ? ", waiting" : "");
}

static void open_route(struct api_series *series, enum route route, bool has_waited)
{
    const int *status = has_waited ? waiting_answers[route] : answers[route];
    struct route_series *of = &series->routes[route][has_waited];
    char label[64];
    put_label(route, has_waited, label);
    if (*status != 0)
        of->seconds = metrics_series(series->metrics, API_METRIC_HTTP_SECONDS, label, methods[route]);
    for (; *status != 0; status++)
        (void)answer_of(series, of, label, methods[route], *status);
}

void api_series_open(struct api_series *series, struct metrics *metrics)
{
    *series = (struct api_series){.metrics = metrics};
    for (int route = 0; route < ROUTE_COUNT; route++) {
        open_route(series, (enum route)route, false);
        open_route(series, (enum route)route, true);
    }
    for (const int *status = refused_answers; *status != 0; status++)
        (void)answer_of(series, &series->refused, "refused", "other", *status);
}

void api_series_count_answer(struct api_series *series, enum route route, bool has_waited, int status,
                             int64_t started_us)
{
    struct route_series *of = &series->routes[route][has_waited];
    size_t column = column_of(status);
    if (!of->seconds || !of->answers[column]) {
        char label[64];
        put_label(route, has_waited, label);
        of->seconds = metrics_series(series->metrics, API_METRIC_HTTP_SECONDS, label, methods[route]);
        (void)answer_of(series, of, label, methods[route], status);
    }
    metric_observe(of->seconds, (double)(clock_mono_us() - started_us) / 1e6);
    metric_add(of->answers[column], 1);
}

void api_series_count_refused(struct api_series *series, int status)
{
    metric_add(answer_of(series, &series->refused, "refused", "other", status), 1);
}
