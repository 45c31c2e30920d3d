/* The metrics that both daemons have. They are the first rows of API_METRICS and WORKER_METRICS, so DAEMON_METRIC_X is
 * the same family in either registry, and a module of common can set it without knowing the program.
 *
 * To add one: a row here; install/reference.py writes it into docs/metrics.md. */
#ifndef ISSUING_DAEMON_METRICS_H
#define ISSUING_DAEMON_METRICS_H

#include "common/lib/base/metrics.h"
#include "common/lib/pg/pg_pool.h"

/* Id, name, type, help, buckets, labels. */
#define DAEMON_METRICS(X)                                                                                              \
    X(OUTBOX_EVENTS, "issuing_outbox_events", METRIC_GAUGE,                                                            \
      "PENDING, PROCESSING, FAILED and SCHEDULED (PENDING, to run later) events of all delivered types. Of card "      \
      "requests a million are counted, of each route 100000.",                                                         \
      NULL, "status")                                                                                                  \
    X(OLDEST_PENDING, "issuing_outbox_oldest_pending_seconds", METRIC_GAUGE,                                           \
      "Age of the oldest PENDING event of all delivered types, from when it was to run.", NULL, NULL)                  \
    X(TYPE_EVENTS, "issuing_outbox_type_events", METRIC_GAUGE,                                                         \
      "issuing_outbox_events by type: CARD_ISSUE, each route, and other: FAILED events of types that nobody "          \
      "delivers.",                                                                                                     \
      NULL, "type", "status")                                                                                          \
    X(TYPE_OLDEST, "issuing_outbox_type_oldest_pending_seconds", METRIC_GAUGE,                                         \
      "Age of the oldest PENDING event of each delivered type, from when it was to run.", NULL, "type")                \
    X(UNDELIVERED, "issuing_outbox_undelivered_events", METRIC_GAUGE, "Open events of types that nobody delivers.",    \
      NULL, NULL)                                                                                                      \
    X(OUTCOME_UNKNOWN, "issuing_outcome_unknown", METRIC_GAUGE,                                                        \
      "PENDING and FAILED events that the issuer or a receiver may have executed without our knowledge.", NULL, NULL)  \
    X(UNKNOWN_OLDEST, "issuing_outcome_unknown_oldest_seconds", METRIC_GAUGE,                                          \
      "Time since the first send of the event that has been unknown for longest.", NULL, NULL)                         \
    X(WORKERS_ALIVE, "issuing_workers_alive", METRIC_GAUGE,                                                            \
      "Workers that the database has seen within 60 s; of several places, in the one that has fewest.", NULL, NULL)    \
    X(PLACE_WORKERS, "issuing_place_workers_alive", METRIC_GAUGE,                                                      \
      "issuing_workers_alive of each place, where there are several.", NULL, "place")                                  \
    X(WORKERS_DISAGREE, "issuing_workers_disagree", METRIC_GAUGE,                                                      \
      "Options that all workers must have alike, and in which living ones differ.", NULL, NULL)                        \
    X(OLDEST_SNAPSHOT, "issuing_db_oldest_snapshot_transactions", METRIC_GAUGE,                                        \
      "Age of the oldest snapshot, prepared transaction or slot of the cluster, which keeps vacuum from old rows.",    \
      NULL, NULL)                                                                                                      \
    X(OLDEST_ROW, "issuing_db_oldest_row_transactions", METRIC_GAUGE,                                                  \
      "Age of the oldest row of the database; PostgreSQL refuses to write at 2^31.", NULL, NULL)                       \
    X(SLOT_WAL, "issuing_db_slot_wal_bytes", METRIC_GAUGE,                                                             \
      "WAL that the replication slot which is furthest behind keeps on the disk.", NULL, NULL)                         \
    X(BREAKER_STATE, "issuing_breaker_state", METRIC_GAUGE,                                                            \
      "0 closed, 1 half-open, 2 open. A worker shows its own breaker, the api the worst of all living workers.", NULL, \
      "target")                                                                                                        \
    X(TARGET_PAUSED, "issuing_target_paused", METRIC_GAUGE, "1 while an operator has paused the target.", NULL,        \
      "target")                                                                                                        \
    X(STATISTICS_LAG, "issuing_statistics_lag_seconds", METRIC_GAUGE,                                                  \
      "Age of the oldest end that outbox_statistics does not have yet; 0 = it has all.", NULL, NULL)                   \
    X(PROOF_AGE, "issuing_data_proof_age_seconds", METRIC_GAUGE,                                                       \
      "Time since the last whole run of issuing-ctl prove began.", NULL, NULL)                                         \
    X(PROOF_BROKEN, "issuing_data_proof_broken_rows", METRIC_GAUGE, "Rows that broke a rule in that run.", NULL, NULL) \
    X(LIST_AGE, "issuing_issuer_list_age_seconds", METRIC_GAUGE,                                                       \
      "Time since the last whole comparison with the issuer's list of cards began; 0 = there was none.", NULL, NULL)   \
    X(LIST_UNKNOWN, "issuing_issuer_list_unknown_cards", METRIC_GAUGE,                                                 \
      "Live cards of the issuer without an event here, in that comparison.", NULL, NULL)                               \
    X(GAUGES_AGE, "issuing_outbox_gauges_age_seconds", METRIC_GAUGE,                                                   \
      "Age of the gauges of outbox, workers and targets.", NULL, NULL)                                                 \
    X(DB_ERRORS, "issuing_db_errors_total", METRIC_COUNTER, "Statements that the database refused.", NULL,             \
      "sqlstate_class")                                                                                                \
    X(DB_POOL_WAITING, "issuing_db_pool_waiting", METRIC_GAUGE, "Statements that wait for a connection.", NULL, NULL)  \
    X(READY, "issuing_ready", METRIC_GAUGE, "1 while /readyz is 200, or the program drains.", NULL, NULL)              \
    X(DB_AWAY, "issuing_db_away", METRIC_GAUGE, "1 for the cause why the database cannot be used.", NULL, "cause")     \
    X(DB_READY, "issuing_db_ready", METRIC_GAUGE,                                                                      \
      "1 while a database has a connection; of several places, each by its own.", NULL, "database")                    \
    X(LOOP_LAG, "issuing_loop_lag_seconds", METRIC_GAUGE,                                                              \
      "How late the event loop was at its worst in the last minute.", NULL, NULL)                                      \
    X(LOG_DROPPED, "issuing_log_dropped_total", METRIC_COUNTER,                                                        \
      "Lines of the log that were lost because nobody took them from standard error.", NULL, NULL)                     \
    X(SPANS_EXPORTED, "issuing_spans_exported_total", METRIC_COUNTER, "Spans that the receiver of traces took.", NULL, \
      NULL)                                                                                                            \
    X(SPANS_DROPPED, "issuing_spans_dropped_total", METRIC_COUNTER,                                                    \
      "Spans that were lost: full (too many wait), unreachable, refused, rejected (of a batch that was taken).", NULL, \
      "reason")                                                                                                        \
    X(BUILD_INFO, "issuing_build_info", METRIC_GAUGE, "Always 1.", NULL, "program", "version")                         \
    X(PROCESS_CPU, "process_cpu_seconds_total", METRIC_COUNTER, "Processor time, user and system.", NULL, NULL)        \
    X(PROCESS_OPEN_FDS, "process_open_fds", METRIC_GAUGE, "Open file descriptors.", NULL, NULL)                        \
    X(PROCESS_MAX_FDS, "process_max_fds", METRIC_GAUGE, "File descriptors that may be open.", NULL, NULL)              \
    X(PROCESS_RESIDENT, "process_resident_memory_bytes", METRIC_GAUGE, "Resident memory.", NULL, NULL)                 \
    X(PROCESS_VIRTUAL, "process_virtual_memory_bytes", METRIC_GAUGE, "Virtual memory.", NULL, NULL)                    \
    X(PROCESS_START, "process_start_time_seconds", METRIC_GAUGE, "Start of the process, since 1970.", NULL, NULL)

enum daemon_metric {
#define X(id, ...) DAEMON_METRIC_##id,
    DAEMON_METRICS(X)
#undef X
        DAEMON_METRIC_COUNT
};

/* Makes the series whose labels are known, so that the first increase of each can be seen. */
void daemon_metrics_start(struct metrics *metrics);
/* Before a scrape: the figures of the process; then of each pool, `name` is the name of its database. */
void daemon_metrics_update(struct metrics *metrics);
void daemon_metrics_add_pool(struct metrics *metrics, const struct pg_pool *pool, const char *name);

#endif
