/* See housekeeping.h. A pass is five statements, each a transaction, so that one that fails does not undo the others;
 * at most one of them is in flight. */
#include "worker/upkeep/housekeeping.h"

#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "statements.h"

#define FIRST_MS 2000
#define PASS_INTERVAL_MS 30000
#define PASS_CONTINUES_MS 200
#define PARTITION_LEAST_MS 3600000
#define QUERY_TIMEOUT_MS 10000
#define CHECK_TIMEOUT_MS 16000 /* the server ends it before, after the role's statement_timeout */

struct housekeeping {
    struct job job; /* busy during a pass */
    int64_t started_us;
    int statement; /* of this pass: the number of the one in flight */
    bool has_more; /* one of them has more to do */
};

/* Of a pass. */
static const struct sql_statement *const statements[] = {
    &sql_keep_rows, &sql_run_housekeeping, &sql_check_default_partitions, &sql_erase_numbers, &sql_forget_keys,
};
#define STATEMENTS ((int)ARRAY_SIZE(statements))

/* Columns of all of them. */
enum { COL_ACTION, COL_TABLE, COL_AMOUNT, COL_DETAIL, COL_HAS_MORE };

/* What one statement did, a row each: counted, and logged where an operator would want to know. Returns whether there
 * is more to do. */
static bool note_pass(const struct job *job, const struct pg_rows *rows)
{
    struct metrics *metrics = job->env->series->metrics;
    bool has_more = false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *action = pg_text(rows, row, COL_ACTION), *table = pg_text(rows, row, COL_TABLE);
        const char *detail = pg_text(rows, row, COL_DETAIL);
        has_more |= pg_bool(rows, row, COL_HAS_MORE);
        if (strcmp(action, "busy") == 0)
            continue;
        if (strcmp(action, "expired") == 0) {
            metric_add(metrics_series(metrics, WORKER_METRIC_EXPIRED, table, NULL),
                       (double)pg_int8(rows, row, COL_AMOUNT));
            continue;
        }
        if (strcmp(action, "erased") == 0) {
            int64_t numbers = pg_int8(rows, row, COL_AMOUNT);
            metric_add(metrics_series(metrics, WORKER_METRIC_NUMBERS_ERASED, NULL, NULL), (double)numbers);
            log_info("card numbers were erased after their retention", LOG_NUMBER("numbers", numbers));
            continue;
        }
        if (strcmp(action, "failed") == 0) {
            metric_add(metrics_series(metrics, WORKER_METRIC_HOUSEKEEPING_FAILURES, table, NULL), 1);
            log_warning("housekeeping of a table failed", LOG_TEXT("table", table),
                        LOG_TEXT("why", detail ? detail : ""));
            continue;
        }
        metric_add(metrics_series(metrics, WORKER_METRIC_PARTITIONS, table, action), 1);
        log_at(strcmp(action, "postponed") == 0 ? LOG_WARNING : LOG_INFO, "partition", LOG_TEXT("action", action),
               LOG_TEXT("table", table), LOG_TEXT("detail", detail ? detail : ""),
               LOG_NUMBER("rows_kept", pg_int8(rows, row, COL_AMOUNT)));
    }
    return has_more;
}

static void send_statement(struct housekeeping *housekeeping);

/* A statement that was refused, or was not answered in time, did nothing or did all of it; the next one follows either
 * way. */
static void on_statement_done(struct job *job, const struct pg_query_result *result)
{
    struct housekeeping *housekeeping = container_of(job, struct housekeeping, job);
    struct metrics *metrics = job->env->series->metrics;
    if (result->kind == PG_DONE) {
        housekeeping->has_more |= note_pass(job, result->rows);
    } else if ((result->kind == PG_REFUSED || result->kind == PG_UNKNOWN) && !pg_sqlstate_is_moved(result->sqlstate)) {
        bool is_refused = result->kind == PG_REFUSED;
        metric_add(metrics_series(metrics, WORKER_METRIC_HOUSEKEEPING_FAILURES, "all", NULL), 1);
        log_warning("housekeeping failed", LOG_TEXT("statement", job->query.statement->name),
                    LOG_TEXT("sqlstate", is_refused ? result->sqlstate : ""),
                    LOG_TEXT("why", is_refused ? result->message : "no answer in time, or the connection was lost"));
    }
    housekeeping->statement++;
    if (result->kind != PG_NOT_SENT && housekeeping->statement < STATEMENTS && !job->is_stopped) {
        send_statement(housekeeping);
        return;
    }
    metric_observe(metrics_series(metrics, WORKER_METRIC_HOUSEKEEPING_SECONDS, NULL, NULL),
                   (double)(clock_mono_us() - housekeeping->started_us) / 1e6);
    job_wait(job, housekeeping->has_more ? PASS_CONTINUES_MS : PASS_INTERVAL_MS);
}

static int64_t longer_ms(int64_t left_ms, int64_t right_ms)
{
    return left_ms > right_ms ? left_ms : right_ms;
}

static void send_statement(struct housekeeping *housekeeping)
{
    const struct config *config = housekeeping->job.env->config;
    int64_t keys_ms = config->idempotency.retention_ms;
    const struct sql_statement *statement = statements[housekeeping->statement];
    struct pg_param *params = housekeeping->job.query.params;
    params[0] = pg_param_int8(statement == &sql_erase_numbers ? config->card.number_retention_ms : keys_ms);
    /* The api may run with a longer window than this worker knows: the retention is a second bound. */
    params[1] = pg_param_int8(longer_ms(config->limit.window_ms, keys_ms));
    /* A key that is still honoured leads to its event. */
    params[2] = pg_param_int8(longer_ms(config->outbox.retention_ms, keys_ms));
    params[3] = pg_param_int8(PARTITION_LEAST_MS);
    job_send(&housekeeping->job, statement,
             statement == &sql_check_default_partitions ? CHECK_TIMEOUT_MS : QUERY_TIMEOUT_MS, on_statement_done);
}

static void on_due(struct job *job)
{
    struct housekeeping *housekeeping = container_of(job, struct housekeeping, job);
    housekeeping->started_us = clock_mono_us();
    housekeeping->statement = 0;
    housekeeping->has_more = false;
    send_statement(housekeeping);
}

bool housekeeping_open(const struct worker_env *env, struct err *err)
{
    static const struct job_kind kind = {.name = "housekeeping", .on_due = on_due};
    struct housekeeping *housekeeping = job_new(&kind, env, sizeof(*housekeeping), err);
    if (housekeeping)
        job_wait(&housekeeping->job, FIRST_MS);
    return housekeeping;
}
