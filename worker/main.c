/* issuing-worker: takes PENDING events, asks core-api, calls the issuer, stores and links the card. Any number may run.
 *
 * Table of contents: options, loop, database, HTTP client, worker, admin listener; then the loop; then the drain in the
 * opposite order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/daemon.h"
#include "common/log.h"
#include "common/pg_listen.h"
#include "common/schema.h"
#include "common/sd.h"
#include "worker/claim.h"
#include "worker/worker.h"

#define ANSWER_MAX (64 * 1024)
#define PIPELINE 8
#define WAITING_MAX 10000
#define DRAIN_LOOK_MS 10
#define DRAIN_EXTRA_MS 4000 /* CONTRACT 1: drained within max(timeouts) + 5 s */

static const struct metric_family families[] = {
#define X(id, name, type, help, label1, label2, buckets) {name, type, help, {label1, label2}, buckets},
    WORKER_METRICS(X)
#undef X
};

struct program {
    struct config config;
    uv_loop_t loop;
    struct daemon daemon;
    struct worker worker;
    struct pg_listen *listen;
    uv_timer_t drain;
    int64_t drain_until_ms;
    int open_rooms;
    char why_not_ready[320];
};

static bool is_ready(void *context, const char **ret_why)
{
    struct program *program = context;
    if (pg_pool_ready(program->worker.pool))
        return true;
    *ret_why = program->why_not_ready;
    return false;
}

static void on_pool_state(void *context, bool ready, const char *error_text)
{
    struct program *program = context;
    snprintf(program->why_not_ready, sizeof program->why_not_ready, "%s", ready ? "" : error_text);
    if (ready)
        log_info("database ready");
    else
        log_warning("database away", LOG_TEXT("why", error_text));
    sd_status(ready ? "working" : "waiting for the database");
    if (ready && program->worker.claim)
        claim_hint(program->worker.claim);
}

static void on_db_error(void *context, const char sqlstate[6])
{
    struct program *program = context;
    char class[3] = {sqlstate[0], sqlstate[1], '\0'};
    worker_count(&program->worker, WORKER_METRIC_DB_ERRORS, class, NULL);
}

static void on_scrape(void *context)
{
    struct program *program = context;
    metric_set(metrics_series(program->worker.metrics, WORKER_METRIC_IN_FLIGHT, NULL, NULL), program->worker.in_flight);
    metric_set(metrics_series(program->worker.metrics, WORKER_METRIC_BREAKER_STATE, "issuer", NULL),
               program->worker.issuer.breaker.state);
    metric_set(metrics_series(program->worker.metrics, WORKER_METRIC_BREAKER_STATE, "core", NULL),
               program->worker.core.breaker.state);
}

static void on_wake_hint(void *context)
{
    struct program *program = context;
    claim_hint(program->worker.claim);
}

/* ---- the way out: worker drained -> worker rooms, HTTP client, listener -> pool -> daemon ---- */

static void on_all_closed(void *context)
{
    (void)context; /* the loop has nothing left and ends by itself */
}

static void on_pool_closed(void *context)
{
    struct program *program = context;
    daemon_close(&program->daemon, on_all_closed);
}

static void on_room_closed(void *context)
{
    struct program *program = context;
    if (--program->open_rooms == 0)
        pg_pool_close(program->worker.pool, on_pool_closed, program);
}

static void on_drain_closed(uv_handle_t *handle)
{
    (void)handle;
}

static void on_drain_look(uv_timer_t *timer)
{
    struct program *program = container_of(timer, struct program, drain);
    if (!worker_is_idle(&program->worker)) {
        if (clock_mono_ms() < program->drain_until_ms)
            return;
        /* What is still open is covered by its lease: exactly as if the process were killed. */
        log_error("the drain took too long; leases will run out", LOG_NUMBER("in_flight", program->worker.in_flight));
        exit(0);
    }
    uv_close((uv_handle_t *)&program->drain, on_drain_closed);
    program->open_rooms = 3;
    worker_close(&program->worker, on_room_closed, program);
    http_client_close(program->worker.http, on_room_closed, program);
    pg_listen_close(program->listen, on_room_closed, program);
}

