/* The metrics of issuing-worker: one table, and the series that attempts, calls and claims count in. The series are
 * found once; counting then allocates nothing.
 *
 * To add a metric: a row in WORKER_METRICS; install/reference.py writes it into docs/metrics.md. */
#ifndef ISSUING_WORKER_METRICS_H
#define ISSUING_WORKER_METRICS_H

#include "common/core/daemon_metrics.h"
#include "common/core/outbox.h"
#include "common/lib/base/metrics.h"
#include "common/lib/http_client/http_call.h"

/* Id, name, type, help, buckets, labels. */
#define WORKER_METRICS(X)                                                                                              \
    DAEMON_METRICS(X)                                                                                                  \
    X(REQUEST_SECONDS, "issuing_request_seconds", METRIC_HISTOGRAM,                                                    \
      "From the acceptance of a card request to its final status.", metric_buckets_long, NULL)                         \
    X(ENDED, "issuing_events_ended_total", METRIC_COUNTER,                                                             \
      "Events that a worker brought to a final status. A peer's own reason is `other`.", NULL, "type", "status",       \
      "reason")                                                                                                        \
    X(STEP_SECONDS, "issuing_step_seconds", METRIC_HISTOGRAM, "Time of a step, with the wait in the target's queue.",  \
      metric_buckets_seconds, "step")                                                                                  \
    X(STEP_TOTAL, "issuing_step_total", METRIC_COUNTER, "Steps: executed, refused, not_executed, unknown.", NULL,      \
      "step", "outcome")                                                                                               \
    X(CALL_SECONDS, "issuing_call_seconds", METRIC_HISTOGRAM,                                                          \
      "Time of a call, without the wait in the target's queue. Code: a status or its class (4xx), no_answer, "         \
      "not_sent.",                                                                                                     \
      metric_buckets_calls, "target", "code")                                                                          \
    X(CONNECTIONS, "issuing_peer_connections", METRIC_GAUGE, "Connections to a peer: open, and of these idle.", NULL,  \
      "target", "state")                                                                                               \
    X(HANDSHAKES, "issuing_tls_handshakes_total", METRIC_COUNTER,                                                      \
      "Handshakes of TLS with a peer: full, or resumed with a session.", NULL, "target", "kind")                       \
    X(CERTIFICATE_DAYS, "issuing_peer_certificate_days", METRIC_GAUGE,                                                 \
      "Days until the first certificate of a peer's chain ends, once it was seen.", NULL, "target")                    \
    X(ATTEMPTS, "issuing_attempts_total", METRIC_COUNTER, "Attempts by how they ended.", NULL, "outcome")              \
    X(RETRIES, "issuing_retries_total", METRIC_COUNTER, "Attempts that failed and are repeated, by cause.", NULL,      \
      "reason")                                                                                                        \
    X(DEFERRALS, "issuing_deferrals_total", METRIC_COUNTER, "Attempts that were deferred and do not count, by cause.", \
      NULL, "reason")                                                                                                  \
    X(LEASE_LOST, "issuing_lease_lost_total", METRIC_COUNTER,                                                          \
      "Writes that matched no row because the lease was lost.", NULL, NULL)                                            \
    X(CHECKS, "issuing_checks_total", METRIC_COUNTER,                                                                  \
      "Events looked up for an operator or a worker, by what reconcile or reissue says of them.", NULL, "result")      \
    X(BREAKER_TRANSITIONS, "issuing_breaker_transitions_total", METRIC_COUNTER,                                        \
      "Changes of a breaker to closed, half_open or open.", NULL, "target", "state")                                   \
    X(IN_FLIGHT, "issuing_in_flight", METRIC_GAUGE, "Events that this worker holds.", NULL, NULL)                      \
    X(CLAIM_SECONDS, "issuing_claim_seconds", METRIC_HISTOGRAM, "Time of the statement that takes due events.",        \
      metric_buckets_seconds, NULL)                                                                                    \
    X(CLAIM_BATCH_SIZE, "issuing_claim_batch_size", METRIC_HISTOGRAM, "Events taken by one claim that found some.",    \
      metric_buckets_size, NULL)                                                                                       \
    X(EXPIRED, "issuing_expired_total", METRIC_COUNTER, "Rows deleted one by one after their retention.", NULL,        \
      "table")                                                                                                         \
    X(NUMBERS_ERASED, "issuing_numbers_erased_total", METRIC_COUNTER,                                                  \
      "Card numbers erased after card.number_retention.", NULL, NULL)                                                  \
    X(PARTITIONS, "issuing_partitions_total", METRIC_COUNTER,                                                          \
      "Partitions created, dropped, and postponed because a lock was not available.", NULL, "table", "action")         \
    X(HOUSEKEEPING_FAILURES, "issuing_housekeeping_failures_total", METRIC_COUNTER,                                    \
      "Steps of the housekeeping that failed, and are tried again.", NULL, "table")                                    \
    X(HOUSEKEEPING_SECONDS, "issuing_housekeeping_seconds", METRIC_HISTOGRAM, "Time of one pass of the housekeeping.", \
      metric_buckets_seconds, NULL)

enum worker_metric {
#define X(id, ...) WORKER_METRIC_##id,
    WORKER_METRICS(X)
#undef X
};

#define WORKER_STEPS_MAX 17
#define WORKER_OUTCOMES 4
#define WORKER_CALL_CODES 32

/* The series that attempts count in. Made by worker_series_open(); lives as long as the registry. */
struct worker_series {
    struct metrics *metrics;
    struct metric_series *request_seconds, *lease_lost, *claim_seconds, *claim_batch_size;
    struct metric_series *step_seconds[WORKER_STEPS_MAX];           /* found when first needed */
    struct metric_series *steps[WORKER_STEPS_MAX][WORKER_OUTCOMES]; /* likewise */
};

/* The series of the calls to one target, by code; found when first needed. Starts as all zeros. */
struct call_series {
    struct metric_series *codes[WORKER_CALL_CODES];
};

/* A registry with all families of the table; NULL when memory is out. Free with metrics_free(). The series whose labels
 * are known exist from the start. */
struct metrics *worker_metrics_new(void);
/* Adds one to a counter. label1, label2: NULL where the family has no such label. */
void worker_metrics_count(struct metrics *metrics, enum worker_metric metric, const char *label1, const char *label2);

void worker_series_open(struct worker_series *series, struct metrics *metrics);
/* A step has ended. step, outcome: their indices; the words are their labels. */
void worker_series_count_step(struct worker_series *series, int step, const char *step_word, int outcome,
                              const char *outcome_word, int64_t took_us);
/* An event of this type has reached a final status. reason: "" = it has none; age_ms: since it was accepted, -1 = not
 * known. */
void worker_series_count_end(struct worker_series *series, const char *type, enum outbox_status status,
                             const char *reason, int64_t age_ms);
/* The ends of a route's events and the states of its breaker exist from the start too. */
void worker_metrics_start_route(struct metrics *metrics, const char *type);
/* A call has ended (http_call.h). */
void call_series_count(struct call_series *series, struct metrics *metrics, const char *target,
                       const struct http_call *call);

/* The label of a reason or cause: itself if it is one of ours, or a usual answer (`issuer_http_503`), or the class of
 * an unusual one (`issuer_http_4xx`); a peer's own words are `other`. So the number of series is bounded. */
const char *worker_metrics_reason(const char *code);

#endif
