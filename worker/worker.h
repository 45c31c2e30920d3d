/* The worker as a whole: what its rooms share, its start, its drain. */
#ifndef ISSUING_WORKER_H
#define ISSUING_WORKER_H

#include <uv.h>

#include "common/config.h"
#include "common/err.h"
#include "common/keyring.h"
#include "common/metrics.h"
#include "common/nudge.h"
#include "common/pg_pool.h"
#include "common/secret.h"
#include "worker/db_clock.h"
#include "worker/flow.h"
#include "worker/housekeeping.h"
#include "worker/target.h"
#include "worker/writer.h"

struct claim;
struct reconcile;
struct sweep;

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

struct worker {
    const struct config *config;
    uv_loop_t *loop;
    char name[96]; /* host:pid, as in lease_owner */
    struct pg_pool *pool;
    struct http_client *http;
    struct keyring *keyring;                                /* NULL with card.store = never */
    struct credential *issuer_credential, *core_credential; /* NULL = none */
    struct metrics *metrics;
    struct target issuer, core;
    struct db_clock db_clock; /* noted by the claims */
    uv_timer_t wake;          /* at the end of a target's rest */
    struct writer *writer;
    struct claim *claim;
    struct sweep *sweep;
    struct flow *slots; /* worker.max_in_flight of them */
    struct flow *free_slots;
    int in_flight;
    struct housekeeping *housekeeping;
    struct reconcile *reconcile;
    struct nudge final_nudge; /* tells waiting clients of the api */
    bool is_draining;
    int open_rooms;
    void (*on_closed)(void *context);
    void *closed_context;
};

/* Files are read and the slots allocated here; config, loop, name, pool, http and metrics are given. What was opened
 * before a failure is the
 * process's to end. */
must_check bool worker_open(struct worker *worker, struct err *err);
/* Reads the files with secrets and authorities again; what cannot be used leaves the old one in force and is logged. */
void worker_reload(struct worker *worker);
/* Stops claiming; from now on attempts are handed back before their next call. */
void worker_drain(struct worker *worker);
/* Nothing is in flight: no slot, no claim, no clean-up. */
bool worker_is_idle(const struct worker *worker);
/* Wants an idle one. on_closed from the loop. */
void worker_close(struct worker *worker, void (*on_closed)(void *context), void *context);

/* For the rooms below. */
struct flow *worker_take_slot(struct worker *worker); /* NULL: none free */
void worker_flow_ended(struct worker *worker, struct flow *flow);
/* How many events may be claimed now: free slots, and room at both peers. */
int worker_room(const struct worker *worker);
/* How much room makes a claim worth its statement while a backlog keeps the worker busy anyway: so much stays empty at most. */
int worker_good_room(const struct worker *worker);
void worker_count(struct worker *worker, enum worker_metric metric, const char *label1, const char *label2);

#endif