static void on_stop(void *context)
{
    struct program *program = context;
    const struct config *config = &program->config;
    int64_t call_ms =
        config->issuer.timeout_ms > config->core.timeout_ms ? config->issuer.timeout_ms : config->core.timeout_ms;
    program->drain_until_ms = clock_mono_ms() + call_ms + DRAIN_EXTRA_MS;
    worker_drain(&program->worker);
    uv_timer_start(&program->drain, on_drain_look, 0, DRAIN_LOOK_MS);
}

/* ---- the way in ---- */

static bool start(struct program *program, struct err *err)
{
    struct config *config = &program->config;
    struct worker *worker = &program->worker;
    worker->config = config;
    worker->loop = &program->loop;
    char host[64] = "host";
    (void)gethostname(host, sizeof host - 1); /* ignoring: the name is for people */
    snprintf(worker->name, sizeof worker->name, "%s:%ld", host, (long)getpid());
    worker->metrics = metrics_new(families, ARRAY_SIZE(families));
    if (!worker->metrics)
        return err_set(err, ERR_MEMORY, "no memory for the metrics");

    struct pg_pool_options pool = {
        .conninfo = config->database.url,
        .application_name = "issuing-worker",
        .connections = (int)config->database.connections,
        .pipeline = PIPELINE,
        .waiting_max = WAITING_MAX,
        .schema_least = SCHEMA_LEAST,
        .schema_most = SCHEMA_MOST,
        .on_state = on_pool_state,
        .on_error = on_db_error,
        .context = program,
    };
    snprintf(program->why_not_ready, sizeof program->why_not_ready, "not connected yet");
    uv_timer_init(&program->loop, &program->drain);
    program->daemon = (struct daemon){
        .loop = &program->loop,
        .name = "issuing-worker",
        .metrics = worker->metrics,
        .lag_metric = WORKER_METRIC_LOOP_LAG,
        .build_metric = WORKER_METRIC_BUILD_INFO,
        .admin_listen = config->worker.admin_listen,
        .is_ready = is_ready,
        .on_scrape = on_scrape,
        .on_stop = on_stop,
        .context = program,
    };
    int calls_max = (int)(config->issuer.max_concurrency + config->core.max_concurrency);
    return pg_pool_open(&program->loop, &pool, &worker->pool, err) &&
           http_client_open(&program->loop, calls_max, ANSWER_MAX, &worker->http, err) && worker_open(worker, err) &&
           pg_listen_open(&program->loop, config->database.url, OUTBOX_WAKE_CHANNEL, on_wake_hint, program,
                          &program->listen, err) &&
           daemon_start(&program->daemon, err);
}

int main(int argc, char **argv)
{
    static struct program program;
    int done = daemon_options(&program.config, CONFIG_WORKER, "issuing-worker", argc, argv);
    if (done >= 0) {
        config_done(&program.config);
        return done;
    }
    struct err err = {0};
    if (uv_loop_init(&program.loop) != 0)
        return 1;
    if (!start(&program, &err)) {
        log_error("could not start", LOG_TEXT("why", err.message));
        return err_exit_code(err.kind);
    }
    log_info("started", LOG_TEXT("worker", program.worker.name), LOG_TEXT("admin", program.config.worker.admin_listen),
             LOG_TEXT("issuer", program.config.issuer.url), LOG_TEXT("core", program.config.core.url),
             LOG_NUMBER("max_in_flight", program.config.worker.max_in_flight));
    sd_ready();
    bool is_clean = daemon_end_loop(&program.loop);
    metrics_free(program.worker.metrics);
    config_done(&program.config);
    log_info("stopped");
    return is_clean ? 0 : 1;
}
