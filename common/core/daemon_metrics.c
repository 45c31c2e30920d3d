/* See daemon_metrics.h. */
#include "common/core/daemon_metrics.h"

#include "common/lib/base/log_output.h"
#include "common/lib/base/process.h"

/* Classes that a statement of ours can get; others are shown once they occur. */
static const char *const sqlstate_classes[] = {"08", "22", "23", "25", "26", "40", "42",
                                               "53", "54", "55", "57", "58", "P0", "XX"};

static const char *const drops[] = {"full", "unreachable", "refused", "rejected"}; /* of spans */

void daemon_metrics_start(struct metrics *metrics)
{
    for (size_t i = 0; i < ARRAY_SIZE(drops); i++)
        (void)metrics_series(metrics, DAEMON_METRIC_SPANS_DROPPED, drops[i], NULL);
    for (size_t i = 0; i < ARRAY_SIZE(sqlstate_classes); i++)
        (void)metrics_series(metrics, DAEMON_METRIC_DB_ERRORS, sqlstate_classes[i], NULL);
}

/* A figure that the system does not tell is not shown. */
static void set(struct metrics *metrics, enum daemon_metric metric, double value)
{
    if (value >= 0)
        metric_set(metrics_series(metrics, metric, NULL, NULL), value);
}

void daemon_metrics_update(struct metrics *metrics)
{
    struct process_figures now;
    struct metric_series *cpu = metrics_series(metrics, DAEMON_METRIC_PROCESS_CPU, NULL, NULL);
    struct metric_series *dropped = metrics_series(metrics, DAEMON_METRIC_LOG_DROPPED, NULL, NULL);
    process_read(&now);
    if (now.cpu_s > metric_value(cpu))
        metric_add(cpu, now.cpu_s - metric_value(cpu));
    metric_add(dropped, (double)log_output_lost() - metric_value(dropped));
    set(metrics, DAEMON_METRIC_PROCESS_OPEN_FDS, (double)now.open_files);
    set(metrics, DAEMON_METRIC_PROCESS_MAX_FDS, (double)now.files_max);
    set(metrics, DAEMON_METRIC_PROCESS_RESIDENT, (double)now.resident_bytes);
    set(metrics, DAEMON_METRIC_PROCESS_VIRTUAL, (double)now.virtual_bytes);
    set(metrics, DAEMON_METRIC_PROCESS_START, now.started_s);
    set(metrics, DAEMON_METRIC_DB_POOL_WAITING, 0);
    for (int cause = 0; cause < PG_CAUSE_COUNT; cause++)
        metric_set(metrics_series(metrics, DAEMON_METRIC_DB_AWAY, pg_cause_name((enum pg_cause)cause), NULL), 0);
}

void daemon_metrics_add_pool(struct metrics *metrics, const struct pg_pool *pool, const char *name)
{
    metric_set(metrics_series(metrics, DAEMON_METRIC_DB_READY, name, NULL), pg_pool_ready(pool));
    metric_add(metrics_series(metrics, DAEMON_METRIC_DB_POOL_WAITING, NULL, NULL), pg_pool_waiting(pool));
    if (pg_pool_cause(pool) < PG_CAUSE_COUNT)
        metric_set(metrics_series(metrics, DAEMON_METRIC_DB_AWAY, pg_cause_name(pg_pool_cause(pool)), NULL), 1);
}
