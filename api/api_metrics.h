/* The metrics of issuing-api: the table of families, and the series that each answered call counts in.
 *
 * To add a metric: a row in API_METRICS, and a line in docs/run.md. */
#ifndef ISSUING_API_METRICS_H
#define ISSUING_API_METRICS_H

#include "api/router.h"
#include "common/base/err.h"
#include "common/base/metrics.h"

#define API_METRICS(X)                                                                                                 \
    X(HTTP_REQUESTS, "issuing_http_requests_total", METRIC_COUNTER, "Requests by route and status.", "route", "code",  \
      NULL)                                                                                                            \
    X(HTTP_SECONDS, "issuing_http_request_seconds", METRIC_HISTOGRAM,                                                  \
      "From first byte to answer; asked waits included.", "route", NULL, metric_buckets_seconds)                       \
    X(BATCH_SIZE, "issuing_accept_batch_size", METRIC_HISTOGRAM, "Requests recorded by one transaction.", NULL, NULL,  \
      metric_buckets_size)                                                                                             \
    X(REPLAYS, "issuing_idempotency_replays_total", METRIC_COUNTER, "Repeats answered from the stored answer.", NULL,  \
      NULL, NULL)                                                                                                      \
    X(LIMITED, "issuing_ratelimited_total", METRIC_COUNTER, "Requests refused by the rate limit.", NULL, NULL, NULL)   \
    X(AUTH_FAILURES, "issuing_auth_failures_total", METRIC_COUNTER, "Tokens that were refused, by reason.", "reason",  \
      NULL, NULL)                                                                                                      \
    X(REVEALS, "issuing_number_reveals_total", METRIC_COUNTER,                                                         \
      "Card numbers asked for: revealed, limited, not_found, unreadable.", "result", NULL, NULL)                       \
    X(UNREADABLE, "issuing_numbers_unreadable_total", METRIC_COUNTER,                                                  \
      "Card numbers asked for that could not be opened: their key is missing.", NULL, NULL, NULL)                      \
    X(DB_ERRORS, "issuing_db_errors_total", METRIC_COUNTER, "Statements that the database refused.", "sqlstate_class", \
      NULL, NULL)                                                                                                      \
    X(READS_WAITING, "issuing_reads_waiting", METRIC_GAUGE, "Reads that wait for their user's turn.", NULL, NULL,      \
      NULL)                                                                                                            \
    X(READS_REFUSED, "issuing_reads_refused_total", METRIC_COUNTER,                                                    \
      "Reads answered 503 because too many waited, or waited too long.", NULL, NULL, NULL)                             \
    X(WAITING, "issuing_waiting_clients", METRIC_GAUGE, "Clients that wait for a final status.", NULL, NULL, NULL)     \
    X(CONNECTIONS, "issuing_http_connections", METRIC_GAUGE, "Open client connections.", NULL, NULL, NULL)             \
    X(CUT, "issuing_http_cut_total", METRIC_COUNTER,                                                                   \
      "Connections closed or turned away for want of room, or because their answer was not taken.", "reason", NULL,    \
      NULL)                                                                                                            \
    X(ACCEPT_RESTS, "issuing_http_accept_rests_total", METRIC_COUNTER,                                                 \
      "Times that accepting connections rested for want of descriptors or memory.", NULL, NULL, NULL)                  \
    X(LOOP_LAG, "issuing_loop_lag_seconds", METRIC_GAUGE,                                                              \
      "How late the loop's timer was at its worst since the last scrape.", NULL, NULL, NULL)                           \
    X(BUILD_INFO, "issuing_build_info", METRIC_GAUGE, "Always 1.", "program", "version", NULL)

enum api_metric {
#define X(id, name, type, help, label1, label2, buckets) API_METRIC_##id,
    API_METRICS(X)
#undef X
};

/* The registry of these families. NULL when memory is out. */
struct metrics *api_metrics_new(void);

#define ROUTE_STATUSES_MAX 32 /* different statuses of one route; any more are counted in the last one's place */

/* The series of one route, found when they are first needed. Begins as all zeros. */
struct route_metrics {
    struct metric_series *seconds;
    struct {
        int status; /* 0 = unused */
        struct metric_series *requests;
    } statuses[ROUTE_STATUSES_MAX];
};

/* Counts one answer of a route, and its time since `started_us` (monotonic). */
void api_metrics_count_answer(struct metrics *metrics, struct route_metrics *routes, enum route route, int status,
                              int64_t started_us);

#endif
