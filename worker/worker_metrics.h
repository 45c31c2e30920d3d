/* The metrics of issuing-worker: one table, which docs/run.md is checked against. */
#ifndef ISSUING_WORKER_METRICS_H
#define ISSUING_WORKER_METRICS_H

#include "common/base/metrics.h"

#define WORKER_METRICS(X)                                                                                              \
    X(OUTBOX_EVENTS, "issuing_outbox_events", METRIC_GAUGE, "Open and failed events by status.", "status", NULL, NULL) \
    X(OLDEST_PENDING, "issuing_outbox_oldest_pending_seconds", METRIC_GAUGE, "Age of the oldest PENDING event.", NULL, \
      NULL, NULL)                                                                                                      \
    X(STEP_SECONDS, "issuing_step_seconds", METRIC_HISTOGRAM, "Time of a step, waiting included.", "step", NULL,       \
      metric_buckets_seconds)                                                                                          \
    X(STEP_TOTAL, "issuing_step_total", METRIC_COUNTER, "Steps by outcome.", "step", "outcome", NULL)                  \
    X(ATTEMPTS, "issuing_attempts_total", METRIC_COUNTER, "Attempts by how they ended.", "outcome", NULL, NULL)        \
    X(DEFERRALS, "issuing_deferrals_total", METRIC_COUNTER, "Attempts given back, by cause.", "reason", NULL, NULL)    \
    X(LEASE_LOST, "issuing_lease_lost_total", METRIC_COUNTER,                                                          \
      "Writes that matched no row because the lease was lost.", NULL, NULL, NULL)                                      \
    X(CHECKS, "issuing_checks_total", METRIC_COUNTER, "Marks of reconcile and reissue by their result.", "result",     \
      NULL, NULL)                                                                                                      \
    X(OUTCOME_UNKNOWN, "issuing_outcome_unknown", METRIC_GAUGE, "Events whose outcome at the issuer is unknown.",      \
      NULL, NULL, NULL)                                                                                                \
    X(BREAKER_STATE, "issuing_breaker_state", METRIC_GAUGE, "0 closed, 1 half-open, 2 open.", "target", NULL, NULL)    \
    X(IN_FLIGHT, "issuing_in_flight", METRIC_GAUGE, "Events held by this worker.", NULL, NULL, NULL)                   \
    X(DB_ERRORS, "issuing_db_errors_total", METRIC_COUNTER, "Statements that the database refused.", "sqlstate_class", \
      NULL, NULL)                                                                                                      \
    X(EXPIRED, "issuing_expired_total", METRIC_COUNTER, "Rows deleted one by one after their retention.", "table",     \
      NULL, NULL)                                                                                                      \
    X(PARTITIONS, "issuing_partitions_total", METRIC_COUNTER, "Partitions created, dropped, and postponed.", "table",  \
      "action", NULL)                                                                                                  \
    X(HOUSEKEEPING_FAILURES, "issuing_housekeeping_failures_total", METRIC_COUNTER,                                    \
      "Steps of the housekeeping that failed.", "table", NULL, NULL)                                                   \
    X(HOUSEKEEPING_SECONDS, "issuing_housekeeping_seconds", METRIC_HISTOGRAM, "Time of one pass of the housekeeping.", \
      NULL, NULL, metric_buckets_seconds)                                                                              \
    X(LOOP_LAG, "issuing_loop_lag_seconds", METRIC_GAUGE,                                                              \
      "How late the loop's timer was at its worst since the last scrape.", NULL, NULL, NULL)                           \
    X(BUILD_INFO, "issuing_build_info", METRIC_GAUGE, "Always 1.", "program", "version", NULL)

enum worker_metric {
#define X(id, name, type, help, label1, label2, buckets) WORKER_METRIC_##id,
    WORKER_METRICS(X)
#undef X
};

/* A registry with all families of the table; NULL when memory is out. Free with metrics_free(). */
struct metrics *worker_metrics_new(void);
/* Adds one to a counter. label1, label2: NULL where the family has no such label. */
void worker_metrics_count(struct metrics *metrics, enum worker_metric metric, const char *label1, const char *label2);

#endif
