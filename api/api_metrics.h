/* The metrics of issuing-api: the table of families, and the series that each answered call counts in. They are found
 * once; counting then allocates nothing.
 *
 * To add a metric: a row in API_METRICS; install/reference.py writes it into docs/metrics.md. */
#ifndef ISSUING_API_METRICS_H
#define ISSUING_API_METRICS_H

#include "api/routes.h"
#include "common/core/daemon_metrics.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"

/* Id, name, type, help, buckets, labels. */
#define API_METRICS(X)                                                                                                 \
    DAEMON_METRICS(X)                                                                                                  \
    X(HTTP_REQUESTS, "issuing_http_requests_total", METRIC_COUNTER,                                                    \
      "Answers. Route refused: below the router; unknown: no such path. Code 499: the client left while it waited.",   \
      NULL, "route", "method", "code")                                                                                 \
    X(HTTP_SECONDS, "issuing_http_request_seconds", METRIC_HISTOGRAM,                                                  \
      "From the first byte to the answer. Calls that waited have a route of their own: `..., waiting`.",               \
      metric_buckets_seconds, "route", "method")                                                                       \
    X(BATCH_SIZE, "issuing_accept_batch_size", METRIC_HISTOGRAM, "Requests recorded by one transaction.",              \
      metric_buckets_size, NULL)                                                                                       \
    X(ACCEPT_QUEUE, "issuing_accept_queue", METRIC_GAUGE, "Requests that wait to be recorded, or are being recorded.", \
      NULL, NULL)                                                                                                      \
    X(ACCEPT_FAILURES, "issuing_accept_failures_total", METRIC_COUNTER,                                                \
      "Requests that were not recorded: user_lock, lock, schema, late, moved, other.", NULL, "reason")                 \
    X(REPLAYS, "issuing_idempotency_replays_total", METRIC_COUNTER, "Repeats answered with the stored answer.", NULL,  \
      NULL)                                                                                                            \
    X(LIMITED, "issuing_ratelimited_total", METRIC_COUNTER, "Requests refused by the rate limit.", NULL, NULL)         \
    X(AUTH_FAILURES, "issuing_auth_failures_total", METRIC_COUNTER, "Tokens that were refused.", NULL, "reason")       \
    X(REVEALS, "issuing_number_reveals_total", METRIC_COUNTER,                                                         \
      "Requests for card numbers: revealed, limited, not_found, unreadable, erased.", NULL, "result")                  \
    X(UNREADABLE, "issuing_numbers_unreadable_total", METRIC_COUNTER,                                                  \
      "Requested card numbers that could not be decrypted, because their key is missing.", NULL, NULL)                 \
    X(ISSUER_EVENTS, "issuing_issuer_events_total", METRIC_COUNTER,                                                    \
      "Events of the issuer: noted, repeated, unknown (no card of ours), other (about no card), forged, late, "        \
      "unreadable, failed.",                                                                                           \
      NULL, "result")                                                                                                  \
    X(READS_WAITING, "issuing_reads_waiting", METRIC_GAUGE, "Reads that wait in their users' queues.", NULL, NULL)     \
    X(READS_REFUSED, "issuing_reads_refused_total", METRIC_COUNTER,                                                    \
      "Reads answered 503 because too many waited, or they waited too long.", NULL, NULL)                              \
    X(WAITING, "issuing_waiting_clients", METRIC_GAUGE, "Clients that wait for a final status.", NULL, NULL)           \
    X(CONNECTIONS, "issuing_http_connections", METRIC_GAUGE, "Open client connections.", NULL, NULL)                   \
    X(CUT, "issuing_http_cut_total", METRIC_COUNTER,                                                                   \
      "Connections closed or refused: full (api.max_connections), memory (64 MiB of all requests and answers), "       \
      "unread (the client does not take its answer).",                                                                 \
      NULL, "reason")                                                                                                  \
    X(ACCEPT_PAUSES, "issuing_http_accept_pauses_total", METRIC_COUNTER,                                               \
      "How often accepting paused for 100 ms: no file descriptor or memory was left.", NULL, NULL)

enum api_metric {
#define X(id, ...) API_METRIC_##id,
    API_METRICS(X)
#undef X
};

/* The registry of these families. NULL when memory is out. */
struct metrics *api_metrics_new(void);

#define API_STATUSES_MAX 24

/* The series of the calls of one route that did not wait, or of those that did. */
struct route_series {
    struct metric_series *seconds;
    struct metric_series *answers[API_STATUSES_MAX]; /* by status; found when first needed */
};

/* What answers are counted in. Made by api_series_open(); lives as long as the registry. */
struct api_series {
    struct metrics *metrics;
    struct route_series routes[ROUTE_COUNT][2]; /* 1: those that waited */
    struct route_series refused;                /* below the router */
};

/* Makes the series of every route and of the answers that it can give. */
void api_series_open(struct api_series *series, struct metrics *metrics);
/* Counts one answer, and its time since `started_us` (monotonic). has_waited: `Prefer: wait` was obeyed. */
void api_series_count_answer(struct api_series *series, enum route route, bool has_waited, int status,
                             int64_t started_us);
/* Counts an answer that was given before the router saw a request. */
void api_series_count_refused(struct api_series *series, int status);

#endif
