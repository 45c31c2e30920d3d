/* issuing-worker: takes PENDING events, asks core-api, calls the issuer, stores and links the card. Any number may run.
 *
 * Table of contents: options, loop, database, HTTP client, worker, admin listener; then the loop; then the drain in the
 * opposite order. */
#include <stdio.h>
#include <unistd.h>

#include "common/daemon.h"
#include "common/log.h"
#include "common/pg_listen.h"
#include "worker/claim.h"
#include "worker/worker.h"

#define ANSWER_MAX (64 * 1024)
#define PIPELINE 8
#define WAITING_MAX 10000

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
    int open_rooms;
};

static void on_scrape(void *context)
{
    struct program *program = context;
    struct worker *worker = &program->worker;
    metric_set(metrics_series(worker->metrics, WORKER_METRIC_IN_FLIGHT, NULL, NULL), worker->in_flight);
    metric_set(metrics_series(worker->metrics, WORKER_METRIC_BREAKER_STATE, "issuer", NULL),
               worker->issuer.breaker.state);
    metric_set(metrics_series(worker->metrics, WORKER_METRIC_BREAKER_STATE, "core", NULL), worker->core.breaker.state);
}

/* The database is back, or somebody accepted something. */
static void on_wake_hint(void *context)
{
    struct program *program = context;
    claim_hint(program->worker.claim);
}

static void on_reload(void *context)
{
    struct program *program = context;
    worker_reload(&program->worker);
}

/* ---- the way out: worker drained -> its rooms, HTTP client, listener -> daemon ---- */

static void on_stop(void *context)
{
    struct program *program = context;
    worker_drain(&program->worker);
}

static bool is_idle(void *context)
{
    struct program *program = context;
    return worker_is_idle(&program->worker);
}

static void on_late(void *context)
{
    struct program *program = context;
    log_warning("leases will run out", LOG_NUMBER("in_flight", program->worker.in_flight));
}

static void on_room_closed(void *context)
{
    struct program *program = context;
    if (--program->open_rooms == 0)
        daemon_close(&program->daemon);
}

static void on_drained(void *context)
{
    struct program *program = context;
    program->open_rooms = 3;
    worker_close(&program->worker, on_room_closed, program);
    http_client_close(program->worker.http, on_room_closed, program);
    pg_listen_close(program->listen, on_room_closed, program);
}

/* ---- the way in ---- */

static void name_worker(struct worker *worker)
{
    char host[64] = "host";
    (void)gethostname(host, sizeof host - 1); /* ignoring: the name is for people */
    snprintf(worker->name, sizeof worker->name, "%s:%ld", host, (long)getpid());
}

static bool start(struct program *program, struct err *err)
{
    struct config *config = &program->config;
    struct worker *worker = &program->worker;
    struct daemon *daemon = &program->daemon;
    worker->config = config;
    worker->loop = &program->loop;
    name_worker(worker);
    worker->metrics = metrics_new(families, ARRAY_SIZE(families));
    if (!worker->metrics)
        return err_set(err, ERR_MEMORY, "no memory for the metrics");
    *daemon = (struct daemon){
        .loop = &program->loop,
        .name = "issuing-worker",
        .config = config,
        .metrics = worker->metrics,
        .lag_metric = WORKER_METRIC_LOOP_LAG,
        .build_metric = WORKER_METRIC_BUILD_INFO,
        .db_errors_metric = WORKER_METRIC_DB_ERRORS,
        .admin_listen = config->worker.admin_listen,
        .pipeline = PIPELINE,
        .waiting_max = WAITING_MAX,
        .on_database_ready = on_wake_hint,
        .on_scrape = on_scrape,
        .on_reload = on_reload,
        .on_stop = on_stop,
        .is_idle = is_idle,
        .on_drained = on_drained,
        .on_late = on_late,
        .context = program,
    };
    if (!daemon_open(daemon, err))
        return false;
    worker->pool = daemon->pool;
    struct http_client_options options = {
        .connections_max = (int)(config->issuer.max_concurrency + config->core.max_concurrency),
        .answer_max = ANSWER_MAX,
    };
    return http_client_open(&program->loop, &options, &worker->http, err) && worker_open(worker, err) &&
           pg_listen_open(&program->loop, config->database.url, OUTBOX_WAKE_CHANNEL, on_wake_hint, program,
                          &program->listen, err) &&
           daemon_start(daemon, err);
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
    bool is_clean = daemon_run(&program.loop);
    metrics_free(program.worker.metrics);
    config_done(&program.config);
    log_info("stopped");
    return is_clean ? 0 : 1;
}
